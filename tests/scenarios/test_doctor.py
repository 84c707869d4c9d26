"""Rows that are damaged by hand: each damage is found and named, then mended so that the graph finishes, or refused."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta

import pytest

from taskgraph.engine.commit import Records
from taskgraph.engine.doctor import Examined, examine_graph, live_graphs, repair_graph
from taskgraph.engine.handlers import Handlers
from taskgraph.model import limits
from taskgraph.model.columns import Value
from taskgraph.model.errors import NotFound
from taskgraph.model.ids import GRAPH, event_key, ids_text, row_key
from taskgraph.model.messages import Rerun, to_text
from taskgraph.model.names import ALL, LIVE
from taskgraph.protocol.invariants.examine import examine
from taskgraph.protocol.invariants.findings import Severity
from taskgraph.storage.tables import Change, Delete, Insert, Merge, Page, Range, Row, Tables, query_all
from tests.scenarios.stage import PAST_LEASE_SECONDS, CrashError, Stage, Trap, extension, graph

DIAMOND: Mapping[str, list[str]] = {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]}
WIDE: Mapping[str, list[str]] = {
    "a": [],
    **{f"m{number:03}": ["a"] for number in range(120)},
    "z": [f"m{number:03}" for number in range(120)],
}

Damage = Callable[[Stage], Awaitable[None]]


async def look(stage: Stage) -> Examined:
    return await examine_graph(stage.handlers, stage.poison, stage.graph_id)


async def repair(stage: Stage, handlers: Handlers | None = None) -> Examined:
    return await repair_graph(handlers or stage.handlers, stage.poison, stage.graph_id)


def codes(found: Examined, severity: Severity = Severity.WRONG) -> set[str]:
    return {each.code for each in found.findings if each.severity is severity}


async def row_of(stage: Stage, key: str, partition: str | None = None) -> Row:
    (row,) = await stage.tables.get(partition or stage.graph_id, [key])
    assert row is not None, key
    return row


async def spoil(stage: Stage, key: str, **columns: Value) -> None:
    """Write columns as no part of the program would."""
    row = await row_of(stage, key)
    await stage.tables.commit(stage.graph_id, [Merge(key, row.etag, columns)])


async def drop(stage: Stage, key: str, partition: str | None = None) -> Row:
    row = await row_of(stage, key, partition)
    await stage.tables.commit(partition or stage.graph_id, [Delete(key, row.etag)])
    return row


def task(stage: Stage, label: str) -> str:
    return row_key(stage.task_id(label))


def ids(stage: Stage, *labels: str) -> str:
    return ids_text(stage.task_id(label) for label in labels)


# --- damages: what the graph has come to, and then what somebody does to its rows --------------------------------


async def told_and_forgotten(stage: Stage) -> None:
    await stage.complete("a")
    await spoil(stage, task(stage, "b"), state="unscheduled", requiresLeft=ids(stage, "a"))


async def ready_and_waiting(stage: Stage) -> None:
    await stage.complete("a")
    await spoil(stage, task(stage, "b"), requiresLeft=ids(stage, "a"))


async def graph_not_told(stage: Stage) -> None:
    for label in "abcd":
        await stage.complete(label)
    await spoil(stage, GRAPH, state="running", requiresLeft=ids(stage, "d"))


async def requirement_forgotten(stage: Stage) -> None:
    await spoil(stage, task(stage, "d"), requiresLeft=ids(stage, "b"))


async def graph_forgets_its_leaf(stage: Stage) -> None:
    await spoil(stage, GRAPH, requiresLeft="[]")


async def asleep(stage: Stage) -> None:
    await stage.complete("a")
    await stage.offered()
    await spoil(stage, task(stage, "b"), state="unscheduled")


async def a_root_asleep(stage: Stage) -> None:
    await stage.offered()
    await spoil(stage, task(stage, "a"), state="unscheduled")


async def ready_too_early(stage: Stage) -> None:
    await spoil(stage, task(stage, "d"), state="pending", requiresLeft="[]")


async def reruns_out_of_bounds(stage: Stage) -> None:
    await spoil(stage, task(stage, "b"), rerunsLeft=-1)


async def retries_out_of_bounds(stage: Stage) -> None:
    await spoil(stage, task(stage, "b"), retriesLeft=99)


async def failed_count_too_high(stage: Stage) -> None:
    await spoil(stage, GRAPH, failedTasks=3)


async def failed_count_no_number(stage: Stage) -> None:
    await spoil(stage, GRAPH, failedTasks="three")


async def blocked_by_nobody(stage: Stage) -> None:
    await spoil(stage, GRAPH, state="blocked", blockedBy="x")


async def dependent_missing(stage: Stage) -> None:
    await spoil(stage, task(stage, "a"), dependents=ids(stage, "b"))


async def dependent_missing_of_a_completed_task(stage: Stage) -> None:
    await stage.complete("a")
    await spoil(stage, task(stage, "a"), dependents=ids(stage, "b"))
    await spoil(stage, task(stage, "c"), state="unscheduled", requiresLeft=ids(stage, "a"))


async def requirement_missing(stage: Stage) -> None:
    await spoil(stage, task(stage, "d"), requires=ids(stage, "b"), requiresLeft=ids(stage, "b"))


async def graph_requires_nothing(stage: Stage) -> None:
    await spoil(stage, GRAPH, requires="[]", requiresLeft="[]")


async def leaf_tells_nobody(stage: Stage) -> None:
    await spoil(stage, task(stage, "d"), dependents="[]")


async def nobody_waits(stage: Stage) -> None:
    await spoil(stage, task(stage, "d"), dependents="[]")
    await spoil(stage, GRAPH, requires="[]", requiresLeft="[]")


async def never_finished(stage: Stage) -> None:
    for label in "abcd":
        await stage.complete(label)
    await spoil(stage, GRAPH, state="running")


async def journal_gap(stage: Stage) -> None:
    await stage.complete("a")
    await stage.complete("b")
    await drop(stage, event_key(2))


async def requires_left_is_no_json(stage: Stage) -> None:
    await spoil(stage, task(stage, "d"), requiresLeft="[nope")


async def target_is_no_text(stage: Stage) -> None:
    await spoil(stage, task(stage, "b"), target=7)


async def task_count_off(stage: Stage) -> None:
    await spoil(stage, GRAPH, tasks=40)


async def not_in_the_live_index(stage: Stage) -> None:
    await drop(stage, stage.graph_id, LIVE)


async def not_in_the_list(stage: Stage) -> None:
    (row,) = await query_all(stage.tables, ALL, Range())
    await drop(stage, row.key, ALL)


async def running_without_a_lease(stage: Stage) -> None:
    await stage.claim("a")
    row = await drop(stage, task(stage, "a"))
    columns = {name: value for name, value in row.columns.items() if name != "leaseUntil"}
    await stage.tables.commit(stage.graph_id, [Insert(row.key, columns)])


async def extending_what_is_done(stage: Stage) -> None:
    assert await stage.extend(extension({"x": ["d"]}), request="more") == "done"
    await spoil(stage, GRAPH, extending="more")


async def held_by_a_group_that_is_not_paused(stage: Stage) -> None:
    """As extensions left the tasks of inactive groups that they brought in, in earlier versions."""
    for label in "ab":
        await spoil(stage, task(stage, label), held='["group:late"]')


MENDED: list[tuple[Damage, str, str]] = [
    (told_and_forgotten, "left-over", "b"),
    (ready_and_waiting, "left-over", "b"),
    (graph_not_told, "left-over", "the graph"),
    (requirement_forgotten, "requirement-forgotten", "d"),
    (graph_forgets_its_leaf, "requirement-forgotten", "the graph"),
    (asleep, "asleep", "b"),
    (a_root_asleep, "asleep", "a"),
    (ready_too_early, "too-early", "d"),
    (reruns_out_of_bounds, "budget", "b"),
    (retries_out_of_bounds, "budget", "b"),
    (failed_count_too_high, "failed-count", "the graph"),
    (failed_count_no_number, "bad-column", "the graph"),
    (blocked_by_nobody, "graph-state", "the graph"),
    (dependent_missing, "dependent-missing", "c"),
    (dependent_missing_of_a_completed_task, "dependent-missing", "c"),
    (requirement_missing, "requirement-missing", "d"),
    (graph_requires_nothing, "requirement-missing", "the graph"),
    (leaf_tells_nobody, "dependent-missing", "the graph"),
    (nobody_waits, "no-dependents", "d"),
    (never_finished, "unfinished", "the graph"),
    (journal_gap, "journal-gap", ""),
    (requires_left_is_no_json, "bad-column", "d"),
    (target_is_no_text, "bad-column", "b"),
    (task_count_off, "task-count", "the graph"),
    (not_in_the_live_index, "not-live", "the graph"),
    (not_in_the_list, "not-listed", "the graph"),
    (running_without_a_lease, "no-lease", "a"),
    (extending_what_is_done, "extending", "the graph"),
    (held_by_a_group_that_is_not_paused, "held-back", "a"),
    (held_by_a_group_that_is_not_paused, "held-back", "b"),
]


async def finish(stage: Stage) -> None:
    """Let time pass, sweep and work until the graph has ended."""
    for _ in range(4):
        stage.clock.advance(PAST_LEASE_SECONDS)
        await stage.sweep()
        if await stage.work() == "finished":
            break
    assert await stage.state() == "finished"


@pytest.mark.parametrize(("damage", "code", "label"), MENDED, ids=[damage.__name__ for damage, _, _ in MENDED])
async def test_a_damage_is_found_named_and_mended(local: Stage, damage: Damage, code: str, label: str) -> None:
    stage = local
    await stage.submit(graph(DIAMOND, reruns={"b": 2}))
    await damage(stage)
    found = await look(stage)
    named = [each for each in found.findings if each.code == code and each.label == label]
    assert named, found.findings
    assert named[0].repairable, named
    assert not found.sound
    assert found.unsettled == 0
    assert await look(stage) == found, "looking changes nothing"
    mended = await repair(stage)
    assert mended.sound, mended.findings
    assert code in {each.code for each in mended.repaired}
    again = await repair(stage)
    assert (again.sound, again.repaired) == (True, ())
    await finish(stage)
    more = {"x": ["d"]} if damage is extending_what_is_done else {}
    await stage.check({**DIAMOND, **more})
    assert set(stage.executed) == {(label, 0) for label in (*DIAMOND, *more)} | (
        {("a", 1)} if damage is running_without_a_lease else set()
    )
    assert (await look(stage)).findings == ()


# --- damages that nothing mends for certain ---------------------------------------------------------------------


async def begun_too_early(stage: Stage) -> None:
    await spoil(stage, task(stage, "d"), state="running", requiresLeft="[]", claim="c", worker="w")
    await spoil(stage, task(stage, "d"), leaseUntil=stage.clock.now() + timedelta(seconds=60))


async def runs_do_not_add_up(stage: Stage) -> None:
    await spoil(stage, task(stage, "b"), run=7)


async def a_task_is_gone(stage: Stage) -> None:
    await drop(stage, task(stage, "c"))


async def the_graph_row_is_gone(stage: Stage) -> None:
    await drop(stage, GRAPH)


async def dependents_are_no_json(stage: Stage) -> None:
    await spoil(stage, task(stage, "a"), dependents="[1")


async def finished_too_early(stage: Stage) -> None:
    await spoil(stage, GRAPH, state="finished", requiresLeft="[]")


async def too_many_edges(stage: Stage) -> None:
    await spoil(stage, task(stage, "a"), dependents=ids_text([stage.task_id("b"), stage.task_id("c")] * 50))


async def edges_do_not_add_up(stage: Stage) -> None:
    await spoil(stage, GRAPH, edges=17)


async def an_edge_that_may_never_have_been(stage: Stage) -> None:
    await spoil(stage, task(stage, "b"), dependents=ids(stage, "d", "c"))


async def another_label(stage: Stage) -> None:
    await spoil(stage, task(stage, "c"), label="e")


async def no_such_state(stage: Stage) -> None:
    await spoil(stage, task(stage, "c"), state="dreaming")


async def a_newer_schema(stage: Stage) -> None:
    await spoil(stage, task(stage, "c"), schema=5)
    await spoil(stage, GRAPH, failedTasks=3)


REFUSED: list[tuple[Damage, str, str]] = [
    (begun_too_early, "too-early", "begun already"),
    (runs_do_not_add_up, "budget", "any of these numbers"),
    (a_task_is_gone, "missing-row", "what the row held"),
    (the_graph_row_is_gone, "missing-row", "written nowhere else"),
    (dependents_are_no_json, "bad-column", "written nowhere else"),
    (finished_too_early, "finished-early", "final"),
    (too_many_edges, "degree", "under relays"),
    (edges_do_not_add_up, "edge-count", "which requirement"),
    (an_edge_that_may_never_have_been, "requirement-missing", "the graph counts"),
    (another_label, "strange-id", "label or its key"),
    (no_such_state, "bad-column", "written nowhere else"),
    (a_newer_schema, "newer-schema", "newer version"),
]


@pytest.mark.parametrize(("damage", "code", "reason"), REFUSED, ids=[damage.__name__ for damage, _, _ in REFUSED])
async def test_what_is_not_certain_is_refused_with_a_reason(
    local: Stage, damage: Damage, code: str, reason: str
) -> None:
    stage = local
    await stage.submit(graph(DIAMOND))
    await damage(stage)
    before = {row.key: row.etag for row in await stage.queries.partition(stage.graph_id)}
    found = await repair(stage)
    (named,) = [each for each in found.findings if each.code == code][:1]
    assert not named.repairable
    assert reason in named.refusal
    assert named.remedy
    assert not found.sound
    after = {row.key: row.etag for row in await stage.queries.partition(stage.graph_id)}
    assert after == before, "nothing was written"


# --- failures -----------------------------------------------------------------------------------------------------


async def test_a_graph_that_does_not_know_of_its_failure_is_blocked_again(local: Stage) -> None:
    await local.submit(graph(DIAMOND))
    await local.complete("a")
    await local.fail("b")
    await spoil(local, GRAPH, failedTasks=0, state="running")
    assert codes(await look(local)) == {"failed-count"}
    assert (await repair(local)).sound
    assert (await local.queries.status("graph")).blocked_by == "b"
    assert [each for each in await local.told() if each != "graph-running"] == [
        "graph-blocked",
        "graph-repaired",
        "graph-blocked",
    ]
    await local.rerun("b")
    await finish(local)


# --- relays -------------------------------------------------------------------------------------------------------


async def test_relays_that_are_out_of_step_are_mended(stage: Stage) -> None:
    await stage.submit(graph(WIDE))
    await stage.complete("a")
    await stage.offered()
    joins = [row.key for row in await stage.queries.partition("graph") if row.key.startswith("join:")]
    forks = [row.key for row in await stage.queries.partition("graph") if row.key.startswith("fork:")]
    assert len(joins) == 2
    first = json.loads(str((await row_of(stage, joins[0])).columns["requires"]))
    await spoil(stage, joins[0], requiresLeft=ids_text(first[3:]))  # it forgets three
    await spoil(stage, joins[1], dependents="[]")  # it tells nobody
    told = json.loads(str((await row_of(stage, forks[0])).columns["dependents"]))
    await spoil(stage, row_key(told[0]), state="unscheduled", requiresLeft=ids(stage, "a"))  # a fork did not tell it
    found = await look(stage)
    assert codes(found) == {"requirement-forgotten", "dependent-missing", "left-over"}
    assert (await repair(stage)).sound
    await finish(stage)
    await stage.check(WIDE)
    assert set(stage.executed.values()) == {1}


async def test_a_relay_that_is_ready_is_due_and_not_wrong(local: Stage) -> None:
    await local.submit(graph(WIDE))
    done = local.completed(await local.claim("a"))
    with pytest.raises(CrashError):
        await local.deliver(done, handlers=local.more_handlers(Trap(1, "after", "commit")))
    found = await look(local)
    assert found.sound
    assert codes(found, Severity.DUE) == {"relay-ready"}
    assert any("joins and forks" in cause.text for cause in found.causes)
    assert (await repair(local)).findings == ()
    assert list((await local.states()).values()).count("pending") == 120


# --- what is due, and why it does not move -------------------------------------------------------------------------


async def test_why_a_graph_does_not_move(local: Stage) -> None:
    stage = local
    await stage.submit(graph({**DIAMOND, "other": []}))

    async def why() -> str:
        return "\n".join(cause.text for cause in (await look(stage)).causes)

    assert "2 tasks are ready for workers of target default" in await why()
    assert "its queue holds about 2 messages" in await why()
    await stage.offered()
    assert "its queue is empty" in await why()
    await stage.claim("a")
    assert "it moves: 1 task is running" in await why()
    stage.clock.advance(PAST_LEASE_SECONDS)
    assert "leases have ended" in await why()
    assert codes(await look(stage), Severity.DUE) == {"lease-ended"}
    mended = await repair(stage)
    assert {each.code for each in mended.repaired} == {"lease-ended"}
    assert (await stage.row("a")).columns["run"] == 1
    assert sorted(await stage.offered()) == [("a", 1), ("other", 0)], "what was lost is said again"
    await stage.complete("other")
    await stage.fail("a")
    found = await look(stage)
    assert found.sound
    assert "it is blocked by “a”" in found.causes[0].text
    assert found.causes[0].remedy.endswith("taskgraph rerun graph a")
    await stage.rerun("a")
    await finish(stage)
    assert "it is finished" in await why()


async def test_an_extension_that_nobody_handles_is_said_again(local: Stage) -> None:
    await local.submit(graph(DIAMOND))
    await local.stage_extension(extension({"x": ["d"]}))
    await local.forget_queues()
    local.clock.advance(3 * limits.REDISPATCH_SECONDS)
    assert codes(await look(local), Severity.DUE) == {"extension-open"}
    assert (await repair(local)).sound
    await finish(local)
    await local.check({**DIAMOND, "x": ["d"]})


async def test_messages_about_the_graph_that_were_set_aside_are_noted(local: Stage) -> None:
    await local.submit(graph(DIAMOND))
    for graph_id in ("graph", "another"):
        await local.queues.send(local.names.events, [to_text(Rerun(graph_id, ((local.task_id("a"), 0),)))])
    for delivery in await local.queues.receive(local.names.events, count=32, lease_seconds=30):
        await local.poison.set_aside(delivery, "it broke")
    found = await look(local)
    assert found.sound
    (note,) = [each for each in found.findings if each.severity is Severity.NOTE]
    assert "it broke" in note.text
    assert note.remedy == f"taskgraph poison replay {note.key}"


async def test_an_unknown_graph(local: Stage) -> None:
    with pytest.raises(NotFound):
        await look(local)
    with pytest.raises(NotFound):
        await repair(local)
    assert await live_graphs(local.handlers) == []


# --- many copies, and in the midst of things -----------------------------------------------------------------------


async def test_several_doctors_at_once(stage: Stage) -> None:
    """Each repair happens once; nobody's work is undone."""
    await stage.submit(graph(WIDE))
    for each in (stage.task_id("m000"), stage.task_id("m001"), stage.task_id("m002")):
        await spoil(stage, row_key(each), state="pending", requiresLeft="[]")
    await spoil(stage, task(stage, "a"), state="unscheduled")
    await spoil(stage, GRAPH, failedTasks=2)
    found = await asyncio.gather(*(repair(stage, stage.more_handlers()) for _ in range(3)))
    assert all(each.sound for each in found)
    facts = [event for event in await stage.events() if event.kind == "graph-repaired"]
    assert len(facts) == 5, [event.fields for event in facts]
    await finish(stage)
    await stage.check(WIDE)
    assert set(stage.executed.values()) == {1}


