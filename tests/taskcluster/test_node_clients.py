"""The clients of the old scheduler for Node, unmodified: that of 2017, and the first one, of 2014."""

import shutil
from pathlib import Path
from typing import Any, Final

import pytest

from taskgraph.interfaces.operations import tokens
from taskgraph.model.roles import Role
from tests.http.serving import serving
from tests.taskcluster.table import PAGE, rendered
from tests.taskcluster.test_old_client import ROOT, calls_of, installed

pytestmark = pytest.mark.campaign

CLIENTS: Final = ROOT / ".venv-taskcluster" / "node"
SCRIPT: Final = Path(__file__).parent / "node_client.js"
METHODS: Final = {
    "2.5.4": {
        *("Scheduler.createTaskGraph", "Scheduler.extendTaskGraph", "Scheduler.status", "Scheduler.info"),
        *("Scheduler.inspect", "Scheduler.inspectTask", "Queue.claimTask", "Queue.reportCompleted"),
    },
    "0.4.3": {
        *("scheduler.createTaskGraph", "scheduler.getTaskGraphStatus", "scheduler.getTaskGraphInfo"),
        *("scheduler.inspectTaskGraph", "scheduler.requestTableAccess"),
    },
}


async def calls(version: str, folder: Path, *, signed: bool = False, store: str = "") -> list[dict[str, Any]]:
    node = shutil.which("node")
    assert node is not None
    place = installed(CLIENTS / version)
    store = store or f"sqlite:///{folder}/store.db"
    async with serving(store, folder, anonymous=not signed, slots=0, old_clients=True) as server:
        sign = []
        if signed:
            sign = ["decision", (await tokens.create(server.app, "decision", Role.ADMIN, hawk=True))[1]]
        return await calls_of(node, str(SCRIPT), str(place), server.address, *sign)


@pytest.mark.parametrize("version", sorted(METHODS))
@pytest.mark.parametrize("signed", [False, True], ids=["unsigned", "signed"])
async def test_clients_for_node_are_answered_as_ever(tmp_path: Path, version: str, signed: bool) -> None:
    made = await calls(version, tmp_path, signed=signed)
    assert {f"{each['class']}.{each['method']}" for each in made} == METHODS[version]
    assert {each["scenario"] for each in made} == {version}


@pytest.mark.azurite
@pytest.mark.parametrize("version", sorted(METHODS))
async def test_also_over_a_storage_account(tmp_path: Path, version: str, azurite: str) -> None:
    assert await calls(version, tmp_path, store=azurite)


async def test_the_page_shows_what_the_first_client_gets(tmp_path: Path) -> None:
    table = rendered(each for each in await calls("0.4.3", tmp_path) if "answer" in each)
    assert table in PAGE.read_text("utf-8"), f"put this into {PAGE.name}:\n{table}"
