"""One look at a whole installation, for `taskgraph top`: live graphs, what waits longest, workers, queues.

A look costs at most three requests for each graph that is shown, and one for each queue.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from taskgraph.model import limits
from taskgraph.model.clock import Clock
from taskgraph.model.columns import integer, is_held, texts, time_of
from taskgraph.model.ids import GRAPH
from taskgraph.model.names import LIVE, QueueNames
from taskgraph.model.placement import DEFAULT_TARGET
from taskgraph.model.priorities import LEVELS, NORMAL
from taskgraph.model.states import PAUSED, TaskState
from taskgraph.queries.event_queues import EventQueues
from taskgraph.queries.journal import find_end
from taskgraph.queries.targets import GATES, closed_in, levels_in, limits_in
from taskgraph.queries.workers import Crew, IsDead, WorkerStatus, crew, not_known
from taskgraph.storage.queues import Queues
from taskgraph.storage.tables import Range, Row, Tables, query_all

GRAPHS_MAX: Final = 20  # graphs that are looked at, by default; the newest
QUEUES_MAX: Final = 20  # targets whose queues are asked for their depth
_AT_ONCE: Final = 64


@dataclass(frozen=True, slots=True)
class GraphLine:
    """A live graph. completed: -1 where the journal does not say. more: whether there may be more ready or running.

    failed: for good, or cancelled. held: how many of the ready ones are held back. oldest, oldest_seconds: the label of
    the task that is ready and not held back for longest; "" and None where none is. rate: tasks completed in a second,
    None at the first look.
    """

    graph_id: str
    state: str
    tasks: int
    completed: int
    failed: int
    running: int
    ready: int
    more: bool
    oldest: str
    oldest_seconds: float | None
    rate: float | None
    stalled: datetime | None
    stalled_because: str
    since: datetime | None
    held: int = 0
    paused: bool = False


@dataclass(frozen=True, slots=True)
class QueueLine:
    """A queue. oldest_seconds: how long the oldest ready task of its target waits, as far as seen.

    target: "" for a queue of events. workers, slots, busy: of live workers. limit: so many of its tasks may be in
    flight, 0 for any number; permits: taken of these.
    """

    queue: str
    target: str
    messages: int
    oldest_seconds: float | None = None
    workers: int = 0
    slots: int = 0
    busy: int = 0
    paused: bool = False
    limit: int = 0
    permits: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An installation at about one moment. live: how many graphs are; requests, seconds: what this look took."""

    time: datetime
    live: int
    graphs: Sequence[GraphLine]
    crew: Crew
    queues: Sequence[QueueLine]
    requests: int
    seconds: float


@dataclass(slots=True)
class _Seen:
    sequence: int = 1
    completed: int = -1
    at: float = 0.0


@dataclass(slots=True)
class _Open:
    running: int = 0
    ready: int = 0
    held: int = 0
    more: bool = False
    oldest: str = ""
    oldest_at: datetime | None = None
    by_target: dict[str, datetime] = field(default_factory=dict)


