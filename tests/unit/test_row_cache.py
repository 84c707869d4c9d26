"""Kept rows: what is read alone and what by pages, that both give the same, and how much is kept for how long."""

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from taskgraph.engine.row_cache import RowCache
from taskgraph.interfaces.app import open_app
from taskgraph.interfaces.settings import read_connection, read_settings
from taskgraph.model import limits
from taskgraph.model.errors import InvalidSettings
from taskgraph.storage.tables import Insert, Merge, Page, Range, Row
from taskgraph.testing import MemoryTables


class Watched(MemoryTables):
    """Remembers what is read, and gives pages of a few rows if it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.alone: list[list[str]] = []
        self.pages: list[Range] = []
        self.page_rows = 1_000

    async def get(self, partition: str, keys: Sequence[str]) -> list[Row | None]:
        self.alone.append(list(keys))
        return await super().get(partition, keys)

    async def query(self, partition: str, rows: Range, *, limit: int = 1000, continuation: str | None = None) -> Page:
        self.pages.append(rows)
        return await super().query(partition, rows, limit=min(limit, self.page_rows), continuation=continuation)


@pytest.fixture
def tables() -> Watched:
    return Watched()


@pytest.fixture
def kept(tables: Watched) -> RowCache:
    return RowCache(tables)


def task(number: int) -> str:
    return f"task:{number:05}"


async def put(tables: Watched, keys: Sequence[str], state: str = "unscheduled", graph: str = "g") -> None:
    for start in range(0, len(keys), 100):
        await tables.commit(graph, [Insert(key, {"state": state}) for key in keys[start : start + 100]])


# --- alone, or by pages ------------------------------------------------------------------------------------------


async def test_a_few_rows_are_read_alone(kept: RowCache, tables: Watched) -> None:
    few = [task(number) for number in range(limits.READ_ALONE_MAX)]
    await put(tables, few)
    known = kept.of("g")
    await kept.load("g", known, reversed(few))
    assert tables.alone == [few]
    assert tables.pages == []
    assert known.rows == tables.partitions["g"]


@pytest.mark.parametrize("kind", ["task:", "join:", "fork:"])
async def test_many_rows_that_lie_together_are_read_as_a_page_with_what_lies_between(
    kept: RowCache, tables: Watched, kind: str
) -> None:
    keys = [f"{kind}{number:05}" for number in range(40)]
    await put(tables, keys)
    known = kept.of("g")
    await kept.load("g", known, keys[10:30:2])
    assert tables.alone == []
    assert tables.pages == [Range(keys[10], f"{keys[28]}!")]
    assert sorted(known.rows) == keys[10:29]


async def test_the_rows_of_a_look_at_many_are_kept(kept: RowCache, tables: Watched) -> None:
    keys = [task(number) for number in range(30)]
    await put(tables, keys, "pending")
    tables.page_rows = 20
    known = kept.of("g")
    known.rows[keys[3]] = newer = Row(keys[3], "newer", {})
    async for page in kept.pages("g", Range("task:", "task;")):
        if page.continuation is not None:  # written here before the second page has been read
            known.drop(keys[:1])
    assert {**tables.partitions["g"], keys[3]: newer, keys[0]: None} == {**known.rows, keys[0]: None}
    assert keys[0] not in known.rows
    assert not known.reading


async def test_the_rows_of_a_look_give_way_to_what_is_written_meanwhile(tables: Watched) -> None:
    await put(tables, [task(1), task(2)], "pending")

    class Overtaken(Watched):
        async def query(self, partition: str, rows: Range, **options: Any) -> Page:
            page = await tables.query(partition, rows, **options)
            mine.written("g", [task(1)])  # between the answer and its arrival
            return page

    mine = RowCache(Overtaken())
    async for _ in mine.pages("g", Range("task:", "task;")):
        pass
    assert list(mine.of("g").rows) == [task(2)]


async def test_a_look_at_very_many_leaves_other_graphs_half_of_the_room(tables: Watched) -> None:
    await put(tables, [task(number) for number in range(30)], "pending")
    tables.page_rows = 10
    kept = RowCache(tables, rows_max=40)
    seen = [row async for page in kept.pages("g", Range("task:", "task;")) for row in page.rows]
    assert (len(seen), len(kept.of("g").rows)) == (30, 20)


async def test_what_has_completed_is_not_kept_unless_it_was_asked_for(kept: RowCache, tables: Watched) -> None:
    keys = [task(number) for number in range(20)]
    await put(tables, keys, "completed")
    known = kept.of("g")
    await kept.load("g", known, keys[::2])
    assert sorted(known.rows) == keys[::2]


async def test_rows_of_other_kinds_are_always_read_alone(kept: RowCache, tables: Watched) -> None:
    others = [f"request:{number}" for number in range(20)]
    await put(tables, [*others, "task-graph"])
    known = kept.of("g")
    await kept.load("g", known, [*others, "task-graph"])
    assert tables.pages == []
    assert known.rows == tables.partitions["g"]


async def test_each_kind_of_row_is_looked_at_by_itself(kept: RowCache, tables: Watched) -> None:
    tasks, joins = [task(number) for number in range(10)], [f"join:{number}:0" for number in range(2)]
    await put(tables, [*tasks, *joins, "task-graph"])
    known = kept.of("g")
    await kept.load("g", known, [*tasks, *joins, "task-graph"])
    assert tables.pages == [Range(tasks[0], f"{tasks[-1]}!")]
    assert tables.alone == [[*joins, "task-graph"]] or tables.alone == [["task-graph", *joins]]
    assert known.rows == tables.partitions["g"]


async def test_pages_in_which_little_is_found_are_read_no_more(kept: RowCache, tables: Watched) -> None:
    tables.page_rows = 50
    keys = [task(number) for number in range(3_000)]
    await put(tables, keys)
    known = kept.of("g")
    for start in range(12):
        await kept.load("g", known, keys[start::400])
    assert len([page for page in tables.pages if page.end != "task;"]) == 3, "from key to key"
    assert all(known.rows[key] == tables.partitions["g"][key] for start in range(12) for key in keys[start::400])


async def test_rows_read_one_here_and_one_there_are_in_the_end_read_as_pages_of_all(
    kept: RowCache, tables: Watched
) -> None:
    keys = [task(number) for number in range(500)]
    await put(tables, keys)
    rng = random.Random(1)
    order = rng.sample(keys, 200)
    known = kept.of("g")
    for key in order:
        if key not in known.rows:
            await kept.load("g", known, [key])
    assert len(tables.alone) <= 2 * limits.READ_PAGE_WORTH
    assert len(tables.pages) <= 2
    assert all(known.rows[key] == tables.partitions["g"][key] for key in order)


async def test_what_was_covered_once_and_dropped_since_is_read_alone(kept: RowCache, tables: Watched) -> None:
    """It would come again with much else."""
    keys = [task(number) for number in range(500)]
    await put(tables, keys)
    known = kept.of("g")
    for key in keys[::50]:
        await kept.load("g", known, [key])
    pages = len(tables.pages)
    assert pages
    known.rows.clear()
    for key in keys[::10]:
        await kept.load("g", known, [key])
    assert len(tables.pages) == pages


async def test_a_page_does_not_put_an_old_row_over_one_that_was_written_meanwhile(
    kept: RowCache, tables: Watched
) -> None:
    keys = [task(number) for number in range(20)]
    await put(tables, keys)
    known = kept.of("g")
    newer = Row(keys[5], "newer", {"state": "running"})
    known.rows[keys[5]] = newer
    await kept.load("g", known, keys[::2])
    assert known.rows[keys[5]] is newer
    await kept.load("g", known, keys[1::2])
    assert known.rows[keys[5]] == tables.partitions["g"][keys[5]], "it was asked for"


@pytest.mark.parametrize("page_rows", [3, 10, 1_000])
@pytest.mark.parametrize("seed", range(12))
async def test_however_rows_are_read_they_are_what_stands_there(
    kept: RowCache, tables: Watched, seed: int, page_rows: int
) -> None:
    rng = random.Random(seed)
    tables.page_rows = page_rows
    every = [f"{kind}{number:04}" for kind in ("task:", "join:", "fork:", "request:") for number in range(120)]
    present = sorted(rng.sample(every, 300))
    await put(tables, present)
    known = kept.of("g")
    for _ in range(25):
        start = rng.randrange(len(every))
        near = every[start : start + 60]
        wanted = set(rng.sample(near if rng.random() < 0.5 else every, rng.randint(1, min(30, len(near)))))
        for key in rng.sample(present, 10):  # others write
            row = tables.partitions["g"][key]
            await tables.commit("g", [Merge(key, row.etag, {"state": rng.choice(("running", "completed"))})])
        await kept.load("g", known, wanted)
        assert {key: known.rows[key] for key in wanted} == {key: tables.partitions["g"].get(key) for key in wanted}
        if rng.random() < 0.3:
            known.forget_absent()
            assert None not in known.rows.values()
        for key in rng.sample(sorted(known.rows), len(known.rows) // 3):
            del known.rows[key]


# --- reads that overlap ------------------------------------------------------------------------------------------


class Late(Watched):
    """Evaluates reads at once, and answers each when it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[asyncio.Event] = []

    async def _answer(self) -> None:
        self.answers.append(asyncio.Event())
        await self.answers[-1].wait()

    async def get(self, partition: str, keys: Sequence[str]) -> list[Row | None]:
        found = await super().get(partition, keys)
        await self._answer()
        return found

    async def query(self, partition: str, rows: Range, *, limit: int = 1000, continuation: str | None = None) -> Page:
        page = await super().query(partition, rows, limit=limit, continuation=continuation)
        await self._answer()
        return page


