"""The old scheduler's methods: forms of answers, what is refused and how, and signatures by Hawk."""

import asyncio
import base64
import hashlib
import hmac
import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import mohawk
import pytest
from mohawk.base import Resource
from mohawk.bewit import get_bewit

from taskgraph.interfaces.operations import tokens
from taskgraph.interfaces.taskcluster import documents
from taskgraph.interfaces.taskcluster.methods import METHODS
from taskgraph.model import schemas
from taskgraph.model.flag import Flag
from taskgraph.model.ids import slugid_from
from taskgraph.model.names import OLD_TASKS
from taskgraph.model.roles import Role
from taskgraph.storage.tables import Range, query_all
from taskgraph.worker.executors import built_in
from tests.http.serving import Answer, Server, serving

Json = dict[str, Any]

METADATA: Final = {"name": "n", "description": "d", "owner": "a@b.example", "source": "http://example.com/"}
TASK: Final = {
    "provisionerId": "dummy",
    "workerType": "dummy",
    "created": "2026-01-01T00:00:00.000Z",
    "deadline": "2126-01-01T00:00:00.000Z",
    "payload": {},
    "metadata": METADATA,
}


def slugid(text: str) -> str:
    return slugid_from(hashlib.sha256(text.encode()).digest())


G, A, B, C = map(slugid, "gabc")


def node(task_id: str, *requires: str, **task: Any) -> Json:
    return {"taskId": task_id, "requires": list(requires), "task": {**TASK, **task}}


def graph(*nodes: Json, **more: Any) -> Json:
    return {"scopes": ["*"], "metadata": METADATA, "tags": {"k": "v"}, "tasks": list(nodes), **more}


@pytest.fixture
async def old(place: str, tmp_path: Path) -> AsyncIterator[Server]:
    """A server that answers old clients, without signatures."""
    async with serving(place, tmp_path, old_clients=True) as made:
        yield made


@pytest.fixture
async def signed(tmp_path: Path) -> AsyncIterator[Server]:
    """The same, on a file, with a token for each role."""
    async with serving(f"sqlite:///{tmp_path}/store.db", tmp_path, anonymous=False, old_clients=True) as made:
        yield made


async def call(server: Server, method: str, path: str, body: Any = None, **headers: str) -> Answer:
    data = None if body is None else json.dumps(body)
    named = {**({"Content-Type": "application/json"} if data else {}), **headers}
    async with server.session.request(method, f"{server.address}/v1{path}", data=data, headers=named) as answer:
        found = Answer(answer.status, answer.headers, await answer.read())
    if found.status != 200:
        assert set(found.json) <= {"message", "error"}
        assert found.json["message"]
    return found


def fits(answer: Answer, name: str) -> Json:
    assert answer.status == 200, answer
    gives = next(each.gives for each in METHODS if each.name == name)
    errors = schemas.validator("taskcluster", f"#/$defs/{gives}").iter_errors(answer.json)
    assert [each.message for each in errors] == []
    return dict(answer.json)


async def test_each_method_answers_in_its_form(old: Server) -> None:
    place, body = f"/task-graph/{G}", graph(node(A))
    state = {"status": {"taskGraphId": G, "schedulerId": "task-graph-scheduler", "state": "running"}}
    for _ in range(2):
        assert fits(await call(old, "PUT", place, body), "createTaskGraph") == state
    for _ in range(2):
        more = {"tasks": [{**node(B, A), "reruns": 1}]}
        assert fits(await call(old, "POST", f"{place}/extend", more), "extendTaskGraph") == state
    assert fits(await call(old, "PUT", place, body), "createTaskGraph") == state
    assert fits(await call(old, "GET", f"{place}/status"), "status") == state
    info = {**state, "metadata": METADATA, "tags": {"k": "v"}}
    assert fits(await call(old, "GET", f"{place}/info"), "info") == info
    found = fits(await call(old, "GET", f"{place}/inspect"), "inspect")
    assert {key: found[key] for key in info} == info
    assert found["scopes"] == ["*"]
    first, second = sorted(found["tasks"], key=lambda one: len(one["requires"]))
    common = {"name": "n", "satisfied": False}
    assert first == {
        **common,
        "taskId": A,
        "requires": [],
        "requiresLeft": [],
        "reruns": 0,
        "rerunsLeft": 0,
        "state": "scheduled",
        "dependents": [B],
    }
    assert second == {
        **common,
        "taskId": B,
        "requires": [A],
        "requiresLeft": [A],
        "reruns": 1,
        "rerunsLeft": 1,
        "state": "unscheduled",
        "dependents": [],
    }
    for each in (first, second):
        assert fits(await call(old, "GET", f"{place}/inspect/{each['taskId']}"), "inspectTask") == each
    ping = (await call(old, "GET", "/ping")).json
    assert ping["alive"] is True
    assert ping["uptime"] > 0


