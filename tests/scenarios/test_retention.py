"""Graphs that are deleted: nothing is left, nothing comes back, whatever dies or comes late on the way (P27)."""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from taskgraph.engine import old_tasks
from taskgraph.engine.delete import Deleted, delete, finish_deletion
from taskgraph.engine.doctor import examine_graph, repair_graph
from taskgraph.engine.housekeeping import keep_house
from taskgraph.engine.live_index import enter_live
from taskgraph.engine.notifier import INDEX, enter
from taskgraph.engine.submission import submit
from taskgraph.engine.sweep import Swept, sweep
from taskgraph.model import limits
from taskgraph.model.errors import Conflict, NotFound, Refused, StorageError, StorageUnavailable, Unclear
from taskgraph.model.ids import GRAPH
from taskgraph.model.messages import AddTasks, HoldBack, Rerun, SetLimit, TaskCompleted, to_text
from taskgraph.model.names import ALL, CACHE, KEEPING, LIVE, OLD_TASKS, POISON, TOMBSTONES
from taskgraph.protocol.context import Outcome
from taskgraph.protocol.runs import LeaseLost, Renew
from taskgraph.storage.logs import LogFile, LogPage
from taskgraph.storage.queues import Delivery
from taskgraph.storage.tables import Delete, Insert, Merge, Page, Range, Row, query_all
from tests.scenarios.stage import CrashError, Requirements, Stage, Trap, extension, graph, memory_stage
from tests.scenarios.test_notices import Shelf as Receiver
from tests.scenarios.test_notices import notifier, to_the_end

pytestmark = pytest.mark.usefixtures("settled")

PAIR: Requirements = {"build": [], "test": ["build"]}
DAY = 24 * 3600.0


@dataclass
class Shelf:
    """Logs in memory."""

    held: dict[tuple[str, str, int, str], bytes] = field(default_factory=dict)

    def url(self, graph_id: str, task_id: str, run: int, name: str = "run.log") -> str:
        return f"memory:{graph_id}/{task_id}/{run}/{name}"

    async def append(self, graph_id: str, task_id: str, run: int, data: bytes, name: str = "run.log") -> None:
        key = (graph_id, task_id, run, name)
        self.held[key] = self.held.get(key, b"") + data

    async def append_at(self, graph_id: str, task_id: str, run: int, offset: int, data: bytes, name: str) -> bool:
        key = (graph_id, task_id, run, name)
        if len(self.held.get(key, b"")) != offset:
            return False
        self.held[key] = self.held.get(key, b"") + data
        return True

    async def read(
        self, graph_id: str, task_id: str, run: int, *, offset: int = 0, limit: int = 1 << 20, name: str = "run.log"
    ) -> bytes | None:
        data = self.held.get((graph_id, task_id, run, name))
        return None if data is None else data[offset : offset + limit]

    async def files(self, graph_id: str, *, continuation: str | None = None) -> LogPage:
        own = sorted((key, data) for key, data in self.held.items() if key[0] == graph_id)
        return LogPage([LogFile(task, run, name, len(data)) for (_, task, run, name), data in own])

    async def remove(self, graph_id: str) -> int:
        own = [key for key in self.held if key[0] == graph_id]
        for key in own:
            del self.held[key]
        return len(own)


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


async def finished(stage: Stage, shape: Requirements = PAIR) -> Stage:
    await stage.submit(graph(shape, metadata={"name": "n"}))
    assert await stage.work() == "finished"
    return stage


async def rows(stage: Stage, partition: str = "") -> list[Row]:
    return await query_all(stage.tables, partition or stage.graph_id, Range())


async def only_a_tombstone(stage: Stage, shelf: Shelf) -> None:
    """Nothing of the graph is left in the store but what says that it was."""
    (row,) = await rows(stage)
    assert row.key == GRAPH
    assert row.columns["state"] == "deleted"
    assert set(row.columns) <= {"schema", "state", "deleted", "until", "created", "was", "because", "removed"}
    assert [each.columns["graph"] for each in await rows(stage, TOMBSTONES)] == [stage.graph_id]
    for index in (LIVE, ALL, POISON, OLD_TASKS):
        assert await rows(stage, index) == [], index
    assert shelf.held == {}


