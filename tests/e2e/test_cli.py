"""The command line as people and scripts meet it: real processes on the embedded store."""

import asyncio
import fcntl
import json
import os
import pty
import re
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from taskgraph.interfaces.app import open_app
from taskgraph.interfaces.settings import read_settings
from taskgraph.storage.tables import Merge
from tests.e2e.processes import command, environment, started, taskgraph, until, write_graph
from tests.http.typed import both_doors

Run = Callable[..., Any]


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


@pytest.fixture
def tg(tmp_path: Path, store: str) -> Run:
    """Run a command in the test's own folder, over its own store."""

    def run(*words: str, **more: Any) -> Any:
        return taskgraph(*words, store=more.pop("store", store), cwd=tmp_path, **more)

    return run


def good(folder: Path) -> str:
    tasks = {
        "a": command("echo", "hello"),
        "b": command("echo", "world", requires=("a",)),
        "c": {"requires": ["a", "b"], "task": {}},
    }
    return str(write_graph(folder / "good.json", tasks))


def blocking(folder: Path) -> str:
    tasks = {
        "first": command("sh", "-c", "for i in 1 2 3 4 5 6 7; do echo line $i; done; test -e mended"),
        "other": command("true"),
        "last one": command("true", requires=("first", "other")),
    }
    return str(write_graph(folder / "blocking.json", tasks))


# --- files -----------------------------------------------------------------------------------------------------


def test_version_and_help_are_quick(tg: Run) -> None:
    began = time.monotonic()
    version = tg("--version")
    assert version.stdout == "taskgraph 0.4.0\n"
    assert time.monotonic() - began < 3  # a generous bound for a busy machine; 0.3 s on an idle one
    for words in ((), ("run",), ("poison",), ("poison", "replay"), ("logs",)):
        shown = tg(*words, "--help")
        assert shown.returncode == 0
        assert "Usage: taskgraph" in shown.stdout
    assert "$ taskgraph logs" in shown.stdout


def test_help_may_stand_before_a_command(tg: Run) -> None:
    for words in ((), ("run",), ("limit",), ("limit", "set")):
        shown = tg("help", *words)
        assert (shown.returncode, shown.stdout) == (0, tg(*words, "--help").stdout)
    wrong = tg("help", "rnu")
    assert wrong.returncode == 2
    assert "run" in wrong.stderr


def test_validate(tg: Run, tmp_path: Path) -> None:
    file = good(tmp_path)
    fine = tg("validate", file)
    assert (fine.returncode, fine.stdout) == (0, f"{file}: valid, 3 tasks, 3 edges\n")
    bad = write_graph(tmp_path / "bad.json", {"a": {"requires": ["x"], "task": {}}, "b": {"tsk": {}}})
    wrong = tg("validate", file, str(bad), "missing.json")
    assert wrong.returncode == 2
    assert f"{bad}:1: /tasks/a/requires/0: " in wrong.stderr
    assert f"{bad}:1: /tasks/b/tsk: " in wrong.stderr
    assert "missing.json: It cannot be read: No such file" in wrong.stderr
    told = json.loads(tg("validate", "--json", file, str(bad)).stdout)
    assert told["valid"] is False
    assert [each["valid"] for each in told["files"]] == [True, False]
    assert {each["code"] for each in told["files"][1]["problems"]} == {"unknown-label", "unknown-key"}


def test_an_invalid_graph_is_json_too(tg: Run, tmp_path: Path) -> None:
    bad = write_graph(tmp_path / "bad.json", {"a": {"requires": ["x"], "task": {}}})
    refused = tg("submit", str(bad), "--json")
    assert refused.returncode == 2
    error = json.loads(refused.stdout)["error"]
    assert (error["code"], error["exitCode"], error["problems"][0]["line"]) == ("invalid-graph", 2, 1)


def test_plan(tg: Run, tmp_path: Path) -> None:
    file = good(tmp_path)
    text = tg("plan", file).stdout
    assert "critical path  3 tasks" in text
    assert text.splitlines()[-3:] == [
        "a         0         0        2  b, c",
        "b         1         1        1  c",
        "c         2         2        0",
    ]
    made = json.loads(tg("plan", file, "--json").stdout)
    assert (made["taskCount"], made["depth"], made["criticalPath"]["labels"]) == (3, 3, ["a", "b", "c"])
    assert tg("plan", file, "--format", "mermaid").stdout.startswith("flowchart TD\n")
    assert tg("plan", file, "--format", "dot").stdout.startswith("digraph taskgraph {\n")
    assert tg("plan", file, "--format", "dot", "--json").returncode == 2


