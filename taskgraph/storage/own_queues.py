"""Queues of a store, and beside them those that one process keeps for itself, in memory.

`run` sends the tasks of its graph to such queues, for its own workers. What they hold is lost with the process; the
sweep, or the next `run`, sends it again.
"""

from collections.abc import Sequence

from taskgraph.model.names import OWN
from taskgraph.storage.queues import Delivery, Queues


class WithOwn:
    """The queues of a store, with those whose names begin with `OWN` kept elsewhere."""

    def __init__(self, shared: Queues, own: Queues) -> None:
        self._shared = shared
        self._own = own

    def _of(self, queue: str) -> Queues:
        return self._own if queue.startswith(OWN) else self._shared

    async def send(self, queue: str, bodies: Sequence[str], *, delay_seconds: float = 0) -> None:
        await self._of(queue).send(queue, bodies, delay_seconds=delay_seconds)

    async def receive(self, queue: str, *, count: int = 1, lease_seconds: float) -> list[Delivery]:
        return await self._of(queue).receive(queue, count=count, lease_seconds=lease_seconds)

    async def renew(self, delivery: Delivery, *, lease_seconds: float) -> Delivery:
        return await self._of(delivery.queue).renew(delivery, lease_seconds=lease_seconds)

    async def delete(self, delivery: Delivery) -> None:
        await self._of(delivery.queue).delete(delivery)

    async def count(self, queue: str) -> int:
        return await self._of(queue).count(queue)
