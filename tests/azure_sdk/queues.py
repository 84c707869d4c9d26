"""Requests to Azure Queue Storage through azure-storage-queue.

The reference beside `queue_requests`, held to the same promises by the same tests. It never repeats a request.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Final

from azure.storage.queue.aio import QueueClient

from taskgraph.storage.queues import Delivery

_FOREVER: Final = -1


class SdkQueueCalls:
    """See QueueCalls."""

    def __init__(self, make_client: Callable[[str], QueueClient]) -> None:
        self._make_client = make_client
        self._clients: dict[str, QueueClient] = {}

    async def send(self, queue: str, body: str, delay_seconds: int) -> None:
        """See QueueCalls."""
        await self._open(queue).send_message(body, visibility_timeout=delay_seconds, time_to_live=_FOREVER)

    async def receive(self, queue: str, count: int, lease_seconds: int) -> list[Delivery]:
        """See QueueCalls."""
        pages = self._open(queue).receive_messages(messages_per_page=count, visibility_timeout=lease_seconds).by_page()
        async for messages in pages:
            return [
                Delivery(
                    queue,
                    m.id,
                    m.pop_receipt or "",
                    m.content or "",
                    int(m.dequeue_count or 1),
                    _written(m.inserted_on),
                    _written(m.expires_on),
                )
                async for m in messages
            ]
        return []

    async def renew(self, queue: str, message_id: str, receipt: str, lease_seconds: int) -> str:
        """See QueueCalls."""
        answer = await self._open(queue).update_message(message_id, receipt, visibility_timeout=lease_seconds)
        return answer.pop_receipt or ""

    async def delete(self, queue: str, message_id: str, receipt: str) -> None:
        """See QueueCalls."""
        await self._open(queue).delete_message(message_id, receipt)

    async def count(self, queue: str) -> int:
        """See QueueCalls."""
        properties = await self._open(queue).get_queue_properties()
        return int(properties.approximate_message_count or 0)

    async def create(self, queue: str) -> None:
        """See QueueCalls."""
        await self._open(queue).create_queue()

    def _open(self, queue: str) -> QueueClient:
        client = self._clients.get(queue)
        if client is None:
            client = self._clients[queue] = self._make_client(queue)
        return client


def _written(time: datetime | None) -> str:
    """A time as the service writes it."""
    return format_datetime(time.astimezone(UTC), usegmt=True) if time else ""
