"""Rehearsals against truth: `python -m tests.bench.rehearsals FOLDER GRAPH` prints a table.

Real graphs run with sleeps in place of their commands: as long as the recorded runs, scaled, times a draw; some runs
fail, and are run again. Each run is forecast from the five runs before it alone, and then compared with what it took.
"""

import argparse
import asyncio
import gzip
import json
import math
import random
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from taskgraph.documents.nodes import GraphDocument, TaskNode
from taskgraph.engine.submission import submit
from taskgraph.interfaces.app import open_app
from taskgraph.interfaces.one_graph import run_graph, taking
from taskgraph.interfaces.settings import read_settings
from taskgraph.model.flag import Flag
from taskgraph.rehearsal.durations import Past, known_durations, past_of
from taskgraph.rehearsal.forecast import Forecast, forecast
from taskgraph.rehearsal.play import Bench, play
from taskgraph.rehearsal.start import start_of_document
from taskgraph.worker.executors import Executors, Outcome, Work, WriteLog

FAMILIES: Final = (
    "wf-montage-2mass-005d",
    "wf-seismology-100p",
    "wf-1000genome-8ch-100k",
    "make-redis-all",
    "wf-bwa-large",
    "wf-bacass-11",
    "mozilla-firefox-tv",
    "dask-cholesky-24",
)
LLD: Final = "ninja-llvm-lld"
HISTORY: Final = 5
TRUTHS: Final = 5
SLOTS: Final = 4
SPREAD: Final = 0.25  # of the logarithm of what a run takes
FAILING: Final = 0.03
RERUNS: Final = 5


def source(folder: Path, name: str) -> Mapping[str, Any]:
    path = next(folder.glob(f"{name}.json*"))
    data = path.read_bytes()
    found: Mapping[str, Any] = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)["tasks"]
    return found


def base_seconds(tasks: Mapping[str, Any], work: float) -> dict[str, float]:
    """What each task takes in the middle: as recorded, or drawn once; scaled to so many seconds in all."""
    rng = random.Random(7)
    seconds = {label: each.get("runtimeSeconds") or rng.lognormvariate(0.0, 0.8) for label, each in tasks.items()}
    scale = work / sum(seconds.values())
    return {label: each * scale for label, each in seconds.items()}


def document_of(name: str, tasks: Mapping[str, Any]) -> GraphDocument:
    nodes = {
        label: TaskNode(label, tuple(each["requires"]), RERUNS, {"executor": "drawn"}) for label, each in tasks.items()
    }
    return GraphDocument(nodes, metadata={"name": name})


class Drawn:
    """Sleeps for as long as a run takes, and fails now and then."""

    name = "drawn"
    instant = False
    queue = None

    def __init__(self, base: Mapping[str, float], seed: int, day: float) -> None:
        """day: of the logarithm of that by which all runs of a graph are slower or faster."""
        self._base, self._seed = base, seed
        self._day = random.Random(f"{min(base)}:{seed}").lognormvariate(0.0, day)  # each graph has days of its own

    def can_run(self, definition: Mapping[str, Any]) -> str | None:
        return None

    async def run(self, work: Work, write_log: WriteLog) -> Outcome:
        rng = random.Random(f"{self._seed}:{work.label}:{work.run}")
        await asyncio.sleep(self._base[work.label] * self._day * rng.lognormvariate(0.0, SPREAD))
        return Outcome(failed=rng.random() < FAILING and work.run < RERUNS)


async def ran(store: str, graph_id: str, document: GraphDocument, executor: Drawn, slots: int) -> Past:
    """Run a graph as `taskgraph run` does; gives what a rehearsal may know of it."""
    async with open_app(read_settings(store, {}, cwd=Path.cwd())) as app:
        worker = app.worker(Executors([executor]), slots=slots)
        with taking(app, graph_id, [worker]) as consumer:
            await submit(app.handlers, graph_id, document)
            await run_graph(app, graph_id, Flag(), workers=[worker], consumer=consumer, fresh=True)
        return past_of(await app.queries.timeline(graph_id))


def foretold(document: GraphDocument, past: Sequence[Past], slots: int, seeds: int) -> Forecast:
    now = datetime.now(UTC)
    definitions = {label: node.task for label, node in document.tasks.items()}
    return forecast(
        "",
        lambda seed: start_of_document(document, now, f"rehearsal-{seed}"),
        [Bench(("default",), slots)],
        known_durations(definitions, past),
        past=past,
        whole=lambda graph_id: start_of_document(document, now, graph_id),
        seeds=seeds,
    )


