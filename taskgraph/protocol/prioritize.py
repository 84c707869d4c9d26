"""Give a task another priority level before it runs (`model.priorities`).

A task that stands ready is sent again at its new level; the message that is in a queue already stays, so a worker may
still take it at its old one.
"""

from typing import Final

from taskgraph.model.ids import row_key, value
from taskgraph.model.messages import Prioritize
from taskgraph.model.priorities import COLUMN, column, level_of
from taskgraph.model.states import TASK_UNRESOLVED, TaskState
from taskgraph.protocol.context import Context, Item, Outcome, Rules, Verdict
from taskgraph.protocol.propagation import dispatch

PRIORITIZED: Final = "prioritized"
"""Column of a task: the time of the latest request for a level, RFC 3339 in UTC."""


@value
class PrioritizeTask(Item):
    """asked, by: see `pause.Hold`."""

    task_id: str
    level: str
    asked: str = ""
    reason: str = ""
    by: str = ""


def prioritize_task(item: PrioritizeTask, context: Context) -> Verdict:
    task = context.view.get(row_key(item.task_id))
    state = task.text("state")
    if state not in TASK_UNRESOLVED:
        return Outcome.STALE, f"the task is {state}"
    if state == TaskState.RUNNING:
        return Outcome.REFUSED, "the task is running"
    asked, known = item.asked or context.now.isoformat(), task.text(PRIORITIZED)
    if asked < known:
        return Outcome.STALE, "a later request asked for another level"
    was = level_of(task.value)
    if asked > known:
        task.set(PRIORITIZED, asked)
    if item.level != was:
        task.set(COLUMN, column(item.level))
        reason, by = item.reason or None, item.by or None
        context.event("task-prioritized", task, level=item.level, was=was, reason=reason, by=by)
    if state == TaskState.PENDING:
        dispatch(task, context)
    return Outcome.APPLIED if asked > known else Outcome.REPEATED, "" if item.level != was else f"it is {was} already"


def items_of(message: Prioritize) -> list[PrioritizeTask]:
    return [PrioritizeTask(task, message.level, message.asked, message.reason, message.by) for task in message.tasks]


RULES: Final[Rules] = {PrioritizeTask: prioritize_task}
