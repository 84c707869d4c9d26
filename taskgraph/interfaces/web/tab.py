"""The HTTP API in a tab of a browser, where no server stands behind the page: the same routes over what the page reads.

Pyodide runs it in a worker of the page (web/src/python_worker.ts), which hands in what asks the network.
"""

import gzip
import io
import json
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any, Final

from taskgraph.interfaces.app import open_app
from taskgraph.interfaces.http import asgi
from taskgraph.interfaces.http.gate import Gate
from taskgraph.interfaces.http.in_process import InProcess
from taskgraph.interfaces.operations.tokens import Token
from taskgraph.interfaces.settings import StoreSettings
from taskgraph.interfaces.web import persistent
from taskgraph.model import column_json
from taskgraph.model.clock import Clock, SystemClock
from taskgraph.model.errors import OutOfSight, Refused
from taskgraph.model.roles import Role
from taskgraph.storage.azure.linked import Exchange, Link, LinkedStore
from taskgraph.storage.memory import MemoryTables
from taskgraph.storage.sight import UnseenLogs, UnseenQueues
from taskgraph.storage.store import Store
from taskgraph.storage.tables import Change, Page, Range, Row

BY: Final = "a link of the page"
"""Who asked for a change, for the journal: a signature has no name."""


class ArchivedTables(MemoryTables):
    """The rows of one graph, which do not change."""

    def __init__(self, data: bytes) -> None:
        """data: an archive that was seen to be whole."""
        super().__init__()
        self._graph = ""
        rows: dict[str, Row] = {}
        for line in gzip.GzipFile(fileobj=io.BytesIO(data)):
            found = json.loads(line)
            self._graph = self._graph or found["graph"]
            if (key := found.get("row")) is not None:
                columns = {name: column_json.read(value) for name, value in found["columns"].items()}
                rows[key] = Row(key, "archived", columns)
        self.partitions[self._graph] = rows

    async def get(self, partition: str, keys: Sequence[str]) -> list[Row | None]:
        self._check(partition)
        return await super().get(partition, keys)

    async def query(self, partition: str, rows: Range, *, limit: int = 1000, continuation: str | None = None) -> Page:
        self._check(partition)
        return await super().query(partition, rows, limit=limit, continuation=continuation)

    async def commit(self, partition: str, changes: Sequence[Change]) -> list[str | None]:
        raise Refused("an archive is not changed: put it back by `taskgraph restore`", "archive")

    def _check(self, partition: str) -> None:
        if partition != self._graph:
            raise OutOfSight(f"an archive shows the rows of graph {self._graph} alone")


class ArchivedStore:
    def __init__(self, data: bytes) -> None:
        self.clock: Clock = SystemClock()
        self._tables = ArchivedTables(data)

    def tables(self, name: str) -> MemoryTables:
        return self._tables

    def queues(self) -> UnseenQueues:
        return UnseenQueues()

    def logs(self) -> UnseenLogs:
        return UnseenLogs()


class Tab:
    """The API over one store. Close it when another one is shown."""

    def __init__(self, api: InProcess, close: AsyncExitStack) -> None:
        self._api = api
        self._close = close

    async def answer(self, method: str, path: str, body: str) -> str:
        """Status and body, as a JSON list. path: behind `/api/v1`, encoded, with its query. body: JSON, "" for none."""
        status, answered = await self._api.ask(method, path, body)
        return json.dumps([status, answered.decode()])

    async def close(self) -> None:
        await self._close.aclose()


async def over_table(exchange: Exchange, table: str, sas: str, add: str, live: str) -> Tab:
    """See `Link`."""
    link = Link(table, sas, add, live)
    return await _opened(LinkedStore(link, exchange), link.graph)


async def over_archive(data: Any) -> Tab:
    """data: bytes, or those of JavaScript."""
    store = ArchivedStore(data if isinstance(data, bytes) else data.to_bytes())
    return await _opened(store, "")


async def _opened(store: Store, graph: str) -> Tab:
    """graph: the one that it is for, "" for all."""
    if sys.platform == "emscripten":
        persistent.install()
    close = AsyncExitStack()
    app = await close.enter_async_context(open_app(StoreSettings(handed_in=store)))
    who = Token(BY, Role.ADMIN, (graph,) if graph else ())
    api, _ = await close.enter_async_context(asgi.opened(app, Gate(app, tokenless=who, hosts=None), streams=False))
    return Tab(InProcess(api), close)
