"""Failure policy `continue`: what dependents make of how their requirements ended, decision by decision."""

import itertools
import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from taskgraph.documents.nodes import GraphDocument, TaskNode
from taskgraph.model import limits
from taskgraph.model.columns import Value
from taskgraph.model.errors import IntegrityError
from taskgraph.model.ids import GRAPH, ids_text, row_key
from taskgraph.model.states import When
from taskgraph.protocol.conditions import (
    COMPLETED,
    Ending,
    ending_of,
    failure_of,
    in_words,
    keep_ending,
    meets,
    skip_of,
    skip_resolution,
)
from taskgraph.protocol.context import GraphEnded, Outcome
from taskgraph.protocol.decide import Item
from taskgraph.protocol.layout import GraphLayout
from taskgraph.protocol.recall import ManualRerun
from taskgraph.protocol.relays import Skip
from taskgraph.protocol.rows import Draft
from taskgraph.protocol.runs import Completed, Failed, LeaseLost
from taskgraph.storage.tables import Insert, Row
from tests.outcomes import blamed, expected
from tests.simulation.bounds import NARROW, NARROWER, TIGHT_FAILING, bounded
from tests.unit.transition_rows import LATER, NOW, Rows, apply, changed, columns, decided, events, run_down, task_id

ENDED = NOW.isoformat()


def rows_of(tasks: Mapping[str, TaskNode], *, policy: str = "continue") -> Rows:
    """All rows of a fresh graph that goes on after failures."""
    layout = GraphLayout("g", tasks, now=NOW, digests=dict.fromkeys(tasks, ""), schema=2)
    leaves = ids_text(layout.leaves)
    graph: dict[str, Value] = {
        "schema": 2,
        "state": "running",
        "digest": "digest",
        "created": NOW,
        "failurePolicy": policy,
        "tasks": len(tasks),
        "edges": 0,
        "failedTasks": 0,
        "revision": 0,
        "requires": leaves,
        "requiresLeft": leaves,
    }
    inserts = [Insert(GRAPH, graph), *layout.rows()]
    return {insert.key: Row(insert.key, f"0-{number}", insert.columns) for number, insert in enumerate(inserts)}


def node(label: str, *requires: str, when: str = "all-completed", optional: Sequence[str] = ()) -> TaskNode:
    return TaskNode(label, requires, 0, {}, when, frozenset(optional))


def graph(*nodes: TaskNode) -> dict[str, TaskNode]:
    return {each.label: each for each in nodes}


def states(rows: Rows) -> dict[str, str]:
    return {
        str(row.columns["label"]): str(row.columns["state"])
        for key, row in rows.items()
        if row is not None and key.startswith("task:")
    }


def held(rows: Rows, label: str) -> Rows:
    return changed(rows, label, state="running", claim="c", worker="w", leaseUntil=LATER)


def ends(
    rows: Rows, label: str, *, fails: bool = False, first: int = 1, run: int = 0
) -> tuple[Rows, list[Any], list[Any]]:
    """A task that stands pending is run, and ends."""
    assert columns(rows, label)["state"] == "pending"
    rows = held(rows, label)
    item: Item = Completed(task_id(label), run, "c", ENDED, {"failed": False})
    if fails:
        item = Failed(task_id(label), run, "c", ENDED, {"failed": True, "reason": "x"})
    return run_down(rows, item, first=first)


def played(tasks: Mapping[str, TaskNode], failing: Sequence[str], rng: random.Random) -> Rows:
    """Run a graph to its end, in any order."""
    rows = rows_of(tasks)
    for _ in range(len(tasks) + 1):
        pending = sorted(label for label, state in states(rows).items() if state == "pending")
        if not pending:
            return rows
        chosen = rng.choice(pending)
        first = 1 + sum(key.startswith("event:") for key in rows)
        rows, _, answers = ends(rows, chosen, fails=chosen in failing, first=first)
        assert [answer.outcome for answer in answers] == [Outcome.APPLIED]
        assert columns(rows, GRAPH)["state"] == ("running" if "pending" in states(rows).values() else "finished")
    raise AssertionError("no end")


