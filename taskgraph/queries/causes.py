"""A first cause in words: why a task that waits for no other one does not run, and what to do about it."""

import shlex
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from taskgraph.model import limits
from taskgraph.model.clock import Clock
from taskgraph.model.columns import Columns, cached_words, object_of, texts
from taskgraph.model.foreign_times import Standing
from taskgraph.model.ids import holders_in_words, limit_key, rerun_failed, resume_command, typed
from taskgraph.model.names import QueueNames
from taskgraph.model.placement import worker_options
from taskgraph.model.priorities import NORMAL, level_now, level_of
from taskgraph.model.states import GRAPH_ENDED, INACTIVE, GraphState, TaskState
from taskgraph.model.timing import clock_text, not_yet_seconds, overdue, ready_since
from taskgraph.protocol.concurrency import full_limit, scopes_of
from taskgraph.protocol.conditions import may_skip, passes_on
from taskgraph.queries import targets as gates
from taskgraph.queries.lookup import labels_in_flight
from taskgraph.queries.rows import NEWER, is_known, newer_words, status_of_task
from taskgraph.queries.targets import TargetLimit
from taskgraph.queries.values import Reason, TaskStatus
from taskgraph.queries.workers import NO_HANDLER, START_HANDLER, Crew
from taskgraph.storage.queues import Queues
from taskgraph.storage.tables import Row, Tables, or_none

NAMED_MAX = 5  # tasks, workers or groups that one sentence names
_SWEEPS = "run `taskgraph serve`, which sweeps"
_VERBS = {
    str(TaskState.FAILED): "failed for good",
    str(TaskState.EXCEPTION): "could not be run",
    str(TaskState.CANCELLED): "was cancelled",
}


