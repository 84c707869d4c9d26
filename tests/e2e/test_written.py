"""Documents as people write them, at every command that reads one."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import CliRunner

from taskgraph.interfaces.cli import app as commands

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
    assert 'g.yaml:4: /tasks/b/requires/0: "b" requires "A"' in found
    (tmp_path / "g.json").write_text(GRAPH)
    assert "g.json:1: This is not JSON: it looks like YAML" in tg("run", "g.json", code=2).stderr
    assert "it looks like YAML" in tg("import", "--from", "neutral", "g.yaml", code=2).stderr
