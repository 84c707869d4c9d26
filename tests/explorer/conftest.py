"""The scene, once for all tests here, and the clients that look at it."""

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.explorer.clients import Node, need_clients
from tests.explorer.scene import Scene, staged


@pytest.fixture(scope="session")
def scene(azurite: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    need_clients()
    folder: Path = tmp_path_factory.mktemp("explorer")
    with staged(azurite, f"e{secrets.token_hex(6)}", folder) as made:
        yield made


@pytest.fixture(scope="session")
def node() -> Iterator[Node]:
    need_clients()
    client = Node()
    yield client
    client.close()
