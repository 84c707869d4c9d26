"""The API without a port: requests that a program answers itself."""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote

from starlette.types import ASGIApp, Message

from taskgraph.interfaces.http.routes import BASE

HOST: Final = "tab"


class InProcess:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def ask(
        self, method: str, path: str, body: str = "", headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        """Status and body. path: behind `/api/v1`, encoded, with its query. body: JSON, "" for none."""
        place, _, query = path.partition("?")
        given = {"host": HOST, "content-type": "application/json", **(headers or {})}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(f"{BASE}{place}"),
            "raw_path": f"{BASE}{place}".encode(),
            "root_path": "",
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in given.items()],
            "server": (HOST, 80),
            "client": None,
        }
        status, pieces = 500, [b""]

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body.encode(), "more_body": False}

        async def send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                pieces.append(message.get("body", b""))

        await self._app(scope, receive, send)
        return status, b"".join(pieces)
