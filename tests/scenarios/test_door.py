"""The function app's door: what may be raised to a host that acknowledges what returns and retries at once."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from taskgraph.engine.commit import Records
from taskgraph.engine.consumer import Consumer
from taskgraph.engine.handlers import Handlers
from taskgraph.engine.poison import Poison, PoisonState
from taskgraph.interfaces.app import App
from taskgraph.interfaces.functions import SWEEP_VARIABLE, Door, Trigger, read_bindings
from taskgraph.interfaces.settings import StoreSettings
from taskgraph.model.errors import (
    Conflict,
    IntegrityError,
    InvalidSettings,
    NotFound,
    StorageError,
    StorageUnavailable,
    Unclear,
)
from taskgraph.model.messages import EVENT_TYPES, AddTasks, Rerun, to_text
from taskgraph.model.names import POISON
from taskgraph.storage.memory import MemoryLogs
from taskgraph.storage.signals.wakeup import Wakeup
from taskgraph.storage.tables import Merge, Range, query_all
from taskgraph.worker.gateway import Gateway
from tests.scenarios.stage import Stage, graph
from tests.scenarios.test_retention import Shelf

pytestmark = pytest.mark.usefixtures("settled")

QUEUE = "taskgraph-events"
CONNECTION = {"AzureWebJobsStorage": "UseDevelopmentStorage=true"}


class StageDoor(Door):
    """A door into a stage. tables, queues: to be used instead of the stage's own."""

    def __init__(self, stage: Stage, *, tables: Any = None, queues: Any = None, **environ: str) -> None:
        super().__init__(CONNECTION | environ)
        tables, queues = tables or stage.tables, queues or stage.queues
        handlers = Handlers(Records(tables, stage.clock), queues, stage.clock, stage.names)
        poison = Poison(tables, queues, stage.clock, stage.names)
        settings = StoreSettings(path=Path("unused.db"))
        self.handlers = handlers
        self._staged = (
            App(
                settings=settings,
                clock=stage.clock,
                tables=tables,
                queues=queues,
                logs=Shelf(),  # type: ignore[arg-type]
                wakeup=Wakeup(),
                names=handlers.names,
                queries=stage.queries,
                made_handlers=lambda: handlers,
                made_poison=lambda: poison,
                made_gateway=lambda: Gateway(handlers, poison, MemoryLogs(), Wakeup()),
            ),
            Consumer(handlers, poison, Wakeup()),
        )

    async def _opened(self) -> tuple[App, Consumer]:
        return self._staged


async def poison_rows(stage: Stage) -> list[tuple[str, str]]:
    rows = await query_all(stage.tables, POISON, Range())
    return sorted((str(row.columns["state"]), str(row.columns["reason"])) for row in rows)


# --- messages ----------------------------------------------------------------------------------------------------


async def test_calls_that_come_together_share_a_commit(stage: Stage) -> None:
    labels = [f"t{number}" for number in range(16)]
    await stage.submit(graph({label: [] for label in labels}))
    bodies = [to_text(stage.completed(held)) for held in await stage.claims(*labels)]
    door = StageDoor(stage)
    await asyncio.gather(*(door.handle(QUEUE, str(number), body, 1) for number, body in enumerate(bodies)))
    assert await stage.state() == "finished"
    assert door.handlers.counters.commits <= 2
    alone = StageDoor(stage, TASKGRAPH_GROUP_COMMIT="off")
    assert alone._together is False


async def test_without_group_commit_each_call_commits_by_itself(stage: Stage) -> None:
    await stage.submit(graph({"a": [], "b": [], "c": ["a", "b"]}))
    bodies = [to_text(stage.completed(held)) for held in await stage.claims("a", "b")]
    door = StageDoor(stage, TASKGRAPH_GROUP_COMMIT="off")
    for number, body in enumerate(bodies):
        await door.handle(QUEUE, str(number), body.encode(), 1)
    assert await stage.states() == {"a": "completed", "b": "completed", "c": "pending"}
    assert door.handlers.counters.commits == 2


@pytest.mark.parametrize("body", [b"\xff\xfe", b"hello", b"{}", b'{"version":1,"type":"x","graph":"g"}'])
async def test_what_cannot_be_read_is_set_aside_at_once_and_not_tried_again(stage: Stage, body: bytes) -> None:
    await StageDoor(stage).handle(QUEUE, "m1", body, 1)
    ((state, reason),) = await poison_rows(stage)
    assert state == PoisonState.POISON
    assert reason
    assert await stage.queues.count(stage.names.poison(stage.names.events)) == 0


