"""What a store costs that has become old: `python -m tests.bench.old_stores EMPTY OLD --graphs 100000`.

What this room is for: the same looks, sweeps and small graphs on two stores in turn, one of which is filled with graphs
that have finished. A few of these ran for real; the others are their rows under other ids, written through the port.
Operations and rows are counted there, as Azure bills them; CPU time is that of this process.
"""

import argparse
import asyncio
import hashlib
import os
import secrets
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from taskgraph.documents.read import read_document
from taskgraph.engine.housekeeping import keep_house
from taskgraph.engine.submission import submit
from taskgraph.engine.sweep import sweep
from taskgraph.interfaces.app import App, open_app
from taskgraph.interfaces.cli.graphs import PAGES_MAX
from taskgraph.interfaces.one_graph import run_graph, taking
from taskgraph.interfaces.operations.doctor import examine_all
from taskgraph.interfaces.settings import StoreSettings, read_settings
from taskgraph.model.flag import Flag
from taskgraph.model.names import ALL, listing_key
from taskgraph.queries.values import GraphsWanted
from taskgraph.storage.tables import Change, Insert, Range, query_all
from taskgraph.worker.executors import built_in
from tests.bench import counting, report
from tests.bench.shapes import document_text, shape

SAMPLES: Final = 4  # graphs that run, and are copied
SAMPLE: Final = "layers-4x11"  # with its journal and its own row, some fifty rows
_APART: Final = timedelta(seconds=30)  # between the submissions of two copies
_AT_ONCE: Final = 8

Measured = dict[str, float]
"""Of one look: operations, rows (read), cpu and wall (milliseconds)."""


@dataclass(frozen=True, slots=True)
class Old:
    """A store, and a graph in it that has ended."""

    settings: StoreSettings
    graph_id: str


async def play(app: App, graph_id: str, name: str = SAMPLE) -> None:
    """Submit a graph and run it, as `taskgraph run` does."""
    document = read_document(document_text(shape(name).make(), "noop"))
    worker = app.worker(built_in(app.clock), slots=2)
    with taking(app, graph_id, [worker]) as consumer:
        await submit(app.handlers, graph_id, document)
        state = await run_graph(app, graph_id, Flag(), workers=[worker], consumer=consumer, fresh=True)
    if state != "finished":
        raise AssertionError(f"graph {graph_id} is {state}")


async def fill(app: App, graphs: int, say: Callable[[str], None]) -> str:
    """Have a store hold so many finished graphs; gives the id of one of them."""
    samples: list[list[Change]] = []
    graph_id = ""
    for _ in range(min(SAMPLES, graphs)):
        graph_id = f"sample-{secrets.token_hex(4)}"
        await play(app, graph_id)
        samples.append([Insert(row.key, row.columns) for row in await query_all(app.tables, graph_id, Range())])
    now, copies = app.clock.now(), range(graphs - len(samples))
    # In the order of their ids, which is not that of their times: so it is with ids by chance, and quick to write.
    ids = sorted((hashlib.sha256(b"%d" % number).hexdigest()[:22], number) for number in copies)
    for start in range(0, len(ids), app.handlers.records.changes_max):
        part = ids[start : start + app.handlers.records.changes_max]
        for few in range(0, len(part), _AT_ONCE):
            some = part[few : few + _AT_ONCE]
            await asyncio.gather(*(_put(app, name, samples[number % len(samples)]) for name, number in some))
        await app.tables.commit(ALL, [_listed(name, number, now - number * _APART) for name, number in part])
        say(f"{start + len(part):,} of {len(ids):,} copies")
    return graph_id


async def _put(app: App, graph_id: str, rows: list[Change]) -> None:
    most = app.handlers.records.changes_max
    for start in range(0, len(rows), most):
        await app.tables.commit(graph_id, rows[start : start + most])


def _listed(graph_id: str, number: int, created: datetime) -> Insert:
    columns = {"graph": graph_id, "created": created, "name": f"job {number % 100}", "tasks": 44, "tags": "{}"}
    return Insert(listing_key(graph_id, created), columns)


