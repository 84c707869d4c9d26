"""The embedded store's turns: what runs on the event loop, what must not, and how the log is copied."""

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from taskgraph.model.clock import SystemClock
from taskgraph.model.errors import Conflict, StorageUnavailable, Unclear
from taskgraph.model.names import ALL, LIVE
from taskgraph.storage.sqlite import database, file
from taskgraph.storage.sqlite import tables as embedded_tables
from taskgraph.storage.sqlite.file import LookFirst, Session
from taskgraph.storage.sqlite.store import EmbeddedStore
from taskgraph.storage.tables import Change, Delete, Insert, Merge, Page, Range, Replace, Tables, query_all
from taskgraph.testing import ManualClock
from tests.unit.test_storage_embedded import start


@contextlib.asynccontextmanager
async def opened(path: Path, *, synchronous: str = "normal") -> AsyncIterator[EmbeddedStore]:
    store = EmbeddedStore(path, ManualClock(), synchronous=synchronous)
    try:
        await store.tables("graphs").get("p", ["a"])  # the connection is there
        yield store
    finally:
        await store.close()


async def where(store: EmbeddedStore, rows: int) -> str:
    """The name of the thread that runs a call of so many rows."""
    return await store._file.call(lambda session: threading.current_thread().name, rows=rows)


HERE = threading.current_thread().name
THREAD = "taskgraph-sqlite"


