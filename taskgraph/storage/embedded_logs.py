"""The embedded store's logs: files in folders beside the database.

What this room is for: output of runs, readable with any tool. It never touches the database, and rows never wait for
it.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from taskgraph.errors import StorageUnavailable
from taskgraph.storage import checks

_T = TypeVar("_T")


class EmbeddedLogs:
    """Port Logs over files, written by one thread of their own: appends stay in order, and rows never wait for them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._uri = ""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="taskgraph-logs")
        self._closed = False

    def _file(self, graph_id: str, task_id: str, run: int, name: str) -> Path:
        checks.check_log(graph_id, task_id, run, name)
        return self._folder / graph_id / task_id / str(run) / name

    def url(self, graph_id: str, task_id: str, run: int, name: str = "run.log") -> str:
        """See Logs; a file URI."""
        checks.check_log(graph_id, task_id, run, name)  # its characters need no escape
        if not self._uri:
            self._uri = self._folder.as_uri()
        return f"{self._uri}/{graph_id}/{task_id}/{run}/{name}"

    async def append(self, graph_id: str, task_id: str, run: int, data: bytes, name: str = "run.log") -> None:
        """See Logs."""
        await self._call(_append, self._file(graph_id, task_id, run, name), data)

    async def read(
        self, graph_id: str, task_id: str, run: int, *, offset: int = 0, limit: int = 1 << 20, name: str = "run.log"
    ) -> bytes | None:
        """See Logs."""
        if offset < 0 or limit < 1:
            raise ValueError(f"reading {limit} bytes from {offset}: at least 1, from 0 on")
        return await self._call(_read, self._file(graph_id, task_id, run, name), offset, limit)

    async def close(self) -> None:
        """Nothing: the thread belongs to the store."""

    async def shut(self) -> None:
        """Finish what was begun."""
        if not self._closed:
            self._closed = True
            await asyncio.get_running_loop().run_in_executor(self._thread, _nothing)
            self._thread.shutdown(wait=False)

    async def _call(self, work: Callable[..., _T], path: Path, *values: object) -> _T:
        if self._closed:
            raise StorageUnavailable(f"the store of {path} has been closed", str(self._folder))
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work, path, *values)
        except OSError as error:
            raise StorageUnavailable(f"the log {path}: {error.strerror or error}", str(self._folder)) from error


def _append(path: Path, data: bytes) -> None:
    try:
        file = path.open("ab", buffering=0)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("ab", buffering=0)
    with file:
        rest = memoryview(data)
        while rest:  # a file may take less than it is given
            rest = rest[file.write(rest) :]


def _read(path: Path, offset: int, limit: int) -> bytes | None:
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(limit)
    except FileNotFoundError:
        return None


def _nothing() -> None:
    """The last thing on a thread: when it is done, everything before it is."""
