"""The commands `workers`, `workers drain` and `workers undrain`: the workers of a store, and which take no new work."""

from typing import TYPE_CHECKING, Annotated, Final

import typer

from taskgraph.interfaces import views
from taskgraph.interfaces.cli import completion, failures
from taskgraph.interfaces.cli.common import Session, command
from taskgraph.interfaces.cli.options import PatienceOption
from taskgraph.interfaces.cli.output import Column, count, seconds
from taskgraph.interfaces.cli.signals import minding_signals, unless_stopped
from taskgraph.interfaces.operations.checks import check_target
from taskgraph.model import limits
from taskgraph.model.errors import InvalidInput

if TYPE_CHECKING:
    from taskgraph.interfaces.app import App
    from taskgraph.queries.workers import Crew, HandlerStatus, WorkerStatus

_WAIT_SECONDS: Final = 3600.0

WorkerArgument = Annotated[str, typer.Argument(metavar="NAME", help="The name of the worker, as `workers` shows it.")]


@command("taskgraph workers", "taskgraph workers --target gpu --json")
def workers(
    session: Session,
    target: Annotated[
        str | None,
        typer.Option(
            "--target", metavar="TARGET", autocompletion=completion.targets, help="Only workers of this target."
        ),
    ] = None,
) -> None:
    """List workers and handlers: what they serve, how busy they are, when they were last seen, and what they run.

    Each reports every 30 s (a worker after half its lease, where that is less); where the store is a file, a worker
    also within a second once what it runs has changed. One that has missed three reports is shown as gone: it may have
    been killed, or be cut off; what it had in hand comes back when its leases end. Where the store is a file, one that
    was killed is shown as gone at once. Its row goes after an hour. The worker of `run` is listed once it has lasted
    for 10 s.
    """
    if target:
        check_target(target)
    from taskgraph.queries.workers import START_HANDLER

    async def listed(app: "App") -> "Crew":
        from taskgraph.interfaces.operations import workers

        return await workers.listed(app, target or "")

    found = session.open(listed)
    output = session.output
    if output.json:
        output.document(views.workers(found))
        return
    if found.workers or found.handlers:
        output.table([*found.workers, *map(_Handles, found.handlers)], _COLUMNS)
    if not found.workers:
        output.say(f"no worker is registered{f' for the target {target}' if target else ''}")
        output.hint(f"start one: taskgraph worker{f' --target {target}' if target else ''}{session.direct_words}")
    if not found.handled and not target:
        output.say("no handler is registered")
        output.hint(f"{START_HANDLER}{session.direct_words}")


class _Handles:
    """What handles events, in the table of workers: without what only workers have."""

    targets = labels = running = ()
    slots = busy = 0

    def __init__(self, one: "HandlerStatus") -> None:
        self.name, self.state, self.host, self.seen_seconds = one.name, one.state, one.host, one.seen_seconds
        self.kind = one.kind


_COLUMNS: Final = (
    Column("STATE", lambda one: one.state, state=True),
    Column("KIND", lambda one: getattr(one, "kind", "worker")),
    Column("NAME", lambda one: one.name, flexible=True),
    Column("HOST", lambda one: one.host, flexible=True),
    Column("TARGETS", lambda one: ", ".join(one.targets), flexible=True),
    Column("LABELS", lambda one: ", ".join(one.labels), flexible=True),
    Column("BUSY", lambda one: f"{one.busy}/{one.slots}" if one.slots else "", number=True),
    Column("SEEN", lambda one: _ago(one.seen_seconds), number=True),
    Column("RUNS", lambda one: _runs(one), flexible=True),
)


def _ago(value: float) -> str:
    return seconds(value) if value >= 60 else f"{value:.0f} s"


def _runs(one: "WorkerStatus | _Handles") -> str:
    if not one.running:
        return ""
    first = f"{one.running[0]['graph']} {one.running[0]['label']}"
    return first + (f" and {one.busy - 1:,} more" if one.busy > 1 else "")


@command("taskgraph workers drain vm-2509-JfNT9L", "taskgraph workers drain vm-2509-JfNT9L --now --exit --wait")
def drain(
    session: Session,
    name: WorkerArgument,
    now: Annotated[
        bool, typer.Option("--now", help="Hand back what it runs, for others, instead of finishing it.")
    ] = False,
    exits: Annotated[bool, typer.Option("--exit", help="End the worker once it has nothing in hand.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it has nothing in hand.")] = False,
    timeout: PatienceOption = _WAIT_SECONDS,
) -> None:
    """Have a worker take no new work: it finishes what it runs, and then waits, or ends.

    It notices with its next report, within a minute. What is handed back spends no retry. `serve --worker` goes
    on handling events when its worker has ended.
    """
    from taskgraph.queries.workers import FINISH, NOW

    session.open(lambda app: _ask(app, session, name, NOW if now else FINISH, exits=exits, wait=wait, most=timeout))


@command("taskgraph workers undrain vm-2509-JfNT9L")
def undrain(session: Session, name: WorkerArgument) -> None:
    """Have a worker take new work again that was to drain. It notices with its next report, within a minute."""
    session.open(lambda app: _ask(app, session, name, "", exits=False, wait=False, most=0))


async def _ask(app: "App", session: Session, name: str, draining: str, *, exits: bool, wait: bool, most: float) -> None:
    from taskgraph.interfaces.operations import workers
    from taskgraph.interfaces.operations.waiting import ends

    output = session.output
    if not name:
        raise InvalidInput("give the NAME of a worker, as `taskgraph workers` shows it")
    await workers.ask(app, name, draining=draining, exits=exits)
    state = "asked"
    if wait:
        async with minding_signals() as stop:
            state, busy = await unless_stopped(stop, workers.settled(app, name, until=ends(app.clock, most)))
        if not state:
            raise failures.TimedOut(f"worker {name} has {count(busy, 'run')} in hand after {most:g} s")
    if session.answered(views.drained, name, state, draining=draining, exits=exits):
        return
    output.data(name)
    if not draining:
        output.say("it takes work again with its next report")
    elif state == "asked":
        output.say(f"it drains from its next report on, within {2 * limits.WORKER_SEEN_SECONDS * 1.1:.0f} s")
    else:
        output.say({"ended": "it has ended", "gone": "it is gone"}.get(state, "it has nothing in hand"))
