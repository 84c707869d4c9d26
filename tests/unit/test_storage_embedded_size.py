"""How long the embedded store's file is: free pages are used again, and given back when most of it is free."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from taskgraph.storage.sqlite import database, file
from taskgraph.storage.sqlite.store import EmbeddedStore
from taskgraph.storage.tables import Delete, Insert, Range, Tables, query_all
from taskgraph.testing import ManualClock
from tests.unit.test_storage_embedded import opened

ROWS = 300
LARGE = {"text": "x" * 2_000}


async def fill(tables: Tables, partition: str, rows: int = ROWS) -> None:
    for start in range(0, rows, 100):
        await tables.commit(partition, [Insert(f"{start + n:06}", LARGE) for n in range(100)])


async def empty(tables: Tables, partition: str) -> None:
    rows = await query_all(tables, partition, Range(select=()))
    for start in range(0, len(rows), 100):
        await tables.commit(partition, [Delete(row.key, row.etag) for row in rows[start : start + 100]])


def pages_of(path: Path) -> tuple[int, int]:
    """All pages of the file, and those that are free."""
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        (pages,), (free,) = (
            connection.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "freelist_count")
        )
        return int(pages), int(free)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that a test reaches."""
    monkeypatch.setattr(file, "_FREE_PAGES_KEPT", 40)
    monkeypatch.setattr(file, "_GIVEN_BACK_PAGES", 25)


async def test_what_comes_and_goes_makes_the_file_no_longer(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    lengths: list[int] = []
    async with opened(path) as store:
        tables = store.tables("rows")
        for day in range(12):
            await fill(tables, f"day {day}")
            if day:
                await empty(tables, f"day {day - 1}")
            lengths.append(pages_of(path)[0])
    assert max(lengths[2:]) <= lengths[1] * 1.1, "two days of rows, at any time"


@pytest.mark.usefixtures("small")
async def test_what_nothing_comes_after_is_given_back_a_part_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with opened(path) as store:
        tables = store.tables("rows")
        await fill(tables, "stays", 100)
        await fill(tables, "goes", 600)
        full, _ = pages_of(path)
        assert not await store.give_back(), "nothing of it is free"
        await empty(tables, "goes")
        _, free = pages_of(path)
        assert free > full / 2
        parts = 1
        while await store.give_back():
            pages, left = pages_of(path)
            assert (full - pages, free - left) == (25 * parts, 25 * parts)
            parts += 1
        assert parts > 3
        pages, left = pages_of(path)
        assert left <= max(40, pages / 2) + 1
        assert not await store.give_back(), "the rest is for what comes next"
        assert pages_of(path) == (pages, left)
        assert [row.columns for row in await query_all(tables, "stays", Range())] == [LARGE] * 100
        await fill(tables, "comes")
    assert path.stat().st_size < full * 4_096


@pytest.mark.usefixtures("small")
async def test_the_checkpoint_that_makes_the_file_shorter_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.db"
    async with opened(path) as store:
        tables = store.tables("rows")
        await fill(tables, "goes", 600)
        await empty(tables, "goes")
        store._file._checkpoints.close()
        begun: list[str] = []

        class Thread:
            def submit(self, *_work: object) -> None:
                begun.append("checkpoint")

            def shutdown(self, *, wait: bool) -> None:
                pass

        monkeypatch.setattr(store._file._checkpoints, "_thread", Thread())
        while await store.give_back():
            assert not begun
        assert begun == ["checkpoint"]


@pytest.mark.usefixtures("small")
async def test_a_file_of_an_older_version_keeps_its_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "store.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")  # as older versions did first
        for statement in database._SCHEMA:
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version={database._SCHEMA_VERSION}")
        connection.execute(f"PRAGMA application_id={database._APPLICATION_ID}")
        connection.commit()
    async with opened(path) as store:
        await fill(store.tables("rows"), "goes")
        await empty(store.tables("rows"), "goes")
        before = pages_of(path)
        assert not await store.give_back()
        assert pages_of(path) == before


async def test_where_there_is_no_file_there_is_nothing_to_give_back(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path / "none.db", ManualClock())
    assert not await store.give_back()
    await store.close()
    assert not await store.give_back()
    assert list(tmp_path.iterdir()) == []
