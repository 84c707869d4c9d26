"""A seeded world: the production handlers, submission and sweep over the in-memory store, one storage call at a time.

Every storage call of an actor is a point at which the driver may let somebody else go first, let the actor die before
or after the call, be told to stop in the middle of it, answer a commit that was applied with a conflict or with
silence, lose or double a message. Nobody polls: an actor is started when there is something for it, and time jumps
where there is nothing for anybody. After the faults stop, time goes on until the graph is at rest; then the rows must
say what the graph and the outcomes alone say.

All chance of a history comes from one stream of numbers from 0 to 1: of the seed, or of a tape, which gives DULL when
it has come to its end. DULL is the dullest draw of all: no fault, no time that goes by, and of all actors the last to
have come goes on. So a history is shrunk by making its tape dull (`shrink`).
"""

import asyncio
import contextlib
import copy
import dataclasses
import functools
import itertools
import json
import math
import random
import types
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from taskgraph.documents.canonical import content_hash
from taskgraph.documents.edit_document import EditDocument
from taskgraph.documents.nodes import GraphDocument, GroupNode, TaskNode
from taskgraph.engine.commit import Records
from taskgraph.engine.foresight import Foreseen, foresee
from taskgraph.engine.handlers import Handlers
from taskgraph.engine.submission import change, edit, extend, submit
from taskgraph.engine.sweep import Swept, sweep
from taskgraph.model import limits
from taskgraph.model.errors import (
    Conflict,
    IntegrityError,
    NotFound,
    Refused,
    StaleDelivery,
    StorageUnavailable,
    TaskgraphError,
    Unclear,
)
from taskgraph.model.foreign_times import asked_after
from taskgraph.model.ids import GRAPH, limit_key, limit_scope, reference_of, row_key, task_id_of
from taskgraph.model.messages import (
    Cancel,
    HoldBack,
    Message,
    Prioritize,
    Rerun,
    RunTasks,
    Seen,
    SetLimit,
    TaskCompleted,
    TaskFailed,
    TaskResult,
    parse,
    to_text,
)
from taskgraph.model.names import QueueNames
from taskgraph.model.priorities import LEVELS, level_of, rank
from taskgraph.model.spent import Used
from taskgraph.model.states import INACTIVE, PAUSED, TASK_UNRESOLVED, FailurePolicy, TaskState, by_group
from taskgraph.model.timing import overdue, pause_seconds_in, retry_of, retry_text
from taskgraph.protocol.context import ClaimOffer, Outcome, Started
from taskgraph.protocol.decide import Answer
from taskgraph.protocol.definitions import gathered
from taskgraph.protocol.planned import CHANGE
from taskgraph.protocol.runs import Claim, Completed, HandBack, Renew
from taskgraph.storage.queues import Delivery
from taskgraph.storage.tables import Change, Delete, Insert, Merge, Page, Range, Replace, Row
from taskgraph.testing import ManualClock, MemoryQueues, MemoryTables, drive
from taskgraph.worker.values import Early, WorkMessage, edited_in, hold_for_room, hold_until_due
from tests.simulation.bounds import bounded
from tests.simulation.edited import Edits, named_by
from tests.simulation.far import Far
from tests.simulation.grouped import apart, counted_groups, limited_in, logical_tasks, members, merged
from tests.simulation.invariants import FAILED_FOR_GOOD, RESOLVED, Invariants, Violation, hold, settled
from tests.simulation.races import Watch

MESSAGE_LEASE_SECONDS: Final = 30
SKEWS_SECONDS: Final = (75.0, -20.0, 0.0, 0.0, 0.0)  # how far the time of day of a process is off
CLIENT_SKEWS_SECONDS: Final = (-365 * 86_400.0, 365 * 86_400.0, 0.0, 0.0)  # who only asks may be further off
LATE_STEPS_MAX: Final = 40
DULL: Final = 0.999_999
STEPS_MAX: Final = 200_000
EVENTS: Final = "taskgraph-events"
WORK: Final = "taskgraph-work-default"
LEVEL_REQUESTS: Final = 3
"""Of a history in which tasks have levels."""

LEVEL_OF: Final = {QueueNames().work("default", level): level for level in LEVELS}
EPOCH: Final = datetime(2026, 1, 1, tzinfo=UTC)
_NO_ROWS: Final[dict[str, Row]] = {}
_task_id_of = functools.lru_cache(maxsize=10_000)(task_id_of)  # the same few labels in all histories


_SHOWN: Final = (
    "state",
    "run",
    "claim",
    "requiresLeft",
    "failedTasks",
    "failedBy",
    "skippedBy",
    "due",
    "rerunsLeft",
    "retriesLeft",
    "cursor",
    "extending",
    "cancel",
    "max",
    "inFlight",
)


class Crash(BaseException):
    """The process of this actor is gone."""


def _is_task(key: str) -> bool:
    return key.startswith("task:")


@types.coroutine
def _step() -> Generator[None, None, None]:
    yield


def of_tape(tape: Sequence[float]) -> Callable[[], float]:
    """Draws as they stand on a tape, and dull ones ever after."""
    return itertools.chain(tape, itertools.repeat(DULL)).__next__


class StandingClock(ManualClock):
    """No time goes by: for what is worked out between two steps."""

    async def sleep(self, seconds: float) -> None:
        """Of a call that has met what it wrote itself by another call, and tries again."""


class VirtualClock:
    def __init__(self, draw: Callable[[], float]) -> None:
        self.seconds = 0.0
        self._draw = draw
        self._ids = itertools.count(1)
        self._now_at = -1.0
        self._now = EPOCH

    def now(self) -> datetime:
        if self._now_at != self.seconds:
            self._now_at = self.seconds
            self._now = EPOCH + timedelta(seconds=self.seconds)
        return self._now

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        await _step()

    def new_id(self) -> str:
        return f"id-{next(self._ids)}"

    def new_ids(self, count: int) -> list[str]:
        return [self.new_id() for _ in range(count)]

    def jitter(self) -> float:
        return self._draw()


class SkewedClock:
    """The clock of a process whose time of day is off, and may jump."""

    def __init__(self, true: VirtualClock, skew_seconds: float) -> None:
        self._true = true
        self.jump(skew_seconds)
        self.monotonic = true.monotonic
        self.sleep = true.sleep
        self.new_id = true.new_id
        self.new_ids = true.new_ids
        self.jitter = true.jitter

    def jump(self, skew_seconds: float) -> None:
        self._skew = timedelta(seconds=skew_seconds)

    def now(self) -> datetime:
        return self._true.now() + self._skew


@dataclass
class Faults:
    """Rates per storage call."""

    crash: float = 0.0
    unclear: float = 0.0  # applied, answered by silence
    false_conflict: float = 0.0  # applied, answered 409/412
    unavailable: float = 0.0
    lose: float = 0.0
    double: float = 0.0
    late: float = 0.0  # applied, and others go on before the answer is there


class FaultyTables:
    def __init__(self, world: "World") -> None:
        self._world = world
        self._inner = world.tables

    async def get(self, partition: str, keys: Sequence[str]) -> list[Row | None]:
        world = self._world
        await _step()
        world.called("get", partition, keys)
        rows = self._inner.partitions.get(partition, _NO_ROWS)
        if len(keys) <= 3:
            few = [rows.get(key) for key in keys]
            await world.late()
            return few
        found: list[Row | None] = []
        commits = len(world.watch.written)
        for start in range(0, len(keys), 3):  # no snapshot: others may write between
            found += await self._inner.get(partition, keys[start : start + 3])
            if start + 3 < len(keys):
                await _step()
        world.watch.read(world.actor, keys, commits)
        await world.late()
        return found

    async def query(self, partition: str, rows: Range, *, limit: int = 1000, continuation: str | None = None) -> Page:
        world = self._world
        await _step()
        world.called("query", partition, (continuation or rows.start or "all",))
        page = await self._inner.query(partition, rows, limit=min(limit, 3), continuation=continuation)
        if page.rows and world.active and world.random() < 0.05:
            page = Page([], continuation or page.rows[0].key)  # nothing yet, and no end either
        if page.continuation is not None:
            world.watch.met["R17"] += 1
        await world.late()
        return page

    async def commit(self, partition: str, changes: Sequence[Change]) -> list[str | None]:
        world = self._world
        await _step()
        world.called("commit", partition, changes)
        before = world.watch.before_commit(world.actor, partition, changes)
        planned = world.taking_up(partition, changes)
        try:
            etags = await self._inner.commit(partition, changes)
        except Conflict as conflict:
            world.watch.conflict(world.actor, partition, changes, conflict)
            if world.trace is not None:
                world.note(f"conflict: {conflict}")
            raise
        world.commits += 1
        world.taken_up(planned)
        world.committed(partition, changes)
        world.watch.committed(world.actor, partition, changes, before)
        faults = world.faults
        if world.active:
            wrong = faults.unclear + faults.false_conflict
            draw = world.random() if wrong else DULL
            if draw < faults.unclear:
                world.fault("unclear", partition)
                raise Unclear("the answer was lost")
            if draw < wrong:
                world.fault("false_conflict", partition)
                raise Conflict("412 on the own write")
            world.after()
        await world.late()
        return etags


