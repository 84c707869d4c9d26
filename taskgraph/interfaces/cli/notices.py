"""The command `notices`: the channels of a graph, and what of their notices is delivered."""

from typing import TYPE_CHECKING, Annotated

import typer

from taskgraph.interfaces import views
from taskgraph.interfaces.cli.common import Session, command
from taskgraph.interfaces.cli.options import GraphArgument
from taskgraph.interfaces.cli.output import Column, count, moment

if TYPE_CHECKING:
    from taskgraph.interfaces.app import App
    from taskgraph.queries.values import ChannelStatus


@command("taskgraph notices nightly-2026-08-01", "taskgraph notices nightly-2026-08-01 --retry")
def notices(
    session: Session,
    graph_id: GraphArgument,
    retry: Annotated[
        bool, typer.Option("--retry", help="Try those at once that wait for their next try, or were given up.")
    ] = False,
) -> None:
    """Show the channels of a graph, as `notify` of it and of its tasks names them, and how far each has got.

    Notices are delivered by taskgraph serve, by taskgraph run, and by the timer of the function app.
    """

    async def channels(app: "App", graph_id: str) -> "tuple[list[ChannelStatus], int]":
        from taskgraph.interfaces.operations import notify

        return await notify.channels(app, graph_id, retry=retry)

    graph_id, (found, number) = session.open_graph(graph_id, channels)
    if retry:
        session.say(f"{count(number, 'channel')} will be tried at once")
    if session.output.json:
        session.output.document(views.channels(graph_id, found))
    elif not found:
        session.say(f"graph {graph_id} has no notices: neither it nor a task of it has a key `notify`")
    else:
        columns = [
            Column("CHANNEL", lambda each: each.channel),
            Column("STATE", lambda each: each.state),
            Column("ON", lambda each: " ".join((*each.on, *(("tasks",) if each.tasks else ())))),
            Column("DELIVERED", lambda each: str(each.delivered), number=True),
            Column("UP TO", lambda each: str(each.cursor), number=True),
            Column("FAILURES", lambda each: f"{each.failures}, next {moment(each.next_try)}" if each.failures else ""),
            Column("LAST ERROR", _last_error, flexible=True),
        ]
        session.output.table(found, columns)


def _last_error(each: "ChannelStatus") -> str:
    return each.last_error if each.failures or each.state == "given-up" else ""
