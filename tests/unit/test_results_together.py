"""Results of short runs wait for others, as long as the slots have enough to do meanwhile."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from taskgraph.interfaces.app import open_app
from taskgraph.interfaces.settings import read_settings
from taskgraph.worker.executors import CommandExecutor, Outcome, Work, built_in
from taskgraph.worker.loop import Worker
from taskgraph.worker.values import ClaimedRun


class Handlers:
    """Handlers of this process that take every graph, and note when they are to look at one."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def takes(self, graph_id: str) -> bool:
        return True

    def look(self, graph_id: str) -> "asyncio.Task[None]":
        self.asked.append(graph_id)
        return asyncio.create_task(asyncio.sleep(0))


def one(number: int) -> ClaimedRun:
    run = ClaimedRun(Work("g", f"t{number}", 0, f"t{number}", f"claim-{number}", {}), CommandExecutor())
    run.outcome = Outcome(failed=False, exit_code=0)
    return run


@pytest.fixture
async def worker(tmp_path: Path) -> AsyncIterator[Worker]:
    settings = read_settings(None, {"TASKGRAPH_STORE": f"sqlite:///{tmp_path}/store.db"}, cwd=tmp_path)
    async with open_app(settings) as app:
        worker = app.worker(built_in(app.clock), slots=2)
        yield worker
        for task in list(worker._context.tasks):
            task.cancel()
        await asyncio.gather(*worker._context.tasks, return_exceptions=True)


def test_more_work_is_measured_by_the_pace_of_late_and_the_slots(worker: Worker) -> None:
    slots = worker._slots
    slots.waiting.extend(map(one, range(15)))
    assert not slots.has_more_for(0.008), "nothing is known of the pace"
    slots.seconds = 0.001
    assert not slots.has_more_for(0.008), "two slots are through with 15 after 7.5 ms"
    slots.waiting.append(one(15))
    assert slots.has_more_for(0.008)


async def test_a_result_waits_for_others_until_the_slots_may_run_dry(worker: Worker) -> None:
    handlers, link, slots = Handlers(), worker._local_link, worker._slots
    worker._context.local_handlers = handlers
    slots.seconds = 0.001
    slots.waiting.extend(map(one, range(100, 120)))
    assert link.accept(one(1))
    assert (handlers.asked, link.wants("g")) == ([], False)
    for _ in range(5):
        slots.waiting.popleft()
    assert link.accept(one(2))
    assert (handlers.asked, link.wants("g")) == (["g"], True)
    assert len(link.items("g")) == 2, "both go into one commit"
