"""Run tasks again that failed for good, and wait until these runs have begun."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Final

from taskgraph.interfaces.app import App
from taskgraph.interfaces.operations.checks import check_reason
from taskgraph.interfaces.operations.waiting import poll
from taskgraph.model import limits
from taskgraph.model.errors import InvalidInput, Refused
from taskgraph.model.ids import row_key
from taskgraph.model.messages import Rerun
from taskgraph.protocol.rerun import DEADLINE_EXCEEDED, DEPENDENTS_COUNTED, FAILED_FOR_GOOD, refusal
from taskgraph.queries.values import TaskStatus

_LOOK_SECONDS: Final = 0.1
_REST_SECONDS: Final = 5.0  # without any message waiting, after which none is taken to be on its way
_REMEDIES: Final = {
    DEPENDENTS_COUNTED: " (failurePolicy: continue); submit it again under another id",
    DEADLINE_EXCEEDED: "; give it another one, or none, first: taskgraph edit {} --task {} --deadline none",
}


async def ask(
    app: App, graph_id: str, labels: Sequence[str] = (), *, group: str | None = None, reason: str = ""
) -> list[TaskStatus]:
    """Ask for another run of these tasks, of those of a group that failed for good, or of all that did.

    Gives them as they stand; handlers begin the runs. Raises NotFound for a graph, task or group that there is not,
    InvalidInput for a reason that is too long, and Refused where one may not be rerun: nothing has been asked for then.
    """
    check_reason(reason)
    if labels and group is not None:
        raise InvalidInput("name labels or a group, not both")
    if group is not None:
        listed = (await app.queries.group(graph_id, group)).listed
        wanted = [each for each in listed if each.state in FAILED_FOR_GOOD]
    elif labels:
        wanted = [await app.queries.task_status(graph_id, label) for label in labels]
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
    return wanted


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
