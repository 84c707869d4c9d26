"""Schedules in the store: create, change, look at, fire.

What this room is for: the rows of the partition `index:schedules`, and the look at them by which a due fire becomes a
graph. Any number of processes may look at any time, and each may die anywhere: every step is one commit under the etag
of the schedule's row, a fire that has begun is on that row until its graph is submitted, and the graph's id is made of
the schedule's name and the time. It never runs a task, never waits, and keeps nothing in memory between two looks.
"""

import contextlib
import dataclasses
import difflib
import itertools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from taskgraph.documents.canonical import content_hash, document_object
from taskgraph.documents.nodes import GraphDocument
from taskgraph.documents.read import NOTHING_GIVEN, Given, canonical_json, read_document, read_json
from taskgraph.documents.recurrence import Recurrence, Times
from taskgraph.engine import clock_trust
from taskgraph.engine.handlers import Handlers
from taskgraph.engine.plan_extension import row_bytes
from taskgraph.engine.submission import Submission, submit
from taskgraph.model import limits
from taskgraph.model.clock import Clock
from taskgraph.model.columns import Value
from taskgraph.model.errors import (
    Conflict,
    IntegrityError,
    InvalidGraph,
    InvalidInput,
    NotFound,
    Refused,
    StorageUnavailable,
    TaskgraphError,
    TooLarge,
    Unclear,
)
from taskgraph.model.ids import GRAPH
from taskgraph.model.messages import Cancel
from taskgraph.model.states import GRAPH_ENDED, GraphState
from taskgraph.model.utf16 import utf16_units
from taskgraph.protocol import schedule_rules
from taskgraph.protocol.definitions import SCHEMA, gathered, split_text, spread
from taskgraph.protocol.rows import SCHEMA_MAX
from taskgraph.protocol.schedule_rules import (
    SCHEDULES,
    CatchUp,
    Overlap,
    Run,
    Schedule,
    graph_id_of,
    head_key,
    manual_graph_id_of,
)
from taskgraph.queries.graphs import Queries
from taskgraph.storage.tables import Change, Delete, Insert, Merge, Range, Row, Tables, query_all

log = logging.getLogger("taskgraph.schedules")

UPCOMING: Final = 5
"""Times of the next fires that are shown."""

_PART_CHARS: Final = 8 * limits.PROPERTY_CHARS_MAX
_ATTEMPTS_MAX: Final = 10  # others who write the same schedule: a sweep, once a fire
_NEAR: Final = 3


class Written(StrEnum):
    """What a call to create found."""

    CREATED = "created"
    EXISTING = "existing"  # the same schedule was created before


@dataclass(slots=True)
class Looked:
    """What one look at the schedules did.

    fired: ids of graphs. soonest: when time alone brings the next fire; None if it brings none. waiting: whether a fire
    waits for something else than time. failed: what could not be done, with its schedule and the reason. busy: what
    somebody else was just doing, and gets done, or leaves to the next look.
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
        """Whether anything fired, was left out, could not be done, or was done by others."""
        return bool(self.fired or self.skipped or self.failed or self.busy)

    def note(self, schedule: Schedule, now: datetime) -> None:
        """Remember when this schedule is to be looked at next."""
        soonest = schedule.soonest(now)
        if soonest is None:
            return
        if soonest <= now and (schedule.waiting or schedule.firing):
            self.waiting = True
        elif self.soonest is None or soonest < self.soonest:
            self.soonest = soonest


@dataclass(frozen=True, slots=True)
class RunState:
    """A fire that was done, with what has become of its graph: its state, or "gone" where it was deleted."""

    run: Run
    state: str


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a schedule does not fire as it should, and what to do about it."""

    text: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class ScheduleDetail:
    """A schedule with its next fires, its last ones (the newest first), and what keeps it from firing."""

    schedule: Schedule
    upcoming: Sequence[datetime]
    runs: Sequence[RunState]
    overdue_seconds: float
    troubles: Sequence[Trouble]


