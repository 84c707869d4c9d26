"""One installation on a stage: the protocol's own functions over a store, with the test as worker and as postman.

Nothing here decides anything: graphs come in through `submit` and `extend`, messages go through `handle`, claims
through `transition`, and what is looked at are rows, events and queues. The clock stands still unless a test moves it.
"""

import asyncio
import itertools
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

import pytest

from taskgraph.documents.edit_document import edit_from_object
from taskgraph.documents.nodes import GraphDocument
from taskgraph.documents.read import document_from_object
from taskgraph.engine.commit import Records
from taskgraph.engine.consumer import Consumer
from taskgraph.engine.handlers import Handled, Handlers
from taskgraph.engine.poison import Poison
from taskgraph.engine.submission import Extension, Submission, edit, extend, submit
from taskgraph.engine.sweep import Swept, sweep
from taskgraph.model import limits
from taskgraph.model.bundles import bundles
from taskgraph.model.errors import Conflict, StorageUnavailable, Unclear
from taskgraph.model.flag import Flag
from taskgraph.model.ids import GRAPH, row_key, task_id_of
from taskgraph.model.messages import (
    Message,
    Rerun,
    RunTasks,
    TaskCompleted,
    TaskFailed,
    TaskResult,
    parse,
    to_text,
)
from taskgraph.model.names import QueueNames
from taskgraph.protocol.context import Outcome
from taskgraph.protocol.decide import Answer, Item
from taskgraph.protocol.edit import EDITED
from taskgraph.protocol.runs import Claim, HandBack, LeaseLost
from taskgraph.queries.graphs import Queries
from taskgraph.queries.values import Event
from taskgraph.storage.metered import Meter, MeteredQueues, MeteredTables
from taskgraph.storage.queues import Delivery, Queues
from taskgraph.storage.signals.wakeup import Wakeup
from taskgraph.storage.tables import Change, Page, Range, Row, Tables
from taskgraph.testing import HurriedClock, MemoryQueues, MemoryTables

LOCAL: Final = ("memory", "embedded")
PAST_LEASE_SECONDS: Final = limits.LEASE_SECONDS + 1.0


# --- documents -------------------------------------------------------------------------------------------------

Requirements = Mapping[str, Sequence[str]]


def graph_object(requires: Requirements, *, reruns: Mapping[str, int] | None = None, **more: Any) -> dict[str, Any]:
    """The JSON of a graph: label -> labels that it requires."""
    budget = reruns or {}
    tasks = {
        label: {"requires": list(wanted), "reruns": budget.get(label, 0), "task": {"payload": {"n": label}}}
        for label, wanted in requires.items()
    }
    return {"tasks": tasks, **more}


def graph(requires: Requirements, *, reruns: Mapping[str, int] | None = None, **more: Any) -> GraphDocument:
    """A validated graph."""
    return document_from_object(graph_object(requires, reruns=reruns, **more))


def extension(requires: Requirements, *, reruns: Mapping[str, int] | None = None) -> GraphDocument:
    """A validated extension."""
    return document_from_object(graph_object(requires, reruns=reruns), kind="extension")


# --- ports that fail, watch and interleave -----------------------------------------------------------------------


class CrashError(BaseException):
    """The process is gone at this very storage call."""


@dataclass
class Trap:
    """What happens at storage call number `at` (from 1), counted over tables and queues; later calls are spared.

    kind: `before` and `after` kill the process; `unclear` loses the answer of a commit that was applied, `conflict`
    answers it with a conflict; `unavailable` refuses the call. only: count the calls of this name alone.
    """

    at: int = 0
    kind: str = "before"
    only: str = ""
    calls: list[str] = field(default_factory=list)

    def _hits(self, call: str, kind: str, number: int) -> bool:
        return number == self.at and self.kind == kind and self.only in ("", call)

    def before(self, call: str) -> int:
        """To be called first; gives the number of the call, for `after`: calls may overlap."""
        self.calls.append(call)
        number = len(self.calls) if not self.only else self.calls.count(self.only)
        if self._hits(call, "before", number):
            raise CrashError(call)
        if self._hits(call, "unavailable", number):
            raise StorageUnavailable(f"503 at {call}")
        return number

    def after(self, call: str, number: int) -> None:
        if self._hits(call, "after", number):
            raise CrashError(call)
        if call == "commit" and self._hits(call, "unclear", number):
            raise Unclear("the answer was lost")
        if call == "commit" and self._hits(call, "conflict", number):
            raise Conflict("412 on the own write")


