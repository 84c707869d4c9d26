"""The harness of `scripts/bench`: shapes, counts at the ports, figures, tables, and one small cell for real."""

import asyncio
import gzip
import json
import secrets
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from taskgraph.documents.read import read_document
from taskgraph.engine.submission import submit
from taskgraph.interfaces.app import open_app
from taskgraph.interfaces.one_graph import run_graph
from taskgraph.interfaces.settings import read_settings
from taskgraph.model.clock import SystemClock
from taskgraph.model.errors import Conflict
from taskgraph.model.flag import Flag
from taskgraph.storage.azure.account import AzureStore
from taskgraph.storage.azure.connections import Connections
from taskgraph.storage.sqlite.store import EmbeddedStore
from taskgraph.storage.tables import Delete, Insert, Merge, Range
from taskgraph.worker.executors import built_in
from tests.bench import __main__ as command
from tests.bench import counting, report
from tests.bench.cells import Cell, CellFailed, Layout, Place, idle, layout, measure
from tests.bench.figures import figure, figures_of, idle_figures_of, median_of, ratios
from tests.bench.node import quantile, told_by_rows
from tests.bench.shapes import EXECUTORS, LARGE, STANDARD, Shape, UnknownShape, document_text, edges_of, shape

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("name", "tasks", "edges"),
    [
        ("chain-1", 1, 0),
        ("chain-200", 200, 199),
        ("fan-1000", 1002, 2000),
        ("layers-10x100", 1000, 2700),
        ("layers-2x2", 4, 4),  # no more requirements than the layer before has tasks
        ("tree-1023", 1023, 1022),
        ("tree-4", 4, 3),
        ("independent-7", 7, 0),
    ],
)
def test_a_shape_has_its_tasks_and_edges_and_is_a_valid_graph(name: str, tasks: int, edges: int) -> None:
    graph = shape(name).make()
    assert (len(graph), edges_of(graph)) == (tasks, edges)
    for executor in EXECUTORS:
        document = read_document(document_text(graph, executor))
        assert (len(document.tasks), document.edges) == (tasks, edges)
    assert shape(name).make() == graph, "the same name is the same graph"


def test_every_standard_shape_is_known() -> None:
    assert [shape(name).name for name in (*STANDARD, *LARGE)] == [*STANDARD, *LARGE]


@pytest.mark.parametrize("packed", [False, True])
def test_a_file_is_a_shape(tmp_path: Path, packed: bool) -> None:
    text = json.dumps({"tasks": {"a b": {"requires": []}, "c": {"requires": ["a b"], "runtimeSeconds": 2}}})
    path = tmp_path / ("real.json.gz" if packed else "real.json")
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    found = shape(str(path))
    assert (found.name, found.make()) == ("real", {"a b": [], "c": ["a b"]})


@pytest.mark.parametrize("name", ["chain", "chain-0", "star-5", "layers-5", "layers-0x5", "no/such.json", ""])
def test_an_unknown_shape_is_refused_in_words(name: str) -> None:
    with pytest.raises(UnknownShape, match="no shape and no file"):
        shape(name)


