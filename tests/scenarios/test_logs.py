"""The logs of many tasks: which, in what order, their ends, and as they grow."""

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator
from functools import partial
from typing import Any

import pytest

from taskgraph import Client, InvalidInput, NotFound
from taskgraph.interfaces.operations import logs
from taskgraph.interfaces.operations.logs import Wanted
from taskgraph.model.errors import StorageUnavailable
from taskgraph.model.ids import task_id_of
from taskgraph.storage.logs import size_of
from taskgraph.storage.memory import MemoryLogs
from taskgraph.storage.signals import news
from taskgraph.testing import MemoryStore


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with Client(MemoryStore()) as client:
        yield client


def says(text: str, *requires: str, fails: bool = False, **more: Any) -> dict[str, Any]:
    command = ["sh", "-c", f"printf '{text}'; {'false' if fails else 'true'}"]
    return {"requires": list(requires), "task": {"payload": {"command": command}}, **more}


GRAPH = {
    "failurePolicy": "continue",
    "groups": {"some": {"tasks": ["b", "silent", "bad"]}},
    "tasks": {
        "b": says("1 of b\\n2 of b\\n"),
        "a": says("1 of a\\n\\n3 of a", "b"),
        "silent": {},
        "bad": says("run $TASKGRAPH_RUN_ID\\n", "a", fails=True, reruns=1),
    },
}
GRAPH["tasks"]["bad"]["task"]["payload"]["command"][2] = "echo run $TASKGRAPH_RUN_ID; false"  # type: ignore[index]


async def told(client: Client, wanted: Wanted, tail: int | None = None) -> list[tuple[str, int, bytes]]:
    found, _ = await logs.find(client.app, "g", wanted)
    return [(each.label, each.run, each.data) async for each in logs.read(found, tail=tail)]


async def test_logs_of_a_graph_come_by_the_starts_of_its_tasks(client: Client) -> None:
    await client.run(GRAPH, "g")
    b, a, bad = ("b", 0, b"1 of b\n2 of b\n"), ("a", 0, b"1 of a\n\n"), ("bad", 1, b"run 1\n")
    assert await told(client, Wanted()) == [b, a, ("a", 0, b"3 of a"), bad]
    assert await told(client, Wanted(), 1) == [("b", 0, b"2 of b\n"), ("a", 0, b"3 of a"), bad]
    assert await told(client, Wanted(), 2) == [b, ("a", 0, b"\n"), ("a", 0, b"3 of a"), bad]
    assert await told(client, Wanted(), 0) == []
    assert await told(client, Wanted(failed=True)) == [bad]
    assert await told(client, Wanted(group="some")) == [b, bad]
    assert await told(client, Wanted(labels=("bad", "b"))) == [b, bad]
    assert await told(client, Wanted(labels=("b",), failed=True)) == []
    _, without = await logs.find(client.app, "g", Wanted(labels=("b", "silent")))
    assert [each.label for each in without] == ["silent"]
    for wrong in (Wanted(labels=("c",)), Wanted(group="c")):
        with pytest.raises(NotFound):
            await logs.find(client.app, "g", wrong)
    with pytest.raises(NotFound):
        await logs.find(client.app, "h", Wanted())
    with pytest.raises(InvalidInput):
        await logs.find(client.app, "g", Wanted(labels=("b",), group="some"))


async def test_the_end_of_a_log_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    seed = random.randrange(1 << 32)
    draw = random.Random(seed)
    monkeypatch.setattr(logs, "_STEP_BYTES", 8)
    for _ in range(200):
        data = bytes(draw.choices(b"ab\n", k=draw.randrange(70)))
        kept = MemoryLogs()
        if data:
            await kept.append("g", "t", 0, data)
        read = partial(kept.read, "g", "t", 0)
        assert await size_of(read) == len(data), f"seed {seed}: {data!r}"
        lines = data.splitlines(keepends=True)
        for number in range(4):
            wanted = b"".join(lines[len(lines) - number :] if number <= len(lines) else lines)
            start = await logs.start_of_tail(read, len(data), number)
            assert data[start:] == wanted, f"seed {seed}: {data!r}, {number}"


