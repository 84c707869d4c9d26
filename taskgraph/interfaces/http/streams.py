"""The route of a journal: a page of it, the next events waited for, or a stream of server-sent events."""

import asyncio
import functools
import struct
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Final

from sse_starlette import EventSourceResponse
from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive, Scope, Send

from taskgraph.engine.telemetry import POLL, STREAM
from taskgraph.interfaces import views
from taskgraph.interfaces.http.asked import Asked
from taskgraph.interfaces.http.feeds import GZIP_LEVEL, Batch, Where
from taskgraph.interfaces.http.problems import Problem, response
from taskgraph.model.errors import TaskgraphError
from taskgraph.queries.journal import read_cursor

EVENT_STREAM: Final = "text/event-stream"
_PING_SECONDS: Final = 15
_RETRY_MILLISECONDS: Final = 2_000
_SEND_SECONDS: Final = 60.0  # a client that takes nothing for so long is let go
_PACKED: Final = {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
_GZIP_HEAD: Final = b"\x1f\x8b\x08\0\0\0\0\0\x04\xff"  # of RFC 1952: deflated, without name and time
_GZIP_END: Final = b"\x03\0"  # an empty last block of RFC 1951


async def events(asked: Asked) -> Response:
    query = asked.query
    where = {name: texts for name, texts in query["where."].items() if texts}
    if EVENT_STREAM in asked.request.headers.get("accept", "") and asked.request.method != "HEAD":
        since = asked.request.headers.get("last-event-id") or query["since"]
        read_cursor(since)  # an error before the stream begins
        if not asked.feeds.streams:
            there = f"{asked.request.url.path}?since={since}&wait=25"
            raise Problem(
                406,
                "no-stream",
                f"this server streams nothing: ask for {there} again and again, since the cursor of the last event",
                headers={"Link": f'<{there}>; rel="alternate"; type="application/json"'},
            )
        await asked.app.queries.state(asked.graph)
        return streamed(asked, asked.feeds.follow(asked.graph, since, where), _frames)
    if query["wait"]:
        return await _waited(asked, where)
    found = await asked.app.queries.events(asked.graph, since=query["since"], limit=query["limit"], where=where or None)
    return JSONResponse(views.events(asked.graph, found))


def streamed(
    asked: Asked, batches: AsyncGenerator[Batch], frames: Callable[[Batch], Awaitable[bytes]]
) -> EventSourceResponse:
    """What is followed of a journal, as server-sent events. frames: of a batch that is not empty."""
    asked.holds(STREAM)
    made, headers = (_PackedStream, _PACKED) if _takes_gzip(asked) else (EventSourceResponse, None)
    stream = _stream(asked, batches, frames)
    return made(stream, headers=headers, ping=_PING_SECONDS, sep="\n", send_timeout=_SEND_SECONDS)


async def _frames(batch: Batch) -> bytes:
    return batch.frames


def _takes_gzip(asked: Asked) -> bool:
    return "gzip" in asked.request.headers.get("accept-encoding", "")


class _PackedStream(EventSourceResponse):
    """The same by gzip. Each piece is packed without those before it: what many clients get is packed once for all."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        head, crc, size = _GZIP_HEAD, 0, 0
        in_order = asyncio.Lock()  # a ping may come while a client takes nothing

        async def packed(message: Message) -> None:
            nonlocal head, crc, size
            if message["type"] != "http.response.body":
                return await send(message)
            async with in_order:
                body = message["body"]
                crc, size = _sum(body, crc), size + len(body)
                end = b"" if message.get("more_body") else _GZIP_END + struct.pack("<LL", crc, size & 0xFFFFFFFF)
                message["body"], head = head + _deflated(body) + end, b""
                return await send(message)

        await super().__call__(scope, receive, packed)


@functools.lru_cache(maxsize=32)
def _deflated(piece: bytes) -> bytes:
    packer = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    return packer.compress(piece) + packer.flush(zlib.Z_FULL_FLUSH)


@functools.lru_cache(maxsize=32)
def _sum(piece: bytes, before: int) -> int:
    """The checksum of a stream behind a piece; of many clients that are at the same place, made once."""
    return zlib.crc32(piece, before)


async def _waited(asked: Asked, where: Where) -> Response:
    """The next events, as soon as there is one; made once for all that ask at the same place."""
    asked.holds(POLL)
    batch = await asked.feeds.first(asked.graph, asked.query["since"], where, asked.query["wait"])
    if batch is None:
        return JSONResponse(views.events(asked.graph, ()))
    batch = batch.first(asked.query["limit"])
    if _takes_gzip(asked):
        return Response(batch.packed(asked.graph), headers=_PACKED, media_type="application/json")
    return Response(batch.answer(asked.graph), media_type="application/json")


async def _stream(
    asked: Asked, batches: AsyncGenerator[Batch], frames: Callable[[Batch], Awaitable[bytes]]
) -> AsyncGenerator[bytes]:
    """Ends with an event `end` when the graph can change no more, or `error`; with the server, without."""
    yield f"retry: {_RETRY_MILLISECONDS}\n\n".encode()
    try:
        async with aclosing(batches):
            async for batch in batches:
                if batch.events:
                    yield await frames(batch)
    except TaskgraphError as error:  # reach: http
        yield b"event: error\ndata: " + bytes(response(error).body) + b"\n\n"
        return
    if not asked.feeds.closed:
        yield b"event: end\ndata: {}\n\n"
