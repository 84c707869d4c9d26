"""The embedded store: tables and queues in one SQLite file, logs in files beside it, for any number of processes.

- Write-ahead log and `BEGIN IMMEDIATE`: writers of several processes take turns, readers never wait, and the event loop
  waits for none of them (see `file`).
- `synchronous=NORMAL` by default: a process that dies loses nothing that was answered, and the file is never torn. A
  power cut may take what was committed since the last sync of the log, in whole transactions, the newest first: that
  is at most what the last checkpoint left, up to some 64 MiB of writes, and in practice the seconds that the operating
  system keeps writes back. `full` closes that window with one sync per transaction.
- Etags come from one counter in the file, taken in blocks: none is ever given twice, over all tables and processes,
  across deleting and creating again. A block that is lost with its process is simply not used.
"""

from collections.abc import Callable
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

    path: the file, made with its folder at the first call. clock: leases and delays go by its `now`. synchronous:
    `normal` or `full`, see the module. Nothing is opened before the first call; `close` when done.
    """

    def __init__(self, path: Path, clock: Clock, *, synchronous: str = "normal") -> None:
        if synchronous not in ("normal", "full"):
            raise ValueError(f"synchronous={synchronous!r}: normal or full")
        self._path = path.absolute()
        self._clock = clock
        self._file = File(self._path, clock, synchronous)
        self._logs = EmbeddedLogs(self._path)

    @property
    def path(self) -> Path:
        """The file, as an absolute path."""
        return self._path

    def tables(self, name: str) -> Tables:
        """The table of this name. Raises ValueError for a name that the cloud would refuse."""
        checks.check_table_name(name)
        return EmbeddedTables(self._file, name)

    def queues(self, on_send: Callable[[str], None] | None = None) -> EmbeddedQueues:
        """All queues. on_send: called on the event loop with the queue's name after a send that can be received now."""
        return EmbeddedQueues(self._file, self._clock, on_send)

    def logs(self) -> StoredLogs:
        """All logs: files under `logs/<graph>/<task>/<run>/` beside the database."""
        return self._logs

    def taken_away(self) -> str:
        """What became of the file that is open: "removed", "replaced by another file", or "" while it lies there."""
        return self._file.taken_away()

    async def close(self) -> None:
        """Finish what was begun and close the file. Idempotent; later calls raise StorageUnavailable."""
        await self._file.close()
        await self._logs.shut()
