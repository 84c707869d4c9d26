"""Cancel a graph, pause it or a group of it, let it go on, limit it.

Each begins with a fence on the graph row; then come its tasks, in as many commits as they take and by any number of
callers. The rules are in `protocol.cancel`, `protocol.pause` and `protocol.set_limit`.
"""

import json
import logging
from typing import Final

from taskgraph.engine.transact import KeepAlive, Transactor, no_keep_alive
from taskgraph.model import limits
from taskgraph.model.columns import integer, texts
from taskgraph.model.errors import NoGraph
from taskgraph.model.ids import GRAPH, group_key, group_of, limit_key, limit_scope, reference_of
from taskgraph.model.messages import AddTasks, Cancel, HoldBack, Message, SetLimit
from taskgraph.model.states import PAUSED, TASK_UNRESOLVED, GraphState, TaskState, by_group, held_group
from taskgraph.protocol.cancel import BY_HAND, CancelGraph, CancelTask, CancelUnneeded, PublishCancelled
from taskgraph.protocol.concurrency import missing_scopes, scopes_of
from taskgraph.protocol.context import CANCELLED, Outcome
from taskgraph.protocol.decide import Answer, Item
from taskgraph.protocol.definitions import members_of
from taskgraph.protocol.extension import is_deferring
from taskgraph.protocol.pause import Hold, PublishHolds, Settle
from taskgraph.protocol.propagation import DEFERRED, GOING, READY, RECALL
from taskgraph.protocol.recall import Ready, Recall
from taskgraph.protocol.rows import Draft
from taskgraph.protocol.set_limit import ChangeLimit, ComeUnder, PublishLimits
from taskgraph.queries.groups import has_group
from taskgraph.storage.tables import Range, Row, query_all

log = logging.getLogger("taskgraph.handlers")

_FENCE_ROWS: Final = 3  # the graph, an extension that ends with it, the event


async def fence_of(transactor: Transactor, message: Message) -> list[Item]:
    """The fence that a message begins with, and what goes along with it; nothing for other messages.

    Raises NotFound for an unknown graph.
    """
    match message:
        case Cancel(tasks=()):
            return await _cancelling(transactor, message)
        case HoldBack(tasks=()):
            return await _holding(transactor, message)
        case SetLimit():
            return [_limiting(message)]
        case _:
            return []


async def cancel_graph(transactor: Transactor, message: Cancel, *, keep_alive: KeepAlive = no_keep_alive) -> Answer:
    """Fence a graph off, and cancel its tasks. Raises NotFound for an unknown graph."""
    items = await _cancelling(transactor, message)
    answer, *_ = await transactor.transition(message.graph, items, keep_alive=keep_alive)
    return answer


async def _cancelling(transactor: Transactor, message: Cancel) -> list[Item]:
    """The fence, and ready and running tasks as far as there is room in its commit, the ready first.

    Unless there are more ready ones, nothing begins after the fence.
    """
    graph_id, reason = message.graph, message.reason or BY_HAND
    graph = await _graph(transactor, graph_id)
    items: list[Item] = [CancelGraph(reason, at_once=message.terminate, reopened=message.reopened, by=message.by)]
    if graph.columns.get("state") in (GraphState.RUNNING, GraphState.BLOCKED):
        room = transactor.records.changes_max - _FENCE_ROWS
        for state in (TaskState.PENDING, TaskState.RUNNING):
            if len(items) <= room:
                found = Range("task:", "task;", where={"state": (str(state),)}, select=("state",))
                page = await transactor.records.tables.query(graph_id, found, limit=room)
                items += [_cancel(row, reason, CANCELLED, message.terminate, message.reopened) for row in page.rows]
        del items[room + 1 :]
    return items


