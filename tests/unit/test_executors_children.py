"""Children that are spawned: what they get from the worker, and what the worker hears of them."""

import asyncio
import functools
import gc
import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from taskgraph.worker.executors import children

pytestmark = pytest.mark.skipif(not children.can_spawn(), reason="this system starts children by asyncio")

ENV = {b"PATH": os.fsencode(os.environ["PATH"])}
RUN = """
    import asyncio, os, sys
    from taskgraph.worker.executors import CommandExecutor, Work

    said = []

    async def log(data):
        said.append(data)

    code = "import os; print(os.listdir('/dev/fd'), [os.stat(n).st_ino for n in (0, 1, 2)][1:])"
    work = Work("g", "t", 0, "l", "c", {"payload": {"command": [sys.executable, "-c", code]}}, "")

    async def main():
        executor = CommandExecutor()
        while "queued" in sys.argv and not executor.is_ready(1):
            await asyncio.sleep(0.001)
        return await executor.run(work, log)

    outcome = asyncio.run(main())
    with open(sys.argv[1], "wb") as file:
        file.write(b"".join(said) if not outcome.failed else outcome.reason.encode())
"""


def spawn(*argv: str, cwd: str | None = None, env: dict[bytes, bytes] | None = None) -> children.Child:
    return children.spawn(argv, ENV if env is None else env, cwd, os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC))


@pytest.mark.parametrize("cwd", [None, "/"])
@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", -9)])
async def test_the_end_is_heard_and_the_code_known(cwd: str | None, script: str, code: int) -> None:
    child = spawn("sh", "-c", script, cwd=cwd)
    await child.wait()
    assert child.has_ended
    child.close()
    assert child.reap() == code
    with pytest.raises(ChildProcessError):
        os.waitpid(child.pid, os.WNOHANG)


async def test_the_number_of_a_descriptor_that_was_closed_a_moment_ago_is_another_one() -> None:
    """What is read ends a run, and by that the next one begins, before all is read that was there."""
    readers = children.readers()
    calls: list[str] = []
    pipes = [os.pipe() for _ in range(2)]

    def replace(own: int, other: int) -> None:
        calls.append("old")
        readers.remove_reader(own)
        readers.remove_reader(other)
        os.close(other)
        assert os.dup2(empty, other) == other
        readers.add_reader(other, lambda: calls.append("new"))

    empty, kept = os.pipe()
    for (own, writing), (other, _) in zip(pipes, reversed(pipes), strict=True):
        readers.add_reader(own, functools.partial(replace, own, other))
        os.write(writing, b"x")
    await asyncio.sleep(0.05)
    assert calls == ["old"]
    os.write(kept, b"x")
    await asyncio.sleep(0.05)
    assert "new" in calls
    for each in (own for own in (pipes[0][0], pipes[1][0]) if own in readers._calls):  # type: ignore[union-attr]
        readers.remove_reader(each)
    for each in (*pipes[0], *pipes[1], empty, kept):
        os.close(each)


async def test_signals_that_python_ignores_are_not_ignored_by_children() -> None:
    child = spawn("sh", "-c", "kill -PIPE $$; exit 0")
    await child.wait()
    child.close()
    assert child.reap() == -signal.SIGPIPE


async def test_one_that_is_closed_too_early_is_killed_and_reaped_in_its_time() -> None:
    child = spawn("sleep", "600")
    child.close()
    async with asyncio.timeout(20):
        while Path(f"/proc/{child.pid}").exists():
            await asyncio.sleep(0.01)
    assert child.reap() == -signal.SIGKILL


async def test_a_code_that_somebody_else_took(caplog: pytest.LogCaptureFixture) -> None:
    child = spawn("true")
    os.waitpid(child.pid, 0)
    await child.wait()
    child.close()
    assert child.reap() == 255
    assert "taken elsewhere" in caplog.text


async def test_a_child_without_a_watch_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    pids = []

    def refuse(pid: int) -> int:
        pids.append(pid)
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    for cwd in (None, "/"):
        with pytest.raises(OSError, match="Too many"):
            spawn("sleep", "600", cwd=cwd)
    for pid in pids:
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    gc.collect()  # and nothing warns of it


async def test_the_path_is_searched_like_a_shell_does(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("none", "folder", "closed", "good", "late")]
    for folder in folders[1:]:
        folder.mkdir()
    (folders[1] / "program").mkdir()
    for folder, code in zip(folders[2:], (1, 2, 3), strict=True):
        (folder / "program").write_text(f"#!/bin/sh\nexit {code}\n")
        (folder / "program").chmod(0o644 if code == 1 else 0o755)
    env = {b"PATH": b":".join(os.fsencode(folder) for folder in folders)}
    child = spawn("program", env=env)
    await child.wait()
    child.close()
    assert child.reap() == 2
    (folders[3] / "program").unlink()
    (folders[4] / "program").unlink()
    with pytest.raises(PermissionError):
        spawn("program", env=env)
    with pytest.raises(FileNotFoundError):
        spawn("program", env={b"PATH": os.fsencode(folders[0])})
    child = spawn("sh", "-c", "exit 5", env={})  # no PATH at all: the system's own
    await child.wait()
    child.close()
    assert child.reap() == 5


@pytest.mark.parametrize("way", ["spawned", "queued"])
def test_children_get_no_descriptors_that_the_worker_inherited(way: str, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    try:
        subprocess.run(
            [sys.executable, "-c", textwrap.dedent(RUN), str(tmp_path / "said"), way],
            pass_fds=(reading, writing),
            check=True,
            timeout=60,
        )
    finally:
        os.close(reading)
        os.close(writing)
    names, _ = json.loads("[" + (tmp_path / "said").read_text().replace("'", '"').replace("] [", "], [") + "]")
    assert len(names) == 4, "the three standard ones, and the one that lists them"


@pytest.mark.parametrize("way", ["spawned", "queued"])
def test_a_worker_without_standard_streams_gives_them_to_its_children(way: str, tmp_path: Path) -> None:
    code = textwrap.dedent(RUN)
    subprocess.run(
        ["sh", "-c", 'exec "$0" -c "$1" "$2" "$3" <&- >&- 2>&-', sys.executable, code, str(tmp_path / "said"), way],
        check=True,
        timeout=60,
    )
    names, (out, err) = json.loads("[" + (tmp_path / "said").read_text().replace("'", '"').replace("] [", "], [") + "]")
    assert {"0", "1", "2"} < set(names)
    assert out == err


async def test_readers_are_called_until_they_are_taken_back() -> None:
    reading, writing = os.pipe()
    heard = asyncio.Event()
    try:
        for _ in range(2):
            children.readers().add_reader(reading, heard.set)
            os.write(writing, b"a")
            await asyncio.wait_for(heard.wait(), 20)
            children.readers().remove_reader(reading)
            assert os.read(reading, 10) == b"a"
            heard.clear()
        os.write(writing, b"a")
        for _ in range(3):
            await asyncio.sleep(0)
        assert not heard.is_set()
    finally:
        os.close(reading)
        os.close(writing)
