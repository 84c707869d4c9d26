"""What a call to the cloud store costs this process: CPU per operation, by the client that makes it.

What this room is for: the figures of docs/benchmarks/azure-client.md. It measures our side only: the emulator runs in
processes of its own, and CPU time is taken from this one, so that what else the machine does hardly shows. Clients
take turns in every round, and the figure is the median of the rounds.

    python -m tests.bench.client_cost [--rounds N] [--clients sdk-default,sdk,thin] [--json]
"""

import argparse
import asyncio
import contextlib
import importlib.metadata
import json
import platform
import secrets
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, Final

from azure.core.pipeline.transport import AioHttpTransport

from taskgraph.model.clock import SystemClock
from taskgraph.storage.queues import Queues
from taskgraph.storage.tables import Change, Insert, Merge, Range, Tables
from tests import azurite as emulator
from tests.azure_sdk import open_store

CLIENTS: Final = ("sdk-default", "sdk", "thin")
LIBRARIES: Final = ("aiohttp", "azure-core", "azure-data-tables", "azure-storage-queue")
ROUNDS: Final = 5
_PAGE_ROWS: Final = 1_000
_BODY: Final = json.dumps({"version": 1, "type": "run-tasks", "graph": "g" * 20, "tasks": [{"task": "t" * 22}] * 8})
_LEASE: Final = 300.0

Work = Callable[[int], Awaitable[Any]]


def columns(n: int) -> dict[str, Any]:
    """A row such as a task's: about 700 bytes."""
    return {
        "label": f"task number {n}",
        "state": "pending",
        "run": 0,
        "requires": json.dumps([f"{n:022}", f"{n + 1:022}", f"{n + 2:022}"]),
        "requiresLeft": json.dumps([f"{n:022}"]),
        "dependents": json.dumps([f"{n + 3:022}", f"{n + 4:022}"]),
        "rerunsLeft": 1,
        "retriesLeft": 5,
        "definition": json.dumps({"payload": {"command": ["true", "x" * 120]}}),
        "operation": "bIErGcJQSq2lHT6c9MjalA",
        "created": datetime(2026, 1, 2, 3, 4, 5, 678901, UTC),
    }


class Bench:
    """One client, with a table and a queue of its own."""

    def __init__(self, tables: Tables, queues: Queues) -> None:
        self.tables = tables
        self.queues = queues
        self.queue = f"q{secrets.token_hex(6)}"
        self.keys = [f"task:{n:022}" for n in range(_PAGE_ROWS)]
        self.etags: dict[str, str] = {}
        self.hand: list[Any] = []
        self._sent = 0

    async def prepare(self) -> None:
        for start in range(0, _PAGE_ROWS, 100):
            keys = self.keys[start : start + 100]
            changes = [Insert(key, columns(n)) for n, key in enumerate(keys, start)]
            self.etags.update(zip(keys, map(str, await self.tables.commit("p", changes)), strict=True))
        await self.queues.send(self.queue, [_BODY])
        await self.receive(32)
        await self.queues.delete(self.hand.pop())

    async def get(self, count: int, n: int) -> None:
        found = await self.tables.get("p", [self.keys[(n * 37 + i * 11) % _PAGE_ROWS] for i in range(count)])
        assert None not in found

    async def merge(self, count: int, n: int) -> None:
        keys = [self.keys[(n * count + i) % _PAGE_ROWS] for i in range(count)]
        changes: list[Change] = [
            Merge(key, self.etags[key], {"state": "running", "run": n, "claim": "e9qO" * 6, "operation": "x" * 22})
            for key in keys
        ]
        self.etags.update(zip(keys, map(str, await self.tables.commit("p", changes)), strict=True))

    async def insert(self, count: int, n: int) -> None:
        await self.tables.commit(f"i{n}", [Insert(key, columns(i)) for i, key in enumerate(self.keys[:count])])

    async def query(self, rows: Range) -> None:
        page = await self.tables.query("p", rows)
        assert len(page.rows) == _PAGE_ROWS

    async def send(self) -> None:
        await self.queues.send(self.queue, [_BODY])

    async def receive(self, count: int) -> None:
        self.hand += await self.queues.receive(self.queue, count=count, lease_seconds=_LEASE)

    async def renew(self, n: int) -> None:
        n %= len(self.hand)
        self.hand[n] = await self.queues.renew(self.hand[n], lease_seconds=_LEASE)

    async def delete(self) -> None:
        await self.queues.delete(self.hand.pop())

    def operations(self) -> dict[str, tuple[int, Work]]:
        """Name -> how often in a round, and what is done. In this order: each leaves what the next one needs."""
        return {
            "get 1": (200, lambda n: self.get(1, n)),
            "get 20 keys": (20, lambda n: self.get(20, n)),
            "commit 1 merge": (150, lambda n: self.merge(1, n)),
            "commit 10 merges": (50, lambda n: self.merge(10, n)),
            "commit 100 merges": (10, lambda n: self.merge(100, n)),
            "commit 100 inserts": (5, lambda n: self.insert(100, n)),
            "query 1,000 rows": (5, lambda n: self.query(Range())),
            "query 1,000 rows, 2 columns": (10, lambda n: self.query(Range(select=("state", "run")))),
            "send 1": (160, lambda n: self.send()),
            "receive 1": (64, lambda n: self.receive(1)),
            "receive 32": (3, lambda n: self.receive(32)),
            "renew": (100, self.renew),
            "delete 1": (160, lambda n: self.delete()),
            "receive none": (100, lambda n: self.receive(1)),
        }


