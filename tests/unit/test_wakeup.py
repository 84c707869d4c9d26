"""Pauses and hints: when a receiver asks again. Virtual time alone; nothing here waits."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from taskgraph.model.flag import Flag
from taskgraph.rehearsal.virtual_time import VirtualLoop, end_all
from taskgraph.storage.signals.wakeup import Announced, Pacer, Ticket, Wakeup, for_others
from taskgraph.storage.signals.wakeup_sockets import WakeupSockets
from taskgraph.testing import ManualClock, MemoryQueues


class RecordingSockets(WakeupSockets):
    """A sockets without sockets."""

    def __init__(self, *, reaches_all: bool, hears: bool = True) -> None:
        self.reaches_all = reaches_all
        self.hears = hears
        self.notified: list[tuple[str, int]] = []

    def listen(self, queue: str, heard: Callable[[str], bool]) -> bool:
        self.heard = heard
        return self.hears

    def notify(self, queue: str, count: int = 1) -> None:
        self.notified.append((queue, count))

    def close(self) -> None:
        pass


class Receiver:
    """A receiver, with its pauses. No chance: jitter is in the middle."""

    def __init__(self, sockets: WakeupSockets | None = None, *, seconds_max: float = 10.0) -> None:
        self.wakeup = Wakeup(sockets)
        self.pacer = Pacer(ManualClock(), seconds_max=seconds_max)
        self.stop = Flag()
        self.queue = "q"
        self.at_once = True

    def ticket(self) -> Ticket:
        return self.wakeup.ticket(self.queue, at_once=self.at_once)

    async def pause(self, ring_after: float | None = None) -> float:
        """How long it waits after a receive that gave nothing."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        ticket = self.ticket()
        if ring_after is not None:
            loop.call_later(ring_after, self.wakeup.notify, self.queue)
        await self.pacer.idle(ticket, self.stop)
        return round(loop.time() - began, 6)

    async def pauses(self, count: int) -> list[float]:
        return [await self.pause() for _ in range(count)]


