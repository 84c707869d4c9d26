"""A graph that one process submits and runs at once: what it is spared."""

import asyncio
from pathlib import Path

import pytest

from taskgraph.documents.read import document_from_object
from taskgraph.engine.submission import submit
from taskgraph.interfaces.app import open_app
from taskgraph.interfaces.loops import run_graph
from taskgraph.interfaces.settings import read_settings
from taskgraph.model.states import GraphState
from taskgraph.storage.sqlite.store import EmbeddedStore
from taskgraph.worker.executors import built_in
from tests.bench import counting


@pytest.mark.parametrize("fresh", [True, False])
async def test_a_short_run_does_not_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh: bool) -> None:
    """Nothing can be lost yet of what was just submitted."""
    for name in ("tables", "queues", "logs"):
        monkeypatch.setattr(EmbeddedStore, name, getattr(EmbeddedStore, name))  # the wrappers go when the test ends
    counts = counting.Counts(weigh=True)
    counting.install(counts, azure=False)
    settings = read_settings(None, {"TASKGRAPH_STORE": f"sqlite:///{tmp_path}/store.db"}, cwd=tmp_path)
    async with open_app(settings) as app:
        document = document_from_object({"tasks": {"a": {"task": {"executor": "noop"}}}})
        await submit(app.handlers, "g", document)
        submitted = counts.take()["operations"]
        worker = app.worker(built_in(app.clock), slots=1)
        state = await run_graph(app, "g", asyncio.Event(), workers=[worker], fresh=fresh)
        run = counts.take()
    assert state == GraphState.FINISHED
    assert submitted == {"commit": 5, "get": 1, "send": 1}, "what it wrote itself is not read back"
    places = [name.removeprefix("place:") for name in run["sums"] if name.startswith("place:")]
    assert any("engine.sweep.sweep " in place for place in places) != fresh, "of all live graphs"
    assert any("engine.sweep.sweep_graph " in place for place in places) != fresh
    assert any("registration" in place for place in places), "another command sees at once that it handles the graph"
