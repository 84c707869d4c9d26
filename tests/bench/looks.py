"""What each look at a graph asks of its store: `python -m tests.bench.looks STORE GRAPH LABEL`.

What this room is for: the reads of `status`, `list`, `show`, `task`, `why` and the others, counted at the ports as
Azure bills them, with the CPU time of this process. It changes nothing in the store. Whole commands, with their start
and their largest resident set, are for `/usr/bin/time`.
"""

import argparse
import asyncio
import os
import time
from collections.abc import Awaitable, Sequence
from pathlib import Path

from taskgraph.engine.commit import Records
from taskgraph.engine.doctor import examine_graph
from taskgraph.engine.handlers import Handlers
from taskgraph.interfaces.app import open_app
from taskgraph.interfaces.settings import read_settings
from taskgraph.model.clock import SystemClock
from taskgraph.queries.graphs import Queries
from taskgraph.storage.tables import Change, Page, Range, Row, Tables


class CountedTables:
    """Tables that count what is read."""

    def __init__(self, inner: Tables) -> None:
        self._inner = inner
        self.gets = self.pages = self.rows = 0

    async def get(self, partition: str, keys: Sequence[str]) -> list[Row | None]:
        self.gets += len(keys)
        found = await self._inner.get(partition, keys)
        self.rows += len(keys)
        return found

    async def query(self, partition: str, rows: Range, *, limit: int = 1000, continuation: str | None = None) -> Page:
        self.pages += 1
        page = await self._inner.query(partition, rows, limit=limit, continuation=continuation)
        self.rows += len(page.rows)
        return page

    async def commit(self, partition: str, changes: Sequence[Change]) -> list[str | None]:
        raise AssertionError("a look writes nothing")

    async def close(self) -> None:
        pass


async def measure(store: str, graph_id: str, label: str) -> None:
    """Print a line for each look."""
    async with open_app(read_settings(store, os.environ, cwd=Path.cwd()), clock=SystemClock()) as app:
        tables = CountedTables(app.tables)
        names = app.handlers.names
        queries = Queries(tables, app.queues, app.clock, names)
        handlers = Handlers(Records(tables, app.clock), app.queues, app.clock, names)

        async def look(name: str, asked: Awaitable[object]) -> None:
            tables.gets = tables.pages = tables.rows = 0
            began = time.process_time()
            await asked
            took = time.process_time() - began
            print(f"{name:14} {tables.gets:6} gets {tables.pages:5} pages {tables.rows:7} rows {took:7.2f} s CPU")

        await look("status", queries.status(graph_id))
        await look("status again", queries.status(graph_id))
        await look("list", queries.graphs())
        await look("show", queries.listing(graph_id))
        await look("show running", queries.listing(graph_id, state="running"))
        await look("task", queries.task(graph_id, label, edges=20))
        await look("task --all", queries.task(graph_id, label))
        await look("why", queries.explain(graph_id, label))
        await look("busy", queries.busy(graph_id))
        await look("events", queries.events(graph_id))
        await look("doctor", examine_graph(handlers, app.poison, graph_id))


def main() -> None:
    parser = argparse.ArgumentParser(description="Count the reads of each look at a graph.")
    parser.add_argument("store")
    parser.add_argument("graph")
    parser.add_argument("label", help="a task with many edges, or far down")
    given = parser.parse_args()
    asyncio.run(measure(given.store, given.graph, given.label))


if __name__ == "__main__":
    main()
