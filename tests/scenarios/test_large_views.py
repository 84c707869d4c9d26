"""Looking at large graphs: reads are bounded, answers agree with the rows, and what is not known is not told."""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from taskgraph.engine.doctor import repair_graph
from taskgraph.interfaces.cli.progress import Follower
from taskgraph.model import limits
from taskgraph.model.errors import NotFound
from taskgraph.model.ids import GRAPH, event_key
from taskgraph.model.names import ALL, listed_by, listing_key
from taskgraph.model.states import TaskState
from taskgraph.queries import lookup, why
from taskgraph.queries.graphs import Queries
from taskgraph.queries.values import GraphStatus, GraphsWanted
from taskgraph.storage.tables import Insert, Merge, Page, Range, Row
from taskgraph.testing import MemoryTables
from tests.scenarios.stage import Requirements, Stage, Trap, TrappedQueues, TrappedTables, graph, memory_stage

MANY = 5_000


class Counted(TrappedTables):
    """Tables that count what is read, as Azure bills it: a row for each key of a get, a page for each query."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner, Trap())
        self.gets = self.pages = 0
        self.starts: list[str] = []

    async def get(self, partition: str, keys: Sequence[str]) -> list[Row | None]:
        self.gets += len(keys)
        return await super().get(partition, keys)

    async def query(self, partition: str, rows: Range, *, limit: int = 1000, continuation: str | None = None) -> Page:
        self.pages += 1
        self.starts.append(rows.start)
        return await super().query(partition, rows, limit=limit, continuation=continuation)

    @property
    def reads(self) -> int:
        """All reads since this was asked for last."""
        made, self.gets, self.pages = self.gets + self.pages, 0, 0
        return made


def counted(stage: Stage) -> tuple[Queries, Counted, Trap]:
    """Questions whose reads are counted."""
    tables, trap = Counted(stage.tables), Trap()
    return Queries(tables, TrappedQueues(stage.queues, trap), stage.clock, stage.names), tables, trap


def numbered(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{number:04}" for number in range(count)]


def hub(count: int) -> Requirements:
    """`a`, then so many, then `z`."""
    parts = numbered("p", count)
    return {"a": [], **{part: ["a"] for part in parts}, "z": parts}


def chain(count: int) -> Requirements:
    labels = numbered("t", count)
    return {label: labels[number - 1 : number] if number else [] for number, label in enumerate(labels)}


async def by_rows(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> GraphStatus:
    with monkeypatch.context() as patch:
        patch.setattr(limits, "COUNTED_TASKS_MAX", 10**9)
        return await stage.queries.status(stage.graph_id)


@pytest.fixture
async def wide() -> Stage:
    """A task, 5,000 that require it, and one that requires them all: the first has completed, some run."""
    stage = memory_stage()
    await stage.submit(graph(hub(MANY)))
    await stage.complete("a")
    return stage


# --- how far -----------------------------------------------------------------------------------------------------


async def walk(stage: Stage, look: Callable[[], Any]) -> None:
    """A small graph through all that may happen to its tasks; looked at after every step."""
    await stage.submit(graph({"a": [], "b": ["a"], "c": ["a"], "d": ["b"], "e": []}, reruns={"b": 1}))
    await look()
    await stage.complete("a")
    await look()
    held = await stage.claim("b")
    await stage.claim("c")
    await look()
    await stage.deliver(stage.failed(held))
    await look()
    await stage.fail("b")
    await look()
    await stage.fail("e", exception=True)
    await look()
    await stage.rerun("b")
    await look()
    await stage.rerun("e")
    await stage.work()
    await look()


async def test_aggregates_tell_what_the_rows_tell(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0

    async def look() -> None:
        nonlocal looks
        looks += 1
        rows = await by_rows(stage, monkeypatch)
        monkeypatch.setattr(limits, "COUNTED_TASKS_MAX", 0)
        uncounted = replace(rows, held_tasks=None, inactive_tasks=None, priorities=None)
        assert await stage.queries.status("graph") == uncounted
        assert rows.exact
        assert rows.unresolved == sum(rows.counts.get(each, 0) for each in ("unscheduled", "pending", "running"))

    await walk(stage, look)
    assert looks == 8


async def test_what_was_not_looked_at_is_not_told(local: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """With no page for what is under way, completed and the sums are still exact, and nothing else is claimed."""
    monkeypatch.setattr(limits, "COUNTED_TASKS_MAX", 0)
    monkeypatch.setattr(limits, "COUNTED_PAGES_MAX", 0)

    async def look() -> None:
        rows = await by_rows(local, monkeypatch)
        told = await local.queries.status("graph")
        assert told.counts.get("completed", 0) == rows.counts.get("completed", 0)
        assert (told.unresolved, told.failed_tasks) == (rows.unresolved, rows.failed_tasks)
        assert set(told.counts) <= {"completed"}
        assert told.exact is (rows.unresolved + rows.failed_tasks == 0)
        assert told.at_least == {}

    await walk(local, look)


class OnePage(MemoryTables):
    """A page holds few rows."""

    async def query(self, partition: str, rows: Range, *, limit: int = 1000, continuation: str | None = None) -> Page:
        return await super().query(partition, rows, limit=min(limit, 3), continuation=continuation)


async def test_a_part_that_was_looked_at_gives_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = memory_stage()
    stage.tables = OnePage()
    stage.handlers = stage.more_handlers()
    await stage.submit(graph({label: [] for label in numbered("t", 20)}))
    await stage.claims("t0001", "t0002")
    monkeypatch.setattr(limits, "COUNTED_TASKS_MAX", 0)
    monkeypatch.setattr(limits, "COUNTED_PAGES_MAX", 2)
    told = await Queries(stage.tables, stage.queues, stage.clock, stage.names).status("graph")
    assert not told.exact
    assert told.unresolved == 20
    assert told.counts == {}
    assert sum(told.at_least.values()) == 6


async def test_a_graph_that_is_still_written_is_never_exact(memory: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    await memory.submit(graph(chain(5)))
    row = await memory.graph_row()
    await memory.tables.commit("graph", [Merge(GRAPH, row.etag, {"state": "submitting"})])
    monkeypatch.setattr(limits, "COUNTED_TASKS_MAX", 0)
    told = await memory.queries.status("graph")
    assert (told.exact, told.counts, told.at_least, told.unresolved) == (False, {}, {"pending": 1}, 5)


async def test_a_journal_without_numbers_is_made_up_for_by_the_rows(
    memory: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Version 0.1 wrote no `completed`."""
    await memory.submit(graph(chain(6)))
    await memory.complete("t0000")
    await memory.complete("t0001")
    assert isinstance(memory.tables, MemoryTables)
    rows = memory.tables.partitions["graph"]
    for key, row in list(rows.items()):
        if key.startswith("event:"):
            rows[key] = Row(key, row.etag, {name: each for name, each in row.columns.items() if name != "completed"})
    monkeypatch.setattr(limits, "COUNTED_TASKS_MAX", 0)
    told = await memory.queries.status("graph")
    assert told.exact
    assert told.counts == {"completed": 2, "pending": 1, "unscheduled": 3}
    fresh = memory.more_handlers()  # a process that goes on with such a journal
    held = await memory.claim("t0002")
    await memory.deliver(memory.completed(held), handlers=fresh)
    assert (await memory.queries.status("graph")).counts["completed"] == 3


