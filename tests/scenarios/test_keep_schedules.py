"""The loop that looks at schedules in `serve`, and the function app's timer: when they look, and what it costs."""

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from taskgraph.documents.read import document_from_object
from taskgraph.documents.recurrence import Recurrence, Times
from taskgraph.engine.schedule_fires import Looked
from taskgraph.engine.schedules import Schedules
from taskgraph.interfaces import loops
from taskgraph.interfaces.app import App, open_app
from taskgraph.interfaces.settings import read_settings
from taskgraph.model import limits
from taskgraph.model.errors import StorageUnavailable
from taskgraph.model.flag import Flag
from taskgraph.protocol.schedule_rules import Overlap, graph_id_of
from taskgraph.storage.signals import wakeup
from taskgraph.testing import ManualClock
from tests.scenarios.stage import Stage
from tests.scenarios.test_door import StageDoor

DOCUMENT = document_from_object({"tasks": {"a": {"task": {"payload": {}}}}})
START = datetime(2026, 3, 28, 20, tzinfo=UTC)


class Watched:
    """A loop over an app on a file, with pauses that are told and do not last."""

    def __init__(self, app: App, monkeypatch: pytest.MonkeyPatch, clock: ManualClock) -> None:
        self.pauses: list[float] = []
        self.stop = Flag()

        async def wait_any(events: Sequence[Flag], seconds: float) -> None:
            self.pauses.append(seconds)
            clock.advance(seconds)
            await asyncio.sleep(0)

        monkeypatch.setattr(wakeup, "wait_any", wait_any)
        self._loop = loops.keep_schedules(app, self.stop)

    async def until(self, pauses: int) -> list[float]:
        task = asyncio.create_task(self._loop)
        while len(self.pauses) < pauses and not task.done():
            await asyncio.sleep(0.001)
        self.stop.set()
        await task
        return self.pauses[:pauses]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


async def opened(tmp_path: Path, clock: ManualClock):
    return open_app(read_settings(f"sqlite:///{tmp_path}/s.db", {}, cwd=tmp_path), clock=clock)


async def test_without_schedules_it_asks_once_in_two_minutes(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await opened(tmp_path, clock) as app:
        calls: Counter[str] = Counter()
        for name in ("get", "query", "commit"):
            true = getattr(app.tables, name)

            async def counted(*args, _name=name, _true=true, **more):
                calls[_name] += 1
                return await _true(*args, **more)

            monkeypatch.setattr(app.tables, name, counted)
        watched = Watched(app, monkeypatch, clock)
        assert await watched.until(5) == [2 * limits.SCHEDULE_LOOK_SECONDS] * 5
        assert calls == {"query": len(watched.pauses)}


async def test_it_looks_when_the_next_one_is_due_and_more_often_while_one_waits(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await opened(tmp_path, clock) as app:
        await app.schedules().create(
            "often", DOCUMENT, Recurrence(every=25, anchor=START), overlap=Overlap.QUEUE, keep=3
        )
        pauses = await Watched(app, monkeypatch, clock).until(4)
        assert pauses[0] == pytest.approx(25, abs=0.1)
        assert pauses[1] == pytest.approx(25, abs=0.2)
        assert pauses[2:] == [10.0, pytest.approx(10.0, abs=5.1)]  # the first graph is not over
        (schedule,) = await app.schedules().listed()
        assert (schedule.fired, schedule.runs[0].due) == (1, START + timedelta(seconds=25))


@pytest.mark.parametrize("where", ["the same process", "another one of this machine"])
async def test_a_schedule_that_is_made_or_changed_is_looked_at_at_once(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    looks: asyncio.Queue[int] = asyncio.Queue()
    true = Schedules.look

    async def look(self: Schedules) -> Looked:
        looked = await true(self)
        looks.put_nowait(looked.schedules)
        return looked

    async def noticed(schedules: int) -> None:
        assert await asyncio.wait_for(looks.get(), 30) == schedules  # by itself it would look in 45 s at the earliest
        await asyncio.sleep(0)

    monkeypatch.setattr(Schedules, "look", look)
    async with await opened(tmp_path, clock) as app, await opened(tmp_path, clock) as other:
        schedules = (app if where == "the same process" else other).schedules()
        stop = Flag()
        keeping = asyncio.create_task(loops.keep_schedules(app, stop))
        await noticed(0)
        await schedules.create("far", DOCUMENT, Recurrence(every=864_000, anchor=START))
        await noticed(1)
        await schedules.update("far", times=Times(every=86_400))
        await noticed(1)
        await schedules.set_active("far", active=False)
        await noticed(1)
        await schedules.set_active("far", active=True)
        await noticed(1)
        await schedules.set_active("far", active=True)  # changes nothing
        await schedules.update("far", keep=3)
        await noticed(1)
        stop.set()
        await keeping
        assert looks.empty()


async def test_storage_that_does_not_answer_is_said_and_asked_again(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answers: list[Exception | Looked] = [StorageUnavailable("503"), Looked(failed=["schedule:x: no"]), Looked()]

    async def look(self: Schedules) -> Looked:
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(Schedules, "look", look)
    async with await opened(tmp_path, clock) as app:
        with caplog.at_level(logging.WARNING, "taskgraph"):
            await Watched(app, monkeypatch, clock).until(3)
    assert "the schedules could not be looked at: 503" in caplog.text
    assert "schedule:x: no" in caplog.text


async def test_the_timer_of_the_function_app_fires_a_schedule(stage: Stage) -> None:
    schedules = Schedules(stage.handlers, stage.queries)
    await schedules.create("hourly", DOCUMENT, Recurrence(every=3600))
    due = stage.clock.now() + timedelta(hours=1)
    door = StageDoor(stage)
    await door.sweep()
    assert await stage.queries.graphs() == []
    stage.clock.advance(3600)
    await door.sweep()
    await StageDoor(stage).sweep()  # another instance, in the same minute
    (graph,) = await stage.queries.graphs(schedule="hourly")
    assert (graph.graph_id, graph.state, graph.fired_for) == (graph_id_of("hourly", due), "running", due)
    assert await stage.queues.count(stage.names.work("default")) == 1
