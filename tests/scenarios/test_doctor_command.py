"""`taskgraph doctor` as it is typed: words, JSON and exit codes, over the embedded store."""

import asyncio
import contextlib
import json
import sqlite3
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from taskgraph.interfaces.app import open_app
from taskgraph.interfaces.cli import app as commands
from taskgraph.interfaces.settings import read_settings
from taskgraph.model.clock import SystemClock
from taskgraph.model.columns import Value
from taskgraph.model.ids import GRAPH, row_key, task_id_of
from taskgraph.model.names import LEADS
from taskgraph.protocol.schedule_rules import SCHEDULES
from taskgraph.queries.targets import GATES
from taskgraph.queries.workers import WORKERS
from taskgraph.storage.tables import Insert, Merge, Row
from tests.http.typed import both_doors

TASKS = {"a": {"task": {}}, "b": {"requires": ["a"], "task": {}}}


class Desk:
    """One store, and commands over it."""

    def __init__(self, folder: Path) -> None:
        self.store = f"sqlite:///{folder}/store.db"
        self.file = folder / "graph.json"
        self.file.write_text(json.dumps({"tasks": TASKS}))

    def __call__(self, *words: str, exit_code: int = 0) -> Any:
        found = CliRunner().invoke(commands, [*words, "--store", self.store])
        assert found.exit_code == exit_code, (found.stdout, found.stderr, found.exception)
        return found

    def spoil(self, graph_id: str, key: str, **columns: Value) -> None:
        async def write() -> None:
            async with open_app(read_settings(self.store, {}, cwd=Path.cwd())) as opened:
                (row,) = await opened.tables.get(graph_id, [key])
                assert row is not None
                await opened.tables.commit(graph_id, [Merge(key, row.etag, columns)])

        asyncio.run(write())


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@both_doors
def test_a_sound_graph(desk: Desk) -> None:
    desk("submit", str(desk.file), "--id", "g")
    found = desk("doctor", "g")
    assert found.stdout.splitlines()[0].startswith("g is ")
    assert found.stdout.splitlines()[0].endswith(" running")
    assert "start a worker: taskgraph worker --target default" in found.stdout
    assert "nothing wrong" in found.stderr
    told = json.loads(desk("doctor", "g", "--json").stdout)
    assert (told["sound"], told["findings"], told["state"]) == (True, [], "running")
    assert told["why"][0]["text"].startswith("1 task is ready for workers of target default")


@both_doors
def test_why_without_a_label_has_the_causes_of_the_whole_graph(desk: Desk) -> None:
    desk("submit", str(desk.file), "--id", "g")
    lines = desk("why", "g").stdout.splitlines()
    assert lines[0].endswith("running")
    assert "1 task is ready for workers of target default" in lines[1]
    assert "start a worker: taskgraph worker --target default" in lines[2]
    answer = json.loads(desk("why", "g", "--json").stdout)
    assert answer["causes"] == json.loads(desk("doctor", "g", "--json").stdout)["why"]
    desk("why", "nope", exit_code=3)


@both_doors
def test_something_wrong_is_told_and_mended(desk: Desk) -> None:
    desk("submit", str(desk.file), "--id", "g")
    desk.spoil("g", row_key(task_id_of("g", "b")), requiresLeft="[]")
    found = desk("doctor", "g", exit_code=1)
    assert "requirement-forgotten" in found.stdout
    assert "“b”" in found.stdout
    assert "it would go on too early" in found.stdout
    assert "taskgraph doctor g --repair" in found.stderr
    (told,) = json.loads(desk("doctor", "g", "--json", exit_code=1).stdout)["findings"]
    assert told["code"] == "requirement-forgotten"
    assert told["repairable"] is True
    assert told.keys() == {
        *("code", "key", "label", "severity", "text", "effect", "remedy", "repairable", "refusal"),
    }
    assert "repaired" in desk("doctor", "g", "--repair").stdout
    desk("doctor", "g")
    desk("run", "--id", "g", "--executor", "noop")
    assert "it is finished" in desk("doctor", "g").stdout


@both_doors
def test_what_is_not_repaired_ends_with_one(desk: Desk) -> None:
    desk("submit", str(desk.file), "--id", "g")
    desk.spoil("g", GRAPH, edges=9)
    found = desk("doctor", "g", "--repair", exit_code=1)
    assert "not repaired: no row says which requirement is gone" in found.stdout


@both_doors
def test_an_unknown_graph_ends_with_three(desk: Desk) -> None:
    desk("submit", str(desk.file), "--id", "nightly")
    found = desk("doctor", "nightlyy", exit_code=3)
    assert "did you mean “nightly”?" in found.stderr
    desk("doctor", "no/graph", exit_code=2)


def test_all_live_graphs(desk: Desk) -> None:
    assert "0 live graphs: all sound" in desk("doctor").stderr
    desk("submit", str(desk.file), "--id", "four")
    desk("submit", str(desk.file), "--id", "five")
    desk.spoil("four", GRAPH, failedTasks=2)
    found = desk("doctor", exit_code=1)
    lines = {line.split()[0]: line for line in found.stdout.splitlines()}
    assert "1 wrong" in lines["four"]
    assert "nothing wrong" in lines["five"]
    assert "1 with something wrong" in found.stderr
    told = json.loads(desk("doctor", "--json", exit_code=1).stdout)
    assert {one["graphId"]: one["sound"] for one in told["graphs"]} == {"four": False, "five": True}
    assert json.loads(desk("doctor", "--repair", "--json").stdout)["sound"] is True
    assert "all sound" in desk("doctor").stderr


