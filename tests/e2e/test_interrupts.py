"""Ctrl-C at any moment of a command ends it without a traceback."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.e2e.processes import environment, write_graph

_STEPS = 10
_FIRST_SECONDS = 0.02  # until `signal` is imported
_SECONDS = 0.8  # by then a command that looks has ended, and one that waits is waiting


@pytest.mark.parametrize("words", [("status", "none"), ("run", "g.json"), ("--help",), ("serve",)])
def test_no_traceback_at_any_moment(words: tuple[str, ...], tmp_path: Path) -> None:
    write_graph(tmp_path / "g.json", {"a": {"task": {"executor": "sleep", "payload": {"seconds": 60}}}})
    store = f"sqlite:///{tmp_path}/a.db"
    codes = set()
    for step in range(1, _STEPS + 1):
        process = subprocess.Popen(
            # The interpreter's own start is not ours: the process says when that is over.
            [sys.executable, "-c", "print(flush=True); from taskgraph.__main__ import main; main()", *words],
            cwd=tmp_path,
            env=environment(store),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(_FIRST_SECONDS + _SECONDS * (step / _STEPS) ** 2)
        os.kill(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=60)
        text = err.decode()
        assert "Traceback" not in text, text
        assert "KeyboardInterrupt" not in text, text
        assert process.returncode in (-signal.SIGINT, 130, 0, 3), (process.returncode, text)
        codes.add(process.returncode)
    assert codes & {-signal.SIGINT, 130}, "some were interrupted"
