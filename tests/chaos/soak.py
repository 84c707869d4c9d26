"""The soak: real handlers, workers and submitters over the emulator for a long time, while a killer goes round.

    python -m tests.azurite -- python -m tests.chaos.soak [--minutes 30] [--graphs 1000] [--tasks 20000] …

It goes in rounds, each with a table and queues of its own. Under fire, processes are killed (by SIGKILL from outside at
any moment, or by their own transport at a chosen request), stopped for longer than a lease, and their requests fail in
every way that the transport knows. Then the fire stops, and within the bound T everything must have come to rest: that
is the promise of liveness. Whatever was submitted by then is judged by `checker`. The next round is under fire
meanwhile. Leases and periods are the product's own unless the options say otherwise.
"""

import argparse
import asyncio
import contextlib
import dataclasses
import itertools
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

from taskgraph.interfaces.client.client import Client
from taskgraph.model import limits
from taskgraph.model.ids import GRAPH
from taskgraph.model.names import LIVE
from taskgraph.model.states import GRAPH_ENDED, GraphState
from taskgraph.storage.tables import Range, query_all
from tests import azurite
from tests.chaos.checker import Evidence, Process, Verdict, judge, read_lines
from tests.chaos.launcher import LIMITS_VARIABLE
from tests.chaos.processes import Zygote
from tests.chaos.shapes import Spec, draw
from tests.chaos.tasks import RECORD_VARIABLE
from tests.chaos.transport import DEADLY, VARIABLE, Plan

_RATES: Final = {"refuse": 0.001, "drop": 0.002, "500": 0.001, "503": 0.001, "delay": 0.004}
_EXIT_FINE: Final = frozenset({0, -signal.SIGKILL, 5, 130})  # 5: its storage failed too often, as it was told to


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """What the soak was asked for."""

    minutes: float = 30.0
    graphs: int = 1000
    tasks: int = 20_000
    kill_every: float = 0.8
    seed: int = 1
    round_minutes: float = 5.0
    handlers: int = 2
    workers: int = 4
    stop_every: float = 20.0
    lease_seconds: float = limits.LEASE_SECONDS
    sweep_seconds: float = limits.SWEEP_SECONDS
    patience_seconds: float = 0.0  # until what is not at rest counts as stuck; the bound T if 0

    @property
    def bound_seconds(self) -> float:
        """T: a message hidden by a dead handler, then a lease of a dead worker, and two rounds of the sweep."""
        return 2 * self.lease_seconds + 2 * self.sweep_seconds

    @property
    def rest_seconds(self) -> float:
        """How long is waited for everything to be at rest."""
        return self.patience_seconds or self.bound_seconds

    @property
    def limits(self) -> dict[str, float]:
        """Where periods differ from the product's own."""
        wanted = {
            "HANDLER_LEASE_SECONDS": self.lease_seconds,
            "REDISPATCH_SECONDS": self.lease_seconds,
            "SWEEP_SECONDS": self.sweep_seconds,
        }
        return {name: value for name, value in wanted.items() if value != getattr(limits, name)}

    def words(self, role: str) -> list[str]:
        """The command of a role."""
        if role == "handler":
            return ["serve"]
        lease = [] if self.lease_seconds == limits.LEASE_SECONDS else ["--lease-seconds", str(self.lease_seconds)]
        return ["worker", "--slots", "4", "--python", "tests.chaos.tasks", *lease]


