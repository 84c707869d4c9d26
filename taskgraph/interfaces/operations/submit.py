"""Write a graph and start it."""

from taskgraph.documents.nodes import GraphDocument
from taskgraph.engine import submission
from taskgraph.engine.progress import Progress, no_progress
from taskgraph.engine.submission import Submission
from taskgraph.interfaces.app import App
from taskgraph.queries.lookup import check_graph_id


async def submit(
    app: App, graph_id: str | None, document: GraphDocument, *, progress: Progress = no_progress
) -> Submission:
    """Write a graph that was validated, and start it; under a fresh id if it has none yet.

    Raises InvalidInput for what can be no id, and Refused if another graph was submitted under it.
    """
    graph_id = app.clock.new_id() if graph_id is None else graph_id
    check_graph_id(graph_id, new=True)
    return await submission.submit(app.handlers, graph_id, document, progress=progress)
