"""The rows of a set of new tasks: derived ids, both directions of every edge, and bounded degree (D5).

What this room is for: turning labels and requirements into rows of which none holds more edges than one commit takes
with ease. A requirement list past `limits.REQUIRES_MAX` becomes a tree of joins, a dependents list past
`limits.DEPENDENTS_MAX` a tree of forks; both are relays: rows that are never executed and pass a completion on. A group
that is required has a join which all that require it share, and a row that tells who is in it. The same document gives
the same rows, so every step of writing them can be repeated. It never reads a store, a clock or a graph's state, and it
is linear in tasks and edges.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from json.encoder import encode_basestring
from typing import Final

from taskgraph.documents import groups as grouping
from taskgraph.documents.canonical import node_digest
from taskgraph.documents.graph_algorithms import is_acyclic
from taskgraph.documents.groups import DONE, Wiring, is_end, wire
from taskgraph.documents.nodes import GroupNode, TaskNode
from taskgraph.model import limits, priorities, timing
from taskgraph.model.columns import Value
from taskgraph.model.ids import group_key, ids_text, limit_key, limit_scope, row_key, task_id_of
from taskgraph.model.json_strict import canonical_json
from taskgraph.model.placement import target_of
from taskgraph.model.states import INACTIVE, TaskState, When, by_group
from taskgraph.model.utf16 import utf16_units
from taskgraph.protocol import notices
from taskgraph.protocol.definitions import (
    DEFINITION_COLUMN_CHARS,
    SCHEMA,
    SCHEMA_OF_CONDITIONS,
    defined_columns,
    definition_row,
    definition_text,
    is_short,
    moment,
    spread,
    timing_columns,
)
from taskgraph.protocol.wiring import (
    NO_GROUPS,
    NONE_KNOWN,
    UNSCHEDULED,
    Edges,
    KnownGroup,
    Link,
    end_reference,
    lay_edges,
    relay_row,
    wire_nodes,
)
from taskgraph.storage.tables import Insert

GRAPH_DIRECT_MAX: Final = 48
"""Leaves that the graph row names itself; more of them, or later ones, are counted down through joins."""

_PENDING: Final = str(TaskState.PENDING)
_MEMBERS_OF_ROW: Final = 12_000  # taskIds, of 25 characters each in JSON


@dataclass(frozen=True, slots=True)
class Layout:
    """Rows to insert, dependents before what they require, so that a completion finds all rows that it counts down.

    leaves: references that the graph waits for (one join when asked for, or when there are many). roots: taskIds that
    stand pending from the start and are not held back, with their targets. top: the row of the join that gathers all
    leaves, apart from `rows`, or None if the leaves are named directly.
    links: edges from tasks outside the set. mapping: label -> taskId. edges: requirements, as they are kept.
    """

    rows: tuple[Insert, ...]
    top: Insert | None
    leaves: tuple[str, ...]
    roots: tuple[tuple[str, str], ...]
    links: tuple[Link, ...]
    mapping: Mapping[str, str]
    edges: int = 0


def lay_out(
    graph_id: str,
    nodes: Mapping[str, TaskNode],
    *,
    stamp: str,
    now: datetime,
    request: str = "",
    direct_leaves_max: int = GRAPH_DIRECT_MAX,
    schema: int = SCHEMA,
    groups: Mapping[str, GroupNode] = NO_GROUPS,
    known: Mapping[str, KnownGroup] = NONE_KNOWN,
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
    wired = wire_nodes(graph_id, nodes, groups, known)
    order = _dependents_first({**wired.requires, **wired.ends} if wired.ends else wired.requires)
    edges = lay_edges(
        graph_id,
        nodes,
        stamp=stamp,
        direct_leaves_max=direct_leaves_max,
        by_key=False,
        schema=schema,
        wired=wired,
        request=request,
    )
    tasks = _Tasks(graph_id, nodes, groups, edges, now, schema, limited, priority, routing, request)

    def relay(reference: str) -> Insert:
        return relay_row(reference, *edges.relays[reference], schema)

    rows: list[Insert] = [relay(reference) for reference in edges.gathering]
    rows += _group_rows(graph_id, groups, wired, request=request)
    rows += limit_rows(graph_id, 0, groups, now=now, request=request)
    roots: list[tuple[str, str]] = []
    for label in order:
        own = end_reference(graph_id, label, request) if is_end(label) else edges.mapping[label]
        rows.extend(relay(reference) for reference in edges.forks.get(own, ()))
        if is_end(label):
            rows.append(relay(own))
        else:
            if not edges.requires.get(own) and not tasks.held(label):
                roots.append((own, target_of(nodes[label].task)))
            rows.extend(tasks.rows(label, node_digest(nodes[label])))
        rows.extend(relay(reference) for reference in edges.joins.get(own, ()))
    return Layout(
        rows=tuple(rows),
        top=edges.top,
        leaves=edges.leaves,
        roots=tuple(roots),
        links=tuple(Link(own, tuple(told)) for own, told in sorted(edges.links.items())),
        mapping=edges.mapping,
        edges=wired.edges,
    )


class GraphLayout:
    """A whole graph as rows, each made when it is asked for: not all of them exist at once.

    leaves: references that the graph waits for. roots: taskIds that stand pending from the start and are not held back,
    with their targets; those that wait for room under a limit are not among them (`limited`: whether there are such).
    not_before: taskId -> the time before which a root must not run, where it has one. levels: taskId -> the level of a
    task, where it is not `normal`. mapping: label -> taskId. count: rows, not counting those of long definitions. cut:
    whether there are relays that share edges out among them. edges: requirements, as they are kept. `rows` is in the
    order of the table, as nothing reads it before all of it is there.
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
        groups: Mapping[str, GroupNode] = NO_GROUPS,
        max_in_flight: int = 0,
        priority: str = "",
        routing: str = "",
    ) -> None:
        """digests: label -> node_digest. by_key: share edges out to relays in the order of the table.

        What one relay names lies side by side in the table then, for its readers. Older versions took the order of the
        document. direct_leaves_max: up to so many leaves are named directly. schema: see `schema_for`.
        max_in_flight: limit of the whole graph, 0 for none. priority: of tasks that name none. routing: of the graph.
        Raises ValueError for a cycle.
        """
        wired = wire(nodes, groups)
        if not is_acyclic({**wired.requires, **wired.ends} if wired.ends else wired.requires):
            raise ValueError("the tasks have a cycle; validation must come first")
        edges = self._edges = lay_edges(
            graph_id,
            nodes,
            stamp="0",
            direct_leaves_max=direct_leaves_max,
            by_key=by_key,
            schema=schema,
            wired=wired,
            request="",
        )
        self._tasks = _Tasks(graph_id, nodes, groups, edges, now, schema, bool(max_in_flight), priority, routing)
        self._digests = digests
        self._group_rows = _group_rows(graph_id, groups, wired, request="")
        self._group_rows += limit_rows(graph_id, max_in_flight, groups, now=now)
        self.edges = wired.edges
        self.mapping: Mapping[str, str] = edges.mapping
        self.leaves = edges.leaves
        self.cut = bool(edges.relays)
        self.count = len(nodes) + len(edges.relays) + (edges.top is not None) + len(self._group_rows)
        self._labels = sorted(nodes, key=self.mapping.__getitem__)
        ready = [label for label in self._labels if not wired.requires[label] and not self._tasks.held(label)]
        # What has a time of its own is sent with a delay, limited or not.
        waits = {label for label in ready if self._tasks.scopes(label) and "notBefore" not in nodes[label].timing}
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

    def told(self, task_id: str) -> Sequence[str]:
        """The references that a task tells of its completion."""
        return self._edges.told[task_id]

    def rows(self) -> Iterator[Insert]:
        """Every row, in the order of the table; a long definition comes right before its task."""
        edges = self._edges
        others: dict[str, Insert | None] = dict.fromkeys(edges.relays)
        others.update((row.key, row) for row in self._group_rows)
        if edges.top is not None:
            others[edges.top.key] = edges.top
        for key in sorted(others):
            yield others[key] or relay_row(key, *edges.relays[key], self._tasks.schema)
        for label in self._labels:
            yield from self._tasks.rows(label, self._digests[label])


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


