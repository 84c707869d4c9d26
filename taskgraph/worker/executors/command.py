"""Executor `command`: a child process of the worker. docs/reference/format.md has its payload and environment.

A run owns its process group (and session), and when the run is over, so is the group; `orphans` ends it if the worker
dies first. Output is streamed into the log; no shell interprets the command. Needs POSIX: process groups, signals, and
pipes that can be polled.
"""

import asyncio
import errno
import math
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from taskgraph.model import limits
from taskgraph.model.errors import InvalidInput
from taskgraph.model.secrecy import Environment, Handed, secret_named
from taskgraph.model.timing import temporary_exit_codes
from taskgraph.worker.executors import children, env_files
from taskgraph.worker.executors.children import Child, NotBegun
from taskgraph.worker.executors.contract import (
    AT_ONCE,
    Outcome,
    Queue,
    TemporaryFailure,
    Work,
    WriteLog,
    failed,
    failed_for_now,
    malformed,
    payload_of,
    retry_after_in,
)
from taskgraph.worker.executors.orphans import above_standard, guard
from taskgraph.worker.executors.orphans_guard import MARK
from taskgraph.worker.executors.results import ResultFiles
from taskgraph.worker.executors.secrets import Secrets, masked
from taskgraph.worker.executors.starter import OURS

if TYPE_CHECKING:
    from taskgraph.worker.executors.starting import Starting

