"""Waiting for messages: by notifications of this process and others of this machine, and by polling.

Without notifications the pause between two empty receives doubles up to a bound. None is needed for correctness.
"""

import asyncio
import contextlib
import math
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from taskgraph.model.clock import Clock
from taskgraph.model.flag import Flag, wait_any
from taskgraph.model.names import OWN
from taskgraph.storage.queues import Queues
from taskgraph.storage.signals.wakeup_sockets import WakeupSockets

UNREACHABLE_SECONDS_MAX: Final = 0.5
"""The longest pause where notifications should come, and cannot: polling a file of this machine costs little."""

_FIRST_SECONDS: Final = 0.05  # of the first wait for a queue, which no other process can end
_POLLED_SECONDS_MIN: Final = 0.01
_NOTIFIED_SECONDS_MIN: Final = 0.5
_TIMES_TRUSTED: Final = 3
_TROUBLE_SECONDS_MAX: Final = 10.0
_QUIET_SHARE: Final = (
    0.05  # of the time for which nothing has come: pauses grow on to that, as it is no great wait then
)
_QUIET_TIMES_MAX: Final = 3  # the longest pause of a receiver, at most
_LATER_SECONDS_MAX: Final = 600.0  # a notification is kept for so long; what comes later is found by polling
_LATER_MARGIN_SECONDS: Final = 0.02  # so that the message is there when the notification comes
_FOR_OTHERS: Final[ContextVar[bool]] = ContextVar("taskgraph-for-others", default=False)


@contextlib.contextmanager
def for_others() -> Iterator[None]:
    """What is sent within, now or with a delay, notifies other processes alone."""
    before = _FOR_OTHERS.set(True)
    try:
        yield
    finally:
        _FOR_OTHERS.reset(before)


class Wakeup:
    """Notifications, by queue name. sockets: to and from other processes."""

    def __init__(self, sockets: WakeupSockets | None = None) -> None:
        self._sockets = sockets
        self.counts: dict[str, int] = {}
        self.waiting: dict[str, list[Flag]] = {}

    def notify(self, queue: str, count: int = 1) -> None:
        """So many messages were sent to this queue: wake as many receivers, those of this process first."""
        if not _FOR_OTHERS.get():
            count -= self._wake(queue, count)
        if count > 0 and self._sockets is not None and not queue.startswith(OWN):
            self._sockets.notify(queue, count)

    def ticket(self, *queues: str, at_once: bool = True) -> "Ticket":
        """at_once: whether other processes are to reach the first one already, which takes a socket."""
        sockets = self._sockets
        shared = [queue for queue in queues if not queue.startswith(OWN)]
        reaches_all = not shared or (sockets is not None and sockets.reaches_all)
        local = not at_once and reaches_all and not self.counts.keys() >= {*shared}
        for queue in queues:
            self.counts.setdefault(queue, 0)
        unreachable = False
        if sockets is not None and not local:
            unreachable = False in [sockets.listen(queue, self._receive) for queue in shared]
        return Ticket(
            self,
            queues,
            sum(self.counts[queue] for queue in queues),
            notified_by_all=reaches_all and not unreachable,
            seconds_max=UNREACHABLE_SECONDS_MAX if reaches_all and unreachable else math.inf,
            local=local,
        )

    def clear(self) -> int:
        """Remove the sockets of processes that are gone; gives how many."""
        return self._sockets.clear() if self._sockets is not None else 0

    def close(self) -> None:
        if self._sockets is not None:
            self._sockets.close()

    def _receive(self, queue: str) -> bool:
        return self._wake(queue, 1) == 1

    def _wake(self, queue: str, count: int) -> int:
        """Wake up to so many receivers that wait; gives how many. Others see the count when they begin to wait."""
        if queue not in self.counts:
            return 0
        self.counts[queue] += 1
        woken = [event for event in self.waiting.get(queue, ()) if not event.is_set()][:count]
        for event in woken:
            event.set()
        return len(woken)


