"""Programs of several versions over one store: nothing is lost, and where all are known, nothing is left alone."""

import logging
from collections import Counter
from collections.abc import Iterable

import pytest

from tests.simulation.versions import MixedVersions

SEEDS = range(40)
MANY_SEEDS = range(1_000, 2_000)


@pytest.fixture(autouse=True)
def quiet() -> Iterable[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def play_all(seeds: Iterable[int], *, rough: bool) -> Counter[str]:
    met: Counter[str] = Counter()
    for seed in seeds:
        history = MixedVersions(seed, rough=rough)
        try:
            end = history.run()
            assert end == history.oracle()
        except AssertionError as error:
            again = f"pytest tests/simulation/test_versions.py --seed {seed}"
            raise AssertionError(f"{error} (replay it: {again})") from error
        met[end] += 1
        met["crashes"] += history.world.crashes
        met.update(history.met)
    print(dict(met))
    return met


def test_nothing_is_sent_to_a_program_that_does_not_read_it(seeds: range | None) -> None:
    met = play_all(seeds or SEEDS, rough=False)
    assert seeds or (met["run-tasks 2"] > 20 and met["task-completed 2"] > 5 and met["run-tasks 1"] > 100)


def test_programs_that_nothing_is_known_of_lose_nothing_either(seeds: range | None) -> None:
    met = play_all(seeds or SEEDS, rough=True)
    assert seeds or (met["left alone"] and met["crashes"] and met["task-completed 2"])


@pytest.mark.slow
@pytest.mark.parametrize("rough", [False, True])
def test_many_histories(rough: bool) -> None:
    play_all(MANY_SEEDS, rough=rough)
