"""Commands that are given ahead, and begin in order where there is a slot: on real processes."""

import asyncio
import fcntl
import os
import signal
import socket
import subprocess
import sys
import termios
import textwrap
from array import array
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from taskgraph.worker.executors import CommandExecutor, Outcome, Work, children, starter, starting
from taskgraph.worker.executors.starter import ORDER_BYTES_MAX
from taskgraph.worker.executors.starting import Starting
from tests.e2e.processes import until

pytestmark = pytest.mark.skipif(not children.can_spawn(), reason="this system starts children by asyncio")

NOTE = 'echo "$0 begins" >> notes; sleep 0.02; echo "$0 ends" >> notes'
HANGS = 'echo "$0 begins" >> notes; trap "" TERM; sleep 300 & wait; wait'
WORKER = """
    import asyncio, sys
    from taskgraph.worker.executors import starting
    from tests.unit.test_executors_starting import HANGS, NOTE, ready, run

    program = sys.argv[1] or None
    starting.compiled = lambda: program

    async def main():
        executor = await ready(1)
        await asyncio.gather(run(executor, "a", HANGS), *(run(executor, f"b{n}", NOTE) for n in range(3)))

    asyncio.run(main())
"""


async def no_log(data: bytes) -> None:
    """None of these says anything."""


async def ready(slots: int) -> CommandExecutor:
    executor = CommandExecutor(grace_seconds=0.2)
    async with asyncio.timeout(20):
        while not executor.is_ready(slots):
            await asyncio.sleep(0.001)
    return executor


def work(label: str, *command: str) -> Work:
    return Work("g", "AAAAAAAAQAAAAAAAAAAAAA", 0, label, f"claim-{label}", {"payload": {"command": list(command)}})


def run(executor: CommandExecutor, label: str, script: str) -> "asyncio.Task[Outcome]":
    return asyncio.create_task(executor.run(work(label, "sh", "-c", script, label), no_log))


def notes() -> list[str]:
    return Path("notes").read_text().splitlines() if Path("notes").exists() else []


def began() -> list[str]:
    return [line.removesuffix(" begins") for line in notes() if line.endswith(" begins")]


async def soon(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


def said(starting: Starting) -> list[int]:
    """What the one starter has said, and this process has not taken yet."""
    (one,) = starting._starters.values()
    try:
        data = one.socket.recv(10_000, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return []
    return [what for _, what, *_ in starter.NEWS.iter_unpack(data)]


def is_over(starting: Starting) -> bool:
    """Whether the one starter has said that a command has ended.

    Where its begin was said before, as it took longer, only the size of what follows is seen behind the descriptor.
    """
    (one,) = starting._starters.values()
    bytes_left = array("i", [0])
    fcntl.ioctl(one.socket.fileno(), termios.FIONREAD, bytes_left)
    return starter.RAN in said(starting) or bytes_left[0] >= 2 * starter.NEWS.size


COMPILED = starting.compiled()


@pytest.fixture(
    autouse=True,
    params=[
        None,
        pytest.param(
            COMPILED, marks=pytest.mark.skipif(COMPILED is None, reason="it was installed without a compiler")
        ),
    ],
    ids=["python", "c"],
)
def program(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str | None:
    """What the starters are."""
    found: str | None = request.param
    monkeypatch.setattr(starting, "compiled", lambda: found)
    return found


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("slots", [1, 3])
async def test_so_many_at_a_time_in_order(slots: int) -> None:
    executor = await ready(slots)
    outcomes = await asyncio.gather(*(run(executor, f"{n:02}", NOTE) for n in range(12)))
    assert not any(each.failed for each in outcomes)
    running, most = 0, 0
    for line in notes():
        running += 1 if line.endswith("begins") else -1
        most = max(most, running)
    assert most <= slots
    if slots == 1:
        assert began() == [f"{n:02}" for n in range(12)]


async def test_one_begins_where_the_last_has_ended_while_the_worker_does_something_else() -> None:
    executor = await ready(1)
    runs = [run(executor, name, NOTE) for name in "abc"]
    await soon(began)
    until(lambda: "c ends" in notes(), what="all have run, and the event loop has not gone round")
    assert not any(each.failed for each in await asyncio.gather(*runs))


async def test_one_begins_as_it_is_given_whatever_the_worker_does_next() -> None:
    executor = await ready(1)
    await run(executor, "a", NOTE)  # the starter knows the environment by now
    ended: list[Outcome | None] = []
    assert executor.begin(work("b", "sh", "-c", NOTE, "b"), lambda: None, ended.append) is not None
    until(lambda: "b ends" in notes(), what="it has run, and the event loop has not gone round")
    await soon(lambda: ended)
    assert ended == [Outcome(failed=False, exit_code=0)]


async def test_where_an_order_cannot_be_sent_all_end_and_not_while_it_is_given() -> None:
    executor = await ready(1)
    await run(executor, "a", NOTE)
    starting = executor._starting
    assert starting is not None
    kept, starting._queue = starting._queue, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)  # with no other end
    ended: list[Outcome | None] = []
    assert executor.begin(work("b", "sh", "-c", NOTE, "b"), lambda: None, ended.append) is not None
    assert (ended, starting.lost) == ([], False)
    await soon(lambda: ended)
    assert (ended, starting.lost, began()) == ([None], True, ["a"])
    starting._queue.close()
    starting._queue = kept


async def test_what_cannot_be_started_keeps_nothing_up() -> None:
    executor = await ready(1)
    bad = asyncio.create_task(executor.run(work("bad", "no-such-program"), no_log))
    good = run(executor, "good", NOTE)
    assert (await bad).reason == "the command no-such-program was not found on PATH"
    assert not (await good).failed


async def test_more_at_once_than_the_queue_takes() -> None:
    executor = await ready(8)
    words = "x" * (ORDER_BYTES_MAX - 2000)
    runs = [
        asyncio.create_task(executor.run(work(f"t{n}", "sh", "-c", f"exit {n % 5}", words), no_log)) for n in range(99)
    ]
    assert [each.exit_code for each in await asyncio.gather(*runs)] == [n % 5 for n in range(99)]


async def test_an_order_that_is_longer_than_a_message() -> None:
    executor = await ready(1)
    words = "x" * ORDER_BYTES_MAX
    command = ("sh", "-c", f'test ${{#1}} = {len(words)} && echo "$0 begins" >> notes', "a", words)
    first, second = (asyncio.create_task(executor.run(work("t", *command), no_log)) for _ in range(2))
    assert (await first).exit_code == (await second).exit_code == 0
    assert began() == ["a", "a"]


async def test_each_has_the_environment_that_it_was_given_though_others_have_another() -> None:
    executor = await ready(1)
    script = 'echo "$0 $A $B begins" >> notes'
    payloads = [{"command": ["sh", "-c", script, str(n)], "env": {"AB"[n % 2]: f"v{n}"}} for n in range(6)]
    works = [replace(work(str(n)), definition={"payload": payload}) for n, payload in enumerate(payloads)]
    await asyncio.gather(*(executor.run(each, no_log) for each in works))
    assert began() == [f"{n} v{n} " if n % 2 == 0 else f"{n}  v{n}" for n in range(6)]


async def test_a_command_ignores_what_its_worker_ignored_and_nothing_that_python_ignores() -> None:
    ours = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGHUP, signal.SIGRTMIN)}
    try:
        executor = await ready(1)
    finally:
        for number, handler in ours.items():
            signal.signal(number, handler)
    await run(executor, "a", "grep SigIgn: /proc/self/status > notes")
    (line,) = notes()
    ignored = int(line.removeprefix("SigIgn:"), 16)
    assert all(ignored & 1 << (number - 1) for number in ours)
    others = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGUSR1, signal.SIGCHLD)
    assert not any(ignored & 1 << (number - 1) for number in others)


