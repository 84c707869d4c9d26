"""What a worker of this command serves: targets, labels, slots, executors."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from taskgraph.interfaces.cli.progress import Board
from taskgraph.model import limits
from taskgraph.model.errors import InvalidSettings
from taskgraph.model.secrecy import Handed

if TYPE_CHECKING:
    from taskgraph.model.clock import Clock
    from taskgraph.worker.executors import Executors


def default_slots() -> int:
    """Tasks side by side, where nobody says."""
    return max(2, os.cpu_count() or 2)


def make_executors(
    clock: "Clock",
    *,
    executor: str | None,
    time_scale: float,
    python: Sequence[str] | None,
    board: Board | None = None,
    grace_seconds: float = limits.GRACE_SECONDS,
    handed: Handed,
) -> "Executors":
    """The executors of a worker in this process. Raises InvalidSettings."""
    from taskgraph.worker.executors import Executors, built_in, load_callables

    callables: dict[str, Any] | None = None
    for place in python or ():
        found = load_callables(place)
        twice = sorted(set(callables or ()) & set(found))
        if twice:
            raise InvalidSettings(f"--python {place}: two callables are named {twice[0]}")
        callables = {**(callables or {}), **found}
    made = built_in(
        clock,
        callables=callables,
        override=executor,
        time_scale=time_scale,
        grace_seconds=grace_seconds,
        handed=handed,
    )
    return made if board is None else Executors([board.watched(each) for each in made.values()], executor)
