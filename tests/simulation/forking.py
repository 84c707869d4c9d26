"""Processes that begin where this one stands, with all that it has imported: pools for campaigns and for lives.

Python warns of a fork beside threads, whose locks nobody in the child would ever open. The thread that is meant is of
pytest-xdist, and waits for what its master says; what the children run takes no lock of it.
"""

import contextlib
import multiprocessing
import multiprocessing.context
import warnings
from collections.abc import Iterator
from typing import Final

FORK: Final[multiprocessing.context.BaseContext] = multiprocessing.get_context("fork")


@contextlib.contextmanager
def forking() -> Iterator[None]:
    """Fork in here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        yield
