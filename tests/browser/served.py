"""A server with its page in a thread of its own, over a store with graphs that have run."""

import asyncio
import json
import queue
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from taskgraph.interfaces.web import files
from taskgraph.model.roles import Role
from tests.http.serving import Server, serving

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
    made: queue.Queue[Served | BaseException] = queue.Queue()
    stop = threading.Event()

    async def serve() -> None:
        async with serving(store, folder, anonymous=False, **more) as server:
            await fill(server)
            made.put(Served(server.address, server.tokens[Role.ADMIN]))
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
        begun = made.get(timeout=120)
        if isinstance(begun, BaseException):
            raise begun
        yield begun
    finally:
        stop.set()
        thread.join()


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
