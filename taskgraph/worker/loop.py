"""Take ready tasks from work queues, claim them, run them, report.

What this room is for: everything between a work message and a result. A run begins only after its claim is committed
(P5), and its result counts only with that claim (P6); the lease on the row and the message are renewed together while
it runs, and a run that is cancelled is stopped. On SIGTERM unfinished runs go back at once. It never moves a task by
its own rules: claims, results, renewals and hand-backs go through the same decisions as everything else.

Results go to the events queue, as many in one message as there are when it can be sent. Where a desk of the same
process handles events (`run`, `serve --worker`), they go straight into its next commit, which may claim for this worker
what it makes ready: `Worker` is that desk's `Taker`. A worker without a desk that has run the one task of a graph which
is under way, and knows that just one task waits for it, makes that commit by itself.
"""

import asyncio
import contextlib
import dataclasses
import functools
import logging
from collections import deque
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

from taskgraph.documents.results import NO_OUTPUT, NoResult, handed_on, may_take, put_in, taken_from
from taskgraph.engine.handlers import Handlers
from taskgraph.engine.poison import NEWER_VERSION_SECONDS, Poison, origin_of, release
from taskgraph.engine.telemetry import Here, being, watched
from taskgraph.model import limits
from taskgraph.model.clock import Clock
from taskgraph.model.errors import (
    Conflict,
    IntegrityError,
    StaleDelivery,
    StorageError,
    StorageUnavailable,
    TaskgraphError,
    trail,
)
from taskgraph.model.foreign_times import Standing
from taskgraph.model.ids import GRAPH, ids_text, row_key
from taskgraph.model.messages import (
    WORKER_CHARS_MAX,
    Message,
    RunTasks,
    TaskCompleted,
    TaskFailed,
    TaskResult,
    bundles,
    to_text,
)
from taskgraph.model.placement import Offer, target_of
from taskgraph.model.priorities import LEVELS, NORMAL_RANK, in_turn, level_of, rank
from taskgraph.model.states import GRAPH_GONE, GraphState, TaskState
from taskgraph.model.timing import MAX_RUN_TIME_EXCEEDED, run_seconds_max
from taskgraph.protocol.context import Started, Stop, Take
from taskgraph.protocol.decide import Answer, CannotRun, Claim, Completed, HandBack, Item, LeaseLost, Overdue, Renew
from taskgraph.protocol.decide import Outcome as Decided
from taskgraph.protocol.edit import DELETED_IN
from taskgraph.protocol.layout import gathered
from taskgraph.protocol.leases import lease
from taskgraph.protocol.rows import NewerSchema
from taskgraph.queries.targets import Gates
from taskgraph.queries.workers import RUNNING_SHOWN_MAX, Presence
from taskgraph.storage.logs import Logs
from taskgraph.storage.queues import Delivery
from taskgraph.storage.signals.wakeup import Pacer, Wakeup, for_others
from taskgraph.storage.tables import Row
from taskgraph.worker.executors import Executors, Outcome, Work
from taskgraph.worker.executors.contract import AT_ONCE, malformed
from taskgraph.worker.permits import Permits
from taskgraph.worker.run_log import LogWriter
from taskgraph.worker.values import (
    Claimed,
    Early,
    Held,
    Ready,
    as_claimed,
    as_resolved,
    as_seen,
    deadline_in,
    edited_in,
    hold_for_room,
    hold_until_due,
    ids_of,
    label_in,
    only_dependent,
    read_definition,
    routing_in,
    was_terminated,
)

log = logging.getLogger("taskgraph.worker")

_RENEWED_AT_ONCE: Final = 16  # work messages, each by a call of its own
_FORSAKEN_SECONDS: Final = 5.0  # until a message comes back whose tasks could not be claimed
_GIVE_BACK_SECONDS: Final = 10.0  # until a worker that lacks an executor is offered the same task again
_REPORT_SECONDS_MAX: Final = 600.0  # a result is tried for so long; after that the lease decides
_AHEAD_SECONDS: Final = 0.25  # tasks are claimed ahead as long as they would begin within this time
_AHEAD_PER_SLOT: Final = 32
_AHEAD_INSTANT: Final = 256  # of those that take no time
_STOCK_SECONDS: Final = 0.5  # ready tasks are kept for so long without a slot; then others are offered them
_STOCK_SECONDS_MAX: Final = 5.0
_STOCK_MAX: Final = 512
_LOOK_SECONDS: Final = 1.0  # so seldom at least others are asked for work by one that feeds itself, if runs are short
_LOOK_SECONDS_MAX: Final = 5.0  # and if they are not
_LINGER_SECONDS: Final = 0.008  # a result waits for others as long as there is other work in hand
_INSTANT_SECONDS: Final = 0.0005
_DEADLINE_LOOK_SECONDS: Final = 3600.0  # clocks are set: no longer is slept towards a deadline
_FORGET: Final = 0.8  # weight of what was, in a mean of late


class Desk(Protocol):
    """Who handles events in this process."""

    def takes(self, graph_id: str) -> bool:
        """Whether it handles this graph, and no other process does."""
        ...

    def look(self, graph_id: str) -> "asyncio.Task[None]":
        """There is something in hand for this graph."""
        ...


@dataclass(slots=True)
class WorkerCounters:
    """What this worker has done since it began."""

    completed: int = 0
    failed: int = 0
    handed_back: int = 0
    cancelled: int = 0
    given_back: int = 0  # for lack of an executor
    lost: int = 0


