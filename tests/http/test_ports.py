"""Rows behind a client over HTTP: who gets which partition, and that what opens the API is served to no one."""

import asyncio
from typing import Any

import pytest

from taskgraph.interfaces.http.ports import _INDEXES
from taskgraph.interfaces.operations import shares, tokens
from taskgraph.model import names
from taskgraph.model.roles import Role
from tests.http.serving import Server, shape_errors

GRAPH: dict[str, Any] = {"tasks": {"one": {"task": {"executor": "noop"}}}}


async def rows(server: Server, partition: str, token: str | None, query: str = "") -> Any:
    return await server.ask("GET", f"/partitions/{partition}/rows{query}", token=token)


async def ended(server: Server, graph_id: str, token: str | None = None) -> None:
    async with asyncio.timeout(20):
        while (await server.ask("GET", f"/graphs/{graph_id}", token=token)).json["state"] != "finished":
            await asyncio.sleep(0.05)


async def test_tokens_and_what_is_not_named_are_served_to_no_one(guarded: Server) -> None:
    for partition in (names.TOKENS, "index:cache", "index:no", "index:tokens%00"):
        for role in Role:
            for query in ("", "?key=reader", "?start=a&end=z"):
                found = await rows(guarded, partition, guarded.tokens[role], query)
                assert found.status in (400, 403, 404), (partition, role, found)
                assert "hash" not in found.data.decode("utf-8", "replace").replace("hash…", ""), (partition, role)


async def test_of_each_index_a_token_gets_what_is_about_its_graphs(guarded: Server) -> None:
    for graph_id in ("mine-1", "other"):
        await guarded.ask("PUT", f"/graphs/{graph_id}", data=GRAPH, token=guarded.tokens[Role.ADMIN])
    await ended(guarded, "other", guarded.tokens[Role.READER])
    scoped = (await tokens.create(guarded.app, "some", Role.READER, graphs=["mine-*"]))[1]
    shared = (await shares.share(guarded.app, "mine-1"))[1]
    for token in (scoped, shared):
        assert (await rows(guarded, "mine-1", token)).status == 200
        assert (await rows(guarded, "other", token)).status == 403
        for partition in _INDEXES:
            found = await rows(guarded, partition, token)
            assert found.status in (200, 403), (partition, found)
            if found.status == 200:
                assert shape_errors("storedRows", found.json) == []
                assert b"other" not in found.data, partition
    listed = (await rows(guarded, names.ALL, scoped)).json["rows"]
    assert [each["columns"]["graph"] for each in listed] == ["mine-1"]
    everything = (await rows(guarded, names.ALL, guarded.tokens[Role.READER])).json["rows"]
    assert len(everything) == 2


async def test_hidden_columns_cannot_be_asked_about(guarded: Server) -> None:
    scoped = (await tokens.create(guarded.app, "some", Role.READER, graphs=["mine-*"]))[1]
    for query in ("?where.running=x", "?where.token=x"):
        assert (await rows(guarded, "index:workers", scoped, query)).status == 403


@pytest.mark.parametrize(
    "query", ["?limit=0", "?start=b&page=%00", "?where.=x", "?" + "&".join(["key=a"] * 101), f"?key={'a' * 2_000}"]
)
async def test_what_no_store_takes_is_refused(local: Server, query: str) -> None:
    await local.ask("PUT", "/graphs/g", data=GRAPH)
    assert (await rows(local, "g", None, query)).status in (200, 400)


@pytest.mark.parametrize("path", ["/partitions/g/rows", "/graphs/g/logs"])
async def test_a_page_is_taken_only_where_it_was_given(local: Server, path: str) -> None:
    await local.ask("PUT", "/graphs/g", data={"tasks": {name: {"task": {"executor": "noop"}} for name in "abc"}})
    for page in ("x", "MDAwMSE%3D", "bnVsbA", "eyJhIjoxfQ"):
        found = await local.ask("GET", f"{path}?page={page}")
        assert (found.status, found.json["code"]) == (400, "invalid-page"), (page, found)


async def test_the_pages_of_a_partition_are_all_its_rows(local: Server) -> None:
    await local.ask("PUT", "/graphs/g", data={"tasks": {name: {"task": {"executor": "noop"}} for name in "abc"}})
    await ended(local, "g")
    found: list[str] = []
    page = ""
    while True:
        one = (await rows(local, "g", None, f"?limit=2{page}")).json
        found += [each["key"] for each in one["rows"]]
        assert len(one["rows"]) <= 2
        if not one["next"]:
            break
        page = f"&page={one['next']}"
        foreign = await local.ask("GET", f"/partitions/g/rows?limit=2&start=b{page}")
        assert (foreign.status, foreign.json["code"]) == (400, "invalid-page")
    whole = (await rows(local, "g", None, "?limit=1000")).json["rows"]
    assert found == [each["key"] for each in whole]


async def test_a_page_is_the_same_alone_and_among_others(local: Server) -> None:
    await local.ask("PUT", "/graphs/g", data={"tasks": {name: {"task": {"executor": "noop"}} for name in "abc"}})
    await ended(local, "g")
    select = "".join(f"&select={name}" for name in ("label", "state", "run", "started", "leaseSeconds"))
    for query in (f"?start=task:&limit=2{select.removesuffix('&select=leaseSeconds')}", f"?limit=9{select}"):
        alone = (await rows(local, "g", None, query)).json
        [among] = (await local.ask("POST", "/reads", data=[f"/partitions/g/rows{query}"])).json["answers"]
        assert len(alone["rows"]) >= 2
        assert alone == among
    assert shape_errors("storedRows", alone) == []
