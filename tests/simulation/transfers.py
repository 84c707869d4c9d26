"""Histories of a graph between two stores in memory: calls that overlap and die, and others; drawn by a seed.

Every storage call gives way to the others for a few turns of the loop, and some of them are the last of whoever makes
it, before or after it was carried out, or get no clear answer. Beside calls of `transfer` and `stay` there are in each
store a worker with handlers, and orders of people. After each commit the graph must live in one store at most, and all
that was ever completed must be in one of them; in the end it is brought home, finishes, and each task has run once.
"""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from taskgraph.engine.commit import Records
from taskgraph.engine.doctor import examine_graph
from taskgraph.engine.handlers import Handlers
from taskgraph.engine.sweep import Swept, sweep_graph
from taskgraph.engine.transfer import Side, hold, move, stay, under_way
from taskgraph.model import limits
from taskgraph.model.errors import Conflict, NotFound, Refused, TaskgraphError, Unclear
from taskgraph.model.ids import GRAPH, row_key
from taskgraph.model.messages import Message, Rerun
from taskgraph.protocol.decide import Answer
from taskgraph.protocol.rows import NewerSchema
from taskgraph.storage.tables import Change, Page, Range, Row, Tables
from taskgraph.testing import HurriedClock, MemoryQueues, MemoryTables
from tests.scenarios.stage import CrashError, Held, Stage, graph
from tests.scenarios.test_retention import Shelf
from tests.simulation.invariants import Violation
from tests.simulation.invariants import hold as must

