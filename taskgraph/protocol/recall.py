"""Run a task again that has ended, with everything that has gone on from its end.

Where dependents have counted the end of the task, a rerun takes that back first. The task is *reset*: it waits again,
in its next run, with `due` = `recall` on its row. Its *recall* writes it back into `requiresLeft` of each dependent
that has counted it, and resets those that are beyond waiting, whose recalls follow, as far as tasks and relays have
gone on. A reset row stands before its recall begins, so no late message about the old run can count it once more.
`recalls` of the graph row counts the rows with recalls to do; until it is 0 the graph does not end, and no task that
was reset begins: those that wait for nothing stand with `due` = `ready`. So no task runs between results of before and
of after, however many commits the recalls take, and whatever happens between them.

A failure that was not passed on was counted by no dependent: the task stands pending at once, or, where it was
cancelled before its time, asks what it requires first.

A graph that has ended goes on: `reopened` of its row counts how often, and by it what was asked for before is known.
"""

from datetime import datetime
from typing import Final

from taskgraph.model import limits
from taskgraph.model.ids import GRAPH, edge_name_of, is_relay, join_reference, reference_of, row_key, value
from taskgraph.model.messages import Rerun
from taskgraph.model.states import GRAPH_ENDED, GraphState, TaskState
from taskgraph.protocol import rerun, tally
from taskgraph.protocol.conditions import SKIP, blocking, ending_of, is_met, keep_ending, passes_on
from taskgraph.protocol.context import Context, GraphRevived, Item, Outcome, Recalled, Rules, Stop, Verdict
from taskgraph.protocol.definitions import SCHEMA
from taskgraph.protocol.extension import await_leaves
from taskgraph.protocol.pause import take_along
from taskgraph.protocol.propagation import (
    GOING,
    READY,
    RECALL,
    decide_group,
    dispatch,
    heed_deadline,
    is_held,
    make_pending,
    unblock,
)
from taskgraph.protocol.rows import Draft
from taskgraph.protocol.runs import ASKED, next_run
from taskgraph.protocol.wiring import relay_row

_COMPLETED: Final = str(TaskState.COMPLETED)
_BESIDE: Final = 5  # rows of one step but those of dependents: its own, the graph, the event, a join, a leaf below that
_OF_THE_END: Final = ("finished", "cancelled", "reason", "code", "terminate", "skippedTasks")


@value
class ManualRerun(Item):
    """Another run of a task that has ended, by hand. run: the one it replaces. reopens, by: see `messages.Rerun`."""

    task_id: str
    run: int
    reason: str = ""
    reopens: bool = False
    by: str = ""


@value
class Recall(Item):
    """A task or relay that was reset takes its end back from its dependents, or from some of many."""

    reference: str


@value
class Ready(Item):
    """A task that was reset and waits for nothing goes on, once there are no recalls left."""

    task_id: str


def _manual_rerun(item: ManualRerun, context: Context) -> Verdict:
    task, graph = context.view.get(row_key(item.task_id)), context.view.get(GRAPH)
    state, run = task.text("state"), task.integer("run")
    if graph.integer("reopened") and graph.text("state") in GOING:
        context.effects.append(GraphRevived(ended=True))  # the handling that reopened it may have died before this
    if run == item.run + 1 and state in (TaskState.PENDING, TaskState.UNSCHEDULED):
        _go_on(task, context)
        return Outcome.REPEATED, ""
    if run != item.run:
        return Outcome.STALE, f"run {item.run} is over: the task is {state} in run {run}"
    if (refused := rerun.refusal(graph.value, task.value, context.now)) is not None:
        return Outcome.REFUSED, refused.reason
    if graph.text("state") == GraphState.CANCELLED and not item.reopens:
        return Outcome.REFUSED, "the graph was cancelled after that was asked for"
    if graph.text("state") in GRAPH_ENDED:
        _reopen(graph, context, item.reason, item.by)
    counted = state not in rerun.FAILED_FOR_GOOD or passes_on(graph.value, task.value)
    _reset_task(task, graph, context, item.reason or "asked for by hand", recall=counted, by=item.by)
    return Outcome.APPLIED, ""


def _go_on(task: Draft, context: Context) -> None:
    """The first handling of the message may have died before what follows from it."""
    if task.columns.get("due"):  # since an earlier commit: of others that it reset, too, a recall may be left
        context.effects.append(Recalled())
    elif task.text("state") == TaskState.PENDING:
        dispatch(task, context)


