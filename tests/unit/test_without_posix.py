"""The public API where there is no POSIX: it is imported, submits, runs callables and looks; commands say why not."""

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import asyncio, os, signal, socket, sqlite3, sys


def leave_posix():
    for name in ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty"):
        sys.modules[name] = None  # an import of it fails, as on Windows
    for owner, names in (
        (os, ("getuid", "geteuid", "killpg", "fork", "setsid", "getpgid", "memfd_create", "posix_spawn")),
        (signal, ("SIGKILL", "SIGUSR1", "SIGUSR2", "SIGCHLD", "SIGHUP")),
        (socket, ("AF_UNIX",)),
    ):
        for name in names:
            if hasattr(owner, name):
                delattr(owner, name)


async def main():
    leave_posix()  # in here: this system's own event loop is made with them
    import taskgraph
    from taskgraph.worker.executors.results import remove_leftovers

    for name in taskgraph.__all__:
        getattr(taskgraph, name)
    async with taskgraph.Client(sys.argv[1]) as client:
        assert client.app.locks is None
        graph = taskgraph.Graph()
        graph.task("a", call="double", arguments={"n": 21}) >> graph.task("b")
        await client.submit(graph, "waits")
        assert (await client.status("waits")).state == "running"
        assert [each.label for each in await client.tasks("waits")] == ["a", "b"]
        await client.cancel("waits")
        status = await client.run(graph, "runs", callables={"double": lambda n: 2 * n})
        assert status.state == "finished", status
        assert await client.result("runs", "a") == 42
        await asyncio.to_thread(client.app.wakeup.clear)
        assert remove_leftovers(client.app.clock.now()) == 0
        print("done")


asyncio.run(main())
"""


def test_the_public_api_without_the_modules_of_posix(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/store.db"
    (tmp_path / "taskgraph-result-1-1-x").mkdir()
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", PROGRAM, store], env=env, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
