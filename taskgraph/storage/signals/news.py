"""Waiting until something may have happened in a graph: by a pause, where nothing can say so."""

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

from taskgraph.model.clock import Clock

Where = Mapping[str, Sequence[str]]


class News(Protocol):
    async def wait(
        self, graph_id: str, since: int | str, *, where: Where | None = None, pause: float, most: float = math.inf
    ) -> int | str:
        """Return when the journal may have more after a cursor; gives where it can be waited from the next time.

        where: events that count, as filters of events have them. pause: seconds until the next look where there is no
        better way. most: no wait is longer.
        """


class Pauses:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def wait(
        self, graph_id: str, since: int | str, *, where: Where | None = None, pause: float, most: float = math.inf
    ) -> int | str:
        await self._clock.sleep(pause)
        return since