class Overlapping:
    """Rows of a graph, kept by reads that are answered in any order."""

    def __init__(self) -> None:
        self.tables = Late()
        self.kept = RowCache(self.tables)
        self.known = self.kept.of("g")
        self.keys = [task(number) for number in range(20)]
        self.key = self.keys[5]

    async def read(self, keys: Sequence[str]) -> "asyncio.Task[dict[str, Row | None]]":
        reading = asyncio.ensure_future(self.kept.load("g", self.known, keys))
        await asyncio.sleep(0)
        return reading

    async def write(self, state: str) -> Row:
        """Another process writes."""
        row = self.tables.partitions["g"][self.key]
        await self.tables.commit("g", [Merge(self.key, row.etag, {"state": state})])
        return self.tables.partitions["g"][self.key]


@pytest.fixture
async def overlapping() -> Overlapping:
    made = Overlapping()
    await put(made.tables, made.keys)
    return made


@pytest.mark.parametrize("place", [6, 19], ids=["into the keys", "beyond them"])
async def test_another_call_reads_on_while_a_page_is_under_way(
    overlapping: Overlapping, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    """What it has read on past is read alone: a page behind that place would say that it does not exist."""
    monkeypatch.setattr(limits, "READ_ALONE_MAX", 1)
    tables, known, keys = overlapping.tables, overlapping.known, overlapping.keys[5:9]
    known.alone = 10 * limits.READ_PAGE_WORTH
    query = tables.query

    async def short(partition: str, rows: Range, **options: Any) -> Page:
        monkeypatch.setattr(tables, "query", query)
        await query(partition, rows, **options)
        return Page((), "more")

    monkeypatch.setattr(tables, "query", short)
    reading = await overlapping.read(keys)
    known.covered["task:"] = overlapping.keys[place] if place < 19 else "\U0010ffff"
    while not reading.done():
        for answer in tables.answers:
            answer.set()
        await asyncio.sleep(0)
    assert await reading == {key: tables.partitions["g"][key] for key in keys}


@pytest.mark.parametrize("several", [False, True], ids=["alone", "page"])
@pytest.mark.parametrize("what", ["written", "supposed", "read", "dropped", "written elsewhere"])
async def test_an_older_answer_replaces_nothing(overlapping: Overlapping, several: bool, what: str) -> None:
    """Whatever came to be known of the row since it was read."""
    tables, known, key = overlapping.tables, overlapping.known, overlapping.key
    keys = [*overlapping.keys[::2], key] if several else [key]
    old = await overlapping.read(keys)
    newer: Row | None = await overlapping.write("running")
    assert newer is not None
    match what:
        case "written":
            known.rows[key] = newer
            known.overtake([key])
        case "supposed":
            known.suppose(newer)
        case "read":
            later = await overlapping.read([key])
            tables.answers[-1].set()
            assert await later == {key: newer}
        case "dropped":
            known.drop([key])
            newer = None
        case "written elsewhere":
            overlapping.kept.written("g", [key])
            newer = None
    tables.answers[0].set()
    found = await old
    assert found[key] != newer, "what was read is given to who asked for it"
    assert known.rows.get(key) is newer
    assert sorted(known.rows) == sorted(
        {*keys, *(overlapping.keys[:19] if several else [])} - ({key} if newer is None else set())
    )
    assert known.reading == []


@pytest.mark.parametrize("written", [False, True])
async def test_of_two_reads_at_one_time_that_differ_neither_is_kept(overlapping: Overlapping, written: bool) -> None:
    """The one that begins first ends first, and may have seen the row later."""
    tables, known, key = overlapping.tables, overlapping.known, overlapping.key
    row = tables.partitions["g"][key]
    first = await overlapping.read([key])
    if written:
        await overlapping.write("running")
    second = await overlapping.read([key])
    tables.answers[0].set()
    await first
    assert known.rows[key] is row
    tables.answers[1].set()
    assert await second == {key: tables.partitions["g"][key]}
    assert (key in known.rows) is not written
    assert known.reading == []


async def test_what_lies_between_does_not_come_back_by_an_older_page(overlapping: Overlapping) -> None:
    """It was not asked for; it was dropped while the page was under way."""
    tables, known = overlapping.tables, overlapping.known
    page = await overlapping.read(overlapping.keys[::2])
    known.drop([overlapping.key])
    tables.answers[0].set()
    await page
    assert overlapping.key not in known.rows
    assert overlapping.keys[7] in known.rows


async def test_of_two_reads_that_began_after_a_write_both_are_kept(overlapping: Overlapping) -> None:
    known, key = overlapping.known, overlapping.key
    known.suppose(await overlapping.write("running"))
    newest = await overlapping.write("completed")
    reading = await overlapping.read([key])
    overlapping.tables.answers[0].set()
    await reading
    assert known.rows[key] == newest


async def test_a_read_that_breaks_is_under_way_no_longer(overlapping: Overlapping) -> None:
    reading = await overlapping.read([overlapping.key])
    assert len(overlapping.known.reading) == 1
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert overlapping.known.reading == []
    assert overlapping.known.rows == {}


# --- absence -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 20], ids=["alone", "page"])
async def test_an_absence_is_forgotten_with_the_transition(kept: RowCache, tables: Watched, count: int) -> None:
    keys = [task(number) for number in range(count)]
    await put(tables, keys[1::2])
    known = kept.of("g")
    await kept.load("g", known, keys)
    assert [key for key, row in known.rows.items() if row is None] == keys[::2]
    known.forget_absent()
    assert sorted(known.rows) == keys[1::2]
    await put(tables, keys[::2])
    await kept.load("g", known, keys)
    assert known.rows == tables.partitions["g"]


async def test_a_page_that_is_cut_short_says_nothing_of_what_lies_behind_it(kept: RowCache, tables: Watched) -> None:
    tables.page_rows = 5
    keys = [task(number) for number in range(30)]
    await put(tables, keys)
    known = kept.of("g")
    await kept.load("g", known, keys[::3])
    assert {key: known.rows[key] for key in keys[::3]} == {key: tables.partitions["g"][key] for key in keys[::3]}


# --- how much, for how long --------------------------------------------------------------------------------------


async def test_rows_are_kept_by_graph(kept: RowCache, tables: Watched) -> None:
    for graph in "gh":
        await put(tables, [task(1)], graph=graph)
        await kept.load(graph, kept.of(graph), [task(1)])
    assert kept.of("g").rows == tables.partitions["g"]
    assert kept.of("h").rows == tables.partitions["h"]
    kept.forget("g")
    kept.forget("nobody")
    assert kept.of("g").rows == {}
    assert kept.of("h").rows == tables.partitions["h"]


async def test_what_others_of_the_process_wrote_is_not_kept(kept: RowCache, tables: Watched) -> None:
    await put(tables, [task(1), task(2)])
    await kept.load("g", kept.of("g"), [task(1), task(2)])
    kept.written("g", [task(1), "event:1"])
    kept.written("nobody", [task(1)])
    assert sorted(kept.of("g").rows) == [task(2)]


async def test_of_too_many_rows_those_of_the_graphs_used_longest_ago_go_first(
    kept: RowCache, tables: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CACHED_ROWS_MAX", 25)
    for graph in ("a", "b", "c"):
        keys = [task(number) for number in range(10)]
        await put(tables, keys, graph=graph)
        await kept.load(graph, kept.of(graph), keys)
    for _ in range(40):
        kept.of("a")
        kept.of("c")
    assert len(kept.of("a").rows) == 10
    assert len(kept.of("c").rows) == 10
    assert kept.of("b").rows == {}


async def test_a_graph_that_alone_is_too_large_is_not_read_in_whole_again(
    kept: RowCache, tables: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CACHED_ROWS_MAX", 25)
    keys = [task(number) for number in range(100)]
    await put(tables, keys)
    for key in keys[:: limits.READ_PAGE_WORTH // 2]:
        await kept.load("g", kept.of("g"), [key])
        kept.of("g").rows.setdefault(key, None)
    assert tables.pages
    for _ in range(40):
        known = kept.of("g")
    assert len(known.rows) <= 25
    pages = len(tables.pages)
    for key in keys[::7]:
        await kept.load("g", known, [key])
    assert len(tables.pages) == pages


@pytest.mark.parametrize(("text", "rows"), [("", None), ("64", 32_000), ("1", 500), ("2.5", 1_250)])
async def test_the_memory_for_known_rows_is_a_setting(text: str, rows: int | None, tmp_path: Path) -> None:
    settings = read_settings(f"sqlite:///{tmp_path}/s.db", {"TASKGRAPH_ROW_CACHE_MB": text}, cwd=tmp_path)
    assert settings.cached_rows_max == rows
    async with open_app(settings) as app:
        assert app.handlers.row_cache._rows_max == rows


@pytest.mark.parametrize("text", ["0", "0.5", "-1", "many", "100001", "1e3"])
def test_what_is_no_size_of_the_row_cache_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match=r"TASKGRAPH_ROW_CACHE_MB=.*: megabytes, 1 to 100,000"):
        read_settings(None, {"TASKGRAPH_ROW_CACHE_MB": text}, cwd=tmp_path)


def test_the_function_app_keeps_fewer_rows(tmp_path: Path) -> None:
    account = {"AzureWebJobsStorage": "AccountName=acc;AccountKey=c2VjcmV0"}
    assert read_connection(account, cwd=tmp_path).cached_rows_max == 32_000
    assert read_connection({**account, "TASKGRAPH_ROW_CACHE_MB": "8"}, cwd=tmp_path).cached_rows_max == 4_000
    assert read_settings(None, account, cwd=tmp_path).cached_rows_max is None, "the rest as elsewhere"


async def test_no_more_rows_are_kept_than_are_set(tables: Watched) -> None:
    kept = RowCache(tables, 25)
    for graph in ("a", "b", "c"):
        keys = [task(number) for number in range(10)]
        await put(tables, keys, graph=graph)
        await kept.load(graph, kept.of(graph), keys)
    for _ in range(40):
        kept.of("a")
        kept.of("c")
    assert kept.of("b").rows == {}
    assert len(kept.of("a").rows) == len(kept.of("c").rows) == 10


async def test_inserted_rows_are_kept_while_they_leave_half_of_the_room(tables: Watched) -> None:
    kept = RowCache(tables, 25)
    rows = [Row(task(number), f"e{number}", {}) for number in range(12)]
    kept.inserted("g", [*rows[:10], Row("definition:1", "e", {})])
    kept.inserted("g", rows[8:])
    assert sorted(kept.of("g").rows) == [row.key for row in rows[:10]]


async def test_a_read_that_began_before_replaces_no_inserted_row(kept: RowCache) -> None:
    known = kept.of("g")
    reading = known.begin()
    kept.inserted("g", [Row(task(1), "new", {})])
    known.keep(reading, {task(1): None}, [task(1)])
    assert known.rows[task(1)] == Row(task(1), "new", {})
