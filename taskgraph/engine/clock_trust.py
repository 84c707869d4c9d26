"""Whether the clock may be believed with what ends things for their age.

What is old is deleted, given up or forgotten, and a clock that is a year ahead makes everything old. So housekeeping
writes down when it was done, and the clock may end what is old only once it has gone on without a leap for a day. A
clock that leaps, or two that disagree, end nothing for their age meanwhile; all else goes on.
"""

import logging
from datetime import datetime, timedelta
from typing import Final

from taskgraph.model import limits
from taskgraph.model.columns import Columns, time_of
from taskgraph.model.errors import Conflict, Unclear
from taskgraph.model.foreign_times import is_ahead
from taskgraph.storage.tables import Change, Insert, Merge, Row, Tables

log = logging.getLogger("taskgraph.ages")

CLOCKS: Final = "index:clock"
"""Partition that says by which clock house was kept; `:` is in no graph id."""

_KEY: Final = "seen"


def going_since(columns: Columns, now: datetime) -> datetime:
    """Since when the clock has gone on without a leap, by what was written down at the last look."""
    seen, since = time_of(columns, "seen"), time_of(columns, "since")
    if seen is None or since is None or is_ahead(seen, now) or is_ahead(since, now):
        return now
    return since if now - seen <= timedelta(seconds=limits.CLOCK_GAP_SECONDS) else now


async def may_end(tables: Tables, now: datetime) -> bool:
    """Whether this clock may end what is old by it."""
    (row,) = await tables.get(CLOCKS, [_KEY])
    return _is_settled(row, now)


async def note(tables: Tables, now: datetime) -> bool:
    """Write down that house is kept now; gives whether this clock may end what is old by it."""
    (row,) = await tables.get(CLOCKS, [_KEY])
    since = now if row is None else going_since(row.columns, now)
    if row is not None and since == now:
        seen = row.columns.get("seen")
        words = "the clock has leapt from %s to %s: nothing is ended for its age until it has gone on for a day"
        log.warning(words, seen, now)
    columns: Columns = {"seen": now, "since": since}
    change: Change = Insert(_KEY, columns) if row is None else Merge(_KEY, row.etag, columns)
    try:
        await tables.commit(CLOCKS, [change])
    except (Conflict, Unclear):
        return False  # another process keeps house too, maybe by another clock: the next round sees
    return _is_settled(row, now)


def _is_settled(row: Row | None, now: datetime) -> bool:
    since = now if row is None else going_since(row.columns, now)
    return now - since >= timedelta(seconds=limits.CLOCK_SETTLED_SECONDS)