async def test_short_calls_run_on_the_loop_and_long_ones_on_the_thread(tmp_path: Path) -> None:
    async with opened(tmp_path / "store.db") as store:
        assert await where(store, 1) == HERE
        assert await where(store, file._SHORT_ROWS) == HERE
        assert (await where(store, file._SHORT_ROWS + 1)).startswith(THREAD)
        assert (await where(store, file.MANY)).startswith(THREAD)
        together = await asyncio.gather(*[where(store, file._SHORT_ROWS // 2) for _ in range(3)])
        assert all(name.startswith(THREAD) for name in together), "it is the group that must be short"
        assert await where(store, 1) == HERE, "and nothing of it stays"


async def test_a_group_may_write_more_rows_on_the_loop_than_it_may_read(tmp_path: Path) -> None:
    async def both(store: EmbeddedStore, changes: int, rows: int) -> list[str]:
        def here(session: Session) -> str:
            return threading.current_thread().name

        calls = store._file.call(here, rows=changes, commits=True), store._file.call(here, rows=rows)
        return [name.partition("_")[0] for name in await asyncio.gather(*calls)]

    async with opened(tmp_path / "store.db") as store:
        assert await both(store, file._SHORT_CHANGES, file._SHORT_ROWS) == [HERE, HERE]
        assert await both(store, file._SHORT_CHANGES + 1, 0) == [THREAD, THREAD]
        assert await both(store, file._SHORT_CHANGES, file._SHORT_ROWS + 1) == [THREAD, THREAD]


async def test_a_task_that_is_alone_needs_no_turn_of_the_loop_for_a_call(tmp_path: Path) -> None:
    async with opened(tmp_path / "store.db") as store:
        loop, order = asyncio.get_running_loop(), list[object]()
        for _ in range(2):
            await asyncio.gather(where(store, 1))  # another task has called last
            loop.call_soon(order.append, "turn")
            await where(store, 1)
            assert order == ["turn"], "there may be other calls to run with it"
            order.clear()
            loop.call_soon(order.append, "turn")
            for n in range(file._AT_ONCE_MAX + 1):
                assert await where(store, 1) == HERE
                order.append(n)
            assert order == [*range(file._AT_ONCE_MAX), "turn", file._AT_ONCE_MAX], "others have their turn, too"
            order.clear()


async def test_calls_of_several_tasks_share_a_transaction(tmp_path: Path) -> None:
    async with opened(tmp_path / "store.db") as store:
        tables, told = store.tables("graphs"), list[str]()
        await tables.commit("p", [Insert("a", {})])
        await store._file.call(lambda session: session._connection.set_trace_callback(told.append), rows=1)

        async def several(name: str) -> None:
            for n in range(10):
                await tables.commit("p", [Insert(f"{name}-{n}", {})])

        await asyncio.gather(*[several(name) for name in "bcde"])
        assert told.count("COMMIT") == 10


class SlowClock(ManualClock):
    """A clock that is read between groups of rows while another thread takes the interpreter's lock each time."""

    seconds = 0.0

    def monotonic(self) -> float:
        self.advance(self.seconds)
        return super().monotonic()


@pytest.mark.parametrize(
    ("synchronous", "seconds", "rest", "statements"),
    [
        ("normal", 0.0, 0, 100),
        ("normal", file._SLOW_SECONDS * 2, 0, embedded_tables._ROWS_A_LOOK + 1),
        ("normal", 0.0, 1, 1),
        ("full", 0.0, 0, 100),
        ("full", 0.0, 1, 1),
    ],
)
@pytest.mark.parametrize("kind", [Insert, Merge, Replace, Delete])
async def test_rows_are_written_one_by_one_where_that_is_quick(
    tmp_path: Path, kind: type[Change], synchronous: str, seconds: float, rest: int, statements: int
) -> None:
    """On the thread, or where others want the interpreter's lock too, one statement writes many."""
    clock = SlowClock()
    store = EmbeddedStore(tmp_path / "store.db", clock, synchronous=synchronous)
    tables = store.tables("graphs")
    keys = [f"k{n:03}" for n in range(100)]
    await tables.commit("p", [Insert("a", {}), *[Insert(key, {"old": True}) for key in keys if kind is not Insert]])
    etags = {row.key: row.etag for row in await query_all(tables, "p", Range())}

    def change(n: int, key: str) -> Change:
        if kind is Insert:
            return Insert(key, {"n": n})
        return Delete(key, etags[key]) if kind is Delete else kind(key, etags[key], {"n": n})  # type: ignore[call-arg]

    changes = [change(n, key) for n, key in enumerate(keys)]
    told: list[str] = []
    await store._file.call(lambda session: session._connection.set_trace_callback(told.append), rows=1)
    clock.seconds = seconds
    with pytest.raises(Conflict) as conflict:
        await tables.commit("p", [*changes, Insert("a", {})])
    assert conflict.value.index == len(changes)
    told.clear()
    store._file._rest = rest  # else it took so long that the thread has its turn
    await tables.commit("p", changes)
    assert sum(each.lstrip().startswith(("INSERT INTO row", "UPDATE row", "DELETE")) for each in told) == statements
    clock.seconds = 0.0
    left = {"old": True} if kind is Merge else {}
    found = {row.key: row.columns for row in await query_all(tables, "p", Range("k"))}
    assert found == ({} if kind is Delete else {key: {"n": n, **left} for n, key in enumerate(keys)})
    await store.close()


class SlowDisk:
    """Commits wait until they may go on. threads: where each has been."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.threads: list[str] = []
        self.may_go_on, self.begun = threading.Event(), threading.Event()
        commit = file.Session.commit

        def slow(session: Session) -> None:
            self.threads.append(threading.current_thread().name.partition("_")[0])
            self.begun.set()
            assert self.threads[-1] != THREAD or self.may_go_on.wait(10)
            commit(session)

        monkeypatch.setattr(file.Session, "commit", slow)

    async def is_writing(self) -> None:
        while not self.begun.is_set():
            await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def on_a_slow_disk(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[EmbeddedStore, Tables, SlowDisk]]:
    """A store that waits for the disk, with a row `a`; its disk gets slow then."""
    async with opened(path, synchronous="full") as store:
        tables = store.tables("graphs")
        await tables.commit("p", [Insert("a", {})])
        store._file._sync_rest = 1_000_000
        yield store, tables, SlowDisk(monkeypatch)


async def test_with_a_sync_for_each_commit_the_thread_commits_what_the_loop_has_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with on_a_slow_disk(tmp_path / "store.db", monkeypatch) as (store, tables, disk):
        assert await where(store, 1) == HERE
        assert disk.threads == [], "there was nothing to commit"
        first = asyncio.ensure_future(tables.commit("p", [Insert("b", {})]))
        await disk.is_writing()
        second = asyncio.ensure_future(tables.commit("p", [Insert("c", {})]))
        read = asyncio.ensure_future(where(store, 1))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not any(each.done() for each in (first, second, read)), "the connection is in use"
        disk.may_go_on.set()
        await asyncio.gather(first, second)
        assert await read == HERE
        assert disk.threads == [THREAD, THREAD]
        assert [row.key for row in await query_all(tables, "p", Range())] == ["a", "b", "c"]


async def test_a_single_call_waits_for_a_quick_disk_on_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    store = EmbeddedStore(tmp_path / "store.db", clock, synchronous="full")
    tables = store.tables("graphs")
    await tables.commit("p", [Insert("a", {})])
    await tables.get("p", ["a"])
    disk = SlowDisk(monkeypatch)
    disk.may_go_on.set()
    slow = file.Session.commit

    def slower(session: Session) -> None:
        slow(session)
        clock.advance(took)

    monkeypatch.setattr(file.Session, "commit", slower)
    took = file._SYNC_SECONDS / 2
    for n in range(3):
        await tables.commit("p", [Insert(f"b{n}", {})])
    took = file._SYNC_SECONDS * 2
    for n in range(file._REST_GROUPS + 3):
        await tables.commit("p", [Insert(f"c{n}", {})])
    assert disk.threads == [HERE] * 4 + [THREAD] * file._REST_GROUPS + [HERE, THREAD]
    await store.close()


async def test_rows_that_say_where_to_look_do_not_wait_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with on_a_slow_disk(tmp_path / "store.db", monkeypatch) as (_, tables, disk):
        (etag,) = await tables.commit(LIVE, [Insert("a", {})])
        await asyncio.gather(tables.commit(ALL, [Insert("a", {})]), tables.get("p", ["a"]))
        await tables.commit(LIVE, [Delete("a", str(etag))])
        assert disk.threads == [HERE, HERE, HERE]
        disk.may_go_on.set()
        await asyncio.gather(tables.commit(LIVE, [Insert("a", {})]), tables.commit("p", [Insert("b", {})]))
        assert disk.threads[3:] == [THREAD], "of a group that has more to write, all waits"


async def test_a_store_that_is_closed_while_it_commits_finishes_what_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.db"
    async with on_a_slow_disk(path, monkeypatch) as (store, tables, disk):
        calls = [asyncio.ensure_future(tables.commit("p", [Insert("b", {})]))]
        await disk.is_writing()
        calls.append(asyncio.ensure_future(tables.commit("p", [Insert("c", {})])))
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(store.close())
        await asyncio.sleep(0)
        disk.may_go_on.set()
        await asyncio.gather(*calls, closing)
        assert store._file._session is None, "nothing is left open"
    async with opened(path) as store:
        assert [row.key for row in await query_all(store.tables("graphs"), "p", Range())] == ["a", "b", "c"]


async def test_the_loop_commits_itself_where_the_thread_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint came to its last part while the loop was writing: the thread is to copy that next."""
    async with on_a_slow_disk(tmp_path / "store.db", monkeypatch) as (store, tables, disk):
        disk.may_go_on.set()

        def work(session: Session) -> None:
            session.begin()
            session.one(file._TAKE_ETAGS, 1)
            store._file._end_log("PASSIVE")

        await store._file.call(work, rows=1, commits=True)
        await tables.commit("p", [Insert("b", {})])
        assert disk.threads[0] == HERE
        assert disk.threads[-1] == THREAD


async def test_a_file_that_is_there_is_opened_on_the_loop(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with opened(path) as store:
        await store.tables("graphs").commit("p", [Insert("a", {})])
    store = EmbeddedStore(path, ManualClock())
    assert await where(store, 1) == HERE
    await store.close()


async def test_a_new_file_is_made_on_the_thread(tmp_path: Path) -> None:
    def write(session: Session) -> str:
        session.begin()
        return threading.current_thread().name

    async with opened(tmp_path / "store.db") as store:
        assert (await store._file.call(write, rows=1, commits=True)).startswith(THREAD)
        assert await where(store, 1) == HERE


async def test_the_loop_goes_on_while_a_file_cannot_be_opened_yet(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with opened(path) as store:
        await store.tables("graphs").commit("p", [Insert("a", {})])
    with contextlib.closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("PRAGMA locking_mode=EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        store = EmbeddedStore(path, ManualClock())
        call = asyncio.ensure_future(where(store, 1))
        for _ in range(20):
            await asyncio.sleep(0.005)
        assert not call.done(), "the loop went on, and the thread waits"
        other.close()
        assert (await call).startswith(THREAD)
        await store.close()


async def test_after_a_group_that_took_long_the_thread_has_its_turn(tmp_path: Path) -> None:
    clock = ManualClock()
    store = EmbeddedStore(tmp_path / "store.db", clock)
    await store.tables("graphs").get("p", ["a"])
    await store._file.call(lambda session: clock.advance(file._LONG_SECONDS * 2), rows=1)
    names = [await where(store, 1) for _ in range(file._REST_GROUPS + 1)]
    assert all(name.startswith(THREAD) for name in names[:-1])
    assert names[-1] == HERE
    await store.close()


@pytest.mark.parametrize("kind", ["commit", "send"])
async def test_the_loop_goes_on_while_another_process_has_the_file(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "store.db"
    async with opened(path) as store:
        tables, queues = store.tables("graphs"), store.queues()
        await tables.commit("p", [Insert("a", {})])
        with contextlib.closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
            other.execute("BEGIN IMMEDIATE")
            call: asyncio.Future[object]
            if kind == "commit":
                call = asyncio.ensure_future(tables.commit("p", [Insert("b", {"n": 1})]))
            else:
                call = asyncio.ensure_future(queues.send("queue", ["m"]))
            for _ in range(20):  # were it waiting here, nobody could end the other transaction
                await asyncio.sleep(0)
            assert not call.done()
            assert await asyncio.to_thread(other.execute, "ROLLBACK")
        await call
        assert (await where(store, 1)) == HERE
    async with opened(path) as store:
        if kind == "commit":
            assert [row.key for row in await query_all(store.tables("graphs"), "p", Range())] == ["a", "b"]
        else:
            assert await store.queues().count("queue") == 1, "once, though it was tried twice"


async def test_a_group_that_starts_again_keeps_nothing_of_the_first_time(tmp_path: Path) -> None:
    """Two calls, of which the second meets the other process: the first one's answer is that of the second try."""
    path = tmp_path / "store.db"
    async with opened(path) as store:
        tables = store.tables("graphs")
        await tables.commit("p", [Insert("a", {"n": 0})])
        runs: list[str] = []
        with contextlib.closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
            other.execute("BEGIN IMMEDIATE")
            other.execute("UPDATE row SET etag = -1")

            def first(session: Session) -> object:
                runs.append(threading.current_thread().name)
                return session.one("SELECT etag FROM row")

            def second(session: Session) -> None:
                if threading.current_thread().name != HERE:
                    other.execute("COMMIT")
                session.begin()

            found, _ = await asyncio.gather(store._file.call(first, rows=1), store._file.call(second, rows=1))
        assert len(runs) == 2
        assert runs[0] == HERE
        assert runs[1].startswith(THREAD)
        # Read before the other transaction ended: the thread's calls see what is there when they run.
        assert found is not None
        assert await store._file.call(lambda session: session.one("SELECT etag FROM row"), rows=1) == (-1,)


async def test_a_group_that_is_to_look_first_is_undone_and_run_again(tmp_path: Path) -> None:
    async with opened(tmp_path / "store.db") as store:
        tables = store.tables("graphs")
        await tables.commit("p", [Insert("a", {})])
        looks: list[bool] = []

        def first(session: Session) -> str:
            session.begin()
            session.run("UPDATE row SET etag = etag + 100")
            if not session.looks_first:
                raise Conflict("of the run that is undone")
            return "second"

        def second(session: Session) -> None:
            looks.append(session.looks_first)
            if not session.looks_first:
                raise LookFirst

        answers = await asyncio.gather(store._file.call(first, rows=1), store._file.call(second, rows=1))
        assert answers == ["second", None]
        assert looks == [False, True]
        [row] = await tables.get("p", ["a"])
        assert row is not None
        assert row.etag == "101", "it was written once"
        await store._file.call(second, rows=1)
        assert looks == [False, True, False, True], "the next group does not look"


async def test_a_group_is_run_again_once(tmp_path: Path) -> None:
    """Were it to ask again after it has looked, that is a bug, and not for ever."""
    runs: list[bool] = []

    def never(session: Session) -> None:
        runs.append(session.looks_first)
        raise LookFirst

    async with opened(tmp_path / "store.db") as store:
        with pytest.raises(LookFirst):
            await store._file.call(never, rows=1)
        assert runs == [False, True]
        assert await store.tables("graphs").commit("p", [Insert("a", {})]) == ["1"]


async def test_what_a_group_on_the_loop_could_not_commit_is_unclear(tmp_path: Path) -> None:
    async with opened(tmp_path / "store.db") as store:
        tables = store.tables("graphs")
        await tables.commit("p", [Insert("a", {})])

        def allow(action: int, what: str | None, *_: str | None) -> int:
            ends = action == sqlite3.SQLITE_TRANSACTION and what == "COMMIT"
            return sqlite3.SQLITE_DENY if ends else sqlite3.SQLITE_OK

        await store._file.call(lambda session: session._connection.set_authorizer(allow), rows=1)
        with pytest.raises(Unclear):
            await tables.commit("p", [Insert("b", {})])
        with pytest.raises(StorageUnavailable):
            await store.queues().send("queue", ["m"])
        await store._file.call(lambda session: session._connection.set_authorizer(None), rows=1)
        assert await tables.get("p", ["b"]) == [None]
        await tables.commit("p", [Insert("b", {})])


async def test_a_bug_in_a_short_call_reaches_who_made_it(tmp_path: Path) -> None:
    async with opened(tmp_path / "store.db") as store:
        with pytest.raises(ZeroDivisionError):
            await store._file.call(lambda session: 1 // 0, rows=1)
        assert await store.tables("graphs").get("p", ["a"]) == [None]


async def test_who_stops_waiting_before_the_turn_has_nothing_done(tmp_path: Path) -> None:
    async with opened(tmp_path / "store.db") as store:
        tables = store.tables("graphs")
        calls = [asyncio.ensure_future(tables.commit("p", [Insert(f"k{n}", {})])) for n in range(4)]
        await asyncio.sleep(0)
        calls[1].cancel()
        calls[3].cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        assert {row.key for row in await query_all(tables, "p", Range())} >= {"k0", "k2"}
        assert [call.cancelled() for call in calls] == [False, True, False, True]


async def test_what_waits_when_the_store_closes_is_done_first(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with opened(path) as store:
        calls = [asyncio.ensure_future(store.tables("graphs").commit("p", [Insert(f"k{n}", {})])) for n in range(3)]
        await asyncio.sleep(0)  # they wait for their turn
        await store.close()
        assert all(len(each) == 1 for each in await asyncio.gather(*calls))
    async with opened(path) as store:
        assert len(await query_all(store.tables("graphs"), "p", Range())) == 3


def test_a_loop_that_ends_before_its_turn_stops_nobody(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path / "store.db", ManualClock())
    asyncio.run(store.tables("graphs").commit("p", [Insert("a", {})]))
    loop = asyncio.new_event_loop()
    call = store.tables("graphs").commit("p", [Insert("b", {})])
    loop.call_soon(call.send, None)
    loop.call_soon(loop.stop)
    loop.run_forever()  # the turn of this call would be the next thing on it
    call.close()
    loop.close()
    asyncio.run(store.tables("graphs").commit("p", [Insert("c", {})]))
    found = [row.key for row in asyncio.run(query_all(store.tables("graphs"), "p", Range()))]
    assert found == ["a", "b", "c"], "what was asked for is done, though nobody hears of it"
    asyncio.run(store.close())


def test_loops_of_several_threads_share_a_store(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path / "store.db", SystemClock())
    failed: list[BaseException] = []

    async def write(name: str) -> None:
        tables = store.tables("graphs")
        for n in range(100):
            await tables.commit("p", [Insert(f"{name}-{n:03}", {"n": n})])
            await tables.get("p", [f"{name}-{n:03}"])

    def run(name: str) -> None:
        try:
            asyncio.run(write(name))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert len(asyncio.run(query_all(store.tables("graphs"), "p", Range()))) == 300
    asyncio.run(store.close())


async def test_a_range_of_few_rows_is_read_on_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []
    query = embedded_tables._query

    def noted(*given: Any) -> Page | None:
        names.append(threading.current_thread().name.partition("_")[0])
        return query(*given)

    monkeypatch.setattr(embedded_tables, "_query", noted)
    async with opened(tmp_path / "store.db") as store:
        tables = store.tables("graphs")
        await tables.commit("p", [Insert(f"k{n:02}", {"n": n, "state": "ab"[n % 2]}) for n in range(30)])
        few, all_rows = embedded_tables._SHORT_LOOK_ROWS, [f"k{n:02}" for n in range(30)]
        for asked, keys, where in (
            (Range("k00", f"k{few - 1:02}"), all_rows[: few - 1], [HERE]),
            (Range("k00", f"k{few:02}"), all_rows[:few], [HERE, THREAD]),
            (Range(), all_rows, [HERE, THREAD]),
            (Range(end="k05", where={"state": ("b",)}), all_rows[1:5:2], [HERE]),
            (Range(where={"state": ("b",)}), all_rows[1::2], [HERE, THREAD]),
            (Range(where={"state": ("c",)}), [], [HERE, THREAD]),
        ):
            names.clear()
            assert [row.key for row in await query_all(tables, "p", asked)] == keys
            assert names == where


# --- the log -----------------------------------------------------------------------------------------------------


async def rewrite(tables: Tables, times: int) -> None:
    """Write one row so often, a page of the log or more each time."""
    [row] = await tables.get("p", ["a"])
    etag = row.etag if row else str((await tables.commit("p", [Insert("a", {"text": "x" * 3_000})]))[0])
    for n in range(times):
        [after] = await tables.commit("p", [Merge("a", etag, {"text": f"{n}" + "x" * 3_000})])
        etag = str(after)


async def checkpoints_over(store: EmbeddedStore) -> None:
    while store._file._checkpoints._running:
        await asyncio.sleep(0)


def sync_level(session: Session) -> int:
    """0 off, 1 normal, 2 full: how the transaction of this call is synced."""
    session.begin()
    (level,) = session.one("PRAGMA synchronous")
    return int(level)


async def test_the_first_transaction_of_an_empty_log_does_not_wait_for_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with opened(path) as store:
        await store.tables("graphs").commit("p", [Insert("a", {})])
        assert await store._file.call(sync_level) == 1
    async with opened(path) as store:
        assert await store._file.call(sync_level) == 0
        assert await store._file.call(sync_level) == 1
        await store.tables("graphs").commit("p", [Insert("b", {})])
        async with opened(path) as other:
            assert await other._file.call(sync_level) == 1, "the log is not empty: it may begin again over old frames"
    async with opened(path, synchronous="full") as store:
        assert [await store._file.call(sync_level) for _ in range(2)] == [2, 2]
    async with opened(path, synchronous="full") as store:
        lasting = (False, False, True, False, True)
        assert [await store._file.call(sync_level, lasting=each) for each in lasting] == [0, 1, 2, 1, 2]
    async with opened(path, synchronous="full") as store:
        assert [await store._file.call(sync_level, lasting=each) for each in (True, False)] == [2, 1]
    async with opened(path) as store:
        assert len(await query_all(store.tables("graphs"), "p", Range())) == 2


async def test_the_first_transaction_of_a_log_that_lies_elsewhere_is_synced(tmp_path: Path) -> None:
    """SQLite keeps the log beside the file that a link names."""
    path, link = tmp_path / "store.db", tmp_path / "link.db"
    async with opened(path) as store:
        await store.tables("graphs").commit("p", [Insert("a", {})])
    link.symlink_to(path)
    for linked in (link, path):
        async with opened(linked) as store:
            assert await store._file.call(sync_level) == (1 if linked is link else 0)
            await store.tables("graphs").commit("p", [Insert(linked.name, {})])
    async with opened(path) as store:
        assert len(await query_all(store.tables("graphs"), "p", Range())) == 3


@pytest.mark.parametrize("why", ["a bug", "another process"])
async def test_a_first_transaction_that_fails_leaves_the_others_synced(tmp_path: Path, why: str) -> None:
    path = tmp_path / "store.db"
    async with opened(path) as store:
        await store.tables("graphs").commit("p", [Insert("a", {})])
    async with opened(path) as store:
        if why == "a bug":

            def wrong(session: Session) -> float:
                session.begin()
                return 1 / 0

            with pytest.raises(ZeroDivisionError):
                await store._file.call(wrong, rows=1)
        else:
            with contextlib.closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
                other.execute("BEGIN IMMEDIATE")
                call = asyncio.ensure_future(store.tables("graphs").commit("p", [Insert("b", {})]))
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                assert not call.done()
                await asyncio.to_thread(other.execute, "ROLLBACK")
                await call
        assert await store._file.call(sync_level) == 1
        assert await store._file.call(lambda session: session.one("PRAGMA synchronous"), rows=1) == (1,)


@pytest.mark.parametrize("stores", [1, 2])
async def test_the_log_begins_again_and_the_file_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stores: int
) -> None:
    monkeypatch.setattr(database, "WAL_PAGES", 50)
    monkeypatch.setattr(database, "_WAL_BYTES_KEPT", 100 * 4096)
    path = tmp_path / "store.db"
    async with contextlib.AsyncExitStack() as stack:
        opened_stores = [await stack.enter_async_context(opened(path)) for _ in range(stores)]
        for _ in range(20):
            for store in opened_stores:
                await rewrite(store.tables("graphs"), 40)
                await checkpoints_over(store)
        pages = stores * 20 * 40
        assert path.with_name("store.db-wal").stat().st_size < pages * 4096 / 4
        assert path.stat().st_size > 4096, "it has been copied, and not at the end alone"
        with contextlib.closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


async def test_a_log_that_another_process_keeps_growing_is_ended_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "WAL_PAGES", 20)
    monkeypatch.setattr(file, "_CHECKPOINT_BUSY_SECONDS", 0.05)
    path = tmp_path / "store.db"
    async with opened(path) as store:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as reader:
            await rewrite(store.tables("graphs"), 5)
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM row").fetchone()  # from here on it needs the log as it is
            for _ in range(10):
                await rewrite(store.tables("graphs"), 20)
                await checkpoints_over(store)
            grown = path.with_name("store.db-wal").stat().st_size
            assert grown > 150 * 4096
            assert reader.execute("SELECT count(*) FROM row").fetchone() == (1,)
            reader.execute("COMMIT")
        for _ in range(10):
            await rewrite(store.tables("graphs"), 30)
            await checkpoints_over(store)
        assert path.with_name("store.db-wal").stat().st_size < grown + 100 * 4096, "300 pages more went to its start"


async def test_a_checkpoint_that_fails_harms_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "WAL_PAGES", 10)
    path = tmp_path / "store.db"
    async with opened(path) as store:
        await rewrite(store.tables("graphs"), 1)  # the file is made, and its connection is the one that stays

        def allow(action: int, what: str | None, *_: str | None) -> int:
            return sqlite3.SQLITE_DENY if what == "wal_checkpoint" else sqlite3.SQLITE_OK

        await store._file.call(lambda session: session._connection.set_authorizer(allow), rows=1)
        for _ in range(3):
            await rewrite(store.tables("graphs"), 20)
            await checkpoints_over(store)
        assert len(await query_all(store.tables("graphs"), "p", Range())) == 1


@pytest.mark.parametrize("ends", [False, True])
async def test_a_log_that_cannot_be_copied_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: bool) -> None:
    """The copying thread cannot open the file, or has ended."""
    monkeypatch.setattr(database, "WAL_PAGES", 10)
    async with opened(tmp_path / "store.db") as store:
        if ends:
            store._file._checkpoints.close()
        else:
            store._file._checkpoints._path = tmp_path  # a folder
        for _ in range(3):
            await rewrite(store.tables("graphs"), 20)
            await checkpoints_over(store)
        assert len(await query_all(store.tables("graphs"), "p", Range())) == 1


def test_a_file_that_cannot_be_looked_at_is_not_missing(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 300)  # longer than any name
    assert not database.is_missing(path)
    assert database.identity(path) is None


WRITE = """
    import asyncio, sys
    from pathlib import Path
    from taskgraph.model.clock import SystemClock
    from taskgraph.model.errors import Conflict
    from taskgraph.storage.sqlite import database
    from taskgraph.storage.sqlite.store import EmbeddedStore
    from taskgraph.storage.tables import Insert, Merge

    database.WAL_PAGES = 30

    async def main():
        store = EmbeddedStore(Path(sys.argv[1]), SystemClock())
        tables = store.tables("graphs")
        for n in range(150):
            while True:
                [row] = await tables.get("p", ["sum"])
                try:
                    await tables.commit("p", [
                        Merge("sum", row.etag, {"n": row.columns["n"] + 1}),
                        Insert(f"{sys.argv[2]}-{n:04}", {"text": "x" * 2000}),
                    ])
                except Conflict:
                    continue
                break
            await store.queues().send("queue", [f"{sys.argv[2]}-{n}"])
        await store.close()

    asyncio.run(main())
"""


async def test_processes_that_write_and_copy_the_log_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with opened(path) as store:
        tables = store.tables("graphs")
        await tables.commit("p", [Insert("sum", {"n": 0})])
        others = [start(WRITE, str(path), name) for name in ("left", "right")]
        for other in others:
            _, errors = await asyncio.to_thread(other.communicate, timeout=120)
            assert other.returncode == 0, errors
        rows = await query_all(tables, "p", Range())
        assert len(rows) == 301
        assert rows[-1].columns == {"n": 300}
        assert len({row.etag for row in rows}) == 301
        assert await store.queues().count("queue") == 300
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


async def test_conflicts_on_the_loop_leave_the_rest_of_the_group_alone(tmp_path: Path) -> None:
    async with opened(tmp_path / "store.db") as store:
        tables = store.tables("graphs")
        [etag] = await tables.commit("p", [Insert("a", {"n": 0})])
        results = await asyncio.gather(
            *[tables.commit("p", [Merge("a", str(etag), {"n": n}), Insert(f"k{n}", {})]) for n in range(5)],
            return_exceptions=True,
        )
        assert [type(each) for each in results] == [list, *[Conflict] * 4]
        assert [row.key for row in await query_all(tables, "p", Range())] == ["a", "k0"]


async def test_meeting_another_process_costs_no_etags(tmp_path: Path) -> None:
    """Nothing was taken from the counter before the transaction began, so nothing has to be taken again."""
    path = tmp_path / "store.db"
    async with opened(path) as store:
        tables = store.tables("graphs")
        [first] = await tables.commit("p", [Insert("a", {})])
        for n in range(3):
            with contextlib.closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
                other.execute("BEGIN IMMEDIATE")
                call = asyncio.ensure_future(tables.commit("p", [Insert(f"b{n}", {})]))
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                await asyncio.to_thread(other.execute, "ROLLBACK")
            await call
        [last] = await tables.commit("p", [Insert("c", {})])
        assert int(str(last)) == int(str(first)) + 4


async def test_a_store_closed_by_another_thread_leaves_nobody_waiting(tmp_path: Path) -> None:
    async with opened(tmp_path / "store.db") as store:
        call = asyncio.ensure_future(store.tables("graphs").commit("p", [Insert("a", {})]))
        await asyncio.sleep(0)
        await asyncio.to_thread(lambda: asyncio.run(store.close()))
        assert await call == ["1"], "it was asked for before the store was closed"
        late = store._file.call(lambda session: None, rows=1)
        store._file._closed = False  # as it may be read just before the other thread closes
        asyncio.get_running_loop().call_soon(setattr, store._file, "_closed", True)
        with pytest.raises(StorageUnavailable, match="has been closed"):
            await late
        store._file._closed = True
