"""Permits: at most so many tasks of a target in flight, over all graphs of a store.

A permit is a row beside the gates, with a number below the target's limit and a lease; one worker holds it for one run
at a time. It is created, or taken over after its lease has ended, by a conditional write. A worker begins no run
without one, and stops a run whose permit it could not renew: `MARGIN` of the lease before its end, by its own steady
clock since before the renewal was sent. Under a lowered limit, permits of higher numbers are renewed until their runs
end, and not used again.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from taskgraph.model import limits
from taskgraph.model.clock import Clock
from taskgraph.model.columns import Value
from taskgraph.model.errors import Conflict, StorageError, Unclear
from taskgraph.model.foreign_times import Standing, standing
from taskgraph.queries.targets import GATES, PERMIT, TargetLimit, length_of, limits_in, permit_key
from taskgraph.storage.tables import Change, Delete, Insert, Merge, Range, Replace, Row, Tables, query_all

MARGIN: Final = 1 / 4
"""Of a permit's lease: for clocks that differ, and runs that take their time to end."""

log = logging.getLogger("taskgraph.permits")
_SCHEMA: Final = 1
_TRIES: Final = 5  # against others who take permits at the same moment


@dataclass(slots=True)
class _Mine:
    """good_until: by the steady clock, when a run under it must have been stopped."""

    etag: str
    good_until: float


class Permits:
    """The permits of one worker.

    One call at a time changes them: a read that another call has overtaken would take a new permit for a lost one, or
    one that is being given back for a held one.
    """

    def __init__(self, tables: Tables, clock: Clock, worker: str, lease_seconds: float) -> None:
        self._tables = tables
        self._clock = clock
        self._worker = worker
        self._lease_seconds = lease_seconds
        self._token = clock.new_id()  # a worker of the same name is another one
        self._mine: dict[str, dict[int, _Mine]] = {}  # target -> number
        self._lost: Counter[str] = Counter()
        self._doubted: dict[str, tuple[str, float]] = {}  # permit -> etag, since when it was seen so (monotonic)
        self._seen = -1.0
        self._changing = asyncio.Lock()
        self.limits: Mapping[str, TargetLimit] = {}

    def saw(self, rows: Sequence[Row], began: float) -> None:
        """Take in the rows beside the gates. began: when the read did (monotonic); an older one replaces nothing."""
        if began >= self._seen:
            self._seen = began
            self.limits = limits_in(rows, self._clock.now())

    def held(self, target: str) -> int:
        """Permits of a target that runs may go under."""
        now = self._clock.monotonic()
        return sum(one.good_until > now for one in self._mine.get(target, {}).values())

    def usable(self, target: str) -> int:
        """Permits that further runs may begin under: not those above a lowered limit."""
        limit, now = self.limits.get(target), self._clock.monotonic()
        most = limit.most if limit is not None else 0
        return sum(one.good_until > now and number < most for number, one in self._mine.get(target, {}).items())

    @property
    def targets(self) -> list[str]:
        return [target for target, mine in self._mine.items() if mine]

    async def take(self, target: str, wanted: Callable[[], int]) -> int:
        """Hold so many permits of a target, as far as some are free; gives how many may be used."""
        async with self._changing:
            for _ in range(_TRIES):
                if await self._try_to_take(target, wanted()):
                    break
            return self.usable(target)

    async def _try_to_take(self, target: str, wanted: int) -> bool:
        """Take what is missing; gives whether no further try is needed."""
        if self.usable(target) >= wanted:
            return True
        before, now = self._clock.monotonic(), self._clock.now()
        rows = await query_all(self._tables, GATES, Range())
        self.saw(rows, before)
        limit = self.limits.get(target)
        if limit is None:
            return True
        mine = self._recognized(target, rows, now)
        there, columns = {row.key: row for row in rows}, self._columns(now)
        changes: list[Change] = []
        numbers: list[int] = []
        for number in range(limit.most):
            if self.usable(target) + len(numbers) >= wanted or len(numbers) >= limits.COMMIT_CHANGES_MAX:
                break
            row = there.get(_key(target, number))
            if number in mine or (row is not None and not self._is_free(row, now)):
                continue
            numbers.append(number)
            key = _key(target, number)
            changes.append(Insert(key, columns) if row is None else Replace(key, row.etag, columns))
        if not changes:
            return True
        await self._write(target, numbers, changes, before)
        return False

    async def renew(self) -> None:
        """Renew all permits. Those that others have by now are lost. Raises StorageError."""
        async with self._changing:
            for target in self.targets:
                for _ in range(_TRIES):
                    mine = self._mine.get(target, {})
                    if not mine:
                        break
                    before, now = self._clock.monotonic(), self._clock.now()
                    numbers = sorted(mine)[: limits.COMMIT_CHANGES_MAX]
                    new = self._columns(now)
                    changes = [Replace(_key(target, number), mine[number].etag, new) for number in numbers]
                    if await self._write(target, numbers, changes, before):
                        break
                    self._recognized(target, await query_all(self._tables, GATES, Range()), now)

    async def give_back(self, target: str, keep: Callable[[], int] = lambda: 0) -> None:
        """Hold only so many permits of a target: those of the highest numbers go. Raises StorageError."""
        async with self._changing:
            mine = self._mine.get(target, {})
            gone = sorted(mine)[max(0, keep()) :][: limits.COMMIT_CHANGES_MAX]
            if not gone:
                return
            changes = [Delete(_key(target, number), mine.pop(number).etag) for number in gone]
            with contextlib.suppress(Conflict, Unclear):  # what was not given back ends by itself  # reach: permits
                await self._tables.commit(GATES, changes)

    async def hand_over(self, target: str, claims: Sequence[str]) -> Sequence[str]:
        """Have a permit go with each of these runs from now on, see `RunPermits`; gives those that get none."""
        async with self._changing:
            mine, now = self._mine.get(target, {}), self._clock.monotonic()
            numbers = [number for number, one in sorted(mine.items()) if one.good_until > now][: len(claims)]
            of_runs = dict(zip(numbers, claims, strict=False))
            columns = self._columns(self._clock.now())
            changes = [Replace(_key(target, n), mine[n].etag, {**columns, "token": of}) for n, of in of_runs.items()]
            try:
                if changes:
                    await self._tables.commit(GATES, changes)
            except StorageError as error:  # reach: permits
                log.warning("permits of %s could not be handed over: %s", target, error)
                return claims  # which may have got them, and let them end
            for number in numbers:
                del mine[number]
            return claims[len(numbers) :]

    def lost(self) -> dict[str, int]:
        """Permits lost since the last call, to others or for want of a renewal: target -> how many."""
        now = self._clock.monotonic()
        for target, mine in self._mine.items():
            for number in [number for number, one in mine.items() if one.good_until <= now]:
                del mine[number]
                self._lost[target] += 1
        found, self._lost = dict(self._lost), Counter()
        return found

    def _recognized(self, target: str, rows: Sequence[Row], now: datetime) -> dict[int, _Mine]:
        """Bring the permits that are held up to date with rows that were read; gives them."""
        mine = self._mine.setdefault(target, {})
        found = {permit_key(row.key)[1]: row for row in rows if row.key.startswith(f"{PERMIT}{target}:")}
        for number in list(mine):
            row = found.get(number)
            if row is None or row.columns.get("token") != self._token:
                del mine[number]
                self._lost[target] += 1
            else:
                mine[number].etag = row.etag
        for number, row in found.items():
            until = row.columns.get("until")
            if number not in mine and row.columns.get("token") == self._token and isinstance(until, datetime):
                # A commit whose answer was lost has come through.
                left = min((until - now).total_seconds(), self._lease_seconds) - self._lease_seconds * MARGIN
                mine[number] = _Mine(row.etag, self._clock.monotonic() + left)
        return mine

    async def _write(self, target: str, numbers: Sequence[int], changes: Sequence[Change], before: float) -> bool:
        """Gives whether the permits of these numbers are held now; if not, or perhaps, their rows have to be read."""
        try:
            etags = await self._tables.commit(GATES, changes)
        except (Conflict, Unclear):  # reach: permits
            return False
        good_until = before + self._lease_seconds * (1 - MARGIN)
        for number, etag in zip(numbers, etags, strict=True):
            self._mine.setdefault(target, {})[number] = _Mine(str(etag), good_until)
        return True

    def _is_free(self, row: Row, now: datetime) -> bool:
        """Whether the lease of a permit has ended.

        Where its end is doubtful (see `model.foreign_times`): once the row was not written for the lease's length, by
        our steady clock.
        """
        until, moment, length = row.columns.get("until"), self._clock.monotonic(), length_of(row)
        how = standing(until, now, length) if isinstance(until, datetime) else Standing.OVER
        if how is not Standing.DOUBTFUL:
            self._doubted.pop(row.key, None)
            return how is Standing.OVER
        if row.key not in self._doubted:
            log.warning("%s is said to be held until %s: a clock is off", row.key, until)
        etag, since = self._doubted.get(row.key, ("", moment))
        if etag != row.etag:
            since = moment
        self._doubted[row.key] = (row.etag, since)
        return moment - since >= length

    def _columns(self, now: datetime) -> dict[str, Value]:
        until = now + timedelta(seconds=self._lease_seconds)
        return {
            "schema": _SCHEMA,
            "worker": self._worker,
            "token": self._token,
            "since": now,
            "until": until,
            "seconds": self._lease_seconds,
        }


