"""Change or take away tasks of a graph that have not started; look at it before; and wait for the answer."""

from collections.abc import Mapping

from taskgraph.documents.edit_document import EditDocument
from taskgraph.engine import plans, submission
from taskgraph.engine.plans import EditPreview
from taskgraph.engine.submission import Extension
from taskgraph.interfaces.app import App
from taskgraph.interfaces.operations import requests
from taskgraph.model.columns import Value


async def ask(app: App, graph_id: str, document: EditDocument, *, request: str | None = None) -> Extension:
    """Ask for an edit to be made. Raises InvalidInput, NotFound, Refused (see `submission.edit`)."""
    requests.check_ids(graph_id, request)
    return await submission.edit(app.handlers, graph_id, document, request=request)


async def settled(app: App, asked: Extension, *, until: float | None = None) -> Mapping[str, Value]:
    """Wait until it is made; gives what became of it (see `requests.settled`)."""
    return await requests.settled(app, asked, "edit", until=until)


async def preview(app: App, graph_id: str, document: EditDocument) -> EditPreview:
    """What an edit would do now, row by row, or why it would be refused; nothing is written."""
    requests.check_ids(graph_id, None)
    return await plans.preview_edit(app.handlers.records, graph_id, document, now=app.clock.now())
