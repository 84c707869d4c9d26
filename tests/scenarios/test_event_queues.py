"""Several queues of events: which a graph has, how many there are, and how handlers share them out among themselves."""

import asyncio
import contextlib
import random
from typing import Any

import pytest

from taskgraph.engine.lead import LEAD_SECONDS, PRESENT, Leads
from taskgraph.engine.queue_findings import examine_queues
from taskgraph.model import limits
from taskgraph.model.errors import Conflict, StaleDelivery, StorageUnavailable, Unclear
from taskgraph.model.flag import Flag
from taskgraph.model.messages import Rerun, to_text
from taskgraph.model.names import LEADS, QueueNames
from taskgraph.queries.event_queues import LEFT_SECONDS, NUMBER, EventQueues
from taskgraph.rehearsal.virtual_time import LoopClock
from taskgraph.storage.tables import Insert, Row
from taskgraph.testing import MemoryTables
from tests.scenarios.crew import Calls, Crew, Script, virtually
from tests.scenarios.stage import Stage, graph

NAMES = QueueNames()


def said(number: int, most: int = 0) -> Row:
    return Row(NUMBER, "e1", {"number": number, "most": most or number})


# --- which queue, and how many


def test_every_version_sends_a_graph_to_the_same_queue() -> None:
    async def act(crew: Crew) -> None:
        queues = EventQueues(MemoryTables(), crew.clock, NAMES)
        assert {queues.of(each) for each in ("a", "b", "c")} == {"taskgraph-events"}
        queues.learn(said(8))
        assert [queues.of(each) for each in ("nightly", "g", "x-1", "")] == [
            "taskgraph-events-2",
            "taskgraph-events-6",
            "taskgraph-events-7",
            "taskgraph-events",
        ]
        assert queues.received == ("taskgraph-events", *(f"taskgraph-events-{each}" for each in range(1, 8)))

    virtually(act)


@pytest.mark.parametrize(("number", "used"), [(0, 1), (-3, 1), (10_000, limits.EVENT_QUEUES_MAX)])
def test_a_number_that_makes_no_sense_is_taken_for_the_nearest_that_does(number: int, used: int) -> None:
    async def act(crew: Crew) -> None:
        queues = EventQueues(MemoryTables(), crew.clock, NAMES)
        queues.learn(said(number))
        assert (queues.number, len(queues.received)) == (used, used)

    virtually(act)


def test_a_process_that_is_told_to_uses_the_first_alone() -> None:
    async def act(crew: Crew) -> None:
        tables = MemoryTables()
        await EventQueues(tables, crew.clock, NAMES).use(4)
        queues = EventQueues(tables, crew.clock, NAMES, only_first=True)
        await queues.look()
        assert await queues.queue_of(Rerun("g", (("a" * 22, 0),))) == "taskgraph-events"
        assert queues.received == ("taskgraph-events",)
        assert queues.left() == [f"taskgraph-events-{each}" for each in (1, 2, 3)]
        apart = EventQueues(tables, crew.clock, QueueNames(per_operation=True))
        await apart.look()
        assert await apart.queue_of(Rerun("g", (("a" * 22, 0),))) == "taskgraph-rerun"
        assert len(apart.received) > 4

    virtually(act)


def test_another_number_is_noticed_and_the_old_queues_are_received_from_for_a_while() -> None:
    async def act(crew: Crew) -> None:
        tables = MemoryTables()
        one, two = (EventQueues(tables, crew.clock, NAMES) for _ in range(2))
        await one.use(4)
        commits = tables.commits
        await one.use(4)
        assert tables.commits == commits, "it is so already"
        changed = two.changed
        await two.refresh()
        assert changed.is_set()
        await one.use(2)
        await two.refresh()
        assert two.number == 4, "what was read a moment ago is good enough"
        await asyncio.sleep(31)
        await two.refresh()
        assert (two.number, len(two.received), two.left()) == (2, 4, [])
        await asyncio.sleep(120)
        assert two.received == ("taskgraph-events", "taskgraph-events-1")
        assert two.left() == ["taskgraph-events-2", "taskgraph-events-3"]
        assert two.may_be_sent_to()
        await asyncio.sleep(LEFT_SECONDS)
        assert not two.may_be_sent_to()

    virtually(act)


def test_a_number_that_is_the_same_after_another_one_has_what_is_left_received_from_too() -> None:
    """A process that looks seldom knows 1 all the time, and events have gone to four queues meanwhile."""

    async def act(crew: Crew) -> None:
        tables = MemoryTables()
        one, two = (EventQueues(tables, crew.clock, NAMES) for _ in range(2))
        await two.look()
        changed = two.changed
        await one.use(4)
        await one.use(1)
        await two.look()
        assert (two.number, len(two.received), changed.is_set()) == (1, 4, True)
        changed = two.changed
        await two.look()
        assert not changed.is_set(), "nothing is new"

    virtually(act)


