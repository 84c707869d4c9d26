"""Graphs by name: `chain-200`, `fan-1000`, `layers-10x100`, `tree-1023`, `independent-1000`, or a file of tasks.

What this room is for: the same name is the same graph on every machine and in every commit. It never reads taskgraph.
"""

import gzip
import json
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

Requirements = dict[str, list[str]]
"""Label -> the labels that it requires."""

SEED: Final = 20_261_121
REQUIREMENTS: Final = 3  # of each task of a layer, drawn from the layer before

STANDARD: Final = (
    "chain-200",
    "chain-1000",
    "fan-1000",
    "fan-10000",
    "fan-100000",
    "layers-10x100",
    "layers-50x200",
    "layers-100x1000",
    "tree-1023",
    "independent-1000",
    "independent-10000",
)
"""What a full measurement covers."""

SMALL: Final = ("chain-200", "fan-1000", "layers-10x100", "tree-1023", "independent-1000")
"""What is measured when nobody says."""

LARGE: Final = (
    "fan-10000",
    "fan-100000",
    "fan-1000000",
    "layers-10x1000",
    "layers-100x1000",
    "layers-1000x1000",
)
"""Whether cost grows with the number of tasks, and no faster: half an hour, and 3 GB of disk."""

TINY: Final = ("chain-20", "fan-50")
"""What `--quick` measures."""

EXECUTORS: Final[Mapping[str, dict[str, Any]]] = {"noop": {}, "command": {"command": ["true"]}}
"""Executor -> the payload of every task that asks for it."""


class UnknownShape(Exception):
    """No such shape, and no such file; its text says what there is."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A graph: its name, and how to make its requirements."""

    name: str
    make: Callable[[], Requirements] = field(compare=False)


def chain(tasks: int) -> Requirements:
    """One after the other."""
    return {f"t{i}": [f"t{i - 1}"] if i else [] for i in range(tasks)}


def fan(width: int) -> Requirements:
    """One task, then so many side by side, then one that requires them all."""
    parts = [f"t{i}" for i in range(1, width + 1)]
    return {"t0": [], **{part: ["t0"] for part in parts}, f"t{width + 1}": parts}


def layers(count: int, width: int) -> Requirements:
    """Layers, where each task requires a few tasks of the layer before, by a seeded choice."""
    chance = random.Random(SEED)
    graph: Requirements = {}
    before: list[str] = []
    for layer in range(count):
        row = [f"t{layer * width + i}" for i in range(width)]
        for label in row:
            graph[label] = chance.sample(before, min(REQUIREMENTS, len(before)))
        before = row
    return graph


def tree(tasks: int) -> Requirements:
    """A reduction in pairs: the leaves first, the root last."""
    return {f"t{i}": [f"t{part}" for part in (2 * i + 1, 2 * i + 2) if part < tasks] for i in reversed(range(tasks))}


def independent(tasks: int) -> Requirements:
    """No requirement at all."""
    return {f"t{i}": [] for i in range(tasks)}


def read_file(path: Path) -> Requirements:
    """The requirements in a file with `tasks`, each with `requires`; JSON, or JSON in gzip."""
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    return {label: list(task.get("requires", ())) for label, task in json.loads(data)["tasks"].items()}


_MAKERS: Final[Mapping[str, Callable[..., Requirements]]] = {
    "chain": chain,
    "fan": fan,
    "tree": tree,
    "independent": independent,
}
_SIZED: Final = re.compile(r"(?P<kind>[a-z]+)-(?P<size>[1-9][0-9]{0,6})")
_LAYERS: Final = re.compile(r"layers-(?P<count>[1-9][0-9]{0,4})x(?P<width>[1-9][0-9]{0,6})")


def shape(name: str) -> Shape:
    """The shape of this name, or of the file at this path. Raises UnknownShape."""
    if found := _LAYERS.fullmatch(name):
        count, width = int(found["count"]), int(found["width"])
        return Shape(name, lambda: layers(count, width))
    if (found := _SIZED.fullmatch(name)) and found["kind"] in _MAKERS:
        maker, size = _MAKERS[found["kind"]], int(found["size"])
        return Shape(name, lambda: maker(size))
    path = Path(name)
    if path.is_file():
        try:
            graph = read_file(path)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UnknownShape(f"{name}: no JSON with tasks and what they require: {error!r}") from error
        return Shape(path.name.split(".")[0], lambda: graph)
    raise UnknownShape(
        f"no shape and no file is named {name!r}: write chain-N, fan-N, layers-LxW, tree-N, independent-N, "
        "or the path of a JSON file with tasks"
    )


def document_text(graph: Requirements, executor: str) -> str:
    """The graph as a document to submit."""
    payload = EXECUTORS[executor]
    tasks = {label: {"requires": requires, "task": {"payload": payload}} for label, requires in graph.items()}
    return json.dumps({"tasks": tasks})


def edges_of(graph: Requirements) -> int:
    """How many requirements there are in all."""
    return sum(map(len, graph.values()))