@pytest.mark.parametrize("when", [*map(str, When), ""])
def test_the_truth_table_of_conditions(when: str) -> None:
    met = {(f, s): meets(when, failed=f, skipped=s) for f in (False, True) for s in (False, True)}
    assert (
        met
        == {
            "all-completed": {(False, False): True, (False, True): False, (True, False): False, (True, True): False},
            "": {(False, False): True, (False, True): False, (True, False): False, (True, True): False},
            "all-resolved": {(False, False): True, (False, True): False, (True, False): True, (True, True): False},
            "any-failed": {(False, False): False, (False, True): False, (True, False): True, (True, True): True},
            "always": {(False, False): True, (False, True): True, (True, False): True, (True, True): True},
        }[when]
    )


def random_tasks(rng: random.Random, size: int, density: float = 0.4) -> dict[str, TaskNode]:
    tasks: dict[str, TaskNode] = {}
    for number in range(size):
        requires = [each for each in tasks if rng.random() < density]
        when = rng.choice(list(When)) if requires and rng.random() < 0.6 else When.ALL_COMPLETED
        optional = [each for each in requires if rng.random() < 0.25]
        tasks[f"t{number}"] = node(f"t{number}", *requires, when=str(when), optional=optional)
    return tasks


@pytest.mark.parametrize("bounds", [{}, NARROW, NARROWER, TIGHT_FAILING], ids=["wide", "narrow", "narrower", "tight"])
def test_every_graph_ends_as_its_document_and_outcomes_say(bounds: Mapping[str, Any]) -> None:
    with bounded(bounds):
        for seed in range(60):
            rng = random.Random(seed)
            tasks = random_tasks(rng, rng.randrange(2, 11))
            failing = [label for label in tasks if rng.random() < 0.35]
            rows = played(tasks, failing, rng)
            end = states(rows)
            assert end == expected(tasks, failing), seed
            told = columns(rows, GRAPH)
            assert told["failedTasks"] == sum(state == "failed" for state in end.values())
            journal = [json.loads(str(row.columns["events"])) for key, row in rows.items() if "event:" in key and row]
            skips = [fact["label"] for facts in journal for fact in facts if fact["event"] == "task-skipped"]
            assert sorted(skips) == sorted(label for label, state in end.items() if state == "skipped")
            for label in skips:
                cause = json.loads(columns(rows, label)["resolution"]).get("cause")
                assert cause is None or cause["label"] in blamed(tasks, end, label)
                assert columns(rows, label)["due"] == ""
            for row in rows.values():
                assert row is not None
                assert row.columns.get("due", "") == ""
                assert row.columns.get("requiresLeft", "[]") == "[]"


@pytest.mark.parametrize("turned", [False, True])
def test_one_failure_runs_some_and_skips_others_whatever_their_ids(turned: bool) -> None:
    """Two that wait for the same failure: the one that is skipped must not keep the other from being told."""
    for number in range(20):
        names = [f"x{number}", f"y{number}"]
        skipped, run = reversed(names) if turned else names
        rows = rows_of(graph(node("a"), node(skipped, "a"), node(run, "a", when="all-resolved")))
        rows, effects, _ = ends(rows, "a", fails=True)
        assert states(rows) == {"a": "failed", skipped: "skipped", run: "pending"}
        assert [effect.task_id for effect in effects] == [task_id(run)]


def test_a_failure_that_is_going_to_be_rerun_tells_nobody() -> None:
    tasks = graph(TaskNode("a", (), 1), node("b", "a", when="any-failed"), node("c", "a"))
    rows, _, _ = ends(rows_of(tasks), "a", fails=True)
    assert states(rows) == {"a": "pending", "b": "unscheduled", "c": "unscheduled"}
    assert "failedBy" not in columns(rows, "b")
    rows = changed(rows, "a", state="running", claim="d")
    rows, _, _ = run_down(rows, Completed(task_id("a"), 1, "d", ENDED, {}), first=2)
    assert states(rows) == {"a": "completed", "b": "skipped", "c": "pending"}


def test_nobody_is_skipped_before_all_that_it_requires_is_over() -> None:
    """Else the graph would be at its end, and a cleanup at work, beside a task that still runs."""
    tasks = graph(node("a"), node("b"), node("c", "a", "b"), node("clean", "c", when="always"))
    rows, _, _ = ends(rows_of(tasks), "a", fails=True)
    assert states(rows) == {"a": "failed", "b": "pending", "c": "unscheduled", "clean": "unscheduled"}
    assert json.loads(columns(rows, "c")["failedBy"]) == {"label": "a", "taskId": task_id("a"), "state": "failed"}
    rows, _, _ = ends(rows, "b", fails=False, first=2)
    assert states(rows) == {"a": "failed", "b": "completed", "c": "skipped", "clean": "pending"}
    rows, effects, _ = ends(rows, "clean", fails=False, first=3)
    assert columns(rows, GRAPH)["state"] == "finished"
    assert effects == [GraphEnded("finished")]


