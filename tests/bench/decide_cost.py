"""What deciding costs: CPU of `decide`, of messages as text, and of bringing rows up, with nothing around them.

What this room is for: `python -m tests.bench.decide_cost` prints microseconds of CPU per item, for the shapes that a
busy graph gives its handlers: full commits of completions and claims. It reads no store and writes nothing; what whole
graphs cost is what `scripts/bench` measures. Each line is the least of several rounds, for whatever else the machine
does can only make a round dearer.
"""

import argparse
import itertools
import random
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final

from taskgraph.engine import commit
from taskgraph.model.bundles import bundles
from taskgraph.model.messages import RunTasks, TaskCompleted, TaskResult, parse, to_text
from taskgraph.protocol.decide import Decision, Item, decide
from taskgraph.protocol.runs import Claim, Completed
from taskgraph.storage.tables import Delete, Row
from tests.unit.transition_rows import NOW, Rows, rows_of, running, task_id

SECONDS: Final = 1.0
ROUNDS: Final = 20
ENDED: Final = "2026-01-01T12:00:00.123456+00:00"
CLAIM: Final = "e9qOSgQ3R2iWTTTQd0aYbA"

Cell = tuple[str, int, Callable[[], object]]
"""What is measured, how many items one call takes, and the call."""


def completion(label: str) -> Completed:
    """The result of a no-op."""
    return Completed(task_id(label), 0, CLAIM, ENDED, {"failed": False, "exitCode": 0})


def held(rows: Rows, labels: Sequence[str]) -> Rows:
    """Rows of which these tasks run, each under its claim."""
    for label in labels:
        rows = running(rows, label, claim=CLAIM)
    return rows


def decided(rows: Rows, items: Sequence[Item]) -> Decision:
    """One decision over rows that have all been read."""
    decision = decide(rows, items, now=NOW, operation=CLAIM, sequence=7)
    assert isinstance(decision, Decision), decision
    return decision


def decisions() -> list[Cell]:
    """Batches of items over the rows of graphs as they are laid out."""
    cells: list[Cell] = []

    def add(name: str, rows: Rows, items: Sequence[Item]) -> None:
        decision = decided(rows, items)
        assert not any(answer.outcome != "applied" for answer in decision.answers), name
        done = len(decision.answers)
        name = f"{name}: {done} items, {len(decision.changes)} rows"
        cells.append((name, done, lambda: decided(rows, items)))

    single = [f"t{number:05}" for number in range(10_000)]
    independent = rows_of({label: [] for label in single})
    few, many = single[:32], single[:97]
    add("complete, independent", held(independent, few), [completion(label) for label in few])
    add("complete, independent", held(independent, many), [completion(label) for label in many])

    layers = [[f"l{layer}-{number:03}" for number in range(100)] for layer in range(3)]
    draw = random.Random(1)
    requires: dict[str, list[str]] = {label: [] for label in layers[0]}
    for above, layer in itertools.pairwise(layers):
        requires |= {label: draw.sample(above, 3) for label in layer}
    layered = rows_of(requires)
    for count in (32, 40):
        batch = layers[0][:count]
        add("complete, layers 3 x 100", held(layered, batch), [completion(label) for label in batch])

    pairs = {f"a{number:02}": list[str]() for number in range(49)}
    ready = rows_of({**pairs, **{f"b{number:02}": [f"a{number:02}"] for number in range(49)}})
    add("complete, each makes one ready", held(ready, list(pairs)), [completion(label) for label in pairs])

    for count in (32, 100):
        batch = single[:count]
        claims = [Claim(task_id(label), 0, CLAIM, "worker-1", NOW + timedelta(seconds=60)) for label in batch]
        add("claim", independent, claims)
    return cells


def messages() -> list[Cell]:
    """Reading and writing of full messages."""
    resolution = {"failed": False, "exitCode": 0}
    results = tuple(TaskResult(task_id(f"t{n}"), 0, CLAIM, ENDED, resolution) for n in range(32))
    wanted = tuple((task_id(f"t{n}"), 0) for n in range(32))
    cells: list[Cell] = []
    for name, message in (("results", TaskCompleted("g", results)), ("work", RunTasks("g", "default", wanted))):
        text = to_text(message)
        assert parse(text) == message
        cells.append((f"parse {name}", 32, lambda text=text: parse(text)))  # type: ignore[misc]
        cells.append((f"to_text {name}", 32, lambda message=message: to_text(message)))  # type: ignore[misc]
    many = results * 4
    runs = wanted * 4
    cells.append(("bundles of results", len(many), lambda: bundles(lambda part: TaskCompleted("g", part), many)))
    cells.append(("bundles of work", len(runs), lambda: bundles(lambda part: RunTasks("g", "default", part), runs)))
    return cells


def rows_brought_up() -> list[Cell]:
    """What a commit wrote, set down on the rows that are kept."""
    labels = [f"t{number:05}" for number in range(97)]
    rows = held(rows_of({label: [] for label in labels}), labels)
    changes = decided(rows, [completion(label) for label in labels]).changes

    def bring_up() -> None:
        known: dict[str, Row | None] = dict(rows)
        for change in changes:
            assert not isinstance(change, Delete)
            commit._bring_up(known, change, "e2")

    return [("bring rows up", len(changes), bring_up)]


def cost_us(call: Callable[[], object], items: int, seconds: float) -> float:
    """Microseconds of CPU per item: the least of some rounds of `seconds` over all."""
    call()
    began = time.process_time()
    call()
    once = max(time.process_time() - began, 1e-6)
    calls = max(1, int(seconds / ROUNDS / once))
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.process_time()
        for _ in range(calls):
            call()
        best = min(best, (time.process_time() - began) / calls)
    return best / items * 1e6


def main() -> None:
    """Measure every cell and print it."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.decide_cost", description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of CPU, for each line (default: 1)")
    parser.add_argument("--only", default="", metavar="TEXT", help="only lines with this in their name")
    options = parser.parse_args()
    for name, items, call in [*decisions(), *messages(), *rows_brought_up()]:
        if options.only in name:
            print(f"{cost_us(call, items, options.seconds):8.2f} us  {name}", flush=True)


if __name__ == "__main__":
    main()
