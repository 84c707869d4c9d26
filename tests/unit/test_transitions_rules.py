"""Every column that a transition writes, every word with which it answers, and every bound, to the letter.

The tables of test_transitions say which state follows; here is what else stands on the rows, for people, for the next
run, and for `why`.
"""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from taskgraph.model import limits
from taskgraph.model.errors import IntegrityError
from taskgraph.model.ids import GRAPH, fork_reference, join_reference, row_key
from taskgraph.model.states import GraphState
from taskgraph.protocol.cancel import CancelTask
from taskgraph.protocol.context import Dispatch, GraphEnded, Outcome
from taskgraph.protocol.decide import EVENT_CHARS_MAX, Answer, Decision, Item, Need, decide
from taskgraph.protocol.extension import AcceptExtension, FinishExtension, InsertRows, LinkTasks, RefuseRequest
from taskgraph.protocol.layout import lay_out
from taskgraph.protocol.lifecycle import Abandon, Start
from taskgraph.protocol.pause import HoldTask
from taskgraph.protocol.recall import ManualRerun
from taskgraph.protocol.relays import Fire, Remind
from taskgraph.protocol.runs import CannotRun, Claim, Completed, Failed, HandBack, LeaseLost, Renew
from taskgraph.protocol.wiring import Link
from taskgraph.storage.checks import check_columns, sent_bytes
from taskgraph.storage.tables import Insert, Row
from tests.unit.transition_rows import (
    LATER,
    NOW,
    Rows,
    apply,
    changed,
    columns,
    decided,
    document,
    events,
    loaded_step_by_step,
    rows_of,
    running,
    task_id,
    written,
)

ENDED = "2026-01-01T12:00:00+00:00"
ENDED_AT = datetime.fromisoformat(ENDED)
A, B = task_id("a"), task_id("b")
OWN = f"task:{A}"
PAIR = {"a": [], "b": ["a"]}


def held(**more: Any) -> Rows:
    """a in run 1, held under claim c by w; b waits for it."""
    return changed(running(rows_of(PAIR, {"a": 2}), "a", run=1), "a", **{"rerunsLeft": 1, **more})


def only(decision: Decision) -> Answer:
    (answer,) = decision.answers
    return answer


def said(rows: Rows, item: Item, **more: Any) -> tuple[Outcome, str]:
    answer = only(decided(rows, item, **more))
    return answer.outcome, answer.reason


# --- results ---------------------------------------------------------------------------------------------------


def test_a_failure_for_good_writes_down_when_and_why() -> None:
    rows = held(rerunsLeft=0)
    decision = decided(rows, Failed(A, 1, "c", ENDED, {"failed": True, "reason": "broke", "exitCode": 3}))
    assert written(decision)[OWN] == {
        "state": "failed",
        "ended": ENDED_AT,
        "resolved": NOW,
        "resolution": '{"failed":true,"reason":"broke","exitCode":3}',
    }
    assert written(decision)[GRAPH] == {"state": "blocked", "failedTasks": 1, "blockedBy": "a", "blocked": NOW}
    assert events(decision) == [
        {"event": "task-failed", "task": A, "label": "a", "run": 1, "reason": "broke"},
        {"event": "graph-blocked", "task": A, "label": "a", "reason": "broke"},
    ]
    assert (only(decision).outcome, only(decision).reason) == (Outcome.APPLIED, "")


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2026-01-01T13:00:00.5+01:00", datetime(2026, 1, 1, 12, 0, 0, 500_000, UTC)),
        ("2026-01-01t12:00:00.123456789z", datetime(2026, 1, 1, 12, 0, 0, 123_456, UTC)),
        ("2026-06-30T23:59:60Z", datetime(2026, 6, 30, 23, 59, 59, 999_999, UTC)),
        ("1066-10-14T09:00:00Z", datetime(1602, 1, 1, tzinfo=UTC)),
        *((wrong, LATER) for wrong in ("", "soon", "2026-01-01", "2026-01-01T12:00:00", "9999-12-31T23:59:59-14:00")),
        ("2026-13-01T12:00:00Z", LATER),
    ],
)
def test_a_run_ended_when_its_worker_says_or_now(text: str, time: datetime) -> None:
    """On the row it is a time that every store keeps; a word that is none is no reason to refuse the result."""
    for item in (Completed(A, 1, "c", text, {}), Failed(A, 1, "c", text, {"failed": True}, exception=True)):
        decision = decided(held(), item, now=LATER)
        ended = written(decision)[OWN]["ended"]
        assert (ended, ended.tzinfo) == (time, UTC)
        check_columns(OWN, written(decision)[OWN])


def test_an_exception_spends_no_rerun() -> None:
    rows = held()
    decision = decided(rows, Failed(A, 1, "c", ENDED, {"failed": True, "reason": "no such command"}, exception=True))
    assert written(decision)[OWN] == {
        "state": "exception",
        "ended": ENDED_AT,
        "resolved": NOW,
        "resolution": '{"failed":true,"reason":"no such command"}',
    }
    assert [event["event"] for event in events(decision)] == ["task-exception", "graph-blocked"]


def test_a_failure_is_no_exception_unless_it_says_so() -> None:
    assert Failed(A, 1, "c", ENDED, {}).exception is False
    assert LeaseLost(A, 1, "c").certain is False


def test_a_failure_without_a_reason_tells_none() -> None:
    decision = decided(held(rerunsLeft=0), Failed(A, 1, "c", ENDED, {"failed": True}))
    assert "reason" not in events(decision)[0]
    decision = decided(held(), Failed(A, 1, "c", ENDED, {"failed": True}))
    assert "reason" not in events(decision)[0]
    assert "reason" not in json.loads(str(written(decision)[OWN]["runs"]))[0]


def test_a_rerun_is_answered_as_one() -> None:
    assert said(held(), Failed(A, 1, "c", ENDED, {"failed": True})) == (Outcome.APPLIED, "rerun")
    assert said(held(), LeaseLost(A, 1, "c", certain=True)) == (Outcome.APPLIED, "retry")
    assert said(held(), HandBack(A, 1, "c", "stop")) == (Outcome.APPLIED, "")
    assert said(held(), Completed(A, 1, "c", ENDED, {})) == (Outcome.APPLIED, "")
    assert said(held(state="pending"), Remind(A)) == (Outcome.REPEATED, "")


