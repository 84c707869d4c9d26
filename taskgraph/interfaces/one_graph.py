"""One graph: run it here to its end, or wait for its end."""

import contextlib
import functools
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final

from taskgraph.engine.consumer import Consumer
from taskgraph.engine.outlets import OutletSettings
from taskgraph.engine.sweep import Swept, sweep_graph
from taskgraph.interfaces.app import App, worker_name
from taskgraph.interfaces.loops import (
    SETTLED_SECONDS,
    Loop,
    attach,
    collecting_seldom,
    handling,
    listed,
    listed_as_handler,
    locked,
    minding,
    notify_forever,
    running,
)
from taskgraph.interfaces.operations.waiting import poll
from taskgraph.model.flag import Flag, wait_any
from taskgraph.model.states import GRAPH_ENDED, GraphState
from taskgraph.storage.signals.news import Where
from taskgraph.worker.loop import Worker

RUN_HANDLER_LEASE_SECONDS: Final = 15.0
"""In `run` a message is handled in milliseconds; a short lease lets the next `run` go on soon after a crash."""
_LOOK_SECONDS_MIN: Final = 0.05
_REOPENED_SECONDS: Final = 5.0  # for which a graph that has ended is given to be reopened by a rerun that waits
_LOOK_SECONDS_MAX: Final = 1.0
_REST_SECONDS: Final = 10.0
_OF_THE_GRAPH: Final[Where] = {"event": ["graph-*"]}
_IDLE_SECONDS: Final = 0.5  # of `run`, until it looks at the rows of its graph for ready tasks
_IDLE_SECONDS_MAX: Final = 30.0  # between two such looks
_OTHERS_SECONDS: Final = 0.05  # until a run that has just submitted its graph looks for events of others
_HANDLES_SECONDS: Final = 1.0  # a `run` that ends that soon is not listed among the handlers of a store elsewhere
_HANDLES_HERE_SECONDS: Final = 0.05  # nor of one on this machine: who cancels its graph at once looks for it

Watcher = Callable[[GraphState], Awaitable[None]]
"""Called with the state of the graph now and then, while it runs."""


@contextlib.contextmanager
def taking(app: App, graph_id: str, workers: Sequence[Worker], *, every: bool = False) -> Iterator[Consumer]:
    """Meanwhile this process handles a graph; gives what handles it, for `run_graph`. A graph may be submitted within.

    The workers take tasks of this graph alone, which this process offers to no other, from the commit on that starts
    it; or with `every` those of all graphs.
    """
    consumer = app.consumer(lease_seconds=RUN_HANDLER_LEASE_SECONDS)
    consumer.own.add(graph_id)
    attach(consumer, workers)
    with contextlib.ExitStack() as stack:
        stack.callback(consumer.leave)
        stack.enter_context(collecting_seldom())
        stack.enter_context(locked(app, *(worker.name for worker in workers)))
        if not every:
            for worker in workers:
                stack.enter_context(worker.keeping_to(graph_id))
            if (own := app.handlers.dispatcher.own.get(graph_id)) is not None:
                own.worker = consumer.local_worker
        yield consumer


async def run_graph(
    app: App,
    graph_id: str,
    stop: Flag,
    *,
    workers: Sequence[Worker],
    consumer: Consumer | None = None,
    watcher: Watcher | None = None,
    fresh: bool = False,
    outlets: OutletSettings | None = None,
    every: bool = False,
) -> GraphState:
    """Handle events of this store, and work on a graph, until it has ended or nothing of it can move; gives its state.

    Ended means finished or cancelled, or blocked with nothing pending, running or still to be handled. Events of other
    graphs are handled too: they share a queue. consumer: of `taking`, where the graph is taken already; every: as
    there. fresh: this process has just submitted the graph, and so has just sent all that stands ready. outlets: how
    notices are delivered; None: not at all.
    """
    name = worker_name(app.clock)
    with contextlib.ExitStack() as stack:
        if consumer is None:
            consumer = stack.enter_context(taking(app, graph_id, workers, every=every))
        own = app.handlers.dispatcher.own.get(graph_id)
        if not fresh:
            await sweep_graph(app.handlers, graph_id, Swept(), at_once=True)
        elif own is not None and own.rest is not None:
            consumer.put(own.rest)
        # Made last: a loop that is made and never run, because something failed before, is an error of its own.
        loops = handling(app, stop, consumer, receives_after=_OTHERS_SECONDS if fresh else 0.0)
        loops += [listed(app, worker, stop, after_seconds=SETTLED_SECONDS) for worker in workers]
        if outlets is not None:
            loops.append(notify_forever(app, stop, outlets))
        later: list[Loop] = [functools.partial(listed_as_handler, app, name, stop)]
        if fresh:
            later += minding(app, stop, sweeps_after=SETTLED_SECONDS)
        else:
            loops += [each() for each in minding(app, stop)]
        pause = _HANDLES_SECONDS if app.settings.path is None else _HANDLES_HERE_SECONDS
        async with running(*loops, stop=stop, later=later, after_seconds=pause):
            rests = app.clock.monotonic() + (0.0 if fresh else _REOPENED_SECONDS)
            alone = () if every else workers
            return await _until_ended(app, graph_id, consumer, stop, watcher, alone, rests, fresh=fresh)


