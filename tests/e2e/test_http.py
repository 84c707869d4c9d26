"""`serve --http` as people start it: what it refuses, what it says, and a graph from submission to its end."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

TASKGRAPH: Final = [sys.executable, "-m", "taskgraph"]
DOCUMENT: Final = {"tasks": {"hello": {"task": {"payload": {"command": ["echo", "hello"]}}}}}


def environ(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TASKGRAPH_")}
    return {**kept, "TASKGRAPH_STORE": f"sqlite:///{folder}/store.db", "NO_COLOR": "1"}


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*TASKGRAPH, *words], env=environ(folder), capture_output=True, text=True, timeout=60)


@contextmanager
def server(folder: Path, *words: str, **more: str) -> Iterator[str]:
    """The address of a server; it must end well."""
    typed = [*TASKGRAPH, "serve", "--worker", "1", "--http", "0", *words]
    process = subprocess.Popen(typed, env=environ(folder) | more, stderr=subprocess.PIPE, text=True, cwd=folder)
    try:
        assert process.stderr is not None
        said = process.stderr.readline()
        found = re.search(r"answering on (http://127\.0\.0\.1:\d+/api/v1)", said)
        assert found, said
        yield found[1]
    finally:
        process.send_signal(signal.SIGTERM)
        rest = process.communicate(timeout=30)[1]
    assert process.returncode in (0, -signal.SIGTERM, 143), rest
    assert "Traceback" not in rest


@contextmanager
def asked(address: str, method: str, path: str, token: str = "", body: Any = None, **headers: str) -> Iterator[Any]:
    """The answer to a request, while it is read."""
    place = urlsplit(address)
    named = {"Content-Type": "application/json", **headers}
    named |= {"Authorization": f"Bearer {token}"} if token else {}
    connection = HTTPConnection(str(place.hostname), place.port, timeout=60)
    try:
        connection.request(method, place.path + path, json.dumps(body) if body else None, named)
        yield connection.getresponse()
    finally:
        connection.close()


def ask(address: str, method: str, path: str, token: str = "", body: Any = None) -> Any:
    with asked(address, method, path, token, body) as answer:
        return json.load(answer)


def test_a_server_lets_no_one_in_by_accident(tmp_path: Path) -> None:
    closed = run(tmp_path, "serve", "--http", "0")
    assert (closed.returncode, "token create" in closed.stderr) == (4, True), closed.stderr
    wide = run(tmp_path, "serve", "--http", "192.0.2.1:0", "--no-auth")
    assert (wide.returncode, "192.0.2.1" in wide.stderr) == (4, True), wide.stderr
    for words in (
        ("--http", "x"),
        ("--http", "99999"),
        ("--no-auth",),
        ("--runs", "3"),
        ("--http", "no.such.host.invalid:0", "--no-auth"),
    ):
        wrong = run(tmp_path, "serve", *words)
        assert wrong.returncode in (2, 4), (words, wrong.stderr)
        assert "Traceback" not in wrong.stderr


def test_from_a_token_to_the_end_of_a_graph(tmp_path: Path) -> None:
    made = run(tmp_path, "token", "create", "ci", "--role", "submitter", "--days", "1")
    token = made.stdout.strip()
    assert made.returncode == 0
    assert token not in made.stderr
    listed = json.loads(run(tmp_path, "token", "list", "--json").stdout)
    assert [(each["name"], each["role"]) for each in listed["tokens"]] == [("ci", "submitter")]
    with server(tmp_path) as address:
        assert ask(address, "GET", "/graphs")["status"] == 401
        assert ask(address, "PUT", "/graphs/g", token, DOCUMENT)["outcome"] == "created"
        cursor, seen = "0", list[str]()
        over = False
        while not over:
            over = ask(address, "GET", "/graphs/g", token)["state"] == "finished"  # then its events are all there
            wait = 0 if over else 10
            for event in ask(address, "GET", f"/graphs/g/events?since={cursor}&wait={wait}", token)["events"]:
                cursor = event["cursor"]
                seen.append(event["event"])
        assert seen[0] == "graph-running"
        with asked(address, "GET", "/graphs/g/tasks/hello/runs/0/log", token) as answer:
            assert answer.read() == b"hello\n"
        assert token.rpartition(".")[2] not in (tmp_path / "store.db").read_bytes().decode("latin-1")
        status = json.loads(run(tmp_path, "status", "g", "--json").stdout)
        assert ask(address, "GET", "/graphs/g", token) == status
    assert run(tmp_path, "token", "revoke", "ci").returncode == 0
    assert run(tmp_path, "token", "revoke", "ci").returncode == 3


def test_a_stream_that_is_open_does_not_hold_up_the_end(tmp_path: Path) -> None:
    far = {"tasks": {"far": {"task": {"target": "gpu", "executor": "noop"}}}}
    with ExitStack() as running:
        address = running.enter_context(server(tmp_path, "--no-auth"))
        ask(address, "PUT", "/graphs/g", body=far)
        with asked(address, "GET", "/graphs/g/events", Accept="text/event-stream") as stream:
            assert stream.readline() == b"retry: 2000\n"
            running.close()
            assert b"event: end" not in stream.read()
