"""What people see of priorities, of what holds tasks back, and of limits, as words and as JSON."""

import asyncio
import json
from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import CliRunner

from taskgraph import Client
from taskgraph.interfaces.cli import app as commands
from taskgraph.interfaces.loops import serve
from taskgraph.model.flag import Flag
from tests.http.typed import both_doors

pytestmark = both_doors

GRAPH: Final = {
    "maxInFlight": 2,
    "groups": {"night": {"tasks": ["dark"], "maxInFlight": 1}},
    "tasks": {
        "first": {"priority": "highest", "task": {}},
        "second": {"task": {}},
        "later": {"active": False, "task": {}},
        "dark": {"task": {}},
        "elsewhere": {"priority": "low", "task": {"target": "gpu"}},
    },
}


class Shell:
    """Commands as they are typed, over a store with one graph of which much is held back."""

    def __init__(self, folder: Path) -> None:
        self.store = f"sqlite:///{folder}/store.db"
        file = folder / "graph.json"
        file.write_text(json.dumps(GRAPH))
        self.run("submit", str(file), "--id", "g")
        self.inactive = folder / "inactive.json"
        self.inactive.write_text(json.dumps({"tasks": {name: {"active": False, "task": {}} for name in "ab"}}))
        asyncio.run(self._pause())
        self.run("pause", "--target", "gpu")

    async def _pause(self) -> None:
        async with Client(self.store) as client:
            stop = Flag()
            serving = asyncio.create_task(serve(client.app, stop))
            await client.pause("g", group="night", wait=True)
            stop.set()
            await serving

    def run(self, *words: str) -> str:
        done = CliRunner().invoke(commands, [*words, "--store", self.store])
        assert done.exit_code == 0, done.output
        return done.stdout + done.stderr

    def json(self, *words: str) -> Any:
        return json.loads(CliRunner().invoke(commands, [*words, "--json", "--store", self.store]).stdout)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_lists_say_priorities_and_what_holds_tasks_back(shell: Shell) -> None:
    tasks = {each["label"]: each for each in shell.json("show", "g")["tasks"]}
    assert {label: one["priority"] for label, one in tasks.items()} == {
        "first": "highest",
        "second": "normal",
        "later": "normal",
        "dark": "normal",
        "elsewhere": "low",
    }
    assert {label: one["held"] for label, one in tasks.items()} == {
        "first": [],
        "second": [],
        "later": ["inactive"],
        "dark": ["group:night"],
        "elsewhere": ["target:gpu"],
    }
    assert [label for label, one in tasks.items() if not one["active"]] == ["later"]
    for label, one in tasks.items():
        alone = shell.json("task", "g", label)
        assert {name: alone[name] for name in one} == one, "a task is the same in a list and alone"
    lines = {line.split()[2]: line for line in shell.run("show", "g").splitlines() if "pending" in line}
    assert "highest" in lines["first"]
    assert lines["later"].endswith("held back: it is not active")
    assert lines["dark"].endswith("held back: the group “night” is paused")
    assert lines["elsewhere"].endswith("held back: the target gpu is paused")
    assert "held back" not in lines["second"]


def test_one_task_says_why_it_is_held_back(shell: Shell) -> None:
    assert "active        no\n" in shell.run("task", "g", "later")
    assert "held back     it is not active\n" in shell.run("task", "g", "later")
    assert "held back     the group “night” is paused\n" in shell.run("task", "g", "dark")
    assert "held back" not in shell.run("task", "g", "first")


def test_a_graph_and_a_group_count_what_is_held_back(shell: Shell) -> None:
    status = shell.json("status", "g")
    assert status["limits"] == [
        {"group": None, "max": 2, "inFlightCount": 0},
        {"group": "night", "max": 1, "inFlightCount": 0},
    ]
    assert (status["heldTasks"], status["inactiveTasks"]) == (2, 1)
    assert status["priorities"] == {"highest": 1, "normal": 3, "low": 1}
    words = shell.run("status", "g")
    assert "2 tasks held back, 1 of them not active" in words
    assert "priority of what has not begun: 1 highest, 3 normal, 1 low" in words
    assert [each["held"] for each in shell.json("list")["graphs"]] == [["group:night"]]
    assert "group “night”" in shell.run("list")
    group = shell.run("status", "g", "--group", "night")
    assert "1 task held back" in group
    assert "?" not in group.split("tasks")[0]


def test_doctor_says_in_words_what_holds_tasks_back(shell: Shell) -> None:
    words = shell.run("doctor", "g")
    assert "  1 task is ready and held back: it is not active\n    → taskgraph activate g LABEL\n" in words
    assert (
        "  1 task is ready and held back: the group “night” is paused\n    → taskgraph resume g --group night\n"
        in words
    )
    shell.run("submit", str(shell.inactive), "--id", "two")
    assert "held back: they are not active\n" in shell.run("doctor", "two")


def test_top_counts_what_is_held_back(shell: Shell) -> None:
    (graph,) = shell.json("top", "--once")["graphs"]
    assert (graph["ready"], graph["held"], graph["paused"]) == (5, 2, False)
    assert "5 (2 held)" in shell.run("top", "--once")


def test_why_names_three_that_wait_alike_and_every_cause(tmp_path: Path) -> None:
    run = CliRunner().invoke
    wide = {f"n{number:02}": {"requires": ["root"], "task": {}} for number in range(20)}
    held = {"root": {"active": False, "task": {}}, "other": {"active": False, "task": {}}}
    end = {"end": {"requires": ["other", *wide], "task": {}}}
    file, store = tmp_path / "wide.json", ("--store", f"sqlite:///{tmp_path}/store.db")
    file.write_text(json.dumps({"tasks": {**held, **wide, **end}}))
    assert run(commands, ["submit", str(file), "--id", "g", *store]).exit_code == 0
    done = run(commands, ["why", "g", "end", *store])
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert sum(line.split()[1].startswith("n") for line in lines) == 3
    assert [line for line in lines if line.endswith("… and 17 more like this")]
    causes = [line.split()[2] for line in lines if line.split()[0] in ("*", "◆")]
    assert sorted(causes) == ["other", "root"]
    assert len(lines) < 12
    found = json.loads(run(commands, ["why", "g", "end", *store, "--json"]).stdout)
    assert len(found["reasons"]) + found["omitted"] == 23, "JSON leaves none out unsaid"
