"""How requirements become edges between rows: directly, or over joins and forks where they are many."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from taskgraph.documents.groups import DONE, Wiring, is_end, name_of, wire
from taskgraph.documents.nodes import GroupNode, TaskNode
from taskgraph.model import limits
from taskgraph.model.ids import GRAPH, fork_reference, group_owner, ids_text, join_reference, row_key, task_id_of
from taskgraph.model.states import TaskState
from taskgraph.protocol.definitions import SCHEMA
from taskgraph.storage.tables import Insert

UNSCHEDULED: Final = str(TaskState.UNSCHEDULED)


_THERE: Final = "\x03"  # begins a node that has a row already: its reference follows


NO_GROUPS: Final[Mapping[str, GroupNode]] = {}


@dataclass(frozen=True, slots=True)
class Link:
    """Edges from a task (or shared join) that exists already: `references` become its dependents."""

    task_id: str
    references: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KnownGroup:
    """A group that the graph has already. join: the reference of its shared join, "" without; members: taskIds."""

    join: str
    members: tuple[str, ...]


NONE_KNOWN: Final[Mapping[str, KnownGroup]] = {}


@dataclass(frozen=True, slots=True)
class _Edges:
    """Who names whom, relays included; from it the rows are made.

    wired: what tasks and ends of groups require, by label and end; references: of all of these.
    told: reference of a task or shared join -> the references that it tells. requires: reference -> what its row names
    as required. relays: reference -> (what it requires, what it tells), shared joins among them. joins, forks:
    reference -> relays that belong to it, outermost (nearest to the dependents) first: the order in which they go in.
    gathering: the joins below `top`. optional: taskId -> what of its requires does not matter to it.
    """

    mapping: dict[str, str]
    wired: Wiring
    told: dict[str, list[str]]
    requires: dict[str, Sequence[str]]
    optional: dict[str, Sequence[str]]
    relays: dict[str, tuple[Sequence[str], Sequence[str]]]
    joins: dict[str, list[str]]
    forks: dict[str, list[str]]
    gathering: list[str]
    top: Insert | None
    leaves: tuple[str, ...]
    links: dict[str, list[str]]


def wire_nodes(
    graph_id: str, nodes: Mapping[str, TaskNode], groups: Mapping[str, GroupNode], known: Mapping[str, KnownGroup]
) -> Wiring:
    """What tasks and ends of groups require.

    Names of groups that are there already are replaced by what stands for these: their join, their only task, or an end
    that gathers them for this request.
    """
    wiring = wire(nodes, groups)
    if not known:
        return wiring
    ends = dict(wiring.ends)

    def stand_in(name: str) -> str:
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


def lay_edges(
    graph_id: str,
    nodes: Mapping[str, TaskNode],
    *,
    stamp: str,
    direct_leaves_max: int,
    by_key: bool,
    schema: int,
    wired: Wiring,
    request: str,
) -> _Edges:
    """The edges of all these nodes, and the joins and forks by which they go."""
    mapping = {label: task_id_of(graph_id, label) for label in nodes}
    told: dict[str, list[str]] = {own: [] for own in mapping.values()}
    requires: dict[str, Sequence[str]] = {}
    optional: dict[str, Sequence[str]] = {}
    relays: dict[str, tuple[Sequence[str], Sequence[str]]] = {}
    joins: dict[str, list[str]] = {}
    forks: dict[str, list[str]] = {}
    links: dict[str, list[str]] = {}
    pieces: set[str] = set()  # joins that work for one row alone, and know what they tell
    references = dict(mapping)
    for end in wired.ends:
        references[end] = end_reference(graph_id, end, request)
        told[references[end]] = []

    def resolve(node: str) -> str:
        return references.get(node) or (node[1:] if node.startswith(_THERE) else task_id_of(graph_id, node))

    def tell(required: str, reference: str) -> None:
        """Make a reference a dependent of a row of the set, or of one outside; pieces know theirs already."""
        if required in told:
            told[required].append(reference)
        elif required not in pieces:
            links.setdefault(required, []).append(reference)

    for node, names in itertools.chain(wired.requires.items(), wired.ends.items()):
        if not names:
            continue
        own = references[node]
        wanted = [resolve(name) for name in names]
        requires[own] = wanted
        may = frozenset(map(resolve, wired.optional.get(node, ())))
        if may:
            optional[own] = [each for each in wanted if each in may]
        if len(wanted) > limits.REQUIRES_MAX:
            owner, mark = own, ""
            if is_end(node):
                _, owner, number = own.split(":", 2)
                mark = f"{number}-"
            if may:
                requires[own], optional[own], made = _gather_apart(own, wanted, may, by_key=by_key)
            else:
                requires[own], made = _gather(owner, wanted, own, mark, by_key=by_key)
            joins[own] = [reference for reference, _, _ in made]
            pieces.update(joins[own])
            for reference, members, above in made:
                relays[reference] = (members, [above])
                for member in members:
                    tell(member, reference)
            if may:  # a few may be named directly, beside the joins
                for required in requires[own]:
                    tell(required, own)
            continue
        for required in wanted:
            tell(required, own)

    leaf_ids = [own for own in mapping.values() if not told[own]]
    top: Insert | None = None
    leaves: tuple[str, ...] = tuple(leaf_ids)
    gathering: list[str] = []
    if len(leaf_ids) > direct_leaves_max:
        top_reference = join_reference(GRAPH, stamp)
        top_members, made = _gather(GRAPH, leaf_ids, top_reference, f"{stamp}-", by_key=by_key)
        pieces.update(reference for reference, _, _ in made)
        top = relay_row(top_reference, top_members, [GRAPH], schema)
        for member in top_members:
            tell(member, top_reference)
        for reference, members, above in made:
            relays[reference] = (members, [above])
            gathering.append(reference)
            for member in members:
                tell(member, reference)
        leaves = (top_reference,)
    else:
        for own in leaf_ids:
            told[own].append(GRAPH)

    for own, named in told.items():
        if len(named) > limits.DEPENDENTS_MAX:
            told[own], made_forks = _fan_out(own, named, stamp, by_key=by_key)
            forks[own] = [reference for reference, _ in made_forks]
            for reference, members in made_forks:
                relays[reference] = ([own], members)
    for end in wired.ends:
        own = references[end]
        relays[own] = (requires[own], told[own])
    return _Edges(mapping, wired, told, requires, optional, relays, joins, forks, gathering, top, leaves, links)


def end_reference(graph_id: str, end: str, request: str) -> str:
    """The shared join that is an end of a group. request: the request that adds it, "" for the submission."""
    number = "done" if end.startswith(DONE) else "start"
    owner = group_owner(task_id_of(graph_id, name_of(end)))
    return join_reference(owner, f"{request}-{number}" if request else number)


_Made = list[tuple[str, list[str], str]]
"""Joins: (reference, its members, what it tells), outermost first."""


def _gather_apart(
    own: str, wanted: Sequence[str], optional: AbstractSet[str], *, by_key: bool
) -> tuple[list[str], list[str], _Made]:
    """Joins over the requirements of a wide task, of which some are optional.

    A join carries what all of its members have to tell, so optional ones have joins of their own. Gives all references,
    the optional ones, and the joins.
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
    """A tree of joins over members: the top references, and (join, its members, what it tells), outermost first.

    most: so many top references, if not as many as one row names.
    """
    most = limits.REQUIRES_MAX if most is None else most
    made: list[tuple[str, list[str]]] = []
    current = list(members)
    if by_key and len(current) > most:
        current.sort(key=row_key)
    number = 0
    while len(current) > most:
        count = -(-len(current) // limits.REQUIRES_MAX)
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


def _fan_out(
    own: str, told: Sequence[str], stamp: str, *, by_key: bool
) -> tuple[list[str], list[tuple[str, list[str]]]]:
    """A tree of forks over dependents: what the row itself tells, and (fork, what it tells), outermost first."""
    made: list[tuple[str, list[str]]] = []
    current = sorted(told, key=row_key) if by_key else list(told)
    while len(current) > limits.DEPENDENTS_MAX:
        count = -(-len(current) // limits.DEPENDENTS_MAX)
        size = -(-len(current) // count)
        after: list[str] = []
        for start in range(0, len(current), size):
            reference = fork_reference(own, f"{stamp}-{len(made)}")
            made.append((reference, current[start : start + size]))
            after.append(reference)
        current = after
    return current, made


def relay_row(reference: str, requires: Sequence[str], dependents: Sequence[str], schema: int) -> Insert:
    """A relay of which nothing has been fulfilled yet."""
    text = ids_text(requires)
    return Insert(
        row_key(reference),
        {
            "schema": schema,
            "state": UNSCHEDULED,
            "requires": text,
            "requiresLeft": text,
            "dependents": ids_text(dependents),
        },
    )


def fork_row(reference: str, task_id: str, told: Sequence[str], *, resolved: bool, schema: int = SCHEMA) -> Insert:
    """A fork that takes over the dependents of a task that got too many of them after it was laid out.

    resolved: all of them have been told already.
    """
    return Insert(
        row_key(reference),
        {
            "schema": schema,
            "state": str(TaskState.COMPLETED if resolved else TaskState.UNSCHEDULED),
            "requires": ids_text([task_id]),
            "requiresLeft": ids_text([] if resolved else [task_id]),
            "dependents": ids_text(told),
        },
    )
