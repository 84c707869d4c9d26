"""All pairs of faults of a life, without playing the same end twice.

Between two steps the world is data (`playing`), and equal states have equal futures (`states`). So the life is explored
as a graph of states: from each state the next step is played without a fault, and once for every fault at every
storage call in it; from where that led, on without faults, until a state is met from which the end is known. A second
fault is tried at every call after a first one, but not again from a state that an earlier first fault had led to: every
second fault has been tried from there. Each pair is covered all the same, and counted; its end is known from the
state that stands for it. `sampled` says which pairs were covered in that way, for a test that plays them in full.

In this manner "died before a call" and "died after the call before it" are one, where they are one: when the process
did nothing in between that anybody can see. No such rule is assumed; equal states show it.
"""

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tests.simulation.bounds import bounded
from tests.simulation.invariants import Violation, hold
from tests.simulation.lives import Life
from tests.simulation.playing import ROUNDS_MAX, End, Play, Snapshot
from tests.simulation.states import State, States
from tests.simulation.tally import Tally, kinds_at

STEPS_MAX: Final = ROUNDS_MAX * 4
SAMPLES_MAX: Final = 150

STATES_MAX: Final = 200_000
"""States that are remembered, of some 3 kB each. When there are more, all are forgotten before the next first fault:
what comes of them is then played again."""

VIOLATIONS_MAX: Final = 200
"""After so many, no more of a life is played: each that has no end takes thousands of steps."""

THINNER: Final = 2.5
"""The share of a life that has twice the places is less by this power of two."""

Faults = Mapping[int, str]


@dataclass(frozen=True, slots=True)
class Future:
    """What comes after a state when nothing goes wrong any more.

    end: None if that is a violation (`broken` says which). seconds: of virtual time until then. calls: how many are
    left; places: how many faults could meet them.
    """

    end: End | None
    broken: str = ""
    seconds: float = 0.0
    calls: int = 0
    places: int = 0


@dataclass(frozen=True, slots=True)
class Seen:
    """How a state was first come to: after these faults, `calls` calls and so many seconds."""

    faults: Faults
    calls: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Pruned:
    """Faults that led to a state which was known. future: what was known of it; seen: who had been there, if all
    faults had been tried from there."""

    faults: Faults
    calls: int
    seconds: float
    future: Future
    seen: Seen | None


@dataclass
class Pairs(Tally):
    """What was covered of one life. cases: pairs. runs: faults that were played, each on to where its end was known.

    share: of the first faults that was to be drawn; singles: first faults that were. steps: that were played in all.
    states: that were met, again if they had been forgotten. sampled: of the pairs that were not played, and of the
    first faults after which none was.
    """

    share: float = 1.0
    singles: int = 0
    steps: int = 0
    states: int = 0
    sampled: list[Pruned] = field(default_factory=list)


