"""The cache of a store: by what a run was made of, which earlier run stands for it.

A row is a hint and no promise: the files and the result of the run are looked at before it is used, and a row whose
run is gone is written anew by the next one.
"""

import logging
from dataclasses import dataclass
from typing import Any, Final

from taskgraph.model.columns import Value
from taskgraph.model.errors import Conflict, StorageError, Unclear
from taskgraph.model.names import CACHE
from taskgraph.protocol.definitions import SCHEMA
from taskgraph.storage.kept_files import summary
from taskgraph.storage.logs import Place
from taskgraph.storage.tables import Change, Insert, Replace
from taskgraph.worker.context import WorkerContext
from taskgraph.worker.executors import Outcome, Work
from taskgraph.worker.executors.contract import RESULT_BYTES_MAX
from taskgraph.worker.run_files import FileOrder, RunFiles

log = logging.getLogger("taskgraph.worker")

_RESULT_NAME: Final = "result.json"


@dataclass(slots=True)
class Cache:
    """The cache as one worker uses it."""

    context: WorkerContext
    files: RunFiles

    async def find(self, key: str, order: FileOrder, work: Work) -> Outcome | None:
        """The outcome of an earlier run with this key, its files put in place; None where there is none to use."""
        (row,) = await self.context.handlers.records.tables.get(CACHE, [key])
        if row is None:
            return None
        origin: Place = str(row.columns.get("graph")), str(row.columns.get("task")), _run(row.columns.get("run"))
        place: Place = work.graph_id, work.task_id, work.run
        more: dict[str, Any] = {}
        if order.outputs:
            kept = await self.files.listed(origin)
            if kept is None or not all([await self.files.put(each, origin, order.folder / each.path) for each in kept]):
                return None
            if not await self.files.take_over(origin, place, kept):
                return None
            more["files"] = summary(kept)
        result = None
        if row.columns.get("result") is True:
            result = await self.context.logs.read(*origin, name=_RESULT_NAME, limit=RESULT_BYTES_MAX)
            if result is None:
                return None
        label = str(row.columns.get("label", ""))
        more["cached"] = {"graphId": origin[0], "taskId": origin[1], "label": label, "run": origin[2]}
        return Outcome(failed=False, exit_code=0, result=result, more=more)

    async def note(self, key: str, work: Work, outcome: Outcome) -> None:
        """Have this run stand for those to come that are made of the same. What fails costs a later run, not this."""
        columns: dict[str, Value] = {
            "schema": SCHEMA,
            "graph": work.graph_id,
            "task": work.task_id,
            "run": work.run,
            "label": work.label,
            "result": outcome.result is not None,
            "time": self.context.clock.now(),
        }
        tables = self.context.handlers.records.tables
        try:
            (row,) = await tables.get(CACHE, [key])
            change: Change = Insert(key, columns) if row is None else Replace(key, row.etag, columns)
            await tables.commit(CACHE, [change])
        except (Conflict, Unclear):  # another run was as quick, and is as good  # reach: cache
            return
        except StorageError as error:  # reach: cache
            log.warning("graph %s: task %s cannot be used again: %s", work.graph_id, work.task_id, error)


def _run(value: Value | None) -> int:
    return value if isinstance(value, int) and value >= 0 else 0
