"""Processes whose clock is off go by the time of the storage service."""

import base64
import contextlib
import re
import secrets
import time
import types
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime, parsedate_to_datetime
from typing import Any

import aiohttp
import azure.data.tables._policies
import azure.storage.blob._shared.policies
import azure.storage.queue._shared.policies
import pytest
from aiohttp import web
from azure.core.credentials import AzureNamedKeyCredential
from azure.core.exceptions import HttpResponseError
from yarl import URL

from taskgraph.model.clock import SystemClock
from taskgraph.storage.azure.account import AzureStore
from taskgraph.storage.azure.pool import Answer
from taskgraph.storage.azure.signing import signer_for
from taskgraph.storage.azure.time import ServiceClock
from taskgraph.storage.azure.wire import Wire
from taskgraph.storage.tables import Insert, Range
from taskgraph.testing import ManualClock

NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)
YEAR = 366 * 86_400.0


class JumpingClock(ManualClock):
    """A machine whose time of day is set anew; its steady clock goes on."""

    off = timedelta()

    def now(self) -> datetime:
        return super().now() + self.off


def clock_that_is_off(seconds: float) -> tuple[JumpingClock, ServiceClock]:
    machine = JumpingClock(NOON)
    machine.off = timedelta(seconds=seconds)
    return machine, ServiceClock(machine)


def date(machine: JumpingClock) -> str:
    return format_datetime(ManualClock.now(machine), usegmt=True)


def off_by(machine: JumpingClock, clock: ServiceClock) -> float:
    return (clock.now() - ManualClock.now(machine)).total_seconds()


@pytest.mark.parametrize("seconds", [YEAR, 86_400.0, 3_600.0, 11.5, -11.5, -3_600.0, -86_400.0, -YEAR])
def test_a_clock_that_is_off_gives_way_to_the_service(seconds: float, caplog: pytest.LogCaptureFixture) -> None:
    machine, clock = clock_that_is_off(seconds)
    assert off_by(machine, clock) == seconds, "nothing was heard"
    assert clock.learn(date(machine), clock.monotonic())
    machine.advance(5_000)
    assert abs(off_by(machine, clock)) <= 1
    assert not clock.learn(date(machine), clock.monotonic())
    (record,) = caplog.records
    assert ("ahead of" if seconds > 0 else "behind") in record.getMessage()


@pytest.mark.parametrize("seconds", [0.0, 9.0, -9.0])
def test_a_clock_that_agrees_counts_as_it_is(seconds: float, caplog: pytest.LogCaptureFixture) -> None:
    machine, clock = clock_that_is_off(seconds)
    assert not clock.learn(date(machine), clock.monotonic())
    assert off_by(machine, clock) == seconds
    assert not caplog.records


@pytest.mark.parametrize("seconds", [YEAR, -YEAR])
def test_a_jump_in_between_moves_nothing(seconds: float) -> None:
    machine, clock = clock_that_is_off(0.0)
    clock.learn(date(machine), clock.monotonic())
    machine.advance(60)
    machine.off = timedelta(seconds=seconds)
    assert abs(off_by(machine, clock)) <= 1
    machine.off = timedelta()
    assert off_by(machine, clock) == 0


@pytest.mark.parametrize("text", ["", "soon", "Mon, 99 Foo 2026 00:00:00 GMT"])
def test_what_is_no_time_is_passed_over(text: str) -> None:
    machine, clock = clock_that_is_off(YEAR)
    assert not clock.learn(text, clock.monotonic())
    assert off_by(machine, clock) == YEAR


def test_an_answer_that_took_long_says_nothing_of_now() -> None:
    machine, clock = clock_that_is_off(0.0)
    began, written = clock.monotonic(), date(machine)
    machine.advance(30)
    assert not clock.learn(written, began)
    assert off_by(machine, clock) == 0


class Door:
    """A service that refuses what is signed by another time than its own, as the cloud does."""

    def __init__(self, machine: JumpingClock, minutes: float) -> None:
        self.machine = machine
        self.slack = timedelta(minutes=minutes)
        self.asked = 0

    async def exchange(
        self, method: str, url: URL, headers: Mapping[str, str], body: bytes | None, read_seconds: float
    ) -> Answer:
        self.asked += 1
        signed = datetime.strptime(headers["x-ms-date"], "%a, %d %b %Y %H:%M:%S GMT").replace(tzinfo=UTC)
        fine = abs(signed - ManualClock.now(self.machine)) <= self.slack
        return Answer(200 if fine else 403, {"Date": date(self.machine)}, b"")

    async def close(self) -> None:
        """See Transport."""


@pytest.fixture
def machine() -> JumpingClock:
    return JumpingClock(NOON)


def wire(machine: JumpingClock, minutes: float) -> tuple[Door, Wire]:
    clock = ServiceClock(machine)
    credential = AzureNamedKeyCredential("account", base64.b64encode(b"k").decode())
    door = Door(machine, minutes)
    return door, Wire("https://here", signer_for(credential, "https://here", "table", clock), door, clock)


