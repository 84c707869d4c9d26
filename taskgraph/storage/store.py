"""Port: a whole store that is handed in instead of named by an address: the store in memory, in tests."""

from typing import Protocol

from taskgraph.model.clock import Clock
from taskgraph.storage.logs import StoredLogs
from taskgraph.storage.queues import Queues
from taskgraph.storage.tables import Tables


class Store(Protocol):
    """The caller that hands it in closes it."""

    @property
    def clock(self) -> Clock:
        """The clock of its leases and delays, and of the app that opens it."""

    def tables(self, name: str) -> Tables: ...

    def queues(self) -> Queues: ...

    def logs(self) -> StoredLogs: ...
