"""The state machine as tables: what an item does in every state, and that saying it twice does nothing more."""

import json
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest

from taskgraph.model import limits
from taskgraph.model.errors import IntegrityError
from taskgraph.model.ids import GRAPH
from taskgraph.model.states import TASK_STORED
from taskgraph.protocol.context import Dispatch, GraphEnded, GraphRevived, Outcome
from taskgraph.protocol.decide import Item
from taskgraph.protocol.lifecycle import Abandon, Start
from taskgraph.protocol.recall import ManualRerun
from taskgraph.protocol.relays import Fire, Remind
from taskgraph.protocol.rows import NewerSchema
from taskgraph.protocol.runs import CannotRun, Claim, Completed, Failed, HandBack, LeaseLost, Renew
from tests.unit.transition_rows import (
    LATER,
    NOW,
    Rows,
    apply,
    changed,
    columns,
    decided,
    events,
    loaded_step_by_step,
    rows_of,
    run_down,
    running,
    task_id,
    without,
    written,
)

ENDED = "2026-01-01T12:00:00+00:00"
ENDED_AT = datetime.fromisoformat(ENDED)
A = task_id("a")
B = task_id("b")
PAIR = {"a": [], "b": ["a"]}


def completed(run: int = 0, claim: str = "c", label: str = "a") -> Completed:
    return Completed(task_id(label), run, claim, ENDED, {"failed": False})


def failed(run: int = 0, claim: str = "c", *, exception: bool = False) -> Failed:
    return Failed(A, run, claim, ENDED, {"failed": True, "reason": "broke"}, exception)


def claim(run: int = 0, name: str = "c") -> Claim:
    return Claim(A, run, name, "w", LATER)


def in_state(state: str, *, run: int = 1, claim: str = "c", reruns_left: int = 1) -> Rows:
    """a in one of its states, in run 1, b waiting for it (or ready, if a has completed)."""
    rows = rows_of(PAIR, {"a": 2})
    rows = running(rows, "a", run=run, claim=claim)
    rows = changed(rows, "a", state=state, rerunsLeft=reruns_left, pendingSince=NOW)
    if state == "pending":
        rows = changed(rows, "a", claim="")
    if state == "completed":
        rows = changed(rows, "b", state="pending", requiresLeft="[]")
    if state in ("failed", "exception"):
        rows = changed(rows, "a", rerunsLeft=0, resolution='{"failed":true}', ended=ENDED_AT)
        rows = changed(rows, GRAPH, state="blocked", failedTasks=1, blockedBy="a")
    return rows


STATES = ("pending", "running", "completed", "failed", "exception")

