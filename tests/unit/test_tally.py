"""Groups that need k of n, decision by decision: every small group with every outcome, against a table of its own."""

import itertools
import json
from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import ceil
from typing import Any, Final

import pytest

from taskgraph.documents.nodes import GroupNode, Success, TaskNode
from taskgraph.model.columns import Value
from taskgraph.model.ids import GRAPH, group_owner, ids_text, join_reference
from taskgraph.protocol.cancel import UNNEEDED, CancelUnneeded
from taskgraph.protocol.context import CancelRest, Outcome
from taskgraph.protocol.layout import GraphLayout
from taskgraph.protocol.recall import ManualRerun, Recall
from taskgraph.protocol.runs import Completed, Failed
from taskgraph.storage.tables import Insert, Row
from tests.simulation.bounds import RULE_BY_RULE, bounded
from tests.unit.transition_rows import LATER, NOW, Rows, changed, columns, run_down, task_id

ENDED: Final = NOW.isoformat()
PIECES: Final = {"REQUIRES_MAX": 2, "DEPENDENTS_MAX": 2}
ALL, DONE = (join_reference(group_owner(task_id("s")), end) for end in ("all", "done"))


def rows_of(labels: Sequence[str], success: Success) -> Rows:
    """A graph of a group of these tasks, one task that requires it, and one that runs if it fails."""
    tasks = {label: TaskNode(label) for label in labels}
    tasks |= {"x": TaskNode("x", ("s",)), "alarm": TaskNode("alarm", ("s",), when="any-failed")}
    groups = {"s": GroupNode("s", tuple(labels), success=success)}
    layout = GraphLayout("g", tasks, now=NOW, digests=dict.fromkeys(tasks, ""), schema=2, groups=groups)
    leaves = ids_text(layout.leaves)
    graph: dict[str, Value] = {
        "schema": 2,
        "state": "running",
        "created": NOW,
        "failurePolicy": "continue",
        "tasks": len(tasks),
        "edges": layout.edges,
        "failedTasks": 0,
        "revision": 0,
        "requires": leaves,
        "requiresLeft": leaves,
    }
    inserts = [Insert(GRAPH, graph), *layout.rows()]
    return {insert.key: Row(insert.key, f"0-{number}", insert.columns) for number, insert in enumerate(inserts)}


def end(rows: Rows, label: str, *, fails: bool) -> tuple[Rows, list[Any]]:
    run = columns(rows, label)["run"]
    rows = changed(rows, label, state="running", claim="c", worker="w", leaseUntil=LATER)
    kind = Failed if fails else Completed
    item = kind(task_id(label), run, "c", ENDED, {"failed": fails})
    rows, effects, answers = run_down(rows, item, first=1 + sum(key.startswith("event:") for key in rows))
    assert [answer.outcome for answer in answers] == [Outcome.APPLIED]
    return rows, effects


def state(rows: Rows, label: str) -> str:
    return str(columns(rows, label)["state"])


def said(needs: int, of: int, ends: Sequence[bool]) -> str:
    """The table: what these ends (failed or not) decide of a group of so many."""
    if ends.count(False) >= needs:
        return "go"
    return "fail" if ends.count(True) > of - needs else "open"


def expected(needs: int, of: int, ends: Sequence[bool], *, waits: bool) -> tuple[str, str]:
    """States of x, which needs success, and of the alarm, which needs failure."""
    decided = said(needs, of, ends)
    if decided == "open" or (waits and len(ends) < of):
        return "unscheduled", "unscheduled"
    return ("pending", "skipped") if decided == "go" else ("skipped", "pending")


def cases() -> Iterator[tuple[int, int, bool, bool, tuple[bool, ...]]]:
    for of in range(1, 4):
        for needs, waits, cancels in itertools.product(range(1, of + 1), (False, True), (False, True)):
            for ends in itertools.product((False, True), repeat=of):
                yield of, needs, waits, cancels, ends


