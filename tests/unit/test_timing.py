"""Not yet, tried again later, too late: the words of documents, the sums, and the transitions that go by them."""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest

from taskgraph.documents.canonical import content_hash, document_object, node_digest
from taskgraph.documents.nodes import TaskNode
from taskgraph.documents.read import document_from_object
from taskgraph.model import limits, timing
from taskgraph.model.columns import Value
from taskgraph.model.errors import InvalidGraph
from taskgraph.model.ids import GRAPH
from taskgraph.model.messages import TaskFailed, TaskResult, parse, to_text
from taskgraph.model.schemas import validator
from taskgraph.protocol.context import ClaimOffer, Dispatch, Outcome, Started
from taskgraph.protocol.decide import Decision, decide
from taskgraph.protocol.definitions import first_deadline
from taskgraph.protocol.layout import lay_out
from taskgraph.protocol.lifecycle import NextDeadline
from taskgraph.protocol.recall import ManualRerun
from taskgraph.protocol.relays import Remind
from taskgraph.protocol.runs import Claim, Completed, Failed, HandBack, LeaseLost, Overdue, Renew
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
from tests.unit.transition_rows import (
    written as all_written,
)

A = task_id("a")
SOON, AGO = NOW + timedelta(seconds=5), NOW - timedelta(seconds=5)
FAILED = {"failed": True, "reason": "busy", "exitCode": 75}


def failure(run: int = 0, claim: str = "c", **more: Any) -> Failed:
    return Failed(A, run, claim, NOW.isoformat(), FAILED, temporary=True, **more)


def timed(state: str = "pending", **more: Value) -> Rows:
    """One task, with columns that speak of time."""
    rows = rows_of({"a": []})
    return changed(running(rows, "a") if state == "running" else rows, "a", **more)


def written(decision: Decision, key: str) -> dict[str, Any]:
    """What a decision writes on a row, by key or label."""
    rows = all_written(decision)
    return rows.get(key) or rows.get(f"task:{task_id(key)}", {})


# --- documents -------------------------------------------------------------------------------------------------

GOOD: tuple[dict[str, Any], ...] = (
    {"notBefore": "2030-01-31T06:00:00+01:00"},
    {"retry": {}},
    {"retry": {"limit": 0, "delay": 0, "max": 0.5, "exitCodes": []}},
    {"retry": {"limit": 1000.0, "delay": 604_800, "max": 604_800, "exitCodes": [1, 255, 75.0]}},
    {"retry": {"exitCodes": [1] * 32}},
    {"maxRunTime": 0.1, "pendingTimeout": limits.TIME_LIMIT_SECONDS_MAX},
)
BAD: tuple[dict[str, Any], ...] = (
    {"notBefore": "2030-01-31T06:00:00"},
    {"notBefore": 5},
    {"retry": []},
    {"retry": None},
    {"retry": {"limits": 1}},
    {"retry": {"limit": -1}},
    {"retry": {"limit": 1001}},
    {"retry": {"limit": 1.5}},
    {"retry": {"limit": True}},
    {"retry": {"delay": -1}},
    {"retry": {"max": 604_801}},
    {"retry": {"delay": "1"}},
    {"retry": {"exitCodes": 75}},
    {"retry": {"exitCodes": [0]}},
    {"retry": {"exitCodes": [256]}},
    {"retry": {"exitCodes": [75.5]}},
    {"retry": {"exitCodes": [True]}},
    {"retry": {"exitCodes": [1] * 33}},
    {"maxRunTime": 0},
    {"maxRunTime": "5"},
    {"maxRunTime": True},
    {"pendingTimeout": limits.TIME_LIMIT_SECONDS_MAX + 1},
    {"pendingTimeout": None},
)


@pytest.mark.parametrize("said", [*GOOD, *BAD], ids=str)
def test_the_libraries_agree(said: Mapping[str, Any]) -> None:
    node = {"task": {}, **said}
    good = said in GOOD
    schema = validator("task-graph", "#/$defs/node")
    assert schema.is_valid(node) is (not list(schema.findings(node))) is good
    if not good:
        with pytest.raises(InvalidGraph) as caught:
            document_from_object({"tasks": {"a": node}})
        assert all(problem.remedy for problem in caught.value.problems)


