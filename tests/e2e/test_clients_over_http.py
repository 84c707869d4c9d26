"""The clients of examples/http, which have no part of taskgraph, with a server that they reach by a token alone."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from tests.e2e.processes import ROOT, until
from tests.e2e.test_http import ask, asked, run, server

EXAMPLES: Final = ROOT / "examples" / "http"
PROGRAMS: Final = {".sh": "sh", ".mjs": "node", ".py": sys.executable}


@contextmanager
def client(name: str, *words: str, folder: Path, address: str, token: str) -> Iterator[subprocess.Popen[str]]:
    """One of the clients; ended on leaving."""
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "API": address, "TOKEN": token}
    process = subprocess.Popen(
        [PROGRAMS[Path(name).suffix], str(EXAMPLES / name), *words],
        env=environ,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def finished(name: str, *words: str, **more: Any) -> tuple[int, str, str]:
    """Exit code, output and errors."""
    with client(name, *words, **more) as process:
        out, errors = process.communicate(timeout=60)
        return process.returncode, out, errors


def graph(folder: Path, **tasks: Any) -> str:
    """The path of a document of these commands of `sh`; each requires the one before."""
    document = folder / "graph.json"
    labels = list(tasks)
    document.write_text(
        json.dumps(
            {
                "tasks": {
                    label: {"requires": labels[:number][-1:], "task": {"payload": {"command": ["sh", "-c", text]}}}
                    for number, (label, text) in enumerate(tasks.items())
                }
            }
        )
    )
    return str(document)


def a_token(folder: Path, role: str) -> str:
    return run(folder, "token", "create", role, "--role", role).stdout.strip()


def a_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def test_submit(tmp_path: Path) -> None:
    token = a_token(tmp_path, "submitter")
    with server(tmp_path) as address:
        reached: Any = {"folder": tmp_path, "address": address, "token": token}
        for outcome in ("created", "existing"):
            code, out, errors = finished("submit.sh", graph(tmp_path, a="true"), "g", **reached)
            submitted, status = map(json.loads, out.splitlines())
            assert (code, submitted["outcome"], errors) == (0, outcome, "")
            assert (status["graphId"], status["taskCount"]) == ("g", 1)
        wrong = tmp_path / "wrong.json"
        wrong.write_text('{"tasks": {"a": {"requires": ["b"]}}}')
        code, out, errors = finished("submit.sh", str(wrong), "w", **reached)
        assert (code, json.loads(out)["code"]) == (22, "invalid-graph"), errors


def test_follow_goes_on_where_its_stream_broke_off(tmp_path: Path) -> None:
    token, mark, listening = a_token(tmp_path, "submitter"), tmp_path / "mark", ("--http", str(a_port()))
    waits = f"while ! test -e {mark}; do sleep 0.1; done"
    with ExitStack() as open_clients:
        with server(tmp_path, *listening) as address:
            reached: Any = {"folder": tmp_path, "address": address, "token": token}
            assert finished("submit.sh", graph(tmp_path, a="true", b=waits), "g", **reached)[0] == 0
            follow = open_clients.enter_context(client("follow.mjs", "g", **reached))
            assert follow.stdout is not None
            lines = list[str]()
            while not lines or "task-completed a" not in lines[-1]:
                lines.append(follow.stdout.readline())
                assert lines[-1], "it has ended"
        mark.touch()
        with server(tmp_path, *listening):
            out, errors = follow.communicate(timeout=60)
    assert follow.returncode == 0, errors
    journal = json.loads(run(tmp_path, "events", "g", "--json").stdout)["events"]
    seen = [line.split()[:2] for line in [*lines, *out.splitlines()]]
    assert seen == [[each["time"], each["event"]] for each in journal]


def test_follow_says_by_its_exit_code_how_a_graph_has_ended(tmp_path: Path) -> None:
    token = a_token(tmp_path, "operator")
    with server(tmp_path) as address:
        reached: Any = {"folder": tmp_path, "address": address, "token": token}
        assert finished("submit.sh", graph(tmp_path, a="exit 3"), "g", **reached)[0] == 0
        code, out, _ = finished("follow.mjs", "g", **reached)
        assert (code, "task-failed a" in out) == (1, True), out
        with asked(
            address, "POST", "/graphs/g/changes?unguarded=1", token, {"change": "cancel"}, Prefer="wait=20"
        ) as answer:
            assert answer.status == 200
        assert finished("follow.mjs", "g", **reached)[0] == 1
        code, _, errors = finished("follow.mjs", "none", **reached)
        assert (code, "none" in errors) == (2, True), errors


def test_client(tmp_path: Path) -> None:
    token, port = a_token(tmp_path, "submitter"), a_port()
    gives = graph(tmp_path, a="true", b='echo \'{"sum": 42}\' > "$TASKGRAPH_RESULT_FILE"')
    reached: Any = {"folder": tmp_path, "address": f"http://127.0.0.1:{port}/api/v1", "token": token}
    with client("client.py", gives, "g", "b", **reached) as early:
        assert early.stderr is not None
        assert "refused" in early.stderr.readline()
        with server(tmp_path, "--http", f"127.0.0.1:{port}"):
            out, errors = early.communicate(timeout=60)
            assert (early.returncode, json.loads(out)) == (0, {"sum": 42}), errors
            assert finished("client.py", gives, "g", "b", **reached)[:2] == (0, '{"sum": 42}\n')
            code, _, errors = finished("client.py", graph(tmp_path, a="exit 3"), "f", "a", **reached)
            assert (code, errors) == (1, "graph f is blocked\n")
            code, _, errors = finished("client.py", gives, "f", "a", **reached)
            assert (code, "f" in errors) == (1, True), errors


def test_plan(tmp_path: Path) -> None:
    token, mark = a_token(tmp_path, "operator"), tmp_path / "mark"
    with server(tmp_path) as address:
        reached: Any = {"folder": tmp_path, "address": address, "token": token}
        assert finished("submit.sh", graph(tmp_path, a=f"test -e {mark}", b="true"), "g", **reached)[0] == 0
        until(lambda: ask(address, "GET", "/graphs/g", token)["state"] == "blocked", what="a failure")
        mark.touch()
        code, out, errors = finished("plan.sh", "g", **reached)
        assert (code, errors) == (0, ""), out
        lines = out.splitlines()
        plan, made, stale = (json.loads(each) for each in lines[::2])
        assert lines[1::2] == ["HTTP 200", "HTTP 200", "HTTP 412"]
        assert [(each["label"], each["to"]) for each in plan["tasks"]] == [("a", "pending")]
        assert made["state"] == "done"
        assert (stale["code"], stale["plan"]["plan"] != plan["plan"]) == ("stale-plan", True)
        until(lambda: ask(address, "GET", "/graphs/g", token)["state"] == "finished", what="its end")
