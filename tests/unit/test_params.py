"""Parameters: declared, given, and put in before anything else is looked at; every mistake is told at once."""

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskgraph.documents.canonical import content_hash, document_object, node_digest
from taskgraph.documents.nodes import GraphDocument
from taskgraph.documents.parameters import Replacing, Values, Words, typed
from taskgraph.documents.problems import Report
from taskgraph.documents.read import Given, document_from_object, read_document
from taskgraph.interfaces.client.graph import Graph
from taskgraph.model import limits
from taskgraph.model.errors import InvalidGraph, InvalidInput

DECLARED: dict[str, Any] = {
    "version": {"type": "string", "description": "What is released."},
    "regions": {"type": "array", "default": ["eu", "us"]},
    "n": {"type": "integer", "default": 3},
    "stage": {"enum": ["test", "production"], "default": "test"},
    "any": {"default": {"deep": {"a/b": [10, 20]}}},
}


def release(**tasks: Any) -> dict[str, Any]:
    return {"params": DECLARED, "tasks": {label: {"task": task} for label, task in tasks.items()}}


def read(obj: Any, kind: Any = "graph", inherited: Any = None, **values: Any) -> GraphDocument:
    return read_document(json.dumps(obj), kind=kind, given=Given(values, inherited or {}))


def problems(obj: Any, kind: Any = "graph", inherited: Any = None, **values: Any) -> list[tuple[str, str]]:
    with pytest.raises(InvalidGraph) as caught:
        read(obj, kind, inherited, **values)
    for problem in caught.value.problems:
        assert problem.message.endswith((".", "?"))
        assert problem.remedy
    return [(problem.code, problem.pointer) for problem in caught.value.problems]


def test_values_are_put_in_everywhere_inside_a_definition():
    task = {
        "target": {"$param": "stage"},
        "metadata": {"name": {"$param": "version"}},
        "own": [{"x": {"$param": "n"}}, {"$param": "any", "path": "/deep/a~1b/1"}],
        "payload": {"call": "f", "arguments": {"regions": {"$param": "regions"}, "n": {"$param": "n"}, "plain": [1]}},
    }
    document = read(release(a=task), version="1.4", n=5)
    assert document.tasks["a"].task == {
        "target": "test",
        "metadata": {"name": "1.4"},
        "own": [{"x": 5}, 20],
        "payload": {"call": "f", "arguments": {"regions": ["eu", "us"], "n": 5, "plain": [1]}},
    }
    assert document.values == {
        **{name: each.get("default") for name, each in DECLARED.items()},
        "version": "1.4",
        "n": 5,
    }
    assert document.params["version"] == {**DECLARED["version"], "default": "1.4"}


def test_where_only_text_can_stand_a_value_is_written_as_json():
    payload = {
        "command": [
            "x",
            {"$param": "n"},
            {"$param": "regions"},
            {"$param": "version"},
            {"$param": "regions", "path": "/0"},
        ],
        "env": {"N": {"$param": "n"}},
        "cwd": {"$param": "n"},
        "timeout": {"$param": "n"},
        "own": {"$param": "n"},
    }
    expected = {
        "command": ["x", "3", '["eu","us"]', "v 1", "eu"],
        "env": {"N": "3"},
        "cwd": "3",
        "timeout": 3,
        "own": 3,
    }
    assert read(release(a={"payload": payload}), version="v 1").tasks["a"].task["payload"] == expected
    named = {"executor": {"$param": "any"}, "payload": payload}
    assert read(release(a=named), version="v 1", any="command").tasks["a"].task["payload"] == expected
    for_python = {"executor": "python", "payload": payload}
    assert read(release(a=for_python), version="v 1").tasks["a"].task["payload"]["command"][1] == 3


def test_a_whole_command_environment_or_payload_may_be_a_parameter():
    declared = {
        "argv": {"default": ["make", "all"]},
        "env": {"default": {"A": "b"}},
        "all": {"default": {"seconds": 1}},
    }
    tasks = {
        "a": {"task": {"payload": {"command": {"$param": "argv"}, "env": {"$param": "env"}}}},
        "b": {"task": {"executor": "sleep", "payload": {"$param": "all"}}},
    }
    document = read({"params": declared, "tasks": tasks})
    assert document.tasks["a"].task == {"payload": {"command": ["make", "all"], "env": {"A": "b"}}}
    assert document.tasks["b"].task == {"executor": "sleep", "payload": {"seconds": 1}}