def test_a_chain_of_skips_takes_as_many_commits_as_it_needs() -> None:
    size = 1_000
    labels = [f"c{number}" for number in range(size)]
    tasks = graph(node("c0"), *(node(b, a) for a, b in itertools.pairwise(labels)))
    rows, _, _ = ends(rows_of(tasks), "c0", fails=True)
    assert list(states(rows).values()).count("skipped") == size - 1
    commits = sum(key.startswith("event:") for key in rows)
    assert commits <= size // 90 + 2
    last = rows[f"event:{commits:010d}"]
    assert last is not None
    # `run_down` tells each decision nothing of those before: the totals are the handlers' to hand on
    assert columns(rows, GRAPH)["state"] == "finished"
    assert json.loads(columns(rows, "c999")["resolution"])["cause"]["label"] == "c0"


@pytest.mark.parametrize("when", ["all-completed", "any-failed", "always"])
def test_more_dependents_than_a_commit_holds_are_all_told(when: str) -> None:
    tasks = graph(node("a"), *(node(f"m{number}", "a", when=when) for number in range(250)))
    rows, effects, _ = ends(rows_of(tasks), "a", fails=True)
    others = {state for label, state in states(rows).items() if label != "a"}
    assert others == {"skipped" if when == "all-completed" else "pending"}
    assert len(effects) == (1 if when == "all-completed" else 250)


def test_a_skip_that_no_commit_had_room_for_stands_on_its_row() -> None:
    labels = [f"c{number}" for number in range(300)]
    tasks = graph(node("c0"), *(node(b, a) for a, b in itertools.pairwise(labels)))
    rows = held(rows_of(tasks), "c0")
    decision = decided(rows, Failed(task_id("c0"), 0, "c", ENDED, {"failed": True}))
    assert len(decision.changes) <= limits.COMMIT_CHANGES_MAX
    (left,) = decision.left
    assert isinstance(left, Skip)
    after = apply(rows, decision)
    due = [row.key for row in after.values() if row is not None and row.columns.get("due") == "skip"]
    assert due == [row_key(left.task_id)]
    again = decided(after, Failed(task_id("c0"), 0, "c", ENDED, {"failed": True}), sequence=2)
    assert (again.changes, again.effects, again.left) == ((), (), ())
    after, _, _ = run_down(after, Skip(left.task_id), first=2)
    assert columns(after, GRAPH)["state"] == "finished"


def test_decided_twice_a_failure_changes_nothing_and_sends_the_same() -> None:
    rows = held(rows_of(graph(node("a"), node("b", "a"), node("c", "a", when="always"))), "a")
    item = Failed(task_id("a"), 0, "c", ENDED, {"failed": True})
    first = decided(rows, item)
    second = decided(apply(rows, first), item, sequence=2)
    assert second.changes == ()
    assert second.effects == first.effects
    assert second.answers[0].outcome is Outcome.REPEATED
    skip = decided(apply(rows, first), Skip(task_id("b")), sequence=2)
    assert (skip.changes, skip.answers) == ((), ())


def test_what_waits_is_not_skipped() -> None:
    rows = rows_of(graph(node("a"), node("b", "a")))
    for label in ("a", "b"):
        assert decided(rows, Skip(task_id(label))).changes == ()


def test_optional_requirements_of_a_wide_task_have_joins_of_their_own() -> None:
    members = [f"m{number}" for number in range(130)]
    tasks = graph(*map(node, members), node("z", *members, optional=members[:50]))
    rows = rows_of(tasks)
    z = columns(rows, "z")
    optional = json.loads(z["optional"])
    assert optional
    assert set(optional) < set(json.loads(z["requires"]))
    for label in members:
        rows, _, _ = ends(rows, label, fails=label in members[:50], first=1 + len([k for k in rows if "event" in k]))
    assert states(rows)["z"] == "pending"
    rows = rows_of(tasks)
    for label in members:
        rows, _, _ = ends(rows, label, fails=label == members[-1], first=1 + len([k for k in rows if "event" in k]))
    assert states(rows)["z"] == "skipped"


