"""Who in this process hears at once what becomes of graphs.

What this room is for: hints to calls, workers and loops that wait in this process, so that they need not look for it in
the store. Each is called as soon as a commit is made. A hint may be lost with its process and says nothing that rows do
not say: nothing rests on it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from taskgraph.engine.alarms import earliest
from taskgraph.protocol.context import Stop
from taskgraph.storage.tables import Row


@dataclass(slots=True)
class Listeners:
    """What is called with the id of a graph. Whoever listens adds itself, and takes itself off again."""

    ended: list[Callable[[str], None]] = field(default_factory=list)
    """This process has seen it end."""
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
