"""Small scenes at the edges of the protocol, each played with every kind of fault at every storage call.

What the histories of `world` and `processes` meet rarely or never: messages that nobody can handle, a handler that
always raises, replay, the doctor, names without a graph, rows of a newer schema, stores that are contended for good. A
desk sets its scene up in peace; then its people act while one storage call goes wrong; then they act again in peace,
as they would when they are started again. At the end the scene must be as if nothing had gone wrong.
"""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, ClassVar, Final

from taskgraph.documents.nodes import GraphDocument, TaskNode
from taskgraph.engine.clock_trust import CLOCKS
from taskgraph.engine.commit import Records
from taskgraph.engine.consumer import Consumer, Waiting, misplaced
from taskgraph.engine.doctor import repair_graph
from taskgraph.engine.handlers import Handlers
from taskgraph.engine.live_index import ORPHAN_SECONDS, enter_live
from taskgraph.engine.poison import Poison
from taskgraph.engine.submission import extend, submit
from taskgraph.engine.sweep import sweep
from taskgraph.model import limits
from taskgraph.model.errors import (
    Conflict,
    NotFound,
    Refused,
    StorageError,
    StorageUnavailable,
    TooLarge,
    Unclear,
)
from taskgraph.model.flag import Flag
from taskgraph.model.ids import GRAPH, ids_text, row_key, task_id_of
from taskgraph.model.messages import Rerun, RunTasks, TaskCompleted, TaskFailed, TaskResult, parse, to_text
from taskgraph.model.names import ALL, LIVE, POISON
from taskgraph.protocol.runs import Claim
from taskgraph.rehearsal.virtual_time import LoopClock, end_all
from taskgraph.storage.queues import Delivery
from taskgraph.storage.signals.wakeup import Wakeup
from taskgraph.storage.tables import Change, Insert, Page, Range, Row
from taskgraph.testing import MemoryQueues, MemoryTables
from taskgraph.worker.executors import Executors, Outcome, Work, WriteLog
from taskgraph.worker.loop import Worker
from tests.simulation.bounds import bounded
from tests.simulation.invariants import Violation, hold
from tests.simulation.processes import Gone, ProcessLoop

GRAPH_ID: Final = "g"
ENDED: Final = "2026-01-01T00:00:00Z"
LEASE_SECONDS: Final = 30.0
PAST_LEASES_SECONDS: Final = 200.0

KINDS: Final = {
    "before": "the process dies before the call",
    "after": "the process dies after the call",
    "cancelled": "the process is told to stop in the middle of the call",
    "unavailable": "the store refuses the call",
    "outage": "the store refuses this call, and every one after it",
    "refused": "the store refuses the call, and says for a reason that nobody knows",
    "large": "the store finds a commit or a message too large",
    "conflict": "a commit is applied, and answered as a conflict",
    "beaten": "somebody else commits first",
    "contended": "somebody else commits first, from this call on, every time",
    "unclear": "a commit is applied, and not answered",
    "lost": "a commit gets lost on its way",
    "stolen": "the call takes so long that others lease the messages in hand",
    "bug": "the call raises what nobody foresaw",
}
OF_COMMITS: Final = ("conflict", "beaten", "contended", "unclear", "lost")


