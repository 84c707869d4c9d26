"""When a worker asks its queues, and in which order.

Every queue of its targets has its turn, and a worker that has enough of its own asks them even so, time and again:
there may be something more urgent, or other graphs.
"""

import contextlib
from collections.abc import Iterator
from typing import Final

from taskgraph.model.priorities import LEVELS, in_turn, rank
from taskgraph.worker.context import WorkerContext
from taskgraph.worker.slots import Slots
from taskgraph.worker.stock import STOCK_MAX
from taskgraph.worker.target_gate import TargetGate

_LOOK_SECONDS: Final = 1.0  # so seldom at least the queues are asked by one that feeds itself, if runs are short
_LOOK_SECONDS_MAX: Final = 5.0  # and if they are not


class QueueTurns:
    """The turns of the work queues of one worker."""

    def __init__(self, context: WorkerContext, gate: TargetGate, slots: Slots, turn: int = 0) -> None:
        self._context = context
        self._gate = gate
        self._slots = slots
        self._turn = turn
        self.receiving = False
        """Whether the queues are asked time and again."""
        self._listening = False
        self.look_first = False
        """Whether the queues are to be asked before the worker takes more of its own."""
        self._looked = context.clock.monotonic()  # at the queues

    def queues(self) -> dict[str, tuple[str, int]]:
        """The queues in the order of this turn, each with its target and the rank of its level.

        Of each level all targets, and each is first in turn: a full queue must not starve the others.
        """
        names, targets = self._context.names, self._context.targets
        levels = {target: self._gate.gates.levels(target) for target in targets}
        used = [each for each in LEVELS if any(each in levels[target] for target in targets)]
        first = self._turn % len(targets)
        return {
            names.work(target, level): (target, rank(level))
            for level in in_turn(used, self._turn)
            for target in (*targets[first:], *targets[:first])
            if level in levels[target]
        }

    def next(self) -> dict[str, tuple[str, int]]:
        self._turn += 1
        self._looked = self._context.clock.monotonic()
        return self.queues()

    def may_feed_itself(self) -> bool:
        """Whether this worker may take what it knows of now; not if it is time to ask the queues first.

        A worker that always has work of its own would never see what is more urgent, nor of other graphs.
        """
        if self.look_first or not self.receiving or self._listening or not self._context.active:
            return not self.look_first
        seconds = self._slots.seconds
        often = seconds is None or seconds < _LOOK_SECONDS or self._gate.uses_levels
        if self._context.clock.monotonic() - self._looked < (_LOOK_SECONDS if often else _LOOK_SECONDS_MAX):
            return True
        self.look_first = True
        self._context.freed.set()
        return False

    def room_until_next(self) -> int:
        """How many tasks may be asked for by one that feeds itself.

        With handlers in its process, whose own graphs need no messages: as many as it runs before it asks again.
        """
        room, seconds = self._slots.capacity, self._slots.seconds
        if room <= 0 or seconds is None or self._context.local_handlers is None:
            return room
        return max(room, min(STOCK_MAX // 2, int(self._context.slots * _LOOK_SECONDS / max(seconds, 1e-3))))

    def asked(self) -> bool:
        """The queues have been asked; gives whether the worker had to wait for that."""
        waited, self.look_first = self.look_first, False
        return waited

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """There is room, the queues have been asked, and will be."""
        self._listening = True
        try:
            yield
        finally:
            self._listening = False
