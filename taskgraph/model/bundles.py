"""Messages over many items, as few as hold them."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from taskgraph.model import limits
from taskgraph.model.errors import TooLarge
from taskgraph.model.messages import Message, to_text

T = TypeVar("T")
M = TypeVar("M", bound=Message)


def bundles(
    make: Callable[[tuple[T, ...]], M],
    items: Sequence[T],
    size: int = limits.BUNDLE_TASKS_MAX,
    *,
    bytes_max: int = limits.MESSAGE_BYTES_MAX,
) -> list[M]:
    """Messages over all items in their order: each with at most `size` of them, and a text of at most bytes_max bytes.

    make: builds the message over some of the items. Raises TooLarge for an item that is too large by itself.
    """
    made: list[M] = []
    size = max(1, size)
    done = 0
    while done < len(items):
        part = tuple(items[done : done + size])
        whole = make(part)
        # Mostly as many as may go into one do, and are written once; otherwise each is measured by itself.
        if len(to_text(whole)) > bytes_max:
            part = part[: _how_many(make, part, bytes_max)]
            whole = make(part)
        made.append(whole)
        done += len(part)
    return made


def _how_many(make: Callable[[tuple[T, ...]], M], items: Sequence[T], bytes_max: int) -> int:
    """How many of these items, from the first on, a message of bytes_max bytes holds. Raises TooLarge for none."""
    envelope = len(to_text(make(()))) - 1  # every item is counted with a comma, and the first has none
    length = envelope
    for count, item in enumerate(items):
        alone = len(to_text(make((item,))))
        if alone > bytes_max:
            raise TooLarge(f"One item of a message has {alone:,} bytes as JSON; {bytes_max:,} fit.")
        length += alone - envelope
        if length > bytes_max:
            return count
    return len(items)
