"""Plan an extension or an edit from its request rows, by what the graph holds.

This module reads what `protocol.extension_plan` and `protocol.edit_plan` go by, and never writes. The loop that takes
a request to its end is in `requests`.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from taskgraph.documents.edit_document import EditDocument
from taskgraph.documents.nodes import GraphDocument
from taskgraph.documents.read import read_document
from taskgraph.documents.references import external_labels
from taskgraph.engine.commit import Records
from taskgraph.model import limits
from taskgraph.model.columns import texts
from taskgraph.model.errors import IntegrityError
from taskgraph.model.ids import GRAPH, group_key, limit_scope, reference_of, row_key, task_id_of
from taskgraph.model.states import TaskState, by_group
from taskgraph.protocol.concurrency import scopes_of
from taskgraph.protocol.conditions import goes_on, passes_on
from taskgraph.protocol.definitions import gathered, members_of
from taskgraph.protocol.edit import EditGraph
from taskgraph.protocol.edit_plan.names import Names, RefusedError, Snapshot
from taskgraph.protocol.edit_plan.plan import EditPlan
from taskgraph.protocol.extension import RefuseRequest, request_key
from taskgraph.protocol.extension_plan import ExtensionPlan, plan_steps, refusal_of, required_from
from taskgraph.protocol.layout import PASSES_ON
from taskgraph.protocol.propagation import GOING
from taskgraph.protocol.rows import Draft
from taskgraph.protocol.wiring import Grown, KnownGroup
from taskgraph.queries.groups import group_names, group_rows
from taskgraph.storage.tables import Range, Row, query_all

POINT_READS_MAX: Final = 200
"""More labels than this are looked up by reading the graph's tasks once, not one by one."""

_EDGES: Final = ("label", "state", "run", "requires", "dependents", "task", "failurePolicy")


async def request_text(records: Records, graph_id: str, request: str) -> str:
    """The document of a request, as its rows hold it."""
    key = request_key(request)
    parts = await query_all(records.tables, graph_id, Range(f"{key}:", f"{key};"))
    return "".join(gathered(part.columns, "text") for part in parts)


# --- extensions --------------------------------------------------------------------------------------------------


async def plan_extension(records: Records, graph_id: str, graph: Row, head: Row, *, now: datetime) -> ExtensionPlan:
    """Plan an extension. Raises InvalidGraph if its rows hold no valid document."""
    request = head.key.removeprefix("request:")
    document = read_document(await request_text(records, graph_id, request), source=head.key, kind="extension")
    outside = external_labels(document)
    existing = await _digests(records, graph_id, [*document.tasks, *document.groups, *sorted(outside)])
    # A graph without groups is not asked for any.
    have = await group_names(records.tables, graph_id) if graph.columns.get("groups") else {}
    grown = await _grown_groups(records, graph_id, graph, document, have, request)
    passing = await _passing(records, graph_id, graph, [*sorted(outside), *grown], have)
    refusal = refusal_of(graph, head, document, existing, have, grown, passing, request)
    if grown and not refusal and head.columns.get("state") == "staged":
        refusal = await _circle(records, graph_id, graph, document, existing, have, grown)
    known = {} if refusal else await _known_groups(records, graph_id, have, outside)
    return plan_steps(graph_id, graph, head, document, existing, have, known, grown, refusal, now)


async def _grown_groups(
    records: Records, graph_id: str, graph: Row, document: GraphDocument, have: Mapping[str, str], request: str
) -> dict[str, Grown]:
    """The groups of a document that the graph has already, and that an extension may put tasks into."""
    found: dict[str, Grown] = {}
    limited, held = scopes_of(graph.columns), Draft(GRAPH, graph.columns, None).ids("held")
    for name, group in document.groups.items():
        if have.get(name, request) == request:
            continue
        rows = await group_rows(records.tables, graph_id, name)
        columns, members = rows[0].columns, frozenset(members_of(rows))
        if columns.get("grows") is not True:
            continue
        around = tuple(texts(columns, "groups"))
        found[name] = Grown(
            str(columns.get("join", "")),
            frozenset(label for label in group.tasks if task_id_of(graph_id, label) in members),
            around,
            tuple(each for each in (name, *around) if by_group(each) in held),
            tuple(each for each in (name, *around) if limit_scope(graph_id, each) in limited),
            await _policy_of(records, graph_id, graph, rows[0]),
        )
    return found