def test_the_record_of_a_run_that_ended() -> None:
    """Who ran it, from when to when, and with what result; the reason cut to 200 characters."""
    long = "r" * 199 + "xyz"
    resolution = {"failed": True, "reason": long, "exitCode": 7, "logsUrl": "file:///log", "resultUrl": "no"}
    rows = held(runs='[{"run":0,"outcome":"lost"}]')
    decision = decided(rows, Failed(A, 1, "c", ENDED, resolution), now=LATER)
    assert written(decision)[OWN]["runs"] == (
        '[{"run":0,"outcome":"lost"},'
        f'{{"run":1,"outcome":"failed","worker":"w","started":"{NOW.isoformat()}","ended":"{ENDED}",'
        f'"reason":"{long[:200]}","exitCode":7,"logsUrl":"file:///log"}}]'
    )
    assert written(decision)[OWN].keys() == {"rerunsLeft", "runs", "run", "claim", "state", "pendingSince"}
    assert events(decision)[0]["reason"] == long


def test_a_run_that_never_said_when_it_started() -> None:
    row = held()[OWN]
    assert row is not None
    rows = held() | {OWN: Row(OWN, "e", {name: value for name, value in row.columns.items() if name != "started"})}
    record = json.loads(str(written(decided(rows, HandBack(A, 1, "c", "")))[OWN]["runs"]))[0]
    assert record == {"run": 1, "outcome": "handed-back", "worker": "w", "started": "", "ended": NOW.isoformat()}


def test_words_of_any_language_are_written_as_they_are() -> None:
    item = Failed(A, 1, "c", ENDED, {"failed": True, "reason": "zu spät – ü"})
    assert "zu spät – ü" in written(decided(held(), item))[OWN]["runs"]
    assert "zu spät – ü" in written(decided(held(rerunsLeft=0), item))[OWN]["resolution"]
    (fact,) = [row for key, row in written(decided(held(), item)).items() if key.startswith("event:")]
    assert "zu spät – ü" in fact["events"]


def test_handing_back_is_counted_and_spends_nothing() -> None:
    rows = held(handBacks=2)
    decision = decided(rows, HandBack(A, 1, "c", "shutting down"))
    after = columns(apply(rows, decision), "a")
    assert (after["handBacks"], after["rerunsLeft"], after["retriesLeft"]) == (3, 1, limits.RETRIES_DEFAULT)
    assert (after["state"], after["run"], after["claim"]) == ("pending", 2, "")
    assert json.loads(after["runs"])[0]["reason"] == "shutting down"
    assert events(decision) == [
        {
            "event": "task-rerun",
            "task": A,
            "label": "a",
            "run": 2,
            "because": "handed-back",
            "reason": "shutting down",
        }
    ]


def test_a_lost_worker_spends_one_retry_and_is_named() -> None:
    rows = held(retriesLeft=1)
    decision = decided(rows, LeaseLost(A, 1, "c"), now=NOW + timedelta(seconds=61))
    after = columns(apply(rows, decision), "a")
    assert (after["retriesLeft"], after["rerunsLeft"], after["state"]) == (0, 1, "pending")
    assert json.loads(after["runs"]) == [
        {
            "run": 1,
            "outcome": "lost",
            "worker": "w",
            "started": NOW.isoformat(),
            "ended": (NOW + timedelta(seconds=61)).isoformat(),
            "begun": True,
            "reason": "worker w was lost",
        }
    ]


def test_retries_that_are_spent_end_in_an_exception_that_says_so() -> None:
    decision = decided(held(retriesLeft=0), LeaseLost(A, 1, "c", certain=True))
    words = "worker w was lost, and all retries are spent"
    assert written(decision)[OWN] == {
        "state": "exception",
        "ended": NOW,
        "resolved": NOW,
        "resolution": f'{{"failed":true,"reason":"{words}"}}',
    }
    assert [event["reason"] for event in events(decision)] == [words, words]
    assert only(decision).reason == ""


@pytest.mark.parametrize("seconds", [-1, 0, 1])
def test_a_lease_that_nobody_wrote_down_has_ended(seconds: int) -> None:
    row = held()[OWN]
    assert row is not None
    rows = held() | {OWN: Row(OWN, "e", {name: value for name, value in row.columns.items() if name != "leaseUntil"})}
    assert said(rows, LeaseLost(A, 1, "c"), now=NOW + timedelta(seconds=seconds)) == (Outcome.APPLIED, "retry")


# --- words of refusal ----------------------------------------------------------------------------------------------


def test_what_is_over_is_answered_with_what_is_now() -> None:
    over = "run 0 is over: the task is running in run 1"
    assert said(held(), Completed(A, 0, "c", ENDED, {})) == (Outcome.STALE, over)
    assert said(held(), Failed(A, 0, "c", ENDED, {})) == (Outcome.STALE, over)
    assert said(held(), HandBack(A, 0, "c", "")) == (Outcome.STALE, over)
    assert said(held(), LeaseLost(A, 0, "c")) == (Outcome.STALE, over)
    assert said(held(), ManualRerun(A, 0)) == (Outcome.STALE, over)
    now = "the task is running in run 1"
    assert said(held(), Claim(A, 0, "x", "w", LATER)) == (Outcome.STALE, now)
    assert said(held(), Renew(A, 1, "x", LATER)) == (Outcome.STALE, now)
    assert said(held(), Remind(A)) == (Outcome.STALE, "")
    assert said(held(), CannotRun(A, 1, "w", "no gpu")) == (Outcome.STALE, "")


def test_a_refusal_says_why() -> None:
    assert said(held(), LeaseLost(A, 1, "c")) == (Outcome.REFUSED, "the lease has not ended")
    assert said(held(), ManualRerun(A, 1)) == (
        Outcome.REFUSED,
        "the task is running; only a task that has ended can be rerun",
    )
    rows = changed(held(state="failed"), GRAPH, state="deleting")
    assert said(rows, ManualRerun(A, 1)) == (Outcome.REFUSED, "the graph is deleting")
    assert said(rows_of(PAIR), Start("other")) == (Outcome.REFUSED, "another graph was submitted under this id")
    for state in ("cancelling", "cancelled"):
        rows = changed(rows_of(PAIR), GRAPH, state=state, reason="enough")
        assert said(rows, Start("digest")) == (Outcome.REFUSED, f"it is {state}: enough")


@pytest.mark.parametrize("run", [0, 1])
def test_a_result_of_an_earlier_run_says_again_that_the_present_one_is_ready(run: int) -> None:
    """It may be the very message whose first handling died before it sent this; one of the present run is not."""
    rows = held(state="pending", claim="")
    decision = decided(rows, Completed(A, run, "c", ENDED, {}))
    assert decision.effects == ((Dispatch(A, 1, "default"),) if run == 0 else ())
    assert only(decision).reason == f"run {run} is over: the task is pending in run 1"


