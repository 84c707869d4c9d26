"""The time of the storage service, for processes whose own clock is off.

Every answer of the service has its time (`Date`). A process whose clock disagrees goes by that time, so that all
processes of a store write and read ends alike (P16).
"""

import logging
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final

from taskgraph.model import limits
from taskgraph.model.clock import Clock

log = logging.getLogger("taskgraph.storage")

_SLACK: Final = timedelta(seconds=limits.CLOCK_SLACK_SECONDS)
_AGAIN_SECONDS: Final = 1.0  # an answer says its time to the second: more of them say no more
_SLOW_SECONDS: Final = limits.CLOCK_SLACK_SECONDS / 2  # an answer that took so long may have been written long ago
_HALF: Final = timedelta(seconds=0.5)  # what the header cuts off, on average


class ServiceClock:
    """The machine's clock, or the service's time where the two disagree by more than clocks may."""

    def __init__(self, machine: Clock) -> None:
        self._machine = machine
        self._service: datetime | None = None
        self._learned_at = 0.0  # monotonic seconds
        self._said = False
        self.monotonic = machine.monotonic
        self.sleep = machine.sleep
        self.new_id = machine.new_id
        self.new_ids = machine.new_ids
        self.jitter = machine.jitter

    def now(self) -> datetime:
        """Between two answers the service's time goes on by the steady clock, however the other jumps."""
        machine = self._machine.now()
        if self._service is None:
            return machine
        service = self._service + timedelta(seconds=self._machine.monotonic() - self._learned_at)
        return machine if abs(machine - service) <= _SLACK else service

    def learn(self, date: str, began: float) -> bool:
        """Take in the `Date` of an answer; gives whether that moved the time by more than clocks may differ.

        began: when its request was sent, in monotonic seconds.
        """
        at = self._machine.monotonic()
        if at - began > _SLOW_SECONDS or (self._service is not None and at - self._learned_at < _AGAIN_SECONDS):
            return False
        try:
            service = parsedate_to_datetime(date)
        except ValueError:
            return False  # a proxy may leave it out, or write anything
        before = self.now()
        self._service = (service if service.tzinfo is not None else service.replace(tzinfo=UTC)) + _HALF
        self._learned_at = at
        off = self._machine.now() - self._service
        if abs(off) > _SLACK and not self._said:
            self._said = True
            log.warning(
                "the clock of this machine is %d seconds %s the time of the storage service, which counts from here on",
                abs(off).total_seconds(),
                "ahead of" if off > timedelta() else "behind",
            )
        return abs(self.now() - before) > _SLACK
