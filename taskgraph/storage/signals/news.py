"""Waiting until something may have happened in a graph: by a pause, where nothing can say so."""

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from taskgraph.model.clock import Clock
from taskgraph.model.errors import StorageUnavailable

log = logging.getLogger("taskgraph.storage")

AWAY_SECONDS: Final = 60.0
"""For so long a wait that has begun outlasts a store, or a server, that is away: perhaps it is being started again."""
AGAIN_SECONDS: Final = 1.0

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


class Patience:
    """Of one wait, with a store that is away."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._has_answered = False
        self._away_since: float | None = None

    def answered(self) -> None:
        self._has_answered = True
        self._away_since = None

    async def outlast(self, error: StorageUnavailable) -> None:
        """Pause. Raises the error where the store has never answered, or has been away for AWAY_SECONDS."""
        now = self._clock.monotonic()
        if self._away_since is None:
            self._away_since = now
            if self._has_answered:
                log.warning("%s: trying again for %d s", error, AWAY_SECONDS)
        if not self._has_answered or now - self._away_since >= AWAY_SECONDS:
            raise error
        await self._clock.sleep(AGAIN_SECONDS)
