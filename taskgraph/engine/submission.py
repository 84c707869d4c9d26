"""Submit a graph, stage an extension or an edit (D16).

A small graph is written and started in one commit. The rows of a larger one are written as `submitting`, in commits of
up to 100, several at a time, and then its graph row is flipped to `running` (P10); every step can be repeated, by the
same call, after any crash. An extension or an edit is written as a request, which the handlers answer. Documents are
validated before.
"""

import contextlib
import functools
import hashlib
import itertools
import json
import math
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from taskgraph.documents.canonical import content_hash, document_object, node_digests
from taskgraph.documents.nodes import GraphDocument
from taskgraph.documents.read import collector_paused
from taskgraph.engine.commit import side_by_side
from taskgraph.engine.handlers import Handlers
from taskgraph.engine.live_index import enter_live, insert_once, listing_columns, unlist
from taskgraph.engine.notifier import enter, register
from taskgraph.engine.progress import Progress, no_progress
from taskgraph.engine.telemetry import TRACEPARENT_COLUMN
from taskgraph.model import limits, priorities
from taskgraph.model.budget import BUDGET
from taskgraph.model.columns import FOLDER, Value
from taskgraph.model.errors import Conflict, NoGraph, Refused, Unclear
from taskgraph.model.ids import GRAPH, WRITERS, ids_text, limit_scope, reference_of, row_key, slugid_from
from taskgraph.model.json_strict import canonical_json
from taskgraph.model.messages import AddTasks, Edit, Message, SendReady, to_object
from taskgraph.model.names import ALL, listing_key
from taskgraph.model.priorities import NORMAL, rank
from taskgraph.model.states import FailurePolicy, GraphState, by_group
from taskgraph.model.utf16 import utf16_units
from taskgraph.protocol import notices
from taskgraph.protocol.context import Outcome, Started
from taskgraph.protocol.decide import EVENT_CHARS_MAX
from taskgraph.protocol.definitions import (
    SCHEMA,
    SCHEMA_OF_CONDITIONS,
    SCHEMA_OF_POLICIES,
    first_deadline,
    moment,
)
from taskgraph.protocol.dispatch_windows import ReadyBatch
from taskgraph.protocol.extension import PLAN, RESUME, is_deferring, not_extendable, request_key
from taskgraph.protocol.extension_plan import ADD_TASKS, EDIT, bytes_at_most, request_rows
from taskgraph.protocol.layout import GraphLayout, name_mapping_rows, written_rows
from taskgraph.protocol.lifecycle import Begin, Start
from taskgraph.protocol.planned import CHANGE
from taskgraph.protocol.propagation import GOING
from taskgraph.protocol.rows import NEW, Draft
from taskgraph.storage.tables import Insert, Merge, Row

if TYPE_CHECKING:
    from taskgraph.documents.edit_document import EditDocument
    from taskgraph.engine.writing import Fence

_IN_FLIGHT: Final = 8  # commits at a time
_TRIED_FIRST: Final = 3  # commits: a graph of no more is written without looking first which rows there are
_MAPPED_CHARS_MIN: Final = 28  # of a label and its taskId in JSON
_WHOLE_BYTES_MAX: Final = limits.COMMIT_BYTES_MAX - 12 * EVENT_CHARS_MAX  # of rows beside an event row
_Call = Callable[[], Coroutine[Any, Any, object]]
_BY_KEY: Final = "by-key:"
"""Stands before the digest on the graph row while the rows of a wide graph are written, if its relays share edges out
in the order of keys. Older versions used the order of the document: without the mark that order goes on, and with it an
older version takes the content for another, and leaves the rows alone."""


class Submitted(StrEnum):
    CREATED = "created"
    RESUMED = "resumed"  # an earlier call with the same content had not come to its end
    EXISTING = "existing"  # the same content was submitted before


@dataclass(frozen=True, slots=True)
class Submission:
    graph_id: str
    outcome: Submitted
    tasks: int
    edges: int


