"""A seeded world: the production handlers, submission and sweep over the in-memory store, one storage call at a time.

Every storage call of an actor is a point at which the driver may let somebody else go first, let the actor die before
or after the call, answer a commit that was applied with a conflict or with silence, lose or double a message. After the
faults stop, time goes on until the graph is at rest; then the rows must say what the graph and the outcomes alone say.
"""

import contextlib
import json
import random
import types
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from taskgraph import limits
from taskgraph.errors import Conflict, NotFound, Refused, StaleDelivery, StorageUnavailable, TaskgraphError, Unclear
from taskgraph.handlers import Handlers
from taskgraph.messages import RunTasks, TaskCompleted, TaskFailed, TaskResult, parse, to_text
from taskgraph.model import GRAPH, GraphDocument, TaskState, reference_of, row_key, slugid_from, task_id_of
from taskgraph.records import Records
from taskgraph.storage.queues import Delivery
from taskgraph.storage.tables import Change, Page, Range, Row
from taskgraph.submission import extend, submit
from taskgraph.sweep import Swept, sweep
from taskgraph.transitions import Claim, HandBack, Outcome
from tests.simulation.memory import MemoryQueues, MemoryTables


class Crash(BaseException):
    """The process of this actor is gone."""


@types.coroutine
def _step() -> Generator[None, None, None]:
    yield


class VirtualClock:
    def __init__(self, rng: random.Random) -> None:
        self.seconds = 0.0
        self._rng = rng

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        await _step()

    def new_id(self) -> str:
        return slugid_from(self._rng.randbytes(16))

    def jitter(self) -> float:
        return self._rng.random()


@dataclass
class Faults:
    """Rates per storage call."""

    crash: float = 0.0
    unclear: float = 0.0  # applied, answered by silence
    false_conflict: float = 0.0  # applied, answered 409/412
    unavailable: float = 0.0
    lose: float = 0.0
    double: float = 0.0


class FaultyTables:
    def __init__(self, world: "World") -> None:
        self._world = world
        self._inner = world.tables

    async def get(self, partition: str, keys: Sequence[str]) -> list[Row | None]:
        await self._world.call("get")
        found: list[Row | None] = []
        for start in range(0, len(keys), 3):  # no snapshot: others may write between
            found += await self._inner.get(partition, keys[start : start + 3])
            if start + 3 < len(keys):
                await _step()
        return found

    async def query(self, partition: str, rows: Range, *, limit: int = 1000, continuation: str | None = None) -> Page:
        await self._world.call("query")
        return await self._inner.query(partition, rows, limit=min(limit, 5), continuation=continuation)

    async def commit(self, partition: str, changes: Sequence[Change]) -> list[str | None]:
        world = self._world
        await world.call("commit")
        etags = await self._inner.commit(partition, changes)
        world.committed(partition, changes)
        draw = world.rng.random()
        faults = world.faults
        if draw < faults.unclear:
            raise Unclear("the answer was lost")
        if draw < faults.unclear + faults.false_conflict:
            raise Conflict("412 on the own write")
        await world.after("commit")
        return etags

    async def close(self) -> None:
        pass


class FaultyQueues:
    def __init__(self, world: "World") -> None:
        self._world = world
        self._inner = world.queues

    async def send(self, queue: str, bodies: Sequence[str], *, delay_seconds: float = 0) -> None:
        for body in bodies:
            await self._world.call("send")
            draw = self._world.rng.random()
            copies = 0 if draw < self._world.faults.lose else 2 if draw > 1 - self._world.faults.double else 1
            await self._inner.send(queue, [body] * copies, delay_seconds=delay_seconds)
            await self._world.after("send")

    async def receive(self, queue: str, *, count: int = 1, lease_seconds: float) -> list[Delivery]:
        await self._world.call("receive")
        return await self._inner.receive(queue, count=count, lease_seconds=lease_seconds)

    async def renew(self, delivery: Delivery, *, lease_seconds: float) -> Delivery:
        await self._world.call("renew")
        return await self._inner.renew(delivery, lease_seconds=lease_seconds)

    async def delete(self, delivery: Delivery) -> None:
        await self._world.call("delete")
        await self._inner.delete(delivery)
        await self._world.after("delete")

    async def count(self, queue: str) -> int:
        await self._world.call("count")
        return await self._inner.count(queue)

    async def close(self) -> None:
        pass