@pytest.mark.parametrize(
    ("state", "run", "name", "outcome"),
    [
        ("completed", 1, "c", Outcome.REPEATED),
        ("completed", 0, "c", Outcome.STALE),
        ("completed", 1, "x", Outcome.STALE),
        ("failed", 1, "c", Outcome.STALE),
    ],
)
def test_only_the_holder_of_run_and_claim_is_told_again(state: str, run: int, name: str, outcome: Outcome) -> None:
    rows = changed(held(state=state), "b", state="pending", requiresLeft="[]")
    decision = decided(rows, Completed(A, run, name, ENDED, {}))
    assert only(decision).outcome is outcome
    assert decision.effects == ((Dispatch(B, 0, "default"),) if outcome is Outcome.REPEATED else ())
    assert decision.changes == ()
    if outcome is Outcome.REPEATED:
        assert only(decision).reason == ""


@pytest.mark.parametrize("state", ["failed", "exception"])
@pytest.mark.parametrize(("run", "name"), [(1, "c"), (0, "c"), (1, "x")])
def test_a_failure_is_told_again_only_by_its_holder(state: str, run: int, name: str) -> None:
    decision = decided(held(state=state), Failed(A, run, name, ENDED, {}))
    mine = (run, name) == (1, "c")
    assert only(decision).outcome is (Outcome.REPEATED if mine else Outcome.STALE)
    assert bool(only(decision).reason) is not mine


# --- claims ----------------------------------------------------------------------------------------------------


def test_a_claim_writes_down_who_holds_the_run_and_how_long() -> None:
    until, later = LATER + timedelta(seconds=9), NOW + timedelta(seconds=5)
    decision = decided(held(state="pending", claim="", worker=""), Claim(A, 1, "fresh", "me", until), now=later)
    assert written(decision) == {
        OWN: {"state": "running", "claim": "fresh", "worker": "me", "leaseUntil": until, "started": later}
    }, "a claim states no fact"
    assert (only(decision).outcome, only(decision).reason) == (Outcome.APPLIED, "")
    assert said(held(), Claim(A, 1, "c", "w", LATER)) == (Outcome.REPEATED, "")


def test_renewing_moves_the_lease_alone() -> None:
    decision = decided(held(), Renew(A, 1, "c", LATER + timedelta(seconds=60)))
    assert written(decision) == {OWN: {"leaseUntil": LATER + timedelta(seconds=60)}}
    assert (only(decision).outcome, only(decision).reason) == (Outcome.APPLIED, "")


@pytest.mark.parametrize("run", [0, 2])
def test_a_run_that_is_not_the_present_one_is_neither_claimed_nor_refused(run: int) -> None:
    rows = held(state="pending", claim="")
    for item in (Claim(A, run, "x", "w", LATER), CannotRun(A, run, "w", "no gpu")):
        decision = decided(rows, item)
        assert (decision.changes, only(decision).outcome) == ((), Outcome.STALE)


def test_why_a_worker_left_a_run_alone_is_cut_to_what_fits() -> None:
    rows = held(state="pending", claim="")
    decision = decided(rows, CannotRun(A, 1, "me", "x" * 2_000))
    assert written(decision) == {OWN: {"refusal": ("me: " + "x" * 2_000)[: limits.REASON_CHARS_MAX]}}
    assert said(rows, CannotRun(A, 1, "me", "no gpu")) == (Outcome.APPLIED, "")


# --- by hand -----------------------------------------------------------------------------------------------------


def failed_for_good(**more: Any) -> Rows:
    rows = held(state="failed", **{"ended": ENDED_AT, **more}, resolution='{"failed":true,"exitCode":2,"logsUrl":"u"}')
    return changed(rows, GRAPH, state="blocked", failedTasks=1, blockedBy="a")


@pytest.mark.parametrize("ended", [ENDED_AT, ENDED], ids=["a time", "a text, as before 0.3"])
@pytest.mark.parametrize(("reason", "shown"), [("", "asked for by hand"), ("fixed the disk", "fixed the disk")])
def test_a_rerun_by_hand_is_counted_and_keeps_what_the_run_before_left(reason: str, shown: str, ended: Any) -> None:
    rows = failed_for_good(manualReruns=4, ended=ended)
    decision = decided(rows, ManualRerun(A, 1, reason))
    after = columns(apply(rows, decision), "a")
    assert (after["manualReruns"], after["rerunsLeft"], after["retriesLeft"]) == (5, 1, limits.RETRIES_DEFAULT)
    assert json.loads(after["runs"]) == [
        {
            "run": 1,
            "outcome": "failed",
            "worker": "w",
            "started": NOW.isoformat(),
            "ended": ENDED,
            "reason": shown,
            "exitCode": 2,
            "logsUrl": "u",
        }
    ]
    assert events(decision)[0] == {
        "event": "task-rerun",
        "task": A,
        "label": "a",
        "run": 2,
        "because": "asked",
        "reason": shown,
    }
    assert (only(decision).outcome, only(decision).reason) == (Outcome.APPLIED, "")
    assert ManualRerun(A, 1).reason == ""


def test_a_rerun_by_hand_that_was_done_is_said_again() -> None:
    rows = failed_for_good()
    after = apply(rows, decided(rows, ManualRerun(A, 1)))
    again = decided(after, ManualRerun(A, 1), sequence=2)
    assert (again.changes, again.effects) == ((), (Dispatch(A, 2, "default"),))
    assert (only(again).outcome, only(again).reason) == (Outcome.REPEATED, "")


@pytest.mark.parametrize("state", [GraphState.RUNNING, GraphState.BLOCKED])
def test_a_rerun_by_hand_is_for_graphs_that_run_or_are_blocked(state: GraphState) -> None:
    rows = changed(failed_for_good(), GRAPH, state=str(state))
    assert said(rows, ManualRerun(A, 1)) == (Outcome.APPLIED, "")


@pytest.mark.parametrize(
    "later",
    [CancelTask(B, "x"), HoldTask(B, on=True), Claim(B, 0, "c", "v", LATER), Claim(A, 7, "c", "v", LATER)],
    ids=["cancelled", "held back", "claimed", "none of its business"],
)
def test_what_a_later_item_of_the_same_commit_moves_on_or_holds_back_is_not_sent(
    later: CancelTask | HoldTask | Claim,
) -> None:
    decision = decided(held(), Completed(A, 1, "c", ENDED, {"failed": False}), later)
    assert decision.answers[0].outcome is Outcome.APPLIED
    ready = [each for each in decision.effects if isinstance(each, Dispatch)]
    assert ready == ([Dispatch(B, 0, "default")] if later.task_id == A else [])


