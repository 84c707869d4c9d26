"""Several calls of one process on one graph that overlap, while the store answers late: what is known never goes back.

`world` lets many things go wrong, and rarely what takes three answers in one order. Here nothing goes wrong but the
order: a few tasks under one limit are claimed and completed by two processes, each call of the store lies between two
steps, and any of the calls under way makes the next one. No sweep puts right what a decision by an old row leaves
behind, and after each step no process may know an older version of a row than it has written or known before. In some
histories an edit takes requirements away from the last task meanwhile.
"""

import random
from collections.abc import Coroutine, Generator, Mapping, Sequence
from types import coroutine
from typing import Any, Final

from taskgraph.documents.edit_document import edit_from_object
from taskgraph.documents.nodes import GraphDocument, TaskNode
from taskgraph.engine.commit import Records
from taskgraph.engine.handlers import Handlers
from taskgraph.engine.requests import answer_request
from taskgraph.engine.submission import edit, submit
from taskgraph.model.ids import GRAPH, limit_key, limit_scope, row_key, task_id_of
from taskgraph.model.states import TaskState
from taskgraph.protocol.context import ClaimOffer, Outcome
from taskgraph.protocol.decide import Answer
from taskgraph.protocol.runs import Claim, Completed
from taskgraph.storage.tables import Change, Page, Range, Row
from taskgraph.testing import MemoryQueues, MemoryTables, drive
from tests.simulation.invariants import Violation, hold
from tests.simulation.world import EPOCH, VirtualClock

GRAPH_ID: Final = "g"
LIMIT: Final = limit_key(limit_scope("graph", ""))
LAST: Final = "whole"
"""The task that requires all others: claimed when they are over, and nothing is under way any more. Its id comes last,
so that a read of many rows reaches it when tasks that it requires may have ended meanwhile."""

_LATE: Final = 0.5


@coroutine
def _step() -> Generator[None, None, None]:
    yield


class LateTables:
    """The store as one process reaches it: a call is evaluated a while after it is made, and answered a while later.

    versions: of each row of the graph, the latest that this process has written or known.
    """

    def __init__(self, inner: MemoryTables, rng: random.Random) -> None:
        self._inner = inner
        self._rng = rng
        self.versions: dict[str, int] = {}

    async def _later(self) -> None:
        while self._rng.random() < _LATE:
            await _step()

    async def get(self, partition: str, keys: Sequence[str]) -> list[Row | None]:
        found: list[Row | None] = []
        for key in keys:  # no snapshot: others write between
            await self._later()
            found += await self._inner.get(partition, [key])
        await self._later()
        return found

    async def query(self, partition: str, rows: Range, *, limit: int = 1000, continuation: str | None = None) -> Page:
        await self._later()
        page = await self._inner.query(partition, rows, limit=limit, continuation=continuation)
        await self._later()
        return page

    async def commit(self, partition: str, changes: Sequence[Change]) -> list[str | None]:
        await self._later()
        etags = await self._inner.commit(partition, changes)
        await self._later()
        if partition == GRAPH_ID:
            for change, etag in zip(changes, etags, strict=True):
                if etag is not None:
                    self.versions[change.key] = max(_version(etag), self.versions.get(change.key, 0))
        return etags


class NoTaker:
    """A worker in the process of the handlers that takes nothing by itself: the rows of limits stay known."""

    def wants(self, graph_id: str) -> bool:
        return False

    def items(self, graph_id: str) -> Sequence[Completed | Claim]:
        return ()

    def answered(self, graph_id: str, answers: Sequence[Answer], rows: Mapping[str, Row | None]) -> None:
        raise AssertionError("it has reported nothing")

    def failed(self, graph_id: str, error: Exception) -> None:
        raise AssertionError("it has reported nothing")

    def offer(self, graph_id: str) -> ClaimOffer | None:
        return None

    def started(self, graph_id: str, started: Sequence[object], rows: Mapping[str, Row | None]) -> None:
        raise AssertionError("it has offered nothing")

    def keep(
        self, graph_id: str, target: str, tasks: Sequence[tuple[str, int]], rows: Mapping[str, Row | None]
    ) -> Sequence[tuple[str, int]]:
        return tasks


class Process:
    """One process, which holds against what it has written and known whatever it knows."""

    def __init__(
        self, tables: LateTables, queues: MemoryQueues, clock: VirtualClock, local_worker: NoTaker | None
    ) -> None:
        self.handlers = Handlers(Records(tables, clock), queues, clock)
        self._tables = tables
        self._taker = local_worker

    async def take(self, item: Claim | Completed, *, alone: bool) -> Answer:
        """Decide by rows of its own, if alone, and otherwise by what all calls of the process know."""
        handlers = self.handlers
        if alone:
            (answer,) = await handlers.transition(GRAPH_ID, [item])
        else:
            (answer,) = await handlers.advance(GRAPH_ID, [item], local_worker=self._taker)
        hold(answer.error is None, f"{item}: {answer.error!r}")
        return answer

    def look(self) -> None:
        """What is known now is no older than what was written or known before."""
        versions = self._tables.versions
        for key, row in self.handlers.row_cache.of(GRAPH_ID).rows.items():
            if row is not None:
                before, now = versions.get(key, 0), _version(row.etag)
                hold(now >= before, f"{key} was e{before}, and is known as e{now}")
                versions[key] = now


