"""The state machine: (rows, what happened) -> what to write and what to send.

What this room is for: every rule by which a task, relay or graph moves. `decide` is a plain function over values: rows
as they were read, items in the order they came, the time and the names for new things. It gives a `Decision`, whose
changes fit one commit, or `Need`, the keys of rows that it could not do without. It does no I/O, reads no clock, draws
no randomness and logs nothing.

Two properties hold for every item, and the tests check them:
- decided again after it was committed, it changes nothing and asks for the same effects (a message may come twice), all
  but those behind a relay that has fired: they wait for the sweep;
- an item that names a run which is not the task's present one changes nothing (a message may come late).

    task   unscheduled ── last requirement fulfilled ──▶ pending ── claim ──▶ running ── result ──▶ completed | failed
           running ── failed, reruns left | failed for the moment | lease lost | handed back ──▶ pending (run + 1)
           running ── leases lost too often, malformed ──▶ exception
           unscheduled | pending | running ── deadline passed; pending for too long ──▶ exception
           failed | exception ── manual rerun ──▶ pending (run + 1)
           unscheduled ── all requirements resolved, and not as its condition asks (policy `continue`) ──▶ skipped
    graph  running ── a task failed for good (policy `block`) ──▶ blocked ── last such task rerun ──▶ running
           running ── nothing outstanding ──▶ finished
           submitting ── all rows written ──▶ running | abandoned ──▶ cancelled
           running | blocked ── cancelled by somebody ──▶ cancelling ── every task resolved ──▶ cancelled
    a task of a cancelled graph, or one that is cancelled alone: see `protocol.cancel`
    a task that is held back stands as it stands, and is neither sent nor claimed: see `protocol.pause`
    a task that has not started may be changed or taken away: see `protocol.edit`
           finished | cancelled | blocked ── fenced off ──▶ deleting ── nothing is left ──▶ deleted (a tombstone)
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

from taskgraph.model import limits, timing
from taskgraph.model.columns import Value
from taskgraph.model.errors import IntegrityError, TaskgraphError
from taskgraph.model.foreign_times import Standing
from taskgraph.model.ids import GRAPH, WRITERS, fence_key, is_relay, row_key, value
from taskgraph.model.json_strict import compact_json
from taskgraph.model.states import GRAPH_ENDED, GRAPH_GONE, GraphState, TaskState
from taskgraph.model.utf16 import utf16_units
from taskgraph.protocol import cancel, concurrency, edit, extension, leases, pause, rerun, set_limit, stall
from taskgraph.protocol.cancel import CancelItem, end_of_marked_run, end_of_marked_wait, was_marked_run
from taskgraph.protocol.conditions import SKIP, failure_of, goes_on, passed_on, skip_of, skip_resolution
from taskgraph.protocol.context import (
    Context,
    ContextMark,
    Dispatch,
    Effect,
    GraphEnded,
    NoRoom,
    Outcome,
    Refill,
    Rule,
    Take,
    Verdict,
)
from taskgraph.protocol.definitions import SCHEMA, SCHEMA_OF_CONDITIONS
from taskgraph.protocol.edit import DELETED_IN, EDITED, EditItem
from taskgraph.protocol.extension import ExtensionItem
from taskgraph.protocol.leases import SetRight, lease, put_off
from taskgraph.protocol.pause import HoldItem, take_along
from taskgraph.protocol.propagation import (
    block,
    claim,
    dispatch,
    ended_at,
    heed_deadline,
    is_held,
    leave,
    make_pending,
    resolution_text,
    tell_dependents,
    unblock,
    wait_for_room,
)
from taskgraph.protocol.rows import Draft, NeedRows, View
from taskgraph.protocol.rows import Mark as RowsMark
from taskgraph.protocol.set_limit import LimitItem
from taskgraph.protocol.stall import POISON, StallItem, workers_lost
from taskgraph.storage.checks import sent_bytes
from taskgraph.storage.tables import Change, Insert, Row

T = TypeVar("T", list[Any], dict[str, Any])

EVENT_CHARS_MAX: Final = 30_000
"""JSON of one event row; more facts than that wait for the next commit."""

LATER: Final = "later"
"""The reason in the answer to a failure for the moment: it is tried again later."""

# As plain texts: comparing one with a member of an enumeration takes ten times as long.
_PENDING: Final = TaskState.PENDING.value
_RUNNING: Final = TaskState.RUNNING.value
_COMPLETED: Final = TaskState.COMPLETED.value

_ROW_BYTES: Final = 100  # what a commit adds to each row: its keys, and the id of the operation
_ESCAPED_BYTES_MAX: Final = 12  # of a character, as a store is sent it: two escaped halves


# --- what can happen -------------------------------------------------------------------------------------------


@value
class Completed:
    """A run succeeded. Only the holder of (run, claim) is believed (P6).

    etag, over: see messages.TaskResult; deciding does not look at them.
    """

    task_id: str
    run: int
    claim: str
    ended: str
    resolution: Mapping[str, Any]
    etag: str = ""
    over: str = ""


@value
class Failed:
    """A run failed. exception: it never got to an answer, so it spends no rerun and is final.

    temporary: it failed for the moment, and is tried again later as long as the budget for that lasts; retry_after:
    seconds that it asks for, None for a pause that grows.
    """

    task_id: str
    run: int
    claim: str
    ended: str
    resolution: Mapping[str, Any]
    exception: bool = False
    temporary: bool = False
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class ManualRerun:
    """A person asks for another run of a task that failed for good. run: the one it replaces."""

    task_id: str
    run: int
    reason: str = ""


@value
class Claim:
    """A worker takes a pending run. claim: fresh id, also the fencing token. ahead: it has no slot for it yet.

    edited: of which edit the definition is that it would run (see `protocol.edit`); 0 for the one that was submitted.
    lease_seconds: how long a lease of this worker is, beside its end; 0 if not known. known_seconds: for how long the
    worker knows, by its steady clock, that the run stands ready but for its time.
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
class Renew:
    """A worker still has its run. The reason in its answer, if any: the run is cancelled, and is to be stopped."""

    task_id: str
    run: int
    claim: str
    lease_until: datetime
    lease_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class HandBack:
    """A worker gives its unfinished run back; spends neither a rerun nor a retry."""

    task_id: str
    run: int
    claim: str
    reason: str


