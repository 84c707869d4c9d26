"""Stages over every store there is."""

import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from taskgraph.model.clock import SystemClock
from taskgraph.storage.azure.account import AzureStore
from taskgraph.storage.sqlite.store import EmbeddedStore
from taskgraph.testing import HurriedClock
from tests.http.typed import door
from tests.scenarios.stage import LOCAL, Stage, memory_stage

__all__ = ["door"]

STORES = (*LOCAL, pytest.param("azurite", marks=pytest.mark.azurite))


@pytest.fixture
def memory() -> Stage:
    """A stage over the in-memory model alone, for what needs many histories."""
    return memory_stage()


@pytest.fixture(params=LOCAL)
async def local(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stage]:
    """A stage over the stores whose time is the test's own: what is hidden comes back when the clock is moved."""
    if request.param == "memory":
        yield memory_stage()
        return
    clock = HurriedClock()
    store = EmbeddedStore(tmp_path / "store.db", clock)
    yield Stage(store.tables("taskgraph"), store.queues(), clock, kind="embedded")
    await store.close()


@pytest.fixture(params=STORES)
async def stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stage]:
    """A stage over each store. The protocol's clock is the test's; the emulator's own time is the machine's."""
    if request.param == "memory":
        yield memory_stage()
        return
    clock = HurriedClock()
    if request.param == "embedded":
        embedded = EmbeddedStore(tmp_path / "store.db", clock)
        yield Stage(embedded.tables("taskgraph"), embedded.queues(), clock, kind="embedded")
        await embedded.close()
    else:
        azure = AzureStore.from_connection_string(request.getfixturevalue("azurite"), SystemClock())
        prefix = f"t{secrets.token_hex(6)}"
        yield Stage(azure.tables(prefix), azure.queues(), clock, prefix=prefix, kind="azurite")
        await azure.close()
