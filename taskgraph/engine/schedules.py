"""Schedules in the store: create, change, look at, delete, run by hand.

Every change is one commit under the etag of the schedule's row (`schedule_rows`), so any number of people may make
some at once. What the clock does is in `schedule_fires`.
"""

import contextlib
import dataclasses
import itertools
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from taskgraph.documents.canonical import content_hash
from taskgraph.documents.nodes import GraphDocument
from taskgraph.documents.recurrence import Recurrence, Times
from taskgraph.engine.handlers import Handlers
from taskgraph.engine.schedule_fires import Fires, Looked, origin_of
from taskgraph.engine.schedule_rows import ScheduleRows, schedule_in
from taskgraph.engine.submission import Submission, submit
from taskgraph.model import limits
from taskgraph.model.errors import Conflict, IntegrityError, InvalidInput, NotFound, Refused, Unclear
from taskgraph.model.timing import clock_text
from taskgraph.protocol import schedule_rules
from taskgraph.protocol.schedule_rules import SCHEDULES, CatchUp, Overlap, Run, Schedule, head_key
from taskgraph.queries.graphs import Queries
from taskgraph.storage.tables import Change, Delete, Insert, Row

log = logging.getLogger("taskgraph.schedules")

CHANGED: Final = "changed"
"""Code of a refusal: what a change is for is not as it was read."""

UPCOMING: Final = 5  # times of the next fires that are shown
_ATTEMPTS_MAX: Final = 10  # the sweep, too, writes the row of a schedule once a fire


Still = Callable[[str], bool]
"""Of the etag of a row: whether the row is still the one that a change is for."""


def any_row(etag: str) -> bool:
    return True


class Written(StrEnum):
    CREATED = "created"
    EXISTING = "existing"  # the same schedule was created before


@dataclass(frozen=True, slots=True)
class RunState:
    """A fire that was done, with what has become of its graph: its state, or "gone" where it was deleted."""

    run: Run
    state: str


@dataclass(frozen=True, slots=True)
class Trouble:
    """What keeps a schedule from firing."""

    text: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class ScheduleDetail:
    """runs: the newest first. etag: of its row."""

    schedule: Schedule
    etag: str
    upcoming: Sequence[datetime]
    runs: Sequence[RunState]
    overdue_seconds: float
    troubles: Sequence[Trouble]