def test_a_document_keeps_what_it_says_of_time_and_others_keep_their_hash() -> None:
    said = {"notBefore": "2030-01-31T06:00:00Z", "retry": {"limit": 3, "exitCodes": [9]}, "maxRunTime": 5}
    document = document_from_object({"tasks": {"a": {"task": {}, **said}}})
    assert document.tasks["a"].timing == said
    assert document_from_object(document_object(document)) == document
    plain = document_from_object({"tasks": {"a": {"task": {}}}})
    assert content_hash(plain) != content_hash(document)
    assert node_digest(plain.tasks["a"]) == "cf9de9870692942ad8dfa64d4fdb6b4a"


def test_the_columns_of_a_task_and_what_its_worker_is_told() -> None:
    said = {
        "notBefore": "2030-01-31T06:00:00+01:00",
        "retry": {"limit": 3, "delay": 2, "max": 7, "exitCodes": [9]},
        "maxRunTime": 5,
        "pendingTimeout": 60,
    }
    node = TaskNode("a", task={"deadline": "2030-02-01T00:00:00Z", "payload": {}}, timing=said)
    (row,) = lay_out("g", {"a": node}, stamp="0", now=NOW).rows
    assert row.columns["notBefore"] == datetime.fromisoformat("2030-01-31T05:00:00+00:00")
    assert row.columns["retry"] == '{"limit":3,"delay":2,"max":7}', "without spaces: rows are read often"
    assert row.columns["pendingTimeout"] == 60.0
    definition = json.loads(str(row.columns["task"]))
    assert definition == {**node.task, "maxRunTime": 5, "retry": {"exitCodes": [9]}}
    assert timing.run_seconds_max(definition) == 5.0
    assert timing.temporary_exit_codes(definition) == {9}
    assert first_deadline([node, TaskNode("b")]) == datetime.fromisoformat("2030-02-01T00:00:00+00:00")
    (plain,) = lay_out("g", {"a": TaskNode("a")}, stamp="0", now=NOW).rows
    assert not {"notBefore", "retry", "pendingTimeout", "temporaryFailures"} & plain.columns.keys()


def test_a_worker_is_told_nothing_of_what_the_document_does_not_say() -> None:
    assert timing.for_worker({"notBefore": "2030-01-31T06:00:00Z"}) == {}
    assert timing.for_worker({"maxRunTime": 5}) == {"maxRunTime": 5}


@pytest.mark.parametrize("other", ["5", 0, -1, True, None, [1]])
def test_a_definition_of_one_s_own_words_bounds_nothing(other: Any) -> None:
    assert timing.run_seconds_max({"maxRunTime": other}) is None
    assert timing.temporary_exit_codes({"retry": other}) == timing.TEMPORARY_EXIT_CODES
    assert timing.temporary_exit_codes({"retry": {"exitCodes": other}}) in (timing.TEMPORARY_EXIT_CODES, {1})


def test_a_run_may_be_bounded_to_less_than_a_second() -> None:
    assert timing.run_seconds_max({"maxRunTime": 0.5}) == 0.5


# --- sums ------------------------------------------------------------------------------------------------------


def test_the_column_of_a_policy_says_only_what_the_document_says() -> None:
    assert timing.retry_text({}) == ""
    assert timing.retry_text({"exitCodes": [9]}) == "", "a decision needs no exit codes"
    assert timing.retry_of("") == timing.Retry()


def test_what_a_policy_leaves_out_is_the_default_and_what_it_says_counts() -> None:
    usual = timing.Retry()
    assert timing.retry_of('{"limit":3}') == timing.Retry(3, usual.delay_seconds, usual.max_seconds)
    assert timing.retry_of('{"delay":2}') == timing.Retry(usual.limit, 2.0, usual.max_seconds)
    assert timing.retry_of('{"max":7}') == timing.Retry(usual.limit, usual.delay_seconds, 7.0)


def test_every_handler_draws_the_same_pause_for_the_same_run() -> None:
    """Whichever decides again, by whichever version: rows and messages name the end of the pause."""
    policy = timing.Retry(delay_seconds=100, max_seconds=1_000)
    assert [timing.pause_seconds("t", run, 1, policy) for run in range(3)] == [71.784, 61.318, 59.959]


