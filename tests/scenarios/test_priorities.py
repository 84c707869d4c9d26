"""Priorities, ageing, and fairness between graphs: production workers and consumers in virtual time."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from taskgraph.engine.sweep import sweep
from taskgraph.model import limits
from taskgraph.model.flag import Flag
from taskgraph.model.messages import SendReady
from taskgraph.worker.executors import Outcome, Work, WriteLog
from tests.scenarios.crew import Calls, Crew, Script, chain, fan, once_each, virtually
from tests.scenarios.stage import Requirements, Stage, graph


def independent(count: int, name: str = "t") -> dict[str, list[str]]:
    return {f"{name}{n:05}": [] for n in range(count)}


class Diary(Script):
    """An executor that writes down when each run began, and of which graph it was."""

    def __init__(self, crew: Crew, seconds: float) -> None:
        super().__init__(seconds)
        self.crew = crew
        self.begun: list[tuple[float, str]] = []

    async def run(self, work: Work, write_log: WriteLog) -> Outcome:
        self.begun.append((self.crew.clock.monotonic(), work.graph_id))
        return await super().run(work, write_log)


async def submit(crew: Crew, graph_id: str, requires: Requirements, **more: Any) -> Stage:
    """Another graph beside the crew's own."""
    stage = Stage(crew.stage.tables, crew.stage.queues, crew.clock)
    stage.graph_id = graph_id
    await stage.submit(graph(requires, **more))
    return stage


def finished(stage: Stage) -> Callable[[], Awaitable[bool]]:
    async def is_so() -> bool:
        return await stage.state() == "finished"

    return is_so


def staff(crew: Crew, diary: Diary, workers: int, slots: int, calls: Calls | None = None) -> None:
    """Workers with a consumer elsewhere, or, for no worker, one with a consumer of its own."""
    if workers:
        crew.start(
            crew.consumer(calls), *[crew.worker(diary, calls, slots=slots, name=f"w{n}") for n in range(workers)]
        )
        return
    consumer, worker = crew.together(diary, calls, slots=slots)
    consumer.own |= {"one", "two", "three"}
    crew.start(consumer, worker)


# --- between graphs


@pytest.mark.parametrize(
    ("workers", "slots", "seconds"),
    [
        (1, 4, 0.05),
        (0, 4, 0.5),
        *(
            pytest.param(*each, marks=pytest.mark.campaign)
            for each in [(2, 4, 0.05), (1, 1, 0.3), (2, 4, 0.5), (0, 4, 0.01)]
        ),
    ],
)
def test_two_large_graphs_share_workers_though_one_came_first(workers: int, slots: int, seconds: float) -> None:
    """From the first run of the second on, as long as there is something to do of both: its part is about half."""

    async def act(crew: Crew) -> None:
        diary = Diary(crew, seconds)
        staff(crew, diary, workers, slots)
        first = await submit(crew, "one", independent(2_000))
        await asyncio.sleep(2.0)
        asked = crew.clock.monotonic()
        second = await submit(crew, "two", independent(2_000))
        await crew.until(finished(first), 10_000.0)
        await crew.until(finished(second), 10_000.0)
        await crew.end()
        assert once_each([diary], [*independent(2_000), *independent(2_000)])
        begun = min(moment for moment, name in diary.begun if name == "two")
        over = min(max(moment for moment, name in diary.begun if name == each) for each in ("one", "two"))
        both = Counter(name for moment, name in diary.begun if begun <= moment <= over)
        assert both.total() > 1_000
        assert 0.4 <= both["two"] / both.total() <= 0.6, both
        # It waits for no more than a window of the first that was sent before anybody knew how long runs take.
        assert begun - asked <= max(2.5, limits.WINDOW_START * seconds / (slots * max(1, workers)) + 1.0)

    virtually(act)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_small_graph_behind_a_large_one_takes_a_small_multiple_of_its_time_alone(workers: int) -> None:
    times: dict[str, float] = {}

    async def act(crew: Crew, before: int) -> None:
        diary = Diary(crew, 0.2)
        staff(crew, diary, workers, 4)
        if before:
            await submit(crew, "one", independent(before))
        await asyncio.sleep(20.0)
        asked = crew.clock.monotonic()
        await crew.until(finished(await submit(crew, "two", independent(10))))
        times["behind" if before else "alone"] = crew.clock.monotonic() - asked
        await crew.end()

    virtually(lambda crew: act(crew, 0))
    virtually(lambda crew: act(crew, 20_000))
    assert times["behind"] <= 6 * times["alone"], times


def test_a_queue_holds_no_more_than_is_worked_off_soon() -> None:
    async def act(crew: Crew) -> None:
        diary, deepest = Diary(crew, 0.2), 0
        staff(crew, diary, 2, 4)
        stage = await submit(crew, "one", fan(5_000))

        async def over() -> bool:
            nonlocal deepest
            deepest = max(deepest, await stage.queues.count(stage.names.work("default")))
            return await stage.state() == "finished"

        await crew.until(over)
        await crew.end()
        assert once_each([diary], fan(5_000))
        assert deepest <= limits.WINDOW_START

    virtually(act)