class Schedules:
    """The schedules of one installation. changed: called when a person has made or changed one; it rings."""

    def __init__(self, handlers: Handlers, queries: Queries, changed: Callable[[], None] = lambda: None) -> None:
        self._handlers = handlers
        self._queries = queries
        self._changed = changed

    @property
    def _tables(self) -> Tables:
        return self._handlers.records.tables

    @property
    def _clock(self) -> Clock:
        return self._handlers.clock

    # --- by people ---

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
        for a time that has passed; Refused if there is another schedule of this name; TooLarge for a document that does
        not fit.
        """
        schedule_rules.check_name(name)
        schedule_rules.check_keep(keep)
        now = self._clock.now()
        given = recurrence
        recurrence = _anchored(recurrence, now)
        recurrence.check()
        parts = self._parts(name, document)
        schedule = Schedule(
            name=name,
            recurrence=recurrence,
            document=parts.id,
            digest=content_hash(document),
            tasks=len(document.tasks),
            created=now,
            updated=now,
            catch_up=catch_up,
            overlap=overlap,
            keep=keep,
            active=active,
            next=_first(recurrence, now),
        )
        columns = {**schedule_rules.new_columns(schedule), "operation": self._clock.new_id()}
        try:
            await self._tables.commit(SCHEDULES, [Insert(head_key(name), columns), *parts.rows])
        except (Conflict, Unclear) as error:
            (row,) = await self._tables.get(SCHEDULES, [head_key(name)])
            if row is None:
                raise Conflict(f"schedule {name} could not be written; try again") from error
            found = self._schedule(row)
            if row.columns.get("operation") == columns["operation"]:
                self._changed()
                return found, Written.CREATED
            if _same(found, dataclasses.replace(schedule, recurrence=given)):
                return found, Written.EXISTING
            raise Refused(
                f"there is another schedule {name}; change it with taskgraph schedule update {name}", "exists"
            ) from error
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
    ) -> Schedule:
        """Change what is given; a fire that has begun goes on as it began.

        times: what of the recurrence is to be other; its next time is then the first that is later than now. Fires that
        wait, and one that could not be submitted, take the new document. Raises NotFound, InvalidInput, TooLarge,
        Conflict if others keep changing it.
        """
        parts = self._parts(name, document) if document is not None else None
        for _ in range(_ATTEMPTS_MAX):
            row, before = await self._find(name)
            now = self._clock.now()
            after = dataclasses.replace(
                before,
                catch_up=before.catch_up if catch_up is None else catch_up,
                overlap=before.overlap if overlap is None else overlap,
                keep=before.keep if keep is None else schedule_rules.check_keep(keep),
            )
            new = before.recurrence if times is None else _anchored(times.over(before.recurrence), now)
            if new != before.recurrence:
                new.check()
                after = dataclasses.replace(after, recurrence=new, next=_first(new, now))
            changes: list[Change] = []
            if document is not None and parts is not None and (digest := content_hash(document)) != before.digest:
                after = dataclasses.replace(
                    after, document=parts.id, digest=digest, tasks=len(document.tasks), try_after=None
                )
                changes = list(parts.rows)
                if before.document != before.firing_document:
                    changes += await self._deletions(name, before.document)
            if after == before:
                return before
            try:
                await self._write(row, before, dataclasses.replace(after, updated=now), changes)
            except Conflict:
                continue
            self._changed()
            return dataclasses.replace(after, updated=now)
        raise _busy(name)

    async def activate(self, name: str) -> Schedule:
        """Let a schedule fire again; what came meanwhile fires only as its catch-up says. Raises NotFound."""
        return await self._change(name, active=True)

    async def deactivate(self, name: str) -> Schedule:
        """Let a schedule fire no more, until it is activated. Graphs that it has fired go on. Raises NotFound."""
        return await self._change(name, active=False)

    async def activate_all(self) -> list[Schedule]:
        """Let every schedule fire again; gives those that were inactive."""
        return await self._change_all(active=True)

    async def deactivate_all(self) -> list[Schedule]:
        """Let no schedule fire any more, until it is activated; gives those that were active."""
        return await self._change_all(active=False)

    async def _change_all(self, *, active: bool) -> list[Schedule]:
        changed = []
        for each in await self.listed():
            if each.active != active:
                with contextlib.suppress(NotFound):  # deleted meanwhile
                    changed.append(await self._change(each.name, active=active))
        return changed

    async def _change(self, name: str, *, active: bool) -> Schedule:
        for _ in range(_ATTEMPTS_MAX):
            row, before = await self._find(name)
            change = schedule_rules.activated if active else schedule_rules.deactivated
            now = self._clock.now()
            after = change(before, now)
            if after == before:
                return before
            if active:
                after = schedule_rules.set_right(after, now)
            try:
                await self._write(row, before, after)
            except Conflict:
                continue
            self._changed()
            return after
        raise _busy(name)

    async def delete(self, name: str) -> Schedule:
        """Delete a schedule; graphs that it has fired stay. Raises NotFound.

        A fire that has begun is finished first.
        """
        for _ in range(_ATTEMPTS_MAX):
            row, schedule = await self._find(name)
            if schedule.firing is not None:
                await self._finish(row, schedule, self._clock.now(), Looked())
                continue
            changes: list[Change] = [Delete(row.key, row.etag), *await self._deletions(name)]
            try:
                await self._tables.commit(SCHEDULES, changes)
            except (Conflict, Unclear):
                (left,) = await self._tables.get(SCHEDULES, [row.key])
                if left is not None:
                    continue
            return schedule
        raise _busy(name)

    async def run_now(self, name: str) -> Submission:
        """Submit the schedule's graph now, whatever its times, its overlap, and whether it is active.

        Raises NotFound, InvalidGraph if the document is invalid by now.
        """
        row, schedule = await self._find(name)
        now = self._clock.now()
        due = now.replace(microsecond=0)
        run = Run(manual_graph_id_of(name, now), due, now, manual=True)
        document = await self._document(schedule, schedule.document)
        submission = await submit(self._handlers, run.graph_id, document, origin=_origin(name, due))
        for _ in range(_ATTEMPTS_MAX):
            try:
                await self._write(row, schedule, schedule_rules.with_run(schedule, run))
            except Conflict:
                row, schedule = await self._find(name)
            else:
                return submission
        raise _busy(name)

    # --- questions ---

    async def listed(self) -> list[Schedule]:
        """All schedules by name. A row that holds none is left out, with a warning in the log."""
        found = []
        for row in await self._heads():
            try:
                found.append(self._schedule(row))
            except IntegrityError as error:
                log.warning("%s", error)
        return found

    async def show(self, name: str) -> ScheduleDetail:
        """A schedule with its next and last fires, and what keeps it from firing. Raises NotFound."""
        _, schedule = await self._find(name)
        now = self._clock.now()
        states = [RunState(run, await self._state(run.graph_id)) for run in reversed(schedule.runs)]
        return ScheduleDetail(
            schedule=schedule,
            upcoming=_upcoming(schedule, now),
            runs=states,
            overdue_seconds=schedule_rules.overdue(schedule, now).total_seconds(),
            troubles=await self._troubles(schedule, now),
        )

    async def document(self, name: str) -> GraphDocument:
        """The graph that a schedule submits. Raises NotFound, InvalidGraph if it is invalid by now."""
        _, schedule = await self._find(name)
        return await self._document(schedule, schedule.document)

    async def _troubles(self, schedule: Schedule, now: datetime) -> list[Trouble]:
        name = schedule.name
        found = []
        if not schedule.active:
            found.append(Trouble("it is inactive", f"taskgraph schedule activate {name}"))
        if schedule.error:
            again = f"; it is tried again at {_clocked(schedule.try_after)}" if schedule.try_after else ""
            often = f" ({schedule.errors} times in a row)" if schedule.errors > 1 else ""
            mend = f"mend the graph and give it with taskgraph schedule update {name} FILE"
            found.append(Trouble(f"it could not fire{often}: {schedule.error}{again}", mend))
        if schedule_rules.set_right(schedule, now) is not schedule:
            found.append(
                Trouble(
                    "its times are of a clock that was ahead; they are set right when the clocks of all who keep house "
                    "have agreed for a day",
                    f"at once: taskgraph schedule deactivate {name}, and activate",
                )
            )
        late = schedule_rules.overdue(schedule, now)
        if late and not schedule.error:
            holding = await self._not_over(schedule, set()) if schedule.overlap is not Overlap.ALLOW else None
            if schedule.waiting and holding is not None:
                found.append(
                    Trouble(
                        f"{len(schedule.waiting)} due, the first since {_clocked(schedule.waiting[0])}, and graph "
                        f"{holding} is not over",
                        f"taskgraph status {holding}",
                    )
                )
            else:
                found.append(
                    Trouble(
                        f"it is overdue by {late.total_seconds():.0f} s: nobody looks at the schedules of this store",
                        "run taskgraph serve, or the function app",
                    )
                )
        if schedule.next is None and not schedule.waiting and schedule.firing is None:
            found.append(Trouble("it has fired for the last time: no further time is to come"))
        return found

    # --- by the clock ---

    async def look(self) -> Looked:
        """Look at every schedule once, and fire what is due. What fails with one keeps none of the others.

        Raises StorageUnavailable; whatever had begun is gone on with by the next look.
        """
        now = self._clock.now()
        looked = Looked()
        for row in await self._heads():
            looked.schedules += 1
            try:
                schedule = self._schedule(row)
                row, schedule = await self._set_right(row, schedule)
                soonest = schedule.soonest(now)
                if soonest is not None and soonest <= now:
                    schedule = await self._fire(row, schedule, now, looked)
                looked.note(schedule, now)
            except (Conflict, Unclear) as error:
                # That others came first is no failure: of many who look at once it is so with all but one. But where
                # nobody has written the row, it is not so.
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
        """The schedule without times of a clock that was ahead, once those who keep house have agreed for a day.

        Until then it cannot be told who is wrong, and two that differ would set each other right for ever.
        """
        now = self._clock.now()  # later than the row was read, however long this look has stood still
        right = schedule_rules.set_right(schedule, now)
        if not schedule.active or right is schedule or not await clock_trust.may_end(self._tables, now):
            return row, schedule
        words = "schedule %s was to fire next at %s, by a clock that was ahead: it is set right, to %s"
        log.warning(words, schedule.name, schedule.next, right.next)
        return await self._write(row, schedule, right), right

    async def _fire(self, row: Row, schedule: Schedule, now: datetime, looked: Looked) -> Schedule:
        """Take a schedule as far as it goes now."""
        for _ in range(limits.SCHEDULE_FIRES_MAX):
            if schedule.firing is None:
                moved = schedule_rules.collect(schedule, now)
                if schedule_rules.may_begin(moved, now):
                    moved = await self._begun(moved)
                if moved != schedule:
                    row = await self._write(row, schedule, moved)
                    looked.skipped += moved.skipped - schedule.skipped
                    schedule = moved
            if schedule.firing is None:
                return schedule
            row, schedule = await self._finish(row, schedule, now, looked)
        return schedule

    async def _begun(self, schedule: Schedule) -> Schedule:
        """The schedule with its first fire begun, or held up by the graph of an earlier one."""
        while schedule.ahead is not None and schedule.waiting and (first := schedule.waiting[0]) < schedule.ahead:
            if await self._state(graph_id_of(schedule.name, first)) == _GONE:
                break
            schedule = schedule_rules.passed_over(schedule)
        if not schedule.waiting:
            return schedule
        if schedule.overlap is Overlap.ALLOW:
            return schedule_rules.begin(schedule)
        ended: set[str] = set()
        holding = await self._not_over(schedule, ended)
        schedule = schedule_rules.over(schedule, frozenset(ended))
        if holding is None:
            return schedule_rules.begin(schedule)
        if schedule.overlap is Overlap.CANCEL and await self._state(holding) != GraphState.CANCELLING:
            reason = f"schedule {schedule.name} is due again, and cancels what is not over by then"
            await self._handlers.tell([Cancel(holding, reason=reason)])
        return schedule_rules.held_up(schedule)

    async def _not_over(self, schedule: Schedule, ended: set[str]) -> str | None:
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
        state = await self._state(graph_id)
        if state == GraphState.BLOCKED:
            return not await self._queries.busy(graph_id)
        return state in _GONE_STATES or state in GRAPH_ENDED

    async def _state(self, graph_id: str) -> str:
        (graph,) = await self._tables.get(graph_id, [GRAPH])
        return _GONE if graph is None else str(graph.columns.get("state", ""))

    async def _finish(self, row: Row, schedule: Schedule, now: datetime, looked: Looked) -> tuple[Row, Schedule]:
        """Submit the graph of the fire that has begun, and say on the schedule's row that it is, or why it is not."""
        if schedule.firing is None:
            raise IntegrityError(f"schedule {schedule.name}: no fire has begun")
        graph_id = graph_id_of(schedule.name, schedule.firing)
        try:
            document = await self._document(schedule, schedule.firing_document)
            await submit(self._handlers, graph_id, document, origin=_origin(schedule.name, schedule.firing))
        except (Conflict, Unclear, StorageUnavailable):
            raise
        except TaskgraphError as error:
            after = await self._refused(schedule, graph_id, error, now)
            if after.error:
                looked.failed.append(f"{row.key}: {after.error}")
        else:
            after = schedule_rules.done(schedule, now)
        unused = schedule.firing_document not in (after.document, after.firing_document)
        changes = await self._deletions(schedule.name, schedule.firing_document) if unused else []
        row = await self._write(row, schedule, after, changes)
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
            return schedule_rules.dropped(
                schedule, f"graph {graph_id} was submitted by somebody else, with other content"
            )
        return schedule_rules.failed(schedule, _reason(error), now)

    # --- rows ---

    async def _heads(self) -> list[Row]:
        return await query_all(self._tables, SCHEDULES, Range(*schedule_rules.HEADS))

    def _schedule(self, row: Row) -> Schedule:
        schema = row.columns.get("schema", 1)
        if isinstance(schema, int) and schema > SCHEMA_MAX:
            raise IntegrityError(f"row {row.key} was written by a newer version of taskgraph, and is left to it")
        return schedule_rules.schedule_of(row.columns)

    async def _find(self, name: str) -> tuple[Row, Schedule]:
        """The row of a schedule. Raises NotFound, with the nearest names."""
        schedule_rules.check_name(name)
        (row,) = await self._tables.get(SCHEDULES, [head_key(name)])
        if row is None:
            names = [str(each.columns.get("name", "")) for each in await self._heads()]
            raise NotFound(f"there is no schedule {name}", difflib.get_close_matches(name, names, _NEAR, 0.5))
        return row, self._schedule(row)

    async def _write(self, row: Row, before: Schedule, after: Schedule, changes: Sequence[Change] = ()) -> Row:
        """Write a schedule over the row that it was read from. Raises Conflict if that has changed; see P17."""
        operation = self._clock.new_id()
        columns: dict[str, Value] = {**schedule_rules.changed_columns(before, after), "operation": operation}
        try:
            etag, *_ = await self._tables.commit(SCHEDULES, [Merge(row.key, row.etag, columns), *changes])
        except (Conflict, Unclear) as error:
            (found,) = await self._tables.get(SCHEDULES, [row.key])
            if found is None or found.columns.get("operation") != operation:
                raise Conflict(f"schedule {after.name}: others have written it; look again") from error
            return found
        return Row(row.key, etag or "", {**row.columns, **columns})

    def _parts(self, name: str, document: GraphDocument) -> "_Parts":
        """The rows of a document. Raises TooLarge."""
        text = canonical_json(document_object(document))
        if (units := utf16_units(text)) > limits.SCHEDULE_DOCUMENT_CHARS_MAX:
            raise TooLarge(
                f"the graph has {units:,} characters; a schedule holds one of {limits.SCHEDULE_DOCUMENT_CHARS_MAX:,}: "
                "let a small one add the tasks with taskgraph extend"
            )
        key = self._clock.new_id()
        rows = [
            Insert(schedule_rules.document_key(name, key, number), {"schema": SCHEMA, **spread("text", piece)})
            for number, piece in enumerate(split_text(text, _PART_CHARS))
        ]
        if document.values:
            first = {**rows[0].columns, **spread("params", canonical_json(document.values))}
            rows[0] = Insert(rows[0].key, first)
        if sum(map(row_bytes, rows)) > limits.COMMIT_BYTES_MAX:
            raise TooLarge("the graph takes more bytes than one commit; let a small one add the tasks by an extension")
        return _Parts(key, rows)

    async def _part_rows(self, name: str, document: str = "") -> list[Row]:
        start = f"document:{name}:{document}{':' if document else ''}"
        return await query_all(self._tables, SCHEDULES, Range(start, start[:-1] + ";"))

    async def _deletions(self, name: str, document: str = "") -> list[Change]:
        """Deletions of the rows of a document, or of all of a schedule."""
        return [Delete(row.key, row.etag) for row in await self._part_rows(name, document)]

    async def _document(self, schedule: Schedule, document: str) -> GraphDocument:
        """The graph of a schedule, checked. Raises InvalidGraph; Conflict if it was replaced meanwhile."""
        parts = await self._part_rows(schedule.name, document)
        if not parts:
            (row,) = await self._tables.get(SCHEDULES, [head_key(schedule.name)])
            if row is None or document not in (row.columns.get("document"), row.columns.get("firingDocument")):
                raise Conflict(f"schedule {schedule.name} was changed or deleted meanwhile; look again")
            raise IntegrityError(f"schedule {schedule.name}: the rows of its graph are gone; update it with a FILE")
        text = "".join(gathered(part.columns, "text") for part in parts)
        values = gathered(parts[0].columns, "params")
        given = Given(read_json(values, source=f"schedule {schedule.name}: params")) if values else NOTHING_GIVEN
        return read_document(text, source=f"schedule {schedule.name}", given=given)


