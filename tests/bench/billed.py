"""What graphs say that they have cost, held against the emulator's own log: `python -m tests.bench.billed`.

What this room is for: a serve and two workers, processes of their own, take a graph of each shape to its end over an
emulator that writes down every request; then the totals in the graph's journal are compared with that log. Of the log
count: requests to rows of the graph, and every message that is sent, received and deleted, as one graph at a time runs.
Left out are receipts that brought nothing, rows of indexes, the making of table and queues with the calls that found
none yet, and this program's own looks.
"""

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from taskgraph.interfaces.app import App, open_app
from taskgraph.interfaces.settings import read_settings
from taskgraph.model.ids import GRAPH
from taskgraph.queries.costs import cost_of
from tests.azurite import azurite
from tests.bench.shapes import document_text, shape

SHAPES: Final = ("chain-200", "fan-500", "layers-10x50", "independent-500", "tree-511")
_GRAPH: Final = "billed"
_LOOK_SECONDS: Final = 0.5
_REQUEST: Final = re.compile(r"^\S+ (?P<id>[0-9a-f-]{36}) \w+: (?P<rest>.*)$")
_CALL: Final = re.compile(r"RequestMethod=(?P<method>[A-Z]+) RequestURL=http://[^/]+/[^/ ]+(?P<path>/\S*) ")
_NOT_YET: Final = re.compile(r"TableNotFound|QueueNotFound")
_PARTITION: Final = re.compile(
    r"PartitionKey(?:\"\s*:\s*\"|'\s*:\s*'|=')(?P<name>[^\"']+)[\"']|PartitionKey eq '(?P<asked>[^']+)'"
)


@dataclass(frozen=True)
class Call:
    """One request of the log. said: what else the log has of it: bodies, answers."""

    method: str
    path: str
    said: str


def calls_in(log: Path) -> Iterator[Call]:
    lines: defaultdict[str, list[str]] = defaultdict(list)
    for line in log.read_text("utf-8", "replace").splitlines():
        if (found := _REQUEST.match(line)) is not None:
            lines[found["id"]].append(found["rest"])
    for said in lines.values():
        whole = "\n".join(said)
        if (call := _CALL.search(whole)) is not None and _NOT_YET.search(whole) is None:
            yield Call(call["method"], unquote(call["path"]), whole)


def table_requests(log: Path, graph_id: str) -> int:
    """Requests about rows of a graph."""
    count = 0
    for call in calls_in(log):
        named = _PARTITION.search(call.path) or _PARTITION.search(unquote(call.said.replace('\\"', '"')))
        if named is not None and (named["name"] or named["asked"]) == graph_id:
            count += 1
    return count


def queue_requests(log: Path) -> int:
    """Messages that were sent, renewed and deleted, and receipts that brought some."""
    return sum("/messages" in call.path and "<QueueMessagesList/>" not in call.said for call in calls_in(log))


@contextmanager
def running(store: str, *words: str) -> Iterator[None]:
    command = [sys.executable, "-P", "-m", "taskgraph", *words]
    env = {**os.environ, "TASKGRAPH_STORE": store}
    process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(60)


async def until_finished(app: App, graph_id: str) -> int:
    """Wait for the end of a graph; gives how many looks that took, each of them one request."""
    looks = 0
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        (row,) = await app.tables.get(graph_id, [GRAPH])
        looks += 1
        if row is not None and row.columns.get("state") == "finished":
            return looks


def measure(name: str, folder: Path) -> tuple[str, int, int, int, int, int]:
    """Shape, tasks, requests to tables as counted and as logged, and to queues."""
    graph = shape(name).make()
    document = folder / "graph.json"
    document.write_text(document_text(graph, "noop"))

    async def watched(store: str) -> tuple[int, int, int]:
        async with open_app(read_settings(store, {}, cwd=folder)) as app:
            looks = await until_finished(app, _GRAPH)
            await asyncio.sleep(3)  # for what comes after the end
            spent = (await cost_of(app.tables, _GRAPH)).spent
            assert spent is not None
            return looks, spent.tables, spent.queues

    with azurite(folder) as store, ExitStack() as stack:
        stack.enter_context(running(store, "serve"))
        for _ in range(2):
            stack.enter_context(running(store, "worker", "--slots", "2"))
        time.sleep(3)
        submitted = [sys.executable, "-P", "-m", "taskgraph", "submit", str(document), "--id", _GRAPH]
        subprocess.run(submitted, env={**os.environ, "TASKGRAPH_STORE": store}, check=True, capture_output=True)
        looks, tables, queues = asyncio.run(watched(store))
    # The last look at what it has cost reads the row of the graph and the end of its journal.
    pages = 2 if len(graph) < 1000 else 3
    logged = table_requests(folder / "table.log", _GRAPH) - looks - pages
    return name, len(graph), tables, logged, queues, queue_requests(folder / "queue.log")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.billed", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--shapes", default=",".join(SHAPES), help="names, with commas between")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    wanted = parser.parse_args(arguments)
    rows = []
    for name in wanted.shapes.split(","):
        with tempfile.TemporaryDirectory(prefix="taskgraph-billed-") as folder:
            rows.append(measure(name, Path(folder)))
    if wanted.json:
        print(json.dumps(rows))
        return 0
    print("| shape | tasks | tables: counted | logged | queues: counted | logged | counted of logged |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    worst = 0.0
    for name, tasks, tables, table_log, queues, queue_log in rows:
        share = (tables + queues) / (table_log + queue_log)
        worst = max(worst, abs(1 - share))
        print(f"| {name} | {tasks:,} | {tables:,} | {table_log:,} | {queues:,} | {queue_log:,} | {share:.2%} |")
    return 0 if worst <= 0.02 else 1


if __name__ == "__main__":
    sys.exit(main())
