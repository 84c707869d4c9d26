"""Waiting without polling hard: hints inside a process, and back-off where there are none.

What this room is for: a sender in the same process rings, so that a receiver need not poll; without a ring, the pause
between two empty receives doubles up to a bound. A hint is never needed for correctness. It never touches storage.
"""

import asyncio
from dataclasses import dataclass
from typing import Final

from taskgraph.clock import Clock

_PAUSE_SECONDS_MIN: Final = 0.01
_TROUBLE_SECONDS_MAX: Final = 10.0


@dataclass(frozen=True, slots=True)
class Ticket:
    """Taken before a receive: a ring between the receive and the waiting is not missed."""

    events: tuple[asyncio.Event, ...]


class Wakeup:
    """Rings, by queue name."""

    def __init__(self) -> None:
        self._events: dict[str, asyncio.Event] = {}

    def ring(self, queue: str) -> None:
        """Something was sent to this queue by this process."""
        if event := self._events.get(queue):
            event.set()

    def ticket(self, *queues: str) -> Ticket:
        """Begin to listen."""
        events = tuple(self._events.setdefault(queue, asyncio.Event()) for queue in queues)
        for event in events:
            event.clear()
        return Ticket(events)


class Pacer:
    """The pauses of one receiver."""

    def __init__(self, clock: Clock, *, seconds_max: float) -> None:
        self._clock = clock
        self._seconds_max = seconds_max
        self._pause = _PAUSE_SECONDS_MIN

    def reset(self) -> None:
        """Something came: be quick again."""
        self._pause = _PAUSE_SECONDS_MIN

    async def idle(self, ticket: Ticket, stop: asyncio.Event) -> None:
        """Wait for a ring, the stop, or the end of a pause that doubles each time."""
        pause = self._pause * (0.75 + self._clock.jitter() / 2)  # jittered, so that many do not poll in step
        self._pause = min(self._pause * 2, self._seconds_max)
        if await wait_any((*ticket.events, stop), pause):
            self.reset()

    async def trouble(self, stop: asyncio.Event) -> None:
        """Wait longer and longer while storage does not answer."""
        pause = max(self._pause, 0.5)
        self._pause = min(pause * 2, _TROUBLE_SECONDS_MAX)
        await wait_any((stop,), pause * (0.75 + self._clock.jitter() / 2))


async def wait_any(events: tuple[asyncio.Event, ...], timeout_seconds: float) -> bool:
    """Wait until one of the events is set, at most so long; gives whether one is."""
    if any(event.is_set() for event in events):
        await asyncio.sleep(0)
        return True
    waiters = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        done, _ = await asyncio.wait(waiters, timeout=timeout_seconds, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)
    finally:
        for waiter in waiters:
            waiter.cancel()
