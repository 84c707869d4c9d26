"""Whether the clock can be trusted to delete, give up or forget things for their age.

A clock that is a year ahead makes everything old. So housekeeping writes down when it was done, and things are ended
for their age only once the clock has gone on without a leap for a day. If it leaps, or two clocks disagree, they wait.
"""

import logging
from datetime import datetime, timedelta
from typing import Final

from taskgraph.model import limits
from taskgraph.model.columns import Columns, time_of
from taskgraph.model.errors import Conflict, Unclear
from taskgraph.model.foreign_times import is_ahead
from taskgraph.storage.tables import Change, Insert, Merge, Tables

log = logging.getLogger("taskgraph.ages")

CLOCKS: Final = "index:clock"  # partition of the last times of housekeeping; `:` is in no graph id
_KEY: Final = "seen"


def going_since(columns: Columns, now: datetime) -> datetime:
    """Since when the clock has gone on without a leap, by what was written down at the last look."""
    seen, since = time_of(columns, "seen"), time_of(columns, "since")
    if seen is None or since is None or is_ahead(seen, now) or is_ahead(since, now):
        return now
    return since if now - seen <= timedelta(seconds=limits.CLOCK_GAP_SECONDS) else now


async def may_end(tables: Tables, now: datetime) -> bool:
    """Whether this clock may end things for their age."""
    (row,) = await tables.get(CLOCKS, [_KEY])
    return _is_settled(now if row is None else going_since(row.columns, now), now)


async def note(tables: Tables, now: datetime) -> bool:
    """Write down that housekeeping is done now; returns whether this clock may end things for their age."""
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
    except (Conflict, Unclear):  # reach: deletion
        return False  # another process does this, too, perhaps by another clock: the next round looks again
    return _is_settled(since, now)


def _is_settled(since: datetime, now: datetime) -> bool:
    return now - since >= timedelta(seconds=limits.CLOCK_SETTLED_SECONDS)