def test_import_to_a_file_and_through_a_pipe(tg: Run, tmp_path: Path) -> None:
    foreign = {"source": "s", "license": "l", "metadata": {}, "tasks": {"a": {"requires": [], "runtimeSeconds": 3}}}
    (tmp_path / "foreign.json").write_text(json.dumps(foreign))
    piped = tg("import", "--from", "neutral", "foreign.json")
    assert piped.returncode == 0
    assert json.loads(piped.stdout)["tasks"]["a"]["task"]["payload"]["seconds"] == 3
    assert tg("import", "--from", "neutral", "foreign.json", "-o", "made.json").stdout == ""
    assert (tmp_path / "made.json").read_text() == piped.stdout
    assert tg("validate", "made.json").returncode == 0
    assert tg("import", "--from", "neutral", "foreign.json", "-o", "no/such/folder").returncode == 2
    assert tg("import", "--from", "yaml", "foreign.json").returncode == 2


# --- run -------------------------------------------------------------------------------------------------------


def test_a_run_that_finishes(tg: Run, tmp_path: Path) -> None:
    done = tg("run", good(tmp_path))
    assert done.returncode == 0, done.stderr
    first, hint = done.stderr.splitlines()[:2]
    graph_id = first.removeprefix("graph ")
    assert hint.endswith(f"go on with: taskgraph run {tmp_path}/good.json --id {graph_id}")
    assert done.stdout.startswith(f"✓ finished  {graph_id}  3/3 completed")
    again = json.loads(tg("run", "--id", graph_id, "--json").stdout)
    assert (again["state"], again["taskCount"], again["failures"]) == ("finished", 3, [])
    assert {state: number for state, number in again["counts"].items() if number} == {"completed": 3}


@both_doors
def test_a_run_that_is_blocked_says_why_and_goes_on_after_a_rerun(tg: Run, tmp_path: Path) -> None:
    blocked = tg("run", blocking(tmp_path), "--id", "g")
    assert blocked.returncode == 1
    assert blocked.stdout.startswith("■ blocked  g  1/3 completed, ✗ 1 failed, 1 waiting")
    assert "✗ failed  first (run 0): exit code 1" in blocked.stderr
    assert "│ line 3\n    │ line 4\n    │ line 5\n    │ line 6\n    │ line 7\n" in blocked.stderr
    assert "line 2" not in blocked.stderr
    assert "taskgraph why g first" in blocked.stderr
    assert "taskgraph rerun g first, then taskgraph run --id g" in blocked.stderr

    told = json.loads(tg("run", "--id", "g", "--json").stdout)
    assert [(each["label"], each["reason"], each["log"][-1]) for each in told["failures"]] == [
        ("first", "exit code 1", "line 7")
    ]

    why = tg("why", "g", "last one")
    assert why.stdout.splitlines()[:2] == [
        "· last one waits for 1 task",
        "  ◆ ✗ first failed for good in run 0: exit code 1",
    ]
    assert "taskgraph rerun g first" in why.stdout
    reasons = json.loads(tg("why", "g", "last one", "--json").stdout)["reasons"]
    assert [(each["label"], each["depth"], each["cause"]) for each in reasons] == [
        ("last one", 0, False),
        ("first", 1, True),
    ]

    refused = tg("rerun", "g", "last one")
    assert refused.returncode == 4
    assert "“last one” cannot be rerun: the task is unscheduled" in refused.stderr
    assert tg("rerun", "g", "frist").returncode == 3

    (tmp_path / "mended").touch()
    rerun = tg("rerun", "g", "first", "--reason", "mended", "--json")
    asked = json.loads(rerun.stdout)
    assert ([(each["label"], each["run"]) for each in asked["tasks"]], asked["settled"]) == ([("first", 1)], False)
    again = tg("rerun", "g", "first", "first")
    assert again.stdout == "run 1 of “first” is asked for\n"
    assert "no handler reads its results: start taskgraph serve, " in again.stderr
    done = tg("run", "--id", "g")
    assert done.returncode == 0, done.stderr
    assert "3/3 completed  1 rerun" in done.stdout
    assert "✗ failed" not in done.stderr  # what had happened before is no news
    runs = json.loads(tg("task", "g", "first", "--json").stdout)
    assert (runs["run"], runs["runs"][0]["reason"]) == (1, "mended")
    assert tg("rerun", "g", "first").returncode == 4


def test_what_this_process_cannot_run_is_refused_before_anything_is_written(tg: Run, tmp_path: Path) -> None:
    tasks = {
        "ok": command("true"),
        "call": {"task": {"payload": {"call": "f"}}},
        "own": {"task": {"executor": "fpga"}},
        "gpu": {"task": {"target": "gpu"}},
    }
    file = str(write_graph(tmp_path / "g.json", tasks))
    refused = tg("run", file, "--id", "g", "--target", "default")
    assert refused.returncode == 2
    assert "/tasks/call/task: " in refused.stderr
    assert "/tasks/own/task: " in refused.stderr
    assert "/tasks/gpu/task/target: " in refused.stderr
    assert "--target gpu" in refused.stderr
    assert "/tasks/ok" not in refused.stderr
    assert tg("status", "g").returncode == 3
    (tmp_path / "mine.py").write_text("def f():\n    return {'answer': 42}\n")
    del tasks["own"]
    file = str(write_graph(tmp_path / "g.json", tasks))
    done = tg("run", file, "--id", "g", "--python", "mine")  # every target that the file names is served
    assert done.returncode == 0, done.stderr
    assert json.loads(tg("logs", "g", "call", "--result").stdout) == {"answer": 42}
    assert json.loads(tg("logs", "g", "call", "--result", "--json").stdout)["result"] == {"answer": 42}
    assert tg("run", file, "--executor", "nope").returncode == 2
    assert tg("run", file, "--python", "no_such_module").returncode == 2


