"""Graphs as files: written out whole, and put back as they were.

What this room is for: a graph leaves a store as a file (`engine.archive_file` is its form), with its rows, their types,
its journal and, on wish, the logs of its runs; and comes back from one. It never decides anything about tasks, and
never puts a graph back that could move by itself: a file from elsewhere is a document, and `protocol.at_rest` judges it
before anything is written.

A graph is put back behind a fence, as it is deleted: the graph row stands first, `restoring`, and each commit writes it
under its etag with how many rows are in. So the same call goes on where one died, and whoever slept puts nothing into a
graph that is there by then. What nobody goes on with for a day, the sweep takes away.
"""

import json
import logging
import shutil
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Final

from taskgraph.engine import notifier
from taskgraph.engine.archive_file import USUAL, Archived, Bounds, Piece, Writer, examine, open_archive, parts
from taskgraph.engine.handlers import Handlers
from taskgraph.engine.live_index import enter_live, leave_live
from taskgraph.engine.plan_extension import row_bytes
from taskgraph.engine.signing import NO_TRUST, Signer, Trust
from taskgraph.engine.transact import back_off
from taskgraph.model import limits
from taskgraph.model.columns import Columns, Value, integer
from taskgraph.model.errors import Conflict, InvalidInput, NotFound, Refused, Unclear
from taskgraph.model.ids import GRAPH
from taskgraph.model.names import ALL, listing_key
from taskgraph.model.states import GRAPH_ENDED, GraphState
from taskgraph.protocol import notices
from taskgraph.protocol.at_rest import STATES, Examination, Standing, moving, settled
from taskgraph.protocol.decide import event_key
from taskgraph.protocol.definitions import SCHEMA
from taskgraph.queries.journal_end import find_end
from taskgraph.storage.logs import StoredLogs
from taskgraph.storage.private_files import written_whole
from taskgraph.storage.tables import Change, Insert, Merge, Range, Replace, Row

__all__ = ["Archived", "Bounds", "Plan", "Restored", "archive", "archive_to", "examine", "open_archive", "restore"]

log = logging.getLogger("taskgraph.archives")

Progress = Callable[[int, int | None], None]
"""Told (rows so far, rows in all if that is known)."""

_COPIES_MAX: Final = 10  # times that a restoring is taken up again by the same call
_TRIES: Final = 3  # readings of a graph that has ended, until nothing has changed during one
# Rows of some kinds may be long, and only so many of them are held at a time.
_PARTS: Final = (
    (Range("", "definition;"), 50),
    (Range("definition;", "request:"), limits.PAGE_ROWS_MAX),
    (Range("request:", "request;"), 50),
    (Range("request;", ""), limits.PAGE_ROWS_MAX),
)


def no_progress(rows: int, total: int | None) -> None:
    """For callers that show nothing."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What would be put back. trusted: the file of the key that signed it, "" if it is not signed by a trusted one."""

    contents: Archived
    standing: Standing
    trusted: str = ""


@dataclass(frozen=True, slots=True)
class Restored:
    """What was put back. again: it was there already, from the same file. rows: put in by this call."""

    graph_id: str
    state: str
    rows: int
    logs: int
    again: bool = False


# --- out ---------------------------------------------------------------------------------------------------------


async def archive_to(
    handlers: Handlers,
    logs: StoredLogs,
    graph_id: str,
    path: Path,
    *,
    with_logs: bool = False,
    overwrite: bool = False,
    signer: Signer | None = None,
    progress: Progress = no_progress,
) -> Archived:
    """Write a graph into a file, which is there whole or not at all. signer: signs it.

    Raises NotFound for an unknown or deleted graph, Refused for one that is being deleted or restored, or for a file
    that exists unless it may be overwritten, StorageUnavailable where the disk is full, and InvalidInput for another
    place that cannot be written to.
    """
    if not overwrite:
        _must_be_free(path)
    with written_whole(path, handlers.clock.new_id()[:8]) as out:
        for attempt in range(_TRIES):
            out.seek(0)
            out.truncate()
            done = await archive(handlers, logs, graph_id, out, with_logs=with_logs, signer=signer, progress=progress)
            if done.complete or done.state not in GRAPH_ENDED or attempt + 1 == _TRIES:
                break
    return done


