"""Commands do not outlive a worker that dies without a word: on real processes."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.processes import until

WORKER = """
    import asyncio, os, sys
    from taskgraph.worker.executors import CommandExecutor, Work
    from taskgraph.worker.executors.orphans import guard

    async def log(data):
        os.write(1, data)

    def work(*command):
        return Work("g", "AAAAAAAAQAAAAAAAAAAAAA", 0, "a", "c", {"payload": {"command": list(command)}}, "")

    async def one_by_one(commands):
        for command in commands.split(" THEN "):
            if command == "MANY":  # numbers that no process can have
                for group in range(10**8, 10**8 + 5000):
                    guard().watch(group)
                continue
            await CommandExecutor().run(work("sh", "-c", command), log)

    async def main():
        await asyncio.gather(*map(one_by_one, sys.argv[1:]))

    asyncio.run(main())
"""
STUBBORN = "trap '' TERM; sleep 300 & echo began $$ $!; wait; wait"
WAIT_FOR_GO = "until test -e go; do sleep 0.02; done"
MEEK = "trap 'echo told > $0.told; exit' TERM; echo began $$; sleep 300 & wait"


class Worker:
    """A process that runs commands, and what they said."""

    def __init__(self, *commands: str, folder: Path) -> None:
        self.out = folder / "out"
        with self.out.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-c", textwrap.dedent(WORKER), *commands], stdout=out, cwd=folder
            )

    def said(self, word: str) -> list[list[int]]:
        lines = [line.split() for line in self.out.read_text().splitlines()]
        return [[int(pid) for pid in line[1:]] for line in lines if line and line[0] == word]

    def guards(self) -> list[int]:
        """Children of the worker that stand guard."""
        found = subprocess.run(
            ["ps", "-ww", "-o", "pid=", "-o", "args=", "--ppid", str(self.process.pid)],
            capture_output=True,
            text=True,
            check=False,
        )
        return [int(line.split()[0]) for line in found.stdout.splitlines() if "orphans_guard.py" in line]


@pytest.fixture
def workers() -> Iterator[list[Worker]]:
    made: list[Worker] = []
    yield made
    for worker in made:
        worker.process.kill()
        worker.process.wait()


def gone(pid: int) -> bool:
    """Whether a process has ended; a zombie that nobody has reaped yet has."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return not state.strip() or state.strip().startswith("Z")


def test_commands_of_a_killed_worker_end(tmp_path: Path, workers: list[Worker]) -> None:
    workers.append(worker := Worker(STUBBORN, MEEK, folder=tmp_path))
    until(lambda: len(worker.said("began")) == 2, what="both commands begin")
    (guard,) = until(worker.guards, what="the guard stands")
    pids = [pid for line in worker.said("began") for pid in line]
    worker.process.send_signal(signal.SIGKILL)
    worker.process.wait()
    until(lambda: all(gone(pid) for pid in pids), what="the commands and their children have ended")
    until(lambda: gone(guard), what="the guard has nothing left to do")
    assert Path(tmp_path, "sh.told").exists(), "a command is asked to end before it is killed"


def test_a_guard_that_was_killed_is_replaced(tmp_path: Path, workers: list[Worker]) -> None:
    workers.append(worker := Worker(STUBBORN, f"{WAIT_FOR_GO} THEN {MEEK}", folder=tmp_path))
    until(lambda: len(worker.said("began")) == 1, what="the first command begins")
    (first,) = until(worker.guards, what="the guard stands")
    os.kill(first, signal.SIGKILL)
    until(lambda: gone(first), what="the guard is gone")
    Path(tmp_path, "go").touch()
    until(lambda: len(worker.said("began")) == 2, what="another command begins")
    until(lambda: [pid for pid in worker.guards() if pid != first and not gone(pid)], what="another guard stands")
    pids = [pid for line in worker.said("began") for pid in line]
    worker.process.send_signal(signal.SIGKILL)
    worker.process.wait()
    until(lambda: all(gone(pid) for pid in pids), what="it ends what the first one was told of, too")


def test_a_worker_that_ends_takes_its_guard_along(tmp_path: Path, workers: list[Worker]) -> None:
    workers.append(worker := Worker(f"echo began $$; {WAIT_FOR_GO}", folder=tmp_path))
    until(lambda: worker.said("began"), what="the command begins")
    (guard,) = until(worker.guards, what="the guard stands")
    Path(tmp_path, "go").touch()
    assert worker.process.wait(timeout=30) == 0
    until(lambda: gone(guard), what="the guard has ended")


def test_more_groups_than_there_was_room_for_at_first(tmp_path: Path, workers: list[Worker]) -> None:
    workers.append(worker := Worker(STUBBORN, f"{WAIT_FOR_GO} THEN MANY THEN {STUBBORN}", folder=tmp_path))
    until(lambda: len(worker.said("began")) == 1, what="the first command begins")
    Path(tmp_path, "go").touch()
    until(lambda: len(worker.said("began")) == 2, what="another command begins")
    pids = [pid for line in worker.said("began") for pid in line]
    worker.process.send_signal(signal.SIGKILL)
    worker.process.wait()
    until(lambda: all(gone(pid) for pid in pids), what="all commands have ended")


def test_a_group_that_is_over_is_left_alone(tmp_path: Path) -> None:
    """Its number may be anybody's by the time that the worker dies."""
    code = """
        import os, subprocess
        from taskgraph.worker.executors.orphans import guard

        child = subprocess.Popen(["sleep", "300"], start_new_session=True, stdout=subprocess.DEVNULL)
        guard().watch(child.pid)
        guard().forget(child.pid)
        print(child.pid, guard()._pid, flush=True)
        os.kill(os.getpid(), 9)
    """
    killed = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True, check=False, timeout=60
    )
    child, guard = map(int, killed.stdout.split())
    try:
        until(lambda: gone(guard), what="the guard has seen the end of its worker")
        assert not gone(child)
    finally:
        os.killpg(child, signal.SIGKILL)
