"""The rows of a set of new tasks: derived ids, both directions of every edge, and bounded degree (D5).

What this room is for: turning labels and requirements into rows of which none holds more edges than one commit takes
with ease. A requirement list past `limits.REQUIRES_MAX` becomes a tree of joins, a dependents list past
`limits.DEPENDENTS_MAX` a tree of forks; both are relays: rows that are never executed and pass a completion on. The
same document gives the same rows, so every step of writing them can be repeated. It never reads a store, a clock or a
graph's state, and it is linear in tasks and edges.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from taskgraph import limits
from taskgraph.documents import canonical_json, node_digest, substitute
from taskgraph.model import (
    GRAPH,
    TaskNode,
    TaskState,
    fork_reference,
    ids_text,
    join_reference,
    row_key,
    task_id_of,
)
from taskgraph.storage.tables import Insert, Value

SCHEMA: Final = 1
"""Major version of the rows (P23): a handler that knows less leaves the message for a newer one."""

GRAPH_DIRECT_MAX: Final = 48
"""Leaves that the graph row names itself; more of them, or later ones, are counted down through joins."""

_DEFINITION_COLUMN_CHARS: Final = limits.PROPERTY_CHARS_MAX


def utf16_units(text: str) -> int:
    """Length of text as the table service counts it."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2


@dataclass(frozen=True, slots=True)
class Link:
    """Edges from a task that exists already: `references` become its dependents."""

    task_id: str
    references: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """Rows to insert, dependents before what they require, so that whoever completes finds all it must tell.

    leaves: references that the graph waits for (one join when asked for, or when there are many).
    roots: taskIds that stand pending from the start, with their targets.
    top: the row of the join that gathers all leaves, apart from `rows`, or None if the leaves are named directly.
    links: edges from tasks outside the set. mapping: label -> taskId.
    """

    rows: tuple[Insert, ...]
    top: Insert | None
    leaves: tuple[str, ...]
    roots: tuple[tuple[str, str], ...]
    links: tuple[Link, ...]
    mapping: Mapping[str, str]


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
    pieces = split_text(text, _DEFINITION_COLUMN_CHARS)
    return {name if i == 0 else f"{name}{i + 1}": piece for i, piece in enumerate(pieces)}


def gathered(columns: Mapping[str, Value], name: str) -> str:
    """The text that `spread` put over columns; "" when there is none."""
    pieces: list[str] = []
    while True:
        piece = columns.get(name if not pieces else f"{name}{len(pieces) + 1}")
        if piece is None:
            return "".join(pieces)
        pieces.append(str(piece))


