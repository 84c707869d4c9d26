"""The command line: commands put together, and run.

What this room is for: the names of the commands and their order in the help. What they do is in the rooms beside this
one; what errors mean is in `failures`. It never imports anything heavy: a store, a schema or a display is loaded by the
command that needs it.
"""

import inspect
from collections.abc import Callable
from typing import Annotated

import typer

from taskgraph import __version__
from taskgraph.interfaces.cli import (
    archive,
    cancel,
    delete,
    doctor,
    documents,
    edit,
    events,
    failures,
    functions,
    grant,
    graphs,
    limit,
    logs,
    notices,
    pause,
    poison,
    prioritize,
    rerun,
    restore,
    rows,
    run,
    schedules,
    serve,
    submit,
    tasks,
    top,
    why,
    workers,
)
from taskgraph.interfaces.cli.common import Root, Session, set_up_logging
from taskgraph.interfaces.cli.options import StoreOption, VerboseOption

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
    verbose: VerboseOption = 0,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Run graphs of tasks. The only server is a storage account; on one machine it is a file."""
    session = Session(store=store, verbose=verbose)
    ctx.obj = session
    set_up_logging(session)


def _add(group: typer.Typer, name: str, command: Callable[..., None], epilog: str, panel: str | None = None) -> None:
    """Add a command. Its docstring is its help: paragraphs, whose line breaks are ours and not the terminal's."""
    group.command(name, help=_help(command), epilog=epilog, rich_help_panel=panel)(command)


def _help(command: Callable[..., None]) -> str:
    paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")
    return "\n\n".join(" ".join(each.split()) for each in paragraphs)


_RUN, _LOOK, _KEEP, _FILES, _SERVE = "Run", "Look", "Keep", "Files", "Serve"

_add(app, "run", run.run, run.RUN_EXAMPLES, _RUN)
_add(app, "submit", submit.submit, submit.SUBMIT_EXAMPLES, _RUN)
_add(app, "extend", submit.extend, submit.EXTEND_EXAMPLES, _RUN)
_add(app, "edit", edit.edit, edit.EDIT_EXAMPLES, _RUN)
_add(app, "rerun", rerun.rerun, rerun.RERUN_EXAMPLES, _RUN)
_add(app, "cancel", cancel.cancel, cancel.CANCEL_EXAMPLES, _RUN)
_add(app, "pause", pause.pause, pause.PAUSE_EXAMPLES, _RUN)
_add(app, "resume", pause.resume, pause.RESUME_EXAMPLES, _RUN)
_add(app, "prioritize", prioritize.prioritize, prioritize.PRIORITIZE_EXAMPLES, _RUN)
_add(app, "deactivate", pause.deactivate, pause.DEACTIVATE_EXAMPLES, _RUN)
_add(app, "activate", pause.activate, pause.ACTIVATE_EXAMPLES, _RUN)

_limit = typer.Typer(no_args_is_help=True, help="How many tasks may be in flight: of a graph, a group, a target.")
_add(_limit, "set", limit.set_, limit.SET_EXAMPLES)
_add(_limit, "clear", limit.clear, limit.CLEAR_EXAMPLES)
_add(_limit, "list", limit.list_, limit.LIST_EXAMPLES)
app.add_typer(_limit, name="limit", rich_help_panel=_RUN)

_schedule = typer.Typer(no_args_is_help=True, help="Graphs that are submitted by the clock: cron, interval, once.")
_add(_schedule, "create", schedules.create, schedules.CREATE_EXAMPLES)
_add(_schedule, "update", schedules.update, schedules.UPDATE_EXAMPLES)
_add(_schedule, "list", schedules.list_, schedules.LIST_EXAMPLES)
_add(_schedule, "show", schedules.show, schedules.SHOW_EXAMPLES)
_add(_schedule, "activate", schedules.activate, schedules.ACTIVATE_EXAMPLES)
_add(_schedule, "deactivate", schedules.deactivate, schedules.DEACTIVATE_EXAMPLES)
_add(_schedule, "run-now", schedules.run_now, schedules.RUN_NOW_EXAMPLES)
_add(_schedule, "delete", schedules.delete, schedules.DELETE_EXAMPLES)
app.add_typer(_schedule, name="schedule", rich_help_panel=_RUN)

