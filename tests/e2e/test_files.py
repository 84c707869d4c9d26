"""The files of an embedded store: whose they are, what happens when they go away, when the disk is full, read only."""

import asyncio
import contextlib
import json
import os
import re
import resource
import secrets
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from taskgraph.documents.read import read_document
from taskgraph.engine import submission
from taskgraph.interfaces import loops
from taskgraph.interfaces.app import open_app
from taskgraph.interfaces.client.client import Client
from taskgraph.interfaces.settings import read_settings
from taskgraph.model.clock import SystemClock
from taskgraph.model.errors import InvalidInput, StorageUnavailable
from taskgraph.model.flag import Flag
from taskgraph.storage.sqlite.store import EmbeddedStore
from taskgraph.storage.tables import Insert, Range, query_all
from tests.e2e.processes import command, environment, started, taskgraph, until, write_graph


def modes(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): stat.S_IMODE(os.lstat(path).st_mode) for path in folder.rglob("*")}


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def test_whatever_a_store_leaves_is_its_owners_alone(tmp_path: Path, umask: None) -> None:
    """With umask 0, while serve and a worker live: the file, its log, locks, sockets, results, logs, archives."""
    store = f"sqlite:///{tmp_path}/made/s.db"
    (tmp_path / "tmp").mkdir()
    wait = command("sh", "-c", 'echo {} > "$TASKGRAPH_RESULT_FILE"; until test -e gate; do sleep 0.05; done')
    file = write_graph(tmp_path / "g.json", {"a": wait})
    more = {"TMPDIR": str(tmp_path / "tmp")}
    with started("serve", "--worker", "1", store=store, cwd=tmp_path, **more):
        assert taskgraph("submit", str(file), "--id", "g", store=store, cwd=tmp_path, **more).returncode == 0
        until(lambda: any(path.suffix == ".json" for path in (tmp_path / "tmp").rglob("*")), what="a result")
        found = modes(tmp_path / "made")
        assert {stat.S_IMODE(folder.stat().st_mode) for folder in (tmp_path / "tmp").iterdir()} == {0o700}
        (tmp_path / "gate").touch()
        assert taskgraph("watch", "g", store=store, cwd=tmp_path, **more).returncode == 0
    logged = taskgraph(
        "run", str(write_graph(tmp_path / "l.json", {"l": command("echo", "x")})), store=store, cwd=tmp_path
    )
    assert logged.returncode == 0
    found |= modes(tmp_path / "made")
    assert {"s.db", "s.db-wal", "logs", "workers"} <= set(found)
    assert any(name.endswith(".lock") for name in found)
    assert any(name.endswith("run.log") for name in found)
    open_ones = {name: oct(mode) for name, mode in found.items() if mode & 0o077 and "bells/" not in name}
    assert open_ones == {}  # sockets are made by the system, in a folder that is closed
    assert stat.S_IMODE((tmp_path / "made").stat().st_mode) == 0o700
    archived = taskgraph("archive", "g", "-o", "g.gz", store=store, cwd=tmp_path)
    assert archived.returncode == 0, archived.stderr
    assert stat.S_IMODE((tmp_path / "g.gz").stat().st_mode) == 0o600


async def test_a_store_that_a_group_shares_says_so_by_the_mode_of_its_file(tmp_path: Path, umask: None) -> None:
    path = tmp_path / "s.db"
    path.touch()
    path.chmod(0o660)
    made = EmbeddedStore(path, SystemClock())
    await made.tables("graphs").commit("p", [Insert("a", {"x": 1})])
    await made.logs().append("g", "t", 0, b"x")
    found = modes(tmp_path)
    await made.close()
    assert found["s.db-wal"] == found["logs/g/t/0/run.log"] == 0o660
    assert found["logs/g"] == 0o770