# --- what is deleted ---------------------------------------------------------------------------------------------


async def test_a_finished_graph_leaves_a_tombstone_and_nothing_else(stage: Stage, shelf: Shelf) -> None:
    await finished(stage, {"all": [f"part {n}" for n in range(250)], **{f"part {n}": [] for n in range(250)}})
    before = len(await rows(stage))
    await shelf.append(stage.graph_id, stage.task_id("all"), 0, b"said")
    await shelf.append("other", stage.task_id("all"), 0, b"said")
    seen: list[tuple[int, int]] = []
    done = await delete(
        stage.handlers,
        shelf,
        stage.graph_id,
        because="by hand",
        progress=lambda gone, total: seen.append((gone, total)),
    )
    # The row of the fence's event came, and the graph row stays.
    assert done == Deleted(stage.graph_id, before, 1, until=stage.clock.now() + timedelta(days=30))
    assert seen[-1] == (before, before)
    assert shelf.held.pop(("other", stage.task_id("all"), 0, "run.log")) == b"said"
    await only_a_tombstone(stage, shelf)
    (row,) = await rows(stage)
    assert (row.columns["was"], row.columns["because"]) == ("finished", "by hand")
    assert (await delete(stage.handlers, shelf, stage.graph_id)).again
    with pytest.raises(NotFound, match=r"graph graph was deleted at .* UTC \(by hand\)"):
        await stage.queries.status(stage.graph_id)
    assert await stage.queries.graphs() == []


@pytest.mark.parametrize(
    ("state", "forced", "words"),
    [
        ("running", False, "it is running, and only a graph that has ended is deleted; cancel it first"),
        ("running", True, "cancel it first"),
        ("blocked", False, "with --force it is deleted"),
        ("submitting", True, "still being submitted"),
        ("cancelling", True, "wait until it is cancelled"),
        ("restoring", False, "with --force what has been put back is deleted"),
    ],
)
async def test_what_has_not_ended_is_not_deleted(
    memory: Stage, shelf: Shelf, state: str, forced: bool, words: str
) -> None:
    await memory.submit(graph(PAIR))
    await change(memory, state=state)
    before = await rows(memory)
    with pytest.raises(Refused, match=words):
        await delete(memory.handlers, shelf, memory.graph_id, force=forced)
    assert await rows(memory) == before


async def change(stage: Stage, **columns: str) -> None:
    row = await stage.graph_row()
    await stage.tables.commit(stage.graph_id, [Merge(GRAPH, row.etag, columns)])


async def test_a_graph_that_never_was_is_not_found(memory: Stage, shelf: Shelf) -> None:
    with pytest.raises(NotFound, match="there is no graph graph"):
        await delete(memory.handlers, shelf, memory.graph_id)
    assert await rows(memory, LIVE) == []


async def test_a_blocked_graph_goes_by_force_and_its_workers_hear_of_it(stage: Stage, shelf: Shelf) -> None:
    await stage.submit(graph({"bad": [], "long": [], "after": ["long"]}))
    held = await stage.claim("long")
    await stage.fail("bad")
    assert await stage.state() == "blocked"
    await delete(stage.handlers, shelf, stage.graph_id, force=True)
    renew = Renew(held.task_id, 0, held.claim, stage.clock.now())
    (answer,) = await stage.transition(renew)
    assert (answer.outcome, answer.error) == (Outcome.STALE, None), "so that the worker stops the run"
    (handled,) = await stage.deliver(stage.completed(held))
    assert handled.answers[0].reason == "the graph was deleted"
    await only_a_tombstone(stage, shelf)


async def test_a_task_that_another_graph_got_stays_with_it(stage: Stage, shelf: Shelf) -> None:
    await old_tasks.enter(stage.tables, stage.graph_id, ["a", "build"])
    await old_tasks.enter(stage.tables, "another", ["a"])  # the graph has no task of this id
    await finished(stage)
    with pytest.raises(Refused, match="graph graph has a task build already"):
        await old_tasks.enter(stage.tables, "another", ["build"])
    await delete(stage.handlers, shelf, stage.graph_id)
    assert [each.key for each in await rows(stage, OLD_TASKS)] == ["a", "another:a"]
    await old_tasks.enter(stage.tables, "another", ["build"])
    assert await old_tasks.graph_of(stage.tables, "build") == "another"


