"""A browser for the tests of a module, and a server with graphs of every kind."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests import azurite as emulator
from tests.browser import chromium
from tests.browser.documents import DOCUMENTS
from tests.browser.served import Served, graphs, served


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium.started() as made:
        yield made


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Over a file, with the graphs of `DOCUMENTS`."""
    folder: Path = tmp_path_factory.mktemp("page")
    with served(f"sqlite:///{folder}/store.db", folder, graphs(DOCUMENTS)) as made:
        yield made


@pytest.fixture(scope="module")
def account(azurite: str) -> Iterator[str]:
    """The connection string of an emulator that no other tests use: rules of browsers are for a whole account."""
    assert azurite, "or it is skipped"
    with emulator.azurite() as text:
        yield text
