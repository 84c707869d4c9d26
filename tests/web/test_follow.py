"""The page follows a graph that runs: it sees each end, claims too, and asks little while nothing moves."""

import asyncio
import copy
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
# Of more tasks than one page has, all ready but for one; none of the others has a worker.
WAITS: Final = {
    "tasks": {
        "first": {"task": {"payload": {"command": ["sleep", "4"]}}},
        "second": {"requires": ["first"], "task": {"payload": {"command": ["sleep", "4"]}}},
        **{f"far {number:04}": {"task": {"executor": "noop", "target": "far"}} for number in range(1_500)},
    }
}
SEEN_SECONDS_MAX: Final = 2.5
MORE: Final = {"tasks": {"more": {"requires": ["slow"], "task": {"executor": "noop"}}}}


async def followed(programs: Programs, started: asyncio.subprocess.Process) -> dict[str, Any]:
    try:
        async with asyncio.timeout(40):
            output, words = await started.communicate()
    finally:
        if started.returncode is None:  # other tests would be blamed for what is left of it
            started.kill()
            await started.wait()
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
        document = copy.deepcopy(GRAPH)
        if place == "crowded":  # it looks more rarely: rows are read some seconds after the facts that it sees last
            document["tasks"]["last"]["task"]["payload"]["command"] = ["sleep", "9"]
        assert (await server.ask("PUT", "/graphs/g", data=document)).status == 201
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
    assert found["late"]["last"] < SEEN_SECONDS_MAX * 1000, found
    assert found["troubles"] == []
    assert found["requests"] < 60, found
    assert found["unknown"] == 0, found  # when each run began, which facts do not say
    assert found["idle"] <= 3, found


@pytest.mark.campaign
@pytest.mark.parametrize("place", ["embedded", pytest.param("azurite", marks=pytest.mark.azurite)])
async def test_what_runs_among_many_that_wait_is_seen_soon(
    programs: Programs, tmp_path: Path, place: str, request: pytest.FixtureRequest
) -> None:
    store = request.getfixturevalue("azurite") if place == "azurite" else f"sqlite:///{tmp_path}/store.db"
    async with serving(store, tmp_path) as server:
        assert (await server.ask("PUT", "/graphs/g", data=WAITS)).status == 201
        asked: dict[str, Any] = {"api": server.address}
        if place == "azurite":
            link = await grant.read(server.app, "g")
            asked = {"table": f"{link.endpoint}/{link.table}", "sas": link.token}
        started = await programs.start("followed", **asked, graph="g", until="cancelled", idle=0)
        assert started.stdout is not None
        assert await started.stdout.readline() == b"loaded\n"
        async with asyncio.timeout(30):
            while (await server.get("/graphs/g/tasks/second")).json["state"] != "completed":
                await asyncio.sleep(0.2)
        assert (await server.ask("POST", "/graphs/g/changes?unguarded=1", data={"change": "cancel"})).status == 202
        found = await followed(programs, started)
    assert found["late"]["second"] < SEEN_SECONDS_MAX * 1000, found


async def test_a_source_that_is_away_is_tried_again_and_nothing_is_missed(programs: Programs, tmp_path: Path) -> None:
    async with serving(f"sqlite:///{tmp_path}/store.db", tmp_path) as server:
        one = {"task": {"payload": {"command": ["sleep", "1"]}}}
        document = {"tasks": {"one": one, "two": {"requires": ["one"], "task": {"executor": "noop"}}}}
        assert (await server.ask("PUT", "/graphs/g", data=document)).status == 201
        started = await programs.start("followed", api=server.address, graph="g", until="finished", idle=0, cut=1)
        assert started.stdout is not None
        assert await started.stdout.readline() == b"loaded\n"
        found = await followed(programs, started)
    (words, seconds), *_, last = found["troubles"]
    assert "does not answer" in words
    assert seconds == 2
    assert last == []
    assert {label: states[-1] for label, states in found["seen"].items()} == {"one": "completed", "two": "completed"}
