"""The watchdog: does a running graph move, and if not, why not.

A graph moves if a task of it runs under a live lease, if one has become ready within the set time, or if its journal
has grown; otherwise the sweep marks it, with the reason in a sentence. The last event row is read only if no task
moves.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from taskgraph.engine.commit import Records
from taskgraph.engine.handlers import Handlers
from taskgraph.model import limits
from taskgraph.model.columns import Columns, integer, is_held, object_of, time_of
from taskgraph.model.foreign_times import Standing
from taskgraph.model.ids import event_key, reference_of
from taskgraph.model.states import TaskState
from taskgraph.model.timing import clock_text
from taskgraph.protocol.context import Outcome
from taskgraph.protocol.leases import lease
from taskgraph.protocol.lifecycle import Stall, Stir
from taskgraph.queries.workers import Crew, workers
from taskgraph.storage.tables import Range, Row, query_all


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Tasks that stand ready. oldest: the row of the first of them. newest: since when the last one is ready."""

    count: int
    oldest: Row | None
    newest: datetime | None


async def watch(handlers: Handlers, graph_id: str, graph: Row, unresolved: Sequence[Row], now: datetime) -> int:
    """Mark a running graph that stands still, take the mark off one that moves; returns 1 if a mark was set.

    unresolved: its tasks that are pending or running, with the columns `WATCHED`. Raises StorageError.
    """
    columns = graph.columns
    marked = bool(columns.get("stalledBecause"))
    began = columns.get("started")
    own = columns.get("stalledAfter")
    before = now - timedelta(seconds=own if isinstance(own, int | float) and own > 0 else handlers.stalled_seconds)
    if is_held(columns.get("held")):  # it is paused
        return 0
    if not marked and not (isinstance(began, datetime) and began <= before):
        return 0
    since = columns.get("stalled") if marked else before
    waiting = _waiting(unresolved, now)
    if waiting is None or (waiting.newest is not None and isinstance(since, datetime) and waiting.newest > since):
        if marked:
            await handlers.transition(graph_id, [Stir()])
        return 0
    sequence, moved = await _last(handlers.records, graph_id)
    if marked:
        if sequence > integer(columns, "stalledAt"):
            await handlers.transition(graph_id, [Stir()])
        return 0
    if moved is None or moved > before:
        return 0
    because = await _because(handlers, graph_id, waiting, now)
    waits, run = "", 0
    if waiting.oldest is not None:
        waits, run = reference_of(waiting.oldest.key), integer(waiting.oldest.columns, "run")
    (answer,) = await handlers.transition(graph_id, [Stall(sequence, because, waits, run)])
    return int(answer.outcome is Outcome.APPLIED)


def _waiting(unresolved: Sequence[Row], now: datetime) -> _Waiting | None:
    """The ready tasks; None if a task runs, or waits for a time or a person and not for a worker."""
    oldest: Row | None = None
    since = newest = None
    count = 0
    for row in unresolved:
        columns = row.columns
        if columns.get("state") == TaskState.RUNNING:
            if lease(columns.get, now) is not Standing.OVER:
                return None
            continue
        not_before, pending = columns.get("notBefore"), columns.get("pendingSince")
        if is_held(columns.get("held")) or (isinstance(not_before, datetime) and not_before > now):
            return None
        count += 1
        if isinstance(pending, datetime):
            if since is None or pending < since:
                oldest, since = row, pending
            if newest is None or pending > newest:
                newest = pending
    return _Waiting(count, oldest, newest)


async def _last(records: Records, graph_id: str) -> tuple[int, datetime | None]:
    """Number and time of the last event row. One query, if this process knows about where the journal ends."""
    known = max(1, (await records.operation(graph_id)).sequence - 1)
    sequence, time = 0, None
    for row in await query_all(records.tables, graph_id, Range(event_key(known), "event;", select=("time",))):
        sequence = int(row.key.removeprefix("event:"))
        time = time_of(row.columns, "time") or time
    return sequence, time


async def _because(handlers: Handlers, graph_id: str, waiting: _Waiting, now: datetime) -> str:
    """Why nothing moves, as `why` explains it for the task that has waited longest."""
    if waiting.oldest is None:
        return f"nothing of it is ready and nothing runs; see `taskgraph doctor {graph_id}`"
    (row,) = await handlers.records.tables.get(graph_id, [waiting.oldest.key])
    columns: Columns = row.columns if row is not None else waiting.oldest.columns
    target = str(columns.get("target", "default"))
    crew = Crew(await workers(handlers.records.tables, now))
    label, since = str(columns.get("label", "")), columns.get("pendingSince")
    words = f"“{label}” is ready"
    if isinstance(since, datetime):
        words += f" since {clock_text(since)}"
    if waiting.count > 1:
        words += f" and {waiting.count - 1:,} more wait"
    words += f"; {crew.about(target, object_of(columns, 'task'))}"
    if refusal := str(columns.get("refusal", "")):
        words += f"; a worker gave it back: {refusal}"
    return words[: limits.REASON_CHARS_MAX]
