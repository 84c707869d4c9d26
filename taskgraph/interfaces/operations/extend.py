"""Add tasks to a graph that runs, or is blocked; and wait for the answer."""

from dataclasses import replace

from taskgraph.documents.nodes import GraphDocument
from taskgraph.engine import submission
from taskgraph.engine.submission import Extension
from taskgraph.interfaces.app import App
from taskgraph.interfaces.operations import requests
from taskgraph.protocol.extension import WAITS_FOR


async def ask(app: App, graph_id: str, document: GraphDocument, *, request: str | None = None) -> Extension:
    """Ask for the tasks of a document to be added. Raises InvalidInput, NotFound, Refused (see `submission.extend`)."""
    requests.check_ids(graph_id, request)
    return await submission.extend(app.handlers, graph_id, document, request=request)


async def settled(app: App, asked: Extension, *, until: float | None = None, deferred: bool = False) -> Extension:
    """Wait until they are added; gives what the request is by then, if need be before (see `requests.settled`)."""
    if asked.state == "done":
        return asked
    head = await requests.settled(app, asked, "extension", until=until, deferred=deferred)
    return replace(asked, state=str(head.get("state", "")), waits_for=str(head.get(WAITS_FOR, "")))
