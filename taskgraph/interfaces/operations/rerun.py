"""Run tasks again that failed for good, and wait until these runs have begun."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from taskgraph.interfaces.app import App
from taskgraph.interfaces.operations.checks import check_reason, task_rows
from taskgraph.interfaces.operations.waiting import poll
from taskgraph.model import limits
from taskgraph.model.errors import InvalidInput, Refused
from taskgraph.model.ids import reference_of, row_key
from taskgraph.model.messages import Rerun
from taskgraph.protocol.rerun import DEADLINE_EXCEEDED, DEPENDENTS_COUNTED, FAILED_FOR_GOOD, Refusal, refusal
from taskgraph.queries.values import TaskStatus

_LOOK_SECONDS: Final = 0.1
_REST_SECONDS: Final = 5.0  # without any message waiting, after which none is taken to be on its way
_LOST: Final = Refusal("lost", "what asked for it is lost; ask again")
_REMEDIES: Final = {
    DEPENDENTS_COUNTED: " (failurePolicy: continue); submit it again under another id",
    DEADLINE_EXCEEDED: "; give it another one, or none, first: taskgraph edit {} --task {} --deadline none",
}


@dataclass(frozen=True, slots=True)
class RerunRequest:
    """tasks: as they stood when another run of each was asked for."""

    graph_id: str
    tasks: Sequence[TaskStatus]

    def answer(self, *, settled: bool) -> dict[str, Any]:
        """As JSON. settled: whether handlers have taken all of it up, or it was only asked for."""
        tasks = [
            {"label": each.label, "taskId": each.task_id, "replacesRun": each.run, "run": each.run + 1}
            for each in self.tasks
        ]
        return {"graphId": self.graph_id, "tasks": tasks, "settled": settled}


async def ask(
    app: App,
    graph_id: str,
    labels: Sequence[str] = (),
    *,
    group: str | None = None,
    failed: bool = False,
    reason: str = "",
) -> RerunRequest:
    """Ask for another run of these tasks; or of those of a group, or with `failed` of all, that failed for good.

    Handlers begin the runs. Raises NotFound for a graph, task or group that there is not, InvalidInput for a reason
    that is too long, and Refused where one may not be rerun: nothing has been asked for then.
    """
    check_reason(reason)
    if [bool(labels), group is not None, failed].count(True) != 1:
        raise InvalidInput(
            "name tasks by their labels, a group of them, or all that failed for good (--failed, in Python "
            "failed=True): one of the three"
        )
    if group is not None:
        listed = (await app.queries.group(graph_id, group)).listed
        wanted = [each for each in listed if each.state in FAILED_FOR_GOOD]
    elif labels:
        named = [await app.queries.task_status(graph_id, label) for label in labels]
        wanted = list({each.task_id: each for each in named}.values())
    else:
        wanted = [
            each
            for state in FAILED_FOR_GOOD
            for each in await app.queries.tasks(graph_id, state=state, limit=limits.INT_MAX)
        ]
    graph, now = await app.queries.graph_row(graph_id), app.clock.now()
    for each in wanted:
        columns = {"state": each.state, "deadline": each.deadline}
        if (refused := refusal(graph.columns.get, columns.get, now)) is not None:
            remedy = _REMEDIES.get(refused.code, "").format(shlex.quote(graph_id), shlex.quote(each.label))
            raise Refused(f"“{each.label}” cannot be rerun: {refused.reason}{remedy}", refused.code)
    if wanted:
        with app.handlers.telemetry.asking("rerun", graph_id):
            await app.handlers.dispatcher.send_events(
                [Rerun(graph_id, each.task_id, each.run, reason) for each in wanted]
            )
    return RerunRequest(graph_id, wanted)


async def settled(app: App, asked: RerunRequest, *, until: float | None = None) -> bool:
    """Wait until handlers have taken all of it up; False when `until` comes first.

    Raises Refused where a run that was asked for will not come.
    """
    runs = {each.task_id: each.run for each in asked.tasks}
    if not await taken_up(app, asked.graph_id, runs, until=until):
        return False
    graph, now = await app.queries.graph_row(asked.graph_id), app.clock.now()
    for row in await task_rows(app.tables, asked.graph_id, runs):
        if row.columns.get("run") == runs[reference_of(row.key)]:
            refused = refusal(graph.columns.get, row.columns.get, now) or _LOST
            raise Refused(f"“{row.columns.get('label')}” was not rerun: {refused.reason}", refused.code)
    return True


async def taken_up(app: App, graph_id: str, asked: Mapping[str, int], *, until: float | None = None) -> bool:
    """Wait until reruns have begun that were asked for: up to then the graph still looks blocked.

    asked: taskId -> the run that is to be replaced. Gives whether there is nothing left to wait for before `until`:
    what may not be rerun any more never begins, and neither does what no message is about.
    """
    resting_since: float | None = None

    async def look() -> bool:
        nonlocal asked, resting_since
        if not asked:
            return True
        graph = await app.queries.graph_row(graph_id)
        rows = await app.tables.get(graph_id, [row_key(task_id) for task_id in asked])
        now = app.clock.now()
        asked = {
            task_id: run
            for (task_id, run), row in zip(asked.items(), rows, strict=True)
            if row is not None
            and row.columns.get("run") == run
            and refusal(graph.columns.get, row.columns.get, now) is None
        }
        moment = app.clock.monotonic()
        if await app.handlers.dispatcher.events_waiting():
            resting_since = None
        elif resting_since is None:
            resting_since = moment
        return not asked or (resting_since is not None and moment - resting_since >= _REST_SECONDS)

    return await poll(look, app.clock, until=until, pause=_LOOK_SECONDS, pause_max=_LOOK_SECONDS)
