"""The sweep and times: what waits is left alone, what is due is said, and what is too late is ended."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest

from taskgraph.documents.read import document_from_object
from taskgraph.engine.commit import Records
from taskgraph.engine.handlers import Handlers
from taskgraph.engine.requests import answer_request
from taskgraph.engine.submission import extend, submit
from taskgraph.engine.sweep import sweep
from taskgraph.model import limits
from taskgraph.model.ids import GRAPH, row_key, task_id_of
from taskgraph.model.timing import NEVER
from taskgraph.protocol.cancel import CancelTask
from taskgraph.protocol.recall import ManualRerun
from taskgraph.protocol.runs import Claim, Completed
from taskgraph.storage.tables import Change, Page, Range
from taskgraph.testing import ManualClock, MemoryQueues, MemoryTables

WORK = "taskgraph-work-default"


class Stage:
    """A graph that nobody works on but the sweep."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.tables = MemoryTables()
        self.queues = MemoryQueues(self.clock)
        self.handlers = Handlers(Records(self.tables, self.clock), self.queues, self.clock)

    def moment(self, seconds: float) -> str:
        return (self.clock.now() + timedelta(seconds=seconds)).isoformat()

    async def submit(self, **document: Any) -> None:
        await submit(self.handlers, "g", document_from_object(document))

    def columns(self, label: str) -> Any:
        return self.tables.partitions["g"][row_key(task_id_of("g", label)) if label else GRAPH].columns

    async def complete(self, label: str) -> None:
        task_id = task_id_of("g", label)
        until = self.clock.now() + timedelta(seconds=60)
        done = Completed(task_id, 0, "c", self.clock.now().isoformat(), {"failed": False})
        for item in (Claim(task_id, 0, "c", "w", until), done):
            await self.handlers.transition("g", [item])

    async def after(self, seconds: float) -> Any:
        """What a round of the sweep does so many seconds later."""
        self.clock.advance(seconds)
        return await sweep(self.handlers)

    async def messages(self) -> int:
        return len(await self.queues.receive(WORK, count=32, lease_seconds=0.001))


@pytest.fixture
def stage() -> Stage:
    return Stage()


async def test_the_first_message_comes_when_its_task_may_run_and_the_sweep_does_not_hurry(stage: Stage) -> None:
    await stage.submit(tasks={"a": {"notBefore": stage.moment(600), "task": {}}})
    assert (await stage.after(300)).reminded == 0
    assert await stage.messages() == 0
    stage.clock.advance(300.5)
    assert await stage.messages() == 1
    stage.queues.messages[WORK].clear()
    assert (await stage.after(30)).reminded == 0
    assert (await stage.after(30)).reminded == 1


async def test_what_is_further_off_than_a_queue_keeps_a_message_is_sent_by_the_sweep(stage: Stage) -> None:
    far = limits.DELAY_SECONDS_MAX + 100
    await stage.submit(tasks={"a": {"notBefore": stage.moment(far), "task": {}}})
    assert await stage.queues.count(WORK) == 0
    assert (await stage.after(far - 10)).reminded == 0
    assert (await stage.after(20)).reminded == 1
    assert await stage.messages() == 1


async def test_deadlines_end_what_waits_what_is_ready_and_what_runs(stage: Stage) -> None:
    tasks: dict[str, Any] = {label: {"task": {"deadline": stage.moment(100)}} for label in ("runs", "ready")}
    tasks["waits"] = {"requires": ["later"], "task": {"deadline": stage.moment(100)}}
    tasks["later"] = {"task": {"deadline": stage.moment(500)}}
    tasks["behind"] = {"requires": ["later"], "task": {"deadline": stage.moment(400)}}
    await stage.submit(tasks=tasks)
    claim = Claim(task_id_of("g", "runs"), 0, "c", "w", stage.clock.now() + timedelta(hours=1))
    await stage.handlers.transition("g", [claim])
    assert (await stage.after(90)).overdue == 0
    assert (await stage.after(20)).overdue == 3
    states = {label: stage.columns(label)["state"] for label in tasks}
    ended = dict.fromkeys(("runs", "ready", "waits"), "exception")
    assert states == {**ended, "later": "pending", "behind": "unscheduled"}
    assert stage.columns("")["failedTasks"] == 3
    assert stage.columns("")["nextDeadline"] == stage.columns("behind")["deadline"]
    queries = stage.tables.commits
    assert (await stage.after(30)).overdue == 0
    assert stage.tables.commits == queries, "a round in which nothing is due writes nothing"
    assert (await stage.after(290)).overdue == 1
    assert stage.columns("")["nextDeadline"] == NEVER
    await stage.complete("later")
    assert stage.columns("waits")["requiresLeft"] == "[]"
    assert stage.columns("waits")["state"] == "exception"


