"""Take graphs away that have ended."""

from collections.abc import Collection
from datetime import datetime

from taskgraph.engine import delete as deletion
from taskgraph.engine.delete import Deleted
from taskgraph.engine.housekeeping import ended_before
from taskgraph.engine.progress import Progress, no_progress
from taskgraph.interfaces.app import App
from taskgraph.model.errors import NotFound
from taskgraph.queries.lookup import check_graph_id


async def delete(
    app: App,
    graph_id: str,
    *,
    force: bool = False,
    reason: str = "",
    progress: Progress = no_progress,
) -> Deleted:
    """Take a graph away, with its logs, or go on with that (see `engine.delete.delete`)."""
    check_graph_id(graph_id)
    try:
        return await deletion.delete(app.handlers, app.logs, graph_id, force=force, because=reason, progress=progress)
    except NotFound:
        await app.queries.graph_row(graph_id)  # names the nearest ids
        raise


async def deletable(app: App, before: datetime, states: Collection[str]) -> list[tuple[str, str, datetime]]:
    """Graphs that ended before a time: id, state, since when. The newest first."""
    return [each async for each in ended_before(app.handlers, before, states)]