@pytest.mark.campaign
def test_many_workers_with_long_tasks_are_not_kept_waiting_for_results() -> None:
    """300 slots, and runs of ten minutes: what was sent is taken, and more follows before any of it has ended."""

    async def act(crew: Crew) -> None:
        diary = Diary(crew, 600.0)
        staff(crew, diary, 30, 10)
        stage = await submit(crew, "one", independent(1_000))
        await asyncio.sleep(30.0)
        assert len(diary.begun) == 300
        await crew.until(finished(stage), 4_000.0)
        await crew.end()
        assert once_each([diary], independent(1_000))

    virtually(act)


def test_what_a_handler_had_put_by_is_sent_by_the_next_one() -> None:
    """One that stops says so, by one message; one that dies is found out by the sweep of the next."""

    async def act(crew: Crew, *, dies: bool) -> None:
        diary = Diary(crew, 0.2)
        crew.start(crew.worker(diary, slots=4))
        stop = Flag()
        consumer = crew.consumer()
        (running,) = crew.start(consumer, stop=stop)
        stage = await submit(crew, "one", independent(2_000))
        await asyncio.sleep(3.0)
        assert consumer.handlers.dispatcher.windows is not None
        assert consumer.handlers.dispatcher.windows.unsent("one") > 1_000
        if dies:
            running.cancel()
            await asyncio.wait((running,))
            crew.tasks.remove(running)
            consumer._pumping = None
        else:
            stop.set()
            await running
        later = crew.consumer()
        crew.start(later)

        async def sweeping() -> None:
            while True:
                await asyncio.sleep(30.0)
                await sweep(later.handlers)

        sweeper = asyncio.create_task(sweeping())
        await crew.until(finished(stage), 400.0)
        sweeper.cancel()
        await crew.end()
        assert once_each([diary], independent(2_000))

    virtually(lambda crew: act(crew, dies=False))
    virtually(lambda crew: act(crew, dies=True))


async def test_what_is_ready_is_sent_by_its_rows_and_not_twice(stage: Stage) -> None:
    labels = sorted(independent(limits.WINDOW_START + 40), key=stage.task_id)
    await stage.submit(graph(independent(limits.WINDOW_START + 40)))
    assert sorted(await stage.offered()) == sorted((label, 0) for label in labels[: limits.WINDOW_START])
    assert await stage.take_events() == [SendReady(stage.graph_id, stage.task_id(labels[limits.WINDOW_START - 1]))]
    await stage.deliver(SendReady(stage.graph_id, stage.task_id(labels[limits.WINDOW_START - 1])))
    assert sorted(await stage.offered()) == sorted((label, 0) for label in labels[limits.WINDOW_START :])
    await stage.deliver(SendReady(stage.graph_id))
    assert len(await stage.offered()) == len(labels)
    await stage.deliver(SendReady("unknown"), SendReady(stage.graph_id, "x"))


# --- between levels


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_what_is_urgent_goes_before_whatever_waits_already(workers: int) -> None:
    """Also before a worker that feeds itself: it asks the queues every second or so."""

    async def act(crew: Crew) -> None:
        diary = Diary(crew, 0.1)
        staff(crew, diary, workers, 4)
        await submit(crew, "one", fan(3_000))
        await asyncio.sleep(5.0)
        # Nobody has used this level before: workers learn of it by what comes to the queue that all of them ask.
        asked = crew.clock.monotonic()
        for name, delay in (("two", 0.0), ("three", 20.0)):
            await asyncio.sleep(delay)
            asked = crew.clock.monotonic()
            urgent = await submit(crew, name, independent(8), priority="high")
            await crew.until(finished(urgent))
            took = crew.clock.monotonic() - asked
            assert took <= (limits.GATE_SECONDS * 2 + 2.0 if name == "two" else 2.5), (name, took)
        await crew.end()

    virtually(act)


def test_a_chain_does_not_keep_a_worker_from_what_is_urgent() -> None:
    async def act(crew: Crew) -> None:
        diary = Diary(crew, 0.3)
        crew.start(crew.consumer(), crew.worker(diary))
        await submit(crew, "one", chain(500))
        await asyncio.sleep(5.0)
        await crew.until(finished(await submit(crew, "two", chain(1), priority="highest")), 10.0)
        await asyncio.sleep(10.0)
        asked = crew.clock.monotonic()
        await crew.until(finished(await submit(crew, "three", chain(1), priority="highest")), 10.0)
        assert crew.clock.monotonic() - asked <= 2.5
        await crew.end()

    virtually(act)


