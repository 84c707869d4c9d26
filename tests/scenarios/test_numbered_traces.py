"""Five histories in which the first design of this protocol went wrong, each as a numbered regression test.

They were found by exhaustive search of that design (shortest traces): a lost task, a task run again after it had
succeeded, a negative rerun budget, a false block, and a graph that finished too early. Crashes are driven to every
storage call, not only to the one of the trace.
"""
# ruff: noqa: N802 - the numbers are names

import itertools

import pytest

from taskgraph.model.messages import AddTasks
from taskgraph.protocol.context import Outcome
from tests.scenarios.stage import CrashError, Stage, Trap, extension, graph, memory_stage

KINDS = ("before", "after", "unclear", "conflict")


async def test_T1_a_crash_between_the_write_and_the_sending_loses_no_task(stage: Stage) -> None:
    """done(a) is written, and the handler dies before it sends b. Redelivery sends it."""
    await stage.submit(graph({"a": [], "b": ["a"]}))
    await stage.offered()
    done = stage.completed(await stage.claim("a"))
    with pytest.raises(CrashError):
        await stage.deliver(done, handlers=stage.more_handlers(Trap(1, "after", "commit")))
    assert await stage.task_state("b") == "pending"
    assert await stage.offered() == []
    await stage.deliver(done)
    assert await stage.offered() == [("b", 0)]
    assert (await stage.told(tasks=True)).count("task-completed") == 1
    assert await stage.state() == "running"
    await stage.complete("b")
    assert await stage.state() == "finished"


async def crashed_everywhere(prepare, message, check) -> int:  # type: ignore[no-untyped-def]
    """Prepare a stage, kill a handler at each of its storage calls, deliver again, check; gives the number of kills."""
    kills = 0
    for at in itertools.count(1):
        for kind in KINDS:
            stage = memory_stage()
            await prepare(stage)
            trap = Trap(at, kind)
            crashed = False
            try:
                await stage.deliver(message(stage), handlers=stage.more_handlers(trap))
            except CrashError:
                crashed = True
                kills += 1
            if len(trap.calls) < at:
                return kills
            if crashed:
                await stage.deliver(message(stage))
            await check(stage)
    raise AssertionError("unreachable")


async def test_T1_wherever_it_crashes() -> None:
    done = {}

    async def prepare(stage: Stage) -> None:
        await stage.submit(graph({"a": [], "b": ["a"], "c": ["a"]}))
        await stage.offered()
        done[id(stage)] = stage.completed(await stage.claim("a"))

    async def check(stage: Stage) -> None:
        assert await stage.states() == {"a": "completed", "b": "pending", "c": "pending"}
        assert set(await stage.offered()) == {("b", 0), ("c", 0)}
        assert (await stage.told(tasks=True)).count("task-completed") == 1
        await stage.check({"a": [], "b": ["a"], "c": ["a"]})

    kills = await crashed_everywhere(prepare, lambda stage: done[id(stage)], check)
    assert kills >= 6, "reads, the commit and the sending, each before and after"


@pytest.mark.parametrize("first", ["extension", "completion"])
async def test_T2_a_task_that_two_messages_make_ready_runs_once(stage: Stage, first: str) -> None:
    """add(t) finds a complete and sends t; done(a), delivered again, finds t ready and sends it too. One claim wins."""
    await stage.submit(graph({"a": [], "keep": []}))
    done = stage.completed(await stage.claim("a"))
    staged = await stage.stage_extension(extension({"t": ["a"]}))
    await stage.forget_queues()
    add = AddTasks("graph", staged.request)
    await stage.deliver(*((add, done) if first == "extension" else (done, add)))
    await stage.deliver(done)
    await stage.deliver(add)
    offers = await stage.offered()
    assert set(offers) == {("t", 0)}
    assert len(offers) >= 2, "the history in question has t offered twice"
    held = await stage.claim("t")
    assert (await stage.try_claim("t", 0)).outcome is Outcome.STALE
    await stage.deliver(done)
    assert await stage.offered() == []
    await stage.deliver(stage.completed(held))
    await stage.deliver(done)
    await stage.deliver(add)
    assert await stage.offered() == []
    assert (await stage.try_claim("t", 0)).outcome is Outcome.STALE
    assert stage.executed["t", 0] == 1


