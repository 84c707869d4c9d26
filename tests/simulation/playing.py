"""One playing of a life, step by step: each actor in turn does one thing, and a fault may meet each storage call of it.

Between two steps nobody is in the middle of anything: the whole world is data, can be kept (`snapshot`) and gone on
with from there (`restore`). That is what lets `exhaustive` play one beginning with many ends.
"""

import contextlib
import copy
import dataclasses
import functools
import itertools
import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from taskgraph.documents.canonical import content_hash
from taskgraph.engine.commit import Records
from taskgraph.engine.consumer import Consumer, Lease, Waiting, misplaced
from taskgraph.engine.dispatch import Dispatcher
from taskgraph.engine.foresight import foresee
from taskgraph.engine.handlers import Handled, Handlers
from taskgraph.engine.poison import Poison
from taskgraph.engine.row_cache import CachedGraph
from taskgraph.engine.submission import change, edit, extend, submit
from taskgraph.engine.sweep import sweep
from taskgraph.model import limits
from taskgraph.model.columns import WAITS_FOR
from taskgraph.model.errors import Conflict, Refused, StaleDelivery, StorageError, StorageUnavailable, Unclear
from taskgraph.model.ids import GRAPH, limit_key, limit_scope, row_key, slugid_from, task_id_of
from taskgraph.model.messages import (
    Cancel,
    HoldBack,
    Message,
    Rerun,
    RunTasks,
    SetLimit,
    TaskCompleted,
    TaskFailed,
    TaskResult,
    parse,
    to_text,
)
from taskgraph.model.names import LIVE, POISON
from taskgraph.model.states import INACTIVE, PAUSED, FailurePolicy, by_group
from taskgraph.protocol.context import Outcome
from taskgraph.protocol.decide import Item
from taskgraph.protocol.definitions import gathered
from taskgraph.protocol.dispatch_windows import Windows
from taskgraph.protocol.limited_backlog import Backlog
from taskgraph.protocol.planned import CHANGE
from taskgraph.protocol.runs import Claim, HandBack, LeaseLost, Renew
from taskgraph.storage.queues import Delivery
from taskgraph.storage.signals.wakeup import Wakeup
from taskgraph.storage.tables import Change, Merge, Page, Range, Row
from taskgraph.testing import MemoryQueues, MemoryTables, drive
from taskgraph.worker.values import Early, edited_in, hold_for_room, hold_until_due
from taskgraph.worker.values import WorkMessage as InHand
from tests.simulation.edited import edits_made, granted
from tests.simulation.grouped import apart, counted_groups, limited_in, logical_tasks, members
from tests.simulation.invariants import Invariants, Violation, hold, settled
from tests.simulation.lives import GRAPH_ID, MADE, START, Act, Life, When

ROUNDS_MAX: Final = 600
ASK_AGAIN_SECONDS: Final = 300.0
SLEEP_SECONDS: Final = 100.0

TICKS: Final = 64
"""Ticks of the clock in a second. A tick is a whole number of microseconds and a power of two: all sums and differences
of times are exact, so that a life which is played at another hour is the same life."""


class Gone(BaseException):
    """The process is gone at this storage call."""


@functools.cache
def fresh_id(number: int) -> str:
    return slugid_from(number.to_bytes(16, "big"))


