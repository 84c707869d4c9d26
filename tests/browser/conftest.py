"""A browser, and what its page reads: each is started once for all tests of this folder that one process plays."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests import azurite as emulator
from tests.browser import chromium
from tests.browser.documents import DOCUMENTS
from tests.browser.served import Served, everything, served
from tests.browser.sources import Source, from_archives, from_tables

_AZURITE = (pytest.mark.azurite, pytest.mark.campaign)
_SOURCES = (
    "stage",
    pytest.param("over_azurite", marks=_AZURITE),
    pytest.param("over_tables", marks=_AZURITE),
    pytest.param("over_archives", marks=pytest.mark.campaign),
)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with chromium.started() as made:
        yield made


@pytest.fixture(scope="package")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Over a file, with the graphs of `DOCUMENTS`; nothing changes them."""
    folder = tmp_path_factory.mktemp("page")
    with served(f"sqlite:///{folder}/store.db", folder, everything) as made:
        yield made


@pytest.fixture(scope="package")
def over_azurite(azurite: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The same over an emulator of its own, as the rules of browsers are for a whole account."""
    assert azurite, "or it is skipped"
    with (
        emulator.azurite() as connection,
        served(connection, tmp_path_factory.mktemp("account"), everything) as made,
    ):
        yield made


@pytest.fixture(scope="package")
def over_tables(over_azurite: Served) -> Iterator[Source]:
    with from_tables(over_azurite.store, over_azurite.prefix) as made:
        yield made


@pytest.fixture(scope="package")
def over_archives(stage: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Source]:
    with from_archives(stage.store, tmp_path_factory.mktemp("archives"), list(DOCUMENTS)) as made:
        yield made


@pytest.fixture(params=_SOURCES)
def source(request: pytest.FixtureRequest) -> Source:
    """Each of them, with the same graphs."""
    found: Source = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="module")
def account(azurite: str) -> Iterator[str]:
    """The connection string of an emulator that no other tests use: rules of browsers are for a whole account."""
    assert azurite, "or it is skipped"
    with emulator.azurite() as text:
        yield text
