"""The checker of the soak sees what it is for: a healthy graph is praised, and each kind of damage is named."""

import json
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from taskgraph.interfaces.app import App
from taskgraph.interfaces.client.client import Client
from taskgraph.model.ids import GRAPH, row_key, task_id_of
from taskgraph.storage.tables import Change, Delete, Insert, Merge
from tests.chaos import tasks
from tests.chaos.checker import Evidence, Process, Verdict, judge, read_lines
from tests.chaos.processes import Child
from tests.chaos.shapes import Spec, draw, never_ready

DOCUMENT = {
    "tasks": {
        "a": {"requires": [], "reruns": 1, "task": {"payload": {"call": "work", "arguments": {"fails": 1}}}},
        "b": {"requires": ["a"], "task": {"payload": {"call": "work"}}},
        "c": {"requires": ["b"], "task": {"executor": "noop", "payload": {}}},
    }
}


class Played:
    """A graph of three that has run to its end, and what its one process left behind."""

    def __init__(self, client: Client, executed: list[dict[str, Any]], began: float) -> None:
        self.client = client
        self.executed = executed
        self.child = Child(os.getpid(), ["worker"], began, time.time(), 0)
        self.requests: list[dict[str, Any]] = []
        self.specs = [Spec("g", "chain", DOCUMENT)]
        self.stuck: list[str] = []

    @property
    def app(self) -> App:
        return self.client.app

    def key(self, label: str) -> str:
        return row_key(task_id_of("g", label))

    async def damage(self, key: str, **columns: Any) -> None:
        (row,) = await self.app.tables.get("g", [key])
        change: Change = Merge(key, row.etag, columns) if row else Insert(key, columns)
        await self.app.tables.commit("g", [change])

    async def remove(self, key: str) -> None:
        (row,) = await self.app.tables.get("g", [key])
        await self.app.tables.commit("g", [Delete(key, row.etag)])

    def line(self, label: str, what: str) -> dict[str, Any]:
        return next(line for line in reversed(self.executed) if (line["label"], line["what"]) == (label, what))

    async def verdict(self) -> Verdict:
        evidence = Evidence(self.specs, [Process("worker", self.child)], self.executed, self.requests)
        return await judge(self.app, evidence, self.stuck)

    async def lose_run(self, label: str, *, seconds_ago: float = 0.0) -> None:
        """Let the row tell of an earlier run that was lost with this process, as if there had been one."""
        (row,) = await self.app.tables.get("g", [self.key(label)])
        started = row.columns["started"].isoformat()
        lost = {
            "run": 0,
            "outcome": "lost",
            "worker": f"host-{os.getpid()}-abcdef",
            "started": started,
            "ended": started,
        }
        await self.damage(self.key(label), run=1, retriesLeft=4, runs=json.dumps([lost]))
        for line in self.executed:
            if line["label"] == label:
                line["run"] = 1


@pytest.fixture
async def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Played]:
    monkeypatch.setenv(tasks.RECORD_VARIABLE, str(tmp_path / "executed"))
    began = time.time()
    async with Client(f"sqlite:///{tmp_path}/store.db") as client:
        await client.run(DOCUMENT, "g", callables={"work": tasks.work})
        yield Played(client, read_lines(tmp_path / "executed"), began)


async def test_a_healthy_graph_is_praised(played: Played) -> None:
    verdict = await played.verdict()
    assert verdict.good, verdict
    assert (verdict.graphs, verdict.tasks, verdict.executions) == (1, 3, 3)
    assert verdict.runs == {"completed": 3, "failed": 1}
    assert verdict.ends == {"finished": 1}


async def test_a_task_that_has_not_completed_is_lost(played: Played) -> None:
    await played.damage(played.key("b"), state="pending")
    assert any("“b” is pending" in each for each in (await played.verdict()).lost)


async def test_a_task_without_a_row_is_lost(played: Played) -> None:
    await played.remove(played.key("c"))
    assert any("“c” is missing" in each for each in (await played.verdict()).lost)


async def test_a_graph_that_goes_on_running_is_lost(played: Played) -> None:
    await played.damage(GRAPH, state="running")
    assert any("is running, and should be finished" in each for each in (await played.verdict()).lost)


async def test_a_task_that_nobody_submitted_is_unexpected(played: Played) -> None:
    await played.damage("task:" + "x" * 22, label="mine", state="completed", run=0)
    assert any("“mine” that is not its own" in each for each in (await played.verdict()).unexpected)


async def test_a_graph_that_nobody_submitted_is_unexpected(played: Played) -> None:
    await played.client.submit(DOCUMENT, "other")
    assert any("graph other is listed" in each for each in (await played.verdict()).unexpected)