def virtual(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run a test in virtual time."""

    def run() -> None:
        loop = VirtualLoop()
        try:
            loop.run_until_complete(test())
        finally:
            end_all(loop)
            loop.close()

    run.__name__ = test.__name__
    return run


@virtual
async def test_the_first_wait_is_short_and_takes_no_socket() -> None:
    """Most processes are over before they would wait for long."""
    for sockets, first, heard in (
        (RecordingSockets(reaches_all=True), 0.05, False),
        (RecordingSockets(reaches_all=False), 0.01, True),
    ):
        receiver = Receiver(sockets)
        receiver.at_once = False
        assert await receiver.pause() == first
        assert hasattr(sockets, "heard") == heard
        await receiver.pause()
        assert hasattr(sockets, "heard")
    receiver = Receiver(RecordingSockets(reaches_all=True))
    receiver.at_once = False
    assert await receiver.pause(ring_after=0.003) == 0.003, "of this process it hears"


@virtual
async def test_pauses_begin_short_and_double_up_to_the_bound() -> None:
    receiver = Receiver(RecordingSockets(reaches_all=False))
    assert await receiver.pauses(12) == [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.0, 10.0]
    receiver.pacer.reset()
    assert await receiver.pauses(2) == [0.01, 0.02]


@virtual
async def test_pauses_grow_on_with_the_time_that_it_has_been_quiet() -> None:
    receiver = Receiver(RecordingSockets(reaches_all=True))
    clock: Any = receiver.pacer._clock
    await receiver.pauses(7)
    for quiet, pause in ((200.0, 10.0), (300.0, 15.0), (600.0, 30.0), (36_000.0, 30.0)):
        clock.advance(quiet - clock.monotonic())
        await receiver.pauses(2)
        assert await receiver.pause() == pytest.approx(pause, abs=0.01), quiet
    receiver.pacer.reset()
    assert (await receiver.pauses(12))[-2:] == [10.0, 10.0]


@virtual
async def test_where_everybody_rings_the_first_pause_is_long() -> None:
    receiver = Receiver(RecordingSockets(reaches_all=True))
    assert await receiver.pauses(7) == [0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0]


@virtual
async def test_who_should_hear_rings_and_cannot_polls_often() -> None:
    receiver = Receiver(RecordingSockets(reaches_all=True, hears=False))
    assert await receiver.pauses(8) == [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.5, 0.5]
    elsewhere = Receiver(RecordingSockets(reaches_all=False, hears=False))
    assert (await elsewhere.pauses(11))[-1] == 10.0


@virtual
async def test_a_bound_below_the_first_pause_holds() -> None:
    assert await Receiver(RecordingSockets(reaches_all=True), seconds_max=0.001).pauses(2) == [0.001, 0.001]


@virtual
async def test_pauses_are_long_once_work_has_come_with_rings_and_short_again_when_it_has_not() -> None:
    receiver = Receiver(RecordingSockets(reaches_all=False))
    for _ in range(3):
        assert await receiver.pause(ring_after=0.003) == 0.003
        receiver.pacer.reset()
    assert await receiver.pauses(3) == [0.5, 1.0, 2.0]
    receiver.pacer.reset()  # found by asking: some sender does not notify
    assert await receiver.pauses(2) == [0.01, 0.02]


@virtual
async def test_a_ring_that_comes_after_its_message_counts_all_the_same() -> None:
    receiver = Receiver(RecordingSockets(reaches_all=True))
    for _ in range(5):
        await receiver.pause()
        receiver.pacer.reset()  # found by asking, just before the notification
        receiver.wakeup.notify("q")
        assert await receiver.pause() == 0.5


@virtual
async def test_found_once_more_without_a_pause_says_nothing_about_rings() -> None:
    receiver = Receiver(RecordingSockets(reaches_all=True))
    for _ in range(5):
        receiver.pacer.reset()
    assert await receiver.pause() == 0.5


@virtual
async def test_rings_in_vain_earn_no_trust() -> None:
    receiver = Receiver(RecordingSockets(reaches_all=False))
    for _ in range(5):
        assert await receiver.pause(ring_after=0.003) == 0.003
    assert await receiver.pauses(2) == [0.01, 0.02]


@virtual
async def test_a_ring_between_receive_and_waiting_is_not_missed() -> None:
    receiver = Receiver(RecordingSockets(reaches_all=True))
    ticket = receiver.ticket()
    other = receiver.ticket()
    receiver.wakeup.notify("q")
    for each in (ticket, other):  # whoever takes a ticket later does not spoil those before
        assert await each.wait(receiver.stop, 1000.0)
    assert asyncio.get_running_loop().time() == 0.0


@virtual
async def test_the_stop_ends_a_pause() -> None:
    receiver = Receiver(RecordingSockets(reaches_all=True))
    await receiver.pauses(3)
    asyncio.get_running_loop().call_later(0.25, receiver.stop.set)
    assert await receiver.pause() == 0.25


@virtual
async def test_trouble_lasts_longer_each_time() -> None:
    receiver = Receiver()
    loop = asyncio.get_running_loop()
    moments = []
    for _ in range(6):
        await receiver.pacer.trouble(receiver.stop)
        moments.append(loop.time())
    assert moments == [0.5, 1.5, 3.5, 7.5, 15.5, 25.5]


async def waiting(wakeup: Wakeup, stop: Flag) -> "asyncio.Task[bool]":
    task = asyncio.create_task(wakeup.ticket("q").wait(stop, 1000.0))
    await asyncio.sleep(0)
    return task


@virtual
async def test_a_message_wakes_one_receiver_and_the_process_itself_comes_first() -> None:
    sockets = RecordingSockets(reaches_all=True)
    wakeup, stop = Wakeup(sockets), Flag()
    tasks = [await waiting(wakeup, stop) for _ in range(3)]
    wakeup.notify("q")
    await asyncio.sleep(0.001)
    assert [task.done() for task in tasks] == [True, False, False]
    assert not sockets.notified
    wakeup.notify("q", 5)
    await asyncio.sleep(0.001)
    assert all(task.done() and task.result() for task in tasks)
    assert sockets.notified == [("q", 3)]
    assert not sockets.heard("q")  # nobody waits: it is passed on
    late = await waiting(wakeup, stop)
    assert sockets.heard("q")
    assert not sockets.heard("q")  # the one who waited is on its way already
    assert await late


@virtual
async def test_rings_for_queues_that_nobody_here_listens_to_go_out() -> None:
    sockets = RecordingSockets(reaches_all=False)
    Wakeup(sockets).notify("q", 2)
    assert sockets.notified == [("q", 2)]
    Wakeup().notify("q")


@pytest.mark.parametrize(("bodies", "delay", "rings"), [(1, 0, 1), (7, 0, 7), (0, 0, 0), (7, 5, 0)])
async def test_a_send_rings_once_for_each_message(bodies: int, delay: float, rings: int) -> None:
    sockets = RecordingSockets(reaches_all=False)
    wakeup = Wakeup(sockets)

    queues = Announced(MemoryQueues(ManualClock()), wakeup)
    await queues.send("events", ["x"] * bodies, delay_seconds=delay)
    assert sum(count for _, count in sockets.notified) == rings
    assert await queues.count("events") == bodies


@virtual
async def test_what_is_sent_for_others_wakes_nobody_here() -> None:
    """Neither at once nor when it can be received; and only that: what is sent beside it rings as ever."""
    sockets = RecordingSockets(reaches_all=True)
    receiver = Receiver(sockets)
    queues = Announced(MemoryQueues(ManualClock()), receiver.wakeup)
    receiver.queue = "tasks"
    with for_others():
        await queues.send("tasks", ["x"], delay_seconds=0.2)
        receiver.wakeup.notify("tasks")
        assert sockets.notified == [("tasks", 1)]
    assert await receiver.pause() == 0.5
    assert sockets.notified == [("tasks", 1)] * 2
    assert await receiver.pause(ring_after=0.003) == 0.003
    assert sockets.notified == [("tasks", 1)] * 2, "the receiver here took that notification"


async def rest(receiver: Receiver, ring_after: float | None = None) -> float:
    """How long it waits after a receive that gave less than it asked for."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    ticket = receiver.ticket()
    receiver.pacer.reset()
    if ring_after is not None:
        loop.call_later(ring_after, receiver.wakeup.notify, "q")
    await receiver.pacer.rest(ticket, receiver.stop)
    return round(loop.time() - began, 6)


@virtual
async def test_after_the_last_message_a_ring_is_waited_for_where_rings_are_relied_upon() -> None:
    receiver = Receiver(RecordingSockets(reaches_all=True))
    assert [await rest(receiver, ring_after=0.003) for _ in range(5)] == [0.003] * 5
    assert await rest(receiver) == 0.5  # and no longer than any first pause
    assert await rest(Receiver(RecordingSockets(reaches_all=False))) == 0.0


@virtual
async def test_messages_that_come_without_rings_end_the_resting() -> None:
    receiver = Receiver(RecordingSockets(reaches_all=True))
    assert await receiver.pause() == 0.5
    assert await rest(receiver) == 0.5  # its notification may still be on the way
    assert await rest(receiver) == 0.0
    assert await receiver.pause() == 0.01
