"""The ids of new graphs."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from taskgraph import Client
from taskgraph.interfaces.cli import app as commands
from taskgraph.model.ids import is_graph_id, is_task_id, named_ids
from taskgraph.testing import HurriedClock, MemoryStore

CONTENT = {"metadata": {"name": "Build shapes"}, "tasks": {"a": {"task": {}}}}


class Desk:
    """A folder with the default store, and commands in it."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "graph.json"
        self.file.write_text(json.dumps(CONTENT))

    def __call__(self, *words: str, exit_code: int = 0) -> Any:
        found = CliRunner().invoke(commands, words)
        assert found.exit_code == exit_code, (found.stdout, found.stderr, found.exception)
        return found

    def submitted(self, *ids: str) -> None:
        for graph_id in ids:
            self("submit", str(self.file), "--id", graph_id)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.chdir(tmp_path)
    for name in ("TASKGRAPH_STORE", "AzureWebJobsStorage", "TASKGRAPH_CONNECTION"):
        monkeypatch.delenv(name, raising=False)
    return Desk(tmp_path)


# --- new ids ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("build shapes", "build-shapes"),
        ("  Ünïcode / Straße → 2 ", "unicode-strasse-2"),
        ("release-1.4", "release-1-4"),
        ("x" * 39 + " yz", "x" * 39),
        ("--", ""),
        ("夜", ""),
    ],
)
def test_an_id_carries_the_name(name: str, part: str) -> None:
    ids = named_ids(name, "anything")
    assert [each.rpartition("-")[0] for each in ids] == ([part] * 3 if part else [])
    assert [len(each.rpartition("-")[2]) for each in ids] == ([4, 8, 16] if part else [])
    assert all(is_graph_id(each) and not re.search("[ilou]", each.rpartition("-")[2]) for each in ids)


def test_a_graph_without_an_id_gets_one_with_its_name(desk: Desk, tmp_path: Path) -> None:
    assert re.fullmatch(r"build-shapes-[0-9a-hjkmnp-tv-z]{4}\n", desk("submit", "graph.json").stdout)
    (tmp_path / "my tests.v2.json").write_text(json.dumps({"tasks": CONTENT["tasks"]}))
    ran = desk("run", "my tests.v2.json", "--json")
    assert re.fullmatch(r"my-tests-v2-.{4}", json.loads(ran.stdout)["graphId"])
    assert f"--id {json.loads(ran.stdout)['graphId']}" in ran.stderr, "what goes on with it names it whole"


async def test_an_id_that_is_taken_gets_longer_and_no_name_makes_a_random_one() -> None:
    store = MemoryStore(HurriedClock())
    ids = []
    for _ in range(2):
        async with Client(store, clock=HurriedClock()) as client:  # which draws the same id
            ids.append((await client.submit(CONTENT)).graph_id)
    assert [len(each) for each in ids] == [len("build-shapes-7f3k"), len("build-shapes-7f3k") + 4]
    assert ids[1].startswith(ids[0])
    async with Client(store) as client:
        assert is_task_id((await client.submit({"tasks": CONTENT["tasks"]})).graph_id)
        assert (await client.run({**CONTENT, "metadata": {"name": "Nightly"}})).graph_id.startswith("nightly-")
