"""The parts of `gateway`: one taking of tasks for a worker elsewhere, and what the registry says of such workers."""

import asyncio
import logging
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from taskgraph.documents.results import files_taken
from taskgraph.engine.handlers import Handlers
from taskgraph.engine.poison import Poison
from taskgraph.model import limits
from taskgraph.model.clock import Clock
from taskgraph.model.errors import InvalidInput, StorageError
from taskgraph.model.placement import Offer
from taskgraph.queries.targets import Gates
from taskgraph.queries.workers import FINISH, NOW
from taskgraph.storage.logs import Logs
from taskgraph.storage.signals.wakeup import Wakeup
from taskgraph.storage.tables import Tables
from taskgraph.worker.claims import Claims
from taskgraph.worker.context import WorkerContext
from taskgraph.worker.executors import Executors, Outcome, Work, WriteLog
from taskgraph.worker.executors.contract import payload_of
from taskgraph.worker.feeding import Feeder
from taskgraph.worker.intake import Intake
from taskgraph.worker.messages import WorkMessages
from taskgraph.worker.permits import MARGIN
from taskgraph.worker.queue_turns import QueueTurns
from taskgraph.worker.registration import RUNNING_SHOWN_MAX, Presence, Registration, WorkerDetails
from taskgraph.worker.reports import Reporter
from taskgraph.worker.runs import Runner
from taskgraph.worker.slots import Slots
from taskgraph.worker.stock import Stock
from taskgraph.worker.target_gate import TargetGate
from taskgraph.worker.values import ClaimedRun

log = logging.getLogger("taskgraph.gateway")

EXECUTOR: Final = "http"
"""The executor of runs elsewhere, as the registry and telemetry name it."""

_BEAT_SECONDS: Final = limits.WORKER_SEEN_SECONDS / 2
_CHANGED_SECONDS: Final = 2.0  # between two writes of a row, if what it shows has changed
_WORKERS_MAX: Final = 10_000


class _Elsewhere:
    """In place of executors: whatever a definition asks for is the business of the worker, but for kept files."""

    name = EXECUTOR
    instant = False
    queue = None

    def can_run(self, definition: Mapping[str, Any]) -> str | None:
        try:
            payload = payload_of(definition)
        except InvalidInput:
            return None  # its worker says so
        if "outputs" in payload or payload.get("cache", False) is not False:
            return "workers over HTTP keep no files: this task has outputs, or a cache"
        if files_taken(definition):
            return "workers over HTTP are given no files, and this task takes some"
        return None

    async def run(self, work: Work, write_log: WriteLog) -> Outcome:
        raise RuntimeError("it runs elsewhere")


_EXECUTORS: Final = Executors([_Elsewhere()], override=_Elsewhere.name)


@dataclass(frozen=True, slots=True)
class Taken:
    """Runs that were claimed, and those that were and have no permit of their target.

    received: whether there were messages. more: whether there may be more of them.
    """

    runs: Sequence[ClaimedRun]
    unpermitted: Sequence[ClaimedRun]
    received: bool
    more: bool


class _SlotsElsewhere(Slots):
    """What is claimed for these slots runs elsewhere, so it never begins here."""

    @property
    def free(self) -> int:
        """None: what has begun elsewhere is known by its first renewal, as the answer to its claim may be lost."""
        return 0

    def fill(self) -> None:
        pass


