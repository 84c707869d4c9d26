"""Permits and words of workers whose clocks are off: nothing is taken from who lives, nothing waits for who is gone."""

import asyncio
import random
from datetime import timedelta

import pytest

from taskgraph import limits, permits
from taskgraph.permits import Permits
from taskgraph.registry import WORKERS, clean, workers
from taskgraph.storage.tables import Insert
from tests.scenarios.crew import Crew, virtually
from tests.simulation.memory import MemoryTables
from tests.simulation.processes import LoopClock

LEASE = 60.0
OFF = [-365 * 86_400.0, -86_400.0, -3_600.0, 3_600.0, 86_400.0, 365 * 86_400.0]


@pytest.mark.parametrize("off", OFF)
def test_a_permit_of_who_lives_stays_its_own_and_that_of_who_is_gone_is_free_after_its_length(off: float) -> None:
    async def act(crew: Crew) -> None:
        tables = MemoryTables()
        await permits.limit_target(tables, "default", 1, crew.clock.now())
        theirs = Permits(tables, LoopClock(crew.loop, random.Random(1), off), "off", LEASE)
        ours = Permits(tables, crew.clock, "right", LEASE)
        assert await theirs.take("default", lambda: 1) == 1
        for _ in range(30):
            assert await ours.take("default", lambda: 1) == 0
            await asyncio.sleep(LEASE / 3)
            await theirs.renew()
        assert theirs.held("default") == 1
        assert not theirs.lost()
        gone = crew.clock.monotonic()
        while await ours.take("default", lambda: 1) == 0:
            await asyncio.sleep(limits.GATE_SECONDS)
        assert LEASE <= crew.clock.monotonic() - gone <= LEASE + limits.GATE_SECONDS

    virtually(act)


def test_a_word_of_tomorrow_is_one_of_today() -> None:
    async def act(crew: Crew) -> None:
        tables = MemoryTables()
        now = crew.clock.now()
        await tables.commit(WORKERS, [Insert("w", {"name": "w", "seen": now + timedelta(days=1), "every": 30.0})])
        assert await clean(tables, now) == 0
        (found,) = await workers(tables, now)
        assert (found.seen, found.live) == (now, True)
        later = now + timedelta(seconds=limits.WORKER_FORGOTTEN_SECONDS + 1)
        assert [each.live for each in await workers(tables, later)] == [False]
        assert await clean(tables, later) == 1

    virtually(act)
