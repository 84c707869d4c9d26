"""Several graphs, several queues of events, and handlers among which these move while messages are in flight.

What this room is for: histories of whole processes in which the number of queues is changed, and leads are handed over,
end and are taken over. What comes of a history is in its verdict; without faults not one message may be lost, so no run
is ever given up.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final

from tests.simulation.histories import random_document
from tests.simulation.processes import ProcessWorld
from tests.simulation.world import Faults

_TASKS: Final = range(3, 9)
_RETRIES: Final = 5


class SharedOut:
    """One history, as `mutants.hunt` plays them. rough: with faults. late: processes know one queue before there are
    several, and soon there is one again."""

    def __init__(self, seed: int, *, rough: bool = False, late: bool = False) -> None:
        rng = random.Random(seed * 7 + 1)
        self.rough = rough
        faults = Faults(*(rng.choice((0, 0, 0.005, 0.02)) for _ in range(6))) if rough else Faults()
        self.world = ProcessWorld(
            seed,
            random_document(rng, rng.choice(_TASKS)),
            faults=faults,
            pause_rate=rng.choice((0, 0, 0.005)) if rough else 0.0,
            troubles=rng.choice((0, 1)) if rough else 0,
            storm_seconds=200.0,
            others=rng.choice((2, 3)),
            more=5,
            numbers=[1, *([rng.choice((2, 4, 8)), 1] * rng.choice((1, 2)))]
            if late
            else [rng.choice((1, 2, 4, 8)) for _ in range(rng.choice((1, 2, 4)))],
        )

    @property
    def met(self) -> Counter[str]:
        """What was met on the way."""
        return self.world.met

    def run(self, steps_max: int = 0) -> str:
        """Play it to the end. Raises AssertionError."""
        world = self.world
        end = world.run()
        if end == "finished":
            world.verdict(end)
        if not self.rough:
            for graph_id in world.graph_ids:
                for key, row in world.tables.partitions[graph_id].items():
                    lost = key.startswith("task:") and int(row.columns.get("retriesLeft", _RETRIES)) < _RETRIES
                    assert not lost, f"seed {world.seed}: a run of {row.columns['label']} of {graph_id} was given up"
        return end

    def oracle(self) -> str:
        """How it has to end."""
        return self.world.states[-1] if self.rough else "finished"


def play_all(kind: Callable[..., Any], seeds: Iterable[int], *, rough: bool, test: str) -> Counter[str]:
    """Play a history of this kind for each seed; gives what was met and how they ended. test: the file that replays."""
    met: Counter[str] = Counter()
    for seed in seeds:
        history = kind(seed, rough=rough)
        try:
            end = history.run()
            assert end == history.oracle()
        except AssertionError as error:
            raise AssertionError(f"{error} (replay it: pytest tests/simulation/{test} --seed {seed})") from error
        met[end] += 1
        met["crashes"] += history.world.crashes
        met.update(history.met)
    print(dict(met))
    return met
