"""Archive graphs, put them back, and delete graphs that have ended."""

import os
import tempfile
from collections.abc import Callable, Collection
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, cast

from taskgraph.engine import archive as archives
from taskgraph.engine import delete as deletion
from taskgraph.engine import restore as restoring
from taskgraph.engine.archive_file import Archived, Bounds, open_archive
from taskgraph.engine.delete import Deleted
from taskgraph.engine.housekeeping import ended_before
from taskgraph.engine.progress import Progress, no_progress
from taskgraph.engine.restore import Plan, Restored
from taskgraph.engine.signing import read_trust
from taskgraph.interfaces.app import App
from taskgraph.interfaces.operations import which
from taskgraph.interfaces.operations.checks import asked_by, over_http
from taskgraph.model.errors import Refused
from taskgraph.model.ids import GRAPH
from taskgraph.model.states import GRAPH_GONE
from taskgraph.protocol.lifecycle import undeletable
from taskgraph.queries.lookup import check_graph_id
from taskgraph.storage.private_files import written_whole


async def write(
    app: App,
    graph_id: str,
    out: Path | BinaryIO,
    *,
    with_logs: bool = False,
    overwrite: bool = False,
    progress: Progress = no_progress,
) -> Archived:
    """Write a graph into a file or stream, signed if the environment names a key (see `engine.archive`)."""
    check_graph_id(graph_id)
    await app.queries.graph_row(graph_id)
    handlers, logs, signer = app.handlers, app.logs, app.signer(os.environ)
    if not isinstance(out, Path):
        return await archives.archive(
            handlers, logs, graph_id, out, with_logs=with_logs, signer=signer, progress=progress
        )
    return await archives.archive_to(
        handlers, logs, graph_id, out, with_logs=with_logs, overwrite=overwrite, signer=signer, progress=progress
    )


async def write_report(
    app: App,
    graph_id: str,
    path: Path,
    wrap: Callable[[BinaryIO, BinaryIO], None],
    *,
    with_logs: bool = False,
    overwrite: bool = False,
    progress: Progress = no_progress,
) -> Archived:
    """Write a graph into a file around its archive. wrap: writes such a file, given the archive. Raises as `write`."""
    check_graph_id(graph_id)
    await app.queries.graph_row(graph_id)
    if not overwrite:
        archives.must_be_free(path)
    with written_whole(path, app.clock.new_id()[:8]) as out, tempfile.TemporaryFile() as kept:
        done = await archives.archive_whole(
            app.handlers,
            app.logs,
            graph_id,
            cast(BinaryIO, kept),
            with_logs=with_logs,
            signer=app.signer(os.environ),
            progress=progress,
        )
        kept.seek(0)
        wrap(cast(BinaryIO, kept), out)
    return done


async def write_before_deletion(
    app: App, graph_id: str, path: Path, *, force: bool = False, progress: Progress = no_progress
) -> str:
    """Write a graph with its logs, unless its deletion has begun, so that it was written before.

    Gives the operation of the graph row that was written, for `delete`. Raises Refused where nothing may be deleted
    after it: the graph has not ended, moved meanwhile, or could not be put back from the file.
    """
    graph_id = await which.current(app, graph_id)
    (row,) = await app.tables.get(graph_id, [GRAPH])
    state = str(row.columns.get("state", "")) if row is not None else ""
    if not state or state in GRAPH_GONE:
        return ""  # by the very same call, which was cut off: then the file is there
    if refusal := undeletable(state, forced=force):
        raise Refused(f"graph {graph_id}: {refusal}", "not-ended")
    done = await write(app, graph_id, path, with_logs=True, progress=progress)
    if not done.complete:
        raise Refused(
            f"graph {graph_id} moved while it was written to {path}, or something of it still can; nothing is deleted",
            "not-ended",
        )
    with open_archive(path) as opened:
        plan = restoring.look(opened, str(path), app.clock.now(), bounds=Bounds(done.rows, done.size, ratio=0))
    if plan.standing.refusals:
        raise Refused(
            f"{path} could not be put back: {'; '.join(plan.standing.refusals)}. Nothing is deleted; "
            f"taskgraph doctor {graph_id} --repair, or delete it without --archive",
            "not-standing",
        )
    return str(row.columns.get("operation", "")) if row is not None else ""


async def write_again(app: App, graph_id: str, out: BinaryIO, *, with_logs: bool = False) -> Archived:
    """Write a graph into an empty file that is open; once more where a graph that has ended changed meanwhile."""
    check_graph_id(graph_id)
    await app.queries.graph_row(graph_id)
    signer = app.signer(os.environ)
    return await archives.archive_whole(app.handlers, app.logs, graph_id, out, with_logs=with_logs, signer=signer)


def look(app: App, file: BinaryIO, source: str, *, bounds: Bounds, required: bool = False) -> Plan:
    """What a file would put back; it is read to its end. Raises InvalidInput, TooLarge (see `engine.restore.look`)."""
    trust = read_trust(os.environ, required=required)
    return restoring.look(file, source, app.clock.now(), bounds=bounds, trust=trust)


async def preview_restore(
    app: App, file: BinaryIO, source: str, *, bounds: Bounds, required: bool, planned: Callable[[Plan], None]
) -> None:
    """Say what a file would put back, and raise Refused for what would not be; nothing is written."""
    trust = read_trust(os.environ, required=required)
    plan = look(app, file, source, bounds=bounds, required=required)
    planned(plan)
    restoring.check(plan, source, trust, restoring.free_bytes(app.settings.path))


@over_http("restore")
async def restore(
    app: App,
    file: BinaryIO,
    source: str,
    *,
    bounds: Bounds,
    required: bool = False,
    plan: Plan | None = None,
    planned: Callable[[Plan], None] = lambda plan: None,
    progress: Progress = no_progress,
) -> Restored:
    """Put a graph back that was archived (see `engine.restore.restore`).

    required: a signature that is trusted. plan: what `look` said of the file.
    """
    return await restoring.restore(
        app.handlers,
        app.logs,
        file,
        source,
        bounds=bounds,
        trust=read_trust(os.environ, required=required),
        room=restoring.free_bytes(app.settings.path),
        plan=plan,
        planned=planned,
        progress=progress,
    )


@over_http("delete")
async def delete(
    app: App,
    graph_id: str,
    *,
    force: bool = False,
    reason: str = "",
    operation: str = "",
    progress: Progress = no_progress,
) -> Deleted:
    """Take a graph away, with its logs, or go on with that (see `engine.delete.delete`); only by its whole id."""

    async def take(graph_id: str) -> Deleted:
        check_graph_id(graph_id)
        said = {"because": reason, "operation": operation, "by": asked_by()}
        return await deletion.delete(app.handlers, app.logs, graph_id, force=force, progress=progress, **said)

    done = await which.whole(app, await which.current(app, graph_id), take)
    while app.give_back is not None and await app.give_back():
        pass
    return done


async def deletable(app: App, before: datetime, states: Collection[str]) -> list[tuple[str, str, datetime]]:
    """Graphs that ended before a time: id, state, since when. The newest first."""
    return [each async for each in ended_before(app.handlers, before, states)]
