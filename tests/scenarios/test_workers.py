"""Workers as others see and steer them: draining, labels and hosts, and a registry whose store does not answer."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace

import pytest

from taskgraph.documents.read import document_from_object
from taskgraph.model.errors import StorageUnavailable, Unclear
from taskgraph.model.flag import Flag
from taskgraph.model.placement import Offer, host_target
from taskgraph.queries.workers import FINISH, NOW, ask, workers
from taskgraph.storage.signals.wakeup import Announced, Wakeup
from taskgraph.storage.signals.wakeup_sockets import OnNotification, WakeupSockets
from taskgraph.storage.tables import Change, Page, Range, Row
from taskgraph.worker.registration import Registration, WorkerDetails
from tests.scenarios.crew import Calls, Crew, Script, once_each, virtually

DETAILS = WorkerDetails(("default",), (), ("script",), "vm", 1, "1", 1)
MANY = {"a": [], **{f"m{n}": ["a"] for n in range(8)}}


class Flaky:
    """Tables that fail on demand. fails: what is raised by the next calls, None for those that go through.

    after: whether a commit that fails is applied all the same.
    """

    def __init__(self, inner: object, *fails: Exception | None, after: bool = False) -> None:
        self.inner, self.fails, self.after = inner, list(fails), after

    def _next(self) -> Exception | None:
        return self.fails.pop(0) if self.fails else None

    async def get(self, partition: str, keys: Sequence[str]) -> list[Row | None]:
        return await self.inner.get(partition, keys)  # type: ignore[attr-defined, no-any-return]

    async def query(self, partition: str, rows: Range, *, limit: int = 1000, continuation: str | None = None) -> Page:
        return await self.inner.query(partition, rows, limit=limit, continuation=continuation)  # type: ignore[attr-defined, no-any-return]

    async def commit(self, partition: str, changes: Sequence[Change]) -> list[str | None]:
        error = self._next()
        if error is None or self.after:
            etags: list[str | None] = await self.inner.commit(partition, changes)  # type: ignore[attr-defined]
            if error is None:
                return etags
        raise error


# --- draining ----------------------------------------------------------------------------------------------------


def test_a_worker_that_drains_finishes_what_it_runs_and_leaves_the_rest_to_others() -> None:
    async def act(crew: Crew) -> None:
        await crew.submit(MANY)
        first, second = Script(10.0, {"a": 1.0}), Script(1.0)
        consumer, worker = crew.together(first, slots=2)
        crew.start(consumer, worker)
        await crew.until(lambda: ("a", 0) in first.ended and len(first.runs) == 3)
        worker.drain(now=False)
        assert not worker.at_rest
        other = crew.worker(second, name="other")
        crew.start(other)
        await crew.finished()
        assert len(first.runs) == 3, "what it had begun, and nothing more"
        assert worker.at_rest
        assert worker.counters.handed_back == 0
        assert once_each([first, second], MANY)
        await crew.end()

    virtually(act)


def test_a_worker_that_drains_now_hands_back_what_it_runs_and_that_spends_nothing() -> None:
    async def act(crew: Crew) -> None:
        await crew.submit({"a": [], "b": []})
        first, second = Script(1000.0), Script(1.0)
        worker = crew.worker(first, slots=2)
        crew.start(crew.consumer(), worker)
        await crew.until(lambda: len(first.runs) == 2)
        worker.drain(now=True)
        worker.drain(now=True)
        await crew.until(lambda: worker.at_rest)
        assert worker.counters.handed_back == 2
        crew.start(crew.worker(second, name="other"))
        await crew.finish()
        assert sorted(second.runs) == [("a", 1), ("b", 1)]
        row = crew.stage.tables.partitions["graph"][f"task:{crew.stage.task_id('a')}"]  # type: ignore[attr-defined]
        assert (row.columns["retriesLeft"], row.columns["handBacks"]) == (5, 1)
        assert "was drained" in str(row.columns["runs"])

    virtually(act)


def test_a_worker_that_goes_on_takes_work_again() -> None:
    async def act(crew: Crew) -> None:
        script = Script(1.0)
        worker = crew.worker(script)
        crew.start(crew.consumer(), worker)
        worker.drain(now=False)
        await crew.submit({"a": [], "b": ["a"]})
        await asyncio.sleep(30)
        assert script.runs == []
        assert (await crew.stage.states())["a"] == "pending"
        worker.undrain()
        await crew.finish()
        assert once_each([script], ["a", "b"])

    virtually(act)


def test_a_worker_that_is_asked_to_end_ends_once_it_has_nothing_in_hand() -> None:
    async def act(crew: Crew) -> None:
        await crew.submit({"a": [], "b": ["a"]})
        script, stop = Script(50.0), Flag()
        worker = crew.worker(script)
        crew.start(crew.consumer())
        registration = Registration(crew.stage.tables, crew.clock, worker, DETAILS)
        keeping = asyncio.create_task(registration.keep(stop))
        (working,) = crew.start(worker, stop=stop)
        await crew.until(lambda: len(script.runs) == 1)
        await ask(crew.stage.tables, "w", draining=FINISH, exits=True)
        await asyncio.sleep(40)
        assert [one.state for one in await workers(crew.stage.tables, crew.clock.now())] == ["draining"]
        assert not stop.is_set()
        await crew.until(working.done)
        await keeping
        assert script.ended == [("a", 0)]
        await registration.leave()
        assert await workers(crew.stage.tables, crew.clock.now()) == []
        await crew.end()

    virtually(act)


def test_what_is_ready_waits_for_a_worker_that_has_what_it_asks_for() -> None:
    async def act(crew: Crew) -> None:
        wanted = {"requires": [], "task": {"workerLabels": ["gpu"]}}
        bound = {"requires": [], "task": {"host": "lab"}}
        await crew.stage.submit(document_from_object({"tasks": {"wanted": wanted, "bound": bound}}))
        plain, able = Script(), Script()
        crew.start(crew.consumer(), crew.worker(plain, name="plain"))
        await asyncio.sleep(25)
        assert plain.runs == []
        targets, offer = ("default", host_target("lab")), Offer(frozenset({"gpu"}), "lab")
        crew.start(crew.worker(able, name="able", targets=targets, offer=offer))
        await crew.finish()
        assert sorted(able.runs) == [("bound", 0), ("wanted", 0)]

    virtually(act)


class PlayedSockets(WakeupSockets):
    """Sockets between processes that are played: a notification reaches all others. all: those of all of them."""

    def __init__(self, every: list["PlayedSockets"]) -> None:
        self.reaches_all = True
        self._every = every
        self.ears: dict[str, OnNotification] = {}
        every.append(self)

    def listen(self, queue: str, heard: OnNotification) -> bool:
        self.ears[queue] = heard
        return True

    def notify(self, queue: str, count: int = 1) -> None:
        for sockets in self._every:
            if sockets is not self and queue in sockets.ears:
                sockets.ears[queue](queue)

    def close(self) -> None:
        pass


def test_what_a_worker_gives_back_wakes_others_when_it_comes_up_again() -> None:
    """Not itself: it would be the first to ask each time, and who can run the task would find it by chance alone."""

    async def act(crew: Crew) -> None:
        document = {"tasks": {"bound": {"task": {"payload": {}, "workerLabels": ["gpu"]}}}}
        await crew.stage.submit(document_from_object(document))
        bells: list[PlayedSockets] = []
        scripts = Script(), Script()
        workers = []
        for script, name, offer in zip(scripts, ("plain", "able"), (None, Offer(frozenset({"gpu"}))), strict=True):
            handlers, wakeup = crew.handlers(Calls()), Wakeup(PlayedSockets(bells))
            handlers = replace(handlers, queues=Announced(handlers.queues, wakeup))
            workers.append(crew.worker(script, handlers=handlers, name=name, offer=offer, wakeup=wakeup))
        plain, able = workers
        crew.start(crew.consumer(), plain)
        await crew.until(lambda: plain.counters.given_back == 1)
        began = crew.clock.monotonic()
        crew.start(able)
        await crew.until(lambda: scripts[1].runs == [("bound", 0)])
        assert crew.clock.monotonic() - began < 10.5
        assert plain.counters.given_back == 1
        await crew.finish()

    virtually(act)


# --- a store that does not answer --------------------------------------------------------------------------------


def test_a_word_that_is_lost_is_said_again_and_costs_the_worker_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def act(crew: Crew) -> None:
        worker, stop = crew.worker(Script()), Flag()
        flaky = Flaky(crew.stage.tables, StorageUnavailable("503"), None, Unclear("lost"), None, after=True)
        registration = Registration(flaky, crew.clock, worker, DETAILS)
        with caplog.at_level(logging.WARNING, "taskgraph.registry"):
            keeping = asyncio.create_task(registration.keep(stop))
            await asyncio.sleep(204)
        assert "could not say that it lives" in caplog.text
        (found,) = await workers(crew.stage.tables, crew.clock.now())
        assert found.state == "active"
        flaky.fails, flaky.after = [Unclear("lost")], True
        await registration.leave()
        stop.set()
        await keeping
        assert await workers(crew.stage.tables, crew.clock.now()) == []

    virtually(act)


def test_a_row_that_cannot_be_taken_away_is_left_to_the_sweep(caplog: pytest.LogCaptureFixture) -> None:
    async def act(crew: Crew) -> None:
        worker = crew.worker(Script())
        flaky = Flaky(crew.stage.tables)
        registration = Registration(flaky, crew.clock, worker, DETAILS)
        await registration.beat()
        flaky.fails = [StorageUnavailable("503")]
        with caplog.at_level(logging.INFO, "taskgraph.registry"):
            await registration.leave()
        assert "left to the sweep" in caplog.text
        assert len(await workers(crew.stage.tables, crew.clock.now())) == 1
        gone = 0
        for _ in range(180):  # an hour and a half of rounds
            await asyncio.sleep(30)
            gone += (await crew.stage.sweep()).workers_forgotten
        assert gone == 1
        assert await workers(crew.stage.tables, crew.clock.now()) == []

    virtually(act)


def test_a_worker_that_keeps_writing_its_row_may_not_be_asked_in_the_end() -> None:
    async def act(crew: Crew) -> None:
        await Registration(crew.stage.tables, crew.clock, crew.worker(Script()), DETAILS).beat()
        flaky = Flaky(crew.stage.tables, *[Unclear("lost")] * 6)
        assert await ask(flaky, "w", draining=NOW, exits=False) is None
        assert [one.state for one in await workers(crew.stage.tables, crew.clock.now())] == ["active"]

    virtually(act)
