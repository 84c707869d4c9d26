"""Documents as YAML and TOML: the values are those of JSON, problems have lines, and what is ambiguous is refused."""

import json
import time
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from taskgraph import Graph
from taskgraph.documents import texts, yaml_text
from taskgraph.documents.canonical import content_hash
from taskgraph.documents.edit_document import read_edit
from taskgraph.documents.nodes import GraphDocument
from taskgraph.documents.problems import Report
from taskgraph.documents.read import Given, document_from_object, read_document, read_json
from taskgraph.model import limits
from taskgraph.model.errors import InvalidGraph, Problem

AS_JSON: Final = {
    "metadata": {"name": "nightly"},
    "maxInFlight": 2,
    "params": {"words": {"default": ["a", "b"]}},
    "tasks": {
        "build": {"reruns": 1, "task": {"payload": {"command": ["sh", "-ec", "make\nmake all\n"], "timeout": 0.5}}},
        "1.10": {
            "requires": ["build"],
            "notBefore": "2030-01-31T12:00:00Z",
            "task": {"payload": {"call": "f", "arguments": {"none": None, "is": True, "words": {"$param": "words"}}}},
        },
    },
}
AS_YAML: Final = """\
# comments are welcome
metadata: {name: nightly}
maxInFlight: 2
params:
  words: {default: [a, b]}
tasks:
  build:
    reruns: 1
    task:
      payload:
        command:
        - sh
        - -ec
        - |
          make
          make all
        timeout: 0.5
  1.10:
    requires: [build]
    notBefore: 2030-01-31T12:00:00Z
    task:
      payload: {call: f, arguments: {none: null, is: true, words: {$param: words}}}
"""
AS_TOML: Final = """\
# comments are welcome
maxInFlight = 2
metadata.name = "nightly"
params.words.default = ["a", "b"]

[tasks.build]
reruns = 1
[tasks.build.task.payload]
command = ["sh", "-ec", '''
make
make all
''']
timeout = 0.5

[tasks."1.10"]
requires = ["build"]
notBefore = 2030-01-31T12:00:00Z
task.payload = {call = "f", arguments = {is = true, words = {"$param" = "words"}}}
"""


