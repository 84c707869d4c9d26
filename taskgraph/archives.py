"""Graphs as files: written out whole, and put back as they were.

What this room is for: one form in which a graph leaves a store, with its rows, their types, its journal and, on wish,
the logs of its runs, and the way back. A file is lines of JSON under gzip: a head, rows in the order of their keys,
files of runs, and an end that counts them and carries a digest (schemas/archive.json). It is read and written line by
line, so its length does not matter; the same content gives the same bytes. It never decides anything about tasks, and
never puts a graph back that could move by itself.

A graph is put back behind a fence, as it is deleted: the graph row stands first, `restoring`, and each commit writes it
under its etag with how many rows are in. So the same call goes on where one died, and whoever slept puts nothing into a
graph that is there by then. What nobody goes on with for a day, the sweep takes away.
"""

import base64
import binascii
import gzip
import hashlib
import json
import logging
import os
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Final

from taskgraph import limits, notices, notifier
from taskgraph.columns import integer
from taskgraph.errors import Conflict, InvalidInput, NotFound, Refused, TooLarge, Unclear
from taskgraph.extending import row_bytes
from taskgraph.handlers import Handlers
from taskgraph.layout import SCHEMA
from taskgraph.model import GRAPH, GRAPH_ENDED, GraphState, TaskState, is_graph_id
from taskgraph.records import ALL, listing_key
from taskgraph.storage import checks
from taskgraph.storage.logs import StoredLogs
from taskgraph.storage.tables import Change, Columns, Insert, Merge, Range, Replace, Row, Value
from taskgraph.transitions import event_key

log = logging.getLogger("taskgraph.archives")

FORMAT: Final = 1
"""Version of the form. Who reads a higher one says so."""

Progress = Callable[[int, int | None], None]
"""Told (rows so far, rows in all if that is known)."""

_LINE_BYTES_MAX: Final = 8 * 1024 * 1024  # the longest row, with every character spelt out, is half of that
_LOG_PIECE_BYTES: Final = 1 << 20
_COPIES_MAX: Final = 10  # times that a restoring is taken up again by the same call
_TRIES: Final = 3  # readings of a graph that has ended, until nothing has changed during one
# Rows of some kinds may be long, and only so many of them are held at a time.
_PARTS: Final = (
    (Range("", "definition;"), 50),
    (Range("definition;", "request:"), limits.PAGE_ROWS_MAX),
    (Range("request:", "request;"), 50),
    (Range("request;", ""), limits.PAGE_ROWS_MAX),
)
_OWN: Final = frozenset({"restored", "archive"})  # of the graph row: what putting it back adds
_RESTORABLE: Final = frozenset({*GRAPH_ENDED, GraphState.BLOCKED})


def no_progress(rows: int, total: int | None) -> None:
    """For callers that show nothing."""


@dataclass(frozen=True, slots=True)
class Archived:
    """What a file holds.

    complete: the rows stood like this at one moment, and the graph can be put back; otherwise it moved, or could.
    digest: of all lines but the last, SHA-256 in hexadecimal.
    """

    graph_id: str
    state: str
    rows: int
    logs: int
    complete: bool
    digest: str


@dataclass(frozen=True, slots=True)
class Restored:
    """What was put back. again: it was there already, from the same file. rows: put in by this call."""

    graph_id: str
    state: str
    rows: int
    logs: int
    again: bool = False


# --- out ---------------------------------------------------------------------------------------------------------


class _Writer:
    """Lines under gzip, with their digest. The time and the name that gzip may carry are left out."""

    def __init__(self, out: BinaryIO) -> None:
        self._file = gzip.GzipFile("", "wb", fileobj=out, mtime=0)
        self._hash = hashlib.sha256()

    def line(self, made: Mapping[str, Any]) -> None:
        data = _line(made)
        self._hash.update(data)
        self._file.write(data)

    def end(self, made: Mapping[str, Any]) -> str:
        digest = self._hash.hexdigest()
        self._file.write(_line({"end": {**made, "sha256": digest}}))
        self._file.close()
        return digest


def _line(made: Mapping[str, Any]) -> bytes:
    return json.dumps(made, separators=(",", ":")).encode("ascii") + b"\n"


