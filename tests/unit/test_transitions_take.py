"""Claiming in the commit that makes ready: whom it may concern, how many, and what is left when it does not fit."""

from collections.abc import Callable, Sequence
from datetime import timedelta

import pytest

from taskgraph.model import limits
from taskgraph.protocol.context import ClaimOffer, Dispatch, Effect, Outcome, Started
from taskgraph.protocol.decide import Decision, Item, decide
from taskgraph.protocol.recall import ManualRerun
from taskgraph.protocol.runs import Claim, Completed, HandBack, LeaseLost
from tests.unit.transition_rows import LATER, NOW, Rows, apply, changed, columns, events, rows_of, running, task_id

ALL = ("c0", "c1", "c2", "c3")


def take(
    *claims: str, targets: Sequence[str] = ("default",), fits: Callable[[str], bool] = lambda definition: True
) -> ClaimOffer:
    return ClaimOffer("me", LATER, frozenset(targets), claims, fits)


def done(label: str, claim: str = "c") -> Completed:
    return Completed(task_id(label), 0, claim, "2026-01-01T12:00:00+00:00", {"failed": False})


def decided(rows: Rows, *items: Item, offer: ClaimOffer | None) -> Decision:
    decision = decide(rows, items, now=NOW, operation="op", sequence=1, offer=offer)
    assert isinstance(decision, Decision), decision
    return decision


def started(effects: Sequence[Effect]) -> list[tuple[str, str]]:
    return [(effect.label, effect.claim) for effect in effects if isinstance(effect, Started)]


def offered(effects: Sequence[Effect]) -> list[str]:
    return [effect.task_id for effect in effects if isinstance(effect, Dispatch)]


FAN = {"a": [], "b": ["a"], "c": ["a"], "d": ["a"]}


def test_what_becomes_ready_is_claimed_in_the_same_commit() -> None:
    rows = running(rows_of({"a": [], "b": ["a"]}), "a")
    decision = decided(rows, done("a"), offer=take("x"))
    after = apply(rows, decision)
    row = columns(after, "b")
    assert (row["state"], row["run"], row["claim"], row["worker"]) == ("running", 0, "x", "me")
    assert (row["leaseUntil"], row["started"], row["pendingSince"]) == (LATER, NOW, NOW)
    definition = str(row["task"])
    assert decision.effects == (Started(task_id("b"), 0, "x", "b", definition),), "no message is sent"
    assert [event["event"] for event in events(decision)] == ["task-completed"]


def test_it_is_the_same_row_as_after_a_message_and_a_claim() -> None:
    rows = running(rows_of({"a": [], "b": ["a"]}), "a")
    at_once = columns(apply(rows, decided(rows, done("a"), offer=take("x"))), "b")
    made = apply(rows, decided(rows, done("a"), offer=None))
    later = columns(apply(made, decided(made, Claim(task_id("b"), 0, "x", "me", LATER), offer=None)), "b")
    assert at_once == later


def test_a_run_that_was_claimed_at_once_completes_as_any_other() -> None:
    rows = running(rows_of({"a": [], "b": ["a"], "c": ["b"]}), "a")
    rows = apply(rows, decided(rows, done("a"), offer=take("x")))
    assert decided(rows, done("b", "other"), offer=take("y")).answers[0].outcome is Outcome.STALE
    decision = decided(rows, done("b", "x"), offer=take("y"))
    assert started(decision.effects) == [("c", "y")]


@pytest.mark.parametrize("room", range(5))
def test_no_more_is_claimed_than_there_is_room_for(room: int) -> None:
    rows = running(rows_of(FAN), "a")
    decision = decided(rows, done("a"), offer=take(*ALL[:room]))
    assert len(started(decision.effects)) == min(room, 3)
    assert [claim for _, claim in started(decision.effects)] == list(ALL[: min(room, 3)]), "each with an id of its own"
    assert len(offered(decision.effects)) == 3 - min(room, 3)
    after = apply(rows, decision)
    states = sorted(columns(after, label)["state"] for label in "bcd")
    assert states == sorted(["running"] * min(room, 3) + ["pending"] * (3 - min(room, 3)))


def test_room_is_shared_by_all_items_of_a_commit() -> None:
    rows = running(running(rows_of({"a": [], "b": [], "x": ["a"], "y": ["b"], "z": ["b"]}), "a"), "b")
    decision = decided(rows, done("a"), done("b"), offer=take("c0", "c1"))
    assert [claim for _, claim in started(decision.effects)] == ["c0", "c1"]
    assert len(offered(decision.effects)) == 1


def test_only_tasks_of_its_targets_are_claimed() -> None:
    rows = running(rows_of(FAN), "a")
    rows = changed(rows, "c", target="gpu")
    assert {label for label, _ in started(decided(rows, done("a"), offer=take(*ALL)).effects)} == {"b", "d"}
    decision = decided(rows, done("a"), offer=take(*ALL, targets=["gpu", "other"]))
    assert [label for label, _ in started(decision.effects)] == ["c"]
    assert offered(decision.effects) == [each for each in offered(decision.effects) if each != task_id("c")]


def test_only_tasks_that_it_can_run_are_claimed() -> None:
    rows = running(rows_of(FAN), "a")
    rows = changed(rows, "c", task='{"executor":"strange"}')
    asked: list[str] = []

    def fits(definition: str) -> bool:
        asked.append(definition)
        return "strange" not in definition

    decision = decided(rows, done("a"), offer=take(*ALL, fits=fits))
    assert {label for label, _ in started(decision.effects)} == {"b", "d"}
    assert offered(decision.effects) == [task_id("c")]
    assert '{"executor":"strange"}' in asked


