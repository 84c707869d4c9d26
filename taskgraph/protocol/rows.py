"""Working copies of rows: what a decision reads and sets before anything is written.

`View.changes` gives just the differences, each under the etag that was read, so that columns which this version does
not know survive (P23).
"""

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence, Set
from datetime import datetime
from typing import Any, Final, TypeVar

from taskgraph.model.columns import Columns, Value
from taskgraph.model.errors import IntegrityError, TaskgraphError
from taskgraph.model.ids import ids_text, row_key
from taskgraph.storage.tables import Change, Delete, Insert, Merge, Replace, Row

T = TypeVar("T", list[Any], dict[str, Any])

SCHEMA_MAX: Final = 4
"""2: rows of a graph that goes on after failures (`conditions`). 3: `tally`. 4: graph rows with `groupPolicies`."""

SEAL: Final = 1_000
"""Added to the schema of a row that is sealed (`protocol.transfer`). Older versions leave such rows alone, too."""

NEW: Final = ""
"""The etag of a row that is decided by, and not there yet: what is set on it is a change, and it is inserted."""

_DECODE: Final = json.JSONDecoder().raw_decode  # json.loads goes through three functions first
_OPERATION: Final = "operation"  # of every row: the id of the commit that wrote it
_BLANKS: Final = " \t\n\r"  # what JSON may have around it


def is_sealed(columns: Columns) -> bool:
    schema = columns.get("schema", 1)
    return isinstance(schema, int) and schema >= SEAL


Mark = tuple[int, int, int, int, int]
"""A point of a view to go back to: lengths of its journal, inserts and removals, and the journal's totals."""


class NeedRows(Exception):
    """No error: a decision reached for rows that have not been loaded. Never leaves `decide`."""

    def __init__(self, keys: Iterable[str]) -> None:
        super().__init__()
        self.keys = frozenset(keys)


class NewerSchema(TaskgraphError):
    """A row was written by a newer major version: the message is left for a handler that knows it (P23)."""


class Journal:
    """What was set on the working copies of one view, in order, and how much of it there is at most.

    rows, chars: of the rows that have something set on them, and of the texts among that. A row on which only its old
    values were set counts too, although it is not written: near a limit, the exact number is counted.
    """

    __slots__ = ("chars", "entries", "rows")

    def __init__(self) -> None:
        # What is set on a copy, the column, and what it held; None: it was not set before. Not the copy itself: each
        # holds this journal, and what lies in a circle stays until garbage is looked for, by then in cold memory.
        self.entries: list[tuple[dict[str, Value], str, Value | None]] = []
        self.rows = 0
        self.chars = 0


