"""Port: the files of runs: a log, the result, and what else is kept of one. A lost log fails no task."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

Place = tuple[str, str, int]
"""A run: graphId, taskId, and its number."""

Read = Callable[..., Awaitable[bytes | None]]
"""Reads a log: see `Logs.read`, for one run."""

_STEP_BYTES: Final = 64 * 1024  # read at once, when looking for the end of a log


@dataclass(frozen=True, slots=True)
class LogFile:
    """size: in bytes."""

    task_id: str
    run: int
    name: str
    size: int


@dataclass(frozen=True, slots=True)
class LogPage:
    """continuation: opaque; None means that there are no more."""

    files: Sequence[LogFile]
    continuation: str | None = None


class Logs(Protocol):
    def url(self, graph_id: str, task_id: str, run: int, name: str = "run.log") -> str:
        """Where the log (or another file of the run, such as `result.json`) is or will be; never carries a secret."""

    async def append(self, graph_id: str, task_id: str, run: int, data: bytes, name: str = "run.log") -> None:
        """Add bytes to the end, making the log if need be. Raises StorageUnavailable."""

    async def read(
        self, graph_id: str, task_id: str, run: int, *, offset: int = 0, limit: int = 1 << 20, name: str = "run.log"
    ) -> bytes | None:
        """Up to `limit` bytes from `offset`; b"" at the end; None for a log that does not exist."""

    async def copy(self, source: Place, target: Place, name: str) -> bool:
        """Have a file of one run be one of another, too, without reading it; False where there is none.

        Of a file that is written once: the two may share their bytes. One that the target has already stays. Raises
        StorageUnavailable.
        """


class StoredLogs(Logs, Protocol):
    async def files(self, graph_id: str, *, continuation: str | None = None) -> LogPage:
        """Files of a graph, in the order of task, run as text, and name. Raises StorageUnavailable."""

    async def append_at(self, graph_id: str, task_id: str, run: int, offset: int, data: bytes, name: str) -> bool:
        """Add up to limits.ARCHIVE_PIECE_BYTES to the end if that is at `offset`, making the file if need be.

        False where it is not: another call writes the file. Raises StorageUnavailable: the bytes may be there then.
        """

    async def remove(self, graph_id: str) -> int:
        """Remove every file of a graph; gives how many. Repeatable.

        What is appended meanwhile may stay. Raises StorageUnavailable: some may be gone then.
        """


async def size_of(read: Read) -> int:
    """How long a log is. No request says it: its end is looked for by steps that double, then by halves."""
    low, high = 0, _STEP_BYTES
    while await read(offset=high, limit=1):
        low, high = high, 2 * high
    while high - low > _STEP_BYTES:
        middle = (low + high) // 2
        if await read(offset=middle, limit=1):
            low = middle
        else:
            high = middle
    return low + len(await read(offset=low, limit=high - low) or b"")