async def test_what_was_signed_by_a_clock_that_is_off_is_signed_again(machine: JumpingClock) -> None:
    machine.off = timedelta(days=1)
    door, asking = wire(machine, 15)
    for asked in (2, 3, 4):
        await asking.ask("GET", "/t", (200,))
        assert door.asked == asked, "once alone is it turned away"
        machine.advance(60)


async def test_what_is_refused_for_another_reason_is_not_asked_again(machine: JumpingClock) -> None:
    door, asking = wire(machine, -1)
    with pytest.raises(HttpResponseError):
        await asking.ask("GET", "/t", (200,))
    assert door.asked == 1


class Strict:
    """In front of the emulator, which looks at no date: what was signed by another time than its own is turned away."""

    def __init__(self) -> None:
        self.refused: list[str] = []
        self.passed = 0

    @contextlib.asynccontextmanager
    async def before(self, connection: str) -> AsyncIterator[str]:
        """The connection string for those who come by way of this door."""
        async with contextlib.AsyncExitStack() as stack:
            session = aiohttp.ClientSession(auto_decompress=False, skip_auto_headers=["Content-Type"])
            await stack.enter_async_context(session)
            for port in sorted(set(re.findall(r"127\.0\.0\.1:(\d+)", connection))):
                runner = web.AppRunner(self._application(session, port), shutdown_timeout=0.1)
                await runner.setup()
                stack.push_async_callback(runner.cleanup)
                site = web.TCPSite(runner, "127.0.0.1", 0)
                await site.start()
                mine = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
                connection = connection.replace(f":{port}/", f":{mine}/")
            yield connection

    def _application(self, session: aiohttp.ClientSession, port: str) -> web.Application:
        async def handle(request: web.Request) -> web.Response:
            signed = parsedate_to_datetime(request.headers["x-ms-date"])
            if abs(signed - datetime.now(UTC)) > timedelta(minutes=15):
                self.refused.append(f"{request.method} {request.path}")
                return web.Response(status=403, headers={"x-ms-error-code": "AuthenticationFailed"})
            self.passed += 1
            url = URL(f"http://127.0.0.1:{port}{request.raw_path}", encoded=True)
            headers = {name: text for name, text in request.headers.items() if name != "Host"}
            async with session.request(request.method, url, headers=headers, data=await request.read()) as answer:
                given = {
                    name: text
                    for name, text in answer.headers.items()
                    if name not in ("Transfer-Encoding", "Connection", "Keep-Alive")
                }
                return web.Response(status=answer.status, headers=given, body=await answer.read())

        application = web.Application(client_max_size=1 << 26)
        application.router.add_route("*", "/{path:.*}", handle)
        return application


class OffClock(SystemClock):
    """The machine's, set wrong."""

    def __init__(self, seconds: float) -> None:
        self.off = timedelta(seconds=seconds)

    def now(self) -> datetime:
        return super().now() + self.off


async def tables(store: AzureStore) -> None:
    rows = store.tables(f"t{secrets.token_hex(6)}")
    await rows.commit("p", [Insert("a", {})])
    await rows.commit("p", [Insert("b", {}), Insert("c", {})])
    assert len((await rows.query("p", Range())).rows) == 3


async def queues(store: AzureStore) -> None:
    queue, queues = f"q-{secrets.token_hex(6)}", store.queues()
    assert await queues.count(queue) == 0
    await queues.send(queue, ["one"])
    assert await queues.count(queue) == 1
    (delivery,) = await queues.receive(queue, lease_seconds=30)
    await queues.delete(delivery)


async def logs(store: AzureStore) -> None:
    graph, task, kept = f"g{secrets.token_hex(6)}", "fN1SbArXTPSVFUUvaOlinQ", store.logs()
    await kept.append(graph, task, 0, b"line")
    assert await kept.read(graph, task, 0) == b"line"
    assert len((await kept.files(graph)).files) == 1
    assert await kept.remove(graph) == 1


@pytest.mark.azurite
@pytest.mark.parametrize("use", [tables, queues, logs])
@pytest.mark.parametrize("seconds", [YEAR, 3_600.0, -3_600.0, -YEAR])
async def test_whatever_is_asked_for_is_signed_by_the_time_of_the_service(
    azurite: str, use: Any, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time
    monkeypatch.setattr(azure.storage.blob._shared.policies, "time", lambda: now() + seconds)
    monkeypatch.setattr(azure.storage.queue._shared.policies, "time", lambda: now() + seconds)
    monkeypatch.setattr(azure.data.tables._policies, "time", types.SimpleNamespace(time=lambda: now() + seconds))
    strict = Strict()
    async with strict.before(azurite) as connection:
        store = AzureStore.from_connection_string(connection, ServiceClock(OffClock(seconds)))
        try:
            await use(store)
        finally:
            await store.close()
    assert len(strict.refused) == 1, "the first request alone, which could not know"
    assert strict.passed > 3
