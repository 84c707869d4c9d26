"""The journal over HTTP: pages, long polls, and streams that any number of clients follow at the cost of one."""

import asyncio
import gzip
import json
import zlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, Final

import aiohttp
import pytest

from taskgraph.interfaces import views
from taskgraph.interfaces.http import feeds, streams
from taskgraph.interfaces.operations import cancel
from taskgraph.model.errors import StorageUnavailable
from taskgraph.queries.journal import read_cursor
from tests.http.serving import Server

CHAIN: Final = {
    "tasks": {
        f"t{number}": {"requires": [f"t{number - 1}"] if number else [], "task": {"executor": "noop"}}
        for number in range(12)
    }
}
WAITS: Final = {"tasks": {"far": {"task": {"target": "gpu", "executor": "noop"}}}}
MORE: Final = {"tasks": {"more": {"task": {"executor": "noop"}}}}


async def frames(server: Server, path: str, base: str = "/api/v1", **headers: str) -> AsyncGenerator[dict[str, str]]:
    """The events of a stream, by its lines."""
    named = {"Accept": "text/event-stream", **{name.replace("_", "-"): text for name, text in headers.items()}}
    async with server.session.get(f"{server.address}{base}{path}", headers=named) as answer:
        assert answer.status == 200
        assert answer.content_type == "text/event-stream"
        frame: dict[str, str] = {}
        async for line in answer.content:
            name, _, text = line.decode().rstrip("\n").partition(": ")
            if name:
                frame[name] = text
            elif frame:
                yield frame
                frame = {}


async def journal(server: Server, graph_id: str) -> list[dict[str, Any]]:
    return [views.event(each) for each in await server.app.queries.events(graph_id, limit=100_000)]


async def test_a_stream_has_every_event_once_and_ends(open_to_all: Server) -> None:
    await open_to_all.ask("PUT", "/graphs/g", data=CHAIN)
    first, *found, last = [frame async for frame in frames(open_to_all, "/graphs/g/events")]
    assert first == {"retry": "2000"}
    assert last == {"event": "end", "data": "{}"}
    expected = await journal(open_to_all, "g")
    assert [json.loads(each["data"]) for each in found] == expected
    assert [(each["id"], each["event"]) for each in found] == [(each["cursor"], each["event"]) for each in expected]
    assert len({each["id"] for each in found}) == len(expected) > 12


async def test_a_stream_goes_on_from_any_event(local: Server) -> None:
    await local.ask("PUT", "/graphs/g", data=CHAIN)
    assert await local.ended("g") == "finished"
    cursors = [each["cursor"] for each in await journal(local, "g")]
    for number, cursor in enumerate(cursors):
        rest = [frame["id"] async for frame in frames(local, "/graphs/g/events", Last_Event_ID=cursor) if "id" in frame]
        assert rest == cursors[number + 1 :]
    since = [frame["id"] async for frame in frames(local, f"/graphs/g/events?since={cursors[3]}") if "id" in frame]
    assert since == cursors[4:]


async def test_a_filter_leaves_out_what_does_not_agree(local: Server) -> None:
    await local.ask("PUT", "/graphs/g", data=CHAIN)
    path = "/graphs/g/events?where.event=task-completed&where.label=t1*"
    labels = [json.loads(each["data"])["label"] async for each in frames(local, path) if "id" in each]
    assert labels == ["t1", "t10", "t11"]
    assert [each["label"] for each in (await local.get(path)).json["events"]] == labels


