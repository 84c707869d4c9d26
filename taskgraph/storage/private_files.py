"""Files and folders that are their owner's alone, whatever the umask: payloads, results and logs are plain text.

A store that a group shares says so by the mode of its own file: what is made beside it follows that.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

from taskgraph.model.errors import InvalidInput, StorageUnavailable

_SHARED: Final = stat.S_IRGRP | stat.S_IWGRP
_NO_ROOM: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))


def file_mode(store: Path | None = None) -> int:
    """The mode of a new file. store: the file beside which it is made, whose group may then have it too."""
    try:
        shared = store.stat().st_mode & _SHARED if store is not None else 0
    except OSError:
        shared = 0
    return stat.S_IRUSR | stat.S_IWUSR | shared


def folder_mode(store: Path | None = None) -> int:
    mode = file_mode(store)
    return mode | (mode & 0o440) >> 2


@contextlib.contextmanager
def written_whole(path: Path, tag: str) -> Iterator[BinaryIO]:
    """A file to write: it is at this path once it is whole, and not at all if the body fails.

    tag: of the file beside it, which is its own until then. Raises what `unwritable` gives.
    """
    if path.exists() and not path.is_file():
        raise InvalidInput(f"{path} is no regular file")  # a device would be replaced
    part = path.with_name(f".{path.name}.{tag}.part")
    try:
        with open(part, "wb", opener=opener(file_mode())) as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        part.replace(path)
    except OSError as error:
        raise unwritable(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def unwritable(path: Path | str, error: OSError) -> InvalidInput | StorageUnavailable:
    if has_no_room(error):
        return StorageUnavailable(f"{path} cannot be written: the disk is full, or its user may write no more")
    return InvalidInput(f"{path} cannot be written: {error.strerror or error}")


def has_no_room(error: OSError) -> bool:
    return error.errno in _NO_ROOM


def opener(mode: int) -> Callable[[str, int], int]:
    """For `open`: the mode of a file that it makes."""
    return lambda path, flags: os.open(path, flags, mode)


def make_folder(path: Path, mode: int) -> None:
    """Make a folder, and each above it that is missing, with this mode. Raises OSError."""
    try:
        os.mkdir(path, mode)
    except FileExistsError:
        if not path.is_dir():
            raise
    except FileNotFoundError:
        if path.parent.is_dir():
            raise  # nothing can be made there, as in /proc
        make_folder(path.parent, mode)
        make_folder(path, mode)


def open_to_others(store: Path) -> list[Path]:
    """Which of a store's files and folders others than its owner and group can read or enter."""

    def is_open(path: Path) -> bool:
        try:
            return bool(path.stat().st_mode & stat.S_IRWXO)
        except OSError:
            return False

    folder = store.parent
    if not is_open(folder):
        return []
    return [
        path for path in (store, folder / f"{store.name}-wal", folder / "logs", folder / "workers") if is_open(path)
    ]
