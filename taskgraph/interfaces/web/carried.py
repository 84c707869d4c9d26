"""What a tab of a browser needs of this installation to work things out by itself, as one zip.

This package, and the libraries beneath its HTTP API, all of them pure Python, with their licences.
"""

import functools
import io
import zipfile
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import Final

import taskgraph
from taskgraph.model import schemas

NAME: Final = "taskgraph.zip"
_DISTRIBUTIONS: Final = (
    "anyio",
    "attrs",
    "cronsim",
    "idna",
    "jsonschema",
    "jsonschema-specifications",
    "referencing",
    "sse-starlette",
    "starlette",
    "typing-extensions",
    "tzdata",
)
_LEFT_OUT: Final = frozenset({"__pycache__", "benchmarks", "cli", "static", "taskcluster", "tests"})
_DAY: Final = (1980, 1, 1, 0, 0, 0)  # the same bytes of the same files


@functools.cache
def zipped() -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as out:
        for name, file in sorted(_files()):
            out.writestr(zipfile.ZipInfo(name, _DAY), file.read_bytes(), zipfile.ZIP_DEFLATED)
    return made.getvalue()


def _files() -> Iterator[tuple[str, Path]]:
    package = Path(taskgraph.__file__).parent
    yield from _within(package, "taskgraph")
    yield from _within(schemas.folder(), "taskgraph/schemas")
    for each in _DISTRIBUTIONS:
        for file in distribution(each).files or ():
            place = Path(str(distribution(each).locate_file(file)))
            if ".." not in file.parts and file.suffix != ".pyc" and _LEFT_OUT.isdisjoint(file.parts[:-1]):
                yield file.as_posix(), place


def _within(folder: Path, name: str) -> Iterator[tuple[str, Path]]:
    for place in folder.rglob("*"):
        path = place.relative_to(folder)
        if place.is_file() and _LEFT_OUT.isdisjoint(path.parts):
            yield f"{name}/{path.as_posix()}", place
