"""The command line in this process, on a terminal or not, and what may reach it."""

import io
import os
import re
import sys
import unicodedata
from dataclasses import dataclass
from typing import Any, Final

import pytest
from typer.main import get_command

from taskgraph.interfaces.cli import app

COMMANDS: Final[Any] = get_command(app)

ATTACK: Final = (
    "\x1b[2J\x1b]0;owned\x07\x1b]8;;http://evil.example/\x1b\\link\x1b]8;;\x1b\\\x1b[5;7mblink\x9b31m\x90\x08\x7f\x00\r"
    "\n\u202egnp.exe\u2066\u2028\u200b\ufeff\U000e0041[red]red[/red][link=http://evil.example]l[/link]:skull:"
)
"""All that a terminal would obey, or that reorders, hides or breaks what is read; and markup of the library we use."""

ALLOWED_IN_LABELS: Final = "".join(char for char in ATTACK if unicodedata.category(char) != "Cc")

_COLOURS: Final = re.compile(r"\x1b\[(?:0|1|2|3[0-7]|9[0-7])(?:;(?:0|1|2|3[0-7]|9[0-7]))*m")
# What the picture of a running graph draws with: hide and show the cursor, erase a line, move up, return.
_LIVE: Final = re.compile(r"\x1b\[\?25[lh]|\x1b\[2K|\x1b\[1A|\r")
_NEVER: Final = ("\x1b[2J", "\x1b]", "\x1b[5", "\x9b", "\x90", "\x07", "\x1b\\")


class _Terminal(io.TextIOWrapper):
    def __init__(self, tty: bool) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)
        self._tty = tty

    def isatty(self) -> bool:
        return self._tty


@dataclass(frozen=True)
class Shown:
    """What a command put on its two streams."""

    code: int
    out: bytes
    err: bytes

    @property
    def text(self) -> str:
        return (self.out + self.err).decode()


def taskgraph(*words: str, tty: bool = False) -> Shown:
    """Run a command here."""
    out, err = _Terminal(tty), _Terminal(tty)
    before = sys.stdout, sys.stderr
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "TERM", "xterm-256color")
        patch.setitem(os.environ, "COLUMNS", "100")
        patch.delenv("NO_COLOR", raising=False)
        sys.stdout, sys.stderr = out, err
        try:
            COMMANDS.main(args=list(words), prog_name="taskgraph")
            code: Any = 0
        except SystemExit as end:
            code = end.code
        finally:
            sys.stdout, sys.stderr = before
    return Shown(int(code or 0), out.buffer.getvalue(), err.buffer.getvalue())  # type: ignore[attr-defined]


def dangerous(data: bytes, *, live: bool = False, colours: bool = True) -> list[str]:
    """What of this a terminal would obey beyond the colours of our own, or would show in another order."""
    text = data.decode()
    found = [repr(each) for each in _NEVER if each in text]
    if live:
        text = _LIVE.sub("", text)
    if colours:
        text = _COLOURS.sub("", text)
    unsafe = {
        char
        for char in text
        if char not in "\n\u200c\u200d" and unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")
    }
    return found + sorted(map(repr, unsafe))