async def test_what_was_set_aside_goes_along(stage: Stage, shelf: Shelf) -> None:
    await finished(stage)
    for number, body in enumerate(
        (
            f'{{"type":"rerun","version":1,"graph":"{stage.graph_id}","task":"{stage.task_id("build")}","run":0}}',
            '{"type":"rerun","version":1,"graph":"other","task":"AAAAAAAAQACAAAAAAAAAAA","run":0}',
            f'{{"type":"unheard-of","version":1,"graph":"{stage.graph_id}"}}',
            "no message",
        )
    ):
        await stage.poison.set_aside(Delivery(stage.names.events, f"m{number}", "r", body, 1), "it failed")
    await delete(stage.handlers, shelf, stage.graph_id)
    left = sorted(each.body for each in await stage.poison.list())
    assert [each[:10] for each in left] == ["no message", '{"type":"r']
    assert '"other"' in left[1]
    queue = stage.names.poison(stage.names.events)
    assert await stage.queues.count(queue) == 2


# --- what comes late ---------------------------------------------------------------------------------------------


async def test_messages_about_a_deleted_graph_are_let_go(stage: Stage, shelf: Shelf) -> None:
    await stage.submit(graph(PAIR))
    held = await stage.claim("build")
    late = stage.completed(held)
    await stage.deliver(late)
    await stage.complete("test")
    await delete(stage.handlers, shelf, stage.graph_id)
    before = await rows(stage)
    claim = await stage.handlers.transition(stage.graph_id, [LeaseLost(held.task_id, 0, held.claim)])
    assert claim[0].outcome is Outcome.STALE
    messages = [late, stage.failed(held), Rerun(stage.graph_id, ((held.task_id, 0),)), AddTasks(stage.graph_id, "r")]
    asked = stage.clock.now().isoformat()
    messages += [HoldBack(stage.graph_id, True, asked, "g"), SetLimit(stage.graph_id, 1, asked, "g")]
    assert [each.error for each in await stage.deliver(*messages)] == [None] * 6
    assert isinstance(messages[0], TaskCompleted)
    await stage.queues.send(stage.names.events, [to_text(each) for each in messages])
    await stage.consume()
    assert await stage.queues.count(stage.names.events) == 0, "acknowledged, and not offered again"
    assert await rows(stage) == before
    assert await rows(stage, POISON) == []


async def test_half_deleted_rows_are_nobodys_error(memory: Stage, shelf: Shelf) -> None:
    """A result comes while its dependents are gone already."""
    await memory.submit(graph({"bad": [], "a": [], "b": ["a"]}))
    held = await memory.claim("a")
    await memory.fail("bad")
    await change(memory, state="deleting")
    dependent = await memory.row("b")
    await memory.tables.commit(memory.graph_id, [Delete(dependent.key, dependent.etag)])
    (handled,) = await memory.deliver(memory.completed(held))
    assert handled.answers[0].outcome is Outcome.STALE


async def test_a_message_for_an_unknown_graph_still_fails(memory: Stage) -> None:
    await memory.submit(graph(PAIR))
    held = await memory.claim("build")
    (handled,) = await memory.handlers.handle("nowhere", [memory.completed(held)])
    assert isinstance(handled.error, NotFound)


async def test_the_id_is_not_given_again_before_the_tombstone_ends(stage: Stage, shelf: Shelf) -> None:
    await finished(stage)
    await delete(stage.handlers, shelf, stage.graph_id)
    with pytest.raises(Refused, match="was deleted, and messages about it may still be on their way; choose another"):
        await stage.submit(graph(PAIR))
    with pytest.raises(Refused, match="only one that runs or is blocked can be extended"):
        await stage.stage_extension(extension({"more": []}))
    await sweep(stage.handlers, logs=shelf)
    await only_a_tombstone(stage, shelf)
    stage.clock.advance(limits.TOMBSTONE_SECONDS - 1)
    assert (await keep_house(stage.handlers, shelf)).tombstones == 0
    stage.clock.advance(2)
    assert (await keep_house(stage.handlers, shelf)).tombstones == 1
    assert await rows(stage) == []
    assert await rows(stage, TOMBSTONES) == []
    assert (await stage.submit(graph(PAIR))).outcome == "created"
    assert await stage.work() == "finished"
    assert [each.kind for each in await stage.events()] == ["graph-running", *["task-completed"] * 2, "graph-finished"]
    assert (await stage.events())[0].sequence == 1, "and its journal begins at one"


