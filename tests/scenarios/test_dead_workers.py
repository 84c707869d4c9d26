"""A worker of this machine that died without a word: its lock file says so, and its runs are given up at once."""

import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from taskgraph.engine.submission import submit
from taskgraph.interfaces.app import App, open_app
from taskgraph.interfaces.loops import bury
from taskgraph.interfaces.settings import read_settings
from taskgraph.model.ids import row_key, task_id_of
from taskgraph.protocol.runs import Claim
from tests.scenarios.stage import graph

GRAPHS = ("one", "two")


@contextlib.asynccontextmanager
async def store(folder: Path, worker: str) -> AsyncIterator[App]:
    """Two graphs, of each of which a worker holds a task; its lock file is there."""
    async with open_app(read_settings(f"sqlite:///{folder}/s.db", {}, cwd=folder)) as app:
        for graph_id in GRAPHS:
            await submit(app.handlers, graph_id, graph({"a": [], "b": []}))
            until = app.clock.now() + timedelta(days=1)
            claim = Claim(task_id_of(graph_id, "a"), 0, "c", worker, until, lease_seconds=86_400.0)
            await app.handlers.transition(graph_id, [claim])
        (folder / "workers").mkdir(exist_ok=True)
        (folder / "workers" / f"{worker}.lock").touch()
        yield app


async def states(app: App) -> list[tuple[object, object]]:
    rows = [(await app.tables.get(each, [row_key(task_id_of(each, "a"))]))[0] for each in GRAPHS]
    return [(row.columns["state"], row.columns["run"]) for row in rows if row is not None]


async def test_all_runs_of_a_worker_that_is_gone_are_given_up_and_its_file_goes(tmp_path: Path) -> None:
    async with store(tmp_path, "w") as app:
        assert app.locks is not None
        assert await bury(app, app.locks) == 2
        assert await states(app) == [("pending", 1), ("pending", 1)]
        assert app.locks.found() == []
        assert await bury(app, app.locks) == 0


async def test_nothing_is_taken_from_a_worker_that_holds_its_lock(tmp_path: Path) -> None:
    async with store(tmp_path, "w") as app:
        assert app.locks is not None
        with app.locks.hold("w"):
            assert await bury(app, app.locks) == 0
            assert await states(app) == [("running", 0), ("running", 0)]


async def test_the_last_words_of_the_dead_are_heard_first(tmp_path: Path) -> None:
    async with store(tmp_path, "w") as app:
        assert app.locks is not None
        await app.queues.send(app.handlers.names.events, ["a result, perhaps"])
        assert await bury(app, app.locks) == 0
        assert app.locks.found() == ["w"]


async def test_a_worker_without_a_file_may_live_elsewhere(tmp_path: Path) -> None:
    async with store(tmp_path, "w") as app:
        assert app.locks is not None
        app.locks.forget("w")
        assert await bury(app, app.locks) == 0
        assert await states(app) == [("running", 0), ("running", 0)]


@pytest.mark.parametrize("name", ["with space", "a" * 130])
async def test_a_name_that_is_none_is_left_alone(tmp_path: Path, name: str) -> None:
    async with store(tmp_path, name) as app:
        assert app.locks is not None
        assert await bury(app, app.locks) == 0
