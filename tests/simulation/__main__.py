"""`scripts/simulate`: play histories of the simulated world, or each fault at each storage call; exit 1 on a breach."""

import argparse
import logging
import os
import sys

from tests.simulation import campaign, exhaustive


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="scripts/simulate", description=__doc__)
    parser.add_argument("--histories", type=int, help="so many (default 2000, without --seconds)")
    parser.add_argument("--seconds", type=float, help="for so long")
    parser.add_argument("--seed", type=int, default=1, help="the first one (default 1)")
    parser.add_argument("--processes", type=int, default=min(2, os.cpu_count() or 1), help="at once (default up to 2)")
    parser.add_argument("--small", action="store_true", help="graphs of a few tasks only: many more histories")
    parser.add_argument("--exhaustive", action="store_true", help="every kind of fault at every storage call instead")
    parser.add_argument("--pairs", type=float, metavar="SHARE", help="with --exhaustive: this share of all pairs too")
    options = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)  # warnings about storage that fails, as it is told to
    if options.exhaustive:
        return play_exhaustively(options.processes, options.pairs, options.seed)
    histories = options.histories if options.histories or options.seconds else 2_000
    report = campaign.campaign(
        options.seed,
        histories=histories,
        seconds=options.seconds,
        processes=options.processes,
        small=options.small,
    )
    print(campaign.text(report, options.seed))
    small = " --small" if options.small else ""
    for seed, what in report.violations:
        print(f"VIOLATION {what}\n  replay: scripts/simulate --histories 1 --processes 1{small} --seed {seed}")
    missed = report.missed() if report.histories >= campaign.REACH_HISTORIES_MIN else []
    if missed:
        print(f"never reached: {', '.join(missed)}")
    return 1 if report.violations or missed else 0


def play_exhaustively(processes: int, pairs: float | None, seed: int) -> int:
    """All singles, and a share of the pairs."""
    tallies = exhaustive.play_all_singles(processes)
    print(exhaustive.table(tallies, "life, one fault"))
    if pairs:
        more = exhaustive.play_all_pairs(processes, share=pairs, seed=seed)
        print("\n" + exhaustive.table(more, "life, two faults"))
        tallies = tallies + more
    violations = [violation for tally in tallies for violation in tally.violations]
    for violation in violations:
        print(f"VIOLATION {violation}")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
