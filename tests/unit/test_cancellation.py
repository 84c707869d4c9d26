"""Cancelling, fact by fact: what the rows and the journal say of each step, and who is told (P14)."""

import json
from datetime import timedelta
from typing import Any

import pytest

from taskgraph.model import limits
from taskgraph.model.columns import seen_state
from taskgraph.model.ids import GRAPH
from taskgraph.model.states import GraphState
from taskgraph.protocol.cancel import CancelGraph, CancelTask, PublishCancelled
from taskgraph.protocol.context import Cancelling, GraphEnded, Outcome, Stop
from taskgraph.protocol.decide import Decision, Item
from taskgraph.protocol.relays import Skip
from taskgraph.protocol.runs import Completed, Failed, HandBack, LeaseLost
from tests.unit.transition_rows import NOW, Rows, changed, decided, events, rows_of, running, task_id, written

A, B = task_id("a"), task_id("b")
OWN, BELOW = f"task:{A}", f"task:{B}"
LATE = "deadline-exceeded"
ENDED = "2026-01-01T11:59:00+00:00"
WHY = {"reason": "why"}
WHY_LATE = {"reason": "why", "code": LATE}
GONE = (GraphEnded(GraphState.CANCELLED),)

AT_WORK: list[tuple[str, dict[str, str]]] = [("cancelled", WHY), (LATE, WHY_LATE)]
"""A code, and what the journal says of a task that is cancelled with it while its graph goes on."""


def pair(*, graph: str = "running", **more: Any) -> Rows:
    """a, and b that waits for it. more: columns of the graph row."""
    return changed(rows_of({"a": [], "b": ["a"]}), GRAPH, state=graph, **more)


def at_work(*, graph: str = "running", policy: str = "block", **more: Any) -> Rows:
    """a in its run 2, held under the claim c; b waits for it. more: columns of a."""
    rows = running(pair(graph=graph, failurePolicy=policy), "a", run=2)
    return changed(rows, "a", **more) if more else rows


def said(decision: Decision) -> tuple[Outcome, str]:
    (answer,) = decision.answers
    assert answer.error is None
    return answer.outcome, answer.reason


def resolution(decision: Decision, key: str = OWN) -> dict[str, Any]:
    found = json.loads(written(decision)[key]["resolution"])
    assert isinstance(found, dict)
    return found


def fact(kind: str, label: str = "a", run: int = 0, **more: Any) -> dict[str, Any]:
    return {"event": kind, "task": task_id(label), "label": label, "run": run, **more}


# --- a graph ------------------------------------------------------------------------------------------------------


def test_a_graph_that_never_began_ends_at_once_and_says_why() -> None:
    decision = decided(pair(graph="submitting"), CancelGraph("why"))
    assert written(decision)[GRAPH] == {"state": "cancelled", "reason": "why", "cancelled": NOW}
    assert events(decision) == [{"event": "graph-cancelled", "reason": "why"}]
    assert (said(decision), decision.effects) == ((Outcome.APPLIED, ""), GONE)


@pytest.mark.parametrize(("tasks", "more"), [(None, {}), (7, {"tasks": 7})])
def test_the_end_gives_the_reason_of_the_fence(tasks: int | None, more: dict[str, int]) -> None:
    decision = decided(pair(graph="cancelling", reason="why"), PublishCancelled(tasks))
    assert written(decision)[GRAPH] == {"state": "cancelled", "cancelled": NOW, **more}
    assert events(decision) == [{"event": "graph-cancelled", "reason": "why"}]
    assert (said(decision), decision.effects) == ((Outcome.APPLIED, ""), GONE)


@pytest.mark.parametrize(("item", "words"), [(CancelGraph("x"), "it is cancelled already"), (PublishCancelled(), "")])
def test_a_graph_that_is_cancelled_is_said_to_have_ended_again(item: Item, words: str) -> None:
    """Whoever ended it may have died before it left the index of live graphs."""
    decision = decided(pair(graph="cancelled"), item)
    assert (said(decision), decision.effects, decision.changes) == ((Outcome.REPEATED, words), GONE, ())


@pytest.mark.parametrize(("code", "coded"), [("cancelled", {}), (LATE, {"code": LATE})])
@pytest.mark.parametrize(("at_once", "ended"), [(False, {}), (True, {"terminate": True})])
def test_the_fence_says_why_and_how_to_end_what_is_left(
    code: str, coded: dict[str, str], at_once: bool, ended: dict[str, bool]
) -> None:
    decision = decided(pair(), CancelGraph("why", code, at_once))
    assert written(decision)[GRAPH] == {"state": "cancelling", "reason": "why", **coded, **ended}
    assert events(decision) == [{"event": "graph-cancelling", "reason": "why", **coded, **ended}]
    assert (said(decision), decision.effects) == ((Outcome.APPLIED, ""), (Cancelling(fenced=True),))


