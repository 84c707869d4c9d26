"""The rows of a set of new tasks: derived ids, both directions of every edge, and bounded degree (D5).

What this room is for: turning labels and requirements into rows of which none holds more edges than one commit takes
with ease. A requirement list past `limits.REQUIRES_MAX` becomes a tree of joins, a dependents list past
`limits.DEPENDENTS_MAX` a tree of forks; both are relays: rows that are never executed and pass a completion on. A group
that is required has a join which all that require it share, and a row that tells who is in it. The same document gives
the same rows, so every step of writing them can be repeated. It never reads a store, a clock or a graph's state, and it
is linear in tasks and edges.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import UTC, datetime
from json.encoder import encode_basestring
from typing import Any, Final

from taskgraph.documents import groups as grouping
from taskgraph.documents.canonical import node_digest
from taskgraph.documents.graph_algorithms import is_acyclic
from taskgraph.documents.groups import DONE, Wiring, is_end, name_of, wire
from taskgraph.documents.nodes import GroupNode, TaskNode
from taskgraph.documents.read import canonical_json
from taskgraph.documents.references import substitute
from taskgraph.model import limits, priorities, timing
from taskgraph.model.columns import Value
from taskgraph.model.facts import ROUTING_KEY, task_routing
from taskgraph.model.ids import (
    GRAPH,
    fork_reference,
    group_key,
    group_owner,
    ids_text,
    join_reference,
    limit_key,
    limit_scope,
    row_key,
    task_id_of,
)
from taskgraph.model.placement import target_of
from taskgraph.model.states import INACTIVE, FailurePolicy, TaskState, When, by_group
from taskgraph.model.utf16 import utf16_units
from taskgraph.protocol import notices
from taskgraph.storage.checks import YEAR_MIN
from taskgraph.storage.tables import Insert

SCHEMA: Final = 1
"""Major version of the rows (P23): a handler that knows less leaves the message for a newer one."""

SCHEMA_OF_CONDITIONS: Final = 2
"""The same for the tasks, relays and graph row of a graph that goes on after failures (`conditions`)."""

GRAPH_DIRECT_MAX: Final = 48
"""Leaves that the graph row names itself; more of them, or later ones, are counted down through joins."""

_UNSCHEDULED: Final = str(TaskState.UNSCHEDULED)
_PENDING: Final = str(TaskState.PENDING)
_SUBS_KEY: Final = '"$subs"'  # in JSON; a text that lacks these has nothing to be replaced
_RESULT_KEY: Final = '"$result"'
_THERE: Final = "\x03"  # begins a node that has a row already: its reference follows
_NO_GROUPS: Final[Mapping[str, GroupNode]] = {}
_MEMBERS_OF_ROW: Final = 12_000  # taskIds, of 25 characters each in JSON
_DEFINITION_COLUMN_CHARS: Final = limits.PROPERTY_CHARS_MAX
_TIME_MIN: Final = datetime(YEAR_MIN + 1, 1, 1, tzinfo=UTC)


def schema_for(policy: object) -> int:
    """The schema of the rows of a graph with this failure policy."""
    return SCHEMA_OF_CONDITIONS if policy == FailurePolicy.CONTINUE else SCHEMA


@dataclass(frozen=True, slots=True)
class Link:
    """Edges from a task (or shared join) that exists already: `references` become its dependents."""

    task_id: str
    references: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """Rows to insert, dependents before what they require, so that whoever completes finds all it must tell.

    leaves: references that the graph waits for (one join when asked for, or when there are many).
    roots: taskIds that stand pending from the start and are
    not held back, with their targets.
    top: the row of the join that gathers all leaves, apart from `rows`, or None if the leaves are named directly.
    links: edges from tasks outside the set. mapping: label -> taskId. edges: requirements, as they are kept.
    """

    rows: tuple[Insert, ...]
    top: Insert | None
    leaves: tuple[str, ...]
    roots: tuple[tuple[str, str], ...]
    links: tuple[Link, ...]
    mapping: Mapping[str, str]
    edges: int = 0


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


@dataclass(frozen=True, slots=True)
class KnownGroup:
    """A group that the graph has already. join: the reference of its shared join, "" without; members: taskIds."""

    join: str
    members: tuple[str, ...]


_NONE_KNOWN: Final[Mapping[str, KnownGroup]] = {}


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


def _wired(
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


def _edges(
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
        references[end] = _end_reference(graph_id, end, request)
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


def _end_reference(graph_id: str, end: str, request: str) -> str:
    """The shared join that is an end of a group. request: the request that adds it, "" for the submission."""
    number = "done" if end.startswith(DONE) else "start"
    owner = group_owner(task_id_of(graph_id, name_of(end)))
    return join_reference(owner, f"{request}-{number}" if request else number)


def lay_out(
    graph_id: str,
    nodes: Mapping[str, TaskNode],
    *,
    stamp: str,
    now: datetime,
    request: str = "",
    direct_leaves_max: int = GRAPH_DIRECT_MAX,
    schema: int = SCHEMA,
    groups: Mapping[str, GroupNode] = _NO_GROUPS,
    known: Mapping[str, KnownGroup] = _NONE_KNOWN,
    limited: bool = False,
    priority: str = "",
    routing: str = "",
) -> Layout:
    """Lay new tasks of a graph that runs out as rows.

    nodes: label -> node; requirements outside `nodes` become links. stamp: distinguishes the relays of this request
    from those of others on the same task. request: the request that adds them ("" for the submission).
    direct_leaves_max: up to so many leaves are named directly; 0 forces a gathering join. schema: see `schema_for`.
    groups: new ones, of these tasks. known: groups of the graph that `nodes` or `groups` require. limited: the graph
    has a limit, and these tasks are under it too. priority: of tasks that name none. routing: of the graph.

    Relays take dependents and requirements as they come in the document, and that must stay so: a cursor of a request
    that is under way counts these very rows, and may have been begun by an older version.
    """
    wired = _wired(graph_id, nodes, groups, known)
    order = _dependents_first({**wired.requires, **wired.ends} if wired.ends else wired.requires)
    edges = _edges(
        graph_id,
        nodes,
        stamp=stamp,
        direct_leaves_max=direct_leaves_max,
        by_key=False,
        schema=schema,
        wired=wired,
        request=request,
    )
    mapping = edges.mapping
    inside = grouping.within(groups)

    def resolve(label: str) -> str:
        return mapping.get(label) or task_id_of(graph_id, label)

    def relay(reference: str) -> Insert:
        return relay_row(reference, *edges.relays[reference], schema)

    rows: list[Insert] = [relay(reference) for reference in edges.gathering]
    rows += _group_rows(graph_id, groups, wired, request=request)
    rows += limit_rows(graph_id, 0, groups, now=now, request=request)
    roots: list[tuple[str, str]] = []
    for label in order:
        own = _end_reference(graph_id, label, request) if is_end(label) else mapping[label]
        rows.extend(relay(reference) for reference in edges.forks.get(own, ()))
        if is_end(label):
            rows.append(relay(own))
        else:
            node = nodes[label]
            requires = edges.requires.get(own, ())
            limits_of = _limits_of(graph_id, inside.get(label, ()), groups, whole=limited)
            if not requires and not _held(node, inside.get(label, ()), groups):
                roots.append((own, target_of(node.task)))
            digest = node_digest(node)
            rows.extend(
                _task_rows(
                    node,
                    own,
                    requires,
                    edges.told[own],
                    resolve,
                    now=now,
                    request=request,
                    digest=digest,
                    schema=schema,
                    optional=edges.optional.get(own, ()),
                    inside=inside.get(label, ()),
                    held=_held(node, inside.get(label, ()), groups),
                    limits_of=limits_of,
                    priority=priorities.column(node.priority, priority),
                    routing=routing,
                )
            )
        rows.extend(relay(reference) for reference in edges.joins.get(own, ()))
    return Layout(
        rows=tuple(rows),
        top=edges.top,
        leaves=edges.leaves,
        roots=tuple(roots),
        links=tuple(Link(own, tuple(told)) for own, told in sorted(edges.links.items())),
        mapping=mapping,
        edges=wired.edges,
    )


class GraphLayout:
    """A whole graph as rows, each made when it is asked for: not all of them exist at once.

    leaves: references that the graph waits for. roots: taskIds that stand pending from the start and are not held back,
    with their targets; those that wait for room under a limit are not among them (`limited`: whether there are such).
    not_before: taskId -> the time before which a root must not run, where it has one. levels: taskId -> the level of a
    task, where it is not `normal`. mapping: label -> taskId. count: rows, not counting those of long definitions. cut:
    whether there are relays that share edges out among them. edges: requirements, as they are kept. `rows` is in the
    order of the table, for nobody reads it before all of it is there.
    """

    def __init__(
        self,
        graph_id: str,
        nodes: Mapping[str, TaskNode],
        *,
        now: datetime,
        digests: Mapping[str, str],
        by_key: bool = True,
        direct_leaves_max: int = GRAPH_DIRECT_MAX,
        schema: int = SCHEMA,
        groups: Mapping[str, GroupNode] = _NO_GROUPS,
        max_in_flight: int = 0,
        priority: str = "",
        routing: str = "",
    ) -> None:
        """digests: label -> node_digest. by_key: share edges out to relays in the order of the table.

        What one relay names lies side by side in the table then, for whoever reads it. Older versions took the order
        of the document. direct_leaves_max: up to so many leaves are named directly. schema: see `schema_for`.
        max_in_flight: limit of the whole graph, 0 for none. priority: of tasks that name none. routing: of the graph.
        Raises ValueError for a cycle.
        """
        wired = wire(nodes, groups)
        if not is_acyclic({**wired.requires, **wired.ends} if wired.ends else wired.requires):
            raise ValueError("the tasks have a cycle; validation must come first")
        self._nodes = nodes
        self._now = now
        self._digests = digests
        self._schema = schema
        self._groups = groups
        self._priority = priority
        self._routing = routing
        self._within = grouping.within(groups)
        self._graph_id = graph_id
        self._whole = bool(max_in_flight)
        self._limited = self._whole or any(group.max_in_flight for group in groups.values())
        self._edges = _edges(
            graph_id,
            nodes,
            stamp="0",
            direct_leaves_max=direct_leaves_max,
            by_key=by_key,
            schema=schema,
            wired=wired,
            request="",
        )
        self._group_rows = _group_rows(graph_id, groups, wired, request="")
        self._group_rows += limit_rows(graph_id, max_in_flight, groups, now=now)
        self.edges = wired.edges
        self.mapping: Mapping[str, str] = self._edges.mapping
        self.leaves = self._edges.leaves
        self.cut = bool(self._edges.relays)
        self.count = len(nodes) + len(self._edges.relays) + (self._edges.top is not None) + len(self._group_rows)
        self._labels = sorted(nodes, key=self.mapping.__getitem__)
        ready = [
            label
            for label in self._labels
            if not wired.requires[label] and not _held(nodes[label], self._within.get(label, ()), groups)
        ]
        # What has a time of its own is sent with a delay, limited or not.
        waits = {label for label in ready if self._limits_of(label) and "notBefore" not in nodes[label].timing}
        self.limited = bool(waits)
        self.roots = tuple(
            [(self.mapping[label], target_of(nodes[label].task)) for label in ready if label not in waits]
        )
        self.levels = {
            self.mapping[label]: level
            for label, node in nodes.items()
            if (node.priority or priority) and (level := priorities.column(node.priority, priority))
        }
        self.not_before = {
            self.mapping[label]: moment(node.timing["notBefore"])
            for label, node in nodes.items()
            if node.timing and "notBefore" in node.timing and not node.requires
        }

    def _limits_of(self, label: str) -> list[str]:
        if not self._limited:
            return []
        return _limits_of(self._graph_id, self._within.get(label, ()), self._groups, whole=self._whole)

    def told(self, task_id: str) -> Sequence[str]:
        """The references that a task tells of its completion."""
        return self._edges.told[task_id]

    def rows(self) -> Iterator[Insert]:
        """Every row, in the order of the table; a long definition comes right before its task."""
        edges, mapping, resolve = self._edges, self.mapping, self.mapping.__getitem__
        others: dict[str, Insert | None] = dict.fromkeys(edges.relays)
        others.update((row.key, row) for row in self._group_rows)
        if edges.top is not None:
            others[edges.top.key] = edges.top
        for key in sorted(others):
            yield others[key] or relay_row(key, *edges.relays[key], self._schema)
        for label in self._labels:
            node, own = self._nodes[label], mapping[label]
            yield from _task_rows(
                node,
                own,
                edges.requires.get(own, ()),
                edges.told[own],
                resolve,
                now=self._now,
                request="",
                digest=self._digests[label],
                schema=self._schema,
                optional=edges.optional.get(own, ()),
                inside=self._within.get(label, ()),
                held=_held(node, self._within.get(label, ()), self._groups),
                limits_of=self._limits_of(label),
                priority=priorities.column(node.priority, self._priority),
                routing=self._routing,
            )


def limit_rows(
    graph_id: str, max_in_flight: int, groups: Mapping[str, GroupNode], *, now: datetime, request: str = ""
) -> list[Insert]:
    """A row for each limit on tasks in flight: of the whole graph (0 for none), and of groups that have one."""
    wanted = {"": max_in_flight, **{name: group.max_in_flight for name, group in groups.items()}}
    made: list[Insert] = []
    for name, most in wanted.items():
        if most:
            columns: dict[str, Value] = {"schema": SCHEMA, "max": most, "inFlight": "[]", "moved": now}
            if name:
                columns["label"] = name
            if request:
                columns["request"] = request
            made.append(Insert(limit_key(limit_scope(graph_id, name)), columns))
    return made


def _limits_of(graph_id: str, inside: Sequence[str], groups: Mapping[str, GroupNode], *, whole: bool) -> list[str]:
    """The scopes of the limits that a task is under. inside: names of the groups that it is in."""
    own = [limit_scope(graph_id)] if whole else []
    return own + [limit_scope(graph_id, name) for name in inside if groups[name].max_in_flight]


def _group_rows(graph_id: str, groups: Mapping[str, GroupNode], wired: Wiring, *, request: str) -> list[Insert]:
    """The rows that tell who is in each group: its name, and the ids of all of its tasks, in the order of the table."""
    if not groups:
        return []
    made: list[Insert] = []
    outer = grouping.within(groups)
    for name, labels in grouping.members(groups).items():
        own = task_id_of(graph_id, name)
        ids = sorted(task_id_of(graph_id, label) for label in labels)
        columns: dict[str, Value] = {"schema": SCHEMA, "label": name, "tasks": len(ids)}
        if name in outer:
            columns["groups"] = canonical_json(list(outer[name]))
        if DONE + name in wired.ends:
            columns["join"] = _end_reference(graph_id, DONE + name, request)
        if request:
            columns["request"] = request
        for number, start in enumerate(range(0, len(ids), _MEMBERS_OF_ROW)):
            text = ids_text(ids[start : start + _MEMBERS_OF_ROW])
            key = f"{group_key(own)}:{number:04}" if number else group_key(own)
            made.append(Insert(key, {**columns, **spread("members", text)}))
            columns = {"schema": SCHEMA}
    return made


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
            "state": _UNSCHEDULED,
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


def _held(node: TaskNode, inside: Sequence[str], groups: Mapping[str, GroupNode]) -> list[str]:
    """What holds a task back from the start. inside: names of the groups that it is in."""
    held = [] if node.active else [INACTIVE]
    return held + [by_group(name) for name in inside if not groups[name].active]


def _task_rows(
    node: TaskNode,
    own: str,
    requires: Sequence[str],
    dependents: Sequence[str],
    resolve: Callable[[str], str],
    *,
    now: datetime,
    request: str,
    digest: str,
    schema: int,
    optional: Sequence[str],
    inside: Sequence[str],
    held: Sequence[str],
    limits_of: Sequence[str] = (),
    priority: str = "",
    routing: str = "",
) -> list[Insert]:
    definition = definition_text({**node.task, **timing.for_worker(node.timing)} if node.timing else node.task, resolve)
    requires_text = ids_text(requires)
    columns: dict[str, Value] = {
        "schema": schema,
        "label": node.label,
        "state": _UNSCHEDULED if requires else _PENDING,
        "run": 0,
        "rerunsAllowed": node.reruns,
        "rerunsLeft": node.reruns,
        "retriesLeft": limits.RETRIES_DEFAULT,
        "requires": requires_text,
        "requiresLeft": requires_text,
        "dependents": ids_text(dependents),
        **defined_columns(node.task, routing),
        "digest": digest,
        "created": now,
    }
    if node.when != When.ALL_COMPLETED:
        columns["when"] = str(node.when)
    if optional:
        columns["optional"] = ids_text(optional)
    if request:
        columns["request"] = request
    if inside:
        columns["groups"] = canonical_json(list(inside))
    if not requires:
        columns["pendingSince"] = now
    if held:
        columns["held"] = ids_text(held)
    if limits_of:
        columns["limits"] = ids_text(limits_of)
        columns["limited"] = "yes"  # a query cannot ask whether there is a list
        columns["schema"] = SCHEMA_OF_CONDITIONS  # older versions would claim it beyond its limit
    if priority:
        columns[priorities.COLUMN] = priority
    if node.notify:
        columns[notices.COLUMN] = notices.task_column(node.notify)
    if node.timing:
        columns.update(timing_columns(node.timing))
        columns["schema"] = SCHEMA_OF_CONDITIONS  # older versions would claim it too early
    rows: list[Insert] = []
    if is_short(definition):
        columns["task"] = definition
    else:
        # The row that every transition touches stays small; the long text is read once, by the worker.
        rows.append(definition_row(own, node.label, definition))
    rows.append(Insert(row_key(own), columns))
    return rows


DEFINED_COLUMNS: Final = ("target", "routing", ROUTING_KEY, "workersLostMax", "deadline")
"""What a definition says to others than the worker."""

TIMING_COLUMNS: Final = {"notBefore": "notBefore", "pendingTimeout": "pendingTimeout", "retry": "retry"}
"""Key of a node -> the column that a decision asks for."""


def defined_columns(task: Mapping[str, Any], routing: str) -> dict[str, Value]:
    """What a definition says to others than the worker: its columns on the row of the task. routing: of its graph."""
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


def definition_text(told: Mapping[str, Any], resolve: Callable[[str], str]) -> str:
    """A definition as its worker gets it. resolve: label -> taskId."""
    definition = canonical_json(told)
    if _SUBS_KEY in definition or _RESULT_KEY in definition:
        definition = canonical_json(substitute(told, resolve))
    return definition


def is_short(definition: str) -> bool:
    """Whether a definition stands on the row of its task, and not on one of its own."""
    return utf16_units(definition) <= limits.INLINE_DEFINITION_CHARS_MAX


def definition_row(own: str, label: str, definition: str) -> Insert:
    """The row of a long definition."""
    return Insert(f"definition:{own}", {"schema": SCHEMA, "label": label, **spread("task", definition)})


def timing_columns(said: Mapping[str, Any]) -> dict[str, Value]:
    """What a decision asks of what a node says of time; the rest is for the worker."""
    columns: dict[str, Value] = {}
    if "notBefore" in said:
        columns["notBefore"] = moment(said["notBefore"])
    if "pendingTimeout" in said:
        columns["pendingTimeout"] = float(said["pendingTimeout"])
    if text := timing.retry_text(said.get("retry", {})):
        columns["retry"] = text
    return columns


def first_deadline(nodes: Iterable[TaskNode]) -> datetime | None:
    """The earliest deadline of some tasks, None if none has one."""
    return min((moment(str(text)) for node in nodes if (text := node.task.get("deadline"))), default=None)


def _dependents_first(requirements: Mapping[str, Sequence[str]]) -> list[str]:
    """Nodes in an order in which each comes after all that require it (reverse topological, iterative)."""
    waiting = dict.fromkeys(requirements, 0)  # how many dependents are not placed yet
    for requires in requirements.values():
        for required in requires:
            if required in waiting:
                waiting[required] += 1
    ready = [node for node, count in waiting.items() if count == 0]
    order: list[str] = []
    while ready:
        node = ready.pop()
        order.append(node)
        for required in requirements[node]:
            if required in waiting:
                waiting[required] -= 1
                if waiting[required] == 0:
                    ready.append(required)
    if len(order) != len(requirements):
        raise ValueError("the tasks have a cycle; validation must come first")
    return order


def moment(text: str) -> datetime:
    """The time that a date-time of RFC 3339 names, as a column of time: in UTC, and within what every store keeps.

    A leap second, which no clock of ours has, is the last moment before it; what is earlier than a store can say is
    the first that it can. Raises ValueError for any other text.
    """
    if text[17:19] == "60":
        text = f"{text[:17]}59.999999{text[19:].lstrip('.0123456789')}"
    found = datetime.fromisoformat(text.upper())  # RFC 3339 has `t` and `z` too
    if found.tzinfo is not UTC:
        if found.tzinfo is None:
            raise ValueError(f"{text[:40]!r} names no time zone")
        try:
            found = found.astimezone(UTC)
        except OverflowError as error:
            raise ValueError(f"{text[:40]!r} is outside the years 1 to 9999") from error
    return found if found.year > YEAR_MIN else _TIME_MIN


def name_mapping_rows(mapping: Mapping[str, str], stamp: str) -> list[Insert]:
    """Label -> taskId for people, over as many rows as it takes."""
    rows: list[Insert] = []
    part: list[str] = []
    units = 0
    columns_max = 12  # 12 properties of 32,000 units stay under the bound of a row

    def flush() -> None:
        if part:
            text = "{" + ",".join(part) + "}"
            rows.append(
                Insert(f"name-mapping:{stamp}:{len(rows):04}", {"schema": SCHEMA, **spread("nameMapping", text)})
            )

    for label, own in mapping.items():
        member = f'{encode_basestring(label)}:"{own}"'
        size = utf16_units(member) + 1
        if units + size > columns_max * _DEFINITION_COLUMN_CHARS - 100:
            flush()
            part.clear()
            units = 0
        part.append(member)
        units += size
    flush()
    return rows