async def go_on_cancelling(transactor: Transactor, graph_id: str, *, keep_alive: KeepAlive = no_keep_alive) -> int:
    """Cancel the tasks of a graph that is fenced off, and the graph itself once every task has ended.

    Runs that are being stopped are left to their workers. Any number of callers may do so at any time; returns how many
    tasks this one has cancelled, or marked.
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
        at_once, reopened = columns.get("terminate") is True, integer(columns, "reopened")
        if columns.get("recalls"):
            await recall(transactor, graph_id, keep_alive=keep_alive)
            (graph,) = await tables.get(graph_id, [GRAPH])
            if graph is None or graph.columns.get("recalls"):
                return done  # others are at it, or the sweep comes back
        left = await query_all(tables, graph_id, unresolved)
        items: list[Item] = [
            _cancel(row, reason, code, at_once, reopened)
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
        await transactor.transition(graph_id, [PublishCancelled(count, reopened)], keep_alive=keep_alive)
    return done


def _cancel(row: Row, reason: str, code: str, at_once: bool, reopened: int) -> CancelTask:
    return CancelTask(reference_of(row.key), reason, code, at_once=at_once, whole=True, reopened=reopened)


async def cancel_rest(
    transactor: Transactor, graph_id: str, tally: str, *, keep_alive: KeepAlive = no_keep_alive
) -> int:
    """Cancel what is left of a group that is decided; gives how many tasks were found.

    Any number of callers may do so at any time.
    """
    tables = transactor.records.tables
    found = await query_all(tables, graph_id, Range(group_key(group_of(tally)), f"{group_key(group_of(tally))};"))
    members = frozenset(members_of(found)) if found else frozenset()
    open_tasks = Range(
        "task:", "task;", where={"state": tuple(map(str, TASK_UNRESOLVED))}, select=("cancel", "manualReruns")
    )
    items: list[Item] = [
        CancelUnneeded(task_id, tally)
        for row in await query_all(tables, graph_id, open_tasks)
        if (task_id := reference_of(row.key)) in members
        and not row.columns.get("cancel")
        and not row.columns.get("manualReruns")
    ]
    if items:
        await transactor.transition(graph_id, items, keep_alive=keep_alive)
    return len(items)


async def recall(transactor: Transactor, graph_id: str, *, keep_alive: KeepAlive = no_keep_alive) -> int:
    """Go on with recalls, and let tasks go on that waited for the end of them; gives how many rows were found.

    Any number of callers may do so at any time.
    """
    items: list[Item] = []
    for due, prefixes in ((RECALL, ("task", "join", "fork")), (READY, ("task",))):
        for prefix in prefixes:
            found = Range(f"{prefix}:", f"{prefix};", where={"due": (due,)}, select=("due",))
            for row in await query_all(transactor.records.tables, graph_id, found):
                reference = reference_of(row.key)
                items.append(Recall(reference) if due == RECALL else Ready(reference))
    if items:
        await transactor.transition(graph_id, items, keep_alive=keep_alive)
    return len(items)


async def hold_back(transactor: Transactor, message: HoldBack, *, keep_alive: KeepAlive = no_keep_alive) -> Answer:
    """Pause a graph or a group of it, or let it go on. Raises NotFound for an unknown graph or group."""
    graph_id = message.graph
    items = await _holding(transactor, message)
    if message.group:
        graph = await _graph(transactor, graph_id)
        if not await has_group(transactor.records.tables, graph, graph_id, message.group):
            return Answer(items[0], Outcome.STALE)
    answer, *_ = await transactor.transition(graph_id, items, keep_alive=keep_alive)
    if answer.error is None:
        await settle_holds(transactor, graph_id, keep_alive=keep_alive)
        if not message.on and not message.group:
            (resumed,) = await transactor.records.tables.get(graph_id, [GRAPH])
            if resumed is None or is_deferring(Draft(GRAPH, resumed.columns, None)):
                return answer
            if deferred := texts(resumed.columns, DEFERRED):
                await transactor.dispatcher.send_events([AddTasks(graph_id, request) for request in deferred])
    return answer


async def _holding(transactor: Transactor, message: HoldBack) -> list[Item]:
    """What stands ready is settled in the fence's own commit, as far as there is room."""
    graph_id = message.graph
    holder = by_group(message.group) if message.group else PAUSED
    items: list[Item] = [Hold(holder, message.on, message.asked, message.reason, message.by, message.budget)]
    graph = await _graph(transactor, graph_id)
    if not message.group and message.on and not graph.columns.get("held"):
        number = integer(graph.columns, "holds") + 1
        room = transactor.records.changes_max - _FENCE_ROWS
        ready = Range("task:", "task;", where={"state": (str(TaskState.PENDING),)}, select=("state",))
        page = await transactor.records.tables.query(graph_id, ready, limit=room)
        items += [Settle(reference_of(row.key), (PAUSED,), number) for row in page.rows[:room]]
    return items


async def _graph(transactor: Transactor, graph_id: str) -> Row:
    (graph,) = await transactor.records.tables.get(graph_id, [GRAPH])
    if graph is None:
        raise NoGraph(graph_id)
    return graph