def _version(etag: str) -> int:
    return int(etag.removeprefix("e"))


class Overlapping:
    """One history, by its seed; to be played once."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        rng = self._rng = random.Random(seed)
        labels = [f"t{number}" for number in range(rng.choice((2, 3, 4)))]
        requires = {label: tuple(each for each in labels[:n] if rng.random() < 0.3) for n, label in enumerate(labels)}
        tasks = {label: TaskNode(label, wanted, 0, {}) for label, wanted in requires.items()}
        tasks[LAST] = TaskNode(LAST, tuple(labels), 0, {})
        self.document = GraphDocument(tasks, max_in_flight=rng.choice((2, 3, 4)))
        self.clock = VirtualClock(rng.random)
        self.tables = MemoryTables()
        self._queues = MemoryQueues(self.clock)
        takers = [NoTaker() if rng.random() < 0.7 else None for _ in range(rng.choice((1, 2, 2)))]
        self.processes = [
            Process(LateTables(self.tables, rng), self._queues, self.clock, local_worker) for local_worker in takers
        ]
        self._alone = rng.choice((0.0, 0.0, 0.3))
        self._kept = [label for label in labels if rng.random() < 0.7] if rng.random() < 0.5 else None

    def oracle(self) -> str:
        """How the graph ends."""
        return "finished"

    def run(self, steps_max: int) -> str:
        """Play to the end; gives the state of the graph. Raises AssertionError for a promise that is broken."""
        try:
            return self._run(steps_max)
        except Violation as violation:
            raise AssertionError(f"seed {self.seed}: {violation}") from violation

    def _run(self, steps_max: int) -> str:
        drive(submit(Handlers(Records(self.tables, self.clock), self._queues, self.clock), GRAPH_ID, self.document))
        going = [self._life(label) for label in self.document.tasks if label != LAST]
        if self._kept:
            going.append(self._edit(self._kept))
        self._play(going, steps_max)
        counted = self._row(LIMIT).columns["inFlight"]
        hold(counted in ("", "[]"), f"{LIMIT} counts {counted}, and nothing runs")
        self._play([self._life(LAST)], steps_max)
        return str(self._row(GRAPH).columns["state"])

    def _play(self, going: list[Coroutine[Any, Any, None]], steps_max: int) -> None:
        try:
            for _ in range(steps_max):
                if not going:
                    return
                one = self._rng.choice(going)
                try:
                    one.send(None)
                except StopIteration:
                    going.remove(one)
                for process in self.processes:
                    process.look()
            hold(False, f"after {steps_max} steps {len(going)} tasks are not over")
        finally:
            for one in going:
                one.close()

    def _row(self, key: str) -> Row:
        return self.tables.partitions[GRAPH_ID][key]

    async def _life(self, label: str) -> None:
        """A task as its workers see it: it becomes ready, it is claimed, it is completed."""
        task_id = task_id_of(GRAPH_ID, label)
        while self._row(row_key(task_id)).columns["state"] != TaskState.PENDING:
            await _step()
        claim = self.clock.new_id()
        while (await self._take(self._claim(task_id, claim))).outcome is not Outcome.APPLIED:
            await _step()  # there is no room
        answer = await self._take(Completed(task_id, 0, claim, EPOCH.isoformat(), {"failed": False}))
        hold(answer.outcome is Outcome.APPLIED, f"{label} has run, and its end is {answer.outcome}: {answer.reason}")

    async def _edit(self, kept: Sequence[str]) -> None:
        """Take requirements away from the last task."""
        handlers = self._rng.choice(self.processes).handlers
        wish = edit_from_object({"update": {LAST: {"requires": list(kept)}}})
        staged = await edit(handlers, GRAPH_ID, wish)
        await answer_request(handlers, GRAPH_ID, staged.request)

    async def _take(self, item: Claim | Completed) -> Answer:
        rng = self._rng
        return await rng.choice(self.processes).take(item, alone=rng.random() < self._alone)

    def _claim(self, task_id: str, claim: str) -> Claim:
        edited = int(self._row(row_key(task_id)).columns.get("edited", 0))
        return Claim(task_id, 0, claim, "w", EPOCH.replace(year=EPOCH.year + 1), edited=edited)
