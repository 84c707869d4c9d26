"""What `taskgraph functions start` and `functions list` do: an app's settings, and what happens, in words or as JSON.

It never shows what is in a message, and never a key.
"""

import asyncio
import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from taskgraph.interfaces import app, views
from taskgraph.interfaces.cli.common import Session
from taskgraph.interfaces.cli.ctrl_c import as_exception
from taskgraph.interfaces.cli.output import Column, Style, count
from taskgraph.interfaces.cli.signals import minding_signals
from taskgraph.interfaces.settings import CONNECTION_VARIABLE, read_connection
from taskgraph.model.clock import SystemClock
from taskgraph.model.errors import InvalidSettings
from taskgraph_functions_host import environment, local
from taskgraph_functions_host.host import FunctionsHost, Source
from taskgraph_functions_host.local import Function, functions_of
from taskgraph_functions_host.worker_process import AppFailed, LogLine, WorkerDied, WorkerProcess

_STYLES: Final[Mapping[str, Style]] = {"error": "red", "warning": "yellow", "info": "", "debug": "dim"}
_MESSAGE_CHARS_MAX: Final = 300


def start(
    session: Session,
    folder: Path | None,
    place: Path | None,
    settings: Path | None,
    *,
    poll: bool,
    lock_seconds: float,
    grace_seconds: float,
    http_port: int | None = None,
) -> None:
    """Run an app until SIGTERM or SIGINT. folder, place, settings: as the options name them, or None."""
    session.output.lines = True
    made = FunctionApp(session, folder, place, settings)
    with as_exception():
        run = _start(
            session, made, poll=poll, lock_seconds=lock_seconds, grace_seconds=grace_seconds, http_port=http_port
        )
        asyncio.run(run)


def show(session: Session, folder: Path | None, place: Path | None, settings: Path | None) -> None:
    """List the functions of an app."""
    made = FunctionApp(session, folder, place, settings, needs_store=False)
    functions = [each.as_object() for each in asyncio.run(_list(session, made))]
    if session.output.json:
        session.output.document(views.functions(functions))
    else:
        _table(session, functions)


class FunctionApp:
    """An app's folder, its settings, and an interpreter for it. Raises InvalidSettings."""

    def __init__(
        self,
        session: Session,
        folder: Path | None,
        place: Path | None,
        settings: Path | None,
        *,
        needs_store: bool = True,
    ) -> None:
        self.folder = (folder or local.packaged_app()).absolute()
        if not (self.folder / local.APP_FILE).is_file():
            raise InvalidSettings(
                f"{self.folder} holds no {local.APP_FILE}: name the folder of a function app with --app"
            )
        self.settings = local.app_settings(
            session.store, os.environ, self.folder, settings, cwd=Path.cwd(), needs_store=needs_store
        )
        self.host_json = local.read_host_json(self.folder, self.settings.environ)
        self.python = environment.make(place or environment.default_folder(os.environ), session.output.hint)

    async def launch(self, session: Session, log: Any) -> WorkerProcess:
        """A worker that has indexed the app. Raises AppFailed; its stack is shown with --verbose."""
        try:
            return await WorkerProcess.start(
                self.python, self.folder, self.settings.environ, log, debug=session.verbose > 1
            )
        except AppFailed as failed:
            if session.verbose and failed.stack:
                session.output.hint(failed.stack.rstrip().replace("\n", "\n  "))
            raise


async def _list(session: Session, made: FunctionApp) -> list[Function]:
    def log(line: LogLine) -> None:
        if line.level in ("Warning", "Error", "Critical"):
            session.output.warn(f"{line.category}: {line.message}")

    try:
        worker = await made.launch(session, log)
    except WorkerDied as died:
        raise AppFailed(f"{died}; what it said stands above") from died
    try:
        return functions_of(worker.found, made.settings.environ, made.host_json)
    finally:
        await worker.end()


async def _start(
    session: Session,
    made: FunctionApp,
    *,
    poll: bool,
    lock_seconds: float,
    grace_seconds: float,
    http_port: int | None,
) -> None:
    opened: dict[str, app.App] = {}
    async with contextlib.AsyncExitStack() as stack:

        async def open_source(connection: str) -> Source:
            if connection not in opened:
                asked = {**made.settings.environ, CONNECTION_VARIABLE: connection}
                opened[connection] = await stack.enter_async_context(
                    app.open_app(read_connection(asked, cwd=made.folder))
                )
            return Source(opened[connection].queues, None if poll else opened[connection].wakeup)

        def on_signal(signals: int) -> None:
            if signals == 1:
                session.output.say("stopping: calls that run come to their end; once more ends it at once")

        host = FunctionsHost(
            lambda log: made.launch(session, log),
            open_source,
            made.settings.environ,
            made.host_json,
            SystemClock(),
            Reporter(session, made).report,
            lock_seconds=lock_seconds,
            grace_seconds=grace_seconds,
            http_port=http_port,
        )
        async with minding_signals(on_signal) as stop:
            await host.run(stop.event)


