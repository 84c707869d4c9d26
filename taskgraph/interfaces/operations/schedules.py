"""Check the words by which a schedule is created or changed. The rest needs no check: doors call `App.schedules`."""

from typing import Any, TypeVar

from taskgraph.model.errors import InvalidInput
from taskgraph.protocol.schedule_rules import CatchUp, Overlap

E = TypeVar("E", CatchUp, Overlap)


def checked_rules(catch_up: str | None, overlap: str | None, keep: int | None) -> dict[str, Any]:
    """What is not None of these, as `Schedules.create` and `update` take it. Raises InvalidInput for another word."""
    given = {
        "catch_up": None if catch_up is None else _one_of(CatchUp, "catch-up", catch_up),
        "overlap": None if overlap is None else _one_of(Overlap, "overlap", overlap),
        "keep": keep,
    }
    return {name: value for name, value in given.items() if value is not None}


def _one_of(kind: type[E], what: str, given: str) -> E:
    if given not in list(kind):
        raise InvalidInput(f"{what} “{given}”: one of {', '.join(kind)}")
    return kind(given)
