"""Every example, as a person would run it: real processes, a store of its own."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from taskgraph.documents.read import read_document
from tests.e2e.processes import ROOT, environment, taskgraph

EXAMPLES: Final = ROOT / "examples"
TESTED: Final = {
    "build.json",
    "build.yaml",
    "fan.json",
    "flaky.json",
    "blocked.json",
    "cleanup.json",
    "shards.json",
    "params.json",
    "lock.json",
    "stages.json",
    "extend/start.json",
    "extend/discover.sh",
    "functions.py",
    "decorated.py",
}
ELSEWHERE: Final = {
    *("executor/pyproject.toml", "executor/taskgraph_sql.py"),  # tests/e2e/test_own_executors.py
    *("http/worker.mjs", "http/worker.sh"),  # tests/e2e/test_workers_over_http.py
    *("http/client.py", "http/follow.mjs", "http/plan.sh", "http/submit.sh"),  # tests/e2e/test_clients_over_http.py
}

Call = Callable[..., Any]


@pytest.fixture
def call(tmp_path: Path) -> Call:
    """Run a command in a temporary folder, expecting an exit code; gives its stdout."""
    store = f"sqlite:///{tmp_path}/store/graphs.db"

    def run(*words: str, code: int = 0, cwd: Path = tmp_path, **more: str) -> str:
        done = taskgraph(*words, store=store, cwd=cwd, **more)
        assert done.returncode == code, f"{words}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        return str(done.stdout)

    return run


def test_every_example_is_tested_here() -> None:
    there = {str(path.relative_to(EXAMPLES)) for path in EXAMPLES.rglob("*") if path.is_file()}
    assert {name for name in there if "__pycache__" not in name} == TESTED | ELSEWHERE | {"README.md", "http/README.md"}


@pytest.mark.parametrize("name", sorted(name for name in TESTED if name.endswith((".json", ".yaml"))))
def test_an_example_is_a_valid_graph_without_warnings(name: str, call: Call) -> None:
    (found,) = json.loads(call("validate", str(EXAMPLES / name), "--json"))["files"]
    assert found["valid"] is True
    assert found["warnings"] == []


def states(call: Call, graph_id: str) -> dict[str, tuple[str, int]]:
    shown = json.loads(call("show", graph_id, "--json"))
    return {task["label"]: (task["state"], task["run"]) for task in shown["tasks"]}


def test_shards(call: Call) -> None:
    call("run", str(EXAMPLES / "shards.json"), "--id", "s", code=1)
    ended = {label: state for label, (state, _) in states(call, "s").items()}
    assert (ended["shard 2"], ended["merge"], ended["alarm"]) == ("failed", "completed", "skipped")
    assert "3 ok, 1 bad, needs 3 of 4: it has succeeded" in call("status", "s", "--group", "shards")


def test_build(call: Call, tmp_path: Path) -> None:
    began = time.monotonic()
    call("run", str(EXAMPLES / "build.json"), "--id", "b")
    assert time.monotonic() - began < 30, "about a second on an idle machine; a shared one may take its time"
    found = states(call, "b")
    assert len(found) == 17
    assert {state for state, _ in found.values()} == {"completed"}
    assert {label: run for label, (_, run) in found.items() if run} == {"fetch licence": 1}
    assert "no answer" in call("logs", "b", "fetch licence", "--run", "0")
    assert call("logs", "b", "fetch licence", "--run", "1").endswith("CC0-1.0\n")
    assert "Ran 2 tests" in call("logs", "b", "test hexagon")
    assert "hexagon / triangle = 6.0" in call("logs", "b", "verify")
    result = json.loads(call("logs", "b", "report", "--result"))
    archive = Path(result["archive"])
    assert archive.is_relative_to(tmp_path / ".taskgraph" / "example-build" / "b")
    assert archive.stat().st_size == result["bytes"]
    assert call("logs", "b", "checksum").startswith(result["sha256"])
    written = archive.stat().st_mtime_ns
    call("run", str(EXAMPLES / "build.json"), "--id", "b")
    assert states(call, "b") == found, "the same graph again is done already"
    assert archive.stat().st_mtime_ns == written
    call("run", str(EXAMPLES / "build.json"), "--id", "c")
    assert states(call, "c") == found


def test_build_as_yaml(call: Call) -> None:
    call("run", str(EXAMPLES / "build.yaml"), "--id", "y")
    assert states(call, "y") == dict.fromkeys(("write circle.py", "compile circle", "test circle"), ("completed", 0))
    assert "Ran 2 tests" in call("logs", "y", "test circle")
    written, whole = (read_document((EXAMPLES / f"build.{form}").read_bytes(), form=form) for form in ("yaml", "json"))
    assert written.tasks == {label: whole.tasks[label] for label in written.tasks}


def test_fan(call: Call) -> None:
    call("run", str(EXAMPLES / "fan.json"), "--id", "f")
    assert len(states(call, "f")) == 10
    assert "primes below 40,000: 4203" in call("logs", "f", "sum")
    assert json.loads(call("logs", "f", "sum", "--result")) == 4203


def test_lock_and_stages(call: Call) -> None:
    for name, order in (("lock", "LOCK RH1 UNLOCK"), ("stages", "LOCK A B C UNLOCK")):
        call("run", str(EXAMPLES / f"{name}.json"), "--id", name)
        ended = [
            each["label"]
            for each in json.loads(call("events", name, "--json"))["events"]
            if each["event"] == "task-completed"
        ]
        assert len(ended) == 6
        assert [label for label in ended if label in order.split()] == order.split()


def test_flaky(call: Call) -> None:
    call("run", str(EXAMPLES / "flaky.json"), "--id", "f")
    assert states(call, "f") == {"download": ("completed", 2), "unpack": ("completed", 0)}
    assert "connection reset" in call("logs", "f", "download", "--run", "1")


def test_params(call: Call) -> None:
    call("run", str(EXAMPLES / "params.json"), "--id", "p")
    assert call("logs", "p", "say") == "there are 3 of them among 8\n"
    assert json.loads(call("results", "p"))["count"] == 3
    call("run", str(EXAMPLES / "params.json"), "--id", "q", "--param", "word=is", "-p", 'greeting=["so many:", ""]')
    assert call("logs", "q", "say") == "so many: 2  among 8\n"
    assert json.loads(call("show", "q", "--json"))["params"]["word"] == "is"


def test_blocked_and_healed_as_the_readme_says(call: Call, tmp_path: Path) -> None:
    call("run", str(EXAMPLES / "blocked.json"), "--id", "r", code=1)
    assert states(call, "r") == {
        "build": ("completed", 0),
        "lint": ("completed", 0),
        "approve": ("failed", 0),
        "publish": ("unscheduled", 0),
    }
    assert "approve" in call("why", "r", "publish")
    (tmp_path / ".taskgraph" / "example-blocked" / "r.approved").touch()
    call("rerun", "r", "approve", "--reason", "approved by phone")
    call("run", "--id", "r")
    assert states(call, "r") == {
        "build": ("completed", 0),
        "lint": ("completed", 0),
        "approve": ("completed", 1),
        "publish": ("completed", 0),
    }


def test_a_graph_that_extends_itself(call: Call) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    call("run", str(EXAMPLES / "extend" / "start.json"), "--id", "e", cwd=ROOT, PATH=path)
    measured = {f"measure {path.name}" for path in EXAMPLES.glob("*.json")}
    assert set(states(call, "e")) == {"discover", "summary"} | measured
    assert call("logs", "e", "summary") == "all measured\n"
    size = (EXAMPLES / "fan.json").stat().st_size
    assert re.match(rf"\s*{size} examples/fan\.json", call("logs", "e", "measure fan.json"))


def output_of(example: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / example)],
        cwd=folder,
        env=environment(f"sqlite:///{folder}/unused.db"),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout


def test_functions(tmp_path: Path) -> None:
    output = output_of("functions.py", tmp_path)
    assert output.splitlines()[0] == "finished: 7 of 7 tasks completed"
    assert "collect whale: run 1, result None" in output
    assert "total: run 0, result {'texts': 3, 'words': 24}" in output


def test_decorated_functions(tmp_path: Path) -> None:
    assert output_of("decorated.py", tmp_path) == "finished: 8 words\nsplit printed: 8 words\n"
    assert not (tmp_path / "unused.db").exists()


def test_the_program_of_the_readme(tmp_path: Path) -> None:
    (program,) = re.findall(
        r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    (promised,) = re.findall(r"asyncio\.run\(main\(\)\)  # (.*)", program)
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.strip() == promised


def test_cleanup(call: Call) -> None:
    call("run", str(EXAMPLES / "cleanup.json"), "--id", "r", code=1)
    tasks = {each["label"]: each["state"] for each in json.loads(call("show", "r", "--json"))["tasks"]}
    assert tasks == {
        "rent a machine": "completed",
        "lint": "failed",
        "test": "failed",
        "publish": "skipped",
        "alarm": "completed",
        "give the machine back": "completed",
    }
    assert call("logs", "r", "give the machine back") == "machine 7 is free again\n"
    assert "“test” failed" in call("why", "r", "publish")
