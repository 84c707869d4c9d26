"""Renew what is in hand (the leases of rows, messages, permits), and end runs before their time.

A run is ended when it is cancelled, when another worker has it by now, or when its permit is lost.
"""

import logging
from collections.abc import Mapping, Sequence
from datetime import timedelta

from taskgraph.model.errors import TaskgraphError, trail
from taskgraph.model.ids import row_key
from taskgraph.protocol.context import Outcome as Decided
from taskgraph.protocol.context import Stop
from taskgraph.protocol.decide import Item
from taskgraph.protocol.runs import Renew
from taskgraph.storage.tables import Row
from taskgraph.worker.context import WorkerContext
from taskgraph.worker.messages import WorkMessages
from taskgraph.worker.slots import Slots
from taskgraph.worker.target_gate import TargetGate
from taskgraph.worker.values import ClaimedRun, was_terminated

log = logging.getLogger("taskgraph.worker")


class LeaseKeeper:
    """Renews what one worker holds."""

    def __init__(self, context: WorkerContext, messages: WorkMessages, gate: TargetGate, slots: Slots) -> None:
        self._context = context
        self._messages = messages
        self._gate = gate
        self._slots = slots

    async def beat(self) -> None:
        """Renew leases at a third of their time, until cancelled."""
        while True:
            await self._context.clock.sleep(self._context.lease_seconds / 3)
            await self._context.guard(self._renew_permits)
            try:
                await self.renew()
            except Exception as error:  # a bug must not end the heartbeat: the runs would be lost, and done again
                log.error("leases could not be renewed: %s", trail(error))

    async def renew(self) -> None:
        """Renew the leases of rows that have not been renewed for a while, and of all messages."""
        now, patience = self._context.clock.monotonic(), self._context.lease_seconds / 6
        source: dict[str, dict[str, ClaimedRun]] = {}
        for one in self._slots.claimed:
            if now - one.since >= patience:
                source.setdefault(one.work.graph_id, {})[one.work.claim] = one
        for graph_id, by_claim in source.items():
            try:
                await self._renew_rows(graph_id, by_claim)
            except TaskgraphError as error:
                log.warning("graph %s: leases could not be renewed: %s", graph_id, error)
        await self._messages.renew()

    async def _renew_rows(self, graph_id: str, by_claim: Mapping[str, ClaimedRun]) -> None:
        context = self._context
        lease_until = context.clock.now() + timedelta(seconds=context.lease_seconds)
        items: list[Item] = [
            Renew(one.work.task_id, one.work.run, claim, lease_until, context.lease_seconds)
            for claim, one in by_claim.items()
        ]
        rows: dict[str, Row | None] = {}
        for answer in await context.handlers.transition(graph_id, items, rows=rows):
            if not isinstance(answer.item, Renew):
                continue
            one = by_claim[answer.item.claim]
            if answer.outcome is Decided.APPLIED:
                one.since = context.clock.monotonic()
                one.etag = one.over = one.next = ""  # others may have written in between
                if answer.reason:
                    self.cancel(one, answer.reason)
            elif answer.outcome in (Decided.STALE, Decided.ENDED):
                self.lose(one, answer.reason, at_once=was_terminated(rows.get(row_key(answer.item.task_id))))

    # --- permits

    async def _renew_permits(self) -> None:
        try:
            await self._gate.permits.renew()
        finally:
            self._end_without_permit()

    async def mind_permits(self) -> None:
        """Give back what is not used, and end what has lost its permit. Raises StorageError."""
        self._end_without_permit()
        await self._gate.give_back_unused()

    def _end_without_permit(self) -> None:
        """A permit that could not be renewed may be another worker's by now: a run under it goes back."""
        for one in self._gate.without_right():
            log.warning("graph %s: task %s has lost its permit", one.work.graph_id, one.work.task_id)
            one.unpermitted = True
            self._slots.end(one)

    # --- ending runs

    def lose(self, one: ClaimedRun, reason: str, *, at_once: bool = False) -> None:
        """End a run that is not this worker's any more, if it has not ended by itself meanwhile."""
        if self._slots.end(one, at_once=at_once, lost=True):
            log.warning("graph %s: task %s is lost: %s", one.work.graph_id, one.work.task_id, reason)

    def cancel(self, one: ClaimedRun, reason: str) -> None:
        """End a run whose task is to be cancelled; its end is reported then."""
        if one.cancelled:
            return  # it has been asked to end, and takes its time
        one.cancelled = reason
        if self._slots.end(one):
            log.info("graph %s: task %s is cancelled", one.work.graph_id, one.work.task_id)

    def stop(self, graph_id: str, stops: Sequence[Stop]) -> None:
        """Runs were cancelled by this very process, and some may be ours: see Listeners.stop."""
        wanted = {stop.claim: stop for stop in stops}
        for one in self._slots.claimed:
            stop = wanted.get(one.work.claim)
            if stop is None or one.work.graph_id != graph_id:
                continue
            if stop.at_once:
                self.lose(one, stop.reason, at_once=True)
            else:
                self.cancel(one, stop.reason)
