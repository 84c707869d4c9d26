"""Handle a message: look up rows, decide, commit once, send what follows.

What this room is for: the one loop by which anything changes a graph, for handlers, workers' claims and the sweep
alike (D8, D16). What it remembers between calls makes it quicker, and may be old or lost at any time; any number of
copies may work on one graph. It never acknowledges a message (its caller does, last) and never contains a rule about
tasks.
"""

import json
import logging
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Protocol

from taskgraph.engine.commit import Records, name_in
from taskgraph.engine.listeners import Listeners
from taskgraph.engine.plan_edit import plan_edit, read_request
from taskgraph.engine.plan_extension import EDIT, ExtensionPlan, plan_extension
from taskgraph.engine.row_cache import KeptRows
from taskgraph.engine.telemetry import OFF, Telemetry
from taskgraph.engine.transact import Counters, KeepAlive, Taker, Transactor, no_keep_alive, task_of
from taskgraph.model import limits
from taskgraph.model.clock import Clock
from taskgraph.model.columns import Columns, integer, is_held, texts
from taskgraph.model.errors import (
    Conflict,
    IntegrityError,
    InvalidGraph,
    NotFound,
    StorageError,
    TaskgraphError,
    Unclear,
)
from taskgraph.model.facts import routing_of
from taskgraph.model.ids import GRAPH, ids_text, is_task_id, limit_key, limit_scope, reference_of, row_key
from taskgraph.model.messages import (
    AddTasks,
    Cancel,
    Edit,
    HoldBack,
    Message,
    Rerun,
    RunTasks,
    Seen,
    SendReady,
    SetLimit,
    TaskCompleted,
    TaskFailed,
    bundles,
    to_text,
)
from taskgraph.model.names import LIVE, QueueNames
from taskgraph.model.placement import DEFAULT_TARGET
from taskgraph.model.priorities import COLUMN as PRIORITY
from taskgraph.model.priorities import LEVELS, NORMAL, level_now, level_of, rank
from taskgraph.model.states import (
    GRAPH_ENDED,
    GRAPH_GONE,
    PAUSED,
    TASK_UNRESOLVED,
    GraphState,
    TaskState,
    by_group,
    held_group,
)
from taskgraph.model.timing import not_yet_seconds, ready_since
from taskgraph.protocol.cancel import BY_HAND, CancelGraph, CancelTask, PublishCancelled
from taskgraph.protocol.concurrency import Limit, limit_of, limits_of, scopes_of
from taskgraph.protocol.context import (
    CANCELLED,
    Cancelling,
    Dispatch,
    Effect,
    GraphEnded,
    GraphRevived,
    Refill,
    Started,
    Stop,
)
from taskgraph.protocol.decide import (
    Answer,
    Claim,
    Completed,
    Decision,
    Failed,
    Item,
    ManualRerun,
    Outcome,
)
from taskgraph.protocol.definitions import SCHEMA
from taskgraph.protocol.dispatch_windows import Parcel, Windows
from taskgraph.protocol.edit import EDITED, EditGraph, RefuseEdit
from taskgraph.protocol.extension import DeferExtension, is_deferring, request_key
from taskgraph.protocol.limited_backlog import WAITING_MAX, WHOLE_SECONDS, Backlog, Waiting
from taskgraph.protocol.pause import Hold, HoldTask, PublishHolds, Settle
from taskgraph.protocol.propagation import DEFERRED
from taskgraph.protocol.rows import Draft
from taskgraph.protocol.set_limit import NOT_LIMITED, ChangeLimit
from taskgraph.queries.groups import group_members, group_rows
from taskgraph.queries.targets import levels_used, use_level
from taskgraph.storage.queues import Queues
from taskgraph.storage.tables import Delete, Range, Row, query_all

log = logging.getLogger("taskgraph.handlers")

_SHARES_MIN: Final = 2  # into so many messages at least goes what is ready
_WORKER_SECONDS: Final = 60.0
_SEEN_CHARS_MAX: Final = 1_000  # of a definition that goes along with a work message
_COUNTED_MAX: Final = 10_000  # graphs
_LOOKED_AT: Final = tuple(str(state) for state in GraphState if state not in {*GRAPH_ENDED, GraphState.DELETED})
_FENCE_ROWS: Final = 3  # the graph, an extension that ends with it, the event
_LOOK_PAGES_MAX: Final = 4  # of ready tasks that are under a limit, in one look for them
_WAITS: Final = ("run", "target", "limits", "held", "pendingSince", "notBefore", PRIORITY)


_BELL_SECONDS: Final = 2.0  # between two messages that tell idle workers of a target that a level of it is used


class Receiver(Protocol):
    """What receives messages in this process, and has them handled."""

    def takes(self, graph_id: str) -> bool:
        """Whether it handles this graph, and no other process does."""
        ...

    async def leads(self, graph_id: str) -> bool:
        """Whether it is the one to look after this graph; asks for the lead, where that is free."""
        ...

    def mind_unsent(self) -> None:
        """Something was put by, to be sent later: see to it that `pump` is called."""
        ...


@dataclass(frozen=True, slots=True)
class Handled:
    """What became of one message: answers of its items, or the error that leaves it to redelivery."""

    message: Message
    answers: tuple[Answer, ...] = ()
    error: TaskgraphError | None = None


