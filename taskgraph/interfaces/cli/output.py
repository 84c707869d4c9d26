"""Lines, tables, JSON and colours, for a terminal or a pipe: data on stdout, words on stderr.

What a user, a task or a file may have put into a text (labels, reasons, logs) passes `safe` before a terminal gets it.
A reader that goes away (`| head`) is no error: what follows is dropped.
"""

import contextlib
import errno
import json
import os
import re
import shutil
import sys
import unicodedata
from collections.abc import AsyncIterable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal, TextIO

from taskgraph.interfaces.views import iso
from taskgraph.model.states import PAUSED, GraphState, TaskState, state_in_words
from taskgraph.storage.private_files import has_no_room, unwritable

Style = Literal["", "bold", "dim", "red", "green", "yellow", "blue", "magenta", "cyan", "bold red"]

_PACE_TASKS_MIN: Final = 5
_SGR: Final[Mapping[str, str]] = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
    "bold red": "1;31",
}
_JOINERS: Final = frozenset("\u200c\u200d")  # of emoji and of Persian script: they hide and reorder nothing
_UNSAFE_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_COLUMN_CHARS_MIN: Final = 12
_GAP: Final = "  "
_ITEMS_AT_ONCE: Final = 1_000


@dataclass(frozen=True, slots=True)
class Look:
    """How a state looks: never by colour alone."""

    symbol: str
    plain: str  # the symbol where only ASCII is understood
    style: Style


LOOKS: Final[Mapping[str, Look]] = {
    TaskState.UNSCHEDULED: Look("·", ".", "dim"),
    TaskState.PENDING: Look("○", "o", "yellow"),
    TaskState.RUNNING: Look("▸", ">", "cyan"),
    TaskState.COMPLETED: Look("✓", "+", "green"),
    TaskState.FAILED: Look("✗", "x", "red"),
    TaskState.EXCEPTION: Look("‼", "!", "magenta"),
    TaskState.SKIPPED: Look("–", "-", "dim"),
    "waiting": Look("·", ".", "dim"),
    "held": Look("‖", "=", "yellow"),
    PAUSED: Look("‖", "=", "yellow"),
    "active": Look("●", "*", "green"),
    "draining": Look("◐", "%", "yellow"),
    "drained": Look("○", "o", "yellow"),
    "gone": Look("✗", "x", "red"),
    GraphState.SUBMITTING: Look("…", "~", "yellow"),
    GraphState.BLOCKED: Look("■", "#", "red"),
    GraphState.FINISHED: Look("✓", "+", "green"),
    "finished with failures": Look("▲", "^", "yellow"),
    GraphState.CANCELLING: Look("…", "~", "yellow"),
    GraphState.CANCELLED: Look("⊘", "/", "dim"),  # of tasks, too
    GraphState.DELETING: Look("…", "~", "dim"),
    GraphState.DELETED: Look("–", "-", "dim"),
    GraphState.RESTORING: Look("…", "~", "yellow"),
    GraphState.MOVING: Look("…", "~", "yellow"),
    GraphState.MOVED: Look("→", ">", "dim"),
}

_NO_LOOK: Final = Look("?", "?", "")


# --- texts of others --------------------------------------------------------------------------------------------


def safe(text: str, *, keep: str = "") -> str:
    r"""The text on one line: control characters, bidirectional overrides, line breaks and invisible formats spelt out.

    They become `\x1b`, `\u202e` and so on; lone surrogates become U+FFFD. keep: control characters that stay.
    """
    if text.isprintable():
        return text
    return "".join(char if char in keep else _spelt_out(char) for char in text)


def _spelt_out(char: str) -> str:
    if char.isprintable() or char in _JOINERS or (category := unicodedata.category(char)) not in _UNSAFE_CATEGORIES:
        return char
    if category == "Cs":
        return "\ufffd"
    return char.encode("unicode_escape").decode("ascii")


_COLOUR_SEQUENCE: Final = re.compile(r"\x1b\[[0-9;:]{0,40}m")
_COLOUR_BEGUN: Final = re.compile(r"\x1b(?:\[[0-9;:]{0,40})?\Z")


