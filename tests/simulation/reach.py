"""What the simulation reaches: every race of the list, and every branch of taskgraph/ that catches a storage error.

A run in a process of its own: the branches are counted from the first import on, histories of the world and of whole
processes are played, and small scenes with every fault at every call. It fails, and names them, if a race that is to be
counted here or a branch was never reached. Branches that no simulated store can reach are listed in `ELSEWHERE`, each
with the test that reaches it instead.

    python -m tests.simulation.reach [--json]
"""

import argparse
import gc
import json
import logging
import sys
import time
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.simulation import branches
from tests.simulation.branches import ROOT, Branch, Taken

WORLD_SEED: Final = 700
HISTORIES: Final = 400
RARE_HISTORIES: Final = 400  # of few tasks: what the others meet seldom
PROCESS_SEEDS: Final = range(60)
DESKS_EVERY: Final = 3
TIMER_SEEDS: Final = range(15)


@dataclass(frozen=True)
class Place:
    """Branches that are reached by tests, and not here.

    name: what the comment `# reach: NAME` at each of them says. package: all branches of it, without a comment.
    """

    name: str
    because: str
    tests: tuple[str, ...]
    package: str = ""


TWO_PROCESSES: Final = "two-processes"
"""The name of those branches that only two real processes reach, in which nothing is counted."""

