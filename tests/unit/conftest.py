"""What suites of clients run over: stores, and servers in front of them."""

import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from taskgraph import Client
from taskgraph.interfaces.settings import read_settings
from taskgraph.model.clock import Clock
from tests.http.behind import behind_server, store_of

Opened = Callable[[Clock | None], AbstractAsyncContextManager[Client]]

EMULATED = (pytest.mark.azurite, pytest.mark.campaign)
PLACES = (
    "embedded",
    "embedded-http",
    pytest.param("azurite", marks=EMULATED),
    pytest.param("azurite-http", marks=EMULATED),
)


@pytest.fixture(params=PLACES)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opened:
    """Opens a client, by a clock or by the machine's."""
    emulated, served = request.param.startswith("azurite"), request.param.endswith("-http")
    store = request.getfixturevalue("azurite") if emulated else f"sqlite:///{tmp_path}/store.db"
    settings = read_settings(store, {"TASKGRAPH_PREFIX": f"t{secrets.token_hex(6)}"}, cwd=tmp_path)

    @asynccontextmanager
    async def made(clock: Clock | None) -> AsyncIterator[Client]:
        async with behind_server(store, tmp_path, clock) if served else Client(settings, clock=clock) as client:
            try:
                yield client
            finally:  # the emulator has one container of logs, whatever the prefix
                for each in await client.graphs():
                    await store_of(client).logs.remove(each.graph_id)

    return made


@pytest.fixture
async def client(opened: Opened) -> AsyncIterator[Client]:
    async with opened(None) as made:
        yield made