# item -> state of the task -> (outcome, state after)
APPLIED, REPEATED, STALE, REFUSED = Outcome.APPLIED, Outcome.REPEATED, Outcome.STALE, Outcome.REFUSED
TABLE: Mapping[str, tuple[Item, Mapping[str, tuple[Outcome, str]]]] = {
    "completed": (
        completed(1),
        {
            "pending": (STALE, "pending"),
            "running": (APPLIED, "completed"),
            "completed": (REPEATED, "completed"),
            "failed": (STALE, "failed"),
            "exception": (STALE, "exception"),
        },
    ),
    "failed": (
        failed(1),
        {
            "pending": (STALE, "pending"),
            "running": (APPLIED, "pending"),
            "completed": (STALE, "completed"),
            "failed": (REPEATED, "failed"),
            "exception": (REPEATED, "exception"),
        },
    ),
    "exception": (
        failed(1, exception=True),
        {
            "pending": (STALE, "pending"),
            "running": (APPLIED, "exception"),
            "completed": (STALE, "completed"),
            "failed": (REPEATED, "failed"),
            "exception": (REPEATED, "exception"),
        },
    ),
    "manual rerun": (
        ManualRerun(A, 1),
        {
            "pending": (REFUSED, "pending"),
            "running": (REFUSED, "running"),
            "completed": (APPLIED, "pending"),
            "failed": (APPLIED, "pending"),
            "exception": (APPLIED, "pending"),
        },
    ),
    "manual rerun of the run before": (
        ManualRerun(A, 0),
        {
            "pending": (REPEATED, "pending"),
            "running": (STALE, "running"),
            "completed": (STALE, "completed"),
            "failed": (STALE, "failed"),
            "exception": (STALE, "exception"),
        },
    ),
    "claim": (
        claim(1, "fresh"),
        {
            "pending": (APPLIED, "running"),
            "running": (STALE, "running"),
            "completed": (STALE, "completed"),
            "failed": (STALE, "failed"),
            "exception": (STALE, "exception"),
        },
    ),
    "claim by the holder": (claim(1, "c"), {"running": (REPEATED, "running")}),
    "renew": (
        Renew(A, 1, "c", LATER + timedelta(seconds=60)),
        {
            "pending": (STALE, "pending"),
            "running": (APPLIED, "running"),
            "completed": (STALE, "completed"),
            "failed": (STALE, "failed"),
            "exception": (STALE, "exception"),
        },
    ),
    "hand back": (
        HandBack(A, 1, "c", "stop"),
        {
            "pending": (STALE, "pending"),
            "running": (APPLIED, "pending"),
            "completed": (STALE, "completed"),
            "failed": (STALE, "failed"),
            "exception": (STALE, "exception"),
        },
    ),
    "lease lost": (
        LeaseLost(A, 1, "c", certain=True),
        {
            "pending": (STALE, "pending"),
            "running": (APPLIED, "pending"),
            "completed": (STALE, "completed"),
            "failed": (STALE, "failed"),
            "exception": (STALE, "exception"),
        },
    ),
    "cannot run": (
        CannotRun(A, 1, "w", "no python"),
        {
            "pending": (APPLIED, "pending"),
            "running": (STALE, "running"),
            "completed": (STALE, "completed"),
            "failed": (STALE, "failed"),
            "exception": (STALE, "exception"),
        },
    ),
    "remind": (
        Remind(A),
        {
            "pending": (REPEATED, "pending"),
            "running": (STALE, "running"),
            "completed": (STALE, "completed"),
            "failed": (STALE, "failed"),
            "exception": (STALE, "exception"),
        },
    ),
}
CASES = [
    pytest.param(item, state, outcome, after, id=f"{name}-{state}")
    for name, (item, by_state) in TABLE.items()
    for state, (outcome, after) in by_state.items()
]


@pytest.mark.parametrize(("item", "state", "outcome", "after"), CASES)
def test_every_item_in_every_state(item: Item, state: str, outcome: Outcome, after: str) -> None:
    rows = in_state(state)
    decision = decided(rows, item)
    (answer,) = decision.answers
    assert (answer.item, answer.outcome, answer.error) == (item, outcome, None)
    assert decision.left == ()
    assert columns(apply(rows, decision), "a")["state"] == after
    if outcome is not APPLIED:
        assert decision.changes == ()
    elif not isinstance(item, Renew | CannotRun):
        assert decision.changes != ()


def told(effects: Any) -> set[object]:
    """What is said to the outside. That a graph lives again needs no repeating: a blocked one never left the index."""
    return {effect for effect in effects if not isinstance(effect, GraphRevived)}


@pytest.mark.parametrize(("item", "state", "outcome", "after"), CASES)
def test_decided_again_it_changes_nothing_and_says_the_same(
    item: Item, state: str, outcome: Outcome, after: str
) -> None:
    first = decided(in_state(state), item)
    rows = apply(in_state(state), first)
    second = decided(rows, item, sequence=2, now=NOW + timedelta(seconds=5))
    assert second.changes == ()
    assert events(second) == []
    assert told(second.effects) >= told(first.effects)
    third = decided(rows, item, sequence=2, now=NOW + timedelta(days=1))
    assert third == second


