"""Operators and admins over HTTP: targets, workers, messages that were set aside, damage."""

import asyncio
from pathlib import Path
from typing import Final

from taskgraph.interfaces.http.table import ROUTES
from taskgraph.model.names import POISON
from taskgraph.model.roles import Role
from tests.http.serving import Server, serving, shape_errors

DOCUMENT: Final = {"tasks": {"one": {"task": {"executor": "noop"}}}}


async def done(server: Server, method: str, path: str, name: str) -> dict[str, object]:
    """The answer, which must have the shape of its route."""
    answer = await server.ask(method, path)
    assert answer.status == 200, answer.data
    shape = next(each.answer for each in ROUTES if each.name == name)
    assert shape_errors(shape, answer.json) == []
    return dict(answer.json)


async def test_a_target_is_paused_and_limited(open_to_all: Server) -> None:
    server = open_to_all
    paused = await done(server, "POST", "/targets/gpu:pause?reason=maintenance", "pauseTarget")
    assert paused == {"target": "gpu", "paused": True, "changed": True}
    assert (await done(server, "POST", "/targets/gpu:pause", "pauseTarget"))["changed"] is False
    assert (await done(server, "POST", "/targets/gpu:resume", "resumeTarget"))["changed"] is True
    assert (await done(server, "POST", "/targets/gpu:limit?max=3", "limitTarget"))["max"] == 3
    assert (await server.get("/targets")).json["targets"][0]["max"] == 3
    assert (await done(server, "POST", "/targets/gpu:limit?max=0", "limitTarget"))["max"] is None
    assert (await server.ask("POST", "/targets/No%20Target:pause")).code == "invalid-input"
    assert (await server.ask("POST", "/targets/gpu:limit?max=1001")).code == "invalid-query"


async def test_a_worker_is_drained(local: Server) -> None:
    async with asyncio.timeout(20):
        while not (workers := (await local.get("/workers")).json["workers"]):
            await asyncio.sleep(0.05)
    name = workers[0]["name"]
    drained = await done(local, "POST", f"/workers/{name}:drain?now=1", "drainWorker")
    assert drained == {"worker": name, "draining": "now", "exit": False, "state": "asked"}
    assert (await done(local, "POST", f"/workers/{name}:undrain", "undrainWorker"))["draining"] == ""
    assert (await local.ask("POST", "/workers/nobody:drain")).status == 404


async def test_a_message_that_was_set_aside_is_put_back(local: Server) -> None:
    queue = local.app.names.events
    await local.app.queues.send(queue, ["{not a message"])
    async with asyncio.timeout(20):
        while not (messages := (await local.get("/poison")).json["messages"]):
            await asyncio.sleep(0.05)
    key = messages[0]["key"]
    assert await done(local, "POST", f"/poison/{key}:replay", "replayPoison") == {"replayed": [key]}
    assert (await local.ask("POST", "/poison/taskgraph-events:0:replay")).status == 404


async def test_rows_without_a_journal_say_who_acted_last(place: str, tmp_path: Path) -> None:
    async with serving(place, tmp_path, anonymous=False) as server:
        app, ops, admin = server.app, server.tokens[Role.OPERATOR], server.tokens[Role.ADMIN]
        await server.ask("PUT", "/graphs/g", data={"tasks": {"far": {"task": {"target": "gpu"}}}}, token=admin)
        for path in ("/targets/gpu:pause?reason=drivers", "/targets/gpu:limit?max=3"):
            assert (await server.ask("POST", path, token=ops)).status == 200
        why = (await server.ask("GET", "/graphs/g/tasks/far/why", token=ops)).json
        assert " by operator: drivers" in why["reasons"][0]["text"]
        targets = await server.ask("GET", "/targets", token=ops)
        assert (targets.json["targets"][0]["by"], shape_errors("targetLimits", targets.json)) == ("operator", [])
        schedule = {"document": DOCUMENT, "cron": "0 2 * * *"}
        made = await server.ask("PUT", "/schedules/nightly", data=schedule, token=admin)
        assert (made.json["by"], shape_errors("scheduleDone", made.json)) == ("admin", [])
        assert (await server.ask("POST", "/schedules/nightly:deactivate", token=ops)).json["by"] == "operator"
        assert (await server.ask("POST", "/schedules/nightly:deactivate", token=admin)).json["by"] == "operator"
        fired = (await server.ask("POST", "/schedules/nightly:run-now", token=ops)).json["graphId"]
        assert (await app.queries.graph_row(fired)).columns["by"] == "operator"
        await app.queues.send(app.names.events, ["{not a message"])
        async with asyncio.timeout(20):
            while not (messages := await app.poison.list()):
                await asyncio.sleep(0.05)
        assert (await server.ask("POST", f"/poison/{messages[0].key}:replay", token=admin)).status == 200
        (row,) = await app.tables.get(POISON, [messages[0].key])
        assert row is not None
        assert row.columns["replayedBy"] == "admin"


async def test_what_is_sound_is_left_as_it_is(open_to_all: Server) -> None:
    await open_to_all.ask("PUT", "/graphs/g", data=DOCUMENT)
    assert await open_to_all.ended("g") == "finished"
    assert (await done(open_to_all, "POST", "/graphs/g/doctor:repair", "repairGraph"))["sound"] is True
    assert (await done(open_to_all, "POST", "/graphs/g/notices:retry", "retryNotices"))["channels"] == []
    granted = await open_to_all.ask("POST", "/graphs/g/grants?hours=2")
    if open_to_all.app.settings.embedded:
        assert (granted.status, granted.code) == (409, "no-account")
    else:
        assert shape_errors("grant", granted.json) == []


async def test_a_reader_changes_nothing(guarded: Server) -> None:
    for path in ("/targets/gpu:pause", "/workers/w:drain", "/schedules/s:run-now", "/poison/k:replay"):
        assert (await guarded.ask("POST", path, token=guarded.tokens[Role.READER])).code == "role"
    assert (await guarded.ask("DELETE", "/graphs/g", token=guarded.tokens[Role.OPERATOR])).code == "role"
