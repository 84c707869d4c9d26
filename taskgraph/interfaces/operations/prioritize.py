"""Give tasks that have not begun another level, and wait until they have it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from taskgraph.interfaces.app import App
from taskgraph.interfaces.operations.checks import asked_by, check_going, check_reason, labels_of, over_http, task_rows
from taskgraph.interfaces.operations.waiting import poll
from taskgraph.model.bundles import bundles
from taskgraph.model.columns import seen_state
from taskgraph.model.errors import InvalidInput, Refused
from taskgraph.model.foreign_times import asked_after
from taskgraph.model.json_strict import show
from taskgraph.model.messages import Prioritize
from taskgraph.model.priorities import LEVELS, is_level
from taskgraph.model.states import TASK_UNRESOLVED, TaskState
from taskgraph.protocol.prioritize import PRIORITIZED
from taskgraph.queries.groups import group_members
from taskgraph.storage.tables import Range, Row, query_all

_READ = ("label", "state", PRIORITIZED)


@dataclass(frozen=True, slots=True)
class PriorityRequest:
    """tasks: taskId -> label. asked: when, as its messages have it."""

    graph_id: str
    level: str
    asked: str
    tasks: Mapping[str, str]

    def answer(self, *, settled: bool) -> dict[str, Any]:
        """As JSON. settled: whether they have the level, or it was only asked for."""
        labels = sorted(self.tasks.values())
        what = {"graphId": self.graph_id, "level": self.level, "labels": labels}
        return {**what, "askedAt": self.asked, "settled": settled}


def check_level(text: str) -> None:
    if not is_level(text):
        raise InvalidInput(f"{show(text)} is no priority: {', '.join(LEVELS)}")


@over_http("prioritize")
async def ask(
    app: App, graph_id: str, level: str, labels: Sequence[str] = (), *, group: str = "", reason: str = ""
) -> PriorityRequest:
    """Ask for this level for these tasks, for those of a group, or for all, as far as they neither run nor have ended.

    Raises NotFound for a graph, task or group that there is not, InvalidInput for what is no level and a reason that is
    too long, and Refused where the graph, or a task that is named, runs or is over: nothing has been asked for then.
    """
    check_reason(reason)
    check_level(level)
    if labels and group:
        raise InvalidInput("name tasks or a group, not both")
    check_going(graph_id, await app.queries.state(graph_id), "none of its tasks will be sent")
    rows = await _rows(app, graph_id, labels, group)
    asked = asked_after(app.clock.now(), [str(row.columns.get(PRIORITIZED, "")) for row in rows], app.clock.jitter())
    tasks = labels_of(rows)
    if tasks:
        by = asked_by()
        with app.handlers.telemetry.asking("prioritize", graph_id):
            messages = bundles(lambda part: Prioritize(graph_id, level, asked, part, reason, by), list(tasks))
            await app.handlers.dispatcher.send_events(messages)
    return PriorityRequest(graph_id, level, asked, tasks)


async def settled(app: App, wish: PriorityRequest, *, until: float | None = None) -> bool:
    """Wait until every task has the level, or has begun before it had; False when `until` comes first."""

    async def look() -> bool:
        rows = await task_rows(app.tables, wish.graph_id, wish.tasks)
        return not any(_waits(row) and str(row.columns.get(PRIORITIZED, "")) < wish.asked for row in rows)

    return await poll(look, app.clock, until=until, pause_max=1.0)


async def _rows(app: App, graph_id: str, labels: Sequence[str], group: str) -> list[Row]:
    if labels:
        rows = [await app.queries.find_task(graph_id, label) for label in labels]
        for row in rows:
            if not _waits(row):
                raise Refused(f"“{row.columns.get('label')}” is {seen_state(row.columns.get)}", "begun")
        return rows
    if group:
        members = await group_members(app.tables, graph_id, group)
        return list(filter(_waits, await task_rows(app.tables, graph_id, members)))
    waiting = {"state": (str(TaskState.UNSCHEDULED), str(TaskState.PENDING))}
    return await query_all(app.tables, graph_id, Range("task:", "task;", where=waiting, select=_READ))


def _waits(row: Row) -> bool:
    state = row.columns.get("state")
    return state in TASK_UNRESOLVED and state != TaskState.RUNNING
