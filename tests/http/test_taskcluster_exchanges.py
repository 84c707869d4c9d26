"""The old scheduler's exchanges: what is said of a graph that an old client creates, on a queue of the store."""

import asyncio
import json
import secrets
from pathlib import Path
from typing import Any

from taskgraph.model import schemas
from tests.http.serving import Server, serving
from tests.http.test_events import frames
from tests.http.test_taskcluster import A, B, G, call, graph, node, slugid
from tests.http.test_taskcluster_labels import create
from tests.http.test_taskcluster_labels import graph as labelled

QUEUE = f"pulse-{secrets.token_hex(6)}"
WORKER = {"workerGroup": "group", "workerId": "worker"}
KEY = "primary._._._._._._.task-graph-scheduler.{}._"

Json = dict[str, Any]


async def messages(server: Server, count: int) -> list[Json]:
    """The next messages of the queue, each in its form."""
    found: list[Json] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            for taken in await server.app.queues.receive(QUEUE, count=1, lease_seconds=30):
                found.append(json.loads(taken.body))
                await server.app.queues.delete(taken)
            await asyncio.sleep(0.02)
    for each in found:
        for name, value in (
            ("exchange-message", each),
            (f"{each['exchange'].rpartition('/')[2]}-message", each["payload"]),
        ):
            errors = schemas.validator("taskcluster", f"#/$defs/{name}").iter_errors(value)
            assert [error.message for error in errors] == []
    return found


def said(name: str, state: str, graph_id: str, *routes: str, **more: str) -> Json:
    status = {"taskGraphId": graph_id, "schedulerId": "task-graph-scheduler", "state": state}
    status |= {key: more.pop(key) for key in ("routing",) if key in more}
    return {
        "exchange": f"exchange/taskcluster-scheduler/v1/task-graph-{name}",
        "routingKey": KEY.format(graph_id),
        "cc": [f"route.{each}" for each in routes],
        "payload": {"version": 1, "status": status, **more},
    }


async def test_a_graph_is_followed_by_its_messages(place: str, tmp_path: Path) -> None:
    async with serving(place, tmp_path, old_clients=True, slots=0, exchanges=QUEUE) as old:
        body = graph(node(A), scopes=["*"], routes=["index.nightly", "x"])
        for _ in range(2):
            assert (await call(old, "PUT", f"/task-graph/{G}", body)).status == 200
        routes = ("index.nightly", "x")
        assert await messages(old, 1) == [said("running", "running", G, *routes)]
        assert (await call(old, "POST", f"/task-graph/{G}/extend", {"tasks": [node(B, A)]})).status == 200
        assert await messages(old, 1) == [said("extended", "running", G, *routes)]
        for run, report in ((0, "failed"), (1, "completed")):
            run_url = f"/task/{A}/runs/{run}"
            assert (await call(old, "POST", f"{run_url}/claim", WORKER)).status == 200
            assert (await call(old, "POST", f"{run_url}/{report}")).status == 200
            if report == "failed":
                assert await messages(old, 1) == [said("blocked", "blocked", G, *routes, taskId=A)]
                assert (await call(old, "POST", f"/task/{A}/rerun")).status == 200
        assert (await call(old, "POST", f"/task/{B}/runs/0/claim", WORKER)).status == 200
        assert (await call(old, "POST", f"/task/{B}/runs/0/completed")).status == 200
        assert await messages(old, 1) == [said("finished", "finished", G, *routes)]
        cancelled = await create(old, labelled())
        assert await messages(old, 1) == [said("running", "running", cancelled, routing="nightly")]
        answer = await old.ask("POST", f"/graphs/{cancelled}/changes?unguarded=1", data={"change": "cancel"})
        assert answer.status in (200, 202), answer
        assert await messages(old, 1) == [said("blocked", "blocked", cancelled, routing="nightly")]
        shown = (await old.get(f"/graphs/{G}/notices")).json["channels"]
        assert [(each["channel"], each["delivered"]) for each in shown] == [(f"queue {QUEUE}", 4)]