async def test_wide_edges_are_inspected_as_they_were_written(old: Server) -> None:
    before, after = [slugid(f"a{n}") for n in range(150)], [slugid(f"b{n}") for n in range(120)]
    nodes = [*map(node, before), node(C, *before), *(node(each, C) for each in after)]
    assert (await call(old, "PUT", f"/task-graph/{G}", graph(*nodes))).status == 200
    found = fits(await call(old, "GET", f"/task-graph/{G}/inspect"), "inspect")
    by_id = {each["taskId"]: each for each in found["tasks"]}
    assert len(by_id) == len(nodes)
    assert set(by_id[C]["requires"]) == set(by_id[C]["requiresLeft"]) == set(before)
    assert set(by_id[C]["dependents"]) == set(after)
    assert {tuple(by_id[each]["dependents"]) for each in before} == {(C,)}
    assert fits(await call(old, "GET", f"/task-graph/{G}/inspect/{C}"), "inspectTask") == by_id[C]


@pytest.mark.parametrize(
    ("nodes", "scopes", "errors"),
    [
        ([node(A)], [], 1),  # S3
        ([node(A)], ["queue:define-task:dummy/other"], 1),
        ([node(A, scopes=["secret"], routes=["r"])], ["queue:create-task:dummy/dummy", "secret"], 1),
        ([node(A, schedulerId="other")], ["*"], 1),  # S4
        ([node(A, taskGroupId=B)], ["*"], 1),  # S5
        ([node(A, schedulerId="other", taskGroupId=B), node(B, A, A, C)], ["*"], 4),
        ([node(A), node(A)], ["*"], 1),
        ([node(A, B), node(B, A)], ["*"], 1),
        ([], ["*"], 0),
        ([node("not-slugid", "nor this")], ["*"], 2),
        ([node(A, TaskGroupId=G)], ["*"], 1),
        ([node(A, payload={"$result": "x"})], ["*"], 1),
    ],
)
async def test_what_is_wrong_with_tasks_is_said_at_once(
    old: Server, nodes: list[Json], scopes: list[str], errors: int
) -> None:
    answer = await call(old, "PUT", f"/task-graph/{G}", graph(*nodes, scopes=scopes))
    assert (answer.status, len(answer.json.get("error", []))) == (400, errors), answer
    assert (await call(old, "GET", f"/task-graph/{G}/status")).status == 404


@pytest.mark.parametrize("data", ["", "x", "[]", '{"tasks": []}', '{"a": 1, "a": 2}', '"\\ud800"', "NaN"])
async def test_what_is_no_body_is_refused(old: Server, data: str) -> None:
    for method, path in (("PUT", f"/task-graph/{G}"), ("POST", f"/task-graph/{G}/extend")):
        async with old.session.request(method, f"{old.address}/v1{path}", data=data) as answer:
            assert (answer.status, bool((await answer.json())["message"])) in {(400, True), (404, True)}


async def test_what_is_not_there_is_404_and_what_differs_409(old: Server) -> None:
    place = f"/task-graph/{G}"
    for each in ("status", "info", "inspect", f"inspect/{A}"):
        answer = await call(old, "GET", f"{place}/{each}")
        assert (answer.status, answer.json["message"]) == (404, "task-graph not found!")
    assert (await call(old, "POST", f"{place}/extend", {"tasks": [node(A)]})).status == 404
    assert (await call(old, "PUT", "/task-graph/nightly", graph(node(A)))).status == 400
    assert (await call(old, "PUT", place, graph(node(A)))).status == 200
    assert (await call(old, "GET", f"{place}/inspect/{B}")).status == 404
    for body in (graph(node(A), tags={}), graph(node(A, payload={"x": 1})), graph(node(B))):
        answer = await call(old, "PUT", place, body)
        message = "Different TaskGraph with given taskGraphId already exists"
        assert (answer.status, answer.json["message"]) == (409, message)
    answer = await call(old, "POST", f"{place}/extend", {"tasks": [node(A, payload={"x": 1})]})
    assert (answer.status, answer.json["message"]) == (409, "Different TaskId with given TaskId already exists")
    assert (await call(old, "POST", f"{place}/extend", {"tasks": [node(B, C)]})).status == 400
    for method, path in (("GET", "/nothing"), ("DELETE", place), ("GET", "/schemas/none.json")):
        assert (await call(old, method, path)).status in (404, 405)


