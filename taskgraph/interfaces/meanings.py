"""What each error means at a door: the exit code of a command, the status of an HTTP answer, and one word for both."""

from dataclasses import dataclass
from typing import Final

from taskgraph.model import errors
from taskgraph.model.errors import TaskgraphError

INVALID: Final = 2
NOT_FOUND: Final = 3
CONFLICT: Final = 4
UNREACHABLE: Final = 5
BUG: Final = 70


@dataclass(frozen=True, slots=True)
class Meaning:
    """word: short and stable. status: of HTTP."""

    exit_code: int
    word: str
    status: int


_MEANINGS: Final[tuple[tuple[type[TaskgraphError], Meaning], ...]] = (
    (errors.InvalidGraph, Meaning(INVALID, "invalid-graph", 400)),
    (errors.InvalidSettings, Meaning(INVALID, "invalid-settings", 500)),
    (errors.InvalidInput, Meaning(INVALID, "invalid-input", 400)),
    (errors.TooLarge, Meaning(INVALID, "too-large", 400)),
    (errors.NotFound, Meaning(NOT_FOUND, "not-found", 404)),
    (errors.Conflict, Meaning(CONFLICT, "conflict", 409)),
    (errors.StaleDelivery, Meaning(CONFLICT, "conflict", 409)),
    (errors.OutOfSight, Meaning(CONFLICT, "out-of-sight", 409)),
    (errors.StorageUnavailable, Meaning(UNREACHABLE, "storage-unreachable", 503)),
    (errors.Unclear, Meaning(UNREACHABLE, "storage-unreachable", 503)),
    (errors.StorageError, Meaning(UNREACHABLE, "storage", 503)),
    (errors.IntegrityError, Meaning(BUG, "integrity", 500)),
    (TaskgraphError, Meaning(CONFLICT, "newer-version", 409)),  # a schema or message of a newer program
)
"""The first that fits."""


def meaning(error: TaskgraphError) -> Meaning:
    if isinstance(error, errors.Refused):
        return Meaning(CONFLICT, error.code, 412 if error.code == "changed" else 409)
    return next(each for kind, each in _MEANINGS if isinstance(error, kind))
