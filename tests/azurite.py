"""The storage emulator, as the tests run it (D15a).

Three processes on free loopback ports: tables in memory (on disk they are dumped whole every five seconds), queues and
blobs on disk (in memory, the queues freeze for seconds once some thousand messages have passed). They are ended by
SIGTERM and never killed: a kill loses what was acknowledged.

As a command:  python -m tests.azurite -- COMMAND...   runs COMMAND with TASKGRAPH_TEST_AZURITE set.
"""

import contextlib
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

VARIABLE = "TASKGRAPH_TEST_AZURITE"
_ROOT = Path(__file__).resolve().parent.parent
_PACKAGE = _ROOT / "node_modules" / "azurite"
_ACCOUNT = "devstoreaccount1"  # the emulator's own, documented everywhere
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_START_SECONDS = 60.0
_STOP_SECONDS = 30.0
_ATTEMPTS = 3
_PR_SET_PDEATHSIG = 1  # of prctl(2)


class AzuriteMissing(Exception):
    """The emulator is not installed; its text says how to."""


class AzuriteFailed(Exception):
    """The emulator did not start, or did not stop."""


def version() -> str:
    """The installed version. Raises AzuriteMissing."""
    if not (_PACKAGE / "package.json").is_file() or shutil.which("node") is None:
        raise AzuriteMissing("the storage emulator is not installed: npm ci")
    return str(json.loads((_PACKAGE / "package.json").read_text())["version"])


@contextlib.contextmanager
def azurite(debug: Path | None = None) -> Iterator[str]:
    """Run the emulator; gives its connection string. Raises AzuriteMissing, AzuriteFailed.

    debug: a folder for its own logs of every request, `table.log`, `queue.log` and `blob.log`.
    """
    version()
    with tempfile.TemporaryDirectory(prefix="taskgraph-azurite-") as folder:
        for attempt in range(_ATTEMPTS):
            processes, ports = _start(Path(folder) / str(attempt), debug)
            try:
                if _all_answer(processes, ports):
                    yield _connection_string(ports)
                    return
            finally:
                _stop(processes)
        log = "\n".join(path.read_text() for path in sorted(Path(folder).glob("*/*.log")))
        raise AzuriteFailed(f"the storage emulator did not start:\n{log[-4000:]}")


def _start(folder: Path, debug: Path | None = None) -> tuple[list[subprocess.Popen[bytes]], dict[str, int]]:
    ports = _free_ports("table", "queue", "blob")
    processes = []
    for kind, port in ports.items():
        place = folder / kind
        place.mkdir(parents=True)
        keep = ["--inMemoryPersistence"] if kind == "table" else ["--location", str(place)]
        with (folder / f"{kind}.log").open("wb") as log:
            processes.append(
                subprocess.Popen(
                    [
                        "node",
                        str(_PACKAGE / "dist" / "src" / kind / "main.js"),
                        f"--{kind}Host",
                        "127.0.0.1",
                        f"--{kind}Port",
                        str(port),
                        *keep,
                        *(["--debug", str(debug / f"{kind}.log")] if debug is not None else []),
                        "--silent",
                        "--skipApiVersionCheck",
                        "--disableTelemetry",
                    ],
                    cwd=place,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,  # an interrupt at the terminal must not end it before the tests have ended
                    preexec_fn=_end_with_parent,
                )
            )
    return processes, ports


def _end_with_parent() -> None:
    """In the child: be told to stop when the parent is gone, however it went (on Linux, which alone has that)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _free_ports(*kinds: str) -> dict[str, int]:
    """Free at this moment. Another may take one before the emulator does: then it starts again with others."""
    with contextlib.ExitStack() as stack:
        ports = {}
        for kind in kinds:
            listener = stack.enter_context(socket.socket())
            listener.bind(("127.0.0.1", 0))
            ports[kind] = listener.getsockname()[1]
        return ports


def _all_answer(processes: list[subprocess.Popen[bytes]], ports: dict[str, int]) -> bool:
    end = time.monotonic() + _START_SECONDS
    silent = set(ports.values())
    while silent and time.monotonic() < end:
        if any(process.poll() is not None for process in processes):
            return False
        silent = {port for port in silent if not _answers(port)}
        time.sleep(0.05)
    # On a taken port the other one answers, and ours ends: only a living child is our own.
    time.sleep(0.2)
    return not silent and all(process.poll() is None for process in processes)


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            return connection.recv(5) == b"HTTP/"
    except OSError:
        return False


def _stop(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise AzuriteFailed(f"the storage emulator (process {process.pid}) does not end on SIGTERM") from error


def _connection_string(ports: dict[str, int]) -> str:
    ends = "".join(f"{kind.capitalize()}Endpoint=http://127.0.0.1:{ports[kind]}/{_ACCOUNT};" for kind in ports)
    return f"DefaultEndpointsProtocol=http;AccountName={_ACCOUNT};AccountKey={_KEY};{ends}"


def main(arguments: list[str]) -> int:
    """Run a command with the emulator beside it; its exit code is ours, 2 for bad usage, 3 without an emulator."""
    if len(arguments) < 2 or arguments[0] != "--":
        print("usage: python -m tests.azurite -- COMMAND...", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # end the command, then the emulator, then ourselves
    try:
        with azurite() as connection_string:
            print(f"azurite {version()}", file=sys.stderr)
            command = subprocess.Popen(arguments[1:], env={**os.environ, VARIABLE: connection_string})
            try:
                return command.wait()
            except KeyboardInterrupt:
                command.terminate()
                command.wait()
                return 130
    except AzuriteMissing as error:
        print(error, file=sys.stderr)
        return 3


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
