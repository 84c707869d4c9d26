"""Send what follows from commits: work messages for ready tasks, and events.

The dispatcher owns what this process knows of what it has sent. How much goes out at once the windows say; tasks of one
target and level share messages; workers learn from a row that other levels than `normal` are used. All of it may be
lost or said twice: the sweep sends what went unheard, and a claim decides who runs a task. A limit lets so many tasks
of a graph, or of a group of it, run at one time: which tasks wait is remembered here too, and looked up where that may
not be all. This module never changes a row of a graph.
"""

import contextlib
import itertools
import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Protocol

from taskgraph.engine.bundle_sizes import BundleSizes
from taskgraph.engine.commit import Records
from taskgraph.engine.listeners import Counters, Listeners, LocalWorker
from taskgraph.engine.row_cache import RowCache
from taskgraph.engine.telemetry import Telemetry
from taskgraph.model import limits
from taskgraph.model.bundles import bundles
from taskgraph.model.clock import Clock
from taskgraph.model.columns import Columns, is_held
from taskgraph.model.errors import StaleDelivery, StorageError
from taskgraph.model.facts import routing_of
from taskgraph.model.ids import GRAPH, ids_text, is_task_id, limit_key, reference_of, row_key
from taskgraph.model.messages import Message, RunTasks, Seen, SendReady, graph_named, to_text
from taskgraph.model.names import OWN, QueueNames
from taskgraph.model.placement import DEFAULT_TARGET
from taskgraph.model.priorities import COLUMN as PRIORITY
from taskgraph.model.priorities import LEVELS, NORMAL, level_now, level_of, rank
from taskgraph.model.states import GraphState, TaskState
from taskgraph.model.timing import not_yet_seconds, ready_since
from taskgraph.protocol.concurrency import limit_of, limits_of, scopes_of
from taskgraph.protocol.context import Outcome, Refill, Started
from taskgraph.protocol.decide import Answer
from taskgraph.protocol.definitions import SCHEMA
from taskgraph.protocol.dispatch_windows import ReadyBatch, Windows
from taskgraph.protocol.edit import EDITED
from taskgraph.protocol.limited_backlog import WAITING_MAX, WHOLE_SECONDS, Backlog, Waiting
from taskgraph.protocol.runs import Claim, Completed, Failed
from taskgraph.queries.event_queues import EventQueues
from taskgraph.queries.targets import levels_used, use_level
from taskgraph.storage.queues import Queues
from taskgraph.storage.tables import Range, Row, pages, query_all

_MOVE_SECONDS: Final = 30.0
_SEEN_CHARS_MAX: Final = 1_000  # of a definition that goes along with a work message
_COUNTED_MAX: Final = 10_000  # graphs
_HINT_SECONDS: Final = 2.0  # between two messages to idle workers of a target, that a level of it is used
_LOOK_PAGES_MAX: Final = 4  # of ready tasks that are under a limit, in one look for them
_ENDS_WAITING: Final = (Claim, Completed, Failed)  # items after which a task does not wait for room
_WAITS: Final = ("run", "target", "limits", "held", "pendingSince", "notBefore", PRIORITY)


@dataclass(slots=True)
class OwnWork:
    """The queues of this process for the tasks of one graph. targets: those whose tasks go there, by callers."""

    names: QueueNames
    targets: Counter[str] = field(default_factory=Counter)
    worker: LocalWorker | None = None
    """That of this process which takes its tasks, if there is one by the time the graph is submitted."""
    claimed: list[Started] = field(default_factory=list)
    """What the commit that started the graph has claimed for it, to begin as it starts."""
    first: list[ReadyBatch] = field(default_factory=list)
    """What stood ready when the graph was submitted here, for the worker to take as it starts."""
    rest: SendReady | None = None
    """What the submission of the graph leaves to whatever handles it here."""
    entry: str = ""
    """Etag of its entry in the index of live graphs, as its submission has written it."""


