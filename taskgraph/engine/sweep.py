"""The periodic repair: what a lost message, a dead worker or a half-way step has left undone is done (P22).

The sweep is level-triggered (it looks at rows, not at what happened), idempotent, and safe at any time in any number of
copies. Every change goes through the same decisions as a handler's, and nothing is kept in memory between two rounds.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Final

from taskgraph.engine import clock_trust, control
from taskgraph.engine.delete import delete, finish_deletion, sweep_beside
from taskgraph.engine.handlers import Handlers
from taskgraph.engine.live_index import drop_orphan, leave_live
from taskgraph.engine.requests import answer_request, late_requests
from taskgraph.engine.stall_check import watch
from taskgraph.engine.telemetry import TRACEPARENT_COLUMN
from taskgraph.model import limits
from taskgraph.model.columns import Columns, Value, is_held, texts
from taskgraph.model.errors import Conflict
from taskgraph.model.foreign_times import Standing, is_ahead
from taskgraph.model.ids import GRAPH, reference_of
from taskgraph.model.messages import AddTasks, Edit
from taskgraph.model.names import LIVE
from taskgraph.model.priorities import COLUMN, NORMAL, has_risen, level_now, level_of
from taskgraph.model.row_schema import WATCHED
from taskgraph.model.states import GRAPH_ENDED, GRAPH_GONE, GraphState, TaskState
from taskgraph.model.timing import DEADLINE_EXCEEDED, NEVER, clock_text, not_yet_seconds, overdue, ready_since
from taskgraph.protocol import leases, lifecycle
from taskgraph.protocol.cancel import CancelGraph
from taskgraph.protocol.concurrency import Limit, limits_of, scopes_of
from taskgraph.protocol.conditions import SKIP, may_skip
from taskgraph.protocol.decide import Item
from taskgraph.protocol.extension import is_deferring
from taskgraph.protocol.extension_plan import ADD_TASKS
from taskgraph.protocol.propagation import DEFERRED
from taskgraph.protocol.relays import Fire, Skip
from taskgraph.protocol.rows import Draft
from taskgraph.protocol.runs import LeaseLost, Overdue
from taskgraph.protocol.set_limit import Recount
from taskgraph.protocol.tally import CANCELLING
from taskgraph.queries.workers import clean
from taskgraph.storage.logs import StoredLogs
from taskgraph.storage.tables import Range, Row, query_all

log = logging.getLogger("taskgraph.sweep")

_OF_ITS_OWN: Final = frozenset({"notBefore", "deadline", "pendingTimeout", COLUMN})
"""Columns of tasks for which the sweep may have something to do before their message counts as lost."""

QUEUE_FULL: Final = 1000
"""A work queue with so many messages is not reminded of ever more, unless a task has waited very long."""

_CLEAN_SECONDS: Final = 600.0  # the registry is looked at about once in so long, by the time of day: nothing is kept
_REMIND_MAX: Final = 256  # times limits.REDISPATCH_SECONDS, between two reminders
_PATIENCE: Final = 10  # times limits.REDISPATCH_SECONDS, after which even a full queue is reminded
_LIMITS: Final = Range("limit:", "limit;")
_ITEMS_MAX: Final = 500  # items handed to one transition call; keeps its working set small


@dataclass(slots=True)
class Swept:
    """What one round did. The names of the counts are also those of the metric."""

    graphs: int = 0
    reminded: int = 0
    lease_lost: int = 0
    overdue: int = 0
    relay_fired: int = 0
    task_skipped: int = 0
    recalled: int = 0
    request_resent: int = 0
    index_mended: int = 0
    abandoned: int = 0
    cancelled: int = 0
    deleted: int = 0
    stalled: int = 0
    workers_forgotten: int = 0
    moved: int = 0  # events of queues that are not received from any more
    set_right: int = 0  # times that no clock of now can have written
    failed: list[str] = field(default_factory=list)  # what could not be repaired, with the graph and the reason

    @property
    def did_something(self) -> bool:
        mended = (
            self.reminded,
            self.lease_lost,
            self.overdue,
            self.relay_fired,
            self.task_skipped,
            self.recalled,
            self.stalled,
        )
        return any(mended) or bool(self.request_resent or self.cancelled or self.deleted or self.failed)


async def sweep(
    handlers: Handlers, *, period_seconds: float = limits.SWEEP_SECONDS, logs: StoredLogs | None = None
) -> Swept:
    """Look at every live graph once. logs: without them, graphs that are being deleted are left to others."""
    swept = Swept()
    began = handlers.clock.monotonic()
    listed = await query_all(handlers.records.tables, LIVE, Range())
    if listed or not handlers.dispatcher.has_moved_left:  # else there are no events
        swept.moved += await handlers.dispatcher.move_left()
    for row in listed:
        try:
            await sweep_graph(handlers, row.key, swept, live=row, period_seconds=period_seconds, logs=logs)
        except Conflict as conflict:  # other processes write it, and get it done
            swept.failed.append(f"{row.key}: {conflict}")
    if handlers.clock.now().timestamp() % _CLEAN_SECONDS < period_seconds * 1.5:
        swept.workers_forgotten += await clean(handlers.records.tables, handlers.clock.now())
    if swept.set_right and not handlers.clocks_doubted:
        handlers.clocks_doubted = True  # said once: a worker that lives writes such times again and again
        words = "%d rows hold times that no clock which agrees with this one can have written; they are set right"
        log.warning(words, swept.set_right)
    if handlers.telemetry.enabled:
        counts = {name.replace("_", "-"): count for name, count in asdict(swept).items() if name != "graphs"}
        counts["failed"] = len(swept.failed)
        handlers.telemetry.swept(handlers.clock.monotonic() - began, counts)
    return swept


@dataclass(slots=True)
class _Look:
    """One look at one graph: what is there, and what there is to do about it."""

    handlers: Handlers
    graph_id: str
    graph: Row
    swept: Swept
    now: datetime
    period_seconds: float
    at_once: bool
    logs: StoredLogs | None
    items: list[Item] = field(default_factory=list)
    open_tasks: list[Row] = field(default_factory=list)
    under: Mapping[str, Limit] = field(default_factory=dict)
    remind: dict[tuple[str, str], list[tuple[str, int, float]]] = field(default_factory=dict)
    """Target and level -> tasks whose message is sent again, with the seconds for which they have been ready."""
    unknown: dict[tuple[str, str], list[tuple[str, int]]] = field(default_factory=dict)
    """Target and level -> tasks that this process may not know of."""
    waits: list[Row] = field(default_factory=list)
    """Tasks that are ready, and under a limit."""

    @property
    def state(self) -> Value | None:
        return self.graph.columns.get("state")

    def due(self, age_seconds: float) -> bool:
        return is_due(age_seconds, self.period_seconds)


async def sweep_graph(
    handlers: Handlers,
    graph_id: str,
    swept: Swept,
    *,
    live: Row | None = None,
    period_seconds: float = limits.SWEEP_SECONDS,
    at_once: bool = False,
    logs: StoredLogs | None = None,
) -> None:
    """Look at one graph. at_once: send messages for every pending task, however fresh."""
    swept.graphs += 1
    now = handlers.clock.now()
    (graph,) = await handlers.records.tables.get(graph_id, [GRAPH])
    if graph is None:
        swept.index_mended += await drop_orphan(handlers.records.tables, LIVE, live, now)
        return
    if handlers.telemetry.enabled:  # what is sent again belongs to the trace of the graph
        handlers.telemetry.met(graph_id, graph.columns.get(TRACEPARENT_COLUMN))
    look = _Look(handlers, graph_id, graph, swept, now, period_seconds, at_once, logs)
    if await _is_over(look) or await _ends_by_deadline(look):
        return
    await _requests(look)
    await _relays(look)
    await _skips(look)
    await _recalls(look)
    await _open_tasks(look)
    await _transitions(look)
    await _remind(look)
    if not look.items and (look.state == GraphState.RUNNING or graph.columns.get("stalledBecause")):
        swept.stalled += await watch(handlers, graph_id, graph, look.open_tasks, now)
    await _go_on(look)
    await _rests(look)


async def _is_over(look: _Look) -> bool:
    """Whether the graph has ended or has not begun; what that leaves to do is done."""
    if look.state in (GraphState.MOVING, GraphState.MOVED):
        await _moved(look)
    elif look.state in GRAPH_GONE:
        await _deleted(look)
    elif look.state == GraphState.RESTORING:
        await _restoring(look)
    elif look.state in GRAPH_ENDED:
        await _ended(look)
    elif look.state == GraphState.SUBMITTING:
        await _submitting(look)
    else:
        return False
    return True


async def _ended(look: _Look) -> None:
    for request in await late_requests(look.handlers.records, look.graph_id):
        await answer_request(look.handlers, look.graph_id, request)  # it is refused
    await leave_live(look.handlers.records, look.graph_id)
    look.swept.index_mended += 1


async def _submitting(look: _Look) -> None:
    """Leave it to its submitter, or to the next call with the same content; give it up after a long time."""
    tables, now = look.handlers.records.tables, look.now
    created = look.graph.columns.get("created")
    before = now - timedelta(seconds=limits.ABANDONED_SECONDS)
    if isinstance(created, datetime) and created < before and await clock_trust.may_end(tables, now):
        await look.handlers.transition(look.graph_id, [lifecycle.Abandon(before)])
        look.swept.abandoned += 1


async def _ends_by_deadline(look: _Look) -> bool:
    """Whether the graph's own deadline has passed; then this call cancels it."""
    deadline = look.graph.columns.get("deadline")
    if look.state == GraphState.CANCELLING or not isinstance(deadline, datetime) or deadline > look.now:
        return False
    reason = f"its deadline {clock_text(deadline)} has passed"
    await look.handlers.transition(look.graph_id, [CancelGraph(reason, DEADLINE_EXCEEDED)])
    look.swept.overdue += 1
    return True


