"""Runs that stand by at an executor which begins them itself, in order, as slots get free: in virtual time."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import pytest

from taskgraph.engine.consumer import Consumer
from taskgraph.model.flag import Flag
from taskgraph.worker.executors import Outcome, Work, WriteLog
from taskgraph.worker.executors.contract import Begun, OnEnd, Queue, no_log
from taskgraph.worker.loop import Worker
from tests.scenarios.crew import Crew, Script, fan, layers, once_each, virtually

SHORT = 0.002


class Line(Script):
    """An executor with a queue: so many run at a time. most: that ran at once; given: that it had at once.

    plain: runs are begun by plain calls. went_on: how many of these needed a task of the worker.
    """

    plain = False

    def __init__(self, seconds: float, by_label: Mapping[str, float] | None = None) -> None:
        super().__init__(seconds, by_label)
        self.queue: Queue | None = self
        self.slots = 1
        self.running = self.most = self.given = self.went_on = 0
        self.recalled: list[str] = []
        self.waiting: deque[tuple[str, asyncio.Future[None]]] = deque()

    def is_ready(self, slots: int) -> bool:
        self.slots = slots
        return True

    def recall(self, work: Work) -> None:
        for each in self.waiting:
            if each[0] == work.label:
                self.recalled.append(work.label)
                self.waiting.remove(each)
                each[1].cancel()
                return

    def begin(self, work: Work, on_begin: Callable[[], None], on_end: OnEnd) -> Begun | None:
        return Plain(self, work, on_end) if self.plain else None

    async def run(self, work: Work, write_log: WriteLog) -> Outcome:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append((work.label, turn))
        self._go_on()
        self.given = max(self.given, self.running + len(self.waiting))
        try:
            await turn
        except asyncio.CancelledError:
            self.waiting = deque(each for each in self.waiting if each[1] is not turn)
            self.running -= not turn.cancelled()  # it was just to begin
            self._go_on()
            raise
        try:
            return await super().run(work, write_log)
        finally:
            self.running -= 1
            self._go_on()

    def _go_on(self) -> None:
        while self.waiting and self.running < self.slots:
            _, turn = self.waiting.popleft()
            if not turn.cancelled():
                self.running += 1
                self.most = max(self.most, self.running)
                turn.set_result(None)


class Plain:
    """A run that was begun by plain calls, as its worker sees it."""

    def __init__(self, line: Line, work: Work, on_end: OnEnd) -> None:
        self._line = line
        self._on_end: OnEnd | None = on_end
        self._run = asyncio.create_task(line.run(work, no_log))
        self._run.add_done_callback(self._end)

    def _end(self, run: "asyncio.Task[Outcome]") -> None:
        if self._on_end is not None:
            self._on_end(None if run.cancelled() or run.exception() else run.result())

    def go_on(self, write_log: WriteLog) -> Coroutine[Any, Any, Outcome]:
        self._on_end = None
        self._line.went_on += 1
        return self._go_on()

    async def _go_on(self) -> Outcome:
        return await self._run


@pytest.fixture(params=[False, True], ids=["by tasks", "by plain calls"], autouse=True)
def plain(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways come to the same."""
    monkeypatch.setattr(Line, "plain", request.param)


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("slots", [1, 3])
def test_short_runs_stand_by_and_no_more_begin_than_there_are_slots(slots: int, together: bool) -> None:
    async def act(crew: Crew) -> None:
        graph = fan(300) if together else layers(4, 60)
        await crew.submit(graph)
        line = Line(SHORT)
        crew.start(*(crew.together(line, slots=slots) if together else everyone(crew, line, slots)))
        await crew.finish()
        assert once_each([line], graph)
        assert line.most == slots
        assert line.given > slots
        assert not line.went_on

    virtually(act)


def everyone(crew: Crew, line: Line, slots: int) -> tuple[Consumer, Worker]:
    return crew.consumer(), crew.worker(line, slots=slots)


def test_long_runs_do_not_stand_by() -> None:
    async def act(crew: Crew) -> None:
        await crew.submit(fan(20))
        line = Line(0.2)
        crew.start(*crew.together(line, slots=2))
        await crew.finish()
        assert once_each([line], fan(20))
        assert line.given == 2

    virtually(act)


@pytest.mark.parametrize("long", [1, 2])
def test_what_stands_by_behind_long_runs_is_given_back_and_run_by_others(long: int) -> None:
    async def act(crew: Crew) -> None:
        graph = fan(200)
        await crew.submit(graph)
        line = Line(SHORT, {f"m{n:04}": 500.0 for n in range(60, 60 + long)})
        other = Line(SHORT)
        crew.start(*crew.together(line, slots=2))
        await crew.until(lambda: {f"m{n:04}" for n in range(60, 60 + long)} <= {label for label, _ in line.runs})
        await asyncio.sleep(10.0 if long == 2 else 0.0)
        crew.start(crew.worker(other, name="other", slots=2))
        await crew.finish()
        ran = sorted([*line.runs, *other.runs])
        assert [label for label, _ in ran] == sorted(graph), "each ran once, and what was given back spends nothing"
        assert bool(line.recalled) == (long == 2)
        assert line.most == 2

    virtually(act)


def test_a_worker_that_is_stopped_gives_back_what_stands_by() -> None:
    async def act(crew: Crew) -> None:
        graph = fan(200)
        await crew.submit(graph)
        line, other = Line(SHORT), Line(SHORT)
        consumer, worker = crew.together(line, slots=2)
        stop = Flag()
        crew.start(consumer)
        crew.start(worker, stop=stop)
        await crew.until(lambda: len(line.waiting) > 10)
        stop.set()
        await crew.until(lambda: not line.waiting and not line.running)
        await crew.until(lambda: worker.at_rest)
        crew.start(crew.worker(other, name="other", slots=2))
        await crew.finish()
        assert {label for label, _ in [*line.ended, *other.ended]} == set(graph)
        assert len(other.runs) > 100

    virtually(act)
