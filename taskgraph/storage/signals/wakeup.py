"""Waiting without polling hard: notifications where there are some, and back-off where there are none.

A send notifies a receiver, so that it need not poll: in the same process, or in another one of this machine. Without
that, the pause between two empty receives doubles up to a bound. No notification is needed for correctness.
"""

import asyncio
import contextlib
import math
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, cast

from taskgraph.model.clock import Clock
from taskgraph.model.names import OWN
from taskgraph.storage.queues import Queues
from taskgraph.storage.signals.wakeup_sockets import WakeupSockets

UNREACHABLE_SECONDS_MAX: Final = 0.5
"""The longest pause where notifications should come, and cannot: polling a file of this machine costs little."""

_POLLED_SECONDS_MIN: Final = 0.01
_NOTIFIED_SECONDS_MIN: Final = 0.5
_TIMES_TRUSTED: Final = 3
_TROUBLE_SECONDS_MAX: Final = 10.0
_LATER_SECONDS_MAX: Final = 600.0  # a notification is kept for so long; what comes later is found by polling
_LATER_MARGIN_SECONDS: Final = 0.02  # so that the message is there when the notification comes
_FOR_OTHERS: Final[ContextVar[bool]] = ContextVar("taskgraph-for-others", default=False)


@contextlib.contextmanager
def for_others() -> Iterator[None]:
    """What is sent within is of no use to this process: now or later, it notifies other processes alone."""
    before = _FOR_OTHERS.set(True)
    try:
        yield
    finally:
        _FOR_OTHERS.reset(before)


class Wakeup:
    """Notifications, by queue name. sockets: to and from other processes."""

    def __init__(self, sockets: WakeupSockets | None = None) -> None:
        self._sockets = sockets
        self._counts: dict[str, int] = {}
        self._waiting: dict[str, list[asyncio.Event]] = {}

    def notify(self, queue: str, count: int = 1) -> None:
        """So many messages were sent to this queue by this process: wake as many receivers, our own ones first."""
        if not _FOR_OTHERS.get():
            count -= self._wake(queue, count)
        if count > 0 and self._sockets is not None and not queue.startswith(OWN):
            self._sockets.notify(queue, count)

    def ticket(self, *queues: str) -> "Ticket":
        """Begin to listen."""
        unreachable = False
        shared = [queue for queue in queues if not queue.startswith(OWN)]
        for queue in queues:
            self._counts.setdefault(queue, 0)
        for queue in shared:
            if self._sockets is not None and not self._sockets.listen(queue, self._receive):
                unreachable = True
        reaches_all = not shared or (self._sockets is not None and self._sockets.reaches_all)
        return Ticket(
            self,
            queues,
            self._count(queues),
            notified_by_all=reaches_all and not unreachable,
            seconds_max=UNREACHABLE_SECONDS_MAX if reaches_all and unreachable else math.inf,
        )

    def clear(self) -> int:
        """Remove what processes that are gone have left of their sockets; gives how many."""
        return self._sockets.clear() if self._sockets is not None else 0

    def close(self) -> None:
        """Notify no more. Idempotent."""
        if self._sockets is not None:
            self._sockets.close()

    def _receive(self, queue: str) -> bool:
        return self._wake(queue, 1) == 1

    def _wake(self, queue: str, count: int) -> int:
        """Wake up to so many receivers that wait; gives how many. Others that listen see it when they begin to wait."""
        if queue not in self._counts:
            return 0
        self._counts[queue] += 1
        woken = [event for event in self._waiting.get(queue, ()) if not event.is_set()][:count]
        for event in woken:
            event.set()
        return len(woken)

    def _count(self, queues: Sequence[str]) -> int:
        return sum(self._counts[queue] for queue in queues)

    async def _wait(self, ticket: "Ticket", stop: asyncio.Event, seconds: float) -> bool:
        if ticket.notified:
            await asyncio.sleep(0)
            return True
        woken = asyncio.Event()
        waiting = [self._waiting.setdefault(queue, []) for queue in ticket.queues]
        for each in waiting:
            each.append(woken)
        try:
            await wait_any((woken, stop), seconds)
            return woken.is_set()
        finally:
            for each in waiting:
                each.remove(woken)