class Draft:
    """One row with what has been set on it.

    etag: None for a row that the decision inserts; NEW for one that it is to insert with what is set on it.
    gone: the row is to be deleted. bare: columns have been taken off it, so that it is written as a whole.
    """

    __slots__ = ("_journal", "_lists", "bare", "changed", "columns", "etag", "gone", "key")

    def __init__(self, key: str, columns: Columns, etag: str | None, journal: Journal | None = None) -> None:
        self.key = key
        self.etag = etag
        self.columns = columns
        self.gone = self.bare = False
        self.changed: dict[str, Value] = {}
        self._journal = Journal() if journal is None else journal
        # Lists by column: the very text that each was read from or became, the list, and whether `ids_text` wrote it.
        self._lists: dict[str, tuple[str, list[str], bool]] = {}

    @property
    def written(self) -> Columns:
        return {**self.columns, **self.changed} if self.bare or self.etag == NEW else self.changed

    def value(self, name: str) -> Value | None:
        changed = self.changed.get(name)
        return self.columns.get(name) if changed is None else changed

    def text(self, name: str) -> str:
        """A text column, "" where it is missing."""
        value = self.changed.get(name)
        if value is None:
            value = self.columns.get(name)
        if type(value) is str:
            return value
        return "" if value is None else str(value)

    def integer(self, name: str) -> int:
        """A whole-number column, 0 where it is missing. Raises IntegrityError."""
        value = self.value(name)
        if type(value) is int:
            return value
        if value is None:
            return 0
        if isinstance(value, bool) or not isinstance(value, int):
            raise IntegrityError(f"row {self.key}: column {name} should hold a whole number and holds {value!r}")
        return value

    def time(self, name: str) -> datetime | None:
        """A time column, None where it is missing. Raises IntegrityError."""
        value = self.value(name)
        if value is None or isinstance(value, datetime):
            return value
        raise IntegrityError(f"row {self.key}: column {name} should hold a time and holds {value!r}")

    def read_json(self, name: str, kind: type[T]) -> T:
        """A column that holds a JSON list or object, empty where it is missing. Raises IntegrityError."""
        text = self.text(name)
        try:
            found = json.loads(text) if text else kind()
        except ValueError as error:
            raise IntegrityError(f"row {self.key}: column {name} is no JSON") from error
        if not isinstance(found, kind):
            raise IntegrityError(f"row {self.key}: column {name} is no JSON {'list' if kind is list else 'object'}")
        return found

    def ids(self, name: str) -> list[str]:
        """A column that lists references. The list belongs to the draft: change it with `set_ids`."""
        return self._list(name)[1]

    def _list(self, name: str) -> tuple[str, list[str], bool]:
        known = self._lists.get(name)
        text = self.text(name)
        if known is not None and known[0] is text:
            return known
        bare = text.strip(_BLANKS)
        try:
            found, end = _DECODE(bare) if text else ([], 0)
        except ValueError as error:
            raise IntegrityError(f"row {self.key}: column {name} is no JSON list") from error
        if end != len(bare):
            raise IntegrityError(f"row {self.key}: column {name} is no JSON list")
        try:
            if not isinstance(found, list):
                raise TypeError
            "".join(found)  # which takes texts alone, and looks at each in a fraction of the time
        except TypeError as error:
            raise IntegrityError(f"row {self.key}: column {name} is no list of references") from error
        read = self._lists[name] = (text, found, False)
        return read

    def set(self, name: str, value: Value) -> None:
        changed, journal = self.changed, self._journal
        before = changed.get(name)
        journal.entries.append((changed, name, before))
        if not changed:
            journal.rows += 1
        if isinstance(value, str):
            journal.chars += len(value)
        if before is not None and isinstance(before, str):
            journal.chars -= len(before)
        changed[name] = value

    def confirm(self) -> None:
        """Write the row though nothing of it changes, so that the commit fails if it has changed."""
        self.set(_OPERATION, "")

    def alters_just(self, names: Set[str]) -> bool:
        """Whether exactly these columns differ from what was read; False may also mean that it is not clear."""
        if self.gone or self.bare or self.etag is None:
            return False
        return self.changed.keys() == names and self.changed.items().isdisjoint(self.columns.items())

    def set_ids(self, name: str, references: Sequence[str]) -> None:
        text = ids_text(references)
        self.set(name, text)
        self._lists[name] = (text, list(references), True)

    def cross_off(self, name: str, reference: str) -> list[str]:
        """Remove a reference from a column that lists some; gives those left."""
        text, found, compact = self._list(name)
        if reference not in found:
            return found
        place = found.index(reference)
        left = found[:place] + found[place + 1 :]
        if reference in left:  # no version writes one twice
            left = [each for each in left if each != reference]
            text = ids_text(left)
        elif not compact or not left or "\\" in text or reference == ",":
            text = ids_text(left)
        elif place == 0:  # a long list grows shorter by one for each of a commit's items, so it is not written anew
            text = "[" + text[len(reference) + 4 :]
        else:
            text = text.replace(f',"{reference}"', "", 1)
        self.set(name, text)
        self._lists[name] = (text, left, True)
        return left


