"""Graphs that go to another store in mid-run: alive on one of the two, and whole on one, whatever dies on the way."""

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from taskgraph.documents.read import document_from_object
from taskgraph.engine.commit import Records
from taskgraph.engine.control import hold_back
from taskgraph.engine.doctor import examine_graph
from taskgraph.engine.handlers import Handlers
from taskgraph.engine.sweep import sweep
from taskgraph.engine.transfer import Moved, Side, _put, abandon, give_up_runs, go_on, hold, move, stay, under_way
from taskgraph.model import limits
from taskgraph.model.errors import Conflict, Refused, StorageUnavailable, Unclear
from taskgraph.model.ids import GRAPH
from taskgraph.model.messages import Cancel, HoldBack, Rerun
from taskgraph.model.names import ALL, LIVE
from taskgraph.model.states import DEPARTING, GraphState
from taskgraph.protocol.context import Outcome
from taskgraph.protocol.pause import Hold
from taskgraph.protocol.rows import is_sealed
from taskgraph.protocol.transfer import Confirm, Depart
from taskgraph.storage.tables import Change, Insert, Page, Range, Row
from taskgraph.testing import HurriedClock, MemoryQueues, MemoryTables
from tests.scenarios.stage import CrashError, Held, Stage, Trap, extension, graph, memory_stage
from tests.scenarios.test_retention import Shelf, rows

pytestmark = pytest.mark.usefixtures("settled")

