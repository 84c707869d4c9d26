"""Cancelling: how a graph or a task ends before its time (P14).

A graph is cancelled in three steps. *Fence*: the graph row goes to `cancelling`; nothing is added or rerun from then
on. *Sweep*: every task that has not begun is resolved, one that runs is marked (`cancel`), and the end of its run,
whatever it is, resolves it. *Publish*: `cancelled`, once nothing is left unresolved. A task that is cancelled alone
takes the second step only, and counts like one that failed for good. No task whose failure is passed on
ends before what it requires: one that waits is marked, and resolved when all of that has ended.

Why a scan that is no snapshot is enough to publish. After the fence a resolved row stays resolved: a rerun by hand
would move it, which writes the graph row and is refused, or a recall of an earlier one, and nothing is published, nor
looked at for that, while there are recalls to do; a marked row is resolved next; any other may go on until the sweep
reaches it, and is one of the two then. No row comes in: the fence ends the extension under way in its own commit. So a
row that was seen resolved after the fence is resolved until the graph is reopened, however long the scan takes, and
what was seen before that counts no more (`reopened`).
"""

from collections.abc import Mapping
from typing import Any, Final

from taskgraph.model import limits
from taskgraph.model.columns import is_cancelled
from taskgraph.model.ids import GRAPH, reference_of, row_key, value
from taskgraph.model.messages import Cancel
from taskgraph.model.states import GraphState, TaskState
from taskgraph.protocol.conditions import SKIP, failure_of, passes_on
from taskgraph.protocol.context import CANCELLED, Cancelling, Context, GraphEnded, Item, Outcome, Rules, Stop, Verdict
from taskgraph.protocol.propagation import READY, block, count_down_dependents, ended_at, fence, leave, resolution_text
from taskgraph.protocol.rows import Draft
from taskgraph.protocol.tally import CANCELLING, verdict

BY_HAND: Final = "asked for by hand"
"""The reason where none was given."""

UNNEEDED: Final = "unneeded"
"""Code of a resolution: its group is decided without it, and what is left of that is cancelled."""

_STOPPED: Final = "its run is being stopped"
_WAITS: Final = "it is cancelled once all that it requires has ended"
_KEPT: Final = ("exitCode", "logsUrl", "resultUrl")  # of what a worker reports: where people look for them


@value
class CancelGraph(Item):
    """Fence the graph off. code: for the resolutions of its tasks. at_once: do not wait for runs.

    reopened: how often the graph had gone on after its end when this was asked for; one that has since is left alone.
    by: who asks.
    """

    reason: str
    code: str = CANCELLED
    at_once: bool = False
    reopened: int = 0
    by: str = ""


@value
class CancelTask(Item):
    """A task is not to run, or not to go on.

    reruns: how often the task had been rerun by hand at the time of the request; one that was rerun since is left
    alone, -1 for any. at_once: a run is resolved now, not when its worker has stopped it. whole: the graph is
    cancelled, and its journal gives the reason already; then `reopened` is that of the graph row that was read.
    """

    task_id: str
    reason: str
    code: str = CANCELLED
    reruns: int = -1
    at_once: bool = False
    whole: bool = False
    reopened: int = 0
    by: str = ""


@value
class CancelUnneeded(Item):
    """A member of a group that is decided is not to run, or not to go on, while its tally says that (`rest`)."""

    task_id: str
    tally: str


@value
class PublishCancelled(Item):
    """Nothing of the graph is unresolved. tasks: how many there are, where an extension was cut off; else None.

    reopened: of the graph row that was read before its tasks were.
    """

    tasks: int | None = None
    reopened: int = 0


