"""Ninja and make come in: their targets, what they need, what they run."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.unit.imported import payload, read, shape, wrong

NINJA = """\
# by hand
flags = -Wall
builddir = out
pool link
  depth = 2
rule cc
  command = cc $flags -c $in -o $out $
      -I.
rule ld
  command = ld $in -o $out
  pool = link
rule gen
  command = python $in > $out
build $builddir/a.o: cc a.c | out/./gen.h || dirs
build out/b$ c.o: cc b$ c.c
  flags = -O2 $flags
build out/gen.h out/gen.c | out/gen.log: gen gen.py
build dirs: phony
build app: ld out/a.o out/b$ c.o |@ checked
build checked: gen check.py
build all: phony app
build unused: cc out/gen.c
default all
"""


def test_each_build_is_a_task_that_requires_those_of_its_inputs():
    graph = read("ninja", NINJA)
    assert shape(graph) == {
        "out/a.o": {"out/gen.h", "dirs"},
        "out/b c.o": set(),
        "out/gen.h": set(),
        "dirs": set(),
        "app": {"out/a.o", "out/b c.o"},
        "checked": set(),
        "all": {"app"},
    }
    assert {node.task["executor"] for node in graph.document.tasks.values()} == {"noop"}
    assert payload(graph, "out/a.o") == {"commandLine": "cc -Wall -c a.c -o out/a.o -I."}
    assert payload(graph, "out/b c.o") == {"commandLine": "cc -O2 -Wall -c 'b c.c' -o 'out/b c.o' -I."}
    (pool,) = graph.document.groups.values()
    assert (pool.name, pool.tasks, pool.max_in_flight) == ("pool link", ("app",), 2)
    assert graph.notes == (
        "2 phony builds became noops.",
        "4 inputs are files that no build makes.",
        "One build is not needed for what is made.",
    )


def test_goals_of_ninja():
    assert [*shape(read("ninja", NINJA, goals=("out/gen.c",)))] == ["out/gen.h"]
    assert [*shape(read("ninja", NINJA, goals=("checked", "unused")))] == ["out/gen.h", "checked", "unused"]
    assert wrong("ninja", NINJA, goals=("ap", "app")) == [("unknown-label", None)]
    without = NINJA.replace("default all\n", "")
    assert "unused" in shape(read("ninja", without))


def test_files_of_ninja_include_others():
    files = {"rules.ninja": "rule r\n  command = run $x $in\nx = 1\n", "sub.ninja": "x = 2\nbuild c: r b\n"}
    text = "include rules.ninja\nbuild b: r a\nsubninja sub.ninja\nbuild d: r c\n"
    graph = read("ninja", text, beside=files.get)
    assert shape(graph) == {"b": set(), "c": {"b"}, "d": {"c"}}
    assert [payload(graph, label)["commandLine"] for label in "bcd"] == ["run 1 a", "run 2 b", "run 1 c"]
    assert wrong("ninja", text)[0] == ("syntax", 1)


def test_response_files_folders_and_quotes_of_ninja_run(tmp_path: Path):
    text = (
        "rule ar\n  command = cat $out.rsp > $out\n  rspfile = $out.rsp\n  rspfile_content = $in_newline\n"
        "build lib/it's.a: ar x$ y z\n"
    )
    graph = read("ninja", text, commands=True)
    (task,) = graph.document.tasks.values()
    assert task.task["executor"] == "command"
    subprocess.run(task.task["payload"]["command"], cwd=tmp_path, check=True)
    assert (tmp_path / "lib" / "it's.a").read_text() == "'x y'\nz"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("build a: nothing b\n", [("syntax", 1)]),
        ("\nrule r\n  command\n\nbuild a r\n", [("syntax", 2), ("syntax", 5)]),
        ("frob x\n", [("syntax", 1)]),
        ("pool p\n", [("syntax", 1)]),
        ("build a: phony b\nbuild b: phony a\nbuild c: phony a\n", [("cycle", 1)]),
        ("build a: phony\nbuild a: phony\n", [("duplicate-label", 2)]),
        ("rule r\n  command = $x\n  x = $command\nbuild a: r\n", [("cycle", 4)]),
        ("# nothing\n", [("empty", None)]),
    ],
)
def test_a_bad_file_of_ninja(text: str, expected: list[tuple[str, int]]):
    assert wrong("ninja", text) == expected


MAKEFILE = """\
CC = cc
FLAGS := -O2 $$HOME
all: app docs | out
.PHONY: all docs clean
docs: SPECIAL = y
words: SPECIAL := x
app: a.o b.o
\t@echo $(CC) $(FLAGS) $^
\ttouch $@
%.o: %.c common.h
\ttouch $@
docs:
\ttouch docs.made $(SPECIAL)
out:
\t-false
\tmkdir out
y.tab.c y.tab.h &: y.y
\ttouch y.tab.c y.tab.h
words: y.tab.h y.tab.c
\techo $(words a b c)
sub:
\t$(MAKE) -f none.mk
clean:
\trm -f app
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("make") is None:
        pytest.skip("there is no GNU make")
    made = tmp_path_factory.mktemp("make")
    (made / "Makefile").write_text(MAKEFILE)
    for name in ("a.c", "b.c", "common.h", "y.y"):
        (made / name).touch()
    return made