class Receiver(Protocol):
    """What receives messages in this process, and has them handled."""

    def takes(self, graph_id: str) -> bool:
        """Whether it handles this graph, and no other process does."""

    def is_at_work(self, graph_id: str) -> bool:
        """Whether it handles something of this graph at the moment."""

    async def leads(self, graph_id: str) -> bool:
        """Whether it is the one to look after this graph; asks for the lead, where that is free."""

    def watch_unsent(self) -> None:
        """Something was put by, to be sent later: see to it that `pump` is called."""


@dataclass(slots=True)
class Dispatcher:
    """Sends messages, for every caller of one process."""

    records: Records
    queues: Queues
    clock: Clock
    names: QueueNames
    row_cache: RowCache
    counters: Counters
    telemetry: Telemetry
    listeners: Listeners
    windows: Windows | None = None
    """What is ready and not sent yet, in a process that receives results; None: all that is ready is sent at once."""
    receivers: list[Receiver] = field(default_factory=list)
    """What receives messages for these handlers: of several, each has graphs of its own, and one may lead."""
    own: dict[str, OwnWork] = field(default_factory=dict)
    """Graph id -> where tasks go that this process runs alone."""
    bundle_sizes: BundleSizes = field(init=False)
    event_queues: EventQueues = field(init=False)
    limited: "LimitedTasks" = field(init=False)
    has_moved_left: bool = False
    """Whether this process has looked at queues that are left: once, however long ago their number was changed."""
    _levels: dict[tuple[str, str], float] = field(default_factory=dict)  # said to be used, and when (monotonic)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))  # of `own`
    _hinted: dict[str, float] = field(default_factory=dict)  # queue -> when such a message was sent there
    _used: Mapping[str, Collection[str]] = field(default_factory=dict)
    _used_at: float | None = None

    def __post_init__(self) -> None:
        self.bundle_sizes = BundleSizes(self.records.tables, self.clock)
        self.event_queues = EventQueues(self.records.tables, self.clock, self.names)
        self.limited = LimitedTasks(self)

    def join(self, receiver: Receiver) -> None:
        """It receives messages here from now on, unless it does so already; so results come in, too."""
        self.windows = self.windows or Windows()
        if receiver not in self.receivers:
            self.receivers.append(receiver)

    def takes(self, graph_id: str) -> bool:
        """Whether no other process handles a graph: then what this one remembers of limited tasks is all there is."""
        return any(each.takes(graph_id) for each in self.receivers)

    def is_at_work(self, graph_id: str) -> bool:
        """Whether something of a graph is being handled here at the moment."""
        return any(each.is_at_work(graph_id) for each in self.receivers)

    async def leads(self, graph_id: str) -> bool:
        """Whether this process is the one that looks after a graph; asks for the lead, where that is free."""
        return not self.receivers or any([await each.leads(graph_id) for each in self.receivers])

    @contextlib.contextmanager
    def keeping(self, graph_id: str, targets: Collection[str]) -> Iterator[QueueNames]:
        """Meanwhile tasks of a graph that go to these targets are sent to queues of this process; gives their names.

        Several callers for one graph share them.
        """
        own = self.own.get(graph_id)
        if own is None:
            own = self.own[graph_id] = OwnWork(QueueNames(f"{OWN}{next(self._numbers)}"))
        own.targets.update(targets)
        try:
            yield own.names
        finally:
            own.targets.subtract(targets)
            if not +own.targets:
                self.own.pop(graph_id, None)

    def names_of(self, graph_id: str, target: str) -> QueueNames:
        """The names of the queues that tasks of a graph and target are sent to."""
        own = self.own.get(graph_id)
        return own.names if own is not None and own.targets[target] else self.names

    async def send_events(self, messages: Sequence[Message]) -> None:
        """Send events, each to its queue. Raises TooLarge, StorageUnavailable."""
        bodies: dict[str, list[str]] = {}
        for message in messages:
            bodies.setdefault(await self.event_queues.queue_of(message), []).append(to_text(message))
        for queue, own in bodies.items():
            await self.queues.send(queue, own)

    def keeps_all(self, graph_id: str, targets: Collection[str]) -> bool:
        """Whether tasks of a graph that go to these targets are offered to no other process."""
        own = self.own.get(graph_id)
        return own is not None and all(own.targets[each] for each in targets)

    async def send_first(self, graph_id: str, local_worker: LocalWorker) -> None:
        """Give the worker of this process what stood ready when its graph was submitted here."""
        if (own := self.own.get(graph_id)) is not None:
            rows = self.row_cache.of(graph_id).rows
            claimed, own.claimed = own.claimed, []
            local_worker.started(graph_id, claimed, rows)
            batches, own.first = own.first, []
            for batch in batches:
                await self.dispatch(
                    graph_id, batch.target, batch.tasks, level=batch.level, rows=rows, local_worker=local_worker
                )

    async def leave(self, rest: SendReady) -> None:
        """Leave what else is ready in a graph to its handlers: those of this process, if tasks go to its own queues."""
        if own := self.own.get(rest.graph):
            own.rest = rest
        else:
            await self.send_events([rest])

    async def events_waiting(self) -> int:
        """About how many events wait to be handled."""
        await self.event_queues.refresh()
        return sum([await self.queues.count(queue) for queue in self.event_queues.received])

    async def move_left(self) -> int:
        """Send what lies on queues of events that are received no more to those that are; gives how many.

        Looks at the number of queues, too. Raises StorageUnavailable.
        """
        moved = 0
        await self.event_queues.look()
        left = self.event_queues.left() if self.event_queues.may_be_sent_to() or not self.has_moved_left else ()
        for queue in left:
            while found := await self.queues.receive(queue, count=limits.RECEIVE_MAX, lease_seconds=_MOVE_SECONDS):
                for delivery in found:
                    await self.queues.send(self.event_queues.of(graph_named(delivery.body)), [delivery.body])
                    with contextlib.suppress(StaleDelivery):  # another process moves it, too  # reach: lead
                        await self.queues.delete(delivery)
                moved += len(found)
        self.has_moved_left = True
        return moved

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
        local_worker: LocalWorker | None = None,
        windowed: bool = True,
        shared: bool = False,
        reminder: bool = False,
    ) -> None:
        """Send what is ready, one task each while there are few, more in one message when there is plenty (D12).

        rows: rows of the tasks, as far as they are known: a message says what was seen. more: this is a part of plenty.
        size: so many tasks in each message, and all at once; 0 for as many as suit, as far as the window of their queue
        has room, unless not `windowed`: the rest is sent later (`dispatch_waiting`, `on_results`). delay_seconds: until
        they can be received; all at once, too. local_worker: keeps what it will claim soon. shared: for all workers.
        reminder: it was sent before, and perhaps nothing could read it.
        """
        if not delay_seconds:
            if local_worker is not None and graph_id in self.own:  # it is offered to no other
                tasks, local_worker = local_worker.keep(graph_id, target, tasks, rows or {}), None
            if windowed and not size:
                tasks = self._within_window(graph_id, target, level, tasks)
            if local_worker is not None:
                tasks = local_worker.keep(graph_id, target, tasks, rows or {})
        if not tasks:
            return
        flying = self.bundle_sizes.in_flight.get(graph_id, 0)
        if self.windows is not None:
            flying += self.windows.unsent(graph_id)
        names = self.names if shared else self.names_of(graph_id, target)
        if not size:
            waiting, own = math.inf if more else len(tasks) + flying, names is not self.names
            size = await self.bundle_sizes.size(graph_id, target, waiting, own=own, reminder=reminder)
        self.bundle_sizes.sent(graph_id, len(tasks))
        alone = not flying and len(tasks) == 1
        entries = [(task, run, _seen(task, run, rows, alone=alone)) for task, run in tasks]
        routing = _routing(tasks, rows)

        def make(part: tuple[tuple[str, int, Seen | None], ...]) -> Message:
            seen = {task: what for task, _, what in part if what is not None}
            own = {task: routing[task] for task, _, _ in part if task in routing} if routing else routing
            return RunTasks(graph_id, target, tuple([(task, run) for task, run, _ in part]), seen, routing=own)

        messages = bundles(make, entries, size)
        if level != NORMAL:
            hint = RunTasks(graph_id, target, (tasks[0],), level=level, routing=routing)
            await self._announce(hint, names.work(target), delay_seconds)
        await self.queues.send(
            names.work(target, level), [to_text(message) for message in messages], delay_seconds=delay_seconds
        )
        self.counters.dispatched += len(tasks)
        if self.telemetry.enabled:
            self.telemetry.dispatched(target, len(tasks))

    async def _announce(self, hint: RunTasks, queue: str, delay: float) -> None:
        """See to it that workers of a target ask for the level of a hint: a row says that it is used.

        Workers read that row while they have work. One that is idle looks when something comes to the queue that all
        of them ask: so every few seconds the hint goes there too.
        """
        now, target, level = self.clock.monotonic(), hint.target, hint.level
        said = self._levels.get((target, level))
        if said is None or now - said >= limits.LEVEL_SECONDS / 2:
            await use_level(self.records.tables, target, level, self.clock.now())
            self._levels[target, level] = now
        hinted = self._hinted.get(queue)
        if hinted is None or now - hinted >= _HINT_SECONDS:
            self._hinted[queue] = now
            await self.queues.send(queue, [to_text(hint)], delay_seconds=delay)

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

    def _within_window(
        self, graph_id: str, target: str, level: str, tasks: Sequence[tuple[str, int]]
    ) -> Sequence[tuple[str, int]]:
        """Those that the window of their queue has room for; the others are put by."""
        if self.windows is None:
            return tasks
        now, put_by = self.windows.offer(graph_id, (target, level), tasks, self.clock.monotonic())
        if put_by and self.receivers:
            theirs = (each for each in self.receivers if each.takes(graph_id))
            next(theirs, self.receivers[-1]).watch_unsent()
        return now

    def on_results(self, graph_id: str, answers: Sequence[Answer]) -> list[ReadyBatch]:
        """Note results, and give what there is room to send now."""
        self.limited.on_results(graph_id, answers)
        self.bundle_sizes.have_ended(graph_id, answers)
        if self.windows is None or not self.windows.has(graph_id):
            return []
        task_ids = [each for answer in answers if not answer.error and (each := getattr(answer.item, "task_id", ""))]
        return self.windows.on_results(graph_id, task_ids, self.clock.monotonic()) if task_ids else []

    def have_ended(self, graph_id: str, task_ids: Sequence[str]) -> list[ReadyBatch]:
        """Results have come that are not handled yet: gives what there is room to send already."""
        return [] if self.windows is None else self.windows.on_results(graph_id, task_ids, self.clock.monotonic())

    def forget(self, graph_id: str) -> None:
        """The graph has ended."""
        self.bundle_sizes.forget(graph_id)
        self.limited.backlogs.pop(graph_id, None)
        self.forget_unsent(graph_id)

    def forget_unsent(self, graph_id: str) -> None:
        """What was put by of a graph need not be sent any more."""
        if self.windows is not None:
            self.windows.forget(graph_id)

    async def send_batches(self, batches: Sequence[ReadyBatch], local_worker: LocalWorker | None) -> None:
        """Send what had been put by. Rows that are not known any more are read, many at once: they spare others reads.

        What is known to have moved on needs no message.
        """
        for n, batch in enumerate(batches):
            try:
                known = self.row_cache.of(batch.graph)
                missing = [key for task_id, _ in batch.tasks if (key := row_key(task_id)) not in known.rows]
                if missing:
                    await self.row_cache.load(batch.graph, known, missing)
                    known.forget_absent()
                tasks: Sequence[tuple[str, int]] = [
                    (task_id, run)
                    for task_id, run in batch.tasks
                    if not _has_moved_on(known.rows.get(row_key(task_id)), run)
                ]
                await self.dispatch(
                    batch.graph,
                    batch.target,
                    tasks,
                    level=batch.level,
                    rows=known.rows,
                    local_worker=local_worker,
                    windowed=False,
                )
            except StorageError:  # reach: windows
                if self.windows is not None:
                    for left in batches[n:]:
                        self.windows.returned(left)
                raise

    async def dispatch_waiting(self, *, local_worker: LocalWorker | None = None) -> None:
        """Send what was put by and has room by now; look whether workers want more than has been sent.

        To be called every second or so while `protocol.dispatch_windows.waits`. Sends what may never be asked for
        again, whatever has become of results: a process that gets none goes on, as long as workers take what it sends.
        """
        if self.windows is None:
            return
        now = self.clock.monotonic()
        batches = self.windows.fill()
        for sample in self.windows.to_look_at(now):
            (row,) = await self.records.tables.get(sample.graph, [row_key(sample.task_id)])
            batches += self.windows.looked(sample, waits=_is_ready(row, sample.run), now=now)
        await self.send_batches(batches, local_worker)
        for graph_id in [each for each in self.windows.more if not self.windows.unsent(each)]:
            self.windows.more.discard(graph_id)
            await self.dispatch_ready_rows(graph_id, local_worker=local_worker)

    async def hand_over_unsent(self, graphs: Sequence[str]) -> None:
        """Leave what was put by of these graphs to their next handlers, by one message for each."""
        if self.windows is not None and graphs:
            await self.send_events([SendReady(graph_id) for graph_id in graphs])
            for graph_id in graphs:
                self.windows.forget(graph_id)

    async def dispatch_ready_rows(
        self, graph_id: str, after: str = "", *, local_worker: LocalWorker | None = None
    ) -> None:
        """Send what is ready in a graph and is not known to have been sent, by its rows.

        after: tasks up to this one have been sent by another process.
        """
        now, moment = self.clock.now(), self.clock.monotonic()
        used: Mapping[str, Collection[str]] | None = None
        limited = False
        (graph,) = await self.records.tables.get(graph_id, [GRAPH])
        if graph is None or graph.columns.get("state") not in (GraphState.RUNNING, GraphState.BLOCKED):
            return
        self.listeners.note_due(graph_id, [graph])
        ready = Range("task:", "task;", where={"state": (str(TaskState.PENDING),)})
        async for page in self.row_cache.pages(graph_id, ready):
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
                await self.dispatch(
                    graph_id, target, tasks, level=level, rows=rows, delay_seconds=seconds, local_worker=local_worker
                )
            if self.windows is not None and graph_id in self.windows.more:
                break  # no more can be remembered now: the rest is looked at when this has been sent
        if limited:
            await self.limited.refill(graph_id, local_worker=local_worker)