def test_a_failure_that_was_passed_on_is_taken_back_by_a_rerun() -> None:
    rows, _, _ = ends(rows_of(graph(node("a"), node("b", "a"), node("c", "b", when="any-failed"))), "a", fails=True)
    assert states(rows) == {"a": "failed", "b": "skipped", "c": "skipped"}
    decision = decided(rows, ManualRerun(task_id("a"), 0), sequence=9)
    assert [answer.outcome for answer in decision.answers] == [Outcome.APPLIED]
    rows = apply(rows, decision)
    assert states(rows) == {"a": "pending", "b": "unscheduled", "c": "unscheduled"}
    assert [columns(rows, label)["run"] for label in "abc"] == [1, 1, 1]
    assert not columns(rows, "b")["failedBy"]
    rows, _, _ = ends(rows, "a", run=1, first=10)
    assert states(rows)["b"] == "pending"


def test_a_lost_worker_is_told_as_a_failure_once_retries_are_spent() -> None:
    rows = held(rows_of(graph(node("a"), node("b", "a"), node("c", "a", when="any-failed"))), "a")
    rows, _, _ = run_down(changed(rows, "a", retriesLeft=0), LeaseLost(task_id("a"), 0, "c", certain=True))
    assert states(rows) == {"a": "exception", "b": "skipped", "c": "pending"}
    assert json.loads(columns(rows, "b")["resolution"]) == {
        "skipped": True,
        "reason": "“a” could not be run",
        "cause": {"label": "a", "taskId": task_id("a"), "state": "exception"},
    }


def test_the_end_of_a_graph_says_how_many_failed_and_were_skipped() -> None:
    rows = held(rows_of(graph(node("a"), node("b", "a"), node("c", "b"))), "a")
    decision = decided(rows, Failed(task_id("a"), 0, "c", ENDED, {"failed": True, "reason": "exit code 1"}))
    after = apply(rows, decision)
    assert (columns(after, GRAPH)["failedTasks"], columns(after, GRAPH)["skippedTasks"]) == (1, 2)
    assert events(decision)[1:] == [
        {"event": "task-skipped", "task": task_id("b"), "label": "b", "reason": "“a” failed", "cause": task_id("a")},
        {"event": "task-skipped", "task": task_id("c"), "label": "c", "reason": "“a” failed", "cause": task_id("a")},
        {"event": "graph-finished", "failed": 1, "skipped": 2},
    ]


def test_what_is_skipped_as_nothing_failed_says_so_to_those_behind_it() -> None:
    tasks = graph(node("a"), node("clean", "a", when="any-failed"), node("report", "clean"))
    rows, _, _ = ends(rows_of(tasks), "a", fails=False)
    assert json.loads(columns(rows, "clean")["resolution"]) == {
        "skipped": True,
        "reason": "none of what it requires failed",
    }
    assert json.loads(columns(rows, "report")["resolution"]) == {
        "skipped": True,
        "reason": "“clean” was skipped, as nothing failed",
        "cause": {"label": "clean", "taskId": task_id("clean"), "state": "skipped"},
    }


def test_other_policies_take_no_notice() -> None:
    rows, _, _ = ends(rows_of(graph(node("a"), node("b", "a")), policy="block"), "a", fails=True)
    assert states(rows) == {"a": "failed", "b": "unscheduled"}
    assert columns(rows, GRAPH)["state"] == "blocked"


def test_a_relay_passes_on_both_what_failed_and_what_was_skipped() -> None:
    """Of a wide task that runs when all were resolved, one skipped requirement counts even beside a failed one."""
    with bounded(NARROWER):
        tasks = graph(
            node("a"), node("b", "a"), node("c"), node("d"), node("z", "a", "b", "c", "d", when="all-resolved")
        )
        rows = played(tasks, ["a"], random.Random(0))
        assert any(key.startswith("join:") for key in rows)
        assert states(rows)["z"] == "skipped"


