"""For tests of programs that use taskgraph: a store in memory, and clocks that a test moves.

Graphs run in a test without a file, a network or a wait; docs/how-to/testing.md shows how.
"""

import asyncio
import hashlib
import heapq
import itertools
from collections.abc import Coroutine, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from taskgraph.model.ids import slugid_from
from taskgraph.storage.memory import MemoryLogs, MemoryQueues, MemoryStore, MemoryTables

__all__ = ["HurriedClock", "ManualClock", "MemoryLogs", "MemoryQueues", "MemoryStore", "MemoryTables", "drive"]

T = TypeVar("T")


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never really waits, such as any over a MemoryStore, to its end, without an event loop."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    coroutine.close()
    raise AssertionError("the coroutine waited for something")


class ManualClock:
    """A clock that stands still until a test moves it: ids are counted from `seed`, and there is no chance."""

    def __init__(self, start: datetime = datetime(2024, 1, 1, tzinfo=UTC), seed: str = "") -> None:
        self._start = start
        self._seconds = 0.0
        self._seed = seed
        self._ids = itertools.count()
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._seconds)

    def monotonic(self) -> float:
        return self._seconds

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock has been advanced so far; no time at all is a turn of the loop."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        waiter = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._seconds + seconds, next(self._order), waiter))
        await waiter

    def new_id(self) -> str:
        return slugid_from(hashlib.sha256(f"{self._seed}{next(self._ids)}".encode()).digest())

    def new_ids(self, count: int) -> Sequence[str]:
        return [self.new_id() for _ in range(count)]

    def jitter(self) -> float:
        return 0.5

    def advance(self, seconds: float) -> None:
        """Let so much time pass, and wake the sleepers whose time has come."""
        self._seconds += seconds
        while self._sleepers and self._sleepers[0][0] <= self._seconds:
            _, _, waiter = heapq.heappop(self._sleepers)
            if not waiter.done():
                waiter.set_result(None)


class HurriedClock(ManualClock):
    """A clock on which a sleeper moves the time itself: for retries and their budgets."""

    async def sleep(self, seconds: float) -> None:
        self.advance(seconds)
        await asyncio.sleep(0)
