"""Many rehearsals of one graph, and what they say together: when it ends, what decides that, and what would help.

Graphs that ran before are rehearsed once more with the very seconds that their runs took: how far such a rehearsal is
off shows what no rehearsal knows, the pauses between runs of a busy machine, say. Forecasts are corrected by it.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from statistics import median
from typing import Final

from taskgraph.model.budget import DEFAULT_PRICES, Budget, Prices
from taskgraph.model.columns import time_of
from taskgraph.model.ids import GRAPH
from taskgraph.model.spent import Used
from taskgraph.queries.timeline import PathStep, RunSpan, Timeline
from taskgraph.rehearsal.durations import CORRECTION, AsItWas, Durations, Past, drawn_from_few, even_share, quantiles
from taskgraph.rehearsal.play import LATENCY_SECONDS, Bench, Played, Runs, play
from taskgraph.rehearsal.start import Start, limited, open_expansions, tasks_of
from taskgraph.rehearsal.waits import SLOTS, Wait, slack_of, waits_of

SEEDS: Final = 20
ROWS_PER_SECOND_MAX: Final = 2_000
"""What Azure promises for one partition; it refuses calls for a while beyond that."""

_WORTH_SEEDS: Final = 5
_WORTH_WAITS: Final = 2  # for the worst so many it is tried what one more is worth
_KNOWN_SHARE: Final = 0.8  # of the tasks of a past graph, so that it can be rehearsed as it was
_CORRECTIONS_MAX: Final = 3.0  # a graph that took longer than that was held up by something else

Progress = Callable[[int, int], None]
"""So many rehearsals are done, of so many."""


@dataclass(frozen=True, slots=True)
class Worth:
    """One more of what was waited for makes the graph so many seconds shorter, in the middle."""

    wait: Wait
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Step:
    """A task of the critical path. slack: for how much longer it might have taken, at most."""

    step: PathStep
    slack: float


@dataclass(frozen=True, slots=True)
class AtRisk:
    """A deadline that is missed in this share of the rehearsals. label: "" for that of the graph."""

    label: str
    deadline: datetime
    share: float


@dataclass(frozen=True, slots=True)
class Pricing:
    """What things cost. files_per_run: requests for files that a run makes, for its log and its result."""

    prices: Prices = DEFAULT_PRICES
    budget: Budget | None = None
    files_per_run: float = 0.0

    def amount(self, played: Played) -> float:
        files = round(self.files_per_run * played.runs)
        return self.prices.amount(played.spent.and_used(Used(files=files)))


@dataclass(frozen=True, slots=True)
class Cost:
    """What the graph costs in all, with what it has spent. amounts: p10, p50, p90, of the rehearsals that finished.

    over: the share of all rehearsals that cost more than the budget.
    """

    pricing: Pricing
    amounts: Sequence[float]
    over: float


@dataclass(frozen=True, slots=True)
class Forecast:
    """seconds, from `now` on: p10, p50, p90 of the rehearsals in which the graph finished, or else of all.

    ends: how many rehearsals ended in which state. sources: how many tasks have their seconds from where. corrections:
    of past graphs, what each took by what its rehearsal took. states: tasks by state, at the end of the one in the
    middle. rows_per_second: the most rows written in a second of it. path, runs: of it, too; runs that had ended before
    are not among these. left_out: groups whose tasks come of results, of which nothing is known.
    """

    graph_id: str
    now: datetime
    tasks: int
    benches: Sequence[Bench]
    seeds: int
    seconds: Sequence[float]
    ends: Mapping[str, int]
    sources: Mapping[str, int]
    past: Sequence[str]
    corrections: Sequence[float]
    path: Sequence[Step]
    waits: Sequence[Worth]
    stays: Mapping[str, int]
    paused: Sequence[str]
    operations: Mapping[str, int]
    rows_per_second: int
    deadlines: Sequence[AtRisk]
    cost: Cost
    runs: Sequence[RunSpan]
    left_out: Sequence[str]

    @property
    def finishes(self) -> Sequence[datetime]:
        return [self.now + timedelta(seconds=each) for each in self.seconds]

    @property
    def finishing(self) -> float:
        """The share of the rehearsals in which the graph finished."""
        return self.ends.get("finished", 0) / self.seeds


NO_PRICING: Final = Pricing()


def no_progress(done: int, of: int) -> None:
    """For who does not look."""


def forecast(
    graph_id: str,
    begun: Callable[[int], Start],
    benches: Sequence[Bench],
    durations: Durations,
    *,
    past: Sequence[Past] = (),
    whole: Callable[[str], Start],
    seeds: int = SEEDS,
    latency_seconds: float = LATENCY_SECONDS,
    pricing: Pricing = NO_PRICING,
    progress: Progress = no_progress,
) -> Forecast:
    """Rehearse a graph. begun: gives what a seed begins with. past: graphs to correct by.

    whole: gives the graph from its beginning, under the id of a past one: by it goes the order of what is ready.
    In a thread that runs no event loop; takes about 0.5 ms of CPU for each task and rehearsal.
    """
    seeds = 1 if durations.certain else seeds
    start = begun(0)
    known = [each for each in past if each.seconds and _is_known(each, start)]
    tries = min(seeds, _WORTH_SEEDS)
    done, of = 0, seeds + 1 + len(known) + _WORTH_WAITS * tries

    def played(runs: Runs, at: Start, own: Sequence[Bench] = benches, *, drawn: bool = False) -> Played:
        nonlocal done
        progress(done, of)
        done += 1
        return play(at, own, runs, latency_seconds=latency_seconds, with_timeline=drawn)

    corrections: list[float] = []
    for each in known:
        as_it_was = AsItWas(each, durations.draws(0))
        found = played(as_it_was, whole(each.graph_id), [replace(bench, slots=each.slots) for bench in benches])
        factor = (each.seconds or 0.0) / found.seconds if found.seconds else 0.0
        if 1 / _CORRECTIONS_MAX < factor < _CORRECTIONS_MAX:
            corrections.append(factor)
    plays = [played(durations.draws(seed), begun(seed)) for seed in range(seeds)]
    factors = [drawn_from_few(corrections, even_share(seed, CORRECTION)) for seed in range(seeds)]
    seconds = [each.seconds * factor for each, factor in zip(plays, factors, strict=True)]
    finished = [number for number, each in enumerate(plays) if each.finished] or list(range(seeds))
    middle = sorted(finished, key=lambda number: plays[number].seconds)[len(finished) // 2]
    start = begun(middle)
    shown = played(durations.draws(middle), start, drawn=True)
    if (timeline := shown.timeline) is None:
        raise ValueError("it was asked for")
    slack = slack_of(start, timeline)
    worths: list[Worth] = []
    for number, wait in enumerate(waits_of(start, benches, timeline)):
        gained: float | None = None
        if number < _WORTH_WAITS and shown.finished:
            more = [
                played(durations.draws(seed), *_one_more(begun(seed), benches, wait)).seconds for seed in range(tries)
            ]
            gained = median(before.seconds - after for before, after in zip(plays, more, strict=False))
        worths.append(Worth(wait, gained))
    progress(of, of)
    return Forecast(
        graph_id=graph_id,
        now=start.now,
        tasks=len(start.definitions),
        benches=benches,
        seeds=seeds,
        seconds=quantiles([seconds[number] for number in finished]),
        ends=dict(Counter(each.state for each in plays)),
        sources=dict(Counter(map(durations.source, start.definitions))),
        past=durations.graphs,
        corrections=corrections,
        path=[Step(step, slack.get(step.task_id, 0.0)) for step in timeline.path],
        waits=worths,
        stays=shown.stays,
        paused=sorted(key.removeprefix("target:") for key in start.gates if key.startswith("target:")),
        operations=shown.operations,
        rows_per_second=max((rows for _, rows in shown.rows), default=0),
        deadlines=_at_risk(start, plays, factors),
        cost=_cost(pricing, plays, finished),
        runs=_played(start, timeline),
        left_out=open_expansions(start),
    )


def _played(start: Start, found: Timeline) -> list[RunSpan]:
    """The runs that end in a rehearsal. What ran when it began goes on there in a next run, and here in its own."""
    runs: list[RunSpan] = []
    for span in found.runs:
        if span.started < start.now and span.ended is not None and span.ended <= start.now:
            continue
        number, ran = start.running.get(span.task_id, (0, 0.0))
        if number and span.run == number:
            span = replace(span, ready=None, started=start.now - timedelta(seconds=ran))
        runs.append(replace(span, run=span.run - 1) if number else span)
    return sorted(runs, key=lambda each: each.started)


def _cost(pricing: Pricing, plays: Sequence[Played], finished: Sequence[int]) -> Cost:
    amounts = [pricing.amount(each) for each in plays]
    most = pricing.budget.amount if pricing.budget is not None else math.inf
    over = sum(each > most for each in amounts) / len(amounts)
    return Cost(pricing, quantiles([amounts[number] for number in finished]), over)


def _is_known(past: Past, start: Start) -> bool:
    labels = {label for label, _ in past.runs}
    return len(labels & start.definitions.keys()) >= _KNOWN_SHARE * max(len(labels), len(start.definitions))


def _one_more(start: Start, benches: Sequence[Bench], wait: Wait) -> tuple[Start, Sequence[Bench]]:
    """The same with one slot more, or one more in flight."""
    if wait.kind != SLOTS:
        return limited(start, wait.most + 1, wait.name), benches
    targets = tuple(wait.name.split(","))
    return start, [replace(each, slots=each.slots + 1) if each.targets == targets else each for each in benches]


def _at_risk(start: Start, plays: Sequence[Played], factors: Sequence[float]) -> list[AtRisk]:
    """The deadlines of the graph and of its tasks that may be missed, the likeliest first."""
    deadlines = {
        str(columns.get("label", "")): deadline
        for columns in tasks_of(start).values()
        if (deadline := time_of(columns, "deadline")) is not None
    }
    graph = start.rows.get(GRAPH)
    if graph is not None and (deadline := time_of(graph.columns, "deadline")) is not None:
        deadlines[""] = deadline
    found: list[AtRisk] = []
    for label, deadline in deadlines.items():
        left = (deadline - start.now).total_seconds()
        missed = sum(
            label in each.late or each.ended.get(label, 0.0) * factor > left
            for each, factor in zip(plays, factors, strict=True)
        )
        if missed:
            found.append(AtRisk(label, deadline, missed / len(plays)))
    return sorted(found, key=lambda each: (-each.share, each.label))
