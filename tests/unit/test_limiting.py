"""Limits on tasks in flight, rule by rule: who is over, what a change writes, and what is taken off."""

from typing import Any

import pytest

from taskgraph.model import limits
from taskgraph.model.ids import GRAPH, ids_text, limit_scope
from taskgraph.protocol.concurrency import is_limited, is_over, limit_of, limits_of, missing_scopes, named_in
from taskgraph.protocol.context import Outcome, Refill
from taskgraph.protocol.rows import Draft
from taskgraph.protocol.runs import Claim, Failed
from taskgraph.protocol.set_limit import (
    COMES,
    NOT_LIMITED,
    TOO_MANY,
    ChangeLimit,
    ComeUnder,
    PublishLimits,
    Recount,
)
from taskgraph.storage.tables import Row
from tests.unit.transition_rows import (
    LATER,
    NOW,
    Rows,
    apply,
    changed,
    columns,
    decided,
    events,
    rows_of,
    running,
    task_id,
)

A = task_id("a")
KEY = "limit:graph"


def limited(**more: Any) -> Rows:
    """A graph with one task at a time."""
    row = {"schema": 1, "label": "", "max": 1, "inFlight": "[]", **more}
    rows = changed(rows_of({"a": [], "b": []}), "a", limits='["graph"]')
    return {**changed(rows, "b", limits='["graph"]'), KEY: Row(KEY, "0-9", row)}


def change(rows: Rows, most: int, asked: str = "2030", reason: str = "") -> Any:
    return decided(rows, ChangeLimit("graph", most, asked, reason))


@pytest.mark.parametrize(
    ("state", "run", "over"),
    [
        ("running", 2, False),
        ("pending", 2, False),
        ("completed", 2, True),
        ("running", 3, True),
        ("completed", 1, False),
    ],
)
def test_a_run_is_over_when_its_task_has_ended_or_runs_again(state: str, run: int, over: bool) -> None:
    assert is_over(Draft("task:A", {"state": state, "run": run}, "e"), 2) is over


@pytest.mark.parametrize(
    ("text", "named"),
    [("A:3", ("A", 3)), ("A:B:3", ("A:B", 3)), (":3", ("", -1)), ("A:", ("", -1)), ("A:x", ("", -1)), ("A", ("", -1))],
)
def test_what_a_list_names(text: str, named: tuple[str, int]) -> None:
    assert named_in(text) == named


def test_which_tasks_and_rows_are_limits() -> None:
    assert [is_limited(Draft("task:A", {"limits": text}, "e")) for text in ("", "[]", '["graph"]')] == [
        False,
        False,
        True,
    ]
    row = Row(KEY, "e", {"max": 3, "inFlight": '["A:0"]', "moved": NOW})
    found = limit_of(row)
    assert (found.most, found.moved) == (3, NOW)
    assert list(limits_of({KEY: row, "limit:group-g": None, "task:A": row})) == ["graph"]


def test_who_comes_and_who_leaves_says_when() -> None:
    rows = limited()
    rows = apply(rows, decided(rows, Claim(A, 0, "c", "w", LATER)))
    assert (columns(rows, KEY)["inFlight"], columns(rows, KEY)["moved"]) == (f'["{A}:0"]', NOW)
    decision = decided(rows, Failed(A, 0, "c", NOW.isoformat(), {"failed": True}), now=LATER)
    rows = apply(rows, decision, mark="2")
    assert (columns(rows, KEY)["inFlight"], columns(rows, KEY)["moved"]) == ("[]", LATER)


def test_a_change_of_a_limit_is_a_fact() -> None:
    rows = limited(label="some")
    decision = change(rows, 4, reason="why")
    (event,) = [each for each in events(decision) if each["event"] == "graph-limited"]
    assert {key: event.get(key) for key in ("group", "max", "was", "reason")} == {
        "group": "some",
        "max": 4,
        "was": 1,
        "reason": "why",
    }
    assert (decision.answers[0].outcome, decision.answers[0].reason) == (Outcome.APPLIED, "")
    assert Refill() in decision.effects
    rows = apply(rows, decision)
    assert (columns(rows, KEY)["max"], columns(rows, KEY)["asked"], columns(rows, KEY)["moved"]) == (4, "2030", NOW)

    bare = [each for each in events(change(limited(), 4)) if each["event"] == "graph-limited"]
    assert bare
    assert not {"group", "reason"} & set(bare[0])


