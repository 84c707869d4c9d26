"""What handles events is registered as workers are, and where none is, people are told so where they look."""

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from taskgraph import Client, Refused
from taskgraph.interfaces import loops
from taskgraph.interfaces.functions import SITE_VARIABLE, Door
from taskgraph.interfaces.operations import doctor, handlers
from taskgraph.interfaces.operations import workers as operation
from taskgraph.interfaces.settings import StoreSettings, read_settings
from taskgraph.model.clock import SystemClock
from taskgraph.model.flag import Flag
from taskgraph.queries.workers import FINISH, FUNCTION_APP, HANDLER, NO_HANDLER, START_HANDLER
from taskgraph.worker.registration import Presence, Registration, WorkerDetails

CONNECTION = {"AzureWebJobsStorage": "UseDevelopmentStorage=true"}
ONE = {"tasks": {"a": {"task": {}}}}


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    async with Client(f"sqlite:///{tmp_path}/store.db") as opened:
        yield opened


async def until(condition: Any, seconds: float = 10.0) -> None:
    async with asyncio.timeout(seconds):
        while not await condition():
            await asyncio.sleep(0.01)


async def seen(client: Client) -> bool:
    return await handlers.seen(client.app)


async def test_serve_is_seen_while_it_rests_and_not_once_it_has_ended(client: Client, tmp_path: Path) -> None:
    async with Client(f"sqlite:///{tmp_path}/store.db") as other:
        assert not await seen(client)
        stop = Flag()
        serving = asyncio.create_task(loops.serve(other.app, stop))
        await until(lambda: seen(client))
        (one,) = (await operation.listed(client.app)).handlers
        assert (one.kind, one.state, one.live) == (HANDLER, "active", True)
        assert client.app.locks is not None
        assert client.app.locks.found() == [one.name]
        stop.set()
        await serving
    assert not await seen(client)
    assert client.app.locks.found() == []


async def test_one_that_was_killed_is_gone_at_once_where_its_lock_file_shows_it(client: Client, tmp_path: Path) -> None:
    app = client.app
    await app.handler_registration("killed").beat()
    assert await seen(client)
    (tmp_path / "workers").mkdir(exist_ok=True)
    (tmp_path / "workers" / "killed.lock").touch()  # no process holds it
    assert not await seen(client)
    assert app.locks is not None
    await loops.bury(app, app.locks)
    assert app.locks.found() == [], "the lock file is swept"
    (one,) = (await operation.listed(app)).handlers
    assert one.state == "gone", "and the row says so from then on"


async def test_a_lock_file_of_no_worker_at_all_is_swept(client: Client, tmp_path: Path) -> None:
    (tmp_path / "workers").mkdir()
    (tmp_path / "workers" / "unknown.lock").touch()
    assert client.app.locks is not None
    await loops.bury(client.app, client.app.locks)
    assert client.app.locks.found() == []


async def test_a_handler_cannot_be_drained(client: Client) -> None:
    await client.app.handler_registration("h").beat()
    with pytest.raises(Refused, match="h handles events, and has no tasks to drain"):
        await operation.ask(client.app, "h", draining=FINISH)


async def test_why_and_doctor_say_that_no_handler_runs_until_one_does(client: Client) -> None:
    await client.submit(ONE, "g")

    async def said() -> tuple[bool, bool]:
        (reason,) = await client.why("g", "a")
        found = await doctor.examine(client.app, "g", repair=False, progress=lambda rows: None)
        assert (NO_HANDLER in reason.text) == (START_HANDLER in reason.remedy)
        return NO_HANDLER in reason.text, NO_HANDLER in [cause.text for cause in found.causes]

    assert await said() == (True, True)
    registration = client.app.handler_registration("h")
    await registration.beat()
    assert await said() == (False, False)
    await registration.leave()
    assert await said() == (True, True)


async def test_a_worker_without_handlers_says_so_once_and_when_there_is_one(
    client: Client, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loops, "_ALONE_SECONDS", 0.02)
    monkeypatch.setattr(loops, "_ALONE_AGAIN_SECONDS", 0.02)
    from taskgraph.worker.executors import built_in

    app, stop = client.app, Flag()
    worker = app.worker(built_in(app.clock))
    looking = asyncio.create_task(loops.warn_without_handlers(app, stop, worker))
    with caplog.at_level(logging.WARNING, "taskgraph.service"):

        async def warned() -> bool:
            return "no handler reads the results" in caplog.text

        await until(warned)
        await asyncio.sleep(0.2)
        assert len(caplog.records) == 1, "once, and not at each look"
        await app.handler_registration("h").beat()

        async def back() -> bool:
            return "a handler reads the results of this worker again" in caplog.text

        await until(back)
    stop.set()
    await looking


async def test_a_function_app_is_one_handler_whichever_instance_has_the_timer(tmp_path: Path) -> None:
    class FileDoor(Door):
        def settings(self) -> StoreSettings:
            return read_settings(f"sqlite:///{tmp_path}/store.db", {}, cwd=tmp_path)

    async with Client(f"sqlite:///{tmp_path}/store.db") as client:
        first, second = (FileDoor(CONNECTION | {SITE_VARIABLE: "my-app"}, clock=SystemClock()) for _ in range(2))
        try:
            await first.sweep()
            await second.sweep()
            (one,) = (await operation.listed(client.app)).handlers
            assert (one.name, one.kind, one.live) == ("my-app", FUNCTION_APP, True)
        finally:
            await first.close()
            await second.close()
        assert not await seen(client)


class Changing:
    name, at_rest = "w", False

    def __init__(self) -> None:
        self.busy = 0

    def presence(self) -> Presence:
        return Presence(self.busy)

    def drain(self, *, now: bool) -> None: ...

    def undrain(self) -> None: ...


@pytest.mark.parametrize("prompt", [True, False])
async def test_on_one_machine_the_row_says_soon_how_busy_a_worker_is(prompt: bool, client: Client) -> None:
    """Elsewhere it is written as seldom as before."""
    worker = Changing()
    details = WorkerDetails(("default",), (), ("script",), "vm", 2, "1", 1, prompt=prompt)
    stop = Flag()
    keeping = asyncio.create_task(Registration(client.app.tables, client.app.clock, worker, details).keep(stop))

    async def busy() -> int:
        return sum(one.busy for one in (await operation.listed(client.app)).workers)

    async def there() -> bool:
        return bool((await operation.listed(client.app)).workers)

    await until(there)
    worker.busy = 2
    if prompt:

        async def shown() -> bool:
            return await busy() == 2

        await until(shown, 3.0)
    else:
        await asyncio.sleep(1.3)
        assert await busy() == 0
    stop.set()
    await keeping
