"""Which graph is to be looked at when, because something of it is over by then: deadlines, and waiting for too long.

What this room is for: ending that to the second while a process lives that handles graphs. It keeps, in memory alone,
the earliest such time of every graph that it has learned of from rows that were read or written anyway. A time that is
not known here is found by the next sweep, so nothing rests on it. It never reads a store.
"""

import asyncio
import heapq
from collections.abc import Iterable
from datetime import datetime
from typing import Final

from taskgraph.model.timing import due_at
from taskgraph.storage.tables import Row

_GRAPHS_MAX: Final = 10_000  # more are left to the sweep


class Alarms:
    """The earliest time at which something of a graph is over, for each graph."""

    def __init__(self) -> None:
        self.earlier = asyncio.Event()
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
        columns = row.columns if row is not None else {}
        if "deadline" in columns or "nextDeadline" in columns or "pendingTimeout" in columns:  # hardly any of so many
            each = due_at(columns.get)
            if each is not None and (after is None or each > after):
                due.append(each)
    return min(due, default=None)
