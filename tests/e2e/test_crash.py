"""A process that is killed in the middle loses nothing, and what had completed does not run again."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.processes import command, started, taskgraph, until, write_graph

RECORD = (
    'echo "$TASKGRAPH_LABEL $TASKGRAPH_RUN_ID begin" >> record; sleep {seconds}; echo "$TASKGRAPH_LABEL end" >> record'
)


def recording(seconds: float, requires: tuple[str, ...] = ()) -> dict[str, Any]:
    """A task that writes down when it begins and when it ends."""
    return command("sh", "-c", RECORD.format(seconds=seconds), requires=requires)


def lines(folder: Path) -> list[str]:
    record = folder / "record"
    return record.read_text().splitlines() if record.exists() else []


@pytest.mark.parametrize("killed_in", ["b", "d"])
def test_run_killed_in_the_middle_is_resumed(tmp_path: Path, killed_in: str) -> None:
    store = f"sqlite:///{tmp_path}/store.db"
    file = write_graph(
        tmp_path / "graph.json",
        {
            "a": recording(0.05),
            "b": recording(0.6, ("a",)),
            "c": recording(0.4, ("a",)),  # has not ended when the kill comes: nobody would know whether it was heard of
            "d": recording(0.6, ("b", "c")),
            "e": recording(0.05, ("d",)),
        },
    )
    with started("run", str(file), "--id", "g", "--slots", "2", store=store, cwd=tmp_path) as child:
        until(lambda: any(line.startswith(f"{killed_in} ") for line in lines(tmp_path)), what=f"{killed_in} begins")
        child.send_signal(signal.SIGKILL)
        child.wait()
    before = lines(tmp_path)
    ended_before = {line.split()[0] for line in before if line.endswith(" end")}
    assert killed_in not in ended_before
    resumed = taskgraph("run", str(file), "--id", "g", "--slots", "2", store=store, cwd=tmp_path, timeout_seconds=60)
    assert resumed.returncode == 0, resumed.stderr
    after = lines(tmp_path)[len(before) :]
    again = {line.split()[0] for line in after if line.endswith(" begin")}
    rows = json.loads(taskgraph("show", "g", "--json", store=store, cwd=tmp_path).stdout)
    completed_once = {"a"} | ({"b", "c"} if killed_in == "d" else set())
    assert not again & completed_once, f"ran again: {again & completed_once}"
    ends = [line.split()[0] for line in lines(tmp_path) if line.endswith(" end")]
    assert sorted(ends) == ["a", "b", "c", "d", "e"], (
        "the command that lost its worker has not gone on beside its successor"
    )
    assert len(rows) == 5 or len(rows["tasks"]) == 5


def test_a_worker_that_is_told_to_stop_hands_its_task_back_at_once(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/store.db"
    slow = command("sh", "-c", 'echo "$TASKGRAPH_RUN_ID" >> record; [ "$TASKGRAPH_RUN_ID" -gt 0 ] || sleep 60')
    file = write_graph(tmp_path / "graph.json", {"slow": slow})
    assert taskgraph("submit", str(file), "--id", "g", store=store, cwd=tmp_path).returncode == 0
    with started("serve", store=store, cwd=tmp_path):
        with started("worker", store=store, cwd=tmp_path, name="first") as first:
            until(lambda: lines(tmp_path) == ["0"], what="the task begins")
            first.send_signal(signal.SIGTERM)
            assert first.wait(timeout=15) == 0
        with started("worker", store=store, cwd=tmp_path, name="second"):
            waited = taskgraph("watch", "g", store=store, cwd=tmp_path, timeout_seconds=30)
    assert waited.returncode == 0, waited.stderr
    assert lines(tmp_path) == ["0", "1"]
