"""Signals to real processes: Ctrl-C at any moment without a traceback, and an end in time whatever the store does."""

import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.e2e.processes import command, environment, started, until, write_graph

GRACE_SECONDS = 10.0
ROOM = 1_000_000  # bytes of any file

SEEN_STARTING = """
import os, sys
from taskgraph.__main__ import main

class Watcher:
    def find_spec(self, name, path=None, target=None):
        if name == "taskgraph.interfaces":
            os.write(1, b"up\\n")

sys.meta_path.insert(0, Watcher())
sys.argv = ["taskgraph", *sys.argv[1:]]
main()
"""
"""A process that says when it begins to import the command line: before that stands the start of Python itself."""

BUSY = """
import asyncio, contextlib, os, sys, threading, time
from taskgraph.interfaces.cli.signals import minding_signals

async def body():
    async with minding_signals(grace_seconds=0.0) as stop:
        os.write(1, b"up\\n")
        await stop.event.wait()
        if sys.argv[1] == "cancelled":
            await asyncio.sleep(600)
        while sys.argv[1] == "stubborn":
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(600)
        await asyncio.to_thread(time.sleep, 600)

asyncio.run(body())
"""


def heeding() -> None:
    """Not as the tests themselves, which may run under nohup, or in the background."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def limited() -> None:
    """What a full disk is: no file grows beyond this."""
    heeding()
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, ROOM))


@pytest.mark.parametrize("words", [("list",), ("validate", "g.json"), ("run", "g.json", "--id", "g")])
def test_ctrl_c_at_any_moment_shows_no_traceback(words: tuple[str, ...], tmp_path: Path) -> None:
    write_graph(tmp_path / "g.json", {"a": command("true")})
    store = f"sqlite:///{tmp_path}/store.db"
    codes = set()
    for at in [0.0, 0.03, 0.06, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5]:
        child = subprocess.Popen(
            [sys.executable, "-c", SEEN_STARTING, *words],
            cwd=tmp_path,
            env=environment(store),
            preexec_fn=heeding,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(at)
        child.send_signal(signal.SIGINT)
        _, stderr = child.communicate(timeout=30)
        assert "Traceback" not in stderr, (at, stderr)
        assert "Exception ignored" not in stderr, (at, stderr)
        codes.add(child.returncode)
    assert codes <= {0, 130, -signal.SIGINT}
    assert codes & {130, -signal.SIGINT}, "at least one of them was interrupted"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("kind", ["run", "serve"])
def test_with_a_full_disk_a_process_ends_in_time_and_says_so_once(
    kind: str, number: signal.Signals, tmp_path: Path
) -> None:
    file = write_graph(tmp_path / "g.json", {f"t{n}": command("sleep", "0.02", "x" * 1_000) for n in range(400)})
    words = {"run": ("run", str(file), "--id", "g"), "serve": ("serve", "--worker", "2")}[kind]
    store = f"sqlite:///{tmp_path}/s.db"
    if kind == "serve":
        done = subprocess.run(
            [sys.executable, "-m", "taskgraph", "submit", str(file)], cwd=tmp_path, env=environment(store), check=False
        )
        assert done.returncode == 0
    said = tmp_path / "said.log"
    with said.open("wb") as output:
        child = subprocess.Popen(
            [sys.executable, "-m", "taskgraph", *words],
            cwd=tmp_path,
            env=environment(store),
            preexec_fn=limited,
            stdout=output,
            stderr=output,
        )
    try:
        until(lambda: b"the disk is full" in said.read_bytes(), seconds=60, what="a full disk")
        time.sleep(1.5)  # there is one such warning at each try
        child.send_signal(number)
        began = time.monotonic()
        child.wait(timeout=GRACE_SECONDS)
        assert time.monotonic() - began < GRACE_SECONDS
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()
    assert said.read_text().count("warning: ") <= 1, said.read_text()


@pytest.mark.parametrize("how", ["cancelled", "stubborn", "in a thread"])
def test_what_does_not_come_to_its_end_is_ended(how: str, tmp_path: Path) -> None:
    """As with a store that does not answer: cancelled in time, and else the process ends on the spot."""
    with started(how, store="sqlite:///s.db", cwd=tmp_path, name="log", code=BUSY) as child:
        until(lambda: b"up" in (tmp_path / "log.log").read_bytes(), what="a process that minds signals")
        child.send_signal(signal.SIGTERM)
        began = time.monotonic()
        child.wait(timeout=8)
        took = time.monotonic() - began
    text = (tmp_path / "log.log").read_text()
    assert took >= 2.5
    if how == "cancelled":
        assert "Interrupted" in text, "as a second signal"
    else:
        assert (child.returncode, "ended before all was handed back" in text) == (130, True), text
