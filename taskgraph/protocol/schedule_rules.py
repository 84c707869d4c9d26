"""The rules of schedules: what is due, what waits, what may begin, what is left out. Values in, values out.

What this room is for: a schedule as a value, its row, and each step of its life. It never reads a clock or a store.

A fire goes through the row in steps, so that whatever dies in between is gone on with: it is *collected* (`next` moves
on and the time waits), it *begins* (its time and its document are pinned; both of these in one commit, mostly), its
graph is submitted under an id made of the schedule's name and that time, and it is *done*. What has begun is always
finished, with what was pinned, whatever changes the schedule meanwhile; and submitting the same graph twice is
submitting it once.
"""

import dataclasses
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from taskgraph.documents.recurrence import Recurrence
from taskgraph.model import limits
from taskgraph.model.columns import Columns, Value
from taskgraph.model.errors import IntegrityError, InvalidInput
from taskgraph.model.foreign_times import holds
from taskgraph.protocol.definitions import SCHEMA

SCHEDULES: Final = "index:schedules"
"""Partition of all schedules; no graph has such an id."""

HEADS: Final = ("schedule:", "schedule;")
"""Range of their own rows, beside those of their documents."""

SCANNED_MAX: Final = 1_000
"""Times that are looked through one by one when a schedule was not looked at for long."""

_NAME: Final = re.compile(limits.SCHEDULE_NAME_PATTERN)
_STAMP: Final = "%Y%m%dT%H%M%SZ"
_TRY_AGAIN_SECONDS: Final = 60.0
_DOUBLINGS_MAX: Final = 10


class CatchUp(StrEnum):
    """What becomes of fires that were missed: late by more than limits.SCHEDULE_LATE_SECONDS."""

    NONE = "none"  # they are left out
    LAST = "last"  # the last one fires, if nothing is due on time
    ALL = "all"  # each fires, in order


class Overlap(StrEnum):
    """What becomes of a fire while the graph of an earlier one is not over."""

    SKIP = "skip"  # it is left out
    QUEUE = "queue"  # it waits, in order
    CANCEL = "cancel"  # the last one waits, and the graphs of earlier ones are cancelled
    ALLOW = "allow"  # it fires


@dataclass(frozen=True, slots=True)
class Run:
    """One fire that was done. due: the time that it was for. over: whether its graph is known to be over."""

    graph_id: str
    due: datetime
    fired: datetime
    manual: bool = False
    over: bool = False


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule as its row holds it.

    next: when it is due next; None when there is no such time any more. waiting: times that were due and have not
    begun. firing: the time of the fire that has begun, with the document pinned for it. document: id of the rows that
    hold the graph. keep: how many fires may wait (overlap queue). error: why the fire at hand could not be submitted;
    errors: how often in a row; try_after: when it is tried again. ahead: before this, a clock that was ahead may have
    fired times already.
    """

    name: str
    recurrence: Recurrence
    document: str
    digest: str
    tasks: int
    created: datetime
    updated: datetime
    catch_up: CatchUp = CatchUp.LAST
    overlap: Overlap = Overlap.SKIP
    keep: int = limits.SCHEDULE_FIRES_MAX
    active: bool = True
    next: datetime | None = None
    waiting: tuple[datetime, ...] = ()
    firing: datetime | None = None
    firing_document: str = ""
    runs: tuple[Run, ...] = ()
    last_fired: datetime | None = None
    fired: int = 0
    skipped: int = 0
    error: str = ""
    errors: int = 0
    try_after: datetime | None = None
    ahead: datetime | None = None

    def soonest(self, now: datetime) -> datetime | None:
        """When to look at it next, as far as time alone tells; None if time brings nothing."""
        if self.firing is not None or (self.active and self.waiting):
            return self.try_after if self.rests(now) else min(self.created, now)
        return self.next if self.active else None

    def rests(self, now: datetime) -> bool:
        """Whether a fire that could not be submitted is not tried again yet."""
        return holds(self.try_after, now, limits.SCHEDULE_RETRY_SECONDS_MAX)


def check_name(name: str) -> str:
    """The name, if it can be one. Raises InvalidInput."""
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            f"{name[:80]!r} cannot be the name of a schedule: 1 to 40 letters, digits, - and _, the first a letter or "
            "a digit"
        )
    return name


def check_keep(keep: int) -> int:
    """The number of fires that may wait, if it can be one. Raises InvalidInput."""
    if not 1 <= keep <= limits.SCHEDULE_WAITING_MAX:
        raise InvalidInput(f"keep {keep}: 1 to {limits.SCHEDULE_WAITING_MAX} fires may wait")
    return keep


def graph_id_of(name: str, due: datetime) -> str:
    """The id of the graph of a fire: the same for every process that fires it."""
    return f"{name}-{due.astimezone(UTC).strftime(_STAMP)}"


def manual_graph_id_of(name: str, asked: datetime) -> str:
    """The id of a graph that was asked for by hand: to the millisecond, so that each time brings one."""
    moment = asked.astimezone(UTC)
    return f"{name}-{moment.strftime(_STAMP[:-1])}{moment.microsecond // 1000:03}Z-now"


def head_key(name: str) -> str:
    """Row key of a schedule."""
    return f"schedule:{name}"


def document_key(name: str, document: str, part: int) -> str:
    """Row key of a part of a schedule's document."""
    return f"document:{name}:{document}:{part:04}"


