"""Lines of many tasks on one stream, each behind the label of its task."""

import zlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from taskgraph.interfaces.cli.output import LogText, Stream, Style, cell_width, fitted, safe

if TYPE_CHECKING:
    from taskgraph.worker.executors import Work, WriteLog

_STYLES: Final[tuple[Style, ...]] = ("cyan", "yellow", "green", "magenta", "blue")
_LABEL_CHARS_MAX: Final = 24  # a longer label makes no column wider, and is cut on a terminal
_LINE_BYTES_MAX: Final = 64 * 1024  # so much is kept of a line that has no end yet


class Prefixes:
    """What stands before the lines of each task: all as wide as the widest label so far, each task in its colour."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._width = 0
        room = stream.width
        self._most = _LABEL_CHARS_MAX if room is None else max(1, min(_LABEL_CHARS_MAX, room // 3))

    def expect(self, labels: Iterable[str]) -> None:
        """Make room for these."""
        for label in labels:
            self._width = max(self._width, min(cell_width(safe(label)), self._most))

    def of(self, label: str) -> str:
        self.expect((label,))
        text = safe(label)
        if self._stream.tty or cell_width(text) < self._width:
            text = fitted(text, self._width)
        # Of the label alone, so that a task has the same colour in every call.
        style = _STYLES[zlib.crc32(label.encode("utf-8", "replace")) % len(_STYLES)]
        return self._stream.paint(f"{text} {'│' if self._stream.unicode else '|'} ", style)


def clean_lines(data: bytes, *, colour: bool) -> list[str]:
    """Whole lines of a log as text, without what a terminal would obey; colour: colours stay, and end with a line."""
    text = data.decode("utf-8", "replace")
    cleaning = LogText(colour=colour)
    text = cleaning.take(text) + cleaning.end().removesuffix("\x1b[0m")
    lines = text.removesuffix("\n").split("\n")
    return [line.removesuffix("\x1b[0m") + "\x1b[0m" if "\x1b" in line else line for line in lines]


class Echo:
    """Prints what tasks of one graph print in this process, as it comes, whole lines of each."""

    def __init__(self, stream: Stream, graph_id: str, labels: Iterable[str] = ()) -> None:
        self._stream = stream
        self._graph_id = graph_id
        self._prefixes = Prefixes(stream)
        self._prefixes.expect(labels)
        self._begun: dict[tuple[str, int], bytes] = {}  # lines that have no end yet, by task and run

    def around(self, work: "Work", write_log: "WriteLog") -> "WriteLog":
        """What takes the output of a run, and prints it too."""
        if work.graph_id != self._graph_id:
            return write_log

        async def write(data: bytes) -> None:
            self._take(work, data)
            await write_log(data)

        return write

    def end(self, work: "Work") -> None:
        """The run has ended: so has its last line."""
        if rest := self._begun.pop((work.task_id, work.run), b""):
            self._print(work.label, rest)

    def _take(self, work: "Work", data: bytes) -> None:
        key = (work.task_id, work.run)
        data = self._begun.pop(key, b"") + data
        end = data.rfind(b"\n") + 1 or (len(data) if len(data) >= _LINE_BYTES_MAX else 0)
        if end < len(data):
            self._begun[key] = data[end:]
        if end:
            self._print(work.label, data[:end])

    def _print(self, label: str, data: bytes) -> None:
        prefix = self._prefixes.of(label)
        self._stream.line("\n".join(prefix + line for line in clean_lines(data, colour=self._stream.colour)))
