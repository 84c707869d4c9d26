"""Check the words by which a schedule is created or changed; put or change one as its document says.

The rest needs no check: doors call `App.schedules`.
"""

import dataclasses
from typing import TYPE_CHECKING, Any, TypeVar

from taskgraph.documents.schedule_document import ScheduleDocument
from taskgraph.interfaces.app import App
from taskgraph.model import limits
from taskgraph.model.errors import InvalidInput
from taskgraph.protocol.schedule_rules import CatchUp, Overlap, Schedule

if TYPE_CHECKING:
    from taskgraph.engine.schedules import Still

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


async def put(app: App, name: str, said: ScheduleDocument, still: "Still | None") -> tuple[Schedule, str]:
    """A schedule as its document says, and what was done: created, existing, updated.

    still: of its row, whether it is the one that is to be replaced (see `Schedules.update`). Raises NotFound for one
    that is to be replaced and is not there; Refused, with the code `exists`, for another one without a word of that.
    """
    times = said.times
    if times.cron is not None and times.timezone is None:
        times = dataclasses.replace(times, timezone="UTC")
    recurrence = times.over()
    whole: dict[str, Any] = {
        "catch_up": CatchUp(said.catch_up or CatchUp.LAST),
        "overlap": Overlap(said.overlap or Overlap.SKIP),
        "keep": said.keep or limits.SCHEDULE_FIRES_MAX,
        "active": said.active is not False,
    }
    if said.document is None:
        raise InvalidInput(f"schedule {name} has no graph")
    if still is None:
        made, outcome = await app.schedules().create(name, said.document, recurrence, **whole)
        return made, str(outcome)
    return await app.schedules().update(name, document=said.document, times=times, still=still, **whole), "updated"


async def change(app: App, name: str, said: ScheduleDocument, still: "Still") -> Schedule:
    """A schedule, with what its document says, and the rest as it was. Raises as `Schedules.update`."""
    rules = checked_rules(said.catch_up, said.overlap, said.keep)
    return await app.schedules().update(
        name, document=said.document, times=said.times, active=said.active, still=still, **rules
    )