def test_what_was_put_in_is_judged_like_anything_else():
    task = {"target": {"$param": "stage"}, "payload": {"command": {"$param": "n"}, "env": {"$subs": {"$param": "n"}}}}
    declared = {**DECLARED, "stage": {"default": "No Target"}}
    assert problems({"params": declared, "tasks": {"a": {"task": task}}}, version="1") == [
        ("bad-form", "/tasks/a/task/target"),
        ("wrong-type", "/tasks/a/task/payload/command"),
        ("bad-subs", "/tasks/a/task/payload/env"),
    ]


def test_all_mistakes_are_told_at_once_with_their_places():
    task = {"a": {"$param": "version"}, "b": {"$param": "verson"}, "c": {"$param": "n", "x": 1}, "d": {"$param": 1}}
    more = {
        "a": {"$param": "n", "path": "n"},
        "b": [{"$param": "regions", "path": "/2"}],
        "c": {"$param": "n", "path": "/a"},
    }
    obj = {**release(a=task, b=more, c={"$param": "n"}), "tags": 1}
    assert problems(obj, n="3", stage="prod", verson="1", regions=None) == [
        ("wrong-type", "/tags"),
        ("unknown-param", "/params"),
        ("missing-param", "/params/version"),
        ("wrong-type", "/params/regions"),
        ("wrong-type", "/params/n"),
        ("not-allowed", "/params/stage"),
        ("unknown-param", "/tasks/a/task/b/$param"),
        ("bad-param", "/tasks/a/task/c"),
        ("bad-param", "/tasks/a/task/d"),
        ("bad-param", "/tasks/c/task"),
    ]
    assert problems(obj | {"tags": {}}, version="1")[-4:] == [
        ("bad-param", "/tasks/b/task/a/path"),
        ("no-such-path", "/tasks/b/task/b/0/path"),
        ("no-such-path", "/tasks/b/task/c/path"),
        ("bad-param", "/tasks/c/task"),
    ]


def test_words_say_what_there_is_and_what_was_meant():
    with pytest.raises(InvalidGraph) as caught:
        read(release(a={"x": {"$param": "any", "path": "/deep/b"}, "y": {"$param": "regoins"}}), version="1", stag="x")
    told = [problem.message for problem in caught.value.problems]
    assert told == [
        "“stag” is given, and is not a parameter of this graph. Did you mean “stage”?",
        "The parameter “any” has nothing at “/deep/b”: there is an object with the key “a/b” at “/deep”.",
        "“regoins” is not a parameter of this graph. Did you mean “regions”?",
    ]
    text = '{"params": {\n"n": {"default": 1,\n"type": "string"}},\n"tasks": {"a": {\n"task": {"x": {"$param": "m"}}}}}'
    with pytest.raises(InvalidGraph) as caught:
        read_document(text)
    assert [problem.line for problem in caught.value.problems] == [2, 5]


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ([], [("wrong-type", "/params")]),
        ({"n": 3}, [("wrong-type", "/params/n")]),
        ({"n": {"type": "text", "default": 1}}, [("not-allowed", "/params/n/type")]),
        ({"n": {"default": 1, "requried": True}}, [("unknown-key", "/params/n/requried")]),
        ({"1": {"default": 1}}, [("bad-name", "/params/1")]),
        ({"n": {"default": 1, "enum": []}}, [("empty", "/params/n/enum"), ("not-allowed", "/params/n/default")]),
        ({"n": {"type": "integer", "default": True}}, [("wrong-type", "/params/n/default")]),
        ({"n": {"type": "number", "default": "1"}}, [("wrong-type", "/params/n/default")]),
        ({"n": {"default": {"x": [{"$param": "n"}]}}}, [("bad-param", "/params/n/default")]),
        ({"n": {"default": "x" * 8_000}}, [("too-large", "/params")]),
        ({f"n{i}": {"default": 1} for i in range(101)}, [("too-many", "/params")]),
    ],
)
def test_declarations_of_a_wrong_form(declared: Any, expected: list[tuple[str, str]]):
    assert problems({"params": declared, "tasks": {"a": {"task": {}}}}) == expected


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("string", ["", "x"], [1, None, []]),
        ("number", [1, 0.5, -1], [True, "1", None]),
        ("integer", [1, 2.0], [True, 0.5, "1"]),
        ("boolean", [True, False], [0, "true"]),
        ("object", [{}, {"a": 1}], [[], None]),
        ("array", [[], [1]], [{}, "[]"]),
    ],
)
def test_types(kind: str, good: list[Any], bad: list[Any]):
    obj = {"params": {"p": {"type": kind}}, "tasks": {"a": {"task": {"x": {"$param": "p"}}}}}
    for value in good:
        assert read(obj, p=value).tasks["a"].task["x"] == value
    for value in bad:
        assert problems(obj, p=value) == [("wrong-type", "/params/p")]


