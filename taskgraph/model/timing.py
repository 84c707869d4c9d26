"""When a task may run, how often it is tried again, and how long it may take: keys of nodes, and columns of rows.

The jitter of a pause is made of the taskId and the number of the run, so that deciding twice gives the same.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from taskgraph.model import limits
from taskgraph.model.columns import is_held
from taskgraph.model.ids import value
from taskgraph.model.states import GraphState, TaskState

NODE_KEYS: Final = ("notBefore", "retry", "maxRunTime", "pendingTimeout")  # keys of a task node that speak of time
_NODE_KEYS: Final = frozenset(NODE_KEYS)
TEMPORARY_EXIT_CODES: Final = frozenset({75, 111})
"""They mean "try again later": EX_TEMPFAIL of sysexits.h, and that of qmail's programs."""

DEADLINE_EXCEEDED: Final = "deadline-exceeded"
PENDING_TIMEOUT: Final = "pending-timeout"
MAX_RUN_TIME_EXCEEDED: Final = "max-run-time-exceeded"

Columns = Callable[[str], object]  # gives the value of a column of a task row, None where the row has none
NEVER: Final = datetime(9999, 12, 31, tzinfo=UTC)
"""A time that never comes, for a column that cannot be taken away again."""

_UNRESOLVED: Final = frozenset({str(TaskState.UNSCHEDULED), str(TaskState.PENDING), str(TaskState.RUNNING)})
_LIVING: Final = frozenset({*_UNRESOLVED, str(GraphState.BLOCKED)})


@value
class Retry:
    """Tries after temporary failures: how many; the first delay, which doubles up to max_seconds."""

    limit: int = limits.TEMPORARY_LIMIT_DEFAULT
    delay_seconds: float = limits.TEMPORARY_DELAY_SECONDS_DEFAULT
    max_seconds: float = limits.TEMPORARY_DELAY_SECONDS_MAX_DEFAULT


RETRY_DEFAULT: Final = Retry()


