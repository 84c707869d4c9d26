"""taskgraph beside other engines: the same graphs, in turn, in one run.

What this room is for: `python -m tests.bench.comparison PEERS --homes HOMES` starts one engine after the other, warms
it, gives it one graph at a time, and writes a table. PEERS is a folder of programs `peer_NAME.py`, each of which obeys
the lines that `tests.bench.peer` tells of; HOMES holds a virtual environment for each. It never measures two engines at
once, and ends every process that it has started, with their children and services, by their ids.

Each round goes over all engines before the next one begins, every other round backwards, so that what the machine does
besides meets all of them. A run that takes longer than `--cap` is given up; one above `--once` is not repeated; one
that would take longer than the cap at the rate of the smaller graph is not tried. Variants that are marked as slower
than their siblings are measured in the first round only. Linux only: it reads /proc.
"""

import argparse
import asyncio
import contextlib
import ctypes
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from tests.bench import report
from tests.bench.comparison_page import Cell, text_of
from tests.bench.engines import ENGINES, Engine, chosen, versions
from tests.bench.shapes import Requirements, fan, layers, shape

ROOT: Final = Path(__file__).resolve().parents[2]
KEPT: Final = ROOT / "docs" / "benchmarks" / "peers"

SHAPES: Final = ("chain-1", "chain-200", "fan-1000", "layers-10x100", "independent-1000", "fan-10000")
SMALLER: Final = {"fan-10000": "fan-1000"}
"""What tells beforehand how long a graph would take."""

_WARMING: Final = 2  # small graphs before the first that counts
_READY_SECONDS: Final = 240.0
_END_SECONDS: Final = 5.0
_END_SECONDS_OURS: Final = 60.0  # it has the emulator to end, which must not be killed
_LINE_BYTES_MAX: Final = 1 << 20
_TICK: Final = os.sysconf("SC_CLK_TCK")
_SET_CHILD_SUBREAPER: Final = 36  # of prctl: what loses its parent becomes our child, and so is counted and ended


class PeerFailed(Exception):
    """An engine did not do what it was asked; its text says why."""


# --- processes -------------------------------------------------------------------------------------------------


def family() -> dict[int, float]:
    """All processes below this one, and the CPU seconds of each with those children that it has waited for."""
    parents: dict[int, int] = {}
    spent: dict[int, float] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text("utf-8", "replace").rpartition(")")[2].split()
            pid = int(path.parent.name)
            parents[pid] = int(fields[1])
            spent[pid] = sum(map(int, fields[11:15])) / _TICK
    below: set[int] = set()
    more = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in more}:
        below |= more
    return {pid: spent[pid] for pid in below}


def machine_seconds() -> float:
    """CPU seconds that all processes of the machine have used since it started."""
    first, _, _ = Path("/proc/stat").read_text("ascii").partition("\n")
    user, nice, system, _idle, _waiting, interrupts, soft, stolen = map(int, first.split()[1:9])
    return (user + nice + system + interrupts + soft + stolen) / _TICK


class Peer:
    """One engine that is up, as seen from here."""

    def __init__(self, engine: Engine, process: asyncio.subprocess.Process) -> None:
        self._engine = engine
        self._process = process

    @classmethod
    async def start(cls, engine: Engine, plan: "Plan", folder: Path, trace: Path | None = None) -> "Peer":
        """Start an engine, and wait until it is ready. folder: for its temporary files. Raises PeerFailed."""
        environment = {name: value for name, value in os.environ.items() if name not in ("PEER_TRACE", "PYTHONPATH")}
        environment["TMPDIR"] = str(folder)
        if not engine.ours:
            environment["PYTHONDONTWRITEBYTECODE"] = "1"  # their folder is not ours to write to
            environment["PYTHONWARNINGS"] = "ignore"
        if trace is not None:
            environment["PEER_TRACE"] = str(trace)
        with plan.log.open("ab") as words:
            process = await asyncio.create_subprocess_exec(
                *engine.command(plan.peers, plan.homes),
                cwd=ROOT if engine.ours else folder,
                env=environment,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=words,
                limit=_LINE_BYTES_MAX,
                start_new_session=True,  # an interrupt at the terminal is for us, and we end it
            )
        peer = cls(engine, process)
        try:
            await peer._hear(_READY_SECONDS, "get ready")
        except BaseException:
            await peer.close()
            raise
        return peer

    async def _hear(self, seconds: float, what: str) -> dict[str, Any]:
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(seconds):
                line = await self._process.stdout.readline()
        except TimeoutError:
            raise PeerFailed(f"did not {what} within {seconds:g} s") from None
        if not line:
            raise PeerFailed("ended without an answer")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise PeerFailed(answer["error"])
        return answer

    async def run(self, graph: Requirements, cap: float) -> dict[str, float]:
        """Run one graph; gives `seconds`, `cpu`, `others`. Raises PeerFailed."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(graph).encode() + b"\n")
        with contextlib.suppress(ConnectionError):  # then there is no answer either
            await self._process.stdin.drain()
        await self._hear(_READY_SECONDS, "take the graph")
        began, spent, machine = time.monotonic(), sum(family().values()), machine_seconds()
        answer = await self._hear(cap, "finish")
        took = time.monotonic() - began
        own = max(0.0, sum(family().values()) - spent)
        others = max(0.0, machine_seconds() - machine - own) / took
        if answer["done"] != len(graph):
            raise PeerFailed(f"{answer['done']} of {len(graph)} tasks done")
        return {"seconds": answer["seconds"], "cpu": own, "others": others}

    async def close(self) -> None:
        """End it, and all that it has started."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        patience = _END_SECONDS_OURS if self._engine.ours else _END_SECONDS
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await self._process.wait()
        for sign, seconds in ((signal.SIGTERM, patience), (signal.SIGKILL, _END_SECONDS)):
            for pid in family():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, sign)
            end = time.monotonic() + seconds
            while (left := family()) and time.monotonic() < end:
                for pid in left:
                    if pid != self._process.pid:
                        with contextlib.suppress(ChildProcessError):  # it still has its own parent
                            os.waitpid(pid, os.WNOHANG)
                await asyncio.sleep(0.05)
            if not left:
                break
        await self._process.wait()