class Round:
    """One installation, its processes, and what is done to them."""

    def __init__(
        self, number: int, options: Options, specs: Sequence[Spec], zygote: Zygote, store: str, folder: Path
    ) -> None:
        self.number = number
        self.options = options
        self.specs = specs
        self.zygote = zygote
        self.folder = folder
        self.prefix = f"soak{os.getpid() % 10000:04d}r{number}"
        self.environment = {
            "TASKGRAPH_STORE": store,
            "TASKGRAPH_PREFIX": self.prefix,
            RECORD_VARIABLE: str(folder / "executed.jsonl"),
            LIMITS_VARIABLE: json.dumps(options.limits),
        }
        self.rng = random.Random(f"{options.seed} {number}")
        self.processes: list[Process] = []
        self.fire = True
        self.closing = False
        self.submitted = 0
        self.resting: set[str] = set()
        self.anomalies: list[str] = []
        self.verdict = Verdict()
        self.queued = ""
        self._stopped: set[Process] = set()
        self._late: list[asyncio.Task[None]] = []
        self._rest: asyncio.Task[None] | None = None
        self._store = store
        folder.mkdir(parents=True)

    # --- processes -----------------------------------------------------------------------------------------------

    def plan(self, armed: float, requests: int) -> Plan:
        """What goes wrong in the next process. armed: the chance that it kills itself within so many requests."""
        record = str(self.folder / "requests.jsonl")
        if not self.fire:
            return Plan(record=record)
        at = self.rng.randint(1, requests) if self.rng.random() < armed else 0
        return Plan(
            at=at,
            kind=self.rng.choice(DEADLY) if at else "",
            rates=_RATES,
            seed=self.rng.randrange(1 << 30),
            record=record,
        )

    async def start(self, role: str, words: Sequence[str], plan: Plan, graph: str = "") -> Process:
        """Start the command line in a process of its own."""
        environment = {**self.environment, VARIABLE: plan.to_text()}
        child = await self.zygote.spawn(words, environment, self.folder / f"{role}.log")
        process = Process(role, child, graph)
        self.processes.append(process)
        return process

    def living(self, *roles: str) -> list[Process]:
        """Processes that could be killed now."""
        return [p for p in self.processes if p.child.status is None and p.role in roles and p not in self._stopped]

    async def keep(self, role: str) -> None:
        """Keep one process of a role going: when it ends, or is stopped, another takes its place."""
        while not self.closing:
            plan = self.plan(0.15, 400) if role == "handler" else self.plan(0.3, 120)
            process = await self.start(role, self.options.words(role), plan)
            while process.child.status is None and process not in self._stopped:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(process.child.gone.wait(), 0.5)
            self._look_at_end(process)

    def _look_at_end(self, process: Process) -> None:
        status = process.child.status
        if status is not None and status not in _EXIT_FINE:
            self.anomalies.append(f"round {self.number}: a {process.role} ended with {status}")

    # --- what users do -------------------------------------------------------------------------------------------

    async def submit(self, spec: Spec) -> None:
        """Submit a graph, as often as it takes: the submitter may be killed in the middle."""
        file = self.folder / f"{spec.graph_id}.json"
        file.write_text(json.dumps(spec.document))
        await self._insist(spec, ["submit", str(file), "--id", spec.graph_id], {0})
        self.submitted += 1
        if spec.extension is not None:
            await asyncio.sleep(self.rng.uniform(0, 4))
            file = self.folder / f"{spec.graph_id}-more.json"
            file.write_text(json.dumps(spec.extension))
            await self._insist(spec, ["extend", spec.graph_id, str(file), "--no-wait"], {0, 4})

    async def _insist(self, spec: Spec, words: Sequence[str], enough: set[int]) -> None:
        for attempt in itertools.count():
            armed = 0.6 if attempt == 0 else 0.3
            process = await self.start("submitter", words, self.plan(armed, 22), spec.graph_id)
            await process.child.gone.wait()
            if process.child.status in enough:
                return
            self._look_at_end(process)
            await asyncio.sleep(self.rng.uniform(0.05, 0.5))

    async def tend(self, spec: Spec, client: Client) -> None:
        """Rerun by hand what failed for good, once it has."""
        while not self.closing:
            await asyncio.sleep(3)
            state = await client.app.queries.state(spec.graph_id)
            if state in GRAPH_ENDED:
                return
            if state == GraphState.BLOCKED and await client.tasks(spec.graph_id, state="failed", limit=1):
                await self._insist(spec, ["rerun", spec.graph_id, spec.by_hand[0]], {0, 4})
                self.verdict.by_hand += 1

    # --- what goes wrong -----------------------------------------------------------------------------------------

    async def kill(self) -> None:
        """Kill some process now and then, so that with those that kill themselves the wanted number dies."""
        began = time.monotonic()
        while self.fire:
            await asyncio.sleep(self.options.kill_every * self.rng.uniform(0.2, 0.8))
            due = (time.monotonic() - began) / self.options.kill_every
            if sum(process.child.killed for process in self.processes) >= due:
                continue
            role = self.rng.choices(("handler", "worker"), weights=(1, 3), k=1)[0]
            if self.fire and (found := self.living(role)):
                self.zygote.signal(self.rng.choice(found).child, signal.SIGKILL)

    async def stop(self) -> None:
        """Stop some process for longer than its leases, so that it wakes up as a zombie."""
        while self.fire:
            await asyncio.sleep(self.options.stop_every * self.rng.uniform(0.5, 1.5))
            found = self.living("worker", "worker", "handler")
            if self.fire and found:
                self._late.append(asyncio.ensure_future(self._stop(self.rng.choice(found))))

    async def _stop(self, process: Process) -> None:
        child = process.child
        self._stopped.add(process)
        began = time.time()
        child.stops.append((began, 0.0))
        self.zygote.signal(child, signal.SIGSTOP)
        seconds = self.options.lease_seconds * self.rng.uniform(1.05, 1.35)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(child.gone.wait(), seconds)
        child.stops[-1] = (began, time.time())
        self.zygote.signal(child, signal.SIGCONT)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(child.gone.wait(), self.rng.uniform(3, 6))
        self.zygote.signal(child, signal.SIGKILL if self.rng.random() < 0.5 else signal.SIGTERM)
        await child.gone.wait()
        self._look_at_end(process)

    # --- the course of a round -------------------------------------------------------------------------------------

    async def burn(self, seconds: float) -> None:
        """Everything at once: submit graphs evenly over this time, under fire."""
        async with self._opened() as client:
            keepers = [asyncio.ensure_future(self.keep("handler")) for _ in range(self.options.handlers)]
            keepers += [asyncio.ensure_future(self.keep("worker")) for _ in range(self.options.workers)]
            self._late += [asyncio.ensure_future(self.kill()), asyncio.ensure_future(self.stop())]
            end = time.monotonic() + seconds
            submissions: list[asyncio.Task[None]] = []
            pause = seconds / len(self.specs)
            began = time.monotonic()
            for number, spec in enumerate(self.specs):
                await asyncio.sleep(max(0.0, began + number * pause - time.monotonic()))
                submissions.append(asyncio.ensure_future(self.submit(spec)))
                if spec.by_hand:
                    submissions.append(asyncio.ensure_future(self._tend_later(submissions[-1], spec)))
                if number % 10 == 9:
                    await self._look(client)
            await asyncio.sleep(max(0.0, end - time.monotonic()))
            self.fire = False
            # Every process that may still have a fault before it is replaced by one that has none.
            for process in self.living("handler", "worker", "submitter"):
                self.zygote.signal(process.child, signal.SIGKILL)
            self._rest = asyncio.ensure_future(self._come_to_rest(submissions, keepers))
        # From here on the next round may begin.

    async def _tend_later(self, submission: asyncio.Task[None], spec: Spec) -> None:
        await submission
        async with self._opened() as own:
            await self.tend(spec, own)

    async def rest(self) -> Verdict:
        """After the fire: wait until everything is at rest, end the processes, and judge."""
        assert self._rest is not None
        await self._rest
        return self.verdict

    @property
    def over(self) -> bool:
        """Whether it has been judged."""
        return self._rest is not None and self._rest.done()

    async def _come_to_rest(
        self, submissions: Sequence[asyncio.Task[None]], keepers: Sequence[asyncio.Task[None]]
    ) -> None:
        ceased = time.monotonic()
        bound = ceased + self.options.rest_seconds
        async with self._opened() as client:
            while True:
                await self._look(client)
                await self._rerun_exceptions(client)
                quiet = await self._all_at_rest(client) and all(task.done() for task in submissions)
                if quiet or time.monotonic() > bound:
                    break
                await asyncio.sleep(2)
            stuck = [spec.graph_id for spec in self.specs if spec.graph_id not in self.resting]
            while time.monotonic() < bound and not await self._queues_empty(client):
                await asyncio.sleep(2)
            self.verdict.rest_seconds = time.monotonic() - ceased
            self.closing = True
            await self._end_processes(submissions, keepers)
            evidence = Evidence(
                self.specs,
                self.processes,
                read_lines(self.folder / "executed.jsonl"),
                read_lines(self.folder / "requests.jsonl"),
            )
            judged = await judge(client.app, evidence, stuck)
            judged.add(self.verdict)
            judged.broken += self.anomalies
            self.verdict = judged
            if not judged.good:
                await self._keep_rows(client)

    async def _end_processes(
        self, submissions: Sequence[asyncio.Task[None]], keepers: Sequence[asyncio.Task[None]]
    ) -> None:
        while left := [process for process in self.processes if process.child.status is None]:
            for process in left:
                self.zygote.signal(process.child, signal.SIGTERM)
            await asyncio.wait([asyncio.ensure_future(p.child.gone.wait()) for p in left], timeout=30)
            for process in left:
                if process.child.status is None and process not in self._stopped:
                    self.anomalies.append(f"round {self.number}: a {process.role} did not end on SIGTERM")
                    self.zygote.signal(process.child, signal.SIGKILL)
        for task in submissions:
            if not task.done():
                task.cancel()
        await asyncio.gather(*keepers, *self._late)
        for answer in await asyncio.gather(*submissions, return_exceptions=True):
            if isinstance(answer, Exception):
                raise answer

    @contextlib.asynccontextmanager
    async def _opened(self) -> AsyncIterator[Client]:
        settings = dataclasses.replace(Client(self._store).settings, prefix=self.prefix)
        async with Client(settings) as client:
            yield client

    async def _look(self, client: Client) -> None:
        app = client.app
        events = await app.queues.count(app.handlers.names.events)
        work = await app.queues.count(app.handlers.names.work("default"))
        live = len(await query_all(app.tables, LIVE, Range(select=("since",))))
        self.queued = f"{live} live, {events} events, {work} work messages"

    async def _all_at_rest(self, client: Client) -> bool:
        app = client.app
        for spec in self.specs:
            if spec.graph_id in self.resting:
                continue
            (row,) = await app.tables.get(spec.graph_id, [GRAPH])
            if row is None:
                continue
            state = row.columns["state"]
            if (
                state == GraphState.BLOCKED and spec.doomed and not await app.queries.busy(spec.graph_id)
            ) or state in GRAPH_ENDED:
                self.resting.add(spec.graph_id)
        return len(self.resting) == len(self.specs)

    async def _queues_empty(self, client: Client) -> bool:
        names = client.app.handlers.names
        counts = [await client.app.queues.count(queue) for queue in (names.events, names.work("default"))]
        return not any(counts)

    async def _rerun_exceptions(self, client: Client) -> None:
        """As a user would: a task that has lost all its leases is rerun by hand."""
        app = client.app
        for row in await query_all(app.tables, LIVE, Range(select=("since",))):
            (graph,) = await app.tables.get(row.key, [GRAPH])
            if graph is None or graph.columns["state"] != GraphState.BLOCKED or await app.queries.busy(row.key):
                continue
            for task in await client.tasks(row.key, state="exception"):
                await client.rerun(row.key, task.label, reason="its workers were killed")

    async def _keep_rows(self, client: Client) -> None:
        told = "\n".join(
            [*self.verdict.lost, *self.verdict.unexpected, *self.verdict.unjustified, *self.verdict.broken]
        )
        names = {spec.graph_id for spec in self.specs if spec.graph_id in told} | {*self.verdict.stuck}
        for name in sorted(names):
            rows = await query_all(client.app.tables, name, Range())
            text = "\n".join(json.dumps({"key": row.key, **row.columns}, default=str) for row in rows)
            (self.folder / f"{name}.rows").write_text(text)


