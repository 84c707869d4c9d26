"""A fan-out of 5,000 tasks from the result of one, run by processes that are killed again and again."""

import json
import random
import time
from pathlib import Path

import pytest

from tests.e2e.processes import started, taskgraph
from tests.simulation.test_world import FIRST

pytestmark = pytest.mark.campaign

GRAPH = f"fan-{FIRST}"
TASKS = 5_000
KILLS = 8
SCRIPT = "import json, os; print(json.dumps([*range({tasks})]), file=open(os.environ['TASKGRAPH_RESULT_FILE'], 'w'))"


@pytest.fixture(params=["embedded", pytest.param("azurite", marks=pytest.mark.azurite)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where the graph is kept."""
    return f"sqlite:///{tmp_path}/store.db" if request.param == "embedded" else request.getfixturevalue("azurite")


def test_five_thousand_tasks_of_a_result_under_kills(tmp_path: Path, place: str) -> None:
    chance = random.Random(FIRST)
    tasks = {
        "list": {"command": ["python3", "-c", SCRIPT.format(tasks=TASKS)]},
        "work": {"foreach": {"n": {"$result": "list"}}, "task": {"executor": "noop"}},
        "total": {"requires": ["work"], "task": {"executor": "noop"}},
    }
    (tmp_path / "fan.json").write_text(json.dumps({"tasks": tasks}))
    killed = 0
    for _ in range(KILLS):
        with started("run", "fan.json", "--id", GRAPH, "--output", "none", store=place, cwd=tmp_path) as run:
            time.sleep(0.5 + chance.random())
            killed += run.poll() is None
            run.kill()
    print(f"seed {FIRST}: {killed} runs were killed")
    assert killed > 2
    end = taskgraph(
        "run", "fan.json", "--id", GRAPH, "--output", "none", store=place, cwd=tmp_path, timeout_seconds=300
    )
    assert end.returncode == 0, end.stderr[-2000:]
    status = json.loads(taskgraph("status", GRAPH, "--json", store=place, cwd=tmp_path).stdout)
    assert (status["state"], status["counts"]["completed"]) == ("finished", TASKS + 3)
    group = json.loads(taskgraph("status", GRAPH, "--group", "work", "--json", store=place, cwd=tmp_path).stdout)
    assert len(group["tasks"]) == TASKS + 1
    doctor = taskgraph("doctor", GRAPH, store=place, cwd=tmp_path)
    assert (doctor.returncode, "nothing wrong" in doctor.stderr + doctor.stdout) == (0, True)