def lay_out(
    graph_id: str,
    nodes: Mapping[str, TaskNode],
    *,
    stamp: str,
    now: datetime,
    request: str = "",
    direct_leaves_max: int = GRAPH_DIRECT_MAX,
) -> Layout:
    """Lay new tasks out as rows.

    nodes: label -> node; requirements outside `nodes` become links. stamp: distinguishes the relays of this request
    from those of others on the same task. request: the request that adds them ("" for the submission).
    direct_leaves_max: up to so many leaves are named directly; 0 forces a gathering join.
    """
    mapping = {label: task_id_of(graph_id, label) for label in nodes}
    task_id = mapping.__getitem__

    def resolve(label: str) -> str:
        return mapping.get(label) or task_id_of(graph_id, label)

    dependents: dict[str, list[str]] = {mapping[label]: [] for label in nodes}
    links: dict[str, list[str]] = {}
    relays: dict[str, Insert] = {}
    # taskId of a task -> relays below it, outermost (nearest to the dependents) first: the order in which they go in
    joins_of: dict[str, list[str]] = {}
    forks_of: dict[str, list[str]] = {}
    requires_of: dict[str, list[str]] = {}

    for label, node in nodes.items():
        own = task_id(label)
        wanted = [resolve(required) for required in node.requires]
        if len(wanted) > limits.REQUIRES_MAX:
            wanted, made = _gather(own, wanted, own, "", limits.REQUIRES_MAX)
            joins_of[own] = [reference for reference, _, _ in made]
            for reference, members, above in made:
                relays[reference] = _relay(reference, members, [above])
                for member in members:
                    _tell(member, reference, dependents, links)
        requires_of[own] = wanted
        for required in wanted:
            _tell(required, own, dependents, links)

    leaf_ids = [own for own, told in dependents.items() if not told]
    top: Insert | None = None
    leaves: tuple[str, ...] = tuple(leaf_ids)
    graph_joins: list[str] = []
    if len(leaf_ids) > direct_leaves_max:
        top_members, made = _gather(GRAPH, leaf_ids, join_reference(GRAPH, stamp), f"{stamp}-", limits.REQUIRES_MAX)
        top_reference = join_reference(GRAPH, stamp)
        top = _relay(top_reference, top_members, [GRAPH])
        for member in top_members:
            _tell(member, top_reference, dependents, links)
        for reference, members, above in made:
            relays[reference] = _relay(reference, members, [above])
            graph_joins.append(reference)
            for member in members:
                _tell(member, reference, dependents, links)
        leaves = (top_reference,)
    else:
        for own in leaf_ids:
            dependents[own].append(GRAPH)

    for own, told in dependents.items():
        if len(told) > limits.DEPENDENTS_MAX:
            dependents[own], made_forks = _fan_out(own, told, stamp)
            forks_of[own] = [reference for reference, _ in made_forks]
            for reference, members in made_forks:
                relays[reference] = _relay(reference, [own], members)

    rows: list[Insert] = [relays[reference] for reference in graph_joins]
    roots: list[tuple[str, str]] = []
    for label in _dependents_first(nodes):
        own = task_id(label)
        rows.extend(relays[reference] for reference in forks_of.get(own, ()))
        node = nodes[label]
        target = str(node.task.get("target", "default"))
        if not requires_of[own]:
            roots.append((own, target))
        rows.extend(
            _task_rows(node, own, requires_of[own], dependents[own], resolve, now=now, request=request, target=target)
        )
        rows.extend(relays[reference] for reference in joins_of.get(own, ()))
    return Layout(
        rows=tuple(rows),
        top=top,
        leaves=leaves,
        roots=tuple(roots),
        links=tuple(Link(own, tuple(told)) for own, told in sorted(links.items())),
        mapping=mapping,
    )


def _tell(required: str, reference: str, dependents: dict[str, list[str]], links: dict[str, list[str]]) -> None:
    """Make `reference` a dependent of `required`, inside the set or outside it. Relays know theirs already."""
    if required in dependents:
        dependents[required].append(reference)
    elif not required.startswith("join:"):
        links.setdefault(required, []).append(reference)


