"""Messages that cannot be handled: set aside with the reason, listed, replayed (P20).

What this room is for: a message leaves its queue in only two ways, handled or set aside. Set aside means a row that
says why, keyed by queue and message id, and the message itself in `<queue>-poison`; row first, original deleted last,
so a crash in between repeats and loses nothing. Failures are counted on that row, because the queue's own count also
grows when storage fails, which is nobody's fault. It never judges a graph: the sweep mends what a poisoned message
leaves undone.
"""

import json
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
from taskgraph.model.columns import Value
from taskgraph.model.errors import Conflict, InvalidMessage, NotFound, Refused, StaleDelivery, TooLarge, Unclear
from taskgraph.model.messages import Message, Rerun, TaskResult, UnknownVersion, parse, type_of
from taskgraph.model.names import POISON, QueueNames
from taskgraph.protocol.definitions import SCHEMA, gathered, spread
from taskgraph.storage.queues import Delivery, Queues
from taskgraph.storage.tables import Delete, Insert, Merge, Range, Row, Tables, query_all

log = logging.getLogger("taskgraph.poison")

NEWER_VERSION_SECONDS: Final = 30.0
"""Until a message, or rows, of a newer version are offered again: somebody else may know them."""

_DRAIN_LEASE_SECONDS: Final = 30.0
_RETRY_SECONDS_MAX: Final = 60.0
_KEY: Final = re.compile(r"[a-z0-9-]{3,63}:[A-Za-z0-9-]{1,200}")  # a queue and the id that it gave a message


class PoisonState(StrEnum):
    """States of a poison row."""

    FAILING = "failing"  # handling it failed, and it will be tried again
    POISON = "poison"  # set aside
    REPLAYED = "replayed"  # put back on its queue by hand


@dataclass(frozen=True, slots=True)
class PoisonMessage:
    """One message that was set aside (or put back since)."""

    key: str
    queue: str
    body: str
    reason: str
    failures: int
    state: str
    set_aside: datetime | None


