"""How many ready tasks go into one work message (D12): one each while there are few, more when there is plenty.

As many as leave one for each worker, and more than every version reads only where all that may read the message, or
the results of its tasks, are known to take it, and where one worker runs so many in a moment.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from taskgraph.model import limits
from taskgraph.model.clock import Clock
from taskgraph.model.messages import TaskCompleted
from taskgraph.protocol.decide import Answer
from taskgraph.protocol.runs import Completed, Failed
from taskgraph.queries.workers import Crew, crew
from taskgraph.storage.tables import Tables

_SHARES_MIN: Final = 2  # into so many messages at least goes what is ready
_WORKER_SECONDS: Final = 60.0
_CREW_SECONDS: Final = 30.0  # for which a process goes by what it has read of workers and handlers
_MOMENT_SECONDS: Final = 0.25  # for so long at most one worker runs what comes to it in a large message
_COUNTED_MAX: Final = 10_000  # graphs, and workers


@dataclass(slots=True)
class BundleSizes:
    """What one process knows of it."""

    tables: Tables
    clock: Clock
    in_flight: dict[str, int] = field(default_factory=dict)
    """Graph id -> about how many tasks this process has sent out and has no result of."""
    paces: dict[str, float] = field(default_factory=dict)
    """Graph id -> how many seconds the runs took on average whose results came last."""
    workers: dict[str, float] = field(default_factory=dict)
    """Worker -> when its last result came in (monotonic seconds)."""
    crew: Crew | None = None
    """Workers and handlers, as they were read last."""
    crew_at: float = 0.0  # when (monotonic)

    def sent(self, graph_id: str, count: int) -> None:
        if len(self.in_flight) >= _COUNTED_MAX:
            self.in_flight.clear()
        self.in_flight[graph_id] = self.in_flight.get(graph_id, 0) + count

    def note_results(self, message: TaskCompleted) -> None:
        """Note results that have come in: who sends them, and how long the runs took."""
        if message.worker:
            self.workers[message.worker] = self.clock.monotonic()
        if took := [each.seconds for each in message.tasks if each.seconds is not None]:
            if len(self.paces) >= _COUNTED_MAX:
                self.paces.clear()
            self.paces[message.graph] = sum(took) / len(took)

    def have_ended(self, graph_id: str, answers: Sequence[Answer]) -> None:
        """Note results that have been handled."""
        if flying := self.in_flight.get(graph_id):
            ended = sum(isinstance(answer.item, Completed | Failed) for answer in answers)
            self.in_flight[graph_id] = max(0, flying - ended)

    def forget(self, graph_id: str) -> None:
        """The graph has ended."""
        self.in_flight.pop(graph_id, None)
        self.paces.pop(graph_id, None)

    async def size(self, graph_id: str, target: str, waiting: float, *, own: bool, reminder: bool) -> int:
        """For tasks of a graph and target, of which so many wait for workers, those in flight among them.

        own: this process is the only reader. reminder: see Dispatcher.dispatch. Raises StorageUnavailable.
        """
        lately = self._workers_lately()
        size = waiting / max(_SHARES_MIN, len(lately))
        most: float = limits.LARGE_BUNDLE_TASKS_MAX
        if size > limits.BUNDLE_TASKS_MAX and not own:
            most = max(limits.BUNDLE_TASKS_MAX, 0.0 if reminder else self._run_in_a_moment(graph_id))
            if most > limits.BUNDLE_TASKS_MAX:
                takers = (await self._crew_lately()).takers_of_large(target, lately)
                share = waiting / max(_SHARES_MIN, takers) if takers else 0.0
                most = max(limits.BUNDLE_TASKS_MAX, min(most, share))
        return max(1, int(min(size, most, limits.LARGE_BUNDLE_TASKS_MAX)))

    def _run_in_a_moment(self, graph_id: str) -> float:
        """How many tasks of a graph one worker runs in a moment: while it has more, others may have nothing to do."""
        pace = self.paces.get(graph_id)
        return 0.0 if pace is None else _MOMENT_SECONDS / pace if pace else math.inf

    def _workers_lately(self) -> Collection[str]:
        """Workers with a result in the last minute."""
        if len(self.workers) > _COUNTED_MAX:
            self.workers.clear()
        since = self.clock.monotonic() - _WORKER_SECONDS
        return [name for name, last in self.workers.items() if last >= since]

    async def _crew_lately(self) -> Crew:
        """Workers and handlers, as it was some seconds ago at most.

        A process of an older version that began since leaves a large message alone, and it comes back to the others.
        """
        now = self.clock.monotonic()
        if self.crew is None or now - self.crew_at >= _CREW_SECONDS:
            self.crew, self.crew_at = await crew(self.tables, self.clock.now()), now
        return self.crew