async def test_work_for_workers_is_set_aside(stage: Stage) -> None:
    body = b'{"version":1,"type":"run-tasks","graph":"g","target":"default","tasks":[{"task":"%s","run":0}]}'
    await StageDoor(stage).handle(QUEUE, "m1", body % stage.task_id("a").encode(), 1)
    ((_, reason),) = await poison_rows(stage)
    assert "belongs on a work queue" in reason


async def test_a_message_of_a_newer_version_is_put_off_and_kept(local: Stage) -> None:
    body = b'{"version":2,"type":"rerun","graph":"g"}'
    await StageDoor(local).handle(QUEUE, "m1", body, 1)
    assert await local.queues.receive(local.names.events, lease_seconds=1) == []
    local.clock.advance(31)
    (again,) = await local.queues.receive(local.names.events, lease_seconds=1)
    assert again.body == body.decode()


async def test_rows_of_a_newer_version_put_a_message_off(local: Stage) -> None:
    await local.submit(graph({"a": []}))
    body = to_text(local.completed(await local.claim("a")))
    row = await local.row("a")
    await local.tables.commit(local.graph_id, [Merge(row.key, row.etag, {"schema": 99})])
    await StageDoor(local).handle(local.names.events, "m1", body, 1)
    local.clock.advance(31)
    (again,) = await local.queues.receive(local.names.events, lease_seconds=1)
    assert again.body == body


async def test_what_is_wrong_with_the_message_is_raised_and_its_reason_kept(stage: Stage) -> None:
    door = StageDoor(stage)
    body = to_text(Rerun("nobody-knows-it", ((stage.task_id("a"), 0),)))
    before = stage.clock.monotonic()
    for count in range(1, 6):
        with pytest.raises(NotFound):
            await door.handle(QUEUE, "m1", body, count)
    assert stage.clock.monotonic() - before == 1 + 2 + 4 + 8 + 8  # the host itself would not have waited
    ((state, reason),) = await poison_rows(stage)
    assert (state, reason[:9]) == (PoisonState.FAILING, "NotFound:")
    # The host gives the copy an id of its own.
    await door.set_aside(f"{QUEUE}-poison", "m2", body, 1)
    await door.set_aside(f"{QUEUE}-poison", "m2", body, 2)
    ((state, reason),) = await poison_rows(stage)
    assert (state, reason[:9]) == (PoisonState.POISON, "NotFound:")


async def test_a_message_that_failed_and_is_handled_after_all_leaves_nothing_behind(stage: Stage) -> None:
    door = StageDoor(stage)
    await stage.submit(graph({"a": []}))
    held = await stage.claim("a")
    early = to_text(AddTasks(stage.graph_id, "not-yet"))
    with pytest.raises(NotFound):
        await door.handle(QUEUE, "m1", early, 1)
    assert [state for state, _ in await poison_rows(stage)] == [PoisonState.FAILING]
    await door.handle(QUEUE, "m1", to_text(stage.completed(held)), 2)
    assert await poison_rows(stage) == []


async def test_what_the_host_gives_up_without_a_word_is_written_down(stage: Stage) -> None:
    await StageDoor(stage).set_aside(f"{QUEUE}-poison", "m2", b"\x00\x01 no text", 1)
    ((state, reason),) = await poison_rows(stage)
    assert state == PoisonState.POISON
    assert "gave it up" in reason


@pytest.mark.parametrize(
    ("error", "seconds"),
    [(StorageUnavailable("no answer"), 10), (Unclear("no answer came back"), 10), (Conflict("others were first"), 1)],
)
async def test_what_is_nobodys_fault_costs_no_attempt(local: Stage, error: StorageError, seconds: float) -> None:
    """The tables fail and the queues do not: the message is sent again for later, and its first copy acknowledged."""
    await local.submit(graph({"a": []}))
    body = to_text(local.completed(await local.claim("a")))
    door = StageDoor(local, tables=Failing(local.tables, error))
    await door.handle(QUEUE, "m1", body, 1)
    assert await local.states() == {"a": "running"}
    assert await poison_rows(local) == []
    local.clock.advance(seconds + 1)
    (again,) = await local.queues.receive(local.names.events, lease_seconds=1)
    assert again.body == body
    await StageDoor(local).handle(QUEUE, again.id, again.body, again.dequeue_count)
    assert await local.state() == "finished"


