"""The HTTP API in the function app that we ship, under Microsoft's own Python worker, beside its queue triggers."""

import asyncio
import json
import os
import secrets
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from taskgraph import Client
from taskgraph.interfaces.operations import shares, tokens
from taskgraph.interfaces.settings import StoreSettings
from taskgraph.model.roles import Role
from tests.e2e.processes import taskgraph, until
from tests.functions.hosting import RunningHost, running_host, write_app
from tests.functions.test_shipped_app import listed, working

pytestmark = [pytest.mark.azurite, pytest.mark.campaign]

KEY: Final = "a-key-of-this-test"
GRAPH: Final = {"tasks": {"one": {"task": {}}, "two": {"requires": ["one"], "task": {}}}}


def http_bindings(level: str) -> list[dict[str, Any]]:
    return [
        {
            "authLevel": level,
            "type": "httpTrigger",
            "direction": "IN",
            "name": "req",
            "methods": ["GET", "POST", "DELETE", "HEAD", "PATCH", "PUT", "OPTIONS"],
            "route": "/{*route}",
        },
        {"type": "http", "direction": "OUT", "name": "$return"},
    ]


@pytest.mark.parametrize(("setting", "level"), [("tokens", "ANONYMOUS"), ("reader", "FUNCTION"), ("admin", "FUNCTION")])
def test_the_worker_reports_http_beside_queues_and_timer(
    worker_library: Path, tmp_path: Path, setting: str, level: str
) -> None:
    found = {each["name"]: each for each in listed(tmp_path, TASKGRAPH_HTTP=setting)}
    assert list(found) == ["events", "events-poison", "http", "sweep"]
    kinds = {name: each["trigger"] for name, each in found.items()}
    assert (kinds["events"], kinds["sweep"], kinds["http"]) == ("queueTrigger", "timerTrigger", "httpTrigger")
    by_name = {each["name"]: each for each in found["http"]["bindings"]}
    assert by_name == {each["name"]: each for each in http_bindings(level)}
    assert (found["http"]["path"], found["http"]["level"]) == ("/*", level.lower())


def started(azurite: str, folder: Path, setting: str) -> "Iterator[tuple[RunningHost, StoreSettings]]":
    prefix = f"t{secrets.token_hex(6)}"
    more = {"TASKGRAPH_HTTP": setting, "TASKGRAPH_FUNCTIONS_KEY": KEY}
    with running_host(azurite, folder, prefix, "--http", "0", TASKGRAPH_SWEEP_SECONDS="5", **more) as running:
        until(lambda: running.all("ready") or running.process.poll() is not None, what="the host is ready")
        assert running.all("ready"), running.errors
        yield running, StoreSettings(connection_string=azurite, prefix=prefix)


@pytest.fixture(scope="module")
def host(
    azurite: str, worker_library: Path, tmp_path_factory: pytest.TempPathFactory
) -> "Iterator[tuple[RunningHost, StoreSettings]]":
    """Whoever has the key may submit."""
    yield from started(azurite, tmp_path_factory.mktemp("http"), "submitter")


@pytest.fixture
async def client(host: tuple[RunningHost, StoreSettings]) -> AsyncIterator[Client]:
    async with Client(host[1]) as opened:
        yield opened


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as opened:
        yield opened


async def ask(
    session: aiohttp.ClientSession, running: RunningHost, method: str, path: str, *, key: str = KEY, **more: Any
) -> tuple[int, Any, Any]:
    """Status, headers, and the body: as JSON, where it is that."""
    (ready,) = running.all("ready")
    headers = {**({"x-functions-key": key} if key else {}), **more.pop("headers", {})}
    async with session.request(method, f"{ready['address']}{path}", headers=headers, **more) as answer:
        body = await answer.read()
        return answer.status, answer.headers, json.loads(body) if "json" in answer.content_type else body


async def test_a_graph_is_submitted_and_followed_by_http_and_run_by_the_queue_triggers(
    host: tuple[RunningHost, StoreSettings], client: Client, session: aiohttp.ClientSession
) -> None:
    running, _ = host
    status, headers, made = await ask(session, running, "PUT", "/api/v1/graphs/first", json=GRAPH)
    assert (status, headers["location"], made["taskCount"]) == (201, "/api/v1/graphs/first", 2)
    assert (await ask(session, running, "PUT", "/api/v1/graphs/first", json=GRAPH))[0] == 200
    status, headers, shown = await ask(session, running, "GET", "/api/v1/graphs/first")
    assert (status, shown["state"], shown["counts"]["completed"]) == (200, "running", 0)
    cached = await ask(session, running, "GET", "/api/v1/graphs/first", headers={"If-None-Match": headers["etag"]})
    assert cached[0] == 304
    async with working(client), asyncio.timeout(60):
        cursor, kinds = "0", []
        while "graph-finished" not in kinds:
            path = f"/api/v1/graphs/first/events?since={cursor}&wait=5"
            status, _, found = await ask(session, running, "GET", path)
            assert status == 200
            kinds += [each["event"] for each in found["events"]]
            cursor = found["events"][-1]["cursor"] if found["events"] else cursor
    assert kinds.count("task-completed") == 2
    status, _, shown = await ask(session, running, "GET", "/api/v1/graphs/first")
    assert (shown["state"], shown["counts"]["completed"]) == ("finished", 2)
    (first, *_) = (await ask(session, running, "GET", "/api/v1/graphs/first/events"))[2]["events"]
    assert (first["event"], first["by"]) == ("graph-running", "functions-key")
    assert running.all("executed", function="events", succeeded=True), "queues are handled beside it"
    assert running.all("executed", function="http", succeeded=True)


