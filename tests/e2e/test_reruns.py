"""Several tasks failed: what is said of them, and how they run again, with and without a process that handles it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.processes import command, started, taskgraph, until, write_graph

Run = Callable[..., Any]


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


@pytest.fixture
def tg(tmp_path: Path, store: str) -> Run:
    return lambda *words: taskgraph(*words, store=store, cwd=tmp_path)


@pytest.fixture
def blocking(tmp_path: Path) -> str:
    fails = command("test", "-e", "mended")
    tasks = {"a": fails, "b": fails, "other": command("true"), "last": command("true", requires=("a", "b"))}
    return str(write_graph(tmp_path / "graph.json", tasks))


def test_all_that_failed_are_run_again_at_once(tg: Run, tmp_path: Path, blocking: str) -> None:
    mended = "when all is mended: taskgraph rerun g --failed"
    run = tg("run", blocking, "--id", "g")
    assert run.returncode == 1
    assert f"{mended}, then taskgraph run --id g\n" in run.stderr
    assert f"{mended}\n" in tg("status", "g").stderr
    wrong = tg("rerun", "g")
    assert (wrong.returncode, "one of the four" in wrong.stderr) == (2, True), wrong.stderr
    refused = tg("rerun", "g", "a", "last")
    assert (refused.returncode, refused.stdout) == (4, "")
    assert "“last” cannot be rerun: the task is unscheduled" in refused.stderr

    (tmp_path / "mended").touch()
    asked = tg("rerun", "g", "a", "b", "--reason", "mended")
    assert asked.stdout == "run 1 of “a” is asked for\nrun 1 of “b” is asked for\n"
    assert asked.stderr == ("no handler reads its results: start taskgraph serve, or taskgraph run --id g\n")
    late = tg("rerun", "g", "--failed", "--wait", "--timeout", "0.1", "--json")
    assert late.returncode == 124
    assert "graph g: not all of it is taken up after 0.1 s" in late.stderr
    assert tg("run", "--id", "g").returncode == 0
    journal = tg("events", "g", "--filter", "event=task-rerun").stdout
    assert journal.count("because=asked reason=mended") == 2
    nothing = tg("rerun", "g", "--failed")
    assert (nothing.returncode, nothing.stdout) == (4, "")
    assert "no task of graph g failed for good; name those" in nothing.stderr


def test_who_has_handlers_is_not_sent_to_start_some(tg: Run, store: str, tmp_path: Path, blocking: str) -> None:
    with started("serve", "--worker", "2", store=store, cwd=tmp_path):
        until(lambda: tg("submit", blocking, "--id", "g").returncode == 0)
        watched = tg("watch", "g", "--timeout", "30")
        assert watched.returncode == 1
        assert "when all is mended: taskgraph rerun g --failed\n" in watched.stderr
        assert "taskgraph run" not in watched.stderr
        (tmp_path / "mended").touch()
        rerun = tg("rerun", "g", "--failed", "--wait", "--json")
        assert (rerun.returncode, rerun.stderr) == (0, "")
        told = json.loads(rerun.stdout)
        assert ([each["label"] for each in told["tasks"]], told["settled"]) == (["a", "b"], True)
        assert tg("watch", "g", "--timeout", "30").returncode == 0
        assert tg("submit", blocking, "--id", "h", "--wait").stderr.count("serve") == 0
