"""Which of several handlers leads: one at a time is quicker than many side by side.

Processes that take messages off the same events queue agree on one of them, by a row with an end that the leader puts
off while there is work (D12a). It is for speed alone: etags keep several leaders safe, and clocks that differ make two
of them lead, never none (see `model.foreign_times`).
"""

import asyncio
import contextlib
import logging
from datetime import UTC, datetime, timedelta
from typing import Final

from taskgraph.model.clock import Clock
from taskgraph.model.columns import Columns
from taskgraph.model.errors import Conflict, Unclear
from taskgraph.model.foreign_times import holds, is_ahead
from taskgraph.storage.tables import Change, Insert, Merge, Row, Tables

log = logging.getLogger("taskgraph.lead")

LEADS: Final = "index:leads"  # partition of the leads; `:` is in no graph id
LEAD_SECONDS: Final = 10.0  # other handlers take over so long after the leader last wrote its row
LONG_AGO: Final = datetime(2000, 1, 1, tzinfo=UTC)  # when a lead that was given up ended, by any clock
_AGAIN_SECONDS: Final = 0.5  # after two have asked at once
_STANDBY_SECONDS: Final = 60.0  # a process that has asked in vain for so long logs it


class Lead:
    """The lead over one queue, as one process sees it. holder: a name that no other has."""

    def __init__(self, tables: Tables, clock: Clock, queue: str, holder: str) -> None:
        self._tables = tables
        self._clock = clock
        self._key = queue
        self._holder = holder
        self._row: Row | None = None
        self._doubted = False
        self._standby_since = 0.0  # monotonic: when this process first asked in vain, without a pause since
        self._in_vain = float("-inf")  # monotonic: when it last did
        self._standby_said = False
        self._until = -1.0  # monotonic seconds
        self._asking = asyncio.Lock()  # receivers of several queues share one lead

    @property
    def held(self) -> bool:
        return self._clock.monotonic() < self._until

    async def take(self) -> float:
        """Lead, or go on leading; returns 0, or after how many seconds to ask again. Raises StorageUnavailable."""
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
            if row.columns.get("holder") != self._holder and isinstance(until, datetime) and self._leads(until, now):
                self._until = -1.0
                self._stand_by(row.columns.get("holder"), until)
                return min((until - now).total_seconds(), LEAD_SECONDS) + self._clock.jitter() * _AGAIN_SECONDS
            change = Merge(self._key, row.etag, columns)
        began = self._clock.monotonic()
        self._row = None
        try:
            (etag,) = await self._tables.commit(LEADS, [change])
        except (Conflict, Unclear):  # reach: lead
            self._until = -1.0
            return self._clock.jitter() * _AGAIN_SECONDS
        self._until = began + LEAD_SECONDS
        if etag is not None:
            self._row = Row(self._key, etag, columns)
        return 0.0

    def _leads(self, until: datetime, now: datetime) -> bool:
        """Whether another process leads, by the time on its row."""
        if is_ahead(until, now, LEAD_SECONDS) and not self._doubted:
            self._doubted = True
            log.warning("the lead over %s is said to last until %s: a clock is off, so it is over", self._key, until)
        return holds(until, now, LEAD_SECONDS)

    def _stand_by(self, holder: object, until: datetime) -> None:
        """Log once that another process leads for long: it works, or its clock is a little off."""
        moment = self._clock.monotonic()
        if moment - self._in_vain > 2 * LEAD_SECONDS:
            self._standby_since = moment  # there was nothing to ask for meanwhile
        self._in_vain = moment
        waited = moment - self._standby_since
        if waited > _STANDBY_SECONDS and not self._standby_said:
            self._standby_said = True
            words = "%s has led over %s for %.0f s, now until %s: this process stands by"
            log.info(words, holder, self._key, waited, until)

    async def give_up(self) -> None:
        """Let another process lead at once. Raises StorageUnavailable."""
        async with self._asking:  # an answer that is under way would make this process lead again
            held, self._until = self.held, -1.0
            if held and self._row is not None:
                row, self._row = self._row, None
                with contextlib.suppress(Conflict, Unclear):  # the lead ends by itself  # reach: lead
                    await self._tables.commit(LEADS, [Merge(self._key, row.etag, {"until": LONG_AGO})])
