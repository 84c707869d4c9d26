"""A stored graph in the formats of other programs: what is written is read again, by us or by the format's rules."""

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from taskgraph.documents import yaml_text
from taskgraph.documents.canonical import document_object
from taskgraph.documents.importers import import_graph
from taskgraph.documents.plan import edges_of
from taskgraph.documents.problems import Report
from taskgraph.documents.read import document_from_object
from taskgraph.interfaces.cli import app as commands
from taskgraph.interfaces.exports import FORMATS
from taskgraph.interfaces.exports.openlineage import events_of
from taskgraph.interfaces.exports.wfformat import wfformat_of
from taskgraph.interfaces.exports.yaml_document import yaml_of
from taskgraph.model.ids import task_id_of
from taskgraph.model.messages import Cancel
from tests.http.typed import both_doors
from tests.scenarios.stage import Stage
from tests.scenarios.test_answers import GRAPH
from tests.scenarios.test_document import REST
from tests.scenarios.test_timeline import run

STEPS: Final[dict[str, Any]] = {
    "metadata": {"name": "steps", "description": "four of them"},
    "groups": {"middle": {"tasks": ["b: 1", "c/2"]}},
    "tasks": {
        "a": {"task": {"payload": {"command": ["echo", "one", "two words"]}}},
        "b: 1": {"requires": ["a"], "reruns": 1, "task": {"payload": {"command": ["test", "-n", ""]}}},
        "c/2": {"requires": ["a"], "task": {"executor": "noop", "payload": {"commandLine": "cc -o x"}}},
        "d": {"requires": ["middle"], "task": {"executor": "noop"}},
        "never": {"requires": ["d"], "task": {"executor": "noop"}},
    },
}


async def played(stage: Stage) -> None:
    await stage.submit(document_from_object(STEPS))
    await run(stage, "a", 2.0, wait=1.0)
    await run(stage, "b: 1", 0.5, fails=True)
    await run(stage, "b: 1", 1.25)
    await run(stage, "c/2", 3.0)
    await run(stage, "d", 4.0)
    await stage.claim("never")


async def test_wfformat_has_tasks_edges_and_times(memory: Stage) -> None:
    await played(memory)
    document = document_from_object(STEPS)
    found = await memory.queries.timeline(memory.graph_id)
    made = json.loads(json.dumps(wfformat_of(document, found)))
    assert (made["name"], made["schemaVersion"]) == ("steps", "1.5")
    tasks = {each["name"]: each for each in made["workflow"]["specification"]["tasks"]}
    for name, task in tasks.items():
        assert task["id"] == task_id_of(memory.graph_id, name)
        assert re.fullmatch("[0-9a-zA-Z_.-]+", task["id"]), "what the format lets an id be"
        assert all(
            task["id"] in tasks[other["name"]]["parents"] for other in tasks.values() if other["id"] in task["children"]
        )
    times = {each["id"]: each for each in made["workflow"]["execution"]["tasks"]}
    seconds = {name: times[task["id"]]["runtimeInSeconds"] for name, task in tasks.items() if task["id"] in times}
    assert seconds == {"a": 2.0, "b: 1": 1.25, "c/2": 3.0, "d": 4.0}, "the latest run of each that has ended"
    said = {name: times[task["id"]].get("command") for name, task in tasks.items() if task["id"] in times}
    assert said["a"] == {"program": "echo", "arguments": ["one", "two words"]}
    assert said["b: 1"] == {"program": "test -n ''"}, "no argument is empty in that format"
    assert said["c/2"] == {"program": "cc -o x"}
    assert made["workflow"]["execution"]["machines"] == [{"nodeName": "w"}]
    again = import_graph(json.dumps(made).encode(), "wfformat").document
    assert [*map(set, edges_of(again).values())] == [*map(set, edges_of(document).values())]
    assert [again.tasks[name].task.get("payload", {}).get("seconds") for name in ("b: 1", "never")] == [1.25, None]


async def test_wfformat_of_what_has_not_run_has_no_execution(memory: Stage) -> None:
    await memory.submit(document_from_object(STEPS))
    made = wfformat_of(document_from_object(STEPS), await memory.queries.timeline(memory.graph_id))
    assert "execution" not in made["workflow"]


