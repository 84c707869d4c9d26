"""The embedded store's tables: one row of SQLite per row, its columns as one JSON text.

For speed a call is a handful of statements, each over all rows of the call, with a place for each; there are such
statements for a few sizes, and places that are left over stay NULL. Rows come back as one text for all of them. To
write, a statement for each row takes half the time; but each lets go of the interpreter's lock, and on a thread beside
a busy event loop a commit of 100 rows took seconds. So rows are written one by one on the loop (`Session.row_by_row`).

A commit does not look before it writes. The conditions stand in the statements, and the number of rows that changed
shows whether all agreed. If not, the group is undone and run again, and this time the commit looks first: to say which
change was at fault, or to measure a row that might outgrow a limit. SQLite merges: the columns that a merge does not
name are never decoded here.
"""

import json
import math
import re
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from functools import lru_cache
from itertools import chain
from json import encoder as json_encoder
from operator import attrgetter
from typing import Any, Final

from taskgraph.model import limits
from taskgraph.model.columns import Columns, Value
from taskgraph.model.errors import Conflict, TooLarge
from taskgraph.model.names import ALL, LIVE
from taskgraph.model.utf16 import has_surrogate
from taskgraph.storage import checks
from taskgraph.storage.sqlite.file import MANY, File, LookFirst, Session
from taskgraph.storage.tables import Change, Delete, Insert, Merge, Page, Range, Row, TextPage

_HINTS: Final = frozenset({LIVE, ALL})
"""Partitions whose rows say where to look: all that counts is that they come before what they name, and go after it."""

_ROWS_AT_ONCE: Final = 200  # rows in one answer of SQLite, which is one text and may have 1e9 bytes
_PAGE_CHARS: Final = 4_000_000  # a page ends early past this, as the service's pages do
_SCAN_ROWS_MAX: Final = 2_000  # rows looked at for one page of a conditional query: others wait for the file
_SHORT_PAGE_ROWS: Final = 32  # a page of so few is short work, whatever the range
_SHORT_LOOK_ROWS: Final = 10  # that are looked at on the event loop, of a range that may have more
_KEY_END: Final = "\U0010ffff"  # after every key that may be written
_TIMES_REMEMBERED: Final = 8_192
_TIMES_WRITTEN: Final = 16  # of which the texts are remembered: the rows of a commit have the same ones
_DATES_REMEMBERED: Final = 16
_SCANS_REMEMBERED: Final = 64
_ROWS_OF_A_KIND: Final = 256  # of which the names of columns are remembered
_CLOSELY: Final = "it is to be looked at closely"
_INT_MIN: Final = limits.INT_MIN
_INT_MAX: Final = limits.INT_MAX
_ALIKE_MIN: Final = 8  # rows; fewer are encoded as quickly one by one
_PLAIN_CHARS_MAX: Final = limits.PROPERTY_CHARS_MAX // 2  # of a row that fits whatever is in it: one may be two units

# A row of so few bytes has at most so many columns: their names differ, so 53 have one letter, the others two or more.
_SMALL_ROW_BYTES: Final = 1_500
_SMALL_ROW_COLUMNS: Final = 53 + (_SMALL_ROW_BYTES - 53 * len('"a":1,')) // len('"ab":1,') + 1

# What a merge may add to a row that has room, whatever it names. Twice: a number may count more than it has characters.
# And a character has up to two units of UTF-16.
_ADDED_COLUMNS_MAX: Final = limits.ROW_COLUMNS_MAX - _SMALL_ROW_COLUMNS
_ADDED_CHARS_MAX: Final = 25_000
_ROOMY_ROW_BYTES: Final = limits.ROW_CHARS_MAX // 2 - 2 * _ADDED_CHARS_MAX
_BYTES: Final = "length(CAST(columns AS BLOB))"


def _names(text: str) -> str:
    """At least as many as the columns in a text of JSON: `":` stands behind each name."""
    return f"""length(CAST({text} AS BLOB)) - length(CAST(replace({text}, '":', '"') AS BLOB))"""


