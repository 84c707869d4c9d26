"""Long-running loops: serve, work, and run one graph to its end; all that one process does side by side."""

import asyncio
import contextlib
import functools
import gc
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from datetime import timedelta
from typing import Any, Final

from taskgraph.engine.consumer import Consumer
from taskgraph.engine.housekeeping import keep_house
from taskgraph.engine.listeners import Alarms
from taskgraph.engine.notifier import Deliveries, Notifier
from taskgraph.engine.outlets import OutletSettings
from taskgraph.engine.sweep import Swept, sweep, sweep_graph
from taskgraph.interfaces.app import App, worker_name
from taskgraph.model import limits
from taskgraph.model.clock import Clock
from taskgraph.model.errors import Conflict, StorageError, StorageUnavailable
from taskgraph.model.flag import Flag, wait_any
from taskgraph.model.ids import reference_of
from taskgraph.model.names import LIVE
from taskgraph.model.states import TaskState
from taskgraph.protocol.context import Outcome
from taskgraph.protocol.runs import LeaseLost
from taskgraph.queries.workers import mark_gone
from taskgraph.storage.private_files import open_to_others
from taskgraph.storage.signals.worker_locks import WorkerLocks
from taskgraph.storage.tables import Range, Row, query_all
from taskgraph.worker.executors.results import remove_leftovers
from taskgraph.worker.loop import Worker

log = logging.getLogger("taskgraph.service")


_ALLOCATIONS: Final = 100_000  # between two looks for garbage
_FILE_SECONDS: Final = 2.0  # between two looks whether the store's file is still there
_SWEEP_REST: Final = 5.0  # pause after a long round of the sweep, in rounds
_MORE_SECONDS: Final = 1.0
SETTLED_SECONDS: Final = 10.0  # a `run` that ends sooner is not listed among the workers, and does not sweep
_ALONE_SECONDS: Final = 5.0  # until a worker looks whether there are handlers: both may be starting
_IDLE_LOOK_SECONDS: Final = 0.5  # between two looks whether a worker has anything in hand
_ALONE_AGAIN_SECONDS: Final = 60.0  # between two such looks, while it has done anything
_DEAD_SECONDS: Final = 1.0  # between two looks at the lock files of this machine's workers
_NOTICE_SECONDS_MIN: Final = 1.0
_NOTICE_SECONDS_MAX: Final = 30.0
_DELIVERIES_MAX: Final = 16  # graphs at a time
_INDEX_SECONDS: Final = 3.0  # between two questions whether a graph that is being worked on has channels
_CHANGED_MAX: Final = 10_000  # graphs
_WAITING_SECONDS: Final = 10.0  # between two looks at the schedules while a fire waits for a graph
_AGAIN_SECONDS: Final = 1.0  # until what could not be ended is tried again
_SPREAD_SECONDS: Final = 0.1  # so that copies do not look at the very same moment, nor one without a pause

Loop = Callable[[], Coroutine[Any, Any, None]]


def _jittered(app: App, seconds: float) -> float:
    """About so long, so that copies do not keep step."""
    return seconds * (0.75 + app.clock.jitter() / 2)


async def sweep_forever(
    app: App, stop: Flag, *, period_seconds: float = limits.SWEEP_SECONDS, after_seconds: float = 0.0
) -> None:
    """Sweep now, or after a while, and then every so often.

    Half as often while there is no live graph. Nothing of a graph that comes meanwhile is to be said again before
    limits.REDISPATCH_SECONDS, so that it is found no later than a graph that was there all along; and when something of
    it is over by time, a handler knows it from the submission (`end_what_is_over`).
    """
    if after_seconds:
        await wait_any((stop,), after_seconds)
    while not stop.is_set():
        pause = period_seconds
        try:
            began = app.clock.monotonic()
            swept = await sweep(app.handlers, period_seconds=period_seconds, logs=app.logs)
            # A round that looks at a million ready tasks takes seconds, and must not be most of what this process does.
            pause = max(pause, _SWEEP_REST * (app.clock.monotonic() - began))
            if swept.graphs == 0:
                pause *= 2
            if swept.did_something:
                log.info("sweep: %s", swept)
        except StorageError as error:
            log.warning("the sweep could not finish: %s", error)
        await wait_any((stop,), _jittered(app, pause))


