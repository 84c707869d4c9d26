"""Graphs with a budget, in histories: totals only grow and never say too much; budgets hold, and are raised."""

from tests.simulation.charged import charged
from tests.simulation.mutants import STEPS_MAX


def test_a_graph_spends_its_budget_again_and_again_and_comes_to_its_end() -> None:
    raised = 0
    for seed in range(25):
        world = charged(seed)
        assert world.run(STEPS_MAX) == world.oracle(), seed
        raised += world.raised
        assert 0 < world.spent.tables <= world.store_asked["tables"]
    assert raised > 10
