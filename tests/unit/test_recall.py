"""Reruns of what dependents have counted, decision by decision: what is taken back, in which order, by which etags."""

import json
from datetime import timedelta

from taskgraph.documents.nodes import TaskNode
from taskgraph.model.ids import GRAPH, row_key
from taskgraph.protocol.context import GraphRevived, Outcome, Recalled, Stop
from taskgraph.protocol.decide import Decision, decide
from taskgraph.protocol.lifecycle import BeginDeletion
from taskgraph.protocol.recall import ManualRerun, Ready, Recall
from taskgraph.protocol.runs import Completed
from taskgraph.storage.tables import Delete
from tests.unit.test_conditions import ends, graph, node, rows_of, states
from tests.unit.transition_rows import NOW, Rows, apply, changed, columns, decided, events, task_id

CHAIN = graph(node("a"), node("b", "a"), node("c", "b"))


def played(tasks: dict[str, TaskNode], *labels: str, policy: str = "block") -> Rows:
    """The rows after these tasks have completed, one after the other."""
    rows = rows_of(tasks, policy=policy)
    for label in labels:
        rows, _, _ = ends(rows, label, first=1 + sum(key.startswith("event:") for key in rows))
    return rows


def again(rows: Rows, label: str, *, changes_max: int | None = None) -> Decision:
    """The first commit of a rerun of a task in its first run."""
    decision = decide(
        rows,
        [ManualRerun(task_id(label), 0, "mended")],
        now=NOW,
        operation="op",
        sequence=1 + sum(key.startswith("event:") for key in rows),
        completed=9,
        changes_max=changes_max,
    )
    assert isinstance(decision, Decision)
    return decision


def test_what_has_gone_on_waits_again_and_a_graph_that_has_ended_goes_on() -> None:
    rows = played(CHAIN, "a", "b", "c")
    assert columns(rows, GRAPH)["state"] == "finished"
    decision = again(rows, "a")
    rows = apply(rows, decision)
    assert states(rows) == {"a": "pending", "b": "unscheduled", "c": "unscheduled"}
    assert [columns(rows, label)["requiresLeft"] for label in "bc"] == [f'["{task_id("a")}"]', f'["{task_id("b")}"]']
    graph_row = columns(rows, GRAPH)
    assert (graph_row["state"], graph_row["reopened"], graph_row["recalls"]) == ("running", 1, 0)
    assert "finished" not in graph_row
    assert GraphRevived(ended=True) in decision.effects
    assert Recalled() not in decision.effects  # all of it is in this commit
    told = [(each["event"], each.get("label"), each.get("was")) for each in events(decision)]
    assert told == [
        ("graph-running", None, "finished"),
        ("task-rerun", "a", "completed"),
        ("task-rerun", "b", "completed"),
        ("task-rerun", "c", "completed"),
    ]
    (event,) = [each for each in decision.changes if each.key.startswith("event:")]
    assert event.columns["completed"] == 6  # type: ignore[union-attr]


def test_what_waits_still_is_left_as_it_is() -> None:
    rows = apply(played(CHAIN, "a"), again(played(CHAIN, "a"), "a"))
    assert states(rows) == {"a": "pending", "b": "unscheduled", "c": "unscheduled"}
    assert [columns(rows, label)["run"] for label in "abc"] == [1, 1, 0]  # b stood ready


def test_a_run_is_stopped_and_does_not_count() -> None:
    rows = changed(played(CHAIN, "a"), "b", state="running", claim="x", worker="w")
    decision = again(rows, "a")
    assert Stop(task_id("b"), 0, "x", "what it requires is run again", True) in decision.effects
    rows = apply(rows, decision)
    (answer,) = decided(rows, Completed(task_id("b"), 0, "x", NOW.isoformat(), {"failed": False}), sequence=9).answers
    assert answer.outcome is Outcome.STALE


