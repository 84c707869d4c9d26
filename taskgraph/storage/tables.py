"""Port: conditional rows in partitions. A `Tables` is bound to one table; a partition is named in every call.

Promises of every adapter (tests/contract):
- `commit` is all or nothing, isolated, and durable once it returns; each change is conditional; each row at most once.
- Every write of a row gives it a new etag; an etag never returns.
- A merge changes the named columns and leaves the others, also those that the writer does not know (P23).
- A replace leaves nothing of what a row was: it is for rows that end, and what they were must be gone.
- `query` gives rows in ascending ordinal order of their keys, and may give short or empty pages with a continuation:
  only `continuation is None` ends a reading (P25). A reading of several pages or keys is no snapshot.
"""

from collections.abc import AsyncGenerator, Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from taskgraph.model import limits
from taskgraph.model.columns import Columns
from taskgraph.model.errors import OutOfSight
from taskgraph.model.ids import value

T = TypeVar("T")


@value
class Row:
    """columns: without the key and those of the service."""

    key: str
    etag: str
    columns: Columns


@value
class Insert:
    """Create a row; a conflict if the key exists."""

    key: str
    columns: Columns


@value
class Merge:
    """Set the named columns of a row that still has this etag; a conflict if it changed or is gone."""

    key: str
    etag: str
    columns: Columns


@value
class Replace:
    """Set all columns of a row that still has this etag; a conflict as for a merge."""

    key: str
    etag: str
    columns: Columns


@value
class Delete:
    """Delete a row that still has this etag; a conflict if it changed or is gone."""

    key: str
    etag: str


Change = Insert | Merge | Replace | Delete


@dataclass(frozen=True, slots=True)
class Page:
    """continuation: opaque; None means that there is no more."""

    rows: Sequence[Row]
    continuation: str | None = None


@dataclass(frozen=True, slots=True)
class TextPage:
    """A page as JSON. text: objects with key, etag and columns (as `model.column_json` has these), with commas."""

    text: str
    continuation: str | None = None


@dataclass(frozen=True, slots=True)
class Range:
    """Row keys from `start` (inclusive) to `end` (exclusive, "" for no bound).

    where: column -> texts, of which the column must equal one; all columns must agree. At most 12 texts in all.
    select: names of columns to give, None for all. A column that a row lacks is missing.
    """

    start: str = ""
    end: str = ""
    where: Mapping[str, Sequence[str]] = field(default_factory=dict)
    select: Sequence[str] | None = None


def prefix(text: str, **more: object) -> Range:
    return Range(text, text[:-1] + chr(ord(text[-1]) + 1), **more)  # type: ignore[arg-type]


class Tables(Protocol):
    """Raises StorageUnavailable from every call; see each for the rest."""

    async def get(self, partition: str, keys: Sequence[str]) -> list[Row | None]:
        """The rows of these keys, in this order, None for one that does not exist. Any number of keys; no snapshot."""

    async def query(self, partition: str, rows: Range, *, limit: int = 1000, continuation: str | None = None) -> Page:
        """One page of a range, at most `limit` (1..1,000) rows."""

    async def commit(self, partition: str, changes: Sequence[Change]) -> list[str | None]:
        """Apply some changes or none; gives the new etags (None for a delete), in order.

        At least one, and at most limits.COMMIT_CHANGES_MAX of them, or `changes_max_of` where a store takes more.

        Raises Conflict (nothing written), TooLarge (nothing written), Unclear (perhaps written; never retried here).
        """


def changes_max_of(tables: Tables) -> int:
    """How many changes a commit takes: as many as in every store, or more where one says so."""
    return int(getattr(tables, "changes_max", limits.COMMIT_CHANGES_MAX))


async def query_text(
    tables: Tables, partition: str, rows: Range, *, limit: int, continuation: str | None = None
) -> TextPage | None:
    """What `query` gives, from a store that has rows as JSON already; None where they must be made of values."""
    query = getattr(tables, "query_text", None)
    return None if query is None else await query(partition, rows, limit=limit, continuation=continuation)


async def pages(tables: Tables, partition: str, rows: Range, limit: int = limits.PAGE_ROWS_MAX) -> AsyncGenerator[Page]:
    continuation: str | None = None
    while True:
        page = await tables.query(partition, rows, limit=limit, continuation=continuation)
        yield page
        continuation = page.continuation
        if continuation is None:
            return


async def query_all(tables: Tables, partition: str, rows: Range) -> list[Row]:
    return [row async for page in pages(tables, partition, rows) for row in page.rows]


async def or_none(asked: Awaitable[T]) -> T | None:
    """What was asked for; None where the way in does not show it."""
    try:
        return await asked
    except OutOfSight:  # reach: sight
        return None