class Beaten(MemoryTables):
    """Another process is faster."""

    def __init__(self, number: int, error: Exception) -> None:
        super().__init__()
        self._number = number
        self._error = error

    async def commit(self, partition, changes):  # type: ignore[no-untyped-def]
        if self._number:
            columns = {"number": self._number, "most": self._number}
            self._number = 0
            await super().commit(LEADS, [Insert(NUMBER, columns)])
            raise self._error
        return await super().commit(partition, changes)


@pytest.mark.parametrize("error", [Conflict("412"), Unclear("lost")], ids=["conflict", "unclear"])
def test_of_two_processes_that_want_the_same_number_both_get_it(error: Exception) -> None:
    async def act(crew: Crew) -> None:
        await EventQueues(Beaten(4, error), crew.clock, NAMES).use(4)
        with pytest.raises(type(error)):
            await EventQueues(Beaten(2, error), crew.clock, NAMES).use(4)

    virtually(act)


# --- who leads


def several(crew: Crew, tables: MemoryTables, holder: str, number: int = 4) -> Leads:
    queues = EventQueues(tables, crew.clock, NAMES)
    queues.learn(said(number))
    return Leads(tables, crew.clock, queues, holder)


QUEUES = [NAMES.events_of(number) for number in range(4)]


async def settled(tables: MemoryTables, number: int = 4) -> None:
    await tables.commit(LEADS, [Insert(NUMBER, {"number": number, "most": number})])


def led(*processes: Leads) -> list[int]:
    return [sum(map(each.held, QUEUES)) for each in processes]


def test_who_leads_all_hands_half_over_to_another_that_asks() -> None:
    async def act(crew: Crew) -> None:
        tables = MemoryTables()
        await settled(tables)
        first, second = (several(crew, tables, holder) for holder in ("one", "two"))
        for queue in QUEUES:
            assert await first.take(queue) == 0.0
        assert await second.take(QUEUES[2]) > 0.0
        assert led(first, second) == [4, 0]
        await asyncio.sleep(LEAD_SECONDS / 2 + 0.1)
        assert await first.take(QUEUES[0]) == 0.0, "it puts off all of them at once"
        assert led(first, second) == [2, 0]
        assert await second.stands_by(QUEUES[2]) in (0.0, pytest.approx(LEAD_SECONDS, abs=0.2))
        assert led(first, second) == [2, 2], "it has seen which are its own"
        for _ in range(5):
            await asyncio.sleep(LEAD_SECONDS / 2 + 0.1)
            assert not any([await each.take(queue) for each in (first, second) for queue in QUEUES if each.held(queue)])
        assert led(first, second) == [2, 2]
        await first.give_up()
        assert not any([await second.take(queue) for queue in QUEUES])
        assert led(first, second) == [0, 4]

    virtually(act)


def test_what_was_handed_over_to_a_process_that_is_gone_is_taken_by_any() -> None:
    async def act(crew: Crew) -> None:
        tables = MemoryTables()
        await settled(tables)
        first, gone, third = (several(crew, tables, holder) for holder in ("one", "two", "three"))
        for queue in QUEUES:
            await first.take(queue)
        assert await gone.take(QUEUES[0]) > 0.0
        await asyncio.sleep(LEAD_SECONDS / 2 + 0.1)
        await first.take(QUEUES[0])
        given = [queue for queue in QUEUES if not first.held(queue)]
        assert len(given) == 2
        assert all([await third.take(queue) > 0 for queue in given])
        await asyncio.sleep(LEAD_SECONDS + 0.1)
        assert not any([await third.take(queue) for queue in given])
        for _ in range(3):
            await asyncio.sleep(LEAD_SECONDS / 2 + 0.1)
            for each in (first, third):
                for queue in QUEUES:
                    if each is third or not third.held(queue):
                        await each.take(queue)
        assert sum(led(first, third)) == 4, "nothing goes to the one that is gone"
        rows = tables.partitions[LEADS]
        assert PRESENT + "two" in rows
        await asyncio.sleep(2 * LEAD_SECONDS + 60)
        await first.take(QUEUES[0])
        assert not [key for key in rows if key.startswith(PRESENT)], "rows of processes that are gone are deleted"

    virtually(act)


