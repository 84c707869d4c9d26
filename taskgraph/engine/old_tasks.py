"""Tasks by the ids that old TaskCluster clients gave them, which name no graph: where each is.

Each has two rows, which one commit writes: one by its id, and one by its graph and id, by which the deletion of the
graph finds them.
"""

import json
from collections.abc import Iterable
from typing import Final

from taskgraph.model import limits
from taskgraph.model.columns import Columns
from taskgraph.model.errors import Conflict, NotFound, Refused, Unclear
from taskgraph.model.ids import row_key, task_id_of
from taskgraph.model.names import OLD_TASKS
from taskgraph.protocol.definitions import gathered
from taskgraph.storage.tables import Change, Insert, Range, Replace, Tables, prefix

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
        by_graph = [f"{graph_id}:{each}" for each in task_ids]
        rows = await tables.get(OLD_TASKS, [*task_ids, *by_graph])
        changes: list[Change] = []
        for key, row in zip((*task_ids, *by_graph), rows, strict=True):
            if row is None:
                changes.append(Insert(key, {"graph": graph_id}))
            elif (other := str(row.columns.get("graph", ""))) != graph_id:
                if await _has(tables, other, key):
                    raise Refused(f"graph {other} has a task {key} already", "taken")
                changes.append(Replace(key, row.etag, {"graph": graph_id}))
        if not changes:
            return
        try:
            await tables.commit(OLD_TASKS, changes)
        except (Conflict, Unclear):  # reach: deletion
            continue  # read what is there now
        return
    raise Conflict(f"others kept writing rows of {OLD_TASKS}")


async def _has(tables: Tables, graph_id: str, task_id: str) -> bool:
    found = await tables.get(graph_id, [row_key(task_id_of(graph_id, task_id)), row_key(task_id)])
    return any(row is not None for row in found)


async def graph_of(tables: Tables, task_id: str) -> str:
    """The graph that a task is in. Raises NotFound."""
    (row,) = await tables.get(OLD_TASKS, [task_id])
    if row is None:
        raise NotFound(f"there is no task {task_id} of an old client")
    return str(row.columns.get("graph", ""))