def data_base(folder: Path, *goals: str) -> str:
    command = ["make", "-pnB", *goals]
    return subprocess.run(
        command, cwd=folder, env={**os.environ, "LC_ALL": "C"}, capture_output=True, text=True, check=False
    ).stdout


def test_each_target_of_make_is_a_task(folder: Path):
    graph = read("make", data_base(folder))
    assert shape(graph) == {
        "all": {"app", "docs", "out"},
        "app": {"a.o", "b.o"},
        "a.o": set(),
        "b.o": set(),
        "docs": set(),
        "out": set(),
    }
    assert payload(graph, "a.o") == {"commandLine": "touch $@"}
    assert "One target has no recipe." in graph.notes


def test_the_order_is_that_of_make(folder: Path):
    """What `make --trace` starts, in its order, is what the graph holds, and nothing before what it requires."""
    graph = read("make", data_base(folder))
    trace = subprocess.run(
        ["make", "-nB", "--trace"],
        cwd=folder,
        env={**os.environ, "LC_ALL": "C"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    started = [line.split("'")[1] for line in trace.splitlines() if line.startswith("Makefile:")]
    with_recipe = {label for label in graph.document.tasks if payload(graph, label)}
    assert set(started) == with_recipe
    assert all(
        started.index(need) < started.index(label) for label in started for need in shape(graph)[label] & with_recipe
    )


def test_goals_of_make_and_targets_made_together(folder: Path):
    graph = read("make", data_base(folder, "words", "sub"))
    made, (label,) = shape(graph), [label for label in shape(graph) if label.startswith("y.tab")]
    assert made == {"words": {label}, label: set(), "sub": set()}
    assert "One target is made together with another." in graph.notes
    assert "Targets whose recipe calls make again are one task each: “sub”." in graph.notes
    assert [*shape(read("make", data_base(folder), goals=("clean",)))] == ["clean"]
    assert wrong("make", data_base(folder), goals=("appp", "common.h")) == [("unknown-label", None)] * 2


def test_recipes_of_make_run_as_they_would(folder: Path, tmp_path: Path):
    graph = read("make", data_base(folder, "all", "words"), commands=True)
    tasks = {label: node.task for label, node in graph.document.tasks.items()}
    assert tasks["words"]["executor"] == tasks["all"]["executor"] == "noop"
    kept = "Recipes that take make itself to be put in words, kept as information and not run: “docs”, “words”."
    assert kept in graph.notes
    for label in ("app", "out"):
        done = subprocess.run(
            tasks[label]["payload"]["command"], cwd=tmp_path, check=True, capture_output=True, text=True
        )
        assert done.stdout == (f"cc -O2 {os.environ['HOME']} a.o b.o\n" if label == "app" else "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["app", "out"]


def test_a_makefile_itself_is_no_data_base():
    assert wrong("make", MAKEFILE) == [("syntax", None)]
