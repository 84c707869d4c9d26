"""What all parts of a worker share: what it was given, whether it goes on, and its work in the background."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, ParamSpec, Protocol

from taskgraph.engine.handlers import Handlers
from taskgraph.engine.poison import Poison
from taskgraph.model import limits
from taskgraph.model.clock import Clock
from taskgraph.model.errors import StorageError, StorageUnavailable, trail
from taskgraph.model.flag import Flag, wait_any
from taskgraph.model.names import QueueNames
from taskgraph.model.placement import Offer
from taskgraph.storage.logs import Logs
from taskgraph.storage.metered import MeteredLogs
from taskgraph.storage.signals.wakeup import Wakeup
from taskgraph.worker.executors import Executors

log = logging.getLogger("taskgraph.worker")

P = ParamSpec("P")

SUBMITTER: Final = "submitter"
"""In place of a folder: the one that each graph was submitted in."""

_DELIVER_SECONDS_MAX: Final = 600.0  # a result is tried for so long; after that the lease decides
_STOPPING_SECONDS_MAX: Final = 3.0  # and for so long by a worker that is to end
_STOPPING_PAUSE_SECONDS: Final = 0.5


class LocalHandlers(Protocol):
    """Who handles events in this process."""

    def takes(self, graph_id: str) -> bool:
        """Whether it handles this graph, and no other process does."""

    def look(self, graph_id: str) -> "asyncio.Task[None]":
        """There is something in hand for this graph."""


@dataclass(slots=True)
class WorkerCounters:
    """What this worker has done since it began."""

    completed: int = 0
    failed: int = 0
    handed_back: int = 0
    cancelled: int = 0
    given_back: int = 0  # for lack of an executor
    lost: int = 0


@dataclass(slots=True, eq=False)
class WorkerContext:
    """One worker as its parts see it. stopped: for good. draining: it claims nothing more, and may go on later."""

    handlers: Handlers
    poison: Poison
    executors: Executors
    logs: Logs
    wakeup: Wakeup
    name: str
    targets: tuple[str, ...]
    offer: Offer
    slots: int
    lease_seconds: float
    store_url: str
    gate_seconds: float = limits.GATE_SECONDS
    """For so long it goes by what it has read of pauses, levels and limits of targets."""
    folder: str = ""
    """What `cwd` of commands begins at: a folder, SUBMITTER, or "" for its own."""
    graph_id: str = ""
    """The only graph that it works on, "" for all."""
    message_seconds: float = 0.0
    """The lease of its work messages, if another than that of its runs."""
    names: QueueNames = field(init=False)
    """Of the queues that it receives from."""
    counters: WorkerCounters = field(default_factory=WorkerCounters)
    local_handlers: LocalHandlers | None = None
    stopped: Flag = field(default_factory=Flag)
    tries_until: float = math.inf
    """Monotonic seconds: what storage has refused until then is left to leases."""
    draining: bool = False
    freed: Flag = field(default_factory=Flag)
    """There may be room again for what waits in a queue, or is waited for."""
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    """Work in the background, which is seen through before the worker ends."""
    clock: Clock = field(init=False)

    def __post_init__(self) -> None:
        self.clock = self.handlers.clock
        if (meter := self.handlers.records.meter) is not None:
            self.logs = MeteredLogs(self.logs, meter)
        self.message_seconds = self.message_seconds or self.lease_seconds
        self.names = self.handlers.names

    @property
    def stopping(self) -> bool:
        return self.stopped.is_set()

    def stop(self) -> None:
        self.tries_until = self.clock.monotonic() + _STOPPING_SECONDS_MAX
        self.stopped.set()

    @property
    def active(self) -> bool:
        """Whether it takes new work."""
        return not (self.stopping or self.draining)

    def works_on(self, graph_id: str) -> bool:
        """Whether tasks of this graph are for this worker."""
        return not self.graph_id or graph_id == self.graph_id

    def is_direct(self, graph_id: str) -> bool:
        """Whether results of this graph go straight to handlers of this process."""
        return self.local_handlers is not None and self.local_handlers.takes(graph_id)

    def background(self, work: Callable[P, Awaitable[None]], *given: P.args, **named: P.kwargs) -> asyncio.Task[None]:
        """Have this done beside everything else. It is called as its task begins, not at all if that ends before."""
        task = asyncio.create_task(self.guard(work, *given, **named))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def guard(self, work: Callable[P, Awaitable[None]], *given: P.args, **named: P.kwargs) -> None:
        """What goes wrong in the background is logged, and does not cost the worker."""
        try:
            await work(*given, **named)
        except StorageError as error:  # reach: stock
            log.warning("left to leases and the sweep: %s", error)
        except Exception as error:  # reach: stock
            log.error("left to leases and the sweep: %s", trail(error))

    async def keep_trying(
        self, call: Callable[[], Awaitable[None]], trouble: str = "a result cannot be delivered yet"
    ) -> None:
        """Try for a long time to get a result out: the work is done, and only its report is missing.

        Or to read what a run needs. Raises StorageUnavailable in the end, soon where the worker stops, and any other
        error at once.
        """
        until = self.clock.monotonic() + _DELIVER_SECONDS_MAX
        pause = 0.5
        while True:
            try:
                await call()
            except StorageUnavailable as error:
                if self.clock.monotonic() > min(until, self.tries_until):
                    raise
                log.warning("%s: %s", trouble, error)
                if self.stopping:
                    await self.clock.sleep(_STOPPING_PAUSE_SECONDS)
                else:
                    await wait_any((self.stopped,), pause)
                    pause = min(pause * 2, 15.0)
            else:
                return
