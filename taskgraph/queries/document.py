"""The document that a stored graph stands for, made of its rows: what `submit` takes again.

Rows keep what a graph needs to run, which is less than what was written: a requirement of a group stands on the tasks
in it. Digests say whether what is made here means the same as what was
submitted.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from taskgraph.documents.canonical import content_hash, document_object, node_digest, success_of, written_object
from taskgraph.documents.nodes import GraphDocument, GroupNode, TaskNode
from taskgraph.documents.references import expanded_group, labelled
from taskgraph.model.budget import budget_of
from taskgraph.model.columns import integer, object_of, texts, time_of
from taskgraph.model.errors import IntegrityError, Refused
from taskgraph.model.ids import is_relay, row_key, task_id_of
from taskgraph.model.priorities import COLUMN, LEVELS, NORMAL
from taskgraph.model.states import GRAPH_GONE, INACTIVE, FailurePolicy, GraphState, When, by_group
from taskgraph.model.timing import pause_seconds_in
from taskgraph.protocol import notices
from taskgraph.protocol.definitions import gathered, members_of
from taskgraph.protocol.layout import WRITTEN
from taskgraph.queries.edges import references
from taskgraph.queries.lookup import GraphQueries
from taskgraph.storage.tables import Row

_UNREADABLE: Final = frozenset({GraphState.SUBMITTING, GraphState.RESTORING}) | GRAPH_GONE


@dataclass(frozen=True, slots=True)
class Stored:
    """same: whether the document means what was submitted: nothing was added or edited, and rows keep all of it.

    digests: label -> `node_digest` as it was submitted.
    """

    graph_id: str
    document: GraphDocument
    same: bool
    digests: Mapping[str, str]

    def to_dict(self) -> dict[str, Any]:
        """The document as JSON values, which `submit` takes."""
        return written_object(self.document)


async def stored_document(queries: GraphQueries, graph_id: str) -> Stored:
    """The document of a graph: one look at all of its rows. Raises NotFound, and Refused while these come or go."""
    graph = await queries.graph_row(graph_id)
    if (state := str(graph.columns.get("state"))) in _UNREADABLE:
        raise Refused(f"graph {graph_id} is {state}: not all of its rows are there", state)
    rows = {row.key: row async for row in queries.rows(graph_id) if not row.key.startswith("event:")}
    document = _Rows(graph_id, graph, rows).document()
    tasks = [row.columns for key, row in rows.items() if key.startswith("task:")]
    digests = {
        label: str(columns.get("digest", ""))
        for columns in tasks
        if (label := str(columns.get("label", ""))) in document.tasks
    }
    return Stored(graph_id, document, content_hash(document) == graph.columns.get("digest"), digests)


async def tasks_of_results(queries: GraphQueries, graph_id: str) -> dict[str, GraphDocument]:
    """Group that a task of the executor `expand` fills -> the tasks that came of its result, as an extension.

    One look at all rows of the graph. Raises NotFound.
    """
    graph = await queries.graph_row(graph_id)
    rows = {row.key: row async for row in queries.rows(graph_id) if not row.key.startswith("event:")}
    return _Rows(graph_id, graph, rows).extensions()


def differences(found: Stored, other: GraphDocument) -> list[str]:
    """In which tasks, and in which keys of the document and of these, another document differs from a stored graph."""
    before, after = document_object(found.document), document_object(other)
    before["params"], after["params"] = found.document.values, other.values
    made = [f"“{key}”" for key in _differing(before, after) if key not in ("tasks", "groups")]
    for label in dict.fromkeys((*other.tasks, *found.digests)):
        if label not in found.digests:
            made.append(f"task “{label}” is new")
        elif label not in other.tasks:
            made.append(f"task “{label}” is missing")
        elif node_digest(other.tasks[label]) != found.digests[label]:
            keys = _differing(before["tasks"][label], after["tasks"][label])
            node, wanted = found.document.tasks[label], other.tasks[label]
            # Rows have what groups require on their tasks: the digest says whether the task itself required the same.
            if node_digest(replace(node, requires=wanted.requires, optional=wanted.optional)) == found.digests[label]:
                keys = [key for key in keys if key != "requires"]
            made.append(f"{', '.join(f'“{key}”' for key in keys)} of task “{label}”")
    groups = [{each.name: sorted(each.tasks) for each in one.groups.values()} for one in (found.document, other)]
    return made + [f"group “{name}”" for name in _differing(*groups)]


def _differing(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    return [key for key in sorted({*before, *after}) if before.get(key) != after.get(key)]


class _Rows:
    def __init__(self, graph_id: str, graph: Row, rows: Mapping[str, Row]) -> None:
        self._graph_id = graph_id
        self._graph = graph
        self._rows = rows
        self._labels = {
            key.removeprefix("task:"): str(row.columns.get("label", ""))
            for key, row in rows.items()
            if key.startswith("task:")
        }
        self._channels = {
            key.removeprefix(notices.PREFIX): row for key, row in rows.items() if key.startswith(notices.PREFIX)
        }
        self._limits = {
            str(row.columns.get("label", "")): integer(row.columns, "max")
            for key, row in rows.items()
            if key.startswith("limit:")
        }
        heads = [row for key, row in rows.items() if key.startswith("group:") and key.count(":") == 1]
        self._groups = {str(row.columns.get("label", "")): row for row in heads}
        self._ends = {join: name for name, row in self._groups.items() if (join := row.columns.get("join"))}

    def document(self) -> GraphDocument:
        columns = self._graph.columns
        of_results = self._of_results()
        nodes = {label: self._node(own, label) for own, label in self._labels.items() if own not in of_results}
        groups = {name: self._group(name, of_results) for name in sorted(self._groups)}
        kept = self._rows.get(WRITTEN)
        params = {name: {"default": value} for name, value in object_of(columns, "params").items()}
        written: dict[str, Any] = {}
        if kept is not None:
            params = json.loads(gathered(kept.columns, "params"))
            written = json.loads(gathered(kept.columns, "tasks"))
        return GraphDocument(
            {label: nodes[label] for label in self._in_order(nodes)},
            routing=str(columns.get("routing", "")),
            metadata=object_of(columns, "metadata"),
            tags=object_of(columns, "tags"),
            failure_policy=str(columns.get("failurePolicy", FailurePolicy.BLOCK)),
            params=params,
            groups={name: group for name, group in groups.items() if group.tasks},
            notify=self._notify({name: texts(row.columns, "on") for name, row in self._channels.items()}),
            deadline=_text(time_of(columns, "deadline")),
            stalled_after=float(str(columns.get("stalledAfter", 0))),
            on_stalled=str(columns.get("onStalled", "")),
            max_in_flight=self._limits.get("", 0),
            priority=str(columns.get(COLUMN, "")),
            budget=budget_of(columns.get),
            written={label: task for label, task in written.items() if label in nodes and not self._edited(label)},
        )

    def extensions(self) -> dict[str, GraphDocument]:
        """See `tasks_of_results`."""
        of_results = self._of_results()
        found: dict[str, GraphDocument] = {}
        for name in self._expanded() if of_results else ():
            inside = [own for own in self._members(name) if own in of_results]
            others = frozenset(self._labels) - set(inside)
            there = [each for each in self._groups if not others >= set(self._members(each))]
            groups = {each: self._group(each, others) for each in there}
            own = {each: groups[each] for each in there if self._groups[each].columns.get("request")}
            if name in groups:
                nodes = {self._labels[each]: self._node(each, self._labels[each]) for each in inside}
                found[name] = GraphDocument(nodes, groups={**own, name: GroupNode(name, groups[name].tasks)})
        return found

    def _expanded(self) -> list[str]:
        """Groups that are filled with tasks of results."""
        found = []
        for name, row in self._groups.items():
            if row.columns.get("grows") is not True:
                continue
            for own in self._members(name):
                if own in self._labels and not (task := self._rows[row_key(own)]).columns.get("request"):
                    definition = self._definition(task, own)
                    if expanded_group(definition) == name:
                        found.append(name)
        return found

    def _of_results(self) -> AbstractSet[str]:
        """Ids of the tasks that came of results: the same document makes them anew, of what it finds then."""
        expanded = self._expanded()
        return {
            own
            for name in expanded
            for own in self._members(name)
            if own in self._labels and self._rows[row_key(own)].columns.get("request")
        }

    def _edited(self, label: str) -> bool:
        return integer(self._rows[row_key(task_id_of(self._graph_id, label))].columns, "edited") > 0

    def _in_order(self, nodes: Mapping[str, TaskNode]) -> list[str]:
        """Labels as the names of tasks were written down, those of the submission first."""
        listed = [self._graph, *(row for key, row in self._rows.items() if key.startswith("name-mapping:"))]
        order = [label for row in listed for label in json.loads(gathered(row.columns, "nameMapping") or "{}")]
        return list(dict.fromkeys(label for label in [*order, *sorted(nodes)] if label in nodes))

    def _node(self, own: str, label: str) -> TaskNode:
        row = self._rows[row_key(own)]
        columns = row.columns
        task = self._definition(row, own)
        level = str(columns.get(COLUMN, ""))
        inherited = str(self._graph.columns.get(COLUMN, ""))
        node = TaskNode(
            label,
            tuple(self._required(references(row, "requires"))),
            integer(columns, "rerunsAllowed"),
            task,
            str(columns.get("when", When.ALL_COMPLETED)),
            frozenset(self._required(references(row, "optional"))),
            self._notify(_by_channel(object_of(columns, notices.COLUMN))),
            _timing(row, task),
            INACTIVE not in texts(columns, "held"),
            "" if level == inherited else level or NORMAL,
        )
        return _as_submitted(node, str(columns.get("digest", "")))

    def _definition(self, row: Row, own: str) -> dict[str, Any]:
        text = gathered(row.columns, "task")
        if not text and (long := self._rows.get(f"definition:{own}")) is not None:
            text = gathered(long.columns, "task")
        found = json.loads(text or "{}")
        if not isinstance(found, dict):
            raise IntegrityError(f"row {row.key}: column task is no JSON object")
        return labelled(found, self._labels)

    def _required(self, listed: Sequence[str]) -> Iterator[str]:
        """Labels, and names of groups, behind references; each once."""
        seen: set[str] = set()
        todo = list(reversed(listed))
        while todo:
            here = todo.pop()
            name = self._ends.get(here) or self._labels.get(here)
            if here in seen or name in seen:
                continue
            seen.add(name or here)
            if name is not None:
                yield name
            elif is_relay(here) and (row := self._rows.get(row_key(here))) is not None:
                todo += reversed(references(row, "requires"))
            else:
                raise IntegrityError(f"row {row_key(here)} is missing, though another row names it")

    def _group(self, name: str, left_out: AbstractSet[str]) -> GroupNode:
        inner = [each for each, row in self._groups.items() if name in texts(row.columns, "groups")]
        nested = {own for each in inner for own in self._members(each)}
        inner = [each for each in inner if not left_out >= set(self._members(each))]
        direct = [each for each in inner if set(inner).isdisjoint(texts(self._groups[each].columns, "groups"))]
        known = [own for own in self._members(name) if own in self._labels and own not in left_out]
        tasks = [self._labels[own] for own in known if own not in nested]
        grows = self._groups[name].columns.get("grows") is True
        active = by_group(name) not in texts(self._graph.columns, "held")
        limit = self._limits.get(name, 0)
        success = success_of(object_of(self._groups[name].columns, "success") or None)
        policy = str(self._groups[name].columns.get("failurePolicy", ""))
        return GroupNode(name, (*sorted(tasks), *sorted(direct)), (), active, limit, success, grows, policy)

    def _members(self, name: str) -> tuple[str, ...]:
        key = self._groups[name].key
        return members_of([row for each, row in self._rows.items() if each == key or each.startswith(f"{key}:")])

    def _notify(self, on: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        """`notify` of a document. on: key of a channel -> for which ways to fare."""
        made: dict[str, list[Any]] = {}
        for key, ways in on.items():
            for way in ways:
                made.setdefault(way, []).append(object_of(self._channels[key].columns, "channel"))
        return {way: made[way] for way in sorted(made)}


def _by_channel(notify: Mapping[str, Any]) -> dict[str, list[str]]:
    made: dict[str, list[str]] = {}
    for way, keys in notify.items():
        for key in keys:
            made.setdefault(key, []).append(way)
    return made


def _timing(row: Row, task: dict[str, Any]) -> dict[str, Any]:
    """The keys of a node that speak of time; those for the worker are taken out of its definition."""
    columns = row.columns
    made: dict[str, Any] = {}
    not_before = time_of(columns, "notBefore")
    if not_before is not None and pause_seconds_in(columns.get) is None:
        made["notBefore"] = _text(not_before)
    retry = object_of(columns, "retry")
    if isinstance(codes := task.get("retry"), dict) and codes.keys() == {"exitCodes"}:
        retry |= task.pop("retry")
    if retry:
        made["retry"] = retry
    if "maxRunTime" in task:
        made["maxRunTime"] = task.pop("maxRunTime")
    seconds = columns.get("pendingTimeout")
    if isinstance(seconds, int | float):
        made["pendingTimeout"] = int(seconds) if seconds == int(seconds) else seconds
    return made


def _as_submitted(node: TaskNode, digest: str) -> TaskNode:
    """The node with what was held, released or prioritized since taken back, where its digest says how it was."""
    for active in (node.active, not node.active):
        for priority in dict.fromkeys((node.priority, "", *LEVELS)):
            tried = replace(node, active=active, priority=priority)
            if node_digest(tried) == digest:
                return tried
    return node


def _text(moment: datetime | None) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z") if moment is not None else ""
