"""Results that are handed on: what a row keeps, what a document may ask for, and what a task is given for it."""

import copy
import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskgraph.documents.canonical import document_object, node_digest
from taskgraph.documents.read import read_document
from taskgraph.documents.references import external_labels, results_without_requirement, substitute, without_requirement
from taskgraph.documents.results import NoResult, handed_on, may_take, put_in, taken_from
from taskgraph.interfaces.client.graph import Graph
from taskgraph.model import limits
from taskgraph.model.columns import NO_OUTPUT, OUTPUT
from taskgraph.model.errors import InvalidGraph, InvalidInput
from taskgraph.model.ids import task_id_of
from taskgraph.model.json_pointer import NoSuchPlace, look_up, steps
from taskgraph.model.json_strict import compact_json
from taskgraph.model.states import TASK_STORED, TaskState
from taskgraph.protocol.propagation import resolution_text

A, B = task_id_of("g", "a"), task_id_of("g", "b")


# --- what is kept ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [None, 0, "x", [], {"a": [1, {"b": None}]}, "é😀\x01", -(2**63), 1.5])
def test_a_short_result_is_handed_on(value: Any):
    assert handed_on(json.dumps(value, indent=4).encode()) == {OUTPUT: value}
    assert handed_on(json.dumps(value, ensure_ascii=False).encode()) == {OUTPUT: value}


def test_the_limit_is_of_the_value_and_not_of_how_it_was_written():
    most = limits.OUTPUT_CHARS_MAX
    assert OUTPUT in handed_on(json.dumps("x" * (most - 2)).encode())
    assert OUTPUT in handed_on(json.dumps(["é" * (most - 4)], indent=8).encode()), "escapes and blanks do not count"
    for value in ("x" * (most - 1), "😀" * (most // 2), ["x"] * most, "x" * (1 << 20)):
        (why,) = handed_on(json.dumps(value).encode()).values()
        assert why == "the result is longer than 4,000 UTF-16 units (OUTPUT_CHARS_MAX)"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (r'"\ud800"', "half a character"),
        (str(2**63), "64 bits"),
        ("1" * 4_000, "64 bits"),
        ("[" * 57 + "]" * 57, "deep"),
        ("1e999", "64 bits"),
    ],
)
def test_what_no_message_could_carry_is_not_handed_on(text: str, word: str):
    kept = handed_on(text.encode())
    assert set(kept) == {NO_OUTPUT}
    assert word in kept[NO_OUTPUT]


def test_an_output_stays_where_a_resolution_is_cut():
    urls = dict.fromkeys(("resultUrl", "logsUrl"), "\x01" * 4_096)
    resolution = {"failed": False, OUTPUT: "x" * 3_900, **urls, "own": "y" * 40_000}
    assert json.loads(resolution_text(resolution)) == {"failed": False, OUTPUT: "x" * 3_900, "reason": ""}


# --- what a document may ask for -------------------------------------------------------------------------------


def problems(tasks: Any, kind: Any = "graph", **more: Any) -> list[tuple[str, str]]:
    with pytest.raises(InvalidGraph) as caught:
        read_document(json.dumps({"tasks": tasks, **more}), kind=kind)
    return [(problem.code, problem.pointer) for problem in caught.value.problems]


