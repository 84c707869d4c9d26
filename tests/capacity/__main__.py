"""The command behind `scripts/model`.

What this room is for: where the counts come from, which limits, latencies and prices hold, and what is printed.
"""

import argparse
import json
import logging
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Final

from tests.bench.cells import layout
from tests.bench.shapes import SMALL, UnknownShape, shape
from tests.capacity import checking, report, sharing
from tests.capacity.model import Demand, Latencies, Limits, Prices, predict
from tests.capacity.sources import NoFigures, demands_of, read_kept

KEPT: Final = Path(__file__).resolve().parents[2] / "docs" / "benchmarks"

DONE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130

EXAMPLES: Final = """\
examples:
  scripts/model                                            counts a few shapes in virtual time, and predicts
  scripts/model --benchmark 2026-08-laptop                 from docs/benchmarks/2026-08-laptop.json, or from a path
  scripts/model --play chain-200,fan-10000 --layout 2h4w
  scripts/model --rows 5 --tables 2 --queues 1 --events 0.5 --work 0.5    a task of which you know the counts
  scripts/model --benchmark NAME --commit-ms 20 --account-requests 40000 --accounts 10 --json
  scripts/model --check                                    the model against runs in virtual time, under limits

Exit: 0 predicted (--check: within the tolerance), 1 the check failed or a run was lost, 2 wrong usage, or no such
benchmark or shape. What is counted, documented, assumed and modelled: docs/explanation/capacity.md."""


class Usage(Exception):
    """Something that was asked for makes no sense; its text says why."""


def _positive(text: str) -> float:
    value = float(text)
    if not (math.isfinite(value) and value > 0):
        raise argparse.ArgumentTypeError(f"{text} is not more than 0")
    return value


def _amount(text: str) -> float:
    value = float(text)
    if not (math.isfinite(value) and value >= 0):
        raise argparse.ArgumentTypeError(f"{text} is less than 0")
    return value


