"""How the end of a task is heard by those that require it, and what they make of it: run, or be skipped.

What this room is for: graphs with the failure policy `continue`. There every node that is resolved tells its dependents
how: completed, failed or skipped. A dependent keeps the first failure and the first skip that it hears of, each as the
task that was the cause in the first place, and once nothing is left that it waits for its condition says what becomes
of it. So a task is resolved only after all that it requires, directly or not, has been resolved: whoever cleans up
behind others never works beside them, and the graph is at its end when its leaves are. Relays keep and pass on both,
for a task may ask about either. All of it is plain functions over working copies of rows. It never moves a task and
never reads a store.

Columns, none of them in a graph with another policy:

    failurePolicy       of the graph row
    when, optional      of a task: its condition, and those of its requires that do not matter (if not the default)
    failedBy, skippedBy of tasks and relays: the first cause heard of, as JSON {"label", "taskId", "state"}
    due                 of a task: `skip` once it is clear that it will not run, until it has been skipped
"""

import json
from typing import Any, Final

from taskgraph.model.columns import is_cancelled
from taskgraph.model.ids import is_relay, reference_of, value
from taskgraph.model.json_strict import compact_json
from taskgraph.model.states import FailurePolicy, TaskState, When
from taskgraph.protocol.rows import Draft

SKIP: Final = "skip"
"""What stands in `due` of a task that is to be skipped."""

CANCELLED: Final = "cancelled"
"""The state that a cause names where it was an exception for want of anybody who wanted the task."""

_CONTINUE: Final = FailurePolicy.CONTINUE.value


@value
class News:
    """How a node was resolved: its failure, and what was skipped, as JSON texts of their causes; "" for neither."""

    failed: str = ""
    skipped: str = ""


COMPLETED: Final = News()


def goes_on(graph: Draft) -> bool:
    """Whether failures are told to dependents in this graph."""
    return graph.text("failurePolicy") == _CONTINUE


def failure_of(task: Draft) -> News:
    """What a task that failed for good has to tell."""
    return News(failed=_cause(task, CANCELLED if task.text("cancel") or is_cancelled(task.text) else ""))


def passed_on(node: Draft) -> News:
    """What a relay has to tell: what it has heard."""
    failed, skipped = node.text("failedBy"), node.text("skippedBy")
    return News(failed, skipped) if failed or skipped else COMPLETED


def news_of(task: Draft) -> News | None:
    """What a task, or the join of a group, has to tell that was resolved some time ago; None while it is not."""
    match task.text("state"):
        case TaskState.COMPLETED:
            return passed_on(task) if is_relay(task.key) else COMPLETED
        case TaskState.FAILED | TaskState.EXCEPTION:
            return failure_of(task)
        case TaskState.SKIPPED:
            return skip_of(task)
        case _:
            return None


def hear(row: Draft, name: str, news: News) -> None:
    """Keep what a requirement of this name has told, unless it does not matter, or the like was heard before."""
    if name in row.ids("optional"):
        return
    if news.failed and not row.text("failedBy"):
        row.set("failedBy", news.failed)
    if news.skipped and not row.text("skippedBy"):
        row.set("skippedBy", news.skipped)


def is_met(row: Draft) -> bool:
    """Whether a task that waits for nothing any more is to run."""
    failed, skipped, when = row.text("failedBy"), row.text("skippedBy"), row.text("when")
    if not (failed or skipped or when):
        return True  # every task of a graph without conditions
    return meets(when, failed=bool(failed), skipped=bool(skipped))


def meets(when: str, *, failed: bool, skipped: bool) -> bool:
    """Whether a condition is met, once all requirements are resolved. failed, skipped: whether any of them was."""
    match when:
        case When.ALL_RESOLVED:
            return not skipped
        case When.ANY_FAILED:
            return failed
        case When.ALWAYS:
            return True
        case _:
            return not failed and not skipped


def skip_of(task: Draft) -> News:
    """What a task that is skipped has to tell: whose fault it was, or that it was its own condition."""
    cause = _first_cause(task)
    return News(skipped=cause or _cause(task, TaskState.SKIPPED))


def skip_resolution(task: Draft) -> dict[str, Any]:
    """The resolution of a task that is being skipped: why, in words and for programs."""
    text = _first_cause(task)
    cause = json.loads(text) if text else None
    nothing_failed = task.text("when") == When.ANY_FAILED
    reason = "none of what it requires failed" if nothing_failed else in_words(cause or {})
    made: dict[str, Any] = {"skipped": True, "reason": reason}
    if cause is not None:
        made["cause"] = cause
    return made


def in_words(cause: dict[str, Any]) -> str:
    """What a cause was, as the end of "skipped because"."""
    label = f"“{cause.get('label', '')}”"
    match cause.get("state"):
        case TaskState.EXCEPTION:
            return f"{label} could not be run"
        case _ if cause.get("state") == CANCELLED:
            return f"{label} was cancelled"
        case TaskState.SKIPPED:
            return f"{label} was skipped, as nothing failed"
        case _:
            return f"{label} failed"


def _first_cause(task: Draft) -> str:
    if task.text("when") == When.ALL_RESOLVED:
        return task.text("skippedBy")  # that one failed is no obstacle to it
    return task.text("failedBy") or task.text("skippedBy")


def _cause(task: Draft, state: str) -> str:
    return compact_json(
        {"label": task.text("label"), "taskId": reference_of(task.key), "state": str(state or task.text("state"))}
    )