@dataclass(frozen=True, slots=True)
class Extension:
    """Answer to an extension or edit. state: staged, accepted, done. waits_for: "resume" in a paused graph, else ""."""

    graph_id: str
    request: str
    state: str
    waits_for: str = ""


async def submit(
    handlers: Handlers,
    graph_id: str,
    document: GraphDocument,
    *,
    progress: Progress = no_progress,
    origin: Mapping[str, Value] | None = None,
    folder: str = "",
    by: str = "",
    fresh: bool = False,
) -> Submission:
    """Write a validated graph and start it. The same content again gives the same answer.

    origin: further columns of its row and of its entry in the list. folder, by: where its submitter is and who that is,
    for its row alone. fresh: its row need not be looked for first. Raises Refused if the id stands for other content.
    """
    its = {name: text for name, text in ((FOLDER, folder), ("by", by)) if text}
    with handlers.telemetry.asking("submit", graph_id):
        return await _submit(handlers, graph_id, document, progress, origin or {}, its, fresh=fresh)


async def _submit(
    handlers: Handlers,
    graph_id: str,
    document: GraphDocument,
    progress: Progress,
    origin: Mapping[str, Value],
    its: Mapping[str, Value],
    *,
    fresh: bool,
) -> Submission:
    digests = node_digests(document)
    digest = content_hash(document, digests)
    records = handlers.records
    answer = Submission(graph_id, Submitted.CREATED, len(document.tasks), document.edges)

    async def list_as_of(created: datetime) -> None:
        listed = listing_columns(graph_id, created, document.metadata, document.tags, len(document.tasks))
        await insert_once(records.tables, ALL, listing_key(graph_id, created), {**listed, **origin})

    now = handlers.clock.now()
    registered = notices.registrations(document.notify, document.tasks.values())
    beside: list[_Call] = [functools.partial(list_as_of, now)] if fresh else []
    if registered:
        beside.append(functools.partial(enter, records.tables, graph_id, now))
    await _enter(handlers, graph_id, now, beside)
    row = None if fresh else (await records.tables.get(graph_id, [GRAPH]))[0]
    outcome = Submitted.RESUMED
    etags: list[str | None] = []  # of the fences, if this call has written them
    layout: GraphLayout | None = None
    if row is None:
        if not fresh:
            await list_as_of(now)  # before it is there: whatever happens then, no graph is missing from the list
        layout = _lay_out(graph_id, document, digests, now, by_key=True)
        trace = handlers.telemetry.trace_of_graph(graph_id)
        first = _graph_row(graph_id, document, layout, digest, now, trace, len(registered), {**origin, **its})
        others = _rest_of_one_commit(first, layout, _further(first, layout, document, registered, now))
        if others is not None:
            seen = await _begin(handlers, graph_id, digest, first, others)
            if seen is not None:
                progress(1 + len(others), 1 + len(others))
                await _send_first(handlers, graph_id, document, layout, seen)
                return answer
        from taskgraph.engine.writing import further_fences  # here: most graphs are small

        marked = Insert(GRAPH, {**first.columns, "digest": _BY_KEY + digest}) if layout.cut else first
        with contextlib.suppress(Conflict, Unclear):  # another call wrote it, or this one
            etags = await records.tables.commit(graph_id, [marked, *further_fences(first)])
            outcome = Submitted.CREATED
        if etags and etags[0] is not None:
            row = Row(GRAPH, etags[0], marked.columns)
            records.created(graph_id)
        else:
            (row,) = await records.tables.get(graph_id, [GRAPH])
        if row is None:
            raise Conflict(f"graph {graph_id} could not be created; try again")
        if row.columns.get("created") != now:
            await unlist(records.tables, listing_key(graph_id, now))  # it is listed by the call that wrote its row
    refuse_gone(row, graph_id)
    _same_content(row, graph_id, digest)
    handlers.telemetry.trace_of_graph(graph_id, row.columns.get(TRACEPARENT_COLUMN))
    created = row.columns["created"]
    if not isinstance(created, datetime):
        raise Refused(f"row {GRAPH} of graph {graph_id} holds no time of creation", "damaged")
    if created != now:
        await list_as_of(created)
    answer = replace(answer, outcome=outcome)
    if row.columns["state"] != GraphState.SUBMITTING:
        return replace(answer, outcome=Submitted.EXISTING)
    by_key = row.columns["digest"] != digest
    if layout is None or created != now or (layout.cut and not by_key):
        layout = _lay_out(graph_id, document, digests, created, by_key=by_key)
    further = _further(row, layout, document, registered, created)
    tried = None if outcome is Submitted.CREATED else _TRIED_FIRST
    seen = await _write_and_start(handlers, graph_id, digest, row, etags, layout, further, progress, tried)
    await _send_first(handlers, graph_id, document, layout, seen)
    return answer