class TrappedTables:
    """A table whose calls may fail; `between` runs once, after the first reads and before the first commit."""

    def __init__(self, inner: Tables, trap: Trap, between: Callable[[], Awaitable[object]] | None = None) -> None:
        self._inner = inner
        self._trap = trap
        self._between = between

    async def get(self, partition: str, keys: Sequence[str]) -> list[Row | None]:
        number = self._trap.before("get")
        found = await self._inner.get(partition, keys)
        self._trap.after("get", number)
        return found

    async def query(self, partition: str, rows: Range, *, limit: int = 1000, continuation: str | None = None) -> Page:
        number = self._trap.before("query")
        page = await self._inner.query(partition, rows, limit=limit, continuation=continuation)
        self._trap.after("query", number)
        return page

    async def commit(self, partition: str, changes: Sequence[Change]) -> list[str | None]:
        if self._between is not None:
            between, self._between = self._between, None
            await between()
        number = self._trap.before("commit")
        etags = await self._inner.commit(partition, changes)
        self._trap.after("commit", number)
        return etags


class TrappedQueues:
    """Queues whose calls may fail."""

    def __init__(self, inner: Queues, trap: Trap) -> None:
        self._inner = inner
        self._trap = trap

    async def send(self, queue: str, bodies: Sequence[str], *, delay_seconds: float = 0) -> None:
        number = self._trap.before("send")
        await self._inner.send(queue, bodies, delay_seconds=delay_seconds)
        self._trap.after("send", number)

    async def receive(self, queue: str, *, count: int = 1, lease_seconds: float) -> list[Delivery]:
        number = self._trap.before("receive")
        found = await self._inner.receive(queue, count=count, lease_seconds=lease_seconds)
        self._trap.after("receive", number)
        return found

    async def renew(self, delivery: Delivery, *, lease_seconds: float) -> Delivery:
        number = self._trap.before("renew")
        renewed = await self._inner.renew(delivery, lease_seconds=lease_seconds)
        self._trap.after("renew", number)
        return renewed

    async def delete(self, delivery: Delivery) -> None:
        number = self._trap.before("delete")
        await self._inner.delete(delivery)
        self._trap.after("delete", number)

    async def count(self, queue: str) -> int:
        self._trap.before("count")
        return await self._inner.count(queue)


# --- the stage -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Held:
    """A run that the test holds as a worker does."""

    task_id: str
    run: int
    claim: str


VOLATILE: Final = frozenset(
    {"operation", "claim", "created", "pendingSince", "started", "ended", "resolved", "leaseUntil", "staged"}
    | {"answered", "finished", "blocked", "time", "worker", "runs"}
)
"""Columns that say when and by whom, and not what."""


