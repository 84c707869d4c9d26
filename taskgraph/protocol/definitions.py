"""How a task's definition and times lie in columns: spread over several where they are long."""

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from taskgraph.model import limits, timing
from taskgraph.model.columns import Value
from taskgraph.model.errors import IntegrityError
from taskgraph.model.facts import ROUTING_KEY, task_routing
from taskgraph.model.json_strict import canonical_json
from taskgraph.model.placement import target_of
from taskgraph.model.states import FailurePolicy
from taskgraph.model.utf16 import utf16_units
from taskgraph.storage.checks import YEAR_MIN
from taskgraph.storage.tables import Insert, Row

if TYPE_CHECKING:
    from taskgraph.documents.nodes import TaskNode

SCHEMA: Final = 1
"""Major version of the rows (P23): an older handler leaves the message for a newer one."""

SCHEMA_OF_CONDITIONS: Final = 2
"""The same for the tasks, relays and graph row of a graph that goes on after failures (`conditions`)."""

SCHEMA_OF_POLICIES: Final = 4
"""The same for the graph row where groups have a failure policy of their own: no failure is decided without it."""

_REFERENCE_KEYS: Final = ('"$subs"', '"$result"', '"$file"')  # a text without these has nothing to be replaced
_DEFINING: Final = frozenset({"target", "host", "routing", "workersLostMax", "deadline"})
_TIME_MIN: Final = datetime(YEAR_MIN + 1, 1, 1, tzinfo=UTC)


def schema_for(policy: object, *, group_policies: bool = False) -> int:
    """Of the tasks and relays of a graph. group_policies: groups of it have a failure policy of their own."""
    return SCHEMA_OF_CONDITIONS if policy == FailurePolicy.CONTINUE or group_policies else SCHEMA


def split_text(text: str, units_max: int) -> list[str]:
    """Cut text into pieces of at most units_max UTF-16 units, never inside a character."""
    if text.isascii():
        return [text[i : i + units_max] for i in range(0, len(text), units_max)] or [""]
    pieces: list[str] = []
    start, units = 0, 0
    for i, character in enumerate(text):
        width = 2 if ord(character) > 0xFFFF else 1
        if units + width > units_max:
            pieces.append(text[start:i])
            start, units = i, 0
        units += width
    pieces.append(text[start:])
    return pieces


def spread(name: str, text: str) -> dict[str, Value]:
    """A long text over columns name, name2, name3 …; `gathered` puts it together again."""
    pieces = split_text(text, limits.PROPERTY_CHARS_MAX)
    return {name if i == 0 else f"{name}{i + 1}": piece for i, piece in enumerate(pieces)}


def gathered(columns: Mapping[str, Value], name: str) -> str:
    """The text that `spread` put over columns; "" when there is none."""
    pieces: list[str] = []
    while True:
        piece = columns.get(name if not pieces else f"{name}{len(pieces) + 1}")
        if piece is None:
            return "".join(pieces)
        pieces.append(str(piece))


DEFINED_COLUMNS: Final = ("target", "routing", ROUTING_KEY, "workersLostMax", "deadline")
"""Columns of a task that come from its definition, for others than the worker."""

TIMING_COLUMNS: Final[tuple[str, ...]] = ("notBefore", "pendingTimeout", "retry")
"""Columns of a task, named like the keys of its node, by which decisions respect its times."""


def defined_columns(task: Mapping[str, Any], routing: str) -> dict[str, Value]:
    """The `DEFINED_COLUMNS` of a task. routing: of its graph."""
    columns: dict[str, Value] = {"target": target_of(task)}
    own = str(task.get("routing") or "")
    if own:
        columns["routing"] = own
    if key := task_routing(routing, own):
        columns[ROUTING_KEY] = key
    if (lost := task.get("workersLostMax")) is not None:
        columns["workersLostMax"] = int(lost)
    if deadline := task.get("deadline"):
        columns["deadline"] = moment(str(deadline))
    return columns


def is_usual(task: Mapping[str, Any]) -> bool:
    """Whether `defined_columns` are those of an empty definition."""
    return _DEFINING.isdisjoint(task)


def definition_text(task: Mapping[str, Any], resolve: Callable[[str], str]) -> str:
    """A definition as its worker gets it. resolve: label -> taskId."""
    definition = canonical_json(task)
    if '"$' in definition and any(key in definition for key in _REFERENCE_KEYS):
        from taskgraph.documents.references import substitute  # here: what only reads rows does without documents

        definition = canonical_json(substitute(task, resolve))
    return definition


def is_short(definition: str) -> bool:
    """Whether a definition stands on the row of its task, and not on one of its own."""
    return utf16_units(definition) <= limits.INLINE_DEFINITION_CHARS_MAX


def definition_row(own: str, label: str, definition: str) -> Insert:
    return Insert(f"definition:{own}", {"schema": SCHEMA, "label": label, **spread("task", definition)})


def timing_columns(times: Mapping[str, Any]) -> dict[str, Value]:
    """The `TIMING_COLUMNS` of a node; the rest of its times is for the worker."""
    columns: dict[str, Value] = {}
    if "notBefore" in times:
        columns["notBefore"] = moment(times["notBefore"])
    if "pendingTimeout" in times:
        columns["pendingTimeout"] = float(times["pendingTimeout"])
    if text := timing.retry_text(times.get("retry", {})):
        columns["retry"] = text
    return columns


def first_deadline(nodes: "Iterable[TaskNode]") -> datetime | None:
    return min((moment(str(text)) for node in nodes if (text := node.task.get("deadline"))), default=None)


def moment(text: str) -> datetime:
    """The time of an RFC 3339 date-time, in UTC, as every store can keep it. Raises ValueError for another text.

    A leap second, which no clock of ours has, is the last moment before it; what is earlier than a store can hold is
    the first that it can.
    """
    if text[17:19] == "60":
        text = f"{text[:17]}59.999999{text[19:].lstrip('.0123456789')}"
    found = datetime.fromisoformat(text.upper())  # RFC 3339 has `t` and `z` too
    if found.tzinfo is not UTC:
        if found.tzinfo is None:
            raise ValueError(f"“{text[:40]}” names no time zone")
        try:
            found = found.astimezone(UTC)
        except OverflowError as error:
            raise ValueError(f"“{text[:40]}” is outside the years 1 to 9999") from error
    return found if found.year > YEAR_MIN else _TIME_MIN


def members_of(rows: list[Row]) -> tuple[str, ...]:
    """TaskIds of all tasks of a group, from its rows. Raises IntegrityError for a row that does not hold them."""
    found: list[str] = []
    for row in rows:
        try:
            listed = json.loads(gathered(row.columns, "members"))
        except ValueError as error:
            raise IntegrityError(f"row {row.key}: column members is no JSON list") from error
        if not isinstance(listed, list):
            raise IntegrityError(f"row {row.key}: column members is no list")
        found += map(str, listed)
    return tuple(found)
