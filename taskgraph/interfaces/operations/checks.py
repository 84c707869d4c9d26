"""What several operations share: checks before anything is asked for, looks at rows of tasks, and a server between."""

import contextlib
import functools
import itertools
import os
import re
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar

from taskgraph.model import limits
from taskgraph.model.errors import InvalidGraph, InvalidInput, Problem, Refused
from taskgraph.model.ids import reference_of, row_key
from taskgraph.model.states import GraphState

if TYPE_CHECKING:
    from taskgraph.documents.nodes import GraphDocument
    from taskgraph.interfaces.app import App
    from taskgraph.storage.tables import Row, Tables

BY_VARIABLE: Final = "TASKGRAPH_BY"
_PROBLEMS_MAX: Final = 100
_ASKING: Final[ContextVar[str]] = ContextVar("taskgraph-asking", default="")

P = ParamSpec("P")
T = TypeVar("T")
Operation = Callable[Concatenate["App", P], Coroutine[Any, Any, T]]

GOING: Final = (GraphState.RUNNING, GraphState.BLOCKED)
"""States of graphs that can be paused, resumed and limited."""


@contextlib.contextmanager
def asking(name: str) -> Iterator[None]:
    """What is asked for within is asked for by this one."""
    before = _ASKING.set(name)
    try:
        yield
    finally:
        _ASKING.reset(before)


def asked_by() -> str:
    """Who asks for a change, for the journal: see `asking`; or TASKGRAPH_BY; or user and machine, "" without a name."""
    import getpass  # here: most operations change nothing
    import socket

    name = _ASKING.get() or os.environ.get(BY_VARIABLE, "")
    if not name:
        with contextlib.suppress(OSError, KeyError, ImportError):  # no entry for this user, or no list of users
            name = f"{getpass.getuser()}@{socket.gethostname()}"
    return "".join(each for each in name if each.isprintable())[: limits.BY_CHARS_MAX]


def check_reason(reason: str) -> None:
    """Raises InvalidInput for one that is too long to be kept."""
    if len(reason) > limits.REASON_CHARS_MAX:
        raise InvalidInput(f"the reason has {len(reason):,} characters; {limits.REASON_CHARS_MAX:,} are allowed")


def check_going(graph_id: str, state: str, refused: str) -> None:
    """Raises Refused for a graph that neither runs nor is blocked. refused: what cannot be done with it then."""
    if state not in GOING:
        raise Refused(f"graph {graph_id} is {state}: {refused}", str(state))


def check_target(target: str) -> None:
    if re.fullmatch(limits.TARGET_PATTERN, target) is None:
        raise InvalidInput(f"target {target}: lower-case letters, digits and single - between them, at most 40")


async def task_rows(tables: "Tables", graph_id: str, task_ids: Iterable[str]) -> "list[Row]":
    """The rows of these tasks, as far as they exist."""
    return [row for row in await tables.get(graph_id, list(map(row_key, task_ids))) if row is not None]


def labels_of(rows: "Iterable[Row]") -> dict[str, str]:
    """Labels by taskId."""
    return {reference_of(row.key): str(row.columns.get("label", "")) for row in rows}


@dataclass(frozen=True, slots=True)
class CannotRun:
    """reason: one sentence. key: of the definition, which is the reason."""

    reason: str
    remedy: str
    key: str = ""


def check_schema(name: str, part: str, value: object, source: str) -> None:
    """Raises InvalidGraph with what of a value is not as a part of a schema says, and where."""
    from taskgraph.model import schemas  # here: short commands do without
    from taskgraph.model.json_pointer import pointer

    validator = schemas.validator(name, f"#/$defs/{part}")
    if not validator.is_valid(value):
        wrong = itertools.islice(validator.iter_errors(value), _PROBLEMS_MAX)
        places = [(pointer(tuple(each.absolute_path)), f"{each.message[:300]}.") for each in wrong]
        raise InvalidGraph(
            [Problem(place, "schema", message, f"See schemas/{name}.json.") for place, message in places], source
        )


def check_all_can_run(
    document: "GraphDocument", source: str, why_not: Callable[[Mapping[str, Any]], CannotRun | None]
) -> None:
    """Raise InvalidGraph, with the place of every task that a process could not run; `why_not` judges definitions."""
    from taskgraph.model.json_pointer import pointer

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


def over_http(name: str) -> Callable[[Operation[P, T]], Operation[P, T]]:
    """Let the function of this name in `over_http` be called in place of an operation, where a server is between."""

    def made(operation: Operation[P, T]) -> Operation[P, T]:
        @functools.wraps(operation)
        async def call(app: "App", /, *args: P.args, **kwargs: P.kwargs) -> T:
            if app.server is None:
                return await operation(app, *args, **kwargs)
            from taskgraph.interfaces.operations import over_http

            found: T = await getattr(over_http, name)(app, app.server, *args, **kwargs)
            return found

        return call

    return made