def test_what_is_typed_is_read_by_the_declared_type():
    assert typed(["a=b=c", "b=", "c:=[1, {}]", "d.e-f=3"]) == {"a": "b=c", "b": "", "c": [1, {}], "d.e-f": "3"}
    assert all(type(value) is Words for name, value in typed(["a=1", "b=2"]).items())
    obj = release(a={"x": {"$param": "n"}, "y": {"$param": "version"}, "z": {"$param": "regions"}})
    values = typed(["n=4", "version=1.4", 'regions=["x"]'])
    assert read(obj, **values).tasks["a"].task == {"x": 4, "y": "1.4", "z": ["x"]}
    assert type(read(obj, **values).values["version"]) is str
    assert problems(obj, **typed(["n=four", "version=1"])) == [("wrong-type", "/params/n")]
    for word in (
        "a",
        "=b",
        "1=b",
        "a b=c",
        "a:=",
        "a:=[",
        "a:=NaN",
        "a:=" + "[" * 100,
        ":=1",
        "a:=9999999999999999999999",
    ):
        with pytest.raises(InvalidInput, match="--param"):
            typed([word])
    with pytest.raises(InvalidInput, match="twice"):
        typed(["a=1", "a:=1"])


def test_a_number_that_is_none_is_told_as_such():
    for where in ('"default": NaN', '"enum": [1e999], "default": 1', '"default": {"a": [-Infinity]}'):
        text = f'{{"params": {{"n": {{{where}}}}}, "tasks": {{"a": {{"task": {{"x": {{"$param": "n"}}}}}}}}}}'
        with pytest.raises(InvalidGraph) as caught:
            read_document(text)
        assert {problem.code for problem in caught.value.problems} == {"number"}


def test_python_values_must_be_json():
    obj = release(a={})
    for value, code in ((object(), "not-json"), (float("nan"), "number"), ("\ud800", "surrogate"), (2**70, "number")):
        assert problems(obj, version="1", any=value) == [(code, "/params/any")]
    nested: Any = []
    for _ in range(70):
        nested = [nested]
    assert ("depth", "/params/any") in [(code, where[:11]) for code, where in problems(obj, version="1", any=nested)]


def test_an_extension_has_the_values_of_its_graph():
    obj = {"tasks": {"x": {"requires": ["a"], "task": {"v": {"$param": "version"}}}}}
    assert read(obj, "extension", {"version": "1.4"}).tasks["x"].task == {"v": "1.4"}
    assert read(obj, "extension", {"version": "1.4"}, version="2").tasks["x"].task == {"v": "2"}
    assert read(obj, "extension", None, version="2").tasks["x"].task == {"v": "2"}, "what is used may be given"
    assert problems(obj, "extension", {"verson": "1.4"}) == [("unknown-param", "/tasks/x/task/v/$param")]
    assert problems(obj, "extension", {"version": "1"}, other=1) == [("unknown-param", "/params")]
    own = {"params": {"version": {"type": "string", "default": "0"}}, **obj}
    assert read(own, "extension").tasks["x"].task == {"v": "0"}
    assert read(own, "extension", {"version": "1.4"}).tasks["x"].task == {"v": "1.4"}
    assert problems(own, "extension", {"version": 14}) == [("wrong-type", "/params/version")]
    assert read(own, "extension", {"version": "1.4"}).params == {}, "a request holds no parameters any more"


def test_the_same_values_are_the_same_content():
    obj = release(a={"x": {"$param": "version"}})
    one, two, other = read(obj, version="1"), read(obj, version="1", n=3), read(obj, version="2")
    assert content_hash(one) == content_hash(two) != content_hash(other)
    assert content_hash(read(obj, version="1", n=4)) != content_hash(one), "what is kept is part of it"
    again = document_from_object(document_object(one))
    assert again == one
    plain = {"tasks": {"a": {"task": {"x": "1"}}}}
    assert content_hash(read(plain)) != content_hash(one)
    assert node_digest(read(plain).tasks["a"]) == node_digest(one.tasks["a"])


def test_a_graph_in_the_making_keeps_its_parameters():
    graph = Graph(params={"who": {"type": "string"}})
    graph.task("a", command=["echo", "x"], target="t")
    graph.task("b", definition={"payload": {"command": ["echo", {"$param": "who"}]}})
    with pytest.raises(InvalidGraph):
        graph.validate()
    with pytest.raises(InvalidGraph):
        graph.plan()
    assert graph.plan(params={"who": "me"}).tasks == 2
    again = Graph.from_document(json.loads(graph.to_json()))
    assert again.to_dict() == graph.to_dict()
    assert "b" in graph.to_mermaid()
    assert again.validate(params={"who": "you"}).tasks["b"].task == {"payload": {"command": ["echo", "you"]}}
    with pytest.raises(InvalidGraph):
        Graph.from_document({"params": {"who": 1}, "tasks": {"a": {"task": {}}}})
    with pytest.raises(InvalidGraph):
        Graph.from_document({"tasks": {"a": {"task": {"x": {"$param": "who"}}}}})


