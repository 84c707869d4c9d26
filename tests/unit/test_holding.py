"""Holding back, fact by fact: what the rows and the journal say of each step, and what is sent (P22)."""

import json
from datetime import timedelta
from typing import Any

import pytest

from taskgraph.model.errors import IntegrityError
from taskgraph.model.ids import GRAPH
from taskgraph.model.states import INACTIVE, PAUSED, by_group
from taskgraph.protocol.context import Context, Dispatch, Outcome
from taskgraph.protocol.decide import Decision
from taskgraph.protocol.pause import Hold, HoldTask, PublishHolds, Settle, set_active
from taskgraph.protocol.recall import ManualRerun
from taskgraph.protocol.rows import View
from tests.unit.transition_rows import NOW, Rows, changed, decided, events, rows_of, task_id, written

A, B = task_id("a"), task_id("b")
OWN = f"task:{A}"
NIGHT = by_group("night")
BEFORE, AGAIN = NOW - timedelta(seconds=1), NOW + timedelta(seconds=1)
SENT = (Dispatch(A, 0, "default"),)
SENT_AGAIN = (Dispatch(A, 1, "default"),)
LATER = "something else has been requested since"


def text(*holders: str) -> str:
    return json.dumps(list(holders), separators=(",", ":"))


def asked(**when: Any) -> str:
    return json.dumps({name: moment.isoformat() for name, moment in when.items()}, separators=(",", ":"))


def paused(*holders: str, **more: Any) -> Rows:
    """A graph that these hold, under the number 4. a stands ready, b waits for it."""
    columns = {"held": text(*holders), "holds": 4, **more}
    return changed(rows_of({"a": [], "b": ["a"]}), GRAPH, **columns)


def task(*holders: str, **more: Any) -> Rows:
    """a, which these hold."""
    return changed(rows_of({"a": [], "b": ["a"]}), "a", held=text(*holders), **more)


def said(decision: Decision) -> tuple[Outcome, str]:
    (answer,) = decision.answers
    assert answer.error is None
    return answer.outcome, answer.reason


# --- the fence of a graph -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["running", "blocked"])
def test_a_pause_is_a_fence_and_no_fact_yet(state: str) -> None:
    decision = decided(paused(NIGHT, state=state, pausing=text(NIGHT)), Hold(PAUSED, on=True, reason="why", by="ann"))
    assert written(decision) == {
        GRAPH: {
            "held": text(NIGHT, PAUSED),
            "heldAsked": asked(paused=NOW),
            "holds": 5,
            "settling": True,
            "pausing": text(NIGHT, PAUSED),
            "pausedReason": "why",
            "pausedBy": "ann",
        }
    }
    assert (said(decision), decision.effects) == ((Outcome.APPLIED, ""), ())


@pytest.mark.parametrize(("holder", "more"), [(PAUSED, {}), (NIGHT, {"group": "night"})], ids=["the graph", "a group"])
@pytest.mark.parametrize(("reason", "why"), [("", {}), ("why", {"reason": "why"})])
def test_going_on_is_a_fence_and_a_fact(holder: str, more: dict[str, str], reason: str, why: dict[str, str]) -> None:
    other = NIGHT if holder == PAUSED else PAUSED
    rows = paused(holder, other, pausing=text(holder, other), pausedReason="first")
    decision = decided(rows, Hold(holder, on=False, reason=reason))
    assert written(decision)[GRAPH] == {
        "held": text(other),
        "heldAsked": asked(**{holder: NOW}),
        "holds": 5,
        "settling": True,
        "pausing": text(other),
    }
    assert events(decision) == [{"event": "graph-resumed", **more, **why}]
    assert said(decision) == (Outcome.APPLIED, "")


def test_the_reason_of_a_later_pause_is_kept_and_the_holder_is_named_once() -> None:
    decision = decided(paused(pausing=text(PAUSED)), Hold(PAUSED, on=True, reason="again"))
    row = written(decision)[GRAPH]
    assert (row.get("pausing", text(PAUSED)), row["pausedReason"]) == (text(PAUSED), "again")


