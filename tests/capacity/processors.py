"""A processor of its own for each process of handlers, in virtual time: what they ask of the store takes time of it.

What this room is for: to see whether handlers add up. Without it every process is infinitely fast, and one is as good
as four. It takes so long for each row and each message that a process reads, writes, sends, receives or deletes.
"""

from collections.abc import Sequence
from typing import Any

from taskgraph.model.clock import Clock
from taskgraph.storage.queues import Delivery
from taskgraph.storage.tables import Change, Page, Row


class Processor:
    """Does one thing after the other. row_seconds: for each row or message. used: seconds so far."""

    def __init__(self, clock: Clock, row_seconds: float) -> None:
        self.used = 0.0
        self._clock = clock
        self._row_seconds = row_seconds
        self._free_at = 0.0

    async def work(self, rows: int) -> None:
        """Have it do the work of so many rows, after all that came before."""
        seconds, now = rows * self._row_seconds, self._clock.monotonic()
        self.used += seconds
        self._free_at = max(now, self._free_at) + seconds
        await self._clock.sleep(self._free_at - now)


class WorkedTables:
    """Port Tables, of a process with a processor."""

    def __init__(self, tables: Any, processor: Processor) -> None:
        self._tables = tables
        self._processor = processor

    async def get(self, partition: str, keys: Sequence[str]) -> list[Row | None]:
        """See Tables."""
        await self._processor.work(len(keys))
        found: list[Row | None] = await self._tables.get(partition, keys)
        return found

    async def query(self, *given: Any, **more: Any) -> Page:
        """See Tables."""
        page: Page = await self._tables.query(*given, **more)
        await self._processor.work(max(1, len(page.rows)))
        return page

    async def commit(self, partition: str, changes: Sequence[Change]) -> list[str | None]:
        """See Tables."""
        await self._processor.work(len(changes))
        etags: list[str | None] = await self._tables.commit(partition, changes)
        return etags


class WorkedQueues:
    """Port Queues, of a process with a processor."""

    def __init__(self, queues: Any, processor: Processor) -> None:
        self._queues = queues
        self._processor = processor

    async def send(self, queue: str, bodies: Sequence[str], *, delay_seconds: float = 0) -> None:
        """See Queues."""
        await self._processor.work(len(bodies))
        await self._queues.send(queue, bodies, delay_seconds=delay_seconds)

    async def receive(self, queue: str, *, count: int = 1, lease_seconds: float) -> list[Delivery]:
        """See Queues."""
        found: list[Delivery] = await self._queues.receive(queue, count=count, lease_seconds=lease_seconds)
        await self._processor.work(max(1, len(found)))
        return found

    async def renew(self, delivery: Delivery, *, lease_seconds: float) -> Delivery:
        """See Queues."""
        await self._processor.work(1)
        renewed: Delivery = await self._queues.renew(delivery, lease_seconds=lease_seconds)
        return renewed

    async def delete(self, delivery: Delivery) -> None:
        """See Queues."""
        await self._processor.work(1)
        await self._queues.delete(delivery)

    async def count(self, queue: str) -> int:
        """See Queues."""
        await self._processor.work(1)
        return int(await self._queues.count(queue))
