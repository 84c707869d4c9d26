"""Which graph is meant: by its id, by the beginning of one, or as the last one; and the id of a new graph."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from taskgraph.interfaces.app import App
from taskgraph.model.errors import InvalidInput, NoGraph
from taskgraph.model.ids import GRAPH, LAST, named_ids
from taskgraph.queries.lookup import nearest

if TYPE_CHECKING:
    from taskgraph.documents.nodes import GraphDocument

BEGINNING_CHARS_MIN: Final = 3
_CANDIDATES_SHOWN_MAX: Final = 5

T = TypeVar("T")


async def named(
    app: App, given: str, ask: Callable[[str], Awaitable[T]], *, chosen: Callable[[str], object] = lambda graph_id: None
) -> tuple[str, T]:
    """The id of the graph that `given` stands for, and what `ask` gives for it.

    given: an id; where no graph has it, the beginning of one among the newest graphs (BEGINNING_CHARS_MIN at least);
    or LAST. Only when `ask` raises NoGraph is another graph looked for, so that an id costs nothing more. chosen:
    called with an id that is not as it was given, before it is asked about.

    Raises NotFound, with the store and the nearest ids, and InvalidInput for the beginning of several.
    """
    if given != LAST:
        try:
            return given, await ask(given)
        except NoGraph as error:
            if error.graph_id != given:
                raise
    graph_id = await _meant(app, given)
    chosen(graph_id)
    return graph_id, await ask(graph_id)


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


async def new_id(app: App, document: "GraphDocument", file: str = "") -> str:
    """An id for a new graph: with its name, or that of its file, before some random characters; else all random."""
    fresh = app.clock.new_id()
    named_by_file = Path(file.removesuffix(".gz")).stem
    for each in named_ids(str(document.metadata.get("name", "")), fresh) or named_ids(named_by_file, fresh):
        (row,) = await app.tables.get(each, [GRAPH])
        if row is None:
            return each
    return fresh
