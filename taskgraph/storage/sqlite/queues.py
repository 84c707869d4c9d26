"""The embedded store's queues: one row per message, with the time from which it can be received (`visible_at`).

`since` is when that time was written: a message that a clock ahead has hidden is hidden for its length, not until then.
"""

import json
import logging
import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from taskgraph.model import limits
from taskgraph.model.clock import Clock
from taskgraph.model.errors import StaleDelivery
from taskgraph.storage import checks
from taskgraph.storage.queues import Delivery, Hidden
from taskgraph.storage.sqlite.file import File, Session

log = logging.getLogger("taskgraph.storage")

_SEND: Final = "INSERT INTO message (queue, visible_at, since, body) SELECT ?, ?, ?, value FROM json_each(?)"
_SEND_ONE: Final = "INSERT INTO message (queue, visible_at, since, body) VALUES (?, ?, ?, ?)"
_WAITING: Final = "SELECT 1 FROM message WHERE queue = ? AND visible_at <= ? LIMIT 1"
_NEXT: Final = """
    SELECT json_group_array(json_array(visible_at, id, lease, dequeue_count, body))
    FROM (SELECT visible_at, id, lease, dequeue_count, body FROM message
          WHERE queue = ? AND visible_at <= ? ORDER BY visible_at, id LIMIT ?)
"""
_LEASE: Final = """
    UPDATE message SET visible_at = ?, since = ?, lease = lease + 1, dequeue_count = dequeue_count + 1
    WHERE id IN (SELECT value FROM json_each(?))
"""
_RENEW: Final = (
    "UPDATE message SET visible_at = ?, since = ?, lease = lease + 1 WHERE id = ? AND queue = ? AND lease = ?"
)
_ACKNOWLEDGE: Final = "DELETE FROM message WHERE id = ? AND queue = ? AND lease = ?"
_HIDDEN: Final = "SELECT 1 FROM message WHERE queue = ? AND visible_at > ? LIMIT 1"
_AHEAD: Final = "SELECT 1 FROM message WHERE queue = ? AND visible_at > ? AND since > ? LIMIT 1"
_SET_RIGHT: Final = """
    UPDATE message SET visible_at = ? + visible_at - since, since = ? WHERE queue = ? AND visible_at > ? AND since > ?
"""
_HIDDEN_AHEAD: Final = """
    SELECT json_group_array(json_array(queue, count, latest, longest))
    FROM (SELECT queue, count(*) AS count, max(visible_at) AS latest, max(visible_at - since) AS longest FROM message
          WHERE visible_at > ? AND since > ? GROUP BY queue)
"""
_SET_RIGHT_SECONDS: Final = 5.0  # between two looks of a process for messages of a clock that was ahead
_COUNT: Final = "SELECT count(*) FROM message WHERE queue = ?"

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_dump: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class EmbeddedQueues:
    """Gives the oldest messages first, by visibility."""

    def __init__(self, file: File, clock: Clock) -> None:
        self._file = file
        self._clock = clock
        self._looked: dict[str, float] = {}  # queue -> when it was searched for messages of a clock that was ahead

    def _micros(self, later_seconds: float = 0) -> int:
        return (self._clock.now() - _EPOCH) // _MICROSECOND + round(later_seconds * 1_000_000)

    async def send(self, queue: str, bodies: Sequence[str], *, delay_seconds: float = 0) -> None:
        checks.check_send(queue, bodies, delay_seconds)
        if not bodies:
            return
        since, visible_at = self._micros(), self._micros(delay_seconds)
        one = len(bodies) == 1
        text = bodies[0] if one else _dump(list(bodies))

        def work(session: Session) -> None:
            session.begin()
            session.run(_SEND_ONE if one else _SEND, queue, visible_at, since, text)
            session.wrote(len(bodies), len(text))

        await self._file.call(work, rows=len(bodies))

    async def receive(self, queue: str, *, count: int = 1, lease_seconds: float) -> list[Delivery]:
        checks.check_receive(queue, count, lease_seconds)
        now, until = self._micros(), self._micros(lease_seconds)
        moment = self._clock.monotonic()
        if moment - self._looked.get(queue, -math.inf) >= _SET_RIGHT_SECONDS:
            self._looked[queue] = moment
            # Nearly always none is hidden, and that is seen at once.
            hidden = await self._file.call(lambda session: session.one(_HIDDEN, queue, now), rows=1)
            if hidden and (ahead := await self.set_right(queue)):
                log.warning("%d messages of %s were hidden by a clock that was ahead: they are set right", ahead, queue)
        return await self._file.call(lambda session: _receive(session, queue, count, now, until), rows=count)

    async def renew(self, delivery: Delivery, *, lease_seconds: float) -> Delivery:
        checks.check_renew(lease_seconds)
        number, lease = _numbers(delivery)
        since, until = self._micros(), self._micros(lease_seconds)

        def work(session: Session) -> None:
            session.begin()
            if not session.run(_RENEW, until, since, number, delivery.queue, lease):
                raise _stale(delivery)
            session.wrote(1, 0)

        await self._file.call(work, rows=1)
        return Delivery(delivery.queue, delivery.id, str(lease + 1), delivery.body, delivery.dequeue_count)

    async def delete(self, delivery: Delivery) -> None:
        number, lease = _numbers(delivery)

        def work(session: Session) -> None:
            session.begin()
            if not session.run(_ACKNOWLEDGE, number, delivery.queue, lease):
                raise _stale(delivery)
            session.wrote(1, 0)

        await self._file.call(work, rows=1)

    async def count(self, queue: str) -> int:
        checks.check_queue_name(queue)
        (count,) = await self._file.call(lambda session: session.one(_COUNT, queue))
        return int(count)

    async def hidden_ahead(self) -> list[Hidden]:
        now = self._micros()
        (text,) = await self._file.call(lambda session: session.one(_HIDDEN_AHEAD, now, _latest(now)))
        return [
            Hidden(queue, count, _EPOCH + until * _MICROSECOND, longest / 1_000_000)
            for queue, count, until, longest in json.loads(text)
        ]

    async def set_right(self, queue: str) -> int:
        now = self._micros()
        return await self._file.call(lambda session: _set_right(session, queue, now))


