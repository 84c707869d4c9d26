"""Run the graphs of a folder end to end, one line each, and check what they leave: `scripts/graphs FOLDER`.

The check reads rows only, and takes the requirements from the source file: every task has exactly one run, and none
began before all that it requires had ended. Each graph runs in a process of its own, so that its wall time and its
largest resident set are its own.
"""

import argparse
import asyncio
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

from taskgraph.interfaces.app import open_app
from taskgraph.interfaces.settings import read_settings
from taskgraph.model.ids import task_id_of
from taskgraph.storage.tables import Range, query_all


def read_source(path: Path) -> dict[str, list[str]]:
    """Label -> requirements, as the file says."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return {label: list(task["requires"]) for label, task in json.loads(data)["tasks"].items()}


async def check_rows(store: str, graph_id: str, source: dict[str, list[str]]) -> list[str]:
    """What is wrong with the rows that a finished graph left."""
    async with open_app(read_settings(store, {}, cwd=Path.cwd())) as app:
        rows = {row.key: row.columns for row in await query_all(app.tables, graph_id, Range("task:", "task;"))}
    wrong: list[str] = []
    if len(rows) != len(source):
        wrong.append(f"{len(rows)} task rows for {len(source)} tasks")
    ended: dict[str, datetime] = {}
    for label in source:
        row = rows.get(f"task:{task_id_of(graph_id, label)}", {})
        if row.get("state") != "completed" or row.get("run") != 0 or row.get("runs"):
            wrong.append(f"{label}: state {row.get('state')}, run {row.get('run')}")
        elif isinstance(moment := row.get("resolved"), datetime):
            ended[label] = moment
    for label, requires in source.items():
        started = rows.get(f"task:{task_id_of(graph_id, label)}", {}).get("started")
        wrong.extend(
            f"{label} began before {required} had ended"
            for required in requires
            if not isinstance(started, datetime) or required not in ended or started < ended[required]
        )
    return wrong


def run(command: list[str], store: str, output: Path) -> tuple[int, float, float]:
    """Exit code, seconds, and MiB of the largest resident set of a child process, whose words go to a file."""
    began = time.monotonic()
    with output.open("wb") as words:
        child = subprocess.Popen(command, stdout=words, stderr=words, env={**os.environ, "TASKGRAPH_STORE": store})
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    return child.returncode, time.monotonic() - began, usage.ru_maxrss / 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--store", help="a connection string; a fresh SQLite file for each graph otherwise")
    parser.add_argument("--tasks-max", type=int, default=10**9)
    parser.add_argument("--match", default="")
    parser.add_argument("--slots", type=int, default=2)
    options = parser.parse_args()
    files = sorted(
        (len(source), path, source)
        for path in [*options.folder.glob("*.json"), *options.folder.glob("*.json.gz")]
        if options.match in path.name and len(source := read_source(path)) <= options.tasks_max
    )
    failures = 0
    print(f"{'graph':42} {'tasks':>6} {'edges':>6} {'seconds':>8} {'tasks/s':>8} {'MiB':>5}  check", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for tasks, path, source in files:
            document = str(Path(folder, f"{path.name}.taskgraph.json"))
            store = options.store or f"sqlite:///{folder}/{path.name}.db"
            graph_id = f"{path.name.split('.')[0]}-{os.getpid()}"[:64]
            me = [sys.executable, "-m", "taskgraph"]
            output = Path(folder, "output")
            imported, _, _ = run([*me, "import", "--from", "neutral", str(path), "-o", document], store, output)
            command = ["run", document, "--id", graph_id, "--executor", "noop", "--slots", str(options.slots)]
            code, seconds, mebibytes = run([*me, *command], store, output)
            wrong = asyncio.run(check_rows(store, graph_id, source)) if code == 0 else [f"exit {code}"]
            if imported != 0 or wrong:
                failures += 1
                sys.stderr.write(output.read_text()[-2000:])
            edges = sum(map(len, source.values()))
            verdict = "one run each, in order" if not wrong else "; ".join(wrong[:3])
            print(
                f"{path.name:42} {tasks:6} {edges:6} {seconds:8.2f} {tasks / seconds:8.0f} {mebibytes:5.0f}  {verdict}",
                flush=True,
            )
    print(f"{len(files)} graphs, {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
