"""The route of a journal: a page of it, the next events waited for, or a stream of server-sent events."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from sse_starlette import EventSourceResponse
from starlette.responses import JSONResponse, Response

from taskgraph.interfaces import views
from taskgraph.interfaces.http.asked import Asked
from taskgraph.interfaces.http.feeds import Where
from taskgraph.interfaces.http.problems import Problem, response
from taskgraph.model.errors import TaskgraphError
from taskgraph.queries.journal import read_cursor

STREAM: Final = "text/event-stream"
_PING_SECONDS: Final = 15
_RETRY_MILLISECONDS: Final = 2_000
_SEND_SECONDS: Final = 60.0  # a client that takes nothing for so long is let go


async def events(asked: Asked) -> Response:
    query = asked.query
    where = {name: texts for name, texts in query["where."].items() if texts}
    if STREAM in asked.request.headers.get("accept", "") and asked.request.method != "HEAD":
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
        stream = _stream(asked, since, where)
        return EventSourceResponse(stream, ping=_PING_SECONDS, sep="\n", send_timeout=_SEND_SECONDS)
    if query["wait"]:
        return await _waited(asked, where)
    found = await asked.app.queries.events(asked.graph, since=query["since"], limit=query["limit"], where=where or None)
    return JSONResponse(views.events(asked.graph, found))


async def _waited(asked: Asked, where: Where) -> Response:
    """The next events, as soon as there is one; made once for all that ask at the same place."""
    batch = await asked.feeds.first(asked.graph, asked.query["since"], where, asked.query["wait"])
    if batch is None or len(batch.events) > asked.query["limit"]:
        found = batch.events[: asked.query["limit"]] if batch is not None else ()
        return JSONResponse(views.events(asked.graph, found))
    if "gzip" in asked.request.headers.get("accept-encoding", ""):
        headers = {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
        return Response(batch.packed(asked.graph), headers=headers, media_type="application/json")
    return Response(batch.answer(asked.graph), media_type="application/json")


async def _stream(asked: Asked, since: str, where: Where) -> AsyncGenerator[bytes]:
    """Ends with an event `end` when the graph can change no more, or `error`; with the server, without."""
    yield f"retry: {_RETRY_MILLISECONDS}\n\n".encode()
    try:
        async with aclosing(asked.feeds.follow(asked.graph, since, where)) as batches:
            async for batch in batches:
                if batch.events:
                    yield batch.frames
    except TaskgraphError as error:  # reach: http
        yield b"event: error\ndata: " + bytes(response(error).body) + b"\n\n"
        return
    if not asked.feeds.closed:
        yield b"event: end\ndata: {}\n\n"
