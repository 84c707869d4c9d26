"""Schedules by the clock: what is due becomes a graph.

Any number of processes may look at the schedules at any time, and each may die anywhere: every step is one commit under
the etag of the schedule's row, a fire that has begun is on that row until its graph is submitted, and the graph's id is
made of the schedule's name and the time. Nothing is kept in memory between two looks.
"""

import logging
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from taskgraph.engine import clock_trust
from taskgraph.engine.handlers import Handlers
from taskgraph.engine.schedule_rows import ScheduleRows, schedule_in
from taskgraph.engine.submission import submit
from taskgraph.model import limits
from taskgraph.model.columns import Value, integer
from taskgraph.model.errors import (
    Conflict,
    IntegrityError,
    InvalidGraph,
    Refused,
    StorageUnavailable,
    TaskgraphError,
    Unclear,
)
from taskgraph.model.ids import GRAPH
from taskgraph.model.messages import Cancel
from taskgraph.model.states import GRAPH_ENDED, GraphState
from taskgraph.protocol import schedule_rules
from taskgraph.protocol.schedule_rules import SCHEDULES, Overlap, Schedule, graph_id_of
from taskgraph.queries.graphs import Queries
from taskgraph.storage.tables import Row

log = logging.getLogger("taskgraph.schedules")

_GONE: Final = "gone"
_GONE_STATES: Final = frozenset({_GONE, GraphState.DELETING, GraphState.DELETED, GraphState.MOVED})


@dataclass(slots=True)
class Looked:
    """What one look at the schedules did.

    fired: ids of graphs. soonest: when time alone brings the next fire; None if it brings none. waiting: whether a fire
    waits for something else than time. failed: what could not be done, with its schedule and the reason. busy: the same
    of schedules that other processes were writing.
    """

    schedules: int = 0
    fired: list[str] = field(default_factory=list)
    skipped: int = 0
    soonest: datetime | None = None
    waiting: bool = False
    failed: list[str] = field(default_factory=list)
    busy: list[str] = field(default_factory=list)

    @property
    def did_something(self) -> bool:
        return bool(self.fired or self.skipped or self.failed or self.busy)

    def note(self, schedule: Schedule, now: datetime) -> None:
        soonest = schedule.soonest(now)
        if soonest is None:
            return
        if soonest <= now and (schedule.waiting or schedule.firing):
            self.waiting = True
        elif self.soonest is None or soonest < self.soonest:
            self.soonest = soonest


