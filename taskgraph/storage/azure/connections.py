"""Connections by which plain requests go to one service: HTTP/1.1, one request at a time on each, kept for the next.

aiohttp takes nearly half of the CPU of a small request (docs/benchmarks/azure-client.md), for much that no request here
needs. What is read here is what a service answers to a request of this product: a status, headers, and a body of a
given length, or in chunks, or up to the end of the connection.

Nothing is sent twice, and no error shows anything of a request.
"""

import asyncio
import os
import re
import socket
import ssl
from collections.abc import Mapping
from typing import Final, cast

import aiohappyeyeballs
from azure.core import exceptions as sdk
from multidict import CIMultiDict
from yarl import URL

from taskgraph.storage.azure.calls import CONNECT_SECONDS, Lost, Unsent

_HEAD_BYTES_MAX: Final = 65_536
_STATUS_LINE: Final = re.compile(r"HTTP/1\.[01] ([1-5][0-9]{2})(?: |$)")
_LENGTH: Final = re.compile(r"[0-9]{1,15}")
_CHUNK: Final = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]*)?\r\n")
_CHUNK_HEAD_BYTES_MAX: Final = 1_024
_BODILESS: Final = (204, 304)
_WITHOUT_BODY: Final = ("GET", "HEAD", "DELETE")
_NEXT_ADDRESS_SECONDS: Final = 0.25  # until the next address of a name is tried as well

Answered = tuple[int, CIMultiDict[str], bytes]


class Malformed(Exception):
    """What came is no answer in HTTP/1.1."""