async def test_a_graph_of_commands_runs_on_workers_of_this_time(tmp_path: Path) -> None:
    async with serving(f"sqlite:///{tmp_path}/store.db", tmp_path, old_clients=True, slots=0) as server:
        done = {"payload": {"command": ["true"], "env": {"A": "b"}, "maxRunTime": 60}}
        nodes = [node(A, **done), node(B, A, **done), node(C, **{**done, "payload": {"command": ["false"]}})]
        assert (await call(server, "PUT", f"/task-graph/{G}", graph(*nodes))).status == 200
        detail = await server.app.queries.task(G, A)
        assert documents.definition(detail.definition) == {
            **nodes[0]["task"],
            "routes": [],
            "priority": "normal",
            "retries": 5,
            "scopes": [],
            "tags": {},
            "extra": {},
            "schedulerId": "task-graph-scheduler",
            "taskGroupId": G,
        }
        worker = server.app.worker(built_in(server.app.clock), targets=[detail.status.target])
        stop = Flag()
        working = asyncio.create_task(worker.run(stop))
        try:
            assert await server.ended(G) == "blocked"
            async with asyncio.timeout(20):
                while not (await server.app.queries.task(G, B)).status.resolved:
                    await asyncio.sleep(0.02)
        finally:
            stop.set()
            await working
        found = fits(await call(server, "GET", f"/task-graph/{G}/inspect"), "inspect")
        assert found["status"]["state"] == "blocked"
        seen = {each["taskId"]: (each["state"], each["satisfied"]) for each in found["tasks"]}
        assert seen == {A: ("completed", True), B: ("completed", True), C: ("completed", False)}


async def test_a_finished_graph_takes_no_tasks_and_its_repeat_is_the_same(old: Server) -> None:
    document = {"tasks": {"any text": {"task": {"executor": "noop"}}}, "metadata": {"name": "new"}}
    assert (await old.ask("PUT", f"/graphs/{G}", data=document)).status == 201
    assert await old.ended(G) == "finished"
    found = fits(await call(old, "GET", f"/task-graph/{G}/inspect"), "inspect")
    assert found["status"]["state"] == "finished"
    assert found["metadata"] == {"name": "new", "description": "", "owner": "", "source": ""}
    assert [each["name"] for each in found["tasks"]] == ["any text"]
    answer = await call(old, "POST", f"/task-graph/{G}/extend", {"tasks": [node(A)]})
    assert (answer.status, answer.json["message"][:26]) == (400, "The scopes of the graph do")


def test_workers_of_the_old_queue_have_targets_that_differ() -> None:
    pairs = [("aws", "gecko"), ("a-b", "c"), ("a", "b-c"), ("A", "b"), ("a", "b"), ("x" * 22, "y" * 22), ("tc", "x")]
    targets = [documents.target_of(*each) for each in pairs]
    assert (targets[0], targets[4]) == ("aws-gecko", "a-b")
    assert len(set(targets)) == len(pairs)
    target = schemas.schema("task-graph")["$defs"]["task"]["properties"]["target"]
    assert all(re.fullmatch(target["pattern"], each) and len(each) <= 40 for each in targets)


async def test_schemas_are_served_by_their_old_names(old: Server) -> None:
    for each in METHODS:
        for name in filter(None, (each.gives, each.takes)):
            served = (await call(old, "GET", f"/schemas/{name}.json")).json
            assert served["$defs"][name] == schemas.schema("taskcluster")["$defs"][name]


# -- the queue

WORKER: Final = {"workerGroup": "group", "workerId": "worker"}


def shaped(answer: Answer, schema: str) -> Json:
    assert answer.status == 200, answer
    errors = schemas.validator("taskcluster", f"#/$defs/{schema}").iter_errors(answer.json)
    assert [f"{each.json_path} {each.message}" for each in errors] == []
    return dict(answer.json)


