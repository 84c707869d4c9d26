"""Graphs as rows: load what a decision asks for, commit what it decided, settle what is unclear.

`Records` numbers the event rows, and gives every commit an operation id by which a lost answer is settled (P17).

Row kinds of a graph's partition (PartitionKey = taskGraphId):

    task-graph              the graph row
    task:<taskId>           a task; definition:<taskId> when its definition is long
    join:<owner>:<n>        gathers wide fan-in; fork:<owner>:<n> spreads wide fan-out
    group:<groupId>         who is in a group
    event:<sequence>        journal, outbox and event stream in one; gapless from 1
    request:<id>            an extension, with its document in request:<id>:<part>
    name-mapping:<..>       label -> taskId, where the graph row is too small for it
    written                 definitions as written, where tasks name parameters
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

from taskgraph.model import limits
from taskgraph.model.clock import Clock
from taskgraph.model.errors import Conflict, Unclear
from taskgraph.model.ids import value
from taskgraph.model.spent import Spent, Used, spent_in
from taskgraph.model.states import TaskState
from taskgraph.queries.journal import find_end, totals_in
from taskgraph.storage.metered import Meter
from taskgraph.storage.tables import Change, Delete, Insert, Merge, Range, Row, Tables, changes_max_of

T = TypeVar("T")

_SEQUENCES_KEPT_MAX: Final = 10_000
_UNKNOWN: Final = (0, -1, 0, None)
_COMPLETED: Final = TaskState.COMPLETED.value
_SEQUENCES_KEPT_SECONDS: Final = 24 * 3600.0  # far less than limits.TOMBSTONE_SECONDS: an id may be given again


async def side_by_side(*calls: Callable[[], Coroutine[Any, Any, T]]) -> list[T]:
    """Make calls at once, or one after the other where there is no event loop. Raises what one of them raises."""
    if len(calls) == 1 or not in_event_loop():
        return [await call() for call in calls]
    tasks = [asyncio.create_task(call()) for call in calls]
    try:
        return [await task for task in tasks]
    finally:
        if not all(task.done() for task in tasks):  # nothing goes on behind the caller's back
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def in_event_loop() -> bool:
    """False in the simulator, which drives these coroutines by itself."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def name_in(tables: Tables, index: str, graph_id: str, now: datetime) -> str:
    """Name a graph in an index of those that have to be looked at; gives the entry's etag, "" if not known. Repeatable.

    An entry that is there is written anew: what takes the graph off, and looked before this call, meets a conflict.
    """
    unclear: Unclear | None = None
    for _ in range(limits.COMMIT_ATTEMPTS_MAX):
        try:
            (etag,) = await tables.commit(index, [Insert(graph_id, {"since": now})])
            return etag or ""
        except Conflict:
            unclear = None
        except Unclear as error:
            unclear = error
        (row,) = await tables.get(index, [graph_id])
        if row is None:
            if unclear is not None:
                raise unclear
            continue  # it was taken off in between
        if unclear is not None and row.columns.get("since") == now:
            return row.etag
        try:
            (etag,) = await tables.commit(index, [Merge(graph_id, row.etag, {"since": now})])
            return etag or ""
        except (Conflict, Unclear):
            continue  # another call wrote it, or took it off, or this one did
    raise Conflict(f"graph {graph_id}: other calls kept writing its entry in {index}; try again")


@value
class Operation:
    """One commit that is about to be made.

    sequence: number of the event row that it may insert, 0 if not known. completed: how many tasks had completed before
    it, as the journal says; -1 if not known. skipped: how many had been skipped. before: what the graph had cost, as
    the journal says; None if not known. used: what this process has counted since it wrote that down, with this commit;
    None if it does not count.
    """

    id: str
    sequence: int
    completed: int = -1
    skipped: int = 0
    before: Spent | None = None
    used: Used | None = None

    @property
    def spent(self) -> Spent | None:
        """What the graph has cost with this commit, but for the runs that it ends; None if that is not written down."""
        if self.used is None or not self.sequence:
            return self.before
        return (self.before or Spent()).and_used(self.used)


