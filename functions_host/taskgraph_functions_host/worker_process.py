"""The worker process from its host's side: start it, ask it, notice its end.

What this room is for: one process of `worker_main`, lines of JSON over a socket, and the answers given to the
callers. When the process dies, all calls that wait fail at once. It never starts a second one by itself and never
knows what a queue is.
"""

import asyncio
import base64
import contextlib
import json
import os
import signal
import socket
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import taskgraph
from taskgraph.model.errors import InvalidSettings
from taskgraph.model.flag import Flag

__all__ = ["Answer", "AppFailed", "LogLine", "WorkerDied", "WorkerProcess"]

_LINE_BYTES_MAX: Final = 64 * 1024 * 1024
_SCRIPT: Final = Path(__file__).with_name("worker_main.py")
_END_SECONDS: Final = 5.0
_HANG_UP_SECONDS: Final = 1.0  # from the end of the line to the end of the process
_STDERR: Final = 2


class AppFailed(InvalidSettings):
    """The app cannot be indexed; the text is the exception's own. stack: where it came from."""

    def __init__(self, message: str, stack: str = "") -> None:
        super().__init__(message)
        self.stack = stack


class WorkerDied(Exception):
    """The process has ended before it answered."""


@dataclass(frozen=True, slots=True)
class Answer:
    """How an invocation went. error, text, stack: of the exception that the function raised. http: what it returned."""

    succeeded: bool
    error: str = ""
    text: str = ""
    stack: str = ""
    http: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line that the app, or the worker library (system), has logged."""

    level: str
    category: str
    system: bool
    invocation: str
    message: str


class WorkerProcess:
    """A worker that has indexed its app. Made by `start`.

    found: its functions, as the library reports them. ended: set when the process has gone.
    """

    def __init__(
        self, child: asyncio.subprocess.Process, writer: asyncio.StreamWriter, ready: Mapping[str, Any]
    ) -> None:
        self.ended = Flag()
        self.pid: int = child.pid
        self.version = str(ready["worker"])
        self.python = str(ready["python"])
        self.found: Sequence[Mapping[str, Any]] = ready["functions"]
        self._child = child
        self._writer = writer
        self._waiting: dict[str, asyncio.Future[Answer]] = {}
        self._reading: asyncio.Task[None] | None = None

    @classmethod
    async def start(
        cls,
        python: Path,
        app: Path,
        environ: Mapping[str, str],
        log: Callable[[LogLine], None],
        *,
        debug: bool = False,
    ) -> "WorkerProcess":
        """Start the interpreter of an environment on an app. log: takes every line that comes.

        Raises AppFailed when the app cannot be indexed, WorkerDied when the process ends before it has said so.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            child = await asyncio.create_subprocess_exec(
                str(python),
                "-I",
                "-u",
                str(_SCRIPT),
                str(theirs.fileno()),
                cwd=app,
                env=dict(environ),
                pass_fds=(theirs.fileno(),),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=_STDERR,  # what an app prints is for people; our own standard output may be read by a machine
                start_new_session=True,  # an interrupt at the terminal is for the host, which lets it finish
            )
        reader, writer = await asyncio.open_connection(sock=ours, limit=_LINE_BYTES_MAX)
        try:
            _send(writer, {"do": "begin", "app": str(app), "paths": _own_paths(), "debug": debug})
            ready = await _beginning(reader, log)
            if ready is None:
                code = await child.wait()
                raise WorkerDied(f"the worker process {_end_in_words(code)} before it had indexed {app}")
        except BaseException:
            writer.close()
            _kill(child)
            await child.wait()
            raise
        worker = cls(child, writer, ready)
        worker._reading = asyncio.create_task(worker._read(reader, log))
        return worker

    async def invoke(
        self,
        invocation: str,
        function: str,
        binding: str,
        data: Mapping[str, Any],
        metadata: Mapping[str, Mapping[str, str]],
    ) -> Answer:
        """Call a function, and wait for how it went. data, metadata: {kind: content}. Raises WorkerDied."""
        if self.ended.is_set():
            raise WorkerDied
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[invocation] = future
        try:
            asked = {"do": "invoke", "id": invocation, "function": function, "binding": binding}
            _send(self._writer, {**asked, "data": data, "metadata": metadata})
            return await future
        finally:
            self._waiting.pop(invocation, None)

    async def end(self) -> None:
        """Let it end; kill it when it does not. Idempotent."""
        if not self.ended.is_set():
            _send(self._writer, {"do": "end"})
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._child.wait(), _END_SECONDS)
        await self.kill()

    async def kill(self) -> None:
        """End it now: what it has in hand is answered by WorkerDied. Idempotent."""
        _kill(self._child)
        await self.ended.wait()

    def end_in_words(self) -> str:
        """How the process has ended."""
        return _end_in_words(self._child.returncode)

    async def _read(self, reader: asyncio.StreamReader, log: Callable[[LogLine], None]) -> None:
        try:
            while line := await _line(reader):
                said = json.loads(line)
                if said["is"] == "log":
                    log(_log_line(said))
                elif (future := self._waiting.get(said["id"])) and not future.done():
                    future.set_result(_answer(said))
        finally:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._child.wait(), _HANG_UP_SECONDS)
            _kill(self._child)  # one that has closed its end, and lives, answers no call
            await self._child.wait()
            self._writer.close()
            self.ended.set()
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(WorkerDied())


