"""Graphs and tasks by their names, how far each graph is, its journal, and what its limits hold.

A graph of up to limits.COUNTED_TASKS_MAX tasks is counted task by task. Of a larger one the graph row, the end of the
journal and a bounded number of pages are read; what that leaves open is marked as open.
"""

import difflib
import json
import re
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Final

from taskgraph.model import limits
from taskgraph.model.clock import Clock
from taskgraph.model.columns import (
    FOLDER,
    WAITS_FOR,
    Value,
    integer,
    is_cancelled,
    object_of,
    seen_state,
    texts,
    time_of,
)
from taskgraph.model.errors import DeletedGraph, IntegrityError, InvalidInput, NoGraph, NotFound
from taskgraph.model.ids import GRAPH, LAST, event_key, is_graph_id, is_task_id, row_key, task_id_of
from taskgraph.model.json_strict import show
from taskgraph.model.names import ALL, QueueNames
from taskgraph.model.priorities import LEVELS, level_of
from taskgraph.model.states import INACTIVE, FailurePolicy, GraphState, TaskState, stored_state
from taskgraph.protocol import notices
from taskgraph.protocol.concurrency import Limit, limit_of, named_in
from taskgraph.queries import values
from taskgraph.queries.journal import agrees, find_end, follow, read_cursor
from taskgraph.queries.rows import channel_status, is_known, stalled_since, status_of_task
from taskgraph.queries.workers import IsDead, not_known
from taskgraph.storage.queues import Queues
from taskgraph.storage.signals.news import News, Pauses
from taskgraph.storage.tables import Page, Range, Row, Tables, prefix, query_all

BEHIND: Final = "!"  # a key with this at its end comes right behind it
_RELAYS: Final = ("join", "fork")
_ENDS_KEPT_MAX: Final = 1_000

_LISTED_IDS: Final = Range(select=("graph",))

NEAR_LABELS_MAX: Final = 5

NEAR_PAGES_MAX: Final = 5  # pages that are read to find names like one that there is not
_PLAIN_KEY: Final = r"[A-Za-z0-9:_-]{1,200}"


def check_graph_id(text: str, what: str = "a graph", *, new: bool = False) -> None:
    """Raise InvalidInput for what cannot be an id; new: and for what looks like an option."""
    if not is_graph_id(text):
        meant = what == "a graph" and not new and text.startswith(LAST[0])
        last = f"; {LAST} is the one that was submitted last" if meant else ""
        raise InvalidInput(f"{show(text)} cannot be the id of {what}: 1 to 64 letters, digits, - and _{last}")
    if new and text.startswith("-"):
        raise InvalidInput(f"{show(text)} begins with -, as options of commands do: choose another id")


def gone(graph_id: str, columns: Mapping[str, Value]) -> str:
    """A sentence about a graph of which nothing but a tombstone is left."""
    if columns.get("state") == GraphState.MOVED:
        left, to = time_of(columns, "moved"), columns.get("movesTo")
        at = f" at {left:%Y-%m-%d %H:%M:%S} UTC" if left is not None else ""
        return f"graph {graph_id} has moved to {to}{at}: ask there, with --store"
    when, because = time_of(columns, "deleted"), columns.get("because")
    at = f" at {when:%Y-%m-%d %H:%M:%S} UTC" if when is not None else ""
    by = f" by {columns['deletedBy']}" if columns.get("deletedBy") else ""
    return f"graph {graph_id} was deleted{at}{by}" + (f" ({because})" if because else "")


def way_of(columns: Mapping[str, Value]) -> str:
    """Where a graph goes, or comes from, that is on its way from one store to another; "" for another."""
    state = columns.get("state")
    if state == GraphState.MOVING:
        return f"it goes to {columns.get('movesTo')}"
    if state == GraphState.RESTORING and columns.get("movesFrom"):
        return f"it comes from {columns.get('movesFrom')}"
    return ""


