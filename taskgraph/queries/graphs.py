"""Questions that people ask: which graphs, how far, what of this task, why does it not run.

What this room is for: reading rows and answering in logical terms: requires and dependents by task, whatever joins and
forks lie between (D5). It never writes, never sends, and never formats for a terminal.

A graph of up to limits.COUNTED_TASKS_MAX tasks is counted task by task. Of a larger one the aggregates are read that
every commit keeps (the graph row, the end of the journal), and a bounded number of pages of what is under way; what
that leaves open is said to be open. Listings of large graphs end where their limit ends.
"""

import asyncio
import difflib
import json
import re
import shlex
from collections import Counter
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from taskgraph.documents.results import NO_OUTPUT, OUTPUT
from taskgraph.model import facts, limits
from taskgraph.model.clock import Clock
from taskgraph.model.columns import Value, integer, texts, time_of
from taskgraph.model.errors import IntegrityError, InvalidInput, NotFound
from taskgraph.model.foreign_times import Standing
from taskgraph.model.ids import (
    GRAPH,
    by_target,
    group_key,
    group_of,
    holders_in_words,
    is_graph_id,
    is_relay,
    is_shared,
    is_task_id,
    limit_key,
    row_key,
    task_id_of,
    typed,
)
from taskgraph.model.json_strict import show
from taskgraph.model.names import ALL, QueueNames
from taskgraph.model.placement import worker_options
from taskgraph.model.priorities import LEVELS, NORMAL, level_now, level_of
from taskgraph.model.row_schema import EXPLAINED, SHOWN
from taskgraph.model.states import (
    GRAPH_ENDED,
    INACTIVE,
    FailurePolicy,
    GraphState,
    TaskState,
    When,
    condition_words,
    held_group,
)
from taskgraph.model.timing import not_yet_seconds, overdue, ready_since, retry_of, temporary_used
from taskgraph.protocol import notices
from taskgraph.protocol.concurrency import Limit, limit_of, named_in, scopes_of
from taskgraph.protocol.conditions import in_words, meets
from taskgraph.protocol.decide import event_key
from taskgraph.protocol.definitions import gathered, moment
from taskgraph.protocol.extension import WAITS_FOR
from taskgraph.protocol.leases import lease
from taskgraph.protocol.rows import SCHEMA_MAX
from taskgraph.queries import targets as gates
from taskgraph.queries.edges import Edges, references, worth_pages
from taskgraph.queries.groups import group_rows, members_of
from taskgraph.queries.journal_end import find_end
from taskgraph.queries.targets import TargetLimit, limits_in
from taskgraph.queries.values import (
    FAILED,
    LISTED,
    NOT_COMPLETED,
    OF_GROUP,
    RELAYS,
    STATES,
    TO_BEGIN,
    UNDER_WAY,
    UNFIRED,
    ChannelStatus,
    Event,
    Explanation,
    GraphListed,
    GraphStatus,
    GroupState,
    GroupStatus,
    LimitStatus,
    Listing,
    Reason,
    TaskDetail,
    TaskStatus,
    tasks,
)
from taskgraph.queries.workers import Crew, workers
from taskgraph.storage.queues import Queues
from taskgraph.storage.tables import Range, Row, Tables, prefix, query_all

NEAR_LABELS_MAX: Final = 5
NEAR_PAGES_MAX: Final = 5
"""Pages that are read to find names like one that there is not."""

WHY_READS_MAX: Final = 256
"""Rows that `why` reads one by one, at the most; what it still needs then is read by pages."""

WHY_WAITING_MAX: Final = 1_000
WHY_CAUSES_MAX: Final = 1_000
"""Tasks that `why` tells one by one: those that only wait, and first causes; the rest is counted."""

WHY_GROUPS_MAX: Final = 5
"""Groups by way of which a task waits that are named in one sentence."""

_GRAPHS_AT_ONCE: Final = 16
_FOLLOW_SECONDS: Final = 0.25
_FOLLOW_SECONDS_MAX: Final = 2.0
_PLAIN_KEY: Final = r"[A-Za-z0-9:_-]{1,200}"
_ENDS_KEPT_MAX: Final = 1_000


def read_cursor(since: "int | str") -> tuple[int, int]:
    """A cursor as (number of the row that was read last, facts of the next row that were read too).

    since: the number of a row, all of which was read, or `Event.cursor`. Raises InvalidInput.
    """
    if isinstance(since, int):
        return since, 0
    row, dot, part = since.partition(".")
    if not (row.isascii() and row.isdigit() and len(row) < 11) or (dot and not (part.isascii() and part.isdigit())):
        raise InvalidInput(
            f"{show(since)} is no cursor: write the number of an event, or NUMBER.PART as events give it"
        )
    return (int(row) - 1, int(part) + 1) if dot else (int(row), 0)


def agrees(event: Event, where: Mapping[str, Sequence[str]]) -> bool:
    """Whether an event has, for each field that is named, one of the values: see `facts.agrees`."""
    return facts.agrees(event.kind, event.sequence, event.fields, where)


