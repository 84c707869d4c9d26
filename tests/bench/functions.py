"""What the function app does in a second, and what it asks of the store: through the small host, on the emulator.

What this room is for: the figures of docs/benchmarks/functions.md. `drain`: so many results of one task each lie on the
events queue when the host starts; how fast are they handled? `flow`: a graph is submitted, and two worker processes
run it. Each with calls joined into group commits and without, and with 16 or 32 messages at a time. Operations are
counted at the ports of each process: of the app, of the host (receiving and deleting, which Azure's own host does as
well), of the workers.

    python -m tests.bench.functions [--tasks 2000] [--shape layers-10x100] [--repeat 3] [--only drain|flow] [--json]
"""

import argparse
import asyncio
import contextlib
import json
import os
import secrets
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from taskgraph.documents.read import read_document
from taskgraph.engine.handlers import Handlers
from taskgraph.engine.submission import submit
from taskgraph.interfaces.app import App, open_app
from taskgraph.interfaces.settings import read_settings
from taskgraph.model.ids import task_id_of
from taskgraph.model.messages import TaskCompleted, TaskResult
from taskgraph.model.states import GRAPH_ENDED
from taskgraph.protocol.runs import Claim
from tests.azurite import azurite, version
from tests.bench.shapes import document_text, independent, shape

ROOT: Final = Path(__file__).resolve().parents[2]
APP: Final = ROOT / "tests" / "bench" / "functions_app"
_CLAIMED_AT_ONCE: Final = 400
_PATIENCE_SECONDS: Final = 600.0
_END_SECONDS: Final = 60.0
_READY_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.05


