"""The rules of schedules, as functions over values: a schedule, its row, and each step of a fire.

A fire goes through the row in steps, so that a process that dies in between loses nothing: it is *collected* (`next`
moves on and the time waits), it *begins* (its time and its document are pinned), its graph is submitted under an id
made of the schedule's name and that time, and it is *done*. What has begun is always finished, with what was pinned;
and submitting the same graph twice is submitting it once.
"""

import dataclasses
import itertools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from taskgraph.documents.recurrence import Recurrence
from taskgraph.model import limits
from taskgraph.model.columns import Columns, Value
from taskgraph.model.errors import IntegrityError, InvalidInput
from taskgraph.model.foreign_times import holds
from taskgraph.model.ids import value
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


@value
class Run:
    """One fire that was done. due: the time that it was for. over: whether its graph is known to be over."""

    graph_id: str
    due: datetime
    fired: datetime
    manual: bool = False
    over: bool = False


@value
class Schedule:
    """A schedule as its row holds it.

    next: when it is due next; None when there is no such time any more. waiting: times that were due and have not
    begun. firing: the time of the fire that has begun, with the document pinned for it. document: id of the rows that
    hold the graph. keep: how many fires may wait (overlap queue). error: why the fire at hand could not be submitted;
    errors: how often in a row; try_after: when it is tried again. ahead: before this, a clock that was ahead may have
    fired times already. by: who made it, or changed it last.
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
    by: str = ""

    def soonest(self, now: datetime) -> datetime | None:
        """When to look at it next; None if time alone makes nothing due."""
        if self.firing is not None or (self.active and self.waiting):
            return self.try_after if self.rests(now) else min(self.created, now)
        return self.next if self.active else None

    def rests(self, now: datetime) -> bool:
        """Whether a fire that could not be submitted is not tried again yet."""
        return holds(self.try_after, now, limits.SCHEDULE_RETRY_SECONDS_MAX)


def check_name(name: str) -> str:
    """The name as given. Raises InvalidInput."""
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            f"“{name[:80]}” cannot be the name of a schedule: 1 to 40 letters, digits, - and _, the first a letter or "
            "a digit"
        )
    return name


def check_keep(keep: int) -> int:
    if not 1 <= keep <= limits.SCHEDULE_WAITING_MAX:
        raise InvalidInput(f"keep {keep}: 1 to {limits.SCHEDULE_WAITING_MAX} fires may wait")
    return keep


def graph_id_of(name: str, due: datetime) -> str:
    """The graph id of a fire: the same in every process that fires it."""
    return f"{name}-{due.astimezone(UTC).strftime(_STAMP)}"


def manual_graph_id_of(name: str, asked: datetime) -> str:
    """The graph id of a fire by hand: to the millisecond, so that each has its own."""
    moment = asked.astimezone(UTC)
    return f"{name}-{moment.strftime(_STAMP[:-1])}{moment.microsecond // 1000:03}Z-now"


def head_key(name: str) -> str:
    return f"schedule:{name}"


def document_key(name: str, document: str, part: int) -> str:
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
    """Whether a fire may begin now, as far as the schedule says; `overlap` is not looked at."""
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
    """Drop the first time that waits: a clock that was ahead has fired it."""
    return dataclasses.replace(schedule, waiting=schedule.waiting[1:])


def begin(schedule: Schedule) -> Schedule:
    first, *others = schedule.waiting
    return dataclasses.replace(
        schedule, waiting=tuple(others), firing=first, firing_document=schedule.document, try_after=None
    )


def held_up(schedule: Schedule) -> Schedule:
    """Apply the overlap policy to the fires that wait, as the graph of an earlier one is not over."""
    kept = {Overlap.SKIP: 0, Overlap.CANCEL: 1}.get(schedule.overlap, len(schedule.waiting))
    left_out = len(schedule.waiting) - kept
    return dataclasses.replace(schedule, waiting=schedule.waiting[left_out:], skipped=schedule.skipped + left_out)


def over(schedule: Schedule, graph_ids: frozenset[str]) -> Schedule:
    runs = tuple(dataclasses.replace(run, over=run.over or run.graph_id in graph_ids) for run in schedule.runs)
    return dataclasses.replace(schedule, runs=runs)


def done(schedule: Schedule, now: datetime) -> Schedule:
    if schedule.firing is None:
        raise IntegrityError(f"schedule {schedule.name}: no fire has begun")
    run = Run(graph_id_of(schedule.name, schedule.firing), schedule.firing, now)
    return _without_firing(with_run(schedule, run), error="", errors=0, try_after=None)


def with_run(schedule: Schedule, run: Run) -> Schedule:
    """The schedule with one more finished fire; one that is listed already changes nothing."""
    if any(each.graph_id == run.graph_id for each in schedule.runs):
        return schedule
    runs = (*schedule.runs, run)[-limits.SCHEDULE_RUNS_KEPT_MAX :]
    return dataclasses.replace(schedule, runs=runs, last_fired=run.fired, fired=schedule.fired + 1)


def failed(schedule: Schedule, reason: str, now: datetime) -> Schedule:
    """The fire that has begun cannot be submitted, and nothing of it was: it waits again, in its place.

    It takes the document that the schedule has when it is tried again, so that a new document may mend it.
    """
    if schedule.firing is None:
        raise IntegrityError(f"schedule {schedule.name}: no fire has begun")
    pause = min(_TRY_AGAIN_SECONDS * 2 ** min(schedule.errors, _DOUBLINGS_MAX), limits.SCHEDULE_RETRY_SECONDS_MAX)
    waiting, try_after = (schedule.firing, *schedule.waiting), now + timedelta(seconds=pause)
    return _without_firing(_with_error(schedule, reason), waiting=waiting, try_after=try_after)


def dropped(schedule: Schedule, reason: str) -> Schedule:
    """The fire that has begun can never be submitted, as another graph has its id: it is left out."""
    return _without_firing(_with_error(schedule, reason), skipped=schedule.skipped + 1, try_after=None)


def _without_firing(schedule: Schedule, **changes: Any) -> Schedule:
    return dataclasses.replace(schedule, firing=None, firing_document="", **changes)


def _with_error(schedule: Schedule, reason: str) -> Schedule:
    return dataclasses.replace(schedule, error=reason[: limits.REASON_CHARS_MAX], errors=schedule.errors + 1)


def activated(schedule: Schedule, now: datetime) -> Schedule:
    """The schedule, active. Times missed meanwhile fire only as `catch_up` says."""
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
    """The schedule, inactive: nothing more begins; what has begun is finished."""
    return dataclasses.replace(schedule, active=False, updated=now) if schedule.active else schedule


def overdue(schedule: Schedule, now: datetime) -> timedelta:
    """By how much the soonest fire is later than the pace of looks explains; zero if it is not."""
    if not schedule.active:
        return timedelta()
    first = schedule.firing or (schedule.waiting[0] if schedule.waiting else schedule.next)
    usual = timedelta(seconds=2 * limits.SCHEDULE_LOOK_SECONDS)
    return now - first if first is not None and now - first > usual else timedelta()


# --- rows ------------------------------------------------------------------------------------------------------


def columns_of(schedule: Schedule) -> dict[str, Value]:
    """The row of a schedule. A column without a value is ""."""
    columns: dict[str, Value] = {"schema": SCHEMA}
    for name in _RECURRENCE:
        columns[name] = _written(getattr(schedule.recurrence, name))
    for name, (attribute, _) in _COLUMNS.items():
        columns[name] = _written(getattr(schedule, attribute))
    return columns


def new_columns(schedule: Schedule) -> dict[str, Value]:
    """The row of a new schedule, without columns that are empty."""
    return {name: value for name, value in columns_of(schedule).items() if value != ""}


def changed_columns(before: Schedule, after: Schedule) -> dict[str, Value]:
    old = columns_of(before)
    return {name: value for name, value in columns_of(after).items() if old[name] != value}


def schedule_of(columns: Columns) -> Schedule:
    """The schedule that a row holds. Raises IntegrityError for a row that holds none."""
    name = str(columns.get("name", ""))
    try:
        recurrence = Recurrence(**{each: read(columns, each) for each, read in _RECURRENCE.items()})
        read_columns = {attribute: read(columns, each) for each, (attribute, read) in _COLUMNS.items()}
        return Schedule(recurrence=recurrence, **read_columns)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise IntegrityError(f"row {head_key(name)}: it holds no schedule: {error!r}") from error


def _written(value: Any) -> Value:
    if isinstance(value, tuple):
        listed = [_run_object(each) if isinstance(each, Run) else _time_text(each) for each in value]
        return json.dumps(listed, ensure_ascii=False, separators=(",", ":"))
    if isinstance(value, StrEnum):
        return str(value)
    return "" if value is None else value


def _time_text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _time_of(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text}: no time zone")
    return moment.astimezone(UTC)


def _text(columns: Columns, name: str) -> str:
    return str(columns.get(name, ""))


def _number(columns: Columns, name: str) -> int:
    number = columns.get(name, 0)
    if not isinstance(number, int):
        raise TypeError(f"{name} is {number!r}")
    return number


def _moment(columns: Columns, name: str) -> datetime | None:
    value = columns.get(name, "")
    if isinstance(value, datetime):
        return value
    return _time_of(str(value)) if value else None


def _needed_moment(columns: Columns, name: str) -> datetime:
    moment = _moment(columns, name)
    if moment is None:
        raise ValueError(f"no {name}")
    return moment


def _moments(columns: Columns, name: str) -> tuple[datetime, ...]:
    return tuple(_time_of(text) for text in json.loads(str(columns.get(name, "[]"))))


def _run_object(run: Run) -> dict[str, Any]:
    made: dict[str, Any] = {"graph": run.graph_id, "for": _time_text(run.due), "fired": _time_text(run.fired)}
    if run.manual:
        made["manual"] = True
    if run.over:
        made["over"] = True
    return made


def _runs(columns: Columns, name: str) -> tuple[Run, ...]:
    return tuple(
        Run(
            graph_id=str(made["graph"]),
            due=_time_of(made["for"]),
            fired=_time_of(made["fired"]),
            manual=bool(made.get("manual", False)),
            over=bool(made.get("over", False)),
        )
        for made in json.loads(str(columns.get(name, "[]")))
    )


_Read = Callable[[Columns, str], Any]

_RECURRENCE: Final[Mapping[str, _Read]] = {
    "cron": _text,
    "timezone": _text,
    "every": _number,
    "anchor": _moment,
    "at": _moment,
}
"""Columns of the recurrence, named as its attributes are, and how each is read."""

_COLUMNS: Final[Mapping[str, tuple[str, _Read]]] = {
    "name": ("name", _text),
    "active": ("active", lambda columns, name: bool(columns.get(name, True))),
    "catchUp": ("catch_up", lambda columns, name: CatchUp(str(columns.get(name, CatchUp.NONE)))),
    "overlap": ("overlap", lambda columns, name: Overlap(str(columns.get(name, Overlap.SKIP)))),
    "keep": ("keep", lambda columns, name: _number(columns, name) or limits.SCHEDULE_FIRES_MAX),
    "document": ("document", lambda columns, name: str(columns[name])),
    "digest": ("digest", _text),
    "tasks": ("tasks", _number),
    "created": ("created", _needed_moment),
    "updated": ("updated", _needed_moment),
    "next": ("next", _moment),
    "waiting": ("waiting", _moments),
    "firing": ("firing", _moment),
    "firingDocument": ("firing_document", _text),
    "runs": ("runs", _runs),
    "lastFired": ("last_fired", _moment),
    "fired": ("fired", _number),
    "skipped": ("skipped", _number),
    "error": ("error", _text),
    "errors": ("errors", _number),
    "tryAfter": ("try_after", _moment),
    "firedAhead": ("ahead", _moment),
    "by": ("by", _text),
}
"""Every other column: the attribute of the schedule that it holds, and how it is read."""
