"""Stages over every store there is."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from taskgraph.storage.embedded import EmbeddedStore
from tests.scenarios.stage import ManualClock, Stage
from tests.simulation.memory import MemoryQueues, MemoryTables


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def memory(clock: ManualClock) -> Stage:
    """A stage over the in-memory model alone, for what needs thousands of histories."""
    return Stage(MemoryTables(), MemoryQueues(clock), clock)


@pytest.fixture(params=["memory", "embedded"])
async def local(request: pytest.FixtureRequest, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Stage]:
    """A stage over the stores whose time is the test's own: what is hidden comes back when the clock is moved."""
    if request.param == "memory":
        yield Stage(MemoryTables(), MemoryQueues(clock), clock)
        return
    store = EmbeddedStore(tmp_path / "store.db", clock)
    yield Stage(store.tables("taskgraph"), store.queues(), clock, kind="embedded")
    await store.close()


@pytest.fixture(params=["memory", "embedded"])
async def stage(request: pytest.FixtureRequest, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Stage]:
    """A stage over each store."""
    if request.param == "memory":
        yield Stage(MemoryTables(), MemoryQueues(clock), clock)
        return
    store = EmbeddedStore(tmp_path / "store.db", clock)
    yield Stage(store.tables("taskgraph"), store.queues(), clock, kind="embedded")
    await store.close()