class Stage:
    """A store with one graph on it (others only where a test names them)."""

    def __init__(
        self, tables: Tables, queues: Queues, clock: HurriedClock, *, prefix: str = "taskgraph", kind: str = "memory"
    ) -> None:
        self.tables = tables
        self.queues = queues
        self.clock = clock
        self.kind = kind
        self.names = QueueNames(prefix)
        self.handlers = self.more_handlers()
        self.records = self.handlers.records
        self.poison = Poison(tables, queues, clock, self.names)
        self.queries = Queries(tables, queues, clock, self.names)
        self.graph_id = "graph"
        self.offers: list[tuple[str, int]] = []
        self.executed: Counter[tuple[str, int]] = Counter()
        self._ids = itertools.count(1)
        self._labels: dict[str, str] = {}

    def more_handlers(
        self, trap: Trap | None = None, between: Callable[[], Awaitable[object]] | None = None
    ) -> Handlers:
        """Another process over the same store; with a trap, one that fails."""
        tables, queues = self.tables, self.queues
        if trap is not None or between is not None:
            trap = trap or Trap()
            tables, queues = TrappedTables(tables, trap, between), TrappedQueues(queues, trap)
        meter = Meter()
        records = Records(MeteredTables(tables, meter), self.clock, meter)
        return Handlers(records, MeteredQueues(queues, meter), self.clock, self.names)

    def consumer(self, handlers: Handlers | None = None) -> Consumer:
        """A receiver of the events queue."""
        handlers = handlers or self.handlers
        poison = Poison(handlers.records.tables, handlers.queues, self.clock, self.names)
        return Consumer(handlers, poison, Wakeup(), idle_seconds_max=0.05)

    async def consume(self, consumer: Consumer | None = None) -> None:
        """Let a consumer run until there is nothing for it."""
        consumer = consumer or self.consumer()
        stop = Flag()
        running = asyncio.create_task(consumer.run(stop))
        while not consumer.idle and not running.done():
            await asyncio.sleep(0.001)
        stop.set()
        await running

    # --- in

    async def submit(self, document: GraphDocument, *, handlers: Handlers | None = None) -> Submission:
        self._know(document.tasks)
        return await submit(handlers or self.handlers, self.graph_id, document)

    async def stage_extension(
        self, document: GraphDocument, *, request: str | None = None, handlers: Handlers | None = None
    ) -> Extension:
        """Put an extension down; the handlers have its message."""
        self._know(document.tasks)
        return await extend(handlers or self.handlers, self.graph_id, document, request=request)

    async def extend(self, document: GraphDocument, *, request: str | None = None) -> str:
        """Put an extension down and have it handled; gives the state of the request."""
        staged = await self.stage_extension(document, request=request)
        await self.pump()
        return str((await self.queries.request(self.graph_id, staged.request))["state"])

    async def stage_edit(
        self, wish: Mapping[str, Any], *, request: str | None = None, handlers: Handlers | None = None
    ) -> Extension:
        """Put an edit down; the handlers have its message."""
        return await edit(handlers or self.handlers, self.graph_id, edit_from_object(wish), request=request)

    async def edit(self, wish: Mapping[str, Any], *, request: str | None = None) -> str:
        """Put an edit down and have it handled; gives "done", or the reason why it was refused."""
        staged = await self.stage_edit(wish, request=request)
        await self.pump()
        head = await self.queries.request(self.graph_id, staged.request)
        return str(head["reason"] if head["state"] == "refused" else head["state"])

    def _know(self, labels: Iterable[str]) -> None:
        for label in labels:
            self._labels[self.task_id(label)] = label

    def task_id(self, label: str) -> str:
        return task_id_of(self.graph_id, label)

    def label(self, task_id: str) -> str:
        return self._labels[task_id]

    # --- messages

    async def deliver(self, *messages: Message, handlers: Handlers | None = None) -> list[Handled]:
        """Have messages handled together; none may fail."""
        handled = await (handlers or self.handlers).handle(self.graph_id, messages)
        assert [each.error for each in handled if each.error is not None] == []
        return handled

    async def take_events(self) -> list[Message]:
        """Take all messages off the events queue, acknowledged, without handling them."""
        found: list[Message] = []
        while deliveries := await self.queues.receive(self.names.events, count=limits.RECEIVE_MAX, lease_seconds=30):
            for delivery in deliveries:
                found.append(parse(delivery.body))
                await self.queues.delete(delivery)
        return found

    async def pump(self) -> bool:
        """Handle everything on the events queue, in batches, acknowledging last; gives whether there was anything."""
        found = False
        while deliveries := await self.queues.receive(self.names.events, count=limits.RECEIVE_MAX, lease_seconds=30):
            found = True
            await self.deliver(*(parse(delivery.body) for delivery in deliveries))
            for delivery in deliveries:
                await self.queues.delete(delivery)
        return found

    async def offered(self, target: str = "default") -> list[tuple[str, int]]:
        """Take all work messages of a target; gives (label, run) in the order in which they were offered."""
        found: list[tuple[str, int]] = []
        queue = self.names.work(target)
        while deliveries := await self.queues.receive(queue, count=limits.RECEIVE_MAX, lease_seconds=30):
            for delivery in deliveries:
                message = parse(delivery.body)
                assert isinstance(message, RunTasks)
                assert message.target == target
                found.extend((self.label(task_id), run) for task_id, run in message.tasks)
                await self.queues.delete(delivery)
        self.offers.extend(found)
        return sorted(found)

    # --- the worker

    async def transition(self, *items: Item, handlers: Handlers | None = None) -> list[Answer]:
        return await (handlers or self.handlers).transition(self.graph_id, items)

    async def try_claim(self, label: str, run: int | None = None, *, worker: str = "w") -> Answer:
        """Claim a run (the present one if none is named) and give the answer, whatever it is."""
        task_id = self.task_id(label)
        if run is None:
            run = int((await self.row(label)).columns["run"])
        lease_until = self.clock.now() + timedelta(seconds=limits.LEASE_SECONDS)
        edited = await self._edited(task_id)
        claim = Claim(task_id, run, f"claim-{next(self._ids)}", worker, lease_until, edited=edited)
        (answer,) = await self.transition(claim)
        return answer

    async def _edited(self, task_id: str) -> int:
        """Of which edit the definition is that somebody would read now."""
        (row,) = await self.tables.get(self.graph_id, [row_key(task_id)])
        return int(row.columns.get(EDITED, 0)) if row is not None else 0

    async def claim(self, label: str, run: int | None = None, *, worker: str = "w") -> Held:
        """Claim a run; it must be given."""
        answer = await self.try_claim(label, run, worker=worker)
        assert answer.outcome is Outcome.APPLIED, answer
        assert isinstance(answer.item, Claim)
        self.executed[label, answer.item.run] += 1
        return Held(answer.item.task_id, answer.item.run, answer.item.claim)

    async def claims(self, *labels: str) -> list[Held]:
        """Claim the first runs of these tasks together; all must be given."""
        lease_until = self.clock.now() + timedelta(seconds=limits.LEASE_SECONDS)
        wanted = [Claim(self.task_id(label), 0, f"claim-{next(self._ids)}", "w", lease_until) for label in labels]
        answers = await self.transition(*wanted)
        assert {answer.outcome for answer in answers} == {Outcome.APPLIED}
        self.executed.update((label, 0) for label in labels)
        return [Held(claim.task_id, claim.run, claim.claim) for claim in wanted]

    def result(self, held: Held, *, failed: bool = False, exception: bool = False, **more: Any) -> TaskResult:
        ended = self.clock.now().isoformat()
        resolution = {"failed": failed, **more}
        return TaskResult(held.task_id, held.run, held.claim, ended, resolution, exception)

    def completed(self, *held: Held, **more: Any) -> TaskCompleted:
        return TaskCompleted(self.graph_id, tuple(self.result(each, **more) for each in held))

    def failed(self, *held: Held, exception: bool = False, **more: Any) -> TaskFailed:
        return TaskFailed(
            self.graph_id, tuple(self.result(each, failed=True, exception=exception, **more) for each in held)
        )

    async def complete(self, label: str) -> TaskCompleted:
        """Claim, succeed, and have the result handled; gives the message."""
        message = self.completed(await self.claim(label))
        await self.deliver(message)
        return message

    async def fail(self, label: str, *, reason: str = "broke", exception: bool = False) -> TaskFailed:
        """Claim, fail, and have the result handled; gives the message."""
        message = self.failed(await self.claim(label), exception=exception, reason=reason)
        await self.deliver(message)
        return message

    async def rerun(self, label: str, run: int | None = None) -> Answer:
        """Ask for another run by hand; gives the answer."""
        if run is None:
            run = int((await self.row(label)).columns["run"])
        (handled,) = await self.deliver(Rerun(self.graph_id, ((self.task_id(label), run),)))
        return handled.answers[0]

    async def hand_back(self, held: Held, reason: str = "stopped") -> Answer:
        (answer,) = await self.transition(HandBack(held.task_id, held.run, held.claim, reason))
        return answer

    async def lose(self, held: Held, *, certain: bool = False) -> Answer:
        (answer,) = await self.transition(LeaseLost(held.task_id, held.run, held.claim, certain))
        return answer

    async def work(self, *, fails: Mapping[str, int] | None = None, targets: Collection[str] = ("default",)) -> str:
        """Be worker and postman until nothing is on any queue; gives the state of the graph.

        fails: label -> how many failures its row has seen before a run succeeds. Results go through the events queue.
        """
        while True:
            found = await self.pump()
            for target in targets:
                queue = self.names.work(target)
                deliveries = await self.queues.receive(queue, count=limits.RECEIVE_MAX, lease_seconds=30)
                wanted: dict[tuple[str, int], None] = {}
                for delivery in deliveries:
                    message = parse(delivery.body)
                    assert isinstance(message, RunTasks)
                    wanted.update(dict.fromkeys(message.tasks))
                found = found or bool(deliveries)
                await self._execute(list(wanted), fails or {})
                for delivery in deliveries:
                    await self.queues.delete(delivery)
            if not found:
                return await self.state()

    async def _execute(self, wanted: Sequence[tuple[str, int]], fails: Mapping[str, int]) -> None:
        lease_until = self.clock.now() + timedelta(seconds=limits.LEASE_SECONDS)
        claims = [
            Claim(task_id, run, f"claim-{next(self._ids)}", "w", lease_until, edited=await self._edited(task_id))
            for task_id, run in wanted
        ]
        completed: list[TaskResult] = []
        failed: list[TaskResult] = []
        for answer in await self.transition(*claims) if claims else ():
            item = answer.item
            if not isinstance(item, Claim) or answer.outcome is not Outcome.APPLIED:
                continue
            label = self.label(item.task_id)
            self.executed[label, item.run] += 1
            held = Held(item.task_id, item.run, item.claim)
            if label in fails and await self._failures(label) < fails[label]:
                failed.append(self.result(held, failed=True, reason="broke"))
            else:
                completed.append(self.result(held))
        messages: list[Message] = [
            *bundles(lambda part: TaskCompleted(self.graph_id, part), completed),
            *bundles(lambda part: TaskFailed(self.graph_id, part), failed),
        ]
        if messages:
            await self.queues.send(self.names.events, [to_text(message) for message in messages])

    async def _failures(self, label: str) -> int:
        row = (await self.row(label)).columns
        return int(row["rerunsAllowed"]) - int(row["rerunsLeft"]) + int(row.get("manualReruns", 0))

    async def sweep(self) -> Swept:
        swept = await sweep(self.handlers)
        assert swept.failed == []
        return swept

    async def forget_queues(self) -> None:
        """Somebody deletes every message there is."""
        for queue in (self.names.events, self.names.work("default")):
            while deliveries := await self.queues.receive(queue, count=limits.RECEIVE_MAX, lease_seconds=30):
                for delivery in deliveries:
                    await self.queues.delete(delivery)

    # --- looking

    async def row(self, label: str) -> Row:
        (row,) = await self.tables.get(self.graph_id, [row_key(self.task_id(label))])
        assert row is not None, f"there is no task {label}"
        return row

    async def graph_row(self) -> Row:
        (row,) = await self.tables.get(self.graph_id, [GRAPH])
        assert row is not None
        return row

    async def state(self) -> str:
        return str((await self.graph_row()).columns["state"])

    async def states(self) -> dict[str, str]:
        """Label -> state of the task."""
        return {each.label: each.state for each in await self.queries.tasks(self.graph_id, limit=100_000)}

    async def task_state(self, label: str) -> str:
        return str((await self.row(label)).columns["state"])

    async def events(self) -> list[Event]:
        return await self.queries.events(self.graph_id, limit=1_000_000)

    async def told(self, *, tasks: bool = False) -> list[str]:
        """Kinds of the facts in the journal, in order: those of the graph, or all."""
        return [event.kind for event in await self.events() if tasks or event.kind.startswith("graph-")]

    async def snapshot(self) -> dict[str, dict[str, Any]]:
        """What the rows say, whatever the time, the claims and the order in which it came to be."""
        made: dict[str, dict[str, Any]] = {}
        facts: Counter[str] = Counter()
        for row in await self.queries.partition(self.graph_id):
            if row.key.startswith("event:"):
                facts.update(json.dumps(fact, sort_keys=True) for fact in json.loads(str(row.columns["events"])))
                continue
            columns: dict[str, Any] = {name: value for name, value in row.columns.items() if name not in VOLATILE}
            for name in ("requires", "requiresLeft", "dependents"):
                if name in columns:
                    columns[name] = sorted(json.loads(columns[name]))
            for name in ("nameMapping", "resolution"):
                if name in columns and row.key in (GRAPH, *(k for k in [row.key] if k.startswith("task:"))):
                    columns[name] = json.loads(columns[name])
            made[row.key] = columns
        made["facts"] = dict(sorted(facts.items()))
        return made

    async def check(self, document: GraphDocument | Mapping[str, Sequence[str]]) -> None:
        """Every row against the logical graph: edges both ways, what is left, degree, and a gapless journal."""
        requires = (
            {label: list(node.requires) for label, node in document.tasks.items()}
            if isinstance(document, GraphDocument)
            else {label: list(wanted) for label, wanted in document.items()}
        )
        rows = {row.key: row for row in await self.queries.partition(self.graph_id)}
        tasks = {str(row.columns["label"]): row for key, row in rows.items() if key.startswith("task:")}
        assert tasks.keys() == requires.keys()
        done = {label for label, row in tasks.items() if row.columns["state"] == "completed"}
        edges: set[tuple[str, str]] = set()
        for label, row in tasks.items():
            needs = {self.label(each) for each in _behind(rows, row, "requires", "join:")}
            assert needs == set(requires[label]), label
            left = {self.label(each) for each in _behind(rows, row, "requiresLeft", "join:")}
            assert left == needs - done, label
            assert (row.columns["state"] == "unscheduled") == bool(left), label
            for told in _behind(rows, row, "dependents", "fork:"):
                owner = told.split(":")[1] if told.startswith("join:") else told
                if owner != GRAPH:
                    edges.add((self.label(owner), label))
        assert edges == {(label, wanted) for label, needs in requires.items() for wanted in needs}
        for key, row in rows.items():
            for name, bound in (
                ("requires", limits.REQUIRES_MAX + 1),
                ("dependents", limits.DEPENDENTS_MAX),
                ("requiresLeft", limits.REQUIRES_MAX + 1),
            ):
                if name in row.columns:
                    assert len(json.loads(str(row.columns[name]))) <= bound, (key, name)
            if key.startswith(("join:", "fork:")):
                fired = json.loads(str(row.columns["requiresLeft"])) == []
                assert row.columns["state"] == ("completed" if fired else "unscheduled"), key
        outstanding = {self.label(each) for each in _behind(rows, rows[GRAPH], "requiresLeft", "join:")}
        leaves = set(requires) - {wanted for needs in requires.values() for wanted in needs}
        assert leaves - done <= outstanding <= set(requires) - done
        numbers = [int(row.columns["sequence"]) for key, row in sorted(rows.items()) if key.startswith("event:")]
        assert numbers == list(range(1, len(numbers) + 1))
        assert rows[GRAPH].columns["tasks"] == len(requires)
        assert rows[GRAPH].columns["edges"] == sum(map(len, requires.values()))


def over_stores(*everywhere: object, local: Sequence[object] = ()) -> list[Any]:
    """Parameters for (stage, value), `stage` indirect: some values over each store, others not over the emulator."""
    return [
        *(pytest.param(kind, value, id=f"{kind}-{value}") for value in (*everywhere, *local) for kind in LOCAL),
        *(pytest.param("azurite", value, id=f"azurite-{value}", marks=pytest.mark.azurite) for value in everywhere),
    ]


def memory_stage() -> Stage:
    """A fresh stage over the in-memory model."""
    clock = HurriedClock()
    return Stage(MemoryTables(), MemoryQueues(clock), clock)


def _behind(rows: Mapping[str, Row], row: Row, column: str, relays: str) -> list[str]:
    """References in a column, with the relays of one kind replaced by what their same column holds."""
    found: dict[str, None] = {}
    todo = list(json.loads(str(row.columns[column])))
    while todo:
        reference = todo.pop()
        if reference.startswith(relays):
            todo.extend(json.loads(str(rows[reference].columns[column])))
        else:
            found[reference] = None
    return list(found)