def _latest(now: int) -> int:
    """The latest `since` of clocks that agree with ours."""
    return now + round(limits.CLOCK_SLACK_SECONDS * 1_000_000)


def _set_right(session: Session, queue: str, now: int) -> int:
    latest = _latest(now)
    if session.one(_AHEAD, queue, now, latest) is None:
        return 0
    session.begin()
    changed = session.run(_SET_RIGHT, now, now, queue, now, latest)
    session.wrote(changed, 0)
    return changed


def _receive(session: Session, queue: str, count: int, now: int, until: int) -> list[Delivery]:
    if not session.writing:
        # A look first: an idle consumer must not take the writers' turn at every poll.
        if session.one(_WAITING, queue, now) is None:
            return []
        session.begin()  # others may take what was seen, up to here
    (text,) = session.one(_NEXT, queue, now, count)
    messages = sorted(json.loads(text))
    if not messages:
        return []
    session.run(_LEASE, until, now, _dump([message[1] for message in messages]))
    session.wrote(len(messages), len(text))
    return [
        Delivery(queue, str(number), str(lease + 1), body, dequeued + 1)
        for _, number, lease, dequeued, body in messages
    ]


def _numbers(delivery: Delivery) -> tuple[int, int]:
    try:
        return int(delivery.id), int(delivery.receipt)
    except ValueError as error:
        raise _stale(delivery) from error


def _stale(delivery: Delivery) -> StaleDelivery:
    return StaleDelivery(f"message {delivery.id} of {delivery.queue} is in other hands now, or deleted")