async def test_T3_a_failure_that_is_handled_twice_spends_one_rerun(stage: Stage) -> None:
    """fail#1 is sent again, late, while the rerun runs and has failed: the budget never goes below zero."""
    await stage.submit(graph({"a": []}, reruns={"a": 1}))
    first = stage.failed(await stage.claim("a"))
    with pytest.raises(CrashError):
        await stage.deliver(first, handlers=stage.more_handlers(Trap(1, "after", "commit")))
    second = stage.failed(await stage.claim("a"))
    other = stage.more_handlers()
    slow = stage.more_handlers(between=lambda: stage.deliver(first, handlers=other))
    await stage.deliver(second, handlers=slow)
    await stage.deliver(first, second, first)
    row = (await stage.row("a")).columns
    assert (row["rerunsLeft"], row["run"], row["state"]) == (0, 1, "failed")
    assert await stage.state() == "blocked"
    assert (await stage.told(tasks=True)).count("task-rerun") == 1
    assert (await stage.try_claim("a")).outcome is Outcome.STALE


async def test_T3_two_handlers_with_the_same_failure_at_once(stage: Stage) -> None:
    await stage.submit(graph({"a": []}, reruns={"a": 5}))
    failure = stage.failed(await stage.claim("a"))
    other = stage.more_handlers()
    slow = stage.more_handlers(between=lambda: stage.deliver(failure, handlers=other))
    (handled,) = await stage.deliver(failure, handlers=slow)
    assert slow.counters.conflicts == 1
    assert handled.answers[0].outcome is Outcome.STALE
    row = (await stage.row("a")).columns
    assert (row["rerunsLeft"], row["run"]) == (4, 1)


async def test_T4_a_crash_before_the_acknowledgement_is_no_second_failure(stage: Stage) -> None:
    """fail(a) spends the last rerun, and the handler dies before it acknowledges: the graph must not be blocked."""
    await stage.submit(graph({"a": []}, reruns={"a": 1}))
    failure = stage.failed(await stage.claim("a"))
    await stage.deliver(failure)
    assert (await stage.row("a")).columns["rerunsLeft"] == 0
    (handled,) = await stage.deliver(failure)
    assert handled.answers[0].outcome is Outcome.STALE
    assert await stage.state() == "running"
    held = await stage.claim("a")
    await stage.deliver(failure)
    assert await stage.state() == "running"
    await stage.deliver(stage.completed(held))
    await stage.deliver(failure)
    assert await stage.told() == ["graph-running", "graph-finished"]
    assert await stage.state() == "finished"


async def test_T4_wherever_it_crashes() -> None:
    failed = {}

    async def prepare(stage: Stage) -> None:
        await stage.submit(graph({"a": []}, reruns={"a": 1}))
        await stage.offered()
        failed[id(stage)] = stage.failed(await stage.claim("a"))

    async def check(stage: Stage) -> None:
        row = (await stage.row("a")).columns
        assert (row["state"], row["run"], row["rerunsLeft"]) == ("pending", 1, 0)
        assert set(await stage.offered()) == {("a", 1)}
        await stage.complete("a")
        assert await stage.told() == ["graph-running", "graph-finished"]

    assert await crashed_everywhere(prepare, lambda stage: failed[id(stage)], check) >= 6


@pytest.mark.parametrize("needs", [[], ["a"]], ids=["independent", "dependent"])
async def test_T5_a_graph_that_is_being_extended_does_not_finish_early(stage: Stage, needs: list[str]) -> None:
    """done(a) has found nothing outstanding; add(t) comes in between; done(a) must find it when it writes."""
    await stage.submit(graph({"a": []}))
    done = stage.completed(await stage.claim("a"))
    staged = await stage.stage_extension(extension({"t": needs}))
    await stage.forget_queues()
    slow = stage.more_handlers(between=lambda: stage.deliver(AddTasks("graph", staged.request)))
    await stage.deliver(done, handlers=slow)
    assert slow.counters.conflicts == (2 if needs else 1), "over each row that the extension wrote, one by one"
    assert await stage.state() == "running"
    await stage.complete("t")
    assert await stage.state() == "finished"
    assert await stage.told(tasks=True) == [
        "graph-running",
        "graph-extended",
        "task-completed",
        "task-completed",
        "graph-finished",
    ]


@pytest.mark.parametrize("needs", [[], ["a"]], ids=["independent", "dependent"])
async def test_T5_wherever_it_crashes(needs: list[str]) -> None:
    done = {}

    async def prepare(stage: Stage) -> None:
        await stage.submit(graph({"a": []}))
        done[id(stage)] = stage.completed(await stage.claim("a"))
        await stage.stage_extension(extension({"t": needs}), request="r")

    async def check(stage: Stage) -> None:
        assert (await stage.queries.request("graph", "r"))["state"] == "done"
        await stage.deliver(done[id(stage)])
        assert await stage.state() == "running"
        await stage.complete("t")
        assert await stage.told() == ["graph-running", "graph-extended", "graph-finished"]

    assert await crashed_everywhere(prepare, lambda _: AddTasks("graph", "r"), check) >= 8