@dataclass(slots=True)
class Handlers:
    """Everything that changes rows of graphs."""

    records: Records
    queues: Queues
    clock: Clock
    names: QueueNames = field(default_factory=QueueNames)
    counters: Counters = field(default_factory=Counters)
    listeners: Listeners = field(default_factory=Listeners)
    in_flight: dict[str, int] = field(default_factory=dict)
    """Graph id -> about how many tasks this process has sent out and not heard of again; for the size of bundles."""
    windows: Windows | None = None
    """What is ready and not sent yet, in a process that hears of results; None: all that is ready is sent at once."""
    receivers: list[Receiver] = field(default_factory=list)
    """What receives messages for these handlers: of several, each has graphs of its own, and one may lead."""
    workers: dict[str, float] = field(default_factory=dict)
    """Worker -> when this process heard of it last (monotonic seconds)."""
    backlogs: dict[str, Backlog] = field(default_factory=dict)
    """Graph id -> limited tasks that stand ready, as far as this process knows."""
    telemetry: Telemetry = OFF
    stalled_seconds: float = limits.STALLED_SECONDS
    """A graph of which nothing has moved for so long is marked by the sweep, unless it says otherwise itself."""
    clocks_doubted: bool = False
    """Whether this process has said that rows hold times of a clock that is off."""
    kept_rows_max: int | None = None
    """Rows that are remembered over all graphs; limits.KEPT_ROWS_MAX if None."""
    kept: KeptRows = field(init=False)
    transactor: Transactor = field(init=False)
    _levels: dict[tuple[str, str], float] = field(default_factory=dict)  # said to be used, and when (monotonic)
    _rung: dict[str, float] = field(default_factory=dict)  # target -> when its workers were told of levels
    _used: Mapping[str, Collection[str]] = field(default_factory=dict)
    _used_at: float | None = None

    def __post_init__(self) -> None:
        self.kept = KeptRows(self.records.tables, self.kept_rows_max)
        self.transactor = Transactor(
            self.records,
            self.clock,
            self.kept,
            self.counters,
            self.telemetry,
            self.listeners,
            self.follow_up,
            self.limited_wait,
        )

    def takes(self, graph_id: str) -> bool:
        """Whether no other process handles a graph: then what this one remembers of limited tasks is all there is."""
        return any(each.takes(graph_id) for each in self.receivers)

    async def leads(self, graph_id: str) -> bool:
        """Whether this process is the one that looks after a graph; asks for the lead, where that is free."""
        return not self.receivers or any([await each.leads(graph_id) for each in self.receivers])

    async def handle(
        self,
        graph_id: str,
        messages: Sequence[Message],
        *,
        keep_alive: KeepAlive = no_keep_alive,
        taker: Taker | None = None,
    ) -> list[Handled]:
        """Handle messages of one graph together: what arrives together is committed together (D12).

        taker: who claims, in the same commits, what becomes ready. An error that concerns one message is in its
        `Handled`; storage errors are raised and leave all of them.
        """
        handled: list[Handled] = []
        items: list[tuple[Message, Sequence[Item]]] = []
        completed: list[Completed | Claim] = []
        everything: list[Item] = []
        for message in messages:
            match message:
                case TaskCompleted():
                    if message.worker:
                        self.workers[message.worker] = self.clock.monotonic()
                    facts = _completed(message)
                    items.append((message, facts))
                    completed += facts
                    everything += facts
                case TaskFailed() | Rerun() | Cancel(tasks=(_, *_)) | HoldBack(tasks=(_, *_)):
                    asked = _items(message)
                    items.append((message, asked))
                    everything += asked
                case AddTasks() | Cancel() | Edit() | HoldBack() | SetLimit():
                    handled.append(await self._handle_alone(message, keep_alive))
                case SendReady():
                    await self.adopt(message.graph, message.after, taker=taker)
                    handled.append(Handled(message))
                case RunTasks():
                    raise TypeError("work messages are for workers")
        answers: list[Answer] = []
        if len(everything) > len(completed):
            answers = await self.transition(graph_id, everything, keep_alive=keep_alive, taker=taker)
        elif completed or (taker is not None and taker.wants(graph_id)):
            answers = await self.advance(graph_id, completed, keep_alive=keep_alive, taker=taker)
        by_item = {id(answer.item): answer for answer in answers}
        for message, own in items:
            mine = tuple(by_item[id(item)] for item in own)
            failure = next((answer.error for answer in mine if answer.error), None)
            handled.append(Handled(message, mine, failure))
        return handled

    async def _handle_alone(
        self, message: AddTasks | Cancel | Edit | HoldBack | SetLimit, keep_alive: KeepAlive
    ) -> Handled:
        """Handle what takes commits of its own. Raises storage errors alone."""
        answers: tuple[Answer, ...] = ()
        try:
            match message:
                case AddTasks() | Edit():
                    await self.answer_request(message.graph, message.request, keep_alive=keep_alive)
                case Cancel():
                    answers = (await self.cancel_graph(message, keep_alive=keep_alive),)
                case HoldBack():
                    answers = (await self.hold_back(message, keep_alive=keep_alive),)
                case SetLimit():
                    answers = (await self.set_limit(message, keep_alive=keep_alive),)
        except StorageError:
            raise
        except TaskgraphError as error:
            return Handled(message, error=error)
        return Handled(message, answers, next((answer.error for answer in answers), None))

    async def transition(
        self,
        graph_id: str,
        items: Iterable[Item],
        *,
        keep_alive: KeepAlive = no_keep_alive,
        rows: dict[str, Row | None] | None = None,
        taker: Taker | None = None,
    ) -> list[Answer]:
        """Take items through read → decide → commit → send, in as many commits as they need.

        rows: what the caller has read already; brought up to date. Raises NotFound for an unknown graph or task, and
        Conflict when others kept writing for `limits.COMMIT_ATTEMPTS_MAX` rounds: release the message then (P26).
        """
        return await self.transactor.transition(graph_id, items, keep_alive=keep_alive, rows=rows, taker=taker)

    async def advance(
        self,
        graph_id: str,
        items: Iterable[Completed | Claim],
        *,
        keep_alive: KeepAlive = no_keep_alive,
        taker: Taker | None = None,
    ) -> list[Answer]:
        """`transition` for what a graph mostly consists of, by the rows that this process knows already.

        Known rows may be old. A change made by them is good, or its commit conflicts and they are read; whatever is
        decided by a row without changing it is only decided once that row has been read.
        """
        return await self.transactor.advance(graph_id, items, keep_alive=keep_alive, taker=taker)

    async def follow_up(
        self,
        transactor: Transactor,
        graph_id: str,
        decision: Decision,
        rows: Mapping[str, Row | None],
        *,
        taker: Taker | None,
        more: bool,
        keep_alive: KeepAlive,
    ) -> None:
        """See FollowUp."""
        parcels = self.landed(graph_id, decision.answers)
        if decision.effects:
            await self.emit(graph_id, decision.effects, rows, taker=taker, more=more, keep_alive=keep_alive)
        if parcels:
            await self.send_parcels(parcels, taker)

    def limited_wait(self, graph_id: str) -> bool:
        """Whether limited tasks of a graph are known to wait for room."""
        return bool((backlog := self.backlogs.get(graph_id)) and backlog.waiting)

    async def emit(
        self,
        graph_id: str,
        effects: Sequence[Effect],
        rows: Mapping[str, Row | None] | None = None,
        *,
        taker: Taker | None = None,
        more: bool = False,
        keep_alive: KeepAlive = no_keep_alive,
    ) -> None:
        """Send what follows from a commit. Sending twice is harmless; not sending is mended by the sweep.

        rows: as the commit left them. more: further commits of the same call will send more.
        """
        ready: dict[tuple[str, str], list[tuple[str, int]]] = {}
        later: dict[tuple[str, str, int], list[tuple[str, int]]] = {}
        started: list[Started] = []
        stops: list[Stop] = []
        limited: list[Refill] = []
        cancelling = False
        for effect in effects:
            match effect:
                case Refill():
                    limited.append(effect)
                case Dispatch(task_id, run, target, delay, level) if delay:
                    seconds = min(math.ceil(delay), limits.DELAY_SECONDS_MAX)  # those of one second go together
                    later.setdefault((target, level, seconds), []).append((task_id, run))
                case Dispatch(task_id, run, target, _, level):
                    ready.setdefault((target, level), []).append((task_id, run))
                case Started():
                    started.append(effect)
                case Stop():
                    stops.append(effect)
                case Cancelling(fenced):
                    cancelling = cancelling or fenced or not self._others_run(graph_id, rows)
                    self._forget_unsent(graph_id)
                case GraphEnded():
                    self.kept.forget(graph_id)
                    self.in_flight.pop(graph_id, None)
                    self.backlogs.pop(graph_id, None)
                    limited.clear()
                    self._forget_unsent(graph_id)
                    for ended in self.listeners.ended:
                        ended(graph_id)
                    await self.leave_live(graph_id)
                case GraphRevived():
                    await self.enter_live(graph_id)
        if taker is not None and started:
            taker.started(graph_id, started, rows or {})
        for target, level in sorted(ready, key=lambda each: rank(each[1])):
            fresh = self._to_send(graph_id, target, level, list(dict.fromkeys(ready[target, level])))
            if taker is not None:
                fresh = taker.keep(graph_id, target, fresh, rows or {})
            if fresh:
                await self._send(graph_id, target, level, fresh, rows=rows, more=more)
        for (target, level, seconds), tasks in later.items():
            await self._send(graph_id, target, level, list(dict.fromkeys(tasks)), rows=rows, delay_seconds=seconds)
        if limited:
            await self.refill(graph_id, limited, rows, taker=taker)
        if stops:
            for tell_worker in self.listeners.stop:
                tell_worker(graph_id, stops)
        if cancelling:
            await self.go_on_cancelling(graph_id, keep_alive=keep_alive)

    def _others_run(self, graph_id: str, rows: Mapping[str, Row | None] | None) -> bool:
        """Whether a large graph that is being cancelled is known to wait for more than the run that has just ended.

        A small one is looked at each time, which costs a query.
        """
        graph = rows.get(GRAPH) if rows is not None else None
        tasks, failed = (graph.columns.get("tasks"), graph.columns.get("failedTasks")) if graph else (0, 0)
        if not isinstance(tasks, int) or not isinstance(failed, int) or tasks <= limits.COUNTED_TASKS_MAX:
            return False
        return 0 <= self.records.begin(graph_id).completed < tasks - failed

    async def dispatch(
        self,
        graph_id: str,
        target: str,
        tasks: Sequence[tuple[str, int]],
        *,
        level: str = NORMAL,
        rows: Mapping[str, Row | None] | None = None,
        more: bool = False,
        size: int = 0,
        delay_seconds: float = 0,
    ) -> None:
        """Send what is ready, as far as the window of its queue has room; the rest is sent later (`pump`, `landed`).

        rows: rows of the tasks, as far as they are known: a message says what was seen. more: this is a part of plenty.
        size: so many tasks in each message, and all at once; 0 for as many as suit. delay_seconds: until they can be
        received; all at once, too.
        """
        if not size and not delay_seconds:
            tasks = self._to_send(graph_id, target, level, tasks)
        if tasks:
            await self._send(
                graph_id, target, level, tasks, rows=rows, more=more, size=size, delay_seconds=delay_seconds
            )

    async def _send(
        self,
        graph_id: str,
        target: str,
        level: str,
        tasks: Sequence[tuple[str, int]],
        *,
        rows: Mapping[str, Row | None] | None = None,
        more: bool = False,
        size: int = 0,
        delay_seconds: float = 0,
    ) -> None:
        """Send work messages: one task each while there are few, more in one when there is plenty (D12).

        more: this is a part of plenty.
        """
        flying = self.in_flight.get(graph_id, 0)
        if self.windows is not None:
            flying += self.windows.unsent(graph_id)
        if not size:
            size = limits.BUNDLE_TASKS_MAX if more else (len(tasks) + flying) // self._shares()
            size = max(1, min(limits.BUNDLE_TASKS_MAX, size))
        if len(self.in_flight) >= _COUNTED_MAX:
            self.in_flight.clear()
        self.in_flight[graph_id] = self.in_flight.get(graph_id, 0) + len(tasks)
        alone = not flying and len(tasks) == 1
        entries = [(task, run, _seen(task, run, rows, alone=alone)) for task, run in tasks]
        routing = _routing(tasks, rows)

        def make(part: tuple[tuple[str, int, Seen | None], ...]) -> Message:
            seen = {task: what for task, _, what in part if what is not None}
            own = {task: routing[task] for task, _, _ in part if task in routing} if routing else routing
            return RunTasks(graph_id, target, tuple([(task, run) for task, run, _ in part]), seen, routing=own)

        messages = bundles(make, entries, size)
        if level != NORMAL:
            await self._announce(graph_id, target, level, tasks[0], routing, delay_seconds)
        await self.queues.send(
            self.names.work(target, level), [to_text(message) for message in messages], delay_seconds=delay_seconds
        )
        self.counters.dispatched += len(tasks)
        if self.telemetry.enabled:
            self.telemetry.dispatched(target, len(tasks))

    async def _announce(
        self, graph_id: str, target: str, level: str, task: tuple[str, int], routing: Mapping[str, str], delay: float
    ) -> None:
        """See to it that workers of a target ask for this level: a row says that it is used.

        Workers read that row while they have work. One that is idle looks when something comes to the queue that all
        of them ask: so every few seconds a message goes there too.
        """
        now = self.clock.monotonic()
        said = self._levels.get((target, level))
        if said is None or now - said >= limits.LEVEL_SECONDS / 2:
            await use_level(self.records.tables, target, level, self.clock.now())
            self._levels[target, level] = now
        rung = self._rung.get(target)
        if rung is None or now - rung >= _BELL_SECONDS:
            self._rung[target] = now
            hint = to_text(RunTasks(graph_id, target, (task,), level=level, routing=routing))
            await self.queues.send(self.names.work(target), [hint], delay_seconds=delay)

    @property
    def knows_levels(self) -> bool:
        """Whether this process has met any level besides `normal`."""
        return bool(self._levels or self._used)

    async def levels_used(self) -> Mapping[str, Collection[str]]:
        """Target -> the levels besides `normal` that are used, as it was some seconds ago at most."""
        now = self.clock.monotonic()
        if self._used_at is None or now - self._used_at >= limits.GATE_SECONDS:
            self._used_at = now
            self._used = await levels_used(self.records.tables, self.clock.now())
        return self._used

    def _to_send(
        self, graph_id: str, target: str, level: str, tasks: Sequence[tuple[str, int]]
    ) -> Sequence[tuple[str, int]]:
        """Those that the window of their queue has room for; the others are put by."""
        if self.windows is None:
            return tasks
        now, put_by = self.windows.offer(graph_id, (target, level), tasks, self.clock.monotonic())
        if put_by and self.receivers:
            theirs = (each for each in self.receivers if each.takes(graph_id))
            next(theirs, self.receivers[-1]).mind_unsent()
        return now

    def _forget_unsent(self, graph_id: str) -> None:
        if self.windows is not None:
            self.windows.forget(graph_id)

    async def send_parcels(self, parcels: Sequence[Parcel], taker: Taker | None) -> None:
        """Send what had been put by. Rows that are not known any more are read, many at once: they spare others reads.

        What is known to have moved on needs no message.
        """
        for n, parcel in enumerate(parcels):
            try:
                known = self.kept.of(parcel.graph)
                missing = [key for task_id, _ in parcel.tasks if (key := row_key(task_id)) not in known.rows]
                if missing:
                    await self.kept.load(parcel.graph, known, missing)
                    known.forget_absent()
                tasks: Sequence[tuple[str, int]] = [
                    (task_id, run)
                    for task_id, run in parcel.tasks
                    if not _has_moved_on(known.rows.get(row_key(task_id)), run)
                ]
                if taker is not None:
                    tasks = taker.keep(parcel.graph, parcel.target, tasks, known.rows)
                if tasks:
                    await self._send(parcel.graph, parcel.target, parcel.level, tasks, rows=known.rows)
            except StorageError:
                if self.windows is not None:
                    for left in parcels[n:]:
                        self.windows.returned(left)
                raise

    async def pump(self, *, taker: Taker | None = None) -> None:
        """Send what was put by and has room by now; look whether workers want more than has been sent.

        To be called every second or so while `protocol.dispatch_windows.waits`. Sends what nobody may ever ask for
        again, whatever has become of results: a process that hears of none goes on, as long as workers take what it
        sends.
        """
        if self.windows is None:
            return
        now = self.clock.monotonic()
        parcels = self.windows.fill()
        for sample in self.windows.to_look_at(now):
            (row,) = await self.records.tables.get(sample.graph, [row_key(sample.task_id)])
            parcels += self.windows.looked(sample, waits=_is_ready(row, sample.run), now=now)
        await self.send_parcels(parcels, taker)
        for graph_id in [each for each in self.windows.more if not self.windows.unsent(each)]:
            self.windows.more.discard(graph_id)
            await self.adopt(graph_id, taker=taker)

    async def leave_unsent(self, *, but: Collection[str] = ()) -> None:
        """Leave it to whoever handles these graphs from now on: one message for each. but: graphs that stay here."""
        if self.windows is not None and (graphs := [each for each in self.windows.graphs if each not in but]):
            await self.tell([SendReady(graph_id) for graph_id in graphs])
            for graph_id in graphs:
                self.windows.forget(graph_id)

    async def adopt(self, graph_id: str, after: str = "", *, taker: Taker | None = None) -> None:
        """Send what is ready in a graph and is not known to have been sent, by its rows.

        after: tasks up to this one have been sent by somebody else.
        """
        now, moment = self.clock.now(), self.clock.monotonic()
        used: Mapping[str, Collection[str]] | None = None
        limited = False
        (graph,) = await self.records.tables.get(graph_id, [GRAPH])
        if graph is None or graph.columns.get("state") not in (GraphState.RUNNING, GraphState.BLOCKED):
            return
        self.listeners.note_due(graph_id, [graph])
        ready = Range("task:", "task;", where={"state": (str(TaskState.PENDING),)})
        continuation = None
        while True:
            page = await self.records.tables.query(graph_id, ready, continuation=continuation)
            found: dict[tuple[str, str, int], list[tuple[str, int]]] = {}
            rows: dict[str, Row | None] = {row.key: row for row in page.rows}
            self.listeners.note_due(graph_id, page.rows)
            for row in page.rows:
                task_id, run = reference_of(row.key), row.columns.get("run")
                if not isinstance(run, int) or not _is_ready(row, run):
                    continue
                if scopes_of(row.columns):
                    limited = True  # what is under a limit waits for room
                    continue
                if self.windows is not None and self.windows.knows(graph_id, task_id, run):
                    continue
                level = level_of(row.columns.get)
                if level != NORMAL:
                    used = used if used is not None else await self.levels_used()
                    level = level_now(level, ready_since(row.columns.get), now, used.get(_target(row), ()))
                delay = not_yet_seconds(row.columns.get, now)
                if delay > limits.DELAY_SECONDS_MAX:
                    continue
                if task_id <= after and not run and not delay:
                    if self.windows is not None:
                        self.windows.was_sent(graph_id, (_target(row), level), [(task_id, run)], moment)
                else:
                    found.setdefault((_target(row), level, math.ceil(delay)), []).append((task_id, run))
            for (target, level, seconds), tasks in found.items():
                fresh: Sequence[tuple[str, int]] = tasks
                if not seconds:
                    fresh = self._to_send(graph_id, target, level, tasks)
                    if taker is not None:
                        fresh = taker.keep(graph_id, target, fresh, rows)
                if fresh:
                    await self._send(graph_id, target, level, fresh, rows=rows, delay_seconds=seconds)
            continuation = page.continuation
            if continuation is None:
                break
        if limited:
            await self.refill(graph_id, taker=taker)

    def _shares(self) -> int:
        """Into how many messages ready tasks go at least: one for each worker that has been heard of lately."""
        if len(self.workers) > _COUNTED_MAX:
            self.workers.clear()
        since = self.clock.monotonic() - _WORKER_SECONDS
        return max(_SHARES_MIN, sum(heard >= since for heard in self.workers.values()))

    async def tell(self, messages: Sequence[Message]) -> None:
        """Send events, each to its queue. Raises TooLarge, StorageUnavailable."""
        bodies: dict[str, list[str]] = {}
        for message in messages:
            bodies.setdefault(self.names.of(message), []).append(to_text(message))
        for queue, own in bodies.items():
            await self.queues.send(queue, own)

    async def events_waiting(self) -> int:
        """About how many events nobody has handled yet."""
        return sum([await self.queues.count(queue) for queue in self.names.received])

    async def refill(
        self,
        graph_id: str,
        ready: Sequence[Refill] = (),
        rows: Mapping[str, Row | None] | None = None,
        *,
        taker: Taker | None = None,
    ) -> int:
        """Tell those limited tasks of a graph for which there is room; gives how many these are. Repeatable.

        ready: what has just become so. rows: as the commit left them. Which tasks wait is remembered, and looked up
        where that may not be all; how much room there is the rows of the limits say.
        """
        if len(self.backlogs) >= _COUNTED_MAX and graph_id not in self.backlogs:
            self.backlogs.clear()
        backlog = self.backlogs.setdefault(graph_id, Backlog())
        for one in ready:
            if one.task_id:
                backlog.add(one.task_id, one.run, Waiting(one.target, one.scopes, one.since, one.rank))
        alone, now = self.takes(graph_id), self.clock.monotonic()
        # Rows that were kept are good enough where nobody else writes them.
        limits_known = limits_of(rows) if alone and rows is not None else {}
        if not backlog.waiting:
            if alone and now < backlog.whole_until:
                return 0
            if not limits_known:
                limits_known = await self._limits(graph_id)
            if all(len(limit.inside) >= limit.most for limit in limits_known.values()):
                return 0  # who ends one of these runs looks again
            await self._look_for_limited(graph_id, backlog, now)
        if missing := backlog.scopes.difference(limits_known):
            found = await self.records.tables.get(graph_id, [limit_key(scope) for scope in sorted(missing)])
            limits_known.update({limit.scope: limit for row in found if row is not None if (limit := limit_of(row))})
        by_queue: dict[tuple[str, int], list[tuple[str, int]]] = {}
        waiting = dict(backlog.waiting)
        for task_id, run, target in backlog.pick(limits_known, now):
            by_queue.setdefault((target, waiting[task_id, run].rank), []).append((task_id, run))
        for (target, place), tasks in by_queue.items():
            fresh: Sequence[tuple[str, int]] = tasks
            if taker is not None:
                fresh = taker.keep(graph_id, target, tasks, rows or {})
            if fresh:
                await self._send(graph_id, target, LEVELS[place], fresh, rows=rows)
        return sum(map(len, by_queue.values()))

    async def refill_from(self, graph_id: str, rows: Sequence[Row]) -> int:
        """The same, with rows of limited tasks that stand ready and may have gone unheard."""
        backlog = self.backlogs.setdefault(graph_id, Backlog())
        self.remember_waiting(backlog, rows, self.clock.monotonic())
        return await self.refill(graph_id)

    async def _limits(self, graph_id: str) -> dict[str, Limit]:
        rows = await query_all(self.records.tables, graph_id, Range("limit:", "limit;"))
        return {limit.scope: limit for limit in map(limit_of, rows)}

    async def _look_for_limited(self, graph_id: str, backlog: Backlog, now: float) -> None:
        """Look up which limited tasks stand ready; of very many, some: the others are found when these are told."""
        waits = Range("task:", "task;", where={"state": (str(TaskState.PENDING),), "limited": ("yes",)}, select=_WAITS)
        continuation: str | None = None
        backlog.whole_until = 0.0
        for _ in range(_LOOK_PAGES_MAX):
            page = await self.records.tables.query(graph_id, waits, continuation=continuation)
            self.remember_waiting(backlog, page.rows, now)
            continuation = page.continuation
            if len(backlog.waiting) >= WAITING_MAX:
                return  # even of the last page some may have been left out
            if continuation is None:
                backlog.whole_until = now + WHOLE_SECONDS
                return

    def remember_waiting(self, backlog: Backlog, rows: Iterable[Row], now: float) -> None:
        """Take over limited tasks that stand ready from their rows, but those that were told of just now."""
        for row in rows:
            columns, task_id = row.columns, reference_of(row.key)
            run, since = columns.get("run"), columns.get("pendingSince")
            if not isinstance(run, int) or columns.get("held", "[]") not in ("", "[]"):
                continue
            if not_yet_seconds(columns.get, self.clock.now()) or backlog.is_told(task_id, run, now):
                continue
            target, scopes = str(columns.get("target", "default")), scopes_of(columns)
            ready = since if isinstance(since, datetime) else None
            backlog.add(task_id, run, Waiting(target, scopes, ready, rank(level_of(columns.get))))

    async def set_limit(self, message: SetLimit, *, keep_alive: KeepAlive = no_keep_alive) -> Answer:
        """Change a limit of a graph, or of a group of it. Raises NotFound for an unknown graph or group."""
        graph_id = message.graph
        scope = limit_scope(graph_id, message.group)
        graph, row = await self.records.tables.get(graph_id, [GRAPH, limit_key(scope)])
        if graph is None:
            raise NotFound(f"there is no graph {graph_id}")
        item = ChangeLimit(scope, message.most, message.asked, message.reason)
        if row is None and message.group and not await self._has_group(graph, graph_id, message.group):
            return Answer(item, Outcome.STALE)
        if row is None:
            return Answer(item, Outcome.REFUSED, NOT_LIMITED)
        (answer,) = await self.transition(graph_id, [item], keep_alive=keep_alive)
        return answer

    def landed(self, graph_id: str, answers: Sequence[Answer]) -> list[Parcel]:
        """Tasks have been heard of again. Gives what there is room to send now."""
        if (backlog := self.backlogs.get(graph_id)) is not None:
            for answer in answers:
                if isinstance(answer.item, Claim | Completed | Failed) and answer.outcome is not Outcome.STALE:
                    backlog.forget(answer.item.task_id, answer.item.run)
        flying = self.in_flight.get(graph_id)
        if flying:
            heard = sum(isinstance(answer.item, Completed | Failed) for answer in answers)
            self.in_flight[graph_id] = max(0, flying - heard)
        if self.windows is None:
            return []
        task_ids = [task_id for answer in answers if not answer.error and (task_id := task_of(answer.item))]
        return self.windows.landed(graph_id, task_ids, self.clock.monotonic()) if task_ids else []

    async def late_requests(self, graph_id: str) -> list[str]:
        """Extensions and edits that were put down and not heard of yet, by the id of their request."""
        staged = Range("request:", "request;", where={"state": ("staged",)}, select=("state",))
        rows = await query_all(self.records.tables, graph_id, staged)
        return [row.key.removeprefix("request:") for row in rows]

    async def enter_live(self, graph_id: str) -> None:
        """Name the graph in the index of what the sweep looks at. Repeatable."""
        await name_in(self.records.tables, LIVE, graph_id, self.clock.now())

    async def leave_live(self, graph_id: str) -> None:
        """Take the graph off that index, unless it has to be looked at again by now. Repeatable.

        Its entry is read before all that speaks for leaving, and whatever makes it live enters it afterwards: what came
        between is a conflict here, and the entry stays.
        """
        tables = self.records.tables
        (entry,) = await tables.get(LIVE, [graph_id])
        if entry is None:
            return
        # The graph row comes right behind the requests: one question tells both.
        holds = Range("request:", f"{GRAPH}!", where={"state": ("staged", *_LOOKED_AT)}, select=("state",))
        if await query_all(tables, graph_id, holds):
            return  # late requests are answered by the sweep first
        try:
            await tables.commit(LIVE, [Delete(graph_id, entry.etag)])
        except (Conflict, Unclear):
            return  # it was left, or entered anew: the sweep looks again

    async def cancel_graph(self, message: Cancel, *, keep_alive: KeepAlive = no_keep_alive) -> Answer:
        """Fence a graph off, and cancel what is left of it. Raises NotFound for an unknown graph.

        What is ready or runs goes into the fence's own commit as far as there is room, the ready first: of a graph with
        no more of these than a commit takes, nothing begins after the fence.
        """
        graph_id = message.graph
        (graph,) = await self.records.tables.get(graph_id, [GRAPH])
        if graph is None:
            raise NotFound(f"there is no graph {graph_id}")
        items: list[Item] = [CancelGraph(message.reason or BY_HAND, at_once=message.terminate)]
        if graph.columns.get("state") in (GraphState.RUNNING, GraphState.BLOCKED):
            room = self.records.changes_max - _FENCE_ROWS
            for state in (TaskState.PENDING, TaskState.RUNNING):
                if len(items) <= room:
                    found = Range("task:", "task;", where={"state": (str(state),)}, select=("state",))
                    page = await self.records.tables.query(graph_id, found, limit=room)
                    items += [
                        _cancel(row, message.reason or BY_HAND, CANCELLED, message.terminate) for row in page.rows
                    ]
            del items[room + 1 :]
        answer, *_ = await self.transition(graph_id, items, keep_alive=keep_alive)
        return answer

    async def go_on_cancelling(self, graph_id: str, *, keep_alive: KeepAlive = no_keep_alive) -> int:
        """Cancel what is left of a graph that is fenced off, and say that it is cancelled once nothing is.

        Runs that are being stopped are left to their workers. Any number of callers may do so at any time; gives how
        many tasks this one has cancelled, or marked.
        """
        tables = self.records.tables
        unresolved = Range(
            "task:", "task;", where={"state": tuple(map(str, TASK_UNRESOLVED))}, select=("state", "cancel")
        )
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
            answers = await self.transition(graph_id, items, keep_alive=keep_alive)
            if broken := [answer.error for answer in answers if answer.error is not None]:
                # The sweep tries again, and `doctor` names the damage.
                log.error("graph %s: %d tasks cannot be cancelled: %s", graph_id, len(broken), broken[0])
                return done
            done += len(answers)
        if not left:
            count = None
            if columns.get("cutOff"):
                count = len(await query_all(tables, graph_id, Range("task:", "task;", select=("state",))))
            await self.transition(graph_id, [PublishCancelled(count)], keep_alive=keep_alive)
        return done

    async def hold_back(self, message: HoldBack, *, keep_alive: KeepAlive = no_keep_alive) -> Answer:
        """Pause a graph or a group of it, or let it go on. Raises NotFound for an unknown graph or group.

        What is ready goes into the fence's own commit as far as there is room.
        """
        graph_id = message.graph
        (graph,) = await self.records.tables.get(graph_id, [GRAPH])
        if graph is None:
            raise NotFound(f"there is no graph {graph_id}")
        holder = by_group(message.group) if message.group else PAUSED
        items: list[Item] = [Hold(holder, message.on, message.asked, message.reason)]
        if message.group:
            if not await self._has_group(graph, graph_id, message.group):
                return Answer(items[0], Outcome.STALE)
        elif message.on and not graph.columns.get("held"):
            number = _number(graph) + 1
            room = self.records.changes_max - _FENCE_ROWS
            ready = Range("task:", "task;", where={"state": (str(TaskState.PENDING),)}, select=("state",))
            page = await self.records.tables.query(graph_id, ready, limit=room)
            items += [Settle(reference_of(row.key), (PAUSED,), number) for row in page.rows[:room]]
        answer, *_ = await self.transition(graph_id, items, keep_alive=keep_alive)
        if answer.error is None:
            await self.settle_holds(graph_id, keep_alive=keep_alive)
            if not message.on and not message.group:
                (graph,) = await self.records.tables.get(graph_id, [GRAPH])
                waiting = graph is not None and not is_deferring(Draft(GRAPH, graph.columns, None))
                if graph is not None and waiting and (deferred := texts(graph.columns, DEFERRED)):
                    await self.tell([AddTasks(graph_id, request) for request in deferred])
        return answer

    async def _has_group(self, graph: Row, graph_id: str, name: str) -> bool:
        """Whether the graph has such a group. Raises NotFound for a name that no edit or deletion can have removed."""
        try:
            await group_rows(self.records.tables, graph_id, name)
        except NotFound:
            if not integer(graph.columns, "revision") and graph.columns["state"] not in GRAPH_GONE:
                raise
            return False  # it was there when it was asked for: the message comes late
        return True

    async def settle_holds(self, graph_id: str, *, keep_alive: KeepAlive = no_keep_alive) -> int:
        """Take what a graph holds back over to its tasks, and say so when all of them have it.

        Any number of callers may do so at any time; gives how many tasks this one has settled.
        """
        tables = self.records.tables
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
                await self.transition(graph_id, [PublishHolds(number)], keep_alive=keep_alive)
                if graph.columns.get("extending"):
                    return done  # its rows are still coming in: the sweep looks again
                continue
            answers = await self.transition(graph_id, items, keep_alive=keep_alive)
            if broken := [answer.error for answer in answers if answer.error is not None]:
                log.error("graph %s: %d tasks cannot be held back or let go: %s", graph_id, len(broken), broken[0])
                return done
            done += len(answers)
        return done

    async def answer_request(self, graph_id: str, request: str, *, keep_alive: KeepAlive = no_keep_alive) -> None:
        """Take one extension, or edit, from staged to done or refused, through as many commits as it needs.

        Those of a graph go one after the other: an extension that is under way is brought to its end first, by whoever
        comes by. Raises NotFound for an unknown graph or request.
        """
        try:
            await self._answer_request(graph_id, request, keep_alive)
        except (NotFound, IntegrityError):
            if not await is_gone(self.records, graph_id):
                raise  # otherwise its rows are being taken away, and what is missing is nobody's error

    async def _answer_request(self, graph_id: str, request: str, keep_alive: KeepAlive) -> None:
        key = request_key(request)
        while True:
            rows: dict[str, Row | None] = {}
            await self.records.load(graph_id, [GRAPH, key], rows)
            graph, head = rows[GRAPH], rows[key]
            if graph is None:
                raise NotFound(f"there is no graph {graph_id}")
            if graph.columns.get("state") in GRAPH_GONE:
                return  # it comes late
            if head is None:
                raise NotFound(f"graph {graph_id} has no request {request}")
            if head.columns.get("state") not in ("staged", "accepted"):
                if graph.columns.get("state") in GRAPH_ENDED:
                    await self.leave_live(graph_id)  # where it stayed for this request
                return
            under_way = str(graph.columns.get("extending", ""))
            if under_way and under_way != request:
                await self.answer_request(graph_id, under_way, keep_alive=keep_alive)
                continue
            if head.columns.get("kind") == EDIT:
                await self._edit(graph_id, request, graph, head, keep_alive)
                continue
            if head.columns.get("state") == "staged" and is_deferring(Draft(GRAPH, graph.columns, None)):
                (answer,) = await self.transition(graph_id, [DeferExtension(request)], rows=rows, keep_alive=keep_alive)
                if answer.error is not None:
                    raise answer.error
                if answer.outcome is Outcome.STALE:
                    continue  # it was resumed, or is over
                return
            try:
                plan = await plan_extension(self.records, graph_id, graph, head, now=self.clock.now())
            except InvalidGraph as error:
                raise IntegrityError(f"request {request} of graph {graph_id} holds no valid document") from error
            await keep_alive()
            await self._push(graph_id, key, plan, rows, keep_alive)

    async def _edit(self, graph_id: str, request: str, graph: Row, head: Row, keep_alive: KeepAlive) -> None:
        """Plan an edit for the graph as it is, and try it once; a plan that has been overtaken is made again."""
        try:
            document = await read_request(self.records, graph_id, request)
        except InvalidGraph as error:
            raise IntegrityError(f"request {request} of graph {graph_id} holds no valid document") from error
        again = "revision" in head.columns
        plan = await plan_edit(self.records, graph_id, graph, document, request, again=again)
        await keep_alive()
        (answer,) = await self.transition(graph_id, [plan], keep_alive=keep_alive)
        if answer.error is not None and isinstance(plan, EditGraph):
            # It is more than one commit takes, or rests on rows that contradict each other.
            refusal = RefuseEdit(request, plan.revision, str(answer.error))
            (answer,) = await self.transition(graph_id, [refusal], keep_alive=keep_alive)
        if answer.error is not None:
            raise answer.error

    async def _push(
        self, graph_id: str, key: str, plan: ExtensionPlan, rows: dict[str, Row | None], keep_alive: KeepAlive
    ) -> None:
        """Take the steps of a plan until the request is answered, or the plan is no longer valid."""
        while True:
            head = rows.get(key)
            if head is None:
                await self.records.load(graph_id, [key], rows)
                head = rows[key]
            if head is None:
                raise IntegrityError(f"graph {graph_id}: row {key} is gone")
            item = plan.step(head)
            if item is None:
                return
            rows = {each: rows[each] for each in (GRAPH, key) if each in rows}  # inserted rows need not be kept
            (answer,) = await self.transition(graph_id, [item], keep_alive=keep_alive, rows=rows)
            if answer.error is not None:
                raise answer.error
            if answer.outcome in (Outcome.STALE, Outcome.REPEATED):
                # Somebody else pushes it too. From acceptance on any plan is the right one; before, plan again.
                rows.clear()
                await self.records.load(graph_id, [key], rows)
                fresh = rows[key]
                if plan.whole or fresh is None or fresh.columns.get("state") != "accepted":
                    return


