"""What all importers share: unpacking, reading foreign values, and the last step into a document."""

import gzip
import hashlib
import io
import itertools
import math
import re
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from taskgraph.documents.nodes import GraphDocument
from taskgraph.documents.problems import Report
from taskgraph.documents.read import document_from_object
from taskgraph.model import limits
from taskgraph.model.errors import InvalidGraph, Problem
from taskgraph.model.json_pointer import pointer
from taskgraph.model.json_strict import Path, show

UNPACKED_BYTES_MAX: Final = 512 * 1024 * 1024
_CHUNK_BYTES: Final = 1 << 20
_GZIP_MAGIC: Final = b"\x1f\x8b"
_TEXT_LIMITS: Final = {"name": 255, "description": 30_000, "owner": 255, "source": 4_096}
_TAG_CHARS_MAX: Final = 4_096
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
_NAMED_MAX: Final = 5  # names in a note

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Imported:
    """A graph that was read, and what was left out or changed: sentences for people."""

    document: GraphDocument
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Foreign:
    """A text in a foreign format, and what is asked of its reading.

    goals: what is wanted of it, by the other program's names; empty for what that program makes by itself.
    commands: whether tasks run the commands. beside: the text of a file by its path from the folder of this one, None
    where there is none or none may be read.
    """

    text: str
    source: str = "document"
    goals: tuple[str, ...] = ()
    commands: bool = False
    beside: Callable[[str], str | None] = lambda _: None


@dataclass(slots=True)
class Shape:
    """A graph in the making: nodes by label, groups by name, and what a document says of the whole."""

    tasks: dict[str, dict[str, Any]] = field(default_factory=dict)
    groups: dict[str, dict[str, Any]] = field(default_factory=dict)
    whole: dict[str, Any] = field(default_factory=dict)
    places: dict[str, Path | int] = field(default_factory=dict)

    def limit(self, name: str, tasks: Iterable[str], most: int, reader: "Reader") -> None:
        """Let so many of the tasks run at a time, by a group of this name; a note where that cannot be said."""
        members = [label for label in dict.fromkeys(tasks) if label in self.tasks]
        if not members:
            return
        if not 1 <= most <= limits.IN_FLIGHT_MAX:
            reader.note(f"The limit {show(name)} was left out: {most} is not from 1 to {limits.IN_FLIGHT_MAX:,}.")
        elif sum("maxInFlight" in group for group in self.groups.values()) >= limits.LIMITED_GROUPS_MAX:
            reader.note(f"Only {limits.LIMITED_GROUPS_MAX} limits were kept.")
        else:
            group = self.groups.setdefault(self.free(reader.label(name)), {"tasks": members})
            group["maxInFlight"] = most

    def free(self, name: str) -> str:
        """The name, changed if a task or group has it."""
        while name in self.tasks or name in self.groups:
            name = f"group {name}"
        return name


def unpacked(data: bytes, source: str = "document", *, bytes_max: int = UNPACKED_BYTES_MAX) -> bytes:
    """The data, unpacked if it is gzip. Raises InvalidGraph for damaged data, and for more than bytes_max bytes."""
    if not data.startswith(_GZIP_MAGIC):
        return data
    parts: list[bytes] = []
    size = 0
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            while part := file.read(_CHUNK_BYTES):
                size += len(part)
                if size > bytes_max:
                    raise _bad_gzip(source, f"Unpacked, the data has more than {bytes_max:,} bytes.")
                parts.append(part)
    except EOFError as error:
        raise _bad_gzip(source, "The gzip data ends too early.") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        follows = str(error).startswith("Not a gzipped file")  # the data begins as gzip: so what follows is not
        what = "Something that is not gzip follows the gzip data." if follows else f"The gzip data is damaged: {error}."
        raise _bad_gzip(source, what) from error
    return b"".join(parts)


def _bad_gzip(source: str, message: str) -> InvalidGraph:
    return InvalidGraph([Problem("", "gzip", message, "Fetch or pack the file again.")], source=source)


