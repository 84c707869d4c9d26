"""Held back: nothing of what is paused begins, whatever is under way, and all of it goes on when it is resumed."""

import asyncio
import contextlib
import itertools
from typing import Any

import pytest

from taskgraph.documents.read import document_from_object
from taskgraph.engine import control
from taskgraph.engine.requests import answer_request
from taskgraph.model import limits
from taskgraph.model.errors import Conflict, NotFound, StorageUnavailable
from taskgraph.model.flag import Flag
from taskgraph.model.messages import AddTasks, Cancel, HoldBack
from taskgraph.protocol.context import Outcome
from taskgraph.protocol.invariants.examine import examine
from taskgraph.queries import targets
from taskgraph.storage.tables import Row, query_all
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
    await stage.pump()  # of what waited for that


async def wrong(stage: Stage) -> list[str]:
    """What a doctor would say."""
    rows = {row.key: row for row in await stage.queries.partition(stage.graph_id)}
    found = examine(stage.graph_id, rows, stage.clock.now())
    return [each.text for each in found if each.severity == "wrong"]


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


async def test_an_extension_of_a_paused_graph_is_staged_and_made_at_resume(stage: Stage) -> None:
    await stage.submit(CHAIN)
    await pause(stage)
    asked = await stage.stage_extension(extension({"x": ["a"]}))
    assert (asked.state, asked.waits_for) == ("staged", "resume")
    await stage.pump()
    head = await stage.queries.request(stage.graph_id, asked.request)
    assert (head["state"], head["waitsFor"]) == ("staged", "resume")
    assert (await stage.stage_extension(extension({"x": ["a"]}))).request == asked.request, "asked for again"
    await stage.pump()
    stage.clock.advance(limits.REDISPATCH_SECONDS)
    assert (await stage.sweep()).request_resent == 0, "nothing can be made of it before"
    assert await wrong(stage) == []
    await resume(stage)
    assert await stage.extend(extension({"x": ["a"]})) == "done"
    assert (await stage.graph_row()).columns["deferred"] == "[]"
    assert await stage.work() == "finished"
    assert await wrong(stage) == []


async def test_a_paused_graph_that_is_done_waits_for_what_is_to_be_added(stage: Stage) -> None:
    """A task finds out what there is to do, and the graph is paused meanwhile: neither it nor what it found is lost."""
    await stage.submit(graph({"discover": []}))
    held = await stage.claim("discover")
    await pause(stage)
    assert await stage.extend(extension({"found": ["discover"]})) == "staged"
    await stage.deliver(stage.completed(held))
    assert await stage.state() == "running"
    assert await wrong(stage) == []
    await resume(stage)
    assert await stage.task_state("found") == "pending"
    assert await stage.work() == "finished"


@pytest.mark.parametrize("count", [2, 150], ids=["in one commit", "in steps"])
async def test_a_group_that_an_extension_brings_in_inactive_goes_on_when_it_is_resumed(
    stage: Stage, count: int
) -> None:
    await stage.submit(graph({"a": []}))
    labels = [f"x{number:03}" for number in range(count)]
    more = graph_object({each: [] for each in labels})
    more["groups"] = {"late": {"active": False, "tasks": labels}}
    assert await stage.extend(document_from_object(more, kind="extension")) == "done"
    assert (await stage.graph_row()).columns["held"] == '["group:late"]'
    assert await held_back(stage, labels[-1])
    assert await wrong(stage) == []
    await resume(stage, group="late")
    assert await stage.work() == "finished"
    assert await wrong(stage) == []


async def test_a_graph_is_paused_while_the_rows_of_an_inactive_group_are_still_to_come(memory: Stage) -> None:
    """The handler dies between the commit that accepts an extension and the one that writes its group."""
    await memory.submit(graph({"a": []}))
    labels = [f"x{number:03}" for number in range(150)]
    more = graph_object({each: [] for each in labels})
    more["groups"] = {"late": {"active": False, "tasks": labels}}
    staged = await memory.stage_extension(document_from_object(more, kind="extension"))
    with contextlib.suppress(CrashError):
        dying = memory.more_handlers(Trap(1, "after", only="commit"))
        await answer_request(dying, memory.graph_id, staged.request)
    assert (await memory.graph_row()).columns["held"] == '["group:late"]'
    await pause(memory)
    memory.clock.advance(limits.REDISPATCH_SECONDS)
    await memory.sweep()
    await memory.pump()
    await resume(memory)
    await resume(memory, group="late")
    assert await memory.work() == "finished"
    assert await wrong(memory) == []


