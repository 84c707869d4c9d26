"""When a schedule is due: cron in a time zone, an interval, or a single time; aware, in UTC, in whole seconds.

Cron is that of Debian, as `cronsim` reads it, with five fields. Where neither the minute nor the hour field begins with
`*`, a time that a change to summer time leaves out comes at the first minute that there is, and a time that a change to
winter time brings twice comes once, the first time.
"""

import difflib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from types import MappingProxyType
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from taskgraph.model import limits
from taskgraph.model.errors import InvalidInput
from taskgraph.model.timing import clock_text

_UTC_NAMES: Final = ("UTC", "Etc/UTC")
_FIELDS: Final = 5
MACROS: Final = MappingProxyType(
    {
        "@hourly": "0 * * * *",
        "@daily": "0 0 * * *",
        "@weekly": "0 0 * * 0",
        "@monthly": "0 0 1 * *",
        "@yearly": "0 0 1 1 *",
    }
)
"""Names for five fields; what is kept is the fields, which every version reads."""
_YEARS: Final = (1970, 8999)  # what stores hold, with room for what is counted from it
_WINDOW: Final = timedelta(hours=1)
_SOME_DAY: Final = datetime(2024, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Recurrence:
    """One of three: cron and timezone; every (seconds) and anchor; at."""

    cron: str = ""
    timezone: str = ""
    every: int = 0
    anchor: datetime | None = None
    at: datetime | None = None

    def check(self) -> None:
        """Raises InvalidInput for what makes no sense, with the remedy."""
        given = [bool(self.cron), bool(self.every), self.at is not None]
        if sum(given) != 1:
            raise InvalidInput("say when: one of cron, every and at, such as cron 30 2 * * * (at half past two)")
        for moment in (self.anchor, self.at):
            if moment is not None and not _YEARS[0] <= moment.year <= _YEARS[1]:
                raise InvalidInput(f"the year {moment.year}: write one of {_YEARS[0]} to {_YEARS[1]}")
        if self.every:
            low, high = limits.SCHEDULE_EVERY_SECONDS_MIN, limits.SCHEDULE_EVERY_SECONDS_MAX
            if not low <= self.every <= high:
                raise InvalidInput(f"every {self.every:,} s: an interval has {low:,} to {high:,} whole seconds")
            if self.anchor is None:
                raise InvalidInput("an interval needs an anchor: a time from which it is counted")
        elif self.anchor is not None:
            raise InvalidInput("an anchor goes with every")
        if self.cron:
            _check_timezone(self.timezone)
            _check_cron(self.cron, self._zone())
        elif self.timezone:
            raise InvalidInput("a time zone goes with cron; an interval counts seconds, and a time has its own offset")

    def after(self, moment: datetime) -> datetime | None:
        """The first time later than this one, None for none. Raises InvalidInput for a time zone unknown here."""
        return next(self.times(moment), None)

    def times(self, moment: datetime) -> Iterator[datetime]:
        """All times that are later than this one, in order. Raises InvalidInput as `after` does."""
        if self.at is not None:
            return iter([self.at] if self.at > moment else [])
        if self.every and self.anchor is not None:
            anchor, length = self.anchor, timedelta(seconds=self.every)
            first = 0 if moment < anchor else (moment - anchor) // length + 1
            return (anchor + number * length for number in itertools.count(first))
        return _cron_times(self.cron, self._zone(), moment)

    def latest(self, since: datetime, until: datetime) -> datetime | None:
        """The last time that is later than `since` and not later than `until`; None if there is none between."""
        window = _WINDOW
        while True:
            start = max(since, until - window)
            found = None
            for moment in itertools.takewhile(lambda each: each <= until, self.times(start)):
                found = moment
            if found is not None or start == since:
                return found
            window *= 2

    def words(self) -> str:
        if self.at is not None:
            return f"at {clock_text(self.at.astimezone(UTC))}"
        if self.every and self.anchor is not None:
            return f"every {self.every:,} s, counted from {clock_text(self.anchor.astimezone(UTC))}"
        return f"{self.cron} ({self.timezone})"

    def local(self, moment: datetime) -> str:
        """A time as the clocks of the zone show it; "" where there is no zone but UTC, or none that is known here."""
        try:
            zone = self._zone() if self.cron else UTC
        except InvalidInput:
            return ""
        return "" if zone is UTC else moment.astimezone(zone).strftime("%a %H:%M %Z")

    def _zone(self) -> tzinfo:
        if self.timezone in _UTC_NAMES:
            return UTC
        try:
            return ZoneInfo(self.timezone)
        except (KeyError, ValueError, OSError) as error:  # KeyError: not found; ValueError: no name; OSError: a folder
            words = f"this machine does not know the time zone “{self.timezone}”; update its package tzdata"
            raise InvalidInput(words) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """What is said of when a schedule is due; None for what is not said."""

    cron: str | None = None
    timezone: str | None = None
    every: int | None = None
    anchor: datetime | None = None
    at: datetime | None = None

    def over(self, before: Recurrence | None = None) -> Recurrence:
        """What is said here, and otherwise what it had before. Raises InvalidInput."""
        if sum(each is not None for each in (self.cron, self.every, self.at)) > 1:
            raise InvalidInput("only one of cron, every and at")
        old = Recurrence() if before is None else before
        cron, every, at = self.cron, self.every, self.at
        if cron is None and every is None and at is None:
            cron, every, at = old.cron or None, old.every or None, old.at
        if self.timezone is not None and cron is None:
            remedy = "write the offset into the anchor of an interval, or the time"
            raise InvalidInput(f"a time zone goes with cron; {remedy}")
        if self.anchor is not None and every is None:
            raise InvalidInput("an anchor goes with every")
        if cron is not None:
            return Recurrence(cron=_fields(cron), timezone=self.timezone or old.timezone or "UTC")
        if every is not None:
            return Recurrence(every=every, anchor=old.anchor if self.anchor is None else self.anchor)
        return Recurrence(at=at)


def _fields(text: str) -> str:
    text = " ".join(text.split())
    return MACROS.get(text.lower(), text)


def _check_timezone(name: str) -> None:
    known = available_timezones() | set(_UTC_NAMES)
    if name not in known:
        near = difflib.get_close_matches(name, sorted(known), 3, 0.6)
        remedy = f"did you mean {' or '.join(near)}?" if near else "write a name such as Europe/Berlin, or UTC"
        raise InvalidInput(f"there is no time zone “{name}”; {remedy}")


def _check_cron(text: str, zone: tzinfo) -> None:
    if len(text) > limits.SCHEDULE_CRON_CHARS_MAX:
        raise InvalidInput(f"cron has {len(text):,} characters; {limits.SCHEDULE_CRON_CHARS_MAX} are allowed")
    if len(text.split()) != _FIELDS:
        if text.startswith("@"):
            raise InvalidInput(f"cron “{text}”: one of {', '.join(MACROS)}, or five fields")
        fields = "five fields, minute hour day month weekday, such as 30 2 * * 1-5; there are no seconds"
        raise InvalidInput(f"cron “{text}”: {fields}")
    if next(_cron_times(text, zone, _SOME_DAY), None) is None:
        raise InvalidInput(f"cron “{text}”: that day never comes")


def _cron_times(text: str, zone: tzinfo, moment: datetime) -> Iterator[datetime]:
    last = moment
    try:
        for found in CronSim(text, moment.astimezone(zone)):
            # Begun in the second of two equal hours, the library gives a time of the first one, which has passed.
            instant = found.astimezone(UTC)
            if instant > last:
                last = instant
                yield instant
    except CronSimError as error:
        raise InvalidInput(f"cron “{text}”: {error}") from error
