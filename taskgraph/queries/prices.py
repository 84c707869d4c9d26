"""The list of prices of a store: one row, or what the program brings along."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from taskgraph.model import limits
from taskgraph.model.budget import DEFAULT_PRICES, LIST, PRICES, Prices, prices_from
from taskgraph.model.columns import Value
from taskgraph.model.errors import Conflict, Unclear
from taskgraph.model.json_strict import compact_json
from taskgraph.storage.tables import Delete, Insert, Replace, Row, Tables, or_none

_SCHEMA: Final = 1


async def prices_in(tables: Tables) -> Prices:
    """The prices that hold now. Raises StorageUnavailable."""
    return (await prices_row(tables))[0]


async def prices_row(tables: Tables) -> tuple[Prices, Row | None]:
    """The prices that hold now, and the row that they stand on; None for those that the program brings along."""
    (row,) = await or_none(tables.get(PRICES, [LIST])) or [None]
    if row is None:
        return DEFAULT_PRICES, None
    try:
        return prices_from(json.loads(str(row.columns.get("prices", "")))), row
    except (ValueError, TypeError, KeyError, AttributeError):
        return DEFAULT_PRICES, None  # `doctor` names the damage


async def write_prices(tables: Tables, document: Mapping[str, Any], now: datetime, by: str) -> None:
    """Have these hold from now on. document: agrees with the schema. Raises Conflict where others keep writing."""
    columns: dict[str, Value] = {"schema": _SCHEMA, "prices": compact_json(dict(document)), "updated": now, "by": by}
    for _ in range(limits.COMMIT_ATTEMPTS_MAX):
        (row,) = await tables.get(PRICES, [LIST])
        change = Insert(LIST, columns) if row is None else Replace(LIST, row.etag, columns)
        try:
            await tables.commit(PRICES, [change])
            return
        except (Conflict, Unclear):  # reach: prices
            continue  # another call was quicker, or this one was: look
    raise Conflict("the list of prices is being written by others; try again")


async def forget_prices(tables: Tables) -> bool:
    """Go back to what the program brings along; whether there was a list."""
    (row,) = await tables.get(PRICES, [LIST])
    if row is None:
        return False
    await tables.commit(PRICES, [Delete(LIST, row.etag)])
    return True
