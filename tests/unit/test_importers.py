"""Importers: real graphs keep their shape, foreign commands are never executed, bad files are told where."""

import gzip
import json
import os
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskgraph.documents.importers import FORMATS, Format, import_graph
from taskgraph.documents.importers.shaping import Imported, unpacked
from taskgraph.documents.plan import plan
from taskgraph.documents.references import references
from taskgraph.model.errors import InvalidGraph
from taskgraph.model.ids import task_id_of

# Graphs of other projects are read where they lie, and are no part of this repository.
GRAPHS = Path(os.environ.get("TASKGRAPH_GRAPHS", Path(__file__).parents[3] / "shared" / "graphs"))
NEUTRAL = sorted(path.name for path in GRAPHS.glob("*.json*")) if GRAPHS.is_dir() else []
WFFORMAT = GRAPHS / "wfformat" / "expected.json"


def imported(obj: Any, format: Any, **options: Any) -> Imported:  # noqa: A002
    return import_graph(json.dumps(obj).encode(), format, **options)


def found(obj: Any, format: Any, **options: Any) -> list[tuple[str, str]]:  # noqa: A002
    with pytest.raises(InvalidGraph) as caught:
        imported(obj, format, **options)
    return [(problem.code, problem.pointer) for problem in caught.value.problems]


def shape(graph: Imported) -> dict[str, set[str]]:
    return {label: set(node.requires) for label, node in graph.document.tasks.items()}


# --- real graphs -----------------------------------------------------------------------------------------------


@pytest.mark.skipif(not NEUTRAL, reason="the folder of real graphs is not here")
def test_the_folder_holds_all_of_its_graphs():
    listed = re.findall(r"^\| ([\w.-]+\.json(?:\.gz)?) \| (?!\d\.\d)", (GRAPHS / "INDEX.md").read_text(), re.MULTILINE)
    assert sorted(listed) == NEUTRAL


@pytest.mark.parametrize("name", NEUTRAL)
def test_a_real_graph_keeps_its_shape(name: str):
    data = (GRAPHS / name).read_bytes()
    graph = import_graph(data, "neutral", source=name)
    original = json.loads(unpacked(data))
    made = plan(graph.document)
    stats = original["metadata"]["stats"]
    assert {
        "tasks": made.tasks,
        "edges": made.edges,
        "maxFanIn": made.fan_in_max,
        "maxFanOut": made.fan_out_max,
        "depth": made.depth,
        "width": made.width,
        "roots": len(made.roots),
        "leaves": len(made.leaves),
        "withRuntime": sum(row.seconds is not None for row in made.rows),
        "withCommand": sum("commandLine" in node.task["payload"] for node in graph.document.tasks.values()),
    }.items() <= stats.items()
    assert {label: node.requires for label, node in graph.document.tasks.items()} == {
        label: tuple(node["requires"]) for label, node in original["tasks"].items()
    }
    assert {node.task["executor"] for node in graph.document.tasks.values()} <= {"sleep", "noop"}


@pytest.mark.skipif(not WFFORMAT.is_file(), reason="the folder of real graphs is not here")
@pytest.mark.parametrize("name", json.loads(WFFORMAT.read_text()) if WFFORMAT.is_file() else [])
def test_a_real_workflow_is_read_as_expected(name: str):
    expected = json.loads(WFFORMAT.read_text())[name]
    graph = import_graph((WFFORMAT.parent / name).read_bytes(), "wfformat", source=name)
    made = plan(graph.document)
    assert made.total_seconds is not None
    assert {
        "tasks": made.tasks,
        "edges": made.edges,
        "maxFanIn": made.fan_in_max,
        "maxFanOut": made.fan_out_max,
        "depth": made.depth,
        "roots": len(made.roots),
        "leaves": len(made.leaves),
        "withRuntime": sum(row.seconds is not None for row in made.rows),
        "withCommand": sum("commandLine" in node.task["payload"] for node in graph.document.tasks.values()),
        "runtimeSum": round(made.total_seconds, 9),
    }.items() <= expected.items()


# --- neutral ---------------------------------------------------------------------------------------------------


