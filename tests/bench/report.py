"""Figures for people and for machines: Markdown tables, JSON, and the machine that they were measured on.

What this room is for: text. It measures nothing but the load of the machine.
"""

import importlib.metadata
import os
import platform
import re
import sqlite3
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from tests.azurite import AzuriteMissing
from tests.azurite import version as azurite_version
from tests.bench.figures import Figures, figure

_PACKAGES: Final = ("azure-core", "azure-data-tables", "azure-storage-queue", "azure-storage-blob", "aiohttp")
_KINDS: Final = ("get", "query", "commit", "send", "receive", "delete", "renew", "count", "log")

_PLACES_SHOWN: Final = 14

# Heading, figure, digits after the point.
_COLUMNS: Final = (
    ("submit s", "submissionSeconds", 2),
    ("run s", "executionSeconds", 2),
    ("ops/task", "operationsPerTask", 2),
    ("empty/task", "emptyPollsPerTask", 2),
    ("conflicts %", "conflictShare", 1),
    ("p50 ms", "latencyMilliseconds.p50", 1),
    ("p99 ms", "latencyMilliseconds.p99", 1),
    ("CPU ms/task", "cpuMillisecondsPerTask", 2),
    ("submit CPU ms/task", "submissionCpuMillisecondsPerTask", 3),
    ("peak MiB", "peakMebibytes", 0),
    ("file bytes/task", "fileBytesPerTask", 0),
)
_ROW_COLUMNS: Final = (
    ("rows put/task", "rowsSubmittedPerTask", 2),
    ("rows put/edge", "rowsSubmittedPerEdge", 2),
    ("rows/task", "rowsWrittenPerTask", 2),
    ("rows/edge", "rowsWrittenPerEdge", 2),
    ("rows read/task", "rowsReadPerTask", 2),
    ("bytes/task", "bytesWrittenPerTask", 0),
    ("bytes/edge", "bytesWrittenPerEdge", 0),
    ("submit ops/task", "submissionOperationsPerTask", 2),
)


def machine() -> dict[str, Any]:
    """Where this runs: nothing that names the machine or its people."""
    model = platform.processor() or platform.machine()
    memory = None
    try:
        if found := re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE):
            model = found[1]
        if found := re.search(r"^MemTotal:\s*(\d+)", Path("/proc/meminfo").read_text(), re.MULTILINE):
            memory = round(int(found[1]) / 1024 / 1024, 1)
    except OSError:
        pass  # no Linux: the platform's own words have to do
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "memoryGibibytes": memory,
        "system": f"{platform.system()} {platform.release()}",
        "load": os.getloadavg()[0],
    }


def versions(tree: Path) -> dict[str, str]:
    """What is measured, and on what. tree: a checkout."""
    found = {
        "taskgraph": commit_of(tree),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        **{name: importlib.metadata.version(name) for name in _PACKAGES},
    }
    try:
        found["azurite"] = azurite_version()
        found["node"] = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    except AzuriteMissing:
        pass  # then nothing was measured on it
    return found


def commit_of(tree: Path) -> str:
    """The commit of a checkout, and whether the package differs from it; `unknown` without git."""
    try:
        commit = _git(tree, "rev-parse", "--short=10", "HEAD")
        changed = _git(tree, "status", "--porcelain", "--", "taskgraph")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return commit + ("+changes" if changed else "")


