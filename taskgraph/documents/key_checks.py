"""Keys of a task that mean nothing where they stand, and that nobody writes on purpose.

A definition may hold keys of its users' own, so its schema takes any. But a key that is one edit away from a known one,
or stands one level too high, made a task that runs without what it was to do, and ends green. An own executor may know
such keys, and a task that says `noop` does nothing on purpose: both may have any.
"""

from collections.abc import Collection, Iterator
from typing import Any, Final

from taskgraph.documents.problems import Report
from taskgraph.documents.references import BUILT_IN_EXECUTORS
from taskgraph.model import schemas
from taskgraph.model.json_strict import Path, show

_KEYS: Final = frozenset(schemas.members("task-graph", "task"))
_COMMAND_KEYS: Final = frozenset(schemas.members("task-graph", "commandPayload"))
_CHOOSING: Final = frozenset({"command", "call"})
"""Keys of a payload that say which built-in executor runs the task."""


def check_keys(label: str, task: dict[str, Any], report: Report) -> None:
    """Report keys that are nearly known, or stand beside the payload and belong into it."""
    executor = task.get("executor")
    if not (executor is None or (isinstance(executor, str) and executor in BUILT_IN_EXECUTORS and executor != "noop")):
        return
    payload = task.get("payload")
    inner = payload if isinstance(payload, dict) else {}
    path: Path = ("tasks", label, "task")
    for key in task.keys() - _KEYS:
        if key in _COMMAND_KEYS and key not in inner:
            message = f"{show(key)} stands beside the payload, where it has no meaning."
            report.add((*path, key), "misplaced-key", message, f"Move it to payload.{key}.")
        else:
            _near(key, _KEYS, task, path, report)
    known = _COMMAND_KEYS if executor == "command" or "command" in inner else _CHOOSING
    if known is _COMMAND_KEYS or (executor is None and inner and not _CHOOSING & inner.keys()):
        for key in inner.keys() - known:
            _near(key, known, inner, (*path, "payload"), report)


def _near(key: str, known: Collection[str], beside: Collection[str], path: Path, report: Report) -> None:
    for each in known:
        if each not in beside and is_one_edit(key, each):
            message = f"{show(key)} has no meaning here. Did you mean {show(each)}?"
            report.add((*path, key), "near-key", message, "Correct the key, or leave it out.")
            return


def is_one_edit(word: str, other: str) -> bool:
    """Whether one letter more, less or in place of another, two that changed places, or capitals, make the other."""
    if abs(len(word) - len(other)) > 1:
        return False
    return word.casefold() == other.casefold() or other in _edits(word, other)


def _edits(word: str, other: str) -> Iterator[str]:
    """What one edit at the first place where they differ makes of a word."""
    at = next(
        (n for n, (mine, its) in enumerate(zip(word, other, strict=False)) if mine != its), min(len(word), len(other))
    )
    rest = word[at:]
    yield other[: at + 1] + rest  # one letter was left out
    yield word[:at] + rest[1:]
    yield other[: at + 1] + rest[1:]
    yield word[:at] + rest[1:2] + rest[:1] + rest[2:]
