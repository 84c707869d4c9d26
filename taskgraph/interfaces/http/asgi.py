"""The API as an ASGI app: each request is let in, read, answered, and its errors are problems."""

import asyncio
import hashlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute
from starlette.routing import Route as StarletteRoute

from taskgraph.interfaces.app import App
from taskgraph.interfaces.http import problems
from taskgraph.interfaces.http.asked import Asked
from taskgraph.interfaces.http.feeds import Feeds
from taskgraph.interfaces.http.gate import Gate
from taskgraph.interfaces.http.measured import Measured, patterns
from taskgraph.interfaces.http.packing import GZIP_LEVEL
from taskgraph.interfaces.http.problems import Problem
from taskgraph.interfaces.http.routes import Route, read_query
from taskgraph.interfaces.http.table import ROUTES
from taskgraph.interfaces.operations.checks import asking
from taskgraph.model.errors import DeletedGraph, NoGraph, NotFound, TaskgraphError
from taskgraph.queries.lookup import nearest

log = logging.getLogger("taskgraph.http")

_GZIP_BYTES_MIN: Final = 1_000
_SECURITY: Final = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}

Endpoint = Callable[[Request], Awaitable[Response]]


More = Callable[[App, Gate, Feeds], BaseRoute]
"""Makes a route of another API beside this one."""


def make(app: App, gate: Gate, feeds: Feeds, more: Sequence[More] = ()) -> Starlette:
    """The app over a store that is open. feeds: open too."""
    by_path: dict[str, dict[str, Route]] = {}
    for route in ROUTES:
        by_path.setdefault(route.whole_path, {})[route.method] = route
    routes: list[BaseRoute] = []
    for path in sorted(by_path, key=lambda each: each.endswith("}")):  # `{graph}:share` is no graph of that name
        endpoint = _endpoint(app, gate, feeds, by_path[path])
        routes.append(StarletteRoute(path, endpoint, methods=()))  # which is: every method
    routes += [each(app, gate, feeds) for each in more]
    telemetry = app.telemetry
    made = Starlette(
        routes=routes,
        middleware=[
            *([Middleware(Measured, telemetry=telemetry, patterns=patterns(routes))] if telemetry.enabled else []),
            Middleware(GZipMiddleware, minimum_size=_GZIP_BYTES_MIN, compresslevel=GZIP_LEVEL),
        ],
        exception_handlers={HTTPException: _refused},
    )
    made.state.rehearsal = asyncio.Semaphore(1)
    return made


def _endpoint(app: App, gate: Gate, feeds: Feeds, methods: Mapping[str, Route]) -> Endpoint:
    allowed = ", ".join(sorted({*methods, "OPTIONS", *(["HEAD"] if "GET" in methods else [])}))

    async def answer(request: Request) -> Response:
        try:
            gate.check_host(request)
            if request.method == "OPTIONS":
                return Response(status_code=204, headers={"Allow": allowed, **_SECURITY})
            route = methods.get("GET" if request.method == "HEAD" else request.method)
            if route is None:
                raise Problem(405, "method", f"{request.method} is none of {allowed}", headers={"Allow": allowed})
            who = await gate.enter(request, route)
            query = read_query(route, request.query_params.multi_items())
            response = await _called(route, Asked(app, feeds, request, request.path_params, query, who))
        except TaskgraphError as error:  # reach: http
            response = problems.response(error)
            if response.status_code >= 500:
                log.warning("%s %s: %s", request.method, request.url.path, error)
        except Exception as error:  # reach: http
            log.exception("this is a bug in taskgraph, please report it: %s %s", request.method, request.url.path)
            response = problems.response(_bug(error))
        return _finished(request, response)

    return answer


async def _called(route: Route, asked: Asked) -> Response:
    try:
        with asking(asked.who.name):
            made = await route.call(asked)
    except NoGraph as error:
        ids = [each for each in await asked.app.queries.recent_ids() if asked.who.is_for(each)]
        raise NoGraph(error.graph_id, nearest(error.graph_id, ids)) from error
    except DeletedGraph as error:
        raise NotFound(str(error), [error.successor] if error.successor else ()) from error
    return made if isinstance(made, Response) else JSONResponse(made, route.status)


def _finished(request: Request, response: Response) -> Response:
    """With the headers that all answers have; 304 in its place, where the sender has it already.

    No one asks again for what was waited for, so that has no digest.
    """
    for name, value in _SECURITY.items():
        response.headers.setdefault(name, value)
    body = getattr(response, "body", None)  # a stream has none
    asked = request.method in ("GET", "HEAD") and response.status_code == 200
    if not asked or not isinstance(body, bytes) or request.query_params.get("wait"):
        return response
    if "etag" in response.headers:  # a row's is no digest of the answer
        return response
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    if tag in (each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")):
        return Response(status_code=304, headers={"ETag": tag, **_SECURITY})
    response.headers["ETag"] = tag
    return response


async def _refused(request: Request, error: Exception) -> Response:
    """Of Starlette itself: no such path."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    if status == 404:
        problem = Problem(404, "no-route", f"there is no {request.url.path[:200]}; the API begins at /api/v1")
    else:
        problem = Problem(status, "request", str(error))
    return problems.response(problem)


def _bug(error: Exception) -> Problem:
    """Without the text of the error, which may quote what a task was given."""
    return Problem(500, "bug", f"this is a bug in taskgraph ({type(error).__name__}); the log of the server has more")


@asynccontextmanager
async def opened(
    app: App, gate: Gate, more: Sequence[More] = (), *, streams: bool = True
) -> AsyncGenerator[tuple[Starlette, Feeds]]:
    """The app, and what its clients follow: streams end when that is closed, or on leaving."""
    feeds = Feeds(app, streams=streams)
    async with feeds.open():
        yield make(app, gate, feeds, more), feeds