class Queries:
    """Everything that can be asked of one installation."""

    def __init__(self, tables: Tables, queues: Queues, clock: Clock, names: QueueNames) -> None:
        self._tables = tables
        self._queues = queues
        self._clock = clock
        self._names = names
        self._last_events: dict[str, int] = {}

    async def graphs(self, *, limit: int = 50, state: str = "", schedule: str = "") -> list[GraphListed]:
        """The newest graphs first, with the state that each has now; of one schedule, where that is given."""
        found: list[GraphListed] = []
        continuation: str | None = None
        wanted = Range(where={"schedule": (schedule,)}) if schedule else Range()
        while True:
            page = await self._tables.query(ALL, wanted, limit=min(1000, max(limit, 1)), continuation=continuation)
            for start in range(0, len(page.rows), _GRAPHS_AT_ONCE):
                some = page.rows[start : start + _GRAPHS_AT_ONCE]
                listed = await asyncio.gather(*(self._listed(row) for row in some))
                # Whoever lists a graph may be late: a name beside a tombstone is for those who ask for it.
                found += [each for each in listed if each.state == state or not (state or _is_deleted(each))]
                if len(found) >= limit:
                    return found[:limit]
            continuation = page.continuation
            if continuation is None:
                return found

    async def _listed(self, row: Row) -> GraphListed:
        graph_id = str(row.columns.get("graph", ""))
        (graph,) = await self._tables.get(graph_id, [GRAPH])
        columns: Mapping[str, Value] = graph.columns if graph else {}
        return GraphListed(
            graph_id=graph_id,
            state=str(columns.get("state", "missing")),
            created=time_of(row.columns, "created"),
            name=str(row.columns.get("name", "")),
            tasks=integer(columns, "tasks"),
            schedule=str(row.columns.get("schedule", "")),
            fired_for=time_of(row.columns, "firedFor"),
            held=tuple(texts(columns, "held")),
        )

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
        """The values of a graph's parameters by name: one read."""
        return _object((await self.graph_row(graph_id)).columns, "params")

    async def status(self, graph_id: str) -> GraphStatus:
        """A graph with its tasks counted by state, as far as that can be told without reading all of a large one."""
        return await self._status(graph_id, await self.graph_row(graph_id))

    async def _status(self, graph_id: str, row: Row) -> GraphStatus:
        columns = row.columns
        tasks = integer(columns, "tasks")
        counts: Mapping[str, int] | None = None
        at_least: Mapping[str, int] = {}
        exact = True
        if tasks > limits.COUNTED_TASKS_MAX and _known(row):
            completed, skipped = await self._totals(graph_id)
            if completed >= 0:
                counts, at_least, exact = await self._aggregate(graph_id, columns, completed, skipped)
        waiting: _Waiting | None = None
        if counts is None:
            counts, waiting = await self._count(graph_id)
        ended = counts.get(TaskState.COMPLETED, 0) + counts.get(TaskState.SKIPPED, 0) + integer(columns, "failedTasks")
        return GraphStatus(
            graph_id=graph_id,
            state=str(columns.get("state", "")),
            created=time_of(columns, "created"),
            finished=time_of(columns, "finished"),
            tasks=tasks,
            edges=integer(columns, "edges"),
            counts=counts,
            blocked_by=str(columns.get("blockedBy", "")),
            failed_tasks=integer(columns, "failedTasks"),
            routing=str(columns.get("routing", "")),
            metadata=_object(columns, "metadata"),
            tags=_object(columns, "tags"),
            params=_object(columns, "params"),
            unresolved=max(0, tasks - ended),
            exact=exact,
            at_least=at_least,
            failure_policy=str(columns.get("failurePolicy", FailurePolicy.BLOCK)),
            schedule=str(columns.get("schedule", "")),
            fired_for=time_of(columns, "firedFor"),
            reason=str(columns.get("reason", "")),
            deadline=time_of(columns, "deadline"),
            held=tuple(texts(columns, "held")),
            stalled=stalled_since(columns),
            stalled_because=str(columns.get("stalledBecause", "")) if stalled_since(columns) else "",
            limits=tuple(await self._limits(graph_id)) if columns.get("limits") else (),
            revision=integer(columns, "revision"),
            held_tasks=waiting.held if waiting else None,
            inactive_tasks=waiting.inactive if waiting else None,
            priorities=waiting.by_priority() if waiting else None,
        )

    async def _limits(self, graph_id: str) -> list[LimitStatus]:
        rows = [row async for row in self._pages(graph_id, Range("limit:", "limit;"))]
        found = sorted(map(limit_of, rows), key=lambda limit: limit.group)
        return [LimitStatus(limit.group, limit.most, len(limit.inside)) for limit in found]

    async def limits_of(self, graph_id: str) -> list[LimitStatus]:
        """The limits on tasks in flight of a graph, and what is. Raises NotFound for an unknown graph."""
        await self.graph_row(graph_id)
        rows = [row async for row in self._pages(graph_id, Range("limit:", "limit;"))]
        found = sorted(map(limit_of, rows), key=lambda limit: limit.group)
        labels = await self._labels_in_flight(graph_id, found)
        return [
            LimitStatus(
                limit.group, limit.most, len(limit.inside), tuple(labels.get(each, each) for each in limit.inside)
            )
            for limit in found
        ]

    async def _labels_in_flight(self, graph_id: str, found: Iterable[Limit]) -> dict[str, str]:
        """Member of a list -> label."""
        members = list(dict.fromkeys(each for limit in found for each in limit.inside))
        rows = await self._tables.get(graph_id, [row_key(named_in(each)[0] or "?") for each in members])
        return {
            each: str(row.columns.get("label", each))
            for each, row in zip(members, rows, strict=True)
            if row is not None
        }

    async def _totals(self, graph_id: str) -> tuple[int, int]:
        """How many tasks have completed, and were skipped, by the end of the journal; -1 where it does not tell."""
        last = self._last_events.get(graph_id, 1)  # who asks again begins at the last row that was there
        end, completed, skipped = await find_end(self._tables, graph_id, last, 0 if last == 1 else -1, 0)
        if completed < 0 and last > 1:
            end, completed, skipped = await find_end(self._tables, graph_id, 1, 0, 0)
        if len(self._last_events) >= _ENDS_KEPT_MAX:
            self._last_events.clear()
        self._last_events[graph_id] = max(1, end - 1)
        return completed, skipped

    async def _count(self, graph_id: str) -> "tuple[dict[str, int], _Waiting]":
        """Tasks by state, and what is to be said of those that have neither begun nor ended."""
        counts: Counter[str] = Counter()
        waiting = _Waiting()
        async for row in self._pages(graph_id, Range("task:", "task;", select=("state", "held", "priority"))):
            state = str(row.columns.get("state", ""))
            counts[state] += 1
            if state in TO_BEGIN:
                waiting.take(row.columns)
        return {str(state): counts[state] for state in TaskState if counts[state]}, waiting

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
        wanted = [str(each) for each in UNDER_WAY] if left else []
        wanted += [str(each) for each in FAILED] if failed else []
        seen, whole = await self._look(graph_id, wanted)
        if not whole or columns.get("state") == GraphState.SUBMITTING:
            return counts, {state: seen[state] for state in wanted if seen[state]}, False
        counts |= {state: seen[state] for state in wanted if seen[state]}
        if waiting := max(0, left - sum(seen[each] for each in UNDER_WAY)):
            counts[str(TaskState.UNSCHEDULED)] = waiting
        return {str(state): counts[state] for state in TaskState if counts.get(state)}, {}, True

    async def _look(self, graph_id: str, states: Sequence[str]) -> tuple[Counter[str], bool]:
        """Tasks in some states, in the first pages of a graph, and whether that was all of it."""
        seen: Counter[str] = Counter()
        continuation: str | None = None
        wanted = Range("task:", "task;", where={"state": states}, select=("state",))
        for _ in range(limits.COUNTED_PAGES_MAX):
            page = await self._tables.query(graph_id, wanted, continuation=continuation)
            seen.update(str(each.columns.get("state", "")) for each in page.rows)
            continuation = page.continuation
            if continuation is None:
                return seen, True
        return seen, False

    async def _pages(self, partition: str, rows: Range, limit: int = limits.PAGE_ROWS_MAX) -> AsyncGenerator[Row]:
        """The rows of a range, a page at a time."""
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

    async def busy(self, graph_id: str) -> bool:
        """Whether a task is pending or running, or something else is under way; otherwise nothing moves by itself.

        An extension that is made when the graph is resumed does not, either.
        """
        wanted = Range("task:", "task;", where={"state": tuple(map(str, UNDER_WAY))}, select=("state",))
        relays = [Range(f"{kind}:", f"{kind};", where={"state": ("pending",)}, select=("state",)) for kind in RELAYS]
        requests = Range("request:", "request;", where={"state": ("staged", "accepted")}, select=("state", WAITS_FOR))
        for each in (requests, *relays, wanted):
            async with aclosing(self._pages(graph_id, each)) as rows:
                async for row in rows:
                    if not row.columns.get(WAITS_FOR):
                        return True
        return False

    async def tasks(self, graph_id: str, *, state: str = "", match: str = "", limit: int = 1000) -> list[TaskStatus]:
        """Tasks of a graph, by state and by a part of the label, sorted by label.

        Of a graph of more than limits.COUNTED_TASKS_MAX tasks any `limit` ones that agree.
        """
        found = await self.listing(graph_id, state=state, match=match, limit=limit)
        return sorted(found.tasks, key=lambda each: each.label)[:limit]

    async def group(self, graph_id: str, name: str) -> GroupStatus:
        """A group with its tasks. Each of them is read, one by one, or a large graph's by pages of all tasks.

        Raises NotFound for an unknown graph or group, with near names.
        """
        graph = await self.graph_row(graph_id)
        rows = await group_rows(self._tables, graph_id, name)
        members = members_of(rows)
        found: list[Row] = []
        if len(members) <= worth_pages(integer(graph.columns, "tasks")):
            found += [row for row in await self._tables.get(graph_id, list(map(row_key, members))) if row is not None]
        else:
            inside = frozenset(map(row_key, members))
            async for row in self._pages(graph_id, Range("task:", "task;", select=SHOWN)):
                if row.key in inside:
                    found.append(row)
        paused = await self._paused()
        listed = sorted((_task_status(row, paused) for row in found), key=lambda each: each.label)
        counts = Counter(each.state for each in listed)
        failed = sum(counts[each] for each in FAILED)
        done = counts[TaskState.COMPLETED] + counts[TaskState.SKIPPED]
        begun = done + failed + sum(counts[each] for each in UNDER_WAY)
        nested = [
            str(row.columns.get("label", ""))
            async for row in self._pages(graph_id, Range("group:", "group;", select=("label", "groups")))
            if name in _names(row.columns)
        ]
        state = (
            GroupState.FINISHED
            if done == len(members)
            else GroupState.BLOCKED
            if failed
            else GroupState.RUNNING
            if begun
            else GroupState.WAITING
        )
        return GroupStatus(
            graph_id=graph_id,
            name=name,
            state=str(state),
            graph_state=str(graph.columns.get("state", "")),
            tasks=len(members),
            counts={str(each): counts[each] for each in TaskState if counts[each]},
            unresolved=len(members) - done - failed,
            failed_tasks=failed,
            groups=sorted(nested),
            within=_names(rows[0].columns),
            listed=listed,
        )

    async def targets(self, graph_id: str) -> set[str]:
        """Every target that a task of the graph goes to: one look at each task."""
        targets = Range("task:", "task;", select=("target",))
        return {str(row.columns.get("target", "default")) async for row in self._pages(graph_id, targets)}

    async def listing(
        self, graph_id: str, *, state: str = "", match: str = "", limit: int = 1000, group: str = ""
    ) -> Listing:
        """Tasks of a graph by state, by a part of the label and by group, in no order.

        All of them, and all of a group; of a large graph up to `limit`, those that failed or are under way first, where
        no state is named.
        """
        graph = await self.graph_row(graph_id)
        total = integer(graph.columns, "tasks")
        params = _object(graph.columns, "params")
        if group:
            wanted = match.casefold()
            inside = (await self.group(graph_id, group)).listed
            some = [each for each in inside if state in ("", each.state) and wanted in each.label.casefold()]
            return Listing(some, len(some), params=params)
        found: list[TaskStatus] = []
        if total <= limits.COUNTED_TASKS_MAX:
            await self._list(graph_id, [state] if state else [], match, None, found)
            return Listing(found, len(found), params=params)
        status = None if state or match else await self._status(graph_id, graph)
        passes = [[state]] if state else [list(map(str, each)) for each in LISTED]
        for states in passes:
            if status is not None and status.exact and not any(status.counts.get(each) for each in states):
                continue
            if not await self._list(graph_id, states, match, limit, found):
                return Listing(found, total if status is not None else None, status, params)
        return Listing(found, len(found), status, params)

    async def _list(
        self, graph_id: str, states: Sequence[str], match: str, limit: int | None, found: list[TaskStatus]
    ) -> bool:
        """Add tasks in these states to `found`; gives whether there are no more, before it has `limit`."""
        wanted = match.casefold()
        paused = await self._paused() if not states or TO_BEGIN.intersection(states) else ()
        where = {"state": states} if states else {}
        async with aclosing(self._pages(graph_id, Range("task:", "task;", where=where, select=SHOWN))) as rows:
            async for row in rows:
                if wanted in str(row.columns.get("label", "")).casefold():
                    if len(found) == limit:
                        return False
                    found.append(_task_status(row, paused))
        return True

    async def _paused(self) -> Collection[str]:
        """The targets that are paused, for all graphs."""
        return await gates.closed(self._tables)

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
        return _task_status(await self.find_task(graph_id, label_or_id))

    async def task(self, graph_id: str, label_or_id: str, *, edges: int | None = None) -> TaskDetail:
        """A task with its logical edges and its definition. edges: name so many each way, None for all."""
        graph = await self.graph_row(graph_id)
        row = await self._find(graph_id, label_or_id)
        own = row.key.removeprefix("task:")
        looked = Edges(self._tables, graph_id)
        requires = await looked.required(references(row, "requires"))
        left = await looked.required(references(row, "requiresLeft"), left=True)
        dependents = await looked.dependents(references(row, "dependents"))
        optional = await looked.required(references(row, "optional"))
        named = [*(each[:edges] for each in (requires, left, dependents)), optional]
        labels = await looked.labels([each for some in named for each in some], integer(graph.columns, "tasks"))
        text = str(row.columns.get("task", ""))
        if not text:
            (longer,) = await self._tables.get(graph_id, [f"definition:{own}"])
            text = gathered(longer.columns, "task") if longer else "{}"
        shown = [sorted(labels[each] for each in some) for some in named]
        return TaskDetail(
            status=_task_status(row, await self._paused()),
            requires=shown[0],
            requires_left=shown[1],
            dependents=shown[2],
            definition=json.loads(text),
            requires_count=len(requires),
            requires_left_count=len(left),
            dependents_count=len(dependents),
            optional=shown[3],
        )

    async def results(self, graph_id: str) -> dict[str, Any]:
        """Label -> what the task has handed on, of all tasks that have, sorted by label. Reads every completed task."""
        await self.graph_row(graph_id)
        wanted = Range("task:", "task;", where={"state": (str(TaskState.COMPLETED),)}, select=("label", "resolution"))
        found: dict[str, Any] = {}
        async for row in self._pages(graph_id, wanted):
            resolution = _object(row.columns, "resolution")
            if OUTPUT in resolution:
                found[str(row.columns.get("label", ""))] = resolution[OUTPUT]
        return dict(sorted(found.items()))

    async def output(self, graph_id: str, label_or_id: str) -> Any:
        """What a task has handed on. Raises NotFound if that is nothing, with the reason."""
        status = await self.task_status(graph_id, label_or_id)
        resolution = status.resolution or {}
        if OUTPUT in resolution:
            return resolution[OUTPUT]
        if status.state != TaskState.COMPLETED:
            raise NotFound(f"task “{status.label}” is {status.state}: it has handed nothing on")
        if why := resolution.get(NO_OUTPUT):
            raise NotFound(
                f"task “{status.label}” has handed nothing on: {why}; `taskgraph logs --result` has it whole"
            )
        raise NotFound(f"task “{status.label}” has completed without a result")

    async def why(self, graph_id: str, label_or_id: str) -> list[Reason]:
        """What a task waits for, down to the first causes: the reasons of `explain`."""
        return (await self.explain(graph_id, label_or_id)).reasons

    async def explain(self, graph_id: str, label_or_id: str) -> Explanation:
        """What a task waits for, down to the first causes. Breadth first; each task is explained once.

        All tasks that it waits for are looked at, however many: one by one at first, and by pages of what has not
        completed if they are many.
        """
        graph = await self.graph_row(graph_id)
        first = await self._find(graph_id, label_or_id)
        if not _known(graph):
            status = _task_status(first)
            reason = Reason(status.label, status.task_id, status.state, 0, f"its graph: {_newer(graph)}", True, _NEWER)
            return Explanation([reason], 1, 0)
        rows = _Below(self._tables, graph_id, min(worth_pages(integer(graph.columns, "tasks")), WHY_READS_MAX))
        waiting: list[tuple[int, int, Reason]] = []  # depth and place among all, for the order
        stuck: list[tuple[int, int, Row]] = []
        number = waits = 0
        passed: set[str] = set()  # what many tasks wait for in the same words, by way of a group
        seen = {first.key}
        level = [first]
        depth = 0
        while level:
            below: dict[str, None] = {}
            for row in level:
                number += 1
                if row.columns.get("state") != TaskState.UNSCHEDULED or not _known(row):
                    if (told := _skipped(row, depth)) is None:
                        stuck.append((depth, number, row))
                    else:
                        reason, cause = told
                        below[row_key(cause)] = None
                        waits += 1
                        waiting.append((depth, number, reason))
                    continue
                left = await rows.left(row)
                text = str(row.columns.get("requiresLeft", ""))
                if text not in passed:
                    below.update(dict.fromkeys(row_key(each) for each in left))
                    if OF_GROUP in text:
                        passed.add(text)
                waits += 1
                if len(waiting) < WHY_WAITING_MAX:
                    waiting.append((depth, number, _waiting(row, depth, await rows.wanted(row, len(left)))))
            keys = [key for key in below if key not in seen]
            seen.update(keys)
            level = await rows.get(keys)
            depth += 1
        causes = len(stuck)
        if causes > WHY_CAUSES_MAX:  # what failed holds up the graph, what is ready or runs may be gone in a moment
            stuck.sort(key=lambda one: one[2].columns.get("state") not in FAILED)
        held: dict[str, int] = {}
        waiting_for_workers = any(row.columns.get("state") == TaskState.PENDING for _, _, row in stuck)
        crew = Crew(await workers(self._tables, self._clock.now()) if waiting_for_workers else ())
        beside = await query_all(self._tables, gates.GATES, Range()) if waiting_for_workers else []
        paused, permitted = gates.closed_in(beside), limits_in(beside, self._clock.now())
        state = str(graph.columns.get("state", ""))
        final = graph.columns.get("failurePolicy") == FailurePolicy.CONTINUE
        made = [
            (depth, number, await self._cause(row, depth, state, graph_id, held, crew, paused, permitted, final=final))
            for depth, number, row in stuck[:WHY_CAUSES_MAX]
        ]
        ordered = sorted([*waiting, *made], key=lambda one: one[:2])
        return Explanation([reason for _, _, reason in ordered], causes, waits)

    async def _level(self, row: Row) -> tuple[str, str]:
        """The level that a task counts as now, and what is to be said of it, "" for the usual one."""
        own, now = level_of(row.columns.get), self._clock.now()
        since = ready_since(row.columns.get)
        if own == NORMAL and (since is None or (now - since).total_seconds() < limits.AGE_SECONDS):
            return own, ""
        used = (await gates.levels_used(self._tables, now)).get(str(row.columns.get("target", "default")), ())
        level = level_now(own, since, now, used)
        if level != own:
            return level, f"; its priority is {own}, and it counts as {level}, having waited for so long"
        return level, "" if own == NORMAL else f"; its priority is {own}"

    async def _cause(
        self,
        row: Row,
        depth: int,
        graph_state: str,
        graph_id: str,
        queued: dict[str, int],
        crew: Crew,
        paused: Mapping[str, gates.Gate],
        permitted: Mapping[str, TargetLimit],
        *,
        final: bool,
    ) -> Reason:
        """A first cause in words. queued: queue -> about how many messages it holds, where that has been asked.

        final: a failure cannot be taken back by a rerun.
        """
        status = _task_status(row)
        remedy = ""
        if not _known(row):
            return Reason(status.label, status.task_id, status.state, depth, _newer(row), True, _NEWER)
        match status.state:
            case TaskState.PENDING:
                level, aged = await self._level(row)
                queue = self._names.work(status.target, level)
                if queue not in queued:
                    queued[queue] = await self._queues.count(queue)
                held = queued[queue]
                since = ready_since(row.columns.get)
                text = f"is ready since {_clock_text(since)}; no worker has claimed it"
                text += f" (queue {queue} holds about {held} message{'s' if held != 1 else ''})" + aged
                definition = _object(row.columns, "task")
                text += f"; {crew.about(status.target, definition)}"
                remedy = f"start a worker: taskgraph worker {worker_options(status.target, definition)}"
                if graph_state == GraphState.SUBMITTING:
                    text = "is ready, and its graph is still being submitted"
                    remedy = "submit the same file under the same id again"
                elif holders := texts(row.columns, "held"):
                    text = f"is ready since {_clock_text(status.pending_since)}, and held back: "
                    text += holders_in_words(holders)
                    remedy = _letting_go(holders[0], graph_id, status)
                elif room := await self._no_room(graph_id, row):
                    text = f"is ready since {_clock_text(since)}, and waits for room: {room}"
                    remedy = f"see taskgraph limit list {graph_id}"
                elif (gate := paused.get(status.target)) is not None:
                    text = f"is ready since {_clock_text(status.pending_since)}; target {status.target} is paused"
                    text += f" since {_clock_text(gate.since)}" + (f": {gate.reason}" if gate.reason else "")
                    remedy = f"let it go on: taskgraph resume --target {status.target}"
                elif (taken := permitted.get(status.target)) is not None and len(taken.permits) >= taken.most:
                    text = f"is ready since {_clock_text(since)}; {_permits_text(taken)}"
                    remedy = "see taskgraph limit list"
                elif status.refusal:
                    text += f"; a worker gave it back: {status.refusal}"
                    if not crew.able(status.target, definition):
                        remedy = f"start a worker that has what it takes, such as: {remedy.partition(': ')[2]}"
                    else:
                        remedy = "a worker that has what it takes will get it with the next offer, within a minute"
                if graph_state != GraphState.SUBMITTING and not_yet_seconds(row.columns.get, self._clock.now()):
                    text, remedy = _not_yet(status), ""
            case TaskState.RUNNING:
                text = f"runs on {status.worker} since {_clock_text(status.started)}"
                if cancel := row.columns.get("cancel"):
                    text += f", and is being stopped, as it is cancelled: {cancel}"
                    remedy = f"not to wait: {typed('cancel --terminate', graph_id, status.label, status.task_id)}"
                how = lease(row.columns.get, self._clock.now())
                if status.lease_until is not None and how is Standing.DOUBTFUL:
                    text += f"; its lease is said to end {_clock_text(status.lease_until)}, so a clock is off"
                if status.lease_until is not None and how is Standing.OVER:
                    text += (
                        f"; the worker's lease ended {_clock_text(status.lease_until)}, so the next sweep gives it back"
                    )
                    remedy = "run `taskgraph serve`, which sweeps"
            case TaskState.FAILED | TaskState.EXCEPTION:
                reason = (status.resolution or {}).get("reason", "")
                verb = "failed for good" if status.state == TaskState.FAILED else "could not be run"
                if (status.resolution or {}).get("cancelled"):
                    verb = "was cancelled"
                text = f"{verb} in run {status.run}"
                text += f": {reason}" if reason else ""
                remedy = f"mend it, then: {typed('rerun', graph_id, status.label, status.task_id)}"
                if status.deadline is not None and status.deadline <= self._clock.now():
                    word = shlex.quote(status.label)
                    remedy = (
                        f"give it another deadline, or none: taskgraph edit {graph_id} --task {word} --deadline none; "
                        f"then: {typed('rerun', graph_id, status.label, status.task_id)}"
                    )
                if final:
                    remedy = "mend it, and submit the graph again under another id: its dependents have been told"
                if graph_state in (GraphState.CANCELLING, GraphState.CANCELLED):
                    remedy = "its graph is over: submit it again under another id"
            case TaskState.SKIPPED:
                text = f"was skipped because {(status.resolution or {}).get('reason', '')}"
            case TaskState.COMPLETED:
                text = f"completed at {_clock_text(status.resolved)}"
            case _:
                text = f"is {status.state}"
        if late := overdue(row.columns.get, self._clock.now()):
            text += f"; {late[1]}, so the next sweep ends it"
            remedy = "run `taskgraph serve`, which sweeps"
        return Reason(status.label, status.task_id, status.state, depth, text, True, remedy)

    async def _no_room(self, graph_id: str, row: Row) -> str:
        """The limit that has no room for a task, and who is in flight under it, in words; "" if all have."""
        keys = [limit_key(scope) for scope in scopes_of(row.columns)]
        if not keys:
            return ""
        found = [limit_of(each) for each in await self._tables.get(graph_id, keys) if each is not None]
        full = next((limit for limit in found if len(limit.inside) >= limit.most), None)
        if full is None:
            return ""
        names = list((await self._labels_in_flight(graph_id, [full])).values())
        shown = ", ".join(f"“{name}”" for name in names[:WHY_GROUPS_MAX])
        shown += f" and {len(names) - WHY_GROUPS_MAX:,} more" if len(names) > WHY_GROUPS_MAX else ""
        return f"limit of {full.name}, {len(full.inside):,} of {full.most:,} in flight: {shown}"

    async def events(
        self,
        graph_id: str,
        *,
        since: int | str = 0,
        limit: int = 1000,
        where: Mapping[str, Sequence[str]] | None = None,
    ) -> list[Event]:
        """The journal after `since`, in order; what stands on one row is never parted. where: see `agrees`."""
        found: list[Event] = []
        page_rows = min(limit, limits.PAGE_ROWS_MAX)
        async with aclosing(self.journal(graph_id, since=since, page_rows=page_rows)) as rows:
            async for facts in rows:
                found += [each for each in facts if agrees(each, where)] if where else facts
                if len(found) >= limit:
                    break
        return found

    async def journal(
        self, graph_id: str, *, since: int | str = 0, page_rows: int = limits.PAGE_ROWS_MAX
    ) -> AsyncGenerator[list[Event]]:
        """The journal after `since`, in order: the facts of one row after the other. since: see `read_cursor`."""
        check_graph_id(graph_id)
        last, read = read_cursor(since)
        async for row in self._pages(graph_id, Range(event_key(last + 1), "event;"), page_rows):
            sequence, time = integer(row.columns, "sequence"), time_of(row.columns, "time")
            facts = json.loads(str(row.columns.get("events", "[]")))
            events = [Event(sequence, time, str(fact.pop("event", "")), fact, part) for part, fact in enumerate(facts)]
            yield events[read:] if sequence == last + 1 else events

    async def follow(
        self, graph_id: str, *, since: int | str = 0, where: Mapping[str, Sequence[str]] | None = None
    ) -> AsyncGenerator[Event]:
        """The journal after `since`, event by event, as it grows, until the graph can change no more.

        Whoever stops goes on with the `cursor` of the last event it has dealt with. where: see `agrees`. Between two
        looks are pauses that grow while nothing happens. Raises NotFound.
        """
        pause = _FOLLOW_SECONDS
        while True:
            ended = await self.state(graph_id) in GRAPH_ENDED  # first, so that its last events are read after it
            moved = False
            async with aclosing(self.journal(graph_id, since=since)) as rows:
                async for facts in rows:
                    for each in facts:
                        moved, since = True, each.cursor
                        if where is None or agrees(each, where):
                            yield each
            if ended:
                return
            pause = _FOLLOW_SECONDS if moved else min(pause * 1.5, _FOLLOW_SECONDS_MAX)
            await self._clock.sleep(pause)

    async def channels(self, graph_id: str) -> list[ChannelStatus]:
        """Who is told of a graph, and how far; none of a graph without notices. By what a person calls them."""
        check_graph_id(graph_id)
        found = [_channel_status(row) async for row in self._pages(graph_id, notices.all_rows())]
        return sorted(found, key=lambda each: each.channel)

    async def request(self, graph_id: str, request: str) -> Mapping[str, Value]:
        """The head row of an extension or edit: state (staged, accepted, done, refused), reason. Raises NotFound."""
        check_graph_id(graph_id)
        check_graph_id(request, "a request")
        (row,) = await self._tables.get(graph_id, [f"request:{request}"])
        if row is None:
            raise NotFound(f"graph {graph_id} has no request {request}")
        return row.columns

    async def rows(self, graph_id: str, start: str = "") -> AsyncGenerator[Row]:
        """The rows of a graph as a table explorer shows them; start: only keys that begin like this."""
        check_graph_id(graph_id)
        plain = re.match(_PLAIN_KEY, start)  # a person may ask for anything; a store is asked for what may be a key
        known = plain.group() if plain else ""
        async for row in self._pages(graph_id, prefix(known) if known else Range()):
            if row.key.startswith(start):
                yield row

    async def partition(self, graph_id: str) -> list[Row]:
        """Every row of a graph, all at once."""
        return [row async for row in self.rows(graph_id)]


