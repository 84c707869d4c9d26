"""End tombstones and graphs for their age, and forget cached runs that are gone, a portion at each look."""

import contextlib
from collections.abc import AsyncGenerator, Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from taskgraph.engine import clock_trust
from taskgraph.engine.delete import delete, graph_row, remove_once, sweep_beside
from taskgraph.engine.handlers import Handlers
from taskgraph.engine.live_index import insert_once, leave_live
from taskgraph.model import limits
from taskgraph.model.columns import Columns, time_of
from taskgraph.model.errors import Conflict, NotFound, Refused, Unclear
from taskgraph.model.ids import GRAPH
from taskgraph.model.names import ALL, CACHE, KEEPING, TOMBSTONES, listing_key
from taskgraph.model.states import GRAPH_ENDED, GRAPH_GONE, GraphState
from taskgraph.storage.logs import StoredLogs
from taskgraph.storage.tables import Delete, Merge, Page, Range, Row, pages

_KEY_OF_PLACE: Final = "place"
_PLACE_IN_CACHE: Final = "place-in-cache"


@dataclass(slots=True)
class Kept:
    """What one call has deleted. more: there may be more to delete now."""

    deleted: list[str] = field(default_factory=list)
    tombstones: int = 0
    more: bool = False
    failed: list[str] = field(default_factory=list)

    @property
    def did_something(self) -> bool:
        return bool(self.deleted or self.tombstones or self.failed)


async def keep_house(handlers: Handlers, logs: StoredLogs, *, keep_days: float | None = None) -> Kept:
    """Delete graphs that ended more than `keep_days` ago (None: no graphs), and tombstones whose time is over.

    A bounded number of each; the look at graphs goes on where the last one stopped. Nothing is deleted by a clock that
    cannot be trusted (see `engine.clock_trust`).
    """
    kept = Kept()
    await _forget_runs(handlers)
    if not await clock_trust.note(handlers.records.tables, handlers.clock.now()):
        return kept
    await _end_tombstones(handlers, logs, kept)
    if keep_days is not None:
        await _end_graphs(handlers, logs, keep_days, kept)
    return kept


async def _forget_runs(handlers: Handlers) -> None:
    """Take runs off the cache whose graph is gone, so that it does not grow for ever.

    Mostly one page is all of it, and then no place is remembered.
    """
    tables, place = handlers.records.tables, None
    page = await tables.query(CACHE, Range(select=("graph",)), limit=limits.KEEP_GRAPHS_MAX)
    if page.continuation is not None:
        (place,) = await tables.get(KEEPING, [_PLACE_IN_CACHE])
        if place is not None and (start := str(place.columns.get("after", ""))):
            page = await tables.query(CACHE, Range(start, select=("graph",)), limit=limits.KEEP_GRAPHS_MAX)
    gone: dict[str, bool] = {}
    for row in page.rows:
        graph_id = str(row.columns.get("graph", ""))
        if graph_id not in gone:
            graph = await graph_row(handlers, graph_id)
            gone[graph_id] = graph is None or graph.columns.get("state") in GRAPH_GONE
        if gone[graph_id]:
            with contextlib.suppress(Conflict, Unclear):  # a later run has taken its place  # reach: deletion
                await tables.commit(CACHE, [Delete(row.key, row.etag)])
    await _remember(handlers, _PLACE_IN_CACHE, place, _after(page))


def _after(page: Page) -> str:
    """Where the next look goes on, "" for the beginning."""
    return f"{page.rows[-1].key}!" if page.rows and page.continuation is not None else ""


async def _remember(handlers: Handlers, key: str, place: Row | None, after: str) -> None:
    tables = handlers.records.tables
    if place is None and after:
        await insert_once(tables, KEEPING, key, {"after": after})
    elif place is not None and place.columns.get("after") != after:
        with contextlib.suppress(Conflict, Unclear):  # another process goes through the list, too  # reach: deletion
            await tables.commit(KEEPING, [Merge(place.key, place.etag, {"after": after})])


