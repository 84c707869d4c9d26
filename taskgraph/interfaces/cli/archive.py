"""The command `archive`: graphs are written into files. What a file holds, `engine.archive_file` says."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from taskgraph.interfaces import views
from taskgraph.interfaces.cli.common import STDIN, Session, check_graph_id, examples, with_session
from taskgraph.interfaces.cli.options import GraphArgument
from taskgraph.interfaces.cli.output import count
from taskgraph.interfaces.cli.progress import counting
from taskgraph.model.errors import InvalidInput

if TYPE_CHECKING:
    from taskgraph.engine.archive_file import Archived
    from taskgraph.interfaces.app import App


@with_session
def archive(
    session: Session,
    graph_id: GraphArgument,
    output_file: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Where to; - for stdout. Otherwise ID.json.gz here.",
            show_default=False,
        ),
    ] = None,
    with_logs: Annotated[bool, typer.Option("--logs", help="With the output of every run, and its results.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that exists.")] = False,
) -> None:
    """Write a graph into a file, with all its rows and its journal, from which it can be put back.

    The file is lines of JSON, compressed by gzip; the same graph gives the same bytes. Of a graph that moves meanwhile
    the file says so: it can be looked at, and not put back. It is signed if TASKGRAPH_ARCHIVE_KEY names a key.
    """
    one = check_graph_id(graph_id)
    if output_file == STDIN:
        if session.output.json:
            raise InvalidInput("--json describes a file; the archive itself goes to stdout here")
        if sys.stdout.isatty():
            raise InvalidInput("an archive is nothing for a terminal: write it into a file (-o FILE), or a pipe")
        session.open(lambda app: _to_stdout(app, session, one, with_logs=with_logs))
        return
    path = Path(output_file or f"{one}.json.gz")
    done = session.open(lambda app: _write(app, session, one, path, with_logs=with_logs, overwrite=force))
    size = path.stat().st_size
    if session.output.json:
        session.output.document(views.archived(done, str(path), size))
    else:
        files = f", {count(done.logs, 'log file')}" if with_logs else ""
        signed = ", signed" if done.signature is not None else ""
        rows = count(done.rows, "row")
        session.output.data(f"{path}: graph {one}, {done.state}, {rows}{files}, {size:,} bytes{signed}")
    _warn(session, done)


ARCHIVE_EXAMPLES = examples(
    "taskgraph archive nightly-2026-08-01",
    "taskgraph archive nightly-2026-08-01 --logs -o nightly.json.gz",
    "taskgraph archive nightly-2026-08-01 -o - | gunzip | head",
)


def _warn(session: Session, done: "Archived") -> None:
    if not done.complete:
        session.output.warn(f"graph {done.graph_id} could move meanwhile: this is to be looked at, not to be put back")


async def _write(
    app: "App", session: Session, graph_id: str, path: Path, *, with_logs: bool, overwrite: bool
) -> "Archived":
    from taskgraph.interfaces.operations import archive

    with counting(session.output, app.clock, f"archiving {graph_id}", rows_text) as tell:
        return await archive.write(app, graph_id, path, with_logs=with_logs, overwrite=overwrite, progress=tell)


async def _to_stdout(app: "App", session: Session, graph_id: str, *, with_logs: bool) -> None:
    from taskgraph.interfaces.operations import archive

    with session.output.out.writing():
        with counting(session.output, app.clock, f"archiving {graph_id}", rows_text) as tell:
            done = await archive.write(app, graph_id, sys.stdout.buffer, with_logs=with_logs, progress=tell)
        sys.stdout.buffer.flush()
        _warn(session, done)


def rows_text(done: int, total: int | None) -> str:
    """How far it has come, in words."""
    return f"{done:,}{f' of {total:,}' if total else ''} rows"
