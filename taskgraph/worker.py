"""Take ready tasks from work queues, claim them, run them, report.

What this room is for: everything between a work message and a result message. A run begins only after its claim is
committed (P5), and its result counts only with that claim (P6); the lease on the row and the message are renewed
together while it runs. On SIGTERM unfinished runs go back at once. It never moves a task by its own rules: claims,
renewals and hand-backs go through the same decisions as everything else.
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from taskgraph import limits
from taskgraph.clock import Clock
from taskgraph.errors import (
    Conflict,
    IntegrityError,
    StaleDelivery,
    StorageError,
    StorageUnavailable,
    TaskgraphError,
)
from taskgraph.executors import Executor, Executors, Outcome, Work
from taskgraph.handlers import Handlers
from taskgraph.layout import gathered
from taskgraph.messages import (
    Message,
    RunTasks,
    TaskCompleted,
    TaskFailed,
    TaskResult,
    bundles,
    to_text,
)
from taskgraph.model import TaskState, row_key
from taskgraph.poison import NEWER_VERSION_SECONDS, Poison, release
from taskgraph.rows import NewerSchema
from taskgraph.storage.logs import Logs
from taskgraph.storage.queues import Delivery
from taskgraph.storage.tables import Row
from taskgraph.transitions import CannotRun, Claim, HandBack, Item, LeaseLost, Renew
from taskgraph.transitions import Outcome as Decided
from taskgraph.wakeup import Pacer, Wakeup

log = logging.getLogger("taskgraph.worker")

_LOG_CHUNK_BYTES: Final = 256 * 1024
_LOG_FLUSH_SECONDS: Final = 1.0
_GIVE_BACK_SECONDS: Final = 10.0  # until a worker that lacks an executor is offered the same task again
_REPORT_SECONDS_MAX: Final = 600.0  # a result is tried for so long; after that the lease decides


@dataclass(slots=True)
class Claimed:
    """One run that this worker holds."""

    work: Work
    executor: Executor
    handle: asyncio.Task[Outcome] | None = None
    lost: bool = False


@dataclass(slots=True)
class WorkerCounters:
    """What this worker has done since it began."""

    completed: int = 0
    failed: int = 0
    handed_back: int = 0
    given_back: int = 0  # for lack of an executor
    lost: int = 0


class Worker:
    """One worker: some targets, some slots."""

    def __init__(
        self,
        handlers: Handlers,
        poison: Poison,
        executors: Executors,
        logs: Logs,
        wakeup: Wakeup,
        *,
        name: str,
        targets: Sequence[str] = ("default",),
        slots: int = 1,
        lease_seconds: float = limits.LEASE_SECONDS,
        idle_seconds_max: float = 1.0,
        store_url: str = "",
    ) -> None:
        self.handlers = handlers
        self.poison = poison
        self.executors = executors
        self.logs = logs
        self.name = name
        self.targets = tuple(targets)
        self.counters = WorkerCounters()
        self._wakeup = wakeup
        self._clock: Clock = handlers.clock
        self._slots = slots
        self._free = slots
        self._freed = asyncio.Event()
        self._lease_seconds = lease_seconds
        self._idle_seconds_max = idle_seconds_max
        self._store_url = store_url
        self._taking: set[asyncio.Task[None]] = set()
        self._stopping = False
        self._turn = 0
        self._running: set[asyncio.Task[Outcome]] = set()

    async def run(self, stop: asyncio.Event) -> None:
        """Work until told to stop; then hand unfinished runs back and return."""
        pacer = Pacer(self._clock, seconds_max=self._idle_seconds_max)
        queues = [self.handlers.names.work(target) for target in self.targets]
        stopped = asyncio.ensure_future(stop.wait())
        try:
            while not stop.is_set():
                if self._free <= 0:
                    self._freed.clear()
                    freed = asyncio.ensure_future(self._freed.wait())
                    await asyncio.wait((freed, stopped), return_when=asyncio.FIRST_COMPLETED)
                    freed.cancel()
                    continue
                ticket = self._wakeup.ticket(*queues)
                try:
                    found = await self._receive(queues)
                except StorageError as error:
                    log.warning("cannot receive work: %s", error)
                    await pacer.trouble(stop)
                    continue
                if found:
                    pacer.reset()
                else:
                    await pacer.idle(ticket, stop)
        finally:
            stopped.cancel()
            await self._hand_everything_back()

    async def _receive(self, queues: Sequence[str]) -> bool:
        found = False
        self._turn += 1  # each target is first in turn: a full queue must not starve the others
        turn = self._turn % len(queues)
        for queue in (*queues[turn:], *queues[:turn]):
            if self._free <= 0:
                break
            count = min(self._free, limits.RECEIVE_MAX)
            deliveries = await self.handlers.queues.receive(queue, count=count, lease_seconds=self._lease_seconds)
            for delivery in deliveries:
                found = True
                self._free -= 1
                task = asyncio.create_task(self._guard(delivery))
                self._taking.add(task)
                task.add_done_callback(self._taking.discard)
        return found

    async def _hand_everything_back(self) -> None:
        self._stopping = True
        for running in list(self._running):
            running.cancel()
        if self._taking:
            await asyncio.wait(self._taking)

    async def _guard(self, delivery: Delivery) -> None:
        """Take one delivery; whatever goes wrong with it must not cost the worker."""
        try:
            await self._take(delivery)
        except (Conflict, StorageUnavailable) as error:
            # The lease on the rows decides from here; the message comes back by itself.
            log.warning("work message %s: %s", delivery.id, error)
        except NewerSchema as error:
            log.warning("work message %s is left to a newer version: %s", delivery.id, error)
            with contextlib.suppress(StorageError):  # then it stays leased, and comes back
                await release(self.handlers.queues, delivery, NEWER_VERSION_SECONDS)
        except Exception as error:
            log.exception("work message %s: failed", delivery.id)
            with contextlib.suppress(StorageError):  # then it stays leased, and comes back
                await self.poison.failed(delivery, f"{type(error).__name__}: {error}")
        finally:
            self._free += 1
            self._freed.set()

    async def _take(self, delivery: Delivery) -> None:
        message = await self.poison.read(delivery, _misplaced)
        if not isinstance(message, RunTasks):
            return  # set aside, or left to a newer version
        rows: dict[str, Row | None] = {}
        keys = [row_key(task_id) for task_id, _ in message.tasks]
        await self.handlers.records.load(message.graph, keys, rows)
        missing = [key for key in keys if rows[key] is None]
        if len(missing) == len(keys):
            # Foreign, or of a graph that is gone: tried a few times, since a message may be early, then set aside.
            await self.poison.failed(delivery, f"graph {message.graph} has no row {missing[0]}")
            return
        ready, busy_until = await self._sift(message, rows, delivery)
        chosen, extra = await self._choose(message, ready, rows)
        try:
            claimed = await self._claim(message.graph, chosen, rows) if chosen else []
            if claimed:
                delivery = await self._work(message.graph, claimed, delivery)
        finally:
            self._free += extra
            self._freed.set()
        await self._acknowledge(delivery, busy_until)

    async def _sift(
        self, message: RunTasks, rows: Mapping[str, Row | None], delivery: Delivery
    ) -> tuple[list[tuple[str, int]], datetime | None]:
        """Which runs of a message can be claimed; and until when to keep a message that came back for a live run.

        A message that comes back belongs to a worker that died, or is slow: once the lease of its run has ended, the
        run is given up here, without waiting for the sweep.
        """
        now = self._clock.now()
        ready: list[tuple[str, int]] = []
        ended: list[Item] = []
        busy_until: datetime | None = None
        for task_id, run in message.tasks:
            row = rows[row_key(task_id)]
            if row is None or row.columns.get("run") != run:
                continue
            state = row.columns.get("state")
            if state == TaskState.PENDING:
                ready.append((task_id, run))
            elif state == TaskState.RUNNING and delivery.dequeue_count > 1:
                lease_until = row.columns.get("leaseUntil")
                if not isinstance(lease_until, datetime) or lease_until < now:
                    ended.append(LeaseLost(task_id, run, str(row.columns.get("claim", ""))))
                elif busy_until is None or busy_until < lease_until:
                    busy_until = lease_until
        if ended:
            await self.handlers.transition(message.graph, ended)
        return ready, busy_until

    async def _choose(
        self, message: RunTasks, ready: Sequence[tuple[str, int]], rows: Mapping[str, Row | None]
    ) -> tuple[list[tuple[str, int, Executor, dict[str, Any]]], int]:
        """Runs to claim now, with what runs them, and how many further slots they take.

        What this worker cannot run, or has no slot for, is given back to the queue for others.
        """
        able: list[tuple[str, int, Executor, dict[str, Any]]] = []
        unable: list[tuple[str, int, str]] = []
        for task_id, run in ready:
            definition = await self._definition(message.graph, task_id, rows)
            reason = self.executors.why_not(definition)
            if reason is None:
                able.append((task_id, run, self.executors.choose(definition), definition))
            else:
                unable.append((task_id, run, reason))
        if unable:
            await self._give_back(message, unable)
        extra = 0
        if not all(executor.instant for _, _, executor, _ in able):
            extra = max(0, min(len(able) - 1, self._free))
            rest = [(task_id, run) for task_id, run, _, _ in able[1 + extra :]]
            if rest:
                await self.handlers.dispatch(message.graph, message.target, rest)
            able = able[: 1 + extra]
            self._free -= extra
        return able, extra

    async def _definition(self, graph_id: str, task_id: str, rows: Mapping[str, Row | None]) -> dict[str, Any]:
        row = rows[row_key(task_id)]
        text = str(row.columns.get("task", "")) if row else ""
        if not text:
            (longer,) = await self.handlers.records.tables.get(graph_id, [f"definition:{task_id}"])
            text = gathered(longer.columns, "task") if longer else ""
        try:
            definition = json.loads(text)
        except ValueError:
            definition = None
        if not isinstance(definition, dict):
            raise IntegrityError(f"graph {graph_id}: task {task_id} has no definition")
        return definition

    async def _give_back(self, message: RunTasks, tasks: Sequence[tuple[str, int, str]]) -> None:
        """Put tasks back that this worker cannot run, after a pause, and say so (on the row too, for `why`)."""
        self.counters.given_back += len(tasks)
        for task_id, run, reason in tasks:
            log.warning("graph %s: task %s run %d is given back: %s", message.graph, task_id, run, reason)
        items = [CannotRun(task_id, run, self.name, reason) for task_id, run, reason in tasks]
        await self.handlers.transition(message.graph, items)
        again = RunTasks(message.graph, message.target, tuple((task_id, run) for task_id, run, _ in tasks))
        queue = self.handlers.names.work(message.target)
        await self.handlers.queues.send(queue, [to_text(again)], delay_seconds=_GIVE_BACK_SECONDS)

    async def _claim(
        self,
        graph_id: str,
        chosen: Sequence[tuple[str, int, Executor, dict[str, Any]]],
        rows: dict[str, Row | None],
    ) -> list[Claimed]:
        lease_until = self._clock.now() + timedelta(seconds=self._lease_seconds)
        by_task = {task_id: (executor, definition) for task_id, _, executor, definition in chosen}
        labels = {
            task_id: str(row.columns.get("label", "")) for task_id, *_ in chosen if (row := rows[row_key(task_id)])
        }
        claims: list[Item] = [
            Claim(task_id, run, self._clock.new_id(), self.name, lease_until) for task_id, run, _, _ in chosen
        ]
        claimed: list[Claimed] = []
        newer: NewerSchema | None = None
        for answer in await self.handlers.transition(graph_id, claims, rows=rows):
            item = answer.item
            if isinstance(answer.error, NewerSchema):
                newer = answer.error
            if not isinstance(item, Claim) or answer.outcome not in (Decided.APPLIED, Decided.REPEATED):
                continue
            executor, definition = by_task[item.task_id]
            work = Work(
                graph_id=graph_id,
                task_id=item.task_id,
                run=item.run,
                label=labels.get(item.task_id, ""),
                claim=item.claim,
                definition=definition,
                store_url=self._store_url,
            )
            claimed.append(Claimed(work, executor))
        if newer is not None and not claimed:
            raise newer  # left to who knows the row; with other runs claimed, the sweep says it again
        return claimed

    async def _work(self, graph_id: str, claimed: Sequence[Claimed], delivery: Delivery) -> Delivery:
        """Run what was claimed and report each as it ends; gives the delivery with its latest receipt."""
        keeper = _Keeper(self, graph_id, claimed, delivery)
        beat: asyncio.Task[None] | None = None
        for one in claimed:
            one.handle = asyncio.create_task(self._execute(one))
            self._running.add(one.handle)
            one.handle.add_done_callback(self._running.discard)
            if self._stopping:
                one.handle.cancel()
        pending = {one.handle: one for one in claimed if one.handle is not None}
        # Runs that end at once need no heartbeat, and are reported together.
        await asyncio.wait(pending, timeout=0 if all(one.executor.instant for one in claimed) else 0.005)
        try:
            while pending:
                done = [handle for handle in pending if handle.done()]
                if done:
                    finished = [pending.pop(handle) for handle in done]
                    keeper.drop(finished)
                    await self._report(graph_id, finished)
                    continue
                if beat is None:
                    beat = asyncio.create_task(keeper.beat())
                await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if beat is not None:
                beat.cancel()
                await asyncio.wait((beat,))
        return keeper.delivery

    async def _execute(self, one: Claimed) -> Outcome:
        writer = LogWriter(self.logs, one.work)
        try:
            outcome = await one.executor.run(one.work, writer.write)
        finally:
            await asyncio.shield(writer.close())
        return outcome

    async def _report(self, graph_id: str, finished: Sequence[Claimed]) -> None:
        completed: list[TaskResult] = []
        failed: list[TaskResult] = []
        hand_back: list[Item] = []
        for one in finished:
            work = one.work
            handle = one.handle
            if handle is None or one.lost:
                self.counters.lost += 1
                continue
            if handle.cancelled():
                reason = f"worker {self.name} was stopped"
                hand_back.append(HandBack(work.task_id, work.run, work.claim, reason))
                continue
            error = handle.exception()
            if isinstance(error, OSError | StorageError):
                # This machine is out of something, or the result could not be stored: infrastructure, a retry.
                log.error("graph %s: task %s could not be run here: %s", graph_id, work.task_id, error)
                hand_back.append(LeaseLost(work.task_id, work.run, work.claim, certain=True))
                continue
            if error is not None:
                log.error("graph %s: task %s: the executor broke", graph_id, work.task_id, exc_info=error)
                reason = f"the executor broke: {type(error).__name__}: {error}"
                outcome = Outcome(failed=True, exception=True, reason=reason[: limits.REASON_CHARS_MAX])
            else:
                outcome = handle.result()
            result = await self._result(one, outcome)
            (failed if outcome.failed else completed).append(result)
        self.counters.completed += len(completed)
        self.counters.failed += len(failed)
        messages: list[Message] = [
            *bundles(lambda part: TaskCompleted(graph_id, part), completed),
            *bundles(lambda part: TaskFailed(graph_id, part), failed),
        ]
        bodies = [to_text(message) for message in messages]
        if bodies:
            await self._insist(lambda: self.handlers.queues.send(self.handlers.names.events, bodies))
        if hand_back:
            self.counters.handed_back += len(hand_back)
            await self.handlers.transition(graph_id, hand_back)

    async def _result(self, one: Claimed, outcome: Outcome) -> TaskResult:
        work = one.work
        resolution: dict[str, Any] = {"failed": outcome.failed}
        if outcome.reason:
            resolution["reason"] = outcome.reason[: limits.REASON_CHARS_MAX]
        if outcome.exit_code is not None:
            resolution["exitCode"] = outcome.exit_code
        if not one.executor.instant:
            resolution["logsUrl"] = self.logs.url(work.graph_id, work.task_id, work.run)
        if outcome.result is not None:
            data = outcome.result
            await self._insist(
                lambda: self.logs.append(work.graph_id, work.task_id, work.run, data, name="result.json")
            )
            resolution["resultUrl"] = self.logs.url(work.graph_id, work.task_id, work.run, name="result.json")
        return TaskResult(
            task=work.task_id,
            run=work.run,
            claim=work.claim,
            ended=self._clock.now().isoformat(),
            resolution=resolution,
            exception=outcome.exception,
        )

    async def _insist(self, call: Callable[[], Awaitable[None]]) -> None:
        """Try for a long time to get a result out: the work is done, only the word of it is missing."""
        began = self._clock.monotonic()
        pause = 0.5
        while True:
            try:
                await call()
            except StorageUnavailable as error:
                if self._clock.monotonic() - began > _REPORT_SECONDS_MAX:
                    raise
                log.warning("a result cannot be delivered yet: %s", error)
                await self._clock.sleep(pause)
                pause = min(pause * 2, 15.0)
            else:
                return

    async def _acknowledge(self, delivery: Delivery, busy_until: datetime | None) -> None:
        if busy_until is not None:
            seconds = (busy_until - self._clock.now()).total_seconds() + 1.0
            await release(self.handlers.queues, delivery, max(1.0, seconds))
            return
        try:
            await self.handlers.queues.delete(delivery)
        except StaleDelivery:
            log.info("work message %s had been taken over when it was acknowledged", delivery.id)


def _misplaced(message: Message) -> str:
    return "" if isinstance(message, RunTasks) else "only run-tasks messages belong on a work queue"


class _Keeper:
    """Renews the lease of runs, and of the message they came by, while they run."""

    def __init__(self, worker: Worker, graph_id: str, claimed: Sequence[Claimed], delivery: Delivery) -> None:
        self._worker = worker
        self._graph_id = graph_id
        self._held = list(claimed)
        self.delivery = delivery

    def drop(self, finished: Sequence[Claimed]) -> None:
        """These have ended."""
        self._held = [one for one in self._held if one not in finished]

    async def beat(self) -> None:
        """Renew at a third of the lease, until cancelled."""
        worker = self._worker
        lease_seconds = worker._lease_seconds  # noqa: SLF001 - the keeper is part of the worker
        while True:
            await worker._clock.sleep(lease_seconds / 3)  # noqa: SLF001
            try:
                await self._renew(lease_seconds)
            except TaskgraphError as error:
                log.warning("graph %s: leases could not be renewed: %s", self._graph_id, error)
            except Exception:  # a bug must not end the heartbeat: the run would be lost, and done again
                log.exception("graph %s: leases could not be renewed", self._graph_id)

    async def _renew(self, lease_seconds: float) -> None:
        worker = self._worker
        lease_until = worker.handlers.clock.now() + timedelta(seconds=lease_seconds)
        held = {one.work.claim: one for one in self._held}
        items: list[Item] = [
            Renew(one.work.task_id, one.work.run, one.work.claim, lease_until) for one in held.values()
        ]
        for answer in await worker.handlers.transition(self._graph_id, items):
            if isinstance(answer.item, Renew) and answer.outcome is Decided.STALE:
                one = held[answer.item.claim]
                if one.handle is not None and not one.handle.done():
                    log.warning("graph %s: task %s is lost: %s", self._graph_id, one.work.task_id, answer.reason)
                    one.lost = True
                    one.handle.cancel()
        try:
            self.delivery = await worker.handlers.queues.renew(self.delivery, lease_seconds=lease_seconds)
        except StaleDelivery:
            log.info("work message %s was taken over; the lease on the rows holds", self.delivery.id)


@dataclass(slots=True)
class LogWriter:
    """The log of one run, written in pieces. A log that cannot be stored is lost, and says so; the run goes on."""

    logs: Logs
    work: Work
    _buffer: bytearray = field(default_factory=bytearray)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _timer: asyncio.Task[None] | None = None
    _lost: bool = False

    async def write(self, data: bytes) -> None:
        """Add bytes; they are stored within about a second."""
        if self._lost:
            return
        self._buffer += data
        if len(self._buffer) >= _LOG_CHUNK_BYTES:
            await self._flush()
        elif self._timer is None or self._timer.done():
            self._timer = asyncio.create_task(self._flush_soon())

    async def close(self) -> None:
        """Store what is left."""
        if self._timer is not None:
            self._timer.cancel()
            await asyncio.wait((self._timer,))
        await self._flush()

    async def _flush_soon(self) -> None:
        await asyncio.sleep(_LOG_FLUSH_SECONDS)
        await asyncio.shield(self._flush())  # closing the log must not cut a write in two

    async def _flush(self) -> None:
        async with self._lock:
            if not self._buffer or self._lost:
                return
            data = bytes(self._buffer)
            self._buffer.clear()
            work = self.work
            try:
                await self.logs.append(work.graph_id, work.task_id, work.run, data)
            except Exception as error:  # whatever it is: no log is worth its run
                self._lost = True
                log.warning("graph %s: the log of task %s is lost from here: %s", work.graph_id, work.task_id, error)
