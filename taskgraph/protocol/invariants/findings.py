"""What an examination finds, as values: what is wrong in words, how much it matters, and the repair that is certain."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from taskgraph.model.columns import Value
from taskgraph.protocol.decide import Item
from taskgraph.storage.tables import Change, Insert, Merge

GAP_ROWS_MAX: Final = 90
"""Event rows missing in one place that are put back as empty ones, in one commit."""

NAMED_MAX: Final = 5
"""Labels named in one sentence; the rest is counted."""


class Severity(StrEnum):
    """How much a finding matters."""

    WRONG = "wrong"  # an invariant does not hold
    DUE = "due"  # a legal step that nobody has taken yet: the sweep does
    NOTE = "note"  # worth knowing


@dataclass(frozen=True, slots=True)
class Patch:
    """Columns to set, in one commit that holds only if none of the rows below `etags` has changed.

    columns: row key -> columns. etags: of these rows, and of rows that the repair rests on. facts: for the journal.
    dispatch: (taskId, run, target) of tasks that it makes ready. revive: the graph needs sweeping again.
    """

    columns: Mapping[str, Mapping[str, Value]]
    etags: Mapping[str, str]
    inserts: tuple[Insert, ...] = ()
    facts: tuple[Mapping[str, Any], ...] = ()
    dispatch: tuple[tuple[str, int, str], ...] = ()
    revive: bool = False

    def changes(self, operation: str) -> list[Change]:
        """What to commit. A row that is only rested on is written too: that is what its etag is compared for."""
        changes: list[Change] = [
            Merge(key, etag, {**self.columns.get(key, {}), "operation": operation}) for key, etag in self.etags.items()
        ]
        changes.extend(Insert(row.key, {**row.columns, "operation": operation}) for row in self.inserts)
        return changes


@dataclass(frozen=True, slots=True)
class Retell:
    """Items that a handler would be given: deciding them again does what was left undone."""

    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Resend:
    """The message of an extension, that a handler may bring it in."""

    request: str


@dataclass(frozen=True, slots=True)
class Reindex:
    """The graph's place in an index outside its partition: of live graphs, or (listed) in the list of all."""

    listed: bool


@dataclass(frozen=True, slots=True)
class SetTime:
    """A time outside of all graphs, set anew: of a row, or, without a partition, of the messages of a queue."""

    partition: str
    key: str
    etag: str
    columns: Mapping[str, Value]


Repair = Patch | Retell | Resend | Reindex | SetTime


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be.

    code: a short stable word. key: the row. label: of the task, or what the row is. detail: tells findings of one code
    and row apart. text: what is wrong. effect: why it matters. remedy: what to do. keys: all rows that it rests on.
    repair: what mends it for certain, or None; refusal: why there is none. whole: it rests on a reading of all rows
    during which the graph row did not change.
    """

    code: str
    key: str
    label: str
    severity: Severity
    text: str
    effect: str
    remedy: str
    keys: frozenset[str] = frozenset()
    repair: Repair | None = None
    refusal: str = ""
    detail: str = ""
    whole: bool = False

    @property
    def repairable(self) -> bool:
        """Whether it can be mended for certain."""
        return self.repair is not None

    @property
    def identity(self) -> tuple[str, str, str]:
        """The same for the same finding in another reading."""
        return self.code, self.key, self.detail


def have(things: Sequence[object]) -> str:
    """The verb for some things."""
    return "has" if len(things) == 1 else "have"


def tasks_are(number: int) -> str:
    """A number of tasks, with its verb."""
    return f"{number:,} task{' is' if number == 1 else 's are'}"