async def bury_forever(app: App, stop: Flag, *, after_seconds: float = 0.0) -> None:
    """Give up the runs of workers of this machine that were killed: now, or after a while, and every few seconds.

    A round looks at lock files alone; rows are read when one shows that its worker is gone.
    """
    if after_seconds:
        await wait_any((stop,), after_seconds)
    while app.locks is not None and not stop.is_set():
        try:
            await bury(app, app.locks)
        except StorageError as error:  # reach: loops
            log.warning("runs of workers that are gone could not be given up: %s", error)
        await wait_any((stop,), _DEAD_SECONDS)


async def bury(app: App, locks: WorkerLocks) -> int:
    """Give up all runs of workers whose process is certainly gone, and have them shown as gone; gives how many."""
    dead = frozenset(filter(locks.is_dead, locks.found()))
    if not dead or await app.handlers.dispatcher.events_waiting():
        return 0  # the last message of a dead worker may be among them
    live = await query_all(app.tables, LIVE, Range())
    given_up = sum([await _give_up_runs(app, row.key, dead) for row in live])
    await mark_gone(app.tables, dead)
    for name in dead:
        locks.forget(name)
    if given_up:
        log.info("%d runs of workers of this machine that are gone were given up", given_up)
    return given_up


async def _give_up_runs(app: App, graph_id: str, workers: AbstractSet[str]) -> int:
    """Give up the runs of a graph that these workers hold; gives how many."""
    held = Range("task:", "task;", where={"state": (str(TaskState.RUNNING),)}, select=("run", "claim", "worker"))
    items = [
        LeaseLost(reference_of(row.key), run, str(row.columns.get("claim", "")), certain=True)
        for row in await query_all(app.tables, graph_id, held)
        if str(row.columns.get("worker", "")) in workers and isinstance(run := row.columns.get("run", 0), int)
    ]
    answers = await app.handlers.transition(graph_id, items) if items else []
    return sum(answer.outcome is Outcome.APPLIED for answer in answers)


async def tidy_forever(app: App, stop: Flag) -> None:
    """Remove what processes of this machine left that were killed: sockets, folders for results; every so often."""
    await wait_any((stop,), SETTLED_SECONDS)  # it would take time from the first tasks
    while not stop.is_set():
        sockets = await asyncio.to_thread(app.wakeup.clear)
        folders = await asyncio.to_thread(remove_leftovers, app.clock.now())
        if sockets or folders:
            log.info("removed what processes that are gone have left: %d sockets, %d folders", sockets, folders)
        await wait_any((stop,), _jittered(app, limits.KEEP_SECONDS))


async def end_what_is_over(app: App, stop: Flag, *, period_seconds: float = limits.SWEEP_SECONDS) -> None:
    """Look at a graph when something of it is over by time: a deadline, a wait. The sweep learns of the rest.

    period_seconds: between two looks at the clock at most, which may be set.
    """
    alarms = Alarms()
    app.handlers.listeners.due.append(alarms.note)
    try:
        while not stop.is_set():
            for graph_id in alarms.take(app.clock.now()):
                try:
                    await sweep_graph(app.handlers, graph_id, Swept())
                except (StorageError, Conflict) as error:  # reach: loops
                    log.warning("what is over in graph %s could not be ended: %s", graph_id, error)
                    alarms.note(graph_id, app.clock.now() + timedelta(seconds=_AGAIN_SECONDS))
            await wait_any((stop, alarms.earlier), alarms.seconds_left(app.clock.now(), period_seconds))
    finally:
        app.handlers.listeners.due.remove(alarms.note)


async def keep_house_forever(
    app: App, stop: Flag, *, keep_days: float | None = None, period_seconds: float = limits.KEEP_SECONDS
) -> None:
    """Take away what is over by time, now and every so often; at once again while there is more of it."""
    while not stop.is_set():
        pause = period_seconds
        try:
            kept = await keep_house(app.handlers, app.logs, keep_days=keep_days)
            if kept.more or (app.give_back is not None and await app.give_back()):
                pause = _MORE_SECONDS
            if kept.did_something:
                log.info("kept house: %s", kept)
        except StorageError as error:  # reach: deletion
            log.warning("the house could not be kept: %s", error)
        await wait_any((stop,), _jittered(app, pause))