async def test_status_and_list_of_many_tasks_take_few_reads(wide: Stage) -> None:
    asked, tables, _ = counted(wide)
    told = await asked.status("graph")
    assert told.counts["completed"] == 1
    assert told.unresolved == MANY + 1
    assert told.exact  # here a page holds a thousand of those under way, whatever lies between
    assert tables.reads <= 4 + limits.COUNTED_PAGES_MAX
    await asked.graphs()
    assert tables.reads == 2
    assert [each.done for each in await asked.graphs(counted=True)] == [1]
    assert tables.reads == 3, "the end of the journal of a live graph, too"
    await wide.work()
    told = await asked.status("graph")
    assert told.counts == {"completed": MANY + 2}
    assert told.exact
    assert tables.reads <= 4
    await asked.status("graph")
    assert tables.reads == 2  # the graph row, and the end of the journal from where it was
    assert [each.done for each in await asked.graphs(counted=True)] == [MANY + 2]
    assert tables.reads == 2, "nothing more of one that has finished"


async def test_the_graphs_are_listed_in_order_whatever_answers_first(memory: Stage) -> None:
    for number in range(40):
        memory.graph_id = f"g{number:02}"
        memory.clock.advance(1.0)
        await memory.submit(graph({"a": []}))
    found = await memory.queries.graphs(limit=33)
    assert [each.graph_id for each in found] == [f"g{number:02}" for number in range(39, 6, -1)]
    assert len(await memory.queries.graphs(limit=100, wanted=GraphsWanted("running"))) == 40
    assert await memory.queries.graphs(wanted=GraphsWanted("finished")) == []


