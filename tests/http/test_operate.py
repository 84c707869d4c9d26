"""Operators and admins over HTTP: targets, workers, messages that were set aside, damage."""

import asyncio
from typing import Final

from taskgraph.interfaces.http.table import ROUTES
from taskgraph.model.roles import Role
from tests.http.serving import Server, shape_errors

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
