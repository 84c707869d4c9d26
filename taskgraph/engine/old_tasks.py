"""Tasks by the ids that old TaskCluster clients gave them, which name no graph: where each is.

Each has two rows, which one commit writes: one by its id, and one by its graph and id, by which the deletion of the
graph finds them.
"""

import json
from collections.abc import Iterable
from itertools import chain
from typing import Final

from taskgraph.model import limits
from taskgraph.model.columns import Columns
from taskgraph.model.errors import Conflict, NotFound, Refused, Unclear
from taskgraph.model.ids import row_key, task_id_of
from taskgraph.model.names import OLD_TASKS
from taskgraph.protocol.definitions import gathered
from taskgraph.storage.tables import Change, Insert, Range, Replace, Row, Tables, prefix

AT_ONCE: Final = limits.COMMIT_CHANGES_MAX // 2


def of_graph(graph_id: str) -> Range:
    """The rows by this graph."""
    return prefix(f"{graph_id}:")


def given_by_one(task: Columns) -> bool:
    """Whether an old client gave the definition of a task."""
    from taskgraph.protocol.old_scheduler import KEPT

    text = gathered(task, "task")
    try:
        return f'"{KEPT}":' in text and KEPT in json.loads(text)
    except ValueError:
        return False


async def enter(tables: Tables, graph_id: str, task_ids: Iterable[str]) -> None:
    """Say that these are tasks of a graph, before it has them. Repeatable.

    Raises Refused where another graph has one of them.
    """
    todo = list(dict.fromkeys(task_ids))
    for start in range(0, len(todo), AT_ONCE):
        await _enter(tables, graph_id, todo[start : start + AT_ONCE])


async def _enter(tables: Tables, graph_id: str, task_ids: list[str]) -> None:
    for _ in range(limits.COMMIT_ATTEMPTS_MAX):
        keys = [(each, f"{graph_id}:{each}") for each in task_ids]
        rows = dict(zip(chain(*keys), await tables.get(OLD_TASKS, [*chain(*keys)]), strict=True))
        changes: list[Change] = []
        for pair in keys:
            task_id, own = pair[0], rows[pair[0]]
            other = graph_id if own is None else str(own.columns.get("graph", ""))
            if own is not None and other == graph_id and rows[pair[1]] is not None:
                continue
            if other != graph_id and await _has(tables, other, task_id):
                raise Refused(f"graph {other} has a task {task_id} already", "taken")
            # Both, also where one is there: a deletion that takes it away meanwhile must not leave the other behind.
            changes += [_written(each, rows[each], graph_id) for each in pair]
        if not changes:
            return
        try:
            await tables.commit(OLD_TASKS, changes)
        except (Conflict, Unclear):  # reach: deletion
            continue  # read what is there now
        return
    raise Conflict(f"others kept writing rows of {OLD_TASKS}")


def _written(key: str, row: Row | None, graph_id: str) -> Change:
    columns = {"graph": graph_id}
    return Insert(key, columns) if row is None else Replace(key, row.etag, columns)


async def _has(tables: Tables, graph_id: str, task_id: str) -> bool:
    found = await tables.get(graph_id, [row_key(task_id_of(graph_id, task_id)), row_key(task_id)])
    return any(row is not None for row in found)


async def graph_of(tables: Tables, task_id: str) -> str:
    """The graph that a task is in. Raises NotFound."""
    (row,) = await tables.get(OLD_TASKS, [task_id])
    if row is None:
        raise NotFound(f"there is no task {task_id} of an old client")
    return str(row.columns.get("graph", ""))
