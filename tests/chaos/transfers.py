"""Graphs that go from a file to the emulator of a storage account and back, again and again, while calls are killed.

    python -m tests.chaos.transfers --graphs 1 --tasks 1000 --transfers 4
    python -m tests.chaos.transfers --graphs 20 --tasks 40 --transfers 10 --kill-workers

Each graph runs commands, which write down that they ran. `serve` with workers stands at both stores. A transfer is a
process of its own, which is killed (SIGKILL) at a random moment, and said again, until one of them comes to its end;
now and then two are at it at once, or it is to stay first. After each death the graph must live in one store at most;
in the end every task has run once (or once more for each run that a killed worker had in hand), every log is there, the
journal has no gap, and the doctor finds nothing in either store. The emulator itself is never killed.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from taskgraph.documents.nodes import GraphDocument
from taskgraph.documents.read import document_from_object
from taskgraph.engine.doctor import examine_graph
from taskgraph.engine.submission import submit
from taskgraph.interfaces import cli
from taskgraph.interfaces.app import App, open_app
from taskgraph.interfaces.settings import read_settings
from taskgraph.model.ids import GRAPH, task_id_of
from tests import azurite as emulator

T = TypeVar("T")

_STILL: Final = frozenset({"moving", "moved", "restoring", "deleted", "deleting", "missing"})
_CALL_SECONDS_MAX: Final = 240.0
_DONE: Final = 0


class Broken(Exception):
    """A promise was broken."""


@dataclass
class Tally:
    transfers: int = 0
    in_mid_run: int = 0
    calls: int = 0
    killed: int = 0
    side_by_side: int = 0
    stays: int = 0
    workers_killed: int = 0
    seen: Counter[tuple[str, str]] = field(default_factory=Counter)
    """States of the graph, in the file and in the account, after calls that were killed."""
    seconds: list[float] = field(default_factory=list)
    """Of transfers, with all of their calls."""


@dataclass
class Stores:
    """Two stores, with a process at each that handles and works."""

    folder: Path
    addresses: tuple[str, str]
    workers: int
    serving: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)

    def serve(self, which: int) -> None:
        log = (self.folder / f"serve-{which}.log").open("ab")
        command = [sys.executable, "-m", "taskgraph", "serve", "--worker", str(self.workers)]
        self.serving[which] = subprocess.Popen(
            [*command, "--store", self.addresses[which]], cwd=self.folder, stdout=log, stderr=log
        )

    def kill(self, which: int) -> None:
        self.serving[which].kill()
        self.serving[which].wait()
        self.serve(which)

    def end(self) -> None:
        for process in self.serving.values():
            process.terminate()
        for process in self.serving.values():
            process.wait()

    def ask(self, which: int, question: Callable[[App], Awaitable[T]]) -> T:
        async def asked() -> T:
            async with open_app(read_settings(self.addresses[which], {}, cwd=self.folder)) as app:
                return await question(app)

        return asyncio.run(asked())

    def state(self, which: int, graph_id: str) -> str:
        async def look(app: App) -> str:
            (row,) = await app.tables.get(graph_id, [GRAPH])
            return str(row.columns["state"]) if row is not None else "missing"

        return self.ask(which, look)


def call(stores: Stores, words: Sequence[str]) -> int:
    """Begin a command in a process of its own, which has everything imported; gives its id."""
    if pid := os.fork():
        return pid
    code = 1
    try:
        os.chdir(stores.folder)
        out = os.open(stores.folder / "calls.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(out, 1)
        os.dup2(out, 2)
        sys.argv = ["taskgraph", *words]
        try:
            cli.main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0) if isinstance(end.code, int) or end.code is None else 1
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def outcome(pid: int, seconds: float) -> int | None:
    """The exit code of a call, None for one that was killed after so long."""
    end = time.monotonic() + seconds
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= end:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return None
        time.sleep(0.002)


def document(folder: Path, tasks: int, sleep: float) -> dict[str, Any]:
    """Layers of ten, each task behind two of the layer before."""
    made: dict[str, Any] = {}
    for number in range(tasks):
        label, layer, place = f"t{number:05}", number // 10, number % 10
        wanted = [f"t{(layer - 1) * 10 + each:05}" for each in (place, (place + 1) % 10)] if layer else []
        command = ["sh", "-c", f"echo said {label}; echo x >> {folder}/{label}; sleep {sleep}"]
        made[label] = {"requires": wanted, "task": {"payload": {"command": command}}}
    return {"tasks": made}


def bring(stores: Stores, graph_id: str, source: int, rng: random.Random, tally: Tally, *, kill_workers: bool) -> None:
    """One transfer, whose calls are killed until one comes to its end."""
    target = 1 - source
    words = ["transfer", graph_id, "--store", stores.addresses[source], "--to", stores.addresses[target]]
    began, patience = time.monotonic(), 0.5
    while True:
        if time.monotonic() - began > _CALL_SECONDS_MAX:
            raise Broken(f"{graph_id}: no call came to its end; see {stores.folder}/calls.log")
        if kill_workers and rng.random() < 0.1:
            stores.kill(rng.choice((0, 1)))
            tally.workers_killed += 1
        stays = rng.random() < 0.05
        seconds = rng.uniform(0.0, patience)
        patience *= 1.15
        pids = [call(stores, [*words, *(["--stay"] if stays else [])])]
        if rng.random() < 0.05:
            pids.append(call(stores, words))
            tally.side_by_side += 1
        codes = [outcome(pid, seconds) for pid in pids]
        tally.calls += len(pids)
        tally.killed += codes.count(None)
        tally.stays += stays
        states = (stores.state(0, graph_id), stores.state(1, graph_id))
        tally.seen[states] += None in codes
        if sum(state not in _STILL for state in states) > 1:
            raise Broken(f"{graph_id} lives twice: {states}")
        if _DONE in codes and states[target] not in _STILL and states[source] == "moved":
            tally.transfers += 1
            tally.in_mid_run += states[target] == "running"
            tally.seconds.append(time.monotonic() - began)
            return
        if any(code not in (None, 0, 4) for code in codes):
            raise Broken(f"{graph_id}: {codes}; see {stores.folder}/calls.log")


def judge(stores: Stores, graph_id: str, at: int, ran: Path, labels: Sequence[str], *, kill_workers: bool) -> int:
    """Hold what is there against the promises; gives how many runs were lost with workers that were killed."""

    async def look(app: App) -> tuple[list[Any], list[Any], dict[str, bytes | None], str]:
        events = await app.queries.events(graph_id, limit=10_000_000)
        found = await examine_graph(app.handlers, app.poison, graph_id)
        runs = {task.label: task.run for task in await app.queries.tasks(graph_id, limit=1_000_000)}
        said = {each: await app.logs.read(graph_id, task_id_of(graph_id, each), runs[each]) for each in labels}
        return list(events), list(found.findings), said, await app.queries.state(graph_id)

    events, findings, said, state = stores.ask(at, look)
    if state != "finished":
        raise Broken(f"{graph_id} is {state}")
    numbers = sorted({event.sequence for event in events})
    if numbers != list(range(1, len(numbers) + 1)):
        raise Broken(f"{graph_id}: its journal has gaps")
    completed = Counter(event.fields["label"] for event in events if event.kind == "task-completed")
    if completed != Counter(labels):
        raise Broken(f"{graph_id}: completed {len(completed)} of {len(labels)}, or some twice")
    again = Counter(event.fields["label"] for event in events if event.kind == "task-rerun")
    times = {label: len((ran / label).read_text().split()) for label in labels}
    for label, number in times.items():
        if not 1 <= number <= 1 + again[label]:
            raise Broken(f"{graph_id}: {label} ran {number} times, with {again[label]} runs lost or handed back")
        if said[label] != f"said {label}\n".encode():
            raise Broken(f"{graph_id}: the log of {label} is {said[label]!r}")
    if again and not kill_workers:
        raise Broken(f"{graph_id}: runs were lost: {again}")
    wrong = [*findings, *stores.ask(1 - at, lambda app: _findings(app, graph_id))]
    if wrong:
        raise Broken(f"{graph_id}: the doctor finds {wrong}")
    return again.total()


async def _submit(graph_id: str, graph: GraphDocument, app: App) -> None:
    await submit(app.handlers, graph_id, graph)


async def _findings(app: App, graph_id: str) -> list[Any]:
    return list((await examine_graph(app.handlers, app.poison, graph_id)).findings)


def play(arguments: argparse.Namespace, address: str, folder: Path) -> Tally:
    rng, tally = random.Random(arguments.seed), Tally()
    stores = Stores(folder, (f"sqlite:///{folder}/store.db", address), arguments.workers)
    lost = 0
    for which in (0, 1):
        stores.serve(which)
    try:
        for number in range(arguments.graphs):
            graph_id, ran = f"graph-{number}", folder / f"ran-{number}"
            ran.mkdir()
            made = document(ran, arguments.tasks, arguments.sleep)
            stores.ask(0, partial(_submit, graph_id, document_from_object(made)))
            at = 0
            for _ in range(arguments.transfers):
                time.sleep(rng.uniform(0, arguments.between))
                bring(stores, graph_id, at, rng, tally, kill_workers=arguments.kill_workers)
                at = 1 - at
            end = time.monotonic() + 900
            while stores.state(at, graph_id) != "finished" and time.monotonic() < end:
                time.sleep(0.2)
            lost += judge(stores, graph_id, at, ran, list(made["tasks"]), kill_workers=arguments.kill_workers)
            done = f"{tally.transfers} transfers, {tally.calls} calls, {tally.killed} killed"
            print(f"{graph_id}: finished; {done}, {tally.workers_killed} serve killed, {lost} runs again", flush=True)
    finally:
        stores.end()
    return tally


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=int, default=1)
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--transfers", type=int, default=2, help="of each graph")
    parser.add_argument("--sleep", type=float, default=0.05, help="seconds that each command takes")
    parser.add_argument("--between", type=float, default=2.0, help="seconds between two transfers, at most")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kill-workers", action="store_true", help="kill the processes that serve, too")
    arguments = parser.parse_args(words)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="taskgraph-transfers-") as name, emulator.azurite() as address:
        try:
            tally = play(arguments, address, Path(name))
        except Broken as broken:
            print(f"broken: {broken}", file=sys.stderr)
            return 1
    seconds = sorted(tally.seconds)
    print(
        json.dumps(
            {
                "transfers": tally.transfers,
                "inMidRun": tally.in_mid_run,
                "calls": tally.calls,
                "killed": tally.killed,
                "sideBySide": tally.side_by_side,
                "stays": tally.stays,
                "serveKilled": tally.workers_killed,
                "afterDeath": {" / ".join(states): count for states, count in sorted(tally.seen.items()) if count},
                "transferSecondsMedian": round(seconds[len(seconds) // 2], 2),
                "seconds": round(time.monotonic() - began, 1),
            },
            indent=2,
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