async def _enter(handlers: Handlers, graph_id: str, now: datetime, beside: Sequence[_Call]) -> None:
    """Enter a graph into the index of live ones, and have the worker get ready that this process has for it."""
    own = handlers.dispatcher.own.get(graph_id)
    readying = [own.worker.get_ready] if own is not None and own.worker is not None else []
    entry, *_ = await side_by_side(functools.partial(enter_live, handlers.records, graph_id, now), *beside, *readying)
    if own is not None:
        own.entry = str(entry)


async def _write_and_start(
    handlers: Handlers,
    graph_id: str,
    digest: str,
    row: Row,
    etags: Sequence[str | None],
    layout: GraphLayout,
    further: Sequence[Insert],
    progress: Progress,
    tried: int | None,
) -> Mapping[str, Row]:
    """Write the rows of a graph, whose own is there, in several commits, and start it; gives the first of them.

    etags: of the fences, if this call has written them. tried: so many commits are tried without looking first which
    rows are there; None for any number.
    """
    from taskgraph.engine.writing import Writing, fences_of

    fences = fences_of(row, etags)
    writing = Writing(handlers, graph_id, fences, layout.count + len(further), progress, _looked_for(layout))
    if tried is not None and writing.total > tried * limits.COMMIT_CHANGES_MAX:
        await writing.find()
    await writing.write(itertools.chain(layout.rows(), further))
    await _unmark(handlers, graph_id, replace(row, etag=fences[0].etag or row.etag), digest)
    known = replace(row, etag="" if fences[0].read_again else fences[0].etag)
    await _start(handlers, graph_id, digest, known, fences[1:])
    return writing.seen


def _further(
    graph: Row | Insert,
    layout: GraphLayout,
    document: GraphDocument,
    registered: Mapping[str, notices.Registration],
    created: datetime,
) -> list[Insert]:
    """Rows beside those of the layout."""
    mapped = [] if "nameMapping" in graph.columns else name_mapping_rows(layout.mapping, "0")
    return mapped + notices.rows_of(registered, created) + written_rows(document)


def _rest_of_one_commit(first: Insert, layout: GraphLayout, further: Sequence[Insert]) -> list[Insert] | None:
    """The other rows of a graph that can be written and started in one commit; None if it takes more."""
    most = min(limits.WHOLE_ROWS_MAX, limits.COMMIT_CHANGES_MAX) - 2  # the graph row, and that of the event
    if layout.count + len(further) > most:
        return None
    others = [*layout.rows(), *further]
    fits = len(others) <= most and bytes_at_most([first, *others]) <= _WHOLE_BYTES_MAX
    return others if fits else None