class FaultyQueues:
    def __init__(self, world: "World") -> None:
        self._world = world
        self._inner = world.queues

    async def send(self, queue: str, bodies: Sequence[str], *, delay_seconds: float = 0) -> None:
        world = self._world
        for body in bodies:
            await _step()
            world.called("send", queue, (body,))
            if queue in LEVEL_OF and (world.pauses or world.levels):
                world.sent(body, LEVEL_OF[queue])
            copies = 1
            faults = world.faults
            if world.active and (faults.lose or faults.double):
                draw = world.random()
                copies = 0 if draw < faults.lose else 2 if draw < faults.lose + faults.double else 1
                if copies != 1:
                    world.fault("double" if copies else "lose", queue)
            await self._inner.send(queue, [body] * copies, delay_seconds=delay_seconds)
            world.watch.sent(world.actor, queue, body)
            if world.active:
                world.after()

    async def receive(self, queue: str, *, count: int = 1, lease_seconds: float) -> list[Delivery]:
        world = self._world
        await _step()
        world.called("receive", queue)
        found = await self._inner.receive(queue, count=count, lease_seconds=lease_seconds)
        if found:
            world.watch.received(world.actor, found)
            if world.trace is not None:
                world.note("got " + ", ".join(f"{world.short(each.body)} #{each.dequeue_count}" for each in found))
        return found

    async def renew(self, delivery: Delivery, *, lease_seconds: float) -> Delivery:
        await _step()
        self._world.called("renew", delivery.queue)
        return await self._inner.renew(delivery, lease_seconds=lease_seconds)

    async def delete(self, delivery: Delivery) -> None:
        world = self._world
        await _step()
        world.called("delete", delivery.queue, (delivery.body,))
        try:
            await self._inner.delete(delivery)
        except StaleDelivery:
            world.watch.taken_over(world.actor, delivery)
            if world.trace is not None:
                world.note("too late: somebody else has it")
            raise
        if world.active:
            world.after()

    async def count(self, queue: str) -> int:
        await _step()
        self._world.called("count", queue)
        return await self._inner.count(queue)


@dataclass(eq=False)
class Actor:
    """One process at work on one thing, with what the watch remembers of it."""

    name: str
    coroutine: Any
    advanced_at: float
    in_hand: list[Delivery] = field(default_factory=list)
    stage: str = "begun"  # of a worker: begun, claimed, reported
    unsent: bool = False  # it has made a task pending, and has sent no work since
    untold: bool = False  # it has finished the graph, and the graph is in the live index still
    commits: int = 0
    conflicts: int = 0
    idle_seconds: float = 0.0
    number: int = 0


class Process:
    """One that handles and works, with what it keeps for all that it does."""

    def __init__(self, handlers: Handlers) -> None:
        self.handlers = handlers
        self.early = Early()


class SimulatedTaker:
    """A worker in the process of the handlers: see listeners.LocalWorker."""

    def __init__(self, world: "World", handlers: Handlers, name: str) -> None:
        self._world = world
        self._handlers = handlers
        self._name = name
        self.results: list[Completed] = []
        self.stock: list[tuple[str, int]] = []
        self.known: dict[str, Row | None] = {}  # rows of what is in stock, as they were then
        self.running: list[Claim] = []

    def _claim(self, task_id: str, run: int, claim: str) -> Claim:
        until = self._handlers.clock.now() + timedelta(seconds=60)
        return Claim(task_id, run, claim, self._name, until, lease_seconds=60.0)

    def wants(self, graph_id: str) -> bool:
        return bool(self.results or self.stock)

    def items(self, graph_id: str) -> Sequence[Completed | Claim]:
        items: list[Completed | Claim] = [*self.results]
        for task_id, run in self.stock:
            row = self.known[task_id]
            claim = dataclasses.replace(self._claim(task_id, run, self._world.clock.new_id()), edited=edited_in(row))
            self._world.believes(claim.claim, row)
            items.append(claim)
        self.results, self.stock = [], []
        return items

    def answered(self, graph_id: str, answers: Sequence[Answer], rows: Mapping[str, Row | None]) -> None:
        for answer in answers:
            if answer.error is not None:
                raise Violation(f"{answer.item}: {answer.error!r}")
            if isinstance(answer.item, Claim) and answer.outcome in (Outcome.APPLIED, Outcome.REPEATED):
                self.running.append(answer.item)

    def failed(self, graph_id: str, error: Exception) -> None:
        raise AssertionError("nobody calls this here")

    def offer(self, graph_id: str) -> ClaimOffer | None:
        count = self._world.choice((1, 1, 2, 0))
        if not count:
            return None
        until = self._handlers.clock.now() + timedelta(seconds=60)
        ids = [self._world.clock.new_id() for _ in range(count)]
        return ClaimOffer(self._name, until, frozenset({"default"}), ids, bool)

    def started(self, graph_id: str, started: Sequence[Started], rows: Mapping[str, Row | None]) -> None:
        for each in started:
            self._world.believed[each.claim] = each.definition
            self.running.append(self._claim(each.task_id, each.run, each.claim))

    def keep(
        self, graph_id: str, target: str, tasks: Sequence[tuple[str, int]], rows: Mapping[str, Row | None]
    ) -> Sequence[tuple[str, int]]:
        if self._world.random() < 0.5:
            return tasks
        found = {task_id: rows.get(row_key(task_id)) for task_id, _ in tasks}
        self.known |= found
        self.stock.extend(each for each in tasks if found[each[0]] is not None)
        return [each for each in tasks if found[each[0]] is None]


def _as_seen(task_id: str, run: int, seen: Seen) -> Row:
    told = {"state": "pending", "run": run, "label": seen.label, "task": seen.definition}
    return Row(row_key(task_id), seen.etag, told)


class Begun:
    """What a submission has left behind. Rows are never changed, so what holds them is all there is to copy."""

    def __init__(self, world: "World") -> None:
        self._of = [(name, _copy(vars(getattr(world, name)), skipped)) for name, skipped in _BEGUN]
        self._spawned = world.spawned

    def put_into(self, world: "World") -> None:
        for (name, _), (_, values) in zip(_BEGUN, self._of, strict=True):
            vars(getattr(world, name)).update(_copy(values, ()))
        world.spawned = self._spawned


_BEGUN: Final = (
    ("tables", ()),
    ("queues", ("_clock",)),
    ("clock", ("_draw",)),
    (
        "invariants",
        (
            "graph_id",
            "goes_on",
            "tasks",
            "requires",
            "members",
            "under",
            "has_waited",
            "cancels_alone",
            "counted",
            "apart",
        ),
    ),
    ("watch", ("_world", "_outside")),
)
"""Part of a world -> what of it does not come from its submission."""

BEGUN_KEPT_MAX: Final = 5_000
begun_before: dict[tuple[Any, ...], Begun] | None = None  # a memory, while many histories are played (`remembered`)


def _copy(values: Mapping[str, Any], skipped: Sequence[str]) -> dict[str, Any]:
    copied: dict[str, Any] = {}
    for name, value in values.items():
        if name in skipped:
            continue
        if isinstance(value, dict) and name in ("partitions", "_keys", "messages"):
            copied[name] = {inner: copy.copy(held) for inner, held in value.items()}
        else:
            copied[name] = copy.copy(value)
    return copied


