"""Delete a graph row by row behind a fence; a tombstone is left (P27).

    1  index:live names the graph           the sweep goes on with what is left half done
    2  task-graph   state deleting          the fence: one commit, by the rules of `protocol.decide`
    3  every other row                      tasks first, so that no worker claims one of which half is gone
    4  logs, set-aside messages, indexes    what is kept elsewhere
    5  index:tombstones                     when the id is free again
    6  task-graph   state deleted           the tombstone, in one commit: all columns but its own are gone
    7  index:live                           the graph is taken off

Any number of calls may do this at once. Each commit of step 3 also writes the graph row, with the number of rows
deleted, under its etag, so a call that comes late cannot delete rows of a graph that was put back under the same id. A
late insert meets the tombstone; rows that it writes beside it are deleted when the tombstone ends.
"""

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from taskgraph.engine import notifier, old_tasks
from taskgraph.engine.handlers import Handlers
from taskgraph.engine.live_index import enter_live, insert_once, leave_live
from taskgraph.engine.poison import Poison
from taskgraph.engine.progress import Progress, no_progress
from taskgraph.engine.transact import back_off
from taskgraph.model import limits
from taskgraph.model.columns import Columns, integer, time_of
from taskgraph.model.errors import Conflict, NoGraph, Refused, Unclear
from taskgraph.model.ids import GRAPH
from taskgraph.model.names import ALL, OLD_TASKS, TOMBSTONES, listing_key, tombstone_key
from taskgraph.model.states import GRAPH_GONE, GraphState
from taskgraph.protocol.context import Outcome
from taskgraph.protocol.definitions import SCHEMA
from taskgraph.protocol.lifecycle import BeginDeletion, undeletable
from taskgraph.storage.logs import StoredLogs
from taskgraph.storage.tables import Change, Delete, Merge, Range, Replace, Row, pages

log = logging.getLogger("taskgraph.retention")

_BY_THIS: Final = (GraphState.DELETING, GraphState.DELETED)
_ORDER: Final = (Range("task:", "task;", select=("state",)), Range(select=("state",)))


@dataclass(frozen=True, slots=True)
class Deleted:
    """again: the graph had been deleted before. rows, logs: deleted by this call."""

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
    operation: str = "",
    by: str = "",
    transfer: str = "",
    progress: Progress = no_progress,
) -> Deleted:
    """Delete a graph, or go on with that. Repeatable.

    force: also a blocked graph, and one with notices to deliver. because: the reason, for people. operation, by,
    transfer: see `lifecycle.BeginDeletion`. Raises NotFound for a graph that never was, Refused for one that has not
    ended, Conflict when others kept writing: the same call goes on.
    """
    graph = await graph_row(handlers, graph_id)
    if graph is None:
        raise NoGraph(graph_id)
    state = str(graph.columns.get("state", ""))
    if state == GraphState.DELETED:
        return Deleted(graph_id, again=True, until=time_of(graph.columns, "until"))
    if state != GraphState.DELETING:
        if not transfer and (refusal := undeletable(state, forced=force)):
            raise Refused(f"graph {graph_id}: {refusal}", "not-ended")
        if not force and not transfer:
            await _check_notices(handlers, graph_id)
        await enter_live(handlers.records, graph_id)
        until = handlers.clock.now() + timedelta(seconds=limits.TOMBSTONE_SECONDS)
        (answer,) = await handlers.transition(graph_id, [BeginDeletion(until, force, because, operation, by, transfer)])
        if answer.error is not None:
            raise answer.error
        if answer.outcome is Outcome.REFUSED:
            raise Refused(f"graph {graph_id}: {answer.reason}", "not-ended")
    return await finish_deletion(handlers, logs, graph_id, progress=progress)


async def _check_notices(handlers: Handlers, graph_id: str) -> None:
    """Raise Refused while notices are not delivered: after the deletion they never would be."""
    (waiting,) = await handlers.records.tables.get(notifier.INDEX, [graph_id])
    if waiting is not None:
        raise Refused(
            f"graph {graph_id}: some of its notices are not delivered yet (taskgraph notices {graph_id}); "
            "taskgraph serve delivers them, or gives up after a time; with --force they are dropped",
            "not-told",
        )


async def finish_deletion(
    handlers: Handlers, logs: StoredLogs, graph_id: str, *, progress: Progress = no_progress
) -> Deleted:
    """Go on with the deletion of a graph behind the fence. Raises Conflict when others kept writing, as `delete`."""
    handlers.row_cache.forget(graph_id)
    handlers.records.forget(graph_id)
    await enter_live(handlers.records, graph_id)
    rows = removed = 0
    for _ in range(limits.COMMIT_ATTEMPTS_MAX):
        graph = await graph_row(handlers, graph_id)
        if graph is None or graph.columns.get("state") not in _BY_THIS:
            await leave_live(handlers.records, graph_id)
            return Deleted(graph_id, rows, removed, again=True)  # others have, and its tombstone is gone too
        until = time_of(graph.columns, "until") or handlers.clock.now() + timedelta(seconds=limits.TOMBSTONE_SECONDS)
        if graph.columns["state"] == GraphState.DELETED:
            await leave_live(handlers.records, graph_id)
            return Deleted(graph_id, rows, removed, until=until)
        gone, graph = await empty_rows(handlers, graph_id, graph, progress)
        rows += gone
        if graph is None:
            continue  # another copy has come further
        try:
            removed += await _elsewhere(handlers, logs, graph_id, graph.columns)
        except Conflict:  # reach: deletion
            continue
        tables = handlers.records.tables
        await insert_once(tables, TOMBSTONES, tombstone_key(graph_id, until), {"graph": graph_id, "until": until})
        kept = {
            name: graph.columns[name]
            for name in ("created", "was", "because", "deletedBy", "arrival")
            if name in graph.columns
        }
        deleted: Columns = {"state": str(GraphState.DELETED), "deleted": handlers.clock.now(), "until": until}
        try:
            await tables.commit(graph_id, [Replace(GRAPH, graph.etag, {"schema": SCHEMA, **deleted, **kept})])
        except (Conflict, Unclear):  # reach: deletion
            continue  # the row shows whether it was this very call
        await leave_live(handlers.records, graph_id)
        return Deleted(graph_id, rows, removed, until=until)
    raise Conflict(f"graph {graph_id}: others kept writing while it was deleted; the same command goes on")


