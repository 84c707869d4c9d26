"""Calls of one process that share what they know, while their reads overlap: what is known never goes back in time.

The store answers here when the test says so: a read is evaluated at once, and its answer may come long after.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from taskgraph.model import limits
from taskgraph.model.ids import GRAPH, ids_text, limit_key, limit_scope, row_key
from taskgraph.model.messages import AddTasks
from taskgraph.protocol.context import Outcome
from taskgraph.protocol.decide import Answer
from taskgraph.protocol.runs import Claim, Completed
from taskgraph.storage.tables import Change, Row
from taskgraph.testing import HurriedClock, MemoryQueues, MemoryTables
from tests.scenarios.stage import Requirements, Stage, extension, graph

T = TypeVar("T")
LIMIT = limit_key(limit_scope("graph", ""))


class SlowTables(MemoryTables):
    """A table whose answers to some calls are under way until they are let go.

    read: a key -> so many of the next reads of it are answered late. wrote: the same of commits, which are late before
    they reach the table.
    """

    def __init__(self) -> None:
        super().__init__()
        self.read: dict[str, int] = {}
        self.wrote: dict[str, int] = {}
        self.under_way: list[asyncio.Event] = []

    async def _wait(self, slow: dict[str, int], keys: Sequence[str]) -> None:
        held = next((key for key in keys if slow.get(key)), None)
        if held is not None:
            slow[held] -= 1
            event = asyncio.Event()
            self.under_way.append(event)
            await event.wait()

    async def get(self, partition: str, keys: Sequence[str]) -> list[Row | None]:
        found = await super().get(partition, keys)
        await self._wait(self.read, keys)
        return found

    async def commit(self, partition: str, changes: Sequence[Change]) -> list[str | None]:
        await self._wait(self.wrote, [change.key for change in changes])
        return await super().commit(partition, changes)


async def begun(coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """The call, as far as it comes before it waits for an answer."""
    task = asyncio.ensure_future(coroutine)
    await settled()
    return task


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


class Process:
    """One process over a slow table; its calls are made side by side."""

    def __init__(self) -> None:
        self.tables = SlowTables()
        clock = HurriedClock()
        self.stage = Stage(self.tables, MemoryQueues(clock), clock)
        self.handlers = self.stage.more_handlers()
        """The process in question: whatever the stage does by itself is done by another one."""

    async def submit(self, requires: Requirements, **more: Any) -> None:
        await self.stage.submit(graph(requires, **more))

    def key(self, label: str) -> str:
        return row_key(self.stage.task_id(label))

    def in_flight(self) -> list[str]:
        """Labels of the tasks that the limit of the graph counts."""
        text = str(self.tables.partitions["graph"][LIMIT].columns["inFlight"])
        return sorted(label for label in ("a", "b", "c") if self.stage.task_id(label) in text)

    def claim_of(self, label: str) -> Claim:
        until = self.stage.clock.now() + timedelta(seconds=limits.LEASE_SECONDS)
        return Claim(self.stage.task_id(label), 0, f"claim-{label}", "w", until)

    async def claim(self, label: str) -> list[Answer]:
        return await self.handlers.advance("graph", [self.claim_of(label)])

    async def complete(self, label: str) -> list[Answer]:
        ended = self.stage.clock.now().isoformat()
        done = Completed(self.stage.task_id(label), 0, f"claim-{label}", ended, {"failed": False})
        return await self.handlers.advance("graph", [done])

    async def applied(self, call: asyncio.Task[list[Answer]]) -> None:
        (answer,) = await call
        assert answer.outcome is Outcome.APPLIED, answer


async def test_a_run_leaves_its_limit_though_an_older_list_is_read_last() -> None:
    """Of two readers of a limit one is answered late, when a claim has been written and its run has ended already."""
    process = Process()
    tables = process.tables
    await process.submit({"a": [], "b": [], "c": ["a"]}, maxInFlight=3)
    tables.read[LIMIT] = 1
    late = await begun(process.claim("b"))  # it has read that nothing is in flight
    await process.claim("a")
    assert process.in_flight() == ["a"]
    tables.read[process.key("c")] = 1
    ending = await begun(process.complete("a"))  # it has read that `a` is in flight, and reads who waits for it
    tables.wrote[LIMIT] = 1
    answered_late, waits, *_ = tables.under_way
    answered_late.set()
    await settled()
    waits.set()
    await process.applied(ending)
    assert process.in_flight() == []
    (commit,) = tables.under_way[2:]
    commit.set()
    await process.applied(late)
    assert process.in_flight() == ["b"]


async def test_nothing_is_refused_by_an_absence_that_another_call_has_read() -> None:
    """It read before the task came into the graph; this call begins afterwards."""
    process = Process()
    tables = process.tables
    await process.submit({"a": []})
    key = process.key("b")
    tables.read[key] = 1
    early = await begun(process.claim("b"))
    staged = await process.stage.stage_extension(extension({"b": []}))
    await process.stage.deliver(AddTasks("graph", staged.request))
    tables.read[GRAPH] = 1  # which the early call asks for, to say why there is no such task
    (answered_late,) = tables.under_way
    answered_late.set()
    await settled()
    assert process.handlers.row_cache.of("graph").rows[key] is None
    await process.applied(await begun(process.claim("b")))
    tables.under_way[1].set()
    (refused,) = await early
    assert refused.outcome is Outcome.REFUSED


async def test_who_goes_by_what_was_forgotten_tells_who_knows_the_graph_since() -> None:
    """What a process knows of a graph is forgotten while one of its calls is at work; then that call writes."""
    process = Process()
    kept, key = process.handlers.row_cache, process.key("c")
    await process.submit({"a": [], "b": [], "c": ["a", "b"]}, maxInFlight=3)
    await process.claim("a")
    process.tables.read[LIMIT] = 1
    ending = await begun(process.complete("a"))
    kept.forget("graph")
    await kept.load("graph", kept.of("graph"), [key])
    (answered_late,) = process.tables.under_way
    answered_late.set()
    await process.applied(ending)
    assert process.tables.partitions["graph"][key].columns["requiresLeft"] == ids_text([process.stage.task_id("b")])
    assert kept.of("graph").rows.get(key) in (None, process.tables.partitions["graph"][key])
    assert process.in_flight() == []
