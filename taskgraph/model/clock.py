"""Time, chance and fresh identifiers come from here alone, so that a simulator can drive the same coroutines."""

import asyncio
import random
import secrets
import time
from datetime import UTC, datetime
from typing import Protocol

from taskgraph.model.ids import slugid_from


class Clock(Protocol):
    def now(self) -> datetime:
        """The time of day, aware, in UTC."""

    def monotonic(self) -> float:
        """Seconds that only grow, for measuring."""

    async def sleep(self, seconds: float) -> None:
        """Let others go on for so long."""

    def new_id(self) -> str: ...

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

    def jitter(self) -> float:
        return random.random()
