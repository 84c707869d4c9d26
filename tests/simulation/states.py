"""The whole state of a playing between two steps, as a value: equal values have the same future.

What is in it: every row with every column, every message, what each process remembers and which rows it keeps, old ones
too, what workers hold, where the driver stands, and what the invariants and the verdict will look at. Four things are
left out or renamed, because nothing that happens later can depend on them:

- **names.** Etags, receipts and operation ids are compared with copies that an actor holds, and between two steps no
  actor holds any, but for a worker's receipt of a message (in the state: whether it is still the message's). Claims are
  compared with claims: they are numbered in the order in which they are met, and equal ones stay equal. Ids of messages
  decide in which order messages are taken: the order is in the state. New names are always new.
- **the hour.** The code compares times with the present time only, so a time is kept as its distance from now. The
  clock's ticks make such differences exact. One thing goes by the time of day, so that is in the state: about every ten
  minutes the sweep looks through the registry of workers.
- **times that nobody will compare**: those in texts and in the columns of `FOR_PEOPLE`, and those that count in one
  state only (`WHILE`), while the row is in another.
- **the past**: claims of runs that are over (no run ever comes back: checked at every commit), which states the graph
  went through, and how many calls it took.

`test_exhaustive` names what a process keeps, part by part. What was left out for equal states it plays in full, and
sees that it goes on and ends alike.
"""

import re
from collections.abc import Hashable, Mapping
from datetime import datetime
from typing import Final

from taskgraph.engine.commit import _SEQUENCES_KEPT_SECONDS
from taskgraph.engine.dispatch import _HINT_SECONDS, Dispatcher
from taskgraph.engine.sweep import _CLEAN_SECONDS
from taskgraph.model import limits
from taskgraph.model.ids import GRAPH
from taskgraph.model.names import ALL, LIVE, POISON, listing_key
from taskgraph.model.timing import NEVER
from taskgraph.queries.event_queues import LOOK_SECONDS
from taskgraph.storage.tables import Row
from tests.simulation.lives import GRAPH_ID
from tests.simulation.playing import ASK_AGAIN_SECONDS, Play, fresh_id

FOR_PEOPLE: Final = frozenset(
    {"started", "ended", "resolved", "time", "answered", "blocked", "finished", "cancelled", "setAside", "replayed"}
)
"""Columns with times that are written, copied and shown, and never compared."""

WHILE: Final[Mapping[str, frozenset[str]]] = {
    "leaseUntil": frozenset({"running"}),
    "pendingSince": frozenset({"pending"}),
    "staged": frozenset({"staged", "accepted"}),
    "created": frozenset({"submitting"}),
    "notBefore": frozenset({"unscheduled", "pending"}),
    "deadline": frozenset({"unscheduled", "pending", "running"}),
    "nextDeadline": frozenset({"running", "blocked"}),
}
"""Columns with times -> the states of their row in which anybody compares them."""

_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:\+00:00|Z)?")
_FRESH: Final = re.compile(re.escape(fresh_id(1)[:16]) + "[A-Za-z0-9_-]{6}")
_PIECES_MAX: Final = 200_000

Piece = tuple[int, tuple[str, ...], tuple[datetime, ...]]
State = tuple[Hashable, ...]


