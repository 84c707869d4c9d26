"""The limits of the stores, checked at the door of every adapter before anything is sent (P24, D6).

What one store takes the other takes too. A size past a limit is `TooLarge`; anything else that no store would keep as
it is given is a `ValueError`: a mistake of the program, not of a user.
"""

import math
import re
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from itertools import repeat
from json.encoder import encode_basestring_ascii
from typing import Final

from taskgraph.model import limits
from taskgraph.model.columns import Columns
from taskgraph.model.errors import TooLarge
from taskgraph.model.utf16 import has_surrogate, utf16_units
from taskgraph.storage.tables import Change, Delete, Insert, Range

_KEY_FORBIDDEN: Final = re.compile(r"[/\\#?\x00-\x1f\x7f-\x9f]")
# The service compares keys by UTF-16 units, SQLite by code points: they agree as long as no key leaves the basic plane.
_KEY_UNORDERED: Final = re.compile(r"[\ud800-\udfff\ufffe\uffff\U00010000-\U0010ffff]")
_COLUMN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
_RESERVED_COLUMNS: Final = frozenset({"PartitionKey", "RowKey", "Timestamp"})
_TABLE_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9]{2,62}")
_QUEUE_NAME: Final = re.compile(r"(?=.{3,63}$)[a-z0-9](?:-?[a-z0-9])+")
_ETAG: Final = re.compile(r"(?!\*\Z)[\x21-\x7e]+")  # not `*`: that would be "whatever is there" (P2)
_LOG_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LOG_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
# XML 1.0 has no such characters, and every XML reader turns a carriage return into a line feed.
_BODY_FORBIDDEN: Final = re.compile(r"[\x00-\x08\x0b-\x1f\ud800-\udfff\ufffe\uffff]")
YEAR_MIN: Final = 1601
"""Edm.DateTime begins there, and times that are kept come after it."""
_WHERE_TEXTS_MAX: Final = 12  # a filter may hold 15 comparisons; the partition and the two bounds take three
_ESCAPED_BYTES_MAX: Final = 6  # per UTF-16 unit in ASCII JSON: \uXXXX
_VALUE_CHARS: Final = 8  # of a number, boolean or time in a row, generously
_SHOWN_CHARS: Final = 100

# The limits of the hot loop, as names of this module: one look-up less for each value.
_COLUMNS_MAX: Final = limits.ROW_COLUMNS_MAX
_CHARS_MAX: Final = limits.PROPERTY_CHARS_MAX
_INT_MIN: Final = limits.INT_MIN
_INT_MAX: Final = limits.INT_MAX

_good_names: set[str] = set()  # names of columns seen and found right: there are a few dozen in a process
_GOOD_NAMES_MAX: Final = 4_096


def _units(text: str) -> int:
    """Length as the service counts it. Raises ValueError for a lone surrogate, which no store can keep."""
    if has_surrogate(text):
        raise ValueError("a lone surrogate is not text")
    return utf16_units(text)


def check_table_name(name: str) -> None:
    if not _TABLE_NAME.fullmatch(name):
        raise ValueError(f"table name {_shown(name)}: 3 to 63 letters and digits, a letter first")


def check_key(key: str, what: str = "row key") -> None:
    """Raise ValueError or TooLarge unless every store takes this as a partition or row key."""
    if _are_plain((key,)):
        return
    if len(key) > limits.KEY_CHARS_MAX:
        raise TooLarge(f"{what} {_shown(key)} has {len(key)} characters; the limit is {limits.KEY_CHARS_MAX}")
    if not key:
        raise ValueError(f"an empty {what}")
    if found := _KEY_FORBIDDEN.search(key) or _KEY_UNORDERED.search(key):
        raise ValueError(f"{what} {_shown(key)}: the character U+{ord(found[0]):04X} may not be in a key")


def _are_plain(keys: Sequence[str]) -> bool:
    """Whether these keys are good at one look, as most are."""
    text = "".join(keys)
    if not text.isascii() or not text.isprintable() or "/" in text or "\\" in text or "#" in text or "?" in text:
        return False
    return "" not in keys and (len(text) <= limits.KEY_CHARS_MAX or max(map(len, keys)) <= limits.KEY_CHARS_MAX)


def check_get(partition: str, keys: Sequence[str]) -> None:
    check_key(partition, "partition key")
    for key in keys:
        check_key(key)