@pytest.fixture(params=["with the C library", "in Python"], autouse=True)
def loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both parsers of PyYAML: its wheels have the one in C, and some systems have none."""
    if request.param == "in Python":
        monkeypatch.setattr(yaml_text, "_LOADER", yaml.SafeLoader)


def value(text: str) -> Any:
    report = Report("document")
    found = texts.parse(text, report, "yaml").value
    report.raise_if_any()
    return found


def problems(text: str | bytes, form: texts.Form = "yaml") -> list[Problem]:
    with pytest.raises(InvalidGraph) as caught:
        read_document(text, form=form)
    return list(caught.value.problems)


def only(text: str, form: texts.Form = "yaml") -> Problem:
    (problem,) = problems(text, form)
    assert problem.message
    assert problem.remedy
    return problem


def with_arguments(arguments: str) -> str:
    return f"tasks:\n  a:\n    task:\n      payload:\n        call: f\n        arguments: {arguments}\n"


# --- the same as JSON ------------------------------------------------------------------------------------------


def same(found: GraphDocument, expected: object) -> bool:
    wanted = document_from_object(expected)
    return found == wanted and content_hash(found) == content_hash(wanted)


def test_yaml_and_toml_are_read_as_the_same_json() -> None:
    assert same(read_document(AS_YAML, form="yaml"), AS_JSON)
    without: Any = json.loads(json.dumps(AS_JSON))
    del without["tasks"]["1.10"]["task"]["payload"]["arguments"]["none"]  # TOML has no null
    assert same(read_document(AS_TOML.encode(), form="toml"), without)


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**63), 2**63 - 1)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(st.characters(min_codepoint=1, max_codepoint=0xFFFF, exclude_categories=["Cs"])),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text("abc<: #-é\n", max_size=4), inner, max_size=3)
        ),
        max_leaves=8,
    )
)
def test_json_read_as_yaml_is_what_it_is(made: Any) -> None:
    report = Report("document")
    found, _ = yaml_text.parse(json.dumps({"x": made}, indent=1), report)
    assert report.count == 0
    assert found == {"x": made}


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("a.yaml", "yaml"),
        ("b/a.YML", "yaml"),
        ("a.yaml.gz", "yaml"),
        ("a.toml", "toml"),
        ("a.json", "json"),
        ("a.json.gz", "json"),
        ("-", "by-content"),
        ("a", "by-content"),
        ("a.txt", "by-content"),
    ],
)
def test_a_file_says_by_its_ending_what_it_is(name: str, form: str) -> None:
    assert texts.form_of(name) == form


@pytest.mark.parametrize(
    "text",
    [
        AS_YAML,
        "---\n" + AS_YAML,
        "\ufeff" + AS_YAML,
        "%YAML 1.2\n---\n" + AS_YAML,
        "\n\n  # x\n" + AS_YAML,
        json.dumps(AS_JSON),
    ],
)
def test_without_an_ending_the_content_says_it(text: str) -> None:
    assert same(read_document(text, form="by-content"), AS_JSON)
    assert same(read_document(text.encode(), form="yaml"), AS_JSON)


def test_from_a_file_in_python(tmp_path: Path) -> None:
    for name, text in (("g.yaml", AS_YAML), ("g.json", json.dumps(AS_JSON)), ("g", AS_YAML)):
        (tmp_path / name).write_text(text)
        assert Graph.from_file(tmp_path / name).to_dict() == AS_JSON
    (tmp_path / "g.toml").write_text(AS_TOML)
    assert len(Graph.from_file(tmp_path / "g.toml")) == 2
    (tmp_path / "bad.yaml").write_text("tasks:\n  a: {requires: [b]}\n")
    with pytest.raises(InvalidGraph) as caught:
        Graph.from_file(tmp_path / "bad.yaml")
    assert [problem.line for problem in caught.value.problems] == [2]


def test_parameters_and_edits() -> None:
    found = read_document(AS_YAML, given=Given({"words": ["c"]}), form="yaml")
    assert found.tasks["1.10"].task["payload"]["arguments"]["words"] == ["c"]
    edit = "reason: it is flaky\nupdate:\n  build:\n    reruns: 3\n"
    assert read_edit(edit, form="yaml").digest == read_edit(json.dumps(yaml.safe_load(edit))).digest
    with pytest.raises(InvalidGraph) as caught:
        read_edit(edit + "    rerun: 3\n    active: no\ndelete: [x, x]\n", form="yaml")
    assert [(each.pointer, each.line) for each in caught.value.problems] == [
        ("/update/build/rerun", 5),
        ("/update/build/active", 6),
        ("/delete/1", 7),
    ]


def test_all_problems_of_an_edit_come_at_once_and_each_once() -> None:
    text = (
        '{"update": {"\\ud800": {"reruns": 1}, "a": {"reruns": 1, "reruns": 2, "task": {"x": 1e999}}}, "delete": ["a"]}'
    )
    with pytest.raises(InvalidGraph) as caught:
        read_edit(text)
    assert [(each.code, each.pointer) for each in caught.value.problems] == [
        ("surrogate", "/update/\\ud800"),
        ("duplicate-key", "/update/a/reruns"),
        ("number", "/update/a/task/x"),
        ("deleted-and-updated", "/delete/0"),
    ]


# --- what is said of it ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "looks"), [(AS_YAML, "YAML"), (AS_TOML, "TOML"), ("[tasks.a]\nreruns = 1\n", "TOML")])
def test_what_is_no_json_and_looks_like_something_else(text: str, looks: str) -> None:
    problem = only(text, "json")
    assert f"it looks like {looks}" in problem.message
    assert f".{looks.lower()}" in problem.remedy
    with pytest.raises(InvalidGraph, match="1 problem"):
        read_json(text)


@pytest.mark.parametrize("text", ['"tasks": {}', "{'tasks': {}}", "x", "[1] x", "<html>"])
def test_what_is_no_json_and_looks_like_nothing(text: str) -> None:
    assert "looks like" not in only(text, "by-content").message


def test_problems_have_lines() -> None:
    text = """\
