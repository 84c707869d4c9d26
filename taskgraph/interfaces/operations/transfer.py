"""Bring a live graph to another store, have it stay, or let it live where its old store is lost."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from taskgraph.engine import transfer as moving
from taskgraph.engine.progress import Progress, no_progress
from taskgraph.interfaces.app import App
from taskgraph.interfaces.operations.checks import asked_by
from taskgraph.interfaces.operations.waiting import poll
from taskgraph.interfaces.settings import DEFAULT_PREFIX, StoreSettings
from taskgraph.model.errors import InvalidInput
from taskgraph.model.flag import Flag
from taskgraph.queries.lookup import check_graph_id

_GO_ON_SECONDS: Final = 5.0  # between two looks for leases that have ended
_LEASE_SECONDS: Final = 15.0  # of messages, where no other process handles them
_WHY: Final = "its graph goes to another store"


@dataclass(frozen=True, slots=True)
class Transferred:
    """state: of the graph in the store, where it lives now. rows, files: brought there. already: it was there."""

    graph_id: str
    state: str
    store: str
    rows: int = 0
    files: int = 0
    already: bool = False
    stays: bool = False

    def answer(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "graphId": self.graph_id,
            "state": self.state,
            "store": self.store,
            "rows": self.rows,
            "files": self.files,
            "already": self.already,
            "stays": self.stays,
        }


def place_of(settings: StoreSettings) -> str:
    """A store as rows name it: the same from every folder, and without a key."""
    place = f"sqlite:///{settings.path.resolve()}" if settings.path is not None else settings.display
    return place if settings.prefix == DEFAULT_PREFIX else f"{place} ({settings.prefix})"


def side_of(app: App) -> moving.Side:
    app.check_direct("moving a graph")
    return moving.Side(app.handlers, app.logs, place_of(app.settings))


async def transfer(
    app: App,
    other: App,
    graph_id: str,
    *,
    at_once: bool = False,
    until: float | None = None,
    waits_for: Callable[[Sequence[str]], object] = lambda labels: None,
    progress: Progress = no_progress,
) -> Transferred | None:
    """Bring a graph from the store of `app` to that of `other`, or go on with that; None when `until` comes first.

    Then the graph is still held back, and the same call goes on. at_once: what runs is not waited for; it is taken from
    its workers, and begins anew there. waits_for: called with the labels of what runs, when these change.
    Raises NoGraph, and Refused where the graph cannot go there.
    """
    check_graph_id(graph_id)
    source, target = side_of(app), side_of(other)
    if source.name == target.name:
        raise InvalidInput(f"graph {graph_id} is in {target.name}: name another store")
    by = asked_by()
    await moving.check(source, target, graph_id)
    await moving.hold(source, graph_id, target.name, by)
    seen: list[str] = []
    went_on = app.clock.monotonic()

    async def look() -> bool:
        nonlocal seen, went_on
        if at_once:
            await moving.give_up_runs(source, graph_id, _WHY)
        running, settling = await moving.under_way(source, graph_id)
        labels = sorted(str(row.columns.get("label", "")) for row in running)
        if labels != seen:
            waits_for(labels)
            seen = labels
        if settling or app.clock.monotonic() - went_on >= _GO_ON_SECONDS:
            await moving.go_on(source, graph_id)
            await moving.hold(source, graph_id, target.name, by)
            went_on = app.clock.monotonic()
        return not running and not settling

    async with _handled(app):
        if not await poll(look, app.clock, until=until):
            return None
    done = await moving.move(source, target, graph_id, by=by, progress=progress)
    return Transferred(graph_id, done.state, target.name, done.rows, done.files, done.again)


@contextlib.asynccontextmanager
async def _handled(app: App) -> AsyncIterator[None]:
    """While no other process handles the results of what runs, this one does."""
    if (await app.crew()).handled:
        yield
        return
    stop = Flag()
    handling = asyncio.create_task(app.consumer(lease_seconds=_LEASE_SECONDS).run(stop))
    try:
        yield
    finally:
        stop.set()
        await handling


async def stay(app: App, other: App | None, graph_id: str) -> Transferred:
    """Have a graph stay that is on its way to the store of `other`, or about to be; what has come there is taken away.

    Raises NoGraph, and Refused for one that has moved.
    """
    check_graph_id(graph_id)
    source = side_of(app)
    state = await moving.stay(source, graph_id, side_of(other) if other is not None else None, asked_by())
    return Transferred(graph_id, state, source.name, stays=True)


async def abandon_source(other: App, graph_id: str) -> Transferred:
    """Let a graph live that is whole in the store of `other`, by the word of a person that the one it left is lost.

    Raises NoGraph, and Refused where it is not on its way there, or not whole.
    """
    check_graph_id(graph_id)
    target = side_of(other)
    done = await moving.abandon(target, graph_id, asked_by())
    return Transferred(graph_id, done.state, target.name)
