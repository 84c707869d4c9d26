"""Find and repair times of the store's own rows, and of hidden messages, that a clock far ahead has written.

A table lists the rows outside of graphs that hold a time, with the latest that it can be. `doctor` names later ones,
and sets them to the latest: a permit or a lead that may still be held stays held for its whole length; a pause is set
to now. No reader waits for that: none of them believes such a time either (`model.foreign_times`).
"""

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from taskgraph.engine.lead import LEAD_SECONDS
from taskgraph.model import limits
from taskgraph.model.clock import Clock
from taskgraph.model.errors import Conflict, Unclear
from taskgraph.model.foreign_times import is_ahead
from taskgraph.model.names import LEADS
from taskgraph.protocol.invariants.findings import Finding, SetTime, Severity
from taskgraph.protocol.schedule_rules import SCHEDULES
from taskgraph.queries import targets
from taskgraph.queries.workers import WORKERS
from taskgraph.storage.queues import HiddenMessages
from taskgraph.storage.tables import Merge, Range, Row, Tables, query_all

_SHOWN: Final = "it is only shown"


@dataclass(frozen=True, slots=True)
class _Kind:
    """Rows with a time in a column. start: of their keys. name, effect: for people.

    longest: how far from now the time can be, in seconds. held: whether a repair sets it to that, or to now.
    """

    partition: str
    start: str
    column: str
    name: str
    effect: str
    longest: Callable[[Row], float] = lambda row: 0.0
    held: bool = True


_KINDS: Final = (
    _Kind(LEADS, "", "until", "a lead", "another handler leads, too: it costs speed", lambda _: LEAD_SECONDS),
    _Kind(
        targets.GATES,
        targets.PERMIT,
        "until",
        "a permit",
        "a worker takes it once its row was not written for its length",
        targets.length_of,
    ),
    _Kind(targets.GATES, targets.LIMIT, "since", "the limit of a target", _SHOWN),
    _Kind(targets.GATES, targets.PAUSED, "since", "the pause of a target", _SHOWN),
    _Kind(targets.GATES, targets.LEVEL, "used", "a level", "workers ask for tasks of this level until then"),
    _Kind(WORKERS, "", "seen", "a worker", "the sweep takes it for written now"),
    _Kind(
        SCHEDULES,
        "schedule:",
        "tryAfter",
        "a schedule",
        "the pause is taken for over",
        lambda _: limits.SCHEDULE_RETRY_SECONDS_MAX,
        held=False,
    ),
)


@dataclass(frozen=True, slots=True)
class ExaminedStore:
    """repaired: what was found before, and is not found any more."""

    findings: tuple[Finding, ...]
    repaired: tuple[Finding, ...] = ()


async def examine_store(tables: Tables, hidden: HiddenMessages | None, now: datetime) -> ExaminedStore:
    """Change nothing. hidden: None where the queues have a clock of their own."""
    found: list[Finding] = []
    for kind in _KINDS:
        rows = await query_all(tables, kind.partition, Range(kind.start, f"{kind.start[:-1]};" if kind.start else ""))
        found += _ahead(kind, rows, now)
    for each in await hidden.hidden_ahead() if hidden is not None else ():
        text = f"{each.count:,} of its messages are hidden until {each.until}, {_latest(each.seconds)}"
        effect = "a process that receives messages hides them for their length from now"
        found.append(_finding(f"queue {each.queue}", text, effect, SetTime("", each.queue, "", {})))
    return ExaminedStore(tuple(found))


async def repair_store(tables: Tables, hidden: HiddenMessages | None, clock: Clock) -> ExaminedStore:
    """Examine, set times that are too late right, and examine again."""
    first = (await examine_store(tables, hidden, clock.now())).findings
    for each in first:
        right = each.repair
        if not isinstance(right, SetTime):
            continue
        if not right.partition and hidden is not None:
            await hidden.set_right(right.key)
            continue
        # Its owner or this call may have just written it: the next look shows.
        with contextlib.suppress(Conflict, Unclear):  # reach: store-times
            await tables.commit(right.partition, [Merge(right.key, right.etag, right.columns)])
    left = (await examine_store(tables, hidden, clock.now())).findings
    there = {each.key for each in left}
    return ExaminedStore(left, tuple(each for each in first if each.key not in there))


def _ahead(kind: _Kind, rows: Iterable[Row], now: datetime) -> Iterable[Finding]:
    for row in rows:
        said, longest = row.columns.get(kind.column), kind.longest(row)
        if isinstance(said, datetime) and is_ahead(said, now, longest):
            text = f"{kind.name} says {kind.column} {said}, {_latest(longest)}"
            right = {kind.column: now + timedelta(seconds=longest * kind.held)}
            repair = SetTime(kind.partition, row.key, row.etag, right)
            yield _finding(f"{kind.partition} {row.key}", text, kind.effect, repair)


def _finding(key: str, text: str, effect: str, repair: SetTime) -> Finding:
    remedy = "put the clocks of the machines right; `taskgraph doctor --repair` sets this right"
    return Finding("clock-off", key, "", Severity.DUE, text, effect, remedy, repair=repair)


def _latest(seconds: float) -> str:
    return f"and the latest that it can be is {f'{round(seconds, 1):g} s from ' if seconds else ''}now"