class LogText:
    """The text of a log for a terminal, piece by piece: colours stay, what else a terminal obeys is spelt out."""

    def __init__(self, *, colour: bool = True) -> None:
        self._left = ""
        self._colour = colour

    def take(self, text: str) -> str:
        """What can be shown after this piece."""
        text = self._left + text
        begun = _COLOUR_BEGUN.search(text)
        cut = begun.start() if begun else len(text) - text.endswith("\r")
        text, self._left = text[:cut], text[cut:]
        return self._shown(text)

    def end(self) -> str:
        """The rest, and the end of the colour."""
        text, self._left = self._left, ""
        return self._shown(text) + ("\x1b[0m" if self._colour else "")

    @staticmethod
    def plain(text: str) -> str:
        """A text without its colours; what `safe` would spell out is still in it."""
        return _COLOUR_SEQUENCE.sub("", text)

    def _shown(self, text: str) -> str:
        text = text.replace("\r\n", "\n").replace("\r", "\n")  # a carriage return would hide what it overwrites
        shown: list[str] = []
        end = 0
        for match in _COLOUR_SEQUENCE.finditer(text):
            shown += (safe(text[end : match.start()], keep="\n\t"), match.group() if self._colour else "")
            end = match.end()
        shown.append(safe(text[end:], keep="\n\t"))
        return "".join(shown)


# --- numbers and times -----------------------------------------------------------------------------------------


