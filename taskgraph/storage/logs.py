"""Port: the output of runs, one log for each run of a task.

What this room is for: bytes that people read later. It is never the truth about anything: a lost log fails no task
and blocks no handler.
"""

from typing import Protocol


class Logs(Protocol):
    """All logs of a store. A log is named by (graph, task, run)."""

    def url(self, graph_id: str, task_id: str, run: int, name: str = "run.log") -> str:
        """Where the log (or another file of the run, such as `result.json`) is or will be; never carries a secret."""
        ...

    async def append(self, graph_id: str, task_id: str, run: int, data: bytes, name: str = "run.log") -> None:
        """Add bytes to the end, making the log if need be. Raises StorageUnavailable."""
        ...

    async def read(
        self, graph_id: str, task_id: str, run: int, *, offset: int = 0, limit: int = 1 << 20, name: str = "run.log"
    ) -> bytes | None:
        """Up to `limit` bytes from `offset`; b"" at the end; None for a log that does not exist."""
        ...

    async def close(self) -> None:
        """Give connections back. Idempotent."""
        ...