def check_query(partition: str, rows: Range, limit: int) -> None:
    check_key(partition, "partition key")
    for bound in (rows.start, rows.end):
        if bound:
            check_key(bound, "bound of a range")
    if not 1 <= limit <= limits.PAGE_ROWS_MAX:
        raise ValueError(f"a page of {limit} rows: 1 to {limits.PAGE_ROWS_MAX}")
    texts = 0
    for name, wanted in rows.where.items():
        _check_column_name(name, "the condition of a range")
        texts += len(wanted)
        for text in wanted:
            _units(text)
    if texts > _WHERE_TEXTS_MAX:
        raise ValueError(f"the condition of a range names {texts} texts; the limit is {_WHERE_TEXTS_MAX}")
    for name in rows.select or ():
        _check_column_name(name, "the selection of a range")


def check_commit(
    partition: str,
    changes: Sequence[Change],
    changes_max: int = limits.COMMIT_CHANGES_MAX,
    *,
    good: Sequence[str | None] = (),
) -> None:
    """changes_max: see tables.changes_max_of. good: columns as JSON where these need no further look, else None."""
    if not changes:
        raise ValueError("a commit of no changes")
    if len(changes) > changes_max:
        raise TooLarge(f"a commit of {len(changes)} changes; the limit is {changes_max}")
    keys, etags = [], []
    for change in changes:
        keys.append(change.key)
        if type(change) is not Insert:
            etags.append(change.etag)  # type: ignore[union-attr]
    if not _are_plain((partition, *keys)):
        check_key(partition, "partition key")
        for key in keys:
            check_key(key)
    if len({*keys}) < len(keys):
        twice = next(key for place, key in enumerate(keys) if key in keys[:place])
        raise ValueError(f"row {_shown(twice)} stands twice in one commit")
    together = "".join(etags)
    if "" in etags or not (together.isdigit() and together.isascii()):
        for change in changes:
            if not isinstance(change, Insert) and not _ETAG.fullmatch(change.etag):
                raise ValueError(f"row {_shown(change.key)}: {_shown(change.etag)} is no etag")
    units = 0
    if not good or None in good:
        for change, known in zip(changes, good or repeat(None), strict=False):
            if known is None and type(change) is not Delete:
                units += check_columns(change.key, change.columns)  # type: ignore[union-attr]
        good = list(filter(None, good))
    units += utf16_units("".join(good))  # type: ignore[arg-type]  # no less than what is in them
    # Only a commit that might be too long is measured: the bound is exact, and measuring is not free.
    if units * _ESCAPED_BYTES_MAX > limits.COMMIT_BYTES_MAX:
        size = sum(sent_bytes(change.columns) for change in changes if not isinstance(change, Delete))
        if size > limits.COMMIT_BYTES_MAX:
            raise TooLarge(
                f"a commit of {len(changes)} rows, from {_shown(changes[0].key)} on, has {size} bytes; "
                f"the limit is {limits.COMMIT_BYTES_MAX}"
            )


def check_columns(key: str, columns: Columns) -> int:
    """Raise unless every store takes these columns as one row; gives their size in UTF-16 units."""
    # Nearly all rows pass this quick look; the others are looked at again.
    if len(columns) <= _COLUMNS_MAX and columns.keys() <= _good_names:
        total = len("".join(columns))
        for value in columns.values():
            kind = type(value)
            if kind is str:
                size = len(value)  # type: ignore[arg-type]
                if size > _CHARS_MAX or not value.isascii():  # type: ignore[union-attr]
                    break
                total += size
            elif (
                (kind is int and _INT_MIN <= value <= _INT_MAX)  # type: ignore[operator]
                or kind is bool
                or (kind is float and math.isfinite(value))  # type: ignore[arg-type]
                or (kind is datetime and is_plain_time(value))  # type: ignore[arg-type]
            ):
                total += _VALUE_CHARS
            elif isinstance(value, str) and value.isascii() and len(value) <= _CHARS_MAX:  # a member of an enumeration
                total += len(value)
            else:
                break
        else:
            check_row_size(key, total)
            return total
    return _check_columns_closely(key, columns)


def _check_columns_closely(key: str, columns: Columns) -> int:
    if len(columns) > _COLUMNS_MAX:
        raise TooLarge(f"row {_shown(key)} has {len(columns)} columns; the limit is {_COLUMNS_MAX}")
    total = 0
    for name, value in columns.items():
        if name not in _good_names:
            _check_column_name(name, f"row {_shown(key)}")
        total += len(name)
        try:
            units = _units(value) if isinstance(value, str) else _units_of_value(value)
        except ValueError as error:  # reach: file
            raise ValueError(f"row {_shown(key)}, column {name}: {error}") from error
        if units > _CHARS_MAX:
            raise TooLarge(f"row {_shown(key)}, column {name} has {units} characters; the limit is {_CHARS_MAX}")
        total += units
    check_row_size(key, total)
    return total


def are_good_names(names: Collection[str]) -> bool:
    """Whether a row may have just these columns; False also for names that were not looked at yet."""
    return len(names) <= _COLUMNS_MAX and _good_names.issuperset(names)


