"""The commands `archive`, `report`, `restore` and `keygen`: a graph is written into a file, shown by it, put back.

The format of files is in `engine.archive_file`; what of them is accepted, in `engine.restore`.
"""

import contextlib
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, cast

import typer

from taskgraph.interfaces import views
from taskgraph.interfaces.cli import completion
from taskgraph.interfaces.cli.common import STDIN, Session, command
from taskgraph.interfaces.cli.options import GraphArgument
from taskgraph.interfaces.cli.output import count, moment
from taskgraph.interfaces.cli.progress import counting
from taskgraph.model.errors import InvalidInput

if TYPE_CHECKING:
    from taskgraph.engine.archive_file import Archived, Bounds
    from taskgraph.engine.restore import Plan
    from taskgraph.interfaces.app import App


@command(
    "taskgraph archive nightly-2026-08-01",
    "taskgraph archive nightly-2026-08-01 --logs -o nightly.json.gz",
    "taskgraph archive nightly-2026-08-01 nightly-2026-08-02",
    "taskgraph archive nightly-2026-08-01 -o - | gunzip | head",
)
def archive(
    session: Session,
    graph_ids: Annotated[
        list[str],
        typer.Argument(
            metavar="ID...", autocompletion=completion.graph_ids, help="Ids of graphs, beginnings of them, or @last."
        ),
    ],
    output_file: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="Where to; - for stdout. Otherwise ID.json.gz here."),
    ] = None,
    with_logs: Annotated[bool, typer.Option("--logs", help="With the output of every run, and its results.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that exists.")] = False,
) -> None:
    """Write graphs into a file each, with all rows and the journal, from which they can be put back.

    The file is lines of JSON, compressed by gzip; the same graph gives the same bytes. Of a graph that moves meanwhile
    the file says so: it can be looked at, and not put back. It is signed if TASKGRAPH_ARCHIVE_KEY names a key.
    Several are written one after the other, up to the first that cannot be.
    """
    several = len(graph_ids) > 1
    if several and output_file is not None:
        raise InvalidInput("--output takes one graph; several are written as ID.json.gz here")
    if output_file == STDIN:
        if session.output.json:
            raise InvalidInput("--json describes a file; the archive itself goes to stdout here")
        if sys.stdout.isatty():
            raise InvalidInput("an archive is nothing for a terminal: write it into a file (-o FILE), or a pipe")
        session.open_graph(graph_ids[0], lambda app, graph_id: _to_stdout(app, session, graph_id, with_logs=with_logs))
        return

    session.output.lines = several

    async def write(app: "App", graph_id: str) -> None:
        path = Path(output_file or f"{graph_id}.json.gz")
        done = await _write(app, session, graph_id, path, with_logs=with_logs, overwrite=force)
        _print_written(session, done, path, with_logs=with_logs)

    async def write_all(app: "App") -> None:
        for each in graph_ids:
            await session.in_graph(app, each, lambda graph_id: write(app, graph_id))

    session.open(write_all)


def _print_written(session: Session, done: "Archived", path: Path, *, with_logs: bool) -> None:
    size = path.stat().st_size
    if not session.answered(views.archived, done, str(path), size):
        files = f", {count(done.logs, 'log file')}" if with_logs else ""
        signed = ", signed" if done.signature is not None else ""
        rows = count(done.rows, "row")
        session.output.data(f"{path}: graph {done.graph_id}, {done.state}, {rows}{files}, {size:,} bytes{signed}")
    _warn(session, done)


def _warn(session: Session, done: "Archived") -> None:
    if not done.complete:
        session.output.warn(f"graph {done.graph_id} could move meanwhile: this is to be looked at, not to be put back")


async def _write(
    app: "App", session: Session, graph_id: str, path: Path, *, with_logs: bool, overwrite: bool
) -> "Archived":
    from taskgraph.interfaces.operations import archive

    with counting(session.output, app.clock, f"archiving {graph_id}", rows_text) as progress:
        return await archive.write(app, graph_id, path, with_logs=with_logs, overwrite=overwrite, progress=progress)


