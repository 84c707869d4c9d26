"""How tasks react to the end of those they require: run, or be skipped. For graphs that go on after failures.

A task passes its failure on to its dependents where its group says so, or else its graph (`passes_on`); otherwise the
graph is blocked. Every node that is resolved so passes on how: completed, failed or skipped. A dependent keeps the
first failure and the first skip, each as the task that caused it; once it waits for nothing more, its condition
decides. So a task is resolved only after all that it requires, directly or not, has been resolved. Relays keep and pass
on both, for a task may ask about either. Columns, none of them in a graph in which every failure blocks:

    failurePolicy       of the graph row; of a task that does not follow it; of a group that has one
    groupPolicies       of the graph row: there are such tasks
    failedApart         of the graph row: how many of `failedTasks` do not follow it
    when, optional      of a task: its condition, and those of its requires that need not succeed (if not the default)
    failedBy, skippedBy of tasks and relays: the first cause, as JSON {"label", "taskId", "state"}
    due                 of a task: `skip` once it is clear that it will not run, until it has been skipped
"""

import json
from typing import Any, Final

from taskgraph.model.columns import is_cancelled
from taskgraph.model.errors import IntegrityError
from taskgraph.model.ids import is_relay, reference_of, value
from taskgraph.model.json_strict import compact_json
from taskgraph.model.states import FailurePolicy, TaskState, When
from taskgraph.model.timing import Columns
from taskgraph.protocol.rows import Draft

SKIP: Final = "skip"
"""In the column `due` of a task that is to be skipped."""

TOO_FEW: Final = "too-few"
"""State of a cause that is a group: too few of its members completed."""

FAILED_APART: Final = "failedApart"
"""Column of the graph: of the tasks that failed for good, those that do not follow its policy."""

_CONTINUE: Final = FailurePolicy.CONTINUE.value


@value
class Ending:
    """How a node was resolved: the causes of its failure and of its skip, as JSON texts; "" for neither."""

    failed: str = ""
    skipped: str = ""


COMPLETED: Final = Ending()


def goes_on(graph: Columns) -> bool:
    """Whether failures are passed on to dependents in this graph, where no group says otherwise."""
    return graph("failurePolicy") == _CONTINUE


def passes_on(graph: Columns, task: Columns) -> bool:
    """Whether the failure of a task is passed on to its dependents; else it blocks the graph, or has it cancelled."""
    return (task("failurePolicy") or graph("failurePolicy")) == _CONTINUE


def may_skip(graph: Columns) -> bool:
    """Whether a task of this graph may be skipped, as some failure is passed on."""
    return goes_on(graph) or graph("groupPolicies") is True


def blocking(graph: Draft) -> int:
    """How many tasks have failed for good that block the graph."""
    apart = graph.integer(FAILED_APART)
    return apart if goes_on(graph.value) else graph.integer("failedTasks") - apart


def failure_of(task: Draft) -> Ending:
    return Ending(failed=_cause(task, TaskState.CANCELLED if task.text("cancel") or is_cancelled(task.text) else ""))


def passed_on(node: Draft) -> Ending:
    """The ending that a relay passes on: what it has kept."""
    failed, skipped = node.text("failedBy"), node.text("skippedBy")
    return Ending(failed, skipped) if failed or skipped else COMPLETED


def ending_of(task: Draft) -> Ending | None:
    """How a task, or the join of a group, was resolved; None while it is not."""
    match task.text("state"):
        case TaskState.COMPLETED:
            return passed_on(task) if is_relay(task.key) else COMPLETED
        case TaskState.FAILED | TaskState.EXCEPTION:
            return failure_of(task)
        case TaskState.SKIPPED:
            return skip_of(task)
        case _:
            return None


def keep_ending(row: Draft, name: str, ending: Ending) -> None:
    """Keep how a requirement of this name ended, unless it is optional or a like ending is kept already."""
    if name in row.ids("optional"):
        return
    if ending.failed and not row.text("failedBy"):
        row.set("failedBy", ending.failed)
    if ending.skipped and not row.text("skippedBy"):
        row.set("skippedBy", ending.skipped)


def is_met(row: Draft) -> bool:
    """Whether a task that waits for nothing any more is to run."""
    failed, skipped, when = row.text("failedBy"), row.text("skippedBy"), row.text("when")
    if not (failed or skipped or when):
        return True  # every task of a graph without conditions
    return meets(when, failed=bool(failed), skipped=bool(skipped))


def meets(when: str, *, failed: bool, skipped: bool) -> bool:
    """Whether a condition is met. failed, skipped: whether any requirement was."""
    match when:
        case When.ALL_RESOLVED:
            return not skipped
        case When.ANY_FAILED:
            return failed
        case When.ALWAYS:
            return True
        case _:
            return not failed and not skipped


def skip_of(task: Draft) -> Ending:
    """The ending of a task that is skipped: the cause, or itself where its own condition decided."""
    cause = _first_cause(task)
    return Ending(skipped=cause or _cause(task, TaskState.SKIPPED))


def skip_resolution(task: Draft) -> dict[str, Any]:
    text = _first_cause(task)
    try:
        cause = json.loads(text) if text else None
    except ValueError as error:
        raise IntegrityError(f"row {task.key}: why it is skipped is no JSON") from error
    nothing_failed = task.text("when") == When.ANY_FAILED
    reason = "none of what it requires failed" if nothing_failed else in_words(cause or {})
    made: dict[str, Any] = {"skipped": True, "reason": reason}
    if cause is not None:
        made["cause"] = cause
    return made


def in_words(cause: dict[str, Any]) -> str:
    """A cause as the end of the sentence "skipped because"."""
    words = _CAUSES.get(str(cause.get("state")), "failed")
    return f"“{cause.get('label', '')}” {words}"


_CAUSES: Final = {
    str(TaskState.EXCEPTION): "could not be run",
    str(TaskState.CANCELLED): "was cancelled",
    str(TaskState.SKIPPED): "was skipped, as nothing failed",
    TOO_FEW: "has too few tasks that completed",
}


def _first_cause(task: Draft) -> str:
    if task.text("when") == When.ALL_RESOLVED:
        return task.text("skippedBy")  # that one failed is no obstacle to it
    return task.text("failedBy") or task.text("skippedBy")


def _cause(task: Draft, state: str) -> str:
    return compact_json(
        {"label": task.text("label"), "taskId": reference_of(task.key), "state": str(state or task.text("state"))}
    )