@pytest.fixture
async def queue(place: str, tmp_path: Path) -> AsyncIterator[Server]:
    """A server that answers old clients, without workers of its own."""
    async with serving(place, tmp_path, old_clients=True, slots=0) as made:
        yield made


async def test_a_run_goes_from_claim_to_report(queue: Server) -> None:
    given = {**TASK, "routes": ["r"], "taskGroupId": G, "extra": {"x": 1}}
    for _ in range(2):
        made = shaped(await call(queue, "PUT", f"/task/{A}", given), "task-status-response")["status"]
    assert (made["state"], made["taskGroupId"], made["retriesLeft"]) == ("pending", G, 5)
    assert made["expires"] == "2127-01-01T00:00:00.000Z"
    assert shaped(await call(queue, "GET", f"/task/{A}"), "task") == {
        "priority": "normal",
        "retries": 5,
        "scopes": [],
        "tags": {},
        "schedulerId": "task-graph-scheduler",
        **given,
    }
    listed = shaped(await call(queue, "GET", f"/task-group/{A}/list"), "list-task-group-response")
    assert listed["tasks"][0]["status"] == made
    (run,) = made["runs"]
    assert (run["runId"], run["state"], run["reasonCreated"]) == (0, "pending", "scheduled")
    place = f"/task/{A}/runs/0"
    first = shaped(await call(queue, "POST", f"{place}/claim", WORKER), "task-claim-response")
    again = shaped(await call(queue, "POST", f"{place}/claim", WORKER), "task-claim-response")  # its answer was lost
    assert again["takenUntil"] >= first["takenUntil"]
    assert {key: first[key] for key in WORKER} == WORKER
    (run,) = first["status"]["runs"]
    assert (run["state"], run["workerGroup"], run["workerId"]) == ("running", "group", "worker")
    other = {**WORKER, "workerId": "other"}
    assert (await call(queue, "POST", f"{place}/claim", other)).status == 409
    more = shaped(await call(queue, "POST", f"{place}/reclaim"), "task-reclaim-response")
    assert {key: more[key] for key in WORKER} == WORKER
    for body, status in (({"reason": "bored"}, 400), ({}, 400), ({"reason": "intermittent-task"}, 200)):
        assert (await call(queue, "POST", f"{place}/exception", body)).status == status
    now = shaped(await call(queue, "GET", f"/task/{A}/status"), "task-status-response")["status"]
    assert [(each["runId"], each.get("reasonResolved")) for each in now["runs"]] == [
        (0, "intermittent-task"),
        (1, None),
    ]
    assert now["runs"][1]["reasonCreated"] == "task-retry"
    for each in ("completed", "reclaim"):
        assert (await call(queue, "POST", f"{place}/{each}")).status == 409


@pytest.mark.parametrize(
    ("report", "body", "state", "reason", "runs"),
    [
        ("completed", None, "completed", "completed", 1),
        ("failed", None, "failed", "failed", 1),
        ("exception", {"reason": "malformed-payload"}, "exception", "malformed-payload", 1),
        ("exception", {"reason": "resource-unavailable"}, "exception", "resource-unavailable", 1),
        ("exception", {"reason": "internal-error"}, "exception", "internal-error", 1),
        ("exception", {"reason": "superseded"}, "exception", "superseded", 1),
        ("exception", {"reason": "worker-shutdown"}, "pending", "worker-shutdown", 2),
    ],
)
async def test_each_report_has_its_end(
    queue: Server, report: str, body: Any, state: str, reason: str, runs: int
) -> None:
    await call(queue, "PUT", f"/task/{A}", TASK)
    await call(queue, "POST", f"/task/{A}/runs/0/claim", WORKER)
    for _ in range(2):  # the same again is answered as before
        found = shaped(await call(queue, "POST", f"/task/{A}/runs/0/{report}", body), "task-status-response")["status"]
        assert (found["state"], len(found["runs"]), found["runs"][0]["reasonResolved"]) == (state, runs, reason)
    if runs == 1:
        assert (await call(queue, "POST", f"/task/{A}/runs/0/claim", WORKER)).status == 409
        back = shaped(await call(queue, "POST", f"/task/{A}/rerun"), "task-status-response")["status"]
        assert [each["state"] for each in back["runs"]][1:] == ["pending"]