@pytest.mark.parametrize(("item", "state", "outcome", "after"), CASES)
def test_twice_in_one_batch_is_as_once(item: Item, state: str, outcome: Outcome, after: str) -> None:
    once, twice = decided(in_state(state), item), decided(in_state(state), item, item)
    assert written(once) == written(twice)
    assert told(once.effects) == told(twice.effects)
    assert len(twice.answers) == 2


@pytest.mark.parametrize(("item", "state", "outcome", "after"), CASES)
def test_rows_asked_for_step_by_step_give_the_same_decision(
    item: Item, state: str, outcome: Outcome, after: str
) -> None:
    rows = in_state(state)
    decision, asked = loaded_step_by_step(rows, item)
    assert decision == decided(rows, item)
    assert 1 <= asked <= 3


def test_a_decision_reads_neither_clock_nor_chance() -> None:
    rows = in_state("running")
    assert decided(rows, completed(1)) == decided(rows, completed(1))


STALE_ITEMS: Mapping[str, Callable[[int, str], Item]] = {
    "completed": lambda run, name: completed(run, name),
    "failed": lambda run, name: failed(run, name),
    "exception": lambda run, name: failed(run, name, exception=True),
    "claim": lambda run, name: claim(run, name),
    "renew": lambda run, name: Renew(A, run, name, LATER),
    "hand back": lambda run, name: HandBack(A, run, name, "stop"),
    "lease lost": lambda run, name: LeaseLost(A, run, name, certain=True),
    "cannot run": lambda run, name: CannotRun(A, run, "w", "x"),
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("kind", STALE_ITEMS)
@pytest.mark.parametrize(
    ("run", "name"), [(0, "c"), (2, "c"), (1_000_000, "c"), (1, "other"), (0, "other"), (1, "")], ids=str
)
def test_an_item_of_another_run_or_claim_changes_nothing(kind: str, state: str, run: int, name: str) -> None:
    if run == 1 and kind in ("claim", "cannot run"):
        run = 3  # a pending run is for whoever comes first, under any name
    decision = decided(in_state(state), STALE_ITEMS[kind](run, name))
    assert decision.changes == ()
    assert decision.answers[0].outcome is STALE
    assert all(effect == Dispatch(A, 1, "default") for effect in decision.effects), "what is said is true now"


# --- completion ------------------------------------------------------------------------------------------------


def test_completing_a_task_makes_its_dependent_ready_in_the_same_commit() -> None:
    rows = running(rows_of(PAIR), "a")
    decision = decided(rows, completed())
    assert written(decision)[f"task:{A}"] == {
        "state": "completed",
        "ended": ENDED_AT,
        "resolved": NOW,
        "resolution": '{"failed":false}',
    }
    assert written(decision)[f"task:{B}"] == {"requiresLeft": "[]", "state": "pending", "pendingSince": NOW}
    assert decision.effects == (Dispatch(B, 0, "default"),)
    assert events(decision) == [{"event": "task-completed", "task": A, "label": "a", "run": 0}]
    assert GRAPH not in written(decision), "the graph row is left alone by whoever is no leaf"


def test_only_the_last_requirement_makes_ready() -> None:
    rows = running(running(rows_of({"a": [], "b": [], "c": ["a", "b"]}), "a"), "b")
    rows, effects, _ = run_down(rows, completed())
    assert (columns(rows, "c")["state"], effects) == ("unscheduled", [])
    assert json.loads(columns(rows, "c")["requiresLeft"]) == [B]
    rows, effects, _ = run_down(rows, completed(label="b"), first=2)
    assert (columns(rows, "c")["state"], effects) == ("pending", [Dispatch(task_id("c"), 0, "default")])


def test_the_last_leaf_finishes_the_graph() -> None:
    rows = running(rows_of({"a": []}), "a")
    decision = decided(rows, completed())
    assert written(decision)[GRAPH] == {"requiresLeft": "[]", "state": "finished", "finished": NOW}
    assert [event["event"] for event in events(decision)] == ["task-completed", "graph-finished"]
    assert decision.effects == (GraphEnded("finished"),)  # type: ignore[arg-type]


def test_a_leaf_of_a_blocked_graph_counts_down_and_does_not_finish_it() -> None:
    rows = running(rows_of({"a": [], "b": []}), "a")
    rows = changed(rows, "b", state="failed")
    rows = changed(rows, GRAPH, state="blocked", failedTasks=1)
    rows, effects, _ = run_down(rows, completed())
    assert columns(rows, GRAPH)["state"] == "blocked"
    assert json.loads(columns(rows, GRAPH)["requiresLeft"]) == [B]
    assert effects == []


@pytest.mark.parametrize("count", [1, 20, 95, 200])
def test_a_batch_of_completions_is_one_commit_while_it_fits(count: int) -> None:
    labels = [f"t{number:03}" for number in range(count)]
    rows = rows_of({**{label: [] for label in labels}, "z": labels})
    for label in labels:
        rows = running(rows, label)
    items = [completed(label=label) for label in labels]
    rows, effects, answers = run_down(rows, *items)
    assert {columns(rows, label)["state"] for label in labels} == {"completed"}
    assert columns(rows, "z")["state"] == "pending"
    assert effects == [Dispatch(task_id("z"), 0, "default")]
    assert [answer.item for answer in answers] == items


# --- failure ---------------------------------------------------------------------------------------------------


def test_a_rerun_spends_one_and_begins_a_new_run() -> None:
    rows = in_state("running", reruns_left=2)
    decision = decided(rows, failed(1))
    after = columns(apply(rows, decision), "a")
    assert (after["state"], after["run"], after["rerunsLeft"], after["claim"]) == ("pending", 2, 1, "")
    assert json.loads(after["runs"]) == [
        {
            "run": 1,
            "outcome": "failed",
            "worker": "w",
            "started": NOW.isoformat(),
            "ended": ENDED,
            "reason": "broke",
        }
    ]
    assert decision.effects == (Dispatch(A, 2, "default"),)
    assert events(decision) == [
        {"event": "task-rerun", "task": A, "label": "a", "run": 2, "because": "failed", "reason": "broke"}
    ]


@pytest.mark.parametrize("left", [0, -1, -5])
def test_without_a_budget_there_is_no_rerun(left: int) -> None:
    """Never `!= 0`: a budget that somehow went below zero must not run for ever, and is not made worse (T3)."""
    rows = in_state("running", reruns_left=left)
    after = apply(rows, decided(rows, failed(1)))
    assert columns(after, "a")["state"] == "failed"
    assert columns(after, "a")["rerunsLeft"] == left
    assert columns(after, GRAPH)["state"] == "blocked"


@pytest.mark.parametrize("budget", [0, 1, 3])
def test_budgets_never_go_below_zero(budget: int) -> None:
    rows = running(rows_of({"a": []}, {"a": budget}), "a")
    number = 0
    while columns(rows, "a")["state"] != "failed":
        rows, _, _ = run_down(rows, *[failed(number)] * 3, first=2 * number + 1)
        number += 1
        assert 0 <= columns(rows, "a")["rerunsLeft"] == budget - min(number, budget)
        if columns(rows, "a")["state"] == "pending":
            rows, _, _ = run_down(rows, claim(number), first=2 * number)
    assert number == budget + 1
    assert columns(rows, GRAPH)["failedTasks"] == 1


@pytest.mark.parametrize("left", [0, -1])
def test_without_retries_a_lost_lease_is_an_exception(left: int) -> None:
    rows = changed(in_state("running"), "a", retriesLeft=left)
    decision = decided(rows, LeaseLost(A, 1, "c", certain=True))
    after = columns(apply(rows, decision), "a")
    assert (after["state"], after["retriesLeft"], after["rerunsLeft"]) == ("exception", left, 1)
    assert [event["event"] for event in events(decision)] == ["task-exception", "graph-blocked"]


@pytest.mark.parametrize(("seconds", "outcome"), [(59, REFUSED), (60, REFUSED), (61, APPLIED)])
def test_a_lease_is_lost_only_once_it_has_ended(seconds: int, outcome: Outcome) -> None:
    rows = in_state("running")
    decision = decided(rows, LeaseLost(A, 1, "c"), now=NOW + timedelta(seconds=seconds))
    assert decision.answers[0].outcome is outcome


def test_blocking_is_told_once_and_every_failure_counted() -> None:
    rows = running(running(rows_of({"a": [], "b": []}), "a"), "b")
    first = decided(rows, failed())
    assert events(first)[-1] == {"event": "graph-blocked", "task": A, "label": "a", "reason": "broke"}
    rows = apply(rows, first)
    second = decided(rows, Failed(B, 0, "c", ENDED, {"failed": True}), sequence=2)
    assert [event["event"] for event in events(second)] == ["task-failed"]
    after = apply(rows, second, mark="2")
    assert (columns(after, GRAPH)["failedTasks"], columns(after, GRAPH)["blockedBy"]) == (2, "a")


@pytest.mark.parametrize("state", ["deleting", "restoring", "submitting", "cancelling"])
def test_no_manual_rerun_in_a_graph_that_is_on_its_way(state: str) -> None:
    rows = changed(in_state("failed"), GRAPH, state=state)
    decision = decided(rows, ManualRerun(A, 1))
    assert (decision.changes, decision.effects, decision.answers[0].outcome) == ((), (), REFUSED)
    assert state in decision.answers[0].reason


def test_unblocking_counts_down_to_zero() -> None:
    rows = changed(in_state("failed"), GRAPH, failedTasks=2)
    after = apply(rows, decided(rows, ManualRerun(A, 1)))
    assert (columns(after, GRAPH)["state"], columns(after, GRAPH)["failedTasks"]) == ("blocked", 1)
    rows = in_state("failed")
    decision = decided(rows, ManualRerun(A, 1))
    after = apply(rows, decision)
    assert (columns(after, GRAPH)["state"], columns(after, GRAPH)["failedTasks"]) == ("running", 0)
    assert [event["event"] for event in events(decision)] == ["task-rerun", "graph-unblocked"]
    assert set(decision.effects) == {Dispatch(A, 2, "default"), GraphRevived()}


def test_the_target_of_a_task_is_where_it_is_sent() -> None:
    rows = changed(in_state("pending"), "a", target="gpu")
    assert decided(rows, Remind(A)).effects == (Dispatch(A, 1, "gpu"),)


# --- start and abandon -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "digest", "outcome", "after"),
    [
        ("submitting", "digest", APPLIED, "running"),
        ("submitting", "other", REFUSED, "submitting"),
        ("running", "digest", REPEATED, "running"),
        ("running", "other", REFUSED, "running"),
        ("blocked", "digest", REPEATED, "blocked"),
        ("finished", "digest", REPEATED, "finished"),
        ("cancelled", "digest", REFUSED, "cancelled"),
    ],
)
def test_starting(state: str, digest: str, outcome: Outcome, after: str) -> None:
    rows = rows_of(PAIR, state=state)
    decision = decided(rows, Start(digest))
    assert decision.answers[0].outcome is outcome
    after_rows = apply(rows, decision)
    assert columns(after_rows, GRAPH)["state"] == after
    assert [event["event"] for event in events(decision)] == (["graph-running"] if outcome is APPLIED else [])
    again = decided(after_rows, Start(digest), sequence=2)
    assert again.changes == ()


