"""Handle a message: read rows, decide, commit once, send what follows.

What this room is for: the one loop by which anything changes a graph, for handlers, workers' claims and the sweep
alike (D8, D16). It is stateless between calls; any number of copies may work on one graph. It never acknowledges a
message (its caller does, last) and never contains a rule about tasks.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from taskgraph import limits
from taskgraph.clock import Clock
from taskgraph.errors import Conflict, IntegrityError, InvalidGraph, NotFound, StorageError, TaskgraphError, Unclear
from taskgraph.extending import ExtensionPlan, plan_extension
from taskgraph.extension import request_key
from taskgraph.messages import AddTasks, Message, Rerun, RunTasks, TaskCompleted, TaskFailed, bundles, to_text
from taskgraph.model import GRAPH, row_key
from taskgraph.propagation import Dispatch, Effect, GraphEnded, GraphRevived
from taskgraph.records import LIVE, Records, changes_event
from taskgraph.storage.queues import Queues
from taskgraph.storage.tables import Delete, Insert, Range, Row, query_all
from taskgraph.transitions import (
    Answer,
    Completed,
    Decision,
    Failed,
    Fire,
    Item,
    ManualRerun,
    Need,
    Outcome,
    decide,
)

log = logging.getLogger("taskgraph.handlers")

KeepAlive = Callable[[], Awaitable[None]]
"""Called between the steps of long work, so that the message in hand stays leased (P19)."""

_BACKOFF_SECONDS: Final = 0.02
_BACKOFF_SECONDS_MAX: Final = 2.0
_SUSPICIONS_MAX: Final = 5


async def no_keep_alive() -> None:
    """For callers that hold no message."""


@dataclass(frozen=True, slots=True)
class QueueNames:
    """Names of the queues of one installation."""

    prefix: str = "taskgraph"

    @property
    def events(self) -> str:
        """The queue of everything that handlers take."""
        return f"{self.prefix}-events"

    def work(self, target: str) -> str:
        """The queue of a target's workers."""
        return f"{self.prefix}-work-{target}"

    def poison(self, queue: str) -> str:
        """Where messages of a queue go that cannot be handled."""
        return f"{queue}-poison"


@dataclass(slots=True)
class Counters:
    """What this process has done since it began."""

    commits: int = 0
    conflicts: int = 0
    dispatched: int = 0
    stale: int = 0
    refused: int = 0


@dataclass(frozen=True, slots=True)
class Handled:
    """What became of one message: answers of its items, or the error that leaves it to redelivery."""

    message: Message
    answers: tuple[Answer, ...] = ()
    error: TaskgraphError | None = None


