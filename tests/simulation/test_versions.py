"""Programs of several versions over one store: nothing is lost, and where all are known, nothing is left alone."""

import pytest

from tests.simulation.sharing import play_all
from tests.simulation.versions import MixedVersions

pytestmark = pytest.mark.usefixtures("quiet")

SEEDS = range(40)
MANY_SEEDS = range(1_000, 2_000)


def test_nothing_is_sent_to_a_program_that_does_not_read_it(seeds: range | None) -> None:
    met = play_all(MixedVersions, seeds or SEEDS, rough=False, test="test_versions.py")
    assert seeds or (met["run-tasks 2"] > 20 and met["task-completed 2"] > 5 and met["run-tasks 1"] > 100)


def test_programs_that_nothing_is_known_of_lose_nothing_either(seeds: range | None) -> None:
    met = play_all(MixedVersions, seeds or SEEDS, rough=True, test="test_versions.py")
    assert seeds or (met["left alone"] and met["crashes"] and met["task-completed 2"])


@pytest.mark.slow
@pytest.mark.parametrize("rough", [False, True])
def test_many_histories(rough: bool) -> None:
    play_all(MixedVersions, MANY_SEEDS, rough=rough, test="test_versions.py")
