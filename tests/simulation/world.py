"""A seeded world: the production handlers, submission and sweep over the in-memory store, one storage call at a time.

Every storage call of an actor is a point at which the driver may let somebody else go first, let the actor die before
or after the call, be told to stop in the middle of it, answer a commit that was applied with a conflict or with
silence, lose or double a message. Nobody polls: an actor is started when there is something for it, and time jumps
where there is nothing for anybody. After the faults stop, time goes on until the graph is at rest; then the rows must
say what the graph and the outcomes alone say.
"""

import asyncio
import contextlib
import random
import types
from collections import Counter
from collections.abc import Coroutine, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from taskgraph import limits
from taskgraph.documents import content_hash
from taskgraph.errors import Conflict, NotFound, Refused, StaleDelivery, StorageUnavailable, TaskgraphError, Unclear
from taskgraph.handlers import Handlers
from taskgraph.messages import Rerun, RunTasks, TaskCompleted, TaskFailed, TaskResult, parse, to_text
from taskgraph.model import GraphDocument, TaskNode, TaskState, reference_of, row_key, slugid_from, task_id_of
from taskgraph.records import Records
from taskgraph.storage.queues import Delivery
from taskgraph.storage.tables import Change, Page, Range, Row
from taskgraph.submission import extend, submit
from taskgraph.sweep import Swept, sweep
from taskgraph.transitions import Claim, HandBack, Outcome
from tests.simulation.bounds import bounded
from tests.simulation.invariants import Invariants, Violation, hold, settled
from tests.simulation.memory import MemoryQueues, MemoryTables
from tests.simulation.races import Watch

MESSAGE_LEASE_SECONDS = 30
SKEWS_SECONDS = (0.0, 0.0, 0.0, -20.0, 75.0)  # how far the time of day of a process is off


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


class SkewedClock(VirtualClock):
    """The clock of a process whose time of day is off."""

    def __init__(self, true: VirtualClock, rng: random.Random, skew_seconds: float) -> None:
        super().__init__(rng)
        self._true = true
        self._skew = timedelta(seconds=skew_seconds)

    def now(self) -> datetime:
        return self._true.now() + self._skew

    def monotonic(self) -> float:
        return self._true.seconds


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
        world = self._world
        await world.call("get")
        found: list[Row | None] = []
        commits = len(world.watch.written)
        for start in range(0, len(keys), 3):  # no snapshot: others may write between
            found += await self._inner.get(partition, keys[start : start + 3])
            if start + 3 < len(keys):
                await _step()
        world.watch.read(world.actor, keys, commits)
        return found

    async def query(self, partition: str, rows: Range, *, limit: int = 1000, continuation: str | None = None) -> Page:
        await self._world.call("query")
        world = self._world
        page = await self._inner.query(partition, rows, limit=min(limit, 3), continuation=continuation)
        if page.rows and world.active and world.rng.random() < 0.05:
            page = Page([], continuation or page.rows[0].key)  # nothing yet, and no end either
        if page.continuation is not None:
            world.watch.met["R17"] += 1
        return page

    async def commit(self, partition: str, changes: Sequence[Change]) -> list[str | None]:
        world = self._world
        await world.call("commit")
        before = world.watch.before_commit(world.actor, partition, changes)
        try:
            etags = await self._inner.commit(partition, changes)
        except Conflict as conflict:
            world.watch.conflict(world.actor, partition, changes, conflict)
            raise
        world.committed(partition, changes)
        world.watch.committed(world.actor, partition, changes, before)
        draw = world.rng.random()
        faults = world.faults
        if draw < faults.unclear:
            world.fault("unclear", partition)
            raise Unclear("the answer was lost")
        if draw < faults.unclear + faults.false_conflict:
            world.fault("false_conflict", partition)
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
        world = self._world
        for body in bodies:
            await world.call("send")
            draw = world.rng.random()
            copies = 0 if draw < world.faults.lose else 2 if draw > 1 - world.faults.double else 1
            if copies != 1:
                world.fault("double" if copies else "lose", queue)
            await self._inner.send(queue, [body] * copies, delay_seconds=delay_seconds)
            world.watch.sent(world.actor, queue, body)
            await world.after("send")

    async def receive(self, queue: str, *, count: int = 1, lease_seconds: float) -> list[Delivery]:
        world = self._world
        await world.call("receive")
        found = await self._inner.receive(queue, count=count, lease_seconds=lease_seconds)
        world.watch.received(world.actor, found)
        return found

    async def renew(self, delivery: Delivery, *, lease_seconds: float) -> Delivery:
        await self._world.call("renew")
        return await self._inner.renew(delivery, lease_seconds=lease_seconds)

    async def delete(self, delivery: Delivery) -> None:
        world = self._world
        await world.call("delete")
        try:
            await self._inner.delete(delivery)
        except StaleDelivery:
            world.watch.taken_over(world.actor, delivery)
            raise
        await world.after("delete")

    async def count(self, queue: str) -> int:
        await self._world.call("count")
        return await self._inner.count(queue)

    async def close(self) -> None:
        pass


