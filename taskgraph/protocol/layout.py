"""The rows of a set of new tasks: derived ids, both directions of every edge, and bounded degree (D5).

A group that is required has a join which all that require it share, and a row that lists its tasks. The same document
gives the same rows, so every step of writing them can be repeated. All is linear in tasks and edges.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Any, Final

from taskgraph.documents import groups as grouping
from taskgraph.documents.canonical import node_digest, success_object
from taskgraph.documents.graph_algorithms import distances, is_acyclic
from taskgraph.documents.groups import ALL, DONE, is_end
from taskgraph.documents.nodes import GroupNode, TaskNode
from taskgraph.model import limits, priorities, timing
from taskgraph.model.columns import Value
from taskgraph.model.ids import group_key, ids_text, limit_key, limit_scope, row_key, task_id_of, value
from taskgraph.model.json_strict import canonical_json
from taskgraph.model.placement import target_of
from taskgraph.model.states import INACTIVE, FailurePolicy, TaskState, When, by_group
from taskgraph.model.utf16 import utf16_units
from taskgraph.protocol import definitions, notices, wiring
from taskgraph.protocol.definitions import SCHEMA, moment
from taskgraph.protocol.wiring import NOTHING, Edges, Grown, KnownGroup, Link, end_reference, growth_reference
from taskgraph.storage.tables import Insert

if TYPE_CHECKING:
    from taskgraph.documents.nodes import GraphDocument

GRAPH_DIRECT_MAX: Final = 48
"""Leaves that the graph row names itself; more of them, or later ones, go over joins."""

WRITTEN: Final = "written"
"""Key of the row that has what stood in the places of parameters."""

PASSES_ON: Final = "passesOn"
"""Column of a group of which some tasks do not follow the policy of the graph: whether all pass their failures on."""

_PENDING: Final = str(TaskState.PENDING)
_ALL_COMPLETED: Final = When.ALL_COMPLETED.value
_NONE: Final = ids_text(())
_MEMBERS_OF_ROW: Final = 12_000  # taskIds, of 25 characters each in JSON
_TEXTS_OF_ROW: Final = 12 * limits.PROPERTY_CHARS_MAX - 100  # UTF-16 units that stay under the bound of a row


@value
class Layout:
    """Rows to insert, dependents before what they require, so that a completion finds all rows that it counts down.

    leaves: references that the graph waits for (one join when asked for, or when there are many). top: the row of the
    join that gathers all leaves, apart from `rows`, or None if the leaves are named directly. links: edges from tasks
    outside the set. mapping: label -> taskId. edges: requirements, as they are kept. pieces: shared join of a group
    that grows -> the row that gathers its new tasks, apart from `rows`. group_policies: groups have some tasks follow
    another failure policy than the graph.
    """

    rows: tuple[Insert, ...]
    top: Insert | None
    leaves: tuple[str, ...]
    links: tuple[Link, ...]
    mapping: Mapping[str, str]
    edges: int = 0
    pieces: Mapping[str, Insert] = field(default_factory=dict)
    group_policies: bool = False


def lay_out(
    graph_id: str,
    nodes: Mapping[str, TaskNode],
    *,
    stamp: str,
    now: datetime,
    request: str = "",
    direct_leaves_max: int = GRAPH_DIRECT_MAX,
    schema: int = SCHEMA,
    groups: Mapping[str, GroupNode] = NOTHING,
    known: Mapping[str, KnownGroup] = NOTHING,
    grown: Mapping[str, Grown] = NOTHING,
    limited: bool = False,
    priority: str = "",
    routing: str = "",
    policy: str = FailurePolicy.BLOCK.value,
) -> Layout:
    """The rows of new tasks of a graph that runs.

    nodes: label -> node; requirements outside `nodes` become links. stamp: distinguishes the relays of this request
    from those of others on the same task. request: the one that adds them ("" for the submission). direct_leaves_max:
    up to so many leaves are named directly; 0 forces a gathering join. schema: see `schema_for`. groups: new ones, of
    these tasks, and with their new tasks those that grow. known: groups of the graph that `nodes` or `groups` require.
    grown: those that get tasks. limited: the graph has a limit, and these tasks are under it too. priority: of tasks
    that name none. routing, policy: of the graph.

    Relays take dependents and requirements as they come in the document, and that must stay so: a cursor of a request
    that is under way counts these very rows, and may have been begun by an older version.
    """
    wired = wiring.wire_nodes(graph_id, nodes, groups, known, grown)
    order = _dependents_first({**wired.requires, **wired.ends} if wired.ends else wired.requires)
    policies = grouping.own_policies(groups, policy)
    schema = max(schema, definitions.schema_for(policy, group_policies=bool(policies)))
    edges = wiring.lay_edges(
        graph_id, nodes, wired, stamp, direct_leaves_max, schema, request=request, groups=groups, grown=grown
    )
    more = (priority, routing, policy, policies, request, grown)
    tasks = _Tasks(graph_id, nodes, groups, edges, now, schema, limited, *more)
    rows = [edges.relay_row(reference) for reference in edges.gathering]
    rows += tasks.group_rows(wired.ends)
    rows += tasks.limit_rows(0)
    pieces: dict[str, Insert] = {}
    for label in order:
        growing = grown.get(grouping.name_of(label)) if is_end(label) else None
        if growing is not None:
            own = growth_reference(growing.join, request)
            pieces[growing.join] = edges.relay_row(own)
            rows.extend(map(edges.relay_row, edges.joins.get(own, ())))
            continue
        own = end_reference(graph_id, label, request) if is_end(label) else edges.mapping[label]
        rows.extend(map(edges.relay_row, edges.forks.get(own, ())))
        if is_end(label):
            rows.append(edges.relay_row(own))
        else:
            rows.extend(tasks.rows(label, node_digest(nodes[label])))
        rows.extend(map(edges.relay_row, edges.joins.get(own, ())))
    links = tuple(Link(own, tuple(dependents)) for own, dependents in sorted(edges.links.items()))
    return Layout(tuple(rows), edges.top, edges.leaves, links, edges.mapping, wired.edges, pieces, bool(policies))


class GraphLayout:
    """A whole graph as rows, each made when it is asked for: not all of them exist at once.

    leaves: references that the graph waits for. roots: (taskId, target) of tasks that stand pending from the start and
    are not held back, without those that wait for room under a limit (`limited`: whether there are such). not_before:
    taskId -> the time before which a root must not run, where it has one. levels: taskId -> the level of a task, where
    it is not `normal`. mapping: label -> taskId. count: rows, without those of long definitions. cut: whether there are
    relays. edges: requirements, as they are kept. group_policies: see `Layout`.
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
        groups: Mapping[str, GroupNode] = NOTHING,
        max_in_flight: int = 0,
        priority: str = "",
        routing: str = "",
        policy: str = FailurePolicy.BLOCK.value,
    ) -> None:
        """digests: label -> node_digest. by_key: relays share edges out in the order of the table.

        So what one relay names lies side by side in the table. Older versions took the order of the document.
        max_in_flight: limit of the whole graph, 0 for none. The rest: see `lay_out`. Raises ValueError for a cycle.
        """
        wired = wiring.wire_nodes(graph_id, nodes, groups)
        self._requires = {**wired.requires, **wired.ends} if wired.ends else wired.requires
        if not is_acyclic(self._requires):
            raise ValueError("the tasks have a cycle; validation must come first")
        policies = grouping.own_policies(groups, policy)
        self.group_policies = bool(policies)
        schema = max(schema, definitions.schema_for(policy, group_policies=self.group_policies))
        edges = self._edges = wiring.lay_edges(
            graph_id, nodes, wired, "0", direct_leaves_max, schema, by_key=by_key, groups=groups
        )
        limited = bool(max_in_flight)
        self._tasks = _Tasks(graph_id, nodes, groups, edges, now, schema, limited, priority, routing, policy, policies)
        self._digests = digests
        self._group_rows = self._tasks.group_rows(wired.ends) + self._tasks.limit_rows(max_in_flight)
        self.edges = wired.edges
        self.mapping: Mapping[str, str] = edges.mapping
        self.leaves = edges.leaves
        self.cut = bool(edges.relays)
        self.count = len(nodes) + len(edges.relays) + (edges.top is not None) + len(self._group_rows)
        self._labels = sorted(nodes, key=self.mapping.__getitem__)
        ready = [label for label in self._labels if not wired.requires[label]]
        if self._tasks.any_held:
            ready = [label for label in ready if not self._tasks.held(label)]
        waits: set[str] = set()
        if self._tasks.any_limited:  # what has a time of its own is sent with a delay, limited or not
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

    def dependents(self, task_id: str) -> Sequence[str]:
        return self._edges.dependents[task_id]

    def rows(self) -> Iterator[Insert]:
        """Relays and groups, then tasks by their distance from a root, each in the order of the table.

        The embedded store keeps rows as they came, so what stands ready together lies on few pages. A long definition
        comes right before its task.
        """
        edges = self._edges
        others: dict[str, Insert | None] = dict.fromkeys(edges.relays)
        others.update((row.key, row) for row in self._group_rows)
        if edges.top is not None:
            others[edges.top.key] = edges.top
        for key in sorted(others):
            yield others[key] or edges.relay_row(key)
        distance = distances(self._requires)
        for label in sorted(self._labels, key=distance.__getitem__):
            yield from self._tasks.rows(label, self._digests[label])


