"""A history that fails is told as the shortest one found that fails alike."""

import pytest

from tests.simulation.campaign import judged
from tests.simulation.histories import world_of
from tests.simulation.mutants import mutant_of
from tests.simulation.shrink import fresh, kind_of, shrink, steps_max
from tests.simulation.world import World

# rule that is left out -> (profile, first seed, tasks, faults) of the history that must be enough to show it
LONG = "new rows go in before anybody links to them"  # ten seconds
WANTED = {
    "what a transition writes is one commit": ("tiny", 0, 3, 4),
    "only a pending run can be claimed": ("tiny", 0, 1, 1),
    "every new run has a number of its own": ("tiny", 0, 1, 1),
    "the sweep repeats what went unheard": ("tiny", 0, 1, 1),
    "a requirement is taken away by its id": ("tiny", 0, 3, 4),
    LONG: ("small", 60, 4, 5),  # of those before it, some fail for want of many late answers alone
}


def first_that_fails(profile: str, first: int = 0) -> tuple[World, str]:
    for seed in range(first, 400):
        world = world_of(seed, profile=profile)
        _, broken = judged(world, steps_max=steps_max(world))
        if broken:
            return world, broken
    raise AssertionError("none of these histories fails")


@pytest.mark.parametrize(
    "rule", [each if each != LONG else pytest.param(each, marks=pytest.mark.campaign) for each in WANTED]
)
def test_a_shrunk_history_fails_still_and_is_no_longer(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    profile, first, tasks_max, faults_max = WANTED[rule]
    mutant_of(rule).patch(monkeypatch)
    played, broken = first_that_fails(profile, first)
    shrunk = shrink(world_of(played.seed, profile=profile))
    again = fresh(shrunk.world)
    _, still = judged(again, steps_max=steps_max(again))
    assert still == shrunk.broken
    assert kind_of(still) == kind_of(broken)
    assert again.calls == shrunk.calls <= played.calls
    assert len(again.tasks) <= min(tasks_max, len(played.tasks))
    assert sum(again.fault_counts.values()) <= faults_max
    told = shrunk.replayed()
    assert told.trace
    assert told.calls == shrunk.calls
    monkeypatch.undo()
    sound = fresh(shrunk.world)
    assert judged(sound) == (sound.state(), ""), "it fails for the want of the rule alone"


def test_the_same_history_is_shrunk_to_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    mutant_of("only a pending run can be claimed").patch(monkeypatch)
    played, _ = first_that_fails("tiny")
    one, two = (shrink(world_of(played.seed, profile="tiny")) for _ in range(2))
    assert one.replayed().trace == two.replayed().trace


def test_what_does_not_fail_cannot_be_shrunk() -> None:
    with pytest.raises(ValueError, match="does not fail"):
        shrink(world_of(1, profile="tiny"))