class Schedules:
    """The schedules of one installation. changed: called when a person has made or changed one. by: says who asks."""

    def __init__(
        self,
        handlers: Handlers,
        queries: Queries,
        changed: Callable[[], None] = lambda: None,
        by: Callable[[], str] = str,
    ) -> None:
        self._handlers = handlers
        self._tables = handlers.records.tables
        self._clock = handlers.clock
        self._changed = changed
        self._by = by
        self._rows = ScheduleRows(self._tables, self._clock)
        self._fires = Fires(handlers, queries, self._rows)

    async def create(
        self,
        name: str,
        document: GraphDocument,
        recurrence: Recurrence,
        *,
        catch_up: CatchUp = CatchUp.LAST,
        overlap: Overlap = Overlap.SKIP,
        keep: int = limits.SCHEDULE_FIRES_MAX,
        active: bool = True,
    ) -> tuple[Schedule, Written]:
        """Create a schedule. The same one again changes nothing.

        recurrence: an interval without an anchor is counted from now. Raises InvalidInput for what makes no sense, or
        for a time that has passed; Refused if another schedule has this name; TooLarge.
        """
        schedule_rules.check_name(name)
        schedule_rules.check_keep(keep)
        now = self._clock.now()
        given = recurrence
        recurrence = anchored(recurrence, now)
        recurrence.check()
        document_id, parts = self._rows.parts(name, document)
        schedule = Schedule(
            name=name,
            recurrence=recurrence,
            document=document_id,
            digest=content_hash(document),
            tasks=len(document.tasks),
            created=now,
            updated=now,
            catch_up=catch_up,
            overlap=overlap,
            keep=keep,
            active=active,
            next=_first(recurrence, now),
            by=self._by(),
        )
        columns = {**schedule_rules.new_columns(schedule), "operation": self._clock.new_id()}
        try:
            await self._tables.commit(SCHEDULES, [Insert(head_key(name), columns), *parts])
        except (Conflict, Unclear) as error:
            (row,) = await self._tables.get(SCHEDULES, [head_key(name)])
            if row is None:
                raise Conflict(f"schedule {name} could not be written; try again") from error
            found = schedule_in(row)
            if row.columns.get("operation") == columns["operation"]:
                self._changed()
                return found, Written.CREATED
            if _same(found, dataclasses.replace(schedule, recurrence=given)):
                return found, Written.EXISTING
            raise another(name) from error
        self._changed()
        return schedule, Written.CREATED

    async def update(
        self,
        name: str,
        *,
        document: GraphDocument | None = None,
        times: Times | None = None,
        catch_up: CatchUp | None = None,
        overlap: Overlap | None = None,
        keep: int | None = None,
        active: bool | None = None,
        still: Still = any_row,
    ) -> Schedule:
        """Change what is given; a fire that has begun goes on as it began.

        times: the parts of the recurrence that change; its next time is then the first that is later than now. Fires
        that wait, and one that could not be submitted, take the new document. Raises NotFound, InvalidInput, TooLarge,
        Refused if its row is not `still` the one that the change is for, Conflict if others keep changing it.
        """
        document_id, parts = self._rows.parts(name, document) if document is not None else ("", [])

        async def attempt(row: Row, before: Schedule) -> Schedule:
            now = self._clock.now()
            after = before if active is None else _switched(before, now, active=active)
            after = dataclasses.replace(
                after,
                catch_up=before.catch_up if catch_up is None else catch_up,
                overlap=before.overlap if overlap is None else overlap,
                keep=before.keep if keep is None else schedule_rules.check_keep(keep),
            )
            new = before.recurrence if times is None else anchored(times.over(before.recurrence), now)
            if new != before.recurrence:
                new.check()
                after = dataclasses.replace(after, recurrence=new, next=_first(new, now))
            changes: list[Change] = []
            if document is not None and (digest := content_hash(document)) != before.digest:
                after = dataclasses.replace(
                    after, document=document_id, digest=digest, tasks=len(document.tasks), try_after=None
                )
                changes = list(parts)
                if before.document != before.firing_document:
                    changes += await self._rows.deletions(name, before.document)
            if after == before:
                return before
            after = dataclasses.replace(after, updated=now, by=self._by())
            await self._rows.write(row, before, after, changes)
            self._changed()
            return after

        return await self._retried(name, attempt, still)

    async def set_all(self, *, active: bool) -> list[Schedule]:
        """Activate or deactivate every schedule; returns those that this changed."""
        changed = []
        for each in await self.listed():
            if each.active != active:
                with contextlib.suppress(NotFound):  # deleted meanwhile
                    changed.append(await self.set_active(each.name, active=active))
        return changed

    async def set_active(self, name: str, *, active: bool) -> Schedule:
        """Activate or deactivate a schedule; graphs that it has fired go on. Raises NotFound.

        Times that passed while it was inactive fire only as its catch-up says.
        """

        async def attempt(row: Row, before: Schedule) -> Schedule:
            now = self._clock.now()
            after = _switched(before, now, active=active)
            if after == before:
                return before
            after = dataclasses.replace(after, by=self._by())
            await self._rows.write(row, before, after)
            self._changed()
            return after

        return await self._retried(name, attempt)

    async def _retried(
        self, name: str, attempt: Callable[[Row, Schedule], Awaitable[Schedule]], still: Still = any_row
    ) -> Schedule:
        """The result of `attempt`, with the schedule read anew after each Conflict. Raises NotFound, Refused."""
        for _ in range(_ATTEMPTS_MAX):
            row, schedule = await self._rows.find(name)
            _check(row, still, name)
            with contextlib.suppress(Conflict):
                return await attempt(row, schedule)
        raise _busy(name)

    async def delete(self, name: str, *, still: Still = any_row) -> Schedule:
        """Delete a schedule, after a fire that has begun; graphs that it has fired stay. Raises NotFound, Refused."""
        for _ in range(_ATTEMPTS_MAX):
            row, schedule = await self._rows.find(name)
            _check(row, still, name)
            if schedule.firing is not None:
                await self._fires.finish(row, schedule, self._clock.now(), Looked())
                continue
            changes: list[Change] = [Delete(row.key, row.etag), *await self._rows.deletions(name)]
            try:
                await self._tables.commit(SCHEDULES, changes)
            except (Conflict, Unclear):
                (left,) = await self._tables.get(SCHEDULES, [row.key])
                if left is not None:
                    continue
            return schedule
        raise _busy(name)

    async def run_now(self, name: str) -> Submission:
        """Submit the schedule's graph now, also if it is inactive. Raises NotFound, InvalidGraph."""
        row, schedule = await self._rows.find(name)
        now = self._clock.now()
        due = now.replace(microsecond=0)
        run = Run(schedule_rules.manual_graph_id_of(name, now), due, now, manual=True)
        document = await self._rows.document(schedule, schedule.document)
        origin = origin_of(name, due)
        submission = await submit(self._handlers, run.graph_id, document, origin=origin, by=self._by())
        for _ in range(_ATTEMPTS_MAX):
            try:
                await self._rows.write(row, schedule, schedule_rules.with_run(schedule, run))
            except Conflict:
                row, schedule = await self._rows.find(name)
            else:
                return submission
        raise _busy(name)

    async def listed(self) -> list[Schedule]:
        """All schedules by name. A row that holds none is left out, with a warning in the log."""
        found = []
        for row in await self._rows.heads():
            try:
                found.append(schedule_in(row))
            except IntegrityError as error:
                log.warning("%s", error)
        return found

    async def show(self, name: str) -> ScheduleDetail:
        """Raises NotFound."""
        row, schedule = await self._rows.find(name)
        now = self._clock.now()
        states = [RunState(run, await self._fires.state(run.graph_id)) for run in reversed(schedule.runs)]
        return ScheduleDetail(
            schedule=schedule,
            etag=row.etag,
            upcoming=_upcoming(schedule, now),
            runs=states,
            overdue_seconds=schedule_rules.overdue(schedule, now).total_seconds(),
            troubles=await self._troubles(schedule, now),
        )

    async def document(self, name: str) -> GraphDocument:
        """Raises NotFound, InvalidGraph if the graph is invalid by now."""
        _, schedule = await self._rows.find(name)
        return await self._rows.document(schedule, schedule.document)

    async def _troubles(self, schedule: Schedule, now: datetime) -> list[Trouble]:
        name = schedule.name
        found = []
        if not schedule.active:
            found.append(Trouble("it is inactive", f"taskgraph schedule activate {name}"))
        if schedule.error:
            again = f"; it is tried again at {clock_text(schedule.try_after)}" if schedule.try_after else ""
            often = f" ({schedule.errors} times in a row)" if schedule.errors > 1 else ""
            mend = f"mend the graph and give it with taskgraph schedule update {name} FILE"
            found.append(Trouble(f"it could not fire{often}: {schedule.error}{again}", mend))
        if schedule_rules.set_right(schedule, now) is not schedule:
            later = "they are set right when the clocks of all processes have agreed for a day"
            at_once = f"at once: taskgraph schedule deactivate {name}, and activate"
            found.append(Trouble(f"its times are of a clock that was ahead; {later}", at_once))
        late = schedule_rules.overdue(schedule, now)
        if late and not schedule.error:
            holding = await self._fires.not_over(schedule, set()) if schedule.overlap is not Overlap.ALLOW else None
            if schedule.waiting and holding is not None:
                due = f"{len(schedule.waiting)} due, the first since {clock_text(schedule.waiting[0])}"
                found.append(Trouble(f"{due}, and graph {holding} is not over", f"taskgraph status {holding}"))
            else:
                text = f"it is overdue by {late.total_seconds():.0f} s: no process looks at the schedules of this store"
                found.append(Trouble(text, "run taskgraph serve, or the function app"))
        if schedule.next is None and not schedule.waiting and schedule.firing is None:
            found.append(Trouble("it has fired for the last time: no further time is to come"))
        return found

    async def look(self) -> Looked:
        return await self._fires.look()


