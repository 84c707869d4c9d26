"""The workers of examples/http, which have no part of taskgraph, with a server that they reach by a token alone."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest

from tests.e2e.processes import ROOT
from tests.e2e.test_http import ask, run, server

EXAMPLES: Final = ROOT / "examples" / "http"
WORKERS: Final = {"node": ["node", str(EXAMPLES / "worker.mjs")], "sh": ["sh", str(EXAMPLES / "worker.sh")]}


@contextmanager
def worker(kind: str, folder: Path, address: str, token: str, **more: str) -> Iterator[subprocess.Popen[bytes]]:
    """One of them; ended by SIGTERM on leaving."""
    kept = {"PATH": os.environ["PATH"], "HOME": str(folder), "TMPDIR": str(folder)}
    given = {**kept, "API": address, "TOKEN": token, "TARGET": "box", "WORKER": kind, "LEASE": "6", **more}
    with (folder / f"{kind}.log").open("ab") as log:
        process = subprocess.Popen(WORKERS[kind], env=given, cwd=folder, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)
        until(lambda: not left_of(WORKERS[kind][1], folder))


def left_of(program: str, folder: Path) -> list[str]:
    """Processes that a worker has left there."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            if program in (each / "cmdline").read_text().split("\0") and (each / "cwd").readlink() == folder:
                found.append(each.name)
    return found


def until(look: Callable[[], Any], seconds: float = 40.0) -> Any:
    """What a look gives, once it gives something."""
    end = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.05)
    return found


def submit(folder: Path, graph_id: str, tasks: dict[str, Any]) -> None:
    for each in tasks.values():
        each["task"]["target"] = "box"
    document = folder / f"{graph_id}.json"
    document.write_text(json.dumps({"tasks": tasks}))
    made = run(folder, "submit", str(document), "--id", graph_id)
    assert made.returncode == 0, made.stderr


def command(*words: str) -> dict[str, Any]:
    return {"payload": {"command": list(words)}}


def task(folder: Path, graph_id: str, label: str) -> Any:
    return json.loads(run(folder, "task", graph_id, label, "--json").stdout)


@pytest.fixture(params=["node", pytest.param("sh", marks=pytest.mark.campaign)])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_worker_of_the_examples(kind: str, tmp_path: Path) -> None:
    """Runs commands with their quotes, uploads logs, renews, reports failures, and stops what is cancelled."""
    token = run(tmp_path, "token", "create", "box", "--role", "worker", "--targets", "box").stdout.strip()
    with server(tmp_path) as address, worker(kind, tmp_path, address, token) as process:
        lines = 'echo "it\'s $0"; echo two >&2'
        submit(
            tmp_path,
            "g",
            {
                "says": {"task": command("sh", "-c", lines, "a  b")},
                "long": {"requires": ["says"], "task": command("sleep", "8")},  # longer than its first lease
                "fails": {"reruns": 1, "requires": ["long"], "task": command("sh", "-c", "exit 7")},
                "none": {"requires": ["says"], "task": {"executor": "other", "payload": {}}},
            },
        )
        until(lambda: run(tmp_path, "status", "g", "--json").stdout.count('"blocked"'))
        until(lambda: task(tmp_path, "g", "fails")["state"] == "failed")
        log = run(tmp_path, "logs", "g", "says").stdout
        assert ("it's a  b" in log, "two" in log) == (True, True), log
        long = task(tmp_path, "g", "long")
        assert (long["state"], long["run"], long["retriesLeft"]) == ("completed", 0, 5)
        assert long["worker"].startswith(kind)
        failed = task(tmp_path, "g", "fails")
        assert (failed["run"], failed["resolution"]["exitCode"]) == (1, 7)
        assert task(tmp_path, "g", "none")["state"] == "exception"
        submit(tmp_path, "c", {"sleeps": {"task": command("sleep", "600")}})
        until(lambda: task(tmp_path, "c", "sleeps")["state"] == "running")
        assert run(tmp_path, "cancel", "c", "--reason", "no use").returncode == 0
        until(lambda: run(tmp_path, "status", "c", "--json").stdout.count('"cancelled"'))
        assert process.poll() is None


@pytest.mark.campaign
def test_a_worker_of_the_examples_is_stopped(kind: str, tmp_path: Path) -> None:
    """What it has in hand goes back, and spends nothing; the other worker goes on with it."""
    token = run(tmp_path, "token", "create", "box", "--role", "worker").stdout.strip()
    with server(tmp_path) as address:
        mark = tmp_path / "second"
        submit(tmp_path, "g", {"once": {"task": command("sh", "-c", f"test -e {mark} || sleep 600")}})
        with worker(kind, tmp_path, address, token):
            until(lambda: task(tmp_path, "g", "once")["state"] == "running")
        mark.touch()
        back = task(tmp_path, "g", "once")
        assert (back["state"], back["run"], back["retriesLeft"]) == ("pending", 1, 5)
        (other,) = set(WORKERS) - {kind}
        with worker(other, tmp_path, address, token):
            until(lambda: task(tmp_path, "g", "once")["state"] == "completed")
        listed = ask(address, "GET", "/workers")
        assert listed["status"] == 401


def test_a_token_has_so_many_runs_in_hand(tmp_path: Path) -> None:
    token = run(tmp_path, "token", "create", "box", "--role", "worker").stdout.strip()
    submit(tmp_path, "g", {name: {"task": {}} for name in ("a", "b", "c")})
    with server(tmp_path, "--runs", "2") as address:
        wanted = {"worker": "w", "slots": 3, "wait": 10}
        first = ask(address, "POST", "/targets/box:claim", token, wanted)
        assert len(first["tasks"]) == 2
        assert ask(address, "POST", "/targets/box:claim", token, wanted)["code"] == "in-flight"
        done = [{"claim": each["claim"], "end": "completed"} for each in first["tasks"]]
        assert len(ask(address, "POST", "/targets/box:claim", token, {**wanted, "done": done})["tasks"]) == 1
