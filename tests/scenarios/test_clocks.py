"""Permits, words of workers and wishes by clocks that are off.

Nothing is taken from who lives, nothing waits for who is gone, and of two wishes the later one counts.
"""

import asyncio
import random
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from taskgraph import Client, Graph
from taskgraph.engine.commit import Records
from taskgraph.engine.consumer import Waiting
from taskgraph.engine.handlers import Handlers
from taskgraph.engine.lead import Leads
from taskgraph.engine.store_times import repair_store
from taskgraph.interfaces.app import App
from taskgraph.interfaces.operations import limit, pause
from taskgraph.model import limits
from taskgraph.model.messages import HoldBack, Message, SetLimit, parse
from taskgraph.model.names import QueueNames
from taskgraph.queries import targets as gates_module
from taskgraph.queries.event_queues import EventQueues
from taskgraph.queries.targets import Gates, use_level
from taskgraph.queries.workers import WORKERS, clean, workers
from taskgraph.rehearsal.virtual_time import LoopClock
from taskgraph.storage.tables import Insert
from taskgraph.testing import ManualClock, MemoryTables
from taskgraph.worker.executors import Outcome, Work, WriteLog
from taskgraph.worker.permits import Permits
from tests.scenarios.crew import Crew, Script, virtually

LEASE = 60.0
PAUSE = 20.0
OFF = [-365 * 86_400.0, -86_400.0, -3_600.0, 3_600.0, 86_400.0, 365 * 86_400.0]


class FailsAtFirst(Script):
    """Its first run fails for the moment."""

    async def run(self, work: Work, write_log: WriteLog) -> Outcome:
        await super().run(work, write_log)
        if work.run:
            return Outcome(failed=False)
        return Outcome(failed=True, reason="busy", temporary=True, retry_after=PAUSE)


@pytest.mark.parametrize("off", OFF)
def test_a_permit_of_who_lives_stays_its_own_and_that_of_who_is_gone_is_free_after_its_length(
    off: float, caplog: pytest.LogCaptureFixture
) -> None:
    async def act(crew: Crew) -> None:
        tables = MemoryTables()
        await gates_module.limit_target(tables, "default", 1, crew.clock.now())
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
    assert caplog.text.count("a clock is off") == 1, "however often it is renewed"


@pytest.mark.parametrize("off", [3_600.0, 365 * 86_400.0])
def test_a_permit_and_a_lead_that_the_doctor_sets_right_stay_with_who_has_them(off: float) -> None:
    async def act(crew: Crew) -> None:
        tables = MemoryTables()
        await gates_module.limit_target(tables, "default", 1, crew.clock.now())
        wrong = LoopClock(crew.loop, random.Random(1), off)
        theirs, ours = Permits(tables, wrong, "off", LEASE), Permits(tables, crew.clock, "right", LEASE)
        lead, standby = (
            Leads(tables, clock, EventQueues(tables, clock, QueueNames()), holder)
            for clock, holder in ((wrong, "off"), (crew.clock, "right"))
        )
        assert await theirs.take("default", lambda: 1) == 1
        assert await lead.take("taskgraph-events") == 0.0
        found = await repair_store(tables, None, crew.clock)
        assert (len(found.findings), len(found.repaired)) == (0, 2)
        assert await ours.take("default", lambda: 1) == 0
        assert await standby.take("taskgraph-events") > 0.0
        assert lead.held("taskgraph-events")
        await theirs.renew()
        assert (theirs.held("default"), theirs.lost()) == (1, {})
        await repair_store(tables, None, crew.clock)
        await asyncio.sleep(LEASE - 1)
        assert await ours.take("default", lambda: 1) == 0
        await asyncio.sleep(1.1)
        assert await ours.take("default", lambda: 1) == 1

    virtually(act)