def row(name: str, slots: int, found: Forecast, truth: Past) -> tuple[float, bool]:
    p10, p50, p90 = found.seconds
    took = truth.seconds or math.nan
    inside = p10 <= took <= p90
    off = p50 / took - 1
    seconds = " | ".join(f"{each:.2f}" for each in (p10, p50, p90, took))
    print(f"| {name} | {slots} | {seconds} | {off:+.1%} | {'yes' if inside else 'no'} |", flush=True)
    return off, inside


def family(folder: Path, name: str, work: float, seeds: int, first: int, day: float) -> list[tuple[float, bool]]:
    tasks = source(folder, name)
    base, document = base_seconds(tasks, work), document_of(name, tasks)
    past: list[Past] = []
    results: list[tuple[float, bool]] = []
    with tempfile.TemporaryDirectory() as place:
        for number in range(first, first + HISTORY + TRUTHS):
            found = foretold(document, past[-HISTORY:], SLOTS, seeds) if number >= first + HISTORY else None
            store = f"sqlite:///{place}/store.db"
            executor = Drawn(base, number, day)
            past.append(asyncio.run(ran(store, f"{name}-{number}", document, executor, SLOTS)))
            if found is not None:
                results.append(row(name, SLOTS, found, past[-1]))
    return results


def lld(folder: Path, work: float, seeds: int, day: float) -> list[tuple[float, bool]]:
    """On 2, 4 and 8 slots, by two runs on 8."""
    tasks = source(folder, LLD)
    base, document = base_seconds(tasks, work), document_of(LLD, tasks)
    results: list[tuple[float, bool]] = []
    with tempfile.TemporaryDirectory() as place:
        store = f"sqlite:///{place}/store.db"
        past = [asyncio.run(ran(store, f"lld-{number}", document, Drawn(base, number, day), 8)) for number in range(2)]
        for slots in (2, 4, 8):
            found = foretold(document, past, slots, seeds)
            truth = asyncio.run(ran(store, f"lld-on-{slots}", document, Drawn(base, 100 + slots, day), slots))
            results.append(row(LLD, slots, found, truth))
    return results


def speed(folder: Path) -> None:
    """CPU of one seed of a graph of 10,321 tasks."""
    tasks = source(folder, "dask-rechunk-40")
    document = document_of("rechunk", tasks)
    for mean, slots in ((5.0, 16), (500.0, 16), (5.0, 400)):
        base = base_seconds(tasks, mean * len(tasks))
        nodes = {
            label: TaskNode(label, node.requires, 0, {"executor": "sleep", "payload": {"seconds": base[label]}})
            for label, node in document.tasks.items()
        }
        begun = time.process_time()
        start = start_of_document(GraphDocument(nodes), datetime.now(UTC), "g")
        known = known_durations(start.definitions)
        laid = time.process_time()
        found = play(start, [Bench(("default",), slots)], known.draws(0))
        done = time.process_time()
        cpu = f"{laid - begun:.2f} s | {done - laid:.2f} s"
        print(f"| {len(tasks):,} | {slots} | {mean:g} s | {found.seconds:,.0f} s | {cpu} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="of real graphs, as `scripts/graphs` takes it")
    parser.add_argument("what", choices=[*FAMILIES, LLD, "speed"])
    parser.add_argument("--work", type=float, default=24.0, help="seconds that all runs of a graph take together")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="number of the first draw of what runs take")
    parser.add_argument("--day", type=float, default=0.0, help="how far graphs differ as a whole: 0.08 for 8 %%")
    given = parser.parse_args()
    if given.what == "speed":
        speed(given.folder)
        return
    results = (
        lld(given.folder, given.work, given.seeds, given.day)
        if given.what == LLD
        else family(given.folder, given.what, given.work, given.seeds, given.first, given.day)
    )
    within = sum(abs(off) <= 0.1 for off, _ in results)
    inside = sum(each for _, each in results)
    print(f"{len(results)} runs: p50 within 10 % of {within}, {inside} between p10 and p90", file=sys.stderr)


if __name__ == "__main__":
    main()
