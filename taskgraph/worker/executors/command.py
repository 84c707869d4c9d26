"""Executor `command`: a child process of the worker. docs/reference/format.md has its payload and environment.

A run owns its process group (and session), and when the run is over, so is the group; `orphans` ends it if the worker
dies first. Output is streamed into the log; no shell interprets the command. Needs POSIX: process groups, signals, and
pipes that can be polled.
"""

import asyncio
import errno
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from taskgraph.model import limits
from taskgraph.model.errors import InvalidInput
from taskgraph.model.secrecy import Environment, Handed, secret_named
from taskgraph.worker.executors import children, env_files
from taskgraph.worker.executors.children import Child, NotBegun
from taskgraph.worker.executors.command_run import CommandRun, Shared
from taskgraph.worker.executors.contract import (
    OnEnd,
    Outcome,
    Queue,
    TemporaryFailure,
    Work,
    WriteLog,
    failed_for_now,
    malformed,
    payload_of,
)
from taskgraph.worker.executors.orphans import guard
from taskgraph.worker.executors.orphans_guard import MARK
from taskgraph.worker.executors.output import piped
from taskgraph.worker.executors.secrets import Secrets, masked
from taskgraph.worker.executors.starter import STARTERS_MAX

if TYPE_CHECKING:
    from taskgraph.worker.executors.starting import Starting

DRAIN_SECONDS: Final = 1.0  # for processes that outlive the command and hold its output open
TIMEOUT_SECONDS_MAX: Final = 30 * 24 * 3600


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
        self._shared = Shared(grace_seconds, drain_seconds)
        handed = handed or Handed()
        self._inherited = Environment(handed)
        self._secrets = Secrets(handed)
        self._last: tuple[Mapping[str, Any], Order] | None = None
        self._starting: Starting | None = None

    @property
    def queue(self) -> Queue | None:
        return self if children.can_spawn() else None

    def is_ready(self, slots: int) -> bool:
        """Its queue is for processes of their own, which this begins to start."""
        starting = self._starting
        if (
            starting is None
            or starting.lost
            or starting.loop is not asyncio.get_running_loop()
            or (starting.width != slots and starting.idle)
        ):
            starting = None
        if starting is None:
            from taskgraph.worker.executors.starting import Starting, compiled  # only where there are many

            if slots <= STARTERS_MAX:
                unfit = self._starting is not None and self._starting.unfit  # as it was compiled for another system
                self._starting = starting = Starting(slots, None if unfit else compiled())
        return starting is not None and starting.ready and starting.width == slots and not self._shared.apart

    def recall(self, work: Work) -> None:
        run = self._shared.queued.get(work.claim)
        if run is not None:
            run.drop()

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
        return await self._begin(work, order, secrets, work.on_begin).go_on(write_log)

    def begin(self, work: Work, on_begin: Callable[[], None], on_end: OnEnd) -> CommandRun | None:
        try:
            order = self._order(work.definition)
        except InvalidInput:
            return None  # `run` says what is wrong
        if order.secrets or order.env_file is not None or order.timeout_seconds is not None or work.folder:
            return None
        run = self._begin(work, order, {}, on_begin)
        run.plainly(on_end)
        return run

    def _begin(
        self, work: Work, order: Order, secrets: Mapping[str, bytes], on_begin: Callable[[], None]
    ) -> CommandRun:
        """Start a command, or have it started when there is a slot. Raises OSError where a run has no files."""
        results = self._shared.results
        result_file = results.new()
        try:
            own = self._own_variables(work, order, secrets, result_file)
            argv = self._argv(work, order, own, result_file)
            inherited = self._inherited.given(order.inherited)
            place = order.argv[0], order.cwd
            run = CommandRun(self._shared, work, place, result_file, order.timeout_seconds, on_begin)
            self._start(run, work.claim, argv, order.cwd, (inherited, own))
        except BaseException:
            results.discard(result_file)
            raise
        return run

    def _start(
        self,
        run: CommandRun,
        claim: str,
        argv: tuple[str, ...],
        cwd: str | None,
        env: tuple[Mapping[bytes, bytes], dict[bytes, bytes]],
    ) -> None:
        """Start it, or have it started. env: what is inherited, and its own."""
        inherited, own = env
        starting = self._starting
        if starting is not None and starting.ready and starting.loop is asyncio.get_running_loop():
            number = starting.order(argv, inherited, own, cwd, run.has_begun)
            run.drop = partial(starting.drop, number)
            self._shared.queued[claim] = run
            return
        output, writing = piped()
        if children.can_spawn():
            try:
                child = children.spawn(argv, {**inherited, **own}, cwd, writing)
            except OSError as error:
                run.has_begun(error, output)
            except BaseException:
                output.close()
                raise
            else:
                run.has_begun(child, output)
        else:
            begun = asyncio.ensure_future(children.start(argv, {**inherited, **own}, cwd, writing))
            begun.add_done_callback(lambda begun: run.has_begun(_begun(begun), output))

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


def _begun(begun: "asyncio.Future[Child]") -> Child | BaseException:
    if begun.cancelled():  # the loop ends
        return NotBegun(errno.ECANCELED, "it was not to be started")
    return begun.exception() or begun.result()