@pytest.mark.parametrize(
    ("columns_of", "used"),
    [
        ({}, 0),
        ({"temporaryFailures": 3}, 3),
        ({"temporaryFailures": 3, "temporaryForgiven": 2}, 1),
        ({"temporaryFailures": "3", "temporaryForgiven": None}, 0),
    ],
)
def test_the_budget_that_is_used_is_what_nobody_has_forgiven(columns_of: Mapping[str, Any], used: int) -> None:
    assert timing.temporary_used(columns_of.get) == used


@pytest.mark.parametrize(
    ("pause", "known", "left"),
    [
        (None, 3.0, 5.0),  # a time of the document comes when the clocks say so
        (4.0, 0.0, 4.0),  # a clock that is behind makes no pause longer
        (4, 3.0, 1.0),
        (4.0, 9.0, 0.0),
        (60.0, 3.0, 5.0),
        (True, 3.0, 5.0),
        ("4", 3.0, 5.0),
    ],
)
def test_a_pause_lasts_no_longer_than_its_length_from_when_it_was_known(pause: Any, known: float, left: float) -> None:
    row = {"notBefore": SOON, "pauseSeconds": pause}
    assert timing.not_yet_seconds(row.get, NOW, known) == left
    assert timing.not_yet_seconds(row.get, SOON, known) == 0.0


@pytest.mark.parametrize(
    ("row", "due"),
    [
        ({"deadline": SOON}, SOON),
        ({"nextDeadline": SOON}, SOON),
        ({"deadline": SOON, "nextDeadline": AGO}, AGO),
        ({"deadline": "soon"}, None),
        ({"nextDeadline": timing.NEVER}, None),
        ({"deadline": SOON, "nextDeadline": timing.NEVER}, SOON),
        ({}, None),
        ({"deadline": SOON, "claim": "c"}, None),  # its worker watches
        ({"deadline": SOON, "cancel": "why"}, None),  # it is on its way to its end
        ({"deadline": SOON, "state": "completed"}, None),
        ({"deadline": SOON, "state": "unscheduled"}, SOON),
        ({"deadline": SOON, "state": "blocked"}, SOON),  # a graph
        ({"pendingTimeout": 60.0, "pendingSince": NOW}, NOW + timedelta(seconds=60)),
        ({"pendingTimeout": 60, "pendingSince": NOW, "notBefore": SOON}, SOON + timedelta(seconds=60)),
        ({"pendingTimeout": 60.0, "pendingSince": NOW, "deadline": SOON}, SOON),
        ({"pendingTimeout": 60.0, "pendingSince": NOW, "held": '["paused"]'}, None),  # nobody could claim it
        ({"pendingTimeout": 60.0, "pendingSince": NOW, "state": "unscheduled"}, None),
        ({"pendingTimeout": 60.0}, None),
        ({"pendingTimeout": "60", "pendingSince": NOW}, None),
    ],
)
def test_when_what_waits_or_stands_ready_is_over_by_time(row: Mapping[str, Any], due: datetime | None) -> None:
    assert timing.due_at({"state": "pending", **row}.get) == due


@pytest.mark.parametrize(("held", "over"), [("", True), ('["paused"]', False)])
def test_no_worker_is_late_for_a_task_that_is_held_back(held: str, over: bool) -> None:
    decision = decided(timed(pendingTimeout=1.0, pendingSince=AGO, held=held), Overdue(A))
    assert bool(decision.changes) is over


