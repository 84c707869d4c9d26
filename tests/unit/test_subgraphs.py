"""Tasks that are graphs: written in the document, or the result of another task."""

from typing import Any

import pytest

from taskgraph.documents.canonical import document_object
from taskgraph.documents.expansion import expansion
from taskgraph.documents.read import document_from_object
from taskgraph.model.errors import InvalidGraph, InvalidInput

INNER: dict[str, Any] = {
    "defaults": {"env": {"B": "inner"}},
    "tasks": {
        "compile": {"foreach": {"os": ["linux", "mac"]}, "command": ["cc", "{{os}}"]},
        "link": {"requires": ["compile", "outside"], "command": ["ld", {"$subs": "taskId:link"}]},
        "size": {"requires": ["link"], "command": ["size", {"$result": "link"}]},
    },
    "groups": {"most": {"tasks": ["compile", "link"]}},
}


def read(node: dict[str, Any], **more: Any) -> dict[str, Any]:
    tasks = {
        "outside": {"task": {"payload": {"command": ["x"]}}},
        "build": node,
        "last": {"requires": ["build"], "command": ["use", {"$result": "build", "path": "/n"}]},
    }
    return document_object(document_from_object({"tasks": tasks, **more}))


def test_its_tasks_stand_in_a_group_of_its_name() -> None:
    node = {"requires": ["outside"], "maxInFlight": 2, "graph": INNER, "result": "size"}
    made = read(node, defaults={"env": {"A": "o"}})
    tasks, groups = made["tasks"], made["groups"]
    assert list(tasks) == ["outside", "build/compile linux", "build/compile mac", "build/link", "build/size", "last"]
    assert groups["build"] == {"tasks": ["build/size", "build/most"], "requires": ["outside"], "maxInFlight": 2}
    assert groups["build/most"]["tasks"] == ["build/compile", "build/link"]
    assert groups["build/compile"]["tasks"] == ["build/compile linux", "build/compile mac"]
    assert tasks["build/link"]["requires"] == ["build/compile", "outside"]
    assert tasks["build/link"]["task"]["payload"]["command"][1] == {"$subs": "taskId:build/link"}
    assert tasks["build/link"]["task"]["payload"]["env"] == {"A": "o", "B": "inner"}
    assert tasks["build/size"]["task"]["payload"]["command"][1] == {"$result": "build/link"}
    assert tasks["last"]["task"]["payload"]["command"][1] == {"$result": "build/size", "path": "/n"}
    assert document_object(document_from_object(made)) == made


def test_what_is_said_of_the_group_stands_beside_the_graph_or_in_foreach() -> None:
    said = {"failurePolicy": "continue", "success": {"atLeast": "50%", "then": "go", "rest": "let"}, "maxInFlight": 2}
    inner = {"tasks": {"a": {"task": {}}, "b": {"task": {}}}}
    tasks = {"build": {"graph": inner, **said}, "each": {"foreach": {"n": [1, 2], **said}, "task": {}}}
    made = document_object(document_from_object({"tasks": tasks}))["groups"]
    for name in tasks:
        assert {key: made[name][key] for key in said} == said
    late = {
        "list": {"task": {}},
        "build": {"graph": {"$result": "list"}, "maxInFlight": 2, "failurePolicy": "continue"},
    }
    group = document_object(document_from_object({"tasks": late}))["groups"]["build"]
    assert (group["maxInFlight"], group["failurePolicy"], group["grows"]) == (2, "continue", True)


def test_graphs_in_graphs_and_one_graph_for_each_value() -> None:
    within = {"requires": ["a"], "graph": {"tasks": {"b": {"requires": ["a"]}}}}
    inner = {"tasks": {"a": {"command": ["echo", "{{n}}"]}, "in": within}}
    tasks = {"each": {"foreach": {"n": [1, 2]}, "graph": inner}}
    made = document_object(document_from_object({"tasks": tasks}))
    assert list(made["tasks"]) == ["each 1/a", "each 1/in/b", "each 2/a", "each 2/in/b"]
    assert made["tasks"]["each 2/a"]["task"]["payload"]["command"] == ["echo", "2"]
    assert made["tasks"]["each 1/in/b"]["requires"] == ["each 1/a"]
    assert made["groups"]["each"]["tasks"] == ["each 1", "each 2"]


@pytest.mark.parametrize(
    ("node", "pointer", "words"),
    [
        ({"graph": {"tasks": {}}}, "/tasks/build/graph", "must be an object with `tasks`"),
        ({"graph": {"tasks": {"a": {}}, "parms": {}}}, "/tasks/build/graph/parms", "has no “parms”"),
        ({"graph": {"tasks": {"a": {}}}, "reruns": 1}, "/tasks/build/reruns", "no meaning beside `graph`"),
        ({"graph": {"tasks": {"a": {}}}, "result": "b"}, "/tasks/build/result", "The graph has no task “b”"),
        ({"graph": {"tasks": {"a": {"requires": ["z"]}}}, "result": "a"}, "/tasks/build/graph/tasks/a/requires/0", "z"),
        ({"graph": {"tasks": {"a": {"comand": ["x"]}}}, "result": "a"}, "/tasks/build/graph/tasks/a/comand", "comand"),
    ],
)
def test_what_is_wrong_is_said_of_its_place(node: dict[str, Any], pointer: str, words: str) -> None:
    with pytest.raises(InvalidGraph) as refused:
        read(node)
    found = {problem.pointer: problem.message for problem in refused.value.problems}
    assert words in found.get(pointer, str(found))
    assert pointer in found


def test_one_that_is_a_result_is_brought_in_by_a_task() -> None:
    made = read({"requires": ["outside"], "graph": {"$result": "outside", "path": "/g"}, "result": "size"})
    own = made["tasks"]["expand build"]
    payload = {"group": "build", "graph": {"$result": "outside", "path": "/g"}, "result": "size"}
    assert own == {"requires": ["outside"], "reruns": 0, "task": {"executor": "expand", "payload": payload}}
    assert made["groups"]["build"] == {"tasks": ["expand build"], "requires": [], "grows": True}
    assert made["tasks"]["last"]["task"]["payload"]["command"][1] == {"$result": "build/size", "path": "/n"}
    found = expansion("expand build", {"payload": {**payload, "graph": INNER}})
    read_again = document_object(document_from_object(found, kind="extension"))
    assert read_again["groups"]["build"]["tasks"] == ["build/size", "build/most"]
    assert read_again["tasks"]["build/compile mac"]["requires"] == ["expand build"]
    assert read_again["tasks"]["build/size"]["requires"] == ["build/link"]


@pytest.mark.parametrize(
    ("graph", "result", "words"),
    [
        ([1], "", "“build” needs a graph, and the result is an array"),
        ({"tasks": {"a": {}}}, "b", "the graph has no such task"),
    ],
)
def test_results_that_are_no_such_graph(graph: Any, result: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        expansion("expand build", {"payload": {"group": "build", "graph": graph, "result": result}})


def test_a_result_without_tasks_adds_none() -> None:
    assert expansion("expand build", {"payload": {"group": "build", "graph": {"tasks": {}}}}) == {}