_WITHOUT_TEXTS: Final = r"""replace(columns, '\":', '')"""  # JSON inside of a text has its quotes escaped
_HAS_ROOM: Final = f"""
    ({_BYTES} <= {_SMALL_ROW_BYTES} OR ({_BYTES} <= {_ROOMY_ROW_BYTES}
        AND ({_names("columns")} <= {_SMALL_ROW_COLUMNS} OR {_names(_WITHOUT_TEXTS)} <= {_SMALL_ROW_COLUMNS})))
"""

_FEW_ROWS: Final = 3  # that are written one by one anywhere: a statement over several is dear to begin
_ROWS_A_LOOK: Final = 16  # written one by one between two looks whether that is still quick
_SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 100, 150, 200, 300, limits.LOCAL_COMMIT_CHANGES_MAX)


def _sized(head: str, place: str, tail: str) -> tuple[str, ...]:
    """One statement for each of `_SIZES`. `{n}` in a place is its number."""
    return tuple(head + ", ".join(place.format(n=n) for n in range(size)) + tail for size in _SIZES)


# Columns are JSON already and go in as they stand: reading a thousand rows is a few steps, and not a thousand.
_GET: Final = _sized(
    "WITH wanted (n, key) AS (VALUES ",
    "({n}, ?)",
    """
    ) SELECT group_concat(n), group_concat(etag), group_concat(columns)
    FROM wanted CROSS JOIN row ON row.tab = ? AND row.partition = ? AND row.key = wanted.key
    """,
)
_SCAN: Final = """
    SELECT count(*), max(key), group_concat(key, char(10)), group_concat(etag), group_concat(columns)
    FROM (SELECT key, etag, columns FROM row WHERE tab = ? AND partition = ? AND key >= ? AND key < ?
          ORDER BY key LIMIT ?)
"""
_SCAN_WHERE: Final = """
    SELECT count(*), max(key), group_concat(key, char(10)) FILTER (WHERE agrees),
        group_concat(etag) FILTER (WHERE agrees), group_concat(columns) FILTER (WHERE agrees)
    FROM (SELECT key, etag, columns, {condition} AS agrees
          FROM row WHERE tab = ? AND partition = ? AND key >= ? AND key < ? ORDER BY key LIMIT ?)
"""
# Selected columns as they are stored, and times as `model.column_json` has them. Nothing else looks like a time: inside
# of texts quotes are escaped, and the object of the columns has spaces at both ends.
_SCAN_TEXT: Final = """
    SELECT count(*), max(key), group_concat(key, char(10)), replace(replace(group_concat(
        '{{"key":' || json_quote(key) || ',"etag":"' || etag || '","columns":{{ ' || substr({columns}, 2) || ' }}}}'
    ), '{{"t":"', '{{"time":"'), '+00:00"}}', 'Z"}}')
    FROM (SELECT key, etag, columns FROM row WHERE tab = ? AND partition = ? AND key >= ? AND key < ?
          ORDER BY key LIMIT ?)
"""
_COLUMN_TEXT: Final = """ifnull(',"{name}":' || (columns -> '{name}'), '')"""
_ARROWS: Final = sqlite3.sqlite_version_info >= (3, 38)
_COLUMNS_IN_TEXT_MAX: Final = 50  # an expression of SQLite has a depth
_DOUBLE: Final = re.compile(r'"(?<!\\"):-?[0-9]+[.eE]')  # behind the name of a column
_PLACE: Final = "tab = ? AND partition = ?"


def _updates(columns: str, condition: str = "true") -> tuple[str, ...]:
    """Statements that write rows under their etags. columns: what becomes of them, `{new}` being what is given."""

    def where(key: str, old: str) -> str:  # etags are compared as texts: 01 is not 1
        return f"WHERE key = {key} AND CAST(etag AS TEXT) = {old} AND {_PLACE} AND {condition}"

    one, several = columns.format(new="?"), columns.format(new="given.column2")
    return (
        f"UPDATE row SET etag = ?, columns = {one} {where('?', '?')}",  # noqa: S608  (texts of ours)
        *_sized(
            f"UPDATE row SET etag = given.column1, columns = {several} FROM (VALUES ",  # noqa: S608
            "(?, ?, ?, ?)",
            f") AS given {where('given.column3', 'given.column4')}",
        )[1:],
    )