async def _end_tombstones(handlers: Handlers, logs: StoredLogs, kept: Kept) -> None:
    tables, now = handlers.records.tables, handlers.clock.now()
    over = Range("", f"{int(now.timestamp() * 1000):015d}")
    page = await tables.query(TOMBSTONES, over, limit=limits.KEEP_GRAPHS_MAX)
    for row in page.rows:
        graph_id = str(row.columns.get("graph", ""))
        try:
            await _end_tombstone(handlers, logs, graph_id, now)
            await remove_once(handlers, TOMBSTONES, row.key)
            kept.tombstones += 1
        except Conflict as conflict:  # others delete it, too  # reach: deletion
            kept.failed.append(f"{graph_id}: {conflict}")
    kept.more = kept.more or page.continuation is not None


async def _end_tombstone(handlers: Handlers, logs: StoredLogs, graph_id: str, now: datetime) -> None:
    graph = await graph_row(handlers, graph_id)
    until = time_of(graph.columns, "until") if graph is not None else None
    if graph is None or graph.columns.get("state") != GraphState.DELETED or until is None or until > now:
        return  # it was put back, or deleted again
    row = await sweep_beside(handlers, logs, graph_id, graph)
    await leave_live(handlers.records, graph_id)
    try:
        await handlers.records.tables.commit(graph_id, [Delete(GRAPH, row.etag)])
    except Unclear as unclear:  # reach: deletion
        if await graph_row(handlers, graph_id) is not None:
            raise Conflict("the commit was lost on its way") from unclear


async def _end_graphs(handlers: Handlers, logs: StoredLogs, days: float, kept: Kept) -> None:
    """Go through the list from the newest graph that may be old enough to the oldest, a part in each call.

    As a rule a part is the whole list, since deleted graphs are not in it, and no place is remembered.
    """
    tables = handlers.records.tables
    before = handlers.clock.now() - timedelta(days=days)
    (place,) = await tables.get(KEEPING, [_KEY_OF_PLACE])
    start = max(str(place.columns.get("after", "")) if place is not None else "", listing_key("", before))
    page = await tables.query(ALL, Range(start, select=("graph",)), limit=limits.KEEP_GRAPHS_MAX)
    because = f"kept for {days:g} days"
    for graph_id, columns in reversed(await _graphs(handlers, page.rows)):
        if (end := ended_at(columns)) is None or end >= before:
            continue
        try:
            await delete(handlers, logs, graph_id, because=because)
            kept.deleted.append(graph_id)
        except (NotFound, Refused):
            continue  # others did, or it was rerun meanwhile
        except Conflict as conflict:  # reach: deletion
            kept.failed.append(f"{graph_id}: {conflict}")
    after = _after(page)
    kept.more = kept.more or bool(after and kept.deleted)
    await _remember(handlers, _KEY_OF_PLACE, place, after)


async def ended_before(
    handlers: Handlers, before: datetime, states: Collection[str] = GRAPH_ENDED
) -> AsyncGenerator[tuple[str, str, datetime]]:
    """Graphs in one of these states (of GRAPH_ENDED, or blocked) since before a time: id, state, since when."""
    async for page in pages(handlers.records.tables, ALL, Range(listing_key("", before), select=("graph",))):
        for graph_id, columns in await _graphs(handlers, page.rows):
            state = str(columns.get("state", ""))
            end = time_of(columns, "blocked") if state == GraphState.BLOCKED else ended_at(columns)
            if state in states and end is not None and end < before:
                yield graph_id, state, end


async def _graphs(handlers: Handlers, listed: Sequence[Row]) -> list[tuple[str, Columns]]:
    """The columns of the rows of listed graphs, without graphs that are gone."""
    ids = [graph_id for each in listed if (graph_id := str(each.columns.get("graph", "")))]
    found = [(graph_id, await graph_row(handlers, graph_id)) for graph_id in ids]
    return [(graph_id, row.columns) for graph_id, row in found if row is not None]


def ended_at(columns: Columns) -> datetime | None:
    if columns.get("state") not in GRAPH_ENDED:
        return None
    ends = ("finished", "cancelled", "restored")  # an old graph that is put back is kept for as long again
    found = [end for name in ends if (end := time_of(columns, name)) is not None]
    if found:
        return max(found)
    created = time_of(columns, "created")  # all that is left of a submission that was given up
    return created + timedelta(seconds=limits.ABANDONED_SECONDS) if created is not None else None
