"""Every storage call × every kind of fault: lives of graphs, played once for each place where something can go wrong.

A life is a script without chance: the production submission, handlers with their consumer, claims, results and sweep,
one after the other, over the in-memory store. Its storage calls are numbered. Played again with a fault at call k, the
life goes on as the world does: whoever died is started again, messages come back when their lease has ended, callers
ask again, the sweep comes by. At its end everything must be as if nothing had happened.

Single faults are played one by one, from the beginning to the end; all pairs are explored (`pairs`), and some of them
are drawn here and played in full.
"""

import functools
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from tests.simulation.bounds import bounded
from tests.simulation.forking import FORK, forking
from tests.simulation.invariants import Violation, hold
from tests.simulation.lives import LIVES, Life
from tests.simulation.pairs import Pairs, Pruned, explore_pairs, hold_sampled
from tests.simulation.playing import End, Play
from tests.simulation.tally import Tally, kinds_at, table

T = TypeVar("T")

EXIT_BROKEN: Final = 1
EXIT_USAGE: Final = 2
EXIT_CUT_SHORT: Final = 130

SMALL: Final = [index for index, life in enumerate(LIVES) if life.tasks <= 6]
"""Lives of which all pairs are played."""


def _play(life: Life, faults: Mapping[int, str], expected: End, calm: float, tally: Tally) -> Play:
    play = Play(life, faults)
    tally.cases += 1
    tally.runs += 1
    where = f"{life.name!r} with {faults}"
    try:
        end = play.run()
        hold(end == expected, f"ended as {end} instead of {expected}")
    except Violation as violation:
        tally.violations.append(f"{where} ({play.gate.calls[max(faults) - 1 :][:1]}): {violation}")
    except Exception as error:
        raise AssertionError(f"{where}: {error!r}") from error
    tally.slowest_seconds = max(tally.slowest_seconds, play.clock.seconds - calm)
    tally.played_calls += len(play.gate.calls)
    tally.kinds.update(faults.values())
    return play


def play_without_faults(life: Life) -> tuple[Play, End]:
    """How a life goes when nothing goes wrong. Call it inside `bounded(life.bounds)`."""
    calm = Play(life)
    try:
        end = calm.run()
        calm.hold_without_faults()
    except Violation as violation:
        raise AssertionError(f"{life.name!r} without faults: {violation}") from violation
    return calm, end


