"""The work messages that a worker has in hand.

A message is kept leased until every run that came by it has been reported, and is then deleted; or it is given back
when its tasks could not be taken.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Final

from taskgraph.engine.poison import NEWER_VERSION_SECONDS, release
from taskgraph.model import limits
from taskgraph.model.errors import Conflict, StaleDelivery, StorageError, StorageUnavailable, trail
from taskgraph.protocol.rows import NewerSchema
from taskgraph.worker.context import WorkerContext
from taskgraph.worker.values import ClaimedRun, WorkMessage, ids_of

log = logging.getLogger("taskgraph.worker")

CALLS_AT_ONCE: Final = 16
"""Work messages, each by a call of its own."""

_RELEASE_SECONDS: Final = 5.0  # until a message comes back whose tasks could not be claimed, longer each time
_RELEASE_SECONDS_MAX: Final = 60.0


class WorkMessages:
    """Messages whose runs have not all been reported."""

    def __init__(self, context: WorkerContext) -> None:
        self._context = context
        self._in_hand: set[WorkMessage] = set()

    def keep(self, source: WorkMessage) -> None:
        """Renew a message from now on, unless it has been given up."""
        if not source.given_up:
            self._in_hand.add(source)

    @contextlib.asynccontextmanager
    async def guard(self, messages: Sequence[WorkMessage]) -> AsyncIterator[None]:
        """Whatever goes wrong with messages must not cost the worker."""
        try:
            yield
        except (Conflict, StorageUnavailable) as error:
            # The lease on the rows decides from here.
            log.warning("work messages %s: %s", ids_of(messages), error)
            await self.release_soon(messages)
        except NewerSchema as error:
            log.warning("work messages %s are left to a newer version: %s", ids_of(messages), error)
            for source in messages:
                self.record(source, "newer-version")
                with contextlib.suppress(StorageError):  # then it stays leased, and comes back
                    await release(self._context.handlers.queues, source.delivery, NEWER_VERSION_SECONDS)
        except Exception as error:
            log.error("work messages %s: failed: %s", ids_of(messages), trail(error))
            for source in messages:
                with contextlib.suppress(StorageError):  # then it stays leased, and comes back
                    await self.fail(source, f"{type(error).__name__}: {error}")
                self.record(source, "failed")

    async def fail(self, source: WorkMessage, why: str) -> None:
        """Count a failed try; after some the message is set aside. Raises StorageError."""
        aside = await self._context.poison.failed(source.delivery, why)
        self.record(source, "poison" if aside else "failed")

    async def release_soon(self, messages: Iterable[WorkMessage | None]) -> None:
        """Keep messages no longer: they come back soon, to any worker. A busy store is asked less and less often."""
        for source in dict.fromkeys(messages):
            if source is not None and not source.given_up:
                source.given_up = True
                self._in_hand.discard(source)
                self.record(source, "released")
                seconds = min(_RELEASE_SECONDS * source.delivery.dequeue_count, _RELEASE_SECONDS_MAX)
                with contextlib.suppress(StorageError):  # then it stays leased, and comes back
                    await release(self._context.handlers.queues, source.delivery, seconds)

    async def let_go(self, one: ClaimedRun) -> None:
        """A run has been reported: its message may go, if it was the last."""
        if one.source is not None:
            source, one.source = one.source, None
            await self.release(source)

    async def let_all_go(self, ones: Sequence[ClaimedRun]) -> None:
        """Runs have been reported: what `let_go` does for each, many at once."""
        if len(ones) == 1:
            await self.let_go(ones[0])
            return
        for start in range(0, len(ones), CALLS_AT_ONCE):
            await asyncio.gather(*map(self.let_go, ones[start : start + CALLS_AT_ONCE]))

    async def release(self, source: WorkMessage) -> None:
        """Something that a message was kept for is done: it may go, if that was the last."""
        source.open -= 1
        if source.open or source.given_up:
            return
        self._in_hand.discard(source)
        self.record(source, "handled" if source.busy_until is None else "released")
        delivery, queues = source.delivery, self._context.handlers.queues
        if source.busy_until is not None:
            seconds = (source.busy_until - self._context.clock.now()).total_seconds() + 1.0
            await release(queues, delivery, min(max(1.0, seconds), limits.DELAY_SECONDS_MAX))
            return
        try:
            await queues.delete(delivery)
        except StaleDelivery:
            log.info("work message %s had been taken over when it was acknowledged", delivery.id)
        except StorageError as error:
            log.info("work message %s comes back: %s", delivery.id, error)

    def record(self, source: WorkMessage, outcome: str) -> None:
        """Measure what became of a work message, once."""
        origin, source.origin = source.origin, None
        if origin is not None:
            origin.outcome = outcome
            self._context.handlers.telemetry.message(origin, self._context.clock.monotonic() - origin.began)

    async def renew(self) -> None:
        """Renew the leases of all messages, many at once."""
        messages = list(self._in_hand)
        for start in range(0, len(messages), CALLS_AT_ONCE):
            await asyncio.gather(*map(self._renew, messages[start : start + CALLS_AT_ONCE]))

    async def _renew(self, source: WorkMessage) -> None:
        context = self._context
        try:
            source.delivery = await context.handlers.queues.renew(source.delivery, lease_seconds=context.lease_seconds)
        except StaleDelivery:
            log.info("work message %s was taken over; the lease on the rows holds", source.delivery.id)
        except StorageError as error:  # the next beat tries again, and the others are renewed meanwhile
            log.warning("work message %s could not be renewed: %s", source.delivery.id, error)
