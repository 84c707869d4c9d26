"""Servers over each store."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from taskgraph.storage.http import calls
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


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Methods and paths of the requests that clients make."""
    made: list[tuple[str, str]] = []
    send = calls.Server._send

    async def noted(server: calls.Server, method: str, path: str, *more: Any) -> Any:
        made.append((method, path))
        return await send(server, method, path, *more)

    monkeypatch.setattr(calls.Server, "_send", noted)
    return made