@pytest.mark.parametrize(
    ("state", "age", "after"),
    [
        ("submitting", 10, "cancelled"),
        ("submitting", 0, "submitting"),
        ("submitting", -10, "submitting"),
        ("running", 10, "running"),
        ("finished", 10, "finished"),
    ],
)
def test_abandoning(state: str, age: int, after: str) -> None:
    """Only a submission that never started, and only an old one; whoever goes on with it later is refused."""
    rows = rows_of(PAIR, state=state)
    item = Abandon(NOW + timedelta(seconds=age))
    decision = decided(rows, item)
    after_rows = apply(rows, decision)
    assert columns(after_rows, GRAPH)["state"] == after
    assert decided(after_rows, item, sequence=2).changes == ()
    if after == "cancelled":
        assert decided(after_rows, Start("digest"), sequence=2).answers[0].outcome is REFUSED


# --- relays ----------------------------------------------------------------------------------------------------

WIDE = [f"t{number:03}" for number in range(100)]


def test_a_join_passes_on_when_all_of_its_members_have_completed() -> None:
    rows = rows_of({**{label: [] for label in WIDE}, "z": WIDE})
    joins = sorted(key for key in rows if key.startswith("join:") and task_id("z") in key)
    assert len(joins) == 2
    for label in WIDE:
        rows = running(rows, label)
    rows, effects, _ = run_down(rows, *(completed(label=label) for label in WIDE[1:]))
    assert columns(rows, "z")["state"] == "unscheduled"
    rows, effects, _ = run_down(rows, completed(label=WIDE[0]), first=10)
    assert {columns(rows, join)["state"] for join in joins} == {"completed"}
    assert effects == [Dispatch(task_id("z"), 0, "default")]


