"""Real processes whose clocks are off by an hour or a day, jump in mid-run, and end while off: `scripts/soak --clocks`.

What this room is for: one way is a role (handler, worker, submitter) and an offset. Its process begins with the right
clock, jumps while graphs run, goes on, and is killed with work in hand; then a process with the right clock takes over.
All graphs must finish, every task must have run, the doctor must be content, and nothing may stand still for longer
than docs/explanation/reliability.md says. libfaketime moves the time of day alone: monotonic clocks go on as they are.
"""

import argparse
import asyncio
import glob
import json
import os
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

ROLES: Final = ("handler", "worker", "submitter")
OFFSETS: Final = (-86_400, -3_600, 3_600, 86_400)
STORES: Final = ("embedded", "azurite")
BOUND_SECONDS: Final = 60 + 60 + 2 * 30 + 60
"""A message that comes back, a lease that is set right, two sweeps, and a minute for a busy machine to start in."""

_LIBRARIES: Final = "/usr/lib/*/faketime/libfaketime.so.1"
_DIAMOND: Final = {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]}
_QUIET: Final = asyncio.subprocess.DEVNULL


@dataclass(slots=True)
class Way:
    """One way for clocks to be wrong, and what came of it."""

    store: str
    role: str
    offset: int
    seconds: float = 0.0  # from the takeover until every graph had finished
    runs: int = 0
    troubles: list[str] = field(default_factory=list)


