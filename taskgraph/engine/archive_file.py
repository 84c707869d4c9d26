"""The form of an archive (schemas/archive.json): lines of JSON under gzip.

A file is a head, rows in the order of their keys, pieces of files of runs, and an end that counts them and carries a
digest. It is read line by line, and not beyond a bound: nothing that it says of itself is trusted.
"""

import base64
import binascii
import contextlib
import gzip
import hashlib
import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from taskgraph.engine.signing import Signature, Signer, read_signature
from taskgraph.model import column_json, limits
from taskgraph.model.errors import InvalidInput, TooLarge
from taskgraph.model.ids import GRAPH, is_graph_id
from taskgraph.storage import checks
from taskgraph.storage.tables import Insert, Row

FORMAT: Final = 1  # version of the form
_OWN: Final = frozenset({"restored", "archive"})  # of the graph row: what putting it back adds


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much a file may hold. bytes: unpacked. ratio: of these to the bytes of the file, 0 for any."""

    rows: int = limits.ARCHIVE_ROWS_MAX
    bytes: int = limits.ARCHIVE_BYTES_MAX
    ratio: int = limits.ARCHIVE_RATIO_MAX

    @staticmethod
    def of(max_rows: int | None = None, max_bytes: int | None = None) -> "Bounds":
        """None stands for the default. With a number of bytes, the ratio does not matter."""
        usual = Bounds()
        if max_bytes is None:
            return Bounds(rows=max_rows or usual.rows)
        return Bounds(max_rows or usual.rows, max_bytes, ratio=0)


USUAL: Final = Bounds()


@dataclass(frozen=True, slots=True)
class Archived:
    """What a file holds.

    complete: these were all rows at one moment, and the graph could not move. digest: of all lines but the last,
    SHA-256 in hexadecimal. signature: verified, by any key. size: bytes, unpacked; log_bytes: those of files of runs.
    """

    graph_id: str
    state: str
    rows: int
    logs: int
    complete: bool
    digest: str
    signature: Signature | None = None
    size: int = 0
    log_bytes: int = 0


class Writer:
    """Lines under gzip, with their digest. The time and the name that gzip may carry are left out."""

    def __init__(self, out: BinaryIO, graph_id: str, state: str) -> None:
        self._file = gzip.GzipFile("", "wb", fileobj=out, mtime=0)
        self._hash = hashlib.sha256()
        self._head = {"graph": graph_id, "state": state}
        self._size = self._log_bytes = 0
        self._line({"archive": "taskgraph", "format": FORMAT, **self._head})

    def row(self, row: Row) -> None:
        own = _OWN if row.key == GRAPH else frozenset()
        columns = {name: column_json.as_json(row.columns[name]) for name in sorted(row.columns) if name not in own}
        self._line({"row": row.key, "columns": columns})

    def log(self, task_id: str, run: int, name: str, offset: int, data: bytes) -> None:
        """Write a piece of a file of a run, at most limits.ARCHIVE_PIECE_BYTES of it."""
        place = {"task": task_id, "run": run, "name": name, "offset": offset}
        self._line({"log": place, "data": base64.b64encode(data).decode("ascii")})
        self._log_bytes += len(data)

    def end(self, rows: int, logs: int, *, complete: bool, signer: Signer | None = None) -> Archived:
        said: dict[str, Any] = {"rows": rows, "logs": logs, "complete": complete, "sha256": self._hash.hexdigest()}
        signature: Signature | None = None
        if signer is not None:
            signature = signer.sign({**self._head, **said})
            said["signature"] = signature.object
        self._line({"end": said})
        self._file.close()
        graph_id, state, digest = self._head["graph"], self._head["state"], str(said["sha256"])
        return Archived(graph_id, state, rows, logs, complete, digest, signature, self._size, self._log_bytes)

    def _line(self, made: Mapping[str, Any]) -> None:
        data = json.dumps(made, separators=(",", ":")).encode("ascii") + b"\n"
        self._hash.update(data)
        self._size += len(data)
        self._file.write(data)


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a file of a run."""

    task_id: str
    run: int
    name: str
    offset: int
    data: bytes

    @property
    def file(self) -> tuple[str, int, str]:
        return self.task_id, self.run, self.name


