"""What single calls of the embedded store cost: `python -m tests.bench.embedded_cost [--only WORDS] [--json]`.

What this room is for: CPU and wall time of each call of the ports by itself, over rows as a graph has them, so that a
change of the store can be weighed apart from everything above it. It never asserts anything; compare figures of one
machine, CPU before wall, and take several rounds: the least of the rounds is printed, since others only ever add.
"""

import argparse
import asyncio
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from taskgraph.model.clock import SystemClock
from taskgraph.model.columns import Columns
from taskgraph.storage.queues import Delivery
from taskgraph.storage.sqlite.store import EmbeddedStore
from taskgraph.storage.tables import Change, Insert, Merge, Range, Row, Tables, query_all

ROWS: Final = 20_000  # in the partition that is merged and read: some 30 MB
CALLS_MAX: Final = 300  # of one cell and round
SECONDS_MAX: Final = 0.4  # of one cell and round, about

Call = Callable[[], Awaitable[None]]

_CREATED: Final = datetime(2026, 11, 21, 19, 45, 40, 988_220, UTC)


@dataclass(frozen=True, slots=True)
class Cost:
    """One cell of one round: microseconds per call."""

    cpu: float
    wall: float


def task_columns(n: int) -> Columns:
    """A task of a graph, about 17 columns and 1.2 KB."""
    name = f"{n:06}"
    return {
        "schema": 1,
        "label": f"label-of-{name}",
        "state": "pending",
        "run": 0,
        "rerunsAllowed": 0,
        "rerunsLeft": 0,
        "retriesLeft": 5,
        "requires": json.dumps([f"f5neE2qyRSKpMob{name}{i:02}" for i in range(8)]),
        "requiresLeft": "[]",
        "dependents": json.dumps([f"c8GO4-u-SEOq9-6{name}{i:02}" for i in range(8)]),
        "target": "default",
        "digest": "68fe8a6ac9af2061f986b1835a17b859",
        "created": _CREATED,
        "pendingSince": _CREATED,
        "task": json.dumps({"payload": {"command": ["cc", "-c", f"src/module_{name}.c"], "env": {"A": "x" * 200}}}),
        "operation": "ZFqiYpG-SoWWAMx0n996ZQ",
        "worker": "vm-27570-Ybwr4e",
    }


def merged_columns(n: int) -> Columns:
    """What a claim or a completion writes."""
    return {
        "state": "completed" if n % 2 else "running",
        "operation": f"Ho1OC-V6Tga08wBE{n:06}",
        "resolved": _CREATED + timedelta(microseconds=n),
        "resolution": '{"failed":false,"exitCode":0}',
        "claim": f"fQkY48dKRYWduz0{n:07}",
    }


def key_of(n: int) -> str:
    """The key of a task."""
    return f"task:{n:06}AAAAAAAAAAAAAAAA"


