"""`scripts/simulate`: play histories of the simulated world, or each fault at each storage call; exit 1 on a breach.

With --seed alone, one history is played, and told step by step.
"""

import argparse
import hashlib
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from tests.simulation import campaign, exhaustive, mutants
from tests.simulation.histories import PROFILES, world_of
from tests.simulation.shrink import Shrunk, fresh, shrink
from tests.simulation.world import World

HISTORIES_DEFAULT = {"tiny": 20_000, "small": 4_000, "mixed": 2_000}
LINE_SECONDS = 30.0
LINES_MAX = 1_000
EXIT_BROKEN = 1
EXIT_CUT_SHORT = 130


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    logging.disable(logging.CRITICAL)  # warnings about faults that are wanted
    if options.mutants:
        return mutants.report()
    profiles = [profile for profile in PROFILES if getattr(options, profile)]
    profiles = profiles or (list(PROFILES) if options.day else ["mixed"])
    if options.exhaustive:
        return exhaustive.report(options.processes, pairs=options.pairs, seed=options.seed or 1, lives=options.lives)
    if options.seed is not None and not options.histories and not options.seconds:
        return play_one(options.seed, profiles[0], shrunk=options.shrink)
    return play_many(options, profiles)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/simulate",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=__doc__,
        epilog="exit codes: 0 nothing broke, 1 something did or a race was never reached, 130 cut short, nothing broke",
    )
    for profile, what in PROFILES.items():
        default = " (the default)" if profile == "mixed" else ""
        parser.add_argument(f"--{profile}", action="store_true", help=f"histories of {what}{default}")
    counts = ", ".join(f"{count} {profile}" for profile, count in HISTORIES_DEFAULT.items())
    parser.add_argument("--histories", type=int, metavar="N", help=f"so many of each profile (default {counts})")
    parser.add_argument("--seconds", type=float, metavar="S", help="for so long, for each profile")
    parser.add_argument("--seed", type=int, metavar="N", help="play this history alone, and tell what happens")
    parser.add_argument("--first", type=int, default=1, metavar="N", help="the first seed of many (default 1)")
    processes = min(2, os.cpu_count() or 1)
    parser.add_argument("--day", action="store_true", help="the campaigns of the day, of each profile")
    parser.add_argument("--processes", type=int, default=processes, metavar="P", help="at once (default up to 2)")
    parser.add_argument("--shrink", action="store_true", help="with --seed: tell the shortest history that fails alike")
    parser.add_argument("--no-shrink", action="store_true", help="do not shrink the first history that fails")
    parser.add_argument("--json", action="store_true", help="the report as JSON")
    parser.add_argument("--exhaustive", action="store_true", help="every kind of fault at every storage call instead")
    parser.add_argument("--pairs", type=float, metavar="SHARE", help="with --exhaustive: this share of all pairs too")
    parser.add_argument("--lives", metavar="A-B", help="with --exhaustive: these lives only, counted from 1")
    parser.add_argument("--mutants", action="store_true", help="leave out each rule of the protocol, and be caught")
    return parser


# --- many histories --------------------------------------------------------------------------------------------


def play_many(options: argparse.Namespace, profiles: list[str]) -> int:
    """Campaigns, one profile after the other."""
    first = options.first if options.seed is None else options.seed
    counts = HISTORIES_DEFAULT
    if options.day:
        first, counts = campaign.first_of_the_day(), campaign.OF_THE_DAY
    reports: list[campaign.Report] = []
    with _signals() as stopped:
        for profile in profiles:
            if stopped():
                break
            histories = options.histories or (None if options.seconds else counts[profile])
            played = campaign.EVERYDAY_TINY if options.day and profile == "tiny" else 0
            with _progress(profile, histories) as show:
                report = campaign.campaign(
                    first + played,
                    histories=histories,
                    seconds=options.seconds,
                    processes=options.processes,
                    profile=profile,
                    progress=show,
                    stopped=stopped,
                )
            reports.append(report)
            if not options.json:
                print(campaign.text(report), flush=True)
                for seed, what in report.violations:
                    print(f"VIOLATION {what}\n  replay: {campaign.again(profile, seed)}", flush=True)
        cut_short = stopped()
    missed = 0
    for report in reports:
        races = report.missed() if report.histories >= campaign.REACH_HISTORIES_MIN[report.profile] else []
        missed += len(races)
        if races and not options.json:
            print(f"never reached ({report.profile}): {', '.join(races)}")
    broken = [report for report in reports if report.broken]
    if options.json:
        print(campaign.as_json(reports))
    elif broken and not options.no_shrink:
        seed = broken[0].violations[0][0]
        try:
            shrunk = shrink(world_of(seed, profile=broken[0].profile))
        except ValueError:  # the campaign remembers answers between histories; alone, none is remembered
            print(f"\nseed {seed} does not fail by itself: something was carried over from another history")
        else:
            print(f"\nthe shortest history found that fails like seed {seed}:")
            _print_shrunk(shrunk, campaign.again(broken[0].profile, seed))
    if broken or missed:
        return EXIT_BROKEN
    return EXIT_CUT_SHORT if cut_short else 0


