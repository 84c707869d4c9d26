"""The rules of relays that fire, of tasks that are skipped, and of messages that are sent again."""

from typing import Final

from taskgraph.model.ids import GRAPH, row_key, value
from taskgraph.model.json_strict import compact_json
from taskgraph.model.states import TaskState
from taskgraph.protocol.cancel import end_of_marked_wait
from taskgraph.protocol.conditions import SKIP, passed_on, skip_of, skip_resolution
from taskgraph.protocol.context import Context, Item, Outcome, Rules, Verdict
from taskgraph.protocol.edit import DELETED_IN
from taskgraph.protocol.propagation import count_down_dependents, decide_group, dispatch
from taskgraph.protocol.tally import CANCEL, CANCELLING


@value
class Fire(Item):
    """A relay whose requirements are all fulfilled passes that on."""

    reference: str


@value
class Skip(Item):
    """A task whose condition is not met is resolved as skipped, and passes that on."""

    task_id: str


@value
class Remind(Item):
    """A task that stands pending and unclaimed is dispatched again (sweep)."""

    task_id: str


def _fire(item: Fire, context: Context) -> Verdict:
    if context.view.find(row_key(item.reference)) is None and context.view.get(GRAPH).integer(DELETED_IN):
        return Outcome.STALE, "an edit has taken the relay away"
    relay = context.view.named(item.reference)
    state = relay.text("state")
    if relay.ids("requiresLeft") or state == TaskState.UNSCHEDULED:
        return Outcome.STALE, "the relay still waits"
    if state == TaskState.PENDING:
        relay.set("state", str(TaskState.COMPLETED))
    if decides := relay.text("decides"):
        if relay.text("rest") == CANCELLING:
            relay.set("rest", CANCEL)
        decide_group(relay, context)
    again = state != TaskState.PENDING
    count_down_dependents(relay, item.reference, context, passed_on(relay), again=again, but=decides)
    return (Outcome.APPLIED if state == TaskState.PENDING else Outcome.REPEATED), ""


def _skip(item: Skip, context: Context) -> Verdict:
    task = context.view.get(row_key(item.task_id))
    if task.text("state") == TaskState.SKIPPED:
        count_down_dependents(task, item.task_id, context, skip_of(task), again=True)
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
    context.event("task-skipped", task, reason=resolution["reason"], cause=cause.get("taskId"))
    count_down_dependents(task, item.task_id, context, skip_of(task))
    return Outcome.APPLIED, ""


def _remind(item: Remind, context: Context) -> Verdict:
    task = context.view.get(row_key(item.task_id))
    if task.text("state") != TaskState.PENDING:
        return Outcome.STALE, ""
    dispatch(task, context)
    return Outcome.REPEATED, ""


RULES: Final[Rules] = {Fire: _fire, Skip: _skip, Remind: _remind}
