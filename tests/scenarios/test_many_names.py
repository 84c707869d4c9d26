"""Where a command takes one task or graph, it takes several."""

import json
from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import CliRunner

from taskgraph.interfaces.cli import app as commands
from tests.http.typed import both_doors

pytestmark = both_doors

GRAPH: Final = {"tasks": {"a": {"task": {}}, "b": {"requires": ["a"], "task": {}}, "c": {"task": {}}}}


class Shell:
    """Commands in a folder whose default store has the graphs g and h."""

    def __init__(self, folder: Path) -> None:
        (folder / "graph.json").write_text(json.dumps(GRAPH))
        for graph_id in "gh":
            self("submit", "graph.json", "--id", graph_id)

    def __call__(self, *words: str, exit_code: int = 0) -> Any:
        done = CliRunner().invoke(commands, words)
        assert done.exit_code == exit_code, done.output
        return done

    def lines(self, *words: str, exit_code: int = 0) -> list[Any]:
        return [json.loads(line) for line in self(*words, "--json", exit_code=exit_code).stdout.splitlines()]


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.chdir(tmp_path)
    for name in ("TASKGRAPH_STORE", "AzureWebJobsStorage", "TASKGRAPH_CONNECTION"):
        monkeypatch.delenv(name, raising=False)
    return Shell(tmp_path)


@pytest.mark.parametrize("command", ["task", "why"])
def test_several_tasks_are_looked_at_in_one_go(shell: Shell, command: str) -> None:
    alone = [shell(command, "g", label).stdout for label in "ab"]
    assert shell(command, "g", "a", "b").stdout == "\n".join(alone)
    assert [each["label"] for each in shell.lines(command, "g", "a", "b")] == ["a", "b"]
    assert json.loads(shell(command, "g", "b", "--json").stdout)["label"] == "b", "of one task, one whole object"
    missing = shell(command, "g", "a", "x", exit_code=3)
    assert (missing.stdout, "no task “x”" in missing.stderr) == ("", True)


def test_several_results_are_an_object_and_one_is_itself(shell: Shell) -> None:
    hands_on = {label: {"script": f'echo {label} > "$TASKGRAPH_RESULT_FILE"'} for label in "123"}
    Path("numbers.json").write_text(json.dumps({"tasks": hands_on}))
    shell("run", "numbers.json", "--id", "numbers")
    assert json.loads(shell("results", "numbers", "1", "3").stdout) == {"1": 1, "3": 3}
    assert json.loads(shell("results", "numbers", "2").stdout) == 2
    assert shell("results", "numbers", "1", "4", exit_code=3).stdout == ""


def test_several_tasks_are_held_back_and_go_on(shell: Shell) -> None:
    assert shell("pause", "g", "a", "b").stdout == "graph g: 2 tasks are asked to be held back\n"
    assert shell("resume", "g", "a").stdout == "graph g: 1 task is asked to go on\n"
    told = json.loads(shell("pause", "g", "a", "b", "--json").stdout)
    assert (told["labels"], told["held"]) == (["a", "b"], True)
    assert "not both" in shell("pause", "g", "a", "--target", "gpu", exit_code=2).stderr
    assert "not both" in shell("pause", "g", "a", "--group", "some", exit_code=2).stderr


def test_several_graphs_are_archived(shell: Shell) -> None:
    assert [each["graphId"] for each in shell.lines("archive", "g", "@last")] == ["g", "h"]
    assert sorted(path.name for path in Path().glob("*.gz")) == ["g.json.gz", "h.json.gz"]
    Path("g.json.gz").unlink()
    made, refused = shell.lines("archive", "g", "h", exit_code=4)
    assert (made["graphId"], refused["type"], refused["error"]["exitCode"]) == ("g", "error", 4)
    assert "--output takes one graph" in shell("archive", "g", "h", "-o", "both.gz", exit_code=2).stderr


@pytest.mark.parametrize("words", [("cancel", "g"), ("pause", "g"), ("rerun", "g", "a"), ("prioritize", "g", "low")])
def test_a_timeout_without_waiting_is_refused_before_anything_is_asked_for(
    shell: Shell, words: tuple[str, ...]
) -> None:
    assert "--timeout goes with --wait" in shell(*words, "--timeout", "3", exit_code=2).stderr
