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
from taskgraph.worker.values import Claimed, Held, ids_of

log = logging.getLogger("taskgraph.worker")

RENEWED_AT_ONCE: Final = 16
"""Work messages, each by a call of its own."""

_FORSAKEN_SECONDS: Final = 5.0  # until a message comes back whose tasks could not be claimed


class WorkMessages:
    """Messages whose runs have not all been reported."""

    def __init__(self, context: WorkerContext) -> None:
        self._context = context
        self._held: set[Held] = set()

    def keep(self, held: Held) -> None:
        """Renew a message from now on, unless it has been given up."""
        if not held.forsaken:
            self._held.add(held)

    @contextlib.asynccontextmanager
    async def guard(self, messages: Sequence[Held]) -> AsyncIterator[None]:
        """Whatever goes wrong with messages must not cost the worker."""
        try:
            yield
        except (Conflict, StorageUnavailable) as error:
            # The lease on the rows decides from here.
            log.warning("work messages %s: %s", ids_of(messages), error)
            await self.forsake(messages)
        except NewerSchema as error:
            log.warning("work messages %s are left to a newer version: %s", ids_of(messages), error)
            for held in messages:
                self.record(held, "newer-version")
                with contextlib.suppress(StorageError):  # then it stays leased, and comes back
                    await release(self._context.handlers.queues, held.delivery, NEWER_VERSION_SECONDS)
        except Exception as error:
            log.error("work messages %s: failed: %s", ids_of(messages), trail(error))
            for held in messages:
                with contextlib.suppress(StorageError):  # then it stays leased, and comes back
                    await self.fail(held, f"{type(error).__name__}: {error}")
                self.record(held, "failed")

    async def fail(self, held: Held, why: str) -> None:
        """Count a failed try; after some the message is set aside. Raises StorageError."""
        aside = await self._context.poison.failed(held.delivery, why)
        self.record(held, "poison" if aside else "failed")

    async def forsake(self, messages: Iterable[Held | None]) -> None:
        """Keep messages no longer: they come back soon, to any worker."""
        for held in dict.fromkeys(messages):
            if held is not None and not held.forsaken:
                held.forsaken = True
                self._held.discard(held)
                self.record(held, "released")
                with contextlib.suppress(StorageError):  # then it stays leased, and comes back
                    await release(self._context.handlers.queues, held.delivery, _FORSAKEN_SECONDS)

    async def let_go(self, one: Claimed) -> None:
        """A run has been reported: its message may go, if it was the last."""
        if one.held is not None:
            held, one.held = one.held, None
            await self.release(held)

    async def release(self, held: Held) -> None:
        """Something that a message was kept for is done: it may go, if that was the last."""
        held.open -= 1
        if held.open or held.forsaken:
            return
        self._held.discard(held)
        self.record(held, "handled" if held.busy_until is None else "released")
        delivery, queues = held.delivery, self._context.handlers.queues
        if held.busy_until is not None:
            seconds = (held.busy_until - self._context.clock.now()).total_seconds() + 1.0
            await release(queues, delivery, min(max(1.0, seconds), limits.DELAY_SECONDS_MAX))
            return
        try:
            await queues.delete(delivery)
        except StaleDelivery:
            log.info("work message %s had been taken over when it was acknowledged", delivery.id)
        except StorageError as error:
            log.info("work message %s comes back: %s", delivery.id, error)

    def record(self, held: Held, outcome: str) -> None:
        """Measure what became of a work message, once."""
        origin, held.origin = held.origin, None
        if origin is not None:
            origin.outcome = outcome
            self._context.handlers.telemetry.message(origin, self._context.clock.monotonic() - origin.began)

    async def renew(self) -> None:
        """Renew the leases of all messages, many at once."""
        messages = list(self._held)
        for start in range(0, len(messages), RENEWED_AT_ONCE):
            await asyncio.gather(*map(self._renew, messages[start : start + RENEWED_AT_ONCE]))

    async def _renew(self, held: Held) -> None:
        context = self._context
        try:
            held.delivery = await context.handlers.queues.renew(held.delivery, lease_seconds=context.lease_seconds)
        except StaleDelivery:
            log.info("work message %s was taken over; the lease on the rows holds", held.delivery.id)
        except StorageError as error:  # the next beat tries again, and the others are renewed meanwhile
            log.warning("work message %s could not be renewed: %s", held.delivery.id, error)
