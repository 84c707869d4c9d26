"""The rules of schedules: what is collected, what is left out, what may begin, and what a row says of it."""

import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskgraph.documents.recurrence import Recurrence
from taskgraph.model import limits
from taskgraph.model.errors import IntegrityError, InvalidInput
from taskgraph.model.ids import is_graph_id
from taskgraph.protocol.schedule_rules import (
    SCANNED_MAX,
    CatchUp,
    Overlap,
    Run,
    Schedule,
    activated,
    begin,
    changed_columns,
    check_name,
    collect,
    columns_of,
    deactivated,
    done,
    dropped,
    failed,
    graph_id_of,
    held_up,
    manual_graph_id_of,
    may_begin,
    new_columns,
    overdue,
    schedule_of,
    with_run,
)

START = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)


def hourly(**more: Any) -> Schedule:
    """Due at 01:00, 02:00, … of the first of January 2026."""
    plain = Schedule(
        name="hourly",
        recurrence=Recurrence(every=3600, anchor=START),
        document="d",
        digest="",
        tasks=1,
        created=START,
        updated=START,
        next=START + HOUR,
    )
    return dataclasses.replace(plain, **more)


def hours(*numbers: float) -> tuple[datetime, ...]:
    return tuple(START + number * HOUR for number in numbers)


def test_nothing_is_collected_before_its_time() -> None:
    schedule = hourly()
    assert collect(schedule, START + HOUR - timedelta(microseconds=1)) is schedule
    assert collect(schedule, START + HOUR).waiting == hours(1)
    assert collect(schedule, START + HOUR).next == START + 2 * HOUR


@pytest.mark.parametrize("catch_up", list(CatchUp))
def test_what_is_due_on_time_fires_whatever_catch_up_says(catch_up: CatchUp) -> None:
    moved = collect(hourly(catch_up=catch_up), START + HOUR + timedelta(seconds=limits.SCHEDULE_LATE_SECONDS))
    assert (moved.waiting, moved.next, moved.skipped) == (hours(1), START + 2 * HOUR, 0)


@pytest.mark.parametrize(
    ("catch_up", "waiting", "skipped"),
    [(CatchUp.NONE, (), 5), (CatchUp.LAST, (5,), 4), (CatchUp.ALL, (1, 2, 3, 4, 5), 0)],
)
def test_what_was_missed_fires_as_catch_up_says(catch_up: CatchUp, waiting: tuple[int, ...], skipped: int) -> None:
    moved = collect(hourly(catch_up=catch_up), START + 5.5 * HOUR)
    assert (moved.waiting, moved.next, moved.skipped) == (hours(*waiting), START + 6 * HOUR, skipped)


@pytest.mark.parametrize(
    ("catch_up", "waiting", "skipped"),
    [(CatchUp.NONE, (5,), 4), (CatchUp.LAST, (5,), 4), (CatchUp.ALL, (1, 2, 3, 4, 5), 0)],
)
def test_one_that_is_on_time_is_the_last_one(catch_up: CatchUp, waiting: tuple[int, ...], skipped: int) -> None:
    moved = collect(hourly(catch_up=catch_up), START + 5 * HOUR + MINUTE)
    assert (moved.waiting, moved.next, moved.skipped) == (hours(*waiting), START + 6 * HOUR, skipped)


def test_all_are_caught_up_some_at_a_time_and_in_order() -> None:
    schedule, fired = hourly(catch_up=CatchUp.ALL, overlap=Overlap.ALLOW), []
    for _ in range(5):
        schedule = collect(schedule, START + 35.5 * HOUR)
        assert len(schedule.waiting) <= limits.SCHEDULE_FIRES_MAX
        while schedule.waiting:
            fired.append(schedule.waiting[0])
            schedule = done(begin(schedule), START + 35.5 * HOUR)
    assert tuple(fired) == hours(*range(1, 36))
    assert (schedule.next, schedule.skipped, schedule.fired) == (START + 36 * HOUR, 0, 35)


@pytest.mark.parametrize(("catch_up", "waiting"), [(CatchUp.NONE, ()), (CatchUp.LAST, (9_000,))])
def test_a_very_long_time_is_stepped_over(catch_up: CatchUp, waiting: tuple[int, ...]) -> None:
    moved = collect(hourly(catch_up=catch_up), START + 9_000.5 * HOUR)
    assert (moved.waiting, moved.next) == (hours(*waiting), START + 9_001 * HOUR)
    assert moved.skipped >= SCANNED_MAX - 1  # so many were seen