_MERGED: Final = "json_patch(columns, {new})"
_MERGE: Final = _updates(_MERGED)
_MERGE_IF_ROOM: Final = _updates(_MERGED, _HAS_ROOM)
_REPLACE: Final = _updates("{new}")
_INTO: Final = "INSERT INTO row (etag, columns, key, tab, partition)"
_INSERT: Final = (
    f"{_INTO} VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
    *_sized(
        f"{_INTO} SELECT * FROM (VALUES ",  # noqa: S608
        "(?, ?, ?)",
        ") CROSS JOIN (SELECT ?, ?) WHERE column1 IS NOT NULL ON CONFLICT DO NOTHING",
    )[1:],
)
_REMOVE: Final = _sized(
    "DELETE FROM row WHERE rowid IN (SELECT row.rowid FROM (VALUES ",
    "(?, ?)",
    f") AS given CROSS JOIN row ON {_PLACE} AND key = given.column1 AND CAST(etag AS TEXT) = given.column2)",
)
_LOOK: Final = f"SELECT CAST(etag AS TEXT), {_HAS_ROOM} FROM row WHERE {_PLACE} AND key = ?"  # noqa: S608  (texts of ours)
_COLUMNS: Final = f"SELECT columns FROM row WHERE {_PLACE} AND key = ?"  # noqa: S608


class EmbeddedTables:
    changes_max: Final = limits.LOCAL_COMMIT_CHANGES_MAX
    """More than in the service: in larger commits a row that many count down is written less often."""

    def __init__(self, file: File, name: str) -> None:
        self._file = file
        self._name = name

    async def get(self, partition: str, keys: Sequence[str]) -> list[Row | None]:
        checks.check_get(partition, keys)
        if not keys:
            return []
        return await self._file.call(
            lambda session: _get(session, self._name, partition, keys), rows=len(keys), lasting=False
        )

    async def query(self, partition: str, rows: Range, *, limit: int = 1000, continuation: str | None = None) -> Page:
        checks.check_query(partition, rows, limit)
        # Most ranges hold next to nothing: a look at a few rows need not go to the thread.
        few = limit if limit <= _SHORT_PAGE_ROWS and not rows.where else _SHORT_LOOK_ROWS
        page = await self._file.call(
            lambda session: _query(session, self._name, partition, rows, limit, continuation, few),
            rows=few,
            lasting=False,
        )
        while page is None:
            page = await self._file.call(
                lambda session: _query(session, self._name, partition, rows, limit, continuation), lasting=False
            )
        return page

    async def query_text(
        self, partition: str, rows: Range, *, limit: int = 1000, continuation: str | None = None
    ) -> TextPage | None:
        """See `storage.tables.query_text`."""
        checks.check_query(partition, rows, limit)
        names = list(dict.fromkeys(rows.select or ()))
        if rows.where or not 0 < len(names) <= _COLUMNS_IN_TEXT_MAX or not _ARROWS:
            return None
        statement = _SCAN_TEXT.format(columns=" || ".join(_COLUMN_TEXT.format(name=name) for name in names))
        return await self._file.call(
            lambda session: _query_text(session, self._name, partition, rows, statement, limit, continuation),
            rows=limit if limit <= _SHORT_PAGE_ROWS else MANY,
            lasting=False,
        )

    async def commit(self, partition: str, changes: Sequence[Change]) -> list[str | None]:
        texts = _encode_good(changes)
        checks.check_commit(partition, changes, self.changes_max, good=texts)
        if None in texts:
            texts = [
                text or (None if type(change) is Delete else _encode(change.columns))  # type: ignore[union-attr]
                for change, text in zip(changes, texts, strict=True)
            ]
        return await self._file.call(
            lambda session: _commit(session, self._name, partition, changes, texts),
            rows=len(changes),
            commits=True,
            lasting=partition not in _HINTS,
        )


