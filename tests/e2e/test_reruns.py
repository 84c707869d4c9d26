"""Several tasks failed: what is said of them, and how they run again, with and without a process that handles it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.processes import command, started, taskgraph, until, write_graph
from tests.http.typed import both_doors

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


@both_doors
def test_all_that_failed_are_run_again_at_once(tg: Run, tmp_path: Path, blocking: str, door: str) -> None:
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
    how = "or taskgraph run --id g" if door == "embedded" else "where the store itself can be reached"
    assert asked.stderr == f"no handler reads its results: start taskgraph serve, {how}\n"
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
        until(lambda: json.loads(tg("workers", "--json").stdout)["handlers"])
        assert tg("submit", blocking, "--id", "g").returncode == 0
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


@both_doors
def test_what_has_ended_runs_again_with_all_that_has_worked_with_it(tg: Run, tmp_path: Path) -> None:
    def lines(label: str, *requires: str) -> dict[str, Any]:
        return command("sh", "-c", f"echo {label} >> ran", requires=requires)

    tasks = {"fetch": lines("fetch"), "build": lines("build", "fetch"), "test": lines("test", "build"), "x": lines("x")}
    file = write_graph(tmp_path / "graph.json", tasks)
    assert tg("run", str(file), "--id", "g").returncode == 0
    refused = tg("rerun", "g", "fetch")
    assert (refused.returncode, refused.stdout) == (4, "")
    assert "“build” and 1 more ran after “fetch”, and would have to run again; say --downstream" in refused.stderr
    asked = json.loads(tg("rerun", "g", "fetch", "--downstream", "--reason", "it was old", "--json").stdout)
    assert ([each["label"] for each in asked["tasks"]], asked["following"]) == (["fetch"], ["build", "test"])
    again = tg("run", "--id", "g")
    assert again.returncode == 0
    assert "✓ finished  g  4/4 completed  3 reruns" in again.stdout
    assert (tmp_path / "ran").read_text().split()[4:] == ["fetch", "build", "test"]
    (*_, reopened) = json.loads(tg("events", "g", "--json", "--filter", "event=graph-running").stdout)["events"]
    assert (reopened["was"], reopened["reason"]) == ("finished", "it was old")
    assert reopened["by"]
    assert tg("rerun", "g", "--all").stdout == (
        "run 2 of “fetch” is asked for\nrun 1 of “x” is asked for\n2 tasks will run again after that: “build”, “test”\n"
    )
    assert tg("run", "--id", "g").returncode == 0
    assert sorted((tmp_path / "ran").read_text().split()[7:]) == ["build", "fetch", "test", "x"]
    assert tg("doctor", "g").returncode == 0


def test_what_failed_fast_is_brought_back_with_what_was_cancelled_for_it(tg: Run, tmp_path: Path) -> None:
    tasks = {"a": command("test", "-e", "mended"), "b": command("true", requires=("a",)), "c": command("sleep", "5")}
    file = write_graph(tmp_path / "graph.json", tasks, failurePolicy="fail-fast")
    ended = tg("run", str(file), "--id", "g")
    assert ended.returncode == 1
    assert (
        "when the cause is mended: taskgraph rerun g --failed --downstream, then taskgraph run --id g" in ended.stderr
    )
    (tmp_path / "mended").touch()
    assert tg("rerun", "g", "a").returncode == 0
    part = tg("run", "--id", "g")
    assert part.returncode == 1
    assert "blocked by 2 tasks that failed for good or were cancelled" in tg("status", "g").stderr
    assert tg("rerun", "g", "--failed", "--downstream").returncode == 0
    assert tg("run", "--id", "g").returncode == 0


def test_a_cached_task_runs_when_it_is_rerun_by_hand(tg: Run, tmp_path: Path) -> None:
    one = command("sh", "-c", "echo x >> ran; echo made > out")
    one["task"]["payload"] |= {"outputs": ["out"], "cache": True}
    file = write_graph(tmp_path / "graph.json", {"a": one})
    for graph_id in ("first", "second"):
        assert tg("run", str(file), "--id", graph_id).returncode == 0
    assert (tmp_path / "ran").read_text() == "x\n"
    assert tg("rerun", "second", "a").returncode == 0
    assert tg("run", "--id", "second").returncode == 0
    assert (tmp_path / "ran").read_text() == "x\nx\n"


def test_a_graph_that_ends_twice_says_so_twice(tg: Run, store: str, tmp_path: Path) -> None:
    told = {"command": ["sh", "-c", f"cat >> {tmp_path}/told; echo >> {tmp_path}/told"]}
    file = write_graph(tmp_path / "graph.json", {"a": command("true")}, notify={"onFinished": told})
    assert tg("run", str(file), "--id", "g").returncode == 0
    with started("serve", "--worker", "1", store=store, cwd=tmp_path):
        until(lambda: (tmp_path / "told").exists(), what="the first notice")
        until(lambda: json.loads(tg("notices", "g", "--json").stdout)["channels"][0]["state"] == "done", what="its end")
        assert tg("rerun", "g", "a").returncode == 0
        until(lambda: len((tmp_path / "told").read_text().split()) == 2, what="the second notice")