@dataclass(slots=True)
class _Waiting:
    """Of the tasks that have neither begun nor ended: how many are held back, are not active, have which priority."""

    held: int = 0
    inactive: int = 0
    priorities: Counter[str] = field(default_factory=Counter)

    def take(self, columns: Mapping[str, Value]) -> None:
        """Count a task."""
        held = texts(columns, "held")
        self.held += bool(held)
        self.inactive += INACTIVE in held
        self.priorities[level_of(columns.get)] += 1

    def by_priority(self) -> dict[str, int]:
        """Level -> how many, the highest first."""
        return {level: self.priorities[level] for level in LEVELS if self.priorities[level]}


class _Below:
    """The rows below a task that waits: so many of them one by one, and then all that have not completed by pages."""

    def __init__(self, tables: Tables, graph_id: str, alone: int) -> None:
        self._tables = tables
        self._graph_id = graph_id
        self._alone = alone
        self._tasks: dict[str, Row] | None = None  # once they have been read by pages
        self._relays: dict[str, Row | None] = {}
        self._edges = Edges(tables, graph_id, self._relays)
        self._left: dict[str, list[str]] = {}  # by the text of the column, where it names groups
        self._groups: dict[str, tuple[str, int]] = {}  # groupId -> its name, and how many tasks are in it

    async def left(self, row: Row) -> list[str]:
        """TaskIds that a task still waits for."""
        text = str(row.columns.get("requiresLeft", ""))
        if text in self._left:
            return self._left[text]
        if self._edges.reads >= self._alone:
            await self._read_pages()
        found = await self._edges.required(references(row, "requiresLeft"), left=True)
        if OF_GROUP in text:
            self._left[text] = found
        return found

    async def wanted(self, row: Row, number: int) -> str:
        """What a task waits for, in words: groups by their names. number: of all tasks that it waits for."""
        listed = references(row, "requiresLeft")
        shared = [each for each in listed if is_shared(each)]
        if not shared:
            return tasks(number)
        parts: list[str] = []
        for reference in shared[:WHY_GROUPS_MAX]:
            name, total = await self._group(group_of(reference))
            left = len(await self._edges.required([reference], left=True))
            if reference.endswith("done"):
                parts.append(f"{left:,} of {tasks(total)} of group “{name}”")
            else:
                parts.append(f"{tasks(left)} that its group “{name}” requires")
        if len(shared) > WHY_GROUPS_MAX:
            more = len(shared) - WHY_GROUPS_MAX
            parts.append(f"those of {more:,} more group{'s' if more != 1 else ''}")
        if others := sum(not is_relay(each) for each in listed):
            parts.append(f"{others:,} other task{'s' if others != 1 else ''}")
        return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)

    async def _group(self, group_id: str) -> tuple[str, int]:
        if group_id not in self._groups:
            (row,) = await self._tables.get(self._graph_id, [group_key(group_id)])
            columns: Mapping[str, Value] = row.columns if row else {}
            self._groups[group_id] = str(columns.get("label", group_id)), integer(columns, "tasks")
        return self._groups[group_id]

    async def get(self, keys: Sequence[str]) -> list[Row]:
        """The rows of tasks, those that exist."""
        if self._tasks is None and len(keys) > self._alone - self._edges.reads:
            await self._read_pages()
        known = self._tasks or {}
        missing = [key for key in keys if key not in known]
        self._edges.reads += len(missing)
        # What was not there among the others has completed meanwhile, or is gone.
        found = dict(zip(missing, await self._tables.get(self._graph_id, missing), strict=True)) if missing else {}
        rows = [known.get(key) or found.get(key) for key in keys]
        return [row for row in rows if row is not None]

    async def _read_pages(self) -> None:
        if self._tasks is not None:
            return
        self._tasks = {}
        kept: dict[str, Row] = {}
        for start, states, names in (
            ("task", NOT_COMPLETED, ("schema", *EXPLAINED)),
            ("join", UNFIRED, ("requiresLeft",)),
        ):
            continuation: str | None = None
            wanted = Range(f"{start}:", f"{start};", where={"state": states}, select=names)
            while True:
                page = await self._tables.query(self._graph_id, wanted, continuation=continuation)
                kept.update((row.key, row) for row in page.rows)
                continuation = page.continuation
                if continuation is None:
                    break
        for key, row in kept.items():
            if key.startswith("task:"):
                self._tasks[key] = row
            else:
                self._relays[key] = row


