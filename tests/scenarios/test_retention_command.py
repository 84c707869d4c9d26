"""`taskgraph delete`, `archive` and `restore` as they are typed: words, JSON, exit codes."""

import asyncio
import gzip
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from taskgraph.interfaces.app import open_app
from taskgraph.interfaces.cli import app as commands
from taskgraph.interfaces.client.client import Client
from taskgraph.interfaces.client.graph import Graph
from taskgraph.interfaces.settings import read_settings
from taskgraph.model.errors import InvalidInput, NotFound, Refused
from taskgraph.model.ids import GRAPH
from taskgraph.storage.tables import Merge
from tests.http.typed import both_doors

pytestmark = both_doors

TASKS = {"a": {"task": {"payload": {"command": ["echo", "hello"]}}}, "b": {"requires": ["a"], "task": {}}}


class Desk:
    """One store and one folder, and commands over them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = f"sqlite:///{folder}/store.db"
        self.file = folder / "graph.json"
        self.file.write_text(json.dumps({"tasks": TASKS}))

    def __call__(self, *words: str, exit_code: int = 0, data: bytes | None = None) -> Any:
        found = CliRunner().invoke(commands, [*words, "--store", self.store], input=data)
        assert found.exit_code == exit_code, (found.stdout_bytes, found.stderr, found.exception)
        return found

    def json(self, *words: str, exit_code: int = 0) -> Any:
        return json.loads(self(*words, "--json", exit_code=exit_code).stdout)

    def finished(self, *graph_ids: str) -> None:
        for graph_id in graph_ids:
            self("run", str(self.file), "--id", graph_id)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.chdir(tmp_path)
    return Desk(tmp_path)


def test_graphs_go_and_are_gone(desk: Desk) -> None:
    desk.finished("one", "two")
    assert desk("delete", "one").stdout == "one deleted: 6 rows, 1 log file\n"
    assert not (desk.folder / "logs" / "one").exists()
    assert desk("delete", "one").stdout == "one had been deleted already\n"
    (told,) = desk.json("delete", "two")["deleted"]
    assert (told["graphId"], told["rows"], told["logs"], told["already"]) == ("two", 6, 1, False)
    assert told["idFreeAfter"].endswith("Z")
    for words in (("status", "one"), ("show", "one"), ("events", "one"), ("doctor", "one"), ("archive", "one")):
        assert "graph one was deleted at" in desk(*words, exit_code=3).stderr
    assert desk.json("list")["graphs"] == []


def test_on_a_file_a_deleted_id_is_free_at_once(desk: Desk) -> None:
    desk.finished("x")
    desk("delete", "x")
    desk.file.write_text(json.dumps({"tasks": {"other": {"task": {"payload": {"command": ["echo", "again"]}}}}}))
    ran = desk("run", str(desk.file), "--id", "x")
    assert "graph x was deleted; x stands for graph x-2 now" in ran.stderr
    assert "x-2  1/1 completed" in ran.stdout
    assert desk.json("status", "x")["graphId"] == "x-2"
    assert "again" in desk("logs", "x").stdout
    again = desk("submit", str(desk.file), "--id", "x")
    assert again.stdout == "x-2\n", "the same content under the same id is the same graph"
    desk.file.write_text(json.dumps({"tasks": TASKS}))
    assert "graph x-2 exists, with different content" in desk("submit", str(desk.file), "--id", "x", exit_code=4).stderr
    assert desk("resubmit", "x", "--id", "x").stdout == "x-2\n"
    desk("rerun", "x", "other")
    assert "1 rerun" in desk("run", "--id", "x").stdout
    assert desk("delete", "x", "--archive", "kept.json.gz").stdout.startswith("x-2 deleted")
    assert desk("delete", "x").stdout == "x-2 had been deleted already\n"
    assert "graph x-2 was deleted at" in desk("status", "x", exit_code=3).stderr
    assert "x-3  2/2 completed" in desk("run", str(desk.file), "--id", "x").stdout
    assert [each["graphId"] for each in desk.json("list")["graphs"]] == ["x-3"]
    assert desk.json("doctor", "x")["findings"] == []


async def test_a_deleted_id_is_free_at_once_from_python(desk: Desk) -> None:
    graph = {"tasks": TASKS}
    async with Client(desk.store) as client:
        await client.run(graph, "x")
        await client.delete("x")
        assert (await client.submit(graph, "x")).graph_id == "x-2"
        assert (await client.run(graph, "x")).graph_id == "x-2"
        assert [each.label for each in await client.tasks("x")] == ["a", "b"]
        assert [each.graph_id for each in await client.graphs()] == ["x-2"]
        assert (await client.delete("x")).graph_id == "x-2"
        assert (await client.run(graph, "x")).graph_id == "x-3"


def test_what_is_not_there_or_has_not_ended(desk: Desk) -> None:
    desk.finished("done")
    desk("submit", str(desk.file), "--id", "running")
    assert "did you mean “done”?" in desk("delete", "donne", exit_code=3).stderr
    found = desk("delete", "running", exit_code=4)
    assert "it is running, and only a graph that has ended is deleted; cancel it first" in found.stderr
    told = desk.json("delete", "running", "done", "nowhere", exit_code=4)
    assert [each["graphId"] for each in told["deleted"]] == ["done"], "the others are no reason to stop"
    codes = [(each["graphId"], each["error"]["code"]) for each in told["failed"]]
    assert codes == [("running", "not-ended"), ("nowhere", "not-found")]
    assert "there is no graph nowhere" in desk("delete", "done", "nowhere", exit_code=3).stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "say either which graphs (taskgraph delete ID), or how old"),
        (("one", "--older-than", "1"), "say either which graphs"),
        (("one", "--state", "blocked"), "--state and --dry-run go with --older-than"),
        (("one", "--dry-run"), "go with --older-than"),
        (("--older-than", "1", "--state", "running"), "--state running: cancelled, finished, blocked"),
        (("one", "two", "--archive", "f"), "--archive takes one graph"),
        (("o/e",), "cannot be the id of a graph"),
    ],
)
def test_words_that_make_no_sense(desk: Desk, words: tuple[str, ...], said: str) -> None:
    assert said in desk("delete", *words, exit_code=2).stderr


def test_by_age(desk: Desk) -> None:
    desk.finished("one", "two")
    assert desk.json("delete", "--older-than", "1", "--dry-run")["graphs"] == []
    told = desk.json("delete", "--older-than", "0", "--dry-run")["graphs"]
    assert {(each["graphId"], each["state"]) for each in told} == {("one", "finished"), ("two", "finished")}
    found = desk("delete", "--older-than", "0", "--dry-run")
    assert "2 graphs would be deleted" in found.stderr
    assert desk("delete", "--older-than", "0", "--state", "blocked").stdout == ""
    assert desk("delete", "--older-than", "0").stdout.splitlines() == [
        "one deleted: 6 rows, 1 log file",
        "two deleted: 6 rows, 1 log file",
    ], "the oldest first"
    assert desk.json("list")["graphs"] == []


def test_a_graph_goes_into_a_file_and_comes_back(desk: Desk) -> None:
    desk.finished("one")
    assert desk("archive", "one").stdout.startswith("one.json.gz: graph one, finished, 6 rows, ")
    assert "one.json.gz exists; choose another file, or say --force" in desk("archive", "one", exit_code=4).stderr
    told = desk.json("archive", "one", "--logs", "--force")
    assert (told["file"], told["rows"], told["logs"], told["complete"]) == ("one.json.gz", 6, 1, True)
    assert told["bytes"] == (desk.folder / "one.json.gz").stat().st_size
    piped = desk("archive", "one", "--logs", "-o", "-").stdout_bytes
    assert piped == (desk.folder / "one.json.gz").read_bytes()
    assert [name for name in os.listdir(desk.folder) if name.endswith(".part")] == []
    before = desk("rows", "one").stdout
    desk("delete", "one")
    assert desk("restore", "one.json.gz").stdout == "one is back, finished: 6 rows, 1 log file\n"
    assert desk("restore", "one.json.gz").stdout == "one is there already, finished\n"
    after = desk("rows", "one").stdout.splitlines()
    left = [line for line in after if not line.startswith(("  restored ", "  archive "))]
    assert sorted(left) == sorted(before.splitlines())
    assert desk("logs", "one", "a").stdout == "hello\n"
    assert "nothing wrong" in desk("doctor", "one").stderr
    assert desk("archive", "one", "--logs", "-o", "-").stdout_bytes == piped, "the same content, the same bytes"
    assert "exists, and is finished" in desk("restore", *kept(desk, "other"), exit_code=4).stderr
    desk("delete", "one")
    told = json.loads(desk("restore", "-", "--json", data=piped).stdout)
    plan = told.pop("plan")
    assert told == {"graphId": "one", "state": "finished", "rows": 6, "logs": 1, "already": False}
    assert (
        {state: number for state, number in plan["counts"].items() if number},
        plan["signature"],
        plan["trusted"],
        plan["refusals"],
    ) == ({"completed": 2}, None, None, [])


def kept(desk: Desk, name: str) -> list[str]:
    """Another archive of the same graph: without logs."""
    desk("archive", "one", "-o", f"{name}.json.gz")
    return [f"{name}.json.gz"]


def test_what_cannot_be_archived_or_restored(desk: Desk) -> None:
    desk("submit", str(desk.file), "--id", "running")
    found = desk("archive", "running")
    assert "graph running could move meanwhile: this is to be looked at, not to be put back" in found.stderr
    assert "only a graph that stands still is put back" in desk("restore", "running.json.gz", exit_code=4).stderr
    assert "--json describes a file" in desk("archive", "running", "-o", "-", "--json", exit_code=2).stderr
    assert "did you mean" in desk("archive", "runing", exit_code=3).stderr
    assert "cannot be read: No such file" in desk("restore", "nowhere.gz", exit_code=2).stderr
    (desk.folder / "text").write_text("no archive")
    assert "text is no archive" in desk("restore", "text", exit_code=2).stderr
    (desk.folder / "empty.gz").write_bytes(gzip.compress(b""))
    assert "is cut off" in desk("restore", "empty.gz", exit_code=2).stderr


def test_a_graph_is_archived_and_then_deleted(desk: Desk) -> None:
    desk("submit", str(desk.file), "--id", "running")
    assert "cancel it first" in desk("delete", "running", "--archive", "r.json.gz", exit_code=4).stderr
    assert not (desk.folder / "r.json.gz").exists()
    desk.finished("one")
    assert "one deleted" in desk("delete", "one", "--archive", "kept.json.gz").stdout
    assert "had been deleted" in desk("delete", "one", "--archive", "kept.json.gz").stdout, "the same command goes on"
    assert "1 log file" in desk("restore", "kept.json.gz").stdout
    assert "exists; choose another file" in desk("delete", "one", "--archive", "kept.json.gz", exit_code=4).stderr
    assert desk.json("status", "one")["state"] == "finished"


@pytest.mark.parametrize("text", ["soon", "-1", "1e3", "nan"])
def test_days_that_are_none(desk: Desk, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASKGRAPH_KEEP_DAYS", text)
    assert "TASKGRAPH_KEEP_DAYS" in desk("serve", exit_code=2).stderr


def test_from_python(desk: Desk) -> None:
    with Client.sync(desk.store) as client:
        graph = Graph()
        graph.task("a", command=["echo", "x"])
        client.run(graph, "g")
        assert client.archive("g", desk.folder / "g.json.gz", logs=True).complete
        with pytest.raises(Refused):
            client.archive("g", desk.folder / "g.json.gz")
        assert client.delete("g", reason="as its owner asked").rows == 4
        with pytest.raises(NotFound, match="as its owner asked"):
            client.status("g")
        with pytest.raises(InvalidInput):
            client.delete("../g")
        with pytest.raises(InvalidInput, match="cannot be read"):
            client.restore(desk.folder / "nowhere")
        assert client.restore(desk.folder / "g.json.gz").rows == 4
        assert client.logs("g", "a") == "x\n"


# --- what a file is before it is put back ------------------------------------------------------------------------


def test_it_says_what_it_will_put_back(desk: Desk) -> None:
    obj = {"tasks": {"bad": {"task": {"payload": {"command": ["false"]}}}, "after": {"requires": ["bad"], "task": {}}}}
    desk.file.write_text(json.dumps({**obj, "notify": {"onFinished": {"command": ["touch", "TOLD"]}}}))
    desk("run", str(desk.file), "--id", "one", exit_code=1)
    desk("archive", "one", "--logs")
    desk("delete", "one", "--force")
    plan = desk("restore", "one.json.gz", "--plan").stdout
    assert plan.startswith("graph one: submitted ")
    for line in (
        "  tasks     1 failed, 1 unscheduled\n",
        "  notices   command touch TOLD (open)\n",
        "  a rerun   would run up to 2 tasks: 2 default\n",
        "  signature none: the digest is against damage, and says nothing of who made it\n",
    ):
        assert line in plan
    assert desk.json("list")["graphs"] == [], "nothing is written"
    told = desk.json("restore", "one.json.gz", "--plan")
    assert (told["commands"], told["taskCount"], told["counts"]["failed"], told["counts"]["unscheduled"]) == (
        {"default": 2},
        2,
        1,
        1,
    )
    assert "  a rerun   would run up to 2 tasks" in desk("restore", "one.json.gz").stderr
    assert not (desk.folder / "TOLD").exists()


def spoilt(path: Path, old: bytes, new: bytes) -> Path:
    """The file with its digest put right after a change."""
    lines = gzip.decompress(path.read_bytes()).replace(old, new).splitlines(keepends=True)
    end = json.loads(lines[-1])
    end["end"]["sha256"] = hashlib.sha256(b"".join(lines[:-1])).hexdigest()
    other = path.with_name("spoilt.json.gz")
    other.write_bytes(gzip.compress(b"".join([*lines[:-1], json.dumps(end).encode() + b"\n"])))
    return other


def test_signatures(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.finished("one")
    desk("archive", "one", "-o", "unsigned.gz")
    made = CliRunner().invoke(commands, ["keygen", "key"])
    assert (made.exit_code, made.stdout.startswith("key signs, key.pub verifies: ")) == (0, True)
    assert (desk.folder / "key").stat().st_mode & 0o777 == 0o600
    again = CliRunner().invoke(commands, ["keygen", "key"])
    assert (again.exit_code, "a key is never overwritten" in again.stderr) == (4, True)
    monkeypatch.setenv("TASKGRAPH_ARCHIVE_KEY", "key")
    assert desk("archive", "one").stdout.endswith(" bytes, signed\n")
    monkeypatch.delenv("TASKGRAPH_ARCHIVE_KEY")
    desk("delete", "one")

    assert ", which is not trusted here\n" in desk("restore", "one.json.gz", "--plan").stdout
    found = desk("restore", "one.json.gz", "--require-signature", exit_code=4)
    assert "is signed by a key that is not trusted here" in found.stderr
    monkeypatch.setenv("TASKGRAPH_ARCHIVE_TRUSTED", "key.pub")
    assert ", trusted by key.pub\n" in desk("restore", "one.json.gz", "--plan").stdout
    monkeypatch.setenv("TASKGRAPH_ARCHIVE_REQUIRE_SIGNATURE", "1")
    assert "is not signed, and a signature is required" in desk("restore", "unsigned.gz", exit_code=4).stderr
    other = spoilt(desk.folder / "one.json.gz", b"hello", b"HELLO")
    found = desk("restore", str(other), exit_code=2)
    assert "its signature is bad; it is not what was signed" in found.stderr
    monkeypatch.setenv("TASKGRAPH_ARCHIVE_REQUIRE_SIGNATURE", "0")
    assert "its signature is bad" in desk("restore", str(other), exit_code=2).stderr, "required or not"
    assert desk.json("list")["graphs"] == []
    told = desk.json("restore", "one.json.gz", "--require-signature")["plan"]
    assert (told["trusted"], set(told["signature"])) == ("key.pub", {"key", "by", "at", "value"})


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("TASKGRAPH_ARCHIVE_KEY", "nowhere", "nowhere cannot be read: No such file"),
        ("TASKGRAPH_ARCHIVE_KEY", "open", "can be read by others; make it its owner's alone: chmod 600"),
        ("TASKGRAPH_ARCHIVE_KEY", "text", "text is no key; taskgraph keygen FILE makes one"),
        ("TASKGRAPH_ARCHIVE_TRUSTED", "nowhere", "nowhere cannot be read: No such file"),
        ("TASKGRAPH_ARCHIVE_TRUSTED", "text", "text is no public key"),
        ("TASKGRAPH_ARCHIVE_REQUIRE_SIGNATURE", "yes", "write 1 or 0"),
    ],
)
def test_keys_that_are_none(desk: Desk, monkeypatch: pytest.MonkeyPatch, name: str, value: str, words: str) -> None:
    desk.finished("one")
    desk("archive", "one")
    (desk.folder / "text").write_text("no key")
    (desk.folder / "text").chmod(0o600)
    (desk.folder / "open").write_text("no key")
    (desk.folder / "open").chmod(0o644)
    monkeypatch.setenv(name, value)
    assert words in desk("restore", "one.json.gz", exit_code=2).stderr


def test_bounds_are_raised_deliberately(desk: Desk) -> None:
    desk.finished("one")
    desk("archive", "one")
    desk("delete", "one")
    assert "has more than 3 rows; --max-rows" in desk("restore", "one.json.gz", "--max-rows", "3", exit_code=2).stderr
    assert "more than 99 bytes; --max-bytes" in desk("restore", "one.json.gz", "--max-bytes", "99", exit_code=2).stderr
    desk("restore", "one.json.gz", "--max-rows", "6", "--max-bytes", "100000")


def test_nothing_is_deleted_if_its_file_could_not_be_put_back(desk: Desk) -> None:
    desk.finished("one")

    async def damage() -> None:
        async with open_app(read_settings(desk.store, {}, cwd=desk.folder)) as app:
            (row,) = await app.tables.get("one", [GRAPH])
            assert row is not None
            await app.tables.commit("one", [Merge(GRAPH, row.etag, {"failedTasks": 5})])

    asyncio.run(damage())
    found = desk("delete", "one", "--archive", "one.gz", exit_code=4)
    assert "one.gz could not be put back: the graph: " in found.stderr
    assert "Nothing is deleted; taskgraph doctor one --repair" in found.stderr
    assert desk.json("list")["graphs"] != []