class States:
    """States of one life. Equal parts are kept once, and compared by number."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._pieces: dict[int, tuple[Row, Piece]] = {}  # by identity: a row never changes
        self._listed: dict[int, tuple[Row, int, tuple[str, ...]]] = {}
        self._bodies: dict[str, tuple[int, tuple[str, ...]]] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def _number(self, value: Hashable) -> int:
        return self._numbers.setdefault(value, len(self._numbers))

    def _text(self, text: str) -> tuple[str, tuple[str, ...]]:
        """A text without times, with a mark for each fresh id in it; and these ids."""
        found = tuple(_FRESH.findall(text))
        return _TIME.sub("T", _FRESH.sub("#", text) if found else text), found

    def _piece(self, row: Row) -> Piece:
        known = self._pieces.get(id(row))
        if known is not None and known[0] is row:
            return known[1]
        state = row.columns.get("state")
        columns: list[tuple[str, Hashable]] = []
        ids: list[str] = []
        times: list[datetime] = []
        for name, value in sorted(row.columns.items()):
            if name == "operation":
                continue
            if isinstance(value, str):
                value, found = self._text(value)
                ids += found
            elif isinstance(value, datetime):
                counts = name not in FOR_PEOPLE and (name not in WHILE or state in WHILE[name])
                if counts and value != NEVER:
                    times.append(value)
                value = counts
            columns.append((name, value))
        piece = self._number((row.key, *columns)), tuple(ids), tuple(times)
        if len(self._pieces) >= _PIECES_MAX:
            self._pieces.clear()
        self._pieces[id(row)] = row, piece
        return piece

    def _body(self, body: str) -> tuple[int, tuple[str, ...]]:
        known = self._bodies.get(body)
        if known is None:
            text, ids = self._text(body)
            known = self._bodies[body] = self._number(text), ids
        return known

    def of(self, play: Play) -> State:
        """The state of a playing."""
        now, seconds, driver = play.clock.now(), play.clock.seconds, play.driver
        assert seconds <= _SEQUENCES_KEPT_SECONDS, "a process may forget the ends of journals, which no state foresees"
        names: dict[str, int] = {}
        partitions, queues = play.tables.partitions, play.queues.messages
        rows: list[Hashable] = []
        own = partitions.get(GRAPH_ID, {})
        for key in sorted(own):
            number, ids, times = self._piece(own[key])
            rows.append(number)
            rows.extend(time - now for time in times)
            rows.extend(-1 - names.setdefault(each, len(names)) for each in ids)
        parts: list[Hashable] = [self._number(tuple(rows))]
        messages: list[Hashable] = []
        for name in sorted(queues):
            held = queues[name]
            if not held:
                continue
            messages.append(name)
            for key in sorted(held):
                visible_at, count, _, body = held[key]
                number, ids = self._body(body)
                messages += (max(0.0, visible_at - seconds), count, number)
                messages += (names.setdefault(each, len(names)) for each in ids)
        parts.append(self._number(tuple(messages)))
        parts.append(self._number(self._others(play, names, now)))
        inner = play.invariants
        parts.append(
            self._number(
                (
                    frozenset(inner.states.items()),
                    frozenset(inner.runs.items()),
                    frozenset(inner.failed_runs.items()),
                    frozenset(inner.temporary_runs.items()),
                    inner.lost_leases,
                    inner.failed_for_good,
                    inner.completed,
                    inner.skipped,
                    frozenset(inner.paused),
                    inner.sequence,
                    inner.graph_state,
                    tuple(
                        names.setdefault(claim, len(names))
                        for each in sorted(inner.runs.items())
                        if (claim := inner.claims.get(each)) is not None
                    ),
                )
            )
        )
        parts.append(self._number(tuple(frozenset(count.items()) for count in play.counts())))
        parts.append(self._number(tuple(frozenset(memory.items()) for memory in play.memories())))
        parts.append(
            self._number(
                tuple(
                    (
                        tuple(  # those that rank alike go in this order
                            (*key, one.target, one.scopes, one.rank, one.since and one.since - now)
                            for key, one in backlog.waiting.items()
                        ),
                        frozenset((key, seconds - at) for key, (at, _) in backlog.sent.items()),
                        backlog.whole_until > 0,
                    )
                    for own in play.backlogs()
                    for backlog in own.values()
                )
            )
        )
        parts.append(self._number(tuple(_sent(dispatcher, seconds) for dispatcher in play.dispatchers())))
        parts.append(self._number(self._kept(play, names, now)))
        for one in play.held:
            waiting = queues.get(one.delivery.queue, {})
            message = waiting.get(one.delivery.id)
            parts += (
                one.label,
                one.claim.run,
                names.setdefault(one.claim.claim, len(names)),
                one.delivery.queue,
                sorted(waiting).index(one.delivery.id) if message else -1,
                message is not None and message[2] == one.delivery.receipt,
                max(0.0, one.until - seconds),
            )
        parts += (
            driver.place,
            driver.moved,
            driver.consumer,
            driver.submitted,
            driver.acts_done,
            max(driver.act_tried_at - seconds, -ASK_AGAIN_SECONDS),
            driver.rerun_of,
            driver.next_sweep - seconds,
            now.timestamp() % _CLEAN_SECONDS,
        )
        return tuple(parts)

    def _kept(self, play: Play, names: dict[str, int], now: datetime) -> Hashable:
        """The rows that each process keeps: of one that stands so still, the key alone; of an old one, what it says."""
        found: list[Hashable] = []
        for kept in play.kept():
            for graph_id, known in sorted(kept.items()):
                own = play.tables.partitions.get(graph_id, {})
                found += (
                    graph_id,
                    frozenset(known.covered.items()),
                    known.alone,
                    known.pages,
                    known.hits,
                    known.absent,
                )
                for key, row in sorted(known.rows.items()):
                    present = own.get(key)
                    found.append(key)
                    if row is None or (present is not None and row.etag == present.etag):
                        found.append(row is not None)
                        continue
                    number, ids, times = self._piece(row)
                    found += (number, *(time - now for time in times))
                    found += (-1 - names.setdefault(each, len(names)) for each in ids)
            found.append(None)
        return tuple(found)

    def _others(self, play: Play, names: dict[str, int], now: datetime) -> Hashable:
        """The rows that are of no graph."""
        found: list[Hashable] = []
        partitions = play.tables.partitions
        graph = partitions.get(GRAPH_ID, {}).get(GRAPH)
        for partition in sorted(partitions):
            if partition == GRAPH_ID:
                continue
            for key, row in sorted(partitions[partition].items()):
                known = self._listed.get(id(row))
                if known is None or known[0] is not row:
                    columns = {name: value for name, value in row.columns.items() if not isinstance(value, datetime)}
                    texts, ids = self._text(repr(sorted(columns.items())))
                    known = self._listed[id(row)] = row, self._number(texts), ids
                if partition == POISON:  # of a message that is waiting, or gone
                    queue, _, message = key.rpartition(":")
                    waiting = sorted(play.queues.messages.get(queue, {}))
                    key = f"{queue}:{waiting.index(message) if message in waiting else 'gone'}"
                elif partition == ALL and graph is not None:
                    key = str(key == listing_key(GRAPH_ID, graph.columns["created"]))
                found.append((partition, key, known[1], *(names.setdefault(each, len(names)) for each in known[2])))
                since = row.columns.get("since")
                if partition == LIVE and graph is None and isinstance(since, datetime):
                    found.append(since - now)  # else nobody asks for how long it has been there
        return tuple(sorted(found, key=repr) if partitions.get(POISON) else found)


def _sent(dispatcher: Dispatcher, seconds: float) -> Hashable:
    """What a process knows of what it has sent, and of levels that are used. Of times, only what may still count."""
    used_at, windows = dispatcher._used_at, dispatcher.windows
    looked = dispatcher.event_queues._looked
    fresh = used_at is not None and seconds - used_at < limits.GATE_SECONDS
    found: list[Hashable] = [
        frozenset((key, min(seconds - at, limits.LEVEL_SECONDS / 2)) for key, at in dispatcher._levels.items()),
        frozenset((key, min(seconds - at, _HINT_SECONDS)) for key, at in dispatcher._hinted.items()),
        bool(dispatcher._used),
        (seconds - used_at, repr(sorted(dispatcher._used.items()))) if fresh else None,
        seconds - looked if looked is not None and seconds - looked < LOOK_SECONDS else None,
        dispatcher.has_moved_left,
    ]
    if windows is not None:
        found.append(frozenset(windows.more))
        for queue, window in windows._windows.items():
            lanes = [(graph_id, lane) for graph_id, lane in window.lanes.items() if lane.sent or lane.unsent]
            found += (queue, window.size, window.fed, max(0.0, window.steady - seconds))
            if window.waits:
                found += (window.results, seconds - window.since, window.look - seconds, window.pause)
                found += ((graph_id, *lane.sent.items(), None, *lane.unsent.items()) for graph_id, lane in lanes)
            else:
                found += ((graph_id, frozenset(lane.sent.items())) for graph_id, lane in lanes)
    return tuple(found)
