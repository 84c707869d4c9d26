"""Create or change a schedule. The rest needs no check before it: doors call `App.schedules` for it."""

from typing import TypeVar

from taskgraph.documents.nodes import GraphDocument
from taskgraph.documents.recurrence import Times
from taskgraph.engine.schedules import Written
from taskgraph.interfaces.app import App
from taskgraph.model import limits
from taskgraph.model.errors import InvalidInput
from taskgraph.protocol.schedule_rules import CatchUp, Overlap, Schedule

E = TypeVar("E", CatchUp, Overlap)


async def create(
    app: App,
    name: str,
    document: GraphDocument,
    times: Times,
    *,
    catch_up: str = CatchUp.LAST,
    overlap: str = Overlap.SKIP,
    keep: int = limits.SCHEDULE_FIRES_MAX,
    active: bool = True,
) -> tuple[Schedule, Written]:
    """Create a schedule; the same one again changes nothing (see `Schedules.create`)."""
    return await app.schedules().create(
        name,
        document,
        times.over(),
        catch_up=_one_of(CatchUp, "catch-up", catch_up),
        overlap=_one_of(Overlap, "overlap", overlap),
        keep=keep,
        active=active,
    )


async def update(
    app: App,
    name: str,
    *,
    document: GraphDocument | None,
    times: Times,
    catch_up: str | None,
    overlap: str | None,
    keep: int | None,
) -> Schedule:
    """Change what is given, and nothing else (see `Schedules.update`)."""
    return await app.schedules().update(
        name,
        document=document,
        times=times,
        catch_up=None if catch_up is None else _one_of(CatchUp, "catch-up", catch_up),
        overlap=None if overlap is None else _one_of(Overlap, "overlap", overlap),
        keep=keep,
    )


def _one_of(kind: type[E], what: str, word: str) -> E:
    if word not in list(kind):
        raise InvalidInput(f"{what} {word!r}: one of {', '.join(kind)}")
    return kind(word)
