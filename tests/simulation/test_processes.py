"""Whole processes that crash, pause, stop and start again: seeded, in virtual time.

`pytest tests/simulation/test_processes.py --seed 4711` plays one history again.
"""

import dataclasses
import json
import random
from collections import Counter
from collections.abc import Iterable, Sequence

import pytest

from taskgraph.model.ids import reference_of
from taskgraph.storage.tables import Change
from taskgraph.testing import MemoryTables
from tests.simulation.histories import random_document
from tests.simulation.invariants import Violation, hold
from tests.simulation.processes import ProcessWorld
from tests.simulation.world import Faults

pytestmark = pytest.mark.usefixtures("quiet")

LIMITED_SEEDS = range(30)  # about 6 seconds
RUN_SEEDS = range(60)  # about 6 seconds
SEEDS = range(200)  # about 20 seconds
MANY_SEEDS = range(1_000, 5_000)


def world_of(seed: int, *, runs: bool = False, others: int = 2) -> ProcessWorld:
    """The world of a seed: each draws its own graph, fault rates and failing tasks (swarm)."""
    rng = random.Random(seed * 3 + 5)
    document = random_document(rng, rng.randrange(1, 9), reruns_max=2)
    fails = {label: rng.randrange(4) for label in document.tasks if rng.random() < 0.1}
    faults = Faults(*(rng.choice((0, 0, 0.005, 0.02, 0.05)) for _ in range(6)))
    pause_rate, troubles = rng.choice((0, 0, 0.005, 0.02)), rng.choice((0, 0, 1, 2))
    return ProcessWorld(
        seed, document, fails, faults, pause_rate=pause_rate, troubles=troubles, runs=runs, others=others
    )


def play_all(seeds: Iterable[int]) -> Counter[str]:
    """Play many; gives how they ended and what was met on the way."""
    met: Counter[str] = Counter()
    for seed in seeds:
        world = world_of(seed)
        try:
            end = world.run()
            world.verdict(end)
        except AssertionError as error:
            again = f"pytest tests/simulation/test_processes.py --seed {seed}"
            raise AssertionError(f"seed {seed}: {error} (replay it: {again})") from error
        met[end] += 1
        met["calls"] += world.calls
        met["crashes"] += world.crashes
        met["pauses"] += world.pauses
        met["restarts"] += world.restarts
        met["runs"] += len(world.executions)
        met.update(world.met)
        for row in world.tables.partitions["g"].values():
            met["leases lost"] += 5 - int(row.columns.get("retriesLeft", 5))
            met["handed back"] += int(row.columns.get("handBacks", 0))
    return met


def test_processes_that_come_and_go(seeds: range | None) -> None:
    met = play_all(seeds or SEEDS)
    print(dict(met))
    if seeds is None:
        for what in ("finished", "blocked", "crashes", "pauses", "restarts", "leases lost", "handed back", "R31"):
            assert met[what] > 0, f"no history met: {what}"


@pytest.mark.slow
def test_many_processes_that_come_and_go() -> None:
    met = play_all(MANY_SEEDS)
    print(dict(met))
    assert met["crashes"] > 50_000


def test_without_faults_every_task_runs_once() -> None:
    for seed in range(10):
        world = ProcessWorld(seed, random_document(random.Random(seed), 8), storm_seconds=0.0)
        assert world.run() == "finished"
        world.verdict("finished")
        assert len(world.executions) == len(world.document.tasks)


@pytest.mark.parametrize("others", [0, 1])
def test_a_process_that_runs_a_graph_alone_or_beside_others(others: int, seeds: range | None) -> None:
    """What its own queues hold is lost with it, and others may make tasks ready of which these queues know nothing."""
    met: Counter[str] = Counter()
    for seed in seeds or RUN_SEEDS:
        world = world_of(seed, runs=True, others=others)
        try:
            world.verdict(world.run())
        except AssertionError as error:
            again = f"pytest tests/simulation/test_processes.py -k {others} --seed {seed}"
            raise AssertionError(f"seed {seed}: {error} (replay it: {again})") from error
        met[world.states[-1]] += 1
        met["crashes"] += world.crashes
    assert all(met[each] for each in ("finished", "blocked", "crashes"))


def test_no_more_run_than_a_limit_allows_whoever_dies(monkeypatch: pytest.MonkeyPatch, seeds: range | None) -> None:
    """Production workers and handlers under a limit: after every commit it lists what runs, and all comes to an end."""
    commit = MemoryTables.commit
    most = Counter[int]()

    async def watched(self: MemoryTables, partition: str, changes: Sequence[Change]) -> list[str | None]:
        etags = await commit(self, partition, changes)
        rows = self.partitions.get("g", {})
        if partition == "g" and (limit := rows.get("limit:graph")) is not None:
            running = {
                f"{reference_of(key)}:{row.columns['run']}"
                for key, row in rows.items()
                if key.startswith("task:") and row.columns["state"] == "running"
            }
            hold(set(json.loads(str(limit.columns["inFlight"]))) == running, f"{limit} counts not what runs: {running}")
            hold(len(running) <= int(str(limit.columns["max"])), f"{len(running)} run under {limit}")
            most[len(running)] += 1
        return etags

    monkeypatch.setattr(MemoryTables, "commit", watched)
    for seed in seeds or LIMITED_SEEDS:
        world = world_of(seed)
        world.document = dataclasses.replace(world.document, max_in_flight=1 + seed % 3)
        again = f"pytest tests/simulation/test_processes.py -k limit --seed {seed}"
        try:
            world.verdict(world.run())
        except (AssertionError, Violation) as error:
            raise AssertionError(f"seed {seed}: {error} (replay it: {again})") from error
    assert most[1]
