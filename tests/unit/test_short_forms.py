"""Short forms of documents: each comes to the very tasks of the long form, and problems name what was written."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from taskgraph.documents.canonical import content_hash
from taskgraph.documents.foreach import FOREACH_MAX
from taskgraph.documents.read import Given, document_from_object, read_document
from taskgraph.documents.short_forms import COMMAND_KEYS, SHELLS
from taskgraph.interfaces.cli import app as commands
from taskgraph.model import schemas
from taskgraph.model.errors import InvalidGraph


def long(document: Any, **given: Any) -> dict[str, Any]:
    """The tasks that a document comes to: node keys of interest by label."""
    read = document_from_object(document, given=Given(given))
    return {label: (list(node.requires), node.reruns, dict(node.task)) for label, node in read.tasks.items()}


def command(*words: Any, **more: Any) -> dict[str, Any]:
    return {"payload": {"command": list(words), **more}}


def problems(document: Any, **options: Any) -> list[tuple[str, str, int | None]]:
    with pytest.raises(InvalidGraph) as caught:
        read_document(document if isinstance(document, str) else json.dumps(document), **options)
    return [(each.code, each.pointer, each.line) for each in caught.value.problems]


def test_keys_of_a_command_may_stand_beside_requires() -> None:
    short = {"tasks": {"a": {"command": ["make"], "env": {"A": "1"}, "cwd": "x", "timeout": 3, "cache": True}}}
    same = {"tasks": {"a": {"task": command("make", env={"A": "1"}, cwd="x", timeout=3, cache=True)}}}
    assert long(short) == long(same)
    assert content_hash(document_from_object(short)) == content_hash(document_from_object(same))
    assert schemas.members("task-graph", "commandPayload") == tuple(
        each for each in schemas.members("task-graph", "commandPayload") if each in COMMAND_KEYS
    ), "each of them may"
    mixed = {"tasks": {"a": {"command": ["make"], "task": {"target": "big"}}}}
    assert long(mixed)["a"][2] == {"target": "big", **command("make")}


@pytest.mark.parametrize("shell", [None, *SHELLS])
def test_a_script_is_the_last_word_of_its_shell(shell: str | None) -> None:
    node: dict[str, Any] = {"script": "echo a\necho b\n"}
    if shell is not None:
        node["shell"] = shell
    assert long({"tasks": {"a": node}})["a"][2] == command(*SHELLS[shell or "sh"], "echo a\necho b\n")
    inside = {"tasks": {"a": {"task": {"payload": node}}}}
    assert long(inside) == long({"tasks": {"a": node}})


def test_a_shell_may_be_any_command() -> None:
    assert long({"tasks": {"a": {"script": "print 1", "shell": ["perl", "-e"]}}})["a"][2] == command(
        "perl", "-e", "print 1"
    )


def test_defaults_fill_in_what_a_task_does_not_say() -> None:
    short = {
        "defaults": {
            "reruns": 2,
            "target": "big",
            "env": {"A": "1", "B": "2"},
            "timeout": 5,
            "shell": "bash",
            "retry": {"limit": 3},
        },
        "tasks": {
            "a": {"command": ["make"]},
            "b": {"command": ["make"], "reruns": 0, "env": {"B": "3"}, "timeout": 1, "task": {"target": "small"}},
            "c": {"script": "x"},
            "d": {"task": {"executor": "sleep", "payload": {"seconds": 1}}},
            "e": {},
        },
    }
    assert long(short) == {
        "a": ([], 2, {"target": "big", **command("make", env={"A": "1", "B": "2"}, timeout=5)}),
        "b": ([], 0, {"target": "small", **command("make", env={"A": "1", "B": "3"}, timeout=1)}),
        "c": ([], 2, {"target": "big", **command(*SHELLS["bash"], "x", env={"A": "1", "B": "2"}, timeout=5)}),
        "d": ([], 2, {"target": "big", "executor": "sleep", "payload": {"seconds": 1}}),
        "e": ([], 2, {"target": "big"}),
    }
    read = document_from_object(short)
    assert all(node.timing["retry"] == {"limit": 3} for node in read.tasks.values())


def test_foreach_stands_for_a_task_of_each_combination_and_for_their_group() -> None:
    document = {
        "params": {"sizes": {"type": "array", "default": [1, 2]}},
        "tasks": {
            "gen a.c": {},
            "gen b.c": {},
            "compile": {
                "foreach": {
                    "file": ["src/a.c", "src/b.c"],
                    "size": {"$param": "sizes"},
                    "exclude": [{"file": "src/b.c", "size": 2}],
                    "include": [{"file": "c.c", "size": {"n": 9}}],
                    "label": "cc {{file.stem}} {{size}}",
                },
                "requires": ["gen a.c"],
                "command": ["cc", "{{file}}", "-o", "{{file.stem}}.o", "${HOME} {{other}} {{ size }}"],
                "env": {"DIR": "{{file.dir}}", "NAME": "{{file.name}}", "ENDING": "{{file.ending}}"},
                "task": {"metadata": {"size": {"$each": "size"}}},
            },
            "link": {"requires": ["compile"], "command": ["ld"]},
        },
    }
    read = document_from_object(document)
    labels = ["cc a 1", "cc a 2", "cc b 1", 'cc c {"n":9}']
    assert list(read.tasks) == ["gen a.c", "gen b.c", *labels, "link"]
    assert read.groups["compile"].tasks == tuple(labels)
    one = read.tasks["cc a 2"]
    assert one.requires == ("gen a.c",)
    assert one.task == {
        "metadata": {"size": 2},
        "payload": {
            "command": ["cc", "src/a.c", "-o", "a.o", "${HOME} {{other}} 2"],
            "env": {"DIR": "src", "NAME": "a.c", "ENDING": ".c"},
        },
    }
    assert list(document_from_object(document, given=Given({"sizes": [7]})).tasks)[2:4] == ["cc a 7", "cc b 7"]


def test_one_list_has_items_and_labels_of_their_own() -> None:
    document = {"tasks": {"t": {"foreach": ["x", {"n": 1}], "command": ["echo", "{{item}}"]}}}
    assert {label: task["payload"]["command"][1] for label, (_, _, task) in long(document).items()} == {
        "t x": "x",
        't {"n":1}': '{"n":1}',
    }
    again = {"tasks": {"t": {"foreach": ["x"], "requires": ["gen {{item}}"]}, "gen x": {}}}
    assert long(again)["t x"][0] == ["gen x"]


def test_files_are_found_from_the_folder_of_the_document() -> None:
    document = {"tasks": {"cc": {"foreach": {"file": {"files": "*.c"}}, "command": ["cc", "{{file}}"]}}}
    read = read_document(json.dumps(document), files=lambda pattern: ["a.c", "b.c"] if pattern == "*.c" else [])
    assert list(read.tasks) == ["cc a.c", "cc b.c"]
    assert problems(document) == [("no-folder", "/tasks/cc/foreach/file", 1)]
    assert problems(document, files=lambda _: []) == [("empty", "/tasks/cc/foreach/file", 1)]


def test_a_document_of_nothing_short_is_left_as_it_is() -> None:
    document = {"tasks": {"a": {"task": command("echo", "{{item}}")}}}
    assert long(document)["a"][2] == command("echo", "{{item}}")


WRONG = """
defaults: {rerunz: 1}
tasks:
  a:
    command: [x]
    script: y
  b:
    script: y
    shell: bahs
  c:
    command: [x]
    shell: bash
  d:
    script: [y]
  e:
    foreach: {n: [1, 2]}
    command: [x, 7]
  f:
    env: {A: 1}
    command: [x]
  g:
    foreach: {n: 3}
  h:
    foreach: {n: []}
  i:
    foreach: {n: [1, 2], label: same}
  j:
    foreach: {n: [a], label: "{{n.size}}"}
  k:
    command: [x]
    task: {payload: {command: [y]}}