def test_neutral_tasks_become_sleeps_and_noops():
    graph = imported(
        {
            "source": "somewhere",
            "license": "MIT",
            "metadata": {"name": "n", "stats": {}},
            "new": 1,
            "tasks": {
                "a": {"requires": [], "runtimeSeconds": 1.5, "command": "rm -rf /"},
                "b": {"requires": ["a"], "runtimeSeconds": None, "command": None, "colour": "red"},
            },
        },
        "neutral",
    )
    tasks = graph.document.tasks
    assert tasks["a"].task == {"executor": "sleep", "payload": {"seconds": 1.5, "commandLine": "rm -rf /"}}
    assert tasks["b"].task == {"executor": "noop", "payload": {}}
    assert tasks["b"].requires == ("a",)
    assert graph.document.metadata == {"name": "n", "source": "somewhere"}
    assert graph.document.tags == {"license": "MIT"}
    assert graph.notes == ("The key “new” of the document was left out.", "One unknown key of a task was left out.")


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        ([], [("wrong-type", ""), ("empty", "")]),
        ({"x": 1}, [("missing", ""), ("empty", "")]),
        ({"tasks": {}}, [("empty", "")]),
        ({"tasks": {"a": 1}}, [("wrong-type", "/tasks/a")]),
        ({"tasks": {"a": {"requires": "b"}}}, [("wrong-type", "/tasks/a/requires")]),
        ({"tasks": {"a": {"requires": [1]}}}, [("wrong-type", "/tasks/a/requires/0")]),
        ({"tasks": {"a": {"runtimeSeconds": -1}}}, [("out-of-range", "/tasks/a/runtimeSeconds")]),
        ({"tasks": {"a": {"runtimeSeconds": True}}}, [("out-of-range", "/tasks/a/runtimeSeconds")]),
        ({"tasks": {"a": {"command": ["x"]}}}, [("wrong-type", "/tasks/a/command")]),
        ({"tasks": {"a/b": {"requires": ["c"]}}}, [("unknown-label", "/tasks/a~1b/requires/0")]),
        ({"tasks": {"a": {"requires": ["b"]}, "b": {"requires": ["a"]}}}, [("cycle", "/tasks/a/requires/0")]),
        ({"tasks": {"a\n": {}}}, [("label", "/tasks/a\n")]),
    ],
)
def test_a_bad_neutral_file(obj: Any, expected: list[tuple[str, str]]):
    assert found(obj, "neutral") == expected


def test_bad_json_and_unknown_formats():
    for text, code in ((b"{", "syntax"), (b"\xff", "encoding"), (b'{"tasks": {}, "tasks": {}}', "duplicate-key")):
        with pytest.raises(InvalidGraph) as caught:
            import_graph(text, "neutral")
        assert caught.value.problems[0].code == code
    assert found({}, "dot") == [("format", "")]
    assert tuple(FORMATS) == get_args(Format)


# --- gzip ------------------------------------------------------------------------------------------------------

SMALL = json.dumps({"tasks": {"a": {}}}).encode()


def test_gzip_is_recognized():
    packed = gzip.compress(SMALL[:5]) + gzip.compress(SMALL[5:]) + b"\0\0"
    assert list(import_graph(packed, "neutral").document.tasks) == ["a"]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (gzip.compress(SMALL)[:-9], "too early"),
        (gzip.compress(SMALL)[:3], "too early"),
        (gzip.compress(SMALL)[:-8] + b"\xff" * 8, "damaged"),
        (gzip.compress(SMALL) + b"more", "not gzip"),
        (gzip.compress(b" " * 5_000_000), "1,000,000 bytes"),
        (gzip.compress(b" " * 600_000) * 2, "1,000,000 bytes"),
    ],
    ids=["cut", "header", "damaged", "trailing", "bomb", "bombs"],
)
def test_bad_gzip(data: bytes, words: str):
    with pytest.raises(InvalidGraph) as caught:
        unpacked(data, bytes_max=1_000_000)
    (problem,) = caught.value.problems
    assert problem.code == "gzip"
    assert words in problem.message


# --- WfFormat --------------------------------------------------------------------------------------------------


def wf_tasks() -> list[dict[str, Any]]:
    return [
        {"name": "split", "id": "ID1", "parents": [], "children": ["work_1", "work_2"]},
        {"name": "work_1", "id": "ID2", "parents": ["split"], "children": ["join"]},
        {"name": "work_2", "id": "ID3", "parents": ["split"], "children": []},
        {"name": "join", "id": "ID4", "parents": ["work_1", "ID3"], "children": []},
    ]


DIAMOND = {"split": set(), "work_1": {"split"}, "work_2": {"split"}, "join": {"work_1", "work_2"}}


