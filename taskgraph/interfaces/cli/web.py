"""The commands `report` and `web deploy`: the page where no server is, as one file, or as a website of the account."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from taskgraph.interfaces import views
from taskgraph.interfaces.cli.archive import rows_text
from taskgraph.interfaces.cli.common import Session, command
from taskgraph.interfaces.cli.options import GraphArgument
from taskgraph.interfaces.cli.output import count
from taskgraph.interfaces.cli.progress import counting
from taskgraph.model.errors import InvalidInput

if TYPE_CHECKING:
    from taskgraph.engine.archive_file import Archived
    from taskgraph.interfaces.app import App
    from taskgraph.interfaces.operations.site import Deployed


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
    "taskgraph web deploy --site https://ACCOUNT.z6.web.core.windows.net",
    "taskgraph web deploy",
    "taskgraph web deploy --json",
    "taskgraph web deploy --remove",
)
def deploy(
    session: Session,
    site: Annotated[
        str,
        typer.Option(
            "--site",
            metavar="URL",
            help="The address of the account's website, or your own name for it; said once, it is kept there.",
        ),
    ] = "",
    remove: Annotated[bool, typer.Option("--remove", help="Take it all away again.")] = False,
) -> None:
    """Put the page into the storage account, as its static website, and let browsers read rows from there.

    The files hold code and no data. What they show is opened by a link: taskgraph grant ID --read --link. It adds one
    CORS rule for tables and one for blobs, for reading, and leaves those of others. Run again it changes what is other.
    """
    if remove and site:
        raise InvalidInput("--remove takes away what was put there, and needs no --site")

    async def put(app: "App") -> "Deployed":
        from taskgraph.interfaces.operations import site as sites
        from taskgraph.interfaces.web import alone

        return await (sites.remove(app) if remove else sites.deploy(app, alone.files, site))

    done = session.open(put)
    if session.answered(views.deployed, done):
        return
    changed = [f"{count(len(done.uploaded), 'file')} put there"] if done.uploaded else []
    changed += [f"{count(len(done.removed), 'file')} taken away"] if done.removed else []
    changed += [f"CORS of {' and '.join(done.services)} service"] if done.services else []
    changed += [f"website switched {'off' if remove else 'on'}"] if done.turned else []
    if done.address:
        session.output.data(done.address)
    session.output.say(", ".join(changed) or "all was as it is: nothing changed")
    if not remove:
        session.output.hint(f"taskgraph grant ID --read --link{session.store_words}")
