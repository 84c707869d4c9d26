"""Messages that cannot be handled: set aside with the reason, listed, replayed (P20).

A message leaves its queue in only two ways, handled or set aside: then a row says why, keyed by queue and message id,
and the message itself is in `<queue>-poison`. The row is written first and the original deleted last, so a crash in
between loses nothing. Failures are counted on that row, because the queue's own count also grows when storage fails.
"""

import contextlib
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from taskgraph.engine.telemetry import OFF, Origin, Telemetry, graph_in, marks_of, watched
from taskgraph.model import limits
from taskgraph.model.clock import Clock
from taskgraph.model.columns import Value, integer, time_of
from taskgraph.model.errors import Conflict, InvalidMessage, NotFound, Refused, StaleDelivery, TooLarge, Unclear
from taskgraph.model.messages import Message, TaskResult, UnknownVersion, graph_named, parse, type_of
from taskgraph.model.names import POISON, QueueNames
from taskgraph.protocol.definitions import SCHEMA, gathered, spread
from taskgraph.storage.queues import Delivery, Queues
from taskgraph.storage.tables import Delete, Insert, Merge, Range, Row, Tables, query_all

log = logging.getLogger("taskgraph.poison")

NEWER_VERSION_SECONDS: Final = 30.0
"""Until a message, or rows, of a newer version are offered again: another process may be of that version."""

_DRAIN_LEASE_SECONDS: Final = 30.0
_RETRY_SECONDS_MAX: Final = 60.0
_KEY: Final = re.compile(r"[a-z0-9-]{3,63}:[A-Za-z0-9-]{1,200}")  # a queue and the id that it gave a message


class PoisonState(StrEnum):
    FAILING = "failing"  # handling it failed, and it will be tried again
    POISON = "poison"  # set aside
    REPLAYED = "replayed"  # put back on its queue by hand


@dataclass(frozen=True, slots=True)
class PoisonMessage:
    """A message that was set aside, or has been put back since."""

    key: str
    queue: str
    body: str
    reason: str
    failures: int
    state: str
    set_aside: datetime | None