async def _begin(
    handlers: Handlers, graph_id: str, digest: str, first: Insert, others: Sequence[Insert]
) -> Mapping[str, Row] | None:
    """Write a small graph and start it, in one commit; gives its rows as they stand, as far as that is known.

    None: another call's rows are in the way, and nothing was written.
    """
    rows: dict[str, Row | None] = {GRAPH: Row(GRAPH, NEW, first.columns)}
    handlers.records.created(graph_id)  # so its journal is empty, or this commit meets the row of another
    own = handlers.dispatcher.own.get(graph_id)
    offer = own.worker.offer(graph_id) if own is not None and own.worker is not None else None
    (begun,) = await handlers.transition(graph_id, [Begin(digest, tuple(others))], rows=rows, offer=offer)
    if begun.error is not None:
        raise begun.error
    if begun.outcome is not Outcome.APPLIED:
        return None
    if offer is not None and (unknown := [row.key for row in others if row.key not in rows]):  # an answer was lost
        await handlers.records.load(graph_id, unknown, rows)
    standing = {key: row for key, row in rows.items() if row is not None}
    if own is not None:  # this process runs what it submits
        if offer is not None:
            own.claimed += [_started(row) for row in standing.values() if row.columns.get("worker") == offer.worker]
        handlers.row_cache.inserted(graph_id, [row for key, row in standing.items() if key != GRAPH])
        if GRAPH in standing:
            handlers.row_cache.started(graph_id, standing[GRAPH])
    return standing


def _started(row: Row) -> Started:
    get = row.columns.get
    run, claim, label, definition = get("run", 0), str(get("claim")), str(get("label")), str(get("task"))
    return Started(reference_of(row.key), run if isinstance(run, int) else 0, claim, label, definition)


def _lay_out(
    graph_id: str, document: GraphDocument, digests: Mapping[str, str], created: datetime, *, by_key: bool
) -> GraphLayout:
    with collector_paused():
        return GraphLayout(
            graph_id,
            document.tasks,
            now=created,
            digests=digests,
            by_key=by_key,
            groups=document.groups,
            max_in_flight=document.max_in_flight,
            priority=document.priority,
            routing=document.routing,
            policy=document.failure_policy,
        )


async def _start(handlers: Handlers, graph_id: str, digest: str, graph: Row, fences: "Sequence[Fence]") -> None:
    """graph: its row, but for the mark of its digest; its etag is "" where that is not known."""
    # If they are not as this call has left them, the commit conflicts and they are read.
    rows: dict[str, Row | None] = {each.key: each.row for each in fences if each.etag}
    if graph.etag and graph.columns["digest"] == digest:
        rows[GRAPH] = graph
    (flipped,) = await handlers.transition(graph_id, [Start(digest)], rows=rows)
    if flipped.error is not None:
        raise flipped.error
    if flipped.outcome is Outcome.REFUSED:
        # The sweep deletes what this call has written beside a tombstone.
        await enter_live(handlers.records, graph_id)
        code = "different-content" if "another graph" in flipped.reason else "cancelled"
        raise Refused(f"graph {graph_id}: {flipped.reason}", code)
    if graph_id in handlers.dispatcher.own and (started := rows.get(GRAPH)) is not None:
        handlers.row_cache.started(graph_id, started)


async def _send_first(
    handlers: Handlers, graph_id: str, document: GraphDocument, layout: GraphLayout, seen: Mapping[str, Row]
) -> None:
    """Send the first tasks, and leave the rest to the handlers, so that they do not stand before all other graphs'.

    If this process alone runs the graph, all of them wait for its worker.
    """
    now = handlers.clock.now()
    own = handlers.dispatcher.keeps_all(graph_id, {target for _, target in layout.roots})
    claimed = {key for key, row in seen.items() if "claim" in row.columns}
    roots = [root for root in layout.roots if row_key(root[0]) not in claimed] if claimed else layout.roots
    sent = roots[: limits.UNSENT_MAX if own else limits.WINDOW_START]
    by_queue: dict[tuple[str, str, int], list[tuple[str, int]]] = {}
    for task_id, target in sent:
        begin = layout.not_before.get(task_id)
        delay = max(0, math.ceil((begin - now).total_seconds())) if begin is not None else 0
        if delay <= limits.DELAY_SECONDS_MAX:  # no queue keeps a message for longer: the sweep sends it
            by_queue.setdefault((target, layout.levels.get(task_id, NORMAL), delay), []).append((task_id, 0))
    for target, level, delay in sorted(by_queue, key=lambda each: rank(each[1])):
        runs = by_queue[target, level, delay]
        if own and not delay:
            handlers.dispatcher.own[graph_id].first.append(ReadyBatch(graph_id, target, level, tuple(runs)))
        else:
            await handlers.dispatcher.dispatch(graph_id, target, runs, level=level, rows=seen, delay_seconds=delay)
    # A handler must know of deadlines, even if no task of the graph may begin yet.
    tasks = document.tasks.values()
    timed = document.deadline or any("pendingTimeout" in each.timing or "deadline" in each.task for each in tasks)
    if len(roots) > len(sent) or timed:
        await handlers.dispatcher.leave(SendReady(graph_id, sent[-1][0] if sent else ""))
    if layout.limited:
        await handlers.dispatcher.limited.refill(graph_id)


