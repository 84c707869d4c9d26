"""The files of the page behind `/`: code alone and no data, so they are given without a token."""

import asyncio
import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from taskgraph.interfaces.app import App
from taskgraph.interfaces.http import problems
from taskgraph.interfaces.http.asgi import More
from taskgraph.interfaces.http.feeds import Feeds
from taskgraph.interfaces.http.gate import Gate
from taskgraph.interfaces.http.problems import Problem
from taskgraph.interfaces.web import carried

INDEX: Final = "index.html"
STATIC: Final = Path(__file__).parent / "static"
NOT_BUILT: Final = "the page is not built here: run scripts/web in the checkout (it needs Node.js)"
TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".gz": "application/gzip",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
    ".zip": "application/zip",
}
HASHED: Final = re.compile(r"-[A-Z0-9]{8}\.")
KEPT: Final = "public, max-age=31536000, immutable"
ASKED_AGAIN: Final = "no-cache"
"""Kept, and asked for again each time: the answer says whether it is another one."""

RULES: Final[Mapping[str, str]] = {
    "default-src": "'none'",
    "script-src": "'self' 'wasm-unsafe-eval'",
    "style-src": "'self'",
    "img-src": "'self' data:",
    "connect-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
    "require-trusted-types-for": "'script'",
    "trusted-types": "taskgraph",  # which makes the address of the page's own worker, and nothing else
}
POLICY: Final = "; ".join(f"{name} {value}" for name, value in RULES.items())
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def are_built() -> bool:
    return (STATIC / INDEX).exists()


def _index(app: App, gate: Gate, feeds: Feeds) -> Route:
    async def index(request: Request) -> Response:
        return _answer(request, INDEX)

    return Route("/", index, methods=())


def _file(app: App, gate: Gate, feeds: Feeds) -> Route:
    async def file(request: Request) -> Response:
        name = request.path_params["name"]
        return await _python(request) if name == carried.NAME and are_built() else _answer(request, name)

    return Route("/{name}", file, methods=())


ROUTES: Final[Sequence[More]] = (_index, _file)
"""Behind all others. A link on another site may lead here, so they ask no gate."""


async def _python(request: Request) -> Response:
    data = await asyncio.to_thread(carried.zipped)
    tag = f'"{hashlib.sha256(data).hexdigest()[:32]}"'
    headers = {**HEADERS, "Cache-Control": ASKED_AGAIN, "ETag": tag}
    if (refusal := _method(request)) is not None:
        return refusal
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(data, headers=headers, media_type=TYPES[".zip"])


def _method(request: Request) -> Response | None:
    if request.method in ("GET", "HEAD"):
        return None
    allowed = {"Allow": "GET, HEAD"}
    return problems.response(Problem(405, "method", f"{request.method} is none of GET, HEAD", headers=allowed))


def _answer(request: Request, name: str) -> Response:
    place = STATIC / name
    if name == INDEX and not are_built():
        return problems.response(Problem(404, "no-page", f"{NOT_BUILT}. The API is at /api/v1"))
    if place.parent != STATIC or place.suffix not in TYPES or not place.is_file():
        raise HTTPException(404)
    if (refusal := _method(request)) is not None:
        return refusal
    keep = KEPT if HASHED.search(name) else "no-store"
    return FileResponse(place, media_type=TYPES[place.suffix], headers={**HEADERS, "Cache-Control": keep})
