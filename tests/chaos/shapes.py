"""Graphs for the soak: of every shape, drawn from a seed, with what must become of each.

The end of a graph follows from its document alone: a task that is told to fail in its first runs has as many reruns,
or is rerun by hand; one that is told to fail for ever ends failed, and what requires it never becomes ready.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

FOR_EVER: Final = -1
_SECONDS_MAX: Final = 0.4


@dataclass(slots=True)
class Spec:
    """One graph to submit.

    extension: a document to add while it runs, None for none. by_hand: labels that fail for good at first, and complete
    once they are rerun. doomed: labels that fail for good.
    """

    graph_id: str
    kind: str
    document: dict[str, Any]
    extension: dict[str, Any] | None = None
    by_hand: list[str] = field(default_factory=list)
    doomed: list[str] = field(default_factory=list)


def never_ready(requires: Mapping[str, Sequence[str]], doomed: Sequence[str]) -> set[str]:
    """Labels below a doomed one."""
    found: set[str] = set()
    grown = True
    while grown:
        more = {
            label
            for label, needs in requires.items()
            if label not in found and any(each in found or each in doomed for each in needs)
        }
        found |= more
        grown = bool(more)
    return found


def draw(seed: int, graphs: int, tasks: int) -> list[Spec]:
    """At least so many graphs and tasks, the same ones for the same seed.

    What extensions bring is not counted: one that comes when its graph has ended is refused.
    """
    rng = random.Random(f"soak {seed}")
    specs: list[Spec] = []
    total = 0
    while len(specs) < graphs or total < tasks:
        left = max(1, graphs - len(specs))
        mean = max(4.0, (tasks - total) / left)
        spec = _one(rng, f"soak-{len(specs):05d}", mean)
        specs.append(spec)
        total += len(spec.document["tasks"])
    return specs


def _one(rng: random.Random, graph_id: str, mean: float) -> Spec:
    kind = rng.choices(("chain", "diamond", "fan", "layers", "bag", "random"), weights=(12, 18, 30, 20, 8, 12), k=1)[0]
    size = max(3, min(66, round(rng.gauss(mean * _SIZES[kind], mean * 0.35))))
    requires = _SHAPES[kind](rng, size)
    spec = Spec(graph_id, kind, {"tasks": {label: _task(rng, needs) for label, needs in requires.items()}})
    python = [label for label, task in spec.document["tasks"].items() if "call" in task["task"].get("payload", {})]
    if not python:
        return spec
    fate = rng.random()
    if fate < 0.20:  # some fail at first, and are rerun by themselves
        for label in rng.sample(python, min(len(python), rng.randint(1, 3))):
            _fails(spec, label, rng.randint(1, 2), reruns=2)
    elif fate < 0.25:
        spec.by_hand = [rng.choice(python)]
        _fails(spec, spec.by_hand[0], 1, reruns=0)
    elif fate < 0.265:
        spec.doomed = [rng.choice(python)]
        _fails(spec, spec.doomed[0], FOR_EVER, reruns=1)
    elif fate < 0.40:
        labels = list(requires)
        new = {f"more {n}": sorted(rng.sample(labels, rng.randint(1, 2))) for n in range(rng.randint(2, 6))}
        new["more end"] = sorted(new)
        spec.extension = {"tasks": {label: _task(rng, needs) for label, needs in new.items()}}
    return spec


def _fails(spec: Spec, label: str, runs: int, *, reruns: int) -> None:
    task = spec.document["tasks"][label]
    task["reruns"] = reruns
    task["task"]["payload"]["arguments"]["fails"] = runs


def _task(rng: random.Random, requires: Sequence[str]) -> dict[str, Any]:
    drawn = rng.random()
    definition: dict[str, Any]
    if drawn < 0.80:
        seconds = round(rng.uniform(0.0, _SECONDS_MAX), 3)
        definition = {"payload": {"call": "work", "arguments": {"seconds": seconds}}}
    elif drawn < 0.88:
        definition = {"executor": "sleep", "payload": {"seconds": round(rng.uniform(0.0, _SECONDS_MAX), 3)}}
    else:
        definition = {"executor": "noop", "payload": {}}
    # The soak kills workers whatever they run: no task is to be taken for the cause of it.
    return {"requires": list(requires), "task": {**definition, "workersLostMax": 20}}


def _chain(rng: random.Random, size: int) -> dict[str, list[str]]:
    return {f"step {n}": [f"step {n - 1}"] if n else [] for n in range(min(size, 9))}


def _diamond(rng: random.Random, size: int) -> dict[str, list[str]]:
    """Some diamonds one after the other."""
    requires: dict[str, list[str]] = {"top 0": []}
    number = 0
    while len(requires) < size:
        width = min(rng.randint(2, 8), max(2, size - len(requires)))
        middle = [f"side {number}.{n}" for n in range(width)]
        requires.update({label: [f"top {number}"] for label in middle})
        number += 1
        requires[f"top {number}"] = middle
    return requires


def _fan(rng: random.Random, size: int) -> dict[str, list[str]]:
    parts = [f"part {n}" for n in range(max(10, min(60, size)))]
    return {"start": [], **{label: ["start"] for label in parts}, "end": parts}


def _layers(rng: random.Random, size: int) -> dict[str, list[str]]:
    width = rng.randint(3, 6)
    requires: dict[str, list[str]] = {}
    above: list[str] = []
    for layer in range(max(2, min(6, round(size / width)))):
        labels = [f"layer {layer}.{n}" for n in range(width)]
        requires.update(
            {label: sorted(rng.sample(above, rng.randint(1, len(above)))) if above else [] for label in labels}
        )
        above = labels
    return requires


def _bag(rng: random.Random, size: int) -> dict[str, list[str]]:
    return {f"alone {n}": [] for n in range(min(size, 40))}


def _random(rng: random.Random, size: int) -> dict[str, list[str]]:
    labels = [f"node {n}" for n in range(size)]
    return {
        label: sorted(rng.sample(labels[max(0, n - 12) : n], min(n, rng.choice((0, 1, 1, 2, 3)))))
        for n, label in enumerate(labels)
    }


_SHAPES: Final = {
    "chain": _chain,
    "diamond": _diamond,
    "fan": _fan,
    "layers": _layers,
    "bag": _bag,
    "random": _random,
}
_SIZES: Final = {"chain": 0.3, "diamond": 0.9, "fan": 1.5, "layers": 1.0, "bag": 0.7, "random": 1.0}
