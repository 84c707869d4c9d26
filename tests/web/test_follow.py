"""The page follows a graph that runs: it sees each end, claims too, and asks little while nothing moves."""

import asyncio
import json
from pathlib import Path
from typing import Any, Final

import pytest

from taskgraph.interfaces.operations import grant
from tests.http.serving import serving
from tests.web.programs import Programs

GRAPH: Final = {
    "tasks": {
        "slow": {"task": {"payload": {"command": ["sleep", "1.5"]}}},
        "after": {"requires": ["slow"], "task": {"executor": "noop"}},
        "last": {"requires": ["after"], "task": {"payload": {"command": ["sleep", "5"]}}},
        **{f"part {number:03}": {"requires": ["slow"], "task": {"executor": "noop"}} for number in range(100)},
    }
}
MORE: Final = {"tasks": {"more": {"requires": ["slow"], "task": {"executor": "noop"}}}}


async def followed(programs: Programs, started: asyncio.subprocess.Process) -> dict[str, Any]:
    async with asyncio.timeout(40):
        output, words = await started.communicate()
    assert started.returncode == 0, words.decode()
    found: dict[str, Any] = json.loads(output)
    return found


@pytest.mark.parametrize(
    "place",
    [
        "embedded",
        pytest.param("crowded", marks=pytest.mark.campaign),
        pytest.param("azurite", marks=[pytest.mark.azurite, pytest.mark.campaign]),
    ],
)
async def test_a_graph_is_followed_to_its_end(
    programs: Programs, tmp_path: Path, place: str, request: pytest.FixtureRequest
) -> None:
    store = request.getfixturevalue("azurite") if place == "azurite" else f"sqlite:///{tmp_path}/store.db"
    async with serving(store, tmp_path) as server:
        assert (await server.ask("PUT", "/graphs/g", data=GRAPH)).status == 201
        asked: dict[str, Any] = {"api": server.address, "crowded": place == "crowded"}
        if place == "azurite":
            link = await grant.read(server.app, "g")
            asked = {"table": f"{link.endpoint}/{link.table}", "sas": link.token}
        started = await programs.start("followed", **asked, graph="g", until="finished", idle=2)
        assert started.stdout is not None
        assert await started.stdout.readline() == b"loaded\n"
        assert (await server.ask("POST", "/graphs/g/extensions", data=MORE, Prefer="wait=20")).status == 200
        found = await followed(programs, started)
    assert {label: states[-1] for label, states in found["seen"].items()} == dict.fromkeys(
        [*GRAPH["tasks"], "more"], "completed"
    )
    assert "running" in found["seen"]["last"], found
    assert found["troubles"] == []
    assert found["requests"] < 60, found
    assert found["unknown"] == 0, found  # when each run began, which facts do not say
    assert found["idle"] <= 3, found
