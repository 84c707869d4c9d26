"""The route of a journal: a page of it, the next events waited for, or a stream of server-sent events."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Final

from sse_starlette import EventSourceResponse
from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive, Scope, Send

from taskgraph.engine.telemetry import POLL, STREAM
from taskgraph.interfaces import views
from taskgraph.interfaces.http import packing
from taskgraph.interfaces.http.asked import Asked
from taskgraph.interfaces.http.feeds import LOOK_SECONDS_MAX, Batch, Where
from taskgraph.interfaces.http.problems import Problem, response
from taskgraph.model.errors import TaskgraphError
from taskgraph.queries.journal import read_cursor
from taskgraph.queries.values import Event

EVENT_STREAM: Final = "text/event-stream"
_PING_SECONDS: Final = 15
_RETRY_MILLISECONDS: Final = 2_000
_SEND_SECONDS: Final = 60.0  # a client that takes nothing for so long is let go
_PACKED: Final = {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}


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
    return await _read(asked, where)


async def _read(asked: Asked, where: Where) -> Response:
    query = asked.query
    found = await asked.app.queries.events(asked.graph, since=query["since"], limit=query["limit"], where=where or None)
    return _answer(asked, found)


def _answer(asked: Asked, found: Sequence[Event]) -> Response:
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
    """The same by gzip, piece by piece."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        head, crc, size = packing.HEAD, 0, 0
        in_order = asyncio.Lock()  # a ping may come while a client takes nothing

        async def packed(message: Message) -> None:
            nonlocal head, crc, size
            if message["type"] != "http.response.body":
                return await send(message)
            async with in_order:
                body = message["body"]
                crc, size = packing.checksum(body, crc), size + len(body)
                end = b"" if message.get("more_body") else packing.end(crc, size)
                message["body"], head = head + packing.packed_once(body) + end, b""
                return await send(message)

        await super().__call__(scope, receive, packed)


async def _waited(asked: Asked, where: Where) -> Response:
    """The next events, as soon as there is one, made of what is written and packed once for all that follow.

    While a short wait lasts the feed may not have read at all: then the journal is read at its end.
    """
    asked.holds(POLL)
    query = asked.query
    batches = await asked.feeds.next(asked.graph, query["since"], where, query["wait"], query["limit"])
    if not batches:
        return await _read(asked, where) if query["wait"] < LOOK_SECONDS_MAX else _answer(asked, ())
    parts = _parts(asked.graph, batches)
    if _takes_gzip(asked):
        return Response(packing.whole(parts), headers=_PACKED, media_type="application/json")
    return Response(b"".join(part for part, _ in parts), media_type="application/json")


def _parts(graph_id: str, batches: Sequence[Batch]) -> list[tuple[bytes, bytes]]:
    """An answer with all of them, in parts: each as it is, and packed."""
    head, tail = json.dumps(views.events(graph_id, ())).encode().removesuffix(b"]}"), b"]}"
    parts = []
    for number, batch in enumerate(batches):
        before = b"," if number else head
        parts += [(before, packing.packed_once(before)), (batch.joined, batch.packed)]
    return [*parts, (tail, packing.packed_once(tail))]


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
