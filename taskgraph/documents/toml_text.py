"""TOML as a way to write documents: from a text to the JSON value that it stands for.

Times become RFC 3339 texts. Places are known by their pointers: `tomllib` keeps no lines but those of its errors.
"""

import datetime
import re
import tomllib
from typing import Any, Final

from taskgraph.documents.problems import TOO_DEEP, Report
from taskgraph.model import limits
from taskgraph.model.errors import InvalidGraph

_AT: Final = re.compile(r" \(at line ([0-9]+), column [0-9]+\)\Z", re.ASCII)
_PART: Final = r"""[ \t]*+(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+"""
# A key of so many parts takes tomllib quadratic time, and is deeper than documents are.
_LONG_KEY: Final = re.compile(
    rf"(?:^[ \t]*+\[?+\[?+|[{{,]){_PART}(?:\.{_PART}){{{limits.DOCUMENT_DEPTH_MAX},}}+", re.MULTILINE
)


def parse(text: str, report: Report) -> Any:
    """The value of a text. Raises InvalidGraph for what is no TOML, or too deep."""
    if (found := _LONG_KEY.search(text)) is not None:
        raise _fatal(report, *TOO_DEEP, text.count("\n", 0, found.end()) + 1)
    try:
        value = tomllib.loads(text)
    except RecursionError as error:
        raise _fatal(report, *TOO_DEEP, None) from error
    except ValueError as error:  # among them TOMLDecodeError
        at = _AT.search(str(error))
        message = f"This is not TOML: {str(error)[:300]}."
        raise _fatal(report, "syntax", message, _remedy(str(error)), int(at[1]) if at else None) from error
    return _plain(value, report, limits.DOCUMENT_DEPTH_MAX)


def _fatal(report: Report, code: str, message: str, remedy: str, line: int | None) -> InvalidGraph:
    report.add((), code, message, remedy, line)
    return report.error()


def _remedy(said: str) -> str:
    if "overwrite" in said or "declare" in said or "mutate" in said:
        return "Name each table and each key once."
    if "invalid value" in said.lower():
        return "Texts stand in quotes; true, false and numbers do not."
    return "Correct the text at this place."


def _plain(value: Any, report: Report, levels: int) -> Any:
    match value:
        case dict() | list() if not levels:
            raise _fatal(report, *TOO_DEEP, None)
        case dict():
            return {key: _plain(each, report, levels - 1) for key, each in value.items()}
        case list():
            return [_plain(each, report, levels - 1) for each in value]
        case datetime.datetime():
            said = value.isoformat()
            return said.removesuffix("+00:00") + "Z" if said.endswith("+00:00") else said
        case datetime.date() | datetime.time():
            return value.isoformat()
        case _:
            return value
