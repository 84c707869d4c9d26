"""The model against the production loops in virtual time, under limits: throughput, and where throttling begins.

Nothing of the protocol is pinned here: what a run has counted is what the model is given. Seeds are printed, and
`scripts/model --check` plays all of it with more of them.
"""

import logging
from collections.abc import Iterable

import pytest

from tests.bench.shapes import shape
from tests.capacity import checking
from tests.capacity.checking import CELLS, MORE_SEEDS, ONSETS, SEEDS, Cell, Checked, check, holds, holds_onset
from tests.capacity.model import Limits
from tests.capacity.playing import Playing
from tests.capacity.sharing import LEAST_RATIO, Shared, rate_of


@pytest.fixture(autouse=True)
def quiet() -> Iterable[None]:
    logging.disable(logging.CRITICAL)  # warnings about storage that refuses, as it is told to
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_a_run_takes_as_long_as_the_model_says(cell: Cell) -> None:
    runs: list[Checked] = []
    for seed in SEEDS:
        runs.append(check(cell, seed))
        print(f"seed {seed}: {runs[-1]}")
        if len(runs) == 1 and not holds(cell, runs):
            return  # the median of three, where chance was against it
    if holds(cell, runs):
        # Runs that are refused differ by half from seed to seed: the median of three is one of them,
        # of many it is none.
        runs += [check(cell, seed) for seed in MORE_SEEDS]
    assert holds(cell, runs) == ""


@pytest.mark.parametrize("cell", ONSETS, ids=lambda cell: f"{cell}, {cell.binds}")
def test_throttling_begins_where_the_model_says(cell: Cell) -> None:
    above: list[Checked] = []
    below: list[Checked] = []
    for seed in SEEDS:
        above.append(check(cell, seed, factor=checking.ABOVE))
        below.append(check(cell, seed, factor=checking.BELOW))
        print(f"seed {seed}: {above[-1]}, {below[-1]}")
        if len(above) == 1 and not holds_onset(cell, above, below):
            return
    assert holds_onset(cell, above, below) == ""


def short(name: str, layout: str, seed: int) -> Playing:
    """Two graphs where everything is short, from the submission on, with the leases of production."""
    limits = Limits(partition_entities=120, account_requests=120, queue_messages=40, burst_seconds=1.0)
    print(f"seed {seed}")
    return Playing(seed, shape(name).make(), limits=limits, place=layout, slots=4, graphs=2, submit_enforced=True)


@pytest.mark.parametrize("layout", ["local", "2h2w"])
@pytest.mark.parametrize("name", ["chain-20", "fan-150", "layers-6x20", "tree-127", "independent-100"])
def test_no_task_is_lost_or_run_twice_where_everything_is_short(name: str, layout: str) -> None:
    """What must hold in the end, `play` looks at itself."""
    playing = short(name, layout, 11)
    played = playing.play()
    assert len(playing.executed) == 2 * len(shape(name).make())
    assert name == "chain-20" or sum(played.refused.values()) > 0, "nothing was short"


def test_a_message_that_cannot_be_worked_on_comes_back() -> None:
    assert [short("fan-150", "2h2w", seed).play().left for seed in (11, 12, 13)] == [0, 0, 0]


def test_the_same_seed_is_the_same_run() -> None:
    limits = Limits(partition_entities=100, account_requests=1e6, queue_messages=1e6)

    def once(seed: int) -> tuple[float, int, dict[str, int]]:
        played = Playing(seed, shape("layers-5x20").make(), limits=limits, slots=4).play()
        return played.seconds, played.let_through, dict(played.refused)

    assert once(3) == once(3)
    assert once(3) != once(4)


def test_the_ports_and_the_account_count_the_same_without_limits() -> None:
    """So that a prediction from scripts/bench, which counts at the ports, is one of what the service would see."""
    for name, layout in (("layers-8x20", "1h2w"), ("fan-200", "1h2w"), ("chain-60", "2h2w")):
        cell = Cell(name, layout, "partition")
        played = cell.play(1, enforced=False)
        demand = cell.demand(played)
        charged = played.whole
        assert demand.entities == pytest.approx(charged.entities, rel=0.1), name
        assert demand.requests == pytest.approx(charged.requests, rel=0.1), name
        assert sum(demand.messages.values()) == pytest.approx(sum(charged.messages.values()), rel=0.15), name


def test_a_run_that_does_not_end_says_what_is_left() -> None:
    playing = Playing(1, shape("chain-5").make(), slots=1, task_seconds=100.0, seconds_max=50.0)
    with pytest.raises(AssertionError, match=r"seed 1: no end after 50.0 s: \{.*running"):
        playing.play()


@pytest.mark.parametrize(
    "together",
    [
        pytest.param(False, id="handlers alone", marks=pytest.mark.campaign),
        pytest.param(True, id="with workers in them"),
    ],
)
def test_four_handlers_that_share_graphs_out_are_three_times_as_fast_as_one(together: bool) -> None:
    """With the account's published limits. By one queue three of them stand by."""
    shared = Shared(together, 8)
    one, _ = shared.play(1)
    shares: list[float] = []
    for seed in range(1, 6):
        four, used = shared.play(4, seed)
        print(f"seed {seed}: {rate_of(one):.0f} and {rate_of(four):.0f} tasks/s, {used}")
        assert rate_of(four) >= 0.8 * LEAST_RATIO * rate_of(one)
        shares.append(max(used) / min(used))
        if rate_of(four) >= LEAST_RATIO * rate_of(one) and shares[-1] < 1.5:
            return  # by another seed one may lead over three queues as the graphs begin, and one over one
    raise AssertionError(f"none of these seeds shares evenly: {shares}")


@pytest.mark.campaign
def test_by_one_queue_of_events_four_handlers_are_no_faster_than_one() -> None:
    shared = Shared(False, 1)
    (one, _), (four, _) = shared.play(1), shared.play(4)
    assert rate_of(four) < 1.2 * rate_of(one)
