"""Rows that this process has seen, kept so that they are not read again.

A process that moves a graph forward knows most rows already, because it wrote them or read them with their neighbours.
`RowCache` holds them by graph, within a bound over all graphs, and reads what is missing in the cheaper of two ways:
one by one, or a page of a range with whatever lies between. What is kept may be old: it may only serve to make a
change, which its etag makes good or refuses; whatever rests on it without writing it has to read it first. An absent
row is not remembered for longer than one transition.

What is kept never goes back. Several calls of one process share the rows of a graph, and an answer may come late. An
etag does not say which of two rows is the newer one, so the order of events in this process decides: a read gives way,
row by row, to each write, drop and later read that ended here while it was under way. If an earlier read ended
meanwhile and has found another version, neither is kept: either may be the newer one.
"""

from bisect import bisect_right
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from taskgraph.model import limits
from taskgraph.model.states import TaskState
from taskgraph.storage.tables import Page, Range, Row, Tables, pages

_KINDS: Final = ("task:", "join:", "fork:")
_END: Final = "\U0010ffff"
_TRIES: Final = 3  # pages that may be read in vain before ranges have to prove their worth
_LOOK_EVERY: Final = 16  # calls between two looks at how much is kept


@dataclass(slots=True, eq=False)
class Reading:
    """A read that is under way.

    overtaken: keys of rows that it must leave alone, as what is known of them is newer. others: key -> the version that
    a read found which began earlier, and has ended.
    """

    overtaken: set[str] = field(default_factory=set)
    others: dict[str, str | None] = field(default_factory=dict)


@dataclass(slots=True)
class CachedGraph:
    """The kept rows of one graph.

    rows: by key; None for one that was looked for and does not exist, until `forget_absent`. covered: kind of row ->
    key up to which all its rows have been read once. alone: rows that were read one by one. pages, hits: pages that
    were read, and how many rows were found in them that a call had asked for. gone: it was forgotten while calls were
    at work with it; they do not get what others write. reading: in the order in which they began.
    """

    rows: dict[str, Row | None] = field(default_factory=dict)
    covered: dict[str, str] = field(default_factory=dict)
    alone: int = 0
    pages: int = 0
    hits: int = 0
    absent: bool = False
    gone: bool = False
    reading: list[Reading] = field(default_factory=list)

    def forget_absent(self) -> None:
        """Decide on no absence that was seen a while ago (P2)."""
        if self.absent:
            self.absent = False
            for key in [key for key, row in self.rows.items() if row is None]:
                del self.rows[key]

    def drop(self, keys: Iterable[str]) -> None:
        """Keep these rows no longer; reads that are under way do not bring them back."""
        dropped = list(keys)
        for key in dropped:
            self.rows.pop(key, None)
        self.overtake(dropped)

    def suppose(self, row: Row) -> None:
        """Take a row for the present one by what a message says of it: its etag shows whether that is so."""
        self.rows[row.key] = row
        self.overtake((row.key,))

    def overtake(self, keys: Collection[str]) -> None:
        """Something newer is known of these rows than any read can give that is under way."""
        for each in self.reading:
            each.overtaken.update(keys)

    def begin(self) -> Reading:
        """A read begins. It has to `end`, however it does."""
        reading = Reading()
        self.reading.append(reading)
        return reading

    def end(self, reading: Reading) -> None:
        self.reading.remove(reading)

    def keep(self, reading: Reading, found: Mapping[str, Row | None], asked: Collection[str]) -> None:
        """Keep what a read has found, but what has been overtaken.

        asked: keys that were asked for; of others only what is not known is kept, unless it has completed.
        """
        place = self.reading.index(reading)
        earlier, later = self.reading[:place], self.reading[place + 1 :]
        for key, row in found.items():
            if key in reading.overtaken:
                continue
            version = row.etag if row is not None else None
            if reading.others.get(key, version) != version:
                self.drop((key,))
                continue
            if key in asked:
                self.rows[key] = row
                self.absent = self.absent or row is None
            elif key not in self.rows and row is not None and row.columns.get("state") != TaskState.COMPLETED:
                self.rows[key] = row
            else:
                continue
            for each in earlier:
                each.overtaken.add(key)
            for each in later:
                each.others[key] = version


