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
    async with asyncio.timeout(20):
        while (await guarded.ask("GET", "/graphs/other", token=guarded.tokens[Role.READER])).json[
            "state"
        ] != "finished":
            await asyncio.sleep(0.05)
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


@pytest.mark.parametrize("query", ["?limit=0", "?start=b&page=%00", "?where.=x", "?" + "&".join(["key=a"] * 101)])
async def test_what_no_store_takes_is_refused(local: Server, query: str) -> None:
    await local.ask("PUT", "/graphs/g", data=GRAPH)
    assert (await rows(local, "g", None, query)).status in (200, 400)