def test_a_rehearsal_runs_everything(tg: Run, tmp_path: Path) -> None:
    file = write_graph(tmp_path / "g.json", {"a": {"task": {"executor": "fpga", "payload": {"seconds": 3600}}}})
    assert tg("run", str(file), "--executor", "noop").returncode == 0
    done = tg("run", str(file), "--executor", "sleep", "--time-scale", "0.0001")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_run_hands_back_and_goes_on(tg: Run, tmp_path: Path, store: str, number: signal.Signals) -> None:
    slow = command("sh", "-c", "echo begun >> begun; test $TASKGRAPH_RUN_ID -gt 0 || exec sleep 60")
    file = write_graph(tmp_path / "g.json", {"slow": slow})
    with started("run", str(file), "--id", "g", store=store, cwd=tmp_path) as child:
        until(lambda: (tmp_path / "begun").exists(), what="the task begins")
        child.send_signal(number)
        assert child.wait(timeout=20) == 130
    assert f"go on with: taskgraph run {file} --id g" in (tmp_path / "run.log").read_text()
    task = json.loads(tg("task", "g", "slow", "--json").stdout)
    assert (task["state"], task["run"], task["retriesLeft"]) == ("pending", 1, 5)
    assert tg("run", "--id", "g").returncode == 0


def test_a_closed_terminal_ends_a_run_as_sigterm_does(tg: Run, tmp_path: Path, store: str) -> None:
    slow = command("sh", "-c", "echo begun >> begun; test $TASKGRAPH_RUN_ID -gt 0 || exec sleep 60")
    file = write_graph(tmp_path / "g.json", {"slow": slow})
    terminal, far_end = pty.openpty()
    words = [sys.executable, "-m", "taskgraph", "run", str(file), "--id", "g"]
    child = subprocess.Popen(
        [sys.executable, "-c", f"import os; os.login_tty({far_end}); os.execv({words[0]!r}, {words!r})"],
        cwd=tmp_path,
        env=environment(store, TERM="xterm-256color"),
        pass_fds=[far_end],
        start_new_session=True,
    )
    os.close(far_end)
    until(lambda: (tmp_path / "begun").exists(), what="the task begins")
    os.close(terminal)
    assert child.wait(timeout=20) == 130
    task = json.loads(tg("task", "g", "slow", "--json").stdout)
    assert (task["state"], task["run"], task["retriesLeft"]) == ("pending", 1, 5)


def test_a_task_extends_its_own_graph(tg: Run, tmp_path: Path) -> None:
    write_graph(tmp_path / "more.json", {"late": command("echo", "late", requires=("first",))})
    extend = command(sys.executable, "-m", "taskgraph", "extend", "g", "more.json")
    done = tg("run", str(write_graph(tmp_path / "g.json", {"first": extend})), "--id", "g")
    assert done.returncode == 0, done.stderr
    assert "2/2 completed" in done.stdout
    assert tg("logs", "g", "late").stdout == "late\n"


def test_a_target_that_nobody_serves_is_named(tg: Run, tmp_path: Path, store: str) -> None:
    gate = command("sh", "-c", "while ! test -e gate; do sleep 0.05; done")
    file = write_graph(tmp_path / "g.json", {"gate": gate})
    write_graph(tmp_path / "more.json", {"gpu": {"task": {"target": "gpu"}}})
    with started("run", str(file), "--id", "g", store=store, cwd=tmp_path) as child:
        until(lambda: tg("status", "g").returncode == 0, what="the graph is there")
        assert tg("extend", "g", "more.json").returncode == 0
        until(lambda: "taskgraph worker --target gpu" in (tmp_path / "run.log").read_text(), what="the warning")
        (tmp_path / "gate").touch()
        with started("worker", "--target", "gpu", store=store, cwd=tmp_path):
            assert child.wait(timeout=30) == 0


def test_a_graph_that_was_never_submitted_to_its_end_needs_its_file(tg: Run, tmp_path: Path, store: str) -> None:
    file = good(tmp_path)
    tg("submit", file, "--id", "g")

    async def undo() -> None:
        async with open_app(read_settings(store, {}, cwd=tmp_path)) as app:
            (row,) = await app.tables.get("g", ["task-graph"])
            assert row is not None
            await app.tables.commit("g", [Merge(row.key, row.etag, {"state": "submitting"})])

    asyncio.run(undo())
    refused = tg("run", "--id", "g")
    assert refused.returncode == 4
    assert "with its FILE" in refused.stderr
    assert tg("run", file, "--id", "g").returncode == 0


