"""Requests that are spoilt get a problem, and never a bug of the server."""

import asyncio
import dataclasses
import os
import secrets
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from taskgraph.interfaces.app import open_app
from taskgraph.interfaces.http import asgi, table
from taskgraph.interfaces.http.asked import Asked
from taskgraph.interfaces.settings import read_settings
from taskgraph.model.roles import Role
from tests.http import mutated
from tests.http.mutated import play
from tests.http.serving import serving

SEED = int(os.environ.get("TASKGRAPH_HTTP_SEED", "1"))


async def played(store: str, folder: Path, count: int, seed: int = SEED) -> tuple[Counter[int], list[str]]:
    environ = {} if store.startswith("sqlite:") else {"TASKGRAPH_PREFIX": f"t{secrets.token_hex(6)}"}
    async with open_app(read_settings(store, environ, cwd=folder)) as app:
        return await play(app, count, seed)


async def test_some_hundred_requests(place: str, tmp_path: Path) -> None:
    found, wrong = await played(place, tmp_path, 600)
    assert not wrong, f"seed {SEED}: {wrong[:3]}"
    assert found[200] > 100
    assert found[400] > 50


@pytest.mark.campaign
@pytest.mark.parametrize("seed", [1, 2])
async def test_many_requests(tmp_path: Path, seed: int) -> None:
    _, wrong = await played(f"sqlite:///{tmp_path}/store.db", tmp_path, 10_000, seed)
    assert not wrong, f"seed {seed}: {wrong[:3]}"


async def test_a_bug_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(asked: Asked) -> None:
        raise ValueError(asked.query["page"])

    routes = [dataclasses.replace(each, call=broken) if each.name == "listTasks" else each for each in table.ROUTES]
    monkeypatch.setattr(asgi, "ROUTES", routes)
    monkeypatch.setattr(mutated, "ROUTES", [each for each in routes if each.call is broken])
    _, wrong = await played(f"sqlite:///{tmp_path}/store.db", tmp_path, 100)
    assert any("status 500" in each for each in wrong)


@pytest.mark.campaign
@pytest.mark.parametrize("kind", ["embedded", pytest.param("azurite", marks=pytest.mark.azurite)])
async def test_schemathesis_finds_nothing(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> None:
    """Positive, negative and stateful requests by another's reading of the description.

    That whatever obeys the schema is accepted is not asked for: a document may contradict itself, and a change asks for
    a state.
    """
    store = f"sqlite:///{tmp_path}/store.db" if kind == "embedded" else str(request.getfixturevalue("azurite"))
    async with serving(store, tmp_path, anonymous=False) as server:
        document = {"tasks": {"a": {"task": {"executor": "noop"}}}}
        token = server.tokens[Role.ADMIN]
        assert (await server.ask("PUT", "/graphs/g", data=document, token=token)).status == 201
        typed = ["run", f"{server.address}/api/v1/openapi.json", "--header", f"Authorization: Bearer {token}"]
        typed += [
            "--checks",
            "all",
            "--exclude-checks",
            "positive_data_acceptance",
            "--mode",
            "all",
            "--seed",
            str(SEED),
        ]
        typed += ["--exclude-path", "/api/v1/archives"]  # it makes no gzip; `mutated` spoils that
        typed += ["--phases", "examples,coverage,fuzzing,stateful", "--max-examples", "10", "--no-color"]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "schemathesis.cli", *typed),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=tmp_path,
        )
        said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()[-6_000:]
