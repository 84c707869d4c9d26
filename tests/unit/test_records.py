"""Loading, committing and numbering: what is known of rows after a commit, and how an unclear answer is settled."""

from collections.abc import Callable, Sequence

import pytest

from taskgraph.engine import commit as module
from taskgraph.engine.commit import Operation, Records, changes_event
from taskgraph.model.errors import Conflict, Unclear
from taskgraph.model.ids import event_key
from taskgraph.storage.tables import Change, Delete, Insert, Merge, Page, Range, Row
from taskgraph.testing import ManualClock, MemoryTables


class Watched(MemoryTables):
    """Remembers what is read, and answers the next commit as it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[tuple[str, list[str]]] = []
        self.pages: list[str] = []  # keys from which rows were listed
        self.page_rows = 1000
        self.empty_pages = 0  # so many are given before the first row
        self.answer: Exception | None = None  # of the next commit, after it was applied
        self.instead: Exception | None = None  # of the next commit, which is not applied

    async def get(self, partition: str, keys: Sequence[str]) -> list[Row | None]:
        self.reads.append((partition, list(keys)))
        return await super().get(partition, keys)

    async def query(self, partition: str, rows: Range, *, limit: int = 1000, continuation: str | None = None) -> Page:
        if continuation is None:
            self.pages.append(rows.start)
        if self.empty_pages:
            self.empty_pages -= 1
            return Page([], rows.start)
        return await super().query(partition, rows, limit=min(limit, self.page_rows), continuation=continuation)

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


@pytest.mark.parametrize(("page_rows", "pages", "alone"), [(1_000, 1, 0), (6, 1, 4), (0, 0, 0)])
async def test_rows_that_lie_side_by_side_come_as_a_page(
    records: Records, tables: Watched, page_rows: int, pages: int, alone: int
) -> None:
    """page_rows: on the first page; 0 for so few rows that each is read alone."""
    keys = [f"task:{number:02}" for number in range(11 if page_rows else 5)]
    await tables.commit("g", [Insert(key, {"n": key}) for key in keys if key != keys[3]])
    tables.page_rows = page_rows or 1_000
    rows: dict[str, Row | None] = {}
    await records.load_near("g", keys, rows)
    assert {key: row.columns["n"] if row else None for key, row in rows.items()} == {
        key: key if key != keys[3] else None for key in keys
    }
    assert len(tables.pages) == pages
    assert sum(len(read) for _, read in tables.reads) == (alone if page_rows else len(keys))


async def test_of_very_many_rows_a_page_is_read_and_the_rest_alone(records: Records, tables: Watched) -> None:
    keys = [f"task:{number:04}" for number in range(1_200)]
    for start in range(0, len(keys), 100):
        await tables.commit("g", [Insert(key, {}) for key in keys[start : start + 100]])
    rows: dict[str, Row | None] = {}
    await records.load_near("g", keys, rows)
    assert [key for key, row in sorted(rows.items()) if row is not None] == keys
    assert len(tables.pages) == 1


async def test_of_a_page_that_has_nothing_yet_each_is_read_alone(records: Records, tables: Watched) -> None:
    keys = [f"task:{number:02}" for number in range(9)]
    await tables.commit("g", [Insert(key, {}) for key in keys])
    tables.empty_pages = 1
    rows: dict[str, Row | None] = {}
    await records.load_near("g", keys, rows)
    assert [key for key, row in sorted(rows.items()) if row is not None] == keys


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


@pytest.mark.parametrize("taken", [0, 1, 13, 200, 999])
async def test_the_end_of_a_journal_of_one_page_takes_one_reading(
    records: Records, tables: Watched, taken: int
) -> None:
    await with_events(tables, taken)
    await records.operation("g")
    assert (len(tables.pages), tables.reads) == (1, [])


@pytest.mark.parametrize("taken", [40, 41, 59, 60, 200, 1_000])
async def test_the_end_of_a_long_journal_is_found_by_few_readings(
    records: Records, tables: Watched, taken: int
) -> None:
    """Pages of 20 rows: after two of them, steps that double."""
    tables.page_rows = 20
    await with_events(tables, taken)
    assert (await records.operation("g")).sequence == taken + 1
    assert len(tables.reads) <= 8
    assert all(keys == sorted(set(keys)) and len(keys) <= 20 for _, keys in tables.reads)
    assert len(tables.pages) + len(tables.reads) <= 20


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
    assert tables.pages == [], "as many as are kept are kept"
    await records.commit("d", [event(1)], Operation("o", 1), {})
    assert (await records.operation("d")).sequence == 2
    assert tables.pages == []
    assert (await records.operation("a")).sequence == 2, "forgotten, and found again"
    assert tables.pages == [event_key(1)]


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
    changes: list[Change] = [
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
    assert "c" not in rows, "it was never read, so that what was merged into is not known: nothing is made up"


async def test_what_others_have_read_anew_meanwhile_is_not_brought_up(records: Records, tables: Watched) -> None:
    """Kept rows are shared: whoever read a row while the commit was on its way may hold it as it was before."""
    await tables.commit("g", [Insert("a", {"x": 1})])
    rows: dict[str, Row | None] = {}
    await records.load("g", ["a"], rows)
    before = rows["a"]
    assert before is not None
    rows["a"] = Row("a", "another", {"x": 0})
    await records.commit("g", [Merge("a", before.etag, {"x": 2})], Operation("o", 1), rows)
    assert "a" not in rows


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
    assert tables.pages == [event_key(18)]
    assert records.begin("g").sequence == 21


# --- how many tasks have completed -------------------------------------------------------------------------------


def counted(sequence: int, completed: int | str) -> Insert:
    return Insert(event_key(sequence), {"sequence": sequence, "operation": "theirs", "completed": completed})


async def test_the_count_of_completed_tasks_goes_on_from_the_last_event_row(records: Records, tables: Watched) -> None:
    assert (await records.operation("g")).completed == 0, "an empty journal counts none"
    await tables.commit("g", [counted(1, 0), counted(2, 7)])
    other = Records(tables, ManualClock())
    operation = await other.operation("g")
    assert (operation.sequence, operation.completed) == (3, 7)
    await other.commit("g", [counted(3, 12)], operation, {})
    assert (other.begin("g").sequence, other.begin("g").completed) == (4, 12)
    tables.pages.clear()
    with pytest.raises(Conflict):
        await records.commit("g", [counted(1, 1)], Operation("mine", 1, 0), {})
    assert (records.begin("g").sequence, records.begin("g").completed) == (4, 12)


async def test_a_conflict_over_the_very_next_number_keeps_the_count(records: Records, tables: Watched) -> None:
    """Nothing was written there after all: what was known before stays known."""
    tables.instead = Unclear("the answer was lost")
    with pytest.raises(Conflict):
        await records.commit("g", [counted(5, 9)], Operation("o", 5, 8), {})
    assert (records.begin("g").sequence, records.begin("g").completed) == (5, 8)


async def test_the_count_is_found_behind_many_pages(records: Records, tables: Watched) -> None:
    tables.page_rows = 20
    for sequence in range(1, 301):
        await tables.commit("g", [counted(sequence, 3 * sequence)])
    operation = await records.operation("g")
    assert (operation.sequence, operation.completed) == (301, 900)


@pytest.mark.parametrize("said", [None, "7"], ids=["absent", "no number"])
async def test_a_journal_that_does_not_count_is_not_counted(
    records: Records, tables: Watched, said: str | None
) -> None:
    """A version before began it: a count from here on would be too small."""
    await tables.commit("g", [event(1) if said is None else counted(1, said)])
    assert (await records.operation("g")).completed == -1
    await records.commit("g", [event(2)], await records.operation("g"), {})
    assert records.begin("g").completed == -1


async def test_the_end_of_the_journal_is_not_taken_from_a_page_that_is_empty(records: Records, tables: Watched) -> None:
    """A store may give no row and yet go on."""
    await with_events(tables, 3)
    tables.empty_pages = 2
    assert (await records.operation("g")).sequence == 4


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