# --- submit, serve, watch --------------------------------------------------------------------------------------


@both_doors
def test_submit_is_repeatable_and_prints_the_id(tg: Run, tmp_path: Path) -> None:
    file = good(tmp_path)
    assert tg("submit", file, "--id", "g").stdout == "g\n"
    again = tg("submit", file, "--id", "g", "--json")
    assert json.loads(again.stdout) == {"graphId": "g", "outcome": "existing", "taskCount": 3, "edges": 3}
    other = tg("submit", blocking(tmp_path), "--id", "g")
    assert other.returncode == 4
    assert "different content" in other.stderr
    fresh = tg("submit", file).stdout.strip()
    assert tg("status", fresh).returncode == 0
    listed = json.loads(tg("list", "--json").stdout)["graphs"]
    assert {each["graphId"] for each in listed} == {"g", fresh}
    assert tg("list", "--state", "blocked").stdout == ""
    assert tg("list", "--limit", "1").stdout.count("\n") == 2


@both_doors
def test_a_graph_comes_from_standard_input(tmp_path: Path, store: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "taskgraph", "submit", "-"],
        input=Path(good(tmp_path)).read_bytes(),
        cwd=tmp_path,
        env=environment(store),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0


@both_doors
def test_waiting_ends_with_124(tg: Run, tmp_path: Path) -> None:
    late = tg("submit", good(tmp_path), "--id", "g", "--wait", "--timeout", "0.5")
    assert late.returncode == 124
    assert late.stdout == "g\n"
    assert "0/3 completed" in late.stderr
    watched = tg("watch", "g", "--timeout", "0.2", "--json")
    assert watched.returncode == 124
    lines = [json.loads(line) for line in watched.stdout.splitlines()]
    assert [line["type"] for line in lines] == ["progress", "error"]
    write_graph(tmp_path / "more.json", {"d": {"requires": ["c"], "task": {}}})
    asked = tg("extend", "g", "more.json", "--timeout", "0.3")
    assert asked.returncode == 124
    assert "taskgraph serve" in asked.stderr
    assert tg("extend", "g", "more.json", "--no-wait", "--json").returncode == 0
    assert tg("submit", good(tmp_path), "--timeout", "3").returncode == 2


def test_serve_works_and_stops(tg: Run, tmp_path: Path, store: str) -> None:
    with started("serve", "--worker", "2", store=store, cwd=tmp_path) as serving:
        until(lambda: "stop with Ctrl-C" in (tmp_path / "serve.log").read_text(), what="serve says that it is there")
        done = tg("submit", good(tmp_path), "--id", "g", "--wait", "--timeout", "60")
        assert done.returncode == 0, done.stderr
        blocked = tg("submit", blocking(tmp_path), "--id", "b", "--wait", "--timeout", "60", "--json")
        assert blocked.returncode == 1
        assert json.loads(blocked.stdout)["failures"][0]["label"] == "first"
        serving.send_signal(signal.SIGTERM)
        assert serving.wait(timeout=20) == 0
    watched = tg("watch", "g")
    assert watched.returncode == 0
    assert watched.stderr.splitlines() == ["   0.0 s  finished: 3/3 completed"]
    assert "\x1b" not in watched.stdout + watched.stderr
    lines = [json.loads(line) for line in tg("watch", "b", "--json").stdout.splitlines()]
    assert [line["type"] for line in lines] == ["progress", "end"]
    assert lines[-1]["failures"][0]["reason"] == "exit code 1"


def test_watching_may_stop_without_the_graph(tg: Run, tmp_path: Path, store: str) -> None:
    tg("submit", good(tmp_path), "--id", "g")
    with started("watch", "g", store=store, cwd=tmp_path) as watching:
        until(lambda: "0/3 completed" in (tmp_path / "watch.log").read_text(), what="watch shows something")
        watching.send_signal(signal.SIGINT)
        assert watching.wait(timeout=10) == 130
    assert "stopped watching; graph g goes on" in (tmp_path / "watch.log").read_text()
    assert json.loads(tg("status", "g", "--json").stdout)["state"] == "running"


# --- looking ---------------------------------------------------------------------------------------------------


