"""Rows outside of graphs: the index of graphs that the sweep looks at, and the rows of the list of all.

A graph is named in that index before anything about it can be lost, and leaves when it has ended and no request for it
is open.
"""

import contextlib
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from taskgraph.engine import clock_trust
from taskgraph.engine.commit import Records, name_in
from taskgraph.model.columns import Columns, integer, object_of, time_of
from taskgraph.model.errors import Conflict, Unclear
from taskgraph.model.ids import GRAPH
from taskgraph.model.json_strict import canonical_json
from taskgraph.model.names import ALL, LIVE, listing_key
from taskgraph.model.states import GRAPH_LIVE
from taskgraph.storage.tables import Delete, Insert, Range, Row, Tables, query_all

ORPHAN_SECONDS: Final = 3600.0  # an entry of an index without a graph row is dropped after so long
_TAGS_LISTED_CHARS_MAX: Final = 1_000  # in the list of all graphs; longer ones are on the row of the graph alone


async def insert_once(tables: Tables, partition: str, key: str, columns: Columns) -> None:
    """Insert a row that may be there already."""
    try:
        await tables.commit(partition, [Insert(key, columns)])
    except Conflict:  # reach: deletion
        return  # it is there
    except Unclear:  # reach: deletion
        (row,) = await tables.get(partition, [key])
        if row is None:
            raise


def listing_columns(
    graph_id: str, created: datetime, metadata: Mapping[str, Any], tags: Mapping[str, Any], tasks: int
) -> Columns:
    """The entry of a graph in the list of all graphs. It has what lists are filtered by: none reads all graph rows."""
    listed: Columns = {"graph": graph_id, "created": created, "name": str(metadata.get("name", "")), "tasks": tasks}
    written = canonical_json(tags)
    return {**listed, "tags": written} if len(written) <= _TAGS_LISTED_CHARS_MAX else listed


def listing_row(graph_id: str, graph: Columns) -> Insert | None:
    """The row of the list of all graphs, from the graph's row; None where that has no time."""
    created = time_of(graph, "created")
    if created is None:
        return None
    metadata, tags = object_of(graph, "metadata"), object_of(graph, "tags")
    listed = listing_columns(graph_id, created, metadata, tags, integer(graph, "tasks"))
    return Insert(listing_key(graph_id, created), listed)


async def unlist(tables: Tables, key: str) -> None:
    """Take an entry off the list of all graphs whose graph has not come to be. Repeatable."""
    (row,) = await tables.get(ALL, [key])
    if row is not None:
        # Another call did, or this one; otherwise lists leave it out.
        with contextlib.suppress(Conflict, Unclear):  # reach: lists
            await tables.commit(ALL, [Delete(key, row.etag)])


async def enter_live(records: Records, graph_id: str, now: datetime | None = None) -> str:
    """Name the graph in the index; gives the etag of its entry, "" if that is not known. Repeatable."""
    return await name_in(records.tables, LIVE, graph_id, now or records.clock.now())


async def leave_live(records: Records, graph_id: str, known: str = "") -> None:
    """Take the graph off the index, unless the sweep has to look at it again. Repeatable.

    The entry is read before the graph and its requests, and every writer that makes the graph live enters it after
    that: such a write in between is a conflict here, and the entry stays. known: its etag from before all that.
    """
    tables, etag = records.tables, known
    if not etag:
        (entry,) = await tables.get(LIVE, [graph_id])
        if entry is None:
            return
        etag = entry.etag
    # The graph row comes right behind the requests: one query covers both.
    holds = Range("request:", f"{GRAPH}!", where={"state": ("staged", "accepted", *GRAPH_LIVE)}, select=("state",))
    if await query_all(tables, graph_id, holds):
        return  # late requests are answered by the sweep first
    try:
        await tables.commit(LIVE, [Delete(graph_id, etag)])
    except (Conflict, Unclear) as error:  # it was left, or entered anew: the sweep looks again
        if known and isinstance(error, Conflict):
            await leave_live(records, graph_id)


async def drop_orphan(tables: Tables, index: str, entry: Row | None, now: datetime) -> bool:
    """Take an entry without a graph off an index, once it is old: before that, its submission may go on.

    What that has put on the list of all graphs, as of the same moment, goes with it.
    """
    since = time_of(entry.columns, "since") if entry is not None else None
    if entry is None or since is None or now - since <= timedelta(seconds=ORPHAN_SECONDS):
        return False
    if not await clock_trust.may_end(tables, now):
        return False
    if index == LIVE:
        await unlist(tables, listing_key(entry.key, since))
    try:
        await tables.commit(index, [Delete(entry.key, entry.etag)])
    except (Conflict, Unclear):  # reach: notices
        return False  # the next round looks again
    return True
