"""The comparison with other engines: processes that it starts and ends, what it does about failures, the page."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.comparison_page import Cell, behind, rate_text, ratios_text, text_of
from tests.bench.engines import DISK, ENGINES, NOTHING, PROCESS, SURVIVES, chosen
from tests.bench.peer import VARIANTS, document_of
from tests.bench.shapes import layers

ROOT = Path(__file__).resolve().parents[2]

# It speaks the lines that tests.bench.peer tells of, leaves a child behind, and gives up on a fan of more than five.
STUBBORN = """\
import json, pathlib, subprocess, sys
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
with open(pathlib.Path(__file__).with_name("children"), "a") as children:
    print(child.pid, file=children)
print(json.dumps({"ready": True}), flush=True)
for line in sys.stdin:
    graph = json.loads(line)
    print(json.dumps({"go": True}), flush=True)
    answer = {"error": "gave up"} if len(graph) > 7 else {"seconds": 0.5, "done": len(graph)}
    print(json.dumps(answer), flush=True)
"""


def compare(*words: str) -> "subprocess.CompletedProcess[str]":
    """In a process of its own: it takes all of its children for engines."""
    command = [sys.executable, "-m", "tests.bench.comparison", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture
def homes(tmp_path: Path) -> Path:
    python = tmp_path / "homes" / "luigi" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    (tmp_path / "peer_luigi.py").write_text(STUBBORN, "utf-8")
    return tmp_path / "homes"


@pytest.mark.campaign
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it reads /proc")
def test_engines_take_turns_and_what_fails_is_told_and_nothing_is_left_running(tmp_path: Path, homes: Path) -> None:
    words = ["--engines", "luigi/w1,taskgraph/noop", "--shapes", "chain-3,fan-6", "--rounds", "2"]
    ended = compare(str(tmp_path), "--homes", str(homes), *words, "--out", str(tmp_path / "page"))
    assert ended.returncode == 0, ended.stderr
    results = json.loads((tmp_path / "page.json").read_text("utf-8"))
    cells = {(cell["engine"], cell["shape"]): cell for cell in results["cells"]}
    assert [len(cells["taskgraph/noop", name]["seconds"]) for name in ("chain-3", "fan-6")] == [2, 2]
    assert cells["luigi/w1", "chain-3"]["seconds"] == [0.5, 0.5]
    assert (cells["luigi/w1", "fan-6"]["seconds"], cells["luigi/w1", "fan-6"]["failed"]) == ([], "gave up")
    page = (tmp_path / "page.md").read_text("utf-8")
    assert "- luigi/w1, fan-6: gave up" in page
    assert SURVIVES[PROCESS] in page
    children = [int(pid) for pid in (tmp_path / "children").read_text().split()]
    assert len(children) == 2, "one for each round"
    assert not any(Path(f"/proc/{pid}").exists() for pid in children)


@pytest.mark.campaign
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it reads /proc")
def test_ours_run_every_task_once_and_in_order(tmp_path: Path) -> None:
    words = ["--engines", "taskgraph/call,taskgraph/true,taskgraph/true-anew", "--check"]
    ended = compare(str(tmp_path), "--homes", str(tmp_path), *words)
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.count("good in") == 3
    assert "by its own word" not in ended.stderr


def test_an_unknown_engine_is_refused_in_words() -> None:
    ended = compare("nowhere", "--homes", "nowhere", "--engines", "airflow")
    assert ended.returncode == 2
    assert "no engine is named 'airflow'" in ended.stderr


def test_engines_are_chosen_by_name_or_by_family() -> None:
    ours = {engine.name.partition("/")[2] for engine in ENGINES if engine.ours}
    assert ours == set(VARIANTS)
    assert [engine.name for engine in chosen(["celery", "ninja"])] == ["ninja", "celery/counters", "celery/canvas"]


def test_the_graph_of_ours_is_the_one_that_was_given() -> None:
    graph = layers(2, 3)
    for kind in ("noop", "call", "command"):
        tasks = json.loads(document_of(graph, kind))["tasks"]
        assert {label: task["requires"] for label, task in tasks.items()} == graph


def cell(engine: str, seconds: list[float], failed: str = "") -> Cell:
    return Cell(engine, "fan-10", 12, seconds, seconds, [0.0] * len(seconds), failed)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (cell("x", [1.0, 2.0, 4.0]), "6.0 (3.0–12)"),
        (cell("x", [0.001]), "12,000 (once)"),
        (cell("x", []), "–"),
        (cell("x", [1.0], "lost 3 tasks"), "failed"),
        (cell("x", [], "not tried: too slow"), "not tried"),
        (None, ""),
    ],
)
def test_a_rate_says_how_often_it_was_measured(given: Cell | None, told: str) -> None:
    assert rate_text(given) == told


def test_who_is_faster_is_told_of_those_that_survive_as_much() -> None:
    engines = chosen(["taskgraph/noop", "taskgraph/noop-full", "dbos/steps-sqlite", "luigi/w1", "dask/graph"])
    given = [
        cell("taskgraph/noop", [2.0]),
        cell("taskgraph/noop-full", [3.0]),
        cell("dbos/steps-sqlite", [1.0]),
        cell("luigi/w1", [0.5]),
        cell("dask/graph", [0.1]),
    ]
    cells = {(each.engine, each.shape): each for each in given}
    shapes = ["fan-10"]
    assert {engine.durable[0] for engine in engines} == {DISK, PROCESS, NOTHING}
    assert behind(engines, shapes, cells, "taskgraph/noop", PROCESS) == [
        "dbos/steps-sqlite on fan-10 (2.0 times)",
        "luigi/w1 on fan-10 (4.0 times)",
    ]
    assert behind(engines, shapes, cells, "taskgraph/noop-full", DISK) == ["dbos/steps-sqlite on fan-10 (3.0 times)"]
    ratios = [line.split() for line in ratios_text(engines, shapes, cells, "taskgraph/noop").splitlines()]
    assert ["|", "dask/graph", "|", "0.05", "|"] in ratios
    assert not any("taskgraph/noop-full" in line for line in ratios), "one of ours is no other engine"
    machine = {"cores": 2, "cpu": "a processor", "memoryGibibytes": 8, "system": "Linux", "load": 0.5}
    about = {"began": "A", "ended": "B", "machine": machine, "versions": {}, "rounds": 1, "once": 1.0, "cap": 2.0}
    text = text_of({**about, "late": True, "minutes": 5.0}, engines, shapes, cells)
    assert "The time (5 minutes) was over" in text
    assert "Faster than `taskgraph/noop-full` somewhere, among those that survive as much: dbos/steps-sqlite" in text