async def test_many_follow_at_the_cost_of_one(local: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = 0
    real = feeds.Feeds._batches

    def counted(self: feeds.Feeds, graph_id: str, place: feeds.Place) -> AsyncIterator[feeds.Batch]:
        nonlocal reads
        reads += 1
        return real(self, graph_id, place)

    monkeypatch.setattr(feeds.Feeds, "_batches", counted)
    await local.ask("PUT", "/graphs/g", data=WAITS)

    async def follow() -> list[str]:
        return [frame["id"] async for frame in frames(local, "/graphs/g/events") if "id" in frame]

    followers = [asyncio.create_task(follow()) for _ in range(50)]
    await asyncio.sleep(1.0)
    for number in range(5):
        more = {"tasks": {f"m{number}": {"task": {"executor": "noop"}}}}
        await local.ask("POST", "/graphs/g/extensions", data=more, Prefer="wait=20")
    await cancel.ask(local.app, "g")
    found = await asyncio.gather(*followers)
    expected = [each["cursor"] for each in await journal(local, "g")]
    assert all(each == expected for each in found)
    assert reads < 50 + 40, "each reads by itself"


async def test_a_stream_by_gzip_is_whole_and_each_piece_comes_at_once(
    local: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "_PING_SECONDS", 0.1)
    await local.ask("PUT", "/graphs/g", data=WAITS)
    packed, said = b"", b""
    unpacker = zlib.decompressobj(wbits=31)
    headers = {"Accept": "text/event-stream", "Accept-Encoding": "gzip"}
    url = f"{local.address}/api/v1/graphs/g/events"
    async with (
        aiohttp.ClientSession(auto_decompress=False) as session,
        session.get(url, headers=headers) as answer,
        asyncio.timeout(20),
    ):
        assert answer.headers["Content-Encoding"] == "gzip"
        while b"\n: ping" not in said:
            piece = await answer.content.readany()
            packed, said = packed + piece, said + unpacker.decompress(piece)
        assert b"event: graph-running" in said
        await cancel.ask(local.app, "g")
        packed += await answer.read()
    whole = gzip.decompress(packed)  # its length and checksum, too
    assert whole.startswith(said)
    assert whole.endswith(b"event: end\ndata: {}\n\n")
    plain = await local.get("/graphs/g/events", Accept="text/event-stream", Accept_Encoding="identity")
    assert "Content-Encoding" not in plain.headers
    assert [line for line in whole.splitlines() if line.startswith((b"id", b"data"))] == [
        line for line in plain.data.splitlines() if line.startswith((b"id", b"data"))
    ]


@pytest.mark.parametrize("limit", [1, 3, 10_000])
async def test_long_polls_from_any_event_get_as_many_as_they_ask_for(local: Server, limit: int) -> None:
    await local.ask("PUT", "/graphs/g", data=CHAIN)
    assert await local.ended("g") == "finished"
    expected = await journal(local, "g")

    async def follow(begin: int) -> None:
        since, found = expected[begin]["cursor"], expected[: begin + 1]
        while found[-1]["event"] != "graph-finished":
            got = (await local.get(f"/graphs/g/events?since={since}&wait=20&limit={limit}")).json["events"]
            assert 0 < len(got) <= limit
            found, since = found + got, got[-1]["cursor"]
        assert found == expected

    await asyncio.gather(*(follow(begin) for begin in (0, 0, 2, 2, len(expected) - 2)))


async def test_long_polls_get_all_that_was_read_once_for_others(local: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where none of them is there just then, and in as many batches as there are."""
    places = []
    real = feeds.Feeds._batches

    def counted(self: feeds.Feeds, graph_id: str, place: feeds.Place) -> AsyncIterator[feeds.Batch]:
        places.append(place)
        return real(self, graph_id, place)

    monkeypatch.setattr(feeds.Feeds, "_batches", counted)
    for name, value in {"_BATCH_EVENTS": 1, "_GATHER_SECONDS": 0.01, "_LOOK_SECONDS": 0.01}.items():
        monkeypatch.setattr(feeds, name, value)
    await local.ask("PUT", "/graphs/g", data=WAITS)
    for number in range(3):
        more = {"tasks": {f"m{number}": {"task": {"executor": "noop"}}}}
        await local.ask("POST", "/graphs/g/extensions", data=more, Prefer="wait=20")
    expected = await journal(local, "g")
    since = 0
    while since < expected[-1]["sequence"]:  # until the feed has read it all
        since = (await local.get(f"/graphs/g/events?since={since}&wait=5")).json["events"][-1]["sequence"]
    sequences = [each["sequence"] for each in expected]
    assert len({*sequences}) > 3
    before = len(places)
    for since in (0, sequences[1], 0):
        for encoding in ("gzip", "identity"):
            await asyncio.sleep(0.1)
            found = await local.get(f"/graphs/g/events?since={since}&wait=5", Accept_Encoding=encoding)
            assert found.json == {"graphId": "g", "events": [each for each in expected if each["sequence"] > since]}
    cut = (await local.get("/graphs/g/events?since=0&wait=5&limit=2")).json["events"]
    assert cut == [each for each in expected if each["sequence"] <= cut[-1]["sequence"]][:2]
    assert (0, 0) not in places[before:]


async def test_a_short_wait_misses_nothing_where_reading_takes_longer(
    local: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    await local.ask("PUT", "/graphs/g", data=WAITS)
    real = feeds.Feeds._batches

    async def late(self: feeds.Feeds, graph_id: str, place: feeds.Place) -> AsyncIterator[feeds.Batch]:
        await asyncio.sleep(0.5)
        async for each in real(self, graph_id, place):
            yield each

    monkeypatch.setattr(feeds.Feeds, "_batches", late)
    found = (await local.get("/graphs/g/events?since=0&wait=0.1")).json["events"]
    assert found
    assert found == (await local.get("/graphs/g/events")).json["events"][: len(found)]


async def test_a_long_poll_waits_for_the_next_event(open_to_all: Server) -> None:
    await open_to_all.ask("PUT", "/graphs/g", data=WAITS)
    events = (await open_to_all.get("/graphs/g/events")).json["events"]
    since = events[-1]["cursor"]
    assert (await open_to_all.get(f"/graphs/g/events?since={since}&wait=0.2")).json["events"] == []
    waiting = asyncio.create_task(open_to_all.get(f"/graphs/g/events?since={since}&wait=30"))
    await asyncio.sleep(0.5)
    assert not waiting.done()
    await open_to_all.ask("POST", "/graphs/g/extensions", data=MORE)
    fresh = (await waiting).json["events"]
    assert fresh
    assert fresh[0]["sequence"] > events[-1]["sequence"]


async def test_a_stream_of_no_graph_is_a_problem(local: Server) -> None:
    assert (await local.get("/graphs/nope/events", Accept="text/event-stream")).status == 404
    for since in ("x", "1.2.3", "-1"):
        assert (await local.get(f"/graphs/nope/events?since={since}")).status == 400
    await local.ask("PUT", "/graphs/g", data=WAITS)
    assert (await local.get("/graphs/g/events", Accept="text/event-stream", Last_Event_ID="x")).status == 400


async def test_what_a_follower_has_missed_is_read_for_it(local: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the feed keeps next to nothing, and batches are small."""
    monkeypatch.setattr(feeds, "_KEPT_EVENTS", 2)
    monkeypatch.setattr(feeds, "_BATCH_EVENTS", 1)
    await local.ask("PUT", "/graphs/g", data=CHAIN)
    found = await asyncio.gather(*[_ids(local, since) for since in ("0", "0", "1.0", "2", "4.0")])
    expected = [each["cursor"] for each in await journal(local, "g")]
    assert found[0] == found[1] == expected
    for since, each in zip(("1.0", "2", "4.0"), found[2:], strict=True):
        place = read_cursor(since)
        assert each == [one for one in expected if read_cursor(one) > place]


async def _ids(server: Server, since: str) -> list[str]:
    return [frame["id"] async for frame in frames(server, f"/graphs/g/events?since={since}") if "id" in frame]


async def test_streams_end_with_the_server(local: Server) -> None:
    await local.ask("PUT", "/graphs/g", data=WAITS)
    stream = frames(local, "/graphs/g/events")
    assert await anext(stream) == {"retry": "2000"}
    assert (await anext(stream))["event"] == "graph-running"
    rest = asyncio.create_task(_rest(stream))
    await asyncio.sleep(0.2)
    assert not rest.done()
    local.stop.set()
    async with asyncio.timeout(10):
        assert await rest == []  # and no `end`, so that the client comes back


async def test_a_journal_that_cannot_be_read_ends_its_streams(local: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    await local.ask("PUT", "/graphs/g", data=WAITS)
    stream = frames(local, "/graphs/g/events")
    assert await anext(stream) == {"retry": "2000"}
    assert (await anext(stream))["event"] == "graph-running"

    async def away(graph_id: str) -> None:
        raise StorageUnavailable("the disk is gone", "here")

    monkeypatch.setattr(local.app.queries, "state", away)
    async with asyncio.timeout(10):
        (last,) = await _rest(stream)
    assert (last["event"], json.loads(last["data"])["status"]) == ("error", 503)


async def _rest(stream: AsyncIterator[dict[str, str]]) -> list[dict[str, str]]:
    return [frame async for frame in stream]