def test_the_document_and_its_rows_name_the_same_graph() -> None:
    document = GraphDocument(graph(node("a"), node("b", "a", when="always")), failure_policy="continue")
    rows = rows_of(document.tasks)
    assert columns(rows, "b")["when"] == "always"
    assert columns(rows, "b")["schema"] == columns(rows, "a")["schema"] == 2
    assert "when" not in columns(rows, "a")


# --- causes, one by one ------------------------------------------------------------------------------------------


def draft(state: str = "failed", *, key: str = "task:A", **more: Any) -> Draft:
    return Draft(key, {"label": "a", "state": state, **more}, "etag")


def cause(state: str) -> str:
    return f'{{"label":"a","taskId":"A","state":"{state}"}}'


@pytest.mark.parametrize(
    ("task", "named"),
    [
        (draft("failed"), "failed"),
        (draft("exception"), "exception"),
        (draft("failed", cancel="why"), "cancelled"),
        (draft("exception", resolution='{"cancelled":true}'), "cancelled"),
        (draft("failed", resolution='{"cancelled":true}'), "failed"),
        (draft("exception", resolution='{"cancelled":false}'), "exception"),
        (draft("exception", resolution='{"cancelled":1}'), "exception"),
        (draft("exception", resolution="[1]"), "exception"),
        (draft("exception", resolution="{"), "exception"),
        (draft("exception", resolution=""), "exception"),
    ],
)
def test_what_failed_tells_how_it_failed(task: Draft, named: str) -> None:
    assert failure_of(task) == Ending(failed=cause(named))
    assert ending_of(task) == Ending(failed=cause(named))


def test_what_is_resolved_tells_what_it_knows() -> None:
    assert ending_of(draft("completed")) is COMPLETED
    assert ending_of(draft("completed", failedBy="f")) is COMPLETED, "a task that ran hides what it got over"
    assert ending_of(draft("completed", key="join:J", failedBy="f")) == Ending(failed="f")
    assert ending_of(draft("completed", key="join:J", skippedBy="s")) == Ending(skipped="s")
    assert ending_of(draft("completed", key="join:J")) is COMPLETED
    assert ending_of(draft("running")) is None
    assert ending_of(draft("skipped")) == skip_of(draft("skipped")) == Ending(skipped=cause("skipped"))


@pytest.mark.parametrize(("name", "other"), [("failed", "skipped"), ("skipped", "failed")])
def test_of_what_a_requirement_tells_the_first_is_kept(name: str, other: str) -> None:
    row = draft("unscheduled", optional='["later"]')
    keep_ending(row, "b", Ending(**{other: "x"}))
    assert (row.text(f"{other}By"), row.text(f"{name}By")) == ("x", "")
    keep_ending(row, "b", Ending(**{name: "first"}))
    keep_ending(row, "c", Ending(**{name: "second"}))
    keep_ending(row, "d", COMPLETED)
    assert (row.text(f"{other}By"), row.text(f"{name}By")) == ("x", "first")
    fresh = draft("unscheduled", optional='["later"]')
    keep_ending(fresh, "later", Ending("f", "s"))
    assert (fresh.text("failedBy"), fresh.text("skippedBy")) == ("", "")


def test_whose_fault_a_skip_is() -> None:
    both = {"failedBy": cause("failed"), "skippedBy": cause("cancelled")}
    assert skip_of(draft("skipped", **both)) == Ending(skipped=cause("failed"))
    assert skip_of(draft("skipped", when="all-resolved", **both)) == Ending(skipped=cause("cancelled"))
    assert skip_of(draft("skipped", skippedBy=cause("cancelled"))) == Ending(skipped=cause("cancelled"))
    assert skip_resolution(draft("skipped", **both))["reason"] == "“a” failed"
    assert skip_resolution(draft("skipped", when="any-failed")) == {
        "skipped": True,
        "reason": "none of what it requires failed",
    }


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("failed", "“a” failed"),
        ("exception", "“a” could not be run"),
        ("cancelled", "“a” was cancelled"),
        ("skipped", "“a” was skipped, as nothing failed"),
    ],
)
def test_a_cause_in_words(state: str, words: str) -> None:
    assert in_words({"label": "a", "state": state}) == words
    assert in_words({"state": state}) == words.replace("a", "", 1)


def test_a_damaged_cause_is_damage_of_its_row() -> None:
    with pytest.raises(IntegrityError, match="row task:a: why it is skipped"):
        skip_resolution(Draft("task:a", {"failedBy": "a"}, "1"))
