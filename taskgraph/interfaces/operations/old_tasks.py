"""Tasks by the ids that old TaskCluster clients gave them (`engine.old_tasks`)."""

from collections.abc import Iterable

from taskgraph.engine import old_tasks
from taskgraph.interfaces.app import App


async def enter(app: App, graph_id: str, task_ids: Iterable[str]) -> None:
    """Say that these are tasks of a graph, before it has them. Repeatable.

    Raises Refused where another graph has one of them.
    """
    await old_tasks.enter(app.tables, graph_id, task_ids)


async def graph_of(app: App, task_id: str) -> str:
    """The graph that a task is in. Raises NotFound."""
    return await old_tasks.graph_of(app.tables, task_id)
