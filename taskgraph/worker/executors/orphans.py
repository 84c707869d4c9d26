"""No command outlives its worker, not even a worker that is killed.

A small process, the guard (the script `orphans_guard`), knows every process group that a worker starts. The end of a
pipe shows it the worker's death, and it ends the groups that are left. The groups stand in memory that the two share, a
number in each slot, 0 where it is free: naming one is a single store, which is done or not when the worker is killed.
"""

import mmap
import os
import sys
import tempfile
import threading
from array import array
from pathlib import Path
from typing import Final

from taskgraph.model.secrecy import Environment, Handed
from taskgraph.worker.executors.orphans_guard import MARK

_SCRIPT: Final = str(Path(__file__).with_name("orphans_guard.py"))
_SLOTS: Final = 1024  # to begin with; doubled whenever they are all taken
_SLOT: Final = "i"  # an int of C, as the numbers of processes are: the processor stores it in one piece
_SLOT_BYTES: Final = array(_SLOT).itemsize


class Guard:
    def __init__(self) -> None:
        self._slot_of: dict[int, int] = {}
        self._free: list[int] = []
        self._memory = -1
        self._slots = memoryview(b"")
        self._pipe: int | None = None
        self._pid = 0
        self._lock = threading.Lock()
        self.mark = _mark()
        """In a command's environment, under `MARK`: a worker may die before it can name the group."""

    def watch(self, group: int) -> None:
        """From now on this process group ends when this process does. Raises OSError if no guard can be started."""
        with self._lock:
            if group not in self._slot_of:
                if not self._free:
                    self._grow()
                slot = self._slot_of[group] = self._free.pop()
                self._slots[slot] = group
            self._have_it_stand()

    def stand(self) -> None:
        """Have the guard stand before there is a group: those that bear the mark end, too. Raises OSError."""
        with self._lock:
            if not self._free:
                self._grow()
            self._have_it_stand()

    def _have_it_stand(self) -> None:
        if not self._stands():  # it was killed: another one finds all groups in their slots
            self._start()

    def forget(self, group: int) -> None:
        with self._lock:
            slot = self._slot_of.pop(group, None)
            if slot is not None:
                self._slots[slot] = 0
                self._free.append(slot)

    def _grow(self) -> None:
        if self._memory < 0:
            self._memory = _shared_memory()
        known = len(self._slots)
        slots = known * 2 or _SLOTS
        os.ftruncate(self._memory, slots * _SLOT_BYTES)  # what is new reads as 0, what stands there stays
        self._slots = memoryview(mmap.mmap(self._memory, slots * _SLOT_BYTES)).cast(_SLOT)
        self._free.extend(range(known, slots))

    def _stands(self) -> bool:
        if self._pipe is None:
            return False
        try:
            return os.waitpid(self._pid, os.WNOHANG)[0] == 0
        except ChildProcessError:  # it has ended, and was reaped elsewhere
            return False

    def _start(self) -> None:
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None
        reading, writing = os.pipe()
        try:
            self._pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-I", "-S", _SCRIPT],
                {
                    **Environment(Handed()).copy(),
                    MARK.encode(): self.mark.encode(),
                    b"TMPDIR": os.fsencode(tempfile.gettempdir()),
                },
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, reading, 0),
                    (os.POSIX_SPAWN_DUP2, self._memory, 1),
                    (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),  # no reader of our output waits for it
                ],
            )
        except BaseException:
            os.close(writing)
            raise
        finally:
            os.close(reading)
        self._pipe = writing


def _mark() -> str:
    """A text of this process alone: numbers of processes come again."""
    try:
        return f"{os.getpid()}-{os.stat(f'/proc/{os.getpid()}').st_ctime_ns}"
    except OSError:  # no Linux, and nothing looks for marks
        return str(os.getpid())


def _shared_memory() -> int:
    """The descriptor of a file without a name, above those that the guard gets new ones at. Raises OSError."""
    if sys.platform == "linux":
        descriptor = os.memfd_create("taskgraph-guard")
    else:
        descriptor, path = tempfile.mkstemp(prefix="taskgraph-guard-")
        os.unlink(path)
    return above_standard(descriptor)


def above_standard(descriptor: int) -> int:
    """The same file by a number above those of the standard streams. Raises OSError; the first is closed."""
    import fcntl  # here and not above: programs import this module where there is none, and submit

    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)
    finally:
        os.close(descriptor)


_guards: dict[int, Guard] = {}


def guard() -> Guard:
    """The guard of this process; a fork has one of its own."""
    pid = os.getpid()
    return _guards.get(pid) or _guards.setdefault(pid, Guard())
