"""Run tasks again that have ended, with what has gone on from their ends, and wait until that is taken up."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from taskgraph.interfaces.app import App
from taskgraph.interfaces.operations.checks import asked_by, check_reason, over_http, task_rows
from taskgraph.interfaces.operations.waiting import poll
from taskgraph.model import limits
from taskgraph.model.bundles import bundles
from taskgraph.model.errors import InvalidInput, Refused
from taskgraph.model.ids import reference_of, row_key
from taskgraph.model.messages import Rerun
from taskgraph.model.states import GraphState, TaskState, stored_state
from taskgraph.protocol.rerun import DEADLINE_EXCEEDED, NOT_RUNNING, NOT_WHOLE, Refusal, refusal
from taskgraph.queries.reruns import following
from taskgraph.queries.rows import status_of_task
from taskgraph.queries.values import FAILED, TaskStatus
from taskgraph.storage.tables import Row

_LOOK_SECONDS: Final = 0.1
_REST_SECONDS: Final = 5.0  # without any message waiting, after which none is taken to be on its way
_LOST: Final = Refusal("lost", "what asked for it is lost; ask again")
_DOWNSTREAM: Final = "downstream"
_REMEDIES: Final = {
    DEADLINE_EXCEEDED: "; give it another one, or none, first: taskgraph edit {graph} --task {label} --deadline none",
    NOT_RUNNING: "; wait until it has ended: taskgraph watch {graph}",
    NOT_WHOLE: "; submit it again: taskgraph resubmit {graph}",
}


@dataclass(frozen=True, slots=True)
class RerunRequest:
    """tasks: as they stood when another run of each was asked for. following: labels of what runs again with them."""

    graph_id: str
    tasks: Sequence[TaskStatus]
    following: Sequence[str] = ()

    def answer(self, *, settled: bool) -> dict[str, Any]:
        """As JSON. settled: whether handlers have taken all of it up, or it was only asked for."""
        tasks = [
            {"label": each.label, "taskId": each.task_id, "replacesRun": each.run, "run": each.run + 1}
            for each in self.tasks
        ]
        return {"graphId": self.graph_id, "tasks": tasks, "following": [*self.following], "settled": settled}


@over_http("rerun")
async def ask(
    app: App,
    graph_id: str,
    labels: Sequence[str] = (),
    *,
    group: str | None = None,
    failed: bool = False,
    everything: bool = False,
    downstream: bool = False,
    reason: str = "",
) -> RerunRequest:
    """Ask for another run of these tasks; or of those, of a group or (failed) of all, that failed; or of everything.

    What depends on them and has gone on from their ends runs again after them. downstream: also what has run, and what
    was cancelled while it waited; otherwise, where something has run, nothing is asked for. Handlers begin the runs.
    Raises NotFound for a graph, task or group that there is not, InvalidInput for a reason that is too long, and
    Refused where one may not be rerun: nothing has been asked for then.
    """
    check_reason(reason)
    if [bool(labels), group is not None, failed, everything].count(True) != 1:
        raise InvalidInput(
            "name tasks by their labels, a group of them, all that failed for good (--failed, in Python failed=True), "
            "or all (--all, in Python everything=True): one of the four"
        )
    graph = await app.queries.graph_row(graph_id)
    wanted = {each.task_id: each for each in await _wanted(app, graph_id, labels, group, failed=failed)}
    found = await following(app.tables, graph_id, graph, wanted, with_cancelled=downstream)
    if not downstream and not everything and (begun := found.begun(set(map(row_key, wanted)))):
        first, more = begun[0].columns.get("label"), len(begun) - 1
        others = f" and {more:,} more" if more else ""
        whose = f"“{next(iter(wanted.values())).label}”" if len(wanted) == 1 else "one of them"
        raise Refused(
            f"“{first}”{others} ran after {whose}, and would have to run again; say --downstream (in Python "
            "downstream=True) for that",
            _DOWNSTREAM,
        )
    wanted |= {
        one.task_id: one for row in found.cancelled.values() if (one := status_of_task(row)).task_id not in wanted
    }
    covered = {reference_of(key) for key in found.reset}  # they run again after those that are asked for
    asked_for = [each for task_id, each in wanted.items() if task_id not in covered]
    _check(app, graph_id, graph, asked_for)
    if asked_for:
        runs = [(each.task_id, each.run) for each in asked_for]
        by = asked_by()
        reopens = graph.columns.get("state") == GraphState.CANCELLED
        known = failed and not found.reset and not reopens  # by handlers of before 0.4, too, if one by one
        with app.handlers.telemetry.asking("rerun", graph_id):
            await app.handlers.dispatcher.send_events(
                bundles(lambda part: Rerun(graph_id, part, reason, reopens, by), runs, 1 if known else len(runs))
            )
    return RerunRequest(graph_id, asked_for, sorted(str(row.columns.get("label")) for row in found.reset.values()))


async def _wanted(
    app: App, graph_id: str, labels: Sequence[str], group: str | None, *, failed: bool
) -> list[TaskStatus]:
    """The tasks that are meant; without labels, group and `failed` all that have ended."""
    if group is not None:
        return [each for each in (await app.queries.group(graph_id, group)).listed if each.state in FAILED]
    if labels:
        return [await app.queries.task_status(graph_id, label) for label in labels]
    wanted = await app.queries.failed(graph_id)
    for state in () if failed else (TaskState.COMPLETED, TaskState.SKIPPED):
        wanted += await app.queries.tasks(graph_id, state=state, limit=limits.INT_MAX)
    return wanted


def _check(app: App, graph_id: str, graph: Row, tasks: Iterable[TaskStatus]) -> None:
    """Raises Refused where one of these tasks cannot be rerun."""
    now = app.clock.now()
    for each in tasks:
        columns = {"state": stored_state(each.state), "deadline": each.deadline}
        if (refused := refusal(graph.columns.get, columns.get, now)) is not None:
            words = {"graph": shlex.quote(graph_id), "label": shlex.quote(each.label)}
            remedy = _REMEDIES.get(refused.code, "").format(**words)
            raise Refused(f"“{each.label}” cannot be rerun: {refused.reason}{remedy}", refused.code)


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
