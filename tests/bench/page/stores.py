"""Servers as users start them, in processes of their own, and graphs that have run."""

import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from tests.browser.budgets import layered

LARGE: Final = {"ten": (100, 100), "hundred": (100, 1_000)}
"""Graphs by their levels and the tasks of each, which require three of the level before."""

_START_SECONDS: Final = 60
_END_SECONDS: Final = 600


def typed(store: str, *words: str) -> str:
    """What a command prints. Raises RuntimeError with what it says."""
    command = [sys.executable, "-m", "taskgraph", *words]
    done = subprocess.run(
        command, env={**os.environ, "TASKGRAPH_STORE": store}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout.strip()


def made(folder: Path) -> str:
    """A store in a folder with LARGE, each run to its end; those of an earlier call, if any."""
    store = f"sqlite:///{folder}/store.db"
    for name in LARGE:
        if not (done := folder / f"{name}.ran").exists():
            typed(store, "run", str(document(folder, name)), "--id", name, "--slots", "32")
            done.touch()
    return store


def document(folder: Path, name: str) -> Path:
    """The file of one of LARGE."""
    path = folder / f"{name}.json"
    path.write_text(json.dumps(layered(*LARGE[name], 3)))
    return path


def lasting() -> dict[str, Any]:
    """10,000 tasks that take from 20 to 56 s each."""
    found = layered(*LARGE["ten"], 3)
    for number, task in enumerate(found["tasks"].values()):
        task["task"] = {"executor": "sleep", "payload": {"seconds": 20 + number % 37}}
    return found


@dataclass(frozen=True, slots=True)
class Api:
    address: str
    process: int

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        named = {"Content-Type": "application/json", **{name.replace("_", "-"): text for name, text in headers.items()}}
        connection = http.client.HTTPConnection(self.address.removeprefix("http://"), timeout=120)
        with closing(connection):
            connection.request(method, f"/api/v1{path}", None if body is None else json.dumps(body), named)
            answer = connection.getresponse()
            found = json.load(answer)
        if answer.status >= 400:
            raise RuntimeError(f"{method} {path}: {found}")
        return found

    def ended(self, graph: str) -> float:
        """Waits until it has finished; seconds since 1970 when it had."""
        until = time.monotonic() + _END_SECONDS
        while time.monotonic() < until:
            found = self.ask("GET", f"/graphs/{graph}")
            if found["state"] == "finished":
                return datetime.fromisoformat(found["ended"]).timestamp()
            time.sleep(0.5)
        raise TimeoutError(f"{graph} does not finish")


@contextmanager
def serving(store: str, *, slots: int = 0) -> Iterator[Api]:
    """A server without tokens, and the page at its root. slots: it runs so many tasks side by side, too."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "taskgraph", "serve", "--http", str(port), "--no-auth", "--worker", str(slots)]
    process = subprocess.Popen([*command, "--store", store], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        api = Api(f"http://127.0.0.1:{port}", process.pid)
        until = time.monotonic() + _START_SECONDS
        while True:
            try:
                api.ask("GET", "/health")
                break
            except OSError:
                if time.monotonic() > until or process.poll() is not None:
                    raise
                time.sleep(0.1)
        yield api
    finally:
        process.terminate()
        process.wait(60)