async def _relays(look: _Look) -> None:
    if not look.at_once and look.handlers.dispatcher.is_at_work(look.graph_id):
        return  # they are about to be passed on: of a wide graph, thousands stand ready for many seconds
    # From forks to joins: groups lie between them, and have no state.
    ready = Range("fork:", "join;", where={"state": (str(TaskState.PENDING),)}, select=("state",))
    relays = await query_all(look.handlers.records.tables, look.graph_id, ready)
    look.items.extend(Fire(reference_of(row.key)) for row in relays)
    look.swept.relay_fired += len(relays)


async def _skips(look: _Look) -> None:
    if may_skip(look.graph.columns.get):
        to_skip = Range("task:", "task;", where={"due": (SKIP,)}, select=("due",))
        skipped = await query_all(look.handlers.records.tables, look.graph_id, to_skip)
        look.items.extend(Skip(reference_of(row.key)) for row in skipped)
        look.swept.task_skipped += len(skipped)


async def _recalls(look: _Look) -> None:
    """Go on with recalls. The column stays when they are done: tasks may be left that wait for just that."""
    if look.graph.columns.get("recalls") is not None:
        look.swept.recalled += await control.recall(look.handlers, look.graph_id)


async def _rests(look: _Look) -> None:
    """Go on with cancelling what is left of groups that are decided."""
    if look.graph.columns.get("counting") is not True:
        return
    decided = Range("join:", "join;", where={"rest": (CANCELLING,)}, select=("rest",))
    for row in await query_all(look.handlers.records.tables, look.graph_id, decided):
        look.swept.cancelled += await control.cancel_rest(look.handlers, look.graph_id, row.key)


