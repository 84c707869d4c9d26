"""Histories of groups that say what becomes of a failure: faults, extensions, reruns, held against the documents."""

from collections import Counter

import pytest

from tests.simulation.policed import policed, policed_and_rerun
from tests.simulation.test_world import FIRST, play


def played(seeds: range) -> Counter[str]:
    met: Counter[str] = Counter()
    for seed in seeds:
        for world in (policed(seed), policed_and_rerun(seed)):
            met[play(world)] += 1
            graph = world.rows["task-graph"].columns
            met["both"] += bool(world.apart) and world.history.count("blocked") > 0 and bool(graph.get("failedApart"))
            met["unblocked"] += bool(world.apart) and "blocked" in world.history and world.history[-1] == "finished"
            met["passed on"] += world.history[-1] == "finished" and bool(graph.get("failedApart"))
            met["extended"] += any(world.extended)
            met["taken back"] += world.invariants.recalls >= 0
    return met


def test_histories_of_groups_with_a_failure_policy() -> None:
    met = played(range(40, 52))
    wanted = ("finished", "blocked", "both", "unblocked", "passed on", "extended", "taken back")
    assert min(met[what] for what in wanted) > 0


@pytest.mark.campaign
def test_many_histories_of_groups_with_a_failure_policy() -> None:
    met = played(range(FIRST, FIRST + 3_000))
    assert met["finished"] > 2_000