async def archive_to(
    handlers: Handlers,
    logs: StoredLogs,
    graph_id: str,
    path: Path,
    *,
    with_logs: bool = False,
    overwrite: bool = False,
    progress: Progress = no_progress,
) -> Archived:
    """Write a graph into a file, which is there whole or not at all.

    Raises NotFound for an unknown or deleted graph, Refused for one that is being deleted or restored, or for a file
    that exists unless it may be overwritten, and InvalidInput for a place that cannot be written to.
    """
    if not overwrite:
        _must_be_free(path)
    part = path.with_name(f".{path.name}.{handlers.clock.new_id()[:8]}.part")
    try:
        for attempt in range(_TRIES):
            with part.open("wb") as out:
                done = await archive(handlers, logs, graph_id, out, with_logs=with_logs, progress=progress)
                out.flush()
                os.fsync(out.fileno())
            if done.complete or done.state not in GRAPH_ENDED or attempt + 1 == _TRIES:
                break
        part.replace(path)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
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
    end, *_ = await records.find_end(graph_id, 1, 0, 0)
    writer = _Writer(out)
    writer.line({"archive": "taskgraph", "format": FORMAT, "graph": graph_id, "state": state})
    seen, rows, moves = "", 0, False
    total = _tasks_in(before.columns)
    async for row in _rows(handlers, graph_id):
        writer.line({"row": row.key, "columns": _told_columns(row)})
        rows += 1
        if row.key == GRAPH:
            seen = row.etag
        moves = moves or _may_move(row)
        if rows % limits.COMMIT_CHANGES_MAX == 0:
            progress(rows, max(total, rows))
    files = await _write_logs(logs, graph_id, writer) if with_logs else 0
    (after, next_event) = await records.tables.get(graph_id, [GRAPH, event_key(end)])
    still = after is not None and before.etag == seen == after.etag and next_event is None
    complete = still and (state in GRAPH_ENDED or (state == GraphState.BLOCKED and not moves))
    digest = writer.end({"rows": rows, "logs": files, "complete": complete})
    progress(rows, rows)
    return Archived(graph_id, state, rows, files, complete, digest)


def _may_move(row: Row) -> bool:
    """Whether something of a blocked graph goes on by itself: a task that is under way, an extension not answered."""
    state = row.columns.get("state")
    if row.key.startswith("request:"):
        return state in ("staged", "accepted")
    return row.key != GRAPH and state in (TaskState.PENDING, TaskState.RUNNING)


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


async def _write_logs(logs: StoredLogs, graph_id: str, writer: _Writer) -> int:
    count = 0
    continuation: str | None = None
    while True:
        page = await logs.files(graph_id, continuation=continuation)
        for file in page.files:
            offset = 0
            while True:
                data = await logs.read(
                    graph_id, file.task_id, file.run, offset=offset, limit=_LOG_PIECE_BYTES, name=file.name
                )
                if data is None or (not data and offset):
                    break
                place = {"task": file.task_id, "run": file.run, "name": file.name, "offset": offset}
                writer.line({"log": place, "data": base64.b64encode(data).decode("ascii")})
                offset += len(data)
                if not data:
                    break
            count += 1
        continuation = page.continuation
        if continuation is None:
            return count


def _told_columns(row: Row) -> dict[str, Any]:
    own = _OWN if row.key == GRAPH else frozenset()
    return {name: _told(row.columns[name]) for name in sorted(row.columns) if name not in own}


def _told(value: Value) -> Any:
    """A value as JSON: text, booleans and whole numbers as they are; the others say what they are."""
    if isinstance(value, datetime):
        return {"time": value.astimezone(UTC).isoformat().replace("+00:00", "Z")}
    if isinstance(value, float):
        return {"double": value}
    return str(value) if isinstance(value, str) else value


# --- in ----------------------------------------------------------------------------------------------------------


def open_archive(path: Path) -> BinaryIO:
    """A file to be read. Raises InvalidInput."""
    try:
        return path.open("rb")
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror or error}") from error


