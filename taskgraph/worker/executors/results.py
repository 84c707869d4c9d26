"""Result files of commands: the files in which a command may leave its result.

What this room is for: a path for each run's result, and reading and removing what a run has left there. The files of
an executor share one folder that no other user can enter: a folder for each run would cost more than all the rest of a
short one. It never keeps what a run has left under its own name once the run is over, nor anything else once no run is
under way; and the folder goes with the executor, at the latest when the process ends: if that is killed, its guard
removes the folder, and if the guard was killed too, `leftovers` does. A folder is in use as long as its
process holds a lock on it, and what is in use is never removed.
"""

import asyncio
import itertools
import os
import shutil
import stat
import tempfile
import weakref
from contextlib import suppress
from typing import Final

from taskgraph.model.errors import InvalidInput
from taskgraph.worker.executors.contract import RESULT_BYTES_MAX, checked_result
from taskgraph.worker.executors.orphans import guard
from taskgraph.worker.executors.orphans_guard import RESULTS_PREFIX

_AT_ONCE_BYTES_MAX: Final = 16 * 1024  # what is read and checked sooner than a thread could be asked to


class ResultFiles:
    """The result files of one executor."""

    def __init__(self) -> None:
        self._folder: str | None = None
        self._let_go: weakref.finalize[[str, int, int], ResultFiles] | None = None
        self._numbers = itertools.count(1)
        self._live: set[str] = set()

    def new(self) -> str:
        """The path for the result of another run; there is nothing at it yet. Raises OSError."""
        if self._folder is None or not os.path.isdir(self._folder):  # who tidies up /tmp may have taken an old one
            if self._let_go is not None:
                self._let_go()
            self._folder, lock = _new_folder(f"{RESULTS_PREFIX}{guard().mark}-")
            self._let_go = weakref.finalize(self, _remove_folder, self._folder, lock, os.getpid())
        number = str(next(self._numbers))
        self._live.add(number)
        return f"{self._folder}/{number}.json"

    async def take(self, path: str) -> bytes | None:
        """The result that a command has left; None if it left none. Then the path is given back, as by `discard`.

        Raises InvalidInput for anything but JSON.
        """
        folder, name = os.path.split(path)
        if not self._clear(folder, keep=_number(name)):  # most commands leave nothing
            self._live.discard(_number(name))
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
        """Remove what the run that was given this path has left. What cannot be removed is no matter of the run's.

        Idempotent.
        """
        folder, name = os.path.split(path)
        if _number(name) in self._live:
            self._live.discard(_number(name))
            self._clear(folder)

    def _clear(self, folder: str, keep: str = "") -> bool:
        """Remove what no run can have a use for; whether there may be something of the run to keep."""
        try:
            names = os.listdir(folder)
        except OSError:
            return True
        kept = False
        for name in names:
            number = _number(name)
            if keep and number == keep:
                kept = True
            # A number of ours is a run's, or was. Any other name may be of use to a run that is still under way.
            elif number not in self._live if number.isdecimal() else not self._live:
                _remove(os.path.join(folder, name))
        return kept


def _number(name: str) -> str:
    return name.partition(".")[0]


def _read(path: str) -> bytes | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a FIFO must not make us wait for a writer
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InvalidInput(f"the result file cannot be read: {error.strerror}") from error
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
    """A folder of this process's own, and the descriptor by which it is locked as long as the process lives."""
    while True:
        folder = tempfile.mkdtemp(prefix=prefix)
        try:
            lock = os.open(folder, os.O_RDONLY)
        except FileNotFoundError:
            continue
        lock_folder(lock, wait=True)
        if is_at(folder, lock):  # it was not taken for a leftover before it was locked
            return folder, lock
        os.close(lock)


def lock_folder(descriptor: int, *, wait: bool) -> bool:
    """Lock a folder; whether that was done. Where there are no such locks, nothing is removed."""
    import fcntl  # see `command`

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True


def is_at(folder: str, descriptor: int) -> bool:
    """Whether the folder of this descriptor is still the one that lies there."""
    try:
        return os.path.samestat(os.lstat(folder), os.fstat(descriptor))
    except OSError:
        return False


def _remove_folder(folder: str, lock: int, owner: int) -> None:
    if os.getpid() == owner:  # a fork has inherited what is to be done at the end, too
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)
