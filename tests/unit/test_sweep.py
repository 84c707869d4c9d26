"""The sweep: what is said again, how often, and what is given up."""

from datetime import timedelta

import pytest

from taskgraph.documents.nodes import GraphDocument, TaskNode
from taskgraph.engine.commit import Records
from taskgraph.engine.handlers import Handlers
from taskgraph.engine.live_index import enter_live
from taskgraph.engine.submission import extend, submit
from taskgraph.engine.sweep import is_due, sweep
from taskgraph.model import limits
from taskgraph.model.errors import Refused
from taskgraph.model.ids import GRAPH, task_id_of
from taskgraph.model.names import ALL, LIVE
from taskgraph.protocol.runs import Claim, Completed
from taskgraph.storage.tables import Insert
from taskgraph.testing import ManualClock, MemoryQueues, MemoryTables

pytestmark = pytest.mark.usefixtures("settled")

DOCUMENT = GraphDocument({"a": TaskNode("a"), "b": TaskNode("b", ("a",))})


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def tables() -> MemoryTables:
    return MemoryTables()


@pytest.fixture
def handlers(tables: MemoryTables, clock: ManualClock) -> Handlers:
    return Handlers(Records(tables, clock), MemoryQueues(clock), clock)


def test_a_long_wait_is_reminded_of_at_doubling_ages_only() -> None:
    period = limits.SWEEP_SECONDS
    rounds = [n * period for n in range(1, 2 * 24 * 60)]  # a day of rounds
    due = [age for age in rounds if is_due(age, period)]
    assert due[0] == limits.REDISPATCH_SECONDS
    assert len(due) <= 3 * 12  # log2 of the age, a little more for rounds that come close together
    ages = [limits.REDISPATCH_SECONDS * 2**n for n in range(8)]
    assert all(any(age <= moment <= age + period for moment in due) for age in ages)


class StopsAfter(MemoryTables):
    """Refuses every commit into a graph's partition after so many."""

    def __init__(self, commits_max: int) -> None:
        super().__init__()
        self.left = commits_max

    async def commit(self, partition, changes):
        if partition not in (LIVE, ALL):
            if self.left == 0:
                raise KeyboardInterrupt
            self.left -= 1
        return await super().commit(partition, changes)


@pytest.fixture
def in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small graphs are submitted in several commits, as large ones are."""
    monkeypatch.setattr(limits, "WHOLE_ROWS_MAX", 0)


@pytest.mark.usefixtures("in_several")
async def test_an_abandoned_submission_is_fenced_off_and_cannot_start() -> None:
    clock = ManualClock()
    tables = StopsAfter(1)
    queues = MemoryQueues(clock)
    handlers = Handlers(Records(tables, clock), queues, clock)
    with pytest.raises(KeyboardInterrupt):
        await submit(handlers, "g", DOCUMENT)
    tables.left = 1000
    clock.advance(limits.ABANDONED_SECONDS - 1)
    assert (await sweep(handlers)).abandoned == 0
    assert tables.partitions["g"][GRAPH].columns["state"] == "submitting"
    clock.advance(2)
    assert (await sweep(handlers)).abandoned == 1
    assert tables.partitions["g"][GRAPH].columns["state"] == "cancelled"
    assert "g" not in tables.partitions[LIVE]
    answer = await submit(handlers, "g", DOCUMENT)
    assert answer.outcome == "existing"
    assert not [key for queue in queues.messages.values() for key in queue]


@pytest.mark.usefixtures("in_several")
async def test_a_submission_that_is_fenced_off_while_it_writes_is_refused(
    handlers: Handlers, tables: MemoryTables, clock: ManualClock
) -> None:
    class Slow(MemoryTables):
        async def commit(self, partition, changes):
            if partition == "g" and isinstance(changes[0], Insert) and changes[0].key.startswith("task:"):
                clock.advance(limits.ABANDONED_SECONDS + 1)
                await sweep(handlers)
            return await super().commit(partition, changes)

    tables.__class__ = Slow
    with pytest.raises(Refused, match="never finished"):
        await submit(handlers, "g", DOCUMENT)
    assert tables.partitions["g"][GRAPH].columns["state"] == "cancelled"


async def test_a_name_without_a_graph_leaves_the_live_index_after_a_while(
    handlers: Handlers, tables: MemoryTables, clock: ManualClock
) -> None:
    await enter_live(handlers.records, "ghost")
    assert (await sweep(handlers)).index_mended == 0
    clock.advance(timedelta(hours=2).total_seconds())
    assert (await sweep(handlers)).index_mended == 1
    assert not tables.partitions[LIVE]


async def test_an_extension_that_nobody_heard_of_before_the_graph_ended_is_answered(
    handlers: Handlers, tables: MemoryTables
) -> None:
    await submit(handlers, "g", GraphDocument({"a": TaskNode("a")}))
    answer = await extend(handlers, "g", GraphDocument({"b": TaskNode("b", ("a",))}))
    assert isinstance(handlers.queues, MemoryQueues)
    handlers.queues.messages.clear()  # the message is lost
    task_id = task_id_of("g", "a")
    lease = handlers.clock.now() + timedelta(seconds=60)
    await handlers.transition("g", [Claim(task_id, 0, "c", "w", lease)])
    await handlers.transition("g", [Completed(task_id, 0, "c", "", {"failed": False})])
    head = tables.partitions["g"][f"request:{answer.request}"]
    assert (tables.partitions["g"][GRAPH].columns["state"], head.columns["state"]) == ("finished", "staged")
    await sweep(handlers)
    head = tables.partitions["g"][f"request:{answer.request}"]
    assert head.columns["state"] == "refused"
    assert "finished" in str(head.columns["reason"])
    assert "g" not in tables.partitions[LIVE]
