"""Held back: nothing of what is paused begins, whatever is under way, and all of it goes on when it is resumed."""

import contextlib
import itertools
from typing import Any

import pytest

from taskgraph import limits
from taskgraph.documents import document_from_object
from taskgraph.errors import Conflict, NotFound, StorageUnavailable
from taskgraph.messages import HoldBack
from taskgraph.transitions import Outcome
from tests.scenarios.stage import CrashError, Stage, Trap, extension, graph, graph_object, memory_stage

KINDS = ("before", "after", "unclear", "conflict", "unavailable")
CHAIN = graph({"a": [], "b": ["a"], "c": ["b"], "d": []})
WIDE = graph({"a": [], **{f"m{number:03}": ["a"] for number in range(150)}, "z": [f"m{n:03}" for n in range(150)]})


def wish(stage: Stage, *, on: bool, group: str = "", labels: tuple[str, ...] = (), asked: str = "") -> HoldBack:
    tasks = tuple(stage.task_id(label) for label in labels)
    return HoldBack(stage.graph_id, on, asked or stage.clock.now().isoformat(), group, tasks)


async def pause(stage: Stage, **what: Any) -> None:
    stage.clock.advance(1)
    await stage.deliver(wish(stage, on=True, **what))


async def resume(stage: Stage, **what: Any) -> None:
    stage.clock.advance(1)
    await stage.deliver(wish(stage, on=False, **what))


async def held_back(stage: Stage, label: str) -> bool:
    """Whether a task that stands ready cannot be claimed."""
    assert await stage.task_state(label) == "pending"
    answer = await stage.try_claim(label)
    return answer.outcome is Outcome.STALE and "held back" in answer.reason


async def test_nothing_of_a_paused_graph_begins_and_what_runs_comes_to_its_end(stage: Stage) -> None:
    await stage.submit(CHAIN)
    held = await stage.claim("a")
    await pause(stage)
    assert (await stage.told())[-1] == "graph-paused"
    assert await held_back(stage, "d")
    await stage.deliver(stage.completed(held))
    assert await stage.task_state("b") == "pending"
    assert await held_back(stage, "b")
    stage.clock.advance(600)
    swept = await stage.sweep()
    assert swept.reminded == 0
    await resume(stage)
    assert await stage.work() == "finished"
    assert set(stage.executed.values()) == {1}
    facts = await stage.told()
    assert facts == ["graph-running", "graph-paused", "graph-resumed", "graph-finished"]


async def test_a_failed_run_of_a_paused_graph_waits_for_its_rerun(stage: Stage) -> None:
    await stage.submit(graph({"a": []}, reruns={"a": 1}))
    held = await stage.claim("a")
    await pause(stage)
    await stage.deliver(stage.failed(held, reason="broke"))
    assert await stage.task_state("a") == "pending"
    assert await held_back(stage, "a")
    await resume(stage)
    assert await stage.work() == "finished"


async def test_a_group_is_paused_and_the_rest_goes_on(stage: Stage) -> None:
    obj = graph_object({"a": [], "b": [], "c": ["a", "b"]}, groups={"g 1": {"tasks": ["b"]}})
    await stage.submit(document_from_object(obj))
    await pause(stage, group="g 1")
    await stage.work()
    assert (await stage.task_state("a"), await stage.task_state("b"), await stage.task_state("c")) == (
        "completed",
        "pending",
        "unscheduled",
    )
    (reason, *_) = [each for each in await stage.queries.why(stage.graph_id, "b") if each.cause]
    assert "the group “g 1” is paused" in reason.text
    assert "resume graph --group 'g 1'" in reason.remedy
    await pause(stage)
    await resume(stage, group="g 1")
    assert await stage.work() != "finished"
    await resume(stage)
    assert await stage.work() == "finished"


async def test_what_is_not_active_from_the_start_waits_to_be_activated(stage: Stage) -> None:
    obj = graph_object({"a": [], "b": [], "c": []}, groups={"later": {"tasks": ["c"], "active": False}})
    obj["tasks"]["b"]["active"] = False
    await stage.submit(document_from_object(obj))
    await stage.work()
    assert [await stage.task_state(each) for each in "abc"] == ["completed", "pending", "pending"]
    stage.clock.advance(600)
    assert (await stage.sweep()).reminded == 0
    await resume(stage, labels=("b",))
    await resume(stage, group="later")
    assert await stage.work() == "finished"


