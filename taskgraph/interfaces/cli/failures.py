"""What an error means at the door: an exit code, and words for it (D19).

What this room is for: the one place where errors become exit codes and text. It never prints and never ends the
process, and it never shows a key: endpoints are all that storage errors carry.
"""

from typing import Any, Final

from taskgraph.interfaces import views
from taskgraph.model.errors import (
    Conflict,
    IntegrityError,
    InvalidGraph,
    InvalidInput,
    InvalidSettings,
    NotFound,
    Refused,
    StaleDelivery,
    StorageError,
    StorageUnavailable,
    TaskgraphError,
    TooLarge,
    Unclear,
)

DONE: Final = 0
UNSUCCESSFUL: Final = 1  # the graph ended blocked or cancelled
INVALID: Final = 2
NOT_FOUND: Final = 3
CONFLICT: Final = 4
UNREACHABLE: Final = 5
BUG: Final = 70
TIMED_OUT: Final = 124
INTERRUPTED: Final = 130

EXIT_CODES: Final = (
    "Exit codes: 0 done and finished · 1 the graph ended blocked or cancelled · 2 bad usage or invalid input · "
    "3 not found · 4 conflict or refused · 5 storage unreachable · 124 timed out · 130 interrupted."
)


class TimedOut(TaskgraphError):
    """The caller's own patience has ended; what was waited for goes on."""


class Interrupted(TaskgraphError):
    """A person, or the system, wants this process to end; what it was doing can be taken up again."""


def exit_code(error: TaskgraphError) -> int:
    """The exit code of an error."""
    match error:
        case InvalidInput() | TooLarge():
            return INVALID
        case NotFound():
            return NOT_FOUND
        case Refused() | Conflict() | StaleDelivery():
            return CONFLICT
        case StorageError():
            return UNREACHABLE
        case TimedOut():
            return TIMED_OUT
        case Interrupted():
            return INTERRUPTED
        case IntegrityError():
            return BUG
        case _:  # a newer schema or message version: of another program, and not for this one
            return CONFLICT


def code_word(error: TaskgraphError) -> str:
    """A short stable word for an error, for programs."""
    match error:
        case InvalidGraph():
            return "invalid-graph"
        case InvalidSettings():
            return "invalid-settings"
        case InvalidInput():
            return "invalid-input"
        case TooLarge():
            return "too-large"
        case NotFound():
            return "not-found"
        case Refused():
            return error.code
        case Conflict() | StaleDelivery():
            return "conflict"
        case StorageUnavailable() | Unclear():
            return "storage-unreachable"
        case StorageError():
            return "storage"
        case TimedOut():
            return "timed-out"
        case Interrupted():
            return "interrupted"
        case IntegrityError():
            return "integrity"
        case _:
            return "newer-version"


def sentences(error: TaskgraphError) -> list[str]:
    """What to tell a person: the error first, then what may help."""
    match error:
        case NotFound() if error.near:
            return [str(error), f"did you mean {' or '.join(f'“{name}”' for name in error.near)}?"]
        case StorageUnavailable() if error.endpoint and error.endpoint not in str(error):
            return [f"the store at {error.endpoint} does not answer: {error}"]
        case IntegrityError():
            return [str(error), "the rows of this graph contradict each other; please report this"]
        case _:
            return [str(error) or type(error).__name__]


def problem_lines(error: InvalidGraph) -> list[tuple[str, str, str]]:
    """For each problem: where (`source:line: pointer`), what is wrong, what to do."""
    lines = []
    for problem in error.problems:
        where = f"{error.source}:{problem.line}" if problem.line is not None else error.source
        lines.append((f"{where}: {problem.pointer}" if problem.pointer else where, problem.message, problem.remedy))
    return lines


def error_object(error: TaskgraphError) -> dict[str, Any]:
    """The error as a JSON value, with its exit code."""
    return views.error(error, code_word(error), exit_code(error))
