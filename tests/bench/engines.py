"""The engines of a comparison: how each is started, what its time holds, and what survives.

What this room is for: what one has to know to read a table of engines. It measures nothing. What is said of durability
was read in each engine's code or configuration, at the versions that are printed with the table.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench.peer import ROOT

DISK: Final = "disk"
PROCESS: Final = "process"
NOTHING: Final = "nothing"
SURVIVES: Final = {
    DISK: "What was acknowledged survives a power cut",
    PROCESS: "What was acknowledged survives the end of any process, but a power cut may take the newest part",
    NOTHING: "A crash loses what the engine knew of the graph",
}


@dataclass(frozen=True, slots=True)
class Engine:
    """One row of the table. home: the folder of its virtual environment, "" for none.

    durable: a key of SURVIVES, and what that rests on. kind: `engine`, whose tasks are calls; `build`, whose tasks
    are processes. slower: than a sibling, nearly everywhere; one round of it has to do.
    """

    name: str
    home: str
    packages: tuple[str, ...]
    task: str
    durable: tuple[str, str]
    kind: str = "engine"
    slower: bool = False

    @property
    def ours(self) -> bool:
        """Whether it is taskgraph."""
        return self.name.startswith("taskgraph/")

    def command(self, peers: Path, homes: Path) -> list[str]:
        """What starts it."""
        program, _, variant = self.name.partition("/")
        if self.ours:
            return [sys.executable, "-m", "tests.bench.peer", variant]
        python = str(homes / self.home / "bin" / "python") if self.home else sys.executable
        return [python, str(peers / f"peer_{program}.py"), *([variant] if variant else [])]


_NORMAL: Final = (PROCESS, "SQLite, WAL, `synchronous=NORMAL`, its default")
_SNAPSHOTS: Final = (NOTHING, "Redis with snapshots and no append-only file, as Debian ships it; early acknowledgement")

# The slow ones last: they are what a run does not come to if its time is over.
ENGINES: Final = (
    Engine("taskgraph/noop", "", (), "executor `noop`, embedded store", _NORMAL),
    Engine(
        "taskgraph/noop-full",
        "",
        (),
        "executor `noop`, embedded store with `?synchronous=full`",
        (DISK, "SQLite, WAL, each commit waits for the disk"),
    ),
    Engine("taskgraph/call", "", (), "executor `python`: a coroutine with an argument, embedded store", _NORMAL),
    Engine(
        "taskgraph/azurite",
        "",
        (),
        "executor `noop`, storage emulator",
        (PROCESS, "On Azure: replicated storage; here the emulator, tables in memory and queues on disk"),
    ),
    Engine("taskgraph/true", "", (), '`["true"]`, embedded store; its process is up', _NORMAL, "build"),
    Engine(
        "taskgraph/true-anew",
        "",
        (),
        '`["true"]`, embedded store; `scripts/taskgraph run` from start to exit, a new store',
        _NORMAL,
        "build",
    ),
    Engine(
        "ninja",
        "",
        (),
        "`sh -c true`; `ninja -j2` from start to exit",
        (PROCESS, "A log line per task, never synced"),
        "build",
    ),
    Engine("make", "", (), "`true`; `make -j2` from start to exit", (NOTHING, "No record at all"), "build"),
    Engine(
        "restate/steps",
        "restate",
        ("restate-sdk",),
        "a coroutine; one invocation, a journalled step per task, a barrier between levels",
        (DISK, "A journal in RocksDB whose log is synced (`rocksdb-disable-wal-fsync = false`)"),
    ),
    Engine(
        "restate/chunks",
        "restate",
        ("restate-sdk",),
        "the same as `restate/steps`, but at most 100 steps at once",
        (DISK, "A journal in RocksDB whose log is synced (`rocksdb-disable-wal-fsync = false`)"),
    ),
    Engine(
        "dask/graph",
        "dask",
        ("distributed",),
        "a call in one of two worker processes; the graph sent at once",
        (NOTHING, "All in memory"),
    ),
    Engine(
        "dask/submit",
        "dask",
        ("distributed",),
        "a call in one of two worker processes; one `submit` per task",
        (NOTHING, "All in memory"),
    ),
    Engine(
        "celery/counters",
        "celery",
        ("celery", "redis"),
        "a call in one of two worker processes; tasks count their dependents down in Redis",
        _SNAPSHOTS,
    ),
    Engine(
        "celery/canvas",
        "celery",
        ("celery", "redis"),
        "a call in one of two worker processes; a chain of groups, a barrier between levels",
        _SNAPSHOTS,
        slower=True,
    ),
    Engine(
        "dbos/steps-sqlite",
        "dbos",
        ("dbos",),
        "a coroutine; one workflow, a checkpointed step per task",
        (DISK, "SQLite with its own defaults: rollback journal, `synchronous=FULL`"),
    ),
    Engine(
        "dbos/queue-sqlite",
        "dbos",
        ("dbos",),
        "a queued child workflow per task, a barrier between levels; polled every 10 ms",
        (DISK, "SQLite with its own defaults: rollback journal, `synchronous=FULL`"),
        slower=True,
    ),
    Engine(
        "luigi/w1",
        "luigi",
        ("luigi",),
        "a call in one process, and a file that says that it is done",
        (PROCESS, "An empty file per task, never synced"),
    ),
    Engine(
        "luigi/w2",
        "luigi",
        ("luigi",),
        "a process forked per task, two at a time, and the same file",
        (PROCESS, "An empty file per task, never synced"),
        slower=True,
    ),
    Engine(
        "prefect/flow",
        "prefect",
        ("prefect", "fastapi"),  # some versions of which its server does not start with
        "a call in a thread of the flow; to the flow's return, states reach the server later",
        (NOTHING, "States go to a server on SQLite; a flow that dies starts over"),
    ),
)


def chosen(names: Sequence[str]) -> list[Engine]:
    """The engines of these names (`celery` means all of celery/…), in the order of the table. Raises KeyError."""
    for name in names:
        if not any(name in (each.name, each.name.partition("/")[0]) for each in ENGINES):
            raise KeyError(name)
    return [each for each in ENGINES if not names or {each.name, each.name.partition("/")[0]} & set(names)]


def versions(engines: Sequence[Engine], homes: Path) -> dict[str, str]:
    """The versions of what the engines are made of, as far as they can be asked."""
    found: dict[str, str] = {}
    for engine in engines:
        python = str(homes / engine.home / "bin" / "python")
        for package in engine.packages:
            if package not in found:
                question = f"import importlib.metadata as m; print(m.version({package!r}))"
                found[package] = _line(python, "-c", question)
        if engine.home == "restate":
            path = homes / "restate" / "npm" / "node_modules" / "@restatedev" / "restate-server" / "package.json"
            found["restate-server"] = str(json.loads(path.read_text())["version"]) if path.is_file() else "?"
        if engine.home == "celery":
            found["redis-server"] = _line("redis-server", "--version")
        if engine.name in ("ninja", "make"):
            found[engine.name] = _line(engine.name, "--version")
    return found


def _line(*words: str) -> str:
    try:
        ended = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return "?"
    first, _, _ = ended.stdout.strip().partition("\n")
    return first.removeprefix("Redis server ").partition(" sha=")[0] or "?"