async def _open_tasks(look: _Look) -> None:
    unresolved = Range(
        "task:",
        "task;",
        where={"state": (str(TaskState.PENDING), str(TaskState.RUNNING))},
        select=WATCHED,
    )
    if look.graph.columns.get("limits"):
        rows = await query_all(look.handlers.records.tables, look.graph_id, _LIMITS)
        look.under = limits_of({row.key: row for row in rows})
    look.open_tasks = await query_all(look.handlers.records.tables, look.graph_id, unresolved)
    # Reading many takes a while: what was written meanwhile is not ahead of this clock.
    look.now = look.handlers.clock.now()
    for row in look.open_tasks:
        if not look.at_once and _is_fresh(row.columns, look.now):
            continue
        run = row.columns.get("run", 0)
        if not isinstance(run, int):
            continue  # damaged; doctor names it
        if not _is_to_change(look, row, run) and row.columns.get("state") != TaskState.RUNNING:
            await _ready(look, row, run)
    look.handlers.listeners.note_due(look.graph_id, (look.graph, *look.open_tasks), after=look.now)
    look.items += _recounts(look.under, look.open_tasks)


def _is_fresh(columns: Columns, now: datetime) -> bool:
    """Whether a task has just become ready, and has no time or level of its own: so it is with nearly all tasks."""
    since = columns.get("pendingSince")
    if not isinstance(since, datetime) or not now - timedelta(seconds=limits.REDISPATCH_SECONDS) < since <= now:
        return False
    return columns.get("state") == TaskState.PENDING and columns.keys().isdisjoint(_OF_ITS_OWN)


