"""How operations of many commits show their progress."""

from collections.abc import Callable

Progress = Callable[[int, int], None]
"""Called with (rows so far, rows in all, as far as that is known)."""


def no_progress(rows: int, total: int) -> None:
    """For callers that show nothing."""