def examine(file: BinaryIO, source: str) -> Archived:
    """Read a file to its end and say what it holds. Raises InvalidInput for one that is damaged, cut off, or none."""
    found = hashlib.sha256()
    head: dict[str, Any] | None = None
    told: Archived | None = None
    rows = logs = graphs = 0
    last = ""
    state = ""
    file.seek(0)
    for number, data in enumerate(_lines(file, source), start=1):
        line = _object(data, source, number)
        if told is not None:
            raise InvalidInput(f"{source}, line {number}: it goes on after its end")
        if head is None:
            head = _head(line, source)
            state = str(head["state"])
        elif "row" in line:
            row = _row(line, source, number)
            if row.key <= last:
                raise InvalidInput(f"{source}, line {number}: the rows are out of order")
            last = row.key
            rows += 1
            graphs += row.key == GRAPH and row.columns.get("state") == state
        elif "log" in line:
            place, _ = _log(line, source, number)
            logs += place["offset"] == 0
        elif "end" in line:
            end = line["end"]
            if not isinstance(end, dict) or end.get("sha256") != found.hexdigest():
                raise InvalidInput(f"{source} is damaged: its digest is another than that of its lines")
            if (end.get("rows"), end.get("logs"), graphs) != (rows, logs, 1):
                raise InvalidInput(f"{source} is damaged: it holds {rows:,} rows and {logs:,} log files, and says not")
            complete = end.get("complete") is True
            told = Archived(str(head["graph"]), state, rows, logs, complete, found.hexdigest())
        else:
            raise InvalidInput(f"{source}, line {number}: neither a row, a log nor the end")
        found.update(data)
    if told is None:
        raise InvalidInput(f"{source} is cut off: its end is missing")
    return told  # what gzip itself says of the bytes has been read, too


def _lines(file: BinaryIO, source: str) -> Iterator[bytes]:
    try:
        with gzip.GzipFile(fileobj=file, mode="rb") as plain:
            while data := plain.readline(_LINE_BYTES_MAX):
                if not data.endswith(b"\n"):
                    long = len(data) == _LINE_BYTES_MAX
                    raise InvalidInput(f"{source} {'has a line that is too long' if long else 'is cut off'}")
                yield data
    except (gzip.BadGzipFile, zlib.error) as error:
        raise InvalidInput(f"{source} is no archive: it is not compressed by gzip, or damaged") from error
    except EOFError as error:
        raise InvalidInput(f"{source} is cut off") from error


