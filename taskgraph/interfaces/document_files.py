"""What lies beside a file: the files that `foreach` finds, the parts that `include` names, texts of other programs."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from taskgraph.documents.include import Folder

_BESIDE_BYTES_MAX: Final = 64 * 1024 * 1024


def finder(folder: Path) -> Callable[[str], list[str]]:
    """What finds files by patterns, from a folder on."""
    import glob

    return lambda pattern: sorted(
        path for path in glob.glob(pattern, root_dir=folder, recursive=True) if (folder / path).is_file()
    )


def folder_of(file: Path) -> Folder:
    """The folder of a document. Its files are read where they really lie: a link does not lead out of it."""
    folder = file.parent

    def read(name: str, most: int) -> bytes:
        path = Path(os.path.realpath(folder / name, strict=True))
        if not path.is_relative_to(os.path.realpath(folder)):
            raise OSError(errno.EACCES, "it is a link that leads out of the folder of the graph")
        if not path.is_file():  # a pipe would be waited for
            raise OSError(errno.EINVAL, "it is not a file")
        with path.open("rb") as opened:
            return opened.read(most)

    return Folder(file.name, read, lambda name: str(folder / name))


def texts_beside(file: Path) -> Callable[[str], str | None]:
    """What reads a text by its path from the folder of the file on; None where there is none, or it lies elsewhere."""
    folder = folder_of(file)

    def read(name: str) -> str | None:
        try:
            return folder.read(name, _BESIDE_BYTES_MAX).decode("utf-8", "replace")
        except (OSError, ValueError):
            return None  # who asks says which file is not there

    return read
