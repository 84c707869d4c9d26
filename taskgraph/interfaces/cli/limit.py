"""The commands `limit set`, `limit clear` and `limit list`: how many tasks may be in flight.

What this room is for: asking for limits of graphs and groups to be changed, writing those of targets, and showing who
is in flight. It never writes a row of a graph (D16) and never decides about tasks.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from taskgraph.interfaces import views
from taskgraph.interfaces.cli import failures
from taskgraph.interfaces.cli.common import Session, check_graph_id, examples, with_session
from taskgraph.interfaces.cli.options import TimeoutOption
from taskgraph.interfaces.cli.output import Column, safe
from taskgraph.interfaces.cli.pause import GroupOption, OptionalGraphArgument, ReasonOption, WaitOption
from taskgraph.interfaces.cli.signals import until_settled
from taskgraph.interfaces.operations.checks import check_reason, check_target
from taskgraph.model import limits
from taskgraph.model.errors import InvalidInput

if TYPE_CHECKING:
    from taskgraph.interfaces.app import App
    from taskgraph.queries.targets import TargetLimit
    from taskgraph.queries.values import LimitStatus

_NAMED_MAX = 5

TargetOption = Annotated[
    str | None,
    typer.Option("--target", metavar="NAME", help="Work of this target, of all graphs.", show_default=False),
]


@with_session
def set_(
    session: Session,
    what: Annotated[
        list[str], typer.Argument(metavar="[ID] N", help="The graph, and so many at a time.", show_default=False)
    ],
    group: GroupOption = "",
    target: TargetOption = None,
    reason: ReasonOption = "",
    wait: WaitOption = False,
    timeout: TimeoutOption = None,
) -> None:
    """Let at most N tasks of a graph, or of a group of it, or with --target of a target, be in flight.

    What runs already runs to its end. The limit of a graph or group can be changed where it was submitted with one
    (maxInFlight). Workers notice within some 10 s that their target is limited.
    """
    *graphs, number = what
    most = int(number) if number.isascii() and number.isdigit() else 0
    if not 1 <= most <= limits.IN_FLIGHT_MAX:
        raise InvalidInput(f"N must be a number from 1 to {limits.IN_FLIGHT_MAX:,}, and is {number!r}")
    _change(session, graphs, target, group, most, reason, wait=wait, timeout=timeout)


SET_EXAMPLES = examples(
    "taskgraph limit set nightly-2026-08-01 8",
    'taskgraph limit set nightly-2026-08-01 2 --group uploads --reason "the other end is slow"',
    "taskgraph limit set --target gpu 4",
)


@with_session
def clear(
    session: Session,
    graph_id: OptionalGraphArgument = None,
    group: GroupOption = "",
    target: TargetOption = None,
    reason: ReasonOption = "",
    wait: WaitOption = False,
    timeout: TimeoutOption = None,
) -> None:
    """Take a limit off: of a target altogether; of a graph or group it becomes 1,000, as many as can be counted."""
    graphs = [graph_id] if graph_id is not None else []
    _change(session, graphs, target, group, 0, reason, wait=wait, timeout=timeout)


CLEAR_EXAMPLES = examples(
    "taskgraph limit clear nightly-2026-08-01 --group uploads", "taskgraph limit clear --target gpu"
)


@with_session
def list_(
    session: Session,
    graph_id: OptionalGraphArgument = None,
) -> None:
    """List the limits of targets and who holds their permits, or those of a graph and what is in flight."""
    if graph_id is None:
        _show_targets(session, session.open(_targets))
        return
    check_graph_id(graph_id)
    name = graph_id
    _show_limits(session, name, session.open(lambda app: app.queries.limits_of(name)))


LIST_EXAMPLES = examples("taskgraph limit list", "taskgraph limit list nightly-2026-08-01 --json")


def _change(
    session: Session,
    graphs: list[str],
    target: str | None,
    group: str,
    most: int,
    reason: str,
    *,
    wait: bool,
    timeout: float | None,
) -> None:
    check_reason(reason)
    if target is not None:
        if graphs or group:
            raise InvalidInput("name a graph or a target, not both")
        check_target(target)
        name = target
        raise typer.Exit(session.open(lambda app: _change_target(app, session, name, most, reason, wait=wait)))
    if len(graphs) != 1:
        raise InvalidInput("name the graph, or a target: --target NAME")
    graph_id = graphs[0]
    check_graph_id(graph_id)

    async def ask(app: "App") -> int:
        from taskgraph.interfaces.operations import limit

        asked = await limit.ask(app, graph_id, most, group=group, reason=reason)
        if wait:
            late = "the limit is not changed"
            await until_settled(app, session, graph_id, lambda end: limit.settled(app, asked, until=end), late, timeout)
        output = session.output
        if output.json:
            output.document(asked.answer(settled=wait))
            return failures.DONE
        whose = f"group “{safe(group)}” of graph {graph_id}" if group else f"graph {graph_id}"
        output.data(f"{whose}: the limit {'is' if wait else 'is asked to be'} {asked.most:,}")
        if not wait:
            output.hint(f"handlers must run for it: taskgraph serve{session.store_words}")
        return failures.DONE

    raise typer.Exit(session.open(ask, measured=True))


async def _change_target(app: "App", session: Session, target: str, most: int, reason: str, *, wait: bool) -> int:
    from taskgraph.interfaces.operations import limit

    changed = await limit.ask_target(app, target, most, reason=reason, wait=wait)
    if session.output.json:
        session.output.document(views.target_limited(target, most, changed=changed))
    elif most:
        session.output.data(f"target {target}: the limit is {most:,}" + ("" if changed else " already"))
    else:
        session.output.data(f"target {target} has no limit" + (" any more" if changed else ""))
    return failures.DONE


async def _targets(app: "App") -> "list[TargetLimit]":
    from taskgraph.interfaces.operations import limit

    return await limit.of_targets(app)


def _show_targets(session: Session, found: "list[TargetLimit]") -> None:
    output = session.output
    if output.json:
        output.document(views.target_limits(found))
        return
    columns = (Column("TARGET"), Column("MAX", number=True), Column("TAKEN", number=True), Column("BY", flexible=True))
    cells = [
        (each.target, f"{each.most:,}", f"{len(each.permits):,}", _some([one.worker for one in each.permits]))
        for each in found
    ]
    if cells:
        output.table(columns, cells)
    else:
        output.say("no target is limited")
        output.hint(f"limit one: taskgraph limit set --target NAME N{session.store_words}")


def _show_limits(session: Session, graph_id: str, found: "list[LimitStatus]") -> None:
    output = session.output
    if output.json:
        output.document(views.limits(graph_id, found))
        return
    columns = (
        Column("OF"),
        Column("MAX", number=True),
        Column("IN FLIGHT", number=True),
        Column("TASKS", flexible=True),
    )
    cells = [
        (
            f"group “{safe(each.group)}”" if each.group else "the graph",
            f"{each.most:,}",
            f"{each.in_flight:,}",
            _some(each.labels),
        )
        for each in found
    ]
    if cells:
        output.table(columns, cells)
    else:
        output.say(f"graph {graph_id} was submitted without limits")


def _some(names: "list[str] | tuple[str, ...]") -> str:
    shown = ", ".join(safe(name) for name in dict.fromkeys(names[:_NAMED_MAX]))
    return shown if len(names) <= _NAMED_MAX else f"{shown} and {len(names) - _NAMED_MAX:,} more"