@both_doors
def test_looking_at_a_graph(tg: Run, tmp_path: Path, door: str) -> None:
    tg("run", blocking(tmp_path), "--id", "g")
    status = json.loads(tg("status", "g", "--json").stdout)
    assert (status["state"], status["taskCount"], status["edges"], status["blockedBy"]) == ("blocked", 3, 2, "first")
    assert status["counts"] == {
        "unscheduled": 1,
        "pending": 0,
        "running": 0,
        "completed": 1,
        "failed": 1,
        "exception": 0,
        "skipped": 0,
        "cancelled": 0,
    }
    assert "blocked by “first”" in tg("status", "g").stderr
    shown = tg("show", "g").stdout.splitlines()
    assert [line.split()[1] for line in shown[1:]] == ["failed", "unscheduled", "completed"]
    assert len(tg("show", "g", "--state", "failed").stdout.splitlines()) == 2
    matched = json.loads(tg("show", "g", "--match", "LAST", "--json").stdout)
    assert [each["label"] for each in matched["tasks"]] == ["last one"]
    cut = tg("show", "g", "--limit", "1")
    assert "… and 2 more" in cut.stderr
    task = tg("task", "g", "first").stdout
    assert "exit code     1\n" in task
    assert "dependents    last one\n" in task
    place = f"file://{tmp_path}/logs/g/" if door == "embedded" else "taskgraph logs g first\n"
    assert f"log           {place}" in task
    events = json.loads(tg("events", "g", "--json").stdout)["events"]
    assert events[0]["event"] == "graph-running"
    assert {each["event"] for each in events} == {"graph-running", "task-completed", "task-failed", "graph-blocked"}
    later = json.loads(tg("events", "g", "--since", "1", "--json").stdout)["events"]
    assert later == events[1:]
    rows = json.loads(tg("rows", "g", "--json").stdout)["rows"]
    assert {"task-graph", "event:0000000001"} <= {row["RowKey"] for row in rows}
    assert all(row["PartitionKey"] == "g" and row["etag"] for row in rows)
    some = json.loads(tg("events", "g", "--limit", "2", "--json").stdout)["events"]
    assert some == events[:2]
    assert "--follow" in tg("events", "g", "--limit", "2", "--follow").stderr
    only = tg("rows", "g", "--prefix", "task-graph")
    assert only.stdout.startswith("task-graph\n")
    assert "  state         blocked\n" in only.stdout


@both_doors
def test_the_earlier_runs_of_a_task_are_a_table(tg: Run, tmp_path: Path) -> None:
    tasks = {"a": command("sh", "-c", "test $TASKGRAPH_RUN_ID -gt 0 || exit 6", reruns=1)}
    assert tg("run", str(write_graph(tmp_path / "g.json", tasks)), "--id", "g").returncode == 0
    lines = tg("task", "g", "a").stdout.splitlines()
    title = next(number for number, line in enumerate(lines) if line.startswith("EARLIER RUN"))
    time_form = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ"
    assert re.fullmatch(rf" *0  failed +{time_form}  {time_form}  \S+  exit code 6", lines[title + 1]), lines


@both_doors
def test_looking_at_a_large_graph(tg: Run, tmp_path: Path) -> None:
    """What is not known of it is null and in other words, and no list is longer than was asked for."""
    parts = [f"p{number:04}" for number in range(17_000)]  # more than the pages of one look
    tasks = {part: {"requires": ["start"] if number % 2 else [], "task": {}} for number, part in enumerate(parts)}
    graph = {"start": {"task": {}}, **tasks, "end": {"requires": parts, "task": {}}}
    assert tg("submit", str(write_graph(tmp_path / "large.json", graph)), "--id", "g").returncode == 0
    status = json.loads(tg("status", "g", "--json").stdout)
    assert status["counts"] == {
        "unscheduled": None,
        "pending": None,
        "running": None,
        "completed": 0,
        "failed": 0,
        "exception": 0,
        "skipped": 0,
        "cancelled": 0,
    }
    assert (status["exact"], status["unresolved"], status["taskCount"]) == (False, 17_002, 17_002)
    seen = status["atLeast"]["pending"]
    assert 0 < seen < 8_501
    assert f"  unresolved       17,002, of these at least {seen:,} pending\n" in tg("status", "g").stdout
    shown = tg("show", "g", "--limit", "3")
    assert len(shown.stdout.splitlines()) == 4
    assert shown.stderr.splitlines() == ["… and 16,999 more: --limit 17002", "17,002 tasks: 17,002 unresolved"]
    cut = tg("show", "g", "--state", "pending", "--limit", "3", "--json")
    assert json.loads(cut.stdout)["total"] is None
    assert tg("show", "g", "--state", "pending", "--limit", "3").stderr.splitlines() == [
        "… and more: --limit 30",
        "at least 4 tasks",
    ]
    task = tg("task", "g", "end").stdout
    assert ", … 16,980 more (--all)\n" in task
    every = tg("task", "g", "end", "--all").stdout
    assert f"requires      {', '.join(sorted(parts))}\n" in every
    told = json.loads(tg("task", "g", "start", "--json").stdout)
    assert (told["dependentsCount"], len(told["dependents"])) == (8_500, 8_500)
    why = tg("why", "g", "end")
    assert "end waits for 17000 tasks" in why.stdout
    assert "8,501 first causes" in why.stderr
    assert "… of these, 50 are shown" in why.stderr
    reasons = json.loads(tg("why", "g", "end", "--json").stdout)
    assert len(reasons["reasons"]) + reasons["omitted"] == 17_002
    rows = json.loads(tg("rows", "g", "--prefix", "task:", "--json").stdout)["rows"]
    assert len(rows) == 17_002
    assert json.loads(tg("rows", "g", "--prefix", "nothing:", "--json").stdout) == {"graphId": "g", "rows": []}


