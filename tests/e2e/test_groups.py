"""Groups as people meet them: real processes on the embedded store, and the Python client."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from taskgraph import Client, Graph, Group, InvalidInput, NotFound
from tests.e2e.processes import command, taskgraph

Call = Callable[..., str]


@pytest.fixture
def call(tmp_path: Path) -> Call:
    """Run a command in the test's folder, expecting an exit code; gives stdout and stderr together."""

    def run(*words: str, code: int = 0) -> str:
        done = taskgraph(*words, store=f"sqlite:///{tmp_path}/store.db", cwd=tmp_path)
        assert done.returncode == code, f"{words}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        return str(done.stdout) + str(done.stderr)

    return run


def write(folder: Path) -> str:
    tasks = {
        "build": command("true"),
        "unit": command("true"),
        "browser": command("sh", "-c", "test -e mended"),
        "load": command("true", requires=("unit",)),
        "publish": command("true", requires=("checks",)),
    }
    groups = {"tests": {"tasks": ["unit", "browser"], "requires": ["build"]}, "checks": {"tasks": ["tests", "load"]}}
    path = folder / "graph.json"
    path.write_text(json.dumps({"tasks": tasks, "groups": groups}), "utf-8")
    return str(path)


def test_a_group_from_its_document_to_its_rerun(call: Call, tmp_path: Path) -> None:
    file = write(tmp_path)
    assert "groups         tests (2), checks (3)" in call("plan", file)
    call("run", file, "--id", "g", code=1)
    status = call("status", "g", "--group", "checks")
    assert "2 of 3 (66 %)" in status
    assert "groups in it  tests" in status
    assert "taskgraph rerun --group=checks g" in status
    assert "publish waits for 1 of 3 tasks of group “checks”" in call("why", "g", "publish")
    assert "checks, tests" in call("show", "g", "--group", "tests", "--state", "failed")
    assert "one of the four" in call("rerun", "g", "unit", "--group", "tests", code=2)
    (tmp_path / "mended").touch()
    asked = json.loads(call("rerun", "g", "--group", "checks", "--json"))
    assert [(each["label"], each["run"]) for each in asked["tasks"]] == [("browser", 1)]
    call("run", "--id", "g")
    told = json.loads(call("status", "g", "--group", "checks", "--json"))
    assert (told["state"], told["counts"]["completed"], told["unresolved"]) == ("finished", 3, 0)
    assert [(each["label"], each["run"]) for each in told["tasks"]] == [("browser", 1), ("load", 0), ("unit", 0)]


async def test_groups_in_python(tmp_path: Path) -> None:
    calls: list[str] = []

    def act(name: str) -> None:
        calls.append(name)
        if name == "b" and calls.count("b") == 1:
            raise ValueError("not yet")

    graph = Graph()
    lock, a, b, end = (graph.task(each, call="act", arguments={"name": each}) for each in ("lock", "a", "b", "end"))
    bulk = Group("bulk", a, b)
    graph.add(bulk.requires(lock), end.requires(bulk))
    async with Client(f"sqlite:///{tmp_path}/store.db") as client:
        assert (await client.run(graph, "g", callables={"act": act})).state == "blocked"
        found = await client.status("g", group="bulk")
        assert (found.state, [each.label for each in found.listed if each.state == "failed"]) == ("blocked", ["b"])
        assert (await client.status("g")).edges == 5
        with pytest.raises(InvalidInput, match="one of the four"):
            await client.rerun("g", "b", group="bulk")
        with pytest.raises(NotFound):
            await client.rerun("g", group="bulb")
        assert await client.rerun("g", group="bulk") == ["b"]
        assert (await client.run(graph, "g", callables={"act": act})).state == "finished"
        assert calls[0] == "lock"
        assert calls[-1] == "end"
        assert (await client.status("g", group="bulk")).state == "finished"
        assert (await client.task("g", "end")).requires == ["a", "b"]
