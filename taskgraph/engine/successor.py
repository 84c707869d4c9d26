"""The id of a new graph under an id that was deleted: the next one, which the tombstone names.

An id itself is not given again before its tombstone ends (P27): messages and calls about the graph that was deleted may
still be on their way, and would meet the wrong one.
"""

import contextlib

from taskgraph.model import limits
from taskgraph.model.errors import Conflict, Unclear
from taskgraph.model.ids import GRAPH
from taskgraph.model.states import GRAPH_GONE, GraphState
from taskgraph.storage.tables import Merge, Tables


async def id_after(tables: Tables, graph_id: str) -> str:
    """The id of a new graph where `graph_id` is wanted: this one, or, where it was deleted, the next that is free.

    Asking twice gives the same id. Raises Conflict.
    """
    for _ in range(limits.COMMIT_ATTEMPTS_MAX):
        (row,) = await tables.get(graph_id, [GRAPH])
        if row is None or row.columns.get("state") != GraphState.DELETED:
            return graph_id
        successor = str(row.columns.get("successor", ""))
        if successor:
            (graph,) = await tables.get(successor, [GRAPH])
            if graph is None or graph.columns.get("state") not in GRAPH_GONE:
                return successor
        fresh = await _next_free(tables, graph_id, successor)
        with contextlib.suppress(Conflict, Unclear):  # another named one, or this one did  # reach: deletion
            await tables.commit(graph_id, [Merge(GRAPH, row.etag, {"successor": fresh})])
            return fresh
    raise Conflict(f"graph {graph_id}: others kept writing its tombstone; try again")


async def _next_free(tables: Tables, graph_id: str, last: str) -> str:
    """The first id behind `last` ("" for none) of `graph_id` and a number that no graph has had."""
    _, _, number = last.rpartition("-")
    each = int(number) if number.isdecimal() else 1
    while True:
        each += 1
        fresh = f"{graph_id[: limits.GRAPH_ID_CHARS_MAX - len(str(each)) - 1]}-{each}"
        (row,) = await tables.get(fresh, [GRAPH])
        if row is None:
            return fresh
