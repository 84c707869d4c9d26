"""No command outlives its worker, not even one that dies without a word.

What this room is for: a worker that is killed with SIGKILL, or by the system for want of memory, cannot end the
commands that it runs, and the next run of the same task would work beside them. So a small process of its own, the
guard, is told of every process group that a worker starts. It hears of the worker's death by the end of a pipe, which
the system closes however a process dies, and then ends the groups that are left. It never touches a group that the
worker has not named, and never outlives the worker by more than the grace.

Run as a script (that is how a worker starts it) this module is the guard, and needs nothing but the standard library.
"""

import contextlib
import os
import signal
import sys
import threading
import time
from typing import Final

ORPHAN_GRACE_SECONDS: Final = 1.0  # between SIGTERM and SIGKILL: the next run of the task may already have begun
_POLL_SECONDS: Final = 0.02


class Guard:
    """The worker's end of the pipe. One for a process, shared by its executors; see `guard`."""

    def __init__(self) -> None:
        self._groups: set[int] = set()
        self._pipe: int | None = None
        self._lock = threading.Lock()

    def watch(self, group: int) -> None:
        """From now on this process group ends when this process does. Starts the guard at the first one.

        Raises OSError if no guard can be started.
        """
        with self._lock:
            self._groups.add(group)
            try:
                self._tell(f"+{group}\n")
            except OSError:  # somebody has killed the guard: another one, and all groups are news to it
                self._close()
                self._tell("".join(f"+{each}\n" for each in self._groups))

    def forget(self, group: int) -> None:
        """Leave this process group alone from now on: it is over."""
        with self._lock:
            self._groups.discard(group)
            if self._pipe is not None:
                with contextlib.suppress(OSError):  # no guard, nobody to forget: the next `watch` starts another
                    self._tell(f"-{group}\n")

    def _tell(self, text: str) -> None:
        if self._pipe is None:
            self._pipe = _start()
        os.write(self._pipe, text.encode())  # far below what a pipe takes in one piece

    def _close(self) -> None:
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None


_guards: dict[int, Guard] = {}


def guard() -> Guard:
    """The guard of this process. A fork has one of its own: it must not speak for its parent."""
    return _guards.setdefault(os.getpid(), Guard())


def _start() -> int:
    """Start the guard; gives the writing end of its pipe. Raises OSError."""
    reading, writing = os.pipe()
    try:
        os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", __file__],
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, reading, 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),  # nobody who reads our output waits for it
                (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
            ],
        )
    except BaseException:
        os.close(writing)
        raise
    finally:
        os.close(reading)
    return writing


def _signal(group: int, number: int) -> bool:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _stand_guard() -> None:
    # Not of the worker's group: what is meant for it, as an interrupt at the terminal, must not end the guard first.
    os.setsid()
    groups: set[int] = set()
    for line in sys.stdin:
        group = int(line[1:])
        if line[0] == "+":
            groups.add(group)
        else:
            groups.discard(group)
    left = {group for group in groups if _signal(group, signal.SIGTERM)}
    end = time.monotonic() + ORPHAN_GRACE_SECONDS
    while left and time.monotonic() < end:
        time.sleep(_POLL_SECONDS)
        left = {group for group in left if _signal(group, 0)}
    for group in left:
        _signal(group, signal.SIGKILL)


if __name__ == "__main__":
    _stand_guard()
