"""Who of several handlers goes first: one at a time is quicker than many side by side.

What this room is for: processes that take messages off the same events queue agree on one of them, by a row with an end
that the one at work puts off while there is work (D12a). It is for speed alone: etags keep several at once safe, and a
clock that is off makes two of them lead, or nobody for a while. While there is nothing to do, nobody leads and nothing
is asked.
"""

import asyncio
from datetime import datetime, timedelta
from typing import Final

from taskgraph.clock import Clock
from taskgraph.errors import Conflict, Unclear
from taskgraph.storage.tables import Change, Columns, Insert, Merge, Row, Tables

LEADS: Final = "index:leads"
"""Partition that says who leads; `:` is in no graph id."""

LEAD_SECONDS: Final = 10.0
"""Others take over so long after the last word of the one who led."""

_AGAIN_SECONDS: Final = 0.5  # after two have asked at once


class Lead:
    """The lead over one queue, as one process sees it. holder: a name that no other has."""

    def __init__(self, tables: Tables, clock: Clock, queue: str, holder: str) -> None:
        self._tables = tables
        self._clock = clock
        self._key = queue
        self._holder = holder
        self._row: Row | None = None
        self._until = -1.0  # monotonic seconds
        self._asking = asyncio.Lock()  # receivers of several queues share one lead

    @property
    def held(self) -> bool:
        """Whether this process leads."""
        return self._clock.monotonic() < self._until

    async def take(self) -> float:
        """Lead, or go on leading; gives 0 if so, and otherwise after how many seconds to ask again.

        Asks the store once in a while only. Raises StorageUnavailable.
        """
        if self._clock.monotonic() < self._until - LEAD_SECONDS / 2:
            return 0.0
        async with self._asking:
            return await self._take()

    async def _take(self) -> float:
        if self._clock.monotonic() < self._until - LEAD_SECONDS / 2:
            return 0.0  # another receiver of this process has asked meanwhile
        row = self._row
        if row is None:
            (row,) = await self._tables.get(LEADS, [self._key])
        now = self._clock.now()
        columns: Columns = {"holder": self._holder, "until": now + timedelta(seconds=LEAD_SECONDS)}
        change: Change = Insert(self._key, columns)
        if row is not None:
            until = row.columns.get("until")
            if row.columns.get("holder") != self._holder and isinstance(until, datetime) and until > now:
                self._until = -1.0
                return min((until - now).total_seconds(), LEAD_SECONDS) + self._clock.jitter() * _AGAIN_SECONDS
            change = Merge(self._key, row.etag, columns)
        began = self._clock.monotonic()
        self._row = None
        try:
            (etag,) = await self._tables.commit(LEADS, [change])
        except (Conflict, Unclear):
            self._until = -1.0
            return self._clock.jitter() * _AGAIN_SECONDS
        self._until = began + LEAD_SECONDS
        if etag is not None:
            self._row = Row(self._key, etag, columns)
        return 0.0

    async def give_up(self) -> None:
        """Let somebody else lead at once. Raises StorageUnavailable."""
        held, self._until = self.held, -1.0
        if held and self._row is not None:
            row, self._row = self._row, None
            try:
                await self._tables.commit(LEADS, [Merge(self._key, row.etag, {"until": self._clock.now()})])
            except (Conflict, Unclear):
                return  # it ends by itself