@dataclass(frozen=True, slots=True)
class LeaseLost:
    """The lease of a run has ended without a word; spends a retry (D10).

    certain: the worker is known to be dead, so the end of the lease need not be waited for. alive: it is the worker
    itself that says so; it could not run the task, and the task is not to blame.
    """

    task_id: str
    run: int
    claim: str
    certain: bool = False
    alive: bool = False


@dataclass(frozen=True, slots=True)
class CannotRun:
    """A worker that was offered a run lacks what it takes; written down so that `why` can say it."""

    task_id: str
    run: int
    worker: str
    reason: str


@dataclass(frozen=True, slots=True)
class Overdue:
    """A task may be past its deadline, or pending for longer than it may: if it is, by its row, it ends here."""

    task_id: str


@dataclass(frozen=True, slots=True)
class NextDeadline:
    """No task that waits has a deadline before `then`, as far as the graph's rows went at this revision (sweep).

    seen, waits_again: what the graph row said before. It holds for no other, and not while an extension brings rows in.
    """

    seen: datetime
    revision: int
    waits_again: int
    then: datetime


@value
class Fire:
    """A relay whose requirements are all fulfilled passes that on."""

    reference: str


@value
class Skip:
    """A task whose requirements ended otherwise than it asks is resolved as skipped, and passes that on."""

    task_id: str


@dataclass(frozen=True, slots=True)
class Remind:
    """A task that stands pending and unclaimed is sent again (sweep)."""

    task_id: str


