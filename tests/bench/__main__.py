"""The command behind `scripts/bench`.

What this room is for: which cells, how often, of which commit, and what is printed. Each repetition goes over all
cells before the next begins (and, comparing, over both commits in turn), so that what the machine does besides meets
all of them alike.
"""

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.azurite import AzuriteFailed, AzuriteMissing, azurite
from tests.bench import anatomy, report
from tests.bench.cells import STORES, Cell, CellFailed, Layout, Place, idle, layout, measure
from tests.bench.figures import Figures, figures_of, idle_figures_of, median_of, ratios
from tests.bench.shapes import EXECUTORS, LARGE, SMALL, STANDARD, TINY, Shape, UnknownShape, chain, edges_of, shape

ROOT: Final = Path(__file__).resolve().parents[2]
SETTLE_SECONDS: Final = 660.0  # of `--idle`, until pauses between two looks have grown as long as they may
KEPT: Final = ROOT / "docs" / "benchmarks"

DONE, FAILED, USAGE, NO_EMULATOR, INTERRUPTED = 0, 1, 2, 3, 130

EXAMPLES: Final = """\
examples:
  scripts/bench --quick                                     a few small cells, to see that all is well
  scripts/bench --shapes chain-200,fan-1000 --stores embedded
  scripts/bench --stores azurite --layouts local,1h1w,2h4w  one process; processes of handlers and workers
  scripts/bench --shapes path/to/graph.json --executors noop,command
  scripts/bench --compare HEAD~5 . --shapes chain-200       a commit and the working tree, in turn
  scripts/bench --idle 120 --layouts 1h1w --repeat 1        operations per hour with nothing to do
  scripts/bench --anatomy                                   by step: what the CPU time of a task is spent on
  scripts/bench --shapes all --keep 2026-08-laptop          writes docs/benchmarks/2026-08-laptop.md and .json

What the columns mean: docs/benchmarks/README.md."""


class Usage(Exception):
    """Something that was asked for does not exist; its text says what does."""


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="scripts/bench",
        description="Measure what moving a graph forward costs: time, storage operations, rows, bytes, CPU, memory.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--list", action="store_true", help="print the shapes, stores, executors and layouts")
    made.add_argument("--quick", action="store_true", help="tiny shapes on both stores, once: under a minute")
    made.add_argument("--shapes", metavar="A,B", help=f"names, files, all, or large (default: {','.join(SMALL)})")
    made.add_argument("--stores", metavar="A,B", help="embedded, azurite (default: both)")
    made.add_argument("--executors", metavar="A,B", help="noop, command (default: noop)")
    made.add_argument("--layouts", metavar="A,B", help="local, or 1h1w … (default: local; --quick: local,1h1w)")
    made.add_argument("--slots", type=int, default=max(2, os.cpu_count() or 2), help="of each worker (default: cores)")
    made.add_argument("--repeat", type=int, metavar="N", help="repetitions of each cell (default: 3; --quick: 1)")
    made.add_argument("--seconds-max", type=float, default=900.0, metavar="S", help="for one repetition (default: 900)")
    made.add_argument(
        "--idle", type=float, metavar="S", help="instead: count for S seconds what waiting for work costs"
    )
    made.add_argument(
        "--anatomy", action="store_true", help="instead: CPU and memory of a task by step, beside the least program"
    )
    made.add_argument("--compare", nargs=2, metavar=("A", "B"), help="two commits in turn; . is the working tree")
    made.add_argument("--json", action="store_true", help="print JSON, with each repetition, instead of tables")
    made.add_argument("--keep", metavar="NAME", help="also write docs/benchmarks/NAME.md and NAME.json")
    return made


def cells_of(options: argparse.Namespace) -> list[Cell]:
    """The cells that were asked for. Raises Usage."""
    if options.anatomy:
        if options.compare or options.quick or options.idle is not None or options.layouts not in (None, "local"):
            raise Usage("--anatomy goes with --shapes, --stores, --executors, --repeat, and the layout local alone")
        if not (options.shapes or options.stores or options.executors):
            return anatomy.usual_cells(options.slots)
    stores = _listed(options.stores or ",".join(STORES))
    executors = _listed(options.executors or "noop")
    for given, known, what in ((stores, STORES, "store"), (executors, tuple(EXECUTORS), "executor")):
        if wrong := [each for each in given if each not in known]:
            raise Usage(f"no {what} is named {wrong[0]!r}: there are {', '.join(known)}")
    if options.slots < 1 or (options.repeat is not None and options.repeat < 1):
        raise Usage("--slots and --repeat are at least 1")
    usual_layouts = "local,1h1w" if options.quick else "local" if options.idle is None else "1h1w"
    try:
        layouts = [layout(text) for text in _listed(options.layouts or usual_layouts)]
        shapes = _shapes_of(options, layouts)
    except (UnknownShape, ValueError) as error:
        raise Usage(str(error)) from error
    cells = [
        Cell(each, store, executor, laid, options.slots)
        for store in stores
        for executor in executors
        for laid in layouts
        for each in shapes
    ]
    if not cells:
        raise Usage("nothing to measure: a list is empty")
    if len(set(map(str, cells))) < len(cells):
        raise Usage("a shape, store, executor or layout is named twice")
    return cells