def looks(graph_id: str) -> Mapping[str, Callable[[App], Awaitable[object]]]:
    """What is asked of each store. graph_id: of one that has ended."""

    def listed(schedule: str = "", **wanted: Any) -> Callable[[App], Awaitable[object]]:
        return lambda app: app.queries.graphs(schedule=schedule, wanted=GraphsWanted(**wanted), counted=True)

    async def cancelled(app: App) -> None:
        wanted = GraphsWanted("cancelled")
        await app.queries.graphs_after("", limit=50, schedule="", wanted=wanted, counted=True, pages_max=PAGES_MAX)

    async def doctor(app: App) -> None:
        await examine_all(app, repair=False, progress=lambda _done, _all: None)

    return {
        "list": listed(),
        "list --state blocked": listed(state="blocked"),
        "list --state cancelled": cancelled,
        "list --tag team=none": listed(tags={"team": "none"}),
        "list --name none": listed(name="none"),
        "list --schedule none": listed(schedule="none"),
        "status": lambda app: app.queries.status(graph_id),
        "events": lambda app: app.queries.events(graph_id),
        "top": lambda app: app.overview().look(),
        "doctor": doctor,
        "sweep": lambda app: sweep(app.handlers, logs=app.logs),
        "keep house": lambda app: keep_house(app.handlers, app.logs),
        "keep house, 10 years": lambda app: keep_house(app.handlers, app.logs, keep_days=3650),
        "run, 1 task": lambda app: play(app, f"new-{secrets.token_hex(8)}", "chain-1"),
        "run, 44 tasks": lambda app: play(app, f"new-{secrets.token_hex(8)}"),
        "run, 1,002 tasks": lambda app: play(app, f"new-{secrets.token_hex(8)}", "fan-1000"),
    }


async def measure(store: Old, counts: counting.Counts, measured: dict[str, list[Measured]]) -> None:
    """Ask everything of one store, anew."""

    async def ask(name: str, asked: Awaitable[object]) -> Any:
        counts.take()
        wall, cpu = time.perf_counter(), time.process_time()
        answer = await asked
        spent = {"wall": 1000 * (time.perf_counter() - wall), "cpu": 1000 * (time.process_time() - cpu)}
        taken = counts.take()
        operations = sum(number for kind, number in taken["operations"].items() if kind != counting.EMPTY)
        found = {"operations": operations, "rows": taken["sums"].get("rowsRead", 0), **spent}
        measured.setdefault(name, []).append(found)
        return answer

    opening = open_app(store.settings)
    app = await ask("open", opening.__aenter__())
    try:
        for name, look in looks(store.graph_id).items():
            await ask(name, look(app))
    finally:
        await opening.__aexit__(None, None, None)


def text(names: list[str], measured: list[dict[str, list[Measured]]]) -> str:
    """A table: medians of each store side by side."""
    parts = (("operations", 0), ("rows", 0), ("cpu", 1), ("wall", 1))
    headings = ["look", *(f"{name}: {part}" for part, _ in parts for name in names)]
    rows = [
        [
            look,
            *(
                report.number(statistics.median(each[part] for each in one[look]), digits)
                for part, digits in parts
                for one in measured
            ),
        ]
        for look in measured[0]
    ]
    return report.table(headings, rows)


async def main(given: argparse.Namespace) -> None:
    counts = counting.Counts()
    counting.install(counts, azure=given.prefix is not None)
    stores: list[Old] = []
    for name, graphs in ((given.empty, 1), (given.old, given.graphs)):
        prefix = {"TASKGRAPH_PREFIX": f"{given.prefix}{len(stores)}"} if given.prefix is not None else {}
        settings = read_settings(name, {**os.environ, **prefix}, cwd=Path.cwd())
        async with open_app(settings) as app:
            newest = await app.queries.last_id()
            stores.append(Old(settings, newest or await fill(app, graphs, print)))
    measured: list[dict[str, list[Measured]]] = [{} for _ in stores]
    for number in range(given.rounds):
        for store, of_it in zip(stores, measured, strict=True):
            await measure(store, counts, of_it)
        print(f"round {number + 1} of {given.rounds}", flush=True)
    print(text(["empty", "old"], measured))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Measure what a store costs that is full of finished graphs.")
    parser.add_argument("empty", help="a store to be made")
    parser.add_argument("old", help="a store to be filled, unless it is")
    parser.add_argument("--graphs", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prefix", help="of the tables and queues, in an account")
    asyncio.run(main(parser.parse_args()))
