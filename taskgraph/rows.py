"""Working copies of rows: what a decision reads and sets before anything is written.

What this room is for: `View` holds the rows of one graph as they were read and collects what a decision sets on them;
`changes` then gives just the differences, each under the etag that was read, so that columns which this version does
not know survive (P23). It never reads a store and never decides anything.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from taskgraph.errors import IntegrityError, TaskgraphError
from taskgraph.model import ids_text, row_key
from taskgraph.storage.tables import Change, Columns, Insert, Merge, Row, Value

SCHEMA_MAX: Final = 1


class NeedRows(Exception):
    """No error: a decision reached for rows that have not been loaded. Never leaves `decide`."""

    def __init__(self, keys: Iterable[str]) -> None:
        super().__init__()
        self.keys = frozenset(keys)


class NewerSchema(TaskgraphError):
    """A row was written by a newer major version: the message is left for a handler that knows it (P23)."""


class Draft:
    """One row with what has been set on it."""

    __slots__ = ("_lists", "changed", "columns", "etag", "key")

    def __init__(self, key: str, columns: Columns, etag: str | None) -> None:
        self.key = key
        self.etag = etag  # None: the row is new
        self.columns = columns
        self.changed: dict[str, Value] = {}
        self._lists: dict[str, list[str]] = {}

    def value(self, name: str) -> Value | None:
        """The column as it stands now, or None."""
        changed = self.changed.get(name)
        return self.columns.get(name) if changed is None else changed

    def text(self, name: str) -> str:
        """A text column, "" where it is missing."""
        value = self.value(name)
        return "" if value is None else str(value)

    def integer(self, name: str) -> int:
        """A whole-number column, 0 where it is missing."""
        value = self.value(name)
        if value is None:
            return 0
        if isinstance(value, bool) or not isinstance(value, int):
            raise IntegrityError(f"row {self.key}: column {name} should hold a whole number and holds {value!r}")
        return value

    def time(self, name: str) -> datetime | None:
        """A time column, None where it is missing."""
        value = self.value(name)
        if value is None or isinstance(value, datetime):
            return value
        raise IntegrityError(f"row {self.key}: column {name} should hold a time and holds {value!r}")

    def ids(self, name: str) -> list[str]:
        """A column that lists references. The list belongs to the draft: use `set_ids` to change it."""
        found = self._lists.get(name)
        if found is None:
            text = self.text(name)
            try:
                found = json.loads(text) if text else []
            except ValueError as error:
                raise IntegrityError(f"row {self.key}: column {name} is no JSON list") from error
            if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
                raise IntegrityError(f"row {self.key}: column {name} is no list of references")
            self._lists[name] = found
        return found

    def set(self, name: str, value: Value) -> None:
        """Set a column."""
        self.changed[name] = value
        self._lists.pop(name, None)

    def set_ids(self, name: str, references: Sequence[str]) -> None:
        """Set a column that lists references."""
        self.changed[name] = ids_text(references)
        self._lists[name] = list(references)

    def restore(self, changed: dict[str, Value]) -> None:
        """Go back to an earlier state of what was set."""
        self.changed = changed
        self._lists.clear()


class View:
    """The loaded rows of one graph, by row key, as working copies."""

    def __init__(self, rows: Mapping[str, Row | None]) -> None:
        self._rows = rows
        self._drafts: dict[str, Draft] = {}

    def knows(self, key: str) -> bool:
        """Whether a row was loaded (even if it does not exist), or is about to be inserted."""
        return key in self._rows or key in self._drafts

    def require(self, keys: Iterable[str]) -> None:
        """Ask for all of these at once, so that they are read together. Raises NeedRows."""
        missing = [key for key in keys if not self.knows(key)]
        if missing:
            raise NeedRows(missing)

    def find(self, key: str) -> Draft | None:
        """The row, or None if it does not exist. Raises NeedRows if it was not loaded."""
        draft = self._drafts.get(key)
        if draft is not None:
            return draft
        if key not in self._rows:
            raise NeedRows((key,))
        row = self._rows[key]
        if row is None:
            return None
        schema = row.columns.get("schema", 1)
        if isinstance(schema, int) and schema > SCHEMA_MAX:
            raise NewerSchema(f"row {key} has schema {schema}; this version of taskgraph knows {SCHEMA_MAX}")
        draft = Draft(key, row.columns, row.etag)
        self._drafts[key] = draft
        return draft

    def get(self, key: str) -> Draft:
        """The row. Raises NeedRows, and IntegrityError if it does not exist: nobody decides on an absence (P2)."""
        draft = self.find(key)
        if draft is None:
            raise IntegrityError(f"row {key} is missing, though another row names it")
        return draft

    def named(self, reference: str) -> Draft:
        """The row that a reference in `requires` or `dependents` points at; see `get`."""
        return self.get(row_key(reference))

    def insert(self, row: Insert) -> Draft:
        """Add a row that does not exist yet; the commit fails if it does."""
        draft = Draft(row.key, {}, None)
        draft.changed = dict(row.columns)
        self._drafts[row.key] = draft
        return draft

    def mark(self) -> dict[str, dict[str, Value]]:
        """A point to which `rollback` can go back."""
        return {key: dict(draft.changed) for key, draft in self._drafts.items() if draft.changed}

    def rollback(self, mark: Mapping[str, dict[str, Value]]) -> None:
        """Forget what was set since the mark."""
        for key, draft in list(self._drafts.items()):
            if draft.etag is None and key not in mark:
                del self._drafts[key]
            elif draft.changed or key in mark:
                draft.restore(dict(mark.get(key, {})))

    def changed(self) -> list[Draft]:
        """The rows that would be written."""
        return [
            draft
            for draft in self._drafts.values()
            if draft.etag is None or any(draft.columns.get(name) != value for name, value in draft.changed.items())
        ]

    def changes(self, operation: str) -> list[Change]:
        """What to commit. Every row carries the id of the operation that wrote it last (P17)."""
        changes: list[Change] = []
        for draft in self.changed():
            if draft.etag is None:
                changes.append(Insert(draft.key, {**draft.changed, "operation": operation}))
            else:
                different = {n: v for n, v in draft.changed.items() if draft.columns.get(n) != v}
                changes.append(Merge(draft.key, draft.etag, {**different, "operation": operation}))
        return changes
