"""The command line: which commands there are, and their order in the help.

It imports nothing heavy: a store, a schema or a display is loaded by the command that needs it.
"""

import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from taskgraph import __version__
from taskgraph.interfaces.cli import (
    archive,
    costs,
    delete,
    doctor,
    document,
    documents,
    edit,
    events,
    failures,
    files,
    functions,
    grant,
    graphs,
    init,
    limit,
    logs,
    notices,
    poison,
    rehearse,
    requests,
    run,
    schedules,
    serve,
    submit,
    tasks,
    timeline,
    top,
    transfer,
    workers,
)
from taskgraph.interfaces.cli.common import Command, OwnCommand, OwnGroup, Root, Session
from taskgraph.interfaces.cli.help_texts import import_help
from taskgraph.interfaces.cli.options import JsonOption, StoreOption, VerboseOption

__all__ = ["app", "main"]

app = typer.Typer(
    name="taskgraph",
    cls=Root,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=failures.EXIT_CODES,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"taskgraph {__version__}")
        raise typer.Exit


@app.callback()
def root(
    ctx: typer.Context,
    store: StoreOption = None,
    json: JsonOption = False,
    verbose: VerboseOption = 0,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Run graphs of tasks. The only server is a storage account; on one machine it is a file."""
    session = Session(store=store, verbose=verbose)
    session.output.json = json
    ctx.obj = session


def _add(group: typer.Typer, commands: Sequence[Command], panel: str | None = None) -> None:
    for each in commands:
        made = group.command(each.name, cls=OwnCommand, help=each.help, epilog=each.epilog, rich_help_panel=panel)
        made(each.call)


def _add_group(name: str, panel: str, text: str, commands: Sequence[Command]) -> None:
    group = typer.Typer(cls=OwnGroup, no_args_is_help=True, help=text)
    _add(group, commands)
    app.add_typer(group, name=name, rich_help_panel=panel)


_RUN, _LOOK, _OPERATE, _ADMINISTER = "Run", "Look", "Operate", "Administer"

_add(
    app,
    (
        *(init.init, documents.import_, documents.validate, documents.plan, rehearse.rehearse),
        *(run.run, submit.submit, document.resubmit),
    ),
    _RUN,
)
_add(
    app,
    (
        *(graphs.list_, graphs.status, graphs.watch, graphs.show, tasks.task, tasks.why, logs.logs, tasks.results),
        *(
            files.files,
            timeline.timeline,
            events.events,
            costs.cost,
            notices.notices,
            document.document,
            document.export,
            top.top,
        ),
        *(serve.ui, archive.report),
    ),
    _LOOK,
)
_add(
    app,
    (
        *(requests.rerun, requests.cancel, requests.pause, requests.resume, requests.deactivate, requests.activate),
        *(requests.prioritize, edit.edit, submit.extend, requests.change),
    ),
    _OPERATE,
)
_add(
    app,
    (
        *(serve.serve, serve.worker, doctor.doctor, archive.archive, archive.restore, archive.keygen, delete.delete),
        *(transfer.transfer, grant.grant, events.rows, costs.prices, serve.mcp),
    ),
    _ADMINISTER,
)

_add_group(
    "schedule",
    _RUN,
    "Graphs that are submitted by the clock: cron, interval, once.",
    (
        schedules.create,
        schedules.update,
        schedules.list_,
        schedules.show,
        schedules.activate,
        schedules.deactivate,
        schedules.run_now,
        schedules.delete,
    ),
)
_add_group(
    "limit",
    _OPERATE,
    "How many tasks may be in flight: of a graph, a group, a target.",
    (limit.set_, limit.clear, limit.list_),
)

_workers = typer.Typer(
    cls=OwnGroup, invoke_without_command=True, help=workers.workers.help, epilog=workers.workers.epilog
)
_workers.callback()(workers.workers.call)
_add(_workers, (workers.drain, workers.undrain))
app.add_typer(_workers, name="workers", rich_help_panel=_ADMINISTER)

_add_group(
    "functions",
    _ADMINISTER,
    "The handlers as Azure Functions: run them here, look at them.",
    (functions.start, functions.list_),
)
_add_group(
    "token",
    _ADMINISTER,
    "What opens the HTTP API: make it, look at it, take it back.",
    (grant.create, grant.share, grant.list_, grant.revoke),
)
_add_group(
    "web",
    _ADMINISTER,
    "The page as a website of the storage account, where no server is.",
    (grant.deploy,),
)
_add_group(
    "poison",
    _ADMINISTER,
    "Messages that could not be handled: look at them, put them back.",
    (poison.list_, poison.replay),
)


def main() -> None:
    """Run the command that was typed, and end the process with its exit code."""
    typed = sys.argv[1:]
    if not {"-h", "--help"}.isdisjoint(typed):
        import_help()
    with _only(typed[0] if typed else ""):
        app(prog_name="taskgraph")


@contextlib.contextmanager
def _only(name: str) -> Iterator[None]:
    """Without the other commands, if that is one: typer makes parsers for all that it knows."""
    every = app.registered_commands, app.registered_groups
    commands = [each for each in app.registered_commands if each.name == name]
    groups = [each for each in app.registered_groups if each.name == name]
    if commands or groups:
        app.registered_commands, app.registered_groups = commands, groups
    try:
        yield
    finally:
        app.registered_commands, app.registered_groups = every
