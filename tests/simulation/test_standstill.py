"""Histories of graphs that stand still, and of tasks that their workers do not survive, with faults at every call.

Several sweepers and workers take turns by one seed; any of their calls may fail, be answered wrongly, or be the last of
its process. What the watchdog promises is held against the journal: no graph is marked that has moved within the time,
each that stands still is marked soon after the faults stop, and each mark is one fact.
"""

import asyncio
import contextlib
import json
import random
from collections import Counter
from datetime import datetime, timedelta
from typing import Any, Final

import pytest

from taskgraph.engine.handlers import Handlers
from taskgraph.engine.sweep import sweep
from taskgraph.model import limits
from taskgraph.model.errors import Conflict, StorageError
from taskgraph.model.ids import GRAPH
from taskgraph.protocol.context import Outcome
from taskgraph.protocol.runs import Claim, Completed, LeaseLost, Renew
from tests.scenarios.stage import CrashError, Stage, Trap, graph, memory_stage

SEEDS: Final = 60
KINDS: Final = ("before", "after", "unclear", "conflict", "unavailable")
STALLED: Final = timedelta(seconds=limits.STALLED_SECONDS)
STEP_SECONDS: Final = 300.0
SHAPES: Final = ({"a": [], "b": ["a"]}, {"a": [], "b": [], "c": ["a", "b"]}, {f"t{n}": [] for n in range(4)})