tasks:
  a:
    requires:
      - b
      - nothing
  b:
    task: &base
      payload:
        command: make
  c:
    task:
      payload:
        command: [sleep, 5]
  d:
    task: *base
  d: {tsk: {}}
"""
    assert [(each.line, each.pointer, each.code) for each in problems(text)] == [
        (5, "/tasks/a/requires/1", "unknown-label"),
        (9, "/tasks/b/task/payload/command", "wrong-type"),
        (13, "/tasks/c/task/payload/command/1", "wrong-type"),
        (16, "/tasks/d", "duplicate-key"),
        (16, "/tasks/d/tsk", "unknown-key"),
    ]


def test_what_stands_behind_an_alias_has_the_line_of_its_anchor() -> None:
    text = "tasks:\n  a:\n    task: &base\n      payload:\n        command: make\n  b:\n    task: *base\n"
    assert [(each.line, each.pointer) for each in problems(text)] == [
        (5, "/tasks/a/task/payload/command"),
        (5, "/tasks/b/task/payload/command"),
    ]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("tasks:\n\ta: {}\n", 2, "blanks"),
        ("tasks:\n  a: {task: {payload: {command: [echo, a: b: c]}}}\n", 2, "quotes"),
        ("tasks:\n  a: [x\n", 3, ""),
        ("tasks:\n  a: *\n", 2, "quotes"),
        ("tasks:\n  a: @x\n", 2, "quotes"),
        ('tasks:\n  a: "\\q"\n', 2, "backslash"),
        ("tasks:\n a: 1\n  b: 2\n", 3, "indentation"),
        ("tasks: {}\n\x07", 2, "U+0007"),
    ],
)
def test_what_is_no_yaml(text: str, line: int, words: str) -> None:
    problem = only(text)
    assert (problem.code, problem.line) == ("syntax", line)
    assert "not YAML" in problem.message
    assert words in problem.message + problem.remedy


@pytest.mark.parametrize("text", ["", "\n \n", "# nothing\n", "---\n", "null\n"])
def test_an_empty_text(text: str) -> None:
    assert "empty" in only(text).message


@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        ("tasks: {a: {}}\n---\ntasks: {b: {}}\n", "several-documents", 2),
        ("tasks: {a: {}}\n...\n---\nx\n", "several-documents", 3),
        ("tasks:\n  a: {}\n  ? [b]\n  : {}\n", "not-json", 3),
        ("tasks:\n  a: {}\n  ? {b: c}\n  : {}\n", "not-json", 3),
        ("tasks:\n  a: &x {}\n  *x : {}\n", "not-json", 3),
        ("tasks:\n  a: *x\n", "yaml-alias", 2),
        ("tasks: &x\n  a: *x\n", "yaml-alias", 2),
        ("tasks:\n  a: " + "[" * 64, "depth", 2),
        ("a: &a " + "[" * 40 + "]" * 40 + "\nb: " + "[" * 40 + "*a" + "]" * 40, "depth", 2),
    ],
)
def test_where_there_is_no_going_on(text: str, code: str, line: int) -> None:
    found = only(text)
    assert (found.code, found.line) == (code, line)


@pytest.mark.parametrize("tag", ["!!python/object/apply:os.system", "!!str", "!own", "!<tag:yaml.org,2002:int>"])
def test_a_tag_means_nothing(tag: str) -> None:
    assert [(each.code, each.line) for each in problems(with_arguments(f"\n          x: {tag} ls"))] == [
        ("yaml-tag", 7)
    ]
    assert "yaml-tag" in {each.code for each in problems(f"tasks: {tag}\n  a: {{}}\n")}


# --- scalars ---------------------------------------------------------------------------------------------------


def test_plain_scalars_are_those_of_the_core_schema() -> None:
    text = """\
