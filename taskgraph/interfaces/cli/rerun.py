"""The command `rerun`: run tasks again that failed for good."""

from typing import TYPE_CHECKING, Annotated

import typer

from taskgraph.interfaces import views
from taskgraph.interfaces.cli import failures
from taskgraph.interfaces.cli.common import Session, check_graph_id, examples, with_session
from taskgraph.interfaces.cli.options import GraphArgument
from taskgraph.interfaces.operations.checks import check_reason
from taskgraph.model.errors import InvalidInput, Refused

if TYPE_CHECKING:
    from taskgraph.interfaces.app import App


@with_session
def rerun(
    session: Session,
    graph_id: GraphArgument,
    label: Annotated[
        str | None, typer.Argument(metavar="LABEL", help="The label of the task, or its taskId.", show_default=False)
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group", metavar="NAME", help="All tasks of this group that failed for good.", show_default=False
        ),
    ] = None,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; kept with the run.")] = "",
) -> None:
    """Run a task again that failed for good; or every such task of a group.

    With the last such task the graph goes on. Handlers must run for that: taskgraph serve, or taskgraph run --id ID.
    """
    check_graph_id(graph_id)
    check_reason(reason)
    if (label is None) == (group is None):
        raise InvalidInput("name the task, by its label, or a group of them: --group NAME; one of the two")
    raise typer.Exit(session.open(lambda app: _rerun(app, session, graph_id, label, group, reason), measured=True))


RERUN_EXAMPLES = examples(
    'taskgraph rerun nightly-2026-08-01 "test/unit" --reason "the disk was full"',
    "taskgraph rerun nightly-2026-08-01 --group tests",
)


async def _rerun(app: "App", session: Session, graph_id: str, label: str | None, group: str | None, reason: str) -> int:
    from taskgraph.interfaces.operations import rerun

    output = session.output
    labels = () if label is None else (label,)
    wanted = await rerun.ask(app, graph_id, labels, group=group, reason=reason)
    if not wanted:
        raise Refused(f"no task of group “{group}” failed for good; only such can be rerun", "not-failed")
    if output.json:
        output.document(views.rerun(graph_id, wanted, group))
    else:
        for each in wanted:
            output.data(f"run {each.run + 1} of “{each.label}” is asked for")
    where = session.store_words
    output.hint(f"handlers must run for it: taskgraph serve{where}, or taskgraph run --id {graph_id}{where}")
    return failures.DONE