ELSEWHERE: Final = (
    Place(
        "azure",
        "the cloud's adapters: errors of the SDK, which no simulated store raises",
        (
            "tests/unit/test_storage_azure.py",
            "tests/unit/test_linked.py",
            "tests/unit/test_storage_azure_thin.py",
            "tests/unit/test_storage_azure_time.py",
            "tests/simulation/test_reach_elsewhere.py",
            "tests/contract",
        ),
        "taskgraph.storage.azure.",
    ),
    Place(
        TWO_PROCESSES,
        "two processes at the same moment at the same new file",
        ("tests/unit/test_storage_embedded.py::test_many_stores_may_make_the_file_at_once",),
    ),
    Place(
        "file",
        "the adapter of SQLite and files: errors of SQLite and of the system",
        (
            "tests/unit/test_storage_embedded.py",
            "tests/unit/test_storage_embedded_turns.py",
            "tests/unit/test_storage_checks.py",
            "tests/contract",
            "tests/simulation/test_reach_elsewhere.py",
        ),
        "taskgraph.storage.sqlite.",
    ),
    Place(
        "stock",
        "going on alone, the stock, and a desk: processes that are played here seldom have the one or the other",
        ("tests/scenarios/test_worker.py", "tests/scenarios/test_worker_troubles.py"),
    ),
    Place(
        "lead",
        "the lead over a queue: those who are played here are mostly killed before they could give it up",
        (
            "tests/scenarios/test_lead.py",
            "tests/scenarios/test_event_queues.py",
            "tests/scenarios/test_poison_and_consumer.py",
        ),
    ),
    Place(
        "beside",
        "what a consumer does while messages are handled: handlers that are played here do one thing after the other",
        ("tests/scenarios/test_beside.py",),
    ),
    Place(
        "cache",
        "runs that stand for others: the graphs that are played here have none",
        ("tests/scenarios/test_cache_troubles.py",),
    ),
    Place(
        "client",
        "the synchronous client: none is played here",
        ("tests/unit/test_client.py",),
    ),
    Place(
        "registry",
        "the registry of workers, on which nothing rests: those who are played here are not listed",
        (
            "tests/scenarios/test_workers.py",
            "tests/contract/test_registry.py",
            "tests/simulation/test_reach_elsewhere.py",
        ),
    ),
    Place(
        "deletion",
        "graphs that are deleted, archived and put back: they have ended, and the histories here end with them",
        (
            "tests/scenarios/test_retention.py",
            "tests/scenarios/test_archives.py",
            "tests/hostile/test_archived.py",
            "tests/scenarios/test_keeping_house.py",
            "tests/simulation/test_deleted.py",
            "tests/unit/test_successor.py",
        ),
    ),
    Place(
        "lists",
        "an entry of a submission that was not the one: next to never is the answer lost to the call that takes it off",
        ("tests/simulation/test_reach_elsewhere.py",),
    ),
    Place(
        "loops",
        "loops for what is over by time, and for workers that died: those who are played here are soon over",
        ("tests/simulation/test_reach_elsewhere.py",),
    ),
    Place(
        "schedules",
        "the loop that looks at schedules: what it looks at is played here, without a loop",
        ("tests/scenarios/test_keep_schedules.py",),
    ),
    Place(
        "store-times",
        "times of the store's own rows, which no clock writes here",
        ("tests/scenarios/test_clocks.py", "tests/simulation/test_reach_elsewhere.py"),
    ),
    Place(
        "sight",
        "what a link or an archive does not show: every simulated store shows all",
        ("tests/unit/test_linked.py",),
    ),
    Place(
        "notices",
        "notices: the graphs that are played here name no channels",
        ("tests/scenarios/test_notices.py", "tests/unit/test_notices.py"),
    ),
    Place(
        "prices",
        "the list of prices, which no history writes",
        ("tests/unit/test_spending.py",),
    ),
    Place(
        "plans",
        "plans that are made again of rows of different moments: others seldom write while one is",
        ("tests/scenarios/test_planned.py",),
    ),
    Place(
        "away",
        "waits that outlast a store that is away: those who are played here look again by themselves",
        ("tests/unit/test_waiting.py", "tests/scenarios/test_notices.py", "tests/scenarios/test_logs.py"),
    ),
    Place(
        "http",
        "the HTTP API: none of those who are played here asks over it",
        (
            "tests/http/test_access.py",
            "tests/http/test_archives.py",
            "tests/http/test_changes.py",
            "tests/http/test_events.py",
            "tests/http/test_mutated.py",
            "tests/http/test_ports.py",
            "tests/http/test_shares.py",
            "tests/http/test_taskcluster.py",
            "tests/http/test_troubles.py",
            "tests/simulation/test_reach_elsewhere.py",
        ),
    ),
    Place(
        "gateway",
        "workers elsewhere: all who are played here have the store at hand",
        ("tests/scenarios/test_gateway_lost.py",),
    ),
    Place(
        "gates",
        "gates of targets: none is closed here",
        ("tests/scenarios/test_gates.py", "tests/simulation/test_reach_elsewhere.py"),
    ),
    Place(
        "permits",
        "permits of limited targets: no target is limited here",
        ("tests/scenarios/test_permits.py", "tests/scenarios/test_gateway_lost.py"),
    ),
    Place(
        "windows",
        "what is sent later: the graphs that are played here fit into one window",
        (
            "tests/scenarios/test_priorities.py",
            "tests/unit/test_windows.py",
            "tests/simulation/test_reach_elsewhere.py",
        ),
    ),
    Place(
        "door",
        "the function app's door: its host acknowledges and gives back, and no host of functions is played here",
        ("tests/scenarios/test_door.py",),
    ),
    Place(
        "telemetry",
        "telemetry: it passes on whatever it measures, and nothing is measured here",
        (
            "tests/unit/test_telemetry.py",
            "tests/scenarios/test_telemetry.py",
            "tests/simulation/test_reach_elsewhere.py",
        ),
    ),
    Place(
        "executors",
        "code and commands of users: what is caught there is theirs, and no storage is called",
        ("tests/unit/test_executors_callables.py", "tests/unit/test_executors_command.py"),
        "taskgraph.worker.executors.",
    ),
    Place(
        "terminal",
        "the terminal: a store that goes away while somebody looks at it, and two signals",
        ("tests/simulation/test_reach_elsewhere.py",),
        "taskgraph.interfaces.cli.",
    ),
)


def elsewhere(branch: Branch) -> Place | None:
    """Where a branch is reached, if not here: by its comment, or else by its package."""
    named = next((place for place in ELSEWHERE if place.name == branch.mark), None)
    return named or next((place for place in ELSEWHERE if place.package and branch.id.startswith(place.package)), None)