_GONE: Final = "gone"
_GONE_STATES: Final = frozenset({_GONE, GraphState.DELETING, GraphState.DELETED})


@dataclass(frozen=True, slots=True)
class _Parts:
    """A document as rows, and the id that they bear."""

    id: str
    rows: list[Insert]


def _busy(name: str) -> Conflict:
    return Conflict(f"schedule {name}: others keep writing it; try again")


def _origin(name: str, due: datetime) -> dict[str, Value]:
    return {"schedule": name, "firedFor": due}


def _anchored(recurrence: Recurrence, now: datetime) -> Recurrence:
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
    """Whether a schedule is what somebody wants to create."""
    wanted = given.recurrence
    if wanted.every and wanted.anchor is None:
        wanted = dataclasses.replace(wanted, anchor=found.recurrence.anchor)
    wanted = dataclasses.replace(wanted, anchor=_whole(wanted.anchor), at=_whole(wanted.at))
    return (found.digest, found.recurrence, found.catch_up, found.overlap, found.keep, found.active) == (
        given.digest,
        wanted,
        given.catch_up,
        given.overlap,
        given.keep,
        given.active,
    )


def _upcoming(schedule: Schedule, now: datetime) -> list[datetime]:
    """Times of the next fires, with those that are due and have not begun; of an inactive one, times to come."""
    if schedule.next is None:
        return []
    times = itertools.chain([schedule.next], schedule.recurrence.times(schedule.next))
    if not schedule.active:
        times = itertools.chain(schedule.recurrence.times(now))
    return list(itertools.islice(times, UPCOMING))


def _clocked(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _reason(error: TaskgraphError) -> str:
    if isinstance(error, InvalidGraph):
        first = error.problems[0]
        more = len(error.problems) - 1
        return f"{first.pointer}: {first.message} {first.remedy}" + (f" (and {more} more)" if more else "")
    return str(error) or type(error).__name__
