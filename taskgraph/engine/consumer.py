"""Take messages off the events queue, hand them to the handlers, acknowledge last.

Deliveries of one graph are handled together and one batch after another, so what piles up while a commit is on its way
goes into the next one (D12), and this process never races itself (D12a). What a worker of the same process has to
report goes the same way, without a queue in between, and the worker may take what becomes ready in the same commit.
"""

import asyncio
import contextlib
import functools
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, ParamSpec

from taskgraph.engine.handlers import Handled, Handlers
from taskgraph.engine.lead import LOOK_SECONDS, Leads
from taskgraph.engine.listeners import LocalWorker
from taskgraph.engine.poison import NEWER_VERSION_SECONDS, Poison, origin_of, release
from taskgraph.engine.telemetry import handed_on, note, watched
from taskgraph.model import limits
from taskgraph.model.clock import Clock
from taskgraph.model.errors import Conflict, StaleDelivery, StorageError, StorageUnavailable, Unclear, trail
from taskgraph.model.flag import Flag, wait_any
from taskgraph.model.messages import Message, RunTasks, TaskCompleted
from taskgraph.protocol.rows import NewerSchema
from taskgraph.storage.metered import SENT_AND_DELETED
from taskgraph.storage.queues import Delivery, Queues
from taskgraph.storage.signals.wakeup import Pacer, Wakeup

log = logging.getLogger("taskgraph.consumer")

P = ParamSpec("P")

PUMP_SECONDS: Final = 1.0
"""Between two looks at what is to be sent later."""

_IN_HAND_MAX: Final = 512  # deliveries held by one process; more would wait for longer than their lease
_SETTLED_AT_ONCE: Final = 16
_PAUSE_SECONDS: Final = 0.5
_LONG_SECONDS: Final = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Waiting:
    """A message that waits to be handled, and what it came by: a delivery, or a call of this process."""

    message: Message
    delivery: Delivery | None = None
    answer: "asyncio.Future[Handled] | None" = None
    source: Delivery | None = None  # what a caller has it by

    def give(self, handled: Handled | Exception) -> None:
        """Answer the call that waits, if any does."""
        if self.answer is None or self.answer.done():
            return
        if isinstance(handled, Exception):
            self.answer.set_exception(handled)
        else:
            self.answer.set_result(handled)


class Lease:
    """Keeps the messages of one batch leased while they are being handled; the one owner of their receipts (P18)."""

    def __init__(self, queues: Queues, clock: Clock, deliveries: Sequence[Delivery], lease_seconds: float) -> None:
        self._queues = queues
        self._clock = clock
        self._lease_seconds = lease_seconds
        self._renewed = clock.monotonic()
        self.deliveries = {delivery.id: delivery for delivery in deliveries}

    async def keep(self) -> None:
        """Renew when a third of the lease has gone by."""
        if self._clock.monotonic() - self._renewed < self._lease_seconds / 3:
            return
        self._renewed = self._clock.monotonic()
        for key, delivery in list(self.deliveries.items()):
            try:
                self.deliveries[key] = await self._queues.renew(delivery, lease_seconds=self._lease_seconds)
            except StaleDelivery:
                log.info("message %s was taken over by another process; going on is harmless", key)

    async def acknowledge(self, key: str) -> None:
        """Delete a message: its effect is durable. One that another process has by now is left to it."""
        try:
            await self._queues.delete(self.deliveries[key])
        except StaleDelivery:
            log.info("message %s had been taken over when it was acknowledged", key)


