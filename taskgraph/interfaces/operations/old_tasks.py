"""Tasks by the ids that old TaskCluster clients gave them, which name no graph: where each is."""

from collections.abc import Iterable

from taskgraph.interfaces.app import App
from taskgraph.model import limits
from taskgraph.model.errors import Conflict, NotFound, Refused, Unclear
from taskgraph.model.names import OLD_TASKS
from taskgraph.storage.tables import Insert, Replace


async def enter(app: App, graph_id: str, task_ids: Iterable[str]) -> None:
    """Say that these are labels of tasks of a graph, before it has them. Repeatable.

    Raises Refused where another graph has one of them.
    """
    todo = list(dict.fromkeys(task_ids))
    for start in range(0, len(todo), limits.COMMIT_CHANGES_MAX):
        await _enter(app, graph_id, todo[start : start + limits.COMMIT_CHANGES_MAX])


async def _enter(app: App, graph_id: str, task_ids: list[str]) -> None:
    for _ in range(limits.COMMIT_ATTEMPTS_MAX):
        rows = await app.tables.get(OLD_TASKS, task_ids)
        changes: list[Insert | Replace] = []
        for task_id, row in zip(task_ids, rows, strict=True):
            if row is None:
                changes.append(Insert(task_id, {"graph": graph_id}))
            elif (other := str(row.columns.get("graph", ""))) != graph_id:
                if await _has(app, other, task_id):
                    raise Refused(f"graph {other} has a task {task_id} already", "taken")
                changes.append(Replace(task_id, row.etag, {"graph": graph_id}))
        if not changes:
            return
        try:
            await app.tables.commit(OLD_TASKS, changes)
        except (Conflict, Unclear):  # reach: http
            continue  # read what is there now
        return
    raise Conflict(f"others kept writing rows of {OLD_TASKS}")


async def _has(app: App, graph_id: str, label: str) -> bool:
    try:
        await app.queries.find_task(graph_id, label)
    except NotFound:
        return False
    return True


async def graph_of(app: App, task_id: str) -> str:
    """The graph that a task is in. Raises NotFound."""
    row = next(iter(await app.tables.get(OLD_TASKS, [task_id])))
    if row is None:
        raise NotFound(f"there is no task {task_id} of an old client")
    return str(row.columns.get("graph", ""))