async def empty_rows(handlers: Handlers, graph_id: str, graph: Row, progress: Progress) -> tuple[int, Row | None]:
    """Delete every row but the graph row; returns how many, and the graph row, None if others wrote it meanwhile."""
    tables = handlers.records.tables
    at_once = handlers.records.changes_max - 1
    gone, row = 0, graph
    total = integer(graph.columns, "tasks")
    for rows in _ORDER:
        async for page in pages(tables, graph_id, rows):
            found = [each for each in page.rows if each.key != GRAPH]
            for start in range(0, len(found), at_once):
                part = found[start : start + at_once]
                removed = integer(row.columns, "removed") + len(part)
                changes: list[Change] = [Merge(GRAPH, row.etag, {"removed": removed})]
                changes += [Delete(each.key, each.etag) for each in part]
                try:
                    etags = await tables.commit(graph_id, changes)
                except (Conflict, Unclear):  # reach: deletion
                    await back_off(handlers.clock, 1)
                    return gone, None
                if etags[0] is None:
                    return gone, None  # written, but its etag is not known
                row = Row(GRAPH, etags[0], {**row.columns, "removed": removed})
                gone += len(part)
                progress(removed, max(total, removed))
    return gone, row


async def _elsewhere(handlers: Handlers, logs: StoredLogs, graph_id: str, columns: Columns) -> int:
    """Delete its logs, and its rows in other partitions but for the index of live graphs; returns how many logs.

    No commit on the graph row guards these: another call may have ended meanwhile, and the graph have been put back. So
    each row is read first, and deleted under its etag if the graph is still gone after that. Files have no etag: a
    process that sleeps in between deletes those of a graph that was put back. Raises Conflict for such a graph.
    """
    removed = await remove_elsewhere(handlers, logs, graph_id)
    created = time_of(columns, "created")
    if created is not None:
        await remove_once(handlers, ALL, listing_key(graph_id, created), gone=graph_id)
    return removed


async def remove_elsewhere(handlers: Handlers, logs: StoredLogs, graph_id: str) -> int:
    """The same, but for its row in the list of all graphs."""
    await _must_be_gone(handlers, graph_id)
    removed = await logs.remove(graph_id)
    poison = Poison(handlers.records.tables, handlers.queues, handlers.clock, handlers.names, handlers.telemetry)
    await poison.forget(graph_id)
    await remove_once(handlers, notifier.INDEX, graph_id, gone=graph_id)
    await _forget_old_tasks(handlers, graph_id)
    return removed


async def _forget_old_tasks(handlers: Handlers, graph_id: str) -> None:
    """The rows of its tasks for old clients. A task that another graph has by now stays that one's."""
    tables = handlers.records.tables
    async for page in pages(tables, OLD_TASKS, old_tasks.of_graph(graph_id)):
        for start in range(0, len(page.rows), old_tasks.AT_ONCE):
            part = page.rows[start : start + old_tasks.AT_ONCE]
            named = await tables.get(OLD_TASKS, [each.key.partition(":")[2] for each in part])
            own = [each for each in named if each is not None and each.columns.get("graph") == graph_id]
            await _must_be_gone(handlers, graph_id)
            try:
                await tables.commit(OLD_TASKS, [Delete(each.key, each.etag) for each in (*part, *own)])
            except Unclear as error:  # reach: deletion
                raise Conflict(f"rows of graph {graph_id} in {OLD_TASKS} may be deleted: look again") from error


async def _must_be_gone(handlers: Handlers, graph_id: str) -> None:
    graph = await graph_row(handlers, graph_id)
    if graph is not None and graph.columns.get("state") not in GRAPH_GONE:
        raise Conflict(f"graph {graph_id} was put back while it was deleted")


async def sweep_beside(handlers: Handlers, logs: StoredLogs, graph_id: str, graph: Row) -> Row:
    """Delete rows that were written late beside a tombstone; returns the graph row. Raises Conflict."""
    gone, row = await empty_rows(handlers, graph_id, graph, no_progress)
    if row is None:
        raise Conflict(f"graph {graph_id}: others look after its tombstone")
    if gone:
        log.info("graph %s: %d rows that came after it was deleted are gone", graph_id, gone)
    await _elsewhere(handlers, logs, graph_id, graph.columns)
    return row


async def graph_row(handlers: Handlers, graph_id: str) -> Row | None:
    (row,) = await handlers.records.tables.get(graph_id, [GRAPH])
    return row


async def remove_once(handlers: Handlers, partition: str, key: str, *, gone: str = "") -> None:
    """Delete a row that may be gone already. gone: the graph that must be so. Raises Conflict."""
    (row,) = await handlers.records.tables.get(partition, [key])
    if row is None:
        return
    if gone:
        await _must_be_gone(handlers, gone)
    try:
        await handlers.records.tables.commit(partition, [Delete(key, row.etag)])
    except (Conflict, Unclear) as error:  # reach: deletion
        (row,) = await handlers.records.tables.get(partition, [key])
        if row is not None:
            raise Conflict(f"row {key} of {partition} could not be deleted") from error
