"""How a graph or a task is cancelled: fence, sweep, publish; what runs, what comes late, and who comes in between."""

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from taskgraph.documents.read import document_from_object
from taskgraph.engine import control
from taskgraph.engine.doctor import repair_graph
from taskgraph.model import limits
from taskgraph.model.columns import time_of
from taskgraph.model.errors import NotFound
from taskgraph.model.ids import GRAPH
from taskgraph.model.messages import AddTasks, Cancel, Rerun
from taskgraph.protocol.cancel import CancelTask, PublishCancelled
from taskgraph.protocol.context import Outcome, Stop
from taskgraph.protocol.invariants.examine import examine
from taskgraph.protocol.runs import Overdue, Renew
from taskgraph.storage.tables import Row
from tests.scenarios.stage import PAST_LEASE_SECONDS, CrashError, Held, Stage, Trap, extension, graph
from tests.simulation.bounds import CHUNKED, bounded

FORKED = {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]}


async def cancel(
    stage: Stage, *labels: str, reason: str = "superseded", terminate: bool = False
) -> tuple[Outcome, str]:
    tasks = tuple([(stage.task_id(label), 0) for label in labels])
    (handled,) = await stage.deliver(Cancel(stage.graph_id, tasks, reason, terminate))
    return handled.answers[0].outcome, handled.answers[0].reason


async def resolution(stage: Stage, label: str) -> Mapping[str, Any]:
    found = json.loads(str((await stage.row(label)).columns["resolution"]))
    assert isinstance(found, dict)
    return found


async def live(stage: Stage) -> bool:
    (row,) = await stage.tables.get("index:live", [stage.graph_id])
    return row is not None


async def test_a_graph_of_which_nothing_runs_is_cancelled_at_once(stage: Stage) -> None:
    await stage.submit(graph(FORKED))
    await stage.complete("a")
    assert await cancel(stage) == (Outcome.APPLIED, "")
    assert await stage.state() == "cancelled"
    assert await stage.states() == {"a": "completed", "b": "cancelled", "c": "cancelled", "d": "cancelled"}
    wanted = {"failed": True, "cancelled": True, "code": "cancelled", "reason": "superseded"}
    assert await resolution(stage, "d") == wanted
    assert await stage.told(tasks=True) == [
        "graph-running",
        "task-completed",
        *("graph-cancelling", "task-cancelled", "task-cancelled", "task-cancelled"),
        "graph-cancelled",
    ]
    status = await stage.queries.status("graph")
    (row,) = await stage.tables.get(stage.graph_id, [GRAPH])
    assert row is not None
    assert status.ended == time_of(row.columns, "cancelled") is not None
    assert (status.failed_tasks, status.unresolved) == (3, 0)
    assert not await live(stage)
    for label in ("b", "c", "d"):
        assert (await stage.try_claim(label)).outcome is Outcome.STALE


async def test_what_runs_is_marked_and_its_end_ends_the_graph(stage: Stage) -> None:
    await stage.submit(graph({"a": [], "b": [], "c": ["a", "b"]}))
    first, second = await stage.claims("a", "b")
    await cancel(stage)
    assert await stage.state() == "cancelling"
    assert await stage.states() == {"a": "running", "b": "running", "c": "cancelled"}
    renewed = await stage.transition(Renew(first.task_id, 0, first.claim, stage.clock.now()))
    assert [(each.outcome, each.reason) for each in renewed] == [(Outcome.APPLIED, "superseded")]
    await stage.deliver(stage.completed(first, exitCode=0, logsUrl="file:///log"))
    assert await stage.state() == "cancelling"
    assert await resolution(stage, "a") == {
        "failed": True,
        "cancelled": True,
        "code": "cancelled",
        "reason": "superseded",
        "exitCode": 0,
        "logsUrl": "file:///log",
        "reported": {"outcome": "completed"},
    }
    assert (await stage.hand_back(second, "stopped")).reason == "cancelled"
    assert await resolution(stage, "b") == {
        "failed": True,
        "cancelled": True,
        "code": "cancelled",
        "reason": "superseded",
        "reported": {"outcome": "handed-back", "reason": "stopped"},
    }
    assert await stage.state() == "cancelled"
    assert (await stage.told()).count("graph-cancelled") == 1
    assert not await live(stage)


