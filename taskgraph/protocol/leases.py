"""When a lease is over, and times on a task's row that no correct clock can have written.

A lease whose end cannot be true (see `model.foreign_times`) is neither waited for nor taken as lost: it is set to one
length from now. A live worker renews it before that, and a dead one loses the run a length later.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from taskgraph.model import limits
from taskgraph.model.columns import Value
from taskgraph.model.foreign_times import Standing, is_ahead, standing
from taskgraph.model.ids import row_key
from taskgraph.model.states import TaskState
from taskgraph.model.timing import Columns, pause_seconds_in
from taskgraph.protocol.context import Context, Item, Outcome, Rules, Verdict
from taskgraph.protocol.rows import Draft

_DOUBTS_MAX: Final = 2  # so often a lease is set right without a renewal; then it is over


@dataclass(frozen=True, slots=True)
class SetRight(Item):
    """Correct the times of a task that a wrong clock has written, if there are any on its row (sweep)."""

    task_id: str


def lease(columns: Columns, now: datetime) -> Standing:
    """Whether the lease of a running task holds. One without an end is over."""
    end = columns("leaseUntil")
    if not isinstance(end, datetime):
        return Standing.OVER
    found = standing(end, now, _length(columns) or limits.DELAY_SECONDS_MAX)
    doubts = columns("leaseDoubts")
    if found is Standing.DOUBTFUL and isinstance(doubts, int) and doubts >= _DOUBTS_MAX:
        return Standing.OVER
    return found


def put_off(task: Draft, until: datetime, seconds: float) -> None:
    """Write the end of a lease, with its length. seconds: 0 where that is not known."""
    task.set("leaseUntil", until)
    if seconds and task.value("leaseSeconds") != seconds:
        task.set("leaseSeconds", seconds)
    if task.value("leaseDoubts"):
        task.set("leaseDoubts", 0)


def amended(columns: Columns, now: datetime) -> dict[str, Value]:
    """Corrections for columns of a task that hold an impossible time; nothing for nearly all tasks."""
    state = columns("state")
    if state == TaskState.RUNNING:
        if not isinstance(columns("leaseUntil"), datetime) or lease(columns, now) is not Standing.DOUBTFUL:
            return {}
        doubts = columns("leaseDoubts")
        until = now + timedelta(seconds=_length(columns) or limits.LEASE_SECONDS)
        return {"leaseUntil": until, "leaseDoubts": (doubts if isinstance(doubts, int) else 0) + 1}
    if state != TaskState.PENDING:
        return {}
    found: dict[str, Value] = {}
    since, not_before, pause = columns("pendingSince"), columns("notBefore"), pause_seconds_in(columns)
    if isinstance(since, datetime) and is_ahead(since, now):
        found["pendingSince"] = now
    if isinstance(not_before, datetime) and pause is not None and is_ahead(not_before, now, pause):
        found["notBefore"] = now + timedelta(seconds=pause)
    return found


def set_right(item: SetRight, context: Context) -> Verdict:
    task = context.view.get(row_key(item.task_id))
    found = amended(task.value, context.now)
    for name, value in found.items():
        task.set(name, value)
    return (Outcome.APPLIED, "") if found else (Outcome.STALE, "its times can be believed")


def _length(columns: Columns) -> float:
    """Of the lease, in seconds; 0 where the row does not say, as in earlier versions."""
    seconds = columns("leaseSeconds")
    return float(seconds) if isinstance(seconds, int | float) and not isinstance(seconds, bool) else 0.0


RULES: Final[Rules] = {SetRight: set_right}