class Fires:
    def __init__(self, handlers: Handlers, queries: Queries, rows: ScheduleRows) -> None:
        self._handlers = handlers
        self._tables = handlers.records.tables
        self._clock = handlers.clock
        self._queries = queries
        self._rows = rows

    async def look(self) -> Looked:
        """Look at every schedule once, and fire what is due; one failure stops no others. Raises StorageUnavailable."""
        now = self._clock.now()
        looked = Looked()
        for row in await self._rows.heads():
            looked.schedules += 1
            try:
                schedule = schedule_in(row)
                row, schedule = await self._set_right(row, schedule)
                soonest = schedule.soonest(now)
                if soonest is not None and soonest <= now:
                    schedule = await self._fire(row, schedule, now, looked)
                looked.note(schedule, now)
            except (Conflict, Unclear) as error:
                # A failure only if no other process has written the row: of many that look at once, one succeeds.
                (found,) = await self._tables.get(SCHEDULES, [row.key])
                others = found is None or found.etag != row.etag
                (looked.busy if others else looked.failed).append(f"{row.key}: {error}")
                looked.waiting = True
            except StorageUnavailable:
                raise
            except TaskgraphError as error:
                looked.failed.append(f"{row.key}: {error}")
        return looked

    async def _set_right(self, row: Row, schedule: Schedule) -> tuple[Row, Schedule]:
        """The schedule without times of a clock that was ahead, once the clocks have agreed for a day.

        Until then no process knows which clock is wrong, and two that differ would set each other right for ever.
        """
        now = self._clock.now()  # later than the row was read, however long this look has stood still
        right = schedule_rules.set_right(schedule, now)
        if not schedule.active or right is schedule or not await clock_trust.may_end(self._tables, now):
            return row, schedule
        words = "schedule %s was to fire next at %s, by a clock that was ahead: it is set right, to %s"
        log.warning(words, schedule.name, schedule.next, right.next)
        return await self._rows.write(row, schedule, right), right

    async def _fire(self, row: Row, schedule: Schedule, now: datetime, looked: Looked) -> Schedule:
        for _ in range(limits.SCHEDULE_FIRES_MAX):
            if schedule.firing is None:
                moved = schedule_rules.collect(schedule, now)
                if schedule_rules.may_begin(moved, now):
                    moved = await self._begun(moved)
                if moved != schedule:
                    row = await self._rows.write(row, schedule, moved)
                    looked.skipped += moved.skipped - schedule.skipped
                    schedule = moved
            if schedule.firing is None:
                return schedule
            row, schedule = await self.finish(row, schedule, now, looked)
        return schedule

    async def _begun(self, schedule: Schedule) -> Schedule:
        """The schedule with its first fire begun, or held up by the graph of an earlier one."""
        while schedule.ahead is not None and schedule.waiting and (first := schedule.waiting[0]) < schedule.ahead:
            if await self.state(graph_id_of(schedule.name, first)) == _GONE:
                break
            schedule = schedule_rules.passed_over(schedule)
        if not schedule.waiting:
            return schedule
        if schedule.overlap is Overlap.ALLOW:
            return schedule_rules.begin(schedule)
        ended: set[str] = set()
        holding = await self.not_over(schedule, ended)
        schedule = schedule_rules.over(schedule, frozenset(ended))
        if holding is None:
            return schedule_rules.begin(schedule)
        if schedule.overlap is Overlap.CANCEL:
            reason = f"schedule {schedule.name} is due again, and cancels what is not over by then"
            await self._cancel(holding, reason, schedule.name)
        return schedule_rules.held_up(schedule)

    async def not_over(self, schedule: Schedule, ended: set[str]) -> str | None:
        """The newest graph of an earlier fire that is not over; those that are found to be over go into `ended`."""
        for run in reversed(schedule.runs):
            if run.over:
                continue
            if not await self._is_over(run.graph_id):
                return run.graph_id
            ended.add(run.graph_id)
        return None

    async def _is_over(self, graph_id: str) -> bool:
        """Whether a graph that was submitted has ended, was deleted, or is blocked with nothing moving."""
        state = await self.state(graph_id)
        if state == GraphState.BLOCKED:
            return not await self._queries.busy(graph_id)
        return state in _GONE_STATES or state in GRAPH_ENDED

    async def _cancel(self, graph_id: str, reason: str, schedule: str) -> None:
        (graph,) = await self._tables.get(graph_id, [GRAPH])
        if graph is not None and graph.columns.get("state") != GraphState.CANCELLING:
            reopened = integer(graph.columns, "reopened")
            cancel = Cancel(graph_id, reason=reason, reopened=reopened, by=by_schedule(schedule))
            await self._handlers.dispatcher.send_events([cancel])

    async def state(self, graph_id: str) -> str:
        """The state of a graph, "gone" where it was deleted."""
        (graph,) = await self._tables.get(graph_id, [GRAPH])
        return _GONE if graph is None else str(graph.columns.get("state", ""))

    async def finish(self, row: Row, schedule: Schedule, now: datetime, looked: Looked) -> tuple[Row, Schedule]:
        """Submit the graph of the fire that has begun, and write the outcome onto the schedule's row."""
        if schedule.firing is None:
            raise IntegrityError(f"schedule {schedule.name}: no fire has begun")
        graph_id = graph_id_of(schedule.name, schedule.firing)
        try:
            document = await self._rows.document(schedule, schedule.firing_document)
            origin, by = origin_of(schedule.name, schedule.firing), by_schedule(schedule.name)
            await submit(self._handlers, graph_id, document, origin=origin, by=by)
        except (Conflict, Unclear, StorageUnavailable):
            raise
        except TaskgraphError as error:
            after = await self._refused(schedule, graph_id, error, now)
            if after.error:
                looked.failed.append(f"{row.key}: {after.error}")
        else:
            after = schedule_rules.done(schedule, now)
        unused = schedule.firing_document not in (after.document, after.firing_document)
        changes = await self._rows.deletions(schedule.name, schedule.firing_document) if unused else []
        row = await self._rows.write(row, schedule, after, changes)
        if after.fired > schedule.fired:
            looked.fired.append(graph_id)
        return row, after

    async def _refused(self, schedule: Schedule, graph_id: str, error: TaskgraphError, now: datetime) -> Schedule:
        """What follows when a graph could not be submitted."""
        if isinstance(error, Refused) and error.code == "deleted":
            return schedule_rules.done(schedule, now)  # it was fired, and has had its time since
        if isinstance(error, Refused) and error.code == "different-content":
            (graph,) = await self._tables.get(graph_id, [GRAPH])
            if graph is not None and graph.columns.get("schedule") == schedule.name:
                return schedule_rules.done(schedule, now)  # this very fire, by a version that reads documents otherwise
            return schedule_rules.dropped(schedule, f"graph {graph_id} was submitted by another, with other content")
        return schedule_rules.failed(schedule, _reason(error), now)


def origin_of(name: str, due: datetime) -> dict[str, Value]:
    """Columns of the row of a graph that a schedule has fired."""
    return {"schedule": name, "firedFor": due}


def by_schedule(name: str) -> str:
    """Who acts, for the journal."""
    return f"schedule {name}"


def _reason(error: TaskgraphError) -> str:
    if isinstance(error, InvalidGraph):
        first = error.problems[0]
        more = len(error.problems) - 1
        return f"{first.pointer}: {first.message} {first.remedy}" + (f" (and {more} more)" if more else "")
    return str(error) or type(error).__name__
