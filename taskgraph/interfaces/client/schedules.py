"""Schedules from Python: create, change, look at, run, delete."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from taskgraph.documents.read import Given
from taskgraph.documents.recurrence import Times
from taskgraph.engine.schedules import ScheduleDetail, Schedules, Written
from taskgraph.engine.submission import Submission
from taskgraph.interfaces.client.graph import GraphLike, document_of
from taskgraph.interfaces.operations.schedules import checked_rules
from taskgraph.model import limits
from taskgraph.model.errors import InvalidInput
from taskgraph.protocol.schedule_rules import CatchUp, Overlap, Schedule

if TYPE_CHECKING:
    from taskgraph.interfaces.client.client import Client


class ScheduleCalls:
    """The schedules of one store: `client.schedules`.

    cron: five fields, with a time zone such as Europe/Berlin (UTC if None). every: an interval of whole seconds (or a
    timedelta), counted from anchor, or from now. at: one time, aware. catch_up: none, last or all; overlap: skip,
    queue, cancel or allow; keep: how many fires may wait; params: values of the graph's parameters. Calls that name a
    schedule raise NotFound, with the nearest names, and InvalidInput for a name that cannot be one.
    """

    def __init__(self, client: "Client") -> None:
        self._client = client

    @property
    def _schedules(self) -> Schedules:
        return self._client.app.schedules()

    async def create(
        self,
        name: str,
        graph: GraphLike,
        *,
        cron: str | None = None,
        timezone: str | None = None,
        every: float | timedelta | None = None,
        anchor: datetime | None = None,
        at: datetime | None = None,
        catch_up: str = CatchUp.LAST,
        overlap: str = Overlap.SKIP,
        keep: int = limits.SCHEDULE_FIRES_MAX,
        active: bool = True,
        params: Mapping[str, Any] | None = None,
    ) -> tuple[Schedule, Written]:
        """Create a schedule; the same one again changes nothing. It fires only while a process serves the store.

        Raises InvalidInput, InvalidGraph, TooLarge, and Refused if there is another schedule of this name.
        """
        document = document_of(graph, given=Given(params or {}))
        times = _times(cron, timezone, every, anchor, at).over()
        rules = checked_rules(catch_up, overlap, keep)
        return await self._schedules.create(name, document, times, active=active, **rules)

    async def update(
        self,
        name: str,
        graph: GraphLike | None = None,
        *,
        cron: str | None = None,
        timezone: str | None = None,
        every: float | timedelta | None = None,
        anchor: datetime | None = None,
        at: datetime | None = None,
        catch_up: str | None = None,
        overlap: str | None = None,
        keep: int | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> Schedule:
        """Change what is given, and nothing else: new fields of cron keep their time zone, an interval its anchor.

        What new times bring next is later than now. Raises as `create` does.
        """
        if graph is None and params:
            raise InvalidInput("params go with a graph: the one that a schedule has was given its values with it")
        document = None if graph is None else document_of(graph, given=Given(params or {}))
        times = _times(cron, timezone, every, anchor, at)
        rules = checked_rules(catch_up, overlap, keep)
        return await self._schedules.update(name, document=document, times=times, **rules)

    async def list(self) -> Sequence[Schedule]:
        """All schedules by name."""
        return await self._schedules.listed()

    async def show(self, name: str) -> ScheduleDetail:
        """A schedule with its next and last fires, and what keeps it from firing."""
        return await self._schedules.show(name)

    async def activate(self, name: str) -> Schedule:
        """Let it fire again; what came meanwhile fires only as its catch-up says."""
        return await self._schedules.set_active(name, active=True)

    async def deactivate(self, name: str) -> Schedule:
        """Let it fire no more, until it is activated."""
        return await self._schedules.set_active(name, active=False)

    async def activate_all(self) -> Sequence[Schedule]:
        """Let every schedule fire again; gives those that were inactive."""
        return await self._schedules.set_all(active=True)

    async def deactivate_all(self) -> Sequence[Schedule]:
        """Let no schedule fire any more, until it is activated; gives those that were active."""
        return await self._schedules.set_all(active=False)

    async def delete(self, name: str) -> Schedule:
        """Delete it; graphs that it has fired stay."""
        return await self._schedules.delete(name)

    async def run_now(self, name: str) -> Submission:
        """Submit its graph now, whatever its times."""
        return await self._schedules.run_now(name)


def _times(
    cron: str | None,
    timezone: str | None,
    every: float | timedelta | None,
    anchor: datetime | None,
    at: datetime | None,
) -> Times:
    length = every.total_seconds() if isinstance(every, timedelta) else every
    if length is not None and length != int(length):
        raise InvalidInput(f"every {length:g} s: an interval is of whole seconds")
    return Times(cron=cron, timezone=timezone, every=None if length is None else int(length), anchor=anchor, at=at)
