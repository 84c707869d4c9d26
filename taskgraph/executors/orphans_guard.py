"""The guard: a process of its own that ends the commands of a worker that has died. See `orphans`, which starts it.

What this room is for: waiting for the end of the worker on standard input, and ending the groups whose numbers then
stand in standard output, a file that the two share. It never says or writes anything, never touches a group that the
worker has not named, and never imports what it can do without: until it has begun, the commands have no guard.

A script: `python -I -S orphans_guard.py`. Nobody imports it.
"""

import os
import time

ORPHAN_GRACE_SECONDS = 1.0  # between SIGTERM and SIGKILL: the next run of the task may already have begun
_POLL_SECONDS = 0.02
_SIGTERM, _SIGKILL = 15, 9  # the same everywhere; the module `signal` would take as long to import as Python to start


def _signal(group: int, number: int) -> bool:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _stand_guard() -> None:
    # Not of the worker's group: what is meant for it, as an interrupt at the terminal, must not end the guard first.
    os.setsid()
    while os.read(0, 1):  # nothing is ever said: this ends when the worker does
        pass
    slots = memoryview(os.pread(1, os.fstat(1).st_size, 0)).cast("i")
    groups = [group for group in slots if group]
    left = {group for group in groups if _signal(group, _SIGTERM)}
    end = time.monotonic() + ORPHAN_GRACE_SECONDS
    while left and time.monotonic() < end:
        time.sleep(_POLL_SECONDS)
        left = {group for group in left if _signal(group, 0)}
    for group in left:
        _signal(group, _SIGKILL)


if __name__ == "__main__":
    _stand_guard()