class Poison:
    def __init__(
        self, tables: Tables, queues: Queues, clock: Clock, names: QueueNames, telemetry: Telemetry = OFF
    ) -> None:
        self._tables = tables
        self._queues = queues
        self._clock = clock
        self._names = names
        self._telemetry = telemetry

    async def read(self, delivery: Delivery, misplaced: Callable[[Message], str]) -> Message | None:
        """None if the message was set aside or left to a newer version.

        misplaced: returns why a message does not belong on the queue it came by, "" if it does.
        """
        try:
            message = parse(delivery.body)
            reason = misplaced(message)
        except InvalidMessage as error:
            reason = str(error)
        except UnknownVersion as error:
            log.warning("message %s of %s is left to a newer version: %s", delivery.id, delivery.queue, error)
            await release(self._queues, delivery, NEWER_VERSION_SECONDS)
            self.say(delivery, "newer-version")
            return None
        if reason:  # it quotes the message, so it stands in the row alone
            log.warning("message %s of %s is set aside: see taskgraph poison list", delivery.id, delivery.queue)
        elif delivery.dequeue_count > limits.POISON_DELIVERIES_MAX:
            reason = f"taken {delivery.dequeue_count} times and never handled to an end"
        else:
            return message
        await self.set_aside(delivery, reason)
        self.say(delivery, "poison")
        return None

    async def set_aside(self, delivery: Delivery, reason: str) -> None:
        """Write down why, put the message into the poison queue, take it from its own. Repeatable."""
        await self._write(delivery, reason, PoisonState.POISON)
        try:
            await self._queues.send(self._names.poison(delivery.queue), [delivery.body])
        except (TooLarge, ValueError):
            log.warning("message %s is kept in its row alone: foreign senders may send what we may not", delivery.id)
        with contextlib.suppress(StaleDelivery):  # leased again meanwhile: the process that has it sets it aside, too
            await self._queues.delete(delivery)

    async def failed(self, delivery: Delivery, reason: str) -> bool:
        """Count one failure of handling: the message comes back later, or (True) is set aside after too many."""
        row = await self._write(delivery, reason, PoisonState.FAILING)
        if row and integer(row.columns, "failures") > limits.POISON_FAILURES_MAX:
            await self.set_aside(delivery, reason)
            return True
        pause = min(2.0 ** min(delivery.dequeue_count, 10) / 2, _RETRY_SECONDS_MAX)
        await release(self._queues, delivery, pause)
        return False

    async def record(self, delivery: Delivery, reason: str) -> None:
        """Write down a message that will never be handled, whose host takes it from its queue by itself."""
        await self._write(delivery, reason, PoisonState.POISON)
        self.say(delivery, "poison")

    async def note(self, delivery: Delivery, reason: str) -> None:
        """Count one failure of handling a message that its host will offer again, or give up, by itself."""
        await self._write(delivery, reason, PoisonState.FAILING)

    async def given_up(self, delivery: Delivery, reason: str) -> None:
        """Write down a message that its host gave up. Repeatable.

        delivery: the copy on the poison queue, with the queue that the message was for; the host gives it a new id.
        reason: for a message of which no failure was noted.
        """
        noted = Range(where={"queue": (delivery.queue,), "state": (str(PoisonState.FAILING), str(PoisonState.POISON))})
        for row in await query_all(self._tables, POISON, noted):
            if gathered(row.columns, "body") == delivery.body:
                if row.columns.get("state") == PoisonState.FAILING:
                    columns: dict[str, Value] = {"state": str(PoisonState.POISON), "setAside": self._clock.now()}
                    await self._tables.commit(POISON, [Merge(row.key, row.etag, columns)])
                    self._telemetry.poisoned(delivery.queue)
                return
        await self._write(delivery, reason, PoisonState.POISON)

    async def recovered(self, delivery: Delivery) -> None:
        """Delete the row of a message that had failed before and was handled after all."""
        row = await self._row(_key(delivery))
        if row is not None and row.columns.get("state") == PoisonState.FAILING:
            with contextlib.suppress(Conflict, Unclear):  # a row that says "failing" a little longer does no harm
                await self._tables.commit(POISON, [Delete(row.key, row.etag)])

    async def list(self) -> Sequence[PoisonMessage]:
        rows = await query_all(self._tables, POISON, Range(where={"state": (str(PoisonState.POISON),)}))
        return [_message(row) for row in rows]

    async def replay(self, key: str, by: str = "") -> PoisonMessage:
        """Put a message back on its queue, and take its copies off the poison queue. by: who asks.

        Raises NotFound, Refused.
        """
        row = await self._row(key) if _KEY.fullmatch(key) else None
        if row is None:
            raise NotFound(f"no message {key} is set aside", [each.key for each in await self.list()][:3])
        message = _message(row)
        if message.state != PoisonState.POISON:
            raise Refused(f"message {key} is {message.state}", "not-set-aside")
        try:
            await self._queues.send(message.queue, [message.body])
        except (TooLarge, ValueError) as error:
            raise Refused(f"message {key} cannot be sent again: {error}", "cannot-be-sent") from error
        columns: dict[str, Value] = {"state": str(PoisonState.REPLAYED), "failures": 0}
        columns |= {"replayed": self._clock.now(), "replayedBy": by}
        try:
            await self._tables.commit(POISON, [Merge(row.key, row.etag, columns)])
        except Conflict as conflict:
            raise Conflict(f"another process is handling message {key}; look again") from conflict
        await self._drain(self._names.poison(message.queue), message.body)
        return message

    async def forget(self, graph_id: str) -> int:
        """Delete the rows of messages about a graph, and their copies; returns how many. Repeatable."""
        count = 0
        for row in await query_all(self._tables, POISON, Range()):
            message = _message(row)
            if graph_named(message.body) != graph_id:
                continue
            if message.state == PoisonState.POISON:
                await self._drain(self._names.poison(message.queue), message.body)
            # It is gone, or the message has just failed again.
            with contextlib.suppress(Conflict, Unclear):  # reach: deletion
                await self._tables.commit(POISON, [Delete(row.key, row.etag)])
                count += 1
        return count

    async def _drain(self, queue: str, body: str) -> None:
        others: list[Delivery] = []
        while True:
            deliveries = await self._queues.receive(queue, count=limits.RECEIVE_MAX, lease_seconds=_DRAIN_LEASE_SECONDS)
            if not deliveries:
                break
            for delivery in deliveries:
                if delivery.body == body:
                    await self._queues.delete(delivery)
                else:
                    others.append(delivery)
        for delivery in others:
            await release(self._queues, delivery, 0)

    def say(self, delivery: Delivery, outcome: str) -> None:
        """Log a message that was not handled."""
        if watched(self._telemetry):
            kind, _ = graph_in(delivery.body)
            origin = Origin(delivery.queue, delivery.id, delivery.dequeue_count, kind, outcome=outcome)
            origin.marks = marks_of(delivery.body)
            self._telemetry.message(origin, 0.0)

    async def _row(self, key: str) -> Row | None:
        (row,) = await self._tables.get(POISON, [key])
        return row

    async def _write(self, delivery: Delivery, reason: str, state: PoisonState) -> Row | None:
        key, add = _key(delivery), int(state is PoisonState.FAILING)
        for _ in range(limits.COMMIT_ATTEMPTS_MAX):
            row = await self._row(key)
            columns: dict[str, Value] = {"state": str(state), "reason": reason[: limits.REASON_CHARS_MAX]}
            if state is PoisonState.POISON:
                columns["setAside"] = self._clock.now()
            try:
                if row is None:
                    columns |= {"schema": SCHEMA, "queue": delivery.queue, "failures": add}
                    columns |= spread("body", delivery.body)
                    await self._tables.commit(POISON, [Insert(key, columns)])
                else:
                    columns["failures"] = integer(row.columns, "failures") + add
                    await self._tables.commit(POISON, [Merge(key, row.etag, columns)])
            except (Conflict, Unclear):
                continue  # counting one failure twice is harmless
            if state is PoisonState.POISON:
                self._telemetry.poisoned(delivery.queue)
            return await self._row(key)
        raise Conflict(f"message {key}: others kept writing its row")


