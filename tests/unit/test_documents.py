"""Reading documents: every kind of mistake has a place, a code and words; nothing else ever comes out of the door."""

import contextlib
import hashlib
import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskgraph.documents.canonical import content_hash, document_object, node_digest
from taskgraph.documents.nodes import GraphDocument, TaskNode
from taskgraph.documents.problems import nearest
from taskgraph.documents.read import document_from_object, read_document
from taskgraph.documents.references import external_labels, references, substitute
from taskgraph.documents.warnings import is_one_edit, warnings
from taskgraph.model import json_strict, limits
from taskgraph.model.errors import InvalidGraph, InvalidInput, Problem
from taskgraph.model.json_strict import canonical_json

NOOP = {"executor": "noop"}


def problems_of(text: bytes | str, kind: Any = "graph") -> list[Problem]:
    with pytest.raises(InvalidGraph) as caught:
        read_document(text, kind=kind)
    return list(caught.value.problems)


def found(text: bytes | str, kind: Any = "graph") -> list[tuple[str, str]]:
    return [(problem.code, problem.pointer) for problem in problems_of(text, kind)]


def graph(**tasks: Any) -> str:
    return json.dumps({"tasks": tasks})


def of_task(task: Any) -> list[tuple[str, str]]:
    return [(code, pointer.removeprefix("/tasks/a/task")) for code, pointer in found(graph(a={"task": task}))]


# --- what is accepted ------------------------------------------------------------------------------------------


def test_the_whole_of_the_format():
    document = read_document(
        """{
          "routing": "nightly", "metadata": {"name": "n", "owner": "o"}, "tags": {"k": "v"},
          "tasks": {
            "build @ (a, b)/c+": {"task": {"payload": {"command": ["make"]}, "anything": [1, null]}},
            "test": {"requires": ["build @ (a, b)/c+"], "reruns": 5.0, "task": {
                "routing": "x", "deadline": "2030-01-31T12:00:00.5+01:00", "target": "big-one", "executor": "own",
                "metadata": {"name": "n", "more": 1},
                "payload": {"deep": [{"$subs": "taskId:build @ (a, b)/c+"}]}}}}}"""
    )
    assert list(document.tasks) == ["build @ (a, b)/c+", "test"]
    test = document.tasks["test"]
    assert (test.requires, test.reruns, document.edges) == (("build @ (a, b)/c+",), 5, 1)
    assert type(test.reruns) is int
    assert references(test) == {"build @ (a, b)/c+"}
    assert (document.routing, document.metadata, document.tags) == ("nightly", {"name": "n", "owner": "o"}, {"k": "v"})


@pytest.mark.parametrize("text", ['\ufeff{"tasks":{"é":{"task":{}}}}', '{"tasks":{"\\u00e9":{"task":{}}}}'])
def test_a_byte_order_mark_and_escapes_are_fine(text: str):
    for given_text in (text, text.encode()):
        assert list(read_document(given_text).tasks) == ["é"]


def test_what_the_command_executor_takes():
    payload = {
        "command": ["echo", {"$subs": "taskId:a"}],
        "env": {"A": "", "B": {"$subs": "taskId:a"}},
        "cwd": "/tmp",
        "timeout": 0.5,
        "more": {},
    }
    assert read_document(graph(a={"task": {"payload": payload}})).tasks["a"].task == {"payload": payload}


# --- what is not -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "code", "line", "words"),
    [
        (b'{"tasks":\n {"\xff": 1}}', "encoding", 2, "Byte 13"),
        ('{"tasks": {"a": {"task": {}}}}'.encode("utf-16"), "encoding", 1, "UTF-8"),
        ("", "syntax", None, "empty"),
        (" \n\t", "syntax", None, "empty"),
        ('{"tasks": {\n"a": {"task": {},}\n}}', "syntax", 2, "comma"),
        ("{'tasks': {}}", "syntax", 1, "double quotes"),
        ('{"tasks": {} // none\n}', "syntax", 1, "comments"),
        ('{"tasks": {}} {}', "syntax", 1, "one JSON value"),
        ('{"tasks": {}', "syntax", 1, "too early"),
        ('{"tasks": {"a\n": {}}}', "syntax", 1, "\\n"),
        ('{"tasks": {"a', "syntax", 1, "double quote"),
        ("[" * 100_000, "depth", 1, "64"),
        ('{"tasks":\n' + '{"a":' * 100_000 + "1" + "}" * 100_001, "depth", 2, "64"),
    ],
)
def test_what_is_no_json(text: bytes | str, code: str, line: int | None, words: str):
    (problem,) = problems_of(text)
    assert (problem.code, problem.pointer, problem.line) == (code, "", line)
    assert words in problem.message + problem.remedy