class Bench:
    """A store with a filled partition, and the cells over it."""

    def __init__(self, store: EmbeddedStore) -> None:
        self.tables: Tables = store.tables("graphs")
        self.queues = store.queues()
        self.etags: list[str] = []
        self._n = 0
        self._at = 0

    def next(self) -> int:
        """A number that no call has had."""
        self._n += 1
        return self._n

    async def fill(self) -> None:
        """The rows that the cells work on."""
        for start in range(0, ROWS, 100):
            numbers = range(start, start + 100)
            etags = await self.tables.commit("p", [Insert(key_of(n), task_columns(n)) for n in numbers])
            self.etags += [str(etag) for etag in etags]

    # Each of these makes ready what a call needs, and gives the call: only the call is measured.

    def merge(self, count: int, event: bool = False) -> Call:
        """A commit of so many merges of neighbouring rows, walking through the partition."""
        start = self._at if self._at + count <= ROWS else 0
        self._at = start + count
        mark = self.next()
        changes: list[Change] = [
            Merge(key_of(n), self.etags[n], merged_columns(mark)) for n in range(start, start + count)
        ]
        if event:
            changes.append(Insert(f"event:{mark:010}", {"sequence": mark, "events": "x" * 100 * count}))

        async def call() -> None:
            etags = await self.tables.commit("p", changes)
            self.etags[start : start + count] = etags[:count]  # type: ignore[assignment]

        return call

    def insert(self, count: int, flight: int = 1) -> Call:
        """Commits of so many new rows, in a partition of their own, all at the same time."""
        marks = [self.next() for _ in range(flight)]
        commits = [[Insert(f"task:{mark:06}-{n:03}", task_columns(n)) for n in range(count)] for mark in marks]

        async def call() -> None:
            await asyncio.gather(*[self.tables.commit("q", changes) for changes in commits])

        async def alone() -> None:
            await self.tables.commit("q", commits[0])

        return call if flight > 1 else alone

    def query(self, count: int, where: bool = False) -> Call:
        """Read a range of so many rows."""
        start = self.next() * 37 % (ROWS - count)
        asked = Range(key_of(start), key_of(start + count), where={"state": ("nowhere",)} if where else {})

        async def call() -> None:
            await query_all(self.tables, "p", asked)

        return call

    def get(self, count: int) -> Call:
        """Read so many rows by their keys."""
        start = self.next() * 37 % (ROWS - count)
        keys = [key_of(n) for n in range(start, start + count)]

        async def call() -> None:
            await self.tables.get("p", keys)

        return call

    def messages(self, count: int) -> Call:
        """Send so many messages in one call, receive them in one, delete each by itself."""
        body = json.dumps({"type": "task-completed", "graph": "g" * 22, "tasks": ["t" * 22] * 10})
        bodies = [body] * count

        async def call() -> None:
            await self.queues.send("queue", bodies)
            deliveries: list[Delivery] = await self.queues.receive("queue", count=count, lease_seconds=60)
            if len(deliveries) == 1:
                await self.queues.delete(deliveries[0])
            else:
                await asyncio.gather(*[self.queues.delete(delivery) for delivery in deliveries])

        return call

    def nothing(self) -> Call:
        """Look into an empty queue."""

        async def call() -> None:
            await self.queues.receive("empty", count=32, lease_seconds=60)

        return call

    def cells(self) -> dict[str, Callable[[], Call]]:
        """What is measured, by name."""
        return {
            "commit 1 merge": lambda: self.merge(1),
            "commit 3 (chain step)": lambda: self.merge(2, event=True),
            "commit 10 merges": lambda: self.merge(10),
            "commit 60 merges + event": lambda: self.merge(60, event=True),
            "commit 99 merges + event": lambda: self.merge(99, event=True),
            "commit 100 inserts": lambda: self.insert(100),
            "8 commits of 100 inserts at once": lambda: self.insert(100, 8),
            "32 commits of 1 insert at once": lambda: self.insert(1, 32),
            "get 1": lambda: self.get(1),
            "get 8": lambda: self.get(8),
            "get 32": lambda: self.get(32),
            "query 100": lambda: self.query(100),
            "query 1000": lambda: self.query(1000),
            "query 1000, none agrees": lambda: self.query(1000, where=True),
            "send, receive, delete 1 message": lambda: self.messages(1),
            "send, receive, delete 32 messages": lambda: self.messages(32),
            "receive nothing": self.nothing,
        }


async def cost(prepare: Callable[[], Call]) -> Cost:
    """The mean of so many calls as fit the time, one after another."""
    await prepare()()
    calls, cpu, wall, end = 0, 0.0, 0.0, time.perf_counter() + SECONDS_MAX
    while calls < CALLS_MAX and time.perf_counter() < end:
        call = prepare()
        cpu_before, wall_before = time.process_time(), time.perf_counter()
        await call()
        wall += time.perf_counter() - wall_before
        cpu += time.process_time() - cpu_before
        calls += 1
    return Cost(cpu / calls * 1e6, wall / calls * 1e6)


async def measure(folder: Path, rounds: int, only: str, synchronous: str) -> dict[str, list[Cost]]:
    """All cells, each once per round."""
    found: dict[str, list[Cost]] = {}
    store = EmbeddedStore(folder / "store.db", SystemClock(), synchronous=synchronous)
    try:
        bench = Bench(store)
        await bench.fill()
        for _ in range(rounds):
            for name, call in bench.cells().items():
                if only in name:
                    found.setdefault(name, []).append(await cost(call))
        rows: list[Row] = await query_all(bench.tables, "p", Range(key_of(0), key_of(ROWS)))
        if [row.etag for row in rows] != bench.etags:
            raise SystemExit("the rows are not those that were written")
    finally:
        await store.close()
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="CPU and wall time of single calls of the embedded store.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="cells whose name contains this")
    parser.add_argument("--synchronous", default="normal", choices=("normal", "full"))
    parser.add_argument("--folder", help="where to keep the file meanwhile; default: a temporary folder")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="taskgraph-embedded-") as folder:
        found = asyncio.run(measure(Path(folder), options.rounds, options.only, options.synchronous))
    least = {name: Cost(min(c.cpu for c in costs), min(c.wall for c in costs)) for name, costs in found.items()}
    if options.json:
        json.dump({name: {"cpu_us": c.cpu, "wall_us": c.wall} for name, c in least.items()}, sys.stdout, indent=2)
        print()
        return
    print(f"{'call':<36} {'CPU us':>9} {'wall us':>9}   (Python {sys.version.split()[0]}, {os.cpu_count()} cores)")
    for name, each in least.items():
        print(f"{name:<36} {each.cpu:>9.0f} {each.wall:>9.0f}")
    print(f"peak RSS {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


if __name__ == "__main__":
    main()