class Explorer:
    """Explores one life. Call `explore` inside `bounded(life.bounds)`."""

    def __init__(self, life: Life, *, share: float = 1.0, whole: int | None = None, seed: int = 0) -> None:
        self.life = life
        self.tally = Pairs(life.name, life.tasks, share=share)
        self._whole = whole
        self._rng = random.Random(f"{seed} {life.name}")
        self._rng_of_samples = random.Random(f"{seed} {life.name}")
        self._play = Play(life)
        self._pruned = 0
        self._forget()

    def _forget(self) -> None:
        """Remember no state, as at the beginning. Never while a state is in hand: numbers are given anew."""
        self._states = States()
        self._futures: dict[State, Future] = {}
        self._tried: dict[State, tuple[Seen, float]] = {}  # and the slowest that came of it, in seconds from there

    # --- on without faults

    def _advance(self) -> bool:
        self.tally.steps += 1
        try:
            return self._play.advance()
        finally:
            self.tally.played_calls += len(self._play.gate.calls)

    def future(self) -> tuple[Future, bool]:
        """What comes of the present state; and whether it was known. Leaves the world where that was clear."""
        play, futures = self._play, self._futures
        path: list[tuple[State, float, list[str]]] = []
        met: set[State] = set()
        known = None
        while known is None:
            state = self._states.of(play)
            if state in futures:
                known = futures[state]
            elif state in met:
                known = Future(None, "it goes round in circles")
            elif len(path) > STEPS_MAX:
                known = Future(None, play.no_end())
            else:
                met.add(state)
                seconds = play.clock.seconds
                play.gate.calls = []
                try:
                    if self._advance():
                        path.append((state, seconds, play.gate.calls))
                        continue
                    known = futures[state] = Future(play.verdict())
                except Violation as violation:
                    known = futures[state] = Future(None, str(violation))
        after = play.clock.seconds
        for state, seconds, calls in reversed(path):
            known = Future(
                known.end,
                known.broken,
                known.seconds + after - seconds,
                known.calls + len(calls),
                known.places + sum(len(kinds_at(call)) for call in calls),
            )
            futures[state] = known
            after = seconds
        return known, not path

    # --- with faults

    def explore(self) -> Pairs:
        """Every pair of faults, or those whose first one is drawn. Raises AssertionError if it breaks without any."""
        began = time.process_time()
        play, tally = self._play, self.tally
        start = play.snapshot()
        calm, _ = self.future()
        if calm.end is None:
            raise AssertionError(f"{self.life.name!r} without faults: {calm.broken}")
        self._calm = calm
        tally.calls = calm.calls
        if self._whole is not None:
            tally.share = min(tally.share, (self._whole / calm.places) ** THINNER)
        play.restore(start)
        while len(tally.violations) < VIOLATIONS_MAX:
            step = play.snapshot()
            if not self._advance():
                break
            calls, after = play.gate.calls, play.snapshot()
            for number, call in enumerate(calls, step[-1][-1] + 1):
                for kind in kinds_at(call):
                    if tally.share == 1.0 or self._rng.random() < tally.share:
                        if len(self._futures) > STATES_MAX:
                            tally.states += len(self._futures)
                            self._forget()
                        self._first(step, number, kind)
            play.restore(after)
        tally.states += len(self._futures)
        tally.seconds = time.process_time() - began
        return tally

    def _meet(self, step: Snapshot, faults: Faults) -> tuple[Future, list[str], Snapshot | None, bool]:
        """Play a step with the last of these faults in it (the others may be in it too), and what comes of it.

        Gives the future, the calls of the step, the world after it, and whether that was known.
        """
        play, tally = self._play, self.tally
        play.restore(step, faults)
        tally.runs += 1
        try:
            self._advance()
        except Violation as violation:
            self._judge(faults, Future(None, str(violation)), play.clock.seconds)
            return Future(None, str(violation)), play.gate.calls, None, False
        except Exception as error:
            raise AssertionError(f"{self.life.name!r} with {faults}: {error!r}") from error
        play.gate.faults = {}
        calls, after = play.gate.calls, play.snapshot()
        future, known = self.future()
        self._judge(faults, future, after[-1][0])
        return future, calls, after, known

    def _judge(self, faults: Faults, future: Future, seconds: float) -> None:
        tally = self.tally
        where = f"{self.life.name!r} with {dict(faults)}"
        if future.end is None:
            tally.violations.append(f"{where}: {future.broken}")
        elif future.end != self._calm.end:
            tally.violations.append(f"{where}: ended as {future.end} instead of {self._calm.end}")
        tally.slowest_seconds = max(tally.slowest_seconds, seconds + future.seconds - self._calm.seconds)

    def _first(self, step: Snapshot, number: int, kind: str) -> None:
        """One fault, and every second one after it."""
        tally = self.tally
        faults = {number: kind}
        tally.singles += 1
        tally.kinds[kind] += 1
        future, calls, after, _ = self._meet(step, faults)
        if future.end is None or after is None:
            return  # one fault is enough
        base = step[-1][-1]
        for other, call in enumerate(calls[number - base :], number + 1):  # in the same step
            for kind in kinds_at(call):
                tally.cases += 1
                self._meet(step, {**faults, other: kind})
        tally.cases += future.places
        slowest = self._second(after, faults)
        tally.slowest_seconds = max(tally.slowest_seconds, after[-1][0] + slowest - self._calm.seconds)

    def _second(self, snapshot: Snapshot, faults: Faults) -> float:
        """A second fault at every call from here on; gives the slowest that comes of it, in seconds from here."""
        play = self._play
        play.restore(snapshot)
        path: list[tuple[State, Seen, float]] = []
        slowest = 0.0
        while True:
            state = self._states.of(play)
            seconds, calls_before = play.clock.seconds, play.gate.number
            tried = self._tried.get(state)
            if tried is not None:
                slowest = tried[1]
                self._sample(Pruned(faults, calls_before, seconds, self._futures[state], tried[0]))
                break
            step = play.snapshot()
            play.gate.calls = []
            if not self._advance():
                break
            calls, after = play.gate.calls, play.snapshot()
            worst = 0.0
            for number, call in enumerate(calls, calls_before + 1):
                for kind in kinds_at(call):
                    self.tally.kinds[kind] += 1
                    both = {**faults, number: kind}
                    end, _, there, known = self._meet(step, both)
                    if there is not None:
                        worst = max(worst, there[-1][0] + end.seconds - seconds)
                        if known:
                            self._sample(Pruned(both, there[-1][-1], there[-1][0], end, None))
            path.append((state, Seen(faults, calls_before, seconds), worst))
            play.restore(after)
        after_seconds = play.clock.seconds
        for state, seen, worst in reversed(path):
            slowest = max(worst, slowest + after_seconds - seen.seconds)
            after_seconds = seen.seconds
            self._tried[state] = seen, slowest
        return slowest

    def _sample(self, pruned: Pruned) -> None:
        """Keep a few, evenly from all (reservoir)."""
        sampled = self.tally.sampled
        self._pruned += 1
        if len(sampled) < SAMPLES_MAX:
            sampled.append(pruned)
        elif (place := self._rng_of_samples.randrange(self._pruned)) < SAMPLES_MAX:
            sampled[place] = pruned


