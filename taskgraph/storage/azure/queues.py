"""Queues over Azure Queue Storage: what is checked, what may be asked again, and what refusals mean.

Messages are plain text, not base64, and never expire (P21).
"""

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from azure.core.exceptions import HttpResponseError

from taskgraph.model.errors import StaleDelivery, StorageError, TooLarge
from taskgraph.storage import checks
from taskgraph.storage.azure.calls import Caller, Repeat, code_of, in_parallel
from taskgraph.storage.azure.queue_requests import QueueCalls
from taskgraph.storage.queues import Delivery

_T = TypeVar("_T")

_STALE: Final = frozenset({"MessageNotFound", "PopReceiptMismatch", "QueueNotFound"})
_BEING_DELETED: Final = frozenset({"QueueBeingDeleted", "QueueDisabled"})
_TOO_LARGE: Final = frozenset({"RequestBodyTooLarge", "MessageTooLarge"})


class AzureQueues:
    """The service's times are whole seconds: they are rounded up."""

    def __init__(self, caller: Caller, calls: QueueCalls) -> None:
        self._caller = caller
        self._calls = calls

    async def send(self, queue: str, bodies: Sequence[str], *, delay_seconds: float = 0) -> None:
        """Repeated when the answer is lost: a duplicate is allowed, a lost message is not."""
        checks.check_send(queue, bodies, delay_seconds)
        if not bodies:
            return
        delay = math.ceil(delay_seconds)

        async def one(body: str) -> None:
            await self._call(queue, lambda: self._calls.send(queue, body, delay), Repeat.ALWAYS)

        await in_parallel(one, bodies)

    async def receive(self, queue: str, *, count: int = 1, lease_seconds: float) -> list[Delivery]:
        """Not repeated when the answer is lost: its messages come again when their lease ends."""
        checks.check_receive(queue, count, lease_seconds)
        lease = max(1, math.ceil(lease_seconds))
        return await self._call(queue, lambda: self._calls.receive(queue, count, lease), Repeat.UNSENT)

    async def renew(self, delivery: Delivery, *, lease_seconds: float) -> Delivery:
        """When the answer is lost, the lease is too: the new receipt went with it."""
        checks.check_renew(lease_seconds)
        queue, lease = delivery.queue, math.ceil(lease_seconds)
        try:
            receipt = await self._caller.call(
                lambda: self._calls.renew(queue, delivery.id, delivery.receipt, lease), Repeat.UNSENT
            )
        except HttpResponseError as error:
            raise self._of_delivery(error, delivery) from error
        return replace(delivery, receipt=receipt)

    async def delete(self, delivery: Delivery) -> None:
        tries = 0

        async def once() -> None:
            nonlocal tries
            tries += 1
            await self._calls.delete(delivery.queue, delivery.id, delivery.receipt)

        try:
            await self._caller.call(once, Repeat.ALWAYS)
        except HttpResponseError as error:
            if tries > 1 and code_of(error) == "MessageNotFound":
                return  # a try whose answer was lost has done it
            raise self._of_delivery(error, delivery) from error

    async def count(self, queue: str) -> int:
        checks.check_queue_name(queue)
        try:
            return await self._caller.call(lambda: self._calls.count(queue), Repeat.ALWAYS)
        except HttpResponseError as error:
            if code_of(error) == "QueueNotFound":
                return 0
            raise self._error_for(error, queue) from error

    async def _call(self, queue: str, work: Callable[[], Awaitable[_T]], repeat: Repeat) -> _T:
        async def create() -> None:
            await self._caller.create(lambda: self._calls.create(queue), "QueueAlreadyExists")

        try:
            return await self._caller.call(work, repeat, missing=("QueueNotFound",), make=create)
        except HttpResponseError as error:
            raise self._error_for(error, queue) from error

    def _of_delivery(self, error: HttpResponseError, delivery: Delivery) -> StorageError:
        if code_of(error) in _STALE:
            return StaleDelivery(f"message {delivery.id} of {delivery.queue} is in other hands now, or deleted")
        return self._error_for(error, delivery.queue)

    def _error_for(self, error: HttpResponseError, queue: str) -> StorageError:
        code = code_of(error)
        if code in _BEING_DELETED:
            return self._caller.unavailable(error)
        if error.status_code == 413 or code in _TOO_LARGE:
            return TooLarge(f"a message for queue {queue}: the service answers {error.status_code} {code}")
        return self._caller.refused(error)
