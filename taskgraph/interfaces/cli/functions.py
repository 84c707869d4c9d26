"""The commands `functions start` and `functions list`: the function app on this machine, without Core Tools.

What this room is for: settings, the environment of Microsoft's worker library, and what happens in words or as lines of
JSON. The rules of the host are in `interfaces.functions.host`. It never shows what is in a message, and never a key.
"""

import asyncio
import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from taskgraph.interfaces import views
from taskgraph.interfaces.cli.common import Session, begin, examples
from taskgraph.interfaces.cli.options import JsonOption, StoreOption, VerboseOption
from taskgraph.interfaces.cli.output import Column, Style, count
from taskgraph.interfaces.cli.signals import minding_signals
from taskgraph.model.errors import InvalidSettings

if TYPE_CHECKING:
    from taskgraph.interfaces.app import App
    from taskgraph.interfaces.functions.host import Source
    from taskgraph.interfaces.functions.local import Function, HostJson, Settings
    from taskgraph.interfaces.functions.worker_process import LogLine, WorkerProcess

_STYLES: Final[Mapping[str, Style]] = {"error": "red", "warning": "yellow", "info": "", "debug": "dim"}
_MESSAGE_CHARS_MAX: Final = 300

AppOption = Annotated[
    Path | None,
    typer.Option("--app", metavar="DIR", help="The app's folder; otherwise the one that comes with taskgraph."),
]
EnvironmentOption = Annotated[
    Path | None,
    typer.Option(
        "--environment",
        metavar="DIR",
        help="Where Microsoft's worker library is, or is to be installed; otherwise .venv-functions of a checkout, "
        "or a folder in the user's cache.",
    ),
]
SettingsOption = Annotated[
    Path | None,
    typer.Option(
        "--settings",
        metavar="FILE",
        help="A local.settings.json; otherwise the one in the app's folder. What the environment says wins over it.",
    ),
]


def start(
    ctx: typer.Context,
    app: AppOption = None,
    environment: EnvironmentOption = None,
    settings: SettingsOption = None,
    poll: Annotated[
        bool,
        typer.Option("--poll", help="Find messages by polling alone, as Azure's host does, however near their sender."),
    ] = False,
    lock_seconds: Annotated[
        float,
        typer.Option(
            "--lock", min=2, max=3600, metavar="SECONDS", help="Hide a message from others for so long at a time."
        ),
    ] = 600.0,
    grace_seconds: Annotated[
        float, typer.Option("--grace", min=0, metavar="SECONDS", help="Let calls end for so long when told to stop.")
    ] = 30.0,
    store: StoreOption = None,
    json: JsonOption = False,
    verbose: VerboseOption = 0,
) -> None:
    """Run a function app here: its queue and timer triggers, under Microsoft's own Python worker library.

    Queues are polled as the Functions host does it, by the app's host.json, and need a storage account or Azurite. The
    first start installs the worker library, into a folder of its own.

    SIGTERM and SIGINT end it gracefully; a second one at once. With --json every event is a line on stdout, and the
    first one, "ready", lists the functions.
    """
    session = begin(ctx, store=store, json=json, verbose=verbose)
    session.output.lines = True
    made = _Made.of(session, app, environment, settings)
    asyncio.run(_start(session, made, poll=poll, lock_seconds=lock_seconds, grace_seconds=grace_seconds))


START_EXAMPLES = examples(
    "taskgraph functions start --store UseDevelopmentStorage=true",
    "taskgraph functions start --app deploy --settings local.settings.json",
    "TASKGRAPH_STORE=https://myaccount.table.core.windows.net taskgraph functions start --json",
)


def list_(
    ctx: typer.Context,
    app: AppOption = None,
    environment: EnvironmentOption = None,
    settings: SettingsOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
    verbose: VerboseOption = 0,
) -> None:
    """Show the functions of an app as Microsoft's worker library reports them: triggers, queues, schedules.

    The app is loaded for that, and none of its functions is called. Storage is not asked.
    """
    session = begin(ctx, store=store, json=json, verbose=verbose)
    made = _Made.of(session, app, environment, settings, needs_store=False)
    functions = asyncio.run(_list(session, made))
    if json:
        session.output.document(views.functions(each.as_object() for each in functions))
    else:
        _table(session, [each.as_object() for each in functions])


LIST_EXAMPLES = examples("taskgraph functions list", "taskgraph functions list --app deploy --json")


