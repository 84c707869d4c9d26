"""Many histories, over several processes, and what they met: the report of `scripts/simulate`."""

import multiprocessing
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.simulation.histories import world_of
from tests.simulation.races import RACES

CHUNK = 25  # histories that a process plays before it reports
REACH_HISTORIES_MIN = 2_000  # so many histories must have met every race


@dataclass
class Report:
    """What was played. ends: state of the graph -> histories; violations: (seed, what broke)."""

    histories: int = 0
    calls: int = 0
    tasks: int = 0
    runs: int = 0
    extended: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    met: Counter[str] = field(default_factory=Counter)
    violations: list[tuple[int, str]] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, other: "Report") -> None:
        """Take in what another process has played."""
        self.histories += other.histories
        self.calls += other.calls
        self.tasks += other.tasks
        self.runs += other.runs
        self.extended += other.extended
        self.ends.update(other.ends)
        self.faults.update(other.faults)
        self.met.update(other.met)
        self.violations += other.violations

    def missed(self) -> list[str]:
        """Races that no history met."""
        return [race for race in RACES if not self.met[race]]


def play(seed: int, *, small: bool) -> Report:
    """One history, held against what graph and outcomes alone say."""
    world = world_of(seed, small=small)
    report = Report(histories=1)
    try:
        end = world.run()
        if end != world.oracle():
            report.violations.append((seed, f"ended {end}, and should have {world.oracle()}"))
        report.ends[end] += 1
    except Exception as error:
        report.violations.append((seed, f"{type(error).__name__}: {error}"))
    report.calls, report.tasks, report.runs = world.calls, len(world.tasks), len(world.executions)
    report.extended = sum(world.extended)
    report.faults, report.met = world.fault_counts, world.watch.met
    return report


def _chunk(task: tuple[int, int, bool]) -> Report:
    first, count, small = task
    report = Report()
    for seed in range(first, first + count):
        report.add(play(seed, small=small))
    return report


def _chunks(first: int, histories: int | None, deadline: float | None, small: bool) -> Iterator[tuple[int, int, bool]]:
    seed = first
    while histories is None or seed < first + histories:
        if deadline is not None and time.monotonic() >= deadline:
            return
        count = CHUNK if histories is None else min(CHUNK, first + histories - seed)
        yield seed, count, small
        seed += count


def campaign(
    first: int, *, histories: int | None, seconds: float | None = None, processes: int = 1, small: bool = False
) -> Report:
    """Play histories from seed `first` on: so many, or for so long."""
    began = time.monotonic()
    deadline = None if seconds is None else began + seconds
    report = Report()
    chunks = _chunks(first, histories, deadline, small)
    if processes == 1:
        for chunk in chunks:
            report.add(_chunk(chunk))
    else:
        with multiprocessing.get_context("fork").Pool(processes) as pool:
            while batch := [chunk for _, chunk in zip(range(processes * 2), chunks, strict=False)]:
                for part in pool.imap_unordered(_chunk, batch):
                    report.add(part)
    report.seconds = time.monotonic() - began
    return report


def text(report: Report, first: int) -> str:
    """The report, as Markdown."""
    last = first + report.histories - 1
    per_second = report.histories / report.seconds if report.seconds else 0.0
    lines = [
        f"seeds {first} to {last}: {report.histories:,} histories in {report.seconds:.1f} s ({per_second:.0f}/s)",
        f"{report.tasks:,} tasks, {report.runs:,} runs, {report.extended:,} extensions, {report.calls:,} storage calls",
        "ended: " + ", ".join(f"{count:,} {end}" for end, count in sorted(report.ends.items())),
        "faults: " + ", ".join(f"{count:,} {kind}" for kind, count in sorted(report.faults.items())),
        "",
        "| race | reached | what was seen |",
        "|---|---:|---|",
        *(f"| {race} | {report.met[race]:,} | {what} |" for race, what in RACES.items()),
        "",
        f"violations: {len(report.violations)}",
    ]
    return "\n".join(lines)
