"""What goes wrong behind a worker's back is said, and costs neither the worker nor a message."""

import asyncio
import gc
from typing import Any

import pytest

from taskgraph.model.errors import Conflict, StorageUnavailable
from taskgraph.protocol.runs import Completed
from taskgraph.storage.queues import Delivery
from taskgraph.worker import messages
from taskgraph.worker.executors import Outcome, Work, WriteLog
from taskgraph.worker.values import ClaimedRun, WorkMessage
from tests.scenarios.crew import Calls, Crew, Script, virtually

LEFT = "left to leases and the sweep"


class Broken(Script):
    """An executor with a bug."""

    async def run(self, work: Work, write_log: WriteLog) -> Outcome:
        self.runs.append((work.label, work.run))
        raise ZeroDivisionError("a bug")


async def raising(error: Exception, *_: Any, **__: Any) -> None:
    raise error


def one_run(worker: Any) -> ClaimedRun:
    work = Work("graph", "AAAAAAAAQAAAAAAAAAAAAA", 0, "a", "claim", {})
    one = ClaimedRun(
        work, worker.executors["script"], WorkMessage(Delivery("taskgraph-work-default", "1", "r", "{}", 1))
    )
    one.outcome = Outcome(failed=False)
    return one


@pytest.mark.parametrize("error", [StorageUnavailable("503"), ZeroDivisionError("a bug")])
def test_whatever_fails_in_the_background_is_said(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    async def act(crew: Crew) -> None:
        worker = crew.worker(Script())
        worker._context.background(raising, error)
        await asyncio.wait(worker._context.tasks)

    virtually(act)
    assert LEFT in caplog.text


def test_what_is_ended_before_it_begins_has_called_nothing() -> None:
    """As where the event loop is closed: a coroutine that was made, and is awaited by no task, would be said."""

    async def act(crew: Crew) -> None:
        worker, consumer = crew.worker(Script()), crew.consumer()
        worker._reporter.report(one_run(worker))
        consumer._do_beside(raising, ZeroDivisionError("a bug"))
        tasks = {*worker._context.tasks, *consumer._beside}
        assert len(tasks) == 2
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert all(task.cancelled() for task in tasks)

    virtually(act)
    gc.collect()


@pytest.mark.parametrize("error", [Conflict("412"), StorageUnavailable("503"), ZeroDivisionError("a bug")])
def test_results_that_cannot_be_reported_leave_their_message_to_others(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def act(crew: Crew) -> None:
        worker = crew.worker(Script())
        one = one_run(worker)
        monkeypatch.setattr(worker._reporter, "_report", lambda *_: raising(error))
        worker._reporter.report(one)
        await asyncio.wait(worker._context.tasks)
        assert one.source is not None
        assert one.source.given_up

    virtually(act)
    assert "results" in caplog.text


def test_a_result_that_can_be_told_neither_here_nor_there_is_left_to_its_lease(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def act(crew: Crew) -> None:
        worker = crew.worker(Script())
        one = one_run(worker)
        monkeypatch.setattr(worker._reporter, "_send", lambda *_: raising(StorageUnavailable("503")))
        item = Completed("AAAAAAAAQAAAAAAAAAAAAA", 0, "claim", "2026-01-01T00:00:00+00:00", {"failed": False})
        worker._local_link._in_commit["graph"] = {id(item): (item, one)}
        worker._local_link.failed("graph", ZeroDivisionError("a bug"))
        await asyncio.wait(worker._context.tasks)
        assert one.source is not None

    virtually(act)
    assert "a result is left to its lease" in caplog.text


def test_runs_that_cannot_be_handed_back_are_left_to_their_leases(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def act(crew: Crew) -> None:
        worker = crew.worker(Script())
        one = one_run(worker)
        monkeypatch.setattr(type(worker._context.handlers), "transition", lambda *_: raising(StorageUnavailable("503")))
        await worker._reporter.hand_back("graph", [one], "stopped")
        assert one.source is not None, "its message is kept until the lease of both ends"

    virtually(act)
    assert "are left to their leases" in caplog.text


@pytest.mark.parametrize(("taken", "seconds"), [(1, 5.0), (3, 15.0), (90, 60.0)])
def test_the_more_often_a_store_refuses_the_later_it_is_asked_again(
    taken: int, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers that all came again after the same few seconds kept a busy store busy: nothing got through any more."""
    delays: list[float] = []

    async def note(queues: object, delivery: Delivery, delay: float) -> None:
        delays.append(delay)

    async def act(crew: Crew) -> None:
        worker = crew.worker(Script())
        source = WorkMessage(Delivery("taskgraph-work-default", "1", "r", "{}", taken))
        monkeypatch.setattr(messages, "release", note)
        async with worker._messages.guard([source]):
            raise StorageUnavailable("503")
        assert source.given_up

    virtually(act)
    assert delays == [seconds]


def test_an_executor_with_a_bug_fails_its_task_and_the_slot_goes_on() -> None:
    async def act(crew: Crew) -> None:
        await crew.submit({"a": [], "b": []})
        script = Broken()
        crew.start(crew.consumer(), crew.worker(script))

        async def blocked() -> bool:
            return await crew.stage.state() == "blocked" and len(script.runs) == 2

        await crew.until(blocked)
        await crew.end()

    virtually(act)


@pytest.mark.parametrize("kind", ["unavailable", "conflict"])
def test_ready_tasks_that_cannot_be_claimed_now_are_run_later(kind: str) -> None:
    for at in range(1, 7):

        async def act(crew: Crew, at: int = at) -> None:
            await crew.submit({"a": [], **{f"m{number:02}": ["a"] for number in range(12)}})
            crew.start(crew.consumer(), crew.worker(Script(0.1), Calls(at, kind, "commit")))

            async def sweep() -> None:
                while True:
                    await asyncio.sleep(30)
                    await crew.stage.sweep()

            sweeping = asyncio.create_task(sweep())
            await crew.finish()
            sweeping.cancel()

        virtually(act)
