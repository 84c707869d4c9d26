"""Which items are decided together. That it is as their rules would is held by test_rows_reference."""

import math
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from taskgraph.protocol import decide, together
from taskgraph.protocol.decide import Decision, Item
from taskgraph.protocol.runs import Claim, Completed
from taskgraph.storage.tables import Row
from tests.unit.transition_rows import NOW, Rows, rows_of, running, task_id

LABELS = [f"t{number:02}" for number in range(40)]
SOME = LABELS[:30]  # their join waits for the others, too


def decided(rows: Rows, items: Sequence[Item]) -> Decision:
    found = decide.decide(rows, items, now=NOW, operation="op", sequence=1)
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
