"""The edges of a graph as an edit is planned by them: read in one go, and looked up in memory.

What this room is for: tasks, relays and groups by reference, and who tells whom through which of them. The rows come by
pages and are no snapshot: states may be old, edges hold for the revision of the graph. It never writes.
"""

from dataclasses import dataclass, field
from typing import Final

from taskgraph.engine.commit import Records
from taskgraph.model.ids import group_of, is_piece, owner_of, reference_of, told_as
from taskgraph.protocol.rows import Draft
from taskgraph.storage.tables import Range, Row, query_all

_EDGES: Final = ("label", "state", "run", "requires", "dependents", "task")


@dataclass(slots=True)
class Snapshot:
    """The rows of a graph that have edges, by reference, and those that tell names and groups."""

    rows: dict[str, Row]
    groups: dict[str, list[Row]]
    mapping: list[Row]
    forks: dict[str, list[str]] = field(default_factory=dict)  # who is told of -> its forks
    pieces: dict[str, list[str]] = field(default_factory=dict)  # node -> joins that work for it alone

    def ids(self, reference: str, name: str) -> list[str]:
        """An edge column of a row; nothing of one that there is not."""
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

    def tellers(self, reference: str) -> list[str]:
        """The rows by which a node tells its dependents: its own, and its forks."""
        return [reference, *self.forks.get(reference, ())]


async def read_snapshot(records: Records, graph_id: str, graph: Row) -> Snapshot:
    """Read the edges of a whole graph, page by page."""
    rows: dict[str, Row] = {}
    for kind in ("task", "join", "fork"):
        found = await query_all(records.tables, graph_id, Range(f"{kind}:", f"{kind};", select=_EDGES))
        rows.update((reference_of(row.key), row) for row in found)
    groups: dict[str, list[Row]] = {}
    if graph.columns.get("groups"):
        for row in await query_all(records.tables, graph_id, Range("group:", "group;")):
            groups.setdefault(row.key.split(":")[1], []).append(row)
    mapping = await query_all(records.tables, graph_id, Range("name-mapping:", "name-mapping;"))
    made = Snapshot(rows, groups, mapping)
    for reference in rows:
        if reference.startswith("fork:"):
            made.forks.setdefault(told_as(reference), []).append(reference)
        elif is_piece(reference):
            made.pieces.setdefault(owner_of(reference), []).append(reference)
    return made
