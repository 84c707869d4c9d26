"""A server with its page in a thread of its own, over a store with graphs that have run."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from taskgraph.interfaces.web import files
from taskgraph.model.roles import Role
from tests.http.serving import Server, apart, serving

Fill = Callable[[Server], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Served:
    """address: of the page. token: of an admin."""

    address: str
    token: str

    def at(self, route: str) -> str:
        return f"{self.address}/{route}"


@contextmanager
def served(store: str, folder: Path, fill: Fill, **more: Any) -> Iterator[Served]:
    """fill: what the store gets before. more: see `serving`."""
    assert files.are_built(), files.NOT_BUILT

    @asynccontextmanager
    async def filled() -> AsyncIterator[Served]:
        async with serving(store, folder, anonymous=False, **more) as server:
            await fill(server)
            yield Served(server.address, server.tokens[Role.ADMIN])

    with apart(filled()) as found:
        yield found


def graphs(documents: Mapping[str, Any], *, end: bool = True) -> Fill:
    """Submits these documents, by the ids of their graphs. end: waits until nothing of them moves."""

    async def fill(server: Server) -> None:
        token = server.tokens[Role.ADMIN]
        for graph_id, document in documents.items():
            answer = await server.ask("PUT", f"/graphs/{graph_id}", data=json.dumps(document), token=token)
            assert answer.status in (200, 201), answer
        for graph_id in documents if end else ():
            await server.ended(graph_id)

    return fill
