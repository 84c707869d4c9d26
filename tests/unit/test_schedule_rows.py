"""The row of a schedule to the letter, as other versions and explorers read it; and what clocks do to its times."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Final

import pytest

from taskgraph.documents.recurrence import Recurrence
from taskgraph.model import limits
from taskgraph.model.errors import IntegrityError, InvalidInput
from taskgraph.protocol.schedule_rules import (
    CatchUp,
    Overlap,
    Run,
    Schedule,
    begin,
    changed_columns,
    check_keep,
    columns_of,
    deactivated,
    done,
    dropped,
    failed,
    graph_id_of,
    may_begin,
    new_columns,
    over,
    schedule_of,
    set_right,
)

NOON: Final = datetime(2030, 1, 1, 12, tzinfo=UTC)
HOUR: Final = timedelta(hours=1)
CEST: Final = timezone(timedelta(hours=2))


def schedule(**more: Any) -> Schedule:
    given: dict[str, Any] = {"recurrence": Recurrence(cron="30 2 * * *", timezone="Europe/Berlin")}
    given |= {"document": "d1", "digest": "abc", "tasks": 3, "created": NOON, "updated": NOON + HOUR} | more
    return Schedule("nightly", **given)


WHOLE: Final = schedule(
    recurrence=Recurrence(every=60, anchor=NOON),
    catch_up=CatchUp.ALL,
    overlap=Overlap.QUEUE,
    keep=7,
    active=False,
    next=NOON + 2 * HOUR,
    waiting=(NOON, NOON + HOUR),
    firing=NOON - HOUR,
    firing_document="d0",
    runs=(Run("nightly-1", NOON, NOON + HOUR, manual=True), Run("nightly-2", NOON, NOON, over=True)),
    last_fired=NOON - 2 * HOUR,
    fired=4,
    skipped=5,
    error="no such “thing”",
    errors=6,
    try_after=NOON + 3 * HOUR,
    ahead=NOON + 4 * HOUR,
    by="ann@build-1",
)

COLUMNS: Final = {
    "schema": 1,
    "name": "nightly",
    "active": False,
    "cron": "",
    "timezone": "",
    "every": 60,
    "anchor": NOON,
    "at": "",
    "catchUp": "all",
    "overlap": "queue",
    "keep": 7,
    "document": "d1",
    "digest": "abc",
    "tasks": 3,
    "created": NOON,
    "updated": NOON + HOUR,
    "next": NOON + 2 * HOUR,
    "waiting": '["2030-01-01T12:00:00Z","2030-01-01T13:00:00Z"]',
    "firing": NOON - HOUR,
    "firingDocument": "d0",
    "runs": '[{"graph":"nightly-1","for":"2030-01-01T12:00:00Z","fired":"2030-01-01T13:00:00Z","manual":true},'
    '{"graph":"nightly-2","for":"2030-01-01T12:00:00Z","fired":"2030-01-01T12:00:00Z","over":true}]',
    "lastFired": NOON - 2 * HOUR,
    "fired": 4,
    "skipped": 5,
    "error": "no such “thing”",
    "errors": 6,
    "tryAfter": NOON + 3 * HOUR,
    "firedAhead": NOON + 4 * HOUR,
    "by": "ann@build-1",
}


def test_the_columns_of_a_schedule() -> None:
    assert columns_of(WHOLE) == COLUMNS
    assert schedule_of(COLUMNS) == WHOLE
    once = schedule(recurrence=Recurrence(at=NOON))
    assert (columns_of(once)["at"], schedule_of(columns_of(once))) == (NOON, once)


def test_a_new_schedule_has_no_column_that_says_nothing() -> None:
    assert new_columns(schedule()) == {
        "schema": 1,
        "name": "nightly",
        "active": True,
        "cron": "30 2 * * *",
        "timezone": "Europe/Berlin",
        "every": 0,
        "catchUp": "last",
        "overlap": "skip",
        "keep": limits.SCHEDULE_FIRES_MAX,
        "document": "d1",
        "digest": "abc",
        "tasks": 3,
        "created": NOON,
        "updated": NOON + HOUR,
        "waiting": "[]",
        "runs": "[]",
        "fired": 0,
        "skipped": 0,
        "errors": 0,
    }
    assert schedule_of(new_columns(schedule())) == schedule()


def test_a_row_of_few_columns_is_a_schedule_that_has_done_nothing() -> None:
    few = {"name": "nightly", "document": "d1", "created": NOON, "updated": NOON.isoformat(), "cron": "0 * * * *"}
    assert schedule_of(few) == Schedule(
        "nightly", Recurrence(cron="0 * * * *"), "d1", "", 0, NOON, NOON, catch_up=CatchUp.NONE
    )
    for wrong in ({"waiting": '["2030-01-01T12:00:00"]'}, {"fired": "4"}, {"created": ""}, {"catchUp": "some"}):
        with pytest.raises(IntegrityError, match="row schedule:nightly: it holds no schedule"):
            schedule_of(few | wrong)


def test_times_are_in_utc_wherever_they_come_from() -> None:
    assert graph_id_of("nightly", NOON.astimezone(CEST)) == graph_id_of("nightly", NOON) == "nightly-20300101T120000Z"
    text = schedule_of(COLUMNS | {"waiting": '["2030-01-01T14:00:00+02:00"]'})
    assert [str(moment) for moment in text.waiting] == ["2030-01-01 12:00:00+00:00"]


def test_what_changes_is_what_is_written() -> None:
    assert changed_columns(WHOLE, WHOLE) == {}
    ended = over(WHOLE, frozenset({"nightly-1"}))
    assert [run.over for run in ended.runs] == [True, True]
    assert list(changed_columns(WHOLE, ended)) == ["runs"]


def test_a_fire_that_is_done_leaves_nothing_of_its_trouble() -> None:
    after = done(WHOLE, NOON)
    assert (after.firing, after.firing_document, after.error, after.errors, after.try_after) == (None, "", "", 0, None)
    assert after.runs[-1] == Run("nightly-20300101T110000Z", NOON - HOUR, NOON)
    assert (after.fired, after.last_fired) == (5, NOON)


def test_a_fire_that_fails_waits_again_in_its_place_and_names_the_cause() -> None:
    after = failed(WHOLE, "no such thing", NOON)
    assert (after.error, after.errors, after.firing, after.firing_document) == ("no such thing", 7, None, "")
    assert after.waiting == (NOON - HOUR, NOON, NOON + HOUR)
    assert after.try_after == NOON + timedelta(seconds=limits.SCHEDULE_RETRY_SECONDS_MAX)
    given_up = dropped(WHOLE, "x" * 5_000)
    assert (given_up.firing, given_up.firing_document, given_up.errors, given_up.skipped) == (None, "", 7, 6)
    assert (given_up.try_after, len(given_up.error)) == (None, limits.REASON_CHARS_MAX)


@pytest.mark.parametrize("ended", [lambda one: done(one, NOON), lambda one: failed(one, "x", NOON)])
def test_what_has_not_begun_does_not_end(ended: Callable[[Schedule], Schedule]) -> None:
    with pytest.raises(IntegrityError, match="schedule nightly: no fire has begun"):
        ended(schedule())


def test_how_many_may_wait() -> None:
    assert [check_keep(keep) for keep in (1, limits.SCHEDULE_WAITING_MAX)] == [1, limits.SCHEDULE_WAITING_MAX]
    for keep in (0, limits.SCHEDULE_WAITING_MAX + 1):
        with pytest.raises(InvalidInput, match=f"keep {keep}: 1 to {limits.SCHEDULE_WAITING_MAX} fires may wait"):
            check_keep(keep)


def test_what_may_begin() -> None:
    late = timedelta(seconds=limits.SCHEDULE_LATE_SECONDS)
    waits = schedule(waiting=(NOON, NOON + HOUR))
    assert may_begin(waits, NOON)
    assert may_begin(waits, NOON - late)
    assert not may_begin(waits, NOON - late - timedelta(seconds=1))
    assert not may_begin(schedule(), NOON)
    assert not may_begin(schedule(waiting=(NOON,), firing=NOON), NOON)
    assert not may_begin(schedule(waiting=(NOON,), active=False), NOON)
    begun = begin(schedule(waiting=(NOON, NOON + HOUR), try_after=NOON))
    assert (begun.firing, begun.waiting, begun.firing_document, begun.try_after) == (NOON, (NOON + HOUR,), "d1", None)
    assert not may_begin(begun, NOON + 2 * HOUR)


def test_a_schedule_that_is_made_inactive_says_when() -> None:
    assert deactivated(schedule(), NOON + 2 * HOUR) == schedule(active=False, updated=NOON + 2 * HOUR)
    assert deactivated(WHOLE, NOON + 5 * HOUR) is WHOLE


HOURLY: Final = Recurrence(cron="0 * * * *", timezone="UTC")


def test_times_of_a_clock_that_may_be_right_stay() -> None:
    sound = schedule(recurrence=HOURLY, next=NOON + HOUR, waiting=(NOON,))
    assert set_right(sound, NOON) is sound
    assert set_right(schedule(recurrence=Recurrence(at=NOON)), NOON) == schedule(recurrence=Recurrence(at=NOON))


@pytest.mark.parametrize("what", ["next", "waiting"])
def test_times_of_a_clock_far_ahead_come_anew(what: str) -> None:
    year = timedelta(days=365)
    times = {"next": NOON + year} if what == "next" else {"next": NOON + HOUR, "waiting": (NOON, NOON + year)}
    off = schedule(recurrence=HOURLY, **times)
    right = set_right(off, NOON)
    assert right.next == NOON + HOUR
    assert right.ahead == NOON + year
    assert right.waiting == ((NOON,) if what == "waiting" else ())
    assert (right.recurrence, right.created) == (HOURLY, NOON)


def test_a_schedule_of_a_clock_far_ahead_begins_now() -> None:
    """Its anchor was the time of its creation where nothing was named; one that was named stays."""
    ahead = NOON + timedelta(days=365)
    off = schedule(recurrence=Recurrence(every=60, anchor=ahead), created=ahead + timedelta(microseconds=7), next=ahead)
    now = NOON + timedelta(microseconds=9)
    right = set_right(off, now)
    assert (right.created, right.recurrence.anchor, right.next) == (now, NOON, NOON + timedelta(seconds=60))
    named = schedule(recurrence=Recurrence(every=60, anchor=NOON), created=ahead, next=ahead)
    assert set_right(named, now).recurrence == named.recurrence
