"""Graphs of other programs at the command line: what they are of, what lies beside them, goals, commands."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.processes import taskgraph

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def tg(tmp_path: Path) -> Run:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        done: subprocess.CompletedProcess[str] = taskgraph(*words, store=f"sqlite:///{tmp_path}/s.db", cwd=tmp_path)
        return done

    return run


def test_a_build_of_ninja_runs_here(tg: Run, tmp_path: Path) -> None:
    (tmp_path / "rules.ninja").write_text("rule cat\n  command = cat $in > $out\n")
    (tmp_path / "build.ninja").write_text("include rules.ninja\nbuild out/b: cat a\nbuild out/c: cat out/b a\n")
    (tmp_path / "a").write_text("a\n")
    made = tg("import", "build.ninja", "--commands", "-o", "g.json")
    assert made.returncode == 0, made.stderr
    assert made.stderr.endswith("2 tasks, 1 edge written to g.json\n")
    assert tg("run", "g.json", "--output", "none").returncode == 0
    assert (tmp_path / "out" / "c").read_text() == "a\na\n"
    one = json.loads(tg("import", "build.ninja", "--goal", "out/b").stdout)
    assert one["tasks"]["out/b"]["task"] == {"executor": "noop", "payload": {"commandLine": "cat a > out/b"}}


def test_what_lies_elsewhere_is_not_read(tg: Run, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (tmp_path / "secret.ninja").write_text("x = 1\n")
    (folder / "link.ninja").symlink_to(tmp_path / "secret.ninja")
    for path in ("../secret.ninja", "link.ninja", "none.ninja", str(tmp_path / "secret.ninja")):
        (folder / "build.ninja").write_text(f"include {path}\nbuild a: phony\n")
        refused = tg("import", "project/build.ninja")
        assert refused.returncode == 2
        assert f"It includes “{path[:10]}" in refused.stderr  # a long path is cut
        assert "which is not given." in refused.stderr
        assert "build.ninja:1:" in refused.stderr


def test_a_file_that_says_nothing_of_its_program_is_named(tg: Run, tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("JOB A a.sub\nJOB B b.sub\nPARENT A CHILD B\n")
    refused = tg("import", "x.txt")
    assert refused.returncode == 2
    assert "Neither name nor content say which format it is." in refused.stderr
    assert json.loads(tg("import", "--from", "dagman", "x.txt").stdout)["tasks"]["B"]["requires"] == ["A"]
    (tmp_path / "ci.yaml").write_text("stages: [one]\na: {stage: one, script: x}\n")
    assert [*json.loads(tg("import", "ci.yaml").stdout)["tasks"]] == ["a"]