def _is_deleted(listed: GraphListed) -> bool:
    return listed.state == GraphState.DELETED


def gone(graph_id: str, columns: Mapping[str, Value]) -> str:
    """A sentence about a graph of which nothing but a tombstone is left."""
    when, because = time_of(columns, "deleted"), columns.get("because")
    at = f" at {when:%Y-%m-%d %H:%M:%S} UTC" if when is not None else ""
    return f"graph {graph_id} was deleted{at}" + (f" ({because})" if because else "")


def check_graph_id(text: str, what: str = "a graph", *, new: bool = False) -> None:
    """Raise InvalidInput for what cannot be an id: no store is asked for it.

    new: it is to be given, and must not look like an option. Graphs that have such an id already keep it.
    """
    if not is_graph_id(text):
        raise InvalidInput(f"{show(text)} cannot be the id of {what}: 1 to 64 letters, digits, - and _")
    if new and text.startswith("-"):
        raise InvalidInput(f"{show(text)} begins with -, as options of commands do: choose another id")


_NEWER: Final = "use a newer version of taskgraph"


def _known(row: Row) -> bool:
    """Whether this version may judge the row (P23)."""
    schema = row.columns.get("schema", 1)
    return not isinstance(schema, int) or schema <= SCHEMA_MAX


def _newer(row: Row) -> str:
    return f"the row has schema {row.columns['schema']}, and this version knows {SCHEMA_MAX}: it is left to a newer one"


