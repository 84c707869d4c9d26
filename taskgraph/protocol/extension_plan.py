"""Plan an extension: what forbids it, its rows, and its next step (rules: `protocol.extension`).

A plan is valid for one revision of the graph. Once the extension is accepted no other can be, so every plan made from
then on, at whatever cursor, has the same rows in the same order. What holds or limits the tasks is that of the moment:
what changes after it is settled once the extension is done.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, TypeVar

from taskgraph.documents import groups as grouping
from taskgraph.documents.canonical import node_digest
from taskgraph.documents.checks import too_limited
from taskgraph.documents.nodes import GraphDocument, GroupNode, TaskNode
from taskgraph.documents.references import external_labels, results_without_requirement
from taskgraph.model import facts, limits, priorities
from taskgraph.model.columns import Value, integer
from taskgraph.model.errors import IntegrityError
from taskgraph.model.ids import WHOLE_GRAPH, group_key, ids_text, limit_scope, task_id_of, value
from taskgraph.model.states import FailurePolicy, TaskState, When, by_group
from taskgraph.model.utf16 import utf16_units
from taskgraph.protocol import extension
from taskgraph.protocol.concurrency import scopes_of
from taskgraph.protocol.context import Item
from taskgraph.protocol.definitions import SCHEMA, SCHEMA_OF_POLICIES, first_deadline, schema_for, split_text, spread
from taskgraph.protocol.edit import DELETED_IN, EDITED, listed
from taskgraph.protocol.layout import GRAPH_DIRECT_MAX, Layout, lay_out, name_mapping_rows, within
from taskgraph.protocol.propagation import GOING
from taskgraph.protocol.wiring import Grown, KnownGroup, Link
from taskgraph.storage.checks import sent_bytes
from taskgraph.storage.tables import Insert, Row

T = TypeVar("T")

ADD_TASKS: Final = "add-tasks"
EDIT: Final = "edit"
"""Kinds of requests, as their rows name them."""

_STEP_ROWS_MAX: Final = 96
_STEP_BYTES_MAX: Final = 2_500_000  # of its new rows: the head, the graph row, links and the event fit beside them
_FACT_CHARS_MAX: Final = 10_000  # of the labels in the event of one extension


@value
class ExtensionPlan:
    """The steps of one extension. refusal: why it cannot be accepted, "" if it can."""

    request: str
    revision: int
    layout: Layout
    whole: bool
    links: tuple[Link, ...]
    tasks: int
    edges: int
    columns: Mapping[str, Value]
    refusal: str = ""
    held: tuple[str, ...] = ()
    grown: tuple[extension.Growth, ...] = ()

    def _fact(self) -> Mapping[str, Any]:
        """Fields of the event: the labels of the new tasks, within their bounds."""
        labels = {str(row.columns.get("label", "")) for row in self.layout.rows if row.key.startswith("task:")} - {""}
        return facts.listed("added", sorted(labels), _FACT_CHARS_MAX)

    def step(self, head: Row) -> Item | None:
        """The next step by the head row; None when the request has been answered."""
        state = head.columns.get("state")
        if state == "staged":
            if self.refusal:
                return extension.RefuseRequest(self.request, self.refusal)
            return extension.AcceptExtension(
                request=self.request,
                revision=self.revision,
                tasks=self.tasks,
                edges=self.edges,
                leaves=self.layout.leaves,
                top=self.layout.top,
                whole=self.whole,
                rows=self.layout.rows if self.whole else (),
                links=self.links if self.whole else (),
                columns=self.columns,
                fact=self._fact(),
                held=self.held,
                grown=self.grown,
            )
        if state != "accepted":
            return None
        cursor = head.columns.get("cursor", 0)
        if not isinstance(cursor, int) or cursor < 0:
            raise IntegrityError(f"row {head.key}: the cursor is {cursor!r}")
        if cursor < len(self.layout.rows):
            rows = self.layout.rows[cursor : cursor + _STEP_ROWS_MAX]
            return extension.InsertRows(self.request, cursor, portion(rows, row_bytes, _STEP_BYTES_MAX))
        if links := self.links[cursor - len(self.layout.rows) :]:
            return extension.LinkTasks(self.request, cursor, portion(links, _link_rows, _STEP_ROWS_MAX))
        return extension.FinishExtension(self.request)


def bytes_at_most(rows: Sequence[Insert]) -> int:
    """An upper bound of all `row_bytes`, without looking at characters: each may be sent as two escapes of six."""
    units = sum([len(value) for row in rows for value in row.columns.values() if type(value) is str])
    return 100 * len(rows) + 64 * sum([len(row.columns) for row in rows]) + 12 * units


def row_bytes(row: Insert) -> int:
    """Bytes that a row takes in a commit, with the id of the operation; a little more than it really takes."""
    return 100 + sent_bytes(row.columns)


def portion(items: Sequence[T], weight: Callable[[T], int], most: int) -> tuple[T, ...]:
    """As many of these, from the first on, as weigh no more than `most` together; one at least."""
    total = 0
    for number, each in enumerate(items):
        total += weight(each)
        if number and total > most:
            return tuple(items[:number])
    return tuple(items)


def _link_rows(link: Link) -> int:
    """How many rows a link may write: its task, a fork, and every dependent."""
    return 2 + len(link.references)


def request_rows(
    request: str,
    text: str,
    digest: str,
    tasks: int,
    now: datetime,
    *,
    kind: str = ADD_TASKS,
    by: str = "",
    plan: str = "",
) -> tuple[list[Insert], Insert]:
    """Rows of a request: its parts, and the head row that goes in last. kind: ADD_TASKS, EDIT or `planned.CHANGE`.

    by: who asks. plan: the digest under which it is made, "" for none.
    """
    key = extension.request_key(request)
    pieces = limits.ROW_CHARS_MAX // 2 // limits.PROPERTY_CHARS_MAX
    size = pieces * limits.PROPERTY_CHARS_MAX
    parts = [
        Insert(f"{key}:{number:04}", {"schema": SCHEMA, **spread("text", piece)})
        for number, piece in enumerate(split_text(text, size))
    ]
    head: dict[str, Value] = {
        "schema": SCHEMA,
        "kind": kind,
        "state": "staged",
        "digest": digest,
        "tasks": tasks,
        "staged": now,
    }
    more = {name: text for name, text in (("by", by), (extension.PLAN, plan)) if text}
    return parts, Insert(key, {**head, **more})


def plan_steps(
    graph_id: str,
    graph: Row,
    head: Row,
    document: GraphDocument,
    existing: Mapping[str, tuple[str, str, str]],
    have: Mapping[str, str],
    known: Mapping[str, KnownGroup],
    grown: Mapping[str, Grown],
    refusal: str,
    now: datetime,
) -> ExtensionPlan:
    """The steps of an extension.

    existing: of the tasks that the document names, label -> (digest, request that added it, state). have: group of the
    graph -> the request that added it; known: those that new tasks require; grown: those that get tasks. refusal: see
    `refusal_of`.
    """
    request = head.key.removeprefix("request:")
    new: dict[str, TaskNode] = {}
    for label, node in document.tasks.items():
        found = existing.get(label)
        if found is None or found[1] == request:
            new[label] = node
    policy = str(graph.columns.get("failurePolicy", FailurePolicy.BLOCK))
    requires = graph.columns.get("requires", "[]")
    named = str(requires).count('"') // 2
    accepted = head.columns.get("state") == "accepted"
    groups = {name: group for name, group in document.groups.items() if have.get(name, request) == request}
    inside = grouping.members(document.groups) if grown else {}
    grown = {name: each for name, each in grown.items() if not new.keys().isdisjoint(inside[name])}
    columns, mapping_rows = _mapping(graph, new, graph_id, request)
    columns |= _columns_of_groups(graph_id, graph, groups, policy)
    held = tuple(by_group(name) for name, group in groups.items() if not group.active)
    for name in grown:  # what is in the group by now is there already
        tasks = tuple(each for each in document.groups[name].tasks if each in new or each in groups)
        groups[name] = GroupNode(name, tasks, grows=True, failure_policy=grown[name].policy)
    if (first := first_deadline(new.values())) is not None:
        before = graph.columns.get("nextDeadline")
        columns["nextDeadline"] = min(first, before) if isinstance(before, datetime) else first

    def plan(direct_leaves_max: int, *, whole: bool) -> ExtensionPlan:
        layout = lay_out(
            graph_id,
            new,
            stamp=request,
            now=now,
            request=request,
            direct_leaves_max=direct_leaves_max,
            schema=schema_for(policy, group_policies=graph.columns.get("groupPolicies") is True),
            groups=groups,
            known=known,
            grown=grown,
            limited=WHOLE_GRAPH in scopes_of(graph.columns),
            priority=str(graph.columns.get(priorities.COLUMN, "")),
            routing=str(graph.columns.get(facts.ROUTING, "")),
            policy=policy,
        )
        layout = replace(layout, rows=(*_with_revision(layout.rows, graph), *mapping_rows))
        links = tuple(extension.portions(layout.links))
        revision = graph.columns.get("revision", 0)
        if not isinstance(revision, int):
            raise IntegrityError(f"row {graph.key}: the revision is {revision!r}")
        growth = tuple(_growth(graph_id, name, each, groups, layout) for name, each in grown.items())
        edges = layout.edges
        return ExtensionPlan(request, revision, layout, whole, links, len(new), edges, columns, refusal, held, growth)

    if refusal or (not accepted and len(new) <= limits.COMMIT_CHANGES_MAX):
        small = plan(max(0, GRAPH_DIRECT_MAX - named), whole=True)
        rows = len(small.layout.rows) + 2 + sum(map(_link_rows, small.links)) + sum(map(_growth_rows, small.grown))
        size = sum(row_bytes(row) for row in small.layout.rows)
        if refusal or (rows <= _STEP_ROWS_MAX and size <= _STEP_BYTES_MAX):
            return small
    return plan(0, whole=False)


def _columns_of_groups(graph_id: str, graph: Row, groups: Mapping[str, GroupNode], policy: str) -> dict[str, Value]:
    """Columns of the graph row that say which groups there are, with these new ones."""
    if not groups:
        return {}
    columns: dict[str, Value] = {"groups": integer(graph.columns, "groups") + len(groups)}
    if any(group.success is not None for group in groups.values()):
        columns["counting"] = True
    if grouping.own_policies(groups, policy):
        columns["groupPolicies"], columns["schema"] = True, SCHEMA_OF_POLICIES
    if limited := [limit_scope(graph_id, name) for name, group in groups.items() if group.max_in_flight]:
        columns["limits"] = ids_text(dict.fromkeys((*scopes_of(graph.columns), *limited)))
    return columns


def _growth(
    graph_id: str, name: str, grown: Grown, groups: Mapping[str, GroupNode], layout: Layout
) -> extension.Growth:
    members = len(grouping.members(groups)[name])
    heads = tuple(group_key(task_id_of(graph_id, each)) for each in (name, *grown.around))
    around, held = (name, *grown.around), tuple(map(by_group, grown.held))
    return extension.Growth(name, grown.join, layout.pieces[grown.join], members, heads, around, held)


def _growth_rows(growth: extension.Growth) -> int:
    """How many rows it may write: the join, the piece, what the piece takes the place of, and the groups."""
    return 3 + len(growth.heads)


def _with_revision(rows: tuple[Insert, ...], graph: Row) -> tuple[Insert, ...]:
    """New tasks of a graph that lost some: no message about a deleted one fits its successor."""
    revision = graph.columns.get(DELETED_IN)
    if not revision:
        return rows
    return tuple(
        Insert(row.key, {**row.columns, EDITED: revision}) if row.key.startswith("task:") else row for row in rows
    )


def refusal_of(
    graph: Row,
    head: Row,
    document: GraphDocument,
    existing: Mapping[str, tuple[str, str, str]],
    have: Mapping[str, str],
    grown: Mapping[str, Grown],
    outside: Mapping[str, bool],
    request: str,
) -> str:
    """Why the graph forbids an extension that has not been accepted yet, "" if it does not.

    outside: see `Passing`.
    """
    if head.columns.get("state") != "staged":
        return ""
    state = graph.columns.get("state")
    if state not in GOING:
        return extension.not_extendable(str(state))
    policy = str(graph.columns.get("failurePolicy", FailurePolicy.BLOCK))
    groups = {
        name: replace(group, failure_policy=grown[name].policy) if name in grown else group
        for name, group in document.groups.items()
    }
    passing = grouping.Passing(groups, policy, outside)
    conditional = [n for n in document.tasks.values() if n.when != When.ALL_COMPLETED or n.optional]
    unmet = [n.label for n in conditional if passing.not_learned(n.label, n.requires, n.optional, n.when)]
    if unmet:
        return f"{listed(unmet)} has a condition or optional requirements, which need failurePolicy: continue"
    if counted := [name for name, group in document.groups.items() if group.success and passing.not_counted(name)]:
        return f"the group {listed(counted)} has success, which needs failurePolicy: continue"
    different = [
        label
        for label, node in document.tasks.items()
        if label in existing and existing[label][1] != request and existing[label][0] != node_digest(node)
    ]
    if different:
        return f"the graph already has a different task {listed(different)}"
    taken = [name for name in document.groups if name in existing or (name in have and name not in grown)]
    if taken:
        return f"the graph already has a task or group {listed(taken)}, and a group stays as it was submitted"
    if why := _ungrowable(document, existing, grown) or _other_policy(groups, grown, policy):
        return why
    limited = [name for name, group in document.groups.items() if group.max_in_flight]
    there = scopes_of(graph.columns)
    if limited and len(there) + len(limited) > limits.LIMITED_GROUPS_MAX:
        return f"the graph would have more than {limits.LIMITED_GROUPS_MAX} limits"
    if WHOLE_GRAPH in there and (fourth := too_limited(document)):
        return f"{listed(fourth)} would be under more than {limits.LIMITS_OF_TASK_MAX} limits"
    if clash := [label for label in document.tasks if label in have]:
        return f"the graph has a group {listed(clash)}, and a task cannot have its name"
    grouped = {label for name, group in document.groups.items() if name not in grown for label in group.tasks}
    if fixed := [label for label in document.tasks if label in existing and label in grouped]:
        return f"the graph already has the task {listed(fixed)}, which cannot be put into a group any more"
    unknown = [label for label in external_labels(document) if label not in existing and label not in have]
    if unknown:
        what = "task or group" if have or document.groups else "task"
        return f"neither the request nor the graph has a {what} {listed(unknown)}"
    for label, used in results_without_requirement(document).items():
        # What has completed stays so; of anything else only a requirement says that it comes before.
        too_early = [each for each in used if existing.get(each, ("", "", ""))[2] != TaskState.COMPLETED]
        if too_early:
            return (
                f"“{label}” uses the result of {listed(too_early)}, which has not completed, and which it does not "
                "require; name it in requires"
            )
    return ""


def required_from(document: GraphDocument, name: str) -> dict[str, str]:
    """Name outside of the document -> what requires it of the tasks put into a group, and of those before them."""
    requirements: dict[str, Sequence[str]] = {label: node.requires for label, node in document.tasks.items()}
    edges = grouping.circles(requirements, document.groups)
    found: dict[str, str] = {}
    seen: set[str] = set()
    todo = [grouping.DONE + name]
    while todo:
        here = todo.pop()
        if here in seen:
            continue
        seen.add(here)
        if here in edges:
            todo += edges[here]
            outside = [each for each in edges[here] if each not in edges]
            found.update((each, grouping.name_of(here)) for each in outside)
    return found


def _other_policy(groups: Mapping[str, GroupNode], grown: Mapping[str, Grown], policy: str) -> str:
    """Which new task of a group that grows would not follow its failure policy, "" if all do: others rely on that."""
    if not grown or not any(group.failure_policy for group in groups.values()):
        return ""
    said, members = grouping.policies(groups), grouping.members(groups)
    for name, known in grown.items():
        wanted = (known.policy or policy,)
        if other := [label for label in members[name] if said.get(label, (policy,)) != wanted]:
            return f"{listed(other)} would have another failure policy than the group {listed([name])}"
    return ""


def _ungrowable(
    document: GraphDocument, existing: Mapping[str, tuple[str, str, str]], grown: Mapping[str, Grown]
) -> str:
    """Why tasks cannot be put into groups of the graph, "" if they can."""
    for name, known in grown.items():
        if document.groups[name] != GroupNode(name, document.groups[name].tasks):
            return f"the group {listed([name])} is there already: an extension names its new tasks alone"
        if strange := [label for label in document.groups[name].tasks if label in existing and label not in known.has]:
            return f"the graph already has the task {listed(strange)}, which cannot be put into a group any more"
    if wrapped := [each for group in document.groups.values() for each in group.tasks if each in grown]:
        return f"the graph already has the group {listed(wrapped)}, which cannot be put into another one any more"
    inside = within(document.groups, grown) if grown else {}
    if deep := [each for each, names in inside.items() if len(names) > limits.GROUPS_OF_TASK_MAX]:
        return f"{listed(deep)} would be in more than {limits.GROUPS_OF_TASK_MAX} groups"
    return ""


def _mapping(
    graph: Row, new: Mapping[str, TaskNode], graph_id: str, request: str
) -> tuple[dict[str, Value], list[Insert]]:
    """The columns of the graph row, or the rows, that map the new labels to taskIds for people."""
    mapping = {label: task_id_of(graph_id, label) for label in new}
    if not mapping:
        return {}, []
    have = str(graph.columns.get("nameMapping", ""))
    if not have:  # it was too long for the graph row from the start
        return {}, name_mapping_rows(mapping, request)
    merged = json.dumps({**json.loads(have), **mapping}, ensure_ascii=False, separators=(",", ":"))
    if utf16_units(merged) <= limits.NAME_MAPPING_CHARS_MAX:
        return {"nameMapping": merged}, []
    return {}, name_mapping_rows(mapping, request)