@both_doors
def test_events_are_followed_to_the_end(tg: Run, tmp_path: Path) -> None:
    tg("run", good(tmp_path), "--id", "g")
    lines = [json.loads(line) for line in tg("events", "g", "--follow", "--json").stdout.splitlines()]
    assert lines[-1]["event"] == "graph-finished"
    assert len(lines) == 5


@both_doors
def test_logs(tg: Run, tmp_path: Path) -> None:
    noisy = command("printf", r"\033[31mred\033[0m\000\377\n")
    flaky = command("sh", "-c", "echo run $TASKGRAPH_RUN_ID; test $TASKGRAPH_RUN_ID -gt 0", reruns=1)
    tg("run", str(write_graph(tmp_path / "g.json", {"noisy": noisy, "flaky": flaky})), "--id", "g")
    raw = subprocess.run(
        [sys.executable, "-m", "taskgraph", "logs", "g", "noisy"],
        cwd=tmp_path,
        env=environment(f"sqlite:///{tmp_path}/store.db"),
        capture_output=True,
        check=True,
    )
    assert raw.stdout == b"\x1b[31mred\x1b[0m\x00\xff\n"
    assert tg("logs", "g", "flaky").stdout == "run 1\n"
    assert tg("logs", "g", "flaky", "--run", "0").stdout == "run 0\n"
    assert tg("logs", "g", "flaky", "--follow").stdout == "run 1\n"
    assert json.loads(tg("logs", "g", "flaky", "--json").stdout)["log"] == "run 1\n"
    assert tg("logs", "g", "flaky", "--run", "2").returncode == 3
    assert tg("logs", "g", "flaky", "--result").returncode == 3
    assert tg("logs", "g", "flaky", "--follow", "--json").returncode == 2


def test_a_log_is_followed_while_it_grows(tmp_path: Path, store: str) -> None:
    gate = command("sh", "-c", "echo one; while ! test -e gate; do sleep 0.05; done; echo two")
    file = write_graph(tmp_path / "g.json", {"t": gate})
    with started("run", str(file), "--id", "g", store=store, cwd=tmp_path):
        until(lambda: taskgraph("status", "g", store=store, cwd=tmp_path).returncode == 0, what="the graph is there")
        with started("logs", "g", "t", "--follow", store=store, cwd=tmp_path) as following:
            until(lambda: (tmp_path / "logs.log").read_text() == "one\n", what="the first line")
            (tmp_path / "gate").touch()
            assert following.wait(timeout=20) == 0
    assert (tmp_path / "logs.log").read_text() == "one\ntwo\n"


def test_poison_is_empty_at_first(tg: Run) -> None:
    assert json.loads(tg("poison", "list", "--json").stdout) == {"messages": []}
    assert tg("poison", "replay").returncode == 2
    assert tg("poison", "replay", "no:such").returncode == 3
    assert tg("poison", "replay", "--all").returncode == 0


def test_a_message_that_nobody_understands_is_set_aside_and_replayed(tg: Run, tmp_path: Path, store: str) -> None:
    async def send() -> None:
        async with open_app(read_settings(store, {}, cwd=tmp_path)) as app:
            await app.queues.send(app.handlers.names.events, ["nonsense"])

    asyncio.run(send())
    with started("serve", store=store, cwd=tmp_path):
        (one,) = until(lambda: json.loads(tg("poison", "list", "--json").stdout)["messages"], what="set aside")
    assert (one["queue"], one["body"], one["state"]) == ("taskgraph-events", "nonsense", "poison")
    assert one["reason"]
    shown = tg("poison", "list").stdout
    assert shown.startswith(f"{one['key']}\n")
    assert one["reason"] in shown
    assert json.loads(tg("poison", "replay", one["key"], "--json").stdout) == {"replayed": [one["key"]]}
    assert tg("poison", "replay", one["key"]).returncode == 4
    assert json.loads(tg("poison", "list", "--json").stdout) == {"messages": []}


# --- the way out -----------------------------------------------------------------------------------------------


@both_doors
def test_what_does_not_exist_is_3_with_the_nearest_name(tg: Run, tmp_path: Path) -> None:
    tg("submit", good(tmp_path), "--id", "nightly")
    for words in (("status",), ("show",), ("watch",), ("events",), ("rows",), ("run", "--id"), ("extend",)):
        arguments = [*words, "nihgtly", *(["good.json"] if words == ("extend",) else [])]
        missing = tg(*arguments)
        assert missing.returncode == 3, (words, missing.stderr)
        assert missing.stdout == ""
    missing = tg("status", "nihgtly", "--json")
    assert json.loads(missing.stdout)["error"]["near"] == ["nightly"]
    assert "did you mean “nightly”?" in missing.stderr
    for words in (("task",), ("why",), ("logs",), ("rerun",)):
        assert tg(*words, "nightly", "zzz").returncode == 3