def test_nothing_is_published_without_a_fence() -> None:
    decision = decided(pair(), PublishCancelled(7))
    assert (said(decision), decision.effects, decision.changes) == ((Outcome.STALE, ""), (), ())


# --- a task that does not run -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("code", "told"), AT_WORK)
@pytest.mark.parametrize("label", ["a", "b"])
def test_a_task_that_has_not_begun_is_resolved_at_once(code: str, told: dict[str, str], label: str) -> None:
    decision = decided(pair(), CancelTask(task_id(label), "why", code))
    row = written(decision)[f"task:{task_id(label)}"]
    assert (row.pop("state"), row.pop("resolved")) == ("exception", NOW)
    assert json.loads(row.pop("resolution")) == {"failed": True, "cancelled": True, "code": code, "reason": "why"}
    assert row == {}
    assert events(decision) == [
        fact("task-cancelled", label, **told),
        {"event": "graph-blocked", "task": task_id(label), "label": label, "reason": "why"},
    ]
    assert said(decision) == (Outcome.APPLIED, "")


def test_the_journal_of_a_graph_that_is_cancelled_gives_its_reason_once() -> None:
    decision = decided(pair(graph="cancelling"), CancelTask(A, "why", LATE, whole=True))
    assert events(decision) == [fact("task-cancelled")]
    assert resolution(decision) == {"failed": True, "cancelled": True, "code": LATE, "reason": "why"}
    assert BELOW not in written(decision)


def test_a_task_of_a_graph_that_is_still_submitted_is_not_cancelled() -> None:
    decision = decided(pair(graph="submitting"), CancelTask(A, "why"))
    assert (said(decision), decision.changes) == ((Outcome.REFUSED, "the graph is still being submitted"), ())


@pytest.mark.parametrize(
    ("asked", "outcome"), [(-1, Outcome.APPLIED), (0, Outcome.STALE), (1, Outcome.STALE), (2, Outcome.APPLIED)]
)
def test_who_asked_before_a_rerun_is_too_late(asked: int, outcome: Outcome) -> None:
    decision = decided(changed(pair(), "a", manualReruns=2), CancelTask(A, "why", reruns=asked))
    assert said(decision) == (outcome, "" if outcome == Outcome.APPLIED else "the task has been rerun since")


@pytest.mark.parametrize(
    ("state", "text", "outcome"),
    [
        ("exception", '{"failed":true,"cancelled":true}', Outcome.REPEATED),
        ("exception", '{"failed":true}', Outcome.STALE),
        ("exception", '{"cancelled":"yes"}', Outcome.STALE),
        ("exception", "", Outcome.STALE),
        ("exception", "{", Outcome.STALE),
        ("exception", "[]", Outcome.STALE),
        ("completed", '{"cancelled":true}', Outcome.STALE),
    ],
)
def test_a_task_that_is_over_was_cancelled_or_comes_too_late_for_it(state: str, text: str, outcome: Outcome) -> None:
    decision = decided(changed(pair(), "a", state=state, resolution=text), CancelTask(A, "why"))
    assert (said(decision), decision.changes) == ((outcome, f"the task is {state}"), ())
    seen = "cancelled" if outcome is Outcome.REPEATED else state
    assert seen_state({"state": state, "resolution": text}.get) == seen


# --- a task that runs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("code", "told"), AT_WORK)
def test_a_task_that_runs_is_marked_and_its_worker_told(code: str, told: dict[str, str]) -> None:
    decision = decided(at_work(), CancelTask(A, "why", code))
    mark = {"cancel": "why"} if code == "cancelled" else {"cancel": "why", "cancelCode": code}
    assert written(decision)[OWN] == mark
    assert events(decision) == [fact("task-cancelling", run=2, **told)]
    assert decision.effects == (Stop(A, 2, "c", "why", at_once=False),)
    assert said(decision) == (Outcome.APPLIED, "its run is being stopped")


def test_the_journal_gives_no_reason_for_each_run_of_a_graph_that_is_cancelled() -> None:
    decision = decided(at_work(graph="cancelling"), CancelTask(A, "why", whole=True))
    assert events(decision) == [fact("task-cancelling", run=2)]


def test_a_mark_keeps_its_first_reason_and_its_worker_is_told_that_again() -> None:
    decision = decided(at_work(cancel="first"), CancelTask(A, "second"))
    assert (said(decision), decision.changes) == ((Outcome.REPEATED, "its run is being stopped"), ())
    assert decision.effects == (Stop(A, 2, "c", "first", at_once=False),)