class Reader:
    def __init__(self, source: str) -> None:
        self._report = Report(source)
        self.problem = self._report.add
        self._source = source
        self._notes: dict[str, None] = {}
        self._named: dict[str, dict[str, None]] = {}  # by what is said of these names

    def stop_if_any(self) -> None:
        """Raises InvalidGraph if there are problems."""
        self._report.raise_if_any()

    def know_lines(self, lines: Callable[[Iterable[Path]], Mapping[Path, int]]) -> None:
        """Let problems that point at a path have its line."""
        self._report.lines = lines

    def note(self, sentence: str) -> None:
        self._notes[sentence] = None

    def note_names(self, names: Iterable[str], what: str) -> None:
        """A note about things by name, one for all of a kind: “what: a, b, … 3 more.” None about nothing."""
        for name in names:
            self._named.setdefault(what, {})[name] = None

    def _all_notes(self) -> tuple[str, ...]:
        made = [*self._notes]
        for what, names in self._named.items():
            shown = ", ".join(show(name) for name in itertools.islice(names, _NAMED_MAX))
            more = f", … {len(names) - _NAMED_MAX:,} more" if len(names) > _NAMED_MAX else ""
            made.append(f"{what}: {shown}{more}.")
        return tuple(made)

    def label(self, name: str) -> str:
        """The name as a label: blanks for control characters, and a digest for the end of one that is too long."""
        made = _CONTROL.sub(" ", name).strip() or "-"
        if len(made) <= limits.LABEL_CHARS_MAX:
            return made
        self.note("Names that are too long for a label were cut, and have a digest in the place of their end.")
        digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:12]
        return f"{made[: limits.LABEL_CHARS_MAX - 13]}…{digest}"

    def note_count(self, count: int, one: str, many: str) -> None:
        """A note about so many things, none about nothing. `many` holds a place for the number: {}."""
        if count:
            self.note(one if count == 1 else many.format(f"{count:,}"))

    def _of_type(self, kind: type[_T], noun: str, value: Any, path: Path, what: str) -> _T:
        """The value if it is of this kind; an empty one and a problem for anything else."""
        if isinstance(value, kind):
            return value
        self.problem(path, "wrong-type", f"{what} is {show(value)}, and must be {noun}.", f"Write {noun}.")
        return kind()

    def mapping(self, value: Any, path: Path, what: str) -> dict[str, Any]:
        return self._of_type(dict, "an object", value, path, what)

    def array(self, value: Any, path: Path, what: str) -> list[Any]:
        return self._of_type(list, "an array", value, path, what)

    def text(self, value: Any, path: Path, what: str) -> str:
        return self._of_type(str, "a string", value, path, what)

    def optional_text(self, value: Any, path: Path, what: str) -> str | None:
        """A string, or None for null; None and a problem for anything else."""
        return None if value is None else self._of_type(str, "a string or null", value, path, what) or None

    def seconds(self, value: Any, path: Path, what: str) -> float | None:
        """A number of seconds, not negative, or None for null; None and a problem for anything else."""
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0 or not math.isfinite(value):
            message = f"{what} is {show(value)}, and must be a number of seconds or null."
            self.problem(path, "out-of-range", message, "Write a number that is not negative.")
            return None
        return value

    def texts(self, value: Any, path: Path, what: str) -> list[str]:
        """An array of strings; what is none is left out, with a problem."""
        items = self.array(value, path, what)
        found = []
        for index, item in enumerate(items):
            if isinstance(item, str):
                found.append(item)
            else:
                self.text(item, (*path, index), f"Item {index} of {what}")
        return found

    def metadata(self, **texts: Any) -> dict[str, str]:
        """Metadata of the graph from whatever of it is text, cut to what fits."""
        return {key: self._cut(text, _TEXT_LIMITS[key], f"metadata.{key}") for key, text in _texts_of(texts)}

    def tags(self, texts: Mapping[str, Any]) -> dict[str, str]:
        return {key: self._cut(text, _TAG_CHARS_MAX, f"the tag {key}") for key, text in _texts_of(texts)}

    def _cut(self, text: str, chars_max: int, what: str) -> str:
        if len(text) <= chars_max:
            return text
        self.note(f"The text for {what} was cut to {chars_max:,} characters.")
        return text[:chars_max]

    def shaped(self, shape: Shape, *, name: Any = None, source: Any = None) -> Imported:
        """The checked document with the notes. Raises InvalidGraph."""
        whole = {**shape.whole, **({"groups": shape.groups} if shape.groups else {})}
        return self.document(shape.tasks, shape.places, metadata=self.metadata(name=name, source=source), whole=whole)

    def document(
        self,
        tasks: Mapping[str, Any],
        places: Mapping[str, Path | int],
        *,
        metadata: Mapping[str, str],
        tags: Mapping[str, str] | None = None,
        inner: Callable[[Path], Path] | None = None,
        whole: Mapping[str, Any] | None = None,
    ) -> Imported:
        """The checked document with the notes. places: of each label in the file, or its line. Raises InvalidGraph.

        whole: other keys of the document.
        inner: from a place below a converted node to one below the task's place; without it, problems point at the
        task.
        """
        if not tasks:
            self.problem((), "empty", "The file holds no tasks.", "Choose a file with at least one task.")
        self._report.raise_if_any()
        made: dict[str, Any] = {**(whole or {}), "tasks": tasks}
        if metadata:
            made["metadata"] = metadata
        if tags:
            made["tags"] = tags
        try:
            document = document_from_object(made, source=self._source)
        except InvalidGraph as error:
            lines = self._report.lines([place for place in places.values() if not isinstance(place, int)])
            raise InvalidGraph(_moved(error.problems, places, lines, inner), source=self._source) from error
        return Imported(document, self._all_notes())


def _texts_of(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(key, value) for key, value in values.items() if isinstance(value, str) and value]


def _moved(
    problems: tuple[Problem, ...],
    places: Mapping[str, Path | int],
    lines: Mapping[Path, int],
    inner: Callable[[Path], Path] | None,
) -> list[Problem]:
    by_token = {pointer((label,)): place for label, place in places.items()}
    moved = []
    for problem in problems:
        tokens = problem.pointer.split("/")
        place = by_token.get(f"/{tokens[2]}") if len(tokens) > 2 and tokens[1] == "tasks" else None
        if isinstance(place, int):
            problem = Problem("", problem.code, problem.message, problem.remedy, place)
        elif place is not None:
            below: Path = inner(tuple(tokens[3:])) if inner is not None else ()
            where = pointer((*place, *below))
            problem = Problem(where, problem.code, problem.message, problem.remedy, lines.get(place))
        moved.append(problem)
    return moved


def stand_in(seconds: float | None, command: str | None) -> dict[str, Any]:
    """The definition of a foreign task: a sleep of its known runtime, else a noop; its command is information only."""
    payload: dict[str, Any] = {}
    if seconds is not None:
        payload["seconds"] = seconds
    if command:
        payload["commandLine"] = command
    return {"executor": "noop" if seconds is None else "sleep", "payload": payload}


def shell_task(script: str, shell: str = "sh") -> dict[str, Any]:
    """The definition of a task that runs a script of the shell."""
    return {"executor": "command", "payload": {"command": [shell, "-c", script]}}
