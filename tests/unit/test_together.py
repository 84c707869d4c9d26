"""Which items are decided together. That it is as their rules would is held by test_rows_reference."""

import math
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from taskgraph.model import limits
from taskgraph.protocol import decide, propagation, together
from taskgraph.protocol.context import ClaimOffer, Dispatch, Started
from taskgraph.protocol.decide import Decision, Item
from taskgraph.protocol.relays import Fire
from taskgraph.protocol.runs import Claim, Completed
from taskgraph.storage.tables import Row
from tests.unit.transition_rows import NOW, Rows, rows_of, running, task_id

LABELS = [f"t{number:02}" for number in range(40)]
SOME = LABELS[:30]  # their join waits for the others, too


def decided(rows: Rows, items: Sequence[Item], offer: ClaimOffer | None = None) -> Decision:
    found = decide.decide(rows, items, now=NOW, operation="op", sequence=1, offer=offer)
    assert isinstance(found, Decision)
    return found


def completions(labels: Sequence[str]) -> list[Item]:
    return [Completed(task_id(label), 0, "c", NOW.isoformat(), {"failed": False}) for label in labels]


def claims(labels: Sequence[str]) -> list[Item]:
    return [Claim(task_id(label), 0, f"c-{label}", "w", NOW + timedelta(seconds=60)) for label in labels]


def all_running(rows: Rows) -> Rows:
    for label in LABELS:
        rows = running(rows, label)
    return rows


@pytest.mark.parametrize("kind", [Completed, Claim])
def test_plain_ones_need_no_rule(monkeypatch: pytest.MonkeyPatch, kind: type[Item]) -> None:
    rows = rows_of({label: [] for label in LABELS})
    rows, items = (all_running(rows), completions(SOME)) if kind is Completed else (rows, claims(SOME))
    calls: list[Item] = []
    rule = decide.RULES[kind]

    def counted(item: Any, context: Any) -> Any:
        calls.append(item)
        return rule(item, context)

    monkeypatch.setitem(decide.RULES, kind, counted)
    decision = decided(rows, items)
    assert [answer.outcome for answer in decision.answers] == ["applied"] * len(SOME)
    assert calls == []
    monkeypatch.setattr(together, "ITEMS_MIN", math.inf)
    assert repr(decided(rows, items)) == repr(decision)
    assert len(calls) == len(SOME)


@pytest.mark.parametrize("offered", [0, 7, 40])
def test_what_becomes_ready_through_relays_needs_no_rule(monkeypatch: pytest.MonkeyPatch, offered: int) -> None:
    """One task before many, which only forks name, and many before one, behind joins: all in one commit."""
    monkeypatch.setattr(limits, "DEPENDENTS_MAX", 9)
    monkeypatch.setattr(limits, "REQUIRES_MAX", 9)
    many = LABELS[:20]
    wide = rows_of({"first": [], **{label: ["first"] for label in many}, "last": many}, dict.fromkeys(many, 0))
    claims = tuple(f"c-{number}" for number in range(offered))
    offer = ClaimOffer("w", NOW, frozenset({"default"}), claims, bool, 4, lease_seconds=60.0) if claims else None
    first: list[Item] = completions(["first"])
    narrow = dict(running(wide, "first"))
    for key, row in narrow.items():  # the second part: as if the first had been completed, and all begun
        if row is not None and row.columns.get("label") in many:
            begun = {"state": "running", "claim": "c", "requiresLeft": "[]"}
            narrow[key] = Row(key, row.etag, {**row.columns, **begun})
    by_rule: list[object] = []

    def noted(name: str, of: Any) -> None:
        rule = getattr(of, name) if not isinstance(of, dict) else of[name]

        def called(*given: Any, **named: Any) -> Any:
            by_rule.append(given)
            return rule(*given, **named)

        if isinstance(of, dict):
            monkeypatch.setitem(of, name, called)
        else:
            monkeypatch.setattr(of, name, called)

    noted(Fire, decide.RULES)  # type: ignore[arg-type]
    noted(Completed, decide.RULES)  # type: ignore[arg-type]
    noted("count_down", propagation)
    for rows, items in ((running(wide, "first"), first), (narrow, completions(many))):
        decision = decided(rows, items, offer)
        ready = [each for each in decision.effects if isinstance(each, Started | Dispatch)]
        assert len(ready) == (len(many) if items is first else 1)
        assert sum(isinstance(each, Started) for each in ready) == min(offered, len(ready))
        assert sum(change.key.startswith(("fork:", "join:")) for change in decision.changes) > 1
        assert by_rule == []
        with monkeypatch.context() as patch:
            patch.setattr(together, "ITEMS_MIN", math.inf)
            assert repr(decided(rows, items, offer)) == repr(decision)
        assert by_rule != []
        by_rule.clear()


def test_relays_that_stand_ready_need_no_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """They were made so by an earlier commit, which had no room for what they pass on."""
    monkeypatch.setattr(limits, "DEPENDENTS_MAX", 9)
    rows = dict(rows_of({"first": [], **{label: ["first"] for label in LABELS}}))
    forks = [key for key, row in rows.items() if row is not None and key.startswith("fork:")]
    for key in forks:
        row = rows[key]
        assert row is not None
        rows[key] = Row(key, row.etag, {**row.columns, "state": "pending", "requiresLeft": "[]"})
    fires: list[Item] = [Fire(key) for key in forks]
    decision = decided(rows, fires)
    assert sum(isinstance(each, Dispatch) for each in decision.effects) > 1
    with monkeypatch.context() as patch:
        patch.setattr(together, "ITEMS_MIN", math.inf)
        assert repr(decided(rows, fires)) == repr(decision)
    monkeypatch.setitem(decide.RULES, Fire, None)
    assert repr(decided(rows, fires)) == repr(decision)


def test_what_is_unusual_goes_by_its_rule_and_the_others_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = dict(all_running(rows_of({label: [] for label in LABELS})))
    key = f"task:{task_id(SOME[7])}"
    row = rows[key]
    assert row is not None
    rows[key] = Row(key, row.etag, {**row.columns, "cancel": "asked", "cancelCode": "cancelled"})
    rule, calls = decide.RULES[Completed], list[str]()

    def noted(item: Any, context: Any) -> Any:
        calls.append(item.task_id)
        return rule(item, context)

    monkeypatch.setitem(decide.RULES, Completed, noted)
    decided(rows, completions(SOME))
    assert calls == [task_id(SOME[7])]