def taking(*labels: str, requires: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    arguments = {f"x{number}": {"$result": label, **more} for number, label in enumerate(labels)}
    return {"requires": list(requires), "task": {"payload": {"call": "f", "arguments": arguments}}}


def test_a_task_may_take_from_whatever_comes_before_it():
    tasks = {
        "a": taking(),
        "b": taking("a", requires=("a",), path="/x/0", default=None),
        "c": taking("a", "b", requires=("b",)),
        "d": taking(requires=("c",)),
        "e": taking("a", "b", "c", "d", requires=("d",), path=""),
    }
    document = read_document(json.dumps({"tasks": tasks}))
    assert read_document(json.dumps(document_object(document))) == document
    assert external_labels(document) == frozenset()


def test_nothing_else_can_be_taken():
    tasks = {
        "a": taking(),
        "b": taking("a"),
        "c": taking("b", "d", requires=("a",)),
        "d": taking("c", "d", "missing", requires=("c",)),
    }
    assert problems(tasks) == [
        ("unknown-label", "/tasks/d/task/payload/arguments/x2/$result"),
        ("not-required", "/tasks/b/task/payload/arguments/x0/$result"),
        ("not-required", "/tasks/c/task/payload/arguments/x0/$result"),
        ("not-required", "/tasks/c/task/payload/arguments/x1/$result"),
        ("not-required", "/tasks/d/task/payload/arguments/x1/$result"),
    ]


@pytest.mark.parametrize(
    "reference",
    [
        {"$result": 1},
        {"$result": ""},
        {"$result": "a\n"},
        {"$result": "a", "x": 1},
        {"$result": "a", "label": "a"},
        {"$result": A, "label": "a"},
        {"$result": "a", "path": 1},
        {"$result": "a", "path": "x"},
        {"$result": "a", "path": "/~2"},
        {"$result": "a", "$subs": "taskId:a"},
    ],
)
@pytest.mark.parametrize("place", ["own", "command", "cwd"])
def test_a_reference_of_a_wrong_form_is_told_once(reference: Any, place: str):
    payload = {"command": ["x", reference]} if place == "command" else {"command": ["x"], place: reference}
    (found,) = problems({"a": taking(), "b": {"requires": ["a"], "task": {"payload": payload}}})
    assert found == ("bad-result", f"/tasks/b/task/payload/{place}" + ("/1" if place == "command" else ""))


def test_the_payload_itself_is_no_result():
    tasks = {"a": taking(), "b": {"requires": ["a"], "task": {"payload": {"$result": "a"}}}}
    assert problems(tasks) == [("bad-result", "/tasks/b/task/payload")]


def test_groups_are_requirements_too():
    tasks = {"a": taking(), "b": taking(), "c": taking("a", "b", requires=("ab",)), "d": taking("a", "c", "x")}
    groups = {"ab": {"tasks": ["a", "b"]}, "late": {"tasks": ["d", "x"], "requires": ["c"]}}
    assert problems({**tasks, "x": taking()}, groups=groups) == [
        ("not-required", "/tasks/d/task/payload/arguments/x2/$result")
    ]


def test_in_an_extension_the_graph_has_a_word():
    tasks = {"x": taking("a", "b", requires=("a",)), "y": taking("a", "b", "c", requires=("x",)), "z": taking("x")}
    assert problems(tasks, "extension") == [("not-required", "/tasks/z/task/payload/arguments/x0/$result")]
    del tasks["z"]
    document = read_document(json.dumps({"tasks": tasks}), kind="extension")
    assert external_labels(document) == {"a", "b", "c"}
    assert results_without_requirement(document) == {"x": {"b"}, "y": {"b", "c"}}


def test_very_many_are_looked_up_in_little_time():
    size = 6_000
    tasks: dict[str, Any] = {"t0": taking()}
    for number in range(1, size):
        tasks[f"t{number}"] = taking(f"t{number * 7919 % number}", requires=(f"t{number - 1}",))
    asked = {
        label: [each["$result"] for each in node["task"]["payload"]["arguments"].values()]
        for label, node in tasks.items()
    }
    requirements = {label: node["requires"] for label, node in tasks.items()}
    began = time.monotonic()
    assert without_requirement(asked, requirements) == {}
    assert time.monotonic() - began < 5
    assert without_requirement({"t5": ["t6"]}, requirements) == {"t5": {"t6"}}


LABELS = "abcdefgh"


@given(
    st.fixed_dictionaries({label: st.sets(st.sampled_from(LABELS), max_size=3) for label in LABELS}),
    st.fixed_dictionaries({label: st.lists(st.sampled_from(LABELS), max_size=3) for label in LABELS}),
)
@settings(deadline=None)
def test_what_is_required_agrees_with_a_search(edges: dict[str, set[str]], asked: dict[str, list[str]]):
    requirements = {label: sorted(other for other in edges[label] if other < label) for label in LABELS}
    before: dict[str, set[str]] = {}
    for label in LABELS:
        before[label] = {each for required in requirements[label] for each in (required, *before[required])}
    expected = {label: set(wanted) - before[label] for label, wanted in asked.items()}
    assert without_requirement(asked, requirements) == {label: left for label, left in expected.items() if left}


# --- what a row holds ------------------------------------------------------------------------------------------


def stored(task: dict[str, Any]) -> dict[str, Any]:
    made = substitute(task, lambda label: task_id_of("g", label))
    assert json.loads(json.dumps(made)) == made
    return made


def test_on_a_row_a_reference_names_the_task():
    task = {
        "payload": {"x": [{"$result": "a", "path": "/0", "default": {"$subs": "taskId:b"}}], "y": {"$subs": "taskId:b"}}
    }
    made = stored(task)
    assert made["payload"] == {
        "x": [{"$result": A, "label": "a", "path": "/0", "default": {"$subs": "taskId:b"}}],
        "y": B,
    }
    assert may_take(json.dumps(made))
    assert taken_from(made) == [A]
    one, two = (
        read_document(json.dumps({"tasks": {"a": taking(), "x": taking("a", requires=("a",), default=d)}}))
        for d in (1, 2)
    )
    assert node_digest(one.tasks["x"]) != node_digest(two.tasks["x"])


def given_for(task: dict[str, Any], **outputs: Any) -> Any:
    resolved = {
        task_id_of("g", label): ("completed", {"failed": False, OUTPUT: value}) for label, value in outputs.items()
    }
    return put_in(stored(task), resolved)["payload"]


def test_a_payload_is_given_what_it_asks_for():
    task = {
        "payload": {"all": {"$result": "a"}, "part": [{"$result": "a", "path": "/x/1/a~1b"}], "other": {"$result": "b"}}
    }
    value = {"x": [0, {"a/b": None}]}
    assert given_for(task, a=value, b=[]) == {"all": value, "part": [None], "other": []}


def test_where_only_text_can_stand_json_is_written():
    payload = {
        "command": ["x", {"$result": "a", "path": "/n"}, {"$result": "a", "path": "/t"}, {"$result": "a"}],
        "env": {"A": {"$result": "a", "path": "/n"}},
        "cwd": {"$result": "a", "path": "/t"},
        "timeout": {"$result": "a", "path": "/n"},
    }
    expected = {"command": ["x", "3", "é", '{"n":3,"t":"é"}'], "env": {"A": "3"}, "cwd": "é", "timeout": 3}
    assert given_for({"payload": payload}, a={"n": 3, "t": "é"}) == expected
    whole = {"payload": {"command": {"$result": "a"}, "env": {"$result": "b"}}}
    assert given_for(whole, a=["x", "y"], b={"A": "b"}) == {"command": ["x", "y"], "env": {"A": "b"}}


@pytest.mark.parametrize(
    ("state", "resolution", "more", "expected"),
    [
        ("skipped", {"skipped": True}, {}, None),
        ("failed", {"failed": True}, {}, None),
        ("exception", {"failed": True}, {"default": 7}, 7),
        ("skipped", None, {"default": None, "path": "/x"}, None),
        ("completed", {"failed": False}, {"default": 7}, 7),
        ("completed", {"failed": False, OUTPUT: {"y": 1}}, {"default": 7, "path": "/x"}, 7),
        ("completed", {"failed": False, OUTPUT: {"x": 1}}, {"default": 7, "path": "/x"}, 1),
        ("completed", {"failed": False, OUTPUT: None}, {}, None),
    ],
)
def test_defaults(state: str, resolution: Any, more: dict[str, Any], expected: Any):
    task = stored({"payload": {"x": {"$result": "a", **more}}})
    assert put_in(task, {A: (state, resolution)})["payload"] == {"x": expected}


@pytest.mark.parametrize(
    ("resolved", "more", "sentence"),
    [
        (("completed", {"failed": False}), {}, "the result of “a” is needed, and its run left none"),
        (
            ("completed", {"failed": False, NO_OUTPUT: "too long"}),
            {"path": "/x"},
            "the result of “a” at “/x” is needed, and its run has none to hand on: too long",
        ),
        (
            ("completed", {OUTPUT: {"x": [1, 2]}}),
            {"path": "/x/2"},
            "the result of “a” has nothing at “/x/2”: there is an array of 2 at “/x”",
        ),
        (
            ("completed", {OUTPUT: {}}),
            {"path": "/x"},
            "the result of “a” has nothing at “/x”: there is an object without keys",
        ),
        (("completed", {OUTPUT: 3}), {"path": "/x"}, "the result of “a” has nothing at “/x”: there is 3"),
        (("running", None), {}, "the result of “a” is needed, and that task is running"),
        (("completed", None), {}, "the result of “a” is needed, and that task is completed"),
        (("", None), {}, "the result of “a” is needed, and that task is not there"),
    ],
)
def test_what_is_not_there_is_said_with_what_is(resolved: Any, more: dict[str, Any], sentence: str):
    task = stored({"payload": {"x": {"$result": "a", **more}}})
    with pytest.raises(NoResult) as caught:
        put_in(task, {A: resolved})
    assert str(caught.value) == sentence


def test_what_was_put_in_is_not_looked_into_again():
    smuggled = {"$result": B, "label": "b"}
    assert given_for({"payload": {"x": {"$result": "a"}}}, a=smuggled) == {"x": smuggled}
    assert given_for({"payload": {"x": {"$result": "a", "path": "/n", "default": smuggled}}}, a={}) == {"x": smuggled}


@pytest.mark.parametrize(
    "literal", [{"$result": "a"}, {"$result": A}, {"$result": A, "label": "a", "x": 1}, {"$result": 1, "label": ""}]
)
def test_what_an_older_version_wrote_means_nothing(literal: Any):
    definition = {"payload": {"x": literal, "y": {"$result": A, "label": "a", "path": 5}}}
    assert taken_from(definition) == []
    assert put_in(definition, {}) == definition


def test_a_payload_does_not_grow_without_bound():
    task = stored({"payload": {"x": [{"$result": "a"}] * 10_000}})
    with pytest.raises(NoResult, match="450,000"):
        put_in(task, {A: ("completed", {OUTPUT: "x" * 3_900})})
    assert len(put_in(task, {A: ("completed", {OUTPUT: 1})})["payload"]["x"]) == 10_000


def test_a_payload_as_deep_as_any_is_put_together():
    deep: Any = {"$result": "a"}
    for _ in range(limits.DOCUMENT_DEPTH_MAX - 8):
        deep = [deep]
    value = json.loads("[" * 50 + "]" * 50)
    made = given_for({"payload": {"x": deep}}, a=value)
    assert compact_json(made).count("[") == limits.DOCUMENT_DEPTH_MAX - 8 + 50


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["payload", "executor", "own"]), JSON, max_size=3))
@settings(deadline=None)
def test_without_a_result_nothing_is_replaced(definition: dict[str, Any]):
    before = copy.deepcopy(definition)
    made = put_in(definition, {})
    assert made == before == definition
    assert made.get("payload") is definition.get("payload")