def _reopen(graph: Draft, context: Context, reason: str, by: str) -> None:
    """A graph that has ended goes on: blocked, where tasks that failed for good are left."""
    was = graph.text("state")
    context.view.clear(GRAPH, _OF_THE_END)
    if (deadline := graph.time("deadline")) is not None and deadline <= context.now:
        context.view.clear(GRAPH, ("deadline",))
    if graph.ids("deferred"):
        graph.set_ids("deferred", [])
    graph.set("reopened", graph.integer("reopened") + 1)
    graph.set("state", str(GraphState.BLOCKED if blocking(graph) > 0 else GraphState.RUNNING))
    context.event("graph-running", was=was, reason=reason or None, by=by or None)
    context.effects.append(GraphRevived(ended=True))


def _reset_task(task: Draft, graph: Draft, context: Context, reason: str, *, recall: bool, by: str = "") -> None:
    """Stand before the next run. recall: dependents have counted the end of the present one, or may have."""
    state, run = task.text("state"), task.integer("run")
    if state == TaskState.RUNNING:
        context.effects.append(Stop(reference_of(task.key), run, task.text("claim"), reason, True))
    task.set("manualReruns", task.integer("manualReruns") + 1)
    if failures := task.integer("temporaryFailures"):
        task.set("temporaryForgiven", failures)  # the budget is whole again
    if (deadline := task.time("deadline")) is not None and deadline <= context.now:
        context.view.clear(task.key, ("deadline",))
        deadline = None
    if is_held(task) or graph.text("held"):
        take_along(task, graph)
    ended = task.value("ended")  # a text on rows that a version before 0.3 wrote
    text = ended.isoformat() if isinstance(ended, datetime) else task.text("ended")
    if state in (TaskState.PENDING, TaskState.RUNNING):
        text = context.now.isoformat()
    was = state if state in (TaskState.COMPLETED, TaskState.SKIPPED) else None
    resolution = task.read_json("resolution", dict) if state not in (TaskState.PENDING, TaskState.RUNNING) else None
    outcome = "stopped" if state == TaskState.RUNNING else state
    if task.text("due") == RECALL:  # it was cancelled before that
        recall = True
        context.recalls.append(reference_of(task.key))
    elif recall:
        _await_recall(task, graph, context)
    elif task.text("due"):
        task.set("due", "")
    next_run(task, context, outcome, text, reason, resolution, because=ASKED, was=was, by=by or None, waits=recall)
    if deadline is not None and task.text("state") == TaskState.UNSCHEDULED:
        heed_deadline(graph, deadline)
    if state in rerun.FAILED_FOR_GOOD:
        unblock(task, context)


def _await_recall(node: Draft, graph: Draft, context: Context) -> None:
    node.set("due", RECALL)
    graph.set("recalls", graph.integer("recalls") + 1)
    context.recalls.append(reference_of(node.key))


