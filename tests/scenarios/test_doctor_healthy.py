"""The doctor finds nothing in a healthy graph: after every commit of random histories, and from within them.

A history has crashes, lost answers, lost and doubled messages at every storage call. Rows are whole after every commit
all the same, so nothing may be found wrong in them; and a doctor who reads them page by page while others write,
several of them at once, with and without repairing, may raise no false alarm and do no harm.
"""

from collections import Counter
from collections.abc import Coroutine, Sequence
from typing import Any

from taskgraph.engine.doctor import examine_graph, repair_graph
from taskgraph.engine.handlers import Handlers
from taskgraph.engine.poison import Poison
from taskgraph.protocol.invariants.examine import examine
from taskgraph.protocol.invariants.findings import Finding, Severity
from taskgraph.storage.tables import Change
from tests.simulation.histories import world_of
from tests.simulation.world import Process, World

SEEDS = range(20_000, 20_060)
"""So many that some are cancelled, some held back for a while, and enough is left of the others."""


def wrong(found: Sequence[Finding]) -> list[Finding]:
    return [each for each in found if each.severity is Severity.WRONG]


class ExaminedWorld(World):
    """A world in which all rows are examined after every commit."""

    examined = 0

    def committed(self, partition: str, changes: Sequence[Change]) -> None:
        super().committed(partition, changes)
        if partition == self.graph_id and self.rng.random() < 0.25:
            found = examine(self.graph_id, self.tables.partitions[partition], self.clock.now())
            assert wrong(found) == [], f"seed {self.seed}"
            self.examined += 1


class DoctoredWorld(World):
    """A world in which doctors come by, several at once, who look or repair."""

    met: Counter[str]

    async def _doctor(self, handlers: Handlers, repair: bool) -> None:
        poison = Poison(handlers.records.tables, handlers.queues, self.clock, handlers.names)
        if not self.submitted():
            return
        work = repair_graph if repair else examine_graph
        answer = await work(handlers, poison, self.graph_id)
        assert wrong(answer.findings) == [], f"seed {self.seed}"
        assert wrong(answer.repaired) == [], f"seed {self.seed}"
        self.met["repairs" if repair else "looks"] += 1
        self.met["unsettled"] += answer.unsettled
        self.met["due"] += len(answer.findings) + len(answer.repaired)

    def _next_actor(self, processes: list[Process]) -> tuple[str, Coroutine[Any, Any, Any]] | None:
        # Doctors live long; were there always one, a graph that has ended would never be at rest.
        doctors = sum(actor.name == "doctor" for actor in self.actors)
        if doctors < 3 and self.state() not in ("finished", "cancelled") and self.rng.random() < 0.06:
            return "doctor", self._doctor(self.rng.choice(processes).handlers, self.rng.random() < 0.5)
        return super()._next_actor(processes)


def made(kind: type[World], seed: int) -> Any:
    like = world_of(seed)
    more = {"bounds": like.bounds, "cancel": like.cancel, "pauses": like.pauses, "far": like.far}
    return kind(seed, like.document, like.fails, like.extensions, like.faults, like.reruns, **more)


def test_rows_are_sound_after_every_commit_of_random_histories() -> None:
    examined = 0
    for seed in SEEDS:
        world = made(ExaminedWorld, seed)
        end = world.run()
        assert end == world.oracle()
        found = examine(world.graph_id, world.tables.partitions[world.graph_id], world.clock.now())
        assert wrong(found) == [], f"seed {seed}"
        if end in ("finished", "cancelled"):
            assert found == [], f"seed {seed}"
        examined += world.examined
    assert examined > 200  # several commits of each history


def test_doctors_in_the_midst_of_random_histories_raise_no_false_alarm_and_do_no_harm() -> None:
    met: Counter[str] = Counter()
    for seed in SEEDS:
        world = made(DoctoredWorld, seed)
        world.met = met
        assert world.run() == world.oracle(), f"seed {seed}"
    print(dict(met))
    assert min(met[what] for what in ("looks", "repairs", "due")) > 10, met