def _is_to_change(look: _Look, row: Row, run: int) -> bool:
    """Whether a task is to be set right, or is over: by time, or because its worker has died."""
    task_id, now = reference_of(row.key), look.now
    if leases.amended(row.columns.get, now):
        look.items.append(leases.SetRight(task_id))
        look.swept.set_right += 1
        return True  # the next round goes by what it says then
    # A task that is to be cancelled ends with its run, or with the lease of that.
    if not row.columns.get("cancel") and overdue(row.columns.get, now):
        look.items.append(Overdue(task_id))
        look.swept.overdue += 1
        return True
    if row.columns.get("state") == TaskState.RUNNING:
        has_end = isinstance(row.columns.get("leaseUntil"), datetime)  # doctor names one without
        if has_end and leases.lease(row.columns.get, now) is Standing.OVER:
            look.items.append(LeaseLost(task_id, run, str(row.columns.get("claim", ""))))
            look.swept.lease_lost += 1
            return True
    return False


async def _ready(look: _Look, row: Row, run: int) -> None:
    """Find out whether a ready task is sent again, and how."""
    handlers, now, task_id = look.handlers, look.now, reference_of(row.key)
    if is_held(row.columns.get("held")):
        return  # the command that lets it go sends it
    if not_yet_seconds(row.columns.get, now):
        return
    since = ready_since(row.columns.get)
    age = (now - since).total_seconds() if since is not None else limits.REDISPATCH_SECONDS
    now_due = look.due(age) or _is_first(row, age, look.period_seconds)
    if look.under and row.columns.get("limits"):
        # There may be many more of them than the limit has room for: what counts is how long there has been room.
        moved = [limit.moved for each in scopes_of(row.columns) if (limit := look.under.get(each))]
        still = min([(now - each).total_seconds() for each in moved if each is not None], default=age)
        if look.state != GraphState.CANCELLING and (look.at_once or now_due or look.due(min(age, still))):
            look.waits.append(row)
        return
    if look.state == GraphState.CANCELLING:
        return
    target, level = str(row.columns.get("target", "default")), level_of(row.columns.get)
    windows = handlers.dispatcher.windows
    put_by = windows is not None and windows.will_send(look.graph_id, task_id, run)
    now_due = (now_due and not put_by) or look.at_once
    if level != NORMAL or (age >= limits.AGE_SECONDS and handlers.dispatcher.knows_levels):
        # Only here it matters which levels are used.
        used = (await handlers.dispatcher.levels_used()).get(target, ())
        now_due = now_due or has_risen(level, since, now, used, look.period_seconds)
        level = level_now(level, since, now, used)
    if now_due:
        look.remind.setdefault((target, level), []).append((task_id, run, age))
    elif put_by or windows is None or age < limits.REDISPATCH_SECONDS:
        return
    elif not windows.knows(look.graph_id, task_id, run):
        look.unknown.setdefault((target, level), []).append((task_id, run))


