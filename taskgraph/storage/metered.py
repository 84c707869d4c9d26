"""Counts what each graph asks of its store: ports that pass every call on, and add it up by graph.

A call is counted as it is made, whatever becomes of it: a refused commit is billed, too. What an adapter does on its
own account (making a table once, asking again after a failure) is not seen here. A message counts when it is received
for the first time, with its sending and its deletion: who sends one, or deletes it, may have nothing more to say of its
graph. A receipt belongs to the graph of the first message that it brings; one that brings none belongs to no graph, and
neither does any row of an index.
"""

from collections.abc import Coroutine, Sequence
from typing import Any, Final

from taskgraph.model import limits
from taskgraph.model.names import OWN
from taskgraph.model.spent import NOTHING, Used, made
from taskgraph.storage.logs import Logs, Place
from taskgraph.storage.queues import Delivery, Queues
from taskgraph.storage.tables import Change, Insert, Page, Range, Row, Tables, changes_max_of

_GRAPHS_MAX: Final = 10_000
_INDEX: Final = "index:"
_NAME: Final = '"graph":"'
_HEAD_CHARS: Final = 80  # of a message, within which its graph is named
_ID_CHARS_MAX: Final = 64
SENT_AND_DELETED: Final = 2
"""Requests that a message takes beside its receipts."""

_FIRST_APPEND: Final = 3  # of a log: it is not there, it is made, and then it is added to


class Meter:
    """What was counted for each graph since that was last written down. What is here is lost with the process."""

    def __init__(self) -> None:
        self._of: dict[str, list[int]] = {}

    def add(self, graph_id: str, tables: int = 0, queues: int = 0, files: int = 0, size: int = 0) -> None:
        used = self._of.get(graph_id)
        if used is None:
            if len(self._of) >= _GRAPHS_MAX:
                del self._of[next(iter(self._of))]  # counted longest ago, and written down by now, or over
            self._of[graph_id] = [tables, queues, files, size]
            return
        used[0] += tables
        used[1] += queues
        used[2] += files
        used[3] += size

    def used(self, graph_id: str, *, commits: int = 0) -> Used:
        """What has been counted and is not written down yet. commits: that are about to be made, and count, too."""
        counted: Sequence[int] = self._of.get(graph_id, NOTHING)
        if min(counted) < 0:  # said before it is counted
            counted = [max(0, each) for each in counted]
        tables, queues, files, size = counted
        return made(Used, (tables + commits, queues, files, size))

    def written(self, graph_id: str, used: Used) -> None:
        """So much is written down, or on its way."""
        tables, queues, files, size = used
        self.add(graph_id, -tables, -queues, -files, -size)


def graph_of(body: str) -> str:
    """The graph of a message, found without reading all of it; "" for none."""
    start = body.find(_NAME, 0, _HEAD_CHARS) + len(_NAME)
    end = body.find('"', start, start + _ID_CHARS_MAX + 1)
    if len(_NAME) <= start < end:
        return body[start:end]
    from taskgraph.model.messages import graph_named  # here: what sends messages has it, and short commands do not

    return graph_named(body)


class MeteredTables:
    def __init__(self, tables: Tables, meter: Meter) -> None:
        self._tables = tables
        self._meter = meter
        self.changes_max = changes_max_of(tables)
        self.query_text = getattr(tables, "query_text", None)

    def get(self, partition: str, keys: Sequence[str]) -> Coroutine[Any, Any, list[Row | None]]:
        if not partition.startswith(_INDEX):
            self._meter.add(partition, len(keys))
        return self._tables.get(partition, keys)

    def query(
        self, partition: str, rows: Range, *, limit: int = 1000, continuation: str | None = None
    ) -> Coroutine[Any, Any, Page]:
        if not partition.startswith(_INDEX):
            self._meter.add(partition, 1)
        return self._tables.query(partition, rows, limit=limit, continuation=continuation)

    def commit(self, partition: str, changes: Sequence[Change]) -> Coroutine[Any, Any, list[str | None]]:
        if not partition.startswith(_INDEX):
            # An embedded store takes more at once than a storage account, which would be asked several times.
            requests = -(-len(changes) // limits.COMMIT_CHANGES_MAX)
            self._meter.add(partition, requests, 0, 0, _size(changes))
        return self._tables.commit(partition, changes)


def _size(changes: Sequence[Change]) -> int:
    """Characters of what is inserted."""
    size = 0
    for change in changes:
        if type(change) is Insert:
            for value in change.columns.values():
                if type(value) is str:
                    size += len(value)
    return size


class MeteredQueues:
    def __init__(self, queues: Queues, meter: Meter) -> None:
        self._queues = queues
        self._meter = meter

    async def receive(self, queue: str, *, count: int = 1, lease_seconds: float) -> list[Delivery]:
        deliveries = await self._queues.receive(queue, count=count, lease_seconds=lease_seconds)
        if deliveries and not queue.startswith(OWN):  # of this process alone: no store is asked
            self._meter.add(graph_of(deliveries[0].body), 0, 1)
            for delivery in deliveries:
                if delivery.dequeue_count == 1:
                    self._meter.add(graph_of(delivery.body), 0, SENT_AND_DELETED)
        return deliveries

    async def renew(self, delivery: Delivery, *, lease_seconds: float) -> Delivery:
        if not delivery.queue.startswith(OWN):
            self._meter.add(graph_of(delivery.body), 0, 1)
        return await self._queues.renew(delivery, lease_seconds=lease_seconds)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queues, name)


class MeteredLogs:
    """The files of runs, as a worker writes them."""

    def __init__(self, logs: Logs, meter: Meter) -> None:
        self._logs = logs
        self._meter = meter
        self._begun: dict[tuple[str, str, int, str], None] = {}

    async def append(self, graph_id: str, task_id: str, run: int, data: bytes, name: str = "run.log") -> None:
        file = graph_id, task_id, run, name
        requests = 1 if file in self._begun else _FIRST_APPEND
        if len(self._begun) >= _GRAPHS_MAX:
            del self._begun[next(iter(self._begun))]
        self._begun[file] = None
        self._meter.add(graph_id, 0, 0, requests, len(data))
        await self._logs.append(graph_id, task_id, run, data, name)

    async def read(
        self, graph_id: str, task_id: str, run: int, *, offset: int = 0, limit: int = 1 << 20, name: str = "run.log"
    ) -> bytes | None:
        self._meter.add(graph_id, 0, 0, 1)
        return await self._logs.read(graph_id, task_id, run, offset=offset, limit=limit, name=name)

    async def copy(self, source: Place, target: Place, name: str) -> bool:
        self._meter.add(target[0], 0, 0, 1)
        return await self._logs.copy(source, target, name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._logs, name)