class History:
    """One seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.stage: Stage = memory_stage()
        self.moved: list[datetime] = []  # when something ran, besides the facts of the journal
        self.held: dict[str, tuple[int, str, str]] = {}  # label -> run, claim, worker
        self.faults = True
        self.workers = Counter[str]()

    def handlers(self) -> Handlers:
        """A process, whose calls may go wrong at one place."""
        if not self.faults or self.rng.random() < 0.5:
            return self.stage.more_handlers(Trap())
        return self.stage.more_handlers(Trap(at=self.rng.randint(1, 14), kind=self.rng.choice(KINDS)))

    async def sweep(self) -> None:
        try:
            await sweep(self.handlers())
        except (CrashError, StorageError):
            assert self.faults

    async def claim(self, label: str) -> None:
        row = await self.stage.row(label)
        if row.columns["state"] != "pending":
            return
        run, worker = int(str(row.columns["run"])), f"w{self.rng.randint(0, 9)}"
        until = self.stage.clock.now() + timedelta(seconds=limits.LEASE_SECONDS)
        claim = Claim(self.stage.task_id(label), run, self.stage.clock.new_id(), worker, until)
        try:
            (answer,) = await self.handlers().transition("graph", [claim])
        except (CrashError, Conflict, StorageError):
            row = await self.stage.row(label)  # as whoever comes after sees it
            if row.columns.get("claim") != claim.claim:
                return
        else:
            if answer.outcome not in (Outcome.APPLIED, Outcome.REPEATED):
                return
        self.held[label] = (run, claim.claim, worker)

    async def go_on(self) -> None:
        """Each that holds something renews its lease, completes, or is never heard of again."""
        for label, (run, claim, _) in list(self.held.items()):
            drawn, task_id = self.rng.random(), self.stage.task_id(label)
            if drawn < 0.3:
                del self.held[label]
                continue
            if drawn < 0.45:
                item: Any = Completed(task_id, run, claim, self.stage.clock.now().isoformat(), {"failed": False})
                del self.held[label]
            else:
                item = Renew(task_id, run, claim, self.stage.clock.now() + timedelta(seconds=2 * STEP_SECONDS))
            try:
                await self.handlers().transition("graph", [item])
            except (CrashError, StorageError):
                self.held.pop(label, None)

    async def note(self) -> None:
        """What moves without a fact: a run under a live lease."""
        for row in self.stage.tables.partitions["graph"].values():  # type: ignore[attr-defined]
            until = row.columns.get("leaseUntil")
            if row.columns.get("state") == "running" and isinstance(until, datetime):
                self.moved.append(min(until, self.stage.clock.now()))

    async def check(self) -> None:
        """Every mark comes after a time in which nothing moved, and marks and their ends take turns."""
        marked = False
        before: datetime | None = None
        for event in await self.stage.events():
            assert event.time is not None
            if event.kind == "graph-stalled":
                assert not marked, "marked twice"
                assert before is not None
                assert event.time - before >= STALLED, f"marked at {event.time}, and moved at {before}"
                late = [each for each in self.moved if event.time - STALLED < each < event.time]
                assert not late, f"marked at {event.time}, and something ran at {late[-1]}"
                marked = True
            elif event.kind == "graph-unstalled":
                assert marked, "there was no mark"
                marked = False
            before = event.time

    async def play(self) -> tuple[int, str]:
        """Some hours with faults, some with nobody there; gives how often it was marked, and how the graph ends."""
        await self.stage.submit(graph(self.rng.choice(SHAPES)))
        labels = list(await self.stage.states())
        lively = self.rng.random() < 0.5
        for _ in range(40):
            self.stage.clock.advance(self.rng.choice((30.0, STEP_SECONDS, STEP_SECONDS, 1_000.0)))
            await self.note()
            for _ in range(self.rng.randint(1, 3)):
                await self.sweep()
            if lively or self.rng.random() < 0.1:
                await self.claim(self.rng.choice(labels))
            await self.go_on()
            await self.note()
        self.faults = False
        self.held.clear()
        await self.settle()
        await self.check()
        marks = [event.kind for event in await self.stage.events()].count("graph-stalled")
        return marks, await self.stage.state()

    async def settle(self) -> None:
        """With nobody there and no fault: what runs no more is marked within the time and two rounds of the sweep."""
        for _ in range(int((limits.STALLED_SECONDS + 4 * STEP_SECONDS) / STEP_SECONDS)):
            self.stage.clock.advance(STEP_SECONDS)
            await self.sweep()
        columns = (await self.stage.graph_row()).columns
        if columns["state"] == "running":
            assert columns.get("stalledBecause"), "it stands still, and nobody says so"


def test_no_graph_that_moves_is_marked_and_each_that_stands_still_is() -> None:
    played: Counter[str] = Counter()

    async def play() -> None:
        for seed in range(SEEDS):
            try:
                marks, state = await History(seed).play()
            except AssertionError as error:
                raise AssertionError(f"seed {seed}: {error}") from error
            played[state] += 1
            played["marked again"] += marks > 1
            played["never marked"] += marks == 0

    asyncio.run(play())
    assert played["running"] > 10, "nothing stood still"
    assert played["finished"] > 5, "nothing went on"
    assert played["marked again"] > 5, "no mark was ever taken off"


@pytest.mark.parametrize("copies", [1, 3])
def test_the_third_worker_that_is_lost_ends_the_task_whatever_goes_wrong_meanwhile(copies: int) -> None:
    """A lease that several find lost at once, with a fault at any of their calls, is lost once."""

    async def play() -> None:
        for at in range(1, 12 if copies == 1 else 8):
            for kind in KINDS:
                stage = memory_stage()
                await stage.submit(graph({"a": [], "b": ["a"]}))
                for number in range(limits.WORKERS_LOST_MAX):
                    assert await stage.task_state("a") == "pending"
                    held = await stage.claim("a", worker=f"w{number}")
                    stage.clock.advance(limits.LEASE_SECONDS + 1)
                    for handlers in [stage.more_handlers(Trap(at=at, kind=kind)) for _ in range(copies)]:
                        lost = LeaseLost(held.task_id, held.run, held.claim)
                        with contextlib.suppress(CrashError, StorageError):
                            await handlers.transition("graph", [lost])
                    await stage.sweep()
                row = (await stage.row("a")).columns
                assert row["state"] == "exception", f"{kind} at {at}"
                resolution = json.loads(str(row["resolution"]))
                assert (resolution["code"], resolution["reason"][-10:]) == ("poison", "w0, w1, w2")
                assert (await stage.told()).count("graph-blocked") == 1
                graph_row = stage.tables.partitions["graph"][GRAPH]  # type: ignore[attr-defined]
                assert graph_row.columns["failedTasks"] == 1

    asyncio.run(play())
