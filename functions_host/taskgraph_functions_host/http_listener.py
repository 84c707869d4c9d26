"""Requests to HTTP triggers, on this machine: a port, the host's routes and keys, and the protocol's form of a request.

What this room is for: from a request to a call of the function whose route it fits, and from what that returns to an
answer. Like Azure's host it has the whole answer before the first byte is sent, and asks for a key where the function
says so. It knows nothing of what is behind a route.
"""

import base64
import hmac
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from taskgraph.interfaces.http.server import Address, bind, serve_until
from taskgraph.model.errors import InvalidSettings
from taskgraph.model.flag import Flag
from taskgraph_functions_host.local import Function

if TYPE_CHECKING:
    from taskgraph_functions_host.host import FunctionsHost

__all__ = ["KEY_VARIABLE", "HttpListener"]

KEY_VARIABLE: Final = "TASKGRAPH_FUNCTIONS_KEY"
"""The function key here; Azure makes its own."""

_BODY_BYTES_MAX: Final = 20_000_000  # as base64 it fits into a line to the worker


class HttpListener:
    """All HTTP triggers of an app, behind one port of 127.0.0.1. key: "" where there is none."""

    def __init__(self, host: "FunctionsHost", functions: Sequence[Function], port: int, key: str) -> None:
        self._host = host
        self._functions = functions
        self._key = key
        self._bound = bind(Address("127.0.0.1", port))
        self.address = str(Address("127.0.0.1", self._bound.getsockname()[1]))
        for each in functions:
            if each.level != "anonymous" and not key:
                raise InvalidSettings(f"{each.name} is called with a key: choose one, and set {KEY_VARIABLE} to it")

    async def run(self, stop: Flag) -> None:
        await serve_until(self, self._bound, stop)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, as an ASGI app."""
        await (await self._answer(Request(scope, receive)))(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        path = request.url.path
        function = next((each for each in self._functions if each.takes(request.method, path)), None)
        if function is None:
            return Response(status_code=404)
        query = {name: texts[-1] for name, texts in parse_qs(request.url.query, keep_blank_values=True).items()}
        given = request.headers.get("x-functions-key", query.get("code", ""))
        if function.level != "anonymous" and not hmac.compare_digest(given.encode(), self._key.encode()):
            return Response(status_code=401)
        body = bytearray()
        try:
            async for piece in request.stream():
                body += piece
                if len(body) > _BODY_BYTES_MAX:
                    return Response(status_code=413)
        except ClientDisconnect:
            return Response(status_code=400)
        said = {
            "method": request.method,
            "url": str(request.url),
            "headers": dict(request.headers),
            "query": query,
            "body": base64.b64encode(body).decode("ascii"),
        }
        answer = await self._host.call(function, {"http": said}, {}, f"{request.method} {path}")
        if not answer.succeeded or answer.http is None:
            return Response(status_code=503 if answer.error == "WorkerDied" else 500)
        return _response(answer.http)


def _response(made: dict[str, Any]) -> Response:
    own = {name: text for name, text in made["headers"].items() if name.lower() != "content-length"}
    return Response(base64.b64decode(made["body"]), made["status"], own)
