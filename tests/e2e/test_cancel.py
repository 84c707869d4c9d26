"""Cancel, with real processes: a wide graph while eight of its commands run, commands that will not end, one task."""

import asyncio
import contextlib
import json
import os
import re
import secrets
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from taskgraph.interfaces.app import open_app
from taskgraph.interfaces.settings import read_settings
from tests.e2e.processes import command, started, taskgraph, until, write_graph

SLOTS = 8
LEASE_SECONDS = "6"  # so a worker elsewhere hears of it within 3 s


@pytest.fixture(params=["embedded", pytest.param("azurite", marks=pytest.mark.azurite)])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "embedded":
        return f"sqlite:///{tmp_path}/store.db"
    return str(request.getfixturevalue("azurite"))


@pytest.fixture
def prefix() -> str:
    return f"t{secrets.token_hex(6)}"


def sleeping(script: str = "exec sleep 600") -> dict[str, Any]:
    """A command that leaves its process id in a file, and sleeps."""
    return command("sh", "-c", f"echo $$ > begun/$TASKGRAPH_LABEL.$TASKGRAPH_RUN_ID; {script}")


def begun(folder: Path) -> dict[str, int]:
    """label.run -> process id, of every command that has begun."""
    return {path.name: int(text) for path in (folder / "begun").iterdir() if (text := path.read_text().strip())}


def lives(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def looked_at(store: str, prefix: str, folder: Path) -> tuple[list[dict[str, Any]], list[tuple[str, datetime]]]:
    """The columns of all tasks, and (kind, time) of the journal."""

    async def look() -> tuple[list[dict[str, Any]], list[tuple[str, datetime]]]:
        settings = read_settings(store, {"TASKGRAPH_PREFIX": prefix}, cwd=folder)
        async with open_app(settings) as app:
            rows = [dict(row.columns) async for row in app.queries.rows("g", "task:")]
            events = await app.queries.events("g", limit=100_000)
            return rows, [(each.kind, each.time) for each in events if each.time is not None]

    return asyncio.run(look())


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "begun").mkdir()
    yield tmp_path
    for pid in begun(tmp_path).values():  # should something have gone wrong
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 9)


def test_a_wide_graph_is_cancelled_while_eight_run(store: str, prefix: str, folder: Path) -> None:
    """Nothing is claimed after the fence, the commands are gone, and every task says why."""
    more = {"TASKGRAPH_PREFIX": prefix}
    file = write_graph(folder / "wide.json", {f"t{n:03}": sleeping() for n in range(200)})
    words = ("worker", "--slots", str(SLOTS), "--lease-seconds", LEASE_SECONDS)
    with (
        started("serve", store=store, cwd=folder, **more),
        started(*words, store=store, cwd=folder, **more),
    ):
        assert taskgraph("submit", str(file), "--id", "g", store=store, cwd=folder, **more).returncode == 0
        until(lambda: len(begun(folder)) == SLOTS, what="eight commands begin")
        done = taskgraph("cancel", "g", "--reason", "superseded", "--wait", store=store, cwd=folder, **more)
        assert (done.returncode, done.stdout) == (0, "graph g is cancelled\n"), done.stderr
        pids = begun(folder)
        assert len(pids) == SLOTS
        assert not any(map(lives, pids.values())), "its commands are still there"
        watched = taskgraph("watch", "g", "--json", store=store, cwd=folder, **more)
        assert watched.returncode == 1
        end = json.loads(watched.stdout.splitlines()[-1])
        assert (end["state"], end["counts"]["cancelled"]) == ("cancelled", 200)
    rows, events = looked_at(store, prefix, folder)
    fence = next(time for kind, time in events if kind == "graph-cancelling")
    claimed = [row["started"] for row in rows if "started" in row]
    assert len(claimed) == SLOTS
    assert all(time <= fence for time in claimed)
    resolutions = [json.loads(row["resolution"]) for row in rows]
    assert {(each["cancelled"], each["reason"]) for each in resolutions} == {(True, "superseded")}
    outcomes = Counter(each.get("reported", {}).get("outcome", "") for each in resolutions)
    assert outcomes == {"": 200 - SLOTS, "handed-back": SLOTS}
    assert [kind for kind, _ in events].count("graph-cancelled") == 1
    assert events[-1][0] == "graph-cancelled"