def _shapes_of(options: argparse.Namespace, layouts: Sequence[Layout]) -> list[Shape]:
    if options.idle is not None:
        if options.idle <= 0:
            raise Usage("--idle is a number of seconds, more than 0")
        if options.compare or options.quick or options.shapes:
            raise Usage("--idle goes with --stores, --layouts and --repeat: what waits has no shape")
        if not all(laid.handlers for laid in layouts):
            raise Usage("--idle is of processes that wait: --layouts 1h1w and its like")
        return [Shape("idle", lambda: chain(1))]  # what is submitted once the time is over
    names = _listed(options.shapes or ",".join(TINY if options.quick else SMALL))
    sets = {"all": STANDARD, "large": LARGE}
    return [shape(one) for name in names for one in sets.get(name, (name,))]


def list_text() -> str:
    rows = []
    for name in STANDARD:
        graph = shape(name).make()
        rows.append([name, f"{len(graph):,}", f"{edges_of(graph):,}"])
    return "\n".join(
        [
            report.table(["shape", "tasks", "edges"], rows),
            "any other size: chain-N, fan-N, layers-LxW, tree-N, independent-N; or the path of a JSON file with tasks",
            f"stores: {', '.join(STORES)}",
            f"executors: {', '.join(EXECUTORS)}",
            f"layouts: {Layout()} (one process), 1h1w, 2h4w … (processes of handlers and of workers)",
        ]
    )


CALLING: Final = ("node.py", "counting.py")
"""Modules of this folder that import the package that is measured."""


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def checkouts(commits: Sequence[str]) -> Iterator[list[Path]]:
    """A checkout of each commit in a temporary folder, with this harness in it; removed on leaving. Raises Usage."""
    with contextlib.ExitStack() as stack:
        trees = []
        for number, commit in enumerate(commits):
            if commit == ".":
                trees.append(ROOT)
                continue
            words = ["git", "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}"]
            found = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
            if found.returncode:
                raise Usage(f"no commit is named {commit!r}")
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="taskgraph-bench-"))
            tree = Path(folder, f"tree-{number}")
            _git("worktree", "add", "--quiet", "--detach", str(tree), found.stdout.strip())
            stack.callback(_git, "worktree", "remove", "--force", str(tree))
            # Both are measured by the same harness, but for the parts that call the package: a commit has its own,
            # which knows where its modules lie, and one that is older than the harness gets those of today.
            bench = tree / "tests" / "bench"
            own = {name: (bench / name).read_bytes() for name in CALLING if (bench / name).exists()}
            shutil.rmtree(bench, ignore_errors=True)
            shutil.copytree(ROOT / "tests" / "bench", bench)
            for name, text in own.items():
                (bench / name).write_bytes(text)
            trees.append(tree)
        needs = {tree: _requirements_of(tree) for tree in trees}
        if len(set(needs.values())) > 1:
            say("bench: the commits ask for different packages; both are measured with those that are installed here")
        yield trees


def _requirements_of(tree: Path) -> tuple[str, ...]:
    with (tree / "pyproject.toml").open("rb") as file:
        return tuple(tomllib.load(file)["project"]["dependencies"])


