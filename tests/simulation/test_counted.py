"""Histories of groups that need k of n, with faults, extensions and reruns, held against what the documents say."""

from collections import Counter

import pytest

from tests.simulation.counted import counted, counted_and_rerun
from tests.simulation.test_world import FIRST, play


def played(seeds: range) -> Counter[str]:
    met: Counter[str] = Counter()
    for seed in seeds:
        for world in (counted(seed), counted_and_rerun(seed)):
            met[play(world)] += 1
            met["extended"] += any(world.extended)
            met["taken back"] += world.invariants.recalls >= 0
            for row in world.rows.values():
                if "decides" in row.columns:
                    met[str(row.columns.get("announced", ""))] += 1
                met["unneeded"] += "unneeded" in str(row.columns.get("resolution", ""))
    return met


def test_histories_of_groups_that_need_some() -> None:
    met = played(range(14))
    assert min(met[what] for what in ("finished", "extended", "taken back", "succeeded", "failed", "unneeded")) > 0


@pytest.mark.campaign
def test_many_histories_of_groups_that_need_some() -> None:
    met = played(range(FIRST, FIRST + 3_000))
    assert met["finished"] > 3_000