def play_singles(life: Life, *, turn: int | None = None) -> Tally:
    """One fault at every storage call of a life: of every kind.

    turn: one kind each, taken in turns, and of the calls that only read every fifth.
    """
    began = time.process_time()
    with bounded(life.bounds):
        calm, expected = play_without_faults(life)
        tally = Tally(life.name, life.tasks, len(calm.gate.calls))
        for number, call in enumerate(calm.gate.calls, 1):
            kinds = kinds_at(call)
            if turn is not None:
                if call in ("get", "query", "count") and (number + turn) % 5:
                    continue
                kinds = (kinds[(number // 2 + turn) % len(kinds)],)
            for kind in kinds:
                _play(life, {number: kind}, expected, calm.clock.seconds, tally)
    tally.seconds = time.process_time() - began
    return tally


def draw_pairs(life: Life, *, share: float, seed: int = 0) -> Tally:
    """A share of all pairs of faults, drawn by the seed, each played from the beginning to the end."""
    began = time.process_time()
    rng = random.Random(f"{seed} {life.name}")
    with bounded(life.bounds):
        calm, expected = play_without_faults(life)
        seconds = calm.clock.seconds
        tally, scout = Tally(life.name, life.tasks, len(calm.gate.calls)), Tally()
        for first, call in enumerate(calm.gate.calls, 1):
            for kind in kinds_at(call):
                if rng.random() >= share**0.5:
                    continue
                after = _play(life, {first: kind}, expected, seconds, scout).gate.calls
                for second, other in enumerate(after[first:], first + 1):
                    for other_kind in kinds_at(other):
                        if rng.random() < share**0.5:
                            _play(life, {first: kind, second: other_kind}, expected, seconds, tally)
    tally.violations += scout.violations
    tally.seconds = time.process_time() - began
    return tally


def _singles(task: tuple[int, int | None]) -> Tally:
    index, turn = task
    return play_singles(LIVES[index], turn=turn)


def _pairs(task: tuple[int, float, int | None, int]) -> Pairs:
    index, share, whole, seed = task
    return explore_pairs(LIVES[index], share=share, whole=whole, seed=seed)


def _sampled(task: tuple[int, Sequence[Pruned]]) -> int:
    index, pruned = task
    rng = random.Random(index)
    for each in pruned:
        hold_sampled(LIVES[index], each, rng)
    return len(pruned)


def _drawn(task: tuple[int, float, int]) -> Tally:
    index, share, seed = task
    return draw_pairs(LIVES[index], share=share, seed=seed)


def play_all_singles(
    processes: int = 1, *, turn: int | None = None, lives: Sequence[int] = range(len(LIVES))
) -> list[Tally]:
    """Singles of all lives, or of some."""
    work = [(index, None if turn is None else turn + index) for index in lives]
    return list(_spread(_singles, work, processes))


def play_all_pairs(processes: int = 1, *, share: float = 1.0, whole: int | None = None, seed: int = 0) -> list[Pairs]:
    """All pairs of all lives of up to six tasks, or those whose first fault is drawn (see `explore_pairs`)."""
    return list(_spread(_pairs, [(index, share, whole, seed) for index in SMALL], processes))


def hold_all_sampled(tallies: Sequence[Pairs], each: int, processes: int = 1) -> int:
    """Play in full some of the pairs that were not played, `each` and a half of a life; gives how many."""
    rng = random.Random(0)
    indexes = {life.name: index for index, life in enumerate(LIVES)}
    work = []
    for tally in tallies:
        further = [pruned for pruned in tally.sampled if pruned.seen is not None]
        drawn = rng.sample(tally.sampled, min(each, len(tally.sampled)))
        work.append((indexes[tally.name], [*drawn, *further[: each // 2]]))
    return sum(_spread(_sampled, work, processes))


def draw_all_pairs(processes: int = 1, *, share: float, seed: int = 0) -> list[Tally]:
    """Some pairs of all lives of up to six tasks, each played in full."""
    return list(_spread(_drawn, [(index, share, seed) for index in SMALL], processes))


def _spread(function: Callable[[Any], T], work: Sequence[Any], processes: int) -> Iterator[T]:
    """A process for each life, so that what one life has taken of memory is free again for the next."""
    if processes == 1:
        yield from map(function, work)
        return
    with forking(), FORK.Pool(processes, maxtasksperchild=1) as pool:
        yield from pool.imap(functools.partial(_guarded, function), work, chunksize=1)


def _guarded(function: Callable[[Any], T], task: Any) -> T:
    """Violation is a BaseException: it would end a process of the pool, which then waits for its answer for ever."""
    try:
        return function(task)
    except Violation as violation:
        raise AssertionError(str(violation)) from None


# --- the report ------------------------------------------------------------------------------------------------


def chosen(lives: str | None) -> list[int]:
    """Indexes of the lives in "A-B" or "A", counted from 1; of all of them without. Raises ValueError."""
    if not lives:
        return list(range(len(LIVES)))
    first, dash, last = lives.partition("-")
    if all(text.isdecimal() for text in (first, last) if text) and (first or dash):
        found = list(range(int(first or 1) - 1, int(last or len(LIVES)) if dash else int(first)))
        if found and found[0] >= 0 and found[-1] < len(LIVES):
            return found
    raise ValueError(f"--lives {lives}: there are lives 1 to {len(LIVES)}; name one, or some as A-B")


def report(processes: int, *, pairs: float | None = None, seed: int = 0, lives: str | None = None) -> int:
    """Print the tables, with progress on stderr; gives the exit code: 1 on a violation, 2 for lives that there are not,
    130 when interrupted.

    pairs: this share of them too. lives: which, as in `chosen`.
    """
    try:
        indexes = chosen(lives)
    except ValueError as error:
        print(error, file=sys.stderr)
        return EXIT_USAGE
    small = [index for index in indexes if index in SMALL]
    tallies: list[Tally] = []
    code = 0
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        _play_and_print("life, faults", _singles, [(index, None) for index in indexes], processes, tallies)
        if pairs and small:
            print()
            _play_and_print(
                "life, pairs of faults", _pairs, [(index, pairs, None, seed) for index in small], processes, tallies
            )
    except KeyboardInterrupt:
        code = EXIT_CUT_SHORT
    finally:
        signal.signal(signal.SIGTERM, before)
    for tally in tallies:
        for violation in tally.violations:
            print(f"VIOLATION {violation}")
    return EXIT_BROKEN if any(tally.violations for tally in tallies) else code


def _play_and_print(
    title: str, function: Callable[[Any], Tally], work: Sequence[tuple[Any, ...]], processes: int, tallies: list[Tally]
) -> None:
    began = time.monotonic()
    played: list[Tally] = []
    try:
        for tally in _spread(function, work, processes):
            played.append(tally)
            print(
                f"{title}: {len(played)} of {len(work)} after {time.monotonic() - began:.0f} s: {tally.name}: "
                f"{tally.cases:,}, {len(tally.violations)} violations",
                file=sys.stderr,
                flush=True,
            )
    except KeyboardInterrupt:
        there, end = work[len(played)][0] + 1, work[-1][0] + 1
        print(f"interrupted at life {there}, {title}; go on with --lives {there}-{end}", file=sys.stderr)
        raise
    finally:
        tallies += played
        print(table(played, title), flush=True)
