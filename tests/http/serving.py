"""A server of the HTTP API over a store, with handlers and a worker in this process, and a client to ask it."""

import asyncio
import io
import json
import queue
import secrets
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import aiohttp

from taskgraph.engine.telemetry import Telemetry
from taskgraph.interfaces import loops, one_graph
from taskgraph.interfaces.app import App, open_app
from taskgraph.interfaces.http import server
from taskgraph.interfaces.http.entra import EntraSettings
from taskgraph.interfaces.operations import tokens
from taskgraph.interfaces.settings import read_settings
from taskgraph.interfaces.taskcluster import documents
from taskgraph.interfaces.taskcluster.asgi import mount
from taskgraph.interfaces.web import files
from taskgraph.model import schemas
from taskgraph.model.clock import Clock
from taskgraph.model.flag import Flag
from taskgraph.model.roles import Role
from taskgraph.worker.executors import built_in

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Any
    data: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.data, parse_constant=_refuse)

    @property
    def code(self) -> str:
        """The word of a problem."""
        assert self.headers["content-type"] == "application/problem+json", self
        return str(self.json["code"])


def _refuse(text: str) -> None:
    raise ValueError(f"{text} is no JSON")


@dataclass(slots=True)
class Server:
    app: App
    address: str
    session: aiohttp.ClientSession
    stop: Flag
    tokens: dict[Role, str] = field(default_factory=dict)

    async def ask(
        self, method: str, path: str, *, data: Any = None, token: str | None = None, **headers: str
    ) -> Answer:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if token is not None:
            named["Authorization"] = f"Bearer {token}"
        url = f"{self.address}/api/v1{path}"
        body: dict[str, Any] = {"json": data}
        if not isinstance(data, dict | list):
            body = {"data": io.BytesIO(data.encode() if isinstance(data, str) else data) if data is not None else None}
            named = {"Content-Type": "application/json", **named} if data is not None else named
        async with self.session.request(method, url, headers=named, **body) as answer:
            return Answer(answer.status, answer.headers, await answer.read())

    async def get(self, path: str, **headers: str) -> Answer:
        return await self.ask("GET", path, **headers)

    async def ended(self, graph_id: str) -> str:
        """The state of a graph, once it has ended or nothing of it moves."""
        return str(await one_graph.wait_for_end(self.app, graph_id, until=self.app.clock.monotonic() + 30))


@asynccontextmanager
async def serving(
    store: str,
    folder: Path,
    *,
    anonymous: bool = True,
    rate: float = 0.0,
    slots: int = 2,
    handles: bool = True,
    old_clients: bool = False,
    exchanges: str = "",
    entra: EntraSettings | None = None,
    clock: Clock | None = None,
    telemetry: Telemetry | None = None,
) -> AsyncIterator[Server]:
    """anonymous: without tokens; otherwise there is one for each role. handles: events, with a worker of `slots`.

    old_clients: those of TaskCluster are served. exchanges: the queue of the messages about their graphs.
    """
    environ = {"TASKGRAPH_PREFIX": f"t{secrets.token_hex(6)}"} if not store.startswith("sqlite:") else {}
    settings = read_settings(store, environ, cwd=folder)
    async with open_app(settings, clock=clock, telemetry=telemetry) as app:
        made = (
            {}
            if anonymous
            else {role: (await tokens.create(app, str(role), role, hawk=old_clients))[1] for role in Role}
        )
        notify = documents.exchanges(exchanges) if exchanges else {}
        more = [*([partial(mount, anonymous=anonymous, notify=notify)] if old_clients else []), *files.ROUTES]
        address = server.read_address("0")
        listening = await server.open_port(app, address, anonymous=anonymous, rate=rate, entra=entra, more=more)
        stop = Flag()
        workers = [app.worker(built_in(app.clock), slots=slots)] if slots else []
        answer = partial(listening.run, app, stop)
        serving = loops.serve(app, stop, workers=workers, others=[answer]) if handles else answer()
        serve = asyncio.create_task(serving)
        try:
            async with aiohttp.ClientSession(auto_decompress=True) as session:
                yield Server(app, str(listening.address), session, stop, made)
        finally:
            stop.set()
            await serve


@contextmanager
def apart(served: AbstractAsyncContextManager[T]) -> Iterator[T]:
    """What a server gives, in a thread and an event loop of its own, for tests that block."""
    made: queue.Queue[T | BaseException] = queue.Queue()
    stop = threading.Event()

    async def serve() -> None:
        async with served as found:
            made.put(found)
            await asyncio.to_thread(stop.wait)

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:
            made.put(error)
            raise

    thread = threading.Thread(target=run)
    thread.start()
    try:
        found = made.get(timeout=120)
        if isinstance(found, BaseException):
            raise found
        yield found
    finally:
        stop.set()
        thread.join()


def shape_errors(name: str, value: object) -> list[str]:
    """What of an answer is not as schemas/answers.json says."""
    return [error.message[:300] for error in schemas.validator("answers", f"#/$defs/{name}").iter_errors(value)]
