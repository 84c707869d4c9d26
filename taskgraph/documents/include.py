"""Documents in several files: the parts that `include` names, read and merged into the document that names them.

Parts are read before short forms are written out, and merged after: the `defaults` of a file hold for its own tasks.
What is stored is the merged document. Problems in a part name its file and line (`Report.parts`).
"""

import posixpath
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PureWindowsPath
from typing import Any, Final, NamedTuple

from taskgraph.documents import texts
from taskgraph.documents.problems import Report
from taskgraph.model.errors import InvalidGraph
from taskgraph.model.json_strict import Path, show

INCLUDED_FILES_MAX: Final = 300
INCLUDED_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of all parts of a document together."""

_CYCLE_FILES_MAX: Final = 5  # of a cycle that a message names
_KEYS: Final = ("tasks", "groups", "params", "defaults", "include", "$schema")
_MERGED: Final = {"tasks": "task", "groups": "group", "params": "parameter"}


@dataclass(frozen=True, slots=True)
class Folder:
    """The folder of a document that is a file.

    document: name of that file in it. read: the first bytes of a file, so many at most; raises OSError. source: the
    name of a file for messages. Names are paths from the folder on, with `/`.
    """

    document: str
    read: Callable[[str, int], bytes]
    source: Callable[[str], str]


class Part(NamedTuple):
    """A part, whose value is an object of the keys of a part. mentions: there may be `$param` objects in it."""

    value: dict[str, Any]
    report: Report
    mentions: bool


class _Named(NamedTuple):
    """One file that an `include` names: where that stands, and the files by which the document comes to it."""

    said: str
    place: Path
    report: Report
    chain: tuple[str, ...]


def read_parts(obj: dict[str, Any], report: Report, folder: Folder | None) -> list[Part]:
    """Take `include` out of a document, and read what it names, each file once. Raises InvalidGraph."""
    said = obj.pop("include")
    if folder is None:
        message = "Files are included by a graph that is read from a file, and this one is not."
        report.add(("include",), "no-folder", message, "Name a file of the graph, or write the tasks into it.")
        raise report.error()
    obj.setdefault("tasks", {})
    parts: list[Part] = []
    seen: set[str] = set()
    size = 0
    left = list(_named(said, report, (posixpath.normpath(folder.document),)))[::-1]
    while left:
        here = left.pop()
        name = _path(here)
        if name is None or name in seen:
            continue
        if len(seen) == INCLUDED_FILES_MAX:
            message = f"The graph includes more than {INCLUDED_FILES_MAX} files."
            here.report.add(here.place, "too-many", message, "Put tasks that belong together into one file.")
            break
        seen.add(name)
        try:
            data = folder.read(name, INCLUDED_BYTES_MAX - size + 1)
        except OSError as error:
            message = f"{show(folder.source(name))} cannot be read: {error.strerror or error}."
            remedy = "Correct the path, which is relative to the file that names it; or the rights."
            here.report.add(here.place, "unreadable", message, remedy)
            continue
        size += len(data)
        if size > INCLUDED_BYTES_MAX:
            message = f"With {show(folder.source(name))} the parts have more than {INCLUDED_BYTES_MAX:,} bytes."
            here.report.add(here.place, "too-large", message, "Make it smaller, or write a graph of its own.")
            break
        own = report.part(folder.source(name))
        part = _part(data, own, texts.form_of(name))
        if part is not None:
            parts.append(part)
            if "include" in part.value:
                left += list(_named(part.value.pop("include"), own, (*here.chain, name)))[::-1]
    report.raise_if_any()  # labels of a part that is not read would be reported as unknown
    return parts


def _named(said: Any, report: Report, chain: tuple[str, ...]) -> Iterator[_Named]:
    for place, each in _listed(said):
        if isinstance(each, str) and each:
            yield _Named(each, place, report, chain)
        else:
            remedy = "Write a path, or a list of paths, such as [parts/build.yaml, parts/test.yaml]."
            report.add(place, "wrong-type", f"`{'/'.join(map(str, place))}` must be a path of a file.", remedy)


def _listed(said: Any) -> list[tuple[Path, Any]]:
    if isinstance(said, list):
        return [(("include", index), each) for index, each in enumerate(said)]
    return [(("include",), said)]


def _path(here: _Named) -> str | None:
    """The path of a file from the folder of the document on; None where it is none, which is reported."""
    said = here.said
    path = posixpath.normpath(posixpath.join(posixpath.dirname(here.chain[-1]), said))
    if PureWindowsPath(said).anchor or "\\" in said or not said.isprintable():
        message = f"{show(said)} is no relative path."
        remedy = "Write it relative to the file that names it, with / between folders."
        here.report.add(here.place, "bad-path", message, remedy)
    elif path == ".." or path.startswith("../"):
        message = f"{show(said)} leads out of the folder of the graph."
        here.report.add(here.place, "bad-path", message, "Put the part beside the graph, or into a folder below.")
    elif path in here.chain:
        way = [show(each) for each in here.chain[here.chain.index(path) :]]
        way = way if len(way) <= _CYCLE_FILES_MAX else [*way[:_CYCLE_FILES_MAX], "…"]
        message = f"A file includes itself: {' → '.join([*way, show(path)])}."
        here.report.add(here.place, "cycle", message, "Remove it here, or on the way.")
    else:
        return path
    return None


def _part(data: bytes, report: Report, form: texts.Form) -> Part | None:
    """What a file holds; None where there is nothing to go on with, which is reported."""
    try:
        read = texts.parse(data, report, form)
    except InvalidGraph:
        return None  # the report has the problem
    if not isinstance(read.value, dict):
        report.add((), "wrong-type", "A part must be an object.", f"Its keys are {', '.join(_KEYS)}.")
        return None
    for key in list(read.value):
        if key not in _KEYS:
            near = report.near(key, _KEYS)
            remedy = f"Put it into the file that includes this one. Keys of a part are {', '.join(_KEYS)}."
            report.add((key,), "unknown-key", f"A part has no key {show(key)}.{near}", remedy)
        elif key in _MERGED and not isinstance(read.value[key], dict):
            report.add((key,), "wrong-type", f"`{key}` must be an object.", "Write an object: {} is an empty one.")
    read.value.setdefault("tasks", {})
    return Part(read.value, report, read.mentions)


def merge(obj: dict[str, Any], parts: Sequence[Part], report: Report, *keys: str) -> None:
    """Put the members of these keys of all parts into the document, in their order."""
    for key in keys:
        if not isinstance(obj.get(key, {}), dict):
            continue  # the schema says what is wrong
        for part in parts:
            for name, member in part.value.get(key, {}).items():
                into = obj.setdefault(key, {})
                if name not in into:
                    into[name] = member
                    report.parts[key, name] = part.report
                    continue
                other = report.parts.get((key, name), report).source
                message = f"There is a {_MERGED[key]} {show(name)} in {show(other)}, too."
                part.report.add((key, name), "name-clash", message, "Give one of them another name.")