def _git(*words: str) -> None:
    subprocess.run(["git", *words], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def play(
    cells: Sequence[Cell], places: Mapping[str, Place], repetitions: int, idle_seconds: float | None = None
) -> tuple[dict[str, dict[str, list[Figures]]], list[str]]:
    """Measure; gives tree -> cell -> figures of each repetition, and what failed. A cell that failed is left out."""
    measured: dict[str, dict[str, list[Figures]]] = {name: {str(cell): [] for cell in cells} for name in places}
    failed: dict[str, str] = {}
    total, done, began = len(cells) * len(places) * repetitions, 0, time.monotonic()
    for repetition in range(repetitions):
        for cell in cells:
            for name, place in places.items():
                done += 1
                if str(cell) in failed:
                    continue
                title = f"{cell}" + (f" {name}" if len(places) > 1 else "")
                weigh = repetition == 0  # bytes are the same each time, and counting them is not free
                try:
                    if idle_seconds is not None:
                        waited = idle(cell, place, settle_seconds=SETTLE_SECONDS, seconds=idle_seconds)
                        figures = idle_figures_of(asyncio.run(waited))
                    else:
                        figures = figures_of(asyncio.run(measure(cell, place, weigh=weigh)), weighed=weigh)
                except CellFailed as error:
                    failed[str(cell)] = f"{title}: {error}"
                    say(f"bench: {done}/{total} {failed[str(cell)]}")
                    continue
                measured[name][str(cell)].append(figures)
                told = (
                    f"{figures['operationsPerHour']:,.0f} operations/hour"
                    if idle_seconds is not None
                    else f"{figures['tasksPerSecond']:,.0f} tasks/s, {figures['operationsPerTask']:.2f} operations/task"
                )
                seconds = time.monotonic() - began
                say(f"bench: {done}/{total} {title}: {told}; load {figures['load']:.1f}; {seconds:.0f} s so far")
    for name in measured:
        measured[name] = {cell: each for cell, each in measured[name].items() if each and cell not in failed}
    return measured, list(failed.values())


def run(options: argparse.Namespace) -> int:
    """Measure and print. Raises Usage, AzuriteMissing, AzuriteFailed."""
    cells = cells_of(options)
    if options.keep is not None and (not options.keep or set(options.keep) & set("/\\.")):
        raise Usage("--keep takes a name, without slashes or dots")
    repetitions = options.repeat or (1 if options.quick else 3)
    about: dict[str, Any] = {"began": report.now(), "machine": report.machine(), "repetitions": repetitions}
    with contextlib.ExitStack() as stack:
        commits = options.compare or ["."]
        trees = stack.enter_context(checkouts(commits))
        connection_string = ""
        if any(cell.store == "azurite" for cell in cells):
            say("bench: starting the storage emulator")
            connection_string = stack.enter_context(azurite())
        about["versions"] = report.versions(trees[0])
        names = ["first", "second"] if options.compare else ["this"]
        about["commits"] = {name: report.commit_of(tree) for name, tree in zip(names, trees, strict=True)}
        places = {
            name: Place(tree, connection_string, options.seconds_max) for name, tree in zip(names, trees, strict=True)
        }
        if options.anatomy:
            apart, failed = anatomy.play(cells, places["this"], repetitions, say)
        else:
            measured, failed = play(cells, places, repetitions, options.idle)
    about["loadAtEnd"] = os.getloadavg()[0]
    about["failed"] = failed
    text = report.head_text(about) + "\n\n"
    if options.anatomy:
        return finish(options, {**about, "anatomy": apart}, text + anatomy.text(apart))
    medians = {name: {cell: median_of(each) for cell, each in found.items()} for name, found in measured.items()}
    results: dict[str, Any] = {**about, "medians": medians, "repetitionsOf": measured}
    if options.compare:
        compared = {cell: ratios(medians["first"][cell], medians["second"][cell]) for cell in medians["first"]}
        results["ratios"] = compared
        first, second = (f"{commit} ({about['commits'][name]})" for name, commit in zip(names, commits, strict=True))
        text += report.ratios_text(first, second, compared)
    elif options.idle is not None:
        text += report.idle_text(medians["this"])
    elif medians["this"]:
        text += report.cells_text(measured["this"], medians["this"])
    return finish(options, results, text)


def finish(options: argparse.Namespace, results: dict[str, Any], text: str) -> int:
    """Print what was measured, and keep it, if that was asked for."""
    for failure in results["failed"]:
        text += f"\n\nNot measured: {failure}"
    if options.keep:
        KEPT.mkdir(parents=True, exist_ok=True)
        (KEPT / f"{options.keep}.md").write_text(f"# {options.keep}\n\n{text}\n", "utf-8")
        (KEPT / f"{options.keep}.json").write_text(json.dumps(results, indent=1) + "\n", "utf-8")
        say(f"bench: kept as docs/benchmarks/{options.keep}.md and .json")
    print(json.dumps(results) if options.json else text)
    return FAILED if results["failed"] else DONE


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    if options.list:
        print(list_text())
        return DONE
    try:
        return run(options)
    except Usage as error:
        say(f"bench: {error}")
        return USAGE
    except (AzuriteMissing, AzuriteFailed) as error:
        say(f"bench: {error} (or measure the other store: --stores embedded)")
        return NO_EMULATOR
    except KeyboardInterrupt:
        say("bench: interrupted; nothing is left running")
        return INTERRUPTED


if __name__ == "__main__":
    # The same as an interrupt, which asyncio turns into a cancellation: the children end, then the emulator, then this.
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    sys.exit(main())