async def test_a_submitter_who_slept_through_it_is_refused_and_leaves_nothing(local: Stage, shelf: Shelf) -> None:
    """It has written the graph row, and sleeps before the others; a day later it is given up, and deleted."""
    document = graph({f"t{n}": [] for n in range(120)})

    async def meanwhile() -> None:
        local.clock.advance(DAY + 1)
        assert (await sweep(local.handlers)).abandoned == 1
        await delete(local.handlers, shelf, local.graph_id)

    trap = Trap()
    sleeper = local.more_handlers(trap)
    inner = sleeper.records.tables.commit
    commits = 0

    async def commit(partition: str, changes: Sequence[object]) -> list[str | None]:
        nonlocal commits
        commits += partition == local.graph_id
        if partition == local.graph_id and commits == 2:
            await meanwhile()
        return await inner(partition, changes)  # type: ignore[arg-type]

    sleeper.records.tables.commit = commit  # type: ignore[method-assign]
    with pytest.raises(Refused, match="it was deleted while it was submitted"):
        await submit(sleeper, local.graph_id, document)
    assert len(await rows(local)) == 1, "its fence is gone, so it puts nothing beside the tombstone"
    swept = await sweep(local.handlers, logs=shelf)
    assert swept.index_mended == 1, "it had entered the graph among the live ones"
    await only_a_tombstone(local, shelf)


@pytest.mark.parametrize("swept", ["by the sweep", "at the end of the tombstone"])
async def test_an_extension_put_down_too_late_leaves_nothing(local: Stage, shelf: Shelf, swept: str) -> None:
    await local.submit(graph({"only": []}))
    (request,) = [Insert("request:late", {"schema": 1, "state": "staged", "digest": "d"})]
    await local.complete("only")
    await delete(local.handlers, shelf, local.graph_id)
    await local.tables.commit(local.graph_id, [request])  # whoever put it down read the graph while it ran
    await local.deliver(AddTasks(local.graph_id, "late"))
    if swept == "by the sweep":
        await enter_live(local.handlers.records, local.graph_id)  # which is the next thing that it does
        await sweep(local.handlers, logs=shelf)
        await only_a_tombstone(local, shelf)
    else:
        await shelf.append(local.graph_id, local.task_id("only"), 0, b"late too")
        local.clock.advance(limits.TOMBSTONE_SECONDS + 1)
        await keep_house(local.handlers, shelf)
        assert await rows(local) == []
        assert shelf.held == {}


# --- crashes, and others -----------------------------------------------------------------------------------------


async def begun(shelf: Shelf) -> Stage:
    """A graph that has finished, with everything that a graph may leave."""
    stage = memory_stage()
    await old_tasks.enter(stage.tables, stage.graph_id, ["a", "b", *(f"later {n}" for n in range(old_tasks.AT_ONCE))])
    await stage.submit(graph({"a": [], "b": ["a"]}))
    held = await stage.claim("a")
    assert await stage.extend(extension({"c": ["a"]})) == "done"
    await stage.deliver(stage.completed(held))
    assert await stage.work() == "finished"
    await shelf.append(stage.graph_id, held.task_id, 0, b"said")
    await stage.poison.set_aside(
        Delivery(stage.names.events, "m", "r", f'{{"type":"x","version":1,"graph":"{stage.graph_id}"}}', 1), "failed"
    )
    return stage


