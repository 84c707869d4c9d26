"""Times of another process: none holds anything up for longer than its own length, whichever clocks are off."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskgraph.documents.read import document_from_object
from taskgraph.engine.commit import Records
from taskgraph.engine.handlers import Handlers
from taskgraph.engine.submission import extend, submit
from taskgraph.engine.sweep import Swept, sweep
from taskgraph.model import limits
from taskgraph.model.foreign_times import Standing, asked_after, holds, is_ahead, standing
from taskgraph.model.ids import row_key, task_id_of
from taskgraph.protocol.context import Outcome
from taskgraph.protocol.decide import Item
from taskgraph.protocol.leases import SetRight
from taskgraph.protocol.runs import Claim, Failed, LeaseLost, Renew
from taskgraph.storage.queues import Delivery
from taskgraph.storage.tables import Row
from taskgraph.testing import ManualClock, MemoryQueues, MemoryTables
from taskgraph.worker.values import Early, WorkMessage, hold_until_due

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
SLACK = limits.CLOCK_SLACK_SECONDS
DAY = 86_400.0
OFF = [-365 * DAY, -DAY, -3_600.0, 3_600.0, DAY, 365 * DAY]


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.0, Standing.HOLDS),
        (SLACK + 0.1, Standing.HOLDS),
        (100.0, Standing.HOLDS),
        (100.0 + SLACK, Standing.HOLDS),
        (100.1 + SLACK, Standing.DOUBTFUL),
        (DAY, Standing.DOUBTFUL),
        (-0.1, Standing.OVER),
        (-100.0, Standing.OVER),
        (-100.1, Standing.DOUBTFUL),
        (-DAY, Standing.DOUBTFUL),
    ],
)
def test_an_end_is_believed_within_its_length(seconds: float, expected: Standing) -> None:
    assert standing(at(seconds), NOW, 100.0) is expected
    assert holds(at(seconds), NOW, 100.0) is (expected is Standing.HOLDS and seconds > 0)
    assert is_ahead(at(seconds), NOW, 100.0) is (seconds > 100.0 + SLACK)
    assert is_ahead(at(seconds), NOW) is (seconds > SLACK)


def test_a_short_lease_is_noticed_by_the_sweep_however_short_it_is() -> None:
    assert standing(at(-limits.END_NOTICED_SECONDS), NOW, 1.0) is Standing.OVER


def test_a_wish_is_asked_now_or_right_after_those_that_were_seen() -> None:
    earlier, now, later = (at(seconds).isoformat() for seconds in (-1, 0, 1))
    assert asked_after(NOW, []) == asked_after(NOW, [earlier, ""]) == now
    assert asked_after(NOW, [earlier, later, now]) == (at(1) + timedelta(microseconds=1)).isoformat()
    assert asked_after(NOW, [now]) == (NOW + timedelta(microseconds=1)).isoformat()
    assert asked_after(NOW, [later], 0.5) == (at(1) + timedelta(microseconds=500_000)).isoformat()
    assert asked_after(NOW, [later], 1.0) == (at(1) + timedelta(microseconds=999_999)).isoformat()
    for never in ("never", datetime.max.replace(tzinfo=UTC).isoformat()):
        assert asked_after(NOW, [never]) == never


def test_what_is_no_time_holds_nothing() -> None:
    assert not holds(None, NOW, 10.0)
    assert not holds("2027-01-01T00:00:00Z", NOW, 10.0)


@given(st.floats(-366 * DAY, 366 * DAY), st.floats(0.1, 7 * DAY), st.floats(0.0, 366 * DAY))
def test_no_end_holds_for_longer_than_its_length_and_the_slack(off: float, length: float, later: float) -> None:
    end = at(off + length)  # written now, by a clock that is off
    assert not holds(end, NOW, length) or off <= SLACK + 0.001
    if holds(end, at(later), length):
        assert not holds(end, at(later + length + SLACK + 0.001), length)


class Stage:
    """One graph of one task; its worker and its sweeper each go by a clock of their own."""

    def __init__(self, worker_off: float) -> None:
        self.clock = ManualClock()
        self.tables = MemoryTables()
        self.queues = MemoryQueues(self.clock)
        self.handlers = Handlers(Records(self.tables, self.clock), self.queues, self.clock)
        self.off = timedelta(seconds=worker_off)
        self.task_id = task_id_of("g", "a")

    async def begin(self, **node: Any) -> None:
        await submit(self.handlers, "g", document_from_object({"tasks": {"a": {"task": {}, **node}}}))

    def until(self, seconds: float = 60.0) -> datetime:
        """The end of a lease by the worker's clock."""
        return self.clock.now() + self.off + timedelta(seconds=seconds)

    async def do(self, item: Item) -> Outcome:
        (answer,) = await self.handlers.transition("g", [item])
        return answer.outcome

    async def claim(self, run: int = 0, seconds: float = 60.0) -> None:
        item = Claim(self.task_id, run, f"c{run}", "w", self.until(seconds), lease_seconds=seconds)
        assert await self.do(item) is Outcome.APPLIED

    async def renew(self, run: int = 0) -> None:
        assert await self.do(Renew(self.task_id, run, f"c{run}", self.until(), 60.0)) is Outcome.APPLIED

    async def sweep(self, after: float) -> Swept:
        self.clock.advance(after)
        return await sweep(self.handlers)

    @property
    def columns(self) -> Any:
        return self.tables.partitions["g"][row_key(self.task_id)].columns


