"""Executors that start nothing: `noop` and `sleep`, for tasks that only stand for an order, and for rehearsals."""

import math
import sys
from collections.abc import Mapping
from typing import Any, Final

from taskgraph.model.clock import Clock
from taskgraph.model.errors import InvalidInput, InvalidSettings
from taskgraph.worker.executors.contract import Outcome, Work, WriteLog, malformed, payload_of

_DONE: Final = Outcome(failed=False)


class NoopExecutor:
    name = "noop"
    instant = True
    queue = None

    def can_run(self, definition: Mapping[str, Any]) -> str | None:
        return None

    async def run(self, work: Work, write_log: WriteLog) -> Outcome:
        return _DONE


class SleepExecutor:
    """Sleeps for `payload.seconds` times the time scale, then completes.

    time_scale: 1 for real time, 0.001 to rehearse an hour in 3.6 seconds. Raises InvalidSettings unless finite and ≥ 0.
    """

    name = "sleep"
    instant = False
    queue = None

    def __init__(self, clock: Clock, *, time_scale: float = 1.0) -> None:
        if not (math.isfinite(time_scale) and time_scale >= 0):
            raise InvalidSettings(f"the time scale must be a number of at least 0, not {time_scale}")
        self._clock = clock
        self._time_scale = time_scale

    def can_run(self, definition: Mapping[str, Any]) -> str | None:
        return None

    async def run(self, work: Work, write_log: WriteLog) -> Outcome:
        try:
            seconds = _seconds_of(work.definition)
        except InvalidInput as error:
            return malformed(str(error))
        await self._clock.sleep(seconds * self._time_scale)
        return Outcome(failed=False)


def _seconds_of(definition: Mapping[str, Any]) -> float:
    seconds = payload_of(definition).get("seconds")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise InvalidInput("payload.seconds must be a number")
    if not 0 <= seconds <= sys.float_info.max:
        raise InvalidInput("payload.seconds must be a finite number of at least 0")
    return float(seconds)
