"""Where a demand comes from: the figures of a kept benchmark, of a run in virtual time, or options.

What this room is for: from the names that tests/bench gives its figures to a `Demand`. It never measures.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tests.bench.shapes import Requirements, UnknownShape, shape
from tests.capacity.model import Demand, Latencies

_TABLES: Final = ("get", "query", "commit")
_BLOBS: Final = ("log", "log-read")
_ONE_MESSAGE: Final = ("delete", "renew", "count")
_HANDLERS: Final = "events"
_WORKERS: Final = "work"
_SEVERAL: Final = ("get", "send")
_NOT_AWAITED: Final = frozenset({"delete", "renew", "count", "log", "log-read"})


class NoFigures(Exception):
    """A benchmark that is not there, or is none; its text says what there is."""


def levels_of(graph: Requirements) -> int:
    """How many tasks lie on the longest path."""
    level: dict[str, int] = {}
    for first in graph:
        waiting = [first]
        while waiting:
            label = waiting[-1]
            missing = [each for each in graph[label] if each not in level]
            if missing:
                waiting.extend(missing)
            else:
                level[waiting.pop()] = 1 + max((level[each] for each in graph[label]), default=0)
    return max(level.values(), default=0)


def demand_of(name: str, figures: Mapping[str, Any]) -> Demand:
    """The demand of one measured cell (`shape/store/executor/layout`), without its longest path."""
    kinds: Mapping[str, float] = figures["operationsPerTaskByKind"]
    tables = sum(kinds.get(kind, 0.0) for kind in _TABLES)
    blobs = sum(kinds.get(kind, 0.0) for kind in _BLOBS)
    queues = sum(spent for kind, spent in kinds.items() if kind not in (*_TABLES, *_BLOBS))
    by_row = figures.get("rowsWrittenPerTaskByRow") or {}
    return Demand(
        name=name,
        tasks=figures["tasks"],
        table_requests=tables,
        queue_requests=queues,
        blob_requests=blobs,
        entities=figures["rowsReadPerTask"] + figures["rowsWrittenPerTask"],
        messages=_messages(kinds, figures.get("operationsPerTaskByPlace") or {}),
        facts=by_row.get("event"),
        empty_requests=figures["emptyPollsPerTask"],
        submit_requests=figures["submissionOperationsPerTask"],
        submit_entities=figures["rowsSubmittedPerTask"],
        stored_bytes=figures.get("bytesWrittenPerTask"),
    )


def _messages(kinds: Mapping[str, float], places: Mapping[str, float]) -> dict[str, float]:
    """Messages by queue: each is put once, received once, and deleted once.

    Who deletes tells whose queue it was: consumers take from the events queue, and workers from the work queues. Where
    nobody has counted the places, each queue is taken to have half.
    """
    put, others = kinds.get("send", 0.0), sum(kinds.get(kind, 0.0) for kind in _ONE_MESSAGE)
    total = 2 * put + others
    deleted = {_HANDLERS: 0.0, _WORKERS: 0.0}
    for place, spent in places.items():
        owner, _, what = place.partition(":")
        if what.endswith(" delete"):
            deleted[_WORKERS if owner.partition(".")[0] == "worker" else _HANDLERS] += spent
    whole = sum(deleted.values())
    return {name: total * (each / whole if whole else 0.5) for name, each in deleted.items()}


def step_seconds(figures: Mapping[str, Any], latencies: Latencies, *, local: bool) -> float:
    """From the start of a task of a chain to the start of the next: the calls between them, one after the other.

    Deletes, renewals and logs are left out, because nobody on the path waits for them. The requests of one call for
    several keys or messages are under way together, and count once. Each message that goes to another process waits to
    be picked up.
    """
    kinds: Mapping[str, float] = figures["operationsPerTaskByKind"]
    several = sum(kinds.get(kind, 0.0) for kind in _SEVERAL)
    calls = figures["callsPerTask"] - sum(spent for kind, spent in kinds.items() if kind not in _SEVERAL)
    together = min(1.0, max(0.0, calls) / several) if several else 1.0
    seconds = {"get": latencies.read, "query": latencies.read, "commit": latencies.commit}
    awaited = sum(
        spent * seconds.get(kind, latencies.queue) * (together if kind in _SEVERAL else 1.0)
        for kind, spent in kinds.items()
        if kind not in _NOT_AWAITED
    )
    return awaited + (0.0 if local else kinds.get("send", 0.0) * latencies.pickup)


def with_path(demand: Demand, requirements: Requirements | None, step: float | None) -> Demand:
    """The same demand, with its longest path, where both are known."""
    if requirements is None or step is None:
        return demand
    return replace(demand, levels=levels_of(requirements), step_seconds=step)


def demands_of(medians: Mapping[str, Mapping[str, Any]], latencies: Latencies, step: float | None) -> list[Demand]:
    """The demand of each cell. A step is as long as in the chain of the same store, executor and layout.

    step: overrides that.
    """
    steps: dict[str, float] = {}
    for name, figures in medians.items():
        of_shape, _, rest = name.partition("/")
        if of_shape.startswith("chain-"):
            steps[rest] = step_seconds(figures, latencies, local=rest.endswith("/local"))
    found = []
    for name, figures in medians.items():
        of_shape, _, rest = name.partition("/")
        try:
            requirements = shape(of_shape).make()
        except UnknownShape:
            requirements = None  # of a file, which only its stem is left of
        found.append(with_path(demand_of(name, figures), requirements, steps.get(rest) if step is None else step))
    return found


def read_kept(name: str, folder: Path) -> dict[str, Any]:
    """A kept benchmark by its name or path. Raises NoFigures."""
    path = Path(name) if name.endswith(".json") else folder / f"{name}.json"
    try:
        kept = json.loads(path.read_text("utf-8"))
    except OSError as error:
        there = ", ".join(sorted(each.stem for each in folder.glob("*.json"))) or "none yet"
        raise NoFigures(f"{path} cannot be read; kept benchmarks: {there} (scripts/bench --keep NAME)") from error
    except ValueError as error:
        raise NoFigures(f"{path} is no JSON") from error
    medians = kept.get("medians", {}) if isinstance(kept, dict) else {}
    found = medians.get("this") or medians.get("second")
    if not found or not all("operationsPerTaskByKind" in each for each in found.values()):
        raise NoFigures(f"{path} holds no cells that a graph ran in (scripts/bench --keep NAME, without --idle)")
    return {"medians": found, "began": kept.get("began"), "versions": kept.get("versions", {})}