async def notify_forever(
    app: App, stop: Flag, outlets: OutletSettings, *, period_seconds: float = limits.SWEEP_SECONDS
) -> None:
    """Deliver the notices of all graphs.

    A graph with notices still to deliver is looked at soon after a commit of this process about it, and else after
    pauses that double while there is nothing new. Without any such graph the index is read every few seconds while this
    process commits anything, and otherwise half as often as the sweep reads that of live ones.
    """
    news = Flag()
    changed: set[str] = set()

    def note(graph_id: str) -> None:
        if not news.is_set() or len(changed) < _CHANGED_MAX:
            changed.add(graph_id)
            news.set()

    async with app.notifier(outlets) as notifier:
        app.handlers.listeners.news.append(note)
        looks = Looks(app.clock)
        try:
            while not stop.is_set():
                pause = period_seconds * 4
                asked = app.clock.monotonic()
                try:
                    if await _notify_once(notifier, looks, changed):
                        pause = min(pause, looks.seconds_left())
                except StorageError as error:  # reach: notices
                    log.warning("notices could not be delivered: %s", error)
                if not changed:
                    news.clear()
                await wait_any((stop, news), pause)
                if not looks.knows(changed):
                    left = min(pause, asked + _INDEX_SECONDS - app.clock.monotonic())
                    await wait_any((stop,), max(0.0, left))
        finally:
            app.handlers.listeners.news.remove(note)


async def _notify_once(notifier: Notifier, looks: "Looks", changed: set[str]) -> bool:
    """Deliver for every graph that is due; gives whether there is any graph to come back to."""
    listed = await notifier.waiting()
    fresh = set(changed)
    changed.clear()
    due = [row for row in listed if row.key in fresh or looks.due(row.key)]
    looks.forget_all_but({row.key for row in listed})
    at_once = asyncio.Semaphore(_DELIVERIES_MAX)

    async def deliver(row: Row) -> None:
        async with at_once:
            done = await notifier.deliver(row.key, listed=row)
        looks.after(row.key, moved=bool(done.delivered or done.failed))
        for trouble in done.troubles:
            log.warning("notices of graph %s", trouble)

    await asyncio.gather(*[deliver(row) for row in due])
    return bool(listed)


class Looks:
    """When to look at which graph again for notices: soon after some were delivered, and ever less without any."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._next: dict[str, tuple[float, float]] = {}  # graph id -> the moment, and the pause before it

    def due(self, graph_id: str) -> bool:
        """Whether to look now. A graph that is new here is."""
        return self._clock.monotonic() >= self._next.get(graph_id, (0.0, 0.0))[0]

    def knows(self, graph_ids: AbstractSet[str]) -> bool:
        """Whether any of these has been looked at."""
        return not self._next.keys().isdisjoint(graph_ids)

    def after(self, graph_id: str, *, moved: bool) -> None:
        before = self._next.get(graph_id, (0.0, 0.0))[1]
        pause = _NOTICE_SECONDS_MIN if moved or not before else min(before * 2, _NOTICE_SECONDS_MAX)
        self._next[graph_id] = (self._clock.monotonic() + pause, pause)

    def forget_all_but(self, graph_ids: AbstractSet[str]) -> None:
        for graph_id in self._next.keys() - graph_ids:
            del self._next[graph_id]

    def seconds_left(self) -> float:
        """Until the next look at any of them."""
        soonest = min((moment for moment, _ in self._next.values()), default=self._clock.monotonic())
        return max(0.0, soonest - self._clock.monotonic())


async def deliver_rest(
    app: App, graph_id: str, stop: Flag, outlets: OutletSettings, *, seconds: float = 30.0
) -> Deliveries:
    """Deliver what is left of one graph's notices, for so long at most. The answer says what still waits."""
    until = app.clock.monotonic() + seconds
    async with app.notifier(outlets) as notifier:
        while True:
            done = await notifier.deliver(graph_id)
            if not done.waiting or stop.is_set() or app.clock.monotonic() >= until:
                return done
            await wait_any((stop,), _NOTICE_SECONDS_MIN / 2)