async def is_gone(records: Records, graph_id: str) -> bool:
    """Whether a graph is being deleted, or was: asked where something is missing, and not otherwise."""
    (graph,) = await records.tables.get(graph_id, [GRAPH])
    return graph is not None and graph.columns.get("state") in GRAPH_GONE


def _number(graph: Row) -> int:
    """Of the last fence of what is held back in a graph."""
    number = graph.columns.get("holds", 0)
    return number if isinstance(number, int) else 0


def _seen(task_id: str, run: int, rows: Mapping[str, Row | None] | None, *, alone: bool) -> Seen | None:
    """What a work message says of a task, None if its row is not known as it stands."""
    row = rows.get(row_key(task_id)) if rows is not None else None
    if rows is None or row is None:
        return None
    columns = row.columns
    definition = columns.get("task")
    if columns.get("state") != TaskState.PENDING or columns.get("run") != run or not isinstance(definition, str):
        return None
    if len(definition) > _SEEN_CHARS_MAX or columns.get("schema", 1) != SCHEMA:
        return None  # long ones would make for many messages
    if is_held(columns.get("held")):
        return None  # it was put by, and has been held back since: a claim by this hint would not know
    if EDITED in columns:
        return None  # of which edit the definition is, only the row says
    if "notBefore" in columns or "deadline" in columns or "pendingTimeout" in columns:
        return None  # whether it may be claimed now is for the row to say
    after = _only_next(task_id, columns, rows) if alone else ""
    return Seen(row.etag, str(columns.get("label", "")), definition, after)


