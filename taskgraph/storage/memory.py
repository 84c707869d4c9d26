"""The store in memory: tables, queues and logs of one process, for tests; queues also for what `run` keeps to itself.

No call of it ever waits, so a coroutine over it needs no event loop (`taskgraph.testing.drive`). Tests read and set
what it holds by its attributes.
"""

import bisect
import heapq
import itertools
import math
from collections.abc import Sequence
from datetime import UTC, datetime

from taskgraph.model.clock import Clock, SystemClock
from taskgraph.model.columns import Columns, Value
from taskgraph.model.errors import Conflict, StaleDelivery
from taskgraph.storage import checks
from taskgraph.storage.logs import LogFile, LogPage, Place
from taskgraph.storage.queues import Delivery
from taskgraph.storage.tables import Change, Delete, Insert, Merge, Page, Range, Replace, Row


def _kept(columns: Columns) -> dict[str, Value]:
    return {
        name: value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo is not UTC else value
        for name, value in columns.items()
    }


class MemoryTables:
    """One table. partitions: its rows, by partition and key. commits: so many have been made."""

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
        checks.check_get(partition, keys)
        rows = self.partitions.get(partition, {})
        return [rows.get(key) for key in keys]

    async def query(self, partition: str, rows: Range, *, limit: int = 1000, continuation: str | None = None) -> Page:
        checks.check_query(partition, rows, limit)
        keys = self._in_order(partition)
        end = bisect.bisect_left(keys, rows.end) if rows.end else None
        of_partition = self.partitions.get(partition, {})
        ((name, texts), *more) = rows.where.items() or [("", ())]
        found: list[Row] = []
        for key in keys[bisect.bisect_left(keys, continuation or rows.start) : end]:
            row = of_partition[key]
            if name and row.columns.get(name) not in texts:
                continue
            if more and any(row.columns.get(name) not in texts for name, texts in more):
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
            etag = f"{next(self._etags)}"
            match change:
                case Insert(key, columns):
                    rows[key] = Row(key, etag, _kept(columns))
                    bisect.insort(keys, key)
                case Merge(key, _, columns):
                    rows[key] = Row(key, etag, {**rows[key].columns, **_kept(columns)})
                case Replace(key, _, columns):
                    rows[key] = Row(key, etag, _kept(columns))
                case Delete(key):
                    del rows[key]
                    keys.remove(key)
            etags.append(None if isinstance(change, Delete) else etag)
        return etags


class MemoryQueues:
    """All queues. clock: leases and delays go by its steady time."""

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
        checks.check_receive(queue, count, lease_seconds)
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
        checks.check_renew(lease_seconds)
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


class MemoryLogs:
    def __init__(self) -> None:
        self._files: dict[str, dict[tuple[str, str, str], bytearray]] = {}  # graph -> task, run, name -> what is in it

    def url(self, graph_id: str, task_id: str, run: int, name: str = "run.log") -> str:
        checks.check_log(graph_id, task_id, run, name)
        return f"memory:///{graph_id}/{task_id}/{run}/{name}"

    async def append(self, graph_id: str, task_id: str, run: int, data: bytes, name: str = "run.log") -> None:
        checks.check_log(graph_id, task_id, run, name)
        self._files.setdefault(graph_id, {}).setdefault((task_id, str(run), name), bytearray()).extend(data)

    async def append_at(self, graph_id: str, task_id: str, run: int, offset: int, data: bytes, name: str) -> bool:
        checks.check_log(graph_id, task_id, run, name)
        fits = len(self._files.get(graph_id, {}).get((task_id, str(run), name), b"")) == offset
        if fits:
            await self.append(graph_id, task_id, run, data, name)
        return fits

    async def read(
        self, graph_id: str, task_id: str, run: int, *, offset: int = 0, limit: int = 1 << 20, name: str = "run.log"
    ) -> bytes | None:
        checks.check_log_read(graph_id, task_id, run, name, offset, limit)
        found = self._files.get(graph_id, {}).get((task_id, str(run), name))
        return None if found is None else bytes(found[offset : offset + limit])

    async def copy(self, source: Place, target: Place, name: str) -> bool:
        checks.check_log(*source, name)
        checks.check_log(*target, name)
        (graph_id, task_id, run), (other_id, other_task, other_run) = source, target
        found = self._files.get(graph_id, {}).get((task_id, str(run), name))
        if found is not None:
            self._files.setdefault(other_id, {}).setdefault((other_task, str(other_run), name), bytearray(found))
        return found is not None

    async def files(self, graph_id: str, *, continuation: str | None = None) -> LogPage:
        checks.check_logs_of(graph_id)
        files = sorted(self._files.get(graph_id, {}).items())
        return LogPage([LogFile(task, int(run), name, len(data)) for (task, run, name), data in files])

    async def remove(self, graph_id: str) -> int:
        checks.check_logs_of(graph_id)
        return len(self._files.pop(graph_id, {}))


class MemoryStore:
    """A store of this process alone. clock: the machine's if None; the app that opens the store goes by it, too."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock = clock or SystemClock()
        self._tables: dict[str, MemoryTables] = {}
        self._queues = MemoryQueues(self.clock)
        self._logs = MemoryLogs()

    def tables(self, name: str) -> MemoryTables:
        checks.check_table_name(name)
        return self._tables.setdefault(name, MemoryTables())

    def queues(self) -> MemoryQueues:
        return self._queues

    def logs(self) -> MemoryLogs:
        return self._logs

    async def close(self) -> None:
        """Nothing: what it holds stays, and can be opened again."""
