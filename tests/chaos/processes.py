"""Real processes of the command line, many of them, and what becomes of each: the near end of the zygote."""

import asyncio
import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


@dataclass(slots=True, eq=False)
class Child:
    """One process. status: its exit code, or minus the number of the signal that ended it; None while it lives.

    stops: times at which it was stopped, and when it went on.
    """

    pid: int
    words: Sequence[str]
    started: float
    ended: float = 0.0
    status: int | None = None
    terminated: float = 0.0  # when it was told to stop in peace
    stops: list[tuple[float, float]] = field(default_factory=list)
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def killed(self) -> bool:
        return self.status == -signal.SIGKILL


class Zygote:
    """Starts processes by forking one that has imported everything. `close` ends them all."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._numbers = itertools.count(1)
        self._starting: dict[int, asyncio.Future[tuple[int, float]]] = {}
        self._living: dict[int, Child] = {}
        self._early: dict[int, dict[str, Any]] = {}
        self._reader = asyncio.ensure_future(self._read())
        self.ready = asyncio.Event()

    @classmethod
    async def start(cls, store: str) -> "Zygote":
        """store: where it may submit a graph of its own, to have everything ready."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.chaos.zygote",
            cwd=ROOT,
            env={**os.environ, "TASKGRAPH_STORE": store},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # an interrupt at the terminal is for us, and we tell it
        )
        zygote = cls(process)
        await zygote.ready.wait()
        return zygote

    async def spawn(self, words: Sequence[str], environment: Mapping[str, str], log: Path) -> Child:
        """Start the command line with these words."""
        number = next(self._numbers)
        started: asyncio.Future[tuple[int, float]] = asyncio.get_running_loop().create_future()
        self._starting[number] = started
        self._order({"start": number, "argv": list(words), "environment": dict(environment), "log": os.fspath(log)})
        pid, when = await started
        child = Child(pid, words, when)
        if early := self._early.pop(pid, None):
            _end(child, early)
        else:
            self._living[pid] = child
        return child

    def signal(self, child: Child, number: int) -> None:
        """Send a signal, unless it has ended."""
        if child.status is None:
            if number == signal.SIGTERM and not child.terminated:
                child.terminated = time.time()
            self._order({"signal": number, "pid": child.pid})

    async def close(self) -> None:
        """End everything."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        await self._process.wait()
        await self._reader

    def _order(self, order: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            report = json.loads(line)
            if "ready" in report:
                self.ready.set()
            elif "started" in report:
                self._starting.pop(report["started"]).set_result((report["pid"], report["time"]))
            elif "ended" in report:
                child = self._living.pop(report["ended"], None)
                if child is None:
                    self._early[report["ended"]] = report  # before whoever started it has come round
                else:
                    _end(child, report)
        self.ready.set()
        for waiting in self._starting.values():
            waiting.set_exception(RuntimeError("the zygote has ended"))


def _end(child: Child, report: Mapping[str, Any]) -> None:
    child.ended, child.status = report["time"], report["status"]
    child.gone.set()
