"""Building graphs in Python: the documents that come out, and what is refused."""

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

import taskgraph
from taskgraph import Graph, InvalidGraph, InvalidInput, Task
from taskgraph.documents.canonical import document_object
from taskgraph.documents.read import document_from_object
from taskgraph.documents.short_forms import COMMAND_KEYS
from taskgraph.model import schemas


def codes(error: pytest.ExceptionInfo[InvalidGraph]) -> set[str]:
    return {problem.code for problem in error.value.problems}


def test_the_document_of_a_graph() -> None:
    graph = Graph(name="nightly", owner="build@example.com", routing="nightly", tags={"branch": "main"})
    build = graph.task("build", command=["make"], reruns=1, env={"CC": "gcc"}, cwd="src", timeout=60, target="big")
    graph.task("lint", command=["ruff", "check"])
    graph.task("test", requires=[build, "lint"], call="run_tests", arguments={"parts": 2})
    graph.task("rest", requires="test", executor="sleep", payload={"seconds": 0.5})
    assert graph.to_dict() == {
        "routing": "nightly",
        "metadata": {"name": "nightly", "owner": "build@example.com"},
        "tags": {"branch": "main"},
        "tasks": {
            "build": {
                "reruns": 1,
                "task": {
                    "payload": {"command": ["make"], "env": {"CC": "gcc"}, "cwd": "src", "timeout": 60},
                    "target": "big",
                },
            },
            "lint": {"task": {"payload": {"command": ["ruff", "check"]}}},
            "test": {
                "requires": ["build", "lint"],
                "task": {"payload": {"call": "run_tests", "arguments": {"parts": 2}}},
            },
            "rest": {"requires": ["test"], "task": {"executor": "sleep", "payload": {"seconds": 0.5}}},
        },
    }
    assert json.loads(graph.to_json()) == graph.to_dict()
    assert graph.validate() == document_from_object(graph.to_dict())


def test_a_task_without_arguments_is_one_that_does_nothing() -> None:
    graph = Graph()
    graph.task("start")
    assert graph.to_dict() == {"tasks": {"start": {"task": {}}}}
    assert len(graph.validate().tasks) == 1


def test_arrows_say_what_requires_what() -> None:
    a, b, c, d = (Task(label) for label in "abcd")
    chained = a >> [b, c] >> d
    assert chained is d
    assert (a.requires, b.requires, c.requires, d.requires) == ((), ("a",), ("a",), ("b", "c"))
    e = Task("e")
    assert ["x", d] >> e is e
    assert e.requires == ("x", "d")
    "y" >> e >> Task("f")
    assert e.requires == ("x", "d", "y")


def test_requiring_twice_is_requiring_once() -> None:
    a = Task("a")
    b = Task("b", requires=[a, "a"])
    b.after(a, ["a", a])
    assert b.requires == ("a",)


def test_a_label_alone_is_not_taken_apart() -> None:
    assert Task("b", requires="lint").requires == ("lint",)


def test_tasks_made_before_are_added_once() -> None:
    graph = Graph()
    a, b = Task("a"), Task("b", requires=["a"])
    graph.add(a, b)
    graph.add(a)
    assert list(graph) == [a, b]
    assert "a" in graph
    assert graph["b"] is b
    with pytest.raises(InvalidInput, match="already has a task “a”"):
        graph.task("a")
    assert graph["a"] is a


def test_every_problem_is_reported_at_once() -> None:
    graph = Graph()
    a = graph.task("a", requires=["nowhere"], reruns=-1)
    b = graph.task("b", command=[])
    a >> b >> a
    with pytest.raises(InvalidGraph) as error:
        graph.validate()
    assert len(error.value.problems) >= 4
    assert any("nowhere" in note for note in error.value.__notes__), "a traceback tells what is wrong"
    assert len(error.value.__notes__) == len(error.value.problems)
    assert {"unknown-label", "cycle"} <= codes(error)
    with pytest.raises(InvalidGraph):
        graph.to_json()
    with pytest.raises(InvalidGraph):
        graph.plan()


def test_an_extension_may_require_labels_of_another_graph() -> None:
    graph = Graph()
    graph.task("publish", requires=["test"])
    with pytest.raises(InvalidGraph) as error:
        graph.validate()
    assert codes(error) == {"unknown-label"}
    assert graph.validate("extension").tasks["publish"].requires == ("test",)


def test_a_reference_becomes_the_id_of_the_task() -> None:
    graph = Graph()
    build = graph.task("build")
    graph.task("test", requires=[build], command=["fetch", build.reference])
    assert graph.to_dict()["tasks"]["test"]["task"]["payload"]["command"][1] == {"$subs": "taskId:build"}
    graph.validate()


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"command": ["a"], "payload": {"command": ["b"]}}, "command is given twice"),
        ({"target": "big", "definition": {"target": "small"}}, "target is given twice"),
        ({"command": ["a"], "definition": {"payload": {}}}, "payload is given twice"),
        ({"command": "make all"}, "list of texts"),
        ({"command": ["make"], "call": "build"}, "a command and a call"),
        ({"deadline": datetime(2030, 1, 1)}, "no time zone"),
    ],
)
def test_arguments_that_contradict_each_other(arguments: dict[str, object], word: str) -> None:
    with pytest.raises(InvalidInput, match=word):
        Task("a", **arguments)  # type: ignore[arg-type]