async def test_a_list_of_a_state_that_few_have_goes_on_where_it_has_ended(memory: Stage) -> None:
    old = 2_500
    for number in range(old):  # entries of the list: their graphs are gone
        made = memory.clock.now() + timedelta(milliseconds=10 * number)
        row = Insert(listing_key(f"old-{number:04}", made), {"graph": f"old-{number:04}", "created": made})
        await memory.tables.commit(ALL, [row])
    asked, tables, _ = counted(memory)
    wanted = GraphsWanted("cancelled")
    reads = [await reads_of_list(asked, tables, wanted)]
    while (behind := reads[-1][1]) and len(reads) < 9:
        reads.append(await reads_of_list(asked, tables, replace(wanted, until=listed_by(behind))))
    looked = [graphs for graphs, _ in reads]
    assert looked[:2] == [1_000, 1_000]
    assert old <= sum(looked) <= old + len(looked), "each once, but where one list ends and the next begins"


async def reads_of_list(asked: Queries, tables: Counted, wanted: GraphsWanted) -> tuple[int, str]:
    """How many graphs a list reads that may read one page of names, and behind which it ended."""
    before = tables.gets
    found, behind = await asked.graphs_after("", limit=50, schedule="", wanted=wanted, counted=False, pages_max=1)
    assert found == []
    return tables.gets - before, behind


async def test_the_doctor_goes_on_counting(memory: Stage) -> None:
    """A repair states facts of its own; what has completed by then stands on its row too."""
    await memory.submit(graph(chain(3)))
    await memory.complete("t0000")
    row = await memory.row("t0002")
    await memory.tables.commit("graph", [Merge(row.key, row.etag, {"requiresLeft": "[]"})])
    found = await repair_graph(memory.handlers, memory.poison, "graph")
    assert found.repaired
    last = [row for row in await memory.queries.partition("graph") if row.key.startswith("event:")][-1]
    assert json.loads(str(last.columns["events"]))[0]["event"] == "graph-repaired"
    assert last.columns["completed"] == 1


# --- tasks -------------------------------------------------------------------------------------------------------


async def test_a_task_with_many_edges_is_shown_in_few_reads(wide: Stage) -> None:
    asked, tables, _ = counted(wide)
    found = await asked.task("graph", "z", edges=20)
    assert (found.requires_count, found.requires_left_count, found.dependents_count) == (MANY, MANY, 0)
    assert len(found.requires) == len(found.requires_left) == 20
    assert list(found.requires) == sorted(found.requires)
    assert tables.reads <= 60  # 20 labels each way, and the joins by their range
    found = await asked.task("graph", "a", edges=20)
    assert (found.requires_count, found.dependents_count, len(found.dependents)) == (0, MANY, 20)
    assert tables.reads <= 40
    found = await asked.task("graph", "z")
    assert list(found.requires) == list(found.requires_left) == numbered("p", MANY)
    assert tables.reads <= 20  # labels by pages
    assert (await asked.task_status("graph", "z")).state == TaskState.UNSCHEDULED
    assert tables.reads <= 3


