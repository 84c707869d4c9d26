"""A graph that one process submits and runs at once: what it is spared."""

import asyncio
from pathlib import Path

import pytest

from taskgraph.documents.read import document_from_object
from taskgraph.engine.submission import submit
from taskgraph.interfaces.app import App, open_app
from taskgraph.interfaces.one_graph import run_graph, taking
from taskgraph.interfaces.settings import StoreSettings, read_settings
from taskgraph.model.flag import Flag
from taskgraph.model.messages import SendReady, parse
from taskgraph.model.states import GraphState
from taskgraph.storage.sqlite.store import EmbeddedStore
from taskgraph.storage.tables import Range, query_all
from taskgraph.worker.executors import built_in
from tests.bench import counting


def _settings(folder: Path) -> StoreSettings:
    return read_settings(None, {"TASKGRAPH_STORE": f"sqlite:///{folder}/store.db"}, cwd=folder)


@pytest.mark.parametrize("fresh", [True, False])
async def test_a_short_run_does_not_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh: bool) -> None:
    """Nothing can be lost yet of what was just submitted."""
    for name in ("tables", "queues", "logs"):
        monkeypatch.setattr(EmbeddedStore, name, getattr(EmbeddedStore, name))  # the wrappers go when the test ends
    counts = counting.Counts(weigh=True)
    counting.install(counts, azure=False)
    async with open_app(_settings(tmp_path)) as app:
        document = document_from_object({"tasks": {"a": {"task": {"executor": "noop"}}}})
        await submit(app.handlers, "g", document)
        submitted = counts.take()["operations"]
        worker = app.worker(built_in(app.clock), slots=1)
        state = await run_graph(app, "g", Flag(), workers=[worker], fresh=fresh)
        run = counts.take()
    assert state == GraphState.FINISHED
    assert submitted == {"commit": 3, "get": 1, "send": 1}, "what it wrote itself is not read back"
    places = [name.removeprefix("place:") for name in run["sums"] if name.startswith("place:")]
    assert any("engine.sweep.sweep " in place for place in places) != fresh, "of all live graphs"
    assert any("engine.sweep.sweep_graph " in place for place in places) != fresh


def _tasks(count: int, task: dict[str, object]) -> dict[str, object]:
    return {"tasks": {f"t{number:04}": {"task": task} for number in range(count)}}


async def _run_alone(app: App, graph_id: str, document: dict[str, object], stop: Flag, *, slots: int = 2) -> GraphState:
    """As `run` does: what is submitted is offered to no other process."""
    worker = app.worker(built_in(app.clock), slots=slots)
    with taking(app, graph_id, [worker]) as consumer:
        await submit(app.handlers, graph_id, document_from_object(document))
        return await run_graph(app, graph_id, stop, workers=[worker], consumer=consumer, fresh=True)


async def test_what_a_submission_leaves_ready_needs_no_message(tmp_path: Path) -> None:
    async with open_app(_settings(tmp_path)) as app:
        state = await _run_alone(app, "g", _tasks(1_000, {"executor": "noop"}), Flag())
        assert state == GraphState.FINISHED
        assert app.handlers.counters.dispatched == 0


async def test_what_is_left_in_stock_is_sent_by_the_next_that_handles_the_graph(tmp_path: Path) -> None:
    stop = Flag()
    async with open_app(_settings(tmp_path)) as app:
        queue = app.names.events

        def stop_soon(graph_id: str) -> None:
            if app.handlers.counters.commits >= 2:
                stop.set()

        app.handlers.listeners.news.append(stop_soon)
        document = _tasks(300, {"executor": "sleep", "payload": {"seconds": 60}})
        assert await _run_alone(app, "g", document, stop) == GraphState.RUNNING
        assert await app.queues.count(app.names.work("default")) == 0, "300 tasks are one message"
        left = await app.queues.receive(queue, count=32, lease_seconds=10)
        assert [parse(each.body) for each in left] == [SendReady("g")]
        tasks = await query_all(app.tables, "g", Range("task:", "task;"))
        assert {row.columns["state"] for row in tasks} == {"pending"}


async def test_a_run_is_among_the_handlers_soon(tmp_path: Path) -> None:
    """Another command, which has to start first, sees that it handles its graph."""
    async with open_app(_settings(tmp_path)) as app:
        await submit(app.handlers, "g", document_from_object({"tasks": {"a": {"task": {"executor": "noop"}}}}))
        stop = Flag()
        running = asyncio.create_task(run_graph(app, "g", stop, workers=[], fresh=True))
        while not (await app.crew()).handled:
            await asyncio.sleep(0.01)
            assert not running.done()
        assert app.locks is not None
        assert len(app.locks.found()) == 1
        stop.set()
        await running
        assert not (await app.crew()).handled
        assert not app.locks.found()


async def test_the_commit_that_starts_a_small_graph_claims_its_first_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("tables", "queues", "logs"):
        monkeypatch.setattr(EmbeddedStore, name, getattr(EmbeddedStore, name))  # the wrappers go when the test ends
    counts = counting.Counts(weigh=True)
    counting.install(counts, azure=False)
    async with open_app(_settings(tmp_path)) as app:
        assert await _run_alone(app, "g", _tasks(1, {"executor": "noop"}), Flag()) == GraphState.FINISHED
    operations = counts.take()["operations"]
    assert operations["commit"] == 5, "into two lists, the graph, its end, out of the list of live ones"
    assert "send" not in operations


async def test_of_the_first_tasks_the_most_urgent_are_claimed_as_their_graph_starts(tmp_path: Path) -> None:
    tasks = {
        f"{level}-{number}": {"priority": level, "task": {"executor": "sleep", "payload": {"seconds": 0.01}}}
        for number in range(2)
        for level in ("low", "high", "normal")
    }
    async with open_app(_settings(tmp_path)) as app:
        assert await _run_alone(app, "g", {"tasks": tasks}, Flag(), slots=1) == GraphState.FINISHED
        done = [each.fields["label"] for each in await app.queries.events("g") if each.kind == "task-completed"]
    assert [each.partition("-")[0] for each in done] == ["high", "high", "normal", "normal", "low", "low"]


async def test_what_is_held_back_is_not_claimed_as_its_graph_starts(tmp_path: Path) -> None:
    tasks = {"held": {"active": False, "task": {"executor": "noop"}}, "free": {"task": {"executor": "noop"}}}
    stop = Flag()
    async with open_app(_settings(tmp_path)) as app:
        app.handlers.listeners.news.append(lambda _: stop.set() if app.handlers.counters.commits >= 2 else None)
        assert await _run_alone(app, "g", {"tasks": tasks}, stop) == GraphState.RUNNING
        rows = await query_all(app.tables, "g", Range("task:", "task;"))
    assert {row.columns["label"]: row.columns["state"] for row in rows} == {"held": "pending", "free": "completed"}
