"""Bare connections: answers in any form and in any pieces, what is no answer, and which connections are used again."""

import asyncio
import contextlib
import gc
import random
import socket
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from azure.core import exceptions as sdk
from yarl import URL

from taskgraph.storage.azure.calls import Lost, Unsent
from taskgraph.storage.azure.connections import Connections

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nETag: one\r\n\r\nok"


class Place:
    """A server that reads requests and answers as it is told to. heads: of the requests; opened: connections."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = [GOOD]
        self.pause = 0.0  # after each piece, in seconds
        self.ends = False  # after its answer
        self.heads: list[str] = []
        self.bodies: list[bytes] = []
        self.opened = 0
        self.at_once = 0
        self.most_at_once = 0
        self.before: Callable[[], Awaitable[None]] | None = None
        self.url = URL()
        self.tasks: list[asyncio.Task[None]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened += 1
        task = asyncio.current_task()
        assert task is not None
        self.tasks.append(task)
        try:
            await self.answer(reader, writer)
        finally:
            writer.close()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                self.heads.append(head)
                length = next((int(line[16:]) for line in head.split("\r\n") if line.startswith("Content-Length: ")), 0)
                self.bodies.append(await reader.readexactly(length))
                self.at_once += 1
                self.most_at_once = max(self.most_at_once, self.at_once)
                if self.before is not None:
                    await self.before()
                self.at_once -= 1
                for piece in self.pieces:
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(self.pause)
                if self.ends:
                    break


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[Place]:
    place = Place()
    server = await asyncio.start_server(place.serve, "127.0.0.1", 0)
    place.url = URL(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/a%27b?c=d%2Fe", encoded=True)
    async with server:
        try:
            yield place
        finally:
            for task in place.tasks:
                task.cancel()
            await asyncio.gather(*place.tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def connected(most: int = 4, idle_seconds: float = 4.0) -> AsyncIterator[Connections]:
    connections = Connections(most=most, idle_seconds=idle_seconds)
    try:
        yield connections
    finally:
        connections.close()
        await asyncio.sleep(0.01)  # for the servers to see it


async def ask(connections: Connections, place: Place, method: str = "GET", seconds: float = 5.0) -> tuple[int, bytes]:
    status, _, body = await connections.exchange(method, place.url, {}, None, seconds)
    return status, body


def chunked(body: bytes, sizes: list[int], trailer: bytes = b"") -> bytes:
    parts, at = [], 0
    for size in sizes:
        parts.append(b"%x\r\n%s\r\n" % (len(body[at : at + size]), body[at : at + size]))
        at += size
    return (
        b"HTTP/1.1 202 Accepted\r\nTransfer-Encoding: chunked\r\n\r\n" + b"".join(parts) + b"0\r\n" + trailer + b"\r\n"
    )


# --- what is sent --------------------------------------------------------------------------------------------------


async def test_a_request_is_sent_as_it_is_and_its_connection_is_used_again() -> None:
    async with serving() as place, connected() as connections:
        status, headers, body = await connections.exchange("PUT", place.url, {"If-Match": "x"}, b"{}", 5.0)
        assert (status, headers["etag"], headers["ETag"], body) == (200, "one", "one", b"ok")
        assert await ask(connections, place) == (200, b"ok")
        assert await ask(connections, place, "POST") == (200, b"ok")
        assert place.heads[0] == (
            f"PUT /a%27b?c=d%2Fe HTTP/1.1\r\nHost: 127.0.0.1:{place.url.port}\r\n"
            "If-Match: x\r\nContent-Length: 2\r\n\r\n"
        )
        assert "Content-Length" not in place.heads[1]
        assert "Content-Length: 0\r\n" in place.heads[2]
        assert (place.bodies, place.opened) == ([b"{}", b"", b""], 1)


@pytest.mark.parametrize("text", ["a\r\nX-Other: b", "a\nb", "a\rb", "\u20ac"])
async def test_a_header_that_would_be_another_is_not_sent(text: str) -> None:
    async with serving() as place, connected() as connections:
        with pytest.raises(Unsent, match="header"):
            await connections.exchange("GET", place.url, {"X": text}, None, 5.0)
        assert place.opened == 0


# --- what comes back -----------------------------------------------------------------------------------------------

BODY = bytes(range(256)) * 3
FORMS = {
    "length": b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(BODY), BODY),
    "chunks": chunked(BODY, [1, 300, 467]),
    "trailers": chunked(BODY, [768], b"X-Last: 1\r\nX-More: 2\r\n"),
    "after another": b"HTTP/1.1 100 Continue\r\nX: 1\r\n\r\n" + chunked(BODY, [256, 256, 256]),
}


@pytest.mark.parametrize("form", FORMS)
async def test_an_answer_may_come_in_any_pieces(form: str) -> None:
    seed = random.randrange(1 << 32)
    draw, whole = random.Random(seed), FORMS[form]
    async with serving() as place, connected() as connections:
        for _ in range(30):
            cuts = sorted(draw.sample(range(1, len(whole)), draw.randrange(8)))
            place.pieces = [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
            assert (await ask(connections, place))[1] == BODY, seed
        assert place.opened == 1


async def test_an_answer_without_a_length_goes_on_to_the_end_of_its_connection() -> None:
    async with serving() as place, connected() as connections:
        place.pieces, place.ends = [b"HTTP/1.1 500 No\r\n\r\nab", b"cd"], True
        assert await ask(connections, place) == (500, b"abcd")
        assert await ask(connections, place) == (500, b"abcd")
        assert place.opened == 2


@pytest.mark.parametrize("status", [204, 304])
async def test_some_answers_have_no_body(status: int) -> None:
    async with serving() as place, connected() as connections:
        place.pieces = [b"HTTP/1.1 %d X\r\nDate: x\r\n\r\n" % status]
        assert await ask(connections, place) == (status, b"")
        assert await ask(connections, place) == (status, b"")
        assert place.opened == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        GOOD + b"HTTP/1.1 200 OK\r\n",
    ],
)
async def test_a_connection_that_is_not_to_last_is_not_used_again(answer: bytes) -> None:
    async with serving() as place, connected() as connections:
        place.pieces = [answer]
        assert await ask(connections, place) == (200, b"ok")
        place.pieces = [GOOD]
        assert await ask(connections, place) == (200, b"ok")
        assert place.opened == 2


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-x\r\n\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 999 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nno header\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n Folded: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxy\r\nok\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nokk\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000,
    ],
)
async def test_what_is_no_answer_is_a_lost_one(answer: bytes) -> None:
    async with serving() as place, connected() as connections:
        place.pieces = [answer]
        with pytest.raises(Lost, match="not an answer in HTTP"):
            await ask(connections, place)
        place.pieces = [GOOD]
        assert await ask(connections, place) == (200, b"ok")
        assert place.opened == 2


@pytest.mark.parametrize("cut", [0, 10, len(GOOD) - 1])
async def test_an_answer_that_breaks_off_is_lost_and_asked_for_once(cut: int) -> None:
    async with serving() as place, connected() as connections:
        place.pieces, place.ends = [GOOD[:cut]], True
        with pytest.raises(Lost, match="broke off"):
            await ask(connections, place)
        assert len(place.heads) == 1


async def test_chunks_that_end_with_the_connection_are_a_lost_answer() -> None:
    async with serving() as place, connected() as connections:
        place.pieces, place.ends = [FORMS["chunks"][:-5]], True
        with pytest.raises(Lost, match="broke off"):
            await ask(connections, place)


# --- how long, and how many ------------------------------------------------------------------------------------------


async def test_silence_is_borne_for_so_long_and_what_goes_on_slowly_is_none() -> None:
    async with serving() as place, connected() as connections:
        place.before = lambda: asyncio.sleep(10)
        with pytest.raises(sdk.ServiceResponseTimeoutError, match="no answer in time"):
            await ask(connections, place, seconds=0.05)
        place.before, place.pause = None, 0.04
        place.pieces = [GOOD[:10], GOOD[10:30], GOOD[30:45], GOOD[45:50], GOOD[50:]]
        assert await ask(connections, place, seconds=0.12) == (200, b"ok")


async def test_a_request_that_is_given_up_takes_its_connection_along() -> None:
    async with serving() as place, connected() as connections:
        place.before = lambda: asyncio.sleep(10)
        asking = asyncio.create_task(ask(connections, place))
        while not place.heads:
            await asyncio.sleep(0.001)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        place.before = None
        assert await ask(connections, place) == (200, b"ok")
        assert place.opened == 2


async def test_closing_ends_what_is_under_way() -> None:
    asked = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        asked.set()
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    async with server:
        connections = Connections(most=2, idle_seconds=60)
        url = URL(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
        asking = asyncio.create_task(connections.exchange("GET", url, {}, None, 60))
        await asked.wait()
        connections.close()
        with pytest.raises(Lost, match="broke off"):
            await asking
        assert not connections._open


@pytest.mark.parametrize("addresses", [1, 2])
async def test_no_socket_stays_open_whenever_a_request_is_given_up(
    addresses: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving() as place:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(place.url.raw_host, place.url.port, type=socket.SOCK_STREAM)

        async def resolved(*_: object, **__: object) -> list[object]:
            return [*found * addresses]

        monkeypatch.setattr(loop, "getaddrinfo", resolved)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for turns in range(40):
                async with connected() as connections:
                    asking = asyncio.create_task(ask(connections, place))
                    for _ in range(turns):
                        await asyncio.sleep(0)
                    asking.cancel()
                    await asyncio.wait([asking])
            del asking
            gc.collect()
        assert not [str(each.message) for each in caught]
        assert place.opened > 1


async def test_so_many_requests_are_under_way_at_once_and_the_others_wait() -> None:
    async with serving() as place, connected(most=3) as connections:
        place.before = lambda: asyncio.sleep(0.01)
        assert await asyncio.gather(*[ask(connections, place) for _ in range(10)]) == [(200, b"ok")] * 10
        assert (place.most_at_once, place.opened) == (3, 3)


async def test_a_connection_that_was_idle_for_long_or_was_closed_there_is_not_used() -> None:
    async with serving() as place, connected(idle_seconds=0.0) as connections:
        await ask(connections, place)
        await asyncio.sleep(0.002)
        await ask(connections, place)
        assert place.opened == 2
    async with serving() as place, connected() as connections:
        place.ends = True
        await ask(connections, place)
        await asyncio.sleep(0.05)
        assert await ask(connections, place) == (200, b"ok")
        assert place.opened == 2


async def test_after_the_end_nothing_is_sent() -> None:
    async with serving() as place, connected() as connections:
        await ask(connections, place)
        connections.close()
        connections.close()
        with pytest.raises(Unsent, match="have been closed"):
            await ask(connections, place)


@pytest.mark.parametrize(
    ("url", "why"),
    [("http://127.0.0.1:1/", "refused"), ("http://no-such-host.invalid:80/", "its name does not resolve")],
)
async def test_what_cannot_be_reached_is_said_without_an_address(url: str, why: str) -> None:
    async with connected() as connections:
        with pytest.raises(Unsent, match=why) as raised:
            await connections.exchange("GET", URL(url), {"Authorization": "secret"}, None, 5.0)
        assert "127.0.0.1" not in str(raised.value)
        assert "invalid" not in str(raised.value)


async def test_tls_that_is_none_is_refused() -> None:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(GOOD)
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server, connected() as connections:
        url = URL(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
        with pytest.raises(Unsent, match="its certificate or its TLS is not accepted"):
            await connections.exchange("GET", url, {}, None, 5.0)