class Overview:
    """event_queues: None where a server knows them."""

    def __init__(
        self,
        tables: Tables,
        queues: Queues,
        clock: Clock,
        names: QueueNames,
        *,
        is_dead: IsDead = not_known,
        event_queues: EventQueues | None = None,
    ) -> None:
        self._tables = tables
        self._queues = queues
        self._clock = clock
        self._names = names
        self._is_dead = is_dead
        self._event_queues = event_queues
        self._seen: dict[str, _Seen] = {}
        self._requests = 0

    async def look(self, *, graphs_max: int = GRAPHS_MAX) -> Snapshot:
        began, now = self._clock.monotonic(), self._clock.now()
        self._requests = 0
        live = await query_all(self._tables, LIVE, Range())
        found = await crew(self._tables, now, self._is_dead)
        registered = len(found.workers) + len(found.handlers)
        self._requests += 2 + len(live) // limits.PAGE_ROWS_MAX + registered // limits.PAGE_ROWS_MAX
        live.sort(key=lambda row: (time_of(row.columns, "since") or now, row.key), reverse=True)
        shown = live[:graphs_max]
        waiting: dict[str, datetime] = {}
        lines: list[GraphLine] = []
        for start in range(0, len(shown), _AT_ONCE):
            looked = await asyncio.gather(*(self._graph(row, now, waiting) for row in shown[start : start + _AT_ONCE]))
            lines += [line for line in looked if line is not None]
        self._seen = {row.key: self._seen[row.key] for row in shown if row.key in self._seen}
        queues = await self._lines(found.workers, waiting, now)
        took = self._clock.monotonic() - began
        return Snapshot(now, len(live), lines, found, queues, self._requests, took)

    async def _graph(self, listed: Row, now: datetime, waiting: dict[str, datetime]) -> GraphLine | None:
        graph_id = listed.key
        (row,) = await self._tables.get(graph_id, [GRAPH])
        self._requests += 1
        if row is None:
            return None  # its submission has just begun, or was given up
        columns = row.columns
        completed, rate = await self._progress(graph_id)
        found = await self._open(graph_id)
        for target, since in found.by_target.items():
            waiting[target] = min(since, waiting.get(target, since))
        because = str(columns.get("stalledBecause", ""))
        return GraphLine(
            graph_id=graph_id,
            state=str(columns.get("state", "")),
            tasks=integer(columns, "tasks"),
            completed=completed,
            failed=integer(columns, "failedTasks"),
            running=found.running,
            ready=found.ready,
            more=found.more,
            oldest=found.oldest,
            oldest_seconds=_age(found.oldest_at, now),
            rate=rate,
            stalled=time_of(columns, "stalled") if because else None,
            stalled_because=because,
            since=time_of(listed.columns, "since"),
            held=found.held,
            paused=PAUSED in texts(columns, "held"),
        )

    async def _progress(self, graph_id: str) -> tuple[int, float | None]:
        """How many tasks have completed, and how many in a second since the look before."""
        seen = self._seen.setdefault(graph_id, _Seen())
        known = seen.completed if seen.sequence > 1 else 0
        end, completed, *_ = await find_end(self._tables, graph_id, seen.sequence, known, 0)
        self._requests += 1
        at, rate = self._clock.monotonic(), None
        if seen.at and min(seen.completed, completed) >= 0 and at > seen.at:
            rate = max(0.0, (completed - seen.completed) / (at - seen.at))
        # The next look begins at the last row that was there: it has the number.
        self._seen[graph_id] = _Seen(max(1, end - 1), completed, at)
        return completed, rate

    async def _open(self, graph_id: str) -> _Open:
        where = {"state": (str(TaskState.PENDING), str(TaskState.RUNNING))}
        shown = ("state", "label", "pendingSince", "target", "held")
        under_way = Range("task:", "task;", where=where, select=shown)
        page = await self._tables.query(graph_id, under_way)
        self._requests += 1
        found = _Open(more=page.continuation is not None)
        for row in page.rows:
            columns = row.columns
            if columns.get("state") == TaskState.RUNNING:
                found.running += 1
                continue
            found.ready += 1
            if is_held(columns.get("held")):
                found.held += 1
                continue
            since = time_of(columns, "pendingSince")
            if since is None:
                continue
            target = str(columns.get("target", DEFAULT_TARGET))
            found.by_target[target] = min(since, found.by_target.get(target, since))
            if found.oldest_at is None or since < found.oldest_at:
                found.oldest, found.oldest_at = str(columns.get("label", "")), since
        return found

    async def _lines(
        self, workers: Sequence[WorkerStatus], waiting: Mapping[str, datetime], now: datetime
    ) -> list[QueueLine]:
        serving: dict[str, list[WorkerStatus]] = {}
        for one in workers:
            for target in one.targets if one.live else ():
                serving.setdefault(target, []).append(one)
        # Targets with waiting tasks and no worker come first.
        targets = sorted({*serving, *waiting}, key=lambda each: (each in serving, each))[:QUEUES_MAX]
        gates = await query_all(self._tables, GATES, Range())
        self._requests += 1 + len(gates) // limits.PAGE_ROWS_MAX
        used, paused, limited = levels_in(gates, now), closed_in(gates), limits_in(gates, now)
        levels = [(target, level) for target in targets for level in LEVELS if level in (NORMAL, *used.get(target, ()))]
        events: Sequence[str] = self._names.received
        if self._event_queues is not None:
            await self._event_queues.refresh()
            events = self._event_queues.received
        works = [self._names.work(target, level) for target, level in levels]
        counts = await asyncio.gather(*(self._queues.count(queue) for queue in [*events, *works]))
        self._requests += len(counts)
        depth = dict(zip([*events, *works], counts, strict=True))
        return [
            *(QueueLine(queue, "", depth[queue]) for queue in events),
            *(
                QueueLine(
                    queue=queue,
                    target=target,
                    messages=depth[queue],
                    oldest_seconds=_age(waiting.get(target), now),
                    workers=len(serving.get(target, ())),
                    slots=sum(one.slots for one in serving.get(target, ())),
                    busy=sum(one.busy for one in serving.get(target, ())),
                    paused=target in paused,
                    limit=limited[target].most if target in limited else 0,
                    permits=len(limited[target].permits) if target in limited else 0,
                )
                for (target, _), queue in zip(levels, works, strict=True)
            ),
        ]


def _age(since: datetime | None, now: datetime) -> float | None:
    return None if since is None else max(0.0, (now - since).total_seconds())