class Gate:
    """Numbers the storage calls from 1 while it is open, and lets the fault happen. It may fail for good besides.

    raising: every commit to a graph raises this.
    """

    def __init__(self, loop: ProcessLoop, queues: MemoryQueues, at: int, kind: str) -> None:
        self.calls: list[str] = []
        self._loop = loop
        self.open = False
        self.dead = False
        self.raising: Exception | None = None
        self._queues = queues
        self._at = at
        self._kind = kind

    def _now(self) -> str:
        if len(self.calls) == self._at:
            return self._kind
        return self._kind if len(self.calls) > self._at > 0 and self._kind in ("outage", "contended") else ""

    async def pass_through(self, call: str, work: Callable[[], Awaitable[Any]], partition: str = "") -> Any:
        """One storage call."""
        if self.dead:
            await self._loop.never()  # nothing of a dead process runs on
        await asyncio.sleep(0.001)
        kind = ""
        if self.open:
            self.calls.append(call)
            kind = self._now()
        match kind:
            case "before":
                self.dead = True
                raise Gone(call)
            case "cancelled":
                raise asyncio.CancelledError
            case "unavailable" | "outage":
                raise StorageUnavailable(f"503 at {call}", "memory")
            case "refused":
                raise StorageError("refused: 400 InvalidInput")
            case "large" if call in ("commit", "send"):
                raise TooLarge("413")
            case "bug":
                raise LookupError("a bug")
            case "beaten" | "contended" if call == "commit":
                raise Conflict("somebody else was first", 0)
            case "lost" if call == "commit":
                raise Unclear("it never arrived")
            case "stolen":
                await self._steal()
        if call == "commit" and partition == GRAPH_ID and self.raising is not None:
            raise self.raising
        answer = await work()
        if kind == "conflict" and call == "commit":
            raise Conflict("412 on the own write", 0)
        if kind == "unclear" and call == "commit":
            raise Unclear("the answer was lost")
        if kind == "after":
            self.dead = True
            raise Gone(call)
        return answer

    async def _steal(self) -> None:
        await asyncio.sleep(LEASE_SECONDS + 1.0)
        for queue in list(self._queues.messages):
            await self._queues.receive(queue, count=limits.RECEIVE_MAX, lease_seconds=LEASE_SECONDS)


class GatedTables:
    """Tables behind the gate."""

    def __init__(self, gate: Gate, inner: MemoryTables) -> None:
        self._gate = gate
        self._inner = inner

    async def get(self, partition: str, keys: Sequence[str]) -> list[Row | None]:
        found: list[Row | None] = await self._gate.pass_through("get", lambda: self._inner.get(partition, keys))
        return found

    async def query(self, partition: str, rows: Range, *, limit: int = 1000, continuation: str | None = None) -> Page:
        page: Page = await self._gate.pass_through(
            "query", lambda: self._inner.query(partition, rows, limit=limit, continuation=continuation)
        )
        return page

    async def commit(self, partition: str, changes: Sequence[Change]) -> list[str | None]:
        etags: list[str | None] = await self._gate.pass_through(
            "commit", lambda: self._inner.commit(partition, changes), partition
        )
        return etags


class GatedQueues:
    """Queues behind the gate."""

    def __init__(self, gate: Gate, inner: MemoryQueues) -> None:
        self._gate = gate
        self._inner = inner

    async def send(self, queue: str, bodies: Sequence[str], *, delay_seconds: float = 0) -> None:
        await self._gate.pass_through("send", lambda: self._inner.send(queue, bodies, delay_seconds=delay_seconds))

    async def receive(self, queue: str, *, count: int = 1, lease_seconds: float) -> list[Delivery]:
        found: list[Delivery] = await self._gate.pass_through(
            "receive", lambda: self._inner.receive(queue, count=count, lease_seconds=lease_seconds)
        )
        return found

    async def renew(self, delivery: Delivery, *, lease_seconds: float) -> Delivery:
        renewed: Delivery = await self._gate.pass_through(
            "renew", lambda: self._inner.renew(delivery, lease_seconds=lease_seconds)
        )
        return renewed

    async def delete(self, delivery: Delivery) -> None:
        await self._gate.pass_through("delete", lambda: self._inner.delete(delivery))

    async def count(self, queue: str) -> int:
        count: int = await self._gate.pass_through("count", lambda: self._inner.count(queue))
        return count


