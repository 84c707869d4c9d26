"""How a task is claimed, runs, and ends or stands ready for its next run.

An item that names a run and a claim which are not the task's present ones changes nothing (P6).
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from taskgraph.model import limits, timing
from taskgraph.model.columns import Value
from taskgraph.model.errors import IntegrityError
from taskgraph.model.foreign_times import Standing
from taskgraph.model.ids import GRAPH, compact_ids, reference_of, row_key, value
from taskgraph.model.json_strict import compact_json
from taskgraph.model.messages import TaskCompleted, TaskFailed
from taskgraph.model.spent import Used
from taskgraph.model.states import TaskState
from taskgraph.model.utf16 import utf16_units
from taskgraph.protocol import concurrency
from taskgraph.protocol.cancel import end_of_marked_run, was_marked_run
from taskgraph.protocol.conditions import SKIP, failure_of, is_met, passes_on
from taskgraph.protocol.context import Context, Item, Outcome, Refill, Rules, Verdict
from taskgraph.protocol.definitions import SCHEMA_OF_CONDITIONS
from taskgraph.protocol.edit import EDITED
from taskgraph.protocol.leases import lease, put_off
from taskgraph.protocol.propagation import (
    block,
    claim,
    count_down_dependents,
    dispatch,
    ended_at,
    is_held,
    leave,
    make_pending,
    resolution_text,
    wait_for_room,
)
from taskgraph.protocol.rows import Draft
from taskgraph.storage.tables import Row

LATER: Final = "later"
"""The reason in the answer to a temporary failure."""

POISON: Final = "poison"
"""Code of a task that several workers did not survive."""

ASKED: Final = "asked"
"""Why there is a next run, in the journal: it was asked for by hand."""

# As plain texts: comparing one with a member of an enumeration takes ten times as long.
_PENDING: Final = TaskState.PENDING.value
_RUNNING: Final = TaskState.RUNNING.value
_COMPLETED: Final = TaskState.COMPLETED.value


@value
class Completed(Item):
    """A run succeeded. It counts only with the run and claim of the task's row (P6).

    ended: as its worker says it, a text where that comes by a message. etag, over: see messages.TaskResult; no rule
    reads them. seconds: how long it ran, None if not known. used: what its worker has used for the graph since it
    reported last.
    """

    task_id: str
    run: int
    claim: str
    ended: str | datetime
    resolution: Mapping[str, Any]
    etag: str = ""
    over: str = ""
    seconds: float | None = None
    used: Used | None = None

    @property
    def ended_text(self) -> str:
        return self.ended if isinstance(self.ended, str) else self.ended.isoformat()


@value
class Failed(Item):
    """A run failed. exception: it produced no result, so it spends no rerun and is final.

    temporary: it is tried again later as long as its budget lasts; retry_after: seconds that it asks for, None for a
    pause that grows. seconds, used: see Completed.
    """

    task_id: str
    run: int
    claim: str
    ended: str
    resolution: Mapping[str, Any]
    exception: bool = False
    temporary: bool = False
    retry_after: float | None = None
    seconds: float | None = None
    used: Used | None = None


@value
class Claim(Item):
    """A worker takes a pending run. claim: fresh id, also the fencing token. ahead: it has no slot for it yet.

    edited: the revision of the edit that wrote the definition (see `protocol.edit`); 0 for the submitted one.
    lease_seconds: length of its leases; 0 if not known. known_seconds: for how long the worker has known, by its steady
    clock, that the run stands ready but for its time.
    """

    task_id: str
    run: int
    claim: str
    worker: str
    lease_until: datetime
    ahead: bool = False
    edited: int = 0
    lease_seconds: float = 0.0
    known_seconds: float = 0.0


@value
class Renew(Item):
    """A worker still has its run. The reason in its answer, if any: the run is cancelled, and is to be stopped."""

    task_id: str
    run: int
    claim: str
    lease_until: datetime
    lease_seconds: float = 0.0


@value
class HandBack(Item):
    """A worker gives its unfinished run back; spends neither a rerun nor a retry."""

    task_id: str
    run: int
    claim: str
    reason: str


@value
class LeaseLost(Item):
    """The lease of a run has ended without a renewal; spends a retry (D10).

    certain: the worker is known to be dead, so the end of the lease is not waited for. alive: the worker itself reports
    that it could not run the task, which is not to blame.
    """

    task_id: str
    run: int
    claim: str
    certain: bool = False
    alive: bool = False


@value
class CannotRun(Item):
    """A worker that was offered a run lacks what it takes; written down for `why`."""

    task_id: str
    run: int
    worker: str
    reason: str


@value
class Overdue(Item):
    """A task may be past its deadline, or pending for too long: if it is, by its row, it ends here."""

    task_id: str


def _holds(task: Draft, run: int, claim: str) -> bool:
    return task.text("state") == _RUNNING and task.integer("run") == run and task.text("claim") == claim


def _completed(item: Completed, context: Context) -> Verdict:
    task = context.view.get(row_key(item.task_id))
    if _holds(task, item.run, item.claim):
        if task.text("cancel"):
            return end_of_marked_run(task, "completed", item.ended_text, item.resolution, context)
        leave(task, context)
        task.set("state", _COMPLETED)
        task.set("ended", ended_at(item.ended, context))
        task.set("resolved", context.now)
        task.set("resolution", resolution_text(item.resolution))
        cached: dict[str, Any] = {"cached": True} if "cached" in item.resolution else {}
        context.event("task-completed", task=item.task_id, label=task.text("label"), run=item.run, **cached)
        count_down_dependents(task, item.task_id, context)
        return Outcome.APPLIED, ""
    if task.text("state") == _COMPLETED and task.integer("run") == item.run and task.text("claim") == item.claim:
        _left_before(task, context)
        count_down_dependents(task, item.task_id, context, again=True)
        return Outcome.REPEATED, ""
    return _stale_result(task, item.run, item.claim, context)


def absent_dependents(items: Sequence[Any], rows: Mapping[str, Row | None]) -> set[str]:
    """Keys of the rows that completions among the items count down, as far as they have not been loaded."""
    by_list: dict[Value, Row] = {}  # tasks that pass through one relay name the same: each list is read once
    for item in items:
        if type(item) is Completed and (row := rows.get(f"task:{item.task_id}")) is not None:
            value = row.columns.get
            if value("state") == _RUNNING and value("run") == item.run and value("claim") == item.claim:
                by_list[value("dependents", "")] = row
    references: set[str] = set()
    for text, row in by_list.items():
        if (listed := compact_ids(text)) is None:
            with contextlib.suppress(IntegrityError):  # `decide` refuses the item
                listed = Draft(row.key, row.columns, row.etag).ids("dependents")
        references.update(listed or ())
    return {key for each in references if (key := row_key(each)) not in rows}


def _left_before(task: Draft, context: Context) -> None:
    """A run has ended before: the process that ended it may have died before it sent the Refill."""
    if concurrency.is_limited(task):
        context.effects.append(Refill())


def _stale_result(task: Draft, run: int, claim: str, context: Context) -> Verdict:
    if was_marked_run(task, run, claim, context):
        _left_before(task, context)
        return Outcome.REPEATED, ""
    if task.text("state") == TaskState.PENDING and task.integer("run") > run:
        dispatch(task, context)  # the first handling of this message may have died before it sent this
    return Outcome.STALE, f"run {run} is over: the task is {task.text('state')} in run {task.integer('run')}"


def _failed(item: Failed, context: Context) -> Verdict:
    task = context.view.get(row_key(item.task_id))
    if not _holds(task, item.run, item.claim):
        if (
            task.text("state") in (TaskState.FAILED, TaskState.EXCEPTION)
            and task.integer("run") == item.run
            and task.text("claim") == item.claim
            and not task.text("cancel")
        ):
            _left_before(task, context)
            if task.integer("schema") >= SCHEMA_OF_CONDITIONS and passes_on(context.view.get(GRAPH).value, task.value):
                count_down_dependents(task, item.task_id, context, failure_of(task), again=True)
            return Outcome.REPEATED, ""
        return _stale_result(task, item.run, item.claim, context)
    if task.text("cancel"):
        return end_of_marked_run(
            task, "exception" if item.exception else "failed", item.ended, item.resolution, context
        )
    reason = str(item.resolution.get("reason", ""))
    if item.temporary and not item.exception and timing.temporary_used(task.value) < _retry(task).limit:
        _try_later(task, item, context)
        return Outcome.APPLIED, LATER
    if not item.exception and task.integer("rerunsLeft") > 0:  # never `!= 0`: a negative budget must not run for ever
        task.set("rerunsLeft", task.integer("rerunsLeft") - 1)
        next_run(task, context, "failed", item.ended, reason, item.resolution)
        return Outcome.APPLIED, "rerun"
    state = TaskState.EXCEPTION if item.exception else TaskState.FAILED
    _resolve_unsuccessfully(task, context, state, item.ended, reason, item.resolution)
    return Outcome.APPLIED, ""


def _retry(task: Draft) -> timing.Retry:
    try:
        return timing.retry_of(task.text("retry"))
    except ValueError as error:
        raise IntegrityError(f"row {task.key}: column retry is no policy: {error}") from error


def _try_later(task: Draft, item: Failed, context: Context) -> None:
    """Stand pending for the next run, after a pause: as long as asked for, or one that grows each time."""
    failures = task.integer("temporaryFailures") + 1
    task.set("temporaryFailures", failures)
    seconds = item.retry_after
    if seconds is None:
        used = timing.temporary_used(task.value)
        seconds = timing.pause_seconds(item.task_id, item.run, used, _retry(task))
    not_before = context.now + timedelta(seconds=seconds)
    task.set("notBefore", not_before)
    task.set("pauseSeconds", float(seconds))
    next_run(
        task,
        context,
        "temporary",
        item.ended,
        str(item.resolution.get("reason", "")),
        item.resolution,
        event="task-retry",
        notBefore=not_before.isoformat(),
        left=_retry(task).limit - timing.temporary_used(task.value),
    )


def _overdue(item: Overdue, context: Context) -> Verdict:
    task = context.view.get(row_key(item.task_id))
    reason = _end_if_overdue(task, context)
    return (Outcome.APPLIED, reason) if reason else (Outcome.STALE, f"the task is {task.text('state')}")


def _end_if_overdue(task: Draft, context: Context) -> str:
    """Resolve a task that is out of time, by the clock of the deciding process; gives why, "" if it is in time.

    That voids a claim on it: its worker learns of it at its next renewal.
    """
    why = timing.overdue(task.value, context.now)
    if why is None or task.text("cancel"):  # what is to be cancelled is brought to its end already
        return ""
    code, reason = why
    state = task.text("state")
    if state == TaskState.UNSCHEDULED and passes_on(context.view.get(GRAPH).value, task.value):
        return ""  # its dependents would go on before what it requires has ended: it ends when it stands ready
    if state == _RUNNING:
        task.set("claim", "")
    resolution = {"failed": True, "code": code, "reason": reason}
    _resolve_unsuccessfully(task, context, TaskState.EXCEPTION, context.now.isoformat(), reason, resolution)
    return reason


def _resolve_unsuccessfully(
    task: Draft, context: Context, state: TaskState, ended: str, reason: str, resolution: Mapping[str, Any]
) -> None:
    leave(task, context)
    task.set("state", str(state))
    task.set("ended", ended_at(ended, context))
    task.set("resolved", context.now)
    task.set("resolution", resolution_text(resolution))
    code = resolution.get("code")
    context.event(f"task-{state}", task, run=task.integer("run"), reason=reason or None, code=code)
    block(task, context, reason)


def next_run(
    task: Draft,
    context: Context,
    outcome: str,
    ended: str,
    reason: str,
    resolution: Mapping[str, Any] | None = None,
    begun: bool = False,
    event: str = "task-rerun",
    because: str = "",
    waits: bool = False,
    **more: Any,
) -> None:
    """Close the present run and stand pending for the next one, or (waits, or while it requires something) wait for it.

    begun: it was lost with a worker that ran it. because: why there is a next run; the outcome otherwise. more: further
    fields of the event.
    """
    run = task.integer("run")
    leave(task, context)
    started = task.time("started")
    record: dict[str, Any] = {
        "run": run,
        "outcome": outcome,
        "worker": task.text("worker"),
        "started": started.isoformat() if started else "",
        "ended": ended,
    }
    if begun:
        record["begun"] = True
    if reason:
        record["reason"] = reason[:200]
    for name in ("exitCode", "logsUrl"):
        if resolution and name in resolution:
            record[name] = resolution[name]
    task.set("runs", _runs_text([*task.read_json("runs", list), record]))
    task.set("run", run + 1)
    task.set("claim", "")
    if task.value("ahead"):
        task.set("ahead", False)
    context.event(event, task, run=run + 1, because=because or outcome, reason=reason or None, **more)
    if task.text("cancel") and task.text("state") != _RUNNING:
        task.set("cancel", "")
        task.set("cancelCode", "")
    if waits or task.ids("requiresLeft"):  # those left: it was cancelled before its time, and waits as it did
        task.set("state", str(TaskState.UNSCHEDULED))
    elif is_met(task):
        make_pending(task, context)
    else:  # it was cancelled before its time, and something has failed since that it requires
        task.set("state", str(TaskState.UNSCHEDULED))
        task.set("due", SKIP)
        context.follow.append(reference_of(task.key))


def _runs_text(runs: Sequence[Any]) -> str:
    """The latest runs, as many as are kept and as fit the column."""
    kept = list(runs[-limits.RUNS_KEPT_MAX :])
    while True:
        text = compact_json(kept)
        if utf16_units(text) <= limits.PROPERTY_CHARS_MAX:
            return text
        del kept[0]


def _claim(item: Claim, context: Context) -> Verdict:
    task = context.view.get(row_key(item.task_id))
    if _holds(task, item.run, item.claim):
        return Outcome.REPEATED, ""
    if task.text("state") != _PENDING or task.integer("run") != item.run:
        return Outcome.STALE, f"the task is {task.text('state')} in run {task.integer('run')}"
    if task.integer(EDITED) != item.edited:
        return Outcome.STALE, "the task was edited"
    if reason := _end_if_overdue(task, context):
        return Outcome.ENDED, reason
    if timing.not_yet_seconds(task.value, context.now, item.known_seconds):
        return Outcome.STALE, f"not before {timing.clock_text(task.time('notBefore') or context.now)}"
    if is_held(task):
        return Outcome.STALE, f"the task is held back: {', '.join(task.ids('held'))}"
    if concurrency.is_limited(task) and (no_room := concurrency.full(task, context.view)):
        wait_for_room(task, context)
        return Outcome.STALE, no_room
    seconds = item.lease_seconds
    claim(task, item.claim, item.worker, item.lease_until, context, ahead=item.ahead, lease_seconds=seconds)
    return Outcome.APPLIED, ""


def _renew(item: Renew, context: Context) -> Verdict:
    task = context.view.get(row_key(item.task_id))
    if not _holds(task, item.run, item.claim):
        return Outcome.STALE, f"the task is {task.text('state')} in run {task.integer('run')}"
    if reason := _end_if_overdue(task, context):
        return Outcome.ENDED, reason
    put_off(task, item.lease_until, item.lease_seconds)
    if task.value("ahead"):
        task.set("ahead", False)  # what has been claimed for so long has begun, or was handed back
    return Outcome.APPLIED, task.text("cancel")


def _hand_back(item: HandBack, context: Context) -> Verdict:
    task = context.view.get(row_key(item.task_id))
    if not _holds(task, item.run, item.claim):
        return _stale_result(task, item.run, item.claim, context)
    if task.text("cancel"):
        now = context.now.isoformat()
        return end_of_marked_run(task, "handed-back", now, {"reason": item.reason}, context)
    task.set("handBacks", task.integer("handBacks") + 1)
    next_run(task, context, "handed-back", context.now.isoformat(), item.reason)
    return Outcome.APPLIED, ""


def _lease_lost(item: LeaseLost, context: Context) -> Verdict:
    task = context.view.get(row_key(item.task_id))
    if not _holds(task, item.run, item.claim):
        return _stale_result(task, item.run, item.claim, context)
    if not item.certain and (how := lease(task.value, context.now)) is not Standing.OVER:
        doubtful = "its end cannot be believed: a clock is off"
        return Outcome.REFUSED, "the lease has not ended" if how is Standing.HOLDS else doubtful
    ended = context.now.isoformat()
    reason = f"worker {task.text('worker')} was lost"
    if task.text("cancel"):
        return end_of_marked_run(task, "lost", ended, {"reason": reason}, context)
    begun = not item.alive and task.value("ahead") is not True
    if begun:
        lost = workers_lost(task.read_json("runs", list), task.text("worker"))
        if len(lost) >= (task.integer("workersLostMax") or limits.WORKERS_LOST_MAX):
            words = f"{len(lost)} workers were lost while they ran it: {', '.join(lost)}"[: limits.REASON_CHARS_MAX]
            resolution = {"failed": True, "code": POISON, "reason": words}
            _resolve_unsuccessfully(task, context, TaskState.EXCEPTION, ended, words, resolution)
            return Outcome.APPLIED, POISON
    if task.integer("retriesLeft") > 0:
        task.set("retriesLeft", task.integer("retriesLeft") - 1)
        next_run(task, context, "lost", ended, reason, None, begun)
        return Outcome.APPLIED, "retry"
    spent = f"{reason}, and all retries are spent"
    _resolve_unsuccessfully(task, context, TaskState.EXCEPTION, ended, spent, {"failed": True, "reason": spent})
    return Outcome.APPLIED, ""


def workers_lost(runs: Sequence[Any], worker: str) -> list[str]:
    """Workers that were lost with a run of this task that they had begun, since the task last had a result; each once.

    runs: earlier runs, as the row lists them. worker: the one that is lost now.
    """
    lost = [worker]
    for record in reversed(runs):
        if not isinstance(record, Mapping):
            continue
        outcome = record.get("outcome")
        if outcome == "lost":
            if record.get("begun") is True:
                lost.append(str(record.get("worker", "")))
        elif outcome != "handed-back":
            break
    return list(dict.fromkeys(reversed(lost)))


def _cannot_run(item: CannotRun, context: Context) -> Verdict:
    task = context.view.get(row_key(item.task_id))
    if task.text("state") != TaskState.PENDING or task.integer("run") != item.run:
        return Outcome.STALE, ""
    task.set("refusal", f"{item.worker}: {item.reason}"[: limits.REASON_CHARS_MAX])
    return Outcome.APPLIED, ""


def completions_of(message: TaskCompleted) -> list[Completed]:
    made = [Completed(r.task, r.run, r.claim, r.ended, r.resolution, r.etag, r.over, r.seconds) for r in message.tasks]
    if message.used is not None:
        made[0] = replace(made[0], used=message.used)  # of a message that comes twice it counts once, as the result
    return made


def failures_of(message: TaskFailed) -> list[Failed]:
    made = [
        Failed(r.task, r.run, r.claim, r.ended, r.resolution, r.exception, r.temporary, r.retry_after, r.seconds)
        for r in message.tasks
    ]
    if message.used is not None:
        made[0] = replace(made[0], used=message.used)
    return made


RULES: Final[Rules] = {
    Completed: _completed,
    Failed: _failed,
    Claim: _claim,
    Renew: _renew,
    HandBack: _hand_back,
    LeaseLost: _lease_lost,
    CannotRun: _cannot_run,
    Overdue: _overdue,
}
