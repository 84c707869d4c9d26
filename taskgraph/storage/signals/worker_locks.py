"""Which of this machine's workers are certainly dead, by lock files, which the operating system lets go at any death.

For speed alone: what resumes a graph need not wait for the lease of a run whose worker is gone.
"""

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from taskgraph.storage.private_files import file_mode, folder_mode, make_folder

_NAME: Final = re.compile(r"^[A-Za-z0-9_.-]{1,120}$")


def worker_locks(store: Path) -> "WorkerLocks | None":
    """The lock files of a store's workers; None on a system (Windows) that has no such locks."""
    try:
        import fcntl  # noqa: F401  # whether there is any
    except ImportError:
        return None
    return WorkerLocks(store)


class WorkerLocks:
    def __init__(self, store: Path) -> None:
        self._store = store
        self._folder = store.parent / "workers"

    @contextlib.contextmanager
    def hold(self, name: str) -> Iterator[None]:
        """Show that this worker lives, as long as the process does. Raises OSError if the folder cannot be written."""
        import fcntl

        path = str(self._path(name))
        beside = f"{path.removesuffix('.lock')}.new"
        flags, mode = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, file_mode(self._store)
        try:
            file = os.open(beside, flags, mode)
        except FileNotFoundError:
            make_folder(self._folder, folder_mode(self._store))
            file = os.open(beside, flags, mode)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            os.replace(beside, path)  # it has the name by which it is found once it is locked: never does it look dead
            try:
                yield
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
        finally:
            os.close(file)

    def found(self) -> list[str]:
        """Names of the workers that have a lock file: they live, or were killed."""
        return sorted(path.stem for path in self._folder.glob("*.lock")) if self._folder.is_dir() else []

    def is_dead(self, name: str) -> bool:
        """Whether this worker's process certainly was killed."""
        import fcntl

        if not _NAME.fullmatch(name):
            return False
        try:
            with self._path(name).open("r") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
        except OSError:  # no such file (it ended properly, or lives elsewhere), or the lock is held: it lives
            return False

    def forget(self, name: str) -> None:
        if _NAME.fullmatch(name):
            self._path(name).unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.lock"
