"""Limited tasks: tell those for which there is room, and change how much room there is.

What this room is for: a limit lets so many tasks of a graph, or of a group of it, run at one time. Which tasks wait is
remembered here, and looked up where that may not be all; who is inside the rows of the limits say. What is remembered
may be lost at any time. It never changes a row but through a transition.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Protocol

from taskgraph.engine.commit import Records
from taskgraph.engine.transact import KeepAlive, Taker, Transactor, no_keep_alive
from taskgraph.model.clock import Clock
from taskgraph.model.errors import NotFound
from taskgraph.model.ids import GRAPH, limit_key, limit_scope, reference_of
from taskgraph.model.messages import SetLimit
from taskgraph.model.priorities import COLUMN as PRIORITY
from taskgraph.model.priorities import LEVELS, level_of, rank
from taskgraph.model.states import TaskState
from taskgraph.model.timing import not_yet_seconds
from taskgraph.protocol.concurrency import Limit, limit_of, limits_of, scopes_of
from taskgraph.protocol.context import Outcome, Refill
from taskgraph.protocol.decide import Answer
from taskgraph.protocol.limited_backlog import WAITING_MAX, WHOLE_SECONDS, Backlog, Waiting
from taskgraph.protocol.runs import Claim, Completed, Failed
from taskgraph.protocol.set_limit import NOT_LIMITED, ChangeLimit
from taskgraph.queries.groups import has_group
from taskgraph.storage.tables import Range, Row, query_all

_COUNTED_MAX: Final = 10_000  # graphs
_LOOK_PAGES_MAX: Final = 4  # of ready tasks that are under a limit, in one look for them
_WAITS: Final = ("run", "target", "limits", "held", "pendingSince", "notBefore", PRIORITY)


class Send(Protocol):
    """Sends tasks of a graph, of one target and level: see Dispatcher.send."""

    async def __call__(
        self,
        graph_id: str,
        target: str,
        level: str,
        tasks: Sequence[tuple[str, int]],
        *,
        rows: Mapping[str, Row | None] | None = None,
    ) -> None:
        """rows: rows of the tasks, as far as they are known."""
        ...


@dataclass(slots=True)
class LimitedTasks:
    """Limited tasks that stand ready, as far as this process knows."""

    records: Records
    clock: Clock
    takes: Callable[[str], bool]
    """Whether no other process handles a graph: then what this one remembers of limited tasks is all there is."""
    send: Send
    backlogs: dict[str, Backlog] = field(default_factory=dict)
    """Graph id -> limited tasks that stand ready."""

    def wait(self, graph_id: str) -> bool:
        """Whether some of a graph are known to wait for room."""
        return bool((backlog := self.backlogs.get(graph_id)) and backlog.waiting)

    def forget(self, graph_id: str) -> None:
        """The graph has ended."""
        self.backlogs.pop(graph_id, None)

    def landed(self, graph_id: str, answers: Sequence[Answer]) -> None:
        """These do not wait any more."""
        if (backlog := self.backlogs.get(graph_id)) is not None:
            for answer in answers:
                if isinstance(answer.item, Claim | Completed | Failed) and answer.outcome is not Outcome.STALE:
                    backlog.forget(answer.item.task_id, answer.item.run)

    async def refill(
        self,
        graph_id: str,
        ready: Sequence[Refill] = (),
        rows: Mapping[str, Row | None] | None = None,
        *,
        taker: Taker | None = None,
    ) -> int:
        """Tell those limited tasks of a graph for which there is room; gives how many these are. Repeatable.

        ready: what has just become so. rows: as the commit left them. Which tasks wait is remembered, and looked up
        where that may not be all; how much room there is the rows of the limits say.
        """
        if len(self.backlogs) >= _COUNTED_MAX and graph_id not in self.backlogs:
            self.backlogs.clear()
        backlog = self.backlogs.setdefault(graph_id, Backlog())
        for one in ready:
            if one.task_id:
                backlog.add(one.task_id, one.run, Waiting(one.target, one.scopes, one.since, one.rank))
        alone, now = self.takes(graph_id), self.clock.monotonic()
        # Rows that were kept are good enough where nobody else writes them.
        limits_known = limits_of(rows) if alone and rows is not None else {}
        if not backlog.waiting:
            if alone and now < backlog.whole_until:
                return 0
            if not limits_known:
                limits_known = await self._limits(graph_id)
            if all(limit.is_full for limit in limits_known.values()):
                return 0  # who ends one of these runs looks again
            await self.look_up(graph_id, backlog, now)
        if missing := backlog.scopes.difference(limits_known):
            found = await self.records.tables.get(graph_id, [limit_key(scope) for scope in sorted(missing)])
            limits_known.update({limit.scope: limit for row in found if row is not None if (limit := limit_of(row))})
        by_queue: dict[tuple[str, int], list[tuple[str, int]]] = {}
        waiting = dict(backlog.waiting)
        for task_id, run, target in backlog.pick(limits_known, now):
            by_queue.setdefault((target, waiting[task_id, run].rank), []).append((task_id, run))
        for (target, place), tasks in by_queue.items():
            fresh: Sequence[tuple[str, int]] = tasks
            if taker is not None:
                fresh = taker.keep(graph_id, target, tasks, rows or {})
            if fresh:
                await self.send(graph_id, target, LEVELS[place], fresh, rows=rows)
        return sum(map(len, by_queue.values()))

    async def refill_from(self, graph_id: str, rows: Sequence[Row]) -> int:
        """The same, with rows of limited tasks that stand ready and may have gone unheard."""
        backlog = self.backlogs.setdefault(graph_id, Backlog())
        self._remember(backlog, rows, self.clock.monotonic())
        return await self.refill(graph_id)

    async def _limits(self, graph_id: str) -> dict[str, Limit]:
        rows = await query_all(self.records.tables, graph_id, Range("limit:", "limit;"))
        return {limit.scope: limit for limit in map(limit_of, rows)}

    async def look_up(self, graph_id: str, backlog: Backlog, now: float) -> None:
        """Look up which limited tasks stand ready; of very many, some: the others are found when these are told."""
        waits = Range("task:", "task;", where={"state": (str(TaskState.PENDING),), "limited": ("yes",)}, select=_WAITS)
        continuation: str | None = None
        backlog.whole_until = 0.0
        for _ in range(_LOOK_PAGES_MAX):
            page = await self.records.tables.query(graph_id, waits, continuation=continuation)
            self._remember(backlog, page.rows, now)
            continuation = page.continuation
            if len(backlog.waiting) >= WAITING_MAX:
                return  # even of the last page some may have been left out
            if continuation is None:
                backlog.whole_until = now + WHOLE_SECONDS
                return

    def _remember(self, backlog: Backlog, rows: Iterable[Row], now: float) -> None:
        """Take over limited tasks that stand ready from their rows, but those that were told of just now."""
        for row in rows:
            columns, task_id = row.columns, reference_of(row.key)
            run, since = columns.get("run"), columns.get("pendingSince")
            if not isinstance(run, int) or columns.get("held", "[]") not in ("", "[]"):
                continue
            if not_yet_seconds(columns.get, self.clock.now()) or backlog.is_told(task_id, run, now):
                continue
            target, scopes = str(columns.get("target", "default")), scopes_of(columns)
            ready = since if isinstance(since, datetime) else None
            backlog.add(task_id, run, Waiting(target, scopes, ready, rank(level_of(columns.get))))


async def set_limit(transactor: Transactor, message: SetLimit, *, keep_alive: KeepAlive = no_keep_alive) -> Answer:
    """Change a limit of a graph, or of a group of it. Raises NotFound for an unknown graph or group."""
    tables, graph_id = transactor.records.tables, message.graph
    scope = limit_scope(graph_id, message.group)
    graph, row = await tables.get(graph_id, [GRAPH, limit_key(scope)])
    if graph is None:
        raise NotFound(f"there is no graph {graph_id}")
    item = ChangeLimit(scope, message.most, message.asked, message.reason)
    if row is None and message.group and not await has_group(tables, graph, graph_id, message.group):
        return Answer(item, Outcome.STALE)
    if row is None:
        return Answer(item, Outcome.REFUSED, NOT_LIMITED)
    (answer,) = await transactor.transition(graph_id, [item], keep_alive=keep_alive)
    return answer
