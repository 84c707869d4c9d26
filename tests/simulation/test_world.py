"""Seeded histories of the whole protocol, with crashes, lost answers, lost and doubled messages at every storage call.

One seed is one history: `pytest tests/simulation --seed 4711` plays it again, storage call by storage call.
"""

import random

import pytest

from tests.simulation.campaign import Report, campaign, text
from tests.simulation.histories import random_document, wide_document, world_of
from tests.simulation.world import Faults, World

SEEDS = range(1_000, 1_200)  # about 8 seconds
MANY_SEEDS = range(10_000, 15_000)
RARE = {"R06", "R29", "R39", "R41"}  # met by every long run, and not by every short one


def play(world: World, hint: str = "") -> str:
    """Play a history to its end, and hold the end against what graph and outcomes alone say."""
    try:
        end = world.run()
        assert end == world.oracle(), f"ended {end}, and should have {world.oracle()}"
    except AssertionError as error:
        raise AssertionError(f"seed {world.seed}: {error}{hint}") from error
    return end


def unbroken(report: Report, first: int) -> None:
    print(text(report, first))
    assert [f"{what} (replay it: pytest tests/simulation --seed {seed})" for seed, what in report.violations] == []


def test_histories_with_faults(seeds: range | None) -> None:
    chosen = seeds or SEEDS
    report = campaign(chosen.start, histories=len(chosen))
    unbroken(report, chosen.start)
    if seeds is None:  # a run that did not meet what it is for proves nothing
        assert report.ends["finished"] > 0
        assert report.ends["blocked"] > 0
        assert report.extended > 0
        assert report.calls > 50_000
        assert report.faults["crash"] > 500
        assert set(report.missed()) <= RARE, "races that were never reached"


@pytest.mark.slow
def test_many_histories_with_faults() -> None:
    report = campaign(MANY_SEEDS.start, histories=len(MANY_SEEDS), processes=2)
    unbroken(report, MANY_SEEDS.start)
    assert report.calls > 2_000_000
    assert report.missed() == []


FAULTS = ("crash", "unclear", "false_conflict", "unavailable", "lose", "double")


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_by_itself(fault: str) -> None:
    """Often, and nothing else: what one fault does is not hidden by the others."""
    for seed in range(5):
        rng = random.Random(seed)
        document = random_document(rng, 6, reruns_max=1)
        added = random_document(rng, 3, prefix="x", base=tuple(document.tasks))
        play(World(seed, document, {"t1": 1}, [added], Faults(**{fault: 0.15}), reruns=True))


def test_without_faults_every_task_runs_once() -> None:
    for seed in range(5):
        document = random_document(random.Random(seed), 10)
        world = World(seed, document)
        assert play(world) == "finished"
        label_of = {
            row.columns["label"] for key, row in world.tables.partitions["g"].items() if key.startswith("task:")
        }
        assert label_of == set(document.tasks)


@pytest.mark.parametrize("width", [91, 130])
def test_wide_graphs_with_crashes(width: int) -> None:
    assert play(World(width, wide_document(width), faults=Faults(crash=0.02, lose=0.05, double=0.05))) == "finished"


def test_the_same_seed_is_the_same_history() -> None:
    """Else a seed would replay nothing."""
    first, second = world_of(1_003, small=True), world_of(1_003, small=True)
    assert play(first) == play(second)
    assert (first.calls, first.crashes, first.history) == (second.calls, second.crashes, second.history)
    assert first.tables.partitions == second.tables.partitions
