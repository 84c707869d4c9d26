"""The files in which commands may leave their results: one folder for each executor, closed to other users.

A run's files are removed when it is over, and the folder at the end of the executor or its process: if that is killed,
by its guard, and if the guard was killed too, by `remove_leftovers`. A folder is in use as long as its process holds a
lock on it; one of an earlier version, without a lock, as long as a process has a path into it in its environment, and
for a day after its last change.
"""

import asyncio
import itertools
import os
import re
import shutil
import stat
import tempfile
import weakref
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from taskgraph.model.errors import InvalidInput
from taskgraph.worker.executors.contract import RESULT_BYTES_MAX, checked_result
from taskgraph.worker.executors.orphans import guard
from taskgraph.worker.executors.orphans_guard import RESULTS_PREFIX

_AT_ONCE_BYTES_MAX: Final = 16 * 1024  # what is read and checked sooner than a thread could be asked to
_EARLIER_FOLDER: Final = re.compile(r"taskgraph-[a-z0-9_]{8}")  # of 0.1 to 0.3
_EARLIER_FILE: Final = re.compile(r"[0-9]{1,9}\.json")
_EARLIER_AGE: Final = timedelta(days=1)
_SET_BACK_NANOSECONDS: Final = 10 * 10**9
_RESULT_VARIABLE: Final = b"TASKGRAPH_RESULT_FILE="