async def settle_holds(transactor: Transactor, graph_id: str, *, keep_alive: KeepAlive = no_keep_alive) -> int:
    """Write the holders of a graph onto its tasks, and onto the graph row that all tasks have them.

    Any number of callers may do so at any time; returns how many tasks this one has settled.
    """
    tables = transactor.records.tables
    unresolved = Range("task:", "task;", where={"state": tuple(map(str, TASK_UNRESOLVED))}, select=("holds", "groups"))
    done = 0
    for _ in range(limits.COMMIT_ATTEMPTS_MAX):
        (graph,) = await tables.get(graph_id, [GRAPH])
        if graph is None or graph.columns.get("settling") is not True:
            return done
        number = integer(graph.columns, "holds")
        found = json.loads(str(graph.columns.get("held", "") or "[]"))
        items: list[Item] = []
        for row in await query_all(tables, graph_id, unresolved):
            settled = row.columns.get("holds", 0)
            if not isinstance(settled, int) or settled < number:
                inside = {by_group(name) for name in texts(row.columns, "groups")}
                holders = tuple(each for each in found if not held_group(each) or each in inside)
                items.append(Settle(reference_of(row.key), holders, number))
        if not items:
            if graph.columns.get("extending"):
                return done  # its rows are still coming in: the sweep looks again
            await transactor.transition(graph_id, [PublishHolds(number)], keep_alive=keep_alive)
            continue
        answers = await transactor.transition(graph_id, items, keep_alive=keep_alive)
        if broken := [answer.error for answer in answers if answer.error is not None]:
            log.error("graph %s: %d tasks cannot be held back or let go: %s", graph_id, len(broken), broken[0])
            return done
        done += len(answers)
    return done


async def set_limit(transactor: Transactor, message: SetLimit, *, keep_alive: KeepAlive = no_keep_alive) -> Answer:
    """Limit a graph, or a group of it. Raises NotFound for an unknown graph or group."""
    tables, graph_id = transactor.records.tables, message.graph
    scope = limit_scope(graph_id, message.group)
    graph, row = await tables.get(graph_id, [GRAPH, limit_key(scope)])
    if graph is None:
        raise NoGraph(graph_id)
    item = _limiting(message)
    if row is None and message.group and not await has_group(tables, graph, graph_id, message.group):
        return Answer(item, Outcome.STALE)
    (answer,) = await transactor.transition(graph_id, [item], keep_alive=keep_alive)
    if answer.error is None:
        await go_on_limiting(transactor, graph_id, keep_alive=keep_alive)
    return answer


def _limiting(message: SetLimit) -> ChangeLimit:
    scope = limit_scope(message.graph, message.group)
    return ChangeLimit(scope, message.most, message.asked, message.reason, message.group, message.by)


async def go_on_limiting(transactor: Transactor, graph_id: str, *, keep_alive: KeepAlive = no_keep_alive) -> int:
    """Have the tasks of a graph name the limits that it was given, and the graph row that all of them do.

    Any number of callers may do so at any time; returns how many tasks this one has changed.
    """
    tables = transactor.records.tables
    done = 0
    for _ in range(limits.COMMIT_ATTEMPTS_MAX):
        (graph,) = await tables.get(graph_id, [GRAPH])
        if graph is None or graph.columns.get("limiting") is not True or graph.columns.get("state") not in GOING:
            return done
        tasks = Range("task:", "task;", select=("limits", "groups"))
        items: list[Item] = [
            ComeUnder(reference_of(row.key), more)
            for row in await query_all(tables, graph_id, tasks)
            if (more := missing_scopes(row.columns, graph.columns, graph_id))
        ]
        if not items:
            if graph.columns.get("extending"):
                return done  # its rows are still coming in: the sweep looks again
            await transactor.transition(graph_id, [PublishLimits(scopes_of(graph.columns))], keep_alive=keep_alive)
            continue
        answers = await transactor.transition(graph_id, items, keep_alive=keep_alive)
        if broken := [answer.error for answer in answers if answer.error is not None]:
            log.error("graph %s: %d tasks cannot be limited: %s", graph_id, len(broken), broken[0])
            return done
        if any(answer.outcome is Outcome.REFUSED for answer in answers):
            return done  # more tasks run than can be counted: the sweep looks again
        done += len(answers)
    return done