@pytest.mark.parametrize("off", OFF)
async def test_a_worker_that_lives_loses_no_run_however_far_its_clock_is_off(off: float) -> None:
    stage = Stage(off)
    await stage.begin()
    await stage.claim()
    for number in range(60):
        assert (await stage.sweep(10.0)).lease_lost == 0
        if number % 2:
            await stage.renew()
    assert (stage.columns["run"], stage.columns["state"]) == (0, "running")
    assert stage.columns["leaseDoubts"] <= 1


@pytest.mark.parametrize("off", OFF)
async def test_the_run_of_a_worker_that_is_gone_is_lost_one_lease_after_that_was_noticed(off: float) -> None:
    stage = Stage(off)
    await stage.begin()
    await stage.claim()
    assert (await stage.sweep(30.0)).set_right == 1
    assert stage.columns["leaseUntil"] == stage.clock.now() + timedelta(seconds=60)
    assert (await stage.sweep(30.0)).lease_lost == 0
    assert (await stage.sweep(31.0)).lease_lost == 1
    assert (stage.columns["run"], stage.columns["state"]) == (1, "pending")


async def test_a_lease_is_set_right_to_its_own_length() -> None:
    stage = Stage(DAY)
    await stage.begin()
    await stage.claim(seconds=600.0)
    await stage.sweep(1.0)
    assert stage.columns["leaseUntil"] == stage.clock.now() + timedelta(seconds=600)


async def test_sweeps_that_come_seldom_give_a_run_up_all_the_same() -> None:
    stage = Stage(0.0)
    await stage.begin()
    await stage.claim()
    found = [await stage.sweep(3_600.0) for _ in range(3)]
    assert [(each.set_right, each.lease_lost) for each in found] == [(1, 0), (1, 0), (0, 1)]


async def test_nobody_takes_a_run_by_a_clock_that_is_off() -> None:
    """As a worker does that gets the message of a live one, for by its own clock it has come back."""
    for off in OFF:
        stage = Stage(off)
        await stage.begin()
        await stage.claim()
        assert await stage.do(LeaseLost(stage.task_id, 0, "c0")) is Outcome.REFUSED
        assert await stage.do(LeaseLost(stage.task_id, 0, "c0", certain=True)) is Outcome.APPLIED


async def test_a_row_of_an_earlier_version_that_says_no_length_is_believed_for_the_longest_there_is() -> None:
    stage = Stage(0.0)
    await stage.begin()
    await stage.do(Claim(stage.task_id, 0, "c0", "w", stage.until(6 * DAY)))
    assert "leaseSeconds" not in stage.columns
    assert (await stage.sweep(30.0)).set_right == 0
    assert (await stage.sweep(6 * DAY)).lease_lost == 1


