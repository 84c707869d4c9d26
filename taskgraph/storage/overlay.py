"""A table over another one: reads fall through to it, and what is written stays here; and queues that only keep.

What would become of rows is tried on these. The table keeps the promises of the port, but for rows that others change
underneath meanwhile: what was written here stands over them. What is out of sight underneath counts as empty.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from taskgraph.model.errors import Conflict, StaleDelivery
from taskgraph.storage import checks
from taskgraph.storage.queues import Delivery
from taskgraph.storage.tables import (
    Change,
    Delete,
    Insert,
    Merge,
    Page,
    Range,
    Row,
    Tables,
    changes_max_of,
    or_none,
)

_READ_AT_ONCE: Final = 500


class OverlayTables:
    """written: row key -> (the row underneath, the row here), by partition; None for a row that there is not.

    read: row key -> the row underneath as it was read first, by partition, of those that were asked for by their keys.
    """

    def __init__(self, beneath: Tables) -> None:
        self._beneath = beneath
        self._etags = itertools.count(1)
        self.changes_max = changes_max_of(beneath)
        self.written: dict[str, dict[str, tuple[Row | None, Row | None]]] = {}
        self.read: dict[str, dict[str, Row | None]] = {}

    async def get(self, partition: str, keys: Sequence[str]) -> list[Row | None]:
        checks.check_get(partition, keys)
        own = self.written.get(partition, {})
        missing = [key for key in dict.fromkeys(keys) if key not in own]
        found: dict[str, Row | None] = {}
        for start in range(0, len(missing), _READ_AT_ONCE):
            part = missing[start : start + _READ_AT_ONCE]
            there = await or_none(self._beneath.get(partition, part))
            found.update(zip(part, there or [None] * len(part), strict=True))
        read = self.read.setdefault(partition, {})
        for key, row in found.items():
            read.setdefault(key, row)
        return [own[key][1] if key in own else found[key] for key in keys]

    async def query(self, partition: str, rows: Range, *, limit: int = 1000, continuation: str | None = None) -> Page:
        """continuation: the key of the last row that was looked at, so that pages of both tables go on together."""
        checks.check_query(partition, rows, limit)
        after = continuation or ""
        own = self.written.get(partition, {})
        beneath, on = Range(after or rows.start, rows.end, rows.where, rows.select), None
        while True:
            page = await or_none(self._beneath.query(partition, beneath, continuation=on)) or Page(())
            fresh = [row for row in page.rows if row.key > after]
            on = page.continuation
            if fresh or on is None:
                break
        last = fresh[-1].key if on is not None else ""
        seen = {row.key: row for row in fresh if row.key not in own}
        for key, (_, row) in own.items():
            within = (
                rows.start <= key and key > after and (not rows.end or key < rows.end) and (not last or key <= last)
            )
            if within and row is not None and _fits(row, rows.where):
                seen[key] = _selected(row, rows.select)
        found = [seen[key] for key in sorted(seen)]
        if len(found) > limit:
            return Page(found[:limit], found[limit - 1].key)
        return Page(found, last or None)

    async def commit(self, partition: str, changes: Sequence[Change]) -> list[str | None]:
        checks.check_commit(partition, changes, self.changes_max)
        rows = await self.get(partition, [change.key for change in changes])
        for index, (change, row) in enumerate(zip(changes, rows, strict=True)):
            if isinstance(change, Insert):
                if row is not None:
                    raise Conflict(f"{change.key} exists", index)
            elif row is None or row.etag != change.etag:
                raise Conflict(f"{change.key} changed", index)
        own = self.written.setdefault(partition, {})
        etags: list[str | None] = []
        for change, row in zip(changes, rows, strict=True):
            first = own[change.key][0] if change.key in own else row
            if isinstance(change, Delete):
                own[change.key] = first, None
                etags.append(None)
                continue
            kept = row.columns if isinstance(change, Merge) and row is not None else {}
            made = Row(change.key, f"overlay-{next(self._etags)}", {**kept, **change.columns})
            own[change.key] = first, made
            etags.append(made.etag)
        return etags

    def differences(self, partition: str) -> Iterator[tuple[str, Row | None, Row | None]]:
        """Key, the row before and the row after, of those that were written, by key."""
        for key, (before, after) in sorted(self.written.get(partition, {}).items()):
            yield key, before, after


class Outbox:
    """Queues that keep what is sent, and give nothing out. bodies: by queue, in their order."""

    def __init__(self) -> None:
        self.bodies: dict[str, list[str]] = {}

    async def send(self, queue: str, bodies: Sequence[str], *, delay_seconds: float = 0) -> None:
        checks.check_send(queue, bodies, delay_seconds)
        self.bodies.setdefault(queue, []).extend(bodies)

    async def receive(self, queue: str, *, count: int = 1, lease_seconds: float) -> list[Delivery]:
        checks.check_receive(queue, count, lease_seconds)
        return []

    async def renew(self, delivery: Delivery, *, lease_seconds: float) -> Delivery:
        raise StaleDelivery(delivery.id)

    async def delete(self, delivery: Delivery) -> None:
        raise StaleDelivery(delivery.id)

    async def count(self, queue: str) -> int:
        return len(self.bodies.get(queue, ()))


def _fits(row: Row, where: Mapping[str, Sequence[str]]) -> bool:
    return all(row.columns.get(name) in texts for name, texts in where.items())


def _selected(row: Row, names: Sequence[str] | None) -> Row:
    if names is None:
        return row
    return Row(row.key, row.etag, {name: row.columns[name] for name in names if name in row.columns})
