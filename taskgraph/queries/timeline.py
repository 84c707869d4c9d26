"""What happened in a graph, and when: the runs of its tasks, and the chain of tasks that decided when it ended."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from taskgraph.model.columns import Columns, integer, texts, time_of
from taskgraph.model.ids import is_relay
from taskgraph.model.row_schema import SHOWN
from taskgraph.model.states import TaskState
from taskgraph.queries.lookup import GraphQueries
from taskgraph.queries.rows import status_of_task
from taskgraph.queries.values import TaskStatus
from taskgraph.storage.tables import Range

_JOINS: Final = Range("join:", "join;", select=("requires",))
_RUNNING: Final = TaskState.RUNNING.value


@dataclass(frozen=True, slots=True)
class RunSpan:
    """One run. outcome: of one that has ended, `running` otherwise. ready: since when it could have begun, if known.

    ended: None while it runs. ahead: its worker had no free slot yet when it started, as it stands here, and began it
    when one was.
    """

    label: str
    task_id: str
    run: int
    outcome: str
    worker: str
    ready: datetime | None
    started: datetime
    ended: datetime | None
    ahead: bool = False


@dataclass(frozen=True, slots=True)
class PathStep:
    """A task of the critical path: how long after the one before it was resolved, and how much of that it ran."""

    label: str
    task_id: str
    seconds: float
    ran_seconds: float

    @property
    def waited_seconds(self) -> float:
        return max(0.0, self.seconds - self.ran_seconds)


@dataclass(frozen=True, slots=True)
class Timeline:
    """runs: by when they started. path: from the first task on; the last is the one that ended last.

    until: the end of the graph, or the time of the look. never_ran: tasks without any run.
    """

    graph_id: str
    state: str
    since: datetime
    until: datetime
    runs: Sequence[RunSpan]
    path: Sequence[PathStep]
    never_ran: int = 0

    @property
    def seconds(self) -> float:
        return (self.until - self.since).total_seconds()


class TimelineQueries(GraphQueries):
    async def timeline(self, graph_id: str) -> Timeline:
        """All runs, as rows know them: of a task that ran very often the latest. Reads every task and join once."""
        graph = await self.graph_row(graph_id)
        columns = graph.columns
        tasks: dict[str, TaskStatus] = {}
        requires: dict[str, list[str]] = {}
        ahead: set[str] = set()
        async for row in self._pages(graph_id, Range("task:", "task;", select=(*SHOWN, "requires", "ahead"))):
            status = status_of_task(row)
            tasks[status.task_id] = status
            requires[status.task_id] = texts(row.columns, "requires")
            if row.columns.get("ahead") is True:
                ahead.add(status.task_id)
        if any(is_relay(each) for listed in requires.values() for each in listed):
            async for row in self._pages(graph_id, _JOINS):
                requires[row.key] = texts(row.columns, "requires")
        spans = (span for own, each in tasks.items() for span in _spans(each, ahead=own in ahead))
        runs = sorted(spans, key=lambda span: span.started)
        now = self._clock.now()
        since = _time(columns, "started", "created") or now
        ended = (
            _time(columns, "finished", "cancelled") if str(columns.get("state")) in ("finished", "cancelled") else None
        )
        return Timeline(
            graph_id,
            str(columns.get("state", "")),
            since,
            ended or now,
            runs,
            _path(tasks, requires, since),
            integer(columns, "tasks") - len({span.task_id for span in runs}),
        )


def _time(columns: Columns, *names: str) -> datetime | None:
    return next((found for name in names if (found := time_of(columns, name)) is not None), None)


def _spans(task: TaskStatus, *, ahead: bool = False) -> Iterator[RunSpan]:
    for record in task.runs:
        started, ended = (_read_time(record.get(name)) for name in ("started", "ended"))
        if started is not None and ended is not None:
            run, outcome = record.get("run"), str(record.get("outcome", ""))
            number = run if isinstance(run, int) else 0
            worker = str(record.get("worker", ""))
            yield RunSpan(task.label, task.task_id, number, outcome, worker, None, started, ended)
    begun = task.started is not None and (task.pending_since is None or task.started >= task.pending_since)
    if task.started is not None and begun and task.state not in (TaskState.PENDING, TaskState.UNSCHEDULED):
        ended = None if task.state == _RUNNING else task.ended or task.resolved
        state, since = task.state, task.pending_since
        yield RunSpan(task.label, task.task_id, task.run, state, task.worker, since, task.started, ended, ahead)


def _read_time(text: object) -> datetime | None:
    try:
        found = datetime.fromisoformat(str(text)) if text else None
    except ValueError:
        return None
    return found if found is not None and found.tzinfo is not None else None


def _path(tasks: Mapping[str, TaskStatus], requires: Mapping[str, list[str]], since: datetime) -> list[PathStep]:
    """From the task that was resolved last, back by the requirement of each that was resolved last."""
    resolved = {each.task_id: each.resolved for each in tasks.values() if each.resolved is not None}
    last = max(resolved, key=resolved.__getitem__, default=None)
    steps: list[PathStep] = []
    while last is not None:
        task = tasks[last]
        before = [each for each in _required(requires, last) if each in resolved]
        previous = max(before, key=resolved.__getitem__, default=None)
        begin = resolved[previous] if previous is not None else since
        ran = sum(((span.ended or span.started) - span.started for span in _spans(task)), timedelta())
        whole = (resolved[last] - begin).total_seconds()
        steps.append(PathStep(task.label, last, max(0.0, whole), min(max(0.0, whole), ran.total_seconds())))
        last = previous
    return steps[::-1]


def _required(requires: Mapping[str, list[str]], task_id: str) -> set[str]:
    """The tasks that one requires, through joins."""
    found: set[str] = set()
    passed: set[str] = set()
    todo = list(requires.get(task_id, ()))
    while todo:
        each = todo.pop()
        if not is_relay(each):
            found.add(each)
        elif each not in passed:
            passed.add(each)
            todo.extend(requires.get(each, ()))
    return found
