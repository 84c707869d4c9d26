"""Servers over each store."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.http.serving import Server, serving


@pytest.fixture(params=["embedded", pytest.param("azurite", marks=pytest.mark.azurite)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store."""
    if request.param == "embedded":
        return f"sqlite:///{tmp_path}/store.db"
    return str(request.getfixturevalue("azurite"))


@pytest.fixture
async def open_to_all(place: str, tmp_path: Path) -> AsyncIterator[Server]:
    """A server that asks for no token."""
    async with serving(place, tmp_path) as made:
        yield made


@pytest.fixture
async def local(tmp_path: Path) -> AsyncIterator[Server]:
    """The same, on a file."""
    async with serving(f"sqlite:///{tmp_path}/store.db", tmp_path) as made:
        yield made


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Server]:
    """A server on a file, with a token for each role."""
    async with serving(f"sqlite:///{tmp_path}/store.db", tmp_path, anonymous=False) as made:
        yield made