class Poison:
    """The desk for messages that cannot be handled."""

    def __init__(
        self, tables: Tables, queues: Queues, clock: Clock, names: QueueNames, telemetry: Telemetry = OFF
    ) -> None:
        self._tables = tables
        self._queues = queues
        self._clock = clock
        self._names = names
        self._telemetry = telemetry

    async def read(self, delivery: Delivery, misplaced: Callable[[Message], str]) -> Message | None:
        """The message in a delivery, or None when it has been set aside or left to a newer version.

        misplaced: why a message does not belong on the queue it came by, "" if it does.
        """
        try:
            message = parse(delivery.body)
            if reason := misplaced(message):
                raise InvalidMessage(reason)
        except InvalidMessage as error:
            # Not with the reason, which quotes the message: that is in its row.
            log.warning("message %s of %s is set aside: see taskgraph poison list", delivery.id, delivery.queue)
            await self.set_aside(delivery, str(error))
            self.say(delivery, "poison")
            return None
        except UnknownVersion as error:
            log.warning("message %s of %s is left to a newer version: %s", delivery.id, delivery.queue, error)
            await release(self._queues, delivery, NEWER_VERSION_SECONDS)
            self.say(delivery, "newer-version")
            return None
        if delivery.dequeue_count > limits.POISON_DELIVERIES_MAX:
            await self.set_aside(delivery, f"taken {delivery.dequeue_count} times and never handled to an end")
            self.say(delivery, "poison")
            return None
        return message

    async def set_aside(self, delivery: Delivery, reason: str) -> None:
        """Write down why, put the message into the poison queue, take it from its own. Repeatable."""
        await self._write(delivery, reason, PoisonState.POISON, add=0)
        self._telemetry.poisoned(delivery.queue)
        try:
            await self._queues.send(self._names.poison(delivery.queue), [delivery.body])
        except (TooLarge, ValueError):
            log.warning("message %s is kept in its row alone: foreign senders may send what we may not", delivery.id)
        try:
            await self._queues.delete(delivery)
        except StaleDelivery:
            return  # leased again meanwhile: whoever has it now comes here too

    async def failed(self, delivery: Delivery, reason: str) -> bool:
        """Count one failure of handling; set the message aside after too many. Gives whether it was.

        Otherwise it comes back after a pause that doubles.
        """
        row = await self._write(delivery, reason, PoisonState.FAILING, add=1)
        failures = row.columns.get("failures", 0) if row else 0
        if isinstance(failures, int) and failures > limits.POISON_FAILURES_MAX:
            await self.set_aside(delivery, reason)
            return True
        pause = min(2.0 ** min(delivery.dequeue_count, 10) / 2, _RETRY_SECONDS_MAX)
        await release(self._queues, delivery, pause)
        return False

    async def record(self, delivery: Delivery, reason: str) -> None:
        """Write down a message that will never be handled, whose host takes it from its queue by itself."""
        await self._write(delivery, reason, PoisonState.POISON, add=0)
        self._telemetry.poisoned(delivery.queue)
        self.say(delivery, "poison")

    async def note(self, delivery: Delivery, reason: str) -> None:
        """Count one failure of handling a message that its host will offer again, or give up, by itself."""
        await self._write(delivery, reason, PoisonState.FAILING, add=1)

    async def given_up(self, delivery: Delivery, reason: str) -> None:
        """Write down a message that its host gave up. Repeatable.

        delivery: the copy on the poison queue, with the queue that the message was for; the host gives it a new id.
        Whatever was noted of the same message is kept, and `reason` is for those of which nothing was.
        """
        noted = Range(where={"queue": (delivery.queue,), "state": (str(PoisonState.FAILING), str(PoisonState.POISON))})
        for row in await query_all(self._tables, POISON, noted):
            if gathered(row.columns, "body") == delivery.body:
                if row.columns.get("state") == PoisonState.FAILING:
                    columns: dict[str, Value] = {"state": str(PoisonState.POISON), "setAside": self._clock.now()}
                    await self._tables.commit(POISON, [Merge(row.key, row.etag, columns)])
                    self._telemetry.poisoned(delivery.queue)
                return
        await self._write(delivery, reason, PoisonState.POISON, add=0)
        self._telemetry.poisoned(delivery.queue)

    async def recovered(self, delivery: Delivery) -> None:
        """A message that had failed before was handled after all: its row goes."""
        row = await self._row(_key(delivery))
        if row is not None and row.columns.get("state") == PoisonState.FAILING:
            try:
                await self._tables.commit(POISON, [Delete(row.key, row.etag)])
            except (Conflict, Unclear):
                return  # it says "failing" a little longer; nobody decides on that

    async def list(self) -> Sequence[PoisonMessage]:
        """What is set aside now."""
        rows = await query_all(self._tables, POISON, Range(where={"state": (str(PoisonState.POISON),)}))
        return [_message(row) for row in rows]

    async def replay(self, key: str) -> PoisonMessage:
        """Put a message back on its queue, and take its copies off the poison queue.

        Raises NotFound for an unknown key, Refused for one that is not set aside, or that we may not send.
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
        columns: dict[str, Value] = {"state": str(PoisonState.REPLAYED), "replayed": self._clock.now(), "failures": 0}
        try:
            await self._tables.commit(POISON, [Merge(row.key, row.etag, columns)])
        except Conflict as conflict:
            raise Conflict(f"somebody else is handling message {key}; look again") from conflict
        await self._drain(self._names.poison(message.queue), message.body)
        return message

    async def forget(self, graph_id: str) -> int:
        """Take away what is written down of messages about a graph, and their copies; gives how many. Repeatable."""
        count = 0
        for row in await query_all(self._tables, POISON, Range()):
            message = _message(row)
            if _graph_of(message.body) != graph_id:
                continue
            if message.state == PoisonState.POISON:
                await self._drain(self._names.poison(message.queue), message.body)
            try:
                await self._tables.commit(POISON, [Delete(row.key, row.etag)])
            except (Conflict, Unclear):
                continue  # somebody else did, this call did, or it has just failed again and says so
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
        """One line for a message that nobody handled."""
        if watched(self._telemetry):
            kind, _ = graph_in(delivery.body)  # what else it names may be anything
            origin = Origin(delivery.queue, delivery.id, delivery.dequeue_count, kind, outcome=outcome)
            origin.marks = marks_of(delivery.body)
            self._telemetry.message(origin, 0.0)

    async def _row(self, key: str) -> Row | None:
        (row,) = await self._tables.get(POISON, [key])
        return row

    async def _write(self, delivery: Delivery, reason: str, state: PoisonState, *, add: int) -> Row | None:
        key = _key(delivery)
        for _ in range(limits.COMMIT_ATTEMPTS_MAX):
            row = await self._row(key)
            columns: dict[str, Value] = {"state": str(state), "reason": reason[: limits.REASON_CHARS_MAX]}
            if state is PoisonState.POISON:
                columns["setAside"] = self._clock.now()
            try:
                if row is None:
                    columns |= {
                        "schema": SCHEMA,
                        "queue": delivery.queue,
                        "failures": add,
                        **spread("body", delivery.body),
                    }
                    await self._tables.commit(POISON, [Insert(key, columns)])
                else:
                    failures = row.columns.get("failures", 0)
                    columns["failures"] = (failures if isinstance(failures, int) else 0) + add
                    await self._tables.commit(POISON, [Merge(key, row.etag, columns)])
            except (Conflict, Unclear):
                continue  # counting one failure twice is harmless
            return await self._row(key)
        raise Conflict(f"message {key}: others kept writing its row")


def origin_of(message: Message, delivery: Delivery | None, began: float) -> Origin:
    """A message in hand, for who watches. delivery: what it came by, None for one of this process."""
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
        case (Rerun(task=task, run=run),) | (_, TaskResult(task=task, run=run)):
            origin.task, origin.run = task, run
    return origin


async def release(queues: Queues, delivery: Delivery, seconds: float) -> None:
    """Let a message come back after so long."""
    try:
        await queues.renew(delivery, lease_seconds=seconds)
    except StaleDelivery:
        return  # it is back already


def _key(delivery: Delivery) -> str:
    return f"{delivery.queue}:{delivery.id}"


def _graph_of(body: str) -> str:
    """The graph that a message names, as far as that can be told."""
    try:
        return parse(body).graph
    except (InvalidMessage, UnknownVersion):
        try:
            told = json.loads(body)
        except (ValueError, RecursionError):
            return ""
        return str(told.get("graph", "")) if isinstance(told, dict) else ""


def _message(row: Row) -> PoisonMessage:
    columns = row.columns
    failures, set_aside = columns.get("failures", 0), columns.get("setAside")
    return PoisonMessage(
        key=row.key,
        queue=str(columns.get("queue", "")),
        body=gathered(columns, "body"),
        reason=str(columns.get("reason", "")),
        failures=failures if isinstance(failures, int) else 0,
        state=str(columns.get("state", "")),
        set_aside=set_aside if isinstance(set_aside, datetime) else None,
    )
