"""The commands `limit set`, `limit clear` and `limit list`: how many tasks may be in flight."""

from typing import TYPE_CHECKING, Annotated

import typer

from taskgraph.interfaces import views
from taskgraph.interfaces.cli import completion, options
from taskgraph.interfaces.cli.common import Session, command, hint_at_handlers
from taskgraph.interfaces.cli.output import Column, safe
from taskgraph.interfaces.cli.signals import RequestOptions
from taskgraph.model import limits
from taskgraph.model.errors import InvalidInput

if TYPE_CHECKING:
    from taskgraph.interfaces.app import App
    from taskgraph.queries.targets import TargetLimit

_NAMED_MAX = 5

TargetOption = Annotated[
    str | None,
    typer.Option(
        "--target", metavar="NAME", autocompletion=completion.targets, help="Work of this target, of all graphs."
    ),
]


@command(
    "taskgraph limit set nightly-2026-08-01 8",
    'taskgraph limit set nightly-2026-08-01 2 --group uploads --reason "the other end is slow"',
    "taskgraph limit set --target gpu 4",
)
def set_(
    session: Session,
    what: Annotated[list[str], typer.Argument(metavar="[ID] N", help="The graph, and so many at a time.")],
    group: options.PartOption = "",
    target: TargetOption = None,
    asking: RequestOptions = RequestOptions(),
) -> None:
    """Let at most N tasks of a graph, or of a group of it, or with --target of a target, be in flight.

    What runs already runs to its end, and counts. Workers notice within some 10 s that their target is limited.
    """
    *graphs, number = what
    most = int(number) if number.isascii() and number.isdigit() else 0
    if not 1 <= most <= limits.IN_FLIGHT_MAX:
        raise InvalidInput(f"N must be a number from 1 to {limits.IN_FLIGHT_MAX:,}, and is “{number}”")
    _change(session, graphs, target, group, most, asking)


@command("taskgraph limit clear nightly-2026-08-01 --group uploads", "taskgraph limit clear --target gpu")
def clear(
    session: Session,
    graph_id: options.OptionalGraphArgument = None,
    group: options.PartOption = "",
    target: TargetOption = None,
    asking: RequestOptions = RequestOptions(),
) -> None:
    """Take a limit off: of a target altogether; of a graph or group it becomes 1,000, as many as can be counted."""
    graphs = [graph_id] if graph_id is not None else []
    _change(session, graphs, target, group, 0, asking)


@command("taskgraph limit list", "taskgraph limit list nightly-2026-08-01 --json")
def list_(session: Session, graph_id: options.OptionalGraphArgument = None) -> None:
    """List the limits of targets and who holds their permits, or those of a graph and what is in flight."""
    if graph_id is None:
        _show_targets(session)
    else:
        _show_limits(session, graph_id)


def _change(
    session: Session, graphs: list[str], target: str | None, group: str, most: int, asking: RequestOptions
) -> None:
    if target is not None:
        if graphs or group:
            raise InvalidInput("name a graph or a target, not both")
        asking.check_graph()
        _change_target(session, target, most, asking)
        return
    if len(graphs) != 1:
        raise InvalidInput("name the graph, or a target: --target NAME")

    async def ask(app: "App", graph_id: str) -> None:
        from taskgraph.interfaces.operations import limit

        if await asking.planned(app, session, graph_id, {"change": "set-limit", "max": most, "group": group}):
            return
        asked = await limit.ask(app, graph_id, most, group=group, reason=asking.reason)
        if await asking.answered(app, session, limit.settled, asked, "the limit is not changed"):
            return
        whose = f"group “{safe(group)}” of graph {graph_id}" if group else f"graph {graph_id}"
        session.output.data(f"{whose}: the limit {'is' if asking.wait else 'is asked to be'} {asked.most:,}")
        if not asking.wait:
            await hint_at_handlers(app, session, graph_id)

    session.open_graph(graphs[0], ask, measured=True)


def _change_target(session: Session, target: str, most: int, asking: RequestOptions) -> None:
    async def ask(app: "App") -> None:
        from taskgraph.interfaces.operations import limit

        changed = await limit.ask_target(app, target, most, reason=asking.reason, wait=asking.wait)
        if session.output.json:
            session.output.document(views.target_limited(target, most, changed=changed))
        elif most:
            session.output.data(f"target {target}: the limit is {most:,}" + ("" if changed else " already"))
        else:
            session.output.data(f"target {target} has no limit" + (" any more" if changed else ""))

    session.open(ask)


def _show_targets(session: Session) -> None:
    async def listed(app: "App") -> "list[TargetLimit]":
        from taskgraph.interfaces.operations import limit

        return await limit.of_targets(app)

    found = session.open(listed)
    output = session.output
    if output.json:
        output.document(views.target_limits(found))
    elif found:
        columns = (
            Column("TARGET", lambda each: each.target),
            Column("MAX", lambda each: f"{each.most:,}", number=True),
            Column("TAKEN", lambda each: f"{len(each.permits):,}", number=True),
            Column("BY", lambda each: _some([one.worker for one in each.permits]), flexible=True),
            Column("SET BY", lambda each: each.by, flexible=True),
        )
        output.table(found, columns)
    else:
        output.say("no target is limited")
        output.hint(f"limit one: taskgraph limit set --target NAME N{session.store_words}")


def _show_limits(session: Session, graph_id: str) -> None:
    graph_id, found = session.open_graph(graph_id, lambda app, graph_id: app.queries.limits_of(graph_id))
    output = session.output
    if output.json:
        output.document(views.limits(graph_id, found))
    elif found:
        columns = (
            Column("OF", lambda each: f"group “{safe(each.group)}”" if each.group else "the graph"),
            Column("MAX", lambda each: f"{each.most:,}", number=True),
            Column("IN FLIGHT", lambda each: f"{each.in_flight:,}", number=True),
            Column("TASKS", lambda each: _some(each.labels), flexible=True),
        )
        output.table(found, columns)
    else:
        output.say(f"graph {graph_id} has no limits")
        output.hint(f"limit it: taskgraph limit set {graph_id} N{session.store_words}")


def _some(names: "list[str] | tuple[str, ...]") -> str:
    shown = ", ".join(safe(name) for name in dict.fromkeys(names[:_NAMED_MAX]))
    return shown if len(names) <= _NAMED_MAX else f"{shown} and {len(names) - _NAMED_MAX:,} more"