async def test_long_logs_come_in_whole_lines(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "PIECE_BYTES", 10)
    monkeypatch.setattr(logs, "_LINE_BYTES_MAX", 15)
    await client.submit({"tasks": {"a": {"active": False, "task": {}}}}, "g")
    await client.app.logs.append("g", task_id_of("g", "a"), 0, b"one\ntwo\nthree and four\n" + b"x" * 35)
    pieces = [data for _, _, data in await told(client, Wanted())]
    assert pieces[0] == b"one\ntwo\n"
    assert b"".join(pieces) == b"one\ntwo\nthree and four\n" + b"x" * 35
    assert max(map(len, pieces)) <= 25


async def test_logs_are_followed_until_the_graph_ends(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_LOOK_SECONDS", 0.01)
    graph = {"tasks": {"a": {}, "b": {"requires": ["a"]}}}
    await client.submit(graph, "g")
    seen: list[tuple[str, int, bytes]] = []

    def note(piece: logs.LogPiece) -> None:
        seen.append((piece.label, piece.run, piece.data))

    async def follow() -> None:
        async for each in logs.follow(client.app, "g", Wanted(), tail=1):
            note(each)

    async def add(label: str, run: int, data: bytes, *shown: tuple[str, int, bytes]) -> None:
        before = len(seen)
        await client.app.logs.append("g", task_id_of("g", label), run, data)
        async with asyncio.timeout(5):
            while len(seen) < before + len(shown):
                await asyncio.sleep(0.01)
        assert seen[before:] == list(shown)

    await client.app.logs.append("g", task_id_of("g", "a"), 0, b"old\nlast\n")
    following = asyncio.create_task(follow())
    while not seen:
        await asyncio.sleep(0.01)
    assert seen == [("a", 0, b"last\n")]
    await add("a", 0, b"new\nbegun", ("a", 0, b"new\n"))
    await add("b", 0, b"1\n2\n", ("b", 0, b"1\n2\n"))
    await add("a", 1, b"again\n", ("a", 0, b"begun"), ("a", 1, b"again\n"))
    monkeypatch.setattr(logs, "_QUIET_SECONDS", 0.0)
    await add("b", 0, b"prompt: ", ("b", 0, b"prompt: "))
    monkeypatch.setattr(logs, "_QUIET_SECONDS", 60.0)
    await client.app.logs.append("g", task_id_of("g", "b"), 0, b"no end")
    assert (await client.run(graph, "g")).state == "finished"
    await asyncio.wait_for(following, 10)
    assert seen[-1] == ("b", 0, b"no end")
    with pytest.raises(InvalidInput):
        await anext(logs.follow(client.app, "g", Wanted(failed=True)))


async def test_who_follows_logs_outlasts_a_store_that_is_away(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(news, "AGAIN_SECONDS", 0.01)
    await client.submit({"tasks": {"a": {}}}, "g")
    await client.app.logs.append("g", task_id_of("g", "a"), 0, b"one\n")
    looks: list[int] = []
    look = logs._Following.look

    async def away(self: logs._Following) -> AsyncGenerator[logs.LogPiece]:
        looks.append(1)
        if len(looks) == 3:
            raise StorageUnavailable("it is away")
        async for each in look(self):
            yield each

    async def follow() -> bytes:
        return b"".join([each.data async for each in logs.follow(client.app, "g", Wanted())])

    monkeypatch.setattr(logs._Following, "look", away)
    following = asyncio.create_task(follow())
    async with asyncio.timeout(10):
        while len(looks) < 5:
            await asyncio.sleep(0.01)
    await client.app.logs.append("g", task_id_of("g", "a"), 0, b"two\n")
    assert (await client.run({"tasks": {"a": {}}}, "g")).state == "finished"
    assert await asyncio.wait_for(following, 10) == b"one\ntwo\n"
