"""Loading, committing and numbering: what is known of rows after a commit, and how an unclear answer is settled."""

from collections.abc import Callable, Sequence

import pytest

from taskgraph import records as module
from taskgraph.errors import Conflict, Unclear
from taskgraph.records import Operation, Records, changes_event
from taskgraph.storage.tables import Change, Delete, Insert, Merge, Row
from taskgraph.transitions import event_key
from tests.manual_clock import ManualClock
from tests.simulation.memory import MemoryTables


class Watched(MemoryTables):
    """Remembers what is read, and answers the next commit as it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[tuple[str, list[str]]] = []
        self.answer: Exception | None = None  # of the next commit, after it was applied
        self.instead: Exception | None = None  # of the next commit, which is not applied

    async def get(self, partition: str, keys: Sequence[str]) -> list[Row | None]:
        self.reads.append((partition, list(keys)))
        return await super().get(partition, keys)

    async def commit(self, partition: str, changes: Sequence[Change]) -> list[str | None]:
        instead, self.instead = self.instead, None
        if instead is not None:
            raise instead
        etags = await super().commit(partition, changes)
        answer, self.answer = self.answer, None
        if answer is not None:
            raise answer
        return etags


@pytest.fixture
def tables() -> Watched:
    return Watched()


@pytest.fixture
def records(tables: Watched) -> Records:
    return Records(tables, ManualClock())


def event(sequence: int, operation: str = "theirs") -> Insert:
    return Insert(event_key(sequence), {"sequence": sequence, "operation": operation})


async def with_events(tables: MemoryTables, count: int, graph: str = "g") -> None:
    for sequence in range(1, count + 1):
        await tables.commit(graph, [event(sequence)])


# --- loading ---------------------------------------------------------------------------------------------------


async def test_rows_are_read_in_one_call_and_those_that_do_not_exist_are_known_as_such(
    records: Records, tables: Watched
) -> None:
    await tables.commit("g", [Insert("b", {"x": 1}), Insert("a", {"x": 2})])
    kept = Row("z", "e", {})
    rows: dict[str, Row | None] = {"z": kept}
    await records.load("g", {"b", "nobody", "a"}, rows)
    assert tables.reads == [("g", ["a", "b", "nobody"])]
    assert {key: row and dict(row.columns) for key, row in rows.items()} == {
        "z": {},
        "a": {"x": 2},
        "b": {"x": 1},
        "nobody": None,
    }
    assert rows["z"] is kept


# --- the number of the next event row --------------------------------------------------------------------------


@pytest.mark.parametrize("taken", [0, 1, 2, 3, 7, 8, 15, 16, 17, 40, 100, 1_000])
async def test_the_journal_goes_on_after_its_last_row(records: Records, tables: Watched, taken: int) -> None:
    await with_events(tables, taken)
    assert (await records.operation("g")).sequence == taken + 1


@pytest.mark.parametrize("taken", [0, 1, 13, 200, 1_000])
async def test_finding_the_number_takes_few_readings_of_few_rows(records: Records, tables: Watched, taken: int) -> None:
    await with_events(tables, taken)
    await records.operation("g")
    assert len(tables.reads) <= 5
    assert max(len(keys) for _, keys in tables.reads) <= 40
    assert all(partition == "g" for partition, _ in tables.reads)


async def test_a_fresh_journal_is_known_by_one_reading_of_four_rows(records: Records, tables: Watched) -> None:
    await records.operation("g")
    assert tables.reads == [("g", [event_key(number) for number in (1, 2, 4, 8)])]


async def test_the_number_is_remembered_by_graph(records: Records, tables: Watched) -> None:
    await with_events(tables, 2)
    rows: dict[str, Row | None] = {}
    operation = await records.operation("g")
    await records.commit("g", [event(3)], operation, rows)
    tables.reads.clear()
    assert (await records.operation("g")).sequence == 4
    assert tables.reads == []
    assert (await records.operation("other")).sequence == 1


async def test_a_commit_without_facts_moves_no_number(records: Records, tables: Watched) -> None:
    await with_events(tables, 2)
    await records.commit("g", [Insert("a", {})], Operation("o", 3), {})
    assert (await records.operation("g")).sequence == 3
    await records.commit("g", [event(3)], Operation("o", 3), {})
    await records.commit("g", [Insert("b", {})], Operation("o", 4), {})
    assert (await records.operation("g")).sequence == 4


async def test_the_number_never_goes_back(records: Records, tables: Watched) -> None:
    """Commits of one process overlap: the later one may be answered first."""
    await with_events(tables, 1)
    await records.commit("g", [event(3)], Operation("late", 3), {})
    await records.commit("g", [event(2)], Operation("early", 2), {})
    tables.reads.clear()
    assert (await records.operation("g")).sequence == 4
    assert tables.reads == []


async def test_a_commit_without_facts_begins_without_a_reading(records: Records, tables: Watched) -> None:
    await with_events(tables, 2)
    assert records.begin("g").sequence == 0, "not known"
    assert tables.reads == []
    await records.commit("g", [event(3)], Operation("o", 3), {})
    assert records.begin("g").sequence == 4
    assert records.begin("other").sequence == 0
    assert records.begin("g").id != records.begin("g").id


async def test_every_operation_has_an_id_of_its_own(records: Records) -> None:
    assert (await records.operation("g")).id != (await records.operation("g")).id


async def test_numbers_of_many_graphs_do_not_pile_up_for_ever(
    records: Records, tables: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SEQUENCES_KEPT_MAX", 3)
    for graph in "abc":
        await records.commit(graph, [event(1)], Operation("o", 1), {})
    tables.reads.clear()
    assert [(await records.operation(graph)).sequence for graph in "abc"] == [2, 2, 2]
    assert tables.reads == [], "as many as are kept are kept"
    await records.commit("d", [event(1)], Operation("o", 1), {})
    assert (await records.operation("d")).sequence == 2
    assert tables.reads == []
    assert (await records.operation("a")).sequence == 2, "forgotten, and found again"
    assert tables.reads != []


def test_a_commit_states_facts_if_it_inserts_the_event_row_of_its_number() -> None:
    assert changes_event([Merge("a", "e", {}), event(7)], 7)
    assert not changes_event([event(6)], 7)
    assert not changes_event([Insert("a", {})], 7)
    assert not changes_event([Delete(event_key(7), "e")], 7)
    assert not changes_event([], 7)
    assert event_key(7) < event_key(10) < event_key(2_000_000_000)


# --- after a commit ----------------------------------------------------------------------------------------------


async def test_the_rows_that_a_commit_wrote_are_known_without_reading(records: Records, tables: Watched) -> None:
    await tables.commit("g", [Insert("a", {"x": 1, "kept": True}), Insert("b", {}), Insert("c", {"y": 1})])
    rows: dict[str, Row | None] = {}
    await records.load("g", ["a", "b", "new"], rows)
    a, b = rows["a"], rows["b"]
    assert a is not None
    assert b is not None
    (c,) = await tables.get("g", ["c"])
    assert c is not None
    changes = [
        Merge("a", a.etag, {"x": 2}),
        Delete("b", b.etag),
        Insert("new", {"z": 3}),
        Merge("c", c.etag, {"y": 2}),
    ]
    await records.commit("g", changes, Operation("o", 1), rows)
    in_store = dict(zip(("a", "b", "new"), await tables.get("g", ["a", "b", "new"]), strict=True))
    assert rows["a"] == in_store["a"]
    assert rows["new"] == in_store["new"]
    assert rows.get("b") is None
    # c was never read: what is known of it is what was written, under the etag that the write gave.
    (c,) = await tables.get("g", ["c"])
    assert c is not None
    assert rows["c"] == Row("c", c.etag, {"y": 2})


# --- unclear answers ---------------------------------------------------------------------------------------------


LOST: dict[str, Callable[[], Exception]] = {
    "no answer": lambda: Unclear("the answer was lost"),
    "a conflict with itself": lambda: Conflict("412 on the own write"),
}


@pytest.mark.parametrize("answer", LOST)
@pytest.mark.parametrize("facts", [True, False], ids=["with facts", "without"])
async def test_a_commit_whose_answer_was_lost_is_known_by_its_operation(
    records: Records, tables: Watched, answer: str, facts: bool
) -> None:
    await tables.commit("g", [Insert("a", {})])
    rows: dict[str, Row | None] = {}
    await records.load("g", ["a"], rows)
    before = rows["a"]
    assert before is not None
    operation = await records.operation("g")
    changes: list[Change] = [Merge("a", before.etag, {"x": 1, "operation": operation.id})]
    if facts:
        changes += [Insert("b", {"operation": operation.id}), event(operation.sequence, operation.id)]
    tables.answer = LOST[answer]()
    tables.reads.clear()
    await records.commit("g", changes, operation, rows)
    assert tables.reads == [("g", [event_key(1) if facts else "a"])], "an event row answers for good, if there is one"
    assert "a" not in rows, "its etag is not known: it is read again"
    assert (await records.operation("g")).sequence == (2 if facts else 1)


@pytest.mark.parametrize("answer", LOST)
async def test_a_commit_that_was_not_applied_is_a_conflict(records: Records, tables: Watched, answer: str) -> None:
    operation = await records.operation("g")
    error = LOST[answer]()
    tables.instead = error
    rows: dict[str, Row | None] = {"a": None}
    with pytest.raises(Conflict) as caught:
        await records.commit("g", [Insert("a", {"operation": operation.id})], operation, rows)
    assert error in (caught.value, caught.value.__cause__)
    assert str(caught.value) == (str(error) if isinstance(error, Conflict) else "the commit was lost on its way")
    assert rows == {"a": None}


async def test_a_commit_that_was_not_applied_leaves_its_number_free(records: Records, tables: Watched) -> None:
    operation = await records.operation("g")
    tables.instead = Unclear("the answer was lost")
    with pytest.raises(Conflict):
        await records.commit("g", [event(operation.sequence, operation.id)], operation, {})
    assert (await records.operation("g")).sequence == operation.sequence == 1, "the journal is gapless"


async def test_whoever_wrote_the_event_row_first_is_believed(records: Records, tables: Watched) -> None:
    """Somebody else took the same number meanwhile: their row is not ours, and the number is looked up again."""
    await with_events(tables, 2)
    operation = Operation("mine", 1)
    with pytest.raises(Conflict):
        await records.commit("g", [Insert("a", {"operation": "mine"}), event(1, "mine")], operation, {})
    tables.reads.clear()
    assert (await records.operation("g")).sequence == 3
    assert tables.reads == [], "it was looked up when the conflict was seen"


async def test_after_a_conflict_the_journal_is_looked_at_from_the_known_number_on(
    records: Records, tables: Watched
) -> None:
    await with_events(tables, 20)
    with pytest.raises(Conflict):
        await records.commit("g", [event(18, "mine")], Operation("mine", 18), {})
    assert tables.reads[1] == ("g", [event_key(number) for number in (18, 19, 21, 25)])


async def test_a_conflict_over_rows_alone_looks_up_no_number(records: Records, tables: Watched) -> None:
    await tables.commit("g", [Insert("a", {"operation": "theirs"})])
    with pytest.raises(Conflict):
        await records.commit("g", [Insert("a", {"operation": "mine"})], Operation("mine", 1), {})
    assert tables.reads == [("g", ["a"])]


async def test_a_row_that_is_gone_does_not_speak_for_a_commit(records: Records, tables: Watched) -> None:
    tables.instead = Unclear("the answer was lost")
    with pytest.raises(Conflict):
        await records.commit("g", [Delete("x", "e"), Insert("a", {"operation": "o"})], Operation("o", 1), {})
    assert tables.reads == [("g", ["a"])], "a deletion leaves nothing that could be asked"