def _looked_for(layout: GraphLayout) -> frozenset[str]:
    """Keys of the rows that the messages about the first tasks are made of."""
    roots = layout.roots[: limits.WINDOW_START]
    keys = {row_key(task_id) for task_id, _ in roots}
    if len(roots) == 1:
        keys.update(map(row_key, layout.dependents(roots[0][0])[:2]))  # a message about one task names what is next
    return frozenset(keys)


async def _unmark(handlers: Handlers, graph_id: str, row: Row, digest: str) -> None:
    """Write the plain digest onto the graph row, as every row is in and the order no longer matters."""
    found: Row | None = row
    for _ in range(limits.COMMIT_ATTEMPTS_MAX):
        if found is None or found.columns.get("digest") != _BY_KEY + digest:
            return  # if something is wrong, the flip finds it
        try:
            await handlers.records.tables.commit(graph_id, [Merge(GRAPH, found.etag, {"digest": digest})])
        except (Conflict, Unclear):
            (found,) = await handlers.records.tables.get(graph_id, [GRAPH])
        else:
            return
    raise Conflict(f"graph {graph_id}: others kept writing its row; submit again to go on")


def refuse_gone(row: Row, graph_id: str) -> None:
    """Raise Refused for a graph that was deleted, or is being restored: its id is not free yet."""
    state, until = row.columns.get("state"), row.columns.get("until")
    when = f"{until:%Y-%m-%d %H:%M} UTC" if isinstance(until, datetime) else "some time"
    if state == GraphState.DELETING:
        raise Refused(f"graph {graph_id} is being deleted; choose another id, or leave the id out", "deleted")
    if state == GraphState.DELETED:
        why = "was deleted, and messages about it may still be on their way; choose another id, or leave the id out"
        again = f"this one is given again when a sweep has come by after {when}"
        raise Refused(f"graph {graph_id} {why}: {again}", "deleted")
    if state == GraphState.RESTORING:
        source = row.columns.get("movesFrom") or "an archive"
        raise Refused(f"graph {graph_id} is being restored from {source}; choose another id", "restoring")
    if state in (GraphState.MOVING, GraphState.MOVED):
        has = "has moved" if state == GraphState.MOVED else "is on its way"
        raise Refused(f"graph {graph_id} {has} to {row.columns.get('movesTo')}; choose another id", str(state))


def _same_content(row: Row, graph_id: str, digest: str) -> None:
    if row.columns.get("digest") not in (digest, _BY_KEY + digest):
        what = f"graph {graph_id} exists, with different content; choose another id, or leave the id out"
        raise Refused(what, "different-content")


def _schema_of_graph(document: GraphDocument, layout: GraphLayout) -> int:
    if layout.group_policies:
        return SCHEMA_OF_POLICIES
    return SCHEMA if document.failure_policy == FailurePolicy.BLOCK else SCHEMA_OF_CONDITIONS


