"""Pause a graph or a group of it, or let it go on: the fence, and after it each task.

What this room is for: the fence says who holds back what; it is taken over to tasks in as many commits as that takes,
by any number of callers. What is held back is `protocol.pause`'s to say.
"""

import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from taskgraph.engine.transact import KeepAlive, Transactor, no_keep_alive
from taskgraph.model import limits
from taskgraph.model.columns import texts
from taskgraph.model.errors import NotFound
from taskgraph.model.ids import GRAPH, reference_of
from taskgraph.model.messages import AddTasks, HoldBack, Message
from taskgraph.model.states import PAUSED, TASK_UNRESOLVED, TaskState, by_group, held_group
from taskgraph.protocol.context import Outcome
from taskgraph.protocol.decide import Answer, Item
from taskgraph.protocol.extension import is_deferring
from taskgraph.protocol.pause import Hold, PublishHolds, Settle
from taskgraph.protocol.propagation import DEFERRED
from taskgraph.protocol.rows import Draft
from taskgraph.queries.groups import group_members, has_group
from taskgraph.storage.tables import Range, Row, query_all

log = logging.getLogger("taskgraph.handlers")

_FENCE_ROWS: Final = 3  # the graph, an extension that ends with it, the event


Tell = Callable[[Sequence[Message]], Awaitable[None]]
"""Sends events, each to its queue."""


async def hold_back(
    transactor: Transactor, tell: Tell, message: HoldBack, *, keep_alive: KeepAlive = no_keep_alive
) -> Answer:
    """Pause a graph or a group of it, or let it go on. Raises NotFound for an unknown graph or group.

    What is ready goes into the fence's own commit as far as there is room.
    """
    graph_id = message.graph
    (graph,) = await transactor.records.tables.get(graph_id, [GRAPH])
    if graph is None:
        raise NotFound(f"there is no graph {graph_id}")
    holder = by_group(message.group) if message.group else PAUSED
    items: list[Item] = [Hold(holder, message.on, message.asked, message.reason)]
    if message.group:
        if not await has_group(transactor.records.tables, graph, graph_id, message.group):
            return Answer(items[0], Outcome.STALE)
    elif message.on and not graph.columns.get("held"):
        number = _number(graph) + 1
        room = transactor.records.changes_max - _FENCE_ROWS
        ready = Range("task:", "task;", where={"state": (str(TaskState.PENDING),)}, select=("state",))
        page = await transactor.records.tables.query(graph_id, ready, limit=room)
        items += [Settle(reference_of(row.key), (PAUSED,), number) for row in page.rows[:room]]
    answer, *_ = await transactor.transition(graph_id, items, keep_alive=keep_alive)
    if answer.error is None:
        await settle_holds(transactor, graph_id, keep_alive=keep_alive)
        if not message.on and not message.group:
            (graph,) = await transactor.records.tables.get(graph_id, [GRAPH])
            waiting = graph is not None and not is_deferring(Draft(GRAPH, graph.columns, None))
            if graph is not None and waiting and (deferred := texts(graph.columns, DEFERRED)):
                await tell([AddTasks(graph_id, request) for request in deferred])
    return answer


async def settle_holds(transactor: Transactor, graph_id: str, *, keep_alive: KeepAlive = no_keep_alive) -> int:
    """Take what a graph holds back over to its tasks, and say so when all of them have it.

    Any number of callers may do so at any time; gives how many tasks this one has settled.
    """
    tables = transactor.records.tables
    unresolved = Range("task:", "task;", where={"state": tuple(map(str, TASK_UNRESOLVED))}, select=("holds",))
    done = 0
    for _ in range(limits.COMMIT_ATTEMPTS_MAX):
        (graph,) = await tables.get(graph_id, [GRAPH])
        if graph is None or graph.columns.get("settling") is not True:
            return done
        number = _number(graph)
        found = json.loads(str(graph.columns.get("held", "") or "[]"))
        try:
            groups = {
                holder: frozenset(await group_members(tables, graph_id, name))
                for holder in found
                if (name := held_group(holder))
            }
        except NotFound:
            if graph.columns.get("extending"):
                return done  # an inactive group of the extension, whose rows come next: the sweep looks again
            raise
        items: list[Item] = []
        for row in await query_all(tables, graph_id, unresolved):
            settled = row.columns.get("holds", 0)
            if not isinstance(settled, int) or settled < number:
                task_id = reference_of(row.key)
                holders = tuple(each for each in found if each not in groups or task_id in groups[each])
                items.append(Settle(task_id, holders, number))
        if not items:
            await transactor.transition(graph_id, [PublishHolds(number)], keep_alive=keep_alive)
            if graph.columns.get("extending"):
                return done  # its rows are still coming in: the sweep looks again
            continue
        answers = await transactor.transition(graph_id, items, keep_alive=keep_alive)
        if broken := [answer.error for answer in answers if answer.error is not None]:
            log.error("graph %s: %d tasks cannot be held back or let go: %s", graph_id, len(broken), broken[0])
            return done
        done += len(answers)
    return done


def _number(graph: Row) -> int:
    """Of the last fence of what is held back in a graph."""
    number = graph.columns.get("holds", 0)
    return number if isinstance(number, int) else 0