def is_plain_time(value: datetime) -> bool:
    return value.tzinfo is UTC and value.year > YEAR_MIN


def check_row_size(key: str, units: int) -> None:
    if units > limits.ROW_CHARS_MAX:
        raise TooLarge(f"row {_shown(key)} has {units} characters; the limit is {limits.ROW_CHARS_MAX}")


def check_queue_name(name: str) -> None:
    if not _QUEUE_NAME.fullmatch(name):
        raise ValueError(f"queue name {_shown(name)}: 3 to 63 lower-case letters, digits and single dashes")


def check_send(queue: str, bodies: Sequence[str], delay_seconds: float) -> None:
    check_queue_name(queue)
    if not 0 <= delay_seconds <= limits.DELAY_SECONDS_MAX:
        raise ValueError(f"a delay of {delay_seconds} seconds: 0 to {limits.DELAY_SECONDS_MAX}")
    for body in bodies:
        if not body:
            raise ValueError(f"an empty message for queue {queue}")
        if not body.isascii() or not body.isprintable():
            if found := _BODY_FORBIDDEN.search(body):
                raise ValueError(f"a message for queue {queue}: the character U+{ord(found[0]):04X} may not be in it")
            size = len(body.encode("utf-8"))
        else:
            size = len(body)
        if size > limits.MESSAGE_BYTES_MAX:
            raise TooLarge(f"a message for queue {queue} has {size} bytes; the limit is {limits.MESSAGE_BYTES_MAX}")


def check_receive(queue: str, count: int, lease_seconds: float) -> None:
    check_queue_name(queue)
    if not 1 <= count <= limits.RECEIVE_MAX:
        raise ValueError(f"receiving {count} messages at once: 1 to {limits.RECEIVE_MAX}")
    if not 0 < lease_seconds <= limits.DELAY_SECONDS_MAX:
        raise ValueError(f"a lease of {lease_seconds} seconds: more than 0, at most {limits.DELAY_SECONDS_MAX}")


def check_renew(lease_seconds: float) -> None:
    if not 0 <= lease_seconds <= limits.DELAY_SECONDS_MAX:
        raise ValueError(f"a lease of {lease_seconds} seconds: 0 to {limits.DELAY_SECONDS_MAX}")


def check_logs_of(graph_id: str) -> None:
    if not _LOG_ID.fullmatch(graph_id):
        raise ValueError(f"the logs of graph {_shown(graph_id)}: 1 to 64 letters, digits, dashes and underscores")


def check_log(graph_id: str, task_id: str, run: int, name: str) -> None:
    """Raise ValueError unless this names one file below the place of the logs: no separator, no leading dot."""
    for what, text in (("graph", graph_id), ("task", task_id)):
        if not _LOG_ID.fullmatch(text):
            raise ValueError(f"the log of {what} {_shown(text)}: 1 to 64 letters, digits, dashes and underscores")
    if run < 0:
        raise ValueError(f"the log of run {run}: runs count from 0")
    if not _LOG_NAME.fullmatch(name):
        raise ValueError(f"log name {_shown(name)}: letters, digits, dots, dashes and underscores, at most 100")


def check_log_read(graph_id: str, task_id: str, run: int, name: str, offset: int, limit: int) -> None:
    check_log(graph_id, task_id, run, name)
    if offset < 0 or limit < 1:
        raise ValueError(f"reading {limit} bytes from {offset}: at least 1, from 0 on")


def _check_column_name(name: str, where: str) -> None:
    if not _COLUMN_NAME.fullmatch(name) or name in _RESERVED_COLUMNS:
        raise ValueError(f"{where}: {_shown(name)} is no name of a column (letters, digits, underscore; at most 255)")
    if len(_good_names) < _GOOD_NAMES_MAX:
        _good_names.add(name)


def _units_of_value(value: object) -> int:
    if isinstance(value, int):  # True and False are, too
        if not _INT_MIN <= value <= _INT_MAX:
            raise ValueError(f"{value} is outside {_INT_MIN} to {_INT_MAX}")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} is not a finite number")
    elif isinstance(value, datetime):
        if value.utcoffset() is None:
            raise ValueError("a time without a time zone")
        if value.year <= YEAR_MIN:
            raise ValueError(f"times begin after the year {YEAR_MIN}")
    else:
        raise ValueError(f"no store keeps a {type(value).__name__}")
    return _VALUE_CHARS


def sent_bytes(columns: Columns) -> int:
    """Bytes that columns take in a commit: JSON in ASCII, where one UTF-16 unit may take six."""
    total = 0
    for name, value in columns.items():
        total += len(name) + (len(encode_basestring_ascii(value)) if isinstance(value, str) else 4 * _VALUE_CHARS)
    return total


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "…")