async def keep_schedules(app: App, stop: Flag, *, period_seconds: float = limits.SCHEDULE_LOOK_SECONDS) -> None:
    """Look at the schedules now, and then as soon as one is due, or every so often (with jitter, as the sweep does).

    Half as often while there is none: one that is made elsewhere meanwhile is found before it counts as late.
    A change of a schedule on this machine wakes it at once; one on another machine is found by the next look. While a
    fire waits for a graph that is not over, it looks more often.
    """
    schedules = app.schedules()
    while not stop.is_set():
        ticket = app.wakeup.ticket(app.names.schedules)
        pause = _jittered(app, period_seconds)
        try:
            looked = await schedules.look()
            if not looked.schedules:
                pause *= 2
            if looked.waiting:
                pause = min(pause, _WAITING_SECONDS)
            if looked.soonest is not None:
                until = (looked.soonest - app.clock.now()).total_seconds()
                pause = min(pause, max(until, 0.0) + _SPREAD_SECONDS * app.clock.jitter())
            if looked.did_something:
                log.info("schedules: %s", looked)
            for failure in looked.failed:
                log.warning("%s", failure)
        except StorageError as error:  # reach: schedules
            log.warning("the schedules could not be looked at: %s", error)
        await ticket.wait(stop, max(min(pause, ticket.seconds_max), _SPREAD_SECONDS))


async def keep_to_the_file(app: App, stop: Flag) -> None:
    """Where the store is a file: see that the one that was opened is still the one that lies there.

    A file that was removed or replaced takes all that is written, and is gone when the last process closes it. Raises
    StorageUnavailable.
    """
    while app.taken_away is not None and not stop.is_set():
        if became := app.taken_away():
            path = str(app.settings.path)
            raise StorageUnavailable(
                f"{path} was {became} while it was in use; what is written from now on would be lost", path
            )
        await wait_any((stop,), _FILE_SECONDS)


def _warn_of_readers(app: App) -> None:
    path = app.settings.path
    if path is not None and (open_ones := open_to_others(path)):
        names = ", ".join(str(each) for each in open_ones)
        log.warning("every user of this machine can read %s: chmod -R o= (new stores are their owner's alone)", names)


