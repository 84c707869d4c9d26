"""Which targets a worker may take work of now, and how much: paused ones, levels in use, permits of limited ones."""

import functools
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from taskgraph.model import limits
from taskgraph.model.errors import StorageError
from taskgraph.model.placement import target_of
from taskgraph.queries.targets import Gates
from taskgraph.worker.context import WorkerContext
from taskgraph.worker.permits import Permits
from taskgraph.worker.slots import Slots
from taskgraph.worker.values import ClaimedRun, ReadyTask

log = logging.getLogger("taskgraph.worker")


@dataclass(slots=True)
class Admission:
    """What becomes of ready tasks, as far as permits go.

    may: they may be claimed. later: there is a permit for each, which is in use. others: this worker has none for them,
    and another may. full: there is no free permit before `until`.
    """

    may: list[ReadyTask] = field(default_factory=list)
    later: list[ReadyTask] = field(default_factory=list)
    others: list[ReadyTask] = field(default_factory=list)
    full: list[ReadyTask] = field(default_factory=list)
    until: datetime | None = None


class TargetGate:
    """Lets work of one worker's targets in."""

    def __init__(
        self, context: WorkerContext, slots: Slots, gates: Gates | None = None, permit_seconds: float = 0.0
    ) -> None:
        """permit_seconds: the lease of its permits, if another than that of its runs."""
        tables, clock = context.handlers.records.tables, context.clock
        self._context = context
        self._targets = frozenset(context.targets)
        self._slots = slots
        self.gates = gates or Gates(tables, clock, context.gate_seconds)
        self.permits = Permits(tables, clock, context.name, permit_seconds or context.lease_seconds)
        self._full: dict[str, float] = {}  # limited target without a free permit -> when to ask again (monotonic)
        self._admitted: set[ReadyTask] = set()  # there is a permit for each, and none is being claimed yet

    # --- pauses, and levels

    @property
    def uses_levels(self) -> bool:
        """Whether any target has work of more than one level."""
        return any(len(self.gates.levels(target)) > 1 for target in self._context.targets)

    @property
    def open_targets(self) -> frozenset[str]:
        """Those whose tasks may be claimed without a further look: they are neither paused nor limited."""
        closed, limited = self.gates.closed, self.permits.limits
        return self._targets.difference(closed, limited) if closed or limited else self._targets

    async def look(self, *, again: bool = False) -> None:
        """Read pauses, levels and limits, unless they are recent; again: even so."""
        try:
            await self.gates.look(again=again)
        except StorageError as error:
            log.warning("whether targets are paused, and which levels are used, could not be read: %s", error)
        if self.gates.seen is not None:
            self.permits.saw(self.gates.rows, self.gates.seen)

    async def is_paused(self, target: str) -> bool:
        """Whether a target is paused, as far as is known now."""
        await self.look()
        # As long as nothing could be read it may be, or limited: it is looked at again before anything is claimed.
        return target in self.gates.closed or self.gates.seen is None

    # --- permits of limited targets

    def _in_use(self, target: str) -> int:
        return self._slots.in_use(target) + sum(one.target == target for one in self._admitted)

    def _wanted(self, target: str, more: int) -> int:
        """Permits for what is in use now, and so many further runs."""
        return min(self._in_use(target) + more, self._context.slots)

    def _may_begin(self, target: str) -> int:
        """How many further runs of a limited target there are permits for."""
        return max(0, self.permits.usable(target) - self._in_use(target))

    def without_permit(self) -> list[str]:
        """Limited targets of which nothing can begin here, as far as is known: their work need not be asked for."""
        now = self._context.clock.monotonic()
        return [
            target
            for target in self.permits.limits
            if target in self._context.targets and now < self._full.get(target, 0.0) and not self._may_begin(target)
        ]

    def permitted(self, ready: Iterable[ReadyTask]) -> list[ReadyTask]:
        """What of these may begin as far as permits go that are held."""
        left = {target: self._may_begin(target) for target in self.permits.limits}
        found: list[ReadyTask] = []
        for one in ready:
            if one.target in left:
                if left[one.target] <= 0:
                    continue
                left[one.target] -= 1
            found.append(one)
        return found

    async def admit(self, ready: Sequence[ReadyTask]) -> Admission:
        """Take permits for these, as far as there are any. Raises StorageError.

        What may be claimed counts as in use from here on, until it is `let_in`, or claimed.
        """
        found = Admission([one for one in ready if one.target not in self.permits.limits])
        for target in dict.fromkeys(one.target for one in ready if one.target in self.permits.limits):
            ones = [one for one in ready if one.target == target]
            count = len(ones)
            usable = await self.permits.take(target, functools.partial(self._wanted, target, count))
            # Others may have begun meanwhile: what is in use counts as it is now, and these from now on.
            room = max(0, usable - self._in_use(target)) if target in self.permits.limits else count
            found.may += ones[:room]
            self._admitted.update(ones[:room])
            if not (rest := ones[room:]):
                continue
            self._full[target] = self._context.clock.monotonic() + limits.GATE_SECONDS
            if usable:
                found.later += rest[:usable]
                found.others += rest[usable:]
            else:
                found.full += rest
                found.until = self._context.clock.now() + timedelta(seconds=limits.GATE_SECONDS)
        return found

    def let_in(self, ready: Iterable[ReadyTask]) -> None:
        """These have been claimed, or are not going to be: they are no longer on their way."""
        self._admitted.difference_update(ready)

    async def give_back_unused(self) -> None:
        """Give permits back that nothing runs under. Raises StorageError."""
        for target in self.permits.targets:
            await self.permits.give_back(target, keep=functools.partial(self._in_use, target))

    async def give_everything_back(self) -> None:
        """Give all permits back, as far as the store answers."""
        for target in self.permits.targets:
            await self._context.guard(self.permits.give_back, target)

    def without_right(self) -> list[ClaimedRun]:
        """Runs that have lost their permit, said once: one that was not renewed may be another worker's by now."""
        found: list[ClaimedRun] = []
        for target, lost in self.permits.lost().items():
            excess = min(lost, self._in_use(target) - self.permits.held(target))
            runs = [
                one
                for one in (*self._slots.waiting, *sorted(self._slots.running, key=lambda one: -one.began))
                if target_of(one.work.definition) == target
            ]
            found += runs[: max(0, excess)] if target in self.permits.limits else ()
        return found
