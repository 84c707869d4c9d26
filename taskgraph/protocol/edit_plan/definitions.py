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
        """The update with only those of its keys that differ from the rows."""
        columns, keys, node = self._touched[row_key(own)].columns, update.keys, update.node
        row = Draft("", columns, None)
        timed = timing_columns(node.timing)
        values: dict[str, tuple[object, object]] = {  # as they are to be, and as they are
            **{name: (timed.get(name), columns.get(name)) for name in TIMING_COLUMNS},
            "when": (str(node.when), columns.get("when", When.ALL_COMPLETED)),
            "reruns": (node.reruns, columns.get("rerunsAllowed")),
            "priority": (priorities.column(node.priority), columns.get(priorities.COLUMN, "")),
            "active": (node.active, INACTIVE not in row.ids("held")),
        }
        news = {name for name, (wanted, known) in values.items() if name in keys and wanted != known}
        if not keys.isdisjoint(_DEFINING):
            old, new, text = self._redefined(own, update)
            if "task" not in keys:
                news |= {key for key in _FOR_WORKER if key in keys and new.get(key) != old.get(key)}
                if "deadline" in keys and defined_columns(new, "").get("deadline") != columns.get("deadline"):
                    news.add("deadline")
            elif text != self._text(own):
                news |= keys & _DEFINING  # all of it is written anew
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
        if keys.isdisjoint(_DEFINING):
            self.texts[own] = self._text(own)
        else:
            self._define(own, update, columns, clear)
        return columns, [each for each in clear if each not in columns]

    def _define(self, own: str, update: Update, columns: dict[str, Value], clear: list[str]) -> None:
        """Write a definition anew, on the row of the task or on one of its own."""
        _, new, text = self._redefined(own, update)
        self.texts[own] = text
        clear.append("refusal")  # a worker may be able to run it now
        graph = self._names.graph.columns
        defined = defined_columns(new, str(graph.get(facts.ROUTING, "")))
        columns.update(defined)
        clear += [name for name in DEFINED_COLUMNS if name not in defined]
        deadline = defined.get("deadline")
        if isinstance(deadline, datetime):
            known = self._writes.columns.get(GRAPH, {}).get("nextDeadline", graph.get("nextDeadline"))
            self._writes.set(GRAPH, "nextDeadline", min(deadline, known) if isinstance(known, datetime) else deadline)
        longer = self._touched.get(f"definition:{own}")
        if is_short(text):
            columns["task"] = text
            if longer is not None:
                self._writes.delete[longer.key] = None
            return
        clear.append("task")
        if longer is None:
            self._writes.inserts.append(definition_row(own, update.label, text))
        else:
            self._writes.spread_out(longer, "task", text)

    def _text(self, own: str) -> str:
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
        new = {**node.task, **{key: old[key] for key in _FOR_WORKER if key in old}} if "task" in keys else dict(old)
        for key in keys.intersection(("deadline", *_FOR_WORKER)):
            new.pop(key, None)
        if update.deadline and "deadline" in keys:
            new["deadline"] = update.deadline
        new |= timing.for_worker({key: value for key, value in node.timing.items() if key in keys})
        if "task" not in keys:
            return old, new, canonical_json(new)
        for label in sorted(references(node)):
            if task_id_of(self._names.graph_id, label) not in self._names.snapshot.rows:
                raise RefusedError(f"“{update.label}” refers to “{label}”, which is no task of the graph")
        return old, new, definition_text(new, lambda label: task_id_of(self._names.graph_id, label))


def reruns_left(update: Update, row: Row) -> int:
    """Of a budget; what a task that has ended has spent of the one before stays spent."""
    was = Draft(row.key, row.columns, None)
    spent = was.integer("rerunsAllowed") - was.integer("rerunsLeft")
    if spent > update.node.reruns:
        raise RefusedError(f"“{update.label}” has spent {spent} reruns, so its budget cannot be less")
    return update.node.reruns - spent
