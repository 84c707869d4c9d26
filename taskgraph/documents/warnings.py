"""Keys of a task that mean nothing where they stand, and what else is valid in a document, and probably not meant.

A definition may hold keys of its users' own. But a key one edit away from a known one, or one level too high, makes a
task that runs without what it was to do: that is an error, unless its executor is an own one or `noop`.
"""

import difflib
import functools
import itertools
from collections.abc import Collection, Iterator
from collections.abc import Set as AbstractSet
from typing import Any, Final

from taskgraph.documents.nodes import GraphDocument
from taskgraph.documents.problems import PROBLEMS_MAX, Report
from taskgraph.documents.references import BUILT_IN_EXECUTORS, reference_objects
from taskgraph.documents.results import taking_key
from taskgraph.documents.schema_check import SUBS
from taskgraph.model import limits, schemas
from taskgraph.model.errors import Problem
from taskgraph.model.json_pointer import pointer
from taskgraph.model.json_strict import Path, show

_JUDGED: Final = (None, *sorted(BUILT_IN_EXECUTORS - {"noop"}))
_CHOOSING: Final = frozenset({"command", "call"})  # keys of a payload that say which built-in executor runs the task


def check_keys(label: str, task: dict[str, Any], report: Report) -> None:
    """Report keys that are nearly known, or stand beside the payload and belong into it."""
    executor = task.get("executor")
    if executor not in _JUDGED:
        return
    payload = task.get("payload")
    inner = payload if isinstance(payload, dict) else {}
    path: Path = ("tasks", label, "task")
    of_task, of_command = _keys("task"), _keys("commandPayload")
    if not task.keys() <= of_task:
        for key in task.keys() - of_task:
            if key in of_command and key not in inner:
                message = f"{show(key)} stands beside the payload, where it has no meaning."
                report.add((*path, key), "misplaced-key", message, f"Move it to payload.{key}.")
            else:
                _near(key, of_task, task, path, report)
    expected: AbstractSet[str] = frozenset()
    if executor == "docker":
        expected = of_command | _keys("dockerPayload")
    elif executor in ("expand", "http", "kubernetes"):
        expected = _keys(f"{executor}Payload")
    elif executor == "command" or "command" in inner:
        expected = of_command
    elif executor is None and "call" not in inner:
        expected = _CHOOSING
    if not inner.keys() <= expected:
        for key in inner.keys() - expected:
            _near(key, expected, inner, (*path, "payload"), report)


@functools.cache
def _keys(part: str) -> frozenset[str]:
    return frozenset(schemas.members("task-graph", part))


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


def warnings(document: GraphDocument) -> list[Problem]:
    """What is legal and looks like a mistake: one problem for each kind, at the first place, with the number of tasks.

    Codes: no-executor, own-executor, near-key, retries, subs-outside-payload.
    """
    found: dict[tuple[str, str], list[Any]] = {}  # (code, subject) -> [path, label, number of tasks]
    task_keys, command_keys = (schemas.members("task-graph", part) for part in ("task", "commandPayload"))
    near_keys: dict[tuple[str, tuple[str, ...]], str] = {}

    def near(key: str, known: tuple[str, ...]) -> str:
        if (key, known) not in near_keys and len(near_keys) < 1_000:
            close = difflib.get_close_matches(key[:64], known, 1, 0.75)
            near_keys[key, known] = close[0] if close else ""
        return near_keys.get((key, known), "")

    def note(code: str, subject: str, path: Path, label: str) -> None:
        entry = found.setdefault((code, subject), [path, label, 0])
        entry[2] += 1

    for label, node in document.tasks.items():
        task = node.task
        path: Path = ("tasks", label, "task")
        payload = task.get("payload", {})
        executor = task.get("executor")
        if executor is None and payload and "command" not in payload and "call" not in payload:
            note("no-executor", "", path, label)
        elif executor is not None and executor not in BUILT_IN_EXECUTORS:
            note("own-executor", executor, (*path, "executor"), label)
        for key, value in task.items():
            if key not in task_keys:
                if key == "retries":
                    note("retries", "", (*path, key), label)
                elif (close := near(key, task_keys)) and close not in task:
                    note("near-key", f"{key}\0{close}", (*path, key), label)
            if key != "payload" and isinstance(value, dict | list):
                for inner, here in itertools.islice(reference_objects(value), 1):
                    note(
                        "subs-outside-payload", SUBS if SUBS in here else taking_key(here), (*path, key, *inner), label
                    )
        if executor == "command" or (executor is None and "command" in payload):
            for key in payload:
                if key not in command_keys and (close := near(key, command_keys)) and close not in payload:
                    note("near-key", f"{key}\0{close}", (*path, "payload", key), label)
    return [
        Problem(pointer(path), code, *_warning(code, subject, label, count), source=document.sources.get(label))
        for (code, subject), (path, label, count) in itertools.islice(found.items(), PROBLEMS_MAX)
    ]


def _warning(code: str, subject: str, label: str, count: int) -> tuple[str, str]:
    others = f" and {count - 1:,} other{'s' if count > 2 else ''}" if count > 1 else ""
    who = f"{show(label)}{others}"
    match code:
        case "no-executor":
            message = (
                f"{who}: no executor is named, and no built-in one understands the payload; workers hand such a task "
                "back, and it waits until a worker comes that can run it."
            )
            remedy = 'Name an executor ("noop" for a task that does nothing), or give the payload a `command`.'
        case "own-executor":
            message = (
                f"{who}: the executor {show(subject)} is not built in; the task waits for a worker that brings it."
            )
            remedy = f"Start such a worker for its target, or use one of {', '.join(sorted(BUILT_IN_EXECUTORS))}."
        case "retries":
            message = f"{who}: `retries` has no meaning here; every task may be lost {limits.RETRIES_DEFAULT} times."
            remedy = "For failures that a rerun may mend, say `reruns` beside `task`; for ones of the moment, `retry`."
        case "near-key":
            key, _, close = subject.partition("\0")
            message = f"{who}: {show(key)} has no meaning here."
            remedy = f"If you mean {show(close)}, correct the key."
        case "subs-outside-payload":
            message = f"{who}: a `{subject}` object outside the payload stays as it is."
            remedy = "References are replaced inside the payload alone; move it there."
        case _:  # pragma: no cover
            raise AssertionError(code)
    return message, remedy
