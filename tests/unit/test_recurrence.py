"""When schedules are due: every change of the clocks, in both directions, and what may be written at all."""

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskgraph.documents.recurrence import MACROS, Recurrence, Times
from taskgraph.model import limits
from taskgraph.model.errors import InvalidInput

BERLIN, NEW_YORK, LORD_HOWE, TEHRAN = "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Tehran"


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def cron(text: str, zone: str = "UTC") -> Recurrence:
    made = Recurrence(cron=text, timezone=zone)
    made.check()
    return made


def before(times: Iterator[datetime], end: datetime) -> list[datetime]:
    return list(itertools.takewhile(lambda each: each < end, times))


def walls(text: str, zone: str, start: str, number: int) -> list[str]:
    """The next fires as a clock on the wall there shows them, with its offset."""
    times = itertools.islice(cron(text, zone).times(utc(start)), number)
    return [moment.astimezone(ZoneInfo(zone)).strftime("%d %H:%M%z") for moment in times]


@pytest.mark.parametrize(
    ("text", "zone", "start", "expected"),
    [
        # Nightly, at a time that spring leaves out: at the first minute that there is.
        ("30 2 * * *", BERLIN, "2026-03-27T20:00", ["28 02:30+0100", "29 03:00+0200", "30 02:30+0200"]),
        ("30 2 * * *", NEW_YORK, "2026-03-07T05:00", ["07 02:30-0500", "08 03:00-0400", "09 02:30-0400"]),
        ("15 2 * * *", LORD_HOWE, "2026-10-02T20:00", ["04 02:30+1100", "05 02:15+1100", "06 02:15+1100"]),
        ("30 0 * * *", TEHRAN, "2022-03-20T12:00", ["21 00:30+0330", "22 01:00+0430", "23 00:30+0430"]),
        ("30 2 * * *", "UTC", "2026-03-28T20:00", ["29 02:30+0000", "30 02:30+0000", "31 02:30+0000"]),
        # Two times of the hour that is left out are one.
        ("10,40 2 * * *", BERLIN, "2026-03-28T20:00", ["29 03:00+0200", "30 02:10+0200", "30 02:40+0200"]),
        # Nightly, at a time that autumn brings twice: once, the first time.
        ("30 2 * * *", BERLIN, "2026-10-23T20:00", ["24 02:30+0200", "25 02:30+0200", "26 02:30+0100"]),
        ("30 1 * * *", NEW_YORK, "2026-10-31T04:00", ["31 01:30-0400", "01 01:30-0400", "02 01:30-0500"]),
        ("45 1 * * *", LORD_HOWE, "2026-04-03T20:00", ["05 01:45+1100", "06 01:45+1030", "07 01:45+1030"]),
        ("30 23 * * *", TEHRAN, "2022-09-20T12:00", ["20 23:30+0430", "21 23:30+0430", "22 23:30+0330"]),
        # Hourly: by the clock on the wall.
        ("0 * * * *", BERLIN, "2026-03-28T23:30", ["29 01:00+0100", "29 03:00+0200", "29 04:00+0200"]),
        ("0 * * * *", NEW_YORK, "2026-03-08T05:30", ["08 01:00-0500", "08 03:00-0400", "08 04:00-0400"]),
        ("0 * * * *", LORD_HOWE, "2026-10-03T14:00", ["04 01:00+1030", "04 03:00+1100", "04 04:00+1100"]),
        ("0 * * * *", TEHRAN, "2022-03-21T19:00", ["21 23:00+0330", "22 01:00+0430", "22 02:00+0430"]),
        ("0 * * * *", "UTC", "2026-03-29T00:30", ["29 01:00+0000", "29 02:00+0000", "29 03:00+0000"]),
        ("0 * * * *", BERLIN, "2026-10-24T23:30", ["25 02:00+0200", "25 02:00+0100", "25 03:00+0100"]),
        ("0 * * * *", NEW_YORK, "2026-11-01T04:30", ["01 01:00-0400", "01 01:00-0500", "01 02:00-0500"]),
        # … but where the clocks move by half an hour, the library steps over the second one.
        ("45 * * * *", LORD_HOWE, "2026-04-04T14:00", ["05 01:45+1100", "05 02:45+1030", "05 03:45+1030"]),
        ("0 * * * *", TEHRAN, "2022-09-21T18:00", ["21 23:00+0430", "21 23:00+0330", "22 00:00+0330"]),
        # Several times an hour, in some hours: by the wall too, since the minute begins with a star.
        ("*/30 1-2 * * *", BERLIN, "2026-03-28T23:00", ["29 01:00+0100", "29 01:30+0100", "30 01:00+0200"]),
        (
            "*/30 2 * * *",
            BERLIN,
            "2026-10-24T23:00",
            ["25 02:00+0200", "25 02:30+0200", "25 02:00+0100", "25 02:30+0100", "26 02:00+0100"],
        ),
    ],
)
def test_when_the_clocks_change(text: str, zone: str, start: str, expected: list[str]) -> None:
    assert walls(text, zone, start, len(expected)) == expected


