"""Graphs that have had their time: deleted row by row behind a fence, remembered by a tombstone (P27).

What this room is for: taking away everything that a graph left in the store, by any number of copies at once, in
commits of bounded size, so that whatever a crash leaves half done is found and finished. Nothing is decided here about
tasks: the fence is a decision like any other, and from it on there is nothing to decide.

    1  index:live names the graph           the sweep comes by, and goes on with what is left half done
    2  task-graph   state deleting          the fence: one commit, by the rules of `protocol.decide`
    3  every other row                      tasks first, so that nobody claims one of which half is gone
    4  logs, set-aside messages, indexes    what is kept elsewhere
    5  index:tombstones                     when the id is free again
    6  task-graph   state deleted           the tombstone, in one commit: all columns but its own are gone
    7  index:live                           nobody need come by any more

Each commit of step 3 also writes the graph row under its etag. So a copy that slept can never take away rows of a graph
that was put back under the same id, and the row tells how far it is. It stays to the end, and as the tombstone: an
insert that comes late meets it, and what such a one puts beside it is taken away when the tombstone ends.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from taskgraph.engine import notifier
from taskgraph.engine.handlers import Handlers
from taskgraph.engine.live_index import enter_live, leave_live
from taskgraph.engine.poison import Poison
from taskgraph.engine.transact import back_off
from taskgraph.model import limits
from taskgraph.model.columns import Value, integer, time_of
from taskgraph.model.errors import Conflict, NotFound, Refused, Unclear
from taskgraph.model.ids import GRAPH
from taskgraph.model.names import ALL, TOMBSTONES, listing_key, tombstone_key
from taskgraph.model.states import GRAPH_GONE, GraphState
from taskgraph.protocol.context import Outcome
from taskgraph.protocol.definitions import SCHEMA
from taskgraph.protocol.lifecycle import BeginDeletion, undeletable
from taskgraph.storage.logs import StoredLogs
from taskgraph.storage.tables import Change, Delete, Insert, Merge, Range, Replace, Row

log = logging.getLogger("taskgraph.retention")

Progress = Callable[[int, int], None]
"""Told (rows taken away, rows that there are at least)."""

_ORDER: Final = (Range("task:", "task;", select=("state",)), Range(select=("state",)))
ENDS: Final = ("finished", "cancelled", "restored")  # who puts an old graph back wants to look at it


def no_progress(gone: int, total: int) -> None:
    """For callers that show nothing."""


@dataclass(frozen=True, slots=True)
class Deleted:
    """What became of a graph. again: it had been deleted before. rows, logs: taken away by this call."""

    graph_id: str
    rows: int = 0
    logs: int = 0
    again: bool = False
    until: datetime | None = None


async def delete(
    handlers: Handlers,
    logs: StoredLogs,
    graph_id: str,
    *,
    force: bool = False,
    because: str = "",
    progress: Progress = no_progress,
) -> Deleted:
    """Take a graph away, or go on with that. Repeatable: a graph that is deleted already is done.

    force: a blocked graph too, and one of which somebody has still to be told. because: in whose name, for people.
    Raises NotFound for a graph that never was, Refused for one that has not ended, Conflict when others kept writing:
    the same call goes on.
    """
    graph = await graph_row(handlers, graph_id)
    if graph is None:
        raise NotFound(f"there is no graph {graph_id}")
    state = str(graph.columns.get("state", ""))
    if state == GraphState.DELETED:
        return Deleted(graph_id, again=True, until=time_of(graph.columns, "until"))
    if state != GraphState.DELETING:
        if refusal := undeletable(state, forced=force):
            raise Refused(f"graph {graph_id}: {refusal}", "not-ended")
        if not force:
            await _must_be_told(handlers, graph_id)
        await enter_live(handlers.records, graph_id)
        until = handlers.clock.now() + timedelta(seconds=limits.TOMBSTONE_SECONDS)
        (answer,) = await handlers.transition(graph_id, [BeginDeletion(until, force, because)])
        if answer.error is not None:
            raise answer.error
        if answer.outcome is Outcome.REFUSED:
            raise Refused(f"graph {graph_id}: {answer.reason}", "not-ended")
    return await finish_deletion(handlers, logs, graph_id, progress=progress)


async def _must_be_told(handlers: Handlers, graph_id: str) -> None:
    """Raise Refused while a channel has not been told all that the journal says: it would never be."""
    (waiting,) = await handlers.records.tables.get(notifier.INDEX, [graph_id])
    if waiting is not None:
        raise Refused(
            f"graph {graph_id}: somebody has still to be told what became of it (taskgraph notices {graph_id}); "
            "taskgraph serve tells, or gives up after a time; with --force nobody is told any more",
            "not-told",
        )


async def finish_deletion(
    handlers: Handlers, logs: StoredLogs, graph_id: str, *, progress: Progress = no_progress
) -> Deleted:
    """Go on with the deletion of a graph behind the fence, to the end. Any number of copies may do so at once.

    Raises Conflict when others kept writing: what they did not take away is left for the same call again.
    """
    handlers.kept.forget(graph_id)
    handlers.records.forget(graph_id)
    await enter_live(handlers.records, graph_id)  # who comes by is to find it, whoever began
    rows = removed = 0
    for _ in range(limits.COMMIT_ATTEMPTS_MAX):
        graph = await graph_row(handlers, graph_id)
        if graph is None or graph.columns.get("state") not in GRAPH_GONE:
            await leave_live(handlers.records, graph_id)
            return Deleted(graph_id, rows, removed, again=True)  # others have, and its tombstone is gone too
        until = time_of(graph.columns, "until") or handlers.clock.now() + timedelta(seconds=limits.TOMBSTONE_SECONDS)
        if graph.columns["state"] == GraphState.DELETED:
            await leave_live(handlers.records, graph_id)
            return Deleted(graph_id, rows, removed, until=until)
        gone, graph = await _empty(handlers, graph_id, graph, progress)
        rows += gone
        if graph is None:
            continue  # another copy has come further
        try:
            removed += await _elsewhere(handlers, logs, graph_id, graph.columns)
        except Conflict:
            continue
        await insert_once(handlers, TOMBSTONES, tombstone_key(graph_id, until), {"graph": graph_id, "until": until})
        try:
            await handlers.records.tables.commit(
                graph_id, [Replace(GRAPH, graph.etag, _tombstone(graph, until, handlers))]
            )
        except (Conflict, Unclear):
            continue  # the row tells whether it was this very call
        await leave_live(handlers.records, graph_id)
        return Deleted(graph_id, rows, removed, until=until)
    raise Conflict(f"graph {graph_id}: others kept writing while it was deleted; the same command goes on")


def _tombstone(graph: Row, until: datetime, handlers: Handlers) -> Mapping[str, Value]:
    columns = graph.columns
    kept = {name: columns[name] for name in ("created", "was", "because") if name in columns}
    return {
        "schema": SCHEMA,
        "state": str(GraphState.DELETED),
        "deleted": handlers.clock.now(),
        "until": until,
        **kept,
    }


async def _empty(handlers: Handlers, graph_id: str, graph: Row, progress: Progress) -> tuple[int, Row | None]:
    """Take every row away but the graph row; gives how many, and the graph row, None if others wrote it meanwhile."""
    tables = handlers.records.tables
    at_once = handlers.records.changes_max - 1
    gone, row = 0, graph
    total = integer(graph.columns, "tasks")
    for rows in _ORDER:
        continuation: str | None = None
        while True:
            page = await tables.query(graph_id, rows, continuation=continuation)
            found = [each for each in page.rows if each.key != GRAPH]
            for start in range(0, len(found), at_once):
                part = found[start : start + at_once]
                removed = integer(row.columns, "removed") + len(part)
                changes: list[Change] = [Merge(GRAPH, row.etag, {"removed": removed})]
                changes += [Delete(each.key, each.etag) for each in part]
                try:
                    etags = await tables.commit(graph_id, changes)
                except (Conflict, Unclear):
                    await back_off(handlers.clock, 1)
                    return gone, None
                if etags[0] is None:
                    return gone, None  # written, without a word of its etag
                row = Row(GRAPH, etags[0], {**row.columns, "removed": removed})
                gone += len(part)
                progress(removed, max(total, removed))
            continuation = page.continuation
            if continuation is None:
                break
    return gone, row


async def _elsewhere(handlers: Handlers, logs: StoredLogs, graph_id: str, columns: Mapping[str, Value]) -> int:
    """Take away its logs, and what names it in other partitions but for the index of live graphs; gives how many logs.

    No commit on the graph row guards these: another copy may have come to the end meanwhile, and the graph have been
    put back. So each is read first, and goes under its etag if the graph is still gone after that. Files have no etag:
    a process that is stopped between its look and their removal removes those of a graph that was put back meanwhile.
    Raises Conflict for a graph that is back.
    """
    records = handlers.records
    await _must_be_gone(handlers, graph_id)
    removed = await logs.remove(graph_id)
    await Poison(records.tables, handlers.queues, handlers.clock, handlers.names, handlers.telemetry).forget(graph_id)
    await remove_once(handlers, notifier.INDEX, graph_id, gone=graph_id)
    created = time_of(columns, "created")
    if created is not None:
        await remove_once(handlers, ALL, listing_key(graph_id, created), gone=graph_id)
    return removed


async def _must_be_gone(handlers: Handlers, graph_id: str) -> None:
    graph = await graph_row(handlers, graph_id)
    if graph is not None and graph.columns.get("state") not in GRAPH_GONE:
        raise Conflict(f"graph {graph_id} was put back while it was deleted")


# --- what is over by time ----------------------------------------------------------------------------------------


async def sweep_beside(handlers: Handlers, logs: StoredLogs, graph_id: str, graph: Row) -> Row:
    """Take away what somebody who was late put beside a tombstone; gives the graph row as it is then.

    Raises Conflict if others write it.
    """
    gone, row = await _empty(handlers, graph_id, graph, no_progress)
    if row is None:
        raise Conflict(f"graph {graph_id}: others look after its tombstone")
    if gone:
        log.info("graph %s: %d rows that came after it was deleted are gone", graph_id, gone)
    await _elsewhere(handlers, logs, graph_id, graph.columns)
    return row


# --- rows --------------------------------------------------------------------------------------------------------


async def graph_row(handlers: Handlers, graph_id: str) -> Row | None:
    """The graph row, or None where there is none."""
    (row,) = await handlers.records.tables.get(graph_id, [GRAPH])
    return row


async def insert_once(handlers: Handlers, partition: str, key: str, columns: Mapping[str, Value]) -> None:
    """Insert a row that may be there already."""
    try:
        await handlers.records.tables.commit(partition, [Insert(key, columns)])
    except Conflict:
        return  # it is there
    except Unclear:
        (row,) = await handlers.records.tables.get(partition, [key])
        if row is None:
            raise


async def remove_once(handlers: Handlers, partition: str, key: str, *, gone: str = "") -> None:
    """Delete a row that may be gone already. gone: the graph that must be so. Raises Conflict."""
    (row,) = await handlers.records.tables.get(partition, [key])
    if row is None:
        return
    if gone:
        await _must_be_gone(handlers, gone)
    try:
        await handlers.records.tables.commit(partition, [Delete(key, row.etag)])
    except (Conflict, Unclear) as error:
        (row,) = await handlers.records.tables.get(partition, [key])
        if row is not None:
            raise Conflict(f"row {key} of {partition} could not be taken away") from error