# --- the graph ---------------------------------------------------------------------------------------------------


def test_starting_says_when() -> None:
    decision = decided(rows_of(PAIR, state="submitting"), Start("digest"))
    assert written(decision)[GRAPH] == {"state": "running", "started": NOW}
    assert events(decision) == [{"event": "graph-running"}]
    assert (only(decision).outcome, only(decision).reason) == (Outcome.APPLIED, "")
    assert said(rows_of(PAIR), Start("digest")) == (Outcome.REPEATED, "")


def test_an_abandoned_submission_says_what_became_of_it() -> None:
    decision = decided(rows_of(PAIR, state="submitting"), Abandon(NOW + timedelta(seconds=1)))
    assert written(decision)[GRAPH] == {
        "state": "cancelled",
        "reason": "the submission was begun and never finished",
    }
    assert events(decision) == [{"event": "graph-cancelled", "reason": "abandoned submission"}]
    assert decision.effects == (GraphEnded(GraphState.CANCELLED),)
    assert (only(decision).outcome, only(decision).reason) == (Outcome.APPLIED, "")


def test_only_an_old_submission_is_abandoned() -> None:
    rows = rows_of(PAIR, state="submitting")
    assert said(rows, Abandon(NOW)) == (Outcome.STALE, "")
    assert said(rows_of(PAIR), Abandon(LATER)) == (Outcome.STALE, "")
    graph = rows[GRAPH]
    assert graph is not None
    bare = Row(GRAPH, "e", {name: value for name, value in graph.columns.items() if name != "created"})
    assert said(rows | {GRAPH: bare}, Abandon(LATER)) == (Outcome.STALE, ""), "nobody knows how old it is"


@pytest.mark.parametrize("sequence", [1, 42])
def test_the_event_row_holds_all_facts_of_a_commit(sequence: int) -> None:
    rows = running(running(rows_of({"a": [], "b": []}), "a"), "b")
    items = (Completed(A, 0, "c", ENDED, {}), Completed(B, 0, "c", ENDED, {}))
    assert written(decided(rows, *items, sequence=sequence))[f"event:{sequence:010d}"] == {
        "schema": 1,
        "sequence": sequence,
        "time": NOW,
        "kinds": "task-completed graph-finished",
        "events": (
            f'[{{"event":"task-completed","task":"{A}","label":"a","run":0}},'
            f'{{"event":"task-completed","task":"{B}","label":"b","run":0}},'
            '{"event":"graph-finished"}]'
        ),
    }


# --- relays ----------------------------------------------------------------------------------------------------

WIDE = [f"t{number:03}" for number in range(100)]


def test_a_relay_that_has_fired_says_it_again() -> None:
    """Whoever fired it may have died before the dependent was told to its workers."""
    rows = rows_of({**{label: [] for label in WIDE}, "z": WIDE})
    joins = sorted(key for key in rows if key.startswith("join:") and task_id("z") in key)
    for join in joins:
        rows = changed(rows, join, requiresLeft="[]", state="completed")
    rows = changed(rows, "z", requiresLeft="[]", state="pending")
    decision = decided(rows, Fire(joins[0]))
    assert (decision.changes, decision.effects) == ((), (Dispatch(task_id("z"), 0, "default"),))


@pytest.mark.parametrize(
    ("state", "left"), [("unscheduled", []), ("pending", ["x"]), ("completed", ["x"]), ("unscheduled", ["x"])]
)
def test_a_relay_that_waits_passes_nothing_on(state: str, left: list[str]) -> None:
    rows = rows_of({**{label: [] for label in WIDE}, "z": WIDE})
    join = min(key for key in rows if key.startswith("join:") and task_id("z") in key)
    rows = changed(rows, join, requiresLeft=json.dumps(left), state=state)
    decision = decided(rows, Fire(join))
    assert (decision.changes, decision.effects, decision.answers) == ((), (), ())


def test_a_relay_that_cannot_be_fired_is_answered_with_its_error() -> None:
    join = join_reference(A, "0")
    rows = rows_of(PAIR) | {join: None}
    answer = only(decided(rows, Fire(join)))
    assert (answer.item, answer.outcome) == (Fire(join), Outcome.REFUSED)
    assert answer.reason == str(answer.error) == f"row {join} is missing, though another row names it"


# --- bounds ----------------------------------------------------------------------------------------------------


def wide_task(count: int) -> Rows:
    """a held, with so many dependents on its own row that wait for it alone; no version writes more than 90."""
    told = [f"d{number:03}" for number in range(count)]
    rows = running(rows_of({"a": [], **{label: [] for label in told}}), "a")
    rows = changed(rows, "a", dependents=json.dumps([task_id(label) for label in told]))
    for label in told:
        rows = changed(rows, label, state="unscheduled", requiresLeft=json.dumps([A]))
    return rows


def test_a_commit_may_be_filled_to_the_last_row() -> None:
    """The task, 98 dependents, and the event row: 100 changes. One more is an error, which says so."""
    decision = decided(wide_task(98), Completed(A, 0, "c", ENDED, {}))
    assert len(decision.changes) == limits.COMMIT_CHANGES_MAX
    answer = only(decided(wide_task(99), Completed(A, 0, "c", ENDED, {})))
    assert isinstance(answer.error, IntegrityError)
    assert answer.outcome is Outcome.REFUSED
    assert answer.reason == str(answer.error) == "Completed does not fit one commit"
    assert answer.item == Completed(A, 0, "c", ENDED, {})


def test_without_facts_the_place_of_the_event_row_is_free() -> None:
    labels = [f"t{number:03}" for number in range(101)]
    rows = rows_of({label: [] for label in labels})
    items = [Claim(task_id(label), 0, "c", "w", LATER) for label in labels]
    decision = decided(rows, *items)
    assert len(decision.changes) == limits.COMMIT_CHANGES_MAX
    assert decision.left == (items[-1],)


