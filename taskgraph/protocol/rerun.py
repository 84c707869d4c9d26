"""Which tasks may be rerun by hand: for handlers, and for interfaces before they send a message."""

from datetime import datetime

from taskgraph.model.ids import value
from taskgraph.model.states import FailurePolicy, GraphState, TaskState
from taskgraph.model.timing import Columns, clock_text

NOT_FAILED = "not-failed"
NOT_RUNNING = "not-running"
DEPENDENTS_COUNTED = "dependents-told"
DEADLINE_EXCEEDED = "deadline-exceeded"

FAILED_FOR_GOOD = (TaskState.FAILED.value, TaskState.EXCEPTION.value)
"""States of a task that only a rerun by hand moves on."""


@value
class Refusal:
    """Why a task cannot be rerun. code: one of the words above; reason: a sentence about the task."""

    code: str
    reason: str


def refusal(graph: Columns, task: Columns, now: datetime) -> Refusal | None:
    """By the columns of the graph row and of the task row; None if it can be rerun now."""
    state = task("state")
    if state not in FAILED_FOR_GOOD:
        return Refusal(NOT_FAILED, f"the task is {state}; only a task that failed for good can be rerun")
    if graph("failurePolicy") == FailurePolicy.CONTINUE:
        reason = "its dependents have acted on the failure, as the graph goes on after failures"
        return Refusal(DEPENDENTS_COUNTED, reason)
    if graph("state") not in (GraphState.RUNNING, GraphState.BLOCKED):
        return Refusal(NOT_RUNNING, f"the graph is {graph('state')}")
    deadline = task("deadline")
    if isinstance(deadline, datetime) and deadline <= now:
        return Refusal(DEADLINE_EXCEEDED, f"its deadline {clock_text(deadline)} has passed, and ends every further run")
    return None
