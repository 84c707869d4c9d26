"""The embedded store's logs: files in folders beside the database, readable with any tool."""

import asyncio
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

from taskgraph.model.errors import StorageUnavailable
from taskgraph.storage import checks
from taskgraph.storage.logs import LogFile, LogPage, Place
from taskgraph.storage.private_files import file_mode, folder_mode, make_folder

_T = TypeVar("_T")

_PAGE_FILES: Final = 1_000  # a page of a listing ends with the task that fills it
_REMOVE_TRIES: Final = 5  # another process may put a file into a folder that is being removed


class EmbeddedLogs:
    """Files that one thread of their own writes: appends stay in order, and rows never wait for them.

    store: the database, beside which the folder lies; the logs are as private as it is.
    """

    def __init__(self, store: Path) -> None:
        self._store = store
        self._folder = store.parent / "logs"
        self._uri = self._folder.as_uri()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="taskgraph-logs")
        self._used = self._closed = False

    def _file(self, graph_id: str, task_id: str, run: int, name: str) -> Path:
        checks.check_log(graph_id, task_id, run, name)
        return self._folder / graph_id / task_id / str(run) / name

    def url(self, graph_id: str, task_id: str, run: int, name: str = "run.log") -> str:
        checks.check_log(graph_id, task_id, run, name)  # its characters need no escape
        return f"{self._uri}/{graph_id}/{task_id}/{run}/{name}"

    async def append(self, graph_id: str, task_id: str, run: int, data: bytes, name: str = "run.log") -> None:
        await self._call(_append, self._file(graph_id, task_id, run, name), data, self._store)

    async def append_at(self, graph_id: str, task_id: str, run: int, offset: int, data: bytes, name: str) -> bool:
        return await self._call(_append_at, self._file(graph_id, task_id, run, name), offset, data, self._store)

    async def read(
        self, graph_id: str, task_id: str, run: int, *, offset: int = 0, limit: int = 1 << 20, name: str = "run.log"
    ) -> bytes | None:
        checks.check_log_read(graph_id, task_id, run, name, offset, limit)
        return await self._call(_read, self._file(graph_id, task_id, run, name), offset, limit)

    async def copy(self, source: Place, target: Place, name: str) -> bool:
        return await self._call(_copy, self._file(*source, name), self._file(*target, name), self._store)

    async def files(self, graph_id: str, *, continuation: str | None = None) -> LogPage:
        checks.check_logs_of(graph_id)
        return await self._call(_files, self._folder / graph_id, continuation or "")

    async def remove(self, graph_id: str) -> int:
        checks.check_logs_of(graph_id)
        return await self._call(_remove, self._folder / graph_id)

    async def shut(self) -> None:
        if not self._closed:
            self._closed = True
            if self._used:  # else there is no thread yet, and none is started to be ended
                await asyncio.get_running_loop().run_in_executor(self._thread, lambda: None)  # after all else on it
            self._thread.shutdown(wait=False)

    async def _call(self, work: Callable[..., _T], path: Path, *values: object) -> _T:
        if self._closed:
            raise StorageUnavailable(f"the store of {path} has been closed", str(self._folder))
        self._used = True
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work, path, *values)
        except OSError as error:
            raise StorageUnavailable(f"the log {path}: {error.strerror or error}", str(self._folder)) from error


def _append(path: Path, data: bytes, store: Path) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    except FileNotFoundError:
        make_folder(path.parent, folder_mode(store))
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_CREAT, file_mode(store))
    with open(descriptor, "ab", buffering=0) as file:
        rest = memoryview(data)
        while rest:  # a file may take less than it is given
            rest = rest[file.write(rest) :]


def _append_at(path: Path, offset: int, data: bytes, store: Path) -> bool:
    try:
        import fcntl  # here: programs import this module where there is none
    except ImportError:
        lock = None  # of two that write the same file at once, one may overwrite what is the same
    else:
        lock = fcntl.flock
    make_folder(path.parent, folder_mode(store))
    with open(os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_CREAT, file_mode(store)), "wb", buffering=0) as file:
        if lock is not None:
            lock(file, fcntl.LOCK_EX)
        if file.seek(0, os.SEEK_END) != offset:
            return False
        rest = memoryview(data)
        while rest:
            rest = rest[file.write(rest) :]
    return True


def _read(path: Path, offset: int, limit: int) -> bytes | None:
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(limit)
    except FileNotFoundError:
        return None


def _copy(path: Path, target: Path, store: Path) -> bool:
    """Link the file, or copy it where the file system has no links."""
    if not path.is_file():
        return False
    make_folder(target.parent, folder_mode(store))
    try:
        os.link(path, target)
    except FileExistsError:
        return True
    except FileNotFoundError:
        return False  # removed meanwhile
    except OSError:
        part = target.with_name(f"{target.name}.part")
        shutil.copyfile(path, part)
        part.chmod(file_mode(store))
        part.replace(target)
    return True


def _files(folder: Path, after: str) -> LogPage:
    found: list[LogFile] = []
    tasks = [task for task in _names(folder) if task > after]
    for place, task in enumerate(tasks):
        for run in _names(folder / task):
            for name in _names(folder / task / run):
                try:
                    found.append(LogFile(task, int(run), name, (folder / task / run / name).stat().st_size))
                except (FileNotFoundError, ValueError):
                    continue  # removed meanwhile, or no run of ours
        if len(found) >= _PAGE_FILES and place + 1 < len(tasks):
            return LogPage(found, task)
    return LogPage(found)


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _remove(folder: Path) -> int:
    count = 0
    for attempt in range(_REMOVE_TRIES):
        try:
            for place, folders, files in os.walk(folder, topdown=False):
                for name in files:
                    (Path(place) / name).unlink(missing_ok=True)
                    count += 1
                for name in folders:
                    (Path(place) / name).rmdir()
            folder.rmdir()
        except FileNotFoundError:
            return count  # there is none, or another process removes it too, and has come to the end
        except OSError:
            if attempt + 1 == _REMOVE_TRIES:
                raise
        else:
            return count
    return count
