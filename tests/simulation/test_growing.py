"""Histories of groups that grow: what requires them waits for all that was put into them before they had ended."""

from collections import Counter

import pytest

from tests.simulation.growing import growing, growing_and_rerun
from tests.simulation.test_world import FIRST, play


def played(seeds: range) -> Counter[str]:
    met: Counter[str] = Counter()
    for seed in seeds:
        for world in (growing(seed), growing_and_rerun(seed)):
            met[play(world)] += 1
            met["grown"] += bool(world.accepted)
            met["refused"] += bool(world.refused)
            met["taken back"] += world.invariants.recalls >= 0
            met["pieces moved"] += sum(
                any(each.startswith("join:group-") for each in str(row.columns.get("requires", "")).split('"'))
                for key, row in world.rows.items()
                if key.startswith("join:group-") and not key.endswith(":done")
            )
    return met


def test_histories_of_groups_that_grow() -> None:
    met = played(range(20))
    assert min(met[what] for what in ("finished", "grown", "refused", "taken back", "pieces moved")) > 0


@pytest.mark.campaign
def test_many_histories_of_groups_that_grow() -> None:
    met = played(range(FIRST, FIRST + 3_000))
    assert met["finished"] > 3_000