async def test_lineage_has_a_start_and_one_end_of_each_run(memory: Stage) -> None:
    await played(memory)
    found = await memory.queries.timeline(memory.graph_id)
    graph = (await memory.graph_row()).columns
    events = list(events_of(graph, found, ()))
    assert events == list(events_of(graph, found, ())), "the same graph gives the same events"
    assert [each["eventTime"] for each in events] == sorted(each["eventTime"] for each in events)
    by_run: dict[str, list[tuple[str, str]]] = {}
    for each in events:
        by_run.setdefault(each["run"]["runId"], []).append((each["job"]["name"], each["eventType"]))
    whole, *runs = by_run.values()
    assert whole == [("steps", "START")], "it has not ended"
    assert sorted(map(tuple, runs)) == [
        (("steps.a", "START"), ("steps.a", "COMPLETE")),
        (("steps.b: 1", "START"), ("steps.b: 1", "COMPLETE")),
        (("steps.b: 1", "START"), ("steps.b: 1", "FAIL")),
        (("steps.c/2", "START"), ("steps.c/2", "COMPLETE")),
        (("steps.d", "START"), ("steps.d", "COMPLETE")),
        (("steps.never", "START"),),
    ]
    parents = {each["run"]["facets"]["parent"]["run"]["runId"] for each in events if "facets" in each["run"]}
    assert parents == {events[0]["run"]["runId"]}


@pytest.mark.parametrize(("state", "end"), [("cancelled", "ABORT"), ("finished", "COMPLETE")])
async def test_lineage_says_how_a_graph_ended(memory: Stage, state: str, end: str) -> None:
    await memory.submit(document_from_object({"tasks": {"a": {"task": {}}}}))
    await run(memory, "a", 1.0) if state == "finished" else await memory.deliver(Cancel(memory.graph_id))
    found = await memory.queries.timeline(memory.graph_id)
    assert found.state == state
    last = list(events_of((await memory.graph_row()).columns, found, ()))[-1]
    assert (last["eventType"], last["job"]["name"]) == (end, memory.graph_id), "a graph without a name has its id"


_LIKE_OTHERS: Final = (
    *("yes", "No", "on", "~", "null", "1", "1e3", "0x1f", "0o7", "1:30", "2026-01-01", ".inf", "_1", "=", "<<"),
    *("- a", "a: b", "a #b", "#", "?", "!x", "%", "", " ", "\n", "a\n\n b\n"),
)
"""What one of the versions takes for something else than this text."""

_TEXTS: Final = st.text(st.characters(exclude_categories=("Cs",))) | st.sampled_from(_LIKE_OTHERS)
_VALUES: Final = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | _TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXTS, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(_TEXTS, _VALUES, max_size=3))
def test_yaml_is_read_alike_by_both_versions(value: dict[str, Any]) -> None:
    text = yaml_of(value)
    assert yaml.safe_load(text) == value
    assert yaml_text.parse(text, Report("document"))[0] == value


@both_doors
@pytest.mark.parametrize(
    ("document", "params"), [(GRAPH, []), (REST, ["--param", "size=3"])], ids=["everything", "rest"]
)
def test_what_is_exported_is_submitted_again(tmp_path: Path, document: dict[str, Any], params: list[str]) -> None:
    store = ("--store", f"sqlite:///{tmp_path}/store.db")
    (tmp_path / "g.json").write_text(json.dumps(document))
    done = CliRunner().invoke(commands, ["submit", str(tmp_path / "g.json"), "--id", "g", *params, *store])
    assert done.exit_code == 0, done.stderr
    objects = []
    for to in ("json", "yaml"):
        path = tmp_path / f"again.{to}"
        done = CliRunner().invoke(commands, ["export", "g", "--to", to, "-o", str(path), *store])
        assert (done.exit_code, done.stdout) == (0, ""), done.stderr
        done = CliRunner().invoke(commands, ["submit", str(path), "--id", f"again-{to}", *store])
        assert done.exit_code == 0, done.stderr
        text = CliRunner().invoke(commands, ["document", f"again-{to}", *store]).stdout
        objects.append(document_object(document_from_object(json.loads(text))))
    text = CliRunner().invoke(commands, ["document", "g", *store]).stdout
    assert objects == [document_object(document_from_object(json.loads(text)))] * 2


@both_doors
def test_each_format_is_written(tmp_path: Path) -> None:
    store = ("--store", f"sqlite:///{tmp_path}/store.db")
    (tmp_path / "g.json").write_text(json.dumps(STEPS))
    assert CliRunner().invoke(commands, ["submit", str(tmp_path / "g.json"), "--id", "g", *store]).exit_code == 0
    for to in FORMATS:
        done = CliRunner().invoke(commands, ["export", "g", "--to", to, *store])
        assert done.exit_code == 0, done.stderr
        assert done.stdout.endswith("\n")
    assert CliRunner().invoke(commands, ["export", "g", "--to", "svg", *store]).exit_code == 2
    assert CliRunner().invoke(commands, ["export", "none", "--to", "dot", *store]).exit_code == 3
    assert CliRunner().invoke(commands, ["export", "g", "--to", "dot", "-o", str(tmp_path), *store]).exit_code == 2