# --- hostile ---------------------------------------------------------------------------------------------------


def test_a_definition_does_not_grow_without_bound():
    text = {"$param": "p"}
    obj = {"params": {"p": {"default": "x" * 7_900}}, "tasks": {"a": {"task": {"x": [text] * 40_000}}}}
    began = time.monotonic()
    assert problems(obj) == [("too-large", "/tasks/a/task")]
    assert time.monotonic() - began < 10


def test_a_definition_does_not_grow_too_deep():
    deep: Any = 1
    for _ in range(40):
        deep = [deep]
    inside: Any = {"$param": "p"}
    for _ in range(limits.DOCUMENT_DEPTH_MAX - 40 - 5):
        inside = [inside]
    obj = {"params": {"p": {"default": deep}}, "tasks": {"a": {"task": {"payload": {"x": inside}}}}}
    made = read(obj)
    assert read_document(json.dumps(document_object(GraphDocument(made.tasks)))).tasks == made.tasks
    obj["tasks"]["a"]["task"]["payload"]["x"] = [inside]
    assert [code for code, _ in problems(obj)] == ["depth"]


def test_many_mistakes_are_counted():
    with pytest.raises(InvalidGraph) as caught:
        read({"tasks": {f"t{i}": {"task": {"x": {"$param": "p"}}} for i in range(5_000)}})
    assert "4,950 more" in caught.value.problems[-1].message


def test_an_escape_hides_no_parameter():
    text = r'{"params": {"n": {"default": 1}}, "tasks": {"a": {"task": {"x": {"\u0024par\u0061m": "n"}}}}}'
    assert read_document(text).tasks["a"].task == {"x": 1}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=4) | st.just("$param"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)
DEFINITIONS = st.dictionaries(st.sampled_from(["payload", "executor", "target", "own"]), JSON, max_size=4)


@given(DEFINITIONS)
@settings(deadline=None)
def test_without_a_param_nothing_is_replaced(task: dict[str, Any]):
    report = Report("x")
    made = Replacing(Values({"n": 1}), report).definition("a", task)
    assert made is task
    assert report.count == 0


@given(DEFINITIONS, JSON, st.data())
@settings(deadline=None)
def test_what_is_put_in_is_the_value_and_all_else_stays(task: dict[str, Any], value: Any, data: st.DataObject):
    before = json.dumps(task)
    marked = json.loads(before)
    here: Any = marked
    while isinstance(here, dict | list) and here:
        key = data.draw(st.sampled_from(list(here) if isinstance(here, dict) else range(len(here))))
        if not isinstance(here[key], dict | list) or not here[key] or data.draw(st.booleans()):
            expected = json.loads(json.dumps(marked))
            there: Any = expected
            for token in path_to(marked, here):
                there = there[token]
            here[key], there[key] = {"$param": "p"}, value
            break
        here = here[key]
    else:
        return
    report = Report("x")
    before = json.dumps(marked)
    made = Replacing(Values({"p": value}), report).definition("a", marked)
    assert json.dumps(marked) == before, "what was handed in is not changed"
    payload = made.get("payload")
    if made.get("executor") == "command" or (
        "executor" not in made and isinstance(payload, dict) and "command" in payload
    ):
        return  # where text is asked for, JSON is written: tested above
    assert (made, report.count) == (expected, 0)


def path_to(root: Any, wanted: Any) -> list[Any]:
    stack: list[tuple[list[Any], Any]] = [([], root)]
    while stack:
        path, here = stack.pop()
        if here is wanted:
            return path
        if isinstance(here, dict | list):
            stack += [([*path, key], here[key]) for key in (here if isinstance(here, dict) else range(len(here)))]
    raise AssertionError


@pytest.mark.parametrize("task", [{"target": {"$param": "q"}, "$param": {"x": 1}}, {"payload": {"x": {"$param": 5}}}])
def test_an_object_of_a_wrong_form_is_not_overlooked_where_no_other_is(task: dict[str, Any]) -> None:
    """Document 1167254 of 2026-11-25."""
    with pytest.raises(InvalidGraph) as caught:
        document_from_object({"tasks": {"a": {"task": task}}})
    assert [each.code for each in caught.value.problems] == ["bad-param"]
