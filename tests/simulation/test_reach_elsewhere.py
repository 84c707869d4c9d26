"""Branches that the simulated stores cannot reach, and that no other test does.

Of the command line: a store that goes away, and two signals. Of the embedded store: connections beyond use, bugs.
"""

import asyncio
import os
import signal
import sqlite3
import threading
from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from azure.core.exceptions import HttpResponseError

from taskgraph.documents.nodes import GraphDocument, TaskNode
from taskgraph.engine.commit import Records
from taskgraph.engine.consumer import Consumer
from taskgraph.engine.dispatch import Dispatcher
from taskgraph.engine.handlers import Handlers
from taskgraph.engine.live_index import unlist
from taskgraph.engine.poison import Poison
from taskgraph.engine.store_times import repair_store
from taskgraph.engine.submission import submit
from taskgraph.engine.telemetry import Answering
from taskgraph.interfaces import loops
from taskgraph.interfaces.app import App
from taskgraph.interfaces.cli import failures
from taskgraph.interfaces.cli.common import Session
from taskgraph.interfaces.cli.delete import _delete
from taskgraph.interfaces.cli.logs import _follow
from taskgraph.interfaces.cli.output import Output
from taskgraph.interfaces.cli.progress import Board, Follower, display_for
from taskgraph.interfaces.cli.run import _Order, _run
from taskgraph.interfaces.cli.serve import WorkerOptions
from taskgraph.interfaces.cli.signals import minding_signals
from taskgraph.interfaces.cli.top import _top
from taskgraph.interfaces.loops import bury_forever, end_what_is_over
from taskgraph.interfaces.settings import StoreSettings
from taskgraph.interfaces.taskcluster import asgi
from taskgraph.interfaces.taskcluster.call import BASE as OLD
from taskgraph.model import limits
from taskgraph.model.clock import Clock, SystemClock
from taskgraph.model.errors import Conflict, StorageError, StorageUnavailable, Unclear
from taskgraph.model.flag import Flag
from taskgraph.model.ids import GRAPH
from taskgraph.model.names import ALL
from taskgraph.model.secrecy import Handed
from taskgraph.protocol.dispatch_windows import ReadyBatch, Windows
from taskgraph.queries import targets, workers
from taskgraph.queries.graphs import Queries
from taskgraph.storage.azure.calls import Caller
from taskgraph.storage.azure.linked import Link, LinkedTables
from taskgraph.storage.azure.site import AzureSite
from taskgraph.storage.memory import MemoryLogs
from taskgraph.storage.signals.wakeup import Wakeup
from taskgraph.storage.sqlite.store import EmbeddedStore
from taskgraph.storage.tables import Insert, Merge
from taskgraph.testing import HurriedClock, MemoryQueues, MemoryTables
from taskgraph.worker.executors import Executors
from taskgraph.worker.executors.idle import NoopExecutor
from taskgraph.worker.gateway import Gateway
from tests.http.serving import serving
from tests.measured import Measured

TASK = "A" * 22  # an id
DOCUMENT = GraphDocument({"a": TaskNode("a", (), 0, {"target": "nobody"})})


class Leaving(MemoryTables):
    """Tables that go away once a graph runs; for so many calls, if that is said."""

    away = 0
    error: StorageError = StorageUnavailable("503", "memory")
    gone = False  # for queries

    async def query(self, *args, **more):
        if self.gone:
            raise StorageUnavailable("503", "memory")
        return await super().query(*args, **more)

    async def get(self, partition, keys):
        row = self.partitions.get("g", {}).get(GRAPH)
        if self.away and row is not None and row.columns["state"] == "running":
            self.away -= 1
            raise self.error
        return await super().get(partition, keys)


class Failing(MemoryTables):
    """Tables whose next calls fail with these errors: commits, without being made, and reads of single rows."""

    def __init__(self) -> None:
        super().__init__()
        self.of_commits: list[StorageError] = []
        self.of_gets: list[StorageError] = []

    async def commit(self, partition, changes):
        if self.of_commits:
            raise self.of_commits.pop(0)
        return await super().commit(partition, changes)

    async def get(self, partition, keys):
        if self.of_gets:
            raise self.of_gets.pop(0)
        return await super().get(partition, keys)


