"""The two graphs of Mozilla's taskgraph: full-task-graph.json (keyed by label) and task-graph.json (keyed by taskId).

Edges are `dependencies`; what else a decision task does is not done again. `payload` and `metadata` stay; `deadline`
becomes the task's if it is a date-time, or relative and the present is given; the rest of the definition stays under
the key `taskcluster`, with the kind and the attributes. {"task-reference": "<edge>"} inside the payload becomes a
`$subs` reference; elsewhere, and in longer text, it is resolved if the future id of the graph is given. Artifact
references stay: they are addresses of another system. `attributes.task_duplicates` = n makes n tasks of one.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

from taskgraph.documents.importers.shaping import Imported, Reader
from taskgraph.model.ids import is_task_id, task_id_of
from taskgraph.model.json_strict import Path, show
from taskgraph.model.schemas import is_date_time

_DUPLICATES_MAX: Final = 1_000
_UNIT_SECONDS: Final = {
    **dict.fromkeys(("second", "sec", "s"), 1),
    **dict.fromkeys(("minute", "min", "m"), 60),
    **dict.fromkeys(("hour", "h"), 3_600),
    **dict.fromkeys(("day", "d"), 86_400),
    **dict.fromkeys(("week", "w"), 7 * 86_400),
    **dict.fromkeys(("month", "mo"), 30 * 86_400),
    **dict.fromkeys(("year", "y"), 365 * 86_400),
}
# The quantifiers are possessive: nothing but spaces, a page of them, must not be divided in every possible way.
_DATESTAMP_PART = re.compile(r"\s*+((?:[+-]\s*+)?\d{1,9})\s*+(second|minute|hour|day|week|month|year)s?\b", re.ASCII)
_SHORT_PART = re.compile(r"\s*+((?:[+-]\s*+)?\d{1,9})\s*+(sec|min|mo|s|m|h|d|w|y)\b", re.ASCII)
_REFERENCE = re.compile(r"<([^<>]*)>|<<>")
_KEPT_APART: Final = frozenset({"payload", "metadata", "deadline"})


@dataclass(frozen=True, slots=True)
class Options:
    """See import_graph."""

    external: Literal["satisfied", "reject"] = "satisfied"
    executor: str = "noop"
    now: datetime | None = None
    graph_id: str | None = None


# What is counted on the way -> the note about one, and about several.
_NOTES: Final[Mapping[str, tuple[str, str]]] = {
    "external": (
        "One dependency on a task outside the file counts as satisfied.",
        "{} dependencies on tasks outside the file count as satisfied.",
    ),
    "soft": ("One soft dependency was left out.", "{} soft dependencies were left out."),
    "conditional": (
        "One task would be dropped if none of its if_dependencies remained; it was kept.",
        "{} tasks would be dropped if none of their if_dependencies remained; they were kept.",
    ),
    "optimizable": (
        "One task could have been optimized away; it was kept.",
        "{} tasks could have been optimized away; they were kept.",
    ),
    "any-resolution": (
        "One task would also run after failed dependencies (all-resolved); here it requires their success.",
        "{} tasks would also run after failed dependencies (all-resolved); here they require their success.",
    ),
    "copies": ("One copy was made of a task.", "{} copies were made of tasks."),
    "references": (
        "One reference inside a payload was kept as it is.",
        "{} references inside payloads were kept as they are.",
    ),
    "dates": ("One relative date was kept as it is.", "{} relative dates were kept as they are."),
}


def convert(obj: Any, *, source: str = "document", options: Options | None = None) -> Imported:
    options = options or Options()
    reader = Reader(source)
    nodes = {
        key: reader.mapping(node, (key,), f"The task {show(key)}")
        for key, node in reader.mapping(obj, (), "The document").items()
    }
    counts: Counter[str] = Counter()
    labels = _labels(nodes, reader)
    keys = {label: key for key, label in labels.items()}
    tasks: dict[str, Any] = {}
    places: dict[str, Path] = {}
    for key, node in nodes.items():
        label, place = labels[key], (key,)
        edges = _dependencies(node, place, nodes, keys, labels, options, reader, counts)
        task = _Definition(label, place, edges, options, reader, counts).convert(node)
        made = {"requires": list(dict.fromkeys(edges.values())), "task": task}
        tasks[label], places[label] = made, place
        for copy in range(2, _duplicates(node, place, reader) + 1):
            name = f"{label} (copy {copy})"
            if name in keys or name in tasks:
                message = f"There is a task {show(name)} already."
                reader.problem(place, "duplicate-label", message, "Rename one of the tasks.")
            tasks[name], places[name] = made, place
            counts["copies"] += 1
    if options.executor == "noop":
        reader.note("The tasks are noops: their payloads are kept, and nothing executes them.")
    for key, (one, many) in _NOTES.items():
        reader.note_count(counts[key], one, many)
    return reader.document(tasks, places, metadata={})


def _labels(nodes: Mapping[str, Mapping[str, Any]], reader: Reader) -> dict[str, str]:
    """The label of each key; keys that share one get their key behind it."""
    stated = {}
    for key, node in nodes.items():
        label = node.get("label", key)
        stated[key] = reader.text(label, (key, "label"), "`label`") or key
    often = Counter(stated.values())
    shared = [key for key, label in stated.items() if often[label] > 1]
    many = "{} tasks share a label with another one; their taskId was put behind it."
    reader.note_count(len(shared), "One task shares its label.", many)
    return stated | {key: f"{stated[key]} [{key}]" for key in shared}


def _dependencies(
    node: Mapping[str, Any],
    place: Path,
    nodes: Mapping[str, Any],
    keys: Mapping[str, str],
    labels: Mapping[str, str],
    options: Options,
    reader: Reader,
    counts: Counter[str],
) -> dict[str, str]:
    """Edge name -> label that it leads to, for the tasks of this file."""
    task = node.get("task")
    stated: Any = node.get("dependencies")
    path: Path = (*place, "dependencies")
    if stated is None:
        listed = task.get("dependencies", []) if isinstance(task, dict) else []
        path = (*place, "task", "dependencies")
        stated = {str(index): name for index, name in enumerate(reader.texts(listed, path, "`task.dependencies`"))}
    found: dict[str, str] = {}
    for edge, name in reader.mapping(stated, path, "`dependencies`").items():
        if not isinstance(name, str):
            reader.text(name, (*path, edge), f"The dependency {show(edge)}")
        elif name in nodes:
            found[edge] = labels[name]
        elif name in keys:
            found[edge] = name
        elif options.external == "reject":
            what = "taskId" if is_task_id(name) else "label"
            message = f"The dependency {show(edge)} leads to the {what} {show(name)}, which the file does not hold."
            remedy = "Add the task, or count such dependencies as satisfied."
            reader.problem((*path, edge), "external", message, remedy)
        else:
            counts["external"] += 1
    soft = node.get("soft_dependencies")
    counts["soft"] += len(soft) if isinstance(soft, list) else 0
    counts["conditional"] += bool(node.get("if_dependencies"))
    counts["optimizable"] += bool(node.get("optimization"))
    counts["any-resolution"] += isinstance(task, dict) and task.get("requires") == "all-resolved"
    return found


def _duplicates(node: Mapping[str, Any], place: Path, reader: Reader) -> int:
    attributes = node.get("attributes")
    number = attributes.get("task_duplicates", 1) if isinstance(attributes, dict) else 1
    if type(number) is int and 1 <= number <= _DUPLICATES_MAX:
        return number
    path = (*place, "attributes", "task_duplicates")
    remedy = f"Write a whole number from 1 to {_DUPLICATES_MAX:,}."
    reader.problem(path, "out-of-range", f"`task_duplicates` is {show(number)}.", remedy)
    return 1


@dataclass(frozen=True, slots=True)
class _Definition:
    """Converts the definition of one task. edges: edge name -> label."""

    label: str
    place: Path
    edges: Mapping[str, str]
    options: Options
    reader: Reader
    counts: Counter[str]

    def convert(self, node: Mapping[str, Any]) -> dict[str, Any]:
        place = (*self.place, "task")
        foreign = self.reader.mapping(node.get("task", {}), place, "`task`")
        payload = self.reader.mapping(foreign.get("payload", {}), (*place, "payload"), "`task.payload`")
        made: dict[str, Any] = {"executor": self.options.executor, "payload": self._value(payload, in_payload=True)}
        if isinstance(foreign.get("metadata"), dict):
            made["metadata"] = self._value(foreign["metadata"], in_payload=False)
        rest = {key: self._value(value, in_payload=False) for key, value in foreign.items() if key not in _KEPT_APART}
        deadline = self._value(foreign.get("deadline"), in_payload=False)
        if isinstance(deadline, str) and is_date_time(deadline):
            made["deadline"] = deadline
        elif deadline is not None:
            rest["deadline"] = deadline
        for key in ("kind", "description", "attributes"):
            if node.get(key):
                rest.setdefault(key, node[key])
        if rest:
            made["taskcluster"] = rest
        return made

    def _value(self, value: Any, *, in_payload: bool) -> Any:
        """A value with its dates and references resolved as far as possible. As deep as the reading let it be."""
        match value:
            case {"relative-datestamp": span} if len(value) == 1:
                now = self.options.now
                moment = _moment(span, now) if now is not None and isinstance(span, str) else None
                if moment is not None:
                    return moment
                self.counts["dates"] += 1
                return value
            case {"task-reference": inner} if len(value) == 1:
                only = _REFERENCE.fullmatch(inner) if isinstance(inner, str) else None
                label = self._target(only.group(1)) if only is not None and only.group(1) is not None else None
                if label is not None and in_payload and self.options.graph_id is None:
                    return {"$subs": f"taskId:{label}"}
                try:
                    return self._filled(inner)
                except LookupError:
                    self.counts["references"] += 1
                    return value
            case {"artifact-reference": _} if len(value) == 1:
                self.counts["references"] += 1
                return value
            case dict():
                return {key: self._value(member, in_payload=in_payload) for key, member in value.items()}
            case list():
                return [self._value(member, in_payload=in_payload) for member in value]
            case _:
                return value

    def _filled(self, value: Any) -> Any:
        """A task-reference (text, or objects and arrays of it) with taskIds put in. Raises LookupError."""
        match value:
            case str():
                return _REFERENCE.sub(self._task_id, value)
            case dict():
                return {self._filled(key): self._filled(member) for key, member in value.items()}
            case list():
                return [self._filled(member) for member in value]
            case _:
                return value

    def _task_id(self, match: re.Match[str]) -> str:
        if match.group(1) is None:
            return "<"  # what <<> stands for
        label = self._target(match.group(1))
        if label is None or self.options.graph_id is None:
            raise LookupError(match.group())
        return task_id_of(self.options.graph_id, label)

    def _target(self, edge: str) -> str | None:
        return self.label if edge == "self" else self.edges.get(edge)


def _moment(text: str, now: datetime) -> str | None:
    seconds = 0
    position = 0
    while position < len(text):
        match = _DATESTAMP_PART.match(text, position) or _SHORT_PART.match(text, position)
        if match is None:
            return None if text[position:].strip() else _later(now, seconds) if position else None
        seconds += int("".join(match.group(1).split())) * _UNIT_SECONDS[match.group(2)]
        position = match.end()
    return _later(now, seconds) if position else None


def _later(now: datetime, seconds: int) -> str | None:
    try:
        moment = now.astimezone(UTC) + timedelta(seconds=seconds)
    except OverflowError:
        return None
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