def test_over_several_commits_nothing_begins_before_the_last() -> None:
    rows = played(graph(node("a"), node("b", "a"), node("c", "a"), node("d", "b", "c")), "a", "b", "c", "d")
    decision = again(rows, "a", changes_max=4)
    first = apply(rows, decision)
    assert states(first)["a"] == "unscheduled"
    assert columns(first, "a")["due"] == "recall"
    waits = decided(first, Ready(task_id("a")), sequence=99)
    assert waits.changes == ()
    left = list(decision.left)
    rows, number = first, 50
    while left:
        step = decide(rows, left, now=NOW, operation="op", sequence=number, completed=9, changes_max=4)
        assert isinstance(step, Decision)
        rows, left, number = apply(rows, step), list(step.left), number + 1
    assert Recalled() in step.effects
    assert columns(rows, GRAPH)["recalls"] == 0
    begun = decided(rows, Ready(task_id("a")), sequence=99)
    assert states(apply(rows, begun)) == {"a": "pending", "b": "unscheduled", "c": "unscheduled", "d": "unscheduled"}
    assert GRAPH in {each.key for each in begun.changes}  # under its etag: others may have begun another rerun


def test_a_completion_that_comes_again_is_counted_only_if_its_row_is_as_it_was_read() -> None:
    """A handler has read the row before a rerun reset it, and the dependent after that."""
    rows = played(CHAIN, "a", "b")
    reset = apply(rows, again(rows, "a"))
    mixed = {**reset, row_key(task_id("a")): rows[row_key(task_id("a"))]}
    claim = str(columns(rows, "a")["claim"])
    decision = decided(mixed, Completed(task_id("a"), 0, claim, NOW.isoformat(), {"failed": False}), sequence=99)
    (guard,) = [each for each in decision.changes if each.key == row_key(task_id("a"))]
    assert guard.etag == rows[row_key(task_id("a"))].etag  # type: ignore[union-attr]  # the store has another by now


def test_a_recall_of_what_an_edit_has_taken_away_or_of_what_is_done_changes_nothing() -> None:
    rows = played(CHAIN, "a")
    for gone in (Recall(task_id("a")), Ready(task_id("a"))):
        assert decided(rows, gone, sequence=9).changes == ()
    assert decided({**rows, "join:x:1": None}, Recall("join:x:1"), sequence=9).changes == ()


def test_deadlines_that_have_passed_are_dropped_with_the_end_that_they_were_for() -> None:
    past, later = NOW - timedelta(seconds=1), NOW + timedelta(seconds=60)
    rows = changed(played(CHAIN, "a", "b", "c"), GRAPH, deadline=past)
    rows = changed(changed(rows, "a", deadline=past), "b", deadline=later)
    rows = apply(rows, again(rows, "a"))
    assert "deadline" not in columns(rows, GRAPH)
    assert "deadline" not in columns(rows, "a")
    assert columns(rows, "b")["deadline"] == later
    assert columns(rows, GRAPH)["nextDeadline"] == later


def test_a_graph_that_has_gone_on_since_it_was_archived_is_not_deleted() -> None:
    rows = changed(played(CHAIN, "a", "b", "c"), GRAPH, operation="archived")
    until = NOW + timedelta(days=30)
    (gone,) = decided(rows, BeginDeletion(until, operation="archived"), sequence=9).answers
    assert gone.outcome is Outcome.APPLIED
    (kept,) = decided(rows, BeginDeletion(until, operation="before"), sequence=9).answers
    assert (kept.outcome, kept.reason) == (
        Outcome.REFUSED,
        "it has gone on since it was archived; archive it again",
    )


def test_a_fact_names_no_column_that_a_later_item_has_put_back() -> None:
    """A rerun marks a task below it as to be recalled, and the recall of the same commit takes the mark away."""
    decision = again(changed(played(CHAIN, "a", "b"), "b", due=""), "a")  # as a rerun before has left it
    written = {each.key: each.columns for each in decision.changes if not isinstance(each, Delete)}
    (facts,) = [json.loads(str(each["events"])) for key, each in written.items() if key.startswith("event:")]
    for fact in facts:
        assert fact["changed"] == sorted(written[f"task:{fact['task']}"].keys() - {"operation"})
    assert "due" not in facts[1]["changed"]
