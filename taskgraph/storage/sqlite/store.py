"""The embedded store: tables and queues in one SQLite file, logs in files beside it, for any number of processes.

Under `synchronous=NORMAL` a process that dies loses nothing that was answered. A power cut may take the newest whole
transactions, back to the last sync of the write-ahead log; `full` syncs at each transaction.
"""

from pathlib import Path

from taskgraph.model.clock import Clock
from taskgraph.storage import checks
from taskgraph.storage.logs import StoredLogs
from taskgraph.storage.sqlite.file import File
from taskgraph.storage.sqlite.logs import EmbeddedLogs
from taskgraph.storage.sqlite.queues import EmbeddedQueues
from taskgraph.storage.sqlite.tables import EmbeddedTables
from taskgraph.storage.tables import Tables


class EmbeddedStore:
    """A store in one SQLite file.

    path: the file, made with its folder at the first write. clock: leases and delays go by its `now`. synchronous:
    `normal` or `full`, see the module.
    """

    def __init__(self, path: Path, clock: Clock, *, synchronous: str = "normal") -> None:
        if synchronous not in ("normal", "full"):
            raise ValueError(f"synchronous={synchronous!r}: normal or full")
        self.path = path.absolute()
        self._clock = clock
        self._file = File(self.path, clock, synchronous)
        self._logs = EmbeddedLogs(self.path)
        self.taken_away = self._file.taken_away
        self.give_back = self._file.give_back

    def tables(self, name: str) -> Tables:
        checks.check_table_name(name)
        return EmbeddedTables(self._file, name)

    def queues(self) -> EmbeddedQueues:
        return EmbeddedQueues(self._file, self._clock)

    def logs(self) -> StoredLogs:
        """Files under `logs/<graph>/<task>/<run>/` beside the database."""
        return self._logs

    async def close(self) -> None:
        """Finish what was begun and close the file. Idempotent; later calls raise StorageUnavailable."""
        await self._file.close()
        await self._logs.shut()