def _git(tree: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=tree, capture_output=True, text=True, check=True).stdout.strip()


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table, aligned for the terminal too; the first column to the left."""
    lines = [list(headings), *map(list, rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(headings))]

    def told(line: Sequence[str]) -> str:
        first, *others = zip(line, widths, strict=True)
        cells = [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]
        return "| " + " | ".join(cells) + " |"

    rule = (
        "|" + "|".join("-" * (width + 2) if not i else "-" * (width + 1) + ":" for i, width in enumerate(widths)) + "|"
    )
    return "\n".join([told(lines[0]), rule, *map(told, lines[1:])])


def _value(figures: Mapping[str, Any], path: str, digits: int) -> str:
    value = figure(figures, path)
    if value is not None and path == "conflictShare":
        value *= 100
    return number(value, digits)


def _spelled(parts: Mapping[str, float] | None) -> str:
    return "; ".join(f"{name} {value:.2f}" for name, value in (parts or {}).items())


def _dearest(places: Mapping[str, float] | None) -> list[tuple[str, float]]:
    return sorted((places or {}).items(), key=lambda each: -each[1])[:_PLACES_SHOWN]


def cells_text(measured: Mapping[str, Sequence[Figures]], medians: Mapping[str, Figures]) -> str:
    """Tables: speed and cost; operations by kind; rows and bytes; rows by kind; places; CPU by process."""
    kinds = [kind for kind in _KINDS if any(kind in each["operationsPerTaskByKind"] for each in medians.values())]
    kinds += sorted({kind for each in medians.values() for kind in each["operationsPerTaskByKind"]} - set(kinds))
    speed, by_kind, rows = [], [], []
    for name, median in medians.items():
        rates = [each["tasksPerSecond"] for each in measured[name]]
        spread = f"{number(median['tasksPerSecond'], 0)} ({number(min(rates), 0)}–{number(max(rates), 0)})"
        speed.append([name, spread, *(_value(median, path, digits) for _, path, digits in _COLUMNS)])
        of_kind = median["operationsPerTaskByKind"]
        by_kind.append([name, *(number(of_kind.get(kind, 0.0), 2) for kind in kinds)])
        rows.append([name, *(_value(median, path, digits) for _, path, digits in _ROW_COLUMNS)])
    told = [
        [name, *(_spelled(median[path]) for path in ("getsPerTaskByRow", "rowsWrittenPerTaskByRow"))]
        for name, median in medians.items()
    ]
    places = [
        [name if not line else "", place, number(spent, 2)]
        for name, median in medians.items()
        for line, (place, spent) in enumerate(_dearest(median.get("operationsPerTaskByPlace")))
    ]
    cpu = [[name, _spelled(median["cpuMillisecondsPerTask"])] for name, median in medians.items()]
    return "\n\n".join(
        [
            table(["cell", "tasks/s (min–max)", *(heading for heading, _, _ in _COLUMNS)], speed),
            "Operations per task by kind, while the graph runs:",
            table(["cell", *kinds], by_kind),
            "Rows and bytes (put: by the submission):",
            table(["cell", *(heading for heading, _, _ in _ROW_COLUMNS)], rows),
            "Rows per task by kind, while the graph runs:",
            table(["cell", "read by key", "written"], told),
            f"Who asks for them (empty receives too; the {_PLACES_SHOWN} dearest places of each cell):",
            table(["cell", "place, operation", "per task"], places),
            "CPU, milliseconds per task, by process:",
            table(["cell", "while the graph runs"], cpu),
        ]
    )


def idle_text(medians: Mapping[str, Figures]) -> str:
    rows = [
        [
            name,
            number(each["operationsPerHour"], 0),
            "; ".join(f"{kind} {spent:,.0f}" for kind, spent in sorted(each["operationsPerHourByKind"].items())),
            number(each["cpuSecondsPerHour"], 1),
            number(each["firstStartMilliseconds"], 0),
        ]
        for name, each in medians.items()
    ]
    return table(["cell", "ops/hour", "by kind", "CPU s/hour", "then starts within ms"], rows)


def ratios_text(
    first: str, second: str, compared: Mapping[str, Mapping[str, tuple[float | None, float | None, float | None]]]
) -> str:
    """One table for each cell: figure, both values, and the second by the first."""
    parts = []
    for name, figures in compared.items():
        rows = [
            [path, number(a, 3), number(b, 3), number(ratio, 2)]
            for path, (a, b, ratio) in figures.items()
            if a is not None or b is not None
        ]
        parts.append(table([name, first, second, "second / first"], rows))
    return "\n\n".join(parts)


def head_text(about: Mapping[str, Any]) -> str:
    """One paragraph: machine, load, versions."""
    place, names = about["machine"], about["versions"]
    words = ", ".join(f"{name} {version}" for name, version in names.items())
    return (
        f"{about['began']}: {place['cores']} × {place['cpu']}, {place['memoryGibibytes']} GiB, {place['system']}; "
        f"load {place['load']:.1f} when it began, {about['loadAtEnd']:.1f} when it ended; "
        f"{about['repetitions']} repetitions of each cell, medians.\n{words}."
    )