def _must_be_free(path: Path) -> None:
    if path.exists():
        raise Refused(f"{path} exists; choose another file, or say --force", "exists")


async def archive(
    handlers: Handlers,
    logs: StoredLogs,
    graph_id: str,
    out: BinaryIO,
    *,
    with_logs: bool = False,
    signer: Signer | None = None,
    progress: Progress = no_progress,
) -> Archived:
    """Write a graph to a stream. Raises NotFound and Refused as `archive_to`; then some of it may be written."""
    records = handlers.records
    before = await _graph_row(handlers, graph_id)
    if before is None or before.columns.get("state") == GraphState.DELETED:
        raise NotFound(f"there is no graph {graph_id}" if before is None else f"graph {graph_id} was deleted")
    state = str(before.columns.get("state", ""))
    if state in (GraphState.DELETING, GraphState.RESTORING):
        raise Refused(f"graph {graph_id} is {state}: half of it may be missing", "not-whole")
    end, *_ = await find_end(records.tables, graph_id, 1, 0, 0)
    writer = Writer(out, graph_id, state)
    seen, rows, moves = "", 0, False
    total = _tasks_in(before.columns)
    async for row in _rows(handlers, graph_id):
        writer.row(row)
        rows += 1
        if row.key == GRAPH:
            seen = row.etag
        moves = moves or bool(moving(row))
        if rows % limits.COMMIT_CHANGES_MAX == 0:
            progress(rows, max(total, rows))
    files = await _write_logs(logs, graph_id, writer) if with_logs else 0
    (after, next_event) = await records.tables.get(graph_id, [GRAPH, event_key(end)])
    still = after is not None and before.etag == seen == after.etag and next_event is None
    done = writer.end(rows, files, complete=still and state in STATES and not moves, signer=signer)
    progress(rows, rows)
    return done


async def _rows(handlers: Handlers, graph_id: str) -> AsyncIterator[Row]:
    for part, limit in _PARTS:
        continuation: str | None = None
        while True:
            page = await handlers.records.tables.query(graph_id, part, limit=limit, continuation=continuation)
            for row in page.rows:
                yield row
            continuation = page.continuation
            if continuation is None:
                break


async def _write_logs(logs: StoredLogs, graph_id: str, writer: Writer) -> int:
    count = 0
    continuation: str | None = None
    while True:
        page = await logs.files(graph_id, continuation=continuation)
        for file in page.files:
            offset = 0
            while True:
                data = await logs.read(
                    graph_id, file.task_id, file.run, offset=offset, limit=limits.ARCHIVE_PIECE_BYTES, name=file.name
                )
                if data is None or (not data and offset):
                    break
                writer.log(file.task_id, file.run, file.name, offset, data)
                offset += len(data)
                if not data:
                    break
            count += 1
        continuation = page.continuation
        if continuation is None:
            return count


# --- in ----------------------------------------------------------------------------------------------------------


def look(file: BinaryIO, source: str, now: datetime, *, bounds: Bounds = USUAL, trust: Trust = NO_TRUST) -> Plan:
    """Read a file to its end and say what would be put back, and why it would not; nothing is written.

    Raises InvalidInput for a file that is damaged or none, TooLarge for one beyond a bound.
    """
    examination = Examination()

    def see(found: Insert | Piece) -> None:
        if isinstance(found, Insert):
            examination.add(found)
        elif not found.offset:
            examination.add_log(found.task_id, found.run)

    contents = examine(file, source, bounds, see, begun=examination.begin)
    return Plan(contents, examination.judge(now), trust.named(contents.signature))


def check(plan: Plan, source: str, trust: Trust, room: int | None) -> None:
    """Raise Refused for what is not put back."""
    contents, standing = plan.contents, plan.standing
    if not contents.complete or contents.state not in STATES:
        raise Refused(
            f"{source} shows graph {contents.graph_id} while it was {contents.state[:40]} and could move; "
            "only a graph that stands still is put back",
            "not-ended",
        )
    if standing.refusals:
        raise Refused(
            f"{source} is not put back: {'; '.join(standing.refusals)}. Only a graph that stands still, "
            "and whose rows agree with each other, is put back",
            "not-standing",
        )
    trust.check(contents.signature, source)
    if room is not None and contents.size + limits.ARCHIVE_ROOM_BYTES > room:
        raise Refused(
            f"{source} unpacks to {contents.size:,} bytes, and the disk of the store has {room:,} free; make room",
            "no-room",
        )


