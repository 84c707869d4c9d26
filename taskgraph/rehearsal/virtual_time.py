"""An event loop whose time jumps to the next thing that is due, and the clock of what runs in it."""

import asyncio
import math
import random
import selectors
from collections.abc import Coroutine, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

from taskgraph.model.ids import slugid_from

T = TypeVar("T")

EPOCH: Final = datetime(2026, 1, 1, tzinfo=UTC)
_RESOLUTION_SECONDS: Final = 1e-9


class StandsStill(RuntimeError):
    """Everybody waits for ever: nothing is due at any time."""


class _Selector(selectors.BaseSelector):
    """Waits for nothing: time jumps instead."""

    def __init__(self, loop: "VirtualLoop") -> None:
        self.seconds = 0.0
        self._loop = loop
        self._keys: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = selectors.SelectorKey(fileobj, fileobj if isinstance(fileobj, int) else fileobj.fileno(), events, data)
        self._keys[fileobj] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise StandsStill("everybody waits for ever")
        if timeout > 0:
            self.seconds += timeout
            self._loop.go_by_rounding_of(self.seconds)
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys

    def close(self) -> None:
        self._keys.clear()


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time."""

    _clock_resolution: float  # of asyncio: how much too early something may be called

    def __init__(self) -> None:
        self._virtual = _Selector(self)
        super().__init__(self._virtual)
        self.set_debug(False)  # python -X dev turns it on: what it measures is real time

    def time(self) -> float:
        return self._virtual.seconds

    def go_by_rounding_of(self, seconds: float) -> None:
        """What is due now is so after all rounding: after some months a nanosecond more is no more."""
        self._clock_resolution = max(_RESOLUTION_SECONDS, 2 * math.ulp(seconds))


class LoopClock:
    """The clock of one process in virtual time.

    start: the time of day at which the loop began. skew_seconds: how far its time of day is off.
    """

    def __init__(
        self, loop: VirtualLoop, rng: random.Random, skew_seconds: float = 0.0, *, start: datetime = EPOCH
    ) -> None:
        self._loop = loop
        self._rng = rng
        self._start = start + timedelta(seconds=skew_seconds)

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._loop.time())

    def monotonic(self) -> float:
        return self._loop.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def new_id(self) -> str:
        return slugid_from(self._rng.randbytes(16))

    def new_ids(self, count: int) -> Sequence[str]:
        return [self.new_id() for _ in range(count)]

    def jitter(self) -> float:
        return self._rng.random()


def end_all(loop: VirtualLoop) -> None:
    """End whatever still runs: those of a dead process wait for answers that never come, even while they are ended."""
    while tasks := asyncio.all_tasks(loop):
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
    loop.run_until_complete(asyncio.sleep(0))  # callbacks of the last ones


def run_in(loop: VirtualLoop, main: Coroutine[Any, Any, T]) -> T:
    """Run this to its end in virtual time, and end what it has left. In a thread that runs no other event loop."""
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(main)
    finally:
        end_all(loop)
        loop.close()
        asyncio.set_event_loop(None)
