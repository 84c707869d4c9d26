"""Waiting costs little, and what comes is found soon, the sooner the less time it has been quiet."""

import pytest

from tests.capacity.idling import Idling

OPERATIONS_MAX = 500
"""In an hour, of a handler and a worker."""


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_an_hour_of_waiting_costs_few_operations_and_work_from_elsewhere_is_found_soon(seed: int) -> None:
    waited = Idling(seed, 2 * 3600.0).wait()
    assert 400 < waited.operations.total() <= OPERATIONS_MAX, waited.operations.most_common()
    assert waited.first <= 37.5 + 1.0, "a pause that has grown to three times its length, and a quarter"
    assert waited.last <= 2 * 37.5 + 1.0, "the handler is asleep as well"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_after_minutes_of_quiet_pauses_are_as_they_were(seed: int) -> None:
    waited = Idling(seed, 180.0).wait()
    assert waited.first <= 12.5 + 1.0
    assert waited.last <= 2 * 12.5 + 1.0