def cancel_graph(item: CancelGraph, context: Context) -> Verdict:
    """The fence. A graph that never began ends here."""
    graph = context.view.get(GRAPH)
    state = graph.text("state")
    if graph.integer("reopened") > item.reopened:
        return Outcome.STALE, "the graph has gone on since, by a rerun"
    match state:
        case GraphState.SUBMITTING:
            graph.set("reason", item.reason)
            _publish(graph, context, item.reason)
            return Outcome.APPLIED, ""
        case GraphState.RUNNING | GraphState.BLOCKED | GraphState.CANCELLING:
            written = fence(graph, context, item.reason, item.code, at_once=item.at_once, by=item.by)
            return (Outcome.APPLIED, "") if written else (Outcome.REPEATED, "it is being cancelled already")
        case GraphState.CANCELLED:
            context.effects.append(GraphEnded(GraphState.CANCELLED))
            return Outcome.REPEATED, "it is cancelled already"
        case _:
            return Outcome.REFUSED, f"the graph is {state}"


def publish_cancelled(item: PublishCancelled, context: Context) -> Verdict:
    """`cancelled`: every task has been looked at after the fence."""
    graph = context.view.get(GRAPH)
    state = graph.text("state")
    if state == GraphState.CANCELLED:
        context.effects.append(GraphEnded(GraphState.CANCELLED))
        return Outcome.REPEATED, ""
    if state != GraphState.CANCELLING or graph.integer("reopened") != item.reopened:
        return Outcome.STALE, ""
    if item.tasks is not None:
        graph.set("tasks", item.tasks)
    _publish(graph, context, graph.text("reason"))
    return Outcome.APPLIED, ""


def _publish(graph: Draft, context: Context, reason: str) -> None:
    graph.set("state", str(GraphState.CANCELLED))
    graph.set("cancelled", context.now)
    context.event("graph-cancelled", reason=reason)
    context.effects.append(GraphEnded(GraphState.CANCELLED))


def cancel_task(item: CancelTask, context: Context) -> Verdict:
    task = context.view.get(row_key(item.task_id))
    state = task.text("state")
    if 0 <= item.reruns < task.integer("manualReruns"):
        return Outcome.STALE, "the task has been rerun since"
    if item.whole and not _is_of(item, context.view.get(GRAPH)):
        return Outcome.STALE, "the graph has gone on since, by a rerun"
    marked = task.text("cancel")
    reason, code = (marked, task.text("cancelCode") or CANCELLED) if marked else (item.reason, item.code)
    if not item.whole:
        graph = context.view.get(GRAPH)
        if graph.text("state") == GraphState.SUBMITTING:
            return Outcome.REFUSED, "the graph is still being submitted"
        if state == TaskState.UNSCHEDULED and passes_on(graph.value, task.value):
            return _mark(task, context, reason, code, _WAITS, whole=False, by=item.by)
    if state in (TaskState.UNSCHEDULED, TaskState.PENDING):
        _resolve(task, context, reason, code, whole=item.whole, by=item.by)
        return Outcome.APPLIED, ""
    if state != TaskState.RUNNING:
        return (Outcome.REPEATED if is_cancelled(task.text) else Outcome.STALE), f"the task is {state}"
    run, claim = task.integer("run"), task.text("claim")
    context.effects.append(Stop(item.task_id, run, claim, reason, item.at_once))
    if item.at_once:
        _resolve(task, context, reason, code, more={"terminated": True}, whole=item.whole, by=item.by)
        return Outcome.APPLIED, ""
    return _mark(task, context, reason, code, _STOPPED, whole=item.whole, by=item.by)


def cancel_unneeded(item: CancelUnneeded, context: Context) -> Verdict:
    """What was rerun by hand was asked for, and is left alone."""
    counted = context.view.find(item.tally)
    if counted is None or counted.text("rest") != CANCELLING:
        return Outcome.STALE, "the group is not decided, or all of it has ended"
    name, decided = counted.text("label"), verdict(counted)
    reason = f"the group “{name}” has {decided} without it"[: limits.REASON_CHARS_MAX]
    outcome = cancel_task(CancelTask(item.task_id, reason, UNNEEDED, reruns=0), context)
    if outcome[0] is Outcome.APPLIED:
        counted.confirm()
    return outcome


def _is_of(item: CancelTask, graph: Draft) -> bool:
    """Whether the graph is being cancelled still, and not once more, after the look that found the task."""
    return graph.text("state") == GraphState.CANCELLING and graph.integer("reopened") == item.reopened


