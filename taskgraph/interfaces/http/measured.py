"""Telemetry of every request, whichever API it asks: in front of the routes, and there only where telemetry is on."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from taskgraph.engine.telemetry import STREAM, Answering, Telemetry, trace_of

ANSWERING: Final = "taskgraph.answering"
"""Key of the scope: the `Answering`, for what knows more about the request."""

_METHODS: Final = frozenset(("CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"))
_OTHER: Final = "_OTHER"  # OpenTelemetry's name for all others: a sender could make up any number of them


def patterns(routes: Sequence[BaseRoute], above: str = "") -> dict[Any, str]:
    """The paths of these routes, with the names of their parts, by endpoint."""
    found: dict[Any, str] = {}
    for each in routes:
        if isinstance(each, Mount):
            found |= patterns(each.routes, above + each.path)
        elif isinstance(each, Route):
            found[each.endpoint] = above + each.path
    return found


class Measured:
    """ASGI middleware. Of a request it sees the method, the route and the trace: no path, query, header or body."""

    def __init__(self, app: ASGIApp, telemetry: Telemetry, patterns: Mapping[Any, str]) -> None:
        self._app = app
        self._telemetry = telemetry
        self._patterns = patterns

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        method = scope["method"] if scope["method"] in _METHODS else _OTHER
        named = next((value for name, value in scope["headers"] if name == b"traceparent"), b"")
        scope[ANSWERING] = one = Answering(method, scope["scheme"], trace_of(named.decode("latin-1")))

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                one.status, one.route = message["status"], self._patterns.get(scope.get("endpoint"), "")
                if one.kind == STREAM:
                    self._telemetry.answered(one)
            await send(message)

        with self._telemetry.answering(one):
            await self._app(scope, receive, sent)
