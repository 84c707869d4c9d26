"""Whether handlers add up: many graphs on one store, by one, two and four processes of handlers, in turn.

What this room is for: `python -m tests.bench.sharing`. It starts the processes of `node`, submits, lets them begin, and
asks which graphs have ended. On a machine with few processors these are what bounds it: CPU of each role is printed.
"""

import argparse
import asyncio
import json
import os
import secrets
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, nullcontext
from pathlib import Path
from typing import Any, Final

from tests.azurite import azurite
from tests.bench.cells import Child, Place, emulator_cpu, start
from tests.bench.report import number, table
from tests.bench.shapes import document_text, shape

_ROOT: Final = Path(__file__).resolve().parents[2]
_FIGURES: Final = ("CPU ms/task", "emulator ms/task", "ops/task", "conflicts")
_LOOK_SECONDS: Final = 0.1
_SECONDS_MAX: Final = 300.0


def roles_of(layout: str) -> list[str]:
    """`4h8w`: processes that handle, and that work; `4b`: that do both. Raises ValueError."""
    found: list[str] = []
    count = ""
    for letter in layout:
        if letter.isdigit():
            count += letter
        else:
            found += [{"h": "handler", "w": "worker", "b": "both"}[letter]] * int(count)
            count = ""
    if count or not found:
        raise ValueError(layout)
    return found


async def measure(layout: str, given: argparse.Namespace, queues: int | None, place: Place) -> dict[str, Any]:
    """One run."""
    with tempfile.TemporaryDirectory(prefix="taskgraph-bench-") as text:
        folder = Path(text)
        graph = shape(given.shape).make()
        (folder / "graph.json").write_text(document_text(graph, "noop"), "utf-8")
        settings: dict[str, Any] = {
            "graph": f"bench-{secrets.token_hex(6)}",
            "graphs": given.graphs,
            "document": str(folder / "graph.json"),
            "slots": given.slots,
            "azure": bool(place.connection_string),
            "weigh": False,
            "queues": queues,
        }
        environment = {
            "TASKGRAPH_STORE": place.connection_string or f"sqlite:///{folder}/store/taskgraph.db",
            "TASKGRAPH_PREFIX": f"b{secrets.token_hex(6)}",
            "TASKGRAPH_BENCH": json.dumps(settings),
        }
        async with AsyncExitStack() as stack:
            children: list[Child] = []
            for count, role in enumerate(["control", *roles_of(layout)]):
                children.append(await start(role, place, folder, environment, number=count))
                stack.push_async_callback(children[-1].close)
            for child in children:
                await child.hear()
            control, others = children[0], children[1:]
            await control.ask(do="submit")
            emulator, began = emulator_cpu(), time.time()
            await asyncio.gather(*(child.ask(do="go", role=child.role) for child in others))
            ends: dict[str, float] = {}
            async with asyncio.timeout(_SECONDS_MAX):
                while len(ends) < given.graphs:
                    await asyncio.sleep(_LOOK_SECONDS)
                    for each in await asyncio.gather(*(child.ask(do="ends") for child in others)):
                        ends.update(each["ends"])
            emulated = (emulator_cpu() or 0.0) - (emulator or 0.0)
            reports = await asyncio.gather(*(child.ask(do="stop") for child in others))
    seconds, tasks = max(ends.values()) - began, given.graphs * len(graph)
    cpu = {"handler": [], "worker": [], "both": []}  # type: dict[str, list[float]]
    operations = conflicts = 0
    for child, report in zip(others, reports, strict=True):
        cpu[child.role].append(sum(report["phase"]["cpu"].values()))
        operations += sum(report["phase"]["operations"].values())
        conflicts += report["phase"]["sums"].get("conflicts", 0)
    return {
        "tasks/s": tasks / seconds,
        "CPU s": {role: [round(each, 2) for each in values] for role, values in cpu.items() if values},
        "CPU ms/task": sum(map(sum, cpu.values())) * 1000 / tasks,
        "emulator ms/task": emulated * 1000 / tasks,
        "ops/task": operations / tasks,
        "conflicts": conflicts,
    }


async def main() -> int:
    made = argparse.ArgumentParser(prog="python -m tests.bench.sharing", description=__doc__)
    made.add_argument("--store", choices=("embedded", "azurite"), default="embedded")
    made.add_argument("--shape", default="layers-10x10")
    made.add_argument("--graphs", type=int, default=100)
    made.add_argument("--layouts", default="1h4w,2h4w,4h4w")
    made.add_argument("--queues", default="8", help="of events; 0 leaves it as it is (commits of before)")
    made.add_argument("--slots", type=int, default=4)
    made.add_argument("--repeat", type=int, default=3)
    made.add_argument("--tree", type=Path, default=_ROOT)
    given = made.parse_args()
    layouts, numbers = given.layouts.split(","), [int(each) or None for each in given.queues.split(",")]
    runs: dict[tuple[str, int | None], list[Mapping[str, Any]]] = {}
    with azurite() if given.store == "azurite" else nullcontext("") as connection_string:
        place = Place(given.tree, connection_string)
        for _ in range(given.repeat):
            for queues in numbers:
                for layout in layouts:
                    found = await measure(layout, given, queues, place)
                    runs.setdefault((layout, queues), []).append(found)
                    print(f"{layout}, {queues or 1} queues: {found}", file=sys.stderr, flush=True)
    print(f"{given.graphs} graphs of {given.shape}, {given.store}; load {os.getloadavg()[0]:.1f} at the end\n")
    print(text_of(runs))
    return 0


def text_of(runs: Mapping[tuple[str, int | None], Sequence[Mapping[str, Any]]]) -> str:
    """The medians of each layout as a table. ratio: to the first layout with as many queues."""
    rows, first = [], {}  # type: ignore[var-annotated]
    for (layout, queues), found in runs.items():
        rates = [each["tasks/s"] for each in found]
        rate = statistics.median(rates)
        first.setdefault(queues, rate)
        rows.append(
            [
                layout,
                str(queues or 1),
                f"{number(rate, 0)} ({number(min(rates), 0)}–{number(max(rates), 0)})",
                number(rate / first[queues], 2),
                *(number(statistics.median(each[name] for each in found), 2) for name in _FIGURES),
                "; ".join(f"{role} {', '.join(map(str, each))}" for role, each in found[-1]["CPU s"].items()),
            ]
        )
    return table(["layout", "queues", "tasks/s (min–max)", "ratio", *_FIGURES, "CPU s of each, the last time"], rows)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
