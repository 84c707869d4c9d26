"""Many histories, over several processes, and what they met: the report of `scripts/simulate`.

A process plays a chunk of seeds at a time and hands back its counters, so that a run of millions holds no more than a
run of dozens. A run that is told to stop plays its chunks to their end and reports what was played.
"""

import concurrent.futures
import gc
import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any, Final

from tests.simulation.drawn import NAMES, drawn
from tests.simulation.forking import FORK, forking
from tests.simulation.histories import world_of
from tests.simulation.races import RACES
from tests.simulation.remembered import remembering
from tests.simulation.world import World

CHUNKS: Final = {"tiny": 250, "small": 50, "mixed": 25}
"""Profile -> histories that a process plays before it reports: about half a second of them."""

REACH_HISTORIES_MIN: Final = {"tiny": 100_000, "small": 20_000, "mixed": 2_000}
"""Profile -> so many histories must have met every race that there is in it."""

BEYOND: Final[Mapping[str, frozenset[str]]] = {"tiny": frozenset({"R15"})}
"""Profile -> races that it cannot be asked to meet: a relay between two commits takes more tasks than three."""

EVERYDAY_TINY: Final = 4_000
"""The tiny histories of the day that every run of the tests plays; the campaigns of the day go on after them."""

OF_THE_DAY: Final = {"tiny": 196_000, "small": 2_000, "mixed": 400}
"""Profile -> histories that the campaigns of the day play."""

VIOLATIONS_KEPT_MAX: Final = 100


def first_of_the_day() -> int:
    """The first seed of today (UTC), or of TASKGRAPH_TEST_DAY: each day plays histories that no other day plays."""
    day = os.environ.get("TASKGRAPH_TEST_DAY") or datetime.now(UTC).date().isoformat()
    return date.fromisoformat(day).toordinal() * 1_000_000


@dataclass
class Report:
    """What was played. ends: state of the graph -> histories; violations: (seed, what broke), the first of them."""

    profile: str = "mixed"
    first: int = 0
    histories: int = 0
    calls: int = 0
    commits: int = 0
    steps: int = 0
    tasks: int = 0
    runs: int = 0
    extended: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    met: Counter[str] = field(default_factory=Counter)
    drawn: Counter[str] = field(default_factory=Counter)
    violations: list[tuple[int, str]] = field(default_factory=list)
    broken: int = 0
    seconds: float = 0.0
    cut_short: bool = False

    def add(self, other: "Report") -> None:
        """Take in what another process has played."""
        self.histories += other.histories
        self.calls += other.calls
        self.commits += other.commits
        self.steps += other.steps
        self.tasks += other.tasks
        self.runs += other.runs
        self.extended += other.extended
        self.ends.update(other.ends)
        self.faults.update(other.faults)
        self.met.update(other.met)
        self.drawn.update(other.drawn)
        self.broken += other.broken
        self.violations = sorted(self.violations + other.violations)[:VIOLATIONS_KEPT_MAX]

    def missed(self) -> list[str]:
        """Races that no history met, though there are some in its profile."""
        beyond = BEYOND.get(self.profile, frozenset())
        return [race for race in RACES if not self.met[race] and race not in beyond]

    def as_object(self) -> dict[str, Any]:
        """The report for machines."""
        return {
            "profile": self.profile,
            "firstSeed": self.first,
            "lastSeed": self.first + self.histories - 1,
            "cutShort": self.cut_short,
            "histories": self.histories,
            "seconds": round(self.seconds, 3),
            "historiesPerSecond": round(self.histories / self.seconds, 1) if self.seconds else None,
            "storageCalls": self.calls,
            "commits": self.commits,
            "steps": self.steps,
            "tasks": self.tasks,
            "runs": self.runs,
            "extensions": self.extended,
            "ends": dict(sorted(self.ends.items())),
            "faults": dict(sorted(self.faults.items())),
            "races": {race: self.met[race] for race in RACES},
            "missed": self.missed(),
            "drawn": {name: self.drawn[name] for name in NAMES},
            "violations": self.broken,
            "violationsKept": [{"seed": seed, "what": what} for seed, what in self.violations],
        }


def judged(world: World, *, steps_max: int | None = None) -> tuple[str, str]:
    """Play a history; gives how it ended ("" if it did not), and what broke ("" if nothing did)."""
    try:
        end = world.run() if steps_max is None else world.run(steps_max)
        expected = world.oracle()
    except Exception as error:
        return "", f"{type(error).__name__}: {error}"
    return end, "" if end == expected else f"ended {end}, and should have {expected}"


def play(seed: int, *, profile: str = "mixed") -> Report:
    """One history, held against what graph and outcomes alone say."""
    world = world_of(seed, profile=profile)
    report = Report(profile, seed, histories=1, drawn=Counter(drawn(world)))
    end, broken = judged(world)
    if end:
        report.ends[end] += 1
    if broken:
        report.broken = 1
        report.violations.append((seed, broken))
    report.calls, report.commits, report.steps = world.calls, world.commits, world.steps
    report.tasks, report.runs, report.extended = len(world.tasks), len(world.executions), sum(world.extended)
    report.faults, report.met = world.fault_counts, world.watch.met
    vars(world).clear()  # its parts know it and each other: so most of it goes at once, and not to the collector
    return report


