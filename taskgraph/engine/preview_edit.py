"""What an edit would do, row by row, without writing anything."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeGuard

from taskgraph.documents.edit_document import EditDocument
from taskgraph.engine.commit import Records
from taskgraph.engine.plan_edit import plan_edit
from taskgraph.model.columns import Value
from taskgraph.model.errors import NotFound
from taskgraph.model.ids import GRAPH, row_key
from taskgraph.protocol.context import Dispatch, Effect, Outcome
from taskgraph.protocol.decide import Decision, decide, event_key
from taskgraph.protocol.edit import RefuseEdit
from taskgraph.protocol.extension import request_key
from taskgraph.storage.tables import Change, Delete, Insert, Replace, Row


@dataclass(frozen=True, slots=True)
class RowChange:
    """What an edit does to one row. change: insert, update, delete. columns: name -> (before, after), None for none."""

    key: str
    label: str
    change: str
    columns: Mapping[str, tuple[Value | None, Value | None]]


@dataclass(frozen=True, slots=True)
class EditPreview:
    """What an edit would do now. refusal: why it would be refused, "" if it would not.

    revision: of the graph as it is. rows: what would be written. facts: what the journal would say. ready: labels of
    tasks that would be sent, or sent again.
    """

    graph_id: str
    revision: int
    refusal: str = ""
    rows: tuple[RowChange, ...] = ()
    facts: tuple[Mapping[str, Any], ...] = ()
    ready: tuple[str, ...] = ()


async def preview_edit(records: Records, graph_id: str, document: EditDocument, *, now: datetime) -> EditPreview:
    """What an edit would do, if it came now; nothing is written. Raises NotFound for an unknown graph."""
    (graph,) = await records.tables.get(graph_id, [GRAPH])
    if graph is None:
        raise NotFound(f"there is no graph {graph_id}")
    item = await plan_edit(records, graph_id, graph, document, document.request)
    if isinstance(item, RefuseEdit):
        return EditPreview(graph_id, item.revision, item.reason)
    head = Row(request_key(item.request), "-", {"state": "staged"})
    rows: dict[str, Row | None] = {}
    while True:
        rows[head.key] = head
        decision = decide(rows, [item], now=now, operation="", sequence=1)
        if isinstance(decision, Decision):
            break
        await records.load(graph_id, decision.keys, rows)
    (answer, *_) = decision.answers
    if answer.outcome is not Outcome.APPLIED:
        return EditPreview(graph_id, item.revision, answer.reason)
    written = [change for change in decision.changes if change.key not in (head.key, event_key(1))]
    return EditPreview(
        graph_id,
        item.revision,
        rows=tuple(_row_change(change, rows.get(change.key)) for change in written),
        facts=tuple(_facts(decision)),
        ready=tuple(
            dict.fromkeys(_label_of(rows.get(row_key(e.task_id)), e.task_id) for e in decision.effects if _is_sent(e))
        ),
    )


def _is_sent(effect: Effect) -> TypeGuard[Dispatch]:
    return isinstance(effect, Dispatch)


def _label_of(row: Row | None, otherwise: str) -> str:
    return str(row.columns.get("label", otherwise)) if row is not None else otherwise


def _facts(decision: Decision) -> list[Mapping[str, Any]]:
    for change in decision.changes:
        if isinstance(change, Insert) and change.key == event_key(1):
            found: list[Mapping[str, Any]] = json.loads(str(change.columns["events"]))
            return found
    return []


def _row_change(change: Change, row: Row | None) -> RowChange:
    before = row.columns if row is not None else {}
    label = _label_of(row, "")
    if isinstance(change, Delete):
        return RowChange(change.key, label, "delete", {})
    kind = "insert" if isinstance(change, Insert) else "update"
    names = {**before, **change.columns} if isinstance(change, Replace) else change.columns
    columns = {
        name: (before.get(name), change.columns.get(name))
        for name in names
        if name != "operation" and before.get(name) != change.columns.get(name)
    }
    return RowChange(change.key, label, kind, columns)
