"""Cancel a graph: the fence, and after it what is left, in as many commits as it takes.

What this room is for: after the fence nothing of the graph begins, and any number of callers may go on from there. What
may be cancelled is `protocol.cancel`'s to say.
"""

import logging
from typing import Final

from taskgraph.engine.transact import KeepAlive, Transactor, no_keep_alive
from taskgraph.model.errors import NotFound
from taskgraph.model.ids import GRAPH, reference_of
from taskgraph.model.messages import Cancel
from taskgraph.model.states import TASK_UNRESOLVED, GraphState, TaskState
from taskgraph.protocol.cancel import BY_HAND, CancelGraph, CancelTask, PublishCancelled
from taskgraph.protocol.context import CANCELLED
from taskgraph.protocol.decide import Answer, Item
from taskgraph.storage.tables import Range, Row, query_all

log = logging.getLogger("taskgraph.handlers")

_FENCE_ROWS: Final = 3  # the graph, an extension that ends with it, the event


async def cancel_graph(transactor: Transactor, message: Cancel, *, keep_alive: KeepAlive = no_keep_alive) -> Answer:
    """Fence a graph off, and cancel what is left of it. Raises NotFound for an unknown graph.

    What is ready or runs goes into the fence's own commit as far as there is room, the ready first: of a graph with
    no more of these than a commit takes, nothing begins after the fence.
    """
    graph_id = message.graph
    (graph,) = await transactor.records.tables.get(graph_id, [GRAPH])
    if graph is None:
        raise NotFound(f"there is no graph {graph_id}")
    items: list[Item] = [CancelGraph(message.reason or BY_HAND, at_once=message.terminate)]
    if graph.columns.get("state") in (GraphState.RUNNING, GraphState.BLOCKED):
        room = transactor.records.changes_max - _FENCE_ROWS
        for state in (TaskState.PENDING, TaskState.RUNNING):
            if len(items) <= room:
                found = Range("task:", "task;", where={"state": (str(state),)}, select=("state",))
                page = await transactor.records.tables.query(graph_id, found, limit=room)
                items += [_cancel(row, message.reason or BY_HAND, CANCELLED, message.terminate) for row in page.rows]
        del items[room + 1 :]
    answer, *_ = await transactor.transition(graph_id, items, keep_alive=keep_alive)
    return answer


async def go_on_cancelling(transactor: Transactor, graph_id: str, *, keep_alive: KeepAlive = no_keep_alive) -> int:
    """Cancel what is left of a graph that is fenced off, and say that it is cancelled once nothing is.

    Runs that are being stopped are left to their workers. Any number of callers may do so at any time; gives how
    many tasks this one has cancelled, or marked.
    """
    tables = transactor.records.tables
    unresolved = Range("task:", "task;", where={"state": tuple(map(str, TASK_UNRESOLVED))}, select=("state", "cancel"))
    done = 0
    while True:
        (graph,) = await tables.get(graph_id, [GRAPH])
        if graph is None or graph.columns.get("state") != GraphState.CANCELLING:
            return done
        columns = graph.columns
        reason, code = str(columns.get("reason", "")), str(columns.get("code", CANCELLED))
        at_once = columns.get("terminate") is True
        left = await query_all(tables, graph_id, unresolved)
        items: list[Item] = [
            _cancel(row, reason, code, at_once)
            for row in left
            if at_once or row.columns.get("state") != TaskState.RUNNING or not row.columns.get("cancel")
        ]
        if not items:
            break
        answers = await transactor.transition(graph_id, items, keep_alive=keep_alive)
        if broken := [answer.error for answer in answers if answer.error is not None]:
            # The sweep tries again, and `doctor` names the damage.
            log.error("graph %s: %d tasks cannot be cancelled: %s", graph_id, len(broken), broken[0])
            return done
        done += len(answers)
    if not left:
        count = None
        if columns.get("cutOff"):
            count = len(await query_all(tables, graph_id, Range("task:", "task;", select=("state",))))
        await transactor.transition(graph_id, [PublishCancelled(count)], keep_alive=keep_alive)
    return done


def _cancel(row: Row, reason: str, code: str, at_once: bool) -> CancelTask:
    """A task of a graph that is being cancelled."""
    return CancelTask(reference_of(row.key), reason, code, at_once=at_once, whole=True)