async def _to_stdout(app: "App", session: Session, graph_id: str, *, with_logs: bool) -> None:
    from taskgraph.interfaces.operations import archive

    with session.output.out.writing():
        with counting(session.output, app.clock, f"archiving {graph_id}", rows_text) as progress:
            done = await archive.write(app, graph_id, sys.stdout.buffer, with_logs=with_logs, progress=progress)
        sys.stdout.buffer.flush()
        _warn(session, done)


def rows_text(done: int, total: int | None) -> str:
    return f"{done:,}{f' of {total:,}' if total else ''} rows"


@command(
    "taskgraph report nightly-2026-08-01",
    "taskgraph report nightly-2026-08-01 --logs -o run.html",
    "taskgraph report nightly-2026-08-01 -o run.html --json",
)
def report(
    session: Session,
    graph_id: GraphArgument,
    output_file: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Where to; otherwise ID.html here.")
    ] = "",
    with_logs: Annotated[bool, typer.Option("--logs", help="With the output of every run, and its results.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that exists.")] = False,
) -> None:
    """Write a graph into one HTML file that shows it in any browser: the page, and an archive of the graph in it.

    It asks for nothing on the network, and shows the graph as it is now. Who has the file sees all rows, payloads too.
    """

    async def write(app: "App", graph_id: str) -> "tuple[Archived, Path]":
        from taskgraph.interfaces.operations import archive
        from taskgraph.interfaces.web import alone

        path = Path(output_file or f"{graph_id}.html")
        with counting(session.output, app.clock, f"archiving {graph_id}", rows_text) as progress:
            done = await archive.write_report(
                app, graph_id, path, alone.write_report, with_logs=with_logs, overwrite=force, progress=progress
            )
        return done, path

    _, (done, path) = session.open_graph(graph_id, write)
    size = path.stat().st_size
    if not session.answered(views.archived, done, str(path), size):
        files = f", {count(done.logs, 'log file')}" if with_logs else ""
        session.output.data(
            f"{path}: graph {done.graph_id}, {done.state}, {count(done.rows, 'row')}{files}, {size:,} bytes"
        )


@command(
    "taskgraph restore nightly-2026-08-01.json.gz --plan",
    "taskgraph restore nightly-2026-08-01.json.gz",
    "taskgraph restore nightly-2026-08-01.json.gz --require-signature",
)
def restore(
    session: Session,
    file: Annotated[str, typer.Argument(metavar="FILE", help="An archive; - for stdin.")],
    plan: Annotated[bool, typer.Option("--plan", help="Say what would be put back, and write nothing.")] = False,
    max_rows: Annotated[
        int | None, typer.Option("--max-rows", min=1, metavar="N", help="Rows that it may have; otherwise 500,000.")
    ] = None,
    max_bytes: Annotated[
        int | None,
        typer.Option(
            "--max-bytes",
            min=1,
            metavar="N",
            help="Bytes that it may unpack to, however small it is; otherwise 1 GiB, and a hundred times its size.",
        ),
    ] = None,
    require_signature: Annotated[
        bool, typer.Option("--require-signature", help="Refuse what is not signed by a trusted key.")
    ] = False,
) -> None:
    """Put a graph back that was archived, under its own id, as it was: to be looked at, or rerun if it was blocked.

    A file is a document: what could go on by itself is refused, and so is what contradicts itself. It says first what
    it will put back. Nothing of it is run or sent before a person reruns it.

    What is in the store is never overwritten. Interrupted, the same command goes on; what stands half put back for a
    day is taken away by the sweep.
    """
    from taskgraph.engine.archive_file import Bounds

    bounds = Bounds.of(max_rows, max_bytes)
    session.open(lambda app: _restore(app, session, file, bounds, only_plan=plan, required=require_signature))


