"""Time, chance and fresh identifiers come from here alone, so that a simulator can drive the same coroutines."""

import asyncio
import random
import secrets
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Protocol

from taskgraph.model.ids import slugid_from, slugids_from


class Clock(Protocol):
    def now(self) -> datetime:
        """The time of day, aware, in UTC."""

    def monotonic(self) -> float:
        """Seconds that only grow, for measuring."""

    async def sleep(self, seconds: float) -> None:
        """Let others go on for so long."""

    def new_id(self) -> str: ...

    def new_ids(self, count: int) -> Sequence[str]: ...

    def jitter(self) -> float:
        """A random number in [0, 1)."""


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def new_id(self) -> str:
        return slugid_from(secrets.token_bytes(16))

    def new_ids(self, count: int) -> list[str]:
        drawn = secrets.token_bytes(16 * count)
        return slugids_from([drawn[place : place + 16] for place in range(0, 16 * count, 16)])

    def jitter(self) -> float:
        return random.random()