@pytest.mark.parametrize(
    ("marked", "reason", "code"),
    [
        ({}, "why", LATE),
        ({"cancel": "first"}, "first", "cancelled"),
        ({"cancel": "first", "cancelCode": "fail-fast"}, "first", "fail-fast"),
    ],
)
def test_a_run_that_nobody_waits_for_is_resolved_with_what_was_asked_first(
    marked: dict[str, str], reason: str, code: str
) -> None:
    decision = decided(at_work(**marked), CancelTask(A, "why", LATE, at_once=True))
    wanted = {"failed": True, "cancelled": True, "code": code, "reason": reason, "terminated": True}
    assert resolution(decision) == wanted
    said_of_code = {} if code == "cancelled" else {"code": code}
    assert events(decision)[0] == fact("task-cancelled", run=2, reason=reason, **said_of_code)
    assert decision.effects == (Stop(A, 2, "c", reason, at_once=True),)
    assert said(decision) == (Outcome.APPLIED, "")


def test_a_graph_that_waits_for_no_run_says_so_in_each_resolution_and_once_in_its_journal() -> None:
    decision = decided(at_work(graph="cancelling"), CancelTask(A, "why", at_once=True, whole=True))
    assert resolution(decision)["terminated"] is True
    assert events(decision) == [fact("task-cancelled", run=2)]


# --- the end of a run that was marked -----------------------------------------------------------------------------


def ends_of_a_run() -> list[Any]:
    """How a run may end, what is kept of it, and when it ended."""
    reported = {"failed": False, "reason": "broke", "exitCode": 3, "logsUrl": "l", "resultUrl": "r", "other": 1}
    kept = {"exitCode": 3, "logsUrl": "l", "resultUrl": "r"}
    before = NOW.replace(hour=11, minute=59)
    return [
        pytest.param(Completed(A, 2, "c", ENDED, reported), {"outcome": "completed"}, kept, before, id="completed"),
        pytest.param(Failed(A, 2, "c", ENDED, reported), {"outcome": "failed"}, kept, before, id="failed"),
        pytest.param(HandBack(A, 2, "c", "broke"), {"outcome": "handed-back"}, {}, NOW, id="handed-back"),
    ]


@pytest.mark.parametrize(("item", "outcome", "kept", "ended"), ends_of_a_run())
@pytest.mark.parametrize(("code", "told"), AT_WORK)
def test_a_marked_run_ends_cancelled_whatever_its_worker_made_of_it(
    item: Item, outcome: dict[str, str], kept: dict[str, Any], ended: Any, code: str, told: dict[str, str]
) -> None:
    marked = {"cancel": "why"} if code == "cancelled" else {"cancel": "why", "cancelCode": code}
    decision = decided(at_work(**marked), item)
    row = written(decision)[OWN]
    assert (row["state"], row["ended"], row["resolved"]) == ("exception", ended, NOW)
    reported = {**outcome, "reason": "broke"}
    wanted = {"failed": True, "cancelled": True, "code": code, "reason": "why", **kept, "reported": reported}
    assert resolution(decision) == wanted
    assert [each["event"] for each in events(decision)] == ["task-cancelled", "graph-blocked"]
    assert events(decision)[0] == fact("task-cancelled", run=2, **told)
    assert said(decision) == (Outcome.APPLIED, "cancelled")
    assert Cancelling() not in decision.effects


def test_the_reason_that_a_worker_gives_is_kept_as_far_as_it_fits() -> None:
    long = Completed(A, 2, "c", ENDED, {"reason": "x" * (limits.REASON_CHARS_MAX + 1)})
    reported = resolution(decided(at_work(cancel="why"), long))["reported"]
    assert reported == {"outcome": "completed", "reason": "x" * limits.REASON_CHARS_MAX}


def test_a_worker_that_does_not_say_when_its_run_ended_ends_it_now() -> None:
    decision = decided(at_work(cancel="why"), Completed(A, 2, "c", "soon", {}))
    assert written(decision)[OWN]["ended"] == NOW


def test_a_lease_that_ends_is_the_end_of_a_marked_run() -> None:
    rows = at_work(cancel="why", leaseUntil=NOW - timedelta(seconds=1))
    assert resolution(decided(rows, LeaseLost(A, 2, "c")))["reported"]["outcome"] == "lost"


