"""Who of several handlers goes first, in virtual time."""

import asyncio
import logging
import random
from collections.abc import Sequence

import pytest

from taskgraph.engine.lead import LEAD_SECONDS, Leads
from taskgraph.model import limits
from taskgraph.model.clock import Clock
from taskgraph.model.errors import Conflict, StorageUnavailable, Unclear
from taskgraph.model.flag import Flag
from taskgraph.model.names import LEADS, QueueNames
from taskgraph.queries.event_queues import EventQueues
from taskgraph.rehearsal.virtual_time import LoopClock
from taskgraph.storage.tables import Change
from taskgraph.testing import MemoryTables
from tests.scenarios.crew import Calls, Crew, Script, virtually

QUEUE = "taskgraph-events"


class Slow(MemoryTables):
    """A table whose commits are answered late."""

    async def commit(self, partition: str, changes: Sequence[Change]) -> list[str | None]:
        etags = await super().commit(partition, changes)
        await asyncio.sleep(0.1)
        return etags


class Failing(MemoryTables):
    """Tables whose next commits fail, after they were made or instead."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[tuple[Exception, bool]] = []

    async def commit(self, partition: str, changes: Sequence[Change]) -> list[str | None]:
        if not self.errors:
            return await super().commit(partition, changes)
        error, made = self.errors.pop(0)
        if made:
            await super().commit(partition, changes)
        raise error


class One:
    """The lead over the common queue."""

    def __init__(self, tables: MemoryTables, clock: Clock, holder: str) -> None:
        self._leads = Leads(tables, clock, EventQueues(tables, clock, QueueNames()), holder)
        self.give_up = self._leads.give_up

    @property
    def held(self) -> bool:
        return self._leads.held(QUEUE)

    async def take(self) -> float:
        return await self._leads.take(QUEUE)


def leads(crew: Crew, tables: MemoryTables, count: int = 2) -> list[One]:
    return [One(tables, crew.clock, f"h{number}") for number in range(count)]


def test_one_leads_and_the_others_hear_for_how_long() -> None:
    async def act(crew: Crew) -> None:
        tables = MemoryTables()
        first, second = leads(crew, tables)
        assert not first.held
        assert await first.take() == 0.0
        assert first.held
        assert LEAD_SECONDS - 1 < await second.take() <= LEAD_SECONDS + 1
        assert not second.held
        assert tables.commits == 1

    virtually(act)


def test_whoever_goes_on_asks_once_in_half_the_time_and_keeps_the_lead() -> None:
    async def act(crew: Crew) -> None:
        tables = MemoryTables()
        first, second = leads(crew, tables)
        for _ in range(100):
            assert await first.take() == 0.0
            assert await second.take() > 0.0
            await asyncio.sleep(LEAD_SECONDS / 10)
        assert 15 <= tables.commits <= 21

    virtually(act)


def test_with_nothing_to_do_nobody_leads_and_another_may() -> None:
    async def act(crew: Crew) -> None:
        tables = MemoryTables()
        first, second = leads(crew, tables)
        await first.take()
        await asyncio.sleep(LEAD_SECONDS + 0.1)
        assert not first.held
        assert await second.take() == 0.0
        assert await first.take() > 0.0, "what it remembers of the row is old"
        assert await first.take() > 0.0
        assert second.held
        assert not first.held

    virtually(act)


def test_a_lead_that_is_given_up_is_free_at_once() -> None:
    async def act(crew: Crew) -> None:
        tables = MemoryTables()
        first, second = leads(crew, tables)
        await first.take()
        await first.give_up()
        assert not first.held
        assert await second.take() == 0.0
        await first.give_up()
        assert second.held, "nothing of another is given up"
        assert tables.partitions[LEADS][QUEUE].columns["holder"] == "h1"

    virtually(act)


def test_a_lead_that_is_given_up_while_it_is_asked_for_is_not_held_afterwards() -> None:
    async def act(crew: Crew) -> None:
        first, second = leads(crew, Slow())
        await first.take()
        await asyncio.sleep(LEAD_SECONDS / 2 + 1)
        taking = asyncio.create_task(first.take())
        await asyncio.sleep(0)
        await first.give_up()
        await taking
        assert not first.held
        assert await second.take() == 0.0

    virtually(act)


@pytest.mark.parametrize("error", [Conflict("412"), Unclear("lost")], ids=["conflict", "unclear"])
@pytest.mark.parametrize("made", [True, False])
def test_an_answer_that_does_not_say_it_gives_no_lead(error: Exception, made: bool) -> None:
    async def act(crew: Crew) -> None:
        tables = Failing()
        first, second = leads(crew, tables)
        tables.errors = [(error, made)]
        assert await first.take() > 0.0
        assert not first.held
        assert await first.take() == 0.0, "asked again, it is told"
        assert await second.take() > 0.0
        tables.errors = [(error, made)]
        await first.give_up()
        assert not first.held
        await asyncio.sleep(LEAD_SECONDS + 1)
        assert await second.take() == 0.0

    virtually(act)


def test_only_one_of_two_consumers_handles_and_the_other_takes_over() -> None:
    async def act(crew: Crew) -> None:
        # Two chains side by side: of one alone its worker would make the commits.
        await crew.submit({f"{c}{n}": [f"{c}{n - 1}"] if n else [] for c in "ab" for n in range(4)})
        counted = [Calls(), Calls()]
        stops = [Flag(), Flag()]
        for calls, stop in zip(counted, stops, strict=True):
            crew.start(crew.consumer(calls), stop=stop)
        crew.start(*[crew.worker(Script(3.0), name=f"w{number}") for number in range(2)])
        await crew.until(lambda: any("commit" in calls.calls for calls in counted))
        leading = 0 if "commit" in counted[0].calls else 1
        standby = counted[1 - leading]
        await crew.until(lambda: counted[leading].calls.count("commit") >= 4)
        assert "commit" not in standby.calls, "it stands by"
        stops[leading].set()
        await crew.finished()
        assert "commit" in standby.calls, "it has taken over"
        stops[1 - leading].set()
        await crew.end()

    virtually(act)


def test_a_consumer_that_stops_while_storage_is_away_ends_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    async def act(crew: Crew) -> None:
        await crew.submit({"a": []})
        handlers = crew.handlers(Calls())
        consumer = crew.consumer(handlers=handlers)
        tables = Failing()
        tables.partitions = crew.stage.tables.partitions  # type: ignore[attr-defined]
        consumer._leads = Leads(tables, crew.clock, handlers.dispatcher.event_queues, "h")
        stop = Flag()
        (running,) = crew.start(consumer, stop=stop)
        crew.start(crew.worker(Script()))
        await crew.finished()
        assert consumer._leads.held(QUEUE)
        tables.errors = [(StorageUnavailable("503"), False)]
        stop.set()
        await running
        await crew.end()

    with caplog.at_level("INFO", "taskgraph.consumer"):
        virtually(act)
    assert "ends by itself" in caplog.text


def test_a_consumer_goes_on_when_storage_comes_back(caplog: pytest.LogCaptureFixture) -> None:
    async def act(crew: Crew) -> None:
        await crew.submit({"a": []})
        crew.start(crew.consumer(Calls(1, "unavailable", "receive")), crew.worker(Script()))
        await crew.finish()

    virtually(act)
    assert "cannot receive messages" in caplog.text


@pytest.mark.parametrize("ended", ["killed", "given up"])
@pytest.mark.parametrize("off", [-86_400.0, -3_600.0, 3_600.0, 86_400.0, 365 * 86_400.0])
def test_a_leader_whose_clock_was_off_holds_nobody_up_once_it_is_gone(
    off: float, ended: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def act(crew: Crew) -> None:
        tables = MemoryTables()
        first = One(tables, LoopClock(crew.loop, random.Random(1), off), "off")
        (second,) = leads(crew, tables, 1)
        assert await first.take() == 0.0
        if ended == "given up":
            await first.give_up()
        waited = 0.0
        while pause := await second.take():
            waited += pause
            await asyncio.sleep(pause)
        assert waited <= LEAD_SECONDS + limits.CLOCK_SLACK_SECONDS

    with caplog.at_level(logging.WARNING, "taskgraph.lead"):
        virtually(act)
    assert caplog.text.count("a clock is off") == (off > 0 and ended == "killed")


def test_a_standby_that_asks_in_vain_for_more_than_a_minute_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    said = []

    async def act(crew: Crew) -> None:
        clock, tables = LoopClock(crew.loop, random.Random(1)), MemoryTables()
        one, two = (One(tables, clock, holder) for holder in ("one", "two"))
        for pause in (*[5.0] * 12, 3600.0, *[5.0] * 30):
            assert await one.take() == 0
            assert await two.take() > 0
            said.append("this process stands by" in caplog.text)
            await asyncio.sleep(pause)

    with caplog.at_level(logging.INFO, "taskgraph.lead"):
        virtually(act)
    assert said.index(True) == 13 + 13, "5 s after a minute, and a pause with nothing to do does not count"
    assert caplog.text.count("this process stands by") == 1
    assert "one has led over taskgraph-events for 65 s" in caplog.text
