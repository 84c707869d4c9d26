"""Columns hold what they should: present where they must be, and readable."""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Final, TypeGuard

from taskgraph.model.columns import Value
from taskgraph.model.ids import GRAPH, ids_text, reference_of
from taskgraph.model.placement import target_of
from taskgraph.model.row_schema import CHECKED, KINDS, row_kind
from taskgraph.model.states import GRAPH_ENDED, TASK_STORED, GraphState, TaskState
from taskgraph.model.timing import Retry, retry_of
from taskgraph.protocol.conditions import FAILED_APART
from taskgraph.protocol.invariants.findings import Finding, Patch
from taskgraph.protocol.invariants.graph import failed_again
from taskgraph.protocol.invariants.snapshot import Node, Snapshot, is_number, read_json
from taskgraph.protocol.notices import DONE, GIVEN_UP, OPEN
from taskgraph.storage.tables import Row


def _is_seconds(value: Value) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def policy_of(text: Value) -> Retry | None:
    """The retry policy that a column holds, None where it cannot be read."""
    try:
        return retry_of(text) if isinstance(text, str) else None
    except ValueError:
        return None


def _is_references(value: Value) -> bool:
    found = read_json(value)
    return isinstance(found, list) and all(isinstance(each, str) for each in found)


_FITS: Final[Mapping[str, Callable[[Value], bool]]] = {
    **dict.fromkeys(("text", "pieces"), lambda value: isinstance(value, str)),
    **dict.fromkeys(("number", "count"), is_number),
    "time": lambda value: isinstance(value, datetime),
    "seconds": lambda value: _is_seconds(value) and value > 0,
    "pause": lambda value: _is_seconds(value) and value >= 0,
    "retry-policy": lambda value: policy_of(value) is not None,
    "references": _is_references,
    "object": lambda value: value == "" or isinstance(read_json(value), dict),
    "list": lambda value: value == "" or isinstance(read_json(value), list),
    "notice-state": frozenset({OPEN, DONE, GIVEN_UP}).__contains__,
    "task-state": frozenset(TASK_STORED).__contains__,
    "graph-state": frozenset(GraphState).__contains__,
    "request-state": frozenset({"staged", "accepted", "done", "refused"}).__contains__,
}
"""Whether a value is one of this kind (`row_schema.KINDS`)."""


def bad_columns(snapshot: Snapshot) -> Iterator[Finding]:
    """Columns that are missing, or hold what cannot be read."""
    for row in snapshot.rows.values():
        yield from _bad_columns_of(snapshot, row)


def _bad_columns_of(snapshot: Snapshot, row: Row) -> Iterator[Finding]:
    node = snapshot.nodes.get(reference_of(row.key))
    lists = {"requires": node.requires, "requiresLeft": node.left, "dependents": node.dependents} if node else {}
    for column in CHECKED.get(row_kind(row.key), ()):
        name, value = column.name, row.columns.get(column.name)
        if value is not None and lists.get(name) is not None:
            continue
        if not column.needed if value is None else _FITS[column.kind](value):
            continue
        repair: Patch | None = None
        keys: list[str] = []
        if name == "requiresLeft" and node is not None:
            repair = _left_again(snapshot, node)
            keys = snapshot.edge_keys(node.reference, node.requires or ())
        elif name in ("failedTasks", FAILED_APART) and row.key == GRAPH:
            repair = failed_again(snapshot)
        elif name == "target" and (target := _target_again(snapshot, row)):
            repair = snapshot.patch({row.key: {"target": target}})
        shown = "is missing" if value is None else f"holds {str(value)[:60]!r}"
        text = f"column {name} {shown}, and should hold {KINDS[column.kind][1]}"
        counted = name in ("failedTasks", FAILED_APART) and repair is not None
        yield snapshot.find("bad-column", row.key, text, repair=repair, detail=name, whole=counted, keys=keys)


def _left_again(snapshot: Snapshot, node: Node) -> Patch | None:
    """What is left, from what is required and what has completed."""
    if node.reference == GRAPH:
        waits = node.state not in GRAPH_ENDED
    else:
        waits = node.state in (TaskState.UNSCHEDULED, TaskState.RUNNING)
    if node.requires is None or not waits:
        return None
    states = {each: snapshot.done(node.reference, each) for each in node.requires}
    if None in states.values() or snapshot.is_open(node.reference):
        return None
    left = [each for each, done in states.items() if not done]
    hold = snapshot.upstream_keys(node.reference, left)
    return snapshot.patch({node.row.key: {"requiresLeft": ids_text(left)}}, hold)


def _target_again(snapshot: Snapshot, row: Row) -> str:
    longer = snapshot.rows.get(f"definition:{reference_of(row.key)}")
    found = read_json(row.columns.get("task") or (longer.columns.get("task", "") if longer else ""))
    return target_of(found) if isinstance(found, dict) else ""
