"""The slots of a worker, and what has been claimed for them.

Claimed runs begin as slots get free. So many more tasks may be claimed as there are free slots, and as many ahead as
would begin within a moment at the pace of late.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable
from functools import partial
from typing import Any, Final

from taskgraph.model.placement import target_of
from taskgraph.model.timing import run_seconds_max
from taskgraph.worker.context import WorkerContext
from taskgraph.worker.executors import Outcome
from taskgraph.worker.executors.contract import AT_ONCE
from taskgraph.worker.runs import Runner
from taskgraph.worker.values import ClaimedRun, ReadyTask, WorkMessage

_AHEAD_SECONDS: Final = 0.25  # tasks are claimed ahead as long as they would begin within this time
_AHEAD_PER_SLOT: Final = 64
_AHEAD_INSTANT: Final = 512  # of those that take no time
_INSTANT_SECONDS: Final = 0.0005
_SHORT_SECONDS: Final = 0.05  # runs that are shorter stand by
_STANDING_BY_MAX: Final = 128
_PACE_KEPT: Final = 0.8  # weight of what was, in a mean of late

Ended = Callable[[ClaimedRun, Outcome | None, BaseException | None], None]

_Run = Callable[[], Awaitable[Outcome]]


class Slots:
    """What runs, what waits for a slot, and what slots are reserved for.

    on_ended: called with each run that is over; neither an outcome nor an error is one that was cancelled. on_filled:
    called when everything has begun for which there is a slot. on_full: called when something waits for a slot.
    """

    def __init__(
        self,
        context: WorkerContext,
        runner: Runner,
        *,
        on_ended: Ended,
        on_filled: Callable[[], None],
        on_full: Callable[[], None],
    ) -> None:
        self._context = context
        self._runner = runner
        self._on_ended = on_ended
        self._on_filled = on_filled
        self._on_full = on_full
        self.reserved: set[WorkMessage | ReadyTask] = set()  # what is being received, and tasks that are being claimed
        self.waiting: deque[ClaimedRun] = deque()  # claimed, and not begun, those that begin next first
        self._running: dict[ClaimedRun, None] = {}  # the one that began first is the first
        self._standing_by: dict[ClaimedRun, None] = {}  # of these: begun by their executor as soon as there is a slot
        self._others = 0  # of these: whose executor has no queue
        self.seconds: float | None = None  # that a run takes, of late; None before the first

    # --- how much is in hand, and how much more may be

    @property
    def running(self) -> Collection[ClaimedRun]:
        """Runs that have begun, the ones that fill a slot."""
        return self._running.keys()

    @property
    def has_more(self) -> bool:
        """Whether there is work for the slots after what runs now."""
        return bool(self.waiting or self._standing_by)

    @property
    def claimed(self) -> tuple[ClaimedRun, ...]:
        return (*self._running, *self.waiting)

    def reserve(self, ones: Iterable[WorkMessage | ReadyTask]) -> None:
        """Count these in until it is known what comes of them."""
        self.reserved.update(ones)

    def unreserve(self, ones: Iterable[WorkMessage | ReadyTask]) -> None:
        """What has come of these is claimed by now, or not for us."""
        self.reserved.difference_update(ones)

    def in_use(self, target: str) -> int:
        """Runs of a target that have been claimed, or are being claimed."""
        held = sum(target_of(one.work.definition) == target for one in self.claimed)
        return held + sum(isinstance(one, ReadyTask) and one.target == target for one in self.reserved)

    def of_graph(self, graph_id: str) -> int:
        return sum(one.work.graph_id == graph_id for one in self.claimed)

    @property
    def free(self) -> int:
        """Slots for which nothing has been claimed: what is claimed beyond them has to wait, and may never begin."""
        return max(0, self._left())

    @property
    def capacity(self) -> int:
        """How many more tasks may be claimed now."""
        context = self._context
        return 0 if context.draining or context.stopped.is_set() else self._left() + self.ahead

    @property
    def most(self) -> int:
        """How many tasks may be in hand at once."""
        return self._context.slots + self.ahead

    @property
    def ahead(self) -> int:
        """How many tasks are claimed before there is a slot for them."""
        if self.seconds is None:
            return 0
        seconds, slots = self.seconds, self._context.slots
        if seconds > _AHEAD_SECONDS * slots:
            return 0
        if self._running:  # one that takes longer than those before it says more than they do
            first = next(one for one in self._running if one not in self._standing_by)
            seconds = max(seconds, self._context.clock.monotonic() - first.began)
        most = _AHEAD_INSTANT if seconds < _INSTANT_SECONDS else slots * _AHEAD_PER_SLOT
        return min(most, int(_AHEAD_SECONDS * slots / max(seconds, 1e-6)))

    def _left(self) -> int:
        return self._context.slots - len(self._running) - len(self.waiting) - len(self.reserved)

    def expect_instant(self) -> None:
        """What is about to be claimed first takes no time."""
        if self.seconds is None:
            self.seconds = 0.0

    def note_end(self, one: ClaimedRun) -> None:
        """A run has ended by itself."""
        seconds = one.took = 0.0 if one.instant else self._context.clock.monotonic() - one.began
        before = self.seconds
        self.seconds = seconds if before is None else before * _PACE_KEPT + seconds * (1 - _PACE_KEPT)

    # --- filling them

    def admit(self, one: ClaimedRun) -> None:
        """Hold a run until there is a slot for it."""
        one.since = one.began = self._context.clock.monotonic()
        self.waiting.append(one)

    def fill(self) -> None:
        """Begin what has been claimed, as far as there are slots."""
        while self.waiting and not self._context.stopping:
            one = self.waiting[0]
            if one.instant:
                self.waiting.popleft()
                self._run_at_once(one)
            elif self._may_begin(one, len(self._running)):
                self.waiting.popleft()
                self._begin(one)
            else:
                self._on_full()
                return
        self._on_filled()

    def _run_at_once(self, one: ClaimedRun) -> None:
        try:
            outcome = self._runner.execute_at_once(one)
        except Exception as error:
            self._on_ended(one, None, error)
        else:
            self._on_ended(one, outcome, None)

    def _begin(self, one: ClaimedRun, task: "asyncio.Task[Any] | None" = None) -> bool:
        """Begin a run; gives whether this is left to the task. task: that can, without one it gets its own."""
        one.began = self._context.clock.monotonic()
        self._running[one] = None
        self._others += one.executor.queue is None
        if len(self._running) > self._context.slots:
            self._standing_by[one] = None
        try:
            one.begun = self._runner.begin(one, partial(self._note_news, one))
        except Exception as error:  # not at once: what begins it may be the end of another
            one.handle = self._in_task(one, partial(_raise, error))
            return False
        if one.begun is None:
            one.handle = task or self._in_task(one, partial(self._runner.execute, one))
        return one.handle is task is not None

    def _may_begin(self, one: ClaimedRun, running: int) -> bool:
        """Whether to have this begin, beside so many: in a slot, or standing by for one where runs are short."""
        if running < self._context.slots:
            return True
        queue, definition = one.executor.queue, one.work.definition
        return (
            self.seconds is not None
            and self.seconds < _SHORT_SECONDS
            and len(self._standing_by) < _STANDING_BY_MAX
            and not self._others
            and queue is not None
            and not one.takes
            and "deadline" not in definition
            and run_seconds_max(definition) is None
            and queue.is_ready(self._context.slots)
        )

    def _note_news(self, one: ClaimedRun, outcome: Outcome | None) -> None:
        """What has come of a run that was begun by plain calls."""
        if outcome is None:
            self._go_on(one)
        else:
            self._conclude(one, outcome, None)

    def _go_on(self, one: ClaimedRun) -> "asyncio.Task[None]":
        """The task of a run, which from here on sees to it."""
        if one.handle is None:
            if one.begun is None:
                raise RuntimeError("a run that has begun has neither a task nor anything to go on with")
            one.handle = self._in_task(one, partial(self._runner.go_on, one, one.begun))
        return one.handle

    def _in_task(self, one: ClaimedRun, run: _Run) -> "asyncio.Task[None]":
        task = asyncio.create_task(self._occupy(one, run))

        def conclude(ended: "asyncio.Task[None]") -> None:
            if ended.cancelled():  # before its first step, so nothing of it has run
                self._conclude(one, None, None)

        task.add_done_callback(conclude)
        return task

    async def _occupy(self, one: ClaimedRun, run: _Run) -> None:
        """Fill a slot with this run, and then with others as long as some have been claimed that need a task."""
        task = asyncio.current_task()
        following: ClaimedRun | None = one
        while following is not None:
            one = following
            try:
                outcome = await run()
            except asyncio.CancelledError:  # its lease was lost, it is cancelled, or this worker stops  # reach: stock
                self._conclude(one, None, None)
                return
            except Exception as error:  # reach: stock
                following = self._conclude(one, None, error, task)
            else:
                following = self._conclude(one, outcome, None, task)
            if following is not None:
                run = partial(self._runner.execute, following)

    def _conclude(
        self,
        one: ClaimedRun,
        outcome: Outcome | None,
        error: Exception | None,
        task: "asyncio.Task[Any] | None" = None,
    ) -> ClaimedRun | None:
        """A run is over. Gives the one that this task is to see to then.

        One begins where the last has ended, before anything else has its turn: a slot is not to stand empty.
        """
        self._leave_slot(one)
        following = self.waiting[0] if self.waiting and not self._context.stopping else None
        if following is not None and not following.instant and self._may_begin(following, len(self._running)):
            self.waiting.popleft()
            left_to_it = self._begin(following, task)
            self._on_ended(one, outcome, error)
            return following if left_to_it else None
        self._on_ended(one, outcome, error)
        self._context.freed.set()
        self.fill()
        return None

    def _leave_slot(self, one: ClaimedRun) -> None:
        """Give its slot to the next of those that stand by."""
        del self._running[one]
        self._others -= one.executor.queue is None
        self._standing_by.pop(one, None)
        if self._standing_by and len(self._running) - len(self._standing_by) < self._context.slots:
            following = next(iter(self._standing_by))
            del self._standing_by[following]
            following.began = self._context.clock.monotonic()
            self._running[following] = self._running.pop(following)  # they lie in the order in which they began

    # --- taking runs out of them

    def withdraw(self, late: Callable[[ClaimedRun], bool]) -> dict[str, list[ClaimedRun]]:
        """Take out what has not begun and is late, by graph."""
        by_graph: dict[str, list[ClaimedRun]] = {}
        left: deque[ClaimedRun] = deque()
        for one in self.waiting:
            (by_graph.setdefault(one.work.graph_id, []) if late(one) else left).append(one)
        self.waiting = left
        for one in self._standing_by:
            if late(one) and one.executor.queue is not None:
                one.executor.queue.recall(one.work)  # it ends as if it was cancelled, unless it has begun by now
        return by_graph

    def end(self, one: ClaimedRun, *, at_once: bool = False, lost: bool = False) -> bool:
        """End a run before its time; gives whether there was anything to end. at_once: without grace."""
        if one in self.waiting:
            self.waiting.remove(one)
            one.lost = lost
            self._on_ended(one, None, None)
        elif one in self._running:
            one.lost = lost
            self._cancel(one, AT_ONCE if at_once else None)
        else:
            return False
        return True

    def _cancel(self, one: ClaimedRun, message: str | None = None) -> "asyncio.Task[None]":
        if one.handle is not None:
            one.handle.cancel(message)
            return one.handle
        task = self._go_on(one)
        # Once it has taken over: before, the task would end without a look at the run.
        asyncio.get_running_loop().call_soon(task.cancel, message)
        return task

    def tasks(self) -> "Collection[asyncio.Task[None]]":
        """Of all runs that have begun: from here on each has one, to be waited for."""
        return [self._go_on(one) for one in self._running]

    def cancel_running(self) -> "Collection[asyncio.Task[None]]":
        """End all runs that have begun; gives what ends then."""
        return [self._cancel(one) for one in list(self._running)]


async def _raise(error: Exception) -> Outcome:
    raise error
