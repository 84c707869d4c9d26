"""A command that is a fork, beside one that is a new process: nobody who asks can tell."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.processes import command, environment, forked, taskgraph, write_graph


def test_a_fork_answers_as_a_new_process_does(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/store.db"
    write_graph(tmp_path / "g.json", {"grün": command("true")})
    env = environment(store)
    assert forked().can_run(env)
    submit = ["submit", "g.json", "--id", "g"]
    assert taskgraph(*submit, store=store, cwd=tmp_path).returncode == 0
    for words in (submit, ["list", "--json"], ["show", "h"], ["nonsense"], ["validate", "g.json"]):
        ours = taskgraph(*words, store=store, cwd=tmp_path)
        anew = subprocess.run(
            [sys.executable, "-m", "taskgraph", *words],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (ours.returncode, ours.stdout, ours.stderr) == (anew.returncode, anew.stdout, anew.stderr), words


def test_what_takes_too_long_is_ended(tmp_path: Path) -> None:
    write_graph(tmp_path / "g.json", {"a": command("sleep", "600")})
    store = f"sqlite:///{tmp_path}/store.db"
    with pytest.raises(subprocess.TimeoutExpired):
        taskgraph("run", "g.json", "--output", "none", store=store, cwd=tmp_path, timeout_seconds=1)


def test_variables_that_python_may_heed_take_a_new_process() -> None:
    assert forked().can_run(environment("sqlite:///x", TASKGRAPH_PREFIX="x"))
    assert not forked().can_run(environment("sqlite:///x", PYTHONPATH=os.getcwd()))
    assert not forked().can_run(environment("sqlite:///x", NO_COLOR="1"))
