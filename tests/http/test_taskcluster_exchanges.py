"""The old scheduler's exchanges: what is said of a graph that an old client creates, on a queue of the store."""

import asyncio
import json
import secrets
from pathlib import Path
from typing import Any

from taskgraph.model import schemas
from tests.http.serving import Server, serving
from tests.http.test_taskcluster import A, B, G, call, graph, node
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
