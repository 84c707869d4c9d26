"""Work that comes by a ring and not by polling, in processes of their own; and work that comes without any sockets."""

import contextlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from taskgraph.interfaces.app import wakeup_sockets_of
from taskgraph.interfaces.settings import read_settings
from taskgraph.model.clock import SystemClock
from tests.e2e.processes import command, started, taskgraph, until, write_graph

# The command line, but whoever has found nothing asks again after an hour: what comes earlier came with a ring.
PATIENT = """
import sys
from taskgraph.interfaces import app; from taskgraph.storage.signals import wakeup
from taskgraph.__main__ import main
wakeup._POLLED_SECONDS_MIN = wakeup._RUNG_SECONDS_MIN = 3600.0
app.idle_seconds_max = lambda lease_seconds: 3600.0
sys.argv[0] = "taskgraph"
main()
"""

Place = tuple[str, dict[str, Any], Path]


@pytest.fixture(params=["embedded", pytest.param("azurite", marks=[pytest.mark.azurite, pytest.mark.campaign])])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """A store for processes: its address, further environment, and the folder of its sockets."""
    folder = Path(tempfile.mkdtemp(prefix="taskgraph-bell-", dir="/tmp"))  # short enough for sockets
    if request.param == "embedded":
        store, more = f"sqlite:///{folder}/store.db", {}
    else:
        store = request.getfixturevalue("azurite")
        more = {"TASKGRAPH_PREFIX": f"t{abs(hash(str(folder))) % 10**9}", "TMPDIR": str(folder)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(folder))  # as TMPDIR does for the processes
        sockets = wakeup_sockets_of(read_settings(store, more, cwd=folder), SystemClock())
    assert sockets is not None
    assert sockets._folder.is_relative_to(folder)
    yield store, more, sockets._folder
    shutil.rmtree(folder)


@contextlib.contextmanager
def patient(*words: str, place: Place, cwd: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process of the command line that hardly ever polls, once it listens: `serve` for events and for schedules."""
    store, more, bells = place
    wanted = len(list(bells.glob("*"))) + (2 if words[0] == "serve" else 1)
    with started(*words, store=store, cwd=cwd, code=PATIENT, **more) as process:
        until(lambda: len(list(bells.glob("*"))) >= wanted, what=f"{words[0]} listens")
        yield process


def finish(place: Place, cwd: Path, tasks: dict[str, Any], graph_id: str) -> dict[str, Any]:
    """Submit, and wait for the end; gives the status."""
    store, more, _ = place
    file = write_graph(cwd / f"{graph_id}.json", tasks)
    words = ("submit", str(file), "--id", graph_id, "--wait", "--timeout", "60")
    submitted = taskgraph(*words, store=store, cwd=cwd, **more)
    logs = "".join(path.read_text() for path in cwd.glob("*.log"))
    assert submitted.returncode == 0, submitted.stderr + logs
    status: dict[str, Any] = json.loads(taskgraph("status", graph_id, "--json", store=store, cwd=cwd, **more).stdout)
    assert status["state"] == "finished"
    return status


# Every other task has another target, so that each step of the chain goes from a worker to the handler and on.
CHAIN = {
    "a": command("true"),
    "b": command("true", requires=("a",), target="other"),
    "c": command("true", requires=("b",)),
    "d": command("true", requires=("c",), target="other"),
}


def test_rings_alone_bring_a_graph_to_its_end(place: Place, tmp_path: Path) -> None:
    with (
        patient("serve", place=place, cwd=tmp_path),
        patient("worker", place=place, cwd=tmp_path),
        patient("worker", "--target", "other", place=place, cwd=tmp_path),
    ):
        for graph_id in ("one", "two"):
            assert finish(place, tmp_path, CHAIN, graph_id)["taskCount"] == 4
    assert not place[2].exists()  # whoever leaves takes its sockets along


def test_a_worker_that_was_killed_leaves_a_socket_that_does_no_harm(place: Place, tmp_path: Path) -> None:
    with patient("serve", place=place, cwd=tmp_path):
        with patient("worker", place=place, cwd=tmp_path) as killed:
            killed.kill()
            killed.wait()
        assert len(list(place[2].glob("*"))) == 3  # serve listens for events and for schedules
        with patient("worker", place=place, cwd=tmp_path):
            number = 0
            while len(list(place[2].glob("*"))) > 3:  # it goes with the first ring that it refuses
                assert number < 20
                finish(place, tmp_path, {"a": command("true")}, f"g{number}")
                number += 1
            finish(place, tmp_path, {"a": command("true")}, "last")


def test_without_a_bell_work_is_found_by_polling(place: Place, tmp_path: Path) -> None:
    store, more, bells = place
    bells.parent.mkdir(parents=True, exist_ok=True)
    bells.write_text("no folder")
    with (
        started("serve", store=store, cwd=tmp_path, **more),
        started("worker", "--target", "default", "--target", "other", store=store, cwd=tmp_path, **more),
    ):
        finish(place, tmp_path, CHAIN, "g")
    assert bells.read_text() == "no folder"
