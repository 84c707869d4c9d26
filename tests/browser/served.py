"""A server with its page in a thread of its own, over a store with graphs that have run."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from taskgraph.interfaces.web import files
from taskgraph.model.roles import Role
from tests.browser.documents import ANSWERS, CHANGES, DOCUMENTS, SCHEDULES
from tests.browser.sources import Source
from tests.http.serving import Server, apart, serving

Fill = Callable[[Server], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Served(Source):
    """token: of an admin. store: what commands name it by, with its prefix."""

    token: str
    store: str
    prefix: str


@contextmanager
def served(store: str, folder: Path, fill: Fill, **more: Any) -> Iterator[Served]:
    """fill: what the store gets before. more: see `serving`."""
    assert files.are_built(), files.NOT_BUILT

    @asynccontextmanager
    async def filled() -> AsyncIterator[Served]:
        async with serving(store, folder, anonymous=False, **more) as server:
            await fill(server)
            token, prefix = server.tokens[Role.ADMIN], server.app.settings.prefix
            yield Served(
                kind="api", address=server.address, opening=f"#token={token}", token=token, store=store, prefix=prefix
            )

    with apart(filled()) as found:
        yield found


async def _sent(server: Server, method: str, path: str, body: Any, role: Role = Role.ADMIN) -> Any:
    answer = await server.ask(method, path, data=json.dumps(body), token=server.tokens[role])
    assert answer.status in (200, 201, 202), answer
    return answer.json


def graphs(documents: Mapping[str, Any], *, end: bool = True) -> Fill:
    """Submits these documents, by the ids of their graphs. end: waits until nothing of them moves."""

    async def fill(server: Server) -> None:
        for graph_id, document in documents.items():
            await _sent(server, "PUT", f"/graphs/{graph_id}", document)
        for graph_id in documents if end else ():
            await server.ended(graph_id)

    return fill


async def everything(server: Server) -> None:
    """The graphs of `DOCUMENTS` as they have ended, with what workers from elsewhere and people have said of them."""
    await graphs(DOCUMENTS, end=False)(server)
    for name, schedule in SCHEDULES.items():
        await _sent(server, "PUT", f"/schedules/{name}", schedule)
    claimed = 0
    while claimed < len(ANSWERS):
        work = await _sent(
            server, "POST", "/targets/far:claim", {"worker": "far-1", "slots": 2, "wait": 20}, Role.WORKER
        )
        for each in work["tasks"]:
            verb, body = ANSWERS[each["label"]]
            await _sent(server, "POST", f"/runs/{each['claim']}:{verb}", body, Role.WORKER)
        claimed += len(work["tasks"])
    for graph_id in DOCUMENTS:
        await server.ended(graph_id)
    for graph_id, changes in CHANGES.items():
        for change in changes:
            await _sent(server, "POST", f"/graphs/{graph_id}/changes?unguarded=1", change)
        await server.ended(graph_id)
