"""Plan an edit from its request rows, by what the graph holds: read what `protocol.edit_plan` asks for.

What this room is for: everything about an edit that needs reading. The rule of the one commit is in `protocol.edit`;
the loop is in `transact`. It never writes.
"""

from collections.abc import Iterable
from typing import Final

from taskgraph.documents.edit_document import EditDocument, read_edit
from taskgraph.engine.commit import Records
from taskgraph.model import limits
from taskgraph.model.errors import IntegrityError
from taskgraph.model.ids import reference_of
from taskgraph.protocol.definitions import gathered
from taskgraph.protocol.edit import EDITABLE, EditGraph, RefuseEdit
from taskgraph.protocol.edit_plan.names import Names, RefusedError
from taskgraph.protocol.edit_plan.plan import EditPlan
from taskgraph.protocol.edit_plan.snapshot import Snapshot
from taskgraph.protocol.extension import request_key
from taskgraph.storage.tables import Range, Row, query_all

_EDGES: Final = ("label", "state", "run", "requires", "dependents", "task")


async def read_request(records: Records, graph_id: str, request: str) -> EditDocument:
    """The document of a request. Raises InvalidGraph if its rows hold none."""
    key = request_key(request)
    parts = await query_all(records.tables, graph_id, Range(f"{key}:", f"{key};"))
    return read_edit("".join(gathered(part.columns, "text") for part in parts), source=key)


async def plan_edit(
    records: Records, graph_id: str, graph: Row, document: EditDocument, request: str, *, again: bool = False
) -> EditGraph | RefuseEdit:
    """What an edit comes to for the graph as it is, or why it is refused.

    again: it was made before, so what it takes away may be gone.
    """
    revision = graph.columns.get("revision", 0)
    if not isinstance(revision, int):
        raise IntegrityError(f"row {graph.key}: the revision is {revision!r}")
    state = graph.columns.get("state")
    if state not in EDITABLE:
        return RefuseEdit(request, revision, f"the graph is {state}; only one that runs or is blocked is edited")
    if document.if_revision is not None and document.if_revision != revision:
        reason = f"the revision of the graph is {revision}, not {document.if_revision}: look at it again"
        return RefuseEdit(request, revision, reason)
    try:
        plan = await _laid_out(records, graph_id, graph, document, request, again=again)
        plan.check_results(await _long_definitions(records, graph_id, plan))
        return plan.item(revision)
    except RefusedError as refused:
        return RefuseEdit(request, revision, str(refused))


async def still_holds(records: Records, graph_id: str, graph: Row, document: EditDocument) -> bool:
    """Whether an edit that was made before would change nothing now, whatever the graph would say to it."""
    try:
        plan = await _laid_out(records, graph_id, graph, document, document.request, again=True)
    except RefusedError:
        return False
    return plan.item(0).changes_nothing


async def _laid_out(
    records: Records, graph_id: str, graph: Row, document: EditDocument, request: str, *, again: bool
) -> EditPlan:
    names = Names(graph_id, graph, await _read_snapshot(records, graph_id, graph), document, again=again)
    found = await records.tables.get(graph_id, names.touched())
    return EditPlan(names, {row.key: row for row in found if row is not None}, request)


async def _read_snapshot(records: Records, graph_id: str, graph: Row) -> Snapshot:
    """Read the edges of a whole graph, page by page."""
    rows: dict[str, Row] = {}
    for kind in ("task", "join", "fork"):
        found = await query_all(records.tables, graph_id, Range(f"{kind}:", f"{kind};", select=_EDGES))
        rows.update((reference_of(row.key), row) for row in found)
    groups: dict[str, list[Row]] = {}
    if graph.columns.get("groups"):
        for row in await query_all(records.tables, graph_id, Range("group:", "group;")):
            groups.setdefault(row.key.split(":")[1], []).append(row)
    mapping = await query_all(records.tables, graph_id, Range("name-mapping:", "name-mapping;"))
    return Snapshot(rows, groups, mapping)


async def _long_definitions(records: Records, graph_id: str, plan: EditPlan) -> dict[str, str]:
    wanted = plan.long_definitions()
    if not wanted:
        return {}
    found: Iterable[Row | None]
    if len(wanted) <= limits.READ_ALONE_MAX:
        found = await records.tables.get(graph_id, wanted)
    else:
        found = await query_all(records.tables, graph_id, Range("definition:", "definition;"))
    return {row.key.removeprefix("definition:"): gathered(row.columns, "task") for row in found if row is not None}