def test_the_bound_of_depth_is_exact():
    def nested(depth: int) -> str:
        # document, tasks, node, task, payload are the first five
        return graph(a={"task": {"payload": {"x": json.loads("[" * (depth - 5) + "]" * (depth - 5))}}})

    read_document(nested(limits.DOCUMENT_DEPTH_MAX))
    assert [problem.code for problem in problems_of(nested(limits.DOCUMENT_DEPTH_MAX + 1))] == ["depth"]
    document_from_object(json.loads(nested(limits.DOCUMENT_DEPTH_MAX)))
    with pytest.raises(InvalidGraph) as caught:
        document_from_object(json.loads(nested(limits.DOCUMENT_DEPTH_MAX + 1)))
    assert [problem.code for problem in caught.value.problems] == ["depth"]
    assert '"[[[' not in json.dumps("brackets in strings do not count: " + "[" * 100)
    read_document(graph(a={"task": {"payload": {"text": "[{" * 200 + '"\\'}}}))


def test_a_graph_without_tasks_is_not_told_to_leave_the_key_out_which_is_required() -> None:
    with pytest.raises(InvalidGraph) as caught:
        read_document('{"tasks": {}}')
    (problem,) = caught.value.problems
    assert problem.remedy == "Put at least one task in: the key is required."


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[]", [("wrong-type", "")]),
        ("null", [("wrong-type", "")]),
        ("{}", [("missing", "")]),
        ('{"tasks": {}}', [("empty", "/tasks")]),
        ('{"tasks": []}', [("wrong-type", "/tasks")]),
        ('{"tasks": {"a": 1}}', [("wrong-type", "/tasks/a")]),
        ('{"tasks": {"a": {"task": null}}}', [("wrong-type", "/tasks/a/task")]),
        ('{"tasks": {"": {"task": {}}}}', [("label", "/tasks/")]),
        ('{"tasks": {"a\\nb": {"task": {}}}}', [("label", "/tasks/a\nb")]),
        ('{"tasks": {"\\u0085": {"task": {}}}}', [("label", "/tasks/\x85")]),
        ('{"tasks": {"a/~b": 1}}', [("wrong-type", "/tasks/a~1~0b")]),
        ('{"tasks": {"\\ud800": {"task": {}}}}', [("surrogate", "/tasks/\\ud800")]),
        ('{"tasks": {"a": {"task": {"x": ["\\udc00"]}}}}', [("surrogate", "/tasks/a/task/x/0")]),
        ('{"tasks": {"a": {"task": {"x": NaN}}}}', [("number", "/tasks/a/task/x")]),
        ('{"tasks": {"a": {"task": {"x": [-Infinity, 1e999]}}}}', [("number", f"/tasks/a/task/x/{i}") for i in (0, 1)]),
        ('{"tasks": {"a": {"task": {"x": 9223372036854775808}}}}', [("number", "/tasks/a/task/x")]),
        (f'{{"tasks": {{"a": {{"task": {{"x": {"9" * 50_000}}}}}}}}}', [("number", "/tasks/a/task/x")]),
        ('{"tasks": {"a": {"task": {}}, "a": {"task": {}}}}', [("duplicate-key", "/tasks/a")]),
        ('{"tasks": {"a": {"task": {"x": {"y": 1, "y": 1}}}}}', [("duplicate-key", "/tasks/a/task/x/y")]),
        ('{"routing": "12345678901", "tasks": {"a": {"task": {}}}}', [("too-long", "/routing")]),
        ('{"tags": {"k": 1}, "tasks": {"a": {"task": {}}}}', [("wrong-type", "/tags/k")]),
        ('{"metadata": {"ownr": ""}, "tasks": {"a": {"task": {}}}}', [("unknown-key", "/metadata/ownr")]),
        ('{"version": 1, "tasks": {"a": {"task": {}}}}', [("unknown-key", "/version")]),
        ('{"tasks": {"a": {"task": {}, "payload": {}}}}', [("unknown-key", "/tasks/a/payload")]),
        ('{"tasks": {"a": {"task": {}, "reruns": -1}}}', [("out-of-range", "/tasks/a/reruns")]),
        ('{"tasks": {"a": {"task": {}, "reruns": 1000}}}', [("out-of-range", "/tasks/a/reruns")]),
        ('{"tasks": {"a": {"task": {}, "reruns": 1.5}}}', [("wrong-type", "/tasks/a/reruns")]),
        ('{"tasks": {"a": {"task": {}, "reruns": true}}}', [("wrong-type", "/tasks/a/reruns")]),
        ('{"tasks": {"a": {"task": {}, "requires": "b"}}}', [("wrong-type", "/tasks/a/requires")]),
        ('{"tasks": {"a": {"task": {}, "requires": null}}}', [("wrong-type", "/tasks/a/requires")]),
        ('{"tasks": {"a": {"task": {}, "requires": [[]]}}}', [("wrong-type", "/tasks/a/requires/0")]),
        ('{"tasks": {"a": {"task": {}, "requires": ["a"]}}}', [("self-requirement", "/tasks/a/requires/0")]),
        ('{"tasks": {"a": {"task": {}, "requires": ["b"]}}}', [("unknown-label", "/tasks/a/requires/0")]),
    ],
)
def test_each_mistake_has_its_place_and_code(text: str, expected: list[tuple[str, str]]):
    assert found(text) == expected


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ({"routing": "12345678901"}, [("too-long", "/routing")]),
        ({"deadline": "tomorrow"}, [("bad-date-time", "/deadline")]),
        ({"deadline": "2030-01-31"}, [("bad-date-time", "/deadline")]),
        ({"deadline": "2030-02-30T00:00:00Z"}, [("bad-date-time", "/deadline")]),
        ({"deadline": 5}, [("wrong-type", "/deadline")]),
        ({"payload": []}, [("wrong-type", "/payload")]),
        ({"executor": "Command"}, [("bad-form", "/executor")]),
        ({"target": "a--b"}, [("bad-form", "/target")]),
        ({"target": "a\n"}, [("bad-form", "/target")]),
        ({"target": "-a"}, [("bad-form", "/target")]),
        ({"metadata": {"name": "x" * 256}}, [("too-long", "/metadata/name")]),
        ({"executor": "command"}, [("missing", "")]),
        ({"executor": "command", "payload": {}}, [("missing", "/payload")]),
        ({"payload": {"command": "make"}}, [("wrong-type", "/payload/command")]),
        ({"payload": {"command": []}}, [("empty", "/payload/command")]),
        ({"payload": {"command": ["a", 1]}}, [("wrong-type", "/payload/command/1")]),
        ({"payload": {"command": ["a\0"]}}, [("bad-form", "/payload/command/0")]),
        ({"payload": {"command": ["a"], "env": {"A=": ""}}}, [("bad-name", "/payload/env/A=")]),
        ({"payload": {"command": ["a"], "env": {"A": 1}}}, [("wrong-type", "/payload/env/A")]),
        ({"payload": {"command": ["a"], "cwd": 1}}, [("wrong-type", "/payload/cwd")]),
        ({"payload": {"command": ["a"], "timeout": 0}}, [("out-of-range", "/payload/timeout")]),
        ({"payload": {"command": ["a"], "timeout": True}}, [("wrong-type", "/payload/timeout")]),
        ({"executor": "sleep", "payload": {}}, [("missing", "/payload")]),
        ({"executor": "sleep", "payload": {"seconds": -0.1}}, [("out-of-range", "/payload/seconds")]),
        ({"executor": "own", "payload": {"command": "anything"}}, []),
        ({"payload": {"x": {"$subs": "taskId:b"}}}, [("unknown-label", "/payload/x/$subs")]),
        ({"payload": {"x": [{"$subs": "taskId"}]}}, [("bad-subs", "/payload/x/0")]),
        ({"payload": {"x": {"$subs": None}}}, [("bad-subs", "/payload/x")]),
        ({"payload": {"x": {"$subs": "taskId:a", "y": 1}}}, [("bad-subs", "/payload/x")]),
        ({"payload": {"$subs": "taskId:a"}}, [("bad-subs", "/payload")]),
        ({"payload": {"command": ["a", {"$subs": "a"}]}}, [("bad-subs", "/payload/command/1")]),
        ({"payload": {"command": ["a", {"$subs": 1, "x": 1}]}}, [("bad-subs", "/payload/command/1")]),
        ({"payload": {"command": ["a", {}]}}, [("missing", "/payload/command/1")]),
    ],
)
def test_each_mistake_in_a_definition(task: dict[str, Any], expected: list[tuple[str, str]]):
    if expected:
        assert of_task(task) == expected
    else:
        read_document(graph(a={"task": task}))


