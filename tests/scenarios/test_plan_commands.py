"""--plan and --apply of every command that changes a graph, and one change of many: what is typed, and what is seen."""

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import CliRunner, Result

from taskgraph import Client, StalePlan, SyncClient
from taskgraph.engine.requests import answer_request, late_requests
from taskgraph.interfaces.cli import app as commands
from taskgraph.model.ids import task_id_of
from taskgraph.model.messages import parse
from taskgraph.protocol.runs import Claim, Failed
from tests.http.typed import both_doors

pytestmark = both_doors

GRAPH: Final[dict[str, Any]] = {
    "groups": {"some": {"tasks": ["later"]}},
    "maxInFlight": 3,
    "tasks": {
        "bad": {"task": {"payload": {"command": ["false"]}}},
        "far": {"task": {"target": "gpu"}},
        "later": {"requires": ["far"], "task": {}},
    },
}
Run = Callable[..., Result]


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


@pytest.fixture
def run(store: str, tmp_path: Path) -> Run:
    """A command over a store with the graph g, whose task bad has failed."""
    (tmp_path / "more.json").write_text(json.dumps({"tasks": {"more": {"requires": ["far"], "task": {}}}}))

    def invoke(*words: str) -> Result:
        return CliRunner().invoke(commands, [*words, "--store", store])

    asyncio.run(failed(store, "g"))
    return invoke


async def failed(store: str, graph_id: str) -> None:
    """A graph whose task bad has failed, and nothing else has begun."""
    async with Client(store) as client:
        await client.submit(GRAPH, graph_id)
        task_id, now = task_id_of(graph_id, "bad"), client.app.clock.now()
        claim = Claim(task_id, 0, "c", "w", now + timedelta(seconds=30))
        broke = Failed(task_id, 0, "c", now.isoformat(), {"failed": True, "reason": "broke"})
        await client.app.handlers.transition(graph_id, [claim, broke])


async def handled(store: str) -> None:
    """Answer what is asked for, and run nothing."""
    async with Client(store) as client:
        for graph_id in ("g", "h"):
            for request in await late_requests(client.app.handlers.records, graph_id):
                await answer_request(client.app.handlers, graph_id, request)


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("rerun", "g", "--failed"), "bad"),
        (("cancel", "g", "far"), "cancelled"),
        (("cancel", "g"), "cancelled"),
        (("pause", "g"), "held"),
        (("deactivate", "g", "later"), "active True → False"),
        (("limit", "set", "g", "1"), "limit 3 → 1"),
        (("limit", "clear", "g"), "limit 3 → 1000"),
        (("prioritize", "g", "later", "high"), "priority – → high"),
        (("edit", "g", "--task", "later", "--reruns", "2"), "rerunsAllowed 0 → 2"),
        (("extend", "g", "MORE"), "more"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, tuple) else None,
)
def test_what_was_shown_is_made_and_not_twice(
    run: Run, store: str, tmp_path: Path, words: tuple[str, ...], shown: str
) -> None:
    typed = [str(tmp_path / "more.json") if each == "MORE" else each for each in words]
    planned = run(*typed, "--plan")
    assert planned.exit_code == 0, planned.stderr
    assert shown in planned.stdout
    digest = json.loads(run(*typed, "--plan", "--json").stdout)["plan"]
    assert f"--apply {digest}" in planned.stderr
    asked = run(*typed, "--apply", digest, "--timeout", "0")
    assert (asked.exit_code, "taskgraph serve" in asked.stderr) == (124, True), asked.stderr
    asyncio.run(handled(store))
    again = run(*typed, "--apply", digest, "--timeout", "0")
    assert again.exit_code == 4, again.stdout
    if words[0] not in ("edit", "extend"):  # these are known by their content, and done
        assert "has moved since this was planned, or it was made already" in again.stderr
    facts = run("events", "g", "--filter", "event=graph-changed").stdout.splitlines()
    assert len(facts) == 1


def test_what_is_wrongly_typed_says_so(run: Run) -> None:
    for words, says in (
        (("rerun", "g", "--failed", "--plan", "--wait"), "--plan writes nothing"),
        (("pause", "--target", "gpu", "--plan"), "for changes of a graph"),
        (("limit", "set", "--target", "gpu", "2", "--plan"), "for changes of a graph"),
        (("cancel", "g", "--timeout", "3"), "--timeout goes with --wait or --apply"),
    ):
        done = run(*words)
        assert (done.exit_code, says in done.stderr) == (2, True), (words, done.stderr)
    refused = run("rerun", "g", "later", "--plan")
    assert (refused.exit_code, "would refuse it" in refused.stderr) == (4, True)
    assert run("rerun", "x", "--failed", "--plan").exit_code == 3


def test_many_graphs_are_changed_by_their_plans(run: Run, store: str, tmp_path: Path) -> None:
    asyncio.run(failed(store, "h"))
    (tmp_path / "rerun.json").write_text(json.dumps({"change": "rerun", "failed": True}))
    planned = run("change", str(tmp_path / "rerun.json"), "--state", "blocked", "--plan", "--json")
    (tmp_path / "plans.json").write_text(planned.stdout)
    assert sorted(each["graphId"] for each in json.loads(planned.stdout)["plans"]) == ["g", "h"]
    assert "1 task" in run("change", str(tmp_path / "rerun.json"), "g", "--plan").stdout
    with SyncClient(store) as client:
        change = {"change": "rerun", "failed": True}
        assert client.plan("h", change).digest == json.loads(planned.stdout)["plans"][0]["plan"]["plan"]
        assert sorted(client.plan_each(["g", "h"], change)) == ["g", "h"]
    applied = run("change", str(tmp_path / "plans.json"))
    assert applied.exit_code == 0, applied.stdout
    asyncio.run(handled(store))
    again = run("change", str(tmp_path / "plans.json"))
    assert (again.exit_code, "2 of 2 graphs are left alone" in again.stderr) == (4, True)
    for words, says in (
        (("change", str(tmp_path / "rerun.json")), "is no list of plans"),
        (("change", str(tmp_path / "plans.json"), "g"), "which graphs are changed stands in the plans"),
        (("change", str(tmp_path / "rerun.json"), "--plan"), "name graphs, or say which"),
        (("change", str(tmp_path / "plans.json"), "g", "--plan"), "It names no kind of change"),
    ):
        done = run(*words)
        assert (done.exit_code, says in done.stderr) == (2, True), (words, done.stderr)


async def test_a_plan_that_is_old_comes_with_the_new_one(run: Run, store: str) -> None:
    change = {"change": "cancel", "labels": ["far"]}
    async with Client(store) as client:
        plan = await client.plan("g", change)
        assert [(each.label, each.state, each.to) for each in plan.tasks] == [("far", "pending", "cancelled")]
        await client.deactivate("g", "far")
        for message in await client.app.handlers.queues.receive("taskgraph-events", count=32, lease_seconds=30):
            await client.app.handlers.handle("g", [parse(message.body)])
        with pytest.raises(StalePlan) as stale:
            await client.apply("g", {**change, "labels": ["later"]}, plan)
        assert [each.label for each in stale.value.plan.tasks] == ["later"]
        with pytest.raises(TimeoutError):
            await client.apply("g", change, plan.digest, timeout_seconds=0)
