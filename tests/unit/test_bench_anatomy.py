"""`scripts/bench --anatomy`: the table of steps, samples that add up, memory, the floor, and one cell taken apart."""

import gc
import hashlib
import importlib
import json
import selectors
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.bench import __main__ as command
from tests.bench import anatomy
from tests.bench.cells import Cell, CellFailed, Layout, Place
from tests.bench.floor import CHANGES_MAX, Floor, noop, open_file, submit
from tests.bench.sampling import Kept, Sampler
from tests.bench.shapes import Requirements, Shape, shape
from tests.bench.steps import GARBAGE, OTHER, STEPS, step_of

ROOT = Path(__file__).resolve().parents[2]
NAMES = [name for names in STEPS.values() for name in names]
UNSEEN_MAX = 0.03  # of a run's CPU time: threads that begin and end between two samples
OTHER_MAX = 0.04


@pytest.mark.parametrize("name", NAMES)
def test_a_name_of_the_table_is_a_module_or_a_function_of_one(name: str) -> None:
    module, _, qualified = name.partition(":")
    found: Any = importlib.import_module(module)
    for part in filter(None, qualified.split(".")):
        found = getattr(found, part)


def test_a_name_stands_under_one_step() -> None:
    assert len(set(NAMES)) == len(NAMES)
    assert not {GARBAGE, OTHER} & STEPS.keys()


@pytest.mark.parametrize(
    ("module", "qualified", "step"),
    [
        ("taskgraph.protocol.rows", "Draft.set", "rows and diffs"),
        ("taskgraph.protocol.rows", "Draft.read_json", "JSON"),
        ("taskgraph.protocol.runs", "_completed", "decide"),
        ("taskgraph.storage.sqlite.file", "Session.run", "SQLite"),
        ("taskgraph.storage.sqlite.file", "File.call.<locals>.<lambda>", "store calls"),
        ("json.decoder", "JSONDecoder.decode", "JSON"),
        ("asyncio.base_events", "BaseEventLoop._run_once", "loop"),
        ("taskgraphs", "f", ""),
        ("re", "compile", ""),
    ],
)
def test_the_longest_name_counts(module: str, qualified: str, step: str) -> None:
    assert step_of(module, qualified) == step


def burn(seconds: float) -> None:
    """Use this thread's CPU, outside of any step."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(100))


def write_json(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        json.dumps({"a": [1, 2, 3] * 200}, indent=1)  # with an indent, in Python


@pytest.fixture
def no_garbage() -> Iterator[None]:
    """Nothing is looked for while a test measures: a process of tests holds much."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_garbage")
def test_samples_add_up_to_the_time_of_the_process_and_find_its_steps() -> None:
    sampler, waiting = Sampler(), selectors.DefaultSelector()
    for _ in range(2):  # and again
        sampler.start()
        write_json(0.4)
        burn(0.2)
        waiting.select(0.05)
        found = sampler.stop()
        whole = sum(found["steps"].values()) + found["sampling"]
        assert whole == pytest.approx(found["cpu"], rel=UNSEEN_MAX)
        other = found["steps"][OTHER] / (found["steps"][OTHER] + found["steps"]["JSON"])
        assert 0.15 < other < 0.6, "a third; on a busy machine samples come late, and more of them fall there"
        assert found["samples"] > 100
        assert sum(found["places"].values()) == pytest.approx(sum(found["steps"].values()))
        assert any(place.startswith("JSON: json.encoder:") for place in found["places"])
    waiting.close()


@pytest.mark.usefixtures("no_garbage")
def test_what_comes_before_a_pause_is_charged_to_what_did_it() -> None:
    """Each sample counts alike: the time before a wait is not the time of waiting."""
    sampler, waiting = Sampler(), selectors.DefaultSelector()
    sampler.start()
    for _ in range(500):
        write_json(0.001)
        burn(0.001)
        waiting.select(0.001)
    found = sampler.stop()
    waiting.close()
    steps = found["steps"]
    assert 0.25 < steps["JSON"] / (steps["JSON"] + steps[OTHER]) < 0.75, "as much of one as of the other"
    assert steps.get("loop", 0.0) < 0.2 * found["cpu"]


def test_a_sample_that_comes_late_or_finds_who_waits_counts_for_nothing() -> None:
    """And what it would have counted is shared out by the others."""
    sampler = Sampler()
    sampler.start()
    frame, clock, second = sys._getframe(), -1, 1_000_000_000  # of no thread, so that the timer leaves it alone

    def select() -> FrameType:
        return sys._getframe()

    sampler._count(clock, second, second, frame)
    assert sampler._weights[clock] == {(OTHER, ""): second}
    sampler._count(clock, 2 * second, 4 * second, frame, prompt=False)
    sampler._count(clock, 3 * second, 4 * second, select())
    sampler._count(clock, 4 * second, second, select())  # it ran all the time, but looks are for the main thread
    assert sampler._weights[clock] == {(OTHER, ""): second}
    sampler._count(clock, 4 * second + 1, 4 * second, frame)  # just woken: this counts an interval
    assert sampler._weights[clock] == {(OTHER, ""): second + sampler._interval}
    found = sampler.stop()
    assert found["steps"][OTHER] == pytest.approx(4, rel=0.1)
    assert found["beside"] == pytest.approx(4)


