"""The commands `pause`, `resume`, `deactivate` and `activate`.

What this room is for: asking for tasks to be held back or to go on, and saying when that is so. It never writes a row
by itself (D16) and never decides about tasks.
"""

from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from taskgraph.interfaces import views
from taskgraph.interfaces.cli import failures
from taskgraph.interfaces.cli.common import Session, check_graph_id, examples, hint_at_handlers, with_session
from taskgraph.interfaces.cli.options import GraphArgument, TimeoutOption
from taskgraph.interfaces.cli.output import count
from taskgraph.interfaces.cli.signals import until_settled
from taskgraph.interfaces.operations.checks import check_reason, check_target
from taskgraph.model.errors import InvalidInput

if TYPE_CHECKING:
    from taskgraph.interfaces.app import App
    from taskgraph.interfaces.operations.pause import PauseRequest

OptionalGraphArgument = Annotated[
    str | None, typer.Argument(metavar="ID", help="The id of the graph.", show_default=False)
]
TargetOption = Annotated[
    str | None,
    typer.Option("--target", metavar="NAME", help="All work of this target, of all graphs.", show_default=False),
]
GroupOption = Annotated[str, typer.Option("--group", metavar="NAME", help="Only the tasks of this group.")]
ReasonOption = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; kept in the journal.")]
WaitOption = Annotated[bool, typer.Option("--wait", help="Wait until it is so.")]
LabelsArgument = Annotated[list[str], typer.Argument(metavar="LABEL...", help="Tasks, by label or taskId.")]


@with_session
def pause(
    session: Session,
    graph_id: OptionalGraphArgument = None,
    group: GroupOption = "",
    target: TargetOption = None,
    reason: ReasonOption = "",
    wait: WaitOption = False,
    timeout: TimeoutOption = None,
) -> None:
    """Hold a graph back, or a group of it, or with --target all work of a target: no further run begins.

    What runs already runs to its end. A paused graph takes no extension. Handlers must run for that: taskgraph serve.
    Workers notice within some 5 s that their target is paused.
    """
    if target is not None:
        _gate(session, target, graph_id, group, on=True, reason=reason, wait=wait)
    if graph_id is None:
        raise InvalidInput("name the graph, or a target: --target NAME")
    _ask(session, graph_id, [], on=True, group=group, reason=reason, wait=wait, timeout=timeout)


PAUSE_EXAMPLES = examples(
    'taskgraph pause nightly-2026-08-01 --reason "the disk is full"',
    "taskgraph pause nightly-2026-08-01 --group tests --wait",
    'taskgraph pause --target gpu --reason "new drivers"',
)


@with_session
def resume(
    session: Session,
    graph_id: OptionalGraphArgument = None,
    group: GroupOption = "",
    target: TargetOption = None,
    reason: ReasonOption = "",
    wait: WaitOption = False,
    timeout: TimeoutOption = None,
) -> None:
    """Let a graph that was paused go on, or a group of it, or a target; also a group that was not active before."""
    if target is not None:
        _gate(session, target, graph_id, group, on=False, reason=reason, wait=wait)
    if graph_id is None:
        raise InvalidInput("name the graph, or a target: --target NAME")
    _ask(session, graph_id, [], on=False, group=group, reason=reason, wait=wait, timeout=timeout)


RESUME_EXAMPLES = examples(
    "taskgraph resume nightly-2026-08-01",
    "taskgraph resume nightly-2026-08-01 --group tests --wait",
    "taskgraph resume --target gpu",
)


@with_session
def deactivate(
    session: Session,
    graph_id: GraphArgument,
    labels: LabelsArgument,
    reason: ReasonOption = "",
    wait: WaitOption = False,
    timeout: TimeoutOption = None,
) -> None:
    """Hold single tasks back, however ready they are, until they are activated; what depends on them waits."""
    _ask(session, graph_id, labels, on=True, group="", reason=reason, wait=wait, timeout=timeout)


DEACTIVATE_EXAMPLES = examples('taskgraph deactivate nightly-2026-08-01 publish --reason "not before noon"')


@with_session
def activate(
    session: Session,
    graph_id: GraphArgument,
    labels: LabelsArgument,
    reason: ReasonOption = "",
    wait: WaitOption = False,
    timeout: TimeoutOption = None,
) -> None:
    """Let tasks run that were deactivated, or were not active from the start."""
    _ask(session, graph_id, labels, on=False, group="", reason=reason, wait=wait, timeout=timeout)


ACTIVATE_EXAMPLES = examples("taskgraph activate nightly-2026-08-01 publish --wait")


def _ask(
    session: Session,
    graph_id: str,
    labels: list[str],
    *,
    on: bool,
    group: str,
    reason: str,
    wait: bool,
    timeout: float | None,
) -> None:
    check_graph_id(graph_id)
    check_reason(reason)

    async def ask(app: "App") -> int:
        from taskgraph.interfaces.operations import pause

        asked = await pause.ask(app, graph_id, labels, on=on, group=group, reason=reason)
        if wait:
            late = "what was asked for is not so"
            await until_settled(app, session, graph_id, lambda end: pause.settled(app, asked, until=end), late, timeout)
        return _say(session, asked, settled=wait)

    raise typer.Exit(session.open(ask, measured=True))


def _gate(
    session: Session, target: str, graph_id: str | None, group: str, *, on: bool, reason: str, wait: bool
) -> NoReturn:
    """Pause a target, or let it go on."""
    if graph_id is not None or group:
        raise InvalidInput("name a graph or a target, not both")
    check_target(target)
    check_reason(reason)

    async def gate(app: "App") -> int:
        from taskgraph.interfaces.operations import pause

        changed = await pause.ask_target(app, target, on=on, reason=reason, wait=wait)
        if session.output.json:
            session.output.document(views.target_paused(target, on=on, changed=changed))
        else:
            words = ("is paused" if on else "goes on") if changed else ("is paused already" if on else "is not paused")
            session.output.data(f"target {target} {words}")
        return failures.DONE

    raise typer.Exit(session.open(gate))


def _say(session: Session, asked: "PauseRequest", *, settled: bool) -> int:
    output = session.output
    if output.json:
        output.document(asked.answer(settled=settled))
        return failures.DONE
    what = count(len(asked.tasks), "task") if asked.tasks else f"group “{asked.group}”" if asked.group else "all of it"
    became = ("is held back" if asked.on else "goes on") if settled else ("to be held back" if asked.on else "to go on")
    output.data(f"graph {asked.graph_id}: {what} {became if settled else f'is asked {became}'}")
    if not settled:
        hint_at_handlers(session, asked.graph_id)
    return failures.DONE
