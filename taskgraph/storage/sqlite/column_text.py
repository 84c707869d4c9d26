"""Columns as the text that stands in the file: one JSON object for each row, times in it as {"t": "..."}.

Most rows of one commit are alike: they have the same columns, and most of these have one value in all rows. They are
checked and written column by column, which takes half of the time.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from json import encoder as json_encoder
from typing import Any, Final

from taskgraph.model import limits
from taskgraph.model.columns import Columns, Value
from taskgraph.storage import checks
from taskgraph.storage.tables import Change, Delete

_TIMES_REMEMBERED: Final = 8_192
_ALIKE_MIN: Final = 8  # rows; fewer are written as quickly one by one


@lru_cache(_TIMES_REMEMBERED)  # rows of one commit have the same times
def _time(value: object) -> dict[str, str]:
    if not isinstance(value, datetime):
        raise TypeError(f"no store keeps a {type(value).__name__}")  # the checks have let something through
    return {"t": (value if value.tzinfo is UTC else value.astimezone(UTC)).isoformat()}


encoded_value: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_time).encode


def _encoder() -> Callable[[dict[str, Value]], str]:
    """What `encoded_value` does, for an object.

    JSONEncoder makes its inner encoder anew for each text, a third of the time.
    """
    make = getattr(json_encoder, "c_make_encoder", None)
    if make is None:
        return encoded_value
    inner = make(None, _time, json_encoder.encode_basestring, None, ":", ",", False, False, False)
    return lambda columns: "".join(inner(columns, 0))


_encode_dict: Final = _encoder()


def encoded_columns(columns: Columns) -> str:
    return _encode_dict(columns if type(columns) is dict else dict(columns))


_WRITERS: Final[Mapping[type, Callable[[Any], str]]] = {
    str: json_encoder.encode_basestring,
    int: int.__repr__,
    bool: encoded_value,
    datetime: encoded_value,
}
"""What the columns are encoded by that can be checked as a whole."""


def encoded_alike(changes: Sequence[Change]) -> list[str | None]:
    """The columns of each change that is like many others, and surely what every store takes; None for the others."""
    texts: list[str | None] = [None] * len(changes)
    if len(changes) < _ALIKE_MIN:
        return texts
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


def _by_column(names: Sequence[str], values: Iterable[tuple[Value, ...]], count: int) -> Sequence[str]:
    """The texts of so many rows, given by columns; none of them if any might be what a store does not take."""
    constant: list[str] = []
    differing: list[Iterable[str]] = []
    for name, column in zip(names, values, strict=True):
        kind = _kind(column)
        if kind is None:
            return ()
        write = _WRITERS[kind]
        if column.count(column[0]) == count:
            constant.append(f"{encoded_value(name)}:{write(column[0])}".replace("%", "%%"))
        else:
            constant.append(f"{encoded_value(name)}:%s")
            differing.append(map(write, column))
    row = "{" + ",".join(constant) + "}"
    texts = list(map(row.__mod__, zip(*differing, strict=True))) if differing else [row % ()] * count
    # Where the whole row is short, and nothing in it counts twice, so is each of its texts.
    plain = max(map(len, texts)) <= limits.PROPERTY_CHARS_MAX and all(map(str.isascii, texts))
    return texts if plain else ()


def _kind(column: tuple[Value, ...]) -> type | None:
    """The type of all values of a column, if every store takes them; None for what has to be looked at closely."""
    kinds = set(map(type, column))
    kind = kinds.pop()
    if kinds or kind not in _WRITERS:
        return None
    if kind is int and not limits.INT_MIN <= min(column) <= max(column) <= limits.INT_MAX:  # type: ignore[operator]
        return None
    if kind is datetime and not all(map(checks.is_plain_time, {id(time): time for time in column}.values())):  # type: ignore[arg-type]
        return None
    return kind


# Rows that were written together have the same times: one text is read once, and is one object in memory.
_time_of: Final = lru_cache(_TIMES_REMEMBERED)(datetime.fromisoformat)


def decoded_columns(raw: dict[str, Any]) -> dict[str, Value]:
    for name, value in raw.items():
        if type(value) is dict:
            raw[name] = _time_of(value["t"])
    return raw


def decoded_rows(text: str) -> list[dict[str, Value]]:
    return [decoded_columns(raw) for raw in json.loads(f"[{text}]")]