async def test_what_was_cancelled_and_is_rerun_waits_no_longer_than_its_deadline(stage: Stage) -> None:
    """Though a sweep has looked at the deadlines of all that waited meanwhile."""
    tasks: dict[str, Any] = {"first": {"task": {}}}
    for label, seconds in (("soon", 100), ("late", 500)):
        tasks[label] = {"requires": ["first"], "task": {"deadline": stage.moment(seconds)}}
    await stage.submit(tasks=tasks)
    await stage.handlers.transition("g", [CancelTask(task_id_of("g", "late"), "not now")])
    assert (await stage.after(110)).overdue == 1
    assert stage.columns("soon")["state"] == "exception"
    assert stage.columns("")["nextDeadline"] == NEVER
    await stage.handlers.transition("g", [ManualRerun(task_id_of("g", "late"), 0)])
    assert stage.columns("late")["state"] == "unscheduled"
    assert (await stage.after(380)).overdue == 0
    assert (await stage.after(20)).overdue == 1
    assert stage.columns("late")["state"] == "exception"


async def test_an_extension_brings_its_deadlines(stage: Stage) -> None:
    await stage.submit(tasks={"a": {"task": {}}})
    assert "nextDeadline" not in stage.columns("")
    added = {"x": {"requires": ["a"], "task": {"deadline": stage.moment(50)}}}
    extended = await extend(stage.handlers, "g", document_from_object({"tasks": added}, kind="extension"))
    await answer_request(stage.handlers, "g", extended.request)
    assert (await stage.after(60)).overdue == 1
    assert stage.columns("x")["state"] == "exception"


class BetweenTwoReads(MemoryTables):
    """Stops whoever writes to the graph after so many commits; makes something happen once what waits was looked at."""

    commits_left = 10**9
    then: Callable[[], Awaitable[None]] | None = None

    async def commit(self, partition: str, changes: Sequence[Change]) -> list[str | None]:
        if partition == "g":
            if not self.commits_left:
                raise KeyboardInterrupt
            self.commits_left -= 1
        return await super().commit(partition, changes)

    async def query(self, partition: str, rows: Range, **more: Any) -> Page:
        page = await super().query(partition, rows, **more)
        if self.then is not None and rows.where.get("state") == ("unscheduled",):
            then, self.then = self.then, None
            await then()
        return page


async def test_a_sweep_that_saw_half_of_an_extension_does_not_forget_the_deadlines_of_the_rest(stage: Stage) -> None:
    """The extension is accepted, and ends after the sweep has looked at what waits and before it says what is next."""
    tables = stage.tables = BetweenTwoReads()
    stage.handlers = Handlers(Records(tables, stage.clock), stage.queues, stage.clock)
    soon = {"requires": ["a"], "task": {"deadline": stage.moment(100)}}
    await stage.submit(tasks={"a": {"task": {}}, "soon": soon})
    late = {"requires": ["a"], "task": {"deadline": stage.moment(500)}}
    document = document_from_object({"tasks": {f"x{n:03}": late for n in range(120)}}, kind="extension")
    extended = await extend(stage.handlers, "g", document)
    tables.commits_left = 1
    with pytest.raises(KeyboardInterrupt):
        await answer_request(stage.handlers, "g", extended.request)
    tables.commits_left = 10**9
    assert stage.columns("")["extending"] == extended.request
    assert row_key(task_id_of("g", "x000")) not in tables.partitions["g"]

    async def go_on() -> None:
        await answer_request(stage.handlers, "g", extended.request)

    tables.then = go_on
    assert (await stage.after(110)).overdue == 1
    assert tables.then is None
    assert (await stage.after(400)).overdue == 120
    assert stage.columns("x119")["state"] == "exception"


async def test_the_deadline_of_a_graph_cancels_what_is_left_of_it(stage: Stage) -> None:
    tasks = {"a": {"task": {}}, "b": {"requires": ["a"], "task": {}}, "c": {"task": {}}}
    await stage.submit(tasks=tasks, deadline=stage.moment(100))
    await stage.complete("c")
    assert (await stage.after(99)).overdue == 0
    assert (await stage.after(1)).overdue == 1
    assert [stage.columns(label)["state"] for label in "abc"] == ["exception", "exception", "completed"]
    assert '"code":"deadline-exceeded"' in stage.columns("a")["resolution"]
    assert (stage.columns("")["state"], "deadline" in stage.columns("")["reason"]) == ("cancelled", True)
