"""Keys of a task that mean nothing where they stand, and were meant to.

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

_JUDGED: Final = (None, *sorted(BUILT_IN_EXECUTORS - {"noop"}))
_CHOOSING: Final = frozenset({"command", "call"})
"""Keys of a payload that say which built-in executor runs the task."""


def check_keys(label: str, task: dict[str, Any], report: Report) -> None:
    """Report keys that are nearly known, or stand beside the payload and belong into it."""
    executor = task.get("executor")
    if executor not in _JUDGED:
        return
    payload = task.get("payload")
    inner = payload if isinstance(payload, dict) else {}
    path: Path = ("tasks", label, "task")
    of_task, of_command = (schemas.members("task-graph", part) for part in ("task", "commandPayload"))
    for key in task.keys() - of_task:
        if key in of_command and key not in inner:
            message = f"{show(key)} stands beside the payload, where it has no meaning."
            report.add((*path, key), "misplaced-key", message, f"Move it to payload.{key}.")
        else:
            _near(key, of_task, task, path, report)
    expected: Collection[str] = ()
    if executor == "command" or "command" in inner:
        expected = of_command
    elif executor is None and "call" not in inner:
        expected = _CHOOSING
    for key in inner.keys() - set(expected):
        _near(key, expected, inner, (*path, "payload"), report)


def _near(key: str, known: Collection[str], beside: Collection[str], path: Path, report: Report) -> None:
    for each in sorted(known):
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
    """What one edit at the first place where they differ makes of a word: a letter in, out, another, or two changed."""
    at = next(
        (n for n, (mine, its) in enumerate(zip(word, other, strict=False)) if mine != its), min(len(word), len(other))
    )
    rest = word[at:]
    yield other[: at + 1] + rest
    yield word[:at] + rest[1:]
    yield other[: at + 1] + rest[1:]
    yield word[:at] + rest[1:2] + rest[:1] + rest[2:]