@dataclass(eq=False)
class Actor:
    """One process at work on one thing, with what the watch remembers of it."""

    name: str
    coroutine: Any
    advanced_at: float
    in_hand: list[Delivery] = field(default_factory=list)
    stage: str = "begun"  # of a worker: begun, claimed, reported
    unsent: bool = False  # it has made a task pending, and has sent no work since
    untold: bool = False  # it has finished the graph, and the graph is in the live index still
    commits: int = 0
    conflicts: int = 0
    idle_seconds: float = 0.0


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
    bounds: Mapping[str, int] = field(default_factory=dict)  # limits made small

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.clock = VirtualClock(self.rng)
        self.tables = MemoryTables()
        self.queues = MemoryQueues(self.clock)
        self.actors: list[Actor] = []
        self.actor = Actor("nobody", None, 0.0)
        self.calls = 0
        self.crashes = 0
        self.fault_counts: Counter[str] = Counter()
        self.executions: dict[tuple[str, int], int] = {}
        self.extended = [False] * len(self.extensions)
        self.asked_at = [-1e9] * len(self.extensions)
        self.rerun_at = -1e9
        self.next_sweep = limits.SWEEP_SECONDS
        self.active = False
        self.tasks = dict(self.document.tasks)
        for extension in self.extensions:
            self.tasks |= extension.tasks
        self.invariants = Invariants(self.graph_id, self.tasks)
        self.watch = Watch(self)
        self.labels = {task_id_of(self.graph_id, label): label for label in self.tasks}

    @property
    def history(self) -> list[str]:
        """The states that the graph went through."""
        return self.invariants.history

    @property
    def rows(self) -> dict[str, Row]:
        return self.tables.partitions.get(self.graph_id, {})

    # --- faults

    def fault(self, kind: str, where: str) -> None:
        self.fault_counts[kind] += 1
        if kind in ("unclear", "false_conflict") and where == self.graph_id:
            self.watch.met["R11"] += 1
        if kind == "double":
            self.watch.met["R12"] += 1

    async def call(self, kind: str) -> None:
        await _step()
        self.calls += 1
        if self.active:
            if self.rng.random() < self.faults.crash:
                self._die()
            if self.rng.random() < self.faults.unavailable:
                self.fault_counts["unavailable"] += 1
                self.watch.unavailable()
                raise StorageUnavailable("503")
            self.watch.storm = 0

    async def after(self, kind: str) -> None:
        if self.active and self.rng.random() < self.faults.crash:
            self._die()

    def _die(self) -> None:
        self.crashes += 1
        self.fault_counts["crash"] += 1
        raise Crash

    # --- actors

    def handlers(self, skew_seconds: float = 0.0) -> Handlers:
        clock = SkewedClock(self.clock, self.rng, skew_seconds) if skew_seconds else self.clock
        return Handlers(Records(FaultyTables(self), clock), FaultyQueues(self), clock)

    async def _submit(self) -> None:
        await submit(self.handlers(), self.graph_id, self.document)

    async def _extend(self, number: int) -> None:
        try:
            answer = await extend(self.handlers(), self.graph_id, self.extensions[number])
        except NotFound:
            return
        except Refused as refused:
            if refused.code == "not-running":
                self.watch.met["R08"] += 1
                return
            raise
        if answer.state == "done":
            self.extended[number] = True

    async def _handler(self, handlers: Handlers) -> None:
        queues = handlers.queues
        found = await queues.receive(
            handlers.names.events, count=self.rng.choice((1, 2, 8, 32)), lease_seconds=MESSAGE_LEASE_SECONDS
        )
        if not found:
            return
        messages = [parse(delivery.body) for delivery in found]
        handled = {id(each.message): each for each in await handlers.handle(self.graph_id, messages)}
        for delivery, message in zip(found, messages, strict=True):
            self.watch.handled(delivery, handled[id(message)])
            if handled[id(message)].error is not None:
                if not isinstance(handled[id(message)].error, NotFound):
                    raise Violation(f"{message}: {handled[id(message)].error!r}")
                continue
            with contextlib.suppress(StaleDelivery):
                await queues.delete(delivery)

    async def _worker(self, handlers: Handlers, name: str) -> None:
        queues, actor = handlers.queues, self.actor
        found = await queues.receive(handlers.names.work("default"), count=1, lease_seconds=MESSAGE_LEASE_SECONDS)
        for delivery in found:
            message = parse(delivery.body)
            if not isinstance(message, RunTasks):
                raise Violation(f"{message} is on a work queue")
            lease = handlers.clock.now() + timedelta(seconds=60)
            claims = [Claim(task, run, self.clock.new_id(), name, lease) for task, run in message.tasks]
            rows: dict[str, Row | None] = {}
            await handlers.records.load(self.graph_id, [row_key(task) for task, _ in message.tasks], rows)
            answers = await handlers.transition(self.graph_id, claims, rows=rows)
            actor.stage = "claimed"
            completed: list[TaskResult] = []
            failed: list[TaskResult] = []
            for answer in answers:
                item = answer.item
                self.watch.claimed(answer)
                if not isinstance(item, Claim) or answer.outcome not in (Outcome.APPLIED, Outcome.REPEATED):
                    continue
                if self.active and self.rng.random() < 0.03:
                    await handlers.transition(self.graph_id, [HandBack(item.task_id, item.run, item.claim, "stop")])
                    continue
                self._executed(item)
                label = self.labels[item.task_id]
                done = self.invariants.failed_runs.get(label, 0)
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
            actor.stage = "reported"
            with contextlib.suppress(StaleDelivery):
                await queues.delete(delivery)

    def _executed(self, item: Claim) -> None:
        key = (item.task_id, item.run)
        self.executions[key] = self.executions.get(key, 0) + 1
        hold(self.executions[key] == 1, f"{self.labels[item.task_id]} run {item.run} executed twice")

    async def _rerun(self) -> None:
        handlers = self.handlers()
        for key, row in list(self.rows.items()):
            if key.startswith("task:") and row.columns["state"] in (TaskState.FAILED, TaskState.EXCEPTION):
                message = Rerun(self.graph_id, reference_of(key), int(row.columns["run"]))
                await handlers.queues.send(handlers.names.events, [to_text(message)])

    async def _sweep(self) -> None:
        swept = await sweep(self.handlers(self.rng.choice(SKEWS_SECONDS)))
        assert isinstance(swept, Swept)

    # --- invariants

    def committed(self, partition: str, changes: Sequence[Change]) -> None:
        """After every commit."""
        if partition == self.graph_id:
            self.invariants.committed(self.tables.partitions[partition], changes)

    def all_tasks(self) -> dict[str, Any]:
        return self.tasks

    # --- the driver

    def spawn(self, name: str, coroutine: Coroutine[Any, Any, Any]) -> None:
        actor = Actor(name, coroutine, self.clock.seconds)
        self.watch.spawned(actor)
        self.actors.append(actor)

    def advance(self) -> None:
        rng = self.rng
        index = int(rng.random() * len(self.actors))
        actor = self.actor = self.actors[index]
        actor.idle_seconds = self.clock.seconds - actor.advanced_at
        actor.advanced_at = self.clock.seconds
        try:
            if self.active and rng.random() < self.faults.crash / 4:
                # Told to stop inside a storage call, whose answer it never hears.
                self.fault_counts["cancelled"] += 1
                self.watch.met["R55"] += 1
                actor.coroutine.throw(asyncio.CancelledError())
            else:
                actor.coroutine.send(None)
        except StopIteration:
            del self.actors[index]
        except (Crash, asyncio.CancelledError):
            self.watch.crashed(actor)
            del self.actors[index]
        except (StorageUnavailable, Conflict, Unclear):
            del self.actors[index]
        except TaskgraphError as error:
            raise Violation(f"{actor.name}: {error!r}") from error

    def submitted(self) -> bool:
        return self.invariants.graph_state not in ("", "submitting")

    def state(self) -> str:
        return self.invariants.graph_state

    def run(self, steps_max: int = 200_000) -> str:
        """Faults first, then quiet time; gives the final state of the graph."""
        try:
            with bounded(self.bounds):
                end = self._run(steps_max)
                settled(self.rows, self.graph_id, self._tasks_taken())
                return end
        except Violation as violation:
            raise AssertionError(f"seed {self.seed}: {violation}") from violation
        finally:
            for actor in self.actors:
                actor.coroutine.close()

    def _run(self, steps_max: int) -> str:
        rng, clock = self.rng, self.clock
        self.active = True
        stormy = rng.randrange(50, min(200 + 50 * len(self.tasks), 2000))
        crowd = rng.choice((2, 3, 4, 4, 6))
        look_at = 0
        handlers = [self.handlers(rng.choice(SKEWS_SECONDS)) for _ in range(3)]
        for step in range(steps_max):
            if step == stormy:
                self._calm()
            if not self.actors or (step >= look_at and len(self.actors) < crowd):
                chosen = self._next_actor(handlers)
                if chosen is not None:
                    self.spawn(*chosen)
                elif not self.actors:
                    if self._ended():
                        return self.state()
                    self._pass_time()
                    continue
                else:
                    look_at = step + 4  # nothing comes up all that fast
            self.advance()
            draw = rng.random()
            if draw < 0.1:  # time goes by while they are at work; seldom much, as when a machine sleeps
                clock.seconds += 70.0 if draw < 0.0015 else rng.choice((0.1, 1.0, 7.0))
        raise Violation(f"no end after {steps_max} steps: {self.state()}")

    def _tasks_taken(self) -> dict[str, TaskNode]:
        """The tasks of the submission and of all extensions that were taken."""
        answers = {row.columns.get("digest"): row.columns.get("state") for row in self.rows.values()}
        tasks = dict(self.document.tasks)
        for done, extension in zip(self.extended, self.extensions, strict=True):
            answer = answers.get(content_hash(extension))
            hold(answer == "done" or not done, f"an extension was done, and is {answer}")
            if answer == "done":
                tasks |= extension.tasks
        return tasks

    def _calm(self) -> None:
        self.active = False
        self.faults = Faults()

    def _pass_time(self) -> None:
        """Nobody has anything to do: on to the next moment at which somebody may."""
        names = self._names
        due = min(self.queues.due_seconds(names[0]), self.queues.due_seconds(names[1]), self.next_sweep)
        self.clock.seconds = max(self.clock.seconds, due) + 0.01

    @property
    def _names(self) -> tuple[str, str]:
        return ("taskgraph-events", "taskgraph-work-default")

    def _ended(self) -> bool:
        if not self.submitted() or any(self.queues.messages.get(name) for name in self._names):
            return False
        if self.state() == "finished":
            return True
        return self.state() == "blocked" and not self.reruns and self._at_rest()

    def _at_rest(self) -> bool:
        if any(state in ("pending", "running") for state in self.invariants.states.values()):
            return False
        return not any(
            key.startswith("request:") and row.columns.get("state") in ("staged", "accepted")
            for key, row in self.rows.items()
        )

    def _next_actor(self, handlers: list[Handlers]) -> tuple[str, Coroutine[Any, Any, Any]] | None:
        """Somebody for whom there is something to do."""
        rng, now = self.rng, self.clock.seconds
        if not self.submitted() and (rng.random() < 0.1 or not any(each.name == "submit" for each in self.actors)):
            return "submit", self._submit()
        events, work = self._names
        choices: list[str] = []
        if self.queues.due_seconds(events) <= now:
            choices += ("handler", "handler")
        if self.queues.due_seconds(work) <= now:
            choices += ("worker", "worker")
        if now >= self.next_sweep or rng.random() < 0.01:
            choices.append("sweep")
        if self.submitted():
            waiting = [n for n, done in enumerate(self.extended) if not done]
            number = rng.choice(waiting) if waiting else -1
            if waiting and (now - self.asked_at[number] > 20.0 or rng.random() < 0.02) and self.state() != "finished":
                choices.append("extend")
            if self.reruns and self.state() == "blocked" and now - self.rerun_at > 20.0 and self._at_rest():
                choices.append("rerun")
        if not choices:
            return None
        match rng.choice(choices):
            case "handler":
                return "handler", self._handler(rng.choice(handlers))
            case "worker":
                return "worker", self._worker(rng.choice(handlers), f"w{rng.randrange(3)}")
            case "extend":
                self.asked_at[number] = now
                return "extend", self._extend(number)
            case "rerun":
                self.rerun_at = now
                return "rerun", self._rerun()
        self.next_sweep = now + limits.SWEEP_SECONDS
        return "sweep", self._sweep()

    def oracle(self) -> str:
        """From graph and outcomes alone: how must it end? (Leases lost too often block a graph that nobody reruns.)"""
        if not self.reruns and any(row.columns.get("state") == TaskState.EXCEPTION for row in self.rows.values()):
            return "blocked"
        present = {row.columns["label"] for key, row in self.rows.items() if key.startswith("task:")}
        for label, node in self.tasks.items():
            if label in present and self.fails.get(label, 0) > node.reruns and not self.reruns:
                return "blocked"
        return "finished"