async def _transitions(look: _Look) -> None:
    """Take the items that were found, and those that end tasks that wait for others past their deadline."""
    handlers, graph_id, swept, items = look.handlers, look.graph_id, look.swept, look.items
    expired, following = await _waiting_past_deadline(look)
    items += expired
    swept.overdue += len(expired)
    failures = len(swept.failed)
    for start in range(0, len(items), _ITEMS_MAX):
        answers = await handlers.transition(graph_id, items[start : start + _ITEMS_MAX])
        swept.failed.extend(f"{graph_id}: {answer.error}" for answer in answers if answer.error is not None)
    if following is not None and len(swept.failed) == failures:
        await handlers.transition(graph_id, [following])  # the commit says when the next one is over


async def _remind(look: _Look) -> None:
    """Send the messages of ready tasks again, unless their queue is full; let limited tasks take the room there is."""
    handlers, graph_id = look.handlers, look.graph_id
    rows = {row.key: row for row in look.open_tasks}
    for (target, level), tasks in look.remind.items():
        names = handlers.dispatcher.names_of(graph_id, target)
        full = not look.at_once and await handlers.queues.count(names.work(target, level)) >= QUEUE_FULL
        patience = _PATIENCE * limits.REDISPATCH_SECONDS
        due = [(task_id, run) for task_id, run, age in tasks if not full or age >= patience]
        if due:
            await handlers.dispatcher.dispatch(graph_id, target, due, level=level, rows=rows, reminder=True)
            look.swept.reminded += len(due)
    if look.waits:
        look.swept.reminded += await handlers.dispatcher.limited.refill_from(graph_id, look.waits)
    # The handler that led before may have died with ready tasks that it had not sent yet.
    if look.unknown and await handlers.dispatcher.leads(graph_id):
        for (target, level), unsent in look.unknown.items():
            await handlers.dispatcher.dispatch(graph_id, target, unsent, level=level, rows=rows)
            look.swept.reminded += len(unsent)


async def _go_on(look: _Look) -> None:
    """Go on with operations of many commits that were left half way."""
    if look.graph.columns.get("settling") is True:
        await control.settle_holds(look.handlers, look.graph_id)
    if look.graph.columns.get("limiting") is True:
        await control.go_on_limiting(look.handlers, look.graph_id)
    if look.state == GraphState.CANCELLING:
        look.swept.cancelled += await control.go_on_cancelling(look.handlers, look.graph_id)


async def _waiting_past_deadline(look: _Look) -> tuple[list[Item], lifecycle.NextDeadline | None]:
    """Items that end tasks that wait for others past their deadline, and the item to be decided after these.

    The graph row says when the next such deadline is: waiting tasks are looked at only then, and it is set anew.
    """
    graph, now = look.graph, look.now
    due = graph.columns.get("nextDeadline")
    if not isinstance(due, datetime) or due > now:
        return [], None
    waiting = Range("task:", "task;", where={"state": (str(TaskState.UNSCHEDULED),)}, select=("state", "deadline"))
    items: list[Item] = []
    following = NEVER
    for row in await query_all(look.handlers.records.tables, look.graph_id, waiting):
        deadline = row.columns.get("deadline")
        if overdue(row.columns.get, now):
            items.append(Overdue(reference_of(row.key)))
        elif isinstance(deadline, datetime):
            following = min(following, deadline)
    revision, again = graph.columns.get("revision", 0), graph.columns.get("waitsAgain", 0)
    if not isinstance(revision, int) or not isinstance(again, int) or graph.columns.get("extending"):
        return items, None  # not all rows of the extension may have been there
    return items, lifecycle.NextDeadline(due, revision, again, following)


def _recounts(under: Mapping[str, Limit], open_tasks: Sequence[Row]) -> list[Item]:
    """Items that take runs off the lists of limits that were not seen to be under way."""
    if not under:
        return []
    running = (row for row in open_tasks if row.columns.get("state") == TaskState.RUNNING)
    runs = {f"{reference_of(row.key)}:{row.columns.get('run', 0)}" for row in running}
    lost = {scope: tuple(each for each in limit.inside if each not in runs) for scope, limit in under.items()}
    return [Recount(scope, members) for scope, members in lost.items() if members]


