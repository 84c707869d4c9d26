"""Agents over the Model Context Protocol: the SDK's own client, and `taskgraph mcp` as a process."""

import json
import secrets
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from jsonschema import Draft202012Validator
from mcp.client.session import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client

from taskgraph.interfaces.mcp import server as mcp_server
from taskgraph.interfaces.mcp.tools import APPLY, TOOLS
from taskgraph.model.roles import Role
from tests.http.serving import Server, serving
from tests.http.test_reads import PLACES, rich

AGENT = types.Implementation(name="tester", version="1")
_NO_PLAN = f"sha256:{'0' * 64}"


@asynccontextmanager
async def agent(store: str, *options: str, **environ: str) -> AsyncIterator[ClientSession]:
    words = ["-m", "taskgraph", "--store", store, "mcp", *options]
    async with (
        stdio_client(StdioServerParameters(command=sys.executable, args=words, env=environ)) as (reading, writing),
        ClientSession(reading, writing, client_info=AGENT) as session,
    ):
        await session.initialize()
        yield session


async def call(session: ClientSession, name: str, *, wrong: bool = False, **arguments: Any) -> Any:
    """The answer; its text where it is no JSON."""
    found = await session.call_tool(name, arguments)
    (content,) = found.content
    assert isinstance(content, types.TextContent)
    assert bool(found.is_error) == wrong, content.text
    try:
        return json.loads(content.text)
    except ValueError:
        return content.text


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[tuple[Server, str]]:
    """A server that handles and works, and its store."""
    place = f"sqlite:///{tmp_path}/store.db"
    async with serving(place, tmp_path) as server:
        yield server, place


async def test_each_tool_that_looks_answers(store: tuple[Server, str]) -> None:
    server, place = store
    await rich(server)
    async with agent(place) as session:
        tools = {each.name: each for each in (await session.list_tools()).tools}
        assert APPLY not in tools
        for name, tool in tools.items():
            Draft202012Validator.check_schema(tool.input_schema)
            assert tool.annotations is not None
            assert tool.annotations.read_only_hint
            given: dict[str, Any] = {each: PLACES[each] for each in TOOLS[name].route.path_names}
            if (body := TOOLS[name].body) is not None:
                given[body[0]] = {"change": "cancel"} if body[0] == "change" else {"tasks": {"x": {"task": {}}}}
            await call(session, name, **given)
        assert "line 5" in await call(session, "get_log", graph="g", task="a", run=0)
        tasks = await call(session, "list_tasks", graph="g", match="b", limit=5)
        assert {each["label"] for each in tasks["tasks"]} == {"b", "bad"}
        graphs = await call(session, "list_graphs", tag=["kind=test"])
        assert [each["graphId"] for each in graphs["graphs"]] == ["g"]
        assert (await call(session, "get_task", graph="g", task="b", edges=True))["definition"]


async def test_a_change_is_made_as_it_was_planned_and_the_journal_has_who_made_it(store: tuple[Server, str]) -> None:
    server, place = store
    await rich(server)
    change = {"change": "cancel", "labels": ["far"], "reason": "no such machine"}
    async with agent(place, "--apply") as session:
        plan = await call(session, "plan_change", graph="g", change=change)
        assert {each["label"]: each["to"] for each in plan["tasks"]}["far"] == "cancelled"
        done = await call(session, APPLY, graph="g", change=change, plan=plan["plan"])
        assert done["state"] == "done"
        assert (await call(session, "get_task", graph="g", task="far"))["state"] == "cancelled"
        events = (await call(session, "get_events", graph="g"))["events"]
        assert "agent tester" in {each.get("by") for each in events}
        stale = await call(session, APPLY, graph="g", change=change, plan=plan["plan"], wrong=True)
        assert stale["code"] in ("stale-plan", "nothing")
        other = {"change": "rerun", "labels": ["bad"]}
        plan = await call(session, "plan_change", graph="g", change=other)
        assert (await server.ask("POST", "/graphs/g/changes?unguarded=1", data=other, Prefer="wait=20")).status == 200
        stale = await call(session, APPLY, graph="g", change=other, plan=plan["plan"], wrong=True)
        assert (stale["code"], stale["plan"]["plan"] != plan["plan"]) == ("stale-plan", True)