@pytest.mark.parametrize("over", [0, 1])
def test_an_event_row_may_be_filled_to_the_last_character(over: int) -> None:
    """The reason is told twice, of the task and of the graph that it blocks: with one character more nothing fits."""
    for run in (1, 10):  # one of them leaves an even number of characters
        rows = changed(held(rerunsLeft=0), "a", run=run)
        bare = event_row(decided(rows, Failed(A, run, "c", ENDED, {"reason": "x"})))
        spare = EVENT_CHARS_MAX - len(str(bare["events"])) + 2
        if spare % 2 == 0:
            break
    decision = decided(rows, Failed(A, run, "c", ENDED, {"reason": "x" * (spare // 2 + over)}))
    if over:
        assert decision.changes == ()
        assert only(decision).reason == "Failed does not fit one commit"
    else:
        assert len(str(event_row(decision)["events"])) == EVENT_CHARS_MAX


def event_row(decision: Decision) -> dict[str, Any]:
    (row,) = [row for key, row in written(decision).items() if key.startswith("event:")]
    return row


def test_the_first_item_of_a_commit_is_left_to_nobody() -> None:
    """An item that fits no commit is refused; one that only does not fit any more is left for the next."""
    rows = wide_task(99)
    rows = running(changed(rows, "d000", requiresLeft=json.dumps([A, "x"])), "d001", claim="k")
    huge, small = Completed(A, 0, "c", ENDED, {}), Renew(task_id("d001"), 0, "k", LATER + timedelta(seconds=9))
    decision = decided(rows, small, huge, small)
    assert decision.left == (huge, small)
    assert [answer.item for answer in decision.answers] == [small]


@pytest.mark.parametrize("units", [limits.PROPERTY_CHARS_MAX, limits.PROPERTY_CHARS_MAX + 1])
def test_a_resolution_is_kept_whole_while_it_fits(units: int) -> None:
    shell = len(json.dumps({"failed": False, "note": ""}, separators=(",", ":")))
    resolution = {"failed": False, "note": "x" * (units - shell)}
    text = written(decided(held(), Completed(A, 1, "c", ENDED, resolution)))[OWN]["resolution"]
    assert json.loads(text) == (resolution if units <= limits.PROPERTY_CHARS_MAX else {"failed": False, "reason": ""})


def test_of_a_resolution_that_does_not_fit_the_known_parts_are_kept() -> None:
    resolution = {
        "failed": True,
        "exitCode": 1,
        "resultUrl": "u",
        "logsUrl": "ü",
        "reason": "r" * (limits.REASON_CHARS_MAX + 5),
        "note": "x" * limits.PROPERTY_CHARS_MAX,
    }
    text = written(decided(held(rerunsLeft=0), Failed(A, 1, "c", ENDED, resolution)))[OWN]["resolution"]
    shown = "r" * limits.REASON_CHARS_MAX
    assert text == f'{{"failed":true,"exitCode":1,"resultUrl":"u","logsUrl":"ü","reason":"{shown}"}}'


@pytest.mark.parametrize("over", [0, 1])
def test_addresses_are_kept_while_they_fit_and_dropped_both_where_they_do_not(over: int) -> None:
    """JSON spells a control character out with six; an address of such characters is none."""
    known = {"failed": True, "exitCode": 3, "resultUrl": "u", "logsUrl": "", "reason": "zu spät"}
    shell = len(json.dumps(known, ensure_ascii=False, separators=(",", ":")))
    spare = limits.PROPERTY_CHARS_MAX - shell + over
    known["logsUrl"] = "\x01" * (spare // 6) + "x" * (spare % 6)
    resolution = {**known, "note": "x" * limits.PROPERTY_CHARS_MAX}
    text = written(decided(held(rerunsLeft=0), Failed(A, 1, "c", ENDED, resolution)))[OWN]["resolution"]
    if over:
        assert text == '{"failed":true,"exitCode":3,"reason":"zu spät"}'
    else:
        assert json.loads(text) == known
        assert len(text) == limits.PROPERTY_CHARS_MAX


@pytest.mark.parametrize("units", [limits.PROPERTY_CHARS_MAX, limits.PROPERTY_CHARS_MAX + 1])
def test_the_latest_runs_are_kept_as_far_as_they_fit(units: int) -> None:
    """The record of this run is appended; the oldest goes when the column would be too long."""
    rows = held()
    bare = str(written(decided(rows, HandBack(A, 1, "c", "")))[OWN]["runs"])
    first = {"run": 0, "note": ""}
    shell = len(json.dumps(first, separators=(",", ":"))) + 1
    first["note"] = "x" * (units - len(bare) - shell)
    rows = held(runs=json.dumps([first]))
    kept = json.loads(str(written(decided(rows, HandBack(A, 1, "c", "")))[OWN]["runs"]))
    assert [record["run"] for record in kept] == ([0, 1] if units == limits.PROPERTY_CHARS_MAX else [1])


@pytest.mark.parametrize(
    ("column", "value", "item", "words"),
    [
        ("runs", "{", HandBack(A, 1, "c", ""), "column runs is no JSON"),
        ("runs", "{}", HandBack(A, 1, "c", ""), "column runs is no JSON list"),
        ("resolution", "[]", ManualRerun(A, 1), "column resolution is no JSON object"),
    ],
)
def test_a_damaged_column_is_named(column: str, value: str, item: Item, words: str) -> None:
    rows = held() if isinstance(item, HandBack) else failed_for_good()
    answer = only(decided(changed(rows, "a", **{column: value}), item))
    assert answer.reason == f"row {OWN}: {words}"


def test_a_column_that_is_missing_is_empty() -> None:
    row = failed_for_good()[OWN]
    assert row is not None
    bare = {name: value for name, value in row.columns.items() if name not in ("resolution", "runs")}
    rows = failed_for_good() | {OWN: Row(OWN, "e", bare)}
    record = json.loads(str(written(decided(rows, ManualRerun(A, 1)))[OWN]["runs"]))
    assert [each["run"] for each in record] == [1]


# --- asking for rows -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("between", ["one that is refused", "one that is decided"])
def test_one_decision_asks_for_what_all_its_items_need(between: str) -> None:
    """Also of those that come after one which needs nothing, so that few readings are enough."""
    rows = running(running(rows_of({"a": [], "b": [], "x": ["a"], "y": ["b"]}), "a"), "b")
    known = {**{key: rows[key] for key in (OWN, f"task:{B}")}, "task:nobody": None}
    other = Renew("nobody", 0, "c", LATER) if between == "one that is refused" else Renew(B, 0, "c", LATER)
    items = (Completed(A, 0, "c", ENDED, {}), other, Completed(B, 0, "c", ENDED, {}))
    asked = decide(known, items, now=NOW, operation="op", sequence=1)
    assert asked == Need(frozenset({f"task:{task_id('x')}", f"task:{task_id('y')}"}))


def test_completions_ask_for_all_that_they_count_down_before_any_is_decided() -> None:
    """And not for what a result that comes late would count down."""
    rows = running(
        running(running(rows_of({"a": [], "b": [], "c": [], "x": ["a"], "y": ["b"], "z": ["c"]}), "a"), "b"), "c"
    )
    known = {key: rows[key] for key in (OWN, f"task:{B}", f"task:{task_id('c')}")}
    late = Completed(task_id("c"), 0, "another", ENDED, {})
    items = (Completed(A, 0, "c", ENDED, {}), Completed(B, 0, "c", ENDED, {}), late)
    asked = decide(known, items, now=NOW, operation="op", sequence=1)
    assert asked == Need(frozenset({f"task:{task_id('x')}", f"task:{task_id('y')}"}))
    damaged = changed(known, "b", dependents='"x"')
    assert decide(damaged, items, now=NOW, operation="op", sequence=1) == Need(frozenset({f"task:{task_id('x')}"}))


# --- extensions --------------------------------------------------------------------------------------------------

HEAD = "request:r"


def request(state: str = "staged", **more: Any) -> Row:
    return Row(HEAD, "h", {"schema": 1, "state": state, "tasks": 1, **more})


def grown(**graph: Any) -> Rows:
    """A graph whose leaf a is there, and a staged request for x, which requires a."""
    rows = rows_of({"a": []})
    for key in (f"task:{task_id('x')}", fork_reference(A, "r-0"), fork_reference(A, "r-7")):
        rows[key] = None
    return changed(rows | {HEAD: request()}, GRAPH, **graph)


def accepted(*, whole: bool = True, direct: int = 48, tasks: int = 1, edges: int = 1) -> AcceptExtension:
    layout = lay_out("g", document({"x": ["a"]}).tasks, stamp="r", now=NOW, request="r", direct_leaves_max=direct)
    rows, links = (layout.rows, layout.links) if whole else ((), ())
    return AcceptExtension("r", 0, tasks, edges, layout.leaves, layout.top, whole, rows, links, {"nameMapping": "{}"})


def test_an_extension_is_added_to_the_figures_of_its_graph() -> None:
    rows = grown(tasks=5, edges=7, revision=0)
    decision = decided(rows, accepted(tasks=2, edges=3))
    graph = columns(apply(rows, decision), GRAPH)
    assert (graph["tasks"], graph["edges"], graph["revision"], graph["nameMapping"]) == (7, 10, 1, "{}")
    assert "extending" not in graph
    assert written(decision)[HEAD] == {"state": "done", "answered": NOW}
    assert events(decision) == [{"event": "graph-extended", "request": "r", "tasks": 2}]
    assert only(decision).reason == ""


def test_an_extension_in_steps_is_noted_on_graph_and_request() -> None:
    item = accepted(whole=False, direct=0, tasks=2)
    assert item.top is not None
    rows = grown() | {item.top.key: None, HEAD: request(tasks=0, cursor=9)}
    decision = decided(rows, item)
    assert written(decision)[HEAD] == {"state": "accepted", "cursor": 0, "tasks": 2}
    assert written(decision)[GRAPH]["extending"] == "r"
    assert events(decision) == []
    assert written(decision)[item.top.key] == dict(item.top.columns)


def test_an_extension_is_finished_by_request_and_graph_together() -> None:
    rows = grown(extending="r") | {HEAD: request("accepted", tasks=5)}
    decision = decided(rows, FinishExtension("r"))
    assert written(decision)[HEAD] == {"state": "done", "answered": NOW}
    assert written(decision)[GRAPH] == {"extending": ""}
    assert events(decision) == [{"event": "graph-extended", "request": "r", "tasks": 5}]
    assert said(grown() | {HEAD: request("done")}, FinishExtension("r")) == (Outcome.REPEATED, "")


@pytest.mark.parametrize("state", ["staged", "done", "refused"])
def test_only_a_request_that_was_accepted_is_finished(state: str) -> None:
    decision = decided(grown(extending="r") | {HEAD: request(state)}, FinishExtension("r"))
    assert (decision.changes, only(decision).outcome) == ((), Outcome.REPEATED)


def test_a_refused_extension_is_answered_on_its_request() -> None:
    decision = decided(grown(state="finished"), accepted())
    assert written(decision) == {
        HEAD: {
            "state": "refused",
            "reason": "the graph is finished; only one that runs or is blocked can be extended",
            "answered": NOW,
        }
    }
    assert only(decision).outcome is Outcome.REFUSED
    decision = decided(grown(), RefuseRequest("r", "x" * 2_000))
    assert written(decision) == {HEAD: {"state": "refused", "reason": "x" * limits.REASON_CHARS_MAX, "answered": NOW}}
    assert only(decision) == Answer(RefuseRequest("r", "x" * 2_000), Outcome.REFUSED, "x" * 2_000)


def test_guard_and_request_are_asked_for_together() -> None:
    for item in (accepted(), FinishExtension("r")):
        asked = decide({}, (item,), now=NOW, operation="op", sequence=1)
        assert asked == Need(frozenset({GRAPH, HEAD}))


@pytest.mark.parametrize(
    ("state", "cursor", "outcome"),
    [
        ("accepted", 3, Outcome.APPLIED),
        ("accepted", 2, Outcome.STALE),
        ("accepted", 4, Outcome.STALE),
        ("staged", 3, Outcome.STALE),
        ("done", 3, Outcome.STALE),
        ("refused", 3, Outcome.STALE),
    ],
)
def test_a_step_is_made_at_its_own_cursor_alone(state: str, cursor: int, outcome: Outcome) -> None:
    row = Insert(f"task:{task_id('x')}", {"state": "unscheduled"})
    rows = grown() | {HEAD: request(state, cursor=cursor)}
    decision = decided(rows, InsertRows("r", 3, (row,)))
    assert (only(decision).outcome, only(decision).reason) == (outcome, "")
    expected = {HEAD: {"cursor": 4}, row.key: {"state": "unscheduled"}} if outcome is Outcome.APPLIED else {}
    assert written(decision) == expected
    rows = apply(grown(), decided(grown(), accepted()))
    rows = rows | {HEAD: request(state, cursor=cursor)}
    decision = decided(rows, LinkTasks("r", 3, (Link(A, (task_id("x"),)),)))
    assert (only(decision).outcome, only(decision).reason) == (outcome, "")
    assert written(decision) == ({HEAD: {"cursor": 4}} if outcome is Outcome.APPLIED else {})


def test_new_tasks_that_wait_for_nothing_are_sent_and_other_rows_are_not() -> None:
    ready = Insert(f"task:{B}", {"state": "pending", "run": 0, "target": "gpu"})
    waits = Insert(f"task:{task_id('x')}", {"state": "unscheduled", "run": 0, "target": "gpu"})
    relay = Insert(join_reference(B, "0"), {"state": "pending"})
    rows = grown() | {HEAD: request("accepted", cursor=0), ready.key: None, relay.key: None}
    decision = decided(rows, InsertRows("r", 0, (ready, waits, relay)))
    assert decision.effects == (Dispatch(B, 0, "gpu"),)
    assert written(decision)[HEAD] == {"cursor": 3}


def test_all_tasks_of_a_step_are_asked_for_together() -> None:
    links = (Link(A, (task_id("x"),)), Link(B, (task_id("x"),)))
    rows = {HEAD: request("accepted", cursor=0)}
    asked = decide(rows, (LinkTasks("r", 0, links),), now=NOW, operation="op", sequence=1)
    assert asked == Need(frozenset({OWN, f"task:{B}"}))


def test_a_link_to_a_completed_task_asks_for_all_its_dependents_at_once() -> None:
    rows = changed(grown(), "a", state="completed") | {HEAD: request("accepted", cursor=0)}
    link = Link(A, (B, task_id("x"), join_reference(B, "0")))
    known = {HEAD: rows[HEAD], OWN: rows[OWN]}
    asked = decide(known, (LinkTasks("r", 0, (link,)),), now=NOW, operation="op", sequence=1)
    assert asked == Need(frozenset({f"task:{B}", f"task:{task_id('x')}", join_reference(B, "0")}))


@pytest.mark.parametrize("have", [limits.DEPENDENTS_MAX - 2, limits.DEPENDENTS_MAX - 1, limits.DEPENDENTS_MAX])
@pytest.mark.parametrize("state", ["running", "completed"])
def test_a_row_takes_as_many_dependents_as_it_may_name(have: int, state: str) -> None:
    """Past that the earlier ones move under a fork, which has fired already if the task has completed."""
    before = [task_id(f"d{number}") for number in range(have)]
    rows = changed(grown(), "a", dependents=json.dumps(before), state=state)
    rows |= {HEAD: request("accepted", cursor=7)}
    for each in (B, task_id("x")):
        rows[f"task:{each}"] = Row(f"task:{each}", "e", {"state": "unscheduled", "requiresLeft": json.dumps([A, "y"])})
    decision = decided(rows, LinkTasks("r", 7, (Link(A, (B, task_id("x"))),)))
    after = apply(rows, decision)
    fork = fork_reference(A, "r-7")
    if have + 2 <= limits.DEPENDENTS_MAX:
        assert json.loads(columns(after, "a")["dependents"]) == [*before, B, task_id("x")]
        assert after[fork] is None
    else:
        assert json.loads(columns(after, "a")["dependents"]) == [fork, B, task_id("x")]
        assert json.loads(columns(after, fork)["dependents"]) == before
        assert columns(after, fork)["state"] == ("completed" if state == "completed" else "unscheduled")
        assert json.loads(columns(after, fork)["requiresLeft"]) == ([] if state == "completed" else [A])
    left = json.loads(columns(after, "x")["requiresLeft"])
    assert left == (["y"] if state == "completed" else [A, "y"])
    assert columns(after, HEAD)["cursor"] == 8


def test_links_of_one_step_and_of_one_commit_make_forks_of_different_names() -> None:
    """Two links of one task in one step: each fork is named by the cursor at its link."""
    before = [task_id(f"d{number}") for number in range(limits.DEPENDENTS_MAX)]
    rows = changed(rows_of({"a": [], "b": []}), "a", dependents=json.dumps(before))
    rows = changed(rows, "b", dependents=json.dumps(before)) | {HEAD: request("accepted", cursor=4)}
    rows |= {fork_reference(A, "r-4"): None, fork_reference(B, "r-5"): None}
    links = (Link(A, ("x" * 22,)), Link(B, ("x" * 22,)))
    decision = decided(rows, LinkTasks("r", 4, links))
    assert {fork_reference(A, "r-4"), fork_reference(B, "r-5")} <= written(decision).keys()
    assert written(decision)[HEAD] == {"cursor": 6}


@pytest.mark.parametrize(("due", "state"), [("recall", "completed"), ("", "unscheduled")])
def test_a_recall_that_is_due_goes_on_through_a_fork_of_a_link(due: str, state: str) -> None:
    """Those below the fork have gone on, and wait again only if the recall finds it as one that had passed on."""
    before = [task_id(f"d{number}") for number in range(limits.DEPENDENTS_MAX)]
    rows = changed(rows_of({"a": []}), "a", dependents=json.dumps(before), state="unscheduled", due=due, run=1)
    rows |= {HEAD: request("accepted", cursor=4), fork_reference(A, "r-4"): None}
    decision = decided(rows, LinkTasks("r", 4, (Link(A, ("x" * 22,)),)))
    fork = written(decision)[fork_reference(A, "r-4")]
    assert (fork["state"], json.loads(str(fork["requiresLeft"]))) == (state, [] if due else [A])
    assert json.loads(str(fork["dependents"])) == before


def full_graph(named: list[str], left: list[str]) -> Rows:
    return grown(requires=json.dumps(named), requiresLeft=json.dumps(left))


def gathered_leaves() -> tuple[AcceptExtension, Insert, str]:
    item = accepted(whole=False, direct=0)
    assert item.top is not None
    return item, item.top, item.top.key


@pytest.mark.parametrize("count", [limits.GRAPH_REQUIRES_MAX - 1, limits.GRAPH_REQUIRES_MAX])
def test_what_is_fulfilled_is_named_no_more_when_the_graph_row_is_full(count: int) -> None:
    item, top, reference = gathered_leaves()
    named = [f"{number:022}" for number in range(count)]
    left = named[-3:]
    rows = full_graph(named, left) | {top.key: None}
    graph = columns(apply(rows, decided(rows, item)), GRAPH)
    kept = named if count < limits.GRAPH_REQUIRES_MAX else left
    assert json.loads(graph["requires"]) == [*kept, reference]
    assert json.loads(graph["requiresLeft"]) == [*left, reference]


def test_a_graph_row_that_is_full_of_what_is_left_hands_a_join_down() -> None:
    """The new join takes an old one under it, and its place on the graph row: a chain of joins, bounded degree."""
    item, top, reference = gathered_leaves()
    first, second = join_reference(GRAPH, "0"), join_reference(GRAPH, "1")
    tasks = [f"{number:022}" for number in range(limits.GRAPH_REQUIRES_MAX - 2)]
    named = [tasks[0], first, *tasks[1:], second]
    old = Row(first, "j", {"state": "unscheduled", "requiresLeft": '["y"]', "dependents": json.dumps([GRAPH])})
    rows = full_graph(named, named) | {top.key: None, first: old}
    after = apply(rows, decided(rows, item))
    assert json.loads(columns(after, GRAPH)["requires"]) == [*tasks, second, reference]
    assert json.loads(columns(after, GRAPH)["requiresLeft"]) == [*tasks, second, reference]
    assert json.loads(columns(after, first)["dependents"]) == [reference]
    below = [*json.loads(str(top.columns["requires"])), first]
    assert json.loads(columns(after, reference)["requires"]) == below
    assert json.loads(columns(after, reference)["requiresLeft"]) == below
    rest = {name: value for name, value in top.columns.items() if name not in ("requires", "requiresLeft")}
    assert rest.items() <= columns(after, reference).items()


@pytest.mark.parametrize("told", [True, False])
def test_a_graph_row_that_is_full_of_tasks_hands_one_of_these_down(told: bool) -> None:
    """The first that names the graph itself, and not by way of a fork; without any the rows are damaged."""
    item, top, reference = gathered_leaves()
    named = [f"{number:022}" for number in range(limits.GRAPH_REQUIRES_MAX)]
    fork = fork_reference(named[0], "0")
    tells = {each: [fork] if each == named[0] or not told else [fork, GRAPH] for each in named}
    leaves = {
        row_key(each): Row(row_key(each), "t", {"state": "pending", "dependents": json.dumps(tells[each])})
        for each in named
    }
    rows = full_graph(named, named) | {top.key: None} | leaves
    decision = decided(rows, item)
    if not told:
        assert only(decision).reason == "row task-graph names more tasks than it may"
        return
    after = apply(rows, decision)
    assert json.loads(columns(after, GRAPH)["requiresLeft"]) == [named[0], *named[2:], reference]
    assert json.loads(columns(after, row_key(named[1]))["dependents"]) == [fork, reference]
    assert json.loads(columns(after, reference)["requires"]) == [*json.loads(str(top.columns["requires"])), named[1]]


def test_leaves_that_need_no_join_are_named_by_the_graph_row() -> None:
    rows = grown()
    graph = columns(apply(rows, decided(rows, accepted())), GRAPH)
    assert json.loads(graph["requires"]) == [A, task_id("x")]
    assert json.loads(graph["requiresLeft"]) == [A, task_id("x")]


def test_the_rows_of_a_small_extension_are_linked_in_the_same_commit() -> None:
    before = [task_id(f"d{number}") for number in range(limits.DEPENDENTS_MAX)]
    rows = changed(grown(), "a", dependents=json.dumps(before))
    assert fork_reference(A, "r-0") in written(decided(rows, accepted()))


# --- sizes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("char", ["x", "é"])
def test_a_commit_never_takes_more_bytes_than_it_may(char: str) -> None:
    rows = grown()
    sizes = [400_000 if char == "x" else 70_000] * 12
    keys = [f"request:r:{number:04}" for number in range(len(sizes))]
    known = rows | dict.fromkeys(keys) | {HEAD: request("accepted", cursor=0)}
    items = [
        InsertRows("r", number, (Insert(key, {"text": char * size}),))
        for number, (key, size) in enumerate(zip(keys, sizes, strict=True))
    ]
    decision = decided(known, *items)
    taken = sum(sent_bytes(change.columns) for change in decision.changes)  # type: ignore[union-attr]
    assert 2_400_000 < taken <= limits.COMMIT_BYTES_MAX
    assert decision.left != ()


def test_rows_asked_for_one_after_the_other_give_the_same_decision() -> None:
    rows = grown()
    item = accepted()
    assert loaded_step_by_step(rows, item)[0] == decided(rows, item)


def rows_of_bytes(total: int) -> Decision:
    """One step of so many bytes as the decision counts them: 100 for each row, the head too, and their columns."""
    rows = grown() | {HEAD: request("accepted", cursor=0)}
    parts = [Insert(f"request:r:{number}", {"text": ""}) for number in range(10)]
    shell = sum(100 + sent_bytes(part.columns) for part in parts) + 100 + sent_bytes({"cursor": 10})
    each, rest = divmod(total - shell, 10)
    parts = [Insert(part.key, {"text": "x" * (each + (rest if not n else 0))}) for n, part in enumerate(parts)]
    return decided(rows | dict.fromkeys(part.key for part in parts), InsertRows("r", 0, tuple(parts)))


def test_a_commit_leaves_room_for_the_longest_event_row() -> None:
    """12 bytes for each of its characters, whether this commit states facts or not."""
    most = limits.COMMIT_BYTES_MAX - 12 * EVENT_CHARS_MAX
    assert len(rows_of_bytes(most).changes) == 11
    assert rows_of_bytes(most + 1).changes == ()


@pytest.mark.parametrize(("characters", "fits"), [(255_000, True), (265_000, False), (300_000, False)])
def test_characters_outside_the_basic_plane_take_twelve_bytes_each(characters: int, fits: bool) -> None:
    rows = grown() | {HEAD: request("accepted", cursor=0)}
    parts = tuple(Insert(f"request:r:{n}", {"text": "\U0001f600" * (characters // 10)}) for n in range(10))
    decision = decided(rows | dict.fromkeys(part.key for part in parts), InsertRows("r", 0, parts))
    assert bool(decision.changes) is fits


def test_a_row_that_two_items_change_is_written_once() -> None:
    rows = held(state="pending", claim="")
    decision = decided(rows, Claim(A, 1, "x", "w", LATER), Renew(A, 1, "x", LATER + timedelta(seconds=9)))
    assert list(written(decision)) == [OWN]
    assert written(decision)[OWN]["leaseUntil"] == LATER + timedelta(seconds=9)
    assert [answer.outcome for answer in decision.answers] == [Outcome.APPLIED, Outcome.APPLIED]


def test_what_is_set_back_to_what_it_was_is_not_written() -> None:
    rows = held(state="pending", claim="")
    assert decided(rows, CannotRun(A, 1, "w", "x")).changes != ()
    rows = changed(rows, "a", refusal="w: x")
    assert decided(rows, CannotRun(A, 1, "w", "x")).changes == ()
