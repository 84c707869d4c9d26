"""Counts at the ports: every call of a store that a process makes, by kind, with the rows and bytes that it writes.

What this room is for: `install` puts a counting wrapper around whatever the stores hand out, before anything is
opened, so that all parts of an installation go through it. It never changes an argument or an answer.

An operation is what Azure bills: a get is one for each key, a send one for each message, a commit one whatever the
number of its rows. Receives that gave nothing are `empty`, apart from the others. What adapters do on their own account
(making a table or a queue once, trying again) is not seen here.
"""

import inspect
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Any, Final

from taskgraph.model.errors import Conflict
from taskgraph.storage.sqlite.store import EmbeddedStore
from taskgraph.storage.tables import Delete, Page, Row

EMPTY: Final = "empty"
"""The kind of a receive that gave nothing."""

# Rooms that make a call only because others ask them to, and rooms that act on their own account.
_CARRIERS: Final = frozenset({"engine.commit", "storage.tables", "storage.signals.wakeup"})
_OWNERS: Final = frozenset(
    {
        "engine.consumer",
        "engine.sweep",
        "engine.submission",
        "engine.doctor",
        "interfaces.loops",
        "interfaces.client.client",
    }
)
_FIXED_BYTES: Final = 8  # of a number, a truth value or a time


class Counts:
    """What one process has asked of its store since `take` was called last."""

    def __init__(self, *, weigh: bool = False) -> None:
        # Also the bytes of every row, the kinds of rows, and who asks: dear enough to show in the fastest cells.
        self.weigh = weigh
        self._reset()

    def _reset(self) -> None:
        self.operations: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self.sums: Counter[str] = Counter()

    def add(self, kind: str, operations: int = 1) -> None:
        """One call, so many operations."""
        self.calls[kind] += 1
        self.operations[kind] += operations
        if self.weigh:
            self.sums[f"place:{place()} {kind}"] += operations

    def take(self) -> dict[str, dict[str, int]]:
        """What was counted, as plain values; counting begins anew."""
        taken = {"operations": dict(self.operations), "calls": dict(self.calls), "sums": dict(self.sums)}
        self._reset()
        return taken


def columns_bytes(columns: Mapping[str, Any]) -> int:
    """Bytes of columns: names, UTF-8 texts, and eight for anything else."""
    total = 0
    for name, value in columns.items():
        total += len(name)
        if isinstance(value, str):
            total += len(value) if value.isascii() else len(value.encode("utf-8", "surrogatepass"))
        else:
            total += _FIXED_BYTES
    return total


def place() -> str:
    """Who asks: the room that acts on its own account, and the function that makes the call.

    As `engine.consumer: engine.handlers.perform_effects`; all of a worker is `worker`.

    The frames of coroutines that await one another lie on the stack, while the innermost of them runs.
    """
    frame: FrameType | None = sys._getframe()
    asking = ""
    while frame is not None:
        package, _, room = frame.f_globals.get("__name__", "").partition(".")
        if package == "taskgraph" and room not in _CARRIERS:
            asking = asking or f"{room}.{frame.f_code.co_name}"
            if room in _OWNERS:
                return f"{room}: {asking}"
            if room.startswith("worker."):
                return f"worker: {asking}"
        frame = frame.f_back
    return asking or "elsewhere"


def kind_of(partition: str, key: str) -> str:
    """What a row is, by its name: `task`, `event`, `join` …, or the name of an index."""
    return partition if ":" in partition else key.partition(":")[0]


class _Counted:
    """A port, with a count of its calls. A method that is not known here counts as one operation of its own name."""

    def __init__(self, port: Any, counts: Counts) -> None:
        self._port = port
        self._counts = counts

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._port, name)
        if not inspect.iscoroutinefunction(found) or name == "close":
            return found

        async def counted(*args: Any, **options: Any) -> Any:
            self._counts.add(name)
            return await found(*args, **options)

        return counted


class CountedTables(_Counted):
    """Counts tables."""

    async def get(self, partition: str, keys: Sequence[str]) -> list[Row | None]:
        self._counts.add("get", len(keys))
        self._counts.sums["rowsRead"] += len(keys)
        if self._counts.weigh:
            self._counts.sums.update(f"got:{kind_of(partition, key)}" for key in keys)
        found: list[Row | None] = await self._port.get(partition, keys)
        return found

    async def query(self, partition: str, rows: Any, **options: Any) -> Page:
        self._counts.add("query")
        page: Page = await self._port.query(partition, rows, **options)
        self._counts.sums["rowsRead"] += len(page.rows)
        return page

    async def commit(self, partition: str, changes: Sequence[Any]) -> list[str | None]:
        counts = self._counts
        counts.add("commit")
        try:
            etags: list[str | None] = await self._port.commit(partition, changes)
        except Conflict:
            counts.sums["conflicts"] += 1
            raise
        counts.sums["rowsWritten"] += len(changes)
        if counts.weigh:
            counts.sums.update(f"written:{kind_of(partition, change.key)}" for change in changes)
            written = [change for change in changes if not isinstance(change, Delete)]
            counts.sums["bytesWritten"] += sum(len(each.key) + columns_bytes(each.columns) for each in written)
        return etags


class CountedQueues(_Counted):
    """Counts queues."""

    async def send(self, queue: str, bodies: Sequence[str], **options: Any) -> None:
        self._counts.add("send", len(bodies))
        if self._counts.weigh:
            self._counts.sums["messageBytes"] += sum(len(body.encode("utf-8", "surrogatepass")) for body in bodies)
        await self._port.send(queue, bodies, **options)

    async def receive(self, queue: str, **options: Any) -> list[Any]:
        found: list[Any] = await self._port.receive(queue, **options)
        self._counts.add("receive" if found else EMPTY)
        self._counts.sums["messagesReceived"] += len(found)
        return found


class CountedLogs(_Counted):
    """Counts logs."""

    async def append(self, graph_id: str, task_id: str, run: int, data: bytes, **options: Any) -> None:
        self._counts.add("log")
        await self._port.append(graph_id, task_id, run, data, **options)

    async def read(self, graph_id: str, task_id: str, run: int, **options: Any) -> bytes | None:
        self._counts.add("log-read")
        found: bytes | None = await self._port.read(graph_id, task_id, run, **options)
        return found


def install(counts: Counts, *, azure: bool) -> None:
    """From here on, all that a store hands out in this process is counted."""
    store: Any = EmbeddedStore
    if azure:
        from taskgraph.storage.azure.account import AzureStore  # importing the SDK takes a second

        store = AzureStore
    for name, wrapper in (("tables", CountedTables), ("queues", CountedQueues), ("logs", CountedLogs)):
        setattr(store, name, _counting(getattr(store, name), wrapper, counts))


def _counting(make: Any, wrapper: Any, counts: Counts) -> Any:
    def made(store: Any, *args: Any, **options: Any) -> Any:
        return wrapper(make(store, *args, **options), counts)

    return made
