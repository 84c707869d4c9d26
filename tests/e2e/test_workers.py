"""Workers in processes of their own: listed, drained, killed, and bound to labels and hosts."""

import asyncio
import json
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from taskgraph.interfaces.app import App, open_app
from taskgraph.interfaces.settings import read_settings
from taskgraph.queries.values import TaskStatus
from taskgraph.queries.workers import WorkerStatus, workers
from tests.e2e.processes import command, started, taskgraph, until, write_graph

T = TypeVar("T")
_LOOK_SECONDS = 0.3


class Eyes:
    """What the store says, asked from within: a process for each look would take most of the test's time."""

    def __init__(self, store: str, folder: Path) -> None:
        self._settings = read_settings(store, {}, cwd=folder)

    def workers(self) -> list[WorkerStatus]:
        async def look(app: App) -> list[WorkerStatus]:
            return await workers(app.tables, app.clock.now())

        return self._ask(look)

    def task(self, label: str) -> TaskStatus:
        return self._ask(lambda app: app.queries.task_status("g", label))

    def states(self, *labels: str) -> list[str]:
        return [self.task(label).state for label in labels]

    def _ask(self, look: Callable[[App], Awaitable[T]]) -> T:
        async def asked() -> T:
            async with open_app(self._settings) as app:
                return await look(app)

        time.sleep(_LOOK_SECONDS)
        return asyncio.run(asked())


def test_a_worker_is_listed_drained_and_killed_and_its_tasks_return(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/store.db"
    eyes = Eyes(store, tmp_path)

    def said(*words: str, code: int = 0) -> Any:
        done = taskgraph(*words, "--json", store=store, cwd=tmp_path)
        assert done.returncode == code, done.stdout + done.stderr
        return json.loads(done.stdout)

    quick = ("--lease-seconds", "4")  # so it gives word every 2 s
    gate = command("sh", "-c", "while ! test -e gate; do sleep 0.1; done")
    bound = command("true", workerLabels=["gpu"])
    hosted = command("true", host="lab.example.com")
    graph = write_graph(tmp_path / "graph.json", {"gate": gate, "bound": bound, "hosted": hosted})
    with (
        started("serve", store=store, cwd=tmp_path),
        started("worker", "--slots", "2", *quick, store=store, cwd=tmp_path, name="plain") as plain,
    ):
        assert taskgraph("submit", str(graph), "--id", "g", store=store, cwd=tmp_path).returncode == 0
        until(lambda: [each for each in eyes.workers() if each.busy], what="a worker that is busy")
        until(lambda: eyes.task("bound").refusal, what="a worker that lacks the label")
        (one,) = said("workers")["workers"]
        assert (one["slots"], one["running"], one["state"]) == (2, [{"graph": "g", "label": "gate"}], "active")
        (why,) = said("why", "g", "bound")["reasons"]
        assert "no registered worker of the target default has the label gpu" in why["text"]
        assert "gave it back" in why["text"]
        assert "taskgraph worker --target default --label gpu" in why["remedy"]
        (why,) = said("why", "g", "hosted")["reasons"]
        assert "no registered worker serves the target host-lab-example-com-" in why["text"]
        assert why["remedy"] == "start a worker: taskgraph worker --host lab.example.com"

        able = ("--label", "gpu", "--host", "lab.example.com")
        with started("worker", *able, *quick, store=store, cwd=tmp_path, name="able") as second:
            until(
                lambda: eyes.states("bound", "hosted") == ["completed", "completed"],
                seconds=60,
                what="the two that waited",
            )
            plain.kill()  # with `gate` in hand
            until(lambda: eyes.task("gate").run == 1, seconds=60, what="the lost run given up")
            (tmp_path / "gate").touch()
            assert taskgraph("watch", "g", store=store, cwd=tmp_path).returncode == 0
            until(lambda: sorted(each.state for each in eyes.workers()) == ["active", "gone"], seconds=60)
            (live,) = [each for each in said("workers", "--target", "default")["workers"] if each["state"] == "active"]
            assert (live["labels"], live["host"]) == (["gpu"], "lab.example.com")
            drained = said("workers", "drain", live["name"], "--exit", "--wait", "--timeout", "30")
            assert drained["state"] == "ended"
            assert second.wait(timeout=20) == 0
    said("workers", "drain", "nobody", code=3)


def test_a_worker_that_is_told_to_stop_takes_its_row_away(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/store.db"

    eyes = Eyes(store, tmp_path)
    with started("serve", "--worker", "2", store=store, cwd=tmp_path) as child:
        until(eyes.workers, what="a worker")
        child.send_signal(signal.SIGTERM)
        assert child.wait(timeout=20) == 0
    assert eyes.workers() == []
    words = taskgraph("workers", store=store, cwd=tmp_path)
    assert "no worker is registered" in words.stderr
