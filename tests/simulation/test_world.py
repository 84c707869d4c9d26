"""Seeded histories of the whole protocol, with crashes, lost answers, lost and doubled messages at every storage call.

One seed is one history: `pytest tests/simulation --seed 4711` plays it again, storage call by storage call.
"""

import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from taskgraph.model import limits
from tests.simulation.__main__ import fingerprint
from tests.simulation.campaign import EVERYDAY_TINY, Report, again, campaign, first_of_the_day, text
from tests.simulation.drawn import NAMES, TOGETHER, drawn
from tests.simulation.histories import PROFILES, random_document, wide_document, world_of
from tests.simulation.overlapping import Overlapping
from tests.simulation.shrink import draws, fresh
from tests.simulation.world import STEPS_MAX, Faults, World

FIRST = first_of_the_day()
SEEDS = range(700, 900)  # always the same: what they must meet is known
MANY_SEEDS = range(FIRST + 10_000, FIRST + 16_500)
TINY_SEEDS = range(FIRST, FIRST + EVERYDAY_TINY)
RARE = {"R06", "R15", "R29", "R39", "R41"}  # met by every long run, and not by every short one


def play(world: World, hint: str = "") -> str:
    """Play a history to its end, and hold the end against what graph and outcomes alone say."""
    try:
        end = world.run()
        assert end == world.oracle(), f"ended {end}, and should have {world.oracle()}"
    except AssertionError as error:
        raise AssertionError(f"seed {world.seed}: {error}{hint}") from error
    return end


def unbroken(report: Report) -> None:
    print(text(report))
    assert [f"{what} (replay it: {again(report.profile, seed)})" for seed, what in report.violations] == []
    assert report.broken == 0
    assert sum(report.ends.values()) == report.histories


def test_histories_with_faults(seeds: range | None) -> None:
    chosen = seeds or SEEDS
    report = campaign(chosen.start, histories=len(chosen))
    unbroken(report)
    if seeds is None:  # a run that did not meet what it is for proves nothing
        assert report.ends["finished"] > 0
        assert report.ends["blocked"] > 0
        assert report.extended > 0
        assert report.calls > 50_000
        assert report.faults["crash"] > 500
        assert set(report.missed()) <= RARE, "races that were never reached"


def test_tiny_histories_of_the_day(seeds: range | None) -> None:
    """Graphs of one to three tasks, others each day; `scripts/simulate --day` plays fifty times as many.

    In one process: others of this run of the tests have the other processors.
    """
    if seeds is not None:
        pytest.skip("one history was asked for")
    report = campaign(TINY_SEEDS.start, histories=len(TINY_SEEDS), profile="tiny")
    unbroken(report)
    assert report.histories == len(TINY_SEEDS)
    assert report.calls > 120_000
    assert min(report.faults[kind] for kind in (*FAULTS, "cancelled")) > 90
    assert set(report.missed()) <= RARE | {"R42", "R63"}, "races that were never reached"


SHARE_MIN = 0.04
SHARES_MIN = {"wide joins": 0.02, "deadlines": 0.02, **{" + ".join(each): 0.01 for each in TOGETHER}}


@pytest.mark.parametrize("profile", ["mixed"])
def test_nothing_is_drawn_too_seldom(profile: str) -> None:
    """What meets in too few histories is not tested by them."""
    count = 2_000
    counts = Counter(name for seed in range(count) for name in drawn(world_of(seed, profile=profile)))
    shares = {name: counts[name] / count for name in NAMES}
    assert {name: share for name, share in shares.items() if share < SHARES_MIN.get(name, SHARE_MIN)} == {}


def test_calls_that_overlap_go_by_no_older_row() -> None:
    for seed in range(FIRST, FIRST + 300):
        history = Overlapping(seed)
        assert history.run(STEPS_MAX) == history.oracle(), f"Overlapping({seed})"


@pytest.mark.slow
def test_many_histories_with_faults() -> None:
    report = campaign(MANY_SEEDS.start, histories=len(MANY_SEEDS), processes=2)
    unbroken(report)
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
    # Workers crash here whatever they run: no task is to be taken for the cause when three of them have.
    document = wide_document(width, {"workersLostMax": limits.WORKERS_LOST_BOUND})
    assert play(World(width, document, faults=Faults(crash=0.02, lose=0.05, double=0.05))) == "finished"


@pytest.mark.parametrize("profile", PROFILES)
def test_a_dull_tape_ends(profile: str) -> None:
    """What a history is shrunk towards has no fault in it, and comes to its end."""
    for seed in range(60):
        world = fresh(world_of(seed, profile=profile), tape=(), fails={})
        late = [node for node in world.tasks.values() if "deadline" in node.task]  # the time that it takes may be more
        assert play(world) in ("finished", *(("blocked",) if late else ()))
        assert sum(world.fault_counts.values()) == 0


# --- the same seed is the same history: else a seed would replay nothing


def printed(seed: int, profile: str) -> str:
    world = fresh(world_of(seed, profile=profile), trace=[])
    play(world)
    return fingerprint(world)


def test_the_same_seed_is_the_same_history() -> None:
    first, second = world_of(1_003, small=True), world_of(1_003, small=True)
    assert play(first) == play(second)
    assert (first.calls, first.crashes, first.history) == (second.calls, second.crashes, second.history)
    assert first.tables.partitions == second.tables.partitions
    fingerprints = {(profile, seed): printed(seed, profile) for profile in PROFILES for seed in range(20)}
    assert fingerprints == {(profile, seed): printed(seed, profile) for profile in PROFILES for seed in range(20)}
    assert len(set(fingerprints.values())) == len(fingerprints)


def test_the_same_seed_is_the_same_history_in_another_process() -> None:
    """Whatever order sets have there."""
    script = (
        "from tests.simulation.test_world import printed\n"
        "print(*(printed(seed, profile) for profile in ('tiny', 'small', 'mixed') for seed in range(100, 115)))"
    )
    answers = {
        subprocess.run(
            [sys.executable, "-c", script],
            cwd=Path(__file__).parents[2],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    (answer,) = answers
    assert answer.split() == [
        printed(seed, profile) for profile in ("tiny", "small", "mixed") for seed in range(100, 115)
    ]


def test_a_history_is_the_same_with_and_without_its_trace_and_on_its_own_tape() -> None:
    for seed in range(30):
        plain, traced = world_of(seed, profile="tiny"), fresh(world_of(seed, profile="tiny"), trace=[])
        assert play(plain) == play(traced)
        assert plain.tables.partitions == traced.tables.partitions
        assert traced.trace is not None
        assert len(traced.trace) >= traced.calls
        taped = fresh(world_of(seed, profile="tiny"), tape=draws(world_of(seed, profile="tiny")))
        play(taped)
        assert taped.tables.partitions == plain.tables.partitions


@pytest.mark.campaign
def test_several_processes_play_what_one_plays() -> None:
    one, two = (campaign(70_000, histories=620, processes=processes, profile="tiny") for processes in (1, 2))
    ours, theirs = one.as_object(), two.as_object()
    for report in (ours, theirs):
        del report["seconds"], report["historiesPerSecond"]
    assert ours == theirs


def test_a_run_that_is_told_to_stop_says_so() -> None:
    asked = iter([False, False, True])
    report = campaign(1, histories=10_000, profile="mixed", stopped=lambda: next(asked, True))
    assert report.cut_short
    assert 0 < report.histories < 10_000
    assert "CUT SHORT" in text(report)
    assert campaign(1, histories=5, profile="tiny").cut_short is False