class TornTables:
    """A table whose scans, and first reading by key, show some rows as they were before the last commit."""

    def __init__(self, inner: Tables, before: Mapping[str, Row]) -> None:
        self._inner = inner
        self._before = before
        self._stale_gets = 1

    def _torn(self, row: Row) -> Row:
        return self._before.get(row.key, row)

    async def get(self, partition: str, keys: Sequence[str]) -> list[Row | None]:
        found = await self._inner.get(partition, keys)
        if not self._before.keys() & set(keys) or not self._stale_gets:
            return found
        self._stale_gets -= 1
        return [self._torn(row) if row else None for row in found]

    async def query(self, partition: str, rows: Range, *, limit: int = 1000, continuation: str | None = None) -> Page:
        page = await self._inner.query(partition, rows, limit=limit, continuation=continuation)
        return Page([self._torn(row) for row in page.rows], page.continuation)

    async def commit(self, partition: str, changes: Sequence[Change]) -> list[str | None]:
        raise AssertionError("nothing is to be repaired")


@pytest.mark.parametrize("stale", ["b", "a"])
async def test_rows_read_before_and_after_a_commit_are_no_finding(memory: Stage, stale: str) -> None:
    """A scan, and a first reading after it, caught one side of a completion before it and the other after it."""
    await memory.submit(graph(DIAMOND))
    before = {row.key: row for row in await memory.queries.partition("graph") if row.key == task(memory, stale)}
    await memory.complete("a")
    rows = {row.key: before.get(row.key, row) for row in await memory.queries.partition("graph")}
    assert any(each.severity is Severity.WRONG for each in examine("graph", rows, memory.clock.now()))
    torn = Handlers(Records(TornTables(memory.tables, before), memory.clock), memory.queues, memory.clock, memory.names)
    found = await examine_graph(torn, memory.poison, "graph")
    assert (found.findings, found.unsettled) == ((), 0)