def test_commands_that_do_not_want_to_end_are_killed_and_one_task_alone_is_cancelled(folder: Path) -> None:
    store = f"sqlite:///{folder}/store.db"
    stubborn = sleeping("trap '' TERM; while true; do sleep 0.2; done")
    file = write_graph(folder / "stubborn.json", {"a": stubborn, "b": stubborn, "c": command("true", requires=("a",))})

    def tg(*words: str) -> Any:
        return taskgraph(*words, store=store, cwd=folder)

    with started("serve", "--worker", "2", "--grace-seconds", "0.5", store=store, cwd=folder):
        assert tg("submit", str(file), "--id", "g").returncode == 0
        until(lambda: len(begun(folder)) == 2)
        first = begun(folder)
        alone = tg("cancel", "g", "a", "--wait", "--json")
        assert json.loads(alone.stdout) == {"graphId": "g", "asked": True, "labels": ["a"], "state": "blocked"}
        assert not lives(first["a.0"])
        assert lives(first["b.0"])
        assert tg("cancel", "g", "a").stdout == "“a” is cancelled already, or over\n"
        assert "was cancelled in run 0" in tg("why", "g", "c").stdout
        assert tg("rerun", "g", "a").returncode == 0
        until(lambda: "a.1" in begun(folder))
        ended = tg("cancel", "g", "--terminate", "--wait", "--reason", "enough")
        assert (ended.returncode, ended.stdout) == (0, "graph g is cancelled\n"), ended.stderr
        until(lambda: not any(map(lives, begun(folder).values())), what="they are killed")
        status = tg("status", "g")
        assert "cancelled: enough" in status.stderr
        assert re.search(r"^  ⊘ cancelled +3$", status.stdout, re.MULTILINE)
        again = tg("cancel", "g")
        assert (again.returncode, again.stdout) == (0, "graph g is cancelled already\n")
    assert sorted(begun(folder)) == ["a.0", "a.1", "b.0"]


def test_a_run_in_the_foreground_ends_when_somebody_cancels_its_graph(folder: Path) -> None:
    store = f"sqlite:///{folder}/store.db"
    file = write_graph(folder / "one.json", {"a": sleeping(), "b": command("true", requires=("a",))})
    with started("run", str(file), "--id", "g", store=store, cwd=folder) as run:
        until(lambda: begun(folder))
        asked = taskgraph("cancel", "g", store=store, cwd=folder)
        assert asked.stdout == "graph g: all of it is asked to be cancelled\n"
        assert asked.stderr == "", "that run handles it"
        assert run.wait(timeout=20) == 1
    assert not any(map(lives, begun(folder).values()))
    assert "2 cancelled" in (folder / "run.log").read_text("utf-8")


def test_what_cannot_be_cancelled_is_said(folder: Path) -> None:
    store = f"sqlite:///{folder}/store.db"

    def tg(*words: str) -> Any:
        return taskgraph(*words, store=store, cwd=folder)

    file = write_graph(folder / "done.json", {"a": command("true")})
    assert tg("run", str(file), "--id", "g").returncode == 0
    assert tg("cancel", "nowhere").returncode == 3
    over = tg("cancel", "g")
    assert (over.returncode, "graph g is finished: there is nothing left to cancel" in over.stderr) == (4, True)
    done = tg("cancel", "g", "a")
    assert (done.returncode, "“a” is completed: there is nothing left to cancel" in done.stderr) == (4, True)
    near = tg("cancel", "g", "aa")
    assert (near.returncode, "aa" in near.stderr) == (3, True)
    assert tg("cancel", "g", "--group", "no").returncode == 3
    assert tg("cancel", "g", "--reason", "x" * 1001).returncode == 2
