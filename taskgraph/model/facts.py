"""Facts of a journal as values: which columns a fact changed, of which row, and which facts a filter lets pass.

A fact names in `changed` the columns that its commit changed, unless they are the usual ones of its kind.
"""

import fnmatch
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from taskgraph.model.ids import GRAPH
from taskgraph.model.json_strict import compact_json
from taskgraph.model.row_schema import USUAL
from taskgraph.model.utf16 import utf16_units

ROUTING: Final = "routing"  # of a fact, and of a graph row
ROUTING_KEY: Final = "routingKey"  # of a task: its graph's and its own, as `task_routing` joins them
EVERY_ROW: Final = "*"  # in place of a row key: the fact speaks of all rows that its commit changes
NESTED: Final[Mapping[str, str]] = {"updated": "label", "deleted": "label", "added": "label", "deletedGroups": "group"}
"""Lists of facts -> what a text in them is: facts about many tasks name these there, by label or as objects."""

USUAL_SETS: Final = {kind: frozenset(names) for kind, names in USUAL.items()}


def subject(kind: str, fields: Mapping[str, Any]) -> str:
    """The key of the row that a fact speaks of, by what it says: of its task, or of the graph."""
    return f"task:{fields.get('task', '?')}" if kind.startswith("task-") else GRAPH


def unusual_changes(kind: str, changed: Collection[str]) -> list[str] | None:
    """The columns that a fact lists as changed; None for the usual ones. Raises KeyError for an unknown kind."""
    return None if changed == USUAL_SETS[kind] else sorted(changed)


def changes_of(kind: str, fields: Mapping[str, Any]) -> tuple[str, ...]:
    own = fields.get("changed")
    return tuple(map(str, own)) if isinstance(own, list | tuple) else USUAL.get(kind, ())


def task_routing(graph: str, task: str) -> str:
    """The routing of what is said of a task: of its graph, a dot, and its own; "" where neither has one."""
    return f"{graph}.{task}" if graph or task else ""


def routing_at(key: str) -> tuple[str, str]:
    """Where the routing of a fact about a row stands: key of that row, and column."""
    return (key, ROUTING_KEY) if key.startswith("task:") else (GRAPH, ROUTING)


def routing_of(columns: Mapping[str, Any]) -> str:
    return str(columns.get(ROUTING_KEY, ""))


def listed(name: str, entries: Sequence[Any], units_max: int) -> dict[str, Any]:
    """A list of a fact, as far as it fits into so many UTF-16 units; how many more there are is said beside it."""
    kept: list[Any] = []
    units = 0
    for entry in entries:
        units += utf16_units(compact_json(entry)) + 1
        if units > units_max:
            break
        kept.append(entry)
    made: dict[str, Any] = {f"{name}More": len(entries) - len(kept)} if len(kept) < len(entries) else {}
    return {**made, name: kept} if kept else made


def agrees(kind: str, sequence: int, fields: Mapping[str, Any], where: Mapping[str, Sequence[str]]) -> bool:
    """Whether a fact has, for each field that is named, one of the values; `*` and `?` stand for any text.

    The fields are those of its JSON, `event` (its kind), `sequence`, and `changed`, of which one column is enough.
    A field of a task is looked for in the lists of a fact too (NESTED).
    """
    return all(
        any(fnmatch.fnmatchcase(text, pattern) for text in _texts(name, kind, sequence, fields) for pattern in patterns)
        for name, patterns in where.items()
    )


def _texts(name: str, kind: str, sequence: int, fields: Mapping[str, Any]) -> Iterator[str]:
    if name == "changed":
        yield from changes_of(kind, fields)
    elif name == "event":
        yield kind
    elif name == "sequence":
        yield str(sequence)
    elif name in fields:
        yield _text(fields[name])
    for nested, meaning in NESTED.items():
        listed = fields.get(nested)
        for each in listed if isinstance(listed, list | tuple) else ():
            if isinstance(each, Mapping):
                if name in each:
                    yield _text(each[name])
                if name == "changed" and isinstance(each.get("fields"), list | tuple):
                    yield from map(str, each["fields"])
            elif name in (meaning, nested):
                yield str(each)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