def test_everything_is_said_at_once_with_lines():
    text = """{
  "routng": "x",
  "tasks": {
    "build": {"task": {"target": "BIG"}, "reruns": -1},
    "test": {
      "requires": ["biuld", "test", "build", "build"],
      "task": {"payload": {"x": 1, "x": NaN}}
    },
    "left": {"requires": ["right"], "task": {}},
    "right": {
      "requires": ["left"], "task": {"payload": {"y": {"$subs": "taskId:tset"}}}
    }
  }
}"""
    problems = problems_of(text)
    assert {(problem.code, problem.pointer, problem.line) for problem in problems} == {
        ("unknown-key", "/routng", 2),
        ("bad-form", "/tasks/build/task/target", 4),
        ("out-of-range", "/tasks/build/reruns", 4),
        ("unknown-label", "/tasks/test/requires/0", 6),
        ("self-requirement", "/tasks/test/requires/1", 6),
        ("duplicate-requirement", "/tasks/test/requires/3", 6),
        ("duplicate-key", "/tasks/test/task/payload/x", 7),
        ("number", "/tasks/test/task/payload/x", 7),
        ("unknown-label", "/tasks/right/task/payload/y/$subs", 11),
        ("cycle", "/tasks/left/requires/0", 9),
    }
    said = {problem.code: problem.message for problem in problems}
    assert "“routing”" in said["unknown-key"]
    assert "“left” → “right” → “left”" in said["cycle"]
    assert any("“build”" in problem.message for problem in problems if problem.code == "unknown-label")
    assert all(problem.message and problem.remedy for problem in problems)


