"""Extensions of graphs that are blocked or paused, typed and asked for by running tasks: real processes."""

import json
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.processes import command, started, taskgraph, until, write_graph
from tests.http.typed import both_doors

Run = Callable[..., Any]

MORE = {"found": command("echo", "found", requires=("discover",))}


@pytest.fixture
def tg(tmp_path: Path) -> Iterator[Run]:
    """Commands in the test's own folder, over its own store, which is served there."""
    store = f"sqlite:///{tmp_path}/store.db"
    write_graph(tmp_path / "more.json", MORE)

    def run(*words: str) -> Any:
        return taskgraph(*words, store=store, cwd=tmp_path)

    with started("serve", "--worker", "2", store=store, cwd=tmp_path):
        yield run


def task_state(tg: Run, label: str) -> str:
    told = tg("task", "g", label, "--json")
    return str(json.loads(told.stdout)["state"]) if told.returncode == 0 else ""


def graph_state(tg: Run) -> str:
    return str(json.loads(tg("status", "g", "--json").stdout)["state"])


def submit_discovering(tg: Run, folder: Path, **others: Any) -> None:
    """A graph with a task that extends it, as a shell types it, as soon as there is a file `gate`. It runs already."""
    taskgraph_ = f"{shlex.quote(sys.executable)} -m taskgraph"
    line = f"touch begun; while ! test -e gate; do sleep 0.05; done; {taskgraph_} extend $TASKGRAPH_GRAPH_ID more.json"
    file = write_graph(folder / "g.json", {"discover": command("sh", "-c", line), **others})
    assert tg("submit", str(file), "--id", "g").returncode == 0
    until((folder / "begun").exists, what="the task runs")


def test_a_running_task_extends_its_graph_that_is_blocked(tg: Run, tmp_path: Path) -> None:
    submit_discovering(tg, tmp_path, bad=command("false"))
    until(lambda: graph_state(tg) == "blocked", what="the graph is blocked")
    (tmp_path / "gate").touch()
    until(lambda: task_state(tg, "found") == "completed", what="what was added has run")
    assert task_state(tg, "discover") == "completed"
    assert "1 task added" in tg("logs", "g", "discover").stdout
    assert graph_state(tg) == "blocked"


def test_a_running_task_extends_its_graph_that_is_paused(tg: Run, tmp_path: Path) -> None:
    submit_discovering(tg, tmp_path)
    assert tg("pause", "g").returncode == 0
    (tmp_path / "gate").touch()
    until(lambda: task_state(tg, "discover") == "completed", what="the task has completed")
    assert "1 task staged: made at resume, as the graph is paused" in tg("logs", "g", "discover").stdout
    assert (graph_state(tg), task_state(tg, "found")) == ("running", ""), "it waits for what is to be added"
    assert tg("resume", "g").returncode == 0
    assert tg("watch", "g", "--timeout", "60").returncode == 0
    assert task_state(tg, "found") == "completed"


@both_doors
def test_a_paused_graph_is_extended_by_hand(tg: Run, tmp_path: Path) -> None:
    submit_discovering(tg, tmp_path)
    assert tg("pause", "g").returncode == 0
    asked = tg("extend", "g", "more.json")
    assert (asked.returncode, "1 task staged: made at resume, as the graph is paused" in asked.stderr) == (0, True)
    again = tg("extend", "g", "more.json", "--json")
    assert again.returncode == 0
    told = json.loads(again.stdout)
    assert (told["request"], told["state"], told["waitsFor"]) == (asked.stdout.strip(), "staged", "resume")
    late = tg("extend", "g", "more.json", "--wait", "--timeout", "0.5")
    assert late.returncode == 124
    assert "is staged after 0.5 s" in late.stderr
    with started("extend", "g", "more.json", "--wait", store=f"sqlite:///{tmp_path}/store.db", cwd=tmp_path) as waiting:
        assert tg("resume", "g").returncode == 0
        assert waiting.wait(timeout=60) == 0
    assert "1 task added" in (tmp_path / "extend.log").read_text()
    (tmp_path / "gate").touch()
    assert tg("watch", "g", "--timeout", "60").returncode == 0
