"""`taskgraph doctor` as it is typed: words, JSON and exit codes, over the embedded store."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from taskgraph.app import open_app
from taskgraph.cli import app as commands
from taskgraph.model import GRAPH, row_key, task_id_of
from taskgraph.settings import read_settings
from taskgraph.storage.tables import Merge, Value

TASKS = {"a": {"task": {}}, "b": {"requires": ["a"], "task": {}}}


class Desk:
    """One store, and commands over it."""

    def __init__(self, folder: Path) -> None:
        self.store = f"sqlite:///{folder}/store.db"
        self.file = folder / "graph.json"
        self.file.write_text(json.dumps({"tasks": TASKS}))

    def __call__(self, *words: str, exit_code: int = 0) -> Any:
        found = CliRunner().invoke(commands, [*words, "--store", self.store])
        assert found.exit_code == exit_code, (found.stdout, found.stderr, found.exception)
        return found

    def spoil(self, graph_id: str, key: str, **columns: Value) -> None:
        async def write() -> None:
            async with open_app(read_settings(self.store, {}, cwd=Path.cwd())) as opened:
                (row,) = await opened.tables.get(graph_id, [key])
                assert row is not None
                await opened.tables.commit(graph_id, [Merge(key, row.etag, columns)])

        asyncio.run(write())


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_a_sound_graph(desk: Desk) -> None:
    desk("submit", str(desk.file), "--id", "g")
    found = desk("doctor", "g")
    assert found.stdout.splitlines()[0].startswith("g is ")
    assert found.stdout.splitlines()[0].endswith(" running")
    assert "start a worker: taskgraph worker --target default" in found.stdout
    assert "nothing wrong" in found.stderr
    told = json.loads(desk("doctor", "g", "--json").stdout)
    assert (told["sound"], told["findings"], told["state"]) == (True, [], "running")
    assert told["why"][0]["text"].startswith("1 task is ready for workers of target default")


def test_something_wrong_is_told_and_mended(desk: Desk) -> None:
    desk("submit", str(desk.file), "--id", "g")
    desk.spoil("g", row_key(task_id_of("g", "b")), requiresLeft="[]")
    found = desk("doctor", "g", exit_code=1)
    assert "requirement-forgotten" in found.stdout
    assert "“b”" in found.stdout
    assert "it would go on too early" in found.stdout
    assert "taskgraph doctor g --repair" in found.stderr
    (told,) = json.loads(desk("doctor", "g", "--json", exit_code=1).stdout)["findings"]
    assert told["code"] == "requirement-forgotten"
    assert told["repairable"] is True
    assert told.keys() == {
        *("code", "key", "label", "severity", "text", "effect", "remedy", "repairable", "refusal"),
    }
    assert "repaired" in desk("doctor", "g", "--repair").stdout
    desk("doctor", "g")
    desk("run", "--id", "g", "--executor", "noop")
    assert "it is finished" in desk("doctor", "g").stdout


def test_what_is_not_repaired_ends_with_one(desk: Desk) -> None:
    desk("submit", str(desk.file), "--id", "g")
    desk.spoil("g", GRAPH, edges=9)
    found = desk("doctor", "g", "--repair", exit_code=1)
    assert "not repaired: nothing tells which requirement is gone" in found.stdout


def test_an_unknown_graph_ends_with_three(desk: Desk) -> None:
    desk("submit", str(desk.file), "--id", "nightly")
    found = desk("doctor", "nightlyy", exit_code=3)
    assert "did you mean “nightly”?" in found.stderr
    desk("doctor", "no/graph", exit_code=2)


def test_all_live_graphs(desk: Desk) -> None:
    assert "0 live graphs: all sound" in desk("doctor").stderr
    desk("submit", str(desk.file), "--id", "four")
    desk("submit", str(desk.file), "--id", "five")
    desk.spoil("four", GRAPH, failedTasks=2)
    found = desk("doctor", exit_code=1)
    lines = {line.split()[0]: line for line in found.stdout.splitlines()}
    assert "1 wrong" in lines["four"]
    assert "nothing wrong" in lines["five"]
    assert "1 with something wrong" in found.stderr
    told = json.loads(desk("doctor", "--json", exit_code=1).stdout)
    assert {one["graphId"]: one["sound"] for one in told["graphs"]} == {"four": False, "five": True}
    assert json.loads(desk("doctor", "--repair", "--json").stdout)["sound"] is True
    assert "all sound" in desk("doctor").stderr
