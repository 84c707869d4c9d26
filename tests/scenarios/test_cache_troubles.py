"""A cache that cannot be read or written costs a run no more than its use: the task runs, and its graph finishes."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from taskgraph import Client, Graph
from taskgraph.model.errors import Conflict, StorageError, StorageUnavailable, Unclear
from taskgraph.model.names import CACHE
from taskgraph.storage.tables import Change
from taskgraph.testing import MemoryStore, MemoryTables


class Troubled(MemoryTables):
    """Tables whose partition of the cache fails in one of its calls."""

    reading: StorageError | None = None
    writing: StorageError | None = None

    async def get(self, partition: str, keys: Sequence[str], *args: Any, **named: Any) -> Any:
        if partition == CACHE and self.reading is not None:
            raise self.reading
        return await super().get(partition, keys, *args, **named)

    async def commit(self, partition: str, changes: Sequence[Change]) -> Any:
        if partition == CACHE and self.writing is not None:
            raise self.writing
        return await super().commit(partition, changes)


class TroubledStore(MemoryStore):
    def __init__(self, tables: Troubled) -> None:
        super().__init__()
        self._troubled = tables

    def tables(self, name: str) -> MemoryTables:
        return self._troubled


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        ("reading", StorageUnavailable("503", "memory"), "runs without the cache"),
        ("writing", StorageUnavailable("503", "memory"), "cannot be used again"),
        ("writing", Conflict("412"), ""),
        ("writing", Unclear("no answer"), ""),
    ],
)
def test_a_run_goes_on_without_its_cache(
    call: str, error: StorageError, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    tables = Troubled()
    setattr(tables, call, error)
    graph = Graph()
    graph.task("a", payload={"command": ["true"], "cache": True})

    async def run() -> str:
        async with Client(TroubledStore(tables)) as client:
            return str((await client.run(graph)).state)

    assert asyncio.run(run()) == "finished"
    assert (said in caplog.text) if said else not caplog.text