class RowCache:
    """The kept rows of the graphs that this process is at work on."""

    def __init__(self, tables: Tables, rows_max: int | None = None) -> None:
        """rows_max: over all graphs; limits.CACHED_ROWS_MAX if None."""
        self._tables = tables
        self._rows_max = rows_max
        self._graphs: dict[str, CachedGraph] = {}
        self._calls = 0

    def of(self, graph_id: str) -> CachedGraph:
        """The kept rows of a graph, which is from here on the one used last."""
        known = self._graphs.pop(graph_id) if graph_id in self._graphs else CachedGraph()
        self._graphs[graph_id] = known
        self._calls += 1
        if self._calls % _LOOK_EVERY == 0:
            self._make_room(graph_id)
        return known

    @property
    def _most(self) -> int:
        return limits.CACHED_ROWS_MAX if self._rows_max is None else self._rows_max

    def _make_room(self, graph_id: str) -> None:
        total = sum(len(known.rows) for known in self._graphs.values())
        for each in list(self._graphs):  # those used longest ago first, and the one in use last
            if total <= self._most:
                return
            total -= len(self._graphs[each].rows)
            if each == graph_id:
                # What was covered stays so: to read it all again would be too much again.
                known = self._graphs[each]
                known.drop(list(known.rows))
            else:
                self.forget(each)

    def forget(self, graph_id: str) -> None:
        """The graph has ended, or what is kept of it contradicts itself, or others need the room more."""
        known = self._graphs.pop(graph_id, None)
        if known is not None:
            known.gone = True

    def inserted(self, graph_id: str, rows: Collection[Row]) -> None:
        """Keep rows that this process has just inserted, as long as they leave other graphs half of the room."""
        known = self.of(graph_id)
        if len(known.rows) + len(rows) <= self._most // 2:
            inserted = {row.key: row for row in rows if row.key.startswith(_KINDS)}
            known.rows.update(inserted)
            known.overtake(inserted)

    def started(self, graph_id: str, graph: Row) -> None:
        """Keep the graph row as this process has started it, unless a later one is known."""
        known = self.of(graph_id)
        if graph.key not in known.rows:
            known.rows[graph.key] = graph
            known.overtake((graph.key,))

    def written(self, graph_id: str, keys: Iterable[str]) -> None:
        """These rows have been written in this process by a call that did not go by what is kept."""
        known = self._graphs.get(graph_id)
        if known is not None:
            known.drop(keys)

    async def load(self, graph_id: str, known: CachedGraph, keys: Iterable[str]) -> dict[str, Row | None]:
        """Read rows of these keys into `known`; gives what was read.

        `known` says something else of a row that was written here meanwhile, and nothing of one that was dropped.
        """
        wanted = sorted(keys)
        read: dict[str, Row | None] = {}
        if len(wanted) > limits.READ_ALONE_MAX or self._credit(known, wanted):
            wanted = await self._load_by_pages(graph_id, known, wanted, read)
        if wanted:
            known.alone += len(wanted)
            reading = known.begin()
            try:
                found = dict(zip(wanted, await self._tables.get(graph_id, wanted), strict=True))
                known.keep(reading, found, found)
            finally:
                known.end(reading)
            read.update(found)
        return read

    async def pages(self, graph_id: str, wanted: Range) -> AsyncGenerator[Page]:
        """The pages of a range of whole rows, which are kept as long as they leave other graphs half of the room."""
        known, every = self.of(graph_id), pages(self._tables, graph_id, wanted)
        while True:
            reading = known.begin()
            try:
                page = await anext(every, None)
                if page is not None and len(known.rows) + len(page.rows) <= self._most // 2:
                    known.keep(reading, {row.key: row for row in page.rows}, ())
            finally:
                known.end(reading)
            if page is None:
                return
            yield page

    def _credit(self, known: CachedGraph, wanted: Sequence[str]) -> bool:
        """Whether so many rows have been read alone that a page would have been cheaper."""
        return known.alone + len(wanted) > limits.READ_PAGE_WORTH * (known.pages + 1)

    async def _load_by_pages(
        self, graph_id: str, known: CachedGraph, wanted: Sequence[str], read: dict[str, Row | None]
    ) -> list[str]:
        """Read a page of each kind of row where that is worth it; gives the keys that are still wanted."""
        left = [key for key in wanted if not key.startswith(_KINDS)]
        for kind in _KINDS:
            keys = [key for key in wanted if key.startswith(kind)]
            # What lies behind was read once, and has been dropped or written since: it would come again with much else.
            behind = bisect_right(keys, known.covered.get(kind, ""))
            left += keys[:behind]
            if keys[behind:]:
                left += await self._load_page(graph_id, known, kind, keys[behind:], read)
        return left

    async def _load_page(
        self, graph_id: str, known: CachedGraph, kind: str, keys: Sequence[str], read: dict[str, Row | None]
    ) -> Sequence[str]:
        """Read pages as long as they hold enough of what is asked for; gives the keys that are still wanted."""
        worth = known.pages < _TRIES or known.hits >= limits.READ_PAGE_WORTH * known.pages
        left = list(keys)
        while len(left) > limits.READ_ALONE_MAX and worth:
            # From the first to the last: they may lie side by side, or the graph may be small.
            before = len(left)
            left, _ = await self._page(graph_id, known, left, Range(left[0], f"{left[-1]}!"), read)
            worth = before - len(left) >= limits.READ_PAGE_WORTH
        # Another call may have read on meanwhile: of what lies behind it the next page says nothing.
        start = known.covered.get(kind, kind)
        behind = bisect_right(left, start)
        left, behind_it = left[behind:], left[:behind]
        if left and self._credit(known, left):
            # One here and one there, time and again: read on through all of them.
            left, upto = await self._page(graph_id, known, left, Range(f"{start}!", f"{kind[:-1]};"), read)
            known.covered[kind] = upto or start
        return [*behind_it, *left]

    async def _page(
        self, graph_id: str, known: CachedGraph, keys: Sequence[str], wanted: Range, read: dict[str, Row | None]
    ) -> tuple[list[str], str]:
        """Read one page; gives the keys that it has not settled, and up to which key it has read."""
        reading = known.begin()
        try:
            page = await self._tables.query(graph_id, wanted)
            known.pages += 1
            upto = _END if page.continuation is None else page.rows[-1].key if page.rows else ""
            found: dict[str, Row | None] = {row.key: row for row in page.rows}
            asked = {key: found.get(key) for key in keys if key in found or key <= upto}
            known.hits += sum(row is not None for row in asked.values())
            known.keep(reading, found | asked, asked)
        finally:
            known.end(reading)
        read.update(asked)
        return [key for key in keys if key not in asked], upto
