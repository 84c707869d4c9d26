"""Go on along a chain without a handler.

A worker without handlers in its process that has run the only task under way of a graph, and knows that just one task
waits for it, completes it and claims the next by a commit of its own. Where others move the graph too, it leaves that
to a handler.
"""

import logging
from typing import Final

from taskgraph.engine.listeners import LocalWorker
from taskgraph.model.errors import StorageError
from taskgraph.model.ids import ids_text, row_key
from taskgraph.model.messages import TaskResult
from taskgraph.model.states import TaskState
from taskgraph.protocol.runs import Completed
from taskgraph.storage.tables import Row
from taskgraph.worker.claims import Claims
from taskgraph.worker.context import WorkerContext
from taskgraph.worker.queue_turns import QueueTurns
from taskgraph.worker.values import ClaimedRun, as_claimed

log = logging.getLogger("taskgraph.worker")

_CROWDED_MAX: Final = 1000  # graphs


class LoneChain:
    """Completes runs of one worker locally. local_worker: claims what a completion makes ready."""

    def __init__(self, context: WorkerContext, turns: QueueTurns, claims: Claims, local_worker: LocalWorker) -> None:
        self._context = context
        self._turns = turns
        self._claims = claims
        self._local_worker = local_worker
        self._crowded: set[str] = set()  # graphs that others move as well

    async def complete(self, one: ClaimedRun, result: TaskResult) -> bool:
        """Complete a run here, and take the one task that waits for it; gives whether that was done."""
        handlers, graph_id, task_id = self._context.handlers, one.work.graph_id, one.work.task_id
        if not one.next or not one.etag or self._context.stopping:
            return False
        if self._context.is_direct(graph_id) or graph_id in self._crowded or not self._turns.may_feed_itself():
            return False  # what waits for it takes its turn
        known = handlers.row_cache.of(graph_id)
        own, after = row_key(task_id), row_key(one.next)
        if len(self._crowded) > _CROWDED_MAX:
            self._crowded.clear()
        conflicts = handlers.counters.conflicts
        try:
            if known.rows.get(after) is None:
                await handlers.row_cache.load(graph_id, known, [after])
            row = known.rows.get(after)
            if row is None or not self._waits_for(row, task_id):
                known.forget_absent()
                return False
            kept = known.rows.get(own)
            if kept is None or kept.etag == one.over:
                known.suppose(as_claimed(one))
            how = result.ended, result.resolution
            item = Completed(task_id, result.run, result.claim, *how, seconds=result.seconds)
            (answer,) = await handlers.advance(graph_id, [item], local_worker=self._local_worker)
        except StorageError as error:  # reach: stock
            log.info("graph %s: a result goes to the handlers: %s", graph_id, error)
            self._crowded.add(graph_id)
            return False
        if handlers.counters.conflicts > conflicts:
            self._crowded.add(graph_id)
        return answer.error is None

    def _waits_for(self, row: Row, task_id: str) -> bool:
        columns = row.columns
        return (
            columns.get("requiresLeft") == ids_text([task_id])
            and columns.get("state") == TaskState.UNSCHEDULED
            and columns.get("target") in self._context.targets
            and self._claims.fits(str(columns.get("task", "")))
        )