def nearest(wanted: str, names: Sequence[str]) -> list[str]:
    """The names most like the wanted one: same letters in another case, a common part, then a close spelling."""
    folded = wanted.casefold()
    exact = [name for name in names if name.casefold() == folded]
    inside = [name for name in names if folded and folded in name.casefold()]
    close = difflib.get_close_matches(wanted, list(names)[:20_000], NEAR_LABELS_MAX, 0.5)
    return list(dict.fromkeys([*exact, *close, *inside]))[:NEAR_LABELS_MAX]


def _waiting(row: Row, depth: int, wanted: str) -> Reason:
    status = _task_status(row)
    text = f"waits for {wanted}"
    if words := condition_words(status.when):
        text += f"; {words}"
    failed, skipped = (_object(row.columns, name) for name in ("failedBy", "skippedBy"))
    if not meets(status.when, failed=bool(failed), skipped=bool(skipped)) and status.when != When.ANY_FAILED:
        cause = skipped if status.when == When.ALL_RESOLVED else failed or skipped
        text += f"; then it will be skipped: {in_words(cause)}"
    return Reason(status.label, status.task_id, status.state, depth, text, False)


def _skipped(row: Row, depth: int) -> tuple[Reason, str] | None:
    """Why a task was skipped, and the taskId of the first cause; None where that is no other task."""
    status = _task_status(row)
    if status.state != TaskState.SKIPPED or not _known(row):
        return None
    resolution = status.resolution or {}
    cause = resolution.get("cause")
    task_id = cause.get("taskId") if isinstance(cause, dict) else None
    if not isinstance(task_id, str) or not is_task_id(task_id):
        return None
    text = f"was skipped because {resolution.get('reason', '')}"
    return Reason(status.label, status.task_id, status.state, depth, text, False), task_id


