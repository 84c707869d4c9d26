"""Times that another process wrote, and what they are worth where clocks differ.

A lease, a lead, a pause or a hidden message ends at `now + length` by its writer's clock. An end further off than the
length (and some slack) comes of clocks that differ, and holds nothing up. Of two wishes the later one counts: a process
that has seen the first asks later than that, whatever its clock says.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from taskgraph.model import limits

_SLACK: Final = timedelta(seconds=limits.CLOCK_SLACK_SECONDS)


class Standing(StrEnum):
    """What an end says at a moment."""

    HOLDS = "holds"
    OVER = "over"
    DOUBTFUL = "doubtful"  # further off, ahead or behind, than clocks that agree could make it


def is_ahead(moment: datetime, now: datetime, length_seconds: float = 0.0) -> bool:
    """Whether this is later than a clock that agrees with ours can have written: `length` after its own time."""
    return moment - now > timedelta(seconds=length_seconds) + _SLACK


def holds(end: object, now: datetime, length_seconds: float) -> bool:
    """Whether an end is still to come, and can be believed. For what may be taken early without harm."""
    return isinstance(end, datetime) and end > now and not is_ahead(end, now, length_seconds)


def standing(end: datetime, now: datetime, length_seconds: float) -> Standing:
    """What an end says, for what must not be taken early; after long it says nothing: its clock may be behind."""
    if end >= now:
        return Standing.DOUBTFUL if is_ahead(end, now, length_seconds) else Standing.HOLDS
    noticed = timedelta(seconds=max(length_seconds, limits.END_NOTICED_SECONDS))
    return Standing.OVER if now - end <= noticed else Standing.DOUBTFUL


def asked_after(now: datetime, seen: Iterable[str], spread: float = 0.0) -> str:
    """When a wish is asked, RFC 3339 in UTC: now, or later than those that were seen, whose clocks may be ahead.

    spread: from 0 to 1, drawn: so that two processes that have seen the same ask at different times.
    """
    asked, last = now.isoformat(), max(seen, default="")
    if asked > last:
        return asked
    try:
        return (datetime.fromisoformat(last) + timedelta(microseconds=1 + int(spread * 999_998))).isoformat()
    except (OverflowError, ValueError):
        return last  # the end of time, or no time: of wishes that say the same the one decided last counts
