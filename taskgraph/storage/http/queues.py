"""Queues over HTTP: how full they are, and no more."""

from collections.abc import Sequence

from taskgraph.storage import checks
from taskgraph.storage.http.calls import Server, path_of
from taskgraph.storage.http.refusal import only_the_server
from taskgraph.storage.queues import Delivery


class HttpQueues:
    """prefix: with which the names of queues begin here; a server puts its own in its place."""

    def __init__(self, server: Server, prefix: str) -> None:
        self._server = server
        self._prefix = prefix

    async def count(self, queue: str) -> int:
        checks.check_queue_name(queue)
        answer = await self._server.get(path_of("queues", queue.removeprefix(f"{self._prefix}-")))
        return int(answer["messages"])

    async def send(self, queue: str, bodies: Sequence[str], *, delay_seconds: float = 0) -> None:
        raise only_the_server(self._server.address)

    async def receive(self, queue: str, *, count: int = 1, lease_seconds: float) -> list[Delivery]:
        raise only_the_server(self._server.address)

    async def renew(self, delivery: Delivery, *, lease_seconds: float) -> Delivery:
        raise only_the_server(self._server.address)

    async def delete(self, delivery: Delivery) -> None:
        raise only_the_server(self._server.address)