class LifeClock:
    """Time that moves when somebody sleeps, ids that are counted, and no chance."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.ids = 0

    def now(self) -> datetime:
        return START + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += math.ceil(seconds * TICKS) / TICKS

    def new_id(self) -> str:
        self.ids += 1
        return fresh_id(self.ids)

    def jitter(self) -> float:
        return 0.5


class Gate:
    """Numbers the storage calls from 1, and lets the faults happen. faults: number -> kind."""

    def __init__(self, faults: Mapping[int, str]) -> None:
        self.faults = faults
        self.number = 0
        self.calls: list[str] = []  # since the beginning, or since the world was restored
        self.kind = ""

    def before(self, call: str) -> None:
        self.calls.append(call)
        self.number += 1
        self.kind = self.faults.get(self.number, "")
        if self.kind == "before":
            raise Gone(call)
        if self.kind == "unavailable":
            raise StorageUnavailable(f"503 at {call}", "memory")

    def after(self) -> None:
        if self.kind == "after":
            raise Gone
        if self.kind == "unclear":
            raise Unclear("the answer was lost")
        if self.kind == "conflict":
            raise Conflict("412 on the own write")


class GatedTables:
    def __init__(self, play: "Play") -> None:
        self._play = play
        self._gate = play.gate
        self._inner = play.tables

    async def get(self, partition: str, keys: Sequence[str]) -> list[Row | None]:
        self._gate.before("get")
        found = await self._inner.get(partition, keys)
        self._gate.after()
        return found

    async def query(self, partition: str, rows: Range, *, limit: int = 1000, continuation: str | None = None) -> Page:
        self._gate.before("query")
        page = await self._inner.query(partition, rows, limit=limit, continuation=continuation)
        self._gate.after()
        return page

    async def commit(self, partition: str, changes: Sequence[Change]) -> list[str | None]:
        self._gate.before("commit")
        lost = self._leases_lost(changes) if partition == GRAPH_ID else ()
        etags = await self._inner.commit(partition, changes)
        for row in lost:
            until = row.columns["leaseUntil"]
            hold(until < self._play.clock.now(), f"{row.columns['label']} was given up before its lease ended")
        if partition == GRAPH_ID:
            updated = self._play.edited(changes)
            self._play.invariants.committed(self._inner.partitions[partition], changes, updated)
        self._gate.after()
        return etags

    def _leases_lost(self, changes: Sequence[Change]) -> list[Row]:
        """Rows of runs that this commit gives up for lost."""
        rows = self._play.rows
        return [
            rows[change.key]
            for change in changes
            if isinstance(change, Merge) and "retriesLeft" in change.columns and change.key in rows
        ]


class GatedQueues:
    def __init__(self, play: "Play") -> None:
        self._play = play
        self._gate = play.gate
        self._inner = play.queues

    async def send(self, queue: str, bodies: Sequence[str], *, delay_seconds: float = 0) -> None:
        for body in bodies:
            self._gate.before("send")
            copies = {"lose": 0, "double": 2}.get(self._gate.kind, 1)
            await self._inner.send(queue, [body] * copies, delay_seconds=delay_seconds)
            if body in self._play.junk and not queue.endswith("-poison"):
                self._play.put[body] += copies
            self._gate.after()

    async def receive(self, queue: str, *, count: int = 1, lease_seconds: float) -> list[Delivery]:
        self._gate.before("receive")
        found = await self._inner.receive(queue, count=count, lease_seconds=lease_seconds)
        self._gate.after()
        return found

    async def renew(self, delivery: Delivery, *, lease_seconds: float) -> Delivery:
        self._gate.before("renew")
        renewed = await self._inner.renew(delivery, lease_seconds=lease_seconds)
        self._gate.after()
        return renewed

    async def delete(self, delivery: Delivery) -> None:
        self._gate.before("delete")
        await self._inner.delete(delivery)
        self._gate.after()

    async def count(self, queue: str) -> int:
        self._gate.before("count")
        count = await self._inner.count(queue)
        self._gate.after()
        return count


@dataclass
class WorkMessage:
    """A run that a worker has in hand, with the message that it came by. until: it sleeps so long (0: it does not)."""

    claim: Claim
    label: str
    delivery: Delivery
    until: float = 0.0


@dataclass(frozen=True)
class End:
    """How a life ended: what must not depend on any fault."""

    state: str
    tasks: Mapping[str, str]
    requests: Mapping[str, str]
    facts: Mapping[tuple[str, str], int]


_MUTABLE: Final = frozenset({dict, list, set, Counter, itertools.count})


def _listed(row: Row, name: str) -> list[str]:
    found: list[str] = json.loads(str(row.columns.get(name, "") or "[]"))
    return found


def _copied(value: Any) -> Any:
    """A copy of containers, however deep; rows, messages and texts never change."""
    found = copy.copy(value)
    if type(value) is dict:
        for name, each in value.items():
            if type(each) in _MUTABLE:
                found[name] = _copied(each)
    elif type(value) is list:
        found[:] = [_copied(each) if type(each) in _MUTABLE else each for each in value]
    return found


FACTS: Final = frozenset({"task-completed", "task-failed", "task-exception", "task-skipped", "task-cancelled"}) | {
    f"graph-{what}" for what in ("running", "extended", "blocked", "unblocked", "finished", "cancelled")
}


@dataclass(slots=True)
class Driver:
    """Where a playing stands between two steps.

    place: whose turn it is in this round. moved: whether anybody had anything to do in it. consumer: whose turn it is
    of the two.
    """

    place: int = 0
    moved: bool = False
    rounds: int = 0
    consumer: int = 0
    submitted: bool = False
    acts_done: int = 0
    act_tried_at: float = -1e9
    rerun_of: tuple[str, int] | None = None
    next_sweep: float = limits.SWEEP_SECONDS


Snapshot = tuple[Any, ...]


class OneByOne(Consumer):
    """A consumer that settles its messages one after the other, as nothing here goes on side by side."""

    async def _settle_all(self, lease: Lease, handled: Sequence[tuple[Delivery, Handled]]) -> None:
        errors: list[Exception] = []
        for delivery, each in handled:
            try:
                await self._settle(lease, delivery, each)
            except Exception as error:  # the others are settled all the same
                errors.append(error)
        if errors:
            raise errors[0]


def _answer(request: Row) -> str:
    """What has become of a request: its state, or "deferred" while it waits for its graph to be resumed."""
    return "deferred" if request.columns.get(WAITS_FOR) else str(request.columns["state"])


def _same_but_apart(known: Mapping[str, CachedGraph]) -> dict[str, CachedGraph]:
    return {
        graph_id: dataclasses.replace(each, rows=dict(each.rows), covered=dict(each.covered))
        for graph_id, each in known.items()
    }


def _windows_apart(windows: Windows | None) -> Windows | None:
    if windows is None:
        return None
    found = copy.copy(windows)
    found.more = set(windows.more)
    found._windows = {
        queue: dataclasses.replace(
            window,
            lanes={
                graph_id: dataclasses.replace(lane, sent=dict(lane.sent), unsent=dict(lane.unsent))
                for graph_id, lane in window.lanes.items()
            },
        )
        for queue, window in windows._windows.items()
    }
    return found


class Play:
    """One playing of a life. Call `run` inside `bounded(life.bounds)`."""

    def __init__(self, life: Life, faults: Mapping[int, str] | None = None) -> None:
        self.life = life
        self.clock = LifeClock()
        self.tables = MemoryTables()
        self.queues = MemoryQueues(self.clock)
        self.gate = Gate(faults or {})
        self.junk = {act.body for act in life.acts if act.kind == "send"}
        self.document = life.document(life.requires)
        added = [act.requires for act in life.acts if act.kind == "extend" and act.answer in MADE]
        tasks = logical_tasks([self.document, *map(life.document, added)])
        self.all_tasks = tasks
        self.open = [life.document(act.requires) for act in life.acts if act.kind == "extend" and act.answer == "open"]
        known = tasks | {label: node for each in self.open for label, node in each.tasks.items()}
        self.known_tasks = known
        self.labels = {task_id_of(GRAPH_ID, label): label for label in known}
        self.goes_on = life.policy == FailurePolicy.CONTINUE
        self.invariants = Invariants(GRAPH_ID, known, goes_on=self.goes_on)
        documents = [self.document, *map(life.document, added), *self.open]
        self.invariants.apart = apart(documents, life.policy)
        self.invariants.under = limited_in(
            GRAPH_ID, documents, known, anew=any(act.kind == "limit" for act in life.acts)
        )
        self.invariants.counted = counted_groups(documents)
        self.made: Counter[str] = Counter()  # edits, by request
        self.wishes = {act.edit.request: act.edit for act in life.acts if act.kind == "edit"}
        self.groups = members(self.document.groups)
        for act in life.acts:
            if act.kind == "edit" and act.answer == "done":
                self.all_tasks = granted(self.all_tasks, self.groups, act.edit)
                self.known_tasks = granted(self.known_tasks, self.groups, act.edit)
        self.consumers = [self._consumer(), self._consumer()]
        self.client, self.worker, self.sweeper = self._handlers(), self._handlers(), self._handlers()
        self.held: list[WorkMessage] = []
        self.executions: Counter[tuple[str, int]] = Counter()
        self.vanished: Counter[str] = Counter()
        self.handed_back: Counter[str] = Counter()
        self.slept: Counter[str] = Counter()
        self.put: Counter[str] = Counter()  # messages of acts, as often as they reached their queue
        self.driver = Driver()

    def _handlers(self) -> Handlers:
        return Handlers(Records(GatedTables(self), self.clock), GatedQueues(self), self.clock)

    def _consumer(self) -> Consumer:
        handlers = self._handlers()
        poison = Poison(handlers.records.tables, handlers.queues, self.clock, handlers.names)
        return OneByOne(handlers, poison, Wakeup())

    def edited(self, changes: Sequence[Change]) -> list[str]:
        """The model is another from this commit on, if it makes an edit; gives the labels that it updates."""
        updated: list[str] = []
        for request, labels in edits_made(changes):
            wish = self.wishes[request]
            self.made[request] += 1
            before = self.invariants.tasks
            after = granted(before, self.groups, wish)
            self.invariants.edited(after, before.keys() - after.keys())
            updated += labels
        for each in changes:
            if each.key.removeprefix("request:") in self.wishes and isinstance(each, Merge):
                refused = each.columns.get("state") == "refused"
                hold(not refused or len(changes) == 1, f"an edit is refused, and something is written: {changes}")
        return updated

    # --- what can be seen from outside

    @property
    def rows(self) -> dict[str, Row]:
        return self.tables.partitions.get(GRAPH_ID, {})

    def task_state(self, label: str) -> str:
        return self.invariants.states.get(task_id_of(GRAPH_ID, label), "")

    def at_rest(self) -> bool:
        states = self.invariants.states
        return not any(state in ("pending", "running") for state in states.values())

    def queue_length(self) -> int:
        return sum(len(held) for name, held in self.queues.messages.items() if not name.endswith("-poison"))

    def _meets(self, when: When) -> bool:
        if when.label:
            state = self.task_state(when.label)
            return state == when.state if when.state else state != ""
        return self.invariants.graph_state == when.state and self.at_rest()

    def ended(self) -> bool:
        if not self.driver.submitted or self.driver.acts_done < len(self.life.acts) or self.queue_length() or self.held:
            return False
        state = self.invariants.graph_state
        if state in ("finished", "cancelled"):
            return GRAPH_ID not in self.tables.partitions.get(LIVE, {})  # whoever finished it may have died before
        return state == "blocked" and self.at_rest()

    # --- actors, each a process of its own

    def step(self, coroutine: Any, dies: Callable[[], None]) -> bool:
        """Let an actor do one thing; gives whether there was anything to do."""
        try:
            return bool(drive(coroutine))
        except Gone:
            dies()
            return True
        except StorageError:
            return True  # it has said so, and its caller or loop comes again

    async def _submit(self) -> bool:
        await submit(self.client, GRAPH_ID, self.document)
        self.driver.submitted = True
        return True

    async def _act(self, act: Act) -> bool:
        client, by = self.client, f"ann-{self.driver.acts_done}"
        match act.kind:
            case "extend":
                try:
                    answer = await extend(client, GRAPH_ID, self.life.document(act.requires), by=by)
                except Refused as refused:
                    hold(refused.code == act.answer, refused)
                    self._next_act()
                    return True
                if answer.state == "done" or act.answer == "open":
                    self._next_act()
            case "edit":
                try:
                    answer = await edit(client, GRAPH_ID, act.edit, by=by)
                except Refused as refused:
                    hold(refused.code == act.answer, refused)
                    self._next_act()
                    return True
                if answer.state == "done":
                    hold(self._is_made(act), "an edit is said to be made, and is not")
                    self._next_act()
            case "rerun":
                task_id = task_id_of(GRAPH_ID, act.label)
                self.driver.rerun_of = task_id, self.invariants.runs[task_id]
                message = Rerun(GRAPH_ID, (self.driver.rerun_of,), "", self.invariants.graph_state == "cancelled", by)
                await self._ask(message, planned=act.planned)
            case "cancel":
                tasks = ((task_id_of(GRAPH_ID, act.label), 0),) if act.label else ()
                reopened = int(str(self.rows[GRAPH].columns.get("reopened", 0)))
                wanted = Cancel(GRAPH_ID, tasks, "somebody wants it", act.terminate, 0 if tasks else reopened, by)
                await self._ask(wanted, planned=act.planned)
            case "hold" | "release":
                alone = (task_id_of(GRAPH_ID, act.label),) if act.label else ()
                asked = f"2030-01-01T00:00:{self.driver.acts_done:02}+00:00"  # each act later than the one before
                wish = HoldBack(GRAPH_ID, act.kind == "hold", asked, act.group, alone, by=by)
                await self._ask(wish, planned=act.planned)
            case "limit":
                asked = f"2030-01-01T00:00:{self.driver.acts_done:02}+00:00"
                limit = SetLimit(GRAPH_ID, act.most, asked, act.group, by=by)
                await self._ask(limit, planned=act.planned)
            case "pass":
                self._next_act()
            case "send" | "ask":
                await client.queues.send(client.names.events, [act.body])
                self._next_act()
            case "wipe":
                for held in self.queues.messages.values():
                    held.clear()
                self._next_act()
            case "other":
                try:
                    await submit(client, GRAPH_ID, self.life.document(act.requires))
                except Refused as refused:
                    hold(refused.code == "different-content", refused)
                    self._next_act()
                else:
                    raise Violation("another graph was taken for this one")
            case _:
                raise AssertionError(act.kind)
        return True

    async def _ask(self, message: Message, *, planned: bool) -> None:
        client = self.client
        if planned:
            plan = await foresee(client, GRAPH_ID, [message])
            await change(client, GRAPH_ID, [message], by=f"ann-{self.driver.acts_done}", plan=plan.digest)
        else:
            await client.queues.send(client.names.events, [to_text(message)])

    def _next_act(self) -> None:
        self.driver.acts_done += 1
        self.driver.act_tried_at = -1e9
        self.driver.rerun_of = None

    def _look_at_act(self) -> Act | None:
        """The act whose time has come, if it is not waiting for its answer."""
        if not self.driver.submitted or self.driver.acts_done == len(self.life.acts):
            return None
        act = self.life.acts[self.driver.acts_done]
        waiting = self.clock.seconds - self.driver.act_tried_at < ASK_AGAIN_SECONDS
        if (
            act.kind == "rerun"
            and self.driver.rerun_of
            and self.invariants.runs[self.driver.rerun_of[0]] > self.driver.rerun_of[1]
        ):
            self._next_act()  # it stands pending, or further on
            return self._look_at_act()
        if act.kind in ("hold", "release") and self._is_held(act) == (act.kind == "hold"):
            self._next_act()
            return self._look_at_act()
        if act.kind == "limit" and self._is_limited(act):
            self._next_act()
            return self._look_at_act()
        if act.kind == "cancel" and self._is_taken_up(act):
            self._next_act()
            return self._look_at_act()
        if act.kind == "edit" or (act.kind == "extend" and waiting):  # an edit may change what its moment is known by
            answers = {str(r.columns["digest"]): _answer(r) for r in self._requests()}
            digest = act.edit.digest if act.kind == "edit" else content_hash(self.life.document(act.requires))
            if answers.get(digest) in ("done", "deferred", "refused") and (act.kind != "edit" or self._is_made(act)):
                hold(
                    answers[digest] == ("deferred" if act.answer == "in vain" else act.answer),
                    f"the {act.kind} is {answers[digest]}",
                )
                self._next_act()
                return self._look_at_act()
        return act if not waiting and self._meets(act.at) else None

    def _is_made(self, act: Act) -> bool:
        """Whether an edit has been made as often as somebody has asked for it by now, unless it is to be refused."""
        asked = [each for each in self.life.acts[: self.driver.acts_done + 1] if each.kind == "edit"]
        return act.answer != "done" or self.made[act.edit.request] == sum(each.wish == act.wish for each in asked)

    def _is_held(self, act: Act) -> bool:
        """Whether what an act speaks of is held back, by the rows of all that it concerns."""
        if act.label:
            row = self.rows.get(row_key(task_id_of(GRAPH_ID, act.label)))
            return row is not None and INACTIVE in _listed(row, "held")
        graph = self.rows.get(GRAPH)
        if graph is None:
            return False
        held = (by_group(act.group) if act.group else PAUSED) in _listed(graph, "held")
        return held != (graph.columns.get("settling") is True)  # not before all of it has taken that over

    def _is_limited(self, act: Act) -> bool:
        """Whether a limit is as it was asked for, and all that it concerns is under it."""
        graph, row = self.rows.get(GRAPH), self.rows.get(limit_key(limit_scope(GRAPH_ID, act.group)))
        if graph is None or row is None:
            return False
        return row.columns["max"] == act.most and graph.columns.get("limiting") is not True

    def _is_taken_up(self, act: Act) -> bool:
        """Whether a cancel has been taken up."""
        if not act.label:
            return self.invariants.graph_state in (("cancelled",) if act.terminate else ("cancelling", "cancelled"))
        row = self.rows.get(row_key(task_id_of(GRAPH_ID, act.label)))
        return row is not None and (row.columns["state"] == "exception" or bool(row.columns.get("cancel")))

    def _requests(self) -> list[Row]:
        return [row for key, row in self.rows.items() if key.startswith("request:") and key.count(":") == 1]

    async def _handle(self, consumer: Consumer) -> bool:
        queues = consumer.handlers.queues
        found = await queues.receive(
            consumer.handlers.names.events, count=self.life.batch, lease_seconds=limits.HANDLER_LEASE_SECONDS
        )
        batches: dict[str, list[Waiting]] = {}
        for delivery in found:
            message = await consumer.poison.read(delivery, misplaced)
            if message is not None:
                batches.setdefault(message.graph, []).append(Waiting(message, delivery))
        for graph_id, batch in batches.items():
            await consumer.take(graph_id, batch)
        return bool(found)

    async def _work(self, target: str) -> bool:
        handlers = self.worker
        found = await handlers.queues.receive(
            handlers.names.work(target), count=limits.RECEIVE_MAX, lease_seconds=limits.LEASE_SECONDS
        )
        for delivery in found:
            await self._take(handlers, delivery)
        return bool(found)

    async def _take(self, handlers: Handlers, delivery: Delivery) -> None:
        message = parse(delivery.body)
        if not isinstance(message, RunTasks):
            raise Violation(f"{message} is on a work queue")
        rows: dict[str, Row | None] = {}
        await handlers.records.load(GRAPH_ID, [row_key(task_id) for task_id, _ in message.tasks], rows)
        now = self.clock.now()
        ready: list[Item] = []
        ended: list[Item] = []
        early = InHand(delivery)
        meant: dict[str, Any] = {}
        for task_id, run in message.tasks:
            row = rows[row_key(task_id)]
            if row is None:
                hold(self.wishes, f"there is no task {task_id}, and a message for it")
                continue
            lease_until = row.columns.get("leaseUntil")
            if row.columns["run"] != run:
                continue
            if row.columns["state"] == "pending":
                if hold_until_due(early, row, Early(), now, 0.0):
                    continue
                until = now + timedelta(seconds=limits.LEASE_SECONDS)
                ready.append(Claim(task_id, run, self.clock.new_id(), "w", until, edited=edited_in(row)))
                meant[task_id] = row.columns["task"]
            elif row.columns["state"] == "running" and isinstance(lease_until, datetime) and lease_until < now:
                ended.append(LeaseLost(task_id, run, str(row.columns["claim"])))
        if ended:
            await handlers.transition(GRAPH_ID, ended)
        answers = await handlers.transition(GRAPH_ID, ready, rows=rows) if ready else []
        for answer in answers:
            if isinstance(answer.item, Claim) and answer.outcome is Outcome.STALE:
                hold_for_room(early, rows[row_key(answer.item.task_id)], now)
        done: list[WorkMessage] = []
        for answer in answers:
            if not isinstance(answer.item, Claim) or answer.outcome not in (Outcome.APPLIED, Outcome.REPEATED):
                continue
            one = WorkMessage(answer.item, self.labels[answer.item.task_id], delivery)
            self.executions[one.claim.task_id, one.claim.run] += 1
            stands = self.rows[row_key(one.claim.task_id)].columns["task"]
            hold(meant[one.claim.task_id] == stands, f"{one.label} is executed as {meant}, and stands as {stands}")
            hold(
                self.executions[one.claim.task_id, one.claim.run] == 1, f"run {one.claim.run} of {one.label} ran twice"
            )
            sleeps = one.label in self.life.sleeps and not self.slept[one.label]
            if self.vanished[one.label] < self.life.vanish.get(one.label, 0):
                self.vanished[one.label] += 1
                raise Gone
            if self._is_to_stop(one.label) and one.label not in self.life.sleeps:
                await self._hand_back(one)
            elif one.label in self.life.held and self.driver.acts_done < len(self.life.acts):
                self.held.append(one)
            elif sleeps:
                self.slept[one.label] += 1
                one.until = self.clock.seconds + SLEEP_SECONDS
                self.held.append(one)
            else:
                done.append(one)
        await self._report(handlers, done)
        if early.busy_until is not None:
            seconds = (early.busy_until - now).total_seconds()
            with contextlib.suppress(StaleDelivery):
                await handlers.queues.renew(delivery, lease_seconds=math.ceil(seconds) + 1)
        elif not any(one.delivery.id == delivery.id for one in self.held):
            await self._acknowledge(handlers, delivery)

    def _is_to_stop(self, label: str) -> bool:
        return self.handed_back[label] < self.life.hand_back.get(label, 0)

    async def _hand_back(self, one: WorkMessage) -> None:
        self.handed_back[one.label] += 1
        back = HandBack(one.claim.task_id, one.claim.run, one.claim.claim, "stopped")
        await self.worker.transition(GRAPH_ID, [back])

    async def _acknowledge(self, handlers: Handlers, delivery: Delivery) -> None:
        with contextlib.suppress(StaleDelivery):
            await handlers.queues.delete(delivery)

    async def _report(self, handlers: Handlers, done: Sequence[WorkMessage]) -> None:
        bodies: list[str] = []
        for one in done:
            before = self.invariants.failed_runs[one.label] + self.invariants.temporary_runs.get(one.label, 0)
            wanted = self.life.temporary.get(one.label, 0)
            failed = before < self.life.fails.get(one.label, 0) + wanted
            result = TaskResult(
                one.claim.task_id,
                one.claim.run,
                one.claim.claim,
                self.clock.now().isoformat(),
                {"failed": failed},
                exception=failed and one.label in self.life.exceptions,
                temporary=before < wanted,
            )
            bodies.append(to_text((TaskFailed if failed else TaskCompleted)(GRAPH_ID, (result,))))
        while bodies:
            try:
                await handlers.queues.send(handlers.names.events, bodies)
            except StorageUnavailable:
                await self.clock.sleep(0.5)  # the work is done, only the word of it is missing
            else:
                return

    async def _let_go(self) -> bool:
        """The acts are over: what was held ends, but for what sleeps."""
        held, self.held = self._awake(), [one for one in self.held if one.until > self.clock.seconds]
        stopped = [one for one in held if self._is_to_stop(one.label)]
        for one in stopped:
            await self._hand_back(one)
        await self._report(self.worker, [one for one in held if one not in stopped])
        for delivery in {one.delivery.id: one.delivery for one in held}.values():
            await self._acknowledge(self.worker, delivery)
        return True

    def _awake(self) -> list[WorkMessage]:
        return [one for one in self.held if one.until <= self.clock.seconds]

    async def _beat(self) -> bool:
        until = self.clock.now() + timedelta(seconds=limits.LEASE_SECONDS)
        for one in self._awake():
            if self._is_to_stop(one.label):
                continue  # it renews nothing any more
            renew = Renew(one.claim.task_id, one.claim.run, one.claim.claim, until)
            (answer,) = await self.worker.transition(GRAPH_ID, [renew])
            if answer.outcome in (Outcome.STALE, Outcome.ENDED):
                self.held.remove(one)
                continue
            if answer.reason:  # it is cancelled: the worker stops it, and says so
                self.held.remove(one)
                back = HandBack(one.claim.task_id, one.claim.run, one.claim.claim, "stopped")
                await self.worker.transition(GRAPH_ID, [back])
                await self._acknowledge(self.worker, one.delivery)
                continue
            row = self.rows[row_key(one.claim.task_id)]
            hold(row.columns["claim"] == one.claim.claim, f"{one.label} was renewed by one who had lost it")
            with contextlib.suppress(StaleDelivery):
                one.delivery = await self.worker.queues.renew(one.delivery, lease_seconds=limits.LEASE_SECONDS)
        return True

    async def _sweep(self) -> bool:
        await sweep(self.sweeper)
        return True

    # --- the driver

    def _new_client(self) -> None:
        self.client = self._handlers()

    def _new_worker(self) -> None:
        self.worker = self._handlers()
        self.held.clear()  # it takes along what it had in hand

    def _new_sweeper(self) -> None:
        self.sweeper = self._handlers()

    def _handled(self) -> bool:
        turn = self.driver.consumer = self.driver.consumer ^ 1

        def dies() -> None:
            self.consumers[turn] = self._consumer()

        return self.step(self._handle(self.consumers[turn]), dies)

    def _acted(self, act: Act) -> bool:
        driver = self.driver
        tried = driver.acts_done
        moved = self.step(self._act(act), self._new_client)
        # Who is told nothing, or that it failed, asks again at once. Of a rerun whose message is lost nobody is told,
        # and nobody remembers; whoever asked sees that nothing happens. An extension is remembered: the sweep's.
        heard = ("", "lose", "double") if act.kind in ("extend", "edit") else ("",)
        if driver.acts_done == tried and self.gate.kind in heard:
            driver.act_tried_at = self.clock.seconds
        return moved

    def _take_turn(self, place: int) -> bool | None:
        """Let the actor at this place of a round do one thing. None: he is not called."""
        driver, over = self.driver, self.driver.acts_done == len(self.life.acts)
        match place:
            case 0 if not driver.submitted:
                return self.step(self._submit(), self._new_client)
            case 1:
                act = self._look_at_act()
                return None if act is None else self._acted(act)
            case 2 if over and self._awake():
                return self.step(self._let_go(), self._new_worker)
            case 3:
                return self._handled()
            case 4:
                return self.step(self._work("default"), self._new_worker)
            case 5 if over and self.life.late:
                return self.step(self._work("late"), self._new_worker)
            case 6 if self.life.sweeps:
                self.step(self._sweep(), self._new_sweeper)
                return False
            # When nobody had anything to do, time has passed:
            case 8 if self._awake():
                return self.step(self._beat(), self._new_worker)
            case 9 if self.clock.seconds >= driver.next_sweep:
                driver.next_sweep = self.clock.seconds + limits.SWEEP_SECONDS
                return self.step(self._sweep(), self._new_sweeper)
        return None

    def advance(self) -> bool:
        """Let the next one who is called do one thing; False when the life is over. Raises Violation."""
        driver = self.driver
        while True:
            place = driver.place
            if place == 10 or (place == 7 and driver.moved):
                driver.place, driver.moved = 0, False
                driver.rounds += 1
                continue
            if place == 7:
                if self.ended():
                    return False
                self._pass_time()
            driver.place = place + 1
            moved = self._take_turn(place)
            if moved is not None:
                driver.moved |= moved
                return True

    def _pass_time(self) -> None:
        """Nobody has anything to do: on to the next moment at which somebody may."""
        clock = self.clock
        due = [self.driver.next_sweep]
        hidden = [m[0] for held in self.queues.messages.values() for m in held.values() if m[0] > clock.seconds]
        if hidden:
            due.append(min(hidden))
        if self._awake():
            due.append(clock.seconds + limits.LEASE_SECONDS / 3)
        due += [one.until for one in self.held if one.until > clock.seconds]
        clock.seconds = max(clock.seconds, min(due)) + 1 / TICKS

    def run(self) -> End:
        """Play to the end. Raises Violation."""
        while self.advance():
            if self.driver.rounds > ROUNDS_MAX:
                raise Violation(self.no_end())
        return self.verdict()

    def no_end(self) -> str:
        where = {label: self.task_state(label) for label in self.all_tasks}
        return f"no end after {self.clock.seconds:.0f} s: {self.invariants.graph_state} {where}"

    # --- the world as data

    def _actors(self) -> tuple[Handlers, ...]:
        return *(consumer.handlers for consumer in self.consumers), self.client, self.worker, self.sweeper

    def memories(self) -> list[dict[str, Any]]:
        """What each process remembers from one thing it does to the next, but for the rows that it keeps."""
        found: list[dict[str, Any]] = []
        for handlers in self._actors():
            found += [handlers.records._ends, handlers.dispatcher.bundle_sizes.in_flight]
            sizes = handlers.dispatcher.bundle_sizes
            assert not sizes.workers, "no message of a life names its worker"
            assert not sizes.paces, "nor says how long it took"
            assert sizes.crew is None, "so that nothing goes into large messages"
        return found

    def dispatchers(self) -> list[Dispatcher]:
        """What each process knows of what it has sent."""
        return [handlers.dispatcher for handlers in self._actors()]

    def _of_processes(self) -> list[Snapshot]:
        """What else each process keeps."""
        return [
            (
                _windows_apart(handlers.dispatcher.windows),
                dict(handlers.dispatcher._levels),
                dict(handlers.dispatcher._hinted),
                handlers.dispatcher._used,
                handlers.dispatcher._used_at,
                handlers.dispatcher.event_queues._looked,
                handlers.dispatcher.has_moved_left,
                handlers.row_cache._calls,
                handlers.records._until,
                handlers.clocks_doubted,
            )
            for handlers in self._actors()
        ]

    def _put_back(self, kept: Sequence[Snapshot]) -> None:
        for handlers, (windows, levels, hinted, used, used_at, looked, moved, calls, until, doubted) in zip(
            self._actors(), kept, strict=True
        ):
            dispatcher = handlers.dispatcher
            dispatcher.windows = _windows_apart(windows)
            dispatcher._levels, dispatcher._hinted = dict(levels), dict(hinted)
            dispatcher._used, dispatcher._used_at = used, used_at
            dispatcher.event_queues._looked, dispatcher.has_moved_left = looked, moved
            handlers.row_cache._calls, handlers.records._until = calls, until
            handlers.clocks_doubted = doubted

    def backlogs(self) -> list[dict[str, Backlog]]:
        """The limited tasks that each process remembers."""
        return [handlers.dispatcher.limited.backlogs for handlers in self._actors()]

    def kept(self) -> list[dict[str, CachedGraph]]:
        """The rows that each process keeps."""
        return [handlers.row_cache._graphs for handlers in self._actors()]

    def counts(self) -> tuple[Counter[Any], ...]:
        """What was counted on the way."""
        return self.executions, self.vanished, self.handed_back, self.slept, self.put, self.made

    def snapshot(self) -> Snapshot:
        """The whole world, between two steps."""
        return (
            _copied(vars(self.tables)),
            _copied(vars(self.queues)),
            _copied(vars(self.invariants)),
            copy.copy(self.driver),
            [dict(memory) for memory in self.memories()],
            [copy.copy(one) for one in self.held],
            [Counter(count) for count in self.counts()],
            [_same_but_apart(kept) for kept in self.kept()],
            copy.deepcopy(self.backlogs()),
            self._of_processes(),
            (self.clock.seconds, self.clock.ids, self.gate.number),
        )

    def restore(self, snapshot: Snapshot, faults: Mapping[int, str] | None = None) -> None:
        """Go on from there, with these faults."""
        tables, queues, invariants, driver, memories, held, counts, known, backlogs, processes, numbers = snapshot
        vars(self.tables).update(_copied(tables))
        vars(self.queues).update(_copied(queues))
        vars(self.invariants).update(_copied(invariants))
        self.driver = copy.copy(driver)
        for memory, kept in zip(self.memories(), memories, strict=True):
            memory.clear()
            memory.update(kept)
        for rows, kept in zip(self.kept(), known, strict=True):
            rows.clear()
            rows.update(_same_but_apart(kept))
        for own, backlog in zip(self.backlogs(), copy.deepcopy(backlogs), strict=True):
            own.clear()
            own.update(backlog)
        self._put_back(processes)
        self.held = [copy.copy(one) for one in held]
        for count, kept in zip(self.counts(), counts, strict=True):
            count.clear()
            count.update(kept)
        self.clock.seconds, self.clock.ids, self.gate.number = numbers
        self.gate.faults = faults or {}
        self.gate.calls = []
        self.gate.kind = ""

    def verdict(self) -> End:
        """The end, if it is what it must be. Raises Violation."""
        state = self.invariants.graph_state
        hold(state == self.life.end, f"the graph is {state}")
        counted = self.invariants.counted
        others = self.invariants.apart
        settled(self.rows, GRAPH_ID, self.known_tasks, goes_on=self.goes_on, counted=counted, apart=others)
        self.invariants.consistent(self.rows)
        facts: Counter[tuple[str, str]] = Counter()
        for key, row in self.rows.items():
            if key.startswith("event:"):
                for fact in json.loads(str(row.columns["events"])):
                    open_ended = fact["event"] == "graph-extended" and self.open
                    if fact["event"] in FACTS and fact.get("label", "") in ("", *self.all_tasks) and not open_ended:
                        facts[fact["event"], fact.get("label", "") if fact["event"].startswith("task-") else ""] += 1
        for label in self.all_tasks:
            task_id = task_id_of(GRAPH_ID, label)
            if self.task_state(label) == "completed":
                hold(self.executions[task_id, self.invariants.runs[task_id]] == 1, f"{label} completed and never ran")
        aside = Counter(
            gathered(row.columns, "body")
            for row in self.tables.partitions.get(POISON, {}).values()
            if row.columns["state"] == "poison"
        )
        hold(aside == self.put, f"{self.put.total()} messages made no sense, and {aside.total()} are set aside")
        return End(
            state,
            {label: self.task_state(label) for label in sorted(self.all_tasks)},
            {} if self.open else self._answers(),
            dict(sorted(facts.items())),
        )

    def _answers(self) -> dict[str, str]:
        """What became of requests; but for plans: one that is asked for anew is another request."""
        return {row.key: str(row.columns["state"]) for row in self._requests() if row.columns.get("kind") != CHANGE}

    def hold_without_faults(self) -> None:
        """Where nothing went wrong, no message has failed and been handled after all. Raises Violation."""
        for row in self.tables.partitions.get(POISON, {}).values():
            hold(row.columns["state"] == "poison", f"{row.key} is {row.columns['state']}")