class ResultFiles:
    def __init__(self) -> None:
        self._folder: str | None = None
        self._let_go: weakref.finalize[[str, int, int], ResultFiles] | None = None
        self._numbers = itertools.count(1)
        self._live: set[str] = set()
        self._shows_changes = False  # the time of the folder's last change does
        self._empty_since: int | None = None  # that time, if nothing has come into the folder since

    def new(self) -> str:
        """The path for the result of another run; there is nothing at it yet. Raises OSError."""
        if self._folder is None or not os.path.isdir(self._folder):  # an old one may have been cleared from /tmp
            if self._let_go is not None:
                self._let_go()
            self._folder, lock = _new_folder(f"{RESULTS_PREFIX}{guard().mark}-")
            self._let_go = weakref.finalize(self, _remove_folder, self._folder, lock, os.getpid())
            self._shows_changes, self._empty_since = _shows_changes(self._folder), None
        number = str(next(self._numbers))
        self._live.add(number)
        return f"{self._folder}/{number}.json"

    def is_absent(self, path: str) -> bool:
        """Whether there certainly is no result at this path, as most commands leave none: then it is discarded."""
        folder, _, name = path.rpartition("/")
        absent = self._is_empty(folder)
        if absent:
            self._live.discard(_number(name))
        return absent

    async def take(self, path: str) -> bytes | None:
        """The result at this path, if there is one; then `discard` it. Raises InvalidInput for anything but JSON."""
        if self.is_absent(path):
            return None
        try:
            status = os.lstat(path)
            if stat.S_ISREG(status.st_mode) and status.st_size <= _AT_ONCE_BYTES_MAX:
                return _read(path)
            return await asyncio.to_thread(_read, path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InvalidInput(f"the result file cannot be read: {error.strerror}") from error
        finally:
            self.discard(path)

    def discard(self, path: str) -> None:
        """Remove what the run of this path has left, as far as that can be done. Idempotent."""
        folder, _, name = path.rpartition("/")
        if _number(name) in self._live:
            self._live.discard(_number(name))
            if not self._is_empty(folder):
                self._clear(folder)

    def _is_empty(self, folder: str) -> bool:
        """Whether nothing can be in it. To look for a file in vain would cost a short command more."""
        try:
            return (
                self._empty_since is not None
                and folder == self._folder
                and os.stat(folder).st_mtime_ns == self._empty_since
            )
        except OSError:
            return False

    def _clear(self, folder: str) -> None:
        """Remove what no run can have a use for."""
        try:
            since = _set_back(folder) if self._shows_changes else None
            names = os.listdir(folder)
        except OSError:
            return
        self._empty_since = None if names else since
        for name in names:
            number = _number(name)
            # A number of ours is a run's, or was. Any other name may be of use to a run that is still under way.
            if number not in self._live if number.isdecimal() else not self._live:
                _remove(os.path.join(folder, name))


def _number(name: str) -> str:
    return name.partition(".")[0]


def _set_back(folder: str) -> int | None:
    """Give it a time of its last change that no change will have, as clocks have ticks; None if that cannot be done."""
    status = os.stat(folder)
    os.utime(folder, ns=(status.st_atime_ns, status.st_mtime_ns - _SET_BACK_NANOSECONDS))
    since = os.stat(folder).st_mtime_ns
    return since if since < status.st_mtime_ns else None


def _shows_changes(folder: str) -> bool:
    """Whether a file that comes into this folder changes the time of its last change, as it has to."""
    path = os.path.join(folder, "0.json")
    try:
        before = _set_back(folder)
        with open(path, "xb"):
            after = os.stat(folder).st_mtime_ns
        os.unlink(path)
    except OSError:
        return False
    return before is not None and after > before


def _read(path: str) -> bytes | None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a FIFO must not make us wait for a writer
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise InvalidInput("the result file is no regular file")
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(RESULT_BYTES_MAX + 1)
    finally:
        os.close(descriptor)
    return checked_result(data) if data.strip() else None


def _remove(path: str) -> None:
    """Remove a file, or a folder with all that is in it, as far as that can be done."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
    except OSError:  # a folder
        with suppress(OSError):
            os.chmod(path, stat.S_IRWXU)
            for folder, subfolders, _ in os.walk(path):
                for each in subfolders:
                    inner = os.path.join(folder, each)
                    if not os.path.islink(inner):
                        os.chmod(inner, stat.S_IRWXU)  # or only root could empty it
        shutil.rmtree(path, ignore_errors=True)


def _new_folder(prefix: str) -> tuple[str, int]:
    """A new folder, and the descriptor by which it is locked as long as the process lives."""
    while True:
        folder = tempfile.mkdtemp(prefix=prefix)
        try:
            lock = os.open(folder, os.O_RDONLY)
        except FileNotFoundError:
            continue
        _lock_folder(lock, wait=True)
        if _is_at(folder, lock):  # it was not taken for a leftover before it was locked
            return folder, lock
        os.close(lock)


def _lock_folder(descriptor: int, *, wait: bool) -> bool:
    """Gives whether the folder is locked now. Where there are no such locks, nothing is removed."""
    import fcntl  # see `orphans`

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True


def _is_at(folder: str, descriptor: int) -> bool:
    """Whether the folder of this descriptor is still the one that lies there."""
    try:
        return os.path.samestat(os.lstat(folder), os.fstat(descriptor))
    except OSError:
        return False


def _remove_folder(folder: str, lock: int, owner: int) -> None:
    if os.getpid() == owner:  # a fork has inherited what is to be done at the end, too
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


# --- what workers left that were killed together with their guard


def remove_leftovers(now: datetime) -> int:
    """Remove this user's folders of results whose process is gone; gives how many."""
    if not hasattr(os, "getuid"):  # no POSIX: no commands, and no folders
        return 0
    above = os.path.realpath(tempfile.gettempdir())
    folders = [os.path.join(above, name) for name in _names(above)]
    dead = [each for each in folders if os.path.basename(each).startswith(RESULTS_PREFIX) and _is_own(each)]
    removed = sum(map(_remove_unlocked, dead))
    earlier = [
        each for each in folders if _EARLIER_FOLDER.fullmatch(os.path.basename(each)) and _is_of_earlier(each, now)
    ]
    used = _used_folders() if earlier else set()
    for each in earlier:
        if used is not None and each not in used:
            shutil.rmtree(each, ignore_errors=True)
            removed += 1
    return removed


def _remove_unlocked(folder: str) -> bool:
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY)
    except OSError:  # gone
        return False
    try:
        if not _lock_folder(descriptor, wait=False) or not _is_at(folder, descriptor):
            return False
        shutil.rmtree(folder, ignore_errors=True)
        return True
    finally:
        os.close(descriptor)


def _is_own(folder: str) -> bool:
    try:
        found = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and stat.S_IMODE(found.st_mode) == stat.S_IRWXU


def _is_of_earlier(folder: str, now: datetime) -> bool:
    """Whether an earlier version has made it, nothing but results is in it, and nothing changed there for a day."""
    if not _is_own(folder):
        return False
    try:
        changed = os.lstat(folder).st_mtime
        names = os.listdir(folder)
    except OSError:
        return False
    return now.timestamp() - changed > _EARLIER_AGE.total_seconds() and all(map(_EARLIER_FILE.fullmatch, names))


def _used_folders() -> set[str] | None:
    """The folders in which runs that are under way may leave a result; None where that cannot be known."""
    if not os.path.isdir("/proc/self"):  # no Linux
        return None
    found = set()
    for name in filter(str.isdecimal, _names("/proc")):
        with suppress(OSError):  # another user's, or gone
            for each in Path("/proc", name, "environ").read_bytes().split(b"\0"):
                if each.startswith(_RESULT_VARIABLE):
                    path = os.fsdecode(each.removeprefix(_RESULT_VARIABLE))
                    found.add(os.path.realpath(os.path.dirname(path)))
    return found


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