# --- steps -----------------------------------------------------------------------------------------------------


def collect(schedule: Schedule, now: datetime) -> Schedule:
    """Let what is due wait, and move `next` on. What catch-up leaves out is counted as skipped, as far as it is seen.

    `next` never moves back, and only by its own times: clocks that disagree cannot make a time come twice.
    """
    if not schedule.active or schedule.next is None or schedule.next > now:
        return schedule
    every = schedule.catch_up is CatchUp.ALL
    queued = schedule.overlap is Overlap.QUEUE
    room = (schedule.keep if queued else limits.SCHEDULE_FIRES_MAX) - len(schedule.waiting)
    comes_later = every or not queued  # what finds no room is left out only where a number may wait
    if room <= 0 and comes_later:
        return schedule
    due, rest = _due(schedule.recurrence, schedule.next, now, room if every else SCANNED_MAX)
    wanted, skipped = due, 0
    if not every:
        wanted, skipped = _without_missed(schedule, due, rest is None or rest > now, now)
        if rest is not None and rest <= now:
            rest = schedule.recurrence.after(now)
    if len(wanted) > room:
        if comes_later:
            rest = wanted[room]
        else:
            skipped += len(wanted) - room
        wanted = wanted[:room]
    return dataclasses.replace(
        schedule, waiting=(*schedule.waiting, *wanted), next=rest, skipped=schedule.skipped + skipped
    )


def _due(recurrence: Recurrence, first: datetime, now: datetime, most: int) -> tuple[list[datetime], datetime | None]:
    """The times from `first` to now, at most so many, and the time after these."""
    due: list[datetime] = []
    for moment in itertools.chain([first], recurrence.times(first)):
        if moment > now or len(due) == most:
            return due, moment
        due.append(moment)
    return due, None


def _without_missed(
    schedule: Schedule, due: Sequence[datetime], whole: bool, now: datetime
) -> tuple[list[datetime], int]:
    """What fires of the times that are due, and how many were left out. whole: whether `due` is all of them."""
    late = now - timedelta(seconds=limits.SCHEDULE_LATE_SECONDS)
    recurrence = schedule.recurrence
    on_time = [moment for moment in due if moment >= late]
    left_out = len(due) - len(on_time)
    if not whole:
        since = max(late, due[-1])
        on_time += itertools.takewhile(lambda each: each <= now, recurrence.times(since))
    if on_time or schedule.catch_up is not CatchUp.LAST:
        return on_time, left_out
    last = due[-1] if whole else recurrence.latest(due[-1], now) or due[-1]
    return [last], left_out - 1


def may_begin(schedule: Schedule, now: datetime) -> bool:
    """Whether a fire may begin now, if no earlier one keeps it."""
    if not schedule.active or not schedule.waiting or schedule.firing is not None:
        return False
    return schedule.waiting[0] <= _bound(now) and not schedule.rests(now)


def _bound(now: datetime) -> datetime:
    """The latest time of a clock that may be right as well as ours."""
    return now + timedelta(seconds=limits.SCHEDULE_LATE_SECONDS)


def set_right(schedule: Schedule, now: datetime) -> Schedule:
    """The schedule without times that a clock far ahead of ours has come to; the same where there are none.

    A clock that may be right has moved `next` at most to the first time after `_bound`. Where it is later, it comes
    anew with the first time after now; and what waits for later comes when its time has come. Nothing is due by that,
    and what was fired ahead is known by its graph (`ahead`).
    """
    bound, recurrence = _bound(now), schedule.recurrence
    if schedule.created > bound and recurrence.anchor == schedule.created.replace(microsecond=0):
        recurrence = dataclasses.replace(recurrence, anchor=now.replace(microsecond=0))  # it was not given
    waiting = tuple(each for each in schedule.waiting if each <= bound)
    first = recurrence.after(bound)
    later = schedule.next is not None and first is not None and schedule.next > first
    if not later and len(waiting) == len(schedule.waiting):
        return schedule
    ahead = max(each for each in (schedule.ahead, schedule.next, *schedule.waiting) if each is not None)
    created, after = min(schedule.created, now), recurrence.after(now)
    return dataclasses.replace(
        schedule, recurrence=recurrence, created=created, waiting=waiting, next=after, ahead=ahead
    )


