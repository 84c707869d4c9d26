"""Rehearse a graph before it is submitted, or what is left of one that runs: collect what is known, then play.

Collecting reads the store, and writes nothing. Playing takes CPU alone, and a thread that runs no event loop.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from taskgraph.documents.nodes import GraphDocument
from taskgraph.documents.references import expanded_group
from taskgraph.interfaces.app import App
from taskgraph.interfaces.operations import document as documents
from taskgraph.model.budget import Budget, budget_of
from taskgraph.model.errors import InvalidInput, Refused
from taskgraph.model.states import GRAPH_ENDED, GraphState
from taskgraph.queries.costs import cost_of
from taskgraph.queries.document import tasks_of_results
from taskgraph.queries.lookup import nearest
from taskgraph.queries.prices import prices_in
from taskgraph.queries.values import GraphsWanted
from taskgraph.rehearsal.durations import Past, known_durations, past_of
from taskgraph.rehearsal.forecast import SEEDS, Forecast, Pricing, Progress, forecast, no_progress
from taskgraph.rehearsal.play import Bench
from taskgraph.rehearsal.start import (
    Start,
    handed_back,
    limited,
    start_of_document,
    start_of_graph,
    tasks_of,
    with_results,
)
from taskgraph.worker.executors import executor_name_of

HISTORY: Final = 5
SLOTS: Final = 4
"""Where it is not said how many, and no worker is there."""

LATENCY_EMBEDDED_SECONDS: Final = 0.002
LATENCY_SECONDS: Final = 0.02
"""What a call to storage takes: to a file of this machine, and to a service."""

FILES_PER_RUN: Final = 3.0
"""Requests for the log of a run that prints a little, where no past graph says how many."""

_WITHOUT_LOG: Final = ("noop", "sleep")
_LOOKED_AT: Final = 4  # times as many graphs as are wanted are listed, for some have not ended
_RAN: Final = frozenset({*map(str, GRAPH_ENDED), str(GraphState.BLOCKED)})
_ALL: Final = ""  # in place of targets
_TOGETHER: Final = "+"  # between targets


@dataclass(frozen=True, slots=True)
class Wanted:
    """slots: targets, with `+` between, -> slots that serve these together; "" for all of them; empty: what there is.

    seconds: by executor. limits: group ("" for the graph) -> the most in flight, 0 for any number. drop: labels of
    tasks that take no time. fail: of those that fail.
    """

    slots: Mapping[str, int] = field(default_factory=dict)
    slots_default: int = SLOTS
    history: int = HISTORY
    seeds: int = SEEDS
    seconds: Mapping[str, float] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    drop: Sequence[str] = ()
    fail: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Collected:
    """All that a forecast needs. crew: slots by the targets that they serve together.

    graph_id: "" for a document. copied: the rows of a graph, None for a document. document: of either, where it is
    known. of_results: group -> the tasks that came of a result in the last graph that had such.
    """

    wanted: Wanted
    graph_id: str
    now: datetime
    copied: Start | None
    document: GraphDocument | None
    past: Sequence[Past]
    crew: Mapping[tuple[str, ...], int]
    latency_seconds: float
    pricing: Pricing
    of_results: Mapping[str, GraphDocument] = field(default_factory=dict)

    @property
    def tasks(self) -> int:
        return len(self.copied.definitions if self.copied is not None else self.document.tasks if self.document else ())

    def forecast(self, progress: Progress = no_progress) -> Forecast:
        """Play. Raises InvalidInput for a task to drop or fail that there is not, and a limit that cannot be."""
        wanted, start = self.wanted, self._start(0)
        for verb, labels in (("drop", wanted.drop), ("fail", wanted.fail)):
            for label in labels:
                if label not in start.definitions:
                    near = nearest(label, list(start.definitions))
                    meant = f"; did you mean “{near[0]}”?" if near else ""
                    raise InvalidInput(f"there is no task “{label}” to {verb}{meant}")
        return forecast(
            self.graph_id,
            self._start if self.copied is None else lambda seed: start,
            benches_of(wanted, self.crew, start),
            known_durations(
                start.definitions, self.past, assumed=wanted.seconds, dropped=wanted.drop, failing=wanted.fail
            ),
            past=self.past if self.document is not None else (),
            whole=self._whole,
            seeds=wanted.seeds,
            latency_seconds=self.latency_seconds,
            pricing=self.pricing,
            progress=progress,
        )

    def _start(self, seed: int) -> Start:
        """A graph that is not submitted yet gets another id each time, and with it another order of what is ready."""
        if self.copied is None:
            start = self._whole(f"rehearsal-{seed}")
        else:
            start = with_results(handed_back(self.copied), self.of_results)
        for group, most in self.wanted.limits.items():
            start = limited(start, most, group)
        return start

    def _whole(self, graph_id: str) -> Start:
        if self.document is None:
            raise ValueError("there is no document to begin with")
        return with_results(start_of_document(self.document, self.now, graph_id), self.of_results)


async def collect_for_document(app: App, document: GraphDocument, wanted: Wanted) -> Collected:
    """For a graph that is not submitted. Its history is that of the graphs of its name."""
    past = await _past(app, document.metadata.get("name", ""), "", wanted.history)
    pricing = await _pricing(app, document.budget, past, [node.task for node in document.tasks.values()])
    of_results = await _of_results(app, [node.task for node in document.tasks.values()], past)
    return Collected(wanted, "", app.clock.now(), None, document, past, {}, _latency(app), pricing, of_results)


async def collect_for_graph(app: App, graph_id: str, wanted: Wanted) -> Collected:
    """For what is left of a graph, with the workers that there are. Raises NotFound, Refused for one that is over."""
    status = await app.queries.graph_row(graph_id)
    state = str(status.columns.get("state", ""))
    if state not in (GraphState.RUNNING, GraphState.BLOCKED):
        raise Refused(f"graph {graph_id} is {state}: only one that runs or is blocked is rehearsed", "not-running")
    copied = await start_of_graph(app.tables, graph_id, app.clock.now())
    name = str(_name(status.columns.get("metadata")))
    past = await _past(app, name, str(status.columns.get("schedule", "")), wanted.history, but=graph_id)
    document: GraphDocument | None = None
    if past:
        try:
            document = (await documents.stored(app, graph_id)).document
        except Refused:
            document = None  # it is rehearsed without corrections
    crew: dict[tuple[str, ...], int] = {}
    for each in (await app.crew()).workers:
        if each.claims and each.live and each.slots:
            targets = tuple(sorted(each.targets))
            crew[targets] = crew.get(targets, 0) + each.slots
    pricing = await _pricing(app, budget_of(status.columns.get), past, copied.definitions.values())
    of_results = await _of_results(app, copied.definitions.values(), past)
    return Collected(wanted, graph_id, copied.now, copied, document, past, crew, _latency(app), pricing, of_results)


async def _of_results(
    app: App, definitions: Collection[Mapping[str, Any]], past: Sequence[Past]
) -> Mapping[str, GraphDocument]:
    """The tasks that results came to in the last graph, where some of a graph are to come of results."""
    if not past or not any(map(expanded_group, definitions)):
        return {}
    return await tasks_of_results(app.queries, past[0].graph_id)


def benches_of(wanted: Wanted, crew: Mapping[tuple[str, ...], int], start: Start) -> list[Bench]:
    """Who works: as it was asked for, or who is there, or a worker as `run` brings it."""
    targets = sorted({str(columns.get("target", "default")) for columns in tasks_of(start).values()})
    if wanted.slots and _ALL not in wanted.slots:
        return [Bench(tuple(targets.split(_TOGETHER)), slots) for targets, slots in wanted.slots.items()]
    if not wanted.slots and crew:
        # A target that two kinds of workers serve is that of the larger kind.
        benches: list[Bench] = []
        for names, slots in sorted(crew.items(), key=lambda each: -each[1]):
            taken = {name for bench in benches for name in bench.targets}
            if own := tuple(name for name in names if name not in taken):
                benches.append(Bench(own, slots))
        return benches
    return [Bench(tuple(targets) or ("default",), wanted.slots.get(_ALL, wanted.slots_default))]


def read_slots(text: str) -> dict[str, int]:
    """`8`, `default=8,gpu=1`, or `default+gpu=8`. Raises InvalidInput."""
    slots = {name: int(number) for name, number in _pairs("--slots", text, r"a whole number", _whole).items()}
    targets = [target for names in slots for target in names.split(_TOGETHER)]
    if twice := next((each for each in targets if targets.count(each) > 1), None):
        raise InvalidInput(f"--slots {text}: the target {twice} is named twice")
    return slots


def read_seconds(texts: Sequence[str]) -> dict[str, float]:
    """`60`, `command=60`. Raises InvalidInput."""
    return {name: number for text in texts for name, number in _pairs("--seconds", text, "seconds", _number).items()}


def read_limits(texts: Sequence[str]) -> dict[str, int]:
    """`4` of the graph, `GROUP=4` of a group. Raises InvalidInput."""
    found: dict[str, int] = {}
    for text in texts:
        group, equals, number = text.rpartition("=")
        most = _whole(number)
        if most is None or (equals and not group):
            raise InvalidInput(f"--limit {text}: write a whole number, or GROUP=NUMBER; 0 for any number")
        found[group] = int(most)
    return found


def _pairs(option: str, text: str, kind: str, read: Callable[[str], float | None]) -> dict[str, float]:
    found: dict[str, float] = {}
    for each in text.split(","):
        name, _, number = each.rpartition("=")
        value = read(number.strip())
        if value is None or value < 0 or name.strip() in found:
            raise InvalidInput(f"{option} {text}: write {kind}, or NAME=NUMBER, of several with commas between")
        found[name.strip()] = value
    if len(found) > 1 and "" in found and option == "--slots":
        raise InvalidInput(f"{option} {text}: one number for all targets, or one for each")
    return found


def _whole(text: str) -> float | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 8 else None


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < timedelta.max.total_seconds() else None


def _name(text: Any) -> str:
    import json

    found = json.loads(text) if isinstance(text, str) and text else {}
    return str(found.get("name", "")) if isinstance(found, dict) else ""


def _latency(app: App) -> float:
    return LATENCY_EMBEDDED_SECONDS if app.settings.path is not None else LATENCY_SECONDS


async def _past(app: App, name: str, schedule: str, most: int, *, but: str = "") -> list[Past]:
    """The last graphs of a schedule, or of a name, that ran to some end; the newest first."""
    if not (name or schedule) or not most:
        return []
    wanted = GraphsWanted() if schedule else GraphsWanted(name=_as_pattern(name))
    listed = await app.queries.graphs(limit=most * _LOOKED_AT, schedule=schedule, wanted=wanted)
    ran = [each for each in listed if each.graph_id != but and each.state in _RAN and (schedule or each.name == name)]
    return [past_of(await app.queries.timeline(each.graph_id)) for each in ran[:most]]


async def _pricing(
    app: App, budget: Budget | None, past: Sequence[Past], definitions: Collection[Mapping[str, Any]]
) -> Pricing:
    """By the prices of the store, and by how many requests for files a run of past graphs has made."""
    costs = [await cost_of(app.tables, each.graph_id) for each in past]
    files = sum(each.spent.files for each in costs if each.spent is not None)
    runs = sum(len(each.runs) for each, cost in zip(past, costs, strict=True) if cost.spent is not None)
    quiet = sum(executor_name_of(each) in _WITHOUT_LOG for each in definitions)
    assumed = FILES_PER_RUN * (1 - quiet / max(1, len(definitions)))
    return Pricing(await prices_in(app.tables), budget, files / runs if runs else assumed)


def _as_pattern(name: str) -> str:
    """A name as a part of names: what makes a pattern stands for any character."""
    return f"{name.replace('*', '?')}" if set(name) & set("*?") else name