@dataclass(frozen=True, slots=True)
class Ticket:
    """Taken before a receive: a notification between the receive and the waiting is not missed.

    notified_by_all: every sender to these queues notifies. seconds_max: no pause should be longer. local: the first one
    of a process, which other processes cannot wake, for it has no socket. It waits for a moment: most runs end in it.
    """

    wakeup: Wakeup
    queues: tuple[str, ...]
    count: int
    notified_by_all: bool = False
    seconds_max: float = math.inf
    local: bool = False

    @property
    def notified(self) -> bool:
        return sum(self.wakeup.counts[queue] for queue in self.queues) != self.count

    async def wait(self, stop: Flag, seconds: float) -> bool:
        """Wait for a notification since the ticket was taken, or the stop, at most so long; gives whether one came."""
        if self.notified:
            await asyncio.sleep(0)
            return True
        woken = Flag()
        waiting = [self.wakeup.waiting.setdefault(queue, []) for queue in self.queues]
        for each in waiting:
            each.append(woken)
        try:
            await wait_any((woken, stop), min(seconds, _FIRST_SECONDS) if self.local else seconds)
            return woken.is_set()
        finally:
            for each in waiting:
                each.remove(woken)


class Pacer:
    """The pauses of one receiver.

    After work was found, the first pause is short, as only polling finds the messages of another machine. It is long at
    once where every sender notifies, or when work came with a notification the last few times. Work without one makes
    the pauses short again. After a long quiet time they grow beyond seconds_max.
    """

    def __init__(self, clock: Clock, *, seconds_max: float) -> None:
        self._clock = clock
        self._seconds_max = seconds_max
        self._pause: float | None = None  # None: the first one
        self._last = clock.monotonic()  # when something came
        self._trust: int | None = None  # how many times in a row one was right; None: not known yet
        self._before: Ticket | None = None  # of the last pause
        self._found = False  # something since then
        self._unnotified = False  # it had come without a notification when that was looked at

    def reset(self) -> None:
        self._found = True
        self._pause = None
        self._last = self._clock.monotonic()

    async def idle(self, ticket: Ticket, stop: Flag) -> None:
        """Wait for a notification, the stop, or the end of a pause that doubles each time."""
        if ticket.local:
            await ticket.wait(stop, self._seconds_max)
            return
        self._judge(ticket)
        await self._rest(ticket, stop)

    async def rest(self, ticket: Ticket, stop: Flag) -> None:
        """After a receive that gave less than was asked for: wait as well, if notifications come."""
        if ticket.local:
            return
        self._judge(ticket, at_once=True)
        if self._trust == _TIMES_TRUSTED:
            await self._rest(ticket, stop)

    def _judge(self, ticket: Ticket, *, at_once: bool = False) -> None:
        """Set `_trust` by whether the last message came with a notification.

        at_once: its notification may still be on the way; the next time shows it.
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

    async def _rest(self, ticket: Ticket, stop: Flag) -> None:
        quiet = self._clock.monotonic() - self._last
        longest = min(max(self._seconds_max, quiet * _QUIET_SHARE), self._seconds_max * _QUIET_TIMES_MAX)
        longest = min(longest, ticket.seconds_max)
        first = _NOTIFIED_SECONDS_MIN if self._trust == _TIMES_TRUSTED else _POLLED_SECONDS_MIN
        pause = min(first if self._pause is None else self._pause, longest)
        self._pause = min(pause * 2, longest)
        # Jittered, so that many do not poll in step.
        notified = await ticket.wait(stop, pause * (0.75 + self._clock.jitter() / 2))
        if notified or stop.is_set():
            self._pause = None

    async def trouble(self, stop: Flag) -> None:
        pause = max(self._pause or 0.0, 0.5)
        self._pause = min(pause * 2, _TROUBLE_SECONDS_MAX)
        await wait_any((stop,), pause * (0.75 + self._clock.jitter() / 2))


class Announced:
    """Queues of which a send notifies of each message, as soon as it can be received."""

    def __init__(self, queues: Queues, wakeup: Wakeup) -> None:
        self._queues = queues
        self._wakeup = wakeup
        self.receive = queues.receive
        self.renew = queues.renew
        self.delete = queues.delete
        self.count = queues.count

    async def send(self, queue: str, bodies: Sequence[str], *, delay_seconds: float = 0) -> None:
        await self._queues.send(queue, bodies, delay_seconds=delay_seconds)
        if 0 < delay_seconds <= _LATER_SECONDS_MAX:  # a receiver would find it by polling, and late
            loop = asyncio.get_running_loop()  # which remembers whether it was sent for others
            loop.call_later(delay_seconds + _LATER_MARGIN_SECONDS, self._wakeup.notify, queue, len(bodies))
        elif bodies and delay_seconds == 0:
            self._wakeup.notify(queue, len(bodies))
