"""How requirements become edges between rows: directly, or over joins and forks where they are many.

A requirement list past `limits.REQUIRES_MAX` becomes a tree of joins, a dependents list past `limits.DEPENDENTS_MAX` a
tree of forks. Both are relays: rows that are never executed and pass a completion on.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Final

from taskgraph.documents.groups import ALL, DONE, START, Wiring, is_end, name_of, units, wire
from taskgraph.documents.nodes import GroupNode, TaskNode
from taskgraph.model import limits
from taskgraph.model.columns import Value
from taskgraph.model.ids import (
    GRAPH,
    fork_reference,
    group_owner,
    ids_text,
    join_reference,
    owner_of,
    row_key,
    task_id_of,
    task_ids_of,
    value,
)
from taskgraph.model.states import TaskState
from taskgraph.protocol.tally import SCHEMA_OF_TALLIES, columns_of
from taskgraph.storage.tables import Insert

UNSCHEDULED: Final = str(TaskState.UNSCHEDULED)
_COMPLETED: Final = str(TaskState.COMPLETED)
_THERE: Final = "\x03"  # begins a node that has a row already: its reference follows

_NONE: Final[AbstractSet[str]] = frozenset()

_NUMBERS: Final = {DONE: "done", START: "start", ALL: "all"}

NOTHING: Final[Mapping[str, Any]] = {}  # no groups


@value
class Link:
    """Edges from a task (or shared join) that exists already: `references` become its dependents."""

    task_id: str
    references: tuple[str, ...]


@value
class KnownGroup:
    """A group that the graph has already. join: the reference of its shared join, "" without; members: taskIds."""

    join: str
    members: tuple[str, ...]


@value
class Grown:
    """A group of the graph into which an extension puts tasks.

    join: the reference of its shared join. has: of the tasks that the extension names, those that it has already.
    around: names of the groups that it is in. held, limited: of it and these, which are held back, and which have a
    limit. policy: what the innermost of them says of failures, "" for nothing.
    """

    join: str
    has: frozenset[str] = frozenset()
    around: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    limited: tuple[str, ...] = ()
    policy: str = ""


def wire_nodes(
    graph_id: str,
    nodes: Mapping[str, TaskNode],
    groups: Mapping[str, GroupNode],
    known: Mapping[str, KnownGroup] = NOTHING,
    grown: Mapping[str, Grown] = NOTHING,
) -> Wiring:
    """What tasks and ends of groups require.

    A group that is there already is replaced by its join, its only task, or an end that gathers its tasks for this
    request. The end of a group that grows gathers its new tasks alone: what requires the group requires its join.
    """
    wiring = wire(nodes, groups)
    if not known and not grown:
        return wiring
    ends = dict(wiring.ends)

    def stand_in(name: str) -> str:
        if is_end(name) and name_of(name) in grown:
            return _THERE + grown[name_of(name)].join
        if name in nodes or is_end(name):
            return name
        group = known.get(name)
        if group is None:
            return _THERE + task_id_of(graph_id, name)
        if group.join or len(group.members) == 1:
            return _THERE + (group.join or group.members[0])
        ends[DONE + name] = [_THERE + each for each in group.members]
        return DONE + name

    def replaced(wanted: Iterable[str]) -> list[str]:
        return list(dict.fromkeys(map(stand_in, wanted)))

    requires = {label: replaced(wanted) for label, wanted in wiring.requires.items()}
    for end, wanted in wiring.ends.items():
        ends[end] = replaced(wanted)
    optional = {
        label: frozenset(replaced(may)) - set(replaced(each for each in wiring.requires[label] if each not in may))
        for label, may in wiring.optional.items()
    }
    return Wiring(requires, ends, optional)


_Made = list[tuple[str, list[str], str]]
"""Joins: (reference, its members, its dependent), outermost first."""


@dataclass(slots=True)
class Edges:
    """Which row names which, relays included; from it the rows are made.

    mapping: label -> taskId. dependents: of each task or shared join, by reference. by_key: relays share edges out in
    the order of the table. schema: of the rows. requires: what each row names as required. optional: which of these
    need not succeed. relays: reference -> (requires, dependents), shared joins among them. joins, forks: of each
    reference, outermost (nearest to the dependents) first: the order in which they are inserted. gathering: the joins
    below `top`. links: new dependents of rows outside the set. pieces: joins that work for one row alone, whose
    dependent is known. counting: tallies, and the decisions that wait for them -> their columns for that.
    """

    mapping: dict[str, str]
    dependents: dict[str, list[str]]
    by_key: bool
    schema: int
    requires: dict[str, Sequence[str]] = field(default_factory=dict)
    optional: dict[str, Sequence[str]] = field(default_factory=dict)
    relays: dict[str, tuple[Sequence[str], Sequence[str]]] = field(default_factory=dict)
    joins: dict[str, list[str]] = field(default_factory=dict)
    forks: dict[str, list[str]] = field(default_factory=dict)
    gathering: list[str] = field(default_factory=list)
    top: Insert | None = None
    leaves: tuple[str, ...] = ()
    links: dict[str, list[str]] = field(default_factory=dict)
    pieces: set[str] = field(default_factory=set)
    counting: dict[str, Mapping[str, Value]] = field(default_factory=dict)

    def require(
        self,
        own: str,
        wanted: list[str],
        may: AbstractSet[str],
        *,
        end: bool,
        piece: bool = False,
        grows: bool = False,
    ) -> None:
        """Let a row wait for others, over joins where they are many.

        may: optional ones. end: of a group. piece: of an end that is there already. grows: it may get more.
        """
        self.requires[own] = wanted
        if may:
            self.optional[own] = [each for each in wanted if each in may]
        most = limits.REQUIRES_MAX - (piece or grows)  # a piece may have to wait for an older one in its place
        if len(wanted) <= most:
            self._add_dependent(wanted, own)
            return
        if may:
            self.requires[own], self.optional[own], made = _gather_apart(own, wanted, may, by_key=self.by_key)
        else:
            owner, mark = own, ""
            if end:
                _, owner, number = own.split(":", 2)
                mark = number if piece else f"{number}-"
            self.requires[own], made = _gather(owner, wanted, own, mark, by_key=self.by_key, most=most)
        self.joins[own] = self._take_in(made)
        if may:  # a few may be named directly, beside the joins
            self._add_dependent(self.requires[own], own)

    def lead_to_graph(self, leaves: list[str], direct_max: int, stamp: str) -> None:
        """Let the graph wait for its leaves: directly, or over a tree of joins where they are many."""
        if len(leaves) <= direct_max:
            self.leaves = tuple(leaves)
            for own in leaves:
                self.dependents[own].append(GRAPH)
            return
        top = join_reference(GRAPH, stamp)
        members, made = _gather(GRAPH, leaves, top, f"{stamp}-", by_key=self.by_key)
        self.gathering = self._take_in(made)
        self.top = relay_row(top, members, [GRAPH], self.schema)
        self._add_dependent(members, top)
        self.leaves = (top,)

    def fan_out(self, stamp: str) -> None:
        for own, named in self.dependents.items():
            if len(named) > limits.DEPENDENTS_MAX:
                self.dependents[own], made = _fan_out(own, named, stamp, by_key=self.by_key)
                self.forks[own] = [reference for reference, _ in made]
                for reference, members in made:
                    self.relays[reference] = ([own], members)

    def relay_row(self, reference: str) -> Insert:
        row = relay_row(reference, *self.relays[reference], self.schema)
        if not self.counting:
            return row
        columns = self.counting.get(reference, {})
        if (
            "decidedBy" not in columns
            and (counted := owner_of(reference)) in self.counting
            and reference.startswith("join:")
        ):
            columns = {**columns, "tally": counted}
        return Insert(row.key, {**row.columns, **columns, "schema": SCHEMA_OF_TALLIES}) if columns else row

    def _take_in(self, made: _Made) -> list[str]:
        references = [reference for reference, _, _ in made]
        self.pieces.update(references)
        for reference, members, above in made:
            self.relays[reference] = (members, [above])
            self._add_dependent(members, reference)
        return references

    def _add_dependent(self, wanted: Iterable[str], reference: str) -> None:
        """On rows of the set, or on those outside; pieces have their dependent already."""
        dependents = self.dependents
        for required in wanted:
            if required in dependents:
                dependents[required].append(reference)
            elif required not in self.pieces:
                self.links.setdefault(required, []).append(reference)


def lay_edges(
    graph_id: str,
    nodes: Mapping[str, TaskNode],
    wired: Wiring,
    stamp: str,
    direct_leaves_max: int,
    schema: int,
    *,
    by_key: bool = False,
    request: str = "",
    groups: Mapping[str, GroupNode] = NOTHING,
    grown: Mapping[str, Grown] = NOTHING,
) -> Edges:
    """The edges of all these nodes, and their joins and forks. Parameters: see `layout.lay_out`."""
    mapping = dict(zip(nodes, task_ids_of(graph_id, nodes), strict=True))
    pieces = {DONE + name: growth_reference(group.join, request) for name, group in grown.items()}
    references = mapping | {end: end_reference(graph_id, end, request) for end in wired.ends} | pieces
    edges = Edges(mapping, {own: [] for own in references.values()}, by_key, schema)

    def resolve(node: str) -> str:
        return references.get(node) or (node[1:] if node.startswith(_THERE) else task_id_of(graph_id, node))

    for label, names in wired.requires.items():
        if names:
            may = frozenset(map(resolve, wired.optional[label])) if label in wired.optional else _NONE
            edges.require(mapping[label], list(map(resolve, names)), may, end=False)
    for end, names in wired.ends.items():
        if names:
            grows = end.startswith(DONE) and end[1:] in groups and groups[end[1:]].grows
            wanted = list(map(resolve, names))
            edges.require(references[end], wanted, _NONE, end=True, piece=end in pieces, grows=grows)
    for name, group in grown.items():
        edges.dependents[pieces[DONE + name]].append(group.join)
    for name, each in groups.items():
        if (success := each.success) is not None:
            counted, decision = references[ALL + name], references[DONE + name]
            edges.counting[counted] = columns_of(name, success, len(units(name, groups)), decision)
            edges.counting[decision] = {"decidedBy": counted}
    leaves = [own for own in mapping.values() if not edges.dependents[own]]
    if edges.counting or any(group.grows for group in groups.values()):
        leaves += [
            references[end]
            for end in wired.ends
            if end.startswith(ALL) or (end.startswith(DONE) and not edges.dependents[references[end]])
        ]
    edges.lead_to_graph(leaves, direct_leaves_max, stamp)
    edges.fan_out(stamp)
    for end in wired.ends:
        own = references[end]
        edges.relays[own] = (edges.requires[own], edges.dependents[own])
    return edges


def end_reference(graph_id: str, end: str, request: str) -> str:
    """The shared join that is an end of a group. request: the one that adds it, "" for the submission."""
    number = _NUMBERS[end[0]]
    owner = group_owner(task_id_of(graph_id, name_of(end)))
    return join_reference(owner, f"{request}-{number}" if request else number)


def growth_reference(join: str, request: str) -> str:
    """The piece of a shared join that gathers what an extension puts into its group.

    The number is longer than those that a layout counts up.
    """
    number = int.from_bytes(hashlib.sha256(request.encode()).digest()[:6]) + 10**15
    return f"{join}-{number}"


def _gather_apart(
    own: str, wanted: Sequence[str], optional: AbstractSet[str], *, by_key: bool
) -> tuple[list[str], list[str], _Made]:
    """Joins over the requirements of a wide task, of which some are optional.

    A join passes on how all of its members ended, so optional ones have joins of their own. Gives all references, the
    optional ones, and the joins.
    """
    most = limits.REQUIRES_MAX // 2
    must = [each for each in wanted if each not in optional]
    may = [each for each in wanted if each in optional]
    tops, made = _gather(own, must, own, "", by_key=by_key, most=most)
    others, made_others = _gather(own, may, own, "o", by_key=by_key, most=most)
    return [*tops, *others], others, [*made, *made_others]


def _gather(
    owner: str, members: Sequence[str], above: str, mark: str, *, by_key: bool, most: int | None = None
) -> tuple[list[str], _Made]:
    """A tree of joins over members: the top references, and the joins.

    most: so many top references, if not as many as one row names.
    """
    most = limits.REQUIRES_MAX if most is None else most
    made: list[tuple[str, list[str]]] = []
    current = list(members)
    if by_key and len(current) > most:
        current.sort(key=row_key)
    while len(current) > most:
        current = _level(current, limits.REQUIRES_MAX, made, lambda number: join_reference(owner, f"{mark}{number}"))
    above_of = dict.fromkeys(current, above)
    for reference, inside in made:
        for member in inside:
            if member.startswith("join:"):
                above_of[member] = reference
    return current, [(reference, inside, above_of[reference]) for reference, inside in reversed(made)]


def _fan_out(
    own: str, dependents: Sequence[str], stamp: str, *, by_key: bool
) -> tuple[list[str], list[tuple[str, list[str]]]]:
    """A tree of forks over dependents: those of the row itself, and (fork, its dependents), outermost first."""
    made: list[tuple[str, list[str]]] = []
    current = sorted(dependents, key=row_key) if by_key else list(dependents)
    while len(current) > limits.DEPENDENTS_MAX:
        current = _level(current, limits.DEPENDENTS_MAX, made, lambda number: fork_reference(own, f"{stamp}-{number}"))
    return current, made


def _level(members: list[str], most: int, made: list[tuple[str, list[str]]], name: Callable[[int], str]) -> list[str]:
    """Share members out to relays of at most so many each, add these to `made`, and give their references."""
    begin = len(made)
    count = -(-len(members) // most)
    size = -(-len(members) // count)  # even shares: none of the relays is nearly empty
    for start in range(0, len(members), size):
        made.append((name(len(made)), members[start : start + size]))
    return [reference for reference, _ in made[begin:]]


def relay_row(
    reference: str, requires: Sequence[str], dependents: Sequence[str], schema: int, *, resolved: bool = False
) -> Insert:
    """A relay of which nothing, or (resolved) everything, has been fulfilled."""
    text = ids_text(requires)
    columns: dict[str, Value] = {
        "schema": schema,
        "state": _COMPLETED if resolved else UNSCHEDULED,
        "requires": text,
        "requiresLeft": "[]" if resolved else text,
        "dependents": ids_text(dependents),
    }
    return Insert(row_key(reference), columns)
