"""How long runs take and how they end, as far as it is known: from graphs that ran, from the document, or assumed.

What a run does is drawn from the seed, its label and its number alone: so two rehearsals of one seed, with another
number of slots, say, differ by the slots and by nothing else.
"""

import bisect
import heapq
import itertools
import math
import random
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

from taskgraph.documents.references import EXPAND
from taskgraph.queries.timeline import RunSpan, Timeline
from taskgraph.worker.executors import executor_name_of

HISTORY, DOCUMENT, ASSUMED = "history", "document", "assumed"
SECONDS_ASSUMED: Final = 60.0
"""Of a task of which nothing is known."""

_OUTCOMES: Final = frozenset({"completed", "failed", "exception", "temporary"})
"""Ends of runs that a next run may have as well; others were lost, stopped, or handed back half way."""
_UNDONE: Final = frozenset({"handed-back", "stopped"})  # it may never have begun
_TRIES: Final = 32
_STUDENT_MAX: Final = 4.0  # two values are a guess: they foretell no factor of a hundred
_INSTANT: Final = ("noop", EXPAND)
_ANGLES: Final = 200
DAY, CORRECTION = (math.sqrt(5) - 1) / 2, math.sqrt(3) - 1
"""Steps of `even_share` for two things: multiples of the golden section lie the most evenly of all."""

_MOMENT_SECONDS: Final = 0.015
_SELDOM: Final = 0.05  # of the time
_CONTRADICTIONS: Final = 0.01  # of the runs


@dataclass(frozen=True, slots=True)
class Ran:
    """A run that ended. graph: the number of the graph that it was of, from 0."""

    seconds: float
    outcome: str
    graph: int


@dataclass(frozen=True, slots=True)
class Past:
    """A graph that ran. seconds: from its start to its end, None where it did not finish.

    runs: (label, number of the run) -> seconds and outcome. slots: the most runs at a time.
    """

    graph_id: str
    seconds: float | None
    runs: Mapping[tuple[str, int], tuple[float, str]]
    slots: int


def past_of(found: Timeline) -> Past:
    """What a timeline says for rehearsals."""
    by_worker: dict[str, list[RunSpan]] = {}
    for span in found.runs:
        if span.ended is not None and span.outcome not in _UNDONE:
            by_worker.setdefault(span.worker, []).append(span)
    runs: dict[tuple[str, int], tuple[float, str]] = {}
    there: list[tuple[float, int]] = []  # when workers came and went, and their slots
    for spans in by_worker.values():
        slots, begun = _begun(spans)
        for span, began, ended in begun:
            if span.outcome in _OUTCOMES:
                runs[span.label, span.run] = ended - began, span.outcome
        there += [(min(began for _, began, _ in begun), slots), (max(ended for _, _, ended in begun), -slots)]
    most = slots = 0
    for _, change in sorted(there):
        slots += change
        most = max(most, slots)
    whole = found.seconds if found.state == "finished" else None
    return Past(found.graph_id, whole, runs, max(1, most))


def _begun(spans: Sequence[RunSpan]) -> tuple[int, list[tuple[RunSpan, float, float]]]:
    """How many slots a worker had, and when its runs began and ended.

    Short ones are claimed before there is a slot for them, and begin when one is free; of a run before the last of its
    task it is not known. As many slots as those show that were claimed for a free one, and as many more as it takes
    that hardly any run ended before it could begin.
    """
    slots = _slots(spans)
    while True:
        contradictions, begun = _begun_in(slots, spans)
        if contradictions <= _CONTRADICTIONS * len(spans) or slots >= len(spans):
            return slots, begun
        slots += 1


def _begun_in(slots: int, spans: Sequence[RunSpan]) -> tuple[int, list[tuple[RunSpan, float, float]]]:
    """Of those that wait for a slot, the one that ended first is taken for the one that began first."""
    moments = [(span.started.timestamp(), span.ended.timestamp()) for span in spans if span.ended is not None]
    ahead = list(map(_is_ahead, spans))
    began: dict[int, float] = {}
    waiting: list[tuple[float, int]] = []  # by their end
    free, contradictions, last = slots, 0, 0.0
    ends = [(end, 0, n) for n, (_, end) in enumerate(moments)]
    claims = [(claimed, 1, n) for n, (claimed, _) in enumerate(moments)]
    for moment, is_claim, n in sorted(ends + claims):
        if is_claim:
            heapq.heappush(waiting, (moments[n][1], n))
            if not ahead[n]:
                began[n], free = moment, free - 1
        elif n in began:
            free, last = free + 1, moment
        else:  # another one began later than it seemed
            began[n] = max(moments[n][0], last)
            contradictions += 1
        while free > 0 and waiting:
            _, first = heapq.heappop(waiting)
            if first not in began:
                began[first], free = moment, free - 1
    return contradictions, [(span, min(began[n], moments[n][1]), moments[n][1]) for n, span in enumerate(spans)]