class RunPermits:
    """Permits of single runs, whose claims are their tokens: any process may renew them, or give them back."""

    def __init__(self, tables: Tables, clock: Clock) -> None:
        self._tables = tables
        self._clock = clock

    async def renew(self, claims: Mapping[str, float]) -> set[str]:
        """Renew the permits of these runs; gives the runs that have one. claims: to the length of the new lease."""

        def change(row: Row) -> Change:
            seconds = claims[str(row.columns["token"])] / (1 - MARGIN)
            until = self._clock.now() + timedelta(seconds=seconds)
            return Merge(row.key, row.etag, {"until": until, "seconds": seconds})

        return await self._change(claims, change)

    async def give_back(self, claims: Collection[str]) -> None:
        """What could not be given back ends by itself."""
        await self._change(claims, lambda row: Delete(row.key, row.etag))

    async def _change(self, claims: Collection[str], change: Callable[[Row], Change]) -> set[str]:
        for _ in range(_TRIES):
            rows = await query_all(self._tables, GATES, Range(PERMIT, f"{PERMIT[:-1]};"))
            ours = [row for row in rows if row.columns.get("token") in claims]
            try:
                for start in range(0, len(ours), limits.COMMIT_CHANGES_MAX):
                    await self._tables.commit(GATES, [*map(change, ours[start : start + limits.COMMIT_CHANGES_MAX])])
            except (Conflict, Unclear):  # reach: permits
                continue  # read what is there now
            return {str(row.columns["token"]) for row in ours}
        raise Conflict("others kept writing permits")


def _key(target: str, number: int) -> str:
    return f"{PERMIT}{target}:{number:04}"
