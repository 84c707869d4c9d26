"""Which tasks may be rerun by hand: for handlers, and for interfaces before they send a message."""

from datetime import datetime

from taskgraph.model.ids import value
from taskgraph.model.states import GRAPH_ENDED, TASK_UNRESOLVED, FailurePolicy, GraphState, TaskState
from taskgraph.model.timing import Columns, clock_text

NOT_ENDED = "not-ended"
NOT_RUNNING = "not-running"
NOT_WHOLE = "not-whole"
DEADLINE_EXCEEDED = "deadline-exceeded"

FAILED_FOR_GOOD = (TaskState.FAILED.value, TaskState.EXCEPTION.value)
"""States of a task that only a rerun by hand moves on, where its graph does not go on after failures."""


@value
class Refusal:
    """Why a task cannot be rerun. code: one of the words above; reason: a sentence about the task."""

    code: str
    reason: str


def refusal(graph: Columns, task: Columns, now: datetime) -> Refusal | None:
    """By the columns of the graph row and of the task row; None if it can be rerun now."""
    state, graph_state = task("state"), graph("state")
    if state in TASK_UNRESOLVED:
        return Refusal(NOT_ENDED, f"the task is {state}; only a task that has ended can be rerun")
    ended = graph_state in GRAPH_ENDED
    if not ended and graph_state not in (GraphState.RUNNING, GraphState.BLOCKED):
        return Refusal(NOT_RUNNING, f"the graph is {graph_state}")
    if graph_state == GraphState.CANCELLED and graph("started") is None:
        return Refusal(NOT_WHOLE, "the graph was cancelled before all of it was submitted")
    if graph_state == GraphState.CANCELLED and (
        graph("failurePolicy") == FailurePolicy.CONTINUE or graph("groupPolicies") is True
    ):
        return Refusal(NOT_WHOLE, "the graph goes on after failures, and was cancelled: no end of it was passed on")
    if ended and graph("cutOff"):
        return Refusal(NOT_WHOLE, "the graph was cancelled while it was extended, and lacks some of the new tasks")
    deadline = task("deadline")
    if isinstance(deadline, datetime) and deadline <= now and not ended:
        return Refusal(DEADLINE_EXCEEDED, f"its deadline {clock_text(deadline)} has passed, and ends every further run")
    return None