@contextlib.asynccontextmanager
async def running(engine: Engine, plan: "Plan", *, tracing: bool = False) -> AsyncIterator[tuple[Peer, Path]]:
    """One engine, ready, and the file of its traces; all that it has left is removed. Raises PeerFailed."""
    with tempfile.TemporaryDirectory(prefix="taskgraph-peers-", ignore_cleanup_errors=True) as folder:
        trace = Path(folder, "trace")
        peer = await Peer.start(engine, plan, Path(folder), trace if tracing else None)
        try:
            yield peer, trace
        finally:
            await peer.close()


# --- measuring -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Plan:
    """What is asked for. until: by the monotonic clock, after which nothing is begun."""

    peers: Path
    homes: Path
    log: Path
    rounds: int
    cap: float
    once: float
    until: float


class Comparison:
    """All cells, and how far they are."""

    def __init__(
        self, plan: Plan, engines: Sequence[Engine], shapes: Sequence[str], say: Callable[[str], None]
    ) -> None:
        self._plan = plan
        self._engines = engines
        self._graphs = {name: shape(name).make() for name in shapes}
        self._say = say
        self.cells = {
            (engine.name, name): Cell(engine.name, name, len(graph))
            for engine in engines
            for name, graph in self._graphs.items()
        }
        self.late = False

    async def rounds(self, kept: Callable[[], None]) -> None:
        """Measure. kept: called after each round."""
        for number in range(self._plan.rounds):
            for engine in self._engines if number % 2 == 0 else reversed(self._engines):
                await self._engine(engine, number)
            kept()

    def _wanted(self, engine: Engine, number: int) -> list[Cell]:
        return [
            cell
            for name in self._graphs
            if not (cell := self.cells[engine.name, name]).failed
            and len(cell.seconds) <= (0 if engine.slower else number)
            and not (cell.seconds and max(cell.seconds) > self._plan.once)
        ]

    async def _engine(self, engine: Engine, number: int) -> None:
        """All that is wanted of one engine in one round; it is started again after a failure."""
        while wanted := self._wanted(engine, number):
            if time.monotonic() > self._plan.until:
                self.late = True
                self._say(f"{engine.name}: no time left")
                return
            # The first is to blame for whatever goes wrong before it has begun: so this comes to an end.
            cell = wanted[0]
            try:
                async with running(engine, self._plan) as (peer, _):
                    for _ in range(_WARMING):
                        await peer.run(fan(5), _READY_SECONDS)
                    for cell in wanted:
                        if time.monotonic() > self._plan.until:
                            break
                        await self._run(peer, cell)
            except PeerFailed as error:
                cell.failed = str(error)
                self._say(f"{cell.engine} {cell.shape}: {cell.failed}")

    async def _run(self, peer: Peer, cell: Cell) -> None:
        smaller = self.cells.get((cell.engine, SMALLER.get(cell.shape, "")))
        if smaller is not None:
            if smaller.failed:
                cell.failed = f"not tried after {smaller.shape}"
                return
            if smaller.seconds and cell.tasks / smaller.rate > self._plan.cap:
                cell.failed = (
                    f"not tried: at {smaller.rate:,.0f} tasks/s it would take {cell.tasks / smaller.rate:.0f} s"
                )
                return
        figures = await peer.run(self._graphs[cell.shape], self._plan.cap)
        cell.seconds.append(figures["seconds"])
        cell.cpu.append(figures["cpu"])
        cell.others.append(figures["others"])
        self._say(
            f"{cell.engine} {cell.shape}: {cell.tasks / figures['seconds']:,.0f} tasks/s, {figures['seconds']:.2f} s, "
            f"CPU {figures['cpu']:.2f} s, others {figures['others']:.1f} cores"
        )