def test_bad_usage_is_2(tg: Run, tmp_path: Path) -> None:
    for words in (
        ("frobnicate",),
        ("run",),
        ("run", "--slots", "0", "x.json"),
        ("run", good(tmp_path), "--id", "not an id"),
        ("run", good(tmp_path), "--target", "NOT A TARGET"),
        ("list", "--state", "frob"),
        ("list", "--store", "nonsense"),
        ("status",),
        ("status", "g", "--nope"),
    ):
        wrong = tg(*words)
        assert wrong.returncode == 2, (words, wrong.stderr)
        assert wrong.stdout == ""
        assert wrong.stderr.startswith("error: "), wrong.stderr
        assert "'" not in wrong.stderr


def test_an_unreachable_store_is_5_soon_and_names_no_key(tg: Run) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    key = "c2VjcmV0" * 10 + "c2VjcmU="
    ends = ";".join(f"{kind}Endpoint=http://127.0.0.1:{port}/account" for kind in ("Table", "Queue", "Blob"))
    began = time.monotonic()
    lost = tg("list", store=f"DefaultEndpointsProtocol=http;AccountName=account;AccountKey={key};{ends}")
    assert lost.returncode == 5, lost.stderr
    assert time.monotonic() - began < 15
    assert f"127.0.0.1:{port}" in lost.stderr
    assert "c2VjcmV0" not in lost.stderr + lost.stdout
    assert len(lost.stderr.splitlines()) == 1


def test_a_run_names_its_graph_only_where_the_store_has_it(tg: Run, tmp_path: Path) -> None:
    bad = tmp_path / "bad.db"
    bad.write_text("this is no database, and long enough to be looked at as one\n" * 20)
    refused = tg("run", good(tmp_path), "--id", "q", store=f"sqlite:///{bad}")
    assert refused.returncode == 5, refused.stderr
    assert refused.stderr.startswith("error: ")
    assert "go on with" not in refused.stderr


def test_a_store_where_no_folder_can_be_made_is_named(tg: Run, tmp_path: Path) -> None:
    refused = tg("run", good(tmp_path), store="sqlite:////proc/nope/x.db")
    assert refused.returncode == 5, refused.stderr
    assert refused.stderr.startswith("error: the folder of /proc/nope/x.db cannot be made: "), refused.stderr
    assert "bug" not in refused.stderr