def _recall(item: Recall, context: Context) -> Verdict:
    view = context.view
    node, graph = view.find(row_key(item.reference)), view.get(GRAPH)
    if node is None or node.text("due") != RECALL:
        return Outcome.STALE, "it has been recalled, or an edit has taken it away"
    graph.confirm()  # what is counted up and down again leaves it as it was, and it may have ended since it was read
    name, dependents = edge_name_of(item.reference), node.ids("dependents")
    if (decides := node.text("decides")) and tally.stands(node):
        dependents = [each for each in dependents if each != decides]
    view.require(map(row_key, dependents))
    # Each of these is written, so a step rests on their etags; the row of the node is written in the last step alone.
    counted = [each for each in dependents if name not in view.named(each).ids("requiresLeft")]
    most = max(1, (context.changes_max - _BESIDE) // (1 + limits.LIMITS_OF_TASK_MAX))
    for each in counted[:most]:
        if each == GRAPH:
            _let_graph_wait(node, name, graph, context)
        else:
            _uncount(view.named(each), name, graph, context)
            if each == decides:
                node.set("announced", "")
    if counted[most:]:
        context.recalls.append(item.reference)
        return Outcome.APPLIED, ""
    node.set("due", "")
    left = graph.integer("recalls") - 1
    graph.set("recalls", max(0, left))
    if node.text("state") == TaskState.UNSCHEDULED and not node.ids("requiresLeft"):
        node.set("due", READY)
    if decides:
        decide_group(node, context)
    elif decided_by := node.text("decidedBy"):
        decide_group(view.named(decided_by), context)
    if left <= 0:
        for draft in list(view.drafts.values()):
            if draft.key.startswith("task:") and draft.text("due") == READY:
                _begin(draft, graph, context)
        if graph.columns.get("recalls"):  # others were reset in earlier commits
            context.effects.append(Recalled())
    return Outcome.APPLIED, ""


def _uncount(row: Draft, name: str, graph: Draft, context: Context) -> None:
    """A dependent waits again for a requirement that it has counted, and is reset if it has gone on since."""
    row.set_ids("requiresLeft", [*row.ids("requiresLeft"), name])
    _derive_causes(row, context)
    state = row.text("state")
    if counts_for := row.text("tally"):
        _take_out(row, context.view.named(counts_for), name, graph, context)
    elif is_relay(reference_of(row.key)):
        row.set("state", str(TaskState.UNSCHEDULED))
        if state == TaskState.COMPLETED:
            _await_recall(row, graph, context)
    elif state != TaskState.UNSCHEDULED:
        _reset_task(row, graph, context, "what it requires is run again", recall=True)
    elif row.text("due") in (SKIP, READY):
        row.set("due", "")


def _take_out(row: Draft, counted: Draft, name: str, graph: Draft, context: Context) -> None:
    """A tally, or a piece of it, waits again for what it has counted. What the pieces have passed on goes along."""
    if tally.counts(row, name):
        tally.uncount(row, counted, name)
    state = row.text("state")
    row.set("state", str(TaskState.UNSCHEDULED))
    if row is not counted and state == TaskState.COMPLETED:
        (above,) = row.ids("dependents")
        _uncount(context.view.named(above), row.key, graph, context)
    elif counted.text("due") != RECALL and (not tally.stands(counted) or (row is counted and state == _COMPLETED)):
        if counted.text("rest") == tally.CANCELLING:
            counted.set("rest", tally.CANCEL)
        _await_recall(counted, graph, context)


def _let_graph_wait(node: Draft, name: str, graph: Draft, context: Context) -> None:
    """The same for the graph row, which need not name any more what has ended, and names no more than so many."""
    if name in graph.ids("requires"):
        graph.set_ids("requiresLeft", [*graph.ids("requiresLeft"), name])
        return
    if len(graph.ids("requires")) < limits.GRAPH_REQUIRES_MAX:
        await_leaves(None, [name], graph, context)
        return
    own = reference_of(node.key)
    join = join_reference(GRAPH, f"again-{own.replace(':', '-')}")
    node.set_ids("dependents", [join if each == GRAPH else each for each in node.ids("dependents")])
    schema = graph.integer("schema") or SCHEMA
    await_leaves(relay_row(join, [name], [GRAPH], schema), [join], graph, context)


def _derive_causes(row: Draft, context: Context) -> None:
    """How the other requirements ended that are counted: the one that is taken back may have been the cause kept."""
    if not (row.text("failedBy") or row.text("skippedBy")):
        return
    left = row.ids("requiresLeft")
    counted = [each for each in row.ids("requires") if each not in left]
    context.view.require(map(row_key, counted))
    row.set("failedBy", "")
    row.set("skippedBy", "")
    for each in counted:
        if (ending := ending_of(context.view.named(each))) is not None:
            keep_ending(row, each, ending)


def _ready(item: Ready, context: Context) -> Verdict:
    task, graph = context.view.get(row_key(item.task_id)), context.view.get(GRAPH)
    if task.text("due") != READY:
        return Outcome.STALE, ""
    if graph.integer("recalls") and task.text("state") == TaskState.UNSCHEDULED:
        return Outcome.STALE, "recalls are under way"
    graph.confirm()
    _begin(task, graph, context)
    return Outcome.APPLIED, ""


def _begin(task: Draft, graph: Draft, context: Context) -> None:
    """No recalls are left: the task stands ready, or is to be skipped. While its graph is cancelled, it waits."""
    if task.text("state") != TaskState.UNSCHEDULED or task.ids("requiresLeft"):
        task.set("due", "")  # it has been cancelled since
    elif graph.text("state") not in GOING:
        return
    elif is_met(task) and not task.text("cancel"):
        task.set("due", "")
        make_pending(task, context)
    else:
        task.set("due", SKIP)
        context.follow.append(reference_of(task.key))


def reruns_of(message: Rerun) -> list[ManualRerun]:
    return [ManualRerun(task, run, message.reason, message.reopens, message.by) for task, run in message.tasks]


RULES: Final[Rules] = {ManualRerun: _manual_rerun, Recall: _recall, Ready: _ready}
