"""A store behind a server: the ports over one pool of connections."""

from collections.abc import Callable

from taskgraph.model.clock import Clock
from taskgraph.storage.http.calls import Server
from taskgraph.storage.http.logs import HttpLogs
from taskgraph.storage.http.news import HttpNews
from taskgraph.storage.http.queues import HttpQueues
from taskgraph.storage.http.tables import HttpTables


class HttpStore:
    """address, token, trace: see `calls.Server`. prefix: see `queues.HttpQueues`."""

    def __init__(self, address: str, token: str, clock: Clock, prefix: str, trace: Callable[[], str]) -> None:
        self.server = Server(address, token, clock, trace)
        self.tables = HttpTables(self.server)
        self.queues = HttpQueues(self.server, prefix)
        self.logs = HttpLogs(self.server)
        self.news = HttpNews(self.server, clock)

    async def close(self) -> None:
        await self.server.close()
