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
from tests.capacity.playing import Charged, Played, Playing
from tests.capacity.sources import demand_of, step_seconds, with_path

TOLERANCE: Final = 0.25
"""By so much may the time of a run differ from the model's, in the median of its seeds."""

REFUSED_SHARE: Final = 0.1
TOLERANCE_REFUSED: Final = 0.4
"""For runs of which more than REFUSED_SHARE is refused: most of their time is pauses that are drawn by chance. Medians
over fifteen seeds differed by 0.2 between versions that make the very same requests (1.14, 1.23, 1.29 and 1.34)."""

SEEDS: Final = (1, 2, 3)
MORE_SEEDS: Final = tuple(range(4, 16))
"""For a run whose median over `SEEDS` misses the tolerance."""

LEASE_SECONDS: Final = 15.0
WIDE: Final = 1e7
"""A limit that never binds."""

FREE: Final = Limits(WIDE, WIDE, WIDE)
USUAL: Final = Latencies()


@dataclass(frozen=True, slots=True)
class Cell:
    """What is played: `binds` is the limit that is set, so that it binds.

    seconds: the limit is scaled down until the model says that the run takes so long, and twice as long as without it,
    whatever a task costs just now.
    """

    shape: str
    layout: str
    binds: str
    seconds: float = 20.0
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
        """What the run has counted at the ports, as scripts/bench does, of one of its graphs."""
        graph = shape(self.shape).make()
        demand = replace(demand_of(self.shape, played.figures), tasks=len(graph))
        if not self.shape.startswith("chain-"):
            return demand
        latencies = replace(self.latencies, pickup=played.pickup_seconds)
        return with_path(demand, graph, step_seconds(played.figures, latencies, local=self.layout == "local"))

    def charged(self, played: Played, charged: Charged) -> Demand:
        """The same, with rows, requests and messages as the account has let them through until some moment.

        At a limit the two differ: a call for many rows that is given up has asked for all of them, and got some.
        """
        return replace(
            self.demand(played),
            tasks=charged.tasks / self.graphs,
            table_requests=charged.requests,
            queue_requests=0.0,
            blob_requests=0.0,
            entities=charged.entities,
            messages=charged.messages,
        )


CELLS: Final = (
    Cell("chain-100", "1h1w", "path"),
    Cell("chain-100", "2h2w", "path", latencies=Latencies(0.02, 0.04, 0.03, 0.04)),
    Cell("chain-100", "local", "path"),
    Cell("layers-20x40", "1h2w", "partition"),
    Cell("layers-20x40", "2h4w", "partition"),
    Cell("layers-20x40", "local", "partition"),
    Cell("fan-1000", "1h2w", "partition"),
    Cell("layers-10x50", "2h4w", "account", seconds=8.0, graphs=5),
    Cell("fan-500", "2h4w", "account", seconds=20.0, graphs=10),
    Cell("tree-255", "2h4w", "queue", seconds=45.0, graphs=5, slots=8, task_seconds=0.5),  # fewer messages at a limit
)
"""Shapes and processes; as many tasks as a limit has to be met by for long enough."""

ONSETS: Final = (
    Cell("layers-10x30", "1h2w", "partition", slots=12, task_seconds=0.5),
    Cell("layers-8x15", "2h4w", "account", graphs=3, slots=6, task_seconds=0.5),
    Cell("layers-8x15", "2h4w", "queue", graphs=3, slots=6, task_seconds=0.5),
)
"""Tasks that take their time, so that the workers offer a steady rate."""

ABOVE: Final = 1.5
BELOW: Final = 0.6
"""A limit of so many times what is offered must refuse next to nothing, and a good deal, respectively."""

NOTHING: Final = 0.03
SOMETHING: Final = 0.06
"""Shares of all requests that are refused: at most, in the median, and at least."""


