"""A graph that was run for real over the emulator, and then left standing: what the page on explorers looks at.

`build` completed, `lint` failed for good after a rerun, `test` runs, `sign` waits for a worker of another target,
`publish` and `gather` wait for tasks. A hundred and one requirements make `gather` wide, so joins stand before it.
"""

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from azure.core.exceptions import ResourceExistsError
from azure.data.tables import TableClient
from azure.storage.queue import QueueClient

from tests.e2e.processes import command, environment, taskgraph, until

GRAPH: Final = "nightly"
PARTS: Final = tuple(f"part {number:03}" for number in range(100))
DUE: Final = "2098-08-01T06:00:00Z"
NEVER: Final = "2099-12-31T00:00:00Z"


def tasks() -> dict[str, Any]:
    """The document's tasks."""
    return {
        "build": command("echo", "built", deadline=DUE),
        "lint": command("sh", "-c", "exit 3", requires=("build",), reruns=1),
        "test": command("sleep", "600", requires=("build",), deadline="2098-08-01T08:00:00+02:00"),
        "sign": command("true", requires=("build",), target="release"),
        "publish": command("true", requires=("lint", "test"), deadline=NEVER),
        **{part: {"requires": ["build"], "task": {}} for part in PARTS},
        "gather": {"requires": ["test", *PARTS], "task": {}},
    }


@dataclass(frozen=True)
class Scene:
    """The store, and where commands are run."""

    connection: str
    prefix: str
    folder: Path

    def run(self, *words: str, **more: str) -> "subprocess.CompletedProcess[str]":
        """A command of taskgraph over this store."""
        done: subprocess.CompletedProcess[str] = taskgraph(
            *words, store=self.connection, cwd=self.folder, TASKGRAPH_PREFIX=self.prefix, **more
        )
        return done

    def told(self, *words: str) -> Any:
        """What a command says as JSON, however it ends."""
        return json.loads(self.run(*words, "--json").stdout)

    @property
    def table_endpoint(self) -> str:
        return dict(part.split("=", 1) for part in self.connection.split(";") if part)["TableEndpoint"]

    def _rows(self, condition: str) -> list[dict[str, Any]]:
        with TableClient.from_connection_string(self.connection, self.prefix) as client:
            return [dict(each) for each in client.query_entities(condition, select=["label", "state"])]

    def states(self) -> dict[str, str]:
        """Label -> state, in one look."""
        rows = self._rows(f"PartitionKey eq '{GRAPH}' and RowKey ge 'task:' and RowKey lt 'task;'")
        return {row["label"]: row["state"] for row in rows}

    def settled(self) -> bool:
        """Whether nothing moves any more but `test`, and the message has been set aside."""
        states = self.states()
        wanted = {"lint": "failed", "test": "running", "sign": "pending"}
        wanted |= {"publish": "unscheduled", "gather": "unscheduled"}
        poison = self._rows("PartitionKey eq 'index:poison' and state eq 'poison'")
        return bool(poison) and states == {**dict.fromkeys(states, "completed"), **wanted}


@contextlib.contextmanager
def staged(connection: str, prefix: str, folder: Path) -> Iterator[Scene]:
    """Submit, serve until nothing moves any more but `test`, and kill the server: the rows stand still after that."""
    scene = Scene(connection, prefix, folder)
    (folder / "nightly.json").write_text(json.dumps({"metadata": {"name": "nightly"}, "tasks": tasks()}))
    submitted = scene.run("submit", "nightly.json", "--id", GRAPH)
    assert submitted.returncode == 0, submitted.stderr
    _send_nonsense(scene)
    with (folder / "serve.log").open("wb") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "taskgraph", "serve", "--worker", "4"],
            cwd=folder,
            env=environment(connection, TASKGRAPH_PREFIX=prefix),
            stdout=log,
            stderr=log,
        )
        try:
            until(lambda: scene.settled(), seconds=90, what="the graph to stand still")
        finally:
            server.send_signal(signal.SIGKILL)  # which leaves the run of `test` on the row, as a dead machine would
            server.wait()
    yield scene


def _send_nonsense(scene: Scene) -> None:
    """A message that nobody understands, as another program might send it."""
    with QueueClient.from_connection_string(scene.connection, f"{scene.prefix}-events") as queue:
        with contextlib.suppress(ResourceExistsError):
            queue.create_queue()
        queue.send_message('{"version": 1, "type": "nonsense"}')