def _get(session: Session, table: str, partition: str, keys: Sequence[str]) -> list[Row | None]:
    number = session.table_id(table, make=False)
    found: list[Row | None] = [None] * len(keys)
    for start in range(0, len(keys), _SIZES[-1]):
        part = keys[start : start + _SIZES[-1]]
        statement, empty = _of_size(_GET, len(part))
        places, etags, text = session.one(statement, *part, *[None] * empty, number, partition)
        if places is not None:
            for place, etag, columns in zip(_numbers(places), etags.split(","), _parsed(text), strict=True):
                found[start + place] = Row(part[place], etag, columns)
    return found


def _query(
    session: Session, table: str, partition: str, rows: Range, limit: int, continuation: str | None, few: int = 0
) -> Page | None:
    """A page; None if it takes more than a `few` rows, where that is given."""
    number = session.table_id(table, make=False)
    # A continuation is the last key that was looked at; the next possible key is that with a NUL behind it.
    start = rows.start if continuation is None else continuation + "\0"
    end = rows.end or _KEY_END
    statement, fragments = _scan(rows)
    found: list[Row] = []
    scanned = chars = 0
    while True:
        wanted = min(few or _ROWS_AT_ONCE, _ROWS_AT_ONCE if rows.where else limit - len(found))
        seen, last, keys, etags, text = session.one(statement, *fragments, number, partition, start, end, wanted)
        scanned += seen
        if text is not None:
            chars += len(text)
            part = [Row(*row) for row in zip(keys.split("\n"), etags.split(","), _parsed(text), strict=True)]
            part.sort(key=attrgetter("key"))  # they come in order; SQL does not promise it
            found += [row for row in part if _agrees(row, rows)] if rows.where else part
        if len(found) > limit:
            found = found[:limit]
            return Page(_selected(found, rows), found[-1].key)
        if seen < wanted:
            return Page(_selected(found, rows))
        if len(found) == limit or scanned >= _SCAN_ROWS_MAX or chars > _PAGE_CHARS:
            return Page(_selected(found, rows), last)
        if few:
            return None
        start = last + "\0"


def _scan(rows: Range) -> tuple[str, list[str]]:
    """The statement that reads a part of the range, and the texts by which it leaves rows out."""
    if not rows.where:
        return _SCAN, []
    name, texts = next(iter(rows.where.items()))
    return _scan_where(name, *texts)


@lru_cache(_SCANS_REMEMBERED)
def _scan_where(name: str, *texts: str) -> tuple[str, list[str]]:
    # Column and text as they stand in the stored JSON. What is inside a text stands there with its quotes escaped, so
    # nothing else looks like it; _agrees makes sure all the same, and looks at the other columns.
    condition = " OR ".join(["instr(columns, ?) > 0"] * len(texts)) or "false"
    return _SCAN_WHERE.format(condition=condition), [f"{_dump(name)}:{_dump(text)}" for text in texts]


def _query_text(
    session: Session, table: str, partition: str, rows: Range, statement: str, limit: int, continuation: str | None
) -> TextPage | None:
    number = session.table_id(table, make=False)
    start = rows.start if continuation is None else continuation + "\0"
    texts: list[str] = []
    count = chars = 0
    while True:
        wanted = min(_ROWS_AT_ONCE, limit - count)
        seen, last, keys, text = session.one(statement, number, partition, start, rows.end or _KEY_END, wanted)
        count += seen
        if text is not None:
            in_order = keys.split("\n")
            if in_order != sorted(in_order) or _DOUBLE.search(text):  # they come in order; SQL does not promise it
                return None
            texts.append(text)
            chars += len(text)
        if seen < wanted:
            return TextPage(",".join(texts))
        if count == limit or chars > _PAGE_CHARS:
            return TextPage(",".join(texts), last)
        start = last + "\0"


