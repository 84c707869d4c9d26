"""One process of a measured cell: `python -m tests.bench.node`, told what to do by lines of JSON on stdin.

What this room is for: the real parts of taskgraph with counted ports (`counting`), as they run in `run`, `serve` and
`worker`. It answers with lines of JSON on stdout (`failed`: why an order could not be obeyed) and ends when stdin does,
however its parent has ended.

Orders (`do`): submit, run (all in this process), go (begin to handle, to work, or both), count (what it did since the
last time), look (the graph's state), ends (of which graphs it made the last commit, and when), examine (what the rows
tell), stop. The run's settings come in TASKGRAPH_BENCH; the
store in TASKGRAPH_STORE, as always.
"""

import asyncio
import contextlib
import json
import math
import os
import resource
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import taskgraph
from taskgraph.documents.read import read_document
from taskgraph.engine.consumer import Consumer
from taskgraph.engine.submission import submit
from taskgraph.interfaces.app import App, open_app
from taskgraph.interfaces.loops import serve, work
from taskgraph.interfaces.one_graph import run_graph, taking
from taskgraph.interfaces.settings import read_settings
from taskgraph.model.errors import TaskgraphError
from taskgraph.model.flag import Flag
from taskgraph.model.ids import GRAPH, task_id_of
from taskgraph.model.states import GRAPH_ENDED
from taskgraph.storage.tables import Range, query_all
from taskgraph.worker.executors import built_in
from taskgraph.worker.loop import Worker
from tests.bench import counting
from tests.bench.sampling import Kept, Sampler

VARIABLE: Final = "TASKGRAPH_BENCH"


def cpu_seconds() -> dict[str, float]:
    """Of this process, and of its children so far.

    Those that have ended, and where Linux tells them those that live, with what these have reaped: a worker's commands
    may be children of one of its own.
    """
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    ticks = 0
    for listed in Path("/proc/self/task").glob("*/children"):
        for child in listed.read_text("ascii").split():
            with contextlib.suppress(OSError):  # it has ended meanwhile
                fields = Path(f"/proc/{child}/stat").read_text("ascii", "replace").rpartition(")")[2].split()
                ticks += sum(map(int, fields[11:15]))
    living = ticks / os.sysconf("SC_CLK_TCK")
    return {"own": own.ru_utime + own.ru_stime, "children": children.ru_utime + children.ru_stime + living}


