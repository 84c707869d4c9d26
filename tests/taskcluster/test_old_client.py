"""The client of the old scheduler, unmodified, as it was published in 2017, against ours."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any, Final

import pytest

from taskgraph.interfaces.operations import tokens
from taskgraph.model.roles import Role
from tests.http.serving import Server, serving
from tests.taskcluster.table import PAGE, rendered

pytestmark = pytest.mark.campaign

ROOT: Final = Path(__file__).resolve().parents[2]
PYTHON: Final = ROOT / ".venv-taskcluster" / "bin" / "python"
SCRIPT: Final = Path(__file__).parent / "old_client.py"
SECONDS_MAX: Final = 120.0

SCENARIOS: Final = ("snippet", "s1_s2", "s3_s4_s5", "s6", "i1", "i2", "x1", "x2", "n1", "r1", "r2", "queue", "loop")


def installed(place: Path) -> Path:
    if not place.exists():
        message = "the old clients are not installed: scripts/test does it, by install_old_client"
        if os.environ.get("CI") or os.environ.get("TASKGRAPH_TEST_REQUIRE_AZURITE"):
            pytest.fail(message)
        pytest.skip(message)
    return place


@pytest.fixture(scope="session")
def python() -> Path:
    """The interpreter that has the client."""
    return installed(PYTHON)


async def play(python: Path, server: Server, *arguments: str) -> list[dict[str, Any]]:
    return await calls_of(str(python), str(SCRIPT), f"{server.address}/v1", *arguments)


async def calls_of(*command: str) -> list[dict[str, Any]]:
    """The calls that a client made."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=1 << 24,
    )
    async with asyncio.timeout(SECONDS_MAX):
        out, words = await process.communicate()
    assert process.returncode == 0, words.decode()[-3_000:]
    return [json.loads(line) for line in out.splitlines()]


@pytest.mark.parametrize("store", ["embedded", pytest.param("azurite", marks=pytest.mark.azurite)])
async def test_the_old_client_is_answered_as_ever(
    request: pytest.FixtureRequest, tmp_path: Path, python: Path, store: str
) -> None:
    place = f"sqlite:///{tmp_path}/store.db" if store == "embedded" else request.getfixturevalue("azurite")
    async with serving(place, tmp_path, slots=0, old_clients=True) as server:
        calls = await play(python, server, *SCENARIOS)
    assert {each["scenario"] for each in calls} == set(SCENARIOS)


async def test_the_old_client_signs(tmp_path: Path, python: Path) -> None:
    place = f"sqlite:///{tmp_path}/store.db"
    async with serving(place, tmp_path, anonymous=False, slots=0, old_clients=True) as server:
        _, text = await tokens.create(server.app, "decision", Role.ADMIN, hawk=True)
        await play(python, server, *SCENARIOS, "--sign", "decision", text)


async def test_an_old_worker_needs_the_role_of_a_worker_alone(tmp_path: Path, python: Path) -> None:
    place = f"sqlite:///{tmp_path}/store.db"
    async with serving(place, tmp_path, anonymous=False, slots=0, old_clients=True) as server:
        signing: list[str] = []
        for name, role in (("decision", Role.SUBMITTER), ("builder", Role.WORKER)):
            signing += [name, (await tokens.create(server.app, name, role, hawk=True))[1]]
        calls = await play(python, server, "loop", "--sign", *signing)
    assert {each["method"] for each in calls if each["class"] == "Queue"} == {"claimWork"}


async def test_the_page_shows_what_the_old_client_gets(tmp_path: Path, python: Path) -> None:
    async with serving(f"sqlite:///{tmp_path}/store.db", tmp_path, slots=0, old_clients=True) as server:
        table = rendered(await play(python, server, "snippet", "queue"))
    assert table in PAGE.read_text("utf-8"), f"put this into {PAGE.name}:\n{table}"