@pytest.mark.parametrize(("on", "words"), [(True, "it is paused already"), (False, "it is not paused")])
def test_what_is_as_asked_is_noted_once_for_an_older_wish_that_is_on_its_way(on: bool, words: str) -> None:
    rows = paused(*([PAUSED] if on else []))
    decision = decided(rows, Hold(PAUSED, on=on))
    assert written(decision) == {GRAPH: {"heldAsked": asked(paused=NOW)}}
    assert said(decision) == (Outcome.APPLIED, words)
    again = decided(changed(rows, GRAPH, heldAsked=asked(paused=NOW)), Hold(PAUSED, on=on))
    assert (again.changes, said(again)) == ((), (Outcome.REPEATED, words))
    older = decided(changed(rows, GRAPH, heldAsked=asked(paused=NOW)), Hold(PAUSED, not on, BEFORE.isoformat()))
    assert (older.changes, said(older)) == ((), (Outcome.STALE, LATER))


def test_of_two_wishes_the_later_one_counts_and_one_of_the_same_moment_does() -> None:
    rows = paused(heldAsked=asked(paused=NOW, other=AGAIN))
    assert said(decided(rows, Hold(PAUSED, on=True, asked=NOW.isoformat())))[0] == Outcome.APPLIED
    after = written(decided(rows, Hold(PAUSED, on=True, asked=AGAIN.isoformat())))[GRAPH]
    assert after["heldAsked"] == asked(paused=AGAIN, other=AGAIN), "what is known of others is kept"
    assert said(decided(rows, Hold(PAUSED, on=True, asked=BEFORE.isoformat()))) == (Outcome.STALE, LATER)
    assert said(decided(rows, Hold("other", on=True, asked=NOW.isoformat()))) == (Outcome.STALE, LATER)
    assert said(decided(rows, Hold(NIGHT, on=True, asked=BEFORE.isoformat())))[0] == Outcome.APPLIED


@pytest.mark.parametrize("state", ["submitting", "cancelling", "finished"])
def test_only_a_graph_that_goes_on_is_paused(state: str) -> None:
    decision = decided(paused(state=state), Hold(PAUSED, on=True))
    assert (said(decision), decision.changes) == ((Outcome.REFUSED, f"the graph is {state}"), ())


@pytest.mark.parametrize(("wishes", "words"), [("{", "is no JSON"), ("[]", "is no JSON object")])
@pytest.mark.parametrize("item", [Hold(PAUSED, on=True), HoldTask(A, on=True)], ids=["graph", "task"])
def test_damaged_wishes_are_an_error_of_their_row(wishes: str, words: str, item: Hold | HoldTask) -> None:
    key = GRAPH if isinstance(item, Hold) else OWN
    decision = decided(changed(paused(), key, heldAsked=wishes), item)
    (answer,) = decision.answers
    assert isinstance(answer.error, IntegrityError)
    assert str(answer.error).startswith(f"row {key}: column heldAsked {words}")
    assert str(answer.error).endswith(words)


# --- settling -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["unscheduled", "pending", "running"])
def test_a_task_takes_over_what_its_graph_holds_and_keeps_its_own(state: str) -> None:
    rows = changed(paused(PAUSED, NIGHT), "a", state=state, held=text(INACTIVE, by_group("old")), holds=3)
    decision = decided(rows, Settle(A, (PAUSED, NIGHT), 4))
    assert written(decision) == {OWN: {"holds": 4, "held": text(INACTIVE, PAUSED, NIGHT)}}
    assert (said(decision), decision.effects) == ((Outcome.APPLIED, ""), ())


def test_what_is_held_no_more_and_stands_ready_is_sent() -> None:
    rows = changed(paused(), "a", held=text(PAUSED), holds=3, pendingSince=BEFORE)
    decision = decided(rows, Settle(A, (), 4))
    assert written(decision) == {OWN: {"holds": 4, "held": "[]", "pendingSince": NOW}}
    assert decision.effects == SENT


@pytest.mark.parametrize(
    ("columns", "holders"),
    [
        ({"held": text(PAUSED), "state": "running"}, ()),
        ({"held": text(PAUSED), "state": "unscheduled"}, ()),
        ({"held": text(PAUSED, INACTIVE)}, ()),
        ({"held": text(PAUSED)}, (NIGHT,)),
        ({}, ()),
    ],
    ids=["runs", "waits", "inactive", "held by another", "never held"],
)
def test_nothing_else_is_sent_by_settling(columns: dict[str, str], holders: tuple[str, ...]) -> None:
    decision = decided(changed(paused(), "a", holds=3, pendingSince=BEFORE, **columns), Settle(A, holders, 4))
    assert "pendingSince" not in written(decision)[OWN]
    assert (decision.effects, said(decision)) == ((), (Outcome.APPLIED, ""))


def test_a_task_that_is_held_as_before_takes_the_number_alone() -> None:
    decision = decided(changed(paused(PAUSED), "a", held=text(PAUSED)), Settle(A, (PAUSED,), 4))
    assert written(decision) == {OWN: {"holds": 4}}


