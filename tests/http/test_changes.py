"""Changes over HTTP: each kind is made, the journal says by whom, and what cannot be is a problem."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from taskgraph.documents.edit_document import read_edit
from taskgraph.interfaces.operations import requests
from taskgraph.interfaces.operations.checks import asking
from taskgraph.model import ids
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
        ({"change": "explode"}, "invalid-change", None),
        ({}, "invalid-change", None),
        ({"change": ["cancel"]}, "invalid-change", None),
        ({"change": "set-limit"}, "invalid-change", ""),
        ({"change": "set-limit", "max": -1}, "invalid-change", "/max"),
        ({"change": "cancel", "labels": []}, "invalid-change", "/labels"),
        ({"change": "pause", "labels": ["far"]}, "invalid-change", ""),
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
