"""From what processes counted to figures: per task and per edge, medians over repetitions, ratios of two commits.

What this room is for: plain arithmetic on plain values. It never measures, and never reads or writes a file.
"""

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

EMPTY: Final = "empty"  # the kind of a receive that gave nothing: counted apart from the operations

Figures = dict[str, Any]
"""Name -> number, or None where it does not apply, or such a mapping again (by kind, by role)."""


def _summed(phases: Iterable[Mapping[str, Any]], what: str) -> Counter[str]:
    total: Counter[str] = Counter()
    for phase in phases:
        total.update(phase[what])
    return total


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _by_kind(sums: Mapping[str, int], what: str, tasks: int) -> dict[str, float]:
    head = f"{what}:"
    return {name.removeprefix(head): sums[name] / tasks for name in sorted(sums) if name.startswith(head)}


def figures_of(facts: Mapping[str, Any], *, weighed: bool) -> Figures:
    """The figures of one repetition. weighed: whether bytes were counted."""
    tasks, edges = facts["tasks"], facts["edges"]
    read, write = facts["submission"]["read"], facts["submission"]["write"]
    running = [process["phase"] for process in facts["processes"] if "phase" in process]
    operations, sums = _summed(running, "operations"), _summed(running, "sums")
    empty = operations.pop(EMPTY, 0)
    written = Counter(write["sums"])
    commits = operations["commit"]
    submission_seconds = read["seconds"] + write["seconds"]
    cpu: Counter[str] = Counter()
    for process in facts["processes"]:
        if "phase" in process:
            cpu[process["role"]] += process["phase"]["cpu"]["own"]
            cpu["children"] += process["phase"]["cpu"]["children"]
    if "emulatorCpu" in facts:
        cpu["emulator"] = facts["emulatorCpu"]
    latency = facts["rows"].get("latencySeconds", {})
    bytes_all = written["bytesWritten"] + sums["bytesWritten"]
    return {
        "tasks": tasks,
        "edges": edges,
        "load": facts["load"],
        "tasksPerSecond": tasks / facts["seconds"],
        "endToEndTasksPerSecond": tasks / (submission_seconds + facts["seconds"]),
        "executionSeconds": facts["seconds"],
        "submissionSeconds": submission_seconds,
        "validationSeconds": read["seconds"],
        "submissionTasksPerSecond": tasks / submission_seconds,
        "operationsPerTask": sum(operations.values()) / tasks,
        "operationsPerTaskByKind": {kind: number / tasks for kind, number in sorted(operations.items()) if number},
        "submissionOperationsPerTask": sum(write["operations"].values()) / tasks,
        "callsPerTask": (sum(_summed(running, "calls").values()) - empty) / tasks,
        "emptyPolls": empty,
        "emptyPollsPerTask": empty / tasks,
        "conflicts": sums["conflicts"],
        "conflictShare": _share(sums["conflicts"], commits),
        "rowsReadPerTask": sums["rowsRead"] / tasks,
        "rowsWrittenPerTask": sums["rowsWritten"] / tasks,
        "rowsWrittenPerEdge": _share(sums["rowsWritten"], edges),
        "rowsSubmittedPerTask": written["rowsWritten"] / tasks,
        "rowsSubmittedPerEdge": _share(written["rowsWritten"], edges),
        "bytesWrittenPerTask": bytes_all / tasks if weighed else None,
        "bytesWrittenPerEdge": _share(bytes_all, edges) if weighed else None,
        "bytesSubmittedPerTask": written["bytesWritten"] / tasks if weighed else None,
        "getsPerTaskByRow": _by_kind(sums, "got", tasks) if weighed else None,
        "rowsWrittenPerTaskByRow": _by_kind(sums, "written", tasks) if weighed else None,
        "operationsPerTaskByPlace": _by_kind(sums, "place", tasks) if weighed else None,
        "messageBytesPerTask": sums["messageBytes"] / tasks if weighed else None,
        "latencyMilliseconds": {name: seconds * 1000 for name, seconds in latency.items()},
        "cpuMillisecondsPerTask": {role: 1000 * seconds / tasks for role, seconds in cpu.items() if seconds},
        "submissionCpuMillisecondsPerTask": 1000 * (read["cpu"]["own"] + write["cpu"]["own"]) / tasks,
        "peakMebibytes": sum(process["peak"] for process in facts["processes"]),
        "fileBytesPerTask": facts["fileBytes"] / tasks if facts["fileBytes"] is not None else None,
        "repeatedRuns": facts["rows"]["repeatedRuns"],
    }


def median_of(repetitions: Sequence[Figures]) -> Figures:
    """Figure by figure, the median of the repetitions that have it; of kinds and roles, what is missing is zero."""
    merged: Figures = {}
    for name in dict.fromkeys(name for each in repetitions for name in each):
        values = [each[name] for each in repetitions if each.get(name) is not None]
        if values and isinstance(values[0], Mapping):
            kinds = dict.fromkeys(kind for each in values for kind in each)
            merged[name] = {kind: statistics.median(each.get(kind, 0.0) for each in values) for kind in kinds}
        else:
            merged[name] = statistics.median(values) if values else None
    return merged


def idle_figures_of(facts: Mapping[str, Any]) -> Figures:
    """What waiting costs: operations of all kinds per hour, empty receives among them."""
    phases = [process["phase"] for process in facts["processes"]]
    hours = statistics.mean(phase["seconds"] for phase in phases) / 3600
    return {
        "seconds": hours * 3600,
        "load": facts["load"],
        "operationsPerHour": sum(_summed(phases, "operations").values()) / hours,
        "operationsPerHourByKind": {kind: each / hours for kind, each in _summed(phases, "operations").items()},
        "cpuSecondsPerHour": sum(phase["cpu"]["own"] for phase in phases) / hours,
        "firstStartMilliseconds": facts["rows"]["firstStartSeconds"] * 1000,
    }


COMPARED: Final = (
    "tasksPerSecond",
    "endToEndTasksPerSecond",
    "submissionTasksPerSecond",
    "operationsPerTask",
    "submissionOperationsPerTask",
    "emptyPollsPerTask",
    "rowsWrittenPerTask",
    "bytesWrittenPerTask",
    "conflictShare",
    "latencyMilliseconds.p50",
    "latencyMilliseconds.p99",
    "cpuMillisecondsPerTask",
    "peakMebibytes",
)
"""What two commits are compared by; of a mapping that is named whole, the sum."""


def figure(figures: Mapping[str, Any], path: str) -> float | None:
    """One figure by name, `a.b` for one inside a mapping; the sum of a mapping that is named whole."""
    value: Any = figures
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    if isinstance(value, Mapping):
        return float(sum(value.values())) if value else None
    return None if value is None else float(value)


def ratios(first: Figures, second: Figures) -> dict[str, tuple[float | None, float | None, float | None]]:
    """Figure -> its value in the first, in the second, and the second by the first."""
    compared = {}
    for path in COMPARED:
        a, b = figure(first, path), figure(second, path)
        compared[path] = (a, b, b / a if a and b is not None else None)
    return compared