async def test_work_of_any_client_is_claimed_and_reported(queue: Server) -> None:
    target = documents.target_of("aws", "build")
    document = {"tasks": {"any text": {"task": {"target": target, "executor": "mine", "payload": {"x": 1}}}}}
    assert (await queue.ask("PUT", "/graphs/nightly", data=document)).status == 201
    nodes = [node(A, workerType="build", provisionerId="aws"), node(B, workerType="build", provisionerId="aws")]
    assert (await call(queue, "PUT", f"/task-graph/{G}", graph(*nodes))).status == 200
    pending = shaped(await call(queue, "GET", "/pending/aws/build"), "pending-tasks-response")
    assert pending == {"provisionerId": "aws", "workerType": "build", "pendingTasks": 3}
    found: list[Json] = []
    while len(found) < 3:
        body = {**WORKER, "tasks": 3}
        found += shaped(await call(queue, "POST", "/claim-work/aws/build", body), "claim-work-response")["tasks"]
    assert {each["task"]["taskGroupId"] for each in found} == {G, "nightly"}
    assert (await call(queue, "GET", "/pending/aws/build")).json["pendingTasks"] == 0
    for each in found:
        task_id = each["status"]["taskId"]
        done = shaped(await call(queue, "POST", f"/task/{task_id}/runs/0/completed"), "task-status-response")
        assert done["status"]["state"] == "completed"
    assert await queue.ended("nightly") == await queue.ended(G) == "finished"


async def test_what_is_cancelled_is_not_reclaimed(queue: Server) -> None:
    for each in (A, B):
        await call(queue, "PUT", f"/task/{each}", TASK)
    await call(queue, "POST", f"/task/{A}/runs/0/claim", WORKER)
    for each in (A, A, B):
        found = shaped(await call(queue, "POST", f"/task/{each}/cancel"), "task-status-response")["status"]
        assert (found["state"], found["runs"][0]["reasonResolved"]) == ("exception", "canceled")
    for each in ("reclaim", "completed"):
        assert (await call(queue, "POST", f"/task/{A}/runs/0/{each}")).status == 409
    assert (await call(queue, "POST", f"/task/{B}/runs/0/claim", WORKER)).status == 409


async def test_a_task_is_of_one_graph(queue: Server) -> None:
    assert (await call(queue, "PUT", f"/task-graph/{G}", graph(node(A)))).status == 200
    message = "Different TaskId with given TaskId already exists"
    other = await call(queue, "PUT", f"/task-graph/{slugid('h')}", graph(node(A), node(B)))
    assert (other.status, other.json["message"]) == (409, message)
    assert (await call(queue, "PUT", f"/task/{A}", TASK)).status == 409
    await call(queue, "PUT", f"/task/{C}", TASK)
    more = await call(queue, "POST", f"/task-graph/{G}/extend", {"tasks": [node(C)]})
    assert (more.status, more.json["message"]) == (409, message)
    assert (await call(queue, "GET", f"/task/{B}/status")).status == 404
    assert (await call(queue, "PUT", f"/task-graph/{G}", graph(node(A)))).status == 200
    # One that was entered for a graph which never came is free.
    assert (await call(queue, "PUT", f"/task/{B}", TASK)).status == 200


async def test_tasks_of_a_graph_that_is_deleted_are_forgotten_and_come_back_with_it(queue: Server) -> None:
    place = f"/task-graph/{G}"
    assert (await call(queue, "PUT", place, graph(node(A), node(B)))).status == 200
    who = {"workerGroup": "group", "workerId": "worker"}
    for task_id in (A, B):
        assert (await call(queue, "POST", f"/task/{task_id}/runs/0/claim", who)).status == 200
        assert (await call(queue, "POST", f"/task/{task_id}/runs/0/completed")).status == 200
    assert await queue.ended(G) == "finished"
    written = await queue.get(f"/graphs/{G}/archive")
    assert (await queue.ask("DELETE", f"/graphs/{G}")).status == 200
    assert await query_all(queue.app.tables, OLD_TASKS, Range()) == []
    for path in (f"/task/{A}/status", f"{place}/status"):
        assert (await call(queue, "GET", path)).status == 404
    assert (await call(queue, "PUT", f"/task/{B}", TASK)).status == 200  # its id is free, and another's from now on
    assert (await queue.ask("POST", "/archives", data=written.data)).status == 201
    assert (await call(queue, "GET", f"/task/{A}/status")).json["status"]["state"] == "completed"
    assert (await call(queue, "GET", f"/task/{B}/status")).json["status"]["taskGroupId"] == B
    assert (await call(queue, "GET", f"{place}/status")).json["status"]["state"] == "finished"


