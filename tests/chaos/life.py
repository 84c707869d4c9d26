"""One short life of the real protocol over the real emulator, within this process, request after request.

What this room is for: playing a graph from its submission to its end by hand: receive events, handle them, receive
work, do it, and so on, in one order, so that request k is the same one in every life that has had no fault. The parts
are the product's own; the loops around them, which only wait, are left out. Leases are the shortest that the emulator
knows, as the time is the machine's.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from taskgraph.documents.nodes import TaskNode
from taskgraph.documents.read import document_from_object
from taskgraph.engine.commit import Records
from taskgraph.engine.consumer import Consumer, Waiting, misplaced
from taskgraph.engine.handlers import Handlers
from taskgraph.engine.poison import Poison
from taskgraph.engine.submission import extend, submit
from taskgraph.engine.sweep import Swept, sweep_graph
from taskgraph.model.clock import SystemClock
from taskgraph.model.errors import TaskgraphError
from taskgraph.model.ids import GRAPH
from taskgraph.model.names import QueueNames
from taskgraph.model.states import GRAPH_ENDED, GraphState
from taskgraph.queries.graphs import Queries
from taskgraph.storage.signals.wakeup import Wakeup
from taskgraph.storage.tables import Range, Row, query_all
from taskgraph.worker.executors import Work, built_in
from taskgraph.worker.loop import Worker
from tests.chaos.launcher import faulty_store, real_transport
from tests.chaos.transport import FaultyTransport, Killed, Plan
from tests.simulation.invariants import settled

LEASE_SECONDS: Final = 1.0
_PATIENCE_SECONDS: Final = 40.0
GRAPH_ID: Final = "graph"


@dataclass(slots=True)
class Story:
    """A graph, what is done to it, and what was executed. fails: label -> runs that fail first."""

    document: Mapping[str, Any]
    extension: Mapping[str, Any] | None = None
    fails: Mapping[str, int] = field(default_factory=dict)
    executed: Counter[tuple[str, int]] = field(default_factory=Counter)
    ended_well: Counter[str] = field(default_factory=Counter)

    @property
    def nodes(self) -> dict[str, TaskNode]:
        found = dict(document_from_object(self.document).tasks)
        if self.extension is not None:
            found |= document_from_object(self.extension, kind="extension").tasks
        return found

    def work(self, context: Work) -> None:
        self.executed[context.label, context.run] += 1
        if context.run < self.fails.get(context.label, 0):
            raise RuntimeError("told to fail")
        self.ended_well[context.label] += 1


class Life:
    """One process: its own connections, caches and name, over an installation that others use too."""

    def __init__(self, connection: str, prefix: str, story: Story, plan: Plan | None = None) -> None:
        def die(request: str) -> None:
            raise Killed(request)

        clock = SystemClock()
        self.clock = clock
        self.story = story
        self.transport = FaultyTransport(real_transport(), plan, die=die)
        self.store = faulty_store(connection, clock, self.transport)
        self.tables, queues = self.store.tables(prefix), self.store.queues()
        self.names = QueueNames(prefix)
        self.handlers = Handlers(Records(self.tables, clock), queues, clock, self.names)
        self.poison = Poison(self.tables, queues, clock, self.names)
        self.queries = Queries(self.tables, queues, clock, self.names)
        self.consumer = Consumer(self.handlers, self.poison, Wakeup(), lease_seconds=LEASE_SECONDS)

        async def work(context: Work) -> None:
            story.work(context)

        self.worker = Worker(
            self.handlers,
            self.poison,
            built_in(clock, callables={"work": work}),
            self.store.logs(),
            Wakeup(),
            name="worker",
            slots=4,
            lease_seconds=LEASE_SECONDS,
        )

    async def close(self) -> None:
        await self.store.close()

    async def live(self) -> None:
        """Submit, extend, and go on until the graph is at rest. Raises Killed; TimeoutError if it never is.

        Whatever part of it dies, all of it does: one that waits for another would never hear of it.
        """
        living = asyncio.ensure_future(self._live())
        dead = asyncio.ensure_future(self.transport.dead.wait())
        try:
            await asyncio.wait((living, dead), return_when=asyncio.FIRST_COMPLETED)
            if not living.done():
                raise Killed("in a task of its own")
            await living
        finally:
            dead.cancel()
            living.cancel()
            await asyncio.wait((living,))

    async def _live(self) -> None:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            await self._until_done(self._submit)
            if self.story.extension is not None:
                await self._until_done(self._extend)
            while True:
                try:
                    moved = await self.step()
                    if not moved and await self.at_rest():
                        return
                    if not moved:
                        await asyncio.sleep(0.2)  # what is hidden comes back by itself, and leases end
                        await sweep_graph(self.handlers, GRAPH_ID, Swept(), at_once=True)
                except TaskgraphError:
                    await asyncio.sleep(0.05)  # as the loops do: the store failed, and is asked again

    async def _submit(self) -> None:
        await submit(self.handlers, GRAPH_ID, document_from_object(self.story.document))

    async def _extend(self) -> None:
        assert self.story.extension is not None
        document = document_from_object(self.story.extension, kind="extension")
        await extend(self.handlers, GRAPH_ID, document)

    async def _until_done(self, step: Any) -> None:
        """As a user does who is told that the store has failed: the same command again."""
        while True:
            try:
                return await step()
            except TaskgraphError:
                await asyncio.sleep(0.05)

    async def step(self) -> bool:
        """Take what lies on the queues; gives whether there was anything."""
        queues = self.handlers.queues
        events = await queues.receive(self.names.events, count=32, lease_seconds=LEASE_SECONDS)
        batch = [Waiting(message, each) for each in events if (message := await self.poison.read(each, misplaced))]
        if batch:
            await self.consumer.take(GRAPH_ID, batch)
        work = await queues.receive(self.names.work("default"), count=32, lease_seconds=LEASE_SECONDS)
        await self.worker.take(work)
        return bool(events or work)

    async def at_rest(self) -> bool:
        """Whether the graph has ended, or is blocked and nothing moves."""
        state = await self.queries.state(GRAPH_ID)
        if state in GRAPH_ENDED:
            return True
        return state == GraphState.BLOCKED and not await self.queries.busy(GRAPH_ID)

    async def rows(self) -> dict[str, Row]:
        return {row.key: row for row in await query_all(self.tables, GRAPH_ID, Range())}


async def verdict(life: Life, story: Story) -> Counter[str]:
    """What must hold of a graph at rest, whatever happened on the way; gives what the runs were. Raises Violation."""
    rows = await life.rows()
    nodes = story.nodes
    if any(
        key.startswith("request:") and row.columns.get("state") in ("staged", "refused") for key, row in rows.items()
    ):
        nodes = dict(document_from_object(story.document).tasks)  # the graph had finished before anybody heard of it
    settled(rows, GRAPH_ID, nodes)
    assert rows[GRAPH].columns["state"] == "finished"
    tasks = {str(row.columns["label"]): row.columns for key, row in rows.items() if key.startswith("task:")}
    told: Counter[str] = Counter()
    for label, columns in tasks.items():
        last = int(columns["run"])  # type: ignore[arg-type]
        runs = [run for (each, run), _ in story.executed.items() if each == label]
        assert columns["state"] == "completed"
        assert last in runs, f"{label} has completed run {last}, and was executed in {runs}"
        assert max(runs) == last, f"{label} has completed run {last}, and run {max(runs)} was executed"
        lost = 5 - int(columns["retriesLeft"])  # type: ignore[arg-type]
        told["lost"] += lost
        told["again"] += story.ended_well[label] - 1
        assert story.ended_well[label] <= 1 + lost, f"{label} was done {story.ended_well[label]} times, {lost} lost"
    twice = {run: times for run, times in story.executed.items() if times > 1}
    assert not twice, f"executed more than once: {twice}"
    return told
