"""Schedules over HTTP: created, replaced, changed, switched, run and deleted, each as it was read."""

from typing import Any, Final

from taskgraph.interfaces.http.table import ROUTES
from tests.http.serving import Server, shape_errors

GRAPH: Final = {"tasks": {"one": {"task": {"executor": "noop"}}}}
NIGHTLY: Final[dict[str, Any]] = {"document": GRAPH, "cron": "0 2 * * *", "timezone": "Europe/Berlin", "keep": 3}


async def done(server: Server, method: str, path: str, name: str, **headers: str) -> dict[str, Any]:
    answer = await server.ask(method, path, **headers)
    assert answer.status == 200, answer.data
    shape = next(each.answer for each in ROUTES if each.name == name)
    assert shape_errors(shape, answer.json) == []
    return dict(answer.json)


async def tag(server: Server) -> str:
    return str((await server.get("/schedules/nightly")).headers["etag"])


async def test_a_schedule_is_created_once(open_to_all: Server) -> None:
    server = open_to_all
    made = await server.ask("PUT", "/schedules/nightly", data=NIGHTLY)
    assert (made.status, made.json["outcome"], made.json["timezone"]) == (201, "created", "Europe/Berlin"), made.data
    assert shape_errors("scheduleDone", made.json) == []
    again = await server.ask("PUT", "/schedules/nightly", data=NIGHTLY)
    assert (again.status, again.json["outcome"]) == (200, "existing")
    shown = await done(server, "GET", "/schedules/nightly", "getSchedule")
    assert (shown["keep"], len(shown["upcoming"])) == (3, 5)
    other = await server.ask("PUT", "/schedules/nightly", data={**NIGHTLY, "keep": 4})
    assert (other.status, other.code) == (428, "no-guard")
    listed = await done(server, "GET", "/schedules", "listSchedules")
    assert [each["name"] for each in listed["schedules"]] == ["nightly"]


async def test_a_schedule_is_replaced_as_it_was_read(open_to_all: Server) -> None:
    server = open_to_all
    await server.ask("PUT", "/schedules/nightly", data={**NIGHTLY, "active": False})
    first = await tag(server)
    every = {"document": {**GRAPH, "metadata": {"name": "other"}}, "every": 300, "overlap": "queue"}
    put = await server.ask("PUT", "/schedules/nightly", data=every, If_Match=f'"x", {first}')
    assert (put.status, put.json["outcome"], put.json["every"], put.json["cron"]) == (200, "updated", 300, None)
    assert (put.json["keep"], put.json["active"], put.json["overlap"]) == (10, True, "queue")
    late = await server.ask("PUT", "/schedules/nightly", data=NIGHTLY, If_Match=first)
    assert (late.status, late.code) == (412, "changed")
    anchor = put.json["anchor"]
    same = await server.ask("PUT", "/schedules/nightly", data=every, If_Match="*")
    assert (same.status, same.json["anchor"]) == (200, anchor)
    assert (await server.ask("PUT", "/schedules/none", data=every, If_Match="*")).status == 404


async def test_a_schedule_is_changed_in_part(open_to_all: Server) -> None:
    server = open_to_all
    await server.ask("PUT", "/schedules/nightly", data=NIGHTLY)
    first = await tag(server)
    assert (await server.ask("PATCH", "/schedules/nightly", data={"keep": 5})).code == "no-guard"
    patched = await server.ask("PATCH", "/schedules/nightly", data={"cron": "0 4 * * *"}, If_Match=first)
    assert (patched.status, patched.json["cron"], patched.json["timezone"]) == (200, "0 4 * * *", "Europe/Berlin")
    assert shape_errors("scheduleDone", patched.json) == []
    off = await server.ask("PATCH", "/schedules/nightly", data={"active": False}, If_Match="*")
    assert (off.json["active"], off.json["keep"], off.json["cron"]) == (False, 3, "0 4 * * *")
    assert (await server.ask("PATCH", "/schedules/nightly", data={"keep": 5}, If_Match=first)).code == "changed"
    assert (await server.ask("DELETE", "/schedules/nightly", If_Match=first)).code == "changed"
    last = await tag(server)
    assert (await done(server, "DELETE", "/schedules/nightly", "deleteSchedule", If_Match=last))["outcome"] == "deleted"


async def test_all_that_is_wrong_with_a_schedule_is_said(local: Server) -> None:
    document = {"tasks": {"a": {"requires": ["b"]}}}
    for data, pointers in (
        ({"document": document, "cron": "0 2 * * *"}, ["/document/tasks/a/requires/0"]),
        ({"document": 1, "kron": "x", "keep": 0, "anchor": "soon"}, ["/anchor", "/document", "/keep", "/kron"]),
        ({"cron": "0 2 * * *"}, [""]),
    ):
        answer = await local.ask("PUT", "/schedules/nightly", data=data)
        assert (answer.status, answer.code) == (400, "invalid-graph")
        assert sorted(each["pointer"] for each in answer.json["problems"]) == pointers
    assert (await local.ask("PATCH", "/schedules/x", data={"params": {"a": 1}}, If_Match="*")).code == "invalid-graph"
    for times in ({}, {"cron": "x"}, {"every": 5, "at": "2999-01-01T00:00:00Z"}, {"at": "2001-01-01T00:00:00Z"}):
        answer = await local.ask("PUT", "/schedules/nightly", data={"document": GRAPH, **times})
        assert (answer.status, answer.code) == (400, "invalid-input")
    assert (await local.ask("PUT", "/schedules/no%20name", data=NIGHTLY)).status == 400


async def test_values_of_parameters_go_with_its_graph(local: Server) -> None:
    task = {"executor": "noop", "payload": {"w": {"$param": "word"}}}
    graph = {"params": {"word": {}}, "tasks": {"one": {"task": task}}}
    answer = await local.ask(
        "PUT", "/schedules/nightly", data={"document": graph, "params": {"word": "hi"}, "cron": "@daily"}
    )
    assert answer.status == 201, answer.data
    fired = await done(local, "POST", "/schedules/nightly:run-now", "runSchedule")
    assert (await local.get(f"/graphs/{fired['graphId']}")).json["params"] == {"word": "hi"}


async def test_a_schedule_is_switched_run_and_deleted(open_to_all: Server) -> None:
    server = open_to_all
    await server.ask("PUT", "/schedules/nightly", data=NIGHTLY)
    assert (await done(server, "POST", "/schedules/nightly:deactivate", "deactivateSchedule"))["active"] is False
    assert (await done(server, "POST", "/schedules/nightly:activate", "activateSchedule"))["active"] is True
    fired = await done(server, "POST", "/schedules/nightly:run-now", "runSchedule")
    assert await server.ended(str(fired["graphId"])) == "finished"
    first, *_ = (await server.get(f"/graphs/{fired['graphId']}/events")).json["events"]
    assert (first["event"], first["by"]) == ("graph-running", "anonymous")
    assert (await server.get("/graphs?schedule=nightly")).json["graphs"][0]["graphId"] == fired["graphId"]
    assert (await done(server, "DELETE", "/schedules/nightly", "deleteSchedule"))["outcome"] == "deleted"
    assert (await server.ask("POST", "/schedules/nightly:run-now")).status == 404