async def test_a_deletion_that_dies_at_any_call_is_finished_by_the_sweep_or_by_the_same_call() -> None:
    """Every storage call, before and after it, its answer lost, its commit answered with a conflict, refused."""
    trap = Trap()
    shelf = Shelf()
    stage = await begun(shelf)
    await delete(stage.more_handlers(trap), shelf, stage.graph_id)
    calls = len(trap.calls)
    assert calls > 15
    fences = finishers = 0
    for kind in ("before", "after", "unclear", "conflict", "unavailable"):
        for at in range(1, calls + 1):
            shelf = Shelf()
            stage = await begun(shelf)
            dying = stage.more_handlers(Trap(at=at, kind=kind))
            with contextlib.suppress(CrashError, StorageUnavailable, Conflict, Unclear):
                await delete(dying, shelf, stage.graph_id)
            (row,) = [each for each in await rows(stage) if each.key == GRAPH]
            if row.columns["state"] == "finished":
                fences += 1
                assert len(await rows(stage)) > 5, "nothing is taken away before the fence"
                await sweep(stage.handlers, logs=shelf)
                assert (await stage.graph_row()).columns["state"] == "finished"
                await delete(stage.handlers, shelf, stage.graph_id)
            else:
                await sweep(stage.handlers, logs=shelf)
                finishers += 1
            await only_a_tombstone(stage, shelf)
            await sweep(stage.handlers, logs=shelf)
            await only_a_tombstone(stage, shelf)
    assert fences > 5
    assert finishers > 50


async def test_the_end_of_a_tombstone_may_die_at_any_call() -> None:
    async def over(shelf: Shelf) -> Stage:
        stage = await begun(shelf)
        await delete(stage.handlers, shelf, stage.graph_id)
        await stage.tables.commit(stage.graph_id, [Insert("request:late", {"state": "staged"})])
        stage.clock.advance(limits.TOMBSTONE_SECONDS + 1)
        return stage

    trap, shelf = Trap(), Shelf()
    await keep_house((await over(shelf)).more_handlers(trap), shelf)
    for kind in ("before", "after", "unclear", "conflict", "unavailable"):
        for at in range(1, len(trap.calls) + 1):
            stage = await over(shelf)
            with contextlib.suppress(CrashError, StorageUnavailable, Unclear):
                await keep_house(stage.more_handlers(Trap(at=at, kind=kind)), shelf)
            await keep_house(stage.handlers, shelf)
            await sweep(stage.handlers, logs=shelf)
            assert [await rows(stage), await rows(stage, TOMBSTONES), await rows(stage, LIVE)] == [[], [], []]


async def test_any_number_of_copies_delete_side_by_side(stage: Stage, shelf: Shelf) -> None:
    await finished(stage, {f"t{n}": [] for n in range(150)})
    copies = [delete(stage.more_handlers(), shelf, stage.graph_id) for _ in range(4)]
    sweeps = [sweep(stage.more_handlers(), logs=shelf) for _ in range(2)]
    done = await asyncio.gather(*copies, *sweeps)
    assert sum(each.rows for each in done if isinstance(each, Deleted)) > 0
    await only_a_tombstone(stage, shelf)


async def test_a_copy_that_slept_takes_nothing_from_a_graph_of_the_same_id(memory: Stage, shelf: Shelf) -> None:
    """It read rows before the graph was deleted, forgotten, and submitted again."""
    await finished(memory)
    slept = False

    async def meanwhile() -> None:
        nonlocal slept
        slept = True
        await delete(memory.handlers, shelf, memory.graph_id)
        memory.clock.advance(limits.TOMBSTONE_SECONDS + 1)
        await keep_house(memory.handlers, shelf)
        await memory.submit(graph(PAIR))

    sleeper = memory.more_handlers()
    inner = sleeper.records.tables.commit

    async def commit(partition: str, changes: Sequence[object]) -> list[str | None]:
        deletes = any(type(each).__name__ == "Delete" for each in changes)
        if partition == memory.graph_id and deletes and not slept:
            await meanwhile()
        return await inner(partition, changes)  # type: ignore[arg-type]

    sleeper.records.tables = _Sleeping(memory.tables, commit)  # type: ignore[assignment]
    done = await delete(sleeper, shelf, memory.graph_id)
    assert (slept, done.again, done.rows) == (True, True, 0)
    assert await memory.work() == "finished"
    assert set(await memory.states()) == {"build", "test"}