class Worker:
    """One worker: some targets, some slots. With a desk (`attach`), its results go straight to that."""

    def __init__(
        self,
        handlers: Handlers,
        poison: Poison,
        executors: Executors,
        logs: Logs,
        wakeup: Wakeup,
        *,
        name: str,
        targets: Sequence[str] = ("default",),
        offer: Offer | None = None,
        slots: int = 1,
        lease_seconds: float = limits.LEASE_SECONDS,
        idle_seconds_max: float = 1.0,
        store_url: str = "",
    ) -> None:
        self.handlers = handlers
        self.poison = poison
        self.executors = executors
        self.logs = logs
        self.name = name
        self.targets = tuple(targets)
        self.offer_made = offer or Offer()
        self.slots = slots
        self.lease_seconds = lease_seconds
        self.counters = WorkerCounters()
        self._wakeup = wakeup
        self._clock: Clock = handlers.clock
        self._idle_seconds_max = idle_seconds_max
        self._store_url = store_url
        self._desk: Desk | None = None
        self._turn = 0
        self._receiving = self._listening = self._look_first = False
        self._looked = self._clock.monotonic()  # at the queues
        self._stopping = self._draining = self._cut_short = False
        self._freed = asyncio.Event()
        self._reserved = 0  # places for what is being received, or claimed
        self._waiting: deque[Claimed] = deque()  # claimed, and not begun
        self._running: dict[asyncio.Task[None], Claimed] = {}
        self._stock: dict[str, deque[Ready]] = {}
        self._stocked = 0
        self._results: dict[str, list[tuple[Completed, Claimed]]] = {}  # for the desk
        self._in_commit: dict[str, dict[int, tuple[Item, Claimed | Ready]]] = {}
        self._outbox: dict[str, list[Claimed]] = {}
        self._reporters: dict[str, asyncio.Task[None]] = {}
        self._held: set[Held] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._expiring = self._pulling = self._lingering = False
        self._nap: asyncio.Future[None] | None = None  # between two looks at what has been kept too long
        self._ids: list[str] = []
        self._seconds: float | None = None  # of a run, of late
        self._per_message = 1.0  # tasks, of late
        self._crowded: set[str] = set()  # graphs that others move as well
        self._gates = Gates(handlers.records.tables, self._clock)
        self._permits = Permits(handlers.records.tables, self._clock, name, lease_seconds)
        self._full: dict[str, float] = {}  # limited target without a free permit -> when to ask again (monotonic)
        self._admitted: set[Ready] = set()  # there is a permit for each, and none is being claimed yet
        self._claiming: list[Ready] = []
        self._early = Early()
        self._fits = functools.lru_cache(maxsize=1000)(self._fits_now)

    def attach(self, desk: Desk) -> None:
        """Report to this desk from now on."""
        self._desk = desk

    def _direct(self, graph_id: str) -> bool:
        """Whether results of this graph go straight to the desk."""
        return self._desk is not None and self._desk.takes(graph_id)

    # --- receiving

    async def run(self, stop: asyncio.Event) -> None:
        """Work until told to stop; then hand unfinished runs back and return."""
        pacer = Pacer(self._clock, seconds_max=self._idle_seconds_max)
        stopped = asyncio.ensure_future(stop.wait())
        beat = asyncio.create_task(self._beat())
        gates = asyncio.create_task(self._mind_gates())
        self.handlers.on_stop.append(self._stop)
        self._receiving = True
        await self._look_at_gates()
        try:
            while not stop.is_set():
                if self._room() <= 0 and not (self._look_first and self._capacity() > 0):
                    self._freed.clear()
                    freed = asyncio.ensure_future(self._freed.wait())
                    try:
                        await asyncio.wait((freed, stopped), return_when=asyncio.FIRST_COMPLETED)
                    finally:
                        freed.cancel()
                    continue
                fed = self._look_first
                ticket = self._wakeup.ticket(*self._queues_in_turn(0))
                try:
                    found, more = await self._receive()
                except StorageError as error:
                    log.warning("cannot receive work: %s", error)
                    await pacer.trouble(stop)
                    continue
                finally:
                    self._go_on_feeding()
                if found:
                    pacer.reset()
                    if not more and self._capacity() > 0:
                        with self._listening_in():
                            await pacer.rest(ticket, stop)
                elif not fed:
                    with self._listening_in():
                        await pacer.idle(ticket, stop)
        finally:
            self._receiving = False
            self._go_on_feeding()
            stopped.cancel()
            await self._hand_everything_back()
            self.handlers.on_stop.remove(self._stop)
            beat.cancel()
            gates.cancel()
            await asyncio.wait((beat, gates))
            for target in self._permits.targets:
                await self._mind(self._permits.give_back(target))

    def _queues_in_turn(self, turn: int) -> dict[str, tuple[str, int]]:
        """The queues that are asked, in the order of this turn, each with its target and the rank of its level.

        Of each level all targets, and each is first in turn: a full queue must not starve the others.
        """
        names, targets = self.handlers.names, self.targets
        levels = {target: self._gates.levels(target) for target in targets}
        first = turn % len(targets)
        return {
            names.work(target, level): (target, rank(level))
            for level in in_turn([each for each in LEVELS if any(each in levels[target] for target in targets)], turn)
            for target in (*targets[first:], *targets[:first])
            if level in levels[target]
        }

    def _feeds_itself(self) -> bool:
        """Whether this worker may take what it knows of now; not if it is time to ask the queues first.

        Whoever has work of his own, time and again, would never hear of what is more urgent, nor of other graphs.
        """
        if self._look_first or not self._receiving or self._listening or self._stopping or self._draining:
            return not self._look_first
        often = self._seconds is None or self._seconds < _LOOK_SECONDS or self._levels_used()
        if self._clock.monotonic() - self._looked < (_LOOK_SECONDS if often else _LOOK_SECONDS_MAX):
            return True
        self._look_first = True
        self._freed.set()
        return False

    def _until_next_look(self) -> int:
        """How many tasks may be asked for by one that feeds itself.

        With a desk, whose own graphs need no messages: as many as it runs before it asks again.
        """
        room = self._capacity()
        if room <= 0 or self._seconds is None or self._desk is None:
            return room
        return max(room, min(_STOCK_MAX // 2, int(self.slots * _LOOK_SECONDS / max(self._seconds, 1e-3))))

    def _levels_used(self) -> bool:
        return any(len(self._gates.levels(target)) > 1 for target in self.targets)

    @contextlib.contextmanager
    def _listening_in(self) -> Iterator[None]:
        """There is room, the queues have been asked, and will be."""
        self._listening = True
        try:
            yield
        finally:
            self._listening = False

    def _go_on_feeding(self) -> None:
        if self._look_first:
            self._look_first = False
            self._pull()

    async def _receive(self) -> tuple[bool, bool]:
        """Whether there was something, and whether there may be more of it."""
        found = more = False
        self._turn += 1
        self._looked = self._clock.monotonic()
        closed = {*self._gates.closed, *self._without_permit()}
        for queue, (target, _) in self._queues_in_turn(self._turn).items():
            room = self._until_next_look() if self._look_first else self._room()
            if room <= 0:
                break
            if target in closed:
                continue
            count = min(limits.RECEIVE_MAX, max(1, int(room / self._per_message)))
            deliveries = await self.handlers.queues.receive(queue, count=count, lease_seconds=self.lease_seconds)
            if deliveries and await self._is_paused(target):
                for delivery in deliveries:
                    await release(self.handlers.queues, delivery, limits.GATE_SECONDS)
                continue
            if deliveries:
                found = True
                more = more or len(deliveries) == count
                self._reserved += len(deliveries)
                self._background(self._take_all(deliveries))
        return found, more

    async def _is_paused(self, target: str) -> bool:
        """Whether a target is paused, as far as can be told now."""
        await self._look_at_gates()
        # As long as nothing could be read it may be, or limited: it is looked at again before anything is claimed.
        return target in self._gates.closed or not self._gates.read

    async def _look_at_gates(self, *, again: bool = False) -> None:
        try:
            await self._gates.look(again=again)
        except StorageError as error:
            log.warning("whether targets are paused, and which levels are used, could not be read: %s", error)
        if self._gates.seen is not None:
            self._permits.saw(self._gates.rows, self._gates.seen)

    async def _mind_gates(self) -> None:
        """Look at the gates while there is work, or one is closed, until cancelled; and let go of what is paused."""
        while True:
            await self._clock.sleep(limits.GATE_SECONDS)
            in_hand = self._running or self._waiting or self._stocked or self._permits.targets
            if not (in_hand or self._gates.closed):
                continue
            await self._mind(self._mind_permits())
            for target in self.targets:
                if not await self._is_paused(target):
                    continue
                for graph_id in list(self._stock):
                    mine = [one for one in self._stock.get(graph_id, ()) if one.target == target]
                    await self._tell_others(graph_id, self._take_out(graph_id, mine))

    # --- permits of limited targets (see permits)

    def _in_use(self, target: str) -> int:
        """Runs of a target that this worker has begun, or is about to."""
        held = sum(target_of(one.work.definition) == target for one in (*self._running.values(), *self._waiting))
        asked = (one for items in self._in_commit.values() for _, one in items.values() if isinstance(one, Ready))
        return held + sum(one.target == target for one in (*asked, *self._admitted, *self._claiming))

    def _permits_wanted(self, target: str, more: int) -> int:
        """For what is in use now, and so many further runs."""
        return min(self._in_use(target) + more, self.slots)

    def _may_begin(self, target: str) -> int:
        """How many further runs of a limited target there are permits for."""
        return max(0, self._permits.usable(target) - self._in_use(target))

    def _without_permit(self) -> list[str]:
        """Limited targets of which nothing can begin here, as far as is known: nobody need ask for their work."""
        now = self._clock.monotonic()
        return [
            target
            for target in self._permits.limits
            if target in self.targets and now < self._full.get(target, 0.0) and not self._may_begin(target)
        ]

    async def _with_permits(self, graph_id: str, ready: Sequence[Ready]) -> list[Ready]:
        """Those that may be claimed as far as permits go; the others are put by, told to others, or come back."""
        if not self._permits.limits:
            return list(ready)
        may: list[Ready] = [one for one in ready if one.target not in self._permits.limits]
        for target in dict.fromkeys(one.target for one in ready if one.target in self._permits.limits):
            ones = [one for one in ready if one.target == target]
            count = len(ones)
            usable = await self._permits.take(target, functools.partial(self._permits_wanted, target, count))
            # Others may have begun meanwhile: what is in use counts as it is now, and these from now on.
            room = max(0, usable - self._in_use(target)) if target in self._permits.limits else count
            may += ones[:room]
            self._admitted.update(ones[:room])
            if not (rest := ones[room:]):
                continue
            self._full[target] = self._clock.monotonic() + limits.GATE_SECONDS
            if usable:
                self._put_by(graph_id, rest[:usable])
                await self._tell_others(graph_id, rest[usable:])
                continue
            until = self._clock.now() + timedelta(seconds=limits.GATE_SECONDS)
            for one in rest:
                if one.held is not None:
                    one.held.busy_until = max(one.held.busy_until or until, until)
                    await self._release(one.held)
        return may

    async def _mind_permits(self) -> None:
        """Give back what is not used, and stop what has lost its permit."""
        self._stop_without_permit()
        for target in self._permits.targets:
            await self._permits.give_back(target, keep=functools.partial(self._in_use, target))

    async def _renew_permits(self) -> None:
        try:
            await self._permits.renew()
        finally:
            self._stop_without_permit()

    def _stop_without_permit(self) -> None:
        """A permit that could not be renewed may be somebody else's by now: a run under it goes back."""
        for target, lost in self._permits.lost().items():
            excess = min(lost, self._in_use(target) - self._permits.held(target))
            runs = [
                one
                for one in (*self._waiting, *sorted(self._running.values(), key=lambda one: -one.began))
                if target_of(one.work.definition) == target
            ]
            for one in runs[: max(0, excess)] if target in self._permits.limits else ():
                log.warning("graph %s: task %s has lost its permit", one.work.graph_id, one.work.task_id)
                one.unpermitted = True
                self._give_up(one)

    async def take(self, deliveries: Sequence[Delivery]) -> None:
        """Take these, and see through whatever comes of them: for whoever receives by himself."""
        self._reserved += len(deliveries)
        await self._take_all(deliveries)
        while at_work := {*self._tasks, *self._running}:
            await asyncio.wait(at_work)

    def _capacity(self) -> int:
        """How many more tasks may be claimed now."""
        if self._stopping or self._draining:
            return 0
        return self.slots - len(self._running) - len(self._waiting) - self._reserved + self._ahead()

    @property
    def _free(self) -> int:
        """Slots for which nothing has been claimed: what is claimed beyond them has to wait, and may never begin."""
        return max(0, self.slots - len(self._running) - len(self._waiting) - self._reserved)

    def _room(self) -> int:
        """How many tasks may be asked for: those in stock come first."""
        return self._capacity() - self._stocked

    def _ahead(self) -> int:
        """How many tasks are claimed before there is a slot for them."""
        if self._seconds is None:
            return 0
        seconds = self._seconds
        if self._running:  # one that takes longer than those before it tells more than they do
            seconds = max(seconds, self._clock.monotonic() - min(one.began for one in self._running.values()))
        most = _AHEAD_INSTANT if seconds < _INSTANT_SECONDS else self.slots * _AHEAD_PER_SLOT
        return min(most, int(_AHEAD_SECONDS * self.slots / max(seconds, 1e-6)))

    def _background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(self._mind(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _mind(self, work: Coroutine[Any, Any, None]) -> None:
        """Whatever goes wrong behind everybody's back must not go unsaid, nor cost the worker."""
        try:
            await work
        except StorageError as error:
            log.warning("left to leases and the sweep: %s", error)
        except Exception as error:
            log.error("left to leases and the sweep: %s", trail(error))

    @contextlib.asynccontextmanager
    async def _minding(self, messages: Sequence[Held]) -> AsyncIterator[None]:
        """Whatever goes wrong with messages must not cost the worker."""
        try:
            yield
        except (Conflict, StorageUnavailable) as error:
            # The lease on the rows decides from here.
            log.warning("work messages %s: %s", ids_of(messages), error)
            await self._forsake(messages)
        except NewerSchema as error:
            log.warning("work messages %s are left to a newer version: %s", ids_of(messages), error)
            for held in messages:
                self._say(held, "newer-version")
                with contextlib.suppress(StorageError):  # then it stays leased, and comes back
                    await release(self.handlers.queues, held.delivery, NEWER_VERSION_SECONDS)
        except Exception as error:
            log.error("work messages %s: failed: %s", ids_of(messages), trail(error))
            for held in messages:
                aside = False
                with contextlib.suppress(StorageError):  # then it stays leased, and comes back
                    aside = await self.poison.failed(held.delivery, f"{type(error).__name__}: {error}")
                self._say(held, "poison" if aside else "failed")

    async def _forsake(self, messages: Iterable[Held]) -> None:
        """Keep messages no longer: they come back soon, to whoever."""
        for held in dict.fromkeys(messages):
            if not held.forsaken:
                held.forsaken = True
                self._held.discard(held)
                self._say(held, "released")
                with contextlib.suppress(StorageError):  # then it stays leased, and comes back
                    await release(self.handlers.queues, held.delivery, _FORSAKEN_SECONDS)

    async def _take_all(self, deliveries: Sequence[Delivery]) -> None:
        """Take deliveries apart, and claim what they offer: what came together is claimed together (D12)."""
        messages = [Held(delivery) for delivery in deliveries]
        ready: dict[str, list[Ready]] = {}
        try:
            await asyncio.gather(*(self._take(held, ready) for held in messages))
        finally:
            self._reserved -= len(deliveries)  # what is claimed is counted from here on
            self._freed.set()
        for n, (graph_id, found) in enumerate(ready.items()):
            try:
                ones = await self._with_permits(graph_id, found)
            except StorageError as error:
                self._admitted.difference_update(found)
                log.warning("graph %s: permits could not be taken: %s", graph_id, error)
                await self._forsake([one.held for one in found if one.held is not None])
                continue
            if self._seconds is None and ones and all(self._is_instant(one) for one in ones):
                self._seconds = 0.0
            room = -(-max(0, self._capacity()) // (len(ready) - n))  # each graph has its part
            self._admitted.difference_update(ones[room:])
            if ones[room:]:
                self._put_by(graph_id, ones[room:])
            try:
                if ones[:room]:
                    async with self._minding([one.held for one in ones[:room] if one.held is not None]):
                        await self._claim(graph_id, ones[:room])
            finally:
                self._admitted.difference_update(ones)
        for held in messages:
            if held.taken:
                await self._release(held)

    async def _take(self, held: Held, ready: dict[str, list[Ready]]) -> None:
        async with self._minding([held]):
            message = await self.poison.read(held.delivery, _misplaced)
            if not isinstance(message, RunTasks):
                return  # set aside, or left to a newer version
            if watched(self.handlers.telemetry):
                held.origin = origin_of(message, held.delivery, self._clock.monotonic())
            if message.level and message.level not in self._gates.levels(message.target):
                await self._look_at_gates(again=True)
            self._per_message = self._per_message * _FORGET + len(message.tasks) * (1 - _FORGET)
            found = await self._look_up(message, held)
            if found is None:
                return  # set aside
            able = await self._choose(message, found, held.delivery.queue)
            _, of_level = self._queues_in_turn(0).get(held.delivery.queue, ("", NORMAL_RANK))
            for one in able:
                one.held = held
                one.rank = rank(message.level) if message.level else of_level
            held.open += len(able)
            held.taken = True
            ready.setdefault(message.graph, []).extend(able)

    async def _look_up(self, message: RunTasks, held: Held) -> list[Ready] | None:
        """The tasks of a message that stand ready; None if the message was set aside.

        What a message says of a task is believed at its first delivery: the claim fails if it is no longer so.
        """
        now = self._clock.monotonic()
        if held.delivery.dequeue_count == 1 and all(task_id in message.seen for task_id, _ in message.tasks):
            return [
                Ready(
                    task_id,
                    run,
                    message.target,
                    seen.definition,
                    now,
                    seen.label,
                    seen=seen,
                    routing=message.routing.get(task_id, ""),
                )
                for task_id, run in message.tasks
                if (seen := message.seen[task_id])
            ]
        rows: dict[str, Row | None] = {}
        keys = [row_key(task_id) for task_id, _ in message.tasks]
        await self.handlers.records.load(message.graph, keys, rows)
        missing = [key for key in keys if rows[key] is None]
        if len(missing) == len(keys) and await self._were_taken_away(message.graph):
            return []
        if len(missing) == len(keys):
            # Foreign, or of a graph that is gone: tried a few times, since a message may be early, then set aside.
            aside = await self.poison.failed(held.delivery, f"graph {message.graph} has no row {missing[0]}")
            self._say(held, "poison" if aside else "failed")
            return None
        ready = await self._sift(message, rows, held)
        return [
            Ready(
                task_id,
                run,
                message.target,
                await self._definition(message.graph, task_id, rows),
                now,
                label_in(rows[row_key(task_id)]),
                row=rows[row_key(task_id)],
                edited=edited_in(rows[row_key(task_id)]),
                routing=routing_in(rows[row_key(task_id)]),
            )
            for task_id, run in ready
        ]

    async def _were_taken_away(self, graph_id: str) -> bool:
        """Whether tasks of a graph are gone: some by an edit, or all with the graph, which may be put back by now."""
        (graph,) = await self.handlers.records.tables.get(graph_id, [GRAPH])
        if graph is None:
            return False
        gone = graph.columns.get("state") in (*GRAPH_GONE, GraphState.RESTORING)
        return gone or bool(graph.columns.get(DELETED_IN))

    async def _sift(self, message: RunTasks, rows: Mapping[str, Row | None], held: Held) -> list[tuple[str, int]]:
        """Which runs of a message can be claimed; also, until when to keep one that came early, or back for a live run.

        A message that comes back belongs to a worker that died, or is slow: once the lease of its run has ended, the
        run is given up here, without waiting for the sweep.
        """
        now = self._clock.now()
        ready: list[tuple[str, int]] = []
        ended: list[Item] = []
        for task_id, run in message.tasks:
            row = rows[row_key(task_id)]
            if row is None or row.columns.get("run") != run:
                continue
            state = row.columns.get("state")
            if state == TaskState.PENDING:
                if row.columns.get("target", message.target) != message.target:
                    continue  # an edit has sent it elsewhere
                if not self._keep_until_due(held, row):
                    ready.append((task_id, run))
            elif state == TaskState.RUNNING and held.delivery.dequeue_count > 1:
                lease_until, how = row.columns.get("leaseUntil"), lease(row.columns.get, now)
                if how is Standing.OVER:
                    ended.append(LeaseLost(task_id, run, str(row.columns.get("claim", ""))))
                    continue
                if how is Standing.DOUBTFUL or not isinstance(lease_until, datetime):
                    lease_until = now + timedelta(seconds=self.lease_seconds)  # the sweep sets it right meanwhile
                if held.busy_until is None or held.busy_until < lease_until:
                    held.busy_until = lease_until
        if ended:
            await self.handlers.transition(message.graph, ended)
        return ready

    def _keep_until_due(self, held: Held, row: Row | None) -> bool:
        return hold_until_due(held, row, self._early, self._clock.now(), self._clock.monotonic())

    def _keep_refused(self, held: Held, row: Row | None) -> None:
        """A run could not be claimed: its message is kept until it may be, if that is known."""
        if not self._keep_until_due(held, row):
            hold_for_room(held, row, self._clock.now())

    async def _choose(self, message: RunTasks, found: Sequence[Ready], queue: str) -> list[Ready]:
        """Those that this worker can run; what it cannot is given back to the queue for others."""
        able: list[Ready] = []
        unable: list[tuple[Ready, str]] = []
        for one in found:
            reason = self._why_not(read_definition(message.graph, one.task_id, one.definition))
            if reason is None:
                able.append(one)
            else:
                unable.append((one, reason))
        if unable:
            await self._give_back(message, unable, queue)
        return able

    async def _definition(self, graph_id: str, task_id: str, rows: Mapping[str, Row | None]) -> str:
        row = rows[row_key(task_id)]
        text = str(row.columns.get("task", "")) if row else ""
        if not text:
            (longer,) = await self.handlers.records.tables.get(graph_id, [f"definition:{task_id}"])
            text = gathered(longer.columns, "task") if longer else ""
        return text

    def _fits_now(self, definition: str) -> bool:
        """Whether this worker can run a task of this definition."""
        try:
            return self._why_not(read_definition("", "", definition)) is None
        except IntegrityError:
            return False  # left to a message, whose reader says what is wrong

    def _why_not(self, definition: Mapping[str, Any]) -> str | None:
        """Why this worker cannot run a task, None if it can: for want of a label, a host, or an executor."""
        return self.offer_made.why_not(definition) or self.executors.why_not(definition)

    async def _give_back(self, message: RunTasks, tasks: Sequence[tuple[Ready, str]], queue: str) -> None:
        """Put tasks back that this worker cannot run, after a pause, and say so (on the row too, for `why`)."""
        self.counters.given_back += len(tasks)
        for one, _ in tasks:  # not with the reason, which quotes the payload
            why = f"taskgraph why {message.graph} {one.task_id}"
            log.warning("graph %s: task %s run %d is given back: see %s", message.graph, one.task_id, one.run, why)
        items = [CannotRun(one.task_id, one.run, self.name, reason) for one, reason in tasks]
        await self.handlers.transition(message.graph, items)
        wanted = tuple((one.task_id, one.run) for one, _ in tasks)
        routing = {one.task_id: one.routing for one, _ in tasks if one.routing}
        again = RunTasks(message.graph, message.target, wanted, routing=routing)
        with for_others():  # woken by it, this worker would be the first to ask, each time
            await self.handlers.queues.send(queue, [to_text(again)], delay_seconds=_GIVE_BACK_SECONDS)

    # --- claiming

    async def _claim(self, graph_id: str, ready: Sequence[Ready]) -> None:
        """Claim ready tasks, and have those run that are this worker's then."""
        telemetry = self.handlers.telemetry
        if telemetry.enabled:
            with being(Here(graph_id, telemetry.cause(graph_id, _body_of(ready[0].held)))):
                await self._claim_now(graph_id, ready)
        else:
            await self._claim_now(graph_id, ready)

    async def _claim_now(self, graph_id: str, ready: Sequence[Ready]) -> None:
        free = self._free
        claims = [self._claim_of(one, ahead=n >= free) for n, one in enumerate(ready)]
        by_claim = {claim.claim: one for claim, one in zip(claims, ready, strict=True)}  # one task may come twice
        conflicts = self.handlers.counters.conflicts
        over: dict[str, str] = {}
        self._reserved += len(ready)
        self._claiming += ready
        self._admitted.difference_update(ready)
        try:
            if self._direct(graph_id):
                rows = self.handlers.kept.of(graph_id).rows
                answers = await self.handlers.advance(graph_id, claims)
            else:
                rows = {row_key(one.task_id): row for one in ready if (row := one.row or as_seen(one)) is not None}
                over = {key: row.etag for key, row in rows.items() if row is not None}
                answers = await self.handlers.transition(graph_id, claims, rows=rows)
        finally:
            self._reserved -= len(ready)
            for each in ready:
                self._claiming.remove(each)
            self._freed.set()
        if self.handlers.counters.conflicts > conflicts:
            over = {}  # what was claimed is not what had been seen
        newer: NewerSchema | None = None
        begun = False
        gone: list[Held] = []
        for answer in answers:
            if isinstance(answer.error, NewerSchema):
                newer = answer.error
            item = answer.item
            if not isinstance(item, Claim):
                continue
            one = by_claim[item.claim]
            if answer.outcome in (Decided.APPLIED, Decided.REPEATED):
                begun = True
                self._begin(graph_id, one, item, rows, over.get(row_key(item.task_id), ""))
            elif one.held is not None:
                self._keep_refused(one.held, rows.get(row_key(item.task_id)))
                gone.append(one.held)
        self._fill()
        if newer is not None and not begun:
            raise newer  # left to who knows the row; with other runs claimed, the sweep says it again
        for held in gone:
            await self._release(held)

    def _is_instant(self, one: Ready) -> bool:
        executor = self.executors.choose(read_definition("", one.task_id, one.definition))
        return executor.instant and not may_take(one.definition)

    def _claim_of(self, one: Ready, *, ahead: bool) -> Claim:
        lease_until = self._clock.now() + timedelta(seconds=self.lease_seconds)
        # One that was tried before, and should that have come through after all, is still ours.
        claim_id = self._clock.new_id() if one.claim is None else one.claim.claim
        seconds = self.lease_seconds
        known = self._early.seconds(one.row, self._clock.monotonic())
        one.claim = Claim(one.task_id, one.run, claim_id, self.name, lease_until, ahead, one.edited, seconds, known)
        return one.claim

    def _begin(self, graph_id: str, ready: Ready, claim: Claim, rows: Mapping[str, Row | None], over: str = "") -> None:
        row = rows.get(row_key(claim.task_id))
        work = self._work(graph_id, claim.task_id, claim.run, claim.claim, ready.label, ready.definition)
        one = Claimed(work, self.executors.choose(work.definition), ready.held, takes=may_take(ready.definition))
        one.routing = ready.routing
        if row is not None and over:
            one.etag, one.over = row.etag, over
            one.next = ready.seen.next if ready.seen is not None and ready.seen.etag == over else ""
        self._admit(one)

    def _work(self, graph_id: str, task_id: str, run: int, claim: str, label: str, definition: str) -> Work:
        return Work(
            graph_id=graph_id,
            task_id=task_id,
            run=run,
            label=label,
            claim=claim,
            definition=read_definition(graph_id, task_id, definition),
            store_url=self._store_url,
        )

    def _admit(self, one: Claimed) -> None:
        one.since = one.began = self._clock.monotonic()
        if self.handlers.telemetry.enabled:
            one.cause = self.handlers.telemetry.cause(one.work.graph_id, _body_of(one.held))
        if one.held is not None and not one.held.forsaken:
            self._held.add(one.held)
        self._waiting.append(one)

    # --- stock: ready tasks that nobody else has been told of lately

    def _put_by(self, graph_id: str, ready: Iterable[Ready]) -> None:
        stock = self._stock.setdefault(graph_id, deque())
        before = len(stock)
        stock.extend(ready)
        self._stocked += len(stock) - before
        if len(stock) > before and any(one.rank != stock[-1].rank for one in (stock[0], stock[before])):
            self._stock[graph_id] = deque(sorted(stock, key=lambda one: one.rank))
        self._watch_expiry()

    def _watch_expiry(self) -> None:
        if not self._expiring and not self._stopping:
            self._expiring = True
            self._background(self._expire())

    def _permitted(self, stock: Iterable[Ready]) -> list[Ready]:
        """What of a stock may begin as far as permits go."""
        left = {target: self._may_begin(target) for target in self._permits.limits}
        found: list[Ready] = []
        for one in stock:
            if one.target in left:
                if left[one.target] <= 0:
                    continue
                left[one.target] -= 1
            found.append(one)
        return found

    def _has_stock(self, graph_id: str) -> bool:
        """Whether something in stock may begin as far as permits go."""
        stock = self._stock.get(graph_id, ())
        return bool(self._permitted(stock)) if self._permits.limits else bool(stock)

    def _pop_stock(self, graph_id: str, count: int, *, everything: bool = False) -> list[Ready]:
        stock = self._stock.get(graph_id)
        if not stock or count <= 0:
            return []
        if self._permits.limits and not everything:
            popped = self._permitted(stock)[:count]
            taken = set(map(id, popped))
            stock = self._stock[graph_id] = deque(one for one in stock if id(one) not in taken)
        else:
            popped = [stock.popleft() for _ in range(min(count, len(stock)))]
        self._stocked -= len(popped)
        del self._stock[graph_id]
        if stock:
            self._stock[graph_id] = stock  # others are first next time
        return popped

    def _take_out(self, graph_id: str, ones: Collection[Ready]) -> Collection[Ready]:
        """Take just these out of the stock of a graph."""
        if ones:
            out = set(ones)
            left = [one for one in self._stock.pop(graph_id) if one not in out]
            self._stocked -= len(ones)
            if left:
                self._stock[graph_id] = deque(left)
        return ones

    def _share(self, graph_id: str) -> int:
        """How much of the room now is for this graph: what waits of a higher level goes before, and graphs share.

        Those that have something in stock, and this one. What cannot be shared evenly goes to those whose turn it is.
        """
        room, fronts = self._capacity(), self._fronts()
        if room <= 0 or not fronts or (len(fronts) == 1 and graph_id in fronts):
            return room
        best = min(fronts.values())
        peers = [each for each, front in fronts.items() if front == best]
        if graph_id not in peers:
            if graph_id in fronts:
                return 0  # all that it has is less urgent
            peers.append(graph_id)
        turn = room // len(peers) + (peers.index(graph_id) < room % len(peers))
        # Whose runs end most often asks most often: so what it has in hand counts too.
        mine = sum(one.work.graph_id == graph_id for one in (*self._running.values(), *self._waiting))
        return max(0, min(turn, -(-self._in_hand_max() // len(peers)) - mine))

    def _fronts(self) -> dict[str, int]:
        """Graphs that have something in stock which may begin, each with the rank of what goes first."""
        if not self._permits.limits:
            return {graph_id: stock[0].rank for graph_id, stock in self._stock.items()}
        permitted = {graph_id: self._permitted(stock) for graph_id, stock in self._stock.items()}
        return {graph_id: ones[0].rank for graph_id, ones in permitted.items() if ones}

    def _in_hand_max(self) -> int:
        return self.slots + self._ahead()

    def _let_others_ask(self, graph_id: str) -> None:
        """Others have something in stock too, and a good part of the room is theirs."""
        if self._desk is not None and len(self._stock) > (graph_id in self._stock):
            for other in list(self._stock):
                if other != graph_id and 4 * self._share(other) >= self._in_hand_max() and self._desk.takes(other):
                    self._desk.look(other)

    async def _expire(self) -> None:
        """Tell others of what has been kept too long; give claims back that have waited too long for a slot."""
        try:
            while (self._stocked or self._waiting) and not self._stopping:
                self._nap = asyncio.ensure_future(self._clock.sleep(_STOCK_SECONDS / 2))
                await asyncio.wait((self._nap,))
                now = self._clock.monotonic()
                for graph_id in list(self._stock):
                    patience = _STOCK_SECONDS
                    if self._seconds is not None and self._stocked * self._seconds < 2 * _STOCK_SECONDS * self.slots:
                        patience = _STOCK_SECONDS_MAX  # it is quick, and only claiming takes its time
                    old = [one for one in self._stock.get(graph_id, ()) if now - one.since >= patience]
                    await self._tell_others(graph_id, self._take_out(graph_id, old))
                self._freed.set()
                await self._give_back_waiting(now)
        finally:
            self._expiring = False

    async def _tell_others(self, graph_id: str, ready: Collection[Ready]) -> None:
        by_queue: dict[tuple[str, str], list[tuple[str, int]]] = {}
        rows: dict[str, Row | None] = {}
        for one in ready:
            by_queue.setdefault((one.target, LEVELS[one.rank]), []).append((one.task_id, one.run))
            rows[row_key(one.task_id)] = one.row or as_seen(one)
        for (target, level), tasks in by_queue.items():
            size = min(8, max(1, len(tasks) // 16))
            try:
                await self.handlers.dispatch(graph_id, target, tasks, level=level, rows=rows, size=size)
            except StorageError as error:
                log.warning("graph %s: %d ready tasks are left to the sweep: %s", graph_id, len(tasks), error)
                await self._forsake([one.held for one in ready if one.held is not None])
                return
        for one in ready:
            if one.held is not None:
                await self._release(one.held)

    async def _give_back_waiting(self, now: float) -> None:
        late = [one for one in self._waiting if now - one.began >= 2 * _STOCK_SECONDS]
        if not late:
            return
        self._waiting = deque(one for one in self._waiting if one not in late)
        by_graph: dict[str, list[Claimed]] = {}
        for one in late:
            by_graph.setdefault(one.work.graph_id, []).append(one)
        for graph_id, held in by_graph.items():
            await self._hand_back(graph_id, held, f"worker {self.name} had no slot for it")

    def _pull(self) -> None:
        """Claim from the stock what there is room for."""
        room = self._capacity()
        if not self._stocked or room <= 0 or not self._feeds_itself() or (self._waiting and 2 * room < self._ahead()):
            return  # claimed together, they cost less: while some wait to begin, there is no hurry
        apart = False
        for graph_id in list(self._stock):
            if not self._has_stock(graph_id):
                continue
            if self._desk is not None and self._desk.takes(graph_id):
                self._desk.look(graph_id)
            else:
                apart = True
        if apart and not self._pulling:
            self._pulling = True
            self._background(self._pull_all())

    async def _pull_all(self) -> None:
        try:
            while self._stocked and (room := self._capacity()) > 0:
                graph_id = next(
                    (
                        each
                        for each in self._stock
                        if not self._direct(each) and self._has_stock(each) and self._share(each)
                    ),
                    "",
                )
                if not graph_id:
                    return
                ready = self._pop_stock(graph_id, min(room, self._share(graph_id)))
                try:
                    await self._claim(graph_id, ready)
                except TaskgraphError as error:
                    log.warning("graph %s: %d ready tasks are left to others: %s", graph_id, len(ready), error)
                    await self._forsake([one.held for one in ready if one.held is not None])
        finally:
            self._pulling = False

    # --- running

    def _fill(self) -> None:
        """Begin what has been claimed, as far as there are slots."""
        while self._waiting and not self._stopping:
            one = self._waiting[0]
            if one.instant:
                self._waiting.popleft()
                self._run_at_once(one)
            elif len(self._running) < self.slots:
                self._waiting.popleft()
                self._start(one)
            else:
                self._watch_expiry()
                return
        self._pull()

    def _run_at_once(self, one: Claimed) -> None:
        self._watch(one)
        run = one.executor.run(one.work, _no_log)
        try:
            run.send(None)
        except StopIteration as end:
            outcome: Outcome = end.value
            self._ended(one, outcome, None)
        except Exception as error:
            self._ended(one, None, error)
        else:
            run.close()
            self._ended(one, None, RuntimeError(f"the executor {one.executor.name} says it is instant, and waits"))

    def _start(self, one: Claimed) -> None:
        task = asyncio.create_task(self._occupy(one))
        one.began, one.handle = self._clock.monotonic(), task
        self._running[task] = one

    async def _occupy(self, one: Claimed | None) -> None:
        """Fill a slot: with this run, and then with others as long as some have been claimed.

        One begins where the last has ended, before anything else has its turn: a slot is not to stand empty.
        """
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a slot is filled by a task")
        while one is not None:
            outcome: Outcome | None = None
            error: Exception | None = None
            try:
                outcome = await self._execute(one)
            except asyncio.CancelledError:  # its lease was lost, it is cancelled, or this worker stops
                del self._running[task]
                self._ended(one, None, None)
                break
            except Exception as raised:
                error = raised
            following = self._waiting[0] if self._waiting and not self._stopping else None
            if following is not None and not following.instant:
                self._waiting.popleft()
                following.began, following.handle = self._clock.monotonic(), task
                self._running[task] = following
            else:
                following = None
                del self._running[task]
            self._ended(one, outcome, error)
            one = following
        self._freed.set()
        self._fill()

    async def _execute(self, one: Claimed) -> Outcome:
        self._watch(one)
        if one.watched is not None:
            with self.handlers.telemetry.running(one.watched):
                return await self._execute_now(one)
        return await self._execute_now(one)

    async def _execute_now(self, one: Claimed) -> Outcome:
        work = one.work
        if one.takes:
            try:
                work = await self._with_results(work)
            except NoResult as error:
                return malformed(str(error))  # a rerun would find nothing else
        writer = LogWriter(self.logs, work)
        seconds = run_seconds_max(work.definition)
        watching = asyncio.create_task(self._end_at_deadline(one)) if "deadline" in work.definition else None
        try:
            run = one.executor.run(work, writer.write)
            outcome = await (run if seconds is None else _at_most(seconds, run))
        finally:
            if watching is not None:
                watching.cancel()
            if writer.used:
                await asyncio.shield(writer.close())
        return outcome

    async def _with_results(self, work: Work) -> Work:
        """The work with the outputs of other tasks in its payload, as their rows have them. Raises NoResult.

        All of these tasks have been resolved, and what has completed stays as it is: so whatever is read now counts.
        """
        wanted = taken_from(work.definition)
        if not wanted:
            return work
        rows: dict[str, Row | None] = {}

        async def read() -> None:
            await self.handlers.records.load(work.graph_id, [row_key(each) for each in wanted], rows)

        await self._insist(read, "results that a task needs cannot be read yet")
        resolved = {each: as_resolved(rows.get(row_key(each))) for each in wanted}
        return dataclasses.replace(work, definition=put_in(work.definition, resolved))

    async def _end_at_deadline(self, one: Claimed) -> None:
        """Resolve the task when its deadline passes while it runs, and end the run then."""
        deadline = deadline_in(one.work.definition)
        while deadline is not None and not one.lost:
            left = (deadline - self._clock.now()).total_seconds()
            if left > 0:
                await self._clock.sleep(min(left, _DEADLINE_LOOK_SECONDS))
                continue
            await self._mind(self._give_up_overdue(one))
            return  # what did not come through comes with the next renewal

    async def _give_up_overdue(self, one: Claimed) -> None:
        work = one.work
        for answer in await self.handlers.transition(work.graph_id, [Overdue(work.task_id)]):
            if answer.outcome is Decided.APPLIED:
                self._lose(one, answer.reason)

    def _watch(self, one: Claimed) -> None:
        """A run begins, for who measures."""
        telemetry = self.handlers.telemetry
        if telemetry.enabled:
            work = one.work
            one.watched = telemetry.run_begins(
                work.graph_id,
                work.task_id,
                work.run,
                label=work.label,
                target=target_of(work.definition),
                executor=one.executor.name,
                cause=one.cause,
            )
            if one.watched is not None:
                one.work = dataclasses.replace(work, traceparent=one.watched.at.traceparent)

    def _ended(self, one: Claimed, outcome: Outcome | None, error: BaseException | None) -> None:
        """A run is over. Neither outcome nor error: it was cancelled."""
        one.outcome, one.error = outcome, error
        if one.watched is not None:
            code = outcome.exit_code if outcome is not None else None
            self.handlers.telemetry.run_ends(one.watched, _how(one), exit_code=code)
        if outcome is not None:
            seconds = self._clock.monotonic() - one.began
            self._seconds = seconds if self._seconds is None else self._seconds * _FORGET + seconds * (1 - _FORGET)
        graph_id = one.work.graph_id
        if self._permits.limits and (target := target_of(one.work.definition)) in self._permits.limits:
            self._wakeup.ring(self.handlers.names.work(target))  # there is a permit for the next one
        plain = outcome is not None and not outcome.failed and outcome.result is None and not one.lost
        if self._desk is not None and self._desk.takes(graph_id) and plain and not self._stopping:
            self._results.setdefault(graph_id, []).append((self._completed(one), one))
            if not self._waiting or one.instant:
                self._desk.look(graph_id)
            elif not self._lingering:  # there is enough to do: others will end in a moment, and go along
                self._lingering = True
                self._background(self._linger())
            return
        self._outbox.setdefault(graph_id, []).append(one)
        if graph_id not in self._reporters:
            reporter = self._reporters[graph_id] = asyncio.create_task(self._report_all(graph_id))
            self._tasks.add(reporter)
            reporter.add_done_callback(self._tasks.discard)

    def _bides(self) -> bool:
        """Whether results wait for others: as long as there is work for the slots, and not for long."""
        return self._lingering and bool(self._waiting) and not self._stopping

    async def _linger(self) -> None:
        await self._clock.sleep(_LINGER_SECONDS)
        self._lingering = False
        if self._desk is not None:
            for graph_id in list(self._results):
                self._desk.look(graph_id)

    def _completed(self, one: Claimed) -> Completed:
        work, outcome = one.work, one.outcome
        if outcome is None:
            raise RuntimeError("a result was asked for before its end")
        ended = self._clock.now().isoformat()
        return Completed(work.task_id, work.run, work.claim, ended, self._resolution(one, outcome))

    # --- reporting

    async def _report_all(self, graph_id: str) -> None:
        """Report what has ended, and what ends meanwhile with the next message."""
        try:
            while ended := self._outbox.pop(graph_id, []):
                try:
                    with being(ended[0].watched.at if ended[0].watched is not None else None):
                        await self._report(graph_id, ended)
                except (Conflict, StorageError) as error:
                    log.warning("graph %s: results are left to their leases: %s", graph_id, error)
                    await self._forsake([one.held for one in ended if one.held is not None])
                except Exception as error:
                    log.error("graph %s: results could not be reported: %s", graph_id, trail(error))
                    await self._forsake([one.held for one in ended if one.held is not None])
        finally:
            del self._reporters[graph_id]
            self._freed.set()

    async def _report(self, graph_id: str, ended: Sequence[Claimed]) -> None:
        completed: list[TaskResult] = []
        failed: list[TaskResult] = []
        hand_back: list[Item] = []
        stopped: list[Item] = []
        for one in ended:
            work, error = one.work, one.error
            if one.lost:
                self.counters.lost += 1
                continue
            if isinstance(error, OSError | StorageError):
                # This machine is out of something, or the result could not be stored: infrastructure, a retry.
                what = (
                    (error.strerror or type(error).__name__) if isinstance(error, OSError) else error
                )  # no file's name
                log.error("graph %s: task %s could not be run here: %s", graph_id, work.task_id, what)
                hand_back.append(LeaseLost(work.task_id, work.run, work.claim, certain=True, alive=True))
                continue
            if error is not None:
                log.error("graph %s: task %s: the executor broke: %s", graph_id, work.task_id, trail(error))
                reason = f"the executor broke: {type(error).__name__}: {error}"
                one.outcome = Outcome(failed=True, exception=True, reason=reason[: limits.REASON_CHARS_MAX])
            if one.outcome is None and one.cancelled:
                self.counters.cancelled += 1
                reason = f"stopped by worker {self.name}"  # the row says why, and what becomes of it
                stopped.append(HandBack(work.task_id, work.run, work.claim, reason))
                continue
            if one.outcome is None:
                reason = f"worker {self.name} was {'stopped' if self._stopping else 'drained'}"
                if one.unpermitted:
                    reason = f"worker {self.name} could not renew its permit for target {target_of(work.definition)}"
                hand_back.append(HandBack(work.task_id, work.run, work.claim, reason))
                continue
            result = await self._result(one, one.outcome)
            (failed if one.outcome.failed else completed).append(result)
        self.counters.completed += len(completed)
        self.counters.failed += len(failed)
        if not (len(ended) == len(completed) == 1 and await self._go_on(ended[0], completed[0])):
            await self._send_results(graph_id, completed, failed)
        self.counters.handed_back += len(hand_back)
        if hand_back or stopped:
            await self.handlers.transition(graph_id, [*hand_back, *stopped])
        for one in ended:
            await self._let_go(one)

    async def _send_results(self, graph_id: str, completed: Sequence[TaskResult], failed: Sequence[TaskResult]) -> None:
        messages: list[Message] = [
            *bundles(lambda part: TaskCompleted(graph_id, part, self.name[:WORKER_CHARS_MAX]), completed),
            *bundles(lambda part: TaskFailed(graph_id, part), failed),
        ]
        if messages:
            await self._insist(lambda: self.handlers.tell(messages))

    async def _go_on(self, one: Claimed, result: TaskResult) -> bool:
        """Complete a run here, and take the one task that waits for it; gives whether that was done.

        Only where nothing else of the graph is under way: side by side, a handler does it for many in one commit.
        """
        graph_id, task_id = one.work.graph_id, one.work.task_id
        if not one.next or not one.etag or self._stopping or self._direct(graph_id) or graph_id in self._crowded:
            return False
        handlers = self.handlers
        if not self._feeds_itself():
            return False  # what waits for it takes its turn
        known = handlers.kept.of(graph_id)
        own, after = row_key(task_id), row_key(one.next)
        if len(self._crowded) > 1000:
            self._crowded.clear()
        conflicts = handlers.counters.conflicts
        try:
            if known.rows.get(after) is None:
                await handlers.kept.load(graph_id, known, [after])
            row = known.rows.get(after)
            if row is None or not self._waits_for(row, task_id):
                known.forget_absent()
                return False
            kept = known.rows.get(own)
            if kept is None or kept.etag == one.over:
                known.suppose(as_claimed(one))
            item = Completed(task_id, result.run, result.claim, result.ended, result.resolution)
            (answer,) = await handlers.advance(graph_id, [item], taker=self)
        except StorageError as error:
            log.info("graph %s: a result goes to the handlers: %s", graph_id, error)
            self._crowded.add(graph_id)
            return False
        if handlers.counters.conflicts > conflicts:
            self._crowded.add(graph_id)
        return answer.error is None

    def _waits_for(self, row: Row, task_id: str) -> bool:
        columns = row.columns
        return (
            columns.get("requiresLeft") == ids_text([task_id])
            and columns.get("state") == TaskState.UNSCHEDULED
            and columns.get("target") in self.targets
            and self._fits(str(columns.get("task", "")))
        )

    async def _result(self, one: Claimed, outcome: Outcome) -> TaskResult:
        work = one.work
        resolution = self._resolution(one, outcome)
        if outcome.result is not None:
            data = outcome.result
            await self._insist(
                lambda: self.logs.append(work.graph_id, work.task_id, work.run, data, name="result.json")
            )
            resolution |= handed_on(data)
            if NO_OUTPUT in resolution:
                why = resolution[NO_OUTPUT]
                log.info("graph %s: task %s hands nothing on: %s", work.graph_id, work.task_id, why)
            resolution["resultUrl"] = self.logs.url(work.graph_id, work.task_id, work.run, name="result.json")
        return TaskResult(
            task=work.task_id,
            run=work.run,
            claim=work.claim,
            ended=self._clock.now().isoformat(),
            resolution=resolution,
            exception=outcome.exception,
            etag=one.etag,
            over=one.over,
            temporary=outcome.temporary,
            retry_after=outcome.retry_after,
            routing=one.routing,
        )

    def _resolution(self, one: Claimed, outcome: Outcome) -> dict[str, Any]:
        work = one.work
        resolution: dict[str, Any] = {"failed": outcome.failed}
        if outcome.reason:
            resolution["reason"] = outcome.reason[: limits.REASON_CHARS_MAX]
        if outcome.code:
            resolution["code"] = outcome.code
        if outcome.exit_code is not None:
            resolution["exitCode"] = outcome.exit_code
        if not one.executor.instant:
            resolution["logsUrl"] = self.logs.url(work.graph_id, work.task_id, work.run)
        return resolution

    async def _insist(
        self, call: Callable[[], Awaitable[None]], trouble: str = "a result cannot be delivered yet"
    ) -> None:
        """Try for a long time to get a result out: the work is done, only the word of it is missing.

        Or to get those in that a run needs.
        """
        began = self._clock.monotonic()
        pause = 0.5
        while True:
            try:
                await call()
            except StorageUnavailable as error:
                if self._clock.monotonic() - began > _REPORT_SECONDS_MAX:
                    raise
                log.warning("%s: %s", trouble, error)
                await self._clock.sleep(pause)
                pause = min(pause * 2, 15.0)
            else:
                return

    async def _hand_back(self, graph_id: str, ones: Sequence[Claimed], reason: str) -> None:
        """Give runs back that have not begun."""
        items = [HandBack(one.work.task_id, one.work.run, one.work.claim, reason) for one in ones]
        self.counters.handed_back += len(items)
        try:
            await self.handlers.transition(graph_id, items)
        except StorageError as error:
            log.warning("graph %s: %d runs are left to their leases: %s", graph_id, len(items), error)
            return
        for one in ones:
            await self._let_go(one)

    async def _let_go(self, one: Claimed) -> None:
        """A run has been reported: its message may go, if it was the last."""
        if one.held is not None:
            held, one.held = one.held, None
            await self._release(held)

    async def _release(self, held: Held) -> None:
        held.open -= 1
        if held.open or held.forsaken:
            return
        self._held.discard(held)
        self._say(held, "handled" if held.busy_until is None else "released")
        delivery = held.delivery
        if held.busy_until is not None:
            seconds = (held.busy_until - self._clock.now()).total_seconds() + 1.0
            await release(self.handlers.queues, delivery, min(max(1.0, seconds), limits.DELAY_SECONDS_MAX))
            return
        try:
            await self.handlers.queues.delete(delivery)
        except StaleDelivery:
            log.info("work message %s had been taken over when it was acknowledged", delivery.id)
        except StorageError as error:
            log.info("work message %s comes back: %s", delivery.id, error)

    def _say(self, held: Held, outcome: str) -> None:
        """What became of a work message, once, for who watches."""
        origin, held.origin = held.origin, None
        if origin is not None:
            origin.outcome = outcome
            self.handlers.telemetry.message(origin, self._clock.monotonic() - origin.began)

    # --- the desk's taker (see handlers.Taker)

    def wants(self, graph_id: str) -> bool:
        """See Taker."""
        if self._desk is None or self._bides():
            return False
        if self._results.get(graph_id):
            return True
        return self._has_stock(graph_id) and self._share(graph_id) > 0 and self._feeds_itself()

    def items(self, graph_id: str) -> Sequence[Completed | Claim]:
        """See Taker."""
        if self._desk is None or self._bides():
            return ()
        items: list[Completed | Claim] = []
        open_items = self._in_commit.setdefault(graph_id, {})
        for item, one in self._results.pop(graph_id, ()):
            items.append(item)
            open_items[id(item)] = (item, one)
        free = self._free
        count = self._share(graph_id) if self._has_stock(graph_id) and self._feeds_itself() else 0
        self._let_others_ask(graph_id)
        for n, ready in enumerate(self._pop_stock(graph_id, count)):
            claim = self._claim_of(ready, ahead=n >= free)
            items.append(claim)
            open_items[id(claim)] = (claim, ready)
            self._reserved += 1
        return items

    def answered(self, graph_id: str, answers: Sequence[Answer], rows: Mapping[str, Row | None]) -> None:
        """See Taker."""
        open_items = self._in_commit.get(graph_id, {})
        done: list[Claimed] = []
        for answer in answers:
            item, one = open_items.pop(id(answer.item), (None, None))
            if isinstance(one, Ready):
                self._reserved -= 1
                if isinstance(item, Claim) and answer.outcome in (Decided.APPLIED, Decided.REPEATED):
                    self._begin(graph_id, one, item, rows)
                elif one.held is not None:
                    self._keep_refused(one.held, rows.get(row_key(one.task_id)))
                    self._background(self._release(one.held))
            elif one is not None:
                if answer.error is not None:
                    self._report_by_message(one)
                    continue
                self.counters.completed += 1
                done.append(one)
        self._fill()
        self._freed.set()
        held = [one for one in done if one.held is not None]
        if held:
            self._background(self._let_all_go(held))

    async def _let_all_go(self, ones: Sequence[Claimed]) -> None:
        for one in ones:
            await self._let_go(one)

    def _report_by_message(self, one: Claimed) -> None:
        """The handlers' own desk counts what goes wrong with a message, and sets it aside in the end."""
        graph_id, outcome = one.work.graph_id, one.outcome
        if outcome is not None:
            item = self._completed(one)
            result = TaskResult(item.task_id, item.run, item.claim, item.ended, item.resolution, routing=one.routing)
            self._background(self._send_and_let_go(graph_id, one, result))

    async def _send_and_let_go(self, graph_id: str, one: Claimed, result: TaskResult) -> None:
        try:
            await self._send_results(graph_id, [result], [])
        except StorageError as error:
            log.warning("graph %s: a result is left to its lease: %s", graph_id, error)
        else:
            await self._let_go(one)

    def failed(self, graph_id: str, error: Exception) -> None:
        """See Taker."""
        again = isinstance(error, StorageError) and not self._stopping
        for item, one in self._in_commit.pop(graph_id, {}).values():
            if isinstance(one, Ready):
                self._reserved -= 1
                if again:
                    self._put_by(graph_id, [one])
            elif again and isinstance(item, Completed):
                self._results.setdefault(graph_id, []).append((item, one))
            else:
                self._report_by_message(one)
        self._freed.set()

    def offer(self, graph_id: str) -> Take | None:
        """See Taker."""
        room = self._share(graph_id)
        if not self._direct(graph_id):
            room = min(room, 1)  # it goes on with one task
        if room <= 0 or not self._gates.recent or not self._feeds_itself():
            return None
        while len(self._ids) < room:
            self._ids.append(self._clock.new_id())
        lease_until = self._clock.now() + timedelta(seconds=self.lease_seconds)
        targets = frozenset(self.targets).difference(self._gates.closed, self._permits.limits)
        best = min(self._fronts().values(), default=None)
        ids, seconds = self._ids[:room], self.lease_seconds
        return Take(self.name, lease_until, targets, ids, self._fits, self._free, rank_max=best, lease_seconds=seconds)

    def started(self, graph_id: str, started: Sequence[Started], rows: Mapping[str, Row | None]) -> None:
        """See Taker."""
        used = {each.claim for each in started}
        self._ids = [each for each in self._ids if each not in used]
        for each in started:
            work = self._work(graph_id, each.task_id, each.run, each.claim, each.label, each.definition)
            row = rows.get(row_key(each.task_id))
            one = Claimed(work, self.executors.choose(work.definition), takes=may_take(each.definition))
            one.routing = routing_in(row)
            if row is not None and not self._direct(graph_id) and "limits" not in row.columns:
                one.etag, one.next = row.etag, only_dependent(row)
            self._admit(one)
        self._fill()

    def keep(
        self, graph_id: str, target: str, tasks: Sequence[tuple[str, int]], rows: Mapping[str, Row | None]
    ) -> Sequence[tuple[str, int]]:
        """See Taker."""
        if self._stopping or self._draining or target not in self.targets or not self._direct(graph_id):
            return tasks
        if not self._gates.recent:
            return tasks
        if target in self._gates.closed or target in self._permits.limits:
            return tasks
        now = self._clock.monotonic()
        kept: list[Ready] = []
        others: list[tuple[str, int]] = []
        for task_id, run in tasks:
            row = rows.get(row_key(task_id))
            definition = str(row.columns.get("task", "")) if row else ""
            if definition and self._fits(definition) and self._stocked + len(kept) < _STOCK_MAX:
                own = rank(level_of(row.columns.get)) if row else NORMAL_RANK
                kept.append(
                    Ready(
                        task_id,
                        run,
                        target,
                        definition,
                        now,
                        label_in(row),
                        rank=own,
                        edited=edited_in(row),
                        routing=routing_in(row),
                    )
                )
            else:
                others.append((task_id, run))
        if kept:
            self._put_by(graph_id, kept)
            self._pull()
        return others

    # --- staying alive, and stopping

    async def _beat(self) -> None:
        """Renew leases at a third of their time, until cancelled."""
        while True:
            await self._clock.sleep(self.lease_seconds / 3)
            await self._mind(self._renew_permits())
            try:
                await self._renew()
            except Exception as error:  # a bug must not end the heartbeat: the runs would be lost, and done again
                log.error("leases could not be renewed: %s", trail(error))

    async def _renew(self) -> None:
        now = self._clock.monotonic()
        held: dict[str, dict[str, Claimed]] = {}
        for one in (*self._running.values(), *self._waiting):
            if now - one.since >= self.lease_seconds / 6:
                held.setdefault(one.work.graph_id, {})[one.work.claim] = one
        for graph_id, by_claim in held.items():
            try:
                await self._renew_rows(graph_id, by_claim)
            except TaskgraphError as error:
                log.warning("graph %s: leases could not be renewed: %s", graph_id, error)
        messages = list(self._held)
        for start in range(0, len(messages), _RENEWED_AT_ONCE):
            await asyncio.gather(*map(self._renew_message, messages[start : start + _RENEWED_AT_ONCE]))

    async def _renew_message(self, message: Held) -> None:
        try:
            message.delivery = await self.handlers.queues.renew(message.delivery, lease_seconds=self.lease_seconds)
        except StaleDelivery:
            log.info("work message %s was taken over; the lease on the rows holds", message.delivery.id)
        except StorageError as error:  # the next beat tries again, and the others are renewed meanwhile
            log.warning("work message %s could not be renewed: %s", message.delivery.id, error)

    async def _renew_rows(self, graph_id: str, by_claim: Mapping[str, Claimed]) -> None:
        lease_until = self._clock.now() + timedelta(seconds=self.lease_seconds)
        items: list[Item] = [
            Renew(one.work.task_id, one.work.run, claim, lease_until, self.lease_seconds)
            for claim, one in by_claim.items()
        ]
        rows: dict[str, Row | None] = {}
        for answer in await self.handlers.transition(graph_id, items, rows=rows):
            if not isinstance(answer.item, Renew):
                continue
            one = by_claim[answer.item.claim]
            if answer.outcome is Decided.APPLIED:
                one.since = self._clock.monotonic()
                one.etag = one.over = one.next = ""  # somebody else may have written in between
                if answer.reason:
                    self._cancel(one, answer.reason)
            elif answer.outcome in (Decided.STALE, Decided.ENDED):
                self._lose(one, answer.reason, at_once=was_terminated(rows.get(row_key(answer.item.task_id))))

    def _lose(self, one: Claimed, reason: str, *, at_once: bool = False) -> None:
        """Stop a run that somebody else has by now, if it has not ended by itself meanwhile. at_once: without grace."""
        if self._give_up(one, at_once=at_once, lost=True):
            log.warning("graph %s: task %s is lost: %s", one.work.graph_id, one.work.task_id, reason)

    def _cancel(self, one: Claimed, reason: str) -> None:
        """Stop a run whose task is to be cancelled; its end is reported then."""
        if one.cancelled:
            return  # it has been told, and takes its time
        one.cancelled = reason
        if self._give_up(one):
            log.info("graph %s: task %s is cancelled", one.work.graph_id, one.work.task_id)

    def _give_up(self, one: Claimed, *, at_once: bool = False, lost: bool = False) -> bool:
        """End a run before its time; gives whether there was anything to end."""
        if one in self._waiting:
            self._waiting.remove(one)
            one.lost = lost
            self._ended(one, None, None)
        elif one.handle is not None and self._running.get(one.handle) is one:
            one.lost = lost
            one.handle.cancel(AT_ONCE if at_once else None)
        else:
            return False
        return True

    def _stop(self, graph_id: str, stops: Sequence[Stop]) -> None:
        """Runs were cancelled by this very process, and some may be ours: see Handlers.on_stop."""
        wanted = {stop.claim: stop for stop in stops}
        for one in (*self._running.values(), *self._waiting):
            stop = wanted.get(one.work.claim)
            if stop is None or one.work.graph_id != graph_id:
                continue
            if stop.at_once:
                self._lose(one, stop.reason, at_once=True)
            else:
                self._cancel(one, stop.reason)

    async def _hand_everything_back(self) -> None:
        self._stopping = True
        if self._nap is not None:
            self._nap.cancel()
        for running in list(self._running):
            running.cancel()
        if self._running:
            await asyncio.wait(self._running)
        # What was on its way when the stop came may still bring claims: round and round, until nothing is in hand.
        while True:
            await self._put_down("stopped")
            at_work: set[asyncio.Task[None]] = set(self._tasks)
            if self._desk is not None:
                open_graphs = [graph_id for graph_id, items in self._in_commit.items() if items]
                at_work.update(map(self._desk.look, {*self._results, *open_graphs}))
            if at_work:
                await asyncio.wait(at_work)
            elif not self._waiting and not self._stock:
                return

    async def _put_down(self, why: str) -> None:
        """Give back what has been claimed and not begun, and tell others of what is in stock."""
        by_graph: dict[str, list[Claimed]] = {}
        for one in self._waiting:
            by_graph.setdefault(one.work.graph_id, []).append(one)
        self._waiting.clear()
        for graph_id, ones in by_graph.items():
            await self._hand_back(graph_id, ones, f"worker {self.name} was {why}")
        for graph_id in list(self._stock):
            await self._tell_others(graph_id, self._pop_stock(graph_id, self._stocked, everything=True))

    # --- as the registry sees it (see registry.Member)

    def presence(self) -> Presence:
        """See Member."""
        oldest = sorted(self._running.values(), key=lambda one: one.began)[:RUNNING_SHOWN_MAX]
        return Presence(len(self._running), [(one.work.graph_id, one.work.label) for one in oldest])

    def drain(self, *, now: bool) -> None:
        """See Member."""
        if not self._draining:
            self._draining = True
            self._background(self._put_down("drained"))
        if now and not self._cut_short:
            self._cut_short = True
            for running in list(self._running):
                running.cancel()

    def undrain(self) -> None:
        """See Member."""
        self._draining = self._cut_short = False
        self._freed.set()

    @property
    def at_rest(self) -> bool:
        """See Member."""
        in_hand = (self._running, self._waiting, self._stock, self._outbox, self._results, self._reporters, self._tasks)
        return not (self._reserved or any(in_hand) or any(self._in_commit.values()))


async def _at_most(seconds: float, run: Awaitable[Outcome]) -> Outcome:
    """What comes of a run that may take so long; when it takes longer, it is ended, and has failed."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await run
    except TimeoutError:
        if not limit.expired():
            raise  # the executor's own
    return Outcome(failed=True, reason=f"it ran for longer than {seconds:g} s (maxRunTime)", code=MAX_RUN_TIME_EXCEEDED)


def _misplaced(message: Message) -> str:
    return "" if isinstance(message, RunTasks) else "only run-tasks messages belong on a work queue"


def _body_of(held: Held | None) -> str:
    """The message that a run came by, "" without one."""
    return held.delivery.body if held is not None else ""


def _how(one: Claimed) -> str:
    """How a run ended, in a word."""
    if one.error is not None:
        return "broken"
    if one.outcome is None:
        return "lost" if one.lost else "cancelled" if one.cancelled else "handed-back"
    if one.outcome.exception:
        return "exception"
    return "failed" if one.outcome.failed else "completed"


async def _no_log(data: bytes) -> None:
    """Runs that take no time say nothing."""
