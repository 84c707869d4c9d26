"""What waits over HTTP: it asks seldom, and sees a change at once. Pauses of the client count, and take no time."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from taskgraph import Client
from taskgraph.interfaces.cli.progress import Follower
from taskgraph.interfaces.operations import logs
from taskgraph.model.clock import SystemClock
from taskgraph.model.errors import StorageUnavailable
from taskgraph.model.roles import Role
from taskgraph.storage.http.news import WAIT_SECONDS
from taskgraph.storage.signals.news import AGAIN_SECONDS, AWAY_SECONDS
from taskgraph.testing import HurriedClock
from tests.http.serving import Server, serving

GRAPH: dict[str, Any] = {"tasks": {"one": {"task": {"executor": "noop"}}}}
SEEN_SECONDS = 1.0  # it takes some 0.15 s; by looks every two seconds it would take longer


class Counting(SystemClock):
    def __init__(self) -> None:
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)


class Waiting:
    """A client that waits, and what it asks the server for. held: seconds that the server may hold its last request."""

    def __init__(self, client: Client, clock: Counting) -> None:
        assert client.app.server is not None
        self.client = client
        self.clock = clock
        self.requests = 0
        self.held = 0.0
        self._waits = asyncio.Event()
        self._send = client.app.server._send
        client.app.server._send = self._counted  # type: ignore[method-assign, assignment]

    async def _counted(self, method: str, path: str, query: Any, *more: Any) -> Any:
        self.requests += 1
        self.held = float(dict(query).get("wait", "0"))
        self._waits.set()
        answer = await self._send(method, path, query, *more)
        self._waits.clear()
        return answer

    async def until_it_rests(self) -> None:
        """Up to a request that the server holds."""
        async with asyncio.timeout(10):
            rested = False
            while not rested:
                await self._waits.wait()
                before = self.requests
                await asyncio.sleep(0.3)
                rested = bool(self.held) and self.requests == before
        self.requests = 0
        self.clock.slept.clear()


class Display:
    def __init__(self) -> None:
        self.drawn = asyncio.Event()
        self.held: tuple[str, ...] = ()

    def draw(self, tally: Any, here: Any) -> None:
        self.held = tally.held
        if self.held:
            self.drawn.set()

    def events(self, events: Any) -> None: ...

    def close(self) -> None: ...


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    """It handles events, and runs no task."""
    async with serving(f"sqlite:///{tmp_path}/store.db", tmp_path, anonymous=False, slots=0) as made:
        yield made


@pytest.fixture
async def other(server: Server) -> AsyncIterator[Client]:
    async with Client(server.address, token=server.tokens[Role.OPERATOR]) as made:
        await made.submit(GRAPH, "g")
        yield made


@pytest.fixture
async def waiting(server: Server, other: Client) -> AsyncIterator[Waiting]:
    clock = Counting()
    async with Client(server.address, token=server.tokens[Role.READER], clock=clock) as client:
        yield Waiting(client, clock)


async def test_a_follower_rests_until_the_server_has_an_event(waiting: Waiting, other: Client) -> None:
    async with aclosing(waiting.client.follow("g")) as events:
        assert (await anext(events)).kind == "graph-running"
        coming = asyncio.ensure_future(anext(events))
        await waiting.until_it_rests()
        assert waiting.held == WAIT_SECONDS
        await other.pause("g")
        began = time.monotonic()
        assert (await coming).kind == "graph-paused"
        assert time.monotonic() - began < SEEN_SECONDS
        assert (waiting.requests, waiting.clock.slept) == (2, [])  # the state, and what is new


async def test_the_end_of_a_graph_is_waited_for_by_one_request(waiting: Waiting, other: Client) -> None:
    ended = asyncio.ensure_future(waiting.client.wait("g"))
    await waiting.until_it_rests()
    assert waiting.held == WAIT_SECONDS
    await other.prioritize("g", "low", wait=True)  # an event of a task does not end it
    assert waiting.requests == 0
    await other.cancel("g")
    began = time.monotonic()
    assert await ended == "cancelled"
    assert time.monotonic() - began < SEEN_SECONDS
    assert waiting.requests <= 5


async def test_a_wait_ends_in_time(waiting: Waiting) -> None:
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        await waiting.client.wait("g", timeout_seconds=0.5)
    assert 0.5 <= time.monotonic() - began < 0.5 + SEEN_SECONDS
    assert waiting.requests <= 5


async def test_a_screen_rests_while_nothing_happens(waiting: Waiting, other: Client) -> None:
    display = Display()
    follower = asyncio.ensure_future(Follower(waiting.client.app, "g", display).follow())  # type: ignore[arg-type]
    await waiting.until_it_rests()
    assert waiting.held == WAIT_SECONDS
    await other.pause("g")
    await asyncio.wait_for(display.drawn.wait(), SEEN_SECONDS)
    assert waiting.requests <= 4
    follower.cancel()
    await asyncio.wait((follower,))


async def test_who_follows_logs_that_rest_looks_once_a_second(waiting: Waiting) -> None:
    async with aclosing(logs.follow(waiting.client.app, "g", logs.Wanted())) as pieces:
        coming = asyncio.ensure_future(anext(pieces))
        async with asyncio.timeout(20):
            while max(waiting.clock.slept, default=0.0) < 1.0:
                await asyncio.sleep(0.01)
        coming.cancel()
        await asyncio.wait((coming,))


async def test_what_waits_outlasts_a_server_that_is_started_again(
    waiting: Waiting, server: Server, tmp_path: Path
) -> None:
    async def printed() -> list[logs.LogPiece]:
        return [each async for each in logs.follow(waiting.client.app, "g", logs.Wanted())]

    ended = asyncio.ensure_future(waiting.client.wait("g"))
    async with aclosing(waiting.client.follow("g")) as events:
        assert (await anext(events)).kind == "graph-running"
        coming = asyncio.ensure_future(anext(events))
        await waiting.until_it_rests()
        printing = asyncio.ensure_future(printed())
        await asyncio.sleep(0.1)
        server.stop.set()
        async with asyncio.timeout(20):
            while waiting.clock.slept.count(AGAIN_SECONDS) < 4:  # each of them waits for it
                await asyncio.sleep(0.01)
        async with (
            serving(f"sqlite:///{tmp_path}/store.db", tmp_path, slots=0) as again,
            Client(again.address) as other,
        ):
            assert waiting.client.app.server is not None
            waiting.client.app.server.address = f"{again.address}/api/v1"
            await other.cancel("g")
            assert (await coming).kind == "graph-cancelling"
            assert await ended == "cancelled"
            assert await printing == []


async def test_what_waits_for_a_server_that_stays_away_says_so(server: Server, other: Client) -> None:
    async with Client(server.address, token=server.tokens[Role.READER], clock=HurriedClock()) as client:
        ended = asyncio.ensure_future(client.wait("g"))
        await asyncio.sleep(0.3)
        server.stop.set()
        began = client.app.clock.monotonic()
        with pytest.raises(StorageUnavailable, match="cannot be reached"):
            await asyncio.wait_for(ended, 20)
        assert client.app.clock.monotonic() - began >= AWAY_SECONDS
