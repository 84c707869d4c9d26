"""The id of a new graph under one that was deleted: refused commits, lost answers, others at the same time."""

from collections.abc import Sequence

import pytest

from taskgraph.engine.successor import id_after
from taskgraph.model import limits
from taskgraph.model.errors import Conflict, Unclear
from taskgraph.model.ids import GRAPH
from taskgraph.storage.memory import MemoryTables
from taskgraph.storage.tables import Change, Insert, Merge
from taskgraph.testing import drive

LONG = "y" * limits.GRAPH_ID_CHARS_MAX


def tables_with(**states: str) -> MemoryTables:
    tables = MemoryTables()
    for graph_id, state in states.items():
        drive(tables.commit(graph_id.replace("_", "-"), [Insert(GRAPH, {"state": state})]))
    return tables


def successor(tables: MemoryTables, graph_id: str) -> object:
    return tables.partitions[graph_id][GRAPH].columns.get("successor")


@pytest.mark.parametrize("state", ["running", "finished", "deleting", "restoring"])
def test_only_a_deleted_graph_has_a_successor(state: str) -> None:
    tables = tables_with(x=state)
    assert drive(id_after(tables, "x")) == "x"
    assert drive(id_after(tables, "new")) == "new"
    assert successor(tables, "x") is None


def test_the_next_free_number_and_the_same_one_again() -> None:
    tables = tables_with(x="deleted", x_2="running", x_3="deleted")
    assert drive(id_after(tables, "x")) == "x-4"
    assert drive(id_after(tables, "x")) == "x-4", "its submission may have been cut off before its first row"
    drive(tables.commit("x-4", [Insert(GRAPH, {"state": "running"})]))
    assert drive(id_after(tables, "x")) == "x-4" == successor(tables, "x")


@pytest.mark.parametrize("state", ["deleting", "deleted"])
def test_a_successor_that_is_gone_has_one_too(state: str) -> None:
    tables = tables_with(x="deleted", x_2=state)
    drive(tables.commit("x", [Merge(GRAPH, tables.partitions["x"][GRAPH].etag, {"successor": "x-2"})]))
    assert drive(id_after(tables, "x")) == "x-3" == successor(tables, "x")


def test_an_id_of_full_length_is_cut() -> None:
    tables = tables_with(**{LONG: "deleted"})
    assert drive(id_after(tables, LONG)) == "y" * (limits.GRAPH_ID_CHARS_MAX - 2) + "-2"


class Troubled(MemoryTables):
    """Another submission commits first, and then the answer of the first commit is lost."""

    def __init__(self, *troubles: str) -> None:
        super().__init__()
        self.troubles = list(troubles)

    async def commit(self, partition: str, changes: Sequence[Change]) -> list[str | None]:
        trouble = self.troubles.pop(0) if self.troubles and isinstance(changes[0], Merge) else ""
        if trouble == "other":
            row = self.partitions[partition][GRAPH]
            await super().commit(partition, [Merge(GRAPH, row.etag, {"successor": "x-2"})])
        if trouble == "changed":
            row = self.partitions[partition][GRAPH]
            await super().commit(partition, [Merge(GRAPH, row.etag, {"removed": len(self.troubles)})])
        etags = await super().commit(partition, changes)
        if trouble == "lost":
            raise Unclear("the answer was lost")
        return etags


@pytest.mark.parametrize("troubles", [("other",), ("lost",), ("changed",), ("changed", "lost")])
def test_conflicts_and_lost_answers(troubles: Sequence[str]) -> None:
    tables = Troubled(*troubles)
    drive(tables.commit("x", [Insert(GRAPH, {"state": "deleted"})]))
    assert drive(id_after(tables, "x")) == "x-2" == successor(tables, "x")


def test_it_gives_up() -> None:
    tables = Troubled(*["changed"] * limits.COMMIT_ATTEMPTS_MAX)
    drive(tables.commit("x", [Insert(GRAPH, {"state": "deleted"})]))
    with pytest.raises(Conflict, match="others kept writing its tombstone; try again"):
        drive(id_after(tables, "x"))