async def test_what_stands_ready_since_tomorrow_is_reminded_of_today() -> None:
    stage = Stage(0.0)
    stage.clock.advance(DAY)
    await stage.begin()
    stage.clock.advance(-DAY)
    stage.queues.messages.clear()
    assert (await stage.sweep(0.0)).set_right == 1
    assert stage.columns["pendingSince"] == stage.clock.now()
    assert (await stage.sweep(59.0)).reminded == 0
    assert (await stage.sweep(2.0)).reminded == 1
    assert await stage.do(SetRight(stage.task_id)) is Outcome.STALE


async def test_a_pause_that_a_clock_ahead_began_lasts_as_long_as_it_was_to_last() -> None:
    stage = Stage(0.0)
    await stage.begin()
    await stage.claim()
    stage.clock.advance(DAY)
    failed = Failed(stage.task_id, 0, "c0", NOW.isoformat(), {"failed": True}, temporary=True, retry_after=20.0)
    assert await stage.do(failed) is Outcome.APPLIED
    stage.clock.advance(-DAY)
    assert (await stage.sweep(0.0)).set_right == 1
    assert stage.columns["notBefore"] == stage.clock.now() + timedelta(seconds=20)


@pytest.mark.parametrize("off", [each for each in OFF if each < 0])
async def test_a_worker_whose_clock_is_behind_waits_for_a_pause_by_its_steady_clock(off: float) -> None:
    stage = Stage(0.0)
    await stage.begin()
    await stage.claim()
    failed = Failed(stage.task_id, 0, "c0", NOW.isoformat(), {"failed": True}, temporary=True, retry_after=20.0)
    assert await stage.do(failed) is Outcome.APPLIED
    stage.clock.advance(off)
    early, held = Early(), WorkMessage(Delivery("q", "m", "r", "", 1))
    row = stage.tables.partitions["g"][row_key(stage.task_id)]
    assert hold_until_due(held, row, early, stage.clock.now(), 100.0)
    assert held.busy_until == stage.clock.now() + timedelta(seconds=20), "its length, whatever its end says"
    for moment, outcome in ((119.9, Outcome.STALE), (120.0, Outcome.APPLIED)):
        known = early.seconds(row, moment)
        item = Claim(stage.task_id, 1, "c1", "w", stage.until(), lease_seconds=60.0, known_seconds=known)
        assert await stage.do(item) is outcome


async def test_a_pause_whose_end_is_far_ahead_of_the_sweep_is_set_to_its_length() -> None:
    """As it is after a run that was lost, and made ready by a clock that is behind: what is far off is the pause."""
    stage = Stage(0.0)
    await stage.begin()
    await stage.claim()
    failed = Failed(stage.task_id, 0, "c0", NOW.isoformat(), {"failed": True}, temporary=True, retry_after=20.0)
    assert await stage.do(failed) is Outcome.APPLIED
    stage.clock.advance(20.0)
    await stage.claim(1)
    stage.clock.advance(-DAY)
    assert await stage.do(LeaseLost(stage.task_id, 1, "c1", certain=True)) is Outcome.APPLIED
    assert (await stage.sweep(0.0)).set_right == 1
    assert stage.columns["notBefore"] == stage.clock.now() + timedelta(seconds=20)


async def test_an_extension_that_was_put_down_tomorrow_is_said_again_today() -> None:
    stage = Stage(0.0)
    await stage.begin()
    stage.clock.advance(DAY)
    added = {"tasks": {"b": {"task": {}}}}
    await extend(stage.handlers, "g", document_from_object(added))
    rows = stage.tables.partitions["g"]
    (head,) = [row for key, row in rows.items() if key.startswith("request:") and "staged" in row.columns]
    rows[head.key] = Row(head.key, head.etag, {**head.columns, "state": "staged"})
    stage.clock.advance(-DAY)
    assert (await stage.sweep(0.0)).request_resent == 1


async def test_a_time_that_a_document_names_stands_whatever_the_clocks_say() -> None:
    stage = Stage(0.0)
    named = stage.clock.now() + timedelta(days=300)
    stage.clock.advance(DAY)
    await stage.begin(notBefore=named.isoformat())
    stage.clock.advance(-DAY)
    assert (await stage.sweep(0.0)).set_right == 1
    assert stage.columns["notBefore"] == named