def test_a_file_without_tasks_is_refused_in_words(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text('{"nodes": []}')
    with pytest.raises(UnknownShape, match="no JSON with tasks"):
        shape(str(path))


def test_layouts() -> None:
    assert layout("local") == Layout()
    assert layout("2h4w") == Layout(2, 4)
    for text in ("local", "1h1w", "12h3w"):
        assert str(layout(text)) == text
    for text in ("", "0h1w", "1h", "h1w1", "1h0w"):
        with pytest.raises(ValueError, match="is no layout"):
            layout(text)


async def test_calls_of_the_ports_are_counted_and_answered_as_they_were(tmp_path: Path) -> None:
    counts = counting.Counts(weigh=True)
    store = EmbeddedStore(tmp_path / "store.db", SystemClock())
    tables = counting.CountedTables(store.tables("bench"), counts)
    queues = counting.CountedQueues(store.queues(), counts)
    logs = counting.CountedLogs(store.logs(), counts)
    try:
        first, second = await tables.commit("g", [Insert("task:a", {"text": "ä", "count": 1}), Insert("event:1", {})])
        with pytest.raises(Conflict):
            await tables.commit("g", [Insert("task:a", {})])
        rows = await tables.get("g", ["task:a", "task:b", "event:1"])
        assert [row and row.etag for row in rows] == [first, None, second]
        assert len((await tables.query("g", Range(), limit=1)).rows) == 1
        await tables.commit("g", [Merge("task:a", first, {"text": "b"}), Delete("event:1", second)])
        await queues.send("bench-queue", ["one", "two"])
        assert await queues.receive("bench-other", count=2, lease_seconds=9) == []
        taken = await queues.receive("bench-queue", count=2, lease_seconds=9)
        assert sorted(each.body for each in taken) == ["one", "two"]
        await queues.delete(await queues.renew(taken[0], lease_seconds=9))
        assert await queues.count("bench-queue") == 1
        await logs.append("g", "t", 0, b"words")
        assert await logs.read("g", "t", 0) == b"words"
        assert logs.url("g", "t", 0)
    finally:
        await store.close()
    taken_counts = counts.take()
    places = {name: number for name, number in taken_counts["sums"].items() if name.startswith("place:")}
    assert places["place:elsewhere commit"] == 3, "no room of taskgraph has asked"
    assert sum(places.values()) == sum(taken_counts["operations"].values())
    taken_counts["sums"] = {name: number for name, number in taken_counts["sums"].items() if name not in places}
    assert taken_counts == {
        "operations": {
            "commit": 3,
            "get": 3,
            "query": 1,
            "send": 2,
            "empty": 1,
            "receive": 1,
            "renew": 1,
            "delete": 1,
            "count": 1,
            "log": 1,
            "log-read": 1,
        },
        "calls": {
            "commit": 3,
            "get": 1,
            "query": 1,
            "send": 1,
            "empty": 1,
            "receive": 1,
            "renew": 1,
            "delete": 1,
            "count": 1,
            "log": 1,
            "log-read": 1,
        },
        "sums": {
            "conflicts": 1,
            "rowsWritten": 4,
            "rowsRead": 4,
            "messagesReceived": 2,
            "messageBytes": 6,
            # task:a (6) + text (4) + ä (2) + count (5) + a number (8); event:1 (7); task:a (6) + text (4) + b (1)
            "bytesWritten": 25 + 7 + 11,
            "got:task": 2,
            "got:event": 1,
            "written:task": 2,
            "written:event": 2,
        },
    }
    assert counts.take() == {"operations": {}, "calls": {}, "sums": {}}


@pytest.mark.azurite
async def test_what_is_counted_is_what_goes_over_the_wire(azurite: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One request for each operation, but for making a queue: the first send meets a 404, and a PUT follows."""
    for name in ("tables", "queues", "logs"):
        monkeypatch.setattr(AzureStore, name, getattr(AzureStore, name))  # so that the wrappers go when the test ends
    sent: list[tuple[str, int]] = []
    request = aiohttp.ClientSession._request

    async def watched(
        session: aiohttp.ClientSession, method: str, *args: Any, **options: Any
    ) -> aiohttp.ClientResponse:
        answer = await request(session, method, *args, **options)
        sent.append((method, answer.status))
        return answer

    exchange = Connections.exchange

    async def exchanged(connections: Connections, method: str, *args: Any) -> Any:
        answered = await exchange(connections, method, *args)
        sent.append((method, answered[0]))
        return answered

    monkeypatch.setattr(aiohttp.ClientSession, "_request", watched)
    monkeypatch.setattr(Connections, "exchange", exchanged)
    counts = counting.Counts()
    counting.install(counts, azure=True)
    environment = {"TASKGRAPH_STORE": azurite, "TASKGRAPH_PREFIX": f"b{secrets.token_hex(6)}"}
    async with open_app(read_settings(None, environment, cwd=ROOT)) as app:
        document = read_document(document_text(shape("fan-5").make(), "noop"))
        await submit(app.handlers, "fan", document)
        counts.take()
        sent.clear()
        worker = app.worker(built_in(app.clock), slots=2)
        assert str(await run_graph(app, "fan", Flag(), workers=[worker])) == "finished"
        counted = sum(counts.take()["operations"].values())
    made = sum(2 for method, status in sent if method == "PUT" and status == 201)
    assert made
    assert len(sent) - made == counted


def test_a_latency_is_the_time_from_the_last_requirement_to_the_start() -> None:
    zero = datetime(2026, 1, 1, tzinfo=UTC)

    def row(started: float, resolved: float, **more: Any) -> dict[str, Any]:
        times = {"started": zero + timedelta(seconds=started), "resolved": zero + timedelta(seconds=resolved)}
        return {"state": "completed", "run": 0, **times, **more}

    requirements = {"a": [], "b": ["a"], "c": ["a", "b"]}
    rows = {"a": row(0, 1), "b": row(1.5, 2), "c": row(4, 5, run=2)}
    told = told_by_rows(requirements, rows)
    assert told == {"wrong": [], "wrongs": 0, "repeatedRuns": 1, "latencySeconds": {"p50": 0.5, "p99": 2.0}}
    assert told_by_rows(requirements, {**rows, "b": row(0.5, 2)})["wrong"] == [
        "b began before what it requires had completed"
    ]
    assert told_by_rows(requirements, {"a": row(0, 1), "b": {"state": "running"}})["wrongs"] == 2


def test_a_quantile_is_one_of_the_values() -> None:
    values = [float(each) for each in range(1, 101)]
    assert [quantile(values, share) for share in (0.0, 0.5, 0.99, 1.0)] == [1, 50, 99, 100]
    assert quantile([7.0], 0.5) == 7


def facts(seconds: float) -> dict[str, Any]:
    """What two processes might have said of ten tasks."""

    def phase(operations: dict[str, int], sums: dict[str, int], cpu: float) -> dict[str, Any]:
        used = {"own": cpu, "children": 0.0}
        return {"seconds": 1.0, "cpu": used, "operations": operations, "calls": operations, "sums": sums}

    return {
        "tasks": 10,
        "edges": 20,
        "load": 0.5,
        "seconds": seconds,
        "fileBytes": 5_000,
        "submission": {
            "read": phase({}, {}, 0.1),
            "write": phase({"commit": 2}, {"rowsWritten": 12, "bytesWritten": 100}, 0.1),
        },
        "processes": [
            {"role": "submitter", "peak": 10.0},
            {
                "role": "handler",
                "peak": 20.0,
                "phase": phase({"commit": 8, "get": 20, "empty": 4}, {"conflicts": 2, "rowsWritten": 30}, 0.2),
            },
            {"role": "worker", "peak": 30.0, "phase": phase({"commit": 2}, {"bytesWritten": 60, "got:task": 20}, 0.3)},
        ],
        "rows": {"repeatedRuns": 0, "latencySeconds": {"p50": 0.004, "p99": 0.02}},
    }


def test_figures_are_per_task_and_per_edge() -> None:
    found = figures_of(facts(2.0), weighed=True)
    assert found["tasksPerSecond"] == 5
    assert found["endToEndTasksPerSecond"] == 2.5
    assert found["operationsPerTask"] == 3, "without the empty polls"
    assert found["operationsPerTaskByKind"] == {"commit": 1, "get": 2}
    assert (found["emptyPolls"], found["emptyPollsPerTask"]) == (4, 0.4)
    assert found["conflictShare"] == 0.2
    assert (found["rowsWrittenPerTask"], found["rowsSubmittedPerTask"]) == (3, 1.2)
    assert (found["bytesWrittenPerTask"], found["bytesWrittenPerEdge"]) == (16, 8)
    assert found["getsPerTaskByRow"] == {"task": 2}
    assert found["latencyMilliseconds"] == {"p50": 4, "p99": 20}
    assert found["cpuMillisecondsPerTask"] == {"handler": 20, "worker": 30}
    assert found["peakMebibytes"] == 60
    assert found["fileBytesPerTask"] == 500
    assert figures_of(facts(2.0), weighed=False)["bytesWrittenPerTask"] is None


def test_idle_figures_are_per_hour() -> None:
    used = {"cpu": {"own": 0.1, "children": 0.0}, "calls": {}, "sums": {}}
    phases = [
        {"seconds": 36.0, "operations": {"empty": 10}, **used},
        {"seconds": 36.0, "operations": {"empty": 5, "query": 1}, **used},
    ]
    waited = {"load": 0.1, "rows": {"firstStartSeconds": 0.05}, "processes": [{"phase": phase} for phase in phases]}
    found = idle_figures_of(waited)
    assert found["operationsPerHour"] == pytest.approx(1600)
    assert found["operationsPerHourByKind"] == {"empty": pytest.approx(1500), "query": pytest.approx(100)}
    assert found["cpuSecondsPerHour"] == pytest.approx(20)
    assert found["firstStartMilliseconds"] == 50


def test_medians_leave_out_what_a_repetition_does_not_have() -> None:
    repetitions = [figures_of(facts(seconds), weighed=seconds == 1.0) for seconds in (1.0, 2.0, 5.0)]
    median = median_of(repetitions)
    assert median["tasksPerSecond"] == 5
    assert median["bytesWrittenPerTask"] == 16
    repetitions[2]["operationsPerTaskByKind"] = {"commit": 1, "renew": 3}
    assert median_of(repetitions)["operationsPerTaskByKind"] == {"commit": 1, "get": 2, "renew": 0}
    text = report.cells_text({"x": repetitions}, {"x": median})
    assert "5 (2–10)" in text
    assert "handler 20.00; worker 30.00" in text
    widths = {len(line) for line in text.split("\n\n")[0].splitlines()}
    assert len(widths) == 1, "a table is aligned"


def test_ratios_are_the_second_by_the_first() -> None:
    first, second = figures_of(facts(2.0), weighed=True), figures_of(facts(1.0), weighed=False)
    compared = ratios(first, second)
    assert compared["tasksPerSecond"] == (5, 10, 2)
    assert compared["bytesWrittenPerTask"] == (16, None, None)
    assert compared["cpuMillisecondsPerTask"] == (50, 50, 1)
    (line,) = [each for each in report.ratios_text("a", "b", {"x": compared}).splitlines() if "| tasksPerSec" in each]
    assert [cell.strip() for cell in line.split("|")[2:-1]] == ["5.000", "10.000", "2.00"]
    assert figure(first, "latencyMilliseconds.p99") == 20
    assert figure(first, "no.such") is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--shapes", "star-5"], "no shape and no file"),
        (["--stores", "paper"], "no store is named 'paper': there are embedded, azurite"),
        (["--executors", "magic"], "no executor is named 'magic': there are noop, command"),
        (["--layouts", "5"], "is no layout"),
        (["--repeat", "0"], "at least 1"),
        (["--shapes", "chain-5,chain-5"], "named twice"),
        (["--shapes", ","], "nothing to measure"),
        (["--idle", "0"], "more than 0"),
        (["--idle", "5", "--shapes", "chain-5"], "has no shape"),
        (["--idle", "5", "--layouts", "local"], "processes that wait"),
        (["--stores", "embedded", "--keep", "../x"], "without slashes"),
        (["--stores", "embedded", "--compare", "no-such-commit", "."], "no commit is named 'no-such-commit'"),
    ],
)
def test_wrong_usage_is_said_before_anything_starts(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(words) == command.USAGE
    assert said in capsys.readouterr().err


def test_cells_are_every_combination() -> None:
    words = ["--shapes", "chain-5,fan-3", "--executors", "noop,command", "--layouts", "local,1h2w"]
    cells = command.cells_of(command.parser().parse_args(words))
    assert len(cells) == 2 * 2 * 2 * 2
    assert str(cells[0]) == "chain-5/embedded/noop/local"
    everything = command.cells_of(command.parser().parse_args(["--shapes", "all", "--stores", "embedded"]))
    assert [cell.shape.name for cell in everything] == list(STANDARD)


async def test_a_cell_is_measured_in_processes_that_end() -> None:
    cell = Cell(shape("fan-3"), "embedded", "noop", layout("1h1w"), 2)
    measured = await measure(cell, Place(ROOT, seconds_max=60), weigh=True)
    assert [process["role"] for process in measured["processes"]] == ["submitter", "handler", "worker"]
    found = figures_of(measured, weighed=True)
    assert (found["tasks"], found["edges"]) == (5, 6)
    by_row = found["rowsWrittenPerTaskByRow"]
    assert by_row["task"] >= 2, "a claim and a completion each"
    assert {"commit", "receive", "send", "delete"} <= set(found["operationsPerTaskByKind"])
    places = found["operationsPerTaskByPlace"]
    assert sum(places.values()) == pytest.approx(found["operationsPerTask"] + found["emptyPollsPerTask"])
    assert {name.partition(":")[0] for name in places} >= {"engine.consumer", "worker"}
    assert found["bytesSubmittedPerTask"] > 0
    assert found["fileBytesPerTask"] > 0
    assert set(found["latencyMilliseconds"]) == {"p50", "p99"}


async def test_waiting_is_counted_until_work_comes() -> None:
    (cell,) = command.cells_of(command.parser().parse_args(["--idle", "0.05", "--stores", "embedded"]))
    assert str(cell) == "idle/embedded/noop/1h1w"
    waited = await idle(cell, Place(ROOT, seconds_max=60), settle_seconds=0.02, seconds=0.05)
    found = idle_figures_of(waited)
    assert found["operationsPerHour"] == pytest.approx(sum(found["operationsPerHourByKind"].values()))
    assert found["firstStartMilliseconds"] > 0
    assert "idle/embedded/noop/1h1w" in report.idle_text({str(cell): found})


async def test_a_cell_that_cannot_be_measured_says_why() -> None:
    cell = Cell(Shape("ring", lambda: {"a": ["b"], "b": ["a"]}), "embedded", "noop", Layout(), 1)
    with pytest.raises(CellFailed, match=r"process of control: InvalidGraph: .*problem .*circle"):
        await measure(cell, Place(ROOT), weigh=False)


async def test_a_process_that_dies_is_no_measurement(tmp_path: Path) -> None:
    folder = tmp_path / "tests" / "bench"
    folder.mkdir(parents=True)
    for package in (folder, folder.parent):
        (package / "__init__.py").touch()
    (folder / "node.py").write_text("raise SystemExit('no more memory')")
    with pytest.raises(CellFailed, match=r"the process of control ended \(status 1\): no more memory"):
        await measure(Cell(shape("chain-1"), "embedded", "noop", Layout(), 1), Place(tmp_path), weigh=False)


async def test_a_worker_that_dies_ends_the_cell(tmp_path: Path) -> None:
    """At once, and not when the time is over: the graph would wait for its lease."""
    (tmp_path / "taskgraph").symlink_to(ROOT / "taskgraph")
    folder = tmp_path / "tests" / "bench"
    folder.mkdir(parents=True)
    for package in (folder, folder.parent):
        (package / "__init__.py").touch()
    for name in ("counting.py", "sampling.py", "steps.py"):
        (folder / name).symlink_to(ROOT / "tests" / "bench" / name)
    node = (ROOT / "tests" / "bench" / "node.py").read_text("utf-8")
    broken = node.replace('role == "handler"', 'role == "handler" or sys.exit("no more memory")')
    assert broken != node
    (folder / "node.py").write_text(broken)
    with pytest.raises(CellFailed, match=r"the process of worker ended \(status 1\): .*no more memory"):
        await measure(Cell(shape("chain-1"), "embedded", "noop", layout("1h1w"), 1), Place(tmp_path), weigh=False)


async def test_a_cell_that_does_not_end_is_given_up() -> None:
    cell = Cell(shape("chain-1"), "embedded", "noop", Layout(), 0)  # a worker without a slot takes nothing
    with pytest.raises(CellFailed, match=r"chain-1/embedded/noop/local did not end within 0.2 s"):
        await measure(cell, Place(ROOT, seconds_max=0.2), weigh=False)


async def test_what_is_measured_is_the_tree_that_was_named(tmp_path: Path) -> None:
    with pytest.raises(CellFailed, match=r"taskgraph comes from .*, and not from"):
        await measure(Cell(shape("chain-1"), "embedded", "noop", Layout(), 1), Place(tmp_path), weigh=False)


async def test_a_process_ends_when_nobody_is_left_to_ask(tmp_path: Path) -> None:
    settings = {"graph": "g", "document": "none", "slots": 1, "azure": False, "weigh": False}
    environment = {"TASKGRAPH_STORE": f"sqlite:///{tmp_path}/t.db", "TASKGRAPH_BENCH": json.dumps(settings)}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.bench.node",
        cwd=ROOT,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert json.loads(await process.stdout.readline())["ready"]
    process.stdin.close()
    assert await asyncio.wait_for(process.wait(), 30) == 0
