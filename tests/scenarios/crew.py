"""Production workers and consumers over one store in memory, in virtual time, with their calls at the ports counted.

Every process has handlers, and so known rows, of its own. Nothing waits for real: a run that takes an hour is over at
once, and a test comes out the same each time.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from taskgraph import __version__
from taskgraph.engine.consumer import Consumer
from taskgraph.engine.handlers import Handlers
from taskgraph.engine.poison import Poison
from taskgraph.model.flag import Flag
from taskgraph.model.placement import Offer
from taskgraph.queries.workers import HANDLER
from taskgraph.rehearsal.virtual_time import LoopClock, end_all
from taskgraph.storage.queues import Delivery
from taskgraph.storage.signals.wakeup import Wakeup
from taskgraph.testing import MemoryLogs, MemoryQueues, MemoryTables
from taskgraph.worker.executors import Executors, Outcome, Work, WriteLog
from taskgraph.worker.executors.contract import Queue
from taskgraph.worker.loop import Worker
from taskgraph.worker.registration import RegisteredHandler, Registration, WorkerDetails
from tests.scenarios.stage import Requirements, Stage, Trap, graph
from tests.simulation.processes import ProcessLoop

POLL_SECONDS: Final = 0.05


class Script:
    """An executor: so many seconds for a run, by label. Writes down what ran."""

    name = "script"
    instant = False
    queue: Queue | None = None

    def __init__(self, seconds: float = 0.0, by_label: Mapping[str, float] | None = None) -> None:
        self.seconds = seconds
        self.by_label = dict(by_label or {})
        self.runs: list[tuple[str, int]] = []
        self.ended: list[tuple[str, int]] = []

    def can_run(self, definition: Mapping[str, Any]) -> str | None:
        return None

    async def run(self, work: Work, write_log: WriteLog) -> Outcome:
        self.runs.append((work.label, work.run))
        if seconds := self.by_label.get(work.label, self.seconds):
            await asyncio.sleep(seconds)
        self.ended.append((work.label, work.run))
        return Outcome(failed=False)


class Instant(Script):
    """An executor that takes no time at all."""

    instant = True


class Liar(Script):
    """An executor that says so, and waits."""

    instant = True

    async def run(self, work: Work, write_log: WriteLog) -> Outcome:
        await asyncio.sleep(1.0)
        return Outcome(failed=False)


class Calls(Trap):
    """A trap that can also tell what the calls cost."""

    def __init__(self, at: int = 0, kind: str = "before", only: str = "") -> None:
        super().__init__(at, kind, only)
        self.empty = 0
        self.messages = 0

    def counted(self) -> Counter[str]:
        """Calls by kind; each message that is sent is one, as it is on the service."""
        found = Counter(self.calls)
        found["receive"] -= self.empty
        found["send"] = self.messages
        return +found


class _CountingQueues:
    def __init__(self, inner: Any, calls: Calls) -> None:
        self._inner = inner
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def send(self, queue: str, bodies: Sequence[str], *, delay_seconds: float = 0) -> None:
        self._calls.messages += len(bodies)
        await self._inner.send(queue, bodies, delay_seconds=delay_seconds)

    async def receive(self, queue: str, *, count: int = 1, lease_seconds: float) -> list[Delivery]:
        found: list[Delivery] = await self._inner.receive(queue, count=count, lease_seconds=lease_seconds)
        self._calls.empty += not found
        return found


class Crew:
    """The processes over one store."""

    def __init__(self, loop: ProcessLoop) -> None:
        self.loop = loop
        self.clock = LoopClock(loop, random.Random(7))
        self.stage = Stage(MemoryTables(), MemoryQueues(self.clock), self.clock)  # type: ignore[arg-type]
        self.logs = MemoryLogs()
        self.stop = Flag()
        self.tasks: list[asyncio.Task[None]] = []

    async def submit(self, requires: Requirements, **more: Any) -> None:
        await self.stage.submit(graph(requires, **more))

    def handlers(self, calls: Calls) -> Handlers:
        made = self.stage.more_handlers(calls)
        return replace(made, queues=_CountingQueues(made.queues, calls))

    async def registered(self, *workers: str, version: str = __version__) -> None:
        """Rows of these workers, or without any of one that handles, as a program of this version writes them."""
        details = WorkerDetails(("default",), (), (), "vm", 1, version, 1, 3_600.0, "" if workers else HANDLER)
        for name in workers or (f"handler of {version}",):
            await Registration(self.stage.tables, self.clock, RegisteredHandler(name), details).beat()

    def consumer(
        self, calls: Calls | None = None, handlers: Handlers | None = None, *, poll_seconds: float = POLL_SECONDS
    ) -> Consumer:
        handlers = handlers or self.handlers(calls or Calls())
        poison = Poison(handlers.records.tables, handlers.queues, self.clock, handlers.names)
        return Consumer(handlers, poison, Wakeup(), idle_seconds_max=poll_seconds)

    def worker(
        self,
        executor: Script,
        calls: Calls | None = None,
        *,
        handlers: Handlers | None = None,
        name: str = "w",
        slots: int = 1,
        lease_seconds: float = 30.0,
        targets: Sequence[str] = ("default",),
        offer: Offer | None = None,
        wakeup: Wakeup | None = None,
        poll_seconds: float = POLL_SECONDS,
    ) -> Worker:
        """A worker of a process. wakeup: it is woken by that, and seldom asks; else it asks all the time."""
        handlers = handlers or self.handlers(calls or Calls())
        poison = Poison(handlers.records.tables, handlers.queues, self.clock, handlers.names)
        return Worker(
            handlers,
            poison,
            Executors([executor], executor.name),
            self.logs,
            wakeup or Wakeup(),
            name=name,
            slots=slots,
            lease_seconds=lease_seconds,
            targets=targets,
            offer=offer,
            idle_seconds_max=poll_seconds if wakeup is None else 3_600.0,
        )

    def together(
        self, executor: Script, calls: Calls | None = None, *, slots: int = 1, name: str = "w"
    ) -> tuple[Consumer, Worker]:
        """A consumer and a worker of one process, which delivers to it."""
        handlers = self.handlers(calls or Calls())
        consumer = self.consumer(handlers=handlers)
        worker = self.worker(executor, handlers=handlers, slots=slots, name=name)
        consumer.local_worker = worker.attach(consumer)
        consumer.own.add(self.stage.graph_id)
        return consumer, worker

    def start(self, *processes: Consumer | Worker, stop: Flag | None = None) -> list[asyncio.Task[None]]:
        """Let them run until the end, or until they are told to stop."""
        started = [asyncio.create_task(process.run(stop or self.stop)) for process in processes]
        self.tasks += started
        return started

    async def until(self, condition: Callable[[], Awaitable[bool] | bool], seconds_max: float = 3_600.0) -> None:
        """Wait until something holds."""
        began = self.clock.monotonic()
        while True:
            held = condition()
            if held if isinstance(held, bool) else await held:
                return
            assert self.clock.monotonic() - began < seconds_max, "it never came to be"
            for task in self.tasks:
                if task.done():
                    task.result()
            await asyncio.sleep(0.01)

    async def finished(self) -> None:
        """Wait until the graph has finished."""

        async def is_so() -> bool:
            return await self.stage.state() == "finished"

        await self.until(is_so)

    async def end(self) -> None:
        """Tell all of them to stop, and wait."""
        self.stop.set()
        for task in self.tasks:
            await task

    async def finish(self) -> None:
        await self.finished()
        await self.end()


def virtually(act: Callable[[Crew], Awaitable[None]]) -> None:
    """Let something happen in virtual time, to its end."""
    loop = ProcessLoop()
    asyncio.set_event_loop(loop)

    async def main() -> None:
        await act(Crew(loop))

    try:
        loop.run_until_complete(main())
    finally:
        end_all(loop)
        loop.close()
        asyncio.set_event_loop(None)
    assert loop.slips == []


def chain(length: int) -> dict[str, list[str]]:
    return {f"c{n:04}": [f"c{n - 1:04}"] if n else [] for n in range(length)}


def fan(width: int) -> dict[str, list[str]]:
    middle = [f"m{n:04}" for n in range(width)]
    return {"start": [], **{label: ["start"] for label in middle}, "stop": middle}


def layers(depth: int, width: int) -> dict[str, list[str]]:
    """Layers in which each task requires three of the layer before."""
    return {
        f"l{layer}-{n:03}": [f"l{layer - 1}-{(n + step) % width:03}" for step in (0, 1, 7)] if layer else []
        for layer in range(depth)
        for n in range(width)
    }


def once_each(scripts: Iterable[Script], labels: Iterable[str]) -> bool:
    """Whether every task ran once, in its first run."""
    runs: Sequence[tuple[str, int]] = [run for script in scripts for run in script.runs]
    return sorted(runs) == sorted((label, 0) for label in labels)
