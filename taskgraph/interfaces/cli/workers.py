"""The commands `workers`, `workers drain` and `workers undrain`: who works here, and who shall stop taking work.

What this room is for: the registry's rows as lines or JSON, and the two things that may be asked of a worker. It never
ends a process by itself: a worker that shall drain reads so in its row, and does it.
"""

from typing import TYPE_CHECKING, Annotated, Final

import typer

from taskgraph.interfaces import views
from taskgraph.interfaces.cli import failures
from taskgraph.interfaces.cli.common import Session, begin, examples, with_session
from taskgraph.interfaces.cli.options import JsonOption, StoreOption, VerboseOption
from taskgraph.interfaces.cli.output import Column, count, seconds
from taskgraph.interfaces.cli.signals import minding_signals, unless_stopped
from taskgraph.interfaces.operations.checks import check_target
from taskgraph.model import limits
from taskgraph.model.errors import InvalidInput

if TYPE_CHECKING:
    from taskgraph.interfaces.app import App
    from taskgraph.queries.workers import WorkerStatus

_WAIT_SECONDS: Final = 3600.0

WorkerArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="The name of the worker, as `workers` shows it.", show_default=False)
]


def workers(
    ctx: typer.Context,
    target: Annotated[
        str | None,
        typer.Option("--target", metavar="TARGET", help="Only workers of this target.", show_default=False),
    ] = None,
    store: StoreOption = None,
    json: JsonOption = False,
    verbose: VerboseOption = 0,
) -> None:
    """List workers: what they serve, how busy they are, when they were last heard of, and what they run.

    A worker gives word every 30 s (half its lease, where that is less). One that owes three words is shown as gone: it
    may have been killed, or be cut off; what it had in hand comes back when its leases end. Its row goes after an hour.
    `run` is listed once it has lasted for 10 s.
    """
    if ctx.invoked_subcommand is not None:
        return
    session = begin(ctx, store=store, json=json, verbose=verbose)
    if target:
        check_target(target)
    found = session.open(lambda app: _workers(app, target or ""))
    output = session.output
    if json:
        output.document(views.workers(found))
    elif found:
        output.table(WORKER_COLUMNS, [worker_cells(each) for each in found])
    else:
        output.say(f"no worker is registered{f' for the target {target}' if target else ''}")
        output.hint(f"start one: taskgraph worker{f' --target {target}' if target else ''}{session.store_words}")


WORKERS_EXAMPLES = examples("taskgraph workers", "taskgraph workers --target gpu --json")

WORKER_COLUMNS: Final = (
    Column("STATE", state=True),
    Column("WORKER", flexible=True),
    Column("HOST", flexible=True),
    Column("TARGETS", flexible=True),
    Column("LABELS", flexible=True),
    Column("BUSY", number=True),
    Column("SEEN", number=True),
    Column("RUNS", flexible=True),
)


async def _workers(app: "App", target: str) -> "list[WorkerStatus]":
    from taskgraph.interfaces.operations.workers import listed

    return await listed(app, target)


def worker_cells(one: "WorkerStatus") -> list[str]:
    """A worker as a line of a table."""
    first = f"{one.running[0]['graph']} {one.running[0]['label']}" if one.running else ""
    more = one.busy - 1 if one.running else one.busy
    return [
        one.state,
        one.name,
        one.host,
        ", ".join(one.targets),
        ", ".join(one.labels),
        f"{one.busy}/{one.slots}",
        f"{seconds(one.seen_seconds) if one.seen_seconds >= 60 else f'{one.seen_seconds:.0f} s'}",
        first + (f" and {more:,} more" if first and more > 0 else ""),
    ]


@with_session
def drain(
    session: Session,
    name: WorkerArgument,
    now: Annotated[
        bool, typer.Option("--now", help="Hand back what it runs, for others, instead of finishing it.")
    ] = False,
    exits: Annotated[bool, typer.Option("--exit", help="End the worker once it has nothing in hand.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it has nothing in hand.")] = False,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0, metavar="SECONDS", help="Stop waiting after so long.")
    ] = _WAIT_SECONDS,
) -> None:
    """Have a worker take no new work: it finishes what it runs, and then waits, or ends.

    It hears of it with its next word, within half a minute. What is handed back spends no retry. `serve --worker` goes
    on handling events when its worker has ended.
    """
    from taskgraph.queries.workers import FINISH, NOW

    raise typer.Exit(
        session.open(lambda app: _ask(app, session, name, NOW if now else FINISH, exits=exits, wait=wait, most=timeout))
    )


DRAIN_EXAMPLES = examples(
    "taskgraph workers drain vm-2509-JfNT9L",
    "taskgraph workers drain vm-2509-JfNT9L --now --exit --wait",
)


@with_session
def undrain(
    session: Session,
    name: WorkerArgument,
) -> None:
    """Have a worker take new work again that was to drain. It hears of it with its next word, within half a minute."""
    raise typer.Exit(session.open(lambda app: _ask(app, session, name, "", exits=False, wait=False, most=0)))


UNDRAIN_EXAMPLES = examples("taskgraph workers undrain vm-2509-JfNT9L")


async def _ask(app: "App", session: Session, name: str, draining: str, *, exits: bool, wait: bool, most: float) -> int:
    from taskgraph.interfaces.operations import workers
    from taskgraph.interfaces.operations.waiting import ends

    output = session.output
    if not name:
        raise InvalidInput("give the NAME of a worker, as `taskgraph workers` shows it")
    await workers.ask(app, name, draining=draining, exits=exits)
    state = "asked"
    if wait:
        async with minding_signals(lambda _: None) as stop:
            state, busy = await unless_stopped(stop, workers.settled(app, name, until=ends(app.clock, most)))
        if not state:
            raise failures.TimedOut(f"worker {name} has {count(busy, 'run')} in hand after {most:g} s")
    if output.json:
        output.document(views.drained(name, state, draining=draining, exits=exits))
        return failures.DONE
    output.data(name)
    if not draining:
        output.say("it takes work again with its next word")
    elif state == "asked":
        output.say(f"it drains from its next word on, within {limits.WORKER_SEEN_SECONDS * 1.1:.0f} s")
    else:
        output.say({"ended": "it has ended", "gone": "it is gone"}.get(state, "it has nothing in hand"))
    return failures.DONE
