"""What a graph has cost: what is counted, how totals grow, and what a budget does."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from taskgraph.model.budget import DEFAULT_PRICES, Budget, budget_of, is_spent, prices_from, watch_of
from taskgraph.model.clock import SystemClock
from taskgraph.model.errors import Conflict, InvalidInput, Unclear
from taskgraph.model.ids import GRAPH
from taskgraph.model.messages import TaskCompleted, TaskFailed, TaskResult, parse, to_text
from taskgraph.model.spent import NOTHING, OTHER, TARGETS_MAX, Spent, Used, spent_in
from taskgraph.protocol.context import Cancelling, Held, Outcome
from taskgraph.protocol.decide import Decision, Item, decide
from taskgraph.protocol.invariants.examine import examine
from taskgraph.protocol.pause import Hold
from taskgraph.protocol.runs import Claim, Completed, Failed, HandBack, LeaseLost, completions_of, failures_of
from taskgraph.protocol.spending import Charge
from taskgraph.queries.costs import cost_of
from taskgraph.queries.prices import prices_in, write_prices
from taskgraph.storage.memory import MemoryQueues, MemoryTables
from taskgraph.storage.metered import Meter, MeteredQueues, MeteredTables, graph_of
from taskgraph.storage.tables import Change, Insert, Range
from tests.unit import transition_rows
from tests.unit.transition_rows import NOW, Rows, changed, columns, events, rows_of, running, task_id

A = task_id("a")
GRAPH_ID = "nightly-2030-01-31"
NEW = Spent()
FIVE = '{"amount":5,"warnAt":0.8,"onExceeded":"pause"}'


def decided(rows: Rows, *items: Item, spent: Spent | None = NEW, seconds: float = 0.0) -> Decision:
    found = decide(
        rows, items, now=NOW + timedelta(seconds=seconds), operation="op", sequence=1, completed=0, spent=spent
    )
    assert isinstance(found, Decision)
    return found


def apply(rows: Rows, decision: Decision) -> Rows:
    """The rows after a commit, without its event: each decision here is the first of a journal."""
    after = transition_rows.apply(rows, decision)
    return {key: row for key, row in after.items() if not key.startswith("event:")}


def said(decision: Decision) -> dict[str, Any]:
    row = next(each for each in decision.changes if isinstance(each, Insert) and each.key.startswith("event:"))
    return dict(json.loads(str(row.columns["spent"])))


def a_run(**more: Any) -> Rows:
    """A task that a worker has held since NOW, and another one."""
    return changed(running(rows_of({"a": [], "b": []}), "a"), "a", started=NOW, **more)


def completed(**more: Any) -> Completed:
    ended = (NOW + timedelta(seconds=3)).isoformat()
    return Completed(A, 0, "c", ended, {"failed": False}, **more)


# --- totals ------------------------------------------------------------------------------------------------------


def test_a_run_counts_for_as_long_as_its_worker_says_or_by_the_times_of_its_row() -> None:
    assert said(decided(a_run(), completed(seconds=2.5)))["seconds"] == {"default": 2.5}
    assert said(decided(a_run(target="gpu"), completed()))["seconds"] == {"gpu": 3.0}


def test_a_run_that_was_claimed_ahead_and_never_began_counts_nothing() -> None:
    assert said(decided(a_run(ahead=True), HandBack(A, 0, "c", "no slot"), seconds=9))["seconds"] == {"default": 0.0}


@pytest.mark.parametrize(
    ("item", "seconds"),
    [
        (Failed(A, 0, "c", (NOW + timedelta(seconds=4)).isoformat(), {"failed": True}), 4.0),
        (Failed(A, 0, "c", NOW.isoformat(), {"failed": True}, temporary=True, seconds=0.5), 0.5),
        (LeaseLost(A, 0, "c", certain=True), 7.0),
        (HandBack(A, 0, "c", "stopped"), 7.0),
    ],
    ids=["failed", "for the moment", "lost", "handed back"],
)
def test_a_run_counts_however_it_ends(item: Item, seconds: float) -> None:
    rows = a_run(retry='{"limit":3}') if isinstance(item, Failed) and item.temporary else a_run()
    assert said(decided(rows, item, seconds=7))["seconds"] == {"default": seconds}


def test_what_ends_no_run_adds_none() -> None:
    rows = apply(a_run(), decided(a_run(), completed()))
    assert not any(change.key.startswith("event:") for change in decided(rows, completed()).changes)
    other = decided(rows_of({"a": []}), Claim(A, 0, "c", "w", NOW + timedelta(minutes=1)))
    assert other.spent is None


def test_totals_go_on_from_what_was_before_and_take_along_what_a_worker_has_used() -> None:
    before = Spent(10, 20, 30, 40, {"default": 1.0, "gpu": 2.0}, 4.0)
    rows = changed(a_run(), GRAPH, budget=FIVE)  # which is written by this, and says when to look
    decision = decided(rows, completed(seconds=0.25, used=Used(1, 2, 3, 4)), spent=before)
    assert said(decision) == {
        "tables": 11,
        "queues": 22,
        "files": 33,
        "bytes": 44,
        "seconds": {"default": 1.25, "gpu": 2.0},
        "watch": 4.0,
    }
    assert decision.spent == spent_in(json.dumps(said(decision)))


def test_a_result_that_does_not_count_brings_nothing_along() -> None:
    late = replace(completed(used=Used(queues=5)), claim="another")
    rows = running(a_run(), "b", claim="d")
    other = Completed(task_id("b"), 0, "d", NOW.isoformat(), {"failed": False}, seconds=0.0)
    assert said(decided(rows, late, other))["queues"] == 0


def test_a_process_that_knows_no_totals_says_none() -> None:
    assert "spent" not in dict(decided(a_run(), completed(), spent=None).changes[-1].columns)  # type: ignore[union-attr]


def test_more_targets_than_are_kept_apart_are_one() -> None:
    spent = Spent()
    for number in range(TARGETS_MAX + 3):
        spent = spent.and_ran({f"t{number}": 1.0})
    assert spent.seconds[OTHER] == 3.0
    assert len(spent.seconds) == TARGETS_MAX + 1


@pytest.mark.parametrize("text", ["", "[]", "no JSON", '{"tables":-1}', '{"tables":true}', '{"seconds":{"a":"b"}}'])
def test_damaged_totals_are_none(text: str) -> None:
    assert spent_in(text) is None


def test_totals_are_read_as_they_were_written() -> None:
    spent = Spent(1, 2, 3, 4, {"default": 1.5, "a b": 0.25, 'say "x"': 3.0}, 0.1)
    assert spent_in(spent.text) == spent


# --- messages ----------------------------------------------------------------------------------------------------


def test_a_message_takes_along_what_its_worker_has_used_and_how_long_its_runs_took() -> None:
    ok = TaskResult(A, 0, "c", NOW.isoformat(), {"failed": False}, seconds=1.25)
    bad = replace(ok, resolution={"failed": True})
    message = TaskCompleted("g", (ok, ok), "w", Used(1, 2, 0, 7))
    read = parse(to_text(message))
    assert read == message
    assert isinstance(read, TaskCompleted)
    assert [(each.used, each.seconds) for each in completions_of(read)] == [(Used(1, 2, 0, 7), 1.25), (None, 1.25)]
    failed = parse(to_text(TaskFailed("g", (bad,), Used(queues=1))))
    assert isinstance(failed, TaskFailed)
    assert [(each.used, each.seconds) for each in failures_of(failed)] == [(Used(queues=1), 1.25)]


# --- budgets -----------------------------------------------------------------------------------------------------


def charged(amount: float, **graph: Any) -> tuple[Rows, Decision]:
    rows = changed(rows_of({"a": [], "b": []}), GRAPH, **{"budget": FIVE, **graph})
    decision = decided(rows, Charge(amount, "EUR", "2030-01-31"))
    return rows, decision


def test_a_graph_below_its_warning_stands_as_it_stands() -> None:
    _, decision = charged(3.9)
    assert (decision.answers[0].outcome, decision.changes) == (Outcome.STALE, ())


def test_a_graph_near_its_budget_says_so_once() -> None:
    rows, decision = charged(4.0)
    assert events(decision) == [
        {"event": "graph-warned", "amount": 4.0, "budget": 5.0, "currency": "EUR", "prices": "2030-01-31"}
    ]
    assert decision.spent is not None
    assert decision.spent.watch == 5.0
    again = decided(apply(rows, decision), Charge(4.5, "EUR", "2030-01-31"))
    assert (again.answers[0].outcome, again.changes) == (Outcome.REPEATED, ())


def test_a_graph_over_its_budget_is_fenced_to_be_paused() -> None:
    rows, decision = charged(5.5)
    after = apply(rows, decision)
    assert events(decision)[0]["event"] == "graph-overspent"
    assert events(decision)[0]["code"] == "over-budget"
    assert (columns(after, GRAPH)["held"], columns(after, GRAPH)["settling"]) == ('["paused"]', True)
    assert columns(after, GRAPH)["pausedReason"] == "it has cost 5.5 of 5 EUR"
    assert Held() in decision.effects
    assert decision.spent is not None
    assert decision.spent.watch == 0.0
    assert is_spent(columns(after, GRAPH).get)


def test_or_cancelled_or_goes_on() -> None:
    for then, state in (("cancel", "cancelling"), ("notify", "running")):
        rows, decision = charged(5.5, budget=json.dumps({"amount": 5, "onExceeded": then}))
        after = apply(rows, decision)
        assert columns(after, GRAPH)["state"] == state
        assert any(isinstance(each, Cancelling) for each in decision.effects) == (then == "cancel")
        assert not is_spent(columns(after, GRAPH).get)


def test_a_graph_that_is_over_is_not_charged() -> None:
    _, decision = charged(9.0, state="cancelled")
    assert decision.changes == ()


def over() -> Rows:
    rows, decision = charged(5.5)
    return apply(rows, decision)


def test_it_takes_a_larger_budget_to_go_on() -> None:
    (plain,) = decided(over(), Hold("paused", False)).answers
    assert (plain.outcome, plain.reason) == (Outcome.REFUSED, "its budget is spent: resume it with a larger one")
    decision = decided(over(), Hold("paused", False, budget=8.0, by="ann"))
    assert [each["event"] for each in events(decision)] == ["graph-budgeted", "graph-resumed"]
    assert (events(decision)[0]["amount"], events(decision)[0]["was"]) == (8.0, 5.0)
    after = columns(apply(over(), decision), GRAPH)
    assert (after["held"], budget_of(after.get), after["budgetReached"]) == ("[]", Budget(8.0), "")
    assert decision.spent is not None
    assert decision.spent.watch == pytest.approx(6.4)


def test_a_graph_without_a_budget_can_be_given_one() -> None:
    rows = rows_of({"a": [], "b": []})
    decision = decided(rows, Hold("paused", False, budget=2.0))
    assert columns(apply(rows, decision), GRAPH)["budget"] == Budget(2.0).text


@pytest.mark.parametrize(
    "text",
    ["", "[]", "no", '{"amount":0}', '{"amount":"x"}', '{"amount":1,"warnAt":2}', '{"amount":1,"onExceeded":"x"}'],
)
def test_a_damaged_budget_is_none(text: str) -> None:
    assert budget_of({"budget": text}.get) is None
    assert watch_of({"budget": text}.get) == 0.0


@pytest.mark.parametrize(
    "columns", [{"budget": '{"amount":-1}'}, {"budget": FIVE, "budgetReached": "half of it"}], ids=["budget", "reached"]
)
def test_the_doctor_finds_a_budget_that_no_rule_goes_by(columns: dict[str, Any]) -> None:
    found = examine("g", {k: row for k, row in rows_of({"a": []}).items() if row is not None}, NOW)
    assert "no-budget" not in {each.code for each in found}
    rows = changed(rows_of({"a": []}), GRAPH, **columns)
    (one,) = (
        each for each in examine("g", {k: r for k, r in rows.items() if r is not None}, NOW) if each.code == "no-budget"
    )
    assert not one.repairable


def test_prices_make_amounts_of_totals() -> None:
    prices = prices_from(
        {"currency": "EUR", "date": "2030-01-31", "per10000": {"tables": 1, "queues": 2}, "perHour": {"gpu": 3.6}}
    )
    spent = Spent(tables=10_000, queues=5_000, files=7, seconds={"gpu": 10.0, "default": 99.0})
    assert prices.amounts(spent) == {"tables": 1.0, "queues": 1.0, "files": 0.0, "runs": pytest.approx(0.01)}
    assert prices.amount(spent) == pytest.approx(2.01)
    assert prices_from(DEFAULT_PRICES.document()) == DEFAULT_PRICES


# --- the meter ---------------------------------------------------------------------------------------------------


async def test_every_row_that_is_read_every_page_and_every_commit_is_a_request() -> None:
    meter = Meter()
    tables = MeteredTables(MemoryTables(), meter)
    await tables.get("g", ["a", "b", "c"])
    await tables.query("g", Range())
    await tables.commit("g", [Insert(str(number), {"text": "four"}) for number in range(3)])
    await tables.get("index:live", ["g"])
    assert meter.used("g") == Used(tables=5, bytes=12)
    assert meter.used("index:live") == NOTHING
    meter.written("g", Used(tables=6))
    assert meter.used("g") == Used(bytes=12), "a commit that says itself is said before it is counted"


async def test_messages_count_for_their_graph_and_an_empty_receipt_for_none() -> None:
    meter = Meter()
    queues = MeteredQueues(MemoryQueues(SystemClock()), meter)
    body = to_text(TaskCompleted(GRAPH_ID, (TaskResult(A, 0, "c", NOW.isoformat(), {"failed": False}),)))
    assert graph_of(body) == GRAPH_ID
    assert graph_of(json.dumps({"other": 1, "graph": "g"})) == "g"
    await queues.receive("work", lease_seconds=30)
    await queues.send("work", [body, body])
    await queues.send("0own", [body])
    (one, two) = await queues.receive("work", count=2, lease_seconds=30)
    await queues.renew(one, lease_seconds=30)
    await queues.delete(two)
    assert meter.used(GRAPH_ID) == Used(queues=6), "one receipt, two messages that were sent and are deleted, a renewal"


class Contested(MemoryTables):
    """Another call is quicker, so often; or the answer is lost, and the commit with it."""

    def __init__(self, errors: list[Exception]) -> None:
        super().__init__()
        self.errors = errors

    async def commit(self, partition: str, changes: Sequence[Change]) -> list[str | None]:
        if self.errors:
            raise self.errors.pop()
        return await super().commit(partition, changes)


async def test_prices_are_written_however_often_others_are_quicker() -> None:
    tables = Contested([Conflict("another was quicker"), Unclear("no answer")])
    made = DEFAULT_PRICES._replace(currency="EUR")
    await write_prices(tables, made.document(), NOW, "me")
    assert await prices_in(tables) == made
    with pytest.raises(Conflict, match="is being written by others"):
        await write_prices(Contested([Conflict("x")] * 100), made.document(), NOW, "me")


async def test_of_what_is_no_id_there_is_no_cost() -> None:
    with pytest.raises(InvalidInput):
        await cost_of(MemoryTables(), "\x84")
