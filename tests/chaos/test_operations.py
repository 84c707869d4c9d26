"""Every operation at random, for half a minute on the embedded store: another seed every day, which is printed.

TASKGRAPH_TEST_DAY=2026-11-23 plays another day's. The long one, on both stores: scripts/soak --operations.
"""

from pathlib import Path

import pytest

from tests.chaos.operations import Options, play, seed_of_the_day

SMALL = Options(graphs=10, at_once=10, handlers=2, workers=2, kill_every=1.5, lease_seconds=4.0, patience_seconds=120.0)


@pytest.mark.campaign
async def test_a_few_graphs_under_every_operation_end_and_are_sound(tmp_path: Path) -> None:
    seed = seed_of_the_day()
    outcome = await play(SMALL, f"sqlite:///{tmp_path}/store.db", tmp_path / "operations", seed, SMALL.graphs)
    print(outcome.to_text())
    assert outcome.wrong == [], outcome.to_text()
    assert outcome.graphs == SMALL.graphs
    assert outcome.executions > 0
    assert outcome.kills.total() > 0
