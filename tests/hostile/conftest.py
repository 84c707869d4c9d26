"""What the tests of hostile input share."""

import pytest

from tests.scenarios.stage import Stage, memory_stage


@pytest.fixture
def memory() -> Stage:
    """A fresh stage over the in-memory model."""
    return memory_stage()