def app_over(tables: MemoryTables, clock: Clock | None = None) -> App:
    clock = clock or SystemClock()
    queues = MemoryQueues(clock)
    handlers = Handlers(Records(tables, clock), queues, clock)
    poison = Poison(tables, queues, clock, handlers.names)
    return App(
        settings=StoreSettings(),
        clock=clock,
        tables=tables,
        queues=queues,
        logs=None,
        wakeup=Wakeup(),
        names=handlers.names,
        queries=Queries(tables, queues, clock, handlers.names),
        made_handlers=lambda: handlers,
        made_poison=lambda: poison,
        made_gateway=lambda: Gateway(handlers, poison, MemoryLogs(), Wakeup()),
        locks=None,
    )


async def test_somebody_who_looks_on_waits_for_a_store_that_went_away() -> None:
    tables = Leaving()
    app = app_over(tables)
    await submit(app.handlers, "g", DOCUMENT)
    tables.away = 1
    follower = Follower(app, "g", display_for(Output(), app.clock))
    following = asyncio.create_task(follower.follow())
    while follower.tally.state != "running":
        assert not following.done()
        await asyncio.sleep(0)
    assert tables.away == 0
    following.cancel()
    await asyncio.wait((following,))


async def test_who_watches_all_of_a_store_that_went_away_is_told_so_and_leaves_with_ctrl_c(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tables = Leaving()
    app = app_over(tables)
    await submit(app.handlers, "g", DOCUMENT)
    tables.away = 1
    with pytest.raises(StorageUnavailable):
        await _top(app, Session(), once=False, interval=0.2, limit=5)
    watching = asyncio.create_task(_top(app, Session(), once=False, interval=0.2, limit=5))
    said = ""
    while "live graph" not in said:
        await asyncio.sleep(0.01)
        said += capsys.readouterr().out
    tables.away = 1
    while "the store does not answer" not in said:
        assert not watching.done()
        await asyncio.sleep(0.01)
        said += capsys.readouterr().out
    os.kill(os.getpid(), signal.SIGINT)
    await watching


async def test_who_follows_a_log_waits_for_a_store_that_went_away(capsys: pytest.CaptureFixture[str]) -> None:
    tables = Leaving()
    app = replace(app_over(tables, HurriedClock()), logs=MemoryLogs())
    await submit(app.handlers, "g", DOCUMENT)
    (task,) = [row for key, row in tables.partitions["g"].items() if key.startswith("task:")]
    task_id = task.key.removeprefix("task:")
    await app.logs.append("g", task_id, 0, b"one\n")
    following = asyncio.create_task(_follow(app, Session(), "g", task_id, 0, None))
    said = ""
    while said != "one\n":
        assert not following.done()
        await asyncio.sleep(0.01)
        said += capsys.readouterr().out
    tables.away = 1
    while tables.away:
        assert not following.done()
        await asyncio.sleep(0.01)
    await app.logs.append("g", task_id, 0, b"two\n")
    await tables.commit("g", [Merge(task.key, task.etag, {"state": "completed"})])
    await following
    assert capsys.readouterr().out == "two\n"


async def test_a_run_whose_store_goes_away_says_how_to_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    tables = Leaving()
    app = app_over(tables)
    executors, served = Executors([NoopExecutor()]), WorkerOptions(target=["default"]).serves()
    order = _Order(None, "g", DOCUMENT, executors, Board(app.clock), served, 1, (), Handed())
    tables.away = 10**6
    with pytest.raises(StorageUnavailable):
        await _run(app, Session(), order)
    assert "when the store is back, go on with: taskgraph run --id g" in capsys.readouterr().err


async def test_of_graphs_that_are_deleted_one_that_keeps_changing_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    tables = Failing()
    app = app_over(tables, HurriedClock())
    await submit(app.handlers, "g", DOCUMENT)
    (row,) = await tables.get("g", [GRAPH])
    assert row is not None
    await tables.commit("g", [Merge(GRAPH, row.etag, {"state": "finished"})])
    tables.of_commits = [Conflict("rows that never stand still")] * 1_000
    assert await _delete(app, Session(), ["g", "other"], force=True) != 0
    said = capsys.readouterr().err
    assert "graph g" in said
    assert "there is no graph other" in said


async def test_a_second_signal_ends_what_waits_for_storage() -> None:
    told: list[int] = []

    async def waits() -> None:
        async with minding_signals(told.append) as stop:
            os.kill(os.getpid(), signal.SIGINT)
            await stop.event.wait()
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.get_running_loop().create_future()

    with pytest.raises(failures.Interrupted):
        await waits()
    assert told == [1, 2]


# --- the file --------------------------------------------------------------------------------------------------


async def test_a_log_that_has_no_place_is_told_so(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path / "store.db", SystemClock())
    (tmp_path / "logs").write_text("a file where the folder should be", "utf-8")
    with pytest.raises(StorageUnavailable):
        await store.logs().append("g", "t", 0, b"x")
    await store.close()


async def test_a_connection_beyond_use_is_replaced(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path / "store.db", SystemClock())
    tables = store.tables("graphs")
    await tables.commit("p", [Insert("a", {})])

    def allow(action: int, what: str | None, *_: str | None) -> int:
        ends = action == sqlite3.SQLITE_TRANSACTION and what in ("COMMIT", "ROLLBACK")
        return sqlite3.SQLITE_DENY if ends else sqlite3.SQLITE_OK

    await store._file.call(lambda session: session._connection.set_authorizer(allow))
    with pytest.raises(Unclear):
        await tables.commit("p", [Insert("b", {})])
    assert await tables.get("p", ["b"]) == [None]
    await tables.commit("p", [Insert("b", {})])
    await store.close()


async def test_a_bug_in_a_call_reaches_who_made_it_and_nobody_else(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path / "store.db", SystemClock())
    with pytest.raises(ZeroDivisionError):
        await store._file.call(lambda session: 1 // 0)
    assert await store.tables("graphs").get("p", ["a"]) == [None]
    await store.close()


def test_an_answer_to_a_loop_that_is_closed_disturbs_nobody(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path / "store.db", SystemClock())
    goes_on = threading.Event()

    async def leave() -> None:
        call = store._file.call(lambda session: goes_on.wait())
        call.send(None)
        call.close()  # the answer is on its way, and so is the end of the loop

    asyncio.run(leave())
    goes_on.set()

    async def next_one() -> None:
        assert await store.tables("graphs").get("p", ["a"]) == [None]
        await store.close()

    asyncio.run(next_one())


@pytest.mark.parametrize("error", [StorageUnavailable("503", "memory"), Conflict("rows that never stand still")])
async def test_what_is_over_is_ended_once_a_store_that_went_away_is_back(
    caplog: pytest.LogCaptureFixture, error: StorageError
) -> None:
    tables = Leaving()
    tables.error = error
    app = app_over(tables)
    await submit(app.handlers, "g", DOCUMENT)
    stop = Flag()
    ending = asyncio.create_task(end_what_is_over(app, stop))
    while not app.handlers.listeners.due:
        await asyncio.sleep(0)
    tables.away = 1
    for note in app.handlers.listeners.due:
        note("g", app.clock.now())
    while "could not be ended" not in caplog.text:
        assert not ending.done()
        await asyncio.sleep(0.01)
    stop.set()
    await ending


async def test_what_waits_for_room_is_sent_once_it_can_be(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that goes away, and a bug, end one look each, and not those that come after it."""
    app = app_over(MemoryTables())
    dispatcher = app.handlers.dispatcher
    dispatcher.clock = HurriedClock()
    monkeypatch.setattr(Windows, "waits", True)
    dispatcher.windows = Windows()
    errors: list[Exception] = [StorageUnavailable("503", "memory"), ZeroDivisionError("a bug")]

    async def dispatch_waiting(self: Dispatcher, **_: object) -> None:
        if errors:
            raise errors.pop(0)
        monkeypatch.setattr(Windows, "waits", False)

    monkeypatch.setattr(Dispatcher, "dispatch_waiting", dispatch_waiting)
    await Consumer(app.handlers, app.poison, app.wakeup)._dispatch_waiting()
    assert [record.levelname for record in caplog.records if "could not be sent" in record.getMessage()] == [
        "WARNING",
        "ERROR",
    ]


async def test_what_waits_for_room_waits_on_where_it_could_not_be_sent() -> None:
    tables = Failing()
    dispatcher = app_over(tables).handlers.dispatcher
    dispatcher.windows = windows = Windows()
    assert windows.offer("g", ("default", "normal"), [("a", 0), ("b", 0)], 0.0) == ([("a", 0), ("b", 0)], 0)
    tables.of_gets = [StorageUnavailable("503", "memory")]
    with pytest.raises(StorageUnavailable):
        await dispatcher.send_batches([ReadyBatch("g", "default", "normal", (("a", 0),))], None)
    assert windows.unsent("g") == 1


# --- rows that belong to no graph: their owners write them meanwhile


CHANGED_OR_LOST = [Conflict("its owner has just written it"), Unclear("the answer was lost")]


async def test_a_worker_whose_row_has_just_changed_is_asked_again() -> None:
    tables = Failing()
    await tables.commit(workers.WORKERS, [Insert(workers.key_of("w"), {"name": "w"})])
    tables.of_commits = list(CHANGED_OR_LOST)
    asked = await workers.ask(tables, "w", draining=workers.FINISH, exits=False)
    assert asked is not None
    (row,) = await tables.get(workers.WORKERS, [workers.key_of("w")])
    assert row is not None
    assert row.columns["draining"] == workers.FINISH


@pytest.mark.parametrize("error", CHANGED_OR_LOST)
async def test_a_row_of_a_worker_that_changes_while_it_is_taken_away_stays(error: StorageError) -> None:
    tables, now = Failing(), SystemClock().now()
    long_ago = now - timedelta(seconds=2 * limits.WORKER_FORGOTTEN_SECONDS)
    await tables.commit(workers.WORKERS, [Insert(workers.key_of("w"), {"name": "w", "seen": long_ago})])
    tables.of_commits = [error]
    assert await workers.clean(tables, now) == 0
    assert await workers.clean(tables, now) == 1


@pytest.mark.parametrize("error", CHANGED_OR_LOST)
async def test_a_time_that_changes_while_it_is_set_right_is_looked_at_again(error: StorageError) -> None:
    tables, clock = Failing(), SystemClock()
    far = clock.now() + timedelta(days=365)
    await tables.commit(workers.WORKERS, [Insert(workers.key_of("w"), {"name": "w", "seen": far})])
    tables.of_commits = [error]
    first = await repair_store(tables, None, clock)
    assert (len(first.findings), first.repaired) == (1, ())
    second = await repair_store(tables, None, clock)
    assert (second.findings, len(second.repaired)) == ((), 1)


async def test_the_dead_are_looked_for_once_a_store_that_went_away_is_back(caplog: pytest.LogCaptureFixture) -> None:
    class Locks:
        def found(self) -> list[str]:
            return ["gone"]

        def is_dead(self, name: str) -> bool:
            return True

        def forget(self, name: str) -> None:
            raise AssertionError(f"{name} is forgotten, and its runs were not given up")

    tables = Leaving()
    app = app_over(tables)
    app = replace(app, locks=Locks())
    await submit(app.handlers, "g", DOCUMENT)
    tables.gone = True
    stop = Flag()
    burying = asyncio.create_task(bury_forever(app, stop))
    while "could not be given up" not in caplog.text:
        assert not burying.done()
        await asyncio.sleep(0.01)
    stop.set()
    await burying


@pytest.mark.parametrize("error", [Conflict("412"), Unclear("no answer")])
async def test_a_row_of_a_process_that_is_gone_may_be_written_by_another(error: StorageError) -> None:
    tables = Failing()
    await tables.commit(workers.WORKERS, [Insert(workers.key_of("w"), {"name": "w"})])
    tables.of_commits.append(error)
    await workers.mark_gone(tables, ["w"])
    assert not tables.of_commits
    (row,) = await tables.get(workers.WORKERS, [workers.key_of("w")])
    assert row is not None
    assert "gone" not in row.columns


async def test_a_worker_that_cannot_see_handlers_says_so_and_looks_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tables = Leaving()
    tables.gone = True
    looks = iter([False, False, True])

    async def wait_any(events, seconds):
        if (over := next(looks)) is False and "cannot see" in caplog.text:
            tables.gone = False
        return over

    monkeypatch.setattr(loops, "wait_any", wait_any)
    idle = SimpleNamespace(counters=SimpleNamespace(completed=1, failed=0), at_rest=False)
    await loops.warn_without_handlers(app_over(tables), Flag(), idle)
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "cannot see whether there are handlers",
        "no handler reads the results of this worker",
    ]


@pytest.mark.parametrize(("error", "copied"), [(FileNotFoundError(), False), (OSError("no links here"), True)])
async def test_a_file_of_a_run_is_copied_where_it_cannot_be_linked(
    error: OSError, copied: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = EmbeddedStore(tmp_path / "s.db", SystemClock())
    logs = store.logs()
    await logs.append("g", TASK, 0, b"bytes", name="kept")

    def link(*_):
        raise error

    monkeypatch.setattr(os, "link", link)
    assert await logs.copy(("g", TASK, 0), ("h", TASK, 0), "kept") is copied
    assert await logs.read("h", TASK, 0, name="kept") == (b"bytes" if copied else None)
    await store.close()


# --- what services answer that are none, and bugs


def refusal(status: int, code: str = "") -> HttpResponseError:
    """code: the service's; "" where a proxy has answered, which gives no JSON either."""
    made = HttpResponseError("refused")
    made.status_code, made.error_code = status, code  # type: ignore[attr-defined]
    made.response = SimpleNamespace(status_code=status, headers={}, text=lambda: "<html>")
    return made


async def test_a_site_whose_service_refuses_says_so_without_its_words() -> None:
    errors = [refusal(404), refusal(404, "ContainerNotFound"), refusal(404), refusal(409), refusal(409)]

    async def refused(*_: object, **__: object) -> None:
        raise errors.pop(0)

    caller = Caller("https://account.example", HurriedClock(), lambda: False)

    async def listed(**_: object) -> AsyncGenerator[None]:
        raise errors.pop(0)
        yield

    container = SimpleNamespace(delete_blob=refused, get_container_properties=refused, list_blobs=listed)
    blobs = SimpleNamespace(get_container_client=lambda _: container, get_service_properties=refused)
    site = AzureSite(caller, caller, SimpleNamespace, lambda: blobs)  # type: ignore[return-value]
    assert await site.address() == ""
    assert await site.files() == {}
    await site.remove(["gone already"])
    with pytest.raises(StorageError, match="refused a request: 409"):
        await site.remove(["kept"])
    with pytest.raises(StorageError, match="refused a request: 409"):
        await site.is_on()


async def test_a_proxy_that_answers_in_place_of_the_tables_of_a_link_is_no_service() -> None:
    async def exchange(method: str, address: str, body: str) -> SimpleNamespace:
        return SimpleNamespace(status=418, next="", text="<html>")

    tables = LinkedTables(Link("https://account.example/graphs", "sp=r&sig=s"), exchange, HurriedClock())
    with pytest.raises(StorageError, match="answers 418"):
        await tables.get("g", [GRAPH])


async def test_a_limit_of_a_target_is_written_again_where_its_row_has_just_changed() -> None:
    tables = Failing()
    tables.of_commits = list(CHANGED_OR_LOST)
    assert await targets.limit_target(tables, "gpu", 3, SystemClock().now())
    assert [each.most for each in (await targets.limited(tables, SystemClock().now())).values()] == [3]


def test_a_request_that_ends_by_an_error_is_measured_with_its_name() -> None:
    telemetry, one = Measured().telemetry(), Answering("GET", "http")
    with pytest.raises(ZeroDivisionError), telemetry.answering(one):
        raise ZeroDivisionError
    assert one.error == "ZeroDivisionError"


async def test_a_bug_in_a_method_of_the_old_scheduler_is_answered_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def called(self: asgi._Door, request: object, method: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(asgi._Door, "_called", called)
    async with (
        serving(f"sqlite:///{tmp_path}/store.db", tmp_path, old_clients=True) as server,
        server.session.get(f"{server.address}{OLD}/task-graph/{TASK}/status") as answer,
    ):
        assert answer.status == 500
        assert "a bug in taskgraph (ZeroDivisionError)" in await answer.text()


@pytest.mark.parametrize("error", [Conflict("it has changed", 0), Unclear("it was cut off")])
async def test_an_entry_that_cannot_be_taken_off_the_list_stays(error: StorageError) -> None:
    tables = Failing()
    await tables.commit(ALL, [Insert("entry", {"graph": "g"})])
    tables.of_commits = [error]
    await unlist(tables, "entry")
    assert await tables.get(ALL, ["entry"]) != [None]
    await unlist(tables, "entry")
    assert await tables.get(ALL, ["entry"]) == [None]
