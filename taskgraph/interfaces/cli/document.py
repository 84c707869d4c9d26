"""The commands `document`, `export` and `resubmit`: what was submitted, for other programs, and once more."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from taskgraph.interfaces import views
from taskgraph.interfaces.cli import options
from taskgraph.interfaces.cli.common import STDIN, Session, command
from taskgraph.interfaces.cli.submit import WaitOption, check_options, id_of_new, submit_and_say

if TYPE_CHECKING:
    from taskgraph.interfaces.app import App
    from taskgraph.queries.document import Stored


@command(
    "taskgraph document nightly-2026-08-01",
    "taskgraph document @last > graph.json",
    "taskgraph document nightly-2026-08-01 --json",
)
def document(session: Session, graph_id: options.GraphArgument) -> None:
    """Print the document of a stored graph, as JSON that `validate` and `submit` take.

    Tasks that were added or edited since are in it; what was held, released or prioritized since is as it was
    submitted, where rows still say how that was. The defaults of parameters are the values that were given; a
    requirement of a group stands on the tasks in it. If it does not mean what was submitted, stderr says so, and `same`
    with --json.
    """

    async def read(app: "App", graph_id: str) -> "tuple[Stored, str]":
        from taskgraph.interfaces.operations import document

        return await document.stored(app, graph_id), document.DIFFERENCE

    graph_id, (found, difference) = session.open_graph(graph_id, read)
    if session.answered(views.stored_document, found):
        return
    session.output.document(found.to_dict())
    if not found.same:
        session.output.say(f"graph {graph_id}: {difference}")


class ExportFormat(StrEnum):
    JSON = "json"
    YAML = "yaml"
    DOT = "dot"
    MERMAID = "mermaid"
    WFFORMAT = "wfformat"
    TRACE = "trace"
    OPENLINEAGE = "openlineage"


@command(
    "taskgraph export nightly-2026-08-01 --to yaml -o nightly.yaml",
    "taskgraph export nightly-2026-08-01 --to dot | dot -Tsvg -o nightly.svg",
    "taskgraph export nightly-2026-08-01 --to trace -o nightly.json",
    options=("store", "verbose"),
)
def export(
    session: Session,
    graph_id: options.GraphArgument,
    to: Annotated[
        ExportFormat,
        typer.Option(
            "--to",
            help="json, yaml: the document. dot, mermaid: a picture. wfformat: WfFormat 1.5, with the times that were "
            "measured. trace: all runs, for https://ui.perfetto.dev. openlineage: events, a line each.",
        ),
    ],
    output_file: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Where to; - for standard output.")
    ] = STDIN,
) -> None:
    """Write a stored graph in a format of other programs: its tasks, and what is known of their runs.

    A graph that has not ended is written as it is now. In pictures and in WfFormat groups are looked through.
    """

    async def write(app: "App", graph_id: str) -> str:
        from taskgraph.interfaces.exports import export

        return await export(app, graph_id, to.value)

    graph_id, text = session.open_graph(graph_id, write)
    if output_file == STDIN:
        session.output.out.write(text)
        return
    from taskgraph.storage.private_files import written_whole

    with written_whole(Path(output_file), graph_id) as file:
        file.write(text.encode("utf-8", "backslashreplace"))
    session.say(f"graph {graph_id} written to {output_file}")


@command(
    "taskgraph resubmit nightly-2026-08-01",
    "taskgraph resubmit nightly-2026-08-01 --id nightly-again --wait",
    "taskgraph resubmit release-1 --param version=1.5 --priority high",
)
def resubmit(
    session: Session,
    graph_id: options.GraphArgument,
    new_id: options.IdOption = None,
    param: options.ParamOption = None,
    priority: options.PriorityOption = None,
    wait: WaitOption = False,
    timeout: options.TimeoutOption = None,
) -> int:
    """Submit a stored graph again, as a new graph; every task of it runs.

    It is what `taskgraph document ID` gives; parameters have the values that they had, or those of --param. The new id
    goes to stdout.
    """
    check_options(new_id, wait, timeout)
    from taskgraph.documents.parameters import typed

    params = typed(param or ())

    async def resubmitted(app: "App") -> int:
        from taskgraph.interfaces.operations import document

        old_id, stored = await session.in_graph(app, graph_id, lambda each: document.stored(app, each))
        if not stored.same:
            session.output.say(f"graph {old_id}: {document.DIFFERENCE}")
        again = document.again(app, stored, params=params, priority=priority)
        fresh_id = await id_of_new(app, session, again, given=new_id)
        return await submit_and_say(
            app, session, fresh_id, again, wait=wait, timeout_seconds=timeout, fresh=new_id is None
        )

    return session.open(resubmitted, measured=True)
