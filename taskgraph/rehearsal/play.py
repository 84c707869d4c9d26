"""One rehearsal: the real handlers, worker and sweep over a store in memory, in virtual time, with runs that only wait.

Each call to storage takes a while of virtual time. Nothing fails but tasks: no call is refused, no worker is lost, so
leases last for ever, and the sweep, which then has only to mind times, comes ever more seldom.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from taskgraph.engine.consumer import PUMP_SECONDS, Consumer
from taskgraph.engine.listeners import Alarms
from taskgraph.engine.poison import Poison
from taskgraph.engine.sweep import Swept, sweep_graph
from taskgraph.model import limits
from taskgraph.model.columns import object_of, time_of
from taskgraph.model.flag import Flag
from taskgraph.model.placement import Offer
from taskgraph.model.spent import Spent, spent_in
from taskgraph.model.states import GRAPH_ENDED, TASK_UNRESOLVED, GraphState, TaskState
from taskgraph.model.timing import DEADLINE_EXCEEDED, not_yet_seconds
from taskgraph.queries.graphs import Queries
from taskgraph.queries.timeline import Timeline
from taskgraph.rehearsal.start import TABLE, Start, graph_state, handlers_over
from taskgraph.rehearsal.virtual_time import LoopClock, VirtualLoop, run_in
from taskgraph.storage.memory import MemoryQueues, MemoryTables
from taskgraph.storage.metered import Meter, MeteredQueues, MeteredTables
from taskgraph.storage.queues import Delivery
from taskgraph.storage.signals.wakeup import Announced, Wakeup
from taskgraph.storage.tables import Change, Page, Range, Row
from taskgraph.worker.executors import Executors, Outcome, Work, WriteLog
from taskgraph.worker.loop import Worker

LATENCY_SECONDS: Final = 0.002
"""What a call to storage takes, where nothing else is said."""

_NEVER_SECONDS: Final = float(limits.DELAY_SECONDS_MAX)  # leases are renewed at a third of it
_POLL_SECONDS: Final = 3_600.0  # between two looks in vain: each message is announced
_SWEEP_SHARE: Final = (
    0.5  # of the time so far: when it has gone by again, the sweep looks again; it has all tasks in hand
)
_LOOKS: Final = 1_000  # of what looks every so often, in a rehearsal: each costs about as much as a task
_LOOKS_AT_REST: Final = 3  # looks in a row that find nothing at work, and nothing that comes
_NAME: Final = "rehearsed"


class Runs(Protocol):
    """What runs do."""

    def run(self, label: str, number: int, ran_seconds: float = 0.0) -> tuple[float, str]:
        """Seconds, and the outcome: completed, failed, exception, temporary. ran_seconds: of these, those so far."""


@dataclass(frozen=True, slots=True)
class Bench:
    """Slots that serve targets together, as one worker has them."""

    targets: tuple[str, ...]
    slots: int


@dataclass(frozen=True, slots=True)
class Played:
    """How a rehearsal came out. state: of the graph; seconds: until it ended, or stood still, from the start.

    operations: calls to storage by kind. rows: (second, rows written in it), in order. ended: label -> the second in
    which it was resolved, of tasks with a deadline, "" for the graph. late: those that did not make it. stays: tasks
    that are not resolved, by state. runs: that ended. spent: in all, with what the graph had spent before, but for the
    files of these runs, which leave none. timeline: where it was asked for.
    """

    state: str
    seconds: float
    operations: Mapping[str, int]
    rows: Sequence[tuple[int, int]]
    ended: Mapping[str, float]
    late: frozenset[str]
    stays: Mapping[str, int]
    runs: int
    spent: Spent
    timeline: Timeline | None = None

    @property
    def finished(self) -> bool:
        return self.state == GraphState.FINISHED


@dataclass(slots=True)
class _Counts:
    """Calls so far, and rows written by the second."""

    latency_seconds: float
    operations: Counter[str] = field(default_factory=Counter)
    rows: Counter[int] = field(default_factory=Counter)
    moved: float = 0.0  # when the last commit was made

    async def call(self, kind: str, number: int = 1) -> None:
        """kind: "" for one that is not counted."""
        if kind:
            self.operations[kind] += number
        if self.latency_seconds:
            await asyncio.sleep(self.latency_seconds)


class _SlowTables:
    """Tables whose calls take a while. Those about the graph are counted: others are of the crew, whatever it does."""

    def __init__(self, inner: MemoryTables, counts: _Counts, loop: VirtualLoop, graph_id: str) -> None:
        self._inner, self._counts, self._loop, self._graph_id = inner, counts, loop, graph_id

    async def get(self, partition: str, keys: Sequence[str]) -> list[Row | None]:
        if keys:
            await self._counts.call("reads" if partition == self._graph_id else "", len(keys))
        return await self._inner.get(partition, keys)

    async def query(self, partition: str, rows: Range, *, limit: int = 1000, continuation: str | None = None) -> Page:
        await self._counts.call("pages" if partition == self._graph_id else "")
        return await self._inner.query(partition, rows, limit=limit, continuation=continuation)

    async def commit(self, partition: str, changes: Sequence[Change]) -> list[str | None]:
        if partition != self._graph_id:
            await self._counts.call("")
            return await self._inner.commit(partition, changes)
        await self._counts.call("commits")
        self._counts.moved = self._loop.time()
        self._counts.rows[int(self._counts.moved)] += len(changes)
        return await self._inner.commit(partition, changes)


class _SlowQueues:
    """Queues whose calls take a while. Of those that receive, the ones that find something are counted."""

    def __init__(self, inner: MemoryQueues, counts: _Counts) -> None:
        self._inner, self._counts = inner, counts
        self.count = inner.count
        self.renew = inner.renew

    async def send(self, queue: str, bodies: Sequence[str], *, delay_seconds: float = 0) -> None:
        await self._counts.call("sends", len(bodies))
        await self._inner.send(queue, bodies, delay_seconds=delay_seconds)

    async def receive(self, queue: str, *, count: int = 1, lease_seconds: float) -> list[Delivery]:
        found = await self._inner.receive(queue, count=count, lease_seconds=_NEVER_SECONDS)
        if found:
            await self._counts.call("receives")
        return found

    async def delete(self, delivery: Delivery) -> None:
        await self._counts.call("deletes")
        await self._inner.delete(delivery)


class _Rehearsed:
    """Runs that wait for as long as they would take, and then end as they would."""

    name = _NAME
    instant = False
    queue = None

    def __init__(self, runs: Runs, running: Mapping[str, tuple[int, float]]) -> None:
        self._runs, self._running = runs, running
        self.ended = 0

    def can_run(self, definition: Mapping[str, Any]) -> str | None:
        return None

    async def run(self, work: Work, write_log: WriteLog) -> Outcome:
        number, ran = self._running.get(work.task_id, (-1, 0.0))
        if work.run == number:  # it goes on for the rest of its time
            seconds, outcome = self._runs.run(work.label, number - 1, ran)
            seconds -= ran
        else:
            seconds, outcome = self._runs.run(work.label, work.run)
        await asyncio.sleep(seconds)
        self.ended += 1
        failed = outcome != "completed"
        return Outcome(failed, exception=outcome == "exception", temporary=outcome == "temporary")


class _AnyTask(Offer):
    """A worker that may take every task of its targets."""

    def why_not(self, task: Mapping[str, Any]) -> str | None:
        return None


def play(
    start: Start,
    benches: Sequence[Bench],
    runs: Runs,
    *,
    latency_seconds: float = LATENCY_SECONDS,
    with_timeline: bool = False,
) -> Played:
    """Rehearse a graph once. In a thread that runs no event loop."""
    loop = VirtualLoop()
    return run_in(loop, _Play(loop, start, benches, runs, latency_seconds).play(with_timeline))


def _usual_seconds(start: Start, benches: Sequence[Bench], runs: Runs) -> float:
    """About how long it takes: until all may begin, and then all first runs, shared out among the slots."""
    seconds = sum(runs.run(label, 0)[0] for label in start.definitions)
    later = max((not_yet_seconds(row.columns.get, start.now) for row in start.rows.values()), default=0.0)
    return later + seconds / max(1, sum(bench.slots for bench in benches))


class _Play:
    def __init__(
        self, loop: VirtualLoop, start: Start, benches: Sequence[Bench], runs: Runs, latency_seconds: float
    ) -> None:
        self._loop, self._start = loop, start
        clock = LoopClock(loop, random.Random(0), start=start.now)
        store = start.store(clock)
        self._inner = store.tables(TABLE)
        self._queues = store.queues()
        self._counts = _Counts(latency_seconds)
        self._wakeup = Wakeup()
        self._meter = Meter()
        tables = MeteredTables(_SlowTables(self._inner, self._counts, loop, start.graph_id), self._meter)
        queues = Announced(MeteredQueues(_SlowQueues(self._queues, self._counts), self._meter), self._wakeup)
        self._handlers = handlers = handlers_over(tables, store, clock, queues, self._meter)
        poison = Poison(tables, queues, clock, handlers.names)
        self._queries = Queries(self._inner, self._queues, clock, handlers.names)
        looks = _usual_seconds(start, benches, runs) / _LOOKS
        self._rehearsed = _Rehearsed(runs, start.running)
        self._consumer = Consumer(
            handlers,
            poison,
            self._wakeup,
            lease_seconds=_NEVER_SECONDS,
            idle_seconds_max=max(_POLL_SECONDS, looks),
            pump_seconds=max(PUMP_SECONDS, looks),
        )
        self._consumer.own.add(start.graph_id)
        self._workers = [
            Worker(
                handlers,
                poison,
                Executors([self._rehearsed], override=_NAME),
                store.logs(),
                self._wakeup,
                name=f"{_NAME}-{number}",
                targets=bench.targets,
                offer=_AnyTask(),
                slots=bench.slots,
                lease_seconds=_NEVER_SECONDS,
                idle_seconds_max=max(_POLL_SECONDS, looks),
                gate_seconds=max(limits.GATE_SECONDS, looks),
            )
            for number, bench in enumerate(benches)
            if bench.slots
        ]
        if self._workers:
            self._consumer.local_worker = self._workers[0].attach(self._consumer)
        self._stop = Flag()
        self._ended_at = 0.0
        handlers.listeners.ended.append(self._ended)

    def _ended(self, graph_id: str, _: GraphState) -> None:
        self._ended_at = self._loop.time()
        self._stop.set()

    async def play(self, with_timeline: bool) -> Played:
        stopped = asyncio.ensure_future(self._stop.wait())
        await self._dispatch()
        loops = [self._consumer.run(self._stop), self._sweep(stopped), self._end_what_is_over(stopped)]
        await asyncio.gather(*loops, *[worker.run(self._stop) for worker in self._workers])
        start = self._start
        rows = self._inner.partitions[start.graph_id]
        ended, late = {"": self._ended_at}, set[str]()
        stays: Counter[str] = Counter()
        for key, row in rows.items():
            if not key.startswith("task:"):
                continue
            columns = row.columns
            if (state := str(columns.get("state"))) in TASK_UNRESOLVED:
                stays[state] += 1
            if "deadline" not in columns:
                continue
            label = str(columns.get("label", ""))
            if (resolved := time_of(columns, "resolved")) is not None:
                ended[label] = (resolved - start.now).total_seconds()
            if state in TASK_UNRESOLVED or object_of(columns, "resolution").get("code") == DEADLINE_EXCEEDED:
                late.add(label)
        if graph_state(self._inner, start.graph_id) != GraphState.FINISHED:
            late.add("")
        return Played(
            graph_state(self._inner, start.graph_id),
            self._ended_at,
            dict(self._counts.operations),
            sorted(self._counts.rows.items()),
            ended,
            frozenset(late),
            dict(stays),
            self._rehearsed.ended,
            self._spent(),
            await self._queries.timeline(start.graph_id) if with_timeline else None,
        )

    def _spent(self) -> Spent:
        """What the last event says, and what was counted since."""
        rows = self._inner.partitions[self._start.graph_id]
        last = rows.get(max((key for key in rows if key.startswith("event:")), default=""))
        spent = spent_in(last.columns.get("spent")) if last is not None else None
        return (spent or Spent()).and_used(self._meter.used(self._start.graph_id))

    async def _dispatch(self) -> None:
        """Send what stands ready: first what ran when the rows were copied, for its slots are taken."""
        if graph_state(self._inner, self._start.graph_id) in GRAPH_ENDED:
            self._stop.set()
            return
        dispatcher, graph_id = self._handlers.dispatcher, self._start.graph_id
        first: dict[str, list[tuple[str, int]]] = {}
        rows = self._inner.partitions[graph_id]
        for task_id, (run, _) in self._start.running.items():
            if (row := rows.get(f"task:{task_id}")) is not None:
                first.setdefault(str(row.columns.get("target", "default")), []).append((task_id, run))
        for target, tasks in first.items():
            await dispatcher.dispatch(graph_id, target, tasks, local_worker=self._consumer.local_worker)
        await dispatcher.dispatch_ready_rows(graph_id, local_worker=self._consumer.local_worker)

    async def _sweep(self, stopped: "asyncio.Future[Any]") -> None:
        """Look at the graph ever more seldom, until it stands still."""
        at_rest = 0
        while not self._stop.is_set():
            commits = self._counts.operations["commits"]
            pause = max(limits.SWEEP_SECONDS, self._loop.time() * _SWEEP_SHARE)
            await asyncio.wait([stopped], timeout=pause)
            if self._stop.is_set():
                return
            if commits == self._counts.operations["commits"] and all(worker.at_rest for worker in self._workers):
                at_rest += 1
                if at_rest >= _LOOKS_AT_REST and not self._comes():
                    self._ended_at = self._counts.moved
                    self._stop.set()
                    return
            else:
                at_rest = 0
            await sweep_graph(self._handlers, self._start.graph_id, Swept())

    def _comes(self) -> bool:
        """Whether a task begins by time alone. That others end by it, whenever that is, moves nothing on."""
        rows, now = self._inner.partitions[self._start.graph_id], self._handlers.clock.now()
        pending = (row.columns.get for row in rows.values() if row.columns.get("state") == TaskState.PENDING)
        return any(not_yet_seconds(columns, now) for columns in pending)

    async def _end_what_is_over(self, stopped: "asyncio.Future[Any]") -> None:
        alarms = Alarms()
        self._handlers.listeners.due.append(alarms.note)
        while not self._stop.is_set():
            for graph_id in alarms.take(self._handlers.clock.now()):
                await sweep_graph(self._handlers, graph_id, Swept())
            earlier = asyncio.ensure_future(alarms.earlier.wait())
            left = alarms.seconds_left(self._handlers.clock.now(), _NEVER_SECONDS)
            await asyncio.wait([stopped, earlier], timeout=left, return_when=asyncio.FIRST_COMPLETED)
            earlier.cancel()
