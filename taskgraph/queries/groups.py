"""Who is in a group of a graph. The tasks of groups in a group are among its own."""

import difflib
from typing import Final

from taskgraph.model import limits
from taskgraph.model.columns import integer
from taskgraph.model.errors import NotFound
from taskgraph.model.ids import group_key, row_key, task_id_of
from taskgraph.model.states import GRAPH_GONE
from taskgraph.protocol.definitions import members_of
from taskgraph.queries.values import GroupSuccess
from taskgraph.storage.tables import Range, Row, Tables, query_all

_NEAR_NAMES: Final = 3


async def group_rows(tables: Tables, graph_id: str, name: str) -> list[Row]:
    """The rows of a group: the first has its columns, each has some of its tasks. Raises NotFound, with near names."""
    key = group_key(task_id_of(graph_id, name))
    rows = await query_all(tables, graph_id, Range(key, f"{key};"))
    if not rows or rows[0].key != key:
        names = list(await group_names(tables, graph_id))
        near = difflib.get_close_matches(name, names, _NEAR_NAMES, 0.5)
        raise NotFound(f"graph {graph_id} has no group “{name}”", near)
    return rows


async def group_members(tables: Tables, graph_id: str, name: str) -> tuple[str, ...]:
    """TaskIds of all tasks of a group, nested ones too: one read (a page in 12,000). Raises NotFound."""
    return members_of(await group_rows(tables, graph_id, name))


async def member_rows(tables: Tables, graph_id: str, group_id: str, select: tuple[str, ...]) -> list[Row] | None:
    """These columns of the rows of all tasks of a group; None where there is no such group."""
    key = group_key(group_id)
    rows = await query_all(tables, graph_id, Range(key, f"{key};"))
    members = frozenset(map(row_key, members_of(rows)))
    if len(members) <= limits.READ_PAGE_WORTH:
        found = await tables.get(graph_id, sorted(members)) if members else []
        return [row for row in found if row is not None] if rows else None
    found_all = await query_all(tables, graph_id, Range("task:", "task;", select=select))
    return [row for row in found_all if row.key in members]


async def success_of(tables: Tables, graph_id: str, head: Row) -> GroupSuccess | None:
    """How a group stands that needs k of n, by its first row; None for any other."""
    key = head.columns.get("tally")
    (row,) = await tables.get(graph_id, [str(key)]) if key else (None,)
    return None if row is None else standing(row)


def standing(row: Row) -> GroupSuccess:
    """By the row of its tally."""
    from taskgraph.protocol.tally import CANCEL, WAIT, decided  # here: few groups need k of n

    columns = row.columns
    needs, of, ok, bad = (integer(columns, name) for name in ("needs", "of", "ok", "bad"))
    then = WAIT if columns.get("then") == WAIT else "go"
    rest = CANCEL if columns.get("rest") else "let"
    announced = bool(columns.get("announced"))
    return GroupSuccess(needs, of, ok, bad, then, rest, decided(ok, bad, needs=needs, of=of), announced)


async def has_group(tables: Tables, graph: Row, graph_id: str, name: str) -> bool:
    """Whether the graph has such a group. Raises NotFound for a name that no edit or deletion can have removed."""
    try:
        await group_rows(tables, graph_id, name)
    except NotFound:
        if not integer(graph.columns, "revision") and graph.columns["state"] not in GRAPH_GONE:
            raise
        return False  # it was there when it was asked for: the message comes late
    return True


async def group_names(tables: Tables, graph_id: str) -> dict[str, str]:
    """Name -> request that added it ("" for the submission), of every group of a graph."""
    rows = await query_all(tables, graph_id, Range("group:", "group;", select=("label", "request")))
    # Further rows of a group only hold more of its tasks.
    return {
        str(row.columns.get("label", "")): str(row.columns.get("request", ""))
        for row in rows
        if row.key.count(":") == 1
    }