async def check(plan: Plan, engines: Sequence[Engine], say: Callable[[str], None]) -> bool:
    """Whether every engine runs each task of a small graph once, after what it requires, as far as tasks can tell."""
    graph = layers(4, 5)
    good = True
    for engine in engines:
        try:
            async with running(engine, plan, tracing=True) as (peer, trace):
                figures = await peer.run(graph, _READY_SECONDS)
                told = [label for label in (trace.read_text() if trace.exists() else "").split() if label in graph]
            wrong = "" if engine.ours and not told else _wrong_order(graph, told)
            words = wrong or f"good in {figures['seconds']:.2f} s" + ("" if told else ", by its own word")
        except PeerFailed as error:
            wrong = words = str(error)
        good = good and not wrong
        say(f"{engine.name}: {words}")
    return good


def _wrong_order(graph: Requirements, told: Sequence[str]) -> str:
    """What is wrong with the order in which tasks ran; "" if nothing is."""
    if sorted(told) != sorted(graph):
        return f"{len(told)} runs of {len(graph)} tasks"
    place = {label: at for at, label in enumerate(told)}
    early = [label for label, needs in graph.items() if any(place[need] > place[label] for need in needs)]
    return f"{early[0]} ran before what it requires" if early else ""


# --- the command -----------------------------------------------------------------------------------------------


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m tests.bench.comparison", description="Measure taskgraph beside other engines, in one run."
    )
    made.add_argument("peers", type=Path, metavar="PEERS", help="folder of programs peer_NAME.py")
    made.add_argument("--homes", type=Path, required=True, help="folder of a virtual environment for each engine")
    made.add_argument("--engines", default="", metavar="A,B", help="default: all; celery means all of celery/…")
    made.add_argument("--shapes", default=",".join(SHAPES), metavar="A,B", help=f"default: {','.join(SHAPES)}")
    made.add_argument("--rounds", type=int, default=3, metavar="N")
    made.add_argument("--cap", type=float, default=45.0, metavar="S", help="a run of more than S seconds is given up")
    made.add_argument("--once", type=float, default=30.0, metavar="S", help="one of more than S is not repeated")
    made.add_argument("--minutes", type=float, default=30.0, metavar="M", help="no run begins after M minutes")
    made.add_argument("--out", type=Path, default=KEPT, metavar="NAME", help="writes NAME.md and NAME.json")
    made.add_argument("--check", action="store_true", help="instead: does each engine run each task once, in order?")
    return made


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def adopting() -> Iterator[None]:
    """Become the parent of whatever loses its own below us: else servers would escape the count, and their end."""
    if ctypes.CDLL(None, use_errno=True).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    try:
        yield
    finally:
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


async def measure(options: argparse.Namespace, engines: Sequence[Engine], shapes: Sequence[str], log: Path) -> bool:
    """Measure (or check) and write; gives whether nothing failed that was tried."""
    began = time.monotonic()
    plan = Plan(
        options.peers.resolve(),
        options.homes.resolve(),
        log,
        options.rounds,
        options.cap,
        options.once,
        began + 60 * options.minutes,
    )
    if options.check:
        return await check(plan, engines, say)
    about: dict[str, Any] = {
        "began": report.now(),
        "machine": report.machine(),
        "versions": {**report.versions(ROOT), **versions(engines, plan.homes)},
        **{name: getattr(options, name) for name in ("rounds", "cap", "once", "minutes")},
    }
    comparison = Comparison(plan, engines, shapes, say)

    def keep() -> None:
        about.update(ended=report.now(), late=comparison.late)
        text = text_of(about, engines, shapes, comparison.cells)
        results = {**about, "cells": [asdict(cell) for cell in comparison.cells.values()]}
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.with_suffix(".md").write_text(text, "utf-8")
        options.out.with_suffix(".json").write_text(json.dumps(results, indent=1) + "\n", "utf-8")
        say(f"written after {(time.monotonic() - began) / 60:.1f} minutes: {options.out}.md and .json")

    await comparison.rounds(keep)
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    try:
        engines = chosen([name for name in options.engines.split(",") if name])
    except KeyError as error:
        say(f"no engine is named {error}: there are {', '.join(engine.name for engine in ENGINES)}")
        return 2
    shapes = [name for name in options.shapes.split(",") if name]
    with adopting():
        log = Path(tempfile.gettempdir(), f"taskgraph-comparison-{os.getpid()}.log")
        say(f"what the engines say: {log}")
        try:
            return 0 if asyncio.run(measure(options, engines, shapes, log)) else 1
        except KeyboardInterrupt:
            say("interrupted; nothing is left running")
            return 130


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    sys.exit(main())