@pytest.mark.parametrize("end", ["failed", "exception", "lost"])
async def test_no_end_of_a_marked_run_makes_another(memory: Stage, end: str) -> None:
    stage = memory
    await stage.submit(graph({"a": []}, reruns={"a": 5}))
    held = await stage.claim("a")
    await cancel(stage, reason="late")
    if end == "lost":
        stage.clock.advance(PAST_LEASE_SECONDS)
        await stage.sweep()
    else:
        await stage.deliver(stage.failed(held, exception=end == "exception", reason="broke"))
    row = (await stage.row("a")).columns
    assert (row["state"], row["run"], row["rerunsLeft"], row["retriesLeft"]) == ("exception", 0, 5, 5)
    assert (await resolution(stage, "a"))["reported"]["outcome"] == end
    assert await stage.state() == "cancelled"


async def test_terminate_waits_for_nobody_and_voids_claims(stage: Stage) -> None:
    await stage.submit(graph({"a": [], "b": ["a"]}))
    held = await stage.claim("a")
    stops: list[Stop] = []
    stage.handlers.listeners.stop.append(lambda graph_id, found: stops.extend(found))
    await cancel(stage, terminate=True)
    assert await stage.state() == "cancelled"
    assert (await resolution(stage, "a"))["terminated"] is True
    assert stops[0] == Stop(held.task_id, 0, held.claim, "superseded", at_once=True)
    (late,) = await stage.deliver(stage.completed(held))
    assert late.answers[0].outcome is Outcome.STALE
    (renewed,) = await stage.transition(Renew(held.task_id, 0, held.claim, stage.clock.now()))
    assert renewed.outcome is Outcome.STALE
    assert await stage.states() == {"a": "cancelled", "b": "cancelled"}


async def test_who_finds_waiting_too_long_may_terminate_what_is_being_cancelled(stage: Stage) -> None:
    await stage.submit(graph({"a": []}))
    await stage.claim("a")
    await cancel(stage, reason="first")
    assert await cancel(stage, reason="second") == (Outcome.REPEATED, "it is being cancelled already")
    assert await stage.state() == "cancelling"
    assert await cancel(stage, reason="third", terminate=True) == (Outcome.APPLIED, "")
    assert await stage.state() == "cancelled"
    assert (await resolution(stage, "a"))["reason"] == "first"
    assert await cancel(stage) == (Outcome.REPEATED, "it is cancelled already")


async def test_what_is_over_says_so(stage: Stage) -> None:
    await stage.submit(graph({"a": []}))
    assert await stage.work() == "finished"
    before = await stage.snapshot()
    assert await cancel(stage) == (Outcome.REFUSED, "the graph is finished")
    assert await cancel(stage, "a") == (Outcome.STALE, "the task is completed")
    assert await stage.snapshot() == before
    (handled,) = await stage.handlers.handle("nowhere", [Cancel("nowhere")])
    assert isinstance(handled.error, NotFound)
    (handled,) = await stage.handlers.handle(stage.graph_id, [Cancel(stage.graph_id, ((stage.task_id("no"), 0),))])
    assert isinstance(handled.error, NotFound)


async def test_a_cancelled_message_twice_says_the_same(stage: Stage) -> None:
    await stage.submit(graph({"a": [], "b": ["a"]}))
    held = await stage.claim("a")
    await cancel(stage)
    done = stage.completed(held)
    await stage.deliver(done)
    before = await stage.snapshot()
    (again,) = await stage.deliver(done)
    assert again.answers[0].outcome is Outcome.REPEATED
    await cancel(stage)
    await stage.transition(PublishCancelled())
    await stage.sweep()
    assert await stage.snapshot() == before


