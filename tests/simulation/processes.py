"""Whole processes in virtual time: the production consumer, worker and sweep, over the in-memory store.

An event loop whose clock jumps to the next thing that is due runs them unchanged; latencies drawn from a seed decide
who goes first. A process that crashes simply never hears from storage again: nothing of it runs on, no `finally` helps
it. A process that pauses hears late, as a zombie does.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from taskgraph.documents.nodes import GraphDocument
from taskgraph.engine.commit import Records
from taskgraph.engine.consumer import Consumer
from taskgraph.engine.handlers import Handlers
from taskgraph.engine.poison import Poison
from taskgraph.engine.submission import Submitted, submit
from taskgraph.interfaces import loops
from taskgraph.interfaces.app import App
from taskgraph.interfaces.loops import end_what_is_over, sweep_forever
from taskgraph.interfaces.one_graph import run_graph, taking
from taskgraph.interfaces.settings import StoreSettings
from taskgraph.model.errors import Conflict, NotFound, Refused, StaleDelivery, StorageUnavailable, Unclear
from taskgraph.model.flag import Flag
from taskgraph.model.ids import GRAPH, reference_of
from taskgraph.model.names import LEADS, LIVE, POISON
from taskgraph.model.states import TaskState
from taskgraph.queries.graphs import Queries
from taskgraph.rehearsal.virtual_time import LoopClock, VirtualLoop, end_all
from taskgraph.storage.logs import LogPage
from taskgraph.storage.memory import MemoryLogs
from taskgraph.storage.own_queues import WithOwn
from taskgraph.storage.queues import Delivery
from taskgraph.storage.signals.wakeup import Announced, Wakeup
from taskgraph.storage.tables import Change, Merge, Page, Range, Row
from taskgraph.testing import MemoryQueues, MemoryTables
from taskgraph.worker.executors import Executors, Outcome, Work, WriteLog
from taskgraph.worker.gateway import Gateway
from taskgraph.worker.loop import Worker
from tests.simulation.world import Faults


class Gone(BaseException):
    """A process ends at a storage call."""


class ProcessLoop(VirtualLoop):
    """Virtual time in which a process may be gone."""

    def __init__(self) -> None:
        super().__init__()
        self.slips: list[str] = []  # errors in tasks that nobody looks at
        self.set_exception_handler(self._slip)
        self._never: list[asyncio.Future[None]] = []

    def _slip(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not isinstance(context.get("exception"), Gone):  # who is gone leaves what was in hand
            self.slips.append(f"{context.get('message')}: {context.get('exception')!r}")

    async def never(self) -> None:
        """What somebody waits for who is dead."""
        future = self.create_future()  # one of its own: whoever waits may be cancelled
        self._never.append(future)  # held, so that nobody clears away those who wait
        await future


class Process:
    """The storage of one process: every call takes a while, and may be its last."""

    def __init__(self, world: "ProcessWorld", name: str) -> None:
        self.world = world
        self.name = name
        self.dead = False
        self.began = world.loop.time()
        self.tasks: list[asyncio.Task[Any]] = []

    async def before(self) -> None:
        world, rng, faults = self.world, self.world.rng, self.world.faults
        world.calls += 1
        if self.dead:
            await self._silence()
        await asyncio.sleep(rng.expovariate(200))
        if self.dead:
            await self._silence()
        if rng.random() < faults.crash:
            await self.die()
        if rng.random() < world.pause_rate:
            world.pauses += 1
            await asyncio.sleep(rng.choice((10.0, 45.0, 90.0)))
        if rng.random() < faults.unavailable or world.loop.time() < world.outage_until:
            raise StorageUnavailable("503", "memory")

    async def after(self) -> None:
        if self.dead or self.world.rng.random() < self.world.faults.crash:
            await self.die()

    async def die(self) -> None:
        if not self.dead:
            self.dead = True
            self.world.crashes += 1
        await self._silence()

    async def _silence(self) -> None:
        await self.world.loop.never()

    # --- Tables

    async def get(self, partition: str, keys: Sequence[str]) -> list[Row | None]:
        await self.before()
        return await self.world.tables.get(partition, keys)

    async def query(self, partition: str, rows: Range, *, limit: int = 1000, continuation: str | None = None) -> Page:
        await self.before()
        return await self.world.tables.query(partition, rows, limit=min(limit, 7), continuation=continuation)

    async def commit(self, partition: str, changes: Sequence[Change]) -> list[str | None]:
        await self.before()
        before = {key: row.columns for key, row in self.world.tables.partitions.get(LEADS, {}).items()}
        etags = await self.world.tables.commit(partition, changes)
        self.world.committed(partition)
        if partition == LEADS:
            self.world.led(before, changes)
        draw, faults = self.world.rng.random(), self.world.faults
        if draw < faults.unclear:
            raise Unclear("the answer was lost")
        if draw < faults.unclear + faults.false_conflict:
            raise Conflict("412 on the own write")
        await self.after()
        return etags


class ProcessQueues:
    """The queues as one process sees them."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def send(self, queue: str, bodies: Sequence[str], *, delay_seconds: float = 0) -> None:
        world = self._process.world
        for body in bodies:
            await self._process.before()
            draw = world.rng.random()
            copies = 0 if draw < world.faults.lose else 2 if draw > 1 - world.faults.double else 1
            world.met["R19"] += copies == 0
            await world.queues.send(queue, [body] * copies, delay_seconds=delay_seconds)
            await self._process.after()

    async def receive(self, queue: str, *, count: int = 1, lease_seconds: float) -> list[Delivery]:
        await self._process.before()
        found = await self._process.world.queues.receive(queue, count=count, lease_seconds=lease_seconds)
        await self._process.after()
        return found

    async def renew(self, delivery: Delivery, *, lease_seconds: float) -> Delivery:
        await self._process.before()
        world = self._process.world
        renewed = await world.queues.renew(delivery, lease_seconds=lease_seconds)
        world.on_their_way.add(delivery.receipt)
        await asyncio.sleep(world.rng.expovariate(200))  # whoever is stopped here never hears of the new receipt
        world.on_their_way.discard(delivery.receipt)
        return renewed

    async def delete(self, delivery: Delivery) -> None:
        await self._process.before()
        world = self._process.world
        try:
            await world.queues.delete(delivery)
        except StaleDelivery:
            world.met["R21 heartbeat"] += delivery.receipt in world.on_their_way
            raise
        await self._process.after()

    async def count(self, queue: str) -> int:
        await self._process.before()
        return await self._process.world.queues.count(queue)