def test_no_level_starves() -> None:
    """There is always something urgent; what is not has its turns."""

    async def act(crew: Crew) -> None:
        diary = Diary(crew, 0.1)
        crew.start(crew.consumer(), crew.worker(diary, slots=2))
        await submit(crew, "one", independent(3_000), priority="high")
        await asyncio.sleep(1.0)
        low = await submit(crew, "two", independent(10), priority="lowest")
        await crew.until(finished(low), 1_000.0)
        urgent = Counter(name for _, name in diary.begun)["one"]
        await crew.end()
        assert urgent < 3_000

    virtually(act)


async def test_a_task_keeps_its_level_through_every_message(stage: Stage) -> None:
    tasks = {"a": "high", "b": "", "c": "low", "d": "normal", "e": ""}
    document = {
        "priority": "lowest",
        "tasks": {
            label: {
                "task": {},
                "requires": ["a"] if label == "e" else [],
                "reruns": 1,
                **({"priority": level} if level else {}),
            }
            for label, level in tasks.items()
        },
    }
    from taskgraph.documents.read import document_from_object

    await stage.submit(document_from_object(document))
    rows = {label: (await stage.row(label)).columns.get("priority") for label in tasks}
    assert rows == {"a": "high", "b": "lowest", "c": "low", "d": None, "e": "lowest"}

    async def counts() -> dict[str, int]:
        levels = ("high", "normal", "low", "lowest")
        return {level: await stage.queues.count(stage.names.work("default", level)) for level in levels}

    # The queue that all ask has one more, by which idle workers learn of the levels.
    assert await counts() == {"high": 1, "normal": 2, "low": 1, "lowest": 1}
    claims = await stage.claims("a", "b")
    await stage.deliver(stage.failed(claims[1]))  # it is rerun
    assert (await counts())["lowest"] == 2
    await stage.deliver(stage.completed(claims[0]))  # `e` is ready
    assert (await counts())["lowest"] == 3


@pytest.mark.parametrize(("ages", "queue"), [(0.96, ""), (1.1, "low"), (2.1, "normal"), (4.1, "")])
async def test_the_sweep_sends_what_has_waited_for_long_at_a_higher_level(
    memory: Stage, ages: float, queue: str
) -> None:
    """And at none that nobody uses."""
    stage = memory
    await stage.submit(graph({"a": []}, priority="lowest"))
    await stage.handlers.dispatcher.dispatch(
        "other", "default", [(stage.task_id("z"), 0)], level="low"
    )  # somebody uses it
    queues = {level: stage.names.work("default", level) for level in ("high", "normal", "low", "lowest")}
    before = {level: await stage.queues.count(name) for level, name in queues.items()}
    stage.clock.advance(ages * limits.AGE_SECONDS)
    await sweep(stage.handlers)
    after = {level: await stage.queues.count(name) for level, name in queues.items()}
    more = {level for level in queues if after[level] > before[level]} - ({"normal"} if queue == "low" else set())
    assert more == ({queue} if queue else set()), (before, after)  # by `normal` idle workers hear of levels


async def test_why_says_the_level_of_a_task_and_what_it_counts_as(memory: Stage) -> None:
    await memory.submit(graph({"a": []}, priority="low"))
    await submit_high(memory)
    said = []
    for _ in range(2):
        (reason,) = await memory.queries.why(memory.graph_id, "a")
        said.append(reason.text)
        memory.clock.advance(2.5 * limits.AGE_SECONDS)
    assert "queue taskgraph-low-default holds about 1 message)" in said[0]
    assert "; its priority is low;" in said[0]
    assert "queue taskgraph-high-default" in said[1]
    assert "; its priority is low, and it counts as high, having waited for so long;" in said[1]


async def submit_high(stage: Stage) -> None:
    """Somebody uses that level."""
    await stage.handlers.dispatcher.dispatch("other", "default", [(stage.task_id("z"), 0)], level="high")


def test_an_idle_worker_asks_no_queue_of_a_level_that_nobody_uses() -> None:
    async def act(crew: Crew) -> None:
        idle, asked = Calls(), Counter[str]()
        worker = crew.worker(Script(), idle, poll_seconds=1.0)  # hours pass
        receive = worker._context.handlers.queues.receive

        async def counted(queue: str, **more: Any) -> Any:
            asked[queue] += 1
            return await receive(queue, **more)

        worker._context.handlers.queues.receive = counted  # type: ignore[method-assign]
        crew.start(crew.consumer(poll_seconds=1.0), worker)
        await asyncio.sleep(600.0)
        assert set(asked) == {"taskgraph-work-default"}
        await crew.until(finished(await submit(crew, "one", {"a": []}, priority="low")), 5.0)
        assert set(asked) == {"taskgraph-work-default", "taskgraph-low-default"}
        await asyncio.sleep(limits.LEVEL_SECONDS * 2)
        await crew.until(finished(await submit(crew, "two", {"a": []})), 5.0)  # it looks, as there is work
        asked.clear()
        await asyncio.sleep(600.0)
        assert set(asked) == {"taskgraph-work-default"}
        await crew.end()

    virtually(act)