@pytest.mark.parametrize("off", [*OFF, -100.0])
def test_a_worker_whose_clock_is_off_tries_again_what_failed_for_the_moment(off: float) -> None:
    """It waits for the pause by its steady clock, and no longer than twice, with the slack of the hidden message."""

    async def act(crew: Crew) -> None:
        script = FailsAtFirst()
        clock = LoopClock(crew.loop, random.Random(2), off)
        stage = crew.stage
        handlers = Handlers(Records(stage.tables, clock), stage.queues, clock, stage.names)
        await crew.submit({"a": []})
        crew.start(crew.consumer(), crew.worker(script, handlers=handlers))
        began = crew.clock.monotonic()
        await crew.finish()
        assert script.runs == [("a", 0), ("a", 1)]
        assert PAUSE <= crew.clock.monotonic() - began < 2 * PAUSE + 5.0

    virtually(act)


def test_a_level_that_a_clock_behind_uses_is_asked_for() -> None:
    async def act(crew: Crew) -> None:
        tables = MemoryTables()
        gates = Gates(tables, crew.clock)
        await use_level(tables, "default", "high", crew.clock.now() - timedelta(days=1))
        await gates.look()
        assert gates.levels("default") == ["high", "normal"]
        await asyncio.sleep(limits.LEVEL_SECONDS)
        await gates.look()
        assert gates.levels("default") == ["normal"], "it was written an hour ago"
        await use_level(tables, "default", "high", crew.clock.now() - timedelta(days=1))
        await gates.look(again=True)
        assert gates.levels("default") == ["high", "normal"]

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


async def handled(app: App) -> list[Message]:
    """Handle what has been asked; gives it."""
    found: list[Message] = []
    while deliveries := await app.handlers.queues.receive(app.handlers.names.events, count=32, lease_seconds=60):
        messages = [parse(each.body) for each in deliveries]
        await app.consumer().take("g", list(map(Waiting, messages, deliveries)))
        found += messages
    return found


@pytest.mark.parametrize("what", [{}, {"group": "some"}, {"labels": ("a",)}], ids=["graph", "group", "task"])
@pytest.mark.parametrize("off", OFF)
async def test_of_wishes_that_have_seen_each_other_the_later_one_counts_by_any_clocks(
    tmp_path: Path, off: float, what: dict[str, Any]
) -> None:
    store, clock = f"sqlite:///{tmp_path}/s.db", ManualClock()
    wrong = ManualClock(clock.now() + timedelta(seconds=off))
    async with Client(store, clock=clock) as right, Client(store, clock=wrong) as theirs:
        graph = Graph(max_in_flight=3)
        graph.group("some", graph.task("a"))
        await right.submit(graph, "g")
        asked: list[Message] = []
        for number in range(6):
            client, on = (right, theirs)[number // 2 % 2], number % 2 == 0
            wish = await pause.ask(client.app, "g", on=on, **what)
            change = await limit.ask(client.app, "g", 1 + number)
            clock.advance(6)  # so often a process looks for messages of a clock that was ahead
            new = await handled(right.app)
            assert await pause.settled(client.app, wish, until=0.0)
            assert await limit.settled(client.app, change, until=0.0)
            for message in asked:  # of before, once more
                await right.app.handlers.handle("g", [message])
            assert await pause.settled(client.app, wish, until=0.0)
            assert await limit.settled(client.app, change, until=0.0)
            asked += [each for each in new if isinstance(each, HoldBack | SetLimit)]
        assert len(asked) == 12


async def test_wishes_at_the_end_of_time_count_as_they_are_decided(tmp_path: Path) -> None:
    async with Client(f"sqlite:///{tmp_path}/s.db", clock=ManualClock()) as client:
        graph = Graph()
        graph.task("a")
        await client.submit(graph, "g")
        await client.app.handlers.handle("g", [HoldBack("g", True, "9999-12-31T23:59:59.999999+00:00")])
        wish = await pause.ask(client.app, "g", on=False)
        await handled(client.app)
        assert await pause.settled(client.app, wish, until=0.0)