async def test_a_run_that_was_executed_twice_is_unjustified(played: Played) -> None:
    played.executed.append({**played.line("b", "begin"), "time": time.time()})
    assert any("run 0 was executed 2 times" in each for each in (await played.verdict()).unjustified)


async def test_a_run_past_the_last_one_is_unexpected(played: Played) -> None:
    played.executed.append({**played.line("b", "begin"), "run": 7})
    assert any("run 7 was executed" in each for each in (await played.verdict()).unexpected)


async def test_a_completed_run_that_nobody_executed_is_unexpected(played: Played) -> None:
    played.executed = [line for line in played.executed if line["label"] != "b"]
    assert any("“b”: run 0 is completed, and was not executed" in each for each in (await played.verdict()).unexpected)


async def test_a_result_under_another_claim_is_unexpected(played: Played) -> None:
    played.line("b", "end")["claim"] = "stolen"
    assert any("under another claim" in each for each in (await played.verdict()).unexpected)


async def test_a_failure_that_nobody_executed_is_unjustified(played: Played) -> None:
    played.executed = [line for line in played.executed if (line["label"], line["run"]) != ("a", 0)]
    assert any("run 0 is told to have failed" in each for each in (await played.verdict()).unjustified)


async def test_a_task_that_began_too_early_is_unexpected(played: Played) -> None:
    played.line("b", "begin")["time"] -= 3600
    assert any("“b” began before “a” had ended" in each for each in (await played.verdict()).unexpected)


async def test_an_execution_of_what_is_no_task_is_unexpected(played: Played) -> None:
    played.executed.append({**played.line("b", "begin"), "label": "ghost"})
    assert any("“ghost” was executed" in each for each in (await played.verdict()).unexpected)


async def test_a_gap_in_the_journal_is_seen(played: Played) -> None:
    await played.remove("event:0000000002")
    assert any("gaps" in each for each in (await played.verdict()).broken)


async def test_an_edge_that_is_gone_is_seen(played: Played) -> None:
    await played.damage(played.key("a"), dependents="[]")
    broken = (await played.verdict()).broken
    assert any("dependents" in each for each in broken)
    assert any("the doctor says" in each for each in broken)


async def test_a_lost_run_without_a_reason_is_unjustified(played: Played) -> None:
    await played.lose_run("b")
    verdict = await played.verdict()
    assert any("“b”: run 0 of" in each and "for no reason" in each for each in verdict.unjustified)


async def test_a_lost_run_of_a_killed_worker_is_justified_and_recovered(played: Played) -> None:
    await played.lose_run("b")
    (row,) = await played.app.tables.get("g", [played.key("b")])
    played.child.status, played.child.ended = -9, row.columns["started"].timestamp()
    verdict = await played.verdict()
    assert verdict.unjustified == []
    assert verdict.runs["lost: killed"] == 1
    assert (verdict.recovered_runs, verdict.kills["worker"]) == (1, 1)
    assert len(verdict.given_up_seconds) == len(verdict.run_seconds) == 1


async def test_messages_in_the_hands_of_the_dead_are_followed_to_their_end(played: Played) -> None:
    at = played.child.started
    message = {"queue": "taskgraph-events", "id": "m", "graph": "g", "runs": []}
    played.child.status, played.child.ended = -9, at + 5
    played.requests = [
        {"what": "take", "time": at + 1, "pid": played.child.pid, **message},
        {"what": "take", "time": at + 65, "pid": 1, **message},
        {"what": "done", "time": at + 66, "pid": 1, "queue": "taskgraph-events", "id": "m"},
    ]
    verdict = await played.verdict()
    assert [round(seconds) for seconds in verdict.message_seconds] == [61]
    assert (verdict.hit_graphs, verdict.recovered_graphs, verdict.kills_with_work) == (1, 1, 1)


async def test_what_was_stuck_is_told(played: Played) -> None:
    played.stuck = ["g"]
    assert not (await played.verdict()).good


def test_verdicts_add_up() -> None:
    total = Verdict(graphs=1, rest_seconds=5.0, lost=["x"])
    total.add(Verdict(graphs=2, rest_seconds=3.0))
    assert (total.graphs, total.rest_seconds, total.lost) == (3, 5.0, ["x"])


def test_graphs_are_drawn_from_the_seed_and_are_enough() -> None:
    specs = draw(3, 40, 800)
    assert len(specs) >= 40
    assert sum(len(spec.document["tasks"]) for spec in specs) >= 800
    assert [spec.document for spec in specs] == [spec.document for spec in draw(3, 40, 800)]
    assert [spec.document for spec in specs] != [spec.document for spec in draw(4, 40, 800)]
    assert len({spec.kind for spec in draw(1, 100, 1000)}) == 6


def test_what_is_below_a_doomed_task_is_never_ready() -> None:
    assert never_ready({"a": [], "b": ["a"], "c": ["b"], "d": []}, ["a"]) == {"b", "c"}