def _routing(tasks: Sequence[tuple[str, int]], rows: Mapping[str, Row | None] | None) -> dict[str, str]:
    """TaskId -> its routing, of those that have one, as far as their rows are known."""
    if rows is None:
        return {}
    known = ((task_id, rows.get(row_key(task_id))) for task_id, _ in tasks)
    return {task_id: routing for task_id, row in known if row is not None and (routing := routing_of(row.columns))}


def _only_next(task_id: str, columns: Columns, rows: Mapping[str, Row | None]) -> str:
    """The task that waits for this one alone, if it is all that does; "" otherwise."""
    (after, *others) = json.loads(str(columns.get("dependents", "[]"))) or [""]
    if others or not is_task_id(after):
        return ""
    row = rows.get(row_key(after))
    waits = row is not None and row.columns.get("requiresLeft") == ids_text([task_id])
    return after if waits else ""


def _is_ready(row: Row | None, run: int) -> bool:
    """Whether a task stands pending in this run, and nothing holds it back."""
    if row is None or row.columns.get("state") != TaskState.PENDING or row.columns.get("run") != run:
        return False
    return not is_held(row.columns.get("held"))


def _has_moved_on(row: Row | None, run: int) -> bool:
    """Whether a row, which may be old, says of a run that it need not be sent: nothing goes back behind it.

    What is held back is sent by whoever lets it go.
    """
    if row is None or not isinstance(found := row.columns.get("run"), int):
        return False
    if is_held(row.columns.get("held")):
        return True
    return found > run or (found == run and row.columns.get("state") not in (TaskState.PENDING, TaskState.UNSCHEDULED))


def _target(row: Row) -> str:
    return str(row.columns.get("target", DEFAULT_TARGET))


def _completed(message: TaskCompleted) -> list[Completed]:
    return [Completed(r.task, r.run, r.claim, r.ended, r.resolution, r.etag, r.over) for r in message.tasks]


def _cancel(row: Row, reason: str, code: str, at_once: bool) -> CancelTask:
    """A task of a graph that is being cancelled."""
    return CancelTask(reference_of(row.key), reason, code, at_once=at_once, whole=True)


def _items(message: TaskFailed | Rerun | Cancel | HoldBack) -> list[Item]:
    match message:
        case HoldBack():
            return [HoldTask(task, message.on, message.asked, message.reason) for task in message.tasks]
        case TaskFailed():
            return [
                Failed(r.task, r.run, r.claim, r.ended, r.resolution, r.exception, r.temporary, r.retry_after)
                for r in message.tasks
            ]
        case Rerun():
            return [ManualRerun(message.task, message.run, message.reason)]
        case Cancel(tasks=tasks):
            reason = message.reason or BY_HAND
            return [CancelTask(task, reason, reruns=reruns, at_once=message.terminate) for task, reruns in tasks]