def _chunk(task: tuple[int, int, str]) -> Report:
    first, count, profile = task
    report = Report(profile, first)
    collects = gc.isenabled()
    gc.disable()  # what a history leaves is collected below, at once, and not at every few hundredth object
    gc.freeze()
    try:
        with remembering():
            for seed in range(first, first + count):
                report.add(play(seed, profile=profile))
    finally:
        gc.collect()
        gc.unfreeze()
        if collects:
            gc.enable()
    return report


def _ready(starter: int) -> None:
    """A process of a campaign leaves signals to the one that started it, and ends with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.nice(5)  # nobody waits for one history: tests beside it, of real processes and their leases, go first

    def end_with_it() -> None:
        while os.getppid() == starter:
            time.sleep(1.0)
        os._exit(1)  # nobody takes what is played

    threading.Thread(target=end_with_it, daemon=True).start()


def _chunks(first: int, histories: int | None, profile: str) -> Iterator[tuple[int, int, str]]:
    size, seed = CHUNKS[profile], first
    while histories is None or seed < first + histories:
        count = size if histories is None else min(size, first + histories - seed)
        yield seed, count, profile
        seed += count


def campaign(
    first: int,
    *,
    histories: int | None,
    seconds: float | None = None,
    processes: int = 1,
    profile: str = "mixed",
    progress: Callable[[Report], None] | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> Report:
    """Play histories from seed `first` on: so many, or for so long.

    progress: told now and then what has been played. stopped: asked now and then whether to end early.
    """
    began = time.monotonic()
    report = Report(profile, first)

    def over() -> bool:
        report.cut_short = report.cut_short or stopped()
        return report.cut_short or (seconds is not None and time.monotonic() - began >= seconds)

    def take(part: Report) -> None:
        report.add(part)
        report.seconds = time.monotonic() - began
        if progress is not None:
            progress(report)

    chunks = _chunks(first, histories, profile)
    if processes == 1:
        while not over() and (chunk := next(chunks, None)) is not None:
            take(_chunk(chunk))
    else:
        with (
            forking(),
            concurrent.futures.ProcessPoolExecutor(
                processes, mp_context=FORK, initializer=_ready, initargs=(os.getpid(),)
            ) as pool,
        ):
            under_way: set[concurrent.futures.Future[Report]] = set()
            while True:
                while len(under_way) < processes * 2 and not over() and (chunk := next(chunks, None)) is not None:
                    under_way.add(pool.submit(_chunk, chunk))
                if not under_way:
                    break
                done, under_way = concurrent.futures.wait(
                    under_way, timeout=1.0, return_when=concurrent.futures.FIRST_COMPLETED
                )
                for each in done:
                    take(each.result())
    report.seconds = time.monotonic() - began
    report.cut_short = report.cut_short and histories is not None and report.histories < histories
    return report


def again(profile: str, seed: int) -> str:
    """The command that plays one history again."""
    return f"scripts/simulate{'' if profile == 'mixed' else f' --{profile}'} --seed {seed}"


def text(report: Report) -> str:
    """The report, as Markdown."""
    last = report.first + report.histories - 1
    per_second = report.histories / report.seconds if report.seconds else 0.0
    each = report.calls / report.histories if report.histories else 0.0
    cut = ", CUT SHORT" if report.cut_short else ""
    played = f"{report.histories:,} histories in {report.seconds:.1f} s ({per_second:.0f}/s){cut}"
    lines = [
        f"{report.profile}: seeds {report.first} to {last}: {played}",
        f"{report.tasks:,} tasks, {report.runs:,} runs, {report.extended:,} extensions",
        f"{report.calls:,} storage calls ({each:.0f} in each), {report.commits:,} commits, {report.steps:,} steps",
        "ended: " + ", ".join(f"{count:,} {end}" for end, count in sorted(report.ends.items())),
        "faults: " + ", ".join(f"{count:,} {kind}" for kind, count in sorted(report.faults.items())),
        f"one of them again: {again(report.profile, report.first)}",
        "",
        "| race | reached | what was seen |",
        "|---|---:|---|",
        *(f"| {race} | {report.met[race]:,} | {what} |" for race, what in RACES.items()),
        "",
        "| drawn | histories | share |",
        "|---|---:|---:|",
        *(
            f"| {name} | {report.drawn[name]:,} | {report.drawn[name] / max(1, report.histories):.1%} |"
            for name in NAMES
        ),
        "",
        f"violations: {report.broken:,}",
    ]
    return "\n".join(lines)


def as_json(reports: list[Report]) -> str:
    """All reports, for machines."""
    return json.dumps([report.as_object() for report in reports], indent=2)
