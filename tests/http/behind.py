"""A client over HTTP as if it were over the store: for tests of clients, which also run graphs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from taskgraph import Client
from taskgraph.interfaces.app import App
from taskgraph.model.clock import Clock
from taskgraph.model.roles import Role
from taskgraph.queries.values import GraphStatus
from tests.http.serving import serving


class BehindServer(Client):
    """A client over HTTP. What takes the store itself, running a graph, is done beside it, over `direct`."""

    direct: Client

    async def run(self, graph: Any, graph_id: str | None = None, **more: Any) -> GraphStatus:
        found = await self.direct.run(graph, graph_id, **more)
        return await self.status(found.graph_id)


@asynccontextmanager
async def behind_server(store: str, folder: Path, clock: Clock | None = None) -> AsyncIterator[BehindServer]:
    """Over a server that only answers: whether a graph is handled is up to the test."""
    async with (
        serving(store, folder, anonymous=False, slots=0, handles=False, clock=clock) as server,
        Client(server.app.settings, clock=clock) as direct,
        BehindServer(server.address, clock=clock, token=server.tokens[Role.ADMIN]) as client,
    ):
        client.direct = direct
        yield client


def store_of(client: Client) -> App:
    """The store of a client itself, for handlers and workers of the test."""
    return client.direct.app if isinstance(client, BehindServer) else client.app