null: [null, ~, Null, ]
boolean: [true, False, TRUE]
number: [0, -7, +7, 0o17, 0x1F, 1.5, .5, 1., 1e3, -1.5E-2, 9223372036854775807]
text: [1.2.3, 2030-01-31, 2030-01-31T12:00:00Z, 0.4.0-rc1, v1, 1e, "5", '~', 8080:80, y, n, a_b, =, <<]
yes: 1
2: 2
~: 3
1:30: 4
"""
    assert value(text) == {
        "null": [None, None, None],
        "boolean": [True, False, True],
        "number": [0, -7, 7, 15, 31, 1.5, 0.5, 1.0, 1000.0, -0.015, 9223372036854775807],
        "text": [
            *("1.2.3", "2030-01-31", "2030-01-31T12:00:00Z", "0.4.0-rc1", "v1", "1e", "5", "~"),
            *("8080:80", "y", "n", "a_b", "=", "<<"),
        ],
        "yes": 1,
        "2": 2,
        "~": 3,
        "1:30": 4,
    }


@pytest.mark.parametrize(
    ("scalar", "remedy"),
    [
        ("yes", "Write true or"),
        ("no", "Write false or"),
        ("On", "Write true or"),
        ("OFF", "Write false or"),
        ("010", '"010" in quotes'),
        ("-0644", '"-0644" in quotes'),
        ("08", '"08" in quotes'),
        ("1:30", '"1:30" in quotes'),
        ("1:30:00.5", '"1:30:00.5" in quotes'),
        ("1_000", '"1_000" in quotes'),
        ("0b11", '"0b11" in quotes'),
    ],
)
def test_what_older_yaml_reads_as_something_else_is_refused(scalar: str, remedy: str) -> None:
    problem = only(with_arguments(f"\n          x: [{scalar}]"))
    assert (problem.code, problem.pointer, problem.line) == ("yaml-scalar", "/tasks/a/task/payload/arguments/x/0", 7)
    assert "YAML 1.1" in problem.message
    assert remedy in problem.remedy
    assert value(f"x: ['{scalar}']") == {"x": [scalar]}


def test_where_a_text_is_wanted_it_is_one() -> None:
    text = """\
metadata: {name: on}
tags: {answer: no}
groups: {yes: {tasks: [off]}}
tasks:
  off: {task: {payload: {command: [echo, yes, 12:30, 1_000], env: {A: off, B: 1:30}}}}
  b: {requires: [off, yes]}
"""
    found = read_document(text, form="yaml")
    assert found.tasks["off"].task["payload"]["command"] == ["echo", "yes", "12:30", "1_000"]
    assert found.tasks["off"].task["payload"]["env"] == {"A": "off", "B": "1:30"}
    assert found.tasks["b"].requires == ("off", "yes")
    assert (found.metadata, found.tags) == ({"name": "on"}, {"answer": "no"})
    assert [each.code for each in problems(text.replace("12:30", "0644"))] == ["yaml-scalar"]


@pytest.mark.parametrize(
    "scalar", ["9223372036854775808", "9" * 5000, "0x" + "f" * 5000, ".inf", "-.Inf", ".nan", "1e999"]
)
def test_a_number_that_json_does_not_have(scalar: str) -> None:
    assert [(each.code, each.line) for each in problems(with_arguments(f"\n          x: {scalar}"))] == [("number", 7)]


# --- anchors ---------------------------------------------------------------------------------------------------


def test_anchors_and_merges() -> None:
    text = """\
