"""The index of graphs that the sweep looks at: when a graph enters it, and may leave; the rows of the list of all.

A graph is named there before anything about it can be lost, and leaves when it has ended and no request for it is open.
"""

import json
from datetime import datetime
from typing import Final

from taskgraph.engine.commit import Records, name_in
from taskgraph.model.columns import Columns, integer
from taskgraph.model.errors import Conflict, Unclear
from taskgraph.model.ids import GRAPH
from taskgraph.model.names import LIVE, listing_key
from taskgraph.model.states import GRAPH_ENDED, GraphState
from taskgraph.storage.tables import Delete, Insert, Range, query_all

LOOKED_AT: Final = tuple(str(state) for state in GraphState if state not in {*GRAPH_ENDED, GraphState.DELETED})


async def enter_live(records: Records, graph_id: str) -> None:
    """Name the graph in the index of what the sweep looks at. Repeatable."""
    await name_in(records.tables, LIVE, graph_id, records.clock.now())


async def leave_live(records: Records, graph_id: str) -> None:
    """Take the graph off that index, unless it has to be looked at again by now. Repeatable.

    Its entry is read before all that speaks for leaving, and whatever makes it live enters it afterwards: what came
    between is a conflict here, and the entry stays.
    """
    tables = records.tables
    (entry,) = await tables.get(LIVE, [graph_id])
    if entry is None:
        return
    # The graph row comes right behind the requests: one query covers both.
    holds = Range("request:", f"{GRAPH}!", where={"state": ("staged", *LOOKED_AT)}, select=("state",))
    if await query_all(tables, graph_id, holds):
        return  # late requests are answered by the sweep first
    try:
        await tables.commit(LIVE, [Delete(graph_id, entry.etag)])
    except (Conflict, Unclear):
        return  # it was left, or entered anew: the sweep looks again


def listing_row(graph_id: str, graph: Columns) -> Insert | None:
    """The row of the list of all graphs, from the graph's row; None where that has no time."""
    created = graph.get("created")
    if not isinstance(created, datetime):
        return None
    try:
        metadata = json.loads(str(graph.get("metadata", "") or "{}"))
    except ValueError:
        metadata = {}  # damaged: the list does without a name
    name = str(metadata.get("name", "")) if isinstance(metadata, dict) else ""
    columns: Columns = {"graph": graph_id, "created": created, "name": name, "tasks": integer(graph, "tasks")}
    return Insert(listing_key(graph_id, created), columns)
