"""Folders for results of commands that workers left which were killed together with their guard.

What this room is for: finding and removing them. A folder of this version is in use as long as its process holds a lock
on it (see `results`); one of an earlier version, which has no lock, as long as a process has a path into it in its
environment, and for a day after its last change. It never removes what another user owns, nor anything that is not
certainly a leftover.
"""

import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from taskgraph.worker.executors.orphans_guard import RESULTS_PREFIX
from taskgraph.worker.executors.results import is_at, lock_folder

_EARLIER_FOLDER: Final = re.compile(r"taskgraph-[a-z0-9_]{8}")  # of 0.1 to 0.3
_EARLIER_FILE: Final = re.compile(r"[0-9]{1,9}\.json")
_EARLIER_AGE: Final = timedelta(days=1)
_RESULT_VARIABLE: Final = b"TASKGRAPH_RESULT_FILE="


def remove_leftovers(now: datetime) -> int:
    """Remove folders of results whose process is gone, and of this user alone; gives how many."""
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
        if not lock_folder(descriptor, wait=False) or not is_at(folder, descriptor):
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
    """The folders in which runs that are under way may leave a result; None where that cannot be known.

    A worker of an earlier version that has no run under way makes another folder where its own is gone.
    """
    if not os.path.isdir("/proc/self"):  # no Linux
        return None
    return {
        os.path.realpath(os.path.dirname(os.fsdecode(each.removeprefix(_RESULT_VARIABLE))))
        for environment in _environments()
        for each in environment.split(b"\0")
        if each.startswith(_RESULT_VARIABLE)
    }


def _environments() -> Iterator[bytes]:
    for name in _names("/proc"):
        if name.isdecimal():
            with suppress(OSError):  # another user's, or gone
                yield Path("/proc", name, "environ").read_bytes()


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
