"""Write many rows of a graph, in as many commits as they need; every step can be repeated.

Rows of a submission are written several commits at a time, each with a fence, so that none goes in once the graph has
started (P10).
"""

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

from taskgraph.engine.commit import in_event_loop, side_by_side
from taskgraph.engine.handlers import Handlers
from taskgraph.engine.progress import Progress
from taskgraph.model import limits
from taskgraph.model.columns import Columns
from taskgraph.model.errors import Conflict, Refused, StorageUnavailable, Unclear
from taskgraph.model.ids import GRAPH, WRITERS, fence_key
from taskgraph.model.states import GraphState
from taskgraph.protocol.definitions import SCHEMA
from taskgraph.protocol.extension_plan import bytes_at_most, portion, row_bytes
from taskgraph.storage.tables import Insert, Merge, Range, Row, Tables, pages

_FENCE: Final = {"state": str(GraphState.SUBMITTING)}
_FENCE_ROW: Final[Columns] = {"schema": SCHEMA, **_FENCE}
_FENCE_BYTES: Final = 1_000  # more than it takes in a commit


@dataclass(slots=True)
class Fence:
    """A row that each commit of a writer writes along, so that none goes in once the graph has started.

    The first is the graph row; `Start` writes that, and deletes the others. etag: "" where it is not known. read_again:
    others may have written more onto it than the fence.
    """

    key: str
    etag: str = ""
    read_again: bool = False

    @property
    def row(self) -> Row:
        return Row(self.key, self.etag, _FENCE_ROW)


def further_fences(graph: Insert) -> list[Insert]:
    """The fences beside the graph row, which is about to be written."""
    return [Insert(fence_key(number), _FENCE_ROW) for number in range(1, int(str(graph.columns.get(WRITERS, 1))))]


def fences_of(graph: Row, etags: Sequence[str | None]) -> list[Fence]:
    """etags: of the fences, if this call has written them."""
    count = graph.columns.get(WRITERS, 1)  # a program before version 0.4 wrote no fences
    known = dict(enumerate((graph.etag, *etags[1:])))
    return [Fence(fence_key(n), known.get(n) or "") for n in range(count if isinstance(count, int) else 1)]


@dataclass(slots=True)
class Writing:
    """Writes the rows of a submission, several commits at a time.

    While the graph is `submitting` no worker looks at it, and it starts after the last row: so the rows may go in in
    any order, and the same call again writes what a crash has left out. A writer that comes late finds its fence
    changed: a task that an edit has deleted meanwhile must not come back.

    total: rows in all, not counting long definitions. looked_for: keys of rows to be found in `seen` later.
    """

    handlers: Handlers
    graph_id: str
    fences: Sequence[Fence]
    total: int
    progress: Progress
    looked_for: AbstractSet[str]
    seen: dict[str, Row] = field(default_factory=dict)
    there: set[str] = field(default_factory=set)
    written: int = 0
    shown: int = 0

    async def find(self) -> None:
        """Look which rows an earlier call has written, a page at a time, so that only the others are sent."""
        async for page in pages(self.handlers.records.tables, self.graph_id, Range(select=("state",))):
            self.there.update(row.key for row in page.rows)

    async def write(self, rows: Iterable[Insert]) -> None:
        self.progress(0, self.total)
        chunks = chunks_of(self._missing(rows) if self.there else rows)
        if in_event_loop():
            await side_by_side(*[functools.partial(self._write, chunks, [fence]) for fence in self.fences])
        else:
            await self._write(chunks, self.fences)
        self._show(self.total)

    def _missing(self, rows: Iterable[Insert]) -> Iterator[Insert]:
        for row in rows:
            if row.key in self.there:
                self.written += _counts(row)
            else:
                yield row

    async def _write(self, chunks: Iterator[list[Insert]], fences: "Sequence[Fence]") -> None:
        """Take the next chunk, as long as there is one; other writers take from the same chunks."""
        for chunk, fence in zip(chunks, itertools.cycle(fences), strict=False):
            if not await insert_missing(self.handlers, self.graph_id, chunk, fence, self._see):
                return  # the graph has started, so every row was in
            self.written += sum(map(_counts, chunk))
            self._show(self.written)

    def _show(self, written: int) -> None:
        if written > self.shown:
            self.shown = written
            self.progress(written, self.total)

    def _see(self, rows: Iterable[Row]) -> None:
        self.seen.update({row.key: row for row in rows if row.key in self.looked_for})


def _counts(row: Insert) -> bool:
    """Whether a row counts as progress: a long definition counts with its task."""
    return not row.key.startswith("definition:")


def chunks_of(rows: Iterable[Insert]) -> Iterator[list[Insert]]:
    """Rows by commits, each with room for a fence. Rows are measured only where their sizes may exceed the bound."""
    most = limits.COMMIT_BYTES_MAX - _FENCE_BYTES
    left = iter(rows)
    chunk: list[Insert] = []
    while chunk := [*chunk, *itertools.islice(left, limits.COMMIT_CHANGES_MAX - 1 - len(chunk))]:
        fitting = len(chunk) if bytes_at_most(chunk) <= most else len(portion(chunk, row_bytes, most))
        yield chunk[:fitting]
        del chunk[:fitting]


async def insert_missing(
    handlers: Handlers,
    graph_id: str,
    rows: list[Insert],
    fence: Fence | None = None,
    see: Callable[[Iterable[Row]], None] = lambda rows: None,
) -> bool:
    """Insert rows, except those that are in already; False if the graph of the fence is not `submitting` any more.

    see: called with the rows as they stand, as far as that is known.
    """
    tables = handlers.records.tables
    unclear: Unclear | None = None
    for _ in range(limits.COMMIT_ATTEMPTS_MAX):
        if fence is not None and not fence.etag and not await _read_fence(tables, graph_id, fence):
            return False
        fenced = [Merge(fence.key, fence.etag, _FENCE)] if fence is not None else []
        try:
            etags = await tables.commit(graph_id, [*rows, *fenced])
        except (Conflict, Unclear) as error:
            unclear = error if isinstance(error, Unclear) else None
            found = await tables.get(graph_id, [row.key for row in rows])
            see([there for there in found if there is not None])
            rows = [row for row, there in zip(rows, found, strict=True) if there is None]
            if fence is not None:
                fence.etag = ""
            if not rows:
                return True
        else:
            written = [
                Row(row.key, etag, row.columns) for row, etag in zip(rows, etags, strict=False) if etag is not None
            ]
            see(written)
            if graph_id in handlers.dispatcher.own:  # this process runs what it submits
                handlers.row_cache.inserted(graph_id, written)
            if fence is not None:
                fence.etag = etags[-1] or ""
            return True
    if unclear is not None:  # no other writer is in the way: the store takes nothing
        raise StorageUnavailable(f"graph {graph_id}: rows could not be written: {unclear}") from unclear
    raise Conflict(f"graph {graph_id}: rows could not be written; submit again to go on")


async def _read_fence(tables: Tables, graph_id: str, fence: Fence) -> bool:
    """Whether the graph is being submitted still. Raises Refused if it is, and has lost the fence."""
    graph, row = await tables.get(graph_id, [GRAPH, fence.key])
    if graph is None or graph.columns.get("state") != GraphState.SUBMITTING:
        return False
    if row is None:
        raise Refused(f"graph {graph_id} has lost its row {fence.key}; cancel it, and choose another id", "damaged")
    fence.etag, fence.read_again = row.etag, True
    return True
