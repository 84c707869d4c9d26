"""A clock that leaps ends nothing for its age."""

from datetime import datetime, timedelta

import pytest

from taskgraph.engine import clock_trust
from taskgraph.engine.commit import Records
from taskgraph.engine.handlers import Handlers
from taskgraph.engine.housekeeping import keep_house
from taskgraph.engine.sweep import sweep
from taskgraph.model import limits
from taskgraph.model.errors import Conflict
from taskgraph.model.ids import GRAPH
from taskgraph.model.names import LIVE
from taskgraph.storage.tables import Insert
from taskgraph.testing import ManualClock, MemoryQueues, MemoryTables
from tests.scenarios.test_retention import Shelf

HOUR, DAY, YEAR = 3_600.0, 86_400.0, 366 * 86_400.0


class Site:
    """One store, and the clocks of those who look at it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.tables = MemoryTables()

    async def note(self, off: float = 0.0) -> bool:
        return await clock_trust.note(self.tables, self.clock.now() + timedelta(seconds=off))

    async def may_end(self, off: float = 0.0) -> bool:
        return await clock_trust.may_end(self.tables, self.clock.now() + timedelta(seconds=off))

    async def live(self, seconds: float, off: float = 0.0, pause: float = HOUR) -> list[bool]:
        """Keep house for so long; what was said each time."""
        found = []
        for _ in range(round(seconds / pause)):
            self.clock.advance(pause)
            found.append(await self.note(off))
        return found


@pytest.fixture
def site() -> Site:
    return Site()


async def test_a_clock_is_believed_after_a_day_without_a_leap(site: Site) -> None:
    assert not await site.may_end()
    assert not await site.note()
    assert await site.live(DAY) == [False] * 23 + [True]
    assert await site.may_end()
    assert all(await site.live(DAY, pause=limits.CLOCK_GAP_SECONDS)), "a night in which all is off is no leap"


@pytest.mark.parametrize("leap", [DAY, YEAR, -DAY, -YEAR])
async def test_a_leap_ends_nothing_for_a_day(site: Site, leap: float, caplog: pytest.LogCaptureFixture) -> None:
    await site.note()
    await site.live(2 * DAY)
    assert not await site.may_end(leap)
    assert await site.live(DAY, leap) == [False] * 24
    (record,) = caplog.records
    seen, leapt = site.clock.now() - timedelta(seconds=DAY), site.clock.now() + timedelta(seconds=leap - DAY + HOUR)
    assert record.getMessage().startswith(f"the clock has leapt from {seen} to {leapt}: nothing is ended")
    assert await site.live(HOUR, leap) == [True]


def test_a_row_that_lacks_a_time_says_nothing(site: Site) -> None:
    now = site.clock.now()
    earlier = now - timedelta(seconds=HOUR)
    assert clock_trust.going_since({"seen": earlier, "since": earlier}, now) == earlier
    assert clock_trust.going_since({"seen": earlier}, now) == now
    assert clock_trust.going_since({"since": earlier}, now) == now


@pytest.mark.parametrize("off", [DAY, YEAR, -DAY, -YEAR])
async def test_two_clocks_that_disagree_end_nothing(site: Site, off: float) -> None:
    await site.note()
    for _ in range(100):
        assert await site.live(HOUR) == [False]
        assert await site.live(HOUR, off) == [False]


@pytest.mark.parametrize("state", ["submitting", "restoring", ""])
async def test_a_sweep_that_is_a_year_ahead_gives_up_nothing_that_is_being_made(site: Site, state: str) -> None:
    handlers = Handlers(Records(site.tables, site.clock), MemoryQueues(site.clock), site.clock)
    await site.note()
    await site.live(2 * DAY)
    now: datetime = site.clock.now()
    await site.tables.commit(LIVE, [Insert("g", {"since": now})])
    if state:
        await site.tables.commit("g", [Insert(GRAPH, {"state": state, "created": now, "restoring": now})])
    site.clock.advance(YEAR)
    logs = Shelf()
    swept = await sweep(handlers, logs=logs)
    assert (swept.abandoned, swept.deleted, swept.index_mended) == (0, 0, 0)
    assert not (await keep_house(handlers, logs, keep_days=1)).did_something
    assert "g" in site.tables.partitions[LIVE]
    await site.live(26 * HOUR)
    if state != "restoring":
        swept = await sweep(handlers, logs=logs)
        assert swept.abandoned + swept.index_mended == 1, "in the end it is"


async def test_a_look_that_another_process_overtakes_ends_nothing(site: Site) -> None:
    await site.note()
    await site.live(2 * DAY)

    async def overtaken(partition: str, changes: object) -> list[str | None]:
        raise Conflict("another process was quicker")

    site.tables.commit = overtaken  # type: ignore[method-assign]
    assert not await site.note()
