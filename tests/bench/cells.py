"""One measured cell: the processes that it takes, the orders they get, and what they answer.

What this room is for: starting `tests.bench.node` as often as a layout asks, in the tree of the commit that is
measured, and ending every process that it has started, whatever happens. It never imports taskgraph, and leaves
figures to `figures`.
"""

import asyncio
import contextlib
import json
import os
import re
import secrets
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.bench.shapes import Shape, document_text, edges_of

STORES: Final = ("embedded", "azurite")

_LAYOUT: Final = re.compile(r"(?P<handlers>[1-9][0-9]?)h(?P<workers>[1-9][0-9]?)w")
_LOOK_SECONDS: Final = 1.0  # between two looks at a graph whose end nobody has told: rare, so that it costs nothing
_READY_SECONDS: Final = 60.0
_END_SECONDS: Final = 10.0
_LINE_BYTES_MAX: Final = 1 << 20
_WORDS_SHOWN: Final = 2000


class CellFailed(Exception):
    """A cell could not be measured; its text says why."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Which processes: `local` is one for everything (handlers 0), `2h4w` two of handlers and four of workers."""

    handlers: int = 0
    workers: int = 0

    def __str__(self) -> str:
        return f"{self.handlers}h{self.workers}w" if self.handlers else "local"


def layout(text: str) -> Layout:
    """Raises ValueError, in words."""
    if text == "local":
        return Layout()
    if found := _LAYOUT.fullmatch(text):
        return Layout(int(found["handlers"]), int(found["workers"]))
    raise ValueError(f"{text!r} is no layout: write local, or 1h1w, 2h4w … (processes of handlers, of workers)")