def _gather(
    owner: str, members: Sequence[str], above: str, mark: str, width_max: int
) -> tuple[list[str], list[tuple[str, list[str], str]]]:
    """A tree of joins over members: the top references, and (join, its members, what it tells), outermost first."""
    made: list[tuple[str, list[str]]] = []
    current = list(members)
    number = 0
    while len(current) > width_max:
        count = -(-len(current) // width_max)
        size = -(-len(current) // count)  # even shares: none of the joins is nearly empty
        after: list[str] = []
        for start in range(0, len(current), size):
            reference = join_reference(owner, f"{mark}{number}")
            number += 1
            made.append((reference, current[start : start + size]))
            after.append(reference)
        current = after
    tells = dict.fromkeys(current, above)
    for reference, inside in made:
        for member in inside:
            if member.startswith("join:"):
                tells[member] = reference
    return current, [(reference, inside, tells[reference]) for reference, inside in reversed(made)]


def _fan_out(task_id: str, told: Sequence[str], stamp: str) -> tuple[list[str], list[tuple[str, list[str]]]]:
    """A tree of forks over dependents: what the task itself tells, and (fork, what it tells), outermost first."""
    made: list[tuple[str, list[str]]] = []
    current = list(told)
    while len(current) > limits.DEPENDENTS_MAX:
        count = -(-len(current) // limits.DEPENDENTS_MAX)
        size = -(-len(current) // count)
        after: list[str] = []
        for start in range(0, len(current), size):
            reference = fork_reference(task_id, f"{stamp}-{len(made)}")
            made.append((reference, current[start : start + size]))
            after.append(reference)
        current = after
    return current, made


def _relay(reference: str, requires: Sequence[str], dependents: Sequence[str]) -> Insert:
    text = ids_text(requires)
    return Insert(
        row_key(reference),
        {
            "schema": SCHEMA,
            "state": str(TaskState.UNSCHEDULED),
            "requires": text,
            "requiresLeft": text,
            "dependents": ids_text(dependents),
        },
    )


def fork_row(reference: str, task_id: str, told: Sequence[str], *, completed: bool) -> Insert:
    """A fork that takes over the dependents of a task that got too many of them after it was laid out."""
    return Insert(
        row_key(reference),
        {
            "schema": SCHEMA,
            "state": str(TaskState.COMPLETED if completed else TaskState.UNSCHEDULED),
            "requires": ids_text([task_id]),
            "requiresLeft": ids_text([] if completed else [task_id]),
            "dependents": ids_text(told),
        },
    )


def _task_rows(
    node: TaskNode,
    own: str,
    requires: Sequence[str],
    dependents: Sequence[str],
    resolve: Callable[[str], str],
    *,
    now: datetime,
    request: str,
    target: str,
) -> list[Insert]:
    definition = canonical_json(substitute(node.task, resolve))
    requires_text = ids_text(requires)
    columns: dict[str, Value] = {
        "schema": SCHEMA,
        "label": node.label,
        "state": str(TaskState.UNSCHEDULED if requires else TaskState.PENDING),
        "run": 0,
        "rerunsAllowed": node.reruns,
        "rerunsLeft": node.reruns,
        "retriesLeft": limits.RETRIES_DEFAULT,
        "requires": requires_text,
        "requiresLeft": requires_text,
        "dependents": ids_text(dependents),
        "target": target,
        "digest": node_digest(node),
        "created": now,
    }
    if request:
        columns["request"] = request
    if not requires:
        columns["pendingSince"] = now
    if routing := node.task.get("routing"):
        columns["routing"] = str(routing)
    if deadline := node.task.get("deadline"):
        columns["deadline"] = datetime.fromisoformat(str(deadline))
    rows: list[Insert] = []
    if utf16_units(definition) <= limits.INLINE_DEFINITION_CHARS_MAX:
        columns["task"] = definition
    else:
        # The row that every transition touches stays small; the long text is read once, by the worker.
        rows.append(Insert(f"definition:{own}", {"schema": SCHEMA, "label": node.label, **spread("task", definition)}))
    rows.append(Insert(row_key(own), columns))
    return rows


def _dependents_first(nodes: Mapping[str, TaskNode]) -> list[str]:
    """Labels in an order in which each comes after all that require it (reverse topological, iterative)."""
    waiting = dict.fromkeys(nodes, 0)  # how many dependents are not placed yet
    for node in nodes.values():
        for required in node.requires:
            if required in waiting:
                waiting[required] += 1
    ready = [label for label, count in waiting.items() if count == 0]
    order: list[str] = []
    while ready:
        label = ready.pop()
        order.append(label)
        for required in nodes[label].requires:
            if required in waiting:
                waiting[required] -= 1
                if waiting[required] == 0:
                    ready.append(required)
    if len(order) != len(nodes):
        raise ValueError("the tasks have a cycle; validation must come first")
    return order


def name_mapping_rows(mapping: Mapping[str, str], stamp: str) -> list[Insert]:
    """Label -> taskId for people, over as many rows as it takes."""
    rows: list[Insert] = []
    part: dict[str, str] = {}
    units = 0
    columns_max = 12  # 12 properties of 32,000 units stay under the bound of a row

    def flush() -> None:
        if part:
            text = json.dumps(part, ensure_ascii=False, separators=(",", ":"))
            rows.append(
                Insert(f"name-mapping:{stamp}:{len(rows):04}", {"schema": SCHEMA, **spread("nameMapping", text)})
            )

    for label, own in mapping.items():
        size = utf16_units(json.dumps(label, ensure_ascii=False)) + len(own) + 4
        if units + size > columns_max * _DEFINITION_COLUMN_CHARS - 100:
            flush()
            part, units = {}, 0
        part[label] = own
        units += size
    flush()
    return rows