def free_bytes(path: Path | None) -> int | None:
    """What is free on the disk of an embedded store; None for another store."""
    if path is None:
        return None
    there = next((each for each in path.absolute().parents if each.exists()), None)
    return shutil.disk_usage(there).free if there is not None else None


async def restore(
    handlers: Handlers,
    logs: StoredLogs,
    file: BinaryIO,
    source: str,
    *,
    bounds: Bounds = USUAL,
    trust: Trust = NO_TRUST,
    room: int | None = None,
    planned: Callable[[Plan], None] = lambda plan: None,
    progress: Progress = no_progress,
) -> Restored:
    """Put a graph back, under its own id, as it was. The same call goes on with what was cut off.

    file: from its beginning, and twice. source: its name, for people. bounds: of what it may unpack to. trust: whose
    signature is. room: bytes that are free where it goes. planned: hears what will be put back. Raises InvalidInput for
    what is no archive, TooLarge for one beyond a bound, Refused for one of a graph that could move by itself or that
    contradicts itself, or if another graph has the id; nothing is written then. Raises Conflict when others write the
    same graph.
    """
    plan = look(file, source, handlers.clock.now(), bounds=bounds, trust=trust)
    graph_id = plan.contents.graph_id
    planned(plan)
    check(plan, source, trust, room)
    for attempt in range(_COPIES_MAX):
        try:
            return await _restore(handlers, logs, file, source, plan, progress)
        except Conflict as conflict:
            # Another copy at work on the same file, or an answer that was lost: the row tells how far it is.
            if attempt + 1 == _COPIES_MAX:
                raise
            log.info("graph %s: %s", graph_id, conflict)
            await back_off(handlers.clock, attempt)
    raise AssertionError("the last attempt gives or raises")


async def _restore(
    handlers: Handlers, logs: StoredLogs, file: BinaryIO, source: str, plan: Plan, progress: Progress
) -> Restored:
    contents, undelivered = plan.contents, plan.standing.undelivered
    graph_id, blocked = contents.graph_id, contents.state == GraphState.BLOCKED
    row = await _begin(handlers, contents, source)
    if row is None:
        if contents.state in GRAPH_ENDED:
            await leave_live(handlers.records, graph_id)
        return Restored(graph_id, contents.state, 0, 0, again=True)
    handlers.kept.forget(graph_id)
    handlers.records.forget(graph_id)
    started = integer(row.columns, "put")
    graph: Insert | None = None
    chunk: list[Insert] = []
    size = number = 0
    channels = False
    for found in parts(file, source, contents):
        if isinstance(found, Piece):
            continue
        insert = settled(found, undelivered, blocked=blocked)
        if insert.key == GRAPH:
            graph = insert
            continue
        channels = channels or insert.key.startswith(notices.PREFIX)
        number += 1
        if number <= started:
            continue
        more = row_bytes(insert)
        if chunk and (len(chunk) + 1 >= handlers.records.changes_max or size + more > limits.COMMIT_BYTES_MAX - 1000):
            row = await _put(handlers, graph_id, row, chunk)
            progress(integer(row.columns, "put"), contents.rows)
            chunk, size = [], 0
        chunk.append(insert)
        size += more
    if chunk:
        row = await _put(handlers, graph_id, row, chunk)
    count = await _put_logs(logs, file, source, contents) if contents.logs else 0
    if graph is None:
        raise InvalidInput(f"{source} is damaged: it has no graph row")
    await _list(handlers, graph_id, graph.columns)
    if channels and contents.state not in GRAPH_ENDED:
        await notifier.enter(handlers.records.tables, graph_id, handlers.clock.now())
    final: dict[str, Value] = {**graph.columns, "restored": handlers.clock.now(), "archive": contents.digest}
    await _commit(handlers, graph_id, [Replace(GRAPH, row.etag, final)])
    progress(contents.rows, contents.rows)
    if contents.state in GRAPH_ENDED:
        await leave_live(handlers.records, graph_id)
    return Restored(graph_id, contents.state, number + 1 - started, count)