def _stdin() -> BinaryIO:
    """Stdin in a file, as it is read twice, the first time to check it."""
    kept: BinaryIO = cast(BinaryIO, tempfile.TemporaryFile())  # noqa: SIM115  (closed by the caller)
    shutil.copyfileobj(sys.stdin.buffer, kept)
    return kept


async def _restore(
    app: "App", session: Session, file: str, bounds: "Bounds", *, only_plan: bool, required: bool
) -> None:
    from taskgraph.engine.archive_file import open_archive
    from taskgraph.interfaces.operations import archive

    output = session.output
    planned: list[Plan] = []

    def show(plan: "Plan") -> None:
        planned.append(plan)
        if not output.json:
            _print_plan(plan, output.say)

    def show_alone(plan: "Plan") -> None:
        if not session.answered(views.restore_plan, plan):
            _print_plan(plan, output.data)

    with contextlib.ExitStack() as stack:
        opened = stack.enter_context(_stdin() if file == STDIN else open_archive(Path(file)))
        if only_plan:
            await archive.preview_restore(app, opened, file, bounds=bounds, required=required, planned=show_alone)
            return
        progress = stack.enter_context(counting(output, app.clock, "restoring", rows_text))
        done = await archive.restore(
            app, opened, file, bounds=bounds, required=required, planned=show, progress=progress
        )
    if output.json:
        output.document(views.restored(done, planned[0]))
    elif done.again:
        output.data(f"{done.graph_id} is there already, {done.state}")
    else:
        files = f", {count(done.logs, 'log file')}" if done.logs else ""
        output.data(f"{done.graph_id} is back, {done.state}: {count(done.rows, 'row')}{files}")


def _print_plan(plan: "Plan", say: Callable[[str], None]) -> None:
    contents, standing = plan.contents, plan.standing
    times = [f"submitted {moment(standing.created)}"] if standing.created is not None else []
    times += [f"{contents.state} {moment(standing.ended)}"] if standing.ended is not None else []
    say(f"graph {contents.graph_id}: {', '.join([standing.name, *times] if standing.name else times)}")
    say(f"  tasks     {_counts(standing.tasks)}")
    if standing.groups:
        say(f"  groups    {standing.groups:,}")
    if contents.logs:
        say(f"  logs      {count(contents.logs, 'file')}, {contents.log_bytes:,} bytes")
    for each in standing.notices:
        say(f"  notices   {each}")
    if standing.commands:
        number = sum(standing.commands.values())
        say(f"  a rerun   would run up to {count(number, 'task')}: {_counts(standing.commands)}")
    for each in standing.let_go:
        say(f"  let go    {each}")
    signature = contents.signature
    if signature is None:
        say("  signature none: the digest is against damage, and says nothing of who made it")
    else:
        whose = f"trusted by {plan.trusted}" if plan.trusted else "which is not trusted here"
        say(f"  signature by {signature.by}, {signature.at}, with the key {signature.key}, {whose}")


def _counts(counted: Mapping[str, int]) -> str:
    return ", ".join(f"{number:,} {name}" for name, number in counted.items()) or "none"


@command(
    "taskgraph keygen ~/.taskgraph-archive-key",
    "TASKGRAPH_ARCHIVE_KEY=~/.taskgraph-archive-key taskgraph archive nightly-2026-08-01",
    options=("json",),
)
def keygen(
    session: Session, file: Annotated[str, typer.Argument(metavar="FILE", help="Where to; FILE.pub is written too.")]
) -> None:
    """Make a key that signs archives, and its public part, which verifies them.

    The key is its owner's alone; TASKGRAPH_ARCHIVE_KEY=FILE has taskgraph archive sign with it. The public part may be
    given to anybody: TASKGRAPH_ARCHIVE_TRUSTED=FILE.pub has taskgraph restore trust what the key has signed.
    """
    from taskgraph.engine.signing import make_key

    beside, key = make_key(Path(file))
    if not session.answered(views.key_made, file, str(beside), key):
        session.output.data(f"{file} signs, {beside} verifies: {key}")
