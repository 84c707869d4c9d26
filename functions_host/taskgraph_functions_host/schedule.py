"""When a timer's function is due: NCRONTAB, as the Functions host reads it.

What this room is for: six fields, seconds first, or five; and both the day of the month and the day of the week must
fit, where cron is content with either. It refuses what cron and this library know and the host does not (`@daily`, `L`,
`#`, Sunday as 7), so that what runs here runs there. It never reads a clock. Times are UTC, as in Azure.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from cronsim import CronSim, CronSimError

from taskgraph.model.errors import InvalidSettings

_NAMES: Final = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|sun|mon|tue|wed|thu|fri|sat"
_FIELD: Final = re.compile(rf"(?i)(?:\*|(?:\d+|{_NAMES})(?:-(?:\d+|{_NAMES}))?)(?:/\d+)?")
_SUNDAY_AS_SEVEN: Final = re.compile(r"(?<!/)7")
_INTERVAL: Final = re.compile(r"(?:(?P<days>\d{1,8})\.)?(?P<hours>\d{1,2}):(?P<minutes>\d{2}):(?P<seconds>\d{2})")


class Schedule:
    """A schedule, given the text of a timer trigger. Raises InvalidSettings for what the host would not take."""

    def __init__(self, text: str) -> None:
        self.text = " ".join(text.split())
        self._interval = _interval(self.text)
        if self._interval is None:
            _check(self.text)
            self.after(datetime(2024, 1, 1, tzinfo=UTC))

    def after(self, moment: datetime) -> datetime:
        """The first time that is later than this one."""
        if self._interval is not None:
            return moment + self._interval
        try:
            cron = CronSim(self.text, moment)
            cron.day_and = True
            return next(cron)
        except (CronSimError, StopIteration) as error:
            raise InvalidSettings(f"the schedule {self.text!r}: {error or 'there is no such day'}") from error

    def often(self) -> bool:
        """Whether it comes more than once a minute: then the host does not keep when it was last."""
        first = self.after(datetime(2024, 1, 1, tzinfo=UTC))
        return self.after(first) - first < timedelta(minutes=1)


def _check(text: str) -> None:
    fields = text.split(" ")
    if len(fields) not in (5, 6):
        raise InvalidSettings(f"the schedule {text!r}: five or six fields, such as */30 * * * * * (seconds first)")
    for field in fields:
        if not all(_FIELD.fullmatch(part) for part in field.split(",")):
            raise InvalidSettings(f"the schedule {text!r}: {field!r} is nothing that NCRONTAB knows")
    if _SUNDAY_AS_SEVEN.search(fields[-1]):
        raise InvalidSettings(f"the schedule {text!r}: Sunday is 0, and there is no day 7")


def _interval(text: str) -> timedelta | None:
    """The other kind of schedule: `hh:mm:ss` from one run to the next."""
    found = _INTERVAL.fullmatch(text)
    if found is None:
        return None
    length = timedelta(**{name: int(value) for name, value in found.groupdict("0").items()})
    if length < timedelta(seconds=1):
        raise InvalidSettings(f"the schedule {text!r} is shorter than a second")
    return length
