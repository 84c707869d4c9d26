"""The model against virtual time: the same cells for the tests and for `scripts/model --check`.

What this room is for: play a shape without limits, then with one limit that binds; put what was counted into the model;
compare the times. A check never changes a limit until it fits.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from tests.bench.report import number, table
from tests.bench.shapes import shape
from tests.capacity.model import Demand, Latencies, Limits, run_seconds
from tests.capacity.playing import Played, Playing
from tests.capacity.sources import demand_of, step_seconds, with_path

TOLERANCE: Final = 0.25
"""By so much may the time of a run differ from the model's, in the median of its seeds."""

SEEDS: Final = (1, 2, 3)
LEASE_SECONDS: Final = 15.0
WIDE: Final = 1e7
"""A limit that never binds."""

FREE: Final = Limits(WIDE, WIDE, WIDE)
USUAL: Final = Latencies()


@dataclass(frozen=True, slots=True)
class Cell:
    """What is played: `binds` is the limit that the model has to name."""

    shape: str
    layout: str
    binds: str
    limits: Limits = FREE
    graphs: int = 1
    slots: int = 4
    task_seconds: float = 0.0
    latencies: Latencies = USUAL

    def __str__(self) -> str:
        copies = f"{self.graphs} × " if self.graphs > 1 else ""
        return f"{copies}{self.shape} {self.layout}, {self.slots} slots"

    def play(self, seed: int, *, enforced: bool = True) -> Played:
        """One run."""
        return Playing(
            seed,
            shape(self.shape).make(),
            limits=self.limits,
            latencies=self.latencies,
            graphs=self.graphs,
            place=self.layout,
            slots=self.slots,
            task_seconds=self.task_seconds,
            lease_seconds=LEASE_SECONDS,
            enforced=enforced,
        ).play()

    def demand(self, played: Played) -> Demand:
        """What the run has counted, of one of its graphs."""
        graph = shape(self.shape).make()
        demand = replace(demand_of(self.shape, played.figures), tasks=len(graph))
        if not self.shape.startswith("chain-"):
            return demand
        latencies = replace(self.latencies, pickup=played.pickup_seconds)
        return with_path(demand, graph, step_seconds(played.figures, latencies, local=self.layout == "local"))


CELLS: Final = (
    Cell("chain-40", "1h1w", "path"),
    Cell("chain-40", "2h2w", "path", latencies=Latencies(0.02, 0.04, 0.03, 0.04)),
    Cell("layers-12x25", "1h2w", "partition", Limits(250, WIDE, WIDE)),
    Cell("layers-12x25", "2h4w", "partition", Limits(250, WIDE, WIDE)),
    Cell("layers-12x25", "local", "partition", Limits(250, WIDE, WIDE)),
    Cell("fan-500", "1h2w", "partition", Limits(400, WIDE, WIDE), slots=1),
    Cell("layers-8x15", "2h4w", "account", Limits(WIDE, 300, WIDE), graphs=4),
    Cell("fan-120", "2h4w", "account", Limits(WIDE, 300, WIDE), graphs=5),
    Cell("layers-8x15", "1h2w", "queue", Limits(WIDE, WIDE, 50), graphs=4),
)
"""Limits that are scaled down, so that a few hundred tasks meet them for long enough."""


ONSETS: Final = (
    Cell("layers-10x30", "1h2w", "partition", slots=12, task_seconds=0.5),
    Cell("layers-8x15", "2h4w", "account", graphs=3, slots=6, task_seconds=0.5),
    Cell("layers-8x15", "2h4w", "queue", graphs=3, slots=6, task_seconds=0.5),
)
"""Tasks that take their time, so that the workers offer a steady rate; no limit yet."""

ABOVE: Final = 1.5
BELOW: Final = 0.6
"""A limit of so many times what is offered must refuse next to nothing, and next to everybody, respectively."""

NOTHING: Final = 0.01
SOMETHING: Final = 0.02
"""Shares of all requests that are refused."""


@dataclass(frozen=True, slots=True)
class Checked:
    """One run beside its prediction. ratio: by how much longer the run took, the time of stillness left out.

    before: the same with what was counted without limits: being refused costs requests too.
    """

    seed: int
    binds: str
    predicted_seconds: float
    seconds: float
    still_seconds: float
    refused_share: float
    ratio: float
    before: float