class GatedLogs:
    """Logs behind the gate."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self.files: dict[str, bytes] = {}

    def url(self, graph_id: str, task_id: str, run: int, name: str = "run.log") -> str:
        return f"memory:{graph_id}/{task_id}/{run}/{name}"

    async def append(self, graph_id: str, task_id: str, run: int, data: bytes, name: str = "run.log") -> None:
        async def work() -> None:
            place = self.url(graph_id, task_id, run, name)
            self.files[place] = self.files.get(place, b"") + data

        await self._gate.pass_through("append", work)

    async def read(
        self, graph_id: str, task_id: str, run: int, *, offset: int = 0, limit: int = 1 << 20, name: str = "run.log"
    ) -> bytes | None:
        return self.files.get(self.url(graph_id, task_id, run, name), b"")[offset : offset + limit]


# --- desks -----------------------------------------------------------------------------------------------------


class Desk:
    """One scene. `met` counts races that it has seen."""

    bounds: ClassVar[Mapping[str, int]] = {}
    twice: ClassVar[bool] = False  # a bug while a failure is seen to: left to the event loop, which says so
    every: ClassVar[int] = 1  # so many-th fault is played: a scene of a thousand calls that are much alike

    def __init__(self, loop: ProcessLoop, at: int, kind: str, met: Counter[str]) -> None:
        self.rng = random.Random(7)
        self.clock = LoopClock(loop, self.rng)
        self.tables = MemoryTables()
        self.queues = MemoryQueues(self.clock)
        self.gate = Gate(loop, self.queues, at, kind)
        self.kind = kind
        self.logs = GatedLogs(self.gate)
        self.met = met
        self.start()

    def start(self) -> None:
        """The process is started (again)."""
        self.gate.dead = False
        tables, queues = GatedTables(self.gate, self.tables), GatedQueues(self.gate, self.queues)
        self.handlers = Handlers(Records(tables, self.clock), queues, self.clock)
        self.names = self.handlers.names
        self.poison = Poison(tables, queues, self.clock, self.names)
        self.consumer = Consumer(self.handlers, self.poison, Wakeup(), lease_seconds=LEASE_SECONDS)

    async def set_up(self) -> None:
        """In peace."""

    async def act(self) -> None:
        """What goes wrong somewhere, and is done again."""
        raise NotImplementedError

    async def look(self) -> None:
        """After a death, before anybody acts again: what has been met?"""

    async def check(self) -> None:
        """At the end. Raises Violation."""

    # --- what several desks do

    def put(self, queue: str, body: str) -> None:
        """A message of a foreign sender, whom our own limits do not bind."""
        key = f"foreign{len(self.queues.messages.get(queue, {}))}"
        self.queues.messages.setdefault(queue, {})[key] = (self.clock.monotonic(), 0, "", body)

    def poisoned(self, state: str = "poison") -> list[Row]:
        return [row for row in self.tables.partitions.get(POISON, {}).values() if row.columns["state"] == state]

    def row(self, key: str) -> Row:
        return self.tables.partitions[GRAPH_ID][key]

    def spoil(self, key: str, **columns: Any) -> None:
        """Write columns as no part of the program would."""
        row = self.row(key)
        self.tables.partitions[GRAPH_ID][key] = replace(
            row, etag=f"spoilt-{row.etag}", columns={**row.columns, **columns}
        )

    async def submit(self, **requires: Sequence[str]) -> None:
        tasks = {label: TaskNode(label, tuple(wanted)) for label, wanted in requires.items()}
        await submit(self.handlers, GRAPH_ID, GraphDocument(tasks))

    async def claim(self, label: str, *, seconds: float = 60.0) -> TaskResult:
        """A run of this task, and the word that it ended."""
        task_id = task_id_of(GRAPH_ID, label)
        run = int(self.row(row_key(task_id)).columns["run"])
        until = self.clock.now().fromtimestamp(self.clock.now().timestamp() + seconds, self.clock.now().tzinfo)
        await self.handlers.transition(GRAPH_ID, [Claim(task_id, run, "c", "w", until)])
        return TaskResult(task_id, run, "c", ENDED, {"failed": False})

    async def consume(self, count: int = limits.RECEIVE_MAX) -> int:
        """What a consumer does with what is on the events queue."""
        found = await self.handlers.queues.receive(self.names.events, count=count, lease_seconds=LEASE_SECONDS)
        batches: dict[str, list[Waiting]] = {}
        for delivery in found:
            message = await self.poison.read(delivery, misplaced)
            if message is not None:
                batches.setdefault(message.graph, []).append(Waiting(message, delivery))
        for graph_id, batch in batches.items():
            await self.consumer.take(graph_id, batch)
        return len(found)

    async def consume_all(self, rounds: int = 30) -> None:
        """Until nothing comes back any more."""
        for _ in range(rounds):
            await self.consume()
            if not self.queues.messages.get(self.names.events):
                return
            await asyncio.sleep(LEASE_SECONDS + 31.0)


class SetAside(Desk):
    """A message that cannot be read."""

    body = "{not json"
    race = "R33"
    kept_in_row_alone = False

    async def set_up(self) -> None:
        await self.submit(a=[])
        self.put(self.names.events, self.body)

    async def act(self) -> None:
        await self.consume_all()

    async def look(self) -> None:
        written, there = self.poisoned(), self.queues.messages[self.names.events]
        self.met["R57"] += bool(written) and bool(there)

    async def check(self) -> None:
        (row,) = self.poisoned()
        body = "".join(str(row.columns[name]) for name in sorted(row.columns) if name.startswith("body"))
        hold(body == self.body, "the message is not whole any more")
        hold(not self.queues.messages[self.names.events], "it is still on its queue")
        copies = self.queues.messages.get(self.names.poison(self.names.events), {})
        hold(not (copies and self.kept_in_row_alone), f"{len(copies)} copies of what cannot be sent")
        hold(copies or self.kept_in_row_alone or self.kind == "large", "there is no copy of it")
        hold(self.row(GRAPH).columns["state"] == "running", "it has touched the graph")
        self.met[self.race] += 1


class SetAsideDeep(SetAside):
    """JSON without a floor."""

    body = "[" * 20_000


class SetAsideHuge(SetAside):
    """Numbers and words where nobody expects them."""

    body = '{"version":1e999,"type":["task-completed"],"graph":"../..","tasks":' + "9" * 5_000 + "}"


class SetAsideOversized(SetAside):
    """A message that a foreign sender may send, and we may not."""

    body = '{"x":"' + "x" * (limits.MESSAGE_BYTES_MAX + 10) + '"}'
    race = "R34"
    kept_in_row_alone = True


class SetAsideControl(SetAside):
    """A character that our own senders refuse."""

    body = '{"\x01":1}'
    kept_in_row_alone = True


class SetAsideMisplaced(SetAside):
    """Work for workers among the events."""

    body = to_text(RunTasks(GRAPH_ID, "default", ((task_id_of(GRAPH_ID, "a"), 0),)))


class KeepsFailing(Desk):
    """A message whose graph is nowhere: tried again, and set aside in the end."""

    every: ClassVar[int] = 5

    async def set_up(self) -> None:
        result = TaskResult(task_id_of("nowhere", "x"), 0, "c", ENDED, {"failed": False})
        self.put(self.names.events, to_text(TaskCompleted("nowhere", (result,))))

    async def act(self) -> None:
        await self.consume_all()

    async def look(self) -> None:
        self.met["R57"] += bool(self.poisoned()) and bool(self.queues.messages[self.names.events])

    async def check(self) -> None:
        (row,) = self.poisoned()
        hold(int(row.columns["failures"]) > limits.POISON_FAILURES_MAX, f"{row.columns['failures']} failures")
        hold(not self.queues.messages[self.names.events], "it is still on its queue")


class AlwaysRaises(KeepsFailing):
    """A handler that always raises what nobody foresaw."""

    every: ClassVar[int] = 10

    async def set_up(self) -> None:
        await self.submit(a=[])
        result = await self.claim("a")
        self.put(self.names.events, to_text(TaskCompleted(GRAPH_ID, (result,))))
        self.gate.raising = LookupError("a bug")

    async def check(self) -> None:
        await super().check()
        self.met["R18"] += 1


class RowTooLarge(AlwaysRaises):
    """A commit that the store will never take."""

    async def set_up(self) -> None:
        await super().set_up()
        self.gate.raising = TooLarge("a row of 500,001 characters")

    async def check(self) -> None:
        await super().check()
        self.met["R34"] += 1


class Recovers(Desk):
    """A message that failed because it came too early, and is handled after all."""

    async def set_up(self) -> None:
        task_id = task_id_of(GRAPH_ID, "a")
        result = TaskResult(task_id, 0, "c", ENDED, {"failed": False})
        self.put(self.names.events, to_text(TaskCompleted(GRAPH_ID, (result,))))
        await self.consume()
        hold(self.poisoned("failing"), "it did not fail")
        await self.submit(a=[])
        await self.claim("a", seconds=10_000.0)
        await asyncio.sleep(LEASE_SECONDS)

    async def act(self) -> None:
        await self.consume_all()

    async def check(self) -> None:
        hold(self.row(GRAPH).columns["state"] == "finished", "it was not handled")
        hold(not self.poisoned(), "it was set aside")


class Replays(Desk):
    """Somebody puts a message back on its queue by hand."""

    body = "{not json"

    async def set_up(self) -> None:
        for body in (self.body, "{nor this"):
            self.put(self.names.events, body)
        await self.consume()
        self.key = next(row.key for row in self.poisoned() if str(row.columns["body"]).startswith(self.body[:9]))

    async def act(self) -> None:
        try:
            await self.poison.replay(self.key)
        except Refused as refused:
            hold(refused.code == ("cannot-be-sent" if self.kind == "large" else "not-set-aside"), refused)

    async def check(self) -> None:
        back = [message[3] for message in self.queues.messages[self.names.events].values()]
        hold(self.body in back, "it is not back on its queue")
        hold(len(self.poisoned("replayed")) == len(self.poisoned("poison")) == 1, "the rows do not say so")
        copies = [message[3] for message in self.queues.messages[self.names.poison(self.names.events)].values()]
        hold("{nor this" in copies, "the other one is gone")


class ReplayOversized(Replays):
    """It may not be sent by us."""

    body = SetAsideOversized.body

    async def act(self) -> None:
        try:
            await self.poison.replay(self.key)
        except Refused as refused:
            self.met["R34"] += 1
            hold(refused.code == "cannot-be-sent", refused)
        else:
            raise Violation("it was sent")

    async def check(self) -> None:
        hold(len(self.poisoned()) == 2, "it is not set aside any more")


class Orphan(Desk):
    """A name in the live index, and no graph."""

    async def set_up(self) -> None:
        await enter_live(self.handlers.records, "ghost")
        await asyncio.sleep(ORPHAN_SECONDS + 60.0)
        now = self.handlers.clock.now()  # which has gone on for long without a leap
        await self.tables.commit(CLOCKS, [Insert("seen", {"seen": now, "since": now - timedelta(days=2)})])

    async def act(self) -> None:
        await sweep(self.handlers)

    async def check(self) -> None:
        hold(not self.tables.partitions[LIVE], "the name is still there")


class LostLease(Desk):
    """The sweep gives up a run whose lease has ended."""

    async def set_up(self) -> None:
        await self.submit(a=[])
        await self.claim("a", seconds=1.0)
        await asyncio.sleep(5.0)

    async def act(self) -> None:
        await sweep(self.handlers)

    async def check(self) -> None:
        row = self.row(row_key(task_id_of(GRAPH_ID, "a"))).columns
        hold((row["state"], row["run"]) == ("pending", 1), f"{row['state']} in run {row['run']}")


class Revived(Desk):
    """A graph that is blocked, and that the live index has forgotten, runs again."""

    async def set_up(self) -> None:
        await self.submit(a=[])
        result = await self.claim("a")
        await self.handlers.handle(GRAPH_ID, [TaskFailed(GRAPH_ID, (result,))])
        hold(self.row(GRAPH).columns["state"] == "blocked", "it is not blocked")
        self.tables.partitions[LIVE].clear()
        self.put(self.names.events, to_text(Rerun(GRAPH_ID, ((task_id_of(GRAPH_ID, "a"), 0),))))

    async def act(self) -> None:
        await self.consume_all()

    async def check(self) -> None:
        hold(self.row(GRAPH).columns["state"] == "running", "it is still blocked")
        hold(self.kind or GRAPH_ID in self.tables.partitions[LIVE], "nobody will sweep it")


class AskedAgain(Desk):
    """An extension that was refused is asked for again."""

    async def set_up(self) -> None:
        await self.submit(a=[])
        self.document = GraphDocument({"x": TaskNode("x", ("a",))})
        answer = await extend(self.handlers, GRAPH_ID, self.document)
        self.key = f"request:{answer.request}"
        self.spoil(self.key, state="refused")
        self.queues.messages.clear()

    async def act(self) -> None:
        await extend(self.handlers, GRAPH_ID, self.document)

    async def check(self) -> None:
        hold(self.row(self.key).columns["state"] == "staged", "it is not asked for")
        hold(self.queues.messages[self.names.events], "nobody was told")


class Strangers(Desk):
    """An extension that names somebody unknown: refused, without a trace."""

    requires: ClassVar[Mapping[str, Sequence[str]]] = {"x": ["nobody"]}
    answer = "refused"

    async def set_up(self) -> None:
        await self.submit(a=[])
        document = GraphDocument({label: TaskNode(label, tuple(each)) for label, each in self.requires.items()})
        answer = await extend(self.handlers, GRAPH_ID, document)
        self.key = f"request:{answer.request}"

    async def act(self) -> None:
        await self.consume_all()

    async def check(self) -> None:
        hold(self.row(self.key).columns["state"] == self.answer, f"it is {self.row(self.key).columns['state']}")
        labels = {row.columns["label"] for key, row in self.tables.partitions[GRAPH_ID].items() if key[:5] == "task:"}
        hold(labels == {"a"}, f"the graph holds {labels}")
        self.met["R51"] += 1


class Cycle(Strangers):
    """An extension with a cycle, by a client that validates nothing: never brought in, its message is poison."""

    every: ClassVar[int] = 5
    requires: ClassVar[Mapping[str, Sequence[str]]] = {"x": ["y", "a"], "y": ["x"]}
    answer = "staged"

    async def check(self) -> None:
        await super().check()
        hold(self.poisoned(), "its message is nowhere")


class Itself(Cycle):
    """An extension whose task requires itself."""

    requires: ClassVar[Mapping[str, Sequence[str]]] = {"x": ["x"]}


class Busy(Desk):
    """Results and an extension that come while the store is slow or contended."""

    async def set_up(self) -> None:
        await self.submit(a=[], b=["a"], c=[])
        results = [await self.claim(label, seconds=10_000.0) for label in "ac"]
        await extend(self.handlers, GRAPH_ID, GraphDocument({"x": TaskNode("x", ("a",))}))
        for result in results:
            self.put(self.names.events, to_text(TaskCompleted(GRAPH_ID, (result,))))

    async def act(self) -> None:
        await self.consume_all()

    async def check(self) -> None:
        states = {
            row.columns["label"]: row.columns["state"]
            for key, row in self.tables.partitions[GRAPH_ID].items()
            if key.startswith("task:")
        }
        hold(states == {"a": "completed", "b": "pending", "c": "completed", "x": "pending"}, states)
        hold(not self.poisoned(), "something was set aside")


# the doctor


class Doctor(Desk):
    """Somebody repairs a damaged graph."""

    async def set_up(self) -> None:
        await self.submit(a=[], b=["a"], c=["a"], d=["b", "c"])
        await self.damage()

    async def damage(self) -> None:
        """What is wrong."""
        raise NotImplementedError

    async def act(self) -> None:
        self.found = await repair_graph(self.handlers, self.poison, GRAPH_ID)

    async def check(self) -> None:
        hold(self.found.sound, [each.text for each in self.found.findings])

    def key(self, label: str) -> str:
        return row_key(task_id_of(GRAPH_ID, label))


class NotLive(Doctor):
    """The live index has forgotten it."""

    async def damage(self) -> None:
        self.tables.partitions[LIVE].clear()


class NotListed(Doctor):
    """The list of graphs has forgotten it."""

    async def damage(self) -> None:
        self.tables.partitions[ALL].clear()


class NotListedAndDamaged(NotListed):
    """The same, and what it is called cannot be read."""

    async def damage(self) -> None:
        await super().damage()
        self.spoil(GRAPH, metadata="[nope")

    async def check(self) -> None:
        hold(self.tables.partitions[ALL], "it is not in the list")


class LeftOver(Doctor):
    """A task waits for one that has completed."""

    async def damage(self) -> None:
        result = await self.claim("a")
        await self.handlers.handle(GRAPH_ID, [TaskCompleted(GRAPH_ID, (result,))])
        self.spoil(self.key("b"), state="unscheduled", requiresLeft=ids_text([task_id_of(GRAPH_ID, "a")]))


class Forgotten(Doctor):
    """A task has forgotten what it waits for."""

    async def damage(self) -> None:
        self.spoil(self.key("d"), requiresLeft=ids_text([task_id_of(GRAPH_ID, "b")]))


class RepairTooLarge(Forgotten):
    """The repair does not fit one commit."""

    bounds: ClassVar[Mapping[str, int]] = {"COMMIT_CHANGES_MAX": 4}

    async def set_up(self) -> None:
        await self.submit(a=[], b=[], c=[], d=["a", "b", "c"])
        self.spoil(self.key("d"), state="pending", requiresLeft="[]")

    async def check(self) -> None:
        refusals = [each.refusal for each in self.found.findings]
        hold(any("does not fit" in each for each in refusals), refusals)


class Unsent(Doctor):
    """An extension whose message is lost."""

    async def damage(self) -> None:
        await extend(self.handlers, GRAPH_ID, GraphDocument({"x": TaskNode("x", ("a",))}))
        self.queues.messages.clear()
        await asyncio.sleep(3 * limits.REDISPATCH_SECONDS)


class DoctorOfLostLease(Doctor):
    """A run whose lease has ended: the doctor sweeps."""

    async def damage(self) -> None:
        await self.claim("a", seconds=1.0)
        await asyncio.sleep(5.0)


# workers


class _Script:
    """Takes a while, says something, leaves a result."""

    name = "noop"
    instant = False
    queue = None

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.runs: list[tuple[str, int]] = []

    def can_run(self, definition: Mapping[str, Any]) -> str | None:
        return None

    async def run(self, work: Work, write_log: WriteLog) -> Outcome:
        self.runs.append((work.label, work.run))
        await write_log(b"begun\n")
        await asyncio.sleep(self._seconds)
        await write_log(b"x" * 300_000)
        return Outcome(failed=False, result=b"{}")


class Works(Desk):
    """A worker takes a task that runs for a while."""

    seconds = 25.0
    rounds: ClassVar[int] = 40

    async def set_up(self) -> None:
        await self.submit(a=[])
        self.script = _Script(self.seconds)

    async def act(self) -> None:
        stop = Flag()
        worker = Worker(
            self.handlers,
            self.poison,
            Executors([self.script]),
            self.logs,
            Wakeup(),
            name="w",
            lease_seconds=LEASE_SECONDS,
            idle_seconds_max=10.0,
        )
        running = asyncio.ensure_future(worker.run(stop))
        try:
            for _ in range(self.rounds):
                await asyncio.sleep(20.0)
                if running.done() or self.gate.dead or self.over():
                    break
                if self.gate.open and self.kind != "outage" and self.kind != "contended":
                    continue
                if not self.gate.open:
                    await sweep(self.handlers)
        finally:
            stop.set()
            if self.gate.dead:
                running.cancel()
            await asyncio.wait((running,), timeout=5_000.0)
            if not running.done():
                running.cancel()
                await asyncio.wait((running,))
        if not running.cancelled():
            running.result()

    def over(self) -> bool:
        """Whether there is nothing left to do."""
        return not self.queues.messages.get(self.names.work("default"))

    async def check(self) -> None:
        sent = [parse(message[3]) for message in self.queues.messages.get(self.names.events, {}).values()]
        kinds = (TaskCompleted, TaskFailed) if self.kind == "bug" else (TaskCompleted,)  # a bug fails the run
        results = [each for message in sent if isinstance(message, kinds) for each in message.tasks]
        row = self.row(row_key(task_id_of(GRAPH_ID, "a"))).columns
        hold(
            any(each.run == row["run"] and each.claim == row.get("claim") for each in results), f"no word of it: {row}"
        )
        hold(len(self.script.runs) == len(set(self.script.runs)), f"ran twice: {self.script.runs}")
        hold(not self.poisoned() or self.kind in ("refused", "large", "bug"), "its message was set aside")


class WorksQuickly(Works):
    """The run ends before any heartbeat."""

    seconds = 0.0


class WorksOnNewer(Works):
    """The task's row was written by a newer version."""

    rounds: ClassVar[int] = 2
    twice: ClassVar[bool] = True

    async def set_up(self) -> None:
        await super().set_up()
        self.spoil(row_key(task_id_of(GRAPH_ID, "a")), schema=99)

    async def check(self) -> None:
        hold(not self.script.runs, "it was run")
        hold(not self.poisoned(), "it was set aside")
        hold(self.queues.messages[self.names.work("default")], "its message is gone")


