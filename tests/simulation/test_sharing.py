"""Several queues of events, and handlers among which they move: nothing is lost, and with faults nothing goes wrong."""

import functools

import pytest

from tests.simulation.sharing import SharedOut, play_all

pytestmark = pytest.mark.usefixtures("quiet")

SEEDS = range(25)  # about 20 seconds
MANY_SEEDS = range(1_000, 2_000)


def test_no_message_is_lost_while_queues_move_and_their_number_changes(seeds: range | None) -> None:
    met = play_all(SharedOut, seeds or SEEDS, rough=False, test="test_sharing.py")
    assert seeds or met["handed over"] > 20


def test_no_message_is_lost_on_queues_that_came_and_were_left_between_two_looks(seeds: range | None) -> None:
    play_all(functools.partial(SharedOut, late=True), seeds or SEEDS, rough=False, test="test_sharing.py")


def test_with_faults_every_graph_comes_to_its_end_all_the_same(seeds: range | None) -> None:
    met = play_all(SharedOut, seeds or SEEDS, rough=True, test="test_sharing.py")
    assert seeds or (met["handed over"] and met["crashes"] and met["R31"])


@pytest.mark.slow
@pytest.mark.parametrize("rough", [False, True])
@pytest.mark.parametrize("late", [False, True])
def test_many_histories(late: bool, rough: bool) -> None:
    play_all(functools.partial(SharedOut, late=late), MANY_SEEDS, rough=rough, test="test_sharing.py")