@dataclass
class World:
    """One history."""

    seed: int
    document: GraphDocument
    fails: Mapping[str, int] = field(default_factory=dict)  # label -> how many runs fail before one succeeds
    extensions: Sequence[GraphDocument] = ()
    faults: Faults = field(default_factory=Faults)
    reruns: bool = False  # somebody reruns by hand whatever failed for good, again and again
    graph_id: str = "g"

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.clock = VirtualClock(self.rng)
        self.tables = MemoryTables()
        self.queues = MemoryQueues(self.clock)
        self.actors: list[tuple[str, Coroutine[Any, Any, Any]]] = []
        self.calls = 0
        self.crashes = 0
        self.executions: dict[tuple[str, int], int] = {}
        self.failed_runs: dict[str, int] = {}
        self.accepted_labels = set(self.document.tasks)
        self.extended = [False] * len(self.extensions)
        self.history: list[tuple[str, str]] = []
        self.active = False
        self.claims: dict[tuple[str, int], str] = {}

    # --- faults

    async def call(self, kind: str) -> None:
        await _step()
        self.calls += 1
        if self.active and self.rng.random() < self.faults.crash:
            self.crashes += 1
            raise Crash
        if self.active and self.rng.random() < self.faults.unavailable:
            raise StorageUnavailable("503")

    async def after(self, kind: str) -> None:
        if self.active and self.rng.random() < self.faults.crash:
            self.crashes += 1
            raise Crash

    # --- actors

    def handlers(self) -> Handlers:
        return Handlers(Records(FaultyTables(self), self.clock), FaultyQueues(self), self.clock)

    async def _submit(self) -> None:
        await submit(self.handlers(), self.graph_id, self.document)

    async def _extend(self, number: int) -> None:
        try:
            answer = await extend(self.handlers(), self.graph_id, self.extensions[number])
        except NotFound:
            return
        except Refused as refused:
            if refused.code == "not-running":
                return
            raise
        if answer.state == "done":
            self.extended[number] = True

    async def _handler(self, handlers: Handlers) -> None:
        queues = handlers.queues
        found = await queues.receive(handlers.names.events, count=self.rng.choice((1, 2, 8, 32)), lease_seconds=30)
        if not found:
            return
        messages = [parse(delivery.body) for delivery in found]
        handled = {id(each.message): each for each in await handlers.handle(self.graph_id, messages)}
        for delivery, message in zip(found, messages, strict=True):
            if handled[id(message)].error is not None:
                if not isinstance(handled[id(message)].error, NotFound):
                    raise AssertionError(f"{message}: {handled[id(message)].error!r}")
                continue
            with contextlib.suppress(StaleDelivery):
                await queues.delete(delivery)

    async def _worker(self, handlers: Handlers, name: str) -> None:
        queues = handlers.queues
        found = await queues.receive(handlers.names.work("default"), count=1, lease_seconds=30)
        for delivery in found:
            message = parse(delivery.body)
            assert isinstance(message, RunTasks)
            lease = self.clock.now() + timedelta(seconds=60)
            claims = [Claim(task, run, self.clock.new_id(), name, lease) for task, run in message.tasks]
            rows: dict[str, Row | None] = {}
            await handlers.records.load(self.graph_id, [row_key(task) for task, _ in message.tasks], rows)
            answers = await handlers.transition(self.graph_id, claims, rows=rows)
            completed: list[TaskResult] = []
            failed: list[TaskResult] = []
            for answer in answers:
                item = answer.item
                if not isinstance(item, Claim) or answer.outcome not in (Outcome.APPLIED, Outcome.REPEATED):
                    continue
                if self.active and self.rng.random() < 0.03:
                    await handlers.transition(self.graph_id, [HandBack(item.task_id, item.run, item.claim, "stop")])
                    continue
                self._executed(item)
                label = self._label(item.task_id)
                done = self.failed_runs.get(label, 0)
                ended = self.clock.now().isoformat()
                if done < self.fails.get(label, 0):
                    failed.append(
                        TaskResult(item.task_id, item.run, item.claim, ended, {"failed": True, "reason": "x"})
                    )
                else:
                    completed.append(TaskResult(item.task_id, item.run, item.claim, ended, {"failed": False}))
            bodies = []
            if completed:
                bodies.append(to_text(TaskCompleted(self.graph_id, tuple(completed))))
            if failed:
                bodies.append(to_text(TaskFailed(self.graph_id, tuple(failed))))
            if bodies:
                await queues.send(handlers.names.events, bodies)
            with contextlib.suppress(StaleDelivery):
                await queues.delete(delivery)

    def _executed(self, item: Claim) -> None:
        key = (item.task_id, item.run)
        self.executions[key] = self.executions.get(key, 0) + 1
        assert self.executions[key] == 1, f"{self._label(item.task_id)} run {item.run} executed twice"

    def _label(self, task_id: str) -> str:
        row = self.tables.partitions[self.graph_id][row_key(task_id)]
        return str(row.columns["label"])

    async def _rerun(self) -> None:
        handlers = self.handlers()
        from taskgraph.messages import Rerun

        rows = self.tables.partitions.get(self.graph_id, {})
        for key, row in list(rows.items()):
            if key.startswith("task:") and row.columns["state"] in (TaskState.FAILED, TaskState.EXCEPTION):
                message = Rerun(self.graph_id, reference_of(key), int(row.columns["run"]))
                await handlers.queues.send(handlers.names.events, [to_text(message)])

    async def _sweep(self) -> None:
        swept = await sweep(self.handlers())
        assert isinstance(swept, Swept)

    # --- invariants

    def committed(self, partition: str, changes: Sequence[Change]) -> None:
        """After every commit."""
        if partition != self.graph_id:
            return
        rows = self.tables.partitions[partition]
        for change in changes:
            row = rows[change.key]
            columns = row.columns
            if change.key.startswith("task:"):
                self._check_task(row)
            for name in ("requires", "dependents", "requiresLeft"):
                if name in columns:
                    bound = 97 if name != "dependents" else limits.DEPENDENTS_MAX
                    assert len(json.loads(str(columns[name]))) <= bound, (change.key, name)
            if change.key == GRAPH:
                state = str(columns["state"])
                if not self.history or self.history[-1][1] != state:
                    self.history.append(("graph", state))
                    assert len([s for _, s in self.history if s == "finished"]) <= 1
                if state == "finished":
                    for key, other in rows.items():
                        if key.startswith("task:"):
                            assert other.columns["state"] == "completed", (key, other.columns["state"])
                if state == "blocked":
                    assert int(columns["failedTasks"]) > 0

    def _check_task(self, row: Row) -> None:
        columns = row.columns
        label = str(columns["label"])
        assert 0 <= int(columns["rerunsLeft"]) <= int(columns["rerunsAllowed"])
        spent = int(columns["rerunsAllowed"]) - int(columns["rerunsLeft"])
        lost = limits.RETRIES_DEFAULT - int(columns["retriesLeft"])
        by_hand = int(columns.get("manualReruns", 0)) + int(columns.get("handBacks", 0))
        assert int(columns["run"]) == spent + lost + by_hand, (label, columns)
        self.failed_runs[label] = spent + int(columns.get("manualReruns", 0))
        if columns["state"] in ("pending", "running"):
            for required in self.all_tasks()[label].requires:
                other = self.tables.partitions[self.graph_id].get(row_key(task_id_of(self.graph_id, required)))
                assert other is not None
                assert other.columns["state"] == "completed", f"{label} is ready before {required}"

    def all_tasks(self) -> dict[str, Any]:
        tasks = dict(self.document.tasks)
        for extension in self.extensions:
            tasks |= extension.tasks
        return tasks

    # --- the driver

    def spawn(self, name: str, coroutine: Coroutine[Any, Any, Any]) -> None:
        self.actors.append((name, coroutine))

    def advance(self) -> None:
        index = self.rng.randrange(len(self.actors))
        name, coroutine = self.actors[index]
        try:
            coroutine.send(None)
        except StopIteration:
            del self.actors[index]
        except (Crash, StorageUnavailable, Conflict, Unclear):
            del self.actors[index]
        except TaskgraphError as error:
            raise AssertionError(f"seed {self.seed}: {name}: {error!r}") from error

    def submitted(self) -> bool:
        row = self.tables.partitions.get(self.graph_id, {}).get(GRAPH)
        return row is not None and row.columns["state"] != "submitting"

    def state(self) -> str:
        row = self.tables.partitions.get(self.graph_id, {}).get(GRAPH)
        return str(row.columns["state"]) if row else ""

    def run(self, steps_max: int = 200_000) -> str:
        """Faults first, then quiet time; gives the final state of the graph."""
        try:
            return self._run(steps_max)
        finally:
            for _, coroutine in self.actors:
                coroutine.close()

    def _run(self, steps_max: int) -> str:
        self.active = True
        stormy = self.rng.randrange(50, 2000)
        steps = 0
        quiet_since = 0.0
        handlers = [self.handlers() for _ in range(3)]
        while True:
            steps += 1
            assert steps < steps_max, f"seed {self.seed}: no end after {steps} steps: {self.state()}"
            if steps == stormy:
                self.active = False
                self.faults = Faults()
            while len(self.actors) < 4:
                self.spawn(*self._next_actor(handlers))
            self.advance()
            if self.rng.random() < 0.2:
                self.clock.seconds += self.rng.choice((0.1, 1.0, 7.0))
            if steps > stormy and steps % 200 == 0:
                self.clock.seconds += 45.0
                state = self.state()
                done = self.submitted() and all(self.extended)
                if state == "finished":
                    return state
                if state == "blocked" and self._at_rest():
                    if self.reruns:
                        self.spawn("rerun", self._rerun())
                        quiet_since = self.clock.seconds
                    elif self.clock.seconds - quiet_since > 600:
                        return state
                if not done:
                    quiet_since = self.clock.seconds

    def _at_rest(self) -> bool:
        rows = self.tables.partitions.get(self.graph_id, {})
        return not any(
            row.columns["state"] in ("pending", "running") for key, row in rows.items() if key.startswith("task:")
        )

    def _next_actor(self, handlers: list[Handlers]) -> tuple[str, Coroutine[Any, Any, Any]]:
        if not self.submitted() and self.rng.random() < 0.5:
            return "submit", self._submit()
        open_extensions = [n for n, done in enumerate(self.extended) if not done]
        if open_extensions and self.rng.random() < 0.3:
            return "extend", self._extend(self.rng.choice(open_extensions))
        draw = self.rng.random()
        if draw < 0.45:
            return "handler", self._handler(self.rng.choice(handlers))
        if draw < 0.9:
            return "worker", self._worker(self.rng.choice(handlers), f"w{self.rng.randrange(3)}")
        return "sweep", self._sweep()

    def oracle(self) -> str:
        """From graph and outcomes alone: how must it end? (Leases lost too often block a graph that nobody reruns.)"""
        rows = self.tables.partitions[self.graph_id]
        if not self.reruns and any(row.columns.get("state") == TaskState.EXCEPTION for row in rows.values()):
            return "blocked"
        for label, node in self.all_tasks().items():
            if self.fails.get(label, 0) > node.reruns and not self.reruns:
                return "blocked"
        return "finished"


Chooser = Callable[[random.Random], World]
