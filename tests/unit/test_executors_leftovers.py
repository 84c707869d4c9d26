"""Folders for results that killed workers left: removed, and nothing else."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from taskgraph.worker.executors import results
from taskgraph.worker.executors.results import ResultFiles, remove_leftovers

NOW = datetime.now(UTC)
MAKE = (
    "from taskgraph.worker.executors.results import ResultFiles; f = ResultFiles(); print(f.new(), flush=True); input()"
)


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@contextmanager
def worker(scratch: Path) -> Iterator[tuple[Path, "subprocess.Popen[str]"]]:
    """A process with a folder for results."""
    words = [sys.executable, "-c", MAKE]
    env = {**os.environ, "TMPDIR": str(scratch)}
    with subprocess.Popen(words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            yield Path(child.stdout.readline().strip()).parent, child
        finally:
            child.kill()


def earlier(scratch: Path, name: str = "taskgraph-ab3_defg", *, files: tuple[str, ...] = ("3.json",)) -> Path:
    """A folder as 0.3 left it, two days ago."""
    folder = scratch / name
    folder.mkdir(0o700)
    for each in files:
        (folder / each).touch()
    then = (NOW - timedelta(days=2)).timestamp()
    os.utime(folder, (then, then))
    return folder


def test_the_folder_of_a_process_that_was_killed_goes_and_those_of_living_ones_stay(scratch: Path) -> None:
    own = ResultFiles()
    folder = Path(own.new()).parent
    with worker(scratch) as (left, dies), worker(scratch) as (lives, stands_still):
        (left / "1.json").write_text("[]")
        (left / "deep").mkdir()
        stands_still.send_signal(signal.SIGSTOP)
        assert remove_leftovers(NOW) == 0
        dies.kill()
        dies.wait()
        assert remove_leftovers(NOW + timedelta(days=400)) == 1
        assert set(scratch.iterdir()) == {folder, lives}
    assert remove_leftovers(NOW) == 1
    assert set(scratch.iterdir()) == {folder}


def test_a_folder_that_is_taken_for_a_leftover_before_it_is_locked_is_made_again(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, taken = results._lock_folder, 0

    def late(descriptor: int, *, wait: bool) -> bool:
        nonlocal taken
        if wait and not taken:
            taken = remove_leftovers(NOW)
        return lock(descriptor, wait=wait)

    monkeypatch.setattr(results, "_lock_folder", late)
    files = ResultFiles()
    assert Path(files.new()).parent.is_dir()
    assert taken == 1
    assert remove_leftovers(NOW) == 0


def test_a_folder_of_an_earlier_version_goes_after_a_day(scratch: Path) -> None:
    folders = [earlier(scratch), earlier(scratch, "taskgraph-empty_12", files=())]
    assert remove_leftovers(NOW - timedelta(days=1.1)) == 0
    assert remove_leftovers(NOW) == len(folders)
    assert list(scratch.iterdir()) == []


def test_a_folder_of_an_earlier_version_stays_while_a_command_may_write_there(scratch: Path) -> None:
    folder = earlier(scratch, files=())
    env = {**os.environ, "TASKGRAPH_RESULT_FILE": f"{folder}/7.json"}
    with subprocess.Popen(["sleep", "60"], env=env) as child:
        try:
            while not Path(f"/proc/{child.pid}/environ").read_bytes():  # for a moment after exec
                assert child.poll() is None
            assert remove_leftovers(NOW) == 0
        finally:
            child.kill()
    assert remove_leftovers(NOW) == 1


@pytest.mark.parametrize(
    "keep",
    [
        lambda scratch: earlier(scratch, files=("3.json", "notes.txt")),
        lambda scratch: earlier(scratch, "taskgraph-ab3_defgh"),
        lambda scratch: earlier(scratch, "taskgraph-workflows"),
        lambda scratch: earlier(scratch).chmod(0o755),
        lambda scratch: (scratch / "taskgraph-linked_1").symlink_to(earlier(scratch, "other")),
        lambda scratch: (scratch / "taskgraph-result-1-1-x").symlink_to(earlier(scratch, "other")),
        lambda scratch: (scratch / "taskgraph-result-1-1-x").touch(),
    ],
    ids=["another file", "a longer name", "a word", "open to others", "a link", "a link of now", "a file"],
)
def test_what_may_be_something_else_stays(keep: Any, scratch: Path) -> None:
    keep(scratch)
    before = sorted(scratch.rglob("*"))
    assert remove_leftovers(NOW) == 0
    assert sorted(scratch.rglob("*")) == before


def test_what_another_user_owns_stays(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with worker(scratch) as (left, dies):
        dies.kill()
    earlier(scratch)
    monkeypatch.setattr(os, "getuid", lambda: left.stat().st_uid + 1)
    assert remove_leftovers(NOW) == 0