@dataclass(frozen=True, slots=True)
class Checked:
    """One run beside its prediction, up to the moment when most tasks are completed (playing.BULK; a chain: all).

    seconds: until then, stillness left out; ratio: of it and the prediction, by what was counted in this run. before:
    the same by what was counted without limits, since being refused costs requests too. end_seconds: of the whole run;
    what is last may wait for a lease. left: messages that nobody has acknowledged long after that.
    """

    seed: int
    binds: str
    predicted_seconds: float
    seconds: float
    end_seconds: float
    refused_share: float
    ratio: float
    before: float
    left: int


def limited_to(cell: Cell, free: Played, rate: float) -> Cell:
    """The same cell, with the limit that lets this rate pass, by the model: tasks a second over all graphs."""
    demand = cell.demand(free)
    match cell.binds:
        case "path":
            limits = FREE
        case "partition":
            limits = replace(FREE, partition_entities=demand.entities * rate / cell.graphs)
        case "account":
            limits = replace(FREE, account_requests=demand.requests * rate)
        case _:
            limits = replace(FREE, queue_messages=max(demand.messages.values()) * rate)
    return replace(cell, limits=limits)


def check(cell: Cell, seed: int, *, factor: float | None = None) -> Checked:
    """Play one cell freely, and then under a limit: of factor times the free rate, or as its seconds say."""
    free = cell.play(seed, enforced=False)
    offered = free.figures["tasksPerSecond"]
    rate = min(free.figures["tasks"] / cell.seconds, offered / 2) if factor is None else offered * factor
    cell = limited_to(cell, free, rate)
    bound = cell.play(seed)
    path = cell.binds == "path"
    until = bound.whole if path else bound.bulk
    most = WIDE if path else offered

    def seconds_of(demand: Demand) -> tuple[str, float]:
        return run_seconds(demand, cell.limits, cell.latencies, graphs=cell.graphs, offered=most)

    binds, predicted = seconds_of(cell.demand(bound) if path else cell.charged(bound, until))
    _, before = seconds_of(replace(cell.demand(free), tasks=until.tasks / cell.graphs))
    seconds = until.seconds - until.still_seconds
    return Checked(
        seed=seed,
        binds=binds,
        predicted_seconds=predicted,
        seconds=seconds,
        end_seconds=bound.seconds,
        refused_share=bound.refused_share,
        ratio=seconds / predicted,
        before=seconds / before,
        left=bound.left,
    )


def holds_onset(cell: Cell, above: Sequence[Checked], below: Sequence[Checked]) -> str:
    """What does not hold, in words; "" if throttling begins between the two."""
    if statistics.median(each.refused_share for each in above) > NOTHING:
        return f"{cell}: refused before the {cell.binds}'s limit is reached: {above}"
    if statistics.median(each.refused_share for each in below) < SOMETHING:
        return f"{cell}: hardly refused past the {cell.binds}'s limit: {below}"
    return ""


def holds(cell: Cell, checked: Sequence[Checked]) -> str:
    """What does not hold, in words; "" if the model's prediction does."""
    ratio = statistics.median(each.ratio for each in checked)
    if wrong := [each for each in checked if not each.binds.startswith(cell.binds)]:
        return f"{cell}: {wrong[0].binds} binds (seed {wrong[0].seed}), and not {cell.binds}"
    refused = statistics.median(each.refused_share for each in checked)
    tolerance = TOLERANCE if refused < REFUSED_SHARE else TOLERANCE_REFUSED
    if not 1 - tolerance <= ratio <= 1 + tolerance:
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
                cell.binds,
                number(middle("predicted_seconds"), 1),
                number(middle("seconds"), 1),
                number(middle("end_seconds"), 1),
                number(middle("ratio"), 2),
                number(middle("before"), 2),
                number(100 * middle("refused_share"), 1),
                number(max(each.left for each in runs), 0),
            ]
        )
    headings = ["binds", "model s", "virtual s", "to the end s", "ratio", "by counts before", "refused %", "left"]
    return table([f"median of seeds {', '.join(map(str, SEEDS))}", *headings], rows)
