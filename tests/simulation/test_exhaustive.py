"""Every storage call × every kind of fault, over sixty lives of graphs; `scripts/simulate --exhaustive` plays them all.

In every test run each call that changes something meets one kind of fault (the kinds take turns), of the calls that
only read every fifth, and some pairs of faults are drawn; the slow tests play every kind at every call, and many pairs.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Sequence

import pytest

from taskgraph import limits
from tests.simulation.exhaustive import (
    KINDS,
    LIVES,
    SMALL,
    Tally,
    play_all_pairs,
    play_all_singles,
    play_pairs,
    play_singles,
    table,
)

RECOVERY_SECONDS_MAX = limits.HANDLER_LEASE_SECONDS + limits.LEASE_SECONDS + 2 * limits.SWEEP_SECONDS
"""Virtual time by which one fault may delay a graph."""


@pytest.fixture(autouse=True)
def quiet() -> Iterable[None]:
    logging.disable(logging.CRITICAL)  # thousands of warnings about storage that fails, as it is told to
    yield
    logging.disable(logging.NOTSET)


def check(tallies: Sequence[Tally], title: str) -> Counter[str]:
    print(table(tallies, title))
    assert [violation for tally in tallies for violation in tally.violations] == []
    return sum((tally.kinds for tally in tallies), Counter())


def test_there_are_many_lives_with_names_of_their_own() -> None:
    assert len({life.name for life in LIVES}) == len(LIVES) >= 50
    assert len(SMALL) >= 50


def test_a_fault_at_every_storage_call() -> None:
    tallies = play_all_singles(turn=0)
    kinds = check(tallies, "life, one kind of fault at each call")
    assert sum(tally.runs for tally in tallies) > 2_500
    assert all(kinds[kind] > 30 for kind in KINDS)
    assert max(tally.slowest_seconds for tally in tallies) <= RECOVERY_SECONDS_MAX


@pytest.mark.parametrize("life", LIVES[:3], ids=lambda life: life.name)
def test_every_kind_of_fault_at_every_storage_call_of_small_lives(life) -> None:  # type: ignore[no-untyped-def]
    assert play_singles(life).violations == []


def test_some_pairs_of_faults() -> None:
    tallies = play_all_pairs(share=0.0001)
    check(tallies, "life, some pairs of faults")
    assert sum(tally.runs for tally in tallies) > 100


@pytest.mark.slow
def test_every_kind_of_fault_at_every_storage_call() -> None:
    tallies = play_all_singles(2)
    check(tallies, "life, every kind of fault at each call")
    assert max(tally.slowest_seconds for tally in tallies) <= RECOVERY_SECONDS_MAX


@pytest.mark.slow
def test_many_pairs_of_faults() -> None:
    check(play_all_pairs(2, share=0.05), "life, many pairs of faults")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["one task", "blocked", "chain of 2", "extended by a stranger"])
def test_all_pairs_of_faults_of_the_smallest_lives(name: str) -> None:
    tally = play_pairs(next(life for life in LIVES if life.name == name))
    check([tally], "life, all pairs of faults")
    assert tally.runs > 2_000