def _is_first(row: Row, age_seconds: float, period_seconds: float) -> bool:
    """Whether no message was sent yet of a task that was to wait for longer than a queue keeps one."""
    since, not_before = row.columns.get("pendingSince"), row.columns.get("notBefore")
    if not isinstance(since, datetime) or not isinstance(not_before, datetime):
        return False
    long = (not_before - since).total_seconds() > limits.DELAY_SECONDS_MAX
    return long and age_seconds < max(period_seconds, 1.0) * 1.5


async def _deleted(look: _Look) -> None:
    """Go on with a deletion that was left half done, or take away rows that were written after it."""
    handlers, graph_id, graph, logs = look.handlers, look.graph_id, look.graph, look.logs
    if logs is None:
        return
    if graph.columns.get("state") == GraphState.DELETED:
        await sweep_beside(handlers, logs, graph_id, graph)
        await leave_live(handlers.records, graph_id)
        look.swept.index_mended += 1
        return
    await finish_deletion(handlers, logs, graph_id)
    look.swept.deleted += 1


async def _moved(look: _Look) -> None:
    """Leave it to the call that brings it to another store; take away what is left, once it is known to live there."""
    if look.logs is not None and look.graph.columns.get("received") is not None:
        from taskgraph.engine.transfer import empty  # here: few graphs move, and it imports this module

        await empty(look.handlers, look.logs, look.graph_id)
        look.swept.deleted += 1


async def _restoring(look: _Look) -> None:
    """Leave it to the call that restores it, or to the same call again; delete it after a long time.

    Not one that comes from another store: it may be there no more.
    """
    if "arrival" in look.graph.columns:
        return
    handlers, graph_id, logs, now = look.handlers, look.graph_id, look.logs, look.now
    since, old = look.graph.columns.get("restoring"), timedelta(seconds=limits.ABANDONED_SECONDS)
    if logs is None or not isinstance(since, datetime) or now - since <= old:
        return
    if await clock_trust.may_end(handlers.records.tables, now):
        await delete(handlers, logs, graph_id, force=True, because="it was restored in part, and not to its end")
        look.swept.deleted += 1


def is_due(age_seconds: float, period_seconds: float) -> bool:
    """Whether the message of a task that has been ready for so long is sent again in this round.

    At T, 2T, 4T, 8T … 256T, 512T, 768T: messages of a long backlog are sent seldom, and a round that comes every
    `period_seconds` misses none of these moments. A task that looks too old, by a clock far behind, is sent every 256T.
    """
    if age_seconds < limits.REDISPATCH_SECONDS:
        return False
    last, most = limits.REDISPATCH_SECONDS, _REMIND_MAX * limits.REDISPATCH_SECONDS
    while last * 2 <= min(age_seconds, most):
        last *= 2
    return (age_seconds - last) % most < max(period_seconds, 1.0) * 1.5


async def _requests(look: _Look) -> None:
    """Send the messages of open extensions and edits again; each time those that waited for the graph to be resumed."""
    handlers, graph, graph_id, now = look.handlers, look.graph, look.graph_id, look.now
    deferred, paused = texts(graph.columns, DEFERRED), is_deferring(Draft(GRAPH, graph.columns, None))
    looked_at = ("state", "staged", "kind")
    open_requests = Range("request:", "request;", where={"state": ("staged", "accepted")}, select=looked_at)
    due: list[AddTasks | Edit] = []
    for row in await query_all(handlers.records.tables, graph_id, open_requests):
        staged = row.columns.get("staged")
        age = limits.REDISPATCH_SECONDS
        if isinstance(staged, datetime) and not is_ahead(staged, now):
            age = (now - staged).total_seconds()
        waits = row.key.removeprefix("request:") in deferred
        if (not waits and (look.at_once or look.due(age))) or (waits and not paused):
            kind = AddTasks if row.columns.get("kind", ADD_TASKS) == ADD_TASKS else Edit
            due.append(kind(graph_id, row.key.removeprefix("request:")))
    if due:
        await handlers.dispatcher.send_events(due)
        look.swept.request_resent += len(due)