@pytest.mark.parametrize("zone", [BERLIN, NEW_YORK, LORD_HOWE, TEHRAN, "UTC"])
@pytest.mark.parametrize("text", ["30 2 * * *", "30 1 * * *", "0 0 * * *", "45 23 * * *"])
@pytest.mark.parametrize("year", [2021, 2022, 2026])
def test_a_nightly_schedule_fires_once_every_day(zone: str, text: str, year: int) -> None:
    """366 days with both changes in them: never twice a day, and no day without."""
    first = datetime(year, 1, 1, 12, tzinfo=UTC)
    times = before(cron(text, zone).times(first), first + timedelta(days=366))
    days = [moment.astimezone(ZoneInfo(zone)).date() for moment in times]
    assert len(set(days)) == len(days)
    assert {later - day for day, later in itertools.pairwise(days)} == {timedelta(days=1)}


@pytest.mark.parametrize("zone", [BERLIN, NEW_YORK, LORD_HOWE, TEHRAN])
@pytest.mark.parametrize("text", ["30 1 * * *", "30 2 * * *", "0,30 1,2 * * *", "0 * * * *", "*/10 1-2 * * *"])
def test_it_does_not_matter_from_where_one_looks(zone: str, text: str) -> None:
    """The next fire after any moment of the day of a change is the first of all fires that is later."""
    every = cron(text, zone)
    for start in (utc("2022-03-20T12:00"), utc("2022-09-20T12:00"), *_changes(zone, 2026)):
        known = before(every.times(start), start + timedelta(days=3))
        for minutes in range(0, 30 * 60, 7):
            moment = start + timedelta(minutes=minutes)
            assert every.after(moment) == next(each for each in known if each > moment), (moment, zone, text)


def _changes(zone: str, year: int) -> list[datetime]:
    """Some hours before each change of the clocks of a year."""
    hours = [datetime(year, 1, 1, tzinfo=UTC) + timedelta(hours=n) for n in range(366 * 24)]
    there = ZoneInfo(zone)
    return [
        hour - timedelta(hours=12)
        for hour, later in itertools.pairwise(hours)
        if hour.astimezone(there).utcoffset() != later.astimezone(there).utcoffset()
    ]


def test_a_look_in_the_second_of_two_equal_hours_finds_nothing_that_has_passed() -> None:
    nightly = cron("30 1 * * *", NEW_YORK)
    second = utc("2026-11-01T06:10")  # 01:10 for the second time; 01:30 was at 05:30
    assert second.astimezone(ZoneInfo(NEW_YORK)).strftime("%H:%M%z") == "01:10-0500"
    assert nightly.after(second) == utc("2026-11-02T06:30")


def test_an_interval_is_counted_from_its_anchor_whatever_the_clocks_do() -> None:
    every = Recurrence(every=7200, anchor=utc("2026-03-28T23:00"))
    every.check()
    assert every.after(utc("2026-01-01T00:00")) == utc("2026-03-28T23:00")
    assert every.after(utc("2026-03-28T23:00")) == utc("2026-03-29T01:00")
    assert every.after(utc("2026-03-29T00:59:59")) == utc("2026-03-29T01:00")
    assert every.after(utc("2036-03-29T00:00")) == utc("2036-03-29T01:00")


def test_a_single_time_comes_once() -> None:
    once = Recurrence(at=utc("2026-12-24T17:00"))
    once.check()
    assert once.after(utc("2026-12-24T16:59")) == utc("2026-12-24T17:00")
    assert once.after(utc("2026-12-24T17:00")) is None


def test_the_last_one_before_is_found_across_years() -> None:
    yearly = cron("0 12 24 12 *", BERLIN)
    assert yearly.latest(utc("2020-01-01T00:00"), utc("2026-11-01T00:00")) == utc("2025-12-24T11:00")
    assert yearly.latest(utc("2026-01-01T00:00"), utc("2026-11-01T00:00")) is None
    minutely = cron("* * * * *")
    assert minutely.latest(utc("2020-01-01T00:00"), utc("2026-11-01T00:00")) == utc("2026-11-01T00:00")