async def test_of_two_wishes_the_later_counts_in_whatever_order_they_come(memory: Stage) -> None:
    await memory.submit(CHAIN)
    first, second = "2030-01-01T00:00:00+00:00", "2030-01-01T00:00:00.000001+00:00"
    await memory.deliver(wish(memory, on=True, asked=first))
    await memory.deliver(wish(memory, on=False, asked=second))
    (late,) = await memory.deliver(wish(memory, on=True, asked=first))
    assert late.answers[0].outcome is Outcome.STALE
    (again,) = await memory.deliver(wish(memory, on=False, asked=second))
    assert again.answers[0].outcome is Outcome.REPEATED
    assert await memory.work() == "finished"


async def test_a_wish_that_overtakes_the_one_before_it_counts(memory: Stage) -> None:
    await memory.submit(CHAIN)
    first, second = "2030-01-01T00:00:00+00:00", "2030-01-01T00:00:01+00:00"
    for labels in ((), ("b",)):
        await memory.deliver(wish(memory, on=False, asked=second, labels=labels))
        (late,) = await memory.deliver(wish(memory, on=True, asked=first, labels=labels))
        assert late.answers[0].outcome is Outcome.STALE
    assert await memory.work() == "finished"


async def test_a_paused_graph_takes_no_extension_and_a_resumed_one_does(memory: Stage) -> None:
    await memory.submit(CHAIN)
    await pause(memory)
    assert await memory.extend(extension({"x": ["a"]})) == "refused"
    await resume(memory)
    assert await memory.extend(extension({"x": ["a"]})) == "done"
    assert await memory.work() == "finished"


async def test_a_task_that_is_rerun_by_hand_is_held_by_what_is_held_then(memory: Stage) -> None:
    obj = graph_object({"a": [], "b": []}, groups={"g": {"tasks": ["b"]}})
    await memory.submit(document_from_object(obj))
    await memory.work(fails={"a": 1})
    await pause(memory)
    await pause(memory, group="g")
    await memory.rerun("a")
    assert await held_back(memory, "a")
    await resume(memory)
    memory.clock.advance(600)
    await memory.sweep()
    assert await memory.work() == "finished", "it is in no group that is paused"


async def test_what_failed_while_it_was_paused_is_not_held_when_it_is_rerun_later(memory: Stage) -> None:
    await memory.submit(graph({"a": []}))
    held = await memory.claim("a")
    await pause(memory)
    await memory.deliver(memory.failed(held, reason="broke"))
    await resume(memory)
    await memory.rerun("a")
    assert await memory.work() == "finished"


async def test_an_unknown_group_is_said_to_whoever_asks(memory: Stage) -> None:
    await memory.submit(CHAIN)
    (handled,) = await memory.handlers.handle(memory.graph_id, [wish(memory, on=True, group="none")])
    assert isinstance(handled.error, NotFound)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_pause_that_dies_anywhere_is_brought_to_its_end_by_the_sweep(kind: str) -> None:
    for at in itertools.count(1):
        stage = memory_stage()
        await stage.submit(WIDE)
        held = await stage.claim("a")
        trap = Trap(at, kind)
        stage.clock.advance(1)
        message = wish(stage, on=True)
        with contextlib.suppress(CrashError, StorageUnavailable, Conflict):
            await stage.more_handlers(trap).handle(stage.graph_id, [message])
        await stage.deliver(stage.completed(held))
        await stage.sweep()
        await stage.deliver(message)
        await stage.sweep()
        assert (await stage.told())[-1] == "graph-paused", (at, trap.calls)
        assert await held_back(stage, "m000")
        stage.clock.advance(1)
        message = wish(stage, on=False)
        with contextlib.suppress(CrashError, StorageUnavailable, Conflict):
            await stage.more_handlers(Trap(at, kind)).handle(stage.graph_id, [message])
        await stage.deliver(message)
        stage.clock.advance(limits.REDISPATCH_SECONDS + 1)
        await stage.sweep()
        assert await stage.work() == "finished", (at, trap.calls)
        if len(trap.calls) < at:
            assert at > 8
            return