class Failing:
    """A port whose calls fail, but for those that are named."""

    def __init__(self, port: Any, error: Exception, *, but: tuple[str, ...] = ()) -> None:
        self._port = port
        self._error = error
        self._but = but

    def __getattr__(self, name: str) -> Any:
        async def fail(*_: Any, **__: Any) -> Any:
            raise self._error

        return getattr(self._port, name) if name in (*self._but, "changes_max") else fail


async def test_where_nothing_can_be_sent_the_host_keeps_the_message_and_is_held_up(local: Stage) -> None:
    """Neither tables nor queues answer: five calls must not be over before anything could have changed."""
    gone = StorageUnavailable("no answer")
    door = StageDoor(local, tables=Failing(local.tables, gone), queues=Failing(local.queues, gone))
    before = local.clock.monotonic()
    for count in range(1, 6):
        with pytest.raises(StorageUnavailable):
            await door.handle(QUEUE, "m1", to_text(Rerun("g", ((local.task_id("a"), 0),))), count)
    assert local.clock.monotonic() - before >= 1 + 2 + 4 + 8 + 8
    with pytest.raises(StorageUnavailable):  # nor is poison lost that cannot be written down
        await door.handle(QUEUE, "m2", "no message", 1)


async def test_a_reason_that_cannot_be_written_down_hides_no_failure(local: Stage) -> None:
    door = StageDoor(local)
    app, _ = await door._opened()
    gone = Failing(local.tables, StorageUnavailable("no answer"))
    app.poison._tables = gone
    with pytest.raises(NotFound):
        await door.handle(QUEUE, "m1", to_text(AddTasks("nobody-knows-it", "r")), 1)
    assert await poison_rows(local) == []