_add(app, "list", graphs.list_, graphs.LIST_EXAMPLES, _LOOK)
_add(app, "status", graphs.status, graphs.STATUS_EXAMPLES, _LOOK)
_add(app, "watch", graphs.watch, graphs.WATCH_EXAMPLES, _LOOK)
_add(app, "show", graphs.show, graphs.SHOW_EXAMPLES, _LOOK)
_add(app, "task", tasks.task, tasks.TASK_EXAMPLES, _LOOK)
_add(app, "why", why.why, why.WHY_EXAMPLES, _LOOK)
_add(app, "results", tasks.results, tasks.RESULTS_EXAMPLES, _LOOK)
_add(app, "top", top.top, top.TOP_EXAMPLES, _LOOK)
_add(app, "logs", logs.logs, logs.LOGS_EXAMPLES, _LOOK)
_add(app, "events", events.events, events.EVENTS_EXAMPLES, _LOOK)
_add(app, "notices", notices.notices, notices.NOTICES_EXAMPLES, _LOOK)
_add(app, "rows", rows.rows, rows.ROWS_EXAMPLES, _LOOK)
_add(app, "doctor", doctor.doctor, doctor.DOCTOR_EXAMPLES, _LOOK)
_add(app, "grant", grant.grant, grant.GRANT_EXAMPLES, _LOOK)

_add(app, "archive", archive.archive, archive.ARCHIVE_EXAMPLES, _KEEP)
_add(app, "restore", restore.restore, restore.RESTORE_EXAMPLES, _KEEP)
_add(app, "keygen", restore.keygen, restore.KEYGEN_EXAMPLES, _KEEP)
_add(app, "delete", delete.delete, delete.DELETE_EXAMPLES, _KEEP)

_add(app, "validate", documents.validate, documents.VALIDATE_EXAMPLES, _FILES)
_add(app, "plan", documents.plan, documents.PLAN_EXAMPLES, _FILES)
_add(app, "import", documents.import_, documents.IMPORT_EXAMPLES, _FILES)

_add(app, "serve", serve.serve, serve.SERVE_EXAMPLES, _SERVE)
_add(app, "worker", serve.worker, serve.WORKER_EXAMPLES, _SERVE)

_workers = typer.Typer(invoke_without_command=True, epilog=workers.WORKERS_EXAMPLES, help=_help(workers.workers))
_workers.callback()(workers.workers)
_add(_workers, "drain", workers.drain, workers.DRAIN_EXAMPLES)
_add(_workers, "undrain", workers.undrain, workers.UNDRAIN_EXAMPLES)
app.add_typer(_workers, name="workers", rich_help_panel=_SERVE)

_functions = typer.Typer(no_args_is_help=True, help="The handlers as Azure Functions: run them here, look at them.")
_add(_functions, "start", functions.start, functions.START_EXAMPLES)
_add(_functions, "list", functions.list_, functions.LIST_EXAMPLES)
app.add_typer(_functions, name="functions", rich_help_panel=_SERVE)

_poison = typer.Typer(no_args_is_help=True, help="Messages that could not be handled: look at them, put them back.")
_add(_poison, "list", poison.poison_list, poison.POISON_LIST_EXAMPLES)
_add(_poison, "replay", poison.poison_replay, poison.POISON_REPLAY_EXAMPLES)
app.add_typer(_poison, name="poison", rich_help_panel=_SERVE)


def main() -> None:
    """Run the command that was typed, and end the process with its exit code."""
    app(prog_name="taskgraph")
