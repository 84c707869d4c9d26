"""Real processes of the command line, for tests: start, wait for a condition, end by id."""

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.e2e.forked import Forked

ROOT = Path(__file__).resolve().parents[2]

Door = Callable[[Sequence[str], str], str]
doors: list[Door] = []
"""What finds, of the words of a command and its store, over what it goes instead: see tests/http/typed.py."""


def environment(store: str, **more: str) -> dict[str, str]:
    """The environment of a child: this one's, without settings that would reach in from outside."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TASKGRAPH_", "AzureWebJobs"))}
    return {**kept, "TASKGRAPH_STORE": store, **more}


@functools.cache
def forked() -> Forked:
    """Of this process."""
    return Forked()


def taskgraph(*words: str, store: str, cwd: Path, timeout_seconds: float = 120, **more: str) -> Any:
    """Run a command to its end; gives the completed process, with text output."""
    for door in doors:
        store = door(words, store)
    env = environment(store, **more)
    if forked().can_run(env):
        return forked().run(words, env, cwd, timeout_seconds)
    return subprocess.run(
        [sys.executable, "-m", "taskgraph", *words],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=timeout_seconds,
        check=False,
    )


@contextlib.contextmanager
def started(
    *words: str, store: str, cwd: Path, name: str = "", code: str = "", **more: str
) -> Iterator[subprocess.Popen[bytes]]:
    """A command in the background; ended on leaving. Its output goes to `<name>.log` in cwd.

    code: what is run in place of the command line itself.
    """
    with Path(cwd, f"{name or words[0]}.log").open("ab") as log:
        child = subprocess.Popen(
            [sys.executable, *(("-c", code) if code else ("-m", "taskgraph")), *words],
            cwd=cwd,
            env=environment(store, **more),
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            yield child
        finally:
            if child.poll() is None:
                child.send_signal(signal.SIGTERM)
                try:
                    child.wait(timeout=20)
                except subprocess.TimeoutExpired:
                    child.kill()
                    child.wait()


def until(condition: Callable[[], Any], *, seconds: float = 30.0, what: str = "") -> Any:
    """Look until something is so; fails with `what` when it takes too long."""
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {seconds} s: {what or condition}"
        time.sleep(0.05)


def write_graph(path: Path, tasks: Mapping[str, Any], **more: Any) -> Path:
    """A document with these tasks. more: keys of it."""
    path.write_text(json.dumps({**more, "tasks": tasks}))
    return path


def command(*argv: str, requires: tuple[str, ...] = (), reruns: int = 0, **more: Any) -> dict[str, Any]:
    """A task that runs a command."""
    return {"requires": list(requires), "reruns": reruns, "task": {"payload": {"command": list(argv)}, **more}}
