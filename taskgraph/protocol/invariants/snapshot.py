"""The rows of a graph as one look has read them, with what every rule asks of them: nodes, edges, labels."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeGuard

from taskgraph.model import ids
from taskgraph.model.columns import Columns, Value, integer
from taskgraph.model.ids import (
    GRAPH,
    edge_name_of,
    is_relay,
    owner_of,
    reference_of,
    row_key,
)
from taskgraph.model.states import FailurePolicy, GraphState, TaskState
from taskgraph.protocol.conditions import may_skip, passes_on
from taskgraph.protocol.definitions import SCHEMA, gathered
from taskgraph.protocol.invariants.findings import NAMED_MAX, Finding, Patch, Repair, finding
from taskgraph.protocol.propagation import RECALL
from taskgraph.protocol.tally import FAILED as FAILED_GROUP
from taskgraph.storage.tables import Row

FAILED: Final = frozenset({TaskState.FAILED, TaskState.EXCEPTION})


@dataclass(frozen=True, slots=True)
class Node:
    """A row with edges. A list is None where its column cannot be read.

    resolved: its dependents count it off: it completed, was skipped, or failed and passes that on.
    """

    reference: str
    row: Row
    state: str
    requires: list[str] | None
    left: list[str] | None
    dependents: list[str] | None
    resolved: bool

    @property
    def waits(self) -> bool:
        """Whether its state is one in which it waits for requirements."""
        if self.reference == GRAPH:
            return self.state in (GraphState.RUNNING, GraphState.BLOCKED)
        return self.state == TaskState.UNSCHEDULED

    @property
    def begun(self) -> bool:
        """Whether it is beyond pending, or pending in a later run than its first."""
        return self.state != TaskState.PENDING or (not is_relay(self.reference) and self.row.columns.get("run") != 0)

    @property
    def never_began(self) -> bool:
        """Whether its run was resolved while it waited: nothing of it ran, so nothing that it requires had to end.

        A run that ends past its deadline gives up its claim, and `started` stays from a run to the next: then the two
        differ in whether the last run of `runs` started at that time.
        """
        columns = self.row.columns
        if self.state != TaskState.EXCEPTION or columns.get("claim"):
            return False
        started, runs = columns.get("started"), read_json(columns.get("runs", ""))
        last = runs[-1] if isinstance(runs, list) and runs else None
        before = last.get("started") if isinstance(last, dict) else None
        return not isinstance(started, datetime) or started.isoformat() == before


def read_json(text: Value) -> object:
    """The value that a column holds as JSON, None where it cannot be read."""
    if text == "[]":
        return []  # most lists of most rows: a parser would take longer to begin
    try:
        return json.loads(text) if isinstance(text, str) else None
    except ValueError:
        return None


def is_number(value: Value | None) -> TypeGuard[int]:
    """Whether a column holds a whole number."""
    return isinstance(value, int) and not isinstance(value, bool)


class Snapshot:
    """All rows of a graph, indexed.

    steady: the graph row did not change while they were read, and no extension is half in: counts mean something.
    upstream: reference -> name of what it requires -> the rows (of that node, or its forks) that name it as dependent.
    forks: name -> its forks. unreadable: tasks and joins whose dependents cannot all be read.
    opened: requests that are being brought in.
    edges: how many there are, by both ends. half_named: tasks with an edge that only one end names.
    """

    def __init__(self, graph_id: str, rows: Mapping[str, Row], now: datetime, *, steady: bool) -> None:
        self.graph_id = graph_id
        self.rows = rows
        self.now = now
        self.nodes: dict[str, Node] = {}
        # A graph may have millions of edges, and each is named at both ends: every reference is one text, wherever it
        # stands, and what is kept for an edge is small.
        self.upstream: dict[str, dict[str, tuple[Node, ...]]] = {}
        texts: dict[str, str] = {}
        self.forks: dict[str, list[str]] = {}
        graph_row = rows.get(GRAPH)
        self.policy = graph_row.columns.get("failurePolicy", FailurePolicy.BLOCK) if graph_row is not None else ""
        columns: Columns = graph_row.columns if graph_row is not None else {}
        self.goes_on = self.policy == FailurePolicy.CONTINUE
        own = ("failurePolicy" in row.columns for key, row in rows.items() if key.startswith("task:"))
        self.may_skip = may_skip(columns.get) or any(own)
        self.ended = "ended" if self.may_skip else "completed"
        self._outcomes: dict[str, tuple[bool, bool] | None] = {}
        self.unreadable: set[str] = set()
        for key, row in rows.items():
            if key == GRAPH or key.startswith(("task:", "join:", "fork:")):
                node = _node(row, texts, columns, may_skip=self.may_skip)
                self.nodes[node.reference] = node
                name, alone = edge_name_of(node.reference), (node,)
                if key.startswith("fork:"):
                    self.forks.setdefault(name, []).append(key)
                # A fork that is named and not there may be younger than the scan: its dependents are not known.
                if node.dependents is None or any(
                    each.startswith("fork:") and each not in rows for each in node.dependents
                ):
                    self.unreadable.add(name)
                name = texts.setdefault(name, name)
                for below in node.dependents or ():
                    above = self.upstream.setdefault(below, {})
                    above[name] = above[name] + alone if name in above else alone
        self.graph = self.nodes.get(GRAPH)
        self.tasks = [node for reference, node in self.nodes.items() if reference != GRAPH and not is_relay(reference)]
        # The graph row names the extension that is under way, and every finding rests on that row. Heads of requests
        # only add to what is excused.
        self.opened = {
            key.removeprefix("request:")
            for key, row in rows.items()
            if key.startswith("request:") and row.columns.get("state") == "accepted"
        }
        if self.graph is not None and (extending := self.graph.row.columns.get("extending")):
            self.opened.add(str(extending))
        self.steady = steady and not self.opened
        self.half_named: set[str] = set()
        self.edges = 0
        if self.steady:
            self._add_up_edges()

    def _add_up_edges(self) -> None:
        """Edges (task or shared join, what it requires) as both ends name them; pieces and forks are looked through."""
        below: dict[str, set[str]] = {}
        above: dict[str, set[str]] = {}
        for node in self.nodes.values():
            owner = owner_of(node.reference)
            shared = ids.is_shared(node.reference)
            if owner != GRAPH and not node.reference.startswith("fork:"):
                below.setdefault(owner, set()).update(each for each in node.requires or () if not ids.is_piece(each))
            if owner != GRAPH and (shared or not node.reference.startswith("join:")):
                for each in node.dependents or ():
                    if not each.startswith("fork:") and (dependent := owner_of(each)) != GRAPH:
                        above.setdefault(dependent, set()).add(owner)
        for owner in below.keys() | above.keys():
            requires, named_by = below.pop(owner, set()), above.pop(owner, set())
            self.edges += len(requires | named_by)
            self.half_named |= requires ^ named_by

    @property
    def certain_edges(self) -> bool:
        """Whether the edges that at least one end names are, by their number, all that were ever submitted."""
        return self.steady and self.graph is not None and self.graph.row.columns.get("edges") == self.edges

    def label(self, reference: str) -> str:
        """What a person calls this row."""
        if reference == GRAPH:
            return "the graph"
        if is_relay(reference):
            kind, group = reference.partition(":")[0], ids.group_of(reference)
            if not group:
                return f"{kind} of {self.label(owner_of(reference))}"
            row = self.rows.get(ids.group_key(group))
            return f"{kind} of group “{row.columns.get('label', group) if row else group}”"
        node = self.nodes.get(reference)
        return f"“{node.row.columns.get('label', reference)}”" if node else reference

    def labels(self, references: Iterable[str]) -> str:
        """Some of them by name, the rest by number."""
        every = sorted(self.label(each) for each in references)
        shown = ", ".join(every[:NAMED_MAX])
        return shown if len(every) <= NAMED_MAX else f"{shown} and {len(every) - NAMED_MAX:,} more"

    def find(
        self, name: str, key: str, text: str, *, keys: Iterable[str] = (), repair: Repair | None = None, **more: Any
    ) -> Finding:
        """A finding of a kind (`findings.finding`) about a row. Each rests on the graph row, too."""
        reference = reference_of(key)
        label = self.label(reference).strip("“”") if reference in self.nodes else ""
        return finding(name, self.graph_id, key, label, text, keys={GRAPH, key, *keys}, repair=repair, **more)

    def patch(self, columns: Mapping[str, Mapping[str, Value]], hold: Iterable[str] = (), **more: Any) -> Patch:
        """A patch of rows that exist, under the etags that were read."""
        keys = dict.fromkeys([*columns, *hold])
        return Patch(columns, {key: self.rows[key].etag for key in keys}, **more)

    def patch_ready(self, node: Node, columns: Mapping[str, Value], hold: Iterable[str] = ()) -> Patch:
        """The same, of one task, which becomes ready and is sent."""
        row = node.row
        ready = node.reference, integer(row.columns, "run"), str(row.columns.get("target", "default"))
        return self.patch({row.key: {**columns, "pendingSince": self.now}}, hold, ready=ready)

    def is_open(self, reference: str) -> bool:
        """Whether this row belongs to an extension that is being brought in: its edges are not complete yet."""
        if not self.opened or reference == GRAPH:
            return False
        if is_relay(reference):
            stamp = reference.split(":", 2)[2]
            if any(stamp.startswith(request) for request in self.opened):
                return True
            owner = owner_of(reference)
            return owner not in (GRAPH, reference) and self.is_open(owner)
        node = self.nodes.get(reference)
        return node is None or node.row.columns.get("request") in self.opened

    def upstream_rows(self, below: str, name: str) -> tuple[Node, ...]:
        return self.upstream.get(below, {}).get(name, ())

    def upstream_keys(self, below: str, names: Iterable[str]) -> list[str]:
        return [each.row.key for name in names for each in self.upstream_rows(below, name)]

    def done(self, below: str, name: str) -> bool | None:
        """Whether a requirement of `below` is fulfilled: one of its rows is resolved. None without such a row.

        None also while one was reset, and may not have taken its end back from `below`.
        """
        above = self.upstream_rows(below, name)
        if any(each.row.columns.get("due") == RECALL for each in above):
            return None
        if above and self.nodes[below].row.columns.get("decidedBy") == name:
            return bool(above[0].row.columns.get("announced"))  # a group may be decided before all of it has ended
        return any(each.resolved for each in above) if above else None

    def edge_keys(self, below: str, names: Iterable[str]) -> list[str]:
        """Keys of all rows that could be upstream of `below` for these names, and of those that are."""
        keys: dict[str, None] = {}
        for name in names:
            keys[row_key(name)] = None
            keys.update(dict.fromkeys((*self.forks.get(name, ()), *self.upstream_keys(below, (name,)))))
        return list(keys)

    def outcome(self, name: str) -> tuple[bool, bool] | None:
        """Whether any task failed, and was skipped, that a requirement stands for; None while it is open."""
        if name not in self._outcomes:
            node = self.nodes.get(name)
            found: tuple[bool, bool] | None = None
            if node is not None and "decides" in node.row.columns:
                announced = node.row.columns.get("announced")
                found = (announced == FAILED_GROUP, False) if announced else None
            elif node is not None and is_relay(name):
                inside = [self.outcome(each) for each in node.requires or ()] if node.resolved else [None]
                known = [each for each in inside if each is not None]
                if len(known) == len(inside):
                    found = any(failed for failed, _ in known), any(skipped for _, skipped in known)
            elif node is not None and node.resolved:
                found = node.state in FAILED, node.state == TaskState.SKIPPED
            self._outcomes[name] = found
        return self._outcomes[name]


def _node(row: Row, texts: dict[str, str], graph: Columns, *, may_skip: bool) -> Node:
    def references(name: str) -> list[str] | None:
        value = row.columns.get(name)
        if value is None and name == "dependents" and row.key == GRAPH:
            return []
        found = read_json(value) if value is not None else None
        if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
            return None
        return [texts.setdefault(each, each) for each in found]

    state = str(row.columns.get("state", ""))
    resolved = state == TaskState.COMPLETED or (may_skip and state == TaskState.SKIPPED)
    resolved = resolved or (state in FAILED and passes_on(graph.get, row.columns.get))
    requires, left, dependents = map(references, ("requires", "requiresLeft", "dependents"))
    return Node(reference_of(row.key), row, state, requires, left, dependents, resolved)


def slim(row: Row) -> Row:
    """The row without the long texts that no rule looks at, once it is known that they can be read.

    Of a definition its target and host are kept. The etag stays, so what is found in it can be held against the store.
    """
    columns = dict(row.columns)
    if row.key.startswith("definition:"):
        text = gathered(columns, "task")
        columns = {name: value for name, value in columns.items() if not name.startswith("task")}
        columns["task"] = text
    elif row.key.startswith("request:") and row.key.count(":") > 1:
        return Row(row.key, row.etag, {"schema": columns.get("schema", SCHEMA)})
    if row.key.startswith(("task:", "definition:")):
        found = read_json(columns.get("task", ""))
        if isinstance(found, dict):
            columns["task"] = json.dumps({name: found[name] for name in ("target", "host") if name in found})
    for name in ("runs", "events") if row.key != GRAPH else ():
        if name in columns and isinstance(read_json(columns[name]), list):
            columns[name] = "[]"
    return Row(row.key, row.etag, columns)