async def heard(server: Server, graph_id: str, exchange: str, **headers: str) -> list[tuple[str, Json]]:
    """Cursor and message of all that an exchange says of a graph that has ended."""
    path = f"/exchange/task-graph-{exchange}?taskGraphId={graph_id}"
    found = [each async for each in frames(server, path, "/v1", **headers)]
    assert found.pop() == {"event": "end", "data": "{}"}
    assert {each.get("event", f"task-graph-{exchange}") for each in found} == {f"task-graph-{exchange}"}
    return [(each["id"], json.loads(each["data"])) for each in found if "id" in each]


async def test_an_exchange_is_followed_over_restarts(tmp_path: Path) -> None:
    """One graph at one exchange, from any message on: here by servers of which each has known nothing of the others."""
    place = f"sqlite:///{tmp_path}/store.db"
    async with serving(place, tmp_path, old_clients=True, slots=0) as old:
        assert (
            await call(old, "PUT", f"/task-graph/{G}", graph(node(A, payload={"command": ["false"]})))
        ).status == 200
        for number in range(2):
            more = {"tasks": [node(slugid(f"more {number}"), payload={"command": ["true"]})]}
            assert (await call(old, "POST", f"/task-graph/{G}/extend", more)).status == 200
        following = frames(old, f"/exchange/task-graph-extended?taskGraphId={G}", "/v1")
        assert await anext(following) == {"retry": "2000"}
        assert (await anext(following))["event"] == "task-graph-extended"
        await following.aclose()
    async with serving(place, tmp_path, old_clients=True, slots=0) as old:
        for task_id, report in ((A, "failed"), *((slugid(f"more {number}"), "completed") for number in range(2))):
            assert (await call(old, "POST", f"/task/{task_id}/runs/0/claim", WORKER)).status == 200
            assert (await call(old, "POST", f"/task/{task_id}/runs/0/{report}")).status == 200
        assert (await call(old, "POST", f"/task/{A}/rerun")).status == 200
        assert (await call(old, "POST", f"/task/{A}/runs/1/claim", WORKER)).status == 200
        assert (await call(old, "POST", f"/task/{A}/runs/1/completed")).status == 200
        assert await old.ended(G) == "finished"
    async with serving(place, tmp_path, old_clients=True, slots=0) as old:
        extended = await heard(old, G, "extended")
        assert [each for _, each in extended] == [said("extended", "running", G)] * 2
        assert await heard(old, G, "extended", Last_Event_ID=extended[0][0]) == extended[1:]
        for exchange, state in (("running", "running"), ("blocked", "blocked"), ("finished", "finished")):
            blocker = {"taskId": A} if exchange == "blocked" else {}
            assert [each for _, each in await heard(old, G, exchange)] == [said(exchange, state, G, **blocker)]


async def test_what_is_no_exchange_of_a_graph_is_refused(tmp_path: Path) -> None:
    place = f"sqlite:///{tmp_path}/store.db"
    async with serving(place, tmp_path, old_clients=True, slots=0) as old:
        named = "/exchange/task-graph-running"
        for path, status, words in (
            ("/exchange/task-graph-died?taskGraphId=g", 404, "task-graph-running, task-graph-extended"),
            (named, 400, "?taskGraphId=ID"),
            (f"{named}?taskGraphId=g", 404, "not found"),
        ):
            answer = await call(old, "GET", path)
            assert (answer.status, words in answer.json["message"]) == (status, True), answer
        assert (await call(old, "PUT", f"/task-graph/{G}", graph(node(A)))).status == 200
        assert (await call(old, "GET", f"{named}?taskGraphId={G}", **{"Last-Event-ID": "x"})).status == 400
        async with old.session.head(f"{old.address}/v1{named}?taskGraphId={G}") as head:
            assert (head.status, head.content_type) == (200, "text/event-stream")
    async with serving(place, tmp_path, old_clients=True, slots=0, anonymous=False) as closed:
        assert (await call(closed, "GET", f"{named}?taskGraphId={G}")).status == 401