def nearest(wanted: str, names: Sequence[str]) -> list[str]:
    """The names most like the wanted one: same letters in another case, a common part, then a close spelling."""
    folded = wanted.casefold()
    exact = [name for name in names if name.casefold() == folded]
    inside = [name for name in names if folded and folded in name.casefold()]
    close = difflib.get_close_matches(wanted, list(names)[:20_000], NEAR_LABELS_MAX, 0.5)
    return list(dict.fromkeys([*exact, *close, *inside]))[:NEAR_LABELS_MAX]


class GraphQueries:
    """Questions about graphs as a whole, and what every other question begins with."""

    def __init__(
        self,
        tables: Tables,
        queues: Queues,
        clock: Clock,
        names: QueueNames,
        *,
        is_dead: IsDead = not_known,
        news: News | None = None,
    ) -> None:
        self.news = news or Pauses(clock)
        self._tables = tables
        self._queues = queues
        self._clock = clock
        self._names = names
        self._is_dead = is_dead
        self._last_events: dict[str, int] = {}

    async def graph_row(self, graph_id: str) -> Row:
        """The graph row. Raises NoGraph, DeletedGraph, and InvalidInput for no possible id."""
        check_graph_id(graph_id)
        (row,) = await self._tables.get(graph_id, [GRAPH])
        if row is None:
            raise NoGraph(graph_id)
        if row.columns.get("state") in (GraphState.DELETED, GraphState.MOVED):
            raise DeletedGraph(gone(graph_id, row.columns), graph_id, str(row.columns.get("successor", "")))
        return row

    async def last_id(self) -> str:
        """The id of the graph that was submitted last, "" if there is none: one read."""
        async with aclosing(self._pages(ALL, _LISTED_IDS, 1)) as rows:
            async for row in rows:
                return str(row.columns.get("graph", ""))
        return ""

    async def recent_ids(self) -> list[str]:
        """The ids of the newest graphs, some thousands of them: the newest first."""
        return [str(row.columns.get("graph", "")) for row in await self._first_pages(ALL, _LISTED_IDS)]

    async def state(self, graph_id: str) -> GraphState:
        """The state of a graph: one read. Raises IntegrityError for one that this version does not know."""
        state = str((await self.graph_row(graph_id)).columns.get("state", ""))
        try:
            return GraphState(state)
        except ValueError as error:
            words = f"graph {graph_id} is in the state {show(state)}, which this version does not know"
            raise IntegrityError(words) from error

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

    async def task_status(self, graph_id: str, label_or_id: str) -> values.TaskStatus:
        """A task without its edges: two reads."""
        return status_of_task(await self.find_task(graph_id, label_or_id))

    async def request(self, graph_id: str, request: str) -> Mapping[str, Value]:
        """The head row of an extension or edit: state (staged, accepted, done, refused), reason. Raises NotFound."""
        check_graph_id(graph_id)
        check_graph_id(request, "a request")
        (row,) = await self._tables.get(graph_id, [f"request:{request}"])
        if row is None:
            await self.graph_row(graph_id)
            raise NotFound(f"graph {graph_id} has no request {request}")
        return row.columns

    async def channels(self, graph_id: str) -> list[values.ChannelStatus]:
        """The channels of a graph's notices, by name, and how far each has come."""
        check_graph_id(graph_id)
        found = [channel_status(row) async for row in self._pages(graph_id, notices.all_rows())]
        return sorted(found, key=lambda each: each.channel)

    async def rows(self, graph_id: str, start: str = "", *, after: str = "") -> AsyncGenerator[Row]:
        """The rows of a graph as a table explorer shows them; start: only keys that begin so; after: behind one."""
        check_graph_id(graph_id)
        plain = re.match(_PLAIN_KEY, start)  # a person may ask for anything; a store is asked for what may be a key
        known = plain.group() if plain else ""
        wanted = prefix(known) if known else Range()
        if after:
            wanted = replace(wanted, start=max(wanted.start, after + BEHIND))
        async for row in self._pages(graph_id, wanted):
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
        pages = _pages_up_to(NEAR_PAGES_MAX, self._tables, partition, rows)
        return [row async for page in pages for row in page.rows]

    async def status(self, graph_id: str, graph: Row | None = None) -> values.GraphStatus:
        """A graph with its tasks counted by state, as far as that is known without reading all of a large one."""
        row = graph or await self.graph_row(graph_id)
        columns = row.columns
        tasks = integer(columns, "tasks")
        counts: Mapping[str, int] | None = None
        at_least: Mapping[str, int] = {}
        exact = True
        if tasks > limits.COUNTED_TASKS_MAX and is_known(row):
            completed, skipped = await self._totals(graph_id)
            if completed >= 0:
                counts, at_least, exact = await self._aggregate(graph_id, columns, completed, skipped)
        held: int | None = None
        inactive: int | None = None
        priorities: Mapping[str, int] | None = None
        if counts is None:
            counts, held, inactive, priorities = await self._count(graph_id)
        ended = counts.get(TaskState.COMPLETED, 0) + counts.get(TaskState.SKIPPED, 0) + integer(columns, "failedTasks")
        return values.GraphStatus(
            graph_id=graph_id,
            state=str(columns.get("state", "")),
            created=time_of(columns, "created"),
            ended=time_of(columns, "finished") or time_of(columns, "cancelled"),
            tasks=tasks,
            edges=integer(columns, "edges"),
            counts=counts,
            blocked_by=str(columns.get("blockedBy", "")),
            failed_tasks=integer(columns, "failedTasks"),
            routing=str(columns.get("routing", "")),
            metadata=object_of(columns, "metadata"),
            tags=object_of(columns, "tags"),
            params=object_of(columns, "params"),
            unresolved=max(0, tasks - ended),
            exact=exact,
            at_least=at_least,
            failure_policy=str(columns.get("failurePolicy", FailurePolicy.BLOCK)),
            schedule=str(columns.get("schedule", "")),
            fired_for=time_of(columns, "firedFor"),
            reason=str(columns.get("reason", "")) or way_of(columns),
            deadline=time_of(columns, "deadline"),
            held=tuple(texts(columns, "held")),
            stalled=stalled_since(columns),
            stalled_because=str(columns.get("stalledBecause", "")) if stalled_since(columns) else "",
            limits=tuple(
                values.LimitStatus(limit.group, limit.most, len(limit.inside))
                for limit in (await self._limits(graph_id) if columns.get("limits") else ())
            ),
            folder=str(columns.get(FOLDER, "")),
            revision=integer(columns, "revision"),
            held_tasks=held,
            inactive_tasks=inactive,
            priorities=priorities,
        )

    async def _limits(self, graph_id: str) -> list[Limit]:
        rows = await query_all(self._tables, graph_id, Range("limit:", "limit;"))
        return sorted(map(limit_of, rows), key=lambda limit: limit.group)

    async def limits_of(self, graph_id: str) -> list[values.LimitStatus]:
        """The limits on tasks in flight of a graph, and what is. Raises NotFound for an unknown graph."""
        await self.graph_row(graph_id)
        found = await self._limits(graph_id)
        labels = await labels_in_flight(self._tables, graph_id, found)
        named = [tuple(labels.get(each, each) for each in limit.inside) for limit in found]
        return [
            values.LimitStatus(limit.group, limit.most, len(inside), inside)
            for limit, inside in zip(found, named, strict=True)
        ]

    async def _totals(self, graph_id: str) -> tuple[int, int]:
        """How many tasks have completed, and were skipped, by the end of the journal; -1 where it does not say."""
        last = self._last_events.get(graph_id, 1)  # begin at the last row that was there
        end, completed, skipped, _ = await find_end(self._tables, graph_id, last, 0 if last == 1 else -1, 0)
        if completed < 0 and last > 1:
            end, completed, skipped, _ = await find_end(self._tables, graph_id, 1, 0, 0)
        if len(self._last_events) >= _ENDS_KEPT_MAX:
            self._last_events.clear()
        self._last_events[graph_id] = max(1, end - 1)
        return completed, skipped

    async def _count(self, graph_id: str) -> tuple[dict[str, int], int, int, dict[str, int]]:
        """Tasks by state; of those that have neither begun nor ended: held back, not active, and by priority."""
        counts: Counter[str] = Counter()
        priorities: Counter[str] = Counter()
        held_tasks = inactive = 0
        async for row in self._pages(graph_id, Range("task:", "task;", select=("state", "held", "priority"))):
            state = str(row.columns.get("state", ""))
            counts[state] += 1
            if state in values.TO_BEGIN:
                held = texts(row.columns, "held")
                held_tasks += bool(held)
                inactive += INACTIVE in held
                priorities[level_of(row.columns.get)] += 1
        if exceptions := counts[TaskState.EXCEPTION]:
            cancelled = min(exceptions, await self._cancelled(graph_id))
            counts[TaskState.EXCEPTION], counts[TaskState.CANCELLED] = exceptions - cancelled, cancelled
        by_state = {str(state): counts[state] for state in TaskState if counts[state]}
        return by_state, held_tasks, inactive, {level: priorities[level] for level in LEVELS if priorities[level]}

    async def _cancelled(self, graph_id: str) -> int:
        """How many tasks were cancelled. Only rows that may say so are read: resolutions may be long."""
        where = {"state": (str(TaskState.EXCEPTION),)}
        rows = self._pages(graph_id, Range("task:", "task;", where=where, select=("state", "resolution")))
        return sum([is_cancelled(row.columns.get) async for row in rows])

    async def _aggregate(
        self, graph_id: str, columns: Mapping[str, Value], completed: int, skipped: int
    ) -> tuple[dict[str, int], dict[str, int], bool]:
        """What is known for certain of the tasks by state; what was seen of the others; whether that is all."""
        tasks, failed = integer(columns, "tasks"), integer(columns, "failedTasks")
        completed = min(completed, tasks)
        counts = {str(TaskState.COMPLETED): completed} if completed else {}
        if skipped:
            counts[str(TaskState.SKIPPED)] = skipped
        left = max(0, tasks - completed - failed - skipped)
        if left + failed == 0:
            return counts, {}, True
        wanted = [str(each) for each in values.UNDER_WAY] if left else []
        wanted += [str(each) for each in values.FAILED] if failed else []
        seen, whole = await self._look(graph_id, wanted)
        if not whole or columns.get("state") == GraphState.SUBMITTING:
            return counts, {state: seen[state] for state in wanted if seen[state]}, False
        counts |= {state: seen[state] for state in wanted if seen[state]}
        if waiting := max(0, left - sum(seen[each] for each in values.UNDER_WAY)):
            counts[str(TaskState.UNSCHEDULED)] = waiting
        return {str(state): counts[state] for state in TaskState if counts.get(state)}, {}, True

    async def _look(self, graph_id: str, states: Sequence[str]) -> tuple[Counter[str], bool]:
        """Tasks in some states, in the first pages of a graph, and whether that was all of it."""
        seen: Counter[str] = Counter()
        whole = False
        where = {"state": sorted({stored_state(each) for each in states})}
        columns = ("state", "resolution") if TaskState.CANCELLED in states else ("state",)
        wanted = Range("task:", "task;", where=where, select=columns)
        async for page in _pages_up_to(limits.COUNTED_PAGES_MAX, self._tables, graph_id, wanted):
            seen.update(seen_state(each.columns.get) for each in page.rows)
            whole = page.continuation is None
        return seen, whole

    async def busy(self, graph_id: str) -> bool:
        """Whether anything moves by itself: a task, a relay, or a request that does not wait to be resumed."""
        wanted = Range("task:", "task;", where={"state": tuple(map(str, values.UNDER_WAY))}, select=("state",))
        relays = [Range(f"{kind}:", f"{kind};", where={"state": ("pending",)}, select=("state",)) for kind in _RELAYS]
        requests = Range("request:", "request;", where={"state": ("staged", "accepted")}, select=("state", WAITS_FOR))
        for each in (requests, *relays, wanted):
            async with aclosing(self._pages(graph_id, each)) as rows:
                async for row in rows:
                    if not row.columns.get(WAITS_FOR):
                        return True
        return False

    async def targets(self, graph_id: str) -> set[str]:
        """Every target that a task of the graph goes to: one look at each task."""
        targets = Range("task:", "task;", select=("target",))
        return {str(row.columns.get("target", "default")) async for row in self._pages(graph_id, targets)}

    async def events(
        self,
        graph_id: str,
        *,
        since: int | str = 0,
        limit: int = 1000,
        where: Mapping[str, Sequence[str]] | None = None,
    ) -> list[values.Event]:
        """The journal after `since`, in order; what stands on one row is never parted. where: see `agrees`."""
        found: list[values.Event] = []
        async with aclosing(self.journal(graph_id, since=since, page_rows=min(limit, limits.PAGE_ROWS_MAX))) as rows:
            async for facts in rows:
                found += [each for each in facts if agrees(each, where)] if where else facts
                if len(found) >= limit:
                    break
        if not found:
            await self.graph_row(graph_id)  # raises NotFound, if that is why there are none
        return found

    async def journal(
        self, graph_id: str, *, since: int | str = 0, page_rows: int = limits.PAGE_ROWS_MAX
    ) -> AsyncGenerator[list[values.Event]]:
        """The journal after `since`, in order: the facts of one row after the other. since: see `read_cursor`."""
        check_graph_id(graph_id)
        last, read = read_cursor(since)
        async for row in self._pages(graph_id, Range(event_key(last + 1), "event;"), page_rows):
            sequence, time = integer(row.columns, "sequence"), time_of(row.columns, "time")
            facts = json.loads(str(row.columns.get("events", "[]")))
            events = [
                values.Event(sequence, time, str(fact.pop("event", "")), fact, part) for part, fact in enumerate(facts)
            ]
            yield events[read:] if sequence == last + 1 else events

    def follow(
        self, graph_id: str, *, since: int | str = 0, where: Mapping[str, Sequence[str]] | None = None
    ) -> AsyncGenerator[values.Event]:
        """The journal after `since` as it grows, until the graph can change no more. Raises NotFound."""
        return follow(self, self._clock, graph_id, since=since, where=where)


async def some_rows(tables: Tables, partition: str, rows: Range, limit: int) -> Page:
    """The first page of a range that has rows: a store may give empty ones before it, where little agrees."""
    page = await tables.query(partition, rows, limit=limit)
    while not page.rows and page.continuation is not None:
        page = await tables.query(partition, rows, limit=limit, continuation=page.continuation)
    return page


async def _pages_up_to(number: int, tables: Tables, partition: str, rows: Range) -> AsyncGenerator[Page]:
    continuation: str | None = None
    for _ in range(number):
        page = await tables.query(partition, rows, continuation=continuation)
        yield page
        continuation = page.continuation
        if continuation is None:
            return


async def labels_in_flight(tables: Tables, graph_id: str, found: Iterable[Limit]) -> dict[str, str]:
    """Label of each run in flight under these limits, by its name in their lists."""
    members = list(dict.fromkeys(each for limit in found for each in limit.inside))
    rows = await tables.get(graph_id, [row_key(named_in(each)[0] or "?") for each in members])
    return {
        each: str(row.columns.get("label", each)) for each, row in zip(members, rows, strict=True) if row is not None
    }
