"""Edits, decision by decision: what is refused and in which words, what is stale, and what stands on the rows after."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from taskgraph.model import limits
from taskgraph.model.ids import GRAPH, ids_text
from taskgraph.protocol.context import Outcome
from taskgraph.protocol.decide import Answer
from taskgraph.protocol.edit import EditGraph, TaskEdit, ended_in, has_started, listed, not_editable
from taskgraph.protocol.extension import RefuseRequest
from taskgraph.protocol.rows import Draft
from taskgraph.protocol.wiring import Link
from taskgraph.storage.tables import Insert, Row
from tests.unit.transition_rows import NOW, Rows, changed, columns, decided, run_down, task_id
from tests.unit.transition_rows import rows_of as fresh

HEAD = "request:r"


def task(**more: Any) -> Draft:
    return Draft("task:x", {"label": "a", "state": "pending", **more}, "e")


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({}, ""),
        ({"state": "unscheduled"}, ""),
        ({"cancel": "c"}, "“a” is being cancelled"),
        ({"due": "skip"}, "“a” is being skipped"),
        ({"run": 1}, "“a” has been started: it is pending in run 1"),
        ({"state": "unscheduled", "run": 2}, "“a” has been started: it is unscheduled in run 2"),
        ({"claim": "c"}, "“a” has been started: it is pending in run 0"),
        ({"state": "running"}, "“a” has been started: it is running"),
        ({"state": "failed"}, "“a” has been started: it is failed"),
        ({"state": "skipped"}, "“a” was skipped"),
        ({"state": "exception", "resolution": '{"failed":true}'}, "“a” has been started: it is exception"),
        ({"state": "exception", "resolution": '{"cancelled":true}', "cancel": "c"}, "“a” was cancelled"),
    ],
)
def test_what_has_started_says_how_far_it_is(more: dict[str, Any], why: str) -> None:
    assert has_started(task(**more)) == why


def test_what_failed_for_good_is_edited_unless_it_is_cancelled_or_its_dependents_have_been_told() -> None:
    graph, going_on = Draft(GRAPH, {}, "e"), Draft(GRAPH, {"failurePolicy": "continue"}, "e")
    told = "“a” has ended, and its dependents have acted on it, as its failure is passed on to them"
    for state in ("failed", "exception"):
        assert not_editable(task(state=state, run=2), graph) == ""
        assert not_editable(task(state=state, run=2), going_on) == told
        assert not_editable(task(state=state, cancel="c"), graph) == "“a” is being cancelled"
        assert ended_in(task(state=state, run=2)) == 2
    assert not_editable(task(state="running"), graph) == "“a” has been started: it is running"
    assert ended_in(task(state="running", run=2)) is None


def test_some_names_are_listed_and_the_rest_by_number() -> None:
    assert listed(["b", "a"]) == "“a”, “b”"
    assert listed("edcba") == "“a”, “b”, “c”, “d”, “e”"
    assert listed("fedcba") == "“a”, “b”, “c”, “d”, “e” and 1 more"


def with_request(rows: Rows, **more: Any) -> Rows:
    return {**rows, HEAD: Row(HEAD, "h", {"schema": 1, "state": "staged", "tasks": 1, **more})}


def edit(*edits: TaskEdit, **more: Any) -> EditGraph:
    empty: dict[str, Any] = dict.fromkeys(("delete", "cut", "lost", "links", "leaves", "inserts", "columns"), ())
    return EditGraph("r", **{"revision": 0, "edits": edits, "tasks": 0, "edges": 0, "fact": {}, **empty, **more})


def answered(rows: Rows, item: EditGraph | RefuseRequest) -> tuple[Answer, Any]:
    decision = decided(rows, item)
    (answer,) = decision.answers
    heads = [each for each in decision.changes if each.key == HEAD]
    return answer, (heads[0].columns if heads else {})  # type: ignore[union-attr]


@pytest.fixture
def rows() -> Rows:
    return with_request(fresh({"a": [], "b": ["a"]}))


A = TaskEdit(task_id("a"), {"reruns": 1})


@pytest.mark.parametrize("state", ["running", "blocked"])
def test_an_edit_that_is_made_says_what_became_of_it(rows: Rows, state: str) -> None:
    rows = changed(rows, GRAPH, state=state, revision=4)
    answer, head = answered(with_request(rows, unchanged=True, tasks=3), edit(A, revision=4, fact={"updated": ["a"]}))
    assert (answer.outcome, answer.reason) == (Outcome.APPLIED, "")
    assert dict(head) == {
        "state": "done",
        "answered": NOW,
        "revision": 5,
        "unchanged": False,
        "tasks": 1,
        **_stamp(head),
    }
    _, head = answered(rows, edit(A, revision=4))
    assert {"unchanged", "tasks"}.isdisjoint(head), "what is so is not written"


def _stamp(head: Any) -> dict[str, Any]:
    return {name: head[name] for name in ("operation",) if name in head}


def test_an_edit_that_changes_nothing_is_answered_and_is_no_revision(rows: Rows) -> None:
    answer, head = answered(rows, edit())
    assert (answer.outcome, answer.reason) == (Outcome.APPLIED, "it changes nothing")
    assert (head["state"], head["answered"], head["revision"], head["unchanged"]) == ("done", NOW, 0, True)


@pytest.mark.parametrize(
    ("key", "more", "item", "why"),
    [
        (GRAPH, {"state": "finished"}, edit(A), "the graph is finished; only one that runs or is blocked is edited"),
        ("a", {"state": "running", "claim": "c"}, edit(A), "“a” has been started: it is running"),
        (
            "b",
            {"run": 1},
            edit(A, delete=(f"task:{task_id('b')}",)),
            "“b” has been started: it is unscheduled in run 1",
        ),
    ],
)
def test_an_edit_is_refused_with_a_reason_that_stands_on_its_request(
    rows: Rows, key: str, more: dict[str, Any], item: EditGraph, why: str
) -> None:
    answer, head = answered(changed(rows, key, **more), item)
    assert (answer.outcome, answer.reason) == (Outcome.REFUSED, why)
    assert (head["state"], head["reason"], head["answered"]) == ("refused", why, NOW)


@pytest.mark.parametrize(
    ("key", "more", "why"),
    [
        (GRAPH, {"revision": 1}, "the graph has changed since"),
        (GRAPH, {"extending": "other"}, "the graph has changed since"),
        ("a", {"state": "failed", "run": 1}, "the task has come to its end since"),
    ],
)
def test_an_edit_that_was_planned_for_another_graph_is_stale(
    rows: Rows, key: str, more: dict[str, Any], why: str
) -> None:
    answer, head = answered(changed(rows, key, **more), edit(A))
    assert (answer.outcome, answer.reason, head) == (Outcome.STALE, why, {})


def test_an_answer_is_given_once(rows: Rows) -> None:
    done = with_request(rows, state="done")
    for item in (edit(A), RefuseRequest("r", "no", 0)):
        answer, head = answered(done, item)
        assert (answer.outcome, head) == (Outcome.REPEATED, {})
    assert answered(done, edit(A))[0].reason == ""
    answer, head = answered(rows, RefuseRequest("r", "no", 1))
    assert (answer.outcome, head) == (Outcome.STALE, {})
    answer, head = answered(rows, RefuseRequest("r", "n" * (limits.REASON_CHARS_MAX + 1), 0))
    assert (answer.outcome, head["reason"]) == (Outcome.REFUSED, "n" * limits.REASON_CHARS_MAX)


def test_an_edit_writes_as_many_rows_as_a_commit_takes_and_no_more() -> None:
    labels = {f"t{number:03}": [] for number in range(limits.COMMIT_CHANGES_MAX - 2)}
    rows = with_request(fresh(labels))  # beside the tasks: the graph, the request, and the fact
    edits = [TaskEdit(task_id(label), {"reruns": 1}) for label in labels]
    answer, head = answered(rows, edit(*edits))
    words = (
        f"it writes {limits.COMMIT_CHANGES_MAX + 1} rows, and one commit takes {limits.COMMIT_CHANGES_MAX}: split it"
    )
    assert (answer.outcome, answer.reason, head["state"]) == (Outcome.REFUSED, words, "refused")
    answer, head = answered(rows, edit(*edits[1:]))
    assert (answer.outcome, head["state"]) == (Outcome.APPLIED, "done")


def test_what_is_required_from_now_on_is_counted_from_the_beginning(rows: Rows) -> None:
    b = f"task:{task_id('b')}"
    rows = changed(rows, "b", failedBy="x", skippedBy="y", optional=ids_text(["z"]))
    named = TaskEdit(task_id("b"), {}, requires=(task_id("a"),), optional=(task_id("a"),))
    after, _, _ = run_down(rows, edit(named))
    found = columns(after, b)
    assert found["requiresLeft"] == found["requires"] == found["optional"] == ids_text([task_id("a")])
    assert (found["failedBy"], found["skippedBy"], found["edited"]) == ("", "", 1)
    after, _, _ = run_down(rows, edit(TaskEdit(task_id("b"), {}, requires=(task_id("a"),))))
    assert columns(after, b)["optional"] == ids_text([])


def test_what_failed_for_good_counts_from_its_next_rerun_on(rows: Rows) -> None:
    rows = changed(changed(rows, "a", state="failed", run=2), GRAPH, state="blocked", failedTasks=1)
    after, effects, _ = run_down(rows, edit(TaskEdit(task_id("a"), {"reruns": 1}, ended=2)))
    assert (columns(after, "a")["state"], columns(after, "a")["reruns"], effects) == ("failed", 1, [])


def test_dependents_that_a_row_cannot_name_any_more_pass_through_a_fork_of_each_edit(rows: Rows) -> None:
    """Named after the edit and the place in it: a later one that makes another is not in its way."""
    a = task_id("a")
    for request in ("r", "s"):
        known = [f"{request}{number:02}" for number in range(limits.DEPENDENTS_MAX)]
        full = with_request(changed(rows, "a", dependents=ids_text(known)))
        full[f"request:{request}"] = Row(f"request:{request}", "h", {"schema": 1, "state": "staged", "tasks": 1})
        wish = replace(edit(A, links=(Link(a, (task_id("b"),)),)), request=request)
        after, _, _ = run_down(full, wish)
        fork = f"fork:{a}:{request}-0"
        assert columns(after, "a")["dependents"] == ids_text([fork, task_id("b")])
        assert columns(after, fork)["dependents"] == ids_text(known)


def test_a_task_that_stands_ready_is_sent_again_unless_it_waits_again(rows: Rows) -> None:
    earlier = NOW - timedelta(hours=1)
    rows = changed(rows, "a", pendingSince=earlier)
    after, effects, _ = run_down(rows, edit(A))
    assert (columns(after, "a")["state"], columns(after, "a")["pendingSince"]) == ("pending", earlier)
    assert [task_id("a") in repr(each) for each in effects] == [True]
    waits = TaskEdit(task_id("a"), {}, requires=(task_id("b"),))
    after, effects, _ = run_down(rows, edit(waits))
    assert (columns(after, "a")["state"], effects) == ("unscheduled", [])
    after, effects, _ = run_down(rows, edit(TaskEdit(task_id("b"), {}, requires=())))
    assert columns(after, "b")["state"] == "pending"


def test_the_graph_waits_for_what_tells_nobody_any_more(rows: Rows) -> None:
    """By a join of its own where its row can name no more."""
    a, b = task_id("a"), task_id("b")
    gone = edit(delete=(f"task:{b}",), cut=((a, b),), leaves=(a,), tasks=-1, edges=-1)
    (change,) = [each for each in decided(rows, gone).changes if each.key == f"task:{a}"]
    assert change.columns["dependents"] == ids_text([GRAPH])  # type: ignore[union-attr]
    names = [f"x{number:03}" for number in range(limits.GRAPH_REQUIRES_MAX)]
    (change,) = [
        each
        for each in decided(changed(rows, GRAPH, requires=ids_text(names[1:])), gone).changes
        if each.key == f"task:{a}"
    ]
    assert change.columns["dependents"] == ids_text([GRAPH])  # type: ignore[union-attr]
    found = decided(changed(rows, GRAPH, requires=ids_text(names), schema=2), gone).changes
    (join,) = [each for each in found if isinstance(each, Insert) and each.key.startswith("join:")]
    assert (join.key, join.columns["schema"]) == (f"join:{GRAPH}:r", 2)
    (change,) = [each for each in found if each.key == f"task:{a}"]
    assert change.columns["dependents"] == ids_text([join.key])  # type: ignore[union-attr]
    (fact,) = [each for each in found if each.key.startswith("event:")]
    (told,) = json.loads(str(fact.columns["events"]))  # type: ignore[union-attr]
    assert (told["event"], told["request"], told["revision"]) == ("graph-edited", "r", 1)
    assert "dependents" in told["changed"], "of every row"
