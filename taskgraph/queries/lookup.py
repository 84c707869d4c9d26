"""A graph or a task by its name, and the names like one that there is not."""

import difflib
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Final

from taskgraph.model import limits
from taskgraph.model.clock import Clock
from taskgraph.model.columns import Value, time_of
from taskgraph.model.errors import IntegrityError, InvalidInput, NotFound
from taskgraph.model.ids import GRAPH, is_graph_id, is_task_id, row_key, task_id_of
from taskgraph.model.json_strict import show
from taskgraph.model.names import ALL, QueueNames
from taskgraph.model.states import GraphState
from taskgraph.protocol import notices
from taskgraph.queries.rows import channel_status, object_of, status_of_task
from taskgraph.queries.values import STATES, ChannelStatus, TaskStatus
from taskgraph.storage.queues import Queues
from taskgraph.storage.tables import Range, Row, Tables, prefix

NEAR_LABELS_MAX: Final = 5

NEAR_PAGES_MAX: Final = 5
"""Pages that are read to find names like one that there is not."""

_PLAIN_KEY: Final = r"[A-Za-z0-9:_-]{1,200}"


def check_graph_id(text: str, what: str = "a graph", *, new: bool = False) -> None:
    """Raise InvalidInput for what cannot be an id: no store is asked for it.

    new: it is to be given, and must not look like an option. Graphs that have such an id already keep it.
    """
    if not is_graph_id(text):
        raise InvalidInput(f"{show(text)} cannot be the id of {what}: 1 to 64 letters, digits, - and _")
    if new and text.startswith("-"):
        raise InvalidInput(f"{show(text)} begins with -, as options of commands do: choose another id")


def gone(graph_id: str, columns: Mapping[str, Value]) -> str:
    """A sentence about a graph of which nothing but a tombstone is left."""
    when, because = time_of(columns, "deleted"), columns.get("because")
    at = f" at {when:%Y-%m-%d %H:%M:%S} UTC" if when is not None else ""
    return f"graph {graph_id} was deleted{at}" + (f" ({because})" if because else "")


def nearest(wanted: str, names: Sequence[str]) -> list[str]:
    """The names most like the wanted one: same letters in another case, a common part, then a close spelling."""
    folded = wanted.casefold()
    exact = [name for name in names if name.casefold() == folded]
    inside = [name for name in names if folded and folded in name.casefold()]
    close = difflib.get_close_matches(wanted, list(names)[:20_000], NEAR_LABELS_MAX, 0.5)
    return list(dict.fromkeys([*exact, *close, *inside]))[:NEAR_LABELS_MAX]


class Lookup:
    """What every question begins with. It holds what all of them ask."""

    def __init__(self, tables: Tables, queues: Queues, clock: Clock, names: QueueNames) -> None:
        self._tables = tables
        self._queues = queues
        self._clock = clock
        self._names = names

    async def graph_row(self, graph_id: str) -> Row:
        """The graph row. Raises NotFound, with the nearest ids, and InvalidInput for what cannot be an id."""
        check_graph_id(graph_id)
        (row,) = await self._tables.get(graph_id, [GRAPH])
        if row is None:
            recent = await self._first_pages(ALL, Range(select=("graph",)))
            names = [str(each.columns.get("graph", "")) for each in recent]
            raise NotFound(f"there is no graph {graph_id}", difflib.get_close_matches(graph_id, names, 3, 0.5))
        if row.columns.get("state") == GraphState.DELETED:
            raise NotFound(gone(graph_id, row.columns))
        return row

    async def state(self, graph_id: str) -> GraphState:
        """The state of a graph: one read. Raises IntegrityError for one that this version does not know."""
        state = str((await self.graph_row(graph_id)).columns.get("state", ""))
        if state not in STATES:
            raise IntegrityError(f"graph {graph_id} is in the state {show(state)}, which this version does not know")
        return GraphState(state)

    async def params(self, graph_id: str) -> dict[str, Any]:
        return object_of((await self.graph_row(graph_id)).columns, "params")

    async def find_task(self, graph_id: str, label_or_id: str) -> Row:
        """The row of a task, by label (or taskId). Raises NotFound, with the nearest labels."""
        await self.graph_row(graph_id)
        return await self._find(graph_id, label_or_id)

    async def _find(self, graph_id: str, label_or_id: str) -> Row:
        keys = [row_key(task_id_of(graph_id, label_or_id))]
        if is_task_id(label_or_id):
            keys.append(row_key(label_or_id))
        for row in await self._tables.get(graph_id, keys):
            if row is not None:
                return row
        rows = await self._first_pages(graph_id, Range("task:", "task;", select=("label",)))
        labels = [str(row.columns.get("label", "")) for row in rows]
        raise NotFound(f"graph {graph_id} has no task “{label_or_id}”", nearest(label_or_id, labels))

    async def task_status(self, graph_id: str, label_or_id: str) -> TaskStatus:
        """A task without its edges: two reads."""
        return status_of_task(await self.find_task(graph_id, label_or_id))

    async def request(self, graph_id: str, request: str) -> Mapping[str, Value]:
        """The head row of an extension or edit: state (staged, accepted, done, refused), reason. Raises NotFound."""
        check_graph_id(graph_id)
        check_graph_id(request, "a request")
        (row,) = await self._tables.get(graph_id, [f"request:{request}"])
        if row is None:
            raise NotFound(f"graph {graph_id} has no request {request}")
        return row.columns

    async def channels(self, graph_id: str) -> list[ChannelStatus]:
        """The channels of a graph's notices, by name, and how far each has come."""
        check_graph_id(graph_id)
        found = [channel_status(row) async for row in self._pages(graph_id, notices.all_rows())]
        return sorted(found, key=lambda each: each.channel)

    async def rows(self, graph_id: str, start: str = "") -> AsyncGenerator[Row]:
        """The rows of a graph as a table explorer shows them; start: only keys that begin like this."""
        check_graph_id(graph_id)
        plain = re.match(_PLAIN_KEY, start)  # a person may ask for anything; a store is asked for what may be a key
        known = plain.group() if plain else ""
        async for row in self._pages(graph_id, prefix(known) if known else Range()):
            if row.key.startswith(start):
                yield row

    async def partition(self, graph_id: str) -> list[Row]:
        return [row async for row in self.rows(graph_id)]

    async def _pages(self, partition: str, rows: Range, limit: int = limits.PAGE_ROWS_MAX) -> AsyncGenerator[Row]:
        continuation: str | None = None
        while True:
            page = await self._tables.query(partition, rows, limit=limit, continuation=continuation)
            for row in page.rows:
                yield row
            continuation = page.continuation
            if continuation is None:
                return

    async def _first_pages(self, partition: str, rows: Range) -> list[Row]:
        found: list[Row] = []
        continuation: str | None = None
        for _ in range(NEAR_PAGES_MAX):
            page = await self._tables.query(partition, rows, continuation=continuation)
            found += page.rows
            continuation = page.continuation
            if continuation is None:
                break
        return found