@pytest.mark.usefixtures("no_garbage")
def test_samples_leave_no_garbage_of_their_own() -> None:
    """A frame that names itself keeps what all frames below it hold."""
    sampler = Sampler()
    gc.collect()
    sampler.start()
    burn(0.1)
    found = sampler.stop()
    assert found["samples"] > 10
    assert gc.collect() == 0


@pytest.mark.usefixtures("no_garbage")
def test_the_time_of_another_thread_is_charged_to_its_stack() -> None:
    sampler = Sampler()
    sampler.start()
    spent: list[float] = []

    def work() -> None:
        while time.thread_time() < 0.2:
            hashlib.pbkdf2_hmac("sha256", b"x", b"y", 20_000)  # without the interpreter's lock
        spent.append(time.thread_time())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    found = sampler.stop()
    assert found["beside"] == pytest.approx(spent[0], rel=0.1)
    assert found["steps"]["loop"] > 0.15, "threads stand under it"


def test_looking_for_garbage_is_a_step_of_its_own() -> None:
    rings: list[Any] = [[] for _ in range(200_000)]
    for each in rings:
        each.append(each)
    sampler = Sampler()
    sampler.start()
    del each, rings
    began = time.thread_time()
    gc.collect()
    spent = time.thread_time() - began
    found = sampler.stop()
    assert found["steps"][GARBAGE] == pytest.approx(spent, rel=0.2)
    assert gc.callbacks.count(sampler._collecting) == 0


def test_memory_is_counted_for_the_step_that_took_it() -> None:
    kept = Kept()
    held = json.loads(json.dumps([{"name": f"a text that is long enough {number}"} for number in range(1000)]))
    json.loads(json.dumps([{"other": number} for number in range(5_000)]))  # not held
    steps = kept.take()["steps"]
    size, blocks = steps["JSON"]
    assert len(held) == 1000
    assert 2000 <= blocks < 5000
    assert 100_000 < size < 1_000_000


# --- the floor


def file_of(tmp_path: Path, requirements: Requirements) -> tuple[sqlite3.Connection, Path]:
    path = tmp_path / "floor" / "floor.db"
    connection = open_file(path)
    submit(connection, requirements, {})
    return connection, path


def rows(connection: sqlite3.Connection, kind: str) -> list[tuple[int, dict[str, Any]]]:
    found = connection.execute("SELECT etag, columns FROM row WHERE key LIKE ? ORDER BY key", (f"{kind}:%",))
    return [(etag, json.loads(columns)) for etag, columns in found]


def assert_done(connection: sqlite3.Connection, requirements: Requirements) -> None:
    """Every task has completed, once and after what it requires, and the journal says so."""
    tasks = {row["label"]: row for _, row in rows(connection, "task")}
    assert {row["state"] for row in tasks.values()} == {"completed"}
    for label, requires in requirements.items():
        assert tasks[label]["requiresLeft"] == 0
        assert all(tasks[each]["resolved"] <= tasks[label]["started"] for each in requires)
    journal = [row for _, row in rows(connection, "event")]
    facts = [fact for row in journal for fact in json.loads(row["events"])]
    assert sorted(fact["label"] for fact in facts if "label" in fact) == sorted(requirements)
    assert facts[-1] == {"event": "graph-finished"}
    assert [row["sequence"] for row in journal] == list(range(1, len(journal) + 1))
    assert journal[-1]["completed"] == len(requirements)


@pytest.mark.parametrize(("name", "commits"), [("chain-9", 10), ("fan-1000", 12), ("layers-6x90", 40), ("tree-63", 8)])
def test_the_floor_runs_a_graph(tmp_path: Path, name: str, commits: int) -> None:
    requirements = shape(name).make()
    connection, path = file_of(tmp_path, requirements)
    floor = Floor(connection, path, noop, "w")
    floor.run()
    assert_done(connection, requirements)
    assert (floor.conflicts, floor.commits <= commits) == (0, True)
    if not name.startswith("layers"):  # there, tasks are counted down by what completes in different commits
        writes = [etag - 1 for etag, row in rows(connection, "task") if row["label"] not in ("t0", "t1001")]
        assert set(writes) <= {2, 3}, "claimed and completed"