def open_archive(path: Path) -> BinaryIO:
    """Raises InvalidInput."""
    try:
        return path.open("rb")
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror or error}") from error


def examine(
    file: BinaryIO,
    source: str,
    bounds: Bounds = USUAL,
    see: Callable[[Insert | Piece], None] = lambda found: None,
    begun: Callable[[str, str], None] = lambda graph_id, state: None,
) -> Archived:
    """Read a file to its end.

    begun: called first, with the id and the state of the graph; see: called with every row and piece of a log. Raises
    InvalidInput for a file that is damaged, cut off, or no archive, TooLarge for one beyond a bound.
    """
    said: Archived | None = None
    for found in _parts(file, source, bounds, begun):
        if isinstance(found, Archived):
            said = found
        else:
            see(found)
    if said is None:
        raise InvalidInput(f"{source} is cut off: its end is missing")
    return said


def parts(file: BinaryIO, source: str, contents: Archived) -> Iterator[Insert | Piece]:
    """Every row and piece of a file that was examined, once more. Raises InvalidInput if it has changed since."""
    same: Archived | None = None
    bounds = Bounds(contents.rows, contents.size, ratio=0)
    with contextlib.suppress(TooLarge):  # reach: deletion
        for found in _parts(file, source, bounds):
            if isinstance(found, Archived):
                same = found
            else:
                yield found
    if same != contents:
        raise InvalidInput(f"{source} has changed since it was looked at")


def _parts(
    file: BinaryIO, source: str, bounds: Bounds, begun: Callable[[str, str], None] = lambda graph_id, state: None
) -> Iterator[Insert | Piece | Archived]:
    """The rows and pieces of a file, and at last what it holds."""
    found = hashlib.sha256()
    head: dict[str, Any] = {}
    said: Archived | None = None
    rows = logs = graphs = size = log_bytes = after = 0
    last = ""
    files: set[tuple[str, int, str]] = set()
    current: tuple[str, int, str] | None = None
    file.seek(0)
    for number, data in enumerate(_lines(file, source, bounds), start=1):
        where = f"{source}, line {number}"
        size += len(data)
        line = _object(data, where)
        if said is not None:
            raise InvalidInput(f"{where}: it goes on after its end")
        if not head:
            head = _head(line, source)
            begun(head["graph"], head["state"])
        elif line.keys() == {"row", "columns"}:
            row = _row(line, where)
            if row.key <= last:
                raise InvalidInput(f"{where}: the rows are out of order")
            last = row.key
            rows += 1
            if rows > bounds.rows:
                raise TooLarge(f"{source} has more than {bounds.rows:,} rows; --max-rows allows more")
            graphs += row.key == GRAPH and row.columns.get("state") == head["state"]
            yield row
        elif line.keys() == {"log", "data"}:
            piece = _piece(line, where)
            if piece.file != current:
                if piece.file in files:
                    raise InvalidInput(f"{where}: the pieces of a log are apart")
                files.add(piece.file)
                current, after = piece.file, 0
                logs += 1
            if piece.offset != after:
                raise InvalidInput(f"{where}: a piece of a log begins at {piece.offset:,}, and not at {after:,}")
            after += len(piece.data)
            log_bytes += len(piece.data)
            yield piece
        elif line.keys() == {"end"}:
            said = _end(line["end"], head, source, (rows, logs, graphs, found.hexdigest()), (size, log_bytes))
        else:
            raise InvalidInput(f"{where}: neither a row, a log nor the end")
        found.update(data)
    if said is not None:
        yield said  # what gzip itself says of the bytes has been read, too


def _lines(file: BinaryIO, source: str, bounds: Bounds) -> Iterator[bytes]:
    line_max = limits.ARCHIVE_LINE_BYTES_MAX
    size = 0
    try:
        with gzip.GzipFile(fileobj=file, mode="rb") as plain:
            while data := plain.readline(line_max):
                size += len(data)
                if size > bounds.bytes:
                    raise TooLarge(f"{source} unpacks to more than {bounds.bytes:,} bytes; --max-bytes allows more")
                if bounds.ratio and size > max(limits.ARCHIVE_RATIO_FREE_BYTES, bounds.ratio * file.tell()):
                    raise TooLarge(
                        f"{source} grows to more than {bounds.ratio} times its size when it is unpacked; "
                        "--max-bytes N allows it to have N bytes"
                    )
                if not data.endswith(b"\n"):
                    long = len(data) == line_max
                    raise InvalidInput(f"{source} {'has a line that is too long' if long else 'is cut off'}")
                yield data
    except (gzip.BadGzipFile, zlib.error) as error:
        raise InvalidInput(f"{source} is no archive: it is not compressed by gzip, or damaged") from error
    except EOFError as error:
        raise InvalidInput(f"{source} is cut off") from error