@dataclass
class Reached:
    """What a run has reached. met: race -> times. faults: kind -> times. slips: warnings and errors that nobody saw."""

    met: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    taken: Taken = field(default_factory=Taken)
    histories: int = 0
    processes: int = 0
    scenes: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    violations: list[str] = field(default_factory=list)
    slips: list[str] = field(default_factory=list)

    def as_object(self) -> dict[str, Any]:
        """For the process that asked for the run."""
        return {
            "met": self.met,
            "faults": self.faults,
            "times": self.taken.times,
            "classes": self.taken.classes,
            "histories": self.histories,
            "processes": self.processes,
            "scenes": self.scenes,
            "seconds": self.seconds,
            "cpuSeconds": self.cpu_seconds,
            "violations": self.violations,
            "slips": self.slips,
        }


def races_missed(met: Mapping[str, int], counted: Mapping[str, str]) -> list[str]:
    """Races with a counter that never moved."""
    return [f"race {race}: {what}" for race, what in counted.items() if not met.get(race)]


def branches_missed(found: Sequence[Branch], taken: Taken) -> list[str]:
    """Branches that are to be taken here, and never were; with the names that they never caught."""
    missed = []
    for branch in found:
        names = taken.missed(branch)
        if names and elsewhere(branch) is None:
            missed.append(f"branch {branch.id} (line {branch.line}) never caught {', '.join(names)}")
    return missed


def counted_races() -> dict[str, str]:
    """All races with a counter, in their order."""
    from tests.simulation.races import BESIDE, RACES

    return dict(sorted({**RACES, **BESIDE}.items()))


def failures(reached: Reached) -> list[str]:
    """Why a run fails; nothing if it reached everything and broke nothing."""
    return [
        *(f"violation: {each}" for each in reached.violations),
        *(f"nobody saw: {each}" for each in reached.slips),
        *races_missed(reached.met, counted_races()),
        *branches_missed(branches.branches(), reached.taken),
    ]


# --- the run ---------------------------------------------------------------------------------------------------


def listen(slips: list[str]) -> None:
    """Take down what would otherwise be printed and passed over: coroutines that nobody awaits, errors at the end."""
    warnings.simplefilter("error")

    def unraisable(what: Any) -> None:
        slips.append(f"{what.err_msg or 'ignored'}: {what.exc_value!r} in {what.object!r}")

    sys.unraisablehook = unraisable


def rare_world(seed: int) -> Any:
    """What the rarest races need.

    Words of an earlier run that come when all is over; and extensions of many steps, under a graph of few tasks.
    """
    from taskgraph.documents.nodes import GraphDocument, TaskNode
    from tests.simulation.bounds import CHUNKED
    from tests.simulation.world import Faults, World

    if seed % 2:
        document = GraphDocument({"a": TaskNode("a", (), 1)})
        return World(seed, document, {"a": 1}, [], Faults(double=0.4, unavailable=0.1))
    document = GraphDocument({"a": TaskNode("a"), "b": TaskNode("b", ("a",))})
    requires = {"x": ("a", "b"), "y": ("x", "a"), "z": ("a",), "v": ("b",)}
    extension = GraphDocument({label: TaskNode(label, wanted) for label, wanted in requires.items()})
    return World(seed, document, {}, [extension], Faults(crash=0.01), bounds=CHUNKED)


def play() -> Reached:
    """Play everything. The counters have to be in place."""
    from tests.simulation import desks, histories, test_processes
    from tests.simulation.invariants import Violation

    began = time.monotonic()
    reached = Reached(taken=branches.TAKEN)
    listen(reached.slips)
    logging.getLogger("taskgraph").addHandler(logging.NullHandler())
    logging.disable(logging.CRITICAL)  # warnings about faults that are wanted
    for number in range(HISTORIES + RARE_HISTORIES):
        seed = WORLD_SEED + number
        world = histories.world_of(seed) if number < HISTORIES else rare_world(seed)
        try:
            end = world.run()
            if end != world.oracle():
                reached.violations.append(f"world {seed} ended {end}")
        except (AssertionError, Violation) as error:
            reached.violations.append(f"world {seed}: {error}")
        reached.met.update(world.watch.met)
        reached.faults.update(world.fault_counts)
        reached.histories += 1
    for seed in PROCESS_SEEDS:
        processes = test_processes.world_of(seed)
        try:
            processes.verdict(processes.run())
        except AssertionError as error:
            reached.violations.append(f"processes {seed}: {error}")
        reached.met.update(processes.met)
        reached.faults.update({"crash": processes.crashes, "pause": processes.pauses})
        reached.processes += 1
    reached.met["R19"] += reached.faults["lose"]
    scenes, violations = desks.play_all(reached.met, reached.faults, every=DESKS_EVERY)
    reached.scenes = scenes
    reached.violations += [f"desk {each}" for each in violations]
    _play_timers(reached)
    gc.collect()  # a coroutine that nobody awaited says so when it goes
    reached.seconds = time.monotonic() - began
    reached.cpu_seconds = time.process_time()
    return reached


