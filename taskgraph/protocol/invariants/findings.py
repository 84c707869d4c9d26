"""What an examination finds, as values; the table of all kinds of findings; the repairs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from taskgraph.model.columns import Value
from taskgraph.model.timing import DEADLINE_EXCEEDED, PENDING_TIMEOUT
from taskgraph.protocol.decide import Item
from taskgraph.storage.tables import Change, Insert, Merge

GAP_ROWS_MAX: Final = 90
"""Event rows missing in one place that are put back as empty ones, in one commit."""

NAMED_MAX: Final = 5
"""Labels named in one sentence; the rest is counted."""


class Severity(StrEnum):
    WRONG = "wrong"  # an invariant does not hold
    DUE = "due"  # a legal step that has not been taken yet: the sweep takes it
    NOTE = "note"  # worth knowing


@dataclass(frozen=True, slots=True)
class Patch:
    """Columns to set, in one commit that holds only if none of the rows below `etags` has changed.

    columns: row key -> columns. etags: of these rows, and of rows that the repair rests on. facts: for the journal.
    ready: (taskId, run, target) of a task that it makes ready. revive: the graph needs sweeping again.
    """

    columns: Mapping[str, Mapping[str, Value]]
    etags: Mapping[str, str]
    inserts: tuple[Insert, ...] = ()
    facts: tuple[Mapping[str, Any], ...] = ()
    ready: tuple[str, int, str] | None = None
    revive: bool = False

    def changes(self, operation: str) -> list[Change]:
        """What to commit. A row that is only rested on is written too, so that its etag is compared."""
        changes: list[Change] = [
            Merge(key, etag, {**self.columns.get(key, {}), "operation": operation}) for key, etag in self.etags.items()
        ]
        changes.extend(Insert(row.key, {**row.columns, "operation": operation}) for row in self.inserts)
        return changes


@dataclass(frozen=True, slots=True)
class Redo:
    """Items for a handler: deciding them again does what was left undone."""

    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Resend:
    """The message of an extension, so that a handler brings it in."""

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


Repair = Patch | Redo | Resend | Reindex | SetTime


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be.

    code: a short stable word. key: the row. label: of the task, or what the row is. detail: distinguishes findings of
    one code and row. text: what is wrong. effect: why it matters. remedy: what to do. keys: all rows that it rests on.
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
        return self.repair is not None

    @property
    def identity(self) -> tuple[str, str, str]:
        """The same for the same finding in another reading."""
        return self.code, self.key, self.detail


@dataclass(frozen=True, slots=True)
class Kind:
    """What all findings of one kind share. `{graph}` in a remedy stands for the graph's id."""

    effect: str
    refusal: str = ""
    remedy: str = ""
    severity: Severity = Severity.WRONG
    whole: bool = False


_SWEEP: Final = "run `taskgraph serve`, which sweeps"
_CLOCKS: Final = "put the clocks of the machines right; "
_BEGUN: Final = "it has begun already, and what a run has done cannot be taken back"
_EDGES_UNSURE: Final = "the edges that the rows name are not those that the graph counts"
_UNKNOWN_ROW: Final = "no other row says for certain what the row held"
_NUMBERS: Final = "any of these numbers may be the wrong one"
_RUNS: Final = "taskgraph events {graph} shows its runs"
_NO_OTHER_EXTENSION: Final = "no other extension can begin"
_FEWER: Final = "fewer tasks begin than the limit allows"
_NOT_TRUE: Final = "what was reported of it is not true"
_REPAIR: Final = "taskgraph doctor {graph} --repair"
_DELETE: Final = "run taskgraph delete {graph}, or `taskgraph serve`, which sweeps"


def _due(effect: str, remedy: str = _SWEEP, refusal: str = "") -> Kind:
    return Kind(effect, refusal, remedy, Severity.DUE)


_OVERDUE: Final = _due("it is to be resolved as an exception")