def _graph_row(
    graph_id: str,
    document: GraphDocument,
    layout: GraphLayout,
    digest: str,
    now: datetime,
    trace: str,
    channels: int,
    more: Mapping[str, Value],
) -> Insert:
    requires = ids_text(layout.leaves)
    columns: dict[str, Value] = {
        # A version that does not know the failure policy must leave the graph alone.
        "schema": _schema_of_graph(document, layout),
        "state": str(GraphState.SUBMITTING),
        "digest": digest,
        "created": now,
        "tasks": len(document.tasks),
        "edges": layout.edges,
        "failedTasks": 0,
        "revision": 0,
        "routing": document.routing,
        "requires": requires,
        "requiresLeft": requires,
    }
    chunk = limits.COMMIT_CHANGES_MAX - 1  # with a fence; and all fences go in one commit
    writers = min(_IN_FLIGHT, chunk, -(-layout.count // chunk))
    if len(layout.mapping) * _MAPPED_CHARS_MIN <= limits.NAME_MAPPING_CHARS_MAX:
        mapping = json.dumps(layout.mapping, ensure_ascii=False, separators=(",", ":"))
        if utf16_units(mapping) <= limits.NAME_MAPPING_CHARS_MAX:
            columns["nameMapping"] = mapping
    held = [by_group(name) for name, group in document.groups.items() if not group.active]
    limited = [limit_scope(graph_id)] if document.max_in_flight else []
    limited += [limit_scope(graph_id, name) for name, group in document.groups.items() if group.max_in_flight]
    written = ("metadata", document.metadata), ("tags", document.tags), ("params", document.values)
    optional: dict[str, Value | None] = {
        WRITERS: writers if writers > 1 else None,
        "failurePolicy": document.failure_policy if document.failure_policy != FailurePolicy.BLOCK else None,
        "stalledAfter": document.stalled_after,
        "onStalled": document.on_stalled,
        BUDGET: document.budget.text if document.budget is not None else None,
        "groups": len(document.groups),
        "groupPolicies": layout.group_policies,
        "counting": any(group.success is not None for group in document.groups.values()),
        "held": ids_text(held) if held else None,
        "limits": ids_text(limited) if limited else None,
        priorities.COLUMN: document.priority,
        TRACEPARENT_COLUMN: trace,
        notices.COLUMN: channels,
        "nextDeadline": first_deadline(document.tasks.values()),
        "deadline": moment(document.deadline) if document.deadline else None,
        **{name: canonical_json(value) for name, value in written if value},
    }
    columns.update({name: value for name, value in optional.items() if value})
    columns.update(more)
    return Insert(GRAPH, columns)


async def extend(
    handlers: Handlers,
    graph_id: str,
    document: GraphDocument,
    *,
    request: str | None = None,
    by: str = "",
    plan: str = "",
) -> Extension:
    """Write the request of an extension and send it to the handlers. The same content again gives the same request.

    In a paused graph it is answered when that is resumed. request: an id of the caller's choice; derived from the
    content otherwise. by: who asks, for the journal. plan: the digest under which it is made (`protocol.planned`).
    Raises NotFound for an unknown graph, Refused unless the graph runs or is blocked, or if this request id was used
    for other content.
    """
    with handlers.telemetry.asking("extend", graph_id):
        digest = content_hash(document)
        request = request or slugid_from(bytes.fromhex(digest)[:16])
        graph, head = await _asked_before(handlers, graph_id, request, digest)
        before = head.columns["state"] if head is not None else ""
        if before == "done":
            return Extension(graph_id, request, "done")
        if (state := str(graph.columns["state"])) not in GOING and before != "accepted":
            raise Refused(f"graph {graph_id}: {not_extendable(state)}", "not-running")
        if registered := notices.registrations({}, document.tasks.values()):
            await register(handlers.records.tables, graph_id, registered, handlers.clock.now())
        text = canonical_json(document_object(document)) if head is None else ""
        asked = _Asked(request, text, digest, len(document.tasks), ADD_TASKS, by, plan)
        state = await _stage(handlers, graph_id, head, asked)
        waits = state == "staged" and is_deferring(Draft(GRAPH, graph.columns, None))
        return Extension(graph_id, request, state, RESUME if waits else "")


async def edit(
    handlers: Handlers,
    graph_id: str,
    document: "EditDocument",
    *,
    request: str | None = None,
    by: str = "",
    plan: str = "",
) -> Extension:
    """`extend` for an edit: one that was made, and still holds, is done; one that was undone meanwhile is made anew.

    request: an id of the caller's choice, by which the edit is made only once.
    """
    from taskgraph.engine.plans import still_holds

    with handlers.telemetry.asking("edit", graph_id):
        once, request, digest = request is not None, request or document.request, document.digest
        graph, head = await _asked_before(handlers, graph_id, request, digest)
        done = head is not None and head.columns["state"] == "done"
        if done and (once or await still_holds(handlers.records, graph_id, graph, document)):
            return Extension(graph_id, request, "done")
        if (state := graph.columns["state"]) not in GOING:
            raise Refused(f"graph {graph_id} is {state}; only one that runs or is blocked is edited", "not-running")
        asked = _Asked(request, document.text, digest, len(document.updates), EDIT, by, plan)
        return Extension(graph_id, request, await _stage(handlers, graph_id, head, asked))


async def change(handlers: Handlers, graph_id: str, messages: Sequence[Message], *, by: str, plan: str) -> Extension:
    """Ask for messages to be handled under the digest of their plan. Raises NotFound for an unknown graph."""
    request, text = handlers.clock.new_id(), json.dumps([to_object(each) for each in messages], separators=(",", ":"))
    with handlers.telemetry.asking("edit", graph_id):
        digest = hashlib.sha256(text.encode()).hexdigest()
        _, head = await _asked_before(handlers, graph_id, request, digest)
        asked = _Asked(request, text, digest, len(messages), CHANGE, by, plan)
        return Extension(graph_id, request, await _stage(handlers, graph_id, head, asked))


async def _asked_before(handlers: Handlers, graph_id: str, request: str, digest: str) -> tuple[Row, Row | None]:
    """The graph row, and the row of the request if there is one."""
    graph, head = await handlers.records.tables.get(graph_id, [GRAPH, request_key(request)])
    if graph is None:
        raise NoGraph(graph_id)
    handlers.telemetry.met(graph_id, graph.columns.get(TRACEPARENT_COLUMN))
    if head is not None:
        _same_request(head, graph_id, request, digest)
    return graph, head


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request. text: its document, or its messages. count: of its tasks. by: who asks. plan: "" for none."""

    request: str
    text: str
    digest: str
    count: int
    kind: str
    by: str
    plan: str


async def _stage(handlers: Handlers, graph_id: str, head: Row | None, asked: _Asked) -> str:
    """Have a request answered, anew if it was before; returns its state. head: its row, None for a new request."""
    request = asked.request
    if head is None:
        now = handlers.clock.now()
        parts, first = request_rows(
            request, asked.text, asked.digest, asked.count, now, kind=asked.kind, by=asked.by, plan=asked.plan
        )
        from taskgraph.engine.writing import chunks_of, insert_missing

        for chunk in (*chunks_of(parts), [first]):
            await insert_missing(handlers, graph_id, chunk)
    elif head.columns["state"] in ("refused", "done"):
        staged: dict[str, Value] = {"state": "staged", "reason": "", "staged": handlers.clock.now(), "by": asked.by}
        if asked.plan or head.columns.get(PLAN):
            staged[PLAN] = asked.plan
        with contextlib.suppress(Conflict, Unclear):  # another call staged it, or this call did
            await handlers.records.tables.commit(graph_id, [Merge(head.key, head.etag, staged)])
    (head,) = await handlers.records.tables.get(graph_id, [request_key(request)])
    if head is None:
        raise Conflict(f"graph {graph_id}: request {request} could not be written; try again")
    _same_request(head, graph_id, request, asked.digest)
    # If the message is lost, the sweep answers, even if the graph ends first.
    await enter_live(handlers.records, graph_id)
    await handlers.dispatcher.send_events([(AddTasks if asked.kind == ADD_TASKS else Edit)(graph_id, request)])
    return str(head.columns["state"])


def _same_request(head: Row, graph_id: str, request: str, digest: str) -> None:
    if head.columns.get("digest") != digest:
        raise Refused(f"request {request} of graph {graph_id} exists, with different content", "different-content")
