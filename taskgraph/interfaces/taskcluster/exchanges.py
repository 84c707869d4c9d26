"""The old scheduler's exchanges as server-sent events: what each says of one graph, from any message on."""

import json

from starlette.responses import Response

from taskgraph.interfaces.http.feeds import Batch
from taskgraph.interfaces.http.streams import EVENT_STREAM, streamed
from taskgraph.interfaces.taskcluster.call import BASE, Call
from taskgraph.interfaces.taskcluster.errors import CallError
from taskgraph.interfaces.taskcluster.scheduler import graph_row
from taskgraph.protocol.old_scheduler import MESSAGES, message
from taskgraph.queries.journal import read_cursor


async def listen(call: Call) -> Response:
    """The id of an event says where to go on after it, by `Last-Event-ID`."""
    name, graph_id, request = call.path["exchange"], call.asked.query.get("taskGraphId", ""), call.asked.request
    kinds = [kind for kind, (exchange, _) in MESSAGES.items() if exchange == name]
    if not kinds:
        known = ", ".join(dict.fromkeys(exchange for exchange, _ in MESSAGES.values()))
        raise CallError(404, f"there is no exchange {name[:100]}: {known}")
    if not graph_id:
        raise CallError(400, f"Name a graph: {BASE}/exchange/{name}?taskGraphId=ID")
    await graph_row(call, graph_id)
    since = request.headers.get("last-event-id", "0")
    read_cursor(since)  # an error before the stream begins
    if request.method == "HEAD":
        return Response(media_type=EVENT_STREAM)

    async def frames(batch: Batch) -> bytes:
        columns = (await call.app.queries.graph_row(graph_id)).columns
        made = [(each.cursor, message(graph_id, columns, {**each.fields, "event": each.kind})) for each in batch.events]
        return "".join(f"id: {cursor}\nevent: {name}\ndata: {json.dumps(each)}\n\n" for cursor, each in made).encode()

    return streamed(call.asked, call.asked.feeds.follow(graph_id, since, {"event": kinds}), frames)
