"""Put a graph back from an archive: `protocol.at_rest` judges the whole file first, and no row is ever overwritten.

A graph is put back behind a fence, as it is deleted: the graph row is inserted first, `restoring`, and each commit
writes it under its etag with how many rows are in. So the same call goes on where one died, and a call that comes late
writes nothing into a graph that is whole. A graph that stays `restoring` for a day is deleted by the sweep.
"""

import contextlib
import logging
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Final

from taskgraph.engine import notifier, old_tasks
from taskgraph.engine.archive import log_files
from taskgraph.engine.archive_file import USUAL, Archived, Bounds, Piece, examine, parts
from taskgraph.engine.handlers import Handlers
from taskgraph.engine.live_index import enter_live, leave_live, listing_row
from taskgraph.engine.progress import Progress, no_progress
from taskgraph.engine.signing import NO_TRUST, Trust
from taskgraph.engine.transact import back_off
from taskgraph.model import limits
from taskgraph.model.columns import Columns, Value, integer
from taskgraph.model.errors import Conflict, InvalidInput, Refused, Unclear
from taskgraph.model.ids import GRAPH
from taskgraph.model.names import ALL
from taskgraph.model.states import GRAPH_ENDED, GraphState
from taskgraph.protocol import notices
from taskgraph.protocol.at_rest import STATES, Examination, Standing, settled
from taskgraph.protocol.definitions import SCHEMA
from taskgraph.protocol.extension_plan import row_bytes
from taskgraph.storage.logs import StoredLogs
from taskgraph.storage.tables import Change, Insert, Merge, Replace, Row

log = logging.getLogger("taskgraph.archives")

_ATTEMPTS_MAX: Final = 10  # of one call


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


def look(file: BinaryIO, source: str, now: datetime, *, bounds: Bounds = USUAL, trust: Trust = NO_TRUST) -> Plan:
    """Read a file to its end; nothing is written. Raises InvalidInput for a damaged file, TooLarge beyond a bound."""
    examination = Examination()

    def see(found: Insert | Piece) -> None:
        if isinstance(found, Insert):
            examination.add(found)
        elif not found.offset:
            examination.add_log(found.task_id, found.run)

    contents = examine(file, source, bounds, see, begun=examination.begin)
    return Plan(contents, examination.judge(now), trust.named(contents.signature))


def check(plan: Plan, source: str, trust: Trust, room: int | None) -> None:
    """Raises Refused. room: bytes that are free where the graph goes, None if unknown."""
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
        what = f"{source} unpacks to {contents.size:,} bytes, and the disk of the store has {room:,} free; make room"
        raise Refused(what, "no-room")


def free_bytes(path: Path | None) -> int | None:
    """What is free on the disk of an embedded store. path: None for another store."""
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
    plan: Plan | None = None,
    planned: Callable[[Plan], None] = lambda plan: None,
    progress: Progress = no_progress,
) -> Restored:
    """Put a graph back, under its own id, as it was. The same call goes on with what was cut off.

    file: is read twice. source: its name, for people. room: as in `check`. plan: what `look` said of it, if it did.
    planned: called before anything is written.
    Raises InvalidInput for what is no archive, TooLarge for one beyond a bound, Refused for one of a graph that could
    move by itself or that contradicts itself, or if another graph has the id; nothing is written then. Raises Conflict
    when others write the same graph.
    """
    plan = plan or look(file, source, handlers.clock.now(), bounds=bounds, trust=trust)
    graph_id = plan.contents.graph_id
    planned(plan)
    check(plan, source, trust, room)
    for attempt in range(_ATTEMPTS_MAX):
        try:
            return await _restore(handlers, logs, file, source, plan, progress)
        except Conflict as conflict:  # reach: deletion
            # Another call restores the same file, or an answer was lost: the graph row says how many rows are in.
            if attempt + 1 == _ATTEMPTS_MAX:
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
    handlers.row_cache.forget(graph_id)
    handlers.records.forget(graph_id)
    started = integer(row.columns, "put")
    graph: Insert | None = None
    chunk: list[Insert] = []
    size = number = 0
    channels = False
    given: list[str] = []  # labels of tasks of old clients
    for found in parts(file, source, contents):
        if isinstance(found, Piece):
            continue
        insert = settled(found, undelivered, blocked=blocked)
        if insert.key == GRAPH:
            graph = insert
            continue
        channels = channels or insert.key.startswith(notices.PREFIX)
        if insert.key.startswith("task:") and old_tasks.given_by_one(insert.columns):
            given.append(str(insert.columns.get("label", "")))
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
    await list_restored(handlers, graph_id, graph.columns)
    if given:
        await enter_old_tasks(handlers, graph_id, given)
    if channels and contents.state not in GRAPH_ENDED:
        await notifier.enter(handlers.records.tables, graph_id, handlers.clock.now())
    final: dict[str, Value] = {**graph.columns, "restored": handlers.clock.now(), "archive": contents.digest}
    await _commit(handlers, graph_id, [Replace(GRAPH, row.etag, final)])
    progress(contents.rows, contents.rows)
    if contents.state in GRAPH_ENDED:
        await leave_live(handlers.records, graph_id)
    return Restored(graph_id, contents.state, number + 1 - started, count)


