"""The old scheduler's methods of 2014: graphs by labels, with parameters; and access to the rows of a graph."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
from azure.core.credentials import AzureSasCredential
from azure.data.tables import TableClient

from taskgraph.model import schemas
from taskgraph.model.roles import Role
from taskgraph.protocol.old_scheduler import SLUGID
from tests.http.serving import Server, serving
from tests.http.test_taskcluster import METADATA, A, B, ask, call, shaped

Json = dict[str, Any]

WORKER: Final = {"workerGroup": "group", "workerId": "worker"}


def task(**more: Any) -> Json:
    return {
        "version": "0.2.0",
        "provisionerId": "aws",
        "workerType": "test",
        "routing": "",
        "timeout": 600,
        "retries": 3,
        "priority": 5,
        "created": "2026-01-01T00:00:00.000Z",
        "deadline": "2126-01-01T00:00:00.000Z",
        "payload": {"image": "ubuntu:{{release}}"},
        "metadata": METADATA,
        "tags": {},
        **more,
    }


def graph(**more: Any) -> Json:
    return {
        "version": "0.2.0",
        "params": {"release": "24.04"},
        "routing": "nightly",
        "tasks": {
            "print-once": {"requires": [], "reruns": 2, "task": task(routing="linux")},
            "print-twice": {
                "requires": ["print-once"],
                "reruns": 0,
                "task": task(
                    payload={
                        "first": {"$subs": "taskId:print-once"},
                        "{{release}}": ["{{taskId:print-once}} of {{taskGraphId}}", 42, "{{unknown}}"],
                    }
                ),
            },
        },
        "metadata": METADATA,
        "tags": {"k": "v"},
        **more,
    }


@pytest.fixture
async def old(place: str, tmp_path: Path) -> AsyncIterator[Server]:
    async with serving(place, tmp_path, old_clients=True, slots=0) as made:
        yield made


async def create(server: Server, body: Json) -> str:
    made = shaped(await call(server, "POST", "/task-graph/create", body), "task-graph-status-response")["status"]
    graph_id = str(made["taskGraphId"])
    assert SLUGID.fullmatch(graph_id)
    assert made == {
        "taskGraphId": graph_id,
        "schedulerId": "task-graph-scheduler",
        "state": "running",
        "routing": body.get("routing", ""),
    }
    return graph_id


async def test_a_graph_by_labels_runs_and_is_shown_by_labels(old: Server) -> None:
    body = graph()
    graph_id = await create(old, body)
    place = f"/task-graph/{graph_id}"
    info = shaped(await call(old, "GET", f"{place}/info"), "task-graph-info-response")
    assert (info["status"]["routing"], info["metadata"], info["tags"]) == ("nightly", METADATA, {"k": "v"})
    found = shaped(await call(old, "GET", f"{place}/inspect"), "inspect-labelled-task-graph-response")
    assert {key: found[key] for key in info} == info
    assert found["params"] == {"release": "24.04"}
    once, twice = found["tasks"]["print-once"], found["tasks"]["print-twice"]
    assert once == {
        "taskId": once["taskId"],
        "taskUrl": f"{old.address}/v1/task/{once['taskId']}",
        "requires": [],
        "requiresLeft": [],
        "reruns": 2,
        "rerunsLeft": 2,
        "resolution": None,
        "dependents": [twice["taskId"]],
    }
    assert (twice["requires"], twice["requiresLeft"]) == ([once["taskId"]], [once["taskId"]])
    shown = shaped(await call(old, "GET", f"/task/{once['taskId']}"), "task")
    assert (shown["payload"], shown["taskGroupId"]) == ({"image": "ubuntu:24.04"}, graph_id)
    assert shown["extra"] == {"version": "0.2.0", "routing": "linux", "timeout": 600, "priority": 5}
    work = {**WORKER, "tasks": 1}
    for label, report in (("print-once", "failed"), ("print-once", "completed"), ("print-twice", "completed")):
        (claimed,) = (await call(old, "POST", "/claim-work/aws/test", work)).json["tasks"]
        task_id = found["tasks"][label]["taskId"]
        assert claimed["status"]["taskId"] == task_id
        if label == "print-twice":
            words = f"{once['taskId']} of {graph_id}"
            assert claimed["task"]["payload"] == {"first": once["taskId"], "24.04": [words, 42, "{{unknown}}"]}
        assert (await call(old, "POST", f"/task/{task_id}/runs/{claimed['runId']}/{report}")).status == 200
    assert await old.ended(graph_id) == "finished"
    found = shaped(await call(old, "GET", f"{place}/inspect"), "inspect-labelled-task-graph-response")
    assert found["status"]["state"] == "finished"
    assert found["tasks"]["print-once"]["rerunsLeft"] == 1
    assert {each["resolution"]["success"] for each in found["tasks"].values()} == {True}
    events = (await old.ask("GET", f"/graphs/{graph_id}/events")).json["events"]
    assert {each.get("routing") for each in events} == {"nightly", "nightly.linux", "nightly."}


async def test_the_form_of_march_2014_is_enough(old: Server) -> None:
    """Without parameters, metadata and tags; and each call makes a graph of its own."""
    body = {"tasks": {"a": {"task": task()}}}
    first, second = await create(old, body), await create(old, body)
    assert first != second
    found = shaped(await call(old, "GET", f"/task-graph/{first}/inspect"), "inspect-labelled-task-graph-response")
    assert found["metadata"] == {"name": "", "description": "", "owner": "", "source": ""}
    assert (await call(old, "POST", f"/task/{found['tasks']['a']['taskId']}/cancel")).status == 200
    found = shaped(await call(old, "GET", f"/task-graph/{first}/inspect"), "inspect-labelled-task-graph-response")
    assert found["tasks"]["a"]["resolution"] == {"completed": False, "success": False}


async def test_a_label_that_has_the_form_of_an_id_is_the_id(old: Server) -> None:
    tasks = {A: {"task": task()}, B: {"requires": [A], "task": task(payload={"a": {"$subs": f"taskId:{A}"}})}}
    graph_id = await create(old, {"tasks": tasks})
    found = (await call(old, "GET", f"/task-graph/{graph_id}/inspect")).json["tasks"]
    assert {label: (each["taskId"], each["requires"]) for label, each in found.items()} == {A: (A, []), B: (B, [A])}
    assert (await call(old, "GET", f"/task/{A}/status")).json["status"]["taskId"] == A


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (None, "must follow the schema"),
        ([], "must follow the schema"),
        ({"tasks": []}, "must follow the schema"),
        ({"tasks": {}}, "at least one task"),
        (graph(version="0.3.0"), "must follow the schema"),
        (graph(routing="x" * 65), "must follow the schema"),
        (graph(tasks={"a": {"task": task(metadata={**METADATA, "taskGraphId": "x"})}}), "must follow the schema"),
        (graph(tasks={"a-{{release}}": {"task": task()}}), "may not change the label"),
        (graph(tasks={"a": {"task": task(payload={"{{release}}": 1, "24.04": 2})}}), "two keys"),
        (
            graph(params={"x": "y" * 4_000}, tasks={"a": {"task": task(payload={"x": "{{x}}" * 3_000})}}),
            "more than 10,000,000 characters",
        ),
        (graph(tasks={"a": {"requires": ["b"], "task": task()}}), "Errors found in task nodes"),
        (graph(tasks={"a": {"requires": ["b"], "task": task()}, "b": {"requires": ["a"], "task": task()}}), "Errors"),
        (graph(tasks={"a": {"task": task(payload={"b": {"$subs": "taskId:b"}})}}), "Errors found in task nodes"),
    ],
)
async def test_what_is_wrong_makes_no_graph(old: Server, body: Any, words: str) -> None:
    answer = await call(old, "POST", "/task-graph/create", body)
    assert (answer.status, words in answer.json["message"]) == (400, True), answer
    assert (await old.ask("GET", "/graphs")).json["graphs"] == []


async def test_each_method_of_2014_is_held_to_roles_and_scopes(tmp_path: Path) -> None:
    place = f"sqlite:///{tmp_path}/store.db"
    async with serving(place, tmp_path, anonymous=False, slots=0, old_clients=True) as server:
        create, table = ("POST", "/task-graph/create", graph()), ("GET", f"/table-access?taskGraphId={A}", None)
        for role in Role:
            signing = str(role), server.tokens[role]
            assert (await ask(server, *create, *signing)).status == (200 if role.may(Role.SUBMITTER) else 401)
            assert (await ask(server, *table, *signing)).status == (404 if role is Role.ADMIN else 401)
        signing = "submitter", server.tokens[Role.SUBMITTER]
        for more, status in ((["queue:define-task:aws/other"], 401), (["queue:define-task:aws/test"], 200)):
            wanted = {"authorizedScopes": ["scheduler:create-task-graph", *more]}
            assert (await ask(server, *create, *signing, wanted)).status == status
        for each in (create, table):
            assert (await call(server, *each)).status == 401


async def test_the_table_is_opened_for_one_graph_alone(old: Server, place: str) -> None:
    first, second = await create(old, graph()), await create(old, graph())
    refused = await call(old, "GET", "/table-access")
    assert (refused.status, "?taskGraphId=ID" in refused.json["message"]) == (400, True)
    assert (await call(old, "GET", f"/table-access?taskGraphId={A}")).status == 404
    answer = await call(old, "GET", f"/table-access?taskGraphId={first}")
    if place.startswith("sqlite:"):
        assert (answer.status, "is a file" in answer.json["message"]) == (409, True)
        return
    given = shaped(answer, "table-access-response")
    signature = "&".join(f"{key}={value.replace('+', '%2B')}" for key, value in given["sharedSignature"].items())
    client = TableClient(
        old.app.table_endpoint, given["taskGraphTable"], credential=AzureSasCredential(signature), verify=False
    )
    with client:
        rows = [each["RowKey"] for each in client.query_entities(f"PartitionKey eq '{first}'")]
    assert "task-graph" in rows
    shared = given["sharedSignature"]
    assert (shared["spk"], shared["epk"], shared["sp"]) == (first, first, "r")
    assert second not in str(given)
    assert given["accountName"] == "devstoreaccount1"


async def test_schemas_of_2014_are_served(old: Server) -> None:
    for name in ("labelled-task-graph", "inspect-labelled-task-graph-response"):
        served = (await call(old, "GET", f"/schemas/{name}.json")).json
        assert served["$defs"][name] == schemas.schema("taskcluster")["$defs"][name]
