"""Deliver the journal of a graph to its channels: in order, at least once, each notice always under the same id.

Each channel has a row with the place in the journal up to which notices are delivered. A notifier leases the row, reads
on from there, sends notice after notice, and writes down how far it came; after a crash in between the last few are
sent again. A channel that fails is tried again after growing pauses, and delays no other channel. A graph with channels
stands in an index until it has ended and all is delivered. All state is on rows, so any number of processes may
deliver; `outlets` reaches the channels.
"""

import contextlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

from taskgraph.engine import clock_trust
from taskgraph.engine.commit import name_in
from taskgraph.engine.live_index import drop_orphan
from taskgraph.model import limits
from taskgraph.model.clock import Clock
from taskgraph.model.columns import Columns, integer, objects, texts, time_of
from taskgraph.model.errors import Conflict, IntegrityError, Refused, Unclear
from taskgraph.model.foreign_times import holds
from taskgraph.model.ids import GRAPH, event_key, row_key
from taskgraph.model.json_strict import canonical_json
from taskgraph.model.states import GRAPH_ENDED, GRAPH_GONE, GRAPH_SEALED
from taskgraph.protocol import notices
from taskgraph.protocol.notices import Channel, Notice, Registration
from taskgraph.storage.tables import Change, Delete, Merge, Range, Row, Tables, query_all

log = logging.getLogger("taskgraph.notifier")

INDEX: Final = "index:notices"  # partition of the graphs with notices that are not delivered
_AT_ONCE: Final = 16  # notices between two looks at how far a channel has come: so many may come twice
_PAGE_ROWS: Final = 200
_PAUSE_SECONDS: Final = 1.0


class NotDelivered(Exception):
    """A channel did not take a notice. retry_after: seconds, as the receiver asks; final: never try again."""

    def __init__(self, reason: str, retry_after: float = 0.0, *, final: bool = False) -> None:
        super().__init__(reason)
        self.retry_after = retry_after
        self.final = final


class Outlet(Protocol):
    def serves(self, channel: Channel) -> str:
        """Why this process cannot reach channels like this one, "" if it can."""

    async def send(self, channel: Channel, notice: Notice) -> None:
        """Raises NotDelivered."""


@dataclass(slots=True)
class Deliveries:
    """What one round did. waiting: channels with notices that are not delivered; undone: graphs that are not over."""

    graphs: int = 0
    delivered: int = 0
    failed: int = 0
    waiting: int = 0
    given_up: int = 0
    undone: int = 0
    troubles: list[str] = field(default_factory=list)

    def add(self, other: "Deliveries") -> None:
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


async def enter(tables: Tables, graph_id: str, now: datetime) -> None:
    """Name a graph in `INDEX`. Repeatable."""
    await name_in(tables, INDEX, graph_id, now)


async def register(tables: Tables, graph_id: str, registered: Mapping[str, Registration], now: datetime) -> None:
    """Write the rows of the channels that an extension's tasks name. Repeatable.

    They get notices of these tasks alone, from the beginning of the journal on. A channel that has a row, and not for
    tasks, gets those of tasks from now on. Raises Refused if the graph would have too many.
    """
    await enter(tables, graph_id, now)
    for _ in range(limits.COMMIT_ATTEMPTS_MAX):
        known = {row.key: row for row in await query_all(tables, graph_id, notices.all_rows())}
        fresh = [row for row in notices.rows_of(registered, now) if row.key not in known]
        if (count := len(known) + len(fresh)) > limits.CHANNELS_MAX:
            allowed = f"{limits.CHANNELS_MAX} are allowed"
            what = f"graph {graph_id} would send notices to {count} different channels; {allowed}"
            raise Refused(what, "too-many-channels")
        widened = [
            Merge(row.key, row.etag, {"tasks": True, "state": notices.OPEN})
            for key in registered
            if (row := known.get(notices.PREFIX + key)) is not None
            and (not row.columns.get("tasks") or row.columns.get("state") == notices.DONE)
        ]
        changes: list[Change] = [*fresh, *widened]
        if not changes:
            return
        with contextlib.suppress(Conflict, Unclear):  # the next read finds what is there now  # reach: notices
            await tables.commit(graph_id, changes)
    raise Conflict(f"graph {graph_id}: its channels could not be written; try again")


async def reopen(tables: Tables, graph_id: str, now: datetime) -> None:
    """Have the channels of a graph go on that goes on after its end. Repeatable."""
    for _ in range(limits.COMMIT_ATTEMPTS_MAX):
        rows = await query_all(tables, graph_id, notices.all_rows())
        met = False
        for row in rows:
            # Written in any case: a notifier that has seen the end may be about to close it.
            try:
                if row.columns.get("state") != notices.GIVEN_UP:
                    await tables.commit(graph_id, [Merge(row.key, row.etag, {"state": notices.OPEN})])
            except (Conflict, Unclear):  # it may have done so just now  # reach: notices
                met = True
        if not met:
            break
    if rows:
        await enter(tables, graph_id, now)