async def test_a_paused_target_gives_nothing(queue: Server) -> None:
    await call(queue, "PUT", f"/task/{A}", TASK)
    assert (await queue.ask("POST", f"/targets/{documents.target_of('dummy', 'dummy')}:pause")).status == 200
    answer = await call(queue, "POST", f"/task/{A}/runs/0/claim", WORKER)
    assert (answer.status, "paused" in answer.json["message"]) == (409, True)


# -- signatures


def sign(
    server: Server, method: str, path: str, body: Any, name: str, key: str, ext: Any = None, **more: Any
) -> dict[str, str]:
    data = json.dumps(body) if body is not None else ""
    packed = None if ext is None else base64.urlsafe_b64encode(json.dumps(ext).encode()).decode().rstrip("=")
    sender = mohawk.Sender(
        {"id": name, "key": key, "algorithm": "sha256"},
        f"{server.address}/v1{path}",
        method,
        content=data,
        content_type="application/json" if data else "",
        ext=packed,
        **more,
    )
    return {"Authorization": sender.request_header}


async def ask(
    server: Server, method: str, path: str, body: Any, name: str, key: str, ext: Any = None, **more: Any
) -> Answer:
    return await call(server, method, path, body, **sign(server, method, path, body, name, key, ext, **more))


async def test_each_role_signs_for_what_it_may(signed: Server) -> None:
    own = ["queue:define-task:dummy/dummy"]
    calls = {
        "createTaskGraph": ("PUT", f"/task-graph/{G}", graph(node(A), scopes=own)),
        "extendTaskGraph": ("POST", f"/task-graph/{G}/extend", {"tasks": [node(A)]}),
        "status": ("GET", f"/task-graph/{G}/status", None),
        "info": ("GET", f"/task-graph/{G}/info", None),
        "inspect": ("GET", f"/task-graph/{G}/inspect", None),
        "inspectTask": ("GET", f"/task-graph/{G}/inspect/{A}", None),
    }
    for role in (Role.ADMIN, *Role):
        for name, (method, path, body) in calls.items():
            writes = body is not None
            allowed = role.may(Role.SUBMITTER if writes else Role.READER)
            answer = await ask(signed, method, path, body, str(role), signed.tokens[role])
            assert answer.status == (200 if allowed else 401), (role, name, answer)
            assert (await call(signed, method, path, body)).status == 401
    assert (await call(signed, "GET", "/ping")).status == 200


async def test_a_submitter_grants_no_more_than_it_has(signed: Server) -> None:
    for scopes, status in ((["*"], 401), (["queue:define-task:*", "x"], 401), (["queue:define-task:*"], 200)):
        body = graph(node(A), scopes=scopes)
        answer = await ask(signed, "PUT", f"/task-graph/{G}", body, "submitter", signed.tokens[Role.SUBMITTER])
        assert answer.status == status, answer


async def test_what_is_signed_wrongly_is_refused(signed: Server) -> None:
    key, path = signed.tokens[Role.ADMIN], f"/task-graph/{G}"
    body = graph(node(A))
    now = int(signed.app.clock.now().timestamp())
    assert (await ask(signed, "PUT", path, body, "admin", key + "x")).status == 401
    assert (await ask(signed, "PUT", path, body, "none", key)).status == 401
    assert (await ask(signed, "PUT", path, body, "admin", key, _timestamp=str(now - 120))).status == 401
    assert (await ask(signed, "PUT", path, body, "admin", key, _timestamp=str(now + 120))).status == 401
    other = sign(signed, "PUT", path, graph(node(B)), "admin", key)
    assert (await call(signed, "PUT", path, body, **other)).status == 401  # its content has another hash
    elsewhere = sign(signed, "PUT", f"/task-graph/{slugid('h')}", body, "admin", key)
    assert (await call(signed, "PUT", path, body, **elsewhere)).status == 401
    for text in ("Hawk", "Hawk x", 'Hawk id="admin"', "Bearer x", 'Hawk id="a", ts="x", nonce="y", mac="z", ext="@"'):
        assert (await call(signed, "PUT", path, body, Authorization=text)).status == 401, text
    _, plain = await tokens.create(signed.app, "plain", Role.ADMIN)
    assert (await ask(signed, "PUT", path, body, "plain", plain)).status == 401
    good = sign(signed, "PUT", path, body, "admin", key)
    assert (await call(signed, "PUT", path, body, **good)).status == 200
    assert (await call(signed, "PUT", path, body, **good)).status == 401  # the same nonce again
    _, mine = await tokens.create(signed.app, "mine", Role.ADMIN, graphs=["other-*"], hawk=True)
    assert (await ask(signed, "GET", f"{path}/status", None, "mine", mine)).status == 401