def explore_pairs(life: Life, *, share: float = 1.0, whole: int | None = None, seed: int = 0) -> Pairs:
    """All pairs of faults of a life, or those whose first fault is drawn (a share of them, by the seed).

    whole: of lives with more places for a fault than these, a smaller share is drawn, the smaller the more there are.
    """
    with bounded(life.bounds):
        return Explorer(life, share=share, whole=whole, seed=seed).explore()


def hold_sampled(life: Life, pruned: Pruned, rng: random.Random) -> None:
    """Play in full what was not played: it must go on, call by call, as what stood for it. Raises Violation."""
    with bounded(life.bounds):
        play = Play(life, pruned.faults)
        end, future, where = play.run(), pruned.future, f"{life.name!r} with {dict(pruned.faults)}"
        hold(end == future.end, f"{where} ended as {end} instead of {future.end}")
        seconds, calls = play.clock.seconds - pruned.seconds, play.gate.calls[pruned.calls :]
        hold(seconds == future.seconds, f"{where} took {seconds} s more instead of {future.seconds}")
        hold(len(calls) == future.calls, f"{where} took {len(calls)} calls more instead of {future.calls}")
        if pruned.seen is None or not calls:
            return
        further = rng.randrange(len(calls))
        kind = rng.choice(kinds_at(calls[further]))
        found = []
        for faults, calls_before, seconds_before in (
            (pruned.faults, pruned.calls, pruned.seconds),
            (pruned.seen.faults, pruned.seen.calls, pruned.seen.seconds),
        ):
            play = Play(life, {**faults, calls_before + further + 1: kind})
            found.append((play.run(), play.clock.seconds - seconds_before, play.gate.calls[calls_before:]))
        hold(found[0] == found[1], f"{where}, {kind} {further} calls later: {found[0]} instead of {found[1]}")
