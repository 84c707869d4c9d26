"""The desks in peace, and what was found at them. Every fault at every call of theirs is played by test_reach."""

from collections import Counter

import pytest

from tests.simulation.desks import DESKS, NotListedAndDamaged, Works, WorksOnNewer, kinds_at, play


@pytest.mark.parametrize("desk", DESKS, ids=lambda desk: desk.__name__)
def test_in_peace(desk) -> None:  # type: ignore[no-untyped-def]
    assert play(desk, Counter())


@pytest.mark.parametrize("desk", [NotListedAndDamaged, WorksOnNewer], ids=lambda desk: desk.__name__)
def test_with_a_fault_at_some_calls(desk) -> None:  # type: ignore[no-untyped-def]
    """A doctor could not list a graph whose metadata are damaged; a worker deleted the message of a newer row."""
    calls = play(desk, Counter())
    for number, call in list(enumerate(calls, 1))[::4]:
        for fault in kinds_at(call):
            play(desk, Counter(), number, fault)


def test_a_bug_anywhere_ends_neither_heartbeat_nor_log_in_silence() -> None:
    """An error that nobody foresaw ended the heartbeat of a run unseen, and the log with it."""
    for number in range(1, len(play(Works, Counter())) + 1):
        play(Works, Counter(), number, "bug")
