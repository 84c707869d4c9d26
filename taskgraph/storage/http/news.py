"""Waiting for what happens in a graph by long polls: a server answers as soon as its journal has more."""

import logging
import math
from typing import Final

from taskgraph.model.clock import Clock
from taskgraph.model.errors import StorageUnavailable
from taskgraph.storage.http.calls import READ_SECONDS, Server, path_of
from taskgraph.storage.signals.news import Where

log = logging.getLogger("taskgraph.storage")

WAIT_SECONDS: Final = 55
"""Of one request: proxies often end one after a minute."""


class HttpNews:
    def __init__(self, server: Server, clock: Clock) -> None:
        self._server = server
        self._clock = clock

    async def wait(
        self, graph_id: str, since: int | str, *, where: Where | None = None, pause: float, most: float = math.inf
    ) -> int | str:
        """See `News`. Raises NotFound. A server that is away makes it a pause: the look after that says what is so."""
        path = path_of("graphs", graph_id, "events")
        query = [
            ("since", str(since)),
            *((f"where.{name}", each) for name, texts in (where or {}).items() for each in texts),
        ]
        end = self._clock.monotonic() + most
        while (left := end - self._clock.monotonic()) > 0:
            began, seconds = self._clock.monotonic(), min(left, WAIT_SECONDS)
            try:
                answer = await self._server.get(path, [*query, ("wait", f"{seconds:g}")], READ_SECONDS + seconds)
            except StorageUnavailable as error:  # reach: http
                log.debug("waiting for news of graph %s: %s", graph_id, error)
                break
            if answer["events"]:
                return str(answer["events"][-1]["cursor"])
            if self._clock.monotonic() - began < seconds / 2:  # the graph has ended, or the server is about to
                break
        else:
            return since
        await self._clock.sleep(pause)
        return since