class Consumer:
    """One receiver of the events queue."""

    def __init__(
        self,
        handlers: Handlers,
        poison: Poison,
        wakeup: Wakeup,
        *,
        lease_seconds: float = limits.HANDLER_LEASE_SECONDS,
        idle_seconds_max: float = 1.0,
        pump_seconds: float = PUMP_SECONDS,
    ) -> None:
        self.handlers = handlers
        self.poison = poison
        self._wakeup = wakeup
        self._lease_seconds = lease_seconds
        self._idle_seconds_max = idle_seconds_max
        self._pump_seconds = pump_seconds
        self._waiting: dict[str, list[Waiting]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._beside: set[asyncio.Task[None]] = set()  # what is done while messages are handled
        self.local_worker: LocalWorker | None = None
        """A worker of this process."""
        self.own: set[str] = set()
        """Graphs that are handled here whichever process leads: those that this process was started for."""
        self.received = 0
        self._found_empty: set[str] = set()  # queues that held nothing when they were looked at last
        self._queues = handlers.dispatcher.event_queues
        self._leads = Leads(handlers.records.tables, handlers.clock, self._queues, handlers.clock.new_id())
        self._receiving = False
        self._pumping: asyncio.Task[None] | None = None
        handlers.dispatcher.join(self)

    @property
    def idle(self) -> bool:
        """Whether the last look at each queue found nothing for this process, and nothing is in hand."""
        return not self._tasks and self._found_empty.issuperset(self._queues.received)

    async def run(self, stop: Flag, *, after_seconds: float = 0.0) -> None:
        """Receive until `stop` is set; then finish what is in hand. after_seconds: before the queues are asked."""
        self._receiving = True
        self.handlers.dispatcher.join(self)  # it may have run before
        try:
            if after_seconds:
                await wait_any((stop,), after_seconds)
            async with asyncio.TaskGroup() as receivers:
                begun: dict[str, asyncio.Task[None]] = {}
                while not stop.is_set():
                    changed = self._queues.changed
                    for queue in self._queues.received:
                        if queue not in begun or begun[queue].done():
                            begun[queue] = receivers.create_task(self._receive(queue, stop))
                    await wait_any((stop, changed), _LONG_SECONDS)
        finally:
            while under_way := {*self._tasks.values(), *self._beside}:
                await asyncio.wait(under_way)
            self._receiving = False
            self.leave()
            if self._pumping is not None:
                self._pumping.cancel()
                await asyncio.wait((self._pumping,))
            try:
                windows = self.handlers.dispatcher.windows
                await self._hand_over_unsent(windows.graphs if windows is not None else ())
                await self._leads.give_up()
            except StorageError as error:  # reach: lead
                log.info("the lead over %s ends by itself: %s", ", ".join(self._queues.received), error)

    async def _receive(self, queue: str, stop: Flag) -> None:
        pacer = Pacer(self.handlers.clock, seconds_max=self._idle_seconds_max)
        while not stop.is_set() and queue in self._queues.received:
            lead = self._queues.lead_of(queue)
            if sum(len(each) for each in self._waiting.values()) >= _IN_HAND_MAX and self._tasks:
                await asyncio.wait(self._tasks.values(), return_when=asyncio.FIRST_COMPLETED)
                continue
            ticket = self._wakeup.ticket(queue, at_once=False)
            try:
                # Who does not lead looks whether there is something; only then it asks who does.
                count = limits.RECEIVE_MAX if self._leads.held(lead) else 1
                deliveries = await self.handlers.queues.receive(queue, count=count, lease_seconds=self._lease_seconds)
                if deliveries and (seconds := await self._leads.take(lead)):
                    for delivery in deliveries:
                        await self._let_go(delivery, 0)
                    self._wakeup.notify(queue)  # who leads may have looked in vain meanwhile
                    self._found_empty.add(queue)
                    await self._stand_by(lead, seconds, stop)
                    continue
                await self._read(deliveries)
            except StorageError as error:
                log.warning("cannot receive messages: %s", error)
                await pacer.trouble(stop)
                continue
            if deliveries:
                self._found_empty.discard(queue)
                self.received += len(deliveries)
                pacer.reset()
                await asyncio.sleep(0)  # let the handling begin before more is taken
                if count == 1:
                    continue
                if len(deliveries) < count:
                    await pacer.rest(ticket, stop)
            else:
                self._found_empty.add(queue)
                await pacer.idle(ticket, stop)

    async def _stand_by(self, lead: str, seconds: float, stop: Flag) -> None:
        """Another handles a queue, as long as it lives. Of several it may hand this one over: look now and then."""
        while seconds and self._queues.number > 1:
            if await wait_any((stop,), min(seconds, LOOK_SECONDS)):
                return
            seconds = await self._leads.stands_by(lead)
        await wait_any((stop,), seconds)

    def leave(self) -> None:
        """Receive no more messages for these handlers."""
        with contextlib.suppress(ValueError):  # it has left
            self.handlers.dispatcher.receivers.remove(self)

    async def leads(self, graph_id: str) -> bool:
        """See Receiver."""
        return not self._receiving or graph_id in self.own or not await self._leads.take(self._queues.of(graph_id))

    async def _hand_over_unsent(self, graphs: Sequence[str]) -> None:
        """Leave what was put by to those that handle these graphs from now on: of this process, or of another."""
        dispatcher = self.handlers.dispatcher
        others = [each for each in dispatcher.receivers if each is not self]
        theirs = {graph_id: each for graph_id in graphs for each in others if each.takes(graph_id)}
        await dispatcher.hand_over_unsent([graph_id for graph_id in graphs if graph_id not in theirs])
        for each in theirs.values():
            each.watch_unsent()

    def watch_unsent(self) -> None:
        """See Receiver: it goes out even if no result of what has gone before comes in."""
        if self._pumping is None or self._pumping.done():
            self._pumping = asyncio.create_task(self._dispatch_waiting())

    async def _dispatch_waiting(self) -> None:
        dispatcher = self.handlers.dispatcher
        while dispatcher.windows is not None and dispatcher.windows.waits:
            await dispatcher.clock.sleep(self._pump_seconds)
            try:
                if self._receiving and not self.own:
                    leads = {each: self._queues.of(each) for each in dispatcher.windows.graphs}
                    theirs = [each for each in {*leads.values()} if await self._leads.take(each)]
                    await self._hand_over_unsent([graph_id for graph_id, lead in leads.items() if lead in theirs])
                await dispatcher.dispatch_waiting(local_worker=self.local_worker)
            except StorageError as error:  # reach: windows
                log.warning("what is ready could not be sent: %s", error)
            except Exception as error:  # reach: windows
                log.error("what is ready could not be sent: %s", trail(error))

    def takes(self, graph_id: str) -> bool:
        """See Receiver: what a worker of this process has to report of the graph comes here, too."""
        return graph_id in self.own or self._leads.held(self._queues.of(graph_id))

    def is_at_work(self, graph_id: str) -> bool:
        """See Receiver."""
        return graph_id in self._tasks

    def put(self, message: Message) -> None:
        """Have a message handled that may be lost, as the sweep makes up for it."""
        self._put(Waiting(message))

    async def _read(self, deliveries: Sequence[Delivery]) -> None:
        """Have what came together handled. Raises StorageError; what has not been read then comes back."""
        received: list[Waiting] = []
        try:
            for delivery in deliveries:
                message = await self.poison.read(delivery, misplaced)
                if message is not None:
                    received.append(Waiting(message, delivery))
        finally:
            self._put(*received)

    def _put(self, *received: Waiting) -> None:
        ended: dict[str, list[str]] = {}  # by graph, of results that have to wait for others
        for waiting in received:
            message = waiting.message
            if isinstance(message, TaskCompleted) and message.graph in self._tasks:
                ended.setdefault(message.graph, []).extend([each.task for each in message.tasks])
            self._waiting.setdefault(message.graph, []).append(waiting)
            self.look(message.graph)
        for graph_id, task_ids in ended.items():  # together: workers that are woken by each would come for each
            self._send_in_place_of(graph_id, task_ids)

    def _send_in_place_of(self, graph_id: str, task_ids: Sequence[str]) -> None:
        """Send what there is room for by these results before they are handled: workers may wait for it."""
        dispatcher = self.handlers.dispatcher
        if batches := dispatcher.have_ended(graph_id, task_ids):
            self._do_beside(dispatcher.send_batches, batches, self.local_worker)

    def look(self, graph_id: str) -> "asyncio.Task[None]":
        """There is a message for this graph, or something of the local worker; gives the task that handles it."""
        if graph_id not in self._tasks:
            self._tasks[graph_id] = asyncio.create_task(self._drain(graph_id))
        return self._tasks[graph_id]

    async def hand_in(self, message: Message, source: Delivery | None = None, *, alone: bool = False) -> Handled:
        """Have a message of this process handled, without a queue in between; gives what became of it.

        For hosts that call for one message at a time: those that wait together go into one commit (D12). source: what
        the host has it by, and acknowledges itself. alone: wait for no other, and share nothing. Raises StorageError:
        then it may have been handled, and handing it in again is harmless.
        """
        if source is not None and self.handlers.telemetry.enabled:
            self.handlers.telemetry.received(source, self.handlers.clock.now())  # no queue of ours has seen it
        if source is not None and (meter := self.handlers.records.meter) is not None:
            meter.add(message.graph, 0, 1 + SENT_AND_DELETED)  # the same: its host receives on its own account
        answer: asyncio.Future[Handled] = asyncio.get_running_loop().create_future()
        waiting = Waiting(message, answer=answer, source=source)
        if alone:
            await self.take(message.graph, [waiting])
        else:
            self._put(waiting)
        return await answer

    async def _drain(self, graph_id: str) -> None:
        """Handle what has come for a graph, batch after batch, until nothing is left."""
        try:
            while (batch := self._waiting.pop(graph_id, [])) or (
                self.local_worker and self.local_worker.wants(graph_id)
            ):
                await self.take(graph_id, batch)
        finally:
            del self._tasks[graph_id]

    async def take(self, graph_id: str, batch: Sequence[Waiting]) -> None:
        """Handle messages of one graph and acknowledge those that are done. Raises nothing that one message caused.

        A storage error leaves all of them to redelivery, uncounted (P20). Should handling them together fail in an
        unforeseen way, each is handled alone, so that only those which fail by themselves are counted.
        """
        telemetry, clock = self.handlers.telemetry, self.handlers.clock
        if not watched(telemetry):
            await self._take_together(graph_id, batch)
            return
        now = clock.monotonic()
        origins = [origin_of(waiting.message, waiting.delivery or waiting.source, now) for waiting in batch]
        with telemetry.handling(graph_id, origins, clock):
            await self._take_together(graph_id, batch)

    async def _take_together(self, graph_id: str, batch: Sequence[Waiting]) -> None:
        deliveries = [waiting.delivery for waiting in batch if waiting.delivery is not None]
        lease = Lease(self.handlers.queues, self.handlers.clock, deliveries, self._lease_seconds)
        try:
            messages = [waiting.message for waiting in batch]
            keep = functools.partial(self._keep, lease, self._queues.of(graph_id))
            await keep()
            handled = await self.handlers.handle(graph_id, messages, keep_alive=keep, local_worker=self.local_worker)
            outcomes = {id(each.message): each for each in handled}
            for waiting in batch:
                own = outcomes[id(waiting.message)]
                if waiting.source is not None and own.error is not None:
                    note("newer-version" if isinstance(own.error, NewerSchema) else "failed", waiting.source.id)
                waiting.give(own)
            settled = [(w.delivery, outcomes[id(w.message)]) for w in batch if w.delivery is not None]
            if not settled:
                pass  # what a worker here reports came by none
            elif self._receiving and not any(each.error for _, each in settled):
                self._do_beside(self._settle_all, lease, settled)
            else:
                await self._settle_all(lease, settled)
        except (Conflict, StorageUnavailable, Unclear) as error:
            log.warning("graph %s: %s; its messages come back", graph_id, error)
            note("released")
            for waiting in batch:
                waiting.give(error)
            if self.local_worker is not None:
                self.local_worker.failed(graph_id, error)
            for delivery in lease.deliveries.values():
                await self._let_go(delivery, 1.0 if isinstance(error, Conflict) else 5.0)
            if not deliveries:
                await self.handlers.clock.sleep(_PAUSE_SECONDS)  # those of this process come back at once
        except Exception as error:
            # A bug, or rows that are not foreseen: it must cost neither this process nor the other messages.
            log.error("graph %s: handling failed: %s", graph_id, trail(error))
            if self.local_worker is not None:
                self.local_worker.failed(graph_id, error)
            if len(batch) > 1:
                handed_on()
                for waiting in batch:
                    current = lease.deliveries.get(waiting.delivery.id) if waiting.delivery is not None else None
                    await self.take(graph_id, [replace(waiting, delivery=current)])
                return
            note("failed")
            for waiting in batch:
                waiting.give(error)
            for delivery in lease.deliveries.values():
                await self._count_failure(delivery, error)

    async def _keep(self, lease: Lease, lead: str) -> None:
        """While something is handled, keep what it came by, and the lead."""
        if lease.deliveries:
            await lease.keep()
        if self._leads.held(lead):
            await self._leads.take(lead)

    def _do_beside(self, work: Callable[P, Awaitable[None]], *given: P.args, **named: P.kwargs) -> None:
        """Have this done while messages are handled. What cannot be done is left to redelivery, or the sweep."""
        task = asyncio.create_task(_guarded(work, *given, **named))
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

    async def _settle_all(self, lease: Lease, handled: Sequence[tuple[Delivery, Handled]]) -> None:
        """Settle deliveries, several at a time: deleting one is a call, and a batch has many."""
        for start in range(0, len(handled), _SETTLED_AT_ONCE):
            part = handled[start : start + _SETTLED_AT_ONCE]
            results = await asyncio.gather(
                *(self._settle(lease, delivery, each) for delivery, each in part), return_exceptions=True
            )
            for result in results:
                if isinstance(result, BaseException):
                    raise result

    async def _settle(self, lease: Lease, delivery: Delivery, handled: Handled) -> None:
        error = handled.error
        if error is None:
            await lease.acknowledge(delivery.id)
            if delivery.dequeue_count > 1:
                await self.poison.recovered(delivery)
            for answer in handled.answers:
                log.debug("%s: %s %s", type(answer.item).__name__, answer.outcome, answer.reason)
            return
        if isinstance(error, NewerSchema):
            log.warning("message %s is left to a newer version: %s", delivery.id, error)
            note("newer-version", delivery.id)
            await self._let_go(lease.deliveries[delivery.id], NEWER_VERSION_SECONDS)
            return
        await self._count_failure(lease.deliveries[delivery.id], error)

    async def _count_failure(self, delivery: Delivery, error: Exception) -> None:
        note("failed", delivery.id)
        try:
            if await self.poison.failed(delivery, f"{type(error).__name__}: {error}"):
                log.error("message %s of %s is set aside: see taskgraph poison list", delivery.id, delivery.queue)
                note("poison", delivery.id)
        except StorageError as trouble:
            log.warning("message %s: the failure could not be written down: %s", delivery.id, trouble)

    async def _let_go(self, delivery: Delivery, seconds: float) -> None:
        try:
            await release(self.handlers.queues, delivery, seconds)
        except StorageError as error:
            log.info("message %s stays leased until its lease ends: %s", delivery.id, error)


async def _guarded(work: Callable[P, Awaitable[None]], *given: P.args, **named: P.kwargs) -> None:
    try:
        await work(*given, **named)
    except StorageError as error:  # reach: beside
        log.warning("left to redelivery and the sweep: %s", error)
    except Exception as error:  # reach: beside
        log.error("left to redelivery and the sweep: %s", trail(error))


def misplaced(message: Message) -> str:
    """Why a message does not belong on the events queue, "" if it does."""
    wrong = "a run-tasks message belongs on a work queue, not on the events queue"
    return wrong if isinstance(message, RunTasks) else ""