def _is_ahead(span: RunSpan) -> bool:
    """Whether it was claimed before there was a slot for it, as far as that is known."""
    return span.ahead or span.ready is None


def _slots(spans: Sequence[RunSpan]) -> int:
    """How many ran side by side for a good part of the time: the end of a run may be written down late.

    That is so on a busy machine, where the next one has begun by then. What one slot too few makes of a past graph is
    little, as it was seldom needed.
    """
    certain = [span for span in spans if not _is_ahead(span)] or spans
    moments = [
        each
        for span in certain
        if span.ended is not None
        for each in ((span.started.timestamp(), 1), (span.ended.timestamp(), -1))
    ]
    since: list[float] = []  # when so many, and one more for each place, last began to run side by side
    seconds: defaultdict[int, float] = defaultdict(float)  # for which so many and more did
    for moment, step in sorted(moments):
        if step > 0:
            since.append(moment)
        elif (lasted := moment - since.pop()) >= _MOMENT_SECONDS:
            seconds[len(since) + 1] += lasted
    most = 1
    while seconds[most + 1] > seconds[most] * _SELDOM:
        most += 1
    return most


@dataclass(frozen=True, slots=True)
class Durations:
    """What is known. said: label -> seconds by the document. assumed: label -> seconds of a task of which nothing is.

    history: label -> runs of it that ended, in `graphs`. usual: label -> seconds of a run in the middle of several of
    these graphs. days: of each of these, what its runs took by what is usual. failing: labels whose runs all
    fail.
    """

    said: Mapping[str, float] = field(default_factory=dict)
    assumed: Mapping[str, float] = field(default_factory=dict)
    history: Mapping[str, Sequence[Ran]] = field(default_factory=dict)
    usual: Mapping[str, float] = field(default_factory=dict)
    days: Sequence[float] = ()
    graphs: Sequence[str] = ()
    failing: Collection[str] = ()

    def source(self, label: str) -> str:
        """Where the seconds of a task come from."""
        return HISTORY if label in self.history else DOCUMENT if label in self.said else ASSUMED

    @property
    def certain(self) -> bool:
        """Whether nothing is left to chance: all rehearsals would be alike."""
        return not self.history

    def draws(self, seed: int) -> "Draws":
        """Of all rehearsals the work varies as it did between past graphs, however the tasks share in it.

        What differs between graphs is both: good and bad days, and chance that does not even out. So the work is drawn,
        and the runs are scaled to come to it: tasks that vary by themselves do not make it vary once more.
        """
        unscaled = Draws(self, seed, 1.0)
        took = usual = 0.0
        for label, seconds in self.usual.items():
            drawn, outcome = unscaled.drawn(label, 0)
            if outcome == "completed":
                took, usual = took + drawn, usual + seconds
        day = drawn_from_few(self.days, even_share(seed, DAY))
        return Draws(self, seed, day * usual / took if took else day)


def known_durations(
    definitions: Mapping[str, Mapping[str, Any]],
    past: Sequence[Past] = (),
    *,
    assumed: Mapping[str, float] = {},
    dropped: Collection[str] = (),
    failing: Collection[str] = (),
) -> Durations:
    """What is known of these tasks, by label. assumed: seconds by executor, "" for any that is not named.

    dropped: they take no time, as if they were not there. failing: they take their time, and fail.
    """
    history: dict[str, list[Ran]] = {}
    for number, graph in enumerate(past):
        for (label, _), (seconds, outcome) in graph.runs.items():
            if label in definitions and label not in dropped:
                history.setdefault(label, []).append(Ran(seconds, outcome, number))
    said: dict[str, float] = {}
    for label, task in definitions.items():
        payload = task.get("payload")
        named = payload.get("seconds") if isinstance(payload, Mapping) else None
        if executor_name_of(task) in _INSTANT or label in dropped:
            said[label] = 0.0
        elif isinstance(named, int | float) and not isinstance(named, bool) and named >= 0:
            said[label] = float(named)
    default = assumed.get("", SECONDS_ASSUMED)
    others = {
        label: assumed.get(executor_name_of(task), default)
        for label, task in definitions.items()
        if label not in said and label not in history
    }
    whole = {label: [each for each in runs if each.outcome == "completed"] for label, runs in history.items()}
    whole = {label: runs for label, runs in whole.items() if len({each.graph for each in runs}) > 1}
    usual = {label: median(each.seconds for each in runs) for label, runs in whole.items()}
    graphs = [each.graph_id for each in past]
    return Durations(said, others, history, usual, _days(whole, usual, len(past)), graphs, failing)