@pytest.mark.parametrize("state", ["unscheduled", "pending", "completed"])
def test_firing_a_relay(state: str) -> None:
    rows = rows_of({**{label: [] for label in WIDE}, "z": WIDE})
    join = min(key for key in rows if key.startswith("join:") and task_id("z") in key)
    if state != "unscheduled":
        rows = changed(rows, join, requiresLeft="[]", state=state)
    if state == "completed":
        left = [each for each in json.loads(columns(rows, "z")["requiresLeft"]) if each != join]
        rows = changed(rows, "z", requiresLeft=json.dumps(left))
    decision = decided(rows, Fire(join))
    assert decision.answers == (), "nobody outside asked"
    assert bool(decision.changes) == (state == "pending")
    after = apply(rows, decision)
    assert (join in json.loads(columns(after, "z")["requiresLeft"])) == (state == "unscheduled")
    assert decided(after, Fire(join), sequence=2).changes == ()


# --- what cannot be ----------------------------------------------------------------------------------------------

DAMAGE: Mapping[str, Callable[[Rows], Rows]] = {
    "a dependent is missing": lambda rows: without(rows, "b"),
    "a dependent's list is damaged": lambda rows: changed(rows, "b", requiresLeft="{"),
    "a dependent's list holds numbers": lambda rows: changed(rows, "b", requiresLeft="[1]"),
    "the list of dependents is damaged": lambda rows: changed(rows, "a", dependents='"x"'),
    "a dependent is of a newer schema": lambda rows: changed(rows, "b", schema=5),
    "a dependent is missing and unknown": lambda rows: (
        changed(rows, "a", dependents='["nobody"]') | {"task:nobody": None}
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_rows_that_contradict_each_other_stop_one_item_and_leave_nothing_half_done(damage: str) -> None:
    rows = rows_of({"a": [], "b": ["a"], "x": [], "y": ["x"]})
    rows = DAMAGE[damage](running(running(rows, "a"), "x"))
    before, bad, after = completed(label="x"), completed(), Remind(task_id("y"))
    decision = decided(rows, before, bad, after)
    errors = [answer.error for answer in decision.answers]
    assert errors[0] is errors[2] is None
    assert isinstance(errors[1], NewerSchema if "newer" in damage else IntegrityError)
    assert decision.answers[1].outcome is REFUSED
    assert written(decision).keys() == {f"task:{task_id('x')}", f"task:{task_id('y')}", "event:0000000001"}
    assert [event["label"] for event in events(decision)] == ["x"]
    assert decided(rows, bad).changes == ()
    assert decided(rows, bad).effects == ()


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("rerunsLeft", "two"),
        ("run", 1.5),
        ("runs", "{"),
        ("runs", "{}"),
        ("started", "yesterday"),
        ("rerunsLeft", True),
    ],
    ids=str,
)
def test_a_damaged_cell_is_an_integrity_error(column: str, value: Any) -> None:
    rows = changed(in_state("running"), "a", **{column: value})
    decision = decided(rows, failed(1))
    assert isinstance(decision.answers[0].error, IntegrityError)
    assert (decision.changes, decision.effects) == ((), ())


