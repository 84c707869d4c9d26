"""The commands `functions start` and `functions list`: options of the Functions host, a package of its own."""

import importlib
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from taskgraph.interfaces.cli.common import Session, command
from taskgraph.model.errors import InvalidSettings

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


@command(
    "taskgraph functions start --store UseDevelopmentStorage=true",
    "taskgraph functions start --app deploy --settings local.settings.json",
    "TASKGRAPH_HTTP=tokens taskgraph functions start --http 7071",
    "TASKGRAPH_STORE=https://myaccount.table.core.windows.net taskgraph functions start --json",
)
def start(
    session: Session,
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
        float,
        typer.Option("--grace", min=0, metavar="SECONDS", help="Let calls end for so long after a signal to stop."),
    ] = 30.0,
    http_port: Annotated[
        int | None,
        typer.Option(
            "--http",
            min=0,
            max=65_535,
            metavar="PORT",
            help="Also call HTTP triggers, on this port of 127.0.0.1, 0 for any that is free.",
        ),
    ] = None,
) -> None:
    """Run a function app here: its queue, timer and HTTP triggers, under Microsoft's own Python worker library.

    Queues are polled as the Functions host does it, by the app's host.json, and need a storage account or Azurite. The
    first start installs the worker library, into a folder of its own.

    SIGTERM and SIGINT end it gracefully; a second one at once. With --json every event is a line on stdout, and the
    first one, "ready", lists the functions.
    """
    _host().start(
        session,
        app,
        environment,
        settings,
        poll=poll,
        lock_seconds=lock_seconds,
        grace_seconds=grace_seconds,
        http_port=http_port,
    )


@command("taskgraph functions list", "taskgraph functions list --app deploy --json")
def list_(
    session: Session, app: AppOption = None, environment: EnvironmentOption = None, settings: SettingsOption = None
) -> None:
    """Show the functions of an app as Microsoft's worker library reports them: triggers, queues, schedules.

    The app is loaded for that, and none of its functions is called. Storage is not asked.
    """
    _host().show(session, app, environment, settings)


def _host() -> ModuleType:
    """The host's commands, imported by name: the host imports this package, not the other way round."""
    try:
        return importlib.import_module("taskgraph_functions_host.command")
    except ModuleNotFoundError as error:
        if error.name != "taskgraph_functions_host":
            raise
        raise InvalidSettings(
            "the Functions host is a package of its own, which is not installed: "
            "pip install 'taskgraph-scheduler[functions-host]', or in a checkout: pip install ./functions_host"
        ) from error