async def retry(tables: Tables, graph_id: str, now: datetime) -> int:
    """Have channels tried at once that were given up, or that wait for their next try. Returns how many."""
    count = 0
    rows = await query_all(tables, graph_id, notices.all_rows())
    undone = [row for row in rows if row.columns.get("state") != notices.DONE]
    for row in undone:
        if row.columns.get("state") == notices.GIVEN_UP or row.columns.get("failures"):
            columns: Columns = {"state": notices.OPEN, "failures": 0, "nextTry": now}
            with contextlib.suppress(Conflict, Unclear):  # another notifier works on it  # reach: notices
                await tables.commit(graph_id, [Merge(row.key, row.etag, columns)])
                count += 1
    if undone:  # an earlier retry may have died between the rows and the index
        await enter(tables, graph_id, now)
    return count


@dataclass(slots=True)
class Notifier:
    """owner: the name of this process in leases."""

    tables: Tables
    clock: Clock
    outlet: Outlet
    owner: str

    async def waiting(self) -> list[Row]:
        """The rows of `INDEX`."""
        return await query_all(self.tables, INDEX, Range())

    async def deliver(self, graph_id: str, *, listed: Row | None = None) -> Deliveries:
        """Deliver the notices of one graph. listed: its row of the index, if that was read."""
        deliveries = Deliveries(graphs=1)
        # The entry is read before everything else, and new notices enter the graph anew: those that came in between are
        # a conflict when it leaves, and the entry stays.
        if listed is None:
            (listed,) = await self.tables.get(INDEX, [graph_id])
        # The state is read before the journal: that of a graph that has ended does not grow.
        (graph,) = await self.tables.get(graph_id, [GRAPH])
        if graph is None:
            await drop_orphan(self.tables, INDEX, listed, self.clock.now())
            return deliveries
        if graph.columns.get("state") in GRAPH_GONE:
            await self._leave(graph_id, listed)  # its notices were dropped by `delete`, or go from elsewhere
            return deliveries
        if graph.columns.get("state") in GRAPH_SEALED:
            deliveries.undone += 1  # they go when it lives, wherever that is
            return deliveries
        ended = graph.columns.get("state") in GRAPH_ENDED
        left = 0
        for row in await query_all(self.tables, graph_id, notices.all_rows()):
            if row.columns.get("state") == notices.DONE:
                continue
            try:
                own = await self._channel(graph_id, graph.columns, row, ended=ended)
            except (Conflict, Unclear):  # reach: notices
                own = Deliveries(waiting=1)  # another notifier delivers, or the next round does
            deliveries.add(own)
            left += own.waiting
        if ended and not left:
            await self._leave(graph_id, listed)
        else:
            deliveries.undone += 1
        return deliveries

    async def _channel(self, graph_id: str, graph: Columns, row: Row, *, ended: bool) -> Deliveries:
        deliveries = Deliveries()
        columns = row.columns
        now = self.clock.now()
        if columns.get("state") == notices.GIVEN_UP:
            deliveries.given_up = 1
            return deliveries
        deliveries.waiting = 1
        if holds(columns.get("nextTry"), now, limits.NOTICE_PAUSE_SECONDS_MAX * 1.25):
            return deliveries
        if holds(columns.get("leaseUntil"), now, limits.NOTICE_LEASE_SECONDS) and columns.get("owner") != self.owner:
            return deliveries
        try:
            channel = notices.channel_of(json.loads(str(columns.get("channel", "{}"))))
        except (ValueError, IntegrityError) as error:
            deliveries.troubles.append(f"{graph_id}: row {row.key}: column channel cannot be read: {error}")
            return deliveries
        if reason := self.outlet.serves(channel):
            deliveries.troubles.append(f"{graph_id}: {channel.display}: {reason}")
            return deliveries
        progress = _Progress(self, graph_id, graph, row, channel)
        if await progress.go_on(deliveries):
            deliveries.waiting = 0
            if ended:
                await progress.done()
        return deliveries

    async def _leave(self, graph_id: str, listed: Row | None) -> None:
        if listed is not None:
            # A conflict: a channel was added, or another process was quicker. The next round looks again.
            with contextlib.suppress(Conflict, Unclear):  # reach: notices
                await self.tables.commit(INDEX, [Delete(graph_id, listed.etag)])


