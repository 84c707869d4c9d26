"""Messages of the embedded store that processes with clocks of their own hide from each other."""

import contextlib
import sqlite3
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from taskgraph.model import limits
from taskgraph.model.errors import StaleDelivery
from taskgraph.storage.sqlite.store import EmbeddedStore
from taskgraph.testing import ManualClock

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OFF = [3_600.0, 86_400.0, 365 * 86_400.0]
QUEUE = "q-work"


@contextlib.asynccontextmanager
async def stores(path: Path, off: float) -> AsyncIterator[tuple[EmbeddedStore, EmbeddedStore, ManualClock]]:
    """One store by a clock that is ahead, and the same by the right one, which is given too."""
    clock = ManualClock(NOW)
    wrong = EmbeddedStore(path, ManualClock(NOW + timedelta(seconds=off), "wrong"))
    right = EmbeddedStore(path, clock)
    try:
        yield wrong, right, clock
    finally:
        await right.close()
        await wrong.close()


async def received(store: EmbeddedStore) -> list[str]:
    return [each.body for each in await store.queues().receive(QUEUE, count=32, lease_seconds=60)]


@pytest.mark.parametrize("off", OFF)
async def test_a_message_of_a_clock_ahead_is_received_at_once(tmp_path: Path, off: float) -> None:
    async with stores(tmp_path / "s.db", off) as (wrong, right, _):
        await wrong.queues().send(QUEUE, ["one"])
        await wrong.queues().send(QUEUE, ["two", "three"])
        assert sorted(await received(right)) == ["one", "three", "two"]


@pytest.mark.parametrize("off", OFF)
async def test_a_message_that_was_held_or_delayed_comes_back_after_its_own_length(tmp_path: Path, off: float) -> None:
    async with stores(tmp_path / "s.db", off) as (wrong, right, clock):
        queues = right.queues()
        await wrong.queues().send(QUEUE, ["delayed"], delay_seconds=30)
        await queues.send(QUEUE, ["held"])
        assert await received(wrong) == ["held"]
        assert [each.body for each in await queues.receive(QUEUE, count=32, lease_seconds=60)] == []
        clock.advance(31)
        assert [each.body for each in await queues.receive(QUEUE, count=32, lease_seconds=600)] == ["delayed"]
        clock.advance(30)
        assert [each.body for each in await queues.receive(QUEUE, count=32, lease_seconds=600)] == ["held"]


async def test_who_lives_keeps_its_message_by_renewing_it(tmp_path: Path) -> None:
    async with stores(tmp_path / "s.db", 86_400.0) as (wrong, right, clock):
        ahead, queues = wrong.queues(), right.queues()
        await ahead.send(QUEUE, ["held"])
        (delivery,) = await ahead.receive(QUEUE, lease_seconds=60)
        for _ in range(10):
            assert await queues.receive(QUEUE, lease_seconds=60) == []
            clock.advance(20)
            delivery = await ahead.renew(delivery, lease_seconds=60)
        await ahead.delete(delivery)
        with pytest.raises(StaleDelivery):
            await ahead.renew(delivery, lease_seconds=60)


async def test_what_is_within_the_slack_is_left_as_it_stands(tmp_path: Path) -> None:
    async with stores(tmp_path / "s.db", limits.CLOCK_SLACK_SECONDS) as (wrong, right, clock):
        await wrong.queues().send(QUEUE, ["soon"])
        queues = right.queues()
        assert await queues.receive(QUEUE, lease_seconds=60) == []
        clock.advance(limits.CLOCK_SLACK_SECONDS)
        assert len(await queues.receive(QUEUE, lease_seconds=60)) == 1


async def test_a_file_of_an_earlier_version_gets_the_column_and_keeps_its_messages(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with stores(path, 0.0) as (_, right, _clock):
        await right.queues().send(QUEUE, ["kept"])
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("ALTER TABLE message DROP COLUMN since")
        connection.commit()
    async with stores(path, 0.0) as (_, right, _clock):
        assert await received(right) == ["kept"]


BETWEEN = [seconds * sign for seconds in (9.0, 20.0, 40.0, 50.0, 75.0, 100.0, 150.0) for sign in (-1, 1)]
LOOK = 5.0  # between two looks of a process for messages of a clock that was ahead


@contextlib.asynccontextmanager
async def two(path: Path, off: float) -> AsyncIterator[tuple[EmbeddedStore, EmbeddedStore, Callable[[], None]]]:
    """One store by two clocks, off by so much from each other, and what lets a second pass for both."""
    clocks = ManualClock(NOW), ManualClock(NOW + timedelta(seconds=off), "other")
    one, other = (EmbeddedStore(path, clock) for clock in clocks)

    def second() -> None:
        for clock in clocks:
            clock.advance(1)

    try:
        yield one, other, second
    finally:
        await one.close()
        await other.close()


@pytest.mark.parametrize("off", BETWEEN)
async def test_a_message_stands_still_for_no_longer_than_its_length_the_slack_and_a_look(
    tmp_path: Path, off: float
) -> None:
    async with two(tmp_path / "s.db", off) as (holder, other, second):
        await holder.queues().send(QUEUE, ["sent"])
        queues, waited = other.queues(), 0
        while not await queues.receive(QUEUE, lease_seconds=60):
            second()
            waited += 1
        assert waited <= limits.CLOCK_SLACK_SECONDS + LOOK
    async with two(tmp_path / "t.db", off) as (holder, other, second):
        await holder.queues().send(QUEUE, ["held"])
        assert len(await holder.queues().receive(QUEUE, lease_seconds=60)) == 1  # and it is gone
        queues, waited = other.queues(), 0
        while not await queues.receive(QUEUE, lease_seconds=60):
            second()
            waited += 1
        assert waited <= 60 + limits.CLOCK_SLACK_SECONDS + LOOK


@pytest.mark.parametrize("off", BETWEEN)
async def test_who_lives_keeps_a_message_from_clocks_that_differ_by_less_than_a_lease_without_a_renewal(
    tmp_path: Path, off: float
) -> None:
    """Beyond that another process takes it, once in a while, and whoever has it last can see it through."""
    async with two(tmp_path / "s.db", off) as (holder, other, second):
        await holder.queues().send(QUEUE, ["held"])
        mine, theirs = holder.queues(), other.queues()
        (delivery,) = await mine.receive(QUEUE, lease_seconds=60)
        taken = 0
        for number in range(1, 201):
            second()
            if number % 20 == 0 and not taken:
                delivery = await mine.renew(delivery, lease_seconds=60)
            for queues in (theirs, mine):
                for found in await queues.receive(QUEUE, lease_seconds=60):
                    taken, delivery, last = taken + 1, found, queues
        if abs(off) <= 40:
            assert not taken
            await mine.delete(delivery)
        else:
            assert 1 <= taken <= 200 / LOOK
            await last.delete(delivery)
        assert await mine.count(QUEUE) == 0
