"""The embedded store beyond the contract: several processes, crashes, files that are not ours."""

import asyncio
import contextlib
import signal
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from taskgraph.model.clock import SystemClock
from taskgraph.model.errors import Conflict, StorageUnavailable, TooLarge, Unclear
from taskgraph.storage.sqlite import database, file
from taskgraph.storage.sqlite import queues as embedded_queues
from taskgraph.storage.sqlite import tables as embedded_tables
from taskgraph.storage.sqlite.store import EmbeddedStore
from taskgraph.storage.tables import Insert, Merge, Range, Row, Tables, query_all
from taskgraph.testing import ManualClock

ROOT = Path(__file__).resolve().parent.parent.parent


@contextlib.asynccontextmanager
async def opened(path: Path, *, synchronous: str = "normal") -> AsyncIterator[EmbeddedStore]:
    store = EmbeddedStore(path, ManualClock(), synchronous=synchronous)
    try:
        yield store
    finally:
        await store.close()


async def add_up(tables: Tables, times: int) -> None:
    """Add 1 to each of two rows, so often, in one commit each time."""
    for _ in range(times):
        while True:
            left, right = await tables.get("p", ["left", "right"])
            assert left is not None
            assert right is not None
            n = left.columns["n"]
            assert isinstance(n, int)
            try:
                await tables.commit(
                    "p", [Merge("left", left.etag, {"n": n + 1}), Merge("right", right.etag, {"n": n + 1})]
                )
            except Conflict:
                continue
            break


async def set_pages_max(store: EmbeddedStore, pages: int) -> None:
    """Make the disk full, as far as this store can see."""
    await store._file.call(lambda session: session.one(f"PRAGMA max_page_count={pages}"))


async def refuse_to_commit(store: EmbeddedStore, refused: bool) -> None:
    """Have SQLite itself refuse the end of every transaction, or no more."""

    def allow(action: int, what: str | None, *_: str | None) -> int:
        ends = action == sqlite3.SQLITE_TRANSACTION and what == "COMMIT"
        return sqlite3.SQLITE_DENY if ends else sqlite3.SQLITE_OK

    await store._file.call(lambda session: session._connection.set_authorizer(allow if refused else None))


