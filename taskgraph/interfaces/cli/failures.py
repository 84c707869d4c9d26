"""Errors as exit codes, words and JSON (D19). No key is in them: endpoints are all that storage errors carry."""

from typing import Any, Final

from taskgraph.interfaces import views
from taskgraph.interfaces.meanings import BUG as BUG
from taskgraph.interfaces.meanings import CONFLICT as CONFLICT
from taskgraph.interfaces.meanings import INVALID as INVALID
from taskgraph.interfaces.meanings import NOT_FOUND as NOT_FOUND
from taskgraph.interfaces.meanings import UNREACHABLE as UNREACHABLE
from taskgraph.interfaces.meanings import meaning
from taskgraph.model import errors
from taskgraph.model.errors import TaskgraphError

DONE: Final = 0
UNSUCCESSFUL: Final = 1  # the graph ended blocked or cancelled
TIMED_OUT: Final = 124
INTERRUPTED: Final = 130

EXIT_CODES: Final = (
    "Exit codes: 0 done and finished · 1 the graph ended blocked or cancelled · 2 bad usage or invalid input · "
    "3 not found · 4 conflict or refused · 5 storage unreachable · 124 timed out · 130 interrupted."
)


class TimedOut(TaskgraphError):
    """The time of --timeout is up; what was waited for goes on."""


class Interrupted(TaskgraphError):
    """A signal ends this process; what it was doing can be taken up again."""


def exit_code(error: TaskgraphError) -> int:
    return _meaning(error)[0]


def _meaning(error: TaskgraphError) -> tuple[int, str]:
    match error:
        case TimedOut():
            return TIMED_OUT, "timed-out"
        case Interrupted():
            return INTERRUPTED, "interrupted"
        case _:
            found = meaning(error)
            return found.exit_code, found.word


def sentences(error: TaskgraphError) -> list[str]:
    """The error in words, then what may help."""
    match error:
        case errors.NotFound() if error.near:
            return [str(error), f"did you mean {' or '.join(f'“{name}”' for name in error.near)}?"]
        case errors.StorageUnavailable() if error.endpoint and error.endpoint not in str(error):
            return [f"the store at {error.endpoint} does not answer: {error}"]
        case errors.IntegrityError():
            return [str(error), "the rows of this graph contradict each other; please report this"]
        case _:
            return [str(error) or type(error).__name__]


def problem_lines(error: errors.InvalidGraph) -> list[tuple[str, str, str]]:
    """For each problem: where (`source:line: pointer`), what is wrong, what to do."""
    lines = []
    for problem in error.problems:
        source = problem.source or error.source
        where = f"{source}:{problem.line}" if problem.line is not None else source
        lines.append((f"{where}: {problem.pointer}" if problem.pointer else where, problem.message, problem.remedy))
    return lines


def error_object(error: TaskgraphError) -> dict[str, Any]:
    code, word = _meaning(error)
    return views.error(error, word, code)
