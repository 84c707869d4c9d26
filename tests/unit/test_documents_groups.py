"""Groups in documents: everything that may be wrong with one is said at once, with its place; order means nothing."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskgraph.documents.canonical import content_hash, document_object, node_digests
from taskgraph.documents.nodes import GroupNode, Kind
from taskgraph.documents.read import document_from_object, read_document
from taskgraph.documents.references import external_labels
from taskgraph.model import limits, schemas
from taskgraph.model.errors import InvalidGraph, Problem
from tests.unit.test_grouping import document, documents

BARE: dict[str, Any] = {"task": {}}


def problems(tasks: Any, groups: Any, kind: Kind = "graph") -> list[Problem]:
    try:
        read_document(json.dumps({"tasks": tasks, "groups": groups}), kind=kind)
    except InvalidGraph as error:
        return list(error.problems)
    return []


def found(tasks: Any, groups: Any, kind: Kind = "graph") -> set[tuple[str, str]]:
    return {(each.pointer, each.code) for each in problems(tasks, groups, kind)}


def test_a_document_with_groups() -> None:
    tasks = {"a": BARE, "b": BARE, "c": {"requires": ["outer"], **BARE}, "lock": BARE}
    groups = {"inner": {"tasks": ["b"], "requires": ["lock"]}, "outer": {"tasks": ["a", "inner"]}}
    made = read_document(json.dumps({"tasks": tasks, "groups": groups}))
    assert made.groups == {
        "inner": GroupNode("inner", ("b",), ("lock",)),
        "outer": GroupNode("outer", ("a", "inner"), ()),
    }
    assert made.tasks["c"].requires == ("outer",)
    assert external_labels(made) == frozenset()
    assert document_from_object(document_object(made)) == made


def test_everything_that_is_wrong_with_groups_is_said_at_once() -> None:
    tasks = {"a": BARE, "b": {"requires": ["missing", "fine"], **BARE}}
    groups = {
        "fine": {"tasks": ["a"]},
        "a": {"tasks": ["b"]},
        "none": {"tasks": []},
        "itself": {"tasks": ["itself", "a", "a"], "requires": ["itself", "gone"]},
        "strange": {"tasks": ["gone"], "requires": "a", "task": 1},
        "bare": {},
        "\x07": {"tasks": ["a"]},
        "x" * 256: {"tasks": ["a"]},
        "": {"tasks": ["a"]},
        "number": 3,
        "numbers": {"tasks": [1, {}]},
    }
    assert found(tasks, groups) == {
        ("/tasks/b/requires/0", "unknown-label"),
        ("/groups/a", "name-clash"),
        ("/groups/none/tasks", "empty"),
        ("/groups/itself/tasks/0", "self-member"),
        ("/groups/itself/tasks/2", "duplicate-member"),
        ("/groups/itself/requires/0", "self-requirement"),
        ("/groups/itself/requires/1", "unknown-label"),
        ("/groups/strange/tasks/0", "unknown-label"),
        ("/groups/strange/requires", "wrong-type"),
        ("/groups/strange/task", "unknown-key"),
        ("/groups/bare", "missing"),
        ("/groups/\x07", "label"),
        ("/groups/" + "x" * 256, "label"),
        ("/groups/", "label"),
        ("/groups/number", "wrong-type"),
        ("/groups/numbers/tasks/0", "wrong-type"),
        ("/groups/numbers/tasks/1", "wrong-type"),
    }


@pytest.mark.parametrize("groups", [[], 1, "a", None, ["a"]])
def test_groups_are_an_object(groups: Any) -> None:
    assert found({"a": BARE}, groups) == {("/groups", "wrong-type")}


def test_problems_have_lines() -> None:
    text = '{"tasks": {"a": {"task": {}}},\n "groups": {\n  "g": {"tasks": ["a",\n "b"]}}}'
    with pytest.raises(InvalidGraph) as caught:
        read_document(text)
    assert [(each.pointer, each.line) for each in caught.value.problems] == [("/groups/g/tasks/1", 4)]


@pytest.mark.parametrize(
    ("tasks", "groups", "place", "path"),
    [
        # a task requires the group that it is in
        ({"a": ["g"], "b": []}, {"g": (["a", "b"], [])}, "/tasks/a/requires/0", "“a” → group “g” → “a”"),
        # a group requires one of its tasks
        ({"a": [], "b": []}, {"g": (["a", "b"], ["a"])}, "/groups/g/tasks/0", "“a” → its group “g” → “a”"),
        # a group requires a group that it contains
        (
            {"a": []},
            {"g": (["h"], ["h"]), "h": (["a"], [])},
            "/groups/h/tasks/0",
            "“a” → its group “h” → its group “g” → group “h” → “a”",
        ),
        # through a task and two groups
        (
            {"a": [], "b": ["h"]},
            {"g": (["a", "h"], ["b"]), "h": (["a"], [])},
            "/groups/g/tasks/0",
            "“a” → its group “g” → “b” → group “h” → “a”",
        ),
    ],
)
def test_circles_through_groups(tasks: Any, groups: Any, place: str, path: str) -> None:
    (problem,) = problems(
        {label: {"requires": requires, "task": {}} for label, requires in tasks.items()},
        {name: {"tasks": inside, "requires": requires} for name, (inside, requires) in groups.items()},
    )
    assert (problem.pointer, problem.code) == (place, "cycle")
    assert f": {path}." in problem.message


def test_groups_that_contain_each_other() -> None:
    groups = {
        "g": {"tasks": ["a", "h"]},
        "h": {"tasks": ["k"]},
        "k": {"tasks": ["h", "g"]},
        "x": {"tasks": ["y"]},
        "y": {"tasks": ["x"]},
    }
    made = problems({"a": {"requires": ["g"], **BARE}}, groups)
    assert {(each.pointer, each.code) for each in made} == {
        ("/groups/h/tasks/0", "group-cycle"),
        ("/groups/x/tasks/0", "group-cycle"),
        ("/tasks/a/requires/0", "cycle"),
    }
    assert any("“h” → “k” → “h”" in each.message for each in made)


def test_a_great_many_groups_that_contain_each_other_take_no_longer_than_others() -> None:
    names = [f"g{number}" for number in range(150)]
    groups = {name: {"tasks": ["a", *(other for other in names if other != name)]} for name in names}
    made = problems({"a": BARE}, groups)
    assert {each.code for each in made} == {"group-cycle", "too-many-groups"}
    assert 2 < len(made) < 20


def test_a_task_is_in_so_many_groups_at_most() -> None:
    def nested(count: int) -> dict[str, Any]:
        return {f"g{number}": {"tasks": [f"g{number - 1}" if number else "a"]} for number in range(count)}

    assert found({"a": BARE}, nested(limits.GROUPS_OF_TASK_MAX)) == set()
    assert found({"a": BARE}, nested(limits.GROUPS_OF_TASK_MAX + 1)) == {("/tasks/a", "too-many-groups")}
    beside = {f"g{number}": {"tasks": ["a", "b"]} for number in range(limits.GROUPS_OF_TASK_MAX + 1)}
    assert found({"a": BARE, "b": BARE}, beside) == {("/tasks/a", "too-many-groups"), ("/tasks/b", "too-many-groups")}


def test_what_an_extension_may_say() -> None:
    tasks = {"x": {"requires": ["old", "old group"], **BARE}}
    made = read_document(
        json.dumps({"tasks": tasks, "groups": {"g": {"tasks": ["x"], "requires": ["older"]}}}), kind="extension"
    )
    assert made.groups["g"].requires == ("older",)
    assert external_labels(made) == {"old", "old group", "older"}
    # who is in a group is said where the group is
    assert found(tasks, {"g": {"tasks": ["old"]}}, "extension") == {("/groups/g/tasks/0", "unknown-label")}


def test_no_reference_becomes_a_group() -> None:
    """A `$subs` object is replaced by one taskId, and a group has none."""
    tasks = {"a": BARE, "b": {"task": {"payload": {"x": {"$subs": "taskId:g"}}}}}
    assert found(tasks, {"g": {"tasks": ["a"]}}) == {("/tasks/b/task/payload/x/$subs", "unknown-label")}


def test_the_hash_covers_groups_and_is_what_it_was_without() -> None:
    plain = document({"a": (), "b": ("a",)}, {})
    assert content_hash(plain) == "3d3d41671b1af46d1143e489b3c8d3cf"
    hashes = {
        content_hash(document({"a": (), "b": ("a",), "c": ()}, groups))
        for groups in (
            {},
            {"g": (("a",), ())},
            {"h": (("a",), ())},
            {"g": (("b",), ())},
            {"g": (("b",), ("a",))},
            {"g": (("b", "c"), ("a",))},
        )
    }
    assert len(hashes) == 6
    one = document({"a": (), "b": ()}, {"g": (("a", "b"), ()), "h": (("g",), ())})
    other = document({"b": (), "a": ()}, {"h": (("g",), ()), "g": (("b", "a"), ())})
    assert content_hash(one) == content_hash(other)
    assert node_digests(one) == node_digests(document({"a": (), "b": ()}, {}))


@settings(max_examples=20, deadline=None)
@given(documents())
def test_what_has_no_circle_is_let_in(made: Any) -> None:
    assert document_from_object(document_object(made)) == made


NAMES = st.sampled_from(["", "a", "b", "x" * 255, "x" * 256, "\n", "é", 1, None, {}])
LISTS = st.lists(NAMES, max_size=4) | NAMES
GROUPS = st.dictionaries(st.sampled_from(["tasks", "requires", "task"]), LISTS, max_size=3) | NAMES | LISTS


@settings(max_examples=150, deadline=None)
@given(GROUPS)
def test_the_libraries_agree(group: Any) -> None:
    validator = schemas.validator("task-graph", "#/$defs/group")
    assert validator.is_valid(group) == (not list(validator.findings(group)))


def test_a_whole_number_with_a_point_is_a_limit() -> None:
    """The schema calls 2.0 an integer, as it does for the limit of the graph."""
    obj = {"tasks": {"a": {"task": {}}}, "groups": {"g": {"tasks": ["a"], "maxInFlight": 2.0}}}
    assert document_from_object(obj).groups["g"].max_in_flight == 2
