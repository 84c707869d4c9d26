"""The account behind `scripts/bench --anatomy`: what the CPU time of a task is spent on, step by step, and the floor.

What this room is for: each cell is run as it is, with samples of its stacks, and as the floor, in turn, time and again;
once more to see what it holds in memory. Steps are means over the repetitions, so that they add up; the time without
samples, and the ratio to the floor of the same turn, are medians.
"""

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.bench.cells import Cell, CellFailed, Layout, Place, measure
from tests.bench.report import number, table
from tests.bench.shapes import document_text, shape
from tests.bench.steps import GARBAGE, OTHER, STEPS

SHAPES: Final = ("chain-1000", "fan-1000", "layers-10x100")
WIDE: Final = "fan-10000"
PLACES_SHOWN: Final = 12

_FLOOR_SECONDS_MAX: Final = 600.0


def usual_cells(slots: int) -> list[Cell]:
    """What is taken apart when nobody says."""
    kinds = [
        ("embedded", "noop", (*SHAPES, WIDE)),
        ("embedded", "command", (SHAPES[0], SHAPES[1])),
        ("azurite", "noop", SHAPES),
    ]
    return [Cell(shape(name), store, executor, Layout(), slots) for store, executor, names in kinds for name in names]


def has_floor(cell: Cell) -> bool:
    return cell.store == "embedded" and cell.executor == "noop"


def floor(cell: Cell, place: Place) -> dict[str, Any]:
    """Run the floor once, in a process of its own; gives what it says. Raises CellFailed."""
    with tempfile.TemporaryDirectory(prefix="taskgraph-bench-") as folder:
        document = Path(folder, "graph.json")
        document.write_text(document_text(cell.shape.make(), cell.executor), "utf-8")
        words = [sys.executable, "-m", "tests.bench.floor", str(document), str(Path(folder, "floor.db"))]
        ran = subprocess.run(
            words, cwd=place.tree, capture_output=True, text=True, check=False, timeout=_FLOOR_SECONDS_MAX
        )
    if ran.returncode:
        raise CellFailed(f"the floor of {cell}: {ran.stderr.strip()[-2000:]}")
    said: dict[str, Any] = json.loads(ran.stdout)
    return said


def turn(cell: Cell, place: Place) -> dict[str, Any]:
    """One repetition, in microseconds per task. Raises CellFailed."""
    plain = asyncio.run(measure(cell, place, weigh=False))
    seen = asyncio.run(measure(cell, place, weigh=False, look="cpu"))
    scale = 1e6 / seen["tasks"]
    (process,) = plain["processes"]
    (sampled,) = seen["processes"]
    submission = seen["submission"]
    one = {
        "plain": process["phase"]["cpu"]["own"] * scale,
        "children": process["phase"]["cpu"]["children"] * scale,
        "plainSubmission": sum(plain["submission"][each]["cpu"]["own"] for each in ("read", "write")) * scale,
        "run": _scaled([sampled["phase"]["sampled"]], scale),
        "submission": _scaled([submission[each]["sampled"] for each in ("read", "write")], scale),
    }
    if "emulatorCpu" in plain:
        one["emulator"] = plain["emulatorCpu"] * scale
    if has_floor(cell):
        found = floor(cell, place)
        one["floor"] = found["run"] * scale
        one["floorSubmission"] = found["submission"] * scale
        one["toFloor"] = one["plain"] / one["floor"]
        one["toFloorSubmission"] = one["plainSubmission"] / one["floorSubmission"]
    return one


def _scaled(parts: Sequence[Mapping[str, Any]], scale: float) -> dict[str, Any]:
    """What several samplings said, together, in another unit."""
    sums: dict[str, Any] = {"samples": sum(each["samples"] for each in parts)}
    for name in ("cpu", "beside", "sampling"):
        sums[name] = sum(each[name] for each in parts) * scale
    for name in ("steps", "places"):
        found: Counter[str] = Counter()
        for each in parts:
            found.update(each[name])
        sums[name] = {key: value * scale for key, value in found.most_common()}
    return sums