def test_a_store_that_others_can_read_is_named_at_the_start(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/s.db"
    assert (
        taskgraph(
            "run", str(write_graph(tmp_path / "g.json", {"a": command("true")})), store=store, cwd=tmp_path
        ).returncode
        == 0
    )
    (tmp_path / "s.db").chmod(0o644)
    tmp_path.chmod(0o755)
    with started("serve", store=store, cwd=tmp_path):
        until(lambda: "every user of this machine can read" in (tmp_path / "serve.log").read_text(), what="the warning")


def test_commands_that_look_make_nothing(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/none/s.db"
    for words, code in ((("list",), 0), (("status", "g"), 3), (("workers",), 0), (("poison", "list"), 0)):
        done = taskgraph(*words, store=store, cwd=tmp_path)
        assert done.returncode == code, (words, done.stderr)
        assert (f"there is no store at {store}" in done.stderr) == (code == 3), (words, done.stderr)
    assert list(tmp_path.iterdir()) == []


@contextlib.contextmanager
def another_user() -> Iterator[None]:
    """Not root, for whom no file is read only."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("what", ["file", "folder", "both"])
async def test_a_store_that_can_only_be_read_can_be_looked_at(what: str, tmp_path: Path) -> None:
    for folder in (tmp_path, *list(tmp_path.parents)[:3]):
        if folder.stat().st_uid == os.geteuid() == 0:
            folder.chmod(0o755)
    path = tmp_path / "s.db"
    made = EmbeddedStore(path, SystemClock())
    await made.tables("graphs").commit("p", [Insert("a", {"x": 1})])
    await made.close()
    path.chmod(0o444 if what != "folder" else 0o666)
    tmp_path.chmod(0o555 if what != "file" else 0o755)
    with another_user():
        looking = EmbeddedStore(path, SystemClock())
        try:
            (row,) = await query_all(looking.tables("graphs"), "p", Range())
            assert row.columns == {"x": 1}
            with pytest.raises(StorageUnavailable, match="cannot be written to"):
                await looking.tables("graphs").commit("p", [Insert("b", {"x": 1})])
        finally:
            await looking.close()
    tmp_path.chmod(0o755)
    assert [each.name for each in tmp_path.iterdir()] == ["s.db"]


@pytest.mark.parametrize("how", ["removed", "replaced by another file"])
@pytest.mark.parametrize("words", [("serve", "--worker", "1"), ("worker",)], ids=["serve", "worker"])
def test_a_file_that_is_taken_away_ends_the_work_with_an_error(
    how: str, words: tuple[str, ...], tmp_path: Path
) -> None:
    store, path = f"sqlite:///{tmp_path}/s.db", tmp_path / "s.db"
    file = write_graph(tmp_path / "g.json", {"a": command("true")})
    assert taskgraph("submit", str(file), "--id", "g", store=store, cwd=tmp_path).returncode == 0
    with started(*words, store=store, cwd=tmp_path) as child:
        until(lambda: "stop with Ctrl-C" in (tmp_path / f"{words[0]}.log").read_text(), what="the start")
        if how == "removed":
            path.unlink()
        else:
            (tmp_path / "other.db").write_bytes(path.read_bytes())
            (tmp_path / "other.db").replace(path)
        assert child.wait(timeout=30) == 5
    assert f"{path} was {how} while it was in use" in (tmp_path / f"{words[0]}.log").read_text()


@pytest.mark.parametrize("how", ["removed", "replaced by another file"])
async def test_a_file_that_is_taken_away_before_the_first_look_ends_serve_too(how: str, tmp_path: Path) -> None:
    """It was opened by then: serve asks its store once before it says that it serves."""
    path = tmp_path / "s.db"
    async with open_app(read_settings(f"sqlite:///{path}", {}, cwd=tmp_path)) as app:
        await app.tables.commit("p", [Insert("a", {"x": 1})])
        if how == "removed":
            path.unlink()
        else:
            (tmp_path / "other.db").write_bytes(path.read_bytes())
            (tmp_path / "other.db").replace(path)
        with pytest.raises(StorageUnavailable, match=f"was {how} while it was in use"):
            await asyncio.wait_for(loops.serve(app, Flag()), 20)


def without_room(*words: str, store: str, cwd: Path, room: int) -> Any:
    """Run a command while the system takes no more than this of any file, as on a full disk."""

    def limited() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

    return subprocess.run(
        [sys.executable, "-m", "taskgraph", *words],
        cwd=cwd,
        env=environment(store),
        preexec_fn=limited,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_disk_that_is_full_is_exit_code_5_and_says_so(tmp_path: Path) -> None:
    """With room again, the same command goes on."""
    store = f"sqlite:///{tmp_path}/s.db"
    file = write_graph(tmp_path / "g.json", {f"t{n}": command("true", "x" * 300) for n in range(1_000)})
    words = ("submit", str(file), "--id", "big")
    done = without_room(*words, store=store, cwd=tmp_path, room=200_000)
    assert done.returncode == 5, done.stderr
    assert "s.db cannot grow: the disk is full" in done.stderr
    again = taskgraph(*words, store=store, cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    status = json.loads(taskgraph("status", "big", "--json", store=store, cwd=tmp_path).stdout)
    assert status["taskCount"] == 1_000


def test_an_archive_that_finds_the_disk_full_is_exit_code_5_and_leaves_no_half_file(tmp_path: Path) -> None:
    """A file that it would have replaced stays as it was."""
    store, kept = f"sqlite:///{tmp_path}/s.db", tmp_path / "kept"
    kept.mkdir()
    texts = [secrets.token_urlsafe(2_000) for _ in range(40)]
    file = write_graph(tmp_path / "g.json", {f"t{n}": command("true", text) for n, text in enumerate(texts)})
    assert taskgraph("submit", str(file), "--id", "g", store=store, cwd=tmp_path).returncode == 0
    (kept / "old.gz").write_bytes(b"as it was")
    for words in (("-o", "kept/new.gz"), ("-o", "kept/old.gz", "--force")):
        done = without_room("archive", "g", *words, "--json", store=store, cwd=tmp_path, room=40_000)
        assert done.returncode == 5, done.stderr
        assert f"{words[1]} cannot be written: the disk is full" in done.stderr
        assert json.loads(done.stdout)["error"]["exitCode"] == 5
    assert [(each.name, each.read_bytes()) for each in kept.iterdir()] == [("old.gz", b"as it was")]
    done = without_room("keygen", "kept/key", store=store, cwd=tmp_path, room=10)
    assert done.returncode == 5, done.stderr
    assert [each.name for each in kept.iterdir()] == ["old.gz"]


def test_a_device_is_not_replaced_by_an_archive(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/s.db"
    file = write_graph(tmp_path / "g.json", {"a": command("true")})
    assert taskgraph("submit", str(file), "--id", "g", store=store, cwd=tmp_path).returncode == 0
    os.mkfifo(tmp_path / "device")
    done = taskgraph("archive", "g", "-o", "device", "--force", store=store, cwd=tmp_path)
    assert done.returncode == 2
    assert "device is no regular file" in done.stderr
    assert stat.S_ISFIFO((tmp_path / "device").stat().st_mode)


@pytest.mark.parametrize("words", [("list",), ("list", "--json"), ("archive", "g", "-o", "-")], ids="_".join)
def test_output_that_finds_the_disk_full_is_exit_code_5_and_says_so(words: tuple[str, ...], tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/s.db"
    file = write_graph(tmp_path / "g.json", {"a": command("true")})
    assert taskgraph("submit", str(file), "--id", "g", store=store, cwd=tmp_path).returncode == 0
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "taskgraph", *words],
            cwd=tmp_path,
            env=environment(store),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 5, done.stderr
    assert done.stderr == "error: standard output cannot be written: the disk is full, or its user may write no more\n"


def test_words_for_people_that_find_the_disk_full_end_no_work(tmp_path: Path) -> None:
    file = write_graph(tmp_path / "g.json", {"a": command("true")})
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "taskgraph", "run", str(file), "--id", "g", "-vv"],
            cwd=tmp_path,
            env=environment(f"sqlite:///{tmp_path}/s.db"),
            stdout=subprocess.PIPE,
            stderr=full,
            text=True,
            check=False,
        )
    assert "finished" in done.stdout, done
    assert done.returncode in (0, 120)  # 120: Python itself, which could not write what was left at its end


async def test_an_id_that_looks_like_an_option_is_refused_at_every_door(tmp_path: Path) -> None:
    """A graph that has one, from 0.3, can be looked at, as the hint says."""
    store, path = f"sqlite:///{tmp_path}/s.db", tmp_path / "s.db"
    file = str(write_graph(tmp_path / "g.json", {"a": command("true")}))
    refused = "“-x” begins with -, as options of commands do: choose another id"
    for words in (
        ("run", file, "--id", "-x"),
        ("submit", file, "--id=-x"),
        ("import", "--from", "neutral", file, "--id", "-x"),
    ):
        done = taskgraph(*words, store=store, cwd=tmp_path)
        assert (done.returncode, refused in done.stderr) == (2, True), (words, done.stderr)
    async with Client(store) as client:
        graph = read_document(Path(file).read_bytes())
        for door in (client.submit, client.run):
            with pytest.raises(InvalidInput, match=re.escape(refused)):
                await door(graph, "-x")
    assert not path.exists()
    async with open_app(read_settings(store, {}, cwd=tmp_path)) as app:
        await submission.submit(app.handlers, "-x", graph)
    hinted = taskgraph("status", "-x", store=store, cwd=tmp_path)
    assert (hinted.returncode, "behind --" in hinted.stderr) == (2, True), hinted.stderr
    found = taskgraph("status", "--", "-x", store=store, cwd=tmp_path)
    assert (found.returncode, "-x" in found.stdout) == (0, True), found.stderr


async def test_the_list_of_poisoned_messages_is_bounded(tmp_path: Path) -> None:
    store, path = f"sqlite:///{tmp_path}/s.db", tmp_path / "s.db"
    made = EmbeddedStore(path, SystemClock())
    rows = [Insert(f"q:{n:03}", {"state": "poison", "queue": "q", "body": "{}", "reason": "x"}) for n in range(130)]
    for at in range(0, 130, 65):
        await made.tables("taskgraph").commit("index:poison", rows[at : at + 65])
    await made.close()
    first = taskgraph("poison", "list", store=store, cwd=tmp_path)
    assert (first.stdout.count("reason"), first.returncode) == (100, 0)
    assert "30 more are set aside: taskgraph poison list --after q:099" in first.stderr
    rest = taskgraph("poison", "list", "--after", "q:099", store=store, cwd=tmp_path)
    assert rest.stdout.count("reason") == 30
    assert "more are set aside" not in rest.stderr


def test_a_killed_workers_results_are_removed_and_those_of_a_live_one_stay(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/s.db"
    (tmp_path / "tmp").mkdir()
    file = str(write_graph(tmp_path / "g.json", {f"t{n}": command("sleep", "60") for n in range(2)}))
    more = {"TMPDIR": str(tmp_path / "tmp")}

    def folders() -> list[Path]:
        return sorted((tmp_path / "tmp").glob("taskgraph-result-*"))

    with (
        started("serve", store=store, cwd=tmp_path, **more),
        started("worker", "--slots", "1", store=store, cwd=tmp_path, name="w1", **more) as dies,
        started("worker", "--slots", "1", store=store, cwd=tmp_path, name="w2", **more) as lives,
    ):
        assert taskgraph("submit", file, "--id", "g", store=store, cwd=tmp_path, **more).returncode == 0
        until(lambda: len(folders()) == 2, seconds=60, what="both workers to have a folder")
        until(
            lambda: taskgraph("status", "g", "--json", store=store, cwd=tmp_path, **more).stdout.count("running"),
            what="runs",
        )
        dies.kill()
        until(lambda: len(folders()) == 1, seconds=30, what="the guard to remove one")
        assert f"-{lives.pid}-" in folders()[0].name


def children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.campaign
def test_leftovers_go(tmp_path: Path) -> None:
    """What a worker leaves that is killed with its guard, and what an earlier version left."""
    store, scratch = f"sqlite:///{tmp_path}/s.db", tmp_path / "tmp"
    scratch.mkdir()
    more = {"TMPDIR": str(scratch)}
    file = write_graph(tmp_path / "g.json", {"a": command("sleep", "600")})
    assert taskgraph("submit", str(file), "--id", "g", store=store, cwd=tmp_path, **more).returncode == 0

    def left() -> set[Path]:
        folders = (tmp_path / "workers", tmp_path / "bells", scratch)
        return {path for folder in folders if folder.is_dir() for path in folder.iterdir()}

    with started("serve", "--worker", "1", store=store, cwd=tmp_path, name="killed", **more) as dies:
        until(lambda: len(children(dies.pid)) == 2, what="the guard and the command")
        dies.send_signal(signal.SIGSTOP)
        for pid in children(dies.pid):
            os.kill(pid, signal.SIGKILL)
        dies.kill()
        dies.wait()
    earlier = scratch / "taskgraph-ab3_defg"
    earlier.mkdir(0o700)
    os.utime(earlier, (0, 0))
    dead = left()
    assert {path.parent.name for path in dead} == {"workers", "bells", "tmp"}
    assert len([path for path in dead if path.parent == scratch]) == 2
    for path in (tmp_path / "bells").iterdir():
        os.utime(path, (0, 0))
    with started("serve", store=store, cwd=tmp_path, name="next", **more):
        until(lambda: not dead & left(), seconds=60, what=f"{dead} to be removed")
        assert [path.suffix for path in left() if path.parent != tmp_path / "bells"] == [".lock"], "that of serve"
        assert list((tmp_path / "bells").iterdir()) != [], "those of the living stay"