def _object(data: bytes, where: str) -> dict[str, Any]:
    try:
        line = json.loads(data, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{where}: no JSON") from error
    if not isinstance(line, dict):
        raise InvalidInput(f"{where}: no object")
    return line


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no number")


def _head(line: Mapping[str, Any], source: str) -> dict[str, Any]:
    if line.get("archive") != "taskgraph":
        raise InvalidInput(f"{source} is no archive of a graph")
    if line.get("format") != FORMAT or isinstance(line["format"], bool):
        raise InvalidInput(
            f"{source} is an archive of format {str(line.get('format'))[:40]}, and this version reads {FORMAT}; "
            "use a newer version of taskgraph"
        )
    if not isinstance(line.get("graph"), str) or not is_graph_id(line["graph"]):
        raise InvalidInput(f"{source} does not name a graph")
    if not isinstance(line.get("state"), str):
        raise InvalidInput(f"{source} does not say the state of its graph")
    return dict(line)


def _end(
    end: Any, head: Mapping[str, Any], source: str, counted: tuple[int, int, int, str], sizes: tuple[int, int]
) -> Archived:
    rows, logs, graphs, digest = counted
    if not isinstance(end, dict) or end.get("sha256") != digest:
        raise InvalidInput(f"{source} is damaged: its digest is another than that of its lines")
    if (end.get("rows"), end.get("logs"), graphs) != (rows, logs, 1):
        raise InvalidInput(f"{source} is damaged: it holds {rows:,} rows and {logs:,} log files, and says not")
    complete = end.get("complete") is True
    signature: Signature | None = None
    if "signature" in end:
        said = {name: end[name] for name in ("rows", "logs", "complete", "sha256") if name in end}
        signature = read_signature(end["signature"], {"graph": head["graph"], "state": head["state"], **said}, source)
    return Archived(str(head["graph"]), str(head["state"]), rows, logs, complete, digest, signature, *sizes)


def _row(line: Mapping[str, Any], where: str) -> Insert:
    key, columns = line.get("row"), line.get("columns")
    try:
        if not isinstance(key, str) or not isinstance(columns, dict):
            raise ValueError("a row has a key and columns")
        checks.check_key(key)
        row = Insert(key, {name: column_json.read(value) for name, value in columns.items()})
        checks.check_columns(key, row.columns)
    except (ValueError, OverflowError, TooLarge) as error:  # reach: deletion
        raise InvalidInput(f"{where}: {error}") from error
    return row


def _piece(line: Mapping[str, Any], where: str) -> Piece:
    place = line["log"]
    try:
        if not isinstance(place, dict) or not _is_whole(place.get("offset")) or place["offset"] < 0:
            raise ValueError("a piece of a log has a place")
        run = place.get("run")
        if not isinstance(run, int) or isinstance(run, bool) or run > limits.RUN_NUMBER_MAX:
            raise ValueError(f"a log has a run, of 0 to {limits.RUN_NUMBER_MAX:,}")
        task_id, name = place.get("task"), place.get("name")
        if not isinstance(task_id, str) or not isinstance(name, str):
            raise ValueError("a log has a task and a name")
        checks.check_log("graph", task_id, run, name)
        data = base64.b64decode(str(line.get("data", "")), validate=True)
        if len(data) > limits.ARCHIVE_PIECE_BYTES:
            raise ValueError(f"a piece of a log has at most {limits.ARCHIVE_PIECE_BYTES:,} bytes")
        return Piece(task_id, run, name, place["offset"], data)
    except (ValueError, binascii.Error) as error:
        raise InvalidInput(f"{where}: {error}") from error


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
