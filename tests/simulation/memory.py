"""An in-memory model of tables and queues, for tests that drive the protocol without a store.

It keeps the promises of the ports exactly (tests/contract runs over it too, where that is worth it), under an injected
clock, and never waits: a coroutine over it can be driven by `drive`, without an event loop.
"""

import bisect
import heapq
import itertools
import math
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from taskgraph.model.clock import Clock
from taskgraph.model.errors import Conflict, StaleDelivery
from taskgraph.storage import checks
from taskgraph.storage.queues import Delivery
from taskgraph.storage.tables import Change, Delete, Insert, Merge, Page, Range, Replace, Row

T = TypeVar("T")


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never really waits."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    coroutine.close()
    raise AssertionError("the coroutine waited for something")


class MemoryTables:
    """One table."""

    def __init__(self) -> None:
        self.partitions: dict[str, dict[str, Row]] = {}
        self._keys: dict[str, list[str]] = {}  # of each partition, in order
        self._etags = itertools.count(1)
        self.commits = 0

    def _in_order(self, partition: str) -> list[str]:
        keys = self._keys.setdefault(partition, [])
        rows = self.partitions.get(partition, {})
        if len(keys) != len(rows):  # a test has put rows in by itself
            keys[:] = sorted(rows)
        return keys

    async def get(self, partition: str, keys: Sequence[str]) -> list[Row | None]:
        rows = self.partitions.get(partition, {})
        return [rows.get(key) for key in keys]

    async def query(self, partition: str, rows: Range, *, limit: int = 1000, continuation: str | None = None) -> Page:
        keys = self._in_order(partition)
        found: list[Row] = []
        for key in itertools.islice(keys, bisect.bisect_left(keys, continuation or rows.start), None):
            if rows.end and key >= rows.end:
                break
            row = self.partitions[partition][key]
            if any(row.columns.get(name) not in texts for name, texts in rows.where.items()):
                continue
            if len(found) == limit:
                return Page(found, key)
            columns = row.columns
            if rows.select is not None:
                columns = {name: columns[name] for name in rows.select if name in columns}
            found.append(Row(key, row.etag, columns))
        return Page(found)

    async def commit(self, partition: str, changes: Sequence[Change]) -> list[str | None]:
        checks.check_commit(partition, changes)
        rows = self.partitions.setdefault(partition, {})
        keys = self._in_order(partition)
        for index, change in enumerate(changes):
            row = rows.get(change.key)
            if isinstance(change, Insert):
                if row is not None:
                    raise Conflict(f"{change.key} exists", index)
            elif row is None or row.etag != change.etag:
                raise Conflict(f"{change.key} changed", index)
        self.commits += 1
        etags: list[str | None] = []
        for change in changes:
            etag = f"e{next(self._etags)}"
            match change:
                case Insert(key, columns):
                    rows[key] = Row(key, etag, dict(columns))
                    bisect.insort(keys, key)
                case Merge(key, _, columns):
                    rows[key] = Row(key, etag, {**rows[key].columns, **columns})
                case Replace(key, _, columns):
                    rows[key] = Row(key, etag, dict(columns))
                case Delete(key):
                    del rows[key]
                    keys.remove(key)
            etags.append(None if isinstance(change, Delete) else etag)
        return etags

    async def close(self) -> None:
        pass


class MemoryQueues:
    """All queues."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ids = itertools.count(1)
        self.messages: dict[str, dict[str, tuple[float, int, str, str]]] = {}  # id -> visible at, count, receipt, body
        self.changes = 0  # grows with each call that changed something

    async def send(self, queue: str, bodies: Sequence[str], *, delay_seconds: float = 0) -> None:
        checks.check_send(queue, bodies, delay_seconds)
        self.changes += 1
        for body in bodies:
            key = f"{next(self._ids):08d}"
            self.messages.setdefault(queue, {})[key] = (self._clock.monotonic() + delay_seconds, 0, "", body)

    async def receive(self, queue: str, *, count: int = 1, lease_seconds: float) -> list[Delivery]:
        now = self._clock.monotonic()
        held = self.messages.get(queue, {})
        found: list[Delivery] = []
        if not held:
            return found
        self.changes += 1
        for key in heapq.nsmallest(count, (key for key, message in held.items() if message[0] <= now)):
            _, taken, _, body = held[key]
            receipt = f"r{next(self._ids)}"
            held[key] = (now + lease_seconds, taken + 1, receipt, body)
            found.append(Delivery(queue, key, receipt, body, taken + 1))
        return found

    async def renew(self, delivery: Delivery, *, lease_seconds: float) -> Delivery:
        held = self.messages.get(delivery.queue, {})
        message = held.get(delivery.id)
        if message is None or message[2] != delivery.receipt:
            raise StaleDelivery(delivery.id)
        self.changes += 1
        receipt = f"r{next(self._ids)}"
        held[delivery.id] = (self._clock.monotonic() + lease_seconds, message[1], receipt, message[3])
        return Delivery(delivery.queue, delivery.id, receipt, delivery.body, delivery.dequeue_count)

    async def delete(self, delivery: Delivery) -> None:
        held = self.messages.get(delivery.queue, {})
        message = held.get(delivery.id)
        if message is None or message[2] != delivery.receipt:
            raise StaleDelivery(delivery.id)
        self.changes += 1
        del held[delivery.id]

    async def count(self, queue: str) -> int:
        return len(self.messages.get(queue, {}))

    def due_seconds(self, queue: str) -> float:
        """When the next message of a queue may be received, on the monotonic clock; infinite when it is empty."""
        return min((message[0] for message in self.messages.get(queue, {}).values()), default=math.inf)

    async def close(self) -> None:
        pass
