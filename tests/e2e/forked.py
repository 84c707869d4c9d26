"""The command line in a process of its own, without another start of Python: a fork of one that has just imported it.

What this room is for: half of the time of a short command is the start of Python and `import taskgraph.interfaces.cli`,
which all commands do first and alike. A process that has got so far and no further forks for each command; the fork
goes on as `python -m taskgraph` does, and imports by itself what this command takes. How Python starts is for tests
that start it: `processes.started`, those of pages and examples, `test_start_up`.

    python -m tests.e2e.forked DESCRIPTOR     a socket: an order comes with four descriptors, see `Forked.run`
"""

import atexit
import contextlib
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
_ORDER_BYTES_MAX: Final = 1 << 17
_OURS: Final = ("TASKGRAPH_", "AzureWebJobs", "PYTEST_")
"""Variables that nothing reads while it is imported, so that a fork may have others than what it is a fork of."""


def _others(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if not name.startswith(_OURS)}


class Forked:
    """What commands of this process are forks of. It ends with this process."""

    def __init__(self) -> None:
        self._environment = _others(os.environ)
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.e2e.forked", str(theirs.fileno())],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,  # as a command has it: Python looks at the start what one can do with it
                stderr=subprocess.STDOUT,
                pass_fds=[theirs.fileno()],
            )
        atexit.register(self._close)

    def _close(self) -> None:
        self._orders.close()
        self._process.communicate()

    def can_run(self, environment: Mapping[str, str]) -> bool:
        """Whether a fork is what a new process would be: with other variables Python may start in another way."""
        return self._process.poll() is None and _others(environment) == self._environment

    def run(
        self, words: Sequence[str], environment: Mapping[str, str], cwd: Path, timeout_seconds: float
    ) -> "subprocess.CompletedProcess[str]":
        """As `subprocess.run` does with captured text. Raises subprocess.TimeoutExpired."""
        order = {"words": list(words), "environment": dict(environment), "cwd": str(cwd)}
        with contextlib.ExitStack() as stack:
            reads, writes = zip(*(os.pipe() for _ in range(3)), strict=True)
            try:
                socket.send_fds(self._orders, [json.dumps(order).encode()], [0, *writes])
            finally:
                for each in writes:
                    os.close(each)
            streams = [stack.enter_context(open(each, "rb", buffering=0)) for each in reads]
            stdout, stderr, told = _read_all(streams, time.monotonic() + timeout_seconds)
        numbers = [int(each) for each in told.split()]
        if len(numbers) < 2:
            for pid in numbers:
                os.kill(pid, signal.SIGKILL)
            raise subprocess.TimeoutExpired(list(words), timeout_seconds, stdout, stderr)
        text, errors = (each.decode().replace("\r\n", "\n").replace("\r", "\n") for each in (stdout, stderr))
        return subprocess.CompletedProcess(list(words), numbers[1], text, errors)


def _read_all(streams: Sequence[Any], until: float) -> list[bytes]:
    """What comes from each until its end, or until then."""
    found = dict.fromkeys(streams, b"")
    with selectors.DefaultSelector() as selector:
        for stream in streams:
            selector.register(stream, selectors.EVENT_READ)
        while selector.get_map() and (left := until - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                data = key.fileobj.read(1 << 16)  # type: ignore[union-attr]
                found[key.fileobj] += data
                if not data:
                    selector.unregister(key.fileobj)
    return list(found.values())


# --- the other end ---------------------------------------------------------------------------------------------


def _next_order(orders: socket.socket) -> dict[str, Any]:
    """Fork for each order, and twice: one looks after the other, says its process id, and then its exit code.

    Gives the order in the process that is to obey it.
    """
    interrupts = signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that look after others
    while True:
        data, descriptors, _, _ = socket.recv_fds(orders, _ORDER_BYTES_MAX, 4)
        if not data:
            os._exit(0)
        if os.fork():
            for each in descriptors:
                os.close(each)
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        pid = os.fork()
        if pid:
            *others, told = descriptors
            for each in others:
                os.close(each)
            os.write(told, f"{pid} ".encode())
            _, status = os.waitpid(pid, 0)
            os.write(told, str(os.waitstatus_to_exitcode(status)).encode())
            os._exit(0)
        signal.signal(signal.SIGINT, interrupts)
        for number, each in enumerate(descriptors[:3]):
            os.dup2(each, number)
        os.closerange(3, max(*descriptors, orders.detach()) + 1)
        order: dict[str, Any] = json.loads(data)
        return order


def main() -> None:
    import taskgraph.interfaces.cli  # noqa: F401 - what `python -m taskgraph` does first, whatever the command is

    order = _next_order(socket.socket(fileno=int(sys.argv[1])))
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.path[0] = order["cwd"]
    sys.argv = ["taskgraph", *order["words"]]
    runpy.run_module("taskgraph", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
