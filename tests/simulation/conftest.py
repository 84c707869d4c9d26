"""`--seed N`: replay one history of the simulation, and no other."""

import logging
from collections.abc import Iterator

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, default=None, help="replay this history of the simulated world alone")


@pytest.fixture
def seeds(request: pytest.FixtureRequest) -> range | None:
    """The one seed that was asked for, or None."""
    seed = request.config.getoption("--seed", default=None)
    return None if seed is None else range(seed, seed + 1)


@pytest.fixture
def quiet() -> Iterator[None]:
    """Without thousands of warnings about faults that are wanted."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
