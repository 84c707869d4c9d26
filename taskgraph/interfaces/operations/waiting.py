"""The one loop behind every call that waits for what handlers do."""

import math
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from taskgraph.model.clock import Clock
from taskgraph.model.errors import StorageUnavailable
from taskgraph.storage.signals.news import Patience

_GROWTH: Final = 1.5

T = TypeVar("T")

Rest = Callable[[float, float], Awaitable[None]]
"""Waits, of itself for the first number of seconds, and never for more than the second."""


def ends(clock: Clock, seconds: float | None) -> float | None:
    """The moment of the monotonic clock in so many seconds; None for never."""
    return None if seconds is None else clock.monotonic() + seconds


async def poll(
    look: Callable[[], Awaitable[T]],
    clock: Clock,
    *,
    done: Callable[[T], object] = bool,
    until: float | None = None,
    pause: float = 0.05,
    pause_max: float = 2.0,
    rest: Rest | None = None,
) -> T:
    """Look ever less often; gives what `look` gave once it is `done`, or last when `until` comes first (see `ends`).

    rest: what waits between two looks, if it can do better than by a pause. Raises what `look` raises; after a first
    look only where the store stays away.
    """
    patience = Patience(clock)
    while True:
        try:
            found = await look()
        except StorageUnavailable as error:  # reach: away
            if until is not None and clock.monotonic() >= until:
                raise
            await patience.outlast(error)
            continue
        patience.answered()
        if done(found) or (until is not None and clock.monotonic() >= until):
            return found
        if rest is None:
            await clock.sleep(pause)
        else:
            await rest(pause, math.inf if until is None else until - clock.monotonic())
        pause = min(pause * _GROWTH, pause_max)
