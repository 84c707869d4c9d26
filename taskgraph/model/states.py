"""States of graphs and tasks, policies of failure and conditions, and the words of holders."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final


class TaskState(StrEnum):
    """States of a task, with what moves it on."""

    UNSCHEDULED = "unscheduled"  # waits for requirements; the commit that fulfils the last one moves it to pending
    PENDING = "pending"  # ready; a worker's claim moves it to running
    RUNNING = "running"  # claimed; its result, a hand-back, or the sweep (lease expired) moves it on
    COMPLETED = "completed"  # succeeded; only a manual rerun moves it
    FAILED = "failed"  # failed for good, the rerun budget is spent; a manual rerun moves it to pending
    EXCEPTION = "exception"  # never got to an answer: lost leases, malformed; a manual rerun moves it to pending
    SKIPPED = "skipped"  # will not run, because of how its requirements ended; only a manual rerun moves it
    CANCELLED = "cancelled"  # as people see it: its row says `exception`, and in its resolution that it was cancelled


class GraphState(StrEnum):
    """States of a graph, with what moves it on."""

    SUBMITTING = "submitting"  # rows are being written; the submitter flips it to running
    RUNNING = "running"  # handlers move it to blocked or finished
    BLOCKED = "blocked"  # a task failed for good; other branches go on; a manual rerun moves it back to running
    FINISHED = "finished"  # every task completed, or (failure policy `continue`) is resolved in another way
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"  # as finished, it goes on when a task of it is rerun
    DELETING = "deleting"  # its rows are being deleted, by the command or the sweep
    DELETED = "deleted"  # a tombstone: nothing is left but that it was, and until when its id is not given again
    RESTORING = "restoring"  # its rows are coming in, from an archive or another store; then it is what it was
    MOVING = "moving"  # its rows go to another store, and none of them changes here
    MOVED = "moved"  # a tombstone: it goes on in another store, which the row names


class FailurePolicy(StrEnum):
    """What a graph does about a task that failed for good."""

    BLOCK = "block"  # it is blocked until the task is rerun; what does not depend on the task goes on
    FAIL_FAST = "fail-fast"  # the rest is cancelled
    CONTINUE = "continue"  # what depends on the task learns of it, and is mostly skipped; the graph goes on to its end


class When(StrEnum):
    """Which end of its requirements a task waits for; all of them are resolved before it is decided."""

    ALL_COMPLETED = "all-completed"
    ALL_RESOLVED = "all-resolved"  # each ran to an end, a good one or not; none was skipped
    ANY_FAILED = "any-failed"
    ALWAYS = "always"


def condition_words(when: str) -> str:
    return _CONDITION_WORDS.get(when, "")


_CONDITION_WORDS: Final[dict[str, str]] = {
    When.ALL_RESOLVED: "runs once all have ended, well or not, unless one was skipped",
    When.ANY_FAILED: "runs if any of them failed",
    When.ALWAYS: "runs whatever becomes of them",
}
TASK_UNRESOLVED: Final = frozenset({TaskState.UNSCHEDULED, TaskState.PENDING, TaskState.RUNNING})

TASK_STORED: Final = tuple(each for each in TaskState if each != TaskState.CANCELLED)
"""States that the row of a task may have."""

GRAPH_GONE: Final = frozenset({GraphState.DELETING, GraphState.DELETED, GraphState.MOVED})
"""States of graphs whose rows are gone, or are going: messages about them come late, and are dropped."""

GRAPH_SEALED: Final = frozenset({GraphState.MOVING, GraphState.MOVED, GraphState.RESTORING})
"""States in which the rows of a graph may be sealed (`protocol.transfer`): what is to change them is dropped."""

GRAPH_ENDED: Final = frozenset({GraphState.FINISHED, GraphState.CANCELLED})

_AT_REST: Final = {*GRAPH_ENDED, GraphState.DELETED, GraphState.MOVED}
GRAPH_LIVE: Final = tuple(str(state) for state in GraphState if state not in _AT_REST)
"""States of graphs that the sweep looks at: the index of live graphs names them."""

PAUSED: Final = "paused"  # in a column `held`: the whole graph is paused
DEPARTING: Final = "departing"  # in a column `held`: the whole graph, which is about to go to another store
WHOLE: Final = frozenset({PAUSED, DEPARTING})
"""In a column `held`: these hold the whole graph."""
INACTIVE: Final = "inactive"  # in a column `held`: this task is not active
_GROUP: Final = "group:"


def stored_state(seen: str) -> str:
    """The state on the rows of the tasks that people see in this one."""
    return TaskState.EXCEPTION.value if seen == TaskState.CANCELLED else str(seen)


def state_in_words(state: str, held: Iterable[str]) -> str:
    """The state of a graph for people: one that is paused as a whole and could run otherwise is `paused`."""
    return PAUSED if state == GraphState.RUNNING and not WHOLE.isdisjoint(held) else state


def by_group(name: str) -> str:
    """In a column `held`: a group of the graph is paused."""
    return _GROUP + name


def held_group(holder: str) -> str:
    """The group of an entry of a column `held`, "" for the whole graph and for a single task."""
    return holder.removeprefix(_GROUP) if holder.startswith(_GROUP) else ""