def origin_of(message: Message, delivery: Delivery | None, began: float) -> Origin:
    """A message in hand. delivery: None for one of this process."""
    origin = Origin(delivery.queue, delivery.id, delivery.dequeue_count) if delivery is not None else Origin("")
    origin.type, origin.graph, origin.began = type_of(message), message.graph, began
    if delivery is not None:
        origin.marks = marks_of(delivery.body)
    tasks = getattr(message, "tasks", ())
    origin.tasks = len(tasks)
    match (message, *tasks):
        case (_, str(task)):
            origin.task = task
        case (_, (task, run)):
            origin.task, origin.run = task, run
        case (_, TaskResult(task=task, run=run)):
            origin.task, origin.run = task, run
    return origin


async def release(queues: Queues, delivery: Delivery, seconds: float) -> None:
    """Let a message come back after so long."""
    with contextlib.suppress(StaleDelivery):  # it is back already
        await queues.renew(delivery, lease_seconds=seconds)


def _key(delivery: Delivery) -> str:
    return f"{delivery.queue}:{delivery.id}"


def _message(row: Row) -> PoisonMessage:
    columns = row.columns
    return PoisonMessage(
        key=row.key,
        queue=str(columns.get("queue", "")),
        body=gathered(columns, "body"),
        reason=str(columns.get("reason", "")),
        failures=integer(columns, "failures"),
        state=str(columns.get("state", "")),
        set_aside=time_of(columns, "setAside"),
    )
