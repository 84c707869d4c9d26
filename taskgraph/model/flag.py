"""A flag that calls back when it is set, and waits for one of several, without a task for each."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any


class Flag(asyncio.Event):
    """An event that also calls back."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Callable[[], Any]] = []

    def set(self) -> None:
        if not self.is_set():
            super().set()
            for call in tuple(self.calls):
                call()

    @contextlib.contextmanager
    def calling(self, call: Callable[[], Any]) -> Iterator[None]:
        """Meanwhile this is called each time the flag is set; at once, too, if it is set by now."""
        self.calls.append(call)
        try:
            if self.is_set():
                call()
            yield
        finally:
            self.calls.remove(call)


async def wait_any(flags: tuple[Flag, ...], timeout_seconds: float) -> bool:
    """Gives whether one of the flags is set in time."""
    if any(flag.is_set() for flag in flags):
        await asyncio.sleep(0)
        return True
    loop = asyncio.get_running_loop()
    woken: asyncio.Future[bool] = loop.create_future()

    def wake(by_flag: bool = True) -> None:
        if not woken.done():
            woken.set_result(by_flag)

    timer = loop.call_later(timeout_seconds, wake, False)
    for flag in flags:
        flag.calls.append(wake)
    try:
        return await woken
    finally:
        timer.cancel()
        for flag in flags:
            flag.calls.remove(wake)