def passed_over(schedule: Schedule) -> Schedule:
    """The first time that waits was fired ahead of it."""
    return dataclasses.replace(schedule, waiting=schedule.waiting[1:])


def begin(schedule: Schedule) -> Schedule:
    """Begin the first fire that waits: pin its time and its document."""
    first, *others = schedule.waiting
    return dataclasses.replace(
        schedule, waiting=tuple(others), firing=first, firing_document=schedule.document, try_after=None
    )


def held_up(schedule: Schedule) -> Schedule:
    """What becomes of the fires that wait, as the graph of an earlier one is not over."""
    kept = {Overlap.SKIP: 0, Overlap.CANCEL: 1}.get(schedule.overlap, len(schedule.waiting))
    left_out = len(schedule.waiting) - kept
    return dataclasses.replace(schedule, waiting=schedule.waiting[left_out:], skipped=schedule.skipped + left_out)


def over(schedule: Schedule, graph_ids: frozenset[str]) -> Schedule:
    """Remember that the graphs of these fires are over."""
    runs = tuple(dataclasses.replace(run, over=run.over or run.graph_id in graph_ids) for run in schedule.runs)
    return dataclasses.replace(schedule, runs=runs)


def done(schedule: Schedule, now: datetime) -> Schedule:
    """The graph of the fire that has begun is submitted."""
    if schedule.firing is None:
        raise IntegrityError(f"schedule {schedule.name}: no fire has begun")
    run = Run(graph_id_of(schedule.name, schedule.firing), schedule.firing, now)
    return dataclasses.replace(
        with_run(schedule, run), firing=None, firing_document="", error="", errors=0, try_after=None
    )


def with_run(schedule: Schedule, run: Run) -> Schedule:
    """The schedule with one more fire that was done. One that is listed already changes nothing."""
    if any(each.graph_id == run.graph_id for each in schedule.runs):
        return schedule
    runs = (*schedule.runs, run)[-limits.SCHEDULE_RUNS_KEPT_MAX :]
    return dataclasses.replace(schedule, runs=runs, last_fired=run.fired, fired=schedule.fired + 1)


def failed(schedule: Schedule, reason: str, now: datetime) -> Schedule:
    """The fire that has begun cannot be submitted, and nothing of it was: it waits again, in its place.

    It takes the document that the schedule has when it is tried again, so that a new one may mend it.
    """
    if schedule.firing is None:
        raise IntegrityError(f"schedule {schedule.name}: no fire has begun")
    pause = min(_TRY_AGAIN_SECONDS * 2 ** min(schedule.errors, _DOUBLINGS_MAX), limits.SCHEDULE_RETRY_SECONDS_MAX)
    return dataclasses.replace(
        schedule,
        waiting=(schedule.firing, *schedule.waiting),
        firing=None,
        firing_document="",
        error=reason[: limits.REASON_CHARS_MAX],
        errors=schedule.errors + 1,
        try_after=now + timedelta(seconds=pause),
    )


def dropped(schedule: Schedule, reason: str) -> Schedule:
    """The fire that has begun can never be submitted: something else has its id. It is left out, and said."""
    return dataclasses.replace(
        schedule,
        firing=None,
        firing_document="",
        skipped=schedule.skipped + 1,
        error=reason[: limits.REASON_CHARS_MAX],
        errors=schedule.errors + 1,
        try_after=None,
    )


def activated(schedule: Schedule, now: datetime) -> Schedule:
    """The schedule, active. What came meanwhile fires only as catch-up says."""
    if schedule.active:
        return schedule
    active = dataclasses.replace(schedule, active=True, updated=now)
    if schedule.catch_up is not CatchUp.NONE or schedule.next is None:
        return active
    due, rest = _due(schedule.recurrence, schedule.next, now, SCANNED_MAX)
    return dataclasses.replace(
        active,
        waiting=(),
        skipped=schedule.skipped + len(schedule.waiting) + len(due),
        next=rest if rest is None or rest > now else schedule.recurrence.after(now),
    )


def deactivated(schedule: Schedule, now: datetime) -> Schedule:
    """The schedule, inactive: nothing begins any more. What has begun is finished."""
    return dataclasses.replace(schedule, active=False, updated=now) if schedule.active else schedule


def overdue(schedule: Schedule, now: datetime) -> timedelta:
    """By how much the soonest fire is later than looks at the schedules alone would make it; zero if it is not."""
    if not schedule.active:
        return timedelta()
    first = schedule.firing or (schedule.waiting[0] if schedule.waiting else schedule.next)
    usual = timedelta(seconds=2 * limits.SCHEDULE_LOOK_SECONDS)
    return now - first if first is not None and now - first > usual else timedelta()