def start(script: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


# --- the file ----------------------------------------------------------------------------------------------------


async def test_the_file_and_its_folder_come_with_the_first_write(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "store.db"
    async with opened(path) as store:
        tables = store.tables("graphs")
        assert not path.exists()
        assert await tables.get("p", ["a"]) == [None]
        assert not path.exists(), "looking makes nothing"
        await tables.commit("p", [Insert("a", {})])
        assert path.exists()


async def test_what_was_written_is_there_when_the_file_is_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with opened(path) as store:
        [etag] = await store.tables("graphs").commit("p", [Insert("a", {"n": 1})])
        await store.queues().send("queue", ["m"])
        await store.logs().append("g", "t", 0, b"log")
    async with opened(path, synchronous="full") as store:
        assert await store.tables("graphs").get("p", ["a"]) == [Row("a", str(etag), {"n": 1})]
        [after] = await store.tables("graphs").commit("p", [Merge("a", str(etag), {})])
        [other] = await store.tables("other").commit("p", [Insert("a", {})])
        assert len({etag, after, other}) == 3, "etags go on over processes and tables"
        assert [d.body for d in await store.queues().receive("queue", lease_seconds=1)] == ["m"]
        assert await store.logs().read("g", "t", 0) == b"log"


async def test_rows_can_be_read_with_any_tool(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with opened(path) as store:
        await store.tables("graphs").commit("p", [Insert("a", {"state": "pending", "n": 1})])
        with contextlib.closing(sqlite3.connect(path)) as connection:
            found = connection.execute("SELECT columns ->> '$.state' FROM row WHERE key = 'a'").fetchone()
    assert found == ("pending",)


async def test_a_folder_of_no_run_is_not_listed(tmp_path: Path) -> None:
    async with opened(tmp_path / "store.db") as store:
        await store.logs().append("graph", "task", 2, b"x")
        other = tmp_path / "logs" / "graph" / "task" / "no run"
        other.mkdir()
        (other / "run.log").touch()
        assert [(file.task_id, file.run) for file in (await store.logs().files("graph")).files] == [("task", 2)]


async def test_logs_that_grow_while_they_are_removed_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rmdir, late = Path.rmdir, ["late.log"]

    def grows(folder: Path) -> None:
        if late:
            (folder / late.pop()).touch()
        rmdir(folder)

    async with opened(tmp_path / "store.db") as store:
        await store.logs().append("graph", "task", 2, b"x")
        monkeypatch.setattr(Path, "rmdir", grows)
        assert await store.logs().remove("graph") == 2
        assert not (tmp_path / "logs" / "graph").exists()


async def test_logs_lie_beside_the_file(tmp_path: Path) -> None:
    async with opened(tmp_path / "with space" / "store.db") as store:
        await store.logs().append("graph", "task", 2, b"x")
        place = Path(unquote(urlsplit(store.logs().url("graph", "task", 2)).path))
        assert place == tmp_path / "with space" / "logs" / "graph" / "task" / "2" / "run.log"
        assert place.read_bytes() == b"x"


async def assert_unavailable(path: Path, words: str) -> None:
    async with opened(path) as store:
        for attempt in range(2):  # and again, with the same sentence: nothing half open stays behind
            with pytest.raises(StorageUnavailable, match=words) as caught:
                await store.tables("graphs").commit("p", [Insert(f"a{attempt}", {})])
            assert str(path) in str(caught.value)
            assert caught.value.endpoint == str(path)
        with pytest.raises(StorageUnavailable, match=words):
            await store.queues().send("queue", ["x"])


async def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("these are my notes, and they must stay as they are\n" * 100)
    before = path.read_bytes()
    await assert_unavailable(path, "is no SQLite database")
    assert path.read_bytes() == before


async def test_the_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    await assert_unavailable(path, "the database of another program")


async def test_a_newer_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with opened(path) as store:
        await store.tables("graphs").commit("p", [Insert("a", {})])
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version=99")
    await assert_unavailable(path, "newer version")


async def test_a_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "folder.db").mkdir()
    await assert_unavailable(tmp_path / "folder.db", "is it a folder")


async def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    await assert_unavailable(tmp_path / "file" / "store.db", "folder of .* cannot be made")


async def test_a_folder_that_is_not_writable_is_named() -> None:
    await assert_unavailable(Path("/proc/store.db"), "not writable")  # for root neither


async def test_a_file_that_stays_locked_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.1)
    path = tmp_path / "store.db"
    async with opened(path) as store:
        tables = store.tables("graphs")
        await tables.commit("p", [Insert("a", {})])
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StorageUnavailable, match=r"store\.db has been locked by another process"):
                await tables.commit("p", [Insert("b", {})])
            assert (await tables.get("p", ["a", "b"]))[1] is None, "readers do not wait"
            other.execute("ROLLBACK")
        await tables.commit("p", [Insert("b", {})])


async def test_a_disk_that_is_full_loses_nothing_and_recovers(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with opened(path) as store:
        tables = store.tables("graphs")
        await tables.commit("p", [Insert("a", {"n": 1})])

        await set_pages_max(store, 1)
        big = {f"c{n}": "x" * 30_000 for n in range(10)}
        with pytest.raises(StorageUnavailable, match="the disk is full"):
            await tables.commit("p", [Insert("b", {}), Insert("big", big)])
        assert [row and row.key for row in await tables.get("p", ["a", "b", "big"])] == ["a", None, None]
        await set_pages_max(store, 1_000_000)
        await tables.commit("p", [Insert("b", {}), Insert("big", big)])


async def test_only_commits_of_rows_are_unclear(tmp_path: Path) -> None:
    """The ports promise it: who sends, acknowledges or reads asks again, and settles nothing."""
    async with opened(tmp_path / "store.db") as store:
        tables, queues = store.tables("graphs"), store.queues()
        await tables.commit("p", [Insert("a", {"n": 1})])
        await queues.send("queue", ["m"])
        (delivery,) = await queues.receive("queue", lease_seconds=60)
        await refuse_to_commit(store, True)
        told = await asyncio.gather(  # one group, and so one transaction
            tables.commit("p", [Insert("b", {})]),
            tables.get("p", ["a"]),
            queues.send("queue", ["more"]),
            queues.renew(delivery, lease_seconds=60),
            return_exceptions=True,
        )
        assert [type(each) for each in told] == [Unclear, StorageUnavailable, StorageUnavailable, StorageUnavailable]
        for call in (queues.delete(delivery), queues.send("queue", ["more"])):
            with pytest.raises(StorageUnavailable):
                await call
        await refuse_to_commit(store, False)
        assert await tables.get("p", ["b"]) == [None]
        await queues.delete(delivery)
        assert await queues.count("queue") == 0


async def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path / "store.db", ManualClock())
    tables, queues, logs = store.tables("graphs"), store.queues(), store.logs()
    await tables.commit("p", [Insert("a", {})])
    assert await tables.get("p", ["b"]) == [None]
    await store.close()
    await store.close()
    for attempt in (tables.get("p", ["a"]), queues.count("queue"), logs.read("g", "t", 0)):
        with pytest.raises(StorageUnavailable, match="closed"):
            await attempt