def hours(number: float) -> timedelta:
    return timedelta(hours=number)


@pytest.mark.parametrize("off", [hours(1), hours(24), hours(365 * 24)])
def test_times_of_the_store_that_a_clock_ahead_wrote_are_named_and_set_to_one_length_from_now(
    desk: Desk, off: timedelta
) -> None:
    now = datetime.now(UTC)
    rows = {
        (LEADS, "taskgraph-events"): ("until", now + off, 10),
        (GATES, "permit:default:0000"): ("until", now + off, 60),
        (GATES, "limit:default"): ("since", now + off, 0),
        (GATES, "target:other"): ("since", now + off, 0),
        (GATES, "level:default:high"): ("used", now + off, 0),
        (WORKERS, "w"): ("seen", now + off, 0),
        (SCHEDULES, "schedule:s"): ("tryAfter", now + off + timedelta(seconds=3600), 0),
    }
    right = {
        (LEADS, "other-events"): ("until", now + timedelta(seconds=19), 10),
        (GATES, "permit:default:0001"): ("until", now + timedelta(seconds=69), 60),
        (GATES, "permit:default:0002"): ("until", now - off, 60),  # whoever had it may be gone, and may not
        (WORKERS, "v"): ("seen", now - off, 0),
        (SCHEDULES, "schedule:t"): ("tryAfter", now + timedelta(seconds=3600), 0),
    }

    async def write() -> None:
        async with open_app(read_settings(desk.store, {}, cwd=Path.cwd())) as opened:
            for (partition, key), (column, said, seconds) in {**rows, **right}.items():
                columns: dict[str, Value] = {"max": 3, "token": "t", "seconds": seconds, column: said}
                await opened.tables.commit(partition, [Insert(key, columns)])

    async def read() -> dict[tuple[str, str], Row | None]:
        async with open_app(read_settings(desk.store, {}, cwd=Path.cwd())) as opened:
            return {each: (await opened.tables.get(each[0], [each[1]]))[0] for each in (*rows, *right)}

    asyncio.run(write())
    before = asyncio.run(read())
    told = json.loads(desk("doctor", "--json").stdout)["store"]
    assert {each["key"] for each in told["findings"]} == {" ".join(each) for each in rows}
    assert {each["code"] for each in told["findings"]} == {"clock-off"}
    assert all(each["repairable"] for each in told["findings"])
    assert asyncio.run(read()) == before, "nothing is changed without --repair"
    said = desk("doctor")
    assert "the latest that it can be is 60 s from now" in said.stdout
    assert "taskgraph doctor --repair" in said.stderr
    mended = json.loads(desk("doctor", "--repair", "--json").stdout)["store"]
    assert mended["findings"] == []
    assert {each["key"] for each in mended["repaired"]} == {" ".join(each) for each in rows}
    after = asyncio.run(read())
    for each, (column, _, seconds) in rows.items():
        row = after[each]
        assert row is not None
        then = row.columns[column]
        assert isinstance(then, datetime)
        assert -1 < (then - now).total_seconds() - seconds < 60, each
        assert row.columns["token"] == "t", "who has it has it still"
    assert {each: after[each] for each in right} == {each: before[each] for each in right}
    assert json.loads(desk("doctor", "--json").stdout)["store"] == {"findings": [], "repaired": []}


def test_messages_that_a_clock_ahead_has_hidden_are_named_and_set_right(desk: Desk, tmp_path: Path) -> None:
    class Ahead(SystemClock):
        def now(self) -> datetime:
            return super().now() + hours(24)

    async def write() -> None:
        settings = read_settings(desk.store, {}, cwd=Path.cwd())
        async with open_app(settings, clock=Ahead()) as ahead, open_app(settings) as right:
            await ahead.queues.send("some-queue", ["a", "b"], delay_seconds=40)
            await ahead.queues.send("some-queue", ["c"])
            await right.queues.send("some-queue", ["d"], delay_seconds=40)

    def hidden() -> list[float]:
        connection = sqlite3.connect(tmp_path / "store.db")
        with contextlib.closing(connection):
            found = connection.execute("SELECT visible_at / 1e6 FROM message ORDER BY body").fetchall()
        return [seconds - time.time() for (seconds,) in found]

    asyncio.run(write())
    (found,) = json.loads(desk("doctor", "--json").stdout)["store"]["findings"]
    assert (found["key"], found["code"]) == ("queue some-queue", "clock-off")
    assert "3 of its messages are hidden until" in found["text"]
    assert "the latest that it can be is 40 s from now" in found["text"]
    assert hidden()[0] > 86_000
    desk("doctor", "--repair")
    a, b, c, d = hidden()
    assert 20 < a <= 40
    assert 20 < b <= 40
    assert c <= 0
    assert d < a
    assert json.loads(desk("doctor", "--json").stdout)["store"]["findings"] == []
