"""Find what is wrong with the rows of a graph, or of a store and all its live graphs, and mend what can be mended."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from taskgraph.engine.doctor import Examined, examine_graph, live_graphs, repair_graph
from taskgraph.engine.queue_findings import examine_queues
from taskgraph.engine.store_times import ExaminedStore, examine_store, repair_store
from taskgraph.interfaces.app import App
from taskgraph.interfaces.operations.checks import asked_by, over_http
from taskgraph.model.errors import NotFound
from taskgraph.queries.lookup import check_graph_id


async def examine(app: App, graph_id: str, *, repair: bool, progress: Callable[[int], None]) -> Examined:
    """repair: mend what can be mended for certain. progress: called with the number of rows read so far."""
    check_graph_id(graph_id)
    look, handled = _repair if repair else _examine, (await app.crew()).handled
    try:
        return await look(app, graph_id, progress, handled)
    except NotFound:
        await app.queries.graph_row(graph_id)  # says when it was deleted, and why
        raise


async def _examine(app: App, graph_id: str, progress: Callable[[int], None], handled: bool) -> Examined:
    return await examine_graph(app.handlers, app.poison, graph_id, progress=progress, handled=handled)


@over_http("repair")
async def _repair(app: App, graph_id: str, progress: Callable[[int], None], handled: bool) -> Examined:
    return await repair_graph(app.handlers, app.poison, graph_id, progress=progress, handled=handled, by=asked_by())


async def examine_all(
    app: App, *, repair: bool, progress: Callable[[int, int], None]
) -> tuple[ExaminedStore, list[Examined], list[str]]:
    """What is wrong with the store's own rows, with each live graph, and which of these have no rows.

    progress: called with (graphs so far, graphs in all).
    """
    if repair:
        app.check_direct("mending a store")
        store = await repair_store(app.tables, app.hidden, app.clock)
        await app.handlers.dispatcher.move_left()
    else:
        store = await examine_store(app.tables, app.hidden, app.clock.now())
    waiting = await examine_queues(app.tables, app.queues, app.clock, app.names)
    store = replace(store, findings=(*store.findings, *waiting))
    look = partial(repair_graph, by=asked_by()) if repair else examine_graph
    handled = (await app.crew()).handled
    graphs = await live_graphs(app.handlers)
    found: list[Examined] = []
    gone: list[str] = []
    for number, graph_id in enumerate(graphs):
        progress(number, len(graphs))
        try:
            found.append(await look(app.handlers, app.poison, graph_id, handled=handled))
        except NotFound:
            gone.append(graph_id)  # being submitted, or never was: the sweep drops the name after an hour
    return store, found, gone
