"""Make a history that fails short: fewer tasks, extensions, outcomes and limits, then fewer draws of chance.

A history is a world and its tape (`world`). First the world is made simpler, as long as some history of few seeds still
fails in the same way. Then the draws of that history are made dull one after the other, large parts first, and what is
dull at the end is cut off: what remains are the faults and turns without which nothing fails. The same seed is always
shrunk to the same history.
"""

import dataclasses
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.simulation.campaign import judged
from tests.simulation.grouped import without
from tests.simulation.world import DULL, Faults, World

PLAYS_MAX: Final = 6_000
"""Histories that are played to shrink one."""

SEEDS_TRIED: Final = 40
"""Seeds with which a simpler world is tried."""


def steps_max(world: World) -> int:
    """Many times what such a history takes, so that one without end is seen soon."""
    return 2_000 + 500 * len(world.tasks)


@dataclass(frozen=True)
class Shrunk:
    """The shortest history found that fails: a world that has not been played, what breaks, and how it was found."""

    world: World
    broken: str
    calls: int
    draws: int  # that are not dull
    plays: int

    def replayed(self) -> World:
        """The history once more, with its trace."""
        world = fresh(self.world, trace=[])
        judged(world, steps_max=steps_max(world))
        return world


def fresh(world: World, **changes: Any) -> World:
    """The same history, not played yet."""
    return dataclasses.replace(world, **changes)


def kind_of(broken: str) -> str:
    """What broke, without the names and numbers in it."""
    if "no end after" in broken:
        return "no end"
    return re.sub(r"\b[a-z]+\d+(_\d+)?\b|\d+|'[^']*'|\{.*|\[.*", "", broken.partition("seed ")[2] or broken)[:60]


class _Search:
    def __init__(self, world: World, broken: str) -> None:
        self.kind = kind_of(broken)
        self.plays = 0
        self.best = world
        self.broken = broken
        self.calls = 0

    def fails(self, world: World) -> bool:
        """Whether a history fails in the same way; the shortest is kept."""
        if self.plays >= PLAYS_MAX:
            return False
        self.plays += 1
        played = fresh(world)
        _, broken = judged(played, steps_max=steps_max(played))
        if not broken or kind_of(broken) != self.kind:
            return False
        self.best, self.broken, self.calls = world, broken, played.calls
        return True


def shrink(world: World) -> Shrunk:
    """Shrink a history that fails. Raises ValueError if it does not."""
    first = fresh(world)
    _, broken = judged(first, steps_max=steps_max(world))
    if not broken:
        raise ValueError("this history does not fail")
    search = _Search(world, broken)
    search.calls = calls = first.calls
    _simpler_world(search)
    if search.calls > calls:  # a simpler world, and a longer history: what was asked for is a short one
        search.best, search.broken, search.calls = world, broken, calls
    tape = _duller(search, draws(search.best))
    return Shrunk(search.best, search.broken, search.calls, sum(draw != DULL for draw in tape), search.plays)


def draws(world: World) -> list[float]:
    """All draws of a history."""
    played = fresh(world)
    made: list[float] = []
    draw = played.random

    def recorded() -> float:
        made.append(draw())
        return made[-1]

    played.random = recorded
    judged(played, steps_max=steps_max(played))
    return made


def _simpler_world(search: _Search) -> None:
    """Go on to a simpler world as long as one of them has a history that fails."""
    while any(_some_seed_fails(search, simpler) for simpler in _simpler(search.best)):
        pass


def _some_seed_fails(search: _Search, world: World) -> bool:
    if search.plays >= PLAYS_MAX // 2:  # the rest is for the draws
        return False
    seed = search.best.seed
    return any(search.fails(fresh(world, seed=each)) for each in (seed, *range(SEEDS_TRIED)))


def _simpler(world: World) -> Iterator[World]:
    """Worlds with one thing less."""
    if world.edits:
        yield fresh(world, edits=0)
    if world.pauses:
        yield fresh(world, pauses=0)
    if world.changes:
        yield fresh(world, changes=0)
    if world.document.max_in_flight:
        yield fresh(world, document=dataclasses.replace(world.document, max_in_flight=0), changes=0)
    if world.cancel:
        yield fresh(world, cancel="")
    for number in range(len(world.extensions)):
        rest = [each for index, each in enumerate(world.extensions) if index != number]
        gone = world.extensions[number].tasks.keys()
        if not any(required in gone for each in rest for node in each.tasks.values() for required in node.requires):
            yield fresh(world, extensions=rest, fails={k: v for k, v in world.fails.items() if k not in gone})
    documents = [world.document, *world.extensions]
    for number, label in [(n, each) for n, document in enumerate(documents) for each in document.tasks]:
        if len(documents[number].tasks) > 1:
            one = frozenset({label})
            document, *extensions = [without(each, one) for each in documents]
            left = (document, *extensions)
            lost = {
                name for each in documents for name in each.groups if all(name not in other.groups for other in left)
            }
            document, *extensions = [without(each, one | lost) for each in documents]
            fails = {each: times for each, times in world.fails.items() if each != label}
            yield fresh(world, document=document, extensions=extensions, fails=fails)
    if world.fails:
        yield fresh(world, fails={})
    if world.far is not None:
        yield fresh(world, far=None)
    if world.temporary:
        yield fresh(world, temporary={})
    if world.reruns and not (world.extensions and world.fails):
        yield fresh(world, reruns=False)
    if not world.begun:
        yield fresh(world, begun=True)
    if world.bounds:
        yield fresh(world, bounds={})
    for kind in dataclasses.fields(Faults):
        if getattr(world.faults, kind.name):
            yield fresh(world, faults=dataclasses.replace(world.faults, **{kind.name: 0.0}))


def _duller(search: _Search, tape: Sequence[float]) -> list[float]:
    """Make draws dull, halves first and single ones last, until none can be any more; then cut off the dull end."""
    best = list(tape)

    def takes(candidate: list[float]) -> bool:
        nonlocal best
        calls = search.calls
        before = search.best
        if not search.fails(fresh(before, tape=candidate)):
            return False
        if search.calls > calls:  # duller, and longer: not what was looked for
            search.best, search.calls = before, calls
            return False
        best = candidate
        return True

    progress = True
    while progress and search.plays < PLAYS_MAX:
        progress = False
        size = max(1, len(best) // 2)
        while size:
            for start in range(0, len(best), size):
                part = best[start : start + size]
                if any(draw != DULL for draw in part):
                    dull = [DULL] * len(part)
                    progress |= takes([*best[:start], *dull, *best[start + size :]])
            start = 0
            while start < len(best) and size > 1:  # what happened in between may not have been needed at all
                if takes([*best[:start], *best[start + size :]]):
                    progress = True
                else:
                    start += size
            size //= 2
    kept = list(itertools.dropwhile(lambda draw: draw == DULL, reversed(best)))[::-1]
    takes(kept)
    return best
