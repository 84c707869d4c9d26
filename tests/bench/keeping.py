"""What it costs to archive, delete and put back a graph of so many tasks on a store, logs not included.

    python -m tests.bench.keeping sqlite:////tmp/keeping/store.db 10000
    python -m tests.azurite -- sh -c 'python -m tests.bench.keeping "$TASKGRAPH_TEST_AZURITE" 10000'

One fan: all tasks but one, and one that requires them. Every task is claimed and completed, so that the journal and
the rows are those of a graph that ran.
"""

import asyncio
import resource
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from taskgraph.documents.read import document_from_object
from taskgraph.engine.archive import archive_to
from taskgraph.engine.archive_file import open_archive
from taskgraph.engine.delete import delete
from taskgraph.engine.restore import restore
from taskgraph.engine.submission import submit
from taskgraph.interfaces.app import App, open_app
from taskgraph.interfaces.settings import read_settings
from taskgraph.model.ids import task_id_of
from taskgraph.protocol.runs import Claim, Completed

_AT_ONCE = 2_000


async def play(app: App, graph_id: str, tasks: int) -> None:
    """Submit a fan, and complete it."""
    nodes: dict[str, Any] = {
        f"part {n}": {"task": {"payload": {"command": ["true"], "n": n}}} for n in range(tasks - 1)
    }
    parts = list(nodes)
    nodes["sum"] = {"requires": parts, "task": {"payload": {"command": ["true"]}}}
    await submit(app.handlers, graph_id, document_from_object({"tasks": nodes}))
    until, now = app.clock.now() + timedelta(hours=1), app.clock.now().isoformat()
    for start in range(0, tasks, _AT_ONCE):
        ids = [task_id_of(graph_id, label) for label in parts[start : start + _AT_ONCE]]
        await app.handlers.transition(graph_id, [Claim(each, 0, f"c{each}", "w", until) for each in ids])
        await app.handlers.advance(graph_id, [Completed(each, 0, f"c{each}", now, {"failed": False}) for each in ids])
    last = task_id_of(graph_id, "sum")
    await app.handlers.transition(graph_id, [Claim(last, 0, "c", "w", until)])
    await app.handlers.transition(graph_id, [Completed(last, 0, "c", now, {"failed": False})])
    assert await app.queries.state(graph_id) == "finished"


@asynccontextmanager
async def measured(what: str) -> AsyncIterator[None]:
    """Print how long it takes."""
    began, busy = time.perf_counter(), time.process_time()
    yield
    seconds, cpu = time.perf_counter() - began, time.process_time() - busy
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{what:8} {seconds:8.2f} s  {cpu:8.2f} s of CPU  {most:6.0f} MB at most so far", flush=True)


async def main(store: str, tasks: int) -> None:
    """Play, archive, delete, put back."""
    graph_id = f"fan-{tasks}-{int(time.time())}"
    settings = read_settings(store, {}, cwd=Path.cwd())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.json.gz"
        async with open_app(settings) as app, measured("play"):
            await play(app, graph_id, tasks)
        async with open_app(settings) as app:
            async with measured("archive"):
                done = await archive_to(app.handlers, app.logs, graph_id, path)
            async with measured("delete"):
                await delete(app.handlers, app.logs, graph_id)
            async with measured("restore"):
                with open_archive(path) as file:
                    await restore(app.handlers, app.logs, file, "file")
        print(f"{done.rows:,} rows, {path.stat().st_size:,} bytes of archive")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