def another(name: str) -> Refused:
    words = f"there is another schedule {name}; change it with taskgraph schedule update {name}"
    return Refused(words, "exists")


def _check(row: Row, still: Still, name: str) -> None:
    if not still(row.etag):
        raise Refused(f"schedule {name} was changed, or has fired, since it was read: read it again", CHANGED)


def _switched(schedule: Schedule, now: datetime, *, active: bool) -> Schedule:
    after = (schedule_rules.activated if active else schedule_rules.deactivated)(schedule, now)
    return schedule_rules.set_right(after, now) if active and after != schedule else after


def _busy(name: str) -> Conflict:
    return Conflict(f"schedule {name}: others keep writing it; try again")


def anchored(recurrence: Recurrence, now: datetime) -> Recurrence:
    """An interval that is counted from now, unless it says from when; times in whole seconds."""
    anchor, at = recurrence.anchor, recurrence.at
    if recurrence.every and anchor is None:
        anchor = now
    return dataclasses.replace(recurrence, anchor=_whole(anchor), at=_whole(at))


def _whole(moment: datetime | None) -> datetime | None:
    if moment is None:
        return None
    if moment.tzinfo is None:
        raise InvalidInput(f"{moment.isoformat()} has no time zone; write Z or an offset such as +02:00 behind it")
    return moment.astimezone(UTC).replace(microsecond=0)


def _first(recurrence: Recurrence, now: datetime) -> datetime:
    first = recurrence.after(now)
    if first is None:
        raise InvalidInput(f"it would never fire: {recurrence.words()} has passed")
    return first


def _same(found: Schedule, given: Schedule) -> bool:
    """Whether a schedule is the one that is to be created."""
    wanted = given.recurrence
    if wanted.every and wanted.anchor is None:
        wanted = dataclasses.replace(wanted, anchor=found.recurrence.anchor)
    wanted = dataclasses.replace(wanted, anchor=_whole(wanted.anchor), at=_whole(wanted.at))
    named = ("digest", "recurrence", "catch_up", "overlap", "keep", "active")
    given = dataclasses.replace(given, recurrence=wanted)
    return all(getattr(found, name) == getattr(given, name) for name in named)


def _upcoming(schedule: Schedule, now: datetime) -> list[datetime]:
    """Times of the next fires, with those that are due and have not begun; of an inactive one, times to come."""
    if schedule.next is None:
        return []
    times = schedule.recurrence.times(schedule.next if schedule.active else now)
    return list(itertools.islice(itertools.chain([schedule.next] if schedule.active else [], times), UPCOMING))
