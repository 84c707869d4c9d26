"""Rules that several transitions share: count down, make ready, finish, block and fence off."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from taskgraph.model import columns, limits, timing
from taskgraph.model.columns import NO_OUTPUT, OUTPUT
from taskgraph.model.errors import IntegrityError
from taskgraph.model.ids import GRAPH, edge_name_of, is_relay
from taskgraph.model.json_strict import compact_json
from taskgraph.model.priorities import level_of, rank
from taskgraph.model.states import FailurePolicy, GraphState, TaskState
from taskgraph.model.utf16 import utf16_units
from taskgraph.protocol import concurrency, tally
from taskgraph.protocol.conditions import (
    COMPLETED,
    FAILED_APART,
    SKIP,
    Ending,
    blocking,
    failure_of,
    goes_on,
    is_met,
    keep_ending,
    passes_on,
)
from taskgraph.protocol.context import (
    CANCELLED,
    FAIL_FAST,
    Cancelling,
    CancelRest,
    Context,
    Dispatch,
    GraphEnded,
    GraphRevived,
    NoRoom,
    Refill,
    Started,
)
from taskgraph.protocol.definitions import moment
from taskgraph.protocol.leases import put_off
from taskgraph.protocol.rows import Draft

# As plain texts: comparing one with a member of an enumeration takes ten times as long.
_UNSCHEDULED: Final = TaskState.UNSCHEDULED.value
_PENDING: Final = TaskState.PENDING.value
_RUNNING: Final = TaskState.RUNNING.value

_RESOLUTION_KEYS: Final = ("failed", "cancelled", "code", "exitCode", "resultUrl", "logsUrl", OUTPUT, NO_OUTPUT)

DEFERRED: Final = "deferred"
"""Column of the graph: extensions that were requested while it was paused, and are made when it is resumed."""

RECALL: Final = "recall"
"""In the column `due` of a task or relay that was reset, and has not taken its end back from its dependents."""

READY: Final = "ready"
"""In the column `due` of a task that was reset and waits for nothing but the end of all recalls."""

GOING: Final = (GraphState.RUNNING.value, GraphState.BLOCKED.value)
"""States in which a graph goes on, and may be paused, extended and edited."""


def is_held(task: Draft) -> bool:
    return columns.is_held(task.value("held"))


def dispatch(task: Draft, context: Context) -> None:
    """Send the message of a task that stands pending, delayed until the task may be claimed.

    It is left out if, when all is decided, the task is held back or does not stand pending.
    """
    delay = timing.not_yet_seconds(task.value, context.now)
    if delay > limits.DELAY_SECONDS_MAX:
        return  # no queue keeps a message for so long: the sweep sends it
    task_id, level = task.key.removeprefix("task:"), level_of(task.value)
    if not delay and concurrency.is_limited(task):
        wait_for_room(task, context)
        return
    context.effects.append(Dispatch(task_id, task.integer("run"), task.text("target"), delay, level))


def wait_for_room(task: Draft, context: Context) -> None:
    """A limited task stands ready: it is dispatched with others, by how much room there is."""
    since = task.time("pendingSince")
    task_id = task.key.removeprefix("task:")
    place = rank(level_of(task.value))
    scopes = tuple(task.ids("limits"))
    context.effects.append(Refill(task_id, task.integer("run"), task.text("target"), scopes, since, place))


def leave(task: Draft, context: Context) -> None:
    """Free the places of a run that ends, under its limits, in this very commit."""
    if task.text("state") == _RUNNING and concurrency.is_limited(task):
        context.scopes.update(task.ids("limits"))
        concurrency.leave(task, context.view, context.now)
        context.effects.append(Refill())


def make_pending(task: Draft, context: Context) -> None:
    """Move a task to pending: its row is the record that it must be dispatched, until it is claimed (D9)."""
    task.set("state", _PENDING)
    task.set("pendingSince", context.now)
    dispatch(task, context)


def claim(
    task: Draft,
    claim_id: str,
    worker: str,
    lease_until: datetime,
    context: Context,
    *,
    ahead: bool = False,
    lease_seconds: float = 0.0,
) -> None:
    """Move a pending task to running (D10). ahead: its worker has no slot for it yet. lease_seconds: 0 if not known."""
    if ahead:
        task.set("ahead", True)
    if concurrency.is_limited(task):
        concurrency.enter(task, context.view, context.now)
    task.set("state", _RUNNING)
    task.set("claim", claim_id)
    task.set("worker", worker)
    put_off(task, lease_until, lease_seconds)
    task.set("started", context.now)


def make_ready(task: Draft, context: Context) -> None:
    """A task waits for nothing more: it stands pending, or is claimed by the worker that offered to take it."""
    if not claim_at_once(task, context):
        make_pending(task, context)


def claim_at_once(task: Draft, context: Context) -> bool:
    """Claim a task that is ready for the worker that offered to take it, if one did and it may begin now."""
    offer = context.offer
    if offer is None or context.taken >= len(offer.claims):
        return False
    definition = task.text("task")
    may_begin = not timing.not_yet_seconds(task.value, context.now) and not timing.overdue(task.value, context.now)
    may_begin = may_begin and not is_held(task) and (not concurrency.is_limited(task) or _may_take(task, context))
    may_begin = may_begin and (offer.rank_max is None or rank(level_of(task.value)) <= offer.rank_max)
    if not (may_begin and definition and task.text("target") in offer.targets and offer.fits(definition)):
        return False
    claim_id = offer.claims[context.taken]
    context.taken += 1
    task.set("pendingSince", context.now)
    ahead = offer.begins is not None and context.taken > offer.begins
    claim(task, claim_id, offer.worker, offer.lease_until, context, ahead=ahead, lease_seconds=offer.lease_seconds)
    task_id = task.key.removeprefix("task:")
    context.effects.append(Started(task_id, task.integer("run"), claim_id, task.text("label"), definition))
    return True


def _may_take(task: Draft, context: Context) -> bool:
    """Whether a limited task may be claimed in the commit that makes it ready.

    All tasks of an item together are under no more limits than one task may be: so many rows have room in any commit.
    """
    scopes = context.scopes.union(task.ids("limits"))
    if context.offer is None or not context.offer.limited or len(scopes) > limits.LIMITS_OF_TASK_MAX:
        return False
    if concurrency.seems_full(task, context.view):
        return False
    context.scopes = scopes
    return True


def count_down_dependents(
    node: Draft, reference: str, context: Context, ending: Ending = COMPLETED, *, again: bool = False, but: str = ""
) -> None:
    """Count down every dependent of a resolved node. Repeated, it changes nothing and has the same effects.

    again: the node was resolved in an earlier commit. Where a dependent waits for it all the same, the node may have
    been reset since it was read: it is written too, so that its etag is checked. but: one that is left out.
    """
    dependents = node.ids("dependents")
    if but:
        dependents = [each for each in dependents if each != but]
    if context.rows_before and context.rows_before + len(dependents) > context.changes_max:
        raise NoRoom
    context.view.require([f"task:{each}" if ":" not in each and each != GRAPH else each for each in dependents])
    name = edge_name_of(reference)
    if again and any(name in context.view.named(each).ids("requiresLeft") for each in dependents):
        node.confirm()
    for each in dependents:
        count_down(each, name, context, ending)


def count_down(reference: str, fulfilled: str, context: Context, ending: Ending = COMPLETED) -> None:
    """Take one requirement off a dependent, by id (P7), and do what follows, in the same commit."""
    row = context.view.named(reference)
    if row.value("tally"):
        if not _counted(row, fulfilled, context, ending):
            return
    elif ending is not COMPLETED and reference != GRAPH and fulfilled in row.ids("requiresLeft"):
        keep_ending(row, fulfilled, ending)
    if row.cross_off("requiresLeft", fulfilled):
        return
    # Level-triggered from here: a repeated message sends again what stands ready (D9).
    state = row.text("state")
    if reference == GRAPH:
        if state == GraphState.RUNNING and not row.ids(DEFERRED) and not row.integer("recalls"):
            finish(row, context)
        elif state == GraphState.FINISHED:
            # Repeated: the process that finished it may have died before it sent this.
            context.effects.append(GraphEnded(GraphState.FINISHED))
    elif is_relay(reference):
        if row.text("due"):
            return  # its recall comes first
        if state == _UNSCHEDULED:
            row.set("state", _PENDING)
        if state in (_UNSCHEDULED, _PENDING):
            context.follow.append(reference)
    elif state == _UNSCHEDULED:
        if row.text("due") in (RECALL, READY):
            return  # it goes on when there are no recalls left
        if is_met(row) and not row.text("cancel"):
            make_ready(row, context)
        else:
            row.set("due", SKIP)  # its own reminder, as it may be skipped in a later commit
            context.follow.append(reference)
    elif state == _PENDING:
        dispatch(row, context)


def _counted(row: Draft, name: str, context: Context, ending: Ending) -> bool:
    """Cross a member off, or a piece of a tally, and count it; gives whether the row waits for nothing more."""
    if name in row.ids("requiresLeft"):
        found = context.view.named(row.text("tally"))
        row.cross_off("requiresLeft", name)
        if tally.counts(row, name):
            tally.count(row, found, name, ending)
            decide_group(found, context)
    return not row.ids("requiresLeft")


def decide_group(counted: Draft, context: Context) -> None:
    """Do what follows from the counts of a group: cancel what is left, and pass the decision on, once.

    Not while a recall of either is to come: the end of it looks again.
    """
    verdict = tally.verdict(counted)
    if counted.text("due") or not verdict:
        return
    if counted.text("rest") == tally.CANCEL and tally.left(counted):
        counted.set("rest", tally.CANCELLING)
        context.effects.append(CancelRest(counted.key))
    if counted.text("announced") or (
        counted.text("then") == tally.WAIT and counted.text("state") != TaskState.COMPLETED
    ):
        return
    decision = context.view.named(counted.text("decides"))
    if decision.text("due"):
        return
    counted.set("announced", verdict)
    numbers = {name: counted.integer(name) for name in ("needs", "of", "ok", "bad")}
    context.event("group-decided", about=counted.key, group=counted.text("label"), decided=verdict, **numbers)
    count_down(decision.key, counted.key, context, tally.ending_announced(counted.value, verdict, counted.key))


def heed_deadline(graph: Draft, deadline: datetime) -> None:
    """Let the sweep look when the deadline of a task that waits again passes.

    A sweep that has read the rows before this commit must not overwrite this (NextDeadline). So it is counted, as the
    same time may stand there again; versions before 0.4 compare the time alone, which is another then.
    """
    before = graph.time("nextDeadline")
    graph.set("nextDeadline", deadline if before is None else min(deadline, before - timedelta(milliseconds=1)))
    graph.set("waitsAgain", graph.integer("waitsAgain") + 1)


def finish(graph: Draft, context: Context) -> None:
    """In the commit that takes away the last outstanding requirement of the graph (P8)."""
    failed = graph.integer("failedTasks")
    if failed and blocking(graph):
        raise IntegrityError("the graph waits for nothing, and yet a task of it has failed for good")
    skipped = context.skipped
    if skipped >= 0:
        skipped += context.more_of("task-skipped", TaskState.SKIPPED, context.kinds)
        if skipped:
            graph.set("skippedTasks", skipped)
    graph.set("state", str(GraphState.FINISHED))
    graph.set("finished", context.now)
    _forget_holds(graph)
    context.event("graph-finished", failed=failed or None, skipped=max(0, skipped) or None)
    context.effects.append(GraphEnded(GraphState.FINISHED))


def _forget_holds(graph: Draft) -> None:
    """A graph that ends starts no more tasks: no pause is left to settle or to announce, and no limit to take over."""
    if graph.value("settling"):
        graph.set("settling", False)
        graph.set_ids("pausing", [])
    if graph.value("limiting"):
        graph.set("limiting", False)


def block(task: Draft, context: Context, reason: str) -> None:
    """Count a task that failed for good, and apply its failure policy, which is that of its group or of the graph.

    A running graph is blocked, while other branches go on; or it is cancelled; or the task's dependents are counted
    down.
    """
    graph = context.view.get(GRAPH)
    passes = _count_failure(task, graph, 1)
    if graph.text("state") == GraphState.CANCELLING:
        return  # its dependents are cancelled too
    if passes:
        count_down_dependents(task, task.key.removeprefix("task:"), context, failure_of(task))
        return
    if (task.text("failurePolicy") or graph.text("failurePolicy")) == FailurePolicy.FAIL_FAST:
        why = f"“{task.text('label')}” failed" + (f": {reason}" if reason else "")
        fence(graph, context, why[: limits.REASON_CHARS_MAX], FAIL_FAST)
        return
    if graph.text("state") == GraphState.RUNNING:
        graph.set("state", str(GraphState.BLOCKED))
        graph.set("blockedBy", task.text("label"))
        graph.set("blocked", context.now)
        context.event("graph-blocked", task, reason=reason)


def _count_failure(task: Draft, graph: Draft, more: int) -> bool:
    """Count a task that failed for good, or (more = -1) does no longer; gives whether its failure is passed on."""
    graph.set("failedTasks", graph.integer("failedTasks") + more)
    passes = passes_on(graph.value, task.value)
    if passes != goes_on(graph.value):
        graph.set(FAILED_APART, graph.integer(FAILED_APART) + more)
    return passes


def fence(
    graph: Draft, context: Context, reason: str, code: str = CANCELLED, *, at_once: bool = False, by: str = ""
) -> bool:
    """Fence off a graph that runs or is blocked (P14): from this commit on it takes no extension and no rerun.

    The tasks that are left are cancelled after that (the effect, and the sweep), with this reason and code. An
    extension under way is refused here, so that no later step of it adds a row. at_once: do not wait for runs; this can
    still be asked of a graph that is fenced off already. by: who asks. Gives whether anything was written.
    """
    state = graph.text("state")
    if state == GraphState.CANCELLING:
        context.effects.append(Cancelling(fenced=True))
        if not at_once or graph.value("terminate"):
            return False
        graph.set("terminate", True)
        context.event("graph-cancelling", reason=graph.text("reason"), terminate=True, by=by or None)
        return True
    if state not in GOING:
        return False
    if extending := graph.text("extending"):
        if (head := context.view.find(f"request:{extending}")) is not None and head.text("state") == "accepted":
            head.set("state", "refused")
            head.set("reason", "the graph was cancelled while it was being extended")
            head.set("answered", context.now)
        graph.set("extending", "")
        graph.set("cutOff", extending)  # fewer tasks than were counted may be there
    graph.set("state", str(GraphState.CANCELLING))
    graph.set("reason", reason)
    _forget_holds(graph)
    if code != CANCELLED:
        graph.set("code", code)
    if at_once:
        graph.set("terminate", True)
    named = code if code != CANCELLED else None
    context.event("graph-cancelling", reason=reason, code=named, terminate=True if at_once else None, by=by or None)
    context.effects.append(Cancelling(fenced=True))
    return True


def unblock(task: Draft, context: Context) -> None:
    """Take a failed task off the count; with the last one that blocks, a blocked graph runs again."""
    graph = context.view.get(GRAPH)
    if graph.integer("failedTasks") < 1:
        raise IntegrityError("a failed task is rerun, and the graph counts none")
    _count_failure(task, graph, -1)
    if blocking(graph) <= 0 and graph.text("state") == GraphState.BLOCKED:
        graph.set("state", str(GraphState.RUNNING))
        graph.set("blockedBy", "")
        context.event("graph-unblocked")
        context.effects.append(GraphRevived())


def resolution_text(resolution: Mapping[str, Any]) -> str:
    """A resolution as JSON, reduced to its known keys where it is too long for its column."""
    text = compact_json(resolution)
    if utf16_units(text) <= limits.PROPERTY_CHARS_MAX:
        return text
    # What a worker adds must not keep its result from being written.
    known = {name: resolution[name] for name in _RESOLUTION_KEYS if name in resolution}
    known["reason"] = str(resolution.get("reason", ""))[: limits.REASON_CHARS_MAX]
    text = compact_json(known)
    if utf16_units(text) <= limits.PROPERTY_CHARS_MAX:
        return text
    # Addresses of control characters, which JSON spells out, are no addresses.
    short = {name: value for name, value in known.items() if name not in ("resultUrl", "logsUrl")}
    return compact_json(short)


def ended_at(reported: str | datetime, context: Context) -> datetime:
    """When a run ended, as its worker reports it; now, where that is a text of no valid time."""
    try:
        return moment(reported) if isinstance(reported, str) else reported
    except ValueError:
        return context.now
