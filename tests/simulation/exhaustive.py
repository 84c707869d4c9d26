"""Every storage call × every kind of fault: lives of graphs, played once for each place where something can go wrong.

A life is a script without chance: the production submission, handlers with their consumer, claims, results and sweep,
one after the other, over the in-memory store. Its storage calls are numbered. Played again with a fault at call k, the
life goes on as the world does: whoever died is started again, messages come back when their lease has ended, callers
ask again, the sweep comes by. At its end everything must be as if nothing had happened.
"""

import contextlib
import itertools
import json
import multiprocessing
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from taskgraph import limits
from taskgraph.consumer import Consumer, misplaced
from taskgraph.documents import content_hash
from taskgraph.errors import Conflict, Refused, StaleDelivery, StorageError, StorageUnavailable, Unclear
from taskgraph.handlers import Handlers
from taskgraph.messages import Message, Rerun, RunTasks, TaskCompleted, TaskFailed, TaskResult, parse, to_text
from taskgraph.model import GraphDocument, TaskNode, row_key, slugid_from, task_id_of
from taskgraph.poison import Poison
from taskgraph.records import LIVE, POISON, Records
from taskgraph.storage.queues import Delivery
from taskgraph.storage.tables import Change, Page, Range, Row
from taskgraph.submission import extend, submit
from taskgraph.sweep import sweep
from taskgraph.transitions import Claim, HandBack, Item, LeaseLost, Outcome, Renew
from taskgraph.wakeup import Wakeup
from tests.simulation.bounds import CHUNKED, NARROW, NARROWER, TIGHT, bounded
from tests.simulation.invariants import Invariants, Violation, hold, settled
from tests.simulation.memory import MemoryQueues, MemoryTables, drive

KINDS: Final = ("before", "after", "unavailable", "conflict", "unclear", "lose", "double")
"""before, after: the process is gone then; unavailable: 503; conflict, unclear: applied, and answered so; lose, double:
what becomes of the message."""

START: Final = datetime(2026, 1, 1, tzinfo=UTC)
GRAPH_ID: Final = "g"
ROUNDS_MAX: Final = 600
ALWAYS: Final = 10**6


class Gone(BaseException):
    """The process is gone at this storage call."""


# --- lives -----------------------------------------------------------------------------------------------------

Requires = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class When:
    """The moment of an act: `state` of a task, or of the graph at rest."""

    label: str = ""
    state: str = ""


@dataclass(frozen=True)
class Act:
    """Something that a person or another program does.

    kind: extend, rerun, send (a message that makes no sense), wipe (all queues are deleted), other (another graph is
    submitted under the same id). at: when. answer: what becomes of an extension.
    """

    kind: str
    at: When = When()
    requires: Requires = field(default_factory=dict)
    label: str = ""
    body: str = ""
    answer: str = "done"


@dataclass(frozen=True)
class Life:
    """One graph and what happens to it.

    fails: label -> runs that fail before one succeeds. vanish: label -> workers that vanish with it. hand_back: label
    -> workers that give it back. held: labels whose runs end only when all acts are over; late: labels that nobody
    claims before. bounds: limits made small, so that a small graph crosses them. batch: messages taken at once.
    """

    name: str
    requires: Requires
    end: str = "finished"
    reruns: Mapping[str, int] = field(default_factory=dict)
    fails: Mapping[str, int] = field(default_factory=dict)
    exceptions: Sequence[str] = ()
    vanish: Mapping[str, int] = field(default_factory=dict)
    hand_back: Mapping[str, int] = field(default_factory=dict)
    held: Sequence[str] = ()
    late: Sequence[str] = ()
    acts: Sequence[Act] = ()
    bounds: Mapping[str, int] = field(default_factory=dict)
    batch: int = 32
    sweeps: bool = False  # the sweep comes by all the time

    @property
    def tasks(self) -> int:
        """How many there will be."""
        return len(self.requires) + sum(
            len(act.requires) for act in self.acts if act.kind == "extend" and act.answer == "done"
        )

    def document(self, requires: Requires) -> GraphDocument:
        """A graph, or an extension."""
        return GraphDocument(
            {
                label: TaskNode(
                    label,
                    tuple(wanted),
                    self.reruns.get(label, 0),
                    {"payload": {"n": label}, **({"target": "late"} if label in self.late else {})},
                )
                for label, wanted in requires.items()
            }
        )


def chain(length: int) -> Requires:
    return {f"c{n}": [f"c{n - 1}"] if n else [] for n in range(length)}


def fan_out(width: int) -> Requires:
    return {"a": [], **{f"m{n}": ["a"] for n in range(width)}}


def fan_in(width: int) -> Requires:
    return {**{f"m{n}": [] for n in range(width)}, "z": [f"m{n}" for n in range(width)]}