class Records:
    """Rows of graphs in one table. meter: what counts the calls of this process; event rows say what it has counted."""

    def __init__(self, tables: Tables, clock: Clock, meter: Meter | None = None) -> None:
        self.tables = tables
        self.changes_max = changes_max_of(tables)
        """How many changes a commit takes."""
        self.clock = clock
        self.meter = meter
        # Graph id -> the next number of its journal, how many tasks had completed and been skipped before that, and
        # what it had cost.
        self._ends: dict[str, tuple[int, int, int, Spent | None]] = {}
        self._until = clock.monotonic() + _SEQUENCES_KEPT_SECONDS

    async def load(self, graph_id: str, keys: Iterable[str], rows: dict[str, Row | None]) -> None:
        """Read these rows into `rows` (None for one that does not exist)."""
        wanted = sorted(keys)
        rows.update(zip(wanted, await self.tables.get(graph_id, wanted), strict=True))

    async def load_near(self, graph_id: str, keys: Iterable[str], rows: dict[str, Row | None]) -> None:
        """`load` of rows that probably lie side by side: many come as a page, and alone what is not on that."""
        wanted = sorted(keys)
        if len(wanted) > limits.READ_ALONE_MAX:
            near, most = Range(wanted[0], f"{wanted[-1]}!"), limits.READ_PAGE_WORTH * len(wanted)
            page = await self.tables.query(graph_id, near, limit=min(most, limits.PAGE_ROWS_MAX))
            found = {row.key: row for row in page.rows}
            last = wanted[-1] if page.continuation is None else page.rows[-1].key if page.rows else ""
            rows.update((key, found.get(key)) for key in wanted if key <= last)
            wanted = [key for key in wanted if key > last]
        if wanted:
            await self.load(graph_id, wanted, rows)

    def begin(self, graph_id: str) -> Operation:
        """Begin a commit, without a call. Its number is 0 if this process has not looked yet: `operation` does."""
        if self.clock.monotonic() > self._until:
            self._forget_all()
        # This commit is asked for before it is counted, and says so itself.
        used = self.meter.used(graph_id, commits=1) if self.meter is not None else None
        return Operation(self.clock.new_id(), *self._ends.get(graph_id, _UNKNOWN), used)

    async def operation(self, graph_id: str) -> Operation:
        """Begin a commit that states facts."""
        if graph_id not in self._ends:
            await self._find_end(graph_id, 1, 0, 0)
        return self.begin(graph_id)

    async def end(self, graph_id: str) -> int:
        """The last number of its journal, looked up: what this process remembers may be old."""
        await self._find_end(graph_id, *self._ends.get(graph_id, (1, 0, 0)))
        return self._ends[graph_id][0] - 1

    async def _find_end(
        self, graph_id: str, sequence: int, completed: int, skipped: int, spent: Spent | None = None
    ) -> None:
        end = await find_end(self.tables, graph_id, sequence, completed, skipped)
        self._remember(graph_id, *end[:3], spent_in(end[3]) if end[3] else spent)

    async def commit(
        self,
        graph_id: str,
        changes: Sequence[Change],
        operation: Operation,
        rows: dict[str, Row | None],
        spent: Spent | None = None,
        lean: bool = False,
    ) -> None:
        """Write all or nothing, and bring `rows` up to what was written. spent: as its event row says, if known.

        lean: keep no row that is hardly asked for again: one that is new, or a task that has completed.

        Raises Conflict when nothing was written: read again and decide again. An answer that was lost is settled by
        reading a row of the commit back: it is ours if it carries the operation's id.
        """
        event, meter = _event_of(changes, operation.sequence), self.meter
        used = operation.used if event is not None and "spent" in event.columns else None
        if meter is not None and used is not None:
            meter.written(graph_id, used)  # before it is: of a commit whose end is not learned nothing is said twice
        try:
            etags = await self.tables.commit(graph_id, changes)
        except (Conflict, Unclear) as error:
            if not await self._is_mine(graph_id, changes, operation.id):
                if meter is not None and used is not None:
                    meter.add(graph_id, *used)
                if event is not None:
                    known = operation.sequence, operation.completed, operation.skipped
                    await self._find_end(graph_id, *known, operation.before)
                raise error if isinstance(error, Conflict) else Conflict("the commit was lost on its way") from error
            etags = [None] * len(changes)
        if event is not None:
            completed, skipped, text = totals_in(event.columns)
            spent = spent_in(text) if spent is None else spent
            self._remember(graph_id, operation.sequence + 1, completed, skipped, spent)
        for place, change in enumerate(changes):
            if change is event:
                continue  # no decision goes by one
            if lean and (type(change) is Insert or (type(change) is Merge and _completes(change))):
                rows.pop(change.key, None)
            else:
                _bring_up(rows, change, etags[place])

    async def _is_mine(self, graph_id: str, changes: Sequence[Change], operation_id: str) -> bool:
        # An event row is never written again, so it answers for good; any other row may have moved on since, and then
        # the decision is simply made again.
        written = [change for change in changes if not isinstance(change, Delete)]
        primary = next((c for c in written if isinstance(c, Insert) and c.key.startswith("event:")), written[0])
        (row,) = await self.tables.get(graph_id, [primary.key])
        return row is not None and row.columns.get("operation") == operation_id

    def _remember(self, graph_id: str, sequence: int, completed: int, skipped: int, spent: Spent | None) -> None:
        if len(self._ends) >= _SEQUENCES_KEPT_MAX:
            self._forget_all()
        # Commits of this process overlap: the number only grows.
        if sequence >= self._ends.get(graph_id, (1,))[0]:
            self._ends[graph_id] = sequence, completed, skipped, spent

    def created(self, graph_id: str) -> None:
        """The graph row was inserted just now, by this process: the journal is empty."""
        self._remember(graph_id, 1, 0, 0, None)

    def forget(self, graph_id: str) -> None:
        """The graph is no more: another one may begin its journal under this id."""
        self._ends.pop(graph_id, None)

    def _forget_all(self) -> None:
        self._ends.clear()
        self._until = self.clock.monotonic() + _SEQUENCES_KEPT_SECONDS


def changes_event(changes: Sequence[Change], sequence: int) -> bool:
    """Whether a commit inserts the event row of this number."""
    return _event_of(changes, sequence) is not None


def _event_of(changes: Sequence[Change], sequence: int) -> Insert | None:
    for change in reversed(changes):  # the last, nearly always
        if type(change) is Insert and change.key.startswith("event:") and change.columns["sequence"] == sequence:
            return change
    return None


def _completes(change: Merge) -> bool:
    return change.columns.get("state") == _COMPLETED


def _bring_up(rows: dict[str, Row | None], change: Change, etag: str | None) -> None:
    # By type alone: a pattern that takes a change apart costs more than what is done with it.
    key, kind = change.key, type(change)
    if etag is None or kind is Delete:
        rows.pop(key, None)  # deleted, or written without a word of its etag: to be read again
    elif kind is Insert:
        rows[key] = Row(key, etag, change.columns)  # type: ignore[union-attr]
    elif (before := rows.get(key)) is None or before.etag != change.etag:  # type: ignore[union-attr]
        rows.pop(key, None)  # others have touched what is shared: what stands here may be the newer one
    else:
        columns = change.columns  # type: ignore[union-attr]
        rows[key] = Row(key, etag, {**before.columns, **columns} if kind is Merge else columns)
