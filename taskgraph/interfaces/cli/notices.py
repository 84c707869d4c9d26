"""The command `notices`: who is told of a graph, and how far.

What this room is for: showing the channels of a graph, and letting those be tried again that were given up. It never
delivers anything: `serve`, `run` and the function app do.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from taskgraph.interfaces import views
from taskgraph.interfaces.cli import failures
from taskgraph.interfaces.cli.common import Session, examples, with_session
from taskgraph.interfaces.cli.options import GraphArgument
from taskgraph.interfaces.cli.output import Column, count, moment, safe

if TYPE_CHECKING:
    from taskgraph.interfaces.app import App


@with_session
def notices(
    session: Session,
    graph_id: GraphArgument,
    retry: Annotated[
        bool, typer.Option("--retry", help="Try those at once that wait for their next try, or were given up.")
    ] = False,
) -> None:
    """Show who is told of a graph, and how far: its channels, as `notify` of the graph and of its tasks names them.

    Notices are delivered by taskgraph serve, by taskgraph run, and by the timer of the function app.
    """

    async def show(app: "App") -> int:
        from taskgraph.interfaces.operations import notify

        found, number = await notify.channels(app, graph_id, retry=retry)
        if retry:
            session.say(f"{count(number, 'channel')} will be tried at once")
        if session.output.json:
            session.output.document(views.channels(graph_id, found))
        elif not found:
            session.say(f"nobody is told of graph {graph_id}: neither it nor a task of it has a key `notify`")
        else:
            rows = [
                (
                    safe(each.channel),
                    each.state,
                    " ".join((*each.on, *(("tasks",) if each.tasks else ()))),
                    str(each.delivered),
                    str(each.cursor),
                    f"{each.failures}, next {moment(each.next_try)}" if each.failures else "",
                    safe(each.last_error) if each.failures or each.state == "given-up" else "",
                )
                for each in found
            ]
            columns = [
                Column("CHANNEL"),
                Column("STATE"),
                Column("HEARS"),
                Column("TOLD", number=True),
                Column("UP TO", number=True),
                Column("FAILURES"),
                Column("LAST ERROR", flexible=True),
            ]
            session.output.table(columns, rows)
        return failures.DONE

    raise typer.Exit(session.open(show))


NOTICES_EXAMPLES = examples("taskgraph notices nightly-2026-08-01", "taskgraph notices nightly-2026-08-01 --retry")