SHAPE: Final = {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"], "e": [], "f": ["e"]}
_STILL: Final = frozenset({"moving", "moved", "restoring", "deleted", "deleting", "missing"})
_CALLS_MAX: Final = 4_000  # of one history: more is a loop
_DELIVERIES_MAX: Final = 20  # of one message
_PAUSE_TURNS: Final = 1_000
_LOOKS: Final = (17, 22)  # calls of a transfer in which it finds that nothing runs, and sets the fence


@dataclass
class World:
    """Two stores, and what has happened in them."""

    rng: random.Random
    stages: tuple[Stage, Stage] = field(init=False)
    shelves: tuple[Shelf, Shelf] = field(init=False)
    seen: Counter[str] = field(default_factory=Counter)
    calls: int = 0
    asked: int = 0
    """Reruns by hand that were applied, in whatever store: none may be lost."""
    faults: bool = True

    def __post_init__(self) -> None:
        made = []
        for name in ("here", "there"):
            clock = HurriedClock(seed=f"{name}{self.rng.random()}")
            made.append(Stage(MemoryTables(), MemoryQueues(clock), clock))
        self.stages = made[0], made[1]
        self.shelves = Shelf(), Shelf()
        made[1]._labels = made[0]._labels

    def handlers(self, which: int, fatal: float, pauses_at: int = 0) -> Handlers:
        """Of a process that may die, or get no answer. pauses_at: before this call it stands still for long."""
        stage = self.stages[which]
        tables: Tables = Slow(self, stage.tables, fatal, pauses_at)
        return Handlers(Records(tables, stage.clock), stage.queues, stage.clock, stage.names)

    def side(self, which: int, fatal: float, pauses_at: int = 0) -> Side:
        return Side(self.handlers(which, fatal, pauses_at), self.shelves[which], f"store {which}")

    def state(self, which: int) -> str:
        row = self.rows(which).get(GRAPH)
        return str(row["state"]) if row is not None else "missing"

    def rows(self, which: int) -> dict[str, dict[str, Any]]:
        tables: Any = self.stages[which].tables
        partition = tables.partitions.get(self.stages[which].graph_id, {})
        return {key: dict(row.columns) for key, row in partition.items()}

    def judge(self) -> None:
        """After each commit."""
        states = self.state(0), self.state(1)
        self.seen[" / ".join(states)] += 1
        must(sum(each not in _STILL for each in states) <= 1, f"it lives twice: {states}")
        done = {label for stage in self.stages for (label, _), number in stage.executed.items() if number}
        for which, state in enumerate(states):
            tasks = {row["label"]: row["state"] for key, row in self.rows(which).items() if key.startswith("task:")}
            if state not in _STILL:
                must(
                    tasks.keys() == set(SHAPE), f"it lives in {which}, where it has {sorted(tasks)}; {sorted(done)} ran"
                )
            else:
                must("running" not in tasks.values(), f"it is {state} in {which}, and what runs there is lost: {tasks}")

    def is_under_way(self, held: Held) -> bool:
        """Whether a run goes on by what any store says."""
        rows = [self.rows(which).get(row_key(held.task_id), {}) for which in (0, 1)]
        own = ("running", held.run, held.claim)
        return any((row.get("state"), row.get("run"), row.get("claim")) == own for row in rows)


class Slow:
    """A table each of whose calls takes a while, and may be the last of its caller."""

    def __init__(self, world: World, inner: Tables, fatal: float, pauses_at: int) -> None:
        self._world, self._inner, self._fatal, self._pauses_at = world, inner, fatal, pauses_at
        self._calls = 0

    async def _turn(self) -> None:
        self._world.calls += 1
        self._calls += 1
        must(self._world.calls < _CALLS_MAX, "it never ends")
        turns = self._world.rng.choice((0, 0, 1, 1, 2, 5, 13, 40))
        for _ in range(_PAUSE_TURNS if self._calls == self._pauses_at else turns):
            await asyncio.sleep(0)
        self._die()

    def _die(self) -> None:
        if self._world.faults and self._world.rng.random() < self._fatal:
            raise CrashError("gone")

    async def get(self, partition: str, keys: Sequence[str]) -> list[Row | None]:
        await self._turn()
        return await self._inner.get(partition, keys)

    async def query(self, partition: str, rows: Range, *, limit: int = 1000, continuation: str | None = None) -> Page:
        await self._turn()
        return await self._inner.query(partition, rows, limit=min(limit, 3), continuation=continuation)

    async def commit(self, partition: str, changes: Sequence[Change]) -> list[str | None]:
        await self._turn()
        etags = await self._inner.commit(partition, changes)
        self._world.judge()
        self._die()
        if self._world.faults and self._world.rng.random() < self._fatal:
            raise Unclear("the answer was lost")
        return etags


async def _transfer(world: World, source: int, fatal: float, pauses_at: int = 0) -> None:
    here, there = world.side(source, fatal, pauses_at), world.side(1 - source, fatal)
    await hold(here, world.stages[0].graph_id, there.name)
    running, settling = await under_way(here, world.stages[0].graph_id)
    if not running and not settling:
        await move(here, there, world.stages[0].graph_id)


async def _act(world: World, kind: str, which: int, fatal: float, after: int) -> None:
    stage = world.stages[which]
    for _ in range(after):
        await asyncio.sleep(0)
    with contextlib.suppress(CrashError, Refused, Conflict, NotFound, Unclear):
        if kind == "transfer":
            await _transfer(world, which, fatal)
        elif kind == "slow transfer":  # by what it has seen before
            await _transfer(world, which, fatal, world.rng.randint(*_LOOKS))
        elif kind == "stay and transfer":
            await stay(world.side(which, fatal), stage.graph_id)
            await _transfer(world, which, fatal)
        elif kind == "stay":
            other = world.side(1 - which, fatal) if world.rng.random() < 0.7 else None
            await stay(world.side(which, fatal), stage.graph_id, other)
        elif kind == "work":
            await _work(world, which)
        elif kind == "order":
            handlers = world.handlers(which, 0.0)
            over = [row for row in world.rows(which).values() if row.get("state") == "completed" and "label" in row]
            if over:
                row = world.rng.choice(over)
                order = Rerun(stage.graph_id, ((stage.task_id(row["label"]), row["run"]),))
                world.asked += (await _deliver(handlers, stage.graph_id, order)).outcome.name == "APPLIED"
        else:
            stage.clock.advance(limits.REDISPATCH_SECONDS)
            await sweep_graph(world.handlers(which, 0.0), stage.graph_id, Swept(), logs=world.shelves[which])


async def _work(world: World, which: int) -> None:
    """Claim a task of the store, by what is read of it, and complete it a while later."""
    stage, handlers = world.stages[which], world.handlers(which, 0.0)
    rows = [row for row in world.rows(which).values() if row.get("state") == "pending" and "label" in row]
    ready = {row["label"]: row["run"] for row in rows}
    if not ready:
        return
    label = world.rng.choice(sorted(ready))
    slow = Stage(handlers.records.tables, stage.queues, stage.clock)
    slow._labels, slow._ids, slow.executed = stage._labels, stage._ids, stage.executed
    answer = await slow.try_claim(label, ready[label], worker=f"w{which}")
    if answer.outcome.name != "APPLIED":
        return
    stage.executed[label, answer.item.run] += 1  # type: ignore[attr-defined]
    held = Held(answer.item.task_id, answer.item.run, answer.item.claim)  # type: ignore[attr-defined]
    for _ in range(world.rng.choice((0, 3, 20, 1_500))):
        await asyncio.sleep(0)
    answer = await _deliver(handlers, stage.graph_id, stage.completed(held))
    # It may have ended before, by a rerun or its lease; where the graph is on its way, that is all the answer says.
    over = answer.outcome.name == "STALE" and not world.is_under_way(held)
    must(over or answer.outcome.name in ("APPLIED", "REPEATED"), f"a result was lost: {answer}")


async def _deliver(handlers: Handlers, graph_id: str, message: Message) -> Answer:
    """Have a message handled. One that has met a sealed row of a graph that stays by now is left, and comes back."""
    for _ in range(_DELIVERIES_MAX):
        (handled,) = await handlers.handle(graph_id, [message])
        if not isinstance(handled.error, NewerSchema):
            break
    must(handled.error is None, f"{message} was not let go: {handled.error}")
    return handled.answers[0]


async def _play(seed: int) -> World:
    rng = random.Random(seed)
    world = World(rng)
    await world.stages[0].submit(graph(SHAPE))
    await world.stages[0].complete("a")
    fatal = rng.choice((0.0, 0.01, 0.03))
    kinds = ["transfer"] * 5 + ["stay"] * rng.choice((0, 1, 2)) + ["work"] * 3 + ["order"] * 3 + ["sweep"]
    for _ in range(rng.randint(2, 4)):
        # Half of the time as many as want the same thing, or the opposite, each from another moment on.
        narrow = rng.random() < 0.5
        acts = [(rng.choice(kinds), rng.choice((0, 0, 1))) for _ in range(rng.randint(2, 6))]
        if narrow and rng.random() < 0.5:  # it is let go and held back again while a call goes by what it has seen
            acts = [("slow transfer", 0), ("stay and transfer", 0), *[("work", 0)] * 4]
        elif narrow:
            acts = [
                ("transfer", 0),
                ("transfer", 0),
                *[("stay", 0)] * rng.randint(1, 2),
                *[("order", 1)] * 2,
                ("work", 1),
            ]
        running = [
            asyncio.create_task(_act(world, kind, which, fatal, rng.randint(0, 400) * narrow)) for kind, which in acts
        ]
        done = await asyncio.gather(*running, return_exceptions=True)
        for each in done:
            if isinstance(each, BaseException):
                raise each
    await _bring_home(world)
    return world


async def _bring_home(world: World) -> None:
    """Nothing dies any more: what is under way comes to its end, and the graph finishes."""
    world.faults = False
    for _ in range(6):
        for which in (0, 1):
            if world.state(which) in ("moving", "moved"):
                with contextlib.suppress(Refused):
                    await _transfer(world, which, 0.0)
                if world.state(which) == "moving":
                    await stay(world.side(which, 0.0), world.stages[which].graph_id)
            elif world.state(which) not in _STILL:
                await stay(world.side(which, 0.0), world.stages[which].graph_id, world.side(1 - which, 0.0))
    live = [which for which in (0, 1) if world.state(which) not in _STILL]
    must(len(live) == 1, f"it lives in {live}: {world.state(0)}, {world.state(1)}")
    stage = world.stages[live[0]]
    for _ in range(8):
        stage.clock.advance(limits.LEASE_SECONDS + limits.REDISPATCH_SECONDS)
        await stage.sweep()
        if await stage.work() == "finished":
            break
    must(await stage.state() == "finished", f"it is {await stage.state()}")
    events = await stage.events()
    numbers = sorted({event.sequence for event in events})
    must(numbers == list(range(1, len(numbers) + 1)), "its journal has gaps")
    asked = sum(event.kind == "task-rerun" and event.fields.get("because") == "asked" for event in events)
    must(asked >= world.asked, f"{world.asked} reruns were applied, and the journal has {asked}")
    reruns = Counter(str(event.fields["label"]) for event in events if event.kind == "task-rerun")
    ran = Counter(label for each in world.stages for (label, _), number in each.executed.items() for _ in range(number))
    for label in SHAPE:
        must(1 <= ran[label] <= 1 + reruns[label], f"{label} ran {ran[label]} times, with {reruns[label]} reruns")
    for which, each in enumerate(world.stages):
        if world.state(which) not in ("missing", "deleted"):
            found = await examine_graph(each.handlers, each.poison, each.graph_id)
            must(found.findings == (), f"the doctor finds {found.findings}")


def play(seed: int) -> World:
    """One history. Raises Violation."""
    return asyncio.run(_play(seed))


def hunt(seeds: Sequence[int]) -> tuple[int, str]:
    """Play histories until one breaks: how many, and what of; "" where none does."""
    for number, seed in enumerate(seeds, 1):
        try:
            play(seed)
        except Violation as violation:
            return number, f"seed {seed}: {violation}"
        except (TaskgraphError, AssertionError) as error:
            return number, f"seed {seed}: {type(error).__name__}: {error}"
    return len(seeds), ""