@dataclass(frozen=True, slots=True)
class Start:
    """All rows of a submission are written: submitting -> running, in one flip (P10)."""

    digest: str


@dataclass(frozen=True, slots=True)
class Abandon:
    """A submission that nobody has gone on with since `before` is fenced off (P10): it can never start."""

    before: datetime


@dataclass(frozen=True, slots=True)
class BeginDeletion:
    """A graph is to be deleted: from here on nothing else is decided about it. Its rows go in later commits.

    until: its id is not given again before. forced: a blocked graph too. because: in whose name, for people.
    """

    until: datetime
    forced: bool = False
    because: str = ""


Item = (
    Completed
    | Failed
    | ManualRerun
    | Claim
    | Renew
    | HandBack
    | LeaseLost
    | SetRight
    | CannotRun
    | Overdue
    | NextDeadline
    | Fire
    | Skip
    | Remind
    | Start
    | Abandon
    | CancelItem
    | HoldItem
    | LimitItem
    | BeginDeletion
    | StallItem
    | ExtensionItem
    | EditItem
)


@value
class Answer:
    """The outcome of one item, with a reason where there is one to give. error: the item could not be decided."""

    item: Item
    outcome: Outcome
    reason: str = ""
    error: TaskgraphError | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """What one commit writes, what is sent after it, what became of the items, and what did not fit.

    unchanged: keys of rows that were decided by and are not written, so that no etag makes them good: should they be
    old, so is the decision.
    """

    changes: tuple[Change, ...]
    effects: tuple[Effect, ...]
    answers: tuple[Answer, ...]
    left: tuple[Item, ...]
    unchanged: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Need:
    """Rows that the decision could not do without."""

    keys: frozenset[str]


def decide(
    rows: Mapping[str, Row | None],
    items: Sequence[Item],
    *,
    now: datetime,
    operation: str,
    sequence: int,
    completed: int = -1,
    skipped: int = 0,
    take: Take | None = None,
    changes_max: int | None = None,
) -> Decision | Need:
    """Decide as many items as fit one commit, in order.

    rows: row key -> row, or None for one that does not exist. operation: id of this commit. sequence: number of the
    event row that it may insert. completed, skipped: tasks that had completed, and been skipped, before; -1 if that is
    not known. take: who claims what becomes ready. changes_max: rows in one commit, None for what every store takes. An
    item that cannot be decided gets an answer with its error; the others go on.
    """
    view = View(rows)
    most = changes_max or limits.COMMIT_CHANGES_MAX
    context = Context(view, now, take=take, changes_max=most, skipped=skipped, sequence=sequence)
    answers: list[Answer] = []
    needed: set[str] = set()
    todo: list[Item] = list(items)
    left: list[Item] = []
    position = looked_at = 0
    while position < len(todo):
        item = todo[position]
        position += 1
        rows_mark, context_mark, looked_at = view.mark(), context.mark(), view.size
        context.follow.clear()
        try:
            outcome, reason = RULES[type(item)](item, context)
            if len(context.events) > len(context.event_texts):
                context.write_events()
            fits = bool(needed) or _fits(view, context)
        except NoRoom:
            fits = False
        except NeedRows as need:
            needed |= need.keys
            _undo(context, rows_mark, context_mark)
            continue
        except TaskgraphError as error:
            _undo(context, rows_mark, context_mark)
            answers.append(Answer(item, Outcome.REFUSED, str(error), error))
            continue
        if needed:
            continue  # the whole decision will be made again; only collect what else it needs
        if not fits:
            _undo(context, rows_mark, context_mark)
            if view.changes_anything():
                left = [item, *todo[position:]]
                break  # what only this item looked at is looked at again
            too_large = IntegrityError(f"{type(item).__name__} does not fit one commit")
            answers.append(Answer(item, Outcome.REFUSED, str(too_large), too_large))
            continue
        if not isinstance(item, Fire | Skip):
            answers.append(Answer(item, outcome, reason))
        if context.follow:
            todo[position:position] = [Fire(each) if is_relay(each) else Skip(each) for each in context.follow]
    if needed:
        return Need(frozenset(needed))
    unchanged = view.unchanged(looked_at if left else view.size)
    if context.events:
        view.insert(_event_row(context, sequence, completed))
    effects = tuple(
        [each for each in context.effects if not isinstance(each, Dispatch | Refill) or _stands(each, view)]
    )
    return Decision(tuple(view.changes(operation)), effects, tuple(answers), tuple(left), tuple(unchanged))