async def test_a_store_that_was_never_used_can_be_closed(tmp_path: Path) -> None:
    await EmbeddedStore(tmp_path / "store.db", ManualClock()).close()
    assert list(tmp_path.iterdir()) == []


def test_synchronous_is_normal_or_full(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="normal or full"):
        EmbeddedStore(tmp_path / "store.db", ManualClock(), synchronous="off")


@pytest.mark.parametrize(("word", "number"), [("normal", 1), ("full", 2)])
async def test_synchronous_reaches_the_connection(tmp_path: Path, word: str, number: int) -> None:
    async with opened(tmp_path / "store.db", synchronous=word) as store:
        await store.tables("graphs").commit("p", [Insert("a", {})])
        assert await store._file.call(lambda session: session.one("PRAGMA synchronous")) == (number,)
        assert await store._file.call(lambda session: session.one("PRAGMA journal_mode")) == ("wal",)


def test_a_store_serves_one_loop_after_another(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path / "store.db", ManualClock())
    tables = store.tables("graphs")
    for n in range(3):
        asyncio.run(tables.commit("p", [Insert(f"k{n}", {})]))
    assert [row.key for row in asyncio.run(query_all(tables, "p", Range()))] == ["k0", "k1", "k2"]
    asyncio.run(store.close())


# --- groups ------------------------------------------------------------------------------------------------------


async def test_a_refusal_in_a_group_leaves_the_others_alone(tmp_path: Path) -> None:
    """Calls that wait together share a transaction: what one of them is refused must not touch the rest."""
    async with opened(tmp_path / "store.db") as store:
        tables = store.tables("graphs")
        await tables.commit("p", [Insert("there", {})])
        full = {f"c{n}": n for n in range(250)}
        [etag] = await tables.commit("p", [Insert("full", full)])
        results = await asyncio.gather(
            *[tables.commit("p", [Insert(f"k{n}", {})]) for n in range(20)],
            tables.commit("p", [Insert("new", {}), Insert("there", {})]),
            tables.commit("p", [Insert("newer", {}), Merge("full", str(etag), {"one_more": 1})]),
            *[tables.commit("p", [Insert(f"l{n}", {})]) for n in range(20)],
            return_exceptions=True,
        )
        assert [type(result) for result in results] == [list] * 20 + [Conflict, TooLarge] + [list] * 20
        found = {row.key for row in await query_all(tables, "p", Range())}
        assert found == {"there", "full", *(f"{c}{n}" for c in "kl" for n in range(20))}


async def test_each_call_of_a_group_sees_those_before_it(tmp_path: Path) -> None:
    async with opened(tmp_path / "store.db") as store:
        tables = store.tables("graphs")
        results = await asyncio.gather(
            *[tables.commit("p", [Insert("a", {"n": n})]) for n in range(100)], return_exceptions=True
        )
        assert [isinstance(result, Conflict) for result in results] == [False] + [True] * 99


async def test_who_stops_waiting_disturbs_nobody(tmp_path: Path) -> None:
    async with opened(tmp_path / "store.db") as store:
        tables = store.tables("graphs")
        await tables.get("p", ["a"])
        calls = [asyncio.ensure_future(tables.commit("p", [Insert(f"k{n:02}", {})])) for n in range(60)]
        await asyncio.sleep(0)
        for call in calls[::2]:
            call.cancel()
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(result, list) for result in results[1::2])
        found = {row.key for row in await query_all(tables, "p", Range())}
        assert found >= {f"k{n:02}" for n in range(1, 60, 2)}