def both_ways(width: int) -> Requires:
    return {**fan_out(width), "z": [f"m{n}" for n in range(width)]}


DIAMOND: Final = {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]}


def _added(requires: Requires, label: str, state: str, **more: Any) -> Act:
    return Act("extend", When(label, state), requires, **more)


def _messages() -> dict[str, str]:
    stranger = task_id_of("other", "x")
    result = TaskResult(stranger, 0, "c", START.isoformat(), {"failed": False})
    return {
        "no JSON": "{not json",
        "foreign task": to_text(TaskCompleted(GRAPH_ID, (result,))),
        "foreign graph": to_text(TaskCompleted("nowhere", (result,))),
        "misplaced": to_text(RunTasks(GRAPH_ID, "default", ((stranger, 0),))),
    }


JUNK: Final = _messages()
REST: Final = When("", "blocked")

LIVES: Final = (
    # plain shapes
    Life("one task", chain(1)),
    Life("chain of 2", chain(2)),
    Life("chain of 4", chain(4)),
    Life("two strangers", {"a": [], "b": []}),
    Life("five strangers", {f"a{n}": [] for n in range(5)}),
    Life("diamond", DIAMOND),
    Life("diamond, message by message", DIAMOND, batch=1),
    Life("diamond, with the sweep about", DIAMOND, sweeps=True),
    Life("two diamonds", {**DIAMOND, "e": ["d"], "f": ["d"], "g": ["e", "f"]}),
    Life("shortcut", {"a": [], "b": ["a"], "c": ["a", "b"]}),
    Life("every earlier one", {f"t{n}": [f"t{m}" for m in range(n)] for n in range(4)}),
    Life("fan-out of 4", fan_out(4)),
    Life("fan-in of 4", fan_in(4)),
    Life("fan-in of 4, message by message", fan_in(4), batch=1),
    Life("crossed", {"a": [], "b": [], "c": ["a", "b"], "d": ["a", "b"]}),
    # past the degree of a row
    Life("forks", fan_out(5), bounds=NARROW),
    Life("joins", fan_in(5), bounds=NARROW),
    Life("forks and joins", both_ways(4), bounds=NARROW),
    Life("joins, message by message", fan_in(4), bounds=NARROW, batch=1),
    Life("trees of forks", fan_out(5), bounds=NARROWER),
    Life("trees of joins", fan_in(5), bounds=NARROWER),
    Life("trees of both", both_ways(5), bounds=NARROWER),
    Life("more leaves than the graph names", {f"a{n}": [] for n in range(5)}, bounds=NARROWER),
    Life("relays over several commits", both_ways(5), bounds=TIGHT),
    # submissions over several commits
    Life(
        "submission in chunks", both_ways(4), bounds={"COMMIT_CHANGES_MAX": 5, "DEPENDENTS_MAX": 2, "REQUIRES_MAX": 2}
    ),
    Life("submission row by row", chain(3), bounds={"COMMIT_CHANGES_MAX": 4}),
    Life("another graph under the id", chain(2), acts=[Act("other", When("c0", "completed"), chain(3))], late=["c1"]),
    # failures
    Life("rerun", chain(2), reruns={"c0": 1}, fails={"c0": 1}),
    Life("two reruns", chain(1), reruns={"c0": 2}, fails={"c0": 2}),
    Life("reruns in a diamond", DIAMOND, reruns={"b": 1, "c": 1}, fails={"b": 1, "c": 1}),
    Life("blocked", chain(2), "blocked", fails={"c0": ALWAYS}),
    Life("blocked, others go on", {"a": [], "b": ["a"], "c": []}, "blocked", fails={"a": ALWAYS}),
    Life("blocked after its reruns", chain(2), "blocked", reruns={"c0": 1}, fails={"c0": ALWAYS}),
    Life("exception", chain(2), "blocked", reruns={"c0": 3}, fails={"c0": ALWAYS}, exceptions=["c0"]),
    Life("several fail", {"a": [], "b": [], "c": ["a", "b"]}, "blocked", fails={"a": ALWAYS, "b": ALWAYS}),
    Life("several fail, message by message", {"a": [], "b": []}, "blocked", fails={"a": 9, "b": 9}, batch=1),
    Life("rerun by hand", chain(2), fails={"c0": 1}, acts=[Act("rerun", REST, label="c0")]),
    Life(
        "two reruns by hand",
        {"a": [], "b": [], "c": ["a", "b"]},
        fails={"a": 1, "b": 1},
        acts=[Act("rerun", REST, label="a"), Act("rerun", REST, label="b")],
    ),
    Life(
        "rerun by hand that fails, and another",
        chain(1),
        fails={"c0": 2},
        acts=[Act("rerun", REST, label="c0"), Act("rerun", REST, label="c0")],
    ),
    # workers
    Life("worker vanishes", chain(2), vanish={"c0": 1}),
    Life("two workers vanish", DIAMOND, vanish={"b": 1, "d": 1}),
    Life("retries are spent", chain(2), "blocked", vanish={"c0": ALWAYS}, bounds={"RETRIES_DEFAULT": 2}),
    Life("handed back", chain(2), hand_back={"c0": 1}),
    Life("handed back twice, then fails", chain(1), reruns={"c0": 1}, hand_back={"c0": 2}, fails={"c0": 1}),
    # extensions
    Life("extended by a stranger", chain(1), held=["c0"], acts=[_added({"x": []}, "c0", "running")]),
    Life("extended below a running task", chain(1), held=["c0"], acts=[_added({"x": ["c0"]}, "c0", "running")]),
    Life("extended below a pending task", chain(1), late=["c0"], acts=[_added({"x": ["c0"]}, "c0", "pending")]),
    Life("extended below a completed task", chain(2), late=["c1"], acts=[_added({"x": ["c0"]}, "c0", "completed")]),
    Life(
        "extended below all kinds",
        {"a": [], "b": [], "c": []},
        held=["b"],
        late=["c"],
        acts=[_added({"x": ["a", "b", "c"]}, "a", "completed")],
    ),
    Life(
        "extended twice",
        chain(1),
        held=["c0"],
        acts=[_added({"x": ["c0"]}, "c0", "running"), _added({"y": ["x", "c0"]}, "c0", "running")],
    ),
    Life(
        "extended in chunks",
        chain(1),
        held=["c0"],
        bounds=CHUNKED,
        acts=[_added({"x": ["c0"], "y": ["x"], "z": ["c0", "y"]}, "c0", "running")],
    ),
    Life(
        "extended in chunks below a completed task",
        chain(2),
        late=["c1"],
        bounds=CHUNKED,
        acts=[_added({"x": ["c0"], "y": ["x", "c1"], "z": ["c0"]}, "c0", "completed")],
    ),
    Life(
        "extended in chunks, twice",
        chain(1),
        held=["c0"],
        bounds=CHUNKED,
        acts=[
            _added({"x": ["c0"], "y": [], "z": ["y"]}, "c0", "running"),
            _added({"u": ["x"], "v": ["c0"], "w": []}, "c0", "running"),
        ],
    ),
    Life(
        "an extension makes forks",
        {**fan_out(3)},
        held=["a"],
        bounds=NARROW,
        acts=[_added({"x": ["a"], "y": ["a"]}, "a", "running")],
    ),
    Life(
        "an extension makes forks of a completed task",
        {**fan_out(3)},
        late=["m0"],
        bounds=NARROW,
        acts=[_added({"x": ["a"], "y": ["a"]}, "a", "completed")],
    ),
    Life(
        "extensions fold the graph's joins",
        {"a": [], "b": [], "c": []},
        late=["a"],
        bounds=NARROWER,
        acts=[_added({f"x{n}": []}, "a", "pending") for n in range(3)],
    ),
    Life(
        "an extension that is refused",
        chain(1),
        held=["c0"],
        acts=[_added({"x": ["nobody"]}, "c0", "running", answer="refused")],
    ),
    Life(
        "an extension while blocked, then rerun",
        chain(1),
        fails={"c0": 1},
        acts=[Act("extend", REST, {"x": ["c0"]}, answer="not-running"), Act("rerun", REST, label="c0")],
    ),
    # messages
    Life("all queues are deleted", chain(2), late=["c1"], acts=[Act("wipe", When("c1", "pending"))]),
    *(Life(f"junk: {name}", chain(1), acts=[Act("send", When("c0"), body=body)]) for name, body in JUNK.items()),
)


