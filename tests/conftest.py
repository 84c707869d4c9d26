"""What every test may ask for: the storage emulator, and an opened store of each kind.

- `azurite`: the connection string of a storage emulator, one for the whole run, or for each process of a run that goes
  side by side. Started when first asked for, unless TASKGRAPH_TEST_AZURITE names one that runs already
  (`python -m tests.azurite -- pytest`), which all processes then share. If it is not installed, the test is skipped;
  with CI or TASKGRAPH_TEST_REQUIRE_AZURITE set it fails, so that nothing is left out in silence.
- `store`: an OpenStore over each of them, with names of its own, so that tests never meet; the emulator once through
  our own requests and once through the SDK.
"""

import asyncio
import gc
import logging
import os
import secrets
import signal
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from taskgraph.model import limits
from taskgraph.model.clock import SystemClock
from taskgraph.storage.azure.account import AzureStore
from taskgraph.storage.logs import StoredLogs
from taskgraph.storage.queues import Queues
from taskgraph.storage.sqlite.store import EmbeddedStore
from taskgraph.storage.tables import Tables
from taskgraph.testing import ManualClock, MemoryStore
from tests import azurite as emulator
from tests.azure_sdk import open_store

STORES = (
    "memory",
    "embedded",
    pytest.param("azurite", marks=pytest.mark.azurite),
    pytest.param("azurite-sdk", marks=[pytest.mark.azurite, pytest.mark.campaign]),
)

CLIENTS = (pytest.param(True, id="thin"), pytest.param(False, id="sdk", marks=pytest.mark.campaign))
"""Our own requests, and the SDK's: a failure means the same."""


@dataclass(slots=True)
class OpenStore:
    """A store under test, with names that no other test uses.

    kind: "memory", "embedded" or "azurite". clock: of the first two, by which their leases go; None for the emulator,
    whose time is the machine's.
    """

    kind: str
    store: MemoryStore | EmbeddedStore | AzureStore
    prefix: str
    clock: ManualClock | None

    @property
    def tables(self) -> Tables:
        return self.store.tables(self.prefix)

    @property
    def queues(self) -> Queues:
        return self.store.queues()

    @property
    def logs(self) -> StoredLogs:
        return self.store.logs()

    def queue(self, name: str = "work") -> str:
        """A queue of this test."""
        return f"{self.prefix}-{name}"

    async def pass_time(self, seconds: float) -> None:
        """Let leases and delays go on: at once where the clock is ours."""
        if self.clock is not None:
            self.clock.advance(seconds)
        else:
            await asyncio.sleep(seconds)


# The modules and the tests of this process are half a million objects. Python would look through all of them again and
# again, for an eighth of the time of the tests: from here on it does so a tenth as often.
gc.set_threshold(2_000, 10, 50)

# Under nohup a process ignores SIGHUP, and so do those that it starts. A handler is not handed on.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)


@pytest.fixture(scope="session")
def azurite() -> Iterator[str]:
    if running := os.environ.get(emulator.VARIABLE):
        yield running
        return
    try:
        emulator.version()
    except emulator.AzuriteMissing as error:
        if os.environ.get("CI") or os.environ.get("TASKGRAPH_TEST_REQUIRE_AZURITE"):
            pytest.fail(str(error))
        pytest.skip(str(error))
    with emulator.azurite() as connection_string:
        yield connection_string


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[OpenStore]:
    prefix = f"t{secrets.token_hex(6)}"
    if request.param == "memory":
        clock = ManualClock()
        yield OpenStore("memory", MemoryStore(clock), prefix, clock)
    elif request.param == "embedded":
        clock = ManualClock()
        embedded = EmbeddedStore(tmp_path / "store.db", clock)
        yield OpenStore("embedded", embedded, prefix, clock)
        await embedded.close()
    else:
        thin = request.param == "azurite"
        azure = open_store(request.getfixturevalue("azurite"), SystemClock(), thin=thin)
        yield OpenStore("azurite", azure, prefix, None)
        await azure.close()


@pytest.fixture(autouse=True)
def loggers_as_before() -> Iterator[None]:
    """A command that ran in this process leaves its voice on the loggers; the next test must not hear it.

    A command of a fixture that outlives a test has spoken before the test begins: its voice is no handler of before.
    """
    loggers = [logging.getLogger(name) for name in ("taskgraph", "azure", "opentelemetry", "")]
    before = [
        ([each for each in logger.handlers if type(each).__module__ != "taskgraph.interfaces.cli.common"], logger.level)
        for logger in loggers
    ]
    yield
    for logger, (handlers, level) in zip(loggers, before, strict=True):
        logger.handlers[:], logger.propagate = handlers, True
        logger.setLevel(level)


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that may leap, as tests move it, and is believed with what it ends for its age all the same."""
    monkeypatch.setattr(limits, "CLOCK_SETTLED_SECONDS", 0.0)