"""


def test_problems_name_the_place_as_written() -> None:
    assert problems(WRONG, form="yaml") == [
        ("unknown-key", "/defaults/rerunz", 2),
        ("twice", "/tasks/a/script", 6),
        ("unknown-shell", "/tasks/b/shell", 9),
        ("no-script", "/tasks/c/shell", 12),
        ("wrong-type", "/tasks/d/script", 14),
        ("wrong-type", "/tasks/e/command/1", 17),
        ("wrong-type", "/tasks/f/env/A", 19),
        ("wrong-type", "/tasks/g/foreach/n", 22),
        ("empty", "/tasks/h/foreach", 24),
        ("duplicate-label", "/tasks/i/foreach", 26),
        ("unknown-part", "/tasks/j/foreach", 28),
        ("twice", "/tasks/k/command", 30),
    ]


@pytest.mark.parametrize(
    ("foreach", "code"),
    [
        ({"n": list(range(101)), "m": list(range(100))}, "too-many"),
        ({f"n{number}": [1, 2] for number in range(200)}, "too-many"),
        ("x", "wrong-type"),
        ({"2": [1]}, "bad-name"),
        ({}, "empty"),
        ({"n": [1], "exclude": [1]}, "wrong-type"),
        ({"n": [1], "include": [{}]}, "wrong-type"),
        ({"n": [1], "include": [{"m": 1}]}, "missing"),
        ({"n": [1], "label": 7}, "wrong-type"),
        ({"n": {"$param": "none"}}, "no-list"),
        ({"n": [1], "exclude": [{"n": 1}]}, "empty"),
    ],
)
def test_wrong_lists_are_refused_before_they_are_multiplied(foreach: Any, code: str) -> None:
    assert code in [each for each, _, _ in problems({"tasks": {"a": {"foreach": foreach}}})]


def test_so_many_tasks_may_come_of_one() -> None:
    read = document_from_object({"tasks": {"a": {"foreach": {"n": list(range(FOREACH_MAX))}}}})
    assert len(read.tasks) == len(read.groups["a"].tasks) == FOREACH_MAX


def test_a_group_of_the_same_name_is_a_clash() -> None:
    document = {"tasks": {"a": {"foreach": [1]}, "b": {}}, "groups": {"a": {"tasks": ["b"]}}}
    assert ("name-clash", "/tasks/a/foreach", 1) in problems(document)


def test_executors_of_ones_own_have_scripts_of_their_own() -> None:
    payload = {"script": "select 1", "shell": "psql"}
    document = document_from_object({"tasks": {"a": {"task": {"executor": "sql", "payload": dict(payload)}}}})
    assert document.tasks["a"].task["payload"] == payload


def test_validate_prints_what_short_forms_stand_for(tmp_path: Path) -> None:
    path = tmp_path / "g.yaml"
    path.write_text("tasks: {a: {foreach: [x, y], script: 'echo {{item}}'}}\n")
    shown = CliRunner().invoke(commands, ["validate", "--expanded", str(path)])
    assert shown.exit_code == 0
    written_out = json.loads(shown.stdout)
    assert [each["task"]["payload"]["command"] for each in written_out["tasks"].values()] == [
        ["sh", "-ec", "echo x"],
        ["sh", "-ec", "echo y"],
    ]
    answer = json.loads(CliRunner().invoke(commands, ["validate", "--expanded", "--json", str(path)]).stdout)
    assert answer["files"][0]["document"] == written_out
    path.write_text(shown.stdout)
    assert json.loads(CliRunner().invoke(commands, ["validate", "--expanded", str(path)]).stdout) == written_out


def test_defaults_of_files_are_not_for_a_command_in_a_pod() -> None:
    defaults = {"env": {"A": "b"}, "inputs": ["src"], "cache": True, "envFile": ".env"}
    tasks = {
        "pod": {"image": "busybox", "command": ["x"], "task": {"executor": "kubernetes"}},
        "here": {"command": ["x"]},
    }
    made = document_from_object({"defaults": defaults, "tasks": tasks}).tasks
    assert made["pod"].task["payload"] == {"image": "busybox", "command": ["x"], "env": {"A": "b"}}
    assert made["here"].task["payload"] == {"command": ["x"], **defaults}
