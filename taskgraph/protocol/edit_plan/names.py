"""The edges of a graph as an edit is planned by them, and the tasks, groups and requirements that the edit names."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from taskgraph.documents.edit_document import EditDocument, Update
from taskgraph.model.ids import (
    GRAPH,
    edge_name_of,
    group_of,
    is_piece,
    is_relay,
    is_shared,
    owner_of,
    row_key,
    task_id_of,
)
from taskgraph.model.states import by_group
from taskgraph.protocol.conditions import passes_on
from taskgraph.protocol.definitions import members_of
from taskgraph.protocol.rows import Draft
from taskgraph.storage.tables import Row


@dataclass(slots=True)
class Snapshot:
    """The rows of a graph that have edges, by reference; those of its groups, and those of its name mapping.

    They come by pages: states may be old, edges hold for the revision of the graph. forks: node -> its forks. pieces:
    node -> joins that work for it alone.
    """

    rows: dict[str, Row]
    groups: dict[str, list[Row]]
    mapping: list[Row]
    forks: dict[str, list[str]] = field(init=False, default_factory=dict)
    pieces: dict[str, list[str]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        for reference in self.rows:
            if reference.startswith("fork:"):
                self.forks.setdefault(edge_name_of(reference), []).append(reference)
            elif is_piece(reference):
                self.pieces.setdefault(owner_of(reference), []).append(reference)

    def ids(self, reference: str, name: str) -> list[str]:
        """An edge column of a row, empty where there is no such row."""
        row = self.rows.get(reference)
        return Draft(row.key, row.columns, None).ids(name) if row is not None else []

    def name(self, reference: str) -> str:
        """Its label, or that of its group."""
        group = group_of(reference)
        rows = self.groups.get(group)
        row = rows[0] if rows else self.rows.get(reference)
        return str(row.columns.get("label", reference)) if row is not None else group or reference

    def label(self, reference: str) -> str:
        """What a person calls it."""
        return f"{'group ' if group_of(reference) else ''}“{self.name(reference)}”"

    def required(self, reference: str) -> list[str]:
        """The tasks and shared joins that a node requires, through the pieces that work for it."""
        found: dict[str, None] = {}
        todo = list(reversed(self.ids(reference, "requires")))
        while todo:
            here = todo.pop()
            if is_piece(here):
                todo += reversed(self.ids(here, "requires"))
            else:
                found[here] = None
        return list(found)

    def not_passed(self, references: Iterable[str], graph: Row) -> list[str]:
        """Those tasks among these and behind these joins that may fail without passing it on."""
        found: dict[str, None] = {}
        seen: set[str] = set()
        todo = list(references)
        while todo:
            here = todo.pop()
            if here in seen or (row := self.rows.get(here)) is None:
                continue
            seen.add(here)
            if is_relay(here):
                todo += self.ids(here, "requires")
            elif not passes_on(graph.columns.get, row.columns.get):
                found[here] = None
        return list(found)

    def dependents(self, reference: str) -> dict[str, list[str]]:
        """The rows of a node that name its dependents (its own, and its forks), each with those that it names."""
        return {each: self.ids(each, "dependents") for each in (reference, *self.forks.get(reference, ()))}


class RefusedError(Exception):
    """No error: the graph forbids the edit. Never leaves `engine.plans`."""


class Names:
    """The tasks and groups that an edit names.

    names: of a group -> groupId. updates: taskId -> what is to be other. deleted: tasks. gone: these, and the shared
    joins of groups that go (groups_gone).
    """

    def __init__(
        self, graph_id: str, graph: Row, snapshot: Snapshot, document: EditDocument, *, again: bool = False
    ) -> None:
        """again: the edit was made before, so what it takes away may be gone. Raises RefusedError."""
        self.graph_id = graph_id
        self.graph = graph
        self.snapshot = snapshot
        self.document = document
        self.names = {str(rows[0].columns.get("label", "")): own for own, rows in snapshot.groups.items()}
        self.updates = {self._task(label): update for label, update in document.updates.items()}
        self.deleted = dict.fromkeys(
            self._task(label) for label in document.delete if not again or task_id_of(graph_id, label) in snapshot.rows
        )
        for name in document.delete_groups:
            if name in self.names:
                self.deleted.update(dict.fromkeys(members_of(snapshot.groups[self.names[name]])))
            elif not again:
                raise RefusedError(f"the graph has no group “{name}”")
        if both := [snapshot.label(each) for each in self.deleted if each in self.updates]:
            raise RefusedError(f"{', '.join(sorted(both)[:5])} is to be updated, and goes with its group")
        self.groups_gone = [
            own
            for own, rows in snapshot.groups.items()
            if self.deleted and self.deleted.keys() >= set(members_of(rows))
        ]
        for own, rows in snapshot.groups.items():
            lost = self.deleted.keys() & set(members_of(rows)) if rows[0].columns.get("tally") else set()
            if lost and own not in self.groups_gone:
                what = f"{snapshot.label(min(lost))} is counted by group “{self.group_name(own)}”"
                raise RefusedError(f"{what}, which has `success`: take away the whole group, or let the task run")
        self.gone = dict(self.deleted)
        if going := set(self.groups_gone):
            joins = (each for each in snapshot.rows if is_shared(each) and group_of(each) in going)
            self.gone.update(dict.fromkeys(joins))
        held = set(Draft(GRAPH, graph.columns, None).ids("held"))
        for name in map(self.group_name, self.groups_gone):
            if by_group(name) in held:
                raise RefusedError(f"group “{name}” is paused, and would go: resume it first")

    def group_name(self, own: str) -> str:
        return str(self.snapshot.groups[own][0].columns.get("label", ""))

    def touched(self) -> list[str]:
        """Keys of the rows that are changed or go: the plan needs all of their columns."""
        return [key for each in (*self.updates, *self.gone) for key in (row_key(each), f"definition:{each}")]

    def wanted(self, update: Update) -> list[str]:
        """What a task is to require, as references."""
        return list(dict.fromkeys(each for name in update.node.requires for each in self._stand_in(name)))

    def optional(self, update: Update) -> frozenset[str]:
        """Those of them that do not matter to it."""
        node = update.node
        must = {each for name in node.requires if name not in node.optional for each in self._stand_in(name)}
        return frozenset(each for name in node.optional for each in self._stand_in(name)) - must

    def _task(self, label: str) -> str:
        own = task_id_of(self.graph_id, label)
        if own not in self.snapshot.rows:
            what = ", but a group: name it in deleteGroups" if label in self.names else ""
            raise RefusedError(f"the graph has no task “{label}”{what}")
        return own

    def _stand_in(self, name: str) -> list[str]:
        """What a requirement comes to: a task, the join of a group, or the tasks of a group that has none."""
        own = task_id_of(self.graph_id, name)
        if own in self.snapshot.rows:
            return [own]
        if name not in self.names:
            what = "task or group" if self.names else "task"
            raise RefusedError(f"the graph has no {what} “{name}”")
        rows = self.snapshot.groups[self.names[name]]
        join = str(rows[0].columns.get("join", ""))
        if join and join not in self.gone:
            return [join]
        left = [each for each in members_of(rows) if each not in self.deleted]
        if not left:
            raise RefusedError(f"group “{name}” is required, and goes")
        return left