class Reporter:
    """Prints what happens, for people or for a machine."""

    def __init__(self, session: Session, made: FunctionApp) -> None:
        self._session = session
        self._made = made

    def report(self, loud: str, kind: str, about: Mapping[str, Any]) -> None:
        """Print one event. Successful calls are printed with --verbose alone: they are many."""
        output = self._session.output
        if loud == "debug" and not self._session.verbose:
            return
        if not self._session.verbose:
            about = {name: value for name, value in about.items() if name != "stack"}
        if output.json:
            output.json_line(views.line(kind, {"level": loud, **about}))
        elif kind == "ready":
            _table(self._session, about["functions"])
            output.say(
                f"worker library {about['worker']} on Python {about['python']}, process {about['pid']}; "
                f"{about['batchSize']} messages at a time; {_on(about.get('address'))}"
                f"store {self._made.settings.store.display}; stop with Ctrl-C"
            )
        else:
            line = _words(kind, about)
            output.say(
                line if len(line) <= _MESSAGE_CHARS_MAX or self._session.verbose else f"{line[:_MESSAGE_CHARS_MAX]}…",
                _STYLES[loud],
            )
            if about.get("stack"):
                output.hint(str(about["stack"]).rstrip())


def _on(address: str | None) -> str:
    return f"HTTP on {address}; " if address else ""


def _words(kind: str, about: Mapping[str, Any]) -> str:
    """An event in words."""
    match kind:
        case "executing":
            return f"executing {about['function']}: {about['reason']} ({about['invocation']})"
        case "executed" if about["succeeded"]:
            return f"executed {about['function']} in {about['seconds']} s: {about['reason']} ({about['invocation']})"
        case "executed":
            what = f"{about['error']}: {about['message']}"
            return f"failed {about['function']} after {about['seconds']} s: {about['reason']}: {what}"
        case "set-aside":
            return f"message {about['messageId']} of {about['queue']} is in {about['poisonQueue']}: {about['message']}"
        case "log":
            return f"{about['function'] or about['category']}: {about['logLevel'].lower()}: {about['message']}"
        case "worker-died":
            return (
                f"the worker process {about['pid']} {about['how']}: what it had in hand is offered again; "
                f"the next one starts in {about['restartSeconds']:g} s"
            )
        case "worker-not-started":
            return f"{about['message']}; the next one starts in {about['restartSeconds']:g} s"
        case "worker-started":
            return f"the worker process {about['pid']} has taken over"
        case "no-retries":
            retries = count(about["retries"], "retry", "retries")
            return f"{about['function']} asks for {retries}, which this host does not make"
        case "past-due":
            return f"{about['function']} was due at {about['due']}, and has run now"
        case "stopping":
            return f"no more messages are fetched; {count(about['inHand'], 'call')} in hand"
        case "cut-short":
            return f"{count(about['inHand'], 'call')} took longer than {about['graceSeconds']:g} s, and were ended"
        case "stopped":
            return f"stopped; {count(about['succeeded'], 'call')} succeeded, {about['failed']:,} failed"
        case "queue-answers":
            return f"{about['queue']} answers again"
        case "queue-trouble":
            return f"{about['queue']} cannot be polled, and is tried again: {about['message']}"
        case _:
            return f"message {about.get('messageId')} of {about.get('queue')}: {kind}: {about.get('message')}"


def _table(session: Session, functions: list[dict[str, Any]]) -> None:
    columns = [
        Column("FUNCTION", lambda each: each["name"]),
        Column("TRIGGER", lambda each: each["trigger"]),
        Column(
            "QUEUE, SCHEDULE, PATH", lambda each: each.get("queue") or each.get("schedule") or each.get("path") or ""
        ),
        Column("CONNECTION", lambda each: each.get("connection", "")),
        Column("", lambda each: f"not run here: {each['refused']}" if each["refused"] else ""),
    ]
    session.output.table(functions, columns)
