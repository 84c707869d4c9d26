"""`taskgraph edit` as it is typed, and `Client.edit`: words, JSON and exit codes, over the embedded store."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from taskgraph import Client, InvalidGraph, Refused, SyncClient
from taskgraph.engine.requests import answer_request, late_requests
from taskgraph.interfaces.cli import app as commands
from taskgraph.interfaces.loops import serve
from taskgraph.model.flag import Flag
from taskgraph.worker.executors import built_in
from tests.http.typed import both_doors

GRAPH = {"tasks": {"a": {"task": {}}, "b": {"requires": ["a"], "task": {}}, "c": {"requires": ["b"], "task": {}}}}


@both_doors
def test_words_and_exit_codes(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/store.db"
    file, change = tmp_path / "graph.json", tmp_path / "change.json"
    file.write_text(json.dumps(GRAPH))
    change.write_text(json.dumps({"update": {"b": {"reruns": 2}}}))

    def run(*words: str) -> Any:
        return CliRunner().invoke(commands, [*words, "--store", store])

    assert run("submit", str(file), "--id", "g").exit_code == 0
    for words, says in (
        ((), "hand in a file, or say it in options"),
        ((str(change), "--delete", "b"), "hand in a file, or say it in options"),
        (("--task", "b"), "say what is to be other"),
        (("--reruns", "1"), "--task LABEL"),
        (("--task", "b", "--requires", "a", "--no-requires"), "exclude each other"),
        (("--task", "b", "--requires", "b"), "requires itself"),
        (("--task", "b", "--deadline", "soon"), "no RFC 3339 date-time"),
        (("no-such-file.json",), "no-such-file.json"),
    ):
        done = run("edit", "g", *words)
        assert done.exit_code == 2, words
        assert says in done.stderr, words
    assert run("edit", "h", "--delete", "b").exit_code == 3
    planned = run("edit", "g", "--delete", "b", "--plan")
    assert planned.exit_code == 4
    assert "“c” requires “b”" in planned.stderr
    planned = run("edit", "g", "--delete", "b", "--delete", "c", "--plan")
    assert planned.exit_code == 0
    assert re.search(r"^b +unscheduled +taken away", planned.stdout, re.MULTILINE)
    assert "tasks 3 → 1" in planned.stdout
    as_json = json.loads(run("edit", "g", str(change), "--reason", "y", "--plan", "--json").stdout)
    assert (as_json["revision"], as_json["refused"]) == (0, [])
    (task,) = [each for each in as_json["tasks"] if each["label"] == "b"]
    assert task["columns"]["rerunsAllowed"] == {"before": 0, "after": 2}
    assert as_json["facts"][0]["reason"] == "y"
    assert "revision" not in run("status", "g").stdout, "nothing was written"
    asked = run("edit", "g", str(change), "--no-wait", "--json")
    assert json.loads(asked.stdout)["state"] == "staged"
    waited = run("edit", "g", str(change), "--timeout", "0")
    assert waited.exit_code == 124
    assert "taskgraph serve" in waited.stderr
    assert run("edit", "g", "--task", "b", "--no-requires", "--activate", "--no-wait").exit_code == 0
    assert run("edit", "g", "--delete", "a", "--if-revision", "9", "--no-wait").exit_code == 0
    asyncio.run(handle(store))
    again = run("edit", "g", str(change))
    assert again.exit_code == 0
    assert "was made before, in revision" in again.stderr
    assert run("edit", "g", "--task", "b", "--reruns", "1", "--no-wait").exit_code == 0
    asyncio.run(handle(store))
    undone = run("edit", "g", str(change), "--no-wait", "--json")
    assert json.loads(undone.stdout)["state"] == "staged", "it was undone: it is asked for anew"
    asyncio.run(handle(store))
    nothing = run("edit", "g", "--task", "c", "--reruns", "0", "--plan")
    assert (nothing.exit_code, "it changes nothing" in nothing.stderr) == (0, True)
    assert run("edit", "g", "--task", "c", "--reruns", "0", "--no-wait").exit_code == 0
    asyncio.run(handle(store))
    nothing = run("edit", "g", "--task", "c", "--reruns", "0")
    assert (nothing.exit_code, "revision 4; the edit changes nothing" in nothing.stderr) == (0, True)
    as_json = json.loads(run("edit", "g", "--task", "c", "--reruns", "0", "--json").stdout)
    assert (as_json["state"], as_json["unchanged"]) == ("done", True)
    events = run("events", "g", "--filter", "event=graph-edited", "--json").stdout
    assert "graph-edited" in events
    assert "graph-edited" in run("events", "g", "--filter", "changed=rerunsLeft").stdout
    assert run("run", "--id", "g").exit_code == 0
    status = json.loads(run("status", "g", "--json").stdout)
    assert status["revision"] == 4
    assert re.search(r"^revision +4$", run("status", "g").stdout, re.MULTILINE)
    refused = run("edit", "g", "--task", "a", "--reruns", "1")
    assert refused.exit_code == 4
    assert "it is finished" in refused.stderr or "is finished; only" in refused.stderr


async def handle(store: str) -> None:
    """Answer every request of the graph, and run nothing."""
    async with Client(store) as client:
        for request in await late_requests(client.app.handlers.records, "g"):
            await answer_request(client.app.handlers, "g", request)


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


async def test_the_client_edits_and_shows_what_would_change(store: str) -> None:
    async with Client(store) as client:
        await client.submit(GRAPH, "g")
        shown = await client.plan("g", {"change": "edit", "edit": {"update": {"b": {"requires": []}}}})
        assert shown.ready == ("b",)
        assert [(each.label, each.state, each.to) for each in shown.tasks] == [("b", "unscheduled", "pending")]
        assert [*shown.tasks[0].columns] == ["requires"]
        circle = await client.plan("g", {"change": "edit", "edit": {"update": {"b": {"requires": ["c"]}}}})
        assert "would require" in circle.refused[0]
        with pytest.raises(InvalidGraph):
            await client.edit("g", {"update": {"b": {"rerun": 1}}})
        asked = await client.edit("g", {"delete": ["c"], "update": {"b": {"requires": []}}})
        assert (await client.request("g", asked.request))["state"] == "staged"
        stop = Flag()
        worker = client.app.worker(built_in(client.app.clock))
        serving = asyncio.create_task(serve(client.app, stop, workers=[worker]))
        assert await client.wait("g", timeout_seconds=30) == "finished"
        stop.set()
        await serving
        assert (await client.request("g", asked.request))["state"] == "done"
        assert {each.label for each in await client.tasks("g")} == {"a", "b"}
        with pytest.raises(Refused, match="finished"):
            await client.edit("g", {"delete": ["b"]})


def test_the_synchronous_face_edits_too(store: str) -> None:
    with SyncClient(store) as client:
        client.submit(GRAPH, "g")
        assert client.edit("g", {"delete": ["c"]}).state == "staged"
        assert client.plan("g", {"change": "edit", "edit": {"delete": ["c"]}}).revision == 0
