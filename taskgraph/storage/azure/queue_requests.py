"""Requests to Azure Queue Storage: the same bytes as the SDK's for a fraction of the work.

The bodies of messages have been checked: they hold nothing that XML changes.
"""

from typing import Final
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from azure.core.exceptions import DecodeError

from taskgraph.storage.azure.entities import quoted
from taskgraph.storage.azure.wire import Wire
from taskgraph.storage.queues import Delivery

_HEADERS: Final = {"Accept": "application/xml"}
_SEND_HEADERS: Final = {**_HEADERS, "Content-Type": "application/xml"}
_FOREVER: Final = ("messagettl", "-1")


class QueueCalls:
    """One request to the service each. Raises the SDK's errors, HttpResponseError for every refusal."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def send(self, queue: str, body: str, delay_seconds: int) -> None:
        text = (
            '<?xml version="1.0" encoding="utf-8"?>'
            f"<QueueMessage><MessageText>{escape(body)}</MessageText></QueueMessage>"
        )
        query = [("visibilitytimeout", str(delay_seconds)), _FOREVER]
        path = f"/{queue}/messages"
        await self._wire.ask("POST", path, (201,), query=query, headers=_SEND_HEADERS, body=text.encode("utf-8"))

    async def receive(self, queue: str, count: int, lease_seconds: int) -> list[Delivery]:
        query = [("numofmessages", str(count)), ("visibilitytimeout", str(lease_seconds))]
        answer = await self._wire.ask("GET", f"/{queue}/messages", (200,), query=query, headers=_HEADERS)
        try:
            messages = ElementTree.fromstring(answer.body)  # noqa: S314  # of the service, as the SDK reads it
            return [_delivery(queue, message) for message in messages]
        except (ElementTree.ParseError, ValueError, LookupError) as error:
            raise DecodeError("the answer is no list of messages") from error

    async def renew(self, queue: str, message_id: str, receipt: str, lease_seconds: int) -> str:
        """Gives the new receipt."""
        query = [("popreceipt", receipt), ("visibilitytimeout", str(lease_seconds))]
        answer = await self._wire.ask("PUT", _message(queue, message_id), (204,), query=query, headers=_HEADERS)
        return answer.headers.get("x-ms-popreceipt", "")

    async def delete(self, queue: str, message_id: str, receipt: str) -> None:
        query = [("popreceipt", receipt)]
        await self._wire.ask("DELETE", _message(queue, message_id), (204,), query=query, headers=_HEADERS)

    async def count(self, queue: str) -> int:
        query = [("comp", "metadata")]
        answer = await self._wire.ask("GET", f"/{queue}", (200,), query=query, headers=_HEADERS)
        return int(answer.headers.get("x-ms-approximate-messages-count") or 0)

    async def create(self, queue: str) -> None:
        await self._wire.ask("PUT", f"/{queue}", (201, 204), headers=_HEADERS)


def _message(queue: str, message_id: str) -> str:
    return f"/{queue}/messages/{quoted(message_id)}"


def _delivery(queue: str, message: ElementTree.Element) -> Delivery:
    parts = {part.tag: part.text or "" for part in message}
    return Delivery(
        queue,
        parts["MessageId"],
        parts["PopReceipt"],
        parts.get("MessageText", ""),
        int(parts.get("DequeueCount") or 1),
        parts.get("InsertionTime", ""),
        parts.get("ExpirationTime", ""),
    )