def test_a_task_whose_definition_is_in_another_row_is_sent_by_message() -> None:
    """It has to be read: what a decision sees is its row alone."""
    rows = changed(running(rows_of({"a": [], "b": ["a"]}), "a"), "b", task="")
    decision = decided(rows, done("a"), offer=take("x"))
    assert (started(decision.effects), offered(decision.effects)) == ([], [task_id("b")])


@pytest.mark.parametrize("state", ["pending", "running", "completed", "failed", "exception"])
def test_only_tasks_that_were_waiting_are_claimed(state: str) -> None:
    """Told again, a task that stands ready may have been claimed by a message's reader: only a message may say it."""
    rows = running(rows_of({"a": [], "b": ["a"]}), "a")
    rows = apply(rows, decided(rows, done("a"), offer=None))
    rows = changed(rows, "b", state=state)
    decision = decided(rows, done("a"), offer=take("x"))
    assert decision.answers[0].outcome is Outcome.REPEATED
    assert started(decision.effects) == []
    assert offered(decision.effects) == ([task_id("b")] if state == "pending" else [])
    assert decision.changes == ()


def test_the_next_run_of_a_task_is_sent_by_message() -> None:
    """Whoever failed it, lost it or gave it back is not the one to be given it at once."""
    rows = running(rows_of({"a": []}, {"a": 1}), "a")
    lost = changed(rows, "a", leaseUntil=NOW - timedelta(seconds=1))
    failed = changed(rows, "a", state="failed")
    failed = changed(failed, "task-graph", state="blocked", failedTasks=1)
    for before, item in (
        (rows, HandBack(task_id("a"), 0, "c", "stopped")),
        (lost, LeaseLost(task_id("a"), 0, "c")),
        (failed, ManualRerun(task_id("a"), 0, "")),
    ):
        decision = decided(before, item, offer=take("x"))
        assert decision.answers[0].outcome is Outcome.APPLIED
        assert (started(decision.effects), offered(decision.effects)) == ([], [task_id("a")])


def test_a_task_behind_a_join_is_claimed_when_the_join_fires() -> None:
    labels = [f"t{number:03}" for number in range(limits.REQUIRES_MAX + 4)]
    rows = rows_of({**{label: [] for label in labels}, "end": labels})
    for label in labels:
        rows = running(rows, label)
    items: list[Item] = [done(label) for label in labels]
    found: list[tuple[str, str]] = []
    for number in range(100):
        decision = decide(rows, items, now=NOW, operation="op", sequence=number + 1, offer=take("x"))
        assert isinstance(decision, Decision)
        found += started(decision.effects)
        rows = apply(rows, decision, mark=str(number))
        if not decision.left:
            break
        items = list(decision.left)
    assert found == [("end", "x")]
    assert columns(rows, "end")["state"] == "running"


def test_what_does_not_fit_any_more_is_not_claimed_and_its_id_is_free_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = running(running(rows_of({"a": [], "b": ["a"], "x": [], "y": ["x"], "z": ["x"]}), "a"), "x")
    monkeypatch.setattr(limits, "COMMIT_CHANGES_MAX", 4)
    first = decided(rows, done("a"), done("x"), offer=take("c0", "c1", "c2"))
    assert [answer.item for answer in first.answers] == [done("a")]
    assert list(first.left) == [done("x")]
    assert started(first.effects) == [("b", "c0")]
    assert columns(apply(rows, first), "y")["state"] == columns(rows, "y")["state"] == "unscheduled"
    rows = apply(rows, first)
    second = decided(rows, *first.left, offer=take("c1", "c2"))
    assert {claim for _, claim in started(second.effects)} == {"c1", "c2"}


def test_an_item_that_is_refused_claims_nothing() -> None:
    rows = running(rows_of(FAN), "a")
    rows = changed(rows, "d", requiresLeft="{")
    decision = decided(rows, done("a"), offer=take(*ALL))
    assert decision.answers[0].outcome is Outcome.REFUSED
    assert (decision.changes, decision.effects) == ((), ())


def test_without_an_offer_everything_is_as_before() -> None:
    rows = running(rows_of(FAN), "a")
    without = decided(rows, done("a"), offer=None)
    nothing = decided(rows, done("a"), offer=take())
    assert without.changes == nothing.changes
    assert without.effects == nothing.effects


# --- rows that a decision rests on and does not write ------------------------------------------------------------


def test_a_decision_names_the_rows_that_it_rests_on_and_does_not_write() -> None:
    rows = running(rows_of({"a": [], "b": ["a"]}), "a")
    assert decided(rows, done("a"), offer=None).unchanged == ()
    again = apply(rows, decided(rows, done("a"), offer=None))
    repeated = decided(again, done("a"), offer=None)
    assert set(repeated.unchanged) == {f"task:{task_id('a')}", f"task:{task_id('b')}"}
    stale = decided(rows, done("a", "other"), offer=None)
    assert f"task:{task_id('a')}" in stale.unchanged


def test_what_only_an_item_that_was_put_off_looked_at_is_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = running(running(rows_of({"a": [], "b": ["a"], "x": [], "y": ["x"], "z": ["x"]}), "a"), "x")
    monkeypatch.setattr(limits, "COMMIT_CHANGES_MAX", 4)
    decision = decided(rows, done("a"), done("x"), offer=None)
    assert decision.left
    assert decision.unchanged == ()


def test_the_count_of_completed_tasks_is_in_the_event_row() -> None:
    rows = running(running(rows_of({"a": [], "b": []}), "a"), "b")
    for before, after in ((0, 2), (7, 9), (-1, None)):
        decision = decide(rows, [done("a"), done("b")], now=NOW, operation="op", sequence=4, completed=before)
        assert isinstance(decision, Decision)
        (event,) = [change for change in decision.changes if change.key.startswith("event:")]
        assert event.columns.get("completed") == after  # type: ignore[union-attr]