async def test_whoever_cancels_and_dies_is_followed_by_the_sweep(
    memory: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fence is committed, and nothing else: each time somebody comes by, it goes on."""
    stage = memory
    await stage.submit(graph(FORKED))
    held = await stage.claim("a")

    async def dies(*_: object, **__: object) -> int:
        return 0

    with monkeypatch.context() as patch:
        patch.setattr(control, "go_on_cancelling", dies)
        await stage.deliver(Cancel(stage.graph_id))
    assert await stage.states() == {"a": "running", "b": "unscheduled", "c": "unscheduled", "d": "unscheduled"}
    assert (await stage.sweep()).cancelled == 3
    assert await stage.states() == {"a": "running", "b": "cancelled", "c": "cancelled", "d": "cancelled"}
    with monkeypatch.context() as patch:
        patch.setattr(control, "go_on_cancelling", dies)
        await stage.deliver(stage.failed(held))
    assert await stage.state() == "cancelling"
    await stage.sweep()
    assert await stage.state() == "cancelled"
    assert (await resolution(stage, "d"))["reason"] == "asked for by hand"


async def test_a_graph_wider_than_a_commit_is_cancelled_in_several(local: Stage) -> None:
    stage = local
    wide = {f"m{number}": [] for number in range(450)}
    await stage.submit(graph(wide))
    held = await stage.claims(*(f"m{number}" for number in range(8)))
    await cancel(stage, reason="x" * limits.REASON_CHARS_MAX)
    assert await stage.state() == "cancelling"
    assert (await stage.queries.status("graph")).counts == {"cancelled": 442, "running": 8}
    await stage.deliver(stage.completed(*held))
    assert await stage.state() == "cancelled"
    assert (await stage.queries.status("graph")).counts == {"cancelled": 450}


async def test_a_task_alone_is_cancelled_blocks_and_can_be_rerun(stage: Stage) -> None:
    """One that waits still waits when it is rerun, and goes on when what it requires completes."""
    await stage.submit(graph(FORKED))
    assert await cancel(stage, "d", reason="not now") == (Outcome.APPLIED, "")
    assert await stage.state() == "blocked"
    assert (await stage.queries.status("graph")).blocked_by == "d"
    assert await cancel(stage, "d") == (Outcome.REPEATED, "the task is exception")
    assert await stage.work() == "blocked"
    assert await stage.states() == {"a": "completed", "b": "completed", "c": "completed", "d": "cancelled"}
    assert (await stage.rerun("d")).outcome is Outcome.APPLIED
    assert await stage.task_state("d") == "pending"
    assert await stage.work() == "finished"
    await stage.check(FORKED)
    kinds = await stage.told(tasks=True)
    assert kinds.count("task-cancelled") == kinds.count("graph-blocked") == kinds.count("graph-unblocked") == 1


async def test_a_task_that_is_rerun_before_its_time_waits_as_it_did(stage: Stage) -> None:
    await stage.submit(graph({"a": [], "b": ["a"]}))
    await cancel(stage, "b")
    assert (await stage.rerun("b")).outcome is Outcome.APPLIED
    assert await stage.states() == {"a": "pending", "b": "unscheduled"}
    assert (await stage.rerun("b", 0)).outcome is Outcome.REPEATED
    late = Cancel(stage.graph_id, ((stage.task_id("b"), 0),))
    (handled,) = await stage.deliver(late)
    assert (handled.answers[0].outcome, handled.answers[0].reason) == (Outcome.STALE, "the task has been rerun since")
    assert await stage.work() == "finished"
    assert stage.executed["b", 1] == 1
    await stage.check({"a": [], "b": ["a"]})


async def test_a_running_task_alone_is_marked_and_its_graph_goes_on(stage: Stage) -> None:
    await stage.submit(graph({"a": [], "b": ["a"], "x": []}))
    held = await stage.claim("a")
    assert await cancel(stage, "a") == (Outcome.APPLIED, "its run is being stopped")
    assert await cancel(stage, "a") == (Outcome.REPEATED, "its run is being stopped")
    assert await stage.state() == "running"
    await stage.deliver(stage.completed(held))
    assert await stage.state() == "blocked"
    assert await stage.states() == {"a": "cancelled", "b": "unscheduled", "x": "pending"}
    await stage.rerun("a")
    assert await stage.work() == "finished"
    row = (await stage.row("a")).columns
    assert (row["state"], row["run"], row["cancel"]) == ("completed", 1, "")


async def test_a_graph_that_is_still_submitted_never_starts(memory: Stage) -> None:
    stage = memory
    await stage.submit(graph({"a": []}))
    row = await stage.graph_row()
    columns = {**row.columns, "state": "submitting"}
    stage.tables.partitions["graph"]["task-graph"] = type(row)(row.key, row.etag, columns)  # type: ignore[attr-defined]
    await cancel(stage)
    assert await stage.state() == "cancelled"


async def test_no_rerun_and_no_extension_comes_behind_the_fence(stage: Stage) -> None:
    await stage.submit(graph({"a": [], "b": []}))
    await stage.fail("a")
    await stage.claim("b")
    await cancel(stage)
    answer = await stage.rerun("a")
    assert (answer.outcome, answer.reason) == (Outcome.REFUSED, "the graph is cancelling")
    assert await stage.states() == {"a": "failed", "b": "running"}


async def test_an_extension_under_way_ends_with_the_fence(memory: Stage) -> None:
    """Accepted, some rows inserted, none linked: its next step finds its request refused, and adds nothing."""
    stage = memory
    await stage.submit(graph({"a": []}))
    await stage.claim("a")
    staged = await stage.stage_extension(extension({f"x{number}": ["a"] for number in range(12)}))
    other = stage.more_handlers()

    async def between() -> None:
        await other.handle(stage.graph_id, [Cancel(stage.graph_id, reason="enough")])

    message = AddTasks(stage.graph_id, staged.request)
    with bounded(CHUNKED):
        with pytest.raises(CrashError):
            await stage.more_handlers(Trap(4, only="commit")).handle(stage.graph_id, [message])
        await stage.more_handlers(between=between).handle(stage.graph_id, [message])
    request = await stage.queries.request(stage.graph_id, staged.request)
    assert (request["state"], request["reason"]) == ("refused", "the graph was cancelled while it was being extended")
    states = await stage.states()
    assert 1 < len(states) < 13, "not in the middle of it"
    assert set(states.values()) == {"running", "cancelled"}
    await stage.deliver(stage.completed(Held(stage.task_id("a"), 0, str((await stage.row("a")).columns["claim"]))))
    assert await stage.state() == "cancelled"
    status = await stage.queries.status("graph")
    assert (status.tasks, status.unresolved) == (len(states), 0)
    assert (await stage.graph_row()).columns["extending"] == ""


async def test_messages_of_before_change_nothing_after(stage: Stage) -> None:
    await stage.submit(graph({"a": [], "b": ["a"]}))
    held = await stage.claim("a")
    await cancel(stage, terminate=True)
    before = await stage.snapshot()
    await stage.deliver(stage.completed(held), stage.failed(held), Rerun(stage.graph_id, ((stage.task_id("a"), 0),)))
    await stage.transition(CancelTask(stage.task_id("b"), "again"))
    await stage.sweep()
    assert await stage.snapshot() == before


# --- the doctor


async def examined(stage: Stage) -> list[tuple[str, str]]:
    """(code, severity) of what the doctor finds."""
    rows = {row.key: row for row in await stage.queries.partition(stage.graph_id)}
    return [(each.code, each.severity) for each in examine(stage.graph_id, rows, stage.clock.now())]


@pytest.mark.parametrize("when", [None, "all-completed"])
async def test_a_second_run_that_ends_while_it_waits_is_nothing_strange(memory: Stage, when: str | None) -> None:
    """It was cancelled before its time, rerun, and its deadline passed before what it requires had completed."""
    stage = memory
    deadline = (stage.clock.now() + timedelta(seconds=60)).isoformat()
    later = {"requires": ["a"], "task": {"deadline": deadline}, **({"when": when} if when else {})}
    await stage.submit(document_from_object({"tasks": {"a": {"task": {}}, "b": later}}))
    await stage.fail("a")
    await cancel(stage, "b")
    assert (await stage.rerun("b")).outcome is Outcome.APPLIED
    assert await stage.task_state("b") == "unscheduled"
    stage.clock.advance(61)
    await stage.transition(Overdue(stage.task_id("b")))
    row = await stage.row("b")
    assert (row.columns["state"], row.columns["run"], row.columns["requiresLeft"] != "[]") == ("exception", 1, True)
    assert await examined(stage) == []


async def test_the_doctor_finds_nothing_wrong_and_goes_on_with_what_was_left(
    memory: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = memory
    await stage.submit(graph({**FORKED, "x": []}))
    held = await stage.claim("a")
    await cancel(stage, "d")
    assert await examined(stage) == [], "a task that was cancelled before its time is nothing strange"

    async def dies(*_: object, **__: object) -> int:
        return 0

    with monkeypatch.context() as patch:
        patch.setattr(control, "go_on_cancelling", dies)
        await stage.deliver(Cancel(stage.graph_id))
    assert await examined(stage) == [("cancel-due", "due")]
    report = await repair_graph(stage.handlers, stage.poison, stage.graph_id)
    assert [each.code for each in report.repaired] == ["cancel-due"]
    assert await examined(stage) == [], "its worker stops it"
    assert any("1 run is being stopped, the oldest on worker w" in cause.text for cause in report.causes)
    with monkeypatch.context() as patch:
        patch.setattr(control, "go_on_cancelling", dies)
        await stage.hand_back(held)
    assert await examined(stage) == [("cancel-due", "due")]
    await repair_graph(stage.handlers, stage.poison, stage.graph_id)
    assert await stage.state() == "cancelled"
    assert await examined(stage) == []
    row = await stage.row("a")
    stage.tables.partitions["graph"][row.key] = Row(row.key, row.etag, {**row.columns, "state": "pending"})  # type: ignore[attr-defined]
    assert ("cancelled-early", "wrong") in await examined(stage)