KINDS: Final[Mapping[str, Kind]] = {
    # columns and schemas
    "newer-schema": Kind(
        "a program that does not know a schema cannot judge rows of it",
        "the rows belong to a newer version",
        "use a newer version of taskgraph",
    ),
    "bad-column": Kind("what reads the row next gives up on it", "what it held is written nowhere else"),
    # edges, and what each row still waits for
    "missing-row": Kind("what completes this one, or waits for that one, cannot go on", _UNKNOWN_ROW),
    "dependent-missing": Kind("it does not learn when that completes, and waits for ever", _EDGES_UNSURE),
    "requirement-missing": Kind("it would go on before that has completed", _EDGES_UNSURE),
    "no-dependents": Kind("the graph could finish without it", _EDGES_UNSURE, whole=True),
    "degree": Kind(
        "a completion may not fit one commit any more", "rows that work on it now would have to be moved under relays"
    ),
    "left-over": Kind("it waits for ever: that is not counted off again"),
    "left-over:request": Kind("it never finishes"),
    "left-unknown": Kind("it waits for ever", _EDGES_UNSURE),
    "requirement-forgotten": Kind("it would go on too early"),
    "too-early": Kind("it runs on what is not there yet", _BEGUN),
    "asleep": Kind("it never runs: no message makes it ready again"),
    "asleep:skip": Kind("it is never resolved"),
    "skip-due": _due("what waits for it waits until it is skipped"),
    "relay-ready": _due("what waits behind it goes on once a handler fires it", ""),
    "recall-due": _due("the graph does not end, and nothing that was reset begins, until that is done"),
    "recall-due:ready": _due("it does not begin until a handler goes on"),
    "recall-count": Kind("the graph may end too early, or never", whole=True),
    # conditions
    "skipped-ran": Kind(_NOT_TRUE, "a task that ran is never skipped, and what a run has done cannot be taken back"),
    "skipped-wrong": Kind("it never runs", "skipped is final, and its dependents have counted it off"),
    "condition": Kind("it runs where it should have been skipped", _BEGUN),
    "unheard": Kind("it may run where it should be skipped, or the other way round", "no row says what the cause was"),
    # groups that need k of n
    "miscounted": Kind("the group is decided too early, otherwise than it should be, or never"),
    "decision": Kind(
        "what requires the group goes on too early, wrongly, or never", "what has gone on from it cannot be taken back"
    ),
    # tasks
    "strange-id": Kind("it is not found by its label", "either its label or its key is wrong"),
    "missing-row:definition": Kind("no worker can run it", "the definition is written nowhere else"),
    DEADLINE_EXCEEDED: _OVERDUE,
    PENDING_TIMEOUT: _OVERDUE,
    "clock-off": _due(
        "what waits for such a time goes by now instead, and that costs its length once",
        f"{_CLOCKS}`taskgraph serve` sets the row right",
    ),
    "no-lease": Kind("if its worker dies, no other takes it over"),
    "lease-ended": _due("it stands still until a handler gives the run up"),
    "held-back": Kind("no resume lets it go on"),
    "temporary-budget": Kind("it may be tried too often, or not often enough", _NUMBERS, _RUNS),
    "budget": Kind("it may run too often, or not often enough", _NUMBERS, _RUNS),
    # the graph
    "missing-row:graph": Kind(
        "no handler can do anything for this graph", "its state and counts are written nowhere else"
    ),
    "no-budget": Kind("it may cost any amount", "what it may cost is written nowhere else"),
    "clock-off:channel": _due("it is taken for over", f"{_CLOCKS}{_REPAIR}"),
    "cancelled-early": Kind(_NOT_TRUE, "cancelled is final, and has been reported"),
    "cancel-due": _due(
        "it is not cancelled until a handler goes on", refusal="the graph changed while it was looked at"
    ),
    "finished-early": Kind(_NOT_TRUE, "finished is final, and has been reported"),
    "unfinished": Kind("it never finishes"),
    "failed-count": Kind("it stays blocked after all reruns, or finishes too early", whole=True),
    "group-policies": Kind("what is skipped may stand still, and older versions may decide about it", whole=True),
    "graph-state": Kind("it takes extensions when it must not, or does not when it could", whole=True),
    "skipped-count": Kind("what is shown of its end is wrong", whole=True),
    "task-count": Kind("what is shown of its progress is wrong", "rows of tasks may be gone", whole=True),
    "edge-count": Kind("a task may begin too early, or never", "no row says which requirement is gone", whole=True),
    "deletion-open": _due("nothing is decided about it any more", _DELETE),
    "deletion-open:beside": _due("they go with the tombstone at the latest", _DELETE),
    "transfer-open": _due(
        "nothing is decided about it here", "taskgraph transfer {graph} --to … goes on (--stay takes it back)"
    ),
    "transfer-open:comes": _due(
        "nothing is decided about it here", "where it comes from, taskgraph transfer {graph} --to … goes on"
    ),
    "transfer-open:left": _due("nothing is decided about them any more", "run `taskgraph serve`, which sweeps"),
    "journal": Kind("the journal is out of order", "no row says when it happened"),
    "journal-gap": Kind(
        "what happened then is lost, and new events may be numbered before old ones", "too many are gone at once"
    ),
    # extensions and edits
    "missing-row:document": Kind("it can never be brought in", "the document is written nowhere else"),
    "missing-row:request": Kind(_NO_OTHER_EXTENSION, "no row says how far it came"),
    "extending": Kind(_NO_OTHER_EXTENSION, "no row says whether its tasks are counted"),
    "extending:unnamed": Kind("another one may begin before it is done"),
    "extension-open": _due("its tasks wait for a handler", "run `taskgraph serve`, which handles and sweeps"),
    # groups and limits
    "group-count": Kind("an extension that requires one of them may be refused", whole=True),
    "missing-row:group": Kind(
        "the group cannot be looked at, or acted on as one",
        "it had more tasks than fit one row, or the graph changed meanwhile",
        whole=True,
    ),
    "missing-row:member": Kind("what is done to the group cannot be done to that task", _UNKNOWN_ROW),
    "group-members": Kind("what is done to the group passes them by", "its tasks are more than fit one column"),
    "group-members:task": Kind("people do not see that it is"),
    "missing-limit": Kind("none of these tasks can be claimed", "how many may be in flight is written nowhere else"),
    "not-counted": Kind("more may begin than the limit allows"),
    "not-limited": Kind("it may begin beyond the limit"),
    "counts-what-is-over": _due(_FEWER, ""),
    "counts-nothing": Kind(_FEWER, whole=True),
    "over-limit": Kind(
        "nothing, if it was lowered while they ran",
        remedy="wait: no more begin until there is room",
        severity=Severity.NOTE,
    ),
    # outside of the graph's rows
    "not-live": Kind("the sweep does not look at it, so lost messages and dead workers are not made up for"),
    "not-live:ended": _due("the sweep looks at it in vain"),
    "not-listed": Kind("`taskgraph list` does not show it"),
    "poison": Kind(
        "what it asked for may not have happened", "no row says whether the cause is mended", severity=Severity.NOTE
    ),
}
"""Kinds of findings by name: their code and, behind a colon, what distinguishes kinds of one code."""


def finding(
    name: str,
    graph_id: str,
    key: str,
    label: str,
    text: str,
    *,
    keys: Iterable[str] = (),
    repair: Repair | None = None,
    refusal: str = "",
    remedy: str = "",
    detail: str = "",
    whole: bool = False,
) -> Finding:
    """A finding of a kind. Refusal and remedy are those of the kind, or a usual one, unless they are given."""
    kind = KINDS[name]
    usual = _REPAIR if repair is not None else "submit the graph again under another id"
    return Finding(
        name.partition(":")[0],
        key,
        label,
        kind.severity,
        text,
        kind.effect,
        (remedy or kind.remedy or usual).replace("{graph}", graph_id),
        frozenset(keys),
        repair,
        "" if repair is not None else refusal or kind.refusal,
        detail,
        whole or kind.whole,
    )


def have(things: Sequence[object]) -> str:
    return "has" if len(things) == 1 else "have"


def tasks_are(number: int) -> str:
    """A number of tasks, with its verb."""
    return f"{number:,} task{' is' if number == 1 else 's are'}"