DRAIN_SECONDS: Final = 1.0  # for processes that outlive the command and hold its output open
TIMEOUT_SECONDS_MAX: Final = 30 * 24 * 3600
CHUNK_BYTES_MAX: Final = 64 * 1024
TAIL_BYTES_MAX: Final = 1 << 20  # the largest pipe that an unprivileged process may have: all that can be left in it
_POLL_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class Order:
    """A payload that was read.

    secrets: names by variable. env_file: from `cwd` on. inherited: see `Environment.copy`; None where nothing is said.
    cwd: None for the worker's own; timeout_seconds: None for no bound.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    secrets: Mapping[str, str]
    env_file: str | None
    inherited: bool | frozenset[bytes] | None
    cwd: str | None
    timeout_seconds: float | None


def read_order(definition: Mapping[str, Any]) -> Order:
    """Raises InvalidInput with what is wrong with the payload, in one sentence."""
    payload = payload_of(definition)
    argv = payload.get("command")
    if not isinstance(argv, list | tuple) or not argv or not all(isinstance(word, str) for word in argv):
        raise InvalidInput('payload.command must be a list of texts that is not empty, such as ["sh", "-c", "make"]')
    if not argv[0]:
        raise InvalidInput("payload.command must begin with the name of a program")
    given = payload.get("env") or {}
    if not isinstance(given, Mapping):
        raise InvalidInput("payload.env must be an object of texts")
    secrets = {name: secret for name, value in given.items() if (secret := secret_named(value)) is not None}
    env = {name: value for name, value in given.items() if name not in secrets}
    if not all(isinstance(value, str) for value in env.values()):
        raise InvalidInput('payload.env must be an object of texts, or of secrets such as {"$secret": "token"}')
    for name in given:
        if not name or "=" in name:
            raise InvalidInput(f"payload.env: “{name}” is no name of a variable")
    cwd, env_file = _read_path(payload, "cwd"), _read_path(payload, "envFile")
    for text in (*argv, *given, *env.values(), cwd or "", env_file or ""):
        if "\0" in text:
            raise InvalidInput("payload: no command, variable or path can hold the character NUL")
        try:
            os.fsencode(text)
        except UnicodeEncodeError as error:
            raise InvalidInput(f"payload: “{text}” cannot be encoded for this system") from error
    timeout = payload.get("timeout")
    if timeout is not None and (
        isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout <= TIMEOUT_SECONDS_MAX
    ):
        raise InvalidInput(f"payload.timeout must be a number of seconds above 0, at most {TIMEOUT_SECONDS_MAX:,}")
    inherited = _read_inherited(payload.get("inheritEnv"))
    return Order(tuple(argv), env, secrets, env_file, inherited, cwd, None if timeout is None else float(timeout))


def _read_path(payload: Mapping[str, Any], name: str) -> str | None:
    path = payload.get(name)
    if path is not None and (not isinstance(path, str) or not path):
        raise InvalidInput(f"payload.{name} must be a text that is not empty")
    return path


def _read_inherited(said: Any) -> bool | frozenset[bytes] | None:
    if said is None or isinstance(said, bool):
        return said
    if not isinstance(said, list | tuple) or not all(isinstance(name, str) for name in said):
        raise InvalidInput("payload.inheritEnv must be true, false, or a list of names of variables")
    return frozenset(name.encode("utf-8", "surrogateescape") for name in said)


class CommandExecutor:
    """Runs a task's command as a child process.

    grace_seconds: between SIGTERM and SIGKILL, when a run is cancelled or times out. drain_seconds: how long processes
    that outlive the command may hold its output open before they are killed. handed: what of the worker's environment
    commands get.
    """

    name = "command"
    instant = False

    def __init__(
        self,
        *,
        grace_seconds: float = limits.GRACE_SECONDS,
        drain_seconds: float = DRAIN_SECONDS,
        handed: Handed | None = None,
    ) -> None:
        self._grace_seconds = grace_seconds
        self._drain_seconds = drain_seconds
        handed = handed or Handed()
        self._inherited = Environment(handed)
        self._secrets = Secrets(handed)
        self._results = ResultFiles()
        self._last: tuple[Mapping[str, Any], Order] | None = None
        self._starting: Starting | None = None
        self._queued: dict[str, asyncio.Future[Child]] = {}  # what is to begin, by its claim
        self._apart = 0  # commands that were not started by it

    @property
    def queue(self) -> Queue | None:
        return self if children.can_spawn() else None

    def is_ready(self, slots: int) -> bool:
        """Its queue is for processes of their own, which this begins to start."""
        from taskgraph.worker.executors.starting import STARTERS_MAX, Starting  # only where there are many

        starting = self._starting
        if (
            starting is None
            or starting.lost
            or starting.loop is not asyncio.get_running_loop()
            or (starting.width != slots and starting.idle)
        ):
            starting = None
        if starting is None and slots <= STARTERS_MAX:
            self._starting = starting = Starting(slots)
        return starting is not None and starting.ready and starting.width == slots and not self._apart

    def recall(self, work: Work) -> None:
        begun = self._queued.get(work.claim)
        if begun is not None and self._starting is not None:
            self._starting.drop(begun)

    def can_run(self, definition: Mapping[str, Any]) -> str | None:
        return None if os.name == "posix" else "commands need a POSIX system, and this worker's is none"

    async def run(self, work: Work, write_log: WriteLog) -> Outcome:
        try:
            order = self._order(work.definition)
            if work.folder:
                order = replace(order, cwd=os.path.join(work.folder, order.cwd) if order.cwd else work.folder)
            secrets = {name: await self._secrets.find(secret) for name, secret in order.secrets.items()}
            if order.env_file is not None:
                more = env_files.variables(Path(order.cwd or "", order.env_file))
                more = {name: value for name, value in more.items() if name not in secrets}
                order = replace(order, env={**more, **order.env})
        except InvalidInput as error:
            return malformed(str(error))
        except TemporaryFailure as error:
            return failed_for_now(str(error), retry_after=error.retry_after)
        if not secrets:
            return await self._run(work, order, secrets, write_log)
        return await masked(secrets.values(), write_log, lambda write: self._run(work, order, secrets, write))

    def _order(self, definition: Mapping[str, Any]) -> Order:
        """What a definition asks for. Many tasks have the very same one; it is not changed. Raises InvalidInput."""
        if self._last is None or self._last[0] is not definition:
            self._last = definition, self._read_order(definition)
        return self._last[1]

    def _read_order(self, definition: Mapping[str, Any]) -> Order:
        return read_order(definition)

    def _argv(self, work: Work, order: Order, own: dict[bytes, bytes], result_file: str) -> tuple[str, ...]:
        """What is started, with these variables of its own, which may be changed."""
        return order.argv

    async def _run(self, work: Work, order: Order, secrets: Mapping[str, bytes], write_log: WriteLog) -> Outcome:
        result_file = self._results.new()
        try:
            own = self._own_variables(work, order, secrets, result_file)
            argv = self._argv(work, order, own, result_file)
            inherited = self._inherited.given(order.inherited)
            output = _Output()
            try:
                try:
                    child = await self._start(work.claim, argv, order.cwd, (inherited, own), output, write_log)
                except OSError as error:
                    if error.errno in OURS:
                        raise
                    return failed(_why_not_started(order, error))
                work.on_begin()
                self._apart += child.own
                try:
                    timed_out = await self._attend(child, order, output, write_log)
                finally:
                    child.close()
                    self._apart -= child.own
            finally:
                output.close()
            if timed_out:
                return failed(f"timed out after {order.timeout_seconds:g} s")
            return await self._outcome(child.reap(), result_file, work.definition)
        finally:
            self._results.discard(result_file)

    def _own_variables(
        self, work: Work, order: Order, secrets: Mapping[str, bytes], result_file: str
    ) -> dict[bytes, bytes]:
        """What is set beside, and before, what is inherited."""
        env = {os.fsencode(name): value for name, value in secrets.items()}
        if order.env:
            env.update((os.fsencode(name), os.fsencode(value)) for name, value in order.env.items())
        env[b"TASKGRAPH_GRAPH_ID"] = os.fsencode(work.graph_id)
        env[b"TASKGRAPH_TASK_ID"] = os.fsencode(work.task_id)
        env[b"TASKGRAPH_LABEL"] = os.fsencode(
            work.label.encode("utf-8", "replace").decode("utf-8")  # lone surrogates are legal in JSON
        )
        env[b"TASKGRAPH_RUN_ID"] = b"%d" % work.run
        env[b"TASKGRAPH_FENCING_TOKEN"] = os.fsencode(work.claim)
        env[b"TASKGRAPH_STORE"] = os.fsencode(work.store_url)
        env[b"TASKGRAPH_RESULT_FILE"] = os.fsencode(result_file)
        if work.traceparent:
            env[b"TRACEPARENT"] = os.fsencode(work.traceparent)
        env[MARK.encode()] = guard().mark.encode()
        return env

    async def _start(
        self,
        claim: str,
        argv: tuple[str, ...],
        cwd: str | None,
        env: tuple[Mapping[bytes, bytes], dict[bytes, bytes]],
        output: "_Output",
        write_log: WriteLog,
    ) -> Child:
        """Start it. env: what is inherited, and its own. Cancelled half-way, nothing stays behind."""
        inherited, own = env
        starting = self._starting
        if starting is None or not starting.ready or starting.loop is not asyncio.get_running_loop():
            starting = None
            if children.can_spawn():
                return children.spawn(argv, {**inherited, **own}, cwd, output.writing)
        begun: asyncio.Future[Child]
        if starting is not None:
            begun = self._queued[claim] = starting.order(argv, inherited, own, cwd, output.writing)
        else:
            begun = asyncio.ensure_future(children.start(argv, {**inherited, **own}, cwd, output.writing))
        try:
            return await asyncio.shield(begun)
        except NotBegun as error:
            raise asyncio.CancelledError from error
        except asyncio.CancelledError:
            if starting is not None:
                starting.drop(begun)
            with suppress(OSError):  # it never began, and nothing waits for the reason any more
                child = await _begun(begun)
                if child.has_ended and (task := asyncio.current_task()) is not None:
                    task.uncancel()  # it has an outcome, which is only on its way
                    return child
                try:
                    await self._give_up(child, output, asyncio.create_task(_copy(b"", output, write_log)))
                finally:
                    child.close()
            raise
        finally:
            self._queued.pop(claim, None)

    async def _attend(self, child: Child, order: Order, output: "_Output", write_log: WriteLog) -> bool:
        """Wait until the run is over and nothing is left of it but zombies; gives whether it timed out.

        A command without output, as most are, needs no task beside this one.
        """
        news = child.news
        expired = False

        def expire() -> None:
            nonlocal expired
            expired = True
            news.set()

        def copy(first: bytes) -> "asyncio.Task[None]":
            output.unwatch()
            copying = asyncio.create_task(_copy(first, output, write_log))
            copying.add_done_callback(lambda _: news.set())
            return copying

        copying: asyncio.Task[None] | None = None
        seconds = order.timeout_seconds
        timer = None if seconds is None else asyncio.get_running_loop().call_later(seconds, expire)
        try:
            if not news.is_set():
                output.watch(news.set)
            while True:
                await news.wait()
                news.clear()
                over = child.has_ended  # first: what it wrote before is in the pipe by now
                if copying is None and (first := output.take()):
                    copying = copy(first)
                if copying is not None and copying.done():
                    copying.result()
                if over or expired:
                    break
            if copying is None and not output.at_end:
                copying = copy(b"")
            if not over:
                await self._end(child)
            if copying is not None:
                await asyncio.wait({copying}, timeout=self._drain_seconds)
            child.signal_group(signal.SIGKILL)
            output.stop()
            if copying is not None:
                await copying
        except BaseException as error:  # a cancellation, or a log that failed
            at_once = isinstance(error, asyncio.CancelledError) and AT_ONCE in error.args
            await self._give_up(child, output, copying or copy(b""), at_once=at_once)
            raise
        finally:
            if timer is not None:
                timer.cancel()
        return not over

    async def _give_up(
        self, child: Child, output: "_Output", copying: "asyncio.Task[None]", *, at_once: bool = False
    ) -> None:
        """End a run whose outcome nothing waits for, and still log its output."""
        try:
            if not child.has_ended and not at_once:
                await self._end(child)
        finally:
            child.signal_group(signal.SIGKILL)
            output.stop()
            try:
                await asyncio.wait({copying}, timeout=self._drain_seconds)
            finally:
                copying.cancel()
                await asyncio.gather(copying, return_exceptions=True)

    async def _end(self, child: Child) -> None:
        """Ask the group to end, and kill what is left of it when the grace is over or the waiting is cut short."""
        try:
            child.signal_group(signal.SIGTERM)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._grace_seconds):
                    await child.wait()
                    child.reap()  # a zombie would look like something left
                    while child.signal_group(0):  # noqa: ASYNC110 - nothing shows when a group is empty
                        await asyncio.sleep(_POLL_SECONDS)
        finally:
            child.signal_group(signal.SIGKILL)
        await child.wait()

    async def _outcome(self, code: int, result_file: str, definition: Mapping[str, Any]) -> Outcome:
        if code < 0:
            return failed(f"killed by {_signal_name(-code)}")
        if code in temporary_exit_codes(definition):
            retry_after = await self._retry_after(result_file)
            return failed_for_now(f"exit code {code}", exit_code=code, retry_after=retry_after)
        if code > 0:
            return failed(f"exit code {code}", exit_code=code)
        try:
            result = await self._results.take(result_file)
        except InvalidInput as error:
            return failed(str(error), exit_code=0)
        return Outcome(failed=False, exit_code=0, result=result)

    async def _retry_after(self, result_file: str) -> object:
        """The pause in seconds that a command that failed for the moment asks for; None if it does not."""
        try:
            result = await self._results.take(result_file)
        except InvalidInput:
            return None  # half a result is no reason to fail for good
        return retry_after_in(result)


class _Output:
    """The pipe that takes both streams of a command, in the order of writing.

    asyncio's pipes read ahead, and tie the end of the process to the end of its output. writing: for the command alone;
    what starts it closes it here, as the end of its output would never show otherwise.
    """

    def __init__(self) -> None:
        reading, writing = os.pipe()
        if min(reading, writing) <= 2:  # those of a worker that was started without: a child puts its own there
            reading, writing = above_standard(reading), above_standard(writing)
        self._reading = reading
        self.writing = writing
        self._watched = False
        self._bytes_left = math.inf
        self._awake = asyncio.Event()
        self.at_end = False
        os.set_blocking(reading, False)

    def watch(self, wake: Callable[[], None]) -> None:
        children.readers().add_reader(self._reading, wake)
        self._watched = True

    def unwatch(self) -> None:
        if self._watched:
            self._watched = False
            children.readers().remove_reader(self._reading)

    def take(self) -> bytes | None:
        """The next chunk; b"" at the end, which is not watched for any more; None for nothing yet."""
        if self.at_end:
            return b""
        try:
            data = os.read(self._reading, CHUNK_BYTES_MAX)
        except BlockingIOError:
            return None
        if not data:
            self.at_end = True
            self.unwatch()
        return data

    async def read(self) -> bytes:
        """The next chunk; b"" at the end."""
        while self._bytes_left > 0:
            data = self.take()
            if data is not None:
                self._bytes_left -= len(data)
                return data
            if self._bytes_left < math.inf:
                break
            self._awake.clear()
            self.watch(self._awake.set)
            try:
                await self._awake.wait()
            finally:
                self.unwatch()
        return b""

    def stop(self) -> None:
        """The command has ended: give what is in the pipe, and wait for no more. Idempotent."""
        self._bytes_left = min(self._bytes_left, TAIL_BYTES_MAX)
        self._awake.set()

    def close(self) -> None:
        self.unwatch()
        os.close(self._reading)


async def _begun(begun: "asyncio.Future[Child]") -> Child:
    """A child that nothing waits for any more, when it has begun; if this is cancelled, it is killed then."""
    try:
        return await asyncio.shield(begun)
    except asyncio.CancelledError:
        begun.add_done_callback(_close)
        raise


def _close(begun: "asyncio.Future[Child]") -> None:
    if not begun.cancelled() and begun.exception() is None:
        begun.result().close()


async def _copy(first: bytes, output: _Output, write_log: WriteLog) -> None:
    """Log this chunk, if it is not empty, and all that follow."""
    data = first or await output.read()
    while data:
        await write_log(data)
        await asyncio.sleep(0)  # a flood into a fast log would let nothing else go on, not even the timeout
        data = await output.read()


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


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # most real-time signals have no name
        return f"signal {number}"