def test_a_dense_schedule_keeps_what_is_on_time_of_a_long_pause() -> None:
    each = hourly(
        recurrence=Recurrence(every=1, anchor=START), next=START + timedelta(seconds=1), catch_up=CatchUp.NONE
    )
    now = START + timedelta(seconds=SCANNED_MAX + 150)
    moved = collect(each, now)
    first = now - timedelta(seconds=limits.SCHEDULE_LATE_SECONDS)
    assert moved.waiting[0] == first
    assert len(moved.waiting) == limits.SCHEDULE_FIRES_MAX
    assert moved.next == first + timedelta(seconds=limits.SCHEDULE_FIRES_MAX)


def test_a_single_time_is_the_last_one_too() -> None:
    once = hourly(recurrence=Recurrence(at=START + HOUR), catch_up=CatchUp.LAST)
    moved = collect(once, START + 90 * HOUR)
    assert (moved.waiting, moved.next) == (hours(1), None)
    assert collect(moved, START + 99 * HOUR) is moved
    none = collect(dataclasses.replace(once, catch_up=CatchUp.NONE), START + 90 * HOUR)
    assert (none.waiting, none.next, none.skipped) == ((), None, 1)


def test_a_full_queue_leaves_out_what_comes_and_with_all_lets_it_come_later() -> None:
    queue = hourly(overlap=Overlap.QUEUE, keep=2, waiting=hours(1, 2), next=START + 3 * HOUR)
    full = collect(queue, START + 3 * HOUR)
    assert (full.waiting, full.next, full.skipped) == (hours(1, 2), START + 4 * HOUR, 1)
    every = dataclasses.replace(queue, catch_up=CatchUp.ALL)
    assert collect(every, START + 3 * HOUR) is every
    room = dataclasses.replace(every, waiting=hours(2))
    assert collect(room, START + 5 * HOUR).waiting == hours(2, 3)
    assert collect(room, START + 5 * HOUR).next == START + 4 * HOUR


def test_inactive_schedules_neither_collect_nor_begin() -> None:
    idle = hourly(active=False, waiting=hours(1), next=START + 2 * HOUR)
    assert collect(idle, START + 9 * HOUR) is idle
    assert not may_begin(idle, START + 9 * HOUR)
    assert idle.soonest(START + 9 * HOUR) is None
    assert overdue(idle, START + 9 * HOUR) == timedelta()


def test_activation_brings_back_what_was_missed_only_with_catch_up() -> None:
    idle = hourly(active=False, catch_up=CatchUp.NONE, waiting=hours(1), next=START + 2 * HOUR)
    now = START + 3 * HOUR + MINUTE  # one hour is a minute ago: on time, had it been active
    none = activated(idle, now)
    assert (none.active, none.waiting, none.next, none.skipped) == (True, (), START + 4 * HOUR, 3)
    last = activated(dataclasses.replace(idle, catch_up=CatchUp.LAST), now)
    assert (last.waiting, last.next) == (hours(1), START + 2 * HOUR)
    assert activated(none, now) is none
    assert deactivated(idle, now) is idle
    assert not deactivated(none, now).active


def test_what_has_begun_is_pinned_and_ends_in_one_of_three_ways() -> None:
    now = START + HOUR
    begun = begin(collect(hourly(), now))
    assert (begun.firing, begun.firing_document, begun.waiting) == (now, "d", ())
    fired = done(begun, now)
    assert (fired.firing, fired.firing_document, fired.fired, fired.last_fired) == (None, "", 1, now)
    assert fired.runs == (Run("hourly-20260101T010000Z", now, now),)
    waits = failed(begun, "x" * 2_000, now)
    assert (waits.firing, waits.waiting, waits.errors) == (None, hours(1), 1)
    assert len(waits.error) == limits.REASON_CHARS_MAX
    assert waits.try_after == now + MINUTE
    assert not may_begin(waits, now + MINUTE - timedelta(seconds=1))
    assert may_begin(waits, now + MINUTE)
    lost = dropped(begun, "taken")
    assert (lost.firing, lost.waiting, lost.skipped, lost.error) == (None, (), 1, "taken")
    for none_begun in (fired, waits, lost):
        with pytest.raises(IntegrityError):
            done(none_begun, now)
        with pytest.raises(IntegrityError):
            failed(none_begun, "", now)


@pytest.mark.parametrize("off", [HOUR + MINUTE, timedelta(days=365)])
def test_a_pause_by_a_clock_that_was_ahead_holds_nothing_up(off: timedelta) -> None:
    now = START + HOUR
    waits = failed(begin(collect(hourly(created=now + off), now)), "no", now + off)
    soonest = waits.soonest(now)
    assert soonest is not None
    assert soonest <= now
    assert may_begin(waits, now)