def count(number: int, noun: str, plural: str = "") -> str:
    """`1 task`, `2,000 tasks`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def edges_words(kept: int, groups: Collection[str]) -> str:
    """`3 edges`; of a graph with groups `6 kept edges`, for by way of a group M x N edges are kept as M + N."""
    return count(kept, "kept edge" if groups else "edge")


def seconds(value: float, *, digits: int = 2) -> str:
    """A length of time: `0.25 s`, `12.3 s`, `5 min 08 s`, `3 h 20 min`. digits: of the seconds, below ten of them."""
    if value < 10:
        return f"{value:.{digits}f} s"
    if value < 60:
        return f"{value:.1f} s"
    whole = round(value)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 48 * 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600:02d} h"


def short(value: float | None) -> str:
    """A length of time in few characters: `45s`, `3m08s`, `2h05m`, `3d04h`."""
    if value is None:
        return ""
    whole = int(value)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02d}h"


def seconds_at_this_pace(done: int, left: int, elapsed: float) -> float | None:
    """How long `left` tasks take if they go on as `done` went; None where too few did to say so.

    It knows nothing of what the tasks are: `taskgraph rehearse` does.
    """
    return left * elapsed / done if done >= _PACE_TASKS_MIN and left > 0 and elapsed > 0 else None


def moment(value: datetime | None) -> str:
    """A time in UTC; "" for None."""
    return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ") if value else ""


def json_text(value: Any, *, indent: int | None = 2, ascii_only: bool = False) -> str:
    """JSON in which the characters that `safe` spells out are escaped."""
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only, default=_json_value)
    if ascii_only or text.isprintable():
        return text
    return "".join(c if c == "\n" or c.isprintable() else _json_escape(c) for c in text)


def _json_escape(char: str) -> str:
    if unicodedata.category(char) not in _UNSAFE_CATEGORIES:
        return char
    return json.dumps(char)[1:-1] if ord(char) > 0x7E else f"\\u{ord(char):04x}"


def _json_value(value: object) -> object:
    if isinstance(value, datetime):
        return iso(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no JSON value")


# --- streams ---------------------------------------------------------------------------------------------------


def graph_words(state: str, *, failures: bool, held: Collection[str] = ()) -> str:
    """held: what of the graph is paused, as its row says."""
    return f"{state} with failures" if failures and state == GraphState.FINISHED else state_in_words(state, held)


class Stream:
    """stdout or stderr. live: a terminal on which a picture can be drawn. needed: a full disk is an error."""

    def __init__(self, file: TextIO, environ: Mapping[str, str], *, needed: bool = True) -> None:
        self.file = file
        self._needed = needed
        self.tty = file.isatty()
        dumb = environ.get("TERM", "") in ("", "dumb")
        # As https://no-color.org and https://force-color.org say it; where both are set, there are none.
        self.colour = not environ.get("NO_COLOR") and (bool(environ.get("FORCE_COLOR")) or (self.tty and not dumb))
        self.live = self.tty and not dumb
        encoding = (getattr(file, "encoding", "") or "ascii").lower().replace("-", "")
        self.unicode = encoding.startswith("utf")
        self.closed = False
        self._sink: Callable[[str], None] | None = None
        reconfigure = getattr(file, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")

    @property
    def width(self) -> int | None:
        """Columns of the terminal; None for a pipe."""
        return shutil.get_terminal_size().columns if self.tty else None

    def paint(self, text: str, style: Style) -> str:
        """The text in a style, where there are colours."""
        return f"\x1b[{_SGR[style]}m{text}\x1b[0m" if self.colour and style and text else text

    def line(self, text: str = "") -> None:
        if self._sink is not None:
            self._sink(text)
        else:
            self.write(text + "\n")

    def write(self, text: str) -> None:
        with self.writing():
            self.file.write(text)
            self.file.flush()

    def write_bytes(self, data: bytes) -> None:
        with self.writing():
            self.file.flush()
            buffer = getattr(self.file, "buffer", None)
            if buffer is None:
                self.file.write(data.decode("utf-8", "replace"))
            else:
                buffer.write(data)
                buffer.flush()

    @contextlib.contextmanager
    def lines_through(self, sink: Callable[[str], None]) -> Iterator[None]:
        """Hand lines to `sink`, which draws at the end of this stream."""
        self._sink = sink
        try:
            yield
        finally:
            self._sink = None

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Around each write: a reader that has gone is no error. Raises StorageUnavailable for a full disk."""
        try:
            yield
        except BrokenPipeError:
            self.hang_up()
        except OSError as error:
            if error.errno == errno.EIO and self.tty:  # the terminal was closed
                self.hang_up()
                return
            if not has_no_room(error):
                raise
            if self._needed:
                self.hang_up()
                raise unwritable("standard output", error) from error

    def hang_up(self) -> None:
        """Drop what follows, also what the interpreter flushes at its end."""
        self.closed = True
        nowhere = os.open(os.devnull, os.O_WRONLY)
        with contextlib.suppress(OSError, ValueError):  # a file without a descriptor needs none
            os.dup2(nowhere, self.file.fileno())
        os.close(nowhere)

    def state(self, state: str, width: int = 0) -> str:
        look = LOOKS.get(state, _NO_LOOK)
        text = f"{look.symbol if self.unicode else look.plain} {safe(state)}"
        return self.paint(text.ljust(width), look.style)

    def graph_state(self, state: str, *, failures: bool, held: Collection[str] = ()) -> str:
        """A state of a graph; one that ended with failures looks otherwise than one that is well."""
        return self.state(graph_words(state, failures=failures, held=held))

    def symbol(self, state: str) -> str:
        look = LOOKS.get(state, _NO_LOOK)
        return self.paint(look.symbol if self.unicode else look.plain, look.style)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. cell: the text of an item in it.

    flexible: may be cut to the terminal. number: aligned to the right. state: with the symbol and colour of a state.
    """

    title: str
    cell: Callable[[Any], str]
    flexible: bool = False
    number: bool = False
    state: bool = False


class Output:
    """Both streams. json: whether data is wanted as JSON. lines: and line by line."""

    def __init__(
        self, out: TextIO | None = None, err: TextIO | None = None, environ: Mapping[str, str] | None = None
    ) -> None:
        environ = os.environ if environ is None else environ
        self.out = Stream(out or sys.stdout, environ)
        self.err = Stream(err or sys.stderr, environ, needed=False)
        self.json = False
        self.lines = False

    def say(self, text: str, style: Style = "") -> None:
        self.err.line(self.err.paint(safe(text), style))

    def hint(self, text: str) -> None:
        """What to do next."""
        self.say(text, "dim")

    def warn(self, text: str) -> None:
        self.err.line(f"{self.err.paint('warning:', 'yellow')} {safe(text)}")

    def fail(self, text: str) -> None:
        self.err.line(f"{self.err.paint('error:', 'bold red')} {safe(text)}")

    def document(self, value: Any) -> None:
        """One JSON document on stdout."""
        self.out.line(json_text(value, ascii_only=not self.out.unicode))

    async def document_of(self, head: Mapping[str, Any], name: str, items: AsyncIterable[Any]) -> None:
        """One JSON document whose last member lists very many values, written as they come."""
        ascii_only = not self.out.unicode
        beginning = json_text({**head, name: []}, ascii_only=ascii_only).removesuffix("]\n}")
        before = f"{beginning}\n"  # written with the first items: an error before them leaves no broken document
        some: list[str] = []
        async for item in items:
            text = json_text(item, ascii_only=ascii_only)
            some.append("    " + text.replace("\n", "\n    "))
            if len(some) == _ITEMS_AT_ONCE:
                self.out.write(before + ",\n".join(some))
                before = ",\n"
                some.clear()
                if self.out.closed:
                    return
        if some:
            self.out.write(before + ",\n".join(some))
            before = ",\n"
        self.out.line("\n  ]\n}" if before == ",\n" else f"{beginning}]\n}}")

    def json_line(self, value: Any) -> None:
        self.out.line(json_text(value, indent=None, ascii_only=not self.out.unicode))

    def data(self, text: str, style: Style = "") -> None:
        """A line on stdout."""
        self.out.line(self.out.paint(safe(text), style))

    def pairs(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Names and values, one below the other, without those that are empty. Values are printed as they are."""
        kept = [(name, value) for name, value in pairs if value]
        width = max((len(name) for name, _ in kept), default=0)
        for name, value in kept:
            self.out.line(f"{self.out.paint(name.ljust(width), 'dim')}{_GAP}{value}")

    def table(self, items: Iterable[Any], columns: Sequence[Column]) -> None:
        """A line for each item; on a terminal flexible columns are cut to what fits, in a pipe nothing is."""
        self.out.line("\n".join(table_lines(items, columns, self.out, self.out.width)))