@contextlib.asynccontextmanager
async def running(
    *loops: Coroutine[Any, Any, None], stop: Flag, later: Sequence[Loop] = (), after_seconds: float = 0.0
) -> AsyncIterator[None]:
    """Run loops beside the body; on leaving, stop them and wait for them. Raises the first error of one.

    later: loops that begin after so long, and not at all beside a body that is over by then.
    """
    tasks: list[asyncio.Task[None]] = []

    def stop_all(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            stop.set()

    def begin(loops: Iterable[Coroutine[Any, Any, None]]) -> None:
        for loop in loops:
            tasks.append(asyncio.create_task(loop))
            tasks[-1].add_done_callback(stop_all)

    begin(loops)
    timer = asyncio.get_running_loop().call_later(after_seconds, lambda: begin(each() for each in later))
    try:
        yield
    finally:
        timer.cancel()
        stop.set()
        if tasks:
            await asyncio.wait(tasks)
    for task in tasks:
        task.result()


@contextlib.contextmanager
def collecting_seldom() -> Iterator[None]:
    """Look for garbage in cycles seldom, and never among what exists now: it took a quarter of a wide graph's time."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(max(before[0], _ALLOCATIONS), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def locked(app: App, *names: str) -> contextlib.ExitStack:
    """Lock files of workers and handlers, where the store has any. Raises StorageUnavailable."""
    with contextlib.ExitStack() as stack:
        try:
            if app.locks is not None:
                for name in names:
                    stack.enter_context(app.locks.hold(name))
        except OSError as error:
            path = str(app.settings.path)
            reason = f"the folder of {path} cannot be made: is the one above not writable? {error.strerror}"
            raise StorageUnavailable(reason, path) from error
        return stack.pop_all()


async def serve(
    app: App,
    stop: Flag,
    *,
    workers: Sequence[Worker] = (),
    keep_days: float | None = None,
    outlets: OutletSettings | None = None,
    others: Sequence[Callable[[], Coroutine[Any, Any, None]]] = (),
    queues: int | None = None,
) -> None:
    """Handle events, sweep, fire schedules, keep house, deliver notices (and work), until `stop` is set.

    keep_days: for how long graphs are kept after their end, None for ever. outlets: how notices leave; None for queues
    and unsigned webhooks. others: loops that run beside these. queues: among so many all processes of the store share
    events out from now on.
    """
    if queues is not None:
        await app.handlers.dispatcher.event_queues.use(queues)
    consumer, name = app.consumer(), worker_name(app.clock)
    attach(consumer, workers)
    with collecting_seldom(), locked(app, *(worker.name for worker in workers)):
        _warn_of_readers(app)
        async with running(
            *handling(app, stop, consumer),
            *[each() for each in minding(app, stop)],
            listed_as_handler(app, name, stop),
            keep_house_forever(app, stop, keep_days=keep_days),
            notify_forever(app, stop, outlets or OutletSettings()),
            keep_schedules(app, stop),
            *[listed(app, worker, stop) for worker in workers],
            *[each() for each in others],
            stop=stop,
        ):
            await stop.wait()


def handling(
    app: App, stop: Flag, consumer: Consumer, *, receives_after: float = 0.0
) -> list[Coroutine[Any, Any, None]]:
    """The loops of every process that handles events."""
    return [consumer.run(stop, after_seconds=receives_after), end_what_is_over(app, stop)]


def minding(app: App, stop: Flag, *, sweeps_after: float = 0.0) -> list[Loop]:
    """Its further loops: they mind what others have left."""
    return [
        functools.partial(sweep_forever, app, stop, after_seconds=sweeps_after),
        functools.partial(bury_forever, app, stop, after_seconds=min(sweeps_after, _DEAD_SECONDS)),
        functools.partial(keep_to_the_file, app, stop),
        functools.partial(tidy_forever, app, stop),
    ]


def attach(consumer: Consumer, workers: Sequence[Worker]) -> None:
    """Have workers report to the consumer of their process; the first also takes what its commits make ready."""
    if workers:
        consumer.local_worker = workers[0].attach(consumer)


async def work(app: App, stop: Flag, worker: Worker, *, idle_seconds: float = 0.0) -> None:
    """Work until `stop` is set, or until the worker has drained, or had nothing to do for so long; 0: for ever."""
    with collecting_seldom(), locked(app, worker.name):
        _warn_of_readers(app)
        loops = [keep_to_the_file(app, stop), tidy_forever(app, stop), warn_without_handlers(app, stop, worker)]
        if idle_seconds:
            loops.append(end_when_idle(app, stop, worker, idle_seconds))
        async with running(*loops, stop=stop):
            await listed(app, worker, stop)


async def end_when_idle(app: App, stop: Flag, worker: Worker, seconds: float) -> None:
    """Set `stop` once the worker has had nothing in hand for so long."""
    ended, since = -1, app.clock.monotonic()
    while (left := since + seconds - app.clock.monotonic()) > 0:
        if await wait_any((stop,), min(left, _IDLE_LOOK_SECONDS)):
            return
        now = worker.counters.completed + worker.counters.failed
        if now != ended or not worker.at_rest:
            ended, since = now, app.clock.monotonic()
    log.info("nothing to do for %g s: ending", seconds)
    stop.set()


async def warn_without_handlers(app: App, stop: Flag, worker: Worker) -> None:
    """Log when no handler reads the results of this worker, and when one does again: a look a minute while it works."""
    warned, ended = False, -1
    pause = _ALONE_SECONDS
    while not await wait_any((stop,), pause):
        pause = _ALONE_AGAIN_SECONDS
        now = worker.counters.completed + worker.counters.failed
        if worker.at_rest and now == ended and not warned:
            continue
        ended = now
        try:
            handled = (await app.crew()).handled
        except StorageError as error:  # reach: registry
            log.warning("cannot see whether there are handlers: %s", error)
            continue
        if not handled and not warned:
            log.warning("no handler reads the results of this worker: start taskgraph serve")
        elif handled and warned:
            log.warning("a handler reads the results of this worker again")
        warned = not handled


async def listed_as_handler(app: App, name: str, stop: Flag) -> None:
    """Have a row in the registry until `stop` is set, and a lock file as long."""
    registration = app.handler_registration(name)
    with locked(app, name):
        try:
            await registration.keep(stop)
        finally:
            await registration.leave()


async def listed(app: App, worker: Worker, stop: Flag, *, after_seconds: float = 0.0) -> None:
    """Work until `stop` is set, with a row in the registry meanwhile, by which this worker alone may be ended."""
    own = Flag()
    registration = app.registration(worker)
    try:
        with stop.calling(own.set):
            keep = functools.partial(registration.keep, own)
            async with running(stop=own, later=[keep], after_seconds=after_seconds):
                await worker.run(own)
    finally:
        await registration.leave()
