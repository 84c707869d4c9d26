"""Programs of several versions over one store: some do not read large messages, and some of these have no row.

What this room is for: histories of whole processes in which tasks are sent and reported in large messages, made small
here, while programs of older versions come and go. Where all of these have rows that were written before anything was
sent, not one message may be left alone, and no run given up.
"""

import json
import math
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from taskgraph.engine.handlers import Handlers
from taskgraph.engine.poison import NEWER_VERSION_SECONDS
from taskgraph.queries.workers import HANDLER, Crew
from taskgraph.rehearsal.virtual_time import LoopClock
from taskgraph.storage.queues import Delivery
from taskgraph.storage.signals.wakeup import Wakeup
from taskgraph.worker.executors import Executors, Outcome, Work, WriteLog
from taskgraph.worker.loop import Worker
from taskgraph.worker.registration import RegisteredHandler, Registration, WorkerDetails
from tests.simulation.bounds import bounded
from tests.simulation.histories import random_document, wide_document
from tests.simulation.processes import Process, ProcessQueues, ProcessWorld, ScriptedExecutor
from tests.simulation.world import Faults

OLD: Final = "0.3.0"
NEW: Final = "0.4.0"
_BOUNDS: Final = {"BUNDLE_TASKS_MAX": 2, "LARGE_BUNDLE_TASKS_MAX": 6}
_RETRIES: Final = 5
_SETTLED_SECONDS: Final = 2.0  # after which every process that begins with the history has its row


class OldQueues(ProcessQueues):
    """As a program sees them that leaves messages of a higher version alone."""

    async def receive(self, queue: str, *, count: int = 1, lease_seconds: float) -> list[Delivery]:
        found = await super().receive(queue, count=count, lease_seconds=lease_seconds)
        read = [each for each in found if json.loads(each.body)["version"] == 1]
        for each in found:
            if each not in read:
                self._process.world.met["left alone"] += 1
                await self.renew(each, lease_seconds=NEWER_VERSION_SECONDS)
        return read


class CountingQueues(ProcessQueues):
    """Of a program that reads all, and sends some."""

    async def send(self, queue: str, bodies: Sequence[str], *, delay_seconds: float = 0) -> None:
        for body in bodies:
            message = json.loads(body)
            self._process.world.met[f"{message['type']} {message['version']}"] += 1
        await super().send(queue, bodies, delay_seconds=delay_seconds)


class Quick(ScriptedExecutor):
    """Takes no time, so that results come together."""

    instant = True

    async def run(self, work: Work, write_log: WriteLog) -> Outcome:
        world = self._process.world
        world.executions.setdefault((work.task_id, work.run), []).append(work.claim)
        return Outcome(failed=world.failed_runs(work.label) < world.fails.get(work.label, 0), reason="as told")


class ManyVersions(ProcessWorld):
    """old: names of processes that are of an older version; unknown: those of them that have no row.

    quick: whether runs take no time, so that there are large messages.
    """

    old: frozenset[str] = frozenset()
    unknown: frozenset[str] = frozenset()
    quick = True

    def _handlers_of(self, handlers: Handlers, process: Process) -> Handlers:
        """What a program of its version has: an old one looks at no rows, and sends what it reads."""
        is_old = process.name in self.old
        queues: Any = OldQueues(process) if is_old else CountingQueues(process)
        handlers.queues = handlers.dispatcher.queues = queues
        if is_old:
            sizes = handlers.dispatcher.bundle_sizes
            sizes.crew, sizes.crew_at = Crew(known=False), math.inf
        return handlers

    async def _write_row(self, handlers: Handlers, process: Process, clock: LoopClock, kind: str, name: str) -> None:
        if process.name in self.unknown:
            return
        version = OLD if process.name in self.old else NEW
        details = WorkerDetails(() if kind else ("default",), (), (), "vm", 1, version, 1, kind=kind)
        registration = Registration(process, clock, RegisteredHandler(name), details)
        await registration.beat()
        process.tasks.append(self.loop.create_task(registration.keep(self.stop)))

    async def _submitter(self, handlers: Handlers, process: Process, clock: LoopClock) -> None:
        while self.loop.time() < _SETTLED_SECONDS:
            await clock.sleep(_SETTLED_SECONDS)
        await super()._submitter(self._handlers_of(handlers, process), process, clock)

    async def _server(self, handlers: Handlers, process: Process, clock: LoopClock) -> None:
        handlers = self._handlers_of(handlers, process)
        await self._write_row(handlers, process, clock, HANDLER, f"{process.name}-{clock.new_id()[:4]}")
        await super()._server(handlers, process, clock)

    async def _worker(self, handlers: Handlers, process: Process, clock: LoopClock) -> None:
        await super()._worker(self._handlers_of(handlers, process), process, clock)

    def _crew(self, handlers: Handlers, process: Process, clock: LoopClock, wakeup: Wakeup) -> Worker:
        worker = super()._crew(handlers, process, clock, wakeup)
        if self.quick:
            worker._context.executors = Executors([Quick(process)])
        row = self._write_row(handlers, process, clock, "", worker.name)
        process.tasks.append(self.loop.create_task(row))
        return worker


class MixedVersions:
    """One history, as `mutants.hunt` plays them. rough: with faults, and programs of which nothing is known."""

    def __init__(self, seed: int, *, rough: bool = False) -> None:
        rng = random.Random(seed * 11 + 3)
        self.rough = rough
        faults = Faults(*(rng.choice((0, 0, 0.003, 0.01)) for _ in range(6))) if rough else Faults()
        wide = rng.random() < 0.8
        self.world = ManyVersions(
            seed,
            wide_document(rng.randrange(10, 25)) if wide else random_document(rng, rng.randrange(6, 12)),
            faults=faults,
            troubles=rng.choice((0, 1)) if rough else 0,
            storm_seconds=200.0,
            others=2,
            more=rng.choice((0, 0, 2)),
            numbers=rng.choice(((), (1, 2), (1, 2, 1, 2))),  # so that graphs move from handler to handler
        )
        handlers, workers = ("serve0", "serve1"), ("worker0", "worker1")
        names = rng.choice(((), handlers, workers, (*handlers, *workers)))
        rate = 0.4 if rough else rng.choice((0.3, 0.7))
        old = [name for name in names if rng.random() < rate]
        self.world.old = frozenset(old)
        self.world.quick = rng.random() < 0.9
        # What is left alone comes to some program that reads it.
        strangers = [name for name in old if rough and rng.random() < 0.9 and _other(name) not in old]
        self.world.unknown = frozenset(strangers)

    @property
    def met(self) -> Counter[str]:
        """What was met on the way."""
        return self.world.met

    def run(self, steps_max: int = 0) -> str:
        """Play it to the end. Raises AssertionError."""
        world = self.world
        with bounded(_BOUNDS):
            end = world.run()
        if end == "finished":
            world.verdict(end)
        if not self.rough:
            assert not world.met["left alone"], (
                f"seed {world.seed}: a message was sent to a program that does not read it"
            )
            for key, row in world.tables.partitions[world.graph_id].items():
                lost = key.startswith("task:") and int(row.columns.get("retriesLeft", _RETRIES)) < _RETRIES
                assert not lost, f"seed {world.seed}: a run of {row.columns['label']} was given up"
        return end

    def oracle(self) -> str:
        """How it has to end."""
        return self.world.states[-1] if self.rough else "finished"


def _other(name: str) -> str:
    """The other process of its kind."""
    return f"{name[:-1]}{1 - int(name[-1])}"