async def test_a_program_is_where_it_was_when_the_order_was_given_or_later() -> None:
    """It is not sought for each command: those that wait in the queue may have one look in common."""
    executor = await ready(1)
    for folder in ("first", "second"):
        os.mkdir(folder)
    env = {"PATH": f"{os.getcwd()}/first:{os.getcwd()}/second:{os.environ['PATH']}"}

    def put(folder: str) -> None:
        program = Path(folder, "tool")
        program.write_text(f'#!/bin/sh\necho "{folder} begins" >> notes\n')
        program.chmod(0o755)

    def go(*command: str) -> "asyncio.Task[Outcome]":
        one = replace(work("t"), definition={"payload": {"command": list(command), "env": env}})
        return asyncio.create_task(executor.run(one, no_log))

    put("second")
    assert not any(each.failed for each in await asyncio.gather(go("tool"), go("tool")))
    put("first")
    assert not any(each.failed for each in await asyncio.gather(go("tool"), go("rm", "first/tool"), go("tool")))
    assert began() == ["second", "second", "first", "second"]


async def test_a_run_that_has_not_begun_is_recalled_and_one_that_has_is_not() -> None:
    executor = await ready(1)
    first, second, third = (run(executor, name, NOTE) for name in "abc")
    await soon(began)
    for name in "ab":
        executor.recall(work(name))
    assert not (await first).failed
    with pytest.raises(asyncio.CancelledError):
        await second
    assert not (await third).failed
    assert began() == ["a", "c"]


async def test_a_run_that_is_cancelled_before_it_begins_never_does() -> None:
    executor = await ready(1)
    first, second, third = (run(executor, name, NOTE) for name in "abc")
    await soon(began)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    assert not (await first).failed
    assert not (await third).failed
    assert began() == ["a", "c"]