@dataclass(slots=True)
class Causes:
    """graph: its columns. several: more than one task failed for good.

    paused, permitted: by target. spent: the budget of the graph is. queued: queue -> messages, None where queues are
    out of sight.
    """

    tables: Tables
    queues: Queues
    clock: Clock
    names: QueueNames
    graph_id: str
    graph_state: str
    graph: Columns
    several: bool
    crew: Crew
    paused: Mapping[str, gates.Gate]
    permitted: Mapping[str, TargetLimit]
    spent: bool = False
    queued: dict[str, int | None] = field(default_factory=dict)

    async def reason(self, row: Row, depth: int) -> Reason:
        status = status_of_task(row)
        if not is_known(row):
            return Reason(status.label, status.task_id, status.state, depth, newer_words(row), True, NEWER)
        text, remedy = f"is {status.state}", ""
        match status.state:
            case TaskState.PENDING:
                text, remedy = await self._pending(row, status)
            case TaskState.RUNNING:
                text, remedy = self._running(row, status)
            case TaskState.FAILED | TaskState.EXCEPTION | TaskState.CANCELLED:
                text, remedy = self._failed(status, row)
            case TaskState.SKIPPED:
                text = f"was skipped because {(status.resolution or {}).get('reason', '')}"
            case TaskState.COMPLETED:
                text = f"completed at {clock_text(status.resolved)}"
                if words := cached_words(status.resolution or {}):
                    text += f", from the cache: as {words}"
        if late := overdue(row.columns.get, self.clock.now()):
            text, remedy = f"{text}; {late[1]}, so the next sweep ends it", _SWEEPS
        if status.state in (TaskState.PENDING, TaskState.RUNNING) and not self.crew.handled:
            text = f"{text}; {NO_HANDLER}"
            remedy = f"{remedy}; and {START_HANDLER}" if remedy else START_HANDLER
        return Reason(status.label, status.task_id, status.state, depth, text, True, remedy)

    async def _pending(self, row: Row, status: TaskStatus) -> tuple[str, str]:
        if self.graph_state == GraphState.SUBMITTING:
            return "is ready, and its graph is still being submitted", "submit the same file under the same id again"
        if not_yet_seconds(row.columns.get, self.clock.now()):
            return _not_yet(status), ""
        since = ready_since(row.columns.get)
        if holders := texts(row.columns, "held"):
            by = holders_in_words(holders, spent=self.spent)
            text = f"is ready since {clock_text(status.pending_since)}, and held back: {by}"
            return text, _letting_go(holders[0], self.graph_id, status, self.spent)
        if room := await self._no_room(row):
            text = f"is ready since {clock_text(since)}, and waits for room: {room}"
            return text, f"see taskgraph limit list {self.graph_id}"
        if (gate := self.paused.get(status.target)) is not None:
            text = f"is ready since {clock_text(status.pending_since)}; target {status.target} is paused"
            text += f" since {clock_text(gate.since)}" + (f" by {gate.by}" if gate.by else "")
            text += f": {gate.reason}" if gate.reason else ""
            return text, f"let it go on: taskgraph resume --target {status.target}"
        if (taken := self.permitted.get(status.target)) is not None and len(taken.permits) >= taken.most:
            return f"is ready since {clock_text(since)}; {_permits_text(taken)}", "see taskgraph limit list"
        return await self._unclaimed(row, status, since)

    async def _unclaimed(self, row: Row, status: TaskStatus, since: datetime | None) -> tuple[str, str]:
        level, aged = await self._level(row)
        queue = self.names.work(status.target, level)
        if queue not in self.queued:
            self.queued[queue] = await or_none(self.queues.count(queue))
        held = self.queued[queue]
        definition = object_of(row.columns, "task")
        text = f"is ready since {clock_text(since)}; no worker has claimed it"
        if held is not None:
            text += f" (queue {queue} holds about {held} message{'s' if held != 1 else ''})"
        text += aged
        text += f"; {self.crew.about(status.target, definition)}"
        start = f"taskgraph worker {worker_options(status.target, definition)}"
        if not status.refusal:
            return text, f"start a worker: {start}"
        text += f"; a worker gave it back: {status.refusal}"
        if not self.crew.able(status.target, definition):
            return text, f"start a worker that has what it takes, such as: {start}"
        return text, "a worker that has what it takes will get it with the next offer, within a minute"

    async def _level(self, row: Row) -> tuple[str, str]:
        """The level that a task counts as now, and what is to be said of it, "" for the usual one."""
        own, now = level_of(row.columns.get), self.clock.now()
        since = ready_since(row.columns.get)
        if own == NORMAL and (since is None or (now - since).total_seconds() < limits.AGE_SECONDS):
            return own, ""
        used = (await gates.levels_used(self.tables, now)).get(str(row.columns.get("target", "default")), ())
        level = level_now(own, since, now, used)
        if level != own:
            return level, f"; its priority is {own}, and it counts as {level}, having waited for so long"
        return level, "" if own == NORMAL else f"; its priority is {own}"

    async def _no_room(self, row: Row) -> str:
        """The limit that has no room for a task, and what is in flight under it, in words; "" if all have."""
        keys = [limit_key(scope) for scope in scopes_of(row.columns)]
        if not keys:
            return ""
        full = full_limit(await self.tables.get(self.graph_id, keys))
        if full is None:
            return ""
        names = list((await labels_in_flight(self.tables, self.graph_id, [full])).values())
        shown = ", ".join(f"“{name}”" for name in names[:NAMED_MAX])
        shown += f" and {len(names) - NAMED_MAX:,} more" if len(names) > NAMED_MAX else ""
        return f"limit of {full.name}, {len(full.inside):,} of {full.most:,} in flight: {shown}"

    def _running(self, row: Row, status: TaskStatus) -> tuple[str, str]:
        from taskgraph.protocol.leases import lease  # here: it knows the items of decisions, and a look needs none

        text, remedy = f"runs on {status.worker} since {clock_text(status.started)}", ""
        if cancel := row.columns.get("cancel"):
            text += f", and is being stopped, as it is cancelled: {cancel}"
            remedy = f"not to wait: {typed('cancel --terminate', self.graph_id, status.label, status.task_id)}"
        how = lease(row.columns.get, self.clock.now())
        if status.lease_until is not None and how is Standing.DOUBTFUL:
            text += f"; its lease is said to end {clock_text(status.lease_until)}, so a clock is off"
        if status.lease_until is not None and how is Standing.OVER:
            text += f"; the worker's lease ended {clock_text(status.lease_until)}, so the next sweep gives it back"
            remedy = _SWEEPS
        return text, remedy

    def _failed(self, status: TaskStatus, row: Row) -> tuple[str, str]:
        cancelled = status.state == TaskState.CANCELLED
        reason = (status.resolution or {}).get("reason", "")
        text = f"{_VERBS[status.state]} in run {status.run}" + (f": {reason}" if reason else "")
        if self.graph_state == GraphState.CANCELLING:
            return text, f"wait until its graph is cancelled: taskgraph watch {shlex.quote(self.graph_id)}"
        if may_skip(self.graph.get) and self.graph_state == GraphState.CANCELLED:
            return text, f"its graph is over: taskgraph resubmit {shlex.quote(self.graph_id)}"
        passed = passes_on(self.graph.get, row.columns.get)
        words = "rerun --downstream" if passed or self.graph_state == GraphState.CANCELLED else "rerun"
        rerun = typed(words, self.graph_id, status.label, status.task_id)
        over = self.graph_state in GRAPH_ENDED
        if status.deadline is not None and status.deadline <= self.clock.now() and not over:
            word = shlex.quote(status.label)
            edit = f"taskgraph edit {self.graph_id} --task {word} --deadline none"
            return text, f"give it another deadline, or none: {edit}; then: {rerun}"
        more = " --downstream" if words != "rerun" else ""
        beside = f"; or all that failed: {rerun_failed(self.graph_id)}{more}" if self.several else ""
        return text, f"{'let it run after all' if cancelled else 'mend it, then'}: {rerun}{beside}"


def _not_yet(status: TaskStatus) -> str:
    text = f"is to run not before {clock_text(status.not_before)}"
    last = status.runs[-1] if status.runs else {}
    if last.get("outcome") == "temporary":
        reason = str(last.get("reason", ""))
        text += f": run {last.get('run')} failed for the moment{': ' if reason else ''}{reason}"
        text += f" ({status.temporary_left} more such failure{'s' if status.temporary_left != 1 else ''} allowed)"
    return text


def _permits_text(limit: TargetLimit) -> str:
    by = Counter(permit.worker for permit in limit.permits)
    shown = ", ".join(worker for worker, _ in by.most_common(NAMED_MAX))
    more = f" and {len(by) - NAMED_MAX:,} more workers" if len(by) > NAMED_MAX else ""
    return f"target {limit.target}: {len(limit.permits):,} of {limit.most:,} permits taken by {shown}{more}"


def _letting_go(holder: str, graph_id: str, status: TaskStatus, spent: bool) -> str:
    if holder == INACTIVE:
        return f"let it run: {typed('activate', graph_id, status.label, status.task_id)}"
    return f"let it go on: {resume_command(graph_id, holder, spent=spent)}"