def _agrees(row: Row, rows: Range) -> bool:
    return all(row.columns.get(name) in texts for name, texts in rows.where.items())


def _selected(found: list[Row], rows: Range) -> list[Row]:
    if rows.select is None:
        return found
    names = frozenset(rows.select)
    return [
        Row(row.key, row.etag, {name: value for name, value in row.columns.items() if name in names}) for row in found
    ]


def _commit(
    session: Session, table: str, partition: str, changes: Sequence[Change], encoded: Sequence[str | None]
) -> list[str | None]:
    session.begin()
    number = session.table_id(table, make=True)
    etag = session.etags(len(changes))
    etags: list[str | None] = []
    inserted: list[tuple[object, ...]] = []
    merged: list[tuple[object, ...]] = []
    replaced: list[tuple[object, ...]] = []
    gone: list[tuple[object, ...]] = []
    measure = False  # whether a merge adds more than every row that has room can take
    chars = 0
    for place, change in enumerate(changes):
        kind, text = type(change), encoded[place]
        if text is None:
            gone.append((change.key, change.etag, number, partition))  # type: ignore[union-attr]
            etags.append(None)
            etag += 1
            continue
        if kind is Merge:
            merged.append((etag, text, change.key, change.etag, number, partition))  # type: ignore[union-attr]
            if len(text) > _ADDED_CHARS_MAX or len(change.columns) > _ADDED_COLUMNS_MAX:  # type: ignore[union-attr]
                measure = True
        elif kind is Insert:
            inserted.append((etag, text, change.key, number, partition))
        else:
            replaced.append((etag, text, change.key, change.etag, number, partition))  # type: ignore[union-attr]
        chars += len(text)
        etags.append(str(etag))
        etag += 1
    if looked := measure or session.looks_first:
        _look(session, number, partition, changes, measure)
    written = _write(session, _MERGE if looked else _MERGE_IF_ROOM, merged) if merged else 0
    if inserted:
        written += _write(session, _INSERT, inserted)
    if replaced:
        written += _write(session, _REPLACE, replaced)
    if gone:
        written += _write(session, _REMOVE, gone)
    if written != len(changes):
        raise LookFirst
    session.wrote(len(changes) - len(inserted), chars)
    return etags


def _write(session: Session, statements: tuple[str, ...], rows: list[tuple[object, ...]]) -> int:
    """How many rows were written. rows: each with the number of its table and its partition at the end."""
    if len(rows) <= _FEW_ROWS:
        return session.run_each(statements[0], rows)
    start = written = 0
    while start < len(rows) and session.row_by_row:
        part = rows[start : start + _ROWS_A_LOOK]
        written += session.run_each(statements[0], part)
        start += len(part)
    if left := rows[start:]:
        statement, empty = _of_size(statements, len(left))
        given = chain.from_iterable([row[:-2] for row in left])
        places = chain(given, [None] * (empty * (len(left[0]) - 2)), left[0][-2:])
        written += session.run(statement, *places)
    return written


def _look(session: Session, number: int, partition: str, changes: Sequence[Change], measure: bool) -> None:
    """Raise what is wrong with the first change that is at fault. Writes nothing: the rest of the group goes on.

    measure: whether any row may get too large, and not only one without room.
    """
    for index, change in enumerate(changes):
        found = session.one(_LOOK, number, partition, change.key)
        if isinstance(change, Insert):
            if found:
                raise Conflict(f"row {change.key!r} of {partition!r} exists already", index)
        elif not found:
            raise Conflict(f"row {change.key!r} of {partition!r} is gone", index)
        elif found[0] != change.etag:
            raise Conflict(f"row {change.key!r} of {partition!r} has changed", index)
        elif isinstance(change, Merge) and (measure or not found[1]):
            _check_merged(session, number, partition, change)