async def enter_old_tasks(handlers: Handlers, graph_id: str, labels: list[str]) -> None:
    """But for those of whose id another graph has got a task since."""
    from taskgraph.protocol.old_scheduler import shown_id  # reads a schema, and few archives need it

    tables, task_ids = handlers.records.tables, [shown_id(graph_id, each) for each in labels]
    try:
        await old_tasks.enter(tables, graph_id, task_ids)
    except Refused:
        for each in task_ids:
            with contextlib.suppress(Refused):
                await old_tasks.enter(tables, graph_id, [each])


async def _begin(handlers: Handlers, contents: Archived, source: str) -> Row | None:
    """The graph row, `restoring`; None if the whole graph is there."""
    graph_id = contents.graph_id
    for _ in range(limits.COMMIT_ATTEMPTS_MAX):
        (row,) = await handlers.records.tables.get(graph_id, [GRAPH])
        columns = row.columns if row is not None else {}
        state = columns.get("state")
        same = columns.get("archive") == contents.digest
        if row is not None and state == GraphState.RESTORING and same:
            await enter_live(handlers.records, graph_id)
            return row
        if row is not None and state == contents.state and same:
            return None
        gone = state == GraphState.DELETED or (state == GraphState.MOVED and columns.get("emptied") is True)
        if row is not None and not gone:
            what = "is being restored from another file" if state == GraphState.RESTORING else f"exists, and is {state}"
            raise Refused(f"graph {graph_id} {what}; what is there is never overwritten by {source}", "exists")
        await enter_live(handlers.records, graph_id)  # before its row, so that the sweep finds it
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
        except (Conflict, Unclear):  # reach: deletion
            await back_off(handlers.clock, 1)
    raise Conflict(f"graph {graph_id}: others kept writing its row; restore again to go on")


async def _put(handlers: Handlers, graph_id: str, row: Row, chunk: list[Insert]) -> Row:
    put = integer(row.columns, "put") + len(chunk)
    etag = await _commit(handlers, graph_id, [Merge(GRAPH, row.etag, {"put": put}), *chunk])
    return Row(row.key, etag, {**row.columns, "put": put})


async def _commit(handlers: Handlers, graph_id: str, changes: list[Change]) -> str:
    """Commit behind the fence; returns the etag of the graph row. Raises Conflict, also for Unclear."""
    try:
        etags = await handlers.records.tables.commit(graph_id, changes)
    except (Conflict, Unclear) as error:  # reach: deletion
        words = f"graph {graph_id}: another call writes it too, or the answer was lost; restore again to go on"
        raise Conflict(words) from error
    return str(etags[0])


async def _put_logs(logs: StoredLogs, file: BinaryIO, source: str, contents: Archived) -> int:
    """Put files of runs back; of one that is there in part, what is missing."""
    graph_id = contents.graph_id
    there = {(each.task_id, each.run, each.name): each.size async for each in log_files(logs, graph_id)}
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


async def list_restored(handlers: Handlers, graph_id: str, columns: Columns) -> None:
    """Write a graph into the list of all. Raises Conflict."""
    row = listing_row(graph_id, columns)
    if row is None:
        return  # a row that was edited by hand
    (known,) = await handlers.records.tables.get(ALL, [row.key])
    # Written anew where it is there: a late copy of the deletion, which looked before this, meets a conflict.
    change: Change = row if known is None else Merge(row.key, known.etag, row.columns)
    try:
        await handlers.records.tables.commit(ALL, [change])
    except (Conflict, Unclear):  # reach: deletion
        raise Conflict(f"graph {graph_id} could not be listed; restore again to go on") from None
