"""From a message on a work queue to ready tasks that this worker can run.

Rows are read where the message does not say enough, what this worker cannot run goes back to the queue, what may not
run yet is waited for, and what there is no room for goes into the stock.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from taskgraph.engine.poison import origin_of, release
from taskgraph.engine.telemetry import watched
from taskgraph.model import limits
from taskgraph.model.bundles import bundles
from taskgraph.model.errors import StorageError
from taskgraph.model.foreign_times import Standing
from taskgraph.model.ids import GRAPH, row_key
from taskgraph.model.messages import Message, RunTasks, is_large, to_text
from taskgraph.model.priorities import LEVELS, NORMAL_RANK, rank
from taskgraph.model.states import GRAPH_GONE, GraphState, TaskState
from taskgraph.protocol.decide import Item
from taskgraph.protocol.definitions import gathered
from taskgraph.protocol.edit import DELETED_IN
from taskgraph.protocol.leases import lease
from taskgraph.protocol.runs import CannotRun, LeaseLost
from taskgraph.storage.queues import Delivery
from taskgraph.storage.signals.wakeup import for_others
from taskgraph.storage.tables import Row
from taskgraph.worker.claims import Claims
from taskgraph.worker.context import WorkerContext
from taskgraph.worker.feeding import Feeder
from taskgraph.worker.messages import WorkMessages
from taskgraph.worker.queue_turns import QueueTurns
from taskgraph.worker.slots import Slots
from taskgraph.worker.stock import Stock
from taskgraph.worker.target_gate import TargetGate
from taskgraph.worker.values import ReadyTask, WorkMessage, edited_in, label_in, read_definition, routing_in

log = logging.getLogger("taskgraph.worker")

_GIVE_BACK_SECONDS: Final = 10.0  # until a worker that lacks an executor is offered the same task again
_TASKS_KEPT: Final = 0.8  # weight of what was, in a mean of late


@dataclass(eq=False)
class Intake:
    """Receives the work of one worker."""

    _context: WorkerContext
    _messages: WorkMessages
    _gate: TargetGate
    _slots: Slots
    _stock: Stock
    _turns: QueueTurns
    _claims: Claims
    _feeder: Feeder
    per_message: float = 1.0  # tasks, of late

    # --- receiving

    @property
    def room(self) -> int:
        """How many tasks may be asked for: those in stock come first."""
        return self._slots.capacity - len(self._stock)

    async def receive(self, *, at_once: bool = False) -> tuple[bool, bool]:
        """Ask the queues; gives whether there was something, and whether there may be more of it.

        at_once: what was received has been taken then; otherwise it is taken in the background.
        """
        found = more = False
        queues = self._context.handlers.queues
        asked = self._turns.next()
        closed = {*self._gate.gates.closed, *self._gate.without_permit()}
        for queue, (target, _) in asked.items():
            room = self._turns.room_until_next() if self._turns.look_first else self.room
            if room <= 0:
                break
            if target in closed:
                continue
            count = min(limits.RECEIVE_MAX, max(1, int(room / self.per_message)))
            deliveries = await queues.receive(queue, count=count, lease_seconds=self._context.message_seconds)
            if deliveries and await self._gate.is_paused(target):
                for delivery in deliveries:
                    await release(queues, delivery, limits.GATE_SECONDS)
                continue
            if deliveries:
                found = True
                more = more or len(deliveries) == count
                taking = self._context.background(self._take_all, self._reserved(deliveries))
                if at_once:
                    await taking
        return found, more

    async def take(self, deliveries: Sequence[Delivery]) -> None:
        """Take these, which the caller has received by himself."""
        await self._take_all(self._reserved(deliveries))

    def _reserved(self, deliveries: Sequence[Delivery]) -> list[WorkMessage]:
        messages = [WorkMessage(delivery) for delivery in deliveries]
        self._slots.reserve(messages)
        return messages

    async def _take_all(self, messages: Sequence[WorkMessage]) -> None:
        """Take messages apart, and claim what they offer: what came together is claimed together (D12)."""
        ready: dict[str, list[ReadyTask]] = {}
        try:
            await asyncio.gather(*(self._take(source, ready) for source in messages))
        finally:
            self._slots.unreserve(messages)  # what is claimed is counted from here on
            self._context.freed.set()
        for n, (graph_id, found) in enumerate(ready.items()):
            await self._claim(graph_id, found, parts=len(ready) - n)
        for source in messages:
            if source.taken:
                await self._messages.release(source)

    async def _claim(self, graph_id: str, found: Sequence[ReadyTask], *, parts: int) -> None:
        """Claim of a graph as much as there is room for. parts: graphs that share the room, and this one."""
        try:
            ones = await self._admitted(graph_id, found)
        except StorageError as error:  # reach: permits
            self._gate.let_in(found)
            log.warning("graph %s: permits could not be taken: %s", graph_id, error)
            await self._messages.release_soon(one.source for one in found)
            return
        if self._slots.seconds is None and ones and all(map(self._claims.is_instant, ones)):
            self._slots.expect_instant()
        room = -(-max(0, self._slots.capacity) // parts)  # each graph has its part
        now, later = ones[:room], ones[room:]
        self._gate.let_in(later)
        if later:
            self._feeder.put_by(graph_id, later)
        try:
            if now:
                async with self._messages.guard([one.source for one in now if one.source is not None]):
                    await self._claims.commit(graph_id, now)
        finally:
            self._gate.let_in(ones)

    async def _admitted(self, graph_id: str, ready: Sequence[ReadyTask]) -> list[ReadyTask]:
        """Those that may be claimed as far as permits go; the others are put by, sent to others, or come back."""
        if not self._gate.permits.limits:
            return list(ready)
        found = await self._gate.admit(ready)
        if found.later:
            self._feeder.put_by(graph_id, found.later)
        await self._feeder.send_to_others(graph_id, found.others)
        for one in found.full:
            if one.source is not None and found.until is not None:
                one.source.keep_until(found.until)
                await self._messages.release(one.source)
        return found.may

    # --- taking messages apart

    async def _take(self, source: WorkMessage, ready: dict[str, list[ReadyTask]]) -> None:
        async with self._messages.guard([source]):
            message = await self._context.poison.read(source.delivery, _misplaced)
            if not isinstance(message, RunTasks):
                return  # set aside, or left to a newer version
            if watched(self._context.handlers.telemetry):
                source.origin = origin_of(message, source.delivery, self._context.clock.monotonic())
            source.large = is_large(message)
            if message.level and message.level not in self._gate.gates.levels(message.target):
                await self._gate.look(again=True)
            self.per_message = self.per_message * _TASKS_KEPT + len(message.tasks) * (1 - _TASKS_KEPT)
            found = await self._look_up(message, source)
            if found is None:
                return  # set aside
            able = await self._choose(message, found, source.delivery.queue)
            _, of_level = self._turns.queues().get(source.delivery.queue, ("", NORMAL_RANK))
            for one in able:
                one.source = source
                one.rank = rank(message.level) if message.level else of_level
            source.open += len(able)
            source.taken = True
            ready.setdefault(message.graph, []).extend(able)

    async def _look_up(self, message: RunTasks, source: WorkMessage) -> list[ReadyTask] | None:
        """The tasks of a message that stand ready; None if the message was set aside.

        What a message says of a task is believed at its first delivery: the claim fails if it is no longer so.
        """
        if source.delivery.dequeue_count == 1 and all(task_id in message.seen for task_id, _ in message.tasks):
            return _ready_in(message, self._context.clock.monotonic())
        now = self._context.clock.monotonic()
        rows: dict[str, Row | None] = {}
        keys = [row_key(task_id) for task_id, _ in message.tasks]
        await self._context.handlers.records.load_near(message.graph, keys, rows)
        missing = [key for key in keys if rows[key] is None]
        if len(missing) == len(keys) and await self._were_taken_away(message.graph):
            return []
        if len(missing) == len(keys):
            # Foreign, or of a graph that is gone: tried a few times, since a message may be early, then set aside.
            await self._messages.fail(source, f"graph {message.graph} has no row {missing[0]}")
            return None
        found: list[ReadyTask] = []
        for task_id, run in await self._sift(message, rows, source):
            row = rows[row_key(task_id)]
            definition = await self._definition(message.graph, task_id, row)
            one = ReadyTask(task_id, run, message.target, definition, now, label_in(row), row=row)
            one.edited, one.routing = edited_in(row), routing_in(row)
            found.append(one)
        return found

    async def _were_taken_away(self, graph_id: str) -> bool:
        """Whether tasks of a graph are gone: some by an edit, or all with the graph, which may be put back by now."""
        (graph,) = await self._context.handlers.records.tables.get(graph_id, [GRAPH])
        if graph is None:
            return False
        gone = graph.columns.get("state") in (*GRAPH_GONE, GraphState.RESTORING)
        return gone or bool(graph.columns.get(DELETED_IN))

    async def _sift(
        self, message: RunTasks, rows: Mapping[str, Row | None], source: WorkMessage
    ) -> list[tuple[str, int]]:
        """Which runs of a message can be claimed; also, until when to keep one that came early, or back for a live run.

        A message that comes back belongs to a worker that died, or is slow: once the lease of its run has ended, the
        run is given up here, without waiting for the sweep.
        """
        now = self._context.clock.now()
        ready: list[tuple[str, int]] = []
        ended: list[Item] = []
        for task_id, run in message.tasks:
            row = rows[row_key(task_id)]
            if row is None or row.columns.get("run") != run:
                continue
            state = row.columns.get("state")
            if state == TaskState.PENDING:
                if row.columns.get("target", message.target) != message.target:
                    continue  # an edit has sent it elsewhere
                if not self._claims.too_early(source, row):
                    ready.append((task_id, run))
            elif state == TaskState.RUNNING and source.delivery.dequeue_count > 1:
                lease_until, how = row.columns.get("leaseUntil"), lease(row.columns.get, now)
                if how is Standing.OVER:
                    ended.append(LeaseLost(task_id, run, str(row.columns.get("claim", ""))))
                    continue
                if how is Standing.DOUBTFUL or not isinstance(lease_until, datetime):
                    # The sweep sets it right meanwhile.
                    lease_until = now + timedelta(seconds=self._context.lease_seconds)
                source.keep_until(lease_until)
        if ended:
            await self._context.handlers.transition(message.graph, ended)
        return ready

    async def _definition(self, graph_id: str, task_id: str, row: Row | None) -> str:
        text = str(row.columns.get("task", "")) if row else ""
        if not text:
            (longer,) = await self._context.handlers.records.tables.get(graph_id, [f"definition:{task_id}"])
            text = gathered(longer.columns, "task") if longer else ""
        return text

    async def _choose(self, message: RunTasks, found: Sequence[ReadyTask], queue: str) -> list[ReadyTask]:
        able: list[ReadyTask] = []
        unable: list[tuple[ReadyTask, str]] = []
        for one in found:
            reason = self._claims.why_not(read_definition(message.graph, one.task_id, one.definition))
            if reason is None:
                able.append(one)
            else:
                unable.append((one, reason))
        if unable:
            await self._give_back(message, unable, queue)
        return able

    async def _give_back(self, message: RunTasks, tasks: Sequence[tuple[ReadyTask, str]], queue: str) -> None:
        """Put tasks back that this worker cannot run, after a pause, and say so (on the row too, for `why`)."""
        context = self._context
        context.counters.given_back += len(tasks)
        for one, _ in tasks:  # not with the reason, which quotes the payload
            why = f"taskgraph why {message.graph} {one.task_id}"
            log.warning("graph %s: task %s run %d is given back: see %s", message.graph, one.task_id, one.run, why)
        items = [CannotRun(one.task_id, one.run, context.name, reason) for one, reason in tasks]
        await context.handlers.transition(message.graph, items)
        wanted = tuple((one.task_id, one.run) for one, _ in tasks)
        routing = {one.task_id: one.routing for one, _ in tasks if one.routing}
        again = bundles(lambda part: RunTasks(message.graph, message.target, part, routing=routing), wanted)
        if context.graph_id:  # it is for workers of other processes
            _, place = self._turns.queues().get(queue, ("", NORMAL_RANK))
            queue = context.handlers.names.work(message.target, LEVELS[place])
        with for_others():  # woken by it, this worker would be the first to ask, each time
            await context.handlers.queues.send(queue, [*map(to_text, again)], delay_seconds=_GIVE_BACK_SECONDS)


def _ready_in(message: RunTasks, since: float) -> list[ReadyTask]:
    """The tasks of a message as it says that they stand, without reading their rows."""
    found: list[ReadyTask] = []
    for task_id, run in message.tasks:
        seen, routing = message.seen[task_id], message.routing.get(task_id, "")
        one = ReadyTask(task_id, run, message.target, seen.definition, since, seen.label, seen=seen, routing=routing)
        found.append(one)
    return found


def _misplaced(message: Message) -> str:
    return "" if isinstance(message, RunTasks) else "only run-tasks messages belong on a work queue"