def check(cell: Cell, seed: int) -> Checked:
    """Play one cell twice, without its limits and with them."""
    free = cell.play(seed, enforced=False)
    bound = cell.play(seed)
    seconds = bound.seconds - bound.still_seconds
    offered = WIDE if cell.binds == "path" else free.figures["tasksPerSecond"]
    binds, predicted = run_seconds(cell.demand(bound), cell.limits, cell.latencies, graphs=cell.graphs, offered=offered)
    _, before = run_seconds(cell.demand(free), cell.limits, cell.latencies, graphs=cell.graphs, offered=offered)
    return Checked(
        seed=seed,
        binds=binds,
        predicted_seconds=predicted,
        seconds=bound.seconds,
        still_seconds=bound.still_seconds,
        refused_share=bound.refused_share,
        ratio=seconds / predicted,
        before=seconds / before,
    )


def limited_to(cell: Cell, free: Played, factor: float) -> Cell:
    """The same cell, with the limit at which the model says that throttling begins at factor times the free rate."""
    demand, rate = cell.demand(free), free.figures["tasksPerSecond"] * factor
    match cell.binds:
        case "partition":
            limits = replace(FREE, partition_entities=demand.entities * rate / cell.graphs)
        case "account":
            limits = replace(FREE, account_requests=demand.requests * rate)
        case _:
            limits = replace(FREE, queue_messages=max(demand.messages.values()) * rate)
    return replace(cell, limits=limits)


def onset(cell: Cell, seed: int, factor: float) -> Checked:
    """Play one cell freely, and then under the limit that the model names for this factor."""
    return check(limited_to(cell, cell.play(seed, enforced=False), factor), seed)


def holds_onset(cell: Cell, above: Sequence[Checked], below: Sequence[Checked]) -> str:
    """What does not hold, in words; "" if throttling begins between the two."""
    if wrong := [each for each in above if each.refused_share > NOTHING]:
        return f"{cell}: refused before the {cell.binds}'s limit is reached: {wrong[0]}"
    if wrong := [each for each in below if each.refused_share < SOMETHING]:
        return f"{cell}: hardly refused past the {cell.binds}'s limit: {wrong[0]}"
    return holds(cell, below)


def holds(cell: Cell, checked: Sequence[Checked]) -> str:
    """What does not hold, in words; "" if the model's prediction does."""
    ratio = statistics.median(each.ratio for each in checked)
    if wrong := [each for each in checked if not each.binds.startswith(cell.binds)]:
        return f"{cell}: {wrong[0].binds} binds (seed {wrong[0].seed}), and not {cell.binds}"
    if not 1 - TOLERANCE <= ratio <= 1 + TOLERANCE:
        return f"{cell}: the median run takes {ratio:.2f} times as long as the model says: {checked}"
    return ""


Onset = tuple[Cell, Sequence[Checked], Sequence[Checked]]
"""A cell, with its runs above what is offered and below."""


def onsets_text(onsets: Sequence[Onset]) -> str:
    """A table."""
    rows = [
        [
            f"{cell}, {cell.task_seconds:g} s",
            cell.binds,
            *(number(100 * statistics.median(each.refused_share for each in runs), 1) for runs in (above, below)),
            *(number(statistics.median(each.ratio for each in runs), 2) for runs in (above, below)),
        ]
        for cell, above, below in onsets
    ]
    headings = [f"refused % at {ABOVE:g} ×", f"at {BELOW:g} ×", f"ratio at {ABOVE:g} ×", f"at {BELOW:g} ×"]
    return table(["limit by what is offered", "limit of", *headings], rows)


def text(checked: Sequence[tuple[Cell, Sequence[Checked]]]) -> str:
    """A table."""
    rows = []
    for cell, runs in checked:

        def middle(name: str, runs: Sequence[Checked] = runs) -> float:
            return float(statistics.median(getattr(each, name) for each in runs))

        rows.append(
            [
                str(cell),
                runs[0].binds,
                number(middle("predicted_seconds"), 1),
                number(middle("seconds"), 1),
                number(middle("still_seconds"), 1),
                number(middle("ratio"), 2),
                number(middle("before"), 2),
                number(100 * middle("refused_share"), 1),
            ]
        )
    headings = ["binds", "model s", "virtual s", "still s", "ratio", "by counts before", "refused %"]
    return table([f"median of seeds {', '.join(map(str, SEEDS))}", *headings], rows)
