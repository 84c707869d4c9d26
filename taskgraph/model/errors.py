"""The errors of taskgraph, in one tree, and what each means at a door.

Every error that crosses a module border is one of these. Adapters translate the errors of their libraries at their
own border and keep the cause; no code above them catches an SDK error.

    TaskgraphError
    ├── InvalidInput              the sender          exit 2   never retried
    │   ├── InvalidGraph          a document          exit 2   carries every problem found
    │   ├── InvalidMessage        a queue message     poison at once
    │   └── InvalidSettings       options, variables  exit 2
    ├── NotFound                  the asker           exit 3   a message for it is left for redelivery
    │   ├── NoGraph               the whole graph
    │   └── DeletedGraph          its tombstone is left
    ├── Refused                   the state           exit 4   a rule of the graph's life forbids it (HTTP 409)
    ├── StorageError
    │   ├── Conflict              someone wrote first          read again, decide again
    │   ├── Unclear               perhaps written              settled by reading (P17)
    │   ├── StaleDelivery         the lease of a message moved on
    │   ├── TooLarge              a row, batch or message      a limit of the store
    │   ├── OutOfSight            the way in                   what needs it is left out
    │   └── StorageUnavailable    the cloud           exit 5   never acknowledged, never poison
    └── IntegrityError            rows that contradict each other, or a bug: loud, left for redelivery, ends as poison
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_PLACES_MAX: Final = 12


class Trail(str):
    """Where an error broke, as a text of its own class, by which a listener to a log knows a bug."""

    __slots__ = ()


def trail(error: BaseException) -> Trail:
    """The class and the places of an error, for a log: without its text, which may quote what a task was given."""
    found = error.__traceback__
    places: list[str] = []
    while found is not None:
        code = found.tb_frame.f_code
        places.append(f"{code.co_qualname} ({code.co_filename.rpartition('/')[2]}:{found.tb_lineno})")
        found = found.tb_next
    return Trail(" < ".join([type(error).__name__, *reversed(places[-_PLACES_MAX:])]))


class TaskgraphError(Exception):
    """Base of every error that taskgraph raises on purpose. Its text is one sentence for a person."""


class InvalidInput(TaskgraphError):
    """What was handed in is wrong; nothing has been written."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a document.

    pointer: JSON pointer (RFC 6901) of the place, "" for the whole document.
    code: a short stable word, such as `unknown-label`.
    message: what is wrong, one sentence.
    remedy: what to do about it, one sentence.
    line: line in the source text, counted from 1, where it is known.
    source: the file, where it is one that the document includes.
    """

    pointer: str
    code: str
    message: str
    remedy: str
    line: int | None = None
    source: str | None = None


class InvalidGraph(InvalidInput):
    """A document that is no task graph. Carries all problems at once."""

    def __init__(self, problems: Sequence[Problem], source: str = "document") -> None:
        self.problems = tuple(problems)
        self.source = source
        count = len(self.problems)
        super().__init__(f"{source}: {count} problem{'s' if count != 1 else ''}")


class InvalidMessage(InvalidInput):
    """A queue message that cannot be understood; it goes to poison at once."""


class InvalidSettings(InvalidInput):
    """An option or an environment variable that makes no sense."""


class NotFound(TaskgraphError):
    """A graph, task or label that does not exist. `near` holds the nearest names that do."""

    def __init__(self, message: str, near: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.near = tuple(near)


class NoGraph(NotFound):
    """There is no graph of this id, and no tombstone of one. store: the place that was looked at, without a key."""

    def __init__(self, graph_id: str, near: Sequence[str] = (), *, store: str = "") -> None:
        super().__init__(f"there is no graph {graph_id}" + (f" in {store}" if store else ""), near)
        self.graph_id = graph_id


class DeletedGraph(NotFound):
    """Nothing but a tombstone is left of this graph. successor: the graph for which its id stands now, "" for none."""

    def __init__(self, message: str, graph_id: str, successor: str = "") -> None:
        super().__init__(message)
        self.graph_id = graph_id
        self.successor = successor


class Refused(TaskgraphError):
    """The request is well formed, and the state of the graph forbids it. `code` is a short stable word."""

    def __init__(self, message: str, code: str = "conflict") -> None:
        super().__init__(message)
        self.code = code


class StorageError(TaskgraphError):
    """Base of what a storage adapter raises."""


class Conflict(StorageError):
    """A condition of a commit did not hold; nothing was written. index: of the change that failed, if known."""

    def __init__(self, message: str, index: int | None = None) -> None:
        super().__init__(message)
        self.index = index


class Unclear(StorageError):
    """The answer to a write was lost: it may have been applied. Only reading settles it."""


class StaleDelivery(StorageError):
    """The message was leased again by someone else, or deleted: this delivery owns it no more."""


class TooLarge(StorageError):
    """A property, row, batch or message is past a limit of the store. Nothing was written."""


class OutOfSight(StorageError):
    """A partition or a queue that the way in, a link to one graph or an archive, does not show."""


class StorageUnavailable(StorageError):
    """The store did not answer, or refused service. `endpoint` names it, and never carries a key."""

    def __init__(self, message: str, endpoint: str = "") -> None:
        super().__init__(message)
        self.endpoint = endpoint


class IntegrityError(TaskgraphError):
    """Rows that cannot be true together, or a transition that must not exist."""