async def test_a_copy_that_slept_leaves_the_index_of_old_clients_to_a_graph_of_the_same_id(
    memory: Stage, shelf: Shelf
) -> None:
    """It had seen that the graph is gone, and reads the index only when that has been submitted again."""
    await old_tasks.enter(memory.tables, memory.graph_id, PAIR)
    await finished(memory)
    sleeper = memory.more_handlers()
    slept = False

    async def query(partition: str, *args: Any, **named: Any) -> Page:
        nonlocal slept
        if partition == OLD_TASKS and not slept:
            slept = True
            await delete(memory.handlers, shelf, memory.graph_id)
            memory.clock.advance(limits.TOMBSTONE_SECONDS + 1)
            await keep_house(memory.handlers, shelf)
            await old_tasks.enter(memory.tables, memory.graph_id, PAIR)
            await memory.submit(graph(PAIR))
        return await memory.tables.query(partition, *args, **named)

    sleeper.records.tables = _Sleeping(memory.tables, memory.tables.commit)  # type: ignore[assignment]
    sleeper.records.tables.query = query  # type: ignore[method-assign]
    done = await delete(sleeper, shelf, memory.graph_id)
    assert (slept, done.again) == (True, True)
    assert [each.key for each in await rows(memory, OLD_TASKS)] == ["build", "graph:build", "graph:test", "test"]


class _Sleeping:
    """Tables of which one call is somebody else's."""

    def __init__(self, inner: object, commit: object) -> None:
        self._inner = inner
        self.commit = commit

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)


async def test_a_deletion_that_is_outrun_for_ever_says_so(memory: Stage, shelf: Shelf) -> None:
    await finished(memory)
    handlers = memory.more_handlers(Trap())

    async def outrun(graph_id: str) -> int:
        row = await memory.graph_row()
        await memory.tables.commit(memory.graph_id, [Merge(GRAPH, row.etag, {})])
        return 0

    shelf.remove = outrun  # type: ignore[method-assign]
    with pytest.raises(Conflict, match="the same command goes on"):
        await delete(handlers, shelf, memory.graph_id)


# --- by age ------------------------------------------------------------------------------------------------------


async def aged(stage: Stage, name: str, *, end: str = "finished") -> None:
    before, stage.graph_id = stage.graph_id, name
    await stage.submit(graph({"only": []}))
    if end == "finished":
        await stage.complete("only")
    elif end == "blocked":
        await stage.fail("only")
    stage.graph_id = before


async def ids(stage: Stage) -> list[str]:
    return [each.graph_id for each in await stage.queries.graphs(limit=1000)]


async def test_graphs_that_ended_long_enough_ago_are_deleted(local: Stage, shelf: Shelf) -> None:
    await aged(local, "old")
    await aged(local, "stuck", end="blocked")
    await aged(local, "slow", end="running")
    local.clock.advance(6 * DAY)
    local.graph_id = "slow"
    await local.complete("only")  # begun long ago, and just finished
    await aged(local, "young")
    local.clock.advance(2 * DAY)
    assert not (await keep_house(local.handlers, shelf)).did_something, "nobody said how long"
    kept = await keep_house(local.handlers, shelf, keep_days=7)
    assert (kept.deleted, kept.more, kept.failed) == (["old"], False, [])
    assert sorted(await ids(local)) == ["slow", "stuck", "young"]
    local.clock.advance(6 * DAY)
    assert sorted((await keep_house(local.handlers, shelf, keep_days=7)).deleted) == ["slow", "young"]
    assert await ids(local) == ["stuck"]
    assert await rows(local, KEEPING) == [], "what fits one look need not be remembered"