class _Progress:
    """One channel of one graph, and how far it has got."""

    def __init__(self, notifier: Notifier, graph_id: str, graph: Columns, row: Row, channel: Channel) -> None:
        self._notifier = notifier
        self._graph_id = graph_id
        self._graph = graph
        self._row = row
        self._channel = channel
        self._key = row.key.removeprefix(notices.PREFIX)
        self._on = texts(row.columns, "on")
        self._sequence = integer(row.columns, "sequence")
        self._part = integer(row.columns, "part")
        self._delivered = 0
        self._leased = False

    async def go_on(self, deliveries: Deliveries) -> bool:
        """Deliver the rest of the journal; False if the channel did not take all. Raises Conflict, Unclear."""
        tables = self._notifier.tables
        continuation: str | None = None
        while True:
            rest = Range(event_key(self._sequence + 1), "event;", select=("sequence", "time", "events"))
            page = await tables.query(self._graph_id, rest, limit=_PAGE_ROWS, continuation=continuation)
            tasks = await self._tasks(page.rows)
            for row in page.rows:
                if not await self._deliver(row, tasks, deliveries):
                    return False
            continuation = page.continuation if not page.rows else None
            if page.continuation is None:
                break
        if self._leased or self._sequence - integer(self._row.columns, "sequence") >= _PAGE_ROWS:
            await self._write({"failures": 0, "owner": "", "leaseUntil": self._notifier.clock.now()})
        return True

    async def done(self) -> None:
        await self._write({"state": notices.DONE, "failures": 0})

    async def _tasks(self, rows: Sequence[Row]) -> Mapping[str, Columns]:
        """The columns of the tasks in these rows of the journal, by key; none where the channel gets no tasks."""
        if not self._row.columns.get("tasks"):
            return {}
        facts = [fact for row in rows for fact in objects(row.columns, "events")]
        keys = sorted({row_key(str(fact["task"])) for fact in facts if notices.task_keys(fact) and "task" in fact})
        found = await self._notifier.tables.get(self._graph_id, keys) if keys else []
        return {row.key: row.columns for row in found if row is not None}

    async def _deliver(self, row: Row, tasks: Mapping[str, Columns], deliveries: Deliveries) -> bool:
        """Deliver one row of the journal; whether the channel took it."""
        sequence = integer(row.columns, "sequence")
        facts = objects(row.columns, "events")
        first = self._part if sequence == self._sequence + 1 else 0
        for part in range(first, len(facts)):
            fact = facts[part]
            task = tasks.get(row_key(str(fact["task"]))) if "task" in fact else None
            if not notices.wants(fact, self._key, self._on, task):
                continue
            self._sequence, self._part = sequence - 1, part
            if not self._leased:
                await self._lease()
            made = notices.notice(self._graph_id, sequence, part, time_of(row.columns, "time"), fact)
            if self._channel.format and notices.graph_keys(fact):
                from taskgraph.protocol import old_scheduler  # reads a schema, and few channels need it

                made = Notice(made.id, canonical_json(old_scheduler.message(self._graph_id, self._graph, fact)))
            try:
                await self._notifier.outlet.send(self._channel, made)
            except NotDelivered as failure:
                await self._failed(failure, made, deliveries)
                return False
            self._part = part + 1
            self._delivered += 1
            deliveries.delivered += 1
            if self._delivered % _AT_ONCE == 0:
                await self._lease()
        self._sequence, self._part = sequence, 0
        return True

    async def _lease(self) -> None:
        until = self._notifier.clock.now() + timedelta(seconds=limits.NOTICE_LEASE_SECONDS)
        await self._write({"owner": self._notifier.owner, "leaseUntil": until})
        self._leased = True

    async def _failed(self, failure: NotDelivered, notice: Notice, deliveries: Deliveries) -> None:
        clock = self._notifier.clock
        now = clock.now()
        failures = integer(self._row.columns, "failures") + 1
        pause = min(limits.NOTICE_PAUSE_SECONDS_MAX, _PAUSE_SECONDS * 2.0 ** min(failures - 1, 20))
        pause = max(pause * (0.75 + clock.jitter() / 2), min(failure.retry_after, limits.NOTICE_PAUSE_SECONDS_MAX))
        since = (time_of(self._row.columns, "failingSince") if failures > 1 else None) or now
        old = (now - since).total_seconds() > limits.NOTICE_GIVE_UP_SECONDS
        over = failure.final or (old and await clock_trust.may_end(self._notifier.tables, now))
        reason = f"notice {notice.id}: {failure}"[: limits.REASON_CHARS_MAX]
        state = notices.GIVEN_UP if over else notices.OPEN
        again: Columns = {"failures": failures, "failingSince": since, "nextTry": now + timedelta(seconds=pause)}
        await self._write({**again, "lastError": reason, "owner": "", "leaseUntil": now, "state": state})
        deliveries.failed += 1
        deliveries.given_up += over
        deliveries.troubles.append(f"{self._graph_id}: {self._channel.display}: {reason}{'; given up' if over else ''}")

    async def _write(self, columns: Columns) -> None:
        """Write down how far the channel has come. Raises Conflict, Unclear: another notifier may work on it."""
        delivered = integer(self._row.columns, "delivered") + self._delivered
        new: dict[str, Any] = {"sequence": self._sequence, "part": self._part, "delivered": delivered, **columns}
        (etag,) = await self._notifier.tables.commit(self._graph_id, [Merge(self._row.key, self._row.etag, new)])
        self._delivered = 0
        if etag is None:
            (found,) = await self._notifier.tables.get(self._graph_id, [self._row.key])
            if found is None:
                raise Conflict(f"graph {self._graph_id}: row {self._row.key} is gone")
            self._row = found
        else:
            self._row = Row(self._row.key, etag, {**self._row.columns, **new})