def _not_yet(status: TaskStatus) -> str:
    """Why a task that waits for nothing but its time does not run."""
    text = f"is to run not before {_clock_text(status.not_before)}"
    last = status.runs[-1] if status.runs else {}
    if last.get("outcome") == "temporary":
        reason = str(last.get("reason", ""))
        text += f": run {last.get('run')} failed for the moment{': ' if reason else ''}{reason}"
        text += f" ({status.temporary_left} more such failure{'s' if status.temporary_left != 1 else ''} allowed)"
    return text


def _clock_text(moment: datetime | None) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%SZ") if moment else "an unknown time"


def stalled_since(columns: Mapping[str, Value]) -> datetime | None:
    """Since when a graph is marked as standing still, by its row; None for one that moves or has ended."""
    if not columns.get("stalledBecause") or columns.get("state") in GRAPH_ENDED:
        return None
    return time_of(columns, "stalled")


def _ended(columns: Mapping[str, Value]) -> datetime | None:
    """When a run ended: a text on rows that a version before 0.3 wrote."""
    value = columns.get("ended")
    if not isinstance(value, str):
        return time_of(columns, "ended")
    try:
        return moment(value)
    except ValueError:
        return None


def _object(columns: Mapping[str, Value], name: str) -> dict[str, Any]:
    try:
        found = json.loads(str(columns.get(name, "") or "{}"))
    except ValueError:
        return {}  # damaged: see _records
    return found if isinstance(found, dict) else {}


