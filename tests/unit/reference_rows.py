"""The plain way of working on rows: what `taskgraph.protocol.rows` and `protocol.decide._fits` must never differ from.

What this room is for: `protocol.rows` keeps a journal and running totals, so that a decision over a full commit costs
as little for its last item as for its first. Here the same is done by copying and by counting anew, which is slow and
easy to believe. tests/unit/test_rows_reference.py holds the two against each other.
"""

import json
from collections.abc import Iterable, Mapping, Sequence, Set
from types import SimpleNamespace
from typing import Any

from taskgraph.model import facts, limits
from taskgraph.model.columns import Columns, Value
from taskgraph.model.errors import IntegrityError
from taskgraph.model.ids import row_key
from taskgraph.model.utf16 import utf16_units
from taskgraph.protocol import decide
from taskgraph.protocol.rows import SCHEMA_MAX, Draft, NeedRows, NewerSchema
from taskgraph.storage.checks import sent_bytes
from taskgraph.storage.tables import Change, Insert, Merge, Replace, Row


class PlainDraft(Draft):
    """One row with what has been set on it; lists are read from their text each time, and written whole."""

    __slots__ = ()

    def __init__(self, key: str, columns: Columns, etag: str | None) -> None:
        super().__init__(key, columns, etag)

    def ids(self, name: str) -> list[str]:
        text = self.text(name)
        try:
            found = json.loads(text) if text else []
        except ValueError as error:
            raise IntegrityError(f"row {self.key}: column {name} is no JSON list") from error
        if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
            raise IntegrityError(f"row {self.key}: column {name} is no list of references")
        return found

    def set(self, name: str, value: Value) -> None:
        self.changed[name] = value

    def alters_just(self, names: Set[str]) -> bool:
        return False  # so that what has changed is always looked for

    def set_ids(self, name: str, references: Sequence[str]) -> None:
        self.changed[name] = json.dumps(list(references), separators=(",", ":"))

    def cross_off(self, name: str, reference: str) -> list[str]:
        found = self.ids(name)
        left = [each for each in found if each != reference]
        if left != found:
            self.set_ids(name, left)
        return left


class PlainView:
    """The loaded rows of one graph; a mark is a copy of everything that was set."""

    def __init__(self, rows: Mapping[str, Row | None]) -> None:
        self.rows = rows
        self.drafts: dict[str, PlainDraft] = {}
        self._absent: dict[str, None] = {}

    def knows(self, key: str) -> bool:
        return key in self.rows or key in self.drafts

    def require(self, keys: Iterable[str]) -> None:
        missing = [key for key in keys if not self.knows(key)]
        if missing:
            raise NeedRows(missing)

    def find(self, key: str) -> PlainDraft | None:
        draft = self.drafts.get(key)
        if draft is not None:
            return draft
        if key not in self.rows:
            raise NeedRows((key,))
        row = self.rows[key]
        if row is None:
            self._absent[key] = None
            return None
        schema = row.columns.get("schema", 1)
        if isinstance(schema, int) and schema > SCHEMA_MAX:
            raise NewerSchema(f"row {key} has schema {schema}; this version of taskgraph knows {SCHEMA_MAX}")
        draft = PlainDraft(key, row.columns, row.etag)
        self.drafts[key] = draft
        return draft

    def get(self, key: str) -> PlainDraft:
        draft = self.find(key)
        if draft is None:
            raise IntegrityError(f"row {key} is missing, though another row names it")
        return draft

    def named(self, reference: str) -> PlainDraft:
        return self.get(row_key(reference))

    def insert(self, row: Insert) -> PlainDraft:
        draft = PlainDraft(row.key, {}, None)
        draft.changed = dict(row.columns)
        self.drafts[row.key] = draft
        return draft

    def clear(self, key: str, names: Iterable[str]) -> None:
        draft = self.get(key)
        draft.changed = {name: value for name, value in draft.changed.items() if name not in names}
        kept = {name: value for name, value in draft.columns.items() if name not in names}
        if kept != draft.columns:
            draft.columns, draft.bare = kept, True

    def mark(self) -> dict[str, tuple[dict[str, Value], Columns, bool]]:
        return {key: (dict(draft.changed), draft.columns, draft.bare) for key, draft in self.drafts.items()}

    def rollback(self, mark: Mapping[str, tuple[dict[str, Value], Columns, bool]]) -> None:
        for key, draft in list(self.drafts.items()):
            if key in mark:
                changed, draft.columns, draft.bare = mark[key]
                draft.changed = dict(changed)
            elif draft.etag is None:
                del self.drafts[key]
            elif (row := self.rows[key]) is not None:
                draft.changed, draft.columns, draft.bare = {}, row.columns, False

    def changed(self) -> list[PlainDraft]:
        return [
            draft
            for draft in self.drafts.values()
            if draft.etag is None
            or draft.bare
            or any(draft.columns.get(name) != value for name, value in draft.changed.items())
        ]

    @property
    def journal(self) -> SimpleNamespace:
        return SimpleNamespace(
            entries=(),
            rows=sum(draft.etag is None or draft.bare or bool(draft.changed) for draft in self.drafts.values()),
        )

    def altered(self, key: str) -> set[str]:
        draft = self.drafts.get(key)
        if draft is None or draft.etag is None:
            return set()
        row = self.rows[key]
        assert row is not None
        left = {**draft.columns, **draft.changed}
        names = {*row.columns, *left} - {"operation"}  # which every commit of a row changes
        return {name for name in names if row.columns.get(name) != left.get(name)}

    def altered_anywhere(self, but: str) -> set[str]:
        return {name for key in self.drafts if not key.startswith(but) for name in self.altered(key)}

    def unchanged(self, first: int, changes: Sequence[Change]) -> list[str]:
        changed = {id(draft) for draft in self.changed()}
        same = [draft.key for draft in list(self.drafts.values())[:first] if id(draft) not in changed]
        return [*same, *(key for key in self._absent if key not in self.drafts)]

    def changes(self, operation: str) -> list[Change]:
        changes: list[Change] = []
        for draft in self.changed():
            if draft.etag is None:
                changes.append(Insert(draft.key, {**draft.changed, "operation": operation}))
            elif draft.bare:
                changes.append(Replace(draft.key, draft.etag, {**draft.written, "operation": operation}))
            else:
                different = {n: v for n, v in draft.changed.items() if draft.columns.get(n) != v}
                changes.append(Merge(draft.key, draft.etag, {**different, "operation": operation}))
        return changes


def plainly_told(context: Any) -> str:
    """The facts, with the columns of each looked for anew when all is decided."""
    for event, key in zip(context.events, context.subjects, strict=True):
        if key == facts.EVERY_ROW or key in context.view.drafts:
            context._name_changes(event, key)
    return json.dumps(context.events, ensure_ascii=False, separators=(",", ":"))


def plainly_fits(view: PlainView, context: Any, event_most: int) -> bool:
    """Whether what was decided fits one commit, counted anew."""
    changed = view.changed()
    if len(changed) + bool(context.events) > limits.COMMIT_CHANGES_MAX:
        return False
    events = json.dumps(context.events, ensure_ascii=False, separators=(",", ":"))
    if context.events and utf16_units(events) > event_most:
        return False
    size = sum(len(value) for draft in changed for value in draft.written.values() if isinstance(value, str))
    if (size + decide.EVENT_CHARS_MAX) * 12 <= limits.COMMIT_BYTES_MAX:
        return True
    size = sum(100 + sent_bytes(draft.written) for draft in changed)
    return size + decide.EVENT_CHARS_MAX * 12 <= limits.COMMIT_BYTES_MAX
