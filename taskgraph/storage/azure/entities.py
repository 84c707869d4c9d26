"""Rows as Azure Table Storage has them on the wire: JSON there and back, keys in addresses, conditions.

Pure, and without the SDK: a tab of a browser reads rows by it too.
"""

import base64
import functools
import re
from collections.abc import Callable
from datetime import UTC, datetime
from json.encoder import encode_basestring_ascii
from typing import Any, Final
from urllib.parse import quote

from taskgraph.model.columns import Columns, Value
from taskgraph.storage.tables import Range, Row

MINIMAL: Final = "application/json;odata=minimalmetadata"
"""Names the types that JSON does not distinguish."""

_PLAIN: Final = re.compile(r"[A-Za-z0-9_.~:-]*")
_KEYS_KEPT: Final = 10_000
_ANNOTATION: Final = "@odata.type"


def quoted(text: str) -> str:
    if _PLAIN.fullmatch(text):
        return text.replace(":", "%3A")
    return quote(text, safe="")


def literal(text: str) -> str:
    """A text between apostrophes, as keys and conditions name it; not yet percent-encoded."""
    return "'" + text.replace("'", "''") + "'"


@functools.lru_cache(_KEYS_KEPT)
def key_of(key: str) -> str:
    """A key between the apostrophes of an address; kept, as a row is mostly written more than once."""
    return quoted(key.replace("'", "''"))


def head_of(partition: str) -> str:
    return f'{{"PartitionKey":{encode_basestring_ascii(partition)},"RowKey":'


def entity_of(head: str, key: str, columns: Columns) -> str:
    """A row as JSON in ASCII. Types that JSON does not distinguish are named; text, Int32 and booleans need no name."""
    parts = [head, encode_basestring_ascii(key)]
    for name, value in columns.items():
        if isinstance(value, str):
            parts.append(f',"{name}":{encode_basestring_ascii(value)}')
        elif isinstance(value, bool):
            parts.append(f',"{name}":{"true" if value else "false"}')
        elif isinstance(value, int):
            parts.append(f',"{name}":{int(value)}')
        elif isinstance(value, datetime):
            there = value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds")
            parts.append(f',"{name}":"{there}Z","{name}{_ANNOTATION}":"Edm.DateTime"')
        else:
            parts.append(f',"{name}":{float(value)!r},"{name}{_ANNOTATION}":"Edm.Double"')
    parts.append("}")
    return "".join(parts)


def condition_of(partition: str, rows: Range) -> str:
    parts = [f"PartitionKey eq {literal(partition)}"]
    if rows.start:
        parts.append(f"RowKey ge {literal(rows.start)}")
    if rows.end:
        parts.append(f"RowKey lt {literal(rows.end)}")
    for name, texts in rows.where.items():
        parts.append(f"({' or '.join(f'{name} eq {literal(text)}' for text in texts)})")
    return " and ".join(parts)


def row_of(entity: dict[str, Any]) -> Row:
    """A row of the service's JSON. The object is used up: what is left of it are the columns."""
    key, etag, written = entity.pop("RowKey"), entity.pop("odata.etag", None), entity.pop("Timestamp", None)
    entity.pop("PartitionKey", None)
    if not etag:
        etag = f"W/\"datetime'{quote(written)}'\""  # so the service itself makes them
    notes = [name for name in entity if "@" in name or "." in name]  # no column has such a name
    for name in notes:
        kind = entity.pop(name)
        column = name.removesuffix(_ANNOTATION)
        if column != name and kind in _READERS and entity.get(column) is not None:
            entity[column] = _READERS[kind](entity[column])
    if None in entity.values():
        entity = {name: value for name, value in entity.items() if value is not None}
    return Row(key, etag, entity)


def _time(text: str) -> datetime:
    """A time to the microsecond; the service keeps tenths of it, which are cut off."""
    when = datetime.fromisoformat(text)
    if when.tzinfo is UTC:
        return when
    return when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)


# Int64, GUIDs and bytes are not written by this product; another writer's columns are shown as well as the port can.
_READERS: Final[dict[str, Callable[[Any], Value]]] = {
    "Edm.DateTime": _time,
    "Edm.Double": float,
    "Edm.Int32": int,
    "Edm.Int64": int,
    "Edm.Guid": str.lower,
    "Edm.Binary": lambda text: base64.b64encode(base64.b64decode(text)).decode("ascii"),
}
