"""Routes that take a document: check it, plan it, submit it, or extend a graph by it."""

import asyncio
from functools import partial
from typing import Any, Final

from starlette.responses import JSONResponse, Response

from taskgraph.documents import plan as planning
from taskgraph.documents.canonical import document_object
from taskgraph.documents.nodes import GraphDocument, Kind
from taskgraph.documents.parameters import mentions, typed
from taskgraph.documents.read import Given, read_document
from taskgraph.documents.texts import Form
from taskgraph.documents.warnings import warnings
from taskgraph.engine.submission import Submitted
from taskgraph.interfaces import views
from taskgraph.interfaces.http.asked import Asked
from taskgraph.interfaces.http.problems import Problem
from taskgraph.interfaces.http.routes import BASE
from taskgraph.interfaces.operations import archive, requests, which
from taskgraph.interfaces.operations.waiting import ends
from taskgraph.model.errors import InvalidGraph

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


async def _document(asked: Asked, kind: Kind = "graph", graph_id: str = "") -> GraphDocument:
    """The document in the body, with its parameters. Raises InvalidGraph with all that is wrong, Problem."""
    form = _form(asked)
    given_ones = (f"{name}={text}" for name, texts in asked.query["param."].items() for text in texts)
    values = typed(given_ones, "param.")
    data = await asked.body()
    given = Given(values)
    if graph_id and (values or mentions(data.decode("utf-8", "replace"))):
        given = await requests.given(asked.app, graph_id, values, named=True)
    read = partial(read_document, data, source=_SOURCE, kind=kind, given=given, form=form)
    return read() if len(data) < _AT_ONCE_BYTES else await asyncio.to_thread(read)  # events are handled meanwhile


def _form(asked: Asked) -> Form:
    media_type = asked.request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in _FORMS:
        known = "application/json, application/yaml or application/toml"
        raise Problem(415, "media-type", f"{media_type[:100]} is not read here: send {known}")
    return _FORMS[media_type]


async def validate(asked: Asked) -> Any:
    """All that is wrong with a document; also that is an answer."""
    kind: Kind = "extension" if asked.query["extension"] else "graph"
    try:
        document = await _document(asked, kind)
    except InvalidGraph as error:
        return views.invalid_file(error)
    found = InvalidGraph(warnings(document), _SOURCE)
    return views.valid_file(document, found, document_object(document) if asked.query["expanded"] else None)


async def plan(asked: Asked) -> Any:
    return planning.to_json(planning.plan(await _document(asked)))


async def put(asked: Asked) -> Response:
    return await _submit(asked, await _document(asked), asked.graph)


async def post(asked: Asked) -> Response:
    """Under a fresh id, or that of the header Idempotency-Key, so that a repeat makes no second graph."""
    document = await _document(asked)
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
    document = await _document(asked, "extension", graph_id)
    done = await requests.extend(asked.app, graph_id, document, request=asked.query["request"])
    if seconds := asked.wait_seconds():
        until = ends(asked.app.clock, seconds)
        done = await requests.extended(asked.app, done, until=until, deferred=True)
    shown = views.extended(graph_id, done.request, done.state, len(document.tasks), done.waits_for)
    place = f"{BASE}/graphs/{graph_id}/requests/{done.request}"
    if done.state in requests.ANSWERED:
        return JSONResponse(shown, 200, {"Location": place})
    return JSONResponse(shown, 202, {"Location": place, "Retry-After": "1"})


async def delete(asked: Asked) -> Any:
    await asked.app.queries.state(asked.graph)  # this very graph: no successor of it, for which the token may not be
    return views.deleted(
        await archive.delete(asked.app, asked.graph, force=asked.query["force"], reason=asked.query["reason"] or "")
    )