def test_a_damaged_resolution_does_not_stop_other_reruns() -> None:
    rows = changed(in_state("failed"), "a", resolution="[]")
    decision = decided(rows, ManualRerun(A, 1))
    assert isinstance(decision.answers[0].error, IntegrityError)
    assert decision.changes == ()


def test_a_rerun_in_a_graph_that_counts_no_failure_is_an_integrity_error() -> None:
    """A count below zero would unblock a graph too early later on."""
    rows = changed(in_state("failed"), GRAPH, failedTasks=0)
    decision = decided(rows, ManualRerun(A, 1))
    assert isinstance(decision.answers[0].error, IntegrityError)
    assert decision.changes == ()


def test_a_graph_that_waits_for_nothing_though_a_task_failed_does_not_finish() -> None:
    rows = changed(running(rows_of({"a": []}), "a"), GRAPH, failedTasks=1)
    decision = decided(rows, completed())
    assert isinstance(decision.answers[0].error, IntegrityError)
    assert decision.changes == ()


def test_states_of_the_table_are_all_there_are() -> None:
    """Unscheduled is tested with results that nobody can have, skipped is nobody's yet."""
    assert {str(state) for state in TASK_STORED} == {*STATES, "unscheduled", "skipped"}
    for name, (item, _) in TABLE.items():
        if isinstance(item, Claim | Completed | Failed | Renew | HandBack | LeaseLost | CannotRun | Remind):
            rows = changed(rows_of(PAIR), "a", state="unscheduled", run=1)
            decision = decided(rows, item)
            assert (decision.changes, decision.effects, decision.answers[0].outcome) == ((), (), STALE), name