@contextmanager
def _signals() -> Iterator[Callable[[], bool]]:
    """SIGINT and SIGTERM end a run early; gives whether one has come."""
    came: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        came.append(number)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(came)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _progress(profile: str, histories: int | None) -> Iterator[Callable[[campaign.Report], None]]:
    """A bar on a terminal; elsewhere a line now and then."""
    if not sys.stderr.isatty():
        last = time.monotonic()

        def line(report: campaign.Report) -> None:
            nonlocal last
            if time.monotonic() - last >= LINE_SECONDS:
                last = time.monotonic()
                of = f" of {histories:,}" if histories else ""
                rate = report.histories / report.seconds
                told = f"{profile}: {report.histories:,}{of} histories, {rate:.0f}/s, {report.broken} violations"
                print(told, file=sys.stderr, flush=True)

        yield line
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]:.0f}/s, {task.fields[broken]} violations"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(profile, total=histories, rate=0.0, broken=0)
        yield lambda report: bar.update(
            task, completed=report.histories, rate=report.histories / report.seconds, broken=report.broken
        )


# --- one history -----------------------------------------------------------------------------------------------


def play_one(seed: int, profile: str, *, shrunk: bool) -> int:
    """One history, told step by step."""
    world = fresh(world_of(seed, profile=profile), trace=[])
    end, broken = campaign.judged(world)
    if not (shrunk and broken):
        print_history(world)
    print(f"history {fingerprint(world)}: {world.calls} storage calls, {world.commits} commits")
    print(f"violations: {int(bool(broken))}" + (f": {broken}" if broken else f", ended {end}"))
    if broken and shrunk:
        _print_shrunk(shrink(world_of(seed, profile=profile)), campaign.again(profile, seed))
    return EXIT_BROKEN if broken else 0


def print_history(world: World) -> None:
    """What is played, and what happened."""
    for title, document in [
        ("tasks", world.document),
        *((f"extension {n}", each) for n, each in enumerate(world.extensions)),
    ]:
        tasks = (f"{node.label}({', '.join(node.requires)})" for node in document.tasks.values())
        print(f"{title}: {' '.join(tasks)}")
    print(f"runs that fail: {dict(world.fails)}; reruns by hand: {world.reruns}; limits: {dict(world.bounds)}")
    rates = {name: rate for name, rate in vars(world.faults).items() if rate}
    print(f"faults, per storage call: {rates}\n\n step     time  actor        storage call")
    lines = world.trace or []
    if len(lines) > LINES_MAX:  # a history without end
        left_out = len(lines) - LINES_MAX
        lines = [*lines[: LINES_MAX - 50], f"      … {left_out} lines left out", *lines[-50:]]
    for line in lines:
        print(line)


def fingerprint(world: World) -> str:
    """A short name of all that happened in a history that was told."""
    return hashlib.sha256("\n".join(world.trace or ()).encode()).hexdigest()[:12]


def _print_shrunk(shrunk: Shrunk, command: str) -> None:
    world = shrunk.replayed()
    print_history(world)
    faults = sum(world.fault_counts.values())
    print(
        f"\n{len(world.tasks)} tasks, {shrunk.calls} storage calls, {faults} faults (found in {shrunk.plays} histories)"
        f"\nVIOLATION {shrunk.broken}\n  shrink it again: {command} --shrink"
    )


if __name__ == "__main__":
    sys.exit(main())