class ScriptedExecutor:
    """Takes a while; fails as often as the world says; remembers what ran."""

    name = "noop"
    instant = False
    queue = None

    def __init__(self, process: Process) -> None:
        self._process = process

    def can_run(self, definition: Mapping[str, Any]) -> str | None:
        return None

    async def run(self, work: Work, write_log: WriteLog) -> Outcome:
        world = self._process.world
        key = (work.task_id, work.run)
        world.executions.setdefault(key, []).append(work.claim)
        rng = world.rng
        await write_log(b"begun\n")
        # A heartbeat comes every 10 seconds or so: some runs end just then.
        beat = 20.0 - (world.loop.time() - self._process.began) % 10.0
        await asyncio.sleep(rng.choice((0.0, 0.1, 5.0, beat + rng.uniform(0.0, 0.06), 50.0)))
        if self._process.dead:
            await world.loop.never()
        await write_log(b"ended\n")
        if world.failed_runs(work.label) < world.fails.get(work.label, 0):
            return Outcome(failed=True, reason="as told")
        return Outcome(failed=False, result=b"{}" if rng.random() < 0.3 else None)


class ProcessLogs:
    """The logs as one process sees them: a log that fails is lost, a result is tried again."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def url(self, graph_id: str, task_id: str, run: int, name: str = "run.log") -> str:
        return f"memory:{graph_id}/{task_id}/{run}/{name}"

    async def append(self, graph_id: str, task_id: str, run: int, data: bytes, name: str = "run.log") -> None:
        await self._process.before()
        await self._process.after()

    async def read(self, *_: Any, **__: Any) -> bytes | None:
        return None

    async def files(self, *_: Any, **__: Any) -> LogPage:
        return LogPage(())

    async def remove(self, *_: Any) -> int:
        return 0


async def _nothing(*_: Any) -> None:
    pass


@dataclass
class ProcessWorld:
    """One history of processes that come and go."""

    seed: int
    document: GraphDocument
    fails: Mapping[str, int] = field(default_factory=dict)
    faults: Faults = field(default_factory=Faults)
    pause_rate: float = 0.0
    troubles: int = 0  # so many times a queue is deleted, or all calls are refused for a while
    storm_seconds: float = 300.0
    graph_id: str = "g"
    runs: bool = False  # one process submits the graph and runs it, as `run` does
    others: int = 2  # so many processes handle, and so many work
    more: int = 0  # so many graphs of the same document besides
    numbers: Sequence[int] = ()  # of queues of events, one after the other

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.graph_ids = [self.graph_id, *(f"{self.graph_id}{number}" for number in range(self.more))]
        self.loop = ProcessLoop()
        self.tables = MemoryTables()
        self.queues = MemoryQueues(LoopClock(self.loop, self.rng))
        self.executions: dict[tuple[str, int], list[str]] = {}
        self.calls = self.crashes = self.pauses = self.restarts = 0
        self.states: list[str] = []
        self.stop = Flag()
        self.processes: list[Process] = []
        self.met: Counter[str] = Counter()
        self.left_numbers = list(self.numbers)
        self.on_their_way: set[str] = set()  # receipts whose renewal has not been answered yet
        self.outage_until = 0.0

    def failed_runs(self, label: str) -> int:
        """How many runs of a task have failed for its own sake, by its row."""
        for row in self.tables.partitions[self.graph_id].values():
            if row.columns.get("label") == label and row.key.startswith("task:"):
                return int(row.columns["rerunsAllowed"]) - int(row.columns["rerunsLeft"])
        raise AssertionError(label)

    def committed(self, partition: str) -> None:
        if partition == self.graph_id:
            state = str(self.tables.partitions[partition][GRAPH].columns["state"])
            if not self.states or self.states[-1] != state:
                self.states.append(state)

    def led(self, before: Mapping[str, Mapping[str, Any]], changes: Sequence[Change]) -> None:
        """Count queues that were handed over: led by another process from now on, while the first still led."""
        for change in changes:
            if isinstance(change, Merge) and change.key in before and "holder" in change.columns:
                was = before[change.key]
                moved = was["holder"] != change.columns["holder"]
                self.met["handed over"] += moved and was["until"] > LoopClock(self.loop, self.rng).now()

    def start(self, name: str, main: Callable[[Handlers, Process, LoopClock], Any]) -> None:
        """Start a process, and start it again whenever it has died."""

        async def keep() -> None:
            while not self.stop.is_set():
                process = Process(self, name)
                self.processes.append(process)
                clock = LoopClock(self.loop, self.rng, self.rng.choice((-5.0, 0.0, 0.0, 5.0)))
                handlers = Handlers(
                    Records(process, clock), ProcessQueues(process), clock, sends_beside=self.rng.random() < 0.5
                )
                task = self.loop.create_task(main(handlers, process, clock))
                process.tasks.append(task)
                while not task.done() and not process.dead and not self.stop.is_set():
                    await asyncio.sleep(1.0)
                if task.done():
                    if not task.cancelled() and (error := task.exception()) is not None:
                        if isinstance(error, StorageUnavailable | Conflict | Unclear | NotFound | Refused):
                            await asyncio.sleep(1.0)
                            continue
                        raise error
                    return
                if process.dead:
                    self.restarts += 1
                    await asyncio.sleep(self.rng.uniform(0.0, 10.0))

        self.keepers.append(self.loop.create_task(keep()))

    async def _submitter(self, handlers: Handlers, process: Process, clock: LoopClock) -> None:
        for graph_id in self.graph_ids:
            await submit(handlers, graph_id, self.document)

    async def _operator(self, handlers: Handlers, process: Process, clock: LoopClock) -> None:
        """Handles, and has events shared out among another number of queues as it begins, and now and then."""
        serving = asyncio.ensure_future(self._server(handlers, process, clock))
        process.tasks.append(serving)
        while self.left_numbers:
            await handlers.dispatcher.event_queues.use(self.left_numbers.pop())
            await asyncio.wait((serving,), timeout=self.rng.uniform(0.0, 40.0))
        await serving

    def _app(self, handlers: Handlers, process: Process, clock: LoopClock, wakeup: Wakeup) -> App:
        poison = Poison(process, handlers.queues, clock, handlers.names)
        return App(
            settings=StoreSettings(),
            clock=clock,
            tables=process,
            queues=handlers.queues,
            logs=ProcessLogs(process),
            wakeup=wakeup,
            names=handlers.names,
            queries=Queries(process, handlers.queues, clock, handlers.names),
            made_handlers=lambda: handlers,
            made_poison=lambda: poison,
            made_gateway=lambda: Gateway(handlers, poison, MemoryLogs(), Wakeup()),
            locks=None,
        )

    async def _server(self, handlers: Handlers, process: Process, clock: LoopClock) -> None:
        app = self._app(handlers, process, clock, Wakeup())
        consumer = Consumer(handlers, app.poison, app.wakeup, lease_seconds=30.0, idle_seconds_max=1.0)
        await asyncio.gather(consumer.run(self.stop), end_what_is_over(app, self.stop), sweep_forever(app, self.stop))

    def _crew(self, handlers: Handlers, process: Process, clock: LoopClock, wakeup: Wakeup) -> Worker:
        return Worker(
            handlers,
            Poison(process, handlers.queues, clock, handlers.names),
            Executors([ScriptedExecutor(process)]),
            ProcessLogs(process),
            wakeup,
            name=f"{process.name}-{clock.new_id()[:4]}",
            slots=self.rng.choice((1, 3)),
            lease_seconds=30.0,
        )

    async def _runner(self, _: Handlers, process: Process, clock: LoopClock) -> None:
        """As `run` does: submit a graph, handle it, and work on it alone, from queues of this process."""
        wakeup = Wakeup()
        queues = WithOwn(ProcessQueues(process), Announced(MemoryQueues(clock), wakeup))
        app = self._app(Handlers(Records(process, clock), queues, clock), process, clock, wakeup)
        stop = Flag()
        stopper = self.loop.create_task(self._pass_on(stop))
        try:
            worker = self._crew(app.handlers, process, clock, wakeup)
            with taking(app, self.graph_id, [worker]) as consumer:
                fresh = (await submit(app.handlers, self.graph_id, self.document)).outcome is Submitted.CREATED
                await run_graph(app, self.graph_id, stop, workers=[worker], consumer=consumer, fresh=fresh)
        finally:
            stopper.cancel()

    async def _worker(self, handlers: Handlers, process: Process, clock: LoopClock) -> None:
        worker = self._crew(handlers, process, clock, Wakeup())
        stop = Flag()
        if self.rng.random() < 0.3 and self.faults.crash:
            self.loop.call_later(self.rng.uniform(5, 100), stop.set)  # a worker that is told to stop, and starts again
        stopper = self.loop.create_task(self._pass_on(stop))
        try:
            await worker.run(stop)
        finally:
            stopper.cancel()
        if not self.stop.is_set():
            raise StorageUnavailable("stopped; start again")

    async def _pass_on(self, stop: Flag) -> None:
        await self.stop.wait()
        stop.set()

    def run(self, seconds_max: float = 20_000.0) -> str:
        """Storm, then quiet, until the graph is at rest; gives its state."""
        asyncio.set_event_loop(self.loop)
        self.keepers: list[asyncio.Task[None]] = []
        try:
            with mock.patch.object(loops, "tidy_forever", _nothing):  # it looks at this machine, by real threads
                return self.loop.run_until_complete(self._run(seconds_max))
        finally:
            end_all(self.loop)
            self.loop.close()
            asyncio.set_event_loop(None)

    async def _run(self, seconds_max: float) -> str:
        if self.runs:
            self.start("run", self._runner)
        else:
            self.start("submit", self._submitter)
            if self.numbers:
                self.start("operator", self._operator)
        for number in range(self.others):
            self.start(f"serve{number}", self._server)
            self.start(f"worker{number}", self._worker)
        for _ in range(self.troubles):
            self.loop.call_later(self.rng.uniform(1.0, 100.0), self._trouble)
        while True:
            await asyncio.sleep(5.0)
            for keeper in self.keepers:
                if keeper.done():
                    keeper.result()
            if self.loop.time() > self.storm_seconds:
                self.faults, self.pause_rate = Faults(), 0.0
            assert self.loop.time() < seconds_max, f"seed {self.seed}: no end: {self.states}, {self.rows_at_rest()}"
            state = self.states[-1] if self.states else ""
            if any(self.state_of(each) not in ("finished", "blocked") for each in self.graph_ids[1:]):
                continue
            if state == "finished" or (state == "blocked" and self.loop.time() > self.storm_seconds and self.at_rest()):
                return state

    def _trouble(self) -> None:
        """A queue is deleted, or the store refuses everybody for longer than a lease."""
        name = self.rng.choice(("taskgraph-events", "taskgraph-work-default", ""))
        if not name:
            self.outage_until = self.loop.time() + self.rng.uniform(40.0, 90.0)
        elif not self.queues.messages.pop(name, None):
            return
        self.met["R31"] += 1

    def state_of(self, graph_id: str) -> str:
        """The state of a graph, "" before there is one."""
        row = self.tables.partitions.get(graph_id, {}).get(GRAPH)
        return str(row.columns["state"]) if row is not None else ""

    def at_rest(self) -> bool:
        rows = self.tables.partitions[self.graph_id]
        return not any(r.columns.get("state") in ("pending", "running") for k, r in rows.items() if k != GRAPH)

    def rows_at_rest(self) -> dict[str, str]:
        rows = self.tables.partitions.get(self.graph_id, {})
        return {reference_of(k): str(r.columns.get("state")) for k, r in rows.items() if k.startswith("task:")}

    def verdict(self, state: str) -> None:
        """What must hold at the end, from graph and outcomes alone."""
        rows = {
            r.columns["label"]: r for k, r in self.tables.partitions[self.graph_id].items() if k.startswith("task:")
        }
        assert set(rows) == set(self.document.tasks)
        doomed = any(self.fails.get(label, 0) > node.reruns for label, node in self.document.tasks.items())
        exception = any(row.columns["state"] == TaskState.EXCEPTION for row in rows.values())
        assert state == ("blocked" if doomed or exception else "finished"), (self.seed, state, doomed, exception)
        for row in rows.values():
            if row.columns["state"] == "completed":
                assert self.executions[(reference_of(row.key), int(row.columns["run"]))]
        for key, claims in self.executions.items():
            assert len(claims) == 1, f"seed {self.seed}: {key} was executed {len(claims)} times"
        assert self.states.count("finished") <= 1
        assert not self.loop.slips, f"seed {self.seed}: {self.loop.slips}"
        poisoned = [row for row in self.tables.partitions.get(POISON, {}).values() if row.columns["state"] == "poison"]
        assert not poisoned, f"seed {self.seed}: nobody is to blame, and {poisoned[0]} is set aside"
        if state == "finished":
            assert self.graph_id not in self.tables.partitions[LIVE] or self.loop.time() < self.storm_seconds + 100