async def test_a_request_may_be_signed_for_less(signed: Server) -> None:
    key, path = signed.tokens[Role.SUBMITTER], f"/task-graph/{G}"
    body = graph(node(A), scopes=["queue:define-task:dummy/dummy"])
    for wanted, status in (
        (["queue:define-task:*"], 401),
        (["*"], 401),
        (["scheduler:create-task-graph", "queue:define-task:dummy/*"], 200),
    ):
        answer = await ask(signed, "PUT", path, body, "submitter", key, {"authorizedScopes": wanted})
        assert answer.status == status, (wanted, answer)


async def test_a_claim_lends_what_its_run_needs(signed: Server) -> None:
    admin, worker = signed.tokens[Role.ADMIN], signed.tokens[Role.WORKER]
    for each in (A, B):
        assert (await ask(signed, "PUT", f"/task/{each}", TASK, "admin", admin)).status == 200
    for role in Role:
        if role not in (Role.WORKER, Role.ADMIN):
            key = signed.tokens[role]
            assert (await ask(signed, "POST", f"/task/{A}/runs/0/claim", WORKER, str(role), key)).status == 401
    claimed = (await ask(signed, "POST", f"/task/{A}/runs/0/claim", WORKER, "worker", worker)).json
    lent = claimed["credentials"]
    assert (await ask(signed, "POST", f"/task/{B}/runs/0/claim", WORKER, "worker", worker)).status == 200

    async def by_lent(path: str, body: Any = None) -> int:
        ext = {"certificate": json.loads(lent["certificate"])}
        answer = await ask(signed, "POST", path, body, lent["clientId"], lent["accessToken"], ext)
        return answer.status

    assert await by_lent(f"/task/{A}/runs/0/reclaim") == 200
    assert await by_lent(f"/task/{B}/runs/0/completed") == 401
    assert await by_lent(f"/task/{B}/runs/0/claim", WORKER) == 401
    assert await by_lent("/claim-work/dummy/dummy", WORKER) == 401
    assert await by_lent(f"/task/{A}/runs/0/completed") == 200


async def test_a_limited_token_gets_no_work_of_others(signed: Server) -> None:
    admin, work, run = signed.tokens[Role.ADMIN], "/claim-work/dummy/dummy", f"/task/{A}/runs/0"
    assert (await ask(signed, "PUT", f"/task/{A}", TASK, "admin", admin)).status == 200
    limits: dict[str, Any] = {"elsewhere": {"targets": ["gpu-*"]}, "mine": {"graphs": ["other-*"]}}
    for name, limited in limits.items():
        role = Role.WORKER if "targets" in limited else Role.ADMIN
        _, key = await tokens.create(signed.app, name, role, hawk=True, **limited)
        for method, path, body in (
            ("GET", "/pending/dummy/dummy", None),
            ("POST", work, WORKER),
            ("POST", f"{run}/claim", WORKER),
            ("POST", f"{run}/completed", None),
        ):
            assert (await ask(signed, method, path, body, name, key)).status == 401, (name, path)
    _, key = await tokens.create(signed.app, "fits", Role.WORKER, hawk=True, targets=["dummy-*"])
    assert len((await ask(signed, "POST", work, WORKER, "fits", key)).json["tasks"]) == 1
    assert (await ask(signed, "POST", f"{run}/completed", None, "fits", key)).status == 200


async def test_a_token_has_so_many_runs_in_hand(signed: Server) -> None:
    admin, worker, work = signed.tokens[Role.ADMIN], signed.tokens[Role.WORKER], "/claim-work/dummy/dummy"
    for each in (A, B):
        assert (await ask(signed, "PUT", f"/task/{each}", TASK, "admin", admin)).status == 200
    signed.app.gateway.in_flight_max = 1
    (first,) = (await ask(signed, "POST", work, {**WORKER, "tasks": 4}, "worker", worker)).json["tasks"]
    assert (await ask(signed, "POST", work, WORKER, "worker", worker)).status == 429
    done = f"/task/{first['status']['taskId']}/runs/0/completed"
    assert (await ask(signed, "POST", done, None, "worker", worker)).status == 200
    assert len((await ask(signed, "POST", work, WORKER, "worker", worker)).json["tasks"]) == 1