async def _policy_of(records: Records, graph_id: str, graph: Row, group: Row) -> str:
    """What the innermost of a group and those around it says of failures, "" for nothing."""
    own = str(group.columns.get("failurePolicy", ""))
    if own or graph.columns.get("groupPolicies") is not True:
        return own
    keys = [group_key(task_id_of(graph_id, name)) for name in texts(group.columns, "groups")]
    rows = [row for row in await records.tables.get(graph_id, keys) if row is not None]
    saying = {str(row.columns.get("label", "")): row.columns for row in rows if row.columns.get("failurePolicy")}
    outer = {name for columns in saying.values() for name in texts(columns, "groups")}
    return next((str(columns["failurePolicy"]) for name, columns in saying.items() if name not in outer), "")


async def _circle(
    records: Records,
    graph_id: str,
    graph: Row,
    document: GraphDocument,
    existing: Mapping[str, tuple[str, str, str]],
    have: Mapping[str, str],
    grown: Mapping[str, Grown],
) -> str:
    """Which task of a growing group would wait for the group itself, "" if none would.

    What has begun does not wait for it, so the graph is read only where a new task requires one that still waits.
    """
    snapshot: Snapshot | None = None
    for name, group in grown.items():
        for outside, label in required_from(document, name).items():
            if outside not in have and existing[outside][2] != TaskState.UNSCHEDULED:
                continue
            snapshot = snapshot or await _read_snapshot(records, graph_id, graph)
            own = task_id_of(graph_id, outside)
            todo, seen = [own] if outside not in have else list(_stands_for(snapshot, own)), {""}
            while todo:
                here = todo.pop()
                if here == group.join:
                    way = f"it requires “{outside}”, which requires the group “{name}”" if outside != name else ""
                    way = way or f"it requires the group “{name}”"
                    return f"“{label}” would wait for itself: {way}, into which it is put"
                row = snapshot.rows.get(here)
                if here not in seen and row is not None and row.columns.get("state") == TaskState.UNSCHEDULED:
                    seen.add(here)
                    todo += snapshot.ids(here, "requires")
    return ""


def _stands_for(snapshot: Snapshot, group_id: str) -> Sequence[str]:
    """What a requirement on a group comes to: its join, or its tasks."""
    rows = snapshot.groups.get(group_id, [])
    join = str(rows[0].columns.get("join", "")) if rows else ""
    return [join] if join else members_of(rows)


async def _known_groups(
    records: Records, graph_id: str, have: Mapping[str, str], names: Iterable[str]
) -> dict[str, KnownGroup]:
    """The groups among names that the graph has."""
    known: dict[str, KnownGroup] = {}
    for name in sorted(set(names).intersection(have)):
        rows = await group_rows(records.tables, graph_id, name)
        known[name] = KnownGroup(str(rows[0].columns.get("join", "")), members_of(rows))
    return known


async def _passing(
    records: Records, graph_id: str, graph: Row, names: Sequence[str], have: Mapping[str, str]
) -> dict[str, bool]:
    """Whether these tasks and groups of the graph pass their failures on; none of them where it alone says so."""
    if graph.columns.get("groupPolicies") is not True:
        return {}
    keys = {(group_key if name in have else row_key)(task_id_of(graph_id, name)): name for name in names}
    value = graph.columns.get
    found: dict[str, bool] = {}
    for row in await records.tables.get(graph_id, list(keys)):
        if row is not None:
            own = passes_on(value, row.columns.get) if row.key.startswith("task:") else goes_on(value)
            found[keys[row.key]] = row.columns.get(PASSES_ON, own) is True
    return found


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


# --- edits -------------------------------------------------------------------------------------------------------


async def plan_edit(
    records: Records, graph_id: str, graph: Row, document: EditDocument, request: str, *, again: bool = False
) -> EditGraph | RefuseRequest:
    """What an edit comes to for the graph as it is, or why it is refused.

    again: it was made before, so what it takes away may be gone.
    """
    revision = graph.columns.get("revision", 0)
    if not isinstance(revision, int):
        raise IntegrityError(f"row {graph.key}: the revision is {revision!r}")
    state = graph.columns.get("state")
    if state not in GOING:
        return RefuseRequest(request, f"the graph is {state}; only one that runs or is blocked is edited", revision)
    if document.if_revision is not None and document.if_revision != revision:
        reason = f"the revision of the graph is {revision}, not {document.if_revision}: look at it again"
        return RefuseRequest(request, reason, revision)
    try:
        plan = await _laid_out(records, graph_id, graph, document, request, again=again)
        plan.check_results(await _long_definitions(records, graph_id, plan))
        return plan.item(revision)
    except RefusedError as refused:
        return RefuseRequest(request, str(refused), revision)


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
