"""Time, chance and fresh identifiers come from here alone, so that a simulator can drive the same coroutines."""

import asyncio
import os
import random
import secrets
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, Protocol

from taskgraph.model.ids import slugids_from

_DRAWN_AT_ONCE: Final = 16
_drawn: list[str] = []  # fresh ids, which takes a fifth of the time of one at a time
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drawn.clear)  # each id is one process's own


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

    monotonic = staticmethod(time.monotonic)  # as it is: it is asked several times for each task

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def new_id(self) -> str:
        try:
            return _drawn.pop()
        except IndexError:
            fresh, *others = self.new_ids(_DRAWN_AT_ONCE)
            _drawn.extend(others)
            return fresh

    def new_ids(self, count: int) -> list[str]:
        drawn = secrets.token_bytes(16 * count)
        return slugids_from([drawn[place : place + 16] for place in range(0, 16 * count, 16)])

    def jitter(self) -> float:
        return random.random()
