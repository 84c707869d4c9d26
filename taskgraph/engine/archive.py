"""Write a graph into a file: its rows with their types, its journal and, on request, the logs of its runs.

`engine.archive_file` is the form of the file, `engine.restore` the way back.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import BinaryIO, Final

from taskgraph.engine.archive_file import Archived, Writer
from taskgraph.engine.handlers import Handlers
from taskgraph.engine.progress import Progress, no_progress
from taskgraph.engine.signing import Signer
from taskgraph.model import limits
from taskgraph.model.columns import integer
from taskgraph.model.errors import NoGraph, NotFound, Refused
from taskgraph.model.ids import GRAPH, event_key
from taskgraph.model.states import GRAPH_ENDED, GraphState
from taskgraph.protocol.at_rest import STATES, moving
from taskgraph.queries.journal import find_end
from taskgraph.storage.logs import LogFile, StoredLogs
from taskgraph.storage.private_files import written_whole
from taskgraph.storage.tables import Range, Row, pages

_TRIES: Final = 3  # readings of a graph that has ended, until nothing has changed during one
# Rows of some kinds may be long, and only so many of them are in memory at a time.
_PARTS: Final = (
    (Range("", "definition;"), 50),
    (Range("definition;", "request:"), limits.PAGE_ROWS_MAX),
    (Range("request:", "request;"), 50),
    (Range("request;", ""), limits.PAGE_ROWS_MAX),
)


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
    """Write a graph into a file, whole or not at all.

    Raises NotFound for an unknown or deleted graph, Refused for one that is being deleted or restored, or for a file
    that exists unless it may be overwritten, StorageUnavailable where the disk is full, and InvalidInput for another
    place that cannot be written to.
    """
    if not overwrite:
        must_be_free(path)
    with written_whole(path, handlers.clock.new_id()[:8]) as out:
        return await archive_whole(handlers, logs, graph_id, out, with_logs=with_logs, signer=signer, progress=progress)


async def archive_whole(
    handlers: Handlers,
    logs: StoredLogs,
    graph_id: str,
    out: BinaryIO,
    *,
    with_logs: bool = False,
    signer: Signer | None = None,
    progress: Progress = no_progress,
) -> Archived:
    """Write a graph into a file that is open; anew where one that has ended changed meanwhile. Raises as `archive`."""
    for _ in range(_TRIES):
        out.seek(0)
        out.truncate()
        done = await archive(handlers, logs, graph_id, out, with_logs=with_logs, signer=signer, progress=progress)
        if done.complete or done.state not in GRAPH_ENDED:
            break
    return done


def must_be_free(path: Path) -> None:
    """Raises Refused for a file that exists."""
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
    """Write a graph to a stream. Raises NotFound and Refused as `archive_to`; some of it may be written then."""
    records = handlers.records
    (before,) = await records.tables.get(graph_id, [GRAPH])
    if before is None:
        raise NoGraph(graph_id)
    if before.columns.get("state") == GraphState.DELETED:
        raise NotFound(f"graph {graph_id} was deleted")
    state = str(before.columns.get("state", ""))
    if state in (GraphState.DELETING, GraphState.RESTORING):
        raise Refused(f"graph {graph_id} is {state}: half of it may be missing", "not-whole")
    end, *_ = await find_end(records.tables, graph_id, 1, 0, 0)
    writer = Writer(out, graph_id, state)
    seen, rows, moves = "", 0, False
    total = integer(before.columns, "tasks")
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
        async for page in pages(handlers.records.tables, graph_id, part, limit):
            for row in page.rows:
                yield row


async def log_files(logs: StoredLogs, graph_id: str) -> AsyncGenerator[LogFile]:
    continuation: str | None = None
    while True:
        page = await logs.files(graph_id, continuation=continuation)
        for file in page.files:
            yield file
        continuation = page.continuation
        if continuation is None:
            return


async def _write_logs(logs: StoredLogs, graph_id: str, writer: Writer) -> int:
    count = 0
    async for file in log_files(logs, graph_id):
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
    return count