def _check_merged(session: Session, number: int, partition: str, change: Merge) -> None:
    (text,) = session.one(_COLUMNS, number, partition, change.key)
    try:
        checks.check_columns(change.key, _decoded(json.loads(text)) | dict(change.columns))
    except TooLarge as error:
        raise TooLarge(f"{error}, which this merge would exceed") from error


def _of_size(statements: tuple[str, ...], count: int) -> tuple[str, int]:
    """The statement with enough places, and how many of them stay empty."""
    for size, statement in zip(_SIZES, statements, strict=True):
        if size >= count:
            return statement, size - count
    raise ValueError(f"{count} rows in one statement; the most are {_SIZES[-1]}")


def _numbers(text: str) -> list[int]:
    return [int(each) for each in text.split(",")]


# --- values: JSON types as they are, times as {"t": "..."} ---------------------------------------------------------
# Most rows of one commit are alike: they have the same columns, and most of these have one value in all rows. They are
# checked and encoded column by column, which takes half of the time.


def _time(value: object) -> dict[str, str]:
    if not isinstance(value, datetime):
        raise TypeError(f"no store keeps a {type(value).__name__}")  # the checks have let something through
    return {"t": (value if value.tzinfo is UTC else value.astimezone(UTC)).isoformat()}


def _time_text(value: datetime) -> str:
    """What `isoformat` gives of a time in UTC, in a third of the time."""
    thousands, rest = divmod(value.microsecond, 1000)
    if not thousands and not rest:
        return value.isoformat()
    two, three = _TWO_DIGITS, _THREE_DIGITS
    clock = f"{two[value.hour]}:{two[value.minute]}:{two[value.second]}.{three[thousands]}{three[rest]}"
    return f"{_date_text(value.date())}T{clock}+00:00"


_TWO_DIGITS: Final = tuple([f"{n:02d}" for n in range(60)])
_THREE_DIGITS: Final = tuple([f"{n:03d}" for n in range(1000)])
_date_text: Final = lru_cache(_DATES_REMEMBERED)(date.isoformat)

_dump: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_time).encode


def _encode(columns: Columns) -> str:
    return _dump(dict(columns))


_WRITERS: Final[Mapping[type, Callable[[Any], str]]] = {
    str: json_encoder.encode_basestring,
    int: int.__repr__,
    float: float.__repr__,
    bool: {True: "true", False: "false"}.__getitem__,
    datetime: lambda time: f'{{"t":"{_time_text(time)}"}}',  # in UTC
}
"""What the columns are encoded by that can be checked as a whole."""


def _plain_int(value: int) -> str:
    if not _INT_MIN <= value <= _INT_MAX:
        raise ValueError(_CLOSELY)
    return repr(value)


def _plain_float(value: float) -> str:
    if not math.isfinite(value):
        raise ValueError(_CLOSELY)
    return float.__repr__(value)


_written: dict[int, tuple[str, datetime]] = {}  # by identity: a new time has no hash yet, and making it is dear


def _plain_time(value: datetime) -> str:
    known = _written.get(id(value))
    if known is None:
        if not checks.is_plain_time(value):
            raise ValueError(_CLOSELY)
        if len(_written) >= _TIMES_WRITTEN:
            _written.clear()
        known = _written[id(value)] = f'{{"t":"{_time_text(value)}"}}', value
    return known[0]


_CHECKED: Final[Mapping[type, Callable[[Any], str]]] = {
    **_WRITERS,
    int: _plain_int,
    float: _plain_float,
    datetime: _plain_time,
}
"""The same for one value, which every store takes. Each raises ValueError where that is not plain."""


@lru_cache(_ROWS_OF_A_KIND)
def _row_of(*names: str) -> list[str]:
    """A row of these columns in pieces, of which every other one is a value. Raises ValueError where that is no row."""
    if not checks.are_good_names(names):
        raise ValueError(_CLOSELY)
    pieces = [piece for name in names for piece in (f',"{name}":', "")]
    return ["{" + pieces[0][1:], *pieces[1:], "}"] if names else ["{}"]