async def _until_ended(
    app: App,
    graph_id: str,
    consumer: Consumer,
    stop: Flag,
    watcher: Watcher | None,
    alone: Sequence[Worker],
    rests: float,
    *,
    fresh: bool,
) -> GraphState:
    """alone: workers that get no message for a task which another process has made ready: while idle they look.

    rests: until then a message may wait, and be a rerun by which a graph goes on that has ended. fresh: the graph has
    begun just now, so it is looked at a little later.
    """
    ended = Flag()
    last: GraphState | None = None

    def note(ended_id: str, state: GraphState) -> None:
        nonlocal last
        if ended_id == graph_id:
            last = state
            ended.set()

    app.handlers.listeners.ended.append(note)
    pause = _LOOK_SECONDS_MIN
    idle, patience = 0.0, _IDLE_SECONDS
    try:
        if fresh:
            await wait_any((ended, stop), pause)
        while True:
            state = last or await app.queries.state(graph_id)
            last = None  # a rerun may reopen it
            if watcher is not None:
                await watcher(state)
            if stop.is_set():
                return state
            if state not in GRAPH_ENDED:
                rests = 0.0
            elif app.clock.monotonic() >= rests:
                return state
            elif consumer.idle and not await app.handlers.dispatcher.events_waiting():
                rests = 0.0
                continue  # the last one may have been handled after the look at the state
            if state == GraphState.BLOCKED and consumer.idle and await _at_rest(app, graph_id):
                return state
            await wait_any((ended, stop), pause)
            if not alone or not all(worker.at_rest for worker in alone):
                idle, patience = 0.0, _IDLE_SECONDS
            elif (idle := idle + pause) >= patience:
                idle, patience = 0.0, min(patience * 2, _IDLE_SECONDS_MAX)
                await app.handlers.dispatcher.dispatch_ready_rows(graph_id, local_worker=consumer.local_worker)
            pause = min(pause * 1.5, _LOOK_SECONDS_MAX)
    finally:
        app.handlers.listeners.ended.remove(note)


async def _at_rest(app: App, graph_id: str) -> bool:
    """Whether nothing of a blocked graph moves by itself: no message that could change that, and no open work.

    In this order: what was handled after the look at the queues shows in the graph.
    """
    if await app.handlers.dispatcher.events_waiting():
        return False
    return await app.queries.state(graph_id) == GraphState.BLOCKED and not await app.queries.busy(graph_id)


async def wait_for_end(
    app: App, graph_id: str, *, until: float | None = None, watcher: Watcher | None = None
) -> GraphState | None:
    """Look at a graph until it has ended, or is blocked with nothing moving; None when `until` comes first.

    A message that waits to be handled may unblock it, and the queue does not say whose messages it holds: with messages
    there, only a blocked graph that has been at rest for a while counts as ended.
    """
    resting_since: float | None = None
    since: int | str = 0
    where: Where | None = _OF_THE_GRAPH

    async def look() -> GraphState | None:
        nonlocal resting_since, where
        state = await app.queries.state(graph_id)
        if watcher is not None:
            await watcher(state)
        if state in GRAPH_ENDED:
            return state
        where = None if state == GraphState.BLOCKED else _OF_THE_GRAPH
        if state != GraphState.BLOCKED or await app.queries.busy(graph_id):
            resting_since = None
            return None
        now = app.clock.monotonic()
        resting_since = now if resting_since is None else resting_since
        rested = now - resting_since >= _REST_SECONDS
        return state if rested or await _at_rest(app, graph_id) else None

    async def rest(pause: float, most: float) -> None:
        nonlocal since
        if resting_since is None:
            since = await app.queries.news.wait(graph_id, since, where=where, pause=pause, most=most)
        else:  # that messages are handled which change nothing, or not, is no news
            await app.clock.sleep(pause)

    return await poll(look, app.clock, until=until, rest=rest)
