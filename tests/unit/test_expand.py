"""`foreach` over results: what it is written out to, and the tasks that come of it."""

from collections.abc import Mapping
from typing import Any

import pytest

from taskgraph.documents.canonical import document_object
from taskgraph.documents.expansion import expansion
from taskgraph.documents.foreach import FOREACH_MAX
from taskgraph.documents.read import document_from_object
from taskgraph.model.errors import InvalidGraph, InvalidInput
from taskgraph.worker.executors.contract import Work
from taskgraph.worker.executors.expand import ExpandExecutor

LIST: dict[str, Any] = {"task": {"payload": {"command": ["list"]}}}
CONVERT: dict[str, Any] = {
    "requires": ["list", "setup"],
    "reruns": 2,
    "foreach": {"file": {"$result": "list", "path": "/files"}, "size": [1, 2], "maxInFlight": 3},
    "command": ["convert", "{{file.stem}}", "{{size}}", {"$result": "setup", "path": "/mode"}],
}


def written_out(node: Mapping[str, Any] = CONVERT, **more: Any) -> dict[str, Any]:
    tasks = {"list": LIST, "setup": LIST, "convert": dict(node), "last": {"requires": ["convert"], "task": {}}}
    return document_object(document_from_object({"tasks": tasks, **more}))


def expanded(values: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    each = {"requires": ["setup"], "task": {"payload": {"command": ["do", "{{file}}"]}}}
    return expansion("expand it", {"payload": {"group": "it", "values": values, **more}, "each": each})


def test_it_is_written_out_to_a_task_in_a_group_that_grows() -> None:
    made = written_out(defaults={"target": "big", "reruns": 1, "env": {"A": "b"}})
    assert made["groups"] == {"convert": {"tasks": ["expand convert"], "requires": [], "maxInFlight": 3, "grows": True}}
    own = made["tasks"]["expand convert"]
    assert own["requires"] == ["list", "setup"]
    assert own["task"]["target"] == "big"
    assert own["task"]["payload"] == {
        "group": "convert",
        "values": {"file": {"$result": "list", "path": "/files"}, "size": [1, 2]},
    }
    each = own["task"]["each"]
    assert (each["requires"], each["reruns"], each["task"]["target"]) == (["setup"], 2, "big")
    assert each["task"]["payload"]["env"] == {"A": "b"}
    assert document_object(document_from_object(made)) == made


def test_what_says_when_its_tasks_are_made_is_of_the_task_that_makes_them() -> None:
    node = {"foreach": {"$result": "list"}, "requires": ["list"], "when": "always", "active": False, "task": {}}
    own = written_out(node, failurePolicy="continue")["tasks"]["expand convert"]
    assert (own["when"], own["active"]) == ("always", False)
    assert "when" not in own["task"]["each"]


def test_what_all_tasks_of_a_group_hand_on_may_be_taken() -> None:
    last = {"requires": ["convert"], "command": ["sum", {"$result": "convert"}]}
    tasks = {"list": LIST, "setup": LIST, "convert": CONVERT}
    assert document_from_object({"tasks": {**tasks, "last": last}}).tasks["last"].requires == ("convert",)
    for wrong in ({**last, "requires": ["list"]}, {**last, "command": ["x", {"$file": "convert", "path": "a"}]}):
        with pytest.raises(InvalidGraph) as refused:
            document_from_object({"tasks": {**tasks, "last": wrong}})
        assert {each.code for each in refused.value.problems} <= {"not-required", "unknown-label"}


def test_a_parameter_may_be_a_list_beside_a_result() -> None:
    node = {"foreach": {"a": {"$result": "list"}, "b": {"$param": "sizes"}}, "task": {"payload": {"x": "{{b}}"}}}
    params = {"sizes": {"type": "array", "default": [3]}}
    own = written_out(node, params=params)["tasks"]["expand convert"]
    assert own["requires"] == ["list"]
    assert own["task"]["payload"]["values"]["b"] == [3]


@pytest.mark.parametrize(
    ("node", "pointer", "words"),
    [
        ({"foreach": {"$result": "lost"}, "task": {}}, "/tasks/convert/requires/0", "“lost”"),
        ({"foreach": {"a": {"$result": "list", "at": 1}}, "task": {}}, "/tasks/convert/foreach/a", "it also has “at”"),
        ({"foreach": {"a b": {"$result": "list"}}, "task": {}}, "/tasks/convert/foreach/a b", "cannot be a name"),
        ({"foreach": {"$result": "list"}, "comand": ["x"]}, "/tasks/convert/comand", "comand"),
        ({"foreach": {"$result": "list"}, "reruns": -1, "task": {}}, "/tasks/convert/reruns", "reruns"),
        (
            {"foreach": {"$result": "list"}, "command": [{"$result": "setup"}]},
            "/tasks/convert/command/0/$result",
            "setup",
        ),
    ],
)
def test_what_is_wrong_is_said_of_the_short_form(node: dict[str, Any], pointer: str, words: str) -> None:
    with pytest.raises(InvalidGraph) as refused:
        written_out(node)
    found = {problem.pointer: problem.message for problem in refused.value.problems}
    assert pointer in found
    assert words in found[pointer]


def test_a_task_for_each_value() -> None:
    made = expanded({"file": ["a.c", {"n": 1}]})
    assert made["groups"] == {"it": {"tasks": ["it a.c", 'it {"n":1}']}}
    first = made["tasks"]["it a.c"]
    assert first == {"requires": ["expand it", "setup"], "task": {"payload": {"command": ["do", "a.c"]}}}
    document_from_object(made, kind="extension")
    assert expanded({"file": []}) == {}
    assert list(expanded({"file": ["a", "b"]}, label="{{file}}!", exclude=[{"file": "a"}])["tasks"]) == ["b!"]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"file": {"a": 1}}, "“it” needs a list of file, and the result has an object"),
        ({"file": None}, "needs a list of file"),
        ({"file": ["a", "a"]}, "Two tasks would be labelled “it a”."),
        ({"file": list(range(FOREACH_MAX + 1))}, "10,000 may come of one `foreach`"),
    ],
)
def test_results_that_are_no_lists(values: Mapping[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words.replace("(", r"\(")):
        expanded(values)


async def test_the_executor_says_what_is_wrong_and_no_rerun_helps() -> None:
    async def write(data: bytes) -> None:
        assert data == b"1 tasks\n"

    definition = {"executor": "expand", "payload": {"group": "it", "values": {"n": 3}}, "each": {"task": {}}}
    outcome = await ExpandExecutor().run(Work("g", "t", 0, "expand it", "c", definition), write)
    assert (outcome.failed, outcome.exception) == (True, True)
    definition["payload"]["values"]["n"] = [3]  # type: ignore[index]
    outcome = await ExpandExecutor().run(Work("g", "t", 0, "expand it", "c", definition), write)
    assert (outcome.failed, list(outcome.adds["tasks"])) == (False, ["it 3"])


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ({"payload": {"group": "g"}}, "of `values`, or of a `graph`"),
        ({"payload": {"group": "g", "values": {"a": [1]}}}, "does not say which"),
        ({"payload": {"group": 3, "graph": {}}}, "`group` must be a string"),
        ({"payload": 5}, "`payload` must be an object"),
        ({}, "`payload` must be an object"),
    ],
)
def test_its_long_form_is_held_against_the_schema(task: dict[str, Any], words: str) -> None:
    tasks = {"x": {"task": {"executor": "expand", **task}}}
    with pytest.raises(InvalidGraph) as refused:
        document_from_object({"tasks": tasks, "groups": {"g": {"tasks": ["x"], "grows": True}}})
    assert any(words in problem.message for problem in refused.value.problems), refused.value.problems
