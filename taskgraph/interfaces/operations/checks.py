"""Checks that several operations share, made before anything is asked for."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from taskgraph.documents.nodes import GraphDocument
from taskgraph.model import limits
from taskgraph.model.errors import InvalidGraph, InvalidInput, Problem
from taskgraph.model.json_pointer import pointer
from taskgraph.model.states import GraphState

_PROBLEMS_MAX: Final = 100

GOING: Final = (GraphState.RUNNING, GraphState.BLOCKED)
"""States of graphs that can be paused, resumed and limited."""


def check_reason(reason: str) -> None:
    """Raises InvalidInput for one that is too long to be kept."""
    if len(reason) > limits.REASON_CHARS_MAX:
        raise InvalidInput(f"the reason has {len(reason):,} characters; {limits.REASON_CHARS_MAX:,} are allowed")


def check_target(target: str) -> None:
    """Raises InvalidInput for a name that cannot be a target."""
    if re.fullmatch(limits.TARGET_PATTERN, target) is None:
        raise InvalidInput(f"target {target}: lower-case letters, digits and single - between them, at most 40")


@dataclass(frozen=True, slots=True)
class CannotRun:
    """reason: one sentence. key: of the definition, which is the reason."""

    reason: str
    remedy: str
    key: str = ""


def check_all_can_run(
    document: GraphDocument, source: str, why_not: Callable[[Mapping[str, Any]], CannotRun | None]
) -> None:
    """Raise InvalidGraph, with the place of every task that a process could not run; `why_not` judges definitions."""
    problems: list[Problem] = []
    unable = 0
    for label, node in document.tasks.items():
        found = why_not(node.task)
        if found is None:
            continue
        unable += 1
        if len(problems) < _PROBLEMS_MAX:
            place = ("tasks", label, "task", found.key) if found.key else ("tasks", label, "task")
            end = "" if found.reason.endswith((".", "?")) else "."
            message = f"This process cannot run “{label}”: {found.reason}{end}"
            problems.append(Problem(pointer(place), "cannot-run", message, found.remedy))
    if unable > len(problems):
        problems.append(Problem("", "more", f"… and {unable - len(problems):,} more.", ""))
    if problems:
        raise InvalidGraph(problems, source)