class _Made:
    """What both commands need: the app, its settings, an interpreter."""

    def __init__(self, folder: Path, settings: "Settings", host_json: "HostJson", python: Path) -> None:
        self.folder = folder
        self.settings = settings
        self.host_json = host_json
        self.python = python

    @classmethod
    def of(
        cls,
        session: Session,
        app: Path | None,
        environment: Path | None,
        settings: Path | None,
        *,
        needs_store: bool = True,
    ) -> "_Made":
        """All of it. Raises InvalidSettings."""
        from taskgraph.interfaces.functions import environment as worker_environment
        from taskgraph.interfaces.functions import local

        folder = (app or local.packaged_app()).absolute()
        if not (folder / local.APP_FILE).is_file():
            raise InvalidSettings(f"{folder} holds no {local.APP_FILE}: name the folder of a function app with --app")
        read = local.app_settings(session.store, os.environ, folder, settings, cwd=Path.cwd(), needs_store=needs_store)
        host_json = local.read_host_json(folder, read.environ)
        place = environment or worker_environment.default_folder(os.environ)
        return cls(folder, read, host_json, worker_environment.make(place, session.output.hint))

    async def launch(self, session: Session, log: Any) -> "WorkerProcess":
        """A worker that has indexed the app. Raises AppFailed; its stack is shown with --verbose."""
        from taskgraph.interfaces.functions.worker_process import AppFailed, WorkerProcess

        try:
            return await WorkerProcess.start(
                self.python, self.folder, self.settings.environ, log, debug=session.verbose > 1
            )
        except AppFailed as failed:
            if session.verbose and failed.stack:
                session.output.hint(failed.stack.rstrip().replace("\n", "\n  "))
            raise


async def _list(session: Session, made: _Made) -> "list[Function]":
    from taskgraph.interfaces.functions.local import functions_of
    from taskgraph.interfaces.functions.worker_process import AppFailed, WorkerDied

    def log(line: "LogLine") -> None:
        if line.level in ("Warning", "Error", "Critical"):
            session.output.warn(f"{line.category}: {line.message}")

    try:
        worker = await made.launch(session, log)
    except WorkerDied as died:
        raise AppFailed(f"{died}; what it said stands above") from died
    try:
        return functions_of(worker.found, made.settings.environ)
    finally:
        await worker.end()


async def _start(session: Session, made: _Made, *, poll: bool, lock_seconds: float, grace_seconds: float) -> None:
    from taskgraph.interfaces.app import open_app
    from taskgraph.interfaces.functions.host import FunctionsHost, Source
    from taskgraph.interfaces.settings import CONNECTION_VARIABLE, read_connection
    from taskgraph.model.clock import SystemClock

    output, environ = session.output, made.settings.environ
    teller = _Teller(session, made)
    opened: dict[str, App] = {}
    async with contextlib.AsyncExitStack() as stack:

        async def open_source(connection: str) -> "Source":
            app = opened.get(connection)
            if app is None:
                settings = read_connection({**environ, CONNECTION_VARIABLE: connection}, cwd=made.folder)
                app = opened[connection] = await stack.enter_async_context(open_app(settings))
            return Source(app.queues, None if poll else app.wakeup)

        def on_signal(signals: int) -> None:
            if signals == 1:
                output.say("stopping: calls that run come to their end; once more ends it at once")

        host = FunctionsHost(
            lambda log: made.launch(session, log),
            open_source,
            environ,
            made.host_json,
            SystemClock(),
            teller.tell,
            lock_seconds=lock_seconds,
            grace_seconds=grace_seconds,
        )
        async with minding_signals(on_signal) as stop:
            await host.run(stop.event)


class _Teller:
    """What happens, for people or for a machine."""

    def __init__(self, session: Session, made: _Made) -> None:
        self._session = session
        self._made = made

    def tell(self, loud: str, kind: str, about: Mapping[str, Any]) -> None:
        """One event. Successful calls are told with --verbose alone: they are many."""
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
                f"{about['batchSize']} messages at a time; store {self._made.settings.store.display}; stop with Ctrl-C"
            )
        else:
            line = _words(kind, about)
            output.say(
                line if len(line) <= _MESSAGE_CHARS_MAX or self._session.verbose else f"{line[:_MESSAGE_CHARS_MAX]}…",
                _STYLES[loud],
            )
            if about.get("stack"):
                output.hint(str(about["stack"]).rstrip())


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
    columns = [Column("FUNCTION"), Column("TRIGGER"), Column("QUEUE OR SCHEDULE"), Column("CONNECTION"), Column("")]
    session.output.table(
        columns,
        [
            [
                each["name"],
                each["trigger"],
                each.get("queue") or each.get("schedule") or "",
                each.get("connection", ""),
                f"not run here: {each['refused']}" if each["refused"] else "",
            ]
            for each in functions
        ],
    )
