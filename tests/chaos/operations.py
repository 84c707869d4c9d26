"""Every operation at random on many graphs at once, over real processes that are killed; at rest all must be sound.

    python -m tests.chaos.operations [--store embedded|azurite|both] [--graphs 500] [--seed N] [--at-once 12]

Each graph has a user: it submits a random document and then extends, edits, cancels, pauses, deactivates, reruns and
throttles at random, and does not mind being refused. Beside them, schedules fire, targets are paused, workers are asked
to drain, and handlers and workers are killed by SIGKILL. In the end a user lets go of all that it holds back, except in
a few graphs that are to stay as they are, and its graph must end: finished, cancelled, or blocked with nothing moving.
`doctor` must find nothing, every completed run must have been executed, and no run twice. Some graphs are then
archived, deleted and restored.

The documents and the order of a user's operations follow from the seed; what races with what does not.
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
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final

from taskgraph.engine.doctor import examine_graph
from taskgraph.interfaces.client.client import Client
from taskgraph.model import limits
from taskgraph.model.errors import Conflict, InvalidGraph, InvalidInput, NotFound, Refused, StorageUnavailable
from taskgraph.model.states import GRAPH_ENDED, PAUSED, GraphState
from taskgraph.protocol.invariants.findings import Severity
from taskgraph.queries import workers as registry
from taskgraph.queries.workers import workers
from taskgraph.storage.tables import Range, query_all
from tests import azurite
from tests.chaos.checker import read_lines
from tests.chaos.drawn import draw_document, draw_edit, draw_extension
from tests.chaos.launcher import LIMITS_VARIABLE
from tests.chaos.processes import Child, Zygote
from tests.chaos.tasks import RECORD_VARIABLE

_REFUSALS: Final = (Conflict, Refused, InvalidInput, InvalidGraph, NotFound, StorageUnavailable)
_EXIT_FINE: Final = frozenset({0, -signal.SIGKILL})
_TARGETS: Final = ("default", "side")
_RESOLVED: Final = frozenset({"completed", "failed", "exception", "skipped", "cancelled"})
_OPEN: Final = frozenset({"staged", "accepted"})
_BAD: Final = frozenset({"failed", "exception", "cancelled"})
_EVENTS_MAX: Final = 100  # that wait when another graph begins
_RELEASE_SECONDS_MAX: Final = 8.0
_DAY: Final = "TASKGRAPH_TEST_DAY"  # the day of the seed, instead of today


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """What is played."""

    store: str = "both"
    graphs: int = 500
    seed: int = 0  # the day, if 0
    at_once: int = 12
    handlers: int = 2
    workers: int = 3
    kill_every: float = 2.0
    lease_seconds: float = 6.0
    sweep_seconds: float = 2.0
    patience_seconds: float = 240.0  # until a graph that has not come to rest counts as stuck
    say_every: float = 15.0  # seconds between lines of progress


@dataclasses.dataclass(slots=True)
class Outcome:
    """What it came to. wrong: every contradiction, with its graph. late: graphs whose users lost patience."""

    seed: int
    graphs: int = 0
    fired: int = 0
    tasks: int = 0
    executions: int = 0
    seconds: float = 0.0
    ends: Counter[str] = dataclasses.field(default_factory=Counter)
    states: Counter[str] = dataclasses.field(default_factory=Counter)
    done: Counter[str] = dataclasses.field(default_factory=Counter)
    refused: Counter[str] = dataclasses.field(default_factory=Counter)
    kills: Counter[str] = dataclasses.field(default_factory=Counter)
    late: list[str] = dataclasses.field(default_factory=list)
    wrong: list[str] = dataclasses.field(default_factory=list)

    def to_text(self) -> str:
        """For people."""

        def counts(counter: Counter[str]) -> str:
            return ", ".join(f"{count} {name}" for name, count in sorted(counter.items())) or "none"

        return "\n".join(
            [
                f"seed {self.seed}: {self.graphs} graphs and {self.fired} fired by schedules",
                f"  {self.tasks} tasks, {self.executions} executions, {self.seconds:.0f} s",
                f"  ends: {counts(self.ends)}",
                f"  tasks: {counts(self.states)}",
                f"  done: {counts(self.done)}",
                f"  refused: {counts(self.refused)}",
                f"  killed: {counts(self.kills)}",
                f"  late: {len(self.late)}",
                *(f"  - {each}" for each in self.late),
                f"  wrong: {len(self.wrong)}",
                *(f"  - {each}" for each in self.wrong),
            ]
        )


class Installation:
    """One store, its processes, and what is done to them."""

    def __init__(self, options: Options, zygote: Zygote, store: str, folder: Path, seed: int) -> None:
        self.options = options
        self.zygote = zygote
        self.folder = folder
        self.store = store
        self.prefix = f"ops{os.getpid() % 100000:05d}{seed % 1000:03d}"
        self.rng = random.Random(f"operations {seed}")
        self.seed = seed
        self.outcome = Outcome(seed)
        self.fire = True
        self.closing = False
        self.phase = ""
        self.living: set[str] = set()  # graphs whose users have not gone
        self.children: list[tuple[str, Child]] = []
        self.environment = {
            "TASKGRAPH_STORE": store,
            "TASKGRAPH_PREFIX": self.prefix,
            RECORD_VARIABLE: str(folder / "executed.jsonl"),
            LIMITS_VARIABLE: json.dumps(
                {
                    "HANDLER_LEASE_SECONDS": options.lease_seconds,
                    "REDISPATCH_SECONDS": options.lease_seconds,
                    "SWEEP_SECONDS": options.sweep_seconds,
                }
            ),
        }
        folder.mkdir(parents=True)

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[Client]:
        """A client of this installation."""
        settings = dataclasses.replace(Client(self.store).settings, prefix=self.prefix)
        async with Client(settings) as client:
            yield client

    # --- processes -----------------------------------------------------------------------------------------------

    def _words(self, role: str, number: int) -> list[str]:
        lease = ["--lease-seconds", str(self.options.lease_seconds), "--python", "tests.chaos.tasks"]
        targets = [word for target in _TARGETS for word in ("--target", target)]
        if role == "handler":
            return ["serve"] if number % 2 else ["serve", "--worker", "2", *targets, *lease]
        return ["worker", "--slots", "3", *targets, *lease]

    async def keep(self, role: str, number: int) -> None:
        """Keep one process of a role going: when it ends, another takes its place."""
        while not self.closing:
            log = self.folder / f"{role}-{number}.log"
            child = await self.zygote.spawn(self._words(role, number), self.environment, log)
            self.children.append((role, child))
            await child.gone.wait()
            if child.killed:
                self.outcome.kills[role] += 1
            if child.status not in _EXIT_FINE:
                self.outcome.wrong.append(f"a {role} ended with {child.status}: see {log}")

    async def kill(self) -> None:
        """Kill some process now and then."""
        while self.fire:
            await asyncio.sleep(self.options.kill_every * self.rng.uniform(0.4, 1.6))
            living = [child for _, child in self.children if child.status is None]
            if self.fire and living:
                self.zygote.signal(self.rng.choice(living), signal.SIGKILL)

    async def end(self, keepers: Sequence[asyncio.Task[None]]) -> None:
        """Tell all processes to stop, and wait for them."""
        self.closing = True
        while living := [child for _, child in self.children if child.status is None]:
            for child in living:
                self.zygote.signal(child, signal.SIGTERM)
            await asyncio.wait([asyncio.ensure_future(child.gone.wait()) for child in living], timeout=40)
            for role, child in self.children:
                if child.status is None:
                    self.outcome.wrong.append(f"a {role} did not end on SIGTERM")
                    self.zygote.signal(child, signal.SIGKILL)
        await asyncio.gather(*keepers)

    # --- what is done to all graphs ----------------------------------------------------------------------------------

    async def attempt(self, what: str, call: Awaitable[object]) -> bool:
        """Do something that may be refused, and count it."""
        try:
            await call
        except _REFUSALS as refusal:
            self.outcome.refused[what] += 1
            with (self.folder / "refused.log").open("a") as log:
                log.write(f"{what}: {type(refusal).__name__}: {refusal}\n")
            return False
        self.outcome.done[what] += 1
        return True

    async def disturb(self, client: Client) -> None:
        """Pause and limit targets, and ask workers to drain; all of it is taken back."""
        rng = random.Random(f"disturb {self.seed}")
        while self.fire:
            await asyncio.sleep(rng.uniform(1, 4))
            target = rng.choice(_TARGETS)
            match rng.randrange(3):
                case 0:
                    await self.attempt("pause --target", client.pause_target(target, reason="a moment"))
                    await asyncio.sleep(rng.uniform(0.5, 3))
                    await self.attempt("resume --target", client.resume_target(target))
                case 1:
                    await self.attempt("limit --target", client.limit_target(target, rng.randint(1, 4)))
                    await asyncio.sleep(rng.uniform(1, 4))
                    await self.attempt("limit --target 0", client.limit_target(target, 0))
                case _:
                    listed = await workers(client.app.tables, client.app.clock.now())
                    if listed:
                        how = registry.NOW if rng.random() < 0.5 else registry.FINISH
                        name = rng.choice(listed).name
                        await self.attempt(
                            "drain", registry.ask(client.app.tables, name, draining=how, exits=rng.random() < 0.7)
                        )
        for target in _TARGETS:
            await client.resume_target(target)
            await client.limit_target(target, 0)
        for worker in await workers(client.app.tables, client.app.clock.now()):
            await registry.ask(client.app.tables, worker.name, draining="", exits=False)

    async def schedule(self, client: Client) -> None:
        """Schedules come, fire, are changed and go."""
        rng = random.Random(f"schedule {self.seed}")
        calls = client.schedules
        for number in itertools.count():
            if not self.fire:
                return
            name = f"s{self.seed}-{number}"
            document = draw_document(rng, datetime.now(UTC), tasks_max=4, held=False)
            overlap = rng.choice(["skip", "queue", "cancel", "allow"])
            created = calls.create(name, document, every=rng.randint(1, 3), overlap=overlap, keep=3)
            await self.attempt("schedule create", created)
            for _ in range(rng.randint(2, 4)):
                await asyncio.sleep(rng.uniform(0.3, 2.5))
                if await client.app.handlers.dispatcher.events_waiting() > _EVENTS_MAX:
                    break
                await self._operate_schedule(client, rng, name)
            await self.attempt("schedule delete", calls.delete(name))
            await asyncio.sleep(rng.uniform(2, 8))
            await self._until_few_events(client)

    async def _operate_schedule(self, client: Client, rng: random.Random, name: str) -> None:
        calls = client.schedules
        match rng.randrange(6):
            case 0:
                await self.attempt("schedule deactivate", calls.deactivate(name))
            case 1:
                await self.attempt("schedule activate", calls.activate(name))
            case 2:
                await self.attempt("schedule run-now", calls.run_now(name))
            case 3:
                await self.attempt("schedule update", calls.update(name, every=rng.randint(1, 4)))
            case 4:
                zoned = calls.update(name, cron="* * * * *", timezone="Europe/Berlin")
                await self.attempt("schedule update", zoned)
            case _:
                document = draw_document(rng, datetime.now(UTC), tasks_max=3, held=False)
                await self.attempt("schedule update", calls.update(name, document))

    # --- the end ---------------------------------------------------------------------------------------------------

    def executed(self) -> dict[tuple[str, str], list[dict[str, Any]]]:
        """What tasks wrote down, by graph and label."""
        found: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
        path = self.folder / "executed.jsonl"
        for line in read_lines(path) if path.exists() else []:
            found[line["graph"], line["label"]].append(line)
        return found

    async def judge(self, client: Client, graph_id: str, user: "User | None") -> None:
        """Say what is wrong with a graph that has come to rest, or should have."""
        wrong = self.outcome.wrong
        state = await client.app.queries.state(graph_id)
        stays = user is not None and user.stays
        self.outcome.ends[f"{state}{' (held)' if stays and state not in GRAPH_ENDED else ''}"] += 1
        tasks = await client.tasks(graph_id, limit=limits.INT_MAX)
        self.outcome.tasks += len(tasks)
        self.outcome.states.update(str(task.state) for task in tasks)
        before = len(wrong)
        by_label = {task.label: task for task in tasks}
        if state not in GRAPH_ENDED and state != GraphState.BLOCKED and not stays:
            wrong.append(f"{graph_id} is {state}, and should have ended")
        if state in GRAPH_ENDED:
            open_ = [task for task in tasks if task.state not in _RESOLVED]
            wrong += [f"{graph_id}: “{each.label}” is {each.state} in a graph that is {state}" for each in open_]
        elif state == GraphState.BLOCKED and not stays:
            busy = [task for task in tasks if task.state in ("pending", "running")]
            wrong += [f"{graph_id}: “{each.label}” is {each.state}, and the graph is to rest" for each in busy]
            states = {task.label: str(task.state) for task in tasks}
            for task in tasks:
                if task.state == "unscheduled" and not await self._below_failure(client, graph_id, task.label, states):
                    wrong.append(f"{graph_id}: “{task.label}” waits for nothing that failed")
        if not stays:
            heads = await query_all(client.app.tables, graph_id, Range("request:", "request;", select=("state",)))
            wrong += [f"{graph_id}: {r.key} is {r.columns['state']}" for r in heads if r.columns.get("state") in _OPEN]
        self._judge_runs(graph_id, by_label)
        examined = await examine_graph(client.app.handlers, client.app.poison, graph_id)
        wrong += [
            f"{graph_id}: doctor: {each.code} {each.key}: {each.text}"
            for each in examined.findings
            if each.severity is Severity.WRONG
        ]
        if len(wrong) > before:
            rows = await query_all(client.app.tables, graph_id, Range())
            text = "\n".join(json.dumps({"key": row.key, **row.columns}, default=str) for row in rows)
            (self.folder / f"{graph_id}.rows").write_text(text)

    @staticmethod
    async def _below_failure(client: Client, graph_id: str, label: str, states: Mapping[str, str]) -> bool:
        seen, ahead = {label}, [label]
        while ahead:
            for each in (await client.task(graph_id, ahead.pop())).requires:
                if states[each] in _BAD:
                    return True
                if each not in seen:
                    seen.add(each)
                    ahead.append(each)
        return False

    def _judge_runs(self, graph_id: str, tasks: dict[str, Any]) -> None:
        wrong = self.outcome.wrong
        for label, task in tasks.items():
            lines = self._executed.get((graph_id, label), [])
            begun = Counter(line["run"] for line in lines if line["what"] == "begin")
            self.outcome.executions += begun.total()
            wrong += [f"{graph_id}: “{label}”: run {run} began {n} times" for run, n in begun.items() if n > 1]
            good = {line["run"] for line in lines if line["what"] == "end" and not line["failed"]}
            if task.state == "completed" and task.run not in good:
                wrong.append(f"{graph_id}: “{label}” completed in run {task.run}, which was not executed to a good end")

    async def play(self, graphs: int) -> Outcome:
        """Play it all."""
        began = time.monotonic()
        async with self.opened() as client:
            await client.submit({"tasks": {"a": {"task": {"payload": {"call": "work"}}}}}, "first")  # makes the table
            keepers = [asyncio.ensure_future(self.keep("handler", n)) for n in range(self.options.handlers)]
            keepers += [asyncio.ensure_future(self.keep("worker", n)) for n in range(self.options.workers)]
            around = [
                asyncio.ensure_future(each) for each in (self.kill(), self.disturb(client), self.schedule(client))
            ]
            at_once = asyncio.Semaphore(self.options.at_once)
            users = [User(self, client, f"g{self.seed}-{n}", n) for n in range(graphs)]

            async def live(user: User) -> None:
                async with at_once:
                    await self._until_few_events(client)
                    self.living.add(user.graph_id)
                    await user.live()
                    self.living.remove(user.graph_id)
                    self.outcome.graphs += 1

            self.phase = "under fire"
            progress = asyncio.ensure_future(self.say(client, graphs))
            lives = [asyncio.ensure_future(live(user)) for user in users]
            await asyncio.gather(*lives)
            self.fire = False
            self.phase = "the last disturbances are taken back"
            await asyncio.gather(*around)
            while left := await client.schedules.list():  # others were writing it when it was to go
                await self.attempt("schedule delete", client.schedules.delete(left[0].name))
            by_id = {user.graph_id: user for user in users}
            ids = [listed.graph_id for listed in await client.graphs(limit=limits.INT_MAX)]
            self.phase = "all come to rest"
            resting = [each for each in ids if each not in by_id or not by_id[each].stays]
            await self._come_to_rest(client, resting, by_id)
            self.phase = "processes end"
            await self.end(keepers)
            self.phase = "judged"
            self._executed = self.executed()
            for graph_id in ids:
                await self.judge(client, graph_id, by_id.get(graph_id))
            missing = by_id.keys() - set(ids) - {user.graph_id for user in users if user.gone}
            self.outcome.wrong += [f"{graph_id} was accepted, and is not there" for graph_id in sorted(missing)]
            self.outcome.fired = len(ids) - len(by_id.keys() & set(ids)) - 1
            self.outcome.wrong += [f"set aside: {each}" for each in await client.app.poison.list()]
            for log in self.folder.glob("*.log"):
                text = log.read_text(errors="replace")
                if "this is a bug" in text or "Traceback" in text:
                    self.outcome.wrong.append(f"{log} tells of a bug")
            progress.cancel()
        self.outcome.seconds = time.monotonic() - began
        return self.outcome

    async def say(self, client: Client, graphs: int) -> None:
        """Print now and then how far it is, and which graphs are in hand."""
        began = time.monotonic()
        while True:
            await asyncio.sleep(self.options.say_every)
            waiting = await client.app.handlers.dispatcher.events_waiting()
            print(
                f"{time.monotonic() - began:.0f} s, {self.phase}: {self.outcome.graphs} of {graphs} graphs,"
                f" {self.outcome.kills.total()} kills, {waiting} events wait;"
                f" in hand: {' '.join(sorted(self.living)) or 'none'}",
                file=sys.stderr,
                flush=True,
            )

    @staticmethod
    async def _until_few_events(client: Client) -> None:
        """Wait until the handlers have nearly caught up: on a slow store more would only queue, and test nothing."""
        while await client.app.handlers.dispatcher.events_waiting() > _EVENTS_MAX:
            await asyncio.sleep(0.5)

    @staticmethod
    async def unrest(client: Client, graph_id: str) -> str:
        """What of a graph moves yet; "" if nothing does, though a message may still change that."""
        state = await client.app.queries.state(graph_id)
        if state in GRAPH_ENDED:
            return ""
        if state != GraphState.BLOCKED:
            return f"it is {state}"
        return "it is blocked, and something is under way" if await client.app.queries.busy(graph_id) else ""

    async def _come_to_rest(self, client: Client, ids: Sequence[str], users: "Mapping[str, User]") -> None:
        """Wait until nothing moves and no event waits; after the patience that is wrong, and what moves is named.

        A rerun that a user asked for last may be handled after its user saw nothing move, and left. What it makes
        pending again can be held: the user releases it here.
        """
        until = time.monotonic() + self.options.patience_seconds
        while True:
            # The events first: one that is handled between the two looks would otherwise be seen by neither.
            waiting = await client.app.handlers.dispatcher.events_waiting()
            moving = {graph_id: why for graph_id in ids if (why := await self.unrest(client, graph_id))}
            if not (moving or waiting):
                return
            if time.monotonic() > until:
                break
            for graph_id in moving.keys() & users.keys():
                await users[graph_id].release()
            await asyncio.sleep(0.3)
        self.outcome.wrong += [f"{graph_id} does not come to rest: {why}" for graph_id, why in moving.items()]
        self.outcome.wrong += [f"{waiting} events wait and are not handled"] if waiting else []


class User:
    """One graph, and who operates on it."""

    def __init__(self, place: Installation, client: Client, graph_id: str, number: int) -> None:
        self.place = place
        self.client = client
        self.graph_id = graph_id
        self.rng = random.Random(f"user {place.seed} {number}")
        self.stays = self.rng.random() < 0.06
        self.gone = False
        self.document: dict[str, Any] = {}
        self.added = 0
        self.released, self.pause = 0.0, 0.5  # seconds: when it let go last, and how long it waits before it does again

    async def live(self) -> None:
        """Submit, operate, let go, wait for the end; then perhaps archive, delete, restore."""
        client, rng = self.client, self.rng
        self.document = draw_document(rng, datetime.now(UTC))
        while not await self.place.attempt("submit", client.submit(self.document, self.graph_id)):
            await asyncio.sleep(0.5)
        for _ in range(rng.randint(2, 12)):
            await asyncio.sleep(rng.choice([0.0, rng.uniform(0, 0.3), rng.uniform(0, 1.2)]))
            await self._operate()
        if self.stays:
            await self._hold_for_good()
            return
        await self._let_go()
        if not await self._ends():
            return
        await self._keep_or_not()

    @property
    def _labels(self) -> list[str]:
        return list(self.document["tasks"])

    @property
    def _groups(self) -> list[str]:
        return list(self.document.get("groups", {}))

    async def _operate(self) -> None:
        client, rng, graph_id = self.client, self.rng, self.graph_id
        some = rng.sample(self._labels, rng.randint(1, min(3, len(self._labels))))
        calls: list[tuple[int, str, Callable[[], Awaitable[object]]]] = [
            (5, "extend", self._extend),
            (6, "edit", self._edit),
            (2, "cancel tasks", lambda: client.cancel(graph_id, *some, terminate=rng.random() < 0.3)),
            (1, "cancel group", lambda: client.cancel(graph_id, group=self._group())),
            (1, "pause group", lambda: client.pause(graph_id, group=self._group())),
            (2, "resume group", lambda: client.resume(graph_id, group=self._group())),
            (2, "pause", lambda: client.pause(graph_id)),
            (3, "resume", lambda: client.resume(graph_id)),
            (3, "deactivate", lambda: client.deactivate(graph_id, *some)),
            (3, "activate", lambda: client.activate(graph_id, *some)),
            (2, "rerun", lambda: client.rerun(graph_id, failed=True)),
            (1, "rerun tasks", lambda: client.rerun(graph_id, *some)),
            (3, "limit", lambda: client.set_limit(graph_id, rng.randint(0, 3), group=self._limited())),
            (1, "archive", lambda: client.archive(graph_id, self._file(), overwrite=True)),
            (1, "delete", lambda: client.delete(graph_id)),
        ]
        if rng.random() < 0.04:
            calls = [(1, "cancel", lambda: client.cancel(graph_id, terminate=rng.random() < 0.3))]
        ((_, what, call),) = rng.choices(calls, weights=[weight for weight, _, _ in calls])
        if await self.place.attempt(what, call()) and what == "delete":
            self.gone = True

    def _group(self) -> str:
        return self.rng.choice(self._groups or ["none"])

    def _limited(self) -> str:
        """A group under a limit; "" for the graph itself, which may have none."""
        limited = [name for name, group in self.document.get("groups", {}).items() if "maxInFlight" in group]
        limited += [""] if "maxInFlight" in self.document or not limited else []
        return str(self.rng.choice(limited))

    def _file(self) -> Path:
        return self.place.folder / f"{self.graph_id}.tgz"

    async def _extend(self) -> None:
        self.added += 1
        extension = draw_extension(self.rng, datetime.now(UTC), self.document, self.added)
        await self.client.extend(self.graph_id, extension)
        self.document["tasks"] |= extension["tasks"]  # as far as its user knows: it may be refused yet
        self.document.setdefault("groups", {}).update(extension.get("groups", {}))

    async def _edit(self) -> None:
        await self.client.edit(self.graph_id, draw_edit(self.rng, datetime.now(UTC), self.document))

    async def _state(self) -> GraphState:
        return GraphState(await self.client.app.queries.state(self.graph_id))

    async def _hold_for_good(self) -> None:
        if self.gone or not await self.place.attempt("pause", self.client.pause(self.graph_id, wait=True)):
            self.stays = False

    async def _let_go(self) -> None:
        """Take back whatever holds the graph."""
        client, graph_id, attempt = self.client, self.graph_id, self.place.attempt
        if self.gone:
            return
        await attempt("resume", client.resume(graph_id))
        # What was asked before may come about later, so this is done again until nothing is held.

    async def _ends(self) -> bool:
        """Wait for the end, letting go of what holds it, and rerun now and then what failed; whether it came."""
        client, graph_id, rng = self.client, self.graph_id, self.rng
        until = time.monotonic() + self.place.options.patience_seconds
        reruns = rng.randint(0, 2)
        quiet = False  # since the look before
        why = ""
        while time.monotonic() < until:
            try:
                why = await self.place.unrest(client, graph_id)
                state = await self._state()
            except NotFound:
                return False
            if state in GRAPH_ENDED:
                return True
            if quiet and not why:
                if not reruns:
                    return True
                reruns -= 1
                await self.place.attempt("rerun", client.rerun(graph_id, failed=True))
            quiet = not why
            await self.release()
            await asyncio.sleep(rng.uniform(0.4, 0.9))
        self.place.outcome.late.append(f"{graph_id}: {why}")
        return False

    async def release(self) -> None:
        """Ask for all that is held to go on, less often each time: what was asked last may still be on its way."""
        if time.monotonic() >= self.released + self.pause and await self._release():
            self.released, self.pause = time.monotonic(), min(2 * self.pause, _RELEASE_SECONDS_MAX)

    async def _release(self) -> bool:
        """Ask for all that is held to go on; whether there was any."""
        client, graph_id = self.client, self.graph_id
        status = await client.status(graph_id)
        paused = PAUSED in status.held
        if paused:
            await self.place.attempt("resume", client.resume(graph_id))
        rows = await query_all(client.app.tables, graph_id, Range("task:", "task;"))
        held = [row for row in rows if row.columns.get("held")]
        for name in self._groups if held else ():
            await self.place.attempt("resume group", client.resume(graph_id, group=name))
        labels = [str(row.columns["label"]) for row in held if row.columns.get("state") not in _RESOLVED]
        if labels:
            await self.place.attempt("activate", client.activate(graph_id, *labels))
        return paused or bool(held)

    async def _keep_or_not(self) -> None:
        client, graph_id, rng, attempt = self.client, self.graph_id, self.rng, self.place.attempt
        if rng.random() > 0.3:
            return
        before = await self._state()
        kept = await attempt("archive", client.archive(graph_id, self._file(), logs=rng.random() < 0.5, overwrite=True))
        state = await self._state()  # another one if an event came between; then the archive may hold either
        if not await attempt("delete", client.delete(graph_id, force=True)):
            return
        self.gone = True
        if kept and rng.random() < 0.7 and await attempt("restore", client.restore(self._file())):
            self.gone = False
            if before == state and await self._state() != state:
                self.place.outcome.wrong.append(f"{graph_id} was {state}, and is {await self._state()} once restored")


async def play(options: Options, store: str, folder: Path, seed: int, graphs: int) -> Outcome:
    """Play so many graphs on one store."""
    zygote = await Zygote.start(store)
    try:
        return await Installation(options, zygote, store, folder, seed).play(graphs)
    finally:
        await zygote.close()


def seed_of_the_day() -> int:
    """Another one every day."""
    day = date.fromisoformat(os.environ.get(_DAY) or datetime.now(UTC).date().isoformat())
    return int(day.strftime("%y%m%d"))


def main() -> int:
    """Play; 0 if all is sound, 1 if not, 2 for bad usage, 3 without an emulator."""
    parser = argparse.ArgumentParser(prog="scripts/soak --operations", description="Every operation at random.")
    for field in dataclasses.fields(Options):
        name = "--" + field.name.replace("_", "-")
        choices = ("embedded", "azurite", "both") if field.name == "store" else None
        parser.add_argument(name, type=type(field.default), default=field.default, choices=choices)
    parser.add_argument("--folder", type=Path, help="where records, rows and logs are kept; a temporary one otherwise")
    given = vars(parser.parse_args())
    folder = given.pop("folder")
    options = Options(**given)
    seed = options.seed or seed_of_the_day()
    emulator = os.environ.get(azurite.VARIABLE, "")
    if options.store != "embedded" and not emulator:
        print(f"{azurite.VARIABLE} names no emulator: use scripts/soak --operations", file=sys.stderr)
        return 3
    stores = ["embedded", "azurite"] if options.store == "both" else [options.store]
    good = True
    with tempfile.TemporaryDirectory(prefix="taskgraph-operations-") as temporary:
        for store in stores:
            place = (folder or Path(temporary)) / store
            place.parent.mkdir(parents=True, exist_ok=True)
            text = emulator if store == "azurite" else f"sqlite:///{place}.db"
            graphs = options.graphs
            outcome = asyncio.run(play(options, text, place, seed, graphs))
            print(f"{store}: {outcome.to_text()}", flush=True)
            good = good and not outcome.wrong
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