def _stands(ready: Dispatch | Refill, view: View) -> bool:
    """Whether a task is to be sent when all is decided: nothing holds it back, and no later item has moved it on."""
    if not ready.task_id:
        return True  # it speaks of room, and of no task
    task = view.get(f"task:{ready.task_id}")
    return task.text("state") == _PENDING and task.integer("run") == ready.run and not is_held(task)


def _undo(context: Context, rows_mark: RowsMark, context_mark: ContextMark) -> None:
    context.view.rollback(rows_mark)
    context.rollback(context_mark)


def event_key(sequence: int) -> str:
    """Row key of an event row; ascending keys read as a journal."""
    return f"event:{sequence:010d}"


def _event_row(context: Context, sequence: int, completed: int) -> Insert:
    kinds = [event["event"] for event in context.events]
    columns: dict[str, Value] = {
        "schema": SCHEMA,
        "sequence": sequence,
        "time": context.now,
        "kinds": " ".join(dict.fromkeys(kinds)),
        "events": context.events_text,
    }
    if completed >= 0:
        # So that whoever wants to know how far the graph is need not look at every task.
        columns["completed"] = completed + kinds.count("task-completed")
        skipped = context.skipped + kinds.count("task-skipped")
        if skipped > 0:
            columns["skipped"] = skipped
    return Insert(event_key(sequence), columns)


def _fits(view: View, context: Context) -> bool:
    rows_max = context.changes_max - bool(context.events)
    if view.rows_at_most > rows_max and len(view.changed()) > rows_max:
        return False
    if context.events_units > EVENT_CHARS_MAX:
        return False
    if (view.chars_at_most + EVENT_CHARS_MAX) * _ESCAPED_BYTES_MAX <= limits.COMMIT_BYTES_MAX:
        return True  # whatever characters they are; only what might be too long is counted, and then measured
    changed = view.changed()
    size = sum(len(value) for draft in changed for value in draft.written.values() if isinstance(value, str))
    if (size + EVENT_CHARS_MAX) * _ESCAPED_BYTES_MAX <= limits.COMMIT_BYTES_MAX:
        return True
    size = sum(_ROW_BYTES + sent_bytes(draft.written) for draft in changed)
    return size + EVENT_CHARS_MAX * _ESCAPED_BYTES_MAX <= limits.COMMIT_BYTES_MAX


def _task(task_id: str, context: Context) -> Draft:
    return context.view.get(row_key(task_id))


def _holds(task: Draft, run: int, claim: str) -> bool:
    return task.text("state") == _RUNNING and task.integer("run") == run and task.text("claim") == claim


def _completed(item: Completed, context: Context) -> Verdict:
    task = _task(item.task_id, context)
    if _holds(task, item.run, item.claim):
        if task.text("cancel"):
            return end_of_marked_run(task, "completed", item.ended, item.resolution, context)
        leave(task, context)
        task.set("state", _COMPLETED)
        task.set("ended", ended_at(item.ended, context))
        task.set("resolved", context.now)
        task.set("resolution", resolution_text(item.resolution))
        context.event("task-completed", task=item.task_id, label=task.text("label"), run=item.run)
        tell_dependents(task, item.task_id, context)
        return Outcome.APPLIED, ""
    if task.text("state") == _COMPLETED and task.integer("run") == item.run and task.text("claim") == item.claim:
        _left_before(task, context)
        tell_dependents(task, item.task_id, context)
        return Outcome.REPEATED, ""
    return _stale_result(task, item.run, item.claim, context)


