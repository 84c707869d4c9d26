"""Documents as people write them, at every command that reads one; and `init`, whose templates run as they are."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import CliRunner

from taskgraph.interfaces.cli import app as commands
from tests.e2e.processes import taskgraph

Run = Callable[..., Any]
GRAPH: Final = "tasks:\n  a:\n    task: {payload: {command: [echo, yes]}}\n  b: {requires: [a], task: {target: far}}\n"
OTHER_FORMS: Final = {
    "g.json": json.dumps(
        {
            "tasks": {
                "a": {"task": {"payload": {"command": ["echo", "yes"]}}},
                "b": {"requires": ["a"], "task": {"target": "far"}},
            }
        }
    ),
    "g.toml": '[tasks.a.task.payload]\ncommand = ["echo", "yes"]\n[tasks.b]\nrequires = ["a"]\ntask.target = "far"\n',
}


@pytest.fixture
def tg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in the test's own folder, over its own store, expecting an exit code."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TASKGRAPH_STORE", f"sqlite:///{tmp_path}/s.db")

    def run(*words: str, code: int = 0, **more: Any) -> Any:
        done = CliRunner().invoke(commands, list(words), **more)
        assert done.exit_code == code, f"{words}: {done.exit_code}\n{done.stdout}\n{done.stderr}"
        return done

    return run


def test_every_command_that_reads_a_document_takes_yaml(tg: Run, tmp_path: Path) -> None:
    (tmp_path / "g.yaml").write_text(GRAPH)
    (tmp_path / "packed.yaml.gz").write_bytes(gzip.compress(GRAPH.encode()))
    (tmp_path / "more.yaml").write_text("tasks:\n  c: {requires: [b]}\n")
    (tmp_path / "edit.yml").write_text("update:\n  b:\n    reruns: 3\n")
    for name, text in OTHER_FORMS.items():
        (tmp_path / name).write_text(text)
    files = ("g.yaml", "packed.yaml.gz", *OTHER_FORMS)
    assert tg("validate", *files).stdout.count(": valid, 2 tasks, 1 edge") == 4
    assert len({tg("plan", name, "--json").stdout for name in files}) == 1
    tg("submit", "g.yaml", "--id", "g")
    for name in files:
        assert "submitted before, with the same content" in tg("submit", name, "--id", "g").stderr
    tg("extend", "g", "more.yaml", "--no-wait")
    tg("edit", "g", "edit.yml", "--no-wait")
    tg("schedule", "create", "s", "g.yaml", "--every", "1h")
    tg("schedule", "update", "s", "g.toml")
    assert "existing" in tg("schedule", "create", "s", "g.json", "--every", "1h").stderr


@pytest.mark.parametrize("text", [GRAPH, OTHER_FORMS["g.json"]])
def test_a_document_that_is_piped_in(tg: Run, text: str) -> None:
    assert tg("validate", "-", input=text).stdout == "standard input: valid, 2 tasks, 1 edge\n"


def test_a_mistake_comes_with_its_line(tg: Run, tmp_path: Path) -> None:
    (tmp_path / "g.yaml").write_text(GRAPH.replace("[a]", "[A]"))
    found = tg("run", "g.yaml", code=2).stderr
    assert "g.yaml:4: /tasks/b/requires/0: “b” requires “A”" in found
    (tmp_path / "g.json").write_text(GRAPH)
    assert "g.json:1: This is not JSON: it looks like YAML" in tg("run", "g.json", code=2).stderr
    assert "it looks like YAML" in tg("import", "--from", "neutral", "g.yaml", code=2).stderr


FOREACH = """
defaults: {env: {A: yes}}
tasks:
  count:
    foreach: {file: {files: "in/*.txt"}}
    script: wc -l < {{file}} > $TASKGRAPH_RESULT_FILE
  sum:
    requires: [count]
    command: [echo, done]
    env: {B: no}