def test_pauses_double_up_to_their_bound_and_are_spread() -> None:
    policy = timing.Retry(limit=10, delay_seconds=1, max_seconds=60)
    for failures, whole in enumerate((1, 2, 4, 8, 16, 32, 60, 60, 60), 1):
        found = {timing.pause_seconds(f"task{n}", failures, failures, policy) for n in range(50)}
        assert all(whole / 2 <= each <= whole for each in found)
        assert len(found) > 40
        assert max(found) - min(found) > whole / 4
    assert timing.pause_seconds("t", 3, 4, policy) == timing.pause_seconds("t", 3, 4, policy)
    assert timing.pause_seconds("t", 3, 10**9, timing.Retry(delay_seconds=5, max_seconds=1)) <= 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "Expecting"),
        ("[]", "^the column is no JSON object$"),
        ('{"limit":"3"}', "^the column holds what is no number$"),
        ('{"delay":null}', "^the column holds what is no number$"),
        ('{"max":[]}', "^the column holds what is no number$"),
    ],
)
def test_a_policy_that_is_none_is_said_to_be(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        timing.retry_of(text)


# --- not yet ---------------------------------------------------------------------------------------------------


def test_a_task_that_must_not_run_yet_is_not_claimed_and_its_message_waits() -> None:
    rows = timed(notBefore=SOON)
    decision = decided(rows, Claim(A, 0, "c", "w", LATER))
    assert decision.answers[0].outcome is Outcome.STALE
    assert decision.answers[0].reason == "not before 2026-01-01 12:00:05Z"
    assert decision.changes == ()
    assert decided(rows, Remind(A)).effects == (Dispatch(A, 0, "default", 5.0),)
    then = decided(rows, Claim(A, 0, "c", "w", LATER), now=SOON)
    assert written(then, "a")["state"] == "running"
    assert decided(rows, Remind(A), now=SOON).effects == (Dispatch(A, 0, "default"),)


def test_a_message_for_later_than_a_queue_keeps_one_is_left_to_the_sweep() -> None:
    week = NOW + timedelta(seconds=limits.DELAY_SECONDS_MAX)
    assert decided(timed(notBefore=week), Remind(A)).effects
    assert not decided(timed(notBefore=week + timedelta(seconds=1)), Remind(A)).effects


@pytest.mark.parametrize(("held", "taken"), [({}, True), ({"notBefore": SOON}, False), ({"deadline": AGO}, False)])
def test_what_becomes_ready_is_taken_only_if_it_may_begin(held: Mapping[str, Value], taken: bool) -> None:
    rows = changed(running(rows_of({"a": [], "b": ["a"]}), "a"), "b", **held)
    take = ClaimOffer("w", LATER, frozenset({"default"}), ["x"], lambda _: True)
    item = Completed(A, 0, "c", NOW.isoformat(), {"failed": False})
    decision = decide(rows, [item], now=NOW, operation="op", sequence=1, offer=take)
    assert isinstance(decision, Decision)
    assert written(decision, "b")["state"] == ("running" if taken else "pending")
    assert [type(each) for each in decision.effects] == [Started if taken else Dispatch]


# --- tried again later -----------------------------------------------------------------------------------------


def test_a_temporary_failure_stands_pending_for_later_and_spends_no_other_budget() -> None:
    rows = timed("running")
    decision = decided(rows, failure())
    wrote = written(decision, "a")
    pause = timing.pause_seconds(A, 0, 1, timing.RETRY_DEFAULT)
    assert wrote["notBefore"] == NOW + timedelta(seconds=pause)
    assert (wrote["state"], wrote["run"], wrote["temporaryFailures"], wrote["claim"]) == ("pending", 1, 1, "")
    assert not {"rerunsLeft", "retriesLeft", "temporaryForgiven"} & wrote.keys()
    assert events(decision) == [
        {
            "event": "task-retry",
            "task": A,
            "label": "a",
            "run": 1,
            "because": "temporary",
            "reason": "busy",
            "notBefore": wrote["notBefore"].isoformat(),
            "left": 9,
        }
    ]
    assert decision.effects == (Dispatch(A, 1, "default", pause),)
    again = decided(apply(rows, decision), failure())
    assert (again.changes, again.effects, again.answers[0].outcome) == ((), decision.effects, Outcome.STALE)


@pytest.mark.parametrize("seconds", [0.0, 30.0])
def test_a_task_may_say_when(seconds: float) -> None:
    decision = decided(timed("running"), failure(retry_after=seconds))
    assert written(decision, "a")["notBefore"] == NOW + timedelta(seconds=seconds)
    assert decision.effects == (Dispatch(A, 1, "default", seconds),)


def test_with_its_budget_spent_it_is_a_failure_like_any_other() -> None:
    rows = running(rows_of({"a": []}, {"a": 1}), "a", run=2)
    rows = changed(rows, "a", temporaryFailures=2, retry='{"limit":2}')
    decision = decided(rows, failure(2))
    assert (written(decision, "a")["rerunsLeft"], written(decision, "a")["state"]) == (0, "pending")
    assert "notBefore" not in written(decision, "a")
    rows = running(apply(rows, decision), "a", run=3)
    last = decided(rows, failure(3), sequence=2)
    assert written(last, "a")["state"] == "failed"
    assert written(last, GRAPH)["state"] == "blocked"
    rows = apply(rows, last, mark="2")
    by_hand = decided(rows, ManualRerun(A, 3), sequence=3)
    assert written(by_hand, "a")["temporaryForgiven"] == 2
    fresh = decided(running(apply(rows, by_hand, mark="3"), "a", run=4), failure(4), sequence=4)
    assert (written(fresh, "a")["temporaryFailures"], written(fresh, "a")["state"]) == (3, "pending")


def test_an_exception_is_never_temporary_and_a_limit_of_zero_means_never() -> None:
    spoilt = Failed(A, 0, "c", NOW.isoformat(), FAILED, exception=True, temporary=True)
    assert written(decided(timed("running"), spoilt), "a")["state"] == "exception"
    assert written(decided(timed("running", retry='{"limit":0}'), failure()), "a")["state"] == "failed"


def test_messages_carry_it_and_say_what_is_wrong() -> None:
    result = TaskResult(A, 0, "c", "2026-01-01T12:00:00Z", {"failed": True}, temporary=True, retry_after=1.5)
    assert parse(to_text(TaskFailed("g", (result,)))) == TaskFailed("g", (result,))


# --- too late --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["pending", "running", "unscheduled"])
def test_a_deadline_that_has_passed_ends_a_task_wherever_it_stands(state: str) -> None:
    rows = rows_of({"b": [], "a": ["b"]}) if state == "unscheduled" else timed(state)
    rows = changed(rows, "a", deadline=NOW)
    assert decided(rows, Overdue(A), now=AGO).changes == ()
    decision = decided(rows, Overdue(A))
    wrote = written(decision, "a")
    reason = "its deadline 2026-01-01 12:00:00Z has passed"
    assert wrote["state"] == "exception"
    assert json.loads(wrote["resolution"]) == {"failed": True, "code": "deadline-exceeded", "reason": reason}
    assert [each["event"] for each in events(decision)] == ["task-exception", "graph-blocked"]
    assert events(decision)[0]["code"] == "deadline-exceeded"
    after = apply(rows, decision)
    for item in (
        Overdue(A),
        Claim(A, 0, "c", "w", LATER),
        Renew(A, 0, "c", LATER),
        Completed(A, 0, "c", NOW.isoformat(), {"failed": False}),
        Failed(A, 0, "c", NOW.isoformat(), FAILED),
        HandBack(A, 0, "c", "stop"),
        LeaseLost(A, 0, "c", certain=True),
    ):
        late = decided(after, item)
        assert (late.changes, late.effects, late.answers[0].outcome) == ((), (), Outcome.STALE)
    refused = decided(after, ManualRerun(A, 0))
    assert (refused.answers[0].outcome, refused.changes) == (Outcome.REFUSED, ())
    assert "deadline" in refused.answers[0].reason


def test_whoever_claims_or_renews_finds_that_a_deadline_has_passed() -> None:
    claimed = decided(timed(deadline=AGO), Claim(A, 0, "c", "w", LATER))
    assert written(claimed, "a")["state"] == "exception"
    renewed = decided(timed("running", deadline=AGO), Renew(A, 0, "c", LATER))
    assert (written(renewed, "a")["state"], renewed.answers[0].outcome) == ("exception", Outcome.ENDED)
    assert "leaseUntil" not in written(renewed, "a")


def test_a_result_that_comes_before_anybody_noticed_counts() -> None:
    decision = decided(timed("running", deadline=AGO), Completed(A, 0, "c", NOW.isoformat(), {"failed": False}))
    assert written(decision, "a")["state"] == "completed"


def test_a_task_waits_for_a_worker_only_for_so_long_from_when_it_may_be_claimed() -> None:
    rows = timed(pendingTimeout=10.0, notBefore=NOW + timedelta(seconds=5))
    for seconds, over in ((9.0, False), (14.9, False), (15.0, True)):
        decision = decided(rows, Overdue(A), now=NOW + timedelta(seconds=seconds))
        assert bool(decision.changes) is over
    assert json.loads(written(decision, "a")["resolution"])["code"] == "pending-timeout"
    back = decided(apply(rows, decision), ManualRerun(A, 0), now=NOW + timedelta(seconds=99))
    assert written(back, "a")["state"] == "pending"
    held = running(rows, "a")
    assert decided(held, Overdue(A), now=NOW + timedelta(days=1)).changes == ()


def test_where_dependents_go_on_after_failures_a_waiting_task_ends_only_when_it_stands_ready() -> None:
    rows = changed(rows_of({"b": [], "a": ["b"]}), "a", deadline=AGO, schema=2)
    rows = changed(rows, GRAPH, failurePolicy="continue", schema=2)
    assert decided(rows, Overdue(A)).changes == ()
    rows = changed(rows, "a", state="pending", requiresLeft="[]")
    decision = decided(rows, Overdue(A))
    assert (written(decision, "a")["state"], written(decision, GRAPH)["failedTasks"]) == ("exception", 1)


def test_the_next_deadline_is_set_anew_only_for_the_graph_that_was_looked_at() -> None:
    rows = changed(rows_of({"a": []}), GRAPH, nextDeadline=AGO, revision=3, waitsAgain=2)
    assert written(decided(rows, NextDeadline(AGO, 3, 2, SOON)), GRAPH) == {"nextDeadline": SOON}
    others = (
        (rows, NextDeadline(NOW, 3, 2, SOON)),
        (rows, NextDeadline(AGO, 2, 2, SOON)),
        (rows, NextDeadline(AGO, 3, 1, SOON)),
        (changed(rows, GRAPH, extending="x"), NextDeadline(AGO, 3, 2, SOON)),
    )
    for held, item in others:
        assert decided(held, item).changes == ()


@pytest.mark.parametrize("known", [None, AGO, SOON, timing.NEVER])
def test_what_waits_again_after_a_rerun_is_looked_at_when_its_deadline_passes(known: datetime | None) -> None:
    """And a sweep that has looked at the rows before does not write over that."""
    rows = rows_of({"b": [], "a": ["b"]})
    rows = changed(rows, "a", state="exception", deadline=SOON, resolution="{}")
    rows = changed(rows, GRAPH, failedTasks=1, **({} if known is None else {"nextDeadline": known}))
    decision = decided(rows, ManualRerun(A, 0))
    assert written(decision, "a")["state"] == "unscheduled"
    following = written(decision, GRAPH)["nextDeadline"]
    assert following <= SOON
    assert following == SOON or (known is not None and known <= SOON)
    assert following != known
    after = apply(rows, decision)
    assert decided(after, NextDeadline(following, 0, 0, timing.NEVER)).changes == (), (
        "though the same time stands there"
    )
    if known is not None:
        assert decided(after, NextDeadline(known, 0, 1, timing.NEVER)).changes == (), "by the time alone, before 0.4"


def test_a_rerun_of_what_waits_for_nobody_leaves_the_next_deadline_alone() -> None:
    """The sweep sees what is ready anyway."""
    rows = changed(rows_of({"a": []}), "a", state="exception", deadline=SOON, resolution="{}")
    rows = changed(rows, GRAPH, failedTasks=1, nextDeadline=AGO)
    assert "nextDeadline" not in written(decided(rows, ManualRerun(A, 0)), GRAPH)


def test_a_damaged_policy_is_an_error_of_its_row_and_no_other() -> None:
    rows = changed(running(rows_of({"a": [], "b": []}), "a"), "a", retry="{")
    rows = running(rows, "b")
    decision = decide(
        rows,
        [failure(), Completed(task_id("b"), 0, "c", NOW.isoformat(), {"failed": False})],
        now=NOW,
        operation="op",
        sequence=1,
    )
    assert isinstance(decision, Decision)
    first, second = decision.answers
    assert "column retry" in first.reason
    assert second.outcome is Outcome.APPLIED
    assert columns(rows, "a")["retry"] == "{"
