"""The id of a new graph."""

from pathlib import Path

from taskgraph.documents.nodes import GraphDocument
from taskgraph.interfaces.app import App
from taskgraph.model.ids import GRAPH, named_ids


async def new_id(app: App, document: GraphDocument, file: str = "") -> str:
    """An id for a new graph: with its name, or that of its file, before some random characters; else all random."""
    fresh = app.clock.new_id()
    named_by_file = Path(file.removesuffix(".gz")).stem
    for each in named_ids(str(document.metadata.get("name", "")), fresh) or named_ids(named_by_file, fresh):
        (row,) = await app.tables.get(each, [GRAPH])
        if row is None:
            return each
    return fresh