def test_failures_are_tried_again_ever_more_seldom_and_a_success_forgets_them() -> None:
    schedule = begin(collect(hourly(), START + HOUR))
    pauses = []
    for _ in range(20):
        schedule = failed(schedule, "no", START)
        assert schedule.try_after is not None
        pauses.append((schedule.try_after - START).total_seconds())
        schedule = begin(schedule)
    assert pauses[:4] == [60, 120, 240, 480]
    assert pauses[-1] == limits.SCHEDULE_RETRY_SECONDS_MAX
    assert schedule.errors == 20
    after = done(schedule, START)
    assert (after.error, after.errors, after.try_after) == ("", 0, None)


def test_what_an_earlier_graph_holds_up_is_left_out_waits_or_is_the_last_that_waits() -> None:
    waits = hourly(waiting=hours(1, 2))
    assert (held_up(waits).waiting, held_up(waits).skipped) == ((), 2)
    queue = dataclasses.replace(waits, overlap=Overlap.QUEUE)
    assert held_up(queue) == queue
    cancel = held_up(dataclasses.replace(waits, overlap=Overlap.CANCEL))
    assert (cancel.waiting, cancel.skipped) == (hours(2), 1)
    assert held_up(cancel) == cancel


def test_the_row_lists_the_last_fires_alone_and_each_once() -> None:
    schedule = hourly()
    for number in range(15):
        run = Run(f"g{number}", START + number * HOUR, START)
        schedule = with_run(with_run(schedule, run), run)
    assert [run.graph_id for run in schedule.runs] == [f"g{n}" for n in range(5, 15)]
    assert schedule.fired == 15


def test_overdue_is_what_looks_alone_do_not_explain() -> None:
    schedule = hourly()
    usual = timedelta(seconds=2 * limits.SCHEDULE_LOOK_SECONDS)
    assert overdue(schedule, START + HOUR + usual) == timedelta()
    assert overdue(schedule, START + 2 * HOUR) == HOUR
    assert overdue(hourly(waiting=hours(1), next=START + 9 * HOUR), START + 3 * HOUR) == 2 * HOUR
    assert overdue(hourly(firing=START, next=None), START + HOUR) == HOUR
    assert overdue(hourly(next=None), START + HOUR) == timedelta()


@pytest.mark.parametrize("name", ["", "-a", "a b", "a:b", "a/b", "x" * 41, "ä", "a\n", "_a"])
def test_names_that_cannot_be(name: str) -> None:
    with pytest.raises(InvalidInput, match="cannot be the name"):
        check_name(name)


@pytest.mark.parametrize("id_of", [graph_id_of, manual_graph_id_of])
def test_the_longest_name_makes_a_graph_id(id_of: Callable[[str, datetime], str]) -> None:
    name = check_name("x" * 40)
    assert is_graph_id(id_of(name, datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)))


MOMENTS = st.integers(0, 10**9).map(lambda n: datetime(2000, 1, 1, tzinfo=UTC) + timedelta(seconds=n))


@settings(max_examples=100, deadline=None)
@given(
    waiting=st.lists(MOMENTS, max_size=3).map(tuple),
    firing=st.none() | MOMENTS,
    run_times=st.lists(MOMENTS, max_size=3),
    over=st.booleans(),
    at=st.none() | MOMENTS,
    error=st.text(max_size=30),
)
def test_a_row_holds_the_whole_schedule(
    waiting: tuple[datetime, ...],
    firing: datetime | None,
    run_times: list[datetime],
    over: bool,
    at: datetime | None,
    error: str,
) -> None:
    schedule = hourly(
        waiting=waiting,
        firing=firing,
        runs=tuple(Run(f"g{n}", moment, moment, manual=not over, over=over) for n, moment in enumerate(run_times)),
        recurrence=Recurrence(at=at) if at else Recurrence(cron="* * * * *", timezone="UTC"),
        next=at,
        error=error,
        catch_up=CatchUp.ALL,
        overlap=Overlap.QUEUE,
        keep=7,
        active=over,
    )
    assert schedule_of(columns_of(schedule)) == schedule
    assert schedule_of(new_columns(schedule)) == schedule
    merged = {**columns_of(hourly()), **changed_columns(hourly(), schedule)}
    assert schedule_of(merged) == schedule
    assert changed_columns(schedule, schedule) == {}


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("catchUp", "sometimes"),
        ("overlap", "perhaps"),
        ("waiting", "[1]"),
        ("waiting", "{"),
        ("runs", '[{"graph":"g"}]'),
        ("next", "tomorrow"),
        ("next", "2026-01-01T00:00:00"),
        ("every", "3600"),
        ("created", ""),
    ],
)
def test_a_row_that_holds_no_schedule_is_named(column: str, value: str) -> None:
    with pytest.raises(IntegrityError, match="row schedule:hourly"):
        schedule_of({**columns_of(hourly()), column: value})
