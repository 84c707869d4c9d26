"""Workers that are lost with a task, and graphs that stand still: what is written, and when nothing is."""

import json
from datetime import timedelta
from typing import Any

import pytest

from taskgraph.model import limits
from taskgraph.model.ids import GRAPH
from taskgraph.protocol.context import Cancelling, Outcome
from taskgraph.protocol.decide import Decision, decide
from taskgraph.protocol.lifecycle import Stall, Stir
from taskgraph.protocol.recall import ManualRerun
from taskgraph.protocol.runs import Claim, Failed, HandBack, LeaseLost, Renew, workers_lost
from tests.unit import transition_rows
from tests.unit.transition_rows import (
    NOW,
    Rows,
    changed,
    columns,
    decided,
    events,
    rows_of,
    task_id,
    written,
)

A = task_id("a")
PAST = NOW + timedelta(hours=1)


def graph(**more: Any) -> Rows:
    rows = rows_of({"a": [], "b": ["a"]})
    return changed(rows, "a", **more) if more else rows


def apply(rows: Rows, decision: Decision) -> Rows:
    """The rows after a commit, without its event: each decision here is the first of a journal."""
    after = transition_rows.apply(rows, decision)
    return {key: row for key, row in after.items() if not key.startswith("event:")}


def lose(rows: Rows, worker: str, **more: Any) -> tuple[Rows, Decision]:
    """A worker claims the present run of `a`, and is lost."""
    run = columns(rows, "a")["run"]
    ahead = more.pop("ahead", False)
    rows = apply(rows, decided(rows, Claim(A, run, "c", worker, NOW, ahead)))
    decision = decided(rows, LeaseLost(A, run, "c", certain=True, **more))
    return apply(rows, decision), decision


# --- a task that kills its workers -------------------------------------------------------------------------------


def test_the_third_worker_that_is_lost_with_a_task_ends_it_and_the_reason_names_all() -> None:
    rows = graph()
    for worker in ("w1", "w2"):
        rows, decision = lose(rows, worker)
        assert columns(rows, "a")["state"] == "pending"
    rows, decision = lose(rows, "w3")
    assert decision.answers[0].reason == "poison"
    after = columns(rows, "a")
    words = "3 workers were lost while they ran it: w1, w2, w3"
    assert (after["state"], json.loads(after["resolution"])) == (
        "exception",
        {"failed": True, "code": "poison", "reason": words},
    )
    assert after["retriesLeft"] == limits.RETRIES_DEFAULT - 2
    assert [each["event"] for each in events(decision)] == ["task-exception", "graph-blocked"]
    assert events(decision)[0]["reason"] == words


def test_one_worker_that_is_lost_time_and_again_is_one() -> None:
    rows = graph()
    for _ in range(limits.RETRIES_DEFAULT):
        rows, _ = lose(rows, "w")
        assert columns(rows, "a")["state"] == "pending"
    rows, _ = lose(rows, "w")
    assert "retries are spent" in columns(rows, "a")["resolution"]


@pytest.mark.parametrize("innocent", [{"ahead": True}, {"alive": True}])
def test_a_run_that_had_not_begun_or_whose_worker_lives_is_not_blamed(innocent: dict[str, bool]) -> None:
    rows = graph()
    for worker in ("w1", "w2", "w3", "w4"):
        rows, _ = lose(rows, worker, **innocent)
        assert columns(rows, "a")["state"] == "pending"
        assert columns(rows, "a").get("ahead") is not True, "the next run begins anew"
    assert all("begun" not in record for record in json.loads(columns(rows, "a")["runs"]))
    for worker in ("w5", "w6"):
        rows, _ = lose(rows, worker)
    assert "retries are spent" in columns(rows, "a")["resolution"], "six retries come before three that had begun"


def test_a_run_that_was_claimed_ahead_and_lived_to_renew_its_lease_has_begun() -> None:
    rows = graph()
    rows = apply(rows, decided(rows, Claim(A, 0, "c", "w", NOW, True)))
    assert columns(rows, "a")["ahead"] is True
    rows = apply(rows, decided(rows, Renew(A, 0, "c", PAST)))
    assert columns(rows, "a")["ahead"] is False
    rows = apply(rows, decided(rows, LeaseLost(A, 0, "c", certain=True)))
    assert json.loads(columns(rows, "a")["runs"])[0]["begun"] is True


def test_a_task_may_ask_for_more_workers_and_for_fewer() -> None:
    rows, _ = lose(graph(workersLostMax=1), "w1")
    assert columns(rows, "a")["state"] == "exception"
    rows = graph(workersLostMax=20)
    for worker in ("w1", "w2", "w3", "w4", "w5"):
        rows, _ = lose(rows, worker)
        assert columns(rows, "a")["state"] == "pending"


