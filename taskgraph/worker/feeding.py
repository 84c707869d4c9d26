"""Claim out of the stock as there is room, graph by graph, and send to all workers what has waited there too long."""

import asyncio
import logging
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from taskgraph.model.errors import StorageError, TaskgraphError
from taskgraph.model.ids import row_key
from taskgraph.model.priorities import LEVELS
from taskgraph.storage.tables import Row
from taskgraph.worker.claims import Claims
from taskgraph.worker.context import WorkerContext
from taskgraph.worker.messages import WorkMessages
from taskgraph.worker.queue_turns import QueueTurns
from taskgraph.worker.reports import Reporter
from taskgraph.worker.slots import Slots
from taskgraph.worker.stock import Stock
from taskgraph.worker.values import ReadyTask, as_seen

log = logging.getLogger("taskgraph.worker")

_STOCK_SECONDS: Final = 0.5  # ready tasks are kept for so long without a slot; then others are offered them
_STOCK_SECONDS_MAX: Final = 5.0


@dataclass(eq=False)
class Feeder:
    """Feeds the slots of one worker out of its stock."""

    _context: WorkerContext
    _messages: WorkMessages
    _slots: Slots
    _stock: Stock
    _turns: QueueTurns
    _claims: Claims
    _reporter: Reporter
    _expiring: bool = False
    _pulling: bool = False
    _nap: asyncio.Future[None] | None = None  # between two looks at what has been kept too long

    # --- claiming out of the stock

    def put_by(self, graph_id: str, ready: Collection[ReadyTask]) -> None:
        """Keep these until there is room, though not for long."""
        self._stock.put(graph_id, ready)
        self.watch_expiry()

    def pull(self) -> None:
        """Claim from the stock what there is room for."""
        if not self._stock.by_graph or (room := self._slots.capacity) <= 0 or not self._turns.may_feed_itself():
            return
        if self._slots.has_more and 2 * room < self._slots.ahead:
            return  # claimed together, they cost less: while some wait to begin, there is no hurry
        apart, local_handlers = False, self._context.local_handlers
        for graph_id in self._stock:
            if not self._stock.can_begin(graph_id):
                continue
            if local_handlers is not None and local_handlers.takes(graph_id):
                local_handlers.look(graph_id)
            else:
                apart = True
        if apart and not self._pulling:
            self._pulling = True
            self._context.background(self._pull_all)

    async def _pull_all(self) -> None:
        try:
            while self._stock.by_graph and (room := self._slots.capacity) > 0 and (graph_id := self._next_graph()):
                ready = self._stock.pop(graph_id, min(room, self._stock.share(graph_id)))
                try:
                    await self._claims.commit(graph_id, ready)
                except TaskgraphError as error:  # reach: stock
                    log.warning("graph %s: %d ready tasks are left to others: %s", graph_id, len(ready), error)
                    await self._messages.release_soon(one.source for one in ready)
        finally:
            self._pulling = False

    def _next_graph(self) -> str:
        """The graph out of whose stock is claimed next, "" for none."""
        for graph_id in self._stock:
            if self._context.is_direct(graph_id) or not self._stock.can_begin(graph_id):
                continue
            if self._stock.share(graph_id):
                return graph_id
        return ""

    def let_others_ask(self, graph_id: str) -> None:
        """Other graphs have something in stock too, and a good part of the room is theirs."""
        local_handlers = self._context.local_handlers
        if local_handlers is not None and self._stock.graphs > (graph_id in self._stock):
            for other in self._stock:
                if (
                    other != graph_id
                    and 4 * self._stock.share(other) >= self._slots.most
                    and local_handlers.takes(other)
                ):
                    local_handlers.look(other)

    # --- giving up what has waited too long

    def watch_expiry(self) -> None:
        """Something waits from now on: see that it does not for too long."""
        if not self._expiring and not self._context.stopping:
            self._expiring = True
            self._context.background(self._expire)

    async def _expire(self) -> None:
        """Send others what has been kept too long; give claims back that have waited too long for a slot."""
        clock, slots = self._context.clock, self._slots
        try:
            while (self._stock.by_graph or slots.has_more) and not self._context.stopping:
                self._nap = asyncio.ensure_future(clock.sleep(_STOCK_SECONDS / 2))
                await asyncio.wait((self._nap,))
                now = clock.monotonic()
                for graph_id in self._stock:
                    if graph_id == self._context.graph_id:
                        continue  # no other is offered it
                    patience, seconds = _STOCK_SECONDS, slots.seconds
                    if seconds is not None and len(self._stock) * seconds < 2 * _STOCK_SECONDS * self._context.slots:
                        patience = _STOCK_SECONDS_MAX  # it is quick, and only claiming takes its time
                    old = [one for one in self._stock.of(graph_id) if now - one.since >= patience]
                    await self.send_to_others(graph_id, self._stock.take_out(graph_id, old))
                self._context.freed.set()
                self.pull()  # what was put back after a commit that failed would wait for the end of some run
                await self._give_back_late(now)
        finally:
            self._expiring = False

    async def _give_back_late(self, now: float) -> None:
        for graph_id, late in self._slots.withdraw(lambda one: now - one.began >= 2 * _STOCK_SECONDS).items():
            await self._reporter.hand_back(graph_id, late, f"worker {self._context.name} had no slot for it")

    def stop_napping(self) -> None:
        """The worker stops: what waits is put down at once."""
        if self._nap is not None:
            self._nap.cancel()

    async def send_of_target(self, target: str) -> None:
        """Send others what is in stock of a target that this worker takes nothing of for now."""
        for graph_id in self._stock:
            mine = [one for one in self._stock.of(graph_id) if one.target == target]
            await self.send_to_others(graph_id, self._stock.take_out(graph_id, mine))

    async def send_to_others(self, graph_id: str, ready: Collection[ReadyTask]) -> None:
        """Send ready tasks to all workers of their targets; the messages that they came by may go then."""
        by_queue: dict[tuple[str, str], list[tuple[str, int]]] = {}
        rows: dict[str, Row | None] = {}
        for one in ready:
            by_queue.setdefault((one.target, LEVELS[one.rank]), []).append((one.task_id, one.run))
            rows[row_key(one.task_id)] = one.row or as_seen(one)
        for (target, level), tasks in by_queue.items():
            size = min(8, max(1, len(tasks) // 16))
            try:
                await self._context.handlers.dispatcher.dispatch(
                    graph_id, target, tasks, level=level, rows=rows, size=size, shared=not self._context.active
                )
            except StorageError as error:  # reach: stock
                log.warning("graph %s: %d ready tasks are left to the sweep: %s", graph_id, len(tasks), error)
                await self._messages.release_soon(one.source for one in ready)
                return
        for one in ready:
            if one.source is not None:
                await self._messages.release(one.source)

    async def put_down(self, why: str) -> None:
        """Give back what has been claimed and not begun, and send others what is in stock."""
        for graph_id, ones in self._slots.withdraw(lambda _: True).items():
            await self._reporter.hand_back(graph_id, ones, f"worker {self._context.name} was {why}")
        for graph_id in self._stock:
            await self.send_to_others(graph_id, self._stock.pop_all(graph_id))