async def test_a_merge_cannot_grow_a_row_past_a_limit(tmp_path: Path) -> None:
    async with opened(tmp_path / "store.db") as store:
        tables = store.tables("graphs")
        [etag] = await tables.commit("p", [Insert("a", {f"c{n}": "ж" * 30_000 for n in range(15)})])
        with pytest.raises(TooLarge, match=r"row 'a' has \d+ characters; the limit is 500000, which this merge"):
            await tables.commit(
                "p", [Insert("b", {}), Merge("a", str(etag), {f"d{n}": "ж" * 30_000 for n in range(2)})]
            )
        [etag] = await tables.commit("p", [Merge("a", str(etag), {"d": "ж" * 30_000})])
        assert await tables.get("p", ["b"]) == [None]
        [row] = await tables.get("p", ["a"])
        assert row is not None
        assert row.etag == etag


async def test_pages_of_large_rows_end_early_and_go_on(tmp_path: Path) -> None:
    async with opened(tmp_path / "store.db") as store:
        tables = store.tables("graphs")
        row = {f"c{n}": "x" * 32_000 for n in range(3)}
        for start_at in range(0, 420, 30):
            await tables.commit("p", [Insert(f"k{n:03}", row) for n in range(start_at, start_at + 30)])
        page = await tables.query("p", Range())
        assert len(page.rows) < 420
        assert page.continuation is not None
        assert len(await query_all(tables, "p", Range())) == 420


async def test_a_conditional_query_looks_at_a_bounded_number_of_rows(tmp_path: Path) -> None:
    async with opened(tmp_path / "store.db") as store:
        tables = store.tables("graphs")
        for start_at in range(0, 5_000, 100):
            await tables.commit("p", [Insert(f"k{n:05}", {"s": "no"}) for n in range(start_at, start_at + 100)])
        await tables.commit("p", [Insert("z", {"s": "yes"})])
        page = await tables.query("p", Range(where={"s": ("yes",)}))
        assert (list(page.rows), page.continuation is None) == ([], False), "an empty page is not the end (P25)"
        assert [row.key for row in await query_all(tables, "p", Range(where={"s": ("yes",)}))] == ["z"]


# --- several at once ---------------------------------------------------------------------------------------------


async def test_two_stores_on_one_file_lose_no_update(tmp_path: Path) -> None:
    async with opened(tmp_path / "store.db") as one, opened(tmp_path / "store.db") as two:
        left, right = one.tables("graphs"), two.tables("graphs")
        await left.commit("p", [Insert("left", {"n": 0}), Insert("right", {"n": 0})])
        await asyncio.gather(*[add_up(tables, 15) for tables in (left, right, left, right)])
        assert [row.columns for row in await query_all(right, "p", Range())] == [{"n": 60}, {"n": 60}]


async def test_two_stores_on_one_file_share_no_message(tmp_path: Path) -> None:
    async with opened(tmp_path / "store.db") as one, opened(tmp_path / "store.db") as two:
        await one.queues().send("queue", [str(n) for n in range(300)])
        got: list[str] = []

        async def consume(store: EmbeddedStore) -> None:
            while deliveries := await store.queues().receive("queue", count=7, lease_seconds=30):
                got.extend(delivery.body for delivery in deliveries)
                await asyncio.gather(*[store.queues().delete(delivery) for delivery in deliveries])

        await asyncio.gather(*[consume(store) for store in (one, two, one, two)])
        assert sorted(got, key=int) == [str(n) for n in range(300)]


async def test_receiving_one_by_one_from_many_connections_gives_each_message_once(tmp_path: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(opened(tmp_path / "store.db")) for _ in range(4)]
        await stores[0].queues().send("queue", [str(n) for n in range(400)])
        got: list[str] = []

        async def consume(store: EmbeddedStore) -> None:
            while deliveries := await store.queues().receive("queue", lease_seconds=30):
                got.append(deliveries[0].body)

        await asyncio.gather(*[consume(store) for store in stores])
        assert sorted(got, key=int) == [str(n) for n in range(400)]


