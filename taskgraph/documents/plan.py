"""What a graph will be like, before anything is written: size, shape, critical path, and pictures of it.

Groups are looked through: counts and waiters are those of tasks. A task's seconds are `payload.seconds`, or what the
caller knows; where no task has any, every task counts as one step.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from taskgraph.documents import graph_algorithms
from taskgraph.documents import groups as grouping
from taskgraph.documents.nodes import GraphDocument, TaskNode
from taskgraph.model import limits
from taskgraph.model.errors import InvalidGraph, Problem
from taskgraph.model.priorities import column
from taskgraph.model.states import When


@dataclass(frozen=True, slots=True)
class PlanRow:
    """ndeps: tasks that it requires; waiters: labels. level: longest distance from a root. optional: how many."""

    label: str
    ndeps: int
    waiters: tuple[str, ...]
    level: int
    seconds: float | None = None
    when: str = When.ALL_COMPLETED.value
    optional: int = 0
    priority: str = ""

    @property
    def conditional(self) -> bool:
        return self.when != When.ALL_COMPLETED or self.optional > 0

    @property
    def condition(self) -> str:
        """What is not usual about how it waits, "" if nothing is."""
        parts = [f"priority {self.priority}"] if self.priority else []
        parts += [str(self.when)] if self.when != When.ALL_COMPLETED else []
        parts += [f"{self.optional} optional"] if self.optional else []
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Plan:
    """The shape of a graph.

    kept: requirements that rows keep: fewer than edges, where tasks require groups. groups: name -> labels. depth:
    tasks on the longest path. width: the most tasks on one level. fan_in_max, fan_out_max: the most requirements and
    the most waiters of one task, with its label ("" for a graph without edges). critical_path: labels in order of
    execution, the heaviest path by seconds if any are known, or the longest. critical_seconds, total_seconds: None when
    no seconds are known. rows: in the order of the document. limits: group, "" for the graph -> tasks in flight.
    """

    tasks: int
    edges: int
    depth: int
    width: int
    fan_in_max: int
    fan_in_label: str
    fan_out_max: int
    fan_out_label: str
    roots: tuple[str, ...]
    leaves: tuple[str, ...]
    critical_path: tuple[str, ...]
    critical_seconds: float | None
    total_seconds: float | None
    rows: tuple[PlanRow, ...]
    levels: tuple[tuple[str, ...], ...]
    kept: int = 0
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)


def known_seconds(node: TaskNode) -> float | None:
    """`payload.seconds` of a task, where it is a number that is not negative."""
    payload = node.task.get("payload")
    seconds = payload.get("seconds") if isinstance(payload, Mapping) else None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds < 0:
        return None
    return float(seconds)


def plan(document: GraphDocument, *, seconds: Callable[[TaskNode], float] | None = None) -> Plan:
    """The plan of a document; seconds: how long a task takes. Raises InvalidGraph for a cycle or too many edges."""
    inner = edges_of(document)
    level = graph_algorithms.levels(inner)
    if len(level) != len(inner):
        raise InvalidGraph([Problem("/tasks", "cycle", "The graph has a cycle.", "Validate the document first.")])
    waiters: dict[str, list[str]] = {label: [] for label in inner}
    for label, requires in inner.items():
        for other in requires:
            waiters[other].append(label)
    times = {
        label: known_seconds(node) if seconds is None else float(seconds(node))
        for label, node in document.tasks.items()
    }
    known = [value for value in times.values() if value is not None]
    weighted = bool(known)
    weights = {label: (times[label] or 0.0) if weighted else 1.0 for label in inner}
    path = _critical_path(inner, level, weights)
    by_level: list[list[str]] = [[] for _ in range(1 + max(level.values(), default=-1))]
    for label in inner:
        by_level[level[label]].append(label)
    fan_in_label = max(inner, key=lambda label: len(inner[label]), default="")
    fan_out_label = max(waiters, key=lambda label: len(waiters[label]), default="")
    edges = sum(map(len, inner.values()))
    limits_of = [("", document.max_in_flight), *((one.name, one.max_in_flight) for one in document.groups.values())]
    return Plan(
        tasks=len(inner),
        edges=edges,
        depth=len(by_level),
        width=max(map(len, by_level), default=0),
        fan_in_max=len(inner[fan_in_label]) if edges else 0,
        fan_in_label=fan_in_label if edges else "",
        fan_out_max=len(waiters[fan_out_label]) if edges else 0,
        fan_out_label=fan_out_label if edges else "",
        roots=tuple(label for label, requires in inner.items() if not requires),
        leaves=tuple(label for label, waiting in waiters.items() if not waiting),
        critical_path=path,
        critical_seconds=math.fsum(weights[label] for label in path) if weighted else None,
        total_seconds=math.fsum(known) if weighted else None,
        rows=tuple(
            PlanRow(
                label,
                len(requires),
                tuple(waiters[label]),
                level[label],
                times[label],
                document.tasks[label].when,
                len(document.tasks[label].optional),
                column(document.tasks[label].priority, document.priority),
            )
            for label, requires in inner.items()
        ),
        levels=tuple(map(tuple, by_level)),
        kept=document.edges if document.groups else edges,
        groups=grouping.members(document.groups),
        limits={name: most for name, most in limits_of if most},
    )


def edges_of(document: GraphDocument) -> dict[str, Sequence[str]]:
    """The tasks that each task requires, by label, with groups looked through. Raises InvalidGraph for too many."""
    tasks = document.tasks
    try:
        required = grouping.logical(grouping.wire(tasks, document.groups), pairs_max=limits.PLANNED_PAIRS_MAX)
    except grouping.TooManyPairs as error:
        message = f"The groups stand for more than {limits.PLANNED_PAIRS_MAX:,} requirements from task to task."
        remedy = "It can be submitted; a plan lists these one by one, and is for smaller graphs."
        raise InvalidGraph([Problem("/groups", "too-large", message, remedy)]) from error
    return {
        label: requires if all(map(tasks.__contains__, requires)) else [r for r in requires if r in tasks]
        for label, requires in required.items()
    }


def _critical_path(
    inner: Mapping[str, Sequence[str]], level: Mapping[str, int], weights: Mapping[str, float]
) -> tuple[str, ...]:
    """Labels of the heaviest path, first to run first; then that of more tasks. level: in order of execution."""
    weight: dict[str, float] = {}
    before: dict[str, str] = {}
    for label in level:
        heaviest = max(inner[label], key=lambda other: (weight[other], level[other]), default=None)
        weight[label] = weights[label]
        if heaviest is not None:
            weight[label] += weight[heaviest]
            before[label] = heaviest
    last = max(level, key=lambda label: (weight[label], level[label]), default=None)
    path = []
    while last is not None:
        path.append(last)
        last = before.get(last)
    return tuple(reversed(path))


def to_json(plan: Plan) -> dict[str, Any]:
    return {
        "taskCount": plan.tasks,
        "edges": plan.edges,
        "keptEdges": plan.kept,
        "groups": {name: list(labels) for name, labels in plan.groups.items()},
        "limits": [{"group": name or None, "max": most} for name, most in plan.limits.items()],
        "depth": plan.depth,
        "width": plan.width,
        "fanIn": {"max": plan.fan_in_max, "label": plan.fan_in_label},
        "fanOut": {"max": plan.fan_out_max, "label": plan.fan_out_label},
        "roots": list(plan.roots),
        "leaves": list(plan.leaves),
        "criticalPath": {"labels": list(plan.critical_path), "seconds": plan.critical_seconds},
        "totalSeconds": plan.total_seconds,
        "table": [
            {
                "label": row.label,
                "ndeps": row.ndeps,
                "waiters": list(row.waiters),
                "level": row.level,
                "seconds": row.seconds,
                **({"when": str(row.when), "optional": row.optional} if row.conditional else {}),
                **({"priority": row.priority} if row.priority else {}),
            }
            for row in plan.rows
        ],
        "levels": [list(labels) for labels in plan.levels],
    }


_TAB = 8


def to_table(plan: Plan) -> str:
    """The table alone: task, number of tasks that it requires, labels of the tasks that wait for it."""
    lines = [("task", "ndeps", "waiters"), *((row.label, str(row.ndeps), ",".join(row.waiters)) for row in plan.rows)]
    widths = [max(len(line[column]) for line in lines) // _TAB * _TAB + _TAB for column in (0, 1)]
    return "".join(
        f"{label:{widths[0]}}{ndeps:{widths[1]}}{waiters}".rstrip() + "\n" for label, ndeps, waiters in lines
    )


_MERMAID_PLAIN = frozenset(" -_.,:/@()+=")


def _mermaid_label(label: str) -> str:
    """A label inside double quotes: everything that the language could read as its own is written as a number."""
    return "".join(char if char.isalnum() or char in _MERMAID_PLAIN else f"#{ord(char)};" for char in label)


def to_mermaid(document: GraphDocument) -> str:
    """A Mermaid flowchart; arrows go to the task that waits, dashed if optional, with its condition."""
    inner = edges_of(document)
    number = {label: index for index, label in enumerate(inner)}
    lines = ["flowchart TD"]
    lines += [f'    n{index}["{_mermaid_label(label)}"]' for label, index in number.items()]
    for label, requires in inner.items():
        node = document.tasks[label]
        words = f"|{node.when}|" if node.when != When.ALL_COMPLETED else ""
        for other in requires:
            arrow = "-.->" if other in node.optional else "-->"
            lines.append(f"    n{number[other]} {arrow}{words} n{number[label]}")
    return "\n".join(lines) + "\n"


def _dot_label(label: str) -> str:
    """A label inside double quotes, without escapes, entities or line breaks of the language."""
    escaped = label.replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"')
    return "".join(char if char.isprintable() else f"&#{ord(char)};" for char in escaped)


def to_dot(document: GraphDocument) -> str:
    inner = edges_of(document)
    number = {label: index for index, label in enumerate(inner)}
    lines = ["digraph taskgraph {", "    rankdir=LR;", "    node [shape=box];"]
    lines += [f'    n{index} [label="{_dot_label(label)}"];' for label, index in number.items()]
    for label, requires in inner.items():
        node = document.tasks[label]
        for other in requires:
            looks = ["style=dashed"] if other in node.optional else []
            looks += [f'label="{node.when}"'] if node.when != When.ALL_COMPLETED else []
            more = f" [{', '.join(looks)}]" if looks else ""
            lines.append(f"    n{number[other]} -> n{number[label]}{more};")
    return "\n".join([*lines, "}"]) + "\n"