def test_a_commit_of_the_floor_has_its_bound(tmp_path: Path) -> None:
    connection, path = file_of(tmp_path, shape("fan-1000").make())
    Floor(connection, path, noop, "w").run()
    written: dict[str, int] = {}
    for _, row in [*rows(connection, "task"), *rows(connection, "event")]:
        written[row["operation"]] = written.get(row["operation"], 0) + 1
    assert max(written.values()) <= CHANGES_MAX


def test_the_floor_goes_on_where_a_process_died(tmp_path: Path) -> None:
    requirements = shape("layers-4x30").make()
    connection, path = file_of(tmp_path, requirements)
    runs: list[str] = []

    def die(definition: str) -> dict[str, Any]:
        runs.append(definition)
        if len(runs) == 70:
            raise MemoryError
        return noop(definition)

    with pytest.raises(MemoryError):
        Floor(connection, path, die, "w").run()
    states = {row["state"] for _, row in rows(connection, "task")}
    assert {"completed", "running"} <= states
    with pytest.raises(RuntimeError, match="in the hands of others"):
        Floor(connection, path, noop, "another").run()
    Floor(connection, path, noop, "w").run()
    assert_done(connection, requirements)


def test_a_write_of_another_process_is_a_conflict_of_the_floor_and_costs_a_look(tmp_path: Path) -> None:
    requirements = shape("layers-4x30").make()
    connection, path = file_of(tmp_path, requirements)
    other = open_file(path)
    runs: list[str] = []

    def meddle(definition: str) -> dict[str, Any]:
        runs.append(definition)
        if len(runs) == 40:  # what it has in hand has changed when it comes to be committed
            other.execute("UPDATE row SET etag = etag + 1 WHERE key LIKE 'task:%'")
        return noop(definition)

    floor = Floor(connection, path, meddle, "w")
    floor.run()
    other.close()
    assert floor.conflicts == 1
    assert len(runs) > len(requirements), "what was not committed has run again"
    assert_done(connection, requirements)


# --- the whole


@pytest.mark.campaign
def test_a_cell_is_taken_apart() -> None:
    """For real: the steps cover all but a few per cent, and nearly all that the process used is in a sample."""
    cell = Cell(shape("fan-3000"), "embedded", "noop", Layout(), 2)
    said: list[str] = []
    figures, failed = anatomy.play([cell], Place(ROOT, seconds_max=120), 1, said.append)
    assert failed == []
    found = figures[str(cell)]
    for phase, wanted in (
        ("run", {"rows and diffs", "JSON", "SQLite"}),
        ("submission", {"documents", "submission", "SQLite", "JSON"}),
    ):
        one = found[phase]
        assert wanted <= one["steps"].keys()
        assert abs(one["unseen"]) <= UNSEEN_MAX * one["cpu"], one
        assert one["steps"].get(OTHER, 0.0) <= OTHER_MAX * one["cpu"], one["steps"]
        assert one["samples"] > 20
    assert found["toFloor"] == pytest.approx(found["plain"] / found["floor"])
    assert 1 < found["toFloor"] < 50
    size, blocks = map(sum, zip(*found["held"].values(), strict=True))
    assert 500 < size < 50_000
    assert 5 < blocks < 500
    assert "| fan-3000/embedded |" in anatomy.text(figures)
    assert "the floor" in anatomy.text(figures)
    assert "1/1 fan-3000/embedded/noop/local: " in said[0]


def test_a_cell_that_fails_is_named_and_the_others_go_on() -> None:
    ring = Cell(Shape("ring", lambda: {"a": ["b"], "b": ["a"]}), "embedded", "noop", Layout(), 1)
    said: list[str] = []
    figures, failed = anatomy.play([ring], Place(ROOT), 2, said.append)
    assert figures == {}
    assert len(failed) == len(said) == 1
    assert "circle" in failed[0]
    with pytest.raises(CellFailed, match="the floor of ring"):
        anatomy.floor(ring, Place(ROOT))


@pytest.mark.parametrize("words", [["--quick"], ["--idle", "5"], ["--layouts", "1h1w"], ["--compare", "HEAD", "."]])
def test_what_does_not_go_with_it_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--anatomy", *words]) == command.USAGE
    assert "--anatomy goes with" in capsys.readouterr().err


def test_the_usual_cells_are_those_of_the_page() -> None:
    def named(*words: str) -> list[str]:
        return [str(each) for each in command.cells_of(command.parser().parse_args(["--anatomy", *words]))]

    assert len(named()) == len(set(named())) == 9
    assert {"fan-10000/embedded/noop/local", "fan-1000/embedded/command/local", "chain-1000/azurite/noop/local"} < {
        *named()
    }
    assert named("--shapes", "chain-5", "--stores", "embedded") == ["chain-5/embedded/noop/local"]