def test_wfformat_1_4_has_everything_on_the_task():
    tasks = wf_tasks()
    tasks[0] |= {"runtimeInSeconds": 2, "command": {"program": "cut", "arguments": ["-f", "1"]}}
    tasks[1] |= {"runtimeInSeconds": 0.0}
    graph = imported({"name": "w", "schemaVersion": "1.4", "workflow": {"tasks": tasks}}, "wfformat")
    assert shape(graph) == DIAMOND
    nodes = graph.document.tasks
    assert nodes["split"].task == {"executor": "sleep", "payload": {"seconds": 2, "commandLine": "cut -f 1"}}
    assert nodes["work_1"].task == {"executor": "sleep", "payload": {"seconds": 0.0}}
    assert nodes["join"].task == {"executor": "noop", "payload": {}}
    assert graph.notes == (
        "One edge was stated by one of its tasks only, and was kept.",
        "2 tasks have no runtime and became noops.",
    )
    assert graph.document.metadata == {"name": "w"}
    assert graph.document.tags == {"schemaVersion": "1.4"}


def test_wfformat_1_5_joins_specification_and_execution():
    execution = [
        {"id": f"ID{number}", "runtimeInSeconds": number, "command": {"program": "p"}} for number in range(1, 5)
    ]
    workflow = {"specification": {"tasks": wf_tasks()}, "execution": {"tasks": execution}}
    graph = imported({"schemaVersion": "1.5", "workflow": workflow, "author": {"email": "a@b.example"}}, "wfformat")
    assert shape(graph) == DIAMOND
    assert [node.task["payload"]["seconds"] for node in graph.document.tasks.values()] == [1, 2, 3, 4]
    assert graph.document.metadata == {"owner": "a@b.example"}


def test_ids_are_the_labels_where_names_repeat():
    tasks = [{"name": "step", "id": "1", "children": ["2"]}, {"name": "step", "id": "2"}]
    assert shape(imported({"workflow": {"tasks": tasks}}, "wfformat")) == {"1": set(), "2": {"1"}}


def test_an_id_wins_over_the_name_of_another_task():
    tasks = [{"name": "b", "id": "a"}, {"name": "x", "id": "b"}, {"name": "x", "id": "c", "parents": ["b"]}]
    assert shape(imported({"workflow": {"tasks": tasks}}, "wfformat")) == {"a": set(), "b": set(), "c": {"b"}}


@pytest.mark.parametrize(
    ("workflow", "expected"),
    [
        ({}, [("missing", "/workflow"), ("empty", "")]),
        ([], [("wrong-type", "/workflow"), ("missing", "/workflow"), ("empty", "")]),
        ({"tasks": [1]}, [("wrong-type", "/workflow/tasks/0"), ("wrong-type", "/workflow/tasks/0/name")]),
        ({"tasks": [{"id": 1}]}, [("wrong-type", "/workflow/tasks/0/id")]),
        ({"tasks": [{"id": "a", "parents": ["b"]}]}, [("unknown-label", "/workflow/tasks/0/parents/0")]),
        ({"tasks": [{"id": "a"}, {"id": "a"}]}, [("duplicate-label", "/workflow/tasks/1")]),
        ({"tasks": [{"id": "a", "runtimeInSeconds": "1"}]}, [("out-of-range", "/workflow/tasks/0/runtimeInSeconds")]),
        ({"tasks": [{"id": "a", "command": {"arguments": [1]}}]},
         [("wrong-type", "/workflow/tasks/0/command/arguments/0")]),
        ({"tasks": [{"id": "x" * 300}]}, [("label", "/workflow/tasks/0")]),
        ({"tasks": [{"id": "a", "parents": ["b"]}, {"id": "b", "parents": ["a"]}]}, [("cycle", "/workflow/tasks/0")]),
        ({"tasks": [{"id": "a", "parents": ["a"]}]}, [("self-requirement", "/workflow/tasks/0")]),
        ({"specification": {"tasks": [{"id": "a"}]}, "execution": {"tasks": [{"id": "a", "runtimeInSeconds": -1}]}},
         [("out-of-range", "/workflow/execution/tasks/0/runtimeInSeconds")]),
    ],
)  # fmt: skip
def test_a_bad_wfformat_file(workflow: Any, expected: list[tuple[str, str]]):
    assert found({"workflow": workflow}, "wfformat") == expected