class View:
    """The loaded rows of one graph, by row key, as working copies.

    rows: as they were loaded. drafts: those that this decision has read or inserted. journal.rows and journal.chars are
    never less than what would be written.
    """

    def __init__(self, rows: Mapping[str, Row | None]) -> None:
        self.rows = rows
        self.drafts: dict[str, Draft] = {}
        self.journal = Journal()
        self._inserted: list[tuple[str, Draft | None]] = []  # with what stood at its key, if anything did
        self._taken: list[tuple[Draft, Columns | None]] = []  # rows to delete; rows that lost columns, as they were
        self._absent: dict[str, None] = {}  # keys of rows that were looked for and do not exist

    def knows(self, key: str) -> bool:
        """Whether a row was loaded (even if it does not exist), or is about to be inserted."""
        return key in self.rows or key in self.drafts

    def require(self, keys: Iterable[str]) -> None:
        """Raises NeedRows with all keys that are not loaded, so that they are read together."""
        rows, drafts = self.rows, self.drafts
        missing = [key for key in keys if key not in rows and key not in drafts]
        if missing:
            raise NeedRows(missing)

    def find(self, key: str) -> Draft | None:
        """The row, or None if it does not exist. Raises NeedRows if it was not loaded."""
        draft = self.drafts.get(key)
        if draft is not None:
            return None if draft.gone else draft
        if key not in self.rows:
            raise NeedRows((key,))
        row = self.rows[key]
        if row is None:
            self._absent[key] = None
            return None
        schema = row.columns.get("schema", 1)
        if isinstance(schema, int) and schema > SCHEMA_MAX:
            raise NewerSchema(f"row {key} has schema {schema}; this version of taskgraph knows {SCHEMA_MAX}")
        draft = Draft(key, row.columns, row.etag, self.journal)
        self.drafts[key] = draft
        return draft

    def get(self, key: str) -> Draft:
        """The row. Raises NeedRows, and IntegrityError if it does not exist: no decision rests on an absence (P2)."""
        draft = self.find(key)
        if draft is None:
            raise IntegrityError(f"row {key} is missing, though another row names it")
        return draft

    def glimpse(self, key: str) -> Draft | None:
        """The row as it stands, for a look that no decision rests on: it may be old, and counts as not read.

        Raises NeedRows if it was not loaded.
        """
        draft = self.drafts.get(key)
        if draft is not None:
            return draft
        if key not in self.rows:
            raise NeedRows((key,))
        row = self.rows[key]
        return None if row is None else Draft(key, row.columns, row.etag)

    def named(self, reference: str) -> Draft:
        """The row of a reference in `requires` or `dependents`; see `get`."""
        key = row_key(reference)
        draft = self.drafts.get(key)
        return self.get(key) if draft is None or draft.gone else draft

    def insert(self, row: Insert) -> Draft:
        """Add a row that does not exist yet; the commit fails if it does."""
        journal = self.journal
        draft = Draft(row.key, {}, None, journal)
        draft.changed = dict(row.columns)
        self._inserted.append((row.key, self.drafts.get(row.key)))
        self.drafts[row.key] = draft
        journal.rows += 1
        journal.chars += sum(len(value) for value in row.columns.values() if isinstance(value, str))
        return draft

    def delete(self, key: str) -> None:
        """Delete a row, under the etag with which it was read; `find` gives None from now on."""
        draft = self.get(key)
        draft.gone = True
        self._taken.append((draft, None))
        self.journal.rows += 1

    def clear(self, key: str, names: Iterable[str]) -> None:
        """Remove columns from a row, which is written as a whole then, with columns that this version does not know."""
        draft = self.get(key)
        names = frozenset(names)
        for name in sorted(names.intersection(draft.changed)):  # set by an item before, of this commit
            self.journal.entries.append((draft.changed, name, draft.changed.pop(name)))
        kept = {name: value for name, value in draft.columns.items() if name not in names}
        if len(kept) == len(draft.columns):
            return
        self._taken.append((draft, draft.columns))
        draft.columns = kept
        if not draft.bare:
            draft.bare = True
            self.journal.rows += 1
            self.journal.chars += sum(len(value) for value in kept.values() if isinstance(value, str))

    def mark(self) -> Mark:
        journal = self.journal
        return len(journal.entries), len(self._inserted), len(self._taken), journal.rows, journal.chars

    def rollback(self, mark: Mark) -> None:
        journal, inserted = self.journal, self._inserted
        entries, inserts, taken, journal.rows, journal.chars = mark
        while len(self._taken) > taken:
            draft, columns = self._taken.pop()
            if columns is None:
                draft.gone = False
            else:
                draft.columns = columns
                draft.bare = any(each is draft and whole is not None for each, whole in self._taken)
        while len(journal.entries) > entries:
            changed, name, before = journal.entries.pop()
            if before is None:
                del changed[name]
            else:
                changed[name] = before
        while len(inserted) > inserts:
            key, replaced = inserted.pop()
            if replaced is None:
                del self.drafts[key]
            else:
                self.drafts[key] = replaced

    def changed(self) -> list[Draft]:
        return [draft for draft in self.drafts.values() if _differs(draft)]

    def changes(self, operation: str) -> list[Change]:
        """What to commit. Every row carries the id of the operation that wrote it last (P17)."""
        changes: list[Change] = []
        for draft in self.drafts.values():
            if not draft.etag:  # it is not there yet
                changes.append(Insert(draft.key, {**draft.columns, **draft.changed, "operation": operation}))
                continue
            if draft.gone:
                changes.append(Delete(draft.key, draft.etag))
                continue
            if draft.bare:
                whole = {**draft.columns, **draft.changed, "operation": operation}
                changes.append(Replace(draft.key, draft.etag, whole))
                continue
            changed = draft.changed
            if not changed:
                continue
            if not changed.items().isdisjoint(draft.columns.items()):  # some of it stands there already
                get = draft.columns.get
                changed = {name: value for name, value in changed.items() if get(name) != value}
                if not changed:
                    continue
            changes.append(Merge(draft.key, draft.etag, {**changed, "operation": operation}))
        return changes

    def altered(self, key: str) -> set[str]:
        """Columns of a row that differ from what was read, or are gone; none of a row that is new or deleted."""
        draft = self.drafts.get(key)
        if draft is None or draft.gone or draft.etag is None:
            return set()
        read = draft.columns.get
        names = {name for name, value in draft.changed.items() if read(name) != value and name != _OPERATION}
        if draft.bare and (row := self.rows.get(key)) is not None:
            was = row.columns
            names = {name for name in names if was.get(name) != draft.changed[name]}
            names |= was.keys() - draft.columns.keys() - draft.changed.keys()
        return names

    def altered_anywhere(self, but: str) -> set[str]:
        """The same of all rows whose keys do not begin with `but`."""
        return {name for key in self.drafts if not key.startswith(but) for name in self.altered(key)}

    def unchanged(self, first: int, changes: Sequence[Change]) -> list[str]:
        """Keys of those of the `first` rows read that `changes` does not write, and of all that do not exist."""
        drafts = self.drafts
        if len(changes) == len(drafts) and not self._absent:  # each is written, nearly always
            return []
        written = {change.key for change in changes}
        same = [key for key in itertools.islice(drafts, first) if key not in written]
        return same + [key for key in self._absent if key not in drafts]


def _differs(draft: Draft) -> bool:
    if not draft.etag or draft.gone or draft.bare:
        return True
    read = draft.columns.get
    for name, value in draft.changed.items():  # noqa: SIM110  (asked of each row twice a commit: a generator is dear)
        if read(name) != value:
            return True
    return False