first: &first {a: 1, b: {c: [2]}}
second: &second {a: 3, d: 4}
one: {<<: *first, b: 5}
both: {<<: [*first, *second], e: 6}
after: {a: 0, <<: *second}
inner: {<<: {a: 7}, '<<': quoted}
text: &text hello
key: {&key name: *text, other: *key}
"""
    found = value(text)
    assert found["one"] == {"a": 1, "b": 5}
    assert found["both"] == {"a": 1, "b": {"c": [2]}, "d": 4, "e": 6}
    assert found["after"] == {"a": 0, "d": 4}
    assert found["inner"] == {"a": 7, "<<": "quoted"}
    assert found["key"] == {"name": "hello", "other": "name"}
    assert found["both"]["b"] is not found["first"]["b"], "a document is taken apart"


@pytest.mark.parametrize("merged", ["5", "text", "[1]", "null"])
def test_only_objects_are_merged(merged: str) -> None:
    found = problems(f"x:\n  <<: {merged}\n")
    assert ("yaml-merge", 2) in {(each.code, each.line) for each in found}


def test_aliases_cannot_make_much_of_little() -> None:
    laughs = "a0: &a0 [" + ", ".join(["ha"] * 10) + "]\n"
    laughs += "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12))
    merges = "a0: &a0 {x: y}\n" + "".join(f"a{n}: &a{n} {{<<: *a{n - 1}, b{n}: *a{n - 1}}}\n" for n in range(1, 40))
    long = f"a: &a {'x' * 100_000}\nb: [{', '.join(['*a'] * 1000)}]\n"
    began = time.monotonic()
    for text in (laughs, merges, long):
        found = only(text)
        assert found.code == "too-many"
        assert f"{limits.YAML_ALIASED_CHARS_MAX:,}" in found.message
    assert time.monotonic() - began < 10


def test_a_document_of_many_tasks_with_the_same_settings() -> None:
    lines = ["tasks:", "  t0:", "    task: &task {payload: {command: [make, all], env: {A: b}, timeout: 60}}"]
    lines += [f"  t{n}: {{requires: [t{n - 1}], task: *task}}" for n in range(1, 1000)]
    found = read_document("\n".join(lines), form="yaml")
    assert len({id(node.task["payload"]) for node in found.tasks.values()}) == 1000
    assert found.tasks["t999"].task == found.tasks["t0"].task


# --- TOML ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "code", "line", "words"),
    [
        ("tasks = \n", "syntax", 1, "quotes"),
        ("[tasks.a]\n[tasks.a]\n", "syntax", 2, "once"),
        ("[tasks.a]\nx = 1\nx = 2\n", "syntax", None, "once"),
        ("tasks: {}\n", "syntax", 1, "TOML"),
        ("x = " + "[" * 100_000, "depth", None, "64"),
        ("x = " + "[" * 65 + "]" * 65, "depth", None, "64"),
        (".".join("x" * 65) + " = 1", "depth", 1, "64"),
        ("a = 1\n[" + " . ".join(["'x.y'"] * 50_000) + "]", "depth", 2, "64"),
        ("x = " + "9" * 5000, "syntax", None, "TOML"),
    ],
)
def test_what_is_no_toml(text: str, code: str, line: int | None, words: str) -> None:
    problem = only(text, "toml")
    assert problem.code == code
    assert line in (None, problem.line)
    assert words in problem.message + problem.remedy


def test_problems_of_toml_have_pointers() -> None:
    found = problems("[tasks.a]\nrequires = ['b']\ntask.payload.arguments.x = [inf, 9223372036854775808]\n", "toml")
    assert {(each.pointer, each.code) for each in found} == {
        ("/tasks/a/requires/0", "unknown-label"),
        ("/tasks/a/task/payload/arguments/x/0", "number"),
        ("/tasks/a/task/payload/arguments/x/1", "number"),
    }


def test_times_of_toml_are_texts() -> None:
    text = "tasks.a.notBefore = 2030-01-31T12:00:00Z\ntasks.a.task.deadline = 2030-01-31 12:00:00.5+01:00\n"
    found = read_document(text + "tasks.a.task.own = [2030-01-31, 12:30:00, 2030-01-31T12:00:00]\n", form="toml").tasks[
        "a"
    ]
    assert found.timing == {"notBefore": "2030-01-31T12:00:00Z"}
    assert found.task["deadline"] == "2030-01-31T12:00:00.500000+01:00"
    assert found.task["own"] == ["2030-01-31", "12:30:00", "2030-01-31T12:00:00"]