# --- taskgraph -------------------------------------------------------------------------------------------------

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def full() -> dict[str, Any]:
    """A full-task-graph.json in small."""
    image = {
        "kind": "docker-image",
        "label": "build-docker-image-base",
        "attributes": {"kind": "docker-image"},
        "dependencies": {},
        "optimization": {"index-search": ["x"]},
        "soft_dependencies": [],
        "task": {
            "created": {"relative-datestamp": "0 seconds"},
            "deadline": {"relative-datestamp": "1 day"},
            "expires": {"relative-datestamp": "4 weeks"},
            "metadata": {"name": "image", "owner": "o@example.com", "source": "s", "description": ""},
            "payload": {"maxRunTime": 7200, "artifacts": {"x": {"expires": {"relative-datestamp": "1 year"}}}},
            "scopes": [],
            "workerType": "images",
        },
    }
    build = {
        "kind": "build",
        "label": "build-linux/opt",
        "attributes": {"task_duplicates": 2},
        "dependencies": {"docker-image": "build-docker-image-base", "decision": "aaaaaaaaQaaaaaaaaaaaaA"},
        "soft_dependencies": ["lint"],
        "if_dependencies": ["lint"],
        "optimization": None,
        "task": {
            "payload": {
                "command": [["make"]],
                "image": {"taskId": {"task-reference": "<docker-image>"}, "type": "task-image"},
                "env": {
                    "SELF": {"task-reference": "<self>"},
                    "PLAIN": {"task-reference": "no <<>reference>"},
                    "LONG": {"task-reference": "id-<docker-image>"},
                    "DECISION": {"task-reference": "<decision>"},
                    "URL": {"artifact-reference": "<docker-image/public/x>"},
                },
                "cache": {"task-reference": {"cache-<docker-image>": "/builds"}},
            },
            "requires": "all-resolved",
            "scopes": [{"task-reference": "cache:<docker-image>"}],
        },
    }
    return {"build-docker-image-base": image, "build-linux/opt": build}


def test_a_full_graph_is_keyed_by_label():
    graph = imported(full(), "taskgraph")
    assert shape(graph) == {
        "build-docker-image-base": set(),
        "build-linux/opt": {"build-docker-image-base"},
        "build-linux/opt (copy 2)": {"build-docker-image-base"},
    }
    image, build = (graph.document.tasks[label].task for label in full())
    assert image["executor"] == build["executor"] == "noop"
    assert "deadline" not in image
    assert image["taskcluster"]["deadline"] == {"relative-datestamp": "1 day"}
    assert image["taskcluster"]["kind"] == "docker-image"
    assert image["metadata"]["owner"] == "o@example.com"
    payload = build["payload"]
    assert payload["image"]["taskId"] == {"$subs": "taskId:build-docker-image-base"}
    assert payload["env"] == {
        "SELF": {"$subs": "taskId:build-linux/opt"},
        "PLAIN": "no <reference>",
        "LONG": {"task-reference": "id-<docker-image>"},
        "DECISION": {"task-reference": "<decision>"},
        "URL": {"artifact-reference": "<docker-image/public/x>"},
    }
    assert payload["command"] == [["make"]]
    assert references(graph.document.tasks["build-linux/opt"]) == set(full())
    assert graph.notes == (
        "The tasks are noops: their payloads are kept, and nothing executes them.",
        "One dependency on a task outside the file counts as satisfied.",
        "One soft dependency was left out.",
        "One task would be dropped if none of its if_dependencies remained; it was kept.",
        "One task could have been optimized away; it was kept.",
        "One task would also run after failed dependencies (all-resolved); here it requires their success.",
        "One copy was made of a task.",
        "5 references inside payloads were kept as they are.",
        "4 relative dates were kept as they are.",
    )


def test_dates_and_references_are_resolved_when_they_can_be():
    graph = imported(full(), "taskgraph", now=NOW, graph_id="g")
    image, build = (graph.document.tasks[label].task for label in full())
    task_id = task_id_of("g", "build-docker-image-base")
    assert image["deadline"] == "2030-01-02T00:00:00.000Z"
    assert image["taskcluster"]["expires"] == "2030-01-29T00:00:00.000Z"
    assert image["payload"]["artifacts"]["x"]["expires"] == "2031-01-01T00:00:00.000Z"
    assert build["payload"]["image"]["taskId"] == task_id
    assert build["payload"]["env"]["LONG"] == f"id-{task_id}"
    assert build["payload"]["env"]["SELF"] == task_id_of("g", "build-linux/opt")
    assert build["payload"]["env"]["DECISION"] == {"task-reference": "<decision>"}
    assert build["payload"]["cache"] == {f"cache-{task_id}": "/builds"}
    assert build["taskcluster"]["scopes"] == [f"cache:{task_id}"]