def _object(data: bytes, source: str, number: int) -> dict[str, Any]:
    try:
        line = json.loads(data, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{source}, line {number}: no JSON") from error
    if not isinstance(line, dict):
        raise InvalidInput(f"{source}, line {number}: no object")
    return line


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no number")


def _head(line: Mapping[str, Any], source: str) -> dict[str, Any]:
    if line.get("archive") != "taskgraph":
        raise InvalidInput(f"{source} is no archive of a graph")
    if line.get("format") != FORMAT:
        raise InvalidInput(
            f"{source} is an archive of format {line.get('format')!r}, and this version reads {FORMAT}; "
            "use a newer version of taskgraph"
        )
    if not isinstance(line.get("graph"), str) or not is_graph_id(line["graph"]):
        raise InvalidInput(f"{source} does not name a graph")
    return dict(line)


def _row(line: Mapping[str, Any], source: str, number: int) -> Insert:
    key, columns = line.get("row"), line.get("columns")
    try:
        if not isinstance(key, str) or not isinstance(columns, dict):
            raise ValueError("a row has a key and columns")
        checks.check_key(key)
        row = Insert(key, {name: _read(value) for name, value in columns.items()})
        checks.check_columns(key, row.columns)
    except (ValueError, TooLarge) as error:
        raise InvalidInput(f"{source}, line {number}: {error}") from error
    return row


def _read(value: Any) -> Value:
    match value:
        case {"time": str(text)} if len(value) == 1:
            return datetime.fromisoformat(text)
        case {"double": int() | float() as number} if len(value) == 1:
            return float(number)
        case str() | bool() | int():
            return value
    raise ValueError(f"{str(value)[:60]!r} is no value of a column")


def _log(line: Mapping[str, Any], source: str, number: int) -> tuple[dict[str, Any], bytes]:
    place = line["log"]
    try:
        if not isinstance(place, dict) or not isinstance(place.get("offset"), int) or place["offset"] < 0:
            raise ValueError("a piece of a log has a place")
        if not isinstance(place.get("run"), int) or isinstance(place["run"], bool):
            raise ValueError("a log has a run")
        checks.check_log("graph", str(place.get("task", "")), place["run"], str(place.get("name", "")))
        return place, base64.b64decode(str(line.get("data", "")), validate=True)
    except (ValueError, binascii.Error) as error:
        raise InvalidInput(f"{source}, line {number}: {error}") from error


async def restore(
    handlers: Handlers, logs: StoredLogs, file: BinaryIO, source: str, *, progress: Progress = no_progress
) -> Restored:
    """Put a graph back, under its own id, as it was. The same call goes on with what was cut off.

    file: from its beginning, and twice. source: its name, for people. Raises InvalidInput for what is no archive,
    Refused for one of a graph that could move by itself, or if another graph has the id; nothing is written then.
    Raises Conflict when others write the same graph.
    """
    contents = examine(file, source)
    graph_id = contents.graph_id
    if not contents.complete or contents.state not in _RESTORABLE:
        raise Refused(
            f"{source} shows graph {graph_id} while it was {contents.state} and could move; "
            "only a graph that stands still is put back",
            "not-ended",
        )
    for attempt in range(_COPIES_MAX):
        try:
            return await _restore(handlers, logs, file, source, contents, progress)
        except Conflict as conflict:
            # Another copy at work on the same file, or an answer that was lost: the row tells how far it is.
            if attempt + 1 == _COPIES_MAX:
                raise
            log.info("graph %s: %s", graph_id, conflict)
            await handlers.back_off(attempt)
    raise AssertionError("the last attempt gives or raises")


async def _restore(
    handlers: Handlers, logs: StoredLogs, file: BinaryIO, source: str, contents: Archived, progress: Progress
) -> Restored:
    graph_id = contents.graph_id
    row = await _begin(handlers, contents, source)
    if row is None:
        if contents.state in GRAPH_ENDED:
            await handlers.leave_live(graph_id)
        return Restored(graph_id, contents.state, 0, 0, again=True)
    handlers.kept.forget(graph_id)
    handlers.records.forget(graph_id)
    started = integer(row.columns, "put")
    graph: Insert | None = None
    chunk: list[Insert] = []
    size = number = 0
    channels = False
    for insert in _inserts(file, source):
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
    count = await _put_logs(logs, graph_id, file, source) if contents.logs else 0
    if graph is None:
        raise InvalidInput(f"{source} is damaged: it has no graph row")
    await _list(handlers, graph_id, graph.columns)
    if channels and contents.state not in GRAPH_ENDED:
        await notifier.enter(handlers.records.tables, graph_id, handlers.clock.now())
    final: dict[str, Value] = {**graph.columns, "restored": handlers.clock.now(), "archive": contents.digest}
    await _commit(handlers, graph_id, [Replace(GRAPH, row.etag, final)])
    progress(contents.rows, contents.rows)
    if contents.state in GRAPH_ENDED:
        await handlers.leave_live(graph_id)
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
            await handlers.enter_live(graph_id)
            return row
        if row is not None and state == contents.state and same:
            return None
        if row is not None and state != GraphState.DELETED:
            what = "is being restored from another file" if state == GraphState.RESTORING else f"exists, and is {state}"
            raise Refused(f"graph {graph_id} {what}; what is there is never overwritten by {source}", "exists")
        await handlers.enter_live(graph_id)  # before its row: what is begun is found
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
            await handlers.back_off(1)
    raise Conflict(f"graph {graph_id}: others kept writing its row; restore again to go on")


def _inserts(file: BinaryIO, source: str) -> Iterator[Insert]:
    file.seek(0)
    for number, data in enumerate(_lines(file, source), start=1):
        line = _object(data, source, number)
        if "row" in line:
            yield _row(line, source, number)


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


async def _put_logs(logs: StoredLogs, graph_id: str, file: BinaryIO, source: str) -> int:
    """Put files of runs back; of one that is there in part, what is missing."""
    there: dict[tuple[str, int, str], int] = {}
    continuation: str | None = None
    while True:
        page = await logs.files(graph_id, continuation=continuation)
        there.update({(each.task_id, each.run, each.name): each.size for each in page.files})
        continuation = page.continuation
        if continuation is None:
            break
    count = 0
    file.seek(0)
    for number, data in enumerate(_lines(file, source), start=1):
        line = _object(data, source, number)
        if "log" not in line:
            continue
        place, piece = _log(line, source, number)
        task, run, name, offset = str(place["task"]), int(place["run"]), str(place["name"]), int(place["offset"])
        have = there.get((task, run, name), -1)
        count += offset == 0
        if have < offset + len(piece) or (have < 0 and not piece):
            await logs.append(graph_id, task, run, piece[max(0, have - offset) :], name)
    return count


async def _list(handlers: Handlers, graph_id: str, columns: Columns) -> None:
    created = columns.get("created")
    if not isinstance(created, datetime):
        return  # a row that somebody edited; doctor names it
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