@pytest.mark.campaign
def test_a_store_that_never_answers_is_5_soon(tg: Run, tmp_path: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        end = f"http://127.0.0.1:{silent.getsockname()[1]}/account"
        ends = ";".join(f"{kind}Endpoint={end}" for kind in ("Table", "Queue", "Blob"))
        began = time.monotonic()
        lost = tg("submit", good(tmp_path), store=f"AccountName=account;AccountKey={'c2VjcmV0' * 8};{ends}")
    assert lost.returncode == 5, lost.stderr
    assert time.monotonic() - began < 15
    assert end in lost.stderr
    assert "c2VjcmV0" not in lost.stderr + lost.stdout
    assert "Traceback" not in lost.stderr


def test_a_reader_that_goes_away_is_quiet(tg: Run, tmp_path: Path, store: str) -> None:
    tg("submit", good(tmp_path), "--id", "g")
    with subprocess.Popen(
        [sys.executable, "-m", "taskgraph", "rows", "g"],
        cwd=tmp_path,
        env=environment(store),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        words = child.stderr.read().decode()
        assert child.wait(timeout=20) == 0
    assert "Traceback" not in words
    assert "Broken" not in words


def test_options_may_stand_before_the_command(tg: Run, tmp_path: Path) -> None:
    tg("submit", good(tmp_path), "--id", "g", store=f"sqlite:///{tmp_path}/other.db")
    assert tg("status", "g").returncode == 3
    assert tg("--store", "sqlite:///other.db", "status", "g").returncode == 0
    assert tg("status", "g", "--store", "sqlite:///other.db").returncode == 0
    assert json.loads(tg("--json", "--store", "sqlite:///other.db", "status", "g").stdout)["graphId"] == "g"
    refused = tg("--json", "import", "--from", "neutral", "x.json")
    assert refused.returncode == 2
    assert json.loads(refused.stdout)["error"]["message"] == "import has no --json"
    debug = tg("-vv", "status", "nope")
    assert debug.returncode == 3
    assert "Traceback" in debug.stderr


# --- a terminal ------------------------------------------------------------------------------------------------


def on_a_terminal(words: list[str], store: str, cwd: Path, *, columns: int = 80, **more: str) -> tuple[int, str]:
    """Run a command on a pseudo-terminal; gives its exit code and everything that it wrote."""
    env = {**environment(store, TERM="xterm-256color"), **more}
    env.pop("COLUMNS", None)
    terminal, far_end = pty.openpty()
    fcntl.ioctl(far_end, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
    child = subprocess.Popen(
        [sys.executable, "-m", "taskgraph", *words],
        cwd=cwd,
        env=env,
        stdin=far_end,
        stdout=far_end,
        stderr=far_end,
        start_new_session=True,
    )
    os.close(far_end)
    written = b""
    try:
        while data := os.read(terminal, 65_536):
            written += data
    except OSError:  # this is how a terminal says that nobody is there any more
        pass
    finally:
        os.close(terminal)
    return child.wait(timeout=20), written.decode("utf-8", "replace")


def test_a_terminal_gets_a_picture_and_colours(tmp_path: Path, store: str) -> None:
    evil = "x\u202ey [red]"
    tasks = {
        evil: command("sh", "-c", "sleep 0.6; printf '\\033[2J\\033[32mgreen\\033[0m\\n'; exit 3"),
        "long " + "name " * 40: command("sleep", "0.4"),
    }
    file = write_graph(tmp_path / "g.json", tasks)
    code, shown = on_a_terminal(["run", str(file), "--id", "g"], store, tmp_path)
    assert code == 1
    assert "\x1b[31m■ blocked\x1b[0m" in shown
    assert "━" in shown
    assert "\x1b[?25h" in shown  # the cursor is back
    assert "\u202e" not in shown
    assert "\x1b[2J" not in shown
    assert "x\\u202ey [red]" in shown
    code, shown = on_a_terminal(["logs", "g", evil], store, tmp_path)
    assert (code, shown) == (0, "\\x1b[2J\x1b[32mgreen\x1b[0m\r\n\x1b[0m")
    code, shown = on_a_terminal(["logs", "g", evil], store, tmp_path, NO_COLOR="1")
    assert (code, shown) == (0, "\\x1b[2Jgreen\r\n")
    code, shown = on_a_terminal(["show", "g"], store, tmp_path, columns=60, NO_COLOR="1")
    lines = shown.splitlines()
    assert code == 0
    assert all(len(line) <= 60 for line in lines)
    assert "…" in shown
    code, shown = on_a_terminal(["watch", "g"], store, tmp_path, TERM="dumb")
    assert code == 1
    assert "\x1b" not in shown


@both_doors
def test_limits_are_listed_set_and_cleared(tg: Run, tmp_path: Path) -> None:
    tasks = {label: command("true") for label in ("a", "b", "c")}
    groups = {"uploads": {"tasks": ["a", "b"], "maxInFlight": 1}}
    file = tmp_path / "limited.json"
    file.write_text(json.dumps({"tasks": tasks, "groups": groups, "maxInFlight": 2}))
    assert tg("submit", str(file), "--id", "g").returncode == 0
    assert "limit: 0 of 2 in flight" in tg("status", "g").stdout
    listed = json.loads(tg("limit", "list", "g", "--json").stdout)
    assert listed["limits"] == [
        {"group": None, "max": 2, "inFlight": []},
        {"group": "uploads", "max": 1, "inFlight": []},
    ]
    asked = tg("limit", "set", "g", "3", "--group", "uploads")
    assert (asked.returncode, asked.stdout) == (0, "group “uploads” of graph g: the limit is asked to be 3\n")
    assert tg("limit", "clear", "g").returncode == 0
    assert tg("limit", "set", "g", "0").returncode == 2
    assert tg("limit", "set", "g", "many").returncode == 2
    assert tg("limit", "set", "none", "3").returncode == 3
    file.write_text(json.dumps({"tasks": tasks, "groups": {"uploads": {"tasks": ["a", "b"]}}}))
    assert tg("submit", str(file), "--id", "h").returncode == 0
    assert "graph h has no limits" in tg("limit", "list", "h").stderr
    cleared = tg("limit", "clear", "h")
    assert (cleared.returncode, "graph h: it has no limit" in cleared.stderr) == (4, True)
    asked = tg("limit", "set", "h", "1", "--group", "uploads")
    assert (asked.returncode, asked.stdout) == (0, "group “uploads” of graph h: the limit is asked to be 1\n")
    assert (
        tg("limit", "set", "--target", "gpu", "4", "--reason", "four of them").stdout == "target gpu: the limit is 4\n"
    )
    assert tg("limit", "set", "--target", "gpu", "4", "g").returncode == 2
    (target,) = json.loads(tg("limit", "list", "--json").stdout)["targets"]
    assert (target["target"], target["max"], target["reason"], target["permits"]) == ("gpu", 4, "four of them", [])
    assert tg("limit", "clear", "--target", "gpu").stdout == "target gpu has no limit any more\n"
    assert "no target is limited" in tg("limit", "list").stderr