def test_a_definition_is_kept_as_it_is_and_copied() -> None:
    definition = {"payload": {"command": ["make"]}, "priority": 3}
    task = Task("a", definition=definition, target="big", deadline=datetime(2030, 1, 1, tzinfo=UTC))
    definition["payload"]["command"].append("changed")  # type: ignore[index]
    task.to_dict()["task"]["payload"]["command"].append("changed")
    assert task.definition == {
        "payload": {"command": ["make"]},
        "priority": 3,
        "target": "big",
        "deadline": "2030-01-01T00:00:00+00:00",
    }


def test_a_document_comes_back_as_it_went(tmp_path: Path) -> None:
    graph = Graph(name="n", description="d", routing="r", tags={"k": "v"})
    graph.task("ä / b", command=["true"], reruns=2)
    graph.task("c", requires=["ä / b"], executor="noop")
    path = tmp_path / "graph.json"
    path.write_text(graph.to_json(indent=None), "utf-8")
    assert Graph.from_file(path).to_dict() == graph.to_dict()
    assert Graph.from_document(graph.to_dict()).to_dict() == graph.to_dict()
    assert Graph.from_document(graph.validate()).to_dict() == graph.to_dict()


def test_every_key_of_a_document_comes_back() -> None:
    document = {
        "routing": "r",
        "metadata": {"name": "n"},
        "tags": {"k": "v"},
        "failurePolicy": "continue",
        "params": {"who": {"type": "string", "default": "me"}},
        "notify": {"onFinished": {"queue": "builds"}},
        "deadline": "2030-01-01T00:00:00Z",
        "stalledAfter": 120.0,
        "onStalled": "cancel",
        "budget": {"amount": 5.0, "warnAt": 0.5, "onExceeded": "notify"},
        "maxInFlight": 3,
        "priority": "low",
        "tasks": {
            "a": {"task": {"payload": {"command": ["true"]}}},
            "b": {
                "requires": ["a"],
                "when": "all-resolved",
                "reruns": 2,
                "notBefore": "2029-01-01T00:00:00Z",
                "retry": {"limit": 1},
                "maxRunTime": 5,
                "pendingTimeout": 6,
                "notify": {"onFailure": {"queue": "broken"}},
                "active": False,
                "priority": "high",
                "task": {"payload": {"command": ["true"]}},
            },
        },
        "groups": {
            "g": {
                "tasks": ["b"],
                "requires": ["a"],
                "active": False,
                "maxInFlight": 1,
                "success": {"atLeast": "50%", "then": "wait", "rest": "cancel"},
                "failurePolicy": "continue",
            },
            "h": {"tasks": ["a"], "grows": True},
        },
    }
    whole = schemas.schema("task-graph")
    assert set(document) == set(whole["properties"]) - {"$schema", "defaults", "include"}, "say here what is new"
    short = {*COMMAND_KEYS, "foreach", "graph", "result", "maxInFlight", "failurePolicy", "success"}
    assert set(document["tasks"]["b"]) == set(whole["$defs"]["node"]["properties"]) - short
    assert {*document["groups"]["g"], "grows"} == set(whole["$defs"]["group"]["properties"])
    assert Graph.from_document(document).to_dict() == document
    assert document_object(Graph.from_document(document).validate()) == document_object(document_from_object(document))


def test_a_file_with_problems_names_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    path.write_text('{"tasks": {\n "a": {"requires": ["b"], "task": {}}}}')
    with pytest.raises(InvalidGraph, match=r"graph\.json") as error:
        Graph.from_file(path)
    assert [problem.line for problem in error.value.problems] == [2]


def test_the_plan_and_the_picture() -> None:
    graph = Graph()
    a = graph.task("a")
    a >> [graph.task("b"), graph.task("c")]
    plan = graph.plan()
    assert (plan.tasks, plan.edges, plan.depth, plan.width) == (3, 2, 2, 2)
    assert "flowchart" in graph.to_mermaid()


def test_importing_the_package_is_light() -> None:
    code = (
        "import sys, taskgraph; print(sorted(set(sys.modules) & {'asyncio', 'jsonschema', 'jsonschema_rs', 'azure',"
        " 'sqlite3', 'taskgraph.interfaces.client.client', 'taskgraph.model.ids'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_using_the_client_on_a_file_imports_no_cloud() -> None:
    code = "import sys; from taskgraph import Client; print(sorted({m for m in sys.modules if m.startswith('azure')}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_is_there() -> None:
    assert set(taskgraph.__all__) == {*taskgraph._MODULES, "__version__"}
    for name in taskgraph.__all__:
        assert getattr(taskgraph, name) is not None
    assert set(taskgraph.__all__) <= set(dir(taskgraph))
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        taskgraph.Nothing  # noqa: B018 - asking is the test
