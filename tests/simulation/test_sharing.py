"""Several queues of events, and handlers among which they move: nothing is lost, and with faults nothing goes wrong."""

import logging
from collections import Counter
from collections.abc import Iterable

import pytest

from tests.simulation.sharing import SharedOut

SEEDS = range(25)  # about 20 seconds
MANY_SEEDS = range(1_000, 2_000)


@pytest.fixture(autouse=True)
def quiet() -> Iterable[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def play_all(seeds: Iterable[int], *, rough: bool) -> Counter[str]:
    met: Counter[str] = Counter()
    for seed in seeds:
        history = SharedOut(seed, rough=rough)
        try:
            end = history.run()
            assert end == history.oracle()
        except AssertionError as error:
            again = f"pytest tests/simulation/test_sharing.py --seed {seed}"
            raise AssertionError(f"{error} (replay it: {again})") from error
        met[end] += 1
        met["crashes"] += history.world.crashes
        met.update(history.met)
    print(dict(met))
    return met


def test_no_message_is_lost_while_queues_move_and_their_number_changes(seeds: range | None) -> None:
    met = play_all(seeds or SEEDS, rough=False)
    assert seeds or met["handed over"] > 20


def test_with_faults_every_graph_comes_to_its_end_all_the_same(seeds: range | None) -> None:
    met = play_all(seeds or SEEDS, rough=True)
    assert seeds or (met["handed over"] and met["crashes"] and met["R31"])


@pytest.mark.slow
@pytest.mark.parametrize("rough", [False, True])
def test_many_histories(rough: bool) -> None:
    play_all(MANY_SEEDS, rough=rough)