@dataclass(slots=True)
class LimitedTasks:
    """Limited tasks that stand ready, as far as this process knows."""

    dispatcher: Dispatcher
    backlogs: dict[str, Backlog] = field(default_factory=dict)
    """Graph id -> limited tasks that stand ready."""

    def wait(self, graph_id: str) -> bool:
        """Whether some of a graph are known to wait for room."""
        return bool((backlog := self.backlogs.get(graph_id)) and backlog.waiting)

    def on_results(self, graph_id: str, answers: Sequence[Answer]) -> None:
        """These do not wait any more."""
        if (backlog := self.backlogs.get(graph_id)) is not None:
            for answer in answers:
                if isinstance(answer.item, _ENDS_WAITING) and answer.outcome is not Outcome.STALE:
                    backlog.forget(answer.item.task_id, answer.item.run)

    async def refill(
        self,
        graph_id: str,
        ready: Sequence[Refill] = (),
        rows: Mapping[str, Row | None] | None = None,
        *,
        local_worker: LocalWorker | None = None,
    ) -> int:
        """Send those limited tasks of a graph for which there is room; gives how many these are. Repeatable.

        ready: what has just become so. rows: as the commit left them. Which tasks wait is remembered, and looked up
        where that may not be all; how much room there is the rows of the limits say.
        """
        if len(self.backlogs) >= _COUNTED_MAX and graph_id not in self.backlogs:
            self.backlogs.clear()
        backlog = self.backlogs.setdefault(graph_id, Backlog())
        for one in ready:
            if one.task_id:
                backlog.add(one.task_id, one.run, Waiting(one.target, one.scopes, one.since, one.rank))
        alone, now = self.dispatcher.takes(graph_id), self.dispatcher.clock.monotonic()
        # Rows that were kept are good enough where no other process writes them.
        limits_known = limits_of(rows) if alone and rows is not None else {}
        if not backlog.waiting:
            if alone and now < backlog.whole_until:
                return 0
            if not limits_known:
                every = await query_all(self.dispatcher.records.tables, graph_id, Range("limit:", "limit;"))
                limits_known = {limit.scope: limit for limit in map(limit_of, every)}
            if all(limit.is_full for limit in limits_known.values()):
                return 0  # who ends one of these runs looks again
            await self.look_up(graph_id, backlog, now)
        if missing := backlog.scopes.difference(limits_known):
            found = await self.dispatcher.records.tables.get(graph_id, [limit_key(scope) for scope in sorted(missing)])
            limits_known.update({limit.scope: limit for row in found if row is not None if (limit := limit_of(row))})
        by_queue: dict[tuple[str, int], list[tuple[str, int]]] = {}
        waiting = dict(backlog.waiting)
        for task_id, run, target in backlog.pick(limits_known, now):
            by_queue.setdefault((target, waiting[task_id, run].rank), []).append((task_id, run))
        for (target, place), tasks in by_queue.items():
            await self.dispatcher.dispatch(
                graph_id, target, tasks, level=LEVELS[place], rows=rows, local_worker=local_worker, windowed=False
            )
        return sum(map(len, by_queue.values()))

    async def refill_from(self, graph_id: str, rows: Sequence[Row]) -> int:
        """The same, with rows of limited tasks that stand ready and may have gone unheard."""
        backlog = self.backlogs.setdefault(graph_id, Backlog())
        self._remember(backlog, rows, self.dispatcher.clock.monotonic())
        return await self.refill(graph_id)

    async def look_up(self, graph_id: str, backlog: Backlog, now: float) -> None:
        """Look up which limited tasks stand ready; of very many, some: the others are found when these are sent."""
        waits = Range("task:", "task;", where={"state": (str(TaskState.PENDING),), "limited": ("yes",)}, select=_WAITS)
        backlog.whole_until, seen = 0.0, 0
        async for page in pages(self.dispatcher.records.tables, graph_id, waits):
            seen += 1
            self._remember(backlog, page.rows, now)
            # Even of the last page some may have been left out.
            if len(backlog.waiting) >= WAITING_MAX or (page.continuation is not None and seen >= _LOOK_PAGES_MAX):
                return
        backlog.whole_until = now + WHOLE_SECONDS

    def _remember(self, backlog: Backlog, rows: Iterable[Row], now: float) -> None:
        """Take over limited tasks that stand ready from their rows, but those that were sent just now."""
        for row in rows:
            columns, task_id = row.columns, reference_of(row.key)
            run, since = columns.get("run"), columns.get("pendingSince")
            if not isinstance(run, int) or is_held(columns.get("held")):
                continue
            if not_yet_seconds(columns.get, self.dispatcher.clock.now()) or backlog.was_sent(task_id, run, now):
                continue
            target, scopes = _target(row), scopes_of(columns)
            ready = since if isinstance(since, datetime) else None
            backlog.add(task_id, run, Waiting(target, scopes, ready, rank(level_of(columns.get))))


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
    """Whether a row, which may be old, says of a run that it need not be sent: what lets a task go sends it, too."""
    if row is None or not isinstance(found := row.columns.get("run"), int):
        return False
    if is_held(row.columns.get("held")):
        return True
    return found > run or (found == run and row.columns.get("state") not in (TaskState.PENDING, TaskState.UNSCHEDULED))


def _target(row: Row) -> str:
    return str(row.columns.get("target", DEFAULT_TARGET))
