"""Files that tasks leave, hand on, and need not make again, over real processes and both stores."""

import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.processes import taskgraph, write_graph


@pytest.fixture(params=["embedded", pytest.param("azurite", marks=[pytest.mark.azurite, pytest.mark.campaign])])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "embedded":
        return f"sqlite:///{tmp_path}/store/a.db"
    return str(request.getfixturevalue("azurite"))


def sh(text: str, *words: Any, requires: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    return {"requires": list(requires), "task": {"payload": {"command": ["sh", "-ec", text, *words], **more}}}


class Folder:
    """A working folder with a program of two sources, and runs of its graph."""

    def __init__(self, folder: Path, store: str) -> None:
        self.folder, self.store = folder / "work", store
        (self.folder / "src").mkdir(parents=True)
        for name in "ab":
            (self.folder / "src" / f"{name}.c").write_text(f"source {name}\n")
        tasks: dict[str, Any] = {
            f"compile {name}": sh(
                f"mkdir -p obj; cat src/{name}.c > obj/{name}.o; chmod +x obj/{name}.o; echo x >> ran-{name}",
                inputs=[f"src/{name}.c"],
                outputs=[f"obj/{name}.o"],
                cache=True,
            )
            for name in "ab"
        }
        tasks["link"] = sh(
            'mkdir -p out/deep; cat "$0" "$1" > out/app; : > out/deep/empty; echo x >> ran-link; '
            "printf '{\"n\": 2}' > $TASKGRAPH_RESULT_FILE",
            *({"$file": f"compile {name}", "path": f"obj/{name}.o"} for name in "ab"),
            requires=("compile a", "compile b"),
            outputs=["out"],
            cache=True,
        )
        tasks["use"] = sh(
            'test -x "$2"; cat "$0"; echo "$1"',
            {"$file": "link", "path": "out/app"},
            {"$result": "link"},
            {"$file": "compile a", "path": "obj/a.o"},
            requires=("link",),
        )
        write_graph(self.folder / "g.json", tasks)

    def tg(self, *words: str) -> Any:
        return taskgraph(*words, store=self.store, cwd=self.folder)

    def run(self, graph_id: str, *words: str) -> str:
        ran = self.tg("run", "g.json", "--id", graph_id, *words)
        assert ran.returncode == 0, ran.stderr
        return str(ran.stderr)

    def executed(self) -> dict[str, int]:
        """How often each command has run so far."""
        return {each.name[4:]: each.read_text().count("x") for each in self.folder.glob("ran-*")}


def test_what_was_made_of_the_same_is_not_made_again(tmp_path: Path, store: str) -> None:
    it = Folder(tmp_path, store)
    prefix = os.urandom(3).hex()
    it.run(f"{prefix}-1")
    assert it.executed() == {"a": 1, "b": 1, "link": 1}
    assert it.tg("logs", f"{prefix}-1", "use").stdout == 'source a\nsource b\n{"n":2}\n'

    shown = it.run(f"{prefix}-2")
    assert it.executed() == {"a": 1, "b": 1, "link": 1}
    assert shown.count("from the cache") == 3
    why = it.tg("why", f"{prefix}-2", "compile a").stdout
    assert f"from the cache: as run 0 of “compile a” in graph {prefix}-1" in why
    assert it.tg("logs", f"{prefix}-2", "use").stdout == 'source a\nsource b\n{"n":2}\n'

    for name in ("obj/a.o", "obj/b.o", "out/app", "out/deep/empty"):
        (it.folder / name).unlink()
    it.run(f"{prefix}-3")
    assert it.executed() == {"a": 1, "b": 1, "link": 1}
    assert (it.folder / "out/app").read_text() == "source a\nsource b\n"
    assert (it.folder / "out/deep/empty").read_text() == ""
    assert os.access(it.folder / "obj/a.o", os.X_OK)

    (it.folder / "src/b.c").write_text("another b\n")
    shown = it.run(f"{prefix}-4")
    assert it.executed() == {"a": 1, "b": 2, "link": 2}, "the object of the file that changed, and what follows"
    assert (it.folder / "out/app").read_text() == "source a\nanother b\n"
    assert it.tg("logs", f"{prefix}-4", "use").stdout.startswith("source a\nanother b\n")

    it.run(f"{prefix}-5", "--no-cache")
    assert it.executed() == {"a": 2, "b": 3, "link": 3}
    it.run(f"{prefix}-6")
    assert it.executed() == {"a": 2, "b": 3, "link": 3}

    assert it.tg("delete", f"{prefix}-5", f"{prefix}-1").returncode == 0
    it.run(f"{prefix}-7")
    assert it.executed() == {"a": 3, "b": 4, "link": 4}, "the runs that they came from are gone with their graph"
    listed = json.loads(it.tg("files", f"{prefix}-6", "--json").stdout)["files"]
    assert [each["path"] for each in listed] == ["obj/a.o", "obj/b.o", "out/app", "out/deep/empty"]
    copied = it.tg("files", f"{prefix}-6", "link", "--to", "copy")
    assert copied.returncode == 0, "what a graph has taken over is its own"
    assert (it.folder / "copy/out/app").read_text() == "source a\nanother b\n"


def test_another_content_of_a_file_of_variables_is_another_run(tmp_path: Path, store: str) -> None:
    prefix = os.urandom(3).hex()
    (tmp_path / "g.json").write_text(
        json.dumps(
            {
                "params": {"stage": {"type": "string"}},
                "defaults": {"envFile": {"$param": "stage"}},
                "tasks": {
                    "build": {"command": ["sh", "-c", "echo $MODE"], "cache": True},
                    "own": {"requires": ["build"], "command": ["sh", "-c", "echo $MODE"], "envFile": "own.env"},
                },
            }
        )
    )
    (tmp_path / "own.env").write_text("MODE=own\n")

    def run(name: str) -> tuple[int, bool]:
        ran = taskgraph(
            "run", "g.json", "--param", "stage=test.env", "--id", f"{prefix}-{name}", store=store, cwd=tmp_path
        )
        return ran.returncode, "from the cache" in ran.stderr

    def shown(name: str) -> str:
        return str(taskgraph("logs", f"{prefix}-{name}", "build", store=store, cwd=tmp_path).stdout)

    assert run("none")[0] == 1
    why = taskgraph("why", f"{prefix}-none", "build", store=store, cwd=tmp_path).stdout
    assert "could not be run in run 0: payload.envFile: the file test.env does not exist" in why
    (tmp_path / "test.env").write_text("MODE=fast\n")
    assert run("first") == (0, False)
    assert shown("first") == "fast\n"
    assert taskgraph("logs", f"{prefix}-first", "own", store=store, cwd=tmp_path).stdout == "own\n"
    assert run("same") == (0, True)
    (tmp_path / "test.env").write_text("MODE=slow\n")
    assert run("other") == (0, False)
    assert shown("other") == "slow\n"


def test_files_that_are_not_there_are_said(tmp_path: Path, store: str) -> None:
    folder = tmp_path
    tasks = {
        "forgets": sh("true", outputs=["made/*"]),
        "lacks": sh("true", inputs=["none.c"], cache=True),
        "leaves": sh("echo x > one; echo y > two", outputs=["one"]),
        "asks": sh("cat $0", {"$file": "leaves", "path": "two"}, requires=("leaves",)),
        "asks none": sh("cat $0", {"$file": "silent", "path": "two"}, requires=("silent",)),
        "silent": sh("true"),
    }
    document = {"tasks": tasks, "failurePolicy": "continue"}
    (folder / "g.json").write_text(json.dumps(document))
    graph_id = os.urandom(3).hex()
    ran = taskgraph("run", "g.json", "--id", graph_id, store=store, cwd=folder)
    assert ran.returncode == 1
    shown = {
        each["label"]: each
        for each in json.loads(taskgraph("show", graph_id, "--json", store=store, cwd=folder).stdout)["tasks"]
    }
    assert shown["forgets"]["resolution"]["reason"] == f"payload.outputs: there is no file “made/*” in {folder}"
    assert shown["lacks"]["resolution"]["reason"] == f"payload.inputs: there is no file “none.c” in {folder}"
    assert shown["asks"]["resolution"]["reason"] == ("the file “two” of “leaves” is needed, and it has kept “one”")
    assert shown["asks none"]["resolution"]["reason"] == (
        "the file “two” of “silent” is needed, and that task has kept none"
    )
    assert [shown[each]["state"] for each in ("forgets", "lacks", "asks")] == ["failed", "exception", "exception"]


def test_a_damaged_file_is_made_again(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/store/a.db"
    it = Folder(tmp_path, store)
    it.run("one")
    (kept,) = {
        each.stat().st_ino: each
        for each in (tmp_path / "store/logs/one").glob("*/0/sha256-*")
        if each.read_text() == "source a\n"
    }.values()
    kept.write_text("source z\n")
    (it.folder / "obj/a.o").unlink()
    it.run("two")
    assert it.executed() == {"a": 2, "b": 1, "link": 1}
    assert (it.folder / "obj/a.o").read_text() == "source a\n"
    with sqlite3.connect(tmp_path / "store/a.db") as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_wrong_forms_are_refused_before_anything_runs(tmp_path: Path) -> None:
    wrong = {
        "a": sh("true", {"$file": "b", "path": "../x"}, requires=("b",)),
        "b": sh("true", outputs=["/etc"]),
        "c": sh("true", {"$file": "b"}, requires=("b",)),
        "d": sh("true", {"$file": "b", "path": "x"}),
        "e": sh("true", cache="yes"),
    }
    file = write_graph(tmp_path / "g.json", wrong)
    found = taskgraph("validate", str(file), "--json", store=f"sqlite:///{tmp_path}/a.db", cwd=tmp_path)
    assert found.returncode == 2
    problems = json.loads(found.stdout)["files"][0]["problems"]
    assert sorted((each["code"], each["pointer"].split("/")[2]) for each in problems) == [
        ("bad-file", "a"),
        ("bad-file", "c"),
        ("bad-form", "b"),
        ("not-required", "d"),
        ("wrong-type", "e"),
    ]