def test_a_limit_that_is_so_already_wakes_what_waits_and_one_that_is_lowered_does_not() -> None:
    rows = limited(max=4)
    same = change(rows, 4)
    assert (same.answers[0].outcome, same.answers[0].reason) == (Outcome.APPLIED, "it is so already")
    assert Refill() in same.effects
    rows = apply(rows, same)
    again = change(rows, 4)
    assert (again.answers[0].outcome, again.answers[0].reason) == (Outcome.REPEATED, "it is so already")
    assert Refill() in again.effects
    late = change(rows, 4, asked="2029").answers[0]
    assert (late.outcome, late.reason) == (Outcome.STALE, "something else has been requested since")
    assert Refill() not in change(rows, 3).effects
    assert columns(apply(rows, change(rows, 0)), KEY)["max"] == limits.IN_FLIGHT_MAX


def test_the_limit_of_a_graph_that_is_over_stays() -> None:
    over = change(changed(limited(), GRAPH, state="finished"), 4).answers[0]
    assert (over.outcome, over.reason) == (Outcome.REFUSED, "the graph is finished")


def unlimited(*scopes: str, **more: Any) -> Rows:
    """The same without a limit, or with these on the graph row, which no task names yet."""
    rows = changed(rows_of({"a": [], "b": []}), GRAPH, limits=ids_text(scopes), limiting=bool(scopes), **more)
    row = {"schema": 1, "max": 1, "inFlight": "[]", "moved": NOW}
    return {**rows, KEY: Row(KEY, "0-9", row) if scopes else None}


def test_a_limit_is_set_where_there_was_none() -> None:
    decision = decided(unlimited(), ChangeLimit("graph", 2, "2030", "why", ""))
    assert (decision.answers[0].outcome, decision.effects) == (Outcome.APPLIED, (Refill(),))
    rows = apply(unlimited(), decision)
    row = columns(rows, KEY)
    assert (row["max"], row["inFlight"], row["moved"], row["asked"]) == (2, "[]", NOW, "2030")
    graph = columns(rows, GRAPH)
    assert (graph["limits"], graph["limiting"], graph["revision"]) == ('["graph"]', True, 1)
    assert {"event": "graph-limited", "max": 2, "reason": "why"} in events(decision)
    again = decided(rows, ChangeLimit("graph", 2, "2030", "why", ""))
    assert (again.answers[0].outcome, again.changes) == (Outcome.REPEATED, ())

    rows = {**unlimited(), "limit:group-g": None}
    group = decided(rows, ChangeLimit("group-g", 1, group="some"))
    assert columns(apply(rows, group), "limit:group-g")["label"] == "some"


@pytest.mark.parametrize(
    ("rows", "most", "reason"),
    [
        (unlimited(), 0, NOT_LIMITED),
        ({**unlimited("graph"), KEY: None}, 1, COMES),
        ({**unlimited(*(f"group-{n}" for n in range(limits.LIMITED_GROUPS_MAX))), KEY: None}, 1, TOO_MANY),
        (changed(unlimited(), GRAPH, state="finished"), 1, "the graph is finished"),
    ],
)
def test_where_no_limit_can_be_set(rows: Rows, most: int, reason: str) -> None:
    decision = decided(rows, ChangeLimit("graph", most, "2030"))
    assert (decision.answers[0].outcome, decision.answers[0].reason) == (Outcome.REFUSED, reason)
    assert decision.changes == ()


