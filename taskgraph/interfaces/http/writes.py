"""Routes that take a document: import, check, plan or submit it, extend a graph by it, or edit one."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

from starlette.responses import JSONResponse, Response

from taskgraph.documents import plan as planning
from taskgraph.documents.canonical import document_object
from taskgraph.documents.edit_document import read_edit
from taskgraph.documents.importers import import_graph
from taskgraph.documents.nodes import GraphDocument, Kind
from taskgraph.documents.parameters import mentions, typed
from taskgraph.documents.read import Given, read_document
from taskgraph.documents.texts import Form
from taskgraph.documents.warnings import warnings
from taskgraph.engine.submission import Extension, Submitted
from taskgraph.interfaces import views
from taskgraph.interfaces.http.asked import Asked
from taskgraph.interfaces.http.problems import Problem
from taskgraph.interfaces.http.routes import BASE
from taskgraph.interfaces.operations import archive, requests, which
from taskgraph.interfaces.operations.waiting import ends
from taskgraph.model.errors import DeletedGraph, InvalidGraph

T = TypeVar("T")

_SOURCE: Final = "body"
_AT_ONCE_BYTES: Final = 100_000
_FORMS: Final[dict[str, Form]] = {
    "application/json": "json",
    "text/json": "json",
    "application/yaml": "yaml",
    "text/yaml": "yaml",
    "application/toml": "toml",
    "": "by-content",
    "application/x-www-form-urlencoded": "by-content",  # what curl says of whatever it sends, if nothing else is said
}


async def document_of(asked: Asked, kind: Kind = "graph", graph_id: str = "") -> GraphDocument:
    """The document in the body, with its parameters. Raises InvalidGraph with all that is wrong, Problem."""
    data, written, given = await _text(asked, graph_id)
    return await _read(len(data), partial(read_document, data, source=_SOURCE, kind=kind, given=given, form=written))


async def _text(asked: Asked, graph_id: str = "") -> tuple[bytes, Form, Given]:
    """The body, its form, and the values of parameters: those of the query, and otherwise those of a graph."""
    written = form(asked)
    given_ones = (f"{name}={text}" for name, texts in asked.query["param."].items() for text in texts)
    values = typed(given_ones, "param.")
    data = await asked.body()
    if graph_id and (values or mentions(data.decode("utf-8", "replace"))):
        return data, written, await requests.given(asked.app, graph_id, values, named=True)
    return data, written, Given(values)


async def _read(size: int, read: Callable[[], T]) -> T:
    """What `read` makes of so many bytes; events are handled meanwhile, if it takes long."""
    return read() if size < _AT_ONCE_BYTES else await asyncio.to_thread(read)


def form(asked: Asked) -> Form:
    media_type = asked.request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in _FORMS:
        known = "application/json, application/yaml or application/toml"
        raise Problem(415, "media-type", f"{media_type[:100]} is not read here: send {known}")
    return _FORMS[media_type]


async def validate(asked: Asked) -> Any:
    """All that is wrong with a document; also that is an answer."""
    kind: Kind = "extension" if asked.query["extension"] else "graph"
    try:
        document = await document_of(asked, kind)
    except InvalidGraph as error:
        return views.invalid_file(error)
    found = InvalidGraph(warnings(document), _SOURCE)
    return views.valid_file(document, found, document_object(document) if asked.query["expanded"] else None)


async def import_(asked: Asked) -> Any:
    """The file may be packed by gzip, as others keep theirs, and is read by its content."""
    query, data = asked.query, await asked.body()
    said = {"external": query["external"], "executor": query["executor"], "graph_id": query["id"]}
    said |= {"goals": tuple(query["goal"]), "commands": query["commands"]}
    found = await _read(len(data), partial(import_graph, data, query["from"], source=_SOURCE, **said))
    return views.imported(document_object(found.document), found.notes)


async def plan(asked: Asked) -> Any:
    return planning.to_json(planning.plan(await document_of(asked)))


async def put(asked: Asked) -> Response:
    return await _submit(asked, await document_of(asked), asked.graph)


async def post(asked: Asked) -> Response:
    """Under a fresh id, or that of the header Idempotency-Key, so that a repeat makes no second graph."""
    document = await document_of(asked)
    key = asked.request.headers.get("idempotency-key")
    graph_id = await which.new_id(asked.app, document) if key is None else key
    if not asked.who.is_for(graph_id):
        raise Problem(
            403,
            "scope",
            f"the token {asked.who.name} is for graphs {', '.join(asked.who.graphs)} alone: name the graph by "
            "PUT /graphs/ID, or by Idempotency-Key",
        )
    return await _submit(asked, document, graph_id)


async def _submit(asked: Asked, document: GraphDocument, graph_id: str) -> Response:
    done = await requests.submit(asked.app, graph_id, document, folder="")
    place = f"{BASE}/graphs/{done.graph_id}"
    status = 201 if done.outcome is not Submitted.EXISTING else 200
    return JSONResponse(views.submitted(done), status, {"Location": place})


async def extend(asked: Asked) -> Response:
    """Answered at once with 202, or after `Prefer: wait=SECONDS` with what became of it."""
    graph_id = asked.graph
    document = await document_of(asked, "extension", graph_id)
    done = await requests.extend(asked.app, graph_id, document, request=asked.query["request"])
    if seconds := asked.wait_seconds():
        until = ends(asked.app.clock, seconds)
        done = await requests.extended(asked.app, done, until=until, deferred=True)
    shown = views.extended(graph_id, done.request, done.state, len(document.tasks), done.waits_for)
    return _asked_for(done, done.state, shown)


async def edit(asked: Asked) -> Response:
    """As `extend`."""
    graph_id = asked.graph
    data, written, given = await _text(asked, graph_id)
    document = await _read(len(data), partial(read_edit, data, source=_SOURCE, given=given, form=written))
    done = await requests.edit(asked.app, graph_id, document, request=asked.query["request"])
    head = await requests.settled(asked.app, done, "edit", until=ends(asked.app.clock, asked.wait_seconds()))
    state, unchanged = str(head.get("state", "")), head.get("unchanged") is True
    return _asked_for(
        done, state, views.edited(graph_id, done.request, state, head.get("revision"), unchanged=unchanged)
    )


def _asked_for(done: Extension, state: str, shown: Any) -> Response:
    """200 for a request that handlers have answered, otherwise 202; with the place where it is to be looked at."""
    place = {"Location": f"{BASE}/graphs/{done.graph_id}/requests/{done.request}"}
    if state in requests.ANSWERED:
        return JSONResponse(shown, 200, place)
    return JSONResponse(shown, 202, {**place, "Retry-After": "1"})


async def delete(asked: Asked) -> Any:
    try:
        await asked.app.queries.state(asked.graph)
    except DeletedGraph as gone:
        if gone.successor:  # for which the token may not be
            raise
    query = asked.query
    reason, operation = query["reason"] or "", query["operation"] or ""
    done = await archive.delete(asked.app, asked.graph, force=query["force"], reason=reason, operation=operation)
    return views.deleted(done)