async def _begin(handlers: Handlers, contents: Archived, source: str) -> Row | None:
    """The graph row behind which the others are put in; None if all of it is there."""
    graph_id = contents.graph_id
    for _ in range(limits.COMMIT_ATTEMPTS_MAX):
        row = await _graph_row(handlers, graph_id)
        columns = row.columns if row is not None else {}
        state = columns.get("state")
        same = columns.get("archive") == contents.digest
        if row is not None and state == GraphState.RESTORING and same:
            await enter_live(handlers.records, graph_id)
            return row
        if row is not None and state == contents.state and same:
            return None
        if row is not None and state != GraphState.DELETED:
            what = "is being restored from another file" if state == GraphState.RESTORING else f"exists, and is {state}"
            raise Refused(f"graph {graph_id} {what}; what is there is never overwritten by {source}", "exists")
        await enter_live(handlers.records, graph_id)  # before its row: what is begun is found
        fence: dict[str, Value] = {
            "schema": SCHEMA,
            "state": str(GraphState.RESTORING),
            "restoring": handlers.clock.now(),
            "archive": contents.digest,
            "put": 0,
        }
        change: Change = Insert(GRAPH, fence) if row is None else Replace(GRAPH, row.etag, fence)
        try:
            await handlers.records.tables.commit(graph_id, [change])
        except (Conflict, Unclear):
            await back_off(handlers.clock, 1)
    raise Conflict(f"graph {graph_id}: others kept writing its row; restore again to go on")


async def _put(handlers: Handlers, graph_id: str, row: Row, chunk: list[Insert]) -> Row:
    put = integer(row.columns, "put") + len(chunk)
    etag = await _commit(handlers, graph_id, [Merge(GRAPH, row.etag, {"put": put}), *chunk])
    return Row(row.key, etag, {**row.columns, "put": put})


async def _commit(handlers: Handlers, graph_id: str, changes: list[Change]) -> str:
    """Commit behind the fence; gives the etag of the graph row. Raises Conflict: somebody else is at it, too."""
    try:
        etags = await handlers.records.tables.commit(graph_id, changes)
    except (Conflict, Unclear) as error:
        words = f"graph {graph_id}: somebody else writes it too, or the answer was lost; restore again to go on"
        raise Conflict(words) from error
    return str(etags[0])


async def _put_logs(logs: StoredLogs, file: BinaryIO, source: str, contents: Archived) -> int:
    """Put files of runs back; of one that is there in part, what is missing."""
    graph_id = contents.graph_id
    there: dict[tuple[str, int, str], int] = {}
    continuation: str | None = None
    while True:
        page = await logs.files(graph_id, continuation=continuation)
        there.update({(each.task_id, each.run, each.name): each.size for each in page.files})
        continuation = page.continuation
        if continuation is None:
            break
    count = 0
    for piece in parts(file, source, contents):
        if isinstance(piece, Insert):
            continue
        have = there.get(piece.file, -1)
        count += piece.offset == 0
        if have < piece.offset + len(piece.data) or (have < 0 and not piece.data):
            rest = piece.data[max(0, have - piece.offset) :]
            await logs.append(graph_id, piece.task_id, piece.run, rest, piece.name)
    return count


async def _list(handlers: Handlers, graph_id: str, columns: Columns) -> None:
    created = columns.get("created")
    if not isinstance(created, datetime):
        return  # a row that was edited by hand
    try:
        metadata = json.loads(str(columns.get("metadata", "") or "{}"))
    except ValueError:
        metadata = {}
    listed: dict[str, Value] = {
        "graph": graph_id,
        "created": created,
        "name": str(metadata.get("name", "")) if isinstance(metadata, dict) else "",
        "tasks": _tasks_in(columns),
    }
    key = listing_key(graph_id, created)
    try:
        await handlers.records.tables.commit(ALL, [Insert(key, listed)])
    except (Conflict, Unclear):
        (row,) = await handlers.records.tables.get(ALL, [key])
        if row is None:
            raise Conflict(f"graph {graph_id} could not be listed; restore again to go on") from None


async def _graph_row(handlers: Handlers, graph_id: str) -> Row | None:
    (row,) = await handlers.records.tables.get(graph_id, [GRAPH])
    return row


def _tasks_in(columns: Columns) -> int:
    return integer(columns, "tasks")
