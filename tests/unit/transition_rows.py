"""Rows and decisions for the tests of the state machine: plain values, no store."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from taskgraph.documents.nodes import GraphDocument, TaskNode
from taskgraph.model import limits
from taskgraph.model.columns import Value
from taskgraph.model.ids import GRAPH, ids_text, row_key, task_id_of
from taskgraph.protocol.context import Effect, Outcome
from taskgraph.protocol.decide import Answer, Decision, Item, Need, decide
from taskgraph.protocol.layout import lay_out
from taskgraph.storage.tables import Delete, Insert, Merge, Replace, Row

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATER = NOW + timedelta(seconds=limits.LEASE_SECONDS)
Rows = dict[str, Row | None]


def document(requires: Mapping[str, Sequence[str]], reruns: Mapping[str, int] | None = None) -> GraphDocument:
    """A graph of these tasks; not validated, so that tests may hand in what validation would refuse."""
    budget = reruns or {}
    return GraphDocument(
        {label: TaskNode(label, tuple(wanted), budget.get(label, 0)) for label, wanted in requires.items()}
    )


def task_id(label: str) -> str:
    return task_id_of("g", label)


def rows_of(
    requires: Mapping[str, Sequence[str]], reruns: Mapping[str, int] | None = None, *, state: str = "running"
) -> Rows:
    """All rows of a fresh graph."""
    layout = lay_out("g", document(requires, reruns).tasks, stamp="0", now=NOW)
    leaves = ids_text(layout.leaves)
    graph: dict[str, Value] = {
        "schema": 1,
        "state": state,
        "digest": "digest",
        "created": NOW,
        "tasks": len(requires),
        "edges": 0,
        "failedTasks": 0,
        "revision": 0,
        "requires": leaves,
        "requiresLeft": leaves,
    }
    inserts = [Insert(GRAPH, graph), *([layout.top] if layout.top else []), *layout.rows]
    return {insert.key: Row(insert.key, f"0-{number}", insert.columns) for number, insert in enumerate(inserts)}


def columns(rows: Mapping[str, Row | None], key: str) -> Mapping[str, Any]:
    """The columns of a row, by row key or by label."""
    row = rows.get(key) or rows[row_key(task_id(key))]
    assert row is not None
    return row.columns


def changed(rows: Rows, key: str, **more: Value) -> Rows:
    """Rows with some columns of one of them set."""
    row = rows.get(key) or rows[row_key(task_id(key))]
    assert row is not None
    return {**rows, row.key: Row(row.key, row.etag + "+", {**row.columns, **more})}


def without(rows: Rows, key: str) -> Rows:
    """Rows of which one does not exist."""
    own = key if key in rows else row_key(task_id(key))
    assert own in rows
    return {**rows, own: None}


def running(rows: Rows, label: str, *, run: int = 0, claim: str = "c") -> Rows:
    """Rows with a task that a worker holds."""
    return changed(
        rows,
        label,
        state="running",
        run=run,
        claim=claim,
        worker="w",
        started=NOW,
        leaseUntil=NOW + timedelta(seconds=60),
    )


def decided(rows: Rows, *items: Item, now: datetime = NOW, sequence: int = 1) -> Decision:
    """The decision over complete rows: it must not ask for more."""
    decision = decide(rows, items, now=now, operation="op", sequence=sequence)
    assert isinstance(decision, Decision), decision
    assert decision.applied == all(answer.outcome is Outcome.APPLIED for answer in decision.answers)
    return decision


def apply(rows: Rows, decision: Decision, *, mark: str = "1") -> Rows:
    """The rows after the commit of a decision; every condition is checked."""
    after = dict(rows)
    keys = [change.key for change in decision.changes]
    assert len(keys) == len(set(keys)) <= limits.COMMIT_CHANGES_MAX
    for change in decision.changes:
        before = after.get(change.key)
        match change:
            case Insert(key, values):
                assert before is None, f"{key} exists"
                after[key] = Row(key, f"{mark}-{key}", values)
            case Merge(key, etag, values):
                assert before is not None
                assert before.etag == etag
                after[key] = Row(key, f"{mark}-{key}", {**before.columns, **values})
            case Replace(key, etag, values):
                assert before is not None
                assert before.etag == etag
                after[key] = Row(key, f"{mark}-{key}", values)
            case Delete(key):
                raise AssertionError(f"{key} is deleted")
    return after


def run_down(rows: Rows, *items: Item, now: datetime = NOW, first: int = 1) -> tuple[Rows, list[Effect], list[Answer]]:
    """Decide and apply in as many commits as it takes."""
    left: Sequence[Item] = items
    effects: list[Effect] = []
    answers: list[Answer] = []
    sequence = first
    for _ in range(1_000):
        if not left:
            return rows, effects, answers
        decision = decided(rows, *left, now=now, sequence=sequence)
        rows = apply(rows, decision, mark=str(sequence))
        effects += decision.effects
        answers += decision.answers
        sequence += any(change.key.startswith("event:") for change in decision.changes)
        assert len(decision.left) < len(left) or decision.changes, "no progress"
        left = decision.left
    raise AssertionError("no end")


def loaded_step_by_step(rows: Rows, *items: Item, now: datetime = NOW) -> tuple[Decision, int]:
    """The decision over nothing but what it asks for, and how often it had to ask."""
    known: Rows = {}
    for asked in range(20):
        decision = decide(known, items, now=now, operation="op", sequence=1)
        if isinstance(decision, Decision):
            return decision, asked
        assert isinstance(decision, Need)
        assert decision.keys
        assert not decision.keys & known.keys(), "asked for the same row again"
        known |= {key: rows.get(key) for key in decision.keys}
    raise AssertionError("no end")


def events(decision: Decision) -> list[dict[str, Any]]:
    """The facts of the decision's event row."""
    for change in decision.changes:
        if isinstance(change, Insert) and change.key.startswith("event:"):
            events = list(json.loads(str(change.columns["events"])))
            for event in events:
                event.pop("changed", None)  # tests/scenarios/test_facts holds that of every kind
            return events
    return []


def written(decision: Decision) -> dict[str, dict[str, Any]]:
    """Row key -> columns that the decision writes, without the id of the operation."""
    made = {}
    for change in decision.changes:
        assert not isinstance(change, Delete)
        assert change.columns["operation"] == "op"
        made[change.key] = {name: value for name, value in change.columns.items() if name != "operation"}
    return made
