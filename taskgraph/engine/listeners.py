"""What in this process is called at once about what becomes of graphs: calls, workers and loops that wait here.

Each is called as soon as a commit is made. A hint may be lost with its process and says nothing that rows do not say:
nothing rests on it.
"""

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Protocol

from taskgraph.model.columns import Columns
from taskgraph.model.flag import Flag
from taskgraph.model.states import GraphState
from taskgraph.model.timing import due_at
from taskgraph.protocol.context import ClaimOffer, Started, Stop
from taskgraph.protocol.decide import Answer
from taskgraph.protocol.runs import Claim, Completed
from taskgraph.storage.tables import Row

_GRAPHS_MAX: Final = 10_000  # more are left to the sweep


@dataclass(slots=True)
class Listeners:
    """What is called with the id of a graph. Each listener adds itself, and takes itself off again."""

    ended: list[Callable[[str, GraphState], None]] = field(default_factory=list)
    """This process has seen it end, in this state."""
    news: list[Callable[[str], None]] = field(default_factory=list)
    """A commit about it was made here: there may be notices."""
    due: list[Callable[[str, datetime], None]] = field(default_factory=list)
    """Something of it is over at that time: a deadline, a wait for a worker."""
    stop: list[Callable[[str, Sequence[Stop]], None]] = field(default_factory=list)
    """These runs are cancelled: workers of this process need not wait for their next renewal to learn of it."""

    def note_due(self, graph_id: str, rows: Iterable[Row | None], after: datetime | None = None) -> None:
        """Say when the first of these rows is over by time; see `earliest`."""
        if self.due and (when := earliest(rows, after)) is not None:
            for note in self.due:
                note(graph_id, when)


class Alarms:
    """The earliest time at which something of a graph is over, for each graph."""

    def __init__(self) -> None:
        self.earlier = Flag()
        self._due: dict[str, datetime] = {}
        self._heap: list[tuple[datetime, str]] = []

    def note(self, graph_id: str, due: datetime) -> None:
        """Something of this graph is over then. Only the earliest time counts."""
        known = self._due.get(graph_id)
        if (known is None and len(self._due) < _GRAPHS_MAX) or (known is not None and due < known):
            self._due[graph_id] = due
            heapq.heappush(self._heap, (due, graph_id))
            if self._heap[0][0] == due:
                self.earlier.set()

    def take(self, now: datetime) -> list[str]:
        """The graphs whose time has come; they are forgotten here."""
        self.earlier.clear()
        found: list[str] = []
        while self._heap and self._heap[0][0] <= now:
            due, graph_id = heapq.heappop(self._heap)
            if self._due.get(graph_id) == due:
                del self._due[graph_id]
                found.append(graph_id)
        return found

    def seconds_left(self, now: datetime, most: float) -> float:
        """Until the next time, but no longer than this: clocks may be set."""
        return min(most, (self._heap[0][0] - now).total_seconds()) if self._heap else most


def earliest(rows: Iterable[Row | None], after: datetime | None = None) -> datetime | None:
    """When the first of these rows is over, as far as they are known; None if none is by time.

    after: later than this alone; what has come by then is looked at already.
    """
    due: list[datetime] = []
    for row in rows:
        if row is not None and _is_timed(row.columns):  # hardly any of so many
            each = due_at(row.columns.get)
            if each is not None and (after is None or each > after):
                due.append(each)
    return min(due, default=None)


def _is_timed(columns: Columns) -> bool:
    return "deadline" in columns or "nextDeadline" in columns or "pendingTimeout" in columns


@dataclass(slots=True)
class Counters:
    """What this process has done since it began."""

    commits: int = 0
    conflicts: int = 0
    dispatched: int = 0
    stale: int = 0
    refused: int = 0


class LocalWorker(Protocol):
    """A worker in this process, which takes what becomes ready without being sent a message."""

    async def get_ready(self) -> None:
        """Know what it may take, before it makes its first offer."""

    def wants(self, graph_id: str) -> bool:
        """Whether it has something for `items`, now."""

    def items(self, graph_id: str) -> Sequence[Completed | Claim]:
        """What it has to report, and claims of ready tasks that it knows of: to go along with the next commit."""

    def answered(self, graph_id: str, answers: Sequence[Answer], rows: Mapping[str, Row | None]) -> None:
        """What became of items, its own among them. rows: as the commit left them."""

    def failed(self, graph_id: str, error: Exception) -> None:
        """What has not been answered will not be. With a StorageError it may be tried again."""

    def offer(self, graph_id: str) -> ClaimOffer | None:
        """How much it can take at once, now."""

    def started(self, graph_id: str, started: Sequence[Started], rows: Mapping[str, Row | None]) -> None:
        """These are claimed in its name: run them. rows: as the commit left them."""

    def keep(
        self, graph_id: str, target: str, tasks: Sequence[tuple[str, int]], rows: Mapping[str, Row | None]
    ) -> Sequence[tuple[str, int]]:
        """Ready tasks that are not sent yet: keep those to be claimed soon, and give the others back."""
