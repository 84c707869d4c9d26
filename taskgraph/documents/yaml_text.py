"""YAML as a way to write documents: from a text to the JSON value that it stands for, with the line of each part.

Plain scalars are those of the core schema of YAML 1.2. Where YAML 1.1 reads another value, and no text is wanted in
any case, the scalar is refused: two readers would not agree on it. Keys are text, there are no tags, and a text is one
document. Events are taken one at a time, so depth, and what aliases make of a short text, are bounded as they come.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import yaml
from yaml.reader import ReaderError

from taskgraph.documents.problems import TOO_DEEP, Report
from taskgraph.model import json_strict, limits
from taskgraph.model.errors import InvalidGraph
from taskgraph.model.json_strict import Path, show

Place = tuple[int, "dict[Any, Place] | list[Place] | None"]  # line of a value, or of its key, and the places inside

_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # its parser alone: it makes no values here
_NODES: Final = (yaml.ScalarEvent, yaml.CollectionStartEvent)
_NODE_WEIGHT: Final = 16  # of a value beside its characters, in what aliases may add

_CONSTANTS: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER: Final = re.compile(r"[-+]?[0-9]+", re.ASCII)
_BASED: Final = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+", re.ASCII)
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", re.ASCII)
_UNBOUNDED: Final = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)", re.ASCII)
_LEADING_ZERO: Final = re.compile(r"[-+]?0[0-9_]+", re.ASCII)
_DIGITS_MAX: Final = 30  # of an integer: with more it does not fit into 64 bits anyway

# What YAML 1.1 reads as something else than text.
_OLD_BOOLEAN: Final = re.compile(r"yes|Yes|YES|no|No|NO|on|On|ON|off|Off|OFF")
_OLD_TRUE: Final = frozenset({"yes", "on"})
_BASE_60: Final = re.compile(
    r"[-+]?[1-9][0-9_]{0,30}(?::[0-5]?[0-9]){1,9}|[-+]?[0-9][0-9_]{0,30}(?::[0-5]?[0-9]){1,9}\.[0-9_]{0,30}", re.ASCII
)
_OLD_NUMBER: Final = re.compile(r"[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|[0-9][0-9_]*(?:\.[0-9_]*)?)", re.ASCII)

# A scalar under one of these keys is a text by the schema, or wrong.
_OF_TEXTS: Final = frozenset(
    {"command", "env", "requires", "metadata", "tags", "tasks", "workerLabels", "delete", "deleteGroups"}
)
_MERGE: Final = "<<"
_TEXT: Final = "a text"

_INDENTATION: Final = "Mend the indentation: what belongs to one object begins in one column."
_REMEDIES: Final = (
    (
        "mapping values are not allowed",
        "Put a text that holds a colon and a blank into quotes, or mend the indentation.",
    ),
    ("alphabetic or numeric character", "Put a text that begins with * or & into quotes."),
    ("cannot start any token", "Put a text that begins with this character into quotes."),
    ("unknown escape", "In double quotes a backslash is written twice; single quotes and | take it as it is."),
    ("end of stream", "The text ends too early; a quote or bracket is not closed."),
    ("expected ',' or", "Close the bracket, or put a text that holds a comma, a colon or a bracket into quotes."),
    ("expected key", _INDENTATION),
    ("<block end>", _INDENTATION),
    ("expected ':'", "A key is followed by a colon and a blank."),
)


@dataclass(slots=True)
class _Value:
    """A value that is complete. weight: what an alias to it adds. height: how many arrays and objects deep it is."""

    value: Any
    place: Place
    weight: int
    height: int = 0


@dataclass(slots=True)
class _Open:
    """An array or object whose members are coming. key: of the member that comes next, None while a key is awaited."""

    value: Any
    inner: Any
    line: int
    anchor: str | None
    weight: int = _NODE_WEIGHT
    height: int = 1
    key: str | None = None
    key_line: int = 0
    merging: bool = False  # the key is that of a merge
    repeated: dict[str, None] = field(default_factory=dict)
    merged: list[tuple[dict[str, Any], Any]] = field(default_factory=list)


def parse(text: str, report: Report) -> tuple[Any, Place]:
    """The value of a text, and its places. Reports what is wrong; raises InvalidGraph where there is no going on."""
    reader = _Reader(report)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            reader.take(event)
    except yaml.YAMLError as error:
        raise reader.fatal(*_syntax(error, text)) from error
    except UnicodeEncodeError as error:  # a text out of Python with half of a surrogate pair
        line = text.count("\n", 0, error.start) + 1
        raise reader.fatal("surrogate", "The text holds half of a surrogate pair.", "Leave it out.", line) from error
    made = reader.made
    return (made.value, made.place) if made is not None else (None, (1, None))


def parse_foreign(text: str, report: Report) -> list[tuple[Any, Place]]:
    """The documents of a text that another program reads: what is refused above is taken as YAML 1.2 has it.

    A tag of an array becomes its first member: `!reference [a, b]` is ["!reference", "a", "b"]; others are passed over.
    Raises InvalidGraph.
    """
    reader = _ForeignReader(report)
    made: list[tuple[Any, Place]] = []
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            if isinstance(event, yaml.DocumentStartEvent):
                reader.made = None
            reader.take(event)
            if isinstance(event, yaml.DocumentEndEvent) and reader.made is not None:
                made.append((reader.made.value, reader.made.place))
    except yaml.YAMLError as error:
        raise reader.fatal(*_syntax(error, text)) from error
    report.raise_if_any()
    return made


def lines(place: Place, paths: Iterable[Path]) -> dict[Path, int]:
    """The line on which each path stands (for a member: its key), or the nearest place above it that exists."""
    found: dict[Path, int] = {}
    for path in paths:
        here = place
        for token in path:
            inside: Any = here[1]
            if token not in (range(len(inside)) if isinstance(inside, list) else inside or ()):
                break
            here = inside[token]
        found[path] = here[0]
    return found


def _syntax(error: yaml.YAMLError, text: str) -> tuple[str, str, str, int | None]:
    if isinstance(error, ReaderError):
        character = error.character if isinstance(error.character, str) else chr(error.character)
        line = text.count("\n", 0, max(text.find(character), 0)) + 1
        message = f"This is not YAML: it holds the character U+{ord(character[:1]):04X}."
        return "syntax", message, 'Leave it out, or write it as an escape in double quotes, such as "\\x1b".', line
    said, mark = str(getattr(error, "problem", None) or error), getattr(error, "problem_mark", None)
    at = f" (line {mark.line + 1}, column {mark.column + 1})" if mark is not None else ""
    remedy = next((remedy for words, remedy in _REMEDIES if words in said), "Correct the text at this place.")
    if mark is not None and "".join(text.split("\n")[mark.line : mark.line + 1])[mark.column :].startswith("\t"):
        remedy = "Indent by blanks; YAML takes no tabs there."
    return "syntax", f"This is not YAML: {said}{at}.", remedy, mark.line + 1 if mark is not None else None


class _Reader:
    """Makes a value of events, without recursion."""

    def __init__(self, report: Report) -> None:
        self.made: _Value | None = None
        self._report = report
        self._open: list[_Open] = []
        self._anchors: dict[str, _Value | None] = {}  # None: its value is not complete
        self._added = 0  # by aliases

    def fatal(self, code: str, message: str, remedy: str, line: int | None) -> InvalidGraph:
        self._report.add((), code, message, remedy, line)
        return self._report.error()

    def take(self, event: Any) -> None:
        line = event.start_mark.line + 1
        if isinstance(event, _NODES):
            if event.tag is not None:
                self._tagged(event, line)
            if isinstance(event, yaml.ScalarEvent):
                self._take_scalar(event, line)
                return
            self._key_is_text(line)
            if len(self._open) >= limits.DOCUMENT_DEPTH_MAX:
                raise self.fatal(*TOO_DEEP, line)
            if event.anchor is not None:
                self._anchors[event.anchor] = None
            self._open.append(_Open(*self._empty(event, line), line, event.anchor))
        elif isinstance(event, yaml.CollectionEndEvent):
            self._close(self._open.pop())
        elif isinstance(event, yaml.AliasEvent):
            self._key_is_text(line)
            self._put(self._aliased(str(event.anchor), line))
        elif isinstance(event, yaml.DocumentStartEvent) and self.made is not None:
            message = "A second document begins here."
            raise self.fatal("several-documents", message, "A file holds one document; remove what follows it.", line)

    def _empty(self, event: Any, line: int) -> tuple[Any, Any]:
        """The value and the places of an array or object that begins."""
        return ({}, {}) if isinstance(event, yaml.MappingStartEvent) else ([], [])

    def _tagged(self, event: Any, line: int) -> None:
        message = f"The tag {show(event.tag)} has no meaning here."
        remedy = "Leave it out; a text that looks like a number is written in quotes."
        self._report.add(self._path(), "yaml-tag", message, remedy, line)

    def _awaits_key(self) -> bool:
        return bool(self._open) and isinstance(self._open[-1].value, dict) and self._open[-1].key is None

    def _key_is_text(self, line: int) -> None:
        if self._awaits_key():
            remedy = "A key is a text. Put what begins with a bracket, a brace, * or & into quotes."
            raise self.fatal("not-json", "A key is an array, an object or an alias.", remedy, line)

    def _path(self) -> Path:
        """Of the value that is coming."""
        path: list[str | int] = []
        for each in self._open:
            if isinstance(each.value, list):
                path.append(len(each.value))
            elif each.key is not None:
                path.append(each.key)
        return tuple(path)

    def _take_scalar(self, event: yaml.ScalarEvent, line: int) -> None:
        text = event.value
        if self._awaits_key():
            mapping = self._open[-1]
            mapping.key, mapping.key_line = text, line
            mapping.weight += len(text)
            mapping.merging = text == _MERGE and not event.style
            if text in mapping.value:
                mapping.repeated[text] = None
            if event.anchor is not None:
                self._anchors[event.anchor] = _Value(text, (line, None), _NODE_WEIGHT + len(text))
            return
        value = text if event.style else self._plain(text, line)
        made = _Value(value, (line, None), _NODE_WEIGHT + len(text))
        if event.anchor is not None:
            self._anchors[event.anchor] = made
        self._put(made)

    def _put(self, made: _Value) -> None:
        """Into the array or object that is open; a value outside of all is that of the document."""
        if not self._open:
            self.made = made
            return
        into = self._open[-1]
        into.weight += made.weight
        into.height = max(into.height, made.height + 1)
        if isinstance(into.value, list):
            into.value.append(made.value)
            into.inner.append(made.place)
            return
        if into.merging:
            self._merge(into, made)
        else:
            into.value[into.key] = made.value
            into.inner[into.key] = (into.key_line, made.place[1])
        into.key, into.merging = None, False

    def _merge(self, into: _Open, made: _Value) -> None:
        several = isinstance(made.value, list)
        values = made.value if several else [made.value]
        places: Any = made.place[1] if several else [made.place]
        for value, place in zip(values, places, strict=True):
            if isinstance(value, dict):
                into.merged.append((value, place[1]))
            else:
                remedy = (
                    "It takes an object, an alias of one, or an array of them; a key of your own is put into quotes."
                )
                self._report.add(self._path(), "yaml-merge", "`<<` merges no object here.", remedy, into.key_line)

    def _close(self, done: _Open) -> None:
        value, inner = done.value, done.inner
        if done.merged:
            value, inner = {}, {}
            for members, places in reversed(done.merged):  # the first one wins, and what stands here over all
                value.update(members)
                inner.update(places)
            value.update(done.value)
            inner.update(done.inner)
        if done.repeated:
            value = json_strict.Repeated(value)
            value.keys_repeated = tuple(done.repeated)
        made = _Value(value, (done.line, inner), done.weight, done.height)
        if done.anchor is not None:
            self._anchors[done.anchor] = made
        self._put(made)

    def _aliased(self, name: str, line: int) -> _Value:
        if name not in self._anchors:
            remedy = f"Put &{name} before what it stands for; for a text that begins with *, use quotes."
            raise self.fatal("yaml-alias", f"The alias *{name} has no anchor before it.", remedy, line)
        found = self._anchors[name]
        if found is None:
            raise self.fatal("yaml-alias", f"The alias *{name} stands inside of what it names.", "Leave it out.", line)
        self._added += found.weight
        if self._added > limits.YAML_ALIASED_CHARS_MAX:
            message = f"Aliases make more than {limits.YAML_ALIASED_CHARS_MAX:,} characters of this text."
            raise self.fatal("too-many", message, "Use fewer of them, or write the document by a program.", line)
        if len(self._open) + found.height > limits.DOCUMENT_DEPTH_MAX:
            raise self.fatal(*TOO_DEEP, line)
        # A copy: a document is taken apart while it is read.
        return _Value(_copied(found.value), found.place, found.weight, found.height)

    def _plain(self, text: str, line: int) -> Any:
        """The value of a scalar without quotes."""
        if text in _CONSTANTS:
            return _CONSTANTS[text]
        if (readings := _readings(text)) is not None:
            new, old = readings
            path = self._path()
            of_text = len(path) > 1 and path[-2] in _OF_TEXTS and "arguments" not in path
            plain = f"{old} or " if old in ("true", "false") else ""
            if not of_text or new != _TEXT:
                message = f"{text[:40]} is {new} in YAML 1.2, and {old} in YAML 1.1."
                remedy = f'Write {plain}"{text[:40]}" in quotes{"" if plain else ", or the number in plain digits"}.'
                self._report.add(path, "yaml-scalar", message, remedy, line)
            if of_text:
                return text
            return old == "true" if plain else new if new != _TEXT else text  # so that this is all that is said of it
        if _INTEGER.fullmatch(text):
            return int(text) if len(text) <= _DIGITS_MAX else json_strict.INTEGER_MAX + 1
        if _BASED.fullmatch(text):
            return int(text, 0) if len(text) <= _DIGITS_MAX else json_strict.INTEGER_MAX + 1
        if _FLOAT.fullmatch(text):
            return float(text)
        if _UNBOUNDED.fullmatch(text):
            return float(text.replace(".", ""))
        return text


class _ForeignReader(_Reader):
    """Takes what a document of ours may not hold."""

    def _tagged(self, event: Any, line: int) -> None:
        """A tag is no mistake here."""

    def _empty(self, event: Any, line: int) -> tuple[Any, Any]:
        if isinstance(event, yaml.SequenceStartEvent) and event.tag is not None:
            return [event.tag], [(line, None)]
        return super()._empty(event, line)

    def _plain(self, text: str, line: int) -> Any:
        if text in _CONSTANTS or _readings(text) is None:
            return super()._plain(text, line)
        return int(text) if _LEADING_ZERO.fullmatch(text) and text.isdigit() else text


def _readings(text: str) -> tuple[Any, str] | None:
    """What a plain scalar is in YAML 1.2 and in YAML 1.1, where these differ, but for `1e3` and `0o7`."""
    if _OLD_BOOLEAN.fullmatch(text):
        return _TEXT, "true" if text.lower() in _OLD_TRUE else "false"
    if text[0] not in "+-0123456789":
        return None
    if _LEADING_ZERO.fullmatch(text) and len(text) <= _DIGITS_MAX:
        digits = text.replace("_", "")
        new = int(text) if digits == text else _TEXT
        old = int(digits, 8) if set(digits) <= set("01234567+-") else _TEXT
        return (new, str(old)) if new != old else None
    if any(each.fullmatch(text) for each in (_INTEGER, _BASED, _FLOAT)):
        return None
    if _BASE_60.fullmatch(text):
        return _TEXT, "a number to base 60"
    return (_TEXT, "a number") if _OLD_NUMBER.fullmatch(text) else None


def _copied(value: Any) -> Any:
    """Recurses no deeper than documents are."""
    if isinstance(value, dict):
        copied = {key: _copied(each) for key, each in value.items()}
        if isinstance(value, json_strict.Repeated):
            again = json_strict.Repeated(copied)
            again.keys_repeated = value.keys_repeated
            return again
        return copied
    return [_copied(each) for each in value] if isinstance(value, list) else value
