"""Clocks that are off by seconds to a year, both ways, and jump: whose they are in a history, and by how much.

Who works and who handles are processes of their own where there are several. A process may be ended while its clock is
off, and another one begins with a right clock, or one that is off otherwise. When the faults stop, all clocks are put
right, or stay as they are: either way the graph must come to its end.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

ROLES: Final = ("handler", "worker", "sweep", "submitter")

SHARE_FAR: Final = 0.25
"""Of all histories: in so many clocks are far off."""

_HOUR: Final = 3_600.0
SIZES: Final = ((25.0, 100.0), (100.0, _HOUR), (_HOUR, 24 * _HOUR), (_HOUR, 365 * 24 * _HOUR))
"""By so many seconds at most, in one history; the first two are by an hour at most."""

JUMPS: Final = (0.0, 0.01, 0.05)


@dataclass(frozen=True)
class Far:
    """roles: whose clocks are off. sizes: by so many seconds at most, either way. jumps: so often, at each step. stays:
    whether they are still off when the faults have stopped."""

    roles: tuple[str, ...]
    sizes: tuple[float, ...]
    jumps: float
    stays: bool

    def off(self, draw: Callable[[], float]) -> float:
        """By how much a clock is off now; the dullest draw is a right one."""
        size = (*self.sizes, 0.0)[int(draw() * (len(self.sizes) + 1))]
        return size * (1.0 if draw() < 0.5 else -1.0) * (0.2 + 0.8 * draw())