class Taking:
    """One taking of tasks: a worker that takes what it has slots for, and stops there."""

    def __init__(
        self,
        handlers: Handlers,
        poison: Poison,
        logs: Logs,
        wakeup: Wakeup,
        gates: Gates,
        *,
        name: str,
        target: str,
        labels: Collection[str],
        slots: int,
        lease_seconds: float,
        turn: int,
        per_message: float,
    ) -> None:
        self._context = context = WorkerContext(
            handlers=handlers,
            poison=poison,
            executors=_EXECUTORS,
            logs=logs,
            wakeup=wakeup,
            name=name,
            targets=(target,),
            offer=Offer(frozenset(labels)),
            slots=slots,
            lease_seconds=lease_seconds,
            store_url="",
            message_seconds=min(lease_seconds, limits.LEASE_SECONDS),
        )
        self._target = target
        self._messages = messages = WorkMessages(context)
        self._runner = Runner(context, lose=lambda one, why: None)
        self._slots = slots_ = _SlotsElsewhere(
            context, self._runner, on_ended=lambda *_: None, on_filled=lambda: None, on_full=lambda: None
        )
        # A permit outlasts the lease of its run, as far as clocks may differ.
        self._gate = gate = TargetGate(context, slots_, gates, lease_seconds / (1 - MARGIN))
        stock, turns = Stock(gate, slots_), QueueTurns(context, gate, slots_, turn)
        claims = Claims(context, messages, gate, slots_)
        reporter = Reporter(context, messages, _by_message)
        self._feeder = feeder = Feeder(context, messages, slots_, stock, turns, claims, reporter)
        self._intake = Intake(context, messages, gate, slots_, stock, turns, claims, feeder, per_message)

    async def take(self) -> Taken:
        """Claim what is there now. Raises StorageError."""
        context = self._context
        await self._gate.look()
        try:
            received, more = await self._intake.receive(at_once=True)
        except StorageError as error:  # reach: gateway
            if not self._slots.waiting:
                raise
            log.warning("not all queues of %s could be asked: %s", self._target, error)
            received, more = True, False
        finally:
            context.stop()
            self._feeder.stop_napping()
        runs = [one for own in self._slots.withdraw(lambda one: True).values() for one in own]
        await self._feeder.put_down("full")  # what else came with the messages is for others
        while context.tasks:
            await asyncio.wait(context.tasks)
        without: Collection[str] = ()
        if self._gate.permits.targets:
            without = await self._gate.permits.hand_over(self._target, [one.work.claim for one in runs])
            await self._gate.give_everything_back()
        await self._messages.let_all_go(runs)
        with_permit = [one for one in runs if one.work.claim not in without]
        return Taken(with_permit, [one for one in runs if one.work.claim in without], received, more)

    @property
    def per_message(self) -> float:
        """Tasks in a message of the target, of late."""
        return self._intake.per_message

    async def with_results(self, one: ClaimedRun) -> Work:
        """What is to be run, with the results that it takes. Raises NoResult, StorageError."""
        work, _ = await self._runner.with_results(one.work)
        return work


async def _by_message(one: ClaimedRun, result: object) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class _InHand:
    """A run of a worker, until its lease ends (monotonic), as far as is known here."""

    worker: str
    token: str
    graph_id: str
    label: str
    until: float


