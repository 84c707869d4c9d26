"""Texts of documents, JSON or as people write them YAML and TOML: from bytes to a JSON value whose places have lines.

What is stored and sent is JSON. A file says by its ending what it is; a text without one is JSON, or YAML if it is no
JSON and begins as a mapping of YAML does.
"""

import functools
import json
import re
from pathlib import PurePath
from typing import Any, Final, Literal, NamedTuple

from taskgraph.documents.parameters import mentions
from taskgraph.documents.problems import TOO_DEEP, Report
from taskgraph.model import json_pointer, json_strict, limits
from taskgraph.model.errors import InvalidGraph

Form = Literal["json", "yaml", "toml", "by-content"]

_ENDINGS: Final[dict[str, Form]] = {".json": "json", ".yaml": "yaml", ".yml": "yaml", ".toml": "toml"}
_SKIPPED: Final = (
    r"\A(?:[ \t\r]*+(?:#[^\n]*+)?+\n)*+"  # blank lines and comments before the first line that says something
)
_YAML: Final = re.compile(_SKIPPED + r"(?:%[^\n]*+\n|---(?:\s|\Z)|[^\s\[{}\]\"'#,&*!|>%@`=:][^\n:=]*+:(?:\s|\Z))")
_TOML: Final = re.compile(_SKIPPED + r"[ \t]*+(?:\[\[?+[\w.\"' -]++\]++[ \t\r]*+(?:#|\n|\Z)|[\w.\"-]++[ \t]*+=)")


class Read(NamedTuple):
    """A value that was read. mentions: there may be `$param` objects in it."""

    value: Any
    mentions: bool


def form_of(name: str) -> Form:
    """What a file holds by its name; of a compressed one, by the name inside."""
    return _ENDINGS.get(PurePath(name.removesuffix(".gz")).suffix.lower(), "by-content")


def parse(text: bytes | str, report: Report, form: Form = "json") -> Read:
    """From text to a value; raises InvalidGraph at once where there is nothing to go on with."""
    text = _decoded(text, report)
    if form == "toml":
        from taskgraph.documents import toml_text

        value = toml_text.parse(text, report)
    elif _is_yaml(text, form):
        from taskgraph.documents import yaml_text

        value, place = yaml_text.parse(text, report)
        if value is None:
            raise _empty(report)
        report.lines = functools.partial(yaml_text.lines, place)
    else:
        return Read(_json(text, report, form), mentions(text))
    for fault in json_strict.faults(value):
        report.add(fault.path, fault.code, fault.message, fault.remedy)
    return Read(value, True)


def _decoded(text: bytes | str, report: Report) -> str:
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError as error:
            line = error.object.count(b"\n", 0, error.start) + 1
            message = f"Byte {error.start:,} is not UTF-8."
            raise _fatal(report, "encoding", message, "Save the document as UTF-8.", line) from error
    text = text.removeprefix("\ufeff")
    if not text.strip(" \t\r\n"):
        raise _empty(report)
    return text


def _is_yaml(text: str, form: Form) -> bool:
    if form != "yaml":
        return form == "by-content" and _YAML.match(text) is not None
    if not text.lstrip(" \t\r\n").startswith(("{", "[")):
        return True
    if json_strict.too_deep_at(text, limits.DOCUMENT_DEPTH_MAX) is not None:
        return False
    try:  # JSON is YAML, and more exact
        json_strict.parse(text)
    except json.JSONDecodeError:
        return True
    return False


def _json(text: str, report: Report, form: Form) -> Any:
    offset = json_strict.too_deep_at(text, limits.DOCUMENT_DEPTH_MAX)
    if offset is not None:
        raise _fatal(report, *TOO_DEEP, text.count("\n", 0, offset) + 1)
    try:
        parsed = json_strict.parse(text)
    except json.JSONDecodeError as error:
        at = f"line {error.lineno}, column {error.colno}"
        message, remedy = f"This is not JSON: {error.msg} ({at}).", _syntax_remedy(error)
        if other := "YAML" if _YAML.match(text) else "TOML" if _TOML.match(text) else "":
            message = f"This is not JSON: it looks like {other} ({at})."
            endings = " or ".join(each for each, named in _ENDINGS.items() if named == other.lower())
            remedy = f"Graphs, extensions and edits are read as {other} from a file that ends in {endings}."
        raise _fatal(report, "syntax", message, remedy, error.lineno) from error
    report.lines = functools.partial(json_pointer.lines, text)
    if parsed.suspect:
        for fault in json_strict.faults(parsed.value):
            report.add(fault.path, fault.code, fault.message, fault.remedy)
    return parsed.value


def _fatal(report: Report, code: str, message: str, remedy: str, line: int | None = None) -> InvalidGraph:
    report.add((), code, message, remedy, line)
    return report.error()


def _empty(report: Report) -> InvalidGraph:
    return _fatal(report, "syntax", "The document is empty.", 'The smallest graph is {"tasks": {"a": {}}}.')


def _syntax_remedy(error: json.JSONDecodeError) -> str:
    here, before = error.doc[error.pos : error.pos + 1], error.doc[: error.pos].rstrip()[-1:]
    if here == "'":
        return "Strings and keys take double quotes."
    if here in ("/", "#"):
        return "JSON has no comments."
    if here == "," or (here in ("}", "]") and before == ","):
        return "Remove the comma after the last member."
    if not here:
        return "The text ends too early; a bracket or quote is not closed."
    for beginning, remedy in _SYNTAX_REMEDIES.items():
        if error.msg.startswith(beginning):
            return remedy
    return "Correct the text at this place."


_SYNTAX_REMEDIES: Final = {
    "Illegal trailing comma": "Remove the comma after the last member.",
    "Extra data": "A document is one JSON value; remove what follows it.",
    "Invalid control character": "Write line breaks and tabs inside strings as \\n and \\t.",
    "Unterminated string": "Close the string with a double quote.",
}