def _mean(ones: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The means of what several turns said of a phase; the samples of all."""
    mean = _scaled(ones, 1 / len(ones))
    mean["unseen"] = mean["cpu"] - mean["sampling"] - sum(mean["steps"].values())
    return mean


def held(cell: Cell, place: Place) -> dict[str, list[float]]:
    """Step -> bytes and blocks per task that are held when half of the tasks have completed. Raises CellFailed."""
    facts = asyncio.run(measure(cell, place, weigh=False, look="memory"))
    if "held" not in facts:
        raise CellFailed(f"{cell}: no commit was seen half way")
    return {step: [each / facts["tasks"] for each in sums] for step, sums in facts["held"]["steps"].items()}


def play(
    cells: Sequence[Cell], place: Place, repetitions: int, say: Callable[[str], None]
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Take cells apart; gives cell -> figures, in microseconds, bytes and blocks per task, and what failed."""
    turns: dict[str, list[dict[str, Any]]] = {str(cell): [] for cell in cells}
    memory: dict[str, dict[str, list[float]]] = {}
    failed: dict[str, str] = {}
    for repetition in range(repetitions):
        for cell in cells:
            name = str(cell)
            if name in failed:
                continue
            try:
                turns[name].append(turn(cell, place))
                if not repetition:
                    memory[name] = held(cell, place)
            except CellFailed as error:
                failed[name] = f"{name}: {error}"
                say(f"bench: {failed[name]}")
                continue
            one = turns[name][-1]
            told = f"{one['plain']:,.0f} µs of CPU a task, {one['run']['cpu']:,.0f} with samples"
            floored = f", the floor {one['floor']:,.0f}" if "floor" in one else ""
            say(f"bench: {repetition + 1}/{repetitions} {name}: {told}{floored}")
    figures = {
        name: {**_figures(each), "held": memory[name]} for name, each in turns.items() if each and name not in failed
    }
    return figures, list(failed.values())


def _figures(turns: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    phases = {name: _mean([each[name] for each in turns]) for name in ("run", "submission")}
    single = [name for name in turns[0] if name not in phases]
    return {**phases, **{name: statistics.median(each[name] for each in turns) for name in single}, "turns": len(turns)}


# --- as text


def _heading(cell: str) -> str:
    return cell.removesuffix("/local").removesuffix("/noop")


def text(figures: Mapping[str, Mapping[str, Any]]) -> str:
    """Tables: the run by step, the submission by step, memory, and the dearest functions of each cell."""
    parts = [
        "CPU of our process while the graph runs, microseconds per task:",
        _phase_text(figures, "run", "plain", "floor", "toFloor"),
        "CPU of reading the document and writing its rows, microseconds per task:",
        _phase_text(figures, "submission", "plainSubmission", "floorSubmission", "toFloorSubmission"),
        "Held by Python when half of the tasks have completed, bytes (blocks) per task, by the step that allocated it:",
        _held_text(figures),
        f"The {PLACES_SHOWN} dearest functions of the run, with what they call that no step names:",
    ]
    for name, each in figures.items():
        rows = [[place, number(spent, 1)] for place, spent in list(each["run"]["places"].items())[:PLACES_SHOWN]]
        parts.append(table([name, "µs"], rows))
    return "\n\n".join(parts)


def _steps(found: Iterable[Mapping[str, Any]]) -> list[str]:
    """Of all that were met: as the table of steps has them, and the rest behind."""
    met = set().union(*found)
    return [step for step in (*STEPS, GARBAGE, OTHER) if step in met]


def _phase_text(figures: Mapping[str, Mapping[str, Any]], phase: str, plain: str, floor_name: str, ratio: str) -> str:
    cells = list(figures.values())

    def row(heading: str, get: Callable[[Mapping[str, Any]], float | None], digits: int = 0) -> list[str]:
        return [heading, *(number(get(each), digits) for each in cells)]

    rows = [
        row(step, lambda each, step=step: each[phase]["steps"].get(step, 0.0), 1)  # type: ignore[misc]
        for step in _steps(each[phase]["steps"] for each in cells)
    ]
    rows += [
        row("**all steps**", lambda each: sum(each[phase]["steps"].values())),
        row("of it on other threads", lambda each: each[phase]["beside"]),
        row("the samples themselves", lambda each: each[phase]["sampling"], 1),
        row("process CPU, sampled", lambda each: each[phase]["cpu"]),
        row("of it in no sample, %", lambda each: 100 * each[phase]["unseen"] / each[phase]["cpu"], 1),
        row("samples", lambda each: each[phase]["samples"]),
        row("**process CPU without samples**", lambda each: each[plain]),
        row("the floor", lambda each: each.get(floor_name)),
        row("**ours by the floor**", lambda each: each.get(ratio), 2),
    ]
    if phase == "run":
        rows += [
            row("CPU of commands", lambda each: each["children"] or None),
            row("CPU of the emulator", lambda each: each.get("emulator")),
        ]
    shown = [line for line in rows if not set(line[1:]) <= {"–", "0.0"}]
    return table(["step", *map(_heading, figures)], shown)


def _held_text(figures: Mapping[str, Mapping[str, Any]]) -> str:
    rows = []
    for step in _steps(each["held"] for each in figures.values()):
        found = [each["held"].get(step, (0.0, 0.0)) for each in figures.values()]
        rows.append([step, *(f"{number(size, 0)} ({number(blocks, 1)})" for size, blocks in found)])
    sums = [[sum(column) for column in zip(*each["held"].values(), strict=True)] for each in figures.values()]
    rows.append(["**all**", *(f"{number(size, 0)} ({number(blocks, 1)})" for size, blocks in sums)])
    return table(["step", *map(_heading, figures)], rows)
