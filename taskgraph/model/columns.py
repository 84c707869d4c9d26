"""Columns of rows for code that only shows or weighs them: what is missing or damaged counts as nothing.

Code that decides about a task reads working copies (`protocol.rows`), which say what is wrong with a row.
"""

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from taskgraph.model.states import TaskState

Value = str | int | bool | float | datetime
"""Text, Int32, boolean, double, or an aware time (returned in UTC, to the microsecond)."""
Columns = Mapping[str, Value]

OUTPUT: Final = "output"  # key of a resolution: the output of the task
NO_OUTPUT: Final = "noOutput"  # key of a resolution: why a result of the task is no output
FOLDER: Final = "folder"
"""Column of a graph: where its submitter was, on the machine that submitted it; absent where that is not known."""
WAITS_FOR: Final = "waitsFor"
"""Column of a request: what it waits for, "" for nothing."""


def integer(columns: Columns, name: str) -> int:
    value = columns.get(name, 0)
    return value if isinstance(value, int) else 0


def time_of(columns: Columns, name: str) -> datetime | None:
    value = columns.get(name)
    return value if isinstance(value, datetime) else None


def listed(columns: Columns, name: str) -> list[Any]:
    try:
        found = json.loads(str(columns.get(name, "") or "[]"))
    except ValueError:
        return []
    return found if isinstance(found, list) else []


def texts(columns: Columns, name: str) -> list[str]:
    return [str(each) for each in listed(columns, name)]


def objects(columns: Columns, name: str) -> list[dict[str, Any]]:
    """What is damaged in the list is left out, for `doctor` to name."""
    return [each for each in listed(columns, name) if isinstance(each, dict)]


def object_of(columns: Columns, name: str) -> dict[str, Any]:
    """A column that holds an object; {} for what is damaged in it, for `doctor` to name."""
    try:
        found = json.loads(str(columns.get(name, "") or "{}"))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def is_held(held: object) -> bool:
    return held not in (None, "", "[]")


def is_cancelled(column: Callable[[str], object]) -> bool:
    """Whether the task of which this gives the columns was resolved by being cancelled, perhaps before its time."""
    if column("state") != TaskState.EXCEPTION:
        return False
    try:
        resolution = json.loads(str(column("resolution") or "{}"))
    except ValueError:
        return False
    return isinstance(resolution, dict) and resolution.get("cancelled") is True


def seen_state(column: Callable[[str], object]) -> str:
    """The state of the task of which this gives the columns, as people see it."""
    return TaskState.CANCELLED.value if is_cancelled(column) else str(column("state") or "")


def cached_words(resolution: Mapping[str, Any]) -> str:
    """Which run a result was taken from, in words; "" for a task that ran itself."""
    cached = resolution.get("cached")
    if not isinstance(cached, Mapping):
        return ""
    return f"run {cached.get('run')} of “{cached.get('label')}” in graph {cached.get('graphId')}"