class _Hands:
    """Runs that workers have in hand: by claim, and those of a worker or token whose lease has not ended."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._runs: dict[str, _InHand] = {}
        self._by_name: dict[tuple[str, str], dict[str, None]] = {}  # of a worker, or token -> claims

    def get(self, claim: str) -> _InHand | None:
        return self._runs.get(claim)

    def put(self, claim: str, one: _InHand) -> None:
        self._runs[claim] = one
        for name in (("worker", one.worker), ("token", one.token)):
            self._by_name.setdefault(name, {})[claim] = None

    def drop(self, claim: str) -> None:
        if (one := self._runs.pop(claim, None)) is not None:
            for name in (("worker", one.worker), ("token", one.token)):
                own = self._by_name[name]
                del own[claim]
                if not own:
                    del self._by_name[name]

    def of(self, kind: str, name: str) -> list[_InHand]:
        """Of the one of this name. kind: worker, or token."""
        now, claims = self._clock.monotonic(), list(self._by_name.get((kind, name), ()))
        for claim in claims:
            if self._runs[claim].until < now:
                self.drop(claim)
        return [self._runs[claim] for claim in claims if claim in self._runs]


class _Member:
    """A worker elsewhere, as its row in the registry sees it (see `registration.RegisteredWorker`)."""

    at_rest = False

    def __init__(self, name: str, hands: _Hands) -> None:
        self.name = name
        self._hands = hands
        self.draining = ""
        self.registration: Registration | None = None
        self.wrote = -math.inf
        self.shown: tuple[Presence, WorkerDetails] | None = None

    def presence(self) -> Presence:
        own = self._hands.of("worker", self.name)
        return Presence(len(own), [(each.graph_id, each.label) for each in own[:RUNNING_SHOWN_MAX]])

    def drain(self, *, now: bool) -> None:
        self.draining = NOW if now else FINISH

    def undrain(self) -> None:
        self.draining = ""


class Crew:
    """The workers elsewhere that have asked this process for something.

    Each has a row in the registry, which is written when it asks, now and then. What a worker has in hand is known as
    far as it went through this process.
    """

    def __init__(self, tables: Tables, clock: Clock, version: str) -> None:
        self._tables = tables
        self._clock = clock
        self._version = version
        self._members: dict[str, _Member] = {}
        self._hands = _Hands(clock)

    def in_hand(self, token: str) -> int:
        """Runs of all workers that came with a token."""
        return len(self._hands.of("token", token))

    def draining(self, name: str) -> tuple[str, bool]:
        """How a worker is to drain (`queries.workers`), "" if it is not, and whether it is to end then."""
        member = self._members.get(name)
        if member is None or not member.draining or member.registration is None:
            return "", False
        return member.draining, member.registration.exits

    async def asks(
        self, name: str, target: str, labels: Collection[str], slots: int, lease_seconds: float
    ) -> "_Member":
        """A worker asks for tasks."""
        if name not in self._members and len(self._members) >= _WORKERS_MAX:
            self._members.clear()
        member = self._members.setdefault(name, _Member(name, self._hands))
        busy = member.presence().busy
        details = WorkerDetails(
            targets=(target,),
            labels=sorted(labels),
            executors=(_Elsewhere.name,),
            host="",
            slots=busy + slots,
            version=self._version,
            pid=0,
            every_seconds=max(limits.WORKER_SEEN_SECONDS, lease_seconds / 3),
        )
        if member.registration is None:
            member.registration = Registration(self._tables, self._clock, member, details)
        else:
            targets = dict.fromkeys([*member.registration.details.targets, target])
            member.registration.details = replace(details, targets=tuple(targets))
        await self._write(member)
        return member

    def has(self, worker: str, token: str, work: Work, lease_seconds: float) -> None:
        """A worker has got a run."""
        until = self._clock.monotonic() + lease_seconds
        self._hands.put(work.claim, _InHand(worker, token, work.graph_id, work.label, until))

    async def begins(self, worker: str) -> None:
        """A worker that is shown as idle has got runs."""
        member = self._members.get(worker)
        if member is not None and member.shown is not None and not member.shown[0].busy:
            member.wrote = -math.inf
            await self._write(member)

    async def renewed(self, claim: str, lease_seconds: float) -> None:
        if (one := self._hands.get(claim)) is not None:
            self._hands.put(claim, replace(one, until=self._clock.monotonic() + lease_seconds))
            if (member := self._members.get(one.worker)) is not None:
                await self._write(member)

    def has_no_longer(self, claim: str) -> None:
        self._hands.drop(claim)

    async def _write(self, member: _Member) -> None:
        """Write the row of a worker, unless that was done just now; a store in trouble costs the row alone."""
        now = self._clock.monotonic()
        if member.registration is None:
            return
        shows = member.presence(), member.registration.details
        changed = shows != member.shown
        if now - member.wrote < (_CHANGED_SECONDS if changed else _BEAT_SECONDS):
            return
        member.wrote, member.shown = now, shows
        try:
            await member.registration.beat()
        except StorageError as error:  # reach: registry
            log.warning("%s could not be registered: %s", member.name, error)
