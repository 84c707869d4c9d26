"""Waiting for what was asked for: until it is so, and no longer than it can still become so."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from taskgraph import Client, Graph, Refused
from taskgraph.engine.consumer import Waiting
from taskgraph.interfaces.app import App
from taskgraph.interfaces.cli import app as commands
from taskgraph.interfaces.one_graph import wait_for_end
from taskgraph.interfaces.operations import cancel, limit, pause
from taskgraph.interfaces.operations import workers as operation
from taskgraph.interfaces.operations.waiting import ends, poll
from taskgraph.model import limits
from taskgraph.model.columns import Columns
from taskgraph.model.errors import StorageUnavailable
from taskgraph.model.messages import parse
from taskgraph.queries import targets, workers
from taskgraph.storage.signals.news import AWAY_SECONDS
from taskgraph.storage.tables import Insert, Tables
from taskgraph.testing import HurriedClock

SECONDS = 3  # of the hurried clock: no test waits


class Stepping(HurriedClock):
    """A hurried clock on which no two looks show the same time."""

    def now(self) -> datetime:
        self._seconds += 0.001
        return super().now()


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    async with Client(f"sqlite:///{tmp_path}/store.db", clock=Stepping()) as opened:
        yield opened


@pytest.fixture
async def app(client: Client) -> App:
    graph = Graph(max_in_flight=3)
    graph.group("some", graph.task("a"), graph.task("b"))
    graph.task("c")
    await client.submit(graph, "g")
    return client.app


async def handle(app: App) -> None:
    """Handle all events that wait."""
    consumer, queue = app.consumer(), app.handlers.names.events
    while deliveries := await app.handlers.queues.receive(queue, count=32, lease_seconds=60):
        for each in deliveries:
            await consumer.take("g", [Waiting(parse(each.body), each)])


def late(app: App) -> float | None:
    return ends(app.clock, SECONDS)


WHAT = pytest.mark.parametrize("what", [{}, {"group": "some"}, {"labels": ("a", "c")}], ids=["graph", "group", "tasks"])


@WHAT
@pytest.mark.parametrize("on", [True, False], ids=["hold", "let-go"])
async def test_a_request_to_hold_back_is_waited_for_until_a_later_one_asks_for_the_opposite(
    app: App, what: dict[str, Any], on: bool
) -> None:
    if not on:
        await pause.ask(app, "g", on=True, **what)
        await handle(app)
    wish = await pause.ask(app, "g", on=on, **what)
    assert not await pause.settled(app, wish, until=late(app)), "no handler has heard of it"
    await pause.ask(app, "g", on=not on, **what)
    assert not await pause.settled(app, wish, until=late(app))
    await handle(app)
    with pytest.raises(Refused, match="a later request asked for the opposite") as refused:
        await pause.settled(app, wish, until=late(app))
    assert refused.value.code == "superseded"


@WHAT
async def test_what_is_so_is_so_whichever_request_made_it(app: App, what: dict[str, Any]) -> None:
    first = await pause.ask(app, "g", on=True, **what)
    second = await pause.ask(app, "g", on=True, **what)
    await handle(app)
    assert await pause.settled(app, first, until=late(app))
    assert await pause.settled(app, second, until=late(app))


async def test_a_request_to_hold_back_that_came_before_the_one_that_counts_is_over(app: App) -> None:
    """Of two requests the later one counts, in whatever order they are handled."""
    wish = await pause.ask(app, "g", on=True)
    (delivery,) = [
        each
        for each in await app.handlers.queues.receive(app.handlers.names.events, count=32, lease_seconds=600)
        if '"hold-back"' in each.body
    ]
    await pause.ask(app, "g", on=False)
    await handle(app)
    with pytest.raises(Refused, match="it goes on"):
        await pause.settled(app, wish, until=late(app))
    await app.consumer().take("g", [Waiting(parse(delivery.body), delivery)])
    with pytest.raises(Refused, match="it goes on"):
        await pause.settled(app, wish, until=late(app))


@WHAT
async def test_a_graph_that_is_over_is_not_waited_for(app: App, what: dict[str, Any]) -> None:
    wish = await pause.ask(app, "g", on=True, **what)
    await cancel.ask(app, "g", terminate=True)
    for delivery in await app.handlers.queues.receive(app.handlers.names.events, count=32, lease_seconds=600):
        if '"cancel"' in delivery.body:
            await app.consumer().take("g", [Waiting(parse(delivery.body), delivery)])
    if what.get("labels"):
        assert await pause.settled(app, wish, until=late(app)), "nothing of it can run"
        return
    with pytest.raises(Refused, match="is cancelled: it can be neither paused nor resumed"):
        await pause.settled(app, wish, until=late(app))


async def test_a_limit_is_waited_for_until_a_later_request_sets_another(app: App) -> None:
    change = await limit.ask(app, "g", 5)
    assert not await limit.settled(app, change, until=late(app))
    other = await limit.ask(app, "g", 7)
    same = await limit.ask(app, "g", 7)
    await handle(app)
    with pytest.raises(Refused, match="a later request asked for another limit: it is 7") as refused:
        await limit.settled(app, change, until=late(app))
    assert refused.value.code == "superseded"
    assert await limit.settled(app, other, until=late(app))
    assert await limit.settled(app, same, until=late(app))


async def test_the_limit_of_a_graph_that_is_over_is_not_waited_for(app: App) -> None:
    change = await limit.ask(app, "g", 5)
    await cancel.ask(app, "g", terminate=True)
    for delivery in await app.handlers.queues.receive(app.handlers.names.events, count=32, lease_seconds=600):
        if '"cancel"' in delivery.body:
            await app.consumer().take("g", [Waiting(parse(delivery.body), delivery)])
    with pytest.raises(Refused, match="is cancelled: its limits cannot be changed"):
        await limit.settled(app, change, until=late(app))


async def test_the_methods_of_a_client_say_that_a_later_request_counts(client: Client, app: App) -> None:
    await pause.ask(app, "g", on=True)
    await handle(app)
    resuming = asyncio.create_task(client.resume("g", wait=True))
    while not await app.handlers.queues.count(app.handlers.names.events):
        await asyncio.sleep(0.01)
    await app.handlers.queues.receive(app.handlers.names.events, lease_seconds=600)  # it is on its way still
    await pause.ask(app, "g", on=True)
    await handle(app)
    with pytest.raises(Refused, match="a later request asked for the opposite: it is held back"):
        await resuming


async def test_a_worker_that_is_to_go_on_again_is_not_waited_for(app: App) -> None:
    columns: Columns = {"schema": 1, "name": "w", "seen": app.clock.now(), "slots": 1, "busy": 1, "draining": ""}
    await app.tables.commit(workers.WORKERS, [Insert(workers.key_of("w"), columns)])
    await workers.ask(app.tables, "w", draining=workers.FINISH, exits=False)
    assert await operation.settled(app, "w", until=ends(app.clock, 1)) == ("", 1)
    await workers.ask(app.tables, "w", draining="", exits=False)
    with pytest.raises(Refused, match="a later request asked for the opposite: it takes work again") as refused:
        await operation.settled(app, "w", until=late(app))
    assert refused.value.code == "superseded"


def test_a_target_that_goes_on_again_is_not_said_to_be_paused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands wait until workers have noticed, and then say what is so."""

    def run(*words: str) -> Result:
        return CliRunner().invoke(commands, [*words, "--store", f"sqlite:///{tmp_path}/store.db"])

    close, limit_target = targets.close, targets.limit_target

    async def closed_and_reopened(tables: Tables, target: str, *more: Any) -> bool:
        changed = await close(tables, target, *more)
        await targets.reopen(tables, target)
        return changed

    async def limited_twice(tables: Tables, target: str, most: int, *more: Any) -> bool:
        await limit_target(tables, target, most, *more)
        return await limit_target(tables, target, most + 1, *more)

    monkeypatch.setattr(limits, "GATE_SECONDS", 0.0)
    assert run("pause", "--target", "cpu", "--wait").stdout == "target cpu is paused\n"
    assert run("limit", "set", "--target", "cpu", "3", "--wait").stdout == "target cpu: the limit is 3\n"
    assert run("limit", "clear", "--target", "cpu", "--wait").stdout == "target cpu has no limit any more\n"
    monkeypatch.setattr(targets, "close", closed_and_reopened)
    monkeypatch.setattr(targets, "limit_target", limited_twice)
    done = run("pause", "--target", "gpu", "--wait")
    assert done.exit_code == 4
    assert "a later request asked for the opposite: it goes on" in done.stderr
    done = run("limit", "set", "--target", "gpu", "3", "--wait")
    assert done.exit_code == 4
    assert "a later request asked for another limit: it is 4" in done.stderr


