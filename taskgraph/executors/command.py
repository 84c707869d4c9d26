"""Executor `command`: a child process of the worker.

What this room is for: running what `payload.command` names, with its output streamed into the log, and leaving nothing
behind: a run owns its process group (and session), and when the run is over, so is the group; `orphans` ends it if the
worker dies first. It never interprets a command by a shell, and never keeps more output in memory than one chunk.

A task's payload:
    command  list of texts: program and arguments
    env      object of texts, added to the worker's own environment
    cwd      text: working directory; the worker's own when missing
    timeout  number of seconds, after which the run fails

Every run finds in its environment TASKGRAPH_GRAPH_ID, TASKGRAPH_TASK_ID, TASKGRAPH_LABEL, TASKGRAPH_RUN_ID,
TASKGRAPH_FENCING_TOKEN (the claim), TASKGRAPH_STORE (may be empty) and TASKGRAPH_RESULT_FILE: if a command that
succeeds has written JSON there, it is the task's result.

Needs POSIX: process groups, signals, and pipes that can be polled.
"""

import asyncio
import errno
import logging
import os
import signal
import stat
import tempfile
from asyncio.subprocess import DEVNULL, STDOUT, Process
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from taskgraph.errors import InvalidInput
from taskgraph.executors.contract import (
    RESULT_BYTES_MAX,
    Outcome,
    Work,
    WriteLog,
    checked_result,
    failed,
    malformed,
    payload_of,
)
from taskgraph.executors.orphans import guard

log = logging.getLogger(__name__)

GRACE_SECONDS: Final = 10.0  # between SIGTERM and SIGKILL
DRAIN_SECONDS: Final = 1.0  # for processes that outlive the command and hold its output open
TIMEOUT_SECONDS_MAX: Final = 30 * 24 * 3600
CHUNK_BYTES_MAX: Final = 64 * 1024
TAIL_BYTES_MAX: Final = 1 << 20  # the largest pipe that an unprivileged process may have: all that can be left in it
_POLL_SECONDS: Final = 0.05

_OURS: Final = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EIO})
"""Errors of this machine and not of the task."""