async def test_answers_are_packed_and_problems_are_problems(
    host: tuple[RunningHost, StoreSettings], session: aiohttp.ClientSession
) -> None:
    running, _ = host
    status, headers, description = await ask(session, running, "GET", "/api/v1/openapi.json")
    assert (status, description["openapi"], headers["content-encoding"]) == (200, "3.1.0", "gzip")
    for method, path, body, wanted in (
        ("GET", "/api/v1/graphs/none", None, (404, "not-found")),
        ("GET", "/api/v1/nowhere", None, (404, "no-route")),
        ("PUT", "/api/v1/graphs/bad", b"{", (400, "invalid-graph")),
        ("PATCH", "/api/v1/graphs/bad", None, (405, "method")),
        ("GET", "/api/v1/graphs?limit=x", None, (400, "invalid-query")),
    ):
        status, headers, problem = await ask(
            session, running, method, path, data=body, headers={"Content-Type": "application/json"}
        )
        assert (status, problem["code"]) == wanted, path
        assert headers["content-type"] == "application/problem+json"


async def test_a_stream_of_events_is_refused_with_what_to_ask_instead(
    host: tuple[RunningHost, StoreSettings], session: aiohttp.ClientSession
) -> None:
    running, _ = host
    await ask(session, running, "PUT", "/api/v1/graphs/streamed", json=GRAPH)
    path = "/api/v1/graphs/streamed/events"
    status, headers, problem = await ask(session, running, "GET", path, headers={"Accept": "text/event-stream"})
    assert (status, problem["code"]) == (406, "no-stream")
    assert headers["link"] == f'<{path}?since=0&wait=25>; rel="alternate"; type="application/json"'


async def test_who_may_what_with_the_key_and_with_tokens(
    host: tuple[RunningHost, StoreSettings], client: Client, session: aiohttp.ClientSession
) -> None:
    running, _ = host
    await ask(session, running, "PUT", "/api/v1/graphs/mine", json=GRAPH)
    _, operator = await tokens.create(client.app, "ops", Role.OPERATOR)
    _, reader = await tokens.create(client.app, "look", Role.READER)
    _, share = await shares.share(client.app, "mine")

    async def status(method: str, path: str, token: str = "", key: str = KEY) -> int:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        body: Any = {"POST": {"change": "pause"}, "PUT": GRAPH}.get(method)
        return (await ask(session, running, method, f"/api/v1{path}", key=key, headers=headers, json=body))[0]

    change = "/graphs/mine/changes?unguarded=1"
    assert await status("GET", "/graphs", key="") == 401, "the platform asks for its key"
    assert await status("GET", "/graphs", key="wrong") == 401
    assert await status("GET", f"/graphs?code={KEY}", key="") == 400, "the key is none of our parameters"
    assert await status("GET", "/graphs", operator, key="") == 401
    assert await status("GET", "/graphs") == 200
    assert await status("POST", change) == 403, "the key submits, and no more"
    assert await status("POST", change, operator) == 202
    assert await status("PUT", "/graphs/other", reader) == 403, "a token counts, and not the key"
    assert await status("GET", "/graphs/mine", share) == 200
    assert await status("GET", "/graphs/first", share) == 403
    assert await status("GET", "/graphs", "tg.no.such") == 401


async def test_a_request_whose_worker_dies_gets_503_and_the_next_one_is_answered(
    host: tuple[RunningHost, StoreSettings], session: aiohttp.ClientSession
) -> None:
    running, _ = host
    await ask(session, running, "PUT", "/api/v1/graphs/waiting", json=GRAPH)
    path = "/api/v1/graphs/waiting/events?since=9&wait=20"
    waiting = asyncio.create_task(ask(session, running, "GET", path))
    await running.until_found(lambda: [each for each in running.all("executing") if path[:20] in each["reason"]])
    os.kill(running.worker_pid, signal.SIGKILL)
    assert (await waiting)[0] == 503
    async with asyncio.timeout(30):
        while (status := (await ask(session, running, "GET", "/api/v1/graphs/waiting"))[0]) == 503:
            await asyncio.sleep(0.1)
    assert status == 200


def test_tokens_alone_open_it_where_the_platform_asks_for_no_key(
    azurite: str, worker_library: Path, tmp_path: Path
) -> None:
    async def look(running: RunningHost, settings: StoreSettings) -> None:
        async with Client(settings) as client, aiohttp.ClientSession() as session:
            _, text = await tokens.create(client.app, "look", Role.READER)
            assert (await ask(session, running, "GET", "/api/v1/graphs", key=""))[0] == 401
            headers = {"Authorization": f"Bearer {text}"}
            assert (await ask(session, running, "GET", "/api/v1/graphs", key="", headers=headers))[0] == 200
            crossing = {**headers, "Origin": "https://evil.example"}
            assert (await ask(session, running, "GET", "/api/v1/graphs", key="", headers=crossing))[0] == 403

    for running, settings in started(azurite, tmp_path, "tokens"):
        asyncio.run(look(running, settings))


def test_a_route_that_azure_refuses_is_refused_here(worker_library: Path, tmp_path: Path) -> None:
    """Azure's host makes of it `api//{*route}`, and ends."""
    source = "app = func.AsgiFunctionApp(None, http_auth_level='ANONYMOUS')\n"
    app = write_app(tmp_path / "app", source)
    done = taskgraph(
        "functions", "list", "--app", str(app), "--environment", str(worker_library),
        store="UseDevelopmentStorage=true", cwd=tmp_path, TASKGRAPH_PREFIX="tunused",
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert "the route /{*route} begins with /" in done.stderr
    assert 'routePrefix ""' in done.stderr