async def test_waiting_goes_slower_and_ends_in_time() -> None:
    clock = HurriedClock()
    looks: list[float] = []

    async def look() -> bool:
        looks.append(round(clock.monotonic(), 3))
        return False

    assert not await poll(look, clock, until=ends(clock, 1.0), pause=0.1, pause_max=0.3)
    assert looks == [0, 0.1, 0.25, 0.475, 0.775, 1.075]
    began = clock.monotonic()
    looks.clear()
    assert not await poll(look, clock, until=began), "a moment that has come is over"
    assert len(looks) == 1
    assert not await poll(look, clock, until=began + 30)
    pauses = [round(after - before, 3) for before, after in itertools.pairwise(looks[1:])]
    assert (pauses[0], pauses[1], max(pauses)) == (0.05, 0.075, 2.0)
    assert ends(clock, None) is None


async def test_what_is_handled_between_two_looks_does_not_make_a_graph_look_at_rest(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message is gone from the queue only after its effect is in the graph: the graph is looked at last."""
    states = iter(["blocked", "running", "finished"])

    async def state(graph_id: str) -> str:
        return next(states)

    async def nothing(*_: object) -> int:
        return 0

    monkeypatch.setattr(type(app.queries), "state", lambda self, graph_id: state(graph_id))
    monkeypatch.setattr(type(app.queries), "busy", nothing)
    monkeypatch.setattr(type(app.handlers.dispatcher), "events_waiting", nothing)
    assert await wait_for_end(app, "g", until=late(app)) == "finished"


class Away:
    """A look at a store that is away for some seconds once it has answered; `answers` looks before that."""

    def __init__(self, clock: HurriedClock, seconds: float, answers: int = 1) -> None:
        self._clock, self._seconds, self._answers = clock, seconds, answers
        self._gone: float | None = None

    async def __call__(self) -> bool:
        if self._answers:
            self._answers -= 1
            return False
        self._gone = self._clock.monotonic() if self._gone is None else self._gone
        if self._clock.monotonic() - self._gone < self._seconds:
            raise StorageUnavailable("it is away")
        return True


async def test_a_wait_outlasts_a_store_that_is_away_for_a_while() -> None:
    clock = HurriedClock()
    assert await poll(Away(clock, AWAY_SECONDS - 1), clock)
    for seconds in (5.0, None):
        began = clock.monotonic()
        with pytest.raises(StorageUnavailable):
            await poll(Away(clock, AWAY_SECONDS + 2), clock, until=ends(clock, seconds))
        assert 0 <= clock.monotonic() - began - (seconds or AWAY_SECONDS) < 2


async def test_a_wait_for_a_store_that_never_answers_ends_at_once() -> None:
    clock = HurriedClock()
    began = clock.monotonic()
    with pytest.raises(StorageUnavailable):
        await poll(Away(clock, 1, answers=0), clock)
    assert clock.monotonic() == began
