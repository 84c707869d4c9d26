"""The server of workers over HTTP is killed time and again, at moments that are drawn, while real workers work by it.

Beside it a worker runs that has the store itself. What the tasks did is in a file: no run may be in it twice, and what
is in it must be what the rows say.
"""

import json
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest

from taskgraph.model import limits
from tests.e2e.processes import environment, taskgraph
from tests.e2e.test_workers_over_http import worker

LAYERS: Final = 6
WIDTH: Final = 10
KILLS: Final = 12


def document(done: Path) -> dict[str, Any]:
    """Layers of commands that take a moment; each notes in a file that it ran."""
    write = f'sleep 0.$1; echo "$0" >>{done}'
    return {
        "groups": {f"l{n}": {"tasks": [f"{n}-{m}" for m in range(WIDTH)]} for n in range(LAYERS)},
        "tasks": {
            f"{n}-{m}": {
                "requires": [f"l{n - 1}"] if n else [],
                "task": {"target": "box", "payload": {"command": ["sh", "-c", write, f"{n}-{m}", str(m)]}},
            }
            for n in range(LAYERS)
            for m in range(WIDTH)
        },
    }


class Serving:
    """A server that is killed and begun again, on one port."""

    def __init__(self, store: str, folder: Path) -> None:
        self._store = store
        self._folder = folder
        with socket.create_server(("127.0.0.1", 0)) as bound:
            self.port = bound.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}/api/v1"
        self.process = self._begin()

    def _begin(self) -> subprocess.Popen[bytes]:
        typed = [sys.executable, "-m", "taskgraph", "serve", "--http", str(self.port)]
        with (self._folder / "serve.log").open("ab") as log:
            return subprocess.Popen(typed, env=environment(self._store), cwd=self._folder, stderr=log)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)
        self.process = self._begin()

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)


@pytest.mark.campaign
@pytest.mark.parametrize("seed", [1, 2])
def test_the_server_is_killed_while_workers_work(tmp_path: Path, seed: int) -> None:
    store, done = f"sqlite:///{tmp_path}/store.db", tmp_path / "done"
    drawn = random.Random(seed)
    token = taskgraph("token", "create", "box", "--role", "worker", store=store, cwd=tmp_path).stdout.strip()
    (tmp_path / "graph.json").write_text(json.dumps(document(done)))
    assert taskgraph("submit", "graph.json", "--id", "g", store=store, cwd=tmp_path).returncode == 0
    serving = Serving(store, tmp_path)
    beside = [sys.executable, "-m", "taskgraph", "worker", "--slots", "1", "--target", "box", "--lease-seconds", "10"]
    python = subprocess.Popen(beside, env=environment(store), cwd=tmp_path, stderr=subprocess.DEVNULL)
    try:
        with (
            worker("node", tmp_path, serving.address, token, SLOTS="2"),
            worker("sh", tmp_path, serving.address, token),
        ):
            for _ in range(KILLS):
                time.sleep(drawn.uniform(0.3, 3.0))
                serving.kill()
            watched = taskgraph("watch", "g", "--timeout", "150", store=store, cwd=tmp_path)
        assert watched.returncode == 0, watched.stdout + watched.stderr
    finally:
        python.send_signal(signal.SIGTERM)
        python.wait(30)
        serving.end()
    rows = json.loads(taskgraph("show", "g", "--json", store=store, cwd=tmp_path).stdout)["tasks"]
    runs = Counter(done.read_text().split())
    assert len(rows) == LAYERS * WIDTH
    lost = 0
    for each in rows:
        assert each["state"] == "completed", each
        task = json.loads(taskgraph("task", "g", each["label"], "--json", store=store, cwd=tmp_path).stdout)
        lost += limits.RETRIES_DEFAULT - task["retriesLeft"]
        assert 1 <= runs[each["label"]] <= task["run"] + 1, "no run was begun twice"
    assert runs.total() <= len(rows) + lost + 3
    sound = taskgraph("doctor", "g", "--json", store=store, cwd=tmp_path)
    assert sound.returncode == 0, sound.stdout
    workers = {each["worker"] for each in rows if "worker" in each}
    print(f"{KILLS} kills, {lost} runs lost with them, by {workers}")