async def test_tasks_are_listed_up_to_the_limit(wide: Stage) -> None:
    """What is under way comes first, then what waits, then what has completed."""
    await wide.claims("p0001", "p0002", "p0003")
    held = await wide.claim("p0004")
    await wide.deliver(wide.failed(held))
    asked, tables, _ = counted(wide)
    found = await asked.listing("graph", limit=10)
    assert len(found.tasks) == 10
    assert found.total == MANY + 2
    assert found.status is not None
    assert {each.state for each in found.tasks} <= {"failed", "pending", "running"}
    assert tables.reads <= 20
    failed = await asked.listing("graph", state="failed", limit=10)
    assert ([each.label for each in failed.tasks], failed.total) == (["p0004"], 1)
    cut = await asked.listing("graph", state="pending", limit=7)
    assert (len(cut.tasks), cut.total) == (7, None)
    matched = await asked.listing("graph", match="P010", limit=100)
    assert sorted(each.label for each in matched.tasks) == [f"p010{number}" for number in range(10)]
    assert matched.total == 10
    everything = await asked.listing("graph", limit=10**6)
    assert len({each.task_id for each in everything.tasks}) == everything.total == MANY + 2
    assert len(await asked.tasks("graph", limit=10)) == 10


async def test_a_small_graph_is_listed_whole(memory: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    await memory.submit(graph(hub(8)))
    found = await memory.queries.listing("graph", limit=2)
    assert (len(found.tasks), found.total, found.status) == (10, 10, None)
    whole = Counter(each.label for each in found.tasks)
    monkeypatch.setattr(limits, "COUNTED_TASKS_MAX", 0)
    assert Counter(each.label for each in (await memory.queries.listing("graph", limit=100)).tasks) == whole


async def test_a_label_that_there_is_not_reads_few_pages(wide: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "NEAR_PAGES_MAX", 2)
    asked, tables, _ = counted(wide)
    with pytest.raises(NotFound):
        await asked.task("graph", "p9999x")
    assert tables.pages == 2


async def test_something_under_way_is_seen_in_the_first_page(wide: Stage) -> None:
    asked, tables, _ = counted(wide)
    assert await asked.busy("graph")
    assert tables.reads <= 5
    await wide.work()
    assert not await asked.busy("graph")


# --- why ---------------------------------------------------------------------------------------------------------


async def test_a_long_chain_is_explained_to_its_beginning(memory: Stage) -> None:
    await memory.submit(graph(chain(MANY)))
    for label in ("t0000", "t0001"):
        await memory.complete(label)
    asked, tables, _ = counted(memory)
    found = await asked.explain("graph", f"t{MANY - 1:04}")
    *waiting, cause = found.reasons
    assert [each.depth for each in waiting] == list(range(why.WHY_WAITING_MAX))
    assert not any(each.cause for each in waiting)
    assert (cause.label, cause.cause, cause.depth) == ("t0002", True, MANY - 3)
    assert (found.causes, found.waiting) == (1, MANY - 3)
    assert found.omitted == MANY - 3 - why.WHY_WAITING_MAX
    assert tables.reads <= why.WHY_READS_MAX + MANY // 1_000 + 5
    assert await asked.why("graph", f"t{MANY - 1:04}") == found.reasons


async def test_why_a_wide_task_waits(wide: Stage) -> None:
    held = await wide.claims("p0007", "p0008")
    await wide.deliver(wide.failed(held[0]))
    asked, tables, trap = counted(wide)
    found = await asked.explain("graph", "z")
    assert (found.causes, found.waiting) == (MANY, 1)
    assert len(found.reasons) == 1 + why.WHY_CAUSES_MAX
    assert found.reasons[0].text == "waits for 5000 tasks"
    assert [each.label for each in found.reasons if each.state == "failed"] == ["p0007"]
    assert tables.reads <= 25
    assert trap.calls.count("count") == 1  # one queue, asked once


@pytest.mark.parametrize("alone", [0, 1, 3, 1000])
async def test_reading_one_by_one_or_by_pages_says_the_same(
    local: Stage, monkeypatch: pytest.MonkeyPatch, alone: int
) -> None:
    parts = numbered("p", 120)
    requires: Mapping[str, Sequence[str]] = {
        "a": [],
        "b": [],
        **{part: ["a"] for part in parts[:60]},
        **{part: ["b"] for part in parts[60:]},
        "z": parts,
        "y": ["z", "b"],
    }
    await local.submit(graph(requires))
    await local.complete("a")
    await local.complete("p0003")
    monkeypatch.setattr(why, "WHY_READS_MAX", alone)
    monkeypatch.setattr(limits, "READ_PAGE_WORTH", 10**6)
    found = await local.queries.explain("graph", "y")
    assert [(each.label, each.depth) for each in found.reasons[:3]] == [("y", 0), ("z", 1), ("b", 1)]
    assert Counter((each.state, each.depth, each.cause) for each in found.reasons) == {
        ("unscheduled", 0, False): 1,
        ("unscheduled", 1, False): 1,
        ("pending", 1, True): 1,
        ("pending", 2, True): 59,
        ("unscheduled", 2, False): 60,
    }
    assert found.reasons[1].text == "waits for 119 tasks"
    assert found.omitted == 0


# --- the journal -------------------------------------------------------------------------------------------------


class Silent:
    """A display that shows nothing."""

    def events(self, events: Any) -> None:
        pass

    def draw(self, tally: Any, here: Any) -> None:
        pass

    def close(self) -> None:
        pass


async def test_a_follower_reads_only_what_is_new(memory: Stage) -> None:
    await memory.submit(graph(chain(6)))
    asked, tables, _ = counted(memory)

    class Installation:
        queries = asked
        clock = memory.clock

    follower = Follower(Installation(), "graph", Silent())  # type: ignore[arg-type]
    await follower.poll()
    await memory.complete("t0000")
    await follower.poll()
    await follower.poll()
    assert tables.starts == [event_key(1), event_key(2), event_key(3)]
    assert tables.gets == 3  # the graph row
    assert (follower.tally.completed, follower.tally.tasks, follower.tally.sequence) == (1, 6, 2)


async def test_events_of_one_row_are_not_parted(memory: Stage) -> None:
    await memory.submit(graph({label: [] for label in numbered("t", 12)}))
    await memory.work()
    every = await memory.queries.events("graph")
    some = await memory.queries.events("graph", limit=2)
    assert some == [each for each in every if each.sequence <= some[-1].sequence]
    assert len(some) >= 2
    rest = await memory.queries.events("graph", since=some[-1].sequence)
    assert [*some, *rest] == every
    assert [each async for facts in memory.queries.journal("graph", page_rows=1) for each in facts] == every


async def test_rows_by_the_beginning_of_their_keys(memory: Stage) -> None:
    await memory.submit(graph(chain(3)))
    asked, tables, _ = counted(memory)
    found = [row.key async for row in asked.rows("graph", "event:")]
    assert found == [event_key(1)]
    assert tables.starts == ["event:"]
    assert [row.key async for row in asked.rows("graph", "event:\ud800")] == []
    assert [row.key async for row in asked.rows("graph", "\x00")] == []
    assert [row.key async for row in asked.rows("graph")] == [row.key for row in await asked.partition("graph")]
