"""Executors of other packages: a wheel of examples/executor, installed beside taskgraph, and broken packages."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.processes import ROOT, command, started, taskgraph, write_graph

SQL: dict[str, Any] = {
    "made": {"task": {"executor": "sql", "payload": {"database": "x.db", "statements": ["create table t (n)"]}}},
    "read": {
        "requires": ["made"],
        "task": {
            "executor": "sql",
            "payload": {"database": "x.db", "statements": ["insert into t values (7)", "select n, n * 2 from t"]},
        },
    },
}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package of the example in it, as an installation leaves it."""
    folder = tmp_path_factory.mktemp("installed")
    words = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "dist")]
    subprocess.run(words, cwd=ROOT / "examples" / "executor", check=True, capture_output=True)
    (wheel,) = (folder / "dist").glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder / "site")
    return folder / "site"


def broken(folder: Path, name: str, text: str) -> Path:
    """A folder with a package whose module has this text, and names the executor `name`."""
    about = folder / "other-1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1\n")
    (about / "entry_points.txt").write_text(f"[taskgraph.executors]\n{name} = other:Executor\n")
    (folder / "other.py").write_text(text)
    return folder


def test_a_task_runs_by_an_executor_that_was_installed(tmp_path: Path, installed: Path) -> None:
    graph = write_graph(tmp_path / "g.json", SQL)
    store = f"sqlite:///{tmp_path}/store.db"
    done = taskgraph("run", str(graph), "--id", "g", store=store, cwd=tmp_path, PYTHONPATH=str(installed))
    assert done.returncode == 0, done.stderr
    results = json.loads(taskgraph("results", "g", store=store, cwd=tmp_path).stdout)
    assert results["read"] == [[7, 14]]
    assert taskgraph("logs", "g", "read", store=store, cwd=tmp_path).stdout == "1 rows\n"
    wrong = {"bad": {"task": {"executor": "sql", "payload": {"database": "x.db", "statements": ["no sql"]}}}}
    done = taskgraph(
        *("run", str(write_graph(tmp_path / "g.json", wrong)), "--id", "h"),
        store=store,
        cwd=tmp_path,
        PYTHONPATH=str(installed),
    )
    assert done.returncode == 1
    assert "OperationalError" in done.stderr


def test_without_it_no_task_is_written(tmp_path: Path) -> None:
    done = taskgraph(
        "run", str(write_graph(tmp_path / "g.json", SQL)), store=f"sqlite:///{tmp_path}/store.db", cwd=tmp_path
    )
    assert done.returncode == 2
    assert "this worker has no executor “sql”" in done.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import nothing_of_the_kind", "“own” of the package other cannot be loaded: ModuleNotFoundError"),
        ("class Executor:\n    name = 'own'", "has no instant, queue, can_run, run: let it be a subclass"),
        ("from taskgraph import Executor as Base\nclass Executor(Base):\n    name = 'x'", "calls itself “x”"),
        ("class Executor:\n    def __init__(self, needed): ...", "cannot be loaded: TypeError"),
    ],
)
def test_a_broken_one_says_what_is_wrong(tmp_path: Path, text: str, words: str) -> None:
    place = broken(tmp_path / "site", "own", text)
    graph = write_graph(tmp_path / "g.json", {"a": {"task": {"executor": "own"}}})
    store = f"sqlite:///{tmp_path}/store.db"
    done = taskgraph("run", str(graph), store=store, cwd=tmp_path, PYTHONPATH=str(place))
    assert done.returncode == 2
    assert words in " ".join(done.stderr.split()), done.stderr
    done = taskgraph("worker", "--executor", "own", store=store, cwd=tmp_path, PYTHONPATH=str(place))
    assert done.returncode == 2
    assert words in " ".join(done.stderr.split()), done.stderr


@pytest.mark.campaign
def test_a_worker_ends_once_it_has_nothing_to_do(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/store.db"
    graph = write_graph(tmp_path / "g.json", {"a": command("sleep", "2.5"), "b": command("true", requires=("a",))})
    assert taskgraph("submit", str(graph), "--id", "g", store=store, cwd=tmp_path).returncode == 0
    with started("serve", store=store, cwd=tmp_path):
        done = taskgraph("worker", "--until-idle", "6", store=store, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    status = json.loads(taskgraph("status", "g", "--json", store=store, cwd=tmp_path).stdout)
    assert status["state"] == "finished", "it waited for its run, and for what came of it"
