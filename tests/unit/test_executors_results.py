"""Result files: a folder for all, and what stays in it."""

import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest

from taskgraph.model.errors import InvalidInput
from taskgraph.worker.executors.results import ResultFiles


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


async def test_every_run_has_a_path_of_its_own_that_only_we_can_enter() -> None:
    files = ResultFiles()
    one, other = files.new(), files.new()
    assert one != other
    assert Path(one).parent.stat().st_mode & 0o777 == 0o700
    Path(other).write_text("1")
    assert await files.take(one) is None
    assert await files.take(other) == b"1"
    assert list(Path(one).parent.iterdir()) == []
    Path(one).write_text("1")
    assert await files.take(files.new()) is None, "what comes too late counts for nobody"
    assert list(Path(one).parent.iterdir()) == []


@pytest.mark.parametrize("length", [10, 100_000])
async def test_a_result_is_read_as_it_is(length: int) -> None:
    files = ResultFiles()
    path = files.new()
    Path(path).write_bytes(b'"' + b"x" * length + b'"')
    assert await files.take(path) == b'"' + b"x" * length + b'"'
    path = files.new()
    Path(path).write_bytes(b'"' + b"x" * length)
    with pytest.raises(InvalidInput, match="not JSON"):
        await files.take(path)
    assert list(Path(path).parent.iterdir()) == []


async def test_a_link_to_a_result_is_followed_and_a_broken_one_is_none(tmp_path: Path) -> None:
    files = ResultFiles()
    for expected in (None, b"[]"):
        path = files.new()
        Path(path).symlink_to(tmp_path / "result")
        assert await files.take(path) == expected
        (tmp_path / "result").write_text("[]")
    assert (tmp_path / "result").exists()


async def test_files_beside_the_result_are_none_and_go(tmp_path: Path) -> None:
    files = ResultFiles()
    path = files.new()
    Path(path + ".tmp").write_text("1")
    assert await files.take(path) is None
    assert list(Path(path).parent.iterdir()) == []


def test_a_run_that_is_over_leaves_nothing_and_touches_no_other() -> None:
    files = ResultFiles()
    one, other = files.new(), files.new()
    Path(one).touch()
    Path(one + ".tmp").mkdir()
    Path(one + ".tmp", "deep").mkdir(mode=0)
    Path(other).write_text("1")
    loose = Path(one).with_name("scratch")  # of either
    loose.touch()
    files.discard(one)
    assert sorted(Path(one).parent.iterdir()) == sorted([Path(other), loose])
    Path(one).touch()  # by a process that has got away
    files.discard(other)
    assert list(Path(one).parent.iterdir()) == []


def test_what_a_link_leads_to_stays(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept").chmod(0o500)
    files = ResultFiles()
    path = Path(files.new())
    path.mkdir()
    Path(path, "link").symlink_to(tmp_path / "kept")
    files.discard(str(path))
    assert not path.exists()
    assert (tmp_path / "kept").stat().st_mode & 0o777 == 0o500


async def test_what_comes_into_an_empty_folder_is_found_however_soon() -> None:
    files = ResultFiles()
    for number in range(300):  # many within a tick of the clock by which a file system notes changes
        empty, path = files.new(), files.new()
        assert await files.take(empty) is None
        if number % 3:
            Path(path).write_text("1")
        assert await files.take(path) == (b"1" if number % 3 else None)
        assert list(Path(path).parent.iterdir()) == []


async def test_a_folder_whose_times_say_nothing_is_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.utime", lambda *_, **__: None)
    files = ResultFiles()
    for _ in range(20):
        path = files.new()
        assert await files.take(path) is None
        path = files.new()
        Path(path).write_text("1")
        assert await files.take(path) == b"1"


def test_a_folder_that_somebody_tidied_away_is_made_again() -> None:
    files = ResultFiles()
    path = Path(files.new())
    path.parent.rmdir()
    files.discard(str(path))
    assert Path(files.new()).parent.is_dir()


def test_the_folder_goes_with_the_process_that_made_it_and_not_with_its_forks(tmp_path: Path) -> None:
    code = """
        import os, sys
        from taskgraph.worker.executors.results import ResultFiles

        files = ResultFiles()
        folder = os.path.dirname(files.new())
        pid = os.fork()
        if pid == 0:
            sys.exit(0)
        os.waitpid(pid, 0)
        print(os.path.isdir(folder), folder)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    there, folder = done.stdout.split()
    assert there == "True"
    assert not Path(folder).exists()