class WorkRaises(Works):
    """A claim that always raises what nobody foresaw: the message is poison, the worker lives."""

    every: ClassVar[int] = 10
    twice: ClassVar[bool] = True

    async def set_up(self) -> None:
        await super().set_up()
        self.gate.raising = LookupError("a bug")

    async def check(self) -> None:
        hold(not self.script.runs, "it was run without a claim")
        hold(self.poisoned(), "it was never set aside")
        self.met["R18"] += 1


def _all(kind: type[Desk]) -> Iterator[type[Desk]]:
    for each in kind.__subclasses__():
        if "act" in dir(each) and each.act is not Desk.act and each is not Doctor:
            yield each
        yield from _all(each)


DESKS: Final = tuple(_all(Desk))


# --- playing ---------------------------------------------------------------------------------------------------


def kinds_at(call: str) -> tuple[str, ...]:
    """The faults that make a difference at a call."""
    kinds = ["before", "after", "cancelled", "unavailable", "outage", "refused", "bug", "stolen"]
    if call == "commit":
        kinds += ["large", *OF_COMMITS]
    if call == "send":
        kinds.append("large")
    return tuple(kinds)


async def _acted(desk: Desk) -> None:
    """Let them act once; whatever comes out of it is what their caller would see."""
    acting = asyncio.ensure_future(desk.act())
    while not acting.done():
        await asyncio.wait((acting,), timeout=10.0)
        if desk.gate.dead:
            acting.cancel()
            await asyncio.wait((acting,))
    with contextlib.suppress(Gone, asyncio.CancelledError, StorageError, LookupError, NotFound):
        acting.result()