def test_a_task_graph_is_keyed_by_task_id():
    a, b, c = (task_id_of("x", label) for label in "abc")
    obj = {
        a: {"label": "build", "dependencies": {}, "task": {"deadline": "2030-01-01T00:00:00Z", "payload": {}}},
        b: {"label": "test", "dependencies": {"build": a}, "task_id": b, "task": {"payload": {}}},
        c: {"label": "test", "task": {"payload": {}, "dependencies": [a, b]}},
    }
    graph = imported(obj, "taskgraph")
    assert shape(graph) == {"build": set(), f"test [{b}]": {"build"}, f"test [{c}]": {"build", f"test [{b}]"}}
    assert graph.document.tasks["build"].task["deadline"] == "2030-01-01T00:00:00Z"
    assert "2 tasks share a label with another one; their taskId was put behind it." in graph.notes


def test_external_dependencies_may_be_refused():
    assert found(full(), "taskgraph", external="reject") == [("external", "/build-linux~1opt/dependencies/decision")]


def test_an_executor_may_be_named_and_its_payload_is_then_checked():
    graph = imported(full(), "taskgraph", executor="lambda")
    assert {node.task["executor"] for node in graph.document.tasks.values()} == {"lambda"}
    assert set(found(full(), "taskgraph", executor="command")) >= {
        ("missing", "/build-docker-image-base"),
        ("wrong-type", "/build-linux~1opt"),
    }


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        ([], [("wrong-type", ""), ("empty", "")]),
        ({}, [("empty", "")]),
        ({"a": 1}, [("wrong-type", "/a")]),
        ({"a": {"task": []}}, [("wrong-type", "/a/task")]),
        ({"a": {"label": 5}}, [("wrong-type", "/a/label")]),
        ({"a": {"dependencies": []}}, [("wrong-type", "/a/dependencies")]),
        ({"a": {"dependencies": {"x": 1}}}, [("wrong-type", "/a/dependencies/x")]),
        ({"a": {"task": {"payload": 1}}}, [("wrong-type", "/a/task/payload")]),
        ({"a": {"attributes": {"task_duplicates": 0}}}, [("out-of-range", "/a/attributes/task_duplicates")]),
        ({"a": {"dependencies": {"x": "b"}}, "b": {"dependencies": {"x": "a"}}}, [("cycle", "/a")]),
        ({"a": {"dependencies": {"x": "a"}}}, [("self-requirement", "/a")]),
        ({"a": {"attributes": {"task_duplicates": 2}}, "a (copy 2)": {}}, [("duplicate-label", "/a")]),
    ],
)
def test_a_bad_taskgraph_file(obj: Any, expected: list[tuple[str, str]]):
    assert found(obj, "taskgraph") == expected


@pytest.mark.parametrize(
    ("span", "moment"),
    [
        ("0 seconds", "2030-01-01T00:00:00.000Z"),
        ("60 days", "2030-03-02T00:00:00.000Z"),
        ("1 day 2 hours", "2030-01-01T00:00:00.000Z"),
        ("-1 hour", "2029-12-31T23:00:00.000Z"),
        ("2h 30min", "2030-01-01T02:30:00.000Z"),
        ("1d", "2030-01-02T00:00:00.000Z"),
        ("soon", None),
        ("", None),
        ("1 fortnight", None),
        ("999999999 years", None),
    ],
)
def test_spans_of_time(span: str, moment: str | None):
    obj = {"a": {"task": {"deadline": {"relative-datestamp": span}}}}
    task = imported(obj, "taskgraph", now=NOW).document.tasks["a"].task
    if span == "1 day 2 hours":
        moment = "2030-01-02T02:00:00.000Z"
    assert task.get("deadline") == moment
    assert ("taskcluster" in task) is (moment is None)


# --- whatever else ---------------------------------------------------------------------------------------------

KEYS = ["tasks", "workflow", "specification", "execution", "id", "name", "parents", "children", "requires", "command",
        "runtimeInSeconds", "runtimeSeconds", "dependencies", "task", "payload", "attributes", "task_duplicates",
        "soft_dependencies", "optimization", "label", "a", "metadata", "author", "deadline", "relative-datestamp",
        "task-reference", "arguments", "program"]  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 3) | st.sampled_from(["", "a", "b", "<a>", "1 day", "x\n"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=20,
)


@given(JSON, st.sampled_from(list(FORMATS)), st.sampled_from([None, "g"]), st.sampled_from([None, NOW]))
@settings(deadline=None, max_examples=500)
def test_no_file_breaks_an_importer(obj: Any, format: Any, graph_id: Any, now: Any):  # noqa: A002
    try:
        graph = imported(obj, format, graph_id=graph_id, now=now)
    except InvalidGraph as error:
        assert error.problems[0].message  # noqa: PT017 - a file may as well be good
    else:
        assert graph.document.tasks