async def test_blocks_of_etags_do_not_overlap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "_ETAG_BLOCK", 3)
    async with opened(tmp_path / "store.db") as one, opened(tmp_path / "store.db") as two:
        etags: list[str | None] = []
        for n in range(20):
            for name, store in (("one", one), ("two", two)):
                etags += await store.tables(name).commit("p", [Insert(f"{n}-{part}", {}) for part in range(n % 5 + 1)])
        assert len(etags) == 120
        assert len(set(etags)) == 120


async def test_what_a_failed_transaction_took_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its etags and the number of its new table were given back, and another process may have them by now."""
    monkeypatch.setattr(file, "_ETAG_BLOCK", 3)
    big = {f"c{n}": "x" * 30_000 for n in range(10)}
    async with opened(tmp_path / "store.db") as one, opened(tmp_path / "store.db") as two:
        await one.tables("first").commit("p", [Insert(f"k{n}", {}) for n in range(3)])
        await set_pages_max(one, 1)
        with pytest.raises(StorageUnavailable, match="the disk is full"):
            await one.tables("second").commit("p", [Insert("big", big)])
        await set_pages_max(one, 1_000_000)
        etags = await two.tables("third").commit("p", [Insert(key, {}) for key in ("a", "aa", "aaa")])
        etags += await one.tables("second").commit("p", [Insert("b", {})])
        assert len(set(etags)) == 4
        assert [row.key for row in await query_all(one.tables("third"), "p", Range())] == ["a", "aa", "aaa"]
        assert [row.key for row in await query_all(two.tables("second"), "p", Range())] == ["b"]


@pytest.mark.parametrize("attempt", range(30))  # one in ten once met a schema that another was just making
async def test_many_stores_may_make_the_file_at_once(tmp_path: Path, attempt: int) -> None:
    stores = [EmbeddedStore(tmp_path / "store.db", ManualClock()) for _ in range(8)]
    try:
        results = await asyncio.gather(
            *[store.tables("graphs").commit("p", [Insert("a", {"n": n})]) for n, store in enumerate(stores)],
            return_exceptions=True,
        )
        assert sorted(type(result).__name__ for result in results) == ["Conflict"] * 7 + ["list"]
        etags = [(await store.tables("graphs").commit("p", [Insert(f"k{n}", {})]))[0] for n, store in enumerate(stores)]
        assert len(set(etags)) == 8
    finally:
        for store in stores:
            await store.close()


ADD_UP = """
    import asyncio, sys
    from pathlib import Path
    from taskgraph.model.clock import SystemClock
    from taskgraph.storage.sqlite.store import EmbeddedStore
    from tests.unit.test_storage_embedded import add_up

    async def main():
        store = EmbeddedStore(Path(sys.argv[1]), SystemClock())
        await add_up(store.tables("graphs"), 100)
        await store.close()

    asyncio.run(main())
"""


async def test_processes_on_one_file_lose_no_update(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with opened(path) as store:
        tables = store.tables("graphs")
        await tables.commit("p", [Insert("left", {"n": 0}), Insert("right", {"n": 0})])
        others = [start(ADD_UP, str(path)) for _ in range(2)]
        await add_up(tables, 100)
        for other in others:
            _, errors = await asyncio.to_thread(other.communicate, timeout=60)
            assert other.returncode == 0, errors
        assert [row.columns for row in await query_all(tables, "p", Range())] == [{"n": 300}, {"n": 300}]


WRITE = """
    import asyncio, sys
    from pathlib import Path
    from taskgraph.model.clock import SystemClock
    from taskgraph.storage.sqlite.store import EmbeddedStore
    from taskgraph.storage.tables import Insert

    async def main():
        store = EmbeddedStore(Path(sys.argv[1]), SystemClock())
        tables = store.tables("graphs")
        n = 0
        while True:
            await tables.commit("p", [Insert(f"{n:06}-{part}", {"n": n}) for part in "abc"])
            print(n, flush=True)
            n += 1

    asyncio.run(main())
