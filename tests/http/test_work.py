"""Workers over HTTP: what they are answered, and what they are refused."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from taskgraph.interfaces.http.work import SHELL
from taskgraph.interfaces.operations import tokens
from taskgraph.model.errors import InvalidInput
from taskgraph.model.roles import Role
from taskgraph.worker.elsewhere import Crew
from tests.http.serving import Answer, Server, serving, shape_errors

SIZE = {"n": {"$result": "make", "path": "/size"}}
DOCUMENT = {
    "tasks": {
        "make": {"reruns": 1, "task": {"target": "far", "payload": {"command": ["sh", "-c", "echo 'it works'"]}}},
        "use": {
            "requires": ["make"],
            "task": {"target": "far", "payload": SIZE},
        },
    }
}


async def submitted(server: Server, document: Mapping[str, Any] = DOCUMENT, name: str = "g") -> None:
    assert (await server.ask("PUT", f"/graphs/{name}", data=dict(document))).status == 201


async def claim(server: Server, target: str = "far", **body: Any) -> Any:
    answer = await server.ask("POST", f"/targets/{target}:claim", data={"worker": "w-1", **body})
    assert answer.status == 200, answer
    assert not shape_errors("work", answer.json)
    return answer.json


async def about(server: Server, one: Mapping[str, Any], verb: str, **body: Any) -> Answer:
    return await server.ask("POST", f"/runs/{one['claim']}:{verb}", data=body or None)


async def test_a_graph_is_run(open_to_all: Server) -> None:
    server = open_to_all
    await submitted(server)
    (make,) = (await claim(server, slots=5, wait=20))["tasks"]
    assert make["label"] == "make"
    assert make["definition"]["payload"]["command"][0] == "sh"
    task = (await server.get("/graphs/g/tasks/make")).json
    assert (task["state"], task["worker"]) == ("running", "w-1")
    for sent in (b"one\n", b"one\ntwo\n", b"one\ntwo\n"):
        kept = await server.ask("PUT", f"/runs/{make['claim']}/log", data=sent)
        assert kept.json == {"claim": make["claim"], "bytes": len(sent)}
    renewed = await about(server, make, "renew", leaseSeconds=300)
    assert (renewed.json["cancel"], renewed.json["stale"]) == (False, None)
    assert renewed.json["leaseUntil"] > make["leaseUntil"]
    done = [{"claim": make["claim"], "end": "completed", "result": {"size": 3}}]
    answer = await claim(server, done=done, wait=20)
    assert [each["stale"] for each in answer["done"]] == [None]
    (use,) = answer["tasks"]
    assert use["definition"]["payload"] == {"n": 3}
    assert (await about(server, use, "complete", result=None)).json["stale"] is None
    assert await server.ended("g") == "finished"
    assert (await server.get("/graphs/g/tasks/make/runs/0/log")).data == b"one\ntwo\n"
    assert (await server.get("/graphs/g/results")).json["make"] == {"size": 3}
    (worker,) = (await server.get("/workers?target=far")).json["workers"]
    assert (worker["name"], worker["executors"]) == ("w-1", ["http"])


async def test_tasks_of_a_result_are_made_by_the_server(local: Server) -> None:
    made = {"requires": ["list"], "foreach": {"n": {"$result": "list"}}, "task": {"target": "far", "payload": {"k": 1}}}
    last = {"requires": ["each"], "task": {"target": "far", "payload": {"items": {"$result": "each"}}}}
    await submitted(local, {"tasks": {"list": {"task": {"target": "far"}}, "each": made, "last": last}})
    (first,) = (await claim(local))["tasks"]
    assert (await about(local, first, "complete", result=["a", "b"])).status == 200
    seen: list[str] = []
    async with asyncio.timeout(20):
        while len(seen) < 3:
            for one in (await claim(local, slots=5, wait=1))["tasks"]:
                seen.append(one["label"])
                taken = one["definition"]["payload"].get("items")
                assert (await about(local, one, "complete", result=one["label"])).status == 200
    assert taken == {"each a": "each a", "each b": "each b"}
    assert await local.ended("g") == "finished"
    assert (sorted(seen[:2]), seen[2:]) == (["each a", "each b"], ["last"])


async def test_reports_and_their_repeats(local: Server) -> None:
    await submitted(local)
    (make,) = (await claim(local))["tasks"]
    for _ in range(2):
        assert (await about(local, make, "fail", reason="no", exitCode=3)).json["stale"] is None
    assert (await local.get("/graphs/g/tasks/make")).json["run"] == 1
    stale = await about(local, make, "complete")
    assert (stale.status, stale.code) == (409, "stale-claim")
    assert stale.json["detail"] == "run 0 is over: the task is pending in run 1"
    assert (await about(local, make, "renew")).status == 409
    late = await local.ask("PUT", f"/runs/{make['claim']}/log", data=b"late")
    assert (late.status, late.code) == (409, "stale-claim")
    (again,) = (await claim(local))["tasks"]
    assert (await about(local, again, "hand-back", reason="going down")).status == 200
    (third,) = (await claim(local))["tasks"]
    assert third["run"] == 2
    cancel = {"change": "cancel", "reason": "no use"}
    await local.ask("POST", "/graphs/g/changes?unguarded=1", data=cancel)
    async with asyncio.timeout(20):
        while not (await local.get("/graphs/g")).json["state"].startswith("cancel"):
            await asyncio.sleep(0.02)
    renewed = (await claim(local, slots=0, renew=[third["claim"], make["claim"]]))["renewed"]
    assert [(each["cancel"], each["reason"], bool(each["stale"])) for each in renewed] == [
        (True, "no use", False),
        (False, None, True),
    ]
    assert (await about(local, third, "fail", end="broken")).status == 200
    assert await local.ended("g") == "cancelled"


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("/targets/far:claim", {}, "invalid-graph"),
        ("/targets/far:claim", {"worker": "w", "slots": 101}, "invalid-graph"),
        ("/targets/far:claim", {"worker": "w", "leaseSeconds": 21_601}, "invalid-graph"),
        ("/targets/far:claim", {"worker": "w", "unknown": 1}, "invalid-graph"),
        ("/targets/far:claim", {"worker": "w", "done": [{"claim": "x", "end": "completed"}]}, "invalid-input"),
        ("/targets/Far:claim", {"worker": "w"}, "invalid-input"),
        ("/runs/x:renew", {}, "invalid-input"),
        ("/runs/x:fail", {"end": "completed"}, "invalid-graph"),
    ],
)
async def test_what_is_wrong(local: Server, path: str, body: Mapping[str, Any], code: str) -> None:
    answer = await local.ask("POST", path, data=dict(body))
    assert (answer.status, answer.code) == (400, code), answer


async def test_a_task_for_a_shell(local: Server) -> None:
    await submitted(local)
    empty = await local.ask("POST", "/targets/none:claim", data={"worker": "w"}, accept=SHELL)
    assert (empty.status, empty.data) == (200, b"")
    answer = await local.ask("POST", "/targets/far:claim", data={"worker": "w"}, accept=SHELL)
    assert answer.headers["content-type"].startswith(SHELL)
    script = answer.data.decode() + 'eval "$command"; echo "$label $run $graph ${claim%%.*}"'
    shell = await asyncio.create_subprocess_exec("sh", "-c", script, stdout=asyncio.subprocess.PIPE)
    assert (await shell.communicate())[0] == b"it works\nmake 0 g g\n"
    refused = await local.ask("POST", "/targets/far:claim", data={"worker": "w", "slots": 2}, accept=SHELL)
    assert (refused.status, refused.code) == (400, "slots")


async def test_what_waits_ends_with_its_sender_and_with_the_server(local: Server) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await claim(local, wait=60)
    await submitted(local)
    (make,) = (await claim(local, wait=10))["tasks"]  # not given to the one that went away
    assert make["run"] == 0
    waiting = asyncio.create_task(claim(local, wait=60))
    await asyncio.sleep(0.1)
    local.stop.set()
    assert (await asyncio.wait_for(waiting, 5))["tasks"] == []


async def test_a_drained_worker(local: Server) -> None:
    await submitted(local)
    await claim(local, "none")
    assert (await local.ask("POST", "/workers/w-1:drain?exit=1")).status == 200
    local.app.gateway.crew = Crew(local.app.tables, local.app.clock, "")  # of a server that has just begun
    answer = await claim(local, "none", wait=1)
    assert (answer["tasks"], answer["draining"], answer["exit"]) == ([], "finish", True)


async def test_tokens_of_workers(tmp_path: Path) -> None:
    async with serving(f"sqlite:///{tmp_path}/store.db", tmp_path, anonymous=False) as server:
        _, gpu = await tokens.create(server.app, "gpu", Role.WORKER, targets=["gpu-*", "cpu"])
        ask = {"data": {"worker": "w", "slots": 3}, "token": gpu}
        assert (await server.ask("POST", "/targets/gpu-7:claim", **ask)).status == 200
        assert (await server.ask("POST", "/targets/cpu:claim", **ask)).status == 200
        refused = await server.ask("POST", "/targets/cpus:claim", **ask)
        assert (refused.status, refused.code) == (403, "scope")
        assert refused.json["detail"] == "the token gpu is for targets gpu-*, cpu alone"
        (listed,) = [each for each in await tokens.listed(server.app) if each.name == "gpu"]
        assert listed.targets == ("gpu-*", "cpu")
        many = {"tasks": {f"t{number}": {"task": {"target": "cpu"}} for number in range(6)}}
        await server.ask("PUT", "/graphs/g", data=many, token=server.tokens[Role.SUBMITTER])
        server.app.gateway.in_flight_max = 4
        found = [await server.ask("POST", "/targets/cpu:claim", **ask) for _ in range(3)]
        assert [len(each.json.get("tasks", ())) for each in found] == [3, 1, 0]
        assert (found[2].status, found[2].code, found[2].headers["Retry-After"]) == (429, "in-flight", "1")
        done = [{"claim": each["claim"], "end": "completed"} for each in found[0].json["tasks"]]
        ask["data"] = {"worker": "w", "slots": 3, "done": done}
        answer = await server.ask("POST", "/targets/cpu:claim", **ask)
        assert len(answer.json["tasks"]) == 2
    for wrong in ({"role": Role.ADMIN, "targets": ["x"]}, {"role": Role.WORKER, "targets": ["X"]}):
        with pytest.raises(InvalidInput, match="target"):
            await tokens.create(server.app, "other", **wrong)


def test_examples_are_right() -> None:
    from taskgraph.model import schemas

    parts = schemas.schema("work")["$defs"]
    examples = [(name, each) for name, part in parts.items() for each in part.get("examples", ())]
    assert len(examples) >= 8
    for name, each in examples:
        assert schemas.validator("work", f"#/$defs/{name}").is_valid(each), json.dumps(each)