def peak_mebibytes() -> float:
    """The largest resident set of this process so far.

    By Linux's own word where there is one: what getrusage says may be the parent's, from before the exec.
    """
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text("ascii", "replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    unit = 1024 * 1024 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


class Phase:
    """What one phase cost this process, from here to `end`. sampler: says of what, too."""

    def __init__(self, counts: counting.Counts, sampler: Sampler | None = None) -> None:
        self._counts = counts
        self._sampler = sampler
        if sampler is not None:
            sampler.start()
        self._counts.take()
        self._cpu = cpu_seconds()
        self._began = time.monotonic()

    def end(self) -> dict[str, Any]:
        sampled = {"sampled": self._sampler.stop()} if self._sampler is not None else {}
        cpu = cpu_seconds()
        return {
            "seconds": time.monotonic() - self._began,
            "cpu": {name: cpu[name] - self._cpu[name] for name in cpu},
            **self._counts.take(),
            **sampled,
        }


def quantile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed (nearest rank)."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def told_by_rows(requirements: Mapping[str, Sequence[str]], rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """What the task rows of a graph that has ended say: dispatch latencies, runs, and what is not as it should be.

    rows: label -> columns. A latency is the time from the completion of a task's last requirement to its own start,
    both as written down by whoever decided them.
    """
    latencies: list[float] = []
    wrong: list[str] = []
    repeated = 0
    for label, requires in requirements.items():
        columns = rows.get(label, {})
        if columns.get("state") != "completed":
            wrong.append(f"{label} is {columns.get('state', 'missing')}")
            continue
        repeated += columns.get("run", 0) != 0
        started = columns.get("started")
        ends = [end for each in requires if isinstance(end := rows.get(each, {}).get("resolved"), datetime)]
        if not isinstance(started, datetime) or len(ends) != len(requires):
            wrong.append(f"{label}: times are missing")
        elif ends:
            latencies.append((started - max(ends)).total_seconds())
            if latencies[-1] < 0:
                wrong.append(f"{label} began before what it requires had completed")
    latencies.sort()
    told: dict[str, Any] = {"wrong": wrong[:5], "wrongs": len(wrong), "repeatedRuns": repeated}
    if latencies:
        told["latencySeconds"] = {"p50": quantile(latencies, 0.5), "p99": quantile(latencies, 0.99)}
    return told


async def examine(app: App, graph_id: str, requirements: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """See told_by_rows; and the seconds from the end of the submission to the first start of a task."""
    wanted = Range("task:", "task;", select=("state", "run", "started", "resolved"))
    by_key = {row.key: row.columns for row in await query_all(app.tables, graph_id, wanted)}
    found = {label: by_key.get(f"task:{task_id_of(graph_id, label)}", {}) for label in requirements}
    told = told_by_rows(requirements, found)
    (graph,) = await app.tables.get(graph_id, [GRAPH])
    flipped = graph.columns.get("started") if graph else None
    starts = [start for columns in found.values() if isinstance(start := columns.get("started"), datetime)]
    if isinstance(flipped, datetime) and starts:
        told["firstStartSeconds"] = (min(starts) - flipped).total_seconds()
    return told


class Node:
    """One process. settings: `graph` its id, `document` a path, `slots`, `azure`, `weigh`; `alone`: it will `run`.

    `graphs`: so many of it, with a number behind the id; `queues`: of events, as `serve --queues` sets them.
    `look`: "cpu", to say where the time of submission and run goes; "memory", what is held half way through the run.
    """

    def __init__(self, app: App, settings: Mapping[str, Any], counts: counting.Counts) -> None:
        self._app = app
        self._graph_id = str(settings["graph"])
        self._path = Path(settings["document"])
        self._slots = int(settings["slots"])
        self._counts = counts
        self._stop = Flag()
        self._phase: Phase | None = None
        self._loops: asyncio.Task[None] | None = None
        self._alone = bool(settings.get("alone"))
        self._taking = contextlib.ExitStack()
        self._worker: Worker | None = None
        self._consumer: Consumer | None = None
        self._sampler = Sampler() if settings.get("look") == "cpu" else None
        self._kept = Kept() if settings.get("look") == "memory" else None
        self._tasks = 0
        graphs = int(settings.get("graphs", 0))
        self._graph_ids = [f"{self._graph_id}-{number}" for number in range(graphs)] or [self._graph_id]
        self._queues: int | None = settings.get("queues")
        self._ends: dict[str, float] = {}  # of graphs whose last commit was made here

    async def obey(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """Do what a line says; gives the answer."""
        match order["do"]:
            case "submit":
                return await self._submit()
            case "run":
                return await self._run()
            case "go":
                return self._go(str(order["role"]))
            case "count":
                return self._count()
            case "look":
                state = await self._app.queries.state(self._graph_id)
                return {"state": str(state), "ended": state in GRAPH_ENDED}
            case "examine":
                tasks = json.loads(self._path.read_text("utf-8"))["tasks"]
                return await examine(
                    self._app, self._graph_id, {name: task["requires"] for name, task in tasks.items()}
                )
            case "ends":
                return {"ends": self._ends}
            case "stop":
                return await self._end()
            case other:
                raise ValueError(f"no such order: {other}")

    async def _submit(self) -> dict[str, Any]:
        reading = Phase(self._counts, self._sampler)
        document = read_document(self._path.read_bytes(), source=self._path.name)
        read = reading.end()
        self._tasks = len(document.tasks)
        if self._alone:  # as `run` does
            self._worker = self._app.worker(built_in(self._app.clock), slots=self._slots)
            self._consumer = self._taking.enter_context(taking(self._app, self._graph_id, [self._worker]))
        writing = Phase(self._counts, self._sampler)
        for graph_id in self._graph_ids:
            await submit(self._app.handlers, graph_id, document)
        return {"read": read, "phase": writing.end()}

    async def _run(self) -> dict[str, Any]:
        held: dict[str, Any] = {}
        if self._kept is not None:
            self._app.handlers.listeners.news.append(lambda _: self._take_half_way(held))
        phase = Phase(self._counts, self._sampler)
        worker = self._worker or self._app.worker(built_in(self._app.clock), slots=self._slots)
        state = await run_graph(
            self._app, self._graph_id, self._stop, workers=[worker], consumer=self._consumer, fresh=True
        )
        self._taking.close()
        return {"state": str(state), "phase": phase.end(), "peak": peak_mebibytes(), **held}

    def _take_half_way(self, held: dict[str, Any]) -> None:
        """Called after each commit: what is held when half of the tasks have completed."""
        if not held and self._kept is not None:
            completed = self._app.handlers.records.begin(self._graph_id).completed
            if 2 * completed >= self._tasks:
                held.update(held=self._kept.take())

    def _go(self, role: str) -> dict[str, Any]:
        self._phase = Phase(self._counts)
        # Called in the process that made the last commit, right after it: nobody has to ask for the end.
        ended = self._app.handlers.listeners.ended
        ended.append(self._note_end)
        both = role == "both"
        if role == "handler" or both:
            workers = [self._app.worker(built_in(self._app.clock), slots=self._slots)] if both else []
            more = {} if self._queues is None else {"queues": self._queues}  # commits of before know no such thing
            loop = serve(self._app, self._stop, workers=workers, **more)
        else:
            worker = self._app.worker(built_in(self._app.clock), slots=self._slots)
            loop = work(self._app, self._stop, worker)
        self._loops = asyncio.create_task(loop)
        return {}

    def _note_end(self, graph_id: str, *_: object) -> None:  # commits of before say no state
        if graph_id == self._graph_id:
            tell(ended=time.time())
        self._ends[graph_id] = time.time()

    def _count(self) -> dict[str, Any]:
        assert self._phase is not None
        counted, self._phase = self._phase.end(), Phase(self._counts)
        return {"phase": counted}

    async def _end(self) -> dict[str, Any]:
        self._stop.set()
        if self._loops is not None:
            await self._loops
        answer: dict[str, Any] = {"peak": peak_mebibytes()}
        if self._phase is not None:
            answer["phase"] = self._phase.end()
        return answer


def tell(**report: Any) -> None:
    """One line for the parent."""
    sys.stdout.write(json.dumps(report) + "\n")
    sys.stdout.flush()


async def main() -> None:
    settings = json.loads(os.environ[VARIABLE])
    counts = counting.Counts(weigh=settings["weigh"])
    counting.install(counts, azure=settings["azure"])
    orders = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    lines: asyncio.Queue[bytes] = asyncio.Queue()

    async def listen(me: "asyncio.Task[None] | None") -> None:
        while line := await orders.readline():
            lines.put_nowait(line)
        if me is not None:
            me.cancel()  # the parent is gone, or wants no more

    async with open_app(read_settings(None, os.environ, cwd=Path.cwd())) as app:
        node = Node(app, settings, counts)
        app.schedules()  # loads what a handler has loaded long before a graph comes
        tell(ready=True, taskgraph=os.path.abspath(taskgraph.__file__))
        ear = asyncio.create_task(listen(asyncio.current_task()))
        try:
            while True:
                order = json.loads(await lines.get())
                try:
                    answer = await node.obey(order)
                except TaskgraphError as error:
                    problems = "; ".join(each.message for each in getattr(error, "problems", ())[:3])
                    tell(failed=" ".join(filter(None, (f"{type(error).__name__}: {error}", problems))))
                else:
                    tell(answer=order["do"], **answer)
        finally:
            ear.cancel()


if __name__ == "__main__":
    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(main())