@pytest.mark.parametrize("off", [-3_600.0, -9.0, 9.0, 3_600.0])
def test_clocks_that_differ_cost_speed_alone(off: float) -> None:
    async def act(crew: Crew) -> None:
        tables = MemoryTables()
        await settled(tables)
        clock = LoopClock(crew.loop, random.Random(1), off)
        queues = EventQueues(tables, clock, NAMES)
        queues.learn(said(4))
        other, ours = Leads(tables, clock, queues, "off"), several(crew, tables, "right")
        for _ in range(20):
            for each in (other, ours):
                for queue in QUEUES:
                    await each.take(queue)
            assert all(any(each.held(queue) for each in (other, ours)) for queue in QUEUES)
            await asyncio.sleep(LEAD_SECONDS / 3)

    virtually(act)


class FaultAt(MemoryTables):
    """One call fails: before it was made, or after."""

    def __init__(self, at: int, error: Exception | None, *, made: bool = False) -> None:
        super().__init__()
        self.at, self.error, self.made, self.calls = at, error, made, 0

    def _is_now(self, made: bool) -> bool:
        return self.error is not None and self.calls == self.at and self.made == made

    async def query(self, *given: Any, **more: Any) -> Any:
        self.calls += 1
        if self._is_now(made=False) and isinstance(self.error, StorageUnavailable):
            raise self.error
        return await super().query(*given, **more)

    async def commit(self, partition: str, changes: Any) -> list[str | None]:
        self.calls += 1
        if self._is_now(made=False):
            raise self.error  # type: ignore[misc]
        etags = await super().commit(partition, changes)
        if self._is_now(made=True):
            raise self.error  # type: ignore[misc]
        return etags


FAULTS = (
    (StorageUnavailable("503"), False),
    (Conflict("412"), False),
    (Conflict("412 on the own write"), True),
    (Unclear("lost"), False),
    (Unclear("lost"), True),
)


def test_whatever_call_fails_all_queues_are_led_and_shared_out_soon_after() -> None:
    """Every fault at every call of two processes, of which the second comes later."""

    def play(at: int, error: Exception | None, *, made: bool) -> int:
        tables = FaultAt(at, error, made=made)

        async def act(crew: Crew) -> None:
            await MemoryTables.commit(tables, LEADS, [Insert(NUMBER, {"number": 4, "most": 4})])
            processes = [several(crew, tables, holder) for holder in ("one", "two")]
            refused: dict[tuple[int, str], float] = {}
            for second in range(45):
                for number, each in enumerate(processes[: 1 + (second > 3)]):
                    for queue in QUEUES:
                        if second < refused.get((number, queue), 0.0):
                            continue
                        with contextlib.suppress(StorageUnavailable):  # its receiver waits and asks again
                            refused[number, queue] = second + await each.take(queue)
                await asyncio.sleep(1.0)
            assert all(any(each.held(queue) for each in processes) for queue in QUEUES), (at, error, made)
            assert led(*processes) == [2, 2], (at, error, made)

        virtually(act)
        return tables.calls

    calls = play(0, None, made=False)
    assert calls > 20
    for error, made in FAULTS:
        for at in range(1, calls + 1):
            play(at, error, made=made)


def test_two_consumers_share_graphs_out_and_each_takes_over_when_the_other_ends() -> None:
    async def act(crew: Crew) -> None:
        await crew.stage.handlers.dispatcher.event_queues.use(8)
        for number in range(12):
            crew.stage.graph_id = f"g{number}"
            # Two chains side by side: of one alone its worker would make the commits.
            await crew.submit({f"{c}{n}": [f"{c}{n - 1}"] if n else [] for c in "ab" for n in range(12)})
        counted = [Calls(), Calls()]
        stops = [Flag(), Flag()]
        for calls, stop in zip(counted, stops, strict=True):
            handlers = crew.handlers(calls)
            await handlers.dispatcher.event_queues.look()
            crew.start(crew.consumer(handlers=handlers), stop=stop)
        crew.start(*[crew.worker(Script(3.0), name=f"w{number}", slots=24) for number in range(2)])
        await crew.until(lambda: min(calls.calls.count("commit") for calls in counted) >= 10)
        stops[0].set()
        for number in range(12):
            crew.stage.graph_id = f"g{number}"
            await crew.finished()
        stops[1].set()
        await crew.end()

    virtually(act)


# --- queues that are left


async def taken_soon(crew: Crew, queue: str) -> None:
    """The result of a run lies there: its graph finishes long before a lease ends."""
    stage = crew.stage
    await stage.queues.send(queue, [to_text(stage.completed(await stage.claim("a")))])

    async def has_finished() -> bool:
        return await stage.state() == "finished"

    await crew.until(has_finished, LEAD_SECONDS / 2)
    await crew.end()


