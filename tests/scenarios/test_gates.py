"""A target that is paused: workers notice in time, nothing of it begins after that, and all of it goes on."""

import asyncio

import pytest

from taskgraph.model import limits
from taskgraph.model.errors import StorageUnavailable
from taskgraph.queries import targets
from tests.scenarios.crew import Calls, Crew, Script, chain, virtually
from tests.scenarios.stage import CrashError, Stage, Trap, TrappedTables

WIDE = {"a": [], **{f"m{number:02}": ["a"] for number in range(20)}}
NOTICED_SECONDS = limits.GATE_SECONDS + 1.0


@pytest.mark.parametrize("direct", [True, False])
def test_after_some_seconds_nothing_of_a_paused_target_begins_and_what_runs_ends(direct: bool) -> None:
    async def act(crew: Crew) -> None:
        await crew.submit(WIDE)
        script = Script(3.0)
        consumer, worker = crew.consumer(), crew.worker(script, slots=2)
        if direct:
            consumer, worker = crew.together(script, slots=2)
        crew.start(consumer, worker)
        await crew.until(lambda: len(script.runs) >= 5)
        await targets.close(crew.stage.tables, "default", crew.clock.now(), "new drivers")
        await asyncio.sleep(NOTICED_SECONDS + 3.0)
        begun = len(script.runs)
        assert len(script.ended) == begun, "what had begun has come to its end"
        assert worker.at_rest, "what was in its stock is in nobody's hand"
        await asyncio.sleep(200.0)
        assert len(script.runs) == begun
        (reason, *_) = [each for each in await crew.stage.queries.why("graph", "m19") if each.cause]
        if "default is paused" in reason.text:
            assert "new drivers" in reason.text
            assert "taskgraph resume --target default" in reason.remedy
        else:
            assert "completed" in reason.text
        assert await targets.reopen(crew.stage.tables, "default")
        await crew.finish()
        assert set(script.runs) == {(label, 0) for label in WIDE}

    virtually(act)


def test_what_a_worker_had_in_stock_is_in_nobodys_hand_once_its_target_is_paused() -> None:
    async def act(crew: Crew) -> None:
        script = Script(1.0, {"a": limits.GATE_SECONDS + 0.2})
        consumer, worker = crew.together(script, slots=2)
        crew.start(consumer, worker)
        await asyncio.sleep(limits.GATE_SECONDS - 0.35)
        await crew.submit(WIDE)
        await crew.until(lambda: len(script.runs) == 3)  # a moment before it looks for the second time
        await targets.close(crew.stage.tables, "default", crew.clock.now())
        await asyncio.sleep(1.5)
        begun = len(script.runs)
        assert begun == 3, "what it had begun, and nothing of its stock"
        assert worker.at_rest
        assert not consumer.local_worker.wants(crew.stage.graph_id)
        await asyncio.sleep(60.0)
        assert len(script.runs) == begun
        await targets.reopen(crew.stage.tables, "default")
        await crew.finish()

    virtually(act)


def test_a_target_that_is_paused_before_anything_began_is_not_begun() -> None:
    async def act(crew: Crew) -> None:
        await targets.close(crew.stage.tables, "default", crew.clock.now())
        await crew.submit(chain(3))
        script = Script(1.0)
        crew.start(*crew.together(script))
        await asyncio.sleep(120.0)
        assert script.runs == []
        await targets.reopen(crew.stage.tables, "default")
        await crew.finish()

    virtually(act)


def test_other_targets_go_on() -> None:
    async def act(crew: Crew) -> None:
        await targets.close(crew.stage.tables, "other", crew.clock.now())
        await crew.submit(chain(3))
        crew.start(*crew.together(Script(1.0)))
        await crew.finish()

    virtually(act)


def test_a_worker_without_work_looks_when_it_begins_and_never_again() -> None:
    async def act(crew: Crew) -> None:
        calls = Calls()
        crew.start(crew.worker(Script(), calls))
        await asyncio.sleep(3_600.0)
        assert calls.counted()["query"] == 1
        await crew.end()

    virtually(act)


async def test_a_gate_is_closed_and_opened_once(stage: Stage) -> None:
    now = stage.clock.now()
    assert await targets.close(stage.tables, "gpu", now, "why") is True
    assert await targets.close(stage.tables, "gpu", now, "again") is False
    (gate,) = (await targets.closed(stage.tables)).values()
    assert (gate.target, gate.reason) == ("gpu", "why")
    assert await targets.reopen(stage.tables, "gpu") is True
    assert await targets.reopen(stage.tables, "gpu") is False
    assert await targets.closed(stage.tables) == {}


@pytest.mark.parametrize("kind", ["unclear", "conflict", "unavailable"])
async def test_an_answer_that_is_lost_is_settled_by_reading(kind: str, memory: Stage) -> None:
    now = memory.clock.now()
    trapped = TrappedTables(memory.tables, Trap(1, kind, only="commit"))
    if kind == "unavailable":
        with pytest.raises(StorageUnavailable):
            await targets.close(trapped, "gpu", now)
        return
    await targets.close(trapped, "gpu", now)
    assert set(await targets.closed(memory.tables)) == {"gpu"}
    trapped = TrappedTables(memory.tables, Trap(1, kind, only="commit"))
    assert await targets.reopen(trapped, "gpu") is False
    assert await targets.closed(memory.tables) == {}


async def test_what_is_not_written_is_said(memory: Stage) -> None:
    class Lost(TrappedTables):
        async def commit(self, partition: str, changes: object) -> list[str | None]:
            from taskgraph.model.errors import Unclear

            raise Unclear("nothing was written, and nobody knows")

    with pytest.raises(Exception, match="nobody knows"):
        await targets.close(Lost(memory.tables, Trap()), "gpu", memory.clock.now())
    with pytest.raises(CrashError):
        await targets.close(TrappedTables(memory.tables, Trap(1)), "gpu", memory.clock.now())


def test_gates_that_cannot_be_read_hold_nobody_up() -> None:
    async def act(crew: Crew) -> None:
        await crew.submit(chain(2))
        calls = Calls(1, "unavailable", only="query")
        crew.start(crew.consumer(), crew.worker(Script(1.0), calls))
        await crew.finish()

    virtually(act)