@pytest.mark.parametrize(
    ("recurrence", "says"),
    [
        (Recurrence(), "say when"),
        (Recurrence(cron="* * * * *", timezone="UTC", at=utc("2026-01-01T00:00")), "say when"),
        (Recurrence(cron="* * * *", timezone="UTC"), "five fields"),
        (Recurrence(cron="0 * * * * *", timezone="UTC"), "there are no seconds"),
        (Recurrence(cron="@daily", timezone="UTC"), "five fields"),
        (Recurrence(cron="61 * * * *", timezone="UTC"), "Bad minute"),
        (Recurrence(cron="0 0 30 2 *", timezone="UTC"), "Bad day"),
        (Recurrence(cron="0 0 31 4,6 1#5", timezone="UTC"), ""),
        (Recurrence(cron="* " * 60, timezone="UTC"), "characters"),
        (Recurrence(cron="0 2 * * *", timezone="Europe/Berln"), "did you mean Europe/Berlin"),
        (Recurrence(cron="0 2 * * *", timezone="../../etc/passwd"), "there is no time zone"),
        (Recurrence(cron="0 2 * * *", timezone=""), "there is no time zone"),
        (Recurrence(every=0, at=None, anchor=utc("2026-01-01T00:00")), "say when"),
        (Recurrence(every=60), "anchor"),
        (Recurrence(every=60, anchor=utc("2026-01-01T00:00"), timezone="UTC"), "goes with cron"),
        (Recurrence(at=utc("2026-01-01T00:00"), anchor=utc("2026-01-01T00:00")), "anchor goes with every"),
        (Recurrence(at=utc("9500-01-01T00:00")), "the year 9500"),
        (Recurrence(every=limits.SCHEDULE_EVERY_SECONDS_MAX + 1, anchor=utc("2026-01-01T00:00")), "whole seconds"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_remedy(recurrence: Recurrence, says: str) -> None:
    if not says:  # the library reads it, and it does come
        recurrence.check()
        return
    with pytest.raises(InvalidInput, match=says):
        recurrence.check()


def test_a_time_zone_that_this_machine_does_not_know_is_said() -> None:
    with pytest.raises(InvalidInput, match="update its package tzdata"):
        Recurrence(cron="0 2 * * *", timezone="Mars/Olympus").after(utc("2026-01-01T00:00"))


@settings(max_examples=150, deadline=None)
@given(st.text("0123456789*/,-#LWMONFRI ? ", max_size=24))
def test_any_text_is_a_cron_or_an_error_of_ours(text: str) -> None:
    made = Recurrence(cron=text or "x", timezone=BERLIN)
    try:
        made.check()
    except InvalidInput:
        return
    first = made.after(utc("2026-03-28T20:00"))
    assert first is not None
    assert first > utc("2026-03-28T20:00")
    assert first.second == 0


def test_a_time_as_the_clocks_there_show_it() -> None:
    assert cron("30 2 * * *", BERLIN).local(utc("2026-03-29T01:00")) == "Sun 03:00 CEST"
    assert cron("30 2 * * *").local(utc("2026-03-29T01:00")) == ""
    assert Recurrence(at=utc("2026-01-01T06:00")).local(utc("2026-01-01T06:00")) == ""
    assert Recurrence(cron="0 2 * * *", timezone="Mars/Olympus").local(utc("2026-01-01T06:00")) == ""


def test_words_say_when() -> None:
    assert cron("30 2 * * *", BERLIN).words() == "30 2 * * * (Europe/Berlin)"
    assert Recurrence(every=3600, anchor=utc("2026-01-01T06:00")).words() == (
        "every 3,600 s, counted from 2026-01-01 06:00:00Z"
    )
    assert Recurrence(at=utc("2026-01-01T06:00")).words() == "at 2026-01-01 06:00:00Z"


# --- names for fields ---


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("@hourly", "2026-05-06T08:00"),
        ("@daily", "2026-05-07T00:00"),
        (" @Weekly ", "2026-05-10T00:00"),
        ("@monthly", "2026-06-01T00:00"),
        ("@yearly", "2027-01-01T00:00"),
    ],
)
def test_a_name_stands_for_fields(name: str, first: str) -> None:
    made = Times(cron=name).over()
    made.check()
    assert made.cron in MACROS.values(), "earlier versions read fields alone"
    assert made.after(utc("2026-05-06T07:30")) == utc(first)


def test_an_unknown_name_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(InvalidInput, match="one of @hourly, @daily, @weekly, @monthly, @yearly, or five fields"):
        Times(cron="@dailly").over().check()