async def test_a_submission_that_was_given_up_ends_a_day_after_it_began(
    memory: Stage, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WHOLE_ROWS_MAX", 0)  # it takes several commits
    trap = Trap(at=6, kind="before")
    with pytest.raises(CrashError):
        await memory.submit(graph(PAIR), handlers=memory.more_handlers(trap))
    memory.clock.advance(DAY + 1)
    assert (await memory.sweep()).abandoned == 1
    assert not (await keep_house(memory.handlers, shelf, keep_days=1)).deleted
    memory.clock.advance(DAY)
    assert (await keep_house(memory.handlers, shelf, keep_days=1)).deleted == ["graph"]


async def test_a_long_list_is_gone_through_in_parts(
    memory: Stage, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "KEEP_GRAPHS_MAX", 3)
    for number in range(8):
        await aged(memory, f"g{number}", end="blocked" if number in (5, 6, 7) else "finished")
        memory.clock.advance(1)
    memory.clock.advance(2 * DAY)
    first = await keep_house(memory.handlers, shelf, keep_days=1)
    assert (first.deleted, first.more) == ([], False), "three that are blocked: nothing to be quick about"
    second = await keep_house(memory.handlers, shelf, keep_days=1)
    assert (second.deleted, second.more) == (["g2", "g3", "g4"], True), "the oldest first"
    third = await keep_house(memory.handlers, shelf, keep_days=1)
    assert third.deleted == ["g0", "g1"]
    assert sorted(await ids(memory)) == ["g5", "g6", "g7"]
    await keep_house(memory.handlers, shelf, keep_days=1)
    assert [row.columns["after"] for row in await rows(memory, KEEPING)] == [""], "and from the beginning again"


async def test_a_look_at_old_graphs_may_die_at_any_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "KEEP_GRAPHS_MAX", 2)

    async def old() -> Stage:
        stage = memory_stage()
        for number in range(4):
            await aged(stage, f"g{number}", end="finished" if number < 3 else "blocked")
            stage.clock.advance(1)
        stage.clock.advance(2 * DAY)
        await keep_house(stage.handlers, Shelf(), keep_days=1)  # g3, g2: there is a place to go on from
        return stage

    trap = Trap()
    await keep_house((await old()).more_handlers(trap), Shelf(), keep_days=1)
    for kind in ("before", "after", "unclear", "conflict", "unavailable"):
        for at in range(1, len(trap.calls) + 1):
            stage, shelf = await old(), Shelf()
            with contextlib.suppress(CrashError, StorageUnavailable, Unclear):
                await keep_house(stage.more_handlers(Trap(at=at, kind=kind)), shelf, keep_days=1)
            for _ in range(3):
                await keep_house(stage.handlers, shelf, keep_days=1)
            await sweep(stage.handlers, logs=shelf)
            assert await ids(stage) == ["g3"], (kind, at)


async def test_a_graph_that_others_keep_writing_waits_for_the_next_look(memory: Stage, shelf: Shelf) -> None:
    await finished(memory)
    memory.clock.advance(2 * DAY)
    remove = shelf.remove

    async def outrun(graph_id: str) -> int:
        row = await memory.graph_row()
        await memory.tables.commit(memory.graph_id, [Merge(GRAPH, row.etag, {})])
        return 0

    shelf.remove = outrun  # type: ignore[method-assign]
    kept = await keep_house(memory.handlers, shelf, keep_days=1)
    assert kept.deleted == []
    assert "the same command goes on" in kept.failed[0]
    shelf.remove = remove  # type: ignore[method-assign]
    assert (await sweep(memory.handlers, logs=shelf)).deleted == 1


async def test_tombstones_end_in_parts(memory: Stage, shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "KEEP_GRAPHS_MAX", 2)
    for number in range(3):
        await aged(memory, f"g{number}")
        await delete(memory.handlers, shelf, f"g{number}")
    memory.clock.advance(limits.TOMBSTONE_SECONDS + 1)
    first = await keep_house(memory.handlers, shelf)
    assert (first.tombstones, first.more) == (2, True)
    second = await keep_house(memory.handlers, shelf)
    assert (second.tombstones, second.more) == (1, False)


# --- the sweep ---------------------------------------------------------------------------------------------------


async def test_a_sweep_without_logs_leaves_deletions_to_others(memory: Stage, shelf: Shelf) -> None:
    await finished(memory)
    dying = memory.more_handlers(Trap(at=8, kind="after"))
    with pytest.raises(CrashError):
        await delete(dying, shelf, memory.graph_id)
    assert await memory.state() == "deleting"
    assert await sweep(memory.handlers) == Swept(graphs=1)
    assert await memory.state() == "deleting"
    assert await sweep(memory.handlers, logs=shelf) == Swept(graphs=1, deleted=1)
    await only_a_tombstone(memory, shelf)
    assert (await finish_deletion(memory.handlers, shelf, memory.graph_id)).until is not None