@pytest.mark.parametrize("between", ["completes", "is repaired"])
async def test_a_repair_that_comes_second_writes_nothing(local: Stage, between: str) -> None:
    """Between the look and the commit of a doctor, somebody else changes the rows that it rests on."""
    await local.submit(graph(DIAMOND))
    await local.complete("a")
    await local.complete("b")
    held = await local.claim("c")
    await spoil(local, task(local, "d"), requiresLeft="[]", requires=ids(local, "b", "c"))

    async def first() -> None:
        if between == "completes":
            await local.deliver(local.completed(held))
        else:
            assert (await repair(local)).sound

    mended = await repair(local, local.more_handlers(between=first))
    assert mended.sound, mended.findings
    if between == "is repaired":
        await local.deliver(local.completed(held))
    await finish(local)
    await local.check(DIAMOND)
    assert set(local.executed.values()) == {1}


async def test_a_doctor_who_dies_anywhere_is_made_up_for_by_the_next(memory: Stage) -> None:
    number = 0
    while True:
        number += 1
        memory.graph_id = f"graph-{number}"
        memory._labels.clear()
        await memory.submit(graph(DIAMOND))
        await memory.complete("a")
        await told_and_forgotten_again(memory)
        trap = Trap(number, ("before", "after", "unclear")[number % 3])
        try:
            await repair(memory, memory.more_handlers(trap))
        except CrashError:
            assert (await repair(memory)).sound
        await memory.forget_queues()
        await finish(memory)
        await memory.check(DIAMOND)
        if len(trap.calls) < number:
            assert number > 20
            return


async def told_and_forgotten_again(stage: Stage) -> None:
    await spoil(stage, task(stage, "b"), state="unscheduled", requiresLeft=ids(stage, "a"))
    await spoil(stage, task(stage, "d"), requiresLeft=ids(stage, "b"))
    await spoil(stage, GRAPH, failedTasks=1)
