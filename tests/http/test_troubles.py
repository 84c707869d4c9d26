"""What a client makes of what is no answer, or none of a server of ours: an error with a remedy, and no more tries
than make sense."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from taskgraph.model.errors import (
    IntegrityError,
    InvalidSettings,
    NotFound,
    Refused,
    StorageUnavailable,
    TaskgraphError,
    Unclear,
)
from taskgraph.storage.http.calls import Server
from taskgraph.storage.http.news import HttpNews
from taskgraph.storage.http.tables import HttpTables
from taskgraph.testing import HurriedClock


@dataclass(slots=True)
class Strange:
    """A server that answers every request with the same bytes."""

    answer: bytes
    port: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100_000)
        writer.write(self.answer)
        await writer.drain()
        writer.close()


@asynccontextmanager
async def strange(answer: bytes) -> AsyncIterator[Strange]:
    made = Strange(answer)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    async with server:
        yield made


@asynccontextmanager
async def asking(made: Strange, scheme: str = "http") -> AsyncIterator[Server]:
    server = Server(f"{scheme}://127.0.0.1:{made.port}/api/v1", "tg.x.y", HurriedClock())
    try:
        yield server
    finally:
        await server.close()


def page(status: int, more: str = "") -> bytes:
    """Of what stands before a server, such as a proxy."""
    return f"HTTP/1.1 {status} X\r\nConnection: close\r\n{more}\r\n<html>hello</html>".encode()


def problem(status: int, code: str) -> bytes:
    body = json.dumps({"status": status, "code": code, "detail": "the detail"})
    head = f"HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Type: application/problem+json\r\n\r\n"
    return f"{head}{body}".encode()


NOT_OURS = "and not as a server of taskgraph"


@pytest.mark.parametrize(
    ("answer", "kind", "words", "tries"),
    [
        (page(200), InvalidSettings, f"answers 200, {NOT_OURS}", 1),
        (page(302, "Location: https://elsewhere/\r\n"), InvalidSettings, f"answers 302, {NOT_OURS}", 1),
        (page(401), InvalidSettings, f"answers 401, {NOT_OURS}", 1),
        (page(404), InvalidSettings, f"answers 404, {NOT_OURS}", 1),
        (page(429, "Retry-After: 1\r\n"), StorageUnavailable, "answers 429", 4),
        (page(500), StorageUnavailable, "answers 500", 1),
        (page(502), StorageUnavailable, "answers 502", 4),
        (b"", StorageUnavailable, "was lost", 4),
        (b"\x15\x03\x01\x00\x02\x02\x50", StorageUnavailable, "was lost", 4),  # TLS, of a port for https
        (problem(401, "no-token"), InvalidSettings, "asks for a token; give one by TASKGRAPH_TOKEN", 1),
        (problem(401, "token"), InvalidSettings, "does not let us in: the detail; give one by TASKGRAPH_TOKEN", 1),
        (problem(403, "role"), Refused, "refuses it: the detail; give another token by TASKGRAPH_TOKEN", 1),
        (problem(404, "not-found"), NotFound, "the detail", 1),
        (problem(404, "no-route"), InvalidSettings, "the detail", 1),
        (problem(500, "bug"), IntegrityError, "the detail", 1),
        (problem(503, "storage"), StorageUnavailable, "answers: the detail", 4),
    ],
)
async def test_what_is_no_answer(
    answer: bytes, kind: type[TaskgraphError], words: str, tries: int, sent: list[Any]
) -> None:
    async with strange(answer) as made, asking(made) as server:
        with pytest.raises(kind) as caught:
            await server.get("/graphs")
        assert type(caught.value) is kind
        assert words in str(caught.value)
        assert len(sent) == tries


@pytest.mark.parametrize(("method", "tries"), [("PUT", 4), ("DELETE", 4), ("POST", 1)])
async def test_what_may_have_been_done_is_unclear(method: str, tries: int, sent: list[Any]) -> None:
    async with strange(b"") as made, asking(made) as server:
        with pytest.raises(Unclear, match="was lost"):
            await server.ask(method, "/graphs/g", body={})
        assert len(sent) == tries


async def test_a_reading_that_is_sent_by_post_is_sent_again(sent: list[Any]) -> None:
    async with strange(b"") as made, asking(made) as server:
        with pytest.raises(StorageUnavailable, match="was lost"):
            await server.get("/reads", body=["/partitions/g/rows"])
        assert len(sent) == 4


async def test_a_port_without_tls_is_tried_once(sent: list[Any]) -> None:
    async with strange(page(400)) as made, asking(made, "https") as server:
        with pytest.raises(StorageUnavailable, match="it speaks no TLS that is accepted; is it one for http://"):
            await server.get("/graphs")
        assert len(sent) == 1


async def test_rows_that_are_wanted_at_once_are_refused_at_once() -> None:
    """They go in one request: each of those who wait for them gets its error."""
    async with strange(problem(503, "storage-unavailable")) as made, asking(made) as server:
        tables = HttpTables(server)
        found = await asyncio.gather(*(tables.get("g", [key]) for key in ("a", "b")), return_exceptions=True)
    assert [type(each) for each in found] == [StorageUnavailable] * 2


async def test_a_server_that_is_away_makes_a_wait_a_pause() -> None:
    async with strange(problem(503, "storage-unavailable")) as made, asking(made) as server:
        clock = HurriedClock()
        began = clock.monotonic()
        assert await HttpNews(server, clock).wait("g", "7.1", pause=3.0) == "7.1"
    assert clock.monotonic() - began == 3.0