def _left_before(task: Draft, context: Context) -> None:
    """A run has ended before: whoever ended it may have died before anybody was told of the room that it left."""
    if concurrency.is_limited(task):
        context.effects.append(Refill())


def _stale_result(task: Draft, run: int, claim: str, context: Context) -> Verdict:
    if was_marked_run(task, run, claim, context):
        _left_before(task, context)
        return Outcome.REPEATED, ""
    if task.text("state") == TaskState.PENDING and task.integer("run") > run:
        dispatch(task, context)  # it may be the very message whose first handling died before it sent this
    return Outcome.STALE, f"run {run} is over: the task is {task.text('state')} in run {task.integer('run')}"


def _failed(item: Failed, context: Context) -> Verdict:
    task = _task(item.task_id, context)
    if not _holds(task, item.run, item.claim):
        if (
            task.text("state") in (TaskState.FAILED, TaskState.EXCEPTION)
            and task.integer("run") == item.run
            and task.text("claim") == item.claim
            and not task.text("cancel")
        ):
            _left_before(task, context)
            if task.integer("schema") >= SCHEMA_OF_CONDITIONS and goes_on(context.view.get(GRAPH)):
                tell_dependents(task, item.task_id, context, failure_of(task))
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
        _next_run(task, context, "failed", item.ended, reason, item.resolution)
        return Outcome.APPLIED, "rerun"
    _resolve_unsuccessfully(
        task,
        context,
        TaskState.EXCEPTION if item.exception else TaskState.FAILED,
        item.ended,
        reason,
        item.resolution,
    )
    return Outcome.APPLIED, ""


def _retry(task: Draft) -> timing.Retry:
    try:
        return timing.retry_of(task.text("retry"))
    except ValueError as error:
        raise IntegrityError(f"row {task.key}: column retry is no policy: {error}") from error


