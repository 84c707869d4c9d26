"""Which graph is meant: by its id, by the beginning of one, or as the last one; and the id of a new graph."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from taskgraph.engine.successor import id_after
from taskgraph.interfaces.app import App
from taskgraph.model.errors import DeletedGraph, InvalidInput, NoGraph
from taskgraph.model.ids import GRAPH, LAST, is_graph_id, named_ids
from taskgraph.model.states import GraphState
from taskgraph.queries.lookup import check_graph_id, nearest

if TYPE_CHECKING:
    from taskgraph.documents.nodes import GraphDocument

BEGINNING_CHARS_MIN: Final = 3
_CANDIDATES_SHOWN_MAX: Final = 5

T = TypeVar("T")


async def named(
    app: App, given: str, ask: Callable[[str], Awaitable[T]], *, chosen: Callable[[str], object] = lambda graph_id: None
) -> tuple[str, T]:
    """The id of the graph that `given` stands for, and what `ask` gives for it.

    given: an id, which stands for the successor of a graph that was deleted; where no graph has it, the beginning of
    one among the newest graphs (BEGINNING_CHARS_MIN at least); or LAST. Only when `ask` raises NoGraph or DeletedGraph
    is another graph looked for, so that an id costs nothing more. chosen: called with an id that is not as it was
    given, before it is asked about.

    Raises NotFound, with the store and the nearest ids, and InvalidInput for the beginning of several.
    """
    if given != LAST:
        try:
            return await _asked(given, ask, chosen)
        except NoGraph as error:
            if error.graph_id != given:
                raise
    graph_id = await _meant(app, given)
    chosen(graph_id)
    return await _asked(graph_id, ask, chosen)


async def _asked(graph_id: str, ask: Callable[[str], Awaitable[T]], chosen: Callable[[str], object]) -> tuple[str, T]:
    """What `ask` gives for a graph, or, where that was deleted, for its successor; and the id of that one."""
    while True:
        try:
            return graph_id, await ask(graph_id)
        except DeletedGraph as error:
            if error.graph_id != graph_id or not error.successor:
                raise
            graph_id = error.successor
            chosen(graph_id)


async def whole(app: App, given: str, ask: Callable[[str], Awaitable[T]]) -> T:
    """What `ask` gives for a graph of which it leaves nothing, so that only its whole id stands for it.

    Raises NotFound as `named` does, and InvalidInput for what is no whole id, with that.
    """
    if given != LAST:
        try:
            return await ask(given)
        except NoGraph as error:
            if error.graph_id != given:
                raise
    graph_id = await _meant(app, given)
    raise InvalidInput(f"{given} stands for graph {graph_id}, and only a whole id will do here: write {graph_id}")


async def _meant(app: App, given: str) -> str:
    """The id that stands behind LAST, or has the beginning `given`."""
    store = app.settings.display
    if given == LAST:
        if graph_id := await app.queries.last_id():
            return graph_id
        raise NoGraph(LAST, store=store)
    ids = [each for each in dict.fromkeys(await app.queries.recent_ids()) if each != given]
    begun = [each for each in ids if each.startswith(given)] if len(given) >= BEGINNING_CHARS_MIN else []
    if len(begun) == 1:
        return begun[0]
    if begun:
        shown = ", ".join(begun[:_CANDIDATES_SHOWN_MAX])
        more = len(begun) - _CANDIDATES_SHOWN_MAX
        raise InvalidInput(
            f"{given} is the beginning of {len(begun):,} ids: {shown}{f' and {more:,} more' if more > 0 else ''}; "
            "write more of the one that is meant"
        )
    raise NoGraph(given, nearest(given, ids), store=store)


async def current(app: App, graph_id: str) -> str:
    """The whole id of the graph for which a whole id stands: of the last successor, where that was deleted."""
    while is_graph_id(graph_id) and not app.settings.shared:
        (row,) = await app.tables.get(graph_id, [GRAPH])
        if row is None or row.columns.get("state") != GraphState.DELETED or not row.columns.get("successor"):
            break
        graph_id = str(row.columns["successor"])
    return graph_id


async def new_id(app: App, document: "GraphDocument", file: str = "", *, given: str | None = None) -> str:
    """An id for a new graph: with its name, or that of its file, before some random characters; else all random.

    given: the id that is wanted. On a file one that was deleted is free at once: the graph gets the next one, such as
    `x-2`, and `x` stands for it. On a storage account an id may be what keeps work from being done twice, so there it
    is given as it is, and refused by the submission. Raises InvalidInput for what can be no id.
    """
    if given is not None:
        check_graph_id(given, new=True)
        return given if app.settings.shared else await id_after(app.tables, given)
    fresh = app.clock.new_id()
    named_by_file = Path(file.removesuffix(".gz")).stem
    for each in named_ids(str(document.metadata.get("name", "")), fresh) or named_ids(named_by_file, fresh):
        (row,) = await app.tables.get(each, [GRAPH])
        if row is None:
            return each
    return fresh
