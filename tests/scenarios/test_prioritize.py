"""Another priority for tasks that have not begun: the rule over the stores, and the doors over the embedded one."""

import asyncio
import json
from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import CliRunner

from taskgraph import Client, InvalidInput, NotFound, Refused
from taskgraph.interfaces.cli import app as commands
from taskgraph.interfaces.loops import serve
from taskgraph.model.flag import Flag
from taskgraph.model.messages import Prioritize
from taskgraph.protocol.invariants.examine import examine
from tests.http.typed import both_doors
from tests.scenarios.stage import Stage, graph

EARLY, LATE = "2026-01-01T00:00:00.000001+00:00", "2026-01-01T00:00:00.000002+00:00"
REQUIRES: Final = {"ready": [], "running": [], "waits": ["ready"]}
GRAPH: Final = {
    "groups": {"some": {"tasks": ["waits"]}},
    "tasks": {"ready": {"task": {}}, "waits": {"requires": ["ready"], "task": {}}},
}


async def prioritize(stage: Stage, level: str, *labels: str, asked: str = EARLY) -> None:
    await stage.deliver(Prioritize(stage.graph_id, level, asked, tuple(map(stage.task_id, labels)), "release"))


async def levels(stage: Stage) -> dict[str, str]:
    return {label: str((await stage.row(label)).columns.get("priority", "")) for label in REQUIRES}


async def test_what_is_ready_is_sent_at_its_new_level_and_what_runs_keeps_its_own(stage: Stage) -> None:
    await stage.submit(graph(REQUIRES))
    held = await stage.claim("running")
    await prioritize(stage, "high", *REQUIRES)
    assert await levels(stage) == {"ready": "high", "running": "", "waits": "high"}
    high = await stage.queues.receive(stage.names.work("default", "high"), count=32, lease_seconds=30)
    assert [json.loads(each.body)["tasks"][0]["task"] for each in high] == [stage.task_id("ready")]
    facts = [each for each in await stage.events() if each.kind == "task-prioritized"]
    assert [(each.fields["label"], each.fields["was"], each.fields["reason"]) for each in facts] == [
        ("ready", "normal", "release"),
        ("waits", "normal", "release"),
    ]
    await prioritize(stage, "normal", "waits", asked=LATE)
    await stage.deliver(stage.completed(held))
    assert await stage.work() == "finished"
    assert await levels(stage) == {"ready": "high", "running": "", "waits": ""}
    rows = {row.key: row for row in await stage.queries.partition(stage.graph_id)}
    assert examine(stage.graph_id, rows, stage.clock.now()) == []


async def test_of_two_requests_the_later_one_counts_and_none_counts_twice(memory: Stage) -> None:
    await memory.submit(graph(REQUIRES))
    await prioritize(memory, "low", "waits", asked=LATE)
    for _ in range(2):
        await prioritize(memory, "high", "waits", asked=EARLY)
        await prioritize(memory, "low", "waits", asked=LATE)
    assert (await levels(memory))["waits"] == "low"
    assert [each.kind for each in await memory.events()].count("task-prioritized") == 1


async def test_two_requests_in_one_commit_send_what_is_ready_once(memory: Stage) -> None:
    await memory.submit(graph({"a": [], "b": []}))
    tasks = (memory.task_id("b"),)
    await memory.deliver(*[Prioritize("graph", each, at, tasks) for each, at in (("low", EARLY), ("high", LATE))])
    sent = {level: await memory.queues.count(memory.names.work("default", level)) for level in ("low", "high")}
    assert sent == {"low": 0, "high": 1}


async def test_who_has_waited_for_room_under_a_limit_goes_by_the_new_level(memory: Stage) -> None:
    await memory.submit(graph({"a": [], "b": [], "c": []}, maxInFlight=1))
    held = await memory.claim("a")
    await memory.offered()
    await prioritize(memory, "highest", "c")
    await memory.deliver(memory.completed(held))
    queue = memory.names.work("default", "highest")
    (work,) = await memory.queues.receive(queue, count=32, lease_seconds=30)
    assert json.loads(work.body)["tasks"][0]["task"] == memory.task_id("c")


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


async def test_from_python(store: str) -> None:
    async with Client(store) as client:
        await client.submit(GRAPH, "g")
        with pytest.raises(InvalidInput, match="“urgent” is no priority: highest, high"):
            await client.prioritize("g", "urgent")
        with pytest.raises(InvalidInput, match="name tasks or a group"):
            await client.prioritize("g", "high", "ready", group="some")
        with pytest.raises(NotFound, match="readi"):
            await client.prioritize("g", "high", "readi")
        stop = Flag()
        serving = asyncio.create_task(serve(client.app, stop))
        assert await client.prioritize("g", "high", wait=True) == ["ready", "waits"]
        assert await client.prioritize("g", "lowest", group="some", reason="can wait", wait=True) == ["waits"]
        stop.set()
        await serving
        assert {each.label: each.priority for each in await client.tasks("g")} == {"ready": "high", "waits": "lowest"}
        assert "its priority is high" in " ".join(each.text for each in await client.why("g", "ready"))
        await client.cancel("g", terminate=True)
        await client.run(GRAPH, "h")
        with pytest.raises(Refused, match="graph h is finished"):
            await client.prioritize("h", "high")


@both_doors
def test_as_it_is_typed(store: str, tmp_path: Path) -> None:
    def run(*words: str) -> Any:
        return CliRunner().invoke(commands, [*words, "--store", store])

    file = tmp_path / "graph.json"
    file.write_text(json.dumps(GRAPH))
    assert run("submit", str(file), "--id", "g").exit_code == 0
    for words, code, says in (
        (("urgent",), 2, "is no priority"),
        (("ready", "high", "--group", "some"), 2, "name tasks or a group"),
        (("nothing", "high"), 3, "nothing"),
        (("high", "--wait", "--timeout", "0"), 124, "not all of it has priority high after 0 s"),
    ):
        done = run("prioritize", "g", *words)
        assert (done.exit_code, says in done.stderr) == (code, True), (words, done.stderr)
    done = run("prioritize", "g", "ready", "low")
    assert done.stdout == "graph g: 1 task to get priority low\n"
    answer = json.loads(run("prioritize", "g", "--group", "some", "high", "--json").stdout)
    assert answer.pop("askedAt") > "2026"
    assert answer == {"graphId": "g", "level": "high", "labels": ["waits"], "settled": False}