def _try_later(task: Draft, item: Failed, context: Context) -> None:
    """Stand pending for the next run, not before a pause: of the length asked for, or one that grows each time."""
    failures = task.integer("temporaryFailures") + 1
    task.set("temporaryFailures", failures)
    seconds = item.retry_after
    if seconds is None:
        used = timing.temporary_used(task.value)
        seconds = timing.pause_seconds(item.task_id, item.run, used, _retry(task))
    not_before = context.now + timedelta(seconds=seconds)
    task.set("notBefore", not_before)
    task.set("pauseSeconds", float(seconds))
    _next_run(
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
    task = _task(item.task_id, context)
    reason = _end_if_overdue(task, context)
    return (Outcome.APPLIED, reason) if reason else (Outcome.STALE, f"the task is {task.text('state')}")


def _next_deadline(item: NextDeadline, context: Context) -> Verdict:
    graph = context.view.get(GRAPH)
    is_seen = (graph.time("nextDeadline"), graph.integer("waitsAgain")) == (item.seen, item.waits_again)
    if not is_seen or graph.integer("revision") != item.revision or graph.text("extending"):
        return Outcome.STALE, ""
    graph.set("nextDeadline", item.then)
    return Outcome.APPLIED, ""


def _end_if_overdue(task: Draft, context: Context) -> str:
    """Resolve a task that may not go on any more, whoever came by; gives why, "" if it may.

    By the time of whoever decides. A claim on it is over with that: its worker hears so at its next renewal.
    """
    why = timing.overdue(task.value, context.now)
    if why is None or task.text("cancel"):  # what is to be cancelled is brought to its end already
        return ""
    code, reason = why
    state = task.text("state")
    if state == TaskState.UNSCHEDULED and goes_on(context.view.get(GRAPH)):
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
    context.event(
        f"task-{state}",
        task=task.key.removeprefix("task:"),
        label=task.text("label"),
        run=task.integer("run"),
        reason=reason or None,
        code=resolution.get("code"),
    )
    block(task, context, reason)


def _next_run(
    task: Draft,
    context: Context,
    outcome: str,
    ended: str,
    reason: str,
    resolution: Mapping[str, Any] | None = None,
    begun: bool = False,
    event: str = "task-rerun",
    **more: Any,
) -> None:
    """Close the present run and stand pending for the next one.

    begun: it was lost with a worker that ran it. more: what else the event says.
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
    task.set("runs", _runs_text([*_read(task, "runs", list), record]))
    task.set("run", run + 1)
    task.set("claim", "")
    if task.value("ahead"):
        task.set("ahead", False)
    context.event(
        event,
        task=task.key.removeprefix("task:"),
        label=task.text("label"),
        run=run + 1,
        because=outcome,
        reason=reason or None,
        **more,
    )
    if task.text("cancel"):
        task.set("cancel", "")
        task.set("cancelCode", "")
    if task.ids("requiresLeft"):  # it was cancelled before its time: it waits, as it did
        task.set("state", str(TaskState.UNSCHEDULED))
    else:
        make_pending(task, context)


def _read(task: Draft, name: str, kind: type[T]) -> T:
    """A JSON column, empty where it is missing. Raises IntegrityError."""
    text = task.text(name)
    try:
        found = json.loads(text) if text else kind()
    except ValueError as error:
        raise IntegrityError(f"row {task.key}: column {name} is no JSON") from error
    if not isinstance(found, kind):
        raise IntegrityError(f"row {task.key}: column {name} is no JSON {'list' if kind is list else 'object'}")
    return found


def _runs_text(runs: Sequence[Any]) -> str:
    """The latest runs, as many as are kept and as fit the column."""
    kept = list(runs[-limits.RUNS_KEPT_MAX :])
    while True:
        text = compact_json(kept)
        if utf16_units(text) <= limits.PROPERTY_CHARS_MAX:
            return text
        del kept[0]


def _manual_rerun(item: ManualRerun, context: Context) -> Verdict:
    task = _task(item.task_id, context)
    state, run = task.text("state"), task.integer("run")
    if run == item.run + 1 and state == TaskState.PENDING:
        dispatch(task, context)
        return Outcome.REPEATED, ""
    if run == item.run + 1 and state == TaskState.UNSCHEDULED:
        return Outcome.REPEATED, ""
    if run != item.run:
        return Outcome.STALE, f"run {item.run} is over: the task is {state} in run {run}"
    graph = context.view.get(GRAPH)
    if (refused := rerun.refusal(graph.value, task.value, context.now)) is not None:
        return Outcome.REFUSED, refused.reason
    deadline = task.time("deadline")
    resolution = _read(task, "resolution", dict)
    reason = item.reason or "asked for by hand"
    task.set("manualReruns", task.integer("manualReruns") + 1)
    if failures := task.integer("temporaryFailures"):
        task.set("temporaryForgiven", failures)  # the budget is whole again
    if is_held(task) or graph.text("held"):
        take_along(task, graph)
    ended = task.value("ended")  # a text on rows that a version before 0.3 wrote
    text = ended.isoformat() if isinstance(ended, datetime) else task.text("ended")
    _next_run(task, context, state, text, reason, resolution)
    if deadline is not None and task.text("state") == TaskState.UNSCHEDULED:
        heed_deadline(graph, deadline)
    unblock(context)
    return Outcome.APPLIED, ""


def _claim(item: Claim, context: Context) -> Verdict:
    task = _task(item.task_id, context)
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
    task = _task(item.task_id, context)
    if not _holds(task, item.run, item.claim):
        return Outcome.STALE, f"the task is {task.text('state')} in run {task.integer('run')}"
    if reason := _end_if_overdue(task, context):
        return Outcome.ENDED, reason
    put_off(task, item.lease_until, item.lease_seconds)
    if task.value("ahead"):
        task.set("ahead", False)  # what has been claimed for so long has begun, or was handed back
    return Outcome.APPLIED, task.text("cancel")


def _hand_back(item: HandBack, context: Context) -> Verdict:
    task = _task(item.task_id, context)
    if not _holds(task, item.run, item.claim):
        return _stale_result(task, item.run, item.claim, context)
    if task.text("cancel"):
        now = context.now.isoformat()
        return end_of_marked_run(task, "handed-back", now, {"reason": item.reason}, context)
    task.set("handBacks", task.integer("handBacks") + 1)
    _next_run(task, context, "handed-back", context.now.isoformat(), item.reason)
    return Outcome.APPLIED, ""


def _lease_lost(item: LeaseLost, context: Context) -> Verdict:
    task = _task(item.task_id, context)
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
        lost = workers_lost(_read(task, "runs", list), task.text("worker"))
        if len(lost) >= (task.integer("workersLostMax") or limits.WORKERS_LOST_MAX):
            words = f"{len(lost)} workers were lost while they ran it: {', '.join(lost)}"[: limits.REASON_CHARS_MAX]
            resolution = {"failed": True, "code": POISON, "reason": words}
            _resolve_unsuccessfully(task, context, TaskState.EXCEPTION, ended, words, resolution)
            return Outcome.APPLIED, POISON
    if task.integer("retriesLeft") > 0:
        task.set("retriesLeft", task.integer("retriesLeft") - 1)
        _next_run(task, context, "lost", ended, reason, None, begun)
        return Outcome.APPLIED, "retry"
    _resolve_unsuccessfully(
        task,
        context,
        TaskState.EXCEPTION,
        ended,
        f"{reason}, and all retries are spent",
        {"failed": True, "reason": f"{reason}, and all retries are spent"},
    )
    return Outcome.APPLIED, ""


def _cannot_run(item: CannotRun, context: Context) -> Verdict:
    task = _task(item.task_id, context)
    if task.text("state") != TaskState.PENDING or task.integer("run") != item.run:
        return Outcome.STALE, ""
    task.set("refusal", f"{item.worker}: {item.reason}"[: limits.REASON_CHARS_MAX])
    return Outcome.APPLIED, ""


def _fire(item: Fire, context: Context) -> Verdict:
    if context.view.find(row_key(item.reference)) is None and context.view.get(GRAPH).integer(DELETED_IN):
        return Outcome.STALE, "an edit has taken the relay away"
    relay = context.view.named(item.reference)
    state = relay.text("state")
    if relay.ids("requiresLeft") or state == TaskState.UNSCHEDULED:
        return Outcome.STALE, "the relay still waits"
    if state == TaskState.PENDING:
        relay.set("state", str(TaskState.COMPLETED))
    tell_dependents(relay, item.reference, context, passed_on(relay))
    return (Outcome.APPLIED if state == TaskState.PENDING else Outcome.REPEATED), ""


def _skip(item: Skip, context: Context) -> Verdict:
    task = _task(item.task_id, context)
    if task.text("state") == TaskState.SKIPPED:
        tell_dependents(task, item.task_id, context, skip_of(task))
        return Outcome.REPEATED, ""
    if task.text("state") != TaskState.UNSCHEDULED or task.text("due") != SKIP:
        return Outcome.STALE, f"the task is {task.text('state')}"
    task.set("due", "")
    if task.text("cancel"):
        end_of_marked_wait(task, context)
        return Outcome.APPLIED, ""
    resolution = skip_resolution(task)
    task.set("state", str(TaskState.SKIPPED))
    task.set("resolved", context.now)
    task.set("resolution", compact_json(resolution))
    cause = resolution.get("cause", {})
    context.event(
        "task-skipped",
        task=item.task_id,
        label=task.text("label"),
        reason=resolution["reason"],
        cause=cause.get("taskId"),
    )
    tell_dependents(task, item.task_id, context, skip_of(task))
    return Outcome.APPLIED, ""


def _remind(item: Remind, context: Context) -> Verdict:
    task = _task(item.task_id, context)
    if task.text("state") != TaskState.PENDING:
        return Outcome.STALE, ""
    dispatch(task, context)
    return Outcome.REPEATED, ""


def _start(item: Start, context: Context) -> Verdict:
    graph = context.view.get(GRAPH)
    if graph.text("state") in GRAPH_GONE:
        return Outcome.REFUSED, "it was deleted while it was submitted"
    if graph.text("digest") != item.digest:
        return Outcome.REFUSED, "another graph was submitted under this id"
    if graph.text("state") in (GraphState.CANCELLING, GraphState.CANCELLED):
        return Outcome.REFUSED, f"it is {graph.text('state')}: {graph.text('reason')}"
    if graph.text("state") != GraphState.SUBMITTING:
        return Outcome.REPEATED, ""
    _end_writing(graph, context)
    graph.set("state", str(GraphState.RUNNING))
    graph.set("started", context.now)
    context.event("graph-running")
    return Outcome.APPLIED, ""


def _end_writing(graph: Draft, context: Context) -> None:
    """Take the fences of a submission away: a writer that comes late inserts no row any more."""
    keys = [fence_key(number) for number in range(1, graph.integer(WRITERS))]
    context.view.require(keys)
    for key in keys:
        if context.view.find(key) is not None:
            context.view.delete(key)


def _abandon(item: Abandon, context: Context) -> Verdict:
    graph = context.view.get(GRAPH)
    created = graph.time("created")
    if graph.text("state") != GraphState.SUBMITTING or created is None or created >= item.before:
        return Outcome.STALE, ""
    _end_writing(graph, context)
    graph.set("state", str(GraphState.CANCELLED))
    graph.set("reason", "the submission was begun and never finished")
    context.event("graph-cancelled", reason="abandoned submission")
    context.effects.append(GraphEnded(GraphState.CANCELLED))
    return Outcome.APPLIED, ""


def _begin_deletion(item: BeginDeletion, context: Context) -> Verdict:
    graph = context.view.get(GRAPH)
    state = graph.text("state")
    if state in GRAPH_GONE:
        return Outcome.REPEATED, ""
    if refusal := undeletable(state, forced=item.forced):
        return Outcome.REFUSED, refusal
    graph.set("was", state)
    graph.set("state", str(GraphState.DELETING))
    graph.set("deleting", context.now)
    graph.set("until", item.until)
    graph.set("because", item.because[: limits.REASON_CHARS_MAX])
    context.event("graph-deleting", was=state, reason=item.because or None)
    return Outcome.APPLIED, ""


def undeletable(state: str, *, forced: bool) -> str:
    """Why a graph in this state may not be deleted, with the remedy; "" if it may."""
    if state in GRAPH_ENDED or (forced and state in (GraphState.BLOCKED, GraphState.RESTORING)):
        return ""
    if state == GraphState.BLOCKED:
        return "it is blocked, and could go on after a rerun; with --force it is deleted all the same"
    if state == GraphState.SUBMITTING:
        return "it is still being submitted; it is cancelled a day after the last was heard of that"
    if state == GraphState.RESTORING:
        return "it is being restored; with --force what has been put back is deleted"
    if state == GraphState.CANCELLING:
        return "it is being cancelled; wait until it is cancelled"
    return f"it is {state}, and only a graph that has ended is deleted; cancel it first"


RULES: Final[dict[type, Rule]] = {
    Completed: _completed,
    Failed: _failed,
    ManualRerun: _manual_rerun,
    Claim: _claim,
    Renew: _renew,
    HandBack: _hand_back,
    LeaseLost: _lease_lost,
    CannotRun: _cannot_run,
    Overdue: _overdue,
    NextDeadline: _next_deadline,
    Fire: _fire,
    Skip: _skip,
    Remind: _remind,
    Start: _start,
    Abandon: _abandon,
    BeginDeletion: _begin_deletion,
    **leases.RULES,
    **cancel.RULES,
    **pause.RULES,
    **set_limit.RULES,
    **stall.RULES,
    **extension.RULES,
    **edit.RULES,
}
"""The rule for each type of item."""
