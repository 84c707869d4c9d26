"""The command `prioritize`.

What this room is for: asking for another level for tasks that have not begun, and saying when they have it. It never
writes a row by itself (D16) and never decides about tasks.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from taskgraph.interfaces.cli import failures
from taskgraph.interfaces.cli.common import Session, check_graph_id, examples, hint_at_handlers, with_session
from taskgraph.interfaces.cli.options import GraphArgument, TimeoutOption
from taskgraph.interfaces.cli.output import count
from taskgraph.interfaces.cli.pause import GroupOption, ReasonOption, WaitOption
from taskgraph.interfaces.cli.signals import until_settled

if TYPE_CHECKING:
    from taskgraph.interfaces.app import App


@with_session
def prioritize(
    session: Session,
    graph_id: GraphArgument,
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="[LABEL]... LEVEL",
            help="Tasks, by label or taskId (all without any), and highest, high, normal, low or lowest.",
            show_default=False,
        ),
    ],
    group: GroupOption = "",
    reason: ReasonOption = "",
    wait: WaitOption = False,
    timeout: TimeoutOption = None,
) -> None:
    """Give tasks that have not begun another priority: those that are named, those of a group, or all.

    What runs is left alone, and so is what comes later. What stands in a queue already may still be taken at its old
    level. Handlers must run for that: taskgraph serve. Exit code 4 if a task that is named runs, or is over.
    """
    check_graph_id(graph_id)
    *labels, level = what

    async def ask(app: "App") -> int:
        from taskgraph.interfaces.operations import prioritize

        asked = await prioritize.ask(app, graph_id, level, labels, group=group, reason=reason)
        if wait:
            late = f"not all of it has priority {level}"
            settled = prioritize.settled
            await until_settled(app, session, graph_id, lambda end: settled(app, asked, until=end), late, timeout)
        if session.output.json:
            session.output.document(asked.answer(settled=wait))
            return failures.DONE
        which = count(len(asked.tasks), "task") if asked.tasks else "no task that has not begun"
        has = ("have" if len(asked.tasks) > 1 else "has") if wait or not asked.tasks else "to get"
        session.output.data(f"graph {graph_id}: {which} {has} priority {level}")
        if asked.tasks and not wait:
            hint_at_handlers(session, graph_id)
        return failures.DONE

    raise typer.Exit(session.open(ask, measured=True))


PRIORITIZE_EXAMPLES = examples(
    "taskgraph prioritize nightly-2026-08-01 high",
    "taskgraph prioritize nightly-2026-08-01 publish highest --wait",
    "taskgraph prioritize nightly-2026-08-01 --group tests low",
)
