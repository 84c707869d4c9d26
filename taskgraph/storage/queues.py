"""Port: at-least-once, unordered queues with leases.

Queues come into being when first used, and again after they were deleted. Messages never expire (P21).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message in hand, until its lease ends or it is deleted.

    receipt: proof of this lease; a renewal gives a new one. dequeue_count: 1 at the first. inserted, expires: as Azure
    writes them (RFC 1123); empty where the store keeps no such times. Nothing rests on them.
    """

    queue: str
    id: str
    receipt: str
    body: str
    dequeue_count: int
    inserted: str = ""
    expires: str = ""


@dataclass(frozen=True, slots=True)
class Hidden:
    """Messages of a queue that a clock which was ahead has hidden.

    until: the latest of them. seconds: the longest that one was to be hidden.
    """

    queue: str
    count: int
    until: datetime
    seconds: float


class HiddenMessages(Protocol):
    """Of queues that go by the clocks of the processes that use them: messages hidden by a clock that is off."""

    async def hidden_ahead(self) -> list[Hidden]:
        """Raises StorageUnavailable."""

    async def set_right(self, queue: str) -> int:
        """Hide those of a queue for their length from now; gives how many. Raises StorageUnavailable."""


class Queues(Protocol):
    """Raises StorageUnavailable from every call; see each for the rest."""

    async def send(self, queue: str, bodies: Sequence[str], *, delay_seconds: float = 0) -> None:
        """Put messages, in any number; hidden for delay_seconds (0..7 days). May put one twice.

        Raises TooLarge for a body over limits.MESSAGE_BYTES_MAX (UTF-8), before anything is sent.
        """

    async def receive(self, queue: str, *, count: int = 1, lease_seconds: float) -> list[Delivery]:
        """Lease up to `count` (1..32) messages; an empty list when there is none now. Does not wait."""

    async def renew(self, delivery: Delivery, *, lease_seconds: float) -> Delivery:
        """Lease it for so long from now (0 gives it back at once). Raises StaleDelivery."""

    async def delete(self, delivery: Delivery) -> None:
        """Acknowledge. Raises StaleDelivery when another process has leased or deleted it since."""

    async def count(self, queue: str) -> int:
        """About how many messages the queue holds, hidden ones included; 0 for a queue that does not exist."""
