"""What tests of function apps share: Microsoft's worker library, and queues to send to."""

import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from taskgraph.model.clock import SystemClock
from taskgraph.storage.azure.account import AzureStore
from taskgraph.storage.queues import Queues
from taskgraph_functions_host import environment
from tests.functions.hosting import WORKER_ENVIRONMENT, environment_is_required


@pytest.fixture(scope="session")
def worker_library() -> Path:
    """The environment of the worker library, which scripts/test makes."""
    if not environment.is_ready(WORKER_ENVIRONMENT):
        message = "the Functions worker library is not installed: scripts/test does it, by install_functions_worker"
        if environment_is_required():
            pytest.fail(message)
        pytest.skip(message)
    return WORKER_ENVIRONMENT


@pytest.fixture
def prefix() -> str:
    """Of queues and tables that no other test uses."""
    return f"t{secrets.token_hex(6)}"


@pytest.fixture
async def queues(azurite: str) -> AsyncIterator[Queues]:
    store = AzureStore.from_connection_string(azurite, SystemClock())
    yield store.queues()
    await store.close()