@contextlib.contextmanager
def counted(environ: dict[str, str], file: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A command with counted ports; ended by SIGTERM, and waited for, on leaving."""
    stack = contextlib.ExitStack()
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.counted_cli", str(file), *arguments],
        cwd=ROOT,
        env=environ,
        stdout=stack.enter_context(file.with_suffix(".out").open("wb")),
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(_END_SECONDS)
        stack.close()


def wait_until_ready(host: subprocess.Popen[bytes], file: Path) -> None:
    """Until the host has its functions, and begins to receive."""
    until = time.monotonic() + _READY_SECONDS
    while '"type": "ready"' not in file.with_suffix(".out").read_text():
        if host.poll() is not None or time.monotonic() > until:
            raise SystemExit(f"the host is not ready: {file.with_suffix('.out').read_text()[-2000:]}")
        time.sleep(0.02)


async def finished(app: App, graph_id: str) -> None:
    until = time.monotonic() + _PATIENCE_SECONDS
    while await app.queries.state(graph_id) not in GRAPH_ENDED:
        if time.monotonic() > until:
            raise SystemExit(f"graph {graph_id} did not end within {_PATIENCE_SECONDS:.0f} s")
        await asyncio.sleep(_LOOK_SECONDS)


async def fill(handlers: Handlers, graph_id: str, labels: list[str]) -> None:
    """Claim all tasks, and put one result each on the events queue."""
    lease_until = handlers.clock.now() + timedelta(hours=1)
    claims = [Claim(task_id_of(graph_id, label), 0, f"c-{label}", "bench", lease_until) for label in labels]
    for start in range(0, len(claims), _CLAIMED_AT_ONCE):
        await handlers.transition(graph_id, claims[start : start + _CLAIMED_AT_ONCE])
    ended = handlers.clock.now().isoformat()
    await handlers.dispatcher.send_events(
        [
            TaskCompleted(graph_id, (TaskResult(claim.task_id, 0, claim.claim, ended, {"failed": False}),), "bench")
            for claim in claims
        ]
    )


async def cell(kind: str, environ: dict[str, str], options: argparse.Namespace) -> dict[str, Any]:
    """One measurement."""
    environ = {**environ, "TASKGRAPH_PREFIX": f"b{secrets.token_hex(5)}"}
    wanted = independent(options.tasks) if kind == "drain" else shape(options.shape).make()
    graph_id = f"bench-{kind}"
    document = read_document(document_text(wanted, "noop"), source="bench")
    with tempfile.TemporaryDirectory(prefix="taskgraph-bench-") as folder, contextlib.ExitStack() as stack:
        files = {name: Path(folder) / name for name in ("app", "host", "worker-1", "worker-2")}
        environ["TASKGRAPH_BENCH_COUNTS"] = str(files["app"])
        async with open_app(read_settings(None, environ, cwd=ROOT)) as app:
            if kind == "drain":
                await submit(app.handlers, graph_id, document)
                await fill(app.handlers, graph_id, list(wanted))
            start = ("functions", "start", "--app", str(APP), "--json")
            host = stack.enter_context(counted(environ, files["host"], *start))
            wait_until_ready(host, files["host"])
            if kind == "flow":
                for name in ("worker-1", "worker-2"):
                    stack.enter_context(counted(environ, files[name], "worker", "--executor", "noop", "--slots", "8"))
                await asyncio.sleep(2.0)  # both listen
                began = time.monotonic()
                await submit(app.handlers, graph_id, document)
            else:
                began = time.monotonic()
            await finished(app, graph_id)
            seconds = time.monotonic() - began
            stack.close()
        counts = {name: json.loads(file.read_text()) for name, file in files.items() if file.exists()}
    return figures(counts, len(wanted), seconds)


def figures(counts: dict[str, Any], tasks: int, seconds: float) -> dict[str, Any]:
    """What is told of a measurement. Receives that gave nothing are left out, as in all benchmarks."""
    operations = {
        name: sum(count for kind, count in told["operations"].items() if kind != "empty")
        for name, told in counts.items()
    }
    app, host = counts["app"], operations["host"]
    workers = sum(count for name, count in operations.items() if name.startswith("worker"))
    return {
        "perSecond": tasks / seconds,
        "seconds": seconds,
        "appOperations": operations["app"] / tasks,
        "hostOperations": host / tasks,
        "workerOperations": workers / tasks,
        "operations": (operations["app"] + host + workers) / tasks,
        "commits": app["operations"].get("commit", 0) / tasks,
        "conflicts": app["sums"].get("conflicts", 0) / max(1, app["operations"].get("commit", 0)),
        "appCpuMs": app["cpu"] / tasks * 1000,
        "hostCpuMs": counts["host"]["cpu"] / tasks * 1000,
        "messages": counts["host"]["sums"].get("messagesReceived", 0) / tasks,
    }


def told(name: str, results: list[dict[str, Any]]) -> dict[str, Any]:
    """The medians, and how far the speed spreads."""
    made: dict[str, Any] = {key: statistics.median(each[key] for each in results) for key in results[0]}
    made["cell"], made["repeats"] = name, len(results)
    made["least"], made["most"] = (choose(each["perSecond"] for each in results) for choose in (min, max))
    return made


def show(rows: list[dict[str, Any]]) -> None:
    print(f"azurite {version()}; medians; operations, commits of the app, CPU: for each task\n")
    columns = ["cell", "tasks/s", "messages", "operations", "app", "host", "workers", "commits", "conflicts"]
    columns += ["CPU of app", "CPU of host"]
    print(f"| {' | '.join(columns)} |")
    print("|---" * len(columns) + "|")
    for row in rows:
        spread = f"{row['perSecond']:,.0f} ({row['least']:,.0f}–{row['most']:,.0f})"
        parts = [f"{row[f'{part}Operations']:.2f}" for part in ("app", "host", "worker")]
        print(
            f"| {row['cell']} | {spread} | {row['messages']:.2f} | {row['operations']:.2f} | {' | '.join(parts)} "
            f"| {row['commits']:.3f} | {row['conflicts']:.1%} | {row['appCpuMs']:.2f} ms | {row['hostCpuMs']:.2f} ms |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.functions", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--tasks", type=int, default=2000, help="results that lie on the queue in `drain`")
    parser.add_argument("--shape", default="layers-10x100", help="graph of `flow`")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", choices=("drain", "flow"))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    kinds = [options.only] if options.only else ["drain", "flow"]
    cells = [(kind, mode, batch) for kind in kinds for mode in ("on", "off") for batch in (16, 32)]
    results: dict[str, list[dict[str, Any]]] = {}
    with azurite() as connection_string:
        for _ in range(options.repeat):
            for kind, mode, batch in cells:
                environ = {
                    **os.environ,
                    "TASKGRAPH_STORE": connection_string,
                    "TASKGRAPH_GROUP_COMMIT": mode,
                    "AzureFunctionsJobHost__extensions__queues__batchSize": str(batch),
                    "AzureFunctionsJobHost__extensions__queues__newBatchThreshold": str(batch // 2),
                }
                name = f"{kind}, {batch} at a time, group commit {mode}"
                results.setdefault(name, []).append(asyncio.run(cell(kind, environ, options)))
                print(f"{name}: {results[name][-1]['perSecond']:,.0f}/s", file=sys.stderr)
    rows = [told(name, each) for name, each in results.items()]
    if options.json:
        print(json.dumps(rows, indent=2))
    else:
        show(rows)


if __name__ == "__main__":
    main()
