"""Seeded histories of the whole protocol, in small portions: the second stage for whatever the unit tests let live."""

import pytest

from tests.simulation.campaign import campaign

PORTIONS = 30
HISTORIES = 10


@pytest.mark.parametrize("portion", range(PORTIONS))
def test_histories(portion: int) -> None:
    report = campaign(40_000 + portion * HISTORIES, histories=HISTORIES, profile="small" if portion % 3 else "mixed")
    assert report.violations == []