async def soak(options: Options, store: str, folder: Path) -> tuple[Verdict, float]:
    """Play it all; gives what it came to, and the seconds under fire."""
    specs = draw(options.seed, options.graphs, options.tasks)
    count = max(1, round(options.minutes / options.round_minutes))
    seconds = options.minutes * 60 / count
    zygote = await Zygote.start(store)
    total = Verdict()
    rounds: list[Round] = []
    began = time.monotonic()
    progress = asyncio.ensure_future(_tell(rounds, began))
    try:
        for number in range(count):
            part = specs[number * len(specs) // count : (number + 1) * len(specs) // count]
            round_ = Round(number + 1, options, part, zygote, store, folder / f"round-{number + 1}")
            rounds.append(round_)
            await round_.burn(seconds)
        fire = time.monotonic() - began
        for round_ in rounds:
            total.add(await round_.rest())
    finally:
        progress.cancel()
        await zygote.close()
    return total, fire


async def _tell(rounds: Sequence[Round], began: float) -> None:
    while True:
        await asyncio.sleep(10)
        for one in rounds:
            if one.over:
                continue
            kills = Counter(p.role for p in one.processes if p.child.killed)
            words = ", ".join(f"{count} {role}s" for role, count in sorted(kills.items()))
            print(
                f"{time.monotonic() - began:6.0f} s  round {one.number}{'' if one.fire else ' (quiet)'}: "
                f"{one.submitted}/{len(one.specs)} submitted; killed {words or 'nobody'}; {one.queued}",
                file=sys.stderr,
                flush=True,
            )


def main() -> int:
    """Run the soak; 0 if all is well, 1 if not, 2 for bad usage, 3 without an emulator, 130 if interrupted."""
    from tests.chaos.report import as_json, as_markdown

    parser = argparse.ArgumentParser(prog="scripts/soak", description="Kill real processes for a long time.")
    for field in dataclasses.fields(Options):
        name = "--" + field.name.replace("_", "-")
        parser.add_argument(name, type=type(field.default), default=field.default)
    parser.add_argument("--json", action="store_true", help="the report as JSON on stdout, not as Markdown")
    parser.add_argument("--folder", type=Path, help="where records and logs are kept; a temporary folder otherwise")
    parser.add_argument("--report", type=Path, help="also write the report there, as NAME.md and NAME.json")
    given = vars(parser.parse_args())
    json_wanted, folder, report = given.pop("json"), given.pop("folder"), given.pop("report")
    options = Options(**given)
    store = os.environ.get(azurite.VARIABLE, "")
    if not store:
        print(f"{azurite.VARIABLE} names no emulator: use scripts/soak", file=sys.stderr)
        return 3
    with tempfile.TemporaryDirectory(prefix="taskgraph-soak-") as temporary:
        place = folder or Path(temporary)
        try:
            verdict, fire = asyncio.run(_interruptible(options, store, place))
        except (KeyboardInterrupt, asyncio.CancelledError):
            print("interrupted: all its processes have been ended", file=sys.stderr)
            return 130
        texts = {"md": as_markdown(verdict, options, fire), "json": as_json(verdict, options, fire)}
    if report is not None:
        for suffix, text in texts.items():
            report.with_suffix(f".{suffix}").write_text(text)
    print(texts["json" if json_wanted else "md"])
    return 0 if verdict.good else 1


async def _interruptible(options: Options, store: str, place: Path) -> tuple[Verdict, float]:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await soak(options, store, place)


if __name__ == "__main__":
    sys.exit(main())