async def _beginning(reader: asyncio.StreamReader, log: Callable[[LogLine], None]) -> Mapping[str, Any] | None:
    """What the worker says when it is ready; None if it ends before. Raises AppFailed."""
    while line := await _line(reader):
        said: Mapping[str, Any] = json.loads(line)
        if said["is"] == "ready":
            return said
        if said["is"] == "failed":
            raise AppFailed(f"{said['type']}: {said['message']}".removeprefix(": "), said["stack"])
        log(_log_line(said))
    return None


async def _line(reader: asyncio.StreamReader) -> bytes:
    """The next whole line; nothing after the end, however it came: in the middle of a line, or of our sending."""
    try:
        line = await reader.readline()
    except ConnectionError:
        return b""
    return line if line.endswith(b"\n") else b""


def _send(writer: asyncio.StreamWriter, said: Mapping[str, Any]) -> None:
    if not writer.is_closing():
        writer.write(json.dumps(said, separators=(",", ":")).encode() + b"\n")


def _answer(said: Mapping[str, Any]) -> Answer:
    if said["status"] == 1:  # StatusResult.Success
        return Answer(True, http=said.get("http"))
    return Answer(False, said.get("type", ""), said.get("message", ""), said.get("stack", ""))


def _log_line(said: Mapping[str, Any]) -> LogLine:
    return LogLine(said["level"], said["category"], said["system"], said["invocation"], said["message"])


def _kill(child: asyncio.subprocess.Process) -> None:
    """End a process. By its number: `Process.kill` would look whether it has ended, and take its exit code away."""
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGKILL)


def _own_paths() -> list[str]:
    """Where this process finds taskgraph and what it needs, for an app that brings no packages of its own."""
    own = sysconfig.get_paths()
    root = str(Path(taskgraph.__file__).resolve().parents[1])
    return list(dict.fromkeys(path for path in (own["purelib"], own["platlib"], root) if os.path.isdir(path)))


def _end_in_words(code: int | None) -> str:
    if code is not None and code < 0:
        return f"was ended by signal {-code}"
    return f"ended with code {code}"


def typed(content: str | bytes, *, as_json: bool = False) -> dict[str, str]:
    """A value for a function: text, bytes, or JSON that stands for what it says."""
    if isinstance(content, bytes):
        return {"bytes": base64.b64encode(content).decode("ascii")}
    return {"json" if as_json else "string": content}