def _encode_good(changes: Sequence[Change]) -> list[str | None]:
    """The columns of each change that are surely what every store takes; None for what has to be looked at closely."""
    texts: list[str | None] = [None] * len(changes)
    if len(changes) >= _ALIKE_MIN:
        texts = _encode_alike(changes)
    for place, change in enumerate(changes):
        if texts[place] is None and type(change) is not Delete:
            texts[place] = _encode_plain(change.columns)  # type: ignore[union-attr]
    return texts


def _encode_plain(columns: Columns) -> str | None:
    """One row, checked and encoded value by value."""
    try:
        pieces = _row_of(*columns).copy()
        pieces[1::2] = [_CHECKED[type(value)](value) for value in columns.values()]
    except (KeyError, ValueError):
        return None
    return _if_short("".join(pieces))


def _if_short(text: str) -> str | None:
    """A row that fits, whatever is in it."""
    return text if len(text) <= _PLAIN_CHARS_MAX and (text.isascii() or not has_surrogate(text)) else None


def _encode_alike(changes: Sequence[Change]) -> list[str | None]:
    """The columns of each change that is like many others, if they are surely good; None for all else."""
    texts: list[str | None] = [None] * len(changes)
    groups: dict[tuple[str, ...], list[int]] = {}
    for place, change in enumerate(changes):
        if type(change) is not Delete:
            groups.setdefault(tuple(change.columns), []).append(place)  # type: ignore[union-attr]
    for names, places in groups.items():
        if len(places) >= _ALIKE_MIN and checks.are_good_names(names):
            values = zip(*[changes[place].columns.values() for place in places], strict=True)  # type: ignore[union-attr]
            for place, text in zip(places, _by_column(names, values, len(places)), strict=False):
                texts[place] = text
    return texts


def _by_column(names: Sequence[str], values: Iterable[tuple[Value, ...]], count: int) -> Sequence[str | None]:
    """The texts of so many rows, given by columns; None, or no text at all, for what a store might not take."""
    constant: list[str] = []
    differing: list[Iterable[str]] = []
    for name, column in zip(names, values, strict=True):
        kind = _kind(column)
        if kind is None:
            return ()
        write = _WRITERS[kind]
        if column.count(column[0]) == count and (column[0] or kind is not float):  # 0.0 equals -0.0
            constant.append(f"{_dump(name)}:{write(column[0])}".replace("%", "%%"))
        else:
            constant.append(f"{_dump(name)}:%s")
            differing.append(map(write, column))
    row = "{" + ",".join(constant) + "}"
    texts = list(map(row.__mod__, zip(*differing, strict=True))) if differing else [row % ()] * count
    # Where the whole row is short, so is each of its texts.
    return list(map(_if_short, texts))


def _kind(column: tuple[Value, ...]) -> type | None:
    """The type of all values of a column, if every store takes them; None for what has to be looked at closely."""
    kinds = set(map(type, column))
    kind = kinds.pop()
    if kinds or kind not in _WRITERS:
        return None
    if kind is int and not _INT_MIN <= min(column) <= max(column) <= _INT_MAX:  # type: ignore[operator]
        return None
    if kind is float and not all(map(math.isfinite, column)):  # type: ignore[arg-type]
        return None
    if kind is datetime and not all(map(checks.is_plain_time, {id(time): time for time in column}.values())):  # type: ignore[arg-type]
        return None
    return kind


# Rows that were written together have the same times: one text is read once, and is one object in memory.
_time_of: Final = lru_cache(_TIMES_REMEMBERED)(datetime.fromisoformat)


def _decoded(raw: dict[str, Any]) -> dict[str, Value]:
    for name, value in raw.items():
        if type(value) is dict:
            raw[name] = _time_of(value["t"])
    return raw


def _parsed(text: str) -> list[dict[str, Value]]:
    return [_decoded(raw) for raw in json.loads(f"[{text}]")]
