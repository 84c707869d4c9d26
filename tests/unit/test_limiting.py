"""Limits on tasks in flight, rule by rule: who is over, what a change writes, and what is taken off."""

from typing import Any

import pytest

from taskgraph.model import limits
from taskgraph.model.ids import GRAPH
from taskgraph.protocol.concurrency import is_limited, is_over, limit_of, limits_of, named_in
from taskgraph.protocol.context import Outcome, Refill
from taskgraph.protocol.rows import Draft
from taskgraph.protocol.runs import Claim, Failed
from taskgraph.protocol.set_limit import NOT_LIMITED, ChangeLimit, Recount
from taskgraph.storage.tables import Row
from tests.unit.transition_rows import LATER, NOW, Rows, apply, changed, columns, decided, events, rows_of, task_id

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


def test_a_limit_that_nobody_submitted_and_one_of_a_graph_that_is_over_stay() -> None:
    rows = limited()
    over = change(changed(rows, GRAPH, state="finished"), 4).answers[0]
    assert (over.outcome, over.reason) == (Outcome.REFUSED, "the graph is finished")
    none = change({**rows, KEY: None}, 4).answers[0]
    assert (none.outcome, none.reason) == (Outcome.REFUSED, NOT_LIMITED)


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
