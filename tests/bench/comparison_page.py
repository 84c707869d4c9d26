"""The page that a comparison of engines leaves: cells, and what is told of them.

What this room is for: text. It measures nothing, and starts nothing.
"""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.bench import report
from tests.bench.engines import DISK, PROCESS, SURVIVES, Engine

COMPARED: Final = ("taskgraph/noop", "taskgraph/noop-full", "taskgraph/true", "taskgraph/true-anew")
"""Those of ours with a table of ratios."""


@dataclass(slots=True)
class Cell:
    """One engine with one shape. cpu: of the engine, its services and their children. others: cores that were busy
    with anything else meanwhile."""

    engine: str
    shape: str
    tasks: int
    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    others: list[float] = field(default_factory=list)
    failed: str = ""

    @property
    def measured(self) -> bool:
        """Whether there is a figure. One that failed once has none, whatever went well before."""
        return bool(self.seconds) and not self.failed

    @property
    def median(self) -> float:
        """Seconds of the run in the middle."""
        return statistics.median(self.seconds)

    @property
    def rate(self) -> float:
        """Tasks by the second."""
        return self.tasks / self.median


_HEAD: Final = """\
# Other engines

The same graphs on taskgraph and on engines that one might take instead, in turn, in one run on one machine, each in an
environment of its own. Tasks do nothing, so what is left is what an engine costs. `chain-1` is one task alone.

```sh
.venv/bin/python -m tests.bench.comparison PEERS --homes HOMES
```

PEERS is a folder of programs that give graphs to one engine each, HOMES their virtual environments; what they say to
each other is in `tests/bench/peer.py`. Written by this command; do not edit.
"""

_TIMED: Final = """\
## What is in the time

Seconds are from handing over the whole graph to the engine's word that all of it has finished, as seen by the process
that hands it over. Processes and services are up and have run two small graphs; what was started for a round is ended
with it. The file that an engine reads is written before; reading it is in the time.

- **taskgraph** (but `true-anew`): the command `taskgraph run FILE --json`, called in a process in which interpreter and
  modules are loaded: reading and checking FILE, opening the store (one per round, which grows), submitting, running,
  following the journal, printing, closing the store. Nothing of the graph is known before. Default slots: the cores.
- **DBOS, Dask, Prefect, Luigi**: from a graph in memory, in a process that is up. DBOS, Prefect and Luigi run tasks in
  it, Luigi's `w2` in processes forked from it; Dask in two worker processes; Prefect's server is up beside it.
  Prefect's time ends when the flow returns, which is before its server knows the states of all tasks.
- **Celery, Restate**: from a graph in memory; broker, server and workers (two processes) are up.
- **ninja, make, taskgraph/true-anew**: a new process for each graph, from its start to its exit. For taskgraph that
  includes the start of Python, which `chain-1` shows, and a new store.

CPU is of the engine, its services and all their children, in steps of 10 ms. "Once": the run was long, or the engine is
a variant that is slower than its sibling.
"""


def figure(number: float) -> str:
    return f"{number:,.0f}" if number >= 10 else f"{number:.1f}"


def rate_text(cell: Cell | None) -> str:
    if cell is None:
        return ""
    if not cell.measured:
        return "not tried" if cell.failed.startswith("not tried") else "failed" if cell.failed else "–"
    if len(cell.seconds) == 1:
        return f"{figure(cell.rate)} (once)"
    low, high = cell.tasks / max(cell.seconds), cell.tasks / min(cell.seconds)
    return f"{figure(cell.rate)} ({figure(low)}–{figure(high)})"


def seconds_text(cell: Cell | None) -> str:
    return f"{cell.median:.3f}" if cell is not None and cell.measured else "–"


def cpu_text(cell: Cell | None) -> str:
    if cell is None or not cell.measured:
        return "–"
    return f"{1000 * statistics.median(cell.cpu) / cell.tasks:.2f}"


def table_text(
    engines: Iterable[Engine],
    shapes: Sequence[str],
    cells: Mapping[tuple[str, str], Cell],
    told: Callable[[Cell | None], str],
) -> str:
    rows = [[engine.name, *(told(cells.get((engine.name, name))) for name in shapes)] for engine in engines]
    return report.table(["engine", *shapes], rows)