@pytest.mark.parametrize(
    ("number", "columns", "outcome"),
    [
        (3, {}, Outcome.STALE),
        (5, {}, Outcome.STALE),
        (4, {"holds": 4}, Outcome.REPEATED),
        (4, {"holds": 5}, Outcome.REPEATED),
        (4, {"state": "completed"}, Outcome.STALE),
    ],
)
def test_settling_counts_under_the_number_of_the_fence_and_once(
    number: int, columns: dict[str, Any], outcome: Outcome
) -> None:
    decision = decided(changed(paused(PAUSED), "a", **columns), Settle(A, (PAUSED,), number))
    assert (said(decision), decision.changes) == ((outcome, ""), ())


def test_the_end_of_settling_says_what_is_paused_now() -> None:
    pausing = {"settling": True, "pausing": text(PAUSED, NIGHT)}
    decision = decided(paused(PAUSED, NIGHT, pausedReason="why", **pausing), PublishHolds(4))
    assert written(decision)[GRAPH] == {"settling": False, "pausing": "[]"}
    graph = {"event": "graph-paused", "reason": "why"}
    assert events(decision) == [graph, {**graph, "group": "night"}]
    assert said(decision) == (Outcome.APPLIED, "")
    assert events(decided(paused(PAUSED, **pausing), PublishHolds(4)))[0] == {"event": "graph-paused"}


@pytest.mark.parametrize(
    ("columns", "number", "outcome"),
    [
        ({"settling": True}, 3, Outcome.STALE),
        ({"settling": True, "extending": "r"}, 4, Outcome.STALE),
        ({"settling": False}, 4, Outcome.REPEATED),
        ({}, 4, Outcome.REPEATED),
    ],
)
def test_the_end_of_settling_is_said_once_by_who_looked_last(
    columns: dict[str, Any], number: int, outcome: Outcome
) -> None:
    decision = decided(paused(PAUSED, pausing=text(PAUSED), **columns), PublishHolds(number))
    assert (said(decision), decision.changes) == ((outcome, ""), ())


# --- one task -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("reason", "why"), [("", {}), ("why", {"reason": "why"})])
def test_a_task_is_made_inactive_and_active_again(reason: str, why: dict[str, str]) -> None:
    off = decided(task(PAUSED), HoldTask(A, on=True, reason=reason))
    assert written(off)[OWN] == {
        "held": text(INACTIVE, PAUSED),
        "heldAsked": asked(inactive=NOW),
    }
    assert events(off) == [{"event": "task-held", "task": A, "label": "a", **why}]
    assert (said(off), off.effects) == ((Outcome.APPLIED, ""), ())
    on = decided(task(INACTIVE, PAUSED), HoldTask(A, on=False, reason=reason))
    assert written(on)[OWN] == {"held": text(PAUSED), "heldAsked": asked(inactive=NOW)}
    assert events(on) == [{"event": "task-released", "task": A, "label": "a", **why}]
    assert (said(on), on.effects) == ((Outcome.APPLIED, ""), ())


def test_a_task_that_is_active_again_and_stands_ready_is_sent() -> None:
    decision = decided(task(INACTIVE, pendingSince=BEFORE), HoldTask(A, on=False))
    row = written(decision)[OWN]
    assert (row["held"], row["pendingSince"], decision.effects) == ("[]", NOW, SENT)


@pytest.mark.parametrize(
    ("on", "held", "state", "sent", "words"),
    [
        (True, [INACTIVE], "pending", (), "it is inactive already"),
        (False, [], "pending", SENT, "it is active"),  # whoever made it so may have died before it was sent
        (False, [], "running", (), "it is active"),
        (False, [PAUSED], "pending", (), "it is active"),
    ],
)
def test_a_task_that_is_as_asked_is_noted_once(
    on: bool, held: list[str], state: str, sent: tuple[Dispatch, ...], words: str
) -> None:
    rows = task(*held, state=state)
    decision = decided(rows, HoldTask(A, on=on))
    assert written(decision) == {OWN: {"heldAsked": asked(inactive=NOW)}}
    assert (said(decision), decision.effects) == ((Outcome.APPLIED, words), sent)
    again = decided(changed(rows, "a", heldAsked=asked(inactive=NOW)), HoldTask(A, on=on))
    assert (again.changes, said(again), again.effects) == ((), (Outcome.REPEATED, words), sent)