async def _scene(desk: Desk, *, faults: bool) -> list[str]:
    await desk.set_up()
    if faults:
        desk.gate.open = True
        await _acted(desk)
        desk.gate.open = False
        await desk.look()
        desk.start()
        await asyncio.sleep(PAST_LEASES_SECONDS)
        await desk.act()
    else:
        desk.gate.open = True
        await desk.act()
        desk.gate.open = False
    await desk.check()
    return desk.gate.calls


def play(kind: type[Desk], met: Counter[str], at: int = 0, fault: str = "") -> list[str]:
    """One scene, with a fault at a storage call; gives the calls. Raises Violation."""
    loop = ProcessLoop()
    asyncio.set_event_loop(loop)
    try:
        with bounded(kind.bounds):
            calls = loop.run_until_complete(_scene(kind(loop, at, fault, met), faults=at > 0))
        end_all(loop)
        hold(not loop.slips or (fault == "bug" and kind.twice), f"nobody saw: {loop.slips}")
        return calls
    except (Violation, Exception) as error:
        raise Violation(
            f"{kind.__name__}, {fault or 'no fault'} at call {at}: {type(error).__name__}: {error}"
        ) from error
    finally:
        end_all(loop)
        loop.close()
        asyncio.set_event_loop(None)


def play_all(
    met: Counter[str], faults: Counter[str], *, every: int = 1, desks: Sequence[type[Desk]] = DESKS
) -> tuple[int, list[str]]:
    """Every kind of fault at every call of every desk; gives scenes played, and violations.

    every: of what commits do not suffer alone, play every so many-th.
    """
    scenes, violations = 0, []
    for kind in desks:
        try:
            calls = play(kind, met)
        except Violation as violation:
            violations.append(str(violation))
            continue
        for number, call in enumerate(calls, 1):
            for turn, fault in enumerate(kinds_at(call)):
                if fault not in OF_COMMITS and (number + turn) % (every * kind.every):
                    continue
                scenes += 1
                faults[fault] += 1
                try:
                    play(kind, met, number, fault)
                except Violation as violation:
                    violations.append(str(violation))
    return scenes, violations
