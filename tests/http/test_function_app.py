"""The HTTP API of the function app, without its host: what its settings say, and what it answers as an ASGI app."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import aiohttp
import pytest

from taskgraph.functions import Door, read_bindings
from taskgraph.interfaces.http.server import Address, bind, serve_until
from taskgraph.interfaces.operations import tokens
from taskgraph.model.errors import InvalidSettings
from taskgraph.model.flag import Flag
from taskgraph.model.roles import Role
from tests.http.access_table import DOCUMENT
from tests.http.entra_keys import AUDIENCE, TENANT, handing_out, token

Ask = Callable[..., Any]


@asynccontextmanager
async def answering(store: str, **settings: str) -> AsyncIterator[tuple[Door, Ask]]:
    """The app behind a port, as its host calls it: with the startup of ASGI first."""
    door = Door({"AzureWebJobsStorage": store, "TASKGRAPH_PREFIX": f"t{secrets.token_hex(6)}", **settings})
    said: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "lifespan.startup"}

    async def send(message: Any) -> None:
        said.append(message)

    await door.asgi({"type": "lifespan"}, receive, send)
    assert said == [{"type": "lifespan.startup.complete"}]
    bound, stop = bind(Address("127.0.0.1", 0)), Flag()
    serving = asyncio.create_task(serve_until(door.asgi, bound, stop))
    base = f"http://127.0.0.1:{bound.getsockname()[1]}/api/v1"
    try:
        async with aiohttp.ClientSession() as session:

            async def ask(method: str, path: str, text: str = "", **headers: str) -> tuple[int, Any]:
                own = {"Authorization": f"Bearer {text}"} if text else {}
                body = DOCUMENT if method == "PUT" else {"change": "pause"} if method == "POST" else None
                named = {name.replace("_", "-"): value for name, value in headers.items()}
                async with session.request(method, base + path, json=body, headers={**own, **named}) as answer:
                    return answer.status, await answer.json(content_type=None)

            yield door, ask
    finally:
        stop.set()
        await serving
        await door.close()


@pytest.fixture
def app(azurite: str) -> Callable[..., AbstractAsyncContextManager[tuple[Door, Ask]]]:
    def made(**settings: str) -> AbstractAsyncContextManager[tuple[Door, Ask]]:
        return answering(azurite, **settings)

    return made


@pytest.mark.azurite
async def test_the_key_of_the_platform_stands_for_the_role_of_the_setting(app: Ask) -> None:
    async with app(TASKGRAPH_HTTP="submitter") as (door, ask):
        assert (await ask("PUT", "/graphs/g", Host="myapp.azurewebsites.net"))[0] == 201
        events = (await ask("GET", "/graphs/g/events"))[1]["events"]
        assert [(each["event"], each["by"]) for each in events] == [("graph-running", "functions-key")]
        status, problem = await ask("POST", "/graphs/g/changes?unguarded=1")
        assert (status, problem["code"]) == (403, "role")
        _, text = await tokens.create(await door.app(), "ops", Role.OPERATOR)
        assert (await ask("POST", "/graphs/g/changes?unguarded=1", text))[0] == 202
        assert (await ask("GET", "/graphs/g", "tg.ops.wrong"))[0] == 401


@pytest.mark.azurite
async def test_tokens_alone_open_it_where_the_setting_says_so(app: Ask) -> None:
    async with handing_out() as keys:
        entra = {"TASKGRAPH_ENTRA_TENANT": TENANT, "TASKGRAPH_ENTRA_AUDIENCE": AUDIENCE}
        async with app(TASKGRAPH_HTTP="tokens", AZURE_AUTHORITY_HOST=keys.address, **entra) as (door, ask):
            assert (await ask("GET", "/graphs"))[0] == 401
            _, text = await tokens.create(await door.app(), "look", Role.READER)
            assert (await ask("GET", "/graphs", text))[0] == 200
            assert (await ask("GET", "/graphs", token(keys)))[0] == 200
            assert (await ask("GET", "/graphs", token(keys, aud="another")))[0] == 401


@pytest.mark.azurite
async def test_what_is_no_answer_at_once_and_no_request_of_its_own_pages_is_refused(app: Ask) -> None:
    async with app(TASKGRAPH_HTTP="admin") as (_, ask):
        assert (await ask("PUT", "/graphs/g"))[0] == 201
        status, problem = await ask("GET", "/graphs/g/events?since=1", Accept="text/event-stream")
        assert (status, problem["code"]) == (406, "no-stream")
        assert "/api/v1/graphs/g/events?since=1&wait=25" in problem["detail"]
        assert (await ask("GET", "/graphs/g/events?since=9&wait=0.1"))[1]["events"] == []
        own = {"Host": "graphs.example.com", "Origin": "https://graphs.example.com"}
        assert (await ask("GET", "/graphs", **own))[0] == 200
        assert (await ask("GET", "/graphs", **{**own, "Origin": "https://evil.example"}))[1]["code"] == "cross-site"
        assert (await ask("GET", "/graphs", Sec_Fetch_Site="cross-site"))[1]["code"] == "cross-site"


def test_there_is_no_http_unless_a_setting_says_so() -> None:
    assert [read_bindings({"TASKGRAPH_HTTP": text}).http for text in ("", "off")] == ["", ""]
    levels = {text: read_bindings({"TASKGRAPH_HTTP": text}).http_level for text in ("tokens", "reader", "admin")}
    assert levels == {"tokens": "ANONYMOUS", "reader": "FUNCTION", "admin": "FUNCTION"}
    for text in ("on", "worker", "anonymous", "ADMIN"):
        with pytest.raises(InvalidSettings, match="TASKGRAPH_HTTP"):
            read_bindings({"TASKGRAPH_HTTP": text})


def test_a_setting_of_entra_that_makes_no_sense_is_named_when_the_app_is_loaded() -> None:
    with pytest.raises(InvalidSettings, match="TASKGRAPH_ENTRA_AUDIENCE is missing"):
        Door({"TASKGRAPH_HTTP": "tokens", "TASKGRAPH_ENTRA_TENANT": TENANT})
    Door({"TASKGRAPH_ENTRA_TENANT": TENANT})  # without HTTP it is not looked at
