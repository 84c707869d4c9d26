"""The command `cancel`.

What this room is for: asking for the end of a graph, a group or some tasks, and saying what came of it. It never writes
a row by itself (D16) and never decides about tasks.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from taskgraph.interfaces.cli import failures
from taskgraph.interfaces.cli.common import Session, check_graph_id, examples, hint_at_handlers, with_session
from taskgraph.interfaces.cli.options import GraphArgument, TimeoutOption
from taskgraph.interfaces.cli.output import count, safe
from taskgraph.interfaces.cli.signals import until_settled
from taskgraph.interfaces.operations.checks import check_reason
from taskgraph.model.errors import Refused
from taskgraph.model.states import GraphState

if TYPE_CHECKING:
    from taskgraph.interfaces.app import App
    from taskgraph.interfaces.operations.cancel import Cancellation


@with_session
def cancel(
    session: Session,
    graph_id: GraphArgument,
    labels: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[LABEL]...", help="Only these tasks, by label or taskId; otherwise the graph.", show_default=False
        ),
    ] = None,
    group: Annotated[str, typer.Option("--group", metavar="NAME", help="Only the tasks of this group.")] = "",
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; kept with each task.")] = "",
    terminate: Annotated[
        bool,
        typer.Option("--terminate", help="Do not wait for running tasks to be stopped: they count as ended at once."),
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it is over.")] = False,
    timeout: TimeoutOption = None,
) -> None:
    """Cancel a graph, or some of its tasks.

    What has not begun never will. What runs is stopped by its worker: SIGTERM, then SIGKILL after a grace time. A task
    that is cancelled alone counts as failed, and can be rerun; a cancelled graph is over. Handlers must run for that:
    taskgraph serve. Exit code 4 if it had come to another end before.
    """
    check_graph_id(graph_id)
    check_reason(reason)

    async def ask(app: "App") -> int:
        from taskgraph.interfaces.operations import cancel

        asked = await cancel.ask(app, graph_id, labels or (), group=group, reason=reason, terminate=terminate)
        if not wait or asked.nothing:
            return _say(session, asked)
        late = "what was asked for is not over"
        try:
            await until_settled(
                app, session, graph_id, lambda end: cancel.settled(app, asked, until=end), late, timeout
            )
        except failures.Interrupted:
            raise failures.Interrupted(f"stopped waiting; graph {graph_id} is being cancelled") from None
        return await _say_end(app, session, asked)

    raise typer.Exit(session.open(ask, measured=True))


CANCEL_EXAMPLES = examples(
    'taskgraph cancel nightly-2026-08-01 --reason "superseded"',
    "taskgraph cancel nightly-2026-08-01 --terminate --wait",
    'taskgraph cancel nightly-2026-08-01 "test/unit" "test/slow"',
    "taskgraph cancel nightly-2026-08-01 --group tests",
)


def _say(session: Session, asked: "Cancellation") -> int:
    """It has been asked for, or there was nothing left to ask for."""
    output = session.output
    labels = sorted(asked.tasks.values())
    if output.json:
        output.document(asked.answer(asked.state))
        return failures.DONE
    if asked.nothing:
        output.data(safe(asked.nothing))
        return failures.DONE
    what = count(len(labels), "task") if labels else "all of it"
    output.data(f"graph {asked.graph_id}: {what} is asked to be cancelled")
    hint_at_handlers(session, asked.graph_id)
    return failures.DONE


async def _say_end(app: "App", session: Session, asked: "Cancellation") -> int:
    """It is over: as was asked for, or because it ended first."""
    output = session.output
    state = await app.queries.state(asked.graph_id)
    if not asked.tasks and state == GraphState.FINISHED:
        raise Refused(f"graph {asked.graph_id} finished before it could be cancelled", "finished")
    labels = sorted(asked.tasks.values())
    if output.json:
        output.document(asked.answer(state))
    elif labels:
        output.data(
            f"graph {asked.graph_id}: {count(len(labels), 'task')} cancelled, or at an end before; it is {state}"
        )
    else:
        output.data(f"graph {asked.graph_id} is cancelled")
    return failures.DONE
