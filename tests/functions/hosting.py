"""A host of functions in a process of its own, for tests: `taskgraph functions start --json`, and what it says."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from taskgraph.model import schemas
from tests.e2e.processes import environment

ROOT: Final = Path(__file__).resolve().parents[2]
WORKER_ENVIRONMENT: Final = ROOT / ".venv-functions"

Event = dict[str, Any]


class RunningHost:
    """A host that runs, or has run.

    prefix: of its queues, which no other test uses. events: every line that it has said so far. folder: where its
    `out`, its `err` and what its functions record are.
    """

    def __init__(self, process: subprocess.Popen[bytes], folder: Path, prefix: str) -> None:
        self.process = process
        self.folder = folder
        self.prefix = prefix

    @property
    def events(self) -> list[Event]:
        text = (self.folder / "out").read_text("utf-8")
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    @property
    def errors(self) -> str:
        """What it has said to people."""
        return (self.folder / "err").read_text("utf-8")

    @property
    def worker_pid(self) -> int:
        """Of the worker process that serves now."""
        return int(self.all("ready", "worker-started")[-1]["pid"])

    def queue(self, name: str) -> str:
        return f"{self.prefix}-{name}"

    def all(self, *kinds: str, **like: Any) -> list[Event]:
        """The events of some kinds whose members are as given."""
        return [
            event
            for event in self.events
            if event["type"] in kinds and all(event.get(name) == value for name, value in like.items())
        ]

    async def until(self, kind: str, *, times: int = 1, seconds: float = 30.0, **like: Any) -> list[Event]:
        """Wait for so many events of a kind; gives them all."""
        return await self.until_found(lambda: found if len(found := self.all(kind, **like)) >= times else None, seconds)

    async def until_found(self, look: Callable[[], Any], seconds: float = 30.0) -> Any:
        """Wait until there is something to be found; fails with what the host has said."""
        end = time.monotonic() + seconds
        while not (found := look()):
            assert self.process.poll() is None, f"the host has ended: {self.errors}"
            assert time.monotonic() < end, f"not within {seconds} s\n{self.errors}\n{self.events[-20:]}"
            await asyncio.sleep(0.03)
        return found

    def recorded(self, name: str) -> list[dict[str, Any]]:
        """What a function of a test's app has written down: see `record` in its source."""
        path = self.folder / f"{name}.recorded"
        return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []

    def tell_to_stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    async def end(self, seconds: float = 30.0) -> int:
        """Wait for its end; gives the exit code."""
        return await asyncio.to_thread(self.process.wait, seconds)


@contextlib.contextmanager
def running_host(
    store: str, folder: Path, prefix: str, *options: str, app: Path | None = None, **more: str
) -> Iterator[RunningHost]:
    """Start a host over a store; it is told to stop on leaving. app: its folder; None: the one that we ship.

    more: of its environment. Nothing is waited for: the first event is `ready`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "taskgraph", "functions", "start", "--json", "-v"]
    command += ["--environment", str(WORKER_ENVIRONMENT), *(["--app", str(app)] if app else []), *options]
    settings: Mapping[str, str] = environment(store, TASKGRAPH_PREFIX=prefix, RECORD_IN=str(folder), **more)
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        process = subprocess.Popen(command, cwd=folder, env=dict(settings), stdout=out, stderr=err)
    host = RunningHost(process, folder, prefix)
    try:
        yield host
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=40)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    for event in host.events:
        obeys_its_schema("start", event)


def obeys_its_schema(command: str, answer: Any) -> Any:
    """The answer of `functions COMMAND --json`, which is one by the schema."""
    errors = [error.message for error in schemas.validator("answers", f"#functions-{command}").iter_errors(answer)]
    assert errors == [], answer
    return answer


def write_app(folder: Path, source: str, **host_json: Any) -> Path:
    """An app with this source, and what host.json says of queues."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "function_app.py").write_text(_HEAD + source, "utf-8")
    (folder / "host.json").write_text(json.dumps({"version": "2.0", "extensions": {"queues": host_json}}))
    return folder


_HEAD: Final = '''
import asyncio
import json
import logging
import os
import pathlib
import time

import azure.functions as func

app = func.FunctionApp()
prefix = os.environ["TASKGRAPH_PREFIX"]


def record(name, **what):
    """A line that the test reads: one write, as calls run side by side."""
    line = json.dumps({"at": time.time(), **what}) + "\\n"
    with pathlib.Path(os.environ["RECORD_IN"], f"{name}.recorded").open("a") as file:
        file.write(line)


def on_queue(name):
    trigger = app.queue_trigger(arg_name="message", queue_name=f"{prefix}-{name}", connection="AzureWebJobsStorage")
    return lambda function: app.function_name(name)(trigger(function))

'''


def environment_is_required() -> bool:
    """Whether a missing worker library is a failure and no reason to skip."""
    return bool(os.environ.get("CI") or os.environ.get("TASKGRAPH_TEST_REQUIRE_AZURITE"))