"""


def test_a_task_for_each_file_beside_the_document(tg: Run, tmp_path: Path) -> None:
    folder = tmp_path / "else"
    (folder / "in").mkdir(parents=True)
    (tmp_path / "in").symlink_to(folder / "in")  # commands run in the worker's folder
    for name, lines in (("a", 1), ("b", 2)):
        (folder / "in" / f"{name}.txt").write_text("x\n" * lines)
    (folder / "g.yaml").write_text(FOREACH)
    assert tg("validate", "else/g.yaml", "--strict").stdout == "else/g.yaml: valid, 3 tasks, 3 kept edges\n"
    tg("run", "else/g.yaml", "--id", "g")
    assert json.loads(tg("results", "g").stdout) == {"count in/a.txt": 1, "count in/b.txt": 2}
    shown = json.loads(tg("task", "g", "sum", "--json").stdout)
    assert shown["definition"]["payload"] == {"command": ["echo", "done"], "env": {"A": "yes", "B": "no"}}
    (folder / "g.yaml").write_text(FOREACH.replace("*.txt", "*.csv"))
    wrong = tg("run", "else/g.yaml", code=2).stderr
    assert "else/g.yaml:5: /tasks/count/foreach/file: There is no file “in/*.csv”." in wrong


PARTS = {
    "tasks": {
        "prepare": {"command": ["true"]},
        "bad": {"requires": ["prepare"], "command": ["false"]},
        "good": {"requires": ["prepare"], "command": ["sleep", "0.5"]},
        "after bad": {"requires": ["bad"], "command": ["true"]},
        "after good": {"requires": ["good"], "command": ["true"]},
    }
}


def test_a_part_of_a_graph_and_what_a_failure_does_to_it(tg: Run, tmp_path: Path) -> None:
    (tmp_path / "g.json").write_text(json.dumps(PARTS))

    def counts(*words: str, code: int) -> dict[str, int]:
        """Those that are not 0."""
        ended = json.loads(tg("run", "g.json", "--json", "--slots", "2", *words, code=code).stdout)
        return {name: number for name, number in {**ended["counts"], "left": ended["unresolved"]}.items() if number}

    assert counts("--only", "after g*", code=0) == {"completed": 3}
    assert counts(code=1) == {"completed": 3, "failed": 1, "left": 1}
    assert counts("--keep-going", code=1) == {"completed": 3, "failed": 1, "skipped": 1}
    fast = counts("--fail-fast", code=1)
    assert (fast["failed"], "left" in fast) == (1, False)
    assert fast["cancelled"] >= 2
    assert "not both" in tg("run", "g.json", "--fail-fast", "--keep-going", code=2).stderr
    assert "did you mean “good”?" in tg("submit", "g.json", "--only", "god", code=2).stderr
    for option in (["--keep-going"], ["--fail-fast"], ["--only", "x"], ["--no-cache"]):
        assert "goes with a FILE" in tg("run", "--id", "g", *option, code=2).stderr


# --- init ------------------------------------------------------------------------------------------------------


def test_the_build_of_init(tg: Run, tmp_path: Path) -> None:
    made = tg("init")
    assert made.stdout == "graph.yaml\n"
    for step in ("taskgraph validate graph.yaml", "taskgraph run graph.yaml", "taskgraph why ID LABEL"):
        assert step in made.stderr
    assert tg("validate", "graph.yaml", "--strict").stdout == "graph.yaml: valid, 6 tasks, 9 kept edges\n"
    assert "6/6 completed" in tg("run", "graph.yaml").stdout
    assert (tmp_path / "build" / "parts.tar").exists()
    assert "✓ package  from the cache" in tg("run", "graph.yaml").stderr


def test_the_data_pipeline_of_init(tg: Run) -> None:
    tg("init", "d.yml", "--template", "data")
    tg("validate", "d.yml", "--strict")
    tg("run", "d.yml", "--id", "d", "--param", "rows=10")
    results = json.loads(tg("results", "d").stdout)
    assert results == {"extract": {"file": "data/numbers.txt", "rows": 10}, "sum": 55, "largest": 10}
    assert tg("logs", "d", "report").stdout == "rows: 10, sum: 55, largest: 10\n"


def test_the_functions_of_init(tg: Run, tmp_path: Path) -> None:
    made = json.loads(tg("init", "p.yaml", "--template", "python", "--json").stdout)
    assert made["files"] == ["p.yaml", "steps.py"]
    (words,) = [each.split() for each in made["next"] if each.startswith("taskgraph run")]
    done = taskgraph(
        *words[1:], "--id", "p", store=f"sqlite:///{tmp_path}/s.db", cwd=tmp_path
    )  # which imports steps.py
    assert "3/3 completed" in done.stdout, done.stderr
    assert json.loads(tg("results", "p", "total").stdout) == {"count": 12, "total": 650}
    (tmp_path / "sub").mkdir()
    assert "  cd sub  " in tg("init", "sub/p.yaml", "--template", "python").stderr


def test_init_overwrites_nothing_unasked(tg: Run, tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text("mine")
    assert "steps.py exists" in tg("init", "--template", "python", code=4).stderr
    assert not (tmp_path / "graph.yaml").exists()
    tg("init")
    assert "graph.yaml exists" in tg("init", code=4).stderr
    assert "--force" in tg("init", code=4).stderr
    tg("init", "--template", "python", "--force")
    assert "def load" in (tmp_path / "steps.py").read_text()
    assert "ends in .yaml" in tg("init", "graph.json", code=2).stderr
    assert "nowhere/graph.yaml cannot be written: No such file" in tg("init", "nowhere/graph.yaml", code=2).stderr
