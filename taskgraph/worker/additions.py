"""Tasks that a run adds to its graph: an extension, which is accepted before the run has completed.

The run waits until handlers have accepted it: so whatever requires the run's group waits for the new tasks from before
the run has ended. A run that is lost on the way is run again, and asks for the very same.
"""

from collections.abc import Mapping
from typing import Any, Final

from taskgraph.documents.read import document_from_object
from taskgraph.engine.handlers import Handlers
from taskgraph.engine.submission import extend
from taskgraph.model.errors import InvalidGraph, Refused
from taskgraph.protocol.extension import request_key
from taskgraph.worker.executors.contract import Outcome, Work, failed

_PAUSE_SECONDS: Final = 0.02  # to the first look at the request; each pause is half longer than the one before
_PAUSE_SECONDS_MAX: Final = 2.0


async def add_tasks(handlers: Handlers, work: Work, adds: Mapping[str, Any], outcome: Outcome) -> Outcome:
    """Extend the graph of a run; gives its outcome, or why there are no such tasks. Raises StorageError."""
    if not adds:
        return outcome
    try:
        document = document_from_object(adds, source=work.label, kind="extension")
        asked = await extend(handlers, work.graph_id, document, by=work.label)
    except InvalidGraph as error:
        return failed(f"its tasks cannot be added: {error.problems[0].message} {error.problems[0].remedy}")
    except Refused as error:
        return failed(f"its tasks cannot be added: {error}")
    key, pause, state = request_key(asked.request), _PAUSE_SECONDS, asked.state
    while state == "staged":
        await handlers.clock.sleep(pause)
        pause = min(pause * 1.5, _PAUSE_SECONDS_MAX)
        (row,) = await handlers.records.tables.get(work.graph_id, [key])
        state = str(row.columns.get("state", "")) if row is not None else ""
        if row is None or state == "refused":
            reason = row.columns.get("reason") if row is not None else "the request is gone"
            return failed(f"its tasks cannot be added: {reason}")
    return outcome
