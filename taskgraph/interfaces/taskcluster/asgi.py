"""The methods of old clients as an ASGI app, which is mounted beside the API, under /v1."""

import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route

from taskgraph.documents.read import read_json
from taskgraph.interfaces.app import App
from taskgraph.interfaces.http.asked import ANONYMOUS, Asked
from taskgraph.interfaces.http.feeds import Feeds
from taskgraph.interfaces.http.gate import Gate
from taskgraph.interfaces.operations.checks import asking
from taskgraph.interfaces.taskcluster import documents, errors
from taskgraph.interfaces.taskcluster.call import BASE, Call, Json
from taskgraph.interfaces.taskcluster.errors import CallError
from taskgraph.interfaces.taskcluster.hawk import Hawk
from taskgraph.interfaces.taskcluster.methods import METHODS, Method
from taskgraph.model import schemas
from taskgraph.model.errors import TaskgraphError

log = logging.getLogger("taskgraph.taskcluster")

_HEADERS: Final = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}

Endpoint = Callable[[Request], Awaitable[Response]]


def mount(app: App, gate: Gate, feeds: Feeds, *, anonymous: bool, notify: Mapping[str, Any] | None = None) -> Mount:
    """anonymous: no signature is looked at. notify: of graphs that old clients create."""
    door = _Door(app, gate, feeds, Hawk(app, anonymous=anonymous), notify or {})
    by_path: dict[str, dict[str, Method]] = {}
    for each in METHODS:
        by_path.setdefault(each.route, {})[each.method] = each
    routes = [Route(path, door.endpoint(methods), methods=[*methods]) for path, methods in by_path.items()]
    routes.append(Route("/ping", door.open(door.ping)))
    routes.append(Route("/schemas/{name}.json", door.open(_schema)))
    return Mount(BASE, Starlette(routes=routes, exception_handlers={HTTPException: _no_route}))


class _Door:
    def __init__(self, app: App, gate: Gate, feeds: Feeds, hawk: Hawk, notify: Mapping[str, Any]) -> None:
        self._app = app
        self._gate = gate
        self._feeds = feeds
        self._hawk = hawk
        self._notify = notify
        self._begun = app.clock.monotonic()

    def endpoint(self, methods: Mapping[str, Method]) -> Endpoint:
        async def answer(request: Request) -> Response:
            return await self._answered(request, methods["GET" if request.method == "HEAD" else request.method])

        return answer

    def open(self, make: Callable[[Request], Json]) -> Endpoint:
        """An endpoint for everyone."""

        async def answer(request: Request) -> Response:
            try:
                self._gate.check_host(request)
                return JSONResponse(make(request), headers=_HEADERS)
            except TaskgraphError as error:
                return errors.response(error)

        return answer

    def ping(self, request: Request) -> Json:
        return {"alive": True, "uptime": self._app.clock.monotonic() - self._begun}

    async def _answered(self, request: Request, method: Method) -> Response:
        try:
            self._gate.check_host(request)
            made = await self._called(request, method)
            response = made if isinstance(made, Response) else JSONResponse(made)
        except TaskgraphError as error:  # reach: http
            response = errors.response(error)
            if response.status_code >= 500:
                log.warning("%s %s: %s", request.method, request.url.path, error)
        except Exception as error:  # reach: http
            log.exception("this is a bug in taskgraph, please report it: %s %s", request.method, request.url.path)
            bug = f"this is a bug in taskgraph ({type(error).__name__}); the log of the server has more"
            response = errors.response(CallError(500, bug))
        response.headers.update(_HEADERS)
        return response

    async def _called(self, request: Request, method: Method) -> Any:
        asked = Asked(self._app, self._feeds, request, request.path_params, request.query_params, ANONYMOUS)
        data = await asked.body()
        sender = await self._hawk.sender(request, data)
        if sender is None:
            raise CallError(401, "Authentication Failed", {"info": f"{method.name} must be signed", "scopesets": []})
        self._gate.spend(sender.who)
        if method.role is not None and not sender.who.role.may(method.role):
            info = f"{method.name} needs the role {method.role}; the token {sender.who.name} is a {sender.who.role}'s"
            raise CallError(401, "Authorization Failed", {"info": info, "scopesets": []})
        body = read_json(data, source="body") if data else None
        if method.takes:
            body = documents.check(body, method.takes)
        call = Call(replace(asked, who=sender.who), body, sender, self._notify)
        call.demand([_filled(each, call.path) for each in method.scopes])
        with asking(sender.who.name):
            return await method.call(call)


def _filled(scope: str, path: Mapping[str, str]) -> str:
    return re.sub(r"<(\w+)>", lambda part: path[part[1]], scope)


def _schema(request: Request) -> Json:
    """One schema by its name, with what it refers to. Raises CallError."""
    name, whole = request.path_params["name"], schemas.schema("taskcluster")
    if name not in whole["$defs"]:
        raise CallError(404, f"there is no schema {name[:100]}: {', '.join(whole['$defs'])}")
    return {"$schema": whole["$schema"], "$ref": f"#/$defs/{name}", "$defs": whole["$defs"]}


async def _no_route(request: Request, error: Exception) -> Response:
    """Of Starlette itself: no such path, or not with this method."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    return errors.response(CallError(status, f"there is no {request.method} {request.url.path[:200]}"))
