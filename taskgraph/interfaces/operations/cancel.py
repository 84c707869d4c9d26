"""Cancel a graph, a group or some tasks, and wait for their end."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from taskgraph.interfaces.app import App
from taskgraph.interfaces.operations.checks import asked_by, check_reason, labels_of, over_http, task_rows
from taskgraph.interfaces.operations.waiting import poll
from taskgraph.model.bundles import bundles
from taskgraph.model.columns import integer, is_cancelled
from taskgraph.model.errors import Refused
from taskgraph.model.ids import reference_of
from taskgraph.model.messages import Cancel
from taskgraph.model.states import GRAPH_ENDED, TASK_UNRESOLVED, GraphState
from taskgraph.queries.groups import group_members
from taskgraph.storage.tables import Row

_CANCELLABLE: Final = frozenset(
    {GraphState.SUBMITTING, GraphState.RUNNING, GraphState.BLOCKED, GraphState.CANCELLING, GraphState.CANCELLED}
)


@dataclass(frozen=True, slots=True)
class Cancellation:
    """What is to be cancelled.

    state: of the graph when this was asked for. tasks: taskId -> label of those asked for; none: the whole graph.
    reruns: taskId -> how often each had been rerun by hand. nothing: why there was nothing left to ask for, or "".
    """

    graph_id: str
    state: GraphState
    tasks: Mapping[str, str] = field(default_factory=dict)
    reruns: Mapping[str, int] = field(default_factory=dict)
    nothing: str = ""

    def answer(self, state: GraphState) -> dict[str, Any]:
        """As JSON. state: of the graph now."""
        labels = sorted(self.tasks.values())
        return {"graphId": self.graph_id, "asked": not self.nothing, "labels": labels, "state": str(state)}


@over_http("cancel")
async def ask(
    app: App, graph_id: str, labels: Sequence[str] = (), *, group: str = "", reason: str = "", terminate: bool = False
) -> Cancellation:
    """Ask for a graph to be cancelled, or only for these tasks, or for a group. Handlers do it.

    What is cancelled already says so. Raises NotFound for a graph, task or group that there is not, InvalidInput for a
    reason that is too long, and Refused where it came to another end before: nothing has been asked for then.
    """
    check_reason(reason)
    state = await app.queries.state(graph_id)
    if not labels and not group:
        if state not in _CANCELLABLE:
            raise Refused(f"graph {graph_id} is {state}: there is nothing left to cancel", str(state))
        if state == GraphState.CANCELLED:
            return Cancellation(graph_id, state, nothing=f"graph {graph_id} is cancelled already")
        reopened = integer((await app.queries.graph_row(graph_id)).columns, "reopened")
        with app.handlers.telemetry.asking("cancel", graph_id):
            await app.handlers.dispatcher.send_events([Cancel(graph_id, (), reason, terminate, reopened, asked_by())])
        return Cancellation(graph_id, state)
    if state == GraphState.SUBMITTING:
        raise Refused(f"graph {graph_id} is still being submitted; only all of it can be cancelled", "submitting")
    rows = [await app.queries.find_task(graph_id, label) for label in labels]
    members = await group_members(app.tables, graph_id, group) if group else ()
    rows += await task_rows(app.tables, graph_id, members)
    open_rows = [row for row in rows if row.columns.get("state") in TASK_UNRESOLVED]
    cancelled = [row for row in rows if is_cancelled(row.columns.get)]
    # Of a group what is over is left alone; a task that is named is a mistake then.
    over = [row for row in rows[: len(labels)] if row not in open_rows and row not in cancelled]
    if over:
        label, was = over[0].columns.get("label"), over[0].columns.get("state")
        raise Refused(f"“{label}” is {was}: there is nothing left to cancel", "over")
    if not open_rows:
        if cancelled:
            what = (
                f"group “{group}”" if group else "all of it" if len(rows) > 1 else f"“{rows[0].columns.get('label')}”"
            )
            return Cancellation(graph_id, state, nothing=f"{what} is cancelled already, or over")
        raise Refused(f"no task of group “{group}” is left to cancel", "over")
    if state not in _CANCELLABLE:
        raise Refused(f"graph {graph_id} is {state}: nothing of it runs any more", str(state))
    reruns = {reference_of(row.key): _reruns(row) for row in open_rows}
    by = asked_by()
    with app.handlers.telemetry.asking("cancel", graph_id):
        await app.handlers.dispatcher.send_events(
            bundles(lambda part: Cancel(graph_id, part, reason, terminate, by=by), list(reruns.items()))
        )
    return Cancellation(graph_id, state, labels_of(open_rows), reruns)


async def settled(app: App, asked: Cancellation, *, until: float | None = None) -> bool:
    """Wait until what was asked for has come to its end, whichever that is; False when `until` comes first."""

    async def look() -> bool:
        if await app.queries.state(asked.graph_id) in GRAPH_ENDED:
            return True
        return bool(asked.tasks) and not await _left(app, asked)

    return await poll(look, app.clock, until=until)


async def taken_up(app: App, asked: Cancellation, *, until: float | None = None) -> bool:
    """Wait until handlers have taken it up: up to then the graph looks as it did. False when `until` comes first."""

    async def look() -> bool:
        if await app.queries.state(asked.graph_id) in (GraphState.CANCELLING, *GRAPH_ENDED):
            return True
        return bool(asked.tasks) and all(row.columns.get("cancel") for row in await _left(app, asked))

    return await poll(look, app.clock, until=until)


async def _left(app: App, asked: Cancellation) -> list[Row]:
    """Those of the tasks that are unresolved still, and have not been rerun since."""
    return [
        row
        for row in await task_rows(app.tables, asked.graph_id, asked.tasks)
        if row.columns.get("state") in TASK_UNRESOLVED and _reruns(row) == asked.reruns[reference_of(row.key)]
    ]


def _reruns(row: Row) -> int:
    count = row.columns.get("manualReruns", 0)
    return count if isinstance(count, int) else 0
