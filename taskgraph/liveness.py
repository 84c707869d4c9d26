"""Who of this machine's workers is certainly dead.

What this room is for: on the embedded store a worker holds a lock file, which the operating system lets go when the
process dies, however it dies. Whoever resumes a graph need not wait for the lease of a run whose worker is gone. It
never says "dead" without having held the lock itself, and it is for speed alone: leases decide without it.
"""

import contextlib
import fcntl
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_NAME: Final = re.compile(r"^[A-Za-z0-9_.-]{1,120}$")


class WorkerLocks:
    """Lock files of workers in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextlib.contextmanager
    def hold(self, name: str) -> Iterator[None]:
        """Show that this worker lives, as long as the process does. Raises OSError if the folder cannot be written."""
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._path(name)
        with path.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                path.unlink(missing_ok=True)

    def is_dead(self, name: str) -> bool:
        """Whether this worker's process has ended without saying so. False when that is not known for certain."""
        if not _NAME.fullmatch(name):
            return False
        try:
            with self._path(name).open("r") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
        except OSError:  # no such file (it ended properly, or lives elsewhere), or the lock is held: it lives
            return False

    def forget(self, name: str) -> None:
        """Remove the file of a dead worker whose runs have been given up."""
        if _NAME.fullmatch(name):
            self._path(name).unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.lock"