@dataclass(frozen=True, slots=True)
class Order:
    """A payload that has been understood. cwd: None for the worker's own; timeout_seconds: None for no bound."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str | None
    timeout_seconds: float | None


def read_order(definition: Mapping[str, Any]) -> Order:
    """What the payload of a task orders. Raises InvalidInput with what is wrong, in one sentence."""
    payload = payload_of(definition)
    argv = payload.get("command")
    if not isinstance(argv, list | tuple) or not argv or not all(isinstance(word, str) for word in argv):
        raise InvalidInput('payload.command must be a list of texts that is not empty, such as ["sh", "-c", "make"]')
    if not argv[0]:
        raise InvalidInput("payload.command must begin with the name of a program")
    env = payload.get("env") or {}
    if not isinstance(env, Mapping) or not all(isinstance(value, str) for value in env.values()):
        raise InvalidInput("payload.env must be an object of texts")
    for name in env:
        if not name or "=" in name:
            raise InvalidInput(f"payload.env: {name!r} is no name of a variable")
    cwd = payload.get("cwd")
    if cwd is not None and (not isinstance(cwd, str) or not cwd):
        raise InvalidInput("payload.cwd must be a text that is not empty")
    for text in (*argv, *env, *env.values(), cwd or ""):
        if "\0" in text:
            raise InvalidInput("payload: no command, variable or path can hold the character NUL")
        try:
            os.fsencode(text)
        except UnicodeEncodeError as error:
            raise InvalidInput(f"payload: {text!r} cannot be encoded for this system") from error
    timeout = payload.get("timeout")
    if timeout is not None and (
        isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout <= TIMEOUT_SECONDS_MAX
    ):
        raise InvalidInput(f"payload.timeout must be a number of seconds above 0, at most {TIMEOUT_SECONDS_MAX:,}")
    return Order(tuple(argv), dict(env), cwd, None if timeout is None else float(timeout))


class CommandExecutor:
    """Runs a task's command as a child process.

    grace_seconds: between SIGTERM and SIGKILL, when a run is cancelled or times out. drain_seconds: how long processes
    that outlive the command may hold its output open before they are killed.
    """

    name = "command"
    instant = False

    def __init__(self, *, grace_seconds: float = GRACE_SECONDS, drain_seconds: float = DRAIN_SECONDS) -> None:
        self._grace_seconds = grace_seconds
        self._drain_seconds = drain_seconds

    def can_run(self, definition: Mapping[str, Any]) -> str | None:
        """See Executor."""
        return None if os.name == "posix" else "commands need a POSIX system, and this worker's is none"

    async def run(self, work: Work, write_log: WriteLog) -> Outcome:
        """See Executor."""
        try:
            order = read_order(work.definition)
        except InvalidInput as error:
            return malformed(str(error))
        # What a run's leftover does to the folder while it is removed is no matter of the run's.
        with tempfile.TemporaryDirectory(prefix="taskgraph-", ignore_cleanup_errors=True) as folder:
            result_file = Path(folder) / "result.json"
            output = _Output()
            try:
                try:
                    process = await self._start(order, _environment(work, order, result_file), output)
                except OSError as error:
                    if error.errno in _OURS:
                        raise
                    return failed(_why_not_started(order, error))
                finally:
                    output.close_writing()
                _watch(process)
                try:
                    timed_out = await self._attend(process, order, output, write_log)
                finally:
                    guard().forget(process.pid)
            finally:
                output.close_reading()
            if timed_out:
                return failed(f"timed out after {order.timeout_seconds:g} s")
            return await asyncio.to_thread(_outcome_of, process, result_file)

    async def _start(self, order: Order, env: Mapping[str, str], output: "_Output") -> Process:
        """Start it, in a session and process group of its own. Cancelled half-way, nothing stays behind."""
        starting = asyncio.ensure_future(
            asyncio.create_subprocess_exec(
                *order.argv,
                stdin=DEVNULL,
                stdout=output.writing,
                stderr=STDOUT,
                cwd=order.cwd,
                env=env,
                start_new_session=True,
            )
        )
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            with suppress(OSError):  # it never began, and nobody waits for the reason any more
                await self._end(await starting)
            raise

    async def _attend(self, process: Process, order: Order, output: "_Output", write_log: WriteLog) -> bool:
        """Stay until the run is over and nothing is left of it; whether it was its time that ended it."""
        copying = asyncio.create_task(_copy(output, write_log))
        exited = asyncio.create_task(process.wait())
        try:
            timed_out = not await _ended_in_time(exited, copying, order.timeout_seconds)
            if timed_out:
                await self._end(process)
            await asyncio.wait({copying}, timeout=self._drain_seconds)
            _signal_group(process, signal.SIGKILL)
            output.stop()
            await copying
            return timed_out
        finally:
            # The straight way has done all this. Left early, by a cancellation or a log that failed, nobody has.
            if not exited.done():
                await self._end(process)
            _signal_group(process, signal.SIGKILL)
            output.stop()
            await asyncio.wait({copying}, timeout=self._drain_seconds)
            copying.cancel()
            exited.cancel()
            await asyncio.gather(copying, exited, return_exceptions=True)

    async def _end(self, process: Process) -> None:
        """Ask the group to end, and kill what is left of it when the grace is over or the waiting is cut short."""
        try:
            _signal_group(process, signal.SIGTERM)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._grace_seconds):
                    await process.wait()
                    while _signal_group(process, 0):  # noqa: ASYNC110 - nothing tells when a group is empty
                        await asyncio.sleep(_POLL_SECONDS)
        finally:
            _signal_group(process, signal.SIGKILL)
        await process.wait()


class _Output:
    """The pipe that takes both streams of a command, in the order of writing.

    Of our own making, as asyncio's pipes read ahead, and tie the end of the process to the end of its output.
    """

    def __init__(self) -> None:
        self._reading, self.writing = os.pipe()
        os.set_blocking(self._reading, False)
        self._bytes_left: int | None = None
        self._awake = asyncio.Event()

    async def read(self) -> bytes:
        """The next chunk, as soon as there is one; b"" at the end."""
        while self._bytes_left is None or self._bytes_left > 0:
            try:
                data = os.read(self._reading, CHUNK_BYTES_MAX)
            except BlockingIOError:
                if self._bytes_left is not None:
                    break
                await self._readable()
                continue
            if self._bytes_left is not None:
                self._bytes_left -= len(data)
            return data
        return b""

    async def _readable(self) -> None:
        loop = asyncio.get_running_loop()
        self._awake.clear()
        loop.add_reader(self._reading, self._awake.set)
        try:
            await self._awake.wait()
        finally:
            loop.remove_reader(self._reading)

    def stop(self) -> None:
        """The command has ended: give what is in the pipe, and wait for no more. Idempotent."""
        if self._bytes_left is None:
            self._bytes_left = TAIL_BYTES_MAX
            self._awake.set()

    def close_writing(self) -> None:
        """Leave the writing to the command, so that the end of its output can be seen."""
        os.close(self.writing)

    def close_reading(self) -> None:
        """Give the pipe back."""
        os.close(self._reading)


async def _copy(output: _Output, write_log: WriteLog) -> None:
    while data := await output.read():
        await write_log(data)
        await asyncio.sleep(0)  # a flood into a fast log would let nobody else go on, not even the timeout


async def _ended_in_time(exited: asyncio.Task[int], copying: asyncio.Task[None], seconds: float | None) -> bool:
    """Wait for the command's own end, not for that of its output. Raises what writing the log raised."""
    loop = asyncio.get_running_loop()
    end = None if seconds is None else loop.time() + seconds
    watched: set[asyncio.Task[Any]] = {exited, copying}
    while exited in watched:
        left = None if end is None else max(end - loop.time(), 0)
        done, watched = await asyncio.wait(watched, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            return False
        if copying in done:
            copying.result()
    return True


def _signal_group(process: Process, number: int) -> bool:
    """Signal the process group of a run; whether there was anything left that could be signalled."""
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):  # gone; or only zombies (macOS), or another user's
        return False
    return True