def table_lines(items: Iterable[Any], columns: Sequence[Column], out: Stream, width: int | None) -> list[str]:
    """A table as lines, the titles first. width: what fits, None for any length."""
    rows: list[list[tuple[str, Style]]] = []  # text and style of each cell
    for item in items:
        row: list[tuple[str, Style]] = []
        for column in columns:
            text = safe(column.cell(item))
            look = LOOKS.get(text, _NO_LOOK)
            if column.state:
                row.append((f"{look.symbol if out.unicode else look.plain} {text}", look.style))
            else:
                row.append((text, ""))
        rows.append(row)
    widths = [
        max([len(column.title), *(cell_width(row[index][0]) for row in rows)]) for index, column in enumerate(columns)
    ]
    if width is not None:
        widths = _squeezed(columns, widths, width)
    title = _GAP.join(
        column.title.rjust(width) if column.number else column.title.ljust(width)
        for column, width in zip(columns, widths, strict=True)
    )
    lines = [out.paint(title.rstrip(), "bold")]
    for row in rows:
        cells = zip(columns, row, widths, strict=True)
        parts = [out.paint(fitted(text, width, right=column.number), style) for column, (text, style), width in cells]
        lines.append(_GAP.join(parts).rstrip())
    return lines


def cell_width(text: str) -> int:
    """In columns of a terminal."""
    if text.isascii():
        return len(text)
    return sum(_char_width(char) for char in text)


def _char_width(char: str) -> int:
    if unicodedata.east_asian_width(char) in ("W", "F"):
        return 2
    return 0 if unicodedata.combining(char) or char in _JOINERS else 1


def fitted(text: str, width: int, *, right: bool = False) -> str:
    """The text in exactly so many columns, cut with `…` if it must be."""
    own = cell_width(text)
    if own > width:
        taken = 0
        kept: list[str] = []
        for char in text:
            taken += _char_width(char)
            if taken > width - 1:
                break
            kept.append(char)
        text = "".join(kept) + "…"
        own = cell_width(text)
    room = " " * (width - own)
    return room + text if right else text + room


def _squeezed(columns: Sequence[Column], widths: Sequence[int], room: int) -> list[int]:
    """Widths that fit the terminal, as far as flexible columns can be cut: the widest first."""
    made = list(widths)
    excess = sum(made) + len(_GAP) * (len(made) - 1) - room
    flexible = [index for index, column in enumerate(columns) if column.flexible]
    while excess > 0 and flexible:
        widest = max(flexible, key=lambda index: made[index])
        others = [made[index] for index in flexible if index != widest]
        floor = max(_COLUMN_CHARS_MIN, max((other for other in others if other < made[widest]), default=0))
        given = min(excess, max(1, made[widest] - floor))
        if made[widest] - given < _COLUMN_CHARS_MIN:
            break
        made[widest] -= given
        excess -= given
    return made
