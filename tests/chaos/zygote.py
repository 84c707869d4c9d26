"""A process that has imported everything, and forks: each child is the real command line, started in milliseconds.

What this room is for: the far end of `processes.Zygote`. Orders come as lines of JSON on stdin, reports leave as lines
of JSON on stdout. It is single-threaded and runs no event loop, so that its children begin clean. It ends all its
children when its stdin ends, however its parent has ended.

    {"start": 1, "argv": ["serve"], "environment": {…}, "log": "/…/serve.log"}   →  {"started": 1, "pid": 4711}
    {"signal": 9, "pid": 4711}                                                    →  {"signalled": 4711, "time": …}
                                                     when a child has ended       →  {"ended": 4711, "status": -9, …}
"""

import contextlib
import ctypes
import gc
import io
import json
import os
import selectors
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import taskgraph.interfaces.cli
import taskgraph.interfaces.client.client
import taskgraph.interfaces.loops
import taskgraph.storage.azure.account
import taskgraph.worker.executors.callables
from tests.chaos import launcher, tasks  # noqa: F401 - imported here, so that no child has to

_PR_SET_PDEATHSIG: Final = 1


class _Zygote:
    def __init__(self) -> None:
        self.children: set[int] = set()
        self._buffer = b""

    def run(self) -> None:
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_read, False)
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # its parent says when to end
        with selectors.DefaultSelector() as selector:
            selector.register(0, selectors.EVENT_READ)
            selector.register(wake_read, selectors.EVENT_READ)
            try:
                while True:
                    for key, _ in selector.select():
                        if key.fd == wake_read:
                            os.read(wake_read, 4096)
                            self._reap()
                        elif not self._orders():
                            return
            finally:
                self._end_all()

    def _orders(self) -> bool:
        data = os.read(0, 1 << 16)
        if not data:
            return False
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            order = json.loads(line)
            if "start" in order:
                self._start(order)
            elif order["pid"] in self.children:  # reaped here alone, so the id is still its own
                os.kill(order["pid"], order["signal"])
                _tell(signalled=order["pid"], signal=order["signal"])
        return True

    def _start(self, order: Mapping[str, Any]) -> None:
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            _become(order, parent)
        self.children.add(pid)
        _tell(started=order["start"], pid=pid)

    def _reap(self) -> None:
        while self.children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            self.children.discard(pid)
            _tell(ended=pid, status=os.waitstatus_to_exitcode(status))

    def _end_all(self) -> None:
        for pid in self.children:
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(BrokenPipeError):  # nobody is left to be told
            for pid in list(self.children):
                _, status = os.waitpid(pid, 0)
                self.children.discard(pid)
                _tell(ended=pid, status=os.waitstatus_to_exitcode(status))


def _become(order: Mapping[str, Any], parent: int) -> None:
    """Be the command line. Never returns."""
    code = 70
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # should the zygote itself be killed
        if os.getppid() != parent:
            os._exit(code)
        os.closerange(3, 256)
        silence = os.open(os.devnull, os.O_RDONLY)
        os.dup2(silence, 0)
        log = os.open(order["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ.update(order["environment"])
        sys.argv = ["taskgraph", *order["argv"]]
        try:
            launcher.main()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _tell(**report: Any) -> None:
    os.write(1, (json.dumps({**report, "time": time.time()}) + "\n").encode())


def _warm_up() -> None:
    """Submit a graph once, in an installation of its own: whatever is imported or made at first use is there then."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "graph.json")
        file.write_text(json.dumps({"tasks": {"a": {"task": {"payload": {"call": "work"}}}}}))
        for words in (["submit", str(file), "--id", "warm"], ["extend", "warm", str(file), "--no-wait"], ["list"]):
            sys.argv = ["taskgraph", *words]
            with (
                contextlib.redirect_stdout(io.StringIO()),
                contextlib.redirect_stderr(io.StringIO()),
                contextlib.suppress(SystemExit),
            ):
                taskgraph.interfaces.cli.main()


def main() -> None:
    os.environ["TASKGRAPH_PREFIX"] = "warm"
    _warm_up()
    gc.collect()
    gc.freeze()  # children share these pages for as long as nobody touches them
    _tell(ready=True)
    _Zygote().run()


if __name__ == "__main__":
    main()