def test_a_handler_learns_of_a_queue_that_came_and_was_left_between_two_looks() -> None:
    async def act(crew: Crew) -> None:
        await crew.submit({"a": []})
        handlers = crew.handlers(Calls())
        await handlers.dispatcher.event_queues.look()
        crew.start(crew.consumer(handlers=handlers))
        await asyncio.sleep(1.0)
        operator = EventQueues(crew.stage.tables, crew.clock, NAMES)
        await operator.use(4)
        await operator.use(1)
        await handlers.dispatcher.event_queues.look()
        await taken_soon(crew, NAMES.events_of(3))

    virtually(act)


def test_a_queue_that_is_left_does_not_wait_for_who_leads_over_the_one_that_is_used() -> None:
    async def act(crew: Crew) -> None:
        await crew.submit({"a": []})
        tables = crew.stage.tables
        other = Leads(tables, crew.clock, EventQueues(tables, crew.clock, NAMES), "other")  # knows of the first alone
        handlers = crew.handlers(Calls())
        await handlers.dispatcher.event_queues.use(4)
        await handlers.dispatcher.event_queues.use(1)
        crew.start(crew.consumer(handlers=handlers))
        assert await other.take(NAMES.events) == 0.0
        await taken_soon(crew, NAMES.events_of(3))

    virtually(act)


async def test_what_lies_on_a_queue_that_is_left_is_moved_and_handled(stage: Stage) -> None:
    queues = stage.handlers.dispatcher.event_queues
    await queues.use(4)
    await stage.submit(graph({"a": []}))
    old = stage.names.events_of(3)
    await stage.queues.send(old, [to_text(stage.completed(await stage.claim("a"))), "no JSON"])
    (row,) = await stage.tables.get(LEADS, [NUMBER])
    assert row is not None
    long_ago = stage.clock.now().replace(year=2001)
    changed = {"number": 1, "most": 4, "since": long_ago}
    queues.learn(Row(NUMBER, row.etag, changed))
    assert queues.received == (stage.names.events,)
    found = await examine_queues(
        _Said(stage.tables, Row(NUMBER, row.etag, changed)), stage.queues, stage.clock, stage.names
    )
    assert [(each.code, each.key, each.text) for each in found] == [
        ("queue-left", f"queue {old}", "2 messages wait there")
    ]
    await EventQueues(stage.tables, stage.clock, stage.names).use(1)
    stage.handlers = stage.more_handlers()
    stage.handlers.dispatcher.event_queues.only_first = True
    assert await stage.handlers.dispatcher.move_left() == 2
    assert await stage.handlers.dispatcher.move_left() == 0
    assert (await stage.queues.count(old), await stage.queues.count(stage.names.events)) == (0, 2)
    await stage.consume()
    assert await stage.state() == "finished"


async def test_what_two_processes_move_at_once_is_handled_once(local: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    queues = local.handlers.dispatcher.event_queues
    await queues.use(2)
    await local.submit(graph({"a": []}))
    await local.queues.send(local.names.events_of(1), [to_text(local.completed(await local.claim("a")))])
    queues.only_first = True
    delete, late = type(local.queues).delete, []

    async def beaten(self: Any, delivery: Any) -> None:
        if not late:
            late.append(delivery)
            await delete(self, delivery)
            raise StaleDelivery("another has it")
        await delete(self, delivery)

    monkeypatch.setattr(type(local.queues), "delete", beaten)
    assert await local.handlers.dispatcher.move_left() == 1
    await local.consume()
    assert await local.state() == "finished"


class _Said:
    """Tables with another row of the number of queues."""

    def __init__(self, tables, row):  # type: ignore[no-untyped-def]
        self._tables, self._row = tables, row

    async def query(self, *given, **more):  # type: ignore[no-untyped-def]
        page = await self._tables.query(*given, **more)
        return type(page)([self._row if row.key == NUMBER else row for row in page.rows], page.continuation)


async def test_the_doctor_names_a_queue_over_which_nobody_leads(local: Stage) -> None:
    queues = local.handlers.dispatcher.event_queues
    assert await examine_queues(local.tables, local.queues, local.clock, local.names) == []
    await queues.use(2)
    await local.queues.send(local.names.events_of(1), ["{}"])
    (found,) = await examine_queues(local.tables, local.queues, local.clock, local.names)
    assert (found.code, found.key, found.severity) == ("queue-unled", "queue taskgraph-events-1", "due")
    leads = Leads(local.tables, local.clock, queues, "h")
    assert await leads.take(local.names.events_of(1)) == 0.0
    assert await examine_queues(local.tables, local.queues, local.clock, local.names) == []


async def test_a_storage_that_is_away_is_said_by_who_sends(local: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: object) -> None:
        raise StorageUnavailable("503")

    handlers = local.more_handlers()
    monkeypatch.setattr(type(local.tables), "get", away)
    with pytest.raises(StorageUnavailable):
        await handlers.dispatcher.send_events([Rerun("g", (("a" * 22, 0),))])