async def test_what_nobody_foresaw_is_raised_without_its_words(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The host logs what is raised, and a foreign error may quote what a task was given."""
    await stage.submit(graph({"a": []}))
    body = to_text(stage.completed(await stage.claim("a")))
    door = StageDoor(stage)

    async def broken(*_: Any, **__: Any) -> Any:
        raise KeyError("canary")

    monkeypatch.setattr(door.handlers.records, "commit", broken)
    with pytest.raises(IntegrityError, match="KeyError < ") as raised:
        await door.handle(QUEUE, "m1", body, 1)
    assert "canary" not in str(raised.value) + caplog.text
    assert raised.value.__cause__ is None
    monkeypatch.undo()
    await door.handle(QUEUE, "m1", body, 2)
    assert await stage.state() == "finished"
    assert await poison_rows(stage) == []


async def test_the_sweep_gives_up_runs_and_says_again_what_went_unheard(local: Stage) -> None:
    await local.submit(graph({"a": []}))
    await local.claim("a")
    local.clock.advance(61)
    await StageDoor(local).sweep()
    assert await local.states() == {"a": "pending"}
    assert ("a", 1) in await local.offered()


@pytest.mark.parametrize(("seconds", "days", "left"), [(30, "7", []), (90, "7", ["graph"]), (30, "", ["graph"])])
async def test_the_first_round_of_ten_minutes_keeps_house(
    local: Stage, seconds: int, days: str, left: list[str]
) -> None:
    await local.submit(graph({"a": []}))
    await local.complete("a")
    local.clock.advance(8 * 86_400 + seconds - local.clock.now().timestamp() % 600)
    door = StageDoor(local, TASKGRAPH_KEEP_DAYS=days, TASKGRAPH_SWEEP_SECONDS="60")
    await door.sweep()
    assert [each.graph_id for each in await local.queries.graphs()] == left


# --- names -------------------------------------------------------------------------------------------------------


def test_one_queue_of_events_is_the_default() -> None:
    bindings = read_bindings({})
    assert bindings.connection == "AzureWebJobsStorage"
    assert bindings.events == (Trigger("events", "taskgraph-events"),)
    assert bindings.poison == (Trigger("events-poison", "taskgraph-events-poison"),)
    assert bindings.schedule == "0 * * * * *"


def test_each_operation_may_have_a_queue_and_the_common_one_stays() -> None:
    bindings = read_bindings({"TASKGRAPH_QUEUES": "per-operation", "TASKGRAPH_PREFIX": "other"})
    assert bindings.events == (
        Trigger("events", "other-events"),
        *(Trigger(kind, f"other-{kind}") for kind in EVENT_TYPES),
    )
    assert [each.queue for each in bindings.poison] == [f"{each.queue}-poison" for each in bindings.events]


@pytest.mark.parametrize(
    ("seconds", "schedule"),
    [(5, "*/5 * * * * *"), (30, "*/30 * * * * *"), (60, "0 * * * * *"), (300, "0 */5 * * * *")],
)
def test_the_sweep_is_scheduled_in_seconds(seconds: int, schedule: str) -> None:
    assert read_bindings({SWEEP_VARIABLE: str(seconds)}).schedule == schedule


@pytest.mark.parametrize("text", ["0", "7", "45", "90", "-30", "1e2", "7200", "soon"])
def test_a_time_that_a_timer_cannot_keep_evenly_is_refused(text: str) -> None:
    with pytest.raises(InvalidSettings, match=SWEEP_VARIABLE):
        read_bindings({SWEEP_VARIABLE: text})


# --- settings ----------------------------------------------------------------------------------------------------


async def test_the_store_is_the_connection_of_the_triggers() -> None:
    door = Door({"TASKGRAPH_CONNECTION": "Graphs", "Graphs": "UseDevelopmentStorage=true", "TASKGRAPH_PREFIX": "abc"})
    assert door.bindings.connection == "Graphs"
    assert door.settings().prefix == "abc"
    assert door.settings().display == "the local storage emulator"


async def test_an_identity_is_taken_from_the_hosts_variables() -> None:
    base = "AzureWebJobsStorage__"
    environ = {
        f"{base}queueServiceUri": "https://acc.queue.core.windows.net",
        f"{base}tableServiceUri": "https://acc.table.core.windows.net",
        f"{base}credential": "managedidentity",
        f"{base}clientId": "1234",
    }
    settings = Door(environ).settings()
    assert settings.managed_identity
    assert settings.client_id == "1234"
    assert settings.blob_endpoint == "https://acc.blob.core.windows.net"
    short = Door({f"{base}accountName": "acc"}).settings()
    assert (short.table_endpoint, short.managed_identity) == ("https://acc.table.core.windows.net", False)


@pytest.mark.parametrize(
    ("environ", "says"),
    [
        ({}, "set AzureWebJobsStorage to a connection string"),
        ({"TASKGRAPH_CONNECTION": "Mine"}, "set Mine to a connection string"),
        ({**CONNECTION, "TASKGRAPH_STORE": "sqlite:///x.db"}, "remove one of them"),
        ({"AzureWebJobsStorage": "sqlite:///x.db"}, "functions need a storage account"),
        ({"AzureWebJobsStorage__queueServiceUri": "https://a.queue.core.windows.net"}, "tableServiceUri is missing"),
        ({"AzureWebJobsStorage__accountName": "acc", "AzureWebJobsStorage__credential": "key"}, "managedidentity"),
    ],
)
async def test_a_store_that_is_missing_is_said_by_name(environ: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidSettings, match=says):
        await Door(environ).handle(QUEUE, "m1", b"{}", 1)


async def test_a_door_opens_once_however_many_come(tmp_path: Path) -> None:
    class LocalDoor(Door):
        def settings(self) -> StoreSettings:
            return replace(StoreSettings(path=tmp_path / "store.db"), prefix="taskgraph")

    door = LocalDoor(CONNECTION)
    first, second = await asyncio.gather(door.app(), door.app())
    assert first is second
    await door.handle(QUEUE, "m1", json.dumps({"version": 1}), 1)
    assert [each.queue for each in await first.poison.list()] == [QUEUE]
    await door.close()
    assert await door.app() is not first
    await door.close()


async def test_an_app_that_cannot_write_its_row_goes_on(local: Stage, caplog: pytest.LogCaptureFixture) -> None:
    door = StageDoor(local)

    class Away:
        async def beat(self) -> None:
            raise StorageUnavailable("503", "memory")

        async def leave(self) -> None: ...

    door._registration = Away()  # type: ignore[assignment]
    await door.sweep()
    assert "the app could not say that it lives" in caplog.text
    await door.close()
