"""Plan an extension from its request rows: read what `protocol.extension_plan` goes by.

What this room is for: everything about an extension that needs reading: the document, which of its tasks exist
already, which tasks outside it they require. The loop is in `requests`. It never writes.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

from taskgraph.documents.nodes import GraphDocument
from taskgraph.documents.read import read_document
from taskgraph.documents.references import external_labels
from taskgraph.engine.commit import Records
from taskgraph.model.ids import row_key, task_id_of
from taskgraph.protocol.definitions import gathered, members_of
from taskgraph.protocol.extension import request_key
from taskgraph.protocol.extension_plan import ExtensionPlan, plan_steps, refusal_of
from taskgraph.protocol.wiring import KnownGroup
from taskgraph.queries.groups import group_names, group_rows
from taskgraph.storage.tables import Range, Row, query_all

POINT_READS_MAX: Final = 200
"""More labels than this are looked up by reading the graph's tasks once, not one by one."""


async def read_request(records: Records, graph_id: str, request: str) -> GraphDocument:
    """The document of a request. Raises InvalidGraph if its rows hold none."""
    key = request_key(request)
    parts = await query_all(records.tables, graph_id, Range(f"{key}:", f"{key};"))
    return read_document("".join(gathered(part.columns, "text") for part in parts), source=key, kind="extension")


async def plan_extension(records: Records, graph_id: str, graph: Row, head: Row, *, now: datetime) -> ExtensionPlan:
    """Plan an extension. Raises InvalidGraph if its rows hold no valid document."""
    request = head.key.removeprefix("request:")
    document = await read_request(records, graph_id, request)
    outside = external_labels(document)
    existing = await _digests(records, graph_id, [*document.tasks, *document.groups, *sorted(outside)])
    # A graph without groups is not asked for any.
    have = await group_names(records.tables, graph_id) if graph.columns.get("groups") else {}
    refusal = refusal_of(graph, head, document, existing, have, request)
    known = {} if refusal else await _known_groups(records, graph_id, have, outside)
    return plan_steps(graph_id, graph, head, document, existing, have, known, refusal, now)


async def _known_groups(
    records: Records, graph_id: str, have: Mapping[str, str], names: Iterable[str]
) -> dict[str, KnownGroup]:
    """The groups among names that the graph has."""
    known: dict[str, KnownGroup] = {}
    for name in sorted(set(names).intersection(have)):
        rows = await group_rows(records.tables, graph_id, name)
        known[name] = KnownGroup(str(rows[0].columns.get("join", "")), members_of(rows))
    return known


async def _digests(records: Records, graph_id: str, labels: list[str]) -> dict[str, tuple[str, str, str]]:
    """Label -> (digest, request that added it, state), of those tasks that exist."""
    keys = {row_key(task_id_of(graph_id, label)): label for label in labels}
    found: list[Row]
    if len(keys) <= POINT_READS_MAX:
        found = [row for row in await records.tables.get(graph_id, list(keys)) if row is not None]
    else:
        wanted = Range("task:", "task;", select=("digest", "request", "state"))
        found = [row for row in await query_all(records.tables, graph_id, wanted) if row.key in keys]
    known: dict[str, tuple[str, str, str]] = {}
    for row in found:
        digest, added_by, state = (str(row.columns.get(name, "")) for name in ("digest", "request", "state"))
        known[keys[row.key]] = digest, added_by, state
    return known