@dataclass(frozen=True, slots=True)
class Ticket:
    """Taken before a receive: a notification between the receive and the waiting is not missed.

    notified_by_all: every sender to these queues notifies. seconds_max: no pause should be longer.
    """

    wakeup: Wakeup
    queues: tuple[str, ...]
    count: int
    notified_by_all: bool = False
    seconds_max: float = math.inf

    @property
    def notified(self) -> bool:
        """Whether a notification came since the ticket was taken."""
        return self.wakeup._count(self.queues) != self.count  # noqa: SLF001 - the ticket is part of the wakeup

    async def wait(self, stop: asyncio.Event, seconds: float) -> bool:
        """Wait for a notification since the ticket was taken, or the stop, at most so long; gives whether one came."""
        return await self.wakeup._wait(self, stop, seconds)  # noqa: SLF001


class Pacer:
    """The pauses of one receiver.

    After work was seen, the first pause is short, for what comes from another machine is found by polling alone. It is
    long at once where notifications can be relied upon: where every sender notifies, or when work came with one the
    last few times. Work that came without one says that some sender does not, and makes the pauses short again.
    """

    def __init__(self, clock: Clock, *, seconds_max: float) -> None:
        self._clock = clock
        self._seconds_max = seconds_max
        self._pause: float | None = None  # None: the first one
        self._trust: int | None = None  # how many times in a row one was right; None: not known yet
        self._before: Ticket | None = None  # of the last pause
        self._found = False  # something since then
        self._unnotified = False  # it had come without a notification when that was looked at

    def reset(self) -> None:
        """Something came: be quick again."""
        self._found = True
        self._pause = None

    async def idle(self, ticket: Ticket, stop: asyncio.Event) -> None:
        """Wait for a notification, the stop, or the end of a pause that doubles each time."""
        self._judge(ticket)
        await self._rest(ticket, stop)

    async def rest(self, ticket: Ticket, stop: asyncio.Event) -> None:
        """After a receive that gave something, but less than was asked for: wait as well, if notifications come.

        There was no more, so that asking again at once would be in vain.
        """
        self._judge(ticket, at_once=True)
        if self._trust == _TIMES_TRUSTED:
            await self._rest(ticket, stop)

    def _judge(self, ticket: Ticket, *, at_once: bool = False) -> None:
        """What notifications are worth, by whether the last find came with one.

        at_once: when the message was found, its notification may still have been on the way; the next time shows it.
        """
        if self._trust is None:
            self._trust = _TIMES_TRUSTED if ticket.notified_by_all else 0
        elif self._found and self._before is not None:
            if self._before.notified:
                self._trust = min(self._trust + 1, _TIMES_TRUSTED)
            elif at_once and not self._unnotified:
                self._unnotified = True
                return
            else:
                self._trust = 0
        self._before, self._found, self._unnotified = ticket, False, False

    async def _rest(self, ticket: Ticket, stop: asyncio.Event) -> None:
        longest = min(self._seconds_max, ticket.seconds_max)
        first = _NOTIFIED_SECONDS_MIN if self._trust == _TIMES_TRUSTED else _POLLED_SECONDS_MIN
        pause = min(first if self._pause is None else self._pause, longest)
        self._pause = min(pause * 2, longest)
        # Jittered, so that many do not poll in step.
        notified = await ticket.wait(stop, pause * (0.75 + self._clock.jitter() / 2))
        if notified or stop.is_set():
            self._pause = None

    async def trouble(self, stop: asyncio.Event) -> None:
        """Wait longer and longer while storage does not answer."""
        pause = max(self._pause or 0.0, 0.5)
        self._pause = min(pause * 2, _TROUBLE_SECONDS_MAX)
        await wait_any((stop,), pause * (0.75 + self._clock.jitter() / 2))


class _Announced:
    def __init__(self, queues: Queues, wakeup: Wakeup) -> None:
        self._queues = queues
        self._wakeup = wakeup

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queues, name)

    async def send(self, queue: str, bodies: Sequence[str], *, delay_seconds: float = 0) -> None:
        await self._queues.send(queue, bodies, delay_seconds=delay_seconds)
        if 0 < delay_seconds <= _LATER_SECONDS_MAX:  # a receiver would find it by polling, and late
            loop = asyncio.get_running_loop()  # which remembers whether it was sent for others
            loop.call_later(delay_seconds + _LATER_MARGIN_SECONDS, self._wakeup.notify, queue, len(bodies))
        elif bodies and delay_seconds == 0:
            self._wakeup.notify(queue, len(bodies))


def announced(queues: Queues, wakeup: Wakeup) -> Queues:
    """These queues: a send notifies of each message, once it can be received."""
    return cast(Queues, _Announced(queues, wakeup))


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
