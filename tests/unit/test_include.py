"""Documents in several files: the same graph as the one written as a whole, and problems that name the right file."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from taskgraph import Graph
from taskgraph.documents import include
from taskgraph.documents.canonical import content_hash
from taskgraph.documents.read import document_from_object, read_document
from taskgraph.documents.warnings import warnings
from taskgraph.interfaces.cli import app as commands
from taskgraph.interfaces.cli.common import read_graph
from taskgraph.model import schemas
from taskgraph.model.errors import InvalidGraph

DOCUMENT = """\
include: [parts/build.yaml, parts/test.toml]
params: {who: {type: string, default: me}}
defaults: {reruns: 1}
tasks:
  end: {requires: [compile, all], command: [echo, done]}
"""
BUILD = """\
include: deep/lint.json
params:
  sizes: {type: array, default: [1, 2]}
defaults: {reruns: 2, env: {LANG: C}}
tasks:
  compile:
    foreach: {size: {$param: sizes}}
    script: echo {{size}}
groups:
  all: {tasks: [lint, test]}
"""
TEST = """\
[tasks.test]
requires = ["compile"]
command = ["echo", {"$param" = "who"}]
"""
LINT = '{"tasks": {"lint": {"command": ["true"]}}}'
WHOLE: dict[str, Any] = {
    "params": {"who": {"type": "string", "default": "me"}, "sizes": {"type": "array", "default": [1, 2]}},
    "tasks": {
        "end": {"requires": ["compile", "all"], "reruns": 1, "command": ["echo", "done"]},
        "compile": {"foreach": {"size": [1, 2]}, "reruns": 2, "env": {"LANG": "C"}, "script": "echo {{size}}"},
        "lint": {"command": ["true"]},
        "test": {"requires": ["compile"], "command": ["echo", {"$param": "who"}]},
    },
    "groups": {"all": {"tasks": ["lint", "test"]}},
}


def written(folder: Path, **files: str) -> str:
    """The path of g.yaml in a folder with these files; `parts__a_yaml` is parts/a.yaml."""
    for name, text in files.items():
        stem, _, ending = name.replace("__", "/").rpartition("_")
        path = folder / f"{stem}.{ending}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(folder / "g.yaml")


def divided(folder: Path, **changed: str) -> str:
    files = {"g_yaml": DOCUMENT, "parts__build_yaml": BUILD, "parts__test_toml": TEST, "parts__deep__lint_json": LINT}
    return written(folder, **{**files, **changed})


def problems(path: str) -> list[tuple[str, str, str, int | None]]:
    """File, from its folder on, code, place and line of each."""
    with pytest.raises(InvalidGraph) as caught:
        read_graph(path)
    folder = Path(path).parent
    return [
        (str(Path(each.source or caught.value.source).relative_to(folder)), each.code, each.pointer, each.line)
        for each in caught.value.problems
    ]


def test_parts_come_to_the_graph_that_is_written_as_one(tmp_path: Path) -> None:
    path = divided(tmp_path)
    whole = document_from_object(WHOLE)
    read, source = read_graph(path)
    assert source == path
    assert read.tasks == whole.tasks
    assert read.groups == whole.groups
    assert content_hash(read) == content_hash(whole)
    assert content_hash(Graph.from_file(path).validate()) == content_hash(whole)
    shown = CliRunner().invoke(commands, ["validate", "--expanded", path])
    assert shown.exit_code == 0
    assert content_hash(read_document(shown.stdout)) == content_hash(whole)


def test_a_document_of_parts_alone(tmp_path: Path) -> None:
    path = written(tmp_path, g_yaml="include: a.json\n", a_json=LINT)
    assert list(read_graph(path)[0].tasks) == ["lint"]
    assert problems(written(tmp_path, a_json='{"groups": {}}')) == [("g.yaml", "empty", "/tasks", 1)]


def test_a_file_that_two_name_is_read_once(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        g_yaml="include: [p/a.yaml, p/b.yaml, ./p/../p/c.yaml]\n",
        p__a_yaml="include: c.yaml\n",
        p__b_yaml="include: ./c.yaml\n",
        p__c_yaml="tasks: {c: {}}\n",
    )
    assert list(read_graph(path)[0].tasks) == ["c"]


def test_problems_in_a_part_name_its_file_and_line(tmp_path: Path) -> None:
    path = divided(
        tmp_path,
        g_yaml=DOCUMENT.replace("[compile, all]", "[compil]"),
        parts__build_yaml=BUILD.replace("reruns:", "rerun:").replace("[lint, test]", "[lnt]"),
        parts__test_toml=TEST.replace('"compile"', '"nothing"'),
        parts__deep__lint_json=LINT.replace('"command"', '\n"reruns": -1, "command"'),
    )
    assert problems(path) == [
        ("g.yaml", "unknown-label", "/tasks/end/requires/0", 5),
        ("parts/build.yaml", "unknown-key", "/defaults/rerun", 4),
        ("parts/build.yaml", "unknown-label", "/groups/all/tasks/0", 10),
        ("parts/deep/lint.json", "out-of-range", "/tasks/lint/reruns", 2),
        ("parts/test.toml", "unknown-label", "/tasks/test/requires/0", None),
    ]
    shown = CliRunner().invoke(commands, ["validate", path])
    assert f"{tmp_path}/parts/build.yaml:4: /defaults/rerun: " in shown.stderr
    assert "5 problems" in shown.stderr
    answer = json.loads(CliRunner().invoke(commands, ["validate", "--json", path]).stdout)
    assert not list(schemas.validator("answers", "#/$defs/validation").iter_errors(answer))
    assert [each["source"] for each in answer["files"][0]["problems"]][:2] == [None, f"{tmp_path}/parts/build.yaml"]
    with pytest.raises(InvalidGraph) as caught:
        Graph.from_file(path)
    assert f"{tmp_path}/parts/build.yaml: /defaults/rerun" in caught.value.__notes__[1]


def test_names_that_two_files_have_are_clashes(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        g_yaml="include: [a.yaml, b.yaml]\ntasks: {x: {}}\nparams: {p: {default: 1}}\n",
        a_yaml="tasks:\n  x: {}\n  y 1: {}\ngroups:\n  all: {tasks: [x]}\n",
        b_yaml="params:\n  p: {default: 1}\ngroups:\n  all: {tasks: [x]}\ntasks:\n  y:\n    foreach: [1]\n",
    )
    assert problems(path) == [
        ("a.yaml", "name-clash", "/tasks/x", 2),
        ("b.yaml", "name-clash", "/params/p", 2),
        ("b.yaml", "name-clash", "/groups/all", 4),
        ("b.yaml", "name-clash", "/tasks/y", 6),
    ]


@pytest.mark.parametrize(
    ("said", "code", "place"),
    [
        ("/etc/passwd", "bad-path", ""),
        ("../a.yaml", "bad-path", ""),
        ("p/../../a.yaml", "bad-path", ""),
        ("..", "bad-path", ""),
        ("C:/a.yaml", "bad-path", ""),
        (r"p\a.yaml", "bad-path", ""),
        ("a\0.yaml", "bad-path", ""),
        ("none.yaml", "unreadable", ""),
        ("p", "unreadable", ""),
        (".", "unreadable", ""),
        ("x" * 5000, "unreadable", ""),
        ("g.yaml", "cycle", ""),
        ("p/../g.yaml", "cycle", ""),
        (["none.yaml"], "unreadable", "/0"),
        ([["a.yaml"]], "wrong-type", "/0"),
        ([""], "wrong-type", "/0"),
        (7, "wrong-type", ""),
        (None, "wrong-type", ""),
        ({"a": "b"}, "wrong-type", ""),
    ],
)
def test_what_cannot_be_included_names_file_and_line(tmp_path: Path, said: Any, code: str, place: str) -> None:
    (tmp_path / "p").mkdir()
    path = written(tmp_path, g_yaml=json.dumps({"tasks": {"x": {"requires": ["of the part"]}}, "include": said}))
    assert problems(path) == [("g.yaml", code, f"/include{place}", 1)]


def test_what_a_part_cannot_include_is_a_problem_of_the_part(tmp_path: Path) -> None:
    path = written(
        tmp_path, g_yaml="include: p/a.yaml\n", p__a_yaml="tasks: {}\ninclude:\n- b.yaml\n- ../../c.yaml\n- none\n"
    )
    written(tmp_path, p__b_yaml="include: a.yaml\n")
    assert problems(path) == [
        ("p/a.yaml", "bad-path", "/include/1", 4),
        ("p/a.yaml", "unreadable", "/include/2", 5),
        ("p/b.yaml", "cycle", "/include", 1),
    ]


@pytest.mark.parametrize(
    ("text", "code", "place", "line"),
    [
        ("[1]", "wrong-type", "", 1),
        ("", "syntax", "", None),
        ("tasks: {a: [\n", "syntax", "", 2),
        ("tasks: []\n", "wrong-type", "/tasks", 1),
        ("tasks: {}\nparams: 1\n", "wrong-type", "/params", 2),
        ("tasks: {}\nfailurePolicy: block\n", "unknown-key", "/failurePolicy", 2),
        ("tasks: {}\ninclud: b\n", "unknown-key", "/includ", 2),
        ("tasks:\n  a: {}\n  a: {}\n", "duplicate-key", "/tasks/a", 3),
    ],
)
def test_a_part_that_is_none(tmp_path: Path, text: str, code: str, place: str, line: int | None) -> None:
    assert problems(written(tmp_path, g_yaml="include: a.yaml\n", a_yaml=text)) == [("a.yaml", code, place, line)]


def test_links_and_pipes_are_not_followed_out_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "out.yaml").write_text("tasks: {a: {}}\n")
    folder = tmp_path / "in"
    path = written(folder, g_yaml="include: [out.yaml, pipe, round]\n")
    (folder / "out.yaml").symlink_to("../out.yaml")
    (folder / "round").symlink_to("round")
    os.mkfifo(folder / "pipe")
    assert [code for _, code, _, _ in problems(path)] == ["unreadable"] * 3
    (folder / "own.yaml").write_text("tasks: {a: {}}\n")
    (folder / "link.yaml").symlink_to("own.yaml")
    assert list(read_graph(written(folder, g_yaml="include: link.yaml\n"))[0].tasks) == ["a"]


def test_so_many_parts_of_so_many_bytes_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    most = include.INCLUDED_FILES_MAX
    for number in range(most + 1):  # each includes the next: as deep as it gets
        text = json.dumps({"tasks": {f"t{number}": {}}, "include": [f"{number + 1}.json"]})
        (tmp_path / f"{number}.json").write_text(text)
    path = written(tmp_path, g_yaml="include: 0.json\n")
    assert problems(path) == [(f"{most - 1}.json", "too-many", "/include/0", 1)]
    (tmp_path / f"{most - 1}.json").write_text('{"tasks": {"last": {}}}')
    assert len(read_graph(path)[0].tasks) == most
    monkeypatch.setattr(include, "INCLUDED_BYTES_MAX", (tmp_path / "0.json").stat().st_size)
    assert problems(path) == [("0.json", "too-large", "/include/0", 1)]


def test_a_part_with_many_problems_lists_the_first(tmp_path: Path) -> None:
    for number in range(5):
        tasks = {f"t{number} {each}": {"reruns": -1, "requires": ["none"]} for each in range(100)}
        (tmp_path / f"{number}.json").write_text(json.dumps({"tasks": tasks}))
    found = problems(written(tmp_path, g_yaml=f"include: {[f'{number}.json' for number in range(5)]}\n"))
    assert len(found) == 101
    assert found[-1][1] == "more"


def test_without_a_file_nothing_is_included(tmp_path: Path) -> None:
    path = divided(tmp_path)
    for read in (
        lambda: read_document('{"include": "a.yaml", "tasks": {"a": {}}}'),
        lambda: document_from_object({"include": "a.yaml", "tasks": {"a": {}}}),
        lambda: read_graph(path, "extension"),
    ):
        with pytest.raises(InvalidGraph) as caught:
            read()
        assert [(each.code, each.pointer) for each in caught.value.problems] == [("no-folder", "/include")]
    shown = CliRunner().invoke(commands, ["validate", "-"], input=DOCUMENT)
    assert "/include: Files are included by a graph that is read from a file" in shown.stderr


def test_patterns_in_a_part_are_relative_to_the_first_file(tmp_path: Path) -> None:
    part = "tasks: {a: {foreach: {file: {files: 'src/*.c'}}, command: [cc, '{{file}}']}}\n"
    path = written(tmp_path, g_yaml="include: parts/a.yaml\n", parts__a_yaml=part, src__x_c="")
    assert list(read_graph(path)[0].tasks) == list(Graph.from_file(path).to_dict()["tasks"]) == ["a src/x.c"]


def test_the_schema_takes_documents_as_they_are_written() -> None:
    check = schemas.validator("task-graph")
    for good in ({"include": "a"}, {"include": ["a"], "tasks": {"a": {}}}):
        assert check.is_valid(good)
    for bad in ({}, {"include": 1}, {"include": [1]}, {"include": ""}):
        assert not check.is_valid(bad)


def test_what_is_warned_of_names_its_file(tmp_path: Path) -> None:
    path = divided(tmp_path, parts__deep__lint_json='{"tasks": {"lint": {"task": {"executor": "own"}}}}')
    assert [(each.code, each.source) for each in warnings(read_graph(path)[0])] == [
        ("own-executor", f"{tmp_path}/parts/deep/lint.json")
    ]
    shown = CliRunner().invoke(commands, ["validate", path])
    assert f"warning: {tmp_path}/parts/deep/lint.json: /tasks/lint/task/executor: " in shown.stderr