class _AnswerReader:
    """Takes an answer apart as it comes, and says what it was when all of it is there."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: CIMultiDict[str] = CIMultiDict()
        self.lasts = False
        """Whether the connection may be used again after this answer."""
        self._data = bytearray()
        self._at = 0  # what of the data has been read
        self._length: int | None = None  # of the body; None: chunks, or until the connection ends
        self._in_chunks = False
        self._chunks: list[bytes] = []

    @property
    def ends_with_connection(self) -> bool:
        return bool(self.status) and self._length is None and not self._in_chunks

    def feed(self, data: bytes) -> bytes | None:
        """Give more of the answer; its body if that was the rest. Raises Malformed."""
        self._data += data
        while not self.status:
            if not self._read_head():
                return None
        if self._in_chunks:
            return b"".join(self._chunks) if self._read_chunks() else None
        if self._length is None or len(self._data) - self._at < self._length:
            return None
        if len(self._data) - self._at > self._length:
            self.lasts = False  # the rest answers no request
        return bytes(self._data[self._at : self._at + self._length])

    def rest(self) -> bytes:
        """The body of an answer that ends with its connection."""
        return bytes(self._data[self._at :])

    def _read_head(self) -> bool:
        end = self._data.find(b"\r\n\r\n", self._at)
        if end < 0:
            if len(self._data) - self._at > _HEAD_BYTES_MAX:
                raise Malformed("no end of its headers")
            return False
        first, *lines = self._data[self._at : end].decode("latin-1").split("\r\n")
        found = _STATUS_LINE.match(first)
        if found is None:
            raise Malformed("no status")
        self._at = end + 4
        status = int(found[1])
        if status < 200:
            return True  # an answer that goes before the answer
        pairs: list[tuple[str, str]] = []
        for line in lines:
            name, colon, text = line.partition(":")
            if not colon or not name or name[0] in " \t" or name[-1] in " \t":
                raise Malformed("no header")
            pairs.append((name, text.strip(" \t")))
        headers = CIMultiDict(pairs)
        self.lasts = first.startswith("HTTP/1.1") and headers.get("Connection", "").lower() != "close"
        self._in_chunks = headers.get("Transfer-Encoding", "").lower() == "chunked"
        if status in _BODILESS:
            self._length, self._in_chunks = 0, False
        elif not self._in_chunks:
            self._length = self._length_in(headers)
            self.lasts = self.lasts and self._length is not None
        self.status, self.headers = status, headers
        return True

    def _length_in(self, headers: CIMultiDict[str]) -> int | None:
        if "Transfer-Encoding" in headers:
            raise Malformed("another transfer encoding")
        lengths = {*headers.getall("Content-Length", ())}
        if not lengths:
            return None
        if len(lengths) > 1 or not _LENGTH.fullmatch(length := lengths.pop()):
            raise Malformed("no length")
        return int(length)

    def _read_chunks(self) -> bool:
        """Take what is there of the chunks; gives whether the last one was among them."""
        while True:
            head = _CHUNK.match(self._data, self._at)
            if head is None:
                if self._data.find(b"\n", self._at) >= 0 or len(self._data) - self._at > _CHUNK_HEAD_BYTES_MAX:
                    raise Malformed("no chunk")
                return False
            size, start = int(head[1], 16), head.end()
            if not size:
                return self._read_trailers(start)
            if len(self._data) < start + size + 2:
                return False
            if self._data[start + size : start + size + 2] != b"\r\n":
                raise Malformed("a chunk without an end")
            self._chunks.append(bytes(self._data[start : start + size]))
            self._at = start + size + 2

    def _read_trailers(self, start: int) -> bool:
        """Whether the lines after the last chunk have come to their end; nothing in them counts."""
        if self._data.startswith(b"\r\n", start):
            end = start
        elif (end := self._data.find(b"\r\n\r\n", start)) >= 0:
            end += 2
        elif len(self._data) - start > _HEAD_BYTES_MAX:
            raise Malformed("no end of its trailers")
        else:
            return False
        self.lasts = self.lasts and len(self._data) == end + 2
        return True


class _Connection(asyncio.Protocol):
    """One connection: a request, then its answer, then the next request."""

    def __init__(self, loop: asyncio.AbstractEventLoop, open_ones: "set[_Connection]") -> None:
        self._loop = loop
        self._open_ones = open_ones
        self._transport: asyncio.Transport | None = None
        self._reader = _AnswerReader()
        self._answer: asyncio.Future[Answered] | None = None
        self._received = 0.0  # when something came
        self._silence = 0.0  # that is borne, in seconds
        self._timer: asyncio.TimerHandle
        self.closed = False
        self.idle_since = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._open_ones.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
        self._open_ones.discard(self)
        reader = self._reader
        if error is None and reader.ends_with_connection:
            self._give((reader.status, reader.headers, reader.rest()))
        else:
            self._fail(Lost("the connection broke off"))

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._answer.done():
            self.close()  # there is no request that it answers
            return
        self._received = self._loop.time()
        reader = self._reader
        try:
            body = reader.feed(data)
        except Malformed as error:
            self.close()
            self._fail(Lost(f"not an answer in HTTP: {error}"))
            return
        if body is not None:
            if not reader.lasts:
                self.close()
            self._give((reader.status, reader.headers, body))

    async def ask(self, request: bytes, read_seconds: float) -> Answered:
        """Send a request, and read its answer. read_seconds: of silence at most."""
        if self._transport is None:
            raise RuntimeError("a request was made on a connection that is not there")
        self._reader = _AnswerReader()
        answer: asyncio.Future[Answered] = self._loop.create_future()
        self._answer = answer
        self._received, self._silence = self._loop.time(), read_seconds
        self._timer = self._loop.call_later(read_seconds, self._check_silence)
        self._transport.write(request)
        try:
            return await answer
        except BaseException:
            self.close()  # what comes from now on is the answer to nothing
            raise
        finally:
            self._timer.cancel()
            self._answer = None

    def _check_silence(self) -> None:
        left = self._received + self._silence - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(left, self._check_silence)
        else:
            self._fail(sdk.ServiceResponseTimeoutError("no answer in time"))

    def close(self) -> None:
        self.closed = True
        if self._transport is not None:
            self._transport.abort()

    def _give(self, answered: Answered) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answered)

    def _fail(self, error: Exception) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)


class Connections:
    """The connections of one account. idle_seconds: one that was not used for so long is not used again."""

    def __init__(self, *, most: int, idle_seconds: float) -> None:
        self._room = asyncio.Semaphore(most)
        self._idle_seconds = idle_seconds
        self._idle: dict[tuple[str, int], list[_Connection]] = {}
        self._open: set[_Connection] = set()
        self._tls: ssl.SSLContext | None = None
        self._ended = False

    async def exchange(
        self, method: str, url: URL, headers: Mapping[str, str], body: bytes | None, read_seconds: float
    ) -> Answered:
        """Send a request once, and read its answer. Raises what Transport.exchange does."""
        request = _request_of(method, url, headers, body)
        async with self._room:
            place = (url.raw_host or "", url.port or 0)
            connection = self._take(place) or await self._connect(place, url.scheme == "https")
            answered = await connection.ask(request, read_seconds)
            if not connection.closed:
                self._keep(place, connection)
            return answered

    def close(self) -> None:
        """Idempotent. Answers that have not come by now are lost."""
        self._ended = True
        for connection in tuple(self._open):
            connection.close()
        self._idle.clear()

    def _take(self, place: tuple[str, int]) -> _Connection | None:
        if self._ended:
            raise Unsent("the connections have been closed")
        since = asyncio.get_running_loop().time() - self._idle_seconds
        kept = self._idle.get(place)
        while kept:  # the one used last is the one that is most surely there
            connection = kept.pop()
            if not connection.closed and connection.idle_since >= since:
                return connection
            connection.close()
        return None

    def _keep(self, place: tuple[str, int], connection: _Connection) -> None:
        connection.idle_since = asyncio.get_running_loop().time()
        self._idle.setdefault(place, []).append(connection)

    async def _connect(self, place: tuple[str, int], secure: bool) -> _Connection:
        loop = asyncio.get_running_loop()
        resolved = False
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                addresses = await loop.getaddrinfo(*place, type=socket.SOCK_STREAM)
                resolved = True
                # the loop's own race of addresses leaves its socket open where the call is cancelled
                connected = await aiohappyeyeballs.start_connection(
                    addresses, happy_eyeballs_delay=_NEXT_ADDRESS_SECONDS
                )
                _, connection = await loop.create_connection(
                    lambda: _Connection(loop, self._open),
                    sock=connected,
                    ssl=self._tls_context() if secure else None,
                    server_hostname=place[0] if secure else None,
                )
        except TimeoutError:
            late = f"no connection within {CONNECT_SECONDS:.0f} seconds"
            why = late if resolved else "its name does not resolve"
        except ssl.SSLError:
            why = "its certificate or its TLS is not accepted"
        except socket.gaierror:
            why = "its name does not resolve"
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else "no connection"
        else:
            if not self._ended:
                return connection
            connection.close()
            why = "the connections have been closed"
        raise Unsent(why)  # from here: the error itself may show an address

    def _tls_context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
            self._tls.set_alpn_protocols(["http/1.1"])
        return self._tls


def _request_of(method: str, url: URL, headers: Mapping[str, str], body: bytes | None) -> bytes:
    """A request as it is sent. Raises Unsent for one that would say something else."""
    lines = [f"{method} {url.raw_path_qs} HTTP/1.1", f"Host: {url.raw_authority}"]
    lines += [f"{name}: {text}" for name, text in headers.items()]
    if body is not None or method not in _WITHOUT_BODY:
        lines.append(f"Content-Length: {len(body or b'')}")
    head = "\r\n".join(lines)
    if head.count("\n") != len(lines) - 1 or head.count("\r") != len(lines) - 1:
        raise Unsent("a line break in an address or a header")
    try:
        return f"{head}\r\n\r\n".encode("latin-1") + (body or b"")
    except UnicodeEncodeError:
        pass  # not as the cause: it shows the text
    raise Unsent("a character in an address or a header that HTTP does not have")