SHAPE = {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"], "e": []}


class There(Shelf):
    """Logs whose places are elsewhere."""

    def url(self, graph_id: str, task_id: str, run: int, name: str = "run.log") -> str:
        return f"there:{graph_id}/{task_id}/{run}/{name}"


def far_stage() -> Stage:
    """Another store, whose ids are others."""
    clock = HurriedClock(seed="far")
    return Stage(MemoryTables(), MemoryQueues(clock), clock)


def side(stage: Stage, shelf: Shelf, handlers: Handlers | None = None) -> Side:
    return Side(handlers or stage.handlers, shelf, f"store {id(stage)}")


async def bring(source: Side, target: Side, graph_id: str) -> Moved:
    """What the command does, with nothing under way."""
    await hold(source, graph_id, target.name)
    return await move(source, target, graph_id)


def know(stage: Stage, other: Stage) -> None:
    other._labels.update(stage._labels)


async def is_clean(stage: Stage) -> bool:
    found = await examine_graph(stage.handlers, stage.poison, stage.graph_id)
    assert found.findings == (), found.findings
    return found.sound


def is_gapless(journal: list[int]) -> bool:
    return sorted(set(journal)) == list(range(1, max(journal) + 1))


async def sequences(stage: Stage) -> list[int]:
    return [event.sequence for event in await stage.events()]


# --- there and back ----------------------------------------------------------------------------------------------


async def test_a_graph_goes_in_mid_run_and_comes_back(stage: Stage) -> None:
    far, here, there = far_stage(), Shelf(), There()
    await stage.submit(graph(SHAPE, metadata={"name": "n"}, tags={"k": "v"}, reruns={"b": 1}))
    know(stage, far)
    held = await stage.claim("a")
    url = here.url(stage.graph_id, held.task_id, 0)
    await stage.deliver(stage.completed(held, logsUrl=url))
    await here.append(stage.graph_id, held.task_id, 0, b"said")
    before = (await stage.row("a")).columns
    done = await bring(side(stage, here), side(far, there), stage.graph_id)
    assert (done.state, done.files, done.again) == ("running", 1, False)
    assert await far.state() == "running"
    assert there.held == {(stage.graph_id, held.task_id, 0, "run.log"): b"said"}
    assert here.held == {}
    after = (await far.row("a")).columns
    assert json.loads(str(after["resolution"]))["logsUrl"] == there.url(stage.graph_id, held.task_id, 0)
    assert {**after, "resolution": before["resolution"], "operation": ""} == {**before, "operation": ""}
    assert [row.key for row in await rows(stage)] == [GRAPH]
    tombstone = await stage.graph_row()
    assert (tombstone.columns["state"], tombstone.columns["movesTo"]) == ("moved", side(far, there).name)
    assert await rows(stage, LIVE) == []
    assert [row.key for row in await rows(far, LIVE)] == [far.graph_id]
    assert [each.state for each in await stage.queries.graphs()] == ["moved"]
    assert await is_clean(far)
    assert await is_clean(stage)
    await far.complete("b")
    assert (await bring(side(far, there), side(stage, here), far.graph_id)).state == "running"
    assert await stage.work() == "finished"
    assert stage.executed + far.executed == Counter({(label, 0): 1 for label in SHAPE})
    assert is_gapless(await sequences(stage))
    told = await stage.told()
    way = ["graph-paused", "graph-moving", "graph-moved", "graph-resumed"]
    assert told == ["graph-running", *way, *way, "graph-finished"]
    assert await is_clean(stage)
    assert here.held.keys() == {(stage.graph_id, held.task_id, 0, "run.log")}


async def test_the_same_call_again_says_where_it_is(memory: Stage) -> None:
    far, shelf, there = far_stage(), Shelf(), There()
    await memory.submit(graph(SHAPE))
    await bring(side(memory, shelf), side(far, there), memory.graph_id)
    again = await bring(side(memory, shelf), side(far, there), memory.graph_id)
    assert again == Moved(memory.graph_id, "running", again=True)
    other = far_stage()
    with pytest.raises(Refused, match="has moved to store"):
        await bring(side(memory, shelf), side(other, Shelf()), memory.graph_id)


@pytest.mark.parametrize("paused", [False, True])
async def test_what_was_paused_stays_so_and_what_was_not_goes_on(memory: Stage, *, paused: bool) -> None:
    far = far_stage()
    await memory.submit(graph(SHAPE))
    know(memory, far)
    if paused:
        await hold_back(memory.handlers, HoldBack(memory.graph_id, True, "", "", (), "", ""))
    await bring(side(memory, Shelf()), side(far, There()), memory.graph_id)
    assert json.loads(str((await far.graph_row()).columns["held"])) == (["paused"] if paused else [])
    assert await far.offered() == ([] if paused else [("a", 0), ("e", 0)])
    if paused:
        await hold_back(far.handlers, HoldBack(far.graph_id, False, "", "", (), "", ""))
    assert await far.work() == "running" if not paused else "finished"


async def test_a_graph_with_wide_edges_long_rows_groups_limits_and_an_open_extension(memory: Stage) -> None:
    far = far_stage()
    tasks: dict[str, Any] = {f"p{n:03}": {"task": {"payload": {"text": "é" * 2_000}}} for n in range(120)}
    tasks["all"] = {"requires": sorted(tasks), "task": {}}
    group = {"tasks": [f"p{n:03}" for n in range(60)], "maxInFlight": 7}
    document = document_from_object({"tasks": tasks, "groups": {"g": group}})
    await memory.submit(document)
    know(memory, far)
    await hold(side(memory, Shelf()), memory.graph_id, "x")
    assert await memory.extend(extension({"later": ["all"]})) == "staged", "it waits until the graph goes on"
    know(memory, far)
    await bring(side(memory, Shelf()), side(far, There()), memory.graph_id)
    assert await far.work() == "finished"
    assert set(far.executed.values()) == {1}
    assert far.executed["later", 0] == 1
    assert await is_clean(far)


async def test_a_graph_that_has_ended_or_is_blocked_goes_too(memory: Stage) -> None:
    far = far_stage()
    await memory.submit(graph({"bad": [], "after": ["bad"]}))
    know(memory, far)
    await memory.fail("bad")
    assert (await bring(side(memory, Shelf()), side(far, There()), memory.graph_id)).state == "blocked"
    await far.deliver(Rerun(far.graph_id, ((far.task_id("bad"), 0),)))
    assert await far.work() == "finished"
    assert (await bring(side(far, There()), side(memory, Shelf()), far.graph_id)).state == "finished"
    assert await rows(memory, LIVE) == []
    assert await is_clean(memory)
    assert (await memory.rerun("bad", 1)).outcome is Outcome.APPLIED


# --- what runs, and what is on its way -----------------------------------------------------------------------------


async def test_what_runs_is_waited_for_or_given_up(memory: Stage) -> None:
    far, here = far_stage(), side(memory, Shelf())
    await memory.submit(graph(SHAPE))
    know(memory, far)
    a, e = await memory.claim("a"), await memory.claim("e")
    assert len(await memory.offered()) == 2
    await hold(here, memory.graph_id, "there")
    running, settling = await under_way(here, memory.graph_id)
    assert (len(running), settling) == (2, False)
    await memory.deliver(memory.completed(a))
    assert await memory.offered() == [], "nothing begins any more"
    found = await examine_graph(memory.handlers, memory.poison, memory.graph_id)
    assert [f"taskgraph transfer {memory.graph_id} --stay"] == [
        each.remedy for each in found.causes if "held" in each.text
    ]
    assert len((await under_way(here, memory.graph_id))[0]) == 1
    assert await give_up_runs(here, memory.graph_id, "it goes elsewhere") == 1
    assert await under_way(here, memory.graph_id) == ([], False)
    await move(here, side(far, There()), memory.graph_id)
    (late,) = await memory.deliver(memory.completed(e))
    assert late.answers[0].outcome is Outcome.STALE
    assert (await far.row("e")).columns["retriesLeft"] == limits.RETRIES_DEFAULT
    assert await far.work() == "finished"


async def test_a_run_whose_worker_is_gone_is_given_up_by_its_lease(memory: Stage) -> None:
    here = side(memory, Shelf())
    await memory.submit(graph(SHAPE))
    await memory.claim("a")
    await hold(here, memory.graph_id, "there")
    await go_on(here, memory.graph_id)
    assert len((await under_way(here, memory.graph_id))[0]) == 1
    memory.clock.advance(limits.LEASE_SECONDS + 1)
    await go_on(here, memory.graph_id)
    assert await under_way(here, memory.graph_id) == ([], False)


class Meanwhile(MemoryTables):
    """Before the first look of a call at what runs, or after it, something else happens. To be made of other tables."""

    def __init__(self, tables: MemoryTables, act: Callable[[], Awaitable[object]], *, after: bool) -> None:
        super().__init__()
        self.partitions = tables.partitions
        self._inner, self._act, self._after = tables, act, after
        self._looked = self._acted = False

    async def _turn(self, looks: bool) -> None:
        self._looked = self._looked or looks
        if self._looked and looks != self._after and not self._acted:
            self._acted = True
            await self._act()

    async def get(self, partition: str, keys: Sequence[str]) -> list[Row | None]:
        await self._turn(looks=False)
        return await self._inner.get(partition, keys)

    async def query(self, partition: str, rows: Range, **more: Any) -> Page:
        await self._turn(looks=rows.where == {"state": ("running",)})
        return await self._inner.query(partition, rows, **more)

    async def commit(self, partition: str, changes: Sequence[Change]) -> list[str | None]:
        return await self._inner.commit(partition, changes)


@pytest.mark.parametrize("settled_before", [True, False])
@pytest.mark.parametrize("after", [True, False])
async def test_a_graph_does_not_go_while_something_runs_that_has_begun_since_it_was_held_back(
    memory: Stage, *, after: bool, settled_before: bool
) -> None:
    """Others have let it go, and held it back again: before the look at what runs, or between that and the fence."""
    far = far_stage()
    await memory.submit(graph(SHAPE))
    know(memory, far)
    here, there = side(memory, Shelf()), side(far, There())
    claimed: list[Held] = []

    async def begin() -> None:
        if settled_before:
            await stay(here, memory.graph_id, there)
        claimed.append(await memory.claim("a"))
        await hold(here, memory.graph_id, there.name)

    if settled_before:
        await hold(here, memory.graph_id, there.name)
    else:
        await memory.transition(Hold(DEPARTING, True))  # and no task knows of it yet
    tables = Meanwhile(memory.tables, begin, after=after)  # type: ignore[arg-type]
    slow = side(memory, Shelf(), Handlers(Records(tables, memory.clock), memory.queues, memory.clock, memory.names))
    slow = replace(slow, name=here.name)
    with contextlib.suppress(Conflict):
        await move(slow, there, memory.graph_id)
    if not claimed:  # it has not looked, as what is held back was not settled
        await begin()
    assert await memory.state() == "running"
    assert (await far.tables.get(far.graph_id, [GRAPH])) == [None]
    await memory.deliver(memory.completed(*claimed))
    assert await memory.task_state("a") == "completed"
    assert (await move(here, there, memory.graph_id)).state == "running"
    assert await far.work() == "finished"
    assert memory.executed + far.executed == Counter({(label, 0): 1 for label in SHAPE})


async def sealed_stage(document: Any = None) -> tuple[Stage, Stage, Side, Side]:
    """A graph whose rows are sealed, and in the other store, and which is not yet `moved`."""
    memory, far = memory_stage(), far_stage()
    await memory.submit(document or graph(SHAPE))
    know(memory, far)
    await memory.complete("a")
    here, there = side(memory, Shelf()), side(far, There())
    await hold(here, memory.graph_id, there.name)
    trap = Trap()
    confirm = Handlers.transition

    async def refuse(self: Handlers, graph_id: str, items: Any, **more: Any) -> Any:
        if any(isinstance(item, Confirm) for item in items):
            raise CrashError(str(trap))
        return await confirm(self, graph_id, items, **more)

    Handlers.transition = refuse  # type: ignore[assignment, method-assign]
    try:
        with pytest.raises(CrashError):
            await move(here, there, memory.graph_id)
    finally:
        Handlers.transition = confirm  # type: ignore[method-assign]
    assert (await memory.state(), await far.state()) == ("moving", "restoring")
    return memory, far, here, there


@pytest.mark.parametrize("which", [0, 1])
async def test_no_message_changes_a_row_while_the_graph_is_on_its_way(which: int) -> None:
    both = await sealed_stage()
    stage = both[which]
    assert isinstance(stage, Stage)
    await stage.offered()
    before = await rows(stage)
    assert all(is_sealed(row.columns) for row in before if row.key.startswith("task:"))
    for answer in [await stage.try_claim("b"), await stage.try_claim("e"), await stage.rerun("a", 0)]:
        assert answer.outcome is Outcome.STALE, answer
    await stage.deliver(Cancel(stage.graph_id, ((stage.task_id("b"), 0),), "no"))
    await stage.handlers.handle(stage.graph_id, [Cancel(stage.graph_id)])
    await stage.handlers.handle(stage.graph_id, [HoldBack(stage.graph_id, False, "")])
    stage.clock.advance(2 * limits.ABANDONED_SECONDS)
    await sweep(stage.handlers, logs=Shelf())
    assert await rows(stage) == before
    assert await stage.offered() == []


async def test_a_commit_that_was_decided_before_the_fence_fails_after_it(memory: Stage) -> None:
    """A handler reads its rows, and writes when the graph has gone."""
    far = far_stage()
    await memory.submit(graph(SHAPE))
    know(memory, far)
    await memory.complete("a")
    done: list[Moved] = []

    async def meanwhile() -> None:
        done.append(await bring(side(memory, Shelf()), side(far, There()), memory.graph_id))

    slow = memory.more_handlers(between=meanwhile)
    (answer,) = (await slow.handle(memory.graph_id, [Rerun(memory.graph_id, ((memory.task_id("a"), 0),))]))[0].answers
    assert done
    assert answer.outcome is not Outcome.APPLIED
    assert await far.work() == "finished"
    assert far.executed["a", 0] == 0


# --- what a person decides -----------------------------------------------------------------------------------------


async def test_a_graph_that_is_to_stay_goes_on_where_it_was() -> None:
    memory, far, here, there = await sealed_stage()
    late = str((await memory.graph_row()).columns["transfer"])
    assert await stay(here, memory.graph_id, there) == "running"
    assert await far.state() == "deleted"
    (answer,) = await memory.transition(Confirm(late))
    assert answer.outcome is Outcome.REFUSED
    assert not any(is_sealed(row.columns) for row in await rows(memory))
    assert await stay(here, memory.graph_id, there) == "running"
    await bring(here, there, memory.graph_id)
    assert await far.work() == "finished"
    assert await is_clean(far)


async def test_what_a_void_departure_has_left_gives_way_to_the_next() -> None:
    memory, far, here, there = await sealed_stage()
    await stay(here, memory.graph_id)
    assert await far.state() == "restoring"
    await memory.complete("b")
    await bring(here, there, memory.graph_id)
    assert await far.task_state("b") == "completed"
    assert await far.work() == "finished"
    with pytest.raises(Refused, match="has moved to"):
        await stay(here, memory.graph_id, there)


async def test_a_graph_whose_old_store_is_lost_lives_where_it_is_whole() -> None:
    memory, far, here, there = await sealed_stage()
    assert (await abandon(there, far.graph_id)).state == "running"
    assert (await far.events())[-1].fields.get("abandoned") is True or "graph-moved" in await far.told()
    await far.complete("b")
    assert (await move(here, there, memory.graph_id)).state == "running"
    assert await far.task_state("b") == "completed", "what it has done there stays"
    assert await memory.state() == "moved"
    assert await far.work() == "finished"
    with pytest.raises(Refused, match="not on its way here"):
        await abandon(there, far.graph_id)


async def test_half_a_graph_is_not_let_live(memory: Stage) -> None:
    far, trap = far_stage(), Trap(at=3, kind="after", only="commit")
    await memory.submit(graph(SHAPE))
    here, there = side(memory, Shelf()), side(far, There(), far.more_handlers(trap))
    await hold(here, memory.graph_id, there.name)
    with pytest.raises(CrashError):
        await move(here, there, memory.graph_id)
    assert await far.state() == "restoring"
    with pytest.raises(Refused, match="not all of its rows"):
        await abandon(side(far, There()), far.graph_id)


async def test_rows_come_in_under_the_etag_of_the_graph_row() -> None:
    """A call that another has overtaken brings in nothing more: the graph may live there by now, and lack a row."""
    _, far, here, there = await sealed_stage()
    tables = there.handlers.records.tables
    (before,) = await tables.get(far.graph_id, [GRAPH])
    assert before is not None
    late = [Insert("limit:late", {"schema": 1})]
    await move(here, there, far.graph_id)
    with pytest.raises(Conflict):
        await _put(there, far.graph_id, before, late)
    assert await tables.get(far.graph_id, ["limit:late"]) == [None]


# --- what is refused -----------------------------------------------------------------------------------------------


async def test_a_name_that_is_taken_is_refused_before_anything_is_written(memory: Stage) -> None:
    far = far_stage()
    await memory.submit(graph(SHAPE))
    await far.submit(graph({"other": []}))
    before = await rows(memory)
    with pytest.raises(Refused, match="has a graph graph already, which is running"):
        await move(side(memory, Shelf()), side(far, There()), memory.graph_id)
    assert await rows(memory) == before
    with pytest.raises(Refused, match="has a graph graph already"):
        await move(side(memory, Shelf()), side(memory, Shelf()), memory.graph_id)


async def test_a_name_that_is_taken_meanwhile_is_refused_and_the_graph_stays(memory: Stage) -> None:
    far = far_stage()
    await memory.submit(graph(SHAPE))
    here, there = side(memory, Shelf()), side(far, There())
    await hold(here, memory.graph_id, there.name)
    await memory.transition(Depart("token", there.name, holds=1))
    await far.submit(graph({"other": []}))
    with pytest.raises(Refused, match="has got a graph graph meanwhile"):
        await move(here, there, memory.graph_id)
    assert await stay(here, memory.graph_id, there) == "running"
    assert await far.state() == "running"
    assert await memory.work() == "finished"


# --- death at every call -------------------------------------------------------------------------------------------


def lives(here: str, there: str) -> int:
    """On how many sides something may happen."""
    still = {"moving", "moved", "restoring", "deleted", "deleting", "missing"}
    return (here not in still) + (there not in still)


async def state_of(stage: Stage) -> str:
    (row,) = await stage.tables.get(stage.graph_id, [GRAPH])
    return str(row.columns["state"]) if row is not None else "missing"


async def _begun() -> tuple[Stage, Stage, Shelf, There]:
    memory, far, shelf, there = memory_stage(), far_stage(), Shelf(), There()
    await memory.submit(graph(SHAPE))
    know(memory, far)
    await memory.complete("a")
    await shelf.append(memory.graph_id, memory.task_id("a"), 0, b"said and said")
    return memory, far, shelf, there


PLACES = [
    pytest.param(where, kind, marks=[] if (where, kind) == ("both", "after") else pytest.mark.campaign)
    for where in ("here", "there", "both")
    for kind in ("before", "after", "unclear", "conflict", "unavailable")
]


@pytest.mark.parametrize(("where", "kind"), PLACES)
async def test_a_transfer_that_dies_at_any_call_is_gone_on_with(where: str, kind: str) -> None:
    memory, far, shelf, there = await _begun()
    trap = Trap()
    mine = memory.more_handlers(trap if where != "there" else None)
    theirs = far.more_handlers(trap if where != "here" else None)
    await bring(side(memory, shelf, mine), side(far, there, theirs), memory.graph_id)
    calls = len(trap.calls)
    assert calls > 15
    seen: Counter[tuple[str, str]] = Counter()
    for at in range(1, calls + 1):
        memory, far, shelf, there = await _begun()
        trap = Trap(at, kind)
        mine = memory.more_handlers(trap if where != "there" else None)
        theirs = far.more_handlers(trap if where != "here" else None)
        with contextlib.suppress(CrashError, StorageUnavailable, Conflict, Unclear):
            await bring(side(memory, shelf, mine), side(far, there, theirs), memory.graph_id)
        states = await state_of(memory), await state_of(far)
        seen[states] += 1
        assert lives(*states) <= 1, (at, trap.calls[-1], states)
        if states[0] == "moving" or (states[0] == "moved" and (await rows(memory))[1:]):
            assert [row.key for row in await rows(memory, LIVE)] == [memory.graph_id], "the sweep can find it"
        await sweep(memory.handlers, logs=shelf)
        await sweep(far.handlers, logs=there)
        await bring(side(memory, shelf), side(far, there), memory.graph_id)
        assert (await memory.state(), await far.state()) == ("moved", "running"), at
        assert [row.key for row in await rows(memory)] == [GRAPH]
        assert there.held == {(far.graph_id, far.task_id("a"), 0, "run.log"): b"said and said"}
        assert shelf.held == {}
        far.clock.advance(limits.REDISPATCH_SECONDS)
        await far.sweep()
        assert await far.work() == "finished", at
        assert memory.executed + far.executed == Counter({(label, 0): 1 for label in SHAPE})
        assert is_gapless(await sequences(far))
        assert await is_clean(far)
        assert await is_clean(memory)
        assert await rows(memory, LIVE) == [] == await rows(far, LIVE)
        assert len(await rows(far, ALL)) == 1
    if where == "both" and kind in ("before", "after"):
        assert {("moving", "restoring"), ("moved", "restoring"), ("moved", "running")} <= seen.keys()


@pytest.mark.campaign
@pytest.mark.parametrize("kind", ["before", "after"])
async def test_the_same_into_and_out_of_every_store(stage: Stage, kind: str) -> None:
    """There and back, killed once on each way, with one graph for each storage call."""
    at = 0
    while True:
        at += 1
        memory, shelf, there = memory_stage(), Shelf(), There()
        other = Stage(stage.tables, stage.queues, stage.clock, prefix=stage.names.prefix, kind=stage.kind)
        memory.graph_id = other.graph_id = f"graph-{at}"
        await memory.submit(graph(SHAPE))
        know(memory, other)
        await memory.complete("a")
        traps = Trap(at, kind), Trap(at, kind)
        for source, target, trap in ((memory, other, traps[0]), (other, memory, traps[1])):
            logs = (shelf, there) if source is memory else (there, shelf)
            killed = (
                side(source, logs[0], source.more_handlers(trap)),
                side(target, logs[1], target.more_handlers(trap)),
            )
            with contextlib.suppress(CrashError):
                await bring(*killed, source.graph_id)
            assert lives(await state_of(source), await state_of(target)) <= 1
            again = side(source, logs[0]), side(target, logs[1])
            assert (await bring(*again, source.graph_id)).state == "running"
            await target.complete("b" if target is other else "c")
        memory.clock.advance(limits.REDISPATCH_SECONDS)
        await memory.sweep()
        assert await memory.work() == "finished", at
        assert memory.executed + other.executed == Counter({(label, 0): 1 for label in SHAPE})
        assert is_gapless(await sequences(memory))
        assert await is_clean(memory)
        if at > max(len(trap.calls) for trap in traps):
            return


@pytest.mark.campaign
@pytest.mark.parametrize("kind", ["before", "after", "unclear", "conflict"])
async def test_a_stay_that_dies_at_any_call_is_gone_on_with(kind: str) -> None:
    memory, far, here, there = await sealed_stage()
    trap = Trap()
    stopped = (
        Side(memory.more_handlers(trap), here.logs, here.name),
        Side(far.more_handlers(trap), there.logs, there.name),
    )
    await stay(stopped[0], memory.graph_id, stopped[1])
    for at in range(1, len(trap.calls) + 1):
        memory, far, here, there = await sealed_stage()
        one = Trap(at, kind)
        with contextlib.suppress(CrashError, Conflict, Unclear):
            await stay(
                Side(memory.more_handlers(one), here.logs, here.name),
                memory.graph_id,
                Side(far.more_handlers(one), there.logs, there.name),
            )
        assert lives(await state_of(memory), await state_of(far)) <= 1
        assert await stay(here, memory.graph_id, there) == "running"
        assert await far.state() == "deleted"
        memory.clock.advance(limits.REDISPATCH_SECONDS)
        await memory.sweep()
        assert await memory.work() == "finished", at
        assert set(memory.executed.values()) == {1}


async def test_two_calls_at_once_bring_it_there_once(memory: Stage) -> None:
    far, shelf, there = far_stage(), Shelf(), There()
    await memory.submit(graph({f"t{n}": [] for n in range(250)}))
    know(memory, far)
    calls = [
        bring(side(memory, shelf, memory.more_handlers()), side(far, there, far.more_handlers()), memory.graph_id)
        for _ in range(3)
    ]
    assert {each.state for each in await asyncio.gather(*calls)} == {"running"}
    assert await far.work() == "finished"
    assert set(far.executed.values()) == {1}
    assert is_gapless(await sequences(far))
    assert await memory.state() == GraphState.MOVED