@dataclass(slots=True)
class _Tasks:
    """The rows of new tasks, and of their groups and limits. policies: `own_policies`; others: see `lay_out`."""

    graph_id: str
    nodes: Mapping[str, TaskNode]
    groups: Mapping[str, GroupNode]
    edges: Edges
    now: datetime
    schema: int
    limited: bool
    priority: str
    routing: str
    policy: str
    policies: Mapping[str, str]
    request: str = ""
    grown: Mapping[str, Grown] = field(default_factory=dict)
    within: Mapping[str, Sequence[str]] = field(init=False)
    _held: AbstractSet[str] = field(init=False)
    _limited: AbstractSet[str] = field(init=False)
    _usual: dict[str, Value] = field(init=False)

    def __post_init__(self) -> None:
        self.within = within(self.groups, self.grown)
        grown = self.grown.values()
        self._held = {name for name, group in self.groups.items() if not group.active}.union(*(g.held for g in grown))
        limited = {name for name, group in self.groups.items() if group.max_in_flight}
        self._limited = limited.union(*(each.limited for each in grown))
        self._usual = self._first_columns({})

    @property
    def any_held(self) -> bool:
        """Whether any of them is held back."""
        return bool(self._held) or not all(node.active for node in self.nodes.values())

    @property
    def any_limited(self) -> bool:
        """Whether any of them is under a limit."""
        return self.limited or bool(self._limited)

    def held(self, label: str) -> list[str]:
        held = [] if self.nodes[label].active else [INACTIVE]
        return held + [by_group(name) for name in self.within.get(label, ()) if name in self._held]

    def scopes(self, label: str) -> list[str]:
        own = [limit_scope(self.graph_id)] if self.limited else []
        return own + [limit_scope(self.graph_id, name) for name in self.within.get(label, ()) if name in self._limited]

    def rows(self, label: str, digest: str) -> list[Insert]:
        """The row of a task, and before it the row of its definition where that is long."""
        node, own = self.nodes[label], self.edges.mapping[label]
        columns = self._usual.copy() if definitions.is_usual(node.task) else self._first_columns(node.task)
        columns["label"] = label
        if requires := self.edges.requires.get(own, ()):
            columns["state"] = wiring.UNSCHEDULED
            columns["requires"] = columns["requiresLeft"] = ids_text(requires)
        if dependents := self.edges.dependents[own]:
            columns["dependents"] = ids_text(dependents)
        if node.reruns:
            columns["rerunsAllowed"] = columns["rerunsLeft"] = node.reruns
        columns["digest"] = digest
        if node.when != _ALL_COMPLETED:
            columns["when"] = str(node.when)
        if optional := self.edges.optional.get(own):
            columns["optional"] = ids_text(optional)
        if self.request:
            columns["request"] = self.request
        inside = self.within.get(label)
        if inside:
            columns["groups"] = canonical_json(list(inside))
        if policy := self.policies.get(label):
            columns["failurePolicy"] = policy
        if not requires:
            columns["pendingSince"] = self.now
        if (inside or not node.active) and (held := self.held(label)):
            columns["held"] = ids_text(held)
        if (inside or self.limited) and (limits_of := self.scopes(label)):
            columns["limits"] = ids_text(limits_of)
            columns["limited"] = "yes"  # a query cannot ask whether there is a list
            columns["schema"] = definitions.SCHEMA_OF_CONDITIONS  # older versions would claim it beyond its limit
        if (node.priority or self.priority) and (level := priorities.column(node.priority, self.priority)):
            columns[priorities.COLUMN] = level
        if node.notify:
            columns[notices.COLUMN] = notices.task_column(node.notify)
        if node.timing:
            columns.update(definitions.timing_columns(node.timing))
            columns["schema"] = definitions.SCHEMA_OF_CONDITIONS  # older versions would claim it too early
        task = {**node.task, **timing.for_worker(node.timing)} if node.timing else node.task
        definition = definitions.definition_text(task, self._resolve)
        if definitions.is_short(definition):
            columns["task"] = definition
            return [Insert(row_key(own), columns)]
        # The row that every transition touches stays small; the long text is read once, by the worker.
        return [definitions.definition_row(own, label, definition), Insert(row_key(own), columns)]

    def _first_columns(self, task: Mapping[str, Any]) -> dict[str, Value]:
        """What the row of every task has, in its order: of a task without edges that may not run again."""
        return {
            "schema": self.schema,
            "label": "",
            "state": _PENDING,
            "run": 0,
            "rerunsAllowed": 0,
            "rerunsLeft": 0,
            "retriesLeft": limits.RETRIES_DEFAULT,
            "requires": _NONE,
            "requiresLeft": _NONE,
            "dependents": _NONE,
            **definitions.defined_columns(task, self.routing),
            "digest": "",
            "created": self.now,
        }

    def _resolve(self, label: str) -> str:
        return self.edges.mapping.get(label) or task_id_of(self.graph_id, label)

    def limit_rows(self, max_in_flight: int) -> list[Insert]:
        """A row for each limit: of the whole graph (0 for none), and of groups that have one."""
        wanted = {"": max_in_flight, **{name: group.max_in_flight for name, group in self.groups.items()}}
        made: list[Insert] = []
        for name, most in wanted.items():
            if most:
                columns: dict[str, Value] = {"schema": SCHEMA, "max": most, "inFlight": "[]", "moved": self.now}
                if name:
                    columns["label"] = name
                if self.request:
                    columns["request"] = self.request
                made.append(Insert(limit_key(limit_scope(self.graph_id, name)), columns))
        return made

    def group_rows(self, ends: Container[str]) -> list[Insert]:
        """The rows of each group: its name, and the ids of all of its tasks, in the order of the table.

        ends: of groups that are required.
        """
        made: list[Insert] = []
        for name, labels in self._members().items():
            own = task_id_of(self.graph_id, name)
            ids = sorted(task_id_of(self.graph_id, label) for label in labels)
            if name not in self.groups or name in self.grown:
                made += self._further_rows(group_key(own), ids)
                continue
            columns: dict[str, Value] = {"schema": SCHEMA, "label": name, "tasks": len(ids)}
            if name in self.within:
                columns["groups"] = canonical_json(list(self.within[name]))
            if DONE + name in ends:
                columns["join"] = end_reference(self.graph_id, DONE + name, self.request)
            if self.groups[name].grows:
                columns["grows"] = True
            if (success := self.groups[name].success) is not None:
                columns["success"] = canonical_json(success_object(success))
                columns["tally"] = end_reference(self.graph_id, ALL + name, self.request)
            if policy := self.groups[name].failure_policy:
                columns["failurePolicy"] = str(policy)
            if not self.policies.keys().isdisjoint(labels):
                said = {self.policies.get(label, self.policy) for label in labels}
                columns[PASSES_ON] = said == {FailurePolicy.CONTINUE}
            if self.request:
                columns["request"] = self.request
            for number, start in enumerate(range(0, len(ids), _MEMBERS_OF_ROW)):
                text = ids_text(ids[start : start + _MEMBERS_OF_ROW])
                key = f"{group_key(own)}:{number:04}" if number else group_key(own)
                made.append(Insert(key, {**columns, **definitions.spread("members", text)}))
                columns = {"schema": SCHEMA}
        return made

    def _members(self) -> dict[str, Sequence[str]]:
        """Name of a group -> labels of the new tasks in it, also of groups around those that grow."""
        found: dict[str, Sequence[str]] = dict(grouping.members(self.groups))
        for name, group in self.grown.items():
            for outer in group.around:
                found[outer] = list(dict.fromkeys((*found.get(outer, ()), *found[name])))
        return found

    def _further_rows(self, key: str, ids: Sequence[str]) -> Iterator[Insert]:
        """The rows of a group that is there for its new tasks."""
        for number, start in enumerate(range(0, len(ids), _MEMBERS_OF_ROW)):
            members = definitions.spread("members", ids_text(ids[start : start + _MEMBERS_OF_ROW]))
            columns: dict[str, Value] = {"schema": SCHEMA, "request": self.request, **members}
            yield Insert(f"{key}:{self.request}-{number:04}", columns)


