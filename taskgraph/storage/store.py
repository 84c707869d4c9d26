"""Port: a whole store, as somebody may hand one in instead of naming it: a store in memory, in tests.

What this room is for: what opens into the three other ports. It never names a table or a queue.
"""

from collections.abc import Callable
from typing import Protocol

from taskgraph.model.clock import Clock
from taskgraph.storage.logs import StoredLogs
from taskgraph.storage.queues import Queues
from taskgraph.storage.tables import Tables


class Store(Protocol):
    """Tables, queues and logs. Who hands it in closes it."""

    @property
    def clock(self) -> Clock:
        """What its leases and delays go by, and whoever opens it."""
        ...

    def tables(self, name: str) -> Tables:
        """The table of this name."""
        ...

    def queues(self, on_send: Callable[[str], None] | None = None) -> Queues:
        """All queues. on_send: told the name of a queue to which something was sent that can be received."""
        ...

    def logs(self) -> StoredLogs:
        """All logs."""
        ...