@pytest.mark.parametrize(
    "bounds",
    [{}, PIECES, pytest.param(RULE_BY_RULE, marks=pytest.mark.campaign)],
    ids=["one row", "pieces", "rule by rule"],
)
def test_every_small_group_with_every_outcome(bounds: dict[str, Any]) -> None:
    number = 0
    for of, needs, waits, cancels, ends in cases():
        number += 1
        with bounded(bounds):
            rows = rows_of("abcd"[:of], Success(needs, waits, cancels))
            asked = told = 0
            for place, fails in enumerate(ends):
                rows, effects = end(rows, "abcd"[place], fails=fails)
                so_far = ends[: place + 1]
                assert (state(rows, "x"), state(rows, "alarm")) == expected(needs, of, so_far, waits=waits)
                tally = columns(rows, ALL)
                assert (tally["ok"], tally["bad"]) == (so_far.count(False), so_far.count(True))
                asked += effects.count(CancelRest(ALL))
                told = sum(
                    fact["event"] == "group-decided"
                    for key, row in rows.items()
                    if key.startswith("event:") and row is not None
                    for fact in json.loads(str(row.columns["events"]))
                )
                assert told == (state(rows, "x") != "unscheduled")
                early = said(needs, of, so_far) != "open" and len(so_far) < of
                assert asked == (1 if early else asked) if cancels else asked == 0
            assert (asked == 1) == (cancels and said(needs, of, ends[:-1]) != "open")
            assert columns(rows, GRAPH)["state"] == "running"
            for label in ("x", "alarm"):
                if state(rows, label) == "pending":
                    rows, _ = end(rows, label, fails=False)
            assert columns(rows, GRAPH)["state"] == "finished"
    assert number == sum(of * 4 * 2**of for of in range(1, 4))


def test_the_graph_waits_for_members_that_are_left() -> None:
    rows, _ = end(rows_of("abc", Success(1)), "a", fails=False)
    rows, _ = end(rows, "x", fails=False)
    assert (state(rows, "x"), state(rows, "alarm"), columns(rows, GRAPH)["state"]) == (
        "completed",
        "skipped",
        "running",
    )
    rows, _ = end(rows, "b", fails=True)
    assert columns(rows, GRAPH)["state"] == "running"
    rows, _ = end(rows, "c", fails=False)
    assert columns(rows, GRAPH)["state"] == "finished"


def cancelled(rows: Rows, *labels: str) -> tuple[Rows, list[Outcome]]:
    items = [CancelUnneeded(task_id(label), ALL) for label in labels]
    rows, _, answers = run_down(rows, *items, first=1 + sum(key.startswith("event:") for key in rows))
    return rows, [answer.outcome for answer in answers]


@pytest.mark.parametrize("bounds", [{}, PIECES])
def test_what_is_left_is_cancelled_and_counts_as_unsuccessful(bounds: dict[str, Any]) -> None:
    with bounded(bounds):
        rows = rows_of("abcd", Success(1, cancels=True))
        rows, outcomes = cancelled(rows, "b")
        assert outcomes == [Outcome.STALE], "nothing is decided"
        rows, _ = end(rows, "a", fails=False)
        assert columns(rows, ALL)["rest"] == "cancelling"
        rows = changed(rows, "b", state="running", claim="c", worker="w", leaseUntil=LATER)
        rows = changed(rows, "c", manualReruns=1)
        rows, outcomes = cancelled(rows, "a", "b", "c", "d")
        assert outcomes == [Outcome.STALE, Outcome.APPLIED, Outcome.STALE, Outcome.APPLIED]
        assert [state(rows, label) for label in "abcd"] == ["completed", "running", "pending", "exception"]
        assert json.loads(columns(rows, "d")["resolution"])["code"] == UNNEEDED
        assert columns(rows, "b")["cancel"] == "the group “s” has succeeded without it"
        item = Completed(task_id("b"), 0, "c", ENDED, {"failed": False})
        rows, _, _ = run_down(rows, item, first=1 + sum(key.startswith("event:") for key in rows))
        assert (columns(rows, ALL)["ok"], columns(rows, ALL)["bad"]) == (1, 2)
        rows, _ = end(rows, "c", fails=False)
        assert (columns(rows, ALL)["state"], columns(rows, ALL)["rest"]) == ("completed", "cancel")


