"""Which queues events go to: one for all graphs, or several, of which each graph has one by a hash of its id.

How many there are stands in one row, at which every process looks that sends or receives events (D12a). Processes that
believe different numbers lose nothing and are only slower: a message names its graph, and any handler may take it.
"""

import binascii
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from taskgraph.model import limits
from taskgraph.model.clock import Clock
from taskgraph.model.columns import Columns, integer, time_of
from taskgraph.model.errors import Conflict, Unclear
from taskgraph.model.flag import Flag
from taskgraph.model.names import LEADS, QueueNames
from taskgraph.storage.tables import Change, Insert, Merge, Row, Tables

if TYPE_CHECKING:
    from taskgraph.model.messages import Message

NUMBER: Final = "queues"  # key of the row that says how many there are
LOOK_SECONDS: Final = 30.0  # what a process has read of that row is good for so long
_OLD_SECONDS: Final = 4 * LOOK_SECONDS  # after a change every process knows of it, and what it had sent is received
LEFT_SECONDS: Final = 3600.0  # queues that are used no more are looked at for so long


class EventQueues:
    """What one process knows of the queues of events. number: how many are used.

    only_first: it uses the common queue, or those of all kinds of events, whatever the row says.
    """

    def __init__(self, tables: Tables, clock: Clock, names: QueueNames, *, only_first: bool = False) -> None:
        self.number = 1
        self.changed = Flag()
        """Set once other queues are to be received from; there is a new one for the next change."""
        self.only_first = only_first or names.per_operation
        self._tables = tables
        self._clock = clock
        self._names = names
        self._row: Row | None = None
        self._looked: float | None = None  # monotonic

    @property
    def received(self) -> tuple[str, ...]:
        """The queues that handlers receive from: for a while also those that others do not know yet to be left."""
        number = max(self.number, self._most) if self._was_changed_for(_OLD_SECONDS) else self.number
        return (*self._names.received, *map(self._names.events_of, range(1, number)))

    @property
    def _most(self) -> int:
        most = integer(self._row.columns, "most") if self._row is not None and not self.only_first else 1
        return min(most, limits.EVENT_QUEUES_MAX)

    def _was_changed_for(self, seconds: float) -> bool:
        """Whether the number was changed less than so long ago."""
        since = time_of(self._row.columns, "since") if self._row is not None else None
        return since is not None and self._clock.now() - since < timedelta(seconds=seconds)

    def of(self, graph_id: str) -> str:
        """The queue of a graph's events, by whose name it is led, too."""
        return self._names.events_of(binascii.crc32(graph_id.encode()) % self.number)

    def lead_of(self, queue: str) -> str:
        """By which name a queue is led: those of all kinds of events have one lead, any other has its own.

        So has one that is left: the process that leads over what is used may not know that anything was sent there.
        """
        return self._names.events if self.only_first else queue

    async def queue_of(self, message: "Message") -> str:
        """Where a message is to be sent. Raises StorageUnavailable."""
        if self.only_first:
            return self._names.of(message)
        await self.refresh()
        return self.of(message.graph)

    async def refresh(self) -> None:
        """Know how many there are, as it was some seconds ago at most. Raises StorageUnavailable."""
        now = self._clock.monotonic()
        if not self.only_first and (self._looked is None or now - self._looked >= LOOK_SECONDS):
            await self.look()

    async def look(self) -> None:
        """Read what the row says. Raises StorageUnavailable."""
        (row,) = await self._tables.get(LEADS, [NUMBER])
        self.learn(row)

    def learn(self, row: Row | None) -> None:
        """Take what the row says."""
        before = self.received
        self._row, self._looked = row, self._clock.monotonic()
        self.number = 1 if self.only_first else number_in(row)
        if self.received != before:  # also by a number that is the same, after another that was not seen here
            self.changed.set()
            self.changed = Flag()

    async def use(self, number: int) -> None:
        """Have every process use so many, within LOOK_SECONDS or so. Raises Conflict, Unclear, StorageUnavailable."""
        await self.look()
        row = self._row
        if number_in(row) == number:
            return
        most = max(number, number_in(row), integer(row.columns, "most") if row is not None else 1)
        columns: Columns = {"number": number, "most": most, "since": self._clock.now()}
        change: Change = Insert(NUMBER, columns) if row is None else Merge(NUMBER, row.etag, columns)
        try:
            await self._tables.commit(LEADS, [change])
        except (Conflict, Unclear):  # reach: lead
            await self.look()
            if number_in(self._row) != number:
                raise
        else:
            await self.look()

    def left(self) -> Sequence[str]:
        """Queues that are not received here, and to which events of graphs may ever have gone."""
        most = integer(self._row.columns, "most") if self._row is not None else 1
        every = map(self._names.events_of, range(min(most, limits.EVENT_QUEUES_MAX)))
        return [each for each in every if each not in self.received]

    def may_be_sent_to(self) -> bool:
        """Whether anybody may send to those that are left: by another number, or by one that was changed lately."""
        return self._was_changed_for(LEFT_SECONDS) or number_in(self._row) > self.number


def number_in(row: Row | None) -> int:
    """How many queues the row says there are; 1 without one."""
    return min(max(integer(row.columns, "number"), 1), limits.EVENT_QUEUES_MAX) if row is not None else 1
