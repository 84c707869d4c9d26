"""The documents of edits: what is read, each problem at its place, and what makes two of them the same."""

import json
from typing import Any

import pytest

from taskgraph.documents.edit_document import edit_from_object, read_edit
from taskgraph.documents.read import Given
from taskgraph.model import schemas
from taskgraph.model.errors import InvalidGraph


def problems(obj: Any) -> dict[str, str]:
    with pytest.raises(InvalidGraph) as caught:
        read_edit(json.dumps(obj, indent=1))
    return {problem.pointer: problem.code for problem in caught.value.problems}


def test_every_key_is_read_and_what_is_not_named_stays_out() -> None:
    said = {
        "task": {"payload": {"n": 1}},
        "requires": ["b", {"label": "c", "optional": True}],
        "when": "always",
        "reruns": 3,
        "deadline": "2030-01-31T12:00:00Z",
        "notBefore": None,
        "maxRunTime": 60,
        "pendingTimeout": None,
        "retry": {"limit": 2},
        "active": False,
        "priority": "low",
    }
    assert set(said) == set(schemas.members("edit", "update"))
    read = edit_from_object({"update": {"a": said, "d": {"reruns": 1}}, "delete": ["x"], "ifRevision": 0})
    update = read.updates["a"]
    assert update.keys == set(schemas.members("edit", "update"))
    assert (update.deadline, update.node.reruns, update.node.active) == ("2030-01-31T12:00:00Z", 3, False)
    assert (update.node.requires, update.node.optional) == (("b", "c"), {"c"})
    assert read.updates["d"].keys == {"reruns"}
    assert (read.delete, read.delete_groups, read.if_revision) == (("x",), (), 0)
    assert schemas.validator("edit").is_valid(json.loads(read.text))
    assert read_edit(read.text) == read, "what is kept says the same"


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        ([], {"": "wrong-type"}),
        ({}, {"": "empty"}),
        ({"update": {}}, {"": "empty"}),
        ({"delete": ["a"], "remove": ["b"]}, {"/remove": "unknown-key"}),
        ({"delete": "a"}, {"/delete": "wrong-type"}),
        ({"delete": ["a", "a"]}, {"/delete/1": "duplicate"}),
        ({"delete": ["a"], "update": {"a": {"reruns": 1}}}, {"/delete/0": "deleted-and-updated"}),
        ({"delete": ["a"], "ifRevision": -1}, {"/ifRevision": "out-of-range"}),
        ({"update": {"a": {}}}, {"/update/a": "empty"}),
        ({"update": {"a": 1}}, {"/update/a": "wrong-type"}),
        ({"update": {"a": {"rerun": 1}}}, {"/update/a/rerun": "unknown-key"}),
        ({"update": {"a": {"reruns": -1}}}, {"/update/a/reruns": "out-of-range"}),
        ({"update": {"a": {"reruns": None}}}, {"/update/a/reruns": "wrong-type"}),
        ({"update": {"a": {"deadline": "soon"}}}, {"/update/a/deadline": "bad-date-time"}),
        ({"update": {"a": {"notBefore": "soon"}}}, {"/update/a/notBefore": "bad-date-time"}),
        ({"update": {"a": {"requires": ["a"]}}}, {"/update/a/requires/0": "self-requirement"}),
        ({"update": {"a": {"requires": ["b", "b"]}}}, {"/update/a/requires/1": "duplicate-requirement"}),
        ({"update": {"a": {"when": "sometimes"}}}, {"/update/a/when": "not-allowed"}),
        ({"update": {"a": {"task": {"payload": {"command": []}}}}}, {"/update/a/task/payload/command": "empty"}),
    ],
)
def test_what_is_wrong_is_said_at_its_place(obj: Any, expected: dict[str, str]) -> None:
    assert problems(obj) == expected


def test_all_problems_are_said_at_once_with_their_lines() -> None:
    text = '{"update": {\n"a": {"reruns": -1},\n"b": {"task": 1}},\n"delete": [""]}'
    with pytest.raises(InvalidGraph) as caught:
        read_edit(text)
    lines = {problem.pointer: problem.line for problem in caught.value.problems}
    assert (lines["/update/a/reruns"], lines["/update/b/task"], lines["/delete/0"]) == (2, 3, 4)


def test_no_json_is_no_edit() -> None:
    with pytest.raises(InvalidGraph):
        read_edit("{")
    with pytest.raises(InvalidGraph):
        edit_from_object({"delete": {1, 2}})


def test_the_same_content_and_guard_is_the_same_request() -> None:
    one = edit_from_object({"delete": ["a"], "reason": "x"})
    assert edit_from_object({"reason": "x", "delete": ["a"]}).request == one.request
    others = [{"delete": ["a"]}, {"delete": ["a"], "reason": "x", "ifRevision": 0}, {"delete": ["b"], "reason": "x"}]
    assert len({one.request, *(edit_from_object(each).request for each in others)}) == 4


def test_parameters_are_put_in() -> None:
    wish = {"update": {"a": {"task": {"payload": {"n": {"$param": "size"}}}}}}
    read = edit_from_object(wish, given=Given({}, {"size": 7}))
    assert read.updates["a"].node.task == {"payload": {"n": 7}}
    assert '"$param"' not in read.text
