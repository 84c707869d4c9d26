"""Files of variables for commands (`envFile`): lines NAME=value. docs/how-to/environment.md has the form.

A reason names file and line and never what stands there: values may be secrets.
"""

import os
import re
import stat
from pathlib import Path
from typing import Final

from taskgraph.model.errors import InvalidInput

ENV_FILE_BYTES_MAX: Final = 256 * 1024

_LINE: Final = re.compile(r"\A(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.ASCII)
_QUOTED: Final = re.compile(r"""\A(?:'([^']*)'|"((?:[^"\\]|\\.)*)")(?:[ \t]+#.*)?""")
_COMMENT: Final = re.compile(r"[ \t]#.*")  # one character: a line of blanks is looked through once
_ESCAPE: Final = re.compile(r'\\([\\"n])')


def content(path: Path) -> bytes:
    """Raises InvalidInput with why the file cannot be read."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:  # a FIFO must not make us wait
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise InvalidInput(f"payload.envFile: {path} is no regular file")
            data = file.read(ENV_FILE_BYTES_MAX + 1)
    except FileNotFoundError as error:
        raise InvalidInput(f"payload.envFile: the file {path} does not exist") from error
    except OSError as error:
        raise InvalidInput(f"payload.envFile: the file {path} cannot be read: {error.strerror}") from error
    if len(data) > ENV_FILE_BYTES_MAX:
        raise InvalidInput(f"payload.envFile: the file {path} has more than {ENV_FILE_BYTES_MAX:,} bytes")
    return data


def variables(path: Path) -> dict[str, str]:
    """Of two lines with the same name the later one counts. Raises InvalidInput with file and line of what is wrong."""
    found = {}
    for number, line in enumerate(content(path).split(b"\n"), 1):
        try:
            text = line.decode().strip(" \t\r")
        except UnicodeDecodeError:
            raise _wrong(path, number, "is not UTF-8") from None  # the cause has the value in it
        if not text or text.startswith("#"):
            continue
        match = _LINE.fullmatch(text)
        if match is None:
            raise _wrong(path, number, "is no NAME=value")
        value = _value(match[2])
        if value is None:
            raise _wrong(path, number, "has a quote that does not end, or something behind the one that does")
        if "\0" in value:
            raise _wrong(path, number, "holds the character NUL, which no variable can")
        found[match[1]] = value
    return found


def _value(text: str) -> str | None:
    """None for quotes that are wrong."""
    if not text.lstrip(" \t").startswith(("'", '"')):
        return _COMMENT.sub("", text, count=1).strip(" \t")
    match = _QUOTED.fullmatch(text.strip(" \t"))
    if match is None:
        return None
    single, double = match.groups()
    return single if double is None else _ESCAPE.sub(lambda one: "\n" if one[1] == "n" else one[1], double)


def _wrong(path: Path, number: int, what: str) -> InvalidInput:
    return InvalidInput(f"payload.envFile: line {number} of {path} {what}")