@pytest.mark.parametrize("bounds", [pytest.param({}, marks=pytest.mark.campaign), {**PIECES, "COMMIT_CHANGES_MAX": 10}])
@pytest.mark.parametrize("waits", [False, True])
def test_a_rerun_takes_a_decision_back_that_the_counts_do_not_bear(bounds: dict[str, Any], waits: bool) -> None:
    """Every group of three, every outcome, every member that is run again, and every outcome of that."""
    for needs, ends, place, then in itertools.product(
        range(1, 4), itertools.product((False, True), repeat=3), range(3), (False, True)
    ):
        with bounded(bounds):
            rows = rows_of("abc", Success(needs, waits))
            for label, fails in zip("abc", ends, strict=True):
                rows, _ = end(rows, label, fails=fails)
            before = said(needs, 3, ends)
            runs_now = "x" if before == "go" else "alarm"
            rows, _ = end(rows, runs_now, fails=False)
            assert columns(rows, GRAPH)["state"] == "finished"
            item = ManualRerun(task_id("abc"[place]), 0, "mended")
            rows, _, _ = run_down(rows, item, first=1 + sum(key.startswith("event:") for key in rows))
            others = [*ends[:place], *ends[place + 1 :]]
            stands = not waits and said(needs, 3, others) == before
            assert columns(rows, GRAPH)["state"] == "running"
            assert columns(rows, GRAPH)["recalls"] == 0
            assert (state(rows, "x") == "unscheduled") == (not stands)
            assert (columns(rows, ALL)["ok"], columns(rows, ALL)["bad"]) == (others.count(False), others.count(True))
            rows, _ = end(rows, "abc"[place], fails=then)
            after = said(needs, 3, [*others, then])
            assert not stands or after == before
            assert state(rows, "x") == ("skipped" if after == "fail" else "completed" if stands else "pending")
            for label in ("x", "alarm"):
                if state(rows, label) == "pending":
                    rows, _ = end(rows, label, fails=False)
            assert columns(rows, GRAPH)["state"] == "finished"
            assert columns(rows, DONE)["state"] == columns(rows, ALL)["state"] == "completed"


def test_a_decision_waits_for_its_own_recall_and_the_end_of_that_looks_again() -> None:
    """Passed on before, it would be counted by a row that does not get ready by that."""
    rows = changed(changed(rows_of("abc", Success(1)), DONE, due="recall"), GRAPH, recalls=1)
    rows, _ = end(rows, "a", fails=False)
    assert (columns(rows, DONE)["requiresLeft"], state(rows, "x")) == (f'["{ALL}"]', "unscheduled")
    assert not columns(rows, ALL).get("announced")
    rows, _, _ = run_down(rows, Recall(DONE), first=2)
    assert (columns(rows, ALL)["announced"], columns(rows, DONE)["state"]) == ("succeeded", "completed")
    assert state(rows, "x") == "pending"


def test_a_recall_of_the_tally_comes_before_what_is_decided_meanwhile() -> None:
    rows = changed(changed(rows_of("abc", Success(1)), ALL, due="recall"), GRAPH, recalls=1)
    rows, _ = end(rows, "a", fails=False)
    assert state(rows, "x") == "unscheduled"
    rows, _, _ = run_down(rows, Recall(ALL), first=2)
    assert (columns(rows, ALL)["announced"], state(rows, "x")) == ("succeeded", "pending")


@pytest.mark.parametrize("share", ["1%", "33%", "33.33%", "33.34%", "50%", "95%", "99.9%", "100%", "0.01%", "66.6%"])
def test_a_share_is_rounded_up(share: str) -> None:
    for members in range(1, 40):
        assert Success(share).needs(members) == ceil(Fraction(share[:-1]) / 100 * members)
    assert Success(7).needs(3) == 7