@dataclass
class World:
    """One history.

    tape: draws to play instead of those of the seed. trace: told what happens, line by line, if it is a list.
    """

    seed: int
    document: GraphDocument
    fails: Mapping[str, int] = field(default_factory=dict)  # label -> how many runs fail before one succeeds
    extensions: Sequence[GraphDocument] = ()
    faults: Faults = field(default_factory=Faults)
    reruns: bool = False  # somebody reruns by hand whatever failed for good, again and again
    cancel: str = ""  # somebody cancels this at some time: the graph, all of it at once (terminate), or a task
    graph_id: str = "g"
    bounds: Mapping[str, Any] = field(default_factory=dict)  # limits made small
    crowds: Sequence[int] = (6, 4, 4, 3, 2)  # so many actors at once, while there is something for them
    storm_steps: tuple[int, int] | None = None  # the faults stop after so many steps; None: the more tasks, the later
    rival_rate: float = 0.1  # of another submitter, at each look
    pauses: int = 0  # so many times something of the graph is held back for a while
    changes: int = 0  # so many times a limit on tasks in flight is changed
    anew: bool = False  # and it may be one where there was none
    edits: int = 0  # so many times somebody changes or takes away what has not started
    edit_when: str = ""  # and only while the graph is so: blocked; "": at any time
    extend_when: str = ""  # extensions are asked for while the graph is so: blocked, paused; "": at any time
    processes: int = 3  # so many of them handle and work; each keeps what it knows for all that it does
    direct: float = 0.4  # so often a worker handles what it has done by itself, as where a desk is in its process
    begun: bool = False  # the graph was submitted before, in peace, and nobody has looked at it since
    sweep_seconds: float = limits.SWEEP_SECONDS
    temporary: Mapping[str, int] = field(default_factory=dict)  # label -> runs that fail for the moment, at first
    again: int = 0  # so many times tasks that have ended are rerun, whichever, and whatever has become of the graph
    cancels: int = 1  # so many times it is cancelled, where it goes on after that
    planned: float = 0.0  # so often what somebody asks for is planned, and made under the digest of the plan
    far: Far | None = None  # whose clocks are far off, and how
    tape: Sequence[float] | None = None
    trace: list[str] | None = None

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.random: Callable[[], float] = self.rng.random if self.tape is None else of_tape(self.tape)
        self.clock = VirtualClock(self._draw)
        self.tables = MemoryTables()
        self.queues = MemoryQueues(self.clock)
        self.actors: list[Actor] = []
        self.actor = Actor("nobody", None, 0.0)
        self.spawned = 0
        self.steps = 0
        self.calls = 0
        self.commits = 0
        self.crashes = 0
        self.fault_counts: Counter[str] = Counter()
        self.executions: dict[tuple[str, int], int] = {}
        self.extended = [False] * len(self.extensions)
        self.asked_at = [-1e9] * len(self.extensions)
        self.rerun_at = -1e9
        self.cancel_step = 0
        self.cancel_at = -1e9
        self.cancel_of: tuple[str, int] | None = None  # the task, and how often it had been rerun by hand
        self.cancel_reopened = -1  # how often the graph had gone on after its end when it was asked for first
        self.is_cancelled = False  # once it has been taken up
        self.cancels_left = self.cancels
        self.again_left = self.again
        self.plans: Counter[str] = Counter()  # asked for under their digests, and taken up
        self.next_sweep = self.sweep_seconds
        self._due_known = -1
        self._due = (math.inf, math.inf)
        self.pauses_left = self.pauses
        self.wishes: dict[str, tuple[bool, str]] = {}  # group or label (`task:`), "" for the graph -> on, when asked
        self._come_in(self.document)
        self.wished_at = -1e9
        self.asked: dict[str, str] = {}  # row and holder -> when that was last asked for, of what was decided
        self.sendable: set[tuple[str, int]] = set()  # runs that stood ready after some commit, and not held back
        self.active = False
        self.edits_left = self.edits
        self.mended: dict[str, int] = {}  # tasks edited when they had failed for good -> their reruns by hand till then
        self.edited_at = -1e9
        self.believed: dict[str, str] = {}  # claim -> the definition that its worker has in hand
        self.claimed: dict[str, str] = {}  # claim -> the definition that stood on the row when it was made
        self.tasks = dict(logical_tasks([self.document, *self.extensions]))
        self.edit: Edits | None = None
        if self.edits:
            documents = [self.document, *self.extensions]
            named = named_by(self.extensions)
            inside = {each for labels in members(self._all_groups()).values() for each in labels}
            fixed = named | inside if self.extensions or self.pauses else set()
            self.edit = Edits(self.tasks, documents, fixed)
        self.goes_on = self.document.failure_policy == FailurePolicy.CONTINUE
        self.invariants = Invariants(self.graph_id, self.tasks, goes_on=self.goes_on)
        self.counted = counted_groups([self.document, *self.extensions])
        self.invariants.counted = self.counted
        self.apart = apart([self.document, *self.extensions], self.document.failure_policy)
        self.invariants.apart = self.apart
        self.invariants.cancels_alone = self.cancel == "task" or bool(self.counted)
        self.invariants.members = members(self._all_groups()) if self.pauses else {}
        self.invariants.under = limited_in(self.graph_id, [self.document, *self.extensions], self.tasks, anew=self.anew)
        self.changes_left = self.changes
        self.levels_left = LEVEL_REQUESTS
        self.levels_asked: dict[str, str] = {}  # when it was asked for -> the level
        self.had_levels: defaultdict[str, set[str]] = defaultdict(set)  # row key -> what it was given, but by documents
        # Levels that tasks say, and those between: they may come there by their age.
        self.levels = {node.priority for node in self.tasks.values() if node.priority}
        self.works = tuple(LEVEL_OF) if self.levels else (WORK,)
        self.watch = Watch(self)
        self.has_limits = any(
            "deadline" in node.task or "pendingTimeout" in node.timing for node in self.tasks.values()
        )
        self.late_since: dict[str, float] = {}  # label -> when it was first seen past its time, without faults
        self.far_clocks: dict[str, SkewedClock] = {}  # of who sweeps, and who asks
        self.paused: dict[tuple[str, int], tuple[float, float]] = {}  # run -> when its pause began, and how long it is
        self.invariants.has_waited = self._has_waited
        self.labels = {_task_id_of(self.graph_id, label): label for label in self.tasks}

    def _draw(self) -> float:
        return self.random()

    @property
    def history(self) -> list[str]:
        """The states that the graph went through."""
        return self.invariants.history

    @property
    def rows(self) -> dict[str, Row]:
        return self.tables.partitions.get(self.graph_id, {})

    # --- faults

    def fault(self, kind: str, where: str) -> None:
        self.fault_counts[kind] += 1
        if kind in ("unclear", "false_conflict") and where == self.graph_id:
            self.watch.met["R11"] += 1
        if kind == "double":
            self.watch.met["R12"] += 1
        if self.trace is not None:
            self.note(f"FAULT {kind}")

    def called(self, kind: str, where: str, what: Sequence[Any] = ()) -> None:
        """A storage call begins: it may never reach the store."""
        self.calls += 1
        if self.trace is not None:
            self.note(f"{kind} {where}" + ("" if not what else ": " + ", ".join(map(self.short, what))))
        if self.active:
            faults = self.faults
            if faults.crash and self.random() < faults.crash:
                self._die("before it")
            if faults.unavailable and self.random() < faults.unavailable:
                self.fault("unavailable", where)
                self.watch.unavailable()
                raise StorageUnavailable("503")
            self.watch.storm = 0

    def after(self) -> None:
        """A storage call is done: whoever made it may never know."""
        crash = self.faults.crash
        if crash and self.random() < crash:
            self._die("after it")

    async def late(self) -> None:
        """The answer of a call is under way, and may be for a while."""
        late = self.faults.late
        if late and self.active and self.random() < late:
            self.fault_counts["late"] += 1
            for _ in range(1 + int(self.random() ** 2 * LATE_STEPS_MAX)):
                await _step()

    def _die(self, when: str) -> None:
        self.crashes += 1
        self.fault_counts["crash"] += 1
        if self.trace is not None:
            self.note(f"FAULT crash {when}")
        raise Crash

    # --- what people read

    def note(self, what: str) -> None:
        """A line of the trace."""
        assert self.trace is not None
        who = f"{self.actor.name} {self.actor.number}" if self.actor.number else ""
        self.trace.append(f"{self.steps:>5} {self.clock.seconds:>8.2f}s  {who:<12} {what}")

    def short(self, what: Any) -> str:
        """A key, message or change as people say it: labels for taskIds, states and counts for columns."""
        if isinstance(what, Insert):
            state = what.columns.get("state")
            text = f"+{what.key}" + (f" {state}" if state else "") + self._facts(what.columns)
        elif isinstance(what, Merge):
            told = [f"{name}={what.columns[name]}" for name in _SHOWN if name in what.columns]
            text = f"~{what.key} {' '.join(told)}".rstrip()
        elif isinstance(what, Replace):
            text = f"={what.key} {what.columns.get('state', '')}".rstrip()
        elif isinstance(what, Delete):
            text = f"-{what.key}"
        else:
            text = str(what)
        for task_id, label in self.labels.items():
            text = text.replace(task_id, label)
        return text

    def _facts(self, columns: Mapping[str, Any]) -> str:
        return f" [{columns['kinds']}]" if "kinds" in columns else ""

    # --- actors

    def choice(self, among: Sequence[Any]) -> Any:
        """One of these; the last is the dullest."""
        return among[int(self.random() * len(among))]

    def handlers(self, skew_seconds: float = 0.0) -> Handlers:
        return self._handlers_by(SkewedClock(self.clock, skew_seconds) if skew_seconds else self.clock)

    def _handlers_by(self, clock: VirtualClock | SkewedClock) -> Handlers:
        return Handlers(Records(FaultyTables(self), clock), FaultyQueues(self), clock)

    def _askers(self) -> Handlers:
        """Of who submits, extends and edits."""
        return self._handlers_by(self.far_clocks.get("submitter", self.clock))

    # --- clocks that are far off

    def _process(self, number: int) -> Process:
        """One of those that handle and work; of several that are far off, the first works, the others handle."""
        if self.far is None:
            return Process(self.handlers(self.choice(SKEWS_SECONDS)))
        roles = ("handler", "worker") if self.processes == 1 else ("handler" if number else "worker",)
        off = self.far.off(self.random) if self._may_be_off(roles) else 0.0
        return Process(self._handlers_by(SkewedClock(self.clock, off)))

    def _may_be_off(self, roles: Sequence[str]) -> bool:
        assert self.far is not None
        return (self.active or self.far.stays) and any(role in self.far.roles for role in roles)

    def _who(self, processes: Sequence[Process], role: str) -> Process:
        if self.far is not None and len(processes) > 1:
            processes = processes[1:] if role == "handler" else processes[:1]
        chosen: Process = self.choice(processes)
        return chosen

    def _jump(self, processes: list[Process]) -> None:
        """A clock jumps, or its process is ended, and another one takes its place."""
        assert self.far is not None
        jumping = [*self.far_clocks.values(), *(each.handlers.clock for each in processes)]
        number = int(self.random() * len(jumping))
        own = number - len(self.far_clocks)
        self.fault_counts["clock jumped"] += 1
        if own >= 0 and (self.random() < 0.5 or self.processes > 1):
            processes[own] = self._process(own)
        elif own < 0 or self._may_be_off(("handler", "worker")):
            clock = jumping[number]
            assert isinstance(clock, SkewedClock)
            clock.jump(self.far.off(self.random))
        if self.trace is not None:
            self.note("a clock jumps")

    def _clocks_right(self, processes: list[Process]) -> None:
        """Every process is started again, with a right clock."""
        for clock in self.far_clocks.values():
            clock.jump(0.0)
        processes[:] = [self._process(number) for number in range(self.processes)]

    def _has_waited(self, row: Row) -> bool:
        """Whether a pause was as long as it was to be, as one who goes by its steady clock must have waited."""
        began, seconds = self.paused.get((reference_of(row.key), int(str(row.columns["run"]))), (math.inf, 0.0))
        return self.clock.seconds - began >= seconds - 0.001

    def _pauses(self, row: Row) -> None:
        seconds = pause_seconds_in(row.columns.get)
        if row.columns["state"] == TaskState.PENDING and seconds is not None:
            run = int(str(row.columns["run"]))
            self.paused.setdefault((reference_of(row.key), run), (self.clock.seconds, seconds))

    async def _submit(self) -> None:
        try:
            await submit(self._askers(), self.graph_id, self.document)
        except Refused:
            if self.state() not in ("cancelling", "cancelled"):  # while this one thought that it was not started yet
                raise

    async def _extend(self, number: int) -> None:
        try:
            answer = await extend(self._askers(), self.graph_id, self.extensions[number], by="ann")
        except NotFound:
            return
        except Refused as refused:
            if refused.code == "not-running":
                self.watch.met["R08"] += 1
                return
            raise
        if answer.state == "done":
            self.extended[number] = True
            self._come_in(self.extensions[number])

    def _come_in(self, document: GraphDocument) -> None:
        """Groups that come in inactive are held back until somebody resumes them."""
        inactive = {name: (True, "") for name, group in document.groups.items() if not group.active}
        self.wishes = inactive | self.wishes  # of two that hear of it, the second may come after a wish

    def _all_groups(self) -> dict[str, GroupNode]:
        return merged([self.document, *self.extensions])

    def _edit(self) -> Coroutine[Any, Any, None]:
        assert self.edit is not None
        assert self.edit.wish is not None
        return self._ask_for(self.edit.wish)  # by the wish of now: another may be drawn before this one begins

    async def _ask_for(self, wish: EditDocument) -> None:
        assert self.edit is not None
        made, held = self.edit.made, self.edit.holds(wish)
        with contextlib.suppress(NotFound, Refused):
            answer = await edit(self._askers(), self.graph_id, wish, by="ann")
            if answer.state == "done" and self.edit.made == made and not held:
                raise Violation(f"an edit is said to be made, and is not: {wish.text}")

    def _extends_now(self) -> bool:
        """Whether the graph is as it is to be when it is extended; in the end it is asked for in any case."""
        if self.extend_when == "paused" and self.active:
            return PAUSED in json.loads(str(self.rows[GRAPH].columns.get("held", "") or "[]"))
        return not self.active or self.extend_when in ("", self.state())

    def _edit_is_open(self, request: str) -> bool:
        """Whether somebody still waits for the answer to an edit."""
        head = self.rows.get(f"request:{request}")
        return head is None or head.columns["state"] == "staged"

    def _edit_comes(self) -> bool:
        """Whether somebody asks for an edit now: a new one, or once more for one that went unheard."""
        state = self.invariants.graph_state
        if self.edit is None or state not in ("running", "blocked"):
            return False
        due = self.edit_when in ("", state)
        if self.active and self.edits_left and due and self.random() < (0.2 if self.edit_when else 0.05):
            self.edits_left -= 1
            present = {str(row.columns["label"]): row for key, row in self.rows.items() if key.startswith("task:")}
            if present and self.edit.draw(present, self.choice, self.edits_left):
                return True  # somebody else may wait for an answer still
        if self.clock.seconds - self.edited_at > 20.0:
            waiting = [wish for request, wish in self.edit.wishes.items() if self._edit_is_open(request)]
            self.edit.wish = waiting[0] if waiting else None
            return bool(waiting)
        return False

    async def _handler(self, handlers: Handlers) -> None:
        queues = handlers.queues
        found = await queues.receive(
            handlers.names.events, count=self.choice((1, 2, 8, 32)), lease_seconds=MESSAGE_LEASE_SECONDS
        )
        if not found:
            return
        messages = [parse(delivery.body) for delivery in found]
        handled = {id(each.message): each for each in await handlers.handle(self.graph_id, messages)}
        for delivery, message in zip(found, messages, strict=True):
            self.watch.handled(delivery, handled[id(message)])
            if handled[id(message)].error is not None:
                if not isinstance(handled[id(message)].error, NotFound):
                    raise Violation(f"{message}: {handled[id(message)].error!r}")
                continue
            with contextlib.suppress(StaleDelivery):
                await queues.delete(delivery)

    async def _worker(self, process: Process, name: str) -> None:
        handlers, queues, actor = process.handlers, process.handlers.queues, self.actor
        work = WORK
        if self.levels:  # it asks some level of which there is something
            work = self.choice(
                [each for each in self.works if self.queues.due_seconds(each) <= self.clock.seconds] or [WORK]
            )
        found = await queues.receive(work, count=1, lease_seconds=MESSAGE_LEASE_SECONDS)
        for delivery in found:
            message = parse(delivery.body)
            if not isinstance(message, RunTasks):
                raise Violation(f"{message} is on a work queue")
            lease = handlers.clock.now() + timedelta(seconds=60)
            direct = self.random() < self.direct
            rows: dict[str, Row | None] = {}
            if delivery.dequeue_count == 1 and all(task in message.seen for task, _ in message.tasks):
                rows = {row_key(task): _as_seen(task, run, message.seen[task]) for task, run in message.tasks}
            else:
                await handlers.records.load(self.graph_id, [row_key(task) for task, _ in message.tasks], rows)
            claims = []
            for task, run in message.tasks:
                row = rows[row_key(task)]
                known = process.early.seconds(row, handlers.clock.monotonic())
                claim = Claim(task, run, self.clock.new_id(), name, lease, False, edited_in(row), 60.0, known)
                self.believes(claim.claim, row)
                claims.append(claim)
            conflicts = handlers.counters.conflicts
            over = {key: row.etag for key, row in rows.items() if row is not None}
            if direct:
                answers = await handlers.advance(self.graph_id, claims)
            else:
                answers = await handlers.transition(self.graph_id, claims, rows=rows)
            actor.stage = "claimed"
            mine: list[Claim] = []
            for answer in answers:
                self.watch.claimed(answer)
                if isinstance(answer.item, Claim) and answer.outcome in (Outcome.APPLIED, Outcome.REPEATED):
                    mine.append(answer.item)
            if handlers.counters.conflicts > conflicts:
                over = {}
            etags = {key: (row.etag, over[key]) for key, row in rows.items() if row is not None and key in over}
            if direct:
                await self._work_directly(handlers, name, mine)
            else:
                await self._work_by_message(handlers, mine, etags)
            actor.stage = "reported"
            early = WorkMessage(delivery)
            seen = handlers.row_cache.of(self.graph_id).rows if direct else rows
            for task_id, _ in message.tasks:
                row = seen.get(row_key(task_id))
                now, moment = handlers.clock.now(), handlers.clock.monotonic()
                if not hold_until_due(early, row, process.early, now, moment):
                    hold_for_room(early, row, handlers.clock.now())
            with contextlib.suppress(StaleDelivery):
                if early.busy_until is None:
                    await queues.delete(delivery)
                else:
                    seconds = (early.busy_until - handlers.clock.now()).total_seconds()
                    seconds = min(max(1.0, seconds + 1.0), limits.DELAY_SECONDS_MAX)
                    await queues.renew(delivery, lease_seconds=seconds)

    def used_by(self, handlers: Handlers) -> Used | None:
        """What a worker says of what it has used for the graph."""
        return None

    async def _work_by_message(
        self, handlers: Handlers, claims: Sequence[Claim], etags: Mapping[str, tuple[str, str]]
    ) -> None:
        completed: list[TaskResult] = []
        failed: list[TaskResult] = []
        for item in claims:
            if await self._stopped(handlers, item):
                continue
            result = self._execute(item, *etags.get(row_key(item.task_id), ("", "")))
            (failed if result.resolution["failed"] else completed).append(result)
        bodies = []
        if completed:
            bodies.append(to_text(TaskCompleted(self.graph_id, tuple(completed), used=self.used_by(handlers))))
        if failed:
            bodies.append(to_text(TaskFailed(self.graph_id, tuple(failed))))
        if bodies:
            await handlers.queues.send(handlers.names.events, bodies)

    async def _work_directly(self, handlers: Handlers, name: str, claims: Sequence[Claim]) -> None:
        """Complete in commits of its own, and go on with what they make ready."""
        local_worker = SimulatedTaker(self, handlers, name)
        local_worker.running.extend(claims)
        while local_worker.running or local_worker.wants(self.graph_id):
            while local_worker.running:
                item = local_worker.running.pop(0)
                if await self._stopped(handlers, item):
                    continue
                result = self._execute(item)
                if result.resolution["failed"]:
                    message = TaskFailed(self.graph_id, (result,))
                    await handlers.queues.send(handlers.names.events, [to_text(message)])
                else:
                    local_worker.results.append(
                        Completed(result.task, result.run, result.claim, result.ended, result.resolution)
                    )
                if self.random() < 0.5:
                    break  # some report each by itself
            await handlers.advance(self.graph_id, [], local_worker=local_worker)
        for task_id, run in local_worker.stock:
            level = self._level_of(self.labels[task_id])
            await handlers.dispatcher.dispatch(self.graph_id, "default", [(task_id, run)], level=level)

    async def _stopped(self, handlers: Handlers, item: Claim) -> bool:
        if await self._stops(handlers, item):
            return True
        if self.active and self.random() < 0.03:
            self.fault_counts["handed back"] += 1
            await handlers.transition(self.graph_id, [HandBack(item.task_id, item.run, item.claim, "stop")])
            return True
        return False

    def _execute(self, item: Claim, etag: str = "", over: str = "") -> TaskResult:
        self._executed(item)
        label = self.labels[item.task_id]
        before = self.invariants.failed_runs.get(label, 0)
        temporary = False
        if wanted := self.temporary.get(label, 0):
            before += self.invariants.temporary_runs.get(label, 0)
            temporary = before < wanted
        failed = before < self.fails.get(label, 0) + wanted
        resolution = {"failed": True, "reason": "x"} if failed else {"failed": False}
        ended = self.clock.now().isoformat()
        if temporary:
            retry_after = self.choice((None, None, 0.0, 20.0))
            return TaskResult(
                item.task_id,
                item.run,
                item.claim,
                ended,
                resolution,
                etag=etag,
                over=over,
                temporary=True,
                retry_after=retry_after,
            )
        return TaskResult(item.task_id, item.run, item.claim, ended, resolution, etag=etag, over=over)

    def believes(self, claim: str, row: Row | None) -> None:
        """A worker is about to claim a run, by the definition on a row that it has seen."""
        self.believed[claim] = str(row.columns.get("task", "")) if row is not None else ""

    def _executed(self, item: Claim) -> None:
        key = (item.task_id, item.run)
        meant, stood = self.believed.get(item.claim), self.claimed.get(item.claim)
        hold(meant == stood, f"{self.labels[item.task_id]} is executed as {meant}, and was claimed as {stood}")
        self.executions[key] = self.executions.get(key, 0) + 1
        hold(self.executions[key] == 1, f"{self.labels[item.task_id]} run {item.run} executed twice")

    async def _rerun(self) -> None:
        handlers = self.handlers()
        for key, row in list(self.rows.items()):
            if key.startswith("task:") and row.columns["state"] in (TaskState.FAILED, TaskState.EXCEPTION):
                message = Rerun(self.graph_id, ((reference_of(key), int(row.columns["run"])),))
                await handlers.queues.send(handlers.names.events, [to_text(message)])

    async def _ask(self, handlers: Handlers, message: Message) -> None:
        """Send a message; or plan what it would do, and have that made, if nothing moves meanwhile."""
        if not (self.planned and self.active and self.random() < self.planned):
            await handlers.queues.send(handlers.names.events, [to_text(message)])
            return
        with contextlib.suppress(NotFound, Conflict, IntegrityError):  # rows of different moments
            plan = await foresee(handlers, self.graph_id, [message])
            await change(handlers, self.graph_id, [message], by="ann", plan=plan.digest)
            self.plans["asked"] += 1

    def taking_up(self, partition: str, changes: Sequence[Change]) -> list[tuple[str, Foreseen]]:
        """Before a commit: the digest that a change is taken up under, and the plan of it by the rows as they stand."""
        found: list[tuple[str, Foreseen]] = []
        if not self.planned or partition != self.graph_id:
            return found
        for each in changes:
            head = self.rows.get(each.key) if each.key.startswith("request:") else None
            if head is None or not isinstance(each, Merge) or head.columns.get("kind") != CHANGE:
                continue
            if each.columns.get("state") == "accepted":
                request = each.key.removeprefix("request:")
                copied = MemoryTables()
                copied.partitions[partition] = dict(self.rows)
                text = "".join(
                    gathered(row.columns, "text")
                    for key, row in sorted(self.rows.items())
                    if key.startswith(f"request:{request}:")
                )
                messages = [parse(json.dumps(one)) for one in json.loads(text)]
                clock = StandingClock(self.clock.now())
                handlers = Handlers(Records(copied, clock), MemoryQueues(clock), clock)
                found.append((str(head.columns["plan"]), drive(foresee(handlers, self.graph_id, messages))))
        return found

    def taken_up(self, planned: Sequence[tuple[str, Foreseen]]) -> None:
        """After the commit. What rests on more rows than go along may have moved (`engine.requests`)."""
        for digest, plan in planned:
            self.plans["taken up"] += 1
            if len(plan.rests_on) <= int(limits.COMMIT_CHANGES_MAX * 0.6):
                hold(plan.digest == digest, f"a change is taken up under {digest}, and does something else: {plan}")

    async def _again(self) -> None:
        """Ask for another run of some tasks that have ended."""
        handlers = self.handlers()
        ended = sorted(key for key, row in self.rows.items() if row.columns.get("state") in RESOLVED and _is_task(key))
        chosen = {self.choice(ended): None for _ in range(self.choice((3, 2, 1)))} if ended else {}
        tasks = tuple((reference_of(key), int(self.rows[key].columns["run"])) for key in chosen)
        if tasks:
            await self._ask(handlers, Rerun(self.graph_id, tasks, "x", self.state() == "cancelled", "ann"))

    def _again_comes(self, rate: float) -> bool:
        """Whether somebody reruns something now; with faults alone, as what comes last is to come to an end."""
        if (
            not self.again_left
            or not self.active
            or self.state() not in ("running", "blocked", "finished", "cancelled")
        ):
            return False
        if self.random() >= rate or not any(state in RESOLVED for state in self.invariants.states.values()):
            return False
        self.again_left -= 1
        return True

    async def _cancel(self) -> None:
        """Ask for it; asked again, the same is asked for."""
        handlers = self.handlers()
        if self.cancel == "task" and self.cancel_of is None:
            there = sorted(key for key in self.rows if key.startswith("task:"))
            if not there:
                return  # edits have taken all of them away, and the graph is over
            key = self.choice(there)
            self.cancel_of = reference_of(key), int(self.rows[key].columns.get("manualReruns", 0))
        tasks = (self.cancel_of,) if self.cancel_of is not None else ()
        if self.cancel_reopened < 0:
            self.cancel_reopened = int(self.rows[GRAPH].columns.get("reopened", 0))
        terminate, reopened = self.cancel == "terminate", self.cancel_reopened
        message = Cancel(self.graph_id, tasks, "x", terminate=terminate, reopened=0 if tasks else reopened, by="ann")
        await self._ask(handlers, message)

    def _cancel_is_taken_up(self) -> bool:
        self.is_cancelled = self.is_cancelled or self._cancel_stands()
        if self.is_cancelled and self.cancels_left > 1 and self.state() in ("running", "blocked"):
            self.cancels_left -= 1
            self.is_cancelled, self.cancel_reopened = False, -1
        return self.is_cancelled

    def _cancel_stands(self) -> bool:
        if self.cancel_of is None:
            if self.cancel_reopened >= 0 and int(self.rows[GRAPH].columns.get("reopened", 0)) > self.cancel_reopened:
                return True  # it has gone on since
            return self.state() in ("cancelling", "cancelled", "finished")
        row = self.rows.get(row_key(self.cancel_of[0]))
        if row is None:
            return True  # an edit has taken it away
        columns = row.columns
        over = columns["state"] in ("completed", "failed", "exception", "skipped")
        return bool(over or columns.get("cancel") or int(columns.get("manualReruns", 0)) > self.cancel_of[1])

    async def _stops(self, handlers: Handlers, item: Claim) -> bool:
        """Whether a worker learns from the renewal of its lease that it is to stop a run: then it does."""
        if not self.cancel or self.random() < 0.5:
            return False
        until = handlers.clock.now() + timedelta(seconds=60)
        (answer,) = await handlers.transition(self.graph_id, [Renew(item.task_id, item.run, item.claim, until, 60.0)])
        if answer.outcome is Outcome.APPLIED and answer.reason:
            await handlers.transition(self.graph_id, [HandBack(item.task_id, item.run, item.claim, "stopped")])
            return True
        return answer.outcome is Outcome.STALE

    # --- holding back

    def _unanswered(self) -> list[str]:
        """Holders of which the rows do not say yet what somebody has asked for last."""
        graph = self.rows.get(GRAPH)
        if graph is None or graph.columns["state"] not in ("running", "blocked"):
            return []
        found = []
        for what, (on, _) in self.wishes.items():
            row = self.rows.get(row_key(_task_id_of(self.graph_id, what[5:]))) if what.startswith("task:") else graph
            if row is None or (row is not graph and row.columns["state"] not in TASK_UNRESOLVED):
                continue
            holder = INACTIVE if row is not graph else by_group(what) if what else PAUSED
            if (holder in json.loads(str(row.columns.get("held", "") or "[]"))) != on:
                found.append(what)
        return found

    def _wish(self) -> str | None:
        """What somebody asks for now: a new pause, the end of one, or once more what went unheard."""
        state = self.invariants.graph_state
        if state not in ("running", "blocked"):
            return None
        now, on = self.clock.seconds, [what for what, (held, _) in self.wishes.items() if held]
        if self.active and self.pauses_left and self.random() < 0.05:
            what = self.choice(("", "", *self.document.groups, *(f"task:{label}" for label in self.document.tasks)))
            if what not in on:
                self.pauses_left -= 1
                return self._wished(what, on=True)
        if on and (not self.active or self.random() < 0.03):
            return self._wished(on[0], on=False)
        unheard = self._unanswered() if now - self.wished_at > 20.0 else []
        if not unheard:
            return None
        # Lost, or of two that were under way at once the other counts, by a clock that is ahead: it is asked for anew.
        return self._wished(unheard[0], on=self.wishes[unheard[0]][0])

    def _wished(self, what: str, *, on: bool) -> str:
        row = self.rows.get(row_key(_task_id_of(self.graph_id, what[5:])) if what.startswith("task:") else GRAPH)
        holder = INACTIVE if what.startswith("task:") else by_group(what) if what else PAUSED
        said = json.loads(str(row.columns.get("heldAsked", "") or "{}")) if row is not None else {}
        self.wishes[what] = on, self._asked([said.get(holder, "")])
        return what

    def _asked(self, seen: Sequence[str]) -> str:
        """When somebody asks who has seen this, by a clock that may be off by a year."""
        off = timedelta(seconds=self.choice(CLIENT_SKEWS_SECONDS), microseconds=self.steps)
        return asked_after(self.clock.now() + off, seen, self.random())

    async def _change(self) -> None:
        """Somebody changes a limit, or sets one."""
        whole = [""] if self.document.max_in_flight or self.anew else []
        groups = [name for name, group in self.document.groups.items() if group.max_in_flight or self.anew]
        name = self.choice([*whole, *groups] or [""])
        row = self.rows.get(limit_key(limit_scope(self.graph_id, name)))
        asked = self._asked([str(row.columns.get("asked", ""))] if row is not None else [])
        handlers = self.handlers()
        message = SetLimit(self.graph_id, self.choice((1, 0, 3, 2)), asked, name, by="ann")
        await self._ask(handlers, message)

    async def _prioritize(self) -> None:
        """Some tasks are to have another level."""
        there = [each for each in self.labels if row_key(each) in self.rows]
        tasks = tuple({self.choice(there): None for _ in range(3)})
        asked = self._asked([str(self.rows[row_key(each)].columns.get("prioritized", "")) for each in tasks])
        self.levels_asked[asked] = self.choice(LEVELS)
        handlers = self.handlers()
        message = Prioritize(self.graph_id, self.levels_asked[asked], asked, tasks, by="ann")
        await self._ask(handlers, message)

    async def _hold(self, what: str) -> None:
        on, asked = self.wishes[what]
        tasks = (_task_id_of(self.graph_id, what[5:]),) if what.startswith("task:") else ()
        message = HoldBack(self.graph_id, on, asked, "" if tasks else what, tasks, by="ann")
        handlers = self.handlers()
        await self._ask(handlers, message)

    async def _sweep(self) -> None:
        own = self.far_clocks.get("sweep")
        handlers = self.handlers(self.choice(SKEWS_SECONDS)) if own is None else self._handlers_by(own)
        swept = await sweep(handlers, period_seconds=self.sweep_seconds)
        assert isinstance(swept, Swept)

    # --- invariants

    def committed(self, partition: str, changes: Sequence[Change]) -> None:
        """After every commit."""
        if partition == self.graph_id:
            rows = self.tables.partitions[partition]
            updated: list[str] = []
            if self.edit is not None:
                updated = self._edited(changes)
            for each in changes:
                if not each.key.startswith("task:") or (row := rows.get(each.key)) is None:
                    continue
                if row.columns["state"] == "running":
                    self.claimed.setdefault(str(row.columns["claim"]), str(row.columns.get("task", "")))
                elif self.temporary:
                    self._pauses(row)
            self.invariants.committed(rows, changes, updated)
            if self.pauses or self.changes or self.levels:
                self._asked_no_earlier(changes)
            if self.levels:
                self._have_levels(changes)
            if self.pauses:
                self._now_ready(
                    [self.rows[each.key] for each in changes if each.key.startswith("task:") and each.key in self.rows]
                )

    def _reruns_by_hand(self, task_id: str) -> int:
        row = self.rows.get(row_key(task_id))
        return int(row.columns.get("manualReruns", 0)) if row else -1

    def _edited(self, changes: Sequence[Change]) -> list[str]:
        """Bring the model up to a commit; what is refused changes nothing but its own row."""
        assert self.edit is not None
        made, gone = self.edit.made, set(self.edit.deleted)
        updated = self.edit.committed(changes)
        states = self.invariants.states
        for task_id in (_task_id_of(self.graph_id, each) for each in updated):
            if states[task_id] in FAILED_FOR_GOOD:
                self.mended[task_id] = self._reruns_by_hand(task_id)
        if self.edit.made > made:
            self.invariants.edited(self.tasks, self.edit.deleted - gone)
        for each in changes:
            request = each.key.removeprefix("request:")
            if request in self.edit.wishes and isinstance(each, Merge) and each.columns.get("state") == "refused":
                self.edit.refused += 1
                hold(len(changes) == 1, f"an edit is refused, and something is written: {changes}")
        return updated

    def _asked_no_earlier(self, changes: Sequence[Change]) -> None:
        """Of two wishes the later one counts, in whatever order they come and however often."""
        for each in changes:
            if isinstance(each, Insert | Delete):
                self.asked = {name: asked for name, asked in self.asked.items() if not name.startswith(f"{each.key} ")}
                continue
            said = json.loads(str(each.columns.get("heldAsked", "") or "{}"))
            if limit := each.columns.get("asked"):
                said["limit"] = limit
            if prioritized := each.columns.get("prioritized"):
                said["level"] = prioritized
            for holder, asked in said.items():
                name = f"{each.key} {holder}"
                hold(asked >= self.asked.get(name, ""), f"{name}: {asked} takes the place of {self.asked.get(name)}")
                self.asked[name] = asked

    def _have_levels(self, changes: Sequence[Change]) -> None:
        """A task gets the level that was asked for last, and none in mid-run."""
        for each in changes:
            row = self.rows.get(each.key)
            if row is None or not isinstance(each, Merge) or not each.key.startswith("task:"):
                continue
            level = level_of(row.columns.get)
            if asked := each.columns.get("prioritized"):
                hold(level == self.levels_asked[str(asked)], f"{each.key} is {level}: {self.levels_asked[str(asked)]}")
                hold(
                    "state" in each.columns or row.columns["state"] != "running", f"{each.key} gets {level} as it runs"
                )
            if "priority" in each.columns:
                self.had_levels[each.key].add(level)

    def _now_ready(self, rows: Sequence[Row]) -> None:
        for row in rows:
            if row.columns["state"] == TaskState.PENDING and row.columns.get("held", "[]") in ("", "[]"):
                self.sendable.add((reference_of(row.key), int(str(row.columns["run"]))))

    def sent(self, body: str, level: str) -> None:
        """A work message names no run that has never stood ready, or only while it was held back.

        Nor does it go to a lower level than that of its task, but where it tells idle workers of that level.
        """
        message = parse(body)
        assert isinstance(message, RunTasks)
        for task_id, run in message.tasks:
            label = self.labels[task_id]
            if self.pauses:
                hold((task_id, run) in self.sendable, f"run {run} of {label} is sent, and was never ready")
            own = max((self._level_of(label), *self.had_levels[row_key(task_id)]), key=rank)
            hold(message.level or rank(level) <= rank(own), f"{label} is {own}, and is sent as {level}")

    def _level_of(self, label: str) -> str:
        """The level of a task; of one that an edit has taken away, the lowest."""
        return self.tasks[label].priority or "normal" if label in self.tasks else LEVELS[-1]

    def all_tasks(self) -> dict[str, Any]:
        return self.tasks

    # --- the driver

    def spawn(self, name: str, coroutine: Coroutine[Any, Any, Any]) -> None:
        self.spawned += 1
        actor = Actor(name, coroutine, self.clock.seconds, number=self.spawned)
        self.watch.spawned(actor)
        self.actors.append(actor)

    def advance(self) -> None:
        """Somebody goes on, up to the next storage call."""
        actors = self.actors
        index = int(self.random() * len(actors)) if len(actors) > 1 else 0
        actor = self.actor = actors[index]
        seconds = self.clock.seconds
        actor.idle_seconds = seconds - actor.advanced_at
        actor.advanced_at = seconds
        try:
            if self.active and self.faults.crash and self.random() < self.faults.crash / 4:
                # Told to stop inside a storage call, whose answer it never hears.
                self.fault("cancelled", "")
                self.watch.met["R55"] += 1
                actor.coroutine.throw(asyncio.CancelledError())
            else:
                actor.coroutine.send(None)
            return
        except StopIteration:
            pass
        except (Crash, asyncio.CancelledError):
            self.watch.crashed(actor)
        except (StorageUnavailable, Conflict, Unclear) as error:
            if self.trace is not None:
                self.note(f"gives up: {error!r}")
        except TaskgraphError as error:
            raise Violation(f"{actor.name}: {error!r}") from error
        del actors[index]

    def submitted(self) -> bool:
        return self.invariants.graph_state not in ("", "submitting")

    def state(self) -> str:
        return self.invariants.graph_state

    def run(self, steps_max: int = STEPS_MAX) -> str:
        """Faults first, then quiet time; gives the final state of the graph."""
        try:
            with bounded(self.bounds):
                end = self._run(steps_max)
                tasks = self._tasks_taken() if end != "cancelled" else self.tasks
                settled(self.rows, self.graph_id, tasks, goes_on=self.goes_on, counted=self.counted, apart=self.apart)
                self.invariants.consistent(self.rows)
                fences = self.history.count("cancelling")
                asked = self.cancels if self.cancel and self.cancel != "task" else 0
                fails_fast = self.document.failure_policy == FailurePolicy.FAIL_FAST
                hold(
                    fails_fast or fences <= asked, f"the graph was cancelled {fences} times, and {asked} were asked for"
                )
                if (self.goes_on or self.apart) and end != "cancelled" and not self.reruns:
                    self._failures()
                return end
        except Violation as violation:
            raise AssertionError(f"seed {self.seed}: {violation}") from violation
        finally:
            for actor in self.actors:
                actor.coroutine.close()

    def _failures(self) -> None:
        """Who failed for good is who fails more often than it may, and ran."""
        for key, row in self.rows.items():
            if key.startswith("task:"):
                label, state = str(row.columns["label"]), str(row.columns["state"])
                fails = self.fails.get(label, 0) > self.tasks[label].reruns
                hold(state != "completed" or not fails, f"{label} completed, and fails for good")
                hold(state != "failed" or fails, f"{label} failed for good, and may fail more often")
                ran = any(task_id == key[5:] for task_id, _ in self.executions)
                hold(state != "skipped" or not ran or self.again, f"{label} is skipped, and was executed")

    def _begin(self) -> None:
        """Submit the graph in peace, or take over what the same submission has left behind in another history."""
        known = begun_before if "submitter" not in self.far_clocks else None
        key = (repr(self.document), *sorted(self.bounds.items()))
        if known is not None and self.trace is None and key in known:
            known[key].put_into(self)
        else:
            self.spawn("submit", self._submit())
            self.actor = self.actors.pop()
            with contextlib.suppress(StopIteration):
                while True:
                    self.actor.coroutine.send(None)
            if known is not None and len(known) < BEGUN_KEPT_MAX:
                known[key] = Begun(self)
        if self.pauses:  # what was taken over was committed in another history
            self._now_ready([row for key, row in self.rows.items() if key.startswith("task:")])
        self.calls = self.commits = 0  # none of it was at risk
        self.watch.met.clear()

    def _run(self, steps_max: int) -> str:
        draw, clock, actors = self.random, self.clock, self.actors
        far = self.far
        if far is not None:
            self.far_clocks = {
                role: SkewedClock(self.clock, far.off(draw)) for role in ("sweep", "submitter") if role in far.roles
            }
        if self.begun:
            self._begin()
        self.active = True
        least, most = self.storm_steps or (50, min(200 + 50 * len(self.tasks), 2000))
        stormy = most - 1 - int(draw() * (most - least))
        crowd = self.choice(self.crowds)
        look_at = 0
        processes = [self._process(number) for number in range(self.processes)]
        if self.cancel:
            self.cancel_step = int(draw() * draw() * most)
        for step in range(steps_max):
            self.steps = step
            if step == stormy:
                self._calm()
                if far is not None and not far.stays:
                    self._clocks_right(processes)
            if far is not None and self.active and draw() < far.jumps:
                self._jump(processes)
            if not actors or (step >= look_at and len(actors) < crowd):
                chosen = self._next_actor(processes)
                if chosen is not None:
                    self.spawn(*chosen)
                elif not actors:
                    if self._ended():
                        return self.state()
                    self._pass_time()
                    continue
                else:
                    look_at = step + 4  # nothing comes up all that fast
            self.advance()
            passes = draw()
            if passes < 0.1:  # time goes by while they are at work; seldom much, as when a machine sleeps
                clock.seconds += 70.0 if passes < 0.0015 else self.choice((0.1, 1.0, 7.0))
        raise Violation(f"no end after {steps_max} steps: {self.state()}")

    def _tasks_taken(self) -> dict[str, TaskNode]:
        """The tasks of the submission and of all extensions that were taken."""
        taken = [self.document]
        answers = {row.columns.get("digest"): row.columns.get("state") for row in self.rows.values()}
        for done, extension in zip(self.extended, self.extensions, strict=True):
            answer = answers.get(content_hash(extension))
            hold(answer == "done" or not done, f"an extension was done, and is {answer}")
            if answer == "done":
                taken.append(extension)
        found = logical_tasks(taken)
        return found if self.edit is None else {label: self.tasks[label] for label in found if label in self.tasks}

    def _calm(self) -> None:
        self.active = False
        if self.trace is not None:
            self.trace.append(f"{self.steps:>5} {self.clock.seconds:>8.2f}s  from here on without faults")

    def _pass_time(self) -> None:
        """Nobody has anything to do: on to the next moment at which somebody may."""
        if self.has_limits and not self.active:
            self._hold_that_none_is_late()
        self.clock.seconds = max(self.clock.seconds, min(*self._due_seconds(), self.next_sweep)) + 0.01

    def _hold_that_none_is_late(self) -> None:
        """With no faults, what is too late is ended in time: by a clock that is behind, too, and if it came in late."""
        patience = 2.0 * self.sweep_seconds - min(SKEWS_SECONDS) + 1.0
        now = self.clock.seconds
        late = [str(row.columns["label"]) for row in self._tasks_past(self.clock.now())] if self.submitted() else []
        self.late_since = {label: self.late_since.get(label, now) for label in late}
        long_late = {row.columns["label"] for row in self._tasks_past(self.clock.now() - timedelta(seconds=patience))}
        ignored = [label for label, since in self.late_since.items() if label in long_late and now - since > patience]
        hold(not ignored, f"{ignored} are past their time, and nobody ends them")

    def _tasks_past(self, moment: datetime) -> list[Row]:
        """Tasks that should have been ended; not those that are to be cancelled: whatever ends their run ends them."""
        return [
            row
            for key, row in self.rows.items()
            if key.startswith("task:")
            and not row.columns.get("cancel")
            and overdue(row.columns.get, moment - timedelta(seconds=self._doubted_seconds(row)))
        ]

    def _doubted_seconds(self, row: Row) -> float:
        """How much later the lease of a run ends as its end was not believed: a length and a sweep each time."""
        doubts = int(row.columns.get("leaseDoubts", 0)) if row.columns["state"] == TaskState.RUNNING else 0
        return doubts * (float(row.columns.get("leaseSeconds", 0)) + self.sweep_seconds)

    def _due_seconds(self) -> tuple[float, float]:
        """When the next event message may be received, and the next work message."""
        queues = self.queues
        if queues.changes != self._due_known:
            self._due_known = queues.changes
            self._due = queues.due_seconds(EVENTS), min(map(queues.due_seconds, self.works))
        return self._due

    def _ended(self) -> bool:
        if not self.submitted() or any(self.queues.messages.get(name) for name in (EVENTS, *self.works)):
            return False
        if self.again_left and self._again_comes(0.8):
            self.spawn("again", self._again())
            return False
        if self.state() in ("finished", "cancelled"):
            return True
        graph = self.rows[GRAPH].columns
        if (self.pauses and (self._unanswered() or graph.get("settling") is True)) or graph.get("limiting") is True:
            return False
        return self.state() == "blocked" and (not self.reruns or self._beyond_help()) and self._at_rest()

    def _beyond_help(self) -> bool:
        """Whether all that failed for good is past its deadline, so that no rerun helps."""
        if not self.has_limits:
            return False
        failed = [row for row in self.rows.values() if row.columns.get("state") in FAILED_FOR_GOOD]
        return all(self._past_deadline(row) for row in failed)

    def _past_deadline(self, row: Row) -> bool:
        deadline = row.columns.get("deadline")
        return isinstance(deadline, datetime) and deadline <= self.clock.now()

    def _at_rest(self) -> bool:
        if any(state in ("pending", "running") for state in self.invariants.states.values()):
            return False
        if self.has_limits and self._tasks_past(self.clock.now()):
            return False
        return not any(
            (key.startswith("request:") and row.columns.get("state") in ("staged", "accepted"))
            or row.columns.get("due", "") != ""
            for key, row in self.rows.items()
        )

    def _next_actor(self, processes: list[Process]) -> tuple[str, Coroutine[Any, Any, Any]] | None:
        """Somebody for whom there is something to do."""
        draw, now = self.random, self.clock.seconds
        submitted = self.invariants.graph_state not in ("", "submitting")
        if not submitted and (draw() < self.rival_rate or not any(each.name == "submit" for each in self.actors)):
            return "submit", self._submit()
        events, work = self._due_seconds()
        choices: list[str] = []
        if now >= self.next_sweep or draw() < 0.01:
            choices.append("sweep")
        number = -1
        if submitted:
            state = self.invariants.graph_state
            waiting = [n for n, done in enumerate(self.extended) if not done] if self.extended else []
            wants = self.cancel and self.steps >= self.cancel_step and not self._cancel_is_taken_up()
            if wants and (now - self.cancel_at > 20.0 or draw() < 0.02):
                choices.append("cancel")
            if waiting and state not in ("finished", "cancelled") and self._extends_now():
                number = self.choice(waiting)
                if now - self.asked_at[number] > 20.0 or draw() < 0.02:
                    choices.append("extend")
            if self.reruns and state == "blocked" and now - self.rerun_at > 20.0 and self._at_rest():
                choices.append("rerun")
        if self.again_left and submitted and self._again_comes(0.05):
            return "again", self._again()
        if self.edit is not None and self._edit_comes():
            self.edited_at = now
            return "edit", self._edit()
        wish = self._wish() if self.pauses else None
        if wish is not None:
            self.wished_at = now
            return "hold", self._hold(wish)
        if self.changes_left and submitted and self.active and draw() < 0.05:
            self.changes_left -= 1
            return "change", self._change()
        if self.levels and self.levels_left and submitted and self.active and draw() < 0.05:
            self.levels_left -= 1
            return "prioritize", self._prioritize()
        if work <= now:
            choices += ("worker", "worker")
        if events <= now:
            choices += ("handler", "handler")
        if not choices:
            return None
        chosen = choices[int(draw() * len(choices))]
        match chosen:
            case "handler":
                return chosen, self._handler(self._who(processes, chosen).handlers)
            case "worker":
                return chosen, self._worker(self._who(processes, chosen), f"w{int(draw() * 3)}")
            case "extend":
                self.asked_at[number] = now
                return chosen, self._extend(number)
            case "rerun":
                self.rerun_at = now
                return chosen, self._rerun()
            case "cancel":
                self.cancel_at = now
                return chosen, self._cancel()
        self.next_sweep = now + self.sweep_seconds
        return chosen, self._sweep()

    def oracle(self) -> str:
        """From graph and outcomes alone: how must it end? (Leases lost too often block a graph that nobody reruns.)

        One that is cancelled may have come to its end before.
        """
        if self.state() == "cancelled" and self.cancel and self.cancel_of is None:
            return "cancelled"
        if self.goes_on or self.apart:
            ends = ((str(row.columns.get("label")), row.columns.get("state")) for row in self.rows.values())
            failed = [label for label, state in ends if state in FAILED_FOR_GOOD]
            return "finished" if all(map(self.invariants.passes, failed)) else "blocked"
        if not self.reruns and any(row.columns.get("state") == TaskState.EXCEPTION for row in self.rows.values()):
            return "blocked"
        if not self.reruns and any(reruns == self._reruns_by_hand(each) for each, reruns in self.mended.items()):
            return "blocked"  # what they may fail now counts from a rerun on, and none came
        failed = [row for row in self.rows.values() if row.columns.get("state") in FAILED_FOR_GOOD]
        if self.has_limits and any(map(self._past_deadline, failed)):
            return "blocked"
        present = {row.columns["label"] for key, row in self.rows.items() if key.startswith("task:")}
        for label, node in self.tasks.items():
            fails = self.fails.get(label, 0)
            if wanted := self.temporary.get(label, 0):
                fails += max(0, wanted - retry_of(retry_text(node.timing.get("retry", {}))).limit)
            if label in present and fails > node.reruns and not self.reruns:
                return "blocked"
        return "finished"