def _whole(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return value


_BY_HAND: Final = {
    "rows": "rows read and written",
    "tables": "requests to tables",
    "queues": "requests to queues",
    "events": "messages put, received and deleted on the events queue",
    "work": "the same on a work queue",
    "blobs": "requests to blobs",
    "journal": "commits that follow one another",
    "bytes": "bytes stored",
}


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="scripts/model",
        description="Predict what one graph, one account and many accounts carry on Azure, and what it costs.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    source = made.add_argument_group("where the counts come from (default: --play of a few shapes)")
    source.add_argument("--benchmark", metavar="NAME", help="a kept benchmark, or the path of its .json")
    source.add_argument("--play", metavar="A,B", help=f"count these shapes in virtual time ({','.join(SMALL)})")
    source.add_argument("--layout", default="1h2w", help="of --play: local, or 1h2w … (default: 1h2w)")
    source.add_argument("--slots", type=_whole, default=8, help="of --play: of each worker (default: 8)")
    source.add_argument("--seed", type=int, default=1, help="of --play (default: 1)")
    hand = made.add_argument_group("a task by hand, instead; --rows, --tables and --queues at least")
    for name, words in _BY_HAND.items():
        hand.add_argument(f"--{name}", type=_amount, metavar="X", help=f"{words}, of one task")
    hand.add_argument("--tasks", type=_whole, default=1000, metavar="N", help="tasks of the graph (default: 1000)")
    hand.add_argument("--levels", type=_whole, metavar="N", help="tasks on its longest path; needs --step-ms")
    grants = made.add_argument_group("what the service grants each second (default: as published)")
    for each in fields(Limits):
        default = getattr(Limits(), each.name)
        grants.add_argument(
            _option(each.name), type=_positive, default=default, metavar="X", help=f"default: {default:g}"
        )
    waits = made.add_argument_group("latencies, in milliseconds (assumed)")
    for each in fields(Latencies):
        default = 1000 * getattr(Latencies(), each.name)
        waits.add_argument(
            f"--{each.name}-ms", type=_amount, default=default, metavar="X", help=f"default: {default:g}"
        )
    waits.add_argument(
        "--step-ms", type=_positive, metavar="X", help="from task to task on a path (default: from a chain)"
    )
    costs = made.add_argument_group("prices in US dollars, of 10,000 requests and of a gigabyte for a month")
    for each in fields(Prices):
        default = getattr(Prices(), each.name)
        if isinstance(default, float):
            costs.add_argument(
                f"--price-{each.name.replace('_', '-')}",
                type=_amount,
                default=default,
                metavar="X",
                help=f"default: {default:g}",
            )
    costs.add_argument("--months", type=_amount, default=1.0, metavar="X", help="for which rows are kept (default: 1)")
    made.add_argument("--accounts", type=_whole, default=10, metavar="N", help="of the last column (default: 10)")
    made.add_argument("--check", action="store_true", help="instead: hold the model against runs under limits")
    made.add_argument("--handlers", action="store_true", help="instead: how one, two and four handlers add up")
    made.add_argument("--json", action="store_true", help="print JSON instead of tables")
    return made


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def say(words: str) -> None:
    print(f"model: {words}", file=sys.stderr, flush=True)


def play(options: argparse.Namespace, latencies: Latencies) -> dict[str, Mapping[str, Any]]:
    """The figures of shapes that are played without limits. Raises Usage; AssertionError if a run went wrong."""
    from tests.capacity.playing import Playing  # brings the SDK and all of taskgraph: a second

    names = [each.strip() for each in (options.play or ",".join(SMALL)).split(",") if each.strip()]
    try:
        place = layout(options.layout)
        shapes = [shape(name) for name in names]
    except (UnknownShape, ValueError) as error:
        raise Usage(str(error)) from error
    if not shapes:
        raise Usage("--play names no shape")
    found: dict[str, Mapping[str, Any]] = {}
    for each in shapes:
        say(f"playing {each.name} in virtual time")
        playing = Playing(
            options.seed, each.make(), latencies=latencies, place=place, slots=options.slots, enforced=False
        )
        found[f"{each.name}/virtual/noop/{place}"] = playing.play().figures
    return found


def by_hand(options: argparse.Namespace) -> Demand | None:
    """The task that the options describe, None if there is none. Raises Usage."""
    given = {name: getattr(options, name) for name in _BY_HAND if getattr(options, name) is not None}
    if not given:
        return None
    if options.benchmark or options.play:
        raise Usage(f"--{next(iter(given))} describes a task by hand: it does not go with --benchmark or --play")
    if missing := [name for name in ("rows", "tables", "queues") if name not in given]:
        raise Usage(f"--{missing[0]} is missing")
    if options.levels is not None and options.step_ms is None:
        raise Usage("--levels needs --step-ms")
    demand = Demand(
        name="by hand",
        tasks=options.tasks,
        table_requests=given["tables"],
        queue_requests=given["queues"],
        entities=given["rows"],
        messages={name: given[name] for name in ("events", "work") if name in given},
        blob_requests=given.get("blobs", 0.0),
        facts=given.get("journal"),
        levels=options.levels,
        step_seconds=None if options.step_ms is None else options.step_ms / 1000,
        stored_bytes=given.get("bytes"),
    )
    if not demand.requests or not demand.entities:
        raise Usage("a task that asks for nothing has no bound: --rows and --tables are more than 0")
    return demand


def demands(options: argparse.Namespace, latencies: Latencies) -> tuple[str, list[Demand]]:
    """Where the counts come from, in words, and the demands. Raises Usage, NoFigures, AssertionError."""
    if (demand := by_hand(options)) is not None:
        return "given by hand", [demand]
    step = None if options.step_ms is None else options.step_ms / 1000
    if options.benchmark is None:
        medians = play(options, latencies)
        source = (
            f"in virtual time without limits, seed {options.seed}, {options.layout}, {options.slots} slots a worker"
        )
        return source, demands_of(medians, latencies, step)
    if options.play:
        raise Usage("--benchmark or --play, one of them")
    kept = read_kept(options.benchmark, KEPT)
    commit = kept["versions"].get("taskgraph", "unknown")
    return f"{options.benchmark}, measured {kept['began']}, commit {commit}", demands_of(
        kept["medians"], latencies, step
    )


def run_check(options: argparse.Namespace) -> int:
    """Play all cells, print how they compare. Raises AssertionError."""
    done, onsets = [], []
    for cell in checking.CELLS:
        say(f"playing {cell}")
        done.append((cell, [checking.check(cell, seed) for seed in checking.SEEDS]))
    for cell in checking.ONSETS:
        say(f"playing {cell}, at its limit of the {cell.binds}")
        above, below = (
            [checking.check(cell, seed, factor=factor) for seed in checking.SEEDS]
            for factor in (checking.ABOVE, checking.BELOW)
        )
        onsets.append((cell, above, below))
    wrong = [words for cell, runs in done if (words := checking.holds(cell, runs))]
    wrong += [words for each in onsets if (words := checking.holds_onset(*each))]
    if options.json:
        cells = [{"cell": str(cell), "limit": cell.binds, "runs": _plain(runs)} for cell, runs in done]
        begins = [
            {"cell": str(cell), "limit": cell.binds, "above": _plain(above), "below": _plain(below)}
            for cell, above, below in onsets
        ]
        print(json.dumps({"tolerance": checking.TOLERANCE, "cells": cells, "onsets": begins, "wrong": wrong}))
    else:
        low, high = 1 - checking.TOLERANCE, 1 + checking.TOLERANCE
        print(f"{checking.text(done)}\n\n{checking.onsets_text(onsets)}\n")
        print(f"ratio: virtual by model seconds, by what this run has counted; it holds from {low:.2f} to {high:.2f}.")
        print("What the columns mean: docs/explanation/capacity.md.")
    for words in wrong:
        say(words)
    return FAILED if wrong else DONE


def _plain(runs: Sequence[checking.Checked]) -> list[dict[str, Any]]:
    return [asdict(each) for each in runs]


def run(options: argparse.Namespace) -> int:
    """Predict and print. Raises Usage, NoFigures, AssertionError."""
    if options.check:
        return run_check(options)
    if options.handlers:
        print(sharing.text())
        return DONE
    limits = Limits(**{each.name: getattr(options, each.name) for each in fields(Limits)})
    latencies = Latencies(**{each.name: getattr(options, f"{each.name}_ms") / 1000 for each in fields(Latencies)})
    given: dict[str, Any] = {
        each.name: value
        for each in fields(Prices)
        if (value := getattr(options, f"price_{each.name}", None)) is not None
    }
    if any(value != getattr(Prices(), name) for name, value in given.items()):
        given |= {"date": "this run", "source": "as given by options; those that were not given are " + Prices().source}
    prices = Prices(**given)
    source, found = demands(options, latencies)
    predictions = [
        predict(each, limits, latencies, prices, accounts=options.accounts, months=options.months) for each in found
    ]
    about: dict[str, Any] = {"source": source, "accounts": options.accounts, "months": options.months}
    if options.json:
        print(json.dumps(report.results(predictions, limits, latencies, prices, **about)))
    else:
        print(report.text(predictions, limits, latencies, prices, **about))
    return DONE


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # warnings of a storage that refuses, as it is told to
    try:
        return run(options)
    except (Usage, NoFigures) as error:
        say(str(error))
        return USAGE
    except AssertionError as error:
        say(f"a run in virtual time went wrong: {error}")
        return FAILED
    except KeyboardInterrupt:
        say("interrupted")
        return INTERRUPTED
    finally:
        logging.disable(disabled)


if __name__ == "__main__":
    sys.exit(main())