def test_a_task_comes_under_a_limit_and_counts_if_it_runs() -> None:
    rows = running(unlimited("graph"), "a")
    rows = changed(rows, KEY, inFlight='["other:0"]')
    decision = decided(rows, ComeUnder(A, ("graph",)))
    assert decision.effects == ()
    rows = apply(rows, decision)
    task = columns(rows, "a")
    assert (task["limits"], task["limited"], task["schema"]) == ('["graph"]', "yes", 2)
    assert columns(rows, KEY)["inFlight"] == f'["other:0","{A}:0"]'
    assert decided(rows, ComeUnder(A, ("graph",))).answers[0].outcome is Outcome.REPEATED

    waits = decided(rows, ComeUnder(task_id("b"), ("graph",)))
    assert [type(each) for each in waits.effects] == [Refill]
    held = decided(changed(rows, "b", held='["paused"]'), ComeUnder(task_id("b"), ("graph",)))
    assert (held.answers[0].outcome, held.effects) == (Outcome.APPLIED, ())


@pytest.mark.parametrize("state", ["unscheduled", "failed", "exception", "completed", "skipped"])
def test_what_may_run_or_be_rerun_comes_under_a_limit(state: str) -> None:
    rows = changed(unlimited("graph"), "a", state=state)
    decision = decided(rows, ComeUnder(A, ("graph",)))
    assert (decision.answers[0].outcome, decision.effects) == (Outcome.APPLIED, ())


def test_no_more_runs_are_counted_than_a_row_can_list() -> None:
    inside = ids_text(f"other:{n}" for n in range(limits.IN_FLIGHT_MAX))
    rows = changed(running(unlimited("graph"), "a"), KEY, inFlight=inside)
    decision = decided(rows, ComeUnder(A, ("graph",)))
    assert (decision.answers[0].outcome, decision.changes) == (Outcome.REFUSED, ())


@pytest.mark.parametrize(
    ("more", "scopes", "outcome"),
    [
        ({}, ("graph",), Outcome.APPLIED),
        ({"extending": "r"}, ("graph",), Outcome.STALE),
        ({}, (), Outcome.STALE),
        ({"limiting": False}, ("graph",), Outcome.REPEATED),
    ],
)
def test_a_limit_is_set_when_every_task_names_it(
    more: dict[str, Any], scopes: tuple[str, ...], outcome: Outcome
) -> None:
    rows = changed(unlimited("graph"), GRAPH, **more)
    decision = decided(rows, PublishLimits(scopes))
    assert decision.answers[0].outcome is outcome
    left = more.get("limiting", True) and outcome is not Outcome.APPLIED
    assert columns(apply(rows, decision), GRAPH)["limiting"] is left


def test_which_limits_of_its_graph_a_task_does_not_name() -> None:
    own = limit_scope("g", "some")
    graph = {"limits": ids_text(["graph", own, limit_scope("g", "other")])}
    inside = {"groups": '["some"]'}
    assert missing_scopes(inside, {}, "g") == ()
    assert missing_scopes(inside, graph, "g") == ("graph", own)
    assert missing_scopes({**inside, "limits": '["graph"]'}, graph, "g") == (own,)
    assert missing_scopes({}, graph, "g") == ("graph",)
    full = ids_text(f"group-{n}" for n in range(limits.LIMITS_OF_TASK_MAX - 1))
    assert missing_scopes({**inside, "limits": full}, graph, "g") == ("graph",), "a task is under four at the most"


def test_a_recount_takes_off_what_is_over_and_nothing_else() -> None:
    members = [f"{A}:0", f"{task_id('b')}:0", "nonsense"]
    rows = changed(limited(inFlight=f'["{members[0]}","{members[1]}","{members[2]}"]'), "a", run=1)
    decision = decided(rows, Recount("graph", tuple(members)), now=LATER)
    assert decision.effects == (Refill(),)
    rows = apply(rows, decision)
    assert columns(rows, KEY)["inFlight"] == f'["{members[1]}","{members[2]}"]'
    assert columns(rows, KEY)["moved"] == LATER
    assert decided(rows, Recount("graph", tuple(members))).answers[0].outcome == Outcome.REPEATED
    assert decided({**rows, KEY: None}, Recount("graph", tuple(members))).answers[0].outcome == Outcome.STALE