def test_an_answer_in_between_clears_the_task_and_a_hand_back_does_not() -> None:
    rows = graph(rerunsLeft=1, rerunsAllowed=1)
    for worker in ("w1", "w2"):
        rows, _ = lose(rows, worker)
    rows = apply(rows, decided(rows, Claim(A, 2, "c", "w", PAST)))
    handed = apply(rows, decided(rows, HandBack(A, 2, "c", "stopped")))
    assert columns(lose(handed, "w3")[0], "a")["state"] == "exception"
    failed = apply(rows, decided(rows, Failed(A, 2, "c", NOW.isoformat(), {"failed": True})))
    assert columns(lose(failed, "w3")[0], "a")["state"] == "pending"


def test_a_rerun_by_hand_begins_to_count_anew() -> None:
    rows = graph()
    for worker in ("w1", "w2", "w3"):
        rows, _ = lose(rows, worker)
    rows = apply(rows, decided(rows, ManualRerun(A, 2)))
    rows, _ = lose(rows, "w4")
    assert columns(rows, "a")["state"] == "pending"


def test_what_an_older_version_or_somebody_else_wrote_counts_for_nothing() -> None:
    runs = ["x", {"outcome": "lost", "worker": "old"}, {"outcome": "lost", "worker": "w", "begun": True}, None]
    assert workers_lost(runs, "v") == ["w", "v"]
    assert workers_lost([], "v") == ["v"]


# --- a graph that stands still -----------------------------------------------------------------------------------


def at(rows: Rows, item: Stall | Stir, sequence: int = 4) -> Decision:
    decision = decide(rows, [item], now=PAST, operation="op", sequence=sequence)
    assert isinstance(decision, Decision)
    return decision


MARK = Stall(3, "no worker", A, 0)


def test_a_mark_says_when_why_and_which_fact_it_is() -> None:
    rows = graph()
    decision = at(rows, MARK)
    assert written(decision)[GRAPH] == {"stalled": PAST, "stalledBecause": "no worker", "stalledAt": 4}
    assert events(decision) == [{"event": "graph-stalled", "reason": "no worker"}]
    assert decision.effects == ()
    after = apply(rows, decision)
    again = at(after, MARK, 5)
    assert (again.changes, again.answers[0].outcome) == ((), Outcome.REPEATED)
    stirred = at(after, Stir(), 5)
    assert written(stirred)[GRAPH] == {"stalledBecause": ""}
    assert events(stirred) == [{"event": "graph-unstalled"}]
    assert at(apply(after, stirred), Stir(), 6).answers[0].outcome is Outcome.REPEATED


def test_a_mark_without_words_is_a_mark() -> None:
    assert written(at(graph(), Stall(3, "")))[GRAPH]["stalledBecause"] == "nothing of it moves"
    assert len(written(at(graph(), Stall(3, "x" * 5_000)))[GRAPH]["stalledBecause"]) == limits.REASON_CHARS_MAX


@pytest.mark.parametrize("sequence", [0, 2, 4])
def test_a_number_that_is_not_known_or_old_is_no_sign_of_life(sequence: int) -> None:
    """The commit finds out: the number of its event row is taken."""
    assert at(graph(), MARK, sequence).answers[0].outcome is Outcome.APPLIED


def test_a_graph_that_has_moved_is_not_marked() -> None:
    rows = graph()
    assert at(rows, MARK, 5).answers[0].reason == "it has moved"
    claimed = apply(rows, decided(rows, Claim(A, 0, "c", "w", PAST)))
    for moved in (at(rows, MARK, 5), at(claimed, MARK), at(rows, Stall(3, "x", A, 1))):
        assert (moved.changes, moved.answers[0].outcome) == ((), Outcome.STALE)
        assert moved.answers[0].reason == "it has moved"
    again = changed(rows, "a", run=1)
    assert at(again, Stall(3, "x", A, 1)).answers[0].outcome is Outcome.APPLIED
    blocked = dict(rows)
    for state in ("blocked", "finished", "cancelling", "cancelled", "submitting"):
        blocked[GRAPH] = changed(rows, GRAPH, state=state)[GRAPH]
        assert at(blocked, MARK).answers[0].outcome is Outcome.STALE


def test_a_graph_may_ask_to_be_cancelled_when_it_has_stalled() -> None:
    decision = at(changed(graph(), GRAPH, onStalled="cancel"), MARK)
    assert written(decision)[GRAPH]["state"] == "cancelling"
    assert written(decision)[GRAPH]["reason"] == "it has stalled: no worker"
    assert [each["event"] for each in events(decision)] == ["graph-stalled", "graph-cancelling"]
    assert Cancelling(fenced=True) in decision.effects
    assert written(decision)[GRAPH]["code"] == "stalled"
    (_, fact) = events(decision)
    assert fact["code"] == "stalled"
    assert "terminate" not in fact, "what runs is stopped by its worker"
    assert "terminate" not in written(decision)[GRAPH]
    assert at(changed(graph(), GRAPH, onStalled="report"), MARK).effects == ()


def test_what_is_said_where_a_graph_is_not_marked() -> None:
    assert at(changed(graph(), GRAPH, state="finished"), MARK).answers[0].reason == "the graph is finished"
    marked = apply(graph(), at(graph(), MARK))
    assert at(marked, MARK).answers[0].reason == "it is marked already"
