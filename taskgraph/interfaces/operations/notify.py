"""Show the channels that notices of a graph go to, and try those again at once that wait, or were given up."""

from taskgraph.engine import notifier
from taskgraph.interfaces.app import App
from taskgraph.interfaces.operations.checks import over_http
from taskgraph.queries.lookup import check_graph_id
from taskgraph.queries.values import ChannelStatus


async def channels(app: App, graph_id: str, *, retry: bool = False) -> tuple[list[ChannelStatus], int]:
    """The channels of a graph, and how many of them `retry` has had tried at once."""
    check_graph_id(graph_id)
    await app.queries.state(graph_id)
    number = await _retry(app, graph_id) if retry else 0
    return await app.queries.channels(graph_id), number


@over_http("retry_notices")
async def _retry(app: App, graph_id: str) -> int:
    return await notifier.retry(app.tables, graph_id, app.clock.now())
