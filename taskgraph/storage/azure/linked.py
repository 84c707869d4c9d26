"""A store that is opened by the signatures of a link: rows straight from the table service, asked by a tab.

What sends requests is handed in: the browser's own `fetch`. A signature for one partition opens that graph alone, and
of the rest nothing is asked. What may be added are requests of that graph, where the link has the signatures for it: a
handler's sweep finds them, without a message.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol
from urllib.parse import parse_qs, quote

from taskgraph.model.clock import Clock, SystemClock
from taskgraph.model.columns import Columns
from taskgraph.model.errors import Conflict, OutOfSight, Refused, StorageError, StorageUnavailable, TooLarge, Unclear
from taskgraph.model.names import LIVE
from taskgraph.storage import checks
from taskgraph.storage.azure.entities import condition_of, entity_of, head_of, key_of, row_of
from taskgraph.storage.sight import UnseenLogs, UnseenQueues
from taskgraph.storage.tables import Change, Insert, Page, Range, Row

REQUESTS: Final = "request:"
_AT_ONCE: Final = 8
_MISSING: Final = frozenset({"ResourceNotFound", "EntityNotFound", "TableNotFound"})
_ENTERED_AGAIN_SECONDS: Final = 1.0
_ADDS_ALONE: Final = "this link adds requests and alters no row: ask for the same once more by a command"
_NO_CHANGES: Final = (
    "this link opens rows for reading alone: for changes of a graph ask for a link by "
    "`taskgraph grant ID --read --link --changes`"
)


class Answer(Protocol):
    """status: 0 where none came. next: the place of the next page, as a JSON list; "" for none."""

    @property
    def status(self) -> int: ...

    @property
    def next(self) -> str: ...

    @property
    def text(self) -> str: ...


Exchange = Callable[[str, str, str], Awaitable[Answer]]
"""Sends a request: method, address, body."""


@dataclass(frozen=True, slots=True)
class Link:
    """table: its address, such as `https://ACCOUNT.table.core.windows.net/taskgraph`. sas: opens rows for reading.

    add: adds requests of the graph; live: names it in the index of those that are swept; "" where the link has none.
    """

    table: str
    sas: str = field(repr=False)
    add: str = field(default="", repr=False)
    live: str = field(default="", repr=False)

    @property
    def graph(self) -> str:
        """The id of the one graph that it opens, "" for all."""
        said = parse_qs(self.sas)
        first, last = said.get("spk", [""])[0], said.get("epk", [""])[0]
        return first if first == last else ""

    def opens(self, partition: str) -> bool:
        return self.graph in ("", partition)


class LinkedTables:
    def __init__(self, link: Link, exchange: Exchange, clock: Clock) -> None:
        self._link = link
        self._exchange = exchange
        self._clock = clock
        self._free = asyncio.Semaphore(_AT_ONCE)

    async def get(self, partition: str, keys: Sequence[str]) -> list[Row | None]:
        checks.check_get(partition, keys)
        self._check_sight(partition)
        return list(await asyncio.gather(*(self._one(partition, key) for key in keys)))

    async def query(self, partition: str, rows: Range, *, limit: int = 1000, continuation: str | None = None) -> Page:
        checks.check_query(partition, rows, limit)
        self._check_sight(partition)
        if any(not texts for texts in rows.where.values()):
            return Page(())  # a column cannot equal one of none
        query = [("$filter", condition_of(partition, rows)), ("$top", str(limit))]
        if rows.select is not None:
            query.append(("$select", ",".join(["RowKey", "Timestamp", *rows.select])))
        if continuation is not None:
            names = ("NextPartitionKey", "NextRowKey")
            query += [(name, each) for name, each in zip(names, json.loads(continuation), strict=True) if each]
        said = "&".join(f"{name}={quote(value, safe='')}" for name, value in query)
        answer = await self._ask("GET", f"{self._link.table}()?{said}&{self._link.sas}")
        if answer.status == 404 and _code(answer) in _MISSING:
            return Page(())
        found = self._read(answer)
        return Page([row_of(each) for each in found["value"]], answer.next or None)

    async def commit(self, partition: str, changes: Sequence[Change]) -> list[str | None]:
        """Add requests of the graph, one by one, the row that has them answered last.

        That has no time at which its message was sent, as none is: so each sweep sends one. Raises Refused for what
        the link has no signature for.
        """
        checks.check_commit(partition, changes)
        if partition == LIVE and self._link.live:
            return await self._enter(changes)
        if not self._link.add or not self._link.opens(partition):
            raise Refused(_NO_CHANGES, "no-changes")
        if not all(isinstance(each, Insert) and each.key.startswith(REQUESTS) for each in changes):
            raise Refused(_ADDS_ALONE, "no-changes")
        sent = [replace(each, columns=_without_time(each.columns)) for each in changes if isinstance(each, Insert)]
        return [await self._insert(partition, each, self._link.add) for each in sent]

    async def _enter(self, changes: Sequence[Change]) -> list[str | None]:
        """Name the graph in the index, where it may be named already.

        Twice, with a pause between: what takes a graph off may have looked for its requests before there was one.
        """
        for pause in (_ENTERED_AGAIN_SECONDS, 0.0):
            try:
                return [await self._insert(LIVE, each, self._link.live) for each in changes]
            except Conflict:
                await self._clock.sleep(pause)
        return ["there" for _ in changes]

    async def _insert(self, partition: str, change: Change, sas: str) -> str | None:
        if not isinstance(change, Insert):
            raise Refused(_NO_CHANGES, "no-changes")
        body = entity_of(head_of(partition), change.key, change.columns)
        answer = await self._ask("POST", f"{self._link.table}?{sas}", body)
        if answer.status in (201, 204):
            return str(json.loads(answer.text)["odata.etag"]) if answer.text else "inserted"
        if answer.status == 409:
            raise Conflict(f"row {change.key!r}: {_code(answer)}", 0)
        if answer.status == 413:
            raise TooLarge(f"row {change.key!r}: the service answers {answer.status} {_code(answer)}")
        if answer.status == 0 or answer.status >= 500:
            raise Unclear(f"the answer of {self._link.table} was lost")
        raise self._refusal(answer)

    async def _one(self, partition: str, key: str) -> Row | None:
        place = f"(PartitionKey='{key_of(partition)}',RowKey='{key_of(key)}')"
        answer = await self._ask("GET", f"{self._link.table}{place}?{self._link.sas}")
        if answer.status == 404 and _code(answer) in _MISSING:
            return None
        return row_of(self._read(answer))

    async def _ask(self, method: str, address: str, body: str = "") -> Answer:
        async with self._free:
            return await self._exchange(method, address, body)

    def _read(self, answer: Answer) -> dict[str, Any]:
        if answer.status != 200:
            raise self._refusal(answer)
        found: dict[str, Any] = json.loads(answer.text)
        return found

    def _refusal(self, answer: Answer) -> StorageError | Refused:
        place = self._link.table
        if answer.status in (401, 403):
            return Refused("this link does not open that, or its time is over: ask for a new one", "link")
        if answer.status and answer.status < 500:
            return StorageError(f"{place} answers {answer.status} {_code(answer)}")
        return StorageUnavailable(f"{place} does not answer ({answer.status or 'nothing came'})", place)

    def _check_sight(self, partition: str) -> None:
        if not self._link.opens(partition):
            raise OutOfSight(f"this link opens the rows of graph {self._link.graph} alone")


def _without_time(columns: Columns) -> Columns:
    return {name: value for name, value in columns.items() if name != "staged"}


def _code(answer: Answer) -> str:
    try:
        return str(json.loads(answer.text)["odata.error"]["code"])
    except (ValueError, KeyError, TypeError):
        return ""


class LinkedStore:
    """exchange: sends requests."""

    def __init__(self, link: Link, exchange: Exchange) -> None:
        self.clock: Clock = SystemClock()
        self._tables = LinkedTables(link, exchange, self.clock)

    def tables(self, name: str) -> LinkedTables:
        return self._tables

    def queues(self) -> UnseenQueues:
        return UnseenQueues()

    def logs(self) -> UnseenLogs:
        return UnseenLogs()