def _days(whole: Mapping[str, Sequence[Ran]], usual: Mapping[str, float], graphs: int) -> list[float]:
    """Of each past graph: the seconds that its runs took, by what is usual for the same. whole: runs that completed."""
    took, of = [0.0] * graphs, [0.0] * graphs
    for label, runs in whole.items():
        for each in runs:
            took[each.graph] += each.seconds
            of[each.graph] += usual[label]
    return [own / middle if own and middle else 1.0 for own, middle in zip(took, of, strict=True)]


@dataclass(frozen=True, slots=True)
class Draws:
    """What the runs of one rehearsal do. scale: by which all of them are longer than drawn one by one."""

    durations: Durations
    seed: int
    scale: float

    def run(self, label: str, number: int, ran_seconds: float = 0.0) -> tuple[float, str]:
        """Seconds and outcome of a run. ran_seconds: it has run for so long already, and takes longer than that."""
        seconds, outcome = self.drawn(label, number, ran_seconds)
        return seconds, "failed" if label in self.durations.failing else outcome

    def drawn(self, label: str, number: int, ran_seconds: float = 0.0) -> tuple[float, str]:
        """The same, as if no label was to fail."""
        known = self.durations
        runs = known.history.get(label)
        if runs is None:
            seconds = known.said.get(label, known.assumed.get(label, 0.0))
            return max(seconds, ran_seconds), "completed"
        chance = random.Random(f"{self.seed}:{number}:{label}")
        for _ in range(_TRIES if ran_seconds else 1):
            outcome = chance.choice(runs).outcome
            own = [each.seconds / known.days[each.graph] for each in runs if each.outcome == outcome]
            seconds = one_more_of(own, chance) * self.scale
            if seconds > ran_seconds:
                return seconds, outcome
        return ran_seconds, outcome  # longer than any before: it may end at any moment


def one_more_of(few: Sequence[float], chance: random.Random) -> float:
    """Another value of the kind of these: one of them, farther apart than they lie, as few lie too close together."""
    drawn = chance.choice(few)
    if len(few) < 2:
        return drawn
    middle = sum(few) / len(few)
    return max(middle + (drawn - middle) * math.sqrt((len(few) + 1) / (len(few) - 1)), min(few) / 2)


def drawn_from_few(factors: Sequence[float], share: float) -> float:
    """The factor below which another one of the kind of these few lies with this chance.

    Their logarithms are taken for a sample of a normal distribution. A few show too little of how different they are,
    so the next one may lie wider than they do: by Student's distribution, as it predicts one more value. A single one
    shows nothing of that, and is taken as it is; without any it is 1.
    """
    if len(factors) < 2:
        return factors[0] if factors else 1.0
    logs = [math.log(each) for each in factors]
    middle, more = sum(logs) / len(logs), len(logs) - 1
    spread = math.sqrt(sum((each - middle) ** 2 for each in logs) / more * (1 + 1 / len(logs)))
    return math.exp(middle + spread * min(max(_student(share, more), -_STUDENT_MAX), _STUDENT_MAX))


def _student(share: float, freedom: int) -> float:
    """Below which a value of Student's distribution lies with this chance; its angle has the power of a cosine."""
    weights = [math.cos(((step + 0.5) / _ANGLES - 0.5) * math.pi) ** (freedom - 1) for step in range(_ANGLES)]
    until = list(itertools.accumulate(weights))
    place = bisect.bisect_left(until, share * until[-1])
    part = 1 - (until[place] - share * until[-1]) / weights[place]
    return math.sqrt(freedom) * math.tan(((place + part) / _ANGLES - 0.5) * math.pi)


def even_share(seed: int, step: float) -> float:
    """A share of 0 to 1 for each seed: those of the first so many seeds lie evenly."""
    return (0.5 + seed * step) % 1.0


@dataclass(frozen=True, slots=True)
class AsItWas:
    """The runs of a past graph, once more. Runs that it had not, as others would be drawn."""

    past: Past
    others: Draws

    def run(self, label: str, number: int, ran_seconds: float = 0.0) -> tuple[float, str]:
        """See Draws."""
        return self.past.runs.get((label, number)) or self.others.run(label, number, ran_seconds)


def quantiles(values: Iterable[float], shares: Sequence[float] = (0.1, 0.5, 0.9)) -> list[float]:
    """Below each of these one more value of the kind lies with that chance; by straight lines between the values.

    Of 20 values the next one lies between the second and the nineteenth in four of five cases.
    """
    ordered = sorted(values)
    found: list[float] = []
    for share in shares:
        place = min(max(share * (len(ordered) + 1) - 1.0, 0.0), len(ordered) - 1.0)
        below = int(place)
        above = min(below + 1, len(ordered) - 1)
        found.append(ordered[below] + (ordered[above] - ordered[below]) * (place - below))
    return found
