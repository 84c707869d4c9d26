"""The command `rows`: a graph as it stands in the table."""

from contextlib import aclosing
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from taskgraph.interfaces import views
from taskgraph.interfaces.cli import failures
from taskgraph.interfaces.cli.common import Session, examples, with_session
from taskgraph.interfaces.cli.options import GraphArgument
from taskgraph.interfaces.cli.output import count, safe

if TYPE_CHECKING:
    from taskgraph.interfaces.app import App
    from taskgraph.storage.tables import Row


@with_session
def rows(
    session: Session,
    graph_id: GraphArgument,
    prefix: Annotated[
        str, typer.Option("--prefix", metavar="TEXT", help="Only keys that begin like this, such as task: or event:.")
    ] = "",
) -> None:
    """Print the rows of a graph as they stand in the table, every column of them."""

    async def partition(app: "App") -> int:
        await app.queries.state(graph_id)
        async with aclosing(app.queries.rows(graph_id, prefix)) as found:
            if session.output.json:
                objects = (views.row(graph_id, row) async for row in found)
                await session.output.document_of({"graphId": graph_id}, "rows", objects)
            else:
                number = 0
                async for row in found:
                    _print_row(session, row)
                    number += 1
                    if session.output.out.closed:
                        break
                session.output.say(f"{count(number, 'row')} in partition {graph_id}")
        return failures.DONE

    raise typer.Exit(session.open(partition))


def _print_row(session: Session, row: "Row") -> None:
    out = session.output.out
    width = max((len(name) for name in row.columns), default=0)
    lines = [out.paint(safe(row.key), "bold")]
    lines += [
        f"  {out.paint(safe(name).ljust(width), 'dim')}  {safe(_value_text(value))}"
        for name, value in row.columns.items()
    ]
    out.line("\n".join(lines))


ROWS_EXAMPLES = examples("taskgraph rows nightly-2026-08-01 --prefix task:", "taskgraph rows nightly-2026-08-01 --json")


def _value_text(value: object) -> str:
    if isinstance(value, datetime):
        return views.iso(value) or ""
    return str(value).lower() if isinstance(value, bool) else str(value)