def within(groups: Mapping[str, GroupNode], grown: Mapping[str, Grown]) -> dict[str, tuple[str, ...]]:
    """Label or name of a group of a document -> all groups that it is in, those of the graph too."""
    found = grouping.within(groups)
    if grown:
        for each, inside in found.items():
            outer = {name for group in inside if group in grown for name in grown[group].around}
            if outer:
                found[each] = tuple(sorted(outer.union(inside)))
    return found


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
    units_max = _TEXTS_OF_ROW
    parts: list[list[str]] = []
    units = units_max
    for label, own in mapping.items():
        member = f'{encode_basestring(label)}:"{own}"'
        size = utf16_units(member) + 1
        if units + size > units_max:
            parts.append([])
            units = 0
        parts[-1].append(member)
        units += size
    rows: list[Insert] = []
    for number, part in enumerate(parts):
        text = definitions.spread("nameMapping", "{" + ",".join(part) + "}")
        rows.append(Insert(f"name-mapping:{stamp}:{number:04}", {"schema": SCHEMA, **text}))
    return rows


def written_rows(document: "GraphDocument") -> list[Insert]:
    """What was written in the places of parameters, so that a graph can be submitted again with other values.

    One row, or none: where no task names a parameter, or it would not fit.
    """
    if not document.written:
        return []
    texts = {"params": canonical_json(document.params), "tasks": canonical_json(document.written)}
    if sum(map(utf16_units, texts.values())) > _TEXTS_OF_ROW:
        return []
    columns = {name: piece for each, text in texts.items() for name, piece in definitions.spread(each, text).items()}
    return [Insert(WRITTEN, {"schema": SCHEMA, **columns})]