def _records(columns: Mapping[str, Value], name: str) -> list[Mapping[str, Any]]:
    """A column that lists objects; what is damaged in it is left out, for `doctor` to name: the rest is still shown."""
    try:
        found = json.loads(str(columns.get(name, "") or "[]"))
    except ValueError:
        return []
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _permits_text(limit: TargetLimit) -> str:
    by = Counter(permit.worker for permit in limit.permits)
    shown = ", ".join(worker for worker, _ in by.most_common(WHY_GROUPS_MAX))
    more = f" and {len(by) - WHY_GROUPS_MAX:,} more workers" if len(by) > WHY_GROUPS_MAX else ""
    return f"target {limit.target}: {len(limit.permits):,} of {limit.most:,} permits taken by {shown}{more}"


def _letting_go(holder: str, graph_id: str, status: TaskStatus) -> str:
    if holder == INACTIVE:
        return f"let it run: {typed('activate', graph_id, status.label, status.task_id)}"
    group = f" --group {shlex.quote(held_group(holder))}" if held_group(holder) else ""
    return f"let it go on: taskgraph resume {graph_id}{group}"


def _channel_status(row: Row) -> ChannelStatus:
    columns = row.columns
    try:
        name = notices.channel_of(_object(columns, "channel")).display
    except IntegrityError:
        name = f"{row.key} (its channel cannot be read)"
    return ChannelStatus(
        key=row.key.removeprefix(notices.PREFIX),
        channel=name,
        state=str(columns.get("state", "")),
        on=tuple(texts(columns, "on")),
        tasks=bool(columns.get("tasks")),
        cursor=integer(columns, "sequence"),
        delivered=integer(columns, "delivered"),
        failures=integer(columns, "failures"),
        next_try=time_of(columns, "nextTry"),
        last_error=str(columns.get("lastError", "")),
    )