@dataclass(frozen=True, slots=True)
class Cell:
    """What is measured at once. slots: of each worker."""

    shape: Shape
    store: str
    executor: str
    layout: Layout
    slots: int

    def __str__(self) -> str:
        return f"{self.shape.name}/{self.store}/{self.executor}/{self.layout}"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a cell is measured. tree: the root of a checkout; connection_string: of the emulator, if it runs."""

    tree: Path
    connection_string: str = ""
    seconds_max: float = 900.0


class Child:
    """One process of ours."""

    def __init__(self, role: str, process: asyncio.subprocess.Process, words: Path) -> None:
        self.role = role
        self._process = process
        self._words = words
        self._heard: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self.ended: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self._process.stdout is not None
        try:
            async for line in self._process.stdout:
                report = json.loads(line)
                if set(report) == {"ended"}:
                    if not self.ended.done():
                        self.ended.set_result(float(report["ended"]))
                else:
                    self._heard.put_nowait(report)
        finally:
            self._heard.put_nowait(None)
            if not self.ended.done():
                self.ended.cancel()

    async def hear(self) -> dict[str, Any]:
        """The next line. Raises CellFailed if it tells of a failure, or the process has ended instead."""
        report = await self._heard.get()
        if report is None:
            self._heard.put_nowait(None)
            status = await self._process.wait()
            words = self._words.read_text("utf-8", "replace")[-_WORDS_SHOWN:].strip()
            raise CellFailed(f"the process of {self.role} ended (status {status}): {words or 'without a word'}")
        if "failed" in report:
            raise CellFailed(f"the process of {self.role}: {report['failed']}")
        return report

    async def ask(self, **order: Any) -> dict[str, Any]:
        """Give an order and wait for its answer. Raises CellFailed."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        return await self.hear()

    async def close(self) -> None:
        """End it, at the latest after some seconds."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), _END_SECONDS)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        await self._reader


async def start(role: str, place: Place, folder: Path, environment: dict[str, str], *, number: int = 0) -> Child:
    """Start one process; it has opened nothing yet. Its words go to a file."""
    words = folder / f"{role}-{number}.log"
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TASKGRAPH_", "AzureWebJobs"))}
    with words.open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.bench.node",
            cwd=place.tree,
            env={**kept, **environment},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            limit=_LINE_BYTES_MAX,
            start_new_session=True,  # an interrupt at the terminal is for us, and we end it
        )
    return Child(role, process, words)


@contextlib.asynccontextmanager
async def crew(cell: Cell, place: Place, folder: Path, environment: dict[str, str]) -> AsyncIterator[list[Child]]:
    """All processes of a cell, ready: the one that submits first. They are ended on leaving."""
    roles = ["control", *["handler"] * cell.layout.handlers, *["worker"] * cell.layout.workers]
    children: list[Child] = []
    try:
        for number, role in enumerate(roles):
            children.append(await start(role, place, folder, environment, number=number))
        async with asyncio.timeout(_READY_SECONDS):
            for child in children:
                ready = await child.hear()
                if not Path(ready["taskgraph"]).is_relative_to(place.tree.resolve()):
                    raise CellFailed(f"taskgraph comes from {ready['taskgraph']}, and not from {place.tree}")
        yield children
    except TimeoutError as error:
        raise CellFailed(f"the processes of {cell} were not ready within {_READY_SECONDS:.0f} s") from error
    finally:
        await asyncio.gather(*(child.close() for child in children))


@contextlib.asynccontextmanager
async def _stage(
    cell: Cell, place: Place, *, weigh: bool, look: str = ""
) -> AsyncIterator[tuple[list[Child], dict[str, Any]]]:
    """The processes of a cell over a fresh store, and what is known before they begin."""
    requirements = cell.shape.make()
    with tempfile.TemporaryDirectory(prefix="taskgraph-bench-") as text:
        folder = Path(text)
        document = folder / "graph.json"
        document.write_text(document_text(requirements, cell.executor), "utf-8")
        settings = {
            "graph": f"bench-{secrets.token_hex(6)}",
            "document": str(document),
            "slots": cell.slots,
            "azure": cell.store == "azurite",
            "weigh": weigh,
            "look": look,
            "alone": not cell.layout.handlers,
        }
        store = place.connection_string if cell.store == "azurite" else f"sqlite:///{folder}/store/taskgraph.db"
        environment = {
            "TASKGRAPH_STORE": store,
            "TASKGRAPH_PREFIX": f"b{secrets.token_hex(6)}",  # tables and queues of its own
            "TASKGRAPH_BENCH": json.dumps(settings),
        }
        facts: dict[str, Any] = {
            "tasks": len(requirements),
            "edges": edges_of(requirements),
            "load": os.getloadavg()[0],
        }
        del requirements
        async with crew(cell, place, folder, environment) as children:
            yield children, facts
            files = folder.glob("store/taskgraph.db*")
            facts["fileBytes"] = sum(each.stat().st_size for each in files) if cell.store == "embedded" else None


async def measure(cell: Cell, place: Place, *, weigh: bool, look: str = "") -> dict[str, Any]:
    """Run a cell once; gives what its processes said, as plain values. Raises CellFailed.

    weigh: also the bytes of every row and the like, which costs time. look: see `node.Node`.
    """
    async with _stage(cell, place, weigh=weigh, look=look) as (children, facts):
        try:
            async with asyncio.timeout(place.seconds_max):
                await _play(cell, children, facts)
        except TimeoutError as error:
            raise CellFailed(f"{cell} did not end within {place.seconds_max:g} s") from error
    return facts


async def idle(cell: Cell, place: Place, *, settle_seconds: float, seconds: float) -> dict[str, Any]:
    """Let the processes of a cell wait for work that does not come, then submit; gives what they said meanwhile.

    settle_seconds: before counting begins, for their pauses to grow. Raises CellFailed.
    """
    async with _stage(cell, place, weigh=False) as (children, facts):
        control, others = children[0], children[1:]
        await asyncio.gather(*(child.ask(do="go", role=child.role) for child in others))
        await asyncio.sleep(settle_seconds)
        await asyncio.gather(*(child.ask(do="count") for child in others))
        await asyncio.sleep(seconds)
        counted = await asyncio.gather(*(child.ask(do="count") for child in others))
        facts["processes"] = [
            {"role": child.role, "phase": each["phase"]} for child, each in zip(others, counted, strict=True)
        ]
        await control.ask(do="submit")
        try:
            async with asyncio.timeout(place.seconds_max):
                while not (await control.ask(do="look"))["ended"]:
                    await asyncio.sleep(_LOOK_SECONDS / 10)  # nothing is counted any more
        except TimeoutError as error:
            raise CellFailed(f"{cell} did not end within {place.seconds_max:g} s") from error
        facts["rows"] = await control.ask(do="examine")
        await asyncio.gather(*(child.ask(do="stop") for child in others))
    return facts


async def _play(cell: Cell, children: Sequence[Child], facts: dict[str, Any]) -> None:
    control, others = children[0], children[1:]
    submitted = await control.ask(do="submit")
    facts["submission"] = {"read": submitted["read"], "write": submitted["phase"]}
    emulator = emulator_cpu() if cell.store == "azurite" else None
    if others:
        await _execute(control, others, facts)
    else:
        ran = await control.ask(do="run")
        if ran["state"] != "finished":
            raise CellFailed(f"{cell}: the graph is {ran['state']}")
        facts["seconds"] = ran["phase"]["seconds"]
        facts["processes"] = [{"role": "local", "peak": ran["peak"], "phase": ran["phase"]}]
        if "held" in ran:
            facts["held"] = ran["held"]
    if emulator is not None and (now := emulator_cpu()) is not None:
        facts["emulatorCpu"] = now - emulator
    facts["rows"] = await control.ask(do="examine")
    if facts["rows"]["wrongs"]:
        raise CellFailed(f"{cell}: {facts['rows']['wrongs']} tasks are not as they should be: {facts['rows']['wrong']}")


async def _execute(control: Child, others: Sequence[Child], facts: dict[str, Any]) -> None:
    """Let handlers and workers begin, wait for the end of the graph, and have them report."""
    submitted = await control.ask(do="stop")  # for its peak, before it is asked what the rows say
    began = time.time()
    await asyncio.gather(*(child.ask(do="go", role=child.role) for child in others))
    ends = [child.ended for child in others]  # a handler tells the end; a worker only ever its own, by cancelling
    while True:
        done, _ = await asyncio.wait(ends, timeout=_LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if done:
            # Cancelled: that process has ended too early, and being asked to stop says why.
            ended = [end.result() for end in done if not end.cancelled()]
            facts["seconds"] = min(ended) - began if ended else 0.0
            break
        looked = await control.ask(do="look")
        if looked["ended"]:
            facts["seconds"] = time.time() - began
            break
    reports = await asyncio.gather(*(child.ask(do="stop") for child in others))
    facts["processes"] = [
        {"role": "submitter", "peak": submitted["peak"]},
        *({"role": child.role, **report} for child, report in zip(others, reports, strict=True)),
    ]


def emulator_cpu() -> float | None:
    """CPU seconds of our own children that run node so far; None where /proc does not say."""
    total, found = 0, False
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            name, _, rest = path.read_text("utf-8", "replace").partition("(")[2].rpartition(")")
            fields = rest.split()
            if int(fields[1]) == os.getpid() and name.startswith(("node", "MainThread")):
                total += int(fields[11]) + int(fields[12])
                found = True
    return total / os.sysconf("SC_CLK_TCK") if found else None
