"""Files and folders that are their owner's alone, whatever the umask.

What this room is for: payloads, environments, results and logs of tasks are plain text, and not for the other users of
the machine. A store that a group shares says so by the mode of its own file: what is made beside it follows that.
"""

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final

_SHARED: Final = stat.S_IRGRP | stat.S_IWGRP


def file_mode(store: Path | None = None) -> int:
    """The mode of a new file. store: the file beside which it is made, whose group may then have it too."""
    try:
        shared = store.stat().st_mode & _SHARED if store is not None else 0
    except OSError:
        shared = 0
    return stat.S_IRUSR | stat.S_IWUSR | shared


def folder_mode(store: Path | None = None) -> int:
    """The mode of a new folder, see `file_mode`."""
    mode = file_mode(store)
    return mode | (mode & 0o440) >> 2


def write_anew(path: Path) -> BinaryIO:
    """A file to write from its beginning. Raises OSError."""
    return open(path, "wb", opener=opener(file_mode()))


def opener(mode: int) -> Callable[[str, int], int]:
    """For `open`: a file that is made gets this mode."""
    return lambda path, flags: os.open(path, flags, mode)


def make_folder(path: Path, mode: int) -> None:
    """Make a folder, and each above it that is missing, with this mode. Raises OSError."""
    try:
        os.mkdir(path, mode)
    except FileExistsError:
        if not path.is_dir():
            raise
    except FileNotFoundError:
        make_folder(path.parent, mode)
        make_folder(path, mode)


def open_to_others(store: Path) -> list[Path]:
    """Which of a store's files and folders others than its owner and group can read or enter, if not hindered above."""
    folder = store.parent
    if not _is_open(folder):
        return []
    beside = [store, folder / f"{store.name}-wal", *(folder / name for name in ("logs", "workers"))]
    return [path for path in beside if _is_open(path)]


def _is_open(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & stat.S_IRWXO)
    except OSError:
        return False
