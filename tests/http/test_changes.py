"""Changes over HTTP: each kind is made, the journal says by whom, and what cannot be is a problem."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from taskgraph.documents.edit_document import read_edit
from taskgraph.interfaces.operations import changes, requests, tokens
from taskgraph.interfaces.operations.checks import asking
from taskgraph.model import ids
from taskgraph.model.errors import StorageUnavailable
from taskgraph.model.roles import Role
from tests.http.serving import Answer, Server, serving, shape_errors

GRAPH: Final[dict[str, Any]] = {
    "failurePolicy": "continue",
    "maxInFlight": 3,
    "groups": {"some": {"tasks": ["far", "further"]}},
    "tasks": {
        "bad": {"task": {"payload": {"command": ["false"]}}},
        "good": {"task": {"executor": "noop"}},
        "after": {"requires": ["good"], "task": {"executor": "noop"}},
        "far": {"task": {"target": "gpu", "executor": "noop"}},
        "further": {"requires": ["far"], "task": {"executor": "noop"}},
    },
}


async def change(server: Server, token: str | None = None, *, wait: int = 20, **body: Any) -> Answer:
    path = "/graphs/g/changes?unguarded=1"
    return await server.ask("POST", path, data=body, token=token, Prefer=f"wait={wait}")


async def until(server: Server, label: str, state: str) -> None:
    async with asyncio.timeout(20):
        while (await server.get(f"/graphs/g/tasks/{label}")).json["state"] != state:
            await asyncio.sleep(0.05)


async def test_every_kind_of_change_is_made(open_to_all: Server) -> None:
    server = open_to_all
    await server.ask("PUT", "/graphs/g", data=GRAPH)
    await until(server, "bad", "failed")
    await until(server, "after", "completed")
    for body in (
        {"change": "pause", "group": "some", "reason": "not now"},
        {"change": "resume", "group": "some"},
        {"change": "deactivate", "labels": ["further"]},
        {"change": "activate", "labels": ["further"]},
        {"change": "set-limit", "max": 2},
        {"change": "prioritize", "priority": "high", "labels": ["further"]},
        {"change": "rerun", "labels": ["good"], "downstream": True},
        {"change": "rerun", "failed": True, "reason": "again"},
    ):
        answer = await change(server, **body)
        assert (answer.status, shape_errors("change", answer.json)) == (200, []), (body, answer.data)
        assert answer.json["settled"] is True
    assert (await server.get("/graphs/g/limits")).json["limits"][0]["max"] == 2
    assert (await server.get("/graphs/g/tasks/further")).json["priority"] == "high"
    await until(server, "after", "completed")
    assert (await server.get("/graphs/g/tasks/after")).json["run"] == 1
    assert (await server.get("/graphs/g/tasks/bad")).json["run"] == 1
    answer = await change(server, change="cancel", reason="enough")
    assert (answer.status, answer.json["state"]) == (200, "cancelled")
    again = await change(server, change="cancel")
    assert (again.status, again.json["asked"]) == (200, False)


async def test_the_journal_says_by_whom(place: str, tmp_path: Path) -> None:
    async with serving(place, tmp_path, anonymous=False) as server:
        ask, ops = partial(server.ask, token=server.tokens[Role.ADMIN]), server.tokens[Role.OPERATOR]
        waits = {"task": {"target": "gpu", "executor": "noop"}}
        graph = {**GRAPH, "tasks": {**GRAPH["tasks"], "later": waits, "stays": waits}}
        await server.ask("PUT", "/graphs/g", data=graph, token=server.tokens[Role.SUBMITTER])
        for body in (
            {"change": "pause", "group": "some"},
            {"change": "resume", "group": "some"},
            {"change": "deactivate", "labels": ["further"]},
            {"change": "activate", "labels": ["further"]},
            {"change": "set-limit", "max": 2},
            {"change": "set-limit", "max": 2, "group": "some"},
            {"change": "prioritize", "priority": "high", "labels": ["further"]},
        ):
            answer = await change(server, ops, **body)
            assert answer.status == 200, (body, answer.data)
        more = {"tasks": {"more": {"requires": ["far"], "task": {"executor": "noop"}}}}
        added = await ask("POST", "/graphs/g/extensions", data=more, Prefer="wait=20")
        assert added.status == 200, added.data
        with asking("ann"):
            edit = read_edit(b'{"delete": ["later"]}', source="edit")
            await requests.settled(server.app, await requests.edit(server.app, "g", edit), "edit")
        for body in (
            {"change": "cancel", "labels": ["far"]},
            {"change": "rerun", "labels": ["far"]},
            {"change": "cancel"},
        ):
            assert (await change(server, ops, **body)).status == 200
        events = (await ask("GET", "/graphs/g/events?where.by=*")).json["events"]
        assert [(each["event"], each["by"]) for each in events] == [
            ("graph-running", "submitter"),
            ("graph-paused", "operator"),
            ("graph-resumed", "operator"),
            ("task-held", "operator"),
            ("task-released", "operator"),
            ("graph-limited", "operator"),
            ("graph-limited", "operator"),
            ("task-prioritized", "operator"),
            ("graph-extended", "admin"),
            ("graph-edited", "ann"),
            ("task-cancelled", "operator"),
            ("task-rerun", "operator"),
            ("graph-cancelling", "operator"),
        ]
        assert (await ask("DELETE", "/graphs/g")).status == 200
        (row,) = await server.app.tables.get("g", [ids.GRAPH])
        assert row.columns["deletedBy"] == "admin"


async def test_a_change_is_asked_for_without_waiting(local: Server) -> None:
    await local.ask("PUT", "/graphs/g", data=GRAPH)
    answer = await change(local, wait=0, change="pause")
    assert (answer.status, answer.json["settled"]) == (202, False)


@pytest.mark.parametrize(
    ("body", "code", "pointer"),
    [
        ({"change": "explode"}, "invalid-graph", ""),
        ({}, "invalid-graph", ""),
        ({"change": ["cancel"]}, "invalid-graph", ""),
        ({"change": "set-limit"}, "invalid-graph", ""),
        ({"change": "set-limit", "max": -1}, "invalid-graph", "/max"),
        ({"change": "cancel", "labels": []}, "invalid-graph", "/labels"),
        ({"change": "pause", "labels": ["far"]}, "invalid-graph", ""),
        ({"change": "rerun"}, "invalid-input", None),
        ({"change": "rerun", "failed": True, "all": True}, "invalid-input", None),
    ],
)
async def test_what_is_no_change_says_where(
    local: Server, body: dict[str, Any], code: str, pointer: str | None
) -> None:
    await local.ask("PUT", "/graphs/g", data=GRAPH)
    answer = await local.ask("POST", "/graphs/g/changes?unguarded=1", data=body)
    assert (answer.status, answer.code) == (400, code)
    assert [each["pointer"] for each in answer.json.get("problems", [])][:1] == ([] if pointer is None else [pointer])


async def test_what_cannot_be_changed_is_refused(local: Server) -> None:
    await local.ask("PUT", "/graphs/g", data=GRAPH)
    await until(local, "after", "completed")
    unplanned = await local.ask("POST", "/graphs/g/changes", data={"change": "cancel"})
    assert (unplanned.status, unplanned.code) == (428, "no-plan")
    assert (await change(local, change="rerun", labels=["good"])).code == "downstream"
    assert (await change(local, change="deactivate", labels=["good"])).code == "over"
    assert (await change(local, change="cancel", labels=["fra"])).json["near"] == ["far"]
    assert (await change(local, change="pause", group="nope")).status == 404
    assert (await local.ask("POST", "/graphs/g/changes?unguarded=1", data="{")).code == "invalid-graph"


DONE = {"failurePolicy": "block", "tasks": {"bad": {"task": {"payload": {"command": ["false"]}}}, "x": {"task": {}}}}


async def test_a_plan_is_made_applied_and_refused_the_second_time(local: Server) -> None:
    await local.ask("PUT", "/graphs/g", data=DONE)
    await until(local, "bad", "failed")
    await until(local, "x", "completed")
    body = {"change": "rerun", "failed": True}
    planned = await local.ask("POST", "/graphs/g/changes?dryRun=1", data=body)
    assert (planned.status, shape_errors("changePlan", planned.json)) == (200, [])
    assert [(each["label"], each["from"], each["to"], each["toRun"]) for each in planned.json["tasks"]] == [
        ("bad", "failed", "pending", 1)
    ]
    digest = planned.json["plan"]
    assert (await local.ask("POST", "/graphs/g/changes?dryRun=1", data=body)).json["plan"] == digest
    applied = await local.ask("POST", f"/graphs/g/changes?plan={digest}", data=body, Prefer="wait=20")
    assert (applied.status, shape_errors("changeApplied", applied.json)) == (200, []), applied.data
    assert (await local.get(f"/graphs/g/requests/{applied.json['request']}")).json["state"] == "done"
    again = await local.ask("POST", f"/graphs/g/changes?plan={digest}", data=body)
    assert (again.status, again.code, shape_errors("changePlan", again.json["plan"])) == (412, "stale-plan", [])
    assert again.json["plan"]["plan"] != digest
    both = await local.ask("POST", f"/graphs/g/changes?plan={digest}&dryRun=1", data=body)
    assert (both.status, both.code) == (428, "no-plan")


@pytest.mark.parametrize(
    "body",
    [
        {"change": "edit", "edit": {"update": {"further": {"reruns": 2}}, "reason": "flaky"}},
        {"change": "extend", "extension": {"tasks": {"more": {"requires": ["far"], "task": {}}}}},
        {"change": "pause", "reason": "not now"},
        {"change": "set-limit", "max": 2, "group": "some"},
        {"change": "prioritize", "priority": "low", "group": "some"},
    ],
    ids=lambda body: body["change"],
)
async def test_every_kind_is_planned_and_applied(open_to_all: Server, body: dict[str, Any]) -> None:
    server = open_to_all
    await server.ask("PUT", "/graphs/g", data=GRAPH)
    await until(server, "after", "completed")
    await until(server, "bad", "failed")
    planned = (await server.ask("POST", "/graphs/g/changes?dryRun=1", data=body)).json
    assert shape_errors("changePlan", planned) == []
    assert planned["graph"] or planned["limits"] or planned["tasks"]
    applied = await server.ask("POST", f"/graphs/g/changes?plan={planned['plan']}", data=body, Prefer="wait=20")
    assert (applied.status, applied.json["state"]) == (200, "done"), applied.data


async def test_many_graphs_are_changed_each_by_its_plan(local: Server) -> None:
    for graph_id in ("a", "b", "c"):
        await local.ask("PUT", f"/graphs/{graph_id}", data={**DONE, "metadata": {"name": "many"}})
    async with asyncio.timeout(20):
        while len((await local.get("/graphs?state=blocked")).json["graphs"]) < 3:
            await asyncio.sleep(0.05)
    body = {"change": {"change": "rerun", "failed": True}}
    planned = await local.ask("POST", "/changes?dryRun=1", data={**body, "where": {"state": "blocked", "name": "many"}})
    assert (planned.status, shape_errors("changePlans", planned.json)) == (200, [])
    plans = {each["graphId"]: each["plan"]["plan"] for each in planned.json["plans"]}
    assert sorted(plans) == ["a", "b", "c"]
    await local.ask("PUT", "/graphs/d", data={**DONE, "metadata": {"name": "many"}})  # comes too late to be meant
    moved = await local.ask("POST", "/graphs/b/changes?unguarded=1", data={"change": "cancel"}, Prefer="wait=20")
    assert moved.status == 200
    applied = await local.ask("POST", "/changes", data={**body, "plans": plans})
    assert (applied.status, shape_errors("changesApplied", applied.json)) == (200, []), applied.data
    found = {each["graphId"]: each for each in applied.json["changes"]}
    assert sorted(name for name, each in found.items() if each["error"] is None) == ["a", "c"]
    assert found["b"]["error"]["code"] == "stale-plan"
    both = await local.ask("POST", "/changes?dryRun=1", data={**body, "graphs": ["a"], "where": {"state": "blocked"}})
    assert (both.status, both.code) == (400, "invalid-graph")


async def test_a_store_that_is_away_is_no_reason_of_one_graph(local: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    await local.ask("PUT", "/graphs/a", data=DONE)

    async def away(*args: object) -> None:
        raise StorageUnavailable("it is away")

    monkeypatch.setattr(changes, "plan", away)
    answer = await local.ask("POST", "/changes?dryRun=1", data={"change": {"change": "cancel"}, "graphs": ["a"]})
    assert (answer.status, answer.code) == (503, "storage-unreachable")


async def test_a_token_changes_no_graph_that_it_is_not_for(guarded: Server) -> None:
    scoped = (await tokens.create(guarded.app, "some", Role.OPERATOR, graphs=["mine-*"]))[1]
    for graph_id in ("mine-1", "other"):
        await guarded.ask("PUT", f"/graphs/{graph_id}", data=DONE, token=guarded.tokens[Role.SUBMITTER])
    body = {"change": {"change": "cancel"}}
    named = await guarded.ask("POST", "/changes?dryRun=1", data={**body, "graphs": ["other"]}, token=scoped)
    assert (named.status, named.code) == (403, "scope")
    where = {**body, "where": {"state": "running"}}
    async with asyncio.timeout(20):
        while True:
            found = await guarded.ask("POST", "/changes?dryRun=1", data=where, token=scoped)
            assert {each["graphId"] for each in found.json["plans"]} <= {"mine-1"}
            if (
                found.json["plans"]
                or (await guarded.ask("GET", "/graphs/mine-1", token=scoped)).json["state"] != "running"
            ):
                break
    digests = {"other": "sha256:" + "0" * 64}
    assert (await guarded.ask("POST", "/changes", data={**body, "plans": digests}, token=scoped)).status == 403