def temporary(
    server: Server, issuer: str, key: str, scopes: list[str], name: str = "", hours: float = 1
) -> tuple[str, str, Json]:
    """As the old client makes it: a name, a key, and the certificate that goes with these."""
    now = server.app.clock.now()
    start, end = (int((now + timedelta(hours=each)).timestamp()) * 1000 for each in (-0.01, hours))
    made: Json = {"version": 1, "scopes": scopes, "start": start, "expiry": end, "seed": slugid("seed") * 2}
    lines = ["version:1"]
    if name:
        made["issuer"] = issuer
        lines += [f"clientId:{name}", f"issuer:{issuer}"]
    lines += [f"seed:{made['seed']}", f"start:{start}", f"expiry:{end}", "scopes:", *scopes]
    signature = hmac.new(key.encode(), "\n".join(lines).encode(), hashlib.sha256).digest()
    made["signature"] = base64.b64encode(signature).decode()
    derived = hmac.new(key.encode(), made["seed"].encode(), hashlib.sha256).digest()
    return name or issuer, base64.urlsafe_b64encode(derived).decode().rstrip("="), made


async def test_temporary_credentials_do_what_their_certificate_says(signed: Server) -> None:
    key, path = signed.tokens[Role.SUBMITTER], f"/task-graph/{G}"
    body = graph(node(A), scopes=["queue:define-task:dummy/dummy"])
    enough = ["scheduler:create-task-graph", "queue:define-task:*"]
    for name in ("", "for/a/while"):
        for scopes, hours, status in (
            (enough, 1, 200),
            (enough, -0.005, 401),  # it has ended
            (enough, 24 * 32, 401),
            (enough[:1], 1, 401),
            (["*"], 1, 401),
        ):
            who, derived, certificate = temporary(signed, "submitter", key, scopes, name, hours)
            answer = await ask(signed, "PUT", path, body, who, derived, {"certificate": certificate})
            assert answer.status == status, (name, scopes, hours, answer)
        who, derived, certificate = temporary(signed, "submitter", key, enough, name)
        for spoilt in ({"scopes": ["*"]}, {"expiry": certificate["expiry"] + 1}, {"signature": "x"}, {"seed": "y"}):
            more = {"certificate": {**certificate, **spoilt}}
            assert (await ask(signed, "PUT", path, body, who, derived, more)).status == 401, spoilt


async def test_an_address_may_be_signed(signed: Server) -> None:
    key, path = signed.tokens[Role.READER], "/graphs"
    document = {"tasks": {"a": {"task": {"executor": "noop"}}}}
    assert (await signed.ask("PUT", f"/graphs/{G}", data=document, token=signed.tokens[Role.ADMIN])).status == 201
    path = f"/task-graph/{G}/status"
    now = int(signed.app.clock.now().timestamp())
    for seconds, secret, status in ((60, key, 200), (-60, key, 401), (60, "other", 401)):
        credentials = {"id": "reader", "key": secret, "algorithm": "sha256"}
        url = f"{signed.address}/v1{path}"
        resource = Resource(
            url=url,
            method="GET",
            credentials=credentials,
            timestamp=now + seconds,
            nonce="",
            content="",
            ext="",
            content_type="",
        )
        bewit = get_bewit(resource).rstrip("=")
        assert (await call(signed, "GET", f"{path}?bewit={bewit}")).status == status
    assert (await call(signed, "GET", f"{path}?bewit=eHg")).status == 401


def test_without_what_reads_signatures_the_remedy_is_named(tmp_path: Path) -> None:
    code = "import sys; sys.modules['mohawk'] = None; from taskgraph.__main__ import main; main()"
    store = f"sqlite:///{tmp_path}/store.db"
    options = ("serve", "--store", store, "--http", "0", "--no-auth", "--taskcluster")
    done = subprocess.run([sys.executable, "-c", code, *options], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "pip install 'taskgraph-scheduler[taskcluster]'" in done.stderr
    alone = subprocess.run(
        [sys.executable, "-m", "taskgraph", "serve", "--taskcluster"], capture_output=True, text=True
    )
    assert (alone.returncode, "go with --http" in alone.stderr) == (2, True)
