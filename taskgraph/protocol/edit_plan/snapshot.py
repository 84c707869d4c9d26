"""The edges of a graph as an edit is planned by them, looked up in memory.

The rows come by pages and are no snapshot: states may be old, edges hold for the revision of the graph.
"""

from dataclasses import dataclass, field

from taskgraph.model.ids import edge_name_of, group_of, is_piece, owner_of
from taskgraph.protocol.rows import Draft
from taskgraph.storage.tables import Row


@dataclass(slots=True)
class Snapshot:
    """The rows of a graph that have edges, by reference, and those that tell names and groups."""

    rows: dict[str, Row]
    groups: dict[str, list[Row]]
    mapping: list[Row]
    forks: dict[str, list[str]] = field(init=False, default_factory=dict)  # who is told of -> its forks
    pieces: dict[str, list[str]] = field(init=False, default_factory=dict)  # node -> joins that work for it alone

    def __post_init__(self) -> None:
        for reference in self.rows:
            if reference.startswith("fork:"):
                self.forks.setdefault(edge_name_of(reference), []).append(reference)
            elif is_piece(reference):
                self.pieces.setdefault(owner_of(reference), []).append(reference)

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