def _watch(process: Process) -> None:
    try:
        guard().watch(process.pid)
    except OSError as error:  # the run itself needs no guard
        log.warning("nothing will end process %s if this worker is killed: no guard: %s", process.pid, error)


def _environment(work: Work, order: Order, result_file: Path) -> dict[str, str]:
    return {
        **os.environ,
        **order.env,
        "TASKGRAPH_GRAPH_ID": work.graph_id,
        "TASKGRAPH_TASK_ID": work.task_id,
        "TASKGRAPH_LABEL": work.label.encode("utf-8", "replace").decode("utf-8"),  # lone surrogates are legal in JSON
        "TASKGRAPH_RUN_ID": str(work.run),
        "TASKGRAPH_FENCING_TOKEN": work.claim,
        "TASKGRAPH_STORE": work.store_url,
        "TASKGRAPH_RESULT_FILE": str(result_file),
    }


def _why_not_started(order: Order, error: OSError) -> str:
    program = order.argv[0]
    if order.cwd is not None:
        if not Path(order.cwd).exists():
            return f"the working directory {order.cwd} does not exist"
        if not Path(order.cwd).is_dir():
            return f"the working directory {order.cwd} is no directory"
        if error.filename == order.cwd != program:
            return f"the working directory {order.cwd} cannot be entered: {error.strerror}"
    match error.errno:
        case errno.ENOENT if "/" not in program:
            return f"the command {program} was not found on PATH"
        case errno.ENOENT if Path(order.cwd or "", program).exists():
            return f"the command {program} names an interpreter that does not exist"
        case errno.ENOENT:
            return f"the command {program} does not exist"
        case errno.EACCES:
            return f"the command {program} is not executable"
        case _:
            return f"the command {program} cannot be started: {error.strerror}"


def _outcome_of(process: Process, result_file: Path) -> Outcome:
    code = process.returncode
    if code is None:
        raise RuntimeError("the outcome of a process was asked for before its end")
    if code < 0:
        return failed(f"killed by {_signal_name(-code)}")
    if code > 0:
        return failed(f"exit code {code}", exit_code=code)
    try:
        result = _read_result(result_file)
    except InvalidInput as error:
        return failed(str(error), exit_code=0)
    return Outcome(failed=False, exit_code=0, result=result)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # most real-time signals have no name
        return f"signal {number}"


def _read_result(path: Path) -> bytes | None:
    """The result that a command has left; None if it left none. Raises InvalidInput for anything but JSON."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a FIFO must not make us wait for a writer
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InvalidInput(f"the result file cannot be read: {error.strerror}") from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise InvalidInput("the result file is no regular file")
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(RESULT_BYTES_MAX + 1)
    finally:
        os.close(descriptor)
    return checked_result(data) if data.strip() else None