@contextlib.asynccontextmanager
async def opened(client: str, connection: str) -> AsyncIterator[Bench]:
    """A store with this client. sdk-default: the SDK as it comes, but for its retries."""
    name = f"t{secrets.token_hex(6)}"
    if client == "sdk-default":
        store = open_store(connection, SystemClock(), transport=AioHttpTransport(), thin=False)
        for kept in set(store._options) - {"credential", "retry_total", "transport"}:
            del store._options[kept]
    else:
        store = open_store(connection, SystemClock(), thin=client == "thin")
    try:
        yield Bench(store.tables(name), store.queues())
    finally:
        await store.close()


async def measure(connection: str, clients: list[str], rounds: int) -> dict[str, dict[str, float]]:
    """Operation -> client -> CPU milliseconds of this process for one."""
    found: dict[str, dict[str, list[float]]] = {}
    async with contextlib.AsyncExitStack() as stack:
        benches = {client: await stack.enter_async_context(opened(client, connection)) for client in clients}
        for bench in benches.values():
            await bench.prepare()
        for turn in range(rounds + 1):
            for name, (times, _) in next(iter(benches.values())).operations().items():
                for client, bench in benches.items():
                    work = bench.operations()[name][1]
                    begun = time.process_time()
                    for n in range(times):
                        await work(turn * times + n)
                    if turn:  # the first round warms up
                        spent = (time.process_time() - begun) / times * 1000
                        found.setdefault(name, {}).setdefault(client, []).append(spent)
            print(f"round {turn} of {rounds}", file=sys.stderr)
    return {name: {client: statistics.median(each) for client, each in by.items()} for name, by in found.items()}


def table(figures: dict[str, dict[str, float]]) -> str:
    """The figures as a table in Markdown, with how many times less the last client takes than the others."""
    clients = list(next(iter(figures.values())))
    last = clients[-1]
    heads = ["operation", *clients, *(f"{client} / {last}" for client in clients[:-1])]
    lines = ["| " + " | ".join(heads) + " |", "|---|" + "---:|" * (len(heads) - 1)]
    for name, by in figures.items():
        cells = [f"{by[client]:.2f}" for client in clients]
        cells += [f"{by[client] / by[last]:.1f}" for client in clients[:-1]]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Measure and print. 3 without an emulator."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.client_cost", description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--clients", default=",".join(CLIENTS))
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    clients = given.clients.split(",")
    if unknown := set(clients) - {*CLIENTS}:
        parser.error(f"no such client: {sorted(unknown)}")
    try:
        with emulator.azurite() as connection:
            figures = asyncio.run(measure(connection, clients, given.rounds))
    except emulator.AzuriteMissing as error:
        print(error, file=sys.stderr)
        return 3
    versions = {name: importlib.metadata.version(name) for name in LIBRARIES}
    versions |= {"python": platform.python_version(), "azurite": emulator.version()}
    if given.json:
        print(json.dumps({"versions": versions, "rounds": given.rounds, "cpuMilliseconds": figures}, indent=2))
    else:
        print(table(figures))
        print("\n" + ", ".join(f"{name} {version}" for name, version in versions.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
