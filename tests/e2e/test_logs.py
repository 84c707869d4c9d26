"""The logs of whole graphs, and what `run` prints of its tasks, as people and scripts see it."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.processes import command, started, taskgraph, until, write_graph
from tests.e2e.test_cli import on_a_terminal


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


def tasks(folder: Path) -> Path:
    compile_ = command("sh", "-c", "echo begin; sleep 0.2; printf '\\033[32mgreen\\033[0m\\033[2J'")
    link = command(
        "sh", "-c", "echo run $TASKGRAPH_RUN_ID; echo no symbol >&2; exit 2", requires=("compile",), reruns=1
    )
    return write_graph(
        folder / "g.json", {"compile": compile_, "link": link, "pack": command("true", requires=("link",))}
    )


def test_a_graph_is_seen_as_a_whole(tmp_path: Path, store: str) -> None:
    def tg(*words: str) -> Any:
        return taskgraph(*words, store=store, cwd=tmp_path)

    run = tg("run", str(tasks(tmp_path)), "--id", "g", "--output", "all")
    assert run.returncode == 1
    shown = run.stderr.splitlines()
    for line in ("compile │ begin", "compile │ green\\x1b[2J", "link    │ run 0", "link    │ run 1"):
        assert line in shown, run.stderr
    (compiled,) = [line for line in shown if line.startswith("✓ compile  0.")]
    assert compiled.endswith(" s")
    assert len(compiled) == len("✓ compile  0.234 s")
    (linked,) = [line for line in shown if line.startswith("✗ link (run 1)  exit code 2  0.")]
    assert shown.index(compiled) < shown.index(linked)
    assert "running: 1/3" not in run.stderr
    assert run.stdout.startswith("■ blocked  g  1/3 completed")

    whole = tg("logs", "g")
    green = "compile │ \x1b[32mgreen\x1b[0m\x1b[2J"
    assert whole.stdout.splitlines() == ["compile │ begin", green, "link    │ run 1", "link    │ no symbol"]
    assert whole.stderr == ""
    assert tg("logs", "g", "--failed", "--tail", "1").stdout == "link │ no symbol\n"
    assert tg("logs", "g", "link", "--tail", "1").stdout == "no symbol\n"
    assert json.loads(tg("logs", "g", "link", "--tail", "1", "--json").stdout)["log"] == "no symbol\n"
    two = tg("logs", "g", "compile", "pack", "--json")
    assert [(each["label"], each["run"], each["text"]) for each in map(json.loads, two.stdout.splitlines())] == [
        ("compile", 0, "begin"),
        ("compile", 0, "\x1b[32mgreen\x1b[0m\x1b[2J"),
    ]
    assert "“pack” has no log; the task is unscheduled in run 0" in two.stderr
    for wrong in (["--run", "0"], ["--result"], ["a", "--group", "b"], ["--failed", "--follow"], ["a", "--tail", "-1"]):
        assert tg("logs", "g", *wrong).returncode == 2, wrong
    assert tg("logs", "g", "link", "nope").returncode == 3
    assert json.loads(tg("logs", "h", "--json").stdout)["error"]["code"] == "not-found"
    code, seen = on_a_terminal(["logs", "g", "--tail", "1"], store, tmp_path, NO_COLOR="1")
    assert (code, seen) == (0, "compile │ green\\x1b[2J\r\nlink    │ no symbol\r\n")


def test_output_none_is_quiet_about_logs(tmp_path: Path, store: str) -> None:
    file = write_graph(tmp_path / "g.json", {"a": command("sh", "-c", "echo secret; exit 1")})
    quiet = taskgraph("run", str(file), "--id", "g", "--output", "none", "--json", store=store, cwd=tmp_path)
    assert quiet.returncode == 1
    assert json.loads(quiet.stdout)["failures"][0]["log"] is None
    assert "secret" not in quiet.stderr
    usual = taskgraph("run", "--id", "g", store=store, cwd=tmp_path)
    assert "│ secret" in usual.stderr
    fresh = taskgraph("run", str(file), "--id", "h", store=store, cwd=tmp_path)
    assert fresh.stderr.count("secret") == 1
    assert taskgraph("run", "--id", "g", "--output", "some", store=store, cwd=tmp_path).returncode == 2
    empty = write_graph(tmp_path / "h.json", {"a": {}})
    assert taskgraph("run", str(empty), "--id", "e", store=store, cwd=tmp_path).returncode == 0
    said = taskgraph("logs", "e", store=store, cwd=tmp_path)
    assert (said.returncode, said.stdout, said.stderr) == (0, "", "no task has a log\n")


def test_a_graph_is_followed_to_its_end(tmp_path: Path, store: str) -> None:
    gate = command("sh", "-c", "echo one; while ! test -e gate; do sleep 0.05; done; printf two")
    file = write_graph(tmp_path / "g.json", {"gate": gate, "then": command("echo", "three", requires=("gate",))})
    with started("run", str(file), "--id", "g", store=store, cwd=tmp_path):
        until(lambda: "one" in taskgraph("logs", "g", store=store, cwd=tmp_path).stdout, what="the log")
        with started("logs", "g", "--follow", store=store, cwd=tmp_path) as following:
            until(lambda: (tmp_path / "logs.log").read_text() == "gate │ one\n", what="the first line")
            (tmp_path / "gate").touch()
            assert following.wait(timeout=20) == 0
    lines = (tmp_path / "logs.log").read_text().splitlines()
    assert sorted(lines) == ["gate │ one", "gate │ two", "then │ three"]