class Site:
    """The processes of one way, around a store of their own."""

    def __init__(self, way: Way, folder: Path, azurite: str, graphs: int) -> None:
        self.way = way
        self.folder = folder
        self.graphs = [f"g{number:03}" for number in range(graphs)]
        self.record = folder / "record"
        self.offset_file = folder / "offset"
        self.environment = {
            **os.environ,
            "TASKGRAPH_STORE": f"sqlite:///{folder}/s.db" if way.store == "embedded" else azurite,
            "TASKGRAPH_PREFIX": f"k{secrets.token_hex(6)}",
        }
        self.living: list[asyncio.subprocess.Process] = []

    async def start(self, *words: str, off: bool = False) -> asyncio.subprocess.Process:
        environment = dict(self.environment)
        if off:
            environment |= {
                "LD_PRELOAD": glob.glob(_LIBRARIES)[0],
                "FAKETIME_TIMESTAMP_FILE": str(self.offset_file),
                "FAKETIME_NO_CACHE": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
                "DONT_FAKE_MONOTONIC": "1",
            }
        command = [sys.executable, "-m", "taskgraph", *words]
        with (self.folder / f"{words[0]}.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=_QUIET, stderr=log)
        self.living.append(process)
        return process

    async def answer(self, *words: str) -> Any:
        command = [sys.executable, "-m", "taskgraph", *words, "--json"]
        process = await asyncio.create_subprocess_exec(
            *command, env=self.environment, stdout=asyncio.subprocess.PIPE, stderr=_QUIET
        )
        out, _ = await process.communicate()
        return json.loads(out) if out.strip() else {}

    def jump(self, seconds: int) -> None:
        fresh = self.offset_file.with_suffix(".new")
        fresh.write_text(f"{seconds:+d}s\n")
        fresh.replace(self.offset_file)

    def document(self, graph_id: str) -> Path:
        tasks = {
            label: {
                "requires": requires,
                "task": {"payload": {"command": ["sh", "-c", f"echo {graph_id} {label} >> {self.record}; sleep 0.5"]}},
            }
            for label, requires in _DIAMOND.items()
        }
        path = self.folder / f"{graph_id}.json"
        path.write_text(json.dumps({"tasks": tasks}))
        return path

    async def submit(self, graph_ids: Sequence[str], *, off: bool, cut: bool = False) -> None:
        """Submit graphs, a few at a time. cut: the first is killed at it, and submitted again by the right clock."""
        gate = asyncio.Semaphore(3)

        async def one(graph_id: str, killed: bool) -> None:
            async with gate:
                words = ("submit", str(self.document(graph_id)), "--id", graph_id)
                process = await self.start(*words, off=off)
                if killed:
                    await asyncio.sleep(1.5)
                    if process.returncode is None:
                        process.kill()
                if await process.wait() and await (await self.start(*words)).wait():
                    self.way.troubles.append(f"{graph_id} could not be submitted")

        await asyncio.gather(*[one(each, cut and number == 0) for number, each in enumerate(graph_ids)])

    async def end(self) -> None:
        for process in self.living:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
        for process in self.living:
            try:
                await asyncio.wait_for(process.wait(), 30)
            except TimeoutError:
                process.kill()
                self.way.troubles.append(f"process {process.pid} did not stop")


async def play(way: Way, azurite: str, graphs: int) -> None:
    """Play one way to its end."""
    with tempfile.TemporaryDirectory(prefix="taskgraph-clocks-") as folder:
        site = Site(way, Path(folder), azurite, graphs)
        site.jump(0)
        handler = await site.start("serve", off=way.role == "handler")
        worker = await site.start("worker", "--slots", "4", off=way.role == "worker")
        first, second, third = site.graphs[::3], site.graphs[1::3], site.graphs[2::3]
        off = way.role == "submitter"
        try:
            await site.submit(first, off=off)
            site.jump(way.offset)
            await site.submit(second, off=off, cut=off)
            unlucky = {"handler": handler, "worker": worker}.get(way.role)
            if unlucky is not None:
                unlucky.kill()
                await unlucky.wait()
            site.jump(0)
            taken_over = time.monotonic()
            if unlucky is not None:
                await site.start(*(("serve",) if way.role == "handler" else ("worker", "--slots", "4")))
            await site.submit(third, off=False)
            await finished(site, taken_over)
            await judge(site)
        finally:
            await site.end()


async def finished(site: Site, since: float) -> None:
    """Wait for every graph, at most until the bound."""
    open_graphs = set(site.graphs)
    while open_graphs:
        for each in (await site.answer("list", "--limit", "1000"))["graphs"]:
            if each["state"] == "finished":
                open_graphs.discard(each["graphId"])
        site.way.seconds = time.monotonic() - since
        if site.way.seconds > BOUND_SECONDS:
            site.way.troubles.append(f"{len(open_graphs)} graphs stand still: {sorted(open_graphs)[:3]}")
            return
        await asyncio.sleep(1.0)


async def judge(site: Site) -> None:
    """Every task has run, and the doctor is content."""
    lines = site.record.read_text().split("\n")[:-1] if site.record.exists() else []
    site.way.runs = len(lines)
    missing = {f"{graph_id} {label}" for graph_id in site.graphs for label in _DIAMOND}.difference(lines)
    if missing:
        site.way.troubles.append(f"{len(missing)} tasks never ran")
    for graph_id in site.graphs[:3]:
        found = await site.answer("doctor", graph_id)
        if not found.get("sound"):
            site.way.troubles.append(f"doctor of {graph_id}: {found}")


def table(ways: Sequence[Way], graphs: int) -> str:
    """What came of each way, for people."""
    lines = [
        "| store | role | clock off by | graphs | runs begun | of | at rest after | troubles |",
        "|---|---|---:|---:|---:|---:|---:|---|",
    ]
    lines += [
        f"| {way.store} | {way.role} | {way.offset / 3600:+.0f} h | {graphs} | {way.runs} "
        f"| {graphs * len(_DIAMOND)} | {way.seconds:.0f} s | {'; '.join(way.troubles) or 'none'} |"
        for way in ways
    ]
    return "\n".join(lines)


async def campaign(options: argparse.Namespace, environment: Mapping[str, str]) -> list[Way]:
    """Play all ways, some at once."""
    azurite = environment.get("TASKGRAPH_TEST_AZURITE", "")
    ways = [Way(store, role, offset) for store in options.store for role in options.role for offset in options.offset]
    gate = asyncio.Semaphore(options.at_once)

    async def one(way: Way) -> None:
        async with gate:
            try:
                await play(way, azurite, options.graphs)
            except Exception as error:  # the others are played all the same, and the table says it
                way.troubles.append(repr(error))
            print(f"{way.store} {way.role} {way.offset:+d} s: {way.troubles or 'right'}", file=sys.stderr, flush=True)

    await asyncio.gather(*map(one, ways))
    return ways


def main() -> int:
    """Play what was asked for; 1 if anything was lost or stood still."""
    parser = argparse.ArgumentParser(prog="scripts/soak --clocks", description=__doc__.partition("\n")[0])
    parser.add_argument("--graphs", type=int, default=50, help="of each way")
    parser.add_argument("--at-once", type=int, default=4, help="ways that are played side by side")
    parser.add_argument("--store", nargs="+", choices=STORES, default=list(STORES))
    parser.add_argument("--role", nargs="+", choices=ROLES, default=list(ROLES))
    parser.add_argument("--offset", nargs="+", type=int, default=list(OFFSETS), help="seconds")
    options = parser.parse_args()
    ways = asyncio.run(campaign(options, os.environ))
    print(table(ways, options.graphs))
    return int(any(way.troubles for way in ways))


if __name__ == "__main__":
    sys.exit(main())
