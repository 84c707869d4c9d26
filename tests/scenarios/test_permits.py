"""Limits of targets, over all graphs of a store: so many run at a time, whoever dies, is cut off, or comes late."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from taskgraph.model import limits
from taskgraph.model.errors import Conflict, InvalidInput, StorageUnavailable, Unclear
from taskgraph.queries import targets
from taskgraph.queries.targets import GATES
from taskgraph.storage.tables import Change, Merge, Page, Range, Row, Tables
from taskgraph.worker.executors import Outcome, Work, WriteLog
from taskgraph.worker.permits import Permits
from tests.scenarios.crew import Calls, Crew, Script, virtually
from tests.scenarios.stage import Stage, Trap, TrappedTables

NOTICED_SECONDS = limits.GATE_SECONDS + 1.0


class Watched(Script):
    """An executor that knows how many of its runs are under way, over all workers that share it."""

    def __init__(self, seconds: float = 1.0) -> None:
        super().__init__(seconds)
        self.under_way: Counter[str] = Counter()
        self.most = 0

    async def run(self, work: Work, write_log: WriteLog) -> Outcome:
        self.under_way[work.label] += 1
        self.most = max(self.most, self.under_way.total())
        try:
            return await super().run(work, write_log)
        finally:
            self.under_way[work.label] -= 1


class Slow:
    """A table whose answers take their time, so that calls of one worker overlap."""

    def __init__(self, inner: Tables) -> None:
        self._inner = inner

    async def get(self, partition: str, keys: Sequence[str]) -> list[Row | None]:
        found = await self._inner.get(partition, keys)
        await asyncio.sleep(0.03)
        return found

    async def query(self, partition: str, rows: Range, *, limit: int = 1000, continuation: str | None = None) -> Page:
        page = await self._inner.query(partition, rows, limit=limit, continuation=continuation)
        await asyncio.sleep(0.1)
        return page

    async def commit(self, partition: str, changes: Sequence[Change]) -> list[str | None]:
        await asyncio.sleep(0.03)
        etags = await self._inner.commit(partition, changes)
        await asyncio.sleep(0.03)
        return etags


def fan(width: int) -> dict[str, list[str]]:
    return {f"t{n:03}": [] for n in range(width)}


async def limit(crew: Crew, most: int) -> None:
    await targets.limit_target(crew.stage.tables, "default", most, crew.clock.now())


async def held(crew: Crew) -> int:
    (found,) = (await targets.limited(crew.stage.tables, crew.clock.now())).values()
    return len(found.permits)


# --- how many run


@pytest.mark.parametrize("most", [1, 2, 5])
def test_workers_together_run_no_more_of_a_target_than_its_limit(most: int) -> None:
    async def act(crew: Crew) -> None:
        await limit(crew, most)
        await crew.submit(fan(30))
        script = Watched()
        crew.start(crew.consumer(), *(crew.worker(script, name=f"w{n}", slots=4) for n in range(3)))
        await crew.finish()
        assert script.most == most
        assert set(script.runs) == {(label, 0) for label in fan(30)}
        assert await held(crew) == 0, "whoever ends gives its permits back"

    virtually(act)


@pytest.mark.parametrize("most", [1, 2, 3])
def test_messages_that_a_worker_takes_at_once_share_no_permit(most: int) -> None:
    """Each asked whether there are as many permits as runs, before the runs of the other counted."""

    async def act(crew: Crew) -> None:
        crew.stage.tables = Slow(crew.stage.tables)
        await limit(crew, most)
        await crew.submit(fan(30))
        script = Watched()
        crew.start(crew.consumer(), crew.worker(script, slots=4))
        await crew.finish()
        assert script.most == most

    virtually(act)


def test_a_permit_that_was_taken_while_others_were_read_is_not_lost() -> None:
    async def act(crew: Crew) -> None:
        tables = crew.stage.tables
        await targets.limit_target(tables, "gpu", 3, crew.clock.now())
        mine = Permits(Slow(tables), crew.clock, "w", 60.0)
        assert await mine.take("gpu", lambda: 2) == 2
        (row,) = await tables.get(GATES, ["permit:gpu:0000"])
        assert row is not None
        await tables.commit(GATES, [Merge(row.key, row.etag, {"token": "somebody else's"})])
        taking = asyncio.create_task(mine.take("gpu", lambda: 3))
        await asyncio.sleep(0.08)
        await mine.renew()
        await taking
        assert mine.held("gpu") == 2, "one is somebody else's, and of the others none"
        assert mine.lost() == {"gpu": 1}, "for one that is said to be lost a run is stopped"

    virtually(act)


def test_a_permit_that_is_being_given_back_is_held_by_nobody() -> None:
    async def act(crew: Crew) -> None:
        await targets.limit_target(crew.stage.tables, "gpu", 1, crew.clock.now())
        mine = Permits(Slow(crew.stage.tables), crew.clock, "w", 60.0)
        assert await mine.take("gpu", lambda: 1) == 1
        _, usable = await asyncio.gather(mine.give_back("gpu"), mine.take("gpu", lambda: 1))
        found = (await targets.limited(crew.stage.tables, crew.clock.now()))["gpu"].permits
        assert usable == mine.held("gpu") == len(found)

    virtually(act)


async def test_what_an_older_look_at_the_gates_says_replaces_nothing(memory: Stage) -> None:
    """Of two looks that overlap the later one is answered first: it has seen that the target is paused and limited."""
    tables, answers = Late(memory.tables), [asyncio.Event(), asyncio.Event()]
    tables.answers = list(answers)
    known = targets.Gates(tables, memory.clock)
    older = asyncio.create_task(known.look())
    await asyncio.sleep(0)
    memory.clock.advance(1.0)
    await targets.close(memory.tables, "gpu", memory.clock.now())
    newer = asyncio.create_task(known.look(again=True))
    await asyncio.sleep(0)
    answers[1].set()
    await newer
    answers[0].set()
    await older
    assert set(known.closed) == {"gpu"}
    mine = Permits(memory.tables, memory.clock, "w", 60.0)
    await targets.limit_target(memory.tables, "gpu", 1, memory.clock.now())
    assert await mine.take("gpu", lambda: 1) == 1
    assert known.seen is not None
    mine.saw(known.rows, known.seen - 1.0)
    assert set(mine.limits) == {"gpu"}


class Late(TrappedTables):
    """Evaluates queries at once, and answers each when it is let go."""

    answers: list[asyncio.Event]

    def __init__(self, inner: Tables) -> None:
        super().__init__(inner, Trap())

    async def query(self, partition: str, rows: Range, *, limit: int = 1000, continuation: str | None = None) -> Page:
        answer = self.answers.pop(0)
        page = await super().query(partition, rows, limit=limit, continuation=continuation)
        await answer.wait()
        return page


def test_a_worker_with_a_desk_keeps_to_the_limit_too() -> None:
    async def act(crew: Crew) -> None:
        await limit(crew, 2)
        await crew.submit({"a": [], **{f"m{n}": ["a"] for n in range(12)}, "z": [f"m{n}" for n in range(12)]})
        script = Watched()
        crew.start(*crew.together(script, slots=4))
        await crew.finish()
        assert script.most == 2

    virtually(act)


def test_the_limit_is_used_to_the_full() -> None:
    """Thirty tasks of a second each, two at a time: half a minute, and not much more."""

    async def act(crew: Crew) -> None:
        await limit(crew, 2)
        await crew.submit(fan(30))
        script = Watched()
        crew.start(crew.consumer(), *(crew.worker(script, name=f"w{n}", slots=2) for n in range(2)))
        began = crew.clock.monotonic()
        await crew.finish()
        assert crew.clock.monotonic() - began < 30

    virtually(act)


def test_other_targets_are_not_held_up() -> None:
    async def act(crew: Crew) -> None:
        await targets.limit_target(crew.stage.tables, "other", 1, crew.clock.now())
        await crew.submit(fan(12))
        script = Watched()
        crew.start(crew.consumer(), crew.worker(script, slots=4, targets=("other", "default")))
        await crew.finish()
        assert script.most == 4

    virtually(act)


# --- changes


def test_a_limit_that_is_set_while_much_runs_takes_effect_as_runs_end() -> None:
    async def act(crew: Crew) -> None:
        await crew.submit(fan(60))
        script = Watched(4.0)
        crew.start(crew.consumer(), *(crew.worker(script, name=f"w{n}", slots=4) for n in range(2)))
        await crew.until(lambda: script.under_way.total() == 8)
        await limit(crew, 2)
        await asyncio.sleep(NOTICED_SECONDS + 5.0)
        script.most = 0
        await asyncio.sleep(30.0)
        assert script.most <= 2
        assert all(run == 0 for _, run in script.runs), "no run is stopped"
        await targets.clear_target(crew.stage.tables, "default")
        await asyncio.sleep(NOTICED_SECONDS + 10.0)
        assert script.most > 2
        await crew.finish()

    virtually(act)


def test_a_limit_that_is_lowered_stops_nothing_and_holds_soon() -> None:
    async def act(crew: Crew) -> None:
        await limit(crew, 6)
        await crew.submit(fan(60))
        script = Watched(3.0)
        crew.start(crew.consumer(), *(crew.worker(script, name=f"w{n}", slots=4) for n in range(2)))
        await crew.until(lambda: script.under_way.total() == 6)
        await limit(crew, 1)
        await asyncio.sleep(NOTICED_SECONDS + 4.0)
        script.most = 0
        await asyncio.sleep(20.0)
        assert script.most <= 1
        assert all(run == 0 for _, run in script.runs)
        await limit(crew, 8)
        await crew.finish()

    virtually(act)


# --- faults


class CutOff(TrappedTables):
    """A table that cannot be reached for a while."""

    def __init__(self, inner: Any, is_cut: Callable[[], bool], *, everything: bool = False) -> None:
        super().__init__(inner, Trap())
        self._is_cut = is_cut
        self._everything = everything

    async def get(self, partition: str, keys: Sequence[str]) -> Any:
        self._check(partition)
        return await super().get(partition, keys)

    async def query(self, partition: str, *args: Any, **more: Any) -> Any:
        self._check(partition)
        return await super().query(partition, *args, **more)

    async def commit(self, partition: str, changes: Sequence[Change]) -> list[str | None]:
        self._check(partition)
        return await super().commit(partition, changes)

    def _check(self, partition: str) -> None:
        if self._is_cut() and (self._everything or partition == GATES):
            raise StorageUnavailable("the network is gone")


def test_the_permits_of_a_worker_that_is_never_heard_of_again_come_back_by_time() -> None:
    async def act(crew: Crew) -> None:
        await limit(crew, 2)
        await crew.submit(fan(6))
        first, second = Watched(1e6), Watched(1.0)
        gone = False
        handlers = crew.handlers(Calls())
        handlers.records.tables = CutOff(handlers.records.tables, lambda: gone, everything=True)
        crew.start(crew.consumer(), crew.worker(first, name="gone", slots=2, handlers=handlers))
        await crew.until(lambda: first.under_way.total() == 2)
        gone = True
        crew.start(crew.worker(second, name="lives", slots=2))
        await asyncio.sleep(15.0)
        assert second.runs == [], "what the other held it may still be using"
        await crew.until(lambda: len(second.ended) == 4, 60.0)
        assert second.most == 2
        gone = False
        await crew.end()

    virtually(act)


def test_a_worker_that_cannot_renew_stops_before_anybody_else_begins() -> None:
    async def act(crew: Crew) -> None:
        await limit(crew, 1)
        await crew.submit(fan(2))
        script = Watched(1e4)
        cut = False
        handlers = crew.handlers(Calls())
        handlers.records.tables = CutOff(handlers.records.tables, lambda: cut)
        crew.start(crew.consumer(), crew.worker(script, name="cut off", handlers=handlers))
        await crew.until(lambda: script.under_way.total() == 1)
        crew.start(crew.worker(script, name="other"))
        await asyncio.sleep(100.0)
        assert len(script.runs) == 1, "it renews"
        cut = True
        await crew.until(lambda: len(script.runs) >= 2, 200.0)
        assert script.most == 1, "the one that was cut off had stopped by then"
        await crew.end()

    virtually(act)


def test_a_clock_that_is_ahead_takes_nobodys_permit_while_it_is_used() -> None:
    """By less than the margin: a quarter of the lease."""

    async def act(crew: Crew) -> None:
        mine = Permits(crew.stage.tables, crew.clock, "mine", 60.0)
        await limit(crew, 1)
        assert await mine.take("default", lambda: 1) == 1
        await asyncio.sleep(46.0)
        assert mine.usable("default") == 0
        assert mine.lost() == {"default": 1}
        other = Permits(crew.stage.tables, crew.clock, "other", 60.0)
        assert await other.take("default", lambda: 1) == 0, "by then nobody else has it"
        await asyncio.sleep(15.0)
        assert await other.take("default", lambda: 1) == 1
        await mine.renew()
        assert (mine.usable("default"), other.usable("default")) == (0, 1)

    virtually(act)


@pytest.mark.parametrize("kind", ["unclear", "conflict"])
async def test_a_permit_whose_answer_was_lost_is_found_again(kind: str, memory: Stage) -> None:
    await targets.limit_target(memory.tables, "gpu", 1, memory.clock.now())
    trapped = TrappedTables(memory.tables, Trap(1, kind, only="commit"))
    mine = Permits(trapped, memory.clock, "w", 60.0)
    assert await mine.take("gpu", lambda: 1) == 1
    other = Permits(memory.tables, memory.clock, "w", 60.0)
    assert await other.take("gpu", lambda: 1) == 0
    await mine.give_back("gpu")
    assert await other.take("gpu", lambda: 1) == 1
    assert await mine.take("gpu", lambda: 1) == 0


@pytest.mark.parametrize("kind", ["unclear", "conflict"])
async def test_renewing_and_giving_back_go_on_when_an_answer_is_lost(kind: str, memory: Stage) -> None:
    await targets.limit_target(memory.tables, "gpu", 1, memory.clock.now())
    mine = Permits(TrappedTables(memory.tables, Trap(2, kind, only="commit")), memory.clock, "w", 60.0)
    assert await mine.take("gpu", lambda: 1) == 1
    memory.clock.advance(30.0)
    await mine.renew()
    memory.clock.advance(40.0)
    assert (mine.usable("gpu"), mine.lost()) == (1, {}), "it was renewed, whatever was said of it"
    other = Permits(TrappedTables(memory.tables, Trap(2, kind, only="commit")), memory.clock, "v", 60.0)
    await mine.give_back("gpu")
    assert await other.take("gpu", lambda: 1) == 1
    await other.give_back("gpu")
    memory.clock.advance(61.0)
    assert await mine.take("gpu", lambda: 1) == 1, "given back, or over by time"


@pytest.mark.parametrize("kind", ["unclear", "conflict"])
async def test_a_limit_is_written_though_others_write_it_too(kind: str, memory: Stage) -> None:
    tables = TrappedTables(memory.tables, Trap(1, kind, only="commit"))
    assert await targets.limit_target(tables, "gpu", 2, memory.clock.now()) is True
    tables = TrappedTables(memory.tables, Trap(1, kind, only="commit"))
    assert await targets.clear_target(tables, "gpu") is False, "it is cleared, and nobody knows by whom"
    assert await targets.limited(memory.tables, memory.clock.now()) == {}


async def test_renewing_that_meets_somebody_else_loses_the_permit_and_no_other(memory: Stage) -> None:
    await targets.limit_target(memory.tables, "gpu", 3, memory.clock.now())
    mine = Permits(memory.tables, memory.clock, "w", 60.0)
    assert await mine.take("gpu", lambda: 3) == 3
    (row,) = await memory.tables.get(GATES, ["permit:gpu:0001"])
    assert row is not None
    await memory.tables.commit(GATES, [Merge(row.key, row.etag, {"token": "somebody else's"})])
    await mine.renew()
    assert (mine.usable("gpu"), mine.lost()) == (2, {"gpu": 1})


async def test_a_limit_of_a_target_is_set_and_cleared_once(memory: Stage) -> None:
    now = memory.clock.now()
    assert await targets.limit_target(memory.tables, "gpu", 4, now, "four of them") is True
    assert await targets.limit_target(memory.tables, "gpu", 4, memory.clock.now(), "four of them") in (True, False)
    (found,) = (await targets.limited(memory.tables, now)).values()
    assert (found.target, found.most, found.reason, found.permits) == ("gpu", 4, "four of them", ())
    assert await targets.closed(memory.tables) == {}, "it is limited, and not paused"
    assert await targets.clear_target(memory.tables, "gpu") is True
    assert await targets.clear_target(memory.tables, "gpu") is False
    with pytest.raises(InvalidInput):
        await targets.limit_target(memory.tables, "gpu", 0, now)


@pytest.mark.parametrize("change", ["set", "clear"])
async def test_what_could_not_be_written_is_said(change: str, memory: Stage) -> None:
    class Lost(TrappedTables):
        async def commit(self, partition: str, changes: object) -> list[str | None]:
            raise Unclear("nothing was written, and nobody knows")

    await targets.limit_target(memory.tables, "gpu", 4, memory.clock.now())
    tables = Lost(memory.tables, Trap())
    asked = targets.limit_target(tables, "gpu", 5, memory.clock.now())
    if change == "clear":
        asked.close()
        asked = targets.clear_target(tables, "gpu")
    with pytest.raises(Conflict):
        await asked


# --- what it costs


def test_a_target_without_a_limit_costs_no_call_more() -> None:
    async def calls_of(crew: Crew, limited: str) -> Counter[str]:
        if limited:
            await targets.limit_target(crew.stage.tables, limited, 4, crew.clock.now())
        await crew.submit(fan(40))
        calls = Calls()
        crew.start(crew.consumer(), crew.worker(Script(1.0), calls, slots=4))
        await crew.finish()
        return calls.counted()

    found: list[Counter[str]] = []

    async def act(crew: Crew) -> None:
        found.append(await calls_of(crew, ""))

    async def act_beside_a_limit(crew: Crew) -> None:
        found.append(await calls_of(crew, "other"))

    virtually(act)
    virtually(act_beside_a_limit)
    assert found[0] == found[1]