def of_node(node: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a node that speak of time; empty for most."""
    return {} if _NODE_KEYS.isdisjoint(node) else {key: node[key] for key in NODE_KEYS if key in node}


def for_worker(timing: Mapping[str, Any]) -> dict[str, Any]:
    """What of it a worker has to know: it goes into the definition, under the same keys."""
    made: dict[str, Any] = {"maxRunTime": timing["maxRunTime"]} if "maxRunTime" in timing else {}
    if "exitCodes" in timing.get("retry", ()):
        made["retry"] = {"exitCodes": timing["retry"]["exitCodes"]}
    return made


def retry_text(retry: Mapping[str, Any]) -> str:
    """The column `retry` of a task row: what the document says, "" if that is nothing that a decision needs."""
    kept = {key: retry[key] for key in ("limit", "delay", "max") if key in retry}
    return json.dumps(kept, separators=(",", ":")) if kept else ""


def run_seconds_max(definition: Mapping[str, Any]) -> float | None:
    """How long one run may take, None for as long as it likes."""
    seconds = definition.get("maxRunTime")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds <= 0:
        return None
    return float(seconds)


def temporary_exit_codes(definition: Mapping[str, Any]) -> frozenset[int]:
    """Exit codes by which a command says that it failed for the moment."""
    retry = definition.get("retry")
    codes = retry.get("exitCodes") if isinstance(retry, Mapping) else None
    if not isinstance(codes, list | tuple):
        return TEMPORARY_EXIT_CODES
    return frozenset(int(code) for code in codes if isinstance(code, int | float))


def retry_of(text: str) -> Retry:
    """The policy in the column `retry`. Raises ValueError for a text that is none."""
    if not text:
        return RETRY_DEFAULT
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError("the column is no JSON object")
    numbers = {key: found[key] for key in ("limit", "delay", "max") if key in found}
    if not all(type(number) in (int, float) for number in numbers.values()):
        raise ValueError("the column holds what is no number")
    return Retry(
        int(numbers.get("limit", RETRY_DEFAULT.limit)),
        float(numbers.get("delay", RETRY_DEFAULT.delay_seconds)),
        float(numbers.get("max", RETRY_DEFAULT.max_seconds)),
    )


def pause_seconds(task_id: str, run: int, failures: int, retry: Retry) -> float:
    """The pause after so many temporary failures: from half of the delay to all of it, so that tasks spread."""
    whole = retry.delay_seconds
    for _ in range(failures - 1):
        if whole >= retry.max_seconds:
            break
        whole *= 2
    whole = min(whole, retry.max_seconds)
    drawn = int.from_bytes(hashlib.sha256(f"{task_id}:{run}".encode()).digest()[:4], "big") / 2**32
    return round(whole * (0.5 + drawn / 2), 3)


def temporary_used(columns: Columns) -> int:
    """How much of its budget of temporary failures a task has used: those since a person reran it."""
    failures, forgiven = columns("temporaryFailures"), columns("temporaryForgiven")
    return (failures if isinstance(failures, int) else 0) - (forgiven if isinstance(forgiven, int) else 0)


def pause_seconds_in(columns: Columns) -> float | None:
    """How long the pause is whose end `notBefore` says; None where that is a time of the document."""
    seconds = columns("pauseSeconds")
    return float(seconds) if isinstance(seconds, int | float) and not isinstance(seconds, bool) else None


def not_yet_seconds(columns: Columns, now: datetime, known_seconds: float = 0.0) -> float:
    """How long it is until the task may be claimed; 0 if it may be now.

    known_seconds: for how long this process has known the task as it stands; a pause ends with its length from then.
    """
    not_before = columns("notBefore")
    if not isinstance(not_before, datetime) or not_before <= now:
        return 0.0
    left = (not_before - now).total_seconds()
    pause = pause_seconds_in(columns)
    return left if pause is None else max(0.0, min(left, pause - known_seconds))


def ready_since(columns: Columns) -> datetime | None:
    """Since when a pending task could have been claimed: it stood pending, and was allowed to run."""
    since, not_before = columns("pendingSince"), columns("notBefore")
    if not isinstance(since, datetime):
        return None
    return max(since, not_before) if isinstance(not_before, datetime) else since


def due_at(columns: Columns) -> datetime | None:
    """When a waiting or ready task is over by time, or its graph, or what waits in it; None for never."""
    state = columns("state")
    if state not in _LIVING or columns("claim") or columns("cancel"):
        return None
    times = [each for name in ("deadline", "nextDeadline") if isinstance(each := columns(name), datetime)]
    timeout = columns("pendingTimeout")
    if timeout is not None and state == TaskState.PENDING and not is_held(columns("held")):
        since = ready_since(columns)
        if since is not None and isinstance(timeout, int | float):
            times.append(since + timedelta(seconds=timeout))
    return min((each for each in times if each < NEVER), default=None)


def overdue(columns: Columns, now: datetime) -> tuple[str, str] | None:
    """Why an unresolved task may not go on any more: a code and a sentence; None if it may."""
    deadline, timeout = columns("deadline"), columns("pendingTimeout")
    if deadline is None and timeout is None:
        return None  # nearly all tasks, and every claim asks
    state = columns("state")
    if state not in _UNRESOLVED:
        return None
    if isinstance(deadline, datetime) and deadline <= now:
        return DEADLINE_EXCEEDED, f"its deadline {clock_text(deadline)} has passed"
    held = is_held(columns("held"))  # no worker could have claimed it
    if state == TaskState.PENDING and isinstance(timeout, int | float) and not held:
        since = ready_since(columns)
        if since is not None and since + timedelta(seconds=timeout) <= now:
            return PENDING_TIMEOUT, f"no worker claimed it within {timeout:g} s"
    return None


def clock_text(moment: datetime | None) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%SZ") if moment else "an unknown time"