def _play_timers(reached: Reached) -> None:
    """Schedules: histories, and every fault at every call."""
    from tests.simulation import timers
    from tests.simulation.invariants import Violation

    for seed in TIMER_SEEDS:
        try:
            reached.met.update(timers.play(seed))
        except (AssertionError, Violation) as error:
            reached.violations.append(f"timers {seed}: {error}")
        reached.histories += 1
    scenes, violations = timers.play_scenes(reached.met)
    reached.scenes += scenes
    reached.violations += [f"timers {each}" for each in violations]


# --- the report ------------------------------------------------------------------------------------------------


def report(reached: Reached) -> str:
    """Both tables, as Markdown."""
    from tests.simulation.races import ALL_IDS, BESIDE, RACES
    from tests.simulation.races import ELSEWHERE as RACES_ELSEWHERE

    faults = ", ".join(f"{count:,} {kind}" for kind, count in sorted(reached.faults.items()))
    played = f"{reached.histories:,} histories, {reached.processes:,} of whole processes, {reached.scenes:,} scenes"
    lines = [
        f"{played}, in {reached.seconds:.0f} s ({reached.cpu_seconds:.0f} s of CPU); faults: {faults}",
        "",
        "| race | reached | what was seen, or where it is shown |",
        "|---|---:|---|",
    ]
    for race in ALL_IDS:
        for key, what in {**RACES, **BESIDE}.items():
            if key.split()[0] == race:
                lines.append(f"| {key} | {reached.met[key]:,} | {what} |")
        if race in RACES_ELSEWHERE:
            other = RACES_ELSEWHERE[race]
            tests = "".join(f"; {each}" for each in other.tests)
            lines.append(f"| {race} | {'test' if tests else '-'} | {other.because}{tests} |")
    lines += ["", "| branch | line | taken | of these |", "|---|---:|---:|---|"]
    for branch in branches.branches():
        place = elsewhere(branch)
        if place is not None and not reached.taken.times[branch.id]:
            continue
        classes = reached.taken.classes.get(branch.id, {})
        names = ", ".join(f"{classes.get(name, 0):,} {name}" for name in branch.required if name != branches.ANY)
        short = branch.id.removeprefix("taskgraph.")
        lines.append(f"| {short} | {branch.line} | {reached.taken.times[branch.id]:,} | {names} |")
    lines += ["", "| branches reached by tests | how many | why not here, and where |", "|---|---:|---|"]
    for place in ELSEWHERE:
        many = sum(elsewhere(branch) is place for branch in branches.branches())
        lines.append(f"| {place.name} | {many} | {place.because}: {', '.join(place.tests)} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Play, print, and fail for what was not reached."""
    parser = argparse.ArgumentParser(prog="scripts/simulate --reach", description=__doc__)
    parser.add_argument("--json", action="store_true", help="counts for another process instead of tables")
    options = parser.parse_args(arguments)
    branches.install()
    reached = play()
    if options.json:
        print(json.dumps(reached.as_object()))
    else:
        print(report(reached))
    missed = failures(reached)
    for each in missed:
        print(f"MISSED {each}", file=sys.stderr)
    return 1 if missed else 0


def exists(test: str, root: Path = ROOT) -> bool:
    """Whether a test, a file or a folder of tests of this name is there."""
    place, _, name = test.partition("::")
    path = root / place
    return path.exists() and (not name or f"def {name}(" in path.read_text("utf-8"))


if __name__ == "__main__":
    sys.exit(main())