def test_earlier_runs_are_cut_to_what_is_kept_and_to_what_fits() -> None:
    many = json.dumps([{"run": number} for number in range(limits.RUNS_KEPT_MAX)])
    rows = changed(in_state("running"), "a", runs=many)
    kept = json.loads(columns(apply(rows, decided(rows, failed(1))), "a")["runs"])
    assert len(kept) == limits.RUNS_KEPT_MAX
    assert kept[0] == {"run": 1}
    long = json.dumps([{"run": number, "logsUrl": "ü" * 4_000} for number in range(7)], ensure_ascii=False)
    rows = changed(in_state("running"), "a", runs=long)
    url = "\U0001f600" * 2_000
    item = Failed(A, 1, "c", ENDED, {"failed": True, "logsUrl": url})
    text = columns(apply(rows, decided(rows, item)), "a")["runs"]
    assert len(text.encode("utf-16-le")) // 2 <= limits.PROPERTY_CHARS_MAX
    assert json.loads(text)[-1]["logsUrl"] == url
    assert len(json.loads(text)) == 7


def test_a_resolution_that_does_not_fit_is_cut_to_what_is_known() -> None:
    resolution = {"failed": False, "exitCode": 0, "resultUrl": "u", "note": "x" * limits.PROPERTY_CHARS_MAX}
    rows = in_state("running")
    after = apply(rows, decided(rows, Completed(A, 1, "c", ENDED, resolution)))
    assert json.loads(columns(after, "a")["resolution"]) == {
        "failed": False,
        "exitCode": 0,
        "resultUrl": "u",
        "reason": "",
    }