# --- rows ------------------------------------------------------------------------------------------------------


def columns_of(schedule: Schedule) -> dict[str, Value]:
    """The row of a schedule. A column that has nothing to say is ""."""
    recurrence = schedule.recurrence
    columns: dict[str, Value] = {
        "schema": SCHEMA,
        "name": schedule.name,
        "active": schedule.active,
        "cron": recurrence.cron,
        "timezone": recurrence.timezone,
        "every": recurrence.every,
        "anchor": recurrence.anchor or "",
        "at": recurrence.at or "",
        "catchUp": str(schedule.catch_up),
        "overlap": str(schedule.overlap),
        "keep": schedule.keep,
        "document": schedule.document,
        "digest": schedule.digest,
        "tasks": schedule.tasks,
        "created": schedule.created,
        "updated": schedule.updated,
        "next": schedule.next or "",
        "waiting": _json([_text(moment) for moment in schedule.waiting]),
        "firing": schedule.firing or "",
        "firingDocument": schedule.firing_document,
        "runs": _json([_run_object(run) for run in schedule.runs]),
        "lastFired": schedule.last_fired or "",
        "fired": schedule.fired,
        "skipped": schedule.skipped,
        "error": schedule.error,
        "errors": schedule.errors,
        "tryAfter": schedule.try_after or "",
        "firedAhead": schedule.ahead or "",
    }
    return columns


def new_columns(schedule: Schedule) -> dict[str, Value]:
    """The row of a new schedule, without columns that have nothing to say yet."""
    return {name: value for name, value in columns_of(schedule).items() if value != ""}


def changed_columns(before: Schedule, after: Schedule) -> dict[str, Value]:
    """The columns in which two states of a schedule differ."""
    old = columns_of(before)
    return {name: value for name, value in columns_of(after).items() if old[name] != value}


def schedule_of(columns: Columns) -> Schedule:
    """The schedule that a row holds. Raises IntegrityError for a row that holds none."""
    name = str(columns.get("name", ""))
    try:
        return Schedule(
            name=name,
            recurrence=Recurrence(
                cron=str(columns.get("cron", "")),
                timezone=str(columns.get("timezone", "")),
                every=_number(columns, "every"),
                anchor=_moment(columns.get("anchor", "")),
                at=_moment(columns.get("at", "")),
            ),
            document=str(columns["document"]),
            digest=str(columns.get("digest", "")),
            tasks=_number(columns, "tasks"),
            created=_time(columns, "created"),
            updated=_time(columns, "updated"),
            catch_up=CatchUp(str(columns.get("catchUp", CatchUp.NONE))),
            overlap=Overlap(str(columns.get("overlap", Overlap.SKIP))),
            keep=_number(columns, "keep") or limits.SCHEDULE_FIRES_MAX,
            active=bool(columns.get("active", True)),
            next=_moment(columns.get("next", "")),
            waiting=tuple(_sure(text) for text in json.loads(str(columns.get("waiting", "[]")))),
            firing=_moment(columns.get("firing", "")),
            firing_document=str(columns.get("firingDocument", "")),
            runs=tuple(_run(each) for each in json.loads(str(columns.get("runs", "[]")))),
            last_fired=_moment(columns.get("lastFired", "")),
            fired=_number(columns, "fired"),
            skipped=_number(columns, "skipped"),
            error=str(columns.get("error", "")),
            errors=_number(columns, "errors"),
            try_after=_moment(columns.get("tryAfter", "")),
            ahead=_moment(columns.get("firedAhead", "")),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise IntegrityError(f"row {head_key(name)}: it holds no schedule: {error!r}") from error


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _sure(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text}: no time zone")
    return moment.astimezone(UTC)


def _moment(text: Value) -> datetime | None:
    if isinstance(text, datetime):
        return text
    return _sure(str(text)) if text else None


def _time(columns: Columns, name: str) -> datetime:
    moment = _moment(columns.get(name, ""))
    if moment is None:
        raise ValueError(f"no {name}")
    return moment


def _number(columns: Columns, name: str) -> int:
    number = columns.get(name, 0)
    if not isinstance(number, int):
        raise TypeError(f"{name} is {number!r}")
    return number


def _run_object(run: Run) -> dict[str, Any]:
    made: dict[str, Any] = {"graph": run.graph_id, "for": _text(run.due), "fired": _text(run.fired)}
    if run.manual:
        made["manual"] = True
    if run.over:
        made["over"] = True
    return made


def _run(made: Mapping[str, Any]) -> Run:
    return Run(
        graph_id=str(made["graph"]),
        due=_sure(made["for"]),
        fired=_sure(made["fired"]),
        manual=bool(made.get("manual", False)),
        over=bool(made.get("over", False)),
    )