def test_a_flood_is_counted_and_hides_nothing_else():
    tasks: dict[str, Any] = {f"t{i}": {"reruns": -1, "requires": [f"u{i}"], "task": NOOP} for i in range(5_000)}
    tasks["a"] = {"requires": ["b"], "task": NOOP}
    tasks["b"] = {"requires": ["a"], "task": NOOP}
    problems = problems_of(graph(**tasks))
    assert len(problems) <= 101
    assert {"out-of-range", "unknown-label", "cycle"} <= {problem.code for problem in problems}
    assert problems[-1].code == "more"
    assert f"{10_001 - (len(problems) - 1):,}" in problems[-1].message


def test_a_misplaced_key_is_told_where_it_belongs():
    (problem,) = problems_of(graph(a={"task": {}, "target": "x"}))
    assert "task.target" in problem.remedy


def test_sizes_are_counted_in_utf16_units():
    def definition(units: int) -> str:
        return graph(a={"task": {"payload": {"x": "😀" * ((units - len('{"payload":{"x":""}}')) // 2)}}})

    read_document(definition(limits.DEFINITION_CHARS_MAX))
    (problem,) = problems_of(definition(limits.DEFINITION_CHARS_MAX + 2))
    assert (problem.code, problem.pointer) == ("too-large", "/tasks/a/task")
    assert "“a”" in problem.message
    assert "450,000" in problem.message


def test_references_are_counted_as_the_ids_that_they_become():
    # 16,500 references of 20 characters become ids of 24: that crosses the limit, the text itself does not
    text = graph(a={"task": {"payload": {"x": [{"$subs": "taskId:a"}] * 19_000}}})
    assert len(text) < limits.DEFINITION_CHARS_MAX
    assert found(text) == [("too-large", "/tasks/a/task")]


def test_tags_must_fit_into_a_column():
    tags = {f"k{i}": "x" * 4_000 for i in range(9)}
    assert found(json.dumps({"tags": tags, "tasks": {"a": {"task": {}}}})) == [("too-large", "/tags")]


# --- extensions ------------------------------------------------------------------------------------------------


def test_an_extension_may_name_labels_of_the_graph():
    text = graph(c={"requires": ["a", "d"], "task": {"payload": {"x": {"$subs": "taskId:b"}}}}, d={"task": {}})
    document = read_document(text, kind="extension")
    assert external_labels(document) == {"a", "b"}
    assert external_labels(read_document(graph(a={"task": {}}))) == frozenset()


def test_an_extension_is_still_checked():
    c = {"requires": ["c", "a\n", "d"], "task": {"payload": {"x": {"$subs": "b"}}}}
    text = json.dumps({"routing": "x", "tasks": {"c": c, "d": {"requires": ["c"], "task": {}}}})
    assert set(found(text, "extension")) == {
        ("unknown-key", "/routing"),
        ("self-requirement", "/tasks/c/requires/0"),
        ("bad-form", "/tasks/c/requires/1"),
        ("bad-subs", "/tasks/c/task/payload/x"),
        ("cycle", "/tasks/c/requires/2"),
    }
    assert "extension" in problems_of(text, "extension")[0].message


# --- Python values ---------------------------------------------------------------------------------------------


def test_python_values_are_copied_and_checked():
    payload: dict[str, Any] = {"command": ("echo", "x")}
    document = document_from_object({"tasks": {"a": {"requires": (), "task": {"payload": payload}}}})
    payload["command"] = None
    assert document.tasks["a"].task == {"payload": {"command": ["echo", "x"]}}

    loop: list[Any] = []
    loop.append(loop)
    for value, code in (
        ({"x": {1}}, "not-json"),
        ({"x": b""}, "not-json"),
        ({1: 2}, "not-json"),
        ({"x": float("nan")}, "number"),
        ({"x": 2**63}, "number"),
        ({"x": 10**5_000}, "number"),
        ({"x": "\ud800"}, "surrogate"),
        ({"x": loop}, "depth"),
    ):
        with pytest.raises(InvalidGraph) as caught:
            document_from_object({"tasks": {"a": {"task": value}}})
        assert {problem.code for problem in caught.value.problems} == {code}


# --- what a document says --------------------------------------------------------------------------------------


def test_substitute_replaces_inside_the_payload_alone():
    subs = {"$subs": "taskId:a"}
    task = {"x": subs, "payload": {"p": [subs, {"q": subs, "r": 1}], "s": "taskId:a"}}
    assert substitute(task, lambda label: f"id of {label}") == {
        "x": subs,
        "payload": {"p": ["id of a", {"q": "id of a", "r": 1}], "s": "taskId:a"},
    }
    assert task["payload"]["p"][0] is subs  # type: ignore[index]
    assert substitute({"payload": {}}, str) == {"payload": {}}
    assert substitute({}, str) == {}
    deep: Any = 1
    for _ in range(10_000):
        deep = [deep]
    for payload in ({"x": {"$subs": 1}}, {"x": deep}):
        with pytest.raises(InvalidInput):
            substitute({"payload": payload}, str)


def test_canonical_json_is_one_text_for_equal_values():
    assert canonical_json({"b": [1, 1.5, None], "a": "é\u2028"}) == '{"a":"é\u2028","b":[1,1.5,null]}'
    with pytest.raises(ValueError, match="compliant"):
        canonical_json(float("nan"))


def test_the_hash_sees_meaning_and_not_order():
    one = read_document('{"tasks": {"a": {"task": {}}, "b": {"task": {}}, "c": {"requires": ["a", "b"], "task": {}}}}')
    two = read_document(
        """{"tags": {}, "routing": "", "tasks": {
            "c": {"task": {"target": "default", "routing": ""}, "requires": ["b", "a"], "reruns": 0},
            "b": {"requires": [], "task": {}}, "a": {"task": {}}}}"""
    )
    assert content_hash(one) == content_hash(two)
    assert node_digest(one.tasks["c"]) == node_digest(two.tasks["c"])
    assert len(content_hash(one)) == 32
    assert len(node_digest(one.tasks["c"])) >= 22


@given(
    st.text(), st.lists(st.text(), max_size=3, unique=True), st.integers(0, 9), st.dictionaries(st.text(), st.text())
)
def test_a_digest_is_made_of_canonical_json(
    label: str, requires: list[str], reruns: int, payload: dict[str, str]
) -> None:
    node = TaskNode(label, tuple(requires), reruns, {"payload": payload})
    task = {"payload": payload, "routing": "", "target": "default"}
    text = canonical_json({"label": label, "requires": sorted(requires), "reruns": reruns, "task": task})
    assert node_digest(node) == hashlib.sha256(text.encode()).hexdigest()[:32]


def document_with(**changes: Any) -> GraphDocument:
    made: dict[str, Any] = {"tasks": {"a": TaskNode("a"), "b": TaskNode("b", ("a",), 1, {"payload": {"x": 1}})}}
    return GraphDocument(**(made | changes))


@pytest.mark.parametrize(
    "other",
    [
        document_with(routing="x"),
        document_with(metadata={"name": "x"}),
        document_with(tags={"x": ""}),
        document_with(tasks={"a": TaskNode("a")}),
        document_with(tasks={"a": TaskNode("a"), "b": TaskNode("b", (), 1, {"payload": {"x": 1}})}),
        document_with(tasks={"a": TaskNode("a"), "b": TaskNode("b", ("a",), 2, {"payload": {"x": 1}})}),
        document_with(tasks={"a": TaskNode("a"), "b": TaskNode("b", ("a",), 1, {"payload": {"x": 2}})}),
        document_with(tasks={"a": TaskNode("a"), "b": TaskNode("b", ("a",), 1, {"target": "x", "payload": {"x": 1}})}),
        document_with(tasks={"a": TaskNode("a"), "c": TaskNode("c", ("a",), 1, {"payload": {"x": 1}})}),
    ],
)
def test_the_hash_sees_every_difference(other: GraphDocument):
    assert content_hash(other) != content_hash(document_with())


LABELS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=6)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text("abc$", max_size=3), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    labels = draw(st.lists(LABELS, min_size=1, max_size=6, unique=True))
    tasks = {}
    for index, label in enumerate(labels):
        payload = draw(st.dictionaries(st.text("xyz", min_size=1, max_size=3), JSON, max_size=3))
        payload["subs"] = {"$subs": f"taskId:{draw(st.sampled_from(labels))}"}
        requires = draw(st.lists(st.sampled_from(labels[:index]), unique=True)) if index else []
        reruns = draw(st.integers(0, 999))
        tasks[label] = {"requires": requires, "reruns": reruns, "task": {"payload": payload}}
    order = draw(st.permutations(labels))
    return {"routing": draw(st.text("ab", max_size=10)), "tasks": {label: tasks[label] for label in order}}


@given(documents())
@settings(deadline=None)
def test_a_document_survives_the_way_there_and_back(obj: dict[str, Any]):
    document = read_document(json.dumps(obj))
    assert document_from_object(obj) == document
    again = read_document(canonical_json(document_object(document)))
    assert again == document
    assert content_hash(again) == content_hash(document)
    assert list(document.tasks) == list(obj["tasks"])
    for node in document.tasks.values():
        assert '"$subs":' not in canonical_json(substitute(node.task, lambda label: "id"))


@given(st.binary(max_size=60) | st.text('{}[]":,\\ntasksrequirestaskab0123.eE+-', max_size=60))
@settings(deadline=None, max_examples=300)
def test_no_text_breaks_the_reader(text: bytes | str):
    with contextlib.suppress(InvalidGraph):
        read_document(text)


@given(documents(), st.data())
@settings(deadline=None, max_examples=200)
def test_no_mutation_breaks_the_reader(obj: dict[str, Any], data: st.DataObject):
    text = json.dumps(obj, indent=data.draw(st.sampled_from([None, 1])))
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 10)))
    other = data.draw(
        st.sampled_from(["", "null", "[]", '"a"', "NaN", "{", '"', "\ud800", "\\ud800", "1e999", ",", "0"])
    )
    mutated = text[:start] + other + text[end:]
    try:
        document = read_document(mutated)
    except InvalidGraph as error:
        for problem in error.problems:
            problem.pointer.encode()
            problem.message.encode()
            assert problem.message.isprintable()
    else:
        assert read_document(canonical_json(document_object(document))) == document


# --- names and warnings ----------------------------------------------------------------------------------------


def test_near_names():
    assert nearest("BUILD", ["build", "built"]) == ["build"]
    assert nearest("biuld", ["test", "build"]) == ["build"]
    assert nearest("zzz", ["build"]) == []
    many = [f"task-{i}" for i in range(100_000)]
    assert "task-99999" in nearest("task-9999x", many)


def test_warnings_say_what_will_happen():
    document = read_document(
        graph(
            a={"task": {"payload": {"run": "x"}}},
            b={"task": {"payload": {"run": "x"}}},
            c={"task": {"executor": "lambda", "dedline": 1, "command": []}},
            d={"task": {"executor": "noop", "payload": {}, "paylod": 1}},
            e={"task": {"payload": {"command": ["x"], "timeouts_s": 1}}},
            f={"task": {"extra": {"x": [{"$subs": "taskId:a"}]}}},
            g={"task": {"payload": {"call": "f"}}},
        )
    )
    problems = warnings(document)
    assert [(problem.code, problem.pointer) for problem in problems] == [
        ("no-executor", "/tasks/a/task"),
        ("own-executor", "/tasks/c/task/executor"),
        ("near-key", "/tasks/c/task/dedline"),
        ("near-key", "/tasks/e/task/payload/timeouts_s"),
        ("subs-outside-payload", "/tasks/f/task/extra/x/0"),
    ]
    assert "“a” and 1 other" in problems[0].message
    assert "“deadline”" in problems[2].remedy
    assert warnings(read_document(graph(a={"task": NOOP}, b={}))) == []


@pytest.mark.parametrize(
    ("task", "place", "code"),
    [
        ({"command": ["x"]}, "command", "misplaced-key"),
        ({"payload": {"command": ["x"]}, "timeout": 3}, "timeout", "misplaced-key"),
        ({"paylod": {"command": ["x"]}}, "paylod", "near-key"),
        ({"Payload": {"command": ["x"]}}, "Payload", "near-key"),
        ({"payload": {"comand": ["x"]}}, "payload/comand", "near-key"),
        ({"payload": {"calll": "f"}}, "payload/calll", "near-key"),
        ({"payload": {"command": ["x"], "timeuot": 1}}, "payload/timeuot", "near-key"),
        ({"executor": "command", "payload": {"command": ["x"], "evn": {}}}, "payload/evn", "near-key"),
        ({"payload": {"command": ["x"], "tmeout": 1}, "deadlin": 1}, "deadlin", "near-key"),
    ],
)
def test_a_key_that_is_nearly_known_or_too_high_is_an_error(task: dict[str, Any], place: str, code: str) -> None:
    found = problems_of(graph(a={"task": task}))
    assert (code, f"/tasks/a/task/{place}") in [(each.code, each.pointer) for each in found]
    assert all(each.code in ("near-key", "misplaced-key") for each in found)
    read_document(graph(a={"task": {**task, "executor": "noop"}} if "executor" not in task else {"task": {}}))


def test_one_edit() -> None:
    word = "payload"
    letters = ("", "x", "l", "P")
    near = {word[:n] + each + word[n:] for n in range(8) for each in letters}
    near |= {word[:n] + each + word[n + 1 :] for n in range(7) for each in letters}
    near |= {word[:n] + word[n + 1] + word[n] + word[n + 2 :] for n in range(6)}
    assert all(is_one_edit(each, word) for each in near)
    assert is_one_edit("PAYLOAD", word)
    far = {"payloadxx", "xpayloadx", "aypload", "pyaload_", "yapolad", "", "pay", "command"}
    assert not [each for each in far if is_one_edit(each, word)]


def test_all_problems_come_in_the_order_of_lines_with_those_beside_an_unknown_parameter() -> None:
    text = """{"tasks": {
        "a": {"reruns": -1,
              "task": {"payload": {"command": [{"$param": "y"}]}}},
        "b": {"requires": ["c"],
              "task": {"payload": {"command": "echo hi"}}}}}"""
    with pytest.raises(InvalidGraph) as caught:
        read_document(text)
    assert [(each.line, each.pointer) for each in caught.value.problems] == [
        (2, "/tasks/a/reruns"),
        (3, "/tasks/a/task/payload/command/0/$param"),
        (4, "/tasks/b/requires/0"),
        (5, "/tasks/b/task/payload/command"),
    ]
    assert '["echo", "hi"]; for a shell: ["sh", "-c", "echo hi"]' in caught.value.problems[3].remedy


def test_a_schema_is_named_for_editors() -> None:
    text = '{"$schema": "./task-graph.json", "tasks": {"a": {}}}'
    assert content_hash(read_document(text)) == content_hash(read_document('{"tasks": {"a": {"task": {}}}}'))


# --- size ------------------------------------------------------------------------------------------------------


def large(tasks: int) -> dict[str, Any]:
    return {
        f"task-{i}": {
            "requires": [f"task-{j}" for j in (i - 1, i - 8, i - 15) if j >= 0],
            "task": {"payload": {"command": ["echo", str(i)]}},
        }
        for i in range(tasks)
    }


def test_a_large_document_takes_seconds():
    tasks = large(20_000)
    begun = time.perf_counter()
    assert read_document(graph(**tasks)).edges == 59_976
    tasks["task-0"]["requires"] = ["task-19999"]
    (problem,) = problems_of(graph(**tasks))
    assert problem.code == "cycle"
    assert "20,000 tasks wait for each other" in problem.message
    assert len(problem.message) < 1_000
    # About two seconds; what was quadratic would take minutes.
    assert time.perf_counter() - begun < 30


@pytest.mark.parametrize(
    "text",
    [
        '"' + '\\"' * 200_000,
        "[" * 70 + '"\\' * 200_000,
        '{"tasks": {' + ",".join('"a": {"task": {}}' for _ in range(50_000)) + "}}",
        graph(a={"task": {}, "requires": [f"u{i}" for i in range(100_000)]}),
        graph(a={"task": {}, **{f"k{i}": 1 for i in range(50_000)}}),
        graph(a={"task": {}, "requires": [[i] for i in range(50_000)]}),
    ],
    ids=["quotes", "backslashes", "duplicates", "unknown", "keys", "items"],
)
def test_hostile_documents_cost_linear_time(text: str):
    begun = time.perf_counter()
    assert 1 <= len(problems_of(text)) <= 101
    assert time.perf_counter() - begun < 15


def test_of_too_many_items_so_many_are_to_be_left_out() -> None:
    node = {"task": {"workerLabels": [f"label{n}" for n in range(20)]}}
    with pytest.raises(InvalidGraph) as caught:
        document_from_object({"tasks": {"a": node}}, source="graph")
    (problem,) = [each for each in caught.value.problems if each.code == "too-many"]
    assert problem.message.endswith("has 20 items; 16 are allowed.")
    assert problem.remedy == "Leave 4 of them out."


@pytest.mark.parametrize(
    "made",
    [None, lambda *_: 1 / 0, lambda: None, lambda *_: lambda value, level: ["{}"], lambda *_: None],
    ids=["missing", "raises", "other-arguments", "writes-otherwise", "nothing"],
)
def test_json_is_the_same_where_python_has_no_such_encoder(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fast encoder is no public part of Python: any other one is not used."""
    arguments = (None, None, json.encoder.encode_basestring, None, ":", ",", True, False, False)
    slow = json_strict._CANONICAL_SLOW
    assert json_strict._encoder(slow, *arguments) is not None
    expected = slow(json_strict._SAMPLE)
    with monkeypatch.context() as patched:
        patched.setattr(json.encoder, "c_make_encoder", made)
        assert json_strict._encoder(lambda value: expected, *arguments) is None
    monkeypatch.setattr(json_strict, "_CANONICAL", None)
    monkeypatch.setattr(json_strict, "_COMPACT", None)
    assert json_strict.canonical_json({"b": "é", "a": [1.5, None]}) == '{"a":[1.5,null],"b":"é"}'
    assert json_strict.compact_json({"b": "é", "a": [1.5, None]}) == '{"b":"é","a":[1.5,null]}'


@pytest.mark.parametrize(
    ("payload", "place", "code"),
    [
        ({"command": ["x"], "env": {"T": {"$secret": "no name"}}}, "/env/T", "bad-secret"),
        ({"command": ["x"], "env": {"T": {"$secret": "a", "b": 1}}}, "/env/T", "bad-secret"),
        ({"command": ["x", {"$secret": "a"}]}, "/command/1", "misplaced-secret"),
        ({"command": ["x"], "env": {"$secret": "a"}}, "/env", "misplaced-secret"),
        ({"command": ["x"], "cwd": {"$secret": "a"}}, "/cwd", "misplaced-secret"),
        ({"call": "f", "arguments": {"t": {"$secret": "a"}}}, "/arguments/t", "misplaced-secret"),
    ],
)
def test_a_secret_stands_in_the_environment_of_a_command_alone(payload: Any, place: str, code: str) -> None:
    assert of_task({"payload": payload}) == [(code, f"/payload{place}")]


def test_a_secret_and_what_is_inherited_are_checked_and_kept() -> None:
    payload = {"command": ["x"], "env": {"T": {"$secret": "deploy-token"}}, "inheritEnv": ["HOME"]}
    assert read_document(graph(a={"task": {"payload": payload}})).tasks["a"].task["payload"] == payload
    own = {"executor": "own", "payload": {"at": {"$secret": "anything"}}}
    assert read_document(graph(a={"task": own})).tasks["a"].task == own