async def test_the_doctor_names_what_is_half_deleted_and_finds_nothing_else_wrong(memory: Stage, shelf: Shelf) -> None:
    await finished(memory)
    with pytest.raises(CrashError):
        await delete(memory.more_handlers(Trap(at=8, kind="after")), shelf, memory.graph_id)
    found = await examine_graph(memory.handlers, memory.poison, memory.graph_id)
    assert [(each.code, each.severity) for each in found.findings] == [("deletion-open", "due")]
    assert "it is being deleted since" in found.findings[0].text
    assert found.sound
    assert [cause.text for cause in found.causes] == ["it is being deleted"]
    assert [each.state for each in await memory.queries.graphs()] == ["deleting"]
    assert (await memory.queries.status(memory.graph_id)).state == "deleting"
    (live,) = await rows(memory, LIVE)
    await memory.tables.commit(LIVE, [Delete(live.key, live.etag)])
    repaired = await repair_graph(memory.handlers, memory.poison, memory.graph_id)
    assert [each.code for each in repaired.repaired] == ["not-live"]
    await sweep(memory.handlers, logs=shelf)
    await only_a_tombstone(memory, shelf)
    with pytest.raises(NotFound, match="graph graph was deleted"):
        await examine_graph(memory.handlers, memory.poison, memory.graph_id)
    await memory.tables.commit(memory.graph_id, [Insert("request:late", {"state": "staged"})])
    beside = await examine_graph(memory.handlers, memory.poison, memory.graph_id)
    assert "1 row was put beside its tombstone" in beside.findings[0].text


# --- notices -----------------------------------------------------------------------------------------------------


async def test_a_graph_of_which_somebody_has_still_to_be_told_is_kept(local: Stage, shelf: Shelf) -> None:
    told = graph({"a": []}, notify={"onFinished": {"queue": "graphs"}})
    await local.submit(told)
    await local.complete("a")
    local.clock.advance(8 * DAY)
    with pytest.raises(Refused, match=r"notices are not delivered yet \(taskgraph notices graph\)"):
        await delete(local.handlers, shelf, local.graph_id)
    assert (await keep_house(local.handlers, shelf, keep_days=7)).deleted == []
    receiver = Receiver()
    assert await to_the_end(local, notifier(local, receiver))
    assert len(receiver.got) == 1
    assert (await keep_house(local.handlers, shelf, keep_days=7)).deleted == [local.graph_id]
    await only_a_tombstone(local, shelf)


async def test_nobody_is_told_of_a_graph_that_was_deleted_by_force(local: Stage, shelf: Shelf) -> None:
    await local.submit(graph({"a": []}, notify={"onFinished": {"queue": "graphs"}}))
    await local.complete("a")
    await delete(local.handlers, shelf, local.graph_id, force=True)
    assert await rows(local, INDEX) == []
    await enter(local.tables, local.graph_id, local.clock.now())  # whoever submitted it was late
    receiver = Receiver()
    assert (await notifier(local, receiver).deliver(local.graph_id)).undone == 0
    assert receiver.got == {}
    assert await rows(local, INDEX) == []
    await only_a_tombstone(local, shelf)


async def test_cached_runs_of_graphs_that_are_gone_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "KEEP_GRAPHS_MAX", 3)
    stage, shelf = memory_stage(), Shelf()
    await stage.submit(graph(PAIR))
    tables = stage.handlers.records.tables
    for number in range(10):
        of = stage.graph_id if number % 2 else "gone"
        await tables.commit(CACHE, [Insert(f"{number:064x}", {"schema": 1, "graph": of, "task": "t", "run": 0})])
    for _ in range(4):
        await keep_house(stage.handlers, shelf)
    left = await query_all(tables, CACHE, Range())
    assert [row.columns["graph"] for row in left] == [stage.graph_id] * 5
    (place,) = await query_all(tables, KEEPING, Range())
    assert place.columns["after"] == "", "the next look begins anew"


@pytest.mark.parametrize("error", [Conflict("412"), Unclear("no answer")])
async def test_a_cached_run_that_another_has_replaced_stays(
    error: StorageError, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = memory_stage()
    tables = stage.handlers.records.tables
    await tables.commit(CACHE, [Insert("0" * 64, {"schema": 1, "graph": "gone", "task": "t", "run": 0})])
    commit = tables.commit

    async def raced(partition, changes):
        if partition == CACHE:
            raise error
        return await commit(partition, changes)

    monkeypatch.setattr(tables, "commit", raced)
    await keep_house(stage.handlers, Shelf())
    assert len(await query_all(tables, CACHE, Range())) == 1
