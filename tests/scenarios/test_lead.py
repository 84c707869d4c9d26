"""Who of several handlers goes first, in virtual time."""

import asyncio
from collections.abc import Sequence

import pytest

from taskgraph.errors import Conflict, StorageUnavailable, Unclear
from taskgraph.lead import LEAD_SECONDS, LEADS, Lead
from taskgraph.storage.tables import Change
from tests.scenarios.crew import Calls, Crew, Script, virtually
from tests.simulation.memory import MemoryTables

QUEUE = "taskgraph-events"


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


def leads(crew: Crew, tables: MemoryTables, count: int = 2) -> list[Lead]:
    return [Lead(tables, crew.clock, QUEUE, f"h{number}") for number in range(count)]


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
        stops = [asyncio.Event(), asyncio.Event()]
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
        consumer._lead = Lead(tables, crew.clock, QUEUE, "h")
        stop = asyncio.Event()
        (running,) = crew.start(consumer, stop=stop)
        crew.start(crew.worker(Script()))
        await crew.finished()
        assert consumer._lead.held
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