def test_of_two_wishes_for_a_task_the_later_one_counts() -> None:
    rows = task(heldAsked=asked(inactive=NOW))
    older = decided(rows, HoldTask(A, on=True, asked=BEFORE.isoformat()))
    assert (said(older), older.changes) == ((Outcome.STALE, LATER), ())
    for moment in (NOW, AGAIN):
        row = written(decided(rows, HoldTask(A, on=True, asked=moment.isoformat())))[OWN]
        assert row["held"] == text(INACTIVE)
        assert row.get("heldAsked", asked(inactive=NOW)) == asked(inactive=moment)


def test_a_task_that_is_over_is_not_held() -> None:
    decision = decided(task(state="completed"), HoldTask(A, on=True))
    assert (said(decision), decision.changes) == ((Outcome.STALE, "the task is completed"), ())


# --- a task that comes back ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own", "held", "wanted", "moved"),
    [
        ([INACTIVE, PAUSED], [], [INACTIVE], False),
        ([], [PAUSED], [PAUSED], False),
        ([INACTIVE], [PAUSED], [INACTIVE, PAUSED], False),
        ([PAUSED], [PAUSED], [PAUSED], False),
        ([NIGHT], [], [], False),
        ([], [NIGHT], [NIGHT], True),
        ([INACTIVE], [PAUSED, NIGHT], [INACTIVE, PAUSED, NIGHT], True),
    ],
)
def test_a_rerun_is_held_by_what_its_graph_holds_now(
    own: list[str], held: list[str], wanted: list[str], moved: bool
) -> None:
    """Of which groups it is a task is found by settling again, under another number."""
    rows = changed(
        paused(*held, state="blocked", failedTasks=1), "a", state="failed", held=text(*own), holds=2, resolution="{}"
    )
    decision = decided(rows, ManualRerun(A, 0))
    row, graph = written(decision)[OWN], written(decision)[GRAPH]
    assert row.get("held", text(*own)) == text(*wanted)
    assert ("held" in row) is (own != wanted)
    assert row["holds"] == (0 if moved else 4)
    assert (graph.get("holds"), graph.get("settling")) == ((5, True) if moved else (None, None))
    sent = tuple(each for each in decision.effects if isinstance(each, Dispatch))
    assert sent == (() if wanted else SENT_AGAIN)


def test_a_rerun_in_a_graph_that_was_never_paused_takes_no_number() -> None:
    rows = changed(
        paused(holds=0, state="blocked", failedTasks=1), "a", state="failed", held=text(INACTIVE), resolution="{}"
    )
    decision = decided(rows, ManualRerun(A, 0))
    assert written(decision)[OWN].keys().isdisjoint({"held", "holds"})


# --- as a part of an edit -----------------------------------------------------------------------------------------


def edited(rows: Rows, *, active: bool) -> dict[str, Any]:
    """The columns of a that change when an edit says whether it is active."""
    view = View(rows)
    draft = view.get(OWN)
    set_active(draft, active, Context(view, NOW))
    return dict(draft.changed)


@pytest.mark.parametrize(
    ("held", "active", "after"),
    [
        ([], False, [INACTIVE]),
        ([PAUSED], False, [INACTIVE, PAUSED]),
        ([INACTIVE], False, [INACTIVE]),
        ([INACTIVE], True, []),
        ([INACTIVE, PAUSED], True, [PAUSED]),
        ([PAUSED], True, [PAUSED]),
    ],
)
@pytest.mark.parametrize("state", ["unscheduled", "pending", "failed"])
def test_an_edit_makes_a_task_inactive_or_active(held: list[str], active: bool, after: list[str], state: str) -> None:
    made = edited(task(*held, state=state, pendingSince=BEFORE), active=active)
    assert made.get("held", text(*held)) == text(*after)
    assert ("held" in made) is (held != after)
    released = (held, after, state) == ([INACTIVE], [], "pending")
    assert made.get("pendingSince") == (NOW if released else None), "it has stood ready since then"


def test_what_an_edit_says_comes_after_all_that_was_asked_before_by_whatever_clock() -> None:
    assert edited(task(), active=False)["heldAsked"] == asked(inactive=NOW)
    ahead = task(heldAsked=asked(inactive=AGAIN, other=AGAIN))
    microsecond = timedelta(microseconds=1)
    assert edited(ahead, active=False)["heldAsked"] == asked(inactive=AGAIN + microsecond, other=AGAIN)
    others = task(heldAsked=asked(other=AGAIN))
    assert edited(others, active=True)["heldAsked"] == asked(other=AGAIN, inactive=NOW)
