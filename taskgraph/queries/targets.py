"""Gates: targets that are paused or limited for all graphs of a store, and levels that are in use.

A worker reads the rows of all gates every few seconds while it has work. A gate is no part of a claim's commit, so a
claim that was under way when it was closed may still be made; a graph that must stand still to the last claim is paused
by itself (`protocol.pause`).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from taskgraph.model import limits
from taskgraph.model.clock import Clock
from taskgraph.model.columns import Columns, Value, integer, time_of
from taskgraph.model.errors import Conflict, InvalidInput, Unclear
from taskgraph.model.foreign_times import Standing, standing
from taskgraph.model.priorities import LEVELS, NORMAL, is_level
from taskgraph.storage.tables import Delete, Insert, Merge, Range, Replace, Row, Tables, or_none, query_all

GATES: Final = "index:gates"  # partition of paused targets; `:` is in no graph id
PAUSED: Final = "target:"
LEVEL: Final = "level:"  # keys of the rows of paused targets and of levels begin so
_SCHEMA: Final = 1


@dataclass(frozen=True, slots=True)
class Gate:
    target: str
    since: datetime | None
    reason: str
    by: str


def closed_in(rows: Iterable[Row]) -> dict[str, Gate]:
    return {
        target: Gate(
            target,
            time_of(row.columns, "since"),
            str(row.columns.get("reason", "")),
            str(row.columns.get("by", "")),
        )
        for row in rows
        if row.key.startswith(PAUSED) and (target := row.key.removeprefix(PAUSED))
    }


def levels_in(rows: Iterable[Row], now: datetime, written: Collection[str] = ()) -> dict[str, tuple[str, ...]]:
    """Target -> the levels besides `normal` that were used of late. written: keys of rows written of late."""
    found: dict[str, tuple[str, ...]] = {}
    for row in rows:
        if not row.key.startswith(LEVEL):
            continue
        target, _, level = row.key.removeprefix(LEVEL).partition(":")
        used = row.columns.get("used")
        recent = isinstance(used, datetime) and now - used < timedelta(seconds=limits.LEVEL_SECONDS)
        if (recent or row.key in written) and is_level(level):
            found[target] = (*found.get(target, ()), level)
    return found


async def levels_used(tables: Tables, now: datetime) -> dict[str, tuple[str, ...]]:
    """Target -> the levels besides `normal` to which tasks were sent of late."""
    return levels_in(await query_all(tables, GATES, Range(LEVEL, "level;")), now)


async def use_level(tables: Tables, target: str, level: str, now: datetime) -> None:
    """Say that tasks are sent to this level. Repeatable; what others say at the same time is as good."""
    key = f"{LEVEL}{target}:{level}"
    (row,) = await tables.get(GATES, [key])
    columns: Columns = {"schema": _SCHEMA, "used": now}
    await _write(tables, Insert(key, columns) if row is None else Merge(key, row.etag, columns))


async def _write(tables: Tables, change: Insert | Merge) -> bool:
    """Whether this was written, and not by another process just before."""
    try:
        await tables.commit(GATES, [change])
    except Conflict:  # reach: gates
        return False
    except Unclear:  # reach: gates
        (row,) = await tables.get(GATES, [change.key])
        if row is None:
            raise
    return True


async def closed(tables: Tables) -> dict[str, Gate]:
    """By target; empty where they are out of sight."""
    return closed_in(await or_none(query_all(tables, GATES, Range(PAUSED, "target;"))) or ())


async def close(tables: Tables, target: str, now: datetime, reason: str = "", by: str = "") -> bool:
    """Pause a target; whether it was not paused before. by: who asks. Repeatable."""
    return await _write(tables, Insert(PAUSED + target, {"schema": _SCHEMA, "since": now, "reason": reason, "by": by}))


async def reopen(tables: Tables, target: str) -> bool:
    return await _delete(tables, PAUSED + target)


async def _delete(tables: Tables, key: str) -> bool:
    for _ in range(limits.COMMIT_ATTEMPTS_MAX):
        (row,) = await tables.get(GATES, [key])
        if row is None:
            return False
        try:
            await tables.commit(GATES, [Delete(row.key, row.etag)])
        except (Conflict, Unclear):  # reach: gates
            continue  # read what is there now
        return True
    raise Conflict(f"others kept writing row {key} of {GATES}")


class Gates:
    """What one worker knows of the gates. seconds: for so long it goes by what it has read."""

    def __init__(self, tables: Tables, clock: Clock, seconds: float = limits.GATE_SECONDS) -> None:
        self._tables = tables
        self._clock = clock
        self._seconds = seconds
        self._looked: float | None = None  # when that was tried last
        self.seen: float | None = None  # when the look began that gave what is known (monotonic); None before any
        self.closed: Mapping[str, Gate] = {}
        self.rows: Sequence[Row] = ()  # all that was read: limits and permits too
        self._levels: Mapping[str, tuple[str, ...]] = {}
        self._writings: dict[str, tuple[str, float]] = {}  # row of a level -> its etag, and since when it is known

    @property
    def known(self) -> bool:
        """Whether what is known is recent enough to claim by."""
        return self._looked is not None and self._clock.monotonic() - self._looked < self._seconds

    @property
    def recent(self) -> bool:
        """Whether what is known was read a short time ago: a worker with work in hand looks that often."""
        return self.seen is not None and self._clock.monotonic() - self.seen < 2 * self._seconds

    async def look(self, *, again: bool = False) -> None:
        """Read the gates, unless that was tried just now; again: in any case. Raises StorageError."""
        if again or not self.known:
            began = self._looked = self._clock.monotonic()  # at once: a store in trouble is not asked all the more
            rows = await query_all(self._tables, GATES, Range())
            if self.seen is not None and began < self.seen:
                return
            self.rows = rows
            self.closed = closed_in(self.rows)
            self._levels = levels_in(self.rows, self._clock.now(), self._written(began))
            self.seen = began

    def _written(self, moment: float) -> list[str]:
        """The rows of levels that were written of late, by the steady clock."""
        for row in self.rows:
            if row.key.startswith(LEVEL) and self._writings.get(row.key, ("", 0.0))[0] != row.etag:
                self._writings[row.key] = row.etag, moment
        return [key for key, (_, since) in self._writings.items() if moment - since < limits.LEVEL_SECONDS]

    def levels(self, target: str) -> list[str]:
        """The levels of a target that are used, the highest first; `normal` is one of them always."""
        used = (NORMAL, *self._levels.get(target, ()))
        return [level for level in LEVELS if level in used]


LIMIT: Final = "limit:"

PERMIT: Final = "permit:"  # keys of the rows of limits and of permits begin so


@dataclass(frozen=True, slots=True)
class Permit:
    number: int
    worker: str
    until: datetime


@dataclass(frozen=True, slots=True)
class TargetLimit:
    """A limited target. permits: those whose lease has not ended."""

    target: str
    most: int
    since: datetime | None
    reason: str
    by: str
    permits: Sequence[Permit] = ()


def limits_in(rows: Sequence[Row], now: datetime) -> dict[str, TargetLimit]:
    """The limited targets, by name, out of the rows that lie beside the gates."""
    held: dict[str, list[Permit]] = {}
    for row in rows:
        until = time_of(row.columns, "until")
        if row.key.startswith(PERMIT) and until and standing(until, now, length_of(row)) is not Standing.OVER:
            target, number = permit_key(row.key)
            held.setdefault(target, []).append(Permit(number, str(row.columns.get("worker", "")), until))
    return {
        target: TargetLimit(
            target,
            integer(row.columns, "max"),
            time_of(row.columns, "since"),
            str(row.columns.get("reason", "")),
            str(row.columns.get("by", "")),
            tuple(held.get(target, ())),
        )
        for row in rows
        if row.key.startswith(LIMIT) and (target := row.key.removeprefix(LIMIT))
    }


def permit_key(key: str) -> tuple[str, int]:
    """The target and the number of a permit, -1 for what is none."""
    _, target, number = key.split(":", 2)
    return target, int(number) if number.isdecimal() else -1


async def limited(tables: Tables, now: datetime) -> dict[str, TargetLimit]:
    return limits_in(await query_all(tables, GATES, Range()), now)


async def limit_target(tables: Tables, target: str, most: int, now: datetime, reason: str = "", by: str = "") -> bool:
    """Let so many tasks of a target be in flight; whether that was otherwise before. by: who asks. Repeatable."""
    if not 1 <= most <= limits.IN_FLIGHT_MAX:
        raise InvalidInput(f"a limit is a number from 1 to {limits.IN_FLIGHT_MAX:,}, and {most} is none")
    key = LIMIT + target
    columns: dict[str, Value] = {"schema": _SCHEMA, "max": most, "since": now, "reason": reason, "by": by}
    for _ in range(limits.COMMIT_ATTEMPTS_MAX):
        (row,) = await tables.get(GATES, [key])
        if row is not None and row.columns.get("max") == most and row.columns.get("reason", "") == reason:
            return row.columns.get("since") == now
        try:
            await tables.commit(GATES, [Insert(key, columns) if row is None else Replace(key, row.etag, columns)])
        except (Conflict, Unclear):  # reach: gates
            continue  # read what is there now
        return True
    raise Conflict(f"target {target}: others kept writing its limit")


async def clear_target(tables: Tables, target: str) -> bool:
    return await _delete(tables, LIMIT + target)


def length_of(row: Row) -> float:
    """Of the lease of a permit, in seconds; the longest there is where an earlier version wrote none."""
    seconds = row.columns.get("seconds")
    return float(seconds) if isinstance(seconds, int | float) else float(limits.DELAY_SECONDS_MAX)
