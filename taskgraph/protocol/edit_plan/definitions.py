"""What an edit makes of the definitions, times and budgets of the tasks that it updates."""

import json
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from taskgraph.documents.edit_document import Update
from taskgraph.documents.references import references
from taskgraph.model import facts, priorities, timing
from taskgraph.model.columns import Value, integer
from taskgraph.model.ids import GRAPH, row_key, task_id_of
from taskgraph.model.json_strict import canonical_json
from taskgraph.model.states import INACTIVE, When
from taskgraph.protocol.definitions import (
    DEFINED_COLUMNS,
    SCHEMA_OF_CONDITIONS,
    TIMING_COLUMNS,
    defined_columns,
    definition_row,
    definition_text,
    gathered,
    is_short,
    spread,
    timing_columns,
)
from taskgraph.protocol.edit_plan.names import Names, RefusedError
from taskgraph.protocol.rows import Draft
from taskgraph.storage.tables import Insert, Row

_FOR_WORKER: Final = ("maxRunTime", "retry")  # keys of a node that stand in the definition, too
_DEFINING: Final = frozenset({"task", "deadline", *_FOR_WORKER})


@dataclass(slots=True)
class Writes:
    """Rows that go, rows that come, and columns to set beside those of the tasks themselves."""

    delete: dict[str, None] = field(default_factory=dict)
    inserts: list[Insert] = field(default_factory=list)
    columns: dict[str, dict[str, Value]] = field(default_factory=dict)

    def set(self, key: str, name: str, value: Value) -> None:
        """Set a column of a row."""
        self.columns.setdefault(key, {})[name] = value

    def spread_out(self, row: Row, name: str, text: str) -> None:
        """Write a long text over the columns in which a longer one stood."""
        made = spread(name, text)
        for column in row.columns:
            if column.startswith(name) and column.removeprefix(name).isdecimal() and column not in made:
                self.set(row.key, column, "")
        for column, value in made.items():
            self.set(row.key, column, value)


class Definitions:
    """Definitions of updated tasks. texts: as they will be."""

    def __init__(self, names: Names, touched: dict[str, Row], writes: Writes) -> None:
        self._names = names
        self._touched = touched
        self._writes = writes
        self.texts: dict[str, str] = {}

    def news(self, own: str, update: Update) -> Update:
        """The update with those of its keys alone that say something else than the rows do."""
        columns, keys, node = self._touched[row_key(own)].columns, update.keys, update.node
        timed = timing_columns(node.timing)
        news = {name for name in TIMING_COLUMNS if name in keys and timed.get(name) != columns.get(name)}
        if not keys.isdisjoint(_DEFINING):
            old, told, text = self._redefined(own, update)
            if "task" not in keys:
                news |= {key for key in _FOR_WORKER if key in keys and told.get(key) != old.get(key)}
                if "deadline" in keys and defined_columns(told, "").get("deadline") != columns.get("deadline"):
                    news.add("deadline")
            elif text != self._text(own):
                news |= keys & _DEFINING  # all of it is written anew
        if "when" in keys and str(node.when) != columns.get("when", When.ALL_COMPLETED):
            news.add("when")
        if "reruns" in keys and node.reruns != columns.get("rerunsAllowed"):
            news.add("reruns")
        if "priority" in keys and priorities.column(node.priority) != columns.get(priorities.COLUMN, ""):
            news.add("priority")
        row = Draft("", columns, None)
        if "active" in keys and node.active == (INACTIVE in row.ids("held")):
            news.add("active")
        if "requires" in keys:
            wanted, optional = set(self._names.wanted(update)), self._names.optional(update)
            if wanted != set(self._names.snapshot.required(own)) or optional != set(row.ids("optional")):
                news.add("requires")
        return replace(update, keys=frozenset(news))

    def columns(self, own: str, update: Update) -> tuple[dict[str, Value], list[str]]:
        """Columns of the definition and of time that are others, and those that go."""
        keys, node, row = update.keys, update.node, self._touched[row_key(own)]
        columns: dict[str, Value] = {}
        clear = [name for name in TIMING_COLUMNS if name in keys]
        if "notBefore" in keys and "pauseSeconds" in row.columns:
            clear.append("pauseSeconds")  # it is no pause any more
        if timed := {key: value for key, value in node.timing.items() if key in keys}:
            columns.update(timing_columns(timed))
            columns["schema"] = max(integer(row.columns, "schema"), SCHEMA_OF_CONDITIONS)
        longer = self._touched.get(f"definition:{own}")
        before = self._text(own)
        if keys.isdisjoint(_DEFINING):
            self.texts[own] = before
            return columns, [each for each in clear if each not in columns]
        _, told, text = self._redefined(own, update)
        self.texts[own] = text
        clear.append("refusal")  # a worker may be able to run it now
        defined = defined_columns(told, str(self._names.graph.columns.get(facts.ROUTING, "")))
        columns.update(defined)
        clear += [name for name in DEFINED_COLUMNS if name not in defined]
        deadline, first = defined.get("deadline"), self._names.graph.columns.get("nextDeadline")
        if isinstance(deadline, datetime):
            known = self._writes.columns.get(GRAPH, {}).get("nextDeadline", first)
            self._writes.set(GRAPH, "nextDeadline", min(deadline, known) if isinstance(known, datetime) else deadline)
        if is_short(text):
            columns["task"] = text
            if longer is not None:
                self._writes.delete[longer.key] = None
        else:
            clear.append("task")
            if longer is None:
                self._writes.inserts.append(definition_row(own, update.label, text))
            else:
                self._writes.spread_out(longer, "task", text)
        return columns, [each for each in clear if each not in columns]

    def _text(self, own: str) -> str:
        """The text of a definition as it stands."""
        longer = self._touched.get(f"definition:{own}")
        text = str(self._touched[row_key(own)].columns.get("task", ""))
        return text or (gathered(longer.columns, "task") if longer else "")

    def _redefined(self, own: str, update: Update) -> tuple[dict[str, Any], dict[str, Any], str]:
        """The definition as it stands, as the update says it, and the text of that."""
        keys, node = update.keys, update.node
        try:
            old = json.loads(self._text(own))
        except ValueError as error:
            raise RefusedError(
                f"“{update.label}” has no definition that could be read; see taskgraph doctor"
            ) from error
        told = {**node.task, **{key: old[key] for key in _FOR_WORKER if key in old}} if "task" in keys else dict(old)
        for key in ("deadline", *_FOR_WORKER):
            if key in keys:
                told.pop(key, None)
        if update.deadline and "deadline" in keys:
            told["deadline"] = update.deadline
        told |= timing.for_worker({key: value for key, value in node.timing.items() if key in keys})
        if "task" not in keys:
            return old, told, canonical_json(told)
        for label in sorted(references(node)):
            if task_id_of(self._names.graph_id, label) not in self._names.snapshot.rows:
                raise RefusedError(f"“{update.label}” refers to “{label}”, which is no task of the graph")
        return old, told, definition_text(told, lambda label: task_id_of(self._names.graph_id, label))


def reruns_left(update: Update, row: Row) -> int:
    """Of a budget; what a task that has ended has spent of the one before stays spent."""
    was = Draft(row.key, row.columns, None)
    spent = was.integer("rerunsAllowed") - was.integer("rerunsLeft")
    if spent > update.node.reruns:
        raise RefusedError(f"“{update.label}” has spent {spent} reruns, so its budget cannot be less")
    return update.node.reruns - spent