@pytest.mark.parametrize("pause", ["", "sleep 0.006; "])
async def test_what_has_ended_by_itself_when_it_is_cancelled_has_its_outcome(pause: str) -> None:
    """pause: of those that take longer, the begin is said by itself, and a descriptor comes with it."""
    executor = await ready(1)
    script = f'echo "$0 begins" >> notes; {pause}echo "$0 ends" >> notes'
    runs = [run(executor, f"{n:02}", script) for n in range(40)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)  # all are with the starter, whose news wait for others
    until(lambda: len(began()) > 20, what="some have run, and the event loop has not gone round")
    for each in runs:
        each.cancel()
    outcomes = await asyncio.gather(*runs, return_exceptions=True)
    ended = [n for n, each in enumerate(outcomes) if isinstance(each, Outcome) and not each.failed]
    assert len(began()) - len(ended) <= 2, "but for the one that ran just then, and one whose end came in other news"
    assert ended[:-1] == [*range(len(ended) - 1)], (
        "no other began, but for one that was taken as the rest was taken back"
    )


async def test_what_has_begun_and_ended_as_it_is_cancelled_has_its_outcome() -> None:
    executor = await ready(1)
    starting = executor._starting
    assert starting is not None
    one = run(executor, "a", 'echo "$0 begins" >> notes')
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert starting._orders, "it is with the starters"
    until(lambda: is_over(starting), what="its end is said, and the event loop has not gone round")
    one.cancel()
    starting.receive()
    assert not (await one).failed


@pytest.mark.parametrize("script", [HANGS, "exec sleep 300"])
async def test_a_run_that_is_cancelled_twice_as_it_begins_leaves_nothing(script: str) -> None:
    executor = await ready(1)
    starting = executor._starting
    assert starting is not None
    one = run(executor, "a", script)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert starting._orders, "it is with the starters"
    until(lambda: starter.BEGAN in said(starting), what="its begin is said, and the event loop has not gone round")
    one.cancel()
    await asyncio.sleep(0)
    one.cancel()
    with pytest.raises(asyncio.CancelledError):
        await one
    await soon(lambda: starting.idle and not running_here())
    assert not (await run(executor, "b", NOTE)).failed


async def test_all_end_when_one_that_starts_them_is_killed(caplog: pytest.LogCaptureFixture) -> None:
    executor = await ready(2)
    hanging = [run(executor, name, HANGS) for name in "ab"]
    await soon(lambda: len(began()) == 2)
    waiting = run(executor, "c", NOTE)
    await asyncio.sleep(0.01)
    assert executor._starting is not None
    os.kill(executor._starting.pids[1], signal.SIGKILL)
    for each in hanging:
        with pytest.raises(OSError, match="ended"):
            await each
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert "started anew" in caplog.text
    await soon(lambda: not running_here())
    again = await asyncio.gather(run(executor, "d", NOTE), return_exceptions=True)
    assert isinstance(again[0], Outcome), "without them, a command is started by the worker"
    async with asyncio.timeout(20):
        while not executor.is_ready(1):
            await asyncio.sleep(0.001)
    assert not (await run(executor, "e", NOTE)).failed
    assert sorted(began()) == ["a", "b", "d", "e"]


@pytest.mark.parametrize("text", ["#!/bin/false", "neither a script nor a program"])
async def test_a_program_that_does_not_come_up_is_left_for_the_script(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that was compiled for another system."""
    monkeypatch.undo()
    source = tmp_path / "starter.c"
    source.touch()
    program = tmp_path / "starter-00000000"
    program.write_text(text)
    program.chmod(0o755)
    script = starting._SCRIPT
    monkeypatch.setattr(starting, "_SCRIPT", tmp_path / "starter.py")
    assert starting.compiled() == str(program)
    (tmp_path / "starter.py").symlink_to(script)
    executor = await ready(1)
    assert not (await run(executor, "a", "true")).failed


def test_a_program_of_another_source_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(starting, "_SCRIPT", tmp_path / "starter.py")
    assert starting.compiled() is None
    (tmp_path / "starter.c").touch()
    assert starting.compiled() is None
    (tmp_path / "starter-00000000").touch(mode=0o755)
    assert starting.compiled() is not None
    (tmp_path / "starter.c").write_text("/* changed */")
    assert starting.compiled() is None


async def test_a_variable_that_would_be_two_is_refused() -> None:
    executor = await ready(1)
    begun = executor._starting
    assert begun is not None
    for own in ({b"A": b"1\x00B"}, {b"A\x00B": b"1"}):
        with pytest.raises(ValueError, match="null"):
            begun.order(("true",), {}, own, None, lambda *_: None)
    assert begun.idle
    assert not (await run(executor, "a", "true")).failed


def test_nothing_begins_after_the_worker_was_killed(program: str | None) -> None:
    worker = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(WORKER), program or ""],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    until(began, what="the first command begins")
    worker.kill()
    worker.wait()
    until(lambda: not running_here(), what="all of its processes have ended")
    assert began() in (["a"], ["a", "b0"]), "one may begin before the end of the worker is seen, and is ended, too"


def running_here() -> list[str]:
    """Processes whose working directory is that of this test, other than this one."""
    found, here = [], os.getcwd()
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            if int(name) != os.getpid() and os.readlink(f"/proc/{name}/cwd") == here:
                found.append(Path(f"/proc/{name}/cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return [each for each in found if "orphans_guard" not in each and "/starter" not in each]