def _mark(task: Draft, context: Context, reason: str, code: str, answer: str, *, whole: bool, by: str) -> Verdict:
    """Mark a task as to be cancelled; the end of its run, or of what it requires, resolves it."""
    if task.text("cancel"):
        return Outcome.REPEATED, answer
    task.set("cancel", reason)
    if code != CANCELLED:
        task.set("cancelCode", code)
    _state_fact(task, context, reason, code, event="task-cancelling", whole=whole, by=by)
    return Outcome.APPLIED, answer


def end_of_marked_wait(task: Draft, context: Context) -> None:
    """A task was marked while it waited, and what it requires has ended (policy `continue`)."""
    _resolve(task, context, task.text("cancel"), task.text("cancelCode") or CANCELLED, whole=False)


def end_of_marked_run(
    task: Draft, outcome: str, ended: str, resolution: Mapping[str, Any], context: Context
) -> Verdict:
    """A run has ended whose task was marked: it is cancelled, whatever the run reported.

    outcome: completed, failed, handed-back, lost; kept in the resolution, with what else was reported.
    """
    reported = {"outcome": outcome}
    if reason := resolution.get("reason"):
        reported["reason"] = str(reason)[: limits.REASON_CHARS_MAX]
    more = {name: resolution[name] for name in _KEPT if name in resolution}
    graph = context.view.get(GRAPH)
    whole = graph.text("state") == GraphState.CANCELLING
    reason, code = task.text("cancel"), task.text("cancelCode") or CANCELLED
    task.set("ended", ended_at(ended, context))
    _resolve(task, context, reason, code, more={**more, "reported": reported}, whole=whole)
    _go_on(context)
    return Outcome.APPLIED, CANCELLED


def was_marked_run(task: Draft, run: int, claim: str, context: Context) -> bool:
    """Whether this is the run with which a marked task ended: then its effects are sent again."""
    if (
        task.text("state") != TaskState.EXCEPTION
        or task.integer("run") != run
        or task.text("claim") != claim
        or not task.text("cancel")
    ):
        return False
    _go_on(context)
    graph = context.view.get(GRAPH)
    if graph.text("state") != GraphState.CANCELLING and passes_on(graph.value, task.value):
        count_down_dependents(task, reference_of(task.key), context, failure_of(task), again=True)
    return True


def _go_on(context: Context) -> None:
    """It may have been the last run that a cancelled graph waited for."""
    if context.view.get(GRAPH).text("state") == GraphState.CANCELLING:
        context.effects.append(Cancelling())


def _resolve(
    task: Draft,
    context: Context,
    reason: str,
    code: str,
    *,
    more: Mapping[str, Any] | None = None,
    whole: bool,
    by: str = "",
) -> None:
    resolution = {"failed": True, "cancelled": True, "code": code, "reason": reason, **(more or {})}
    leave(task, context)
    if task.text("due") in (READY, SKIP):
        task.set("due", "")
    task.set("state", str(TaskState.EXCEPTION))
    task.set("resolved", context.now)
    task.set("resolution", resolution_text(resolution))
    _state_fact(task, context, reason, code, event="task-cancelled", whole=whole, by=by)
    block(task, context, reason)


def _state_fact(task: Draft, context: Context, reason: str, code: str, *, event: str, whole: bool, by: str) -> None:
    """Record what becomes of a task; the reason only where the journal does not give it for the whole graph."""
    why: dict[str, Any] = (
        {} if whole else {"reason": reason, "code": code if code != CANCELLED else None, "by": by or None}
    )
    context.event(event, task, run=task.integer("run"), **why)


def items_of(message: Cancel) -> list[CancelTask]:
    reason = message.reason or BY_HAND
    return [
        CancelTask(task, reason, reruns=reruns, at_once=message.terminate, by=message.by)
        for task, reruns in message.tasks
    ]


RULES: Final[Rules] = {
    CancelGraph: cancel_graph,
    CancelTask: cancel_task,
    CancelUnneeded: cancel_unneeded,
    PublishCancelled: publish_cancelled,
}
