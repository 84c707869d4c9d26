"""What tasks say of time, as people meet it: real processes, on both stores."""

import json
import os
import uuid
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.processes import command, started, taskgraph, until, write_graph

Store = tuple[str, dict[str, str]]


@pytest.fixture(params=["embedded", pytest.param("azurite", marks=[pytest.mark.azurite, pytest.mark.campaign])])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "embedded":
        return f"sqlite:///{tmp_path}/store.db", {}
    return request.getfixturevalue("azurite"), {"TASKGRAPH_PREFIX": f"t{uuid.uuid4().hex[:12]}"}


def asked(place: Store, folder: Path, *words: str) -> Any:
    done = taskgraph(*words, "--json", store=place[0], cwd=folder, **place[1])
    return json.loads(done.stdout)


def moment(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


def is_there(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


TWICE = (
    "echo x >> tries; test $(wc -l < tries) -gt 2 || "
    "{ echo '{\"retryAfter\": 0.2}' > $TASKGRAPH_RESULT_FILE; exit 75; }"
)


@pytest.mark.campaign
def test_a_command_that_cannot_now_is_tried_again_later(place: Store, tmp_path: Path) -> None:
    tasks = {
        "fetch": {**command("sh", "-c", TWICE), "retry": {"delay": 0.2}},  # over long before the other may run
        "late": {**command("true", requires=("fetch",)), "notBefore": moment(10)},
    }
    file = write_graph(tmp_path / "g.json", tasks)
    done = taskgraph("run", str(file), "--id", "g", store=place[0], cwd=tmp_path, **place[1])
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "tries").read_text() == "x\nx\nx\n"
    fetch = asked(place, tmp_path, "task", "g", "fetch")
    assert (fetch["run"], fetch["temporaryFailures"], fetch["temporaryLeft"], fetch["rerunsLeft"]) == (2, 2, 8, 0)
    assert [each["outcome"] for each in fetch["runs"]] == ["temporary"] * 2
    late = asked(place, tmp_path, "task", "g", "late")
    assert late["started"] >= late["notBefore"] > late["pendingSince"]
    events = asked(place, tmp_path, "events", "g")["events"]
    assert [each["event"] for each in events].count("task-retry") == 2
    healthy = taskgraph("doctor", "g", store=place[0], cwd=tmp_path, **place[1])
    assert healthy.returncode == 0, healthy.stdout


@pytest.mark.campaign
def test_a_deadline_and_a_bound_on_runs_end_the_child(place: Store, tmp_path: Path) -> None:
    sleeping = "echo $$ > $TASKGRAPH_LABEL.pid; exec sleep 300"
    with started("serve", "--worker", "2", store=place[0], cwd=tmp_path, **place[1]):
        tasks = {
            "bound": {**command("sh", "-c", sleeping), "maxRunTime": 1},
            "late": command("sh", "-c", sleeping, deadline=moment(10)),
        }
        file = write_graph(tmp_path / "g.json", tasks)
        assert taskgraph("submit", str(file), "--id", "g", store=place[0], cwd=tmp_path, **place[1]).returncode == 0
        files = [tmp_path / f"{label}.pid" for label in tasks]
        pids = [int(until(lambda file=each: file.exists() and file.read_text().strip())) for each in files]
        late = until(lambda: (found := asked(place, tmp_path, "task", "g", "late"))["state"] == "exception" and found)
        assert late["resolution"]["code"] == "deadline-exceeded"
        until(lambda: not any(map(is_there, pids)), what="both children are gone")
    bound = asked(place, tmp_path, "task", "g", "bound")
    assert (bound["state"], bound["resolution"]["code"]) == ("failed", "max-run-time-exceeded")
    why = taskgraph("why", "g", "late", store=place[0], cwd=tmp_path, **place[1])
    assert "could not be run in run 0: its deadline" in why.stdout
    refused = taskgraph("rerun", "g", "late", store=place[0], cwd=tmp_path, **place[1])
    assert (refused.returncode, "its deadline" in refused.stderr) == (4, True), refused.stderr