async def test_nothing_is_changed_without_a_plan(store: tuple[Server, str]) -> None:
    server, place = store
    await rich(server)
    change = {"change": "cancel"}
    async with agent(place, "--apply") as session:
        assert "plan is missing" in await call(session, APPLY, graph="g", change=change, wrong=True)
        assert (await call(session, APPLY, graph="g", change=change, plan=_NO_PLAN, wrong=True))["code"] == "stale-plan"
    async with agent(place) as session:
        plan = await call(session, "plan_change", graph="g", change=change)
        words = await call(session, APPLY, graph="g", change=change, plan=plan["plan"], wrong=True)
        assert words.startswith("there is no tool apply_change")
    assert (await server.get("/graphs/g")).json["state"] != "cancelled"


async def test_wrong_calls_say_what_is_wrong(store: tuple[Server, str]) -> None:
    server, place = store
    await rich(server)
    await server.ask("PUT", "/graphs/nightly-1", data={"tasks": {"one": {"task": {}}}})
    async with agent(place) as session:
        assert (await call(session, "get_graph", graph="nightly-2", wrong=True))["near"] == ["nightly-1"]
        words = await call(session, "get_graph", id="g", wrong=True)
        assert words == "get_graph: graph is missing, there is no id; it takes graph"
        assert (await call(session, "list_tasks", graph="g", limit=0, wrong=True))["code"] == "invalid-query"
        wrong = await call(session, "plan_change", graph="g", change={"change": "rerun", "label": "a"}, wrong=True)
        assert wrong["problems"]


async def test_an_agent_sees_its_graphs_alone(store: tuple[Server, str]) -> None:
    server, place = store
    for graph_id in ("mine-1", "other"):
        await server.ask("PUT", f"/graphs/{graph_id}", data={"tasks": {"one": {"task": {}}}})
    async with agent(place, "--graph", "mine-*") as session:
        assert [each["graphId"] for each in (await call(session, "list_graphs"))["graphs"]] == ["mine-1"]
        assert (await call(session, "get_graph", graph="mine-1"))["graphId"] == "mine-1"
        assert (await call(session, "get_graph", graph="other", wrong=True))["code"] == "scope"


async def test_an_agent_behind_a_server_has_the_rights_of_its_token(tmp_path: Path) -> None:
    async with serving(f"sqlite:///{tmp_path}/store.db", tmp_path, anonymous=False) as server:
        graph_id = f"g-{secrets.token_hex(4)}"
        document = {"tasks": {"far": {"task": {"target": "gpu"}}}}
        await server.ask("PUT", f"/graphs/{graph_id}", data=document, token=server.tokens[Role.ADMIN])
        change = {"change": "cancel"}
        api = f"{server.address}/api"
        async with agent(api, "--apply", TASKGRAPH_TOKEN=server.tokens[Role.READER]) as session:
            plan = await call(session, "plan_change", graph=graph_id, change=change)
            refused = await call(session, APPLY, graph=graph_id, change=change, plan=plan["plan"], wrong=True)
            assert refused["code"] in ("role", "refused"), refused
        async with agent(api, "--apply", TASKGRAPH_TOKEN=server.tokens[Role.OPERATOR]) as session:
            done = await call(session, APPLY, graph=graph_id, change=change, plan=plan["plan"])
            assert done["state"] == "done"


async def test_an_answer_that_is_too_long_says_how_to_ask_for_less(
    store: tuple[Server, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, _ = store
    await rich(server)
    monkeypatch.setattr(mcp_server, "ANSWER_CHARS_MAX", 100)
    async with AsyncExitStack() as stack:
        door = mcp_server._Door(server.app, (), stack)
        found = await door.call("agent", TOOLS["list_tasks"], {"graph": "g"})
    (content,) = found.content
    assert isinstance(content, types.TextContent)
    assert found.is_error
    assert content.text.endswith("ask for less of it, by label, group, state, match, limit, page")
