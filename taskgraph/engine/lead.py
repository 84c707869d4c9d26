"""Which of several handlers leads over which queue of events: one at a time is quicker than many side by side.

Processes that take messages off the same queue agree on one of them, by a row with an end that the leader puts off
while there is work (D12a). Of several queues each has such a row; a leader hands queues over to processes that lead two
less, or none and would like to, until all lead about as many. It is for speed alone: etags keep several leaders safe,
and clocks that differ make two of them lead, never none (see `model.foreign_times`).
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from taskgraph.model.clock import Clock
from taskgraph.model.columns import Columns
from taskgraph.model.errors import Conflict, Unclear
from taskgraph.model.foreign_times import holds, is_ahead
from taskgraph.model.names import LEADS
from taskgraph.queries.event_queues import NUMBER, EventQueues
from taskgraph.storage.tables import Change, Delete, Insert, Merge, Range, Row, Tables, query_all

log = logging.getLogger("taskgraph.lead")

LEAD_SECONDS: Final = 10.0  # other handlers take over so long after the leader last wrote its row
LONG_AGO: Final = datetime(2000, 1, 1, tzinfo=UTC)  # when a lead that was given up ended, by any clock
PRESENT: Final = "handler:"  # begins the keys of processes that would lead
LOOK_SECONDS: Final = 2.0  # between two looks of a process that would lead more
_AGAIN_SECONDS: Final = 0.5  # after two have asked at once
_STANDBY_SECONDS: Final = 60.0  # a process that has asked in vain for so long logs it
_GONE_SECONDS: Final = 60.0  # after its end a row of a process that would lead is deleted
_DELETED_MAX: Final = 50


class Leads:
    """The leads of one process. holder: a name that no other has."""

    def __init__(self, tables: Tables, clock: Clock, queues: EventQueues, holder: str) -> None:
        self._tables = tables
        self._clock = clock
        self._queues = queues
        self._holder = holder
        self._rows: dict[str, Row] = {}  # as they were last read
        self._read_at = float("-inf")  # monotonic
        self._own: dict[str, Row] = {}  # rows of own leads, as they were last written or read
        self._until: dict[str, float] = {}  # monotonic seconds
        self._doubted: set[str] = set()
        self._present_until = -1.0  # monotonic
        self._standby_since = 0.0  # monotonic: when this process first asked in vain, without a pause since
        self._in_vain = float("-inf")  # monotonic: when it last did
        self._standby_said = False
        self._asking = asyncio.Lock()  # receivers of several queues ask one after the other

    def held(self, queue: str) -> bool:
        return self._clock.monotonic() < self._until.get(queue, -1.0)

    async def take(self, queue: str) -> float:
        """Lead, or go on leading; returns 0, or after how many seconds to ask again. Raises StorageUnavailable."""
        if self._holds_for_long(queue):
            return 0.0
        async with self._asking:
            if self._holds_for_long(queue):
                return 0.0  # another receiver of this process has asked meanwhile
            return await self._take(queue)

    def _holds_for_long(self, queue: str) -> bool:
        return self._clock.monotonic() < self._until.get(queue, -1.0) - LEAD_SECONDS / 2

    async def stands_by(self, queue: str) -> float:
        """For how many seconds another leads, 0 once none does, or this process: it may have been handed over.

        For one of several queues. Raises StorageUnavailable.
        """
        async with self._asking:
            now = self._clock.now()
            fresh = self._clock.monotonic() - self._read_at < LOOK_SECONDS / 2  # for another receiver, a moment ago
            rows = self._rows if fresh else await self._read(now)
            if seconds := self._others_seconds(rows.get(queue), now):
                await self._say_present(rows, now)
            return seconds

    async def _take(self, queue: str) -> float:
        now = self._clock.now()
        several = self._queues.number > 1
        if several or queue not in self._own:
            rows = await self._read(now)
        else:
            rows = {queue: self._own[queue]}
        if seconds := self._others_seconds(rows.get(queue), now):
            self._until.pop(queue, None)
            self._stand_by(rows[queue])
            if several:
                await self._say_present(rows, now)
            return seconds + self._clock.jitter() * _AGAIN_SECONDS
        others = self._queues.received if several else ()
        mine = [queue, *(each for each in others if each != queue and each in self._own and self.held(each))]
        given = self._handed_over(mine, rows, now) if several else {}
        until = now + timedelta(seconds=LEAD_SECONDS)
        changes: list[Change] = []
        for each in mine:
            columns: Columns = {"holder": given.get(each, self._holder), "until": until}
            row = rows.get(each)
            changes.append(Insert(each, columns) if row is None else Merge(each, row.etag, columns))
        return await self._write(queue, changes, given)

    async def _write(self, queue: str, changes: list[Change], given: Mapping[str, str]) -> float:
        """Write rows of leads; what becomes of those that were not asked for is known in any case, by their ends."""
        began = self._clock.monotonic()
        self._own.pop(queue, None)
        for each in given:
            self._until.pop(each, None)
            self._own.pop(each, None)
        try:
            etags = await self._tables.commit(LEADS, changes)
        except (Conflict, Unclear):  # reach: lead
            self._until.pop(queue, None)
            return self._clock.jitter() * _AGAIN_SECONDS
        for change, etag in zip(changes, etags, strict=True):
            if change.key not in given and etag is not None and not isinstance(change, Delete):
                self._until[change.key] = began + LEAD_SECONDS
                self._own[change.key] = Row(change.key, etag, change.columns)
        return 0.0

    async def _read(self, now: datetime) -> dict[str, Row]:
        """All rows of leads; what has been handed over to this process is led from now on."""
        rows = {row.key: row for row in await query_all(self._tables, LEADS, Range())}
        self._rows, self._read_at = rows, self._clock.monotonic()
        self._queues.learn(rows.get(NUMBER))
        if self._queues.number == 1:
            return rows
        for queue in self._queues.received:
            row = rows.get(queue)
            until = row.columns.get("until") if row is not None else None
            if row is None or row.columns.get("holder") != self._holder:
                self._own.pop(queue, None)
                self._until.pop(queue, None)
            elif isinstance(until, datetime) and holds(until, now, LEAD_SECONDS):
                self._own[queue] = row
                left = min((until - now).total_seconds(), LEAD_SECONDS)
                self._until[queue] = max(self._until.get(queue, -1.0), self._clock.monotonic() + left)
        if stale := [row for row in rows.values() if row.key.startswith(PRESENT) and _has_gone(row, now)]:
            await self._try([Delete(row.key, row.etag) for row in stale[:_DELETED_MAX]])
        return rows

    def _handed_over(self, mine: list[str], rows: Mapping[str, Row], now: datetime) -> dict[str, str]:
        """Which of these queues other processes are to lead: queue -> holder. The first one stays here."""
        led = self._led_by_others(rows, now)
        for row in rows.values():
            if row.key.startswith(PRESENT) and holds(row.columns.get("until"), now, LEAD_SECONDS):
                led.setdefault(row.key.removeprefix(PRESENT), 0)
        led.pop(self._holder, None)
        kept, given = list(mine), {}
        while led and len(kept) - min(led.values()) >= 2:
            other = min(led, key=lambda each: (led[each], each))
            given[kept.pop()] = other
            led[other] += 1
        return given

    def _led_by_others(self, rows: Mapping[str, Row], now: datetime) -> Counter[str]:
        """How many queues each other process leads."""
        there = [row for queue in self._queues.received if (row := rows.get(queue)) is not None]
        return Counter(str(row.columns.get("holder")) for row in there if self._others_seconds(row, now))

    async def _say_present(self, rows: Mapping[str, Row], now: datetime) -> None:
        """Let those that lead two queues more know that this process would lead, too."""
        moment, mine = self._clock.monotonic(), sum(map(self.held, self._own))
        most = max(self._led_by_others(rows, now).values(), default=0)
        if most - mine < 2 or moment < self._present_until - LEAD_SECONDS / 2:
            return
        key, columns = PRESENT + self._holder, {"until": now + timedelta(seconds=LEAD_SECONDS)}
        row = rows.get(key)
        if await self._try([Insert(key, columns) if row is None else Merge(key, row.etag, columns)]):
            self._present_until = moment + LEAD_SECONDS

    async def _try(self, changes: Sequence[Change]) -> bool:
        """Write what does no harm when it is not written; gives whether it was. Raises StorageUnavailable."""
        with contextlib.suppress(Conflict, Unclear):  # leads end by themselves  # reach: lead
            await self._tables.commit(LEADS, changes)
            return True
        return False

    def _others_seconds(self, row: Row | None, now: datetime) -> float:
        """For how long another process leads, by the time on its row."""
        until = row.columns.get("until") if row is not None else None
        if row is None or row.columns.get("holder") == self._holder or not isinstance(until, datetime):
            return 0.0
        if is_ahead(until, now, LEAD_SECONDS) and row.key not in self._doubted:
            self._doubted.add(row.key)
            log.warning("the lead over %s is said to last until %s: a clock is off, so it is over", row.key, until)
        return min((until - now).total_seconds(), LEAD_SECONDS) if holds(until, now, LEAD_SECONDS) else 0.0

    def _stand_by(self, row: Row) -> None:
        """Log once that another process leads for long: it works, or its clock is a little off."""
        moment = self._clock.monotonic()
        if moment - self._in_vain > 2 * LEAD_SECONDS or any(map(self.held, self._own)):
            self._standby_since = moment  # there was nothing to ask for meanwhile, or it leads over others
        self._in_vain = moment
        waited = moment - self._standby_since
        if waited > _STANDBY_SECONDS and not self._standby_said:
            self._standby_said = True
            words = "%s has led over %s for %.0f s, now until %s: this process stands by"
            log.info(words, row.columns.get("holder"), row.key, waited, row.columns.get("until"))

    async def give_up(self) -> None:
        """Let other processes lead at once. Raises StorageUnavailable."""
        async with self._asking:  # an answer that is under way would make this process lead again
            rows = [row for queue, row in self._own.items() if self.held(queue)]
            self._until.clear()
            self._own.clear()
            if rows:
                await self._try([Merge(row.key, row.etag, {"until": LONG_AGO}) for row in rows])


def _has_gone(row: Row, now: datetime) -> bool:
    until = row.columns.get("until")
    return not isinstance(until, datetime) or now - until > timedelta(seconds=_GONE_SECONDS)