@dataclass(slots=True)
class Handlers:
    """Everything that changes rows of graphs."""

    records: Records
    queues: Queues
    clock: Clock
    names: QueueNames = field(default_factory=QueueNames)
    counters: Counters = field(default_factory=Counters)
    on_ended: dict[str, Callable[[], None]] = field(default_factory=dict)
    """Graph id -> called when this process sees the graph end; a hint for whoever waits here."""

    async def handle(
        self, graph_id: str, messages: Sequence[Message], *, keep_alive: KeepAlive = no_keep_alive
    ) -> list[Handled]:
        """Handle messages of one graph together: what arrives together is committed together (D12).

        An error that concerns one message is in its `Handled`; storage errors are raised and leave all of them.
        """
        handled: list[Handled] = []
        items: list[tuple[Message, list[Item]]] = []
        for message in messages:
            match message:
                case TaskCompleted() | TaskFailed() | Rerun():
                    items.append((message, _items(message)))
                case AddTasks():
                    try:
                        await self.add_tasks(message.graph, message.request, keep_alive=keep_alive)
                        handled.append(Handled(message))
                    except StorageError:
                        raise
                    except TaskgraphError as error:
                        handled.append(Handled(message, error=error))
                case RunTasks():
                    raise TypeError("work messages are for workers")
        if not items:
            return handled
        answers = await self.transition(graph_id, [item for _, own in items for item in own], keep_alive=keep_alive)
        by_item = {id(answer.item): answer for answer in answers}
        for message, own in items:
            mine = tuple(by_item[id(item)] for item in own)
            failure = next((answer.error for answer in mine if answer.error), None)
            handled.append(Handled(message, mine, failure))
        return handled

    async def transition(
        self,
        graph_id: str,
        items: Iterable[Item],
        *,
        keep_alive: KeepAlive = no_keep_alive,
        rows: dict[str, Row | None] | None = None,
    ) -> list[Answer]:
        """Take items through read → decide → commit → send, in as many commits as they need.

        rows: what the caller has read already; brought up to date. Raises NotFound for an unknown graph or task, and
        Conflict when others kept writing for `limits.COMMIT_ATTEMPTS_MAX` rounds: release the message then (P26).
        """
        left: Sequence[Item] = list(items)
        known: dict[str, Row | None] = rows if rows is not None else {}
        answers: list[Answer] = []
        conflicts = suspicions = 0
        while left:
            await self._load_own(graph_id, left, known)
            left, absent = _present(left, known)
            for item in absent:
                missing = NotFound(f"graph {graph_id} has no row {_own_row(item)}")
                answers.append(Answer(item, Outcome.REFUSED, str(missing), missing))
            if not left:
                break
            operation = self.records.begin(graph_id)
            decision = decide(known, left, now=self.clock.now(), operation=operation.id, sequence=operation.sequence)
            if isinstance(decision, Decision) and not operation.sequence and changes_event(decision.changes, 0):
                # Only facts need a number, and finding it in a new process takes many reads: claims do without.
                operation = await self.records.operation(graph_id)
                now = self.clock.now()
                decision = decide(known, left, now=now, operation=operation.id, sequence=operation.sequence)
            if isinstance(decision, Need):
                await self.records.load(graph_id, decision.keys, known)
                continue
            if suspicions < _SUSPICIONS_MAX and any(isinstance(a.error, IntegrityError) for a in decision.answers):
                # Rows read one after the other may contradict each other while others write: look again first.
                suspicions += 1
                known.clear()
                await self._back_off(suspicions)
                continue
            if decision.changes:
                try:
                    await self.records.commit(graph_id, decision.changes, operation, known)
                except Conflict as conflict:
                    self.counters.conflicts += 1
                    conflicts += 1
                    if conflicts >= limits.COMMIT_ATTEMPTS_MAX:
                        raise Conflict(f"graph {graph_id}: others kept writing the same rows") from conflict
                    await self._back_off(conflicts)
                    known.clear()
                    continue
                self.counters.commits += 1
            self._count(graph_id, decision)
            answers.extend(decision.answers)
            left = decision.left
            await self.emit(graph_id, decision.effects)
            await keep_alive()
        return answers

    async def _load_own(self, graph_id: str, items: Sequence[Item], rows: dict[str, Row | None]) -> None:
        first = {key for item in items if (key := _own_row(item)) and key not in rows}
        if first:
            await self.records.load(graph_id, first, rows)

    async def _back_off(self, conflicts: int) -> None:
        bound = min(_BACKOFF_SECONDS * 2 ** min(conflicts, 10), _BACKOFF_SECONDS_MAX)
        await self.clock.sleep(bound * self.clock.jitter())

    def _count(self, graph_id: str, decision: Decision) -> None:
        for answer in decision.answers:
            if isinstance(answer.item, Fire) and answer.error is not None:
                # It belongs to no message: the sweep tries again, and `doctor` names the damage.
                log.error("graph %s: %s cannot pass on: %s", graph_id, answer.item.reference, answer.error)
            self.counters.stale += answer.outcome is Outcome.STALE
            self.counters.refused += answer.outcome is Outcome.REFUSED

    async def emit(self, graph_id: str, effects: Sequence[Effect]) -> None:
        """Send what follows from a commit. Sending twice is harmless; not sending is mended by the sweep."""
        ready: dict[str, list[tuple[str, int]]] = {}
        for effect in effects:
            match effect:
                case Dispatch(task_id, run, target):
                    ready.setdefault(target, []).append((task_id, run))
                case GraphEnded():
                    if tell := self.on_ended.get(graph_id):
                        tell()
                    if not await self.late_requests(graph_id):  # the sweep answers them first
                        await self.leave_live(graph_id)
                case GraphRevived():
                    await self.enter_live(graph_id)
        for target, tasks in ready.items():
            await self.dispatch(graph_id, target, list(dict.fromkeys(tasks)))

    async def dispatch(self, graph_id: str, target: str, tasks: Sequence[tuple[str, int]]) -> None:
        """Send work messages: one task each while there are few, more in one when there is plenty (D12)."""
        size = max(1, min(limits.BUNDLE_TASKS_MAX, len(tasks) // 8))
        messages = bundles(lambda part: RunTasks(graph_id, target, part), tasks, size)
        await self.queues.send(self.names.work(target), [to_text(message) for message in messages])
        self.counters.dispatched += len(tasks)

    async def late_requests(self, graph_id: str) -> list[str]:
        """Extensions that were put down and not heard of yet, by the id of their request."""
        staged = Range("request:", "request;", where={"state": ("staged",)}, select=("state",))
        rows = await query_all(self.records.tables, graph_id, staged)
        return [row.key.removeprefix("request:") for row in rows]

    async def enter_live(self, graph_id: str) -> None:
        """Name the graph in the index of what the sweep looks at. Repeatable."""
        try:
            await self.records.tables.commit(LIVE, [Insert(graph_id, {"since": self.clock.now()})])
        except Conflict:
            return  # it is there
        except Unclear:
            (row,) = await self.records.tables.get(LIVE, [graph_id])
            if row is None:
                raise

    async def leave_live(self, graph_id: str) -> None:
        """Take the graph off that index. Repeatable."""
        (row,) = await self.records.tables.get(LIVE, [graph_id])
        if row is None:
            return
        try:
            await self.records.tables.commit(LIVE, [Delete(graph_id, row.etag)])
        except (Conflict, Unclear):
            return  # somebody else did, this call did, or the graph was put back; the sweep looks again

    async def add_tasks(self, graph_id: str, request: str, *, keep_alive: KeepAlive = no_keep_alive) -> None:
        """Take one extension from staged to done or refused, through as many commits as it needs.

        Extensions of a graph go one after the other: one that is under way is brought to its end first, by whoever
        comes by. Raises NotFound for an unknown graph or request.
        """
        key = request_key(request)
        while True:
            rows: dict[str, Row | None] = {}
            await self.records.load(graph_id, [GRAPH, key], rows)
            graph, head = rows[GRAPH], rows[key]
            if graph is None:
                raise NotFound(f"there is no graph {graph_id}")
            if head is None:
                raise NotFound(f"graph {graph_id} has no request {request}")
            if head.columns.get("state") not in ("staged", "accepted"):
                return
            under_way = str(graph.columns.get("extending", ""))
            if under_way and under_way != request:
                await self.add_tasks(graph_id, under_way, keep_alive=keep_alive)
                continue
            try:
                plan = await plan_extension(self.records, graph_id, graph, head, now=self.clock.now())
            except InvalidGraph as error:
                raise IntegrityError(f"request {request} of graph {graph_id} holds no valid document") from error
            await keep_alive()
            await self._push(graph_id, key, plan, rows, keep_alive)

    async def _push(
        self, graph_id: str, key: str, plan: ExtensionPlan, rows: dict[str, Row | None], keep_alive: KeepAlive
    ) -> None:
        """Take the steps of a plan until the request is answered, or the plan is no longer valid."""
        while True:
            head = rows.get(key)
            if head is None:
                await self.records.load(graph_id, [key], rows)
                head = rows[key]
            if head is None:
                raise IntegrityError(f"graph {graph_id}: row {key} is gone")
            item = plan.step(head)
            if item is None:
                return
            rows = {each: rows[each] for each in (GRAPH, key) if each in rows}  # inserted rows need not be kept
            (answer,) = await self.transition(graph_id, [item], keep_alive=keep_alive, rows=rows)
            if answer.error is not None:
                raise answer.error
            if answer.outcome in (Outcome.STALE, Outcome.REPEATED):
                # Somebody else pushes it too. From acceptance on any plan is the right one; before, plan again.
                rows.clear()
                await self.records.load(graph_id, [key], rows)
                fresh = rows[key]
                if plan.whole or fresh is None or fresh.columns.get("state") != "accepted":
                    return


def _present(items: Sequence[Item], rows: Mapping[str, Row | None]) -> tuple[list[Item], list[Item]]:
    """Items whose task exists, and those whose task does not: a message may be foreign, or early."""
    present: list[Item] = []
    absent: list[Item] = []
    for item in items:
        key = _own_row(item)
        (absent if key in rows and rows[key] is None else present).append(item)
    return present, absent


def _own_row(item: Item) -> str:
    task_id = getattr(item, "task_id", "")
    return row_key(task_id) if task_id else ""


def _items(message: TaskCompleted | TaskFailed | Rerun) -> list[Item]:
    match message:
        case TaskCompleted():
            return [Completed(r.task, r.run, r.claim, r.ended, r.resolution) for r in message.tasks]
        case TaskFailed():
            return [Failed(r.task, r.run, r.claim, r.ended, r.resolution, r.exception) for r in message.tasks]
        case Rerun():
            return [ManualRerun(message.task, message.run, message.reason)]
