"""Priorities of tasks: five levels, in TaskCluster's words; nothing is written for the middle one."""

from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from taskgraph.model import limits
from taskgraph.model.errors import InvalidInput

LEVELS: Final = ("highest", "high", "normal", "low", "lowest")  # all levels, the highest first
NORMAL: Final = "normal"  # the level of a task that says nothing, and of which nothing is written
COLUMN: Final = "priority"  # of a task row, and of a graph row for tasks that come later; absent for `normal`
_RANKS: Final = {level: rank for rank, level in enumerate(LEVELS)}
NORMAL_RANK: Final = _RANKS[NORMAL]
_TURNS: Final = 4  # of so many turns, one begins a level further down


def is_level(found: object) -> bool:
    return type(found) is str and found in _RANKS


def rank(level: str) -> int:
    """0 for the highest, 4 for the lowest; a word that is none counts as `normal`."""
    return _RANKS.get(level, NORMAL_RANK)


def level_of(columns: Callable[[str], Any]) -> str:
    found = columns(COLUMN)
    return found if is_level(found) else NORMAL


def column(own: str, of_graph: str = "") -> str:
    """What the row of a task says: its own level, else its graph's; "" for `normal`."""
    level = own or of_graph
    return "" if level == NORMAL else level


def column_of_option(level: str) -> str:
    """What a row says for the level that an option names. Raises InvalidInput for what is none."""
    if not is_level(level):
        raise InvalidInput(f"--priority is one of {', '.join(LEVELS)}, and not {level}")
    return column(level)


def level_now(level: str, since: datetime | None, now: datetime, used: Collection[str] = LEVELS) -> str:
    """The level that a task ready since then counts as: one higher for each AGE_SECONDS, among those in use."""
    if since is None:
        return level
    own = rank(level)
    reached = max(0, own - max(0, int((now - since).total_seconds() // limits.AGE_SECONDS)))
    return next((each for each in LEVELS[reached:own] if each == NORMAL or each in used), level)


def has_risen(level: str, since: datetime | None, now: datetime, used: Collection[str], period_seconds: float) -> bool:
    """Whether a task has come to a higher level since a look that was so long ago, or somewhat longer."""
    before = now - timedelta(seconds=max(period_seconds, 1.0) * 1.5)
    return level_now(level, since, now, used) != level_now(level, since, before, used)


def in_turn(levels: Sequence[str], turn: int) -> list[str]:
    """Levels (the highest first) in the order of one turn.

    Every fourth turn begins one further down, every sixteenth two, and so on: so even the lowest has its share.
    """
    first = 0
    while first + 1 < len(levels) and turn > 0 and turn % _TURNS == 0:
        first += 1
        turn //= _TURNS
    return [*levels[first:], *levels[:first]]