# --- one playing of a life -------------------------------------------------------------------------------------


class LifeClock:
    """Time that moves when somebody sleeps, ids that are counted, and no chance."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._ids = itertools.count(1)

    def now(self) -> datetime:
        return START + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds

    def new_id(self) -> str:
        return slugid_from(next(self._ids).to_bytes(16, "big"))

    def jitter(self) -> float:
        return 0.5


class Gate:
    """Numbers the storage calls from 1, and lets the faults happen. faults: number -> kind."""

    def __init__(self, faults: Mapping[int, str]) -> None:
        self.calls: list[str] = []
        self._faults = faults
        self.kind = ""

    def before(self, call: str) -> None:
        self.calls.append(call)
        self.kind = self._faults.get(len(self.calls), "")
        if self.kind == "before":
            raise Gone(call)
        if self.kind == "unavailable":
            raise StorageUnavailable(f"503 at {call}", "memory")

    def after(self) -> None:
        if self.kind == "after":
            raise Gone
        if self.kind == "unclear":
            raise Unclear("the answer was lost")
        if self.kind == "conflict":
            raise Conflict("412 on the own write")


class GatedTables:
    def __init__(self, play: "Play") -> None:
        self._play = play
        self._gate = play.gate
        self._inner = play.tables

    async def get(self, partition: str, keys: Sequence[str]) -> list[Row | None]:
        self._gate.before("get")
        found = await self._inner.get(partition, keys)
        self._gate.after()
        return found

    async def query(self, partition: str, rows: Range, *, limit: int = 1000, continuation: str | None = None) -> Page:
        self._gate.before("query")
        page = await self._inner.query(partition, rows, limit=limit, continuation=continuation)
        self._gate.after()
        return page

    async def commit(self, partition: str, changes: Sequence[Change]) -> list[str | None]:
        self._gate.before("commit")
        etags = await self._inner.commit(partition, changes)
        if partition == GRAPH_ID:
            self._play.invariants.committed(self._inner.partitions[partition], changes)
        self._gate.after()
        return etags

    async def close(self) -> None:
        pass


class GatedQueues:
    def __init__(self, play: "Play") -> None:
        self._gate = play.gate
        self._inner = play.queues

    async def send(self, queue: str, bodies: Sequence[str], *, delay_seconds: float = 0) -> None:
        for body in bodies:
            self._gate.before("send")
            copies = {"lose": 0, "double": 2}.get(self._gate.kind, 1)
            await self._inner.send(queue, [body] * copies, delay_seconds=delay_seconds)
            self._gate.after()

    async def receive(self, queue: str, *, count: int = 1, lease_seconds: float) -> list[Delivery]:
        self._gate.before("receive")
        found = await self._inner.receive(queue, count=count, lease_seconds=lease_seconds)
        self._gate.after()
        return found

    async def renew(self, delivery: Delivery, *, lease_seconds: float) -> Delivery:
        self._gate.before("renew")
        renewed = await self._inner.renew(delivery, lease_seconds=lease_seconds)
        self._gate.after()
        return renewed

    async def delete(self, delivery: Delivery) -> None:
        self._gate.before("delete")
        await self._inner.delete(delivery)
        self._gate.after()

    async def count(self, queue: str) -> int:
        self._gate.before("count")
        count = await self._inner.count(queue)
        self._gate.after()
        return count

    async def close(self) -> None:
        pass


@dataclass
class Held:
    """A run that a worker has in hand, with the message that it came by."""

    claim: Claim
    label: str
    delivery: Delivery


@dataclass(frozen=True)
class End:
    """How a life ended: what must not depend on any fault."""

    state: str
    tasks: Mapping[str, str]
    requests: Mapping[str, str]
    facts: Mapping[tuple[str, str], int]


FACTS: Final = frozenset({"task-completed", "task-failed", "task-exception"}) | {
    f"graph-{what}" for what in ("running", "extended", "blocked", "unblocked", "finished", "cancelled")
}


class Play:
    """One playing of a life. Call `run` inside `bounded(life.bounds)`."""

    def __init__(self, life: Life, faults: Mapping[int, str] | None = None) -> None:
        self.life = life
        self.faults = dict(faults or {})
        self.clock = LifeClock()
        self.tables = MemoryTables()
        self.queues = MemoryQueues(self.clock)
        self.gate = Gate(self.faults)
        self.document = life.document(life.requires)
        tasks = dict(self.document.tasks)
        for act in life.acts:
            if act.kind == "extend" and act.answer == "done":
                tasks |= life.document(act.requires).tasks
        self.all_tasks = tasks
        self.labels = {task_id_of(GRAPH_ID, label): label for label in tasks}
        self.invariants = Invariants(GRAPH_ID, tasks)
        self._turn = 0
        self.consumers = [self._consumer(), self._consumer()]
        self.client, self.worker, self.sweeper = self._handlers(), self._handlers(), self._handlers()
        self.held: list[Held] = []
        self.executions: Counter[tuple[str, int]] = Counter()
        self.vanished: Counter[str] = Counter()
        self.handed_back: Counter[str] = Counter()
        self.submitted = False
        self.acts_done = 0
        self.act_tried_at = -1e9
        self.rerun_of: tuple[str, int] | None = None
        self.next_sweep = limits.SWEEP_SECONDS
        self.deaths = 0

    def _handlers(self) -> Handlers:
        return Handlers(Records(GatedTables(self), self.clock), GatedQueues(self), self.clock)

    def _consumer(self) -> Consumer:
        handlers = self._handlers()
        poison = Poison(handlers.records.tables, handlers.queues, self.clock, handlers.names)
        return Consumer(handlers, poison, Wakeup())

    # --- what can be seen from outside

    @property
    def rows(self) -> dict[str, Row]:
        return self.tables.partitions.get(GRAPH_ID, {})

    def task_state(self, label: str) -> str:
        return self.invariants.states.get(task_id_of(GRAPH_ID, label), "")

    def at_rest(self) -> bool:
        states = self.invariants.states
        return not any(state in ("pending", "running") for state in states.values())

    def queue_length(self) -> int:
        return sum(len(held) for name, held in self.queues.messages.items() if not name.endswith("-poison"))

    def _meets(self, when: When) -> bool:
        if when.label:
            state = self.task_state(when.label)
            return state == when.state if when.state else state != ""
        return self.invariants.graph_state == when.state and self.at_rest()

    def ended(self) -> bool:
        if not self.submitted or self.acts_done < len(self.life.acts) or self.queue_length() or self.held:
            return False
        state = self.invariants.graph_state
        return state == "finished" or (state == "blocked" and self.at_rest())

    # --- actors, each a process of its own

    def step(self, coroutine: Any, dies: Callable[[], None]) -> bool:
        """Let an actor do one thing; gives whether there was anything to do."""
        try:
            return bool(drive(coroutine))
        except Gone:
            self.deaths += 1
            dies()
            return True
        except StorageError:
            return True  # it has said so, and its caller or loop comes again

    async def _submit(self) -> bool:
        await submit(self.client, GRAPH_ID, self.document)
        self.submitted = True
        return True

    async def _act(self, act: Act) -> bool:
        client = self.client
        match act.kind:
            case "extend":
                try:
                    answer = await extend(client, GRAPH_ID, self.life.document(act.requires))
                except Refused as refused:
                    hold(refused.code == act.answer, refused)
                    self._next_act()
                    return True
                if answer.state == "done":
                    self._next_act()
            case "rerun":
                task_id = task_id_of(GRAPH_ID, act.label)
                self.rerun_of = task_id, self.invariants.runs[task_id]
                message = Rerun(GRAPH_ID, *self.rerun_of)
                await client.queues.send(client.names.events, [to_text(message)])
            case "send":
                await client.queues.send(client.names.events, [act.body])
                self._next_act()
            case "wipe":
                for held in self.queues.messages.values():
                    held.clear()
                self._next_act()
            case "other":
                try:
                    await submit(client, GRAPH_ID, self.life.document(act.requires))
                except Refused as refused:
                    hold(refused.code == "different-content", refused)
                    self._next_act()
                else:
                    raise Violation("another graph was taken for this one")
            case _:
                raise AssertionError(act.kind)
        return True

    def _next_act(self) -> None:
        self.acts_done += 1
        self.act_tried_at = -1e9
        self.rerun_of = None

    def _look_at_act(self) -> Act | None:
        """The act whose time has come, if it is not waiting for its answer."""
        if not self.submitted or self.acts_done == len(self.life.acts):
            return None
        act = self.life.acts[self.acts_done]
        waiting = self.clock.seconds - self.act_tried_at < 300.0
        if act.kind == "rerun" and self.rerun_of and self.invariants.runs[self.rerun_of[0]] > self.rerun_of[1]:
            self._next_act()  # it stands pending, or further on
            return self._look_at_act()
        if act.kind == "extend" and waiting:
            answers = {str(r.columns["digest"]): str(r.columns["state"]) for r in self._requests()}
            digest = content_hash(self.life.document(act.requires))
            if answers.get(digest) in ("done", "refused"):
                hold(answers[digest] == act.answer, f"the extension is {answers[digest]}")
                self._next_act()
                return self._look_at_act()
        return act if not waiting and self._meets(act.at) else None

    def _requests(self) -> list[Row]:
        return [row for key, row in self.rows.items() if key.startswith("request:") and key.count(":") == 1]

    async def _handle(self, consumer: Consumer) -> bool:
        queues = consumer.handlers.queues
        found = await queues.receive(
            consumer.handlers.names.events, count=self.life.batch, lease_seconds=limits.HANDLER_LEASE_SECONDS
        )
        batches: dict[str, list[tuple[Delivery, Message]]] = {}
        for delivery in found:
            message = await consumer.poison.read(delivery, misplaced)
            if message is not None:
                batches.setdefault(message.graph, []).append((delivery, message))
        for graph_id, batch in batches.items():
            await consumer.take(graph_id, batch)
        return bool(found)

    async def _work(self, target: str) -> bool:
        handlers = self.worker
        found = await handlers.queues.receive(
            handlers.names.work(target), count=limits.RECEIVE_MAX, lease_seconds=limits.LEASE_SECONDS
        )
        for delivery in found:
            await self._take(handlers, delivery)
        return bool(found)

    async def _take(self, handlers: Handlers, delivery: Delivery) -> None:
        message = parse(delivery.body)
        if not isinstance(message, RunTasks):
            raise Violation(f"{message} is on a work queue")
        rows: dict[str, Row | None] = {}
        await handlers.records.load(GRAPH_ID, [row_key(task_id) for task_id, _ in message.tasks], rows)
        now = self.clock.now()
        ready: list[Item] = []
        ended: list[Item] = []
        for task_id, run in message.tasks:
            row = rows[row_key(task_id)]
            if row is None:
                raise Violation(f"there is no task {task_id}, and a message for it")
            lease_until = row.columns.get("leaseUntil")
            if row.columns["run"] != run:
                continue
            if row.columns["state"] == "pending":
                until = now + timedelta(seconds=limits.LEASE_SECONDS)
                ready.append(Claim(task_id, run, self.clock.new_id(), "w", until))
            elif row.columns["state"] == "running" and isinstance(lease_until, datetime) and lease_until < now:
                ended.append(LeaseLost(task_id, run, str(row.columns["claim"])))
        if ended:
            await handlers.transition(GRAPH_ID, ended)
        answers = await handlers.transition(GRAPH_ID, ready, rows=rows) if ready else []
        done: list[Held] = []
        for answer in answers:
            if not isinstance(answer.item, Claim) or answer.outcome not in (Outcome.APPLIED, Outcome.REPEATED):
                continue
            one = Held(answer.item, self.labels[answer.item.task_id], delivery)
            self.executions[one.claim.task_id, one.claim.run] += 1
            hold(
                self.executions[one.claim.task_id, one.claim.run] == 1, f"run {one.claim.run} of {one.label} ran twice"
            )
            if self.vanished[one.label] < self.life.vanish.get(one.label, 0):
                self.vanished[one.label] += 1
                raise Gone
            if self.handed_back[one.label] < self.life.hand_back.get(one.label, 0):
                self.handed_back[one.label] += 1
                back = HandBack(one.claim.task_id, one.claim.run, one.claim.claim, "stopped")
                await handlers.transition(GRAPH_ID, [back])
            elif one.label in self.life.held and self.acts_done < len(self.life.acts):
                self.held.append(one)
            else:
                done.append(one)
        await self._report(handlers, done)
        if not any(one.delivery.id == delivery.id for one in self.held):
            await self._acknowledge(handlers, delivery)

    async def _acknowledge(self, handlers: Handlers, delivery: Delivery) -> None:
        with contextlib.suppress(StaleDelivery):
            await handlers.queues.delete(delivery)

    async def _report(self, handlers: Handlers, done: Sequence[Held]) -> None:
        bodies: list[str] = []
        for one in done:
            failed = self.invariants.failed_runs[one.label] < self.life.fails.get(one.label, 0)
            result = TaskResult(
                one.claim.task_id,
                one.claim.run,
                one.claim.claim,
                self.clock.now().isoformat(),
                {"failed": failed},
                exception=failed and one.label in self.life.exceptions,
            )
            bodies.append(to_text((TaskFailed if failed else TaskCompleted)(GRAPH_ID, (result,))))
        while bodies:
            try:
                await handlers.queues.send(handlers.names.events, bodies)
            except StorageUnavailable:
                await self.clock.sleep(0.5)  # the work is done, only the word of it is missing
            else:
                return

    async def _let_go(self) -> bool:
        """The acts are over: what was held ends."""
        held, self.held = self.held, []
        await self._report(self.worker, held)
        for delivery in {one.delivery.id: one.delivery for one in held}.values():
            await self._acknowledge(self.worker, delivery)
        return True

    async def _beat(self) -> bool:
        until = self.clock.now() + timedelta(seconds=limits.LEASE_SECONDS)
        for one in list(self.held):
            renew = Renew(one.claim.task_id, one.claim.run, one.claim.claim, until)
            (answer,) = await self.worker.transition(GRAPH_ID, [renew])
            if answer.outcome is Outcome.STALE:
                self.held.remove(one)
                continue
            with contextlib.suppress(StaleDelivery):
                one.delivery = await self.worker.queues.renew(one.delivery, lease_seconds=limits.LEASE_SECONDS)
        return True

    async def _sweep(self) -> bool:
        await sweep(self.sweeper)
        return True

    # --- the driver

    def _new_client(self) -> None:
        self.client = self._handlers()

    def _new_worker(self) -> None:
        self.worker = self._handlers()
        self.held.clear()  # it takes along what it had in hand

    def _new_sweeper(self) -> None:
        self.sweeper = self._handlers()

    def _handled(self) -> bool:
        self._turn ^= 1
        turn = self._turn

        def dies() -> None:
            self.consumers[turn] = self._consumer()

        return self.step(self._handle(self.consumers[turn]), dies)

    def _once(self) -> bool:
        """One round of everybody; gives whether anybody had anything to do."""
        moved = False
        if not self.submitted:
            moved |= self.step(self._submit(), self._new_client)
        act = self._look_at_act()
        if act is not None:
            tried = self.acts_done
            moved |= self.step(self._act(act), self._new_client)
            if self.acts_done == tried and self.gate.kind == "":
                self.act_tried_at = self.clock.seconds
        over = self.acts_done == len(self.life.acts)
        if over and self.held:
            moved |= self.step(self._let_go(), self._new_worker)
        moved |= self._handled()
        moved |= self.step(self._work("default"), self._new_worker)
        if over and self.life.late:
            moved |= self.step(self._work("late"), self._new_worker)
        if self.life.sweeps:
            self.step(self._sweep(), self._new_sweeper)
        return moved

    def _pass_time(self) -> None:
        """Nobody has anything to do: on to the next moment at which somebody may."""
        clock = self.clock
        due = [self.next_sweep]
        hidden = [m[0] for held in self.queues.messages.values() for m in held.values() if m[0] > clock.seconds]
        if hidden:
            due.append(min(hidden))
        if self.held:
            due.append(clock.seconds + limits.LEASE_SECONDS / 3)
        clock.seconds = max(clock.seconds, min(due)) + 0.001
        if self.held:
            self.step(self._beat(), self._new_worker)
        if clock.seconds >= self.next_sweep:
            self.next_sweep = clock.seconds + limits.SWEEP_SECONDS
            self.step(self._sweep(), self._new_sweeper)

    def run(self) -> End:
        """Play to the end. Raises Violation."""
        for _ in range(ROUNDS_MAX):
            if self._once():
                continue
            if self.ended():
                return self._verdict()
            self._pass_time()
        where = {label: self.task_state(label) for label in self.all_tasks}
        raise Violation(f"no end after {self.clock.seconds:.0f} s: {self.invariants.graph_state} {where}")

    def _verdict(self) -> End:
        state = self.invariants.graph_state
        hold(state == self.life.end, f"the graph is {state}")
        settled(self.rows, GRAPH_ID, self.all_tasks)
        if state == "finished":
            hold(GRAPH_ID not in self.tables.partitions.get(LIVE, {}) or self._swept_away(), "still in the live index")
        facts: Counter[tuple[str, str]] = Counter()
        for key, row in self.rows.items():
            if key.startswith("event:"):
                for fact in json.loads(str(row.columns["events"])):
                    if fact["event"] in FACTS:
                        facts[fact["event"], fact.get("label", "") if fact["event"].startswith("task-") else ""] += 1
        for label in self.all_tasks:
            task_id = task_id_of(GRAPH_ID, label)
            if self.task_state(label) == "completed":
                hold(self.executions[task_id, self.invariants.runs[task_id]] == 1, f"{label} completed and never ran")
        if not self.faults:
            for row in self.tables.partitions.get(POISON, {}).values():
                hold(row.columns["state"] == "poison", f"{row.key} is {row.columns['state']}")
        return End(
            state,
            {label: self.task_state(label) for label in sorted(self.all_tasks)},
            {row.key: str(row.columns["state"]) for row in self._requests()},
            dict(sorted(facts.items())),
        )

    def _swept_away(self) -> bool:
        """Whoever finished the graph may have died before it left the index: the sweep takes it off."""
        drive(sweep(self.sweeper))
        return GRAPH_ID not in self.tables.partitions.get(LIVE, {})


# --- all places ------------------------------------------------------------------------------------------------


def kinds_at(call: str, *, pairs: bool = False) -> tuple[str, ...]:
    """The faults that make a difference at a call. pairs: one of each kind that leaves the same behind."""
    match call:
        case "commit":
            return ("before", "after", "unavailable", "conflict", "unclear")
        case "send":
            return ("before", "after", "unavailable", "lose", "double")
        case "get" | "query" | "count" if pairs:
            return ("before", "unavailable")
    return ("before", "after", "unavailable")


@dataclass
class Tally:
    """What was played."""

    name: str = ""
    tasks: int = 0
    calls: int = 0
    runs: int = 0
    played_calls: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    slowest_seconds: float = 0.0  # virtual: by how much a fault has made the life longer
    seconds: float = 0.0


def _play(life: Life, faults: Mapping[int, str], expected: End, calm: float, tally: Tally) -> Play:
    play = Play(life, faults)
    tally.runs += 1
    where = f"{life.name!r} with {faults}"
    try:
        end = play.run()
        hold(end == expected, f"ended as {end} instead of {expected}")
    except Violation as violation:
        tally.violations.append(f"{where} ({play.gate.calls[max(faults) - 1 :][:1]}): {violation}")
    except Exception as error:
        raise AssertionError(f"{where}: {error!r}") from error
    tally.slowest_seconds = max(tally.slowest_seconds, play.clock.seconds - calm)
    tally.played_calls += len(play.gate.calls)
    tally.kinds.update(faults.values())
    return play


def play_singles(life: Life, *, turn: int | None = None) -> Tally:
    """One fault at every storage call of a life: of every kind.

    turn: one kind each, taken in turns, and of the calls that only read every fifth.
    """
    began = time.perf_counter()
    with bounded(life.bounds):
        calm = Play(life)
        try:
            expected = calm.run()
        except Violation as violation:
            raise AssertionError(f"{life.name!r} without faults: {violation}") from violation
        tally = Tally(life.name, life.tasks, len(calm.gate.calls))
        for number, call in enumerate(calm.gate.calls, 1):
            kinds = kinds_at(call)
            if turn is not None:
                if call in ("get", "query", "count") and (number + turn) % 5:
                    continue
                kinds = (kinds[(number // 2 + turn) % len(kinds)],)
            for kind in kinds:
                _play(life, {number: kind}, expected, calm.clock.seconds, tally)
    tally.seconds = time.perf_counter() - began
    return tally


def play_pairs(life: Life, *, share: float = 1.0, seed: int = 0) -> Tally:
    """Two faults, the second at every call after the first: of the life as the first one has left it.

    share: of the pairs, drawn by the seed.
    """
    began = time.perf_counter()
    rng = random.Random(f"{seed} {life.name}")
    with bounded(life.bounds):
        calm = Play(life)
        expected = calm.run()
        seconds = calm.clock.seconds
        tally = Tally(life.name, life.tasks, len(calm.gate.calls))
        scout = Tally()
        for first, call in enumerate(calm.gate.calls, 1):
            for kind in kinds_at(call, pairs=True):
                if share < 1.0 and rng.random() > share**0.5:
                    continue
                after = _play(life, {first: kind}, expected, seconds, scout).gate.calls
                for second, other in enumerate(after[first:], first + 1):
                    for other_kind in kinds_at(other, pairs=True):
                        if share == 1.0 or rng.random() <= share**0.5:
                            _play(life, {first: kind, second: other_kind}, expected, seconds, tally)
    tally.violations += scout.violations
    tally.seconds = time.perf_counter() - began
    return tally


def _singles(task: tuple[int, int | None]) -> Tally:
    index, turn = task
    return play_singles(LIVES[index], turn=turn)


def _pairs(task: tuple[int, float, int]) -> Tally:
    index, share, seed = task
    return play_pairs(LIVES[index], share=share, seed=seed)


SMALL: Final = [index for index, life in enumerate(LIVES) if life.tasks <= 6]


def play_all_singles(processes: int = 1, *, turn: int | None = None) -> list[Tally]:
    """Singles of all lives."""
    return _spread(
        _singles, [(index, None if turn is None else turn + index) for index in range(len(LIVES))], processes
    )


def play_all_pairs(processes: int = 1, *, share: float = 1.0, seed: int = 0) -> list[Tally]:
    """Pairs of all lives of up to six tasks."""
    return _spread(_pairs, [(index, share, seed) for index in SMALL], processes)


def _spread(function: Callable[[Any], Tally], work: Sequence[Any], processes: int) -> list[Tally]:
    if processes == 1:
        return [function(each) for each in work]
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        return pool.map(function, work, chunksize=1)


def table(tallies: Sequence[Tally], title: str) -> str:
    """The report, as Markdown."""
    lines = [
        f"| {title} | tasks | calls | runs | slowest recovery (virtual s) | violations |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {t.name} | {t.tasks} | {t.calls} | {t.runs:,} | {t.slowest_seconds:.0f} | {len(t.violations)} |"
        for t in tallies
    ]
    runs, calls = sum(t.runs for t in tallies), sum(t.played_calls for t in tallies)
    kinds: Counter[str] = Counter()
    for t in tallies:
        kinds.update(t.kinds)
    violations = sum(len(t.violations) for t in tallies)
    slowest = max(t.slowest_seconds for t in tallies)
    lines.append(
        f"| **{len(tallies)} shapes** | {sum(t.tasks for t in tallies)} | {sum(t.calls for t in tallies):,} "
        f"| {runs:,} | {slowest:.0f} | {violations} |"
    )
    lines.append("")
    lines.append(f"{calls:,} storage calls; faults: " + ", ".join(f"{kinds[k]:,} {k}" for k in KINDS if kinds[k]))
    return "\n".join(lines)
