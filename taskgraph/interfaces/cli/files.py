"""The command `files`: what tasks have left in files, and copies of it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from taskgraph.interfaces.cli.common import Session, command
from taskgraph.interfaces.cli.options import GraphArgument, OptionalLabelsArgument
from taskgraph.interfaces.cli.output import Column, count

if TYPE_CHECKING:
    from taskgraph.interfaces.app import App
    from taskgraph.interfaces.operations.files import TaskFile


@command("taskgraph files nightly-2026-08-01", "taskgraph files nightly-2026-08-01 link --to dist")
def files(
    session: Session,
    graph_id: GraphArgument,
    labels: OptionalLabelsArgument = None,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="FOLDER", help="Write them below this folder, by their paths.")
    ] = None,
) -> None:
    """List the files that tasks have left, as their outputs name them, or copy them here.

    They are kept with the graph, and deleted with it.
    """

    async def find(app: "App", graph_id: str) -> "list[TaskFile]":
        from taskgraph.interfaces.operations import files as operation

        found = await operation.find(app, graph_id, labels or [])
        if to is not None:
            number = await operation.copy(app, graph_id, found, to)
            session.say(f"{count(number, 'file')} written below {to}")
        return found

    graph_id, found = session.open_graph(graph_id, find)
    if session.output.json:
        from taskgraph.interfaces.operations.files import answer

        session.output.document(answer(graph_id, found))
    elif to is not None:
        return
    elif not found:
        session.say(f"graph {graph_id} has no files: no task of it has outputs, or none has completed")
    else:
        session.output.table(
            found,
            [
                Column("TASK", lambda each: each.label),
                Column("FILE", lambda each: each.file.path, flexible=True),
                Column("BYTES", lambda each: f"{each.file.size:,}", number=True),
                Column("SHA-256", lambda each: each.file.digest[:12]),
            ],
        )