@given(JSON, st.data())
@settings(deadline=None)
def test_every_place_of_a_value_can_be_asked_for(value: Any, data: st.DataObject):
    here, path = value, ""
    while isinstance(here, dict | list) and here and data.draw(st.booleans()):
        key = data.draw(st.sampled_from(list(here) if isinstance(here, dict) else range(len(here))))
        here, path = here[key], path + "/" + str(key).replace("~", "~0").replace("/", "~1")
    assert look_up(value, path) == here
    assert given_for({"payload": {"x": {"$result": "a", "path": path}}}, a=value) == {"x": here}
    for wrong in (path + "/no such", path + "/-", path + "/00"):
        if not (isinstance(here, dict) and wrong.rpartition("/")[2] in here):
            with pytest.raises(NoSuchPlace):
                look_up(value, wrong)


def test_pointers():
    assert steps("") == ()
    assert steps("/") == ("",)
    assert steps("/a~1b/~0/~01") == ("a/b", "~", "~1")
    for text in ("a", "/~", "/~2", "~0", "/a/~3b"):
        with pytest.raises(ValueError, match="pointer"):
            steps(text)


def test_every_state_has_an_answer():
    task = stored({"payload": {"x": {"$result": "a"}}})
    for state in TASK_STORED:
        resolution = {OUTPUT: 1} if state == TaskState.COMPLETED else {}
        if state in ("unscheduled", "pending", "running"):
            with pytest.raises(NoResult):
                put_in(task, {A: (state, resolution)})
        else:
            assert put_in(task, {A: (state, resolution)})["payload"] == {"x": 1 if state == "completed" else None}


def test_a_task_in_the_making_stands_for_its_result():
    graph = Graph()
    first = graph.task("first", call="f")
    graph.task("last", call="g", requires=first, arguments={"x": first.result("/a", default=None), "y": first.result()})
    assert graph.validate().tasks["last"].task["payload"]["arguments"] == {
        "x": {"$result": "first", "path": "/a", "default": None},
        "y": {"$result": "first"},
    }
    with pytest.raises(InvalidInput, match="first"):
        first.result(defualt=1)