def test_the_end_of_a_run_may_be_what_a_cancelled_graph_waited_for() -> None:
    decision = decided(at_work(graph="cancelling", cancel="why"), Completed(A, 2, "c", ENDED, {}))
    assert events(decision) == [fact("task-cancelled", run=2)]
    assert decision.effects == (Cancelling(),)
    assert BELOW not in written(decision), "whoever would be told is cancelled, too"


# --- that end, told again -----------------------------------------------------------------------------------------


def over(**more: Any) -> Rows:
    """a was marked in run 2, and that run has ended; b was not told."""
    graph = {name: more.pop(name) for name in ("graph", "policy") if name in more}
    return at_work(**graph, **{"state": "exception", "cancel": "why", "resolution": '{"cancelled":true}', **more})


@pytest.mark.parametrize(
    ("rows", "outcome"),
    [
        (over(), Outcome.REPEATED),
        (over(run=3), Outcome.STALE),
        (over(claim="d"), Outcome.STALE),
        (over(state="failed"), Outcome.STALE),
        (over(cancel=""), Outcome.STALE),
    ],
)
def test_only_who_held_the_marked_run_is_told_of_its_end_again(rows: Rows, outcome: Outcome) -> None:
    decision = decided(rows, Completed(A, 2, "c", ENDED, {}))
    assert (decision.answers[0].outcome, decision.changes, decision.effects) == (outcome, (), ())


def test_a_cancelled_graph_is_gone_on_with_when_the_end_of_a_run_is_told_again() -> None:
    decision = decided(over(graph="cancelling", policy="continue"), Completed(A, 2, "c", ENDED, {}))
    assert (decision.changes, decision.effects) == ((), (Cancelling(),))


@pytest.mark.parametrize(("policy", "told"), [("continue", True), ("block", False)])
def test_dependents_are_told_again_where_they_go_on_after_failures(policy: str, told: bool) -> None:
    decision = decided(over(policy=policy), Completed(A, 2, "c", ENDED, {}))
    assert said(decision) == (Outcome.REPEATED, "")
    assert (BELOW in written(decision)) is told
    if told:
        cause = json.loads(written(decision)[BELOW]["failedBy"])
        assert cause == {"label": "a", "taskId": A, "state": "cancelled"}
        assert written(decision)[BELOW]["requiresLeft"] == "[]"


# --- where dependents go on after failures ------------------------------------------------------------------------


@pytest.mark.parametrize(("code", "told"), AT_WORK)
def test_what_waits_in_a_graph_that_goes_on_is_marked_until_its_turn(code: str, told: dict[str, str]) -> None:
    rows = pair(failurePolicy="continue")
    decision = decided(rows, CancelTask(B, "why", code))
    mark = {"cancel": "why"} if code == "cancelled" else {"cancel": "why", "cancelCode": code}
    assert written(decision)[BELOW] == mark
    assert events(decision) == [fact("task-cancelling", "b", **told)]
    assert (said(decision)[0], decision.effects) == (Outcome.APPLIED, ())
    assert said(decision)[1] == "it is cancelled once all that it requires has ended"
    again = decided(changed(rows, "b", **mark), CancelTask(B, "other"))
    assert (again.changes, again.answers[0].outcome) == ((), Outcome.REPEATED)


def test_what_stands_ready_in_a_graph_that_goes_on_is_cancelled_at_once() -> None:
    decision = decided(pair(failurePolicy="continue"), CancelTask(A, "why"))
    assert written(decision)[OWN]["state"] == "exception"
    assert json.loads(written(decision)[BELOW]["failedBy"])["state"] == "cancelled"


def test_what_waits_is_resolved_when_the_whole_graph_is_cancelled_with_the_reason_of_its_mark() -> None:
    rows = changed(pair(graph="cancelling", failurePolicy="continue"), "b", cancel="first", cancelCode=LATE)
    decision = decided(rows, CancelTask(B, "why", whole=True))
    assert resolution(decision, BELOW) == {"failed": True, "cancelled": True, "code": LATE, "reason": "first"}


@pytest.mark.parametrize(("code", "told"), AT_WORK)
def test_what_was_marked_while_it_waited_ends_when_all_that_it_requires_has(code: str, told: dict[str, str]) -> None:
    mark = {"cancel": "why"} if code == "cancelled" else {"cancel": "why", "cancelCode": code}
    rows = changed(pair(failurePolicy="continue"), "b", due="skip", requiresLeft="[]", **mark)
    decision = decided(rows, Skip(B))
    row = written(decision)[BELOW]
    assert (row["state"], row["resolved"], row["due"]) == ("exception", NOW, "")
    assert resolution(decision, BELOW) == {"failed": True, "cancelled": True, "code": code, "reason": "why"}
    assert events(decision)[0] == fact("task-cancelled", "b", **told)