"""


async def test_a_process_that_is_killed_loses_nothing_that_was_answered(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    writer = start(WRITE, str(path))
    assert writer.stdout is not None
    answered = -1
    for line in writer.stdout:
        answered = int(line)
        if answered == 300:
            writer.send_signal(signal.SIGKILL)
    writer.communicate()
    assert answered >= 300
    async with opened(path) as store:
        keys = [row.key for row in await query_all(store.tables("graphs"), "p", Range())]
    written = len(keys) // 3
    assert written > answered
    assert keys == [f"{n:06}-{part}" for n in range(written) for part in "abc"], "and nothing by halves"


async def test_leases_go_by_the_clock_that_was_handed_in(tmp_path: Path) -> None:
    clock = ManualClock()
    store = EmbeddedStore(tmp_path / "store.db", clock)
    queues = store.queues()
    await queues.send("queue", ["a"])
    assert len(await queues.receive("queue", lease_seconds=0.5)) == 1
    clock.advance(0.499_999)
    assert await queues.receive("queue", lease_seconds=1) == []
    clock.advance(0.000_001)
    assert len(await queues.receive("queue", lease_seconds=1)) == 1
    await store.close()


async def test_messages_come_in_the_order_in_which_they_became_visible(tmp_path: Path) -> None:
    clock = ManualClock()
    store = EmbeddedStore(tmp_path / "store.db", clock)
    queues = store.queues()
    await queues.send("queue", ["late"], delay_seconds=5)
    await queues.send("queue", ["a", "b"])
    clock.advance(1)
    await queues.send("queue", ["c"])
    clock.advance(10)
    await queues.send("queue", ["d"])
    assert [d.body for d in await queues.receive("queue", count=32, lease_seconds=9)] == ["a", "b", "c", "late", "d"]
    await store.close()


async def test_receiving_uses_the_index(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path / "store.db", SystemClock())
    await store.queues().send("queue", ["x"])
    with contextlib.closing(sqlite3.connect(tmp_path / "store.db")) as connection:
        scanned: tuple[object, ...] = (1, "p", "a", "b", 10)
        where, fragments = embedded_tables._scan(Range(where={"state": ("x", "y")}))
        by_key = (
            *embedded_tables._GET,
            *embedded_tables._MERGE,
            *embedded_tables._MERGE_IF_ROOM,
            *embedded_tables._REPLACE,
            *embedded_tables._REMOVE,
            embedded_tables._LOOK,
            embedded_tables._COLUMNS,
        )
        plans: list[tuple[str, tuple[object, ...], str]] = [
            (embedded_queues._WAITING, ("q", 1), "message_visible (queue=? AND visible_at<?)"),
            (embedded_queues._NEXT, ("q", 1, 32), "message_visible (queue=? AND visible_at<?)"),
            (embedded_tables._SCAN, scanned, "row_key (tab=? AND partition=? AND key>? AND key<?)"),
            (where, (*fragments, *scanned), "row_key (tab=? AND partition=? AND key>? AND key<?)"),
            *[
                (each, (None,) * each.count("?"), "SEARCH row USING INDEX row_key (tab=? AND partition=? AND key=?)")
                for each in by_key
            ],
        ]
        for statement, values, index in plans:
            plan = " ".join(row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", values))
            assert index in plan
            assert "TEMP B-TREE" not in plan, "the order comes from the index"
    await store.close()


@pytest.mark.parametrize(
    ("code", "mode", "kind"),
    [
        (sqlite3.SQLITE_FULL, "normal", StorageUnavailable),
        (sqlite3.SQLITE_IOERR_WRITE, "normal", StorageUnavailable),
        (sqlite3.SQLITE_FULL, "full", Unclear),
        (sqlite3.SQLITE_IOERR_FSYNC, "normal", Unclear),
    ],
)
async def test_a_commit_for_which_there_is_no_room_has_not_happened(
    code: int, mode: str, kind: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no question that only reading settles, and so no conflict in the end: the store cannot take it."""
    async with opened(tmp_path / "store.db", synchronous=mode) as store:
        tables = store.tables("graphs")
        await tables.commit("p", [Insert("a", {})])

        def full(self: object) -> None:
            error = sqlite3.OperationalError("no room")
            error.sqlite_errorcode = code
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(file.Session, "commit", full)
            with pytest.raises(kind):
                await tables.commit("p", [Insert("b", {})])
        assert (await tables.get("p", ["b"])) == [None]
