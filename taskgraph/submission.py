"""Submit a graph, or stage an extension: the only writers besides the handlers, of rows that are still their own (D16).

What this room is for: the client's side of getting work in. A submission writes its rows as `submitting`, in commits
of up to 100, and then flips the graph row to `running` (P10); every step can be repeated, by the same call, after any
crash. An extension is put down as a request and handled elsewhere. It never validates (documents do) and never waits
for a graph.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from taskgraph import limits
from taskgraph.documents import canonical_json, content_hash, document_object
from taskgraph.errors import Conflict, NotFound, Refused, Unclear
from taskgraph.extending import request_rows, row_bytes
from taskgraph.extension import request_key
from taskgraph.handlers import Handlers
from taskgraph.layout import SCHEMA, Layout, lay_out, name_mapping_rows, utf16_units
from taskgraph.messages import AddTasks, to_text
from taskgraph.model import GRAPH, GraphDocument, GraphState, ids_text, slugid_from
from taskgraph.records import ALL
from taskgraph.storage.tables import Insert, Merge, Row, Value
from taskgraph.transitions import Outcome, Start

Progress = Callable[[int, int], None]
"""Told (rows written, rows in all)."""

_NEWEST_FIRST: Final = 10**15


def no_progress(written: int, total: int) -> None:
    """For callers that show nothing."""


class Submitted(StrEnum):
    """What a submission found."""

    CREATED = "created"
    RESUMED = "resumed"  # an earlier call with the same content had not come to its end
    EXISTING = "existing"  # the same content was submitted before


@dataclass(frozen=True, slots=True)
class Submission:
    """Answer to a submission."""

    graph_id: str
    outcome: Submitted
    tasks: int
    edges: int


@dataclass(frozen=True, slots=True)
class Extension:
    """Answer to an extension: the id of the request to look up, and its state so far (staged, accepted, done)."""

    graph_id: str
    request: str
    state: str


async def submit(
    handlers: Handlers, graph_id: str, document: GraphDocument, *, progress: Progress = no_progress
) -> Submission:
    """Write a validated graph and start it. The same content again gives the same answer.

    Raises Refused if another graph was submitted under this id.
    """
    digest = content_hash(document)
    records, clock = handlers.records, handlers.clock
    await handlers.enter_live(graph_id)
    now = clock.now()
    (row,) = await records.tables.get(graph_id, [GRAPH])
    outcome = Submitted.RESUMED
    layout: Layout | None = None
    if row is None:
        layout = lay_out(graph_id, document.tasks, stamp="0", now=now)
        try:
            await records.tables.commit(graph_id, [_graph_row(graph_id, document, layout, digest, now)])
            outcome = Submitted.CREATED
        except (Conflict, Unclear):
            outcome = Submitted.RESUMED  # somebody else, or this very call: the row tells
        (row,) = await records.tables.get(graph_id, [GRAPH])
        if row is None:
            raise Conflict(f"graph {graph_id} could not be created; try again")
    _same_content(row, graph_id, digest)
    created = row.columns["created"]
    if not isinstance(created, datetime):
        raise Refused(f"row {GRAPH} of graph {graph_id} holds no time of creation", "damaged")
    await _list_graph(handlers, graph_id, created, document)
    answer = Submission(graph_id, outcome, len(document.tasks), document.edges)
    if row.columns["state"] != GraphState.SUBMITTING:
        return Submission(graph_id, Submitted.EXISTING, len(document.tasks), document.edges)
    if layout is None or created != now:
        layout = lay_out(graph_id, document.tasks, stamp="0", now=created)
    rows = [*([layout.top] if layout.top else []), *layout.rows]
    if "nameMapping" not in row.columns:
        rows.extend(name_mapping_rows(layout.mapping, "0"))
    written = 0
    progress(0, len(rows))
    for chunk in _chunks(rows):
        await _insert(handlers, graph_id, chunk)
        written += len(chunk)
        progress(written, len(rows))
    (flipped,) = await handlers.transition(graph_id, [Start(digest)])
    if flipped.error is not None:
        raise flipped.error
    if flipped.outcome is Outcome.REFUSED:
        raise Refused(f"graph {graph_id}: {flipped.reason}", "different-content")
    by_target: dict[str, list[tuple[str, int]]] = {}
    for task_id, target in layout.roots:
        by_target.setdefault(target, []).append((task_id, 0))
    for target, tasks in by_target.items():
        await handlers.dispatch(graph_id, target, tasks)
    return answer


def _same_content(row: Row, graph_id: str, digest: str) -> None:
    if row.columns.get("digest") != digest:
        raise Refused(
            f"graph {graph_id} exists, with different content; choose another id, or leave the id out",
            "different-content",
        )


def _graph_row(graph_id: str, document: GraphDocument, layout: Layout, digest: str, now: datetime) -> Insert:
    requires = ids_text(layout.leaves)
    columns: dict[str, Value] = {
        "schema": SCHEMA,
        "state": str(GraphState.SUBMITTING),
        "digest": digest,
        "created": now,
        "tasks": len(document.tasks),
        "edges": document.edges,
        "failedTasks": 0,
        "revision": 0,
        "routing": document.routing,
        "requires": requires,
        "requiresLeft": requires,
    }
    mapping = json.dumps(layout.mapping, ensure_ascii=False, separators=(",", ":"))
    if utf16_units(mapping) <= limits.NAME_MAPPING_CHARS_MAX:
        columns["nameMapping"] = mapping
    for name, value in (("metadata", document.metadata), ("tags", document.tags)):
        if value:
            columns[name] = canonical_json(value)
    return Insert(GRAPH, columns)


def listing_key(graph_id: str, created: datetime) -> str:
    """Row key in the list of all graphs: newest first."""
    return f"{_NEWEST_FIRST - int(created.timestamp() * 1000):015d}:{graph_id}"


async def _list_graph(handlers: Handlers, graph_id: str, created: datetime, document: GraphDocument) -> None:
    key = listing_key(graph_id, created)
    columns: dict[str, Value] = {
        "graph": graph_id,
        "created": created,
        "name": str(document.metadata.get("name", "")),
        "tasks": len(document.tasks),
    }
    try:
        await handlers.records.tables.commit(ALL, [Insert(key, columns)])
    except Conflict:
        return  # it is listed
    except Unclear:
        (row,) = await handlers.records.tables.get(ALL, [key])
        if row is None:
            raise


def _chunks(rows: Iterable[Insert]) -> Iterator[list[Insert]]:
    chunk: list[Insert] = []
    total = 0
    for row in rows:
        size = row_bytes(row)
        if chunk and (len(chunk) == limits.COMMIT_CHANGES_MAX or total + size > limits.COMMIT_BYTES_MAX):
            yield chunk
            chunk, total = [], 0
        chunk.append(row)
        total += size
    if chunk:
        yield chunk


async def _insert(handlers: Handlers, graph_id: str, rows: list[Insert]) -> None:
    """Insert rows that only this content can have put there; those that are in already are left."""
    tables = handlers.records.tables
    for _ in range(limits.COMMIT_ATTEMPTS_MAX):
        try:
            await tables.commit(graph_id, rows)
        except (Conflict, Unclear):
            found = await tables.get(graph_id, [row.key for row in rows])
            rows = [row for row, there in zip(rows, found, strict=True) if there is None]
            if not rows:
                return
        else:
            return
    raise Conflict(f"graph {graph_id}: rows could not be written; submit again to go on")


async def extend(
    handlers: Handlers, graph_id: str, document: GraphDocument, *, request: str | None = None
) -> Extension:
    """Put an extension down and tell the handlers. The same content again gives the same request.

    request: an id of the caller's choice; derived from the content otherwise. Raises NotFound for an unknown graph,
    Refused unless the graph is running or if this request id was used for other content.
    """
    records, clock = handlers.records, handlers.clock
    digest = content_hash(document)
    request = request or slugid_from(bytes.fromhex(digest)[:16])
    graph, head = await records.tables.get(graph_id, [GRAPH, request_key(request)])
    if graph is None:
        raise NotFound(f"there is no graph {graph_id}")
    if head is not None:
        _same_request(head, graph_id, request, digest)
        if head.columns["state"] == "done":
            return Extension(graph_id, request, "done")
    if graph.columns["state"] != GraphState.RUNNING and (head is None or head.columns["state"] != "accepted"):
        raise Refused(
            f"graph {graph_id} is {graph.columns['state']}; only a running graph can be extended", "not-running"
        )
    if head is None:
        text = canonical_json(document_object(document))
        parts, first = request_rows(request, text, digest, len(document.tasks), clock.now())
        for chunk in _chunks(parts):
            await _insert(handlers, graph_id, chunk)
        await _insert(handlers, graph_id, [first])
    elif head.columns["state"] == "refused":
        await _stage_again(handlers, graph_id, head)
    (head,) = await records.tables.get(graph_id, [request_key(request)])
    if head is None:
        raise Conflict(f"graph {graph_id}: request {request} could not be written; try again")
    _same_request(head, graph_id, request, digest)
    await handlers.enter_live(graph_id)  # should the message be lost, the sweep answers, even if the graph ends first
    await handlers.queues.send(handlers.names.events, [to_text(AddTasks(graph_id, request))])
    return Extension(graph_id, request, str(head.columns["state"]))


def _same_request(head: Row, graph_id: str, request: str, digest: str) -> None:
    if head.columns.get("digest") != digest:
        raise Refused(f"request {request} of graph {graph_id} exists, with different content", "different-content")


async def _stage_again(handlers: Handlers, graph_id: str, head: Row) -> None:
    """A refused request may be asked again: the graph may be running now."""
    columns: Mapping[str, Value] = {"state": "staged", "reason": "", "staged": handlers.clock.now()}
    try:
        await handlers.records.tables.commit(graph_id, [Merge(head.key, head.etag, columns)])
    except (Conflict, Unclear):
        return  # somebody else staged it, or this call did; the caller reads it again