def _names(columns: Mapping[str, Value]) -> list[str]:
    """The groups that a task or group is in; the graph row has their number under the same name."""
    return texts(columns, "groups")


def _task_status(row: Row, paused: Collection[str] = ()) -> TaskStatus:
    """A task as its row tells it. paused: targets that are, where that was looked up."""
    columns = row.columns
    held = texts(columns, "held")
    if str(columns.get("target", "default")) in paused and columns.get("state") in TO_BEGIN:
        held.append(by_target(str(columns.get("target", "default"))))
    return TaskStatus(
        task_id=row.key.removeprefix("task:"),
        label=str(columns.get("label", "")),
        state=str(columns.get("state", "")),
        run=integer(columns, "run"),
        target=str(columns.get("target", "default")),
        reruns_allowed=integer(columns, "rerunsAllowed"),
        reruns_left=integer(columns, "rerunsLeft"),
        retries_left=integer(columns, "retriesLeft"),
        worker=str(columns.get("worker", "")),
        pending_since=time_of(columns, "pendingSince"),
        started=time_of(columns, "started"),
        ended=_ended(columns),
        resolved=time_of(columns, "resolved"),
        lease_until=time_of(columns, "leaseUntil"),
        deadline=time_of(columns, "deadline"),
        resolution=_object(columns, "resolution") or None,
        runs=_records(columns, "runs"),
        refusal=str(columns.get("refusal", "")),
        when=str(columns.get("when", When.ALL_COMPLETED)),
        groups=_names(columns),
        not_before=time_of(columns, "notBefore"),
        temporary_failures=integer(columns, "temporaryFailures"),
        temporary_left=_temporary_left(columns),
        pending_timeout=timeout if isinstance(timeout := columns.get("pendingTimeout"), int | float) else None,
        priority=level_of(columns.get),
        held=tuple(held),
    )


def _temporary_left(columns: Mapping[str, Value]) -> int:
    try:
        limit = retry_of(str(columns.get("retry", ""))).limit
    except ValueError:
        return 0  # damaged: `doctor` names it
    return max(0, limit - temporary_used(columns.get))