def _group_rows(graph_id: str, groups: Mapping[str, GroupNode], wired: Wiring, *, request: str) -> list[Insert]:
    """The rows of each group: its name, and the ids of all of its tasks, in the order of the table."""
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
            columns["join"] = end_reference(graph_id, DONE + name, request)
        if request:
            columns["request"] = request
        for number, start in enumerate(range(0, len(ids), _MEMBERS_OF_ROW)):
            text = ids_text(ids[start : start + _MEMBERS_OF_ROW])
            key = f"{group_key(own)}:{number:04}" if number else group_key(own)
            made.append(Insert(key, {**columns, **spread("members", text)}))
            columns = {"schema": SCHEMA}
    return made


@dataclass(slots=True)
class _Tasks:
    """The rows of new tasks.

    limited: the graph has a limit. priority: of tasks that name none. routing: of the graph.
    """

    graph_id: str
    nodes: Mapping[str, TaskNode]
    groups: Mapping[str, GroupNode]
    edges: Edges
    now: datetime
    schema: int
    limited: bool
    priority: str
    routing: str
    request: str = ""
    within: Mapping[str, Sequence[str]] = field(init=False)

    def __post_init__(self) -> None:
        self.within = grouping.within(self.groups)

    def held(self, label: str) -> list[str]:
        """What holds a task back from the start."""
        held = [] if self.nodes[label].active else [INACTIVE]
        return held + [by_group(name) for name in self.within.get(label, ()) if not self.groups[name].active]

    def scopes(self, label: str) -> list[str]:
        """The scopes of the limits that a task is under."""
        own = [limit_scope(self.graph_id)] if self.limited else []
        inside = self.within.get(label, ())
        return own + [limit_scope(self.graph_id, name) for name in inside if self.groups[name].max_in_flight]

    def rows(self, label: str, digest: str) -> list[Insert]:
        """The row of a task, and before it the row of its definition where that is long."""
        node, own = self.nodes[label], self.edges.mapping[label]
        requires = self.edges.requires.get(own, ())
        requires_text = ids_text(requires)
        columns: dict[str, Value] = {
            "schema": self.schema,
            "label": label,
            "state": UNSCHEDULED if requires else _PENDING,
            "run": 0,
            "rerunsAllowed": node.reruns,
            "rerunsLeft": node.reruns,
            "retriesLeft": limits.RETRIES_DEFAULT,
            "requires": requires_text,
            "requiresLeft": requires_text,
            "dependents": ids_text(self.edges.told[own]),
            **defined_columns(node.task, self.routing),
            "digest": digest,
            "created": self.now,
        }
        if node.when != When.ALL_COMPLETED:
            columns["when"] = str(node.when)
        if optional := self.edges.optional.get(own):
            columns["optional"] = ids_text(optional)
        if self.request:
            columns["request"] = self.request
        if inside := self.within.get(label):
            columns["groups"] = canonical_json(list(inside))
        if not requires:
            columns["pendingSince"] = self.now
        if held := self.held(label):
            columns["held"] = ids_text(held)
        if limits_of := self.scopes(label):
            columns["limits"] = ids_text(limits_of)
            columns["limited"] = "yes"  # a query cannot ask whether there is a list
            columns["schema"] = SCHEMA_OF_CONDITIONS  # older versions would claim it beyond its limit
        if priority := priorities.column(node.priority, self.priority):
            columns[priorities.COLUMN] = priority
        if node.notify:
            columns[notices.COLUMN] = notices.task_column(node.notify)
        if node.timing:
            columns.update(timing_columns(node.timing))
            columns["schema"] = SCHEMA_OF_CONDITIONS  # older versions would claim it too early
        task = {**node.task, **timing.for_worker(node.timing)} if node.timing else node.task
        definition = definition_text(task, self._resolve)
        if is_short(definition):
            return [Insert(row_key(own), {**columns, "task": definition})]
        # The row that every transition touches stays small; the long text is read once, by the worker.
        return [definition_row(own, label, definition), Insert(row_key(own), columns)]

    def _resolve(self, label: str) -> str:
        return self.edges.mapping.get(label) or task_id_of(self.graph_id, label)


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
        if units + size > columns_max * DEFINITION_COLUMN_CHARS - 100:
            flush()
            part.clear()
            units = 0
        part.append(member)
        units += size
    flush()
    return rows
