"""The guard: a script that ends the commands of a worker that has died. `orphans` starts it.

It waits for the end of the worker on standard input, and then ends the groups whose numbers stand in standard output, a
file that the two share. It imports as little as it can: until it has begun, the commands have no guard.
"""

import os
import time

MARK = "TASKGRAPH_GUARDED_BY"
RESULTS_PREFIX = "taskgraph-result-"  # with the mark behind it: folders of the worker for the results of its commands
ORPHAN_GRACE_SECONDS = 1.0  # between SIGTERM and SIGKILL: the next run of the task may already have begun
_POLL_SECONDS = 0.02
_LATE_SECONDS = 0.3  # a command that was being started when the worker died begins within this time
_SIGTERM, _SIGKILL = 15, 9  # the same everywhere; the module `signal` would take as long to import as Python to start


def _signal(group: int, number: int) -> bool:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def marked(mark: bytes) -> set[int]:
    """Groups of processes with a variable: a worker that dies while it starts a command cannot name its group."""
    groups: set[int] = set()
    try:
        names = os.listdir("/proc")
    except OSError:  # no Linux
        return groups
    for name in names:
        if name.isdigit() and int(name) != os.getpid():
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    if mark in file.read().split(b"\0"):
                        groups.add(os.getpgid(int(name)))
            except (OSError, ValueError):  # another user's, or gone
                continue
    return groups


def _remove_results(mark: str) -> None:
    import shutil  # only now: the commands had no guard while it was imported

    above = os.environ.get("TMPDIR", "/tmp")  # noqa: S108 the worker says where
    for name in os.listdir(above):
        if name.startswith(f"{RESULTS_PREFIX}{mark}-"):
            shutil.rmtree(os.path.join(above, name), ignore_errors=True)


def _stand_guard() -> None:
    # Not of the worker's group: what is meant for it, as an interrupt at the terminal, must not end the guard first.
    os.setsid()
    while os.read(0, 1):  # nothing is ever written: this ends when the worker does
        pass
    slots = memoryview(os.pread(1, os.fstat(1).st_size, 0)).cast("i")
    groups = [group for group in slots if group]
    left = {group for group in groups if _signal(group, _SIGTERM)}
    mark = f"{MARK}={os.environ.get(MARK, '')}".encode()
    began = time.monotonic()
    looked = 0
    while time.monotonic() < began + (ORPHAN_GRACE_SECONDS if left else _LATE_SECONDS):
        if looked < 2 and time.monotonic() >= began + looked * _LATE_SECONDS / 2:
            looked += 1
            left |= {group for group in marked(mark) - {os.getpgid(0)} if _signal(group, _SIGTERM)}
        time.sleep(_POLL_SECONDS)
        left = {group for group in left if _signal(group, 0)}
    for group in left:
        _signal(group, _SIGKILL)
    _remove_results(os.environ.get(MARK, ""))


if __name__ == "__main__":
    _stand_guard()