def ratios_text(
    engines: Sequence[Engine], shapes: Sequence[str], cells: Mapping[tuple[str, str], Cell], ours: str
) -> str:
    """How many times as fast as each other engine of its kind one of ours is."""
    kind = next(engine.kind for engine in engines if engine.name == ours)

    def ratio(engine: Engine, name: str) -> str:
        mine, other = cells.get((ours, name)), cells.get((engine.name, name))
        if mine is None or other is None or not mine.measured or not other.measured:
            return "–"
        return f"{mine.rate / other.rate:.2f}"

    rows = [
        [engine.name, *(ratio(engine, name) for name in shapes)]
        for engine in engines
        if engine.kind == kind and not engine.ours
    ]
    return report.table([f"{ours} is … times as fast as", *shapes], rows) if rows else ""


def behind(
    engines: Sequence[Engine], shapes: Sequence[str], cells: Mapping[tuple[str, str], Cell], ours: str, least: str
) -> list[str]:
    """The engines that are at least so durable and, on some shape, faster than one of ours; in words."""
    ranks = list(SURVIVES)
    found = []
    for engine in engines:
        if engine.ours or engine.kind != "engine" or ranks.index(engine.durable[0]) > ranks.index(least):
            continue
        for name in shapes:
            mine, other = cells.get((ours, name)), cells.get((engine.name, name))
            if mine and other and mine.measured and other.measured and other.rate > mine.rate:
                found.append(f"{engine.name} on {name} ({other.rate / mine.rate:.1f} times)")
    return found


def text_of(
    about: Mapping[str, Any], engines: Sequence[Engine], shapes: Sequence[str], cells: Mapping[tuple[str, str], Cell]
) -> str:
    """The whole page."""
    place = about["machine"]
    names = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    runs = [run for cell in cells.values() for run in zip(cell.seconds, cell.others, strict=True)]
    measured = sum(seconds for seconds, _ in runs)
    foreign = sum(seconds * others for seconds, others in runs) / measured if measured else 0.0
    busy = f"while it measured ({measured:.0f} s), all else on the machine took {foreign:.2f} cores"
    parts = [_HEAD]
    parts.append(
        f"{about['began']} to {about['ended']}: {place['cores']} × {place['cpu']}, {place['memoryGibibytes']} GiB, "
        f"{place['system']}; load {place['load']:.1f} when it began; {busy}. {about['rounds']} rounds, medians; "
        f"a run of more than {about['once']:g} s was not repeated, one of more than {about['cap']:g} s given up."
        f"\n\n{names}."
    )
    if about["late"]:
        parts.append(f"The time ({about['minutes']:g} minutes) was over before all rounds were done.")
    for kind, title in (("engine", "Tasks are calls"), ("build", "Tasks are processes (`true`, two at a time)")):
        ones = [engine for engine in engines if engine.kind == kind]
        if not ones:
            continue
        parts += [f"## {title}", "Tasks per second, median (min–max):", table_text(ones, shapes, cells, rate_text)]
        mine = [engine.name for engine in ones if engine.name in COMPARED]
        parts += [text for name in mine if (text := ratios_text(ones, shapes, cells, name))]
        parts += ["Seconds, median:", table_text(ones, shapes, cells, seconds_text)]
        parts += ["CPU milliseconds per task, all processes, median:", table_text(ones, shapes, cells, cpu_text)]
    for ours, least in (("taskgraph/noop", PROCESS), ("taskgraph/noop-full", DISK)):
        if any(engine.name == ours for engine in engines):
            found = "; ".join(behind(engines, shapes, cells, ours, least)) or "none"
            parts.append(f"Faster than `{ours}` somewhere, among those that survive as much: {found}.")
    failures = [f"- {cell.engine}, {cell.shape}: {cell.failed}" for cell in cells.values() if cell.failed]
    if failures:
        parts += ["## Not measured", "\n".join(failures)]
    parts += [_TIMED, "## What a task is, and what survives"]
    for key, words in SURVIVES.items():
        told = [f"- `{one.name}`: {one.task}. {one.durable[1]}." for one in engines if one.durable[0] == key]
        if told:
            parts += [f"{words}:", "\n".join(told)]
    return "\n\n".join(part.rstrip() for part in parts) + "\n"
