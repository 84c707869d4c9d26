"""Handlers and workers in processes of their own, over both stores."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.processes import command, started, taskgraph, write_graph


@pytest.fixture(params=["embedded", pytest.param("azurite", marks=pytest.mark.azurite)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, dict[str, str]]:
    """A store for processes: its address, and further environment (a prefix of its own)."""
    if request.param == "embedded":
        return f"sqlite:///{tmp_path}/store.db", {}
    prefix = f"t{abs(hash(str(tmp_path))) % 10**9}"
    return request.getfixturevalue("azurite"), {"TASKGRAPH_PREFIX": prefix}


def test_a_graph_is_served_worked_and_looked_at(place: tuple[str, dict[str, str]], tmp_path: Path) -> None:
    store, more = place
    tasks: dict[str, Any] = {"begin": command("echo", "begin")}
    tasks |= {f"part-{n}": command("echo", f"part {n}", requires=("begin",)) for n in range(12)}
    tasks["flaky"] = command("sh", "-c", "test $TASKGRAPH_RUN_ID -ge 1", requires=("begin",), reruns=1)
    tasks["end"] = command("echo", "end", requires=(*(f"part-{n}" for n in range(12)), "flaky"))
    file = write_graph(tmp_path / "graph.json", tasks)
    with (
        started("serve", store=store, cwd=tmp_path, **more),
        started("worker", "--slots", "2", store=store, cwd=tmp_path, name="w1", **more),
        started("worker", "--slots", "2", store=store, cwd=tmp_path, name="w2", **more),
    ):
        submitted = taskgraph(
            "submit", str(file), "--id", "g", "--wait", "--timeout", "90", store=store, cwd=tmp_path, **more
        )
        assert submitted.returncode == 0, submitted.stderr + (tmp_path / "serve.log").read_text()
    status = json.loads(taskgraph("status", "g", "--json", store=store, cwd=tmp_path, **more).stdout)
    assert status["state"] == "finished"
    logs = taskgraph("logs", "g", "part-7", store=store, cwd=tmp_path, **more)
    assert logs.stdout == "part 7\n"
    flaky = json.loads(taskgraph("task", "g", "flaky", "--json", store=store, cwd=tmp_path, **more).stdout)
    assert flaky["run"] == 1


def test_a_running_graph_is_extended_once(place: tuple[str, dict[str, str]], tmp_path: Path) -> None:
    store, more = place
    gate = command("sh", "-c", "while ! test -e gate; do sleep 0.1; done")
    file = write_graph(tmp_path / "graph.json", {"gate": gate})
    extra = write_graph(tmp_path / "extra.json", {"late": command("echo", "late", requires=("gate",))})
    with (
        started("serve", store=store, cwd=tmp_path, **more),
        started("worker", store=store, cwd=tmp_path, **more),
    ):
        assert taskgraph("submit", str(file), "--id", "g", store=store, cwd=tmp_path, **more).returncode == 0
        for _ in range(2):
            extended = taskgraph("extend", "g", str(extra), "--wait", store=store, cwd=tmp_path, **more)
            assert extended.returncode == 0, extended.stderr
        (tmp_path / "gate").touch()
        assert taskgraph("watch", "g", store=store, cwd=tmp_path, **more).returncode == 0
        refused = taskgraph("extend", "g", str(extra).replace("extra", "other"), store=store, cwd=tmp_path, **more)
        assert refused.returncode == 2  # there is no such file
        write_graph(tmp_path / "other.json", {"later": command("true")})
        refused = taskgraph("extend", "g", str(tmp_path / "other.json"), store=store, cwd=tmp_path, **more)
        assert refused.returncode == 4, refused.stderr
        assert "finished" in refused.stderr
    shown = json.loads(taskgraph("status", "g", "--json", store=store, cwd=tmp_path, **more).stdout)
    assert shown["taskCount"] == 2
    assert shown["state"] == "finished"


def test_a_graph_that_goes_on_after_failures_cleans_up_and_says_so(
    place: tuple[str, dict[str, str]], tmp_path: Path
) -> None:
    """With handlers and workers in processes of their own: cleanup runs last, and every door tells of the failure."""
    store, more = place
    tasks: dict[str, Any] = {
        "build": command("sh", "-c", "exit 3"),
        "test": command("true", requires=("build",)),
        "cleanup": {**command("sh", "-c", "echo cleaned", requires=("test",)), "when": "always"},
    }
    file = tmp_path / "graph.json"
    file.write_text(json.dumps({"failurePolicy": "continue", "tasks": tasks}), "utf-8")
    with (
        started("serve", store=store, cwd=tmp_path, **more),
        started("worker", "--slots", "2", store=store, cwd=tmp_path, name="w1", **more),
    ):
        done = taskgraph("submit", str(file), "--id", "g", "--wait", "--json", store=store, cwd=tmp_path, **more)
        assert done.returncode == 1, done.stderr
        counts = json.loads(done.stdout)["counts"]
        assert {state: number for state, number in counts.items() if number} == {
            "completed": 1,
            "failed": 1,
            "skipped": 1,
        }
        watched = taskgraph("watch", "g", store=store, cwd=tmp_path, **more)
    assert watched.returncode == 1
    assert "finished with failures" in watched.stdout
    status = taskgraph("status", "g", store=store, cwd=tmp_path, **more)
    assert "finished with failures" in status.stdout
    assert "finished with failures" in taskgraph("list", store=store, cwd=tmp_path, **more).stdout
    assert taskgraph("logs", "g", "cleanup", store=store, cwd=tmp_path, **more).stdout == "cleaned\n"
    refused = taskgraph("rerun", "g", "build", store=store, cwd=tmp_path, **more)
    assert refused.returncode == 4
    assert "“cleanup” ran after “build”, and would have to run again; say --downstream" in refused.stderr
    assert "nothing wrong" in taskgraph("doctor", "g", store=store, cwd=tmp_path, **more).stderr