async def paused_group_and_extension(memory: Stage) -> AddTasks:
    """A group that grows and is paused, and a large extension of it that is staged."""
    obj = graph_object({"a": [], "b": []}, groups={"g": {"tasks": ["a"], "grows": True}})
    await memory.submit(document_from_object(obj))
    await pause(memory, group="g")
    labels = [f"x{number:03}" for number in range(150)]
    more = graph_object({each: [] for each in labels}, groups={"g": {"tasks": labels}})
    staged = await memory.stage_extension(document_from_object(more, kind="extension"))
    return AddTasks(memory.graph_id, staged.request)


async def accept(stage: Stage, message: AddTasks) -> None:
    """A handler accepts an extension and dies."""
    with contextlib.suppress(CrashError):
        await answer_request(stage.more_handlers(Trap(1, "after", only="commit")), message.graph, message.request)
    assert (await stage.queries.request(message.graph, message.request))["state"] == "accepted"


async def test_tasks_come_in_by_no_plan_from_before_another_handler_accepted_them(memory: Stage) -> None:
    """The slow handler planned them while their group was paused."""
    message = await paused_group_and_extension(memory)

    async def resumed_and_accepted() -> None:
        memory.clock.advance(1)
        await memory.deliver(wish(memory, on=False, group="g"))
        await accept(memory, message)

    await memory.deliver(message, handlers=memory.more_handlers(between=resumed_and_accepted))
    assert await memory.work() == "finished"
    assert await wrong(memory) == []


async def test_no_pause_is_over_while_rows_of_an_extension_come_in(
    memory: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come in, held back, after a settling has read the tasks, and before it commits that all are settled."""
    message = await paused_group_and_extension(memory)
    await accept(memory, message)
    planned, go_on = Flag(), Flag()

    async def wait() -> None:
        planned.set()
        await go_on.wait()

    pushing = asyncio.create_task(memory.deliver(message, handlers=memory.more_handlers(between=wait)))
    await planned.wait()
    memory.clock.advance(1)
    dying = memory.more_handlers(Trap(1, "after", only="commit"))
    with contextlib.suppress(CrashError):
        await memory.deliver(wish(memory, on=False, group="g"), handlers=dying)
    looks: list[int] = []

    async def read(*wanted: Any) -> list[Row]:
        rows = await query_all(*wanted)
        looks.append(len(rows))
        if len(looks) == 2:  # all that were there have been settled
            go_on.set()
            await pushing
        return rows

    monkeypatch.setattr(control, "query_all", read)
    await control.settle_holds(memory.handlers, memory.graph_id)
    assert len(looks) >= 2
    memory.clock.advance(limits.REDISPATCH_SECONDS)
    await memory.sweep()
    assert await memory.work() == "finished"
    assert await wrong(memory) == []


async def test_a_graph_that_waits_for_what_is_refused_at_resume_is_finished(stage: Stage) -> None:
    await stage.submit(graph({"a": []}))
    held = await stage.claim("a")
    await pause(stage)
    assert await stage.extend(extension({"x": ["nobody"]})) == "staged"
    await stage.deliver(stage.completed(held))
    assert await stage.state() == "running"
    await resume(stage)
    assert await stage.state() == "finished"


async def test_what_waits_for_a_resume_that_was_lost_is_made_by_the_sweep(memory: Stage) -> None:
    await memory.submit(CHAIN)
    await pause(memory)
    assert await memory.extend(extension({"x": ["a"]})) == "staged"
    await memory.deliver(wish(memory, on=False, asked="2030-01-01T00:00:00+00:00"))
    await memory.take_events()
    assert (await memory.sweep()).request_resent == 1
    await memory.pump()
    assert await memory.task_state("x") == "unscheduled"


async def test_a_cancelled_graph_answers_what_waited_for_its_resume(memory: Stage) -> None:
    await memory.submit(CHAIN)
    await pause(memory)
    staged = await memory.stage_extension(extension({"x": ["a"]}))
    await memory.pump()
    await memory.deliver(Cancel(memory.graph_id))
    await memory.sweep()
    head = await memory.queries.request(memory.graph_id, staged.request)
    assert (head["state"], await memory.state()) == ("refused", "cancelled")


async def test_no_more_extensions_wait_than_the_graph_row_names(memory: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DEFERRED_MAX", 1)
    await memory.submit(CHAIN)
    await pause(memory)
    assert await memory.extend(extension({"x": ["a"]})) == "staged"
    assert await memory.extend(extension({"y": ["a"]})) == "refused"


async def test_a_paused_group_and_a_paused_target_do_not_keep_an_extension_waiting(memory: Stage) -> None:
    obj = graph_object({"a": [], "b": []}, groups={"g": {"tasks": ["b"]}})
    await memory.submit(document_from_object(obj))
    await pause(memory, group="g")
    assert await memory.extend(extension({"x": ["b"]})) == "done"
    await targets.close(memory.tables, "default", memory.clock.now(), "")
    assert await memory.extend(extension({"y": ["b"]})) == "done"


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
